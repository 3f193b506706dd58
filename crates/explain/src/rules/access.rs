//! PLAN-37 to PLAN-40: indexes of kinds that do not fit the data or the changes of their table, long lists of constants, and bitmaps that do not fit into
//! work_mem. They start from the plans and counters of the statements that take the time.

mod list;

use super::costly::{large, severity};
use super::paste::literal;
use super::plan::{self, Planned};
use crate::case::{Case, Thing};
use crate::rule::Need::{self, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement;

const NEEDS: &[Need] =
    &[Field("plan", "cost_total"), Field("statement", "calls"), Field("server", "sessions_active")];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-37",
        title: "searches read the pending list of a GIN index",
        needs: NEEDS,
        limits: "10 % of the session time in a statement on a table that is written, with a GIN index with fastupdate on the column of its condition, which is \
            left aside though it has the operator; or used with a gin_pending_list_limit above 4 MB, and four blocks for each row expected or a planner's \
            cost of \
            the index of 500 and 1 for each row (ours)",
        judge: pending_list,
        links: &["https://www.postgresql.org/docs/current/gin.html#GIN-FAST-UPDATE"],
    },
    Rule {
        id: "PLAN-38",
        title: "a BRIN index is on a column whose values are not in the order of the table",
        needs: NEEDS,
        limits: "10 % of the session time in a statement for few rows that uses such an index and touches half of the table's blocks, or leaves it aside and \
            scans the table (ours)",
        judge: block_range,
        links: &["https://www.postgresql.org/docs/current/brin.html"],
    },
    Rule {
        id: "PLAN-39",
        title: "a statement has a list of hundreds of constants",
        needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
        limits: "20 % of the session time in a statement with 100 constants in a list; where PostgreSQL 18 shortens the list, by the text of a session \
            that ran it, or by blocks for 100 searches of its index; low unless parsing and planning take 10 % of the session time (ours)",
        judge: list::long_list,
        links: &[
            "https://www.postgresql.org/docs/current/functions-comparisons.html#FUNCTIONS-COMPARISONS-ANY-SOME",
        ],
    },
    Rule {
        id: "PLAN-40",
        title: "the bitmap of an index scan does not fit into work_mem",
        needs: NEEDS,
        limits: "20 % of the session time in a plan with a bitmap of more pages than work_mem has room for, 64 bytes each, and 1,000 rows (ours)",
        judge: lossy,
        links: &["https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-WORK-MEM"],
    },
];

/// The share of the session time of a statement whose plan shows the cause.
const SHARE_MIN: f64 = 0.1;
/// The same where it is not certain how much of it the cause takes.
const SHARE_UNSURE_MIN: f64 = 0.2;
/// Operators that take a value out of a document: no index of the document serves a comparison of that value.
const TAKES_OUT: [&str; 2] = [" ->", " #>"];
/// The cost of a search in a GIN index from which on a list explains it, if that is more than 1 for each row.
const LIST_COST_MIN: f64 = 500.0;
/// The default of gin_pending_list_limit.
const PENDING_BYTES: f64 = 4.0 * 1024.0 * 1024.0;
/// Blocks of an execution.
const BLOCKS_MIN: f64 = 100.0;
/// Blocks for each row that the planner expects.
const BLOCKS_PER_ROW_MIN: f64 = 4.0;
/// Blocks of an execution, of those of the table.
const OF_TABLE_MIN: f64 = 0.5;
/// Rows of a bitmap.
const BITMAP_ROWS_MIN: f64 = 1_000.0;
/// Bytes that a bitmap takes for a page (`tbm_calculate_entries` in tidbitmap.c).
const BYTES_PER_PAGE: f64 = 64.0;
/// Bytes of a block, by default.
const BLOCK_BYTES: f64 = 8192.0;

/// Statements of a share with their plans.
fn planned(case: &Case, share_min: f64) -> impl Iterator<Item = Planned<'_>> {
    large(case, share_min).filter_map(move |(time, statement)| plan::plan_of(case, time, statement))
}

