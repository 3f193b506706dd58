//! `hb`: probes at a fixed rate, independent of earlier answers: how long a cluster is unavailable (RTO), and how stale its other nodes are.
//!
//! The probes are an open loop: one that hangs delays no other, so an outage is measured exactly, whatever the client's time limit is. A write counts
//! as answered only if its row survives to the end: an acknowledgement of a primary that is lost does not count. After every answered write one read
//! on each other node shows how stale it is.

mod measure;

pub use measure::{Gap, OUTAGE_MIN, Outage, Probe, gaps, silence};

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use connect::{ConnSpec, cluster_file::Role};
use engines::Engine;
use record::clock::monotonic_ns;

use self::measure::{ends, outage, windows};
use super::ack::Span;
use super::doors::Doors;
use super::failures::Failures;
use super::servers::Observed;
use super::tables::{SCHEMA, Shape, Tables};
use super::{LiveError, Options, Ran, Watch, after_all, again, lost_rows, under_faults};
use crate::client::{Client, number};
use crate::fault::{Happened, Site};
use crate::outcome::{At, Outcome, of_reply};

/// A row per probe; it needs no key, because nothing is updated.
const SHAPE: Shape = Shape { name: "hb", columns: "n bigint not null", key: None };
/// Between two probes.
pub const BEAT: Duration = Duration::from_millis(20);
/// A probe that takes longer is lost.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);
/// The most concurrent probes per shard and kind: as many as can hang within the time limit.
const UNDER_WAY_MAX: u64 = 50;
/// The least, however few free connections the server has.
const UNDER_WAY_MIN: u64 = 2;
/// All probes together take at most one in this many of the server's free connections.
const CONNECTIONS_SHARE: u64 = 2;
/// Idle senders that are kept; others end, and close their connections.
const IDLE_MAX: u64 = 2;
/// The time limit for the last read.
const READING_PATIENCE: Duration = Duration::from_secs(60);

/// What one shard showed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ShardReport {
    /// Its name.
    pub shard: String,
    /// Write probes sent, and answered.
    pub writes: [u64; 2],
    /// Read probes likewise.
    pub reads: [u64; 2],
    /// Answered writes whose row was gone in the end.
    pub doomed: u64,
    /// Writes acknowledged with a warning, whose row was gone in the end: the server had warned.
    pub weak_doomed: u64,
    /// After each fault: writing, reading.
    pub outages: Vec<[Outage; 2]>,
    /// Periods without any answer, of writing and of reading, whatever caused them.
    pub gaps: [Vec<Gap>; 2],
    /// The longest time between two answers, for writes and for reads.
    pub silence_us: [u64; 2],
    /// The share of probes without an answer, for writes and for reads.
    pub share_unanswered: [f64; 2],
    /// The same share without the time of our faults.
    pub share_unanswered_calm: f64,
    /// The control of the outages: with the answers of some seconds removed, there must be one more.
    pub gap_control: Option<bool>,
    /// The control: an answered row is deleted in a transaction that is rolled back, and the same read within it must miss it. `None`: there is none.
    pub control: Option<bool>,
}

/// What another node showed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Staleness {
    /// Its name.
    pub node: String,
    /// Its place among the nodes.
    pub at: usize,
    /// Reads directly after an acknowledgement.
    pub reads: u64,
    /// Those that missed an acknowledged write.
    pub stale: u64,
    /// The most stale of them: from the acknowledgement to the first read that showed it.
    pub age_us_max: u64,
    /// The median of the stale ones.
    pub age_us_p50: u64,
    /// Reads that showed an older state than an earlier read of the same session.
    pub backwards: u64,
    /// The control: a read in a snapshot from before an acknowledged write, which must be stale. Reads, and stale ones.
    pub control: [u64; 2],
}

