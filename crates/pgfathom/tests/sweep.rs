//! Sweeps on real servers, every PostgreSQL found: short steps, and what must hold of them however fast the machine is.

use crate::labs::ServerLab;
use crate::{mistakes, support};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::throwaway::{Installation, Throwaway, ThrowawayCluster, installations};
use mistakes::{check, usage};
use serde_json::Value;
use support::{Ended, Folder, pgfathom};

impl ServerLab {
    fn expect_one_of(&self, exits: &[i32], arguments: &str) -> Ended {
        ended(&mut self.command(arguments), exits, arguments)
    }
}

fn ended(command: &mut Command, exits: &[i32], arguments: &str) -> Ended {
    let ended: Ended = command.output().expect("the command starts").into();
    eprintln!("$ pgfathom {arguments}\n{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.exit.is_some_and(|exit| exits.contains(&exit)),
        "$ pgfathom {arguments}\nended with {:?}\n{}{}",
        ended.exit,
        ended.stdout,
        ended.stderr
    );
    ended
}

fn run_json(folder: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(folder.join(name).join("run.json")).expect("run.json is there");
    serde_json::from_str(&text).expect("JSON")
}

fn on_each_installation(test: impl Fn(&Installation) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            scope.spawn(move || test(installation));
        }
    });
}

/// Runs `test` on every installation, in parallel, with a loaded dataset and these settings.
fn on_each(settings: &[(&str, &str)], test: impl Fn(&ServerLab) + Sync) {
    on_each_installation(|installation| {
        let cluster = Throwaway::start(installation, settings).expect("a throwaway cluster starts");
        let lab = ServerLab::new(cluster);
        lab.expect_one_of(&[0], "load ycsb --rows 3000 -o loaded");
        test(&lab);
    });
}

/// Key, sessions and pass of each step, in the order they ran.
fn steps(run: &Value) -> Vec<(String, u64, u64)> {
    let of = |step: &Value| {
        let number = |name: &str| step["sweep"][name].as_u64().expect("a place in the sweep");
        (step["key"].as_str().expect("a key").to_string(), number("sessions"), number("repeat"))
    };
    run["steps"].as_array().expect("steps").iter().map(of).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().map_or(vec![], |list| list.iter().filter_map(Value::as_str).collect())
}

/// On a busy machine a step can be the client's fault: then the sweep says so and goes on.
const FINE: [i32; 2] = [0, 5];

#[test]
fn every_number_of_sessions_is_a_step_with_statistics_and_a_checkpoint_before_it() {
    on_each(&[], |lab| {
        lab.server
            .execute("delete from pg_statistic where starelid = 'usertable'::regclass")
            .expect("superuser");
        let ended = lab
            .expect_one_of(&FINE, "run -b ycsb-a -c 1,2,4,...,8 -T 600ms --warmup 300ms --repeat 2 -o sweep");
        let run = lab.run_json("sweep");
        let keys: Vec<String> = steps(&run).into_iter().map(|(key, ..)| key).collect();
        let passes = [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (4, 2), (2, 2), (1, 2)];
        assert_eq!(keys, passes.map(|(sessions, pass)| format!("run-ycsb-a-c{sessions}-r{pass}")));
        let plan = &run["sweep"];
        assert_eq!(plan["checkpoints"], true, "{plan}");
        assert_eq!(texts(&plan["analyzed"]), ["single: public.usertable"], "{plan}");
        assert_eq!(
            lab.server
                .value("select (count(*) > 0)::text from pg_stats where tablename = 'usertable'")
                .expect("sql")
                .as_deref(),
            Some("true")
        );
        for step in run["steps"].as_array().expect("steps") {
            let phases: Vec<&str> = step["phases"]
                .as_array()
                .expect("phases")
                .iter()
                .filter_map(|phase| phase["name"].as_str())
                .collect();
            assert_eq!(phases[..3], ["checkpoint", "warmup", "measure"], "{}", step["key"]);
            assert_eq!(step["parameters"]["sessions"], step["sweep"]["sessions"]);
            assert!(step["summary"]["transactions"].as_u64() > Some(0), "{}", step["key"]);
        }
        let seeds: std::collections::BTreeSet<u64> = run["steps"]
            .as_array()
            .expect("steps")
            .iter()
            .filter_map(|step| step["parameters"]["seed"].as_u64())
            .collect();
        assert_eq!(seeds.len(), 8, "every step draws anew");
        let curve = &run["summary"]["sweep"]["curves"][0];
        assert_eq!(curve["name"], "ycsb-a");
        let points = curve["points"].as_array().expect("points");
        assert_eq!(
            points.iter().filter_map(|point| point["sessions"].as_u64()).collect::<Vec<_>>(),
            [1, 2, 4, 8]
        );
        assert!(
            points.iter().all(|point| point["repeats"].as_array().is_some_and(|repeats| repeats.len() == 2))
        );
        let page = std::fs::read_to_string(lab.folder.path().join("sweep/report.html")).expect("a page");
        assert!(page.contains("Throughput over sessions"), "the page shows the sweep");
        assert!(
            ended.stdout.contains("ycsb-a") && ended.stderr.contains("sweep: 8 steps"),
            "{}",
            ended.stdout
        );
        // What eight runs wrote can be judged.
        lab.expect_one_of(&[0], "verify --deep");
    });
}

