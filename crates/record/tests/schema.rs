//! What the writer makes is what `schema/` says, and `schema/` says nothing that no writer makes.
//!
//! The validator knows the part of JSON Schema that these schemas use and panics on any other keyword, so a schema cannot
//! silently demand something that is not checked. A full validator would bring more crates than the rest of this one.

mod validator;

use record::benchmark::{self, Benchmark, Column, Count, Figure, Requests, Row, Share, Table};
use record::event::{self, Event};
use record::finding::{
    self, CheckState, Checked, ClientTime, Findings, Level, NodePart, NodeTime, Part as TimePart, Remedy,
    Severity, StatementTime, Window,
};
use record::matrix::{Outlier, Part};
use record::model::{
    Check, CheckResult, Dataset, ErrorStatistics, NodeStatistics, OutageStatistics, Phase, Setting, State,
    Target, TypeStatistics,
};
use record::promise::{Control, Failover, Promise, Reading, Spread, Standing};
use record::sample::{ClientSample, ProgressSample, SOURCE_LOAD, SOURCE_VERIFY, Sample};
use record::sweep::{Curve, Fit, Mix, Place, Plan, Point, Repeat};
use record::totals::{
    CellTotals, ClientTotals, ConditionTotals, Distance, HistoryTotals, LoadTotals, LoadedNode, RoundTripsBy,
    RunTotals, ScriptTotals, VerifyTotals,
};
use record::watched::Sampled;
use record::{Kind, Latency, LatencySummary, Matrix, RunDir, Summary, Sweep, Verdict, What};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::PathBuf;
use validator::Schema;

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

/// A line of a source of `watch` with all its fields, each of the type that the struct reads.
fn full_line(source: &str, fields: &[&str]) -> Map<String, Value> {
    let mut line = Map::new();
    for field in fields {
        // The struct knows which of these it takes; the others make it unreadable.
        let fits = |value: &Value| {
            let text = json!({"t_us": 1, "source": source, *field: value}).to_string();
            Sampled::parse(&Sample::parse(&text).expect("a sample")).is_some()
        };
        let value = [json!(1), json!(true), json!("x")].into_iter().find(fits);
        line.insert((*field).to_string(), value.unwrap_or_else(|| panic!("{source}.{field} takes nothing")));
    }
    line
}

fn full_target() -> Target {
    Target {
        engine: "postgres".into(),
        server_version: "18.4".into(),
        version_num: 180_004,
        connection: "postgres@/tmp:5432/demo".into(),
        version_text: Some("PostgreSQL 18.4 on x86_64".into()),
        settings: vec![Setting {
            name: "shared_buffers".into(),
            value: "16384".into(),
            unit: Some("8kB".into()),
            source: "configuration file".into(),
            default: Some("1024".into()),
        }],
        database_bytes: Some(1),
        missing: vec!["pg_hba: permission denied".into()],
        ..Target::default()
    }
}

fn full_summary() -> Summary {
    let latency = LatencySummary { mean: 1.5, p50: 1, p90: 2, p95: 3, p99: 4, p999: 5, max: 6 };
    Summary {
        verb: "run".into(),
        name: "ycsb-a".into(),
        valid: true,
        duration_s: 10.0,
        transactions: Some(10),
        tps: Some(1.0),
        errors: 1,
        retries: 2,
        latency_us: Some(latency),
        service_us: Some(latency),
        client_cpu_us_per_transaction: Some(3.9),
        rows: Some(5),
        rows_per_s: Some(0.5),
        bytes_per_s: Some(500.0),
        findings: Some(vec![full_finding()]),
        sweep: Some(full_sweep()),
        nodes: vec![record::summary::NodeResult {
            name: "n1".to_string(),
            valid: true,
            ..Default::default()
        }],
        matrix: Some(full_matrix()),
        benchmarks: vec![full_benchmark()],
        tried: Some(record::summary::Tried { number: 12, unit: "warehouse".into(), passes: true }),
        steps: vec![],
    }
}

