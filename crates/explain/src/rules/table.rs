//! PLAN, VAC: what the statistics of tables show: old statistics of the planner, scans without an index, foreign keys without one, updates that touch
//! every index.

mod hot;
mod stale;

use super::costly::{busy, in_a_line, is_name_of, severity};
use super::paste::literal;
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::{Facts, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::statistics;
use crate::units;
use record::finding::{Level, NodePart, NodeTime, Severity, StatementTime};
use record::statement::{self, Verb};
use std::collections::BTreeMap;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-05",
        title: "the planner's statistics of a busy table are old or absent",
        needs: &[
            Field("table", "changed_since_analyze"),
            Field("table", "live_rows"),
            Field("server", "sessions_active"),
        ],
        limits: "10 % of the session time in a table of 10,000 rows that was never analysed, or whose rows are twice or half of what the planner \
            assumes; or of whose rows a third changed since, with 20 % of the time in a statement that touches 100 blocks of it, ten per row; or that has no \
            share of its \
            own, and is joined in a statement with 20 % of the time and 100 blocks for each row, then never high (ours)",
        judge: stale::stale,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-STATISTICS"],
    },
    Rule {
        id: "PLAN-06",
        title: "a table is scanned again and again (without statistics of statements)",
        needs: &[
            Field("table", "seq_rows"),
            Field("table", "blocks_hit"),
            Field("server", "sessions_active"),
        ],
        limits: "no pg_stat_statements, 20 % of the session time in a table of which 2 scans a second read 10,000 rows each, ten times what indexes \
            fetch (ours)",
        judge: scanned,
        links: &["https://www.postgresql.org/docs/current/indexes-examine.html"],
    },
    Rule {
        id: "PLAN-07",
        title: "deleting a row scans the tables that refer to it",
        needs: &[Field("table", "unindexed_references"), Field("table", "rows_deleted")],
        limits: "a row deleted every 2 s or more, and a table of 1,000 rows scanned half as often, with a foreign key without an index (ours)",
        judge: references,
        links: &["https://www.postgresql.org/docs/current/ddl-constraints.html#DDL-CONSTRAINTS-FK"],
    },
    Rule {
        id: "PLAN-08",
        title: "a setting forces plans that do not fit the values",
        needs: &[Facts("setting"), Field("server", "sessions_active")],
        limits: "plan_cache_mode = force_generic_plan, and 20 % of the session time in a statement with parameters that touches 100 blocks and more \
            of them than rows (ours)",
        judge: forced_generic,
        links: &["https://www.postgresql.org/docs/current/runtime-config-query.html#GUC-PLAN-CACHE-MODE"],
    },
    Rule {
        id: "PLAN-09",
        title: "statements look into all partitions of a table",
        needs: &[
            Field("table", "index_scans"),
            Field("table", "seq_scans"),
            Field("server", "sessions_active"),
        ],
        limits: "16 partitions of a table scanned equally often (within a fifth), each twice a second, with 20 % of the session time in them (ours)",
        judge: not_pruned,
        links: &["https://www.postgresql.org/docs/current/ddl-partitioning.html#DDL-PARTITION-PRUNING"],
    },
    Rule {
        id: "PLAN-14",
        title: "pages of a result are found by counting rows",
        needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
        limits: "20 % of the session time in a statement with OFFSET that touches 100 blocks, ten for each row it returns (ours)",
        judge: offset,
        links: &["https://www.postgresql.org/docs/current/queries-limit.html"],
    },
    Rule {
        id: "VAC-09",
        title: "updates write every index of a table",
        needs: &[Field("table", "rows_hot_updated"), Field("table", "indexes")],
        limits: "200 updates a second of a table with 3 indexes or more, less than 30 % of them heap-only (ours)",
        judge: hot::not_hot,
        links: &["https://www.postgresql.org/docs/current/storage-hot.html"],
    },
];

/// The share of the session time in a table that is scanned.
const SCAN_SHARE_MIN: f64 = 0.2;
/// Scans a second.
const SCANS_PER_S_MIN: f64 = 2.0;
/// Rows of each.
const SCAN_ROWS_MIN: f64 = 10_000.0;
/// Rows read by scans for each that an index fetched.
const PER_INDEX_ROW_MIN: f64 = 10.0;
/// Rows deleted a second.
const DELETES_PER_S_MIN: f64 = 0.5;
/// The share of the session time of the statements that delete them, if that is what it costs.
const DELETES_SHARE_MIN: f64 = 0.1;
/// Scans for each deleted row; the two are not counted at the same time.
const SCANS_PER_DELETE_MIN: f64 = 0.5;
/// Rows of such a scan.
const REFERENCE_ROWS_MIN: f64 = 1_000.0;
/// Blocks of an execution from which on its plan matters.
const GENERIC_BLOCKS_MIN: f64 = 100.0;
/// Blocks for each row returned.
const BLOCKS_PER_ROW: f64 = 10.0;
/// Partitions that are scanned alike.
const PARTITIONS_MIN: usize = 16;
/// How far from their median, as a share of it.
const ALIKE: f64 = 0.2;
/// Most of the partitions of a table.
const MOST: f64 = 0.8;

