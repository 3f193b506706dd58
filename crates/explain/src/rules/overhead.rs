//! TXN-06 to TXN-08, VAC-11, WAL-07: work that transactions do beside their own: inserts that fail and are rolled back, tables made for one
//! transaction, whole pages in the WAL because of frequent checkpoints.

mod cancelled;
mod due;
mod empty;
mod inserting;
mod pages;
mod scattered;

use super::costly::{busy, in_a_line, plain, severity};
use super::vacuum::is_delay;
use super::vacuum::pacing::own_costs;
use crate::case::{Case, Thing};
use crate::rule::Need::{Facts, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use crate::waits::Who;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::watched::{EVENT_TRIGGER, PECULIAR};
use std::collections::BTreeSet;

pub(super) use due::{Due, parameter};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "TXN-06",
        title: "inserts fail and are rolled back",
        needs: &[
            Field("table", "rows_inserted"),
            Field("table", "live_rows"),
            Field("server", "sessions_active"),
        ],
        limits: "100 inserts a second into a table of which 80 % neither stay nor are deleted, with 20 % of the session time in it, and few \
            transactions rolled back (ours)",
        judge: in_vain,
        links: &["https://www.postgresql.org/docs/current/sql-insert.html#SQL-ON-CONFLICT"],
    },
    Rule {
        id: "TXN-07",
        title: "tables are created or changed all the time",
        needs: &[Field("statement", "calls"), Field("server", "xact_commit")],
        limits: "10 commands a second that create, drop, truncate or change tables, half of the time that statements take (ours)",
        judge: definitions,
        links: &["https://www.postgresql.org/docs/current/sql-createtable.html"],
    },
    Rule {
        id: "TXN-08",
        title: "statements are cancelled by a timeout",
        needs: &[Field("server", "xact_rollback"), Field("server", "sessions_active")],
        limits: "the server's log reports a statement timeout, and one transaction a second and 10 % of all are rolled back, or what is cancelled, twice at \
            least, takes 20 % of the session time (ours)",
        judge: cancelled::judge,
        links: &["https://www.postgresql.org/docs/current/runtime-config-client.html#GUC-STATEMENT-TIMEOUT"],
    },
    Rule {
        id: "VAC-11",
        title: "statements read through rows that are dead",
        needs: &[
            Field("table", "dead_rows"),
            Field("table", "live_rows"),
            Field("server", "sessions_active"),
        ],
        limits: "20 % of the session time in a table with 10,000 dead rows or more, twice as many as live ones, that no vacuum reached; a note if \
         statements neither scan it nor touch more than 5 blocks for a row and each of its indexes (ours)",
        judge: dead,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY"],
    },
    Rule {
        id: "VAC-14",
        title: "a table that is scanned consists of empty pages",
        needs: &[
            Field("table", "seq_rows"),
            Field("table", "blocks_hit"),
            Field("table", "all_visible_share"),
            Field("server", "sessions_active"),
        ],
        limits: "20 % of the session time in a table that is scanned once in 2 s, 1,000 blocks each time, with less than one row for each block, while a \
            vacuum has found half of the pages free of dead rows (ours)",
        judge: empty::mostly_empty,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY"],
    },
    Rule {
        id: "WAL-07",
        title: "checkpoints are so frequent that the WAL consists of whole pages",
        needs: &[Field("server", "wal_fpi"), Field("server", "wal_bytes"), Facts("setting")],
        limits: "checkpoint_timeout below 5 min, or 3 checkpoints less than 5 min apart that the volume of the WAL does not force (WAL-03); 1 MB of WAL a \
            second, and 60 % of it in full page images (ours)",
        judge: pages::whole_pages,
        links: &["https://www.postgresql.org/docs/current/wal-configuration.html"],
    },
    Rule {
        id: "WAL-12",
        title: "changes go to pages all over, and the WAL consists of whole pages",
        needs: &[
            Field("server", "wal_fpi"),
            Field("server", "wal_bytes"),
            Field("server", "sessions_active"),
        ],
        limits: "half of the session time in waits for the WAL; 0.5 MB of WAL a second, 80 % of it in full page images, half an image to 20 for each changed \
            row, and no three checkpoints less than 5 min apart; or, low, an INSERT with 10 % of the session time that writes 200 images a second, one for \
            four rows, 60 % of its WAL (ours)",
        judge: scattered::scattered,
        links: &["https://www.postgresql.org/docs/current/runtime-config-wal.html#GUC-FULL-PAGE-WRITES"],
    },
];

