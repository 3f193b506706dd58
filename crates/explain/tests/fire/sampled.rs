//! Rules about the functions in which samples of the server's processes are.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use serde_json::json;

const SEARCHED: &str = "select count(*) from customer where mail ~ $1";
/// Where the server's code is.
pub(crate) const SERVER: &str = "/usr/lib/postgresql/15/bin/postgres";

/// Samples of a process that was seen at work with statement 9 of `n1`, or with none: so many with each stack, from the leaf to the root.
pub(crate) fn samples(is_seen: bool, stacks: &[(usize, &str, &str)]) -> String {
    let mut text = "# pgfathom stacks 1\n# started_monotonic_us: 0\n".to_string();
    for second in (100..110).filter(|_| is_seen) {
        text += &format!("# at work: {second}000000 4242 9 n1\n");
    }
    let all = stacks.iter().flat_map(|(count, frames, file)| std::iter::repeat_n((frames, file), *count));
    for (number, (frames, file)) in all.enumerate() {
        text += &format!(
            "postgres 4242/4242 [000] {}.{:02}0000: cpu-clock: \n",
            100 + number / 50,
            2 * (number % 50)
        );
        for (place, frame) in frames.split(' ').chain(["PostgresMain", "PostmasterMain", "main"]).enumerate()
        {
            let file = if place == 0 { file } else { SERVER };
            text += &format!("\t          {place:x}00 {frame} ({file})\n");
        }
        text.push('\n');
    }
    text
}

/// A statement that takes the time, and its samples.
fn sampled(scene: &mut Scene, stacks: &[(usize, &str, &str)]) {
    statement(scene, SEARCHED, json!({}), json!({}));
    scene.stacks(&samples(true, stacks));
}

/// Samples of processes that have no statement.
fn before(scene: &mut Scene, stacks: &[(usize, &str, &str)]) {
    scene.stacks(&samples(false, stacks));
}

const REGEX: &str = "[unknown] pg_regexec textregexeq [unknown] ExecScan standard_ExecutorRun";
const READS: &str = "heap_getnextslot ExecScan standard_ExecutorRun";
const LOGS_IN: &str = "pg_hmac_update scram_SaltedPassword CheckSASLAuth ClientAuthentication InitPostgres";

const CRYPTO: &str = "/usr/lib/x86_64-linux-gnu/libcrypto.so.3";

/// Sessions at work with statements of these texts, so many of each.
fn phases(scene: &mut Scene, texts: &[(&str, u64)]) {
    for (number, (text, sessions)) in texts.iter().enumerate() {
        let id = (100 + number).to_string();
        scene.event(1, record::event::QUERY, "", json!({"node": "n1", "query_id": id, "text": text}));
        let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "IO", "wait_event": "WALSync", "query_id": id});
        scene.set("wait", keys, json!({"sessions": sessions}));
    }
}

/// A statement of a role with this search_path, and tables of the name that it has, each with the rows of a scan.
fn found_by(scene: &mut Scene, text: &str, path: &str, tables: &[(&str, u64)]) {
    statement(scene, text, json!({}), json!({}));
    scene.fact(json!({"node": "n1"}), record::watched::OWN_SETTING, "search_path of role clerk", path);
    let keys =
        json!({"node": "n1", "application": "till", "user": "clerk", "database": "db", "client": "local"});
    scene.set("activity", keys, json!({"sessions": 40}));
    for (relation, rows) in tables {
        let keys = json!({"node": "n1", "database": "db", "relation": relation});
        scene.set("table", keys, json!({"live_rows": 900_000, "seq_scans": 30, "seq_rows": 30 * rows, "index_scans": 0, "index_rows": 0}));
    }
}

