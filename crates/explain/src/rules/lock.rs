//! LCK: sessions that wait for each other, and promises that were broken.

mod holder;
mod mutex;
mod notify;
mod queues;
mod standing;
mod table;
mod turns;

use super::ddl::{self, UNREAD, UNSENT};
use super::reference;
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::{Looked, Proof};
use crate::rule::{Answer, Claim, Rule};
use crate::statistics;
use crate::units;
use record::escape::one_line;
use record::finding::{Level, Severity, Window};
use record::model::CheckResult;
use record::watched::own;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "LCK-01",
        title: "one session blocks others",
        needs: &[Looked("block")],
        limits: "3 sessions blocked by one session for 1 s, which has half of the time lost to locks; or one for 5 s; or 20 % of the session time behind \
            one session in 5 samples, with 2 blocked and three quarters of the time lost to locks (ours)",
        judge: tree,
        links: &["https://www.postgresql.org/docs/current/explicit-locking.html"],
    },
    Rule {
        id: "LCK-02",
        title: "an isolation promise was broken",
        needs: &[Proof],
        limits: "any violation that prove found",
        judge: anomaly,
        links: &["docs/prove.md"],
    },
    Rule {
        id: "LCK-03",
        title: "sessions queue for an advisory lock or for the lock of NOTIFY",
        needs: &[Looked("wait")],
        limits: "20 % of the session time of one active session or more in Lock:advisory, Lock:object or the queue of NOTIFY; a note about sessions that \
            wait for one holder during the whole recording and do nothing else (ours)",
        judge: queues::queue,
        links: &["https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS"],
    },
    Rule {
        id: "LCK-07",
        title: "sessions wait again and again for the lock of one table",
        needs: &[Looked("block"), Looked("wait")],
        limits: "20 % of the session time in Lock:relation of one table, behind statements that take a strong lock of it; not where LCK-01 names one \
            session (ours)",
        judge: table::queue,
        links: &["https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-TABLES"],
    },
];

/// Sessions that wait by design: the number of a finding that explains their waits although it is only a note.
pub(crate) const BY_DESIGN: &str = "sessions_by_design";
/// The number of a finding about a transaction that the engine of a cluster may have prepared.
pub(crate) const ENGINES: &str = "engine_prepared";
/// The share of the session time lost to locks from which on it is high.
const LOST_SHARE_HIGH: f64 = 0.5;
/// Characters of a statement in a sentence.
const STATEMENT_CHARS: usize = 160;
/// Characters of it in a claim.
const CLAIMED_CHARS: usize = 60;

/// Sessions behind one root.
const BLOCKED_MIN: f64 = 3.0;
/// Seconds that at least one session must have waited: a hot row always has waiters, but they change.
const CROWD_WAIT_S: f64 = 1.0;
/// Seconds of one of them.
const WAIT_S: f64 = 5.0;
/// Sessions behind one root at which the finding is high.
const BLOCKED_HIGH: f64 = 10.0;
/// Seconds likewise.
const WAIT_HIGH_S: f64 = 30.0;

/// The share of the session time behind one session, however short each wait is.
const BEHIND_SHARE_MIN: f64 = 0.2;
/// Of the time that is lost to locks: where sessions change a row in turn, each of them is at the root for a part.
const OF_LOST_MIN: f64 = 0.75;
/// The same for waits of a second.
const OF_LOST_CROWD: f64 = 0.5;
/// Sessions blocked on average: of two sessions that change a row in turn, each often seems to block the other.
const BEHIND_MIN: f64 = 2.0;
/// Looks in a row are not further apart than this, in usual distances.
const LOOKS_APART_MAX: f64 = 1.7;
/// Samples with this root.
const LOOKS_MIN: u64 = 5;
/// The same where several sessions at once wait, and half of the time is lost behind it.
const LOOKS_CROWDED_MIN: u64 = 3;

/// The state of a session that is idle in its transaction between many statements.
const WORKING: &str = "at work, one statement after another, in one long transaction";
/// Statements that it was seen with.
const STATEMENTS_MIN: usize = 5;
/// Seconds in one state, at most, of a session that works on.
const STATE_AGE_MAX_S: f64 = 0.5;
/// The same, of the looks that saw it at the root.
const OF_LOOKS_MIN: f64 = 0.25;

