//! Rows that are committed or fetched one by one, indexes that are searched by later columns, and what looks like that.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::{Scene, wait};
use record::event;
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

/// Sessions that wait for the WAL and do little else; the statement that they execute, its executions in ten seconds, and the commits.
pub(crate) fn committed(scene: &mut Scene, text: &str, sessions: u64, calls: u64, commits: u64) {
    scene.event(1, event::QUERY, "", json!({"query_id": "1", "text": text}));
    let keys = json!({"node": "n1", "database": "db", "query_id": "1"});
    scene.set("statement", keys, json!({"calls": calls, "rows": calls, "total_ms": 900.0}));
    scene.set("server", n1(), json!({"xact_commit": commits / 10, "sessions_active": sessions, "active_ms": 1_000.0 * sessions as f64}));
    for (kind, event, sessions) in [("CPU", "CPU", 0), ("IO", "DataFileRead", 0), ("IO", "WALSync", sessions)]
    {
        scene.set("wait", wait("n1", kind, event), json!({"sessions": sessions}));
    }
    let keys = json!({"host": "h1", "node": "n1", "who": "backends"});
    scene.set("schedule", keys, json!({"run_us": 50_000, "wait_us": 10_000}));
}

const INSERT: &str = "insert into measurement (device, value) values ($1, $2)";

/// A statement that searches an index by the columns of this condition.
fn skipped(scene: &mut Scene, condition: &str, blocks: u64, rows: f64) {
    let text = "select count(*) from reading where at > $1";
    statement(scene, text, json!({"calls": 100, "rows": 100, "shared_hit": blocks * 100}), json!({}));
    node(scene, 1, 0, "Aggregate", json!({}));
    node(
        scene,
        2,
        1,
        "Bitmap Heap Scan",
        json!({"relation": "public.reading", "condition": condition, "rows_planned": rows}),
    );
    node(
        scene,
        3,
        2,
        "Bitmap Index Scan",
        json!({"index": "reading_key", "condition": condition, "rows_planned": rows}),
    );
    let keys = json!({"node": "n1", "relation": "public.reading", "index": "reading_key"});
    scene.set(
        "plan_index",
        keys,
        json!({"columns": "device; at", "method": "btree", "valid": true, "partial": false}),
    );
}

/// A refresh that was seen at work, without counts, and sessions that wait for a table.
fn refreshed(scene: &mut Scene, waiting: u64) {
    scene.event(1, event::QUERY, "", json!({"query_id": "9", "text": "refresh materialized view totals"}));
    let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": "9"});
    scene.set("wait", keys, json!({"sessions": 1}));
    scene.set("wait", wait("n1", "Lock", "relation"), json!({"sessions": waiting}));
}

/// A list that is read under two ids, and the lines of each of its rows.
fn lines(scene: &mut Scene, rows: [u64; 2]) {
    let text = "select l.sku from line l where l.order_id = $1";
    statement(scene, text, json!({"calls": 60_000, "rows": 180_000, "total_ms": 9_000.0}), json!({}));
    for (id, rows) in [("21", rows[0]), ("22", rows[1])] {
        scene.event(
            1,
            event::QUERY,
            "",
            json!({"query_id": id, "text": "select id from orders where shop = $1"}),
        );
        let keys = json!({"node": "n1", "database": "db", "query_id": id});
        scene.set("statement", keys, json!({"calls": rows / 200, "rows": rows, "total_ms": 10.0}));
    }
}

/// A scan by several processes whose condition keeps so many rows of each.
fn aggregated(scene: &mut Scene, kept: f64) {
    let text = "select kind, sum(bytes) from visit where kind <> $1 group by kind";
    statement(scene, text, json!({"calls": 100, "rows": 600, "shared_hit": 900_000}), json!({}));
    node(scene, 1, 0, "Aggregate", json!({}));
    node(scene, 2, 1, "Gather Merge", json!({}));
    let fields = json!({"relation": "public.visit", "filter": "(kind <> $1)", "table_rows": 900_000.0, "rows_planned": kept});
    node(scene, 3, 2, "Seq Scan", fields);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.visit"});
    scene.set("table", keys, json!({"seq_scans": 1800, "seq_rows": 540_000_000u64}));
}

/// A scan below an aggregate that keeps so many of 900,000 rows by this condition, of whose column the most frequent value has a share.
fn counted(scene: &mut Scene, filter: &str, kept: f64, most: &str) {
    let text = "select count(*) from visit where region = $1";
    statement(scene, text, json!({"calls": 100, "rows": 100, "shared_hit": 900_000}), json!({}));
    node(scene, 1, 0, "Aggregate", json!({}));
    let fields = json!({"relation": "public.visit", "filter": filter, "table_rows": 900_000.0, "rows_planned": kept, "column_most": most});
    node(scene, 2, 1, "Seq Scan", fields);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.visit"});
    scene.set("table", keys, json!({"seq_scans": 600, "seq_rows": 540_000_000u64}));
}

