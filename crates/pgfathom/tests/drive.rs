//! The command drives real servers and proves afterwards what it did to them: every PostgreSQL found, each on a throwaway cluster.

use crate::labs::{self, ServerLab};
use crate::support;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::throwaway::{Throwaway, installations};
use serde_json::Value;
use support::Ended;

const ROWS: &str = "3000";

/// Runs `test` on every installation, in parallel, with a loaded dataset.
fn on_each(test: impl Fn(&ServerLab) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            scope.spawn(move || {
                let cluster = Throwaway::start(installation, &[]).expect("a throwaway cluster starts");
                let lab = ServerLab::new(cluster);
                lab.expect(0, &format!("load ycsb --rows {ROWS} --partitions 3 -o loaded"));
                test(&lab);
            });
        }
    });
}

/// The keys that a report names.
fn keys_in(told: &str) -> Vec<&str> {
    told.split_whitespace()
        .filter(|word| word.starts_with("user") && word.len() == data::ycsb::KEY_BYTES)
        .collect()
}

#[test]
fn every_workload_leaves_a_table_that_can_be_proven() {
    on_each(|lab| {
        for workload in
            ["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f", "ycsb-select", "ycsb-update"]
        {
            let ended =
                lab.expect(0, &format!("run -b {workload} -c 4 -j 2 -t 60 --format json -o {workload}"));
            let summary: Value = serde_json::from_str(&ended.stdout).expect("the summary is JSON");
            assert_eq!(summary["transactions"], 240, "{workload}");
            assert_eq!((&summary["verb"], &summary["errors"]), (&Value::from("run"), &Value::from(0)));
            assert!(summary["client_cpu_us_per_transaction"].as_f64() > Some(0.0));
            assert!(ended.stderr.ends_with(&format!("run: {workload}\n")));
            for file in ["run.json", "samples.ndjson", "events.ndjson", "latency.hlog", "report.html"] {
                assert!(lab.folder.path().join(workload).join(file).exists(), "{workload} has no {file}");
            }
        }
        let proven = lab.expect(0, "verify --deep");
        assert!(proven.stdout.contains("exact"), "{}", proven.stdout);
        lab.expect(0, "verify");
    });
}

#[test]
fn a_lost_update_a_torn_one_and_a_lost_insert_are_named() {
    on_each(|lab| {
        lab.sql("create table before as table usertable; select 1");
        lab.expect(0, "run -b ycsb-update -b ycsb-d@3 -c 4 -t 150 -o writes");
        lab.expect(0, "verify --deep");
        let changed = "select min(u.ycsb_key) from usertable u join before b using (ycsb_key) where u.field3 <> b.field3";
        let key = lab.sql(changed);
        assert!(key.starts_with("user"), "a run of updates changes field3 of some row");
        let set = |value: &str| {
            format!(
                "update usertable u set field3 = {value} from before b where u.ycsb_key = b.ycsb_key and u.ycsb_key = '{key}'; select 1"
            )
        };
        lab.sql("create table after as table usertable; select 1");
        let repair = format!(
            "update usertable u set field3 = a.field3 from after a where u.ycsb_key = a.ycsb_key and u.ycsb_key = '{key}'; select 1"
        );
        for (damage, word) in
            [("b.field3", "was acknowledged"), ("left(u.field3, 60) || right(b.field3, 40)", "field3")]
        {
            lab.sql(&set(damage));
            for verify in ["verify --deep", "verify"] {
                let told = lab.expect(3, verify).stdout;
                assert!(told.contains(&key), "{verify} names the key\n{told}");
                assert!(told.contains(word), "{verify} says {word}\n{told}");
                assert_eq!(keys_in(&told), [key.as_str()], "and no other key\n{told}");
            }
            lab.sql(&repair);
            lab.expect(0, "verify --deep");
        }
        let inserted = lab
            .sql("select min(ycsb_key) from usertable where ycsb_key not in (select ycsb_key from before)");
        lab.sql(&format!("delete from usertable where ycsb_key = '{inserted}'; select 1"));
        let told = lab.expect(3, "verify --deep").stdout;
        assert_eq!(keys_in(&told), [inserted.as_str()], "{told}");
    });
}