fn full_benchmark() -> Benchmark {
    let share = |count, of, percent| Share::judge("rollbacks", "2.4.1.4", count, of, percent);
    Benchmark {
        name: "chbench".into(),
        disclaimer: "not a TPC result".into(),
        settings: vec![benchmark::Setting::number("warehouses", 10.0, "10 warehouses".into())],
        figures: vec![Figure {
            at_least: Some(95.0),
            met: Some(true),
            detail: "of 12.86".into(),
            ..Figure::new("queries per hour", 1.5, "QphH")
        }],
        tables: vec![Table {
            name: "profile".into(),
            columns: vec![Column::new("p90", "us"), Column::new("at most", "us")],
            rows: vec![Row { name: "Payment".into(), values: vec![Some(9.0), None], met: Some(true) }],
            are_parts: true,
        }],
        shares: vec![
            share(1, 100, (0.9, 1.1)),
            share(0, 0, (57.0, 63.0)),
            share(10, 100, (43.0, 100.0)),
            share(50, 100, (0.0, 100.0)),
        ],
        checks: vec![benchmark::Check {
            holds: Some(true),
            count: Some(Count { client: 10, unknown: 1, server: 10 }),
            ..benchmark::Check::default()
        }],
        notes: vec!["requests share round trips".into()],
        requests: Some(Requests { awaited: 18, transactions: 10 }),
        passes: Some(false),
        misses: vec!["too slow".into()],
    }
}

fn full_matrix() -> Matrix {
    let mut matrix =
        Matrix::of_rates(&["a", "b"], "select", &[vec![Some(9.0), Some(1.0)], vec![None, Some(8.0)]]);
    let operation = &mut matrix.operations[0];
    operation.cells[1].round_tps = vec![190.0, 210.0];
    operation.cells[1].round_trips = Some(5.0);
    operation.cells[1].round_trips_by = Some(RoundTripsBy::Counted);
    operation.cells[1].ping_us = Some(100.0);
    operation.cells[1].predicted_us_p50 = Some(600.0);
    operation.cells[2].error = Some("could not connect to server".into());
    operation.outliers.push(Outlier {
        what: Part::Path,
        connect: Some("a".into()),
        data: Some("b".into()),
        ratio: 0.2,
        deviations: -9.0,
    });
    matrix
}

fn full_sweep() -> Sweep {
    let repeat = Repeat {
        step: "run-ycsb-a-c8".into(),
        tps: Some(1.0),
        p50_us: Some(1),
        p99_us: Some(2),
        left_out: Some("interrupted".into()),
        settled: Some(true),
    };
    let point =
        Point { sessions: 8, tps: Some(1.0), p50_us: Some(1), p99_us: Some(2), repeats: vec![repeat] };
    let fit = Fit {
        lambda_tps: 1.0,
        sigma: 0.1,
        kappa: 0.01,
        r2: Some(-0.5),
        error: 0.02,
        points: 5,
        peak_sessions: Some(9.5),
        ceiling_tps: Some(5.0),
    };
    let curve = Curve {
        name: "ycsb-a".into(),
        read_percent: Some(50),
        points: vec![point],
        best_sessions: Some(8),
        best_tps: Some(1.0),
        fit: Some(fit),
        cannot_tell: Some("no law".into()),
        knee_sessions: Some(6.5),
        latency_knee_sessions: Some(4),
    };
    let mix = Mix { read_slowdown: Some(2.0), update_slowdown: Some(1.5), ..Mix::default() };
    Sweep { curves: vec![curve], mixes: vec![mix] }
}

/// Writes a directory that uses every field and every kind of line there is.
/// The totals of every kind of step, with every field.
fn full_totals() -> Vec<Value> {
    let (some, share) = (Some(1), Some(0.5));
    let run = RunTotals {
        cancelled: some,
        still_at_work: some,
        late: some,
        lag_us_p99: some,
        lag_us_max: some,
        weak_commits: some,
        cut_off: some,
        sessions_aborted: some,
        failing_s: share,
        worker_wait_share_max: share,
        ..RunTotals::default()
    };
    let cell = CellTotals {
        round_tps: vec![1.5],
        distance: Distance {
            round_trips: share,
            round_trips_by: Some(RoundTripsBy::Counted),
            ping_us: share,
            predicted_us_p50: share,
        },
        ..CellTotals::default()
    };
    let load = LoadTotals {
        bytes: some,
        chunks: some,
        wal_bytes: some,
        wal_by_node: [("w1".to_owned(), 1)].into(),
        bytes_per_row_on_disk: share,
        nodes: vec![LoadedNode { name: "n1".into(), ..LoadedNode::default() }],
        ..LoadTotals::default()
    };
    let verify = VerifyTotals {
        rows_uncertain: some,
        updates_accepted: some,
        values_unjudged: some,
        problems: some,
        kinds: [("damaged key".to_string(), 1)].into(),
        ..VerifyTotals::default()
    };
    let conditions = ConditionTotals {
        warehouses: some,
        conditions_kept: some,
        snapshots: some,
        ..ConditionTotals::default()
    };
    let history = HistoryTotals {
        transactions: [("committed".to_string(), 1)].into(),
        anomalies: [("G1a".to_string(), 1)].into(),
        ..HistoryTotals::default()
    };
    let client = ClientTotals {
        generator_rows_per_s: share,
        generator_bytes_per_s: share,
        null_sink_rows_per_s: share,
        null_sink_bytes_per_s: share,
        null_server_lean_tps: share,
        null_server_lean_client_us: share,
        null_server_libpq_tps: share,
        null_server_libpq_client_us: share,
        clock_reading_ns: share,
        clock_step_ns: share,
        sleep_late_us_p50: share,
        sleep_late_us_p99: share,
        sleep_late_us_max: share,
    };
    vec![
        json!(run),
        json!(cell),
        json!(load),
        json!(verify),
        json!(client),
        json!(conditions),
        json!(ScriptTotals::default()),
        json!(history),
    ]
}

