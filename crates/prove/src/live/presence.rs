//! Which nodes answered while a proof was at work. One that is away although no fault of the proof is active makes its answer one about fewer nodes.

use std::time::{Duration, Instant};

use super::{Lasting, Watch};
use crate::fault::Site;

/// The pause between two questions to each node.
const BEAT: Duration = Duration::from_millis(500);
/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

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
}

/// Asks every node again and again until the proof is over, and notes those that were away.
pub(super) fn observe(site: &Site, watch: &Watch<'_>) {
    let mut sessions: Vec<Presence> = site
        .nodes
        .iter()
        .map(|node| Presence {
            session: Lasting::new(node.spec.clone(), PATIENCE),
            away: None,
            was_there: false,
        })
        .collect();
    while watch.goes_on() {
        for (node, Presence { session, away, was_there }) in site.nodes.iter().zip(&mut sessions) {
            // What a fault of the plan does is no news, nor what follows from it.
            if site.is_disturbed() {
                *away = None;
                session.lose();
                continue;
            }
            let answer = answers(session);
            *was_there |= answer.is_ok();
            match (answer, away.take()) {
                (Ok(()), Some(Away { since, why })) => site.note(format!(
                    "{} did not answer for {:.1} s, {:.0} s after the begin, {}: {why}",
                    node.name,
                    since.elapsed().as_secs_f64(),
                    since.duration_since(watch.begin).as_secs_f64(),
                    after_faults(site.undone(), watch.begin, since),
                )),
                (Ok(()), None) => {}
                (Err(why), known) => *away = Some(known.unwrap_or(Away { since: Instant::now(), why })),
            }
        }
        std::thread::sleep(BEAT);
    }
    for (node, Presence { away, was_there, .. }) in site.nodes.iter().zip(sessions) {
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