/// Inserts a second into a table.
const INSERTS_PER_S_MIN: f64 = 100.0;
/// The share of them that neither stays nor is deleted.
const LOST_SHARE_MIN: f64 = 0.8;
/// The share of the session time in the table.
const TABLE_SHARE_MIN: f64 = 0.2;
/// Transactions rolled back, of all: from here on TXN-05 explains where the rows went.
const ROLLED_BACK_MAX: f64 = 0.2;
/// Dead rows of a table.
const DEAD_MIN: f64 = 10_000.0;
/// The share of pages that a vacuum has found free of dead rows, from which on counters of them are wrong.
const VISIBLE_SHARE_MAX: f64 = 0.9;
/// Dead rows for each live one.
const DEAD_PER_LIVE_MIN: f64 = 2.0;
/// Commands a second.
const DEFINITIONS_PER_S_MIN: f64 = 10.0;
/// Their share of the time that statements take.
const DEFINITIONS_SHARE_MIN: f64 = 0.5;
/// First words of commands that write the catalogs.
const DEFINES: [&str; 4] = ["create", "drop", "truncate", "alter"];
/// The default of checkpoint_timeout.
const CHECKPOINT_TIMEOUT_S: f64 = 300.0;

fn share_in(time: &NodeTime, relation: &str) -> f64 {
    let by = time.by.iter().find(|by| by.name == "relation");
    by.and_then(|by| by.shares.iter().find(|(name, _)| name == relation)).map_or(0.0, |(_, share)| *share)
}

/// Rows inserted a second, and the share of them that is neither there nor deleted.
fn lost(table: &Thing<'_>) -> Option<(f64, f64)> {
    let lines = table.lines;
    let (inserted, deleted) = (lines.sum("rows_inserted")?, lines.sum("rows_deleted")?);
    let per_s = lines.rate("rows_inserted")?;
    // No more than the table has can have stayed.
    let stayed = lines.last("live_rows")?;
    // A row that was rolled back is dead until a vacuum comes. TRUNCATE leaves none, and neither does a new table of the same name.
    let seen = |field: &str| lines.max(field).is_some_and(|rows| rows > 0.0);
    if !seen("dead_rows") && !seen("autovacuums") {
        return None;
    }
    let gone = (inserted - deleted - stayed).max(lines.series("dead_rows").map_or(0.0, |dead| {
        // What became dead and was neither updated nor deleted was inserted in vain, however many rows there were before.
        let grown = dead.last().unwrap_or(0.0) - dead.first().unwrap_or(0.0);
        (grown - deleted - lines.sum("rows_updated").unwrap_or(0.0)).min(inserted)
    }));
    (inserted > 0.0 && per_s >= INSERTS_PER_S_MIN).then_some((per_s, gone / inserted))
}

/// Of the inserts that are lost, those with whose transactions all is lost.
const WITH_ALL_MIN: f64 = 0.5;

fn in_vain(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some(server) = case.one("server", &time.node) else { continue };
        let rate = |field: &str| server.rate(field).unwrap_or(0.0);
        let all = (rate("xact_commit") + rate("xact_rollback")).max(f64::MIN_POSITIVE);
        if rate("xact_rollback") / all > ROLLED_BACK_MAX {
            continue;
        }
        for table in case.at("table", &time.node) {
            let relation = table.lines.word("relation");
            let Some((per_s, gone)) = lost(&table) else { continue };
            let (of_texts, function) = inserting::share_of(case, time, relation);
            let share = share_in(time, relation).max(of_texts);
            // A transaction that is rolled back for another reason takes its rows along.
            let calls = inserting::calls_per_s(time, relation);
            let is_rolled_back = calls > 0.0 && rate("xact_rollback") >= calls * gone * WITH_ALL_MIN;
            if share < TABLE_SHARE_MIN || gone < LOST_SHARE_MIN || is_rolled_back {
                continue;
            }
            claims.push(in_vain_claim(time, &table, share, (per_s, gone), function));
        }
    }
    Answer::of(claims, || "rows inserted, against rows that are there or were deleted".to_string())
}

