//! `hb`: a probe at a fixed beat, whatever became of the last one: how long a cluster is away (RTO), and how old what its other nodes show is.
//!
//! The beat is an open loop: a probe that hangs holds up no other, so an outage is as long as it was and not as long as the client's patience. A write counts
//! as answered only when its row survives to the end: an acknowledgement of a doomed primary is none. After every answered write one read
//! on each other node tells how old what it shows is.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use record::clock::monotonic_ns;
use target::{ConnSpec, Engine, Role};

use super::ack::Span;
use super::tables::{SCHEMA, Shape, Tables};
use super::{LiveError, Options, Watch, under_faults};
use crate::client::{Client, number};
use crate::fault::{Fault, Happened, Site};
use crate::outcome::{At, of_reply};

/// A row per probe; no key is needed, nothing is updated.
const SHAPE: Shape = Shape { name: "hb", columns: "n bigint not null", key: None };
/// Between two probes.
pub const BEAT: Duration = Duration::from_millis(20);
/// A probe that takes longer is lost.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);
/// Probes under way at once, per shard and kind: as many as can hang within the patience.
const UNDER_WAY_MAX: usize = 50;
/// The full rate is back with this share of the answers of the calm time before ...
const FULL_SHARE: f64 = 0.95;
/// ... and a 99th percentile of at most so many times the one before, over this long.
const FULL_LATENCY: f64 = 2.0;
/// See [`FULL_SHARE`]; shorter where the run is.
const FULL_WINDOW: Duration = Duration::from_secs(10);
/// How long the last reading may take.
const READING_PATIENCE: Duration = Duration::from_secs(60);

/// One probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// When it was due.
    pub due_ns: u64,
    /// When it was answered; `None`: not within the patience, or refused.
    pub answered_ns: Option<u64>,
    /// What it wrote.
    pub number: u64,
}

/// How long one kind of probe was away after one fault.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outage {
    /// From the injection to the first answer that counts; `None`: none came.
    pub back_us: Option<u64>,
    /// From the injection to the beginning of the first window at the full rate.
    pub full_us: Option<u64>,
    /// Seconds of availability that were lost: the integral of the missing share.
    pub unavailable_s: f64,
}

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
    /// After each fault: writing, reading.
    pub outages: Vec<[Outage; 2]>,
    /// The control: an answered row is deleted in a transaction that is rolled back, and the same reading within it must miss it. `None`: there is none.
    pub control: Option<bool>,
}

/// What another node showed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Staleness {
    /// Its name.
    pub node: String,
    /// Reads directly after an acknowledgement.
    pub reads: u64,
    /// Those that did not show what was acknowledged.
    pub stale: u64,
    /// The oldest of them: from the acknowledgement to the reading that first showed it.
    pub age_us_max: u64,
    /// The median of the stale ones.
    pub age_us_p50: u64,
    /// Reads that showed less than the same session had seen before.
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
    /// What was done meanwhile.
    pub happened: Vec<Happened>,
    /// The control: reading the same session's own write on the node that took it must never be stale. Reads, and stale ones.
    pub control: [u64; 2],
}

