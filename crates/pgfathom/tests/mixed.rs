//! Several benchmarks in one run, what a run leaves in the ledger, and what `verify` finds by it.

use std::process::Stdio;

use crate::benchmarks::lab_with;
use crate::found::Found;
use crate::labs::ServerLab;
use serde_json::Value;
use testing::{Running, wait_for};

/// The only value of a query.
fn value(lab: &ServerLab, sql: &str) -> String {
    lab.server.value(sql).expect("an answer").expect("a value")
}

fn assert_exit(lab: &ServerLab, expected: i32, typed: &str) -> String {
    let ended = lab.typed(typed);
    assert_eq!(ended.exit, Some(expected), "{typed}: {}{}", ended.stdout, ended.stderr);
    format!("{}{}", ended.stdout, ended.stderr)
}

/// A run that did something; a small host may make it invalid.
fn assert_runs(lab: &ServerLab, typed: &str) {
    let (ended, summary) = lab.summary(typed);
    assert!(matches!(ended.exit, Some(0 | 5)), "{typed}: {}", ended.stderr);
    assert!(summary["transactions"].as_u64().expect("a count") > 0, "{typed}");
    assert_eq!(summary["errors"], 0, "{typed}");
}

const LOAD_DOCUMENTS: &str = "load documents --rows 40 --document-size 1kB..4kB -q --watch off -o loaded";

#[test]
fn a_document_whose_update_was_lost_is_named() {
    let lab = lab_with("select 1");
    assert_exit(&lab, 0, LOAD_DOCUMENTS);
    let save = |name: &str| {
        let sql = format!("create table {name} as table documents");
        lab.server.execute(&sql).expect("a copy");
    };
    save("loaded");
    for name in ["one", "two"] {
        assert_runs(&lab, &format!("run -b documents@1 -b documents-tx@1 -c 3 -t 40 -o {name}"));
        for flags in ["", " --deep"] {
            assert_exit(&lab, 0, &format!("verify documents{flags} -q"));
        }
        save(&format!("after_{name}"));
    }
    let changed = "select min(b.doc_id)::text from after_two a join after_one b using (doc_id) where a.doc_version <> b.doc_version";
    let document = value(&lab, changed);
    let put = |from: &str| {
        let sql = format!(
            "update documents d set doc_version = b.doc_version, body = b.body from {from} b where d.doc_id = b.doc_id and d.doc_id = {document}"
        );
        lab.server.execute(&sql).expect("an update");
    };
    for (older, whose) in [("loaded", " is 0, but "), ("after_one", "but ")] {
        put(older);
        for flags in ["", " --deep"] {
            let told = assert_exit(&lab, 3, &format!("verify documents{flags}"));
            assert!(told.contains(&format!("documents where doc_id = {document}: doc_version")), "{told}");
            assert!(told.contains(whose) && told.contains("of run 2, session "), "{told}");
            assert!(told.contains("was acknowledged"), "{told}");
            assert_eq!(told.matches("documents where").count(), 1, "{told}");
        }
        put("after_two");
        assert_exit(&lab, 0, "verify documents -q");
    }
    let lost: Vec<String> = (0..2)
        .map(|number| {
            let sql = format!(
                "select d.doc_id::text from documents d order by d.doc_id desc offset {number} limit 1"
            );
            value(&lab, &sql)
        })
        .collect();
    let delete = format!("delete from documents where doc_id in ({})", lost.join(", "));
    lab.server.execute(&delete).expect("lost inserts");
    for flags in ["", " --deep"] {
        let told = assert_exit(&lab, 3, &format!("verify documents{flags}"));
        assert!(told.contains("run 2 inserted "), "{told}");
        for document in &lost {
            let named =
                format!("documents where doc_id = {document}: missing, but its insert by run 2, session ");
            assert!(told.contains(&named), "{named} in {told}");
        }
        assert_eq!(told.matches(": missing, but its insert by ").count(), 2, "{told}");
    }
    let stranger = "insert into documents select (2::bigint << 40) + 999999999, doc_version, body from documents limit 1";
    lab.server.execute(stranger).expect("a stranger");
    let told = assert_exit(&lab, 3, "verify documents");
    assert!(told.contains("extra row"), "{told}");
}

