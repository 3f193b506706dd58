//! Statements as nodes: at READ COMMITTED each statement has its own snapshot, so a cycle through two statements of a transaction is legal, and one
//! through a single statement is not.
//!
//! ```text
//! nodes   0 .. n          transactions, as writers
//!         n .. n + s      statements that read several rows
//! edges   ww, wr          between transactions
//!         wr              writer -> statement that saw it
//!         rw              statement -> the writer that overwrote what it saw
//! ```
//!
//! A cycle contains at least one statement (otherwise it is G0 or G1c): it saw a write, but not an earlier one. With one statement
//! that is a fractured statement; several statements saw writers in opposite orders. Statements that write are not nodes: PostgreSQL looks at a row again when
//! another transaction has just changed it, and that read is not part of the snapshot.
//!
//! Every such cycle is also a cycle of whole transactions, so only transactions within cycles are checked.

use super::anomaly::{Class, Finding, Order, Step};
use super::cycle::{self, Wanted};
use super::direct::foreign_reads;
use super::graph::{Graph, Kinds, RW, WR, for_each_edge};
use super::scc::{Components, View, components};
use super::versions::{INITIAL, NONE, Part, Versions};

/// A statement that read several rows.
struct Statement {
    txn: u32,
    reads: Vec<u32>,
}

/// Cycles through statements, one per component at most and at most `count` of each class.
pub(super) fn find(versions: &Versions<'_>, cycles: &Components, count: usize) -> Vec<Finding> {
    let statements = statements(versions, cycles);
    if statements.is_empty() {
        return Vec::new();
    }
    let txns = versions.parts.len() as u32;
    let mut edges: Vec<(u32, u32, u32)> = Vec::new();
    for_each_edge(versions, |from, to, kind| {
        if kind != RW && cycles.of(from) == cycles.of(to) && !cycles.is_alone(from) {
            edges.push((from, to, kind));
        }
    });
    for (place, statement) in statements.iter().enumerate() {
        let node = txns + place as u32;
        for at in &statement.reads {
            let slot = versions.slots[*at as usize];
            let writer = versions.writers[slot as usize];
            if writer < INITIAL {
                edges.push((writer, node, WR));
            }
            versions.successors(slot, |next| {
                if next != statement.txn {
                    edges.push((node, next, RW));
                }
            });
        }
    }
    let graph = Graph::of_edges(txns + statements.len() as u32, &edges);
    drop(edges);
    let view = View {
        graph: &graph,
        kinds: Kinds::WW.and(Kinds::WR).and(Kinds::RW),
        is_doubled: false,
        within: None,
    };
    let found = components(&view);
    let mut findings = Vec::new();
    if found.count == 0 {
        return findings;
    }
    for (wanted, class) in
        [(Class::ReadSkew, Class::FracturedStatement), (Class::LongFork, Class::StatementFork)]
    {
        let wanted = Wanted { class: wanted, order: Order::Data, is_derived: false };
        let cycles = cycle::find(&graph, &found, wanted, count);
        findings.extend(cycles.iter().filter_map(|steps| finding(class, steps, &statements, txns)));
    }
    if findings.is_empty()
        && let Some(steps) = cycle::any(&view, &found)
    {
        // The search for the shortest one gave up.
        let is_one = steps.iter().filter(|step| step.from >= txns).count() == 1;
        let class = if is_one { Class::FracturedStatement } else { Class::StatementFork };
        findings.extend(finding(class, &steps, &statements, txns));
    }
    findings
}

/// The statements of transactions in cycles that read several rows of others and write nothing.
fn statements(versions: &Versions<'_>, cycles: &Components) -> Vec<Statement> {
    let ops = versions.history.ops();
    let txns = versions.parts.len() as u32;
    let mut statements: Vec<Statement> = Vec::new();
    for txn in cycles.members().take_while(|node| *node < txns) {
        if versions.parts[txn as usize] != Part::Whole {
            continue;
        }
        let writes = |number: u16| {
            versions.history.ops_of(txn).iter().any(|op| op.statement == number && op.kind.is_write())
        };
        let reads = foreign_reads(versions, txn);
        for group in reads.chunk_by(|a, b| ops[*a].statement == ops[*b].statement) {
            let number = ops[group[0]].statement;
            if group.len() > 1 && !writes(number) {
                statements.push(Statement { txn, reads: group.iter().map(|at| *at as u32).collect() });
            }
        }
    }
    statements.retain(|statement| statement.reads.iter().all(|at| versions.slots[*at as usize] != NONE));
    statements
}

/// A cycle of whole transactions, with the reads of its statements. `None` for a cycle without a statement: another class covers it.
fn finding(class: Class, steps: &[Step], statements: &[Statement], txns: u32) -> Option<Finding> {
    let statement = |node: u32| node.checked_sub(txns).map(|place| &statements[place as usize]);
    let whole = |node: u32| statement(node).map_or(node, |statement| statement.txn);
    let ops: Vec<u32> =
        steps.iter().filter_map(|step| statement(step.from)).flat_map(|one| one.reads.clone()).collect();
    let cycle =
        steps.iter().map(|step| Step { from: whole(step.from), to: whole(step.to), ..*step }).collect();
    (!ops.is_empty()).then_some(Finding { ops, ..Finding::cycle(class, cycle) })
}
