//! What engineers caused in the field that no rule had met: the cause comes first, and what it looks like comes behind it.

use crate::advice::{commands, fired, of};
use crate::fire::plan::{node, statement};
use crate::scene::Scene;
use record::Findings;
use record::finding::Severity;
use serde_json::{Value, json};

fn is_silent(findings: &Findings, rule: &str) -> bool {
    findings.findings.iter().all(|finding| finding.rule != rule)
}

fn table(relation: &str) -> Value {
    json!({"node": "n1", "database": "db", "relation": relation})
}

fn log(scene: &mut Scene, severity: &str, message: &str, more: Value) {
    let mut event = json!({"node": "n1", "severity": severity});
    event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    for second in [10, 20, 30] {
        scene.event(second, record::event::SERVER_LOG, message, event.clone());
    }
}

#[test]
fn a_parameter_of_another_type_is_told_by_the_type_of_the_column() {
    let found = |types: &str| {
        let mut scene = fired("PLAN-21");
        node(&mut scene, 1, 0, "Index Scan", json!({"column_types": types}));
        of(&scene.explain(), "PLAN-21").clone()
    };
    let text = found("id character");
    assert!(
        text.claim.contains(
            "text or varchar, as strings of a driver: id is character, and is compared as id::text"
        ),
        "{}",
        text.claim
    );
    assert!(
        commands(&text).starts_with("CREATE INDEX CONCURRENTLY ON public.orders ((id::text));"),
        "{}",
        commands(&text)
    );
    assert!(text.remedy.text.contains("bind it as character (bpchar)"));
    assert!(found("id bigint").claim.contains("numeric, as decimals of a driver: id is bigint"));
    assert!(
        found("other character").claim.contains("its sessions have other settings"),
        "no condition compares it"
    );
    assert!(found("id uuid").claim.contains("its sessions have other settings"));
}

/// A queue that is asked two thousand times a second, in transactions of its own, beside half as many statements of a shop.
#[test]
fn a_queue_is_polled_although_each_poll_has_its_transaction_and_finds_something_now_and_then() {
    let found = |text: &str, rows: u64| {
        let mut scene = fired("SES-08");
        scene.drop_source("statement");
        for (id, text, calls, rows) in [
            ("91", text, 20_000, rows),
            ("92", "begin", 20_000, 0),
            ("93", "commit", 20_000, 0),
            ("94", "select name from item where id = $1", 15_000, 15_000),
        ] {
            scene.event(1, record::event::QUERY, "", json!({"node": "n1", "query_id": id, "text": text}));
            let keys = json!({"node": "n1", "database": "db", "query_id": id});
            scene.set(
                "statement",
                keys,
                json!({"calls": calls, "total_ms": 60.0, "rows": rows, "shared_hit": 4_000}),
            );
        }
        scene.explain()
    };
    let poll = "with j as (select id from job where state = $1 order by id limit $2 for update skip locked) update job set state = $3 from j where job.id = j.id";
    let polled = found(poll, 100);
    assert!(
        of(&polled, "SES-08").claim.contains("57 % of all statements"),
        "{}",
        of(&polled, "SES-08").claim
    );
    assert!(is_silent(&found(poll, 2_000), "SES-08"), "one in ten finds work");
    assert!(
        is_silent(&found("select name from item where code = $1", 100), "SES-08"),
        "no queue: rows are rarer"
    );
}

