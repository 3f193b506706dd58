//! Nodes that are no part of their cluster yet when a proof begins, though it will take them back soon.

use std::time::{Duration, Instant};

use connect::Cause;
use connect::ConnSpec;
use engines::Engine;
use engines::profile::reports_lost_node;

use crate::client::{Client, ClientError};

/// The time limit for one question.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a node may take until it is a part of its cluster.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Waits until no node answers that it is no part of its cluster: one that catches up after an earlier fault. A node that does not answer at all is not
/// waited for. `say` learns what is waited for.
pub fn await_members<'a>(
    engine: Engine,
    members: impl IntoIterator<Item = (&'a str, &'a ConnSpec)>,
    say: impl Fn(String),
) {
    if !engine.layout.commits_everywhere() {
        return;
    }
    let begin = Instant::now();
    for (name, spec) in members {
        let mut is_announced = false;
        while let Some(why) = outside(engine, spec).filter(|_| begin.elapsed() < TIMEOUT) {
            if !std::mem::replace(&mut is_announced, true) {
                say(format!(
                    "waiting until {name} works with the others, up to {} s: {why}",
                    TIMEOUT.as_secs()
                ));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Why a node that answers is no part of its cluster.
fn outside(engine: Engine, spec: &ConnSpec) -> Option<String> {
    let error = match Client::connect(spec, PATIENCE) {
        Ok(mut client) => client.execute("select 1").err()?,
        Err(error) => ClientError::Connect(error),
    };
    let refusal = match &error {
        ClientError::Refused { error, .. } => Some(error.as_ref()),
        ClientError::Connect(error) => error.cause().and_then(Cause::server_error),
        ClientError::Broken(_) => None,
    }?;
    let is_outside = reports_lost_node(engine.node_lost, refusal.sqlstate.as_str(), &refusal.message);
    is_outside.then(|| refusal.message.clone())
}
