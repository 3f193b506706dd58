//! The nodes of the database that run on a host, and where their files are.

use super::backends::{BACKENDS_MAX, Target};
use super::files::Files;

/// A node of the database that runs on this host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Server {
    /// Its name.
    pub node: String,
    /// One of its processes, at work or not.
    pub pid: Option<u32>,
    /// Its processes that are at work.
    pub active: Vec<Target>,
    /// What lies where.
    pub parts: Vec<Part>,
}

/// A part of a database and its location.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Part {
    /// The node it belongs to.
    pub node: String,
    /// `pgdata`, `wal`, `tablespace X`.
    pub what: String,
    /// Its folder, with symbolic links followed.
    pub path: String,
}

/// How a title begins, before what the process is.
const TITLE: &str = "postgres: ";
/// Processes of a server that matter besides sessions, by the beginning of their titles.
const AT_WORK: [&str; 6] =
    ["startup", "checkpointer", "walwriter", "autovacuum worker", "parallel worker", "walreceiver"];
/// Others, which are no sessions.
const OTHERS: [&str; 9] = [
    "logger",
    "background writer",
    "autovacuum launcher",
    "logical replication",
    "archiver",
    "stats collector",
    "walsender",
    "io worker",
    "bgworker",
];

/// The kind of a process by its title, if it is at work; a server with a `cluster_name` has that in front.
fn at_work(title: &str) -> Option<&'static str> {
    let title = title.trim_end_matches(['\0', ' ']).strip_prefix(TITLE)?;
    let begins = |names: &[&'static str]| {
        let of_name = |name: &&&str| {
            title.starts_with(**name)
                || title.split_once(": ").is_some_and(|(_, rest)| rest.starts_with(**name))
        };
        names.iter().find(of_name).copied()
    };
    if let Some(name) = begins(&AT_WORK) {
        return Some(name);
    }
    let is_idle = ["idle", "idle in transaction", "idle in transaction (aborted)"]
        .iter()
        .any(|state| title.ends_with(state));
    (begins(&OTHERS).is_none() && !is_idle).then_some("client backend")
}

/// The processes of a server that does not answer, by the titles that they give themselves: one of them, and those at work.
pub(crate) fn by_titles(files: &mut dyn Files, node: &str, main: u32) -> (Option<u32>, Vec<Target>) {
    let list = files.text(&format!("/proc/{main}/task/{main}/children")).unwrap_or_default().to_string();
    let children: Vec<u32> =
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).take(BACKENDS_MAX).collect();
    let mut found = vec![];
    for pid in &children {
        let kind = files.text(&format!("/proc/{pid}/cmdline")).ok().and_then(at_work);
        found.extend(kind.map(|kind| Target {
            pid: *pid,
            node: node.to_string(),
            backend: kind.to_string(),
        }));
    }
    (children.first().copied(), found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;

    #[test]
    fn a_server_that_does_not_answer_is_known_by_the_titles_of_its_processes() {
        let mut files = Shipped::default();
        files.put("/proc/10/task/10/children", "11 12 13 14 15 ".into());
        for (pid, title) in [
            (11, "postgres: checkpointer "),
            (12, "postgres: main: background writer "),
            (13, "postgres: app shop [local] SELECT"),
            (14, "postgres: app shop 10.0.0.1(5020) idle in transaction"),
            (15, "postgres: main: parallel worker for PID 13 "),
        ] {
            files.put(&format!("/proc/{pid}/cmdline"), format!("{title}\0"));
        }
        let (first, targets) = by_titles(&mut files, "n1", 10);
        let kinds: Vec<_> = targets.iter().map(|target| (target.pid, target.backend.as_str())).collect();
        assert_eq!(first, Some(11));
        assert_eq!(kinds, [(11, "checkpointer"), (13, "client backend"), (15, "parallel worker")]);
        assert_eq!(by_titles(&mut files, "n1", 77), (None, vec![]));
    }
}
