//! Where the names of a statement are looked up: in the schemas of the role's `search_path`, without those in which others could put something in the way of
//! what is meant; and what to report when a name is only in one that is left out.

use crate::sql::json::list;
use serde_json::Value;

/// The roles whose objects a role, a parameter of the question, uses in any case: superusers, itself, the owner of this database, who sets the search path of
/// every session there anyway (ALTER DATABASE), and roles that only these can become: a group of theirs, and PUBLIC (0), where no other role can log in. Goes
/// behind `with`.
pub(super) fn of_role(role: &str) -> String {
    format!(
        "itself as materialized (select oid from pg_catalog.pg_roles where rolsuper or rolname::text = {role} or rolname = 'pg_database_owner'
     or oid = (select datdba from pg_catalog.pg_database where datname = current_database())),
  outsiders as materialized (select r.oid, r.rolcreaterole from pg_catalog.pg_roles r where r.oid not in (select oid from itself)
     and (r.rolcanlogin or exists (select from pg_catalog.pg_stat_activity a where a.usesysid = r.oid))),
  of_role as materialized (select oid from itself
    union all select 0::oid where not exists (select from outsiders)
    union all select g.oid from pg_catalog.pg_roles g where g.oid not in (select oid from itself) and g.oid not in (select oid from outsiders)
      and not exists (select from outsiders o where o.rolcreaterole or pg_catalog.pg_has_role(o.oid, g.oid, 'member')))"
    )
}

/// Who else than the roles of a set may make, rename or drop objects in a schema, or did: what they have there could be found in the place of what is meant.
/// Null if there is no such role.
pub(super) fn whose(schema: &str, set: &str) -> String {
    let objects: Vec<String> = [
        ("pg_proc", "pro"),
        ("pg_operator", "opr"),
        ("pg_class", "rel"),
        ("pg_type", "typ"),
        ("pg_collation", "coll"),
    ]
    .iter()
    .map(|(class, prefix)| {
        format!("select o.{prefix}owner from pg_catalog.{class} o where o.{prefix}namespace = {schema}.oid")
    })
    .collect();
    let name = |role: &str| format!("pg_catalog.quote_ident(pg_catalog.pg_get_userbyid({role}))");
    format!(
        "coalesce(case when {schema}.nspowner not in (select oid from {set}) then 'role ' || {} || ' owns it' end,
       (select case when pg_catalog.bool_or(a.grantee = 0) then 'PUBLIC' else 'role ' || min({}) end || ' may create objects there'
          from pg_catalog.aclexplode(coalesce({schema}.nspacl, pg_catalog.acldefault('n', {schema}.nspowner))) a
          where a.privilege_type = 'CREATE' and a.grantee not in (select oid from {set}) having count(*) > 0),
       (select 'role ' || min({}) || ' has objects there' from ({}) o (owner) where o.owner not in (select oid from {set}) having count(*) > 0))",
        name(&format!("{schema}.nspowner")),
        name("a.grantee"),
        name("o.owner"),
        objects.join(" union all ")
    )
}

/// The schemas in which that role finds names, if its sessions have not set others, and whether planning leaves them out: those in which others may make
/// objects, or did, unless the role's own setting in this database names them. Goes behind [`of_role`].
pub(super) fn looked(role: &str) -> String {
    let settings = "pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) c where c like 'search_path=%'
              and s.setdatabase in (0, (select oid from pg_catalog.pg_database where datname = current_database()))";
    let of_role = format!("(select oid from pg_catalog.pg_roles where rolname::text = {role})");
    let setting = format!(
        "(select pg_catalog.substr(c, 13) from {settings} and s.setrole in (0, {of_role}) order by s.setrole = 0, s.setdatabase = 0 limit 1)"
    );
    // A setting of the role goes before that of the database: where there is one here, the words below are its own.
    format!(
        "looked as materialized (select l.*, l.who is not null and not exists (select from {settings} and s.setrole = {of_role}) is_left_out from (
          select n.oid, n.nspname, w.at, {} who, {} who_untrusted
            from pg_catalog.unnest(pg_catalog.string_to_array(coalesce({setting}, '\"$user\", public'), ',')) with ordinality w (word, at)
            join pg_catalog.pg_namespace n on n.nspname = case pg_catalog.btrim(w.word, ' \"') when '$user' then {role} else pg_catalog.btrim(w.word, ' \"') end
            where n.nspname !~ '^pg_') l)",
        whose("n", "of_role"),
        whose("n", "trusted")
    )
}