#[test]
fn a_warm_up_ends_when_throughput_has_settled_or_its_time_is_over() {
    on_each(&[], |lab| {
        // Any throughput lies within a hundred percent of itself, nearly always.
        lab.expect_one_of(&FINE, "run -b ycsb-c -c 1,2 -T 300ms --warmup 20 --settle 100 -o early");
        let run = lab.run_json("early");
        for step in run["steps"].as_array().expect("steps") {
            let place = &step["sweep"];
            let warm = place["warmup_s"].as_f64().expect("a warm-up");
            assert!((2.9..20.0).contains(&warm), "three windows of a second: {place}");
            assert_eq!(place["settled"], true, "{place}");
            assert!(place["spread_percent"].as_f64().is_some_and(|spread| spread <= 100.0), "{place}");
            let measure =
                step["phases"].as_array().expect("phases").iter().find(|phase| phase["name"] == "measure");
            let measure = measure.expect("a measured part");
            let length =
                measure["end_us"].as_u64().zip(measure["start_us"].as_u64()).map(|(end, start)| end - start);
            assert!(length.is_some_and(|us| (250_000..3_000_000).contains(&us)), "{measure}");
        }
        lab.expect_one_of(
            &FINE,
            "run -b ycsb-c -c 1,2 -T 300ms --warmup 3500ms --settle 0 --no-analyze --no-checkpoint -o whole",
        );
        let run = lab.run_json("whole");
        let place = &run["steps"][0]["sweep"];
        assert!(place["warmup_s"].as_f64().is_some_and(|seconds| (seconds - 3.5).abs() < 0.01), "{place}");
        assert!(place["settled"].is_null(), "nobody asked: {place}");
        let plan = &run["sweep"];
        assert_eq!(
            (&plan["checkpoints"], texts(&plan["analyzed"]).len()),
            (&Value::Bool(false), 0),
            "{plan}"
        );
    });
}

#[test]
fn a_step_that_fails_does_not_lose_the_others() {
    on_each(&[("max_connections", "20")], |lab| {
        let ended = lab.expect_one_of(&[2], "run -b ycsb-c -c 2,40,3 -T 300ms --format json -o partly");
        let summary: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert!(ended.stderr.contains("max_connections is 20"), "{}", ended.stderr);
        let points = &summary["sweep"]["curves"][0]["points"];
        assert!(points[0]["tps"].as_f64() > Some(0.0) && points[1]["tps"].as_f64() > Some(0.0), "{points}");
        assert!(points[2]["tps"].is_null(), "{points}");
        let why = points[2]["repeats"][0]["left_out"].as_str().expect("a reason");
        assert!(why.contains("too many clients") || why.contains("connection slots"), "{why}");
        assert!(summary["tps"].is_null(), "a mean over numbers of sessions says nothing");
        let run = lab.run_json("partly");
        let states: Vec<&str> = run["steps"]
            .as_array()
            .expect("steps")
            .iter()
            .filter_map(|step| step["state"].as_str())
            .collect();
        assert_eq!(states, ["finished", "failed", "finished"]);
        assert_eq!(run["state"], "finished");
        let ended = lab.expect_one_of(&[1], "run -b ycsb-c -c 30,40 -T 300ms -o nothing");
        assert!(ended.stderr.contains("error: no step of the sweep could be measured"), "{}", ended.stderr);
        assert!(!lab.folder.path().join("nothing").exists(), "nothing was measured");
    });
}

#[test]
fn what_a_role_may_not_do_is_said_and_the_sweep_goes_on() {
    on_each(&[], |lab| {
        lab.server
            .execute(
                "create role reader login; grant usage on schema pgfathom to reader;
                 grant select on all tables in schema pgfathom to reader; grant select on usertable to reader",
            )
            .expect("superuser");
        lab.expect_one_of(&FINE, "run -b ycsb-c -c 1,2 -T 300ms -U reader -o reader");
        let plan = &lab.run_json("reader")["sweep"];
        let missing = texts(&plan["missing"]);
        assert!(missing.iter().any(|what| what.contains("no right to analyze public.usertable")), "{plan}");
        let checkpoints: Vec<_> =
            missing.iter().filter(|what| what.contains("no checkpoint before the steps")).collect();
        assert_eq!((checkpoints.len(), &plan["checkpoints"]), (1, &Value::Bool(false)), "said once: {plan}");
    });
}