/// Whatever a killed client was about to do, and whatever it was told about a transaction.
#[test]
fn documents_are_undamaged_after_runs_that_were_killed_or_lost_connections() {
    let lab = lab_with("select 1");
    assert_exit(&lab, 0, LOAD_DOCUMENTS);
    let is_idle = "select count(*)::text from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()";
    for name in ["first", "second"] {
        let typed = format!("run -b documents@1 -b documents-tx@1 -c 4 -T 60 --watch off -o {name}");
        let mut command = lab.command(&typed);
        let spawned = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = Running::new(spawned.expect("the command starts"));
        let before: u64 = value(&lab, "select count(*)::text from documents").parse().expect("a count");
        wait_for("inserts", || {
            value(&lab, "select count(*)::text from documents").parse::<u64>().expect("a count") > before + 20
        });
        // A backend that is lost leaves transactions whose outcome is unknown.
        let lose = "select pg_terminate_backend(pid) from pg_stat_activity where query ~ '^(UPDATE|INSERT|COMMIT)' and pid <> pg_backend_pid() limit 1";
        lab.server.execute(lose).expect("a lost backend");
        child.kill().expect("it is still there");
        child.wait().expect("it is gone");
        wait_for("the end of its sessions", || value(&lab, is_idle) == "0");
        // What a killed run has lost cannot be seen, so the answer is not "exact".
        let verified = assert_exit(&lab, 8, "verify documents -q");
        assert!(verified.contains("none damaged"), "{verified}");
    }
    assert_runs(&lab, "run -b documents -c 2 -t 50 -o after");
    assert_exit(&lab, 8, "verify documents -q");
    assert_eq!(value(&lab, "select count(*)::text from pgfathom.writer where finished"), "1");
}

/// A transaction that is cut off at the end of a run may have committed, or not.
#[test]
fn what_was_under_way_at_the_end_may_be_there_or_not() {
    let lab = lab_with("select 1");
    assert_exit(&lab, 0, LOAD_DOCUMENTS);
    assert_exit(&lab, 0, "load ycsb --rows 200 -q --watch off -o ycsb");
    let mut locks = connect::control::connect(&lab.server.spec()).expect("a connection").into_client();
    for (workload, table) in [("documents", "documents"), ("ycsb-update", "usertable")] {
        let typed = format!("run -b {workload} -c 3 -T 300 --watch off -o {workload}");
        let mut command = lab.command(&typed);
        let spawned = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = Running::new(spawned.expect("the command starts"));
        // Preparing an UPDATE takes its lock, too.
        let writes =
            format!("select (n_tup_upd > 0)::text from pg_stat_user_tables where relname = '{table}'");
        wait_for("the first updates", || value(&lab, &writes) == "true");
        locks.batch_execute(&format!("begin; lock table {table} in share mode")).expect("a lock");
        let waiting = "select (count(*) = 3)::text from pg_stat_activity where wait_event_type = 'Lock'";
        wait_for("all sessions to wait", || value(&lab, waiting) == "true");
        wait_for("the end", || {
            // The first signal drains, and the second one does not wait.
            let id = child.id().to_string();
            let _ = std::process::Command::new("kill").args(["-s", "INT", &id]).status();
            child.try_wait().expect("it can be asked").is_some()
        });
        locks.batch_execute("rollback").expect("no lock");
        let dataset = if workload == "documents" { "documents" } else { "ycsb" };
        assert_exit(&lab, 0, &format!("verify {dataset} --deep -q"));
        let finished = "select bool_and(finished)::text from pgfathom.writer";
        assert_eq!(value(&lab, finished), "true", "{workload}");
    }
}

/// Both run the transactions of TPC-C on the same tables: each has its own figures, and the server's orders are those of both.
#[test]
fn two_benchmarks_on_the_same_tables_have_an_entry_and_an_audit_each() {
    let lab = lab_with("select 1");
    assert_exit(&lab, 0, "load chbench -s 1 -q --watch off -o loaded");
    let (ended, summary) =
        lab.summary("run -b tpcc@3 -b chbench@1 --no-delays -c 4 --analysts 1 -T 4 -o both");
    assert!(matches!(ended.exit, Some(0 | 5)), "{}", ended.stderr);
    let text = std::fs::read_to_string(lab.folder.path().join("both/run.json")).expect("run.json");
    let run: Value = serde_json::from_str(&text).expect("JSON");
    let types = run["steps"][0]["types"].as_array().expect("types");
    let count = |name: &str| {
        let found: Vec<_> = types.iter().filter(|kind| kind["name"] == name).collect();
        assert_eq!(found.len(), 1, "{name} in {types:?}");
        found[0]["transactions"].as_f64().expect("a count")
    };
    let mut orders = vec![];
    for (name, beside) in [("TPC-C", ""), ("CH-benCHmark", "chbench.")] {
        let found = Found::of(&summary, name);
        let own = count(&format!("{beside}New-Order"));
        assert_eq!(found.row("profile", 0)[0], Some(own), "{found:?}");
        let per_minute = found.figure("New-Orders per minute (tpmC)");
        let counted = per_minute / 60.0 * summary["duration_s"].as_f64().expect("seconds");
        assert!(own > 0.0 && (counted - own).abs() < 1.0, "{name}: {counted} in its rate, {own} by type");
        let check = found.check("orders counted by client and server").expect("orders are counted").clone();
        assert_eq!(check["holds"], true, "{check}");
        assert!(check["detail"].as_str().expect("words").contains("by other workloads of this run"));
        orders.push(check["count"].clone());
    }
    assert_eq!(orders[0], orders[1], "there is one number of orders");
    assert!(count("New-Order") > 2.0 * count("chbench.New-Order"), "of four transactions three are TPC-C's");
    let report = assert_exit(&lab, 0, "report both");
    let lines: Vec<&str> = report.lines().map(str::trim).collect();
    let titles: Vec<&&str> = lines.iter().filter(|line| ["TPC-C", "CH-benCHmark"].contains(line)).collect();
    assert_eq!(titles, [&"TPC-C", &"CH-benCHmark"], "{report}");
    assert_eq!(report.matches("New-Orders per minute (tpmC)").count(), 2, "{report}");
    assert_eq!(report.matches("orders counted by client and server").count(), 2, "{report}");
    let page = std::fs::read_to_string(lab.folder.path().join("both/report.html")).expect("a page");
    for title in ["<h3>TPC-C</h3>", "<h3>CH-benCHmark</h3>"] {
        assert_eq!(page.matches(title).count(), 1, "{title}");
    }
}

