//! Drive: scripts, schedules, sessions, workers.

pub mod random;
