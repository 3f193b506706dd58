//! What one statement costs between two nodes: round trips and the time of one.
//!
//! Before the matrix is measured, each pair runs a few statements alone, over one connection:
//!
//! - **Round trips are counted by the data node**, where it has `pg_stat_statements`: with `track_utility` that view counts every
//!   statement the connect node sent on behalf of ours (`START TRANSACTION`, `DECLARE`, `FETCH`, ...), and `postgres_fdw` waits for the
//!   answer of each. The first statements, which open the connection, are not counted. A count that is no whole number per statement
//!   was disturbed by others, or an entry of the view was evicted in between: it is not used.
//! - **The time of one round trip** is measured where `postgres_fdw` is between the nodes: inside an open transaction a select by key
//!   takes three of them (`DECLARE`, `FETCH`, `CLOSE`), so a third of what it takes longer than on a row of the entry's own is one. For
//!   other engines it is a ping on the way that `up --delay` has put between the two, or else one from here to the data node.
//!
//! Without a count, the engine's profile has the round trips of a statement by key, as far as they were measured with a known delay between the
//! nodes. Else they are only estimated: what a cell's median has beyond the slower of its two nodes' own medians, divided by the time of one. Where
//! the network is fast that is mostly the work of the second server, which reads and plans the statement once more. The updates of these probes set
//! a field to what it already is: no value changes.

use super::Operation;
use super::shape::Shape;
use crate::failure::Failure;
use connect::control::Control;
use engines::Cluster;
use engines::profile::{KeyedTrips, NodeLinks};
use lab::local::NodeWays;

use record::statistics::median;
use record::totals::{Distance, RoundTripsBy};
use std::collections::HashMap;
use std::time::Instant;
use workloads::driving::Keyed;

/// Statements that open what is opened once per connection.
const FIRST_STATEMENTS: usize = 8;
/// Statements counted per pair and operation.
const COUNTED_STATEMENTS: usize = 40;
/// Statements timed per pair, and pings per node.
const TIMED_STATEMENTS: usize = 40;
/// Rows tried while looking for keys of a node.
const ROWS_TRIED_MAX: u64 = 100_000;
/// How far from a whole number a count per statement may be.
const WHOLE_WITHIN: f64 = 0.04;
/// Round trips of a select by key of `postgres_fdw` inside an open transaction: DECLARE, FETCH, CLOSE (`postgres_fdw.c`).
const FDW_TRIPS_IN_TRANSACTION: f64 = 3.0;