/// The share of the session time in a relation, as the account has it.
fn share_in(time: &NodeTime, relation: &str) -> f64 {
    let by = time.by.iter().find(|by| by.name == "relation");
    by.and_then(|by| by.shares.iter().find(|(name, _)| name == relation)).map_or(0.0, |(_, share)| *share)
}

fn scanned(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case).filter(|time| case.at("statement", &time.node).next().is_none()) {
        for table in case.at("table", &time.node) {
            let relation = table.lines.word("relation");
            let rate = |field: &str| table.lines.rate(field).unwrap_or(0.0);
            let (scans, rows, by_index) = (rate("seq_scans"), rate("seq_rows"), rate("index_rows"));
            let (each, share) = (rows / scans.max(f64::MIN_POSITIVE), share_in(time, relation));
            let is_often = scans >= SCANS_PER_S_MIN && each >= SCAN_ROWS_MIN;
            if !is_often || share < SCAN_SHARE_MIN || rows < by_index * PER_INDEX_ROW_MIN {
                continue;
            }
            claims.push(
                Claim::new(
                    severity(share).min(Severity::Medium),
                    Level::CoOccurrence,
                    format!(
                        "{}: {} of the session time is in {relation}, which is scanned {} times a second, {} rows each",
                        time.node,
                        units::percent(share),
                        units::short(scans),
                        units::short(each)
                    ),
                )
                .on_node(&time.node)
                .during([table.lines.ticks.window()])
                .number("share", share)
                .number("seq_scans_per_s", scans)
                .number("rows_per_scan", each)
                .because(format!(
                    "sequential scans read {} rows a second, indexes fetched {}",
                    units::short(rows),
                    units::short(by_index)
                ))
                .lacking("which statement, and how many of the rows it needs: pg_stat_statements is not there")
                .remedy(
                    "look at the statements that run, and give the columns of their conditions an index; if they need all rows, a scan is right",
                    &[
                        &format!("SELECT query FROM pg_stat_activity WHERE state = 'active' AND query ILIKE '%{}%';", bare(relation)),
                        "CREATE EXTENSION pg_stat_statements; -- needs shared_preload_libraries = 'pg_stat_statements' and a restart",
                    ],
                ),
            );
        }
    }
    Answer::of(claims, || "sequential scans and index fetches of the busy tables".to_string())
}

