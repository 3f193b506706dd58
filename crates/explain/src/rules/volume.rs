//! TXN-12, WAL-11, LWL-08: work that is far more than a change needs: all rows of a table each time, large values anew for each row, parents of subtransactions
//! looked up for each row.

use super::costly::{busy, in_a_line, is_name_of, plain, severity};
use super::savepoints;
use super::vacuum::is_wal;
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Use, Verb};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "TXN-12",
        title: "a statement changes all rows of a table, or thousands, again and again",
        needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
        limits: "20 % of the session time in an UPDATE or DELETE that changes 1,000 rows, once in 5 s or more without WHERE, twice a second with it; low with \
            WHERE, unless it shifts the column by which it finds its rows (ours)",
        judge: all_rows,
        links: &["https://www.postgresql.org/docs/current/sql-update.html"],
    },
    Rule {
        id: "WAL-11",
        title: "each changed row writes large values into the WAL again",
        needs: &[Field("server", "wal_bytes"), Field("server", "sessions_active")],
        limits: "20 % of the session time in waits for the WAL, 60 % of which one statement writes, or in an UPDATE; 8 kB of WAL for each row that it changes, \
            less than half of it whole pages (ours)",
        judge: large_rows,
        links: &["https://www.postgresql.org/docs/current/storage-toast.html"],
    },
    Rule {
        id: "LWL-08",
        title: "sessions look up parents of subtransactions all the time",
        needs: &[Field("server", "sessions_active")],
        limits: "500,000 look-ups a second; 0.1 us of CPU each are 10 % of the session time (ours)",
        judge: looked_up,
        links: &["https://www.postgresql.org/docs/current/subxacts.html"],
    },
];

/// Look-ups a second.
const LOOKUPS_PER_S_MIN: f64 = 500_000.0;
/// CPU of one, in seconds: a lightweight lock and a page in memory.
const LOOKUP_S: f64 = 1e-7;
/// The share of the session time that they take.
const LOOKUP_SHARE_MIN: f64 = 0.1;

/// Whose transaction it is, as the end of a claim.
fn whose(oldest: Option<&crate::case::Thing<'_>>) -> String {
    oldest.map_or(String::new(), |session| format!("; {}", savepoints::in_words(session)))
}

/// The page of a parent is in memory, so no session waits: only the counter of the cache shows it.
fn looked_up(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let caches = case
            .at("slru", &time.node)
            .filter(|cache| cache.name.to_ascii_lowercase().starts_with("subtrans"));
        let per_s: f64 = caches.filter_map(|cache| cache.lines.rate("hits")).sum();
        let share = (per_s * LOOKUP_S / time.active).min(1.0);
        if per_s < LOOKUPS_PER_S_MIN || share < LOOKUP_SHARE_MIN {
            continue;
        }
        let oldest = savepoints::oldest(case, &time.node);
        claims.push(
            Claim::new(
                severity(share),
                Level::CoOccurrence,
                format!(
                    "{}: sessions look up the parents of subtransactions {} times a second: a transaction with more than 64 savepoints is open, and each \
                        reader of its rows has to find out whether it has ended{}",
                    time.node,
                    units::short(per_s),
                    whose(oldest.as_ref())
                ),
            )
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", share)
            .number("lookups_per_s", per_s)
            .because("pg_stat_slru counts them; the pages are in memory, so no wait event shows them, only CPU time")
            .remedy(
                "end the transaction; use fewer than 64 savepoints or exception blocks in each (drivers that set one for each statement have a setting for it)",
                &[
                    "SELECT pid, backend_start, now() - xact_start AS age, state, left(query, 60) AS query FROM pg_stat_activity WHERE xact_start IS NOT NULL \
                        ORDER BY xact_start LIMIT 5;",
                ],
            ),
        );
    }
    Answer::of(claims, || "look-ups in the cache of subtransactions".to_string())
}

