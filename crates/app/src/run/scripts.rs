//! What was requested with -b and -f, read and compiled once: a script that is edited while a sweep goes on does not change what the sweep
//! measures, and standard input can be read only once.

use run::script::{Mix, Source};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use workloads::driving::Builtin;

/// The workload of some flags, once it has been read. All clones of the flags share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Once(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    read: OnceLock<Read>,
    is_warned: AtomicBool,
}

/// A workload as it was read.
#[derive(Debug)]
pub(super) struct Read {
    /// What was requested, in order.
    pub(super) selected: Vec<Selected>,
    /// All scripts of it, compiled together.
    pub(super) mix: Option<Arc<Mix>>,
}

impl Once {
    /// What was read, or what `read` reads now.
    pub(super) fn get<E>(&self, read: impl FnOnce() -> Result<Read, E>) -> Result<&Read, E> {
        if let Some(read) = self.0.read.get() {
            return Ok(read);
        }
        let read = read()?;
        Ok(self.0.read.get_or_init(|| read))
    }

    /// True at the first call only: what all steps of a sweep would say is reported once.
    pub(super) fn is_first_warning(&self) -> bool {
        !self.0.is_warned.swap(true, Ordering::Relaxed)
    }
}

/// A script, and the SHA-256 of the file it was read from.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) source: Source,
    pub(super) sha256: String,
}

impl Script {
    /// What run.json keeps of it.
    pub(super) fn described(&self) -> Value {
        json!({"name": self.source.name, "weight": self.source.weight, "sha256": self.sha256})
    }
}

/// One thing the user requested.
#[derive(Debug)]
pub(super) enum Selected {
    Script(Script),
    Family(&'static Builtin, u64),
}

impl Selected {
    pub(super) fn weight(&self) -> u64 {
        match self {
            Selected::Family(_, weight) => *weight,
            Selected::Script(script) => u64::from(script.source.weight),
        }
    }

    pub(super) fn script(&self) -> Option<&Script> {
        match self {
            Selected::Script(script) => Some(script),
            Selected::Family(..) => None,
        }
    }
}
