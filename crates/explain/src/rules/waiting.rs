//! SES-13: clients that wait in a pooler for a connection of their pool, which the server does not see.

mod holders;
pub(crate) mod outside;
mod paused;
mod refused;

use super::costly::plain;
use super::paste::word;
use crate::case::{Case, Lines, Thing};
use crate::node_time::{self, FOR_CPU};
use crate::rule::Need::{Any, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use holders::Holder;
use record::finding::{Level, Severity};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "SES-13",
    title: "clients wait in a pooler for a connection of their pool",
    needs: &[Any(&[Field("pool", "clients_waiting"), Field("pooler", "size")])],
    limits: "a client waits in half of the looks, and clients wait for 10 % of the time that they need a connection; high from 50 % on; low where the server \
        itself is busy, or nearly all of its time goes into one kind of wait; or the database is paused in the \
        pooler: high if a client waits; or clients are sent away: high from one a second on; or max_client_conn is reached in half of the looks; where \
        the console is not read: three clients are \
        connected for each session of the server, of which nine tenths are at work, then medium (ours)",
    judge,
    links: &[
        "https://www.pgbouncer.org/usage.html#show-pools",
        "https://www.pgbouncer.org/config.html#default_pool_size",
    ],
}];

/// Looks at which a client waits.
const LOOKS_SHARE: f64 = 0.5;
/// Of the time in which clients need a connection, that in which they wait for one.
const WAIT_SHARE_MIN: f64 = 0.1;
const WAIT_SHARE_HIGH: f64 = 0.5;
/// The longest wait where the pooler counts no times.
const MAX_WAIT_US: f64 = 100_000.0;
/// Of the time in transactions, that in which no query runs.
const THINK_SHARE: f64 = 0.5;
/// A client that has waited for so long at a look waits for another to leave: its wait is in no counter before it is served.
const LASTING_US: f64 = 1e6;
/// By how much more time in transactions than connections can have shows that the time of waiting is in it.
const WITH_WAIT_FACTOR: f64 = 1.2;
/// Of the time in which connections are given out, that in which they are in a transaction: less of it, and clients keep connections that they do not use.
const USED_SHARE: f64 = 0.5;
/// The server has no room for more sessions from here on: of its CPUs, and of its time that goes into waits for a CPU or one other thing.
const CPU_BUSY_PCT: f64 = 80.0;
const CPU_WAIT_SHARE: f64 = 0.25;
const ONE_WAIT_SHARE: f64 = 0.6;
/// Fewer active sessions have room to wait.
const ACTIVE_MIN: f64 = 1.0;
/// Characters of a name.
const NAME_CHARS: usize = 40;

/// What keeps the connections of a pool.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kept {
    /// Clients that wait, in open transactions, for something else than the server: so much of the time.
    Thinking(f64),
    /// Clients that keep the connection until they disconnect; the share of the time in which they use it, and whether more of them could work at once.
    BySessions(f64, bool),
    /// Queries, on a server that has room for more of them, or has none, or that is not known.
    Working(Option<bool>),
}

/// What a pooler counted for a pool in the whole recording.
struct Queue<'a> {
    pool: Thing<'a>,
    waiting: f64,
    clients: f64,
    servers: f64,
    max_wait_us: f64,
    /// Of its database: time in transactions, in queries and of waiting, and how many transactions; `None` where they are not counted.
    times: Option<(f64, f64, f64, f64)>,
    /// Time of clients in the queue that were not served within a look.
    lasting_us: f64,
    /// That is what most looks show.
    is_lasting: bool,
}

