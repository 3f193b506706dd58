//! WAL-12: whole pages in the WAL because changes go to pages all over a table or an index.

use super::pages::{BLOCK_BYTES, STATEMENT_CHARS, are_compared, is_frequent, writer};
use super::severity;
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::rules::costly::{in_a_line, plain, table_named};
use crate::rules::paste::literal;
use crate::rules::vacuum::is_wal;
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Verb};

/// The share of images, of waits for the WAL, images for each row, and bytes of WAL a second.
const SHARE_MIN: f64 = 0.8;
const WAIT_MIN: f64 = 0.5;
const PAGES_MIN: f64 = 0.5;
/// More of them for each changed row come from something that changes no row: an index that is built, hint bits with checksums, a vacuum.
const PAGES_MAX: f64 = 20.0;
const PER_S_MIN: f64 = 5e5;

/// The same of one statement that inserts: its share of the session time, images for each row and a second, and their part of its WAL.
const INSERT_SHARE_MIN: f64 = 0.1;
const INSERT_PAGES_MIN: f64 = 0.25;
const INSERT_PER_S_MIN: f64 = 200.0;
const INSERT_PART_MIN: f64 = 0.6;
/// Characters of a list of indexes.
const INDEXES_CHARS: usize = 200;

/// Changes that go to pages all over a large table or index, so that each of them is the first one of its page since the checkpoint.
fn of_scattered(case: &Case, server: Thing<'_>) -> Option<Claim> {
    let share = node_time::share_of(case, server.place, is_wal)?;
    let (pages, bytes) = (server.lines.sum("wal_fpi")?, server.lines.sum("wal_bytes")?);
    let part = (pages * BLOCK_BYTES / bytes.max(1.0)).min(1.0);
    let is_felt = share >= WAIT_MIN && server.lines.rate("wal_bytes")? >= PER_S_MIN;
    if !is_felt || is_frequent(case, server.place) || part < SHARE_MIN {
        return None;
    }
    let changed: f64 = ["tup_inserted", "tup_updated", "tup_deleted"]
        .iter()
        .filter_map(|field| server.lines.sum(field))
        .sum();
    let each = pages / changed.max(1.0);
    if !(PAGES_MIN..=PAGES_MAX).contains(&each) {
        return None;
    }
    let text = format!(
        "{}: sessions wait {} of their time for the WAL, and {} of it are full page images: each changed row touches {} pages that nothing changed since \
         the last checkpoint, as random keys do (UUIDs, hashes), or updates all over a large table",
        server.place,
        units::percent(share),
        units::percent(part),
        units::short(each)
    );
    let claim = Claim::new(severity(share), Level::CoOccurrence, text)
        .on_node(server.place)
        .during([server.lines.ticks.window()])
        .number("share", share)
        .number("full_page_share", part)
        .number("pages_per_row", each)
        .because(format!("{} full page images and {} of WAL for {} changed rows", units::count(pages), units::bytes(bytes), units::count(changed)))
        .with(writer(case, server.place, pages), |claim, (text, share)| {
            claim.because(format!("{} of them are written by one statement; they come from: {}", units::percent(share), plain(text, STATEMENT_CHARS)))
        })
        .not("frequent checkpoints: fewer than three begin within five minutes each")
        .lacking("whether it lasts: the images become fewer the longer the last checkpoint is ago, if the pages are few enough");
    Some(claim.remedy(
        "give new rows neighbouring keys (UUID version 7, a sequence), drop indexes on random values that no statement uses, make checkpoints rarer, and \
         compress the pages",
        &[
            "ALTER SYSTEM SET wal_compression = on; SELECT pg_reload_conf();",
            "SELECT indexrelid::regclass AS index, idx_scan FROM pg_stat_user_indexes ORDER BY pg_relation_size(indexrelid) DESC LIMIT 10;",
        ],
    ))
}

/// Figures of a statement that inserts rows at random places.
struct Inserts<'a> {
    statement: &'a StatementTime,
    table: Thing<'a>,
    /// Images for each row, and a second.
    each: f64,
    per_s: f64,
    /// Their part of the statement's WAL.
    part: f64,
    /// Blocks that are read for each row.
    read: f64,
}

