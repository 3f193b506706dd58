//! Drive: scripts, schedules, sessions, workers.