impl<'a> Queue<'a> {
    /// `None` if hardly a client waits.
    fn of(case: &'a Case, pool: Thing<'a>) -> Option<Queue<'a>> {
        let waiting = pool.lines.series("clients_waiting")?;
        let points = waiting.points();
        let seen = points.iter().filter(|point| point.max >= 1.0).count() as f64;
        if seen < points.len() as f64 * LOOKS_SHARE {
            return None;
        }
        let mean = |field: &str| pool.lines.mean(field).unwrap_or(0.0);
        let is_same = |other: &Thing<'_>| {
            ["pooler", "database"].iter().all(|field| other.lines.word(field) == pool.lines.word(field))
        };
        let sum = |field: &str| -> f64 {
            case.at("pool", pool.place).filter(is_same).filter_map(|other| other.lines.sum(field)).sum()
        };
        let servers: f64 = ["servers_active", "servers_free"]
            .iter()
            .flat_map(|field| {
                let same = case.at("pool", pool.place).filter(is_same);
                same.filter_map(|other| other.lines.mean(field))
            })
            .sum();
        let given_us = servers * pool.lines.ticks.window().length_us() as f64;
        let times =
            apart((sum("transaction_us"), sum("query_us"), sum("wait_us"), sum("transactions")), given_us);
        let (lasting_us, is_lasting) = lasting(pool.lines);
        Some(Queue {
            pool,
            waiting: waiting.mean(),
            clients: waiting.mean() + mean("clients_active"),
            servers: mean("servers_active") + mean("servers_free"),
            max_wait_us: pool.lines.max("max_wait_us").unwrap_or(0.0),
            times: Some(times).filter(|times| times.0 > 0.0),
            lasting_us,
            is_lasting,
        })
    }

    /// Of the time in which clients need a connection, that in which they wait for one.
    fn wait_share(&self) -> Option<f64> {
        // Where no transaction has ended, those that are open have the connections.
        let open_us = || self.is_lasting.then(|| (self.given_us(), 0.0));
        let (transaction_us, counted_us) = self.times.map(|times| (times.0, times.2)).or_else(open_us)?;
        let wait_us = counted_us.max(self.lasting_us);
        Some(wait_us / (wait_us + transaction_us).max(1.0))
    }

    /// Whether no connection to the server was seen, and none was used: one that is closed after each use is gone at most looks.
    fn is_unconnected(&self) -> bool {
        let open = ["servers_active", "servers_free"].iter().filter_map(|field| self.pool.lines.max(field));
        open.fold(0.0, f64::max) < 1.0 && self.times.is_none_or(|times| times.3 < 1.0)
    }

    fn is_long(&self) -> bool {
        self.wait_share().map_or(self.max_wait_us >= MAX_WAIT_US, |share| share >= WAIT_SHARE_MIN)
    }

    /// For how long its connections were given to clients.
    fn given_us(&self) -> f64 {
        let lines = self.pool.lines;
        lines.mean("servers_active").unwrap_or(0.0) * lines.ticks.window().length_us() as f64
    }

    fn kept(&self, case: &Case) -> Kept {
        let node = self.pool.place;
        let (transaction_us, query_us) = self.times.map_or((0.0, 0.0), |times| (times.0, times.1));
        let used = transaction_us / self.given_us().max(1.0);
        if self.pool.lines.word("pool_mode") == "session" && (used < USED_SHARE || self.is_lasting) {
            return Kept::BySessions(used, used >= USED_SHARE && has_room(case, node) != Some(false));
        }
        // A transaction is counted when it ends: of those that are open the server knows whether they have a query.
        let think = if used < USED_SHARE {
            let idle =
                case.one("server", node).and_then(|server| server.mean("sessions_idle_in_transaction"));
            let active = self.pool.lines.mean("servers_active").unwrap_or(0.0);
            (idle.unwrap_or(0.0) / active.max(1.0)).min(1.0)
        } else {
            0.0
        };
        let counted = if transaction_us > 0.0 { 1.0 - query_us / transaction_us } else { 0.0 };
        let think = think.max(counted);
        if think >= THINK_SHARE { Kept::Thinking(think) } else { Kept::Working(has_room(case, node)) }
    }

    /// The connections of its database, where those are fewer than its pool may have (`max_db_connections`).
    fn limit(&self) -> Option<f64> {
        let most = self.pool.lines.last("database_max")?;
        self.pool.lines.last("size").is_none_or(|size| most < size).then_some(most)
    }

    /// So many connections would leave no client waiting, if these go on as they do.
    fn needed(&self) -> f64 {
        let share = self.wait_share().unwrap_or(0.0);
        (self.servers / (1.0 - share).max(0.05)).min(self.clients).ceil()
    }
}

/// The time of clients in the queue at looks whose first one waits for long, and whether most looks are such. pgbouncer counts a wait when it ends: clients
/// that wait for a session to end are in none of its totals, and its longest wait grows by a second each second.
fn lasting(pool: &Lines) -> (f64, bool) {
    let (Some(waiting), Some(longest)) = (pool.series("clients_waiting"), pool.series("max_wait_us")) else {
        return (0.0, false);
    };
    let looks = waiting.points().len().max(1) as f64;
    let look_us = pool.ticks.window().length_us() as f64 / looks;
    let pairs = waiting.points().iter().zip(longest.points());
    let long: Vec<f64> = pairs
        .filter(|(_, longest)| longest.mean() >= LASTING_US.max(look_us))
        .map(|(waiting, _)| waiting.mean())
        .collect();
    (long.iter().sum::<f64>() * look_us, long.len() as f64 >= looks * LOOKS_SHARE)
}

/// The times of transactions and queries without that of waiting for a connection: pgbouncer takes the begin of both when the client sends its first query, so
/// that they are more than its connections can have been given out for.
fn apart(times: (f64, f64, f64, f64), given_us: f64) -> (f64, f64, f64, f64) {
    let (transaction_us, query_us, wait_us, transactions) = times;
    if transaction_us <= given_us * WITH_WAIT_FACTOR {
        return times;
    }
    ((transaction_us - wait_us).max(1.0), (query_us - wait_us).max(0.0), wait_us, transactions)
}