fn full_directory() -> Folder {
    let root = std::env::temp_dir().join(format!("pgfathom-schema-{}", std::process::id()));
    let folder = Folder(root.clone());
    let what = What {
        verb: "demo".into(),
        name: "demo".into(),
        argv: vec!["pgfathom".into(), "demo".into()],
        tool_version: "0.1.0".into(),
    };
    let dir = RunDir::create(Some(&root), &what).expect("a fresh folder");
    let step = dir.begin_step("run", "ycsb-a").expect("writes");
    dir.begin_phase(&step, "measure").expect("writes");
    let mut latency = Latency::new();
    latency.record_us(42);
    let mut client = ClientSample { phase: "measure".into(), ..ClientSample::default() };
    client.set_response(&latency);
    client.set_service(&latency);
    client.set_lag(&latency);
    dir.client_sample(&step, 1, 1, &client).expect("writes");
    dir.client_sample(&step, 2, 1, &ClientSample { phase: "drain".into(), ..ClientSample::default() })
        .expect("writes");
    let progress = ProgressSample {
        slowest_stream: Some("p3".into()),
        slowest_rows: Some(1),
        slowest_node: Some("n2".into()),
        slowest_node_rows: Some(1),
        ..ProgressSample::default()
    };
    dir.progress_sample(&step, SOURCE_LOAD, 3, 1, &progress).expect("writes");
    dir.progress_sample(&step, SOURCE_VERIFY, 4, 1, &ProgressSample::default()).expect("writes");
    dir.sample(Some(&step), "weather", 5, 0, &json!({"xact_commit": 5, "state": "active"})).expect("writes");
    dir.interval(&step, "ycsb-read", Kind::Response, 0, 1, &latency).expect("writes");
    dir.happened(None, event::NOTE, "hello").expect("writes");
    dir.event(&Event {
        t_us: 1,
        kind: event::OUTAGE.into(),
        step: step.key().into(),
        message: "no session".into(),
        duration_us: Some(5),
        more: object(json!({"sessions": 3})),
    })
    .expect("writes");
    dir.edit(|run| {
        run.sweep = Some(Plan {
            sessions: vec![1, 2],
            read_percent: vec![50],
            repeats: 1,
            steps: 2,
            warmup_s: 60.0,
            settle_percent: Some(5.0),
            analyzed: vec!["node1: usertable".into()],
            checkpoints: true,
            missing: vec!["no checkpoint: permission denied".into()],
        });
        run.target = Some(full_target());
        run.tool.revision = Some("abc".into());
        run.client.cpu_model = Some("a processor".into());
        run.client.clock_source = Some("tsc".into());
        run.client.memory_bytes = Some(1);
        run.client.kernel = Some("Linux 6.1".into());
        run.client.os = Some("Debian".into());
    })
    .expect("writes");
    dir.edit_step(&step, |step| {
        step.phases.push(Phase { name: "drain".into(), start_us: 5, end_us: Some(6) });
        step.dataset = Some(Dataset {
            name: "ycsb".into(),
            format_version: 1,
            seed: u64::MAX,
            rows: 10,
            parameters: object(json!({"key_order": "scattered"})),
        });
        step.further_datasets = vec![Dataset { name: "tpcb".into(), ..Dataset::default() }];
        let script = json!({"name": "order.sql", "weight": 1, "sha256": "e3b0c442"});
        step.parameters = object(json!({"sessions": 8, "scale": 10, "scripts": [script]}));
        step.sweep = Some(Place {
            sessions: 8,
            repeat: 1,
            read_percent: Some(50),
            warmup_s: Some(3.0),
            settled: Some(true),
            spread_percent: Some(2.5),
        });
        step.verdict =
            Verdict { valid: true, reasons: vec!["none".into()], notes: vec!["a checkpoint fell in".into()] };
        step.summary = full_summary();
        step.types = vec![TypeStatistics {
            name: "ycsb-read".into(),
            weight: Some(0.5),
            transactions: 10,
            errors: 1,
            retries: 2,
            tps: 1.0,
            latency_us: full_summary().latency_us,
            service_us: full_summary().service_us,
            overflow: 1,
        }];
        step.nodes = vec![NodeStatistics {
            name: "n1".into(),
            role: "shard".into(),
            sessions: 4,
            transactions: 10,
            errors: 1,
            tps: 1.0,
            latency_us: full_summary().latency_us,
        }];
        step.errors = vec![ErrorStatistics {
            sqlstate: "40001".into(),
            count: 2,
            retried: 2,
            first_message: "could not serialize access".into(),
            first_us: 5,
            first_type: Some("ycsb-read".into()),
        }];
        step.outages = vec![OutageStatistics {
            cause: "failing".into(),
            from_us: 5,
            duration_us: Some(2),
            message: "53100: could not extend file".into(),
            failed: Some(4),
            tps_before: Some(10.0),
            back_after_us: Some(3),
            server: Some("b:5432".into()),
        }];
        step.checks = vec![Check {
            name: "content".into(),
            scope: "usertable_p0".into(),
            rows: 5,
            result: CheckResult::Fail,
            detail: "1 damaged".into(),
            counterexamples: vec!["user000000000000000001".into()],
        }];
        step.promises = vec![Promise {
            workload: "ack".into(),
            promise: "nothing that was acknowledged is lost".into(),
            setting: "synchronous_commit=on".into(),
            fault: "kill@1s,heal@2s".into(),
            standing: Standing::Kept,
            n: 100,
            unit: "acknowledged commits".into(),
            reading: Reading::Statements,
            seen: 0,
            bound: Some(0.03),
            control: Some(Control { what: "a row taken away".into(), n: 1, seen: 1 }),
            witness: vec!["none".into()],
            why: "WAL is flushed before the reply".into(),
            change: "nothing".into(),
            failover: Some(Failover {
                repeats: 2,
                lost_commits: Spread::of([Some(0.0), Some(3.0)]),
                rpo_us: Some(Spread::of([Some(0.0)])),
                rto_write_us: Some(Spread::of([Some(1e6), None])),
                rto_read_us: Some(Spread::of([None])),
                downtime_write_percent: Some(Spread::of([Some(12.5)])),
                downtime_read_percent: Some(Spread::of([Some(12.5)])),
            }),
            figures: object(json!({"rpo_us": 0})),
        }];
    })
    .expect("writes");
    dir.end_step(&step, State::Finished).expect("writes");
    // One line of each source of `watch`, with every field that the schema names: the two must know the same ones.
    for (source, fields) in Sampled::ALL {
        dir.sample(Some(&step), source, 7, 1, &full_line(source, fields)).expect("writes");
    }
    for totals in full_totals() {
        let step = dir.begin_step("verify", "").expect("writes");
        dir.edit_step(&step, |step| step.totals = object(totals)).expect("writes");
    }
    dir.finish(State::Interrupted).expect("writes");
    folder
}

