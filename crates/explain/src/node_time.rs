//! Where the time of a node's sessions went: of all of them.
//!
//! The whole is what the server counts itself (`pg_stat_database.active_time`, from PostgreSQL 14 on). CPU time, and waiting for a CPU, are what the
//! kernel's scheduler counted for the processes that serve sessions. What remains of the whole is shared out by samples of `pg_stat_activity`:
//! samples give the proportions, counters give the total. The rest that neither explains is printed, and never negative.
//!
//! A process that is woken up from a wait still shows that wait until it has a CPU, and the scheduler counts the same moment as waiting for a CPU.
//! That time belongs to the wait: a session that queued for a row goes on when it runs. So it is taken from *waiting for a CPU*, and each part reports how
//! much of it was *woken*. How long sessions waited for a CPU before their statement was read, which no view shows, follows from the number of statements:
//! each is one of the turns on a CPU that the scheduler counts.

mod before;
mod dimensions;
mod same_text;

use crate::case::{Case, Lines, Thing};
use crate::waits::{self, Waits, Who};
use record::finding::{NodePart, NodeTime, StatementTime, Window};
use record::statement;
use record::watched::WAIT_CPU;
use std::collections::{BTreeMap, BTreeSet};

/// Name of the part in which the sessions' processes compute.
pub(crate) const ON_CPU: &str = "on a CPU";
/// Name of the part in which they wait for the WAL, of their commits and else.
pub(crate) const COMMITTING: &str = "WAL and commit";
/// Name of the part in which they wait for blocks of files.
pub(crate) const READING: &str = "reading";
/// Name of the part in which they could compute but have no CPU.
pub(crate) const FOR_CPU: &str = "waiting for a CPU";
/// Name of both together where the scheduler was not read.
pub(crate) const CPU: &str = "CPU, or waiting for one";
/// Name of the part in which sessions wait until other nodes agree on their commit, on engines where that is no wait of PostgreSQL's.
pub(crate) const AGREEMENT: &str = "commit: agreement of the nodes";
/// Name of the part in which sessions wait for their client or for other nodes, on engines that show both as one wait.
pub(crate) const FOR_NODES: &str = "other nodes, or the client";
const SLEEPING: &str = "sleeping by design";
const FOR_CLIENT: &str = "the client";
const FOR_STANDBYS: &str = "synchronous replication";
const IN_EXTENSIONS: &str = "extensions";
/// Parts in which sessions wait for what is outside of the server, or for time to pass: more sessions can wait there at once.
pub(crate) const ELSEWHERE: [&str; 6] =
    [SLEEPING, FOR_CLIENT, FOR_STANDBYS, IN_EXTENSIONS, AGREEMENT, FOR_NODES];
/// Name of the rest.
pub(crate) const UNACCOUNTED: &str = "unaccounted";
/// Functions listed per statement, and the share of its samples that makes one worth it.
const FUNCTIONS_MAX: usize = 4;
const FUNCTION_SHARE_MIN: f64 = 0.05;
/// Wait events listed per part and statement.
const EVENTS_MAX: usize = 3;
/// The same for locks and lightweight locks, which have many names.
const LOCKS_MAX: usize = 6;
/// Sessions that were woken and had no CPU are worth a note from this share of all on.
const WOKEN_NOTED: f64 = 0.05;
/// Statements listed.
const STATEMENTS_MAX: usize = 10;
/// Statements below this share of the time are not listed, unless they are this part of all executions, and so many a second: what such a statement costs is
/// the way between client and server, and not its execution, which is all that the server counts.
const STATEMENT_SHARE_MIN: f64 = 0.01;
const OF_CALLS_MIN: f64 = 0.3;
const CALLS_PER_S_MIN: f64 = 500.0;
/// The server's count is believed unless it is below this share of what the samples show.
const COUNTED_SHARE_MIN: f64 = 0.8;
/// Fewer samples than these share nothing out.
const SAMPLES_MIN: f64 = 3.0;
/// Bytes of a block, by default.
const BLOCK_BYTES: f64 = 8192.0;

