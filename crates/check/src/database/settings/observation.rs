//! Settings without which a slow server cannot be explained.

use crate::database::draft::{Draft, note, pass, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged, Need};
use record::check::Area;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "settings.track_io_timing",
        area: Area::Settings,
        title: "track_io_timing",
        limits: "off",
        units: &[],
        needs: &[],
        why: "without it the server counts reads and writes but not their time: slow disks are not visible in its statistics",
        judge: track_io_timing,
    },
    Check {
        id: "settings.track_wal_io_timing",
        area: Area::Settings,
        title: "track_wal_io_timing",
        limits: "off",
        units: &[],
        needs: &[Need::Since(140_000)],
        why: "without it the time of WAL writes and flushes is not counted: commits that wait for the disk are only seen by sampling",
        judge: track_wal_io_timing,
    },
    Check {
        id: "settings.log",
        area: Area::Settings,
        title: "what the server logs: checkpoints, lock waits, autovacuum, temporary files, and the line prefix",
        limits: "log_checkpoints, log_lock_waits off, log_autovacuum_min_duration -1: warning; log_temp_files -1, no time or process in \
            log_line_prefix: note",
        units: &[],
        needs: &[],
        why: "these lines are the only record of what happened before anyone looked",
        judge: log,
    },
    Check {
        id: "settings.statements",
        area: Area::Settings,
        title: "pg_stat_statements",
        limits: "not preloaded is a note",
        units: &[],
        needs: &[Need::Settings],
        why: "without it nothing shows which statements take the time",
        judge: statements,
    },
];

fn on_or_warn(node: &Node<'_>, name: &'static str) -> Judged {
    let setting = node.setting(name)?;
    Ok(vec![if setting.is_on() {
        pass(setting.words())
    } else {
        warn(name, setting.words())
            .advice("turn it on; measure its cost with pg_test_timing if the clock source is slow")
            .run_all(setting.change("on"))
    }])
}

fn track_io_timing(node: &mut Node<'_>) -> Judged {
    on_or_warn(node, "track_io_timing")
}

fn track_wal_io_timing(node: &mut Node<'_>) -> Judged {
    on_or_warn(node, "track_wal_io_timing")
}

/// Settings with the values that log too little, the value to set, and whether that is worth a warning.
const LOGGED: &[(&str, &[&str], &str, bool)] = &[
    ("log_checkpoints", &["off"], "on", true),
    ("log_lock_waits", &["off"], "on", true),
    ("log_autovacuum_min_duration", &["-1"], "10s", true),
    ("log_temp_files", &["-1"], "10MB", false),
];

fn log(node: &mut Node<'_>) -> Judged {
    let mut drafts: Vec<Draft> = Vec::new();
    for (name, silent, value, matters) in LOGGED {
        let setting = node.setting(name)?;
        if silent.contains(&setting.value.as_str()) {
            let draft = if *matters { warn(*name, setting.words()) } else { note(*name, setting.words()) };
            drafts.push(draft.advice("log it").run_all(setting.change(value)));
        }
    }
    let prefix = node.setting("log_line_prefix")?;
    let has_time = ["%m", "%t", "%n"].iter().any(|escape| prefix.value.contains(escape));
    if !has_time || !prefix.value.contains("%p") {
        drafts.push(
            note(
                "log_line_prefix",
                format!("log_line_prefix is \"{}\": lines lack the time or the process", prefix.value),
            )
            .advice("the default has both")
            .run_all(prefix.change("%m [%p] %q%u@%d ")),
        );
    }
    if drafts.is_empty() {
        drafts.push(pass("checkpoints, lock waits, autovacuum and temporary files are logged"));
    }
    Ok(drafts)
}

fn statements(node: &mut Node<'_>) -> Judged {
    let setting = node.setting("shared_preload_libraries")?;
    let loaded =
        setting.value.split(',').any(|name| name.trim().trim_matches('"').ends_with("pg_stat_statements"));
    if loaded {
        return Ok(vec![pass(setting.words())]);
    }
    let value = if setting.value.is_empty() {
        "pg_stat_statements".to_string()
    } else {
        format!("{},pg_stat_statements", setting.value)
    };
    // A list of libraries is quoted name by name, not as one constant.
    let names: Vec<String> =
        value.split(',').map(|name| connect::sql::literal(name.trim().trim_matches('"'))).collect();
    Ok(vec![
        note("shared_preload_libraries", setting.words())
            .advice("preload it, restart, and create the extension")
            .run(format!("ALTER SYSTEM SET shared_preload_libraries = {};", names.join(", ")))
            .run("-- then restart the server")
            .run("CREATE EXTENSION IF NOT EXISTS pg_stat_statements;"),
    ])
}
