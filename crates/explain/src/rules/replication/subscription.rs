//! REP-07: subscriptions that apply nothing: their worker fails or has ended, their slot is gone, or they are disabled.

mod hindrance;

use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::costly::plain;
use crate::rules::paste::literal;
use crate::units;
use hindrance::Hindrance;
use record::event::{self, Event};
use record::finding::{Level, Severity};
use record::watched::own;

/// A slot that was seen so shortly before the end of the recording is there.
const SLOT_SEEN_US: u64 = 10_000_000;
/// Characters of a line of the log in a claim.
const MESSAGE_CHARS: usize = 120;
/// What PostgreSQL's own subscriptions need where the slot is gone.
const NATIVE_ANEW: &str = "take the slot's name away (ALTER SUBSCRIPTION ... SET (slot_name = NONE)), drop the subscription, empty its tables here, and \
    make it again with copy_data, which makes the slot and copies the rows";

pub(super) fn apply_fails(case: &Case) -> Answer {
    let claims = case.things("subscription").filter(|one| one.lines.flag("own") != Some(true));
    let claims = claims.filter_map(|one| {
        failing(case, &one).or_else(|| disabled(case, &one)).or_else(|| stopped(case, &one))
    });
    Answer::of(claims.collect(), || "errors and states of subscriptions".to_string())
}

/// A claim about a subscription, with its name: `m2: pglogical subscription m2_from_m1 is disabled`.
fn claim(subscription: &Thing<'_>, severity: Severity, what: &str) -> Claim {
    let (replication, lines) = (subscription.lines.word("replication"), subscription.lines);
    let blank = if replication.is_empty() { "" } else { " " };
    let text =
        format!("{}: {replication}{blank}subscription {} {what}", subscription.place, subscription.name);
    Claim::new(severity, Level::DiscriminatingCounter, text)
        .on_node(subscription.place)
        .during([lines.ticks.window()])
        .number("watched_s", lines.ticks.window().length_us() as f64 / 1e6)
}

/// Errors that PostgreSQL counts: of its own subscriptions.
fn failing(case: &Case, subscription: &Thing<'_>) -> Option<Claim> {
    let sum = |field: &str| subscription.lines.sum(field).unwrap_or(0.0);
    let errors = sum("apply_errors") + sum("sync_errors");
    if errors == 0.0 {
        return None;
    }
    let log = met(case, subscription.place);
    let hindrance = Hindrance::of(log.map_or("", |event| event.message.as_str()));
    let name = record::statement::quoted(subscription.name);
    let is = |field: &str| subscription.lines.flag(field) != Some(false);
    let state = record::subscription::state(is("enabled"), is("running"), errors as u64);
    let which = if is("enabled") && is("running") { " that fail" } else { "" };
    let reason = log.map_or(String::new(), |event| format!(": {}", plain(&event.message, MESSAGE_CHARS)));
    // An enabled one is started again every few seconds, and comes to the same change.
    let what = match is("enabled") && !is("running") {
        true => format!(
            "fails again and again ({} while it was watched){}, and applies nothing{reason}",
            units::counted(errors as usize, "error"),
            if hindrance.is_row() { ", at the same change each time" } else { "" }
        ),
        false => format!("{state}: changes of the other node{which} are not applied{reason}"),
    };
    let (remedy, mut commands) =
        hindrance.remedy(subscription.name, log.map_or("", |event| event.message.as_str()));
    commands.extend((!is("enabled")).then(|| format!("ALTER SUBSCRIPTION {name} ENABLE;")));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    Some(
        claim(subscription, Severity::High, &what)
            .number("errors", errors)
            .with(log, |claim, event| claim.because(format!("the server's log: {}", event.message)))
            .because("its slot on the publisher keeps WAL until this is repaired (REP-03)")
            .remedy(remedy, &commands),
    )
}

