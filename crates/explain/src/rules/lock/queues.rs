//! LCK-03: sessions that queue for an advisory lock, or for the lock that commits after NOTIFY take.

use super::{BY_DESIGN, STATEMENT_CHARS, mutex, notify, standing};
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::units;
use crate::waits::{Waits, Who};
use record::escape::one_line;
use record::finding::{Level, NodeTime, Severity};
use record::watched::own;
use standing::Standing;

/// Active sessions of a node below which nothing queues.
const ACTIVE_MIN: f64 = 1.0;
/// The share of the session time in such a queue.
const QUEUE_SHARE_MIN: f64 = 0.2;
/// From this share on it is high.
const QUEUE_SHARE_HIGH: f64 = 0.5;
/// A queue for a program's order, and not for a row.
struct Queue {
    fits: fn(&str, &str) -> bool,
    event: &'static str,
    what: &'static str,
    text: &'static str,
    command: &'static str,
}

/// An advisory lock that no application takes.
const OF_ENGINE: &str = "an advisory lock that the cluster's engine takes itself";

impl Queue {
    fn is_advisory(&self) -> bool {
        (self.fits)("Lock", "advisory")
    }
}

const QUEUES: [Queue; 2] = [
    Queue {
        fits: |kind, event| (kind, event) == ("Lock", "advisory"),
        event: "Lock:advisory",
        what: "an advisory lock, which the application takes",
        text: "hold it for a shorter time: do what is not the database's work (calls of other services, files) before the lock is taken or after it is \
            released; or take several locks with different keys instead of one; to find the holder:",
        command: "SELECT l.pid, a.application_name, a.state, now() - a.xact_start AS since, l.classid, l.objid \
            FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted;",
    },
    Queue {
        fits: |kind, event| {
            (kind, event) == ("Lock", "object") || kind == "LWLock" && event.starts_with("Notify")
        },
        event: "Lock:object or the queue of NOTIFY",
        what: "the lock of an object that is not a table: all commits after NOTIFY queue for one lock (objid 0)",
        text: "send NOTIFY from fewer transactions (a row in a table and one process that sends for all of them, or a trigger for each statement instead of \
            each row), or take it out where no session listens; where it comes from, and who holds the lock now:",
        command: "SELECT l.pid, a.application_name, a.state, l.classid::regclass, l.objid, left(a.query, 60) AS query \
            FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'object' AND l.granted;",
    },
];

/// LCK-03.
pub(super) fn queue(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in node_time::all(case).iter().filter(|time| time.active >= ACTIVE_MIN) {
        let Some(waits) = case.waits(&time.node) else { continue };
        for queue in &QUEUES {
            let mut share = node_time::share_waiting(case, &time.node, queue.fits).unwrap_or(0.0);
            let mut sessions = share * time.active;
            let standing = if queue.is_advisory() { standing::all(case, &time.node) } else { vec![] };
            if !standing.is_empty() && share >= QUEUE_SHARE_MIN {
                claims.extend(standing.iter().map(|one| by_design(case, time, one)));
                // The time of those that wait by design is not lost, and hides that of the others.
                let by_design: f64 = standing.iter().map(|one| one.sessions).sum();
                sessions = standing::in_turn(case, &time.node, &standing, sessions);
                share = sessions / (time.active - by_design).max(1.0);
            }
            if share >= QUEUE_SHARE_MIN {
                claims.push(of_queue(case, time, waits, queue, (share.min(1.0), sessions)));
            }
        }
    }
    Answer::of(claims, || "waits for advisory locks and for NOTIFY".to_string())
}

/// What to do, and the commands: about a lock of the engine, about NOTIFY, or about one that the application takes.
fn remedy_of(case: &Case, time: &NodeTime, waits: &Waits, queue: &Queue) -> (String, Vec<String>) {
    let is_engines = queue.is_advisory() && standing::is_of_engine(case, &time.node);
    let by_statement = waits.worst_statement(queue.fits).and_then(|(query_id, _)| {
        let (part, what) = case.own(&time.node, own::LOCK_STATEMENT)?.split_once(": ")?;
        case.query(query_id).is_some_and(|text| text.contains(part)).then_some(what)
    });
    let text = match case.own(&time.node, own::LOCKS_WHILE).filter(|_| is_engines) {
        _ if let Some(what) = by_statement => what.to_string(),
        Some(locks_while) => format!(
            "no application takes it: the engine does, {locks_while}. Do that when little is written; who holds it:"
        ),
        None => queue.text.to_string(),
    };
    let source = (!queue.is_advisory()).then(|| notify::command(case, time));
    (text, source.into_iter().chain([queue.command.to_string()]).collect())
}

