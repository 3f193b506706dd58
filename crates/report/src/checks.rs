//! What `check` found: a table for the terminal; the page's part is in `page`, what a run made of the hardware in `hardware`.

mod hardware;
mod page;

pub(crate) use hardware::{print as print_hardware, section as hardware_section};
pub(crate) use page::section;

use crate::layout::{columns, fold, push};
use crate::tile::Tile;
use record::check::{Checks, Item, Verdict};
use record::number;

/// The verb whose directory is shown with these.
pub(crate) const VERB: &str = "check";

/// Columns from this one hold numbers.
const FIGURE_COLUMN: usize = 4;

/// Where an item belongs: host or node, and what on it.
fn place(item: &Item) -> String {
    let owner = item.host.as_deref().or(item.node.as_deref()).unwrap_or_default();
    match (owner.is_empty(), item.subject.is_empty()) {
        (_, true) => owner.to_string(),
        (true, false) => item.subject.clone(),
        (false, false) => format!("{owner} {}", item.subject),
    }
}

/// The whole check as a clause: "checked 3 hosts and found 2 failures and 1 warning".
pub fn clause(checks: &Checks) -> String {
    let hosts = number::counted(checks.hosts.len() as u64, "host");
    let count = |verdict, one: &str| number::counted(checks.count(verdict) as u64, one);
    match checks.worst() {
        Some(Verdict::Fail) => {
            format!(
                "checked {hosts} and found {} and {}",
                count(Verdict::Fail, "failure"),
                count(Verdict::Warn, "warning")
            )
        }
        Some(Verdict::Warn) => {
            format!("checked {hosts} and found no failure and {}", count(Verdict::Warn, "warning"))
        }
        _ => format!("checked {hosts} and found no failure and no warning"),
    }
}

/// The numbers of the check.
pub(crate) fn tiles(checks: &Checks) -> Vec<Tile> {
    let tile = |label: &str, verdict| Tile {
        label: label.to_string(),
        value: number::count(checks.count(verdict) as u64),
        unit: String::new(),
        detail: String::new(),
        key: String::new(),
    };
    vec![
        tile("failed", Verdict::Fail),
        tile("warnings", Verdict::Warn),
        tile("passed", Verdict::Pass),
        tile("unknown", Verdict::Unknown),
    ]
}

/// `FAIL` and `WARN` stand out in capitals, because there is no colour.
fn verdict(item: &Item) -> String {
    let word = item.verdict.word();
    if item.verdict >= Verdict::Warn { word.to_uppercase() } else { word.to_string() }
}

/// The terminal page of all items: a table, and sentences for those that are not as they should be.
pub fn text(checks: &Checks) -> String {
    let mut out = String::new();
    let mut rows = vec![["", "area", "check", "where", "figure", "limit"].map(str::to_string).to_vec()];
    for item in &checks.items {
        let limit = item.figure.zip(item.limit).map(|(figure, limit)| limit.text(figure.unit));
        rows.push(vec![
            verdict(item),
            item.area.word().to_string(),
            item.check.clone(),
            place(item),
            item.figure.map(|figure| figure.text()).unwrap_or_default(),
            limit.unwrap_or_default(),
        ]);
    }
    columns(&mut out, &rows, |column| column < FIGURE_COLUMN);
    let mut bad: Vec<&Item> = checks
        .items
        .iter()
        .filter(|item| item.verdict == Verdict::Unknown || item.verdict >= Verdict::Warn)
        .collect();
    bad.sort_by_key(|item| std::cmp::Reverse(item.verdict));
    for item in bad {
        out.push('\n');
        fold(&mut out, &format!("{} ", verdict(item)), &format!("{}: {}", place(item), item.claim));
        for more in [&item.why, &item.remedy.text] {
            if !more.is_empty() {
                fold(&mut out, "     ", more);
            }
        }
        item.remedy.commands.iter().for_each(|command| push(&mut out, &format!("       {command}")));
    }
    let count = |verdict| checks.count(verdict);
    push(
        &mut out,
        &format!(
            "\n{} passed, {} warnings, {} failed, {} unknown",
            count(Verdict::Pass),
            count(Verdict::Warn),
            count(Verdict::Fail),
            count(Verdict::Unknown)
        ),
    );
    out
}