fn in_vain_claim(
    time: &NodeTime,
    table: &Thing<'_>,
    share: f64,
    (per_s, gone): (f64, f64),
    function: Option<&str>,
) -> Claim {
    let by = function.map_or(String::new(), |name| format!(", by function {}()", plain(name, 60)));
    let relation = table.lines.word("relation");
    let live = table.lines.last("live_rows").unwrap_or(0.0);
    let dead = table.lines.last("dead_rows").unwrap_or(0.0);
    Claim::new(
        severity(share),
        Level::DiscriminatingCounter,
        format!(
            "{}: {} rows are inserted into {relation} a second{by}, and {} of them fail and are rolled back, while their transactions commit",
            time.node,
            units::short(per_s),
            units::percent(gone.min(1.0))
        ),
    )
    .on_node(&time.node)
    .during([table.lines.ticks.window()])
    .number("share", share)
    .number("inserts_per_s", per_s)
    .number("failed_share", gone)
    .because(format!(
        "{relation} has {} rows, and its inserted rows were neither kept nor deleted; {} dead rows",
        units::short(live),
        units::short(dead)
    ))
    .because(
        "an error in a savepoint or in a block with EXCEPTION undoes the row but not its cost: a subtransaction with its own transaction id, the row, \
            WAL, and a dead row for vacuum",
    )
    .not("failing transactions: few of them are rolled back")
    .remedy(
        "use INSERT ... ON CONFLICT instead of an insert whose duplicate key is caught, or update first and insert if no row was found; this lists \
            functions with such blocks",
        &[
            "SELECT oid::regprocedure FROM pg_proc WHERE prosrc ~* 'exception\\s+when' AND pronamespace <> 'pg_catalog'::regnamespace;",
        ],
    )
}

/// Whether a statement creates, drops or changes a table.
pub(super) fn defines(statement: &StatementTime) -> bool {
    let mut words = statement.text.split_whitespace();
    let first = words.next().unwrap_or_default().to_ascii_lowercase();
    let is_select_into = first == "select" && statement.text.to_ascii_lowercase().contains(" into temp");
    DEFINES.contains(&first.as_str()) || is_select_into
}

/// The event triggers of a node, as a phrase.
fn event_triggers(case: &Case, node: &str) -> Option<String> {
    let all = case.facts(EVENT_TRIGGER).filter(|fact| fact.node == node);
    let words: Vec<String> = all.map(|fact| format!("{} ({})", fact.name, fact.value)).collect();
    (!words.is_empty()).then(|| format!("event trigger {}", plain(&words.join(", "), 120)))
}

