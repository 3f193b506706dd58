//! Two intervals of a recording, and two recordings: what changed is named and weighed, and what did not is not.

use crate::scene::{Scene, wait};
use explain::Detail;
use explain::case::Case;
use explain::comparison::{Change, Comparison, Fate, NodeChange, compare, text};
use record::event;
use record::finding::Window;
use serde_json::{Value, json};

/// The second from which the changed half is another.
const CHANGED_S: u64 = 90;

fn seconds(from: u64, to: u64) -> Option<Window> {
    Some(Window::new(from * 1_000_000, to * 1_000_000))
}

/// The first half of a scene against its second.
fn halves(scene: &Scene) -> Comparison {
    let folder = scene.write();
    let of = |interval| Case::open_within(&folder.0, interval).expect("a run directory");
    compare(&of(seconds(0, CHANGED_S)), &of(seconds(CHANGED_S, 180)), "test")
}

fn n1(comparison: &Comparison) -> &NodeChange {
    comparison.nodes.iter().find(|node| node.node == "n1").expect("n1 is on both sides")
}

fn named<'a>(changes: &'a [Change], name: &str) -> &'a Change {
    changes
        .iter()
        .find(|change| change.name == name)
        .unwrap_or_else(|| panic!("{name} is not in {changes:#?}"))
}

fn statement(id: &str) -> Value {
    json!({"node": "n1", "database": "db", "query_id": id})
}

/// A value of the first half and one of the second.
fn then(before: f64, after: f64) -> impl Fn(u64) -> f64 + 'static {
    move |second| if second <= CHANGED_S { before } else { after }
}

/// A server whose statement 9 becomes slow because it gets another plan, beside a new report.
fn changed() -> Scene {
    let mut scene = Scene::healthy();
    let server = json!({"node": "n1"});
    scene
        .vary("server", server.clone(), "active_ms", then(6_000.0, 12_000.0))
        .vary("server", server.clone(), "xact_commit", then(1_000.0, 500.0))
        .vary("server", server, "temp_bytes", then(0.0, 5e6))
        .vary("wait", wait("n1", "IO", "DataFileRead"), "sessions", then(1.0, 8.0));
    let own = "select json_build_object($1, pg_catalog.now())";
    for (id, text) in [
        ("9", "select * from orders where customer = $1"),
        ("10", "select sum(total) from orders"),
        ("11", own),
    ] {
        scene.event(1, event::QUERY, "", json!({"query_id": id, "text": text}));
    }
    scene
        .set("statement", statement("9"), json!({"calls": 10_000, "rows": 10_000, "shared_hit": 40_000}))
        .vary("statement", statement("9"), "total_ms", then(10_000.0, 40_000.0))
        .set("statement", statement("10"), json!({"calls": 20, "total_ms": 30_000.0}))
        .during("statement", statement("10"), CHANGED_S + 1..=180)
        // Looks of watch are no change of the load.
        .set("statement", statement("11"), json!({"calls": 20, "total_ms": 30_000.0}))
        .during("statement", statement("11"), CHANGED_S + 1..=180);
    for (hash, kind, index, from) in [("c0", "Index Scan", "orders_customer", 1), ("c1", "Seq Scan", "", 100)]
    {
        let plan = json!({"node": "n1", "query_id": "9", "hash": hash});
        let node = json!({"node": "n1", "query_id": "9", "hash": hash, "number": 1});
        scene
            .set("plan", plan.clone(), json!({"database": "db", "cost_total": 10.0}))
            .during("plan", plan, from..=from)
            .set(
                "plan_node",
                node.clone(),
                json!({"above": 0, "kind": kind, "relation": "public.orders", "index": index}),
            )
            .during("plan_node", node, from..=from);
    }
    let setting = |second: u64| json!({"node": "n1", "topic": "setting", "name": "work_mem", "told": second});
    for (second, value) in [(1, "64MB"), (CHANGED_S + 1, "1MB")] {
        scene.set("fact", setting(second), json!({"value": value})).during(
            "fact",
            setting(second),
            second..=second,
        );
    }
    scene
}

#[test]
fn halves_of_a_steady_recording_are_the_same() {
    let found = halves(&Scene::healthy());
    assert_eq!(found.nodes.len(), 3);
    for node in &found.nodes {
        assert!(node.total.weight.expect("a share").abs() < 0.02, "{node:#?}");
        assert!(
            node.parts.iter().all(|part| part.weight.expect("a share").abs() < 0.02),
            "{:#?}",
            node.parts
        );
        assert!(node.statements.is_empty() && node.facts.is_empty() && node.load.is_empty(), "{node:#?}");
    }
    assert!(
        found.findings_new.is_empty() && found.findings_gone.is_empty() && found.host_facts.is_empty(),
        "{found:#?}"
    );
    assert!(text(&found, Detail::Short).contains("no part of the time changed noticeably"));
}

