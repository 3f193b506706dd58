//! Events over time, in lanes: findings, checkpoints, vacuums, index builds, restarts, faults, locks, errors, missed ticks.

use super::Scene;
use crate::chart::{Chart, ChartKind, Item, Lanes, Unit, tidy};
use record::event::{self, Event};
use record::finding::Findings;
use record::number;
use record::watched::{Progress, Sampled};
use std::collections::{BTreeMap, BTreeSet};

/// The most items of a lane; with more, the longest are drawn. All are in `events.ndjson`.
const ITEMS_MAX: usize = 150;
/// Characters of a text.
const TEXT_MAX: usize = 140;
/// Ticks for which a command may be missing and still count as the same.
const TICKS_UNSEEN_MAX: u64 = 3;

/// The lanes from the top: the name on the axis, and the name of an item.
const LANES: [(&str, &str); 9] = [
    ("findings", "finding"),
    ("checkpt", "checkpoint"),
    ("vacuum", "vacuum"),
    ("build", "build or copy"),
    ("restart", "restart or outage"),
    ("faults", "fault"),
    ("locks", "lock wait or deadlock"),
    ("errors", "error"),
    ("gaps", "gap"),
];
const FINDINGS: usize = 0;
const CHECKPOINTS: usize = 1;
const VACUUMS: usize = 2;
const BUILDS: usize = 3;
const RESTARTS: usize = 4;
const FAULTS: usize = 5;
const LOCKS: usize = 6;
const ERRORS: usize = 7;
const GAPS: usize = 8;

/// An item of a lane, before its position is known.
struct Thing {
    lane: usize,
    from_us: u64,
    to_us: u64,
    text: String,
    bad: bool,
}

/// The lane of an event; `None` for those that are shown elsewhere.
fn lane_of(kind: &str) -> Option<usize> {
    match kind {
        event::CHECKPOINT => Some(CHECKPOINTS),
        event::AUTOVACUUM => Some(VACUUMS),
        event::RESTART | event::OUTAGE | event::RECONNECT => Some(RESTARTS),
        event::LOCK_WAIT | event::DEADLOCK => Some(LOCKS),
        event::ERROR | event::SERVER_LOG | event::KERNEL => Some(ERRORS),
        event::GAP | event::RESET => Some(GAPS),
        event::FAULT => Some(FAULTS),
        _ => None,
    }
}

/// Kinds of events that are marked on every chart of the step. Frequent ones are only in the lanes.
pub(crate) fn is_marked(kind: &str) -> bool {
    !matches!(
        kind,
        event::PHASE
            | event::OUTAGE
            | event::QUERY
            | event::STACKS
            | event::TEMP_FILE
            | event::LOCK_WAIT
            | event::AUTOVACUUM
            | event::SERVER_LOG
            | event::KERNEL
            | event::GAP
            | event::RESET
            | event::SETTINGS_CHANGED
    )
}

/// The chart; `None` if nothing happened.
pub(super) fn chart(scene: &Scene, findings: Option<&Findings>) -> Option<Chart> {
    let mut things = happened(scene);
    things.extend(commands(scene, &things));
    things.extend(claimed(scene, findings));
    things.retain(|thing| thing.to_us >= scene.columns.origin_us && thing.from_us <= scene.step.end_us);
    let mut counts = [0u64; LANES.len()];
    things.iter().for_each(|thing| counts[thing.lane] += 1);
    for lane in 0..LANES.len() {
        thin(&mut things, lane);
    }
    if things.is_empty() {
        return None;
    }
    things.sort_by_key(|thing| (thing.from_us, thing.lane));
    let used: Vec<usize> = (0..LANES.len()).filter(|lane| counts[*lane] > 0).collect();
    let mut chart = scene.chart("lanes", "Events", ChartKind::Lanes, Unit::Count);
    let seconds =
        |t_us: u64| tidy(t_us.saturating_sub(scene.columns.origin_us) as f64 / 1e6).min(chart.x_max);
    let items = things
        .iter()
        .map(|thing| Item {
            lane: used.iter().position(|lane| *lane == thing.lane).unwrap_or(0),
            to: seconds(thing.to_us),
            text: thing.text.clone(),
            bad: thing.bad,
        })
        .collect();
    let x = things.iter().map(|thing| seconds(thing.from_us)).collect();
    chart.lanes = Some(Lanes { names: used.iter().map(|lane| LANES[*lane].0).collect(), items });
    chart.x = x;
    let detail: Vec<String> = used.iter().map(|lane| plural(counts[*lane], LANES[*lane].1)).collect();
    chart.sentence = format!("{}.", detail.join(", "));
    if used.iter().any(|lane| counts[*lane] > ITEMS_MAX as u64) {
        chart.sentence += &format!(" Of each kind the {ITEMS_MAX} longest are drawn.");
    }
    Some(chart)
}

/// `2 lock waits or deadlocks`.
fn plural(count: u64, what: &str) -> String {
    match (count, what.split_once(" or ")) {
        (1, _) => number::counted(1, what),
        (_, Some((one, other))) => format!(
            "{} {one}s or {}",
            number::count(count),
            match other {
                "copy" => "copies".to_string(),
                other => format!("{other}s"),
            }
        ),
        (_, None) => number::counted(count, what),
    }
}

