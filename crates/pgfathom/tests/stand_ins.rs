//! Cluster files that name an engine which their servers are not, or which is nowhere here: what a verb prints then. Plain PostgreSQL stands in for them.

use crate::labs;
use crate::support::{Ended, Folder, pgfathom};
use lab::throwaway::{SUPERUSER, Throwaway, installations};
use std::path::Path;

/// Verbs that judge or drive, as far as they reach the servers of a cluster file.
const VERBS: [&str; 15] = [
    "load ycsb --rows 100",
    "verify",
    "run -b ycsb-c -t 1",
    "run -b ycsb-c -c 1,2 -T 100ms",
    "run -b ycsb-c -t 1 --connect each",
    "run -f one.sql -t 1",
    "matrix -T 1",
    "prove tpcb",
    "prove bank -T 1",
    "prove ack -T 1",
    "prove hb -T 1",
    "prove append -T 1",
    "prove hermitage",
    "plan load ycsb --rows 100",
    "check --skip network,memory,processor --size 64MB --probe-time 0.1",
];

fn servers(count: usize, settings: &[(&str, &str)]) -> Vec<Throwaway> {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let start = |_| Throwaway::start(&installation, settings).expect("a throwaway server starts");
    (0..count).map(start).collect()
}

/// A cluster file that names these servers.
fn file(engine: &str, servers: &[Throwaway], roles: &[&str], dbname: &str) -> String {
    let node = |(at, (server, role)): (usize, (&Throwaway, &&str))| {
        format!(
            "[[node]]\nname = \"n{}\"\nrole = \"{role}\"\nconnection = \"host={} port={} user={SUPERUSER} dbname={dbname}\"\n",
            at + 1,
            server.socket_dir().display(),
            server.port()
        )
    };
    let nodes: Vec<String> = servers.iter().zip(roles).enumerate().map(node).collect();
    format!("format = 1\nengine = \"{engine}\"\n{}", nodes.concat())
}

fn typed(folder: &Folder, arguments: &str, file: &str) -> Ended {
    let mut command = pgfathom(folder.path());
    command.args(arguments.split_whitespace()).args(["--cluster", file]);
    labs::typed(command, &format!("{arguments} --cluster {file}"))
}

/// What a refused verb prints, with single blanks.
fn refused(folder: &Folder, arguments: &str, file: &str) -> String {
    let ended = labs::ended_with(1, typed(folder, arguments, file), arguments);
    ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn servers_that_are_not_of_the_engine_of_the_file_are_refused_by_every_verb() {
    let servers = servers(2, &[]);
    let folder = Folder::new();
    folder.write("one.sql", "select 1;\n");
    let engines = [("cockroach", "shard"), ("citus", "shard"), ("mtm", "peer")];
    for (engine, role) in engines {
        folder.write(&format!("{engine}.toml"), &file(engine, &servers, &[role, role], "postgres"));
    }
    folder.write("apart.toml", &file("postgres", &servers, &["primary", "standby"], "postgres"));
    for (at, verb) in VERBS.into_iter().enumerate() {
        // Each verb with one of them, and `load` and a proof with all.
        let all = verb.starts_with("load") || verb.starts_with("prove bank");
        for (engine, _) in
            engines.into_iter().enumerate().filter(|(of, _)| all || at % 3 == *of).map(|one| one.1)
        {
            let said = refused(&folder, verb, &format!("{engine}.toml"));
            let words = format!(
                "the engine of the cluster file is {engine}, and the database \"postgres\" of node \"n1\" is no part of"
            );
            assert!(
                said.contains(&words) && said.contains("hint: name the database that is"),
                "{verb}: {said}"
            );
        }
        let said = refused(&folder, verb, "apart.toml");
        assert!(
            said.contains("\"n2\" of the cluster file is a standby, and its server is no copy of \"n1\""),
            "{verb}: {said}"
        );
    }
    // Monitoring goes on with what the servers are.
    let watched = labs::ended_with(0, typed(&folder, "watch -T 1", "citus.toml"), "watch");
    assert!(watched.stderr.contains("is no part of Citus"), "{}", watched.stderr);
    for server in &servers {
        let left = server.value("select count(*)::text from pg_namespace where nspname like 'pgfathom%'");
        assert_eq!(left.expect("it answers").as_deref(), Some("0"), "nothing was made");
    }
}

/// YDB takes no bulk load: no hint may lead to `load`.
#[test]
fn where_an_engine_cannot_be_loaded_no_hint_leads_to_load() {
    const WHY: &str = "pgfathom load does not support YDB: there is no bulk load over PostgreSQL's protocol";
    let servers = servers(2, &[]);
    let folder = Folder::new();
    folder.write("ydb.toml", &file("ydb", &servers[..1], &["shard"], "postgres"));
    folder.write("two.toml", &file("ydb", &servers, &["shard", "shard"], "postgres"));
    let verbs = [
        "verify",
        "verify tpcc",
        "run -b ycsb-a -t 1",
        "run -b tpcb -t 1",
        "run -b tpcb-like -t 1",
        "run -b tpcc -t 1",
        "run -b documents -t 1",
        "run -b ch -c 2 --analysts 1 -t 1",
        "run -b ycsb-c -c 1,2 -T 100ms",
        "matrix -T 1",
        "prove tpcc",
        "prove tpcb",
    ];
    for verb in verbs {
        for name in ["ydb.toml", "two.toml"] {
            let said = refused(&folder, verb, name);
            let (_, hint) = said.split_once("hint: ").unwrap_or_else(|| panic!("{verb}: {said}"));
            assert!(hint.contains(WHY), "{verb} {name}: {said}");
            assert!(
                !hint.contains("pgfathom load ycsb") && !hint.contains("load it first"),
                "{verb}: {said}"
            );
        }
    }
    // The same words on PostgreSQL lead there.
    folder.write("plain.toml", &file("postgres", &servers[..1], &["primary"], "postgres"));
    assert!(
        refused(&folder, "run -b ycsb-a -t 1", "plain.toml")
            .contains("hint: load it first: pgfathom load ycsb")
    );
    let said = refused(&folder, "load ycsb --rows 10", "ydb.toml");
    assert!(said.contains("hint: there is no bulk load over PostgreSQL's protocol"), "{said}");
    let plan =
        labs::ended_with(0, typed(&folder, "plan load ycsb --rows 1000 -o plan.json", "ydb.toml"), "plan");
    let said = plan.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains(WHY) && !plan.stderr.contains("next: pgfathom load"),
        "{}{}",
        plan.stdout,
        plan.stderr
    );
}

