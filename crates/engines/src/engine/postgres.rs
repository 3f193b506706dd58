//! PostgreSQL: one server, or a primary with standbys.

use crate::profile::short::{A, F, with};
use crate::profile::{
    Arrangement, Case, Commit, Discovery, Entry, EntryPoints, Expectation, Isolation, Layout, Levels,
    LoadPath, NodeLinks, Profile, Promise, Protocol, Reasons, Setting, Sizes, Statements, Storage, Tried,
};

/// On each node of a replicated cluster.
const EACH: Entry = F.noted("on each node");
const APPLIED: Entry = with(Setting::RemoteApply);
const SYNC: Entry = with(Setting::SynchronousStandby);

pub(super) static PROFILE: Profile = Profile {
    name: "postgres",
    aliases: &[],
    title: "PostgreSQL",
    tried: Tried::Live("PostgreSQL 15 and 18"),
    discovery: Discovery::Native,
    layout: Layout::OneServer,
    storage: Storage::Pages,
    sizes: Sizes::OF_ONE_NODE,
    entry: EntryPoints::Primary,
    load: LoadPath::Leaves,
    links: NodeLinks::Streaming,
    keyed_trips: None,
    has_wal: true,
    node_lost: &[],
    commit: Commit { protocol: Protocol::OneNode, error_undoes: true },
    levels: Levels::Postgres,
    statements: Statements::Fresh,
    promises: &[
        Promise {
            levels: &[Isolation::ReadCommitted],
            at: Arrangement::Plain,
            title: "PostgreSQL, READ COMMITTED",
            verdicts: [F, F, A, A, F, A, F, F, F],
        },
        Promise {
            levels: &[Isolation::RepeatableRead],
            at: Arrangement::Plain,
            title: "PostgreSQL, REPEATABLE READ",
            verdicts: [F, F, F, F, F, A, F, F, F],
        },
        Promise {
            levels: &[Isolation::Serializable],
            at: Arrangement::Plain,
            title: "PostgreSQL, SERIALIZABLE",
            verdicts: [F, F, F, F, F, F, F, F, F],
        },
        Promise {
            levels: &[Isolation::ReadCommitted],
            at: Arrangement::Standbys,
            title: "primary and hot standby, READ COMMITTED",
            verdicts: [EACH, F, A, A, A, A, APPLIED, F, SYNC],
        },
        Promise {
            levels: &[Isolation::RepeatableRead, Isolation::Serializable],
            at: Arrangement::Standbys,
            title: "primary and hot standby, REPEATABLE READ; a standby refuses SERIALIZABLE",
            verdicts: [EACH, F, EACH, F, A, A, APPLIED, F, SYNC],
        },
    ],
    expectations: &[
        Expectation {
            case: Case::LongFork,
            may_happen: Some(true),
            why: "a primary shows a commit when its wait is over, a standby when it has replayed it: the orders differ",
            change: "read data whose order matters on one node",
        },
        Expectation {
            case: Case::CancelledWait,
            may_happen: Some(true),
            why: "synchronous replication is a wait, not a lock: if it is cancelled, the commit stays, and only a warning reports it",
            change: "let clients read the warnings of COMMIT, and let none of their timeouts cancel a COMMIT",
        },
        Expectation {
            case: Case::SilentCancelledWait,
            may_happen: Some(false),
            why: "a cancelled wait must return WARNING 01000",
            change: "find out what drops warnings between the client and the server",
        },
        Expectation {
            case: Case::Serializable,
            may_happen: Some(false),
            why: "a standby cannot track the dependencies of SERIALIZABLE transactions, so they are refused there",
            change: "run SERIALIZABLE on the primary only",
        },
        Expectation {
            case: Case::ReadYourWrites,
            may_happen: Some(true),
            why: "an acknowledgement does not wait until the standby has replayed",
            change: "read your own writes on the primary, or set synchronous_commit = remote_apply with the standby as a synchronous one",
        },
        Expectation {
            case: Case::ReadYourWritesApplied,
            may_happen: Some(false),
            why: "remote_apply waits until the synchronous standbys have replayed the commit",
            change: "check whether the standby is among the synchronous ones",
        },
    ],
    reasons: Reasons {
        order: "a primary and its standbys show a commit at different times",
        ..Reasons::GENERAL
    },
    limits: &["a primary's catalog does not have the ports of its standbys: name them in a cluster file"],
};
