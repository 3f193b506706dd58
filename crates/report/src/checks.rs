//! What `check` found: a table for the terminal; the page's part is in `page`, what a run made of the hardware in `hardware`.

mod hardware;
mod page;

pub(crate) use hardware::{print as print_hardware, section as hardware_section};
pub(crate) use page::section;

use crate::layout::{columns, fold, push};
use crate::tile::Tile;
use record::check::{Area, Checks, Figure, Item, Verdict};
use record::number;

/// The verb whose directory is shown with these.
pub(crate) const VERB: &str = "check";

/// Columns from this one hold numbers.
const FIGURE_COLUMN: usize = 3;

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

/// Hosts that get a column each; of more, the least, the median and the largest figure are shown.
const COLUMNS_MAX: usize = 6;

/// The figures of one check on one subject: host or node, figure, verdict.
type Line<'a> = Vec<(&'a str, &'a Item)>;

/// The terminal page: figures with a column for each host, the network as a matrix, and sentences for what is not as it should be.
pub fn text(checks: &Checks) -> String {
    let mut out = String::new();
    figures(&mut out, checks);
    matrix(&mut out, checks);
    sentences(&mut out, checks);
    out
}

/// Everything with a figure, one line per check and subject.
fn figures(out: &mut String, checks: &Checks) {
    let mut lines: Vec<((Area, &str, &str), Line)> = vec![];
    let mut owners: Vec<&str> = vec![];
    for item in checks.items.iter().filter(|item| item.figure.is_some() && !is_of_pair(item)) {
        let owner = item.host.as_deref().or(item.node.as_deref()).unwrap_or_default();
        if !owners.contains(&owner) {
            owners.push(owner);
        }
        let key = (item.area, item.check.as_str(), item.subject.as_str());
        match lines.iter_mut().find(|(of, _)| *of == key) {
            Some((_, line)) => line.push((owner, item)),
            None => lines.push((key, vec![(owner, item)])),
        }
    }
    let is_wide = owners.len() <= COLUMNS_MAX;
    let columns_of: Vec<String> = match is_wide {
        true => owners.iter().map(ToString::to_string).collect(),
        false => ["least", "median", "largest"].map(str::to_string).to_vec(),
    };
    let head = ["area", "check", "of"]
        .map(str::to_string)
        .into_iter()
        .chain(columns_of)
        .chain(["limit".to_string()]);
    let mut rows: Vec<Vec<String>> = vec![head.collect()];
    for ((area, check, subject), line) in &lines {
        let mut row = vec![area.word().to_string(), (*check).to_string(), (*subject).to_string()];
        match is_wide {
            true => row.extend(owners.iter().map(|owner| cell(line, owner))),
            false => row.extend(quartiles(line)),
        }
        let limit = line[0].1.figure.zip(line[0].1.limit).map(|(figure, limit)| limit.text(figure.unit));
        row.push(limit.unwrap_or_default());
        rows.push(row);
    }
    if rows.len() > 1 {
        columns(out, &rows, |column| column < FIGURE_COLUMN);
    }
}

/// The figure of one host; the worst where it has several.
fn cell(line: &Line, owner: &str) -> String {
    let of_owner = line.iter().filter(|(of, _)| *of == owner).map(|(_, item)| *item);
    let Some(worst) = of_owner.max_by_key(|item| item.verdict) else { return "-".to_string() };
    let figure = worst.figure.map(|figure| figure.text()).unwrap_or_default();
    if worst.verdict >= Verdict::Warn { format!("{} {figure}", verdict(worst)) } else { figure }
}

fn quartiles(line: &Line) -> [String; 3] {
    let figures = || line.iter().filter_map(|(_, item)| item.figure);
    let at = |quantile| {
        let value = record::statistics::quantile(figures().map(|figure| figure.value), quantile);
        figures()
            .next()
            .zip(value)
            .map(|(figure, value)| Figure { value, ..figure }.text())
            .unwrap_or_default()
    };
    [at(0.0), at(0.5), at(1.0)]
}

/// Whether an item is of a pair of hosts, which the matrix shows.
fn is_of_pair(item: &Item) -> bool {
    item.area == Area::Network && item.subject.starts_with("-> ") && !item.check.starts_with("accept.")
}

/// Bandwidth from each host to each other.
fn matrix(out: &mut String, checks: &Checks) {
    let last = checks.pairs.iter().map(|pair| pair.round).max().unwrap_or(0);
    let pairs: Vec<_> = checks.pairs.iter().filter(|pair| pair.round == last).collect();
    if pairs.is_empty() {
        return;
    }
    push(out, "\nbandwidth from (row) to (column); median round trip");
    let names: Vec<String> = checks.hosts.iter().map(|host| host.host.clone()).collect();
    let mut rows = vec![[String::new()].into_iter().chain(names.iter().cloned()).collect::<Vec<String>>()];
    for from in &names {
        let to = |to: &String| match pairs.iter().find(|pair| pair.from == *from && pair.to == *to) {
            Some(pair) if pair.lost.is_none() => {
                format!("{}/s {}", number::bytes(pair.bytes_per_s), number::latency(pair.round_trip_us.p50))
            }
            _ => "-".to_string(),
        };
        rows.push([from.clone()].into_iter().chain(names.iter().map(to)).collect());
    }
    columns(out, &rows, |column| column == 0);
}

/// What precedes the titles of checks that could not be run.
const NOT_CHECKED: &str = "not checked: ";

/// Items that make one paragraph: the same of several hosts or nodes, or several checks of one that lack the same.
struct Same<'a> {
    item: &'a Item,
    owners: Vec<&'a str>,
    claims: Vec<&'a str>,
}

