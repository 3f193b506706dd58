//! DIST-08, DIST-09: statements that every shard of a table has to answer, and tables whose rows or work are on one of their parts.

use std::collections::BTreeMap;

use super::costly::{busy, in_a_line, plain, severity};
use crate::case::{Case, Thing};
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, Severity};
use record::watched::{PECULIAR, own};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "DIST-08",
        title: "a statement goes to many shards each time",
        needs: &[Field("plan", "cost_total"), Field("server", "sessions_active")],
        limits: "20 % of the session time of the node where it is sent, to 4 shards or more, and it returns \
            fewer rows than that or the planner does not know (ours)",
        judge: scattered,
        links: &["docs/engines.md"],
    },
    Rule {
        id: "DIST-09",
        title: "one part of a table has most of its rows, or gets most of the work",
        needs: &[Looked("table")],
        limits: "three times its equal share, and half of all, of a table with 4 parts or more and 8 MB, or 1,000 rows read or written a second; \
            low where less is read and written (ours)",
        judge: uneven,
        links: &["docs/engines.md"],
    },
];

/// The share of the session time of a statement.
const SHARE_MIN: f64 = 0.2;
/// Shards.
const TASKS_MIN: f64 = 4.0;
/// Parts of a table.
const PARTS_MIN: usize = 4;
/// One part, of all.
const PART_SHARE_MIN: f64 = 0.5;
/// Against an equal share.
const TIMES_MIN: f64 = 3.0;
/// A smaller table does not matter for its size.
const BYTES_MIN: f64 = 8.0 * 1024.0 * 1024.0;
/// Nor fewer rows a second for the work.
const ROWS_PER_S_MIN: f64 = 1_000.0;
/// Digits at the end of a name that make it a shard of a table.
const DIGITS_MIN: usize = 5;
/// Characters of a name in a claim.
const CHARS: usize = 100;
/// Tables named in a claim about many.
const NAMED_MAX: usize = 3;

fn scattered(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            let mut plans =
                case.at("plan", &time.node).filter(|plan| plan.lines.word("query_id") == one.query_id);
            let Some(plan) =
                plans.find(|plan| plan.lines.last("tasks").is_some_and(|tasks| tasks >= TASKS_MIN))
            else {
                continue;
            };
            let tasks = plan.lines.last("tasks").unwrap_or(0.0);
            // A report over all rows has to ask all of them.
            let is_large = one.rows.is_some_and(|rows| rows > tasks * ROWS_PER_TASK_MAX);
            if is_large {
                continue;
            }
            let command = case.own(&time.node, own::SHARDS).unwrap_or_default();
            claims.push(
                Claim::new(
                    severity(one.share),
                    Level::CoOccurrence,
                    format!(
                        "{}: a statement that takes {} of the session time goes to {} shards each time: it has no condition on the distribution column: {}",
                        time.node,
                        units::percent(one.share),
                        units::count(tasks),
                        plain(&one.text, CHARS)
                    ),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("share", one.share)
                .number("shards", tasks)
                .because(format!("the statement: {}", in_a_line(one)))
                .because("each call costs a query, a connection and a plan on every shard; one row of one shard costs one of each")
                .remedy(
                    "add a condition on the distribution column, distribute the table by the column that is searched, or keep a table from that column to the \
                     distribution column",
                    &[command].into_iter().filter(|sql| !sql.is_empty()).collect::<Vec<_>>(),
                ),
            );
        }
    }
    Answer::of(claims, || "plans over many shards".to_string())
}

/// A few rows of each shard, as a list of newest ones returns them, are no report.
const ROWS_PER_TASK_MAX: f64 = 100.0;

/// A part of a table.
struct Part<'a> {
    table: Thing<'a>,
    bytes: f64,
    rows_per_s: f64,
}

