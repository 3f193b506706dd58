//! `plan` against real servers: the closed forms, a calibration, a live target, and a plan through `load`, `run` and `report`.

use crate::labs::{ServerLab, json};
use crate::support::{Ended, Folder, pgfathom};
use lab::throwaway::{Throwaway, installations};
use serde_json::Value;

/// Computed sizes are this close to those of a server; WAL, which depends on checkpoints, this close.
const SIZE: f64 = 0.03;
const WAL: f64 = 0.05;

fn lab() -> ServerLab {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let settings = [
        ("max_wal_size", "8GB"),
        ("checkpoint_timeout", "1h"),
        ("autovacuum", "off"),
        ("full_page_writes", "on"),
    ];
    ServerLab::new(Throwaway::start(&installation, &settings).expect("a throwaway cluster starts"))
}

/// Plans without a target.
fn planned(folder: &Folder, exit: i32, arguments: &str) -> Value {
    let words = arguments.split_whitespace().chain(["--format", "json"]);
    let ended: Ended = pgfathom(folder.path()).args(words).output().expect("the command starts").into();
    assert_eq!(ended.exit, Some(exit), "{arguments}: {}{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stdout))
}

fn close(what: &str, computed: f64, measured: f64, share: f64) {
    assert!((computed / measured - 1.0).abs() <= share, "{what}: computed {computed}, measured {measured}");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Every table of a dataset, and all of it together.
fn compare_sizes(lab: &ServerLab, plan: &Value) {
    for table in plan["input"]["tables"].as_array().expect("tables") {
        let rows = number(&table["rows"]);
        let name = table["name"].as_str().expect("a name");
        let server = |what: &str| {
            lab.sql(&format!("select {what}('public.{name}')")).parse::<f64>().expect("a number")
        };
        // Tables of a few pages consist of their last page and their maps.
        if server("pg_table_size") < 4e6 {
            continue;
        }
        let of = |field: &str| number(&table[field]) * rows;
        let heap = of("heap_bytes_per_row") + of("map_bytes_per_row") + of("toast_bytes_per_row");
        close(name, heap, server("pg_table_size"), SIZE);
        close(&format!("indexes of {name}"), of("index_bytes_per_row"), server("pg_indexes_size"), SIZE);
    }
}

#[test]
fn computed_sizes_are_those_of_a_server() {
    let (lab, folder) = (lab(), Folder::new());
    lab.expect(0, "load ycsb --rows 150000 --watch off -o ycsb");
    let plan = planned(&folder, 0, "plan load ycsb --rows 150000");
    compare_sizes(&lab, &plan);
    let loaded = lab.run_json("ycsb");
    let totals = &loaded["steps"][0]["totals"];
    close("WAL", number(&plan["size"]["wal_bytes"]), number(&totals["wal_bytes"]), WAL);
    close("all", number(&plan["size"]["disk_bytes_per_row"]), number(&totals["bytes_per_row_on_disk"]), SIZE);
    lab.sql("drop table usertable; drop schema pgfathom cascade");

    lab.expect(0, "load tpcc -s 1 --watch off -o tpcc");
    let plan = planned(&folder, 0, "plan load tpcc -w 1");
    compare_sizes(&lab, &plan);
    let rows = number(&plan["size"]["rows"]);
    assert_eq!(rows, number(&lab.run_json("tpcc")["steps"][0]["totals"]["rows_in_ledger"]));
}

/// A plan is made, loaded, driven and compared.
#[test]
fn a_plan_goes_through_load_run_and_report() {
    let lab = lab();
    let made = lab.expect(
        0,
        "plan load ycsb --rows 20000 --disks 2 --raid --partitions 4 -j 2 --rate 100MB -o plan.json postgres",
    );
    assert!(made.stdout.contains("4 partitions"), "{}", made.stdout);
    assert!(made.stderr.contains("next: pgfathom load ycsb --plan plan.json DBNAME"), "{}", made.stderr);
    let plan = json(&lab.folder.path().join("plan.json"));
    assert_eq!(
        (&plan["schema"], &plan["input"]["server"]["max_wal_bytes"]),
        (&"pgfathom.plan".into(), &(8u64 << 30).into())
    );

    // The lab's server has fsync off, so the check fails; what the plan needs is there.
    let measure = "--size 32MiB --probe-time 20ms --depths 1 --skip memory,processor,network";
    lab.expect(6, &format!("check -d postgres {measure} --plan plan.json -o checked"));
    let checks = json(&lab.folder.path().join("checked/check.json"));
    let verdict = |check: &str| {
        let items = checks["items"].as_array().expect("items");
        let item =
            items.iter().find(|item| item["check"] == check).unwrap_or_else(|| panic!("{check}: {checks:#}"));
        item["verdict"].as_str().expect("a verdict").to_string()
    };
    for check in [
        "plan.nodes",
        "state.planned_space",
        "state.planned_tablespaces",
        "schema.planned_partitions",
        "settings.planned",
    ] {
        assert_eq!(verdict(check), "pass", "{check}: {checks:#}");
    }

    // What the check measured feeds the next plan.
    let fed = lab.expect(0, "plan load ycsb --rows 20000 --check checked -o fed.json");
    assert!(fed.stdout.contains("taken from the check checked"), "{}", fed.stdout);
    let hardware = &json(&lab.folder.path().join("fed.json"))["input"]["hardware"];
    assert!(number(&hardware["disk_read_bytes_per_s"]) > 0.0 && number(&hardware["wal_bytes_per_s"]) > 0.0);

    let loaded = lab.expect(0, "load ycsb --plan plan.json -o loaded");
    assert_eq!(lab.sql("select count(*) from usertable"), "20000");
    assert_eq!(lab.sql("select count(*) from pg_inherits where inhparent = 'usertable'::regclass"), "4");
    assert_eq!(json(&lab.folder.path().join("loaded/plan.json")), plan);
    let ended = lab.expect(0, "run -b ycsb-a -T 1 --plan plan.json -o driven");
    assert!(lab.folder.path().join("driven/plan.json").is_file(), "{}", ended.stderr);
    // What was driven beside the plan, and what the plan lacks for more.
    for word in
        ["planned against measured", "rows of the dataset", "client CPU per transaction", "give plan --tps"]
    {
        assert!(ended.stdout.contains(word), "{word} is missing in:\n{}", ended.stdout);
    }

    let report = |arguments: &[&str]| -> Ended {
        let command = pgfathom(lab.folder.path()).arg("report").args(arguments).output();
        command.expect("the command starts").into()
    };
    let text = report(&["loaded"]).stdout;
    for word in
        ["planned against measured", "bytes per row", "WAL bytes per row", "rows per second", "copy", "disk"]
    {
        assert!(text.contains(word), "{word} is missing in:\n{text}{}", loaded.stderr);
    }
    let printed: Value = serde_json::from_str(&report(&["--format", "json", "loaded"]).stdout).expect("JSON");
    let rows = printed["planned"].as_array().expect("figures");
    let rows = rows.iter().find(|one| one["name"] == "rows").expect("the rows");
    assert_eq!(
        (&rows["planned"], &rows["measured"], &rows["difference"]),
        (&20_000.0.into(), &20_000.0.into(), &0.0.into())
    );
    let page = std::fs::read_to_string(lab.folder.path().join("loaded/report.html")).expect("a page");
    assert!(page.contains("Planned against measured") && page.contains("plot-plan-forecast"));
    lab.expect(0, "plan load ycsb --rows 20000 --disk 100GB --rate 100MB --page plan.html");
    let page = std::fs::read_to_string(lab.folder.path().join("plan.html")).expect("a page");
    assert!(page.contains("The plan fits") && page.contains("plot-plan-forecast"));
    // Another plan than the one of the run, and a run without a plan.
    lab.expect(0, "plan load ycsb --rows 40000 -o other.json");
    let other = report(&["--plan", "other.json", "loaded"]).stdout;
    assert!(other.contains("with 40,000 rows") && other.contains("-50 %"), "{other}");
    std::fs::remove_file(lab.folder.path().join("loaded/plan.json")).expect("it was there");
    assert!(!report(&["loaded"]).stdout.contains("planned against measured"));

    // The rates of the load feed the next plan.
    let again = lab.expect(0, "plan load ycsb --rows 100k --from loaded");
    assert!(
        again.stdout.contains("measured by loaded") && again.stdout.contains("forecast"),
        "{}",
        again.stdout
    );
}

#[test]
fn a_calibration_leaves_nothing_on_the_target() {
    let lab = lab();
    lab.sql("create table mine (i int)");
    let databases = "select string_agg(datname, ' ' order by 1) from pg_database";
    let before = lab.sql(databases);
    // Without permission the target is only read.
    let ended = lab.expect(0, "plan load ycsb --rows 100k postgres");
    assert!(ended.stdout.contains("computed from sampled rows"), "{}", ended.stdout);
    assert_eq!(lab.sql("select count(*) from pg_class where relname = 'usertable'"), "0");
    let ended = lab.expect(0, "plan load ycsb --rows 100k --calibrate=target postgres");
    assert!(ended.stdout.contains("measured by a calibration on the target"), "{}", ended.stdout);
    assert_eq!(lab.sql(databases), before);
    assert_eq!(lab.sql("select count(*) from pg_class where relname = 'usertable'"), "0");
    let folder = Folder::new();
    let plan = planned(&folder, 0, "plan load documents --rows 1M --document-size 20kB --calibrate");
    let source = plan["input"]["sizes_from"].as_str().expect("a source");
    assert!(source.starts_with("measured by a calibration on PostgreSQL"), "{source}");
    assert!(number(&plan["size"]["disk_bytes_per_row"]) > 10_000.0, "{plan}");
}

/// A petabyte in two weeks on seven servers, from a file; the numbers are checked by the tests of the crate.
#[test]
fn the_petabyte_of_the_manual_does_not_fit() {
    let folder = Folder::new();
    folder.write(
        "plan.toml",
        "nodes = 7\ndisks = 10\ndisk = \"15TB\"\nwithin = \"14d\"\nrate = \"1.75GB/s\"\nwhat-if = [\"slow=n2.d3:50%@2d\", \"agent-lost@1d\"]\nagents = 7\n",
    );
    let plan = planned(&folder, 6, "plan load ycsb --rows 1e12 -f plan.toml");
    assert_eq!((&plan["layout"]["partitions"], &plan["fits"]), (&70.into(), &false.into()));
    let problem = plan["problems"][0].as_str().expect("a problem");
    assert!(problem.contains("it will not fit: stop at 78"), "{problem}");
    assert_eq!(plan["forecast"]["happened"].as_array().map(Vec::len), Some(2));
    // Flags of the command line come before those of the file.
    let plan = planned(&folder, 0, "plan load ycsb --rows 1e11 -f plan.toml --nodes 8");
    assert_eq!(plan["input"]["hardware"]["nodes"], 8);
    let words = "plan load tpcc -s 15000 --disk 4TB --tps 8000 --ping zone=1ms,region=20ms --standbys 2 --price-node 3 --explain";
    let ended: Ended = pgfathom(folder.path()).args(words.split(' ')).output().expect("it starts").into();
    for word in ["commit", "region 20 ms", "money", "standbys leave 33 %"] {
        assert!(ended.stdout.contains(word), "{word}: {}", ended.stdout);
    }
    assert!(ended.stdout.contains("round trips * ping + planning"), "{}", ended.stdout);
}