/// A condition on what a window function has computed.
fn numbered(scene: &mut Scene, filter: &str, end: &str) {
    let text =
        format!("select * from (select *, rank() over (order by val desc) r from sample) x where {end}");
    statement(scene, &text, json!({"calls": 10, "rows": 10, "shared_hit": 900_000}), json!({}));
    node(scene, 1, 0, "Subquery Scan", json!({"alias": "x", "filter": filter, "rows_planned": 35.0}));
    node(scene, 2, 1, "WindowAgg", json!({"rows_planned": 700_000.0}));
    node(scene, 3, 2, "Sort", json!({"condition": "sample.val DESC", "rows_planned": 700_000.0}));
    node(
        scene,
        4,
        3,
        "Seq Scan",
        json!({"relation": "public.sample", "rows_planned": 700_000.0, "table_rows": 700_000.0}),
    );
}

/// A partition of a table with its bound and so many rows; the time is in the first of them.
fn parted(scene: &mut Scene, partitions: &[(&str, &str, u64)]) {
    for (place, (name, bound, rows)) in partitions.iter().enumerate() {
        let keys = json!({"node": "n1", "database": "db", "relation": format!("public.{name}")});
        let hits = if place == 0 { 20_000_000 } else { 0 };
        scene.set("table", keys, json!({"live_rows": rows, "blocks_hit": hits, "blocks_read": 0, "partition_of": "public.reading", "partition_bound": bound}));
    }
}

const JANUARY: &str = "FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')";

/// A table whose rows are written again and again by an upsert of its whole feed, with so many dead ones, and a search of it.
fn upserted(scene: &mut Scene, text: &str, dead: u64) {
    let figures = json!({"calls": 3, "total_ms": 30_000.0, "rows": 450_000, "shared_hit": 9_000_000});
    super::work::statement(scene, "9", text, figures);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.offer"});
    scene.set("table", keys, json!({"blocks_hit": 20_000_000, "blocks_read": 0, "live_rows": 150_000, "planned_rows": 150_000, "dead_rows": dead,
        "changed_since_analyze": 1_500_000, "analyzes_total": 1, "analyzed_s": 60.0}));
}

/// Lists of so many lengths, each of which is another entry, and so many entries without a line.
pub(crate) fn lengths(scene: &mut Scene, lines: u64, left: u64) {
    for line in 0..lines {
        let list = (1..=120 + line).map(|n| format!("${n}")).collect::<Vec<_>>().join(",");
        let text = format!("select id, name from product where id in ({list})");
        let figures = json!({"calls": 4, "total_ms": 200.0, "rows": 400, "shared_hit": 4_000});
        super::work::statement(scene, &(100 + line).to_string(), &text, figures);
    }
    scene.set(
        "statement_rest",
        n1(),
        json!({"entries": left, "calls": left * 4, "total_ms": left as f64 * 200.0}),
    );
}

/// Two of many statements that differ each time, and how often pg_stat_statements threw entries away in each second. The others take the rest of the time.
pub(super) fn unlike(scene: &mut Scene, total_ms: f64, evictions: u64) {
    for (id, column) in [("1", "colour"), ("2", "weight")] {
        let text = format!("select {column}, n from product_{id} where shop = $1");
        let figures = json!({"calls": 4, "total_ms": total_ms, "rows": 4, "shared_hit": 40});
        super::work::statement(scene, id, &text, figures);
    }
    scene.fact(n1(), "setting", "pg_stat_statements.max", "1000");
    scene.set(
        "statement_rest",
        n1(),
        json!({"entries": 900, "calls": 900, "total_ms": 300.0, "evictions": evictions}),
    );
}