/// What came out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// By shard.
    pub shards: Vec<ShardReport>,
    /// By other node.
    pub staleness: Vec<Staleness>,
    /// The faults that were injected.
    pub happened: Vec<Happened>,
    /// The control: reading the same session's own write on the node that took it must never be stale. Reads, and stale ones.
    pub control: [u64; 2],
    /// What was refused.
    pub failures: Failures,
    /// What became of the servers.
    pub observed: Observed,
}

/// Runs it.
///
/// # Errors
/// When it cannot be set up, the faults cannot be undone, or the rows cannot be read at the end.
pub fn run(site: &Site, options: &Options, stop: &AtomicBool) -> Result<Report, LiveError> {
    let tables = Tables::make(site, &[SHAPE])?;
    let entry = options.dressed(site.entry());
    // If the shards are on one node, one series of probes is enough.
    let shards = if tables.is_spread { tables.shards.len() } else { 1 };
    let others: Vec<usize> = (0..site.nodes.len())
        .filter(|node| {
            let role = site.nodes[*node].role;
            *node != site.primary()
                && matches!(role, Role::Standby | Role::Peer | Role::Primary)
                && !site.engine.layout.is_spread()
        })
        .collect();
    let acknowledged = AtomicI64::new(0);
    let under_way_max = under_way_max(site, shards as u64)?;
    let doors = Doors::of(&entry);
    let ran = under_faults(site, options, stop, 2 * shards + others.len() + 1, |number, watch| {
        let (shard, kind) = (number / 2 + 1, number % 2);
        match number {
            _ if number < 2 * shards => {
                let requested = ProbeKind { shard, writes: kind == 0, under_way_max };
                let probes = beat(&doors, site.engine, requested, &acknowledged, watch);
                Part::Probes(shard, kind, probes)
            }
            _ => {
                let other = others.get(number - 2 * shards).copied();
                let spec = other.map_or_else(|| entry.clone(), |node| site.nodes[node].client_spec());
                let name = other.map(|node| site.nodes[node].name.clone());
                let looked = look(&spec, name, &acknowledged, watch);
                Part::Looks(other, Staleness { at: other.unwrap_or_default(), ..looked })
            }
        }
    });
    let Ran { parts, happened, failures, mut observed } = ran;
    let mut reader = after_all(site, &tables, &mut observed, READING_PATIENCE)?;
    let mut report = Report::default();
    for shard in 1..=shards {
        let of = |kind: usize| {
            let found = parts.iter().find_map(|part| match part {
                Part::Probes(s, k, probes) if (*s, *k) == (shard, kind) => Some(probes.as_slice()),
                _ => None,
            });
            found.unwrap_or_default()
        };
        let read = again(site, || {
            // Each attempt begins with a new session.
            reader = site.enter(READING_PATIENCE)?;
            read_back(&mut reader, shard, of(0))
        });
        let (there, control) = read.map_err(lost_rows)?;
        let name = tables.shards[shard - 1].clone();
        report
            .shards
            .push(ShardReport { control, ..of_shard(name, [of(0), of(1)], &there, &happened, site.grace()) });
    }
    tables.remove(site);
    report.happened = happened;
    report.failures = failures;
    report.observed = observed;
    for part in parts {
        match part {
            Part::Looks(Some(_), staleness) => report.staleness.push(staleness),
            Part::Looks(None, own) => report.control = [own.reads, own.stale],
            Part::Probes(..) => {}
        }
    }
    Ok(report)
}

/// The most concurrent probes of one kind: when a server hangs and recovers, each of them has a connection.
fn under_way_max(site: &Site, shards: u64) -> Result<u64, LiveError> {
    let mut client = Client::connect(&site.entry(), READING_PATIENCE)?;
    let sql = "select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
               - (select count(*) from pg_stat_activity where backend_type is null or backend_type = 'client backend')";
    let Some(left) = client.request(sql).ok().and_then(|reply| reply.number()) else {
        return Ok(UNDER_WAY_MAX);
    };
    Ok((left.max(0) as u64 / CONNECTIONS_SHARE / (2 * shards)).clamp(UNDER_WAY_MIN, UNDER_WAY_MAX))
}

