//! OBS: the coverage of the monitoring, and its cost.

use super::costly::plain;
mod silent;

use crate::case::absence::{Absence, CLOCK_US};
use crate::case::{Case, Lines, Thing};
use crate::rule::Need::{Any, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::statistics;
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity, Window};
use record::watched::Watching;
use record::watched::cost::{COST_SHARE_MAX, Cost};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "OBS-01",
        title: "monitoring had gaps",
        needs: &[Any(&[Field("server", "*"), Field("host", "*")])],
        limits: "coverage below 95 %, any reset or restart; medium if a server was away for 3 s, high from 10 s on (ours)",
        judge: blind,
        links: &["docs/watch.md"],
    },
    Rule {
        id: "OBS-02",
        title: "monitoring itself takes noticeable CPU",
        needs: &[Field("watching", "cpu_us")],
        limits: "1 % of the CPUs of the recording host, over 60 s (ours)",
        judge: costly,
        links: &["docs/watch.md"],
    },
];

/// A shorter recording is not judged: its first sample is expensive and weighs too much.
const COST_SECONDS_MIN: f64 = 60.0;

/// Ticks seen of ticks due.
const COVERAGE: f64 = 0.95;
/// The field with the time that the server took to answer.
const ANSWER_TIME: &str = "asked_us";
/// An answer that took this share of the gap is its cause.
const ANSWER_OF_GAP_MIN: f64 = 0.5;
/// A server that has been away for a shorter time may be on its way back.
const GONE_US_MIN: u64 = 2_000_000;
/// A server that was away for so long, and came back, is missed by its users.
const AWAY_US_MIN: u64 = 3_000_000;
/// And for so long, by all of them.
const AWAY_US_HIGH: u64 = 10_000_000;
/// The first sample of counters comes so soon after a server is back.
const FIRST_SAMPLE_US: u64 = 5_000_000;
/// Characters of a message of the log in a claim.
const CHARS: usize = 140;
/// Ticks that must have been due.
const TICKS_MIN: f64 = 10.0;

/// The number of a finding about a server that answered late on a host without a CPU to spare.
pub(crate) const CPUS_FULL: &str = "cpus_in_use";
/// The share of the CPUs in use from which on nothing else need have stopped a server ...
const FULL_MIN: f64 = 0.85;
/// ... that answers within this time.
const ANSWER_FULL_US_MIN: f64 = 5e6;

/// The share of the CPUs of a node's host that are in use, if it is nearly all of them.
fn cpus_full(case: &Case, node: &str) -> Option<f64> {
    in_use(case.one("host", case.host_of(node)?)?)
}

/// The share of the CPUs of a host that are in use, if it is nearly all of them.
fn in_use(host: &Lines) -> Option<f64> {
    let fields = ["cpu_user_pct", "cpu_system_pct", "cpu_softirq_pct", "cpu_steal_pct"];
    let used = fields.iter().filter_map(|field| host.mean(field)).sum::<f64>() / 100.0;
    (used >= FULL_MIN).then_some(used)
}

fn blind(case: &Case) -> Answer {
    let mut claims = vec![];
    let absences = long_absences(case);
    for (source, thing) in
        ["server", "host"].iter().flat_map(|source| case.things(source).map(move |thing| (*source, thing)))
    {
        let ticks = &thing.lines.ticks;
        let times_us: Vec<u64> = ticks.points().iter().map(|point| point.to_us).collect();
        let usual =
            statistics::median(times_us.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64));
        let Some(usual) = usual.filter(|usual| *usual > 0.0) else { continue };
        let Coverage { due, seen } = coverage(case, &thing, usual);
        if due < TICKS_MIN || seen >= COVERAGE {
            continue;
        }
        let away: Vec<&Absence<'_>> =
            absences.iter().filter(|away| source == "server" && away.node == thing.place).collect();
        let holes = holes(&times_us, usual, &away);
        // That it was away is a claim of its own.
        if holes.is_empty() && !away.is_empty() {
            continue;
        }
        let longest = holes.iter().map(|hole| hole.length_us()).max().unwrap_or(0);
        let gap = case.events_of(event::GAP).find(|event| {
            let is_here = ["node", "host"].iter().any(|field| Case::word_of(event, field) == thing.place);
            // That of a part is no gap of the node itself.
            is_here && Case::word_of(event, "part").is_empty()
        });
        // Our question waited for its answer: then not the monitoring was late.
        let answer_us = thing.lines.max(ANSWER_TIME).unwrap_or(0.0);
        let is_server = source == "server" && longest > 0 && answer_us >= longest as f64 * ANSWER_OF_GAP_MIN;
        let late = is_server.then_some(answer_us);
        let claim = of_holes(case, thing.place, (seen, longest as f64), late)
            .during(holes)
            .with(gap, |claim, event| claim.because(event.message.clone()));
        claims.push(if source == "server" { claim.on_node(thing.place) } else { claim.on_host(thing.place) });
    }
    claims.extend(absences.iter().filter(|away| away.is_over).map(was_away));
    claims.extend(interrupted(case, &absences));
    claims.extend(never_reached(case).into_iter().chain(silent::all(case)));
    Answer::of(claims, || "samples taken of samples due, resets, restarts".to_string())
}

