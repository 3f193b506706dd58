//! A small language for run directories: a healthy cluster under load, and changes to it.
//!
//! A scene is written as files, line by line, and explained from these files: what is tested is the whole way from the directory to
//! the finding. Nothing here uses the types of the collectors, but every field is checked against them (see `rules.rs`).

use explain::rule::Need;
use record::event::Event;
use record::finding::Findings;
use record::matrix::Matrix;
use record::model::{Check, CheckResult, Phase, State, Step, Target};
use record::sweep::{Curve, Mix, Point, Sweep};
use record::{Run, files};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The value of a field by the second.
type Varying = Rc<dyn Fn(u64) -> Value>;

/// The value of a field.
#[derive(Clone)]
enum Make {
    Fixed(Value),
    Varying(Varying),
}

/// One thing that lines speak of.
#[derive(Clone)]
struct Thing {
    every_s: u64,
    fields: BTreeMap<String, Make>,
    seconds: std::ops::RangeInclusive<u64>,
    step: String,
}

/// The lines of a thing: what is the same in all of them is written once, as most of a scene never changes.
struct Line<'a> {
    thing: &'a Thing,
    fixed: String,
    varying: Vec<(&'a String, &'a Varying)>,
}

impl Thing {
    fn line(&self, source: &str) -> Line<'_> {
        let mut fixed = Map::new();
        fixed.insert("interval_us".into(), (self.every_s * 1_000_000).into());
        fixed.insert("source".into(), source.into());
        if !self.step.is_empty() {
            fixed.insert("step".into(), self.step.as_str().into());
        }
        let mut varying = vec![];
        for (name, make) in &self.fields {
            match make {
                Make::Fixed(value) => {
                    fixed.insert(name.clone(), value.clone());
                }
                Make::Varying(make) => varying.push((name, make)),
            }
        }
        let fixed = serde_json::to_string(&fixed).expect("JSON");
        Line { thing: self, fixed: fixed[1..fixed.len() - 1].to_string(), varying }
    }

    fn is_at(&self, second: u64) -> bool {
        (second.is_multiple_of(self.every_s) || *self.seconds.end() <= 1) && self.seconds.contains(&second)
    }
}

impl Line<'_> {
    fn write(&self, second: u64, text: &mut String) {
        *text += &format!("{{\"t_us\":{},{}", second * 1_000_000, self.fixed);
        for (name, make) in &self.varying {
            *text += &format!(",{}:{}", json!(name), make(second));
        }
        *text += "}\n";
    }
}

#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) run: Run,
    pub(crate) seconds: u64,
    things: BTreeMap<(String, String), Thing>,
    events: Vec<Event>,
    stacks: Option<String>,
}