/// Writes that were acknowledged without a warning, and are missing.
fn doomed(probes: &[Probe], there: &HashSet<u64>, is_weak: bool) -> u64 {
    let is_gone = |probe: &&Probe| {
        probe.answered_ns.is_some() && probe.is_weak == is_weak && !there.contains(&probe.number)
    };
    probes.iter().filter(is_gone).count() as u64
}

/// The rows of the writes, and whether the control's read missed one.
fn read_back(
    reader: &mut Client,
    shard: usize,
    writes: &[Probe],
) -> Result<(HashSet<u64>, Option<bool>), LiveError> {
    let there = numbers(reader, shard)?;
    let is_sure =
        |probe: &&Probe| probe.answered_ns.is_some() && !probe.is_weak && there.contains(&probe.number);
    let Some(Probe { number, .. }) = writes.iter().find(is_sure) else { return Ok((there, None)) };
    reader.execute(&format!("begin; delete from {SCHEMA}.hb where shard = {shard} and n = {number}"))?;
    let without = numbers(reader, shard)?;
    reader.execute("rollback")?;
    let shows = doomed(writes, &without, false) == doomed(writes, &there, false) + 1;
    Ok((there, Some(shows)))
}

fn of_shard(
    shard: String,
    [writes, reads]: [&[Probe]; 2],
    there: &HashSet<u64>,
    happened: &[Happened],
    grace: Duration,
) -> ShardReport {
    let survives = |probe: &Probe| there.contains(&probe.number);
    let faults = super::ack::Report::faults(happened);
    let windows = windows(happened, grace);
    let answered = |probes: &[Probe]| {
        [probes.len() as u64, probes.iter().filter(|probe| probe.answered_ns.is_some()).count() as u64]
    };
    let grace_ns = crate::fault::site::GRACE.as_nanos() as u64;
    let is_calm = |probe: &&Probe| {
        let is_in = |window: &Span| {
            probe.due_ns >= window.begin_ns && probe.due_ns <= window.end_ns.saturating_add(grace_ns)
        };
        !windows.iter().any(is_in)
    };
    let calm: Vec<&Probe> = writes.iter().chain(reads).filter(is_calm).collect();
    let missing = calm.iter().filter(|probe| probe.answered_ns.is_none()).count();
    let (write_silence, read_silence) = (silence(writes, survives), silence(reads, |_| true));
    ShardReport {
        shard,
        writes: answered(writes),
        reads: answered(reads),
        doomed: doomed(writes, there, false),
        weak_doomed: doomed(writes, there, true),
        control: None,
        gaps: [gaps(writes, &windows, survives), gaps(reads, &windows, |_| true)],
        silence_us: [write_silence.0, read_silence.0],
        share_unanswered: [write_silence.1, read_silence.1],
        share_unanswered_calm: missing as f64 / calm.len().max(1) as f64,
        gap_control: measure::would_show(writes, survives),
        outages: std::iter::zip(&faults, ends(happened))
            .map(|(fault, end)| [outage(writes, fault, end, survives), outage(reads, fault, end, |_| true)])
            .collect(),
    }
}

/// What is there on a shard.
fn numbers(reader: &mut Client, shard: usize) -> Result<HashSet<u64>, LiveError> {
    let there = reader.execute(&format!("select n from {SCHEMA}.hb where shard = {shard}"))?;
    Ok(there.rows().iter().filter_map(|row| u64::try_from(number(row.first()?)?).ok()).collect())
}

enum Part {
    Probes(usize, usize, Vec<Probe>),
    Looks(Option<usize>, Staleness),
}

/// One kind of probe.
#[derive(Clone, Copy)]
struct ProbeKind {
    shard: usize,
    writes: bool,
    under_way_max: u64,
}

/// The senders of one kind of probe: their number, and the number of idle ones.
#[derive(Default)]
struct Senders {
    all: AtomicU64,
    idle: AtomicU64,
}

