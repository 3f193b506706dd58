//! `twin`: rows that one transaction writes on all shards are seen all new or all old.
//!
//! `bank` shows that something is wrong; this shows what: the distance of the shards, and which was ahead. Read in one statement, and in one
//! REPEATABLE READ transaction with a statement per shard, which opens its remote snapshots one by one.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::failures::Failures;
use super::servers::Observed;
use super::tables::{self, SCHEMA, Shape, Tables};
use super::{Isolation, Lasting, LiveError, Options, Ran, Watch, after_all, again, lost_rows, under_faults};
use crate::client::{Client, number};
use crate::fault::{Happened, Site};

const SHAPE: Shape =
    Shape { name: "twin", columns: "g int not null, v bigint not null", key: Some("shard, g") };
/// How long a set-up statement may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Witnesses kept.
const WITNESSES_MAX: usize = 5;

/// One way to read the twins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// One statement.
    Statement,
    /// One REPEATABLE READ transaction, a statement per shard.
    Transaction,
    /// A statement per shard at READ COMMITTED: the control, which no engine makes consistent.
    Apart,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 3] = [Way::Statement, Way::Transaction, Way::Apart];

    /// In words.
    pub fn description(self) -> &'static str {
        match self {
            Way::Statement => "one SELECT over all shards",
            Way::Transaction => "one REPEATABLE READ transaction, a SELECT per shard",
            Way::Apart => "a SELECT per shard at READ COMMITTED",
        }
    }
}

/// What one way of reading saw.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Readings.
    pub reads: u64,
    /// Those whose rows were not of one version.
    pub fractured: u64,
    /// The largest distance between two shards, in versions.
    pub distance_max: i64,
    /// The number of times that each shard was ahead of another one.
    pub ahead: Vec<u64>,
    /// The first few in words.
    pub witnesses: Vec<String>,
}

/// What came out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// By [`Way::ALL`].
    pub ways: [Seen; 3],
    /// Versions that were written.
    pub writes: u64,
    /// Names of the shards.
    pub shards: Vec<String>,
    /// Groups whose rows differ after everything has ended: a torn commit.
    pub torn: u64,
    /// The faults that were injected.
    pub happened: Vec<Happened>,
    /// What was refused.
    pub failures: Failures,
    /// What became of the servers.
    pub observed: Observed,
}

/// Runs it; writers use the level that `options` name.
///
/// # Errors
/// When it cannot be set up, or the last rows cannot be read.
pub fn run(site: &Site, options: &Options, stop: &AtomicBool) -> Result<Report, LiveError> {
    let tables = Tables::make(site, &[SHAPE])?;
    let entry = options.dressed(site.entry());
    let groups = options.clients.max(1);
    let rows = tables.numbers().flat_map(|shard| {
        (0..groups).map(move |group| format!("{SCHEMA}.twin values ({shard}, {group}, 0)"))
    });
    tables::fill(site, site.primary(), rows)?;
    let ran = under_faults(site, options, stop, groups + Way::ALL.len(), |number, watch| {
        let session = Lasting::new(entry.clone(), options.patience);
        match number.checked_sub(groups) {
            None => (write(options, &tables, number, session, watch), None),
            Some(way) => (0, Some((way, read(Way::ALL[way], &tables, groups, session, watch)))),
        }
    });
    let Ran { parts, happened, failures, mut observed } = ran;
    let mut client = after_all(site, &tables, &mut observed, PATIENCE)?;
    let torn = again(site, || {
        // Each attempt begins with a new session.
        client = site.enter(PATIENCE)?;
        Ok(client.execute(&format!(
            "select count(*) from (select g from {SCHEMA}.twin group by g having min(v) <> max(v)) as torn"
        ))?)
    })
    .map_err(lost_rows)?;
    let mut report = Report {
        torn: torn.number().and_then(|count| u64::try_from(count).ok()).unwrap_or_default(),
        shards: tables.shards.clone(),
        happened,
        failures,
        observed,
        ..Report::default()
    };
    tables.remove(site);
    for (writes, seen) in parts {
        report.writes += writes;
        if let Some((way, seen)) = seen {
            report.ways[way] = seen;
        }
    }
    Ok(report)
}

fn write(options: &Options, tables: &Tables, group: usize, mut session: Lasting, watch: &Watch<'_>) -> u64 {
    let (mut version, mut written) = (0_u64, 0);
    while watch.goes_on() {
        let Some(client) = session.get() else { continue };
        version += 1;
        let mut sql = options.level.begin();
        for shard in tables.numbers() {
            sql.push_str(&format!(
                "; update {SCHEMA}.twin set v = {version} where shard = {shard} and g = {group}"
            ));
        }
        sql.push_str("; commit");
        let requested = client.request(&sql);
        requested.iter().for_each(|reply| watch.count(reply));
        match requested {
            Ok(reply) if reply.error.is_none() => written += 1,
            Ok(reply) => {
                if watch.has_to_leave(&reply) || client.request("rollback").is_err() {
                    session.lose();
                }
            }
            Err(_) => session.lose(),
        }
    }
    written
}

fn read(way: Way, tables: &Tables, groups: usize, mut session: Lasting, watch: &Watch<'_>) -> Seen {
    let mut seen = Seen { ahead: vec![0; tables.shards.len()], ..Seen::default() };
    let mut group = 0;
    while watch.goes_on() {
        let Some(client) = session.get() else { continue };
        group = (group + 1) % groups;
        let Some(versions) = look(way, (client, watch), tables, group) else {
            session.lose();
            continue;
        };
        seen.reads += 1;
        let (Some(low), Some(high)) = (versions.iter().min(), versions.iter().max()) else { continue };
        if low == high {
            continue;
        }
        seen.fractured += 1;
        seen.distance_max = seen.distance_max.max(high - low);
        for (ahead, version) in std::iter::zip(&mut seen.ahead, &versions) {
            *ahead += u64::from(version == high);
        }
        if seen.witnesses.len() < WITNESSES_MAX {
            let each: Vec<String> =
                std::iter::zip(&tables.shards, &versions).map(|(name, v)| format!("{name} {v}")).collect();
            let at = watch.begin.elapsed().as_secs_f64();
            seen.witnesses.push(format!("after {at:.3} s, group {group}: versions {}", each.join(", ")));
        }
    }
    seen
}

fn look(
    way: Way,
    (client, watch): (&mut Client, &Watch<'_>),
    tables: &Tables,
    group: usize,
) -> Option<Vec<i64>> {
    let mut query = |sql: &str| {
        let reply = client.request(sql).ok()?;
        watch.count(&reply);
        reply.error.is_none().then_some(reply)
    };
    if way == Way::Statement {
        let reply = query(&format!("select v from {SCHEMA}.twin where g = {group} order by shard"))?;
        return reply.rows().iter().map(|row| number(row.first()?)).collect();
    }
    if way == Way::Transaction {
        query(&Isolation::RepeatableRead.begin())?;
    }
    let mut versions = Vec::new();
    for shard in tables.numbers() {
        let reply = query(&format!("select v from {SCHEMA}.twin where shard = {shard} and g = {group}"))?;
        versions.push(reply.number()?);
    }
    if way == Way::Transaction {
        query("commit")?;
    }
    Some(versions)
}
