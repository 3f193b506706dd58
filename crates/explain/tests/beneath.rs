//! What lies beneath a symptom: the lock that is held, the group that kills, the error that rolls back, the standby that is late, the report that keeps a pool,
//! the trigger that connects, the limit above a disk.

use crate::advice::{commands, of};
use crate::fire::outside::{POOLER, pool};
use crate::fire::plan::statement;
use crate::scene::{Scene, disk, wait};
use record::Findings;
use record::event;
use record::finding::Severity;
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

fn is_silent(findings: &Findings, rule: &str) -> bool {
    findings.findings.iter().all(|finding| finding.rule != rule)
}

#[test]
fn an_index_that_is_built_concurrently_is_named_behind_the_transaction_that_it_waits_for() {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "Lock", "virtualxid"), json!({"sessions": 1}));
    let keys = json!({"node": "n1", "pid": 20, "root": 100});
    let fields = json!({"blocked_by": 100, "root_state": "active", "depth": 1, "wait_s": 40.0, "lock_type": "virtualxid", "mode": "ShareLock",
        "query": "CREATE INDEX CONCURRENTLY page_slug ON page (slug)", "blocker_query": "select count(*) from visit"});
    scene.set("block", keys, fields);
    let found = scene.explain();
    let finding = of(&found, "LCK-01");
    assert!(finding.claim.contains("this waits: CREATE INDEX CONCURRENTLY page_slug"), "{}", finding.claim);
    // A timeout would leave an invalid index behind.
    assert!(!commands(finding).contains("lock_timeout"), "{}", commands(finding));
    assert!(finding.remedy.text.contains("without a lock_timeout"), "{}", finding.remedy.text);
}

#[test]
fn a_remainder_keeps_many_rows_whatever_the_planner_expects() {
    let severity_of = |filter: &str| {
        let mut scene = Scene::healthy();
        crate::fire::plan::scan(&mut scene, filter, "customer integer");
        crate::fire::plan::index(&mut scene, "orders_customer", "customer", true);
        of(&scene.explain(), "PLAN-11").severity
    };
    assert_eq!(severity_of("((customer % $1) = $2)"), Severity::Low);
    assert!(severity_of("(abs(customer) = $1)") > Severity::Low);
}

#[test]
fn readers_wait_for_what_an_earlier_statement_of_the_transaction_holds() {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "Lock", "relation"), json!({"sessions": 6}));
    for waiter in 0..6 {
        let keys = json!({"node": "n1", "pid": 20 + waiter, "root": 100});
        let fields = json!({"blocked_by": 100, "root_state": "active", "depth": 1, "wait_s": 9.0, "lock_type": "relation",
            "mode": "AccessShareLock", "held_mode": "AccessExclusiveLock", "relation": "public.page", "query": "select id from page",
            "blocker_query": "create index page_slug on page(slug)"});
        scene.set("block", keys, fields);
    }
    let found = scene.explain();
    let claim = &of(&found, "LCK-01").claim;
    assert!(
        claim.contains("holds an ACCESS EXCLUSIVE lock") && !claim.contains("CREATE INDEX keeps"),
        "{claim}"
    );
    assert!(!commands(of(&found, "LCK-01")).contains("CONCURRENTLY"));
}

#[test]
fn sessions_that_lock_a_table_in_turn_change_no_schema() {
    let mut scene = Scene::healthy();
    let lock = "LOCK TABLE invoices IN EXCLUSIVE MODE";
    scene.set("wait", wait("n1", "Lock", "relation"), json!({"sessions": 6}));
    for head in 0..6 {
        for waiter in 0..3 {
            let (root, pid) = (60 + head, 80 + 10 * head + waiter);
            let by = if waiter == 0 { root } else { pid - 1 };
            let keys = json!({"node": "n1", "root": root, "pid": pid, "blocked_by": by});
            scene.set("block", keys.clone(), json!({"wait_s": 0.4, "root_state": "active", "lock_type": "relation",
                "relation": "public.invoices", "mode": "ExclusiveLock", "query": lock, "blocker_query": lock}));
            scene.during("block", keys, 10 + head * 4..=10 + head * 4);
        }
    }
    assert!(is_silent(&scene.explain(), "LCK-04"));
}

