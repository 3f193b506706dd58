//! Tables for whose rows sessions waited: a wait for the end of a transaction names no table, the waiter's own lock and its statement do.

use super::{Case, Waiter};
use record::statement::{self, Verb};
use std::collections::BTreeMap;

/// Locks by which sessions wait for rows.
const OF_ROWS: [&str; 2] = ["transactionid", "tuple"];

impl Waiter {
    /// Whether it waits for a row, or for the transaction that has changed or locked one.
    pub(crate) fn is_for_a_row(&self) -> bool {
        OF_ROWS.contains(&self.lock_type.as_str())
    }

    /// The table whose row it waits for: as the server has it, or the one that its statement writes or locks rows of, if there is only one.
    fn table_of_row(&self) -> Option<String> {
        let recorded = if self.row_of.is_empty() { &self.relation } else { &self.row_of };
        if !recorded.is_empty() {
            return Some(recorded.clone());
        }
        let parsed = statement::parse(&self.query).ok()?;
        let is_one = match parsed.verb {
            Verb::Insert | Verb::Update | Verb::Delete => true,
            Verb::Select => parsed.tables.len() == 1,
            _ => false,
        };
        let table = parsed.tables.first().filter(|_| is_one)?;
        // As the server writes it: in quotes only where it must be.
        let written = |name: &str| match statement::is_name(name) && !name.contains('.') {
            true => name.to_string(),
            false => statement::quoted(name),
        };
        let schema = table.schema.as_ref().map(|schema| format!("{}.", written(schema)));
        Some(format!("{}{}", schema.unwrap_or_default(), written(&table.name)))
    }
}

impl Case {
    /// The tables for whose rows sessions of a node waited, those with the most looks first, each with its share of the looks that show one; behind one session
    /// only, if it is named.
    pub(crate) fn rows_waited_for(&self, node: &str, root: Option<u64>) -> Vec<(String, f64)> {
        let mut seen: BTreeMap<String, u64> = BTreeMap::new();
        let is_its = |waiter: &&Waiter| root.is_none_or(|root| waiter.root == root) && waiter.is_for_a_row();
        for waiter in self.waiters(node).filter(is_its) {
            if let Some(table) = waiter.table_of_row() {
                *seen.entry(table).or_default() += waiter.ticks.readings();
            }
        }
        let all = seen.values().sum::<u64>().max(1) as f64;
        let mut shares: Vec<(String, f64)> =
            seen.into_iter().map(|(table, looks)| (table, looks as f64 / all)).collect();
        shares.sort_by(|left, right| right.1.total_cmp(&left.1));
        shares
    }
}
