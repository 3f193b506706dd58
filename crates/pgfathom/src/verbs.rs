//! One module per verb: its flags with their checks, and what it does with the libraries.

pub mod selftest;
