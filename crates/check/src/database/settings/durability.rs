//! Settings that decide whether a committed transaction survives.

use crate::database::draft::{fail, note, pass, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged, Need};
use record::check::{Area, Unit};
use record::number;
use watch::sql::json;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "settings.fsync",
        area: Area::Settings,
        title: "fsync",
        limits: "off",
        units: &[],
        needs: &[],
        why: "without it a crash of the host or a power failure can leave the whole cluster corrupt",
        judge: fsync,
    },
    Check {
        id: "settings.full_page_writes",
        area: Area::Settings,
        title: "full_page_writes",
        limits: "off",
        units: &[],
        needs: &[],
        why: "a page that was half written during a power failure cannot be repaired; only a file system that never tears a page (ZFS) may do without",
        judge: full_page_writes,
    },
    Check {
        id: "settings.synchronous_commit",
        area: Area::Settings,
        title: "synchronous_commit",
        limits: "off, or local although synchronous standbys are named",
        units: &[],
        needs: &[],
        why: "with off, a crash loses the last commits that were acknowledged; with local, the standby that should prevent that is not waited for",
        judge: synchronous_commit,
    },
    Check {
        id: "settings.synchronous_standby_names",
        area: Area::Settings,
        title: "synchronous_standby_names against the connected standbys",
        limits: "fewer matching standbys than commits wait for",
        units: &[Unit::Count],
        needs: &[Need::Primary, Need::Statistics],
        why: "a commit waits for the standbys without a time limit: if none matches, every write hangs",
        judge: standby_names,
    },
    Check {
        id: "settings.data_checksums",
        area: Area::Settings,
        title: "data checksums",
        limits: "off",
        units: &[],
        needs: &[],
        why: "without checksums a damaged page is read as if it were right, and spreads to backups",
        judge: checksums,
    },
];

fn fsync(node: &mut Node<'_>) -> Judged {
    must_be_on(node, "fsync")
}

fn full_page_writes(node: &mut Node<'_>) -> Judged {
    must_be_on(node, "full_page_writes")
}

fn must_be_on(node: &Node<'_>, name: &str) -> Judged {
    let setting = node.setting(name)?;
    Ok(vec![if setting.is_on() {
        pass(setting.words())
    } else {
        fail(name, setting.words())
            .advice("turn it on, unless the data may be lost")
            .run_all(setting.change("on"))
    }])
}

fn synchronous_commit(node: &mut Node<'_>) -> Judged {
    let has_standbys = !node.setting("synchronous_standby_names")?.value.trim().is_empty();
    let setting = node.setting("synchronous_commit")?;
    let is_weak = setting.value == "off" || setting.value == "local" && has_standbys;
    Ok(vec![if is_weak {
        let what = if setting.value == "off" {
            "acknowledged commits can be lost in a crash"
        } else {
            "commits do not wait for the named standbys"
        };
        warn("synchronous_commit", format!("{}: {what}", setting.words()))
            .advice("turn it on; single transactions may use SET LOCAL synchronous_commit = off")
            .run_all(setting.change("on"))
    } else {
        pass(setting.words())
    }])
}

/// How many standbys commits wait for, and the names of the list. The server has accepted the value, so it is well formed.
fn awaited(value: &str) -> (usize, Vec<String>) {
    let value = value.trim();
    let Some((head, rest)) = value.split_once('(') else { return (1, names(value)) };
    let count = head.split_whitespace().filter_map(|word| word.parse().ok()).next_back();
    match count {
        Some(count) => (count, names(rest.trim_end().trim_end_matches(')'))),
        None => (1, names(value)),
    }
}

/// Names between commas; a quoted one may contain commas and doubled quotes.
fn names(list: &str) -> Vec<String> {
    let (mut names, mut name, mut is_quoted, mut was_quoted) = (Vec::new(), String::new(), false, false);
    let mut chars = list.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                name.push('"');
            }
            '"' => {
                is_quoted = !is_quoted;
                was_quoted = true;
            }
            ',' if !is_quoted => {
                names.push(std::mem::take(&mut name));
                was_quoted = false;
            }
            c if c.is_whitespace() && !is_quoted => {}
            c => name.push(c),
        }
    }
    if !name.is_empty() || was_quoted {
        names.push(name);
    }
    names
}

