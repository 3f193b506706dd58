//! The table of the manual is made from the checks.
//!
//! After a change of a check: `PGFATHOM_WRITE_DOCS=1 cargo test -p pgfathom-check --test all database_manual`.
#![allow(clippy::unwrap_used)]

use check::database::{Check, Need};
use std::collections::BTreeSet;
use std::path::Path;

const BEGIN: &str = "<!-- checks: made by crates/check/tests/database_manual.rs -->\n";
const END: &str = "<!-- end of checks -->\n";

fn table() -> String {
    let mut table =
        "| check | looks at | warns or fails at | needs | because |\n|---|---|---|---|---|\n".to_string();
    for Check { id, title, limits, needs, why, .. } in check::database::all() {
        let needs: Vec<String> = needs.iter().map(Need::words).collect();
        table.push_str(&format!("| `{id}` | {title} | {limits} | {} | {why} |\n", needs.join("; ")));
    }
    table
}

#[test]
fn the_table_in_the_manual_is_that_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/check-database.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    if std::env::var_os("PGFATHOM_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
        return;
    }
    assert_eq!(written, table(), "docs/check-database.md is old: see the head of this file");
}

#[test]
fn every_check_has_a_name_of_its_own_and_all_its_words() {
    let mut names = BTreeSet::new();
    for check in check::database::all() {
        assert!(names.insert(check.id), "{} twice", check.id);
        assert!(
            [check.title, check.limits, check.why]
                .iter()
                .all(|words| !words.is_empty() && !words.contains('|')),
            "{}",
            check.id
        );
        assert!(["settings.", "schema.", "state."].iter().any(|area| check.id.starts_with(area)));
    }
    assert!(names.len() > 50);
}
