//! PostgreSQL servers on this host: clusters that `up` makes and `down` removes, throwaway servers of tests and demos, and the remains of killed
//! processes.

pub mod leftover;
pub mod local;
pub mod relay;
mod sys;
pub mod throwaway;
