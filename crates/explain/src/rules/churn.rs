//! TXN-15: tables that are made and dropped all the time, as temporary tables in a function are.

use super::costly::{busy, in_a_line};
use super::overhead::defines;
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Verb};
use record::watched::FUNCTION_TEXT;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-15",
    title: "tables are made and dropped all the time",
    needs: &[Field("server", "relations_made"), Field("server", "sessions_active")],
    limits: "50 entries of pg_class a second; high if a statement with half of the session time runs as often or less, or if the commands that make tables, in \
        half of the transactions, and what is no statement's time are half of it (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/sql-createtable.html#SQL-CREATETABLE-TEMPORARY"],
}];

/// New entries of pg_class a second.
const MADE_PER_S_MIN: f64 = 50.0;
/// The share of the session time of the statement that makes them.
const SHARE_MIN: f64 = 0.2;
/// From here on it is high.
const SHARE_HIGH: f64 = 0.5;

/// The statement with the most time that runs no more often than relations are made: each execution makes one or more.
fn maker<'a>(case: &Case, time: &'a NodeTime, made_per_s: f64) -> Option<&'a StatementTime> {
    // A query of tables makes none, unless a function of it does.
    let may_make = |one: &&StatementTime| {
        let is_query = statement::parse(&one.text)
            .is_ok_and(|parsed| parsed.verb == Verb::Select && !parsed.tables.is_empty());
        let names = statement::names(&one.text);
        !is_query
            || case.facts(FUNCTION_TEXT).any(|fact| fact.node == time.node && names.contains(&fact.name))
    };
    let mut large = time.statements.iter().filter(|statement| statement.share >= SHARE_MIN).filter(may_make);
    large
        .find(|statement| statement.calls_per_s.is_some_and(|calls| calls > 0.0 && calls <= made_per_s * 1.1))
}

/// Commands that make or drop tables in every second transaction at least.
struct Commands {
    /// Of the session time, theirs.
    share: f64,
    /// Of the session time, that of no statement: tables that are dropped at COMMIT, and what all sessions had cached and read again.
    outside: f64,
}

/// The share of the session time of the commands, from which on they matter.
const COMMANDS_SHARE_MIN: f64 = 0.05;
/// Such commands for each transaction.
const PER_COMMIT_MIN: f64 = 0.5;

fn commands(time: &NodeTime, commits_per_s: f64) -> Option<Commands> {
    let is_its = |one: &&StatementTime| defines(one);
    let share = time.statements.iter().filter(is_its).map(|one| one.share).sum();
    let calls: f64 = time.statements.iter().filter(is_its).filter_map(|one| one.calls_per_s).sum();
    let all: f64 = time.statements.iter().map(|one| one.share).sum();
    (share >= COMMANDS_SHARE_MIN && calls >= commits_per_s * PER_COMMIT_MIN)
        .then_some(Commands { share, outside: (1.0 - all).max(0.0) })
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some(server) = case.one("server", &time.node) else { continue };
        let made = server.rate("relations_made").unwrap_or(0.0);
        if made < MADE_PER_S_MIN {
            continue;
        }
        let maker = maker(case, time, made);
        let commands = commands(time, server.rate("xact_commit").unwrap_or(0.0)).filter(|_| maker.is_none());
        let by = match (maker, &commands) {
            (Some(one), _) => {
                format!(
                    "; a statement that takes {} of the session time makes them",
                    units::percent(one.share)
                )
            }
            (None, Some(commands)) => format!(
                "; the commands take {} of the session time, and {} is no statement's: dropping at COMMIT, and reading again what was cached of the catalogs",
                units::percent(commands.share),
                units::percent(commands.outside)
            ),
            (None, None) => String::new(),
        };
        let share = maker.map(|one| one.share).or(commands.map(|commands| commands.share + commands.outside));
        claims.push(
            Claim::new(
                match share {
                    Some(share) if share >= SHARE_HIGH => Severity::High,
                    Some(_) => Severity::Medium,
                    None => Severity::Low,
                },
                Level::CoOccurrence,
                format!(
                    "{}: {} tables, indexes and TOAST tables a second are created and dropped, as temporary tables are: each writes its rows into the system \
                     catalogs, and leaves them dead there{by}",
                    time.node,
                    units::short(made)
                ),
            )
            .on_node(&time.node)
            .during([server.ticks.window()])
            .number("relations_made_per_s", made)
            .with(share, |claim, share| claim.number("share", share))
            .with(maker, |claim, statement| claim.because(format!("the statement: {}", in_a_line(statement))))
            .because("rows inserted into pg_class are counted by the server")
            .with(server.rate("tup_inserted"), |claim, rows| {
                claim.because(format!("{} rows a second are inserted in all", units::short(rows)))
            })
            .lacking("the commands: those inside of functions are in no statistic")
            .remedy(
                "make the table once for each session (CREATE TEMP TABLE IF NOT EXISTS ... ON COMMIT DELETE ROWS), or do without: an array, a WITH \
                 query, an unlogged table \
                 with a column for the session",
                &[
                    "SELECT relname, n_tup_ins, n_tup_del, n_dead_tup FROM pg_stat_sys_tables WHERE relname IN ('pg_class', 'pg_attribute', 'pg_type', \
                     'pg_depend') ORDER \
                        BY n_dead_tup DESC;",
                    "SELECT oid::regprocedure FROM pg_proc WHERE prosrc ~* 'create\\s+(local\\s+|global\\s+)?temp' AND pronamespace::regnamespace::text \
                     !~ '^pg_';",
                ],
            ),
        );
    }
    Answer::of(claims, || "new entries of pg_class".to_string())
}