/// Whether a server could work for more sessions at once; `None` where that is not known.
fn has_room(case: &Case, node: &str) -> Option<bool> {
    let time = node_time::all(case).iter().find(|time| time.node == node)?;
    let no_limit = [&[node_time::ON_CPU, node_time::UNACCOUNTED][..], &node_time::ELSEWHERE].concat();
    let waits = time.parts.iter().filter(|part| !no_limit.contains(&part.name.as_str()));
    let most = waits.map(|part| part.share).fold(0.0, f64::max);
    let host = case.host_of(node).and_then(|host| case.one("host", host))?;
    let busy: f64 = ["cpu_user_pct", "cpu_system_pct"].iter().filter_map(|field| host.mean(field)).sum();
    let is_full = busy >= CPU_BUSY_PCT || node_time::share_of_part(time, FOR_CPU) >= CPU_WAIT_SHARE;
    Some(!is_full && (time.active < ACTIVE_MIN || most < ONE_WAIT_SHARE))
}

fn judge(case: &Case) -> Answer {
    let at_work = case.things("pool").filter(|pool| !paused::is_paused(pool));
    let queues: Vec<Queue<'_>> = at_work.filter_map(|pool| Queue::of(case, pool)).collect();
    let (unconnected, queues): (Vec<Queue<'_>>, Vec<Queue<'_>>) =
        queues.into_iter().partition(Queue::is_unconnected);
    let (shared, queues) = holders::shared(queues);
    let mut claims: Vec<Claim> = shared.iter().map(|queues| holders::of_database(case, queues)).collect();
    claims.extend(queues.iter().filter(|queue| queue.is_long()).map(|queue| claim(case, queue)));
    claims.extend(paused::claims(case));
    claims.extend(refused::claims(case));
    claims.extend(outside::claims(case));
    claims.extend(
        unconnected.iter().map(|queue| paused::unconnected(&queue.pool, queue.waiting, queue.max_wait_us)),
    );
    Answer::of(claims, || "clients that wait in poolers".to_string())
}

/// What keeps the connections, as the end of a claim.
fn described(kept: Kept) -> String {
    match kept {
        Kept::Thinking(think) => format!(
            "these are in a transaction without a query for {} of the time: the clients do something else with their transactions open",
            units::percent(think)
        ),
        Kept::BySessions(used, _) => format!(
            "these are given to clients until they disconnect (pool_mode = session){}",
            if used < USED_SHARE { ", and mostly not used" } else { "" }
        ),
        Kept::Working(Some(true)) => {
            "these work all the time, and the server has room for more of them".to_string()
        }
        Kept::Working(Some(false)) => {
            "these work all the time, and the server itself has no room for more of them".to_string()
        }
        Kept::Working(None) => "these work all the time".to_string(),
    }
}

/// The remedy, with what limits the pool in front.
fn with_limit(queue: &Queue<'_>, text: String) -> String {
    match queue.limit() {
        Some(most) => format!(
            "raise max_db_connections, which is {} while the pool may have {}; {text}",
            units::short(most),
            units::short(queue.pool.lines.last("size").unwrap_or(most))
        ),
        None => text,
    }
}

