//! PLAN, LWL: work that a statement causes and its text does not show: triggers, indexes that only cost, an index that is walked for its order, sequences.

mod walk;

use super::costly::{busy, in_a_line, plain, severity, table_named};
use super::inside;
use super::paste::literal;
use crate::case::{Case, Thing};
use crate::node_time;
use crate::node_time::ON_CPU;
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use crate::waits::Who;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Verb};

pub(crate) use walk::DEAD_ROWS;
pub(super) use walk::is_walked;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-25",
        title: "triggers take most of the time of a write",
        needs: &[Field("statement", "calls"), Field("table", "triggers"), Field("server", "sessions_active")],
        limits: "20 % of the session time in a statement that writes a table with triggers and touches 100 blocks for each row, ten times what its indexes \
            explain; or half of its time in the function of a trigger, or 0.25 ms of CPU for each row (ours)",
        judge: triggers,
        links: &["https://www.postgresql.org/docs/current/trigger-definition.html"],
    },
    Rule {
        id: "PLAN-26",
        title: "writes keep indexes that nothing reads",
        needs: &[Field("table", "index_scans"), Field("table", "indexes"), Field("table", "rows_inserted")],
        limits: "200 rows written a second into a table with 4 indexes or more, and fewer index scans than one for 1,000 rows, or 4 indexes and half \
            of all that \
            nothing has read; or with a GIN, GiST or SP-GiST index that nothing has read (ours)",
        judge: unread_indexes,
        links: &[
            "https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-ALL-INDEXES-VIEW",
        ],
    },
    Rule {
        id: "PLAN-27",
        title: "an index is read in its order until enough rows fit",
        needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
        limits: "20 % of the session time in a statement with ORDER BY and LIMIT that touches 100 blocks, ten for each row, and a plan with an index scan that \
            filters, or index scans of its tables that read ten rows for each one it returns (ours)",
        judge: walk::walked,
        links: &["https://www.postgresql.org/docs/current/indexes-ordering.html"],
    },
    Rule {
        id: "LWL-07",
        title: "sessions queue for a sequence",
        needs: &[Looked("wait"), Field("statement", "calls")],
        limits: "10 % of the session time in LWLock:BufferContent, most of it in a statement that calls nextval (ours)",
        judge: sequence,
        links: &["https://www.postgresql.org/docs/current/sql-createsequence.html"],
    },
];

/// The share of the session time of a statement.
const SHARE_MIN: f64 = 0.2;
/// Of the time of a statement, that of the function of a trigger.
const OF_STATEMENT_MIN: f64 = 0.5;
/// Blocks for each row written, or of an execution.
const BLOCKS_MIN: f64 = 100.0;
/// Milliseconds of CPU for each row written: a row by key, with its indexes and WAL, takes a twentieth.
const CPU_MS_PER_ROW_MIN: f64 = 0.25;
/// Rows of an execution, on average.
const ROWS_WRITTEN_MIN: f64 = 0.5;
/// Blocks that a row takes in a table, and in each of its indexes, with their upper pages.
const BLOCKS_PER_INDEX: f64 = 5.0;
/// By how much more it is than the indexes explain.
const TIMES_EXPLAINED: f64 = 10.0;
/// Rows written a second.
const WRITTEN_PER_S_MIN: f64 = 200.0;
/// Indexes of a table.
const INDEXES_MIN: f64 = 4.0;
/// The share of a table's indexes that nothing has read, from which on its writes are mostly for nothing.
const UNREAD_MOST: f64 = 0.5;
/// Entries of unread indexes a second that take more than a tenth of a CPU: one takes some 10 us with its WAL.
const ENTRIES_PER_S_MUCH: f64 = 10_000.0;
/// Methods of indexes that are dear to write.
const DEAR: [&str; 3] = ["(gin)", "(gist)", "(spgist)"];
/// Characters of names in a claim.
const NAMES_CHARS: usize = 160;
/// Index scans for each row written.
const SCANS_PER_ROW_MAX: f64 = 0.001;
/// Blocks, or rows read, for each row returned.
const PER_ROW_MIN: f64 = 10.0;
/// The share of the session time in the lock of a page.
const PAGE_SHARE_MIN: f64 = 0.1;
/// Of these waits, those in one statement.
const OF_WAITS_MIN: f64 = 0.5;

