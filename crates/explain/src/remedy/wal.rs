//! `max_wal_size` in commands of rules that are not about it: no more than the measured WAL needs, and the disk has room for.

use super::SET;
use crate::case::Case;
use crate::rules::wal::size::{self, Proposal};
use crate::units;

/// The setting.
const NAME: &str = "max_wal_size";

/// The value that a statement of a command gives a setting.
fn value_of<'a>(statements: &[&'a str], name: &str) -> Option<&'a str> {
    statements.iter().find_map(|sql| {
        let (found, value) = sql.strip_prefix(SET)?.split_once('=')?;
        (found.trim() == name).then(|| value.trim().trim_matches('\''))
    })
}

/// A statement of a command as it fits this server; `None` if its disk has no room for more WAL. `statements` are all of the command.
pub(super) fn fitted(case: &Case, node: &str, statements: &[&str], sql: &str) -> Option<String> {
    let unchanged = || Some(sql.to_string());
    let Some(stated) = value_of(&[sql], NAME).and_then(units::setting) else { return unchanged() };
    let interval = value_of(statements, "checkpoint_timeout").and_then(units::setting).map(|ms| ms / 1e3);
    let node = match case.nodes().as_slice() {
        [only] if node.is_empty() => *only,
        _ => node,
    };
    match size::of(case, node, interval).map(|size| size.proposal()) {
        Some(Proposal::NoRoom) => None,
        Some(Proposal::Whole(bytes) | Proposal::Part(bytes)) if bytes < stated => {
            Some(format!("{SET}{NAME} = '{}'", size::megabytes(bytes)))
        }
        _ => unchanged(),
    }
}