/// The statistics of a table in the database of a statement: another database may have one of the same name.
fn table<'a>(case: &'a Case, planned: &Planned<'a>, relation: &str) -> Option<Thing<'a>> {
    let database = &planned.statement.database;
    case.at("table", &planned.time.node).find(|table| {
        let is_there = database.is_empty() || table.lines.word("database") == database;
        is_there && table.lines.word("relation") == relation
    })
}

/// Whether a column stands in a condition.
fn names_column(condition: &str, column: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '"';
    condition.match_indices(column).any(|(at, _)| {
        !condition[..at].ends_with(is_part) && !condition[at + column.len()..].starts_with(is_part)
    })
}

/// An index of a method on a column of the condition of a scan, and the node of the plan that uses it or scans the table beside it.
struct Odd<'a> {
    planned: Planned<'a>,
    node: Thing<'a>,
    index: Thing<'a>,
    is_used: bool,
    relation: &'a str,
    column: &'a str,
}

fn odd<'a>(case: &'a Case, planned: Planned<'a>, method: &str) -> Option<Odd<'a>> {
    let place = planned.time.node.as_str();
    for at in 0..planned.nodes.len() {
        let node = planned.nodes[at];
        let (kind, name) = (node.lines.word("kind"), node.lines.word("index"));
        let condition = [node.lines.word("filter"), node.lines.word("condition")].join(" ");
        let of_node = planned.relation_of(&node);
        let is_its = |index: &Thing<'_>| {
            let is_read = !name.is_empty() && index.lines.word("index") == name || kind == "Seq Scan";
            index.lines.word("method") == method
                && index.lines.flag("valid") != Some(false)
                && is_read
                && !of_node.is_empty()
                && plan::is_of(index, &planned, of_node)
        };
        let found = case.at("plan_index", place).filter(is_its).find_map(|index| {
            let column = index.lines.word("columns").split("; ").next().unwrap_or_default();
            (!column.is_empty() && names_column(&condition, column)).then_some((index, column))
        });
        if let Some((index, column)) = found {
            let (is_used, relation) = (!name.is_empty(), index.lines.word("relation"));
            return Some(Odd { planned, node, index, is_used, relation, column });
        }
    }
    None
}

impl Odd<'_> {
    /// Whether the values of its column are in the order of the table.
    fn is_in_order(&self) -> bool {
        self.index.lines.last("correlation").is_some_and(|correlation| correlation.abs() >= IN_ORDER_MIN)
    }

    fn name(&self) -> &str {
        self.index.lines.word("index")
    }

    /// The index with its schema, which is that of its table.
    fn with_schema(&self) -> String {
        format!("{}.{}", statement::schema_of(self.relation), statement::quoted(self.name()))
    }

    fn blocks(&self) -> f64 {
        self.planned.statement.blocks.unwrap_or(0.0)
    }

    fn expected(&self) -> f64 {
        self.node.lines.last("rows_planned").unwrap_or(0.0)
    }

    /// Whether an index of the column can serve the condition of a scan beside it.
    fn is_served(&self) -> bool {
        let filter = self.node.lines.word("filter");
        TAKES_OUT.iter().all(|operator| !filter.contains(&format!("{}{operator}", self.column)))
    }

    /// Whether a scan beside the index is for few rows.
    fn keeps_few(&self) -> bool {
        self.node.lines.last("table_rows").is_some_and(|rows| self.expected() <= rows * 0.1)
    }
}

