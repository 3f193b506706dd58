//! What no view of the server shows: logins, the log's pipe, triggers at login, settings that another client made; functions whose rows nothing counts, and
//! joins that only the text tells about.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use record::event;
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

/// So many of ten sessions at work sleep in the kernel at this place at each look.
fn in_kernel(scene: &mut Scene, blocked: u64, wchan: &str) {
    for pid in 0..10 {
        let keys = json!({"host": "h1", "node": "n1", "pid": 300 + pid, "backend": "client backend"});
        let is_blocked = pid < blocked;
        let wchan = if is_blocked { wchan } else { "" };
        let fields = json!({"cpu_us": 900, "state": "S", "wchan": wchan, "asleep": 0, "blocked_write": u64::from(is_blocked)});
        scene.set("backend", keys, fields);
    }
}

/// So many processes of the server in the middle of a login, and sessions opened a second.
fn logins(scene: &mut Scene, processes: u64, opened: u64) {
    let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
    scene.set("schedule", backends, json!({"tasks": 20, "looked": 20, "authenticating": processes}));
    scene.set("server", n1(), json!({"sessions_opened": opened}));
}

/// An event trigger, so many sessions a second, and how often a table is scanned.
fn at_login(scene: &mut Scene, event: &str, opened: u64, scans: u64) {
    scene.fact(n1(), "event_trigger", "greets", &format!("sec.on_login at {event}"));
    scene.set("server", n1(), json!({"sessions_opened": opened}));
    let keys = json!({"node": "n1", "database": "db", "relation": "sec.visit"});
    let fields = json!({"bytes": 90_000_000, "live_rows": 90_000, "seq_scans": scans * 60, "seq_rows": scans * 60 * 90_000});
    scene.set("table", keys, fields);
}

/// Writes that fail in sessions that may only read, and the statement that a client sends.
fn read_only(scene: &mut Scene, text: &str) {
    scene.event(1, event::QUERY, "", json!({"node": "n1", "query_id": "7", "text": text, "user": "portal"}));
    let program = json!({"host": "h1", "program": "pgbouncer"});
    scene.set("program", program, json!({"cpu_us": 900}));
    for second in 1..=100 {
        let more = json!({"node": "n1", "severity": "ERROR", "sqlstate": "25006", "repeated": 40});
        scene.event(second, event::SERVER_LOG, "cannot execute INSERT in a read-only transaction", more);
    }
}

/// A function that is joined with a table of a million rows, by a hash of them; its tables give it so many rows in a second.
fn of_function(scene: &mut Scene, read: u64, column: &str) {
    let text = "select d.state, count(*) from paper d join permitted($1) b(branch) on d.branch = b.branch group by 1";
    statement(scene, text, json!({"shared_hit": 120_000}), json!({"rows_planned": 3.0}));
    scene.fact(
        n1(),
        "function",
        "permitted",
        "plpgsql returning 1000 rows: BEGIN RETURN QUERY SELECT branch FROM permit WHERE name = p; END",
    );
    node(scene, 1, 0, "Hash Join", json!({"condition": "(b.branch = d.branch)", "rows_planned": 900_000.0}));
    node(
        scene,
        2,
        1,
        "Function Scan",
        json!({"alias": "b", "condition": "public.permitted($1)", "rows_planned": 1_000.0}),
    );
    node(scene, 3, 1, "Hash", json!({"rows_planned": 1e6}));
    let fields = json!({"relation": "public.paper", "alias": "d", "rows_planned": 1e6, "table_rows": 1e6});
    node(scene, 4, 3, "Seq Scan", fields);
    let keys = json!({"node": "n1", "relation": "public.paper", "index": "paper_by"});
    scene.set(
        "plan_index",
        keys,
        json!({"columns": column, "method": "btree", "valid": true, "partial": false}),
    );
    let keys = json!({"node": "n1", "database": "db", "relation": "public.permit"});
    scene.set(
        "table",
        keys,
        json!({"bytes": 90_000, "live_rows": 3_000, "index_scans": 60, "index_rows": read * 60}),
    );
}

