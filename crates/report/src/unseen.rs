//! What `watch` could not see, what is therefore unknown, and what sampling cost.

use crate::facts::Facts;
use crate::html::markup::{Cell, Row, table};
use crate::layout::{fold, push};
use record::escape::ascii;
use record::watched::{Cost, Missing, Sampled};
use std::collections::BTreeMap;

/// Lines on the terminal.
const TEXT_MAX: usize = 4;
/// Lines on the page.
const SHOWN_MAX: usize = 60;

/// Items still missing at the end, one line each; the same on many nodes counts once, with their names.
fn unseen<'a>(facts: &Facts<'a>) -> Vec<(&'a Missing, Vec<&'a str>)> {
    let mut last: BTreeMap<(&str, &str, &str), &Missing> = BTreeMap::new();
    for line in facts.directory.watched.all() {
        if let Sampled::Missing(missing) = &line.what {
            last.insert((&missing.what, &missing.node, &missing.host), missing);
        }
    }
    let mut grouped: BTreeMap<(&str, &str, &str), (&Missing, Vec<&str>)> = BTreeMap::new();
    for missing in last.into_values().filter(|missing| !missing.why.is_empty()) {
        let place = if missing.node.is_empty() { &missing.host } else { &missing.node };
        let key = (missing.what.as_str(), missing.why.as_str(), missing.lost.as_str());
        grouped.entry(key).or_insert((missing, vec![])).1.push(place);
    }
    grouped.into_values().collect()
}

/// Names, or how many there are.
fn places(names: &[&str]) -> String {
    if names.len() > 3 { format!("{} and {} more", names[0], names.len() - 1) } else { names.join(", ") }
}

/// The cost of monitoring, as it recorded it.
pub(crate) fn cost(facts: &Facts) -> Cost {
    let mut cost = Cost::default();
    for line in facts.directory.watched.all() {
        if let Sampled::Watching(watching) = &line.what {
            cost.add(line.interval_us, watching);
        }
    }
    cost
}

/// Writes the section; nothing if no item was missing.
pub(crate) fn section(out: &mut String, facts: &Facts) {
    let all = unseen(facts);
    if all.is_empty() {
        return;
    }
    out.push_str("<section id=\"unseen\"><h2>What was not monitored</h2>\n");
    let rows: Vec<Row> = all
        .iter()
        .take(SHOWN_MAX)
        .map(|(missing, names)| {
            Row::new(vec![
                Cell::words(&missing.what),
                Cell::words(places(names)),
                Cell::words(&missing.why),
                Cell::words(&missing.lost),
            ])
        })
        .collect();
    let head = [("what", false), ("where", true), ("why", true), ("unknown because of it", true)];
    table(out, "Not monitored", &head, &rows);
    out.push_str("</section>\n");
}

/// Prints them in a few lines.
pub(crate) fn print(out: &mut String, facts: &Facts) {
    let all = unseen(facts);
    for (missing, names) in all.iter().take(TEXT_MAX) {
        let text = format!("{} ({}): {}: {}", missing.what, places(names), missing.why, missing.lost);
        fold(out, "unseen  ", &ascii(&text));
    }
    if all.len() > TEXT_MAX {
        push(out, &format!("        and {} more on the page", all.len() - TEXT_MAX));
    }
    if let Some(words) = cost(facts).words() {
        fold(out, "watch   ", &words);
    }
}
