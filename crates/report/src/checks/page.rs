//! The check on the web page: failures first, a heat map of the network, disks with the distribution of their latencies, hosts side by side.

use super::place;
use crate::html::markup::{Cell, Row, escape, table};
use record::check::{Checks, Disk, Distribution, Fact, Figure, Host, Item, Pair, Unit, Verdict};
use record::number;
use std::collections::{BTreeMap, BTreeSet};

/// Shares of the fastest pair from which a pair is coloured darker.
const SHADES: [(f64, &str); 3] = [(0.5, "slow3"), (0.75, "slow2"), (0.9, "slow1")];
/// The axis of the distributions: powers of two of microseconds.
const AXIS_OCTAVES: (f64, f64) = (2.0, 21.0);
/// Its size in pixels.
const AXIS_PX: (f64, f64) = (190.0, 26.0);
/// Facts that are shown side by side when all hosts agree are only counted.
const FACTS_MAX: usize = 200;

/// The sections of a check.
pub(crate) fn section(out: &mut String, checks: &Checks) {
    items(out, checks, "Not as they should be", |item| item.verdict >= Verdict::Warn);
    network(out, checks);
    disks(out, checks);
    hosts(out, checks);
    items(out, checks, "Unknown", |item| item.verdict == Verdict::Unknown);
    items(out, checks, "Everything else", |item| item.verdict < Verdict::Unknown);
}

fn open(out: &mut String, key: &str, title: &str) {
    out.push_str(&format!("<section class=\"step\" id=\"{key}\" tabindex=\"-1\"><h2>{title}</h2>\n"));
}

fn items(out: &mut String, checks: &Checks, title: &str, is_shown: impl Fn(&Item) -> bool) {
    let mut shown: Vec<&Item> = checks.items.iter().filter(|item| is_shown(item)).collect();
    if shown.is_empty() {
        return;
    }
    // The worst first; within a verdict the order of the areas stays.
    shown.sort_by_key(|item| std::cmp::Reverse(item.verdict));
    let rows: Vec<Row> = shown.into_iter().map(item_row).collect();
    let head = [("verdict", true), ("what and why", true), ("figure", false), ("limit", false)];
    open(out, &format!("check={}", title.to_lowercase().replace(' ', "-")), title);
    table(out, &number::counted(rows.len() as u64, "item"), &head, &rows);
    out.push_str("</section>\n");
}

fn item_row(item: &Item) -> Row {
    let limit =
        item.figure.zip(item.limit).map(|(figure, limit)| limit.text(figure.unit)).unwrap_or_default();
    let mut words = escape(&item.claim);
    for more in [&item.why, &item.remedy.text] {
        if !more.is_empty() {
            words.push_str(&format!("<br><span class=\"quiet\">{}</span>", escape(more)));
        }
    }
    for command in &item.remedy.commands {
        words.push_str(&format!("<br><code>{}</code>", escape(command)));
    }
    // Of a subject that is a sentence only the claim speaks.
    let owner = item.host.as_deref().or(item.node.as_deref()).unwrap_or_default();
    let place = if item.claim.contains(&item.subject) { owner.to_owned() } else { place(item) };
    let place = if place.is_empty() { place } else { format!(", {}", escape(&place)) };
    words
        .push_str(&format!("<br><span class=\"quiet\"><small>{}{place}</small></span>", escape(&item.check)));
    let class = if item.verdict >= Verdict::Warn { "bad" } else { "" };
    let verdict = format!("<span class=\"{class}\">{}</span>", item.verdict.word());
    Row::new(vec![
        Cell::html(verdict),
        Cell::html(words).class("text"),
        Cell::number(item.figure.map(Figure::text).unwrap_or_default()),
        Cell::number(limit),
    ])
}

/// The pairs of the last round.
fn last_pairs(checks: &Checks) -> Vec<&Pair> {
    let last = checks.pairs.iter().map(|pair| pair.round).max().unwrap_or(0);
    checks.pairs.iter().filter(|pair| pair.round == last).collect()
}

