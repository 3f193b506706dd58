//! Waits for the locks of tables, added up for each table: the sessions at the root and those that wait change from look to look.

use super::{Case, THINGS_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// Sessions at the root of a table's queue, and statements of it, that are kept.
const ROOTS_MAX: usize = 100;
const STATEMENTS_MAX: usize = 200;
/// Modes that statements want which read or write rows.
const WEAK: [&str; 3] = ["AccessShareLock", "RowShareLock", "RowExclusiveLock"];

/// Waits for locks of one table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TableQueue {
    /// Waits seen, one for each session and look.
    pub seen: u64,
    /// Sessions at the root.
    pub roots: BTreeSet<u64>,
    /// Statements that wanted a lock with which others cannot write or read, or that were at the root, each with how often it was seen.
    pub statements: BTreeMap<String, u64>,
}

/// Statements that a session at the root of a lock queue was seen with: one that works on shows others, by hash.
#[derive(Clone, Debug, Default)]
pub(super) struct RootStatements(BTreeMap<(String, u64), BTreeSet<u64>>);

impl RootStatements {
    fn keep(&mut self, node: &str, root: u64, statement: &str) {
        let key = (node.to_string(), root);
        if statement.is_empty() || self.0.len() >= THINGS_MAX && !self.0.contains_key(&key) {
            return;
        }
        let seen = self.0.entry(key).or_default();
        if seen.len() < STATEMENTS_MAX {
            seen.insert(record::statement::fnv(statement.bytes()));
        }
    }
}

impl Case {
    /// How many statements a session at the root of a lock queue was seen with.
    pub(crate) fn statements_of_root(&self, node: &str, root: &str) -> usize {
        let pid = root.parse().unwrap_or(0);
        self.root_statements.0.get(&(node.to_string(), pid)).map_or(0, BTreeSet::len)
    }

    /// Takes a wait: the session at the root, the relation, the mode that is wanted, the statement that wants it, and that at the root.
    pub(super) fn keep_queue(
        &mut self,
        node: &str,
        root: u64,
        [relation, mode, query, blocker]: [String; 4],
    ) {
        self.root_statements.keep(node, root, &blocker);
        if relation.is_empty() || self.table_queues.len() >= THINGS_MAX {
            return;
        }
        let queue = self.table_queues.entry((node.to_string(), relation)).or_default();
        queue.seen += 1;
        if queue.roots.len() < ROOTS_MAX {
            queue.roots.insert(root);
        }
        let wanted = Some(query).filter(|_| !WEAK.contains(&mode.as_str()));
        for statement in [wanted, Some(blocker)].into_iter().flatten() {
            if queue.statements.len() < STATEMENTS_MAX && !statement.is_empty() {
                *queue.statements.entry(statement).or_default() += 1;
            }
        }
    }

    /// Tables of a node for whose locks sessions waited.
    pub(crate) fn table_queues<'a>(
        &'a self,
        node: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a TableQueue)> {
        let of_node = self.table_queues.iter().filter(move |((other, _), _)| other == node);
        of_node.map(|((_, relation), queue)| (relation.as_str(), queue))
    }
}
