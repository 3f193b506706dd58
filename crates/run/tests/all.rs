//! All tests of this crate in one program; `scripts/test` runs each module as a suite of its own.

mod sys;

mod ends;
mod failover;
mod fuzz_corpus;
mod live;
mod not_now;
mod open_blocks;
mod pgbench_dialect;
mod scripts_doc;
mod settle;
mod simulation;
mod tls;