pub(crate) struct Folder(pub(crate) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How long the healthy cluster is watched.
const SECONDS: u64 = 180;
/// Sources whose lines come more rarely than each second.
const CADENCE: [(&str, u64); 6] =
    [("table", 60), ("statement", 10), ("mount", 10), ("hardware", 10), ("clock", 10), ("watching", 10)];
pub(crate) const NODES: [(&str, &str); 3] = [("n1", "h1"), ("n2", "h2"), ("n3", "h3")];

/// Counts are whole numbers in the files, and their readers insist.
fn whole(value: f64) -> Value {
    if value.fract() == 0.0 { json!(value as i64) } else { json!(value) }
}

fn names(keys: Value) -> Map<String, Value> {
    keys.as_object().expect("names").clone()
}

impl Scene {
    pub(crate) fn empty() -> Scene {
        Scene {
            run: Run { schema_version: 1, ..Run::default() },
            seconds: SECONDS,
            things: BTreeMap::new(),
            events: vec![],
            stacks: None,
        }
    }

    /// Fields that stay as they are.
    pub(crate) fn set(&mut self, source: &str, keys: Value, fields: Value) -> &mut Scene {
        let thing = self.thing(source, keys);
        for (name, value) in names(fields) {
            thing.fields.insert(name, Make::Fixed(value));
        }
        self
    }

    /// A field that changes with the second.
    pub(crate) fn vary(
        &mut self,
        source: &str,
        keys: Value,
        field: &str,
        make: impl Fn(u64) -> f64 + 'static,
    ) -> &mut Scene {
        let make = Make::Varying(Rc::new(move |second| whole(make(second))));
        self.thing(source, keys).fields.insert(field.into(), make);
        self
    }

    /// A flag that changes with the second.
    pub(crate) fn flip(
        &mut self,
        source: &str,
        keys: Value,
        field: &str,
        is_set: impl Fn(u64) -> bool + 'static,
    ) -> &mut Scene {
        let make = Make::Varying(Rc::new(move |second| Value::Bool(is_set(second))));
        self.thing(source, keys).fields.insert(field.into(), make);
        self
    }

    /// The thing is there in these seconds only.
    pub(crate) fn during(
        &mut self,
        source: &str,
        keys: Value,
        seconds: std::ops::RangeInclusive<u64>,
    ) -> &mut Scene {
        self.thing(source, keys).seconds = seconds;
        self
    }

    fn thing(&mut self, source: &str, keys: Value) -> &mut Thing {
        let every_s = CADENCE.iter().find(|(name, _)| *name == source).map_or(1, |(_, every)| *every);
        let mut keys = names(keys);
        let step = keys.remove("step").and_then(|step| step.as_str().map(str::to_string)).unwrap_or_default();
        let name = format!("{step} {}", Value::Object(keys.clone()));
        let fixed = keys.into_iter().map(|(name, value)| (name, Make::Fixed(value))).collect();
        self.things.entry((source.to_string(), name)).or_insert_with(|| Thing {
            every_s,
            fields: fixed,
            seconds: 1..=u64::MAX,
            step,
        })
    }

    pub(crate) fn fact(&mut self, place: Value, topic: &str, name: &str, value: &str) -> &mut Scene {
        let mut keys = names(place);
        keys.insert("topic".into(), topic.into());
        keys.insert("name".into(), name.into());
        self.set("fact", Value::Object(keys.clone()), json!({"value": value})).during(
            "fact",
            Value::Object(keys),
            1..=1,
        )
    }

    pub(crate) fn missing(&mut self, what: &str) -> &mut Scene {
        let keys = json!({"host": "h1", "what": what});
        self.set("missing", keys.clone(), json!({"why": "no permission", "lost": "much"})).during(
            "missing",
            keys,
            1..=1,
        )
    }

    pub(crate) fn event(&mut self, second: u64, kind: &str, message: &str, more: Value) -> &mut Scene {
        self.events.push(Event {
            t_us: second * 1_000_000,
            kind: kind.into(),
            message: message.into(),
            more: names(more),
            ..Event::default()
        });
        self
    }

    pub(crate) fn stacks(&mut self, text: &str) -> &mut Scene {
        self.stacks = Some(text.to_string());
        self
    }

    pub(crate) fn drop_source(&mut self, source: &str) -> &mut Scene {
        self.things.retain(|(name, _), _| name != source);
        self
    }

    /// The things of a source whose keys, as JSON, contain this.
    pub(crate) fn drop_things(&mut self, source: &str, part: &str) -> &mut Scene {
        self.things.retain(|(name, key), _| name != source || !key.contains(part));
        self
    }

    /// Takes away what a rule needs.
    pub(crate) fn without(&mut self, need: &Need) {
        match need {
            Need::Field("wait", _) => {
                self.drop_source("wait");
            }
            Need::Field(source, "*") => {
                self.drop_source(source);
            }
            // Counts of the client are 0 where they are not said: without its lines they are not known.
            Need::Field(source @ "client", _) => {
                self.drop_source(source);
            }
            Need::Field(source, field) => {
                for ((name, _), thing) in &mut self.things {
                    if name == source {
                        thing.fields.remove(*field);
                    }
                }
            }
            Need::Looked(source) => {
                self.drop_source(source).missing(source);
                self.things.retain(|(name, key), _| {
                    name != "fact" || !key.contains(&format!("\"topic\":\"{source}\""))
                });
            }
            Need::Facts(topic) => {
                self.things.retain(|(name, key), _| {
                    name != "fact" || !key.contains(&format!("\"topic\":\"{topic}\""))
                });
            }
            Need::Stacks => self.stacks = None,
            Need::Driven => {
                self.drop_source("client");
            }
            Need::Filled => {
                self.drop_source("load");
            }
            Need::Matrix => self.run.summary.matrix = None,
            Need::Sweep => self.run.summary.sweep = None,
            Need::Proof => self.run.steps.retain(|step| step.verb != "prove"),
            Need::Peers(source, _) => {
                self.things.retain(|(name, key), _| {
                    name != source || key.contains("\"n1\"") || key.contains("\"h1\"")
                });
            }
            Need::Any(options) => options.iter().for_each(|option| self.without(option)),
        }
    }

    /// Every source with every field that this scene writes.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        self.things
            .iter()
            .flat_map(|((source, _), thing)| thing.fields.keys().map(|field| (source.clone(), field.clone())))
            .collect()
    }

    pub(crate) fn write(&self) -> Folder {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("pgfathom-scene-{}-{number}", std::process::id()));
        fs::create_dir_all(&root).expect("a folder");
        let write = |name: &str, text: String| fs::write(root.join(name), text).expect("writes");
        write(files::RUN, serde_json::to_string(&self.run).expect("JSON"));
        let header = |schema: &str| format!("{}\n", json!({"schema": schema, "schema_version": 1}));
        let mut samples = header("pgfathom.samples");
        let lines: Vec<Line> = self.things.iter().map(|((source, _), thing)| thing.line(source)).collect();
        for second in 1..=self.seconds {
            for line in lines.iter().filter(|line| line.thing.is_at(second)) {
                line.write(second, &mut samples);
            }
        }
        write(files::SAMPLES, samples);
        let mut events = header("pgfathom.events");
        for event in &self.events {
            events.push_str(&format!("{}\n", serde_json::to_string(event).expect("JSON")));
        }
        write(files::EVENTS, events);
        if let Some(stacks) = &self.stacks {
            fs::create_dir_all(root.join(files::STACKS)).expect("a folder");
            write(&format!("{}/100000000-test.perf", files::STACKS), stacks.clone());
        }
        Folder(root)
    }

    pub(crate) fn explain(&self) -> Findings {
        let folder = self.write();
        explain_folder(&folder.0)
    }

    /// A loaded and driven cluster of three nodes that nothing is wrong with.
    pub(crate) fn healthy() -> Scene {
        let mut scene = Scene::empty();
        scene.run = healthy_run();
        for (node, host) in NODES {
            healthy_node(&mut scene, node, host);
            healthy_host(&mut scene, node, host);
        }
        scene
            .set("client", json!({"step": "run"}), json!({
                "phase": "measure", "scheduled": 3000, "started": 3000, "transactions": 3000, "errors": 0, "retries": 0,
                "response_us_mean": 8000.0, "response_us_p50": 7000, "response_us_p99": 15_000, "response_us_max": 30_000,
                "service_us_mean": 7950.0, "lag_us_p99": 20, "backlog": 0, "sessions": 24, "client_cpu_us": 300_000}))
            .set("load", json!({"step": "load"}), json!({
                "phase": "copy", "rows": 10_000, "bytes": 11_000_000, "rows_goal": 10_000_000u64, "chunks": 1, "streams": 6,
                "client_cpu_us": 200_000}))
            .set("pool", json!({"node": "n1", "pooler": "dbname=pgbouncer host=db1 port=6432", "database": "db", "user": "u"}), json!({
                "pool_mode": "transaction", "clients_active": 3, "clients_waiting": 0, "servers_active": 3, "servers_free": 2, "size": 20,
                "max_wait_us": 0, "paused": false, "transactions": 900, "queries": 3_000, "transaction_us": 900_000, "query_us": 800_000, "wait_us": 1_000}))
            .set("pooler", json!({"node": "n1", "pooler": "dbname=pgbouncer host=db1 port=6432"}), json!({"clients": 40, "clients_max": 100, "refused": 0}))
            .set("session_memory", json!({"node": "n1", "application": "shop", "user": "u"}), json!({
                "sessions": 20, "private_bytes": 160_000_000, "longest_statement_s": 0.2}))
            .set("watching", json!({"node": "n1", "part": "views"}), json!({
                "cpu_us": 30_000, "server_cpu_us": 90_000, "asked_us": 120_000, "questions": 22, "cores": 8}))
            .set("watching", json!({"host": "h1", "part": "machine"}), json!({"cpu_us": 20_000, "cores": 8}))
            .vary("load", json!({"step": "load"}), "rows_total", |second| second as f64 * 1e4)
            .stacks(include_str!("../fixtures/healthy.perf"));
        scene
    }
}