#[test]
fn other_programs_use_no_more_than_those_that_were_seen() {
    let mut scene = crate::advice::fired("SES-02");
    // Processes that ended are counted, so the rest is the kernel's.
    let ended = json!({"host": "h1", "node": "n1", "pid": 1, "backend": "ended processes"});
    scene.set("backend", ended, json!({"cpu_us": 0}));
    let kernel = json!({"host": "h1", "program": "kworker/1:1H-kblockd"});
    scene.set("program", kernel, json!({"processes": 1, "cpu_us": 50_000, "client_cpu_us": 0}));
    let found = scene.explain();
    let finding = of(&found, "SES-02");
    assert_eq!(finding.severity, Severity::Low);
    assert!(
        finding.claim.contains("neither a session nor a program that was seen")
            && !finding.claim.contains("other programs use"),
        "{}",
        finding.claim
    );
    // The collector of the log is the server's own.
    let logger = json!({"host": "h1", "node": "n1", "pid": 2, "backend": "logger"});
    scene.set("backend", logger, json!({"cpu_us": 3_500_000}));
    assert!(is_silent(&scene.explain(), "SES-02"));
}

#[test]
fn the_limit_of_a_control_group_is_no_lack_of_memory() {
    let mut scene = Scene::healthy();
    scene.set("host", json!({"host": "h1"}), json!({"oom_kills": 1}));
    let line = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,oom_memcg=/bi.slice,task_memcg=/bi.slice,task=postgres,pid=7652";
    scene.event(5, event::KERNEL, line, json!({"host": "h1", "topic": "oom"}));
    let found = scene.explain();
    let finding = of(&found, "MEM-02");
    assert!(
        finding.claim.contains(
            "at the memory limit of the control group /bi.slice, while the host has 30 GB available"
        ),
        "{}",
        finding.claim
    );
    assert!(
        !format!("{}{}", finding.remedy.text, commands(finding)).contains("overcommit"),
        "{:?}",
        finding.remedy
    );
    // Without the group it is the memory of the host.
    let mut scene = Scene::healthy();
    scene.set("host", json!({"host": "h1"}), json!({"oom_kills": 1}));
    assert!(commands(of(&scene.explain(), "MEM-02")).contains("overcommit"));
}

#[test]
fn pages_that_come_and_go_are_not_the_same_pages() {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "LWLock", "BufferMapping"), json!({"sessions": 4}));
    assert!(is_silent(&scene.explain(), "DIST-06"));
}

/// Inserts of which most fail with a key that is there.
fn duplicates(scene: &mut Scene, per_s: u64) {
    scene.set("server", n1(), json!({"xact_rollback": 9_000, "xact_commit": 500}));
    for second in 1..60 {
        let more = json!({"node": "n1", "severity": "ERROR", "sqlstate": "23505", "repeated": per_s - 1,
            "statement": "insert into device_event (device_id, event_uid) values ($1, $2)"});
        let text = "duplicate key value violates unique constraint \"device_event_uid\"";
        scene.event(second, event::SERVER_LOG, text, more);
    }
}

