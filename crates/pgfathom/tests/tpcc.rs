//! TPC-C by the command: load, run at the terminals' pace and without, in simulation, and every mistake around it.

use crate::found::Found;
use crate::support;
use lab::throwaway::{Throwaway, installations};
use serde_json::Value;
use support::{Ended, Folder, pgfathom};

fn type_(folder: &Folder, cluster: Option<&Throwaway>, arguments: &str) -> Ended {
    let mut command = pgfathom(folder.path());
    if let Some(cluster) = cluster {
        command
            .env("PGHOST", cluster.socket_dir())
            .env("PGPORT", cluster.port().to_string())
            .env("PGUSER", lab::throwaway::SUPERUSER)
            .env("PGDATABASE", "postgres");
    }
    let ended: Ended =
        command.args(arguments.split_whitespace()).output().expect("the command starts").into();
    eprintln!("$ pgfathom {arguments}\n{}{}", ended.stdout, ended.stderr);
    ended
}

/// The check of orders.
const ORDERS: &str = "orders counted by client and server";

fn tpcc(ended: &Ended) -> Found {
    let summary: Value = serde_json::from_str(&ended.stdout).expect("the summary is JSON");
    Found::of(&summary, "TPC-C")
}

#[test]
fn a_loaded_warehouse_is_driven_and_its_orders_are_counted_by_both_sides() {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            scope.spawn(move || {
                let cluster = Throwaway::start(installation, &[]).expect("a throwaway cluster starts");
                let folder = Folder::new();
                let run = |arguments: &str| type_(&folder, Some(&cluster), arguments);
                let missing = run("run -b tpcc");
                assert_eq!(missing.exit, Some(1));
                assert!(missing.stderr.contains("error: this database holds no TPC-C dataset"));
                assert!(missing.stderr.contains("hint: load it first: pgfathom load tpcc -s 10"));

                assert_eq!(run("load tpcc -s 1 -q").exit, Some(0));
                let too_many = run("run -b tpcc --warehouses 2");
                assert_eq!(too_many.exit, Some(1));
                assert!(too_many.stderr.contains("--warehouses 2: only 1 warehouse"), "{}", too_many.stderr);
                let part = run("run -b chbench -c 2");
                assert!(
                    part.stderr.contains("TPC-C without the suppliers, nations and regions"),
                    "{}",
                    part.stderr
                );
                assert!(part.stderr.contains("pgfathom load chbench -s 1 DBNAME"), "{}", part.stderr);

                for flags in ["", " --wire lean --isolation rr --deck"] {
                    let ended = run(&format!("run -b tpcc --no-delays -c 3 -T 2 -q --format json{flags}"));
                    // On a busy machine the client may be the limit, and a serialization failure at the very end is not tried again:
                    // only the books must be right.
                    assert!(matches!(ended.exit, Some(0 | 2 | 5)), "{:?}", ended.exit);
                    let answer = tpcc(&ended);
                    let disclaimer = answer.0["disclaimer"].as_str().expect("text");
                    assert!(disclaimer.starts_with("not a TPC result"));
                    let orders = answer.check(ORDERS).expect("orders are counted");
                    assert_eq!(orders["holds"], true, "{answer:?}");
                    assert!(orders["count"]["client"].as_u64().expect("a count") > 0);
                    assert_eq!(answer.setting("terminals"), None);
                    assert_eq!(answer.figure("nodes touched per transaction"), 1.0);
                }
                let paced = run("run -b tpcc -c 2 -T 8 --random-seed 5 -q");
                assert!(matches!(paced.exit, Some(0 | 5)), "{:?}", paced.exit);
                for word in [
                    "10 terminals with keying",
                    "not a TPC result",
                    "too few to judge",
                    "efficiency",
                    "at most",
                    "holds",
                ] {
                    assert!(paced.stdout.contains(word), "{word}:\n{}", paced.stdout);
                }

                // Somebody else makes orders on the same tables, after the first count: the run must not stand.
                let other = std::thread::scope(|scope| {
                    let run = scope.spawn(|| {
                        type_(
                            &folder,
                            Some(&cluster),
                            "run -b tpcc --no-delays -c 1 -T 6 -q --format json -o other",
                        )
                    });
                    // The samples begin after the first count.
                    let samples = folder.path().join("other/samples.ndjson");
                    testing::wait_for("the first second", || {
                        std::fs::read_to_string(&samples)
                            .is_ok_and(|text| text.contains("\"source\":\"client\""))
                    });
                    cluster
                        .execute("update district set d_next_o_id = d_next_o_id + 1000000")
                        .expect("an update");
                    run.join().expect("the command ran")
                });
                assert_eq!(other.exit, Some(5), "{}", other.stderr);
                assert_eq!(tpcc(&other).check(ORDERS).expect("orders are counted")["holds"], false);
            });
        }
    });
}