/// The error that a worker met, rather than that it ended: the log has the pid of each worker that has ended.
fn met<'a>(case: &'a Case, node: &str) -> Option<&'a Event> {
    let log = || {
        let all = case.events_of(event::SERVER_LOG);
        all.filter(|event| ["", node].contains(&Case::word_of(event, "node")))
    };
    let is_end = |event: &Event| {
        event.message.starts_with("background worker \"logical replication")
            && event.message.contains(" exited with exit code ")
    };
    let pid = |event: &Event| event.message.split("(PID ").nth(1)?.split(')').next()?.parse::<u64>().ok();
    let ended: Vec<u64> = log().filter(|event| is_end(event)).filter_map(pid).collect();
    let is_of_worker = |event: &&Event| {
        let pid = event.more.get("pid").and_then(serde_json::Value::as_u64);
        Case::word_of(event, "severity") == "ERROR" && pid.is_some_and(|pid| ended.contains(&pid))
    };
    log().find(is_of_worker).or_else(|| {
        let parts = ["conflict", "duplicate key", "logical replication"];
        parts.iter().find_map(|part| log().find(|event| !is_end(event) && event.message.contains(part)))
    })
}

/// One that applies nothing because it is disabled. An engine without a command for that does so itself, and goes on by itself.
fn disabled(case: &Case, subscription: &Thing<'_>) -> Option<Claim> {
    let is_native = subscription.lines.word("replication").is_empty();
    let enable = match is_native {
        true => format!("ALTER SUBSCRIPTION {} ENABLE;", record::statement::quoted(subscription.name)),
        false => {
            case.own(subscription.place, own::ENABLE)?.replace("{subscription}", &literal(subscription.name))
        }
    };
    if subscription.lines.flag("enabled") != Some(false) {
        return None;
    }
    // Nodes of a group differ from then on; the table of another server may be wanted up to that day only.
    let severity = if is_native { Severity::Low } else { Severity::Medium };
    let state = record::subscription::state(false, false, 0);
    let claim = claim(subscription, severity, &format!("{state}: changes of the other node are not applied"))
        .because("a user disabled it, or an error did (disable_on_error): the log of this node shows which");
    Some(match gone(case, subscription) {
        Some(why) => claim.because(why).remedy(again(case, subscription), &[]),
        None => claim
            .because("its slot on the publisher keeps WAL until it is enabled again, or dropped with its slot (REP-03)")
            .remedy("enable it again once nothing is in its way; what was written since is applied then", &[&enable]),
    })
}

/// One whose worker has ended although it is enabled: no view counts its errors.
fn stopped(case: &Case, subscription: &Thing<'_>) -> Option<Claim> {
    let lines = subscription.lines;
    if lines.flag("running") != Some(false) || lines.flag("enabled") != Some(true) {
        return None;
    }
    let state = record::subscription::state(true, false, 0);
    if let Some(why) = gone(case, subscription) {
        let what = format!(
            "{state} for good: its slot {} on the other node is gone, and the changes that it kept are lost to this node",
            lines.word("slot")
        );
        let claim = claim(subscription, Severity::High, &what).because(why);
        return Some(claim.remedy(again(case, subscription), &[]));
    }
    if let Some(claim) = without_worker(case, subscription, &state) {
        return Some(claim);
    }
    let log = case.events_of(event::SERVER_LOG).find(|event| event.message.contains("apply"));
    Some(
        claim(subscription, Severity::High, &format!("{state}: changes of the other node are not applied"))
            .with(log, |claim, event| claim.because(format!("the server's log: {}", event.message)))
            .because(
                "its worker starts again and again and ends each time: at the same change, or because it cannot connect; its slot on the publisher keeps WAL \
                 all the time (REP-03)",
            )
            .remedy(
                "find the error of the apply worker in the log of this node, and repair what it names: the row, the table, or the connection; the worker then \
                 goes on by itself, as long as the slot is there",
                &["SELECT slot_name, active, wal_status FROM pg_replication_slots; -- on the publisher"],
            ),
    )
}