fn network(out: &mut String, checks: &Checks) {
    let pairs = last_pairs(checks);
    if pairs.is_empty() {
        return;
    }
    let names: Vec<&str> = checks.hosts.iter().map(|host| host.host.as_str()).collect();
    let fastest = pairs.iter().map(|pair| pair.bytes_per_s).fold(0.0, f64::max);
    open(out, "check=network", "Network");
    out.push_str(
        "<div class=\"block\"><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"network matrix\"><table class=\"matrix\">\
         <caption>Bandwidth <span class=\"unit\">one TCP stream; median round trip below</span></caption><thead><tr>\
         <th scope=\"col\" class=\"corner\">from \u{2193} &nbsp; to \u{2192}</th>",
    );
    names.iter().for_each(|name| out.push_str(&format!("<th scope=\"col\">{}</th>", escape(name))));
    out.push_str("</tr></thead><tbody>\n");
    for from in &names {
        out.push_str(&format!("<tr><th scope=\"row\">{}</th>", escape(from)));
        for to in &names {
            let pair = pairs.iter().find(|pair| pair.from == *from && pair.to == *to);
            out.push_str(&pair.map_or("<td class=\"none\">-</td>".to_string(), |pair| cell(pair, fastest)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n<p class=\"under\">Colour shows a pair's bandwidth relative to the fastest pair.</p></div>\n</section>\n");
}

fn cell(pair: &Pair, fastest: f64) -> String {
    if let Some(lost) = &pair.lost {
        return format!("<td class=\"none\" title=\"{}\">not measured</td>", escape(lost));
    }
    let share = pair.bytes_per_s / fastest.max(f64::MIN_POSITIVE);
    let class = SHADES.iter().find(|(limit, _)| share < *limit).map_or("even", |(_, class)| class);
    let times = &pair.round_trip_us;
    let title = format!(
        "{} to {}: {} of the fastest; round trip at least {}, p99 {}; {} of {} sent again; {}",
        pair.from,
        pair.to,
        number::percent(share),
        number::latency(times.min),
        number::latency(times.p99),
        number::count(pair.retransmits),
        number::counted(pair.segments, "segment"),
        pair.tool
    );
    format!(
        "<td class=\"{class}\" title=\"{}\">{}/s<small>{}</small></td>",
        escape(&title),
        number::bytes(pair.bytes_per_s),
        number::latency(times.p50)
    )
}

fn disks(out: &mut String, checks: &Checks) {
    let last = checks.disks.iter().map(|disk| disk.round).max().unwrap_or(0);
    let shown: Vec<&Disk> =
        checks.disks.iter().filter(|disk| disk.round == last && !disk.tests.is_empty()).collect();
    if shown.is_empty() {
        return;
    }
    open(out, "check=disks", "Disks");
    for disk in shown {
        one_disk(out, disk);
    }
    out.push_str(
        "<p class=\"under\">Distributions share one logarithmic axis from 4 us to 2 s; a mark stands at each decade from 10 us.</p>\n</section>\n",
    );
}

fn one_disk(out: &mut String, disk: &Disk) {
    let members =
        if disk.members.is_empty() { String::new() } else { format!(" on {}", disk.members.join(", ")) };
    let file = disk.file_bytes.map(|bytes| format!(", a file of {}", number::bytes(bytes as f64)));
    let caption = format!(
        "{} {}: {} ({}){members}; {}{}{}",
        disk.host,
        disk.directory,
        disk.mount,
        disk.device,
        disk.tool,
        if disk.is_direct { ", without the page cache" } else { ", with the page cache" },
        file.unwrap_or_default(),
    );
    let head = [
        ("test", true),
        ("block", false),
        ("depth", false),
        ("throughput", false),
        ("operations/s", false),
        ("p50", false),
        ("p99", false),
        ("longest", false),
        ("distribution", true),
    ];
    let row = |test: &record::check::DiskTest| {
        let times = &test.latency_us;
        Row::new(vec![
            Cell::word(test.pattern.title()),
            Cell::number(format!("{} kB", test.block_bytes >> 10)),
            Cell::number(number::count(test.depth)),
            Cell::number(format!("{}/s", number::bytes(test.bytes_per_s))),
            Cell::number(number::short(test.per_s)),
            Cell::number(number::latency(times.p50)),
            Cell::number(number::latency(times.p99)),
            Cell::number(number::latency(times.max)),
            Cell::html(picture(times)),
        ])
    };
    let rows: Vec<Row> = disk.tests.iter().map(row).collect();
    table(out, &caption, &head, &rows);
}

/// A distribution as bars on the common axis.
fn picture(times: &Distribution) -> String {
    let most = times.buckets.iter().map(|(_, count)| *count).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let (width, height) = AXIS_PX;
    let (from, to) = AXIS_OCTAVES;
    let at = |us: f64| ((us.max(1.0).log2() - from) / (to - from) * width).clamp(0.0, width - 2.0);
    let label = format!("p50 {}, p99 {}", number::latency(times.p50), number::latency(times.p99));
    let mut svg = format!(
        "<svg class=\"spread\" role=\"img\" aria-label=\"{label}\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">"
    );
    for decade in 1..=6 {
        let x = at(10f64.powi(decade));
        svg.push_str(&format!("<rect class=\"grid\" x=\"{x:.1}\" y=\"0\" width=\"1\" height=\"{height}\"/>"));
    }
    for (upper, count) in &times.buckets {
        let (x, tall) = (at(*upper as f64), (*count as f64 / most as f64 * height).max(0.8));
        svg.push_str(&format!(
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"2\" height=\"{tall:.1}\"/>",
            height - tall
        ));
    }
    svg.push_str("</svg>");
    svg
}

fn hosts(out: &mut String, checks: &Checks) {
    if checks.hosts.is_empty() {
        return;
    }
    let names: Vec<(&str, bool)> =
        [("", true)].into_iter().chain(checks.hosts.iter().map(|host| (host.host.as_str(), true))).collect();
    let mut rows = vec![];
    let mut row = |title: &str, of: &dyn Fn(&Host) -> Option<String>| {
        let cells: Vec<String> = checks.hosts.iter().map(|host| of(host).unwrap_or_default()).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            rows.push(side_by_side(title, &cells, false));
        }
    };
    row("measured by", &|host| {
        Some(
            host.lost.clone().or_else(|| host.no_program.clone()).unwrap_or_else(|| host.measured_by.clone()),
        )
    });
    row("processors", &|host| Some(number::count(host.cpus)).filter(|_| host.cpus > 0));
    row("one thread", &|host| {
        host.processor.as_ref().map(|one| format!("{} rounds/s", number::short(one.rounds_per_s)))
    });
    row("steal", &|host| host.processor.as_ref().map(|one| number::percent(one.steal_share)));
    row("memory read", &|host| rate(host.memory.iter().map(|one| one.read_bytes_per_s).sum()));
    row("memory copy", &|host| rate(host.memory.iter().map(|one| one.copy_bytes_per_s).sum()));
    row("memory latency", &|host| {
        let ns = host.memory.iter().map(|one| one.latency_ns).reduce(f64::max)?;
        Some(Figure { value: ns, unit: Unit::Nanoseconds }.text())
    });
    row("clock ahead by", &|host| {
        let clock = host.clock?;
        let offset = number::latency(clock.offset_us as f64);
        Some(format!("{offset} \u{b1} {}", number::latency(clock.error_us as f64)))
    });
    let (differing, equal) = facts(checks);
    rows.extend(differing);
    open(out, "check=hosts", "Hosts side by side");
    table(out, "Hosts side by side", &names, &rows);
    if checks.hosts.len() > 1 {
        let words = number::counted(equal as u64, "fact");
        out.push_str(&format!(
            "<p class=\"under\">{words} more are equal on all hosts; check.json has them.</p>\n"
        ));
    }
    out.push_str("</section>\n");
}

fn rate(bytes_per_s: f64) -> Option<String> {
    (bytes_per_s > 0.0).then(|| format!("{}/s", number::bytes(bytes_per_s)))
}

/// A row; with `is_marked`, cells that differ from the most frequent one are marked.
fn side_by_side(title: &str, cells: &[String], is_marked: bool) -> Row {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    cells.iter().for_each(|cell| *counts.entry(cell).or_default() += 1);
    let usual = counts.iter().max_by_key(|(_, count)| **count).map_or("", |(cell, _)| *cell);
    let cell = |text: &String| {
        let shown = if text.is_empty() { "-" } else { text };
        match is_marked && text != usual && !text.is_empty() {
            true => Cell::html(format!("<span class=\"bad\">{}</span>", escape(shown))).class("text"),
            false => Cell::words(shown),
        }
    };
    Row::new([Cell::words(title)].into_iter().chain(cells.iter().map(cell)).collect())
}

/// The facts that differ, and how many do not. With one host all are shown.
fn facts(checks: &Checks) -> (Vec<Row>, usize) {
    let mut names: BTreeSet<(&str, &str)> = BTreeSet::new();
    for fact in checks.hosts.iter().flat_map(|host| &host.facts) {
        names.insert((&fact.topic, &fact.name));
    }
    let several = checks.hosts.len() > 1;
    let (mut rows, mut equal) = (vec![], 0);
    for (topic, name) in names {
        let is_it = |fact: &&Fact| fact.topic == topic && fact.name == name;
        let cells: Vec<String> = checks
            .hosts
            .iter()
            .map(|host| host.facts.iter().find(is_it).map(|fact| fact.value.clone()).unwrap_or_default())
            .collect();
        // A host that was not reached has no facts, and differs in none.
        let known: BTreeSet<&String> = checks
            .hosts
            .iter()
            .zip(&cells)
            .filter(|(host, _)| !host.facts.is_empty())
            .map(|(_, cell)| cell)
            .collect();
        let is_equal = known.len() < 2;
        if (several && is_equal) || rows.len() >= FACTS_MAX {
            equal += 1;
        } else {
            rows.push(side_by_side(&format!("{topic} {name}"), &cells, true));
        }
    }
    (rows, equal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::{Area, DiskTest};

    #[test]
    fn the_slow_pair_is_dark_and_every_part_is_there() {
        let host = |name: &str, stripe: &str| Host {
            host: name.into(),
            facts: vec![Fact {
                topic: "mount".into(),
                name: "/data".into(),
                value: format!("ext4 rw{stripe}"),
            }],
            ..Host::default()
        };
        let pair = |from: &str, to: &str, bytes_per_s| Pair {
            from: from.into(),
            to: to.into(),
            bytes_per_s,
            ..Pair::default()
        };
        let latency_us = Distribution {
            count: 3,
            p50: 100.0,
            buckets: vec![(64, 1), (128, 2)],
            ..Distribution::default()
        };
        let disk = Disk {
            host: "a".into(),
            directory: "/data".into(),
            tests: vec![DiskTest { latency_us, ..DiskTest::default() }],
            ..Disk::default()
        };
        let item =
            Item::of_host("mount.stripe", Area::System, "b<", "/data").judged(Verdict::Fail, "stripe is set");
        let checks = Checks {
            items: vec![item],
            hosts: vec![host("a", ""), host("b<", ",stripe=8"), host("c", "")],
            disks: vec![disk],
            pairs: vec![pair("a", "b<", 1e8), pair("b<", "a", 1e9)],
            ..Checks::default()
        };
        let mut out = String::new();
        section(&mut out, &checks);
        assert!(out.contains("class=\"slow3\"") && out.contains("class=\"even\""), "{out}");
        assert!(
            out.contains("<svg class=\"spread\"") && out.matches("height=\"26.0\"").count() == 1,
            "{out}"
        );
        assert!(out.contains("<span class=\"bad\">ext4 rw,stripe=8</span>"), "{out}");
        assert!(!out.contains("b<"), "names are escaped");
    }
}
