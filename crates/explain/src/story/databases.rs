//! Which database a finding about a statement belongs to, where a server has several at work: their applications may not even know of each other.

use crate::case::Case;
use crate::node_time;
use crate::rules::costly::in_a_line;
use record::finding::{Finding, NodeTime};
use std::collections::BTreeSet;

/// A database with less of the session time is not at work.
const SHARE_MIN: f64 = 0.01;

/// Databases of a node whose statements take some of its time.
fn at_work(time: &NodeTime) -> BTreeSet<&str> {
    let felt = time.statements.iter().filter(|statement| statement.share >= SHARE_MIN);
    felt.map(|statement| statement.database.as_str()).filter(|name| !name.is_empty()).collect()
}

/// Adds the name of the database to claims about one statement, unless they have it.
pub(super) fn name_them(case: &Case, findings: &mut [Finding]) {
    for time in node_time::all(case) {
        let sessions: BTreeSet<&str> = case
            .at("activity", time.node.as_str())
            .map(|group| group.lines.word("database"))
            .filter(|name| !name.is_empty())
            .collect();
        // The user who watches one database need not know of the others.
        let watched = case.facts("server").find(|fact| fact.name == "database" && fact.node == time.node);
        let watched: BTreeSet<&str> = watched.map(|fact| fact.value.as_str()).into_iter().collect();
        let at_work: BTreeSet<&str> = at_work(time).union(&sessions).copied().collect();
        if at_work.union(&watched).count() < 2 {
            continue;
        }
        for finding in
            findings.iter_mut().filter(|finding| finding.node.as_deref() == Some(time.node.as_str()))
        {
            let text = finding.evidence.iter().find_map(|sentence| sentence.strip_prefix("the statement: "));
            let Some(text) = text else { continue };
            let its = time.statements.iter().find(|statement| in_a_line(statement) == text);
            let Some(database) = its.map(|statement| &statement.database).filter(|name| !name.is_empty())
            else {
                continue;
            };
            if !finding.claim.contains(database.as_str()) {
                finding.claim = format!("{} (in database {database})", finding.claim);
            }
        }
    }
}