/// What was learned before the matrix.
#[derive(Debug, Default)]
pub(super) struct Probe {
    counted: HashMap<(&'static str, usize, usize), f64>,
    ping_us: HashMap<(usize, usize), f64>,
    /// As the engine's profile has them.
    known: Option<KeyedTrips>,
}

impl Probe {
    /// What round trips say of a cell: `own_us` is the slower of the two nodes' own medians, `cell_us` the cell's.
    pub(super) fn explain(
        &self,
        operation: Operation,
        (connect, data): (usize, usize),
        own_us: f64,
        cell_us: f64,
    ) -> Distance {
        let ping_us = self.ping_us.get(&(connect, data)).copied().filter(|ping| *ping > 0.0);
        let counted = self.counted.get(&(operation.name(), connect, data));
        let counted = counted.map(|count| (*count, RoundTripsBy::Counted));
        let known = self.known.map(|known| (operation.of(known), RoundTripsBy::Known));
        match counted.or(known) {
            Some((count, by)) => Distance {
                round_trips: Some(count),
                round_trips_by: Some(by),
                ping_us,
                predicted_us_p50: ping_us.map(|ping| (own_us + count * ping).round()),
            },
            None => {
                let estimate =
                    ping_us.map(|ping| (((cell_us - own_us) / ping).max(0.0) * 10.0).round() / 10.0);
                let round_trips_by = estimate.map(|_| RoundTripsBy::Estimated);
                Distance { round_trips: estimate, round_trips_by, ping_us, predicted_us_p50: None }
            }
        }
    }
}

/// A node with the statements of the probe prepared.
struct Node {
    control: Control,
    select: postgres::Statement,
    update: postgres::Statement,
    /// Schema of `pg_stat_statements`, and whether it shows that entries were evicted.
    counter: Option<Counter>,
    keys: Vec<String>,
}

struct Counter {
    sql: String,
}

/// Runs the probes of all pairs whose rows are elsewhere. What one pair does not show stays unknown.
///
/// # Errors
/// In words, when the nodes cannot be queried at all.
pub(super) fn probe(
    cluster: &Cluster,
    ways: &NodeWays,
    shape: &Shape,
    rows: &dyn Keyed,
) -> Result<Probe, String> {
    let mut probe = Probe { known: cluster.engine.keyed_trips, ..Probe::default() };
    if !shape.pairs.iter().any(|(connect, data)| data.is_some_and(|data| data != *connect)) {
        return Ok(probe);
    }
    let mut nodes: Vec<Option<Node>> = (0..cluster.nodes.len())
        .map(|at| {
            let needed = shape.pairs.iter().any(|(connect, data)| *connect == at || *data == Some(at));
            if needed { Node::open(cluster, at, shape, rows).ok() } else { None }
        })
        .collect();
    let is_fdw = cluster.engine.links == NodeLinks::ForeignServers;
    for (connect, data) in shape.pairs.iter().filter_map(|(connect, data)| Some((*connect, (*data)?))) {
        if connect == data {
            continue;
        }
        // Both nodes are used at once: the one runs, the other counts.
        let (Some(mut entry), Some(mut owner)) = (nodes[connect].take(), nodes[data].take()) else {
            continue;
        };
        for operation in &shape.operations {
            if let Some(count) = entry.count(&mut owner, *operation) {
                probe.counted.insert((operation.name(), connect, data), count);
            }
        }
        // Where `up` has put a distance between the nodes, it is not that between here and them.
        let [from, to] = [connect, data].map(|node| &cluster.nodes[node]);
        let ping = match ways.between(&from.name, &to.name, &to.spec) {
            _ if is_fdw => entry.hop_us(&owner.keys.clone()),
            Some(way) => connect::control::connect(&way).ok().and_then(|mut there| ping_us(&mut there)),
            None => ping_us(&mut owner.control),
        };
        if let Some(ping) = ping {
            probe.ping_us.insert((connect, data), ping);
        }
        nodes[connect] = Some(entry);
        nodes[data] = Some(owner);
    }
    Ok(probe)
}

impl Node {
    fn open(cluster: &Cluster, at: usize, shape: &Shape, rows: &dyn Keyed) -> Result<Node, Failure> {
        let mut control = connect::control::connect(&cluster.nodes[at].spec)?;
        let failed = |error| Failure::caused("cannot prepare a statement of the probe", error);
        let [select, update] = rows.probes();
        let select = control.prepare(&select).map_err(failed)?;
        let update = control.prepare(&update).map_err(failed)?;
        let counter = Counter::of(&mut control);
        let is_here = |key: &String| {
            shape.owners.as_ref().is_some_and(|owners| usize::from(owners.node_of(key.as_bytes())) == at)
        };
        let tried = (0..rows.dataset().rows.min(ROWS_TRIED_MAX)).map(|row| rows.key(row));
        let keys = tried.filter(is_here).take(COUNTED_STATEMENTS).collect();
        Ok(Node { control, select, update, counter, keys })
    }

    fn execute(&mut self, operation: Operation, key: &str) -> Result<(), postgres::Error> {
        match operation {
            Operation::Select => self.control.query(&self.select, &[&key]).map(drop),
            Operation::Update => self.control.execute(&self.update, &[&key]).map(drop),
        }
    }

    /// Statements that reach `owner` for one of ours; `None` where that is unknown.
    fn count(&mut self, owner: &mut Node, operation: Operation) -> Option<f64> {
        let keys = owner.keys.clone();
        if keys.is_empty() {
            return None;
        }
        let key = |at: usize| keys[at % keys.len()].as_str();
        for at in 0..FIRST_STATEMENTS {
            self.execute(operation, key(at)).ok()?;
        }
        let (before, dropped_before) = owner.calls()?;
        for at in 0..COUNTED_STATEMENTS {
            self.execute(operation, key(at)).ok()?;
        }
        let (after, dropped_after) = owner.calls()?;
        // The question before is counted by the one after.
        let calls = (after - before - 1) as f64;
        let each = calls / COUNTED_STATEMENTS as f64;
        let is_whole = (each - each.round()).abs() <= WHOLE_WITHIN && each >= 0.0;
        (dropped_before == dropped_after && is_whole).then(|| each.round())
    }

    /// All calls of this database's statements, and how often entries were thrown out.
    fn calls(&mut self) -> Option<(i64, i64)> {
        let counter = self.counter.as_ref()?;
        let row = self.control.query_one(counter.sql.as_str(), &[]).ok()?;
        Some((row.get(0), row.get(1)))
    }

    /// One round trip of `postgres_fdw` to the node that owns `keys`, in microseconds.
    fn hop_us(&mut self, keys: &[String]) -> Option<f64> {
        let own = self.keys.clone();
        let (there, there_spread) = self.in_transaction_us(keys)?;
        let (here, here_spread) = if own.is_empty() { (0.0, 0.0) } else { self.in_transaction_us(&own)? };
        // A difference within the noise is none.
        let longer = there - here;
        let hop = (longer / FDW_TRIPS_IN_TRANSACTION * 10.0).round() / 10.0;
        (longer > there_spread + here_spread).then_some(hop)
    }

