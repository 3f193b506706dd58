//! Severity by the share of the time: what takes nearly all of it is not low, waits of a fraction of a session are not high, and a server that does what it is
//! for stays quiet.

use crate::advice::{fired, of};
use crate::fire::form::select;
use crate::fire::plan::{node, statement};
use crate::scene::Scene;
use record::finding::{Finding, Severity};
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

fn severity(scene: &Scene, rule: &str) -> Option<Severity> {
    let found = scene.explain().findings;
    found.iter().filter(|finding| finding.rule == rule).map(|finding: &Finding| finding.severity).max()
}

/// A node with so much session time in a second, of which a statement has this share: it reads an index, for so many rows.
fn one_statement(text: &str, active_ms: f64, share: f64, rows: u64) -> Scene {
    let mut scene = Scene::healthy();
    scene.drop_source("statement");
    for (kind, event) in [("CPU", "CPU"), ("IO", "DataFileRead")] {
        scene.set("wait", crate::scene::wait("n1", kind, event), json!({"sessions": 0}));
    }
    let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": "9"});
    scene.set("wait", keys, json!({"sessions": (active_ms / 1e3).round().max(1.0) as u64}));
    scene.set("server", n1(), json!({"active_ms": active_ms, "sessions_active": 1}));
    let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
    scene.set("schedule", backends, json!({"run_us": active_ms * 950.0, "wait_us": 0}));
    let total_ms = active_ms * share * 10.0;
    let figures =
        json!({"calls": 20, "total_ms": total_ms, "rows": rows, "shared_hit": 900_000, "shared_read": 0});
    statement(&mut scene, text, figures, json!({"cost_total": 90_000.0}));
    let fields = json!({"relation": "public.orders", "index": "orders_at", "rows_planned": 40_000.0, "table_rows": 1_000_000.0,
        "cost_total": 89_000.0, "condition": "(orders.customer = $1)"});
    node(&mut scene, 1, 0, "Index Scan", fields);
    scene
}

const SEARCH: &str = "select note from orders where customer = $1 and state <> $2";

#[test]
fn an_uncertain_claim_about_nearly_all_of_the_time_is_medium() {
    let found = one_statement(SEARCH, 2_000.0, 0.96, 60).explain();
    let finding = of(&found, "PLAN-45");
    assert_eq!(finding.severity, Severity::Medium, "{finding:?} {:?}", found.node_time[0]);
}

/// A table that autovacuum must not touch, in which nearly all of the little session time goes.
fn off(active_ms: f64) -> Scene {
    let mut scene = Scene::healthy();
    for (kind, event) in [("CPU", "CPU"), ("IO", "DataFileRead")] {
        scene.set("wait", crate::scene::wait("n1", kind, event), json!({"sessions": 0}));
    }
    let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
    scene.set("schedule", backends, json!({"run_us": active_ms * 900.0, "wait_us": 0}));
    scene.set("server", n1(), json!({"active_ms": active_ms}));
    for (table, blocks, dead) in
        [("public.outbox", 9_000_000_000u64, 700_000u64), ("public.orders", 1_000, 0)]
    {
        let keys = json!({"node": "n1", "database": "db", "relation": table});
        scene.set(
            "table",
            keys,
            json!({"autovacuum": dead == 0, "autovacuum_options": if dead > 0 { "autovacuum_enabled=off" } else { "" }, "dead_rows": dead,
                "live_rows": 1_200, "rows_updated": 60_000, "blocks_hit": blocks, "blocks_read": 0}),
        );
    }
    scene
}

#[test]
fn waste_of_most_of_little_time_is_medium_and_a_wait_of_little_time_is_low() {
    assert!(severity(&off(6_000.0), "VAC-08") >= Some(Severity::Medium));
    assert_eq!(severity(&off(200.0), "VAC-08"), Some(Severity::Medium));
}