/// A catalog that a superuser has put into a plain server.
fn disguise(server: &Throwaway, name: &str) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../engines/tests/catalogs").join(format!("{name}.sql"));
    let sql = std::fs::read_to_string(&path)
        .expect("the catalog is there")
        .replace("{host}", &server.socket_dir().display().to_string())
        .replace("{port}", &server.port().to_string())
        .replace("{dbname}", name);
    server.execute(&format!("create database {name}")).expect("a database");
    server.execute_in(name, &sql).unwrap_or_else(|error| panic!("{name}: {error:?}"));
}

/// PostgreSQL's pages say nothing about an engine with another storage.
#[test]
fn a_plan_for_another_storage_has_no_figures_of_postgresql() {
    let servers = servers(1, &[("allow_system_table_mods", "on")]);
    disguise(&servers[0], "yugabyte");
    let folder = Folder::new();
    folder.write("yugabyte.toml", &file("yugabyte", &servers, &["shard"], "yugabyte"));
    let flags = "plan load ycsb --rows 1000000 --rate 100MB --within 1h -o plan.json --page plan.html";
    let planned = labs::ended_with(0, typed(&folder, flags, "yugabyte.toml"), flags);
    let said = planned.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "ycsb: 1,000,000 rows, 1.02 GB of values",
        "because YugabyteDB keeps rows as pairs of keys and values in LSM trees",
        "to spare",
        "cores for the load",
        "whether it fits is not known",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    for words in
        ["heap", "on disk (", "WAL between", "wraparound", "worker", "partitions of", "result it fits"]
    {
        assert!(!said.contains(words), "{words}: {said}");
    }
    let plan = labs::json(&folder.path().join("plan.json"));
    for part in ["layout", "space", "transactions", "vacuum", "wal"] {
        assert!(plan.get(part).is_none(), "{part}: {plan:#}");
    }
    assert!(plan["size"].get("heap_bytes").is_none() && plan["size"].get("wal_bytes").is_none(), "{plan:#}");
    assert_eq!(plan["size"]["rows"], 1_000_000);
    let page = std::fs::read_to_string(folder.path().join("plan.html")).expect("a page");
    assert!(page.contains("Whether the plan fits is not known"), "the page");
    // The same by the catalog of the live server, and PostgreSQL beside it.
    let address = format!(
        "plan load ycsb --rows 1000000 -h {} -p {} -U {SUPERUSER} -d",
        servers[0].socket_dir().display(),
        servers[0].port()
    );
    let of = |dbname: &str| {
        let mut command = pgfathom(folder.path());
        command.args(address.split_whitespace()).arg(dbname);
        labs::expect(0, command, &format!("{address} {dbname}")).stdout
    };
    assert!(of("yugabyte").contains("is not known") && !of("yugabyte").contains("heap"));
    assert!(of("postgres").contains("heap"));
    // A load and a check take such a plan.
    let check =
        "check --skip network,memory,processor --size 64MB --probe-time 0.1 --plan plan.json -o checked";
    typed(&folder, check, "yugabyte.toml");
    let checks = labs::json(&folder.path().join("checked/check.json"));
    let items = checks["items"].as_array().expect("items");
    let has = |name: &str| items.iter().any(|item| item["check"] == name);
    assert!(has("plan.nodes") && !has("plan.space") && !has("schema.planned_partitions"), "{checks:#}");
}