/// A GIN index whose pending list is read or feared, with the limit of the list.
fn pending<'a>(case: &'a Case, planned: Planned<'a>) -> Option<(Odd<'a>, f64)> {
    let odd = odd(case, planned, "gin")?;
    let place = odd.planned.time.node.as_str();
    let definition = odd.index.lines.word("definition").to_ascii_lowercase();
    if ["fastupdate='off'", "fastupdate=off", "fastupdate='false'"].iter().any(|off| definition.contains(off))
    {
        return None;
    }
    let of_index =
        definition.split("gin_pending_list_limit='").nth(1).and_then(|rest| rest.split('\'').next());
    let of_index = of_index.and_then(|text| text.parse::<f64>().ok()).map(|kilobytes| kilobytes * 1024.0);
    let of_server = || case.setting(place, "gin_pending_list_limit").and_then(units::setting);
    let limit = of_index.or_else(of_server).unwrap_or(PENDING_BYTES);
    let writes = table(case, &odd.planned, odd.relation).map_or(0.0, |table| {
        ["rows_inserted", "rows_updated"].iter().filter_map(|field| table.lines.rate(field)).sum()
    });
    // The planner counts the pages of the list as cost of the index alone (`gincostestimate` in selfuncs.c).
    let of_list = odd.node.lines.last("cost_total").unwrap_or(0.0);
    let is_dear =
        odd.node.lines.word("kind") == "Bitmap Index Scan" && of_list >= odd.expected().max(LIST_COST_MIN);
    let is_wide = odd.blocks() >= odd.expected().max(1.0) * BLOCKS_PER_ROW_MIN;
    let is_read = limit > PENDING_BYTES && (is_wide || is_dear);
    let fits = if odd.is_used { is_read } else { odd.keeps_few() && odd.is_served() };
    (fits && writes > 0.0 && odd.blocks() >= BLOCKS_MIN).then_some((odd, limit))
}

fn pending_list(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let Some((odd, limit)) = pending(case, planned) else { continue };
        let what = match odd.is_used {
            true => "its pending list is read by each search",
            false => {
                "its pending list makes it look more expensive than a scan of the table, which is done instead"
            }
        };
        let text = format!(
            "a statement that takes {} of the session time searches {} by GIN index {}: {what} (gin_pending_list_limit is {})",
            units::percent(odd.planned.statement.share),
            odd.relation,
            odd.name(),
            units::bytes(limit)
        );
        claims.push(
            odd.planned
                .claim(case, Level::CoOccurrence, severity(odd.planned.statement.share), text)
                .number("blocks_per_call", odd.blocks())
                .number("pending_limit_bytes", limit)
                .because("entries of new rows wait in a list until VACUUM or the limit moves them into the index; each search reads all of the list")
                .because(odd.planned.file())
                .lacking("the length of the list: pgstatginindex() of the extension pgstattuple shows it")
                .remedy(
                    "empty the list now, keep it short, and let autovacuum come for inserted rows; with fastupdate off each insert writes the index at once, \
                        which is slower for the writer alone",
                    &[
                        &format!("SELECT gin_clean_pending_list({}::regclass);", literal(&odd.with_schema())),
                        &format!("ALTER INDEX {} SET (gin_pending_list_limit = 1024); -- kB", odd.with_schema()),
                        &format!("ALTER TABLE {} SET (autovacuum_vacuum_insert_scale_factor = 0.02);", odd.relation),
                    ],
                ),
        );
    }
    Answer::of(claims, || "GIN indexes of the tables that plans search".to_string())
}

/// A BRIN index that does not shorten a search, with the blocks of its table.
fn mixed<'a>(case: &'a Case, planned: Planned<'a>) -> Option<(Odd<'a>, f64)> {
    let odd = odd(case, planned, "brin")?;
    let table = table(case, &odd.planned, odd.relation)?;
    let blocks = table.lines.last("bytes")? / BLOCK_BYTES;
    let fits = if odd.is_used { odd.blocks() >= blocks * OF_TABLE_MIN } else { odd.keeps_few() };
    let is_rightly_read =
        odd.is_in_order() && unsummarized(case, &odd).is_none() && !is_spoilt(case, &odd, blocks);
    (fits && odd.blocks() >= BLOCKS_MIN && !is_rightly_read).then_some((odd, blocks))
}

/// Of the rows of a table, those that a search is for: in their order they lie in few ranges.
const WANTED_MAX: f64 = 0.02;
/// Blocks of a table that has many ranges of 128.
const MANY_RANGES_BLOCKS: f64 = 2_560.0;

/// Whether the order of a column, which its correlation shows, is spoilt by a few rows: a late row in each range is enough for ranges to overlap, and then a
/// search for few rows reads most blocks of the table.
fn is_spoilt(case: &Case, odd: &Odd<'_>, blocks: f64) -> bool {
    let all = table(case, &odd.planned, odd.relation).and_then(|table| table.lines.last("live_rows"));
    // Where an aggregate takes the rows, a loop that searches another table for each of them counts them.
    let searches = || plan::searched_again(case, &odd.planned).map(|(_, times)| times);
    let wanted = plan::rows_wanted(&odd.planned, &odd.node).or_else(searches).zip(all);
    odd.is_used && blocks >= MANY_RANGES_BLOCKS && wanted.is_some_and(|(rows, all)| rows <= all * WANTED_MAX)
}

