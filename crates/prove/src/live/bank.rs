//! `bank`: money moves between accounts on different shards, and the sum of all of them is the same at every moment.
//!
//! A reader that sees a different sum has seen half of a transfer: the cluster has no common snapshot of all shards. The sum after everything has
//! ended shows whether a transfer was torn for good.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::failures::Failures;
use super::servers::Observed;
use super::tables::{self, SCHEMA, Shape, Tables};
use super::{Draws, Lasting, LiveError, Options, Ran, Watch, after_all, again, lost_rows, under_faults};
use crate::client::{Client, number};
use crate::fault::{Happened, Site};
use crate::outcome::{At, of_broken, of_reply};

use super::ack::Outcomes;

const SHAPE: Shape =
    Shape { name: "bank", columns: "id int not null, bal bigint not null", key: Some("shard, id") };
/// Accounts on each shard: few, so that transfers and reads overlap.
const ACCOUNTS: u64 = 4;
/// The initial balance of each.
const OPENING: i64 = 1_000;
/// Sessions that read.
const READERS: usize = 2;
/// The time limit for the last read.
const READING_PATIENCE: Duration = Duration::from_secs(60);
/// The pause between the two readings of the last sum.
const BETWEEN_READINGS: Duration = Duration::from_millis(200);
/// Witnesses kept.
const WITNESSES_MAX: usize = 5;

/// What came out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Sums that were read in one statement.
    pub reads: u64,
    /// Those that were wrong.
    pub wrong: u64,
    /// The control: sums read shard by shard, each in its own statement and snapshot.
    pub control_reads: u64,
    /// Those that were wrong: some must be.
    pub control_wrong: u64,
    /// Transfers by outcome.
    pub transfers: Outcomes,
    /// The sum that was to be.
    pub expected: i64,
    /// The sum after everything had ended.
    pub last_sum: i64,
    /// The same sum a moment later: if it differs, something is still being undone or committed, and neither is the last one.
    pub later_sum: i64,
    /// The control: one account gets money in a transaction that is rolled back, and the same sum within it must show that.
    pub last_control: bool,
    /// The first wrong readings, in words.
    pub witnesses: Vec<String>,
    /// The faults that were injected.
    pub happened: Vec<Happened>,
    /// What was refused.
    pub failures: Failures,
    /// What became of the servers.
    pub observed: Observed,
    /// The first refusals, in words.
    pub refusals: Vec<String>,
}

/// What one thread brings home.
#[derive(Default)]
struct Part {
    reads: [u64; 2],
    wrong: [u64; 2],
    transfers: Outcomes,
    witnesses: Vec<String>,
    refusals: Vec<String>,
}

/// Runs it at the level that `options` name.
///
/// # Errors
/// When it cannot be set up, or the last sum cannot be read.
pub fn run(site: &Site, options: &Options, stop: &AtomicBool) -> Result<Report, LiveError> {
    let tables = Tables::make(site, &[SHAPE])?;
    let entry = options.dressed(site.entry());
    let accounts = tables.numbers().flat_map(|shard| (0..ACCOUNTS).map(move |id| (shard, id)));
    let expected = accounts.clone().map(|_| OPENING).sum();
    let rows = accounts.map(|(shard, id)| format!("{SCHEMA}.bank values ({shard}, {id}, {OPENING})"));
    tables::fill(site, site.primary(), rows)?;
    let writers = options.clients.max(1);
    let ran = under_faults(site, options, stop, writers + READERS + 1, |number, watch| {
        let session = Lasting::new(entry.clone(), options.patience);
        let draws = Draws::new(options.seed, number);
        match number {
            _ if number < writers => transfer(site, options, &tables, session, draws, watch),
            _ => read(options, &tables, session, expected, number == writers, watch),
        }
    });
    let Ran { parts, happened, failures, mut observed } = ran;
    let mut client = after_all(site, &tables, &mut observed, READING_PATIENCE)?;
    let last = again(site, || {
        // Each attempt begins with a new session.
        client = site.enter(READING_PATIENCE)?;
        last_sums(&mut client)
    })
    .map_err(lost_rows)?;
    let mut report = Report { expected, happened, failures, observed, ..last };
    tables.remove(site);
    for part in parts {
        report.reads += part.reads[0];
        report.wrong += part.wrong[0];
        report.control_reads += part.reads[1];
        report.control_wrong += part.wrong[1];
        report.transfers = report.transfers.and(part.transfers);
        report.witnesses.extend(part.witnesses);
        report.refusals.extend(part.refusals);
    }
    report.witnesses.truncate(WITNESSES_MAX);
    report.refusals.sort();
    report.refusals.dedup();
    report.refusals.truncate(WITNESSES_MAX);
    Ok(report)
}

