//! Scripts as pgbench's users type them: how they are sent, what scale they see, when they are read, what a run says that committed nothing.
//! Every PostgreSQL found, each on a throwaway cluster.

use crate::labs::ServerLab;
use crate::{mistakes, support};
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lab::throwaway::{Throwaway, installations};
use mistakes::{check, usage};
use serde_json::Value;
use support::Ended;

/// What a test waits for comes within this time, or not at all.
const DEADLINE: Duration = Duration::from_secs(120);
/// Rows of pgbench_branches, and a hundredth of what pgbench would make of it: only the keys matter here.
const SCALE: u64 = 2;

impl ServerLab {
    fn count(&self, table: &str) -> u64 {
        self.sql(&format!("select count(*) from {table}")).parse().expect("a count")
    }

    fn step(&self, run: &str) -> Value {
        self.run_json(run)["steps"][0].clone()
    }
}

fn on_each(test: impl Fn(&ServerLab) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            scope.spawn(move || {
                let cluster = Throwaway::start(installation, &[]).expect("a throwaway cluster starts");
                let tables = format!(
                    "create table pgbench_branches (bid int primary key, bbalance int, filler char(88));
                     create table pgbench_tellers (tid int primary key, bid int, tbalance int, filler char(84));
                     create table pgbench_accounts (aid int primary key, bid int, abalance int, filler char(84));
                     create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
                     insert into pgbench_branches select n, 0 from generate_series(1, {SCALE}) n;
                     insert into pgbench_tellers select n, 1, 0 from generate_series(1, 10 * {SCALE}) n;
                     insert into pgbench_accounts select n, 1, 0 from generate_series(1, 100000 * {SCALE}) n;
                     create table t (x int)"
                );
                cluster.execute(&tables).expect("pgbench's tables");
                test(&ServerLab::new(cluster));
            });
        }
    });
}

#[test]
fn built_ins_take_the_scale_from_the_database_whatever_is_asked_for() {
    on_each(|lab| {
        for (number, flags) in [
            "-b tpcb-like -s 50",
            "-b simple-update -b select-only -s 50",
            "-b t -s 2",
            "-b tpcb-like -D scale=1",
        ]
        .into_iter()
        .enumerate()
        {
            let run = format!("scaled{number}");
            let ended = lab.expect(0, &format!("run {flags} -c 2 -t 100 -o {run}"));
            let is_ignored = flags.contains("-s ");
            assert_eq!(
                ended.stderr.contains(
                    "is ignored: built-in scripts take the scale from pgbench_branches, which has 2"
                ),
                is_ignored,
                "{flags}: {}",
                ended.stderr
            );
            let scale = if is_ignored { SCALE } else { 1 };
            assert_eq!(lab.step(&run)["parameters"]["scale"], scale, "{flags}");
        }
        // A script of one's own beside a built-in sees the same one.
        lab.folder.write("scale.sql", "INSERT INTO t VALUES (:scale);\n");
        lab.expect(0, "run -b select-only -f scale.sql -s 50 -t 20 -o beside");
        assert_eq!(lab.sql("select max(x) || ' ' || min(x) from t"), "2 2");
        lab.expect(0, "run -f scale.sql -s 7 -t 1 -o own");
        assert_eq!(
            (lab.sql("select max(x) from t").as_str(), &lab.step("own")["parameters"]["scale"]),
            ("7", &7.into())
        );
        let strangers = "pgbench_history where aid > 200000 or bid > 2 or tid > 20 or aid < 1";
        assert!(lab.count("pgbench_history") > 200);
        assert_eq!(lab.count(strangers), 0, "no key is drawn that does not exist");
        for wrong in ["3", "0", "-1", "many"] {
            let ended = lab.expect(1, &format!("run -b tpcb-like -D scale={wrong} -t 1"));
            assert!(ended.stderr.contains("draw keys that do not exist"), "{}", ended.stderr);
        }
        let sweep = lab.expect(0, "run -b select-only -s 50 -c 1,2 -t 5 --no-checkpoint -o sweep");
        assert_eq!(sweep.stderr.matches("is ignored").count(), 1, "said once: {}", sweep.stderr);
    });
}