/// From here on the values of a column are in the order of the table.
const IN_ORDER_MIN: f64 = 0.9;

/// Of the rows of a table, the share on pages of which no vacuum knows that makes a search read most of the table.
const UNKNOWN_MIN: f64 = 0.5;
/// Dead rows, for each living one, of a table whose rows are changed: then its pages are unknown although their ranges are summarized.
const CHANGED_MIN: f64 = 0.05;

/// How sure it is that most ranges of an index in order are not summarized: `None` if they are. A vacuum marks pages as visible to all and summarizes their
/// ranges, so what it has marked is summarized, and then each range may have rows that are out of order, or the statement wants most of the table.
fn unsummarized(case: &Case, odd: &Odd<'_>) -> Option<Severity> {
    let table = table(case, &odd.planned, odd.relation)?;
    let last = |field: &str| table.lines.last(field);
    let Some(visible) = last("all_visible_share") else { return Some(Severity::Low) };
    let live = last("live_rows").unwrap_or(0.0).max(1.0);
    // Pages that came after the last VACUUM or ANALYZE are not part of the share.
    let counted = last("planned_rows").map_or(1.0, |rows| (rows / live).min(1.0));
    let is_changed = last("dead_rows").unwrap_or(0.0) >= live * CHANGED_MIN;
    let share = odd.planned.statement.share;
    (1.0 - visible * counted >= UNKNOWN_MIN).then(|| if is_changed { Severity::Low } else { severity(share) })
}

/// A BRIN index that would fit: then ranges of blocks are not in it yet.
fn not_summarized(case: &Case, odd: &Odd<'_>, blocks: f64, severity: Severity) -> Claim {
    let text = format!(
        "a statement that takes {} of the session time touches {} of the {} blocks of {}: the values of {} are in the order of the table, so BRIN index {} \
            would find few, but ranges of blocks that were filled since they were last summarized fit every search",
        units::percent(odd.planned.statement.share),
        units::short(odd.blocks()),
        units::short(blocks),
        odd.relation,
        odd.column,
        odd.name()
    );
    let index = odd.with_schema();
    odd.planned
        .claim(case, Level::CoOccurrence, severity, text)
        .number("blocks_per_call", odd.blocks())
        .number("table_blocks", blocks)
        .because("VACUUM summarizes new ranges, and autovacuum when autosummarize is on for the index; what is only inserted waits for the next vacuum")
        .because(odd.planned.file())
        .lacking("which ranges: brin_page_items of the extension pageinspect shows them")
        .remedy(
            "summarize the new ranges now, and let autovacuum do it as soon as a range is full",
            &[
                &format!("SELECT brin_summarize_new_values({}::regclass);", literal(&index)),
                &format!("ALTER INDEX {index} SET (autosummarize = on);"),
            ],
        )
}

fn block_range(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let Some((odd, blocks)) = mixed(case, planned) else { continue };
        if let Some(severity) =
            Some(&odd).filter(|odd| odd.is_in_order()).and_then(|odd| unsummarized(case, odd))
        {
            claims.push(not_summarized(case, &odd, blocks, severity));
            continue;
        }
        let order = match odd.is_in_order() {
            true => {
                "most values are in the order of the table, but so many rows came late or were moved that nearly each range of blocks has one"
            }
            false => "whose values are not in the order of the table",
        };
        let text = format!(
            "a statement that takes {} of the session time touches {} of the {} blocks of {}: BRIN index {} is on {}, {order}",
            units::percent(odd.planned.statement.share),
            units::short(odd.blocks()),
            units::short(blocks),
            odd.relation,
            odd.name(),
            odd.column
        );
        let column = [odd.column.to_string()];
        let known = format!(
            "SELECT attname, correlation FROM pg_stats WHERE format('%I.%I', schemaname, tablename) = {} AND attname = {}; -- BRIN needs nearly 1 or -1",
            literal(odd.relation),
            literal(odd.column)
        );
        claims.push(
            odd.planned
                .claim(case, Level::CoOccurrence, severity(odd.planned.statement.share), text)
                .number("blocks_per_call", odd.blocks())
                .number("table_blocks", blocks)
                .because("a BRIN index has the least and the greatest value of each 128 blocks: in mixed order nearly every range holds the value \
                    that is searched")
                .because(odd.planned.file())
                .not("a missing index: there is one, of a kind that does not fit")
                .remedy(
                    "create a B-tree index, and drop this one; or store the rows in the order of the column (CLUSTER blocks the table)",
                    &[
                        &known,
                        &statement::index_command(odd.relation, &column, true),
                        &format!("DROP INDEX CONCURRENTLY {}; -- when the new one is there, and no other statement needs this one", odd.with_schema()),
                    ],
                ),
        );
    }
    Answer::of(claims, || "BRIN indexes of the tables that plans search".to_string())
}

