//! What `watch` recorded: one typed struct per source of `samples.ndjson`, written by the collectors, read by findings and pages.
//!
//! A line is one thing at one tick, flat: `node` names the database node, `host` the host. Counts are of the interval (`interval_us` of
//! the line) unless the name ends in `_total`; a line with `interval_us` 0 is a reading of a moment. A field is absent if the server or
//! the kernel did not provide it, or a privilege is missing: absent means "not known", never 0. [`Missing`] lines name what a collector
//! could not see at all, and what is unknown because of it.
//!
//! Query ids are words, not numbers: they use all 64 bits, and JSON numbers of other tools do not.

use crate::sample::{Body, Sample};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whether a value holds no information, and so is left out of its line.
trait Blank {
    fn is_blank(&self) -> bool;
}

impl<T> Blank for Option<T> {
    fn is_blank(&self) -> bool {
        self.is_none()
    }
}

impl Blank for String {
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl Blank for u64 {
    /// A count of 0 is written.
    fn is_blank(&self) -> bool {
        false
    }
}

/// Makes the struct of one source: all fields public, absent when blank, and their names in a table for the tests of the schema.
macro_rules! line {
    ($(#[$about:meta])* $name:ident, $source:literal { $($(#[$doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(default)]
        pub struct $name {
            $($(#[$doc])*
            #[serde(skip_serializing_if = "super::Blank::is_blank")]
            pub $field: $kind,)*
        }

        impl $name {
            /// Its `source`.
            pub const SOURCE: &'static str = $source;
            /// The names of its fields.
            pub const FIELDS: &'static [&'static str] = &[$(stringify!($field),)*];
        }
    };
}

mod clients;
pub mod cost;
mod database;
mod machine;
mod plans;
pub mod policy;
mod relations;

pub use clients::{Connected, Pool, Pooler, SessionMemory};
pub use cost::Cost;
pub use database::{
    Activity, Block, ClockOffset, Horizon, Progress, Replication, Server, Session, Slot, Slru, Subscription,
    Wait, WaitProfile,
};
pub use machine::{
    Backend, Cgroup, Core, Disk, Fact, Hardware, Host, Missing, Mount, Net, Program, Schedule, Watching,
};
pub use plans::{Plan, PlanFunction, PlanIndex, PlanNode, PlanTable, WhatIf};
pub use relations::{Function, Io, Statement, StatementRest, Table};

/// `wait_type` and `wait_event` of an active session that waits for nothing: it is on a CPU or waits for one.
pub const WAIT_CPU: &str = "CPU";

/// `session` lines are about sessions whose transaction is older than this, in seconds ...
pub const NAMED_AGE_S: u32 = 2;
/// ... and at each look about so many of them at most, the oldest first.
pub const NAMED_MAX: u32 = 10;

/// Topic of the texts of functions that statements call: the value has the language, the rows that the planner expects of it, and the text without constants.
pub const FUNCTION_TEXT: &str = "function";

/// Topic of the settings that such a function has for itself (`ALTER FUNCTION ... SET`): `name=value`, separated by `, `.
pub const FUNCTION_SETTINGS: &str = "function_settings";

/// The kind of a `backend` line with the CPU time of processes that began and ended between two looks.
pub const ENDED: &str = "ended processes";

/// The kind of a `backend` line of the process that collects the server's log: no view has it.
pub const LOGGER: &str = "logger";
/// The kind of a `backend` line of programs that the server's processes started: what archives, `COPY ... PROGRAM`.
pub const STARTED: &str = "started programs";

/// In the reason of a `missing` line: left out because code of another role could have run with rights that watching does not need.
pub const MORE_THAN_READ: &str = "our role may do more than read";
/// Topic of triggers that run at commands which define something: the name, and the function with its event.
pub const EVENT_TRIGGER: &str = "event_trigger";

/// Topic of collations whose version is not the one that indexes were made with: the name is `collation` with that of the collation as the server quotes it, or
/// `database` with that of the database for its default, the value `RECORDED -> ACTUAL`, with the number of indexes that use it behind a semicolon.
pub const COLLATION_VERSION: &str = "collation_version";

/// Topic of what is unusual about a table or view that statements name: phrases, separated by `; `.
pub const PECULIAR: &str = "peculiar";
/// Parts of its value begin so: `check NAME calls FUNCTION()`, `default of COLUMN calls FUNCTION()`.
pub const CHECK: &str = "check ";
/// See [`CHECK`].
pub const DEFAULT: &str = "default of ";

/// Whether a part of what is unusual about a table is a function that is called for each row that is written.
pub fn calls_function(part: &str) -> bool {
    (part.starts_with(CHECK) || part.starts_with(DEFAULT)) && part.ends_with("()")
}
/// Topic of columns of type json, and of character(n) from 50 characters on, of a table that statements name: `name type`, separated by `; `.
pub const COLUMN_KINDS: &str = "column_kinds";
/// Topic of columns that are computed whenever they are read (PostgreSQL 18, generated without STORED): the name is that of the table, as the server quotes it,
/// a blank, and that of the column; the value is the expression without constants.
pub const VIRTUAL_COLUMN: &str = "virtual_column";
/// Topic of the definition of a view that statements name, without constants; the end of a long one is cut off.
pub const VIEW_TEXT: &str = "view_text";
/// Topic of a temporary table that statements name: its live rows and its dead ones by the counters, and the bytes of its file.
pub const TEMPORARY: &str = "temporary";
/// In such a value: a partitioned table without statistics of its own. Autovacuum analyses partitions only.
pub const NEVER_ANALYSED: &str = "never analysed as a whole";
/// In such a value: a table with rows and without any statistics, as after an upgrade or a restore.
pub const NO_STATISTICS: &str = "without statistics, never analysed";
/// In such a value: a foreign table whose server is queried while statements are planned.
pub const REMOTE_ESTIMATE: &str = "its server is queried for estimates (use_remote_estimate)";
/// Topic of a fact: a setting of a role or a database, named `SETTING of OWNER`.
pub const OWN_SETTING: &str = "own_setting";

/// Topic of where a setting of the server comes from: the file with its line (`/srv/postgresql.conf:12`), or [`COMMAND_LINE`].
pub const SETTING_SOURCE: &str = "setting_source";
/// The source of a setting that an option of the server's program sets: it wins over every file.
pub const COMMAND_LINE: &str = "command line";
/// The file that ALTER SYSTEM writes.
pub const AUTO_CONF: &str = "postgresql.auto.conf";
/// What a table has as its triggers that send NOTIFY if it has triggers and none of them does. No list of triggers is without parentheses.
pub const NONE_NOTIFIES: &str = "none";
/// Topic of the built-in default of a setting that has a source: what ALTER SYSTEM SET takes.
pub const SETTING_DEFAULT: &str = "setting_default";

/// Topic and name of the fact that an engine's commits wait in an event that PostgreSQL does not have for it: kind and event, with a colon between them.
pub const COMMIT_WAITS: (&str, &str) = ("commit", "waits");
/// Topic and name of the fact that an engine's sessions wait in the same event for their client and for other nodes that do the work of a statement:
/// kind and event, with a colon between them.
pub const NODE_WAITS: (&str, &str) = ("nodes", "waits");

/// Topic of facts about what an engine makes for itself. The names are in [`own`].
pub const OWN: &str = "own";

/// Names of facts of the topic [`OWN`]. Those that give names have how these begin, separated by `; `.
pub mod own {
    /// Transactions that it prepares; digits follow, with `_` or `-` between them.
    pub const PREPARED: &str = "prepared";
    /// How it ends those whose coordinator is gone.
    pub const RESOLVES: &str = "resolves";
    /// SQL that makes it do so at once.
    pub const RESOLVE: &str = "resolve";
    /// When it takes advisory locks.
    pub const LOCKS_WHILE: &str = "locks while";
    /// Part of a statement that takes them for another reason, a colon and a blank, and what that is.
    pub const LOCK_STATEMENT: &str = "lock statement";
    /// Its settings for the number of connections between the nodes.
    pub const POOLS: &str = "pools";
    /// SQL that shows the distributed tables.
    pub const SHARDS: &str = "shards";
    /// Replication slots.
    pub const SLOTS: &str = "slots";
    /// SQL by which changes are applied again where a user has stopped that; `{subscription}` stands for its name as a constant.
    pub const ENABLE: &str = "enable";
    /// How a node is brought back that misses changes for good, because the slot that kept them is gone.
    pub const ANEW: &str = "anew";
    /// `application_name` of its own sessions.
    pub const SESSIONS: &str = "sessions";
    /// How messages begin that it logs where a node is no part of the cluster, or gets no answer from another one.
    pub const AWAY: &str = "away";
    /// SQL that shows for which session of the cluster another one works.
    pub const ORIGIN: &str = "origin";
}

/// Makes the enum of all sources, with its reader and writer.
macro_rules! sampled {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A line of any source of `watch`.
        #[derive(Clone, PartialEq, Debug, Serialize)]
        #[serde(untagged)]
        #[allow(clippy::large_enum_variant, reason = "one line of a node a second has all of its counters; no list holds many")]
        pub enum Sampled {
            $($(#[$doc])* $name($name),)*
        }

        impl Sampled {
            /// Every source with the names of its fields, in the order of the manual.
            pub const ALL: &'static [(&'static str, &'static [&'static str])] = &[$(($name::SOURCE, $name::FIELDS),)*];

            /// The schema of every source.
            #[cfg(test)]
            pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
                vec![$(($name::SOURCE, crate::schema::of::<$name>()),)*]
            }

            /// The `source` of its line.
            pub fn source(&self) -> &'static str {
                match self {
                    $(Sampled::$name(_) => $name::SOURCE,)*
                }
            }

