//! `ack`: every acknowledged transaction is there afterwards, complete and once.
//!
//! Every client writes rows (client, sequence) in dense order, sometimes one transaction on several shards, and records the reply. When all faults
//! are undone and the cluster is quiet, the rows are read twice and compared with the records. These are in our memory, never in the database under test.

mod judge;

pub use judge::{Entry, Findings, Outcomes, Rows, Span, judge};

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use connect::{ConnSpec, cluster_file::Role};
use engines::Engine;
use record::clock::monotonic_ns;
use wire::error::SqlState;

use super::failures::Failures;
use super::servers::Observed;
use super::tables::{SCHEMA, Shape, Tables};
use super::{
    Draws, Isolation, Lasting, LiveError, Options, Ran, Watch, after_all, again, chain, lost_rows,
    under_faults,
};
use crate::client::{Client, ClientError, number};
use crate::fault::{Fault, Happened, Site};
use crate::outcome::{At, Outcome, of_broken, of_reply};

/// No key, so that duplicates can appear.
const SHAPE: Shape = Shape { name: "ack", columns: "client int not null, seq int not null", key: None };
/// One in this many transactions writes on several shards.
const WIDE_ONE_IN: u64 = 20;
/// The pause between the two reads: the second one sees late commits.
const BETWEEN_READINGS: Duration = Duration::from_millis(200);
/// More server starts than a run can have: numbers from here on stand for servers that do not report a start, by index.
const INCARNATIONS_MAX: usize = 1 << 20;
/// How long a reading may take.
const READING_PATIENCE: Duration = Duration::from_secs(120);

/// What came out.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The comparison.
    pub findings: Findings,
    /// Transactions that were tried.
    pub tried: u64,
    /// Of those acknowledged: on several shards.
    pub wide: u64,
    /// The faults that were injected.
    pub happened: Vec<Happened>,
    /// Replies to COMMIT that the proxy dropped.
    pub dropped: u64,
    /// The control: an acknowledged row is deleted in a transaction that is rolled back, and the same read within it must miss the row. `None`: no
    /// acknowledged row is there.
    pub control: Option<bool>,
    /// The same for complete and single: one row of several is deleted, or, if no transaction was on several shards, its only row is duplicated.
    pub control_whole: Option<bool>,
    /// Names of the shards.
    pub shards: Vec<String>,
    /// What was refused.
    pub failures: Failures,
    /// What became of the servers.
    pub observed: Observed,
    /// Why nothing could be read: the server has lost the table, or does not start any more. Then all acknowledged rows are lost.
    pub missing: Option<String>,
}

impl Report {
    /// When faults were injected, in order.
    pub fn faults(happened: &[Happened]) -> Vec<Span> {
        let done = happened.iter().filter(|one| one.step.fault.is_some() && one.error.is_none());
        done.map(span).collect()
    }
}

/// Runs it.
///
/// # Errors
/// When it cannot be set up, the faults cannot be undone, or the rows cannot be read at the end.
pub fn run(site: &Site, options: &Options, stop: &AtomicBool) -> Result<Report, LiveError> {
    let tables = Tables::make(site, &[SHAPE])?;
    let entry = options.dressed(site.entry());
    let has_lsn = site.engine.has_wal && site.nodes.iter().all(|node| node.role != Role::Coordinator);
    let clients = options.clients.max(1);
    let dropped = || -> u64 {
        site.nodes.iter().filter_map(|node| node.proxy.as_ref()).map(|proxy| proxy.dropped()).sum()
    };
    let dropped_before = dropped();
    let ran = under_faults(site, options, stop, clients, |number, watch| {
        let draws = Draws::new(options.seed, number);
        write(&entry, site.engine, options, &tables, (number, draws, has_lsn), watch)
    });
    let Ran { parts, happened, failures, mut observed } = ran;
    let entries: Vec<Entry> = parts.into_iter().flatten().collect();
    let faults = ends(&happened);
    let what = Looked { entries: &entries, faults: &faults, tables: &tables };
    let (findings, lost, control_whole, missing) = look(site, &what, &mut observed)?;
    tables.remove(site);
    let wide = |entry: &&Entry| entry.shards.count_ones() > 1 && entry.outcome.is_acknowledged();
    Ok(Report {
        tried: entries.len() as u64,
        wide: entries.iter().filter(wide).count() as u64,
        dropped: dropped() - dropped_before,
        findings,
        happened,
        failures,
        observed,
        missing,
        control: lost,
        control_whole,
        shards: tables.shards,
    })
}

/// What is compared.
struct Looked<'a> {
    entries: &'a [Entry],
    faults: &'a [Span],
    tables: &'a Tables,
}

type Found = (Findings, Option<bool>, Option<bool>, Option<String>);