/// An INSERT of many rows, whose text is cut off, without its rows: the table is known all the same.
fn begun(text: &str) -> String {
    let mut words = text.split_whitespace();
    let mut is_next = |wanted: &str| words.next().is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    if !(is_next("insert") && is_next("into")) {
        return String::new();
    }
    let table = words.next().unwrap_or_default();
    format!("INSERT INTO {} DEFAULT VALUES", table.split('(').next().unwrap_or_default())
}

/// The table that a statement writes, if it is among those that were sampled.
pub(super) fn written<'a>(case: &'a Case, node: &'a str, statement: &StatementTime) -> Option<Thing<'a>> {
    let parsed =
        statement::parse(&statement.text).or_else(|_| statement::parse(&begun(&statement.text))).ok()?;
    let target = parsed
        .tables
        .first()
        .filter(|_| matches!(parsed.verb, Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge))?;
    table_named(case, node, statement, target)
}

/// A statement that ran as often as a write and took most of its time, whose text is not sent by a client but by a trigger.
fn as_often<'a>(time: &'a NodeTime, outer: &StatementTime) -> Option<&'a StatementTime> {
    let calls = outer.calls_per_s?;
    let is_nested = |other: &&StatementTime| {
        let as_often = other.calls_per_s.is_some_and(|rate| (rate - calls).abs() <= calls * 0.1);
        other.query_id != outer.query_id
            && as_often
            && other.share >= outer.share * 0.5
            && other.share <= outer.share * 1.05
    };
    time.statements.iter().find(is_nested)
}

/// What a write costs for each of its rows.
#[derive(Clone, Copy)]
pub(super) struct PerRow {
    pub(super) blocks: f64,
    /// Blocks of a row and its index entries.
    pub(super) explained: f64,
    /// Milliseconds of CPU, if that is what is much.
    cpu_ms: Option<f64>,
}

impl PerRow {
    fn has_more_blocks(&self) -> bool {
        self.blocks >= BLOCKS_MIN && self.blocks >= self.explained * TIMES_EXPLAINED
    }

    /// Whether it is more than the row and its index entries explain.
    pub(super) fn is_much(&self) -> bool {
        self.has_more_blocks() || self.cpu_ms.is_some()
    }

    /// What it is much of.
    pub(super) fn words(&self) -> String {
        match self.cpu_ms {
            Some(ms) => format!("takes {} of CPU", units::us(ms * 1e3)),
            None => format!("touches {} blocks", units::short(self.blocks)),
        }
    }
}

pub(super) fn per_row(time: &NodeTime, statement: &StatementTime, table: &Thing<'_>) -> PerRow {
    let blocks = statement.blocks.unwrap_or(0.0) / statement.rows.unwrap_or(0.0).max(1.0);
    let explained = BLOCKS_PER_INDEX * (1.0 + table.lines.last("indexes").unwrap_or(0.0));
    let cpu_ms =
        cpu_ms_per_row(time, statement).filter(|ms| *ms >= CPU_MS_PER_ROW_MIN && blocks <= BLOCKS_MIN);
    let work = PerRow { blocks, explained, cpu_ms };
    PerRow { cpu_ms: cpu_ms.filter(|_| !work.has_more_blocks()), ..work }
}

/// What triggers of a table do for a statement that writes it.
struct Triggered<'a> {
    table: Thing<'a>,
    statement: &'a StatementTime,
    work: PerRow,
    /// The function of a trigger with the most time, and its share of the session time, if functions are counted.
    function: Option<(&'a str, &'a str, f64)>,
}

