//! Benchmarks by the command: TPC-B whose balances are checked, documents with and without explicit transactions, and TPC-C with analytic
//! queries beside it.

use crate::found::Found;
use crate::labs::ServerLab;
use crate::support;
use lab::local::StopMode;
use lab::throwaway::{Throwaway, installations};
use serde_json::Value;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Ended, Folder, pgfathom};

const TPCB: &str = "
    create table pgbench_branches (bid int not null primary key, bbalance int, filler char(88));
    create table pgbench_tellers (tid int not null primary key, bid int, tbalance int, filler char(84));
    create table pgbench_accounts (aid int not null primary key, bid int, abalance int, filler char(84));
    create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
    insert into pgbench_branches select i, 0 from generate_series(1, 2) i;
    insert into pgbench_tellers select i, (i - 1) / 10 + 1, 0 from generate_series(1, 20) i;
    insert into pgbench_accounts select i, (i - 1) / 100000 + 1, 0, '' from generate_series(1, 200000) i;";

/// Two hundred documents of some hundred bytes, as a load leaves them: the text begins with number and version.
const DOCUMENTS: &str = "
    create table documents (doc_id bigint primary key, doc_version int not null, body jsonb not null);
    insert into documents select i, 0, jsonb_build_object('id', i, 'rev', 0, 'parts', repeat('x', 500))
    from generate_series(1, 200) i;";

/// A server with these tables.
pub(crate) fn lab_with(sql: &str) -> ServerLab {
    let installation = installations().pop().expect("PostgreSQL on this machine");
    let server = Throwaway::start(&installation, &[]).expect("a throwaway cluster starts");
    server.execute(sql).expect("tables");
    ServerLab::new(server)
}

impl ServerLab {
    /// Types a command; how it ended, and its summary.
    pub(crate) fn summary(&self, arguments: &str) -> (Ended, Value) {
        let ended = self.typed(&format!("{arguments} -q --watch off --format json"));
        let summary = serde_json::from_str(&ended.stdout).expect("the summary is JSON");
        (ended, summary)
    }
}

/// Names of checks that do not hold.
fn broken(summary: &Value) -> Vec<&str> {
    let checks = summary["benchmarks"][0]["checks"].as_array().expect("checks");
    assert!(checks.len() >= 4, "{checks:?}");
    let broken = checks.iter().filter(|check| check["holds"] != true);
    broken.map(|check| check["name"].as_str().expect("a name")).collect()
}

fn figure(summary: &Value, name: &str) -> f64 {
    Found(summary["benchmarks"][0].clone()).figure(name)
}

#[test]
fn the_balances_of_tpcb_agree_after_a_run_and_a_foreign_change_is_found() {
    let lab = lab_with(TPCB);
    for wire in ["libpq", "lean"] {
        let (ended, summary) = lab.summary(&format!("run -b tpcb -c 4 -T 1 --wire {wire}"));
        assert!(matches!(ended.exit, Some(0 | 5)), "{:?}", ended.exit);
        assert_eq!(broken(&summary), Vec::<&str>::new());
        assert_eq!(figure(&summary, "scale"), 2.0);
        assert!(summary["transactions"].as_u64().expect("a count") > 50);
    }
    // pgbench's own scripts find the scale in the same tables; with both, somebody else writes the history, too.
    let (ended, _) = lab.summary("run -b tpcb-like -b select-only -b simple-update -c 2 -T 1 -n");
    assert!(matches!(ended.exit, Some(0 | 5)), "{:?}", ended.exit);
    let foreign = std::thread::scope(|scope| {
        let run = scope.spawn(|| lab.summary("run -b tpcb -c 1 -T 5 -o foreign"));
        let samples = lab.folder.path().join("foreign/samples.ndjson");
        testing::wait_for("the first second", || {
            std::fs::read_to_string(&samples).is_ok_and(|text| text.contains("\"source\":\"client\""))
        });
        lab.server.execute("update pgbench_branches set bbalance = bbalance + 1").expect("an update");
        run.join().expect("the command ran")
    });
    assert_eq!(foreign.0.exit, Some(5), "{}", foreign.0.stderr);
    assert_eq!(broken(&foreign.1), ["balances of branches = history"]);
}

#[test]
fn the_balances_of_tpcb_agree_although_connections_are_killed() {
    let lab = lab_with(TPCB);
    let (ended, summary) = std::thread::scope(|scope| {
        let (stop, cluster) = (testing::Stop::new(), &lab.server);
        let is_over = stop.flag();
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
                // Only what sessions of the run do: not the sums before and after it.
                let kill = "select pg_terminate_backend(pid) from pg_stat_activity where query ~ '^(UPDATE|INSERT|COMMIT)' \
                            and pid <> pg_backend_pid() order by random() limit 1";
                let _ = cluster.execute(kill);
            }
        });
        let outcome = lab.summary("run -b tpcb -c 6 -T 3 -o killed");
        drop(stop);
        outcome
    });
    assert_ne!(ended.exit, Some(1), "{}", ended.stderr);
    let text = std::fs::read_to_string(lab.folder.path().join("killed/run.json")).expect("run.json");
    let directory: Value = serde_json::from_str(&text).expect("JSON");
    assert!(directory["steps"][0]["totals"]["connections_lost"].as_u64().expect("a count") > 0);
    assert_eq!(broken(&summary), Vec::<&str>::new());
}