/// What `watch` reports as missing when sessions are masked.
const HIDING_SESSIONS: [&str; 2] = ["sessions of other roles", "hidden sessions"];

/// Wait events with their sessions, or their shares.
type Events = Vec<(String, f64)>;

/// What a session does while it shows this wait, in words for the table.
fn part_of(kind: &str, event: &str) -> &'static str {
    match (kind, event) {
        (WAIT_CPU, _) => CPU,
        ("IO", event) if event.starts_with("WAL") || event.starts_with("Wal") => COMMITTING,
        ("LWLock", event) if event.starts_with("WAL") => COMMITTING,
        ("IPC", "SyncRep") => FOR_STANDBYS,
        // BufFileWrite is BuffileWrite from PostgreSQL 17 on.
        ("IO", event) if event.to_ascii_lowercase().starts_with("buffile") => "temporary files",
        ("IO", event) if event.ends_with("Extend") => "extending files",
        ("IO", event) if event.ends_with("Read") || event.ends_with("Prefetch") => READING,
        ("IO", "AioIoCompletion" | "AioIoUringExecution" | "AioIoUringSubmit") => READING,
        ("IO", _) => "writing and other I/O",
        ("Lock", _) => "locks",
        ("LWLock", _) => "lightweight locks",
        ("BufferPin" | "Buffer", _) => "buffer pins",
        ("Client", _) => FOR_CLIENT,
        ("Timeout", "VacuumDelay") => "cost limit of vacuum",
        ("Timeout", "SpinDelay") => "spinlocks",
        ("Timeout", _) => SLEEPING,
        ("IPC", "ExecuteGather" | "ParallelFinish" | "HashBuildHashInner") => "parallel workers",
        ("IPC", _) => "other processes",
        ("Extension", _) => IN_EXTENSIONS,
        _ => "other waits",
    }
}

/// Every node whose sessions were sampled.
pub fn all(case: &Case) -> &[NodeTime] {
    case.node_time(|case| {
        let windows = windows(case);
        case.nodes().into_iter().filter_map(|node| of(case, node, &windows)).collect()
    })
}

/// The same with the sessions that had got what they waited for and had no CPU yet: how long their statements took.
pub(crate) fn share_waiting(case: &Case, node: &str, fits: impl Fn(&str, &str) -> bool) -> Option<f64> {
    share_by(case, node, fits, true)
}

/// The share of a node's session time in one of its parts.
pub(crate) fn share_of_part(time: &NodeTime, name: &str) -> f64 {
    time.parts.iter().find(|part| part.name == name).map_or(0.0, |part| part.share)
}

/// The share of a node's session time in waits that fit, without sessions that only waited for a CPU to go on. Samples see the sessions that the server calls
/// active; one whose process has not had a CPU to read its statement with is not among them, so a share of the samples is more than a share of the time.
pub(crate) fn share_of(case: &Case, node: &str, fits: impl Fn(&str, &str) -> bool) -> Option<f64> {
    share_by(case, node, fits, false)
}

fn share_by(case: &Case, node: &str, fits: impl Fn(&str, &str) -> bool, with_woken: bool) -> Option<f64> {
    let waits = case.waits(node)?;
    let Some(time) = all(case).iter().find(|time| time.node == node && time.active > 0.0) else {
        return waits.share(Who::Client, fits);
    };
    let windows = windows(case);
    let seen = waits.of(Who::Client).filter(|(event, _)| fits(&event.0, &event.1));
    let sessions = seen.map(|(_, series)| series.within(&windows).sum()).sum::<f64>() / time.samples as f64;
    Some((sessions * scale(time, waits, &windows, with_woken) / time.active).min(1.0))
}