/// What to do about a blocking session in this state, and the commands.
fn advice(state: &str, session: &str, backend_start: &str, query: &str) -> (&'static str, Vec<String>) {
    let end = |function: &str| {
        ddl::end_of(function, session.parse().unwrap_or(0), backend_start).unwrap_or_else(|| {
            "SELECT pid, pg_blocking_pids(pid) AS blocked_by FROM pg_stat_activity WHERE wait_event_type = 'Lock';".to_string()
        })
    };
    match state {
        "idle" => (
            "the session holds a lock outside of a transaction (an advisory lock lives as long as its session): release it there, or end the session",
            vec![end("pg_terminate_backend")],
        ),
        _ if session == "0" => (
            "a prepared transaction holds the lock: finish it as its coordinator decided",
            vec!["SELECT gid, prepared, owner FROM pg_prepared_xacts ORDER BY prepared; -- then COMMIT PREPARED or ROLLBACK PREPARED, as its coordinator \
                decided".to_string()],
        ),
        UNREAD | UNSENT => (
            "the session waits for its own client and keeps its locks: look at that program, at what it writes to and at its network, or end the session; \
                while a \
             result is sent it may not heed pg_cancel_backend or statement_timeout",
            vec![end("pg_terminate_backend")],
        ),
        WORKING => (
            "the session works on in one long transaction, statement after statement, and keeps the lock of every row that it has changed until its \
             commit: commit in portions, or change rows that others need last; a timeout for idle transactions does not end it",
            vec![end("pg_terminate_backend")],
        ),
        state if state.starts_with("idle in transaction") => (
            "the application left its transaction open: end the session, and set a timeout that ends such sessions",
            vec![
                end("pg_terminate_backend"),
                "ALTER SYSTEM SET idle_in_transaction_session_timeout = '1min'; SELECT pg_reload_conf();"
                    .into(),
            ],
        ),
        _ if refreshed(query).is_some() => (
            "refresh the materialized view CONCURRENTLY (it needs a unique index on whole columns): readers then do not wait; or refresh it more rarely",
            vec![
                format!("REFRESH MATERIALIZED VIEW CONCURRENTLY {};", refreshed(query).unwrap_or_default()),
                end("pg_cancel_backend"),
            ],
        ),
        _ => (
            "shorten the blocking transaction or take its lock last; give schema changes a lock_timeout, so that they do not block the queue",
            vec![
                end("pg_cancel_backend"),
                "SET lock_timeout = '2s'; -- before ALTER TABLE and the like".into(),
            ],
        ),
    }
}

/// The materialized view that a statement refreshes while it keeps readers out.
fn refreshed(query: &str) -> Option<&str> {
    let mut words = query.split([' ', '\n', '\t', ';']).filter(|word| !word.is_empty());
    let mut fits = |wanted: &str| words.next().is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    if !(fits("refresh") && fits("materialized") && fits("view")) {
        return None;
    }
    words.next().filter(|name| !name.eq_ignore_ascii_case("concurrently"))
}

/// The state of a session that blocks others.
fn state_of<'a>(case: &'a Case, root: &Thing<'a>) -> &'a str {
    let statements = case.statements_of_root(root.place, root.name);
    let looks = root.lines.ticks.points().len() as f64;
    let works_on = statements >= STATEMENTS_MIN && statements as f64 >= looks * OF_LOOKS_MIN;
    let session = case.at("session", root.place).find(|session| session.name == root.name);
    // Each look found it in another state than the one before: it hardly pauses.
    let is_busy = session.is_some_and(|session| {
        let looks = session.lines.ticks.points().len() as u64;
        let is_fresh = session.lines.max("state_age_s").is_some_and(|age| age <= STATE_AGE_MAX_S);
        looks >= LOOKS_MIN && is_fresh && session.lines.max("xact_age_s") >= Some(WAIT_S)
    });
    match (root.lines.word("root_state"), session) {
        ("idle in transaction" | "active", _) if works_on || is_busy => WORKING,
        ("", session) => session.map_or("", |session| session.lines.word("state")),
        ("active", Some(session)) => ddl::at_its_client(&session).unwrap_or("active"),
        (state, _) => state,
    }
}

