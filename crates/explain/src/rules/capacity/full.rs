//! What lies on a disk that fills, and whether the server's log has writes there that failed.

use crate::case::{Case, Thing};
use crate::rules::costly::plain;
use crate::rules::paste::literal;
use record::event;

/// Characters of a statement.
const STATEMENT_CHARS: usize = 100;
/// What the server writes when a file could not grow (`mdextend` in md.c, and others).
const NO_SPACE: &str = "No space left on device";
/// The folder of tablespaces in a path of the server, and that of the WAL.
const TABLESPACES: &str = "pg_tblspc/";
const WAL: &str = "pg_wal/";

/// Parts of the server that lie on a file system: `data`, `wal`, `tablespace NAME`.
fn parts<'a>(mount: &Thing<'a>) -> impl Iterator<Item = &'a str> {
    mount.lines.word("used_for").split(',').map(str::trim)
}

fn tablespace<'a>(mount: &Thing<'a>) -> Option<&'a str> {
    parts(mount).find_map(|part| part.strip_prefix("tablespace "))
}

/// Whether the WAL lies there.
pub(super) fn has_wal(mount: &Thing<'_>) -> bool {
    parts(mount).any(|part| part == "wal")
}

/// Where the server writes what does not fit into memory, in any tablespace.
const TEMPORARY: &str = "pgsql_tmp";

/// Whether a write that failed is explained by a disk which is nearly full (CAP-03): not a temporary file, and one of the disks of the server.
pub(in crate::rules) fn is_of_full_disk(case: &Case, node: &str, message: &str) -> bool {
    let is_full = |mount: Thing<'_>| {
        let (free, size) = (mount.lines.last("free_bytes"), mount.lines.max("size_bytes"));
        let has_server = !mount.lines.word("used_for").is_empty();
        has_server && free.zip(size).is_some_and(|(free, size)| free < size * super::FREE_SHARE_MIN)
    };
    let host = case.host_of(node).unwrap_or_default();
    message.contains(NO_SPACE) && !message.contains(TEMPORARY) && case.at("mount", host).any(is_full)
}

/// Writes that failed there, by the server's log.
pub(super) struct Failed {
    pub(super) count: f64,
    /// A statement that failed.
    pub(super) statement: String,
}

impl Failed {
    /// `None` if there are none. The log has paths below the data directory, where a tablespace is a link.
    pub(super) fn on(case: &Case, mount: &Thing<'_>) -> Option<Failed> {
        let is_there = |message: &str| match (message.contains(TABLESPACES), message.contains(WAL)) {
            (true, _) => tablespace(mount).is_some(),
            (_, true) => has_wal(mount),
            _ => parts(mount).any(|part| part == "data"),
        };
        let is_of_host =
            |node: &str| node.is_empty() || case.host_of(node).is_none_or(|host| host == mount.place);
        let failed = case.events_of(event::SERVER_LOG).filter(|event| {
            event.message.contains(NO_SPACE)
                && is_there(&event.message)
                && is_of_host(Case::word_of(event, "node"))
        });
        let failed: Vec<_> = failed.collect();
        let statement =
            failed.iter().map(|event| Case::word_of(event, "statement")).find(|text| !text.is_empty());
        (!failed.is_empty()).then(|| Failed {
            count: failed.iter().map(|event| event.times()).sum(),
            statement: plain(statement.unwrap_or_default(), STATEMENT_CHARS),
        })
    }

    /// The end of a claim.
    pub(super) fn words(&self) -> String {
        let statement =
            if self.statement.is_empty() { String::new() } else { format!(": {}", self.statement) };
        format!("; {:.0} writes have failed for it{statement}", self.count)
    }
}

/// The tablespace that lies there, as a part of a claim.
pub(super) fn whose(mount: &Thing<'_>) -> String {
    tablespace(mount)
        .map_or(String::new(), |name| format!(", with tablespace {},", plain(name, STATEMENT_CHARS)))
}

/// What to do, and what to type besides looking at the disk.
pub(super) fn advice(mount: &Thing<'_>) -> (&'static str, String) {
    match tablespace(mount).filter(|_| !has_wal(mount)) {
        Some(name) => (
            "make room, or move what is large to another tablespace (ALTER TABLE ... SET TABLESPACE keeps all others out while it copies); rows that are \
                deleted \
             give room to new ones of the same table after a vacuum, and not to the disk",
            format!(
                "SELECT c.oid::regclass, pg_size_pretty(pg_relation_size(c.oid)) FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace WHERE \
                    t.spcname = {} \
                 ORDER BY pg_relation_size(c.oid) DESC LIMIT 10;",
                literal(name)
            ),
        ),
        None => (
            "find what grows: WAL kept for a slot (REP-03) or an archive that fails, temporary files, tables",
            "SELECT slot_name, active, wal_status FROM pg_replication_slots;".to_string(),
        ),
    }
}