fn grouped<'a>(items: &[&'a Item]) -> Vec<Same<'a>> {
    let mut groups: Vec<Same> = vec![];
    for item in items {
        let owner = item.host.as_deref().or(item.node.as_deref()).unwrap_or_default();
        let is_same = |same: &Same| {
            let one = same.item;
            (one.verdict, &one.check, &one.subject, &one.claim)
                == (item.verdict, &item.check, &item.subject, &item.claim)
                && (&one.why, &one.remedy) == (&item.why, &item.remedy)
        };
        let lacks_the_same = |same: &Same| {
            let one = same.item;
            one.verdict == Verdict::Unknown
                && [&one.claim, &item.claim].iter().all(|claim| claim.starts_with(NOT_CHECKED))
                && same.owners == [owner]
                && (one.verdict, &one.why, &one.remedy) == (item.verdict, &item.why, &item.remedy)
        };
        if let Some(same) = groups.iter_mut().find(|same| is_same(same)) {
            same.owners.push(owner);
        } else if let Some(same) = groups.iter_mut().find(|same| lacks_the_same(same)) {
            same.claims.push(item.claim.trim_start_matches(NOT_CHECKED));
        } else {
            groups.push(Same { item, owners: vec![owner], claims: vec![&item.claim] });
        }
    }
    groups
}

/// What is not as it should be, worst first, and the sums.
fn sentences(out: &mut String, checks: &Checks) {
    let mut bad: Vec<&Item> = checks
        .items
        .iter()
        .filter(|item| item.verdict == Verdict::Unknown || item.verdict >= Verdict::Warn)
        .collect();
    bad.sort_by_key(|item| std::cmp::Reverse(item.verdict));
    for Same { item, owners, claims } in grouped(&bad) {
        out.push('\n');
        let claim = claims.join("; ");
        // One owner may stand in the sentence itself.
        let is_named =
            owners.iter().all(|owner| owner.is_empty() || owners.len() == 1 && claim.contains(owner));
        let claim = if is_named { claim } else { format!("{}: {claim}", owners.join(", ")) };
        fold(out, &format!("{:<8}", verdict(item)), &claim);
        for more in [&item.why, &item.remedy.text] {
            if !more.is_empty() {
                fold(out, "        ", more);
            }
        }
        item.remedy.commands.iter().for_each(|command| push(out, &format!("          {command}")));
    }
    let count = |verdict| checks.count(verdict);
    push(
        out,
        &format!(
            "\n{} passed, {} warnings, {} failed, {} unknown",
            count(Verdict::Pass),
            count(Verdict::Warn),
            count(Verdict::Fail),
            count(Verdict::Unknown)
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::{Host, Limit, Unit};

    fn checks(hosts: usize) -> Checks {
        let name = |at: usize| format!("db{at}");
        let item = |at: usize| {
            let verdict = if at == 0 { Verdict::Fail } else { Verdict::Pass };
            let item = Item::of_host("disk.sync", Area::Disk, &name(at), "/data");
            let item = item
                .figure(1000.0 * (hosts - at) as f64, Unit::Microseconds)
                .judged(verdict, "a commit waits");
            Item { limit: Some(Limit::AtMost(10_000.0)), ..item }
        };
        let hosts_of = (0..hosts).map(|at| Host { host: name(at), ..Host::default() }).collect();
        Checks { items: (0..hosts).map(item).collect(), hosts: hosts_of, ..Checks::default() }
    }

    #[test]
    fn one_paragraph_for_the_same_of_several_nodes_and_for_checks_that_lack_the_same() {
        let item = |node: &str, check: &str, verdict, claim: &str, why: &str| {
            Item { check: check.to_string(), node: Some(node.to_string()), ..Item::default() }
                .judged(verdict, claim)
                .why(why)
        };
        let items = vec![
            item("n1", "settings.jit", Verdict::Warn, "jit is on", "slow"),
            item("n2", "settings.jit", Verdict::Warn, "jit is on", "slow"),
            item("n3", "settings.jit", Verdict::Warn, "jit is off", "slow"),
            item("n1", "a", Verdict::Unknown, "not checked: one thing", "no role"),
            item("n1", "b", Verdict::Unknown, "not checked: another", "no role"),
            item("n2", "b", Verdict::Unknown, "not checked: another", "no view"),
        ];
        let text = text(&Checks { items, ..Checks::default() });
        for paragraph in [
            "WARN    n1, n2: jit is on\n        slow\n",
            "WARN    n3: jit is off\n",
            "unknown n1: not checked: one thing; another\n        no role\n",
            "unknown n2: not checked: another\n        no view\n",
            "\n0 passed, 3 warnings, 0 failed, 3 unknown\n",
        ] {
            assert!(text.contains(paragraph), "{paragraph}: {text}");
        }
    }

    #[test]
    fn a_column_for_each_of_few_hosts_and_quartiles_of_many() {
        let few = text(&checks(2));
        assert!(few.contains("disk   disk.sync   /data   FAIL 2 ms   1 ms   <= 10 ms\n"), "{few}");
        assert!(few.contains("FAIL    db0: a commit waits\n"), "{few}");
        assert!(few.ends_with("1 passed, 0 warnings, 1 failed, 0 unknown\n"), "{few}");
        let many = text(&checks(9));
        assert!(
            many.contains("least   median   largest") && many.contains("1 ms     5 ms      9 ms"),
            "{many}"
        );
        assert_eq!(clause(&checks(9)), "checked 9 hosts and found 1 failure and 0 warnings");
    }
}
