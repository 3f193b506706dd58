//! PLAN-32: the names of a WITH that is computed as a whole, and of the view that has it.

use super::Seen;
use crate::rules::costly::{is_name_of, plain};
use crate::rules::paste::literal;
use crate::rules::plan::Planned;
use record::statement;
use record::watched::VIEW_TEXT;

/// Characters of a name in a claim.
const NAME_CHARS: usize = 60;

/// The WITH whose rows the plan filters, by the name that the plan has for it.
pub(super) fn cte_of(planned: &Planned<'_>) -> Option<String> {
    let mut scans = planned.nodes.iter().filter(|node| node.lines.word("kind") == "CTE Scan");
    let scan = scans.find(|node| !node.lines.word("filter").is_empty())?;
    Some(scan.lines.word("alias")).filter(|name| !name.is_empty()).map(|name| plain(name, NAME_CHARS))
}

/// A view that a statement names, with the WITH of its definition.
pub(super) struct View<'a> {
    name: &'a str,
    cte: String,
    is_materialized: bool,
}

impl View<'_> {
    pub(super) fn words(&self) -> String {
        format!(
            "one statement that reads view {}, which has WITH {}{}: all of it is computed (a CTE) before the condition of the statement is applied to it",
            self.name,
            self.cte,
            if self.is_materialized { " AS MATERIALIZED" } else { "" }
        )
    }

    /// Shows the definition, which is to be changed.
    pub(super) fn command(&self) -> String {
        format!(
            "SELECT pg_get_viewdef({}::regclass, true); -- then CREATE OR REPLACE VIEW with the changed text",
            literal(self.name)
        )
    }
}

/// The view of a statement that has the WITH `cte` of its plan, or one that is always kept.
pub(super) fn in_view<'a>(seen: &Seen<'a>, cte: Option<&str>) -> Option<View<'a>> {
    let parsed = statement::parse(&seen.statement.text).ok()?;
    let views = seen.case.facts(VIEW_TEXT).filter(|fact| fact.node == seen.time.node);
    let mut named = views.filter(|fact| parsed.tables.iter().any(|table| is_name_of(table, &fact.name)));
    named.find_map(|fact| {
        let shape = statement::shape(fact.value.trim_end_matches(';')).ok()?;
        let kept = shape.materialized.iter().find(|name| cte == Some(name.as_str()));
        match (kept.or(shape.materialized.first()), cte) {
            (Some(name), _) => {
                Some(View { name: &fact.name, cte: plain(name, NAME_CHARS), is_materialized: true })
            }
            // One that is used twice is kept without the word.
            (None, Some(cte)) if statement::names(&fact.value).iter().any(|name| name == cte) => {
                Some(View { name: &fact.name, cte: cte.to_string(), is_materialized: false })
            }
            _ => None,
        }
    })
}