            /// Reads the values of a line of this source; `None` for a source that is not of `watch`, or values of another shape.
            fn read(source: &str, values: Value) -> Option<Sampled> {
                match source {
                    $($name::SOURCE => $name::deserialize(values).ok().map(Sampled::$name),)*
                    _ => None,
                }
            }
        }

        $(impl From<$name> for Sampled {
            fn from(line: $name) -> Sampled {
                Sampled::$name(line)
            }
        })*
    };
}

sampled! {
    /// Totals of a node.
    Server,
    /// Active sessions by wait event.
    Wait,
    /// Waits as an extension counts them.
    WaitProfile,
    /// A remarkable session.
    Session,
    /// Who the active sessions belong to.
    Activity,
    /// Who holds the connections.
    Connected,
    /// A pool of a pooler.
    Pool,
    /// The memory of the sessions of an application.
    Pooler,
    SessionMemory,
    /// A session that waits for another.
    Block,
    /// A holder of the xmin horizon.
    Horizon,
    /// A command that reports progress.
    Progress,
    /// A standby.
    Replication,
    /// A replication slot.
    Slot,
    /// A subscription.
    Subscription,
    /// A relation.
    Table,
    /// A statement of pg_stat_statements.
    Statement,
    /// Statements that have no line of their own.
    StatementRest,
    /// A function of users.
    Function,
    /// A plan of a statement.
    Plan,
    /// A node of a plan.
    PlanNode,
    /// An index of a table in a plan.
    PlanIndex,
    PlanTable,
    PlanFunction,
    /// A change that was tried by EXPLAIN.
    WhatIf,
    /// A row of pg_stat_io.
    Io,
    /// A row of pg_stat_slru.
    Slru,
    /// A node's clock against ours.
    ClockOffset,
    /// Totals of a machine.
    Host,
    /// A CPU.
    Core,
    /// A block device.
    Disk,
    /// A network interface.
    Net,
    /// A server process.
    Backend,
    /// Another program of a host.
    Program,
    /// What the scheduler gave to our sessions' processes, or to the client's threads.
    Schedule,
    /// The control groups of a node's server.
    Cgroup,
    /// What watching itself cost.
    Watching,
    /// A mounted file system.
    Mount,
    /// A hardware counter.
    Hardware,
    /// Something that holds for long: a setting, a mount option, a version.
    Fact,
    /// What the collectors could not read.
    Missing,
}