/// Reads the rows, and judges them. If one of our servers has lost the whole table, or everything, that loss is measured, too.
fn look(site: &Site, what: &Looked<'_>, observed: &mut Observed) -> Result<Found, LiveError> {
    let nothing = |why: String| {
        let rows = Rows::default();
        let findings = judge(what.entries, &rows, &rows, what.faults, &what.tables.shards);
        (findings, None, None, Some(why))
    };
    let was_hurt = !what.faults.is_empty() || observed.has_failed_over() || observed.restarts() > 0;
    let mut reader = match after_all(site, what.tables, observed, READING_PATIENCE) {
        Ok(reader) => reader,
        Err(LiveError::NotBack(error)) if site.is_gone() => return Ok(nothing(chain(&error))),
        Err(error) => return Err(error),
    };
    let compared = again(site, || {
        // Each attempt begins with a new session.
        let mut fresh = site.enter(READING_PATIENCE)?;
        std::mem::swap(&mut reader, &mut fresh);
        compare(&mut reader, what)
    });
    match compared {
        Ok((findings, lost, whole)) => Ok((findings, lost, whole, None)),
        Err(LiveError::Client(ClientError::Refused { error, .. }))
            if was_hurt && is_missing(error.sqlstate) =>
        {
            Ok(nothing(error.message.clone()))
        }
        Err(error) => Err(lost_rows(error)),
    }
}

/// The table, its schema, or a file of it is missing or damaged: `undefined_table`, `invalid_schema_name`, `undefined_file`, `io_error`, `data_corrupted`,
/// `index_corrupted`. Other internal errors (XX000) say nothing about the rows: a node that is no part of its cluster refuses to read with one.
fn is_missing(sqlstate: SqlState) -> bool {
    let code = sqlstate.as_str();
    matches!(code, "42P01" | "3F000" | "58P01" | "58030" | "XX001" | "XX002")
}

fn compare(
    reader: &mut Client,
    what: &Looked<'_>,
) -> Result<(Findings, Option<bool>, Option<bool>), LiveError> {
    let Looked { entries, faults, tables } = what;
    let first = read(reader, tables)?;
    std::thread::sleep(BETWEEN_READINGS);
    let second = read(reader, tables)?;
    let findings = judge(entries, &first, &second, faults, &tables.shards);
    let plant =
        |reader: &mut Client, what: Planted| control(reader, tables, entries, (&second, &findings), what);
    let lost = plant(reader, Planted::Lost)?;
    let whole = match plant(reader, Planted::Torn)? {
        None => plant(reader, Planted::Doubled)?,
        torn => torn,
    };
    Ok((findings, lost, whole))
}

fn write(
    entry: &ConnSpec,
    engine: Engine,
    options: &Options,
    tables: &Tables,
    (number, mut draws, has_lsn): (usize, Draws, bool),
    watch: &Watch<'_>,
) -> Vec<Entry> {
    let mut session = Lasting::new(entry.clone(), options.patience);
    let mut notes: Vec<Entry> = Vec::new();
    let count = tables.shards.len() as u64;
    let (mut connection, mut server) = (0, 0);
    while watch.goes_on() {
        if session.get().is_none() {
            continue;
        }
        if session.connections != connection {
            connection = session.connections;
            let host = session.first;
            // After a restart the same server may have lost rows: rows acknowledged after it are not survivors of the time before.
            let incarnation = session.get().and_then(|client| watch.servers.meet(client));
            server = incarnation.unwrap_or(INCARNATIONS_MAX + host);
        }
        let Some(client) = session.get() else { continue };
        let shards = draw_shards(&mut draws, count);
        let sequence = notes.len() as u32 + 1;
        let mut note = Entry {
            client: number as u32,
            sequence,
            shards,
            outcome: Outcome::Fail,
            sent_ns: monotonic_ns(),
            ended_ns: 0,
            lsn: 0,
            server,
        };
        let sql = insert(options.level, count as u32, (shards, number, sequence), has_lsn);
        let requested = client.request(&sql);
        requested.iter().for_each(|reply| watch.count(reply));
        let is_open = match &requested {
            Ok(reply) if reply.error.is_none() => {
                note.lsn = reply.number().and_then(|lsn| u64::try_from(lsn).ok()).unwrap_or(0);
                true
            }
            // The block is ended, so that the next one can begin.
            Ok(reply) => {
                if watch.has_to_leave(reply) || client.request("rollback").is_err() {
                    session.lose();
                }
                false
            }
            Err(_) => {
                session.lose();
                false
            }
        };
        if is_open {
            commit(engine, &mut session, &mut note, watch);
        }
        note.ended_ns = monotonic_ns();
        let is_refused = note.outcome == Outcome::Fail;
        notes.push(note);
        if is_refused {
            // A server that refuses everything (a full disk, a demoted primary) gets fewer requests.
            std::thread::sleep(super::RECONNECT_PAUSE);
        }
    }
    notes
}

