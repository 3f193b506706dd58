//! Mistakes that only the server can report.

use super::*;

/// A server with a password, one database with a foreign table, one with an interrupted load, one with a loaded dataset.
fn server() -> Throwaway {
    let installation =
        installations().into_iter().next().expect("no PostgreSQL on this machine: make test installs it");
    let hba = "local all postgres trust\nlocal all all scram-sha-256\nhost all all all scram-sha-256\n";
    let options = Options { tcp: true, hba: Some(hba.to_string()), ..Options::default() };
    let cluster = options.start(&installation).expect("the throwaway server starts");
    for statement in [
        "create role worker login password 'right'",
        "create role poor login password 'right' connection limit 0",
        "create database foreign_table",
        "create database loaded",
        "create database nothing",
        "create database tight",
        "alter database tight set default_transaction_read_only = on",
    ] {
        cluster.execute(statement).expect("the server is prepared");
    }
    cluster.execute_in("foreign_table", "create table usertable (a int)").expect("a table that is not ours");
    cluster
        .execute_in("foreign_table", "create view stock as select 1 as a")
        .expect("a view that is not ours");
    cluster
}

#[test]
fn wrong_server_states() {
    let cluster = server();
    let socket = cluster.socket_dir().display().to_string();
    let port = cluster.port().to_string();
    let on = |folder: &Folder, typed: &str| {
        let typed = typed.replace("{socket}", &socket).replace("{port}", &port);
        let typed = words(&typed);
        let arguments: Vec<&str> = typed.iter().map(String::as_str).collect();
        let mut command = pgfathom(folder.path());
        // What every psql user has in his environment.
        command.env("PGHOST", &socket).env("PGPORT", &port).env("PGUSER", "postgres").args(arguments);
        command
    };
    let folder = Folder::new();
    let loaded: Ended = on(&folder, "load ycsb --rows 100 -q loaded").output().expect("starts").into();
    assert_eq!(loaded.exit, Some(0), "{}", loaded.stderr);
    let rows = [
        usage(
            "verify nowhere",
            "cannot connect to socket {socket}/.s.PGSQL.{port}: FATAL: database \"nowhere\" does not exist (SQLSTATE 3D000)",
            "CREATE DATABASE \"nowhere\"",
        ),
        usage(
            "verify -U nobody nothing",
            "cannot connect to socket {socket}/.s.PGSQL.{port}: the server requests a password, but none was given",
            "~/.pgpass",
        ),
        usage(
            "verify 'user=worker password=wrong dbname=nothing'",
            "cannot connect to socket {socket}/.s.PGSQL.{port}: FATAL: password authentication failed for user \"worker\" (SQLSTATE 28P01)",
            "check the password",
        ),
        usage(
            "verify 'host=127.0.0.1 user=worker dbname=nothing'",
            "cannot connect to 127.0.0.1:{port}: the server requests a password, but none was given",
            "PGPASSWORD",
        ),
        usage(
            "verify 'user=poor password=right dbname=nothing'",
            "cannot connect to socket {socket}/.s.PGSQL.{port}: FATAL: too many connections for role \"poor\" (SQLSTATE 53300)",
            "ALTER ROLE \"poor\" CONNECTION LIMIT",
        ),
        usage(
            "verify 'host=127.0.0.1 user=worker password=right sslmode=require dbname=nothing'",
            "cannot connect to 127.0.0.1:{port}: the server does not support TLS, but sslmode=require demands it",
            "sslmode=prefer",
        ),
        usage("verify nothing", "this database has no dataset loaded by pgfathom", "load ycsb"),
        usage("verify tpcc nothing", "this database has no dataset loaded by pgfathom", "load tpcc"),
        usage(
            "verify tpcc loaded",
            "this database has no dataset tpcc, but it has ycsb",
            "pgfathom verify ycsb",
        ),
        usage(
            "load tpcc -s 1 foreign_table",
            "stock exists and is a view that pgfathom did not make",
            "--force stock",
        ),
        usage("load tpcc -s 1 tight", "creating the schema pgfathom failed", "connect to the primary"),
        usage(
            "prove ack -T 1 --through 'host=127.0.0.1 port=1' nothing",
            "--through leads to no server",
            "name the address at which the proxy",
        ),
        usage("run -b ycsb-a nothing", "this database holds no YCSB dataset", "load ycsb"),
        usage("matrix nothing", "this database holds no YCSB dataset", "load ycsb"),
        usage(
            "run -b ycsb-a --data n1 loaded",
            "--data chooses among the nodes of a cluster, and this target is one server",
            "--cluster FILE",
        ),
        usage(
            "run -b ycsb-a --connect each loaded",
            "--connect chooses among the nodes of a cluster, and this target is one server",
            "--cluster FILE",
        ),
        usage(
            "run -b tpcb-like nothing",
            "cannot read pgbench_branches, which gives the scale: relation \"pgbench_branches\" does not exist",
            "pgbench -i",
        ),
        usage(
            "load ycsb --rows 100 foreign_table",
            "usertable exists and is a table that pgfathom did not make",
            "--force usertable",
        ),
        usage(
            "load ycsb --rows 100 --force other foreign_table",
            "--force: other is not a table of load ycsb, so nothing would be dropped",
            "use usertable",
        ),
        usage(
            "load ycsb --rows 100 --seed 2 loaded",
            "the dataset ycsb in this database has seed 1, but this load specifies 2",
            "--seed 1",
        ),
        usage(
            "load ycsb --rows 200 loaded",
            "the dataset ycsb in this database has rows 100, but this load specifies 200",
            "--rows 100",
        ),
        usage(
            "load ycsb --rows 100 --partitions 4 loaded",
            "the dataset ycsb in this database has partitions 0, but this load specifies 4",
            "--partitions 0",
        ),
        usage(
            "load ycsb --rows 100 --compressible 2 loaded",
            "the dataset ycsb in this database has compressibility 1.0, but this load specifies 2.0",
            "--compressible 1.0",
        ),
        usage(
            "load ycsb --rows 100 --tablespace nowhere nothing",
            "creating the tables failed",
            "create the tablespace first",
        ),
        usage(
            "load ycsb --rows 100 'user=worker password=right dbname=nothing'",
            "creating the schema pgfathom failed",
            "lacks a privilege",
        ),
        usage("load ycsb --rows 100 tight", "creating the schema pgfathom failed", "connect to the primary"),
        usage(
            "load ycsb --rows 99e15 nothing",
            "--rows: 99000000000000000 rows are more than a dataset can have",
            "at most",
        ),
        usage(
            "load ycsb --rows 10 --partitions 9999 nothing",
            "--partitions: 9999 partitions are too many",
            "at most",
        ),
        usage("load ycsb --rows 10 -j 99999 nothing", "-j: 99999 streams are not possible", "give 1 to"),
        usage(
            "up single --dir {dir}/new --port {port} --socket-dir {socket}",
            "port {port} is taken: another server listens on the socket {socket}/.s.PGSQL.{port}",
            "--port",
        ),
    ];
    let mut problems = Vec::new();
    for row in &rows {
        let folder = Folder::new();
        let dir = folder.path().display().to_string();
        let ended: Ended = on(&folder, &row.typed.replace("{dir}", &dir)).output().expect("starts").into();
        let error = row.error.replace("{socket}", &socket).replace("{port}", &port);
        let told = Row { error: &error, ..*row };
        problems.extend(problem(&told, &ended, &dir));
        // A refusal leaves nothing behind.
        let left = std::fs::read_dir(folder.path()).expect("folder").flatten().map(|entry| entry.file_name());
        let left: Vec<_> = left.collect();
        if !left.is_empty() {
            problems.push(format!("{left:?} is left behind\n$ pgfathom {}\n{}", row.typed, ended.stderr));
        }
    }
    assert!(
        problems.is_empty(),
        "{} of {} rows:\n\n{}",
        problems.len(),
        rows.len(),
        problems.join("\n----\n")
    );
}