const INVOICES: &str = "select id, amount from invoice where account_id = $1";

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("PLAN-96", Counter, |scene| sampled(scene, &[(60, REGEX, SERVER), (40, READS, SERVER)])),
    // Work that statements may be made for is low, and is there.
    ("PLAN-96", Counter, |scene| {
        sampled(scene, &[(60, "cmp_numerics mul_var numeric_mul ExecScan", SERVER), (40, READS, SERVER)])
    }),
    ("PLAN-96", Counter, |scene| {
        sampled(
            scene,
            &[
                (60, "l2_distance ExecScan standard_ExecutorRun", "/usr/lib/postgresql/15/lib/vector.so"),
                (40, READS, SERVER),
            ],
        )
    }),
    ("PLAN-96", Counter, |scene| {
        sampled(scene, &[(100, "exec_stmt plpgsql_exec_function plpgsql_call_handler ExecResult", SERVER)])
    }),
    ("TXN-20", Counter, |scene| {
        phases(scene, &[("PREPARE TRANSACTION 'xa_7'", 3), ("COMMIT PREPARED 'xa_6'", 3)])
    }),
    ("TXN-20", Counter, |scene| phases(scene, &[("PREPARE TRANSACTION $1", 6)])),
    // Each has a name of its own, and most are forgotten before their text is read.
    ("TXN-20", Counter, |scene| {
        phases(
            scene,
            &[("COMMIT PREPARED 'xa_1'", 0), ("COMMIT PREPARED 'xa_2'", 0), ("COMMIT PREPARED 'xa_3'", 0)],
        );
        let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "IO", "wait_event": "WALSync", "query_id": "77"});
        scene.set("wait", keys, json!({"sessions": 9}));
    }),
    ("CFG-03", Co, |scene| {
        found_by(scene, INVOICES, "legacy, public", &[("legacy.invoice", 300_000), ("public.invoice", 10)])
    }),
    ("CFG-03", Co, |scene| {
        found_by(
            scene,
            "select * from \"Invoice\" i join account a on a.id = i.account_id",
            "\"Old Ones\",public",
            &[("\"Old Ones\".\"Invoice\"", 300_000), ("public.\"Invoice\"", 10)],
        )
    }),
    ("SES-16", Counter, |scene| before(scene, &[(60, LOGS_IN, SERVER), (70, READS, SERVER)])),
    // Who called the library is known of a few.
    ("SES-16", Counter, |scene| {
        before(scene, &[(6, LOGS_IN, SERVER), (54, "EVP_MD_CTX_copy_ex", CRYPTO), (70, READS, SERVER)])
    }),
];