/// A loop over an aggregate, planned for one row of vehicles; the index gives 373 for each execution.
#[test]
fn a_loop_below_an_aggregate_is_counted_by_the_rows_of_its_index() {
    let found = |rows_by_index: u64, inner: f64| {
        let mut scene = Scene::healthy();
        // Statements whose texts are not known may be on any table.
        scene.drop_source("statement");
        let text = "select v.brand, avg(c.a) from vehicle v join (select garage, avg(cost) a from repair group by garage) c on c.garage = v.garage \
                    where v.brand = $1 and v.model = $2 group by v.brand order by 2 limit $3";
        statement(
            &mut scene,
            text,
            json!({"calls": 10, "rows": 10, "shared_hit": 3_000}),
            json!({"cost_total": 6_500.0}),
        );
        node(&mut scene, 1, 0, "Aggregate", json!({"condition": "v.brand"}));
        node(&mut scene, 2, 1, "Nested Loop", json!({"filter": "(v.garage = repair.garage)"}));
        let scan = json!({"relation": "public.vehicle", "alias": "v", "condition": "((v.brand = $1) AND (v.model = $2))", "table_rows": 300_000.0});
        node(&mut scene, 3, 2, "Index Scan", scan);
        node(&mut scene, 4, 2, "Aggregate", json!({"condition": "repair.garage", "rows_planned": inner}));
        node(
            &mut scene,
            5,
            4,
            "Seq Scan",
            json!({"relation": "public.repair", "rows_planned": 250_000.0, "table_rows": 250_000.0}),
        );
        scene.set(
            "table",
            table("public.vehicle"),
            json!({"index_rows": rows_by_index, "live_rows": 300_000}),
        );
        scene.explain()
    };
    let wrong = found(22_380, 2_003.0);
    let finding = of(&wrong, "PLAN-13");
    assert!(
        finding.claim.contains("planned for 1 row of public.vehicle, and an execution gets 373"),
        "{}",
        finding.claim
    );
    assert!(
        finding.claim.contains("brand, model of public.vehicle are taken as independent"),
        "{}",
        finding.claim
    );
    assert!(commands(finding).contains("CREATE STATISTICS"), "{}", commands(finding));
    assert!(is_silent(&found(300, 2_003.0), "PLAN-13"), "as planned");
    assert!(is_silent(&found(22_380, 1.0), "PLAN-13"), "an index finds each row of the other side");
}

#[test]
fn an_update_that_writes_ten_indexes_is_named_by_the_column_that_keeps_it_from_being_heap_only() {
    let found = |blocks: u64| {
        let mut scene = Scene::healthy();
        let text = "update device set last_seen = now(), rssi = $1 where gateway = $2";
        statement(
            &mut scene,
            text,
            json!({"calls": 10, "rows": 1_000, "shared_hit": blocks}),
            json!({"cost_total": 125.0}),
        );
        node(&mut scene, 1, 0, "ModifyTable", json!({"relation": "public.device"}));
        node(
            &mut scene,
            2,
            1,
            "Index Scan",
            json!({"relation": "public.device", "condition": "(gateway = $2)", "rows_planned": 100.0}),
        );
        let columns = "device_pkey(id); device_gateway(gateway); device_seen(last_seen)";
        let fields = json!({"indexes": 10, "index_columns": columns, "rows_updated": 60_000, "rows_hot_updated": 0, "live_rows": 200_000});
        scene.set("table", table("public.device"), fields);
        scene.explain()
    };
    let heavy = found(34_000);
    let finding = of(&heavy, "VAC-09");
    assert!(
        finding.severity >= Severity::Medium
            && finding.claim.contains("they set last_seen, which index device_seen has"),
        "{finding:?}"
    );
    assert!(is_silent(&heavy, "PLAN-24"), "34 blocks for each row are what ten indexes take");
    assert_eq!(of(&found(5_000), "VAC-09").severity, Severity::Low, "few blocks: nothing much to save");
}

#[test]
fn inserts_of_a_function_that_catches_its_duplicates_are_in_vain() {
    let found = |dead: u64, text: &str| {
        let mut scene = Scene::healthy();
        statement(
            &mut scene,
            "select import_batch($1)",
            json!({"calls": 20, "rows": 20, "shared_hit": 320_000}),
            json!({"function": "import_batch", "inner": "select * from feed", "cost_total": 782.0}),
        );
        scene.fact(json!({"node": "n1"}), "function", "import_batch", text);
        let relation = table("public.contact");
        scene.set(
            "table",
            relation.clone(),
            json!({"rows_inserted": 45_000, "rows_deleted": 0, "rows_updated": 30, "live_rows": 5_000_000}),
        );
        scene.vary("table", relation, "dead_rows", move |second| (second * dead) as f64);
        scene.explain()
    };
    let text = "plpgsql returning 0 rows: begin for r in select * from feed loop begin insert into contact(id) values (r.id); exception when ? then null; end; end loop";
    let lost = found(44_800, text);
    let finding = of(&lost, "TXN-06");
    assert!(
        finding.claim.contains("by function import_batch()") && finding.severity >= Severity::Medium,
        "{finding:?}"
    );
    assert!(is_silent(&lost, "PLAN-24"), "the plan is that of one statement of the function");
    assert!(is_silent(&found(10, text), "TXN-06"), "the rows stay");
    assert!(is_silent(&found(44_800, "plpgsql returning 0 rows: select 1"), "TXN-06"), "of another program");
}