/// How long others waited for this root at most. Where sessions change a row in turn, a long wait ends behind a root that has only just become one: what
/// counts is no longer than the looks in a row that saw it at the root.
fn waited(case: &Case, root: &Thing<'_>) -> f64 {
    let looks = case.looks(root.place, &[case.span]).max(1.0);
    let apart_us = (case.span.length_us() as f64 / looks * LOOKS_APART_MAX) as u64;
    let (mut first, mut last, mut held_us) = (0, 0, 0);
    for point in root.lines.ticks.points() {
        if last == 0 || point.to_us > last + apart_us {
            first = point.to_us;
        }
        last = point.to_us;
        held_us = held_us.max(last - first);
    }
    root.lines.max("wait_s").unwrap_or(0.0).min(held_us as f64 / 1e6)
}

/// Whether a session that does nothing in its transaction has blocked others for seconds.
pub(super) fn is_held_by_an_idle_session(case: &Case, node: &str) -> bool {
    case.at("block", node)
        .any(|root| waited(case, &root) >= WAIT_S && state_of(case, &root).starts_with("idle in transaction"))
}

/// Waiters that `watch` follows to their root at one look.
const LOCKERS_MAX: f64 = 32.0;

/// A session at the root of a lock queue, in figures.
struct Root {
    /// Sessions behind it at once, at most.
    blocked: f64,
    /// Sessions of its program that were there before or after it.
    others: usize,
    /// How long one of them waited for it.
    waited_s: f64,
    /// The share of the session time behind it.
    behind: Option<f64>,
    /// The share of the session time in waits for locks.
    lost: f64,
    /// It takes so much of the time that short waits matter.
    is_costly: bool,
}

impl Root {
    /// Whether most of what is lost to locks is lost behind it.
    fn is_alone(&self) -> bool {
        self.behind.is_some_and(|share| share >= self.lost * OF_LOST_MIN)
    }
}

/// `None` if it is not worth a finding.
fn root_of(case: &Case, root: &Thing<'_>) -> Option<Root> {
    let points = root.lines.ticks.points();
    let blocked = statistics::quantile(points.iter().map(|point| point.sum), 1.0).unwrap_or(0.0);
    let usual = statistics::median(points.iter().map(|point| point.sum)).unwrap_or(0.0);
    let seen_all = blocked >= LOCKERS_MAX;
    let all = case.one("server", root.place).and_then(|server| server.max("sessions_waiting_lock"));
    // Beyond so many waiters only the first are followed to their root; if all of these are behind it, so are the others.
    let blocked = all.filter(|_| seen_all).map_or(blocked, |all| all.max(blocked));
    let waited_s = waited(case, root);
    let lost = node_time::share_waiting(case, root.place, |kind, _| kind == "Lock").unwrap_or(0.0);
    let peers = turns::of(case, root);
    let shares: Vec<f64> =
        peers.iter().filter_map(|one| turns::share_behind(case, root.place, one.name)).collect();
    let behind = (!shares.is_empty()).then(|| shares.iter().sum());
    let behind = if seen_all { Some(lost) } else { behind };
    let looks: usize = peers.iter().map(|one| one.lines.ticks.points().len()).sum();
    let has_of_lost = |least: f64| behind.is_none_or(|share| share >= lost * least);
    let is_crowded = usual >= BLOCKED_MIN && behind.is_some_and(|share| share >= LOST_SHARE_HIGH);
    let is_costly = behind.is_some_and(|share| share >= BEHIND_SHARE_MIN)
        && has_of_lost(OF_LOST_MIN)
        && usual >= BEHIND_MIN
        && looks as u64 >= if is_crowded { LOOKS_CROWDED_MIN } else { LOOKS_MIN };
    let is_crowd = blocked >= BLOCKED_MIN && waited_s >= CROWD_WAIT_S && has_of_lost(OF_LOST_CROWD);
    let is_first = turns::speaks(&peers, root) || waited_s >= WAIT_S;
    (is_first && (is_crowd || is_costly || waited_s >= WAIT_S)).then_some(Root {
        blocked,
        others: peers.len() - 1,
        waited_s,
        behind,
        lost,
        is_costly,
    })
}

