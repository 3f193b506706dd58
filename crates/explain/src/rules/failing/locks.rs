//! A full table of locks: how many locks it has room for, what takes so many, and how many it should have.

use crate::case::{Case, Thing};
use crate::rules::costly::parts_of;
use crate::units;
use std::collections::BTreeMap;

/// The setting that decides.
pub(super) const SETTING: &str = "max_locks_per_transaction";
/// Partitions from which on a table takes many locks.
const PARTS_MIN: f64 = 16.0;
/// A larger table of locks takes some 270 bytes of shared memory for each.
const LOCKS_MAX: f64 = 65_536.0;
/// Statements at once for which there should be room.
const AT_ONCE: f64 = 10.0;

/// Tables that are partitioned the most.
pub(super) struct Partitioned<'a> {
    pub(super) table: &'a str,
    parts: f64,
    /// Indexes of a partition.
    indexes: f64,
}

impl Partitioned<'_> {
    /// Locks of a statement that touches all partitions: planning takes one of each of their indexes as well.
    fn locks(&self) -> f64 {
        self.parts * (1.0 + self.indexes)
    }
}

/// The partitioned table whose statements take the most locks, among those that are read or written; else among all.
pub(super) fn partitioned<'a>(case: &'a Case, node: &'a str) -> Option<Partitioned<'a>> {
    let mut tables: BTreeMap<&str, (f64, f64, bool)> = BTreeMap::new();
    let used = |part: &Thing<'_>| {
        let fields = ["seq_scans", "index_scans", "rows_inserted", "rows_updated", "rows_deleted"];
        fields.iter().any(|field| part.lines.sum(field).unwrap_or(0.0) > 0.0)
    };
    for part in case.at("table", node) {
        let lines = part.lines;
        let (parent, parts) = (lines.word("partition_of"), lines.last("parts").unwrap_or(0.0));
        if !parent.is_empty() && parts >= PARTS_MIN {
            let one = tables.entry(parent).or_default();
            let is_used = one.2 || used(&part);
            *one = (one.0.max(parts), one.1.max(lines.last("indexes").unwrap_or(0.0)), is_used);
        }
    }
    let all = tables
        .into_iter()
        .map(|(table, (parts, indexes, is_used))| (is_used, Partitioned { table, parts, indexes }));
    all.max_by(|left, right| left.0.cmp(&right.0).then(left.1.locks().total_cmp(&right.1.locks())))
        .map(|(_, table)| table)
}

/// Locks that the table of locks has room for, all sessions together.
fn room(case: &Case, node: &str) -> Option<f64> {
    let number = |name: &str| case.setting(node, name).and_then(units::setting);
    let sessions = number("max_connections")? + number("max_prepared_transactions").unwrap_or(0.0);
    Some(number(SETTING)? * sessions)
}

/// How the locks are used up, as evidence.
pub(super) fn evidence(case: &Case, node: &str) -> Vec<String> {
    let room = room(case, node).map(|room| {
        format!(
            "the table has room for some {} locks of all sessions together: {SETTING} times the sum of max_connections and max_prepared_transactions",
            units::count(room)
        )
    });
    let partitioned = partitioned(case, node).map(|most| {
        format!(
            "{} has {} partitions with {:.0} indexes each: a statement that cannot leave any out takes some {} locks, and keeps them until its \
             transaction ends",
            most.table,
            units::count(most.parts),
            most.indexes,
            units::count(most.locks())
        )
    });
    room.into_iter().chain(partitioned).collect()
}

/// Shows the setting, the locks by table, and gives the table of locks more room, where it is known how much.
pub(super) fn commands(case: &Case, node: &str) -> Vec<String> {
    let number = |name: &str| case.setting(node, name).and_then(units::setting);
    let most = partitioned(case, node);
    let named = most.as_ref().map_or("the table", |most| most.table);
    let mut commands = vec![
        format!(
            "SELECT name, setting, source FROM pg_settings WHERE name IN ('{SETTING}', 'max_connections', 'max_prepared_transactions');"
        ),
        format!(
            "SELECT coalesce(i.inhparent, l.relation)::regclass AS relation, count(*) AS locks, count(DISTINCT l.pid) AS sessions FROM pg_locks l LEFT JOIN \
             pg_inherits i ON i.inhrelid = l.relation WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = \
             current_database()) GROUP BY 1 ORDER BY 2 DESC LIMIT 10; -- while the statements run, in the database of {}",
            parts_of(named).1.replace(char::is_control, " ")
        ),
    ];
    let wanted = most.zip(number("max_connections")).map(|(most, sessions)| {
        (most.locks() * AT_ONCE / sessions.max(1.0)).max(number(SETTING).unwrap_or(0.0) * 2.0)
    });
    if let Some(wanted) = wanted {
        let wanted = (wanted.clamp(128.0, LOCKS_MAX) as u64).next_power_of_two();
        commands.push(format!("ALTER SYSTEM SET {SETTING} = {wanted}; -- then restart: all sessions end"));
    }
    commands
}