/// Runs it.
///
/// # Errors
/// When it cannot be set up, the faults cannot be undone, or the rows cannot be read in the end.
pub fn run(site: &Site, options: &Options, stop: &AtomicBool) -> Result<Report, LiveError> {
    let tables = Tables::make(site, &[SHAPE])?;
    let entry = options.dressed(site.entry());
    // Without shards on nodes of their own one beat is enough.
    let shards = if tables.is_spread { tables.shards.len() } else { 1 };
    let others: Vec<usize> = (0..site.nodes.len())
        .filter(|node| {
            let role = site.nodes[*node].role;
            *node != site.primary() && matches!(role, Role::Standby | Role::Peer) && shows_rows(site.engine)
        })
        .collect();
    let acknowledged = AtomicI64::new(0);
    let (parts, happened, healed) =
        under_faults(site, options, stop, 2 * shards + others.len() + 1, |number, watch| {
            let (shard, kind) = (number / 2 + 1, number % 2);
            match number {
                _ if number < 2 * shards => {
                    let probes = beat(&entry, site.engine, shard, kind == 0, &acknowledged, watch);
                    Part::Probes(shard, kind, probes)
                }
                _ => {
                    let other = others.get(number - 2 * shards);
                    let spec = other.map_or_else(|| entry.clone(), |node| site.nodes[*node].client_spec());
                    let name = other.map(|node| site.nodes[*node].name.clone());
                    Part::Looks(name.clone(), look(&spec, name, &acknowledged, watch))
                }
            }
        });
    healed?;
    site.quiesce()?;
    let mut reader = Client::connect(&site.entry(), READING_PATIENCE)?;
    let mut report = Report::default();
    let faults = super::ack::Report::faults(&happened);
    for shard in 1..=shards {
        let there = numbers(&mut reader, shard)?;
        let of = |kind: usize| {
            let found = parts.iter().find_map(|part| match part {
                Part::Probes(s, k, probes) if (*s, *k) == (shard, kind) => Some(probes.as_slice()),
                _ => None,
            });
            found.unwrap_or_default()
        };
        let survives = |probe: &Probe| there.contains(&probe.number);
        let answered = |probes: &[Probe]| {
            [probes.len() as u64, probes.iter().filter(|probe| probe.answered_ns.is_some()).count() as u64]
        };
        let doomed_in = |there: &HashSet<u64>| {
            of(0).iter().filter(|probe| probe.answered_ns.is_some() && !there.contains(&probe.number)).count()
        };
        let doomed = doomed_in(&there);
        let answered_row = of(0).iter().find(|probe| probe.answered_ns.is_some() && survives(probe));
        let control = match answered_row {
            None => None,
            Some(Probe { number, .. }) => {
                reader.tell(&format!(
                    "begin; delete from {SCHEMA}.hb where shard = {shard} and n = {number}"
                ))?;
                let without = numbers(&mut reader, shard)?;
                reader.tell("rollback")?;
                Some(doomed_in(&without) == doomed + 1)
            }
        };
        report.shards.push(ShardReport {
            shard: tables.shards[shard - 1].clone(),
            writes: answered(of(0)),
            reads: answered(of(1)),
            doomed: doomed as u64,
            control,
            outages: std::iter::zip(&faults, ends(&happened))
                .map(|(fault, end)| {
                    [outage(of(0), fault, end, survives), outage(of(1), fault, end, |_| true)]
                })
                .collect(),
        });
    }
    tables.remove(site)?;
    report.happened = happened;
    for part in parts {
        match part {
            Part::Looks(Some(_), staleness) => report.staleness.push(staleness),
            Part::Looks(None, own) => report.control = [own.reads, own.stale],
            Part::Probes(..) => {}
        }
    }
    Ok(report)
}

/// What is there on a shard.
fn numbers(reader: &mut Client, shard: usize) -> Result<HashSet<u64>, LiveError> {
    let there = reader.tell(&format!("select n from {SCHEMA}.hb where shard = {shard}"))?;
    Ok(there.rows().iter().filter_map(|row| u64::try_from(number(row.first()?)?).ok()).collect())
}

enum Part {
    Probes(usize, usize, Vec<Probe>),
    Looks(Option<String>, Staleness),
}

/// Whether other nodes hold the same rows, so that reading them there says something.
fn shows_rows(engine: Engine) -> bool {
    matches!(engine, Engine::Postgres | Engine::Multimaster)
}

/// Each fault's time ends with the next one. A promotion is how others are overcome, so it ends none.
fn ends(happened: &[Happened]) -> Vec<u64> {
    let done: Vec<&Happened> =
        happened.iter().filter(|one| one.step.fault.is_some() && one.error.is_none()).collect();
    let next = |at: usize| done[at + 1..].iter().find(|one| one.step.fault != Some(Fault::Promote));
    (0..done.len()).map(|at| next(at).map_or(u64::MAX, |one| one.at_ns)).collect()
}

/// Sends probes at the beat until the end. Each hangs for itself: there are as many senders as can hang at once.
fn beat(
    entry: &ConnSpec,
    engine: Engine,
    shard: usize,
    writes: bool,
    acknowledged: &AtomicI64,
    watch: &Watch<'_>,
) -> Vec<Probe> {
    let probes = Mutex::new(Vec::new());
    let (sender, receiver) = mpsc::channel::<Probe>();
    let (receiver, idle) = (Mutex::new(receiver), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (mut senders, mut count) = (0, 0);
        while watch.goes_on() {
            count += 1;
            // Numbers are the same on all shards, and each shard's are its own.
            let probe = Probe { due_ns: monotonic_ns(), answered_ns: None, number: count };
            if idle.load(Ordering::Acquire) == 0 && senders < UNDER_WAY_MAX {
                senders += 1;
                let (probes, receiver, idle) = (&probes, &receiver, &idle);
                scope.spawn(move || {
                    send(entry, engine, (shard, writes), (receiver, idle), probes, acknowledged)
                });
            }
            // It waits in the queue for whoever is free first; in the worst case as long as the patience.
            let _ = sender.send(probe);
            let next = watch.begin + BEAT * u32::try_from(count).unwrap_or(u32::MAX);
            std::thread::sleep(next.saturating_duration_since(Instant::now()).min(BEAT));
        }
        drop(sender);
    });
    let mut probes: Vec<Probe> = probes.into_inner().unwrap_or_else(PoisonError::into_inner);
    probes.sort_by_key(|probe| probe.due_ns);
    probes
}

