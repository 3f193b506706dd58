//! One module per verb: its flags and their checks, and its calls of the libraries.

pub mod check;
pub mod demo;
pub mod down;
pub mod explain;
pub mod load;
pub mod matrix;
pub mod plan;
pub mod prove;
pub mod relay;
pub mod report;
pub mod run;
pub mod selftest;
pub mod up;
pub mod verify;
pub mod watch;
