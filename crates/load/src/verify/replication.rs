//! Waits for replication, so that a node that is only late is not reported as different.
//!
//! What has been written when the waiting begins is a position in the log of each source. A follower that has confirmed that position, or
//! replayed it, has it all. Nothing is written to make that happen: a source sends its position to idle followers unprompted.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;
use postgres::error::SqlState;

use super::error::{VerifyError, sql};
use super::problem::Problem;
use super::site::Site;
use crate::options::{Stop, StopLevel};

const DOING: &str = "reading the progress of replication";
/// How often.
const POLL: Duration = Duration::from_millis(50);

/// So long nothing may arrive before a node has all: a vote takes some round trips, and a process that applies may wait for a lock.
const QUIET: Duration = Duration::from_secs(1);

/// A follower and its source, both by place.
struct Flow {
    source: usize,
    follower: usize,
    slot: String,
    enabled: bool,
    /// The replication system that has the subscription in its own catalog: its query for them.
    foreign: Option<&'static str>,
}

/// Which nodes follow which others by no subscription. `None`: there is none at all, so replication is not PostgreSQL's own and cannot be
/// waited for.
pub(super) fn unfollowed(sites: &mut [Site]) -> Result<Option<Vec<Problem>>, VerifyError> {
    let flows = flows(sites)?;
    let mut problems = Vec::new();
    for follower in 0..sites.len() {
        for source in (0..sites.len()).filter(|&source| source != follower) {
            if !flows.iter().any(|flow| (flow.source, flow.follower) == (source, follower)) {
                let (node, source) = (name(&sites[follower]), name(&sites[source]));
                problems.push(Problem::NotReplicated { node, source });
            }
        }
    }
    Ok((!flows.is_empty()).then_some(problems))
}

