//! How a superuser plans a statement where other roles can log in: as the role that ran it, in an operation that cannot give that role more rights.
//!
//! Whatever planning evaluates, code of others included, runs with the rights that it had when the statement was executed. PostgreSQL does the same for a
//! superuser who analyses or reindexes a table of another role: the expressions of an index run as the table's owner, in a security-restricted operation
//! (`SECURITY_RESTRICTED_OPERATION` in miscadmin.h; `index_build` in index.c), which can neither change the role nor prepare or deallocate statements nor make
//! temporary tables (guc.c, utility.c, tablecmds.c), and whose settings end with it. So we make a temporary table of one row, give it to that role, and make
//! an index on it whose expression runs EXPLAIN. The answer is the message of an error, which undoes all of it; no other session sees any of it.
//!
//! The server runs EXPLAIN in volatile functions only and an index has immutable ones: so one calls the other. PREPARE, which calls no function of the
//! statement, is ours; the plan is made when that role executes it, with the policies that apply to it: DISCARD PLANS before makes the server analyse the text
//! anew, with the role's rights on schemas.
//!
//! The index is first made with a function that does nothing, and made anew in a session that has the role's identity (SET SESSION AUTHORIZATION): so
//! `session_user` is that role as well, and REINDEX needs no right of it but to own the table. Code in such an operation cannot take the identity back.
//!
//! A session keeps more than a rollback undoes: compiled functions of procedural languages, hypothetical indexes, advisory locks. So each plan has a
//! connection of its own, which is ended from ours if it does not answer.

use super::NotPlanned;
use crate::sql::json::{flag, text};
use crate::sql::session::Session;
use connect::sql::literal;
use record::watched::MORE_THAN_READ;
use serde_json::Value;

/// Characters of an answer: a message of the server that is much longer ends the connection.
const ANSWER_CHARS_MAX: usize = 1 << 20;
/// SQLSTATE of the error that brings the answer.
const ANSWERED: &str = "PF001";
/// A role that no session has: what superusers ran is planned as this one (PostgreSQL 14).
const READER: &str = "pg_read_all_data";

/// The role that plans.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Role {
    /// Quoted.
    name: String,
    /// Whether the sieve of [`super::safety`] applies: the role did not run the statement itself.
    pub(super) is_sieved: bool,
}

/// The schemas in which a role that plans what it has run itself, beside others, finds names: quoted, and none in which those may make objects. `None` for any
/// other planner.
pub(super) fn path(names: &Value, role: Option<&Role>) -> Option<Vec<String>> {
    let is_own = flag(names, "own") == Some(true) && !text(names, "other").is_empty();
    let schemas =
        || super::list(names, "path").iter().filter_map(Value::as_str).map(str::to_string).collect();
    (is_own || role.is_some_and(|role| !role.is_sieved)).then(schemas)
}

/// The role to plan as, `None` for our own, by the answer of [`super::safety::of_names`].
///
/// # Errors
/// Why nothing may be planned.
pub(super) fn of(names: &Value) -> Result<Option<Role>, String> {
    let other = text(names, "other");
    if other.is_empty() || flag(names, "own") == Some(true) {
        return Ok(None);
    }
    let is = |name: &str| flag(names, name) == Some(true);
    let hint = "watch as a role that is only in pg_monitor and pg_read_all_data";
    let refused = |why: &str| {
        Err(format!(
            "role {other} can log in and is no superuser, and {MORE_THAN_READ}: planning could run its code with our rights; {hint}{why}"
        ))
    };
    if !is("super") {
        return refused("");
    }
    if is("recovery") {
        return refused(
            " (a superuser plans as the role that ran a statement, which takes a temporary table: on the primary only)",
        );
    }
    if is("engine") {
        return refused(
            " (a superuser plans as the role that ran a statement, which takes a temporary table: this engine may send its definition to other nodes)",
        );
    }
    if is("event_trigger") {
        return refused(
            " (an event trigger could run for the temporary table that planning as another role takes)",
        );
    }
    let of_statement = text(names, "role");
    match of_statement.is_empty() {
        false => Ok(Some(Role { name: of_statement, is_sieved: false })),
        true if is("reader") && is("superusers") => {
            Ok(Some(Role { name: READER.to_string(), is_sieved: true }))
        }
        true => refused(&format!(
            " (the role that ran it is not known, or it is a superuser and there is no role {READER} to plan it as)"
        )),
    }
}

