//! All tests of this crate in one program; `scripts/test` runs each module as a suite of its own.

mod engines;
mod found;
mod hostile;
mod local;
mod marks;
mod outlived;
mod throwaway;
mod topologies;
