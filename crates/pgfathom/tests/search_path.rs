//! No name that pgfathom writes into a statement is looked up where a plain role can put something: a database whose search path leads through a
//! schema full of traps, and every verb run on it by a superuser.

use crate::labs::TrapLab;
use crate::support;

use lab::throwaway::{Throwaway, ThrowawayCluster, installations};
use support::Ended;

const TRAPS: &str = include_str!("trap/traps.sql");
/// The first schema is where new tables go; it is the superuser's own and empty.
const SEARCH_PATH: &str = "hall, evil, public, pg_catalog";
/// Where a test begins to look at the server's log.
const MARK: &str = "from here on no trap may be sprung";
/// Fewer would mean that the traps were not made.
const TRAPS_MIN: usize = 3_000;

/// Traps in the server's log behind its mark, each with the statement that follows it.
fn sprung(server: &Throwaway) -> Vec<String> {
    let log = server.log();
    let log = log.rsplit_once(MARK).map_or(log.as_str(), |(_, rest)| rest);
    let lines: Vec<&str> = log.lines().collect();
    let is_trap = |line: &&str| line.contains("trap: ") && line.contains("ERROR:");
    let found = lines.iter().enumerate().filter(|(_, line)| is_trap(line));
    found.map(|(at, _)| lines[at..lines.len().min(at + 8)].join("\n")).collect()
}

/// Puts the traps into the database `postgres`, and checks that a session with the user's search path steps into each kind.
fn plant(server: &Throwaway) {
    server.execute(TRAPS).expect("the traps can be made");
    let made: usize = server
        .value("select evil.count_of_traps()")
        .expect("an answer")
        .expect("a number")
        .parse()
        .expect("a number");
    assert!(made > TRAPS_MIN, "only {made} traps");
    server
        .execute(&format!("alter database postgres set search_path = {SEARCH_PATH}"))
        .expect("the server does it");
    for sql in [
        "select length('a')",
        "select 1 + 1",
        "select 'a'::text",
        "select from pg_class",
        "select from usertable",
        "select count(*) from (values (1)) v (x)",
        "select hashtextextended('a'::varchar, 0)",
    ] {
        let error = server.execute(sql).expect_err(sql);
        let told = error.as_db_error().map(|error| error.message().to_owned()).unwrap_or_default();
        assert!(told.starts_with("trap: "), "{sql}: {told}: the trap does not work");
    }
    // Where nobody names pg_catalog it is searched first, and better matches in other schemas still win.
    for sql in
        ["select hashtextextended('a'::varchar, 0)", "select 1::bigint & 1", "select length('a'::varchar)"]
    {
        let error = server.execute(&format!("set search_path = public; {sql}")).expect_err(sql);
        let told = error.as_db_error().map(|error| error.message().to_owned()).unwrap_or_default();
        assert!(told.starts_with("trap: public"), "{sql}: {told}: the trap does not work");
    }
    assert!(sprung(server).len() >= 10, "the log shows traps: {}", server.log());
    mark(server);
}

/// What is in the log so far is the test's own.
fn mark(server: &Throwaway) {
    server.execute(&format!("do $$ begin raise log '{MARK}'; end $$")).expect("the server does it");
}