#[test]
fn a_server_that_is_gone_at_the_end_leaves_the_proof_to_type() {
    let mut lab = lab_with(TPCB);
    let mut command = lab.command("run -b tpcb -c 1 -T 4 -q --watch off -o gone");
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
    let samples = lab.folder.path().join("gone/samples.ndjson");
    testing::wait_for("the first second", || {
        std::fs::read_to_string(&samples).is_ok_and(|text| text.contains("\"source\":\"client\""))
    });
    lab.server.stop(StopMode::Immediate).expect("the server stops");
    run.wait().expect("the command ends");
    let text = std::fs::read_to_string(lab.folder.path().join("gone/run.json")).expect("run.json");
    assert!(text.contains("when the server answers again: pgfathom prove tpcb"), "{text}");
}

#[test]
fn documents_are_driven_by_autocommit_and_in_transactions_side_by_side() {
    let lab = lab_with(DOCUMENTS);
    let flags = "--document-size 1kB..200kB --statements-per-transaction 5";
    for wire in ["libpq", "lean"] {
        let run = format!("run -b documents@1 -b documents-tx@1 -c 4 -T 1 --wire {wire} {flags} -o {wire}");
        let (ended, summary) = lab.summary(&run);
        assert!(matches!(ended.exit, Some(0 | 5)), "{:?}", ended.exit);
        assert_eq!(summary["errors"], 0, "every document that was read is the one that was written");
        assert!(figure(&summary, "documents read") > 1.0 && figure(&summary, "bytes written") > 0.0);
        assert!(figure(&summary, "COMMIT, mean") > 0.0);
    }
    let largest = lab.server.value("select max(octet_length(body::text))::text from documents");
    let largest: u64 = largest.expect("an answer").expect("a number").parse().expect("a number");
    assert!((20_000..=200_000).contains(&largest), "{largest}");
    // Every number was inserted once, and what stands in a document is its own number and version.
    let wrong = "select count(*)::text from documents where (body->>'id')::bigint <> doc_id or (body->>'rev')::int <> doc_version";
    assert_eq!(lab.server.value(wrong).expect("an answer").as_deref(), Some("0"));
    // A damaged document is noticed by whoever reads it.
    lab.server
        .execute("update documents set body = jsonb_set(body, '{rev}', '77') where doc_id <= 200")
        .expect("an update");
    let (ended, _) = lab.summary(&format!("run -b documents -c 1 -T 1 {flags} -o damaged"));
    assert!(matches!(ended.exit, Some(2 | 5)), "{}", ended.stderr);
    let text = std::fs::read_to_string(lab.folder.path().join("damaged/run.json")).expect("run.json");
    assert!(text.contains("is not what was written"), "{text}");
}