#[test]
fn mixes_of_reads_and_updates_are_compared_with_the_pure_ones() {
    on_each(&[], |lab| {
        lab.expect_one_of(
            &[0, 5],
            "run --read-update 100/0,50/50,0/100 -c 2 -T 700ms --warmup 300ms -o mixes",
        );
        let run = lab.run_json("mixes");
        let keys: Vec<String> = steps(&run).into_iter().map(|(key, ..)| key).collect();
        assert_eq!(keys, ["run-r100u0-c2", "run-r50u50-c2", "run-r0u100-c2"]);
        let types: Vec<usize> = run["steps"]
            .as_array()
            .expect("steps")
            .iter()
            .map(|step| step["types"].as_array().map_or(0, Vec::len))
            .collect();
        assert_eq!(types, [1, 2, 1], "a pure mix has one type");
        let mixes = &run["summary"]["sweep"]["mixes"];
        // Only if all three steps are valid there is something to compare.
        if run["steps"].as_array().expect("steps").iter().all(|step| step["verdict"]["valid"] == true) {
            let number =
                |name: &str| mixes[0][name].as_f64().unwrap_or_else(|| panic!("no {name} in {mixes}"));
            assert_eq!(
                (mixes[0]["sessions"].as_u64(), mixes[0]["read_percent"].as_u64()),
                (Some(2), Some(50))
            );
            assert!((number("factor") - number("tps") / number("time_weighted_tps")).abs() < 1e-9);
            assert!(
                number("time_weighted_tps") <= number("weighted_mean_tps"),
                "harmonic is the lesser mean: {mixes}"
            );
            assert!(number("read_slowdown") > 0.0 && number("update_slowdown") > 0.0);
        }
        lab.expect_one_of(&[0], "verify --deep");
    });
}

