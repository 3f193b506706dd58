//! Waits for replication, so that a node that is only late is not reported as different.
//!
//! What has been written when the waiting begins is a position in the log of each source. A follower that has confirmed that position, or
//! replayed it, has it all. Nothing is written to make that happen: a source sends its position to idle followers unprompted.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;
use postgres::error::SqlState;

use engines::directions::{self, Direction, Directions, Hidden};

use super::error::{VerifyError, sql};
use super::problem::Problem;
use super::site::Site;
use crate::options::{Stop, StopLevel};

const DOING: &str = "reading the progress of replication";
/// How often.
const POLL: Duration = Duration::from_millis(50);

/// So long a process that applies is waited for: pgactive starts one again 5 s after an error.
const RESTART: Duration = Duration::from_secs(10);

/// So long nothing may arrive before a node has all: a vote takes some round trips, and a process that applies may wait for a lock.
const QUIET: Duration = Duration::from_secs(1);

/// Which nodes get nothing from which others, as no slot is between them. `None`: there is no subscription at all, so replication is not PostgreSQL's
/// own and cannot be waited for.
pub(super) fn unfollowed(sites: &mut [Site]) -> Result<Option<Vec<Problem>>, VerifyError> {
    let directions = directions(sites)?;
    let problem = |(follower, source, why): (usize, usize, String)| Problem::NotReplicated {
        node: name(&sites[follower]),
        source: name(&sites[source]),
        why,
    };
    Ok(directions.exist().then(|| directions.cut().into_iter().map(problem).collect()))
}

/// The replication systems whose state on a node this role may not read: whether they work is unknown, and they cannot be waited for.
pub(super) fn hidden(sites: &mut [Site]) -> Result<Vec<Problem>, VerifyError> {
    let hidden = directions(sites)?.hidden;
    let problem = |hidden: Hidden| Problem::HiddenStatus {
        node: name(&sites[hidden.node]),
        system: hidden.system.to_owned(),
        why: hidden.why,
    };
    Ok(hidden.into_iter().map(problem).collect())
}

/// The subscriptions that do not work although all that was written has arrived: what is written next does not. A process that is started again after an error
/// is given a moment.
pub(super) fn halted(
    sites: &mut [Site],
    begin: Instant,
    limit: Duration,
    behind: &[Problem],
    stop: &Stop,
) -> Result<Vec<Problem>, VerifyError> {
    let is_known = |node: &str, source: &str| {
        let is_it = |problem: &Problem| matches!(problem, Problem::Behind { node: n, source: s, .. } if n == node && s == source);
        behind.iter().any(is_it)
    };
    loop {
        let halted = directions(sites)?.halted().into_iter().map(|(follower, source, why)| Problem::Halted {
            node: name(&sites[follower]),
            source: name(&sites[source]),
            why,
        });
        let is_new = |problem: &Problem| matches!(problem, Problem::Halted { node, source, .. } if !is_known(node, source));
        let halted: Vec<Problem> = halted.filter(is_new).collect();
        if halted.is_empty() || begin.elapsed() > limit.min(RESTART) {
            return Ok(halted);
        }
        check(stop)?;
        thread::sleep(POLL);
    }
}

/// Waits until each node has applied what the others have written by now, at most until `limit` after `begin`. Those that have not are the
/// answer.
pub(super) fn await_logical(
    sites: &mut [Site],
    begin: Instant,
    limit: Duration,
    stop: &Stop,
) -> Result<Vec<Problem>, VerifyError> {
    let directions = directions(sites)?;
    let mut targets = Vec::with_capacity(sites.len());
    for site in sites.iter_mut() {
        targets.push(position(site, "pg_current_wal_lsn()")?);
    }
    let mut problems = Vec::new();
    for direction in directions.all.iter().filter(|direction| direction.has_slot) {
        let (source, follower) = (direction.source, direction.follower);
        let (slot, enabled) = (&direction.subscription.slot, direction.subscription.enabled);
        loop {
            let control = &mut sites[source].control;
            let row = control.query_opt(
                "select pg_wal_lsn_diff($2::text::pg_lsn, confirmed_flush_lsn)::int8, active
                 from pg_replication_slots where slot_name = $1",
                &[slot, &targets[source]],
            );
            let row = at(&sites[source], row)?;
            let (behind, active) =
                row.map_or((None, false), |row| (row.get::<_, Option<i64>>(0), row.get(1)));
            if behind.is_some_and(|bytes| bytes <= 0) {
                break;
            }
            check(stop)?;
            // A subscription that is not applied does not catch up.
            if begin.elapsed() > limit || !enabled {
                let why = why(&mut sites[follower].control, direction, active)?;
                problems.push(Problem::Behind {
                    node: name(&sites[follower]),
                    source: name(&sites[source]),
                    bytes: behind.unwrap_or(0).unsigned_abs(),
                    waited_s: begin.elapsed().as_secs(),
                    why,
                });
                break;
            }
            thread::sleep(POLL);
        }
    }
    Ok(problems)
}

/// Whether transactions of other nodes still arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quiet {
    /// None arrived for [`QUIET`].
    Yes,
    /// They still did when the limit was reached: other sessions write.
    No,
    /// The role may not read what arrives.
    Hidden,
}