/// The name without schema and quotes, safe inside of a pattern that is pasted.
fn bare(relation: &str) -> String {
    let name = relation.rsplit('.').next().unwrap_or(relation);
    name.chars().filter(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn references(case: &Case) -> Answer {
    let mut claims = vec![];
    for table in case.things("table") {
        let count = table.lines.last("unindexed_references").unwrap_or(0.0);
        let deleted = table.lines.rate("rows_deleted").unwrap_or(0.0);
        if count < 1.0 || deleted < DELETES_PER_S_MIN {
            continue;
        }
        let is_scanned = |other: &Thing<'_>| {
            let (Some(scans), Some(rows)) = (other.lines.rate("seq_scans"), other.lines.rate("seq_rows"))
            else {
                return false;
            };
            other.name != table.name
                && scans >= deleted * SCANS_PER_DELETE_MIN
                && rows / scans.max(f64::MIN_POSITIVE) >= REFERENCE_ROWS_MIN
        };
        let Some(other) = case.at("table", table.place).find(is_scanned) else { continue };
        claims.push(of_references(case, &table, &other, (deleted, count)));
    }
    Answer::of(claims, || "deleted rows, foreign keys without an index, and sequential scans".to_string())
}

/// Rows of `table` are deleted so often a second, and `other` is read for each of them.
fn of_references(case: &Case, table: &Thing<'_>, other: &Thing<'_>, (deleted, count): (f64, f64)) -> Claim {
    let relation = table.lines.word("relation");
    let deletes = |one: &&StatementTime| {
        statement::parse(&one.text).is_ok_and(|parsed| {
            parsed.verb == Verb::Delete
                && parsed.tables.first().is_some_and(|target| is_name_of(target, relation))
        })
    };
    let times = node_time::all(case).iter().filter(|time| time.node == table.place);
    let deleting: Vec<&StatementTime> = times.flat_map(|time| &time.statements).filter(deletes).collect();
    let share: f64 = deleting.iter().map(|one| one.share).sum();
    let of_time = match share >= DELETES_SHARE_MIN {
        true => {
            format!("; the statements that delete them take {} of the session time", units::percent(share))
        }
        false => String::new(),
    };
    Claim::new(
        Severity::Medium.max(severity(share)),
        Level::CoOccurrence,
        format!(
            "{}: {} rows of {relation} are deleted a second, and {} is scanned as often: a foreign key refers to {relation} from columns without an \
                index{of_time}",
            table.place,
            units::short(deleted),
            other.lines.word("relation")
        ),
    )
    .on_node(table.place)
    .during([table.lines.ticks.window()])
    .number("rows_deleted_per_s", deleted)
    .number("unindexed_references", count)
    .with((share >= DELETES_SHARE_MIN).then_some(share), |claim, share| claim.number("share", share))
    .with(deleting.first(), |claim, one| claim.because(format!("the statement: {}", in_a_line(one))))
    .because("each deleted row is looked up in the tables that refer to it; without an index this reads all of them")
    .remedy(
        "give the referring columns an index (CREATE INDEX CONCURRENTLY does not block writes); this lists the foreign keys",
        &[&format!(
            "SELECT conrelid::regclass AS table, conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'f' AND confrelid = \
                {}::regclass;",
            literal(relation)
        )],
    )
}

fn forced_generic(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in
        busy(case).filter(|time| case.setting(&time.node, "plan_cache_mode") == Some("force_generic_plan"))
    {
        for statement in &time.statements {
            let (rows, blocks) = (statement.rows.unwrap_or(0.0), statement.blocks.unwrap_or(0.0));
            let is_wasteful = blocks >= GENERIC_BLOCKS_MIN && rows < blocks;
            if statement.share < SCAN_SHARE_MIN || !statement.text.contains("$1") || !is_wasteful {
                continue;
            }
            claims.push(
                Claim::new(
                    severity(statement.share),
                    Level::CoOccurrence,
                    format!(
                        "{}: {} of the session time is a statement whose plan may not look at its values (plan_cache_mode = force_generic_plan)",
                        time.node,
                        units::percent(statement.share)
                    ),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("share", statement.share)
                .because(format!("the statement: {}", record::escape::one_line(&statement.text, 160)))
                .because(format!("it touches {} blocks for {} rows per execution", units::short(blocks), units::short(rows)))
                .lacking("both plans: whether the one for the values is better")
                .remedy(
                    "let the server choose again; sessions follow at the reload unless they or their role set it",
                    &[
                        "ALTER SYSTEM SET plan_cache_mode = auto; SELECT pg_reload_conf();",
                        "SELECT d.datname, s.setrole::regrole, s.setconfig FROM pg_db_role_setting s LEFT JOIN pg_database d ON d.oid = s.setdatabase \
                            WHERE s.setconfig::text LIKE '%plan_cache_mode%';",
                    ],
                ),
            );
        }
    }
    Answer::of(claims, || "plan_cache_mode, and the statements that take the time".to_string())
}

fn offset(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in &time.statements {
            let (rows, blocks) = (statement.rows.unwrap_or(0.0), statement.blocks.unwrap_or(0.0));
            let text = statement.text.to_ascii_lowercase();
            let has = |wanted: &str| text.split_whitespace().any(|word| word == wanted);
            // Without a limit there is no page: OFFSET 0 keeps a subquery from being drawn into the rest.
            let skips = has("offset") && (has("limit") || has("fetch"));
            if !skips
                || statement.share < SCAN_SHARE_MIN
                || blocks < GENERIC_BLOCKS_MIN
                || blocks < rows * BLOCKS_PER_ROW
            {
                continue;
            }
            claims.push(
                Claim::new(
                    severity(statement.share),
                    Level::CoOccurrence,
                    format!(
                        "{}: {} of the session time is one statement with OFFSET, which reads {} blocks to return {} rows",
                        time.node,
                        units::percent(statement.share),
                        units::short(blocks),
                        units::short(rows)
                    ),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("share", statement.share)
                .number("blocks_per_call", blocks)
                .because(format!("the statement: {}", record::escape::one_line(&statement.text, 160)))
                .because("the rows before the offset are read in order, counted and thrown away: each page costs more than the one before")
                .lacking("the plan: whether the rows are also sorted each time")
                .remedy(
                    "ask for the rows after the last one of the page before, with an index in that order",
                    &[&format!("SELECT query FROM pg_stat_statements WHERE queryid = {}; -- write ORDER BY sort_column, id with WHERE (sort_column, id) > \
                        (last values of the page before) instead of OFFSET", statement.query_id)],
                ),
            );
        }
    }
    Answer::of(claims, || "statements with OFFSET among those that take the time".to_string())
}

/// How many partitions there are: as the catalog has it, else those that are recorded.
fn count_of(partitions: &[(Thing<'_>, f64)]) -> usize {
    let counted = partitions.iter().filter_map(|(table, _)| table.lines.last("parts"));
    partitions.len().max(counted.fold(0.0, f64::max) as usize)
}

/// Which partitions are meant, of those that are recorded and of all that there are.
fn which(alike: usize, recorded: usize, all: usize) -> String {
    match alike {
        _ if alike == all => format!("all of {all}"),
        _ if alike == recorded => format!("all {alike} recorded ones of the {all}"),
        _ => format!("{alike} of {all}"),
    }
}

/// Whether a part of the session time has what a scan of many partitions costs.
fn is_work(part: &str) -> bool {
    part.contains("CPU") || [node_time::READING, "lightweight locks"].contains(&part)
}

fn not_pruned(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let mut by_parent: BTreeMap<&str, Vec<(Thing<'_>, f64)>> = BTreeMap::new();
        for table in case.at("table", &time.node) {
            let scans =
                table.lines.rate("index_scans").unwrap_or(0.0) + table.lines.rate("seq_scans").unwrap_or(0.0);
            let parent = table.lines.word("partition_of");
            if !parent.is_empty() {
                by_parent.entry(parent).or_default().push((table, scans));
            }
        }
        for (parent, partitions) in by_parent {
            let usual = statistics::median(partitions.iter().map(|(_, scans)| *scans)).unwrap_or(0.0);
            let alike = partitions.iter().filter(|(_, scans)| (scans - usual).abs() <= usual * ALIKE).count();
            // The account lists the largest relations only, and these are many small ones: blocks are summed here.
            let blocks = |table: &Thing<'_>| {
                table.lines.sum("blocks_hit").unwrap_or(0.0) + table.lines.sum("blocks_read").unwrap_or(0.0)
            };
            let own: f64 = partitions.iter().map(|(table, _)| blocks(table)).sum();
            let all: f64 = case.at("table", &time.node).map(|table| blocks(&table)).sum();
            let share = own / all.max(1.0);
            let is_all = alike >= PARTITIONS_MIN && alike as f64 >= partitions.len() as f64 * MOST;
            // Of a table with many partitions only some are recorded: the catalog has the number of all.
            let count = count_of(&partitions);
            if !is_all || usual < SCANS_PER_S_MIN || share < SCAN_SHARE_MIN {
                continue;
            }
            let is_work = |part: &&NodePart| is_work(&part.name);
            let work: f64 = time.parts.iter().filter(is_work).map(|part| part.share).sum();
            claims.push(
                Claim::new(
                    severity(share * work),
                    Level::CoOccurrence,
                    format!(
                        "{}: {} partitions of {parent} are scanned equally often, {} times a second each: statements on it have no condition that \
                            prunes",
                        time.node,
                        which(alike, partitions.len(), count),
                        units::short(usual)
                    ),
                )
                .on_node(&time.node)
                .during([partitions[0].0.lines.ticks.window()])
                .number("share", share * work)
                .number("partitions", count as f64)
                .number("scans_per_s", usual)
                .because(format!("{} of the blocks that were touched are in its partitions", units::percent(share)))
                .not("a table that is read evenly: its partitions would be scanned as often as their rows are read, not equally often")
                .lacking("the plan: an Append over all partitions, and the time to plan it (pg_stat_statements.track_planning)")
                .remedy(
                    "add a condition on the partition key to the statements, partition by what they search by, or use fewer and larger partitions",
                    &[
                        &format!("SELECT pg_get_partkeydef({}::regclass);", literal(parent)),
                        &format!("SELECT queryid, calls, mean_exec_time, left(query, 80) FROM pg_stat_statements WHERE query ILIKE '%{}%' ORDER BY \
                            total_exec_time DESC LIMIT 5;", bare(parent)),
                    ],
                ),
            );
        }
    }
    Answer::of(claims, || "scans of partitions".to_string())
}