fn send(
    entry: &ConnSpec,
    engine: Engine,
    (shard, writes): (usize, bool),
    (receiver, idle): (&Mutex<mpsc::Receiver<Probe>>, &AtomicU64),
    probes: &Mutex<Vec<Probe>>,
    acknowledged: &AtomicI64,
) {
    let mut client: Option<Client> = None;
    loop {
        idle.fetch_add(1, Ordering::AcqRel);
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        idle.fetch_sub(1, Ordering::AcqRel);
        let Ok(mut probe) = next else { return };
        if monotonic_ns().saturating_sub(probe.due_ns) <= PROBE_PATIENCE.as_nanos() as u64 {
            if client.is_none() {
                client = Client::connect(entry, PROBE_PATIENCE).ok();
            }
            let sql = match writes {
                true => format!("insert into {SCHEMA}.hb values ({shard}, {})", probe.number),
                false => format!("select count(*) from {SCHEMA}.hb where shard = {shard} and n < 0"),
            };
            let reply = client.as_mut().map(|client| client.ask(&sql));
            let is_answered = match &reply {
                Some(Ok(reply)) => {
                    of_reply(engine, At::Commit { wide: false }, reply).outcome.is_acknowledged()
                }
                _ => false,
            };
            if !is_answered {
                // Whatever was refused: the next one tries with a session of its own, perhaps elsewhere.
                client = None;
            } else {
                probe.answered_ns = Some(monotonic_ns());
                if writes && shard == 1 {
                    acknowledged.fetch_max(probe.number as i64, Ordering::AcqRel);
                }
            }
        }
        probes.lock().unwrap_or_else(PoisonError::into_inner).push(probe);
    }
}

