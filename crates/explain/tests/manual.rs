//! The manual's table of rules is made from the table in the program, so that the two cannot drift.
//!
//! After a change of a rule: `PGFATHOM_WRITE_DOCS=1 cargo test -p pgfathom-explain --test all manual`.

use explain::rule::Need;
use explain::rules;
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- rules: made by crates/explain/tests/manual.rs -->\n";
const END: &str = "<!-- end of rules -->\n";

fn table() -> String {
    let mut table = "| rule | condition | fires at | needs |\n|---|---|---|---|\n".to_string();
    for rule in rules::all() {
        let needs: Vec<String> = rule.needs.iter().map(Need::words).collect();
        table.push_str(&format!(
            "| {} | {} | {} | {} |\n",
            rule.id,
            rule.title,
            rule.limits,
            needs.join("; ")
        ));
    }
    table
}

#[test]
fn the_table_in_the_manual_is_the_table_in_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explain.md");
    let text = fs::read_to_string(&path).expect("the manual is there");
    let (before, rest) = text.split_once(BEGIN).expect("the beginning is marked");
    let (told, after) = rest.split_once(END).expect("the end is marked");
    if std::env::var_os("PGFATHOM_WRITE_DOCS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", table())).expect("writes");
        return;
    }
    assert_eq!(told, table(), "docs/explain.md is old: see the head of this file for how to make it again");
}

#[test]
fn links_into_the_manual_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for rule in rules::all() {
        for link in rule.links {
            let known = link.starts_with("https://") || root.join(link).exists() || *link == "docs/watch.md";
            assert!(known, "{}: {link}", rule.id);
        }
    }
}