#[test]
fn an_interrupted_sweep_reports_what_it_has() {
    on_each(&[], |lab| {
        let child = testing::Running::new(
            lab.command("run -b ycsb-c -c 1,2,4 -T 600ms -o interrupted")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the command starts"),
        );
        let path = lab.folder.path().join("interrupted/run.json");
        let deadline = Instant::now() + testing::PATIENCE;
        // The first step has ended, a later one is on.
        while !std::fs::read_to_string(&path).is_ok_and(|text| text.matches("\"finished\"").count() > 0) {
            assert!(Instant::now() < deadline, "no step ends");
            std::thread::sleep(Duration::from_millis(5));
        }
        let killed = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
        assert!(killed.expect("kill starts").success());
        let ended: Ended = child.output().expect("it ends").into();
        assert_eq!(ended.exit, Some(130), "{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.stderr.lines().last(), Some("run: interrupted"));
        let run = lab.run_json("interrupted");
        assert_eq!(run["state"], "interrupted");
        assert!(
            run["steps"].as_array().is_some_and(|steps| (1..3).contains(&steps.len())),
            "{}",
            run["steps"]
        );
        assert!(
            texts(&run["verdict"]["notes"]).iter().any(|note| note.contains("not started")),
            "{}",
            run["verdict"]
        );
        assert!(run["summary"]["sweep"]["curves"][0]["points"].is_array());
    });
}

#[test]
fn a_single_run_may_be_repeated_at_a_rate() {
    on_each(&[], |lab| {
        lab.expect_one_of(&FINE, "run -b ycsb-c -c 2 -R 200 -T 500ms --repeat 3 -o repeated");
        let run = lab.run_json("repeated");
        assert_eq!(steps(&run).iter().map(|(_, _, pass)| *pass).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(run["summary"]["tps"].is_number(), "one number of sessions has a throughput");
    });
}

#[test]
fn statistics_are_gathered_on_every_node_and_of_its_own_partitions_only() {
    on_each_installation(|installation| {
        let cluster = ThrowawayCluster::sharded(installation, 2, 2).expect("two servers");
        let tables = "create table pgbench_branches (bid int primary key, bbalance int, filler char(88));
            create table pgbench_tellers (tid int primary key, bid int, tbalance int, filler char(84));
            create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
            insert into pgbench_branches values (1, 0);
            create table pgbench_accounts (aid int, bid int, abalance int, filler char(84)) partition by hash (aid);";
        for (index, node) in cluster.nodes().iter().enumerate() {
            let other = &cluster.file().node[1 - index].name;
            let leaf = |remainder: usize| {
                let bounds = format!("for values with (modulus 2, remainder {remainder})");
                match remainder == index {
                    true => format!(
                        "create table pgbench_accounts_p{remainder} partition of pgbench_accounts {bounds};"
                    ),
                    false => format!(
                        "create foreign table pgbench_accounts_p{remainder} partition of pgbench_accounts {bounds} server {other};"
                    ),
                }
            };
            node.execute(&format!("{tables} {} {}", leaf(0), leaf(1))).expect("tables");
        }
        let folder = Folder::new();
        let file = cluster.cluster_toml().display().to_string();
        let run = |name: &str, what: &str| {
            let arguments = format!("run {what} -c 1,2 -T 200ms --cluster {file} -o {name}");
            ended(pgfathom(folder.path()).args(arguments.split_whitespace()), &[0, 5], &arguments);
            run_json(folder.path(), name)
        };
        let plan = &run("accounts", "-b select-only --no-vacuum")["sweep"];
        let analyzed = texts(&plan["analyzed"]);
        let accounts: Vec<&str> =
            analyzed.iter().copied().filter(|table| table.contains("accounts")).collect();
        assert_eq!(accounts, ["n1: public.pgbench_accounts_p0", "n2: public.pgbench_accounts_p1"], "{plan}");
        assert!(analyzed.contains(&"n2: public.pgbench_branches"), "{plan}");
        assert_eq!(plan["checkpoints"], true, "{plan}");
        folder.write("one.sql", "select 1;\n");
        let plan = &run("script", "-f one.sql")["sweep"];
        assert_eq!(texts(&plan["analyzed"]), ["n1: all tables", "n2: all tables"], "{plan}");
    });
}

#[test]
fn wrong_sweeps() {
    check(
        &[
            usage(
                "run -b ycsb-a -c 1,2,...,256",
                "-c/--client: \"1,2,...,256\" is ambiguous",
                "1,2,4,...,256 or 1,2,3,...,256",
            ),
            usage(
                "run -b ycsb-a -c 1,2,4,...,100",
                "-c/--client: \"1,2,4,...,100\": the series does not reach 100",
                "end with 64 or 128",
            ),
            usage(
                "run -b ycsb-a -c 1,5,7,...,99",
                "-c/--client: \"1,5,7,...,99\": 1, 5, 7 have neither a constant ratio nor a constant step",
                "1,2,4,...,256 or 10,20,30,...,100",
            ),
            usage(
                "run -b ycsb-a -c 1,...,8",
                "-c/--client: \"1,...,8\": a series needs two or three numbers before the dots",
                "1,2,4,...,256",
            ),
            usage(
                "run -b ycsb-a -c 1,2,4,...",
                "-c/--client: \"1,2,4,...\" has no last number",
                "1,2,4,...,256",
            ),
            usage("run -b ycsb-a -c 1,2,2", "-c/--client: \"1,2,2\" has 2 twice", "--repeat 2"),
            usage("run -b ycsb-a -c 1,,2", "-c/--client: \"1,,2\" has one comma too many", "1,2,4,8"),
            usage("run -b ycsb-a -c 1,two", "-c/--client: \"two\" is not a number", "whole number"),
            usage("run -b ycsb-a -c 1,0", "-c/--client: must be at least 1", "whole number"),
            usage(
                "run -b ycsb-a -c 1,20000",
                "-c/--client: 20000 is more than 16384 sessions",
                "give a smaller number",
            ),
            usage(
                "run -b ycsb-a -c 1,2,3,...,5000",
                "-c/--client: \"1,2,3,...,5000\" is more than 200 numbers of sessions",
                "doubling",
            ),
            usage(
                "run -b ycsb-a -c 1,2,4 -R 100",
                "-R fixes the rate that a sweep over sessions measures",
                "--repeat N",
            ),
            usage(
                "run -b ycsb-a -c 1,2,3,...,100 --repeat 6",
                "the sweep has 600 steps, more than 500",
                "fewer",
            ),
            usage("run -b ycsb-a --repeat 0", "--repeat: must be at least 1", "whole number"),
            usage("run -b ycsb-a --repeat 1000", "--repeat: 1000 is more than 100 passes", "smaller"),
            usage(
                "run --read-update 60/30",
                "--read-update: \"60/30\" does not add up to 100",
                "100/0,50/50,0/100",
            ),
            usage("run --read-update 50", "--read-update: \"50\" is not reads/updates", "100/0,50/50,0/100"),
            usage(
                "run --read-update 50/50,50/50",
                "--read-update: \"50/50\" is given twice",
                "add up to 100",
            ),
            usage(
                "run -b ycsb-a --read-update 50/50",
                "-b/--builtin and --read-update cannot be used together",
                "only one of them",
            ),
            usage(
                "run -b ycsb-a --settle 5",
                "--settle applies to a sweep, and this is a single run",
                "-c 1,2,4",
            ),
            usage(
                "run -b ycsb-a --no-analyze",
                "--no-analyze applies to a sweep, and this is a single run",
                "omit --no-analyze",
            ),
            usage("run -b ycsb-a -c 1,2 --settle lots", "--settle: \"lots\" is not a percentage", "0 to 100"),
        ],
        |_| (),
    );
}