/// Samples that are missing: the share that was taken, and the longest hole. `late_us`: the server answered so late that this is the reason.
fn of_holes(case: &Case, place: &str, (seen, longest_us): (f64, f64), late_us: Option<f64>) -> Claim {
    let full = late_us.and_then(|_| cpus_full(case, place));
    let is_felt = late_us.is_some_and(|answer_us| full.is_none() || answer_us >= ANSWER_FULL_US_MIN);
    let text = match late_us {
        Some(answer_us) => format!(
            "{place}: the server did not answer for {}; {} of the samples were taken",
            units::us(answer_us),
            units::percent(seen)
        ),
        // Samples that are late by less than a gap takes: each of them is, and none is long.
        None if longest_us <= 0.0 => {
            format!("{place}: {} of the samples were taken, the others came too late", units::percent(seen))
        }
        None => format!(
            "{place}: {} of the samples were taken; the longest gap is {}",
            units::percent(seen),
            units::us(longest_us)
        ),
    };
    let remedy = match (late_us, full) {
        (Some(_), Some(_)) => {
            "look for what uses the CPUs first (SES-02, SES-03); where that explains it, nothing stopped the server"
        }
        (Some(_), None) => {
            "find out what stopped it at that moment: its log, the kernel's log, a stopped or frozen virtual machine, storage that did not answer"
        }
        _ => "run the monitoring on another host or with a higher priority; sample less often",
    };
    let severity = if seen < 0.5 || is_felt { Severity::Medium } else { Severity::Low };
    Claim::new(severity, Level::DiscriminatingCounter, text)
        .number("coverage", seen)
        .number("longest_hole_us", longest_us)
        .with(full, |claim, share| {
            let words = format!(
                "the CPUs of its host are {} in use: a process that has to answer waits for one",
                units::percent(share)
            );
            claim.number(CPUS_FULL, share).because(words)
        })
        .because("what happened in the gaps is unknown: gaps are more likely when the host is overloaded")
        .remedy(remedy, &[])
}

/// Times without a sample in which the server was not away.
fn holes(times_us: &[u64], usual: f64, away: &[&Absence<'_>]) -> Vec<Window> {
    let gaps = times_us.windows(2).filter(|pair| pair[1].saturating_sub(pair[0]) as f64 > usual * 1.5);
    gaps.map(|pair| Window::new(pair[0], pair[1]))
        .filter(|hole| !away.iter().any(|away| hole.overlap_us(away.window) > 0))
        .collect()
}

/// Samples that were due, and the share of them that was taken.
struct Coverage {
    due: f64,
    seen: f64,
}

/// From the start to the end of the monitoring at the configured interval; recordings that lack it are judged by their usual interval, from the first
/// to the last sample.
fn coverage(case: &Case, thing: &Thing<'_>, usual: f64) -> Coverage {
    let ticks = &thing.lines.ticks;
    let configured = case.at("watching", thing.place).find_map(|part| {
        let cadence = part.lines.series("cadence_us")?;
        Some(
            cadence
                .points()
                .iter()
                .map(|point| point.interval_us as f64 / point.mean().max(1.0))
                .sum::<f64>(),
        )
    });
    let taken = ticks.readings() as f64;
    let due = configured.unwrap_or_else(|| {
        // Points of a long recording stand for several samples.
        let per_point = taken / ticks.points().len().max(1) as f64;
        (ticks.window().length_us() as f64 / usual) * per_point
    });
    Coverage { due: due.max(taken), seen: taken / due.max(taken).max(1.0) }
}

/// Absences that users notice. Proofs make servers go away on purpose.
fn long_absences(case: &Case) -> Vec<Absence<'_>> {
    if case.run.steps.iter().any(|step| step.verb == "prove") {
        return vec![];
    }
    let mut all = case.absences();
    all.retain(|away| away.away_us >= AWAY_US_MIN);
    all
}

