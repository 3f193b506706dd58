//! One module per verb: its flags with their checks, and what it does with the libraries.

pub mod demo;
pub mod down;
pub mod explain;
pub mod load;
pub mod matrix;
pub mod prove;
pub mod report;
pub mod run;
pub mod selftest;
pub mod up;
pub mod verify;
pub mod watch;
