//! VAC-05: what holds back the horizon below which dead rows can be removed.

use super::{AGE_SHARE_HIGH, DEAD_ROWS_HARM, DEAD_SHARE_HARM, stepped};
use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::ddl::end_of;
use crate::rules::paste::{OF_ENGINE, ending, literal, slot_of_engine};
use crate::units;
use record::finding::{Level, Severity};
use record::watched::own;

/// A transaction of an OLTP system that is this old.
const XACT_AGE_S: f64 = 3_600.0;
/// Of autovacuum_freeze_max_age.
const AGE_SHARE: f64 = 0.05;
/// An age below which a holder is on its way.
const HARM_AGE_S: f64 = 15.0;
/// The same if vacuums have come and gone meanwhile without removing the rows.
const HARM_AGE_IN_VAIN_S: f64 = 5.0;
/// The same of a prepared transaction, which no session ends.
const PREPARED_AGE_S: f64 = 60.0;
/// So many of them.
const IN_VAIN_MIN: f64 = 2.0;
/// autovacuum_freeze_max_age if it was not recorded: PostgreSQL's default.
const FREEZE_MAX_AGE: f64 = 200_000_000.0;

pub(super) fn freeze_max_age(case: &Case, node: &str) -> f64 {
    let detail = case.one("server", node).and_then(|server| server.max("freeze_max_age_xids"));
    detail.filter(|age| *age > 0.0).unwrap_or(FREEZE_MAX_AGE)
}

pub(super) fn is_old(case: &Case, holder: &Thing<'_>) -> bool {
    let age = holder.lines.max("age_xids").unwrap_or(0.0);
    holder.lines.max("age_s").unwrap_or(0.0) >= XACT_AGE_S
        || age >= freeze_max_age(case, holder.place) * AGE_SHARE
}

/// Whether a table is full of dead rows that a vacuum left when the holder was there already, some time before the recording. A prepared transaction keeps what
/// became dead since then whether a vacuum has come or not.
fn is_kept_before(table: &Thing<'_>, holder: &Thing<'_>) -> bool {
    let (live, dead) =
        (table.lines.last("live_rows").unwrap_or(0.0), table.lines.last("dead_rows").unwrap_or(0.0));
    let age_s = holder.lines.max("age_s").unwrap_or(0.0);
    let vacuumed = table.lines.last("vacuumed_s").is_some_and(|since_s| since_s < age_s);
    let is_full = dead >= DEAD_ROWS_HARM && dead >= live;
    is_full && (vacuumed || holder.lines.word("kind") == "prepared" && age_s >= PREPARED_AGE_S)
}

/// Whether dead rows pile up that a holder keeps, however young it is: a table with many of them, while vacuums of the node found rows that they could not
/// remove, or the holder is older than the time it takes.
pub(super) fn is_harmful(case: &Case, holder: &Thing<'_>) -> bool {
    let age_s = holder.lines.max("age_s").unwrap_or(f64::MAX);
    let vacuums = |table: &Thing<'_>| {
        table.lines.sum("autovacuums").unwrap_or(0.0) + table.lines.sum("vacuums").unwrap_or(0.0)
    };
    let is_kept = |table: &Thing<'_>| {
        let (live, dead) =
            (table.lines.last("live_rows").unwrap_or(0.0), table.lines.last("dead_rows").unwrap_or(0.0));
        let grew = dead > table.lines.first("dead_rows").unwrap_or(0.0) * 0.9;
        dead >= DEAD_ROWS_HARM && dead >= live * DEAD_SHARE_HARM && grew && vacuums(table) >= 1.0
    };
    let kept = case.at("table", holder.place).any(|table| is_kept(&table) || is_kept_before(&table, holder));
    let is_in_vain =
        case.at("table", holder.place).any(|table| is_kept(&table) && vacuums(&table) >= IN_VAIN_MIN);
    let not_removable = case.events_of(record::event::AUTOVACUUM).any(|event| {
        let rows = event.more.get("rows_not_removable").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        rows >= DEAD_ROWS_HARM && Case::word_of(event, "node") == holder.place
    });
    let steps = || kept_full(case, holder).is_some();
    age_s >= HARM_AGE_S && (kept || not_removable || steps()) || age_s >= HARM_AGE_IN_VAIN_S && is_in_vain
}

