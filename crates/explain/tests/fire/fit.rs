//! Indexes and statistics that nearly fit, work that a statement's text does not show, settings of roles: plans and counters in which their rules fire, and what
//! only looks like it.

use super::plan::{index, node, scan, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use record::event;
use serde_json::{Value, json};

const NEXT: &str =
    "select coalesce(max(substr(no, $1)::int), $2) + $3 as next from receipt r where shop = $4";

/// A statement whose plan aggregates so many rows that an index finds.
fn extreme(scene: &mut Scene, text: &str, rows: f64) {
    statement(scene, text, json!({}), json!({"cost_total": 900.0}));
    node(scene, 1, 0, "Aggregate", json!({}));
    let fields = json!({"relation": "public.receipt", "alias": "r", "index": "receipt_shop", "condition": "(r.shop = $4)",
        "table_rows": 90_000.0, "rows_planned": rows});
    node(scene, 2, 1, "Index Scan", fields);
}

/// Two indexes that find so many rows each, of which 20 fit.
fn combined(scene: &mut Scene, found: f64) {
    statement(
        scene,
        "select id from offer o where town = $1 and kind = $2",
        json!({}),
        json!({"cost_total": 900.0}),
    );
    node(
        scene,
        1,
        0,
        "Bitmap Heap Scan",
        json!({"relation": "public.offer", "alias": "o", "rows_planned": 20.0}),
    );
    node(scene, 2, 1, "BitmapAnd", json!({}));
    for (number, column) in [(3, "town"), (4, "kind")] {
        let fields = json!({"index": format!("offer_{column}"), "condition": format!("(o.{column} = $1)"), "rows_planned": found});
        node(scene, number, 2, "Bitmap Index Scan", fields);
    }
}

/// The first rows in an order, for which a plan sorts what an index with this definition finds.
fn ordered(scene: &mut Scene, order: &str, columns: &str) {
    statement(
        scene,
        "select id from orders o where board = $1 order by weight desc, at limit $2",
        json!({}),
        json!({}),
    );
    node(scene, 1, 0, "Limit", json!({}));
    node(scene, 2, 1, "Incremental Sort", json!({"condition": order}));
    let fields = json!({"relation": "public.orders", "alias": "o", "index": "orders_board", "condition": "(o.board = $1)", "rows_planned": 9_000.0});
    node(scene, 3, 2, "Index Scan", fields);
    index(scene, "orders_board", "board; weight; at", true);
    let keys = json!({"node": "n1", "relation": "public.orders", "index": "orders_board"});
    scene.set(
        "plan_index",
        keys,
        json!({"definition": format!("CREATE INDEX orders_board ON public.orders USING btree ({columns})")}),
    );
}

/// Partitions that are grouped and joined by a loop with this filter, where this is known of their table.
fn grouped(scene: &mut Scene, filter: &str, known: &str) {
    let text = "select sum(s.n) from (select visitor, count(*) n from visit group by visitor having count(*) = $1) s join answer a using (visitor)";
    statement(scene, text, json!({"shared_hit": 2_000}), json!({"cost_total": 900.0}));
    node(scene, 1, 0, "Nested Loop", json!({"filter": filter}));
    node(scene, 2, 1, "Aggregate", json!({"condition": "visit.visitor"}));
    node(
        scene,
        3,
        2,
        "Seq Scan",
        json!({"relation": "public.visit_1", "table_rows": 9_000.0, "rows_planned": 9_000.0}),
    );
    scene.fact(json!({"node": "n1"}), "peculiar", "public.visit", known);
}

/// A statement that is planned for so long here, and with which sessions are seen to compute at every look.
pub(super) fn planned_long(scene: &mut Scene, planning_ms: f64, calls: u64) {
    let figures = json!({"calls": calls, "total_ms": 0.05 * calls as f64, "shared_hit": 900});
    statement(
        scene,
        "select id from voucher where tenant = current_setting($1)::int",
        figures,
        json!({"planning_ms": planning_ms, "partitions": 160, "partitions_removed": 159}),
    );
    let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": "9"});
    scene.set("wait", wait, json!({"sessions": 4}));
}

/// A statement on a view of so many tables, with which four sessions compute for far longer than its executions take, and no plan of it.
pub(crate) fn planned_unseen(scene: &mut Scene, tables: u64, limit: &str) {
    let figures = json!({"calls": 100, "total_ms": 40.0, "shared_hit": 3_300, "rows": 100});
    super::work::statement(scene, "9", "select * from wide where id = $1", figures);
    for table in 0..tables {
        let keys = json!({"node": "n1", "database": "db", "relation": format!("public.t{table}")});
        scene.set("table", keys, json!({"live_rows": 2_000, "index_scans": 600, "seq_scans": 0}));
    }
    for name in ["join_collapse_limit", "from_collapse_limit"] {
        scene.fact(json!({"node": "n1"}), "setting", name, limit);
    }
    scene.fact(json!({"node": "n1"}), "setting", "geqo", "off");
    let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": "9"});
    scene.set("wait", wait, json!({"sessions": 4}));
}

/// A read of so many conditions, each time as many more, with which sessions compute for longer than executions take.
pub(crate) fn planned_wordy(scene: &mut Scene, conditions: usize, total_ms: f64, verb: &str) {
    for (id, more) in [("9", 0), ("10", 1), ("11", 2)] {
        let pairs =
            (0..conditions + more).map(|n| format!("(shop = ${} AND item = ${})", 2 * n + 1, 2 * n + 2));
        let text: String =
            format!("{verb} WHERE {}", pairs.collect::<Vec<_>>().join(" OR ")).chars().take(4_000).collect();
        super::work::statement(
            scene,
            id,
            &text,
            json!({"calls": 20, "total_ms": total_ms, "shared_hit": 900, "rows": 100}),
        );
        let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": id});
        scene.set("wait", wait, json!({"sessions": 1}));
    }
}

/// A table of so few rows, of which this many updates are counted, by so many executions.
fn updated(scene: &mut Scene, updates: u64, calls: u64) {
    let text = "update stock_total set n = n + $1 where depot = $2";
    statement(scene, text, json!({"rows": updates, "calls": calls}), json!({}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.stock_total"});
    scene.set(
        "table",
        keys,
        json!({"bytes": 9_000_000, "live_rows": 4, "dead_rows": 900, "rows_updated": updates, "autovacuum": true}),
    );
}

/// A statement that waits for another server, on a foreign table of which this is known.
fn foreign(scene: &mut Scene, known: &str) {
    statement(scene, "select points from bonus where account = $1", json!({}), json!({}));
    scene.fact(json!({"node": "n1"}), "peculiar", "public.bonus", known);
    scene.fact(json!({"node": "n1"}), "extension", "postgres_fdw", "1.1");
    waits(scene, "Extension", "Extension");
}

fn waits(scene: &mut Scene, kind: &str, event: &str) {
    let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": kind, "wait_event": event});
    scene.set("wait", wait, json!({"sessions": 6}));
}

/// The archive is this far behind at each second.
fn behind(scene: &mut Scene, bytes: fn(u64) -> f64) {
    let of = json!({"node": "n1"});
    scene.set("server", of.clone(), json!({"wal_bytes": 20_000_000}));
    scene.vary("server", of, "archive_behind_bytes", bytes);
}

/// A role that is at work, with a setting of its own.
fn own(scene: &mut Scene, setting: &str, value: &str) {
    scene.fact(json!({"node": "n1"}), "own_setting", &format!("{setting} of role clerk"), value);
    let keys =
        json!({"node": "n1", "application": "till", "user": "clerk", "database": "db", "client": "local"});
    scene.set("activity", keys, json!({"sessions": 4}));
}

/// A statement that reads the elements of a document in each row of a table, and returns so many.
fn elements(scene: &mut Scene, rows: u64) {
    let text = "select o.id from orders o where exists (select from jsonb_array_elements(o.doc -> $2) e where e ->> $3 = $1)";
    statement(scene, text, json!({"rows": rows * 10, "calls": 10}), json!({}));
    let fields = json!({"relation": "public.orders", "alias": "o", "filter": "(SubPlan 1)", "table_rows": 40_000.0, "rows_planned": 20_000.0});
    node(scene, 1, 0, "Seq Scan", fields);
    node(
        scene,
        2,
        1,
        "Function Scan",
        json!({"subquery": true, "condition": "jsonb_array_elements((o.doc -> $2))"}),
    );
}

/// A scan with this filter, and an index on this.
fn on_expression(scene: &mut Scene, filter: &str, indexed: &str) {
    scan(scene, filter, "");
    index(scene, "orders_search", "", true);
    let keys = json!({"node": "n1", "relation": "public.orders", "index": "orders_search"});
    let definition = format!("CREATE INDEX orders_search ON public.orders USING gin ({indexed})");
    scene.set(
        "plan_index",
        keys,
        json!({"definition": definition, "method": "gin", "operator_classes": "tsvector_ops"}),
    );
}

/// A report that calls a function which scans a table of its own.
fn calls_function(scene: &mut Scene) {
    let text = "select avg(workdays(opened, closed)) from ticket where team = $1";
    statement(
        scene,
        text,
        json!({"calls": 100, "rows": 100, "shared_hit": 900_000}),
        json!({"cost_total": 300.0}),
    );
    let keys = json!({"node": "n1", "database": "db", "relation": "public.holiday"});
    scene.set(
        "table",
        keys,
        json!({"bytes": 90_000, "live_rows": 100, "seq_scans": 90_000, "seq_rows": 9_000_000}),
    );
    scene.fact(
        json!({"node": "n1"}),
        "function",
        "workdays",
        "plpgsql returning 0 rows: BEGIN IF NOT EXISTS (SELECT ? FROM public.holiday h WHERE h.day = t) THEN",
    );
}

/// Two lists that are joined to the same rows, and counted.
fn counted(scene: &mut Scene, aggregate: &str) {
    let text = format!(
        "select p.id, count({aggregate} v.id) as views, count({aggregate} l.id) as likes from post p left join view v on v.post = p.id \
         left join liked l on l.post = p.id where p.author = $1 group by p.id"
    );
    statement(scene, &text, json!({"rows": 100, "shared_hit": 20_000}), json!({}));
    node(scene, 1, 0, "Aggregate", json!({"condition": "p.id"}));
    for (number, table, alias) in [(2, "view", "v"), (3, "liked", "l")] {
        node(
            scene,
            number,
            1,
            "Index Scan",
            json!({"relation": format!("public.{table}"), "alias": alias, "rows_planned": 30.0}),
        );
    }
}

/// Errors of two kinds in the log of a server.
fn refused(scene: &mut Scene) {
    for second in 1..=100 {
        for (state, message) in [
            ("42P05", "prepared statement \"S_1\" already exists"),
            ("25P02", "current transaction is aborted, commands ignored"),
        ] {
            let more = json!({"node": "n1", "severity": "ERROR", "sqlstate": state, "repeated": 900});
            scene.event(second, event::SERVER_LOG, message, more);
        }
    }
}

/// Sorts whose files are small beside what the server gives.
fn small_files(scene: &mut Scene) {
    let figures = json!({"temp_written": 5_000, "rows": 100_000});
    statement(scene, "select branch, sum(n) from line group by branch", figures, json!({}));
    node(
        scene,
        1,
        0,
        "Aggregate",
        json!({"condition": "line.branch", "rows_planned": 10_000.0, "width_bytes": 40}),
    );
    scene.fact(json!({"node": "n1"}), "setting", "work_mem", "64MB");
}

/// The same where far more rows are returned than groups were planned.
fn more_groups(scene: &mut Scene) {
    small_files(scene);
    scene.set(
        "statement",
        json!({"node": "n1", "database": "db", "query_id": "9"}),
        json!({"rows": 10_000_000}),
    );
}

/// Commits that wait for standbys, of which one streams.
fn standbys(scene: &mut Scene, names: &str) {
    waits(scene, "IPC", "SyncRep");
    // No commit returns but those of monitoring.
    let nothing = json!({"xact_commit": 2, "tup_inserted": 0, "tup_updated": 0, "tup_deleted": 0});
    scene.set("server", json!({"node": "n1"}), nothing);
    scene.fact(json!({"node": "n1"}), "setting", "synchronous_standby_names", names);
    let keys = json!({"node": "n1", "standby": "s1"});
    scene.set("replication", keys, json!({"state": "streaming", "sync_state": "quorum"}));
}

/// A mapper that saves the rows of a list one by one.
fn saved(scene: &mut Scene, updates: u64) {
    statement(
        scene,
        "select pupil, mark from grade where class = $1",
        json!({"calls": 800, "rows": 32_000, "total_ms": 9_000.0}),
        json!({}),
    );
    let texts = ["select id, mark from grade where id = $1", "update grade set mark = $1 where id = $2"];
    for (number, text) in (20..).zip(texts) {
        let id = number.to_string();
        scene.event(1, event::QUERY, "", json!({"query_id": id, "text": text}));
        let keys = json!({"node": "n1", "database": "db", "query_id": id});
        scene.set(
            "statement",
            keys,
            json!({"calls": updates, "rows": updates, "total_ms": 5_000.0, "shared_hit": updates}),
        );
    }
}

/// A table that gets so many rows, with an index of this kind that nothing reads.
fn unscanned(scene: &mut Scene, rows: u64, indexes: &str) {
    let keys = json!({"node": "n1", "database": "db", "relation": "public.event"});
    let fields = json!({"bytes": 90_000_000, "live_rows": 90_000, "rows_inserted": rows, "index_scans": 9_000, "indexes": 2,
        "unscanned_indexes": indexes});
    scene.set("table", keys, fields);
}

/// A table full of dead rows, and how often autovacuum looks.
fn seldom(scene: &mut Scene, naptime: &str) {
    statement(scene, "select count(*) from fleet group by area", json!({"shared_hit": 900_000}), json!({}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.fleet"});
    let fields = json!({"bytes": 90_000_000, "live_rows": 300, "dead_rows": 100_000, "seq_scans": 900, "seq_rows": 270_000, "blocks_hit": 90_000_000,
        "rows_updated": 9_000, "autovacuum": true});
    scene.set("table", keys, fields);
    scene.fact(json!({"node": "n1"}), "setting", "autovacuum_naptime", naptime);
}

/// Dead rows whose index entries no vacuum removes.
fn without_cleanup(scene: &mut Scene) {
    seldom(scene, "1min");
    let value = "options fillfactor=90, vacuum_index_cleanup=off";
    scene.fact(json!({"node": "n1"}), record::watched::PECULIAR, "public.fleet", value);
}

/// Processes of logins on a server that looks the names of its clients up.
fn looks_names_up(scene: &mut Scene) {
    let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
    scene.set("schedule", backends, json!({"tasks": 20, "looked": 20, "authenticating": 4}));
    scene.set("server", json!({"node": "n1"}), json!({"sessions_opened": 0}));
    scene.fact(json!({"node": "n1"}), "setting", "log_hostname", "on");
}

/// A plan whose condition has a column without statistics.
fn without_statistics(scene: &mut Scene) {
    let text = "select count(*) from orders where customer = $1 and state = $2";
    statement(scene, text, json!({"shared_hit": 160_000}), json!({"cost_total": 900.0}));
    let condition = "((state = $2) AND (customer = $1))";
    node(scene, 1, 0, "Bitmap Heap Scan", json!({"relation": "public.orders", "condition": condition}));
    let value = "statistics target 0 for column state";
    scene.fact(json!({"node": "n1"}), record::watched::PECULIAR, "public.orders", value);
}

/// A function with less memory of its own.
fn small_function(scene: &mut Scene) {
    statement(scene, "select * from largest($1)", json!({"temp_written": 9_000}), json!({}));
    scene.fact(json!({"node": "n1"}), "function_settings", "largest", "work_mem=256kB");
    scene.fact(json!({"node": "n1"}), "setting", "work_mem", "64MB");
}

pub(crate) const CASES: &[Fires] = &[
    ("PLAN-72", Co, |scene| extreme(scene, NEXT, 9_000.0)),
    ("PLAN-73", Co, |scene| combined(scene, 5_000.0)),
    ("PLAN-74", Co, |scene| ordered(scene, "o.weight DESC, o.at", "board, weight, at")),
    ("PLAN-74", Co, |scene| ordered(scene, "o.weight DESC NULLS LAST", "board, weight DESC, at")),
    ("PLAN-75", Co, |scene| {
        grouped(scene, "(visit.visitor = a.visitor)", "partitioned by RANGE (at), never analysed as a whole")
    }),
    ("PLAN-75", Co, |scene| {
        grouped(scene, "(visit.visitor = a.visitor)", "without statistics, never analysed")
    }),
    ("PLAN-04", Co, |scene| planned_long(scene, 12.0, 2_000)),
    ("PLAN-04", Co, |scene| planned_unseen(scene, 11, "14")),
    ("PLAN-04", Co, |scene| planned_wordy(scene, 900, 200.0, "SELECT n FROM stock")),
    ("TXN-18", Counter, |scene| updated(scene, 90_000, 10)),
    ("EXT-05", Counter, |scene| foreign(scene, "its server is queried for estimates (use_remote_estimate)")),
    ("EXT-01", Counter, |scene| foreign(scene, "3 exclusion constraints")),
    ("IO-11", Counter, |scene| waits(scene, "IO", "DataFileTruncate")),
    ("SES-11", Counter, |scene| statement(scene, "select * from pgstattuple($1)", json!({}), json!({}))),
    ("CFG-02", Co, |scene| own(scene, "log_statement_stats", "on")),
    ("CFG-01", Co, |scene| {
        scene.fact(json!({"node": "n1"}), "setting", "vacuum_defer_cleanup_age", "1000000");
    }),
    ("WAL-08", Counter, |scene| behind(scene, |second| second as f64 * 15e6)),
    ("PLAN-63", Counter, |scene| counted(scene, "distinct")),
    ("TXN-11", Co, |scene| saved(scene, 32_000)),
    ("PLAN-26", Co, |scene| unscanned(scene, 90_000, "event_data (gin)")),
    ("WAL-08", Counter, |scene| {
        scene.fact(json!({"node": "n1"}), "setting", "archive_mode", "on");
        scene.fact(json!({"node": "n1"}), "setting", "archive_command", "");
    }),
];

/// What only looks like it.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    ("PLAN-72", |scene| extreme(scene, NEXT, 40.0)),
    ("PLAN-72", |scene| extreme(scene, "select max(at), count(*) from receipt r where shop = $4", 9_000.0)),
    ("PLAN-73", |scene| combined(scene, 60.0)),
    ("PLAN-74", |scene| ordered(scene, "o.weight DESC, o.at", "board, weight DESC, at")),
    ("PLAN-74", |scene| ordered(scene, "o.weight DESC, o.at DESC", "board, weight, at")),
    ("PLAN-74", |scene| ordered(scene, "o.weight DESC", "board, weight, at")),
    ("PLAN-74", |scene| ordered(scene, "o.weight DESC, o.no", "board, weight, at")),
    ("PLAN-75", |scene| grouped(scene, "(visit.visitor = a.visitor)", "partitioned by RANGE (at)")),
    // The plan without statistics is no bad one.
    ("PLAN-75", |scene| {
        grouped(scene, "", "without statistics, never analysed");
        let keys = json!({"node": "n1", "query_id": "9", "hash": "c0"});
        scene.set("plan", keys, json!({"cost_total": 90_000.0}));
    }),
    // Planning that is short, or rare; and prepared once, so that sessions are seen in executions.
    ("PLAN-04", |scene| planned_long(scene, 0.1, 2_000)),
    // Executions that fail are not counted, however long they took.
    ("PLAN-04", |scene| {
        planned_unseen(scene, 11, "14");
        scene.set("server", json!({"node": "n1"}), json!({"xact_rollback": 40}));
    }),
    // A long text that runs for as long as sessions compute with it, a short one, and a write.
    ("PLAN-04", |scene| planned_wordy(scene, 900, 9_500.0, "SELECT n FROM stock")),
    ("PLAN-04", |scene| planned_wordy(scene, 9, 200.0, "SELECT n FROM stock")),
    ("PLAN-04", |scene| planned_wordy(scene, 900, 200.0, "DELETE FROM stock")),
    // One of its executions lasts: what sessions do is not planning.
    ("PLAN-04", |scene| {
        planned_unseen(scene, 11, "14");
        let session = json!({"node": "n1", "pid": 77});
        scene.set(
            "session",
            session,
            json!({"query_id": "9", "state": "active", "query": "select 1", "state_age_s": 9.0}),
        );
    }),
    ("PLAN-04", |scene| planned_long(scene, 12.0, 3)),
    ("TXN-18", |scene| updated(scene, 90_000, 90_000)),
    ("EXT-05", |scene| foreign(scene, "3 exclusion constraints")),
    ("EXT-01", |scene| waits(scene, "Extension", "Extension")),
    ("IO-08", |scene| waits(scene, "IO", "DataFileTruncate")),
    ("SES-11", |scene| statement(scene, "select my_pgstattuple($1)", json!({}), json!({}))),
    ("CFG-02", |scene| own(scene, "statement_timeout", "30s")),
    ("WAL-08", |scene| behind(scene, |second| f64::from(u32::from(second % 2 == 0)) * 90e6)),
    ("WAL-08", |scene| behind(scene, |_| 900e6)),
    ("PLAN-63", |scene| counted(scene, "")),
    ("TXN-11", |scene| saved(scene, 4_000)),
    ("PLAN-26", |scene| unscanned(scene, 90_000, "event_at (btree)")),
    ("PLAN-26", |scene| unscanned(scene, 90, "event_data (gin)")),
    ("WAL-08", |scene| {
        scene.fact(json!({"node": "n1"}), "setting", "archive_mode", "on");
        scene.fact(json!({"node": "n1"}), "setting", "archive_command", "cp %p /archive/%f");
    }),
    ("PLAN-50", |scene| elements(scene, 20_000)),
    ("PLAN-11", |scene| {
        on_expression(
            scene,
            "(to_tsvector($3::regconfig, orders.text) @@ plainto_tsquery($1))",
            "to_tsvector('***'::regconfig, text)",
        )
    }),
    ("PLAN-11", |scene| on_expression(scene, "(orders.made > $1)", "to_tsvector('***'::regconfig, text)")),
    // Columns of another table with the same name.
    ("PLAN-11", |scene| {
        scan(scene, "((orders.x + $1) = (other.customer + 1))", "");
        let keys = json!({"node": "n1", "query_id": "9", "hash": "c0", "number": 1});
        scene.set("plan_node", keys, json!({"alias": "orders"}));
        index(scene, "orders_customer", "customer", true);
    }),
];

/// Rules, changes, and what their claims must say.
pub(crate) const TOLD: &[(&str, Change, &str)] = &[
    (
        "PLAN-04",
        |scene| planned_long(scene, 12.0, 2_000),
        "all 160 partitions are planned, and only when it runs 159 of them are left out",
    ),
    ("PLAN-01", calls_function, "function workdays() reads it"),
    (
        "PLAN-11",
        |scene| {
            on_expression(
                scene,
                "(to_tsvector(orders.text) @@ plainto_tsquery($1))",
                "to_tsvector('***'::regconfig, text)",
            )
        },
        "orders_search holds to_tsvector",
    ),
    ("PLAN-50", |scene| elements(scene, 10), "takes doc of each apart with jsonb_array_elements()"),
    ("TXN-11", |scene| saved(scene, 32_000), "fetched and written one by one (N+1)"),
    (
        "PLAN-26",
        |scene| unscanned(scene, 90_000, "event_data (gin)"),
        "of which nothing has read event_data (gin)",
    ),
    ("VAC-11", |scene| seldom(scene, "1h"), "only every 1h (autovacuum_naptime)"),
    ("VAC-11", without_cleanup, "vacuum_index_cleanup is off for this table"),
    ("SES-14", looks_names_up, "the name of each client's address is looked up first"),
    ("PLAN-61", without_statistics, "is left out of ANALYZE (its statistics target is 0)"),
    ("PLAN-02", small_function, "function largest() has a work_mem of its own: 256kB"),
    ("PLAN-02", small_files, "seem to have a work_mem of their own"),
    ("TXN-13", refused, "a pooler gives one server process to several clients"),
    (
        "REP-01",
        |scene| standbys(scene, "ANY 2 (*)"),
        "2 must confirm each commit (synchronous_standby_names = ANY 2 (*)), and only 1 of them is connected",
    ),
    (
        "TXN-05",
        |scene| {
            scene.set("server", json!({"node": "n1"}), json!({"xact_rollback": 3_000}));
            own(scene, "default_transaction_isolation", "serializable");
        },
        "because default_transaction_isolation is serializable for all of role clerk",
    ),
    (
        "LOG-01",
        |scene| own(scene, "log_statement_stats", "on"),
        "that is of role clerk is written to the server's log (log_statement_stats = on)",
    ),
];

/// Only one claim of failing statements, that of the cause.
pub(crate) fn failing() -> Vec<String> {
    let mut scene = Scene::healthy();
    refused(&mut scene);
    let all: Vec<_> =
        scene.explain().findings.into_iter().filter(|finding| finding.rule == "TXN-13").collect();
    all.into_iter().map(|finding| finding.claim).collect()
}

/// The claim about what `synchronous_standby_names` wants, where as many standbys stream.
pub(crate) fn enough_standbys() -> Value {
    let mut scene = Scene::healthy();
    standbys(&mut scene, "ANY 1 (*)");
    let found = scene.explain().findings.into_iter().find(|finding| finding.rule == "REP-01");
    json!(found.map(|finding| finding.claim))
}

/// Of groups only those that do not fit are written, so small files say nothing of the memory that a session has.
#[test]
fn groups_that_are_more_than_planned_need_no_setting_of_the_sessions() {
    let claim = super::surplus::claim_of("PLAN-02", more_groups);
    assert!(claim.contains("into 10k groups") && !claim.contains("of their own"), "{claim}");
}