#[test]
fn errors_that_roll_most_transactions_back_are_named_and_what_was_read_of_the_log_stands_for_all() {
    let mut scene = Scene::healthy();
    duplicates(&mut scene, 8_000);
    let found = scene.explain();
    let finding = of(&found, "TXN-05");
    assert_eq!(finding.severity, Severity::High);
    for part in [
        "most with the error: duplicate key",
        "device_event_uid",
        "SQLSTATE 23505",
        "insert into device_event",
    ] {
        assert!(finding.claim.contains(part), "{part}: {}", finding.claim);
    }
    assert!(finding.remedy.text.contains("ON CONFLICT DO NOTHING"), "{}", finding.remedy.text);
    // A tenth of the log was read.
    let mut scene = Scene::healthy();
    duplicates(&mut scene, 700);
    assert!(of(&scene.explain(), "TXN-05").claim.contains("by their programs"));
    for second in [20, 40] {
        let gap = json!({"node": "n1", "bytes": 180_000_000, "read_bytes": 20_000_000});
        scene.event(second, event::GAP, "bytes of the server's log skipped", gap);
    }
    let found = scene.explain();
    let finding = of(&found, "TXN-05");
    assert!(
        finding.claim.contains("most with the error") && finding.severity == Severity::High,
        "{}",
        finding.claim
    );
    assert!(
        finding.evidence.iter().any(|one| one.contains("stands for all of it")),
        "{:?}",
        finding.evidence
    );
}

#[test]
fn inserts_that_fail_do_not_hide_rows_that_are_counted_twice() {
    let mut scene = Scene::healthy();
    let table = json!({"node": "n1", "database": "db", "relation": "public.usertable"});
    let fields = json!({"planned_rows": 200_000, "rows_inserted": 236_000, "rows_updated": 0, "analyzes_total": 1, "index_scans": 90_000});
    scene.set("table", table.clone(), fields);
    scene.vary("table", table.clone(), "live_rows", |second| 404_000.0 + second as f64 * 20.0);
    scene.vary("table", table, "changed_since_analyze", |second| 204_000.0 + second as f64 * 20.0);
    assert!(is_silent(&scene.explain(), "PLAN-05"));
}

/// A standby, by its own account.
fn standby(scene: &mut Scene, behind: u64, slope: f64, receivers: u64) {
    scene.set(
        "server",
        json!({"node": "n2"}),
        json!({"in_recovery": true, "replay_behind_bytes": behind, "receivers": receivers}),
    );
    scene.vary("server", json!({"node": "n2"}), "replay_age_s", move |second| 1.0 + slope * second as f64);
}

#[test]
fn a_standby_that_is_late_shows_why() {
    let claim = |change: fn(&mut Scene)| {
        let mut scene = Scene::healthy();
        change(&mut scene);
        let found = scene.explain();
        let finding = of(&found, "REP-11");
        (finding.claim.clone(), finding.severity, commands(finding))
    };
    let (text, severity, typed) = claim(|scene| {
        standby(scene, 1_540_608, 1.0, 1);
        scene.fact(json!({"node": "n2"}), "setting", "recovery_min_apply_delay", "10min");
    });
    assert!(
        text.contains("late on purpose (recovery_min_apply_delay = 10min): sessions that read here"),
        "{text}"
    );
    assert!(severity == Severity::Low && typed.contains("recovery_min_apply_delay = 0"), "{typed}");
    let (text, severity, _) = claim(|scene| {
        standby(scene, 0, 1.0, 0);
        let more = json!({"node": "n2", "severity": "FATAL"});
        let line = "could not receive data from WAL stream: ERROR:  requested WAL segment 000000010000000000000003 has already been removed";
        scene.event(5, event::SERVER_LOG, line, more);
    });
    assert!(text.contains("receives nothing from a primary: the primary no longer has the WAL"), "{text}");
    assert_eq!(severity, Severity::High);
    let (text, _, _) = claim(|scene| {
        standby(scene, 90_000_000, 0.5, 1);
        let startup = json!({"host": "h2", "node": "n2", "pid": 9, "backend": "startup"});
        scene.set("backend", startup, json!({"cpu_us": 980_000, "state": "R"}));
    });
    assert!(text.contains("replays it late: its one process that replays uses 98 % of a CPU"), "{text}");
    // A standby in time, and one of a primary that writes nothing.
    for (behind, slope) in [(90_000, 0.0), (0, 1.0)] {
        let mut scene = Scene::healthy();
        standby(&mut scene, behind, slope, 1);
        assert!(is_silent(&scene.explain(), "REP-11"), "{behind} {slope}");
    }
}