/// The share of the session time in tables that a holder keeps full of dead rows, from which on it is part of the claim, and urgent.
const SLOWED_MIN: f64 = 0.2;
const SLOWED_HIGH: f64 = 0.5;

/// The table whose searches step over dead rows all the time, if that takes so much of the session time that a holder is to be named for it.
fn kept_full(case: &Case, holder: &Thing<'_>) -> Option<stepped::Stepped> {
    let is_of_age = holder.lines.max("age_s").is_none_or(|age| age >= HARM_AGE_S);
    stepped::of_node(case, holder.place).filter(|table| is_of_age && table.share >= SLOWED_MIN)
}

/// The share of the session time in the tables that a holder keeps full of dead rows, and the first of these.
fn slowed(case: &Case, holder: &Thing<'_>) -> Option<(f64, String)> {
    if let Some(table) = kept_full(case, holder) {
        return Some((table.share, table.relation));
    }
    let time =
        crate::node_time::all(case).iter().find(|time| time.node == holder.place && !time.is_idle())?;
    let by = time.by.iter().find(|by| by.name == "relation")?;
    let is_kept = |relation: &str| {
        case.at("table", holder.place)
            .any(|table| table.lines.word("relation") == relation && is_kept_before(&table, holder))
    };
    let kept = || by.shares.iter().filter(|(relation, _)| is_kept(relation));
    let share: f64 = kept().map(|(_, share)| share).sum();
    let most = kept().max_by(|left, right| left.1.total_cmp(&right.1))?;
    (share >= SLOWED_MIN).then(|| (share.min(1.0), most.0.clone()))
}

/// Whether something receives from the slot that holds the horizon.
fn is_in_use(case: &Case, holder: &Thing<'_>) -> bool {
    let name = holder.lines.word("name");
    let name = name.strip_suffix(" (catalog)").unwrap_or(name);
    let mut slots = case.at("slot", holder.place).filter(|slot| slot.lines.word("slot") == name);
    slots.any(|slot| slot.lines.flag("active") == Some(true))
}

pub(super) fn holder_words(holder: &Thing<'_>) -> String {
    let (kind, name) = (holder.lines.word("kind"), holder.lines.word("name"));
    match holder.lines.last("pid") {
        Some(pid) => format!("{kind} {name} (pid {pid:.0})"),
        None => format!("{kind} {name}"),
    }
}