/// A server that was away for a time and came back.
fn was_away(away: &Absence<'_>) -> Claim {
    let length = units::us(away.away_us as f64);
    let why = away.why.map(|why| format!(": {}", plain(why, CHARS))).unwrap_or_default();
    let severity = if away.away_us >= AWAY_US_HIGH { Severity::High } else { Severity::Medium };
    Claim::new(
        severity,
        Level::DiscriminatingCounter,
        format!("{}: the server was away for {length}{why}", away.node),
    )
    .on_node(away.node)
    .during([away.window])
    .number("gone_us", away.away_us as f64)
    .because(if away.is_restart {
        "it was started again meanwhile: its sessions ended, and its counters and caches began anew"
    } else {
        "it was not started meanwhile: only connections ended or were refused, as after the crash of one process, or while it is no part of its cluster"
    })
    .remedy(
        "find who or what stopped it: its log before that moment, the service manager, the kernel's log (OOM killer)",
        &["$ journalctl -k --since '-1 hour' | grep -i -E 'oom|killed process'"],
    )
}

/// Servers that went away, restarts, and counters that were reset; without those in `covered`.
fn interrupted(case: &Case, covered: &[Absence<'_>]) -> Vec<Claim> {
    let is_covered = |event: &&Event| covered.iter().any(|away| away.is_over && away.has(event));
    let restarts: Vec<&Event> = case.events_of(event::RESTART).filter(|event| !is_covered(event)).collect();
    // Older directories do not distinguish the two.
    let started: Vec<&Event> =
        restarts.iter().filter(|event| Case::word_of(event, "what") != event::AWAY).copied().collect();
    let away: Vec<&Event> =
        restarts.iter().filter(|event| Case::word_of(event, "what") == event::AWAY).copied().collect();
    let (gone, back): (Vec<&Event>, Vec<&Event>) = away
        .iter()
        .filter(|event| !is_of_a_start(event, &away, &started))
        .partition(|event| !is_back(case, event));
    let reset = resets(case);
    let void = "counters are differences between samples; differences across this moment are invalid";
    let crash = "the server did not start again: only the connection was ended, or one process crashed, which ends all sessions (look at the server's log)";
    let mut claims: Vec<Claim> = gone.into_iter().filter_map(|event| gone_for_good(case, event)).collect();
    claims.extend(times("counters were reset", &reset, void));
    claims.extend(times("the server was restarted", &started, void));
    claims.extend(times("the server became unreachable and came back", &back, crash));
    claims
}

/// Counters that were reset by command. Others began anew because the server did, or because the crash of one process threw them away
/// (`pgstat_discard_stats` in pgstat.c): that is part of what is reported about it.
pub(super) fn resets(case: &Case) -> Vec<&Event> {
    let away = case.absences();
    let comes_with = |reset: &Event| {
        let node = Case::word_of(reset, "node");
        let is_soon = |t_us: u64| (t_us..=t_us + FIRST_SAMPLE_US).contains(&reset.t_us);
        let is_back = |one: &Absence<'_>| one.window.holds(reset.t_us) || is_soon(one.window.to_us);
        away.iter().any(|one| one.node == node && is_back(one))
            || case
                .events_of(event::RESTART)
                .any(|one| Case::word_of(one, "node") == node && is_soon(one.t_us))
    };
    case.events_of(event::RESET).filter(|reset| !comes_with(reset)).collect()
}

/// Whether a server went away because it was restarted: that it went away and that it was started are two events then.
fn is_of_a_start(event: &Event, away: &[&Event], started: &[&Event]) -> bool {
    let node = Case::word_of(event, "node");
    let next_us = away
        .iter()
        .filter(|other| Case::word_of(other, "node") == node && other.t_us > event.t_us)
        .map(|other| other.t_us)
        .min();
    started.iter().any(|start| {
        let is_after = start.t_us + CLOCK_US >= event.t_us;
        Case::word_of(start, "node") == node && is_after && next_us.is_none_or(|next| start.t_us < next)
    })
}

/// Events of one kind as one claim; `None` without any.
fn times(what: &str, events: &[&Event], because: &str) -> Option<Claim> {
    let first = events.first()?;
    Some(
        Claim::new(
            Severity::Low,
            Level::DiscriminatingCounter,
            format!("{what} {}: {}", units::counted(events.len(), "time"), first.message),
        )
        .on_node(Case::word_of(first, "node"))
        .during(
            events.iter().map(|event| Window::new(event.t_us, event.t_us + event.duration_us.unwrap_or(0))),
        )
        .number("times", events.len() as f64)
        .because(because),
    )
}

/// Whether a server was sampled again after it went away.
fn is_back(case: &Case, away: &Event) -> bool {
    let server = case.one("server", Case::word_of(away, "node"));
    server.is_some_and(|server| server.ticks.points().last().is_some_and(|point| point.to_us > away.t_us))
}

/// A server that was not seen again. Proofs do that on purpose, and one that has just gone may be on its way back.
fn gone_for_good(case: &Case, away: &Event) -> Option<Claim> {
    let silent_us = case.span.to_us.saturating_sub(away.t_us);
    if silent_us < GONE_US_MIN || case.run.steps.iter().any(|step| step.verb == "prove") {
        return None;
    }
    let node = Case::word_of(away, "node");
    Some(
        Claim::new(
            Severity::High,
            Level::DiscriminatingCounter,
            format!("{node}: the server was unreachable for the last {}", units::us(silent_us as f64)),
        )
        .on_node(node)
        .during([Window::new(away.t_us, case.span.to_us)])
        .number("gone_us", silent_us as f64)
        .because(away.message.clone())
        .remedy(
            "look at the end of its log, and at the kernel's log for the OOM killer; counts per second include this time",
            &[],
        ),
    )
}

/// In the reason for leaving out a node on purpose.
const LEFT_OUT: &str = "is not used as a node";

/// Nodes of the cluster that were down or refused us from the start to the end.
fn never_reached(case: &Case) -> Vec<Claim> {
    let gaps =
        case.gaps.iter().filter(|gap| gap.what == "server" && !gap.node.is_empty() && !gap.why.is_empty());
    let never = gaps.filter(|gap| case.one("server", &gap.node).is_none());
    let mut claims: Vec<Claim> = vec![];
    for gap in never {
        let node = &gap.node;
        let is_its = |standby: &Thing<'_>| standby.name == node && standby.lines.word("state") == "streaming";
        // Found in the catalog of another node: that it is not watched is no sign of anything.
        let primary = case.things("replication").find(is_its);
        let (severity, text, because) = match primary {
            Some(primary) => (
                Severity::Low,
                format!(
                    "{node}: the standby streams from {}, and was not watched: {}",
                    primary.place, gap.why
                ),
                "its views, its log and its host are unknown; its primary knows how far it is behind",
            ),
            None if gap.why.contains(LEFT_OUT) => {
                (Severity::Low, format!("{node}: {}", gap.why), "no query was sent there")
            }
            None => (
                Severity::High,
                format!("{node}: the server was not reached at all: {}", gap.why),
                "nothing is known of it, and what other nodes need from it fails or waits",
            ),
        };
        claims.push(
            Claim::new(severity, Level::DiscriminatingCounter, text)
                .on_node(node)
                .during([case.span])
                .because(because)
                .remedy("see whether it runs, and whether this host and role may connect to it", &[]),
        );
    }
    claims
}

fn costly(case: &Case) -> Answer {
    let mut cost = Cost::default();
    let mut parts: Vec<(String, f64)> = vec![];
    for thing in case.things("watching") {
        let sum = |field: &str| thing.lines.series(field).map(|series| series.sum() as u64);
        let interval_us = thing.lines.series("cpu_us").map_or(0, |series| {
            series.points().iter().map(|point| point.interval_us).fold(0, u64::saturating_add)
        });
        let line = Watching {
            node: thing.lines.word("node").to_string(),
            host: thing.lines.word("host").to_string(),
            part: thing.name.to_string(),
            cpu_us: sum("cpu_us"),
            server_cpu_us: sum("server_cpu_us"),
            programs_cpu_us: sum("programs_cpu_us"),
            asked_us: sum(ANSWER_TIME),
            questions: sum("questions"),
            cores: thing.lines.max("cores").map(|cores| cores as u64),
            ..Watching::default()
        };
        cost.add(interval_us, &line);
        let cpu_us = [line.cpu_us, line.server_cpu_us, line.programs_cpu_us]
            .into_iter()
            .flatten()
            .fold(0, u64::saturating_add);
        parts.push((format!("{} of {}", thing.name, thing.place), cpu_us as f64));
    }
    let (Some(share), Some(words)) = (cost.share(), cost.words()) else {
        return Answer::CannotTell(
            "the number of processors of the recording host was not recorded".to_string(),
        );
    };
    let seconds = cost.watched_us() as f64 / 1e6;
    if share <= COST_SHARE_MAX || seconds < COST_SECONDS_MIN {
        return Answer::Clean(words);
    }
    parts.sort_by(|left, right| right.1.total_cmp(&left.1));
    let dearest = parts.first().map_or("", |(name, _)| name.as_str());
    Answer::Found(vec![
        Claim::new(
            Severity::Note,
            Level::DiscriminatingCounter,
            format!("monitoring took {} of the CPU of the recording host", units::percent(share)),
        )
        .during([case.span])
        .number("share", share)
        .number("cpu_us", cost.cpu_us() as f64)
        .because(words)
        .because(format!("the most expensive part is {dearest}"))
        .remedy(
            "if every percent counts, sample less often or without stacks, and compare with an unmonitored run",
            &["$ pgfathom watch --interval 5 --perf off ...", "$ pgfathom run --watch off ..."],
        ),
    ])
}