/// Rules, levels and changes.
pub(super) const CASES: &[Fires] = &[
    ("WAL-14", Counter, |scene| committed(scene, INSERT, 1, 9_000, 9_100)),
    ("PLAN-91", Counter, |scene| unlike(scene, 40.0, 3)),
    // With another tool that keeps the statements apart, they wait for its lock.
    ("PLAN-91", Counter, |scene| {
        unlike(scene, 40_000.0, 3);
        let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "LWLock", "wait_event": "pg_stat_statements"});
        scene.set("wait", wait, json!({"sessions": 3}));
    }),
    ("PLAN-83", Co, |scene| skipped(scene, "(at > $1)", 9_000, 3_000.0)),
    ("VAC-15", Counter, |scene| refreshed(scene, 3)),
    ("PLAN-86", Co, |scene| {
        parted(scene, &[("reading_default", "DEFAULT", 800_000), ("reading_01", JANUARY, 30_000)])
    }),
    ("PLAN-05", Co, |scene| upserted(scene, "select sku from offer where vendor = $1 order by price", 500)),
    ("PLAN-39", Co, |scene| lengths(scene, 12, 150)),
    ("TXN-11", Co, |scene| lines(scene, [40_000, 20_000])),
    ("PLAN-31", Counter, |scene| numbered(scene, "(x.r = $1)", "r = $1")),
    ("CFG-01", Co, |scene| {
        scene.fact(n1(), "setting", "io_workers", "1");
        scene.set("wait", wait("n1", "IO", "AioIoCompletion"), json!({"sessions": 3}));
    }),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // Statements that are known, though others are thrown away; and one whose others are only many.
    ("PLAN-91", |scene| unlike(scene, 40_000.0, 3)),
    ("PLAN-91", |scene| unlike(scene, 40.0, 0)),
    // Each session has two parallel workers, whose time the extension does not count.
    ("PLAN-91", |scene| {
        unlike(scene, 12_000.0, 3);
        for id in ["1", "2"] {
            for backend in ["client backend", "parallel worker"] {
                let wait = json!({"node": "n1", "backend": backend, "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": id});
                scene.set(
                    "wait",
                    wait,
                    json!({"sessions": if backend == "parallel worker" { 2 } else { 1 }}),
                );
            }
        }
    }),
    // A transaction of many rows, one with more statements, and sessions that commit together.
    ("WAL-14", |scene| committed(scene, INSERT, 1, 9_000, 900)),
    ("WAL-14", |scene| committed(scene, "select value from measurement where device = $1", 1, 9_000, 9_100)),
    ("WAL-14", |scene| committed(scene, INSERT, 6, 9_000, 9_100)),
    ("WAL-14", |scene| {
        committed(scene, INSERT, 1, 9_000, 9_100);
        scene.event(
            1,
            event::QUERY,
            "",
            json!({"query_id": "31", "text": "update device set seen = now() where id = $1"}),
        );
        let keys = json!({"node": "n1", "database": "db", "query_id": "31"});
        scene.set("statement", keys, json!({"calls": 9_000, "rows": 9_000, "total_ms": 900.0}));
    }),
    // The first column is compared as well, another index begins with the column, and as many rows are wanted.
    ("PLAN-83", |scene| skipped(scene, "((device = $2) AND (at > $1))", 9_000, 3_000.0)),
    ("PLAN-83", |scene| {
        skipped(scene, "(at > $1)", 9_000, 3_000.0);
        let keys = json!({"node": "n1", "relation": "public.reading", "index": "reading_at"});
        scene.set(
            "plan_index",
            keys,
            json!({"columns": "at", "method": "btree", "valid": true, "partial": false}),
        );
    }),
    ("PLAN-83", |scene| skipped(scene, "(at > $1)", 9_000, 9_000.0)),
    // Another partition has the time, most rows have partitions of their own, and values are listed.
    ("PLAN-86", |scene| {
        parted(scene, &[("reading_01", JANUARY, 30_000), ("reading_default", "DEFAULT", 800_000)])
    }),
    ("PLAN-86", |scene| {
        parted(scene, &[("reading_default", "DEFAULT", 20_000), ("reading_01", JANUARY, 900_000)])
    }),
    ("PLAN-86", |scene| {
        parted(
            scene,
            &[("reading_default", "DEFAULT", 800_000), ("reading_a", "FOR VALUES IN ('a')", 30_000)],
        )
    }),
    // What an upsert touches, and dead rows, are the same with new statistics.
    ("PLAN-05", |scene| {
        upserted(
            scene,
            "insert into offer select * from stage on conflict (sku) do update set price = excluded.price",
            500,
        )
    }),
    ("PLAN-05", |scene| upserted(scene, "select sku from offer where vendor = $1 order by price", 900_000)),
    // Few entries, of which each is a small part of the time.
    ("PLAN-39", |scene| lengths(scene, 12, 0)),
    // A refresh for which no session waits is counted by executions.
    ("VAC-15", |scene| refreshed(scene, 0)),
    // Another number of rows.
    ("TXN-11", |scene| lines(scene, [20_000, 10_000])),
    // Six of seven kinds are wanted.
    ("PLAN-01", |scene| aggregated(scene, 320_000.0)),
    // A third of the rows, in one of three regions.
    ("PLAN-01", |scene| counted(scene, "(region = $1)", 300_000.0, "region 0.4")),
    ("PLAN-10", |scene| counted(scene, "(region = $1)", 300_000.0, "region 0.4")),
    // What is computed of the number cannot be compared before it is known.
    ("PLAN-31", |scene| numbered(scene, "((x.r % $1) = $2)", "r % $1 = $2")),
    ("PLAN-32", |scene| numbered(scene, "((x.r % $1) = $2)", "r % $1 = $2")),
    ("CFG-01", |scene| {
        scene.fact(n1(), "setting", "io_workers", "1");
        scene.fact(n1(), "setting", "io_method", "sync");
        scene.set("wait", wait("n1", "IO", "AioIoCompletion"), json!({"sessions": 3}));
    }),
];