/// The share of the session time.
const SHARE_MIN: f64 = 0.2;
/// Rows that a statement changes.
const ROWS_MIN: f64 = 1_000.0;
/// Executions a second.
const CALLS_PER_S_MIN: f64 = 0.2;
/// Of the WAL.
const OF_WAL_MIN: f64 = 0.6;
/// WAL of a row: that of a narrow one has some hundred bytes, with its index entries.
const BYTES_PER_ROW_MIN: f64 = 8_000.0;
/// Rows of an execution of a program that changes things one by one.
const ROWS_OF_CHANGE_MAX: f64 = 100.0;
/// Whole pages, of the WAL: then checkpoints are the reason (WAL-07).
const PAGES_SHARE_MAX: f64 = 0.5;
/// Bytes of a block, by default.
const BLOCK_BYTES: f64 = 8192.0;

/// Executions a second of a statement with a condition.
const FILTERED_PER_S_MIN: f64 = 2.0;
const NOT_ALL_ROWS: &str = "change only rows that become different (WHERE column IS DISTINCT FROM the new value), or keep what is the same for all rows in a \
    table of its own; TRUNCATE instead of DELETE of everything";
const FEWER_ROWS: &str = "find a form in which one change writes few rows: positions with gaps between them instead of numbers that are shifted \
    (nested sets, lists in an order), a parent's key or a path instead of left and right bounds";
const NO_HARM_BY_ITSELF: &str = "a batch that has to change so many rows does it best in one statement, and needs nothing else; if single events of the \
    application cause it, keep what they change in one row instead of in all (a state, a counter), or leave out rows whose values stay the same";
const FEWER_DELETED: &str = "a clean-up that has to delete so many rows does it best in large portions; if days or batches are deleted as a whole, let \
    them lie together in a partition each, which is dropped or truncated";

/// Whether an UPDATE shifts the column by which it finds its rows: numbers of an order, or the bounds of a nested set. Each change of the order then writes all
/// rows behind it.
fn is_shift(parsed: &statement::Statement) -> bool {
    let is_range_of =
        |column: &String| parsed.conditions.iter().any(|one| one.column == *column && one.how == Use::Range);
    parsed.verb == Verb::Update && parsed.assigned.iter().any(is_range_of)
}

/// Whether a statement takes a portion of the rows that fit.
fn is_limited(text: &str) -> bool {
    let text = super::costly::lowered(text);
    text.contains(" limit ") || text.contains("ctid")
}

/// The table that an UPDATE or DELETE changes, as it is written: behind the verb, wherever that stands (WITH may come first).
fn written_table(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at =
        |verb: &str| words.iter().rposition(|word| word.trim_start_matches('(').eq_ignore_ascii_case(verb));
    let mut rest = match (at("update"), at("delete")) {
        (Some(update), None) => words[update + 1..].iter(),
        (_, Some(delete)) => words[delete + 1..].iter(),
        (None, None) => return None,
    };
    let is_word = |word: &&&str| !["from", "only"].iter().any(|other| word.eq_ignore_ascii_case(other));
    rest.find(is_word).map(|word| plain(word.trim_end_matches([';', ')', '(']), NAME_CHARS))
}

/// Characters of a name.
const NAME_CHARS: usize = 130;