fn thin(things: &mut Vec<Thing>, lane: usize) {
    let length = |thing: &Thing| thing.to_us.saturating_sub(thing.from_us);
    let mut lengths: Vec<u64> = things.iter().filter(|thing| thing.lane == lane).map(length).collect();
    if lengths.len() <= ITEMS_MAX {
        return;
    }
    lengths.sort_unstable_by(|left, right| right.cmp(left));
    let least = lengths[ITEMS_MAX - 1];
    let mut room = ITEMS_MAX;
    things.retain(|thing| {
        if thing.lane != lane {
            return true;
        }
        let stays = length(thing) >= least && room > 0;
        room -= usize::from(stays);
        stays
    });
}

fn happened(scene: &Scene) -> Vec<Thing> {
    let mut things: Vec<Thing> = vec![];
    for event in &scene.step.events {
        let Some(lane) = lane_of(&event.kind) else { continue };
        // A wait for a lock is reported when it is over, with its length.
        let waited_us =
            event.more.get("wait_ms").and_then(serde_json::Value::as_f64).map_or(0.0, |ms| ms * 1e3);
        things.push(Thing {
            lane,
            from_us: event.t_us.saturating_sub(waited_us as u64),
            to_us: event.t_us.saturating_add(event.duration_us.unwrap_or(0)),
            text: clipped(&text_of(event)),
            bad: matches!(lane, RESTARTS | FAULTS | ERRORS) || event.kind == event::DEADLOCK,
        });
    }
    // A checkpoint is reported when it begins, with its length when it ends, and by the counters a tick later: it gets one bar.
    let ended: Vec<(u64, u64)> = things
        .iter()
        .filter(|thing| thing.lane == CHECKPOINTS && thing.to_us > thing.from_us)
        .map(|thing| (thing.from_us, thing.to_us))
        .collect();
    let around_us = 2 * scene.period_us;
    let within = |t_us: u64| {
        let holds = |(from, to): &(u64, u64)| {
            from.saturating_sub(around_us) <= t_us && t_us <= to.saturating_add(around_us)
        };
        ended.iter().any(holds)
    };
    things.retain(|thing| thing.lane != CHECKPOINTS || thing.to_us > thing.from_us || !within(thing.from_us));
    things
}

fn text_of(event: &Event) -> String {
    let word =
        |name: &str| event.more.get(name).and_then(serde_json::Value::as_str).filter(|word| !word.is_empty());
    let mut text = match (event.message.as_str(), word("relation")) {
        ("", Some(relation)) => format!("{} {relation}", event.kind),
        ("", None) => event.kind.replace('_', " "),
        (message, _) => message.to_string(),
    };
    if let Some(node) = word("node").or(word("host")).filter(|node| !text.starts_with(node)) {
        text = format!("{node}: {text}");
    }
    text
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

/// Commands that report progress: one bar from the first tick they were seen to the last.
fn commands(scene: &Scene, known: &[Thing]) -> Vec<Thing> {
    let period_us = scene.period_us;
    let nodes: BTreeSet<&str> =
        scene.lines.iter().map(|line| line.what.node()).filter(|node| !node.is_empty()).collect();
    let several = nodes.len() > 1;
    let mut open: BTreeMap<(&str, u64, &str, &str), Thing> = BTreeMap::new();
    let mut done = vec![];
    for line in scene.lines {
        let Sampled::Progress(progress) = &line.what else { continue };
        let lane = match progress.command.as_str() {
            "vacuum" | "analyze" => VACUUMS,
            _ => BUILDS,
        };
        let key =
            (progress.node.as_str(), progress.pid, progress.command.as_str(), progress.relation.as_str());
        let unseen = |thing: &Thing| line.t_us.saturating_sub(thing.to_us) > TICKS_UNSEEN_MAX * period_us;
        if open.get(&key).is_some_and(unseen) {
            done.extend(open.remove(&key));
        }
        let thing = open.entry(key).or_insert_with(|| Thing {
            lane,
            from_us: line.t_us.saturating_sub(period_us),
            to_us: line.t_us,
            text: clipped(&match several {
                true => format!("{}: {}", progress.node, command_text(progress)),
                false => command_text(progress),
            }),
            bad: progress.wraparound == Some(true),
        });
        thing.to_us = line.t_us;
    }
    done.extend(open.into_values());
    // The log reports an automatic vacuum when it ends, in more detail.
    let is_shown = |thing: &Thing| {
        known.iter().any(|other| {
            other.lane == thing.lane
                && other.from_us < thing.to_us
                && thing.from_us < other.to_us
                && relation_of(&thing.text).is_some_and(|relation| other.text.contains(relation))
        })
    };
    done.retain(|thing| !is_shown(thing));
    done
}

fn command_text(progress: &Progress) -> String {
    let kind = match (progress.auto, progress.wraparound) {
        (_, Some(true)) => "vacuum against wraparound".to_string(),
        (Some(true), _) => format!("automatic {}", progress.command),
        _ => progress.command.replace('_', " "),
    };
    format!("{kind} of {}", progress.relation)
}

fn relation_of(text: &str) -> Option<&str> {
    text.rsplit_once(" of ").map(|(_, relation)| relation).filter(|relation| !relation.is_empty())
}

fn claimed(scene: &Scene, findings: Option<&Findings>) -> Vec<Thing> {
    let (start_us, end_us) = (scene.step.step.start_us, scene.step.end_us);
    let all = findings.iter().flat_map(|findings| &findings.findings);
    all.flat_map(|finding| finding.windows.iter().map(move |window| (finding, window)))
        .filter(|(_, window)| window.from_us < end_us && window.to_us > start_us)
        .map(|(finding, window)| Thing {
            lane: FINDINGS,
            from_us: window.from_us.max(start_us),
            to_us: window.to_us.min(end_us),
            text: clipped(&format!("{} {}", finding.id, finding.title)),
            bad: false,
        })
        .collect()
}
