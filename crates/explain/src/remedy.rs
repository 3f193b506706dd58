//! Commands that would do nothing, or the wrong thing, on this server are not printed: a setting that has the value already, a size that is larger
//! already, a setting that this release does not have, an index that is there, one with a parameter in it, or one that the server would refuse.
//!
//! Neither are those that cannot reach what they are for: where a file, the command line or a narrower setting wins (`setting`).
//!
//! Rules write their remedies for any server; what the recording shows of this one is compared here, once for all of them.

mod index;
mod setting;
mod wal;

use crate::case::Case;
use crate::units;
use record::Findings;

/// Settings that remedies only raise: a server whose value is larger already needs nothing.
const RAISED: [&str; 12] = [
    "autovacuum_max_workers",
    "autovacuum_vacuum_cost_limit",
    "autovacuum_work_mem",
    "bgwriter_lru_maxpages",
    "checkpoint_timeout",
    "maintenance_work_mem",
    "max_locks_per_transaction",
    "max_wal_size",
    "multixact_member_buffers",
    "shared_buffers",
    "subtransaction_buffers",
    "wal_buffers",
];
/// What begins a command that changes a setting of the server.
const SET: &str = "ALTER SYSTEM SET ";
/// What makes changed settings take effect.
const RELOAD: &str = "SELECT pg_reload_conf()";
/// The comment of a command that older releases refuse.
const SINCE: &str = "-- PostgreSQL ";

/// Removes commands that would change nothing at the node of their finding, or that its release refuses.
pub(crate) fn prune(case: &Case, findings: &mut Findings) {
    for finding in &mut findings.findings {
        let node = finding.node.clone().unwrap_or_default();
        finding.remedy.commands =
            setting::that_reach(case, &node, pruned(case, &node, &finding.remedy.commands));
    }
}

fn pruned(case: &Case, node: &str, commands: &[String]) -> Vec<String> {
    let kept: Vec<String> = commands
        .iter()
        .filter_map(|command| {
            index::checked(case, node, command).or_else(|| without_no_ops(case, node, command))
        })
        .filter(|command| is_known(case, node, command))
        .collect();
    let sets = |commands: &[String]| commands.iter().any(|command| command.contains(SET));
    // A reload follows the settings that it is for.
    let is_reload = |command: &String| command.trim_end_matches(';') == RELOAD;
    match sets(commands) && !sets(&kept) {
        true => kept.into_iter().filter(|command| !is_reload(command)).collect(),
        false => kept,
    }
}

/// Whether the release of the server has the command, which names the first one that does: `-- PostgreSQL 14`.
fn is_known(case: &Case, node: &str, command: &str) -> bool {
    let since = command.split_once(&format!(" {SINCE}")).and_then(|(_, rest)| {
        rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|major| major.parse::<u64>().ok())
    });
    since.zip(release(case, node)).is_none_or(|(since, release)| release >= since)
}

/// The command without the settings that need no change; `None` if nothing remains.
fn without_no_ops(case: &Case, node: &str, command: &str) -> Option<String> {
    if !command.starts_with(SET) {
        return Some(command.to_owned());
    }
    let (sql, comment) = command.find(" -- ").map_or((command, ""), |at| command.split_at(at));
    let statements: Vec<&str> = sql.split(';').map(str::trim).filter(|sql| !sql.is_empty()).collect();
    let fitted = statements.iter().filter_map(|sql| wal::fitted(case, node, &statements, sql));
    let kept: Vec<String> = fitted.filter(|sql| changes(case, node, sql)).collect();
    match kept == statements {
        true => Some(command.to_owned()),
        false if kept.iter().all(|sql| sql == RELOAD) => None,
        false => Some(format!("{};{comment}", kept.join("; "))),
    }
}