pub(crate) fn explain_folder(folder: &Path) -> Findings {
    explain::explain(folder, "test").expect("explains")
}

fn healthy_run() -> Run {
    let end = SECONDS * 1_000_000;
    let step = |key: &str, verb: &str, phase: &str| Step {
        key: key.into(),
        verb: verb.into(),
        name: key.into(),
        state: State::Finished,
        start_us: 0,
        end_us: Some(end),
        phases: vec![Phase { name: phase.into(), start_us: 0, end_us: Some(end) }],
        ..Step::default()
    };
    let mut run_step = step("run", "run", "measure");
    run_step.parameters = names(json!({"workers": 1, "sessions": 24, "rate_per_s": null}));
    let mut proof = step("prove", "prove", "check");
    proof.checks = vec![Check { name: "C1".into(), result: CheckResult::Ok, rows: 10, ..Check::default() }];
    let mut run = Run {
        schema_version: 1,
        run_id: "scene".into(),
        verb: "run".into(),
        state: State::Finished,
        ended_us: Some(end),
        target: Some(Target { engine: "postgres".into(), ..Target::default() }),
        steps: vec![step("load", "load", "copy"), run_step, proof],
        ..Run::default()
    };
    let even = vec![
        vec![Some(10_000.0), Some(9_000.0), Some(9_100.0)],
        vec![Some(9_000.0), Some(10_100.0), Some(9_050.0)],
        vec![Some(9_080.0), Some(9_020.0), Some(10_050.0)],
    ];
    run.summary.matrix = Some(Matrix::of_rates(&["n1", "n2", "n3"], "select", &even));
    let point = |sessions: u64, tps: f64| Point { sessions, tps: Some(tps), ..Point::default() };
    run.summary.sweep = Some(Sweep {
        curves: vec![Curve {
            name: "ycsb-a".into(),
            points: vec![point(1, 100.0), point(2, 198.0), point(4, 390.0)],
            ..Curve::default()
        }],
        mixes: vec![Mix { sessions: 4, read_percent: 50, factor: 1.0, ..Mix::default() }],
    });
    run
}

