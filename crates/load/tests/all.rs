//! All tests of this crate in one program; `scripts/test` runs each module as a suite of its own.

mod support;

mod live_cluster;
mod live_crash;
mod live_crash_tpcc;
mod live_definition;
mod live_load;
mod live_scale;
mod live_trust;
