//! Configuration files: errors, changes that wait, access without a password.

use crate::database::draft::{each, fail, pass, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged, Need};
use record::check::{Area, Unit};
use serde_json::Value;
use watch::sql::json;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "state.pending_restart",
        area: Area::State,
        title: "settings whose change waits for a restart",
        limits: "any",
        units: &[],
        needs: &[],
        why: "the server runs with other values than its files say, and the next restart changes them at once",
        judge: pending,
    },
    Check {
        id: "state.configuration_files",
        area: Area::State,
        title: "errors in the configuration files",
        limits: "any",
        units: &[],
        needs: &[Need::View("pg_catalog.pg_file_settings")],
        why: "a reload ignores the whole file, and after the next stop the server does not start",
        judge: files,
    },
    Check {
        id: "state.access_rules",
        area: Area::State,
        title: "errors and password-free access in pg_hba.conf",
        limits: "an error: fail; trust for an address that is not local: warning",
        units: &[Unit::Count],
        needs: &[Need::View("pg_catalog.pg_hba_file_rules")],
        why: "with an error the server keeps the old rules and does not start the next time; trust lets everyone on the network be any role",
        judge: rules,
    },
];

fn pending(node: &mut Node<'_>) -> Judged {
    let waiting: Vec<(String, String)> = node
        .settings()
        .filter(|setting| setting.is_pending)
        .map(|setting| (setting.name.clone(), setting.words()))
        .collect();
    let folder = node
        .setting("data_directory")
        .map_or_else(|_| "DATA_DIRECTORY".to_string(), |setting| setting.value.clone());
    let draft = |(name, words): &(String, String)| {
        warn(&**name, words.clone())
            .advice("restart at a time of your choice")
            .run(format!("$ pg_ctl restart -D '{}'", folder.replace('\'', "'\\''")))
    };
    Ok(each(&waiting, waiting.len() as u64, draft, || pass("no change waits for a restart")))
}

fn files(node: &mut Node<'_>) -> Judged {
    let found = node.list("", "select sourcefile as file, sourceline as line, name, error from pg_catalog.pg_file_settings where error is not null", "1, 2")?;
    // A value that only a restart can apply is listed as one that could not be applied, also if the command line overrides it. Reading the view has
    // just marked such settings in this session.
    let marked = node.list("", "select name from pg_catalog.pg_settings where pending_restart", "1")?;
    let pending: Vec<String> = marked.rows.iter().map(|row| json::text(row, "name")).collect();
    let rows: Vec<Value> =
        found.rows.into_iter().filter(|row| !pending.contains(&json::text(row, "name"))).collect();
    let draft = |row: &Value| {
        let place = format!("{} line {}", json::text(row, "file"), json::text(row, "line"));
        fail(&*place, format!("{place}, {}: {}", json::text(row, "name"), json::text(row, "error")))
            .advice("correct the line, then reload")
            .run("SELECT pg_reload_conf();")
    };
    Ok(each(&rows, rows.len() as u64, draft, || pass("no errors")))
}

fn rules(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        "select line_number as line, error, type, address, pg_catalog.array_to_string(database, ',') as databases, \
            pg_catalog.array_to_string(user_name, ',') as users
         from pg_catalog.pg_hba_file_rules where error is not null
           or auth_method = 'trust' and type <> 'local' and address not in ('127.0.0.1', '::1', 'samehost', 'localhost')",
        "error is null, line",
    )?;
    let draft = |row: &Value| {
        let place = format!("pg_hba.conf line {}", json::text(row, "line"));
        match json::text(row, "error") {
            none if none.is_empty() => warn(
                &*place,
                format!(
                    "{place}: {} may connect to {} from {} without a password",
                    json::text(row, "users"),
                    json::text(row, "databases"),
                    json::text(row, "address")
                ),
            )
            .advice("use scram-sha-256 or certificates, then reload"),
            error => fail(&*place, format!("{place}: {error}"))
                .advice("correct the line, then reload")
                .run("SELECT pg_reload_conf();"),
        }
    };
    let drafts =
        each(&found.rows, found.total, draft, || pass("no errors, and no network access without a password"));
    Ok(drafts.into_iter().map(|draft| draft.figure(found.total as f64, Unit::Count)).collect())
}