/// By how much the account made the sampled waits smaller, so that they fit into the whole.
fn scale(time: &NodeTime, waits: &Waits, windows: &[Window], with_woken: bool) -> f64 {
    let is_sampled = |part: &&NodePart| !part.is_counted && part.name != UNACCOUNTED;
    let of = |part: &NodePart| part.sessions - part.woken.filter(|_| !with_woken).unwrap_or(0.0);
    let shown: f64 = time.parts.iter().filter(is_sampled).map(of).sum();
    let has_cpu = time.parts.iter().any(|part| part.name == CPU);
    let of_parts = waits.of(Who::Client).filter(|(event, _)| has_cpu || event.0 != WAIT_CPU);
    let seen = of_parts.map(|(_, series)| series.within(windows).sum()).sum::<f64>() / time.samples as f64;
    if seen > 0.0 { (shown / seen).min(1.0) } else { 1.0 }
}

/// What is accounted for: the measured phases of a run, else all of the recording.
pub(crate) fn windows(case: &Case) -> Vec<Window> {
    let mut windows: Vec<Window> = case.driven().into_iter().map(|(_, window)| window).collect();
    if windows.is_empty() {
        windows.push(Window::new(0, u64::MAX));
    }
    waits::merge(&mut windows);
    windows
}

/// One node; `None` if its sessions were hardly sampled.
fn of(case: &Case, node: &str, windows: &[Window]) -> Option<NodeTime> {
    let server = case.one("server", node)?;
    let samples = case.looks(node, windows);
    if samples < SAMPLES_MIN {
        return None;
    }
    let nothing = Waits::default();
    let waits = case.waits(node).unwrap_or(&nothing);
    let sampled = |who: Who| waits.seen_within(who, windows) / samples;
    let counted = |field: &str| sessions_of(server, field, windows);
    let (seen, by_server) = (sampled(Who::Client), counted("active_ms"));
    // A statement is counted when it has ended: one that outlasts the recording is known to the samples alone.
    // The server counts the time of sessions, and not that of their parallel workers.
    let parallel = waits.parallel_within(windows) / samples;
    let begun = begun_before(case, node, windows) / seconds(server, windows).max(f64::MIN_POSITIVE);
    // It is taken away as far as the samples do not show it: a statement inside of another is counted twice.
    let by_server = by_server.map(|sessions| (sessions - begun).max(seen.min(sessions)));
    let by_server = by_server.map(|sessions| sessions + parallel);
    let is_counted = by_server.is_some_and(|sessions| sessions >= seen * COUNTED_SHARE_MIN);
    let mut notes = of_the_whole(begun, by_server.filter(|_| !is_counted));
    let scheduler = scheduled(case, node, windows);
    let mut active = by_server.filter(|_| is_counted).unwrap_or(seen);
    if let Some(scheduled) = scheduler {
        let computing = waits.of(Who::Client).filter(|(event, _)| event.0 == WAIT_CPU);
        let computing = computing.map(|(_, series)| series.within(windows).sum()).sum::<f64>() / samples;
        // A process that has received a statement and has no CPU to read it with counts as idle everywhere else.
        active += scheduled.unread(active, computing, statements_per_s(case, node, server, windows));
    }
    let name_of = |kind: &str, event: &str| match () {
        () if case.is_agreement(node, kind, event) => AGREEMENT,
        () if case.is_for_nodes(node, kind, event) => FOR_NODES,
        () => part_of(kind, event),
    };
    let (parts, waited) = parts(name_of, waits, windows, samples, active, scheduler);
    if waited >= active * WOKEN_NOTED {
        notes.push(format!(
            "{waited:.2} sessions of \"{FOR_CPU}\" are processes that ended between two looks (parallel workers): they are taken to wait as long as the others"
        ));
    }
    let woken: f64 = parts.iter().filter_map(|part| part.woken).sum();
    if woken >= active * WOKEN_NOTED {
        notes.push(format!(
            "{woken:.2} sessions of the waits had got what they waited for and had no CPU yet: on free CPUs these waits would be shorter"
        ));
    }
    notes.extend(unseen(case, node, &parts, scheduler.is_some()));
    notes.push(format!("waits are divided in proportion to {samples:.0} samples of the sessions"));
    Some(NodeTime {
        node: node.to_string(),
        seconds: seconds(server, windows),
        samples: samples as u64,
        active,
        by: dimensions::all(case, node, windows, active, samples, &parts),
        is_counted: is_counted || scheduler.is_some(),
        idle_in_transaction: counted("idle_in_transaction_ms")
            .unwrap_or(0.0)
            .max(sampled(Who::IdleInTransaction)),
        parts,
        statements: statements(case, node, windows, waits, active),
        notes,
    })
}