/// Names of functions and types among the words of a text, $1, and operators in it, $5, with their schemas: not those of the server.
pub(super) const ELSEWHERE: &str = "(select json_agg(distinct pg_catalog.jsonb_build_array(o.name, pg_catalog.quote_ident(n.nspname))) from (
      select proname::text, pronamespace from pg_catalog.pg_proc where oid >= 16384 and proname = any($1::text[]::name[])
      union all select typname::text, typnamespace from pg_catalog.pg_type where oid >= 16384 and typname = any($1::text[]::name[])
      union all select oprname::text, oprnamespace from pg_catalog.pg_operator where oid >= 16384 and pg_catalog.strpos($5::text, oprname::text) > 0)
    o (name, namespace) join pg_catalog.pg_namespace n on n.oid = o.namespace where n.nspname !~ '^pg_' and n.nspname <> 'information_schema')";

/// Schemas that the search path of the role names, and in which only roles whose functions may run have objects and may make some.
pub(super) fn trusted(names: &Value) -> Vec<String> {
    let is_closed = |row: &&Value| row[2].is_null();
    list(names, "looked")
        .iter()
        .filter(is_closed)
        .filter_map(|row| row[0].as_str().map(str::to_string))
        .collect()
}

/// Why a schema is left out, and what to type.
pub(super) fn left_out(schema: &str, who: &str) -> String {
    let grantee = who.strip_suffix(" may create objects there").map(|who| who.trim_start_matches("role "));
    match grantee {
        Some(grantee) => format!(
            "{who}, whose code could be found in the place of what is meant; REVOKE CREATE ON SCHEMA {schema} FROM {grantee}, after a GRANT CREATE to \
             each role that has to make tables there"
        ),
        None => format!(
            "{who}, and it is no superuser: its code could be found in the place of what is meant; keep extensions and functions for all in a schema of \
             a superuser"
        ),
    }
}

/// What the server's complaint about a name that it did not find means, if an object of that name is in a schema in which it was not looked up.
pub(super) fn explained(
    names: &Value,
    path: &[String],
    is_for_role: bool,
    user: &str,
    message: &str,
) -> Option<String> {
    let is_named = |row: &&Value| row[0].as_str().is_some_and(|name| is_in(message, name));
    let schema = |row: &Value| row[1].as_str().map(str::to_string);
    let missed = list(names, "elsewhere").iter().filter(is_named).filter_map(schema);
    let schema = missed.filter(|schema| !path.contains(schema)).min()?;
    let of_path = list(names, "looked").iter().find(|row| row[0].as_str() == Some(&schema));
    let who = of_path.and_then(|row| row[if is_for_role { 1 } else { 2 }].as_str());
    let why = match who {
        Some(who) => left_out(&schema, who),
        None => format!(
            "it is not in the search_path that role {user} has by its settings or those of the database; if its sessions set one themselves, ALTER ROLE ... IN \
             DATABASE ... SET search_path = ... lets these statements be planned, too"
        ),
    };
    Some(format!("{message}; it is in schema {schema}, where planning does not look names up: {why}"))
}

/// Whether a message has a name: not as a part of a longer one.
fn is_in(message: &str, name: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let is_sign = |c: char| "+-*/<>=~!@#%^&|`?".contains(c);
    let is_word = name.chars().all(is_letter);
    let is_same = |c: char| if is_word { is_letter(c) } else { is_sign(c) };
    message
        .match_indices(name)
        .any(|(at, _)| !message[..at].ends_with(is_same) && !message[at + name.len()..].starts_with(is_same))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_in_a_schema_that_is_left_out_is_reported_with_the_reason() {
        let names = json!({
            "looked": [["shop", null, "role shop owns it"], ["public", "PUBLIC may create objects there", "PUBLIC may create objects there"]],
            "elsewhere": [["distance", "public"], ["<@", "public"], ["kept", "shop"], ["far", "ext"]],
        });
        let path = ["shop".to_string()];
        let why = |message: &str| explained(&names, &path, true, "app", message);
        let found = why("function distance(real[], real[]) does not exist").unwrap();
        assert!(
            found.contains("schema public") && found.contains("REVOKE CREATE ON SCHEMA public FROM PUBLIC"),
            "{found}"
        );
        assert!(why("operator does not exist: ltree <@ text").unwrap().contains("PUBLIC may create"));
        assert!(
            why("function far(integer) does not exist").unwrap().contains("search_path that role app has")
        );
        for other in [
            "function kept(text) does not exist",
            "operator does not exist: a <@> b",
            "function my_distance(text) does not exist",
        ] {
            assert_eq!(why(other), None, "{other}");
        }
        assert_eq!(trusted(&names), Vec::<String>::new());
        let closed = explained(&names, &[], false, "app", "function kept(text) does not exist").unwrap();
        assert!(closed.contains("role shop owns it"), "{closed}");
    }
}
