//! What an engine makes for itself on the servers of a cluster: transactions that it prepares, locks, slots, subscriptions. Users may neither end nor drop
//! them, and they are no fault of a user.

/// An engine's own objects. Names are given by how they begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Own {
    /// Transactions that it prepares to commit on several nodes; numbers follow, with `_` or `-` between them.
    pub prepared: &'static [&'static str],
    /// How it ends those whose coordinator is gone, as the end of a sentence.
    pub resolves: &'static str,
    /// SQL that makes it do so at once, if there is a function for it.
    pub resolve: Option<&'static str>,
    /// Its advisory locks, by `objsubid` in `pg_locks`: from the first to the last. Users' have 1 and 2.
    pub advisory: Option<(u16, u16)>,
    /// When it takes them, as the end of a sentence.
    pub locks_while: &'static str,
    /// Part of a statement that takes them for another reason, and what that is, as a sentence.
    pub lock_statement: Option<(&'static str, &'static str)>,
    /// SQL that shows the distributed tables and their distribution columns.
    pub shards: &'static str,
    /// SQL for how many parts a table has on all nodes, of which the relation `c` (`pg_class`) is one; null if it is none.
    pub parts: Option<&'static str>,
    /// Its settings for the number of connections between the nodes, as the end of a sentence.
    pub pools: &'static str,
    /// Replication slots.
    pub slots: &'static [&'static str],
    /// Subscriptions in PostgreSQL's catalog.
    pub subscriptions: &'static [&'static str],
    /// SQL by which changes are applied again where a user has stopped that. Placeholder: `{subscription}`, its name as a constant.
    pub enable: Option<&'static str>,
    /// How a node is brought back that misses changes for good, because the slot that kept them is gone: as a sentence.
    pub anew: &'static str,
    /// `application_name` of its own sessions: those that work for a session at another node, and those of [`Own::daemons`].
    pub sessions: &'static [&'static str],
    /// Of these, sessions that are there all the time and serve no client: they count as background processes.
    pub daemons: &'static [&'static str],
    /// What it logs on a node that gets no answer from another one: how the messages begin.
    pub away: &'static [&'static str],
    /// How the errors begin with which a node refuses every statement while it is no part of the cluster.
    pub isolated: &'static [&'static str],
    /// SQL that shows for which session of the cluster another one works, or waits.
    pub origin: Option<&'static str>,
    /// Kind and event in which sessions wait until other nodes agree on a commit, if PostgreSQL has no event for it.
    pub commit_waits: Option<(&'static str, &'static str)>,
    /// Its servers are a build of its own, with changes in PostgreSQL itself: a package of PostgreSQL does not replace it.
    pub is_patched: bool,
    /// A setting, with its value, that shows a session the parts of tables which the engine hides from it.
    pub shows_parts: Option<(&'static str, &'static str)>,
    /// A setting, with its value, for a session that makes a schema whose tables may be on several nodes: with another value the engine keeps all tables of a new
    /// schema on one.
    pub plain_schemas: Option<(&'static str, &'static str)>,
    /// Libraries of `shared_preload_libraries` that a server of such a cluster has loaded.
    pub libraries: &'static [&'static str],
    /// Kind and event in which sessions wait for other nodes that do the work of a statement, if it is that of a wait for the client.
    pub node_waits: Option<(&'static str, &'static str)>,
}

impl Own {
    /// It makes nothing.
    pub const NOTHING: Own = Own {
        prepared: &[],
        resolves: "",
        resolve: None,
        advisory: None,
        locks_while: "",
        lock_statement: None,
        shards: "",
        parts: None,
        pools: "",
        slots: &[],
        subscriptions: &[],
        enable: None,
        anew: "",
        sessions: &[],
        daemons: &[],
        away: &[],
        isolated: &[],
        origin: None,
        commit_waits: None,
        is_patched: false,
        shows_parts: None,
        plain_schemas: None,
        libraries: &[],
        node_waits: None,
    };

    /// Whether it prepared a transaction of this name: a number follows the beginning.
    pub fn prepares(&self, name: &str) -> bool {
        let is_numbered = |begin: &&str| {
            name.strip_prefix(*begin).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        self.prepared.iter().any(is_numbered)
    }

    /// Whether it made a replication slot of this name.
    pub fn has_slot(&self, name: &str) -> bool {
        self.slots.iter().any(|begin| name.starts_with(begin))
    }

    /// Whether a session with this `application_name` is its own.
    pub fn has_session(&self, application: &str) -> bool {
        self.sessions.iter().any(|begin| application.starts_with(begin))
    }

    /// Whether it made a subscription of this name.
    pub fn subscribes(&self, name: &str) -> bool {
        self.subscriptions.iter().any(|begin| name.starts_with(begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_a_number_behind_the_beginning_are_the_engines_transactions() {
        let own = Own { prepared: &["citus_", "MTM-"], slots: &["citus_shard_"], ..Own::NOTHING };
        assert!(own.prepares("citus_0_1234_5_6") && own.prepares("MTM-1-700-2"));
        for other in ["citus_backup", "MTM-", "citus_", "xa 1", "mtm-1-2"] {
            assert!(!own.prepares(other), "{other}");
        }
        assert!(own.has_slot("citus_shard_move_slot_1_2") && !own.has_slot("citus_cdc"));
        assert!(!own.subscribes("anything") && !Own::NOTHING.prepares("MTM-1-1"));
    }
}
