//! The JSON schemas of the run directory, made from its types: nothing of it is in the program.

mod tests;

pub(crate) use tests::of;