const NULL_SAFE: &str = "select s.a, sum(f.b) from fact f join store s on (f.code = s.code or (f.code is null and s.code is null)) group by 1";

/// A join by this statement, whose loop compares so many pairs; `None`: no plan was recorded.
fn joined_by_or(scene: &mut Scene, text: &str, rows: Option<f64>) {
    statement(scene, text, json!({}), json!({}));
    match rows {
        None => {
            scene.drop_source("plan");
        }
        Some(rows) => {
            let filter = "((f.code = s.code) OR ((f.code IS NULL) AND (s.code IS NULL)))";
            node(scene, 1, 0, "Nested Loop", json!({"filter": filter, "rows_planned": 9_000.0}));
            node(
                scene,
                2,
                1,
                "Seq Scan",
                json!({"relation": "public.fact", "alias": "f", "rows_planned": rows}),
            );
            node(
                scene,
                3,
                1,
                "Seq Scan",
                json!({"relation": "public.store", "alias": "s", "rows_planned": 400.0}),
            );
        }
    }
}

/// A batch that locks rows for others, in one transaction: how old its states are at most, while it seems idle between two statements.
fn batch(scene: &mut Scene, state_age_s: f64) {
    let session = json!({"node": "n1", "pid": 100});
    let fields = json!({"state": "idle in transaction", "xact_age_s": 60.0, "state_age_s": state_age_s, "query": "update account set due = $1 where id = $2"});
    scene.set("session", session, fields);
    for waiter in 0..6 {
        let keys = json!({"node": "n1", "pid": 20 + waiter, "root": 100});
        scene.set("block", keys, json!({"blocked_by": 100, "root_state": "idle in transaction", "depth": 1, "wait_s": 9.0, "lock_type": "transactionid"}));
    }
}

/// A statement that is planned for long, on a table of which this is unusual.
fn long_lists(scene: &mut Scene, peculiar: &str) {
    let text = "select n from trade t join quote q on q.isin = t.isin where t.id = $1";
    scene.event(1, event::QUERY, "", json!({"query_id": "9", "text": text}));
    super::fit::planned_long(scene, 12.0, 2_000);
    scene.fact(n1(), "peculiar", "public.quote", peculiar);
}

/// Errors of one kind all the time.
fn errors(scene: &mut Scene, state: &str, message: &str) {
    for second in 1..=100 {
        let more = json!({"node": "n1", "severity": "ERROR", "sqlstate": state, "repeated": 2});
        scene.event(second, event::SERVER_LOG, message, more);
    }
}

const NO_IDS: &str = "database is not accepting commands to avoid wraparound data loss in database \"shop\"";

/// A subscription whose worker ends at the same change again and again.
fn conflict(scene: &mut Scene) {
    let keys = json!({"node": "n1", "subscription": "sub_paid"});
    scene.set(
        "subscription",
        keys,
        json!({"apply_errors": 1, "sync_errors": 0, "enabled": true, "own": false, "running": false}),
    );
    for message in [
        "background worker \"logical replication apply worker\" (PID 7) exited with exit code 1",
        "conflict detected on relation \"public.paid\"",
    ] {
        scene.event(5, event::SERVER_LOG, message, json!({"node": "n1", "severity": "ERROR"}));
    }
}