fn severity(root: &Root) -> Severity {
    let is_high = root.blocked >= BLOCKED_HIGH
        || root.waited_s >= WAIT_HIGH_S
        || root.behind.is_some_and(|share| share >= LOST_SHARE_HIGH)
        || root.lost >= LOST_SHARE_HIGH && root.waited_s >= WAIT_S;
    if is_high { Severity::High } else { Severity::Medium }
}

fn tree(case: &Case) -> Answer {
    let mut claims = vec![];
    for root in case.things("block") {
        let Some(figures) = root_of(case, &root) else { continue };
        // LCK-03 reports sessions that wait by design, and those that take a lock in turn.
        let is_by_design =
            standing::all(case, root.place).iter().any(|one| one.holder.to_string() == root.name);
        if is_by_design || queues::is_in_turn(case, &root) {
            continue;
        }
        claims.push(of_root(case, &root, &figures));
    }
    Answer::of(claims, || "sessions that waited for locks, and the sessions that blocked them".to_string())
}

/// What keeps the others waiting, where that shows, and what to do.
struct WayOut {
    what: Option<String>,
    text: String,
    commands: Vec<String>,
}

impl WayOut {
    /// The same where others wait to insert rows that refer to those of a table, which a statement locks FOR UPDATE.
    fn referred(self, locked: Option<(String, String)>) -> WayOut {
        let is_of_inserts = self.what.as_deref().is_some_and(|what| what.starts_with(holder::TO_INSERT));
        let Some((table, text)) = locked.filter(|_| is_of_inserts) else { return self };
        WayOut {
            what: Some(format!(
                "{} its transaction ends: they refer to rows of {table}, which are locked FOR UPDATE by: {text}",
                holder::TO_INSERT
            )),
            text: reference::REMEDY.to_string(),
            commands: self.commands.into_iter().filter(|command| !command.contains("advisory")).collect(),
        }
    }
}

/// About a session of the engine that works for one at another node.
fn for_another(case: &Case, node: &str) -> WayOut {
    let text = "leave it: it works for a session at another node of the cluster, where the transaction began. Look for that one, and end it there if its work \
        may be lost; do not set idle_in_transaction_session_timeout on this node, which would end healthy transactions of the cluster";
    WayOut {
        what: None,
        text: text.to_string(),
        commands: case.own(node, own::ORIGIN).map(str::to_string).into_iter().collect(),
    }
}

/// About a transaction whose end a command waits for, whatever it does: an index that is built CONCURRENTLY is good only for those that begin later.
fn of_snapshot(waiting: &str, text: &str, mut commands: Vec<String>) -> WayOut {
    const SETS_TIMEOUT: &str = "SET lock_timeout";
    let is_default = commands.iter().any(|command| command.starts_with(SETS_TIMEOUT));
    commands.retain(|command| !command.starts_with(SETS_TIMEOUT));
    let text = if is_default { "let it end, or cancel it" } else { text };
    let what = (!waiting.is_empty()).then(|| {
        format!("until its transaction ends this waits: {}", super::costly::plain(waiting, STATEMENT_CHARS))
    });
    WayOut {
        what,
        text: format!(
            "{text}; start such commands when no long transaction is open, and without a lock_timeout, which would end them and leave an invalid index behind"
        ),
        commands,
    }
}