/// Sends probes at the fixed rate until the end. A hanging probe delays no other: there are as many senders as can hang at once.
fn beat(
    doors: &Doors,
    engine: Engine,
    kind: ProbeKind,
    acknowledged: &AtomicI64,
    watch: &Watch<'_>,
) -> Vec<Probe> {
    let probes = Mutex::new(Vec::new());
    let (sender, receiver) = mpsc::channel::<Probe>();
    let (receiver, senders) = (Mutex::new(receiver), Senders::default());
    std::thread::scope(|scope| {
        let mut count = 0;
        while watch.goes_on() {
            count += 1;
            // Numbers are the same on all shards, and each shard's are its own.
            let probe = Probe { due_ns: monotonic_ns(), answered_ns: None, number: count, is_weak: false };
            let is_wanted = senders.idle.load(Ordering::Acquire) == 0;
            if is_wanted && senders.all.load(Ordering::Acquire) < kind.under_way_max {
                senders.all.fetch_add(1, Ordering::AcqRel);
                let (probes, queue) = (&probes, (&receiver, &senders));
                let ProbeKind { shard, writes, .. } = kind;
                let way = Way { doors, engine, shard, writes, acknowledged, watch };
                scope.spawn(move || send(&way, queue, probes));
            }
            // It waits in the queue for the first free thread; in the worst case as long as the time limit.
            let _ = sender.send(probe);
            let next = watch.begin + BEAT * u32::try_from(count).unwrap_or(u32::MAX);
            std::thread::sleep(next.saturating_duration_since(Instant::now()).min(BEAT));
        }
        drop(sender);
        // A probe that no thread took in time has no answer.
        let left = receiver.lock().unwrap_or_else(PoisonError::into_inner);
        probes.lock().unwrap_or_else(PoisonError::into_inner).extend(left.try_iter());
    });
    let mut probes: Vec<Probe> = probes.into_inner().unwrap_or_else(PoisonError::into_inner);
    probes.sort_by_key(|probe| probe.due_ns);
    probes
}

/// The shared state of the senders of one kind of probe.
struct Way<'a, 'b> {
    doors: &'a Doors,
    engine: Engine,
    shard: usize,
    writes: bool,
    acknowledged: &'a AtomicI64,
    watch: &'a Watch<'b>,
}

