//! The consistency conditions of TPC-B: the balances of accounts, tellers and branches against each other and against the history.
//!
//! `pgbench` has two habits that break some of them on purpose: it empties the history when it starts (unless with `-n`), and its `simple-update`
//! leaves tellers and branches out. Such a state looks like one that lost rows of the history, or the updates of branches: then the condition cannot
//! be judged. Only a history that is empty altogether leaves nothing to compare with.

use std::collections::BTreeSet;

use prove::conditions::{
    Access, Answer, Condition, Conditions, Extent, Node, Outcome, Probe, ProveError, Table,
};

use super::schema::{ACCOUNTS, BRANCHES, HISTORY, TELLERS};

/// Tellers have what branches have.
pub const B1: Condition = Condition::new(1, "B1", "sum(TBALANCE) = sum(BBALANCE)", "sum");
/// Accounts have what branches have.
pub const B2: Condition = Condition::new(2, "B2", "sum(ABALANCE) = sum(BBALANCE)", "sum");
/// Branches have the balances that the history implies.
pub const B3: Condition = Condition::new(3, "B3", "sum(BBALANCE) = sum(DELTA)", "sum");
/// So does each account.
pub const B4: Condition = Condition::new(4, "B4", "ABALANCE = sum(DELTA) of the account", "account");
/// So does each teller.
pub const B5: Condition = Condition::new(5, "B5", "TBALANCE = sum(DELTA) of the teller", "teller");
/// So does each branch.
pub const B6: Condition =
    Condition::new(6, "B6", "BBALANCE = sum(DELTA) of the branch", "branch").plural("branches");

/// All of them, in the order of the report.
pub const ALL: [Condition; 6] = [B1, B2, B3, B4, B5, B6];

/// What fills the tables.
const FILL: &str = "pgfathom load tpcb -s 10";

const TABLES: &[Table] = &[
    Table { place: "branches", called: &[BRANCHES], is_copied: false },
    Table { place: "tellers", called: &[TELLERS], is_copied: false },
    Table { place: "accounts", called: &[ACCOUNTS], is_copied: false },
    Table { place: "history", called: &[HISTORY], is_copied: false },
];

static PROBES: [Probe; 4] = [
    Probe {
        conditions: &[B4],
        access: Access::WholeTable,
        columns: &["aid", "abalance", "changes"],
        sql: "select coalesce(abalance, 0) <> coalesce(changes, 0) or a.aid is null as b4,
                coalesce(a.aid, h.aid) as aid, abalance, changes
            from (select aid, abalance from {accounts} where aid between ({from} - 1) * 100000 + 1 and {to} * 100000) a
            full join (select aid, sum(delta) as changes from {history}
                where aid between ({from} - 1) * 100000 + 1 and {to} * 100000 group by aid) h
            on h.aid = a.aid",
        others: None,
    },
    Probe {
        conditions: &[B1, B2, B3],
        access: Access::Once,
        columns: &["accounts", "tellers", "branches", "history"],
        sql: "select tellers <> branches as b1, accounts <> branches as b2, branches <> history as b3,
                accounts, tellers, branches, history
            from (select (select coalesce(sum(abalance), 0) from {accounts}) as accounts,
                (select coalesce(sum(tbalance), 0) from {tellers}) as tellers,
                (select coalesce(sum(bbalance), 0) from {branches}) as branches,
                (select coalesce(sum(delta), 0) from {history}) as history) s",
        others: None,
    },
    Probe {
        conditions: &[B5],
        access: Access::Once,
        columns: &["tid", "tbalance", "changes"],
        sql: "select coalesce(tbalance, 0) <> coalesce(changes, 0) or t.tid is null as b5,
                coalesce(t.tid, h.tid) as tid, tbalance, changes
            from (select tid, tbalance from {tellers}) t
            full join (select tid, sum(delta) as changes from {history} group by tid) h on h.tid = t.tid",
        others: None,
    },
    Probe {
        conditions: &[B6],
        access: Access::Once,
        columns: &["bid", "bbalance", "changes"],
        sql: "select coalesce(bbalance, 0) <> coalesce(changes, 0) or b.bid is null as b6,
                coalesce(b.bid, h.bid) as bid, bbalance, changes
            from (select bid, bbalance from {branches}) b
            full join (select bid, sum(delta) as changes from {history} group by bid) h on h.bid = b.bid",
        others: None,
    },
];

/// The conditions of TPC-B.
#[derive(Debug)]
pub struct TpcbConditions;