#[test]
fn what_changed_is_named_and_its_shares_add_up() {
    let found = halves(&changed());
    let node = n1(&found);
    // 6 sessions and 1,000 transactions a second, then 12 and 500: 6 ms a transaction, then 24 ms, about.
    let total = node.total.weight.expect("a share");
    assert!((2.5..3.5).contains(&total), "{node:#?}");
    let parts: f64 = node.parts.iter().filter_map(|part| part.weight).sum();
    assert!((parts - total).abs() < 0.01, "{parts} of {total}");
    assert!(named(&node.parts, "reading").weight > Some(1.0), "{:#?}", node.parts);
    assert!(named(&node.waits, "IO:DataFileRead").after > named(&node.waits, "IO:DataFileRead").before);
    assert_eq!(named(&node.work, "bytes of temporary files").before, 0.0);

    let slower = &node.statements[0];
    assert_eq!((slower.query_id.as_str(), slower.fate), ("9", Fate::Kept), "{:#?}", node.statements);
    // The number of executions for each transaction doubled, and each takes four times as long: the two effects are the whole.
    let (by_calls, by_duration) = (slower.by_calls.expect("counted"), slower.by_duration.expect("counted"));
    assert!(
        (by_calls + by_duration - slower.weight).abs() < 1e-9 && by_duration > by_calls && by_calls > 0.0
    );
    let [before, after] = slower.plan.as_ref().expect("another plan");
    assert_eq!(
        (before.as_str(), after.as_str()),
        ("Index Scan on public.orders by orders_customer", "Seq Scan on public.orders")
    );
    let new = node.statements.iter().find(|statement| statement.query_id == "10").expect("the report");
    assert_eq!((new.fate, new.by_calls), (Fate::New, None));
    assert_eq!(node.facts.len(), 1);
    assert_eq!((node.facts[0].before.as_str(), node.facts[0].after.as_str()), ("64MB", "1MB"));
    // The other nodes did not change.
    assert!(found.nodes.iter().filter(|other| other.node != "n1").all(|other| other.statements.is_empty()));

    let page = text(&found, Detail::Full);
    for part in [
        "n1: a transaction takes",
        "another plan: Seq Scan on public.orders",
        "new",
        "setting work_mem: 1MB, before 64MB",
    ] {
        assert!(
            page.split_whitespace().collect::<Vec<_>>().join(" ").contains(part),
            "{part} is missing in {page}"
        );
    }
}

#[test]
fn two_recordings_are_compared_by_nodes_and_texts() {
    let (mut old, mut new) = (Scene::healthy(), Scene::healthy());
    // The same statement has another number on the new server, and a node has left.
    new.drop_things("statement", r#""node":"n1","query_id":"1""#);
    let text_of = |id: &str| json!({"query_id": id, "text": "select 1"});
    old.event(1, event::QUERY, "", text_of("1"));
    new.event(1, event::QUERY, "", text_of("77"));
    new.set("statement", statement("77"), json!({"calls": 10_000, "total_ms": 900.0, "plan_ms": 0.0}));
    new.drop_things("server", r#""node":"n3""#);
    let (old, new) = (old.write(), new.write());
    let open = |dir: &std::path::Path| Case::open(dir).expect("a run directory");
    let found = compare(&open(&old.0), &open(&new.0), "test");
    assert_eq!(found.nodes.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["n1", "n2"]);
    assert!(n1(&found).statements.is_empty(), "{:#?}", n1(&found).statements);
    assert!(
        found.missing.iter().any(|missing| missing == "node n3 is only in the earlier recording"),
        "{:?}",
        found.missing
    );
}

#[test]
fn recordings_without_a_server_say_so() {
    let mut empty = Scene::healthy();
    empty.drop_source("server").drop_source("wait");
    let (old, new) = (empty.write(), Scene::healthy().write());
    let open = |dir: &std::path::Path| Case::open(dir).expect("a run directory");
    let found = compare(&open(&old.0), &open(&new.0), "test");
    assert!(found.nodes.is_empty());
    assert!(
        text(&found, Detail::Short).contains("not compared: the earlier side has no samples"),
        "{:?}",
        found.missing
    );
}