/// A DELETE or UPDATE as a query of the rows that it changes, whose scans are the same: [`READER`] may plan that. Anything else stays as it is.
pub(super) fn readable(plain: String) -> String {
    let text = plain.trim_start();
    let small = text.to_ascii_lowercase();
    let begins = |word: &str| small.split_whitespace().next() == Some(word);
    let has = |words: &[&str]| small.split_whitespace().any(|word| words.contains(&word));
    if begins("delete") && !has(&["using", "returning", "current"]) {
        return match small.find("from ") {
            Some(at) => format!("select {}", &text[at..]),
            None => plain,
        };
    }
    let is_plain = begins("update") && !has(&["returning", "current"]);
    let parts = small.find(" set ").zip(outer_where(&small)).filter(|(set, at)| is_plain && set < at);
    // What a subquery among the new values reads belongs to the plan, too.
    let is_whole =
        |set: usize, at: usize| ["select", "from"].iter().all(|word| !small[set..at].contains(word));
    match parts.filter(|(set, at)| is_whole(*set, *at)) {
        Some((set, at)) => format!("select from {}{}", &text["update ".len()..set], &text[at..]),
        None => plain,
    }
}

/// Where the WHERE of a statement itself begins, and not that of a subquery.
fn outer_where(small: &str) -> Option<usize> {
    let depth_at = |at: usize| {
        let before = &small[..at];
        before.matches('(').count() == before.matches(')').count()
    };
    small.match_indices(" where ").map(|(at, _)| at).find(|at| depth_at(*at))
}

/// What opens the transaction: the answer of the role is an error, so nothing of it is counted or logged.
pub(super) const QUIET: &str = "select pg_catalog.set_config(name, 'none', true) from pg_catalog.pg_settings where name = 'pg_stat_statements.track'";

/// The first value that each command returns, as the role runs it with names looked up in `path`.
///
/// # Errors
/// What the server refuses.
pub(super) fn run(
    session: &mut Session,
    role: &Role,
    path: &str,
    commands: &[String],
) -> Result<Vec<String>, NotPlanned> {
    let Some(answer) = session.message(&script(role, path, commands), ANSWERED)? else {
        return Err(NotPlanned::Why("the role's index was made without a plan".to_string()));
    };
    session.plain("rollback to savepoint pgfathom_plan")?;
    serde_json::from_str(&answer)
        .map_err(|_| NotPlanned::Why("the server's plan has an unknown form".to_string()))
}