    /// Median of a select inside an open transaction, and its median absolute deviation.
    fn in_transaction_us(&mut self, keys: &[String]) -> Option<(f64, f64)> {
        if keys.is_empty() {
            return None;
        }
        let mut transaction = self.control.transaction().ok()?;
        let mut times = Vec::with_capacity(TIMED_STATEMENTS);
        for at in 0..FIRST_STATEMENTS + TIMED_STATEMENTS {
            let begun = Instant::now();
            transaction.query(&self.select, &[&keys[at % keys.len()]]).ok()?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        transaction.rollback().ok()?;
        let times = times.split_off(FIRST_STATEMENTS);
        let middle = median(times.clone())?;
        Some((middle, median(times.into_iter().map(|time| (time - middle).abs()))?))
    }
}

/// One round trip of a session, in microseconds.
fn ping_us(control: &mut Control) -> Option<f64> {
    let mut times = Vec::with_capacity(TIMED_STATEMENTS);
    for _ in 0..TIMED_STATEMENTS {
        let begun = Instant::now();
        control.simple_query("").ok()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    median(times)
}

impl Counter {
    /// `pg_stat_statements` of the database, if it is there, may be read and counts utility statements. Only what the extension made is read:
    /// beside it anybody may have put something of these names.
    fn of(control: &mut Control) -> Option<Counter> {
        let found = control
            .query_opt(
                "select pg_catalog.current_setting('pg_stat_statements.track_utility', true),
                        pg_catalog.current_setting('pg_stat_statements.track', true),
                        pg_catalog.max(pg_catalog.quote_ident(n.nspname)) filter (where c.relname = 'pg_stat_statements'),
                        pg_catalog.max(pg_catalog.quote_ident(n.nspname)) filter (where c.relname = 'pg_stat_statements_info')
                 from pg_catalog.pg_extension e
                 join pg_catalog.pg_depend d on d.refobjid = e.oid and d.deptype = 'e'
                      and d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass and d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
                 join pg_catalog.pg_class c on c.oid = d.objid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                 where e.extname = 'pg_stat_statements'",
                &[],
            )
            .ok()??;
        let (utility, track): (Option<&str>, Option<&str>) = (found.get(0), found.get(1));
        if utility != Some("on") || !matches!(track, Some("top" | "all")) {
            return None;
        }
        let schema: Option<&str> = found.get(2);
        let view = format!("{}.pg_stat_statements", schema?);
        let dropped = match found.get::<_, Option<&str>>(3) {
            Some(schema) => format!("(select dealloc from {schema}.pg_stat_statements_info)"),
            None => "0::int8".to_string(),
        };
        let sql = format!(
            "select coalesce(sum(calls), 0)::int8, {dropped} from {view}
             where dbid = (select oid from pg_catalog.pg_database where datname = current_database())"
        );
        control.query_one(sql.as_str(), &[]).ok()?;
        Some(Counter { sql })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_cell_is_predicted_and_an_uncounted_one_estimated() {
        let mut probe = Probe::default();
        probe.counted.insert(("select", 0, 1), 5.0);
        probe.ping_us.insert((0, 1), 100.0);
        probe.ping_us.insert((1, 0), 100.0);
        let counted = probe.explain(Operation::Select, (0, 1), 80.0, 600.0);
        assert_eq!(
            counted,
            Distance {
                round_trips: Some(5.0),
                round_trips_by: Some(RoundTripsBy::Counted),
                ping_us: Some(100.0),
                predicted_us_p50: Some(580.0)
            }
        );
        let estimated = probe.explain(Operation::Update, (1, 0), 80.0, 405.0);
        assert_eq!(
            estimated,
            Distance {
                round_trips: Some(3.3),
                round_trips_by: Some(RoundTripsBy::Estimated),
                ping_us: Some(100.0),
                predicted_us_p50: None
            }
        );
        let unknown = probe.explain(Operation::Update, (2, 0), 80.0, 405.0);
        assert_eq!(unknown, Distance::default());
        // What an engine is known to need is not what a slow second server looks like.
        probe.known = Some(KeyedTrips { select: 1.0, update: 3.0 });
        let known = probe.explain(Operation::Update, (1, 0), 80.0, 405.0);
        assert_eq!((known.round_trips, known.round_trips_by), (Some(3.0), Some(RoundTripsBy::Known)));
        assert_eq!(known.predicted_us_p50, Some(380.0));
        assert_eq!(probe.explain(Operation::Select, (0, 1), 80.0, 600.0), counted);
    }
}