/// Documents of R3's size, too: updates and inserts keep the sizes of the load, so every one of them can be verified.
#[test]
fn documents_that_were_loaded_keep_their_sizes_in_a_run_and_are_verified() {
    let lab = lab_with("select 1");
    // A count for the large ones: a slow host reads and writes few of them in any time.
    for (rows, sizes, run) in
        [(300, "1kB..20kB", "-T 2 -b documents@1 -b documents-tx@1"), (3, "20MB", "-t 5 -b documents-tx@1")]
    {
        let load = format!(
            "load documents --rows {rows} --document-size {sizes} --restart -q --watch off -o load-{rows}"
        );
        assert_eq!(lab.typed(&load).exit, Some(0));
        let run = format!("run {run} -c 2 --statements-per-transaction 3 -o run-{rows}");
        let (ended, summary) = lab.summary(&run);
        assert!(matches!(ended.exit, Some(0 | 5)), "{:?}", ended.exit);
        assert_eq!(summary["errors"], 0);
        assert!(figure(&summary, "bytes written") > 0.0);
        let verified = lab.typed(&format!("verify documents --deep -q -o verify-{rows}"));
        assert_eq!(verified.exit, Some(0), "{}{}", verified.stdout, verified.stderr);
    }
    let written =
        "select count(*)::text from documents where doc_version > 0 and octet_length(body::text) <> 20000000";
    assert_eq!(lab.server.value(written).expect("an answer").as_deref(), Some("0"));
    let refused = lab.typed("run -b documents --document-size 1kB -c 1 -T 1");
    assert_eq!(refused.exit, Some(1));
    assert!(refused.stderr.contains("were loaded with sizes of 20MB"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: omit --document-size, or load others"), "{}", refused.stderr);
}

/// Each run inserts documents of its own numbers, whichever runs beside it.
#[test]
fn two_runs_at_once_insert_different_documents() {
    let lab = lab_with("select 1");
    let load = "load documents --rows 200 --document-size 1kB -q --watch off";
    assert_eq!(lab.typed(load).exit, Some(0));
    let summaries = std::thread::scope(|scope| {
        let run = |name: &str| {
            let (typed, lab) = (format!("run -b documents -c 2 -T 4 -o {name}"), &lab);
            scope.spawn(move || lab.summary(&typed))
        };
        [run("one"), run("two")].map(|run| run.join().expect("the command ran"))
    });
    for (ended, summary) in summaries {
        assert!(matches!(ended.exit, Some(0 | 5)), "{:?}", ended.exit);
        assert_eq!(summary["errors"], 0, "{summary}");
        assert!(summary["transactions"].as_u64().expect("a count") > 50);
    }
    let runs = "select count(distinct doc_id >> 40)::text from documents where doc_id > 200";
    assert_eq!(lab.server.value(runs).expect("an answer").as_deref(), Some("2"));
    for flags in ["", " --deep"] {
        let verified = lab.typed(&format!("verify documents{flags} -q"));
        assert_eq!(verified.exit, Some(0), "{}{}", verified.stdout, verified.stderr);
    }
}

#[test]
fn analytic_queries_run_beside_tpcc_and_each_of_them_finds_rows() {
    let lab = lab_with("select 1");
    let missing = lab.typed("run -b chbench -c 2");
    assert!(
        missing.stderr.contains("hint: load it first: pgfathom load chbench -s 10"),
        "{}",
        missing.stderr
    );
    assert_eq!(lab.typed("load chbench -s 1 -q").exit, Some(0));
    assert_eq!(lab.typed("verify chbench -q").exit, Some(0));
    // Its tables have the names of TPC-C's: nobody is told to drop them.
    for flags in ["", " --force customer"] {
        let other = lab.typed(&format!("load tpcc -s 1 -q{flags}"));
        assert_eq!(other.exit, Some(1), "{}", other.stderr);
        assert!(other.stderr.contains("is a table of the dataset chbench"), "{}", other.stderr);
    }
    let (ended, summary) = lab.summary("run -b chbench -c 6 --analysts 4 --random-seed 3 -T 6 -o both");
    assert!(matches!(ended.exit, Some(0 | 5)), "{:?}", ended.exit);
    let found = Found::of(&summary, "CH-benCHmark");
    let orders = found.check("orders counted by client and server").expect("orders are counted");
    assert_eq!(orders["holds"], true, "{orders}");
    assert!(found.figure("New-Orders per minute (tpmC)") > 0.0);
    assert!(found.figure("analytic queries") > 0.0);
    assert_eq!(found.setting("analysts"), Some(4.0));
    assert!(found.row("query", 0)[0] > Some(0.0), "{found:?}");
    let schema: Vec<String> = workloads::chbench::queries::all("public");
    for (number, query) in (1..).zip(schema) {
        let count = lab.server.value(&format!("select count(*)::text from ({query}) q"));
        let count: u64 = count.expect("the query runs").expect("a count").parse().expect("a number");
        assert!(count > 0, "Q{number} finds nothing:\n{query}");
    }
    // The tables of TPC-C are those of every other verb about them; what no transaction changes is still proved.
    assert_eq!(lab.typed("prove tpcc -q").exit, Some(0));
    let verified = lab.typed("verify chbench");
    assert_eq!(verified.exit, Some(8), "{}", verified.stderr);
    assert!(
        verified.stderr.contains("only item, region, nation and supplier were verified"),
        "{}",
        verified.stderr
    );
    lab.server.execute("update supplier set su_nationkey = 48 where su_suppkey = 77").expect("damage");
    let damaged = lab.typed("verify chbench");
    assert_eq!(damaged.exit, Some(3), "{}{}", damaged.stdout, damaged.stderr);
    assert!(
        damaged.stdout.contains("su_suppkey 77") || damaged.stdout.contains("supplier"),
        "{}",
        damaged.stdout
    );
}

#[test]
fn flags_of_a_benchmark_that_is_not_run_are_refused() {
    let folder = Folder::new();
    for (typed, error, hint) in [
        (
            "run -b ycsb-a --analysts 2",
            "--analysts applies to CH-benCHmark, which is not run",
            "add -b chbench",
        ),
        ("run -b chbench -c 2 --analysts 2", "no session is left for transactions", "-c 10 --analysts 2"),
        ("run -b documents --document-size small", "--document-size small", "1kB..20MB"),
        ("run -b documents-tx --statements-per-transaction 0", "1 to 1000 are possible", "10"),
        ("run -b tpcb -M simple", "-M: TPC-B uses prepared statements only", "omit -M"),
    ] {
        let ended: Ended = pgfathom(folder.path())
            .args(typed.split_whitespace())
            .output()
            .expect("the command starts")
            .into();
        assert_eq!(ended.exit, Some(1), "{typed}: {}", ended.stderr);
        assert!(ended.stderr.contains(error) && ended.stderr.contains(hint), "{typed}: {}", ended.stderr);
    }
}