#[test]
fn a_scan_of_which_few_rows_are_kept_by_each_process_is_still_one() {
    let mut scene = Scene::healthy();
    aggregated(&mut scene, 9_000.0);
    assert!(scene.explain().findings.iter().any(|finding| finding.rule == "PLAN-01"));
}

#[test]
fn how_many_rows_an_aggregate_takes_by_a_range_is_not_known() {
    use record::finding::Severity;
    let found = |filter: &str, kept: f64, most: &str| {
        let mut scene = Scene::healthy();
        counted(&mut scene, filter, kept, most);
        let findings = scene.explain().findings;
        let finding = findings.into_iter().find(|one| one.rule == "PLAN-01").expect("a scan");
        let least = finding.benefit.as_ref().expect("a benefit").least;
        (finding.severity, finding.claim, finding.missing.join(" "), least)
    };
    for (filter, kept, most) in [
        ("(at > $1)", 300_000.0, ""),
        ("((ms >= $1) AND (ms <= $2))", 4_500.0, ""),
        // Of three states, one is rare.
        ("(state = $1)", 300_000.0, "state 0.98"),
    ] {
        let (severity, claim, missing, least) = found(filter, kept, most);
        assert_eq!((severity, least), (Severity::Low, 0.0), "{filter}: {claim}");
        assert!(claim.contains("for an aggregate over those that fit"), "{claim}");
        assert!(missing.contains("how many rows fit the condition"), "{missing}");
    }
    // One value of many narrows the range beside it.
    let (severity, claim, _, _) = found("((customer = $1) AND (at > $2))", 30.0, "");
    assert_eq!(severity, Severity::High);
    assert!(claim.contains("no index begins with customer"), "{claim}");
}

#[test]
fn a_better_plan_saves_none_of_the_time_that_is_compilation() {
    use record::finding::Severity;
    let found = |jit_ms: f64| {
        let mut scene = Scene::healthy();
        let text = "select avg(ms) from hits where status = $1";
        statement(&mut scene, text, json!({"jit_ms": jit_ms}), json!({"partitions": 30}));
        let findings = scene.explain().findings;
        findings.into_iter().find(|one| one.rule == "PLAN-15").expect("partitions")
    };
    let compiled = found(29_700.0);
    assert!(compiled.severity <= Severity::Low, "{compiled:?}");
    assert!(compiled.evidence.iter().any(|line| line.contains("compilation is")), "{compiled:?}");
    let most = compiled.benefit.as_ref().expect("a benefit").most;
    assert!(most < 0.01, "{most}");
    let run = found(0.0);
    assert_eq!(run.severity, Severity::High);
    assert!(run.evidence.iter().all(|line| !line.contains("compilation is")), "{run:?}");
}

#[test]
fn many_rows_in_one_statement_are_no_harm_unless_they_are_shifted_or_all() {
    use record::finding::Severity;
    let found = |text: &str| {
        let mut scene = Scene::healthy();
        let figures = json!({"calls": 100, "rows": 100_000, "shared_hit": 4_000_000});
        statement(&mut scene, text, figures, json!({}));
        let findings = scene.explain().findings;
        findings.into_iter().find(|one| one.rule == "TXN-12").expect("many rows").severity
    };
    for batch in [
        "update staff set salary = salary * $1 where id between $2 and $3",
        "update staff set salary = salary * $1 where dept = $2",
        "delete from staff where dept = $1",
    ] {
        assert_eq!(found(batch), Severity::Low, "{batch}");
    }
    for change in [
        "update category set lft = lft + $1 where lft > $2",
        "update item set position = position + $1 where list = $2 and position >= $3",
        "update staff set checked = $1",
    ] {
        assert!(found(change) > Severity::Low, "{change}");
    }
}
