//! Where the time of all sessions of a node went. It is shown before the findings, because it explains the time even if no rule fires.

use crate::facts::Facts;
use crate::html::markup::{Cell, Row, escape, table};
use crate::layout::fold;
use record::escape::one_line;
use record::finding::{Dimension, NodePart, NodeTime, StatementTime};
use record::number;

/// Characters of a statement that are shown.
const STATEMENT_CHARS: usize = 300;

/// The tables of every node.
pub(crate) fn section(out: &mut String, facts: &Facts) {
    let Some(findings) = facts.directory.findings.as_ref().filter(|findings| !findings.node_time.is_empty())
    else {
        return;
    };
    out.push_str("<section id=\"time\"><h2>Where the time went</h2>\n");
    for time in &findings.node_time {
        of_node(out, time);
    }
    out.push_str("</section>\n");
}

fn of_node(out: &mut String, time: &NodeTime) {
    let caption = format!(
        "Sessions at {}: {:.2} active on average over {}, and {:.2} idle in a transaction",
        time.node,
        time.active,
        number::duration(time.seconds),
        time.idle_in_transaction
    );
    out.push_str("<div class=\"block\">");
    if time.is_idle() {
        out.push_str(&format!("<p>{}. The server is idle.</p></div>\n", escape(&caption)));
        return;
    }
    let last = time.parts.len().saturating_sub(1);
    let shown = time.parts.iter().enumerate().filter(|(at, part)| *at == last || part.is_worth_a_line());
    let rows: Vec<Row> = shown.map(|(_, part)| row(part)).collect();
    let head = [
        ("state", false),
        ("share", false),
        ("", true),
        ("sessions", false),
        ("measured by", true),
        ("most of it", true),
    ];
    table(out, &caption, &head, &rows);
    if !time.statements.is_empty() {
        let rows: Vec<Row> = time.statements.iter().map(statement).collect();
        let head = [
            ("statement", true),
            ("share", false),
            ("calls/s", false),
            ("mean", false),
            ("planning", false),
            ("compilation", false),
            ("rows", false),
            ("blocks", false),
            ("read", false),
            ("temporary", false),
            ("WAL", false),
            ("seen in", true),
        ];
        table(out, &format!("Statements that took the time at {}, per execution", time.node), &head, &rows);
    }
    breakdowns(out, time);
    for note in &time.notes {
        out.push_str(&format!("<p class=\"under\">{}</p>", escape(note)));
    }
    out.push_str("</div>\n");
}

/// From this share on one application, user or host has all of the time.
const WHOLE_SHARE: f64 = 0.999;

/// The time by application, user, database, host, relation. What belongs to one of them alone is no breakdown: one sentence has room for all of those.
fn breakdowns(out: &mut String, time: &NodeTime) {
    let whole_of = |by: &Dimension| match by.shares.as_slice() {
        [(name, share)] if *share >= WHOLE_SHARE => Some(format!("{} {name}", by.name)),
        _ => None,
    };
    let whole: Vec<String> = time.by.iter().filter_map(whole_of).collect();
    if !whole.is_empty() {
        let text = format!("All of the DB time at {} is that of {}.", time.node, whole.join(", "));
        out.push_str(&format!("<p class=\"under\">{}</p>", escape(&text)));
    }
    for by in time.by.iter().filter(|by| whole_of(by).is_none()) {
        let rows: Vec<Row> = by.shares.iter().map(|(name, share)| share_row(name, *share)).collect();
        let caption = format!("DB time at {} by {} ({})", time.node, by.name, by.how);
        table(out, &caption, &[(by.name.as_str(), true), ("share", false), ("", true)], &rows);
    }
}

fn share_row(name: &str, share: f64) -> Row {
    let width = share.clamp(0.0, 1.0) * 100.0;
    Row::new(vec![
        Cell::words(name),
        Cell::number(number::percent(share)),
        Cell::html(format!("<span class=\"balance\"><i style=\"width:{width:.1}%\"></i></span>"))
            .class("word"),
    ])
}

fn row(part: &NodePart) -> Row {
    let width = part.share.clamp(0.0, 1.0) * 100.0;
    Row::new(vec![
        Cell::word(&part.name),
        Cell::number(number::percent(part.share)),
        Cell::html(format!("<span class=\"balance\"><i style=\"width:{width:.1}%\"></i></span>"))
            .class("word"),
        Cell::number(format!("{:.2}", part.sessions)),
        Cell::words(if part.is_counted { "counters" } else { "samples" }),
        Cell::words(events(&part.events)),
    ])
}

fn events(events: &[(String, f64)]) -> String {
    let each: Vec<String> =
        events.iter().map(|(event, share)| format!("{event} {}", number::percent(*share))).collect();
    each.join(", ")
}

/// What its sessions were seen waiting for, and the functions that compute for it.
fn seen(statement: &StatementTime) -> String {
    let waits = events(&statement.events);
    match events(&statement.functions) {
        functions if functions.is_empty() => waits,
        functions => format!("{waits}; computes in {functions}"),
    }
}

fn statement(statement: &StatementTime) -> Row {
    let text = match statement.text.as_str() {
        "" => statement.query_id.clone(),
        text if statement.outer.is_empty() => one_line(text, STATEMENT_CHARS),
        text => format!(
            "{} (inside of: {})",
            one_line(text, STATEMENT_CHARS),
            one_line(&statement.outer, STATEMENT_CHARS)
        ),
    };
    let cell = |value: Option<f64>, words: &dyn Fn(f64) -> String| {
        Cell::number(value.filter(|value| *value > 0.0).map_or(String::new(), words))
    };
    let ms = |ms: f64| number::latency(ms * 1e3);
    Row::new(vec![
        Cell::html(format!("<code title=\"{}\">{}</code>", escape(&statement.query_id), escape(&text)))
            .class("text sql"),
        Cell::number(number::percent(statement.share)),
        cell(statement.calls_per_s, &number::short),
        cell(statement.mean_ms, &ms),
        cell(statement.plan_ms, &ms),
        cell(statement.jit_ms, &ms),
        cell(statement.rows, &number::short),
        cell(statement.blocks, &number::short),
        cell(statement.blocks_read, &number::short),
        cell(statement.temp_bytes, &number::bytes),
        cell(statement.wal_bytes, &number::bytes),
        Cell::words(seen(statement)),
    ])
}

/// The same in a line for each node that was not idle.
pub(crate) fn print(out: &mut String, facts: &Facts) {
    let nodes = facts.directory.findings.iter().flat_map(|findings| &findings.node_time);
    for (at, line) in nodes.filter_map(NodeTime::in_a_line).enumerate() {
        if at == 0 {
            out.push('\n');
        }
        let line = record::escape::ascii(line.trim_start_matches("time: "));
        fold(out, "time    ", &line);
    }
}