fn definitions(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some(server) = case.one("server", &time.node) else { continue };
        let per_s: f64 =
            time.statements.iter().filter(|one| defines(one)).filter_map(|one| one.calls_per_s).sum();
        let counted: f64 = time.statements.iter().map(|one| one.share).sum();
        let defining: f64 = time.statements.iter().filter(|one| defines(one)).map(|one| one.share).sum();
        let share = defining / counted.max(f64::MIN_POSITIVE);
        let worst = time
            .statements
            .iter()
            .filter(|one| defines(one))
            .max_by(|left, right| left.share.total_cmp(&right.share));
        let Some(worst) = worst.filter(|_| per_s >= DEFINITIONS_PER_S_MIN && share >= DEFINITIONS_SHARE_MIN)
        else {
            continue;
        };
        let commits = server.rate("xact_commit").unwrap_or(0.0).max(f64::MIN_POSITIVE);
        let triggers = event_triggers(case, &time.node);
        claims.push(
            Claim::new(
                severity(share),
                Level::CoOccurrence,
                format!(
                    "{}: tables are created or changed {} times a second, {} for each transaction; that is {} of what statements take{}",
                    time.node,
                    units::short(per_s),
                    units::short(per_s / commits),
                    units::percent(share),
                    triggers.as_ref().map_or(String::new(), |triggers| format!(", with {triggers}, which runs each time"))
                ),
            )
            .on_node(&time.node)
            .during([server.ticks.window()])
            .number("share", share)
            .number("definitions_per_s", per_s)
            .because(format!("the statement: {}", in_a_line(worst)))
            .because(
                "each of them writes rows of pg_class, pg_attribute, pg_type and pg_index, and makes all sessions renew what they cached; dropping a table \
                    at COMMIT is not counted with any statement",
            )
            .with(triggers.as_ref(), |claim, _| claim.because("the time of an event trigger is part of the command's"))
            .lacking("the time of the drops, and how far the catalogs have grown: the command shows their size")
            .remedy(
                "create a temporary table once per session (ON COMMIT DELETE ROWS), or use arrays, VALUES or a CTE instead of a table",
                &[
                    "SELECT oid::regclass AS catalog, pg_size_pretty(pg_total_relation_size(oid)) AS size FROM pg_class \
                        WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r' ORDER BY pg_total_relation_size(oid) DESC LIMIT 5;",
                ],
            ),
        );
    }
    Answer::of(claims, || "commands that create or change tables".to_string())
}

/// Blocks that a row and each index entry of it take to find or to write.
const BLOCKS_PER_ENTRY: f64 = 5.0;

/// Whether statements pass dead rows: they scan the table, or touch more blocks for each row than a row and its index entries need.
fn is_in_the_way(table: &Thing<'_>) -> bool {
    let sum = |fields: &[&str]| fields.iter().filter_map(|field| table.lines.sum(field)).sum::<f64>();
    let Some(hit) = table.lines.sum("blocks_hit") else { return true };
    let rows = sum(&["rows_inserted", "rows_updated", "rows_deleted", "index_rows"]);
    let each = (hit + sum(&["blocks_read"])) / rows.max(1.0);
    let needed = BLOCKS_PER_ENTRY * (1.0 + table.lines.last("indexes").unwrap_or(0.0));
    sum(&["seq_rows"]) > rows || each > needed
}

/// Rows that died while it was recorded: the share of visible pages is that of the last vacuum.
fn dying(table: &Thing<'_>) -> f64 {
    ["rows_updated", "rows_deleted"].iter().filter_map(|field| table.lines.sum(field)).sum()
}

/// The share of the readings in which all workers are busy.
const WORKERS_BUSY_MIN: f64 = 0.8;

/// Where all autovacuum workers are during the whole recording, if that is another table.
fn vacuums_elsewhere(case: &Case, node: &str, relation: &str) -> Option<String> {
    let server = case.one("server", node)?;
    let most = server.max("autovacuum_workers_max").filter(|most| *most >= 1.0)?;
    let series = server.series("autovacuum_workers")?;
    let points = series.points();
    let busy = points.iter().filter(|point| point.max >= most).count();
    let vacuums = case.at("progress", node).filter(|progress| progress.lines.word("command") == "vacuum");
    let others: BTreeSet<&str> = vacuums.map(|progress| progress.lines.word("relation")).collect();
    if (busy as f64) < points.len() as f64 * WORKERS_BUSY_MIN
        || others.is_empty()
        || others.contains(relation)
    {
        return None;
    }
    let workers = match most {
        1.0 => "the only autovacuum worker is".to_string(),
        most => format!("all {most:.0} autovacuum workers are"),
    };
    Some(format!("{workers} busy with {}", others.into_iter().collect::<Vec<_>>().join(", ")))
}