#[test]
fn large_values_that_a_client_waits_for_are_named_without_counters_of_statements() {
    let found = |text: &str| {
        let mut scene = Scene::healthy();
        scene.drop_source("statement");
        scene.event(1, record::event::QUERY, "", json!({"node": "n1", "query_id": "9", "text": text}));
        let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "Client", "wait_event": "ClientWrite", "query_id": "9"});
        scene.set("wait", wait, json!({"sessions": 9}));
        scene.set("table", table("public.document"), json!({"bytes": 296_000_000, "live_rows": 6_000}));
        scene.explain()
    };
    let all = found("select * from document where patient = $1");
    let finding = of(&all, "NET-06");
    assert!(
        finding.claim.contains("run SELECT * on public.document, whose rows have 49.3 kB each"),
        "{}",
        finding.claim
    );
    assert!(finding.remedy.text.starts_with("name the columns"));
    assert!(!of(&found("select id from document"), "NET-06").claim.contains("TOAST"));
}

/// Twenty sessions that wait for one row, whose holder is idle in its transaction at nearly all looks; the longest waits ended behind one that was active.
#[test]
fn a_row_that_is_held_while_its_program_does_something_else_is_told_by_all_waits() {
    let mut scene = fired("DIST-06");
    for second in 1..=60 {
        for pid in 500..510 {
            let state = if second == 30 { "active" } else { "idle in transaction" };
            let wait_s = if second == 30 { 9.0 } else { 0.02 };
            let keys = json!({"node": "n1", "pid": pid, "blocked_by": 400 + second, "root": 400 + second});
            let fields = json!({"root_state": state, "depth": 1, "wait_s": wait_s, "lock_type": "transactionid", "mode": "ShareLock",
                "query": "update number_range set last = last + 1"});
            scene.set("block", keys.clone(), fields).during("block", keys, second..=second);
        }
    }
    let found = scene.explain();
    let finding = of(&found, "DIST-06");
    assert!(
        finding.claim.contains("mostly while their holder is idle in a transaction"),
        "{}",
        finding.claim
    );
    assert!(finding.remedy.text.contains("change the row last"), "{}", finding.remedy.text);
}

#[test]
fn a_full_volume_of_temporary_files_and_one_setting_that_fails_are_one_finding_each() {
    let mut scene = Scene::healthy();
    let message = "could not write to file \"pg_tblspc/16416/PG_15_202209061/pgsql_tmp/pgsql_tmp12855.0\": No space left on device";
    log(&mut scene, "ERROR", message, json!({"repeated": 60}));
    let found = scene.explain();
    assert!(
        of(&found, "TXN-13").claim.contains("the volume of temporary files is full"),
        "{}",
        of(&found, "TXN-13").claim
    );

    for (message, words) in [
        ("could not extend file \"base/5/16384\": No space left on device", "its inodes are used up"),
        (
            "could not extend file \"base/5/16384\": Disk quota exceeded",
            "a quota of the file system is reached",
        ),
    ] {
        let mut scene = Scene::healthy();
        log(&mut scene, "ERROR", message, json!({"repeated": 60}));
        let found = scene.explain();
        assert!(of(&found, "TXN-13").claim.contains(words), "{}", of(&found, "TXN-13").claim);
        assert!(of(&found, "TXN-13").severity >= Severity::Medium);
    }

    let mut scene = Scene::healthy();
    log(&mut scene, "ERROR", "out of shared memory", json!({"repeated": 60, "sqlstate": "53200"}));
    log(
        &mut scene,
        "ERROR",
        "out of shared memory while building",
        json!({"repeated": 60, "sqlstate": "53200"}),
    );
    let found = scene.explain();
    assert_eq!(found.findings.iter().filter(|finding| finding.rule == "TXN-13").count(), 1);
}

#[test]
fn a_certificate_that_has_expired_is_no_ordinary_handshake() {
    let mut scene = Scene::healthy();
    log(
        &mut scene,
        "LOG",
        "could not accept SSL connection: sslv3 alert certificate expired",
        json!({"repeated": 40}),
    );
    let found = scene.explain();
    let all: Vec<_> = found.findings.iter().filter(|finding| finding.rule == "TXN-13").collect();
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(
        all[0].severity == Severity::High && all[0].claim.contains("because it has expired"),
        "{:?}",
        all[0]
    );
}