/// How the whole was counted, where that is not plain: sessions of statements that began before, and what the server counts if that is not believed.
fn of_the_whole(begun: f64, disbelieved: Option<f64>) -> Vec<String> {
    let mut notes = vec![];
    if begun > 0.0 {
        notes.push(
            "a statement that began before this time ended in it: only what lies in it counts".to_string(),
        );
    }
    if let Some(sessions) = disbelieved {
        notes.push(format!(
            "the server has counted {sessions:.2} active sessions so far: a statement is counted when it ends, so the samples are used instead"
        ));
    }
    notes
}

/// What could not be seen of a node's sessions.
fn unseen(case: &Case, node: &str, parts: &[NodePart], is_scheduled: bool) -> Vec<String> {
    let mut notes = vec![];
    if !is_scheduled && parts.iter().any(|part| part.name == CPU) {
        notes.push(
            "the server's processes cannot be read from here, so CPU time and waiting for a CPU are one part"
                .to_string(),
        );
    }
    if case.gaps.iter().any(|gap| gap.node == node && HIDING_SESSIONS.contains(&gap.what.as_str())) {
        notes.push(
            "the monitoring role cannot see what sessions of other roles do (grant it pg_monitor): their waits are in the rest"
                .to_string(),
        );
    }
    notes
}

/// Seconds of executions that ended in these windows and lie before them.
fn begun_before(case: &Case, node: &str, windows: &[Window]) -> f64 {
    case.at("statement", node).map(|thing| before::of(thing.lines, windows)).sum::<f64>() / 1e3
}

/// The time that the readings of a node cover.
fn seconds(server: &Lines, windows: &[Window]) -> f64 {
    let points = server.ticks.within(windows);
    points.points().iter().map(|point| point.interval_us as f64).sum::<f64>() / 1e6
}

/// Milliseconds that sessions spent in a state, as average sessions.
fn sessions_of(server: &Lines, field: &str, windows: &[Window]) -> Option<f64> {
    let series = server.series(field)?.within(windows);
    let covered_ms: f64 = series.points().iter().map(|point| point.interval_us as f64 / 1e3).sum();
    (covered_ms > 0.0).then(|| series.sum() / covered_ms)
}

/// What the scheduler counted for the sessions of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Scheduled {
    /// Average sessions on a CPU.
    run: f64,
    /// Average sessions that wanted one.
    wait: f64,
    /// Average sessions on a CPU that ended before the next look. It may hold background processes.
    ended: f64,
    /// How often a second they were put on a CPU; absent in old recordings.
    turns_per_s: Option<f64>,
}

impl Scheduled {
    /// Average sessions of processes that ended before the next look and waited for a CPU: no count of theirs is left, so they are taken to have waited as long
    /// for each second on a CPU as the others. `computing` is what samples show without a wait and nothing else explains.
    fn ended_waited(self, computing: f64) -> f64 {
        let by_others = if self.run > 0.0 { self.ended * self.wait / self.run } else { 0.0 };
        by_others.min(computing).max(0.0)
    }

    /// Average sessions whose process had a statement to read and no CPU. `active` is what the server counts, `computing` what samples show without a wait.
    /// Each statement is one turn on a CPU, and turns wait equally long.
    fn unread(self, active: f64, computing: f64, statements_per_s: Option<f64>) -> f64 {
        let least = (self.run + self.wait - active).max(0.0);
        let most = (self.wait - (computing - self.run).max(0.0)).max(least);
        let turns = self.turns_per_s.filter(|turns| *turns > 0.0);
        let by_turns =
            statements_per_s.zip(turns).map(|(statements, turns)| self.wait * (statements / turns).min(1.0));
        by_turns.unwrap_or(least).clamp(least, most)
    }
}