fn claim(case: &Case, queue: &Queue<'_>) -> Claim {
    let pool = queue.pool.lines;
    let kept = queue.kept(case);
    let limit = queue.limit();
    let size = limit.or(pool.last("size")).unwrap_or(queue.servers);
    let share = queue.wait_share();
    let holder = Holder::of(case, queue, kept);
    let severity = match (kept, share) {
        // Short requests wait for one long statement of others.
        (Kept::Working(Some(false)), Some(share)) if holder.is_some() && share >= WAIT_SHARE_HIGH => {
            Severity::Medium
        }
        (Kept::Working(Some(false)), _) => Severity::Low,
        (_, Some(share)) if share >= WAIT_SHARE_HIGH => Severity::High,
        _ => Severity::Medium,
    };
    let what = holder
        .as_ref()
        .map_or_else(|| described(kept), |holder| format!("{}; {}", described(kept), holder.words()));
    let (text, command) = remedy(kept, queue);
    let text = with_limit(queue, text);
    let text = if holder.is_some() { format!("{}; {text}", holders::APART) } else { text };
    let look = format!("$ psql {} -c 'SHOW POOLS' -c 'SHOW STATS'", word(pool.word("pooler")));
    let mut commands = vec![look.as_str()];
    commands.extend(command.as_deref());
    Claim::new(
        severity,
        Level::DiscriminatingCounter,
        format!(
            "{}: {} clients of role {} wait in pgbouncer for one of the {} connections {}database {}, for up to {}; {what}",
            queue.pool.place,
            units::short(queue.waiting.round().max(1.0)),
            plain(pool.word("user"), NAME_CHARS),
            units::short(size),
            if limit.is_some() { "that max_db_connections allows to " } else { "to " },
            plain(pool.word("database"), NAME_CHARS),
            units::us(queue.max_wait_us)
        ),
    )
    .on_node(queue.pool.place)
    .during([pool.ticks.window()])
    .number("clients_waiting", queue.waiting)
    .number("pool_size", size)
    .number("max_wait_us", queue.max_wait_us)
    .with(share, |claim, share| claim.number("wait_share", share))
    .because(format!(
        "SHOW POOLS of pgbouncer ({}): on average {} clients have a connection and {} wait; {} connections to the server are open, pool_mode is {}",
        plain(pool.word("pooler"), NAME_CHARS * 2),
        units::short(queue.clients - queue.waiting),
        units::short(queue.waiting),
        units::short(queue.servers),
        plain(pool.word("pool_mode"), NAME_CHARS)
    ))
    .with(queue.times, |claim, (transaction_us, query_us, wait_us, transactions)| {
        claim.because(format!(
            "SHOW STATS: a transaction waits {} for its connection and has it for {}, of which queries take {}",
            units::us(wait_us / transactions.max(1.0)),
            units::us(transaction_us / transactions.max(1.0)),
            units::us(query_us / transactions.max(1.0))
        ))
    })
    .with(queue.is_lasting.then_some(()), |claim, ()| {
        claim.because(
            "the first of these clients has waited for longer than a look: pgbouncer counts its wait only when it is served, so it is not in SHOW STATS",
        )
    })
    .with(holder.as_ref(), |claim, holder| claim.number("holder_share", holder.share).because(holder.evidence()))
    .not("the server's own queues: in its views these clients do not exist")
    .remedy(text, &commands)
}

/// How to make a pool larger: the command, and where its size stands. A database may have a size of its own, which no command of the console changes.
fn larger(queue: &Queue<'_>, needed: &str) -> (String, String) {
    let pool = queue.pool.lines;
    let console = word(pool.word("pooler"));
    if queue.limit().is_some() {
        return (
            format!("$ psql {console} -c 'SET max_db_connections = {needed}' -c 'SHOW DATABASES'"),
            "max_db_connections, also in pgbouncer.ini; the command needs a role in admin_users, and holds until pgbouncer ends".to_string(),
        );
    }
    if pool.flag("size_of_database") == Some(true) {
        return (
            format!("$ psql {console} -c 'RELOAD' -c 'SHOW DATABASES'"),
            format!(
                "pool_size = {needed} in the line of database {} in pgbouncer.ini, then RELOAD, which needs a role in admin_users",
                plain(pool.word("database"), NAME_CHARS)
            ),
        );
    }
    (
        format!("$ psql {console} -c 'SET default_pool_size = {needed}' -c 'SHOW POOLS'"),
        "default_pool_size, also in pgbouncer.ini; the command needs a role in admin_users, and holds until pgbouncer ends"
            .to_string(),
    )
}

/// What to do about each reason, and the command besides the look at the console.
fn remedy(kept: Kept, queue: &Queue<'_>) -> (String, Option<String>) {
    let needed = units::short(queue.needed());
    let (larger, place) = larger(queue, &needed);
    match kept {
        Kept::Thinking(_) => (
            format!(
                "end transactions before the program waits for anything else (another service, its user, its own computing), and send their statements \
                 together: that frees the connections that there are. Until then, a pool of about {needed} serves these clients without a queue \
                 ({place}): connections that wait cost the server little"
            ),
            Some(larger),
        ),
        Kept::BySessions(used, true) => (
            format!(
                "they are in a transaction for {} of the time, so more clients need more connections: a pool of about {needed} ({place}); or set \
                 pool_mode = transaction for this database, so that clients take turns, if its programs keep nothing in their sessions",
                units::percent(used.min(1.0))
            ),
            Some(larger),
        ),
        Kept::BySessions(..) => (
            "set pool_mode = transaction for this database, if its programs keep nothing in their sessions (SET, LISTEN, temporary tables, prepared statements \
             before pgbouncer 1.21); else let them close connections that they do not use"
                .to_string(),
            None,
        ),
        Kept::Working(Some(false)) => (
            "leave the pool as it is: more connections would wait in the server instead. Make the statements cheaper that take its time (the other findings), \
             or the server larger"
                .to_string(),
            None,
        ),
        Kept::Working(_) => (
            format!(
                "enlarge the pool step by step, to about {needed} ({place}), as long as transactions do not take longer; a few connections for each CPU of \
                 the server are enough"
            ),
            Some(larger),
        ),
    }
}