/// About any other one, by its state and its last statement.
fn way_out(
    case: &Case,
    root: &Thing<'_>,
    (state, query): (&str, &str),
    session: Option<&Thing<'_>>,
) -> WayOut {
    if root.name == "0"
        && let Some(name) = case.users_prepared(root.place)
    {
        let (text, commands) = super::paste::ending(case, root.place, name);
        let what = format!("it is {}", super::costly::plain(name, CLAIMED_CHARS));
        return WayOut { what: Some(what), text, commands };
    }
    if root.name == "0"
        && let Some(names) = case.own(root.place, own::PREPARED)
    {
        let text = "leave what the cluster's engine prepared: it ends that itself; only another one (see its name) is finished by hand, as its \
            coordinator decided";
        let command = format!(
            "SELECT gid, prepared, owner FROM pg_prepared_xacts ORDER BY prepared; -- {names} and a number: the engine's own"
        );
        return WayOut { what: None, text: text.to_string(), commands: vec![command] };
    }
    let backend_start = session.map_or("", |session| session.lines.word("backend_start"));
    let (text, mut commands) = advice(state, root.name, backend_start, query);
    if root.lines.word("lock_type") == "virtualxid" {
        return of_snapshot(root.lines.word("query"), text, commands);
    }
    let is_at_work =
        !query.is_empty() && !state.starts_with("idle") && root.name != "0" && refreshed(query).is_none();
    let age_s = session.and_then(|session| session.lines.max("xact_age_s")).unwrap_or(0.0);
    let (lock_type, waiting) = (root.lines.word("lock_type"), root.lines.word("query"));
    let held = Some(root.lines.word("held_mode")).filter(|_| root.name != "0").unwrap_or_default();
    // What those behind the first waiter want need not conflict with what is held.
    let wanted = if root.lines.max("depth").unwrap_or(0.0) <= 1.0 { root.lines.word("mode") } else { "" };
    let modes = holder::Modes { held, wanted };
    // A transaction that does nothing keeps what it has taken as well; what it did last need not have taken it.
    let is_held = lock_type == "relation" && !held.is_empty() && !state.starts_with("idle in transaction (");
    match holder::of(query, age_s, (lock_type, modes), waiting).filter(|_| is_at_work || is_held) {
        Some(deed) => {
            commands.splice(0..0, deed.commands);
            let text = if is_at_work { deed.text.to_string() } else { format!("{text}; {}", deed.text) };
            WayOut { what: Some(deed.what.to_string()), text, commands }
        }
        None => WayOut { what: None, text: text.to_string(), commands },
    }
}

/// Who blocked how many others for how long, in which state, with which statement, and what keeps the others waiting.
fn headline(
    root: &Thing<'_>,
    figures: &Root,
    (state, query, what): (&str, Option<&str>, Option<&str>),
    application: &str,
    longest_s: f64,
) -> String {
    let who = match (root.name, application) {
        ("0", _) => "a prepared transaction".to_string(),
        (pid, "") => format!("session {pid}"),
        (pid, name) => turns::named(pid, name, figures.others),
    };
    let lasted = match figures.is_costly && figures.waited_s < CROWD_WAIT_S {
        true => format!("again and again, for up to {}", units::seconds(longest_s)),
        false => format!("for up to {}", units::seconds(figures.waited_s)),
    };
    let state = match state {
        "" => String::new(),
        _ if root.name == "0" => String::new(),
        // Outside of a transaction only the locks of the session itself are held.
        "idle" if root.lines.word("lock_type") == "advisory" => {
            ", and is itself idle: it still holds an advisory lock of the session, which lives until it is released".to_string()
        }
        state => format!(", and is itself {state}"),
    };
    format!(
        "{}: {who} blocked {} {lasted}{state}{}{}",
        root.place,
        units::counted(figures.blocked as usize, "other"),
        query.map_or(String::new(), |query| format!(": {}", super::costly::plain(query, CLAIMED_CHARS))),
        what.map_or(String::new(), |what| format!("; {what}"))
    )
}

