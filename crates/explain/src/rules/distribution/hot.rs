//! DIST-06: sessions that compete for rows or pages: of which table, behind whom.

use super::joined;
use crate::case::Case;
use crate::rule::{Answer, Claim};
use crate::rules::costly::{lowered, plain};
use crate::rules::{lock, reference};
use crate::units;
use crate::waits::{Waits, Who};
use record::finding::{Level, Severity};
use record::statement;
use std::collections::BTreeMap;

/// Of the active sessions.
const HOT_SHARE: f64 = 0.2;

/// `BufferMapping` is not among them: its locks are those of any pages whose place in shared_buffers changes, as where more is read than fits.
fn is_hot(kind: &str, event: &str) -> bool {
    matches!((kind, event), ("Lock", "tuple" | "transactionid") | ("LWLock", "BufferContent"))
}

/// The share of the active sessions that wait for rows, where our role may not see what sessions wait for: `pg_locks` hides nothing. How many are active
/// is then counted by the server.
fn masked_share(case: &Case, node: &str) -> f64 {
    let is_masked = case.gaps.iter().any(|gap| gap.node == node && gap.what == "hidden sessions");
    let windows = crate::node_time::windows(case);
    let looks = case.looks(node, &windows);
    if !is_masked || looks < 1.0 {
        return 0.0;
    }
    let rows = case.waiters(node).filter(|waiter| waiter.is_for_a_row());
    let waiting: f64 =
        rows.map(|waiter| waiter.ticks.within(&windows).readings() as f64).sum::<f64>() / looks;
    let active_ms = case
        .one("server", node)
        .and_then(|server| server.series("active_ms"))
        .map(|series| series.within(&windows).rate());
    let active = active_ms.map_or(waiting, |ms| ms / 1e3).max(waiting);
    if waiting >= 1.0 { waiting / active.max(f64::MIN_POSITIVE) } else { 0.0 }
}

/// Waits behind holders that are idle in a transaction, of all.
const IDLE_ROOTS_SHARE: f64 = 0.5;
/// Of the waits for rows, those for rows of one table that is named in a claim.
const MOST_SHARE: f64 = 0.5;
/// Tables that are listed.
const TABLES_MAX: usize = 3;
/// Characters of a statement.
const STATEMENT_CHARS: usize = 90;
const SPREAD: &str = "spread the keys, split counters into several rows, partition by hash; workers of a queue take their rows with FOR UPDATE SKIP \
    LOCKED; for index pages, use a key that does not increase";
const HELD_IDLE: &str = "let the program commit before it does anything else (a call of another service, a question to its user), or change the row last; \
    then spread the keys, and let workers of a queue take their rows with FOR UPDATE SKIP LOCKED";

const QUEUE: &str = "let the workers of the queue take their rows with FOR UPDATE SKIP LOCKED: each then takes the next row that is free, instead of waiting \
    for \
    the same one; and let them commit before they do anything else (a call of another service)";

pub(super) fn hot(case: &Case) -> Answer {
    let mut claims = vec![];
    let nothing = Waits::default();
    for node in case.nodes() {
        let waits = case.waits(node).unwrap_or(&nothing);
        // A session in a lightweight lock that has been woken waits for a CPU: that is no contention for a page.
        let of = |kind: &'static str| move |other: &str, event: &str| other == kind && is_hot(other, event);
        let share = waits.share(Who::Client, of("Lock")).unwrap_or(0.0)
            + crate::node_time::share_of(case, node, of("LWLock")).unwrap_or(0.0);
        let masked = masked_share(case, node);
        let share = share.max(masked);
        if share < HOT_SHARE {
            continue;
        }
        // Waiters behind one idle holder are LCK-01: a hot row has many holders.
        let roots = case.at("block", node).count();
        let locks =
            waits.share(Who::Client, |kind, event| kind == "Lock" && is_hot(kind, event)).unwrap_or(0.0);
        if locks > share / 2.0 && (roots == 1 || lock::is_held_by_an_idle_session(case, node)) {
            continue;
        }
        claims.push(claim(case, node, waits, (share, locks.max(masked))));
    }
    Answer::of(claims, || "waits for rows and pages".to_string())
}

