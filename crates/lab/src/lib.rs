//! PostgreSQL servers on this machine: clusters that `up` makes and `down` removes, throwaway servers of tests and demos, and what killed
//! processes of ours left behind.

pub mod leftover;
pub mod local;
mod sys;
pub mod throwaway;
