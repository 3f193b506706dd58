//! SES-13: which statement keeps the connections that others wait for, and pools of several roles that share the connections of one database.

use super::{Kept, NAME_CHARS, Queue};
use crate::case::Case;
use crate::node_time;
use crate::rule::Claim;
use crate::rules::costly::plain;
use crate::rules::paste::word;
use crate::units;
use record::finding::{Level, Severity};

/// Of the session time in the database, that of one statement which keeps its connections.
const HOLDER_SHARE_MIN: f64 = 0.4;
/// A statement that takes so long (milliseconds) keeps a connection from many short ones.
const HOLDER_MS_MIN: f64 = 50.0;
/// Characters of a statement in a claim.
const STATEMENT_CHARS: usize = 100;
/// Pools of one database that share its connections.
const SHARING_MIN: usize = 2;
/// Of the size of a pool, its connections where something else limits them.
const LIMITED_SHARE: f64 = 0.8;
/// What keeps short requests from waiting behind long statements.
pub(super) const APART: &str = "give the long statements connections of their own: a second entry of the database in pgbouncer.ini with a small pool_size, for \
    reports alone, so that short requests do not queue behind them, and make that statement cheaper";

/// The statement that keeps the connections of a pool.
pub(super) struct Holder {
    pub(super) share: f64,
    text: String,
    ms: Option<f64>,
    calls_per_s: Option<f64>,
    application: Option<(String, f64)>,
}

impl Holder {
    /// `None` where no statement is long and frequent enough to be it.
    pub(super) fn of(case: &Case, queue: &Queue<'_>, kept: Kept) -> Option<Holder> {
        if !matches!(kept, Kept::Working(_)) {
            return None;
        }
        let time = node_time::all(case).iter().find(|time| time.node == queue.pool.place)?;
        let database = queue.pool.lines.word("database");
        let is_its = |of: &str| of == database || of.is_empty();
        let most = time
            .statements
            .iter()
            .filter(|one| is_its(&one.database))
            .max_by(|left, right| left.share.total_cmp(&right.share))?;
        let is_long = most.mean_ms.is_none_or(|ms| ms >= HOLDER_MS_MIN);
        let by = time.by.iter().find(|by| by.name == "application");
        let application =
            by.and_then(|by| by.shares.iter().max_by(|left, right| left.1.total_cmp(&right.1)).cloned());
        (most.share >= HOLDER_SHARE_MIN && is_long).then(|| Holder {
            share: most.share,
            text: plain(&most.text, STATEMENT_CHARS),
            ms: most.mean_ms,
            calls_per_s: most.calls_per_s,
            application: application.filter(|(name, share)| !name.is_empty() && *share >= HOLDER_SHARE_MIN),
        })
    }

    /// As the end of a claim.
    pub(super) fn words(&self) -> String {
        format!(
            "{} of their time is one statement{}{}: {}",
            units::percent(self.share.min(1.0)),
            self.application
                .as_ref()
                .map_or(String::new(), |(name, _)| format!(" of {}", plain(name, NAME_CHARS))),
            self.ms.map_or(String::new(), |ms| format!(" of {} each", units::us(ms * 1e3))),
            self.text
        )
    }

    pub(super) fn evidence(&self) -> String {
        let calls = self
            .calls_per_s
            .map_or(String::new(), |calls| format!(", executed {} times a second", units::short(calls)));
        format!("the statement that keeps the connections{calls}: {}", self.text)
    }
}