/// Sessions that queue: their share of those that do not wait by design, and their number.
fn of_queue(case: &Case, time: &NodeTime, waits: &Waits, queue: &Queue, queued: (f64, f64)) -> Claim {
    let (share, sessions) = queued;
    let is_engines = queue.is_advisory() && standing::is_of_engine(case, &time.node);
    let what = if is_engines { OF_ENGINE.to_string() } else { queue.what.to_string() };
    let holder = mutex::holder(case, &time.node).filter(|_| queue.is_advisory() && !is_engines);
    let sources = if queue.is_advisory() { vec![] } else { notify::sources(case, time) };
    let (text, commands) = remedy_of(case, time, waits, queue);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let claim = Claim::new(
        if share >= QUEUE_SHARE_HIGH { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!(
            "{}: {} of the active sessions wait for {what}{}{}",
            time.node,
            units::percent(share),
            holder.as_ref().map_or(String::new(), held_by),
            notify::in_claim(&sources)
        ),
    )
    .on_node(&time.node)
    .during(waits.windows(Who::Client, queue.fits))
    .number("sessions", sessions)
    .number("share", share)
    .because(format!("{} takes {} of the session time", queue.event, units::percent(share)))
    .with(waits.worst_statement(queue.fits), |claim, (query_id, share)| {
        let text = case.query(query_id).map_or(query_id, |text| text);
        claim.because(format!("{} of them run: {}", units::percent(share), one_line(text, STATEMENT_CHARS)))
    });
    let claim = sources.into_iter().fold(claim, Claim::because);
    claim
        .with(holder.as_ref().filter(|holder| holder.anew > 0), |claim, holder| {
            claim.number("waits_anew", holder.anew as f64).because(format!(
                "the lock changes hands: waits of the others began anew {} times",
                holder.anew
            ))
        })
        .with(holder.filter(|holder| !holder.query.is_empty()), |claim, holder| {
            claim.because(format!("its holder executed last: {}", one_line(&holder.query, STATEMENT_CHARS)))
        })
        .not("rows or tables: those waits have other names (Lock:tuple, Lock:transactionid, Lock:relation)")
        .remedy(text, &commands)
}

/// Who holds the lock, and what for, as a part of a claim.
fn held_by(holder: &mutex::Holder) -> String {
    let idle = match holder.is_idle {
        true => {
            ", and is idle all the time: it holds it over work that is not the database's (a call of another service, a file)"
        }
        false => "",
    };
    format!("; {} held it in most samples{idle}", holder.who)
}

/// Whether LCK-03 reports the queue behind a root: then it is no single session that should end.
pub(super) fn is_in_turn(case: &Case, root: &Thing<'_>) -> bool {
    let Ok(holder) = root.name.parse::<u64>() else { return false };
    let is_busy =
        node_time::all(case).iter().any(|time| time.node == root.place && time.active >= ACTIVE_MIN);
    let share = node_time::share_waiting(case, root.place, QUEUES[0].fits).unwrap_or(0.0);
    let waiting: Vec<_> = case
        .waiters(root.place)
        .filter(|waiter| waiter.is_for_advisory())
        .filter(|waiter| waiter.root == holder)
        .collect();
    root.lines.word("lock_type") == "advisory"
        && is_busy
        && share >= QUEUE_SHARE_MIN
        && mutex::changes_hands(case, root.place, holder, &waiting)
}

/// Sessions that wait by design: worth knowing, because they count as active, and their snapshots are old.
fn by_design(case: &Case, time: &NodeTime, standing: &Standing) -> Claim {
    let Standing { holder, waiting, sessions, is_certain, application, anew } = standing;
    let who = if application.is_empty() { String::new() } else { format!(" of {application}") };
    Claim::new(
        Severity::Low,
        Level::DiscriminatingCounter,
        format!(
            "{}: {}{who} waited all the time for an advisory lock that session {holder} holds: it forgot to release it, or the instances of a service elect \
             their leader so",
            time.node,
            units::counted(*waiting, "session")
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("sessions", *sessions)
    .number(BY_DESIGN, *sessions)
    .because(match anew {
        0 => "the lock never changed hands: every one of them waited at nearly every look, and no wait began anew",
        _ => "every one of them waited at nearly every look; waits began anew, as of sessions that give up after a timeout and try again",
    })
    .because(format!(
        "they count as active sessions: {} of {} are these",
        units::short(*sessions),
        units::short(time.active)
    ))
    .with((!is_certain).then_some(()), |claim, ()| {
        claim.because("other sessions of the same application are at work, or it is not known whether they are")
    })
    .not("work that queues for the lock: then it would change hands")
    .lacking("the purpose: a lock that was forgotten and one that elects a leader look the same")
    .remedy(
        "if it was forgotten, end its holder, and release it in every path (pg_advisory_xact_lock ends with its transaction); if it is an election, nothing; \
            a session that waits within a statement keeps a snapshot, so for days vacuum cannot remove rows: repeat \
         pg_try_advisory_lock with a pause instead. To find the holder:",
        &[QUEUES[0].command, "SELECT pg_try_advisory_lock(1); -- the key of the election; false: another instance has it"],
    )
}