/// Milliseconds of CPU for each row that a statement writes, if samples saw it on a CPU most of the time: its share of what the scheduler counted.
fn cpu_ms_per_row(time: &NodeTime, statement: &StatementTime) -> Option<f64> {
    let on_cpu = time.parts.iter().find(|part| part.name == ON_CPU)?.sessions;
    let (_, seen) = statement.events.iter().find(|(event, _)| event == "CPU")?;
    let calls = statement.calls_per_s.filter(|calls| *calls > 0.0)?;
    let rows = statement.rows.filter(|rows| *rows >= ROWS_WRITTEN_MIN)?;
    (*seen >= OF_STATEMENT_MIN).then(|| on_cpu * statement.share / calls / rows * 1e3)
}

fn triggered<'a>(case: &'a Case, time: &'a NodeTime, statement: &'a StatementTime) -> Option<Triggered<'a>> {
    let table = written(case, &time.node, statement)?;
    if table.lines.last("triggers").unwrap_or(0.0) < 1.0 {
        return None;
    }
    let work = per_row(time, statement, &table);
    let counted = inside::triggers_of(&table).into_iter().filter_map(|(trigger, function)| {
        let (_, share) = inside::counted(case, time, function)?;
        Some((trigger, function, share))
    });
    let function = counted.max_by(|left, right| left.2.total_cmp(&right.2));
    let is_counted = function.is_some_and(|(_, _, share)| share >= statement.share * OF_STATEMENT_MIN);
    (is_counted || work.is_much()).then_some(Triggered { table, statement, work, function })
}

fn triggers(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            if let Some(found) = triggered(case, time, statement) {
                claims.push(of_triggers(case, time, &found));
            }
        }
    }
    Answer::of(claims, || "writes of tables with triggers, and blocks for each row".to_string())
}

const FOR_EACH_ROW: &str = "look at what the triggers do for each row: a query without an index, a count, a call of another service; do it once per statement, \
    or later in a queue";

/// What the functions of triggers run that no plan shows, as the end of a claim, and whether that is REFRESH.
fn run_inside(case: &Case, node: &str, table: &Thing<'_>) -> (String, bool) {
    let functions = inside::triggers_of(table).into_iter().map(|(_, function)| function);
    let all: Vec<(&str, Vec<String>)> = functions
        .map(|function| (function, inside::commands_of(case, node, function)))
        .filter(|(_, commands)| !commands.is_empty())
        .collect();
    let is_refresh = all.iter().any(|(_, commands)| inside::refreshes(commands));
    let words: Vec<String> =
        all.iter().map(|(function, commands)| format!("{function}() runs {}", commands.join(", "))).collect();
    let words =
        if words.is_empty() { String::new() } else { format!("; {}", plain(&words.join("; "), NAMES_CHARS)) };
    (words, is_refresh)
}