/// Reads the last sum, its control, and the sum again.
fn last_sums(client: &mut Client) -> Result<Report, LiveError> {
    let whole = format!("select sum(bal) from {SCHEMA}.bank");
    let last_sum = client.execute(&whole)?.number().unwrap_or_default();
    client.execute(&format!("begin; update {SCHEMA}.bank set bal = bal + 1 where shard = 1 and id = 0"))?;
    let given = client.execute(&whole)?.number();
    client.execute("rollback")?;
    std::thread::sleep(BETWEEN_READINGS);
    let later_sum = client.execute(&whole)?.number().unwrap_or_default();
    let last_control = given == Some(last_sum + 1);
    Ok(Report { last_sum, later_sum, last_control, ..Report::default() })
}

/// Moves money between two shards until the end.
fn transfer(
    site: &Site,
    options: &Options,
    tables: &Tables,
    mut session: Lasting,
    mut draws: Draws,
    watch: &Watch<'_>,
) -> Part {
    let mut part = Part::default();
    let count = tables.shards.len() as u64;
    while watch.goes_on() {
        let Some(client) = session.get() else { continue };
        let from = draws.below(count);
        let to = if count > 1 { (from + 1 + draws.below(count - 1)) % count } else { from };
        let amount = 1 + draws.below(20) as i64;
        // Always in the order of the shards: postgres_fdw has no deadlock detector.
        let mut steps = [(from, -amount), (to, amount)];
        steps.sort();
        let id = draws.below(ACCOUNTS);
        let mut sql = options.level.begin();
        for (shard, amount) in steps {
            sql.push_str(&format!(
                "; update {SCHEMA}.bank set bal = bal + {amount} where shard = {} and id = {id}",
                shard + 1
            ));
        }
        let requested = client.request(&sql);
        requested.iter().for_each(|reply| watch.count(reply));
        let ended = match requested {
            Ok(reply) if reply.error.is_none() => {
                let at = At::Commit { wide: tables.is_spread && from != to };
                match client.request("commit") {
                    Ok(reply) => {
                        watch.count(&reply);
                        if watch.has_to_leave(&reply) {
                            session.lose();
                        }
                        of_reply(site.engine, at, &reply)
                    }
                    Err(broken) => {
                        session.lose();
                        of_broken(site.engine, at, &broken)
                    }
                }
            }
            Ok(reply) => {
                if watch.has_to_leave(&reply) || client.request("rollback").is_err() {
                    session.lose();
                }
                of_reply(site.engine, At::BeforeCommit, &reply)
            }
            Err(broken) => {
                session.lose();
                of_broken(site.engine, At::BeforeCommit, &broken)
            }
        };
        if !ended.why.is_empty() && part.refusals.len() < WITNESSES_MAX && !part.refusals.contains(&ended.why)
        {
            part.refusals.push(ended.why.clone());
        }
        part.transfers = part.transfers.and(Outcomes::one(ended.outcome));
    }
    part
}

/// Reads sums until the end: in one statement, or (the control) one statement per shard.
fn read(
    options: &Options,
    tables: &Tables,
    mut session: Lasting,
    expected: i64,
    is_control: bool,
    watch: &Watch<'_>,
) -> Part {
    let mut part = Part::default();
    while watch.goes_on() {
        let Some(client) = session.get() else { continue };
        let sums = match is_control {
            false => whole(client, options, watch),
            true => tables.numbers().map(|shard| one(client, shard, watch)).collect(),
        };
        let Some(sums) = sums else {
            session.lose();
            continue;
        };
        let kind = usize::from(is_control);
        part.reads[kind] += 1;
        let sum: i64 = sums.iter().sum();
        if sum == expected {
            continue;
        }
        part.wrong[kind] += 1;
        if !is_control && part.witnesses.len() < WITNESSES_MAX {
            let each: Vec<String> =
                std::iter::zip(&tables.shards, &sums).map(|(name, sum)| format!("{name} {sum}")).collect();
            part.witnesses.push(format!(
                "after {:.3} s at {}: sum {sum} instead of {expected} ({})",
                watch.begin.elapsed().as_secs_f64(),
                options.level,
                each.join(", ")
            ));
        }
    }
    part
}

/// One read; SERIALIZABLE may refuse a reader, which then retries once. A second refusal does not count as a read.
fn whole(client: &mut Client, options: &Options, watch: &Watch<'_>) -> Option<Vec<i64>> {
    let sql = format!(
        "{}; select shard, sum(bal) from {SCHEMA}.bank group by shard order by shard; commit",
        options.level.begin()
    );
    let mut reply = client.request(&sql).ok()?;
    if reply.error.is_some() {
        client.request("rollback").ok()?;
        reply = client.request(&sql).ok()?;
    }
    watch.count(&reply);
    if reply.error.is_some() {
        return None;
    }
    let rows = reply.done.iter().find(|done| !done.rows.is_empty())?;
    rows.rows.iter().map(|row| number(row.get(1)?)).collect()
}

fn one(client: &mut Client, shard: usize, watch: &Watch<'_>) -> Option<i64> {
    let reply = client.request(&format!("select sum(bal) from {SCHEMA}.bank where shard = {shard}")).ok()?;
    watch.count(&reply);
    reply.number()
}