/// Statements that a node's sessions ran a second, else its transactions, of which there are fewer.
fn statements_per_s(case: &Case, node: &str, server: &Lines, windows: &[Window]) -> Option<f64> {
    let covered_s = polled_s(case, node, windows);
    let calls: f64 = case
        .at("statement", node)
        .filter_map(|thing| Some(thing.lines.series("calls")?.within(windows).sum()))
        .sum();
    if calls > 0.0 && covered_s > 0.0 {
        return Some(calls / covered_s);
    }
    server.series("xact_commit").map(|series| series.within(windows).rate())
}

/// What the scheduler counted for the node's sessions.
fn scheduled(case: &Case, node: &str, windows: &[Window]) -> Option<Scheduled> {
    let lines = case.at("schedule", node).find(|thing| thing.name == "backends")?.lines;
    let inside = |field: &str| Some(lines.series(field)?.within(windows)).filter(|series| !series.is_empty());
    // The processes that were read represent the others.
    let all = inside("tasks")?.sum() / inside("looked")?.sum().max(1.0);
    let rate = |field: &str| Some(inside(field)?.rate() * all);
    let ended = inside("ended_us").map_or(0.0, |series| series.rate() / 1e6);
    Some(Scheduled {
        run: rate("run_us")? / 1e6,
        wait: rate("wait_us")? / 1e6,
        ended,
        turns_per_s: rate("turns"),
    })
}

/// The parts, the largest first, and the rest; and what of *waiting for a CPU* is taken from others, in average sessions.
fn parts(
    name_of: impl Fn(&str, &str) -> &'static str,
    waits: &Waits,
    windows: &[Window],
    samples: f64,
    active: f64,
    scheduler: Option<Scheduled>,
) -> (Vec<NodePart>, f64) {
    let mut sampled: BTreeMap<&str, (f64, Events)> = BTreeMap::new();
    let mut computing = 0.0;
    for (event, series) in waits.of(Who::Client) {
        let sessions = series.within(windows).sum() / samples;
        let name = name_of(&event.0, &event.1);
        if sessions <= 0.0 || name == CPU && scheduler.is_some() {
            computing += sessions;
            continue;
        }
        let part = sampled.entry(name).or_default();
        part.0 += sessions;
        if event.0 != WAIT_CPU {
            part.1.push((waits::name(event), sessions));
        }
    }
    let Scheduled { run, wait, ended, .. } = scheduler.unwrap_or_default();
    let left = (active - run - wait).max(0.0);
    let all: f64 = sampled.values().map(|(sessions, _)| sessions).sum();
    // What samples show beyond what counters leave are sessions that had been woken and waited for a CPU.
    let woken = (all - left).clamp(0.0, wait.max(0.0));
    let scale = if all > left + woken { (left + woken) / all } else { 1.0 };
    let woken_of = |sessions: f64| (woken > 0.0).then(|| woken * sessions / all);
    let share = |sessions: f64| if active > 0.0 { sessions / active } else { 0.0 };
    let part = |name: &str, sessions: f64, is_counted: bool, events: Events| NodePart {
        name: name.to_string(),
        sessions,
        share: share(sessions),
        is_counted,
        woken: None,
        events,
    };
    let mut parts: Vec<NodePart> = sampled
        .into_iter()
        .map(|(name, (sessions, mut events))| {
            events.sort_by(|left, right| right.1.total_cmp(&left.1));
            events.truncate(if ["locks", "lightweight locks"].contains(&name) {
                LOCKS_MAX
            } else {
                EVENTS_MAX
            });
            events.iter_mut().for_each(|(_, sessions)| *sessions = share(*sessions * scale));
            NodePart { woken: woken_of(sessions), ..part(name, sessions * scale, false, events) }
        })
        .collect();
    let mut waited = 0.0;
    if let Some(scheduled) = scheduler {
        // Processes that ended computed for a part of what nothing else explains, and background processes for the rest of it.
        let explained = wait - woken + run + parts.iter().map(|part| part.sessions).sum::<f64>();
        let rest = (active - explained).max(0.0);
        let on_cpu = run + ended.min(rest);
        waited = scheduled.ended_waited(computing - on_cpu - (wait - woken)).min(rest - ended.min(rest));
        parts.push(part(FOR_CPU, wait - woken + waited, true, vec![]));
        parts.push(part(ON_CPU, on_cpu, true, vec![]));
    }
    parts.sort_by(|left, right| right.sessions.total_cmp(&left.sessions));
    let explained: f64 = parts.iter().map(|part| part.sessions).sum();
    parts.push(part(UNACCOUNTED, (active - explained).max(0.0), false, vec![]));
    (parts, waited)
}

