//! `docs/engines.md` is made from the profiles, so that the two cannot drift: everything between its two marks.
//!
//! After a change of a profile: `PGFATHOM_WRITE_DOCS=1 cargo test -p pgfathom-engines --test all manual`.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use engines::Engine;
use engines::profile::{CommitCost, Discovery, Kind, LoadPath, Storage, table};

const BEGIN: &str = "<!-- engines: made by crates/engines/tests/manual.rs -->\n";
const END: &str = "<!-- end of engines -->\n";

/// PostgreSQL's own catalogs: every engine's queries use them, so they tell nothing about it.
const COMMON: [&str; 14] = [
    "pg_roles",
    "pg_class",
    "pg_namespace",
    "pg_attribute",
    "pg_collation",
    "pg_index",
    "pg_opclass",
    "pg_amproc",
    "pg_proc",
    "pg_database",
    "pg_foreign_server",
    "pg_partitioned_table",
    "pg_control_system",
    "pg_options_to_table",
];

/// What a query reads: the names behind `from` and `join`, without subqueries, its own names and PostgreSQL's own catalogs.
fn sources(sql: &str) -> BTreeSet<String> {
    let words: Vec<&str> = sql.split_whitespace().collect();
    let mut found = BTreeSet::new();
    for pair in words.windows(2) {
        if !matches!(pair[0].trim_start_matches('('), "from" | "join") {
            continue;
        }
        let name = pair[1].split(['(', ')', ',']).next().unwrap_or_default();
        let short = name.strip_prefix("pg_catalog.").unwrap_or(name);
        if short.len() > 1
            && !COMMON.contains(&short)
            && !short.starts_with('\'')
            && !matches!(short, "lateral" | "unnest" | "[show" | "table")
        {
            found.insert(short.to_owned());
        }
        if name == "[show" {
            found.insert("SHOW RANGES".to_owned());
        }
    }
    found
}

fn code(names: impl IntoIterator<Item = String>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn words_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Hash32 => "ranges of the 32-bit hash",
        Kind::Remainder => "PostgreSQL's partition hash",
        Kind::Segment => "jump hash, or FNV-1 by operator class",
        Kind::Code => "ranges of the 16-bit code",
        Kind::Keys => "ranges of encoded keys",
        Kind::Everywhere => "every node has the table",
        Kind::One => "one node has the table",
    }
}

/// The lines about how nodes and rows are found.
fn discovery(engine: Engine) -> Vec<String> {
    match engine.discovery {
        Discovery::Native => {
            let nodes = match engine.layout.is_spread() {
                true => "foreign servers that hold partitions, or that `pgfathom up` marked",
                false => "the connection; standbys from a cluster file",
            };
            vec![
                format!("Nodes: {nodes}"),
                "Rows: the partition tree and its bounds; pgfathom computes PostgreSQL's partition hash and compares it with the partition constraint"
                    .to_owned(),
            ]
        }
        Discovery::Copies(replications) => {
            let nodes = replications
                .iter()
                .map(|replication| format!("{} ({})", replication.name, code(sources(replication.nodes))));
            vec![
                format!("Nodes: {}", nodes.collect::<Vec<_>>().join(", ")),
                "Rows: every node has every row; partitions of a node as on PostgreSQL".to_owned(),
            ]
        }
        Discovery::Catalog(catalog) => {
            let kinds = Kind::NAMES.iter().filter(|(name, _)| catalog.table.contains(&format!("'{name}'")));
            let kinds: Vec<&str> = kinds.map(|(_, kind)| words_of(*kind)).collect();
            let mut rows = sources(catalog.table);
            rows.extend(sources(catalog.leaves));
            vec![
                format!("Nodes: {}", code(sources(catalog.nodes))),
                format!("Rows: {}", code(rows)),
                format!("The client routes by: {}", kinds.join("; ")),
                format!("Checked against: `{}`", catalog.oracle.query()),
            ]
        }
        Discovery::None(reason) => vec![format!("Nodes: from a cluster file; {reason}")],
    }
}

/// How far `verify` sees where rows are, and what it does where a server cannot hash rows.
fn verified(engine: Engine) -> String {
    const HASHES: &str = "a server without `hash_record_extended` (before PostgreSQL 14) cannot hash rows, so every row is read by binary COPY, as with `--deep`";
    let places = match engine.discovery {
        _ if matches!(engine.load, LoadPath::None(_)) => return "only what `load` has filled, so nothing here".to_owned(),
        Discovery::Catalog(catalog) => match catalog.part_hash {
            Some(hash) => format!(
                "rows through one node, then each copy of each part on its own node, where the hash of a key is `{hash}`"
            ),
            None => "rows through one node: which rows exist, not in which part they are, because no function of the engine is known that gives a node the \
                     hash of a key as the bounds of its parts have it"
                .to_owned(),
        },
        Discovery::Copies(_) => "each node separately, then the nodes with each other".to_owned(),
        Discovery::Native if engine.layout.is_spread() => {
            "each node separately, leaf by leaf; a row is in the leaf and on the node of its key".to_owned()
        }
        Discovery::Native => "leaf by leaf; a row is in the leaf of its key".to_owned(),
        Discovery::None(_) => "rows through one node".to_owned(),
    };
    format!("{places}; {HASHES}")
}