#[test]
fn no_verb_calls_what_a_plain_role_has_put_on_the_search_path() {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    for installation in &found {
        // Prepared transactions and fsync are what some proofs ask for.
        let settings = [("max_prepared_transactions", "8"), ("max_wal_size", "4GB")];
        let server = Throwaway::start(installation, &settings).expect("a throwaway cluster starts");
        plant(&server);
        let lab = TrapLab::of(&server, sprung);
        lab.expect(0, "load ycsb --rows 2000 --partitions 3 -j 2");
        lab.expect(0, "load ycsb --rows 2000");
        lab.expect(0, "load tpcc -s 1 -j 2 --foreign-keys");
        for deep in ["", " --deep"] {
            lab.expect(0, &format!("verify ycsb{deep}"));
            lab.expect(0, &format!("verify tpcc{deep}"));
        }
        let table = server
            .value("select pg_catalog.to_regclass('hall.usertable')::pg_catalog.oid operator(pg_catalog.>) 0")
            .expect("the server does it");
        assert_eq!(table.as_deref(), Some("t"), "new tables are made where the user's search path begins");
        mark(&server);
        for mix in ["ycsb-a", "ycsb-e", "ycsb-f", "tpcc --no-delays"] {
            lab.expect(0, &format!("run -b {mix} -c 2 -t 40 --poller epoll"));
        }
        lab.expect(0, "run -b ycsb-a -c 1,2 -t 40 --poller epoll");
        // Beside a script the session has the user's path, and the statements of ours are safe by themselves.
        lab.folder.write("nothing.sql", "values (pg_catalog.now());\n");
        lab.expect(0, "run -b ycsb-a -f nothing.sql -M prepared -c 2 -t 40 --poller epoll");
        lab.expect(0, "verify ycsb");
        lab.expect(8, "verify tpcc");
        lab.expect(0, "watch -T 2");
        for proof in ["hermitage", "tpcc", "bank -T 1", "twin -T 1", "ack -T 1", "verreg -T 1"] {
            let ended: Ended =
                lab.command(&format!("prove {proof}")).output().expect("the command starts").into();
            let told = format!("$ pgfathom prove {proof}\n{}{}", ended.stdout, ended.stderr);
            assert_ne!(ended.exit, Some(1), "{told}");
            let sprung = sprung(&server);
            assert!(sprung.is_empty(), "{told}{}", sprung.join("\n"));
        }
        lab.expect(0, "load ycsb --rows 1000 --restart");
    }
}

#[test]
fn no_verb_calls_what_a_plain_role_has_put_on_the_search_path_of_shards() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let servers = ThrowawayCluster::sharded(&installation, 2, 4).expect("a throwaway cluster starts");
    for node in 0..2 {
        plant(servers.node(node));
    }
    let file = servers.cluster_toml().display().to_string();
    let lab =
        TrapLab::new(vec!["--cluster".to_owned(), file], vec![servers.node(0), servers.node(1)], sprung);
    let with_tpcc = testing::is_thorough("TPC-C on shards: it is on one server");
    let datasets = if with_tpcc { &["ycsb --rows 2000", "tpcc -s 2"][..] } else { &["ycsb --rows 2000"] };
    for dataset in datasets {
        lab.expect(0, &format!("load {dataset} -j 2"));
        let name = dataset.split(' ').next().expect("a name");
        for deep in ["", " --deep"] {
            lab.expect(0, &format!("verify {name}{deep}"));
        }
    }
    lab.expect(0, "run -b ycsb-a -c 2 -t 40 --poller epoll");
    lab.expect(0, "matrix -T 1");
    lab.expect(0, "watch -T 2");
    if with_tpcc {
        lab.expect(0, "run -b tpcc --no-delays -c 2 -t 40 --poller epoll");
        lab.expect(0, "prove tpcc");
    }
}

#[test]
fn no_proof_reads_tables_that_a_plain_role_can_attach_code_to() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let server = Throwaway::start(&installation, &[]).expect("a throwaway cluster starts");
    let lab = TrapLab::of(&server, sprung);
    lab.expect(0, "load tpcc -s 1 -j 2");
    lab.expect(0, "prove tpcc");
    let sql = |text: &str| server.execute(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    sql("create role mallory; create schema hers authorization mallory");
    sql(
        "set role mallory; create function hers.code(i int) returns int language sql immutable as 'select i'",
    );
    sql("create index on stock (hers.code(s_i_id))");
    let ended = lab.expect(8, "prove tpcc");
    assert!(ended.stderr.contains("which belongs to the role mallory"), "{}", ended.stderr);
    sql("drop index stock_code_idx; alter table history owner to mallory");
    let ended = lab.expect(8, "prove tpcc");
    assert!(ended.stderr.contains("history belongs to the role mallory"), "{}", ended.stderr);
    assert!(ended.stderr.contains("-U mallory"), "{}", ended.stderr);
}