impl Quiet {
    /// What a reader of the result has to know.
    pub(super) fn note(self) -> Option<String> {
        match self {
            Quiet::Yes => None,
            Quiet::No => Some(
                "transactions of other nodes kept arriving: rows that one node has and another one not yet look like differences".to_owned(),
            ),
            Quiet::Hidden => Some(
                "this role may not read pg_replication_origin_status, so verify did not wait for what the nodes send each other: rows in transit look like \
                 differences"
                    .to_owned(),
            ),
        }
    }
}

/// Waits until no node has applied another one's transaction for a while. It is the way where slots confirm positions only now and then, although the nodes
/// agree on each commit: a node that missed the vote applies it a moment later.
pub(super) fn await_quiet(
    sites: &mut [Site],
    begin: Instant,
    limit: Duration,
    stop: &Stop,
) -> Result<Quiet, VerifyError> {
    let mut before: Vec<String> = Vec::new();
    let mut since = Instant::now();
    loop {
        let mut now = Vec::with_capacity(sites.len());
        for site in sites.iter_mut() {
            let row = site.control.query_one(
                "select coalesce(string_agg(external_id || remote_lsn, ' ' order by external_id), '') from pg_replication_origin_status",
                &[],
            );
            match row {
                Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                    return Ok(Quiet::Hidden);
                }
                row => now.push(at(site, row)?.get::<_, String>(0)),
            }
        }
        if now != before {
            (before, since) = (now, Instant::now());
        } else if since.elapsed() >= QUIET {
            return Ok(Quiet::Yes);
        }
        check(stop)?;
        if begin.elapsed() > limit {
            return Ok(Quiet::No);
        }
        thread::sleep(POLL);
    }
}

/// Waits until the transactions have ended that an engine has prepared on some of the nodes; their names begin in one of these ways.
pub(super) fn await_commits(
    sites: &mut [Site],
    prepared: &[&str],
    begin: Instant,
    limit: Duration,
    stop: &Stop,
) -> Result<(), VerifyError> {
    thread::sleep(QUIET.min(limit));
    let begins: Vec<String> =
        prepared.iter().map(|begin| format!("{}%", begin.replace('_', "\\_"))).collect();
    loop {
        let mut left = 0;
        for site in sites.iter_mut() {
            let count = "select count(*) from pg_prepared_xacts where database = current_database() and gid like any ($1)";
            let row = site.control.query_one(count, &[&begins]);
            left += at(site, row)?.get::<_, i64>(0);
        }
        check(stop)?;
        if left == 0 || begin.elapsed() > limit {
            return Ok(());
        }
        thread::sleep(POLL);
    }
}

/// Waits until a standby has replayed what its primary has written by now.
pub(super) fn await_standby(
    primary: &mut Site,
    standby: &mut Site,
    begin: Instant,
    limit: Duration,
    stop: &Stop,
) -> Result<Option<Problem>, VerifyError> {
    let target = position(primary, "pg_current_wal_lsn()")?;
    loop {
        let row = standby.control.query_one(
            "select pg_wal_lsn_diff($1::text::pg_lsn, pg_last_wal_replay_lsn())::int8, pg_is_wal_replay_paused()",
            &[&target],
        );
        let row = at(standby, row)?;
        let (behind, paused): (Option<i64>, bool) = (row.get(0), row.get(1));
        if behind.is_some_and(|bytes| bytes <= 0) {
            return Ok(None);
        }
        check(stop)?;
        if begin.elapsed() > limit {
            let why = if paused { "its replay is paused" } else { "" };
            return Ok(Some(Problem::Behind {
                node: name(standby),
                source: name(primary),
                bytes: behind.unwrap_or(0).unsigned_abs(),
                waited_s: begin.elapsed().as_secs(),
                why: why.to_owned(),
            }));
        }
        thread::sleep(POLL);
    }
}

fn check(stop: &Stop) -> Result<(), VerifyError> {
    if stop.level() == StopLevel::Run { Ok(()) } else { Err(VerifyError::Interrupted) }
}

fn name(site: &Site) -> String {
    site.name.clone().unwrap_or_default()
}

/// The answer of a node about its progress.
fn at<T>(site: &Site, result: Result<T, postgres::Error>) -> Result<T, VerifyError> {
    site.answer(DOING, result)
}

fn position(site: &mut Site, function: &str) -> Result<String, VerifyError> {
    let row = site.control.query_one(&format!("select {function}::text"), &[]);
    Ok(at(site, row)?.get(0))
}

/// Who follows whom.
fn directions(sites: &mut [Site]) -> Result<Directions, VerifyError> {
    sql(DOING, directions::of_clients(sites.iter_mut().map(|site| &mut *site.control)))
}

/// What the follower shows now of a subscription that makes no progress.
fn why(client: &mut Client, direction: &Direction, active: bool) -> Result<String, VerifyError> {
    let known = &direction.subscription;
    let found = sql(DOING, directions::subscriptions(client))?;
    let now = found.into_iter().find(|one| one.name == known.name && one.system == known.system);
    Ok(match now {
        Some(now) if !now.is_healthy() => now.state(),
        _ if !active => format!("the slot {} has no consumer", known.slot),
        _ => String::new(),
    })
}
