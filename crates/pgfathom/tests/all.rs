//! All tests of this crate in one program; `scripts/test` runs each module as a suite of its own.

#[path = "support/benchmark.rs"]
mod found;
#[path = "support/labs.rs"]
mod labs;
#[path = "support/mistakes.rs"]
mod mistakes;
#[path = "support/relay.rs"]
mod relay;
mod support;

mod benchmarks;
mod catalogue;
mod check_hostile;
mod check_hosts;
mod check_local;
mod cli_errors;
mod cluster;
mod conformance;
mod decoys;
mod demo;
mod distances;
mod drive;
mod engines;
mod every_verb;
mod evidence;
mod failover;
mod failover_manager;
mod files;
mod foreign_nodes;
mod full_disk;
mod fuzz_corpus;
mod help;
mod hostile;
mod hostile_tables;
mod limit;
mod links;
mod load_cluster;
mod mixed;
mod node_errors;
mod nodes;
mod plan;
mod pooler;
mod progress;
mod promises;
mod prove;
mod scripts;
mod search_path;
mod signals;
mod slow_server;
mod stand_ins;
mod sweep;
mod tpcc;
mod tpcc_cluster;
mod tried;
mod verify_cluster;
mod watch;
mod watch_nodes;
mod wrong_words;
