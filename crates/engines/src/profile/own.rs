//! Objects that an engine makes for its own use. They are not the user's to repair: the engine ends them itself, and where it fails to, it has a way of its
//! own.

use std::fmt;

/// Kinds of objects that engines make for their own use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OwnKind {
    /// Prepared transactions, by `gid`.
    Prepared,
    /// Replication slots.
    Slot,
    /// Publications that exist for a while, whatever the user replicates.
    Publication,
    /// Subscriptions.
    Subscription,
}

impl OwnKind {
    /// All kinds.
    pub const ALL: [OwnKind; 4] =
        [OwnKind::Prepared, OwnKind::Slot, OwnKind::Publication, OwnKind::Subscription];
}

impl fmt::Display for OwnKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OwnKind::Prepared => "prepared transaction",
            OwnKind::Slot => "slot",
            OwnKind::Publication => "publication",
            OwnKind::Subscription => "subscription",
        })
    }
}

/// Objects of one kind that an engine makes for its own use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnObjects {
    /// Their kind.
    pub kind: OwnKind,
    /// Their names, as a regular expression of PostgreSQL. It contains no quote.
    pub names: &'static str,
    /// Whether they are there only while the engine does something: then a slot without a consumer is no sign of a lost node.
    pub is_passing: bool,
    /// What they are for and what ends them, as the rest of a sentence that begins with the engine's name.
    pub ends: &'static str,
    /// What to do if one stays, as a sentence without a full stop.
    pub otherwise: &'static str,
    /// The command for that.
    pub command: &'static str,
}

/// Advisory locks that an engine takes itself. PostgreSQL's own functions take those with `objsubid` 1 and 2 in `pg_locks`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnLock {
    /// Its `objsubid` values.
    pub classes: &'static [i16],
    /// What the engine takes them for.
    pub purpose: &'static str,
    /// What to do about sessions that wait for one.
    pub otherwise: &'static str,
    /// The command for that.
    pub command: &'static str,
}

/// What an engine makes for its own use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Own {
    /// Objects with a name.
    pub objects: &'static [OwnObjects],
    /// Advisory locks.
    pub locks: &'static [OwnLock],
}

impl Own {
    /// Nothing that a user would notice.
    pub const NOTHING: Own = Own { objects: &[], locks: &[] };

    /// The objects of a kind.
    pub fn of(&self, kind: OwnKind) -> Option<&'static OwnObjects> {
        self.objects.iter().find(|objects| objects.kind == kind)
    }
}
