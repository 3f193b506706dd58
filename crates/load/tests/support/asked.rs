//! What a test asks of a load of the table of YCSB: its content, and how it is loaded.

use std::time::Duration;

use data::ycsb::Spec;
use load::{Deadline, Method, Segment, Via};
use workloads::ycsb::dataset::Ycsb;

/// The content, and the fields of [`load::Options`].
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) rows: u64,
    pub(crate) spec: Spec,
    pub(crate) partitions: Option<u32>,
    pub(crate) streams: usize,
    pub(crate) method: Option<Method>,
    pub(crate) restart: bool,
    pub(crate) force: Vec<String>,
    pub(crate) tablespaces: Vec<String>,
    pub(crate) reconnect_limit: Duration,
    pub(crate) chunk_rows: Option<u64>,
    pub(crate) via: Option<Via>,
    pub(crate) segment: Segment,
    pub(crate) unlogged: bool,
    pub(crate) keep_free_bytes: Option<u64>,
    pub(crate) deadline: Option<Deadline>,
}

impl Options {
    /// So many rows, with every default.
    pub(crate) fn new(rows: u64, spec: Spec) -> Options {
        let load::Options {
            partitions,
            streams,
            method,
            restart,
            force,
            tablespaces,
            reconnect_limit,
            chunk_rows,
            via,
            segment,
            unlogged,
            keep_free_bytes,
            deadline,
        } = load::Options::new();
        Options {
            rows,
            spec,
            partitions,
            streams,
            method,
            restart,
            force,
            tablespaces,
            reconnect_limit,
            chunk_rows,
            via,
            segment,
            unlogged,
            keep_free_bytes,
            deadline,
        }
    }

    /// What is loaded, and how.
    pub(crate) fn parts(&self) -> (Ycsb, load::Options) {
        let asked = self.clone();
        let options = load::Options {
            partitions: asked.partitions,
            streams: asked.streams,
            method: asked.method,
            restart: asked.restart,
            force: asked.force,
            tablespaces: asked.tablespaces,
            reconnect_limit: asked.reconnect_limit,
            chunk_rows: asked.chunk_rows,
            via: asked.via,
            segment: asked.segment,
            unlogged: asked.unlogged,
            keep_free_bytes: asked.keep_free_bytes,
            deadline: asked.deadline,
        };
        (Ycsb::new(asked.rows, asked.spec), options)
    }
}
