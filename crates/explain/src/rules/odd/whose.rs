//! Whose a value of a setting is: that of a role, a database or a tablespace is for their own statements only.

use crate::case::Case;
use crate::case::engine::OF_STATEMENT_MIN;
use crate::rules::plan::Planned;
use record::finding::{NodeTime, StatementTime};

/// A value that is in force, and whose it is if not the server's.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) owner: Option<&'a str>,
    pub(super) value: &'a str,
}

/// Values of a setting: the server's, those of tablespaces, and those of roles and databases whose sessions were at work.
pub(super) fn values<'a>(case: &'a Case, node: &'a str, name: &'a str) -> Vec<Setting<'a>> {
    let is_used = |owner: &str| owner.starts_with("tablespace ") || case.is_at_work(node, owner, "");
    let own = case.own_settings(node, name).filter(|(owner, _)| is_used(owner));
    let own = own.map(|(owner, value)| Setting { owner: Some(owner), value });
    let of_server = case.setting(node, name).map(|value| Setting { owner: None, value });
    of_server.into_iter().chain(own).collect()
}

impl Setting<'_> {
    /// Whether a statement may be planned with it.
    pub(super) fn is_for(&self, case: &Case, time: &NodeTime, statement: &StatementTime) -> bool {
        self.owner.is_none_or(|owner| case.may_execute(&time.node, owner, statement))
    }

    /// The same for a statement with its plan: the value of a tablespace is for the tables and indexes that lie there.
    pub(super) fn is_for_plan(&self, case: &Case, planned: &Planned<'_>) -> bool {
        let tablespace = self.owner.and_then(|owner| owner.strip_prefix("tablespace "));
        let Some(name) = tablespace else { return self.is_for(case, planned.time, planned.statement) };
        let is_there = |relation: &str| {
            let mut tables = case.at("table", &planned.time.node).filter(|table| {
                let database = table.lines.word("database");
                let is_its = database == planned.statement.database || planned.statement.database.is_empty();
                is_its && table.lines.word("relation") == relation
            });
            tables.any(|table| {
                let of_indexes = table.lines.word("index_tablespaces");
                table.lines.word("tablespace") == name || of_indexes.split(',').any(|one| one == name)
            })
        };
        planned.nodes.iter().any(|node| is_there(node.lines.word("relation")))
    }

    /// What would decide whether it is that of the statement, if others are at work for as long.
    pub(super) fn unknown(
        &self,
        case: &Case,
        time: &NodeTime,
        statement: &StatementTime,
    ) -> Option<&'static str> {
        let owner = self.owner.filter(|owner| owner.starts_with("role "))?;
        let database = &statement.database;
        let of_others: f64 = 1.0 - case.share_at_work(&time.node, owner, database);
        (of_others >= statement.share * OF_STATEMENT_MIN)
            .then_some("which role executes the statement: other roles are at work for as long as it takes")
    }
}