fn send(
    way: &Way<'_, '_>,
    (receiver, senders): (&Mutex<mpsc::Receiver<Probe>>, &Senders),
    probes: &Mutex<Vec<Probe>>,
) {
    let mut client: Option<(Client, usize)> = None;
    let shard = way.shard;
    loop {
        if senders.idle.fetch_add(1, Ordering::AcqRel) >= IDLE_MAX {
            // No probe hangs any more: the other senders are enough, and the server gets its connections back.
            senders.idle.fetch_sub(1, Ordering::AcqRel);
            senders.all.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        senders.idle.fetch_sub(1, Ordering::AcqRel);
        let Ok(mut probe) = next else { return };
        let late = Duration::from_nanos(monotonic_ns().saturating_sub(probe.due_ns));
        if let Some(left) = PROBE_PATIENCE.checked_sub(late) {
            if client.is_none() {
                client = way.doors.connect(Instant::now() + left, PROBE_PATIENCE, || way.watch.goes_on());
            }
            let sql = match way.writes {
                true => format!("insert into {SCHEMA}.hb values ({shard}, {})", probe.number),
                false => format!("select count(*) from {SCHEMA}.hb where shard = {shard} and n < 0"),
            };
            let reply = client.as_mut().map(|(client, _)| client.request(&sql));
            let outcome = match &reply {
                Some(Ok(reply)) => {
                    way.watch.count(reply);
                    of_reply(way.engine, At::Commit { wide: false }, reply).outcome
                }
                _ => Outcome::Info,
            };
            if !outcome.is_acknowledged() {
                // After any refusal the next probe uses a new session, perhaps to another host.
                if let (Some((_, host)), Some(Err(_))) = (client.take(), &reply) {
                    way.doors.shut(host);
                }
            } else {
                probe.answered_ns = Some(monotonic_ns());
                probe.is_weak = outcome == Outcome::OkWeak;
                // A write acknowledged with a warning need not be on another node.
                if way.writes && shard == 1 && !probe.is_weak {
                    way.acknowledged.fetch_max(probe.number as i64, Ordering::AcqRel);
                }
            }
        }
        probes.lock().unwrap_or_else(PoisonError::into_inner).push(probe);
    }
}

/// Reads the last acknowledged write repeatedly. `name` is the other node's; without one it is the node that takes the writes.
fn look(spec: &ConnSpec, name: Option<String>, acknowledged: &AtomicI64, watch: &Watch<'_>) -> Staleness {
    let is_other = name.is_some();
    let mut staleness = Staleness { node: name.unwrap_or_default(), ..Staleness::default() };
    let mut ages: Vec<u64> = Vec::new();
    let mut session = super::Lasting::new(spec.clone(), PROBE_PATIENCE);
    let (mut seen, mut looked_for) = (0, 0);
    while watch.goes_on() {
        let wanted = acknowledged.load(Ordering::Acquire);
        if wanted == looked_for {
            std::thread::sleep(BEAT / 20);
            continue;
        }
        looked_for = wanted;
        if is_other && staleness.control[1] == 0 {
            let [reads, stale] = look_back(&mut session, acknowledged, watch);
            staleness.control = [staleness.control[0] + reads, staleness.control[1] + stale];
            continue;
        }
        let since = Instant::now();
        let mut is_first = true;
        // Until it shows the acknowledged write, or the time limit is over.
        while !watch.ends_early() && since.elapsed() < PROBE_PATIENCE {
            let Some(client) = session.get() else { continue };
            let sql = format!("select coalesce(max(n), 0) from {SCHEMA}.hb where shard = 1");
            let Some(shown) = client.request(&sql).ok().and_then(|reply| reply.number()) else {
                session.lose();
                seen = 0;
                continue;
            };
            staleness.backwards += u64::from(shown < seen);
            seen = seen.max(shown);
            let is_stale = shown < wanted;
            if is_first {
                staleness.reads += 1;
                staleness.stale += u64::from(is_stale);
            }
            if !is_stale {
                if !is_first {
                    ages.push(since.elapsed().as_micros() as u64);
                }
                break;
            }
            is_first = false;
        }
    }
    ages.sort_unstable();
    staleness.age_us_max = ages.last().copied().unwrap_or(0);
    staleness.age_us_p50 = ages.get(ages.len() / 2).copied().unwrap_or(0);
    staleness
}

/// Reads the last acknowledged write in a snapshot from before it. Reads, and stale ones.
fn look_back(session: &mut super::Lasting, acknowledged: &AtomicI64, watch: &Watch<'_>) -> [u64; 2] {
    let Some(client) = session.get() else { return [0, 0] };
    let select = format!("select coalesce(max(n), 0) from {SCHEMA}.hb where shard = 1");
    let mut query = |sql: &str| client.request(sql).ok().filter(|reply| reply.error.is_none());
    let seen = (|| {
        query("begin isolation level repeatable read read only")?;
        let before = query(&select)?.number()?;
        let since = Instant::now();
        while acknowledged.load(Ordering::Acquire) <= before {
            if !watch.goes_on() || since.elapsed() > PROBE_PATIENCE {
                query("commit")?;
                return Some([0, 0]);
            }
            std::thread::sleep(BEAT / 20);
        }
        let wanted = acknowledged.load(Ordering::Acquire);
        let shown = query(&select)?.number()?;
        query("commit")?;
        Some([1, u64::from(shown < wanted)])
    })();
    seen.unwrap_or_else(|| {
        // The next one begins in a new session.
        session.lose();
        [0, 0]
    })
}