#[test]
fn the_service_that_logins_wait_for_is_named_by_the_log() {
    let mut scene = fired("SES-14");
    log(&mut scene, "LOG", "timeout waiting for RADIUS response from 127.0.0.1", json!({}));
    let claim = &of(&scene.explain(), "SES-14").claim.clone();
    assert!(claim.contains("they wait for RADIUS, by the server's log: timeout waiting"), "{claim}");
    let mut scene = fired("SES-14");
    log(&mut scene, "LOG", "duration: 3 ms  statement: could not RADIUS response", json!({}));
    assert!(!of(&scene.explain(), "SES-14").claim.contains("wait for RADIUS"), "a statement has these words");
}

#[test]
fn texts_of_statements_that_monitoring_reads_are_no_lack_of_work_mem() {
    let mut scene = Scene::healthy();
    let text = "SELECT d.datname, s.query, s.calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid ORDER BY s.calls DESC LIMIT $1";
    statement(&mut scene, text, json!({"calls": 1, "rows": 200, "temp_written": 29_000}), json!({}));
    let found = scene.explain();
    let finding = of(&found, "SES-11");
    assert!(
        finding.claim.contains("reads pg_stat_statements with the texts of all statements"),
        "{}",
        finding.claim
    );
    let spilled = found.findings.iter().find(|finding| finding.rule == "PLAN-02");
    assert!(spilled.is_none_or(|spilled| spilled.symptom_of.is_some()), "{spilled:?}");
}

#[test]
fn plans_whose_every_row_is_timed_cost_more_than_lines_in_the_log() {
    let found = |timing: &str| {
        let mut scene = Scene::healthy();
        for (name, value) in [("log_min_duration", "0"), ("log_analyze", "on"), ("log_timing", timing)] {
            scene.fact(json!({"node": "n1"}), "setting", &format!("auto_explain.{name}"), value);
        }
        statement(
            &mut scene,
            "select d.dept, sum(v.fee) from visit v join doctor d on d.id = v.doctor group by 1",
            json!({"calls": 200, "rows": 200}),
            json!({}),
        );
        node(&mut scene, 1, 0, "Hash Join", json!({"rows_planned": 20_000.0}));
        node(&mut scene, 2, 1, "Seq Scan", json!({"relation": "public.visit", "rows_planned": 20_000.0}));
        scene.explain()
    };
    let timed = found("on");
    let finding = of(&timed, "LOG-01");
    assert!(
        finding.severity >= Severity::Medium && finding.claim.contains("the time of each row in each step"),
        "{finding:?}"
    );
    assert!(!of(&found("off"), "LOG-01").claim.contains("the time of each row"));
}

#[test]
fn a_prepared_transaction_keeps_dead_rows_before_any_vacuum_has_come() {
    let found = |kind: &str| {
        let mut scene = fired("VAC-11");
        scene.set(
            "table",
            table("public.orders"),
            json!({"live_rows": 2_000, "dead_rows": 480_000, "vacuumed_s": 90_000.0}),
        );
        let keys = json!({"node": "n1", "kind": kind, "name": "131077_node2"});
        scene.set("horizon", keys, json!({"age_xids": 2_600, "age_s": 2_400.0}));
        scene.explain()
    };
    let prepared = found("prepared");
    assert!(of(&prepared, "VAC-05").severity >= Severity::Medium, "{:?}", of(&prepared, "VAC-05"));
    assert!(is_silent(&found("session"), "VAC-05"), "a young session beside an old mess");
}

/// An import kept its keys, and the sequence of the table still hands out the first ones: no INSERT ever succeeds, so none has statistics.
#[test]
fn a_sequence_behind_its_table_is_known_by_the_statement_of_the_error() {
    let found = |text: &str| {
        let mut scene = Scene::healthy();
        scene.set(
            "table",
            table("public.tickets"),
            json!({"key_sequences": "tickets_pkey(id) from public.tickets_id_seq"}),
        );
        let message = "duplicate key value violates unique constraint \"tickets_pkey\"";
        log(&mut scene, "ERROR", message, json!({"repeated": 60_000, "statement": text}));
        of(&scene.explain(), "GEN-01").clone()
    };
    let behind = found("insert into tickets(customer, subject) values ($1, $2) returning id");
    assert!(
        behind.claim.contains("sequence public.tickets_id_seq is behind the rows of public.tickets"),
        "{}",
        behind.claim
    );
    assert!(commands(&behind).starts_with("SELECT setval('public.tickets_id_seq'"), "{}", commands(&behind));
    assert!(!found("insert into tickets(id, subject) values ($1, $2)").claim.contains("sequence"));
}