/// The pages that a bitmap has, and those that work_mem has room for, if these are fewer.
fn overflow(case: &Case, planned: &Planned<'_>) -> Option<(f64, f64, f64)> {
    let is_heap = |node: &&Thing<'_>| node.lines.word("kind").ends_with("Bitmap Heap Scan");
    let node = planned.nodes.iter().find(is_heap)?;
    let rows = node.lines.last("rows_planned").filter(|rows| *rows >= BITMAP_ROWS_MIN)?;
    let blocks = table(case, planned, node.lines.word("relation"))?.lines.last("bytes")? / BLOCK_BYTES;
    let work_mem = planned.plan.lines.last("work_mem_bytes")?;
    // Rows at random places fall into so many different pages.
    let pages = blocks * (1.0 - (-rows / blocks.max(1.0)).exp());
    let room = work_mem / BYTES_PER_PAGE;
    (pages > room).then_some((pages, room, work_mem))
}

fn lossy(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_UNSURE_MIN) {
        let Some((pages, room, work_mem)) = overflow(case, &planned) else { continue };
        let megabytes = (pages * BYTES_PER_PAGE * 2.0 / f64::from(1 << 20)).ceil().max(4.0);
        let text = format!(
            "a statement that takes {} of the session time makes a bitmap of some {} pages, and work_mem of {} has room for {}: the rest is kept \
                without its rows (lossy)",
            units::percent(planned.statement.share),
            units::short(pages),
            units::bytes(work_mem),
            units::short(room)
        );
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share).min(Severity::Medium), text)
                .number("bitmap_pages", pages)
                .number("work_mem_bytes", work_mem)
                .because("of a page that is kept without its rows, every row is checked against the condition again")
                .because(planned.file())
                .lacking("how many: EXPLAIN (ANALYZE) shows 'Heap Blocks: exact=... lossy=...'")
                .remedy(
                    "raise work_mem for this database or a role (each sort, hash table and bitmap of each session may use that much); sessions follow when \
                        they connect again",
                    &[&plan::for_database(planned.statement, "work_mem", &format!("'{megabytes}MB'"))],
                ),
        );
    }
    Answer::of(claims, || "bitmaps of plans, against work_mem".to_string())
}

/// Whether one of these rules explains what a statement reads, so that a missing index does not.
pub(super) fn is_explained(case: &Case, time: &NodeTime, statement: &StatementTime) -> bool {
    let plan = || plan::plan_of(case, time, statement);
    // For one constant there is an index: that the table is scanned is the work of a long list.
    let is_list = || {
        list::length(case, time, statement).is_some()
            && plan().is_some_and(|planned| list::blocks_of_one(&planned).is_some())
    };
    if statement.share >= SHARE_UNSURE_MIN && is_list() {
        return true;
    }
    statement.share >= SHARE_MIN
        && (plan().is_some_and(|planned| pending(case, planned).is_some())
            || plan().is_some_and(|planned| mixed(case, planned).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_a_whole_word_of_a_condition() {
        assert!(names_column("(article.words @@ to_tsquery($1))", "words"));
        assert!(!names_column("(article.words_old @@ to_tsquery($1))", "words"));
        assert!(!names_column("(article.keywords @@ to_tsquery($1))", "words"));
    }
}