fn of_triggers(case: &Case, time: &NodeTime, found: &Triggered<'_>) -> Claim {
    let Triggered { table, statement, work, function } = found;
    let relation = table.lines.word("relation");
    let count = table.lines.last("triggers").unwrap_or(0.0);
    let nested = inside::inner(case, time, statement).or_else(|| as_often(time, statement));
    let names = inside::triggers_of(table);
    let names: Vec<String> =
        names.iter().map(|(trigger, function)| format!("{trigger} calls {function}()")).collect();
    let (runs, is_refresh) = run_inside(case, &time.node, table);
    let named = if names.is_empty() { String::new() } else { format!(" ({})", plain(&names.join(", "), 80)) };
    let is_counted = nested.is_some() || function.is_some();
    let definitions = format!(
        "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = {}::regclass AND NOT tgisinternal;",
        literal(relation)
    );
    let source = function.map(|(_, function, _)| {
        format!("SELECT oid::regprocedure, prosrc FROM pg_proc WHERE proname = {};", literal(function))
    });
    let to_count = inside::to_count_it(case, &time.node);
    let commands: Vec<&str> = std::iter::once(definitions.as_str())
        .chain(source.as_deref())
        .chain(to_count.iter().copied().filter(|_| nested.is_none()))
        .collect();
    Claim::new(
        severity(statement.share),
        if is_counted { Level::DiscriminatingCounter } else { Level::CoOccurrence },
        format!(
            "{}: {} of the session time is one statement that writes {relation} and {} for each row: {} of that table do more than the write{named}{runs}",
            time.node,
            units::percent(statement.share),
            work.words(),
            units::counted(count as usize, "trigger")
        ),
    )
    .on_node(&time.node)
    .during([table.lines.ticks.window()])
    .number("share", nested.map_or(statement.share, |nested| nested.share))
    .number("blocks_per_row", work.blocks)
    .number("triggers", count)
    .because(format!("the statement: {}", in_a_line(statement)))
    .because(format!("the row itself and its index entries are some {} blocks", units::short(work.explained)))
    .with(*function, |claim, (trigger, function, share)| {
        claim.because(format!(
            "pg_stat_user_functions: {} of the session time is function {function}() of trigger {trigger}, with all that it calls",
            units::percent(share)
        ))
    })
    .with(nested, |claim, nested| {
        claim.because(format!(
            "{} of the session time runs as part of the write, within it: {}",
            units::percent(nested.share),
            in_a_line(nested)
        ))
    })
    .with(nested.is_none().then_some(()), |claim, ()| {
        claim.lacking("the statements of the triggers: pg_stat_statements.track = all counts them, track_functions = pl their functions")
    })
    .remedy(
        if is_refresh { inside::REFRESH_APART } else { FOR_EACH_ROW },
        &commands,
    )
}

/// How much unread indexes matter, by the share of the time of the statements that write them; where no statement is known, by their entries a second.
fn unread_severity(writes: Option<f64>, unread: f64, indexes: f64, rows_per_s: f64) -> Severity {
    match writes {
        // Most of the work for a row is in indexes that nothing reads.
        Some(share) if share >= SHARE_MIN && unread >= indexes * UNREAD_MOST => severity(share),
        Some(share) if share >= SHARE_MIN => Severity::Medium,
        None if unread * rows_per_s >= ENTRIES_PER_S_MUCH => Severity::Medium,
        _ => Severity::Low,
    }
}

/// The share of the session time of the statements that write a table, if they are known.
fn share_of_writes(case: &Case, table: &Thing<'_>) -> Option<f64> {
    let time = node_time::all(case).iter().find(|time| time.node == table.place)?;
    let on_it = |statement: &&StatementTime| {
        written(case, &time.node, statement).is_some_and(|other| other.name == table.name)
    };
    let share: f64 = time.statements.iter().filter(on_it).map(|statement| statement.share).sum();
    (share > 0.0).then_some(share)
}

