//! The balance of a run over the nodes where its sessions entered: bars per node, on the terminal and on the page.

use crate::html::markup::{Cell, Row, table};
use crate::layout::push;
use record::model::NodeStatistics;
use record::number;

/// Characters of the longest bar on the terminal.
const BAR_WIDTH: usize = 24;

/// Each node's transactions as a share of all and of the busiest node's.
fn shares(nodes: &[NodeStatistics]) -> Vec<(f64, f64)> {
    let all: u64 = crate::facts::total(nodes.iter().map(|node| node.transactions));
    let most = nodes.iter().map(|node| node.transactions).max().unwrap_or(0);
    let of = |part: u64, whole: u64| if whole > 0 { part as f64 / whole as f64 } else { 0.0 };
    nodes.iter().map(|node| (of(node.transactions, all), of(node.transactions, most))).collect()
}

fn latency(node: &NodeStatistics) -> [String; 2] {
    let time = |us: Option<u64>| us.map_or("-".to_string(), |us| number::latency(us as f64));
    [time(node.latency_us.map(|latency| latency.p50)), time(node.latency_us.map(|latency| latency.p99))]
}

/// Prints the table.
pub(crate) fn print(out: &mut String, nodes: &[NodeStatistics]) {
    if nodes.is_empty() {
        return;
    }
    let head = ["node", "role", "sessions", "share", "", "tps", "p50", "p99", "errors"].map(str::to_string);
    let mut rows = vec![head.to_vec()];
    for (node, (share, length)) in nodes.iter().zip(shares(nodes)) {
        let [p50, p99] = latency(node);
        rows.push(vec![
            node.name.clone(),
            node.role.clone(),
            number::count(node.sessions),
            format!("{:.0} %", share * 100.0),
            "#".repeat((length * BAR_WIDTH as f64).round() as usize),
            number::three(node.tps),
            p50,
            p99,
            number::count(node.errors),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in &rows {
        let mut line = String::from("  ");
        for (column, text) in row.iter().enumerate() {
            let width = widths[column];
            line.push_str(&match column {
                0 | 1 | 4 => format!("{text:<width$}   "),
                _ => format!("{text:>width$}   "),
            });
        }
        push(out, &line);
    }
}

/// Writes the table of the page.
pub(crate) fn section(out: &mut String, nodes: &[NodeStatistics]) {
    if nodes.is_empty() {
        return;
    }
    let head = [
        ("node", false),
        ("role", true),
        ("sessions", false),
        ("share", false),
        ("", true),
        ("per second", false),
        ("p50", false),
        ("p99", false),
        ("errors", false),
    ];
    let rows: Vec<Row> = nodes
        .iter()
        .zip(shares(nodes))
        .map(|(node, (share, length))| {
            let [p50, p99] = latency(node);
            let bar =
                format!("<span class=\"balance\"><i style=\"width:{:.1}%\"></i></span>", length * 100.0);
            Row::new(vec![
                Cell::word(&node.name),
                Cell::word(&node.role),
                Cell::number(number::count(node.sessions)),
                Cell::number(format!("{:.0} %", share * 100.0)),
                Cell::html(bar).class("word"),
                Cell::number(number::three(node.tps)),
                Cell::number(p50),
                Cell::number(p99),
                Cell::number(number::count(node.errors)),
            ])
        })
        .collect();
    out.push_str("<div class=\"block\">");
    table(out, "Balance over the nodes where sessions entered", &head, &rows);
    out.push_str("</div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_the_shares() {
        let node = |name: &str, transactions: u64| NodeStatistics {
            name: name.into(),
            role: "shard".into(),
            sessions: 2,
            transactions,
            tps: transactions as f64,
            ..NodeStatistics::default()
        };
        let mut out = String::new();
        print(&mut out, &[node("n1", 60), node("n2", 30), node("n3", 0)]);
        assert_eq!(
            out,
            "  node   role    sessions   share                              tps   p50   p99   errors\n  \
               n1     shard          2    67 %   ########################    60     -     -        0\n  \
               n2     shard          2    33 %   ############                30     -     -        0\n  \
               n3     shard          2     0 %                                0     -     -        0\n"
        );
        print(&mut out, &[]);
        assert_eq!(out.lines().count(), 4);
    }
}
