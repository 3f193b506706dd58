//! Faults that cannot be injected here, and where they can.

use engines::Engine;
use engines::profile::NodeLinks;
use record::promise::{Promise, Standing};

use crate::fault::{Fault, Plan, Site};

/// What can be reported when nothing was promised to be injected: the fault is not possible here.
pub fn not_possible(
    site: &Site,
    (workload, setting): (&str, &str),
    plan: &Plan,
    fault: Fault,
    why: &str,
) -> Promise {
    Promise {
        workload: workload.to_owned(),
        promise: match workload {
            "ack" => "no acknowledged write is lost".to_owned(),
            other => format!("what {other} checks holds under this fault"),
        },
        setting: setting.to_owned(),
        fault: plan.to_string(),
        standing: Standing::NotPossible,
        unit: "transactions".to_owned(),
        why: format!("{}: {why}", fault.description()),
        change: match site.silent_node(plan) {
            Some(node) => format!(
                "run pgfathom prove again when {} answers; to see whether it does: psql {} -c 'select 1'",
                node.name,
                shell_word(&node.spec.describe())
            ),
            None => where_possible(site.engine).to_owned(),
        },
        ..Promise::default()
    }
}

/// `text` as one word of a shell's command line.
fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
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