/// Orders that nobody in this run has made are noticed by both.
#[test]
fn orders_of_a_stranger_are_noticed_by_each_of_two_benchmarks() {
    let lab = lab_with("select 1");
    assert_exit(&lab, 0, "load chbench -s 1 -q --watch off -o loaded");
    let (ended, summary) = std::thread::scope(|scope| {
        let typed = "run -b tpcc -b chbench --no-delays -c 3 --analysts 1 -T 5 -o foreign";
        let run = scope.spawn(|| lab.summary(typed));
        let samples = lab.folder.path().join("foreign/samples.ndjson");
        wait_for("the first second", || {
            std::fs::read_to_string(&samples).is_ok_and(|text| text.contains("\"source\":\"client\""))
        });
        let orders = "update district set d_next_o_id = d_next_o_id + 1000000 where d_id = 1";
        lab.server.execute(orders).expect("an update");
        run.join().expect("the command ran")
    });
    assert_eq!(ended.exit, Some(5), "{}", ended.stderr);
    for name in ["TPC-C", "CH-benCHmark"] {
        let found = Found::of(&summary, name);
        let check = found.check("orders counted by client and server").expect("orders are counted");
        assert_eq!(check["holds"], false, "{check}");
    }
}

/// Every two of the benchmarks, and one of them twice.
#[test]
fn any_two_benchmarks_run_together() {
    let lab = lab_with("select 1");
    for load in ["ycsb --rows 500", "chbench -s 1", "tpcb -s 1", "documents --rows 50 --document-size 1kB"] {
        assert_exit(&lab, 0, &format!("load {load} -q --watch off"));
    }
    let script = lab.folder.path().join("own.sql");
    std::fs::write(&script, "select count(*) from pgbench_branches;\n").expect("a script");
    let mut workloads: Vec<&str> =
        workloads::driving::FAMILIES.iter().map(|family| family.builtins()[0].name).collect();
    workloads.extend(["ycsb-e", "documents-tx", "tpcb-like"]);
    for (at, first) in workloads.iter().enumerate() {
        for second in &workloads[at..] {
            let delays = if [first, second].contains(&&"tpcc") { " --no-delays" } else { "" };
            let own = if second == first { " -f own.sql" } else { "" };
            // A mode other than prepared is refused by most; in this one a server keeps the names of both.
            let run =
                format!("run -b {first} -b {second}{own} -c 3 -t 8 -M prepared{delays} -o {first}-{second}");
            assert_runs(&lab, &run);
        }
    }
    let unfinished = "select count(*)::text from pgfathom.writer where not finished";
    assert_eq!(value(&lab, unfinished), "0");
    for dataset in ["ycsb", "documents"] {
        assert_exit(&lab, 0, &format!("verify {dataset} -q"));
    }
}

#[test]
fn a_run_that_is_refused_leaves_no_entry() {
    let lab = lab_with("select 1");
    assert_exit(&lab, 0, "load tpcb -s 1 -q --watch off");
    assert_exit(&lab, 0, "load ycsb --rows 500 -q --watch off");
    let entries = || value(&lab, "select count(*)::text from pgfathom.writer");
    // The second one has no table.
    let told = assert_exit(&lab, 1, "run -b tpcb -b documents -c 2 -t 5 -q --watch off");
    assert!(told.contains("no table documents"), "{told}");
    assert_eq!(entries(), "0");
    // The third one cannot be prepared on the server, which only sessions find out.
    std::fs::write(lab.folder.path().join("wrong.sql"), "select 1 from nowhere;\n").expect("a script");
    let told = assert_exit(
        &lab,
        1,
        "run -b ycsb-a -b tpcb -f wrong.sql -M prepared -c 2 -t 5 -q --watch off -o wrong",
    );
    assert!(told.contains("nowhere"), "{told}");
    assert_eq!(entries(), "0");
    assert_runs(&lab, "run -b ycsb-a -b tpcb -c 2 -t 5 -o right");
    assert_eq!(entries(), "2");
}
