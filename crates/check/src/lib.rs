//! Preflight: what hosts and nodes give before a load or a run depends on them.
//!
//! | module | does |
//! |---|---|
//! | [`hosts`] | which hosts: host files as gpssh reads them |
//! | [`probe`] | measures on one host: disks, memory, processor, network; it runs on that host, locally in a thread |
//! | [`link`] | reaches the probe of a host: a thread, `ssh` to an installed pgfathom, or to a copied one |
//! | [`fallback`] | what is measured without pgfathom on the other host: `fio`, `iperf3`, kernel files over ssh |
//! | [`survey`] | everything at once: all hosts in parallel, pairs of hosts in turn, in one or several rounds |
//! | [`host`], [`network`] | judge what was measured, and compare hosts |
//! | [`contrast`], [`spread`] | compare hosts with each other, and rounds with each other |
//! | [`accept`] | judges it by an acceptance file |
//! | [`planned`] | judges nodes and disks by a plan |
//! | [`database`] | the settings, the schema and the state of a node |
//!
//! All results are [`record::check::Item`]s, with the measurements behind them in [`record::check::Checks`].

pub mod accept;
pub mod contrast;
pub mod database;
pub mod fallback;
pub mod host;
pub mod hosts;
pub mod link;
mod names;
pub mod network;
pub mod planned;
pub mod probe;
pub mod spread;
pub mod survey;