#[test]
fn a_full_directory_fits_the_schemas_and_uses_all_of_them() {
    let folder = full_directory();
    let mut run = Schema::load("run.schema.json");
    let text = fs::read_to_string(folder.0.join("run.json")).expect("was written");
    run.validate(&serde_json::from_str(&text).expect("JSON"))
        .unwrap_or_else(|error| panic!("run.json: {error}"));
    assert_eq!(run.all_properties().difference(&run.seen).collect::<Vec<_>>(), [] as [&String; 0]);
    for name in ["samples", "events"] {
        let mut schema = Schema::load(&format!("{name}.schema.json"));
        let text = fs::read_to_string(folder.0.join(format!("{name}.ndjson"))).expect("was written");
        for line in text.lines() {
            let value = serde_json::from_str(line).expect("JSON");
            schema.validate(&value).unwrap_or_else(|error| panic!("{name}.ndjson: {error}: {line}"));
        }
        assert_eq!(schema.all_properties().difference(&schema.seen).collect::<Vec<_>>(), [] as [&String; 0]);
    }
}

#[test]
fn the_first_and_barest_run_json_fits_too() {
    let root = std::env::temp_dir().join(format!("pgfathom-schema-bare-{}", std::process::id()));
    let folder = Folder(root.clone());
    let dir = RunDir::create(Some(&root), &What { verb: "load".into(), ..What::default() })
        .expect("a fresh folder");
    let text = fs::read_to_string(folder.0.join("run.json")).expect("was written");
    Schema::load("run.schema.json").validate(&serde_json::from_str(&text).expect("JSON")).expect("fits");
    drop(dir);
}