#[test]
fn a_killed_run_leaves_a_table_that_is_still_judged() {
    on_each(|lab| {
        let mut child = testing::Running::new(
            lab.command("run -b ycsb-a -b ycsb-d -c 4 -T 60 -o killed")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the command starts"),
        );
        let deadline = Instant::now() + testing::PATIENCE;
        while lab.sql("select count(*) from usertable").parse::<u64>().unwrap_or(0) < 3_050 {
            assert!(Instant::now() < deadline, "nothing is inserted");
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().expect("it is still there");
        child.wait().expect("it is gone");
        let report = lab.expect(0, "report killed");
        assert!(report.stdout.contains("did not end"), "{}", report.stdout);
        // Sessions of the killed client may still be in their last statement.
        let others = "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()";
        testing::wait_for("their end", || lab.sql(others) == "0");
        // No row is damaged, but what the run has lost cannot be seen.
        let shown = lab.expect(8, "verify --deep").stdout;
        let line = shown.lines().next().unwrap_or_default();
        assert!(line.contains("rows, none damaged") && line.contains("cannot tell"), "{line}");
        assert!(!shown.contains("exact"), "{shown}");
        assert!(shown.contains("run 1 has no end in the ledger"), "{shown}");
        lab.expect(0, "run -b ycsb-d -c 3 -t 100 -o after");
        lab.expect(8, "verify --deep");
        let key = lab.sql("select max(ycsb_key) from usertable");
        let flipped =
            "overlay(field0 placing case substr(field0, 50, 1) when '-' then '_' else '-' end from 50)";
        lab.sql(&format!("update usertable set field0 = {flipped} where ycsb_key = '{key}'; select 1"));
        assert!(lab.expect(3, "verify --deep").stdout.contains(&key));
    });
}

#[test]
fn without_a_name_every_dataset_is_verified() {
    on_each(|lab| {
        lab.expect(0, "load tpcb -s 1 -q");
        let shown = lab.expect(0, "verify -q").stdout;
        for name in ["ycsb", "tpcb"] {
            assert!(
                shown.lines().any(|line| line.contains(name) && line.contains("exact")),
                "{name}: {shown}"
            );
        }
        // One that is not complete hides no other.
        lab.sql("update pgfathom.dataset set loaded_at = null where name = 'tpcb'; select 1");
        let shown = lab.expect(8, "verify -q").stdout;
        assert!(shown.lines().any(|line| line.contains("ycsb") && line.contains("exact")), "{shown}");
        assert!(shown.contains("the load of dataset tpcb is not complete; run the same load"), "{shown}");
        lab.sql("update pgfathom.dataset set loaded_at = now() where name = 'tpcb'; select 1");
        // The worst answer is that of all, and each is in the summary.
        lab.sql("update pgbench_tellers set filler = 'x' where tid = 3; select 1");
        let shown = lab.expect(3, "verify -q --format json").stdout;
        let summary: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        let of = |name: &str| {
            let datasets = summary["datasets"].as_array().expect("a list");
            datasets.iter().find(|one| one["name"] == name).cloned().expect("the dataset")
        };
        assert_eq!(
            (&of("ycsb")["answer"], &of("ycsb")["differences"]),
            (&"exact".into(), &0.into()),
            "{shown}"
        );
        assert_eq!(
            (&of("tpcb")["answer"], &of("tpcb")["differences"]),
            (&"different".into(), &1.into()),
            "{shown}"
        );
        let shown = lab.expect(3, "verify tpcb --format json").stdout;
        let summary: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(
            (&summary["differences"], &summary["kinds"]["damaged"]),
            (&1.into(), &1.into()),
            "{shown}"
        );
        // What another program wrote is accepted with a note, as only the sums can be proved.
        lab.expect(0, "load tpcb -s 1 --restart -q");
        let paid = "update pgbench_accounts set abalance = 5 where aid = 1; update pgbench_tellers set tbalance = 5 where tid = 1; \
                    update pgbench_branches set bbalance = 5; insert into pgbench_history values (1, 1, 1, 5, now()); select 1";
        lab.sql(paid);
        let shown = lab.expect(0, "verify tpcb").stderr;
        assert!(
            shown.contains("no run is in the ledger") && shown.contains("rows of pgbench_history"),
            "{shown}"
        );
    });
}

#[test]
fn a_load_beside_a_run_is_refused() {
    on_each(|lab| {
        let mut child = testing::Running::new(
            lab.command("run -b ycsb-update -c 2 -T 60 -o beside")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the command starts"),
        );
        let holders =
            "select coalesce(max(pid), 0) from pg_locks where locktype = 'advisory' and objsubid = 1";
        testing::wait_for("its mark", || lab.sql(holders) != "0");
        let pid = lab.sql(holders);
        let refused = lab.expect(1, "load ycsb --rows 3k --restart");
        assert!(refused.stderr.contains("run 1") && refused.stderr.contains(&pid), "{}", refused.stderr);
        assert!(refused.stderr.contains("hint:"), "{}", refused.stderr);
        assert_eq!(lab.sql("select count(*) from usertable"), "3000", "nothing was dropped");
        // What is complete needs nothing, and neither would a load of it.
        lab.expect(0, "load ycsb --rows 3k");
        lab.sql("update pgfathom.dataset set loaded_at = null; select 1");
        lab.expect(1, "load ycsb --rows 3k");
        lab.sql("update pgfathom.dataset set loaded_at = now(); select 1");
        child.kill().expect("it is still there");
        child.wait().expect("it is gone");
        testing::wait_for("its end", || lab.sql(holders) == "0");
        lab.expect(0, "load ycsb --rows 3k --restart");
        lab.expect(0, "verify");
    });
}

/// Whether the client has counted so many seconds; what is watched meanwhile has lines, too.
fn has_client_lines(samples: &std::path::Path, wanted: usize) -> bool {
    let text = std::fs::read_to_string(samples).unwrap_or_default();
    text.lines().filter(|line| line.contains("\"source\":\"client\"")).count() >= wanted
}

#[test]
fn an_interrupted_run_drains_and_reports_what_it_has() {
    on_each(|lab| {
        let child = testing::Running::new(
            lab.command("run -b ycsb-a -c 4 -T 60 -o interrupted")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the command starts"),
        );
        let samples = lab.folder.path().join("interrupted/samples.ndjson");
        let deadline = Instant::now() + testing::PATIENCE;
        while !has_client_lines(&samples, 1) {
            assert!(Instant::now() < deadline, "no sample is written");
            std::thread::sleep(Duration::from_millis(20));
        }
        let killed = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
        assert!(killed.expect("kill starts").success());
        let ended: Ended = child.output().expect("it ends").into();
        assert_eq!(ended.exit, Some(130), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().last(), Some("run: interrupted"));
        assert!(ended.stdout.contains("ycsb-a.update"), "a partial report\n{}", ended.stdout);
        let run = lab.run_json("interrupted");
        assert_eq!(run["state"], "interrupted");
        assert!(run["summary"]["transactions"].as_u64() > Some(0));
        lab.expect(0, "verify --deep");
    });
}

#[test]
fn a_signal_is_heard_also_when_nobody_reads_what_is_said() {
    on_each(|lab| {
        let mut child = testing::Running::new(
            lab.command("run -b ycsb-c -c 2 -T 60 -P 1 -o unheard")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the command starts"),
        );
        drop((child.stdout.take(), child.stderr.take()));
        let samples = lab.folder.path().join("unheard/samples.ndjson");
        let deadline = Instant::now() + testing::PATIENCE;
        while !has_client_lines(&samples, 2) {
            assert!(Instant::now() < deadline, "no sample is written");
            std::thread::sleep(Duration::from_millis(20));
        }
        let killed = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status();
        assert!(killed.expect("kill starts").success());
        assert_eq!(child.wait().expect("it ends").code(), Some(130));
    });
}

#[test]
fn errors_of_the_target_end_with_2_and_are_listed_by_code() {
    on_each(|lab| {
        lab.folder.write("half.sql", "\\set n random(0, 1)\nSELECT 1 / :n;\n");
        let ended = lab.expect(2, "run -f half.sql -c 2 -t 50 -o half");
        assert!(
            ended.stdout.contains("22012") && ended.stdout.contains("division by zero"),
            "{}",
            ended.stdout
        );
        let run = lab.run_json("half");
        let summary = &run["summary"];
        let (done, failed) = (summary["transactions"].as_u64(), summary["errors"].as_u64());
        assert_eq!(done.zip(failed).map(|(done, failed)| done + failed), Some(100));
        assert!(failed > Some(0) && done > Some(0));
    });
}

/// Postgres Pro Multimaster refuses every statement on a node that is no part of the cluster; here a script raises that error.
#[test]
fn a_node_that_is_no_part_of_its_cluster_is_not_sent_thousands_of_transactions() {
    on_each(|lab| {
        let refused = "DO $$ BEGIN RAISE EXCEPTION '[MTM] multimaster node is not online: current status isolated' USING ERRCODE = 'XX000'; END $$;\n";
        lab.folder.write("refused.sql", refused);
        let ended = lab.expect(2, "run -f refused.sql -c 2 -T 2 -o refused");
        let run = lab.run_json("refused");
        let failed = run["summary"]["errors"].as_u64().expect("a count");
        let lost = run["steps"][0]["totals"]["connections_lost"].as_u64().expect("a count");
        // Two sessions, each of which pauses for 0.2 s after an error.
        assert!((2..=24).contains(&failed) && lost + 2 >= failed, "{failed} {lost}");
        assert!(!ended.stdout.contains("REP-13"), "it is no node of a cluster: {}", ended.stdout);
    });
}

#[test]
fn a_rate_is_kept_and_accounted_for() {
    on_each(|lab| {
        let arguments = "run -b ycsb-b -c 4 -T 2 -R 300 -L 2s --warmup 500ms -o rate";
        let ended = labs::typed(lab.command(arguments), arguments);
        assert!(matches!(ended.exit, Some(0 | 5)), "{}{}", ended.stdout, ended.stderr);
        let run = lab.run_json("rate");
        let totals = &run["steps"][0]["totals"];
        let count = |name: &str| totals[name].as_u64().unwrap_or_else(|| panic!("no {name} in {totals}"));
        assert_eq!(count("scheduled"), count("started") + count("skipped") + count("unstarted"));
        // 2.5 s at 300/s: 750 expected, standard deviation 27.
        assert!((600..900).contains(&count("scheduled")), "{totals}");
        assert!(count("warmup_transactions") > 50, "{totals}");
        assert!(totals["lag_us_p99"].is_u64(), "{totals}");
        let phases: Vec<&str> = run["steps"][0]["phases"]
            .as_array()
            .expect("phases")
            .iter()
            .filter_map(|phase| phase["name"].as_str())
            .collect();
        assert_eq!(phases[..2], ["warmup", "measure"]);
    });
}

#[test]
fn pgbench_s_own_tables_are_driven_by_its_own_scripts() {
    on_each(|lab| {
        let tables = "create table pgbench_branches (bid int primary key, bbalance int, filler char(88));
            create table pgbench_tellers (tid int primary key, bid int, tbalance int, filler char(84));
            create table pgbench_accounts (aid int primary key, bid int, abalance int, filler char(84));
            create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
            insert into pgbench_branches values (1, 0);
            insert into pgbench_tellers select n, 1, 0 from generate_series(1, 10) n;
            insert into pgbench_accounts select n, 1, 0 from generate_series(1, 100000) n; select 1";
        lab.sql(tables);
        for mode in ["simple", "extended", "prepared", "prepared --wire lean"] {
            lab.expect(
                0,
                &format!("run -b tpcb-like -c 3 -t 20 -M {mode} -o tpcb-{}", mode.replace(' ', "")),
            );
            lab.expect(
                0,
                &format!(
                    "run -b select -b simple-up@2 -c 3 -t 20 -M {mode} -o mix-{}",
                    mode.replace(' ', "")
                ),
            );
        }
        // Four runs of tpcb-like: each of its transactions moves the same delta in three tables and notes it.
        let sums = "select (select sum(bbalance) from pgbench_branches) = (select sum(tbalance) from pgbench_tellers)";
        assert_eq!(lab.sql(sums), "t");
        assert_eq!(lab.sql("select (select sum(delta) from pgbench_history) = (select sum(abalance) from pgbench_accounts)"), "t");
        let history: u64 = lab.sql("select count(*) from pgbench_history").parse().expect("a count");
        assert!((240..=480).contains(&history), "{history}");
    });
}