/// About one node: the share of its sessions that wait for rows or pages, and that of those that wait for rows.
fn claim(case: &Case, node: &str, waits: &Waits, (share, locks): (f64, f64)) -> Claim {
    let roots = case.at("block", node).count();
    let statement =
        waits.worst_statement(is_hot).map(|(id, share)| (case.query(id).unwrap_or(id).to_string(), share));
    let idle_share = idle_roots_share(case, node);
    // An engine's session is idle in its transaction while its client's session works at another node.
    let is_engines = case.own(node, record::watched::own::SESSIONS).is_some();
    let is_idle = idle_share >= IDLE_ROOTS_SHARE && !is_engines;
    let tables = case.rows_waited_for(node, None);
    let relation = tables.first().map_or("", |(table, _)| table);
    let reference =
        statement.as_ref().and_then(|(text, _)| reference::Reference::of(case, node, text, relation));
    let takes_next = statement.as_ref().is_some_and(|(text, _)| takes_next(text));
    // Those that wait most need not be the ones that lock too much.
    let of_others = || {
        let texts = case.events_of(record::event::QUERY).filter(|one| Case::word_of(one, "node") == node);
        texts.into_iter().find_map(|one| joined::of(Case::word_of(one, "text"), relation))
    };
    let joined = statement.as_ref().and_then(|(text, _)| joined::of(text, relation)).or_else(of_others);
    // Where many tables take part, the first of them is no answer.
    let is_of_unknown = reference.as_ref().is_some_and(|reference| reference.is_of_unknown);
    let tables = if is_of_unknown { vec![] } else { tables.clone() };
    let of_which = tables.first().filter(|(_, of_all)| locks > share / 2.0 && *of_all >= MOST_SHARE);
    Claim::new(
        if share >= 0.5 { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!(
            "{node}: {} of the active sessions wait for the same rows or pages{}{}{}",
            units::percent(share),
            of_which.map_or(String::new(), |(table, _)| format!(" of {table}")),
            match (takes_next, is_idle) {
                (true, _) => ": workers of a queue, of which each wants the first row (FOR UPDATE without SKIP LOCKED)",
                (false, true) => ", mostly while their holder is idle in a transaction",
                (false, false) => "",
            },
            joined
                .as_ref()
                .map(|joined| joined.words.as_str())
                .or(reference.as_ref().map(|reference| reference.words.as_str()))
                .unwrap_or_default()
        ),
    )
    .on_node(node)
    .during(waits.windows(Who::Client, is_hot))
    .number("hot_share", share)
    .number("roots", roots as f64)
    .because(format!("seen in {}", waits.top_in_words(Who::Client)))
    .with(statement, |claim, (text, share)| claim.because(format!("{} of it in: {text}", units::percent(share))))
    .with((!tables.is_empty()).then(|| of_tables(&tables)), Claim::because)
    .with(is_idle.then(|| last_of_idle(case, node)).flatten(), Claim::because)
    .with((roots == 0).then_some(()), |claim, ()| claim.lacking("which relation: no blocked sessions were recorded"))
    .with(is_idle.then_some(idle_share), |claim, share| {
        claim.number("idle_holder_share", share).because(format!(
            "{} of the waits were behind a session that was idle in a transaction: its program did something else with the row locked",
            units::percent(share)
        ))
    })
    .with(reference.as_ref().and_then(|reference| reference.locked_by.as_ref()), |claim, text| {
        claim.because(format!("rows are locked by: {text}"))
    })
    .remedy(if joined.is_some() { joined::REMEDY } else { remedy_of(reference.as_ref(), takes_next, is_idle) }, &[])
}

/// The tables in whose rows the sessions queue, as a sentence.
fn of_tables(tables: &[(String, f64)]) -> String {
    let named =
        tables.iter().take(TABLES_MAX).map(|(table, share)| format!("{table} ({})", units::percent(*share)));
    format!(
        "the rows are those of {}, by the locks and statements of those that wait",
        named.collect::<Vec<_>>().join(", ")
    )
}

/// What the sessions that hold rows while they are idle did last: the statement that the most of them have.
fn last_of_idle(case: &Case, node: &str) -> Option<String> {
    let mut seen: BTreeMap<(String, String), u64> = BTreeMap::new();
    for waiter in case.waiters(node).filter(|waiter| waiter.root_state.starts_with("idle in transaction")) {
        let Some(session) = case.at("session", node).find(|session| session.name == waiter.root.to_string())
        else {
            continue;
        };
        let text = plain(&statement::parameterized(session.lines.word("query")), STATEMENT_CHARS);
        let who = plain(session.lines.word("application"), STATEMENT_CHARS);
        *seen.entry((who, text)).or_default() += waiter.ticks.readings();
    }
    let ((who, text), _) =
        seen.into_iter().filter(|((_, text), _)| !text.is_empty()).max_by_key(|(_, looks)| *looks)?;
    let who = if who.is_empty() { who } else { format!(" of {who}") };
    Some(format!("the last statement of the idle holders{who}: {text}"))
}

/// Of the waits at all looks, those behind a session that was idle in a transaction.
fn idle_roots_share(case: &Case, node: &str) -> f64 {
    let (mut idle, mut all) = (0, 0);
    for waiter in case.waiters(node) {
        idle += waiter.idle_looks;
        all += waiter.ticks.readings();
    }
    idle as f64 / (all.max(1) as f64)
}

/// Whether a statement takes the next row of a queue, for which it waits: it locks the first one of an order.
fn takes_next(text: &str) -> bool {
    let text = lowered(text);
    let has = |words: &str| text.contains(words);
    has(" limit ")
        && has(" order by ")
        && (has("for update") || has("for no key update"))
        && !has("skip locked")
}

fn remedy_of(reference: Option<&reference::Reference>, takes_next: bool, is_idle: bool) -> &'static str {
    match reference {
        Some(reference) if reference.locked_by.is_some() => reference::REMEDY,
        Some(reference) if reference.is_change => reference::SPLIT,
        _ if takes_next => QUEUE,
        _ if is_idle => HELD_IDLE,
        _ => SPREAD,
    }
}