/// Part of the changes that must not make the rule fire.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // A little of it, too few samples, another process, or none of the statement.
    // Blocks that its plan does not explain, and samples that show what it computes.
    ("PLAN-24", |scene| {
        let text = "select a from x join y using (b) where c = $1 and d = $2";
        statement(scene, text, json!({"calls": 100, "shared_hit": 1_100_000}), json!({"cost_total": 500.0}));
        node(scene, 1, 0, "Seq Scan", json!({}));
        scene.stacks(&samples(true, &[(60, REGEX, SERVER), (40, READS, SERVER)]));
    }),
    ("PLAN-96", |scene| sampled(scene, &[(30, REGEX, SERVER), (70, READS, SERVER)])),
    ("PLAN-96", |scene| sampled(scene, &[(39, REGEX, SERVER)])),
    ("PLAN-96", |scene| {
        statement(scene, SEARCHED, json!({}), json!({}));
        before(scene, &[(100, REGEX, SERVER)]);
    }),
    // Statements inside of the function have the time, and modules that look on.
    ("PLAN-96", |scene| {
        sampled(
            scene,
            &[(
                100,
                "heap_getnextslot ExecScan standard_ExecutorRun SPI_execute_plan plpgsql_call_handler",
                SERVER,
            )],
        )
    }),
    ("PLAN-96", |scene| {
        sampled(
            scene,
            &[(100, "pgss_ExecutorRun PortalRun", "/usr/lib/postgresql/15/lib/pg_stat_statements.so")],
        )
    }),
    // A statement with little of the time.
    ("PLAN-96", |scene| {
        sampled(scene, &[(100, REGEX, SERVER)]);
        statement(scene, SEARCHED, json!({"total_ms": 20.0}), json!({}));
    }),
    ("TXN-20", |scene| phases(scene, &[("PREPARE t AS select 1", 6), ("COMMIT", 6)])),
    // Those of the engine of a cluster.
    ("TXN-20", |scene| {
        scene.fact(json!({"node": "n1"}), record::watched::OWN, record::watched::own::PREPARED, "citus_");
        phases(scene, &[("PREPARE TRANSACTION 'citus_0_12_3'", 6), ("COMMIT PREPARED $1", 6)]);
    }),
    ("SES-16", |scene| before(scene, &[(20, LOGS_IN, SERVER), (110, READS, SERVER)])),
    // The schema is written, the path leads to the same table, or each tenant has a schema of its own.
    ("CFG-03", |scene| {
        let text = "select id, amount from public.invoice where account_id = $1";
        found_by(scene, text, "legacy, public", &[("legacy.invoice", 300_000), ("public.invoice", 10)]);
    }),
    ("CFG-03", |scene| {
        found_by(scene, INVOICES, "audit, public", &[("legacy.invoice", 10), ("public.invoice", 300_000)])
    }),
    ("CFG-03", |scene| {
        found_by(
            scene,
            INVOICES,
            "t1, public",
            &[
                ("t1.invoice", 300_000),
                ("t2.invoice", 10),
                ("t3.invoice", 10),
                ("t4.invoice", 10),
                ("public.invoice", 1),
            ],
        )
    }),
    ("CFG-03", |scene| {
        found_by(scene, INVOICES, "legacy, public", &[("legacy.invoice", 300_000), ("public.invoice", 0)]);
        let keys = json!({"node": "n1", "database": "db", "relation": "public.invoice"});
        scene.set("table", keys, json!({"seq_scans": 0}));
    }),
    ("SES-16", |scene| before(scene, &[(60, LOGS_IN, SERVER)])),
    // Rows that are encrypted on their way.
    ("SES-16", |scene| {
        before(scene, &[(2, LOGS_IN, SERVER), (100, "EVP_EncryptUpdate", CRYPTO), (30, READS, SERVER)])
    }),
];

/// The severity of what is found about a statement with these samples.
fn severity(text: &str, stacks: &[(usize, &str, &str)]) -> Option<record::finding::Severity> {
    let mut scene = Scene::healthy();
    statement(&mut scene, text, json!({}), json!({}));
    scene.stacks(&samples(true, stacks));
    scene.explain().findings.iter().find(|finding| finding.rule == "PLAN-96").map(|finding| finding.severity)
}

#[test]
fn work_for_which_statements_may_be_made_is_low() {
    use record::finding::Severity::{Low, Medium};
    const PARSES: &str = "parsetext to_tsvector_byid ExecModifyTable standard_ExecutorRun";
    const PACKS: &str = "pglz_compress toast_compress_datum heap_insert ExecModifyTable";
    let most = |work: &'static str| [(80, work, SERVER), (20, READS, SERVER)];
    assert!(severity(SEARCHED, &most(REGEX)) >= Some(Medium));
    assert_eq!(severity(SEARCHED, &[(50, REGEX, SERVER), (50, READS, SERVER)]), Some(Low), "a half");
    assert!(severity("select id from doc where to_tsvector(body) @@ $1", &most(PARSES)) >= Some(Medium));
    let insert = "insert into doc (body, words) values ($1, to_tsvector($1))";
    assert_eq!(severity(insert, &most(PARSES)), Some(Low), "once for each row that is written");
    assert_eq!(severity("copy doc from stdin", &most(PARSES)), Some(Low));
    assert!(severity(insert, &most(PACKS)) >= Some(Medium), "which lz4 does in a fraction of the time");
    assert_eq!(severity(SEARCHED, &most("subquery_planner standard_planner pg_plan_queries")), Some(Low));
}