/// What ends a holder other than a prepared transaction, and the commands.
fn other_end(
    case: &Case,
    holder: &Thing<'_>,
    session: Option<&Thing<'_>>,
    pid: u64,
) -> (String, Vec<String>) {
    let name = holder.lines.word("name");
    let (text, commands) = match holder.lines.word("kind") {
        "slot" if is_in_use(case, holder) => (
            "the slot has a consumer, whose own sessions need the rows (hot_standby_feedback of a standby): end the oldest transaction there",
            vec![
                "SELECT pid, state, now() - xact_start AS age, left(query, 60) AS query FROM pg_stat_activity WHERE backend_xmin IS NOT NULL ORDER BY \
                    xact_start LIMIT 5; -- on the consumer"
                    .to_string(),
            ],
        ),
        "slot" if case.is_own(holder.place, own::SLOTS, name) => (OF_ENGINE, vec![slot_of_engine(name)]),
        "slot" => (
            "the slot has no consumer: bring its consumer back, or drop it",
            vec![format!("SELECT pg_drop_replication_slot({});", literal(name))],
        ),
        "standby" => (
            "the oldest query on the standby holds it back (hot_standby_feedback): end that query there",
            vec![
                "SELECT pid, now() - xact_start, left(query, 60) FROM pg_stat_activity WHERE state <> 'idle' ORDER BY xact_start; -- on the standby"
                    .to_string(),
            ],
        ),
        _ => {
            let begun = session.map_or("", |session| session.lines.word("backend_start"));
            let end = end_of("pg_terminate_backend", pid, begun).unwrap_or_else(|| {
                "SELECT pid, backend_start, state, age(backend_xmin) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL ORDER BY 4 DESC LIMIT 5;".to_string()
            });
            let is_at_work = session.is_some_and(|session| session.lines.word("state") == "active");
            if is_at_work {
                const OF_REPORT: &str = "its statement runs for as long: end it, or wait for it; a report of many minutes belongs on a standby (without \
                    hot_standby_feedback) or into hours with few changes, and a statement_timeout of its role keeps it from running longer than you can bear";
                let look = format!(
                    "SELECT pid, usename, application_name, now() - query_start AS runs, left(query, 60) AS query FROM pg_stat_activity WHERE pid = {pid};"
                );
                return (OF_REPORT.to_string(), vec![end, look]);
            }
            let limit = "ALTER SYSTEM SET idle_in_transaction_session_timeout = '5min'; SELECT pg_reload_conf();".to_string();
            ("end the session, and set a timeout that ends such sessions", vec![end, limit])
        }
    };
    (text.to_string(), commands)
}

pub(super) fn horizon(case: &Case) -> Answer {
    let mut claims = vec![];
    for holder in case.things("horizon").filter(|holder| is_old(case, holder) || is_harmful(case, holder)) {
        let (age, age_s) = (holder.lines.max("age_xids").unwrap_or(0.0), holder.lines.max("age_s"));
        let most = freeze_max_age(case, holder.place);
        let share = age / most;
        let kind = holder.lines.word("kind");
        let pid = holder.lines.last("pid").unwrap_or(0.0);
        let session = case.at("session", holder.place).find(|session| session.name == format!("{pid:.0}"));
        let state = session.map_or("", |session| session.lines.word("state"));
        let name = holder.lines.word("name");
        let (text, commands): (String, Vec<String>) = match kind {
            "prepared" => ending(case, holder.place, name),
            _ => other_end(case, &holder, session.as_ref(), pid as u64),
        };
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let known = age_s.map_or(String::new(), |age| format!(", {}", units::seconds(age)));
        let slowed = slowed(case, &holder);
        let is_urgent = slowed.as_ref().is_some_and(|(share, _)| *share >= SLOWED_HIGH);
        let severity = if share >= AGE_SHARE_HIGH || is_urgent { Severity::High } else { Severity::Medium };
        let tables = slowed.as_ref().map_or(String::new(), |(share, relation)| {
            format!(
                "; {} of the session time is in {relation}, whose dead rows no vacuum can remove until it ends",
                units::percent(*share)
            )
        });
        claims.push(
            Claim::new(
                severity,
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} holds the xmin horizon back by {} transactions{known}{tables}",
                    holder.place,
                    holder_words(&holder),
                    units::count(age)
                ),
            )
            .on_node(holder.place)
            .during([holder.lines.ticks.window()])
            .number("age_xids", age)
            .number("share_of_freeze_max_age", share)
            .with(slowed, |claim, (share, _)| claim.number("share", share))
            .with(age_s, |claim, age| claim.number("age_s", age))
            .because(format!(
                "that is {} of autovacuum_freeze_max_age ({})",
                units::percent(share),
                units::count(most)
            ))
            .with(session.filter(|_| !state.is_empty()), |claim, session| {
                claim.because(format!(
                    "its session is {state}; last statement: {}",
                    session.lines.word("query")
                ))
            })
            .because("no row version deleted since then can be removed from any table of the database")
            .with(kept_full(case, &holder), |claim, table| table.described(claim))
            .remedy(text, &commands),
        );
    }
    Answer::of(claims, || {
        "sessions, slots, standbys and prepared transactions that hold back the horizon".to_string()
    })
}
