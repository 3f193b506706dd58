//! Which nodes answered while a proof was at work. One that is away although no fault of the proof is active makes its answer one about fewer nodes.
//!
//! A server whose first process hangs answers the sessions that it has, and takes no new ones: the sessions of the proof would not notice, but an
//! application that connects again would. So new sessions are tried, too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use connect::ConnSpec;

use super::failures::Tally;
use super::servers::Registry;
use super::{Lasting, Watch};
use crate::client::Client;
use crate::fault::Site;

/// The pause between two questions to each node.
const BEAT: Duration = Duration::from_millis(500);
/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause between two new sessions of a node.
const NEW_PAUSE: Duration = Duration::from_secs(2);
/// For how long a node takes no new session before that is news: a busy host is slow to start a process.
const CLOSED_MIN: Duration = Duration::from_secs(5);

/// A node that does not answer.
struct Away {
    since: Instant,
    why: String,
}

/// What is known of a node.
struct Presence {
    session: Lasting,
    away: Option<Away>,
    /// It has answered in this proof.
    was_there: bool,
    /// It answers, but takes no new session.
    closed: Option<Away>,
    /// When a new session is due.
    next_new: Instant,
}

impl Presence {
    fn new(spec: ConnSpec) -> Presence {
        let session = Lasting::new(spec, PATIENCE);
        Presence { session, away: None, was_there: false, closed: None, next_new: Instant::now() }
    }

    /// Tries a new session if one is due; returns a period without any that is over.
    fn try_new(&mut self, spec: &ConnSpec) -> Option<Away> {
        let begin = Instant::now();
        if begin < self.next_new {
            return None;
        }
        self.next_new = begin + NEW_PAUSE;
        match Client::connect(spec, PATIENCE) {
            Ok(_) => self.closed.take().filter(is_news),
            Err(error) => {
                self.closed.get_or_insert_with(|| Away { since: begin, why: error.to_string() });
                None
            }
        }
    }
}

fn is_news(closed: &Away) -> bool {
    closed.since.elapsed() >= CLOSED_MIN
}

/// Ends the observation, also when the work panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work`, which is no load of several threads, while the nodes are observed.
pub(super) fn observed<T>(site: &Site, work: impl FnOnce() -> T) -> T {
    if site.nodes.len() < 2 {
        return work();
    }
    let (tally, servers, is_over) = (Tally::default(), Registry::default(), AtomicBool::new(false));
    let begin = Instant::now();
    let end = Mutex::default();
    let watch = Watch { site, tally: &tally, servers: &servers, begin, end, is_over: &is_over };
    let watch = &watch;
    std::thread::scope(|scope| {
        scope.spawn(move || observe(site, watch));
        let _end = End(&is_over);
        work()
    })
}

/// Asks every node again and again until the proof is over, and notes those that were away.
pub(super) fn observe(site: &Site, watch: &Watch<'_>) {
    let mut sessions: Vec<Presence> =
        site.nodes.iter().map(|node| Presence::new(node.spec.clone())).collect();
    let period = |since: Instant| {
        format!(
            "for {:.1} s, {:.0} s after the begin, {}",
            since.elapsed().as_secs_f64(),
            since.duration_since(watch.begin).as_secs_f64(),
            after_faults(site.undone(), watch.begin, since),
        )
    };
    while watch.goes_on() {
        for (node, presence) in site.nodes.iter().zip(&mut sessions) {
            // What a fault of the plan does is no news, nor what follows from it.
            if site.is_disturbed() {
                (presence.away, presence.closed) = (None, None);
                presence.session.lose();
                continue;
            }
            let answer = answers(&mut presence.session);
            presence.was_there |= answer.is_ok();
            match (answer, presence.away.take()) {
                (Ok(()), away) => {
                    if let Some(Away { since, why }) = away {
                        site.note(format!("{} did not answer {}: {why}", node.name, period(since)));
                    }
                    if let Some(Away { since, why }) = presence.try_new(&node.spec) {
                        let (name, period) = (&node.name, period(since));
                        site.note(format!(
                            "{name} took no new session {period}, though open ones were answered: {why}"
                        ));
                    }
                }
                (Err(why), known) => {
                    presence.closed = None;
                    presence.away = Some(known.unwrap_or(Away { since: Instant::now(), why }));
                }
            }
        }
        std::thread::sleep(BEAT);
    }
    for (node, Presence { away, was_there, closed, .. }) in site.nodes.iter().zip(sessions) {
        if let Some(Away { since, why }) = closed.filter(is_news) {
            let begin = since.duration_since(watch.begin).as_secs_f64();
            site.note(format!(
                "{} took no new session from {begin:.0} s after the begin to the end, though open ones were answered: {why}",
                node.name
            ));
        }
        let Some(Away { since, why }) = away else { continue };
        let when = match was_there {
            false => "from the begin to the end".to_owned(),
            true => {
                let begin = since.duration_since(watch.begin).as_secs_f64();
                format!("from {begin:.0} s after the begin to the end")
            }
        };
        let after = match site.undone().filter(|undone| *undone >= watch.begin && *undone <= since) {
            Some(_) => format!(", {}", after_faults(site.undone(), watch.begin, since)),
            None => String::new(),
        };
        site.note(format!(
            "{} did not answer {when}{after}, so nothing is proved about it: {why}",
            node.name
        ));
    }
}

/// How that time lies to the faults of the proof: a node that catches up after one is no sign of anything else.
fn after_faults(undone: Option<Instant>, begin: Instant, since: Instant) -> String {
    match undone.filter(|undone| *undone >= begin && *undone <= since) {
        Some(undone) => {
            let after = since.duration_since(undone).as_secs_f64();
            format!("{after:.0} s after the faults of this proof were undone")
        }
        None => "and no fault of this proof was active".to_owned(),
    }
}

fn answers(session: &mut Lasting) -> Result<(), String> {
    let refused = match session.get() {
        // Without a look at what it waits for: every node is due again in a moment.
        Some(client) => match client.request("select 1") {
            Ok(reply) => reply.error.map(|error| format!("{error}, at: select 1")),
            Err(broken) => Some(broken.to_string()),
        },
        None => {
            Some(session.refused.as_ref().map_or_else(|| "no connection".to_owned(), ToString::to_string))
        }
    };
    let Some(why) = refused else { return Ok(()) };
    session.lose();
    Err(why)
}