/// Of the samples of autovacuum workers, those that sleep.
const PACED_SHARE_MIN: f64 = 0.5;

/// That a vacuum of the table is at work and mostly sleeps, if so.
fn paced(case: &Case, table: &Thing<'_>) -> Option<String> {
    let (node, relation) = (table.place, table.lines.word("relation"));
    let mut vacuums = case.at("progress", node).filter(|progress| progress.lines.word("command") == "vacuum");
    let is_at_work = vacuums.any(|progress| progress.lines.word("relation") == relation);
    let sleeps = case.waits(node)?.share(Who::Vacuum, is_delay)?;
    let options = own_costs(table);
    let whose =
        if options.is_empty() { String::new() } else { format!(", by settings of the table ({options})") };
    (is_at_work && sleeps >= PACED_SHARE_MIN).then(|| {
        format!(
            "a vacuum is at work on it, and sleeps {} of its time for the cost limit{whose}",
            units::percent(sleeps)
        )
    })
}

fn dead(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for table in case.at("table", &time.node) {
            let relation = table.lines.word("relation");
            let share = share_in(time, relation);
            let (Some(dead), Some(live)) = (table.lines.last("dead_rows"), table.lines.last("live_rows"))
            else {
                continue;
            };
            let is_vacuumed = table.lines.sum("autovacuums").unwrap_or(0.0)
                + table.lines.sum("vacuums").unwrap_or(0.0)
                > 0.0;
            // Rows of failed inserts are the cause, not what is read.
            let is_insert = lost(&table).is_some_and(|(_, gone)| gone >= LOST_SHARE_MIN);
            // A page with a dead row is not visible to all: counters of deletes that arrive after the vacuum's count rows that are gone.
            let is_gone =
                table.lines.last("all_visible_share").is_some_and(|share| share >= VISIBLE_SHARE_MAX)
                    && dying(&table) * DEAD_PER_LIVE_MIN < dead;
            if is_vacuumed
                || is_gone
                || is_insert
                || share < TABLE_SHARE_MIN
                || dead < DEAD_MIN
                || dead < live * DEAD_PER_LIVE_MIN
            {
                continue;
            }
            claims.push(of_dead(case, time, &table, share, (dead, live)));
        }
    }
    Answer::of(claims, || "dead rows of the busy tables".to_string())
}

/// The claim about the dead rows of a table: why no vacuum has come.
/// An interval of autovacuum that is long: the default is a minute.
const NAPTIME_LONG_S: f64 = 300.0;

/// Why no vacuum has removed dead rows, as the end of a claim.
fn not_removed(elsewhere: Option<&str>, due: Option<&Due>, naptime: &str) -> String {
    match (elsewhere, due) {
        (Some(elsewhere), _) => format!("; {elsewhere}"),
        (None, Some(due)) => format!(
            "; autovacuum comes only at {} of them, by {} of {}",
            units::count(due.rows),
            due.by,
            if due.is_tables { "the table" } else { "the server" }
        ),
        (None, None) if setting_seconds(naptime).is_some_and(|seconds| seconds >= NAPTIME_LONG_S) => {
            format!("; autovacuum looks for such tables only every {naptime} (autovacuum_naptime)")
        }
        (None, None) => String::new(),
    }
}