fn script(role: &Role, path: &str, commands: &[String]) -> String {
    let each: Vec<String> = commands
        .iter()
        .map(|command| {
            format!(
                "execute {} into strict answer; answers := pg_catalog.array_append(answers, answer);",
                literal(command)
            )
        })
        .collect();
    let body = format!(
        "declare answer pg_catalog.text; answers pg_catalog.text[] := '{{}}'; begin
         perform pg_catalog.set_config('search_path', {}, true);
         {}
         if pg_catalog.length(pg_catalog.to_json(answers)::pg_catalog.text) operator(pg_catalog.>) {ANSWER_CHARS_MAX} then
           raise exception 'the plan is too long'; end if;
         raise exception using errcode = '{ANSWERED}', message = pg_catalog.to_json(answers)::pg_catalog.text; end",
        literal(path),
        each.join("\n")
    );
    let name = &role.name;
    format!(
        "discard plans; savepoint pgfathom_plan;
         create function pg_temp.pgfathom_explains() returns pg_catalog.int4 language plpgsql volatile as {};
         create function pg_temp.pgfathom_plan(pg_catalog.int4) returns pg_catalog.int4 language plpgsql immutable as 'begin return 0; end';
         grant execute on function pg_temp.pgfathom_explains(), pg_temp.pgfathom_plan(pg_catalog.int4) to {name};
         create temporary table pgfathom_plan (n pg_catalog.int4) using heap; insert into pg_temp.pgfathom_plan values (1);
         create index pgfathom_plan_index on pg_temp.pgfathom_plan (pg_temp.pgfathom_plan(n));
         create or replace function pg_temp.pgfathom_plan(pg_catalog.int4) returns pg_catalog.int4 language plpgsql immutable as
           'begin return pg_temp.pgfathom_explains(); end';
         alter table pg_temp.pgfathom_plan owner to {name}; set local session authorization {name};
         reindex index pg_temp.pgfathom_plan_index",
        literal(&body)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_delete_is_read_as_a_query_of_its_rows() {
        let of = |text: &str| readable(text.to_string());
        assert_eq!(
            of("DELETE FROM s.t a WHERE a.n NOT IN (SELECT n FROM u)"),
            "select FROM s.t a WHERE a.n NOT IN (SELECT n FROM u)"
        );
        assert_eq!(of("update s.t a set n = n + $1 where a.k = $2"), "select from s.t a where a.k = $2");
        let inner = "update t set a = $1 where k in (select k from u where b = $2)";
        assert_eq!(of(inner), "select from t where k in (select k from u where b = $2)");
        for same in [
            "update t set a = (select max(b) from u where c = $1) where k = $2",
            "update t set a = u.a from u where u.k = t.k",
            "update t set a = $1 where k = $2 returning a",
            "delete from t using u where t.n = u.n",
            "delete from t where n = $1 returning n",
            "delete from t where current of c",
            "update t set a = $1",
            "with d as (select 1) delete from t",
        ] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn a_superuser_plans_as_the_role_of_the_statement() {
        let names = |more: Value| {
            let mut names = json!({"other": "shop", "super": true, "path": ["shop", "public"]});
            names.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            of(&names)
        };
        let role = names(json!({"role": "\"The Shop\""})).unwrap().unwrap();
        assert_eq!((role.name.as_str(), role.is_sieved), ("\"The Shop\"", false));
        let both = json!({"path": ["shop", "public"], "other": "shop"});
        assert_eq!(path(&both, Some(&role)).map(|path| path.len()), Some(2));
        assert_eq!(path(&both, None), None);
        assert!(path(&json!({"path": ["shop"], "other": "shop", "own": true}), None).is_some());
        let role = names(json!({"reader": true, "superusers": true})).unwrap().unwrap();
        assert_eq!((role.name.as_str(), role.is_sieved), (READER, true));
        assert_eq!(path(&both, Some(&role)), None);
        for refused in [
            json!({"super": false, "role": "shop"}),
            json!({"recovery": true, "role": "shop"}),
            json!({"engine": true, "role": "shop"}),
            json!({"event_trigger": true, "role": "shop"}),
            json!({"reader": false, "superusers": true}),
            json!({"reader": true, "superusers": false}),
        ] {
            assert!(names(refused.clone()).is_err_and(|why| why.contains(MORE_THAN_READ)), "{refused}");
        }
        assert_eq!(names(json!({"own": true, "super": false})), Ok(None));
        assert_eq!(of(&json!({"other": null})), Ok(None));
    }

    #[test]
    fn texts_stay_within_their_quotes() {
        let role = Role { name: "shop".to_string(), is_sieved: false };
        let script = script(&role, "it's", &["explain select $1 || 'x'".to_string()]);
        assert!(script.contains("execute ''explain select $1 || ''''x'''''' into"), "{script}");
        assert!(script.contains("''search_path'', ''it''''s'', true"), "{script}");
    }
}
