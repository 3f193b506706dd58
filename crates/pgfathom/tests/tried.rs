//! What was tried live, and the table of the README that shows it: made from `docs/tried.tsv`, which the suites write.
//!
//! CONTRIBUTING.md says how both are made again. Without `PGFATHOM_WRITE_DOCS` nothing is written, and the README must agree with the file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use engines::Engine;
use engines::profile::Tried;

/// The columns: what a user types.
const VERBS: [&str; 8] = ["load", "verify", "run", "matrix", "prove", "watch", "explain", "report"];
/// Rows by key, and their titles. A kind of cluster that is no engine of its own names that of its profile.
const ROWS: [(&str, &str, &str); 13] = [
    ("postgres", "PostgreSQL", "postgres"),
    ("replicated", "PostgreSQL with synchronous standbys", "postgres"),
    ("fdw-sharded", "sharded by postgres_fdw", "fdw-sharded"),
    ("multimaster", "multimaster, logical replication both ways", "multimaster"),
    ("citus", "Citus", "citus"),
    ("mtm", "Postgres Pro Multimaster", "mtm"),
    ("pgactive", "pgactive", "multimaster"),
    ("pglogical", "pglogical (Spock: stand-in tables only)", "multimaster"),
    ("shardman", "Shardman", "shardman"),
    ("greenplum", "Greenplum, Arenadata DB", "greenplum"),
    ("cockroachdb", "CockroachDB", "cockroachdb"),
    ("yugabytedb", "YugabyteDB", "yugabytedb"),
    ("ydb", "YDB", "ydb"),
];
const BEGIN: &str = "<!-- tried: made by crates/pgfathom/tests/tried.rs -->\n";
const END: &str = "<!-- end of tried -->\n";
const HEAD: &str = "# What the suites have tried live: row of the README's table, release, verb, what it did there, date. Written by crates/pgfathom/tests/tried.rs.\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn is_writing() -> bool {
    std::env::var_os("PGFATHOM_WRITE_DOCS").is_some()
}

/// By row, release and verb: what it did, and the date of the last success.
type Table = BTreeMap<(String, String, String), (String, String)>;

fn parse(text: &str) -> Table {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [row, release, verb, what, date] = fields[..] else { panic!("docs/tried.tsv: {line:?}") };
            assert!(ROWS.iter().any(|(key, ..)| *key == row), "docs/tried.tsv: no row {row:?}");
            assert!(VERBS.contains(&verb), "docs/tried.tsv: no verb {verb:?}");
            ((row.to_owned(), release.to_owned(), verb.to_owned()), (what.to_owned(), date.to_owned()))
        })
        .collect()
}

fn written(table: &Table) -> String {
    let mut text = HEAD.to_owned();
    for ((row, release, verb), (what, date)) in table {
        writeln!(text, "{row}\t{release}\t{verb}\t{what}\t{date}").expect("a string takes everything");
    }
    text
}

/// Writes down that a verb did its work on a live cluster of this row: `what` is `yes`, or the part that is possible there.
pub(crate) fn note(row: &str, release: &str, verb: &str, what: &str) {
    /// Suites of one program run at once.
    static WRITING: Mutex<()> = Mutex::new(());
    if !is_writing() {
        return;
    }
    let _alone = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = root().join("docs/tried.tsv");
    let mut table = parse(&std::fs::read_to_string(&path).unwrap_or_default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock past 1970");
    let date = record::clock::rfc3339(now.as_micros() as u64)[..10].to_owned();
    // Of each row only the releases of the same number, as 15 and 18: a newer one replaces the older one.
    let major = |release: &str| release.split('.').next().unwrap_or_default().to_owned();
    table.retain(|(other, theirs, done), _| {
        other != row || done != verb || major(theirs) != major(release) || theirs == release
    });
    table.insert((row.to_owned(), release.to_owned(), verb.to_owned()), (what.to_owned(), date));
    std::fs::write(&path, written(&table)).expect("docs/tried.tsv is writable");
}

/// A verb counts where it worked on every release of the row.
fn made(table: &Table) -> String {
    let mut text = format!("| engine | {} | live on |\n|---|{}---|\n", VERBS.join(" | "), "---|".repeat(8));
    for (key, title, engine) in ROWS {
        let of_row: Vec<_> = table.iter().filter(|((row, ..), _)| row == key).collect();
        let mut releases: Vec<&str> = of_row.iter().map(|((_, release, _), _)| release.as_str()).collect();
        releases.dedup();
        let cell = |verb: &str| {
            let done = of_row.iter().filter(|((.., what), _)| what == verb);
            match done.clone().count() == releases.len() {
                true => done.map(|(_, (what, _))| what.as_str()).max().unwrap_or("-"),
                false => "-",
            }
        };
        let cells: Vec<&str> = VERBS.iter().map(|verb| cell(verb)).collect();
        let oldest = of_row.iter().map(|(_, (_, date))| date.as_str()).min();
        let live = match oldest {
            Some(date) => format!("{}, {date}", releases.join(" and ")),
            None => never(engine).to_owned(),
        };
        writeln!(text, "| {title} | {} | {live} |", cells.join(" | ")).expect("a string takes everything");
    }
    text
}

/// How far the profile was tried without a server.
fn never(engine: &str) -> &'static str {
    let engine = Engine::parse(engine).expect("an engine");
    match engine.tried {
        Tried::Documentation => "never",
        Tried::RecordedCatalogs | Tried::Live(_) => "never: recorded catalogs",
    }
}

#[test]
fn the_readme_shows_what_was_tried() {
    let table = parse(&std::fs::read_to_string(root().join("docs/tried.tsv")).expect("docs/tried.tsv"));
    let path = root().join("README.md");
    let text = std::fs::read_to_string(&path).expect("README.md");
    let (before, rest) = text.split_once(BEGIN).expect("the beginning is marked");
    let (found, after) = rest.split_once(END).expect("the end is marked");
    let made = made(&table);
    if is_writing() {
        std::fs::write(&path, format!("{before}{BEGIN}{made}{END}{after}")).expect("README.md is writable");
        return;
    }
    assert_eq!(found, made, "the head of crates/pgfathom/tests/tried.rs says how the table is made again");
}

#[test]
fn a_verb_counts_where_every_release_did_it() {
    let text = "postgres\t15.1\tload\tyes\t2026-01-02\npostgres\t15.1\trun\tyes\t2026-01-02\npostgres\t18.0\tload\tyes\t2026-01-03\n";
    let table = parse(text);
    assert_eq!(written(&table), format!("{HEAD}{text}"));
    let made = made(&table);
    let line = made.lines().find(|line| line.starts_with("| PostgreSQL |")).expect("the row");
    assert_eq!(line, "| PostgreSQL | yes | - | - | - | - | - | - | - | 15.1 and 18.0, 2026-01-02 |");
    assert!(made.contains("| YDB | - | - | - | - | - | - | - | - | never |"), "{made}");
}
