//! The connections that process the list of work, and their results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use connect::hot::{HotConnection, QueryError};

use super::condition::{Condition, Names, Probe};
use super::error::ProveError;
use super::jobs::Job;
use super::nodes;
use super::{Answer, Outcome, Progress, TICK, WITNESSES_MAX, run_quietly, text_of};

/// What has been found about a condition.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) looked_at: u64,
    pub(super) broken: u64,
    /// With the range and the node that they were found in, in this order.
    pub(super) witnesses: Vec<(i64, usize, String)>,
    pub(super) error: Option<String>,
}

impl Found {
    pub(super) fn answer(self, condition: Condition) -> Answer {
        let outcome = match self.error {
            // A violation that was found stands, even if other ranges could not be read.
            _ if self.broken > 0 => Outcome::Broken {
                count: self.broken,
                witnesses: self.witnesses.into_iter().map(|(_, _, witness)| witness).collect(),
            },
            Some(error) => Outcome::Failed { error },
            None => Outcome::Kept,
        };
        Answer { condition, looked_at: self.looked_at, outcome }
    }
}

/// What the connections share.
#[derive(Debug)]
pub(super) struct Work<'a> {
    /// What ranges are of.
    pub(super) units: &'static str,
    pub(super) jobs: &'a [Job],
    /// What the tables are on each node.
    pub(super) names: &'a [Names],
    pub(super) wanted: &'a BTreeSet<Condition>,
    /// What no connection has taken yet, the next one last.
    pub(super) left: Mutex<Vec<usize>>,
    pub(super) done: AtomicU64,
    pub(super) looked_at: AtomicU64,
    pub(super) found: Mutex<BTreeMap<Condition, Found>>,
    pub(super) stop: &'a AtomicBool,
}

/// One connection to each node, in their order, in their snapshots.
pub(super) type Sessions = Vec<HotConnection>;

/// Runs the list on all connections.
pub(super) fn together(
    workers: Vec<Sessions>,
    work: &Work<'_>,
    observer: &mut dyn FnMut(Progress),
) -> Result<(), ProveError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|sessions| {
                std::thread::Builder::new()
                    .name("prover".into())
                    .spawn_scoped(scope, move || member(sessions, work))
            })
            .collect();
        let mut refused = None;
        let threads: Vec<_> = threads
            .into_iter()
            .filter_map(|thread| thread.map_err(|error| refused = Some(error)).ok())
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            observer(Progress {
                done: work.done.load(Ordering::Relaxed),
                total: work.jobs.len() as u64,
                looked_at: work.looked_at.load(Ordering::Relaxed),
            });
            std::thread::sleep(TICK);
        }
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        let left = std::mem::take(&mut *work.left.lock().unwrap_or_else(PoisonError::into_inner));
        match refused {
            // Fewer hands do the same work, as long as there is one.
            Some(error) if !left.is_empty() => Err(error.into()),
            _ => {
                for at in left {
                    note_error(work, &work.jobs[at], "every connection was lost before this was checked");
                }
                Ok(())
            }
        }
    })
}

/// One worker's part.
fn member(mut sessions: Sessions, work: &Work<'_>) {
    let left = || work.left.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if work.stop.load(Ordering::Relaxed) {
            return;
        }
        let Some(at) = left().pop() else { return };
        let job = &work.jobs[at];
        // The snapshot survives an error only behind a savepoint.
        let requested =
            || if job.probe.others.is_some() { 0..work.names.len() } else { job.node..job.node + 1 };
        if requested().any(|node| run_quietly(&mut sessions[node], "savepoint here").is_err()) {
            left().push(at);
            return;
        }
        if let Err(error) = judge(&mut sessions, work, job) {
            note_error(work, job, &error.to_string());
            // If this fails, too, the next savepoint does, and the others take over.
            requested().for_each(|node| drop(run_quietly(&mut sessions[node], "rollback to savepoint here")));
        }
        work.done.fetch_add(1, Ordering::Relaxed);
    }
}

fn note_error(work: &Work<'_>, job: &Job, error: &str) {
    let mut found = work.found.lock().unwrap_or_else(PoisonError::into_inner);
    for condition in job.probe.conditions {
        if let Some(found) = found.get_mut(condition) {
            let place = format!("{} {} to {}: {error}", work.units, job.from, job.to);
            found.error.get_or_insert(place);
        }
    }
}

/// One query, and those that name what it counted.
fn judge(sessions: &mut Sessions, work: &Work<'_>, job: &Job) -> Result<(), QueryError> {
    let wider;
    let names = match job.probe.others.filter(|_| work.names.len() > 1) {
        Some(others) => {
            wider = nodes::with_others(sessions, work.names, job, others)?;
            &wider
        }
        None => &work.names[job.node],
    };
    let connection = &mut sessions[job.node];
    let rows = connection.simple_query(&job.probe.count_sql(names, job.from, job.to))?;
    let nonsense = || QueryError::Io(std::io::Error::other("the server's counts are invalid"));
    let counts: Vec<u64> = rows
        .first()
        .ok_or_else(nonsense)?
        .iter()
        .map(|value| text_of(value.as_deref()).parse().map_err(|_| nonsense()))
        .collect::<Result<_, _>>()?;
    if counts.len() != 1 + job.probe.conditions.len() {
        return Err(nonsense());
    }
    for (condition, &broken) in job.probe.conditions.iter().zip(&counts[1..]) {
        if !work.wanted.contains(condition) {
            continue;
        }
        let mut witnesses = Vec::new();
        if broken > 0 {
            let sql = job.probe.witness_sql(*condition, names, (job.from, job.to), WITNESSES_MAX);
            witnesses = connection.simple_query(&sql)?.iter().map(|row| witness(job.probe, row)).collect();
        }
        let mut found = work.found.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(found) = found.get_mut(condition) else { continue };
        found.looked_at += counts[0];
        found.broken += broken;
        found.witnesses.extend(witnesses.into_iter().map(|witness| (job.from, job.node, witness)));
        found.witnesses.sort_by_key(|(from, node, _)| (*from, *node));
        found.witnesses.truncate(WITNESSES_MAX);
    }
    work.looked_at.fetch_add(counts[0], Ordering::Relaxed);
    Ok(())
}

/// `w_id 3, w_ytd 300000.00, district_ytd 299990.00`
fn witness(probe: &Probe, row: &[Option<Vec<u8>>]) -> String {
    let pairs = probe.columns.iter().zip(row);
    pairs
        .map(|(name, value)| match value {
            Some(value) => format!("{name} {}", String::from_utf8_lossy(value)),
            None => format!("{name} missing"),
        })
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Access;

    #[test]
    fn a_witness_names_each_number() {
        let probe = Probe {
            conditions: &[],
            access: Access::Once,
            columns: &["w_id", "w_ytd", "district_ytd"],
            sql: "",
            others: None,
        };
        let row = [Some(b"3".to_vec()), Some(b"300000.00".to_vec()), None];
        assert_eq!(witness(&probe, &row), "w_id 3, w_ytd 300000.00, district_ytd missing");
    }
}
