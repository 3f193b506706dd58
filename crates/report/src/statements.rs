//! Statements from `pg_stat_statements` during a step: the most expensive ones, the cost per call, and their waits.

use crate::directory::Line;
use crate::facts::{Facts, StepFacts};
use crate::html::markup::{Cell, Row, escape, table};
use crate::timeline::waits::event_name;
use record::escape::one_line;
use record::event;
use record::number;
use record::watched::{Sampled, Statement};
use serde_json::Value;
use std::collections::BTreeMap;

/// Statements in the table.
const SHOWN_MAX: usize = 15;
/// Characters of a statement shown at once; the rest is folded.
const TEXT_MAX: usize = 110;
/// Bytes of a statement in the page.
const TEXT_WHOLE_MAX: usize = 2_000;
/// Blocks are counted, bytes are understood.
const BLOCK_BYTES: f64 = 8192.0;

/// What one statement cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) calls: f64,
    pub(crate) total_ms: f64,
    rows: f64,
    read: f64,
    hit: f64,
    temp: f64,
    wal_bytes: f64,
    cpu_ms: Option<f64>,
    /// Milliseconds a call, interval by interval.
    means: Vec<f64>,
}

/// The costs of some lines, by node and query.
pub(crate) fn costs<'a>(lines: impl Iterator<Item = &'a Line>) -> BTreeMap<(&'a str, &'a str), Cost> {
    let mut costs: BTreeMap<(&str, &str), Cost> = BTreeMap::new();
    for line in lines {
        if let Sampled::Statement(statement) = &line.what {
            costs.entry((&statement.node, &statement.query_id)).or_default().add(statement);
        }
    }
    costs
}

impl Cost {
    fn add(&mut self, line: &Statement) {
        let count = |value: Option<u64>| value.unwrap_or(0) as f64;
        let (calls, ms) = (count(line.calls), line.total_ms.unwrap_or(0.0) + line.plan_ms.unwrap_or(0.0));
        self.calls += calls;
        self.total_ms += ms;
        self.rows += count(line.rows);
        self.read += count(line.shared_read);
        self.hit += count(line.shared_hit);
        self.temp += count(line.temp_written);
        self.wal_bytes += count(line.wal_bytes);
        if let Some(cpu) = line.cpu_ms {
            *self.cpu_ms.get_or_insert(0.0) += cpu;
        }
        if calls > 0.0 {
            self.means.push(ms / calls);
        }
    }

    pub(crate) fn mean_ms(&self) -> f64 {
        if self.calls > 0.0 { self.total_ms / self.calls } else { 0.0 }
    }
}

/// The texts of statements, by query id.
pub(crate) fn texts<'a>(facts: &Facts<'a>) -> BTreeMap<&'a str, &'a str> {
    let queries = facts.reader.events.iter().filter(|event| event.kind == event::QUERY);
    let word = |event: &'a event::Event, name: &str| event.more.get(name).and_then(Value::as_str);
    queries.filter_map(|event| Some((word(event, "query_id")?, word(event, "text")?))).collect()
}