#[test]
fn scripts_are_sent_as_pgbench_sends_them_and_our_workloads_prepared() {
    on_each(|lab| {
        // Each of them works in pgbench without any flag, and none of them can be prepared.
        for (name, text) in [
            ("ddl.sql", "CREATE TABLE d_:client_id (x int);\nDROP TABLE d_:client_id;\n"),
            ("view.sql", "\\set n 5\nCREATE OR REPLACE TEMP VIEW v AS SELECT :n AS n;\nSELECT n FROM v;\n"),
            ("own.sql", "CREATE TEMP TABLE own (x int);\nINSERT INTO own VALUES (1);\nDROP TABLE own;\n"),
            ("joined.sql", "BEGIN \\; SELECT 1 \\; COMMIT;\n"),
            ("untyped.sql", "\\set n 5\nSELECT :n + :n;\nSET work_mem = '4MB';\n"),
            ("quoted.sql", "\\set n 5\nSELECT 'number :n';\n"),
        ] {
            lab.folder.write(name, text);
            lab.expect(0, &format!("run -f {name} -c 2 -t 5 -o simple-{name}"));
            assert_eq!(lab.step(&format!("simple-{name}"))["parameters"]["protocol"], "simple", "{name}");
        }
        for name in ["ddl.sql", "view.sql", "own.sql"] {
            let ended = lab.expect(1, &format!("run -f {name} -M prepared -t 5"));
            assert!(ended.stderr.starts_with(&format!("error: {name}:")), "file and line: {}", ended.stderr);
            assert!(
                ended.stderr.contains("hint: ") && ended.stderr.contains("-M simple"),
                "{}",
                ended.stderr
            );
        }
        lab.expect(0, "run -b tpcb-like -t 5 -o tpcb");
        assert_eq!(lab.step("tpcb")["parameters"]["protocol"], "simple");
        lab.expect(0, "load ycsb --rows 1000 -o loaded");
        lab.expect(0, "run -b ycsb-c -t 5 -o ycsb");
        assert_eq!(lab.step("ycsb")["parameters"]["protocol"], "prepared");
    });
}

/// SHA-256 of `SELECT 1;` with a newline, by sha256sum.
const SELECT_1_SHA256: &str = "b4e0497804e46e0a0b0b8c31975b062152d551bac49c3c2e80932567b4085dcd";