impl Sampled {
    /// Reads the body of a line; `None` for lines that `watch` did not write.
    pub fn parse(sample: &Sample) -> Option<Sampled> {
        match &sample.body {
            Body::Other { source, values } => Sampled::read(source, Value::Object(values.clone())),
            _ => None,
        }
    }

    /// The database node that the line is about; empty for lines about a machine.
    pub fn node(&self) -> &str {
        match self {
            Sampled::Server(line) => &line.node,
            Sampled::Wait(line) => &line.node,
            Sampled::WaitProfile(line) => &line.node,
            Sampled::Session(line) => &line.node,
            Sampled::Activity(line) => &line.node,
            Sampled::Connected(line) => &line.node,
            Sampled::Pool(line) => &line.node,
            Sampled::Pooler(line) => &line.node,
            Sampled::SessionMemory(line) => &line.node,
            Sampled::Block(line) => &line.node,
            Sampled::Slru(line) => &line.node,
            Sampled::Cgroup(line) => &line.node,
            Sampled::Horizon(line) => &line.node,
            Sampled::Progress(line) => &line.node,
            Sampled::Replication(line) => &line.node,
            Sampled::Slot(line) => &line.node,
            Sampled::Subscription(line) => &line.node,
            Sampled::Table(line) => &line.node,
            Sampled::Statement(line) => &line.node,
            Sampled::StatementRest(line) => &line.node,
            Sampled::Function(line) => &line.node,
            Sampled::Plan(line) => &line.node,
            Sampled::PlanNode(line) => &line.node,
            Sampled::PlanIndex(line) => &line.node,
            Sampled::PlanTable(line) => &line.node,
            Sampled::PlanFunction(line) => &line.node,
            Sampled::WhatIf(line) => &line.node,
            Sampled::Io(line) => &line.node,
            Sampled::ClockOffset(line) => &line.node,
            Sampled::Fact(line) => &line.node,
            Sampled::Missing(line) => &line.node,
            Sampled::Backend(line) => &line.node,
            Sampled::Schedule(line) => &line.node,
            Sampled::Watching(line) => &line.node,
            Sampled::Host(_)
            | Sampled::Core(_)
            | Sampled::Disk(_)
            | Sampled::Net(_)
            | Sampled::Program(_)
            | Sampled::Mount(_)
            | Sampled::Hardware(_) => "",
        }
    }
}

#[cfg(test)]
mod tests;