#[test]
fn indexes_that_nothing_reads_count_by_the_time_of_their_writers() {
    let of_writers = |unscanned: &str| {
        let mut scene = fired("PLAN-26");
        // The text of many rows is cut off.
        let text = "insert into measurement(a, b) values ($1, $2), ($3";
        crate::fire::work::statement(
            &mut scene,
            "71",
            text,
            json!({"calls": 90_000, "total_ms": 60_000.0, "rows": 90_000}),
        );
        let keys = json!({"node": "n1", "database": "db", "relation": "public.measurement"});
        scene.set(
            "table",
            keys,
            json!({"unscanned_indexes": unscanned, "rows_inserted": 800_000, "indexes": 4}),
        );
        let found = scene.explain();
        let finding = of(&found, "PLAN-26");
        assert!(finding.impact.is_some_and(|share| share > 0.5), "{finding:?}");
        finding.severity
    };
    assert_eq!(of_writers("m_a (btree)"), Severity::Medium);
    assert_eq!(of_writers("m_a (btree); m_b (btree); m_c (btree)"), Severity::High);
}

#[test]
fn small_shared_buffers_have_the_share_of_the_reads() {
    let mut scene = fired("MEM-04");
    scene.set("wait", crate::scene::wait("n1", "IO", "DataFileRead"), json!({"sessions": 30}));
    let found = scene.explain();
    let finding = of(&found, "MEM-04");
    assert!(finding.impact.is_some_and(|share| share > 0.5), "{finding:?}");
    assert_eq!(finding.severity, Severity::High, "{finding:?}");
}

/// Sessions that wait for a CPU while another program uses most of them.
fn crowded(wait_us: u64, active_ms: f64) -> Scene {
    let mut scene = fired("SES-02");
    let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
    scene.set("schedule", backends, json!({"run_us": wait_us / 2, "wait_us": wait_us}));
    scene.set("server", n1(), json!({"active_ms": active_ms}));
    for (kind, event) in [("CPU", "CPU"), ("IO", "DataFileRead")] {
        scene.set("wait", crate::scene::wait("n1", kind, event), json!({"sessions": 0}));
    }
    scene
}

#[test]
fn a_late_answer_on_a_host_without_a_cpu_to_spare_is_a_symptom() {
    let late = |cpu_pct: f64| {
        let mut scene = crowded(4_000_000, 6_000.0);
        scene.vary("host", json!({"host": "h1"}), "cpu_user_pct", move |second| {
            cpu_pct + (second * 7 % 3) as f64
        });
        scene.during("server", n1(), 1..=100);
        let later = json!({"node": "n1", "later": 1});
        scene.set("server", later.clone(), json!({"asked_us": 14_000_000u64})).during(
            "server",
            later,
            115..=180,
        );
        let found = scene.explain().findings;
        found
            .into_iter()
            .find(|one| one.rule == "OBS-01" && one.claim.contains("did not answer"))
            .expect("late")
    };
    let full = late(84.0);
    assert_eq!(full.symptom_of.as_deref(), Some("SES-02"), "{full:?}");
    assert!(!full.remedy.text.contains("storage"), "{full:?}");
    let idle = late(40.0);
    assert!(idle.symptom_of.is_none() && idle.remedy.text.contains("storage"), "{idle:?}");
}

#[test]
fn an_aggregate_over_a_table_is_what_a_report_is_for() {
    let mut scene = Scene::healthy();
    select(&mut scene, "select state, sum(amount) from orders group by state", 900_000, 5);
    let worst = scene
        .explain()
        .findings
        .into_iter()
        .filter(|one| one.rule == "PLAN-45")
        .map(|one| one.severity)
        .max();
    assert!(worst <= Some(Severity::Low), "{worst:?}");
}

/// Of each rule that gives a share, the remedy has a range of what it saves: that is also what keeps it low where the server hardly works. These have none: their
/// share is not one of the time, or their case's server is idle; the list only becomes shorter.
#[test]
fn a_share_has_a_saving_beside_it() {
    const WITHOUT: [&str; 19] = [
        "CPU-05", "CPU-07", "DIST-08", "DIST-09", "FS-03", "IO-11", "NET-03", "OBS-02", "PLAN-16", "PLAN-17",
        "PLAN-18", "PLAN-62", "SEC-01", "SES-10", "SES-11", "SES-12", "TXN-08", "WAL-13", "WAL-14",
    ];
    let mut without = std::collections::BTreeSet::new();
    for (rule, _, change) in crate::fire::all() {
        let mut scene = Scene::healthy();
        change(&mut scene);
        let findings = scene.explain().findings;
        let found = findings.iter().find(|finding| finding.rule == *rule);
        if found.is_some_and(|found| found.numbers.contains_key("share") && found.benefit.is_none()) {
            without.insert(*rule);
        }
    }
    assert_eq!(without, WITHOUT.into());
}
