//! Dead rows that searches by index step over again and again. A search of a B-tree marks the entries whose rows are dead for every snapshot, and the next one
//! skips them (`kill_prior_tuple` of src/backend/access/index/indexam.c): where thousands of searches read as many blocks as the first one did, something still
//! needs these rows.

use super::DEAD_ROWS_HARM;
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Claim;
use crate::rules::costly::is_name_of;
use crate::units;
use record::finding::StatementTime;
use record::statement;

/// Searches of a table's indexes, of which the first ones would have marked the dead rows.
const SEARCHES_MIN: f64 = 200.0;
/// Blocks of one of them, and rows that it finds.
const BLOCKS_MIN: f64 = 200.0;
const ROWS_MAX: f64 = 50.0;

/// A table whose searches step over dead rows.
pub(super) struct Stepped {
    /// Its name, with the schema.
    pub relation: String,
    /// The share of the session time of statements that read it so.
    pub share: f64,
    /// Of one search.
    blocks: f64,
    /// Dead rows, and living ones.
    dead: f64,
    live: f64,
}

impl Stepped {
    /// A claim about what needs these rows, with what the searches show.
    pub(super) fn described(&self, claim: Claim) -> Claim {
        claim.number("dead_rows", self.dead).because(format!(
            "{} has {} dead rows beside {} living ones, and each search of its indexes touches {} blocks for its few rows; searches mark the entries of rows \
             that nothing needs any more and the next ones skip them: here they do not",
            self.relation,
            units::count(self.dead),
            units::count(self.live),
            units::short(self.blocks)
        ))
    }
}

/// The table of a node that costs most so.
pub(super) fn of_node(case: &Case, node: &str) -> Option<Stepped> {
    let found = case.at("table", node).filter_map(|table| of_table(case, &table));
    found.max_by(|left, right| left.share.total_cmp(&right.share))
}

fn of_table(case: &Case, table: &Thing<'_>) -> Option<Stepped> {
    let sum = |field: &str| table.lines.sum(field).unwrap_or(0.0);
    let (live, dead) = (table.lines.last("live_rows")?, table.lines.last("dead_rows")?);
    let searches = sum("index_scans");
    // The next vacuum makes an end of it, unless it can remove none of them, which VAC-04 counts.
    let is_left = dead >= DEAD_ROWS_HARM && dead >= live && sum("autovacuums") + sum("vacuums") == 0.0;
    if !is_left || searches < SEARCHES_MIN || sum("seq_scans") > 0.0 {
        return None;
    }
    let blocks = (sum("blocks_hit") + sum("blocks_read")) / searches;
    if blocks < BLOCKS_MIN || sum("index_rows") / searches > ROWS_MAX {
        return None;
    }
    // A bitmap scan marks nothing.
    let is_bitmap = |node: Thing<'_>| {
        node.lines.word("kind") == "Bitmap Heap Scan"
            && node.lines.word("relation") == table.lines.word("relation")
    };
    if case.at("plan_node", table.place).any(is_bitmap) {
        return None;
    }
    let time = node_time::all(case).iter().find(|time| time.node == table.place && !time.is_idle())?;
    let relation = table.lines.word("relation").to_string();
    let reads = |one: &&StatementTime| {
        let is_wide = one.blocks >= Some(BLOCKS_MIN) && one.rows.is_some_and(|rows| rows <= ROWS_MAX);
        let names =
            |parsed: statement::Statement| parsed.tables.iter().any(|name| is_name_of(name, &relation));
        is_wide && statement::parse(&one.text).is_ok_and(names)
    };
    let share: f64 = time.statements.iter().filter(reads).map(|one| one.share).sum();
    (share > 0.0).then_some(Stepped { relation, share: share.min(1.0), blocks, dead, live })
}