/// The shards (bits) of a transaction: one, and sometimes a second one.
fn draw_shards(draws: &mut Draws, count: u64) -> u32 {
    let mut shards: u32 = 1 << (1 + draws.below(count));
    if count > 1 && draws.below(WIDE_ONE_IN) == 0 {
        shards |= 1 << (1 + draws.below(count));
    }
    shards
}

/// Begins a transaction and inserts one row for each of the `shards` (bits); `has_lsn`: also reads the position in the WAL.
fn insert(
    level: Isolation,
    count: u32,
    (shards, number, sequence): (u32, usize, u32),
    has_lsn: bool,
) -> String {
    let values: Vec<String> = (1..=count)
        .filter(|shard| shards >> shard & 1 == 1)
        .map(|shard| format!("({shard}, {number}, {sequence})"))
        .collect();
    let mut sql = format!("{}; insert into {SCHEMA}.ack values {}", level.begin(), values.join(", "));
    if has_lsn {
        sql.push_str("; select pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_catalog.pg_lsn");
    }
    sql
}

/// Commits, and records what is known of the outcome.
fn commit(engine: Engine, session: &mut Lasting, note: &mut Entry, watch: &Watch<'_>) {
    let Some(client) = session.get() else { return };
    let at = At::Commit { wide: note.shards.count_ones() > 1 };
    note.sent_ns = monotonic_ns();
    note.outcome = match client.request("commit") {
        Ok(reply) => {
            watch.count(&reply);
            if watch.has_to_leave(&reply) {
                session.lose();
            }
            of_reply(engine, at, &reply).outcome
        }
        Err(broken) => {
            session.lose();
            of_broken(engine, at, &broken).outcome
        }
    };
}

/// All rows, as each shard counts them.
fn read(client: &mut Client, tables: &Tables) -> Result<Rows, ClientError> {
    let mut rows = Rows::default();
    for shard in tables.numbers() {
        let reply = client.execute(&format!(
            "select client, string_agg(seq::text, ',') from {SCHEMA}.ack where shard = {shard} group by client"
        ))?;
        for row in reply.rows() {
            let (Some(client), Some(Some(list))) = (row.first().and_then(number), row.get(1)) else {
                continue;
            };
            for sequence in String::from_utf8_lossy(list).split(',').filter_map(|text| text.parse().ok()) {
                rows.add(shard as u32, u32::try_from(client).unwrap_or(u32::MAX), sequence);
            }
        }
    }
    Ok(rows)
}

/// When servers ended and acknowledged rows may have been lost: by a fault, or because a promotion replaced a primary. A server that is only
/// cut off or stopped continues to acknowledge.
fn ends(happened: &[Happened]) -> Vec<Span> {
    let mut is_replaced = false;
    let ends = happened.iter().filter(|one| {
        let is_end = match one.step.fault {
            Some(fault) => !matches!(
                fault,
                Fault::Partition | Fault::Pause | Fault::Promote | Fault::Switchover | Fault::Store
            ),
            None => is_replaced,
        };
        is_replaced |= one.error.is_none() && one.step.fault == Some(Fault::Promote);
        one.error.is_none() && is_end
    });
    ends.map(span).collect()
}

fn span(one: &Happened) -> Span {
    Span { begin_ns: one.at_ns, end_ns: one.at_ns + one.took.as_nanos() as u64 }
}

/// The change of a control to an acknowledged row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    /// The only row of a transaction is deleted.
    Lost,
    /// One of its rows is.
    Torn,
    /// Its only row is there twice.
    Doubled,
}

/// Whether the read shows the change, which only this session sees. `None`: there is no row for it.
fn control(
    client: &mut Client,
    tables: &Tables,
    entries: &[Entry],
    (rows, findings): (&Rows, &Findings),
    what: Planted,
) -> Result<Option<bool>, LiveError> {
    let is_wide = what == Planted::Torn;
    let planted = entries.iter().find(|entry| {
        let alone = judge(&[**entry], rows, rows, &[], &tables.shards);
        entry.outcome == Outcome::Ok && (entry.shards.count_ones() > 1) == is_wide && !alone.is_broken()
    });
    let Some(planted) = planted else { return Ok(None) };
    let (shard, number, sequence) = (planted.shards.trailing_zeros(), planted.client, planted.sequence);
    client.execute("begin")?;
    client.execute(&match what {
        Planted::Doubled => format!("insert into {SCHEMA}.ack values ({shard}, {number}, {sequence})"),
        _ => format!(
            "delete from {SCHEMA}.ack where shard = {shard} and client = {number} and seq = {sequence}"
        ),
    })?;
    let changed = read(client, tables)?;
    client.execute("rollback")?;
    let again = judge(entries, &changed, &changed, &[], &tables.shards);
    Ok(Some(match what {
        Planted::Lost => again.lost == findings.lost + 1,
        Planted::Torn => again.torn == findings.torn + 1,
        Planted::Doubled => again.duplicated == findings.duplicated + 1,
    }))
}