/// Of which table something is a part: its parent, or what stands before the number of a shard.
fn whole(table: &Thing<'_>) -> Option<String> {
    let parent = table.lines.word("partition_of");
    if !parent.is_empty() {
        return Some(parent.to_string());
    }
    let name = table.lines.word("relation").trim_end_matches('"');
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = name.len() - stem.len();
    (digits >= DIGITS_MIN).then(|| stem.strip_suffix('_').map(str::to_string)).flatten()
}

/// Whether a table is known to be partitioned by ranges.
fn is_by_range(case: &Case, name: &str) -> bool {
    let mut facts = case.facts(PECULIAR);
    facts.any(|fact| fact.name == name && fact.value.contains("partitioned by RANGE"))
}

fn uneven(case: &Case) -> Answer {
    let mut wholes: BTreeMap<String, Vec<Part<'_>>> = BTreeMap::new();
    for table in case.things("table") {
        let Some(name) = whole(&table) else { continue };
        let rate = |field: &str| table.lines.rate(field).unwrap_or(0.0);
        let rows_per_s = ["rows_inserted", "rows_updated", "rows_deleted", "index_rows", "seq_rows"]
            .into_iter()
            .map(rate)
            .sum();
        let bytes = table.lines.last("bytes").unwrap_or(0.0);
        let parts = wholes.entry(name).or_default();
        // The same part on several nodes is a copy, as each node has one of a reference table.
        let relation = table.lines.word("relation");
        match parts.iter_mut().find(|part| part.table.lines.word("relation") == relation) {
            Some(known) if known.rows_per_s >= rows_per_s => {}
            Some(known) => *known = Part { table, bytes, rows_per_s },
            None => parts.push(Part { table, bytes, rows_per_s }),
        }
    }
    let mut claims = vec![];
    let mut idle: BTreeMap<&str, Vec<Uneven<'_>>> = BTreeMap::new();
    for (name, parts) in &wholes {
        let Some(uneven) = Uneven::of(name, parts) else { continue };
        // Ranges, mostly of time, are no choice of a key that deals rows out; the default partition is one that is missing.
        if is_by_range(case, name) && !uneven.part.table.lines.word("relation").contains("default") {
            continue;
        }
        match uneven.is_at_work {
            true => claims.push(uneven.claim(case)),
            false => idle.entry(uneven.part.table.place).or_default().push(uneven),
        }
    }
    // Tables that nothing uses must not take the place of what the time goes to: one line for all of a node.
    for (_, mut tables) in idle {
        tables.sort_by(|left, right| right.part.bytes.total_cmp(&left.part.bytes));
        claims.extend(match &tables[..] {
            [] => None,
            [one] => Some(one.claim(case)),
            [first, ..] => Some(first.claim_of_all(case, &tables)),
        });
    }
    Answer::of(claims, || "sizes and work of the parts of tables".to_string())
}

/// A table of which one part has most.
struct Uneven<'a> {
    name: &'a str,
    /// How many parts it has: as the catalog has it, else those that are recorded.
    count: usize,
    recorded: usize,
    part: &'a Part<'a>,
    share: f64,
    by_work: Option<f64>,
    by_size: Option<f64>,
    /// Whether its rows are read or written at all.
    is_at_work: bool,
}

