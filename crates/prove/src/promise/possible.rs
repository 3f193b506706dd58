//! Faults that cannot be injected here, and where they can.

use engines::Engine;
use engines::profile::NodeLinks;
use record::promise::{Promise, Standing};

use crate::fault::{Fault, Plan};

/// What can be reported when nothing was promised to be injected: the fault is not possible here.
pub fn not_possible(
    engine: Engine,
    (workload, setting): (&str, &str),
    plan: &Plan,
    fault: Fault,
    why: &str,
) -> Promise {
    Promise {
        workload: workload.to_owned(),
        promise: "no acknowledged write is lost".to_owned(),
        setting: setting.to_owned(),
        fault: plan.to_string(),
        standing: Standing::NotPossible,
        unit: "transactions".to_owned(),
        why: format!("{}: {why}", fault.description()),
        change: where_possible(engine).to_owned(),
        ..Promise::default()
    }
}

/// Where a fault can be injected that is not possible here. `--local` makes clusters of PostgreSQL only.
fn where_possible(engine: Engine) -> &'static str {
    match engine.links {
        NodeLinks::Own => {
            "inject a fault that stops a server, on a cluster of pgfathom up: kill, pause or restart; prove --local makes no cluster of this engine"
        }
        NodeLinks::Streaming | NodeLinks::ForeignServers | NodeLinks::Subscriptions => {
            "pgfathom prove --local KIND makes its own cluster for faults"
        }
    }
}
