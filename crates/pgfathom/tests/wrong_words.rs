//! What is said when a dataset is asked for in the wrong words: another one than is there, one that was moved, flags that do not fit what is loaded, values
//! that nothing can be done with. Nothing is made or changed before it is said.

use crate::labs::{self, ServerLab};
use crate::support;
use lab::throwaway::{Throwaway, installations};
use support::{Ended, pgfathom};

fn lab() -> ServerLab {
    let found = installations();
    let newest = found.first().expect("no PostgreSQL on this machine: run make test, which installs it");
    ServerLab::new(Throwaway::start(newest, &[]).expect("a throwaway cluster starts"))
}

fn make(lab: &ServerLab, database: &str, sql: &str) {
    lab.server.execute(&format!("create database {database}")).expect("the server does it");
    lab.server.execute_in(database, sql).expect("the server does it");
}

/// Types a command on a database, which must end so; its output.
fn output(lab: &ServerLab, exit: i32, database: &str, arguments: &[&str]) -> String {
    let mut command = lab.command("");
    command.args(arguments).env("PGDATABASE", database);
    let ended = labs::expect(exit, command, &arguments.join(" "));
    format!("$ pgfathom {} {database}\n{}{}", arguments.join(" "), ended.stdout, ended.stderr)
}

fn assert_refused(lab: &ServerLab, database: &str, arguments: &[&str], words: &[&str]) {
    let output = output(lab, 1, database, arguments);
    for word in words {
        assert!(output.contains(word), "{word:?} is missing:\n{output}");
    }
}

fn is_untouched(lab: &ServerLab, database: &str) -> bool {
    let sql = "select pg_catalog.to_regnamespace('pgfathom') is null and pg_catalog.to_regclass('public.usertable') is null";
    lab.server.execute_in(database, sql).expect("the server answers") == [[Some("t".to_owned())]]
}

#[test]
fn a_dataset_that_is_not_there_is_told_from_one_that_is() {
    let lab = lab();
    make(&lab, "empty", "select 1");
    make(&lab, "bench", "create table pgbench_accounts (aid int)");
    make(&lab, "rows", "select 1");
    make(&lab, "houses", "select 1");
    output(&lab, 0, "rows", &["load", "ycsb", "--rows", "1000"]);
    output(&lab, 0, "houses", &["load", "tpcc", "-s", "1"]);
    for what in ["ycsb", "tpcc"] {
        assert_refused(&lab, "empty", &["verify", what], &["has no dataset loaded by pgfathom", "hint:"]);
        assert_refused(&lab, "bench", &["verify", what], &["has tables of pgbench, but no dataset"]);
    }
    assert_refused(&lab, "bench", &["verify"], &["has tables of pgbench"]);
    let words = ["has no dataset ycsb, but it has tpcc", "pgfathom verify tpcc"];
    assert_refused(&lab, "houses", &["verify", "ycsb"], &words);
    assert_refused(&lab, "houses", &["verify", "ycsb", "--deep"], &words);
    assert_refused(
        &lab,
        "rows",
        &["verify", "tpcc"],
        &["has no dataset tpcc, but it has ycsb", "pgfathom verify ycsb"],
    );
    lab.server
        .execute_in("rows", "create schema attic; alter table usertable set schema attic")
        .expect("the server does it");
    let words = [
        "public.usertable is not where the load made it: it is now attic.usertable",
        "move it back to public.usertable",
    ];
    for command in [
        ["verify", "ycsb"].as_slice(),
        &["run", "-b", "ycsb-c", "-T", "1"],
        &["load", "ycsb", "--rows", "1000"],
    ] {
        assert_refused(&lab, "rows", command, &words);
    }
    lab.server.execute_in("houses", "alter table district rename to districts").expect("the server does it");
    for command in
        [["verify", "tpcc"].as_slice(), &["run", "-b", "tpcc", "-T", "1"], &["load", "tpcc", "-s", "1"]]
    {
        assert_refused(
            &lab,
            "houses",
            command,
            &["public.district is not where the load made it: it is now public.districts"],
        );
    }
}