fn healthy_node(scene: &mut Scene, node: &str, host: &str) {
    let of = json!({"node": node});
    scene
        .set("server", of.clone(), json!({
            "rtt_us": 200, "sessions_total": 20, "sessions_active": 6, "sessions_waiting_lock": 0, "xact_commit": 1000, "xact_rollback": 0,
            "tup_inserted": 1500, "relations_made": 0, "tup_updated": 1000, "tup_deleted": 0, "tup_returned": 20_000, "tup_fetched": 10_000, "deadlocks": 0,
            "blks_read": 300, "blks_hit": 40_000, "active_ms": 6000.0, "idle_in_transaction_ms": 0.0, "sessions_opened": 0,
            "wal_bytes": 2_000_000, "wal_records": 5000, "wal_fpi": 10, "wal_buffers_full": 0, "checkpoints_timed": 0,
            "checkpoints_requested": 0, "in_recovery": false, "autovacuum_workers": 1, "autovacuum_workers_max": 3,
            "freeze_max_age_xids": 200_000_000u64, "prepared_xacts": 0, "prepared_age_s_max": 0.0, "sessions_max": 100, "conflicts": 0,
            "backend_writes": 5, "cleaner_stops": 0, "archived_failed": 0}))
        .vary("server", of.clone(), "database_age_xids", |second| 1e6 + second as f64 * 1000.0)
        .set("wait", wait(node, "CPU", "CPU"), json!({"sessions": 5}))
        .set("wait", wait(node, "IO", "DataFileRead"), json!({"sessions": 1}))
        .set("wait", wait(node, "IO", "WALSync"), json!({"sessions": 1}))
        .set("wait", vacuum_wait(node, "CPU", "CPU"), json!({"sessions": 1}))
        .set("node", of.clone(), json!({"transactions": 1000, "errors": 0, "response_us_p99": 5000}))
        .set("statement", json!({"node": node, "database": "db", "query_id": "1"}), json!({"calls": 10_000, "total_ms": 900.0, "plan_ms": 0.0, "jit_ms": 0.0, "rows": 10_000, 
            "shared_hit": 40_000, "shared_read": 3000, "temp_written": 0}))
        .set("schedule", json!({"host": host, "node": node, "who": "backends"}), json!({"authenticating": 0, 
            "tasks": 20, "looked": 20, "run_us": 3_000_000, "wait_us": 400_000, "turns": 3000}))
        .set("table", json!({"node": node, "database": "db", "relation": "public.usertable"}), json!({
            "bytes": 1_000_000_000u64, "index_bytes": 100_000_000, "live_rows": 1_000_000, "dead_rows": 500, "rows_inserted": 90_000,
            "rows_updated": 60_000, "rows_deleted": 0, "seq_scans": 0, "seq_rows": 0, "autovacuums": 1, "primary_key": true,
            "rows_hot_updated": 55_000, "planned_rows": 990_000, "changed_since_analyze": 20_000, "analyzes_total": 3, "analyzed_s": 60.0,
            "autovacuum": true, "blocks_hit": 2_000_000, "blocks_read": 10_000, "index_rows": 600_000, "index_scans": 600_000, "indexes": 1, "triggers": 0, "all_visible_share": 0.99,
            "unindexed_references": 0,
            "replica_identity": "default", "published": false, "tablespace": "pg_default", "index_tablespaces": "pg_default"}))
        .set("plan", json!({"node": node, "query_id": "1", "hash": "a1"}), json!({
            "database": "db", "how": "generic", "cost_total": 8.5, "rows_planned": 1.0, "nodes": 1, "partitions": 0, "jit_above_cost": 100_000.0, "work_mem_bytes": 4_194_304}))
        .set("plan_node", json!({"node": node, "query_id": "1", "hash": "a1", "number": 1}), json!({
            "above": 0, "kind": "Index Scan", "relation": "public.usertable", "index": "usertable_pkey", "condition": "(ycsb_key = $1)", "rows_planned": 1.0, "width_bytes": 1000}))
        .set("what_if", json!({"node": node, "query_id": "1", "hash": "a1", "change": "SET work_mem = '256MB';"}), json!({
            "kind": "setting", "cost_before": 8.5, "cost_after": 8.5, "used": false}))
        .set("clock", of.clone(), json!({"offset_us": 50, "error_us": 100}))
        .set("backend", json!({"host": host, "node": node, "pid": 100, "backend": "client backend"}), json!({"cpu_us": 200_000, "state": "S", "blocked_write": 0, "stopped": 0}))
        .fact(of.clone(), "setting", "wal_level", "replica")
        .fact(of.clone(), "setting", "data_directory", "/data/pg")
        .fact(of.clone(), "setting", "huge_pages", "try")
        .fact(of.clone(), "setting", "shared_buffers", "16GB")
        .fact(of.clone(), "setting", "autovacuum", "on")
        .fact(of, "setting", "max_wal_size", "32GB");
}