fn unread_indexes(case: &Case) -> Answer {
    let mut claims = vec![];
    for table in case.things("table") {
        let rate = |field: &str| table.lines.rate(field).unwrap_or(0.0);
        let cold = (rate("rows_updated") - rate("rows_hot_updated")).max(0.0);
        let rows = rate("rows_inserted") + cold;
        let indexes = table.lines.last("indexes").unwrap_or(0.0);
        let relation = table.lines.word("relation");
        let unscanned = table.lines.word("unscanned_indexes");
        let unread = unscanned.split("; ").filter(|name| !name.is_empty()).count() as f64;
        let is_most = unread >= INDEXES_MIN && unread >= indexes * UNREAD_MOST;
        let is_unread =
            indexes >= INDEXES_MIN && (is_most || rate("index_scans") <= rows * SCANS_PER_ROW_MAX);
        // An entry of GIN for each key of a value costs many times a row.
        let is_dear = DEAR.iter().any(|method| unscanned.contains(method));
        if rows < WRITTEN_PER_S_MIN || !is_unread && !is_dear {
            continue;
        }
        let writes = share_of_writes(case, &table);
        let size = table.lines.last("index_bytes").zip(table.lines.last("bytes"));
        claims.push(
            Claim::new(
                unread_severity(writes, unread, indexes, rows),
                Level::CoOccurrence,
                format!(
                    "{}: each of {} rows written a second into {relation} is entered into {indexes:.0} indexes, {}",
                    table.place,
                    units::short(rows),
                    match unscanned {
                        "" => format!("and {} index scans a second read them", units::short(rate("index_scans"))),
                        names => format!(
                            "of which nothing has read {} since the server's counters began{}",
                            plain(names, NAMES_CHARS),
                            if is_dear { ": GIN and GiST indexes are dear to write" } else { "" }
                        ),
                    }
                ),
            )
            .on_node(table.place)
            .during([table.lines.ticks.window()])
            .number("rows_written_per_s", rows)
            .number("indexes", indexes)
            .number("index_scans_per_s", rate("index_scans"))
            .because(format!("{} index scans a second, by all of its indexes", units::short(rate("index_scans"))))
            .with(writes, |claim, share| {
                let words = format!("the statements that write it take {} of the session time", units::percent(share));
                claim.number("share", share).because(words)
            })
            .with(size, |claim, (index, heap)| claim.because(format!("its indexes take {}, the table {}", units::bytes(index), units::bytes(heap))))
            .lacking("a longer time: an index may serve a report of the month, a constraint (primary key, unique), or a standby")
            .remedy(
                "drop those that no statement needs, over a month and on all standbys; primary keys and unique constraints stay",
                &[&format!(
                    "SELECT s.indexrelid::regclass AS index, s.idx_scan, pg_size_pretty(pg_relation_size(s.indexrelid)) AS size, i.indisunique, \
                     format('DROP INDEX CONCURRENTLY %s;', s.indexrelid::regclass) AS command FROM pg_stat_user_indexes s JOIN pg_index i USING (indexrelid) \
                     WHERE s.relid = {}::regclass AND NOT i.indisunique AND NOT i.indisreplident AND NOT EXISTS (SELECT FROM pg_constraint c \
                     WHERE c.conindid = s.indexrelid) ORDER BY s.idx_scan, pg_relation_size(s.indexrelid) DESC;",
                    literal(relation)
                )],
            ),
        );
    }
    Answer::of(claims, || "rows written, indexes and index scans of the tables".to_string())
}

fn sequence(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let fits = |kind: &str, event: &str| kind == "LWLock" && event == "BufferContent";
        let Some(waits) = case.waits(&time.node) else { continue };
        let share = node_time::share_of(case, &time.node, fits).unwrap_or(0.0);
        let worst = waits.worst_statement(fits).filter(|(_, of_waits)| *of_waits >= OF_WAITS_MIN);
        let text = worst.and_then(|(id, _)| case.query(id)).unwrap_or("");
        if share < PAGE_SHARE_MIN || !text.to_ascii_lowercase().contains("nextval(") {
            continue;
        }
        claims.push(
            Claim::new(
                severity(share),
                Level::CoOccurrence,
                format!("{}: sessions wait {} of their time for the page of a sequence", time.node, units::percent(share)),
            )
            .on_node(&time.node)
            .during(waits.windows(Who::Client, fits))
            .number("share", share)
            .because(format!("most waits for LWLock:BufferContent are in: {}", super::costly::plain(text, 160)))
            .because("each nextval locks the sequence's only page for itself, and every 32nd writes WAL")
            .not("rows: a sequence has no row locks")
            .lacking("which sequence: constants are not recorded; the command shows those that grow")
            .remedy(
                "let each session take several numbers at once; gaps become larger, and numbers no longer follow the order of time",
                &["SELECT schemaname, sequencename, last_value, cache_size, format('ALTER SEQUENCE %I.%I CACHE 100;', schemaname, sequencename) AS command \
                   FROM pg_sequences ORDER BY last_value DESC NULLS LAST LIMIT 10;"],
            ),
        );
    }
    Answer::of(claims, || "waits for pages, and statements that take numbers of sequences".to_string())
}