#[test]
fn a_standby_that_replays_nothing_is_late_at_the_primary_as_well() {
    let mut scene = Scene::healthy();
    let keys = json!({"node": "n1", "standby": "s1"});
    scene.set(
        "replication",
        keys.clone(),
        json!({"state": "streaming", "flush_lag_bytes": 0, "write_lag_us": 90, "flush_lag_us": 300}),
    );
    scene.vary("replication", keys.clone(), "replay_lag_bytes", |second| 1.5e6 + 5e4 * second as f64);
    scene.vary("replication", keys, "replay_lag_us", |second| 4e6 + 1e6 * second as f64);
    assert!(of(&scene.explain(), "REP-11").claim.contains("flushed there and not replayed"));
}

#[test]
fn the_statement_that_keeps_a_pool_is_named() {
    let mut scene = Scene::healthy();
    pool(&mut scene, "transaction", 25, (2_900_000, 2_900_000, 28_000_000));
    scene.set(
        "pool",
        json!({"node": "n1", "pooler": POOLER, "database": "cart", "user": "app"}),
        json!({"database": "cart"}),
    );
    let text = "select shop, product, sum(qty) from sale group by 1, 2";
    scene.event(1, event::QUERY, "", json!({"query_id": "9", "text": text}));
    let report = json!({"node": "n1", "database": "cart", "query_id": "9"});
    scene.set(
        "statement",
        report,
        json!({"calls": 130, "total_ms": 56_000.0, "rows": 1_300, "shared_hit": 400_000}),
    );
    let found = scene.explain();
    let finding = of(&found, "SES-13");
    assert!(
        finding.claim.contains("of their time is one statement") && finding.claim.contains(text),
        "{}",
        finding.claim
    );
    assert!(finding.remedy.text.contains("connections of their own"), "{}", finding.remedy.text);
    assert!(finding.severity >= Severity::Medium);
}

#[test]
fn pools_of_many_roles_that_share_the_connections_of_a_database_are_one_finding() {
    let mut scene = Scene::healthy();
    scene.set("server", n1(), json!({"sessions_opened": 170}));
    for role in ["tenant1", "tenant2", "tenant3"] {
        let keys = json!({"node": "n1", "pooler": POOLER, "database": "saas", "user": role});
        let fields = json!({"pool_mode": "transaction", "clients_active": 1, "clients_waiting": 1, "servers_active": 1, "servers_free": 0, "size": 10,
            "database_max": 4, "max_wait_us": 3_000_000});
        scene.set("pool", keys, fields);
    }
    let found = scene.explain();
    let finding = of(&found, "SES-13");
    assert!(
        finding.claim.contains("3 clients of 3 roles wait")
            && finding.claim.contains("the 4 connections that all pools of it may have together"),
        "{}",
        finding.claim
    );
    assert_eq!(found.findings.iter().filter(|finding| finding.rule == "SES-13").count(), 1);
    assert_eq!(of(&found, "SES-01").symptom_of.as_deref(), Some("SES-13"));
}

#[test]
fn connections_that_a_statement_opens_by_dblink_are_its_own() {
    // By each statement, or by each of the three rows that it writes.
    for rows in [1, 3] {
        opened_by_dblink(rows);
    }
}

fn opened_by_dblink(rows: u64) {
    let mut scene = Scene::healthy();
    scene.set("server", n1(), json!({"sessions_opened": 260 * rows}));
    scene.set("wait", wait("n1", "Extension", "Extension"), json!({"sessions": 4, "query_id": "9"}));
    scene.fact(n1(), "extension", "dblink", "1.2");
    scene.fact(n1(), "peculiar", "public.customer", "trigger audit calls customer_audit()");
    let figures = json!({"calls": 2_600, "total_ms": 40_000.0, "rows": 2_600 * rows, "shared_hit": 16_000});
    statement(&mut scene, "update customer set credit = credit + $1 where id = $2", figures, json!({}));
    let found = scene.explain();
    let finding = of(&found, "SES-01");
    assert!(
        finding.claim.contains("by dblink, within a statement")
            && finding.claim.contains("trigger audit calls customer_audit()"),
        "{}",
        finding.claim
    );
    let waits = of(&found, "EXT-01");
    assert!(
        waits.claim.contains("a connection that dblink opened") && !waits.claim.contains("sends rows"),
        "{}",
        waits.claim
    );
    assert_eq!(waits.symptom_of.as_deref(), Some("SES-01"));
}