/// Writes the table of a step; nothing if no statements were counted.
pub(crate) fn section(out: &mut String, facts: &Facts, step: &StepFacts) {
    let costs = costs(step.watched.iter());
    if costs.is_empty() {
        return;
    }
    let (texts, waits) = (texts(facts), top_waits(step.watched));
    let several_nodes = costs.keys().any(|(node, _)| Some(node) != costs.keys().next().map(|(node, _)| node));
    let all_ms: f64 = costs.values().map(|cost| cost.total_ms).sum();
    let mut ranked: Vec<(&(&str, &str), &Cost)> = costs.iter().collect();
    ranked.sort_by(|left, right| right.1.total_ms.total_cmp(&left.1.total_ms));
    let ms = |ms: f64| number::latency(ms * 1e3);
    let blocks = |blocks: f64| if blocks > 0.0 { number::three(blocks) } else { "0".to_string() };
    let knows_cpu = ranked.iter().any(|(_, cost)| cost.cpu_ms.is_some());
    let rows: Vec<Row> = ranked
        .iter()
        .take(SHOWN_MAX)
        .map(|((node, query_id), cost)| {
            let calls = cost.calls.max(1.0);
            let mut statement = statement(texts.get(query_id).copied(), query_id);
            if several_nodes {
                statement = format!("<small>{}</small> {statement}", escape(node));
            }
            let mut cells = vec![
                Cell::html(statement).class("text sql"),
                Cell::number(number::percent_of(cost.total_ms, all_ms)),
                Cell::number(number::count(cost.calls as u64)),
                Cell::number(ms(cost.mean_ms())),
                Cell::html(spark(&cost.means)),
                Cell::number(number::three(cost.rows / calls)),
                Cell::number(blocks(cost.hit / calls)),
                Cell::number(blocks(cost.read / calls)),
                Cell::number(number::bytes(cost.wal_bytes / calls)),
                Cell::number(number::bytes(cost.temp * BLOCK_BYTES / calls)),
            ];
            if knows_cpu {
                cells.push(Cell::number(cost.cpu_ms.map_or("-".to_string(), |cpu| ms(cpu / calls))));
            }
            cells.push(Cell::words(waits.get(query_id).map(String::as_str).unwrap_or("")));
            Row::new(cells)
        })
        .collect();
    let mut head = vec![
        ("statement", false),
        ("time", false),
        ("calls", false),
        ("mean", false),
        ("over time", true),
        ("rows", false),
        ("blocks hit", false),
        ("read", false),
        ("WAL", false),
        ("temp", false),
    ];
    if knows_cpu {
        head.push(("CPU", false));
    }
    head.push(("main wait event", true));
    out.push_str("<div class=\"block\">");
    table(out, "Top SQL", &head, &rows);
    let more = match ranked.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" {} took less time.", number::counted(more as u64, "other statement")),
    };
    out.push_str(&format!(
        "<p class=\"under\">From pg_stat_statements, by total time; rows, blocks, WAL and temporary files are per call.{more}</p></div>\n"
    ));
}

fn statement(text: Option<&str>, query_id: &str) -> String {
    let Some(text) = text else { return format!("<span class=\"few\">query {}</span>", escape(query_id)) };
    let short = one_line(text, TEXT_MAX);
    if short.ends_with('…') {
        let whole = one_line(text, TEXT_WHOLE_MAX);
        format!(
            "<details><summary><code>{}</code></summary><code>{}</code></details>",
            escape(&short),
            escape(&whole)
        )
    } else {
        format!("<code>{}</code>", escape(&short))
    }
}

/// The most frequent wait event of each statement's sessions, with the share.
fn top_waits(lines: &[Line]) -> BTreeMap<&str, String> {
    let mut seen: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
    for line in lines {
        if let Sampled::Wait(wait) = &line.what
            && let Some(query_id) = &wait.query_id
        {
            *seen.entry(query_id).or_default().entry(event_name(wait)).or_default() += wait.sessions;
        }
    }
    let most = |events: &BTreeMap<String, u64>| {
        let all = events.values().copied().fold(0, u64::saturating_add);
        let (event, count) = events.iter().max_by_key(|(_, count)| **count)?;
        Some(format!("{event} {}", number::percent_of(*count as f64, all as f64)))
    };
    seen.iter().filter_map(|(query_id, events)| Some((*query_id, most(events)?))).collect()
}

fn spark(means: &[f64]) -> String {
    let most = means.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 || means.len() < 2 {
        return String::new();
    }
    let point = |(at, mean): (usize, &f64)| {
        format!("{:.1} {:.1}", at as f64 / (means.len() - 1) as f64 * 110.0, 21.0 - mean / most * 20.0)
    };
    let points: Vec<String> = means.iter().enumerate().map(point).collect();
    format!(
        "<svg class=\"spark\" viewBox=\"0 0 110 22\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"time a call over time, at most \
         {}\"><path d=\"M{}\"/></svg>",
        number::latency(most * 1e3),
        points.join("L")
    )
}