fn of_root(case: &Case, root: &Thing<'_>, figures: &Root) -> Claim {
    let lines = root.lines;
    let session = case.at("session", root.place).find(|session| session.name == root.name);
    let state = state_of(case, root);
    let query = session
        .map(|session| session.lines.word("query"))
        .filter(|query| !query.is_empty())
        .or(Some(lines.word("blocker_query")).filter(|query| !query.is_empty()));
    let application = turns::application(case, root);
    let is_for_another = case.is_own(root.place, own::SESSIONS, application);
    let WayOut { what, text, commands } = match is_for_another {
        true => for_another(case, root.place),
        false => way_out(case, root, (state, query.unwrap_or_default()), session.as_ref())
            .referred(reference::locked_for(case, root.place, lines.word("query"))),
    };
    let is_engines = lines.flag("own") == Some(true);
    let may_be_engines = root.name == "0" && case.users_prepared(root.place).is_none();
    let resolves = case.own(root.place, own::RESOLVES).filter(|_| may_be_engines);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let longest = lines.max("wait_s").unwrap_or(0.0).max(figures.waited_s);
    // A wait for the end of a transaction names no table.
    let rows =
        root.name.parse().ok().and_then(|pid| case.rows_waited_for(root.place, Some(pid)).into_iter().next());
    let rows = rows.map(|(table, _)| format!("the others wait for rows of {table}"));
    let what = what.or_else(|| rows.clone());
    let text_of_claim = headline(root, figures, (state, query, what.as_deref()), application, longest);
    Claim::new(severity(figures), Level::DiscriminatingCounter, text_of_claim)
    .on_node(root.place)
    .during(lines.ticks.stretches(0, |point| point.sum > 0.0))
    .number("blocked", figures.blocked)
    .number("wait_s", longest)
    .with(figures.behind, |claim, share| claim.number("share", share))
    .number("depth", lines.max("depth").unwrap_or(1.0))
    .because(format!(
        "lock {} {}, wanted as {}",
        lines.word("lock_type"),
        lines.word("relation"),
        lines.word("mode")
    ))
    .with(rows, Claim::because)
    .because(format!("it was at the root in {} of the looks", lines.ticks.points().len()))
    .with(case.own(root.place, own::LOCKS_WHILE).filter(|_| is_engines), |claim, locks_while| {
        claim.because(format!("no application takes this lock: the cluster's engine does, {locks_while}"))
    })
    .with(case.own(root.place, own::PREPARED).zip(resolves), |claim, (names, resolves)| {
        let text = format!(
            "if its name begins with {names} and a number, the cluster's engine prepared it and ends it itself: {resolves}"
        );
        claim.number(ENGINES, 1.0).because(text)
    })
    .with(is_for_another.then_some(()), |claim, ()| {
        claim.because(format!("it is a session of the cluster's engine ({application}), which works for a session at another node"))
    })
    .with(figures.behind, |claim, share| {
        claim.because(format!("{} of the session time was spent behind it", units::percent(share)))
    })
    .with(query, |claim, query| {
        claim.because(format!("its last statement: {}", one_line(query, STATEMENT_CHARS)))
    })
    .with(Some(lines.word("query")).filter(|query| !query.is_empty()), |claim, query| {
        claim.because(format!("a waiting statement: {query}"))
    })
    .not("a deadlock: the blocking session waits for no lock")
    .remedy(text, &commands)
}

fn anomaly(case: &Case) -> Answer {
    let mut claims = vec![];
    // `prove engine` compares claims about an engine with a server: a difference is no anomaly of the server.
    let proofs = case.run.steps.iter().filter(|step| step.verb == "prove" && step.name != "engine");
    for step in proofs.clone() {
        for check in step.checks.iter().filter(|check| check.result == CheckResult::Fail) {
            claims.push(
                Claim::new(
                    Severity::High,
                    Level::DiscriminatingCounter,
                    format!("{}: {} ({}): {}", step.key, check.name, check.scope, check.detail),
                )
                .during([Window::new(step.start_us, step.end_us.unwrap_or(case.span.to_us))])
                .number("rows", check.rows as f64)
                .with(check.counterexamples.first(), |claim, example| {
                    claim.because(format!("for example {example}"))
                })
                .remedy("this concerns correctness, not speed: use an isolation level that excludes it", &[]),
            );
        }
    }
    if claims.is_empty()
        && proofs.clone().all(|step| step.checks.iter().all(|check| check.result != CheckResult::Ok))
    {
        return Answer::CannotTell("no promise was checked".to_string());
    }
    Answer::of(claims, || "what prove checked".to_string())
}