/// Waits until each node has applied what the others have written by now, at most until `limit` after `begin`. Those that have not are the
/// answer.
pub(super) fn await_logical(
    sites: &mut [Site],
    begin: Instant,
    limit: Duration,
    stop: &Stop,
) -> Result<Vec<Problem>, VerifyError> {
    let flows = flows(sites)?;
    let mut targets = Vec::with_capacity(sites.len());
    for site in sites.iter_mut() {
        targets.push(position(&mut site.control, "pg_current_wal_lsn()")?);
    }
    let mut problems = Vec::new();
    for flow in flows {
        let Flow { source, follower, slot, enabled, foreign } = flow;
        loop {
            let control = &mut sites[source].control;
            let row = control.query_opt(
                "select pg_wal_lsn_diff($2::text::pg_lsn, confirmed_flush_lsn)::int8, active
                 from pg_replication_slots where slot_name = $1",
                &[&slot, &targets[source]],
            );
            let row = sql(DOING, row)?;
            let (behind, active) =
                row.map_or((None, false), |row| (row.get::<_, Option<i64>>(0), row.get(1)));
            if behind.is_some_and(|bytes| bytes <= 0) {
                break;
            }
            check(stop)?;
            // A subscription that is not applied does not catch up.
            if begin.elapsed() > limit || !enabled {
                let control = &mut sites[follower].control;
                let why = match foreign {
                    Some(subscriptions) if enabled => why_foreign(control, &slot, subscriptions, active)?,
                    _ => why(control, &slot, enabled, active)?,
                };
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
                row => now.push(sql(DOING, row)?.get::<_, String>(0)),
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

/// Waits until a standby has replayed what its primary has written by now.
pub(super) fn await_standby(
    primary: &mut Site,
    standby: &mut Site,
    begin: Instant,
    limit: Duration,
    stop: &Stop,
) -> Result<Option<Problem>, VerifyError> {
    let target = position(&mut primary.control, "pg_current_wal_lsn()")?;
    loop {
        let row = standby.control.query_one(
            "select pg_wal_lsn_diff($1::text::pg_lsn, pg_last_wal_replay_lsn())::int8, pg_is_wal_replay_paused()",
            &[&target],
        );
        let row = sql(DOING, row)?;
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

fn position(client: &mut Client, function: &str) -> Result<String, VerifyError> {
    let row = client.query_one(&format!("select {function}::text"), &[]);
    Ok(sql(DOING, row)?.get(0))
}

/// Who follows whom: the subscriptions of each node, and on which node their slot is.
fn flows(sites: &mut [Site]) -> Result<Vec<Flow>, VerifyError> {
    let mut slots: Vec<Vec<String>> = Vec::with_capacity(sites.len());
    let mut subscriptions: Vec<Vec<Subscription>> = Vec::with_capacity(sites.len());
    for site in sites.iter_mut() {
        let rows = site.control.query(
            "select slot_name::text from pg_replication_slots where slot_type = 'logical' and database = current_database()",
            &[],
        );
        slots.push(sql(DOING, rows)?.iter().map(|row| row.get(0)).collect());
        let rows = site.control.query(
            "select coalesce(subslotname, subname)::text, subenabled from pg_subscription
             where subdbid = (select oid from pg_database where datname = current_database())",
            &[],
        );
        let own = sql(DOING, rows)?.into_iter().map(|row| (row.get(0), row.get(1), None));
        let mut of_site: Vec<Subscription> = own.collect();
        of_site.extend(foreign(&mut site.control)?);
        subscriptions.push(of_site);
    }
    let mut flows = Vec::new();
    for (follower, subscriptions) in subscriptions.iter().enumerate() {
        for (slot, enabled, foreign) in subscriptions {
            let sources =
                (0..sites.len()).filter(|&source| source != follower && slots[source].contains(slot));
            for source in sources {
                // Where a follower has the same name on every source, each of its subscriptions finds the slots of all.
                if !flows
                    .iter()
                    .any(|flow: &Flow| (flow.source, flow.follower, &flow.slot) == (source, follower, slot))
                {
                    flows.push(Flow {
                        source,
                        follower,
                        slot: slot.clone(),
                        enabled: *enabled,
                        foreign: *foreign,
                    });
                }
            }
        }
    }
    Ok(flows)
}

/// A slot, whether its subscription is enabled, and the query of a replication system that has it in its own catalog.
type Subscription = (String, bool, Option<&'static str>);

/// The subscriptions of replication systems with catalogs of their own.
fn foreign(client: &mut Client) -> Result<Vec<Subscription>, VerifyError> {
    let found = engines::engine::replications(
        |replication| replication.subscriptions.is_some(),
        |sign| Ok(client.query_one(&format!("select {sign}"), &[])?.get::<_, bool>(0)),
    );
    let mut subscriptions = Vec::new();
    for query in sql(DOING, found)?.iter().filter_map(|replication| replication.subscriptions) {
        let rows = client.query(&format!("select f.slot::text, f.enabled from ({query}) f"), &[]);
        let rows = sql(DOING, rows)?;
        subscriptions.extend(rows.iter().map(|row| (row.get(0), row.get(1), Some(query))));
    }
    Ok(subscriptions)
}

/// The same for one of them.
fn why_foreign(
    client: &mut Client,
    slot: &str,
    subscriptions: &str,
    active: bool,
) -> Result<String, VerifyError> {
    let row = client.query_opt(
        &format!("select f.subscription::text, f.running from ({subscriptions}) f where f.slot::text = $1"),
        &[&slot],
    );
    Ok(match sql(DOING, row)? {
        Some(row) if !row.get::<_, bool>(1) => {
            let name: String = row.get(0);
            format!("the subscription {name} has stopped; the node's log has the reason")
        }
        _ if !active => format!("the slot {slot} has no consumer"),
        _ => String::new(),
    })
}

/// What the follower reports about a subscription that makes no progress.
fn why(client: &mut Client, slot: &str, enabled: bool, active: bool) -> Result<String, VerifyError> {
    if !enabled {
        return Ok(format!("the subscription {slot} is disabled"));
    }
    // Errors are counted since PostgreSQL 15.
    let there = client.query_one("select to_regclass('pg_stat_subscription_stats') is not null", &[]);
    let errors = if sql(DOING, there)?.get(0) {
        let row = client.query_opt(
            "select coalesce(apply_error_count, 0) from pg_stat_subscription_stats join pg_subscription on oid = subid
             where coalesce(subslotname, subname) = $1",
            &[&slot],
        );
        sql(DOING, row)?.map_or(0, |row| row.get::<_, i64>(0))
    } else {
        0
    };
    Ok(match (errors, active) {
        (1.., _) => {
            format!("the subscription {slot} has failed {errors} times; the node's log has the reason")
        }
        (_, false) => format!("the slot {slot} has no consumer"),
        _ => String::new(),
    })
}
