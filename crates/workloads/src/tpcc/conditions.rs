//! The consistency conditions of TPC-C (clause 3.3.2), and its keys and counts.

use std::collections::BTreeSet;

use prove::conditions::{
    Answer, Condition, Conditions, Extent, Names, Node, Outcome, Probe, ProveError, Table,
};

mod extent;
mod list;
mod warehouses;

pub use list::*;

/// What fills the tables.
const FILL: &str = "pgfathom load tpcc -s 10";

/// The tables; what ORDER and NEW-ORDER are called differs between those who implement the benchmark: `order` is a word of SQL.
const TABLES: &[Table] = &[
    table("history", &["history"]),
    table("order_line", &["order_line"]),
    table("warehouse", &["warehouse"]),
    table("district", &["district"]),
    table("customer", &["customer"]),
    table("orders", &["orders", "oorder", "\"order\""]),
    table("new_order", &["new_order", "new_orders"]),
    table("stock", &["stock"]),
    // Every node has a copy of it.
    Table { place: "item", called: &["item"], is_copied: true },
];

const fn table(place: &'static str, called: &'static [&'static str]) -> Table {
    Table { place, called, is_copied: false }
}

/// Places of the queries that look for rows of no warehouse, and the column of each.
const STRANGE: [(&str, &str); 9] = [
    ("d_w_id is unknown", "d_w_id"),
    ("c_w_id is unknown", "c_w_id"),
    ("s_w_id is unknown", "s_w_id"),
    ("no_w_id is unknown", "no_w_id"),
    ("o_w_id is unknown", "o_w_id"),
    ("ol_w_id is unknown", "ol_w_id"),
    ("ol_supply_w_id is unknown", "ol_supply_w_id"),
    ("h_w_id is unknown", "h_w_id"),
    ("h_c_w_id is unknown", "h_c_w_id"),
];

/// Warehouses that are not there, as a condition on the column `{}`.
fn set_strange(node: &mut Node, condition: &str) {
    for (place, column) in STRANGE {
        node.set_place(place, condition.replace("{}", column));
    }
}

/// The conditions of TPC-C.
#[derive(Debug)]
pub struct TpccConditions;

impl Conditions for TpccConditions {
    fn name(&self) -> &'static str {
        super::TPCC
    }

    fn all(&self) -> &'static [Condition] {
        &ALL
    }

    fn about(&self) -> &'static str {
        "the consistency conditions of TPC-C (clause 3.3.2), and its keys and counts"
    }

    fn examples(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("tpcc DBNAME", "after a load, after a run, or during one"),
            (
                "tpcc --conditions C10,X13 DBNAME",
                "only the conditions on rows that transactions of several warehouses write",
            ),
        ]
    }

    fn codes(&self) -> &'static str {
        "C1 to C12 or X13 to X25"
    }

    fn units(&self) -> &'static str {
        "warehouses"
    }

    fn not_covered(&self) -> &'static str {
        "text columns, prices, taxes, discounts and dates; S_QUANTITY; which carrier; of orders that are not delivered, which customer, items and \
         amounts: before any transaction has run, verify tpcc compares them with what was loaded"
    }

    fn fill(&self) -> &'static str {
        FILL
    }

    fn tables(&self) -> &'static [Table] {
        TABLES
    }

    /// HISTORY, with what other nodes have about this node's customers, whose column `payments` holds how many payments a row stands for; and
    /// ORDER-LINE, with what other nodes have about this node's stock.
    fn complete(&self, names: &mut Names) {
        for (place, column) in STRANGE {
            names.set(place, format!("{column} is null"));
        }
        let history = names.get("history");
        let paid = format!(
            "(select h_c_w_id, h_c_d_id, h_c_id, h_amount, 1::bigint as payments from {history}) payment"
        );
        let supplied = names.get("order_line").to_owned();
        names.set("paid", paid);
        names.set("supplied", supplied);
    }

    fn probes(&self) -> &'static [Probe] {
        &PROBES
    }

    fn extent(&self, nodes: &mut [Node], only: Option<(i64, i64)>) -> Result<Extent, ProveError> {
        let (from, to, count) = extent::warehouses(nodes, only)?;
        let added = Some(extent::orders_since_load(nodes, from, to)?);
        Ok(Extent { from, to, count, added, is_part: only.is_some() })
    }

    fn judge_copies(&self, copies: &mut [Node], wanted: &mut BTreeSet<Condition>) -> Vec<Answer> {
        if !wanted.remove(&X15) {
            return Vec::new();
        }
        let (looked_at, outcome) = warehouses::same_items(copies);
        vec![Answer { condition: X15, looked_at, outcome }]
    }

    fn judge_whole(
        &self,
        nodes: &mut [Node],
        extent: &Extent,
        wanted: &mut BTreeSet<Condition>,
    ) -> Result<Vec<Answer>, ProveError> {
        let mut answers = Vec::new();
        let mut answer = |condition, (looked_at, outcome)| {
            answers.push(Answer { condition, looked_at, outcome });
        };
        let not = |why: &str| (0, Outcome::DoesNotApply { why: why.to_owned() });
        if wanted.contains(&C11)
            && let Some(why) =
                extent::why_not_as_loaded(nodes, extent.added.unwrap_or(0), extent.from, extent.to)?
        {
            wanted.remove(&C11);
            answer(C11, not(&why));
        }
        if wanted.remove(&X15) {
            match nodes.len() {
                1 => answer(
                    X15,
                    not("compares the copies of several nodes, and here one node has rows that are read"),
                ),
                _ => answer(X15, warehouses::same_items(nodes)),
            }
        }
        if extent.is_part {
            for condition in [X16, X17] {
                if wanted.remove(&condition) {
                    answer(condition, not("applies to all warehouses, but --warehouses selects only some"));
                }
            }
        } else if wanted.contains(&X16) || wanted.contains(&X17) {
            let ids = warehouses::know_warehouses(nodes)?;
            if wanted.remove(&X16) {
                answer(X16, warehouses::numbered_from_one(&ids));
            }
        }
        Ok(answers)
    }
}