/// A cursor of exports, and how many rows of its table are read in a second.
fn cursor(scene: &mut Scene, read: u64) {
    let figures = json!({"calls": 200, "rows": 2_000_000, "total_ms": 25_000.0, "shared_hit": 900_000});
    super::work::statement(scene, "9", "FETCH 20000 FROM export", figures);
    let text = "DECLARE export CURSOR FOR SELECT id, seconds FROM call WHERE file = 7 ORDER BY id";
    scene.event(1, event::QUERY, "", json!({"node": "n1", "query_id": "8", "text": text, "user": "loader"}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.call"});
    scene.set(
        "table",
        keys,
        json!({"bytes": 90_000_000, "live_rows": 3_000_000, "index_scans": 600, "index_rows": read * 60}),
    );
}

/// A loop over rows that a condition keeps, planned to keep so many of a table, in a statement that returns so many.
fn guessed(scene: &mut Scene, filter: &str, rows: u64) {
    let text = "select item, sum(n) from paper p join price q on q.item = p.item where coalesce(p.state, $1) = $2 group by 1";
    statement(scene, text, json!({"calls": 10, "rows": rows * 10}), json!({"rows_planned": 1.0}));
    node(scene, 1, 0, "Nested Loop", json!({"condition": "(p.item = q.item)"}));
    let fields = json!({"relation": "public.paper", "alias": "p", "filter": filter, "rows_planned": 5.0, "table_rows": 200_000.0});
    node(scene, 2, 1, "Seq Scan", fields);
}

/// A statement on the catalog, which takes most of the time.
fn of_catalog(scene: &mut Scene) {
    let text = "select constraint_name from information_schema.table_constraints where table_name = $1";
    statement(scene, text, json!({"calls": 9, "shared_hit": 4_000_000}), json!({}));
    node(
        scene,
        1,
        0,
        "Seq Scan",
        json!({"relation": "pg_catalog.pg_class", "filter": "(c.relkind = $1)", "table_rows": 21_427.0, "rows_planned": 2.0}),
    );
}

/// A function that returns all rows of a table in FROM, with a setting of its own or not.
fn whole_function(scene: &mut Scene, settings: &str) {
    statement(
        scene,
        "select * from open_papers() where owner = $1",
        json!({"calls": 100, "rows": 300, "shared_hit": 900_000}),
        json!({}),
    );
    scene.drop_source("plan");
    let keys = json!({"node": "n1", "database": "db", "relation": "public.paper"});
    let fields =
        json!({"bytes": 90_000_000, "live_rows": 400_000, "seq_scans": 600, "seq_rows": 240_000_000});
    scene.set("table", keys, fields);
    scene.fact(
        n1(),
        "function",
        "open_papers",
        "sql returning 1000 rows: select * from paper where closed is null",
    );
    if !settings.is_empty() {
        scene.fact(n1(), "function_settings", "open_papers", settings);
    }
}

/// A pool of pgbouncer with so many transactions a second, and as many connections that are opened.
fn pool_without_memory(scene: &mut Scene, transactions: u64) {
    scene.set("server", n1(), json!({"sessions_opened": 400, "xact_commit": 1_000}));
    let keys = json!({"node": "n1", "pooler": "p", "database": "shop", "user": "portal"});
    scene.set(
        "pool",
        keys,
        json!({"pool_mode": "transaction", "transactions": transactions, "size": 10, "clients_waiting": 0}),
    );
}

/// Sessions at work with this text, where no extension counts statements.
fn at_work_with(scene: &mut Scene, text: &str) {
    scene.drop_source("statement");
    scene.event(1, event::QUERY, "", json!({"node": "n1", "query_id": "9", "text": text}));
    let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": "9"});
    scene.set("wait", wait, json!({"sessions": 20}));
    scene.set("server", json!({"node": "n1"}), json!({"temp_bytes": 80_000_000, "temp_files": 3}));
}

/// A base backup whose walsender uses so much processor time in each second, while sessions wait for a CPU.
fn backed_up(scene: &mut Scene, cpu_us: u64) {
    let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
    scene.set("schedule", backends, json!({"run_us": 2_000_000, "wait_us": 4_000_000}));
    scene.set("server", json!({"node": "n1"}), json!({"active_ms": 6_000.0}));
    for (kind, event) in [("CPU", "CPU"), ("IO", "DataFileRead")] {
        scene.set(
            "wait",
            crate::scene::wait("n1", kind, event),
            json!({"sessions": 6 * u64::from(kind == "CPU")}),
        );
    }
    let progress = json!({"node": "n1", "pid": 77, "command": "basebackup"});
    scene.set(
        "progress",
        progress,
        json!({"phase": "streaming database files", "done": 1_000_000, "total": 9_000_000, "unit": "bytes"}),
    );
    let sender = json!({"host": "h1", "node": "n1", "backend": "walsender", "pid": 77});
    scene.set("backend", sender, json!({"cpu_us": cpu_us}));
}

/// Sessions that sleep in the kernel in so many of the looks, and commits that stop in seven of twenty seconds.
fn frozen(scene: &mut Scene, wchan: &str, asleep: u64, stops: bool) {
    let keys = json!({"host": "h1", "node": "n1", "pid": 300, "backend": "client backend"});
    let fields = json!({"cpu_us": 900, "state": "D", "wchan": wchan, "asleep": 0, "blocked_write": 0});
    scene.set("backend", keys.clone(), fields);
    scene.vary("backend", keys, "asleep", move |second| f64::from(u8::from(second < asleep)));
    scene.vary(
        "server",
        n1(),
        "xact_commit",
        move |second| if stops && second % 20 < 7 { 0.0 } else { 3_000.0 },
    );
}

/// Updates by this text, of which so many of 1,000 a second change a row.
fn by_version(scene: &mut Scene, text: &str, rows: u64) {
    let figures = json!({"calls": 10_000, "rows": rows * 10, "total_ms": 3_000.0, "shared_hit": 60_000});
    statement(scene, text, figures, json!({}));
    scene.set("server", n1(), json!({"xact_commit": 250, "xact_rollback": 850}));
}

/// An UPDATE with so many cases, and so many rows each time.
fn by_cases(scene: &mut Scene, cases: usize, rows: u64) {
    let text = format!(
        "update vehicle set lat = (case {}end) where id in ($1)",
        "when (id = $1) then $2 ".repeat(cases)
    );
    let figures = json!({"calls": 100, "rows": rows * 100, "total_ms": 30_000.0, "shared_hit": rows * 500});
    statement(scene, &text, figures, json!({}));
}

/// A loop over 100 rows that touches many blocks, and so many index scans of its inner table for each of ten executions a second.
pub(super) fn looped(scene: &mut Scene, scans: u64) {
    let text = "select o.payload from patient p join observation o on o.patient = p.id where p.ward = $1";
    let figures = json!({"calls": 100, "rows": 30_000, "total_ms": 30_000.0, "shared_hit": 1_100_000});
    statement(scene, text, figures, json!({"cost_total": 221.0, "rows_planned": 100.0}));
    node(scene, 1, 0, "Nested Loop", json!({"rows_planned": 100.0}));
    let outer = json!({"relation": "public.patient", "alias": "p", "index": "ward", "condition": "(p.ward = $1)", "rows_planned": 100.0,
        "table_rows": 6_000.0});
    node(scene, 2, 1, "Index Scan", outer);
    let inner = json!({"relation": "public.observation", "alias": "o", "index": "of", "condition": "(o.patient = p.id)", "table_rows": 60_000.0});
    node(scene, 3, 1, "Index Scan", inner);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.observation"});
    let table = json!({"bytes": 90_000_000, "live_rows": 60_000, "index_scans": scans * 600, "index_rows": scans * 1_800, "seq_scans": 0});
    scene.set("table", keys, table);
}

/// An UPDATE of a small column in a table with large values that is replicated by whole old rows.
fn whole_old_row(scene: &mut Scene) {
    super::steps::writer(scene, 40_000, 1);
    scene.fact(n1(), "setting", "wal_level", "logical");
    let keys = json!({"node": "n1", "database": "db", "relation": "public.game_state"});
    let fields = json!({"bytes": 90_000_000, "live_rows": 9_000, "replica_identity": "full", "primary_key": true, "published": true, "rows_updated": 60_000});
    scene.set("table", keys, fields);
}

/// Rules, levels and changes.
pub(super) const CASES: &[Fires] = &[
    ("IO-12", Counter, |scene| frozen(scene, "percpu_rwsem_wait", 40, true)),
    ("IO-12", Counter, |scene| frozen(scene, "__percpu_down_read", 40, false)),
    ("PLAN-24", Co, |scene| looped(scene, 10_000)),
    ("WAL-04", Co, whole_old_row),
    ("TXN-23", Counter, |scene| {
        by_version(scene, "update product set stock = $1, version = $2 where id = $3 and version = $4", 110);
    }),
    ("TXN-24", Co, |scene| by_cases(scene, 40, 1_500)),
    ("CFG-04", Counter, |scene| {
        scene.fact(n1(), "collation_version", "database shop", "153.14 -> 153.120; 12");
    }),
    ("REP-10", Counter, |scene| {
        scene.set("server", n1(), json!({"in_recovery": true, "replay_paused": true}));
        scene.fact(n1(), "setting", "max_connections", "100");
        scene.fact(json!({"node": "n2"}), "setting", "max_connections", "300");
    }),
    ("LOG-04", Counter, |scene| in_kernel(scene, 4, "pipe_write")),
    ("LOG-04", Counter, |scene| in_kernel(scene, 4, "unix_wait_for_peer")),
    ("SES-14", Counter, |scene| logins(scene, 9, 0)),
    ("SES-14", Counter, |scene| logins(scene, 9, 1)),
    ("SES-15", Counter, |scene| at_login(scene, "login", 9, 9)),
    ("TXN-13", Counter, |scene| read_only(scene, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")),
    ("PLAN-61", Co, |scene| of_function(scene, 2, "branch")),
    ("PLAN-92", Co, |scene| joined_by_or(scene, NULL_SAFE, Some(90_000.0))),
    ("PLAN-92", Co, |scene| joined_by_or(scene, NULL_SAFE, None)),
    ("PLAN-94", Co, |scene| cursor(scene, 4_000_000)),
    ("SES-17", Counter, |scene| backed_up(scene, 2_000_000)),
    ("TXN-22", Co, |scene| {
        at_work_with(scene, "declare grid cursor with hold for select p.id from posting p order by p.booked");
    }),
    ("PLAN-93", Co, |scene| guessed(scene, "(COALESCE(p.state, $1) = $2)", 300)),
    ("PLAN-93", Co, |scene| guessed(scene, "(CASE WHEN (p.state > 3) THEN $1 ELSE $2 END = $3)", 300)),
    ("SES-07", Counter, of_catalog),
];

/// What only looks like it.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // Another reason to sleep, and one look; updates that find their row, and ones that set a state again.
    ("IO-12", |scene| frozen(scene, "folio_wait_bit", 40, true)),
    ("IO-12", |scene| frozen(scene, "percpu_rwsem_wait", 2, true)),
    ("TXN-23", |scene| {
        by_version(scene, "update product set stock = $1, version = $2 where id = $3 and version = $4", 980);
    }),
    ("TXN-23", |scene| by_version(scene, "update device set online = $1 where id = $2 and online = $3", 10)),
    // A few rows, and a few cases.
    ("TXN-24", |scene| by_cases(scene, 40, 40)),
    ("TXN-24", |scene| by_cases(scene, 4, 1_500)),
    // The whole old row is in the WAL (WAL-04).
    ("WAL-11", whole_old_row),
    // One line of the log at times; a program that logs in all the time, and one that does now and then.
    ("LOG-04", |scene| in_kernel(scene, 1, "pipe_write")),
    ("SES-14", |scene| logins(scene, 4, 200)),
    ("SES-14", |scene| logins(scene, 1, 0)),
    // A trigger of commands, one where hardly a session is opened, and one beside a table that is scanned by others.
    ("SES-15", |scene| at_login(scene, "ddl_command_end", 9, 9)),
    ("SES-15", |scene| at_login(scene, "login", 0, 9)),
    ("SES-15", |scene| at_login(scene, "login", 9, 900)),
    // A function that returns as many as it is taken for, and a table without an index for them.
    ("PLAN-61", |scene| of_function(scene, 9_000, "branch")),
    ("PLAN-61", |scene| of_function(scene, 2, "title")),
    // A function in FROM is called once.
    ("PLAN-24", |scene| of_function(scene, 2, "branch")),
    // A cursor that finds what it returns; a column that is compared, and an estimate that fits.
    ("PLAN-94", |scene| cursor(scene, 300_000)),
    ("SES-17", |scene| backed_up(scene, 100_000)),
    ("TXN-22", |scene| {
        at_work_with(scene, "declare grid cursor for select p.id from posting p order by p.booked")
    }),
    ("PLAN-93", |scene| guessed(scene, "(p.state = $2)", 300)),
    ("PLAN-93", |scene| guessed(scene, "(COALESCE(p.state, $1) = $2)", 5)),
    // The catalog gets no index.
    ("PLAN-10", of_catalog),
    // A loop over few rows, and an equality beside the OR.
    ("PLAN-92", |scene| joined_by_or(scene, NULL_SAFE, Some(90.0))),
    ("PLAN-92", |scene| {
        joined_by_or(
            scene,
            "select 1 from fact f join store s on f.shop = s.shop and (f.code = s.code or s.code is null)",
            None,
        );
    }),
];

/// Rules, changes, and what their claims must say.
pub(crate) const TOLD: &[(&str, Change, &str)] = &[
    (
        "TXN-13",
        |scene| read_only(scene, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
        "among the statements is SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY of role portal, and pgbouncer runs on this host",
    ),
    // A setting of the role at work is the reason then.
    (
        "TXN-13",
        |scene| {
            read_only(scene, "select 1");
            scene.fact(n1(), "setting", "default_transaction_read_only", "on");
        },
        "a standby, or default_transaction_read_only",
    ),
    (
        "SES-15",
        |scene| at_login(scene, "login", 9, 9),
        "sec.visit is scanned about as often, 90,000 rows each time",
    ),
    ("LOG-04", |scene| in_kernel(scene, 4, "unix_wait_for_peer"), "the system's log"),
    ("LCK-01", |scene| batch(scene, 0.003), "at work, one statement after another, in one long transaction"),
    ("LCK-01", |scene| batch(scene, 50.0), "is itself idle in transaction"),
    (
        "PLAN-04",
        |scene| long_lists(scene, "it is unlogged; statistics target 10000 for column isin"),
        "column isin of public.quote has a statistics target of 10,000",
    ),
    // Of a column that the statement does not name.
    (
        "PLAN-04",
        |scene| long_lists(scene, "statistics target 10000 for column venue"),
        "all 160 partitions are planned",
    ),
    (
        "TXN-13",
        |scene| errors(scene, "54000", NO_IDS),
        "every statement that writes is refused, because a database is about to run out of transaction ids",
    ),
    // Another limit has the same SQLSTATE.
    (
        "TXN-13",
        |scene| errors(scene, "54000", "index row size 2712 exceeds btree version 4 maximum 2704"),
        "statements a second fail: index row size",
    ),
    ("REP-07", conflict, "fails again and again"),
    (
        "PLAN-01",
        |scene| whole_function(scene, "search_path=public"),
        "because it has settings of its own (search_path=public)",
    ),
    ("PLAN-01", |scene| whole_function(scene, ""), "one of these keeps it from that: VOLATILE"),
    (
        "SES-01",
        |scene| pool_without_memory(scene, 400),
        "as many as the pool of shop in pgbouncer has transactions (transaction)",
    ),
    (
        "TXN-13",
        |scene| errors(scene, "XX001", "invalid page in block 701 of relation \"base/16384/16489\""),
        "blocks of a relation are damaged",
    ),
    ("REP-07", conflict, "conflict detected on relation \"public.paid\""),
];