#[test]
fn the_validator_can_say_no() {
    let mut run = Schema::load("run.schema.json");
    assert!(run.validate(&json!({})).unwrap_err().contains("missing"));
    let mut events = Schema::load("events.schema.json");
    assert!(events.validate(&json!({"t_us": 1, "kind": "note", "message": "x"})).is_ok());
    for wrong in [
        json!({"t_us": -1, "kind": "note", "message": "x"}),
        json!({"t_us": 1.5, "kind": "note", "message": "x"}),
        json!({"t_us": 1, "kind": "note"}),
        json!({"t_us": 1, "kind": "note", "message": "x", "more": [1]}),
        json!([]),
    ] {
        assert!(events.validate(&wrong).is_err(), "{wrong}");
    }
    let mut samples = Schema::load("samples.schema.json");
    assert!(samples.validate(&json!({"t_us": 1, "interval_us": 1, "source": "client"})).is_err());
}

fn full_finding() -> finding::Finding {
    finding::Finding {
        id: "WAL-02".into(),
        windows: vec![Window::new(1, 2)],
        node: Some("n1".into()),
        host: Some("h1".into()),
        numbers: [("peaks".to_string(), 5.0)].into(),
        evidence: vec!["five of five peaks follow a checkpoint".into()],
        ruled_out: vec!["vacuum: none ran".into()],
        missing: vec!["disk samples".into()],
        remedy: Remedy { text: "raise max_wal_size".into(), commands: vec!["ALTER SYSTEM ...".into()] },
        share_of_client_time: Some(0.5),
        impact: Some(0.4),
        benefit: Some(finding::Benefit { least: 0.1, most: 0.3 }),
        also_at: vec!["n2".into()],
        symptom_of: Some("IO-09".into()),
        links: vec!["docs/explain.md".into()],
        ..finding::Finding::default()
    }
}

#[test]
fn findings_fit_their_schema_and_use_all_of_it() {
    let mut findings = Findings::new("run-1", "0.1.0");
    findings.missing = vec!["events.ndjson is missing: no events".into()];
    findings.blind = vec!["pg_stat_statements is missing".into()];
    findings.health = finding::Health::Troubled;
    findings.uncovered = vec![finding::Uncovered {
        node: "n1".into(),
        slice: "extensions".into(),
        sessions: 2.0,
        share: 0.5,
        look_at: "the foreign server".into(),
        commands: vec!["SELECT 1;".into()],
    }];
    findings.validity = vec!["other programs had 30 % of the processors".into()];
    findings.findings = vec![full_finding()];
    for (severity, level) in [Severity::Note, Severity::Low, Severity::Medium, Severity::High, Severity::High]
        .into_iter()
        .zip(Level::ALL)
    {
        findings.findings.push(finding::Finding { severity, level, ..finding::Finding::default() });
    }
    for state in [CheckState::Clean, CheckState::CannotTell] {
        findings.checked.push(Checked { rule: "IO-01".into(), state, ..Checked::default() });
    }
    findings.client_time.push(ClientTime {
        parts: vec![TimePart { events: vec![("LWLock:WALWrite".into(), 0.5)], ..TimePart::default() }],
        notes: vec!["one round trip is assumed".into()],
        ..ClientTime::default()
    });
    let events = vec![("IO:DataFileRead".into(), 0.5)];
    let figure = Some(1.5);
    findings.node_time.push(NodeTime {
        parts: vec![NodePart { events: events.clone(), woken: Some(0.5), ..NodePart::default() }],
        statements: vec![StatementTime {
            outer: "select f($1)".into(),
            entries: Some(3),
            calls_per_s: figure,
            mean_ms: figure,
            plan_ms: figure,
            jit_ms: figure,
            rows: figure,
            blocks: figure,
            blocks_read: figure,
            temp_bytes: figure,
            wal_bytes: figure,
            events,
            functions: vec![("pg_regexec".into(), 0.5)],
            ..StatementTime::default()
        }],
        by: vec![finding::Dimension {
            name: "relation".into(),
            how: "by blocks".into(),
            shares: vec![("orders".into(), 0.5)],
        }],
        notes: vec!["shared out by 60 samples".into()],
        ..NodeTime::default()
    });
    let mut schema = Schema::load("findings.schema.json");
    schema.validate(&serde_json::to_value(&findings).expect("JSON")).expect("fits");
    assert_eq!(schema.all_properties().difference(&schema.seen).collect::<Vec<_>>(), [] as [&String; 0]);
    assert!(schema.validate(&json!({"schema": "pgfathom.findings", "schema_version": 1})).is_err());
}