fn all_rows(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            let Ok(parsed) = statement::parse(&statement.text) else { continue };
            let (rows, calls) = (statement.rows.unwrap_or(0.0), statement.calls_per_s.unwrap_or(0.0));
            let changes = matches!(parsed.verb, Verb::Update | Verb::Delete);
            // With a condition it may be one large correction; twice a second it is none.
            let often = if parsed.is_filtered { FILTERED_PER_S_MIN } else { CALLS_PER_S_MIN };
            let is_update = parsed.verb == Verb::Update;
            // Old rows are deleted in portions because that is the right way.
            let is_portion = !is_update && is_limited(&statement.text);
            // A trigger changes one row for each row of the statement that fires it (TXN-18).
            let is_inner = !statement.outer.is_empty();
            if !changes || is_inner || is_portion || rows < ROWS_MIN || calls < often {
                continue;
            }
            let verb = if is_update { "UPDATE" } else { "DELETE" };
            let name = written_table(&statement.text).unwrap_or_else(|| "a table".to_string());
            let is_shift = is_shift(&parsed);
            // Many rows in one statement are no harm by themselves.
            let is_wrong = is_shift || !parsed.is_filtered;
            claims.push(
                Claim::new(
                    if is_wrong { severity(statement.share) } else { Severity::Low },
                    Level::DiscriminatingCounter,
                    format!(
                        "{}: {} of the session time is {verb}{} {} rows of {name} each time, {} times a second",
                        time.node,
                        units::percent(statement.share),
                        if parsed.is_filtered { " of" } else { " without WHERE: it changes all" },
                        units::short(rows),
                        units::short(calls)
                    ),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("share", statement.share)
                .number("rows_per_call", rows)
                .number("calls_per_s", calls)
                .because(format!("the statement: {}", in_a_line(statement)))
                .because(if is_update {
                    "each changed row is written anew, with WAL, and leaves a dead row for vacuum"
                } else {
                    "each deleted row is written to the WAL, and stays as a dead row until vacuum removes it"
                })
                .with(statement.wal_bytes, |claim, bytes| {
                    claim.because(format!("an execution writes {} of WAL", units::bytes(bytes)))
                })
                .remedy(
                    match (parsed.is_filtered, is_update) {
                        (false, _) => NOT_ALL_ROWS,
                        (true, true) if is_shift => FEWER_ROWS,
                        (true, true) => NO_HARM_BY_ITSELF,
                        (true, false) => FEWER_DELETED,
                    },
                    &[],
                ),
            );
        }
    }
    Answer::of(claims, || "UPDATE and DELETE without a condition, and the rows they change".to_string())
}

/// What to do about large values that are written again.
const KEEP_APART: &str = "keep what changes often (counters, states) in columns or a table of its own, apart from the large value: an UPDATE that changes a \
    value above 2 kB writes all of it again, and one that leaves it alone does not";

/// The statement that writes most of the WAL for which sessions wait, and far more of it for a row than the row is large.
pub(super) struct Writer<'a> {
    /// The share of the session time in waits for the WAL.
    pub(super) share: f64,
    /// Of the WAL, what it writes.
    pub(super) of_wal: f64,
    /// Bytes for a row that it changes.
    pub(super) each: f64,
    rows_per_s: f64,
    wal_bytes_per_s: f64,
    text: &'a str,
    /// The table that it changes, if that is replicated by whole old rows: those are in the WAL with their large values, also where these stay the same.
    pub(super) full: Option<&'a str>,
}

pub(super) fn writer<'a>(case: &'a Case, time: &NodeTime) -> Option<Writer<'a>> {
    let server = case.one("server", &time.node)?;
    let share = node_time::share_of(case, &time.node, is_wal)?;
    let all = server.rate("wal_bytes")?;
    let pages = server.rate("wal_fpi").unwrap_or(0.0) * BLOCK_BYTES;
    if share < SHARE_MIN || pages > all * PAGES_SHARE_MAX {
        return None;
    }
    // The commit waits, not the statement: its own time may be small, so all of them are looked at.
    let node = case.nodes().into_iter().find(|node| *node == time.node)?;
    let rate = |field: &str, line: &Thing<'_>| line.lines.rate(field).unwrap_or(0.0);
    let writers = case
        .at("statement", node)
        .map(|line| (rate("wal_bytes", &line), rate("rows", &line), rate("calls", &line), line));
    let (bytes, rows, calls, line) = writers.max_by(|left, right| left.0.total_cmp(&right.0))?;
    let (each, at_once) = (bytes / rows.max(f64::MIN_POSITIVE), rows / calls.max(f64::MIN_POSITIVE));
    if bytes < all * OF_WAL_MIN || rows <= 0.0 || each < BYTES_PER_ROW_MIN || at_once > ROWS_OF_CHANGE_MAX {
        return None;
    }
    let id = line.lines.word("query_id");
    let text = case.query(id).unwrap_or(id);
    let parsed = statement::parse(text).ok();
    // A function's rows are those that it returns; what it writes may be tables that it creates (TXN-15).
    if parsed.as_ref().is_some_and(|parsed| parsed.verb == Verb::Select) {
        return None;
    }
    let changed = parsed.as_ref().filter(|parsed| matches!(parsed.verb, Verb::Update | Verb::Delete));
    let is_it = |table: &Thing<'_>| {
        let name = changed.and_then(|parsed| parsed.tables.first());
        table.lines.word("replica_identity") == "full"
            && name.is_some_and(|name| is_name_of(name, table.lines.word("relation")))
    };
    let full = case.at("table", node).find(is_it).map(|table| table.lines.word("relation"));
    Some(Writer {
        share,
        of_wal: (bytes / all).min(1.0),
        each,
        rows_per_s: rows,
        wal_bytes_per_s: bytes,
        text,
        full: full.filter(|_| case.setting(node, "wal_level") == Some("logical")),
    })
}