/// The statements that took the most of the time: as pg_stat_statements counted them, else as the samples show them.
fn statements(case: &Case, node: &str, windows: &[Window], waits: &Waits, active: f64) -> Vec<StatementTime> {
    let covered_s = polled_s(case, node, windows);
    let samples = case.looks(node, &[Window::new(0, u64::MAX)]).max(1.0);
    let in_time = |thing: Thing<'_>| {
        let mut found = counted(thing.lines, windows, covered_s)?;
        let before_s = before::of(thing.lines, windows) / 1e3;
        if before_s > 0.0 {
            // What remains is at most the time since the beginning; samples of its sessions show how much of it. They have no statement inside of another.
            let (most, seen) = (found.sessions - before_s / covered_s, waits.sessions_with(&found.query_id));
            found.sessions = if seen > 0.0 { most.min((seen + 1.0) / samples) } else { most };
        }
        Some(found)
    };
    let mut all: Vec<StatementTime> = case.at("statement", node).filter_map(in_time).collect();
    // A statement is counted when it ends, so one that runs for longer than the recording is only in the samples.
    let least = if all.is_empty() { 0.0 } else { samples * UNENDED_LOOKS_MIN };
    let ids: BTreeSet<String> = all.iter().map(|one| one.query_id.clone()).collect();
    let is_uncounted = |(query_id, sessions): &(&str, f64)| !ids.contains(*query_id) && *sessions >= least;
    all.extend(waits.statements().filter(is_uncounted).map(|(query_id, sessions)| StatementTime {
        query_id: query_id.to_string(),
        sessions: sessions / samples,
        ..StatementTime::default()
    }));
    for statement in &mut all {
        // The extension counts the time of the session alone; its parallel workers are part of the node's time, too.
        let workers = if statement.is_counted { waits.with_workers(&statement.query_id) } else { 1.0 };
        statement.sessions *= workers;
        statement.text = text_of(case, node, &statement.query_id);
        let is_its = |plan: &Thing<'_>| plan.lines.word("query_id") == statement.query_id;
        let inner = case.at("plan", node).filter(is_its).map(|plan| plan.lines.word("inner"));
        if let Some(inner) = inner.filter(|inner| !inner.is_empty()).last() {
            statement.outer = std::mem::replace(&mut statement.text, inner.to_string());
        }
    }
    let mut all = same_text::merged(all);
    same_text::with_rest(&mut all, rest(case, node, windows, covered_s));
    for (statement, _) in &mut all {
        statement.share = if active > 0.0 { (statement.sessions / active).min(1.0) } else { 0.0 };
    }
    let work = all.iter().filter(|(one, _)| !statement::is_frame(&one.text));
    let calls: f64 = work.filter_map(|(one, _)| one.calls_per_s).sum();
    let is_frequent = |one: &StatementTime| {
        one.calls_per_s.is_some_and(|own| own >= CALLS_PER_S_MIN && own >= calls * OF_CALLS_MIN)
    };
    all.retain(|(statement, _)| statement.share >= STATEMENT_SHARE_MIN || is_frequent(statement));
    all.sort_by(|left, right| right.0.sessions.total_cmp(&left.0.sessions));
    let mut listed = 0;
    all.retain(|(statement, _)| {
        listed += 1;
        listed <= STATEMENTS_MAX || is_frequent(statement)
    });
    let with_events = |(statement, ids): (StatementTime, Vec<String>)| StatementTime {
        events: waits.events_of(&ids, EVENTS_MAX),
        functions: case
            .stacks
            .as_ref()
            .map_or(vec![], |stacks| stacks.functions_of(node, &ids, FUNCTION_SHARE_MIN, FUNCTIONS_MAX)),
        ..statement
    };
    all.into_iter().map(with_events).collect()
}