/// One for which there is no process: the others have as many as the server may start.
fn without_worker(case: &Case, subscription: &Thing<'_>, state: &str) -> Option<Claim> {
    const OF_SUBSCRIPTIONS: &str = "max_logical_replication_workers";
    const OF_ALL: &str = "max_worker_processes";
    let node = subscription.place;
    let running = case.at("subscription", node).filter(|one| one.lines.flag("running") == Some(true)).count();
    let limit = case.setting(node, OF_SUBSCRIPTIONS).and_then(|limit| limit.parse::<usize>().ok());
    let logged = |part: &str| {
        let mut lines = case.events_of(event::SERVER_LOG);
        lines.find(|event| event.message.contains(part) && ["", node].contains(&Case::word_of(event, "node")))
    };
    let of_all = logged("out of background worker slots");
    let log = of_all.or_else(|| logged("out of logical replication worker slots"));
    if log.is_none() && limit.is_none_or(|limit| running < limit) {
        return None;
    }
    let setting = if of_all.is_some() { OF_ALL } else { OF_SUBSCRIPTIONS };
    let known = limit.filter(|_| of_all.is_none()).map_or(String::new(), |limit| format!(" ({limit})"));
    let what = format!(
        "{state}: there is no worker for it, as {} running, and {setting}{known} allows no more",
        match running {
            1 => "1 other subscription is".to_string(),
            others => format!("{others} other subscriptions are"),
        }
    );
    let wanted = case.at("subscription", node).filter(|one| one.lines.flag("enabled") != Some(false)).count();
    // One more for each that copies a table, and those of other programs.
    let enough = (wanted * 2).max(8);
    let command = format!(
        "ALTER SYSTEM SET {setting} = {}; -- takes effect at the next start",
        enough + if of_all.is_some() { 8 } else { 0 }
    );
    let both = format!(
        "SELECT name, setting FROM pg_settings WHERE name IN ('{OF_SUBSCRIPTIONS}', '{OF_ALL}', 'max_sync_workers_per_subscription');"
    );
    Some(
        claim(subscription, Severity::High, &what)
            .number("subscriptions_running", running as f64)
            .with(limit, |claim, limit| claim.number("workers_max", limit as f64))
            .with(log, |claim, event| claim.because(format!("the server's log: {}", event.message)))
            .because("its slot on the publisher keeps WAL all the time (REP-03)")
            .not("an error of the worker: none was started")
            .remedy(
                "allow more workers: one for each subscription and one for each table that is copied at first; all of them are background workers, so \
                 max_worker_processes has to have room for them as well. Or publish to fewer subscriptions",
                &[&command, &both],
            ),
    )
}

/// Why the slot of a subscription is known to be gone from the node that it follows. The other nodes of a group are all that it may follow.
fn gone(case: &Case, subscription: &Thing<'_>) -> Option<String> {
    let slot = subscription.lines.word("slot");
    if slot.is_empty() {
        return None;
    }
    let refused = format!("\"{slot}\" does not exist");
    if let Some(event) = case.events_of(event::SERVER_LOG).find(|event| event.message.contains(&refused)) {
        return Some(format!("the server's log: {}", event.message));
    }
    let end_us = subscription.lines.ticks.window().to_us;
    let is_there = |thing: Thing<'_>| {
        thing.name == slot
            && thing.place != subscription.place
            && thing.lines.ticks.window().to_us + SLOT_SEEN_US >= end_us
    };
    let is_of_group = !subscription.lines.word("replication").is_empty() && case.nodes().len() > 1;
    let is_gone = is_of_group && !case.things("slot").any(is_there);
    is_gone.then(|| format!("none of the other nodes that are watched has its slot {slot}"))
}

/// How a node is brought back that misses changes for good.
fn again(case: &Case, subscription: &Thing<'_>) -> String {
    let how = match subscription.lines.word("replication") {
        "" => NATIVE_ANEW,
        _ => case
            .own(subscription.place, own::ANEW)
            .unwrap_or("make the subscription again, with a new slot and a copy of the rows"),
    };
    format!(
        "it does not go on by itself, and a new slot alone lacks what was written since the old one ended: {how}"
    )
}