fn of_dead(case: &Case, time: &NodeTime, table: &Thing<'_>, share: f64, (dead, live): (f64, f64)) -> Claim {
    let relation = table.lines.word("relation");
    let naptime = case.setting(&time.node, "autovacuum_naptime").unwrap_or("unknown");
    let paced = paced(case, table);
    let elsewhere = paced.clone().or_else(|| vacuums_elsewhere(case, &time.node, relation));
    let due =
        Due::of_vacuum(case, table, &time.node, live).filter(|due| dead < due.rows && elsewhere.is_none());
    let is_kept = keeps_entries(case, &time.node, relation);
    let why = match is_kept {
        true => "; its vacuums leave the index entries, and with them the rows' places: vacuum_index_cleanup is off for this table".to_string(),
        false => not_removed(elsewhere.as_deref(), due.as_ref(), naptime),
    };
    let reset = format!(
        "ALTER TABLE {relation} RESET (autovacuum_vacuum_threshold, autovacuum_vacuum_scale_factor);"
    );
    let own = format!("ALTER TABLE {relation} SET (autovacuum_vacuum_scale_factor = 0.02);");
    let text = format!(
        "{}: {} of the session time is in {relation}, which has {} dead rows for {} live ones: no vacuum has removed them{why}",
        time.node,
        units::percent(share),
        units::count(dead),
        units::count(live)
    );
    let scans = "scans and index entries lead to dead rows, too: a statement that wants the first of an index passes all that were deleted \
        before it";
    let transactions =
        "whether old transactions still need them: then VACUUM cannot remove them, and VAC-05 names who";
    let remedy = match elsewhere {
        _ if is_kept => {
            "take the option back, and vacuum the table and its indexes once: no other vacuum removes these entries"
        }
        Some(_) if paced.is_some() => {
            "let this table's vacuum pause less: a higher autovacuum_vacuum_cost_limit, a lower autovacuum_vacuum_cost_delay; take settings of the table back"
        }
        Some(_) => {
            "vacuum it now; give autovacuum more workers, or let the one at work pause less (autovacuum_vacuum_cost_delay, \
             _cost_limit)"
        }
        None => "vacuum it now, and let autovacuum come often enough for its changes",
    };
    let faster = format!(
        "ALTER TABLE {relation} SET (autovacuum_vacuum_cost_limit = 2000, autovacuum_vacuum_cost_delay = 1);"
    );
    let now = format!("VACUUM (VERBOSE, ANALYZE) {relation};");
    let (taken, whole) = (
        format!("ALTER TABLE {relation} RESET (vacuum_index_cleanup);"),
        format!("VACUUM (VERBOSE, ANALYZE, INDEX_CLEANUP ON) {relation};"),
    );
    let commands = [
        if paced.is_some() { &faster } else { &now },
        "ALTER SYSTEM SET autovacuum_naptime = '15s'; SELECT pg_reload_conf();",
        if due.is_some_and(|due| due.is_tables) { &reset } else { &own },
    ];
    let cleanup = [taken.as_str(), whole.as_str()];
    Claim::new(if is_in_the_way(table) { severity(share) } else { Severity::Note }, Level::CoOccurrence, text)
        .on_node(&time.node)
        .during([table.lines.ticks.window()])
        .number("share", share)
        .number("dead_rows", dead)
        .number("live_rows", live)
        .because(scans)
        .because(format!("autovacuum looks at each database every {naptime} (autovacuum_naptime)"))
        .lacking(transactions)
        .remedy(remedy, if is_kept { &cleanup } else { &commands[..] })
}

/// Whether vacuums of a table leave the entries of its indexes.
fn keeps_entries(case: &Case, node: &str, relation: &str) -> bool {
    const OPTION: &str = "vacuum_index_cleanup=";
    let mut facts = case.facts(PECULIAR).filter(|fact| fact.node == node && fact.name == relation);
    facts.any(|fact| {
        let value = fact.value.split_once(OPTION).map_or("", |(_, value)| value);
        ["off", "false", "no", "0"].iter().any(|off| value.starts_with(off))
    })
}

/// Seconds of a setting as the server writes it: `30s`, `5min`.
pub(super) fn setting_seconds(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[digits..].trim() {
        "s" | "" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    text[..digits].parse::<f64>().ok().map(|number| number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_define_tables_are_known_by_their_first_word() {
        let of = |text: &str| defines(&StatementTime { text: text.to_string(), ..StatementTime::default() });
        assert!(of("CREATE TEMP TABLE a (b int)"));
        assert!(of("select 1 into temp t"));
        assert!(!of("SELECT created FROM t"));
        assert_eq!(
            (setting_seconds("30s"), setting_seconds("5min"), setting_seconds("x")),
            (Some(30.0), Some(300.0), None)
        );
    }
}