/// Whether a statement changes something; those that are not about a recorded setting do.
fn changes(case: &Case, node: &str, sql: &str) -> bool {
    let Some((name, wanted)) = sql.strip_prefix(SET).and_then(|rest| rest.split_once('=')) else {
        return true;
    };
    let (name, wanted) = (name.trim(), wanted.trim().trim_matches('\''));
    let Some(now) = case.setting(node, name) else { return true };
    match (units::setting(now), units::setting(wanted)) {
        // Negative values have meanings of their own.
        (Some(now), Some(wanted)) if RAISED.contains(&name) && now >= 0.0 => now < wanted,
        (Some(now), Some(wanted)) => now != wanted,
        _ => !now.eq_ignore_ascii_case(wanted),
    }
}

/// The major release of a node.
pub(crate) fn release(case: &Case, node: &str) -> Option<u64> {
    let fact = case.facts("server").find(|fact| fact.name == "version_num" && fact.node == node);
    let recorded = fact.and_then(|fact| fact.value.parse::<u64>().ok());
    recorded.or_else(|| Some(case.run.target.as_ref()?.version_num)).map(|number| number / 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::model::{Setting, Target};

    fn case(settings: &[(&str, &str)], version_num: u64) -> Case {
        let settings = settings
            .iter()
            .map(|(name, value)| Setting {
                name: (*name).into(),
                value: (*value).into(),
                ..Setting::default()
            })
            .collect();
        let mut case = Case::default();
        case.run.target = Some(Target { version_num, settings, ..Target::default() });
        case
    }

    #[test]
    fn commands_that_change_nothing_are_left_out() {
        let here = case(
            &[
                ("work_mem", "4MB"),
                ("max_wal_size", "64GB"),
                ("synchronous_commit", "on"),
                ("jit", "off"),
                ("autovacuum_work_mem", "-1"),
                ("checkpoint_timeout", "300s"),
            ],
            150_020,
        );
        let left = |commands: &[&str]| {
            pruned(&here, "", &commands.iter().map(|command| (*command).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(
            left(&["ALTER SYSTEM SET work_mem = '4096kB'; SELECT pg_reload_conf(); -- reaches all"]),
            [""; 0]
        );
        assert_eq!(left(&["ALTER SYSTEM SET max_wal_size = '16GB'; SELECT pg_reload_conf();"]), [""; 0]);
        assert_eq!(
            left(&["ALTER SYSTEM SET jit = off; -- or for a role", "SELECT pg_reload_conf();"]),
            [""; 0]
        );
        assert_eq!(left(&["ALTER SYSTEM SET synchronous_commit = 'ON';", "$ vmstat 1 5"]), ["$ vmstat 1 5"]);
        assert_eq!(
            left(&[
                "ALTER SYSTEM SET max_wal_size = '32GB'; ALTER SYSTEM SET checkpoint_timeout = '15min'; SELECT pg_reload_conf(); -- why"
            ]),
            ["ALTER SYSTEM SET checkpoint_timeout = '15min'; SELECT pg_reload_conf(); -- why"]
        );
        // What changes something stays as it was written.
        for kept in [
            "ALTER SYSTEM SET work_mem = '1MB'; SELECT pg_reload_conf();",
            "ALTER SYSTEM SET autovacuum_work_mem = '1GB'; SELECT pg_reload_conf();",
            "ALTER SYSTEM SET not_recorded = 1; SELECT pg_reload_conf();",
            "SELECT pg_reload_conf();",
            "VACUUM (ANALYZE);",
        ] {
            assert_eq!(left(&[kept]), [kept]);
        }
    }

    #[test]
    fn settings_of_newer_releases_are_left_out() {
        let command = "ALTER SYSTEM SET subtransaction_buffers = '8MB'; -- PostgreSQL 17; then restart: all sessions end";
        assert_eq!(pruned(&case(&[], 150_020), "", &[command.to_owned()]), [""; 0]);
        assert_eq!(pruned(&case(&[], 170_002), "", &[command.to_owned()]), [command]);
    }
}