impl Conditions for TpcbConditions {
    fn name(&self) -> &'static str {
        super::DATASET.name
    }

    fn all(&self) -> &'static [Condition] {
        &ALL
    }

    fn about(&self) -> &'static str {
        "the balances of TPC-B"
    }

    fn examples(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn codes(&self) -> &'static str {
        "B1 to B6"
    }

    fn units(&self) -> &'static str {
        "branches"
    }

    fn not_covered(&self) -> &'static str {
        "the branch of accounts and tellers, fillers and times: verify tpcb compares them with what was loaded"
    }

    fn fill(&self) -> &'static str {
        FILL
    }

    fn tables(&self) -> &'static [Table] {
        TABLES
    }

    fn probes(&self) -> &'static [Probe] {
        &PROBES
    }

    /// A transaction writes rows of up to three nodes, and each sum is over all of them.
    fn is_read_by_node(&self) -> bool {
        false
    }

    fn extent(&self, nodes: &mut [Node], only: Option<(i64, i64)>) -> Result<Extent, ProveError> {
        const DOING: &str = "counting the branches";
        let range = only.map_or(String::new(), |(from, to)| format!(" where bid between {from} and {to}"));
        let (branches, history) = (place(nodes, "branches"), place(nodes, "history"));
        // Each table has its own statement: Citus plans no subquery on one spread table beside columns of another.
        let extent = format!("select min(bid), max(bid), count(*) from {branches}{range}");
        let found = numbers(nodes, DOING, &extent)?;
        let entries = format!("select count(*) from {history}");
        let added = numbers(nodes, "counting the history", &entries)?.first().copied().flatten();
        let [Some(from), Some(to), Some(count)] = found[..] else {
            return Err(ProveError::Empty {
                what: format!("the table {BRANCHES} holds no branch{range}"),
                hint: format!("load it: {FILL}"),
            });
        };
        Ok(Extent {
            from,
            to,
            count: count as u64,
            added: added.map(|added| added as u64),
            is_part: only.is_some(),
        })
    }

    fn judge_whole(
        &self,
        nodes: &mut [Node],
        extent: &Extent,
        wanted: &mut BTreeSet<Condition>,
    ) -> Result<Vec<Answer>, ProveError> {
        let mut answers = Vec::new();
        let mut leave = |conditions: &[Condition], outcome: &Outcome| {
            let left = conditions.iter().copied().filter(|condition| wanted.remove(condition));
            answers.extend(left.map(|condition| Answer {
                condition,
                looked_at: 0,
                outcome: outcome.clone(),
            }));
        };
        let not = |why: &str| Outcome::DoesNotApply { why: why.to_owned() };
        if extent.is_part {
            let why = "applies to all branches, but the range selects only some";
            leave(&[B1, B2, B3, B5, B6], &not(why));
        }
        let sum = |column: &str, table: &str| {
            format!("(select coalesce(sum({column}), 0)::bigint from {})", place(nodes, table))
        };
        let sql = format!(
            "select {}, {}, {}, {}",
            sum("abalance", "accounts"),
            sum("tbalance", "tellers"),
            sum("bbalance", "branches"),
            sum("delta", "history")
        );
        let found = numbers(nodes, "summing the balances", &sql)?;
        if let [Some(accounts), Some(tellers), Some(branches), Some(history)] = found[..]
            && tellers == branches
            && history != branches
        {
            let figures = format!("accounts {accounts}, branches {branches}, history {history}");
            let open = |why: &str| Outcome::Failed { error: format!("{why} ({figures})") };
            match () {
                () if accounts == branches && extent.added == Some(0) => leave(
                    &[B3, B4, B5, B6],
                    &not(
                        "needs the history, and it is empty: pgbench empties it when it starts, unless with -n",
                    ),
                ),
                () if accounts == branches => leave(
                    &[B3, B4, B5, B6],
                    &open(
                        "the history does not account for the balances: rows of it are lost, or pgbench emptied it, as it does without -n",
                    ),
                ),
                () if accounts == history => leave(
                    &[B2, B3, B5, B6],
                    &open(
                        "tellers and branches lack what accounts and history have: updates are lost, or simple-update left them out",
                    ),
                ),
                () => leave(
                    &[B2, B3, B4, B5, B6],
                    &open(
                        "neither branches nor the history account for the balances of accounts: rows are lost, or pgbench emptied the history and \
                         simple-update ran",
                    ),
                ),
            }
        }
        Ok(answers)
    }
}

fn place(nodes: &[Node], table: &str) -> String {
    nodes.first().map(|node| node.names().get(table).to_owned()).unwrap_or_default()
}

/// The numbers of the one row of a query.
fn numbers(nodes: &mut [Node], doing: &'static str, sql: &str) -> Result<Vec<Option<i64>>, ProveError> {
    let node = nodes.first_mut().ok_or(ProveError::Answer { doing })?;
    let rows = node.rows(sql).map_err(ProveError::sql(doing))?;
    let row = rows.first().ok_or(ProveError::Answer { doing })?;
    Ok(row.iter().map(|value| value.as_deref().and_then(|value| value.parse().ok())).collect())
}
