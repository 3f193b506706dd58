//! Commands that can be pasted, whatever the names in them are.

use crate::advice::{commands, of};
use crate::fire;
use crate::scene::Scene;
use record::finding::{Finding, Remedy};
use serde_json::json;

/// What keeps the commands of a finding from being pasted: a blank to fill in where a path belongs, an ellipsis, a process 0, or a step that runs although
/// the one before it failed. `rules.rs` asks this of every rule.
pub(crate) fn problems(finding: &Finding) -> Vec<String> {
    let mut problems = vec![];
    for command in &finding.remedy.commands {
        let code = command.split(" -- ").next().unwrap_or(command);
        let is_shell = code.starts_with("$ ");
        let has_blank = code.contains("...") && !code.contains("pgfathom ")
            || code.split_whitespace().any(|word| word == "PGDATA");
        let steps = is_shell && code.contains("pg_ctl stop") && code.contains("; ");
        let stops = ["pg_ctl stop", "pg_ctl restart"].iter().any(|words| code.contains(words));
        if command == "-- left out: a name in this command has characters that psql or a shell would act on"
            || has_blank
            || steps
            || code.contains("_backend(0)")
            || code.contains("pid = 0")
        {
            problems.push(format!("{}: {command}", finding.rule));
        }
        if stops && !finding.remedy.text.contains("stops the database") {
            problems.push(format!("{} does not warn: {command}", finding.rule));
        }
        if code.contains("-- then restart")
            || command.contains("then restart") && !command.contains("sessions end")
        {
            problems.push(format!("{} does not say that sessions end: {command}", finding.rule));
        }
    }
    problems
}

#[test]
fn commands_that_cannot_be_pasted_are_noticed() {
    let of = |command: &str| {
        let remedy = Remedy { commands: vec![command.into()], ..Remedy::default() };
        problems(&Finding { rule: "X".into(), remedy, ..Finding::default() }).len()
    };
    assert_eq!(of("ALTER SYSTEM SET work_mem = '64MB';"), 0);
    for bad in [
        "$ ls ... PGDATA",
        "SELECT pg_cancel_backend(0);",
        "$ pg_ctl stop -D /x; pg_ctl start",
        "$ pg_ctl stop",
    ] {
        assert!(of(bad) > 0, "{bad}");
    }
}

/// Names may come from a role or a record that means harm: nothing of them is executed.
#[test]
fn names_that_others_chose_stay_names_in_commands() {
    let evil = "app.\"o.\"";
    let forged = "public.orders ; \\! id >/tmp/x #";
    let mut scene = Scene::healthy();
    scene.set(
        "subscription",
        json!({"node": "n1", "subscription": "s enable; alter role app superuser; --"}),
        json!({"enabled": false, "errors": 0}),
    );
    scene.set(
        "plan_index",
        json!({"node": "n1", "relation": evil, "index": "\";alter role app superuser;--"}),
        json!({"columns": "a", "method": "btree", "valid": false}),
    );
    let text = "select count(*) from orders where a = $1";
    fire::plan::statement(&mut scene, text, json!({}), json!({}));
    let fields =
        json!({"relation": evil, "filter": "(a = $1)", "table_rows": 900_000.0, "column_types": "a integer"});
    fire::plan::node(&mut scene, 1, 0, "Seq Scan", fields);
    let found = scene.explain();
    let subscription = commands(of(&found, "REP-07"));
    assert!(
        subscription.contains("ALTER SUBSCRIPTION \"s enable; alter role app superuser; --\" ENABLE;"),
        "{subscription}"
    );
    let rebuilt = commands(of(&found, "PLAN-11"));
    assert!(
        rebuilt.contains("REINDEX INDEX CONCURRENTLY app.\"\"\";alter role app superuser;--\";"),
        "{rebuilt}"
    );

    let mut scene = Scene::healthy();
    fire::plan::statement(&mut scene, text, json!({}), json!({}));
    let fields = json!({"relation": forged, "filter": "(a = $1)", "table_rows": 900_000.0, "column_types": "a integer"});
    fire::plan::node(&mut scene, 1, 0, "Seq Scan", fields);
    let created = commands(of(&scene.explain(), "PLAN-10"));
    assert!(created.contains("ON \"public.orders ; \\! id >/tmp/x #\" ("), "{created}");
}