/// Queues of several roles for the connections of one database, which something limits for all of them together; and the other queues.
pub(super) fn shared(queues: Vec<Queue<'_>>) -> (Vec<Vec<Queue<'_>>>, Vec<Queue<'_>>) {
    let (mut found, mut others): (Vec<Vec<Queue<'_>>>, Vec<Queue<'_>>) = (vec![], vec![]);
    let key = |queue: &Queue<'_>| {
        let word = |name: &str| queue.pool.lines.word(name).to_string();
        (queue.pool.place.to_string(), word("pooler"), word("database"))
    };
    for queue in queues {
        match found.iter_mut().find(|group| key(&group[0]) == key(&queue)) {
            Some(group) => group.push(queue),
            None => found.push(vec![queue]),
        }
    }
    let is_limited = |group: &Vec<Queue<'_>>| {
        let is_small = |queue: &Queue<'_>| {
            queue.pool.lines.last("size").is_some_and(|size| queue.servers < size * LIMITED_SHARE)
        };
        let has_limit = group[0].pool.lines.last("database_max").is_some();
        group.len() >= SHARING_MIN && (has_limit || group.iter().all(is_small))
    };
    let mut limited = vec![];
    for group in found {
        if is_limited(&group) { limited.push(group) } else { others.extend(group) }
    }
    (limited, others)
}

/// What limits the connections of all pools together.
fn limit_of(most: Option<f64>, servers: f64) -> String {
    match most {
        Some(most) => format!(
            "the {} connections that all pools of it may have together (max_db_connections)",
            units::short(most)
        ),
        None => format!(
            "{} connections, fewer than each pool may have: a limit of the whole database (max_db_connections), of the role (max_user_connections) or of the \
             server",
            units::short(servers.round().max(1.0))
        ),
    }
}

/// About roles that wait for the connections of one database.
pub(super) fn of_database(case: &Case, queues: &[Queue<'_>]) -> Claim {
    let pool = queues[0].pool;
    let lines = pool.lines;
    let same = case.at("pool", pool.place).filter(|other| {
        ["pooler", "database"].iter().all(|field| other.lines.word(field) == lines.word(field))
    });
    let servers: f64 = same
        .flat_map(|other| {
            ["servers_active", "servers_free"].into_iter().filter_map(move |field| other.lines.mean(field))
        })
        .sum();
    let waiting: f64 = queues.iter().map(|queue| queue.waiting).sum();
    let longest = queues.iter().map(|queue| queue.max_wait_us).fold(0.0, f64::max);
    let opened =
        case.one("server", pool.place).and_then(|server| server.rate("sessions_opened")).unwrap_or(0.0);
    let most = lines.last("database_max");
    let limit = limit_of(most, servers);
    let console = word(lines.word("pooler"));
    let needed = (queues.len() as f64).max(most.unwrap_or(servers) * 2.0);
    let is_churned = opened >= queues.len() as f64;
    Claim::new(
        if longest >= 1e6 || is_churned { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!(
            "{}: {} clients of {} roles wait in pgbouncer for database {}, for up to {}, because of {limit}{}",
            pool.place,
            units::short(waiting.round().max(1.0)),
            queues.len(),
            plain(lines.word("database"), NAME_CHARS),
            units::us(longest),
            if is_churned {
                format!(
                    ": each role has a pool of its own, so it closes the connection of one to open that of another, {} a second",
                    units::short(opened)
                )
            } else {
                String::new()
            }
        ),
    )
    .on_node(pool.place)
    .during([lines.ticks.window()])
    .number("clients_waiting", waiting)
    .number("pools_waiting", queues.len() as f64)
    .number("connections", servers)
    .number("max_wait_us", longest)
    .number("sessions_opened_per_s", opened)
    .because(format!(
        "SHOW POOLS of pgbouncer: a pool for each role and database, of {} connections each; together they have {}",
        units::short(lines.last("size").unwrap_or(0.0)),
        units::short(servers)
    ))
    .not("the server's own queues: in its views these clients do not exist")
    .remedy(
        format!(
            "let all roles' pools have room at once: max_db_connections of about {} (in pgbouncer.ini, then RELOAD), or let the program connect as one role \
             and set \
             the tenant's with SET LOCAL ROLE, so that all clients share one pool",
            units::short(needed)
        ),
        &[
            &format!("$ psql {console} -c 'SHOW POOLS' -c 'SHOW DATABASES' -c 'SHOW SERVERS'"),
            &format!("$ psql {console} -c 'SET max_db_connections = {needed:.0}' -c 'SHOW POOLS'"),
        ],
    )
}
