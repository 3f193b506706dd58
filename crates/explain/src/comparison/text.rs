//! A comparison for a terminal: the whole first, then what it is made of, the largest change first.

use super::{Change, Comparison, Fate, NodeChange, Replaced, Side, StatementChange, Unit, WEIGHT_MIN};
use crate::text::{Detail, fold};
use crate::units;
use record::escape::{ascii, one_line};

/// Lines of each kind without `-v`.
const LINES_MAX: usize = 6;
/// Characters of a statement.
const STATEMENT_CHARS: usize = 120;
/// From this many times the earlier time on a change is no percentage.
const TIMES_MIN: f64 = 10.0;
/// A change of a host's CPU that is worth a line, in percentage points.
const POINTS_MIN: f64 = 5.0;

/// The page; ends with a line feed. Names and statements of others cannot steer the terminal.
pub fn text(comparison: &Comparison, detail: Detail) -> String {
    let mut out = String::new();
    let of = |side: &Side| {
        format!("{}, seconds {} to {}", side.run_id, units::short(side.from_s), units::short(side.to_s))
    };
    fold(&mut out, "before: ", &of(&comparison.before));
    fold(&mut out, "after:  ", &of(&comparison.after));
    for node in &comparison.nodes {
        out.push('\n');
        of_node(&mut out, node, detail);
    }
    let moved = comparison.hosts.iter().filter(|host| (host.after - host.before).abs() >= POINTS_MIN);
    let hosts: Vec<String> = moved
        .map(|host| format!("{}: {:.0} %, before {:.0} %", host.name, host.after, host.before))
        .collect();
    section(&mut out, "hosts", hosts, detail);
    section(
        &mut out,
        "hosts that are not the same",
        comparison.host_facts.iter().map(replaced).collect(),
        detail,
    );
    section(&mut out, "findings that are new", comparison.findings_new.clone(), detail);
    section(&mut out, "findings that are gone", comparison.findings_gone.clone(), detail);
    for missing in &comparison.missing {
        fold(&mut out, "not compared: ", missing);
    }
    out.split_terminator('\n').map(|line| ascii(line) + "\n").collect()
}

fn of_node(out: &mut String, node: &NodeChange, detail: Detail) {
    let total = &node.total;
    let rate = |at: usize| units::count(node.transactions_per_s[at]);
    let whole = match node.unit {
        Unit::UsPerTransaction => format!(
            "a transaction takes {} of session time, before {} ({}); {} transactions a second, before {}",
            units::us(total.after),
            units::us(total.before),
            signed(total.weight),
            rate(1),
            rate(0)
        ),
        Unit::Sessions => format!(
            "{:.2} sessions are active on average, before {:.2} ({}); hardly a transaction ended, so sessions are compared",
            total.after,
            total.before,
            signed(total.weight)
        ),
    };
    fold(out, &format!("{}: ", node.node), &whole);
    let weighed = |changes: &[Change]| -> Vec<String> {
        let noticed =
            changes.iter().filter(|change| change.weight.is_some_and(|weight| weight.abs() >= WEIGHT_MIN));
        noticed
            .map(|change| {
                let [before, after] = [change.before, change.after].map(|time| in_unit(time, node.unit));
                format!("{:>7}  {}: {after}, before {before}", signed(change.weight), change.name)
            })
            .collect()
    };
    let parts = weighed(&node.parts);
    if parts.is_empty() {
        out.push_str("  no part of the time changed noticeably\n");
    }
    section(out, "  time, as shares of the earlier time", parts, detail);
    section(out, "  waits", weighed(&node.waits), detail);
    section(
        out,
        "  statements",
        node.statements.iter().map(|statement| of_statement(statement, node.unit)).collect(),
        detail,
    );
    section(out, "  sessions of", weighed(&node.load), detail);
    section(
        out,
        "  settings and facts that are not the same",
        node.facts.iter().map(replaced).collect(),
        detail,
    );
    let work = node.work.iter().map(|rate| {
        format!("{}: {} a second, before {}", rate.name, units::count(rate.after), units::count(rate.before))
    });
    section(out, "  work", work.collect(), detail);
}

fn of_statement(statement: &StatementChange, unit: Unit) -> String {
    let [before, after] = statement.time.map(|time| in_unit(time, unit));
    let why = match (statement.fate, statement.by_calls, statement.by_duration) {
        (Fate::New, ..) => "new".to_owned(),
        (Fate::Gone, ..) => "gone".to_owned(),
        (Fate::Kept, Some(by_calls), Some(by_duration)) => format!(
            "{} by the number of executions, {} by their duration ({}, before {})",
            signed(Some(by_calls)),
            signed(Some(by_duration)),
            units::us(statement.mean_ms[1] * 1e3),
            units::us(statement.mean_ms[0] * 1e3)
        ),
        (Fate::Kept, ..) => "by samples".to_owned(),
    };
    let plan = statement
        .plan
        .as_ref()
        .map_or(String::new(), |[before, after]| format!("; another plan: {after}; before: {before}"));
    let text = one_line(&statement.text, STATEMENT_CHARS);
    format!(
        "{:>7}  statement {}: {after}, before {before}: {why}{plan}   {text}",
        signed(Some(statement.weight)),
        statement.query_id
    )
}

fn replaced(fact: &Replaced) -> String {
    let value =
        |value: &str| if value.is_empty() { "nothing".to_owned() } else { one_line(value, STATEMENT_CHARS) };
    format!("{} {}: {}, before {}", fact.topic, fact.name, value(&fact.after), value(&fact.before))
}

fn section(out: &mut String, title: &str, lines: Vec<String>, detail: Detail) {
    if lines.is_empty() {
        return;
    }
    out.push_str(&format!("{title}\n"));
    let shown = if detail == Detail::Full { lines.len() } else { LINES_MAX };
    for line in lines.iter().take(shown) {
        let indent = line.len() - line.trim_start().len();
        fold(out, &" ".repeat(4 + indent), line);
    }
    if lines.len() > shown {
        out.push_str(&format!("    and {} more (-v)\n", lines.len() - shown));
    }
}

fn in_unit(time: f64, unit: Unit) -> String {
    match unit {
        Unit::UsPerTransaction => units::us(time),
        Unit::Sessions => format!("{time:.2}"),
    }
}

/// `+12 %`, `-3.1 %`, `0 %`; `+83x` is 83 times the earlier time more.
fn signed(weight: Option<f64>) -> String {
    let weight = weight.unwrap_or(0.0);
    let sign = if weight > 0.0 { "+" } else { "" };
    if weight >= TIMES_MIN {
        format!("{sign}{weight:.0}x")
    } else {
        format!("{sign}{}", units::percent(weight))
    }
}