#[test]
fn flags_that_differ_from_what_is_loaded_are_told_also_when_it_is_complete() {
    let lab = lab();
    make(&lab, "rows", "select 1");
    let load = ["load", "ycsb", "--rows", "1000"];
    let with = |more: &[&'static str]| load.iter().copied().chain(more.iter().copied()).collect::<Vec<_>>();
    output(&lab, 0, "rows", &with(&["--chunk-rows", "100"]));
    assert!(output(&lab, 0, "rows", &load).contains("all rows were already loaded"));
    output(&lab, 0, "rows", &with(&["--chunk-rows", "100", "--method", "copy"]));
    for (more, words) in [
        (["--method", "freeze"].as_slice(), "method copy, but this load specifies freeze"),
        (&["--chunk-rows", "7"], "chunk length 100, but this load specifies 7"),
        (&["--unlogged"], "tables logged, but this load specifies unlogged"),
        (&["--seed", "2"], "seed 1, but this load specifies 2"),
        (&["--partitions", "3"], "partitions 0, but this load specifies 3"),
        (&["--via", "connect"], "via owner, but this load specifies connect"),
    ] {
        assert_refused(&lab, "rows", &with(more), &[words, "or drop it and start over with --restart"]);
    }
}

#[test]
fn bad_values_are_refused_before_anything_is_made() {
    let lab = lab();
    make(&lab, "empty", "select 1");
    let load = ["load", "ycsb", "--rows", "1000"];
    let with = |more: &[&'static str]| load.iter().copied().chain(more.iter().copied()).collect::<Vec<_>>();
    for (arguments, words) in [
        (with(&["--deadline", "whenever"]), "\"whenever\" is neither a duration nor a time"),
        (with(&["--deadline", "1999-01-01"]), "--deadline"),
        (with(&["--force", "mytable"]), "mytable is not a table of load ycsb"),
        (with(&["--force", "public.usertable"]), "use usertable"),
        (with(&["--tablespace", "nowhere"]), "nowhere"),
        (with(&["--via", "connect"]), "--via connect"),
        (with(&["--chunk-rows", "999999999"]), "--chunk-rows"),
        (with(&["--partitions", "5000"]), "--partitions"),
        (with(&["-j", "5000"]), "-j"),
        (vec!["load", "tpcc", "-s", "1", "--force", "usertable"], "usertable is not a table of load tpcc"),
        (vec!["load", "tpcc", "-s", "1", "--fillfactor", "3"], "--fillfactor"),
        (vec!["load", "tpcc", "-s", "1", "--tablespace", "nowhere"], "nowhere"),
        (vec!["load", "tpcc", "-s", "1", "--partitions", "4"], "--partitions"),
    ] {
        assert_refused(&lab, "empty", &arguments, &[words, "hint:"]);
        assert!(is_untouched(&lab, "empty"), "{arguments:?}");
    }
}

#[test]
fn no_half_of_a_password_is_printed_or_recorded() {
    let lab = lab();
    let port = lab.server.port();
    for target in [
        format!("postgresql://joe:hunter@secret@127.0.0.1:{port}/postgres"),
        format!("postgresql://joe:hunter/secret@127.0.0.1:{port}/postgres"),
        format!("postgre://joe:hunter@secret@127.0.0.1:{port}/postgres"),
        format!("host=127.0.0.1 port={port} password=hunter secret user=joe"),
        format!("host=127.0.0.1 port={port} password=hunter secret=1 user=joe"),
        format!("postgresql://joe@127.0.0.1:{port}/postgres?password=hunter&secret=1"),
        // This one is right, and nothing listens there.
        "postgresql://joe:hunter%40secret@127.0.0.1:1/postgres?connect_timeout=1".to_owned(),
    ] {
        for verb in [
            ["verify", "ycsb"].as_slice(),
            &["load", "ycsb", "--rows", "5"],
            &["run", "-b", "ycsb-c"],
            &["watch", "-T", "1"],
        ] {
            let arguments: Vec<&str> = verb.iter().copied().chain(["-o", "run", target.as_str()]).collect();
            let mut command = pgfathom(lab.folder.path());
            let ended: Ended = command.args(&arguments).output().expect("the command starts").into();
            let told = format!("{}{}", ended.stdout, ended.stderr);
            assert_ne!(ended.exit, Some(0), "{target}: {told}");
            assert!(!told.contains("hunter") && !told.contains("secret"), "{target}: {told}");
            for entry in std::fs::read_dir(lab.folder.path()).unwrap().flatten() {
                let path = entry.path().join("run.json");
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                assert!(!text.contains("hunter") && !text.contains("secret"), "{target}: {}", path.display());
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}