#[test]
fn a_server_that_does_not_answer_is_judged_by_its_processes() {
    let silent = |change: fn(&mut Scene)| {
        let mut scene = Scene::healthy();
        scene.drop_source("server");
        scene.drop_source("wait");
        for pid in 0..6 {
            let keys = json!({"host": "h1", "node": "n1", "pid": 300 + pid, "backend": "client backend"});
            scene.set("backend", keys, json!({"cpu_us": 900, "read_bytes": 800_000, "state": "D", "wchan": "folio_wait_bit_common", "asleep": 1}));
        }
        scene.set("host", json!({"host": "h1"}), json!({"cpu_iowait_pct": 96.0}));
        scene.event(59, event::GAP, "n1: its last query has not returned", n1());
        change(&mut scene);
        scene.explain()
    };
    let found = silent(|_| ());
    let finding = of(&found, "OBS-01");
    assert!(
        finding.claim.contains("answered hardly any of our queries") && finding.claim.contains("(state D)"),
        "{}",
        finding.claim
    );
    assert_eq!(finding.severity, Severity::High);
    let found = silent(|scene| {
        scene.set(
            "cgroup",
            json!({"host": "h1", "node": "n1"}),
            json!({"path": "/pg", "io_limit": "8:0 5242880 read_bps"}),
        );
        scene.set("disk", disk("h1", "nvme0n1"), json!({"read_bytes": 5_200_000}));
    });
    let finding = of(&found, "IO-09");
    assert!(
        finding.claim.contains("8:0 5242880 read_bps") && finding.severity == Severity::High,
        "{}",
        finding.claim
    );
}

#[test]
fn commits_of_a_server_with_many_idle_sessions_are_a_small_part_of_their_clients_time() {
    for (rule, total, severity) in
        [("WAL-01", 360, Severity::Low), ("TXN-01", 360, Severity::Low), ("TXN-01", 20, Severity::High)]
    {
        let mut scene = crate::advice::fired(rule);
        scene.set("disk", disk("h1", "nvme0n1"), json!({"flush_await_ms": 0.2, "used_for": "pgdata, wal"}));
        scene.set(
            "server",
            n1(),
            json!({"sessions_total": total, "sessions_active": 12, "xact_commit": 2_700}),
        );
        if rule == "TXN-01" {
            scene.set("server", n1(), json!({"tup_inserted": 2_700, "tup_updated": 0, "tup_deleted": 0}));
        }
        let found = scene.explain();
        assert_eq!(of(&found, rule).severity, severity, "{rule} {total}: {}", of(&found, rule).claim);
    }
}

#[test]
fn an_index_that_a_load_drops_on_purpose_is_built_again() {
    let built = |load: &str| {
        let mut scene = Scene::healthy();
        let figures = json!({"calls": 10, "total_ms": 40_000.0, "rows": 0, "shared_hit": 900_000});
        statement(&mut scene, "create index stage_k on stage(k)", figures, json!({}));
        scene.event(1, event::QUERY, "", json!({"query_id": "8", "text": load}));
        let keys = json!({"node": "n1", "database": "db", "query_id": "8"});
        scene.set("statement", keys, json!({"calls": 10, "total_ms": 900.0, "rows": 0, "shared_hit": 900}));
        of(&scene.explain(), "VAC-15").severity
    };
    assert_eq!(built("TRUNCATE stage"), Severity::Low);
    assert!(built("select 1 from stage") > Severity::Low);
}