fn tried(engine: Engine) -> String {
    if engine.tried.is_live() {
        engine.tried.to_string().replacen("live", "**live**", 1)
    } else {
        engine.tried.to_string()
    }
}

fn section(engine: Engine) -> String {
    let mut text = format!("### {}\n\n`engine = \"{engine}\"`", engine.title);
    if !engine.aliases.is_empty() {
        write!(text, ", or {}", code(engine.aliases.iter().map(|name| (*name).to_owned()))).unwrap();
    }
    write!(text, ". Tried: {}.\n\n", tried(engine)).unwrap();
    let mut lines = discovery(engine);
    lines.push(format!("Layout: {}", engine.layout));
    if let Storage::Other(how) = engine.storage {
        lines.push(format!(
            "Storage: it {how}, so `plan` computes rows, values and times for it, and no bytes on disk"
        ));
    }
    lines.push(format!("Entry points: {}", engine.entry));
    lines.push(format!("Load: {}", engine.load));
    lines.push(format!("Verify: {}", verified(engine)));
    lines.push(format!("Nodes connect to each other by {}", engine.links));
    lines.push(format!("Commit: {}", commits(engine)));
    for expectation in engine.expectations {
        let verdict = match expectation.may_happen {
            Some(true) => "may happen",
            Some(false) => "must not happen",
            None => "measured",
        };
        lines.push(format!("{}: {verdict}: {}", expectation.case, expectation.why));
    }
    if let Discovery::Copies(replications) = engine.discovery {
        let rules = replications
            .iter()
            .filter_map(|it| Some(format!("Conflicts with {}: {}", it.name, it.conflicts?)));
        lines.extend(rules);
    }
    lines.extend(engine.limits.iter().map(|limit| (*limit).to_owned()));
    for line in lines {
        writeln!(text, "- {line}").unwrap();
    }
    text.push('\n');
    text
}

fn trips(cost: CommitCost) -> String {
    match cost.round_trips {
        1.0 => "1 round trip".to_owned(),
        count => format!("{count} round trips"),
    }
}

/// What a commit costs when the transaction wrote on no other node, on one and on two.
fn commits(engine: Engine) -> String {
    let protocol = engine.commit.protocol;
    let mut words: Vec<String> = Vec::new();
    for (others, what) in [(0, "one node"), (1, "one other node"), (2, "two other nodes")] {
        if others > 0 && !engine.layout.is_spread() {
            break;
        }
        let cost = protocol.cost((false, others), false, false);
        words.push(format!("{what}: {} ({})", trips(cost), cost.words));
    }
    let waiting = protocol.cost((true, 0), true, false);
    if waiting != protocol.cost((true, 0), false, false) {
        words.push(format!("synchronous standbys: {} ({})", trips(waiting), waiting.words));
    }
    if !protocol.is_atomic() {
        words.push("not atomic".to_owned());
    }
    words.join("; ")
}

fn made() -> String {
    let mut text =
        "| engine (`engine =`) | tried | entry points | load path |\n|---|---|---|---|\n".to_owned();
    for engine in Engine::ALL {
        writeln!(
            text,
            "| {} (`{engine}`) | {} | {} | {} |",
            engine.title,
            tried(engine),
            engine.entry,
            engine.load
        )
        .unwrap();
    }
    text.push_str(
        "\n## Promises\n\n\
         The promises of a profile decide what counts as a violation: **F** forbidden (a single occurrence is a finding), **A** allowed by design, **m** no promise found, so it is\n\
         measured, **-** not applicable. Some depend on whether all rows are on one shard, or on a setting, which `prove` reads; if the setting is unknown, the anomaly is\n\
         measured. A level without its own row promises what a weaker level promises, and allows what a stronger level allows; the rest is measured.\n\n",
    );
    text.push_str(&table(Engine::ALL.iter().map(|engine| &**engine)));
    text.push_str("\n## Each engine\n\n");
    for engine in Engine::ALL {
        text.push_str(&section(engine));
    }
    text
}

#[test]
fn the_manual_is_made_from_the_profiles() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/engines.md");
    let text = fs::read_to_string(&path).expect("the manual is there");
    let (before, rest) = text.split_once(BEGIN).expect("the beginning is marked");
    let (found, after) = rest.split_once(END).expect("the end is marked");
    let made = made();
    if std::env::var_os("PGFATHOM_WRITE_DOCS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{made}{END}{after}")).expect("writes");
        return;
    }
    assert!(
        found == made,
        "docs/engines.md is old: see the head of crates/engines/tests/manual.rs for how to make it again"
    );
}

/// Each engine's own queries are in its section, so that whoever lacks a privilege sees on what.
#[test]
fn sources_are_found_in_queries() {
    let sql = "select 1 from pg_catalog.pg_dist_shard s left join pg_catalog.pg_class c on true join lateral unnest(1) on true where exists (select 1 from mtm.nodes() n)";
    assert_eq!(sources(sql).into_iter().collect::<Vec<_>>(), ["mtm.nodes", "pg_dist_shard"]);
}