fn standby_names(node: &mut Node<'_>) -> Judged {
    let standbys = node.row(
        "select count(*) filter (where sync_state in ('sync', 'quorum', 'potential') and state = 'streaming') n, count(*) connected,
           (select pg_catalog.json_agg(distinct pg_catalog.lower(application_name)) from pg_catalog.pg_stat_replication) as names from \
               pg_catalog.pg_stat_replication",
    )?;
    let (matching, connected) =
        (json::count(&standbys, "n").unwrap_or(0), json::count(&standbys, "connected").unwrap_or(0));
    let there: Vec<String> =
        json::list(&standbys, "names").iter().filter_map(|name| name.as_str().map(str::to_string)).collect();
    let setting = node.setting("synchronous_standby_names")?;
    if setting.value.trim().is_empty() {
        let claim = format!(
            "{}; {}",
            setting.words(),
            number::counted(connected, "standby connected").replace("connecteds", "connected")
        );
        return Ok(vec![if connected == 0 {
            pass(claim)
        } else {
            note("synchronous_standby_names", claim)
                .why("commits wait for no standby: a failover can lose acknowledged transactions")
        }]);
    }
    let (needed, listed) = awaited(&setting.value);
    let absent: Vec<&str> = listed
        .iter()
        .filter(|name| *name != "*" && !there.contains(&name.to_lowercase()))
        .map(String::as_str)
        .collect();
    if matching < needed as u64 {
        let claim = format!(
            "{} (\"{}\"): commits wait for {needed}, and {matching} of the named standbys stream",
            setting.name, setting.value
        );
        return Ok(vec![
            fail("synchronous_standby_names", claim)
                .figure(matching as f64, Unit::Count)
                .at_least(needed as f64)
                .advice(format!(
                    "bring the standbys back ({} absent); until then, if commits must go on without them:",
                    absent.join(", ")
                ))
                .run_all(setting.change("")),
        ]);
    }
    if !absent.is_empty() && !there.is_empty() {
        let claim = format!(
            "{} (\"{}\"): {} {} not connected; commits wait for {needed}, {matching} match",
            setting.name,
            setting.value,
            absent.join(", "),
            if absent.len() == 1 { "is" } else { "are" }
        );
        return Ok(vec![
            warn("synchronous_standby_names", claim)
                .advice("compare it with application_name in primary_conninfo of the standbys")
                .run("SELECT application_name, state, sync_state FROM pg_stat_replication;"),
        ]);
    }
    Ok(vec![
        pass(format!("{}: commits wait for {needed}, {matching} match", setting.words()))
            .figure(matching as f64, Unit::Count)
            .at_least(needed as f64),
    ])
}

fn checksums(node: &mut Node<'_>) -> Judged {
    let folder = node
        .setting("data_directory")
        .map(|setting| setting.value.clone())
        .unwrap_or_else(|_| "DATA_DIRECTORY".to_string());
    let can = node.version() >= 120_000;
    let setting = node.setting("data_checksums")?;
    if setting.is_on() {
        return Ok(vec![pass(setting.words())]);
    }
    let draft = warn("data_checksums", setting.words());
    let is_other_build = node.is_other_build()?;
    let whose = if is_other_build { "; the program must be the one of this build" } else { "" };
    Ok(vec![if can {
        draft
            .advice(format!(
                "stop the server, enable them, start it: each page is rewritten; do one server after another, a standby before its primary{whose}"
            ))
            .run(format!("$ pg_checksums --enable -D '{}'", folder.replace('\'', "'\\''")))
    } else {
        draft.advice("only initdb --data-checksums of a new cluster can enable them in this release")
    }])
}

#[cfg(test)]
mod tests {
    use super::awaited;

    #[test]
    fn every_form_of_the_list_is_understood() {
        for (value, needed, names) in [
            ("a", 1, vec!["a"]),
            ("*", 1, vec!["*"]),
            ("a, b", 1, vec!["a", "b"]),
            ("FIRST 2 (a, b, c)", 2, vec!["a", "b", "c"]),
            ("any 1(a,b)", 1, vec!["a", "b"]),
            ("2 (\"x, (y\", \"q\"\"r\")", 2, vec!["x, (y", "q\"r"]),
        ] {
            assert_eq!(awaited(value), (needed, names.into_iter().map(String::from).collect()), "{value}");
        }
    }
}