impl<'a> Uneven<'a> {
    fn of(name: &'a str, parts: &'a [Part<'a>]) -> Option<Uneven<'a>> {
        if parts.len() < PARTS_MIN {
            return None;
        }
        let counted =
            parts.iter().filter_map(|part| part.table.lines.last("parts")).fold(0.0, f64::max) as usize;
        let count = counted.max(parts.len());
        let by_work = top(parts, count, |part| part.rows_per_s, ROWS_PER_S_MIN);
        let by_size = top(parts, count, |part| part.bytes, BYTES_MIN);
        // Ranges of time are uneven by design; what counts there is decided by other rules.
        let is_by_number = parts.iter().all(|part| part.table.lines.word("partition_of").is_empty());
        let (part, share) = by_work.filter(|_| is_by_number || by_size.is_some()).or(by_size)?;
        Some(Uneven {
            name,
            count,
            recorded: parts.len(),
            part,
            share,
            by_work: by_work.map(|(_, share)| share),
            by_size: by_size.map(|(_, share)| share),
            is_at_work: parts.iter().map(|part| part.rows_per_s).sum::<f64>() >= ROWS_PER_S_MIN,
        })
    }

    fn severity(&self) -> Severity {
        if self.is_at_work { Severity::Medium } else { Severity::Low }
    }

    fn claim(&self, case: &Case) -> Claim {
        let relation = plain(self.part.table.lines.word("relation"), CHARS);
        let text = format!(
            "{}: one of the {} parts of {} {}: {relation} has {} of it",
            self.part.table.place,
            self.count,
            plain(self.name, CHARS),
            if self.by_work.is_some() { "gets most of the work" } else { "has most of the rows" },
            units::percent(self.share)
        );
        self.about(case, text)
    }

    /// One claim for tables of a node without work.
    fn claim_of_all(&self, case: &Case, all: &[Uneven<'_>]) -> Claim {
        let one = |uneven: &Uneven<'_>| {
            format!(
                "{} ({} of {} parts)",
                plain(uneven.name, CHARS),
                units::percent(uneven.share),
                uneven.count
            )
        };
        let named: Vec<String> = all.iter().take(NAMED_MAX).map(one).collect();
        let text = format!(
            "{}: {} tables that are hardly used have most of their rows in one part: {}{}",
            self.part.table.place,
            all.len(),
            named.join(", "),
            if all.len() > NAMED_MAX { ", ..." } else { "" }
        );
        self.about(case, text)
    }

    fn about(&self, case: &Case, text: String) -> Claim {
        let (place, relation) = (self.part.table.place, self.part.table.lines.word("relation"));
        let is_partial = self.recorded < self.count;
        Claim::new(self.severity(), Level::DiscriminatingCounter, text)
            .on_node(place)
            .during(case.one("server", place).map(|server| server.ticks.window()))
            .number("share", self.share)
            .number("parts", self.count as f64)
            .with(self.by_work, |claim, share| {
                claim.because(format!("{} of the rows that are read and written are in this part", units::percent(share)))
            })
            .with(self.by_size, |claim, share| claim.because(format!("{} of the bytes are in this part", units::percent(share))))
            .with(is_partial.then_some(()), |claim, ()| {
                claim.because(format!(
                    "{} of the parts are recorded, the largest and the busiest; each of the others counts as much as the smallest of these",
                    self.recorded
                ))
            })
            .because("one value of the distribution column, or a few, have most of the rows: the other nodes and parts do not help with them")
            .remedy(
                "choose a column with many values of similar frequency, add a second column to the key, or give the large value a part of its own",
                &[&format!(
                    "SELECT relname, pg_size_pretty(pg_total_relation_size(oid)) FROM pg_class WHERE oid = {}::regclass;",
                    super::paste::literal(relation)
                )],
            )
    }
}

/// The part with the most of `count`, if that is far more than its equal share; with its share.
fn top<'a>(
    parts: &'a [Part<'a>],
    count: usize,
    of: impl Fn(&Part<'_>) -> f64,
    all_min: f64,
) -> Option<(&'a Part<'a>, f64)> {
    let least = parts.iter().map(&of).fold(f64::INFINITY, f64::min);
    let all = parts.iter().map(&of).sum::<f64>() + least * (count - parts.len()) as f64;
    let most = parts.iter().max_by(|left, right| of(left).total_cmp(&of(right)))?;
    let share = of(most) / all.max(f64::MIN_POSITIVE);
    let is_far = share >= PART_SHARE_MIN && share * count as f64 >= TIMES_MIN;
    (all >= all_min && is_far).then_some((most, share))
}