fn healthy_host(scene: &mut Scene, _node: &str, host: &str) {
    let of = json!({"host": host});
    scene
        .set("host", of.clone(), json!({
            "cpu_system_pct": 15.0, "cpu_iowait_pct": 2.0, "cpu_softirq_pct": 1.0, "cpu_steal_pct": 0.0, "cores": 8,
            "psi_io_full_pct": 0.1, "psi_memory_some_pct": 0.0, "memory_available_bytes": 30_000_000_000u64,
            "memory_total_bytes": 64_000_000_000u64, "page_tables_bytes": 100_000_000, "writeback_bytes": 1_000_000, "swap_in_bytes": 0,
            "swap_out_bytes": 0, "oom_kills": 0, "tcp_retransmits": 0, "tcp_segments_out": 5000, "softnet_drops": 0, "softnet_squeezed": 0}))
        .vary("host", of.clone(), "cpu_user_pct", |second| 45.0 + (second * 7 % 5) as f64)
        .set("core", json!({"host": host, "cpu": 0}), json!({"busy_pct": 60.0, "softirq_pct": 5.0}))
        .set("net", json!({"host": host, "interface": "eth0"}), json!({"rx_bytes": 9_000_000, "tx_bytes": 9_000_000, "rx_packets": 5000, "tx_packets": 5000, "rx_drops": 0, "tx_drops": 0, "errors": 0}))
        .set("mount", json!({"host": host, "mount": "/data"}), json!({"device": "/dev/md0", "filesystem": "ext4", "options": "rw,noatime", "size_bytes": 10_000_000_000_000u64, "used_for": "pgdata"}))
        .vary("mount", json!({"host": host, "mount": "/data"}), "free_bytes", |second| 5e12 - second as f64 * 4e6)
        .set("mount", json!({"host": host, "mount": "/wal"}), json!({"device": "/dev/nvme2n1", "filesystem": "xfs", "options": "rw", "size_bytes": 1_000_000_000_000u64, "free_bytes": 900_000_000_000u64, "used_for": "wal"}))
        .set("hardware", json!({"host": host, "kind": "numa", "name": "node0 local_node"}), json!({"value": 100_000, "change": 5000}))
        .set("hardware", json!({"host": host, "kind": "mb_stats", "name": "md0 reqs"}), json!({"value": 1000, "change": 100}))
        .set("hardware", json!({"host": host, "kind": "mb_stats", "name": "md0 groups_considered"}), json!({"value": 2000, "change": 200}))
        .fact(of.clone(), "kernel", "release", "6.1.0-25-amd64")
        .fact(of.clone(), "mount", "/data", "/dev/md0 ext4 rw,noatime")
        .fact(of.clone(), "nic", "eth0 rx queues", "8")
        .fact(of.clone(), "nic", "eth0 speed", "10000 Mbit/s")
        .fact(of.clone(), "audit", "lost", "0")
        .fact(of, "cpu", "memory nodes", "2");
    for device in ["nvme0n1", "nvme1n1", "nvme3n1"] {
        scene.set("disk", disk(host, device), json!({
            "member_of": "md0", "used_for": "pgdata", "reads": 200, "writes": 300, "flushes": 20, "read_bytes": 1_600_000,
            "write_bytes": 2_400_000, "read_await_ms": 0.2, "flush_await_ms": 0.1, "queue": 0.4, "util_pct": 20.0}));
        scene.vary("disk", disk(host, device), "write_await_ms", |second| {
            0.15 + (second * 7 % 10) as f64 / 500.0
        });
    }
}

pub(crate) fn disk(host: &str, device: &str) -> Value {
    json!({"host": host, "device": device})
}

pub(crate) fn wait(node: &str, kind: &str, event: &str) -> Value {
    json!({"node": node, "backend": "client backend", "state": "active", "wait_type": kind, "wait_event": event, "query_id": "1"})
}

pub(crate) fn vacuum_wait(node: &str, kind: &str, event: &str) -> Value {
    json!({"node": node, "backend": "autovacuum worker", "state": "active", "wait_type": kind, "wait_event": event})
}