/// The rows of a window, found by BRIN, are summed up by group: how many they are, only the loop that searches their machines shows.
#[test]
fn late_rows_in_the_ranges_of_brin_are_known_below_an_aggregate() {
    let found = |searches: u64| {
        let mut scene = Scene::healthy();
        scene.drop_source("statement");
        let text = "select d.fleet, count(*) from position p join device d on d.id = p.device where p.at >= $1 and p.at < $2 group by d.fleet";
        statement(
            &mut scene,
            text,
            json!({"calls": 10, "rows": 1_500, "shared_hit": 100_000}),
            json!({"cost_total": 10_900.0}),
        );
        node(&mut scene, 1, 0, "Aggregate", json!({"condition": "d.fleet", "rows_planned": 200.0}));
        node(
            &mut scene,
            2,
            1,
            "Hash Join",
            json!({"condition": "(p.device = d.id)", "rows_planned": 9_000.0}),
        );
        let range = "((p.at >= $1) AND (p.at < $2))";
        let scan = json!({"relation": "public.position", "alias": "p", "condition": range, "rows_planned": 9_000.0, "table_rows": 1_800_000.0});
        node(&mut scene, 3, 2, "Bitmap Heap Scan", scan);
        node(
            &mut scene,
            4,
            3,
            "Bitmap Index Scan",
            json!({"index": "position_at", "condition": range, "rows_planned": 14_000.0}),
        );
        node(&mut scene, 5, 2, "Hash", json!({"rows_planned": 5_000.0}));
        node(
            &mut scene,
            6,
            5,
            "Seq Scan",
            json!({"relation": "public.device", "alias": "d", "rows_planned": 5_000.0, "table_rows": 5_000.0}),
        );
        let keys = json!({"node": "n1", "relation": "public.position", "index": "position_at"});
        let index = json!({"database": "db", "columns": "at", "method": "brin", "valid": true, "partial": false, "correlation": 0.96});
        scene.set("plan_index", keys, index);
        let position = json!({"bytes": 137_800_000, "live_rows": 1_800_000, "planned_rows": 1_800_000, "all_visible_share": 1.0});
        scene.set("table", table("public.position"), position);
        scene.set(
            "table",
            table("public.device"),
            json!({"bytes": 230_000, "live_rows": 5_000, "index_scans": searches}),
        );
        scene.explain()
    };
    // Three hundred searches for each execution, one execution a second.
    let late = found(18_000);
    assert!(
        of(&late, "PLAN-38").claim.contains("so many rows came late or were moved"),
        "{}",
        of(&late, "PLAN-38").claim
    );
    assert!(is_silent(&late, "PLAN-24"), "the loop is right for so few rows");
    assert!(is_silent(&found(18_000_000), "PLAN-38"), "most of the table is wanted");
}

/// A long export holds the horizon, and the workers' search for the next job steps over the jobs that are done: it would mark them, if they were not needed.
#[test]
fn searches_that_step_over_dead_rows_all_the_time_name_what_needs_them() {
    let found = |blocks: u64, age_s: f64| {
        let mut scene = Scene::healthy();
        scene.drop_source("horizon");
        statement(
            &mut scene,
            "select id from job where state = $1 and run_at <= now() order by run_at limit $2 for update skip locked",
            json!({"calls": 750, "rows": 750, "shared_hit": 750 * blocks}),
            json!({}),
        );
        scene.set(
            "table",
            table("public.job"),
            json!({"live_rows": 25_000, "dead_rows": 120_000, "seq_scans": 0, "index_scans": 4_500, "index_rows": 9_000,
                "blocks_hit": 4_500 * blocks, "blocks_read": 0, "autovacuums": 0, "vacuums": 0, "vacuumed_s": 500.0}),
        );
        let keys = json!({"node": "n1", "kind": "session", "name": "pg_dump", "pid": 77});
        scene.set("horizon", keys, json!({"age_xids": 7_000, "age_s": age_s}));
        scene.explain()
    };
    let kept = found(2_200, 28.0);
    let finding = of(&kept, "VAC-05");
    assert!(finding.severity >= Severity::Medium, "{finding:?}");
    assert!(finding.claim.contains("of the session time is in public.job"), "{}", finding.claim);
    assert!(is_silent(&found(12, 28.0), "VAC-05"), "the searches find their rows at once");
    assert!(is_silent(&found(2_200, 4.0), "VAC-05"), "an export has just begun");
}
