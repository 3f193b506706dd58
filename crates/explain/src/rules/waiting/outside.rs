//! SES-13 of a pooler whose console is not read: more clients are connected to it than the server has sessions, and these are always at work.

use super::{NAME_CHARS, has_room};
use crate::case::{Case, Thing};
use crate::rule::Claim;
use crate::rules::costly::plain;
use crate::units;
use record::finding::{Level, Severity};

/// Of the sessions of a server, those that are at work on average, from which on none is free for a client that comes.
pub(crate) const ALWAYS_AT_WORK_MIN: f64 = 0.9;
/// Of the connections of a pool, those that are at work on average at the looks, where no other session is there.
const OF_POOL_MIN: f64 = 0.6;
/// Clients for each session: fewer may be connected and have nothing to do.
const CLIENTS_PER_SESSION_MIN: f64 = 3.0;

/// One claim for each such pooler.
pub(super) fn claims(case: &Case) -> Vec<Claim> {
    case.things("pooler").filter_map(|pooler| claim(case, &pooler)).collect()
}

/// Sessions of a server and how many of them are at work, if that is nearly always each of them.
pub(crate) fn always_at_work(case: &Case, node: &str) -> Option<(f64, f64)> {
    let server = case.one("server", node)?;
    let (all, active) = (server.mean("sessions_total")?, server.mean("sessions_active")?);
    (active >= 1.0 && active >= all * ALWAYS_AT_WORK_MIN).then_some((all, active))
}

/// The same where the server has no more sessions than one pool: between two of its clients each is idle for a moment.
fn of_pool(case: &Case, node: &str, size: f64) -> Option<(f64, f64)> {
    let server = case.one("server", node)?;
    let (all, active) = (server.mean("sessions_total")?, server.mean("sessions_active")?);
    (all <= size + 1.0 && active >= size * OF_POOL_MIN).then_some((all, active))
}

fn claim(case: &Case, pooler: &Thing<'_>) -> Option<Claim> {
    let node = pooler.place;
    let (size, clients) = (pooler.lines.last("size")?, pooler.lines.mean("clients")?);
    let (all, active) = always_at_work(case, node).or_else(|| of_pool(case, node, size))?;
    if clients < all.max(size) * CLIENTS_PER_SESSION_MIN {
        return None;
    }
    let place = plain(pooler.lines.word("pooler"), NAME_CHARS * 2);
    let room = has_room(case, node);
    let at_server = match room {
        Some(true) => ", which has room for more of them",
        Some(false) => ", which itself has no room for more of them",
        None => "",
    };
    Some(
        Claim::new(
            if room == Some(false) { Severity::Low } else { Severity::Medium },
            Level::CoOccurrence,
            format!(
                "{node}: {} clients are connected to pgbouncer at {place}, and of the {} sessions of the server{at_server} {} are at work on average: clients \
                    wait in the pooler for one of them (default_pool_size = {})",
                units::short(clients.round()),
                units::short(all.round()),
                units::short(active),
                units::short(size)
            ),
        )
        .on_node(node)
        .during([pooler.lines.ticks.window()])
        .number("clients", clients)
        .number("sessions", all)
        .because(format!("sockets of its port, counted every 2 s; on average {} of {} sessions are active", units::short(active), units::short(all)))
        .lacking("how many clients wait, and for how long: its console is not read (see the part about what is missing)")
        .remedy(
            "look at its queue first, as a role in stats_users: if cl_waiting is not 0 all the time, let the pool open more sessions, or make transactions \
                shorter",
            &[
                "-- in pgbouncer.ini: stats_users = ..., then RELOAD; then psql -p (its port) -U ... pgbouncer -c 'SHOW POOLS'",
                &format!("-- in pgbouncer.ini: default_pool_size = {}, then RELOAD", units::short(size * 2.0)),
            ],
        ),
    )
}
