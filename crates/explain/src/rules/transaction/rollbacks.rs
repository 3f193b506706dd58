//! Rollbacks that no program of a user makes: logical decoding reads each transaction in one that it rolls back, and plans are tried in such transactions.

use crate::case::{Case, Thing};
use crate::rules::costly::lowered;

/// Fewer rollbacks in a recording are no share of anything: the first readings of an idle server have one or two.
const ROLLED_BACK_MIN: f64 = 30.0;
/// Of the rollbacks, those that a program sent as a statement, below which the engine makes the others.
const SENT_SHARE_MIN: f64 = 0.2;

/// Logical slots of a node: a walsender decodes each transaction for each of them.
fn decoders(case: &Case, node: &str) -> f64 {
    case.at("slot", node).filter(|slot| slot.lines.word("kind") == "logical").count() as f64
}

/// Rollbacks a second that can be those of programs: without one per commit and logical slot, and one per plan that was tried.
pub(super) fn of_programs(case: &Case, server: &Thing<'_>) -> f64 {
    let sum = |field: &str| server.lines.sum(field).unwrap_or(0.0);
    let all = sum("xact_rollback");
    let tried = case.at("plan", server.place).count() + case.at("what_if", server.place).count();
    let left = all - tried as f64 - sum("xact_commit") * decoders(case, server.place);
    let per_s = server.lines.rate("xact_rollback").unwrap_or(0.0);
    if left < ROLLED_BACK_MIN { 0.0 } else { per_s * left / all }
}

/// Whether rollbacks without an error are those of logical decoding, which may read the same transactions again and again: hardly any program has sent a
/// ROLLBACK.
pub(super) fn are_of_decoding(case: &Case, node: &str, rollbacks_per_s: f64) -> bool {
    let is_rollback = |statement: &Thing<'_>| {
        let text = lowered(case.query(statement.lines.word("query_id")).unwrap_or_default());
        text.starts_with("rollback") || text.starts_with("abort")
    };
    let sent: f64 = case
        .at("statement", node)
        .filter(is_rollback)
        .filter_map(|statement| statement.lines.rate("calls"))
        .sum();
    decoders(case, node) > 0.0 && sent < rollbacks_per_s * SENT_SHARE_MIN
}