#[test]
fn a_script_is_read_once_from_standard_input_and_for_all_steps_of_a_sweep() {
    on_each(|lab| {
        for (flags, steps) in
            [("-t 5", 1), ("-c 1,2 -t 5 --no-checkpoint", 2), ("-t 5 --repeat 3 --no-checkpoint", 3)]
        {
            let run = format!("stdin{steps}");
            let mut child = lab
                .command(&format!("run -f -@3 {flags} -o {run}"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the command starts");
            child.stdin.take().expect("a pipe").write_all(b"SELECT 1;\n").expect("it reads");
            let ended: Ended = child.wait_with_output().expect("it ends").into();
            assert_eq!(ended.exit, Some(0), "{flags}: {}{}", ended.stdout, ended.stderr);
            let run = lab.run_json(&run);
            let all = run["steps"].as_array().expect("steps");
            assert_eq!(all.len(), steps);
            for step in all {
                let script = &step["parameters"]["scripts"][0];
                assert_eq!((&script["name"], &script["weight"]), (&"-".into(), &3.into()));
                assert_eq!(script["sha256"], SELECT_1_SHA256);
            }
        }
        // Edited as soon as the first step is under way: what would come of it now fails.
        lab.folder.write("edited.sql", "SELECT 1;\n");
        let child = lab
            .command("run -f edited.sql -c 1,2,3 -T 1 --no-checkpoint -o edited")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let samples = lab.folder.path().join("edited/samples.ndjson");
        let deadline = Instant::now() + DEADLINE;
        while !std::fs::read_to_string(&samples).is_ok_and(|text| text.contains("\"client\"")) {
            assert!(Instant::now() < deadline, "no sample is written");
            std::thread::sleep(Duration::from_millis(5));
        }
        lab.folder.write("edited.sql", "SELECT 1 / 0;\n");
        let ended: Ended = child.wait_with_output().expect("it ends").into();
        // On a full machine the client may be the limit: that is no failure of the script.
        assert!(matches!(ended.exit, Some(0 | 5)), "{:?} {}{}", ended.exit, ended.stdout, ended.stderr);
        let run = lab.run_json("edited");
        for step in run["steps"].as_array().expect("steps") {
            assert_eq!(
                (&step["summary"]["errors"], &step["parameters"]["scripts"][0]["sha256"]),
                (&0.into(), &SELECT_1_SHA256.into())
            );
        }
        assert_eq!(run["steps"].as_array().map(Vec::len), Some(3));
    });
}

#[test]
fn a_run_that_committed_nothing_ends_with_2_and_says_what_failed() {
    on_each(|lab| {
        for (name, text, code) in [
            ("open.sql", "BEGIN;\nINSERT INTO t VALUES (1);\n", "25000"),
            ("wrong.sql", "SELECT 1 / 0;\n", "22012"),
            // Busy with nothing but failing: that is no limit of the client.
            ("idle.sql", "\\set x 1 / 0\n", "22000"),
            ("missing.sql", "SELECT * FROM nowhere;\n", "42P01"),
        ] {
            lab.folder.write(name, text);
            let ended = lab.expect(2, &format!("run -f {name} -c 2 -T 1 --format json -o nothing-{name}"));
            let summary: Value = serde_json::from_str(&ended.stdout).expect("JSON");
            assert_eq!((&summary["transactions"], &summary["valid"]), (&0.into(), &false.into()), "{name}");
            let step = lab.step(&format!("nothing-{name}"));
            let reason = step["verdict"]["reasons"][0].as_str().expect("a reason");
            assert!(reason.starts_with("no transaction succeeded"), "{name}: {reason}");
            assert!(reason.contains(&format!("failed, most of them with {code}")), "{name}: {reason}");
        }
        assert_eq!(lab.count("t"), 0, "what was not counted is not there");
        let step = lab.step("nothing-open.sql");
        assert_eq!(step["totals"]["sessions_aborted"], 2);
        let note = step["verdict"]["notes"].to_string();
        assert!(
            note.contains("2 of 2 sessions were aborted: open: end of script reached without completing"),
            "{note}"
        );
    });
}

#[test]
fn the_beginning_of_a_name_means_what_it_means_for_pgbench() {
    on_each(|lab| {
        for (typed, name) in [
            ("t", "tpcb-like"),
            ("tpc", "tpcb-like"),
            ("tpcb-", "tpcb-like"),
            ("se", "select-only"),
            ("si", "simple-update"),
        ] {
            let ended = lab.expect(0, &format!("run -b {typed} -t 2 -o named-{typed}"));
            assert_eq!(lab.run_json(&format!("named-{typed}"))["name"], name);
            let told = format!("-b {typed} is {name}, as in pgbench; tpcc and tpcb also begin with it");
            assert_eq!(ended.stderr.contains(&told), "tpcc".starts_with(typed), "{}", ended.stderr);
        }
        let ended = lab.expect(0, "run -b tpcb -t 2 -o named-tpcb");
        let told = "-b tpcb is a workload of pgfathom; in pgbench it means tpcb-like";
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    });
}

#[test]
fn what_cannot_be_run_is_refused_before_the_run() {
    const COPY: &str = "COPY t FROM STDIN";
    check(
        &[
            usage("run -b s", "-b s: 2 built-in workloads begin with that", "simple-update, select-only"),
            usage("run -f in.sql", "in.sql:1:1: COPY FROM STDIN cannot be run by a script...", "server"),
            usage("run -f out.sql", "out.sql:2:1: COPY TO STDOUT cannot be run by a script...", "SELECT"),
            usage(
                "run -f joined.sql",
                "joined.sql:1:1: COPY FROM STDIN cannot be run by a script...",
                "server",
            ),
            usage(
                "run -f - -f -@2",
                "-f -: standard input is given twice, but can be read only once",
                "file",
            ),
            usage("run -f -", "-: the script has no command", "at least one"),
            usage(
                "run -b ycsb-a --random-seed one",
                "--random-seed: \"one\" is not a number",
                "\"time\" or \"rand\"",
            ),
            usage("run -C -S", "unknown flag -C for run", "keep their connections"),
            usage("run -b t --connect", "--connect needs a value", "pgbench's --connect"),
            usage("run -i -s 5", "unknown flag -i for run", "load tpcb -s SCALE"),
            usage("run --partitions=3", "unknown flag --partitions for run", "load tpcb --partitions N"),
            usage("run --failures-detailed", "unknown flag --failures-detailed for run", "SQLSTATE"),
            usage("run --show-script se", "unknown flag --show-script for run", "-b list"),
        ],
        |folder| {
            folder
                .write("in.sql", &format!("{COPY};\n"))
                .write("out.sql", "BEGIN;\ncopy /* all */ (select 1) to\n stdout with (format csv);\nEND;\n")
                .write("joined.sql", "SELECT 1 \\; copy t (x) from stdin \\; SELECT 2;\n");
        },
    );
}