/// Reads again and again what was acknowledged last. `name` is the other node's; without one it is the node that takes the writes.
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
        // Until it shows what was acknowledged, or the patience ends.
        while !watch.ends_early() && since.elapsed() < PROBE_PATIENCE {
            let Some(client) = session.get() else { continue };
            let sql = format!("select coalesce(max(n), 0) from {SCHEMA}.hb where shard = 1");
            let Some(shown) = client.ask(&sql).ok().and_then(|reply| reply.number()) else {
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

/// Reads what was acknowledged last in a snapshot from before it. Reads, and stale ones.
fn look_back(session: &mut super::Lasting, acknowledged: &AtomicI64, watch: &Watch<'_>) -> [u64; 2] {
    let Some(client) = session.get() else { return [0, 0] };
    let select = format!("select coalesce(max(n), 0) from {SCHEMA}.hb where shard = 1");
    let mut ask = |sql: &str| client.ask(sql).ok().filter(|reply| reply.error.is_none());
    let seen = (|| {
        ask("begin isolation level repeatable read read only")?;
        let before = ask(&select)?.number()?;
        let since = Instant::now();
        while acknowledged.load(Ordering::Acquire) <= before {
            if !watch.goes_on() || since.elapsed() > PROBE_PATIENCE {
                ask("commit")?;
                return Some([0, 0]);
            }
            std::thread::sleep(BEAT / 20);
        }
        let wanted = acknowledged.load(Ordering::Acquire);
        let shown = ask(&select)?.number()?;
        ask("commit")?;
        Some([1, u64::from(shown < wanted)])
    })();
    seen.unwrap_or_else(|| {
        // Wherever it stopped: the next one begins in a session of its own.
        session.lose();
        [0, 0]
    })
}

/// How long probes were away after a fault; a probe counts when it `counts`. What was sent while the fault was being done may still have been answered by
/// a server that had a moment to live.
fn outage(probes: &[Probe], fault: &Span, end_ns: u64, counts: impl Fn(&Probe) -> bool) -> Outage {
    let fault_ns = fault.begin_ns;
    let us = |ns: u64| ns.saturating_sub(fault_ns) / 1_000;
    let in_time = |probe: &&Probe| (fault_ns..end_ns).contains(&probe.due_ns);
    let latency = |probe: &Probe| probe.answered_ns.map(|answered| answered.saturating_sub(probe.due_ns));
    let after: Vec<&Probe> = probes.iter().filter(in_time).collect();
    let is_later = |probe: &&&Probe| probe.due_ns >= fault.end_ns && counts(probe);
    let answered = after.iter().filter(is_later).filter_map(|probe| probe.answered_ns).min();
    let before: Vec<&Probe> = probes.iter().filter(|probe| probe.due_ns < fault_ns).collect();
    let share = |probes: &[&Probe]| {
        let good = probes.iter().filter(|probe| probe.answered_ns.is_some() && counts(probe)).count();
        good as f64 / probes.len().max(1) as f64
    };
    let calm = share(&before);
    let p99 = |probes: &[&Probe]| {
        let mut all: Vec<u64> = probes.iter().filter_map(|probe| latency(probe)).collect();
        all.sort_unstable();
        all.get((all.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(u64::MAX)
    };
    let calm_p99 = p99(&before);
    // At most ten seconds, at least as many probes as a percentile needs, and no more than a third of what there is.
    let wanted = (FULL_WINDOW.as_nanos() / BEAT.as_nanos()) as usize;
    let window = wanted.min(after.len() / 3).max(1);
    let full = after.windows(window).find(|window| {
        share(window) >= FULL_SHARE * calm && p99(window) as f64 <= FULL_LATENCY * calm_p99 as f64
    });
    let missing: f64 =
        after.iter().map(|probe| f64::from(u8::from(probe.answered_ns.is_none() || !counts(probe)))).sum();
    Outage {
        back_us: answered.map(us),
        full_us: full.and_then(|window| window.first()).map(|probe| us(probe.due_ns)),
        unavailable_s: missing * BEAT.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT_NS: u64 = 20_000_000;

    fn probes(count: u64, answered: impl Fn(u64) -> Option<u64>) -> Vec<Probe> {
        (0..count)
            .map(|number| {
                let due_ns = 1_000 + number * BEAT_NS;
                Probe { due_ns, answered_ns: answered(number).map(|latency| due_ns + latency), number }
            })
            .collect()
    }

    fn at(ns: u64) -> Span {
        Span { begin_ns: ns, end_ns: ns }
    }

    #[test]
    fn an_answer_of_a_server_that_is_being_killed_ends_no_outage() {
        let all = probes(300, |number| (!(101..150).contains(&number)).then_some(1_000_000));
        let fault = Span { begin_ns: 1_000 + 100 * BEAT_NS, end_ns: 1_000 + 100 * BEAT_NS + 14_000_000 };
        let found = outage(&all, &fault, u64::MAX, |_| true);
        assert_eq!(found.back_us, Some((50 * BEAT_NS + 1_000_000) / 1_000));
    }

    #[test]
    fn an_outage_ends_with_the_first_answer_that_survives() {
        // Beats 0..99 are calm, 100 to 149 unanswered, 150 to 159 answered by a doomed server, then all is well.
        let all = probes(300, |number| (!(100..150).contains(&number)).then_some(1_000_000));
        let fault = &at(1_000 + 100 * BEAT_NS);
        let doomed = |probe: &Probe| !(150..160).contains(&probe.number);
        let found = outage(&all, fault, u64::MAX, doomed);
        assert_eq!(found.back_us, Some((60 * BEAT_NS + 1_000_000) / 1_000));
        assert!((found.unavailable_s - 1.2).abs() < 1e-9, "{found:?}");
        // The full rate allows one probe in twenty to be missing.
        let full = found.full_us.unwrap();
        assert!((50 * 20_000..=60 * 20_000).contains(&full), "{found:?}");
        let found = outage(&all, fault, u64::MAX, |_| true);
        assert_eq!(found.back_us, Some((50 * BEAT_NS + 1_000_000) / 1_000));
    }

    #[test]
    fn slow_answers_are_not_the_full_rate_and_silence_has_no_end() {
        let all = probes(200, |number| Some(if number < 100 { 1_000_000 } else { 5_000_000 }));
        let fault = &at(1_000 + 100 * BEAT_NS);
        let found = outage(&all, fault, u64::MAX, |_| true);
        assert_eq!((found.back_us, found.full_us), (Some(5_000), None));
        let all = probes(200, |number| (number < 100).then_some(1_000_000));
        let found = outage(&all, fault, u64::MAX, |_| true);
        assert_eq!((found.back_us, found.full_us), (None, None));
        assert!((found.unavailable_s - 2.0).abs() < 1e-9);
        // What comes after the next fault is not this one's.
        let all = probes(200, |number| (number >= 150).then_some(1_000_000));
        assert_eq!(outage(&all, fault, fault.end_ns + 40 * BEAT_NS, |_| true).back_us, None);
    }
}