/// TPC-C, YCSB and a script share the sessions of one run; each is counted by itself, and both data sets stay in order.
#[test]
fn workloads_of_several_benchmarks_are_mixed_in_one_run() {
    let installation = installations().pop().expect("PostgreSQL on this machine");
    let cluster = Throwaway::start(&installation, &[]).expect("a throwaway cluster starts");
    let folder = Folder::new();
    let run = |arguments: &str| type_(&folder, Some(&cluster), arguments);
    assert_eq!(run("load tpcc -s 1 -q").exit, Some(0));
    assert_eq!(run("load ycsb --rows 5000 -q").exit, Some(0));
    std::fs::write(folder.path().join("count.sql"), "SELECT count(*) FROM warehouse;\n").expect("a file");
    let mixed = "run -b tpcc@1 -b ycsb-a@2 -f count.sql@1 --no-delays -c 4 -T 3 -q --format json -o mixed";
    let ended = run(mixed);
    assert!(matches!(ended.exit, Some(0 | 2 | 5)), "{:?}", ended.exit);
    let answer = tpcc(&ended);
    assert_eq!(answer.check(ORDERS).expect("orders are counted")["holds"], true, "{answer:?}");
    let text = std::fs::read_to_string(folder.path().join("mixed/run.json")).expect("run.json");
    let directory: Value = serde_json::from_str(&text).expect("JSON");
    let step = &directory["steps"][0];
    let of = |name: &str| {
        let types = step["types"].as_array().expect("types");
        let found = types.iter().find(|kind| kind["name"] == name).expect(name);
        found["transactions"].as_u64().expect("a count") as f64
    };
    let ycsb = of("ycsb-a.read") + of("ycsb-a.update");
    let all = step["summary"]["transactions"].as_u64().expect("a count") as f64;
    assert_eq!(answer.row("profile", 0)[0], Some(of("New-Order")), "{answer:?}");
    for (what, share, wanted) in [("YCSB", ycsb / all, 0.5), ("the script", of("count") / all, 0.25)] {
        assert!((share - wanted).abs() < 0.1, "{what} has {share} of {all} transactions, not {wanted}");
    }
    assert_eq!(step["dataset"]["name"], "ycsb");
    assert_eq!(step["further_datasets"][0]["name"], "tpcc");
    // What the run wrote is what its own record says.
    assert_eq!(run("verify ycsb").exit, Some(0));
    assert_eq!(run("prove tpcc").exit, Some(0));
}

#[test]
fn a_simulation_needs_no_server() {
    let folder = Folder::new();
    let ended =
        type_(&folder, None, "run -b tpcc --simulate 2ms --warehouses 500 -c 50 -T 2 -q --format json");
    assert!(matches!(ended.exit, Some(0 | 5)), "{:?}", ended.exit);
    let answer = tpcc(&ended);
    assert_eq!((answer.setting("terminals"), answer.setting("simulated_ms")), (Some(5_000.0), Some(2.0)));
    let rate = answer.figure("New-Orders per minute (tpmC)");
    assert!(rate > 4_000.0, "5,000 terminals make 6,400 a minute, not {rate}");
    assert_eq!(answer.check(ORDERS), None);
}

#[test]
fn mistakes_get_a_hint() {
    let folder = Folder::new();
    for (typed, error, hint) in [
        ("run -b ycsb-a --no-delays", "--no-delays applies to TPC-C, which is not run", "add -b tpcc"),
        ("run -b tpcc -b ycsb-a", "-b tpcc: terminals set their own rate", "add --no-delays"),
        (
            "run -b tpcc -b ycsb-a --no-delays --deck",
            "--deck: the deck's shares are those of TPC-C alone",
            "omit",
        ),
        ("run -b tpcc -R 100", "-R: the terminals of TPC-C set the rate themselves", "--warehouses N"),
        ("run -b tpcc -M simple", "-M: TPC-C uses prepared statements only", "omit -M"),
        (
            "run -b tpcc --until-slo -c 1,2",
            "--until-slo searches for a number of warehouses",
            "one number after -c",
        ),
        ("run -b tpcc --until-slo -t 10", "-t: the steps of --until-slo are timed", "-T 5m"),
        ("run -b tpcc --efficiency 200", "200", "as 95"),
        ("run -b tpcc --simulate 5", "--simulate: without a database", "--warehouses 15000"),
    ] {
        let ended = type_(&folder, None, typed);
        assert_eq!(ended.exit, Some(1), "{typed}: {}", ended.stderr);
        let (first, rest) = ended.stderr.split_once('\n').expect("several lines");
        assert!(first.starts_with("error: ") && first.contains(error), "{typed}: {first}");
        assert!(rest.contains("\nhint: ") && rest.contains(hint), "{typed}: {rest}");
    }
}
