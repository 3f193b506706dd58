//! REP-13: nodes of a cluster that are no part of it for a time, or do not answer other nodes, by the messages of the engine in the server's log.

use std::collections::BTreeMap;

use super::costly::plain;
use crate::case::Case;
use crate::case::absence::Absence;
use crate::rule::Need::Looked;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity, Window};
use record::watched::own;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "REP-13",
    title: "a node of the cluster is no part of it, or does not answer the others",
    needs: &[Looked("server")],
    limits: "10 messages of the engine about it in a server's log, or 2 s of them; low if they have ended 5 s before the end of the recording (ours)",
    judge: away,
    links: &["docs/failover.md"],
}];

/// Messages.
const MESSAGES_MIN: f64 = 10.0;
/// Or this long from the first to the last.
const US_MIN: u64 = 2_000_000;
/// What ended so long before the recording is over.
const OVER_US: u64 = 5_000_000;
/// Messages in a claim: the first, and the last ones.
const WORDS_MAX: usize = 2;
/// A node that went away so long before the first message is the one that is missed.
const LOSS_US: u64 = 10_000_000;
/// Characters of a message in a claim.
const CHARS: usize = 140;

/// Messages of one node's log that differ in nothing but numbers.
struct Message<'a> {
    first: &'a Event,
    window: Window,
    count: f64,
}

/// Whether the engine of the node logs this when another node, or this one, is away.
pub(super) fn is_away(case: &Case, node: &str, message: &str) -> bool {
    case.is_own(node, own::AWAY, message)
}

/// What the engine of a node logged about nodes that are away, in the order of the recording.
fn messages<'a>(case: &'a Case, node: &str) -> Vec<Message<'a>> {
    let mut all: BTreeMap<&str, Message<'_>> = BTreeMap::new();
    for event in case.events_of(event::SERVER_LOG) {
        if Case::word_of(event, "node") != node || !is_away(case, node, &event.message) {
            continue;
        }
        let one = all.entry(event.message.as_str()).or_insert(Message {
            first: event,
            window: Window::new(event.t_us, event.t_us),
            count: 0.0,
        });
        one.count += event.times();
        one.window = Window::new(one.window.from_us.min(event.t_us), one.window.to_us.max(event.t_us));
    }
    let mut all: Vec<Message<'_>> = all.into_values().collect();
    all.sort_by_key(|one| one.window.from_us);
    all
}

/// Which other nodes were away meanwhile, as the begin of a sentence, and why.
fn missed(absences: &[Absence<'_>], here: &str, window: Window) -> String {
    let since = Window::new(window.from_us.saturating_sub(LOSS_US), window.to_us);
    let other = absences.iter().find(|away| away.node != here && away.window.overlap_us(since) > 0);
    other.map_or_else(String::new, |away| {
        let why = away.why.map(|why| format!(" ({})", plain(why, CHARS))).unwrap_or_default();
        format!("{} was away{why}; ", away.node)
    })
}

fn away(case: &Case) -> Answer {
    let mut claims = vec![];
    let absences = case.absences();
    for server in case.things("server") {
        let all = messages(case, server.place);
        let count: f64 = all.iter().map(|one| one.count).sum();
        let (Some(first), Some(last_us)) = (all.first(), all.iter().map(|one| one.window.to_us).max()) else {
            continue;
        };
        let window = Window::new(first.window.from_us, last_us);
        if count < MESSAGES_MIN && window.length_us() < US_MIN {
            continue;
        }
        let is_over = last_us + OVER_US < case.span.to_us;
        // What differs in numbers only is one: members and generations change with each.
        let kind = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
        let mut words: Vec<String> = all.iter().map(|one| plain(&one.first.message, CHARS)).collect();
        let mut seen: Vec<String> = vec![];
        words.retain(|text| {
            let is_new = !seen.contains(&kind(text));
            seen.push(kind(text));
            is_new
        });
        if words.len() > WORDS_MAX {
            words.drain(1..words.len() + 1 - WORDS_MAX);
        }
        let mut claim = Claim::new(
            if is_over { Severity::Low } else { Severity::High },
            Level::DiscriminatingCounter,
            format!(
                "{}: the cluster was not whole for {}: {}{}",
                server.place,
                units::us(window.length_us() as f64),
                missed(&absences, server.place, window),
                words.join(", then ")
            ),
        )
        .on_node(server.place)
        .during([window])
        .number("messages", count)
        .number("away_us", window.length_us() as f64);
        for one in &all {
            claim = claim.because(format!(
                "{} in the log of {}: {}",
                units::counted(one.count as usize, "time"),
                server.place,
                plain(&one.first.message, CHARS)
            ));
        }
        claims.push(claim.because("statements that need the node fail or wait meanwhile").remedy(
            "find the node that is away, and what stopped it (its log, its host, the network between the nodes); one that has come back first catches up",
            &[],
        ));
    }
    Answer::of(claims, || "messages of the cluster's engine about nodes that are away".to_string())
}