impl Writer<'_> {
    /// The statement and what it does, beneath a claim.
    pub(super) fn beneath(&self, claim: Claim) -> Claim {
        claim
            .number("share", self.share)
            .number("wal_bytes_per_row", self.each)
            .because(format!("the statement: {}", plain(self.text, 160)))
            .because(format!(
                "it changes {} rows a second, and writes {} of WAL",
                units::short(self.rows_per_s),
                units::bytes(self.wal_bytes_per_s)
            ))
            .not("whole pages after checkpoints: they are less than half of the WAL")
    }
}

fn large_rows(case: &Case) -> Answer {
    let (mut claims, mut whole, mut seen) = (vec![], vec![], vec![]);
    for time in busy(case) {
        let Some(writer) = writer(case, time) else { continue };
        seen.push(time.node.as_str());
        // WAL-04 has that.
        if writer.full.is_some() {
            continue;
        }
        let claim = Claim::new(
            severity(writer.share),
            Level::CoOccurrence,
            format!(
                "{}: sessions wait {} of their time for the WAL, and one statement writes {} of it: {} for each row it changes, because large values are \
                    written anew",
                time.node,
                units::percent(writer.share),
                units::percent(writer.of_wal),
                units::bytes(writer.each)
            ),
        )
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()));
        claims.push(writer.beneath(claim).remedy(KEEP_APART, &[]));
    }
    for time in busy(case).filter(|time| !seen.contains(&time.node.as_str())) {
        let large = time.statements.iter().filter(|statement| statement.share >= SHARE_MIN);
        whole.extend(large.filter_map(|statement| whole_values(case, time, statement)));
    }
    claims.extend(whole);
    Answer::of(claims, || "WAL of statements for each row that they change".to_string())
}

/// An UPDATE that builds large values anew: that takes CPU, also where no session waits for the WAL.
fn whole_values(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<Claim> {
    let parsed = statement::parse(&statement.text).ok().filter(|parsed| parsed.verb == Verb::Update)?;
    let rows = statement.rows.filter(|rows| *rows > 0.0 && *rows <= ROWS_OF_CHANGE_MAX)?;
    let each = statement.wal_bytes? / rows;
    let is_it = |line: &crate::case::Thing<'_>| line.lines.word("query_id") == statement.query_id;
    let line = case.at("statement", &time.node).find(is_it)?;
    let pages = line.lines.sum("wal_fpi").unwrap_or(0.0) * BLOCK_BYTES;
    if each < BYTES_PER_ROW_MIN || pages > line.lines.sum("wal_bytes")? * PAGES_SHARE_MAX {
        return None;
    }
    let table = parsed.tables.first().map(|table| statement::quoted(&table.name)).unwrap_or_default();
    let columns: Vec<String> =
        parsed.assigned.iter().take(3).map(|column| statement::quoted(column)).collect();
    Some(
        Claim::new(
            severity(statement.share),
            Level::CoOccurrence,
            format!(
                "{}: {} of the session time is an UPDATE that writes {} of WAL for each row of {table}: a large value (TOAST) is read, unpacked, built anew \
                 and written as a whole, however little of it changes (it sets {})",
                time.node,
                units::percent(statement.share),
                units::bytes(each),
                columns.join(", ")
            ),
        )
        .on_node(&time.node)
        .during([line.lines.ticks.window()])
        .number("share", statement.share)
        .number("wal_bytes_per_row", each)
        .because(format!("the statement: {}", in_a_line(statement)))
        .because("a row with its index entries has some hundred bytes of WAL, unless a value above 2 kB is new")
        .not("whole pages after checkpoints: they are less than half of the WAL")
        .remedy(KEEP_APART, &[]),
    )
}
