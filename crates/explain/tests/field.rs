//! What engineers caused who knew only the help, and what the first answer to it lacked.

use crate::advice::{commands, fired, of};
use crate::fire::plan::{scan, statement};
use crate::fire::sampled::{SERVER, samples};
use crate::scene::Scene;
use record::Findings;
use record::finding::Severity;
use serde_json::json;

fn is_silent(findings: &Findings, rule: &str) -> bool {
    findings.findings.iter().all(|finding| finding.rule != rule)
}

/// A role that is at work, with a setting of its own.
fn own(scene: &mut Scene, setting: &str, value: &str) {
    scene.fact(json!({"node": "n1"}), "own_setting", &format!("{setting} of role report"), value);
    let keys =
        json!({"node": "n1", "application": "report", "user": "report", "database": "db", "client": "local"});
    scene.set("activity", keys, json!({"sessions": 20}));
}

#[test]
fn a_kill_by_the_limit_of_a_group_names_the_role_whose_sorts_may_fill_it() {
    let mut scene = fired("MEM-05");
    let claim = |scene: &Scene| of(&scene.explain(), "MEM-05").claim.clone();
    assert!(!claim(&scene).contains("work_mem"));
    own(&mut scene, "work_mem", "64MB");
    assert!(!claim(&scene).contains("work_mem"), "a small part of the limit");
    own(&mut scene, "work_mem", "1GB");
    assert!(claim(&scene).ends_with("while role report has a work_mem of its own: 1GB"), "{}", claim(&scene));
    assert!(commands(of(&scene.explain(), "MEM-05")).starts_with("ALTER ROLE \"report\" RESET work_mem"));
}

#[test]
fn siblings_of_the_role_that_delays_its_commits_count() {
    let mut scene = Scene::healthy();
    own(&mut scene, "commit_delay", "50000");
    scene.fact(json!({"node": "n1"}), "setting", "commit_siblings", "50");
    assert!(is_silent(&scene.explain(), "WAL-10"));
    own(&mut scene, "commit_siblings", "0");
    assert!(of(&scene.explain(), "WAL-10").claim.contains("commit_delay of role report"));
}

/// A pool of two connections, of which one and a half are at work at the looks: between two clients each is idle for a moment.
#[test]
fn a_small_pool_without_its_console_is_idle_between_its_clients() {
    let found = |clients: u64, active: f64| {
        let mut scene = Scene::healthy();
        scene.set("server", json!({"node": "n1"}), json!({"sessions_total": 2, "sessions_active": active}));
        let pooler = json!({"node": "n1", "pooler": "dbname=pgbouncer host=/run port=6433"});
        scene.set("pooler", pooler, json!({"clients": clients, "size": 2, "refused": 0}));
        scene.explain()
    };
    assert!(of(&found(40, 1.5), "SES-13").claim.contains("40 clients are connected to pgbouncer"));
    assert!(is_silent(&found(5, 1.5), "SES-13"));
    assert!(is_silent(&found(40, 0.5), "SES-13"));
}

#[test]
fn an_encrypted_value_is_searched_by_its_hash_and_not_by_an_index_of_the_plain_one() {
    let found = |filter: &str| {
        let mut scene = Scene::healthy();
        scan(&mut scene, filter, "");
        scene.explain()
    };
    let secret = found("(pgp_sym_decrypt(ssn_enc, $1) = $2)");
    let finding = of(&secret, "PLAN-50");
    assert!(finding.remedy.text.contains("blind index"), "{}", finding.remedy.text);
    assert!(!commands(finding).contains("pgp_sym_decrypt"), "{}", commands(finding));
    let plain = found("(mangled(note) = $1)");
    assert!(!of(&plain, "PLAN-50").remedy.text.contains("blind index"));
}

/// A statement on the catalog that no counter has, as none of its executions ends.
#[test]
fn a_long_look_at_the_catalog_counts_before_it_ends() {
    let found = |table: &str| {
        let mut scene = Scene::healthy();
        let text = format!("select tc.constraint_name from {table} tc where tc.table_schema = $1");
        scene.event(1, record::event::QUERY, "", json!({"query_id": "77", "node": "n1", "text": text}));
        let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": "77"});
        scene.set("wait", wait, json!({"sessions": 40}));
        scene.explain()
    };
    let catalog = found("information_schema.table_constraints");
    let finding = of(&catalog, "SES-07");
    assert!(finding.severity >= Severity::Medium, "{finding:?}");
    assert!(finding.claim.contains("no such statement has ended within the recording"), "{}", finding.claim);
    assert!(is_silent(&found("shop.table_constraints"), "SES-07"));
}

/// A purge whose plan was not recorded: the stacks show what computes.
#[test]
fn a_list_of_not_in_is_known_by_the_functions_that_go_through_it() {
    let found = |text: &str, frames: &str| {
        let mut scene = Scene::healthy();
        statement(&mut scene, text, json!({}), json!({}));
        for source in ["plan", "plan_node"] {
            scene.drop_source(source);
        }
        scene.stacks(&samples(true, &[(90, frames, SERVER), (10, "heap_getnextslot ExecScan", SERVER)]));
        scene.explain()
    };
    let text = "delete from cart_item where cart_id not in (select id from cart)";
    let listed = "tuplestore_gettupleslot ExecMaterial ExecScan standard_ExecutorRun";
    let named = found(text, listed);
    assert!(of(&named, "PLAN-28").claim.contains("whose list is no hash table"));
    assert!(is_silent(&found(text, "ExecHashSubPlan ExecScan standard_ExecutorRun"), "PLAN-28"));
    assert!(is_silent(&found("delete from cart_item where cart_id in ($1, $2)", listed), "PLAN-28"));
}

#[test]
fn commits_of_others_are_no_cursors_with_hold() {
    let found = |event: (&str, &str)| {
        let mut scene = Scene::healthy();
        scene.drop_source("statement");
        for (id, text) in [("8", "declare c cursor with hold for select 1"), ("9", "commit")] {
            scene.event(1, record::event::QUERY, "", json!({"node": "n1", "query_id": id, "text": text}));
        }
        let wait = |kind: &str, event: &str| json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": kind, "wait_event": event, "query_id": "9"});
        scene.set("wait", wait("IO", "WALSync"), json!({"sessions": 9}));
        scene.set("wait", wait(event.0, event.1), json!({"sessions": 5}));
        scene.explain()
    };
    assert!(is_silent(&found(("CPU", "CPU")), "TXN-22"), "most of it waits for the WAL");
}
