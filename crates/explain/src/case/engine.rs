//! What is not a user's: settings of roles and databases instead of the server's, and what the engine of a cluster makes for itself.

use super::{Case, Thing};
use record::finding::StatementTime;
use record::statement;
use record::watched::{COMMIT_WAITS, NODE_WAITS, OWN, OWN_SETTING, own};

/// The command with which an owner of [`Case::own_settings`] takes the server's setting again.
pub(crate) fn reset_command(owner: &str, setting: &str) -> String {
    let named = |owner: &str| {
        let (kind, name) = owner.split_once(' ').unwrap_or((owner, ""));
        format!("{} {}", kind.to_ascii_uppercase(), statement::quoted(name))
    };
    let whose = match owner.split_once(" in database ") {
        Some((role, place)) => format!("{} IN DATABASE {}", named(role), statement::quoted(place)),
        None => named(owner),
    };
    let setting = statement::as_name(setting);
    match owner.starts_with("tablespace ") {
        true => format!("ALTER {whose} RESET ({setting});"),
        false => format!("ALTER {whose} RESET {setting}; -- for sessions that connect from now on"),
    }
}

/// Of the share of a statement, the least that a role has of the sessions at work if it executes the statement: samples are few.
pub(crate) const OF_STATEMENT_MIN: f64 = 0.5;

/// The server's program.
const SERVER: &str = "postgres";

/// Whether a group of sessions has what an owner of [`Case::own_settings`] set, in `database` if one is named.
fn is_owned(group: &Thing<'_>, owner: &str, database: &str) -> bool {
    let (user, place) = (group.lines.word("user"), group.lines.word("database"));
    let is_wanted = database.is_empty() || place == database;
    let names =
        [format!("role {user}"), format!("database {place}"), format!("role {user} in database {place}")];
    is_wanted && names.iter().any(|name| name == owner)
}

impl Case {
    /// What roles and databases set for themselves, instead of the server's setting of this name: whose it is, and the value.
    pub(crate) fn own_settings<'a>(
        &'a self,
        node: &'a str,
        name: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let of_node = self.facts(OWN_SETTING).filter(move |fact| fact.node == node);
        of_node.filter_map(move |fact| {
            Some((fact.name.strip_prefix(name)?.strip_prefix(" of ")?, fact.value.as_str()))
        })
    }

    /// Whether sessions of an owner of [`Case::own_settings`] were at work, in `database` if one is named.
    pub(crate) fn is_at_work(&self, node: &str, owner: &str, database: &str) -> bool {
        self.at("activity", node).any(|group| is_owned(&group, owner, database))
    }

    /// Of the sessions that were seen at work, those of an owner of [`Case::own_settings`], in `database` if one is named.
    pub(crate) fn share_at_work(&self, node: &str, owner: &str, database: &str) -> f64 {
        let sessions = |group: Thing<'_>| group.lines.sum("sessions").unwrap_or(0.0);
        let all: f64 = self.at("activity", node).map(sessions).sum();
        let its = self.at("activity", node).filter(|group| is_owned(group, owner, database));
        its.map(sessions).sum::<f64>() / all.max(f64::MIN_POSITIVE)
    }

    /// Whether a role, as an owner of [`Case::own_settings`], may execute a statement. The record does not hold which one does: a role that is at work for
    /// less time than the statement does not.
    pub(crate) fn may_execute(&self, node: &str, owner: &str, statement: &StatementTime) -> bool {
        let share = self.share_at_work(node, owner, &statement.database);
        share > 0.0 && share >= statement.share * OF_STATEMENT_MIN
    }

    /// What the engine of a node has of its own, or how it ends it: a fact of `record::watched::own`.
    pub(crate) fn own<'a>(&'a self, node: &str, what: &str) -> Option<&'a str> {
        let fact = self.facts(OWN).find(|fact| fact.name == what && fact.node == node)?;
        Some(fact.value.as_str())
    }

    /// Whether the engine made something of this name for itself.
    pub(crate) fn is_own(&self, node: &str, what: &str, name: &str) -> bool {
        self.own(node, what)
            .is_some_and(|all| all.split("; ").any(|begin| !begin.is_empty() && name.starts_with(begin)))
    }

    /// Whether the engine prepared a transaction: a number follows the beginning of its name.
    pub(crate) fn is_own_transaction(&self, node: &str, name: &str) -> bool {
        let is_numbered = |begin: &str| {
            name.strip_prefix(begin).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        self.own(node, own::PREPARED).is_some_and(|all| all.split("; ").any(is_numbered))
    }

    /// Whether a program of a host is the server of several nodes that are watched: their sessions work for each other, and many live for less than a sample.
    pub(crate) fn is_of_nodes(&self, host: &str, program: &str) -> bool {
        program == SERVER && self.nodes().iter().filter(|node| self.host_of(node) == Some(host)).count() > 1
    }

    /// The programs of a host besides such servers.
    pub(crate) fn other_programs<'a>(&'a self, host: &'a str) -> impl Iterator<Item = Thing<'a>> + use<'a> {
        self.at("program", host).filter(move |program| !self.is_of_nodes(host, program.name))
    }

    /// A transaction that holds back the horizon of a node, prepared by another program than the engine of its cluster: its name.
    pub(crate) fn users_prepared<'a>(&'a self, node: &'a str) -> Option<&'a str> {
        let mut prepared = self.at("horizon", node).filter(|holder| holder.lines.word("kind") == "prepared");
        let name = prepared
            .find(|holder| !self.is_own_transaction(node, holder.lines.word("name")))?
            .lines
            .word("name");
        Some(name).filter(|name| !name.is_empty())
    }

    /// Whether a session that shows this wait waits until other nodes agree on its commit, as the engine of this node has it.
    pub(crate) fn is_agreement(&self, node: &str, kind: &str, event: &str) -> bool {
        let (topic, name) = COMMIT_WAITS;
        let mut facts =
            self.facts(topic).filter(|fact| fact.name == name && (node.is_empty() || fact.node == node));
        facts.any(|fact| fact.value.split_once(':') == Some((kind, event)))
    }

    /// Whether this wait can be one for other nodes that do the work of a statement, as the engine of this node has it.
    pub(crate) fn is_for_nodes(&self, node: &str, kind: &str, event: &str) -> bool {
        let (topic, name) = NODE_WAITS;
        let mut facts = self.facts(topic).filter(|fact| fact.name == name && fact.node == node);
        facts.any(|fact| fact.value.split_once(':') == Some((kind, event)))
    }
}