fn inserts<'a>(case: &'a Case, time: &'a NodeTime, statement: &'a StatementTime) -> Option<Inserts<'a>> {
    let parsed = statement::parse(&statement.text).ok().filter(|parsed| parsed.verb == Verb::Insert)?;
    let table = table_named(case, &time.node, statement, parsed.tables.first()?)?;
    let is_its = |counted: &Thing<'_>| counted.lines.word("query_id") == statement.query_id;
    let counted = case.at("statement", &time.node).find(is_its)?;
    let (sum, rate) = (|field| counted.lines.sum(field), |field| counted.lines.rate(field));
    let (pages, rows) = (sum("wal_fpi")?, sum("rows").filter(|rows| *rows > 0.0)?);
    let part = (pages * BLOCK_BYTES / sum("wal_bytes")?.max(1.0)).min(1.0);
    let read = sum("shared_read").unwrap_or(0.0) / rows;
    Some(Inserts { statement, table, each: pages / rows, per_s: rate("wal_fpi")?, part, read })
}

/// INSERTs whose rows go into the indexes at random, also where sessions do not wait for the WAL: it is written, archived and sent all the same.
fn of_inserts(case: &Case, time: &NodeTime) -> Option<Claim> {
    let large = time.statements.iter().filter(|statement| statement.share >= INSERT_SHARE_MIN);
    let found = large.filter_map(|statement| inserts(case, time, statement)).find(|found| {
        found.per_s >= INSERT_PER_S_MIN
            && found.part >= INSERT_PART_MIN
            && (INSERT_PAGES_MIN..=PAGES_MAX).contains(&found.each)
    })?;
    let Inserts { statement, table, each, per_s, part, read } = found;
    if is_frequent(case, &time.node) {
        return None;
    }
    let relation = table.lines.word("relation");
    let unread = table.lines.word("unscanned_indexes");
    let text = format!(
        "{}: a statement that takes {} of the session time inserts rows at random places of the indexes of {}: {} whole pages go into the WAL for each row, \
         {} of its WAL, and {} blocks are read, as with random keys (UUIDs, hashes)",
        time.node,
        units::percent(statement.share),
        plain(relation, STATEMENT_CHARS),
        units::short(each),
        units::percent(part),
        units::short(read)
    );
    let known = format!(
        "SELECT i.indexrelid::regclass AS index, a.attname, format_type(a.atttypid, a.atttypmod), s.correlation FROM pg_index i JOIN pg_attribute a ON \
            a.attrelid = \
         i.indrelid AND a.attnum = i.indkey[0] LEFT JOIN pg_stats s ON format('%I.%I', s.schemaname, s.tablename)::regclass = i.indrelid AND s.attname = \
         a.attname \
         WHERE i.indrelid = {}::regclass ORDER BY abs(s.correlation); -- near 0: random",
        literal(relation)
    );
    Some(
        Claim::new(Severity::Low, Level::CoOccurrence, text)
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("pages_per_row", each)
            .number("full_page_share", part)
            .number("pages_per_s", per_s)
            .because(format!("the statement: {}", in_a_line(statement)))
            .because(format!("its indexes: {}", plain(table.lines.word("index_columns"), INDEXES_CHARS)))
            .with(Some(unread).filter(|unread| !unread.is_empty()), |claim, unread| {
                claim.because(format!("no statement has read these since the counters began: {}", plain(unread, INDEXES_CHARS)))
            })
            .not("frequent checkpoints: fewer than three begin within five minutes each")
            .lacking("whether it lasts: the images become fewer the longer the last checkpoint is ago, if the pages are few enough")
            .remedy(
                "give new rows neighbouring keys (uuidv7() from PostgreSQL 18 on, a sequence), drop indexes on random values that no statement uses, and \
                 compress the pages",
                &[&known, "ALTER SYSTEM SET wal_compression = on; SELECT pg_reload_conf();"],
            ),
    )
}

/// WAL-12.
pub(super) fn scattered(case: &Case) -> Answer {
    let servers = case.things("server").filter(|server| !are_compared(case, server.place));
    let mut claims: Vec<Claim> = servers.filter_map(|server| of_scattered(case, server)).collect();
    if claims.is_empty() {
        // The WAL costs the same where sessions have little else to do.
        let mut at_work: Vec<&NodeTime> = node_time::all(case).iter().collect();
        at_work.retain(|time| !time.is_idle() && !are_compared(case, &time.node));
        claims.extend(at_work.into_iter().filter_map(|time| of_inserts(case, time)));
    }
    Answer::of(claims, || "full page images of each changed row, and waits for the WAL".to_string())
}