/// What the server counted for the statements without a line.
fn rest(case: &Case, node: &str, windows: &[Window], covered_s: f64) -> same_text::Rest {
    let Some(lines) = case.one("statement_rest", node) else { return same_text::Rest::default() };
    let inside = |field: &str| lines.series(field).map(|series| series.within(windows));
    let total_ms = inside("total_ms").map_or(0.0, |series| series.sum());
    same_text::Rest {
        entries: lines.max("entries").unwrap_or(0.0),
        sessions: total_ms / 1e3 / covered_s.max(f64::MIN_POSITIVE),
    }
}

/// Sessions seen in a statement that was not counted, for each look.
const UNENDED_LOOKS_MIN: f64 = 0.5;

/// The text of a statement: as pg_stat_statements has it, else as a session was seen with it, without its constants.
fn text_of(case: &Case, node: &str, query_id: &str) -> String {
    case.query(query_id).map(str::to_string).unwrap_or_else(|| {
        let mut sessions =
            case.at("session", node).filter(|session| session.lines.word("query_id") == query_id);
        sessions.next().map_or(String::new(), |session| statement::mask(session.lines.word("query")))
    })
}

/// The time over which the statements of a node were counted. A statement has a line only where it ran, so the polls of all of them count.
pub(crate) fn polled_s(case: &Case, node: &str, windows: &[Window]) -> f64 {
    let polls: Vec<Window> = case
        .at("statement", node)
        .filter_map(|thing| Some(thing.lines.series("calls")?.within(windows)))
        .filter(|calls| !calls.is_empty())
        .map(|calls| calls.window())
        .collect();
    let (from_us, to_us) =
        (polls.iter().map(|poll| poll.from_us).min(), polls.iter().map(|poll| poll.to_us).max());
    let between_s = from_us.zip(to_us).map_or(0.0, |(from, to)| to.saturating_sub(from) as f64 / 1e6);
    // Between two steps nothing is looked at.
    let inside_s: f64 = windows.iter().map(|window| window.length_us() as f64 / 1e6).sum();
    between_s.min(inside_s)
}

/// What pg_stat_statements counted for a statement; `None` if nothing.
fn counted(lines: &Lines, windows: &[Window], covered_s: f64) -> Option<StatementTime> {
    let inside = |field: &str| lines.series(field).map(|series| series.within(windows));
    let (count, total_ms) = (inside("calls")?.sum(), inside("total_ms")?.sum());
    if count <= 0.0 || covered_s <= 0.0 {
        return None;
    }
    let each = |field: &str| inside(field).map(|series| series.sum() / count);
    let plan_ms = each("plan_ms").filter(|ms| *ms > 0.0);
    let all_ms = total_ms + plan_ms.unwrap_or(0.0) * count;
    let blocks_read = each("shared_read");
    Some(StatementTime {
        query_id: lines.word("query_id").to_string(),
        database: lines.word("database").to_string(),
        sessions: all_ms / 1e3 / covered_s,
        is_counted: true,
        calls_per_s: Some(count / covered_s),
        mean_ms: Some(total_ms / count),
        plan_ms,
        jit_ms: each("jit_ms").filter(|ms| *ms > 0.0),
        rows: each("rows"),
        blocks: each("shared_hit").map(|hit| hit + blocks_read.unwrap_or(0.0)),
        blocks_read,
        temp_bytes: each("temp_written").map(|blocks| blocks * BLOCK_BYTES),
        wal_bytes: each("wal_bytes"),
        ..StatementTime::default()
    })
}

#[cfg(test)]
mod tests;
