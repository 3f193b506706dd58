//! What may be planned by our role. The planner evaluates functions: those of the statement, of its tables' indexes, checks, defaults, policies and
//! statistics, and of the types that it converts to: the input of a domain evaluates its checks, also inside an array, a row or a range. A function of
//! another role would run with the privileges of ours. So a statement is planned only if each function that could be called belongs to a superuser or to
//! our role, and none of them runs SQL or finds a type by a name that it is given.
//!
//! That is a sieve, and a sieve has holes: an operator of a plain role over a built-in function, an object id that is computed, a body that another function
//! is inlined into, an expression of an index that is committed between the check and the plan. What would run by one has the rights of our role. So where any
//! other role can log in that is no superuser, a role that may do more than read plans only what it has run itself, and a superuser as [`super::as_role`] does.
//!
//! The tables are those that the server has locked for PREPARE, which analyses a statement and does not plan it; they are not those of the parser.

use super::path::{self, ELSEWHERE, looked, of_role, whose};
use super::types::NotPlanned;
use crate::sql::json::{flag, list, text};
use crate::sql::powers::{IS_POWERFUL, OTHERS, TRUSTED, is_engine};
use serde_json::Value;
use std::collections::BTreeMap;

/// Built-in functions that run SQL that they are given, or make values of a type that they are given by name: xml.c, tsvector_op.c, tsquery_rewrite.c, misc.c,
/// jsonfuncs.c.
const RUNS_SQL: &str =
    "_to_xml|^ts_stat$|^ts_rewrite$|^pg_input_|^jsonb?_populate_|^jsonb?_to_record|^currtid";

/// Whether a function is for the server's own use, as the inputs of types are: `domain_in` takes any type by its object id, which can be computed, and
/// evaluates its checks. Such functions have arguments or results of these types (`pg_type.dat`), or check the bodies of functions.
const OF_THE_SERVER: &str = "(prorettype in ('pg_catalog.cstring'::pg_catalog.regtype, 'pg_catalog.internal'::pg_catalog.regtype,
    'pg_catalog.language_handler'::pg_catalog.regtype)
  or proargtypes::oid[] && array['pg_catalog.cstring'::pg_catalog.regtype, 'pg_catalog.internal'::pg_catalog.regtype]::oid[]
  or proname ~ '_validator$')";

/// Common to the questions: owners whose functions may run; functions of others (`loose`); those and the built-in ones that run anything (`forbidden`); types
/// whose input could call one of these (`tainted`): domains whose checks or defaults do, or that call any function written in SQL or a procedural language, and
/// arrays, rows, ranges and domains over them. Goes behind `with recursive`.
fn common() -> String {
    format!(
        "{TRUSTED},
  loose as materialized (select p.oid from pg_catalog.pg_proc p where p.proowner not in (select oid from trusted)),
  forbidden as materialized (select oid from loose union all select p.oid from pg_catalog.pg_proc p where p.oid < 16384 and p.proname ~ '{RUNS_SQL}'),
  fit as materialized (select p.oid from pg_catalog.pg_proc p where p.oid < 16384 and p.provolatile = 'i' and p.proname !~ '{RUNS_SQL}'),
  written as materialized (select p.oid from pg_catalog.pg_proc p join pg_catalog.pg_language l on l.oid = p.prolang where p.oid >= 16384
     and l.lanname not in ('c', 'internal')),
  over as materialized (select typelem part, oid from pg_catalog.pg_type where typelem <> 0
    union all select typbasetype, oid from pg_catalog.pg_type where typbasetype <> 0
    union all select rngsubtype, rngtypid from pg_catalog.pg_range
    union all select rngsubtype, (pg_catalog.to_jsonb(r)->>'rngmultitypid')::oid from pg_catalog.pg_range r
    union all select a.atttypid, t.oid from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.typrelid = a.attrelid
      where a.attnum > 0 and not a.attisdropped),
  tainted as (select c.contypid oid from pg_catalog.pg_constraint c where c.contypid <> 0 and c.conbin is not null and ({}
       or exists (select from pg_catalog.pg_depend d where d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass and d.objid = c.oid
            and d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass and d.refobjid <> c.contypid))
    union select t.oid from pg_catalog.pg_type t where t.typtype = 'd' and t.typdefaultbin is not null and {}
    union select over.oid from tainted x join over on over.part = x.oid)",
        calls("c.conbin", "not in (select oid from fit)"),
        calls("t.typdefaultbin", "not in (select oid from fit)")
    )
}

/// Whether a stored expression calls a function of which this is true.
fn calls(tree: &str, is_so: &str) -> String {
    format!(
        "exists (select from pg_catalog.regexp_matches({tree}::text, ':(?:funcid|opfuncid|aggfnoid|winfnoid) ([0-9]+)', 'g') called where called[1]::oid \
            {is_so})"
    )
}

/// Whether a stored expression calls a function that is forbidden. The server keeps no dependency of it on built-in functions, but its tree names them.
fn calls_forbidden(tree: &str) -> String {
    calls(tree, "in (select oid from forbidden)")
}

/// About the names in a text: $1 all words, $2 names of tables without a schema, $3 the role that ran it, $4 tables that its sessions are
/// seen to use by it, $5 the text. A type is named by its own name or, as the type of rows, by that of its table.
pub(super) fn of_names() -> String {
    format!(
        "with recursive {}, {OTHERS}, {}, {} select json_build_object('database', current_database(), 'encoding', pg_catalog.getdatabaseencoding(),
          'plans', exists (select from pg_catalog.pg_settings where name = 'plan_cache_mode'),
          'version_num', pg_catalog.current_setting('server_version_num')::int,
          'jit_above_cost', (select pg_catalog.current_setting('jit_above_cost', true)::float8),
          'work_mem_kb', (select setting::bigint from pg_catalog.pg_settings where name = 'work_mem'),
          'other', (select min(rolname::text) from others where {IS_POWERFUL}),
          'own', $3 = session_user::text and current_user = session_user and not (select rolsuper from pg_catalog.pg_roles where rolname = session_user),
          'super', (select pg_catalog.bool_and(rolsuper) from pg_catalog.pg_roles where rolname in (current_user, session_user)),
          'recovery', pg_catalog.pg_is_in_recovery(), 'engine', {},
          'event_trigger', exists (select from pg_catalog.pg_event_trigger where evtenabled <> 'D'),
          'superusers', exists (select from pg_catalog.pg_roles where rolname::text = $3 and rolsuper),
          'role', (select pg_catalog.quote_ident(rolname) from pg_catalog.pg_roles where rolname::text = $3 and not rolsuper),
          'reader', exists (select from pg_catalog.pg_roles where rolname = 'pg_read_all_data' and not rolsuper),
          'path', (select json_agg(pg_catalog.quote_ident(nspname) order by at) from looked where not is_left_out),
          'looked', (select json_agg(json_build_array(pg_catalog.quote_ident(nspname), who, who_untrusted) order by at) from looked),
          'elsewhere', {ELSEWHERE},
          'hidden', exists (select from pg_catalog.pg_operator where oprcode in (select oid from loose)
                or oprowner not in (select oid from trusted) or oid >= 16384 and oprcode in (select oid from forbidden union all select oid from written))
            or exists (select from pg_catalog.pg_cast where castfunc in (select oid from forbidden))
            or exists (select from pg_catalog.pg_range where rngsubdiff in (select oid from loose) or rngcanonical in (select oid from loose))
            or exists (select from pg_catalog.pg_depend where classid = 'pg_catalog.pg_type'::pg_catalog.regclass
                 and refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass and refobjid in (select oid from loose)),
          'functions', (select min(proname::text) from pg_catalog.pg_proc where proname = any($1::text[]::name[]) and oid in (select oid from loose)),
          'runs_sql', coalesce((select min(word) from pg_catalog.unnest($1::text[]) word where word ~ '{RUNS_SQL}|^pg_(toast_)?temp'),
             (select min(proname::text) from pg_catalog.pg_proc where proname = any($1::text[]::name[]) and {OF_THE_SERVER})),
          'types', coalesce((select min(typname::text) from pg_catalog.pg_type where typname = any($1::text[]::name[]) and oid in (select oid from tainted)),
             (select min(proname::text) from pg_catalog.pg_proc where proname = any($1::text[]::name[]) and (prorettype in (select oid from tainted)
                or proargtypes::oid[] && array(select oid from tainted) or proallargtypes && array(select oid from tainted)))),
          'written', (select min(p.proname::text) from pg_catalog.pg_proc p where p.proname = any($1::text[]::name[]) and p.oid in (select oid from written)
             and (p.provolatile <> 'v' or p.prolang = (select oid from pg_catalog.pg_language where lanname = 'sql')) and not exists (select from
               pg_catalog.unnest(p.proconfig) setting where setting like 'search_path=%')),
          'tables', (select json_agg(json_build_array(c.relname, pg_catalog.quote_ident(n.nspname), n.nspowner not in (select oid from trusted)
               or exists (select from pg_catalog.aclexplode(coalesce(n.nspacl, pg_catalog.acldefault('n', n.nspowner))) a
                 where a.privilege_type = 'CREATE' and a.grantee not in (select oid from trusted))
               or exists (select from pg_catalog.pg_class o where o.relnamespace = n.oid and o.relowner not in (select oid from trusted)), ({}) is not null,
               c.relowner in (select oid from of_role) and n.nspowner in (select oid from of_role) or c.oid::text = any($4::text[]),
               (select at from looked where looked.oid = n.oid))) from pg_catalog.pg_class c
             join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.relname = any($2::text[]::name[]) and c.relkind in ('r', 'p', 'v', 'm', 'f')
               and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'),
          'hypopg', (select pg_catalog.quote_ident(n.nspname) from pg_catalog.pg_extension e join pg_catalog.pg_namespace n on n.oid = e.extnamespace
             where e.extname = 'hypopg' and e.extowner in (select oid from trusted) and n.nspowner in (select oid from trusted)),
          'hypopg_there', exists (select from pg_catalog.pg_available_extensions where name = 'hypopg'))::text",
        common(),
        of_role("$3"),
        looked("$3"),
        is_engine(),
        whose("n", "of_role"),
    )
}

/// The first of the tables that is compared by operators of a left out schema, such as those of an extension, with that schema: the operators are for the type
/// of a column, or for what a domain or an array of it is made of, and may be in the text, $2. Planned without them, `citext = text` would be a comparison of
/// texts, which another index serves. LIKE, IN and BETWEEN stand for some of them.
const LEFT_OUT: &str = "(select json_build_array(min(c.relname::text), min(pg_catalog.quote_ident(s.nspname)), min(s.who)) from mine c
    join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    join looked s on s.is_left_out join pg_catalog.pg_operator o on o.oprnamespace = s.oid and o.oprowner in (select oid from of_role)
    where (pg_catalog.strpos($2, o.oprname::text) > 0 or o.oprname in ('=', '<>', '<', '<=', '>', '>=', '~~', '!~~', '~~*', '!~~*'))
      and (a.atttypid in (o.oprleft, o.oprright)
        or exists (select from over where over.oid = a.atttypid and over.part in (o.oprleft, o.oprright))))";

/// Whether a foreign table is planned by this server alone: by postgres_fdw, which plans here what it sends unless its server is queried for estimates
/// (`use_remote_estimate`; `postgresGetForeignRelSize` in postgres_fdw.c), and which connects only when a statement runs. The wrapper is that of the extension,
/// of an owner whose functions may run; parts of partitioned tables are left to the engines that make them.
const ALONE: &str = "exists (select from pg_catalog.pg_foreign_table f join pg_catalog.pg_foreign_server s on s.oid = f.ftserver
    join pg_catalog.pg_foreign_data_wrapper w on w.oid = s.srvfdw
    join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_foreign_data_wrapper'::pg_catalog.regclass and d.objid = w.oid and d.deptype = 'e'
    join pg_catalog.pg_extension e on d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass and e.oid = d.refobjid
    where f.ftrelid = mine.oid and e.extname = 'postgres_fdw' and e.extowner in (select oid from trusted)
      and w.fdwowner in (select oid from trusted) and w.fdwhandler not in (select oid from loose)
      and not exists (select from pg_catalog.pg_class c where c.oid = mine.oid and c.relispartition)
      and not exists (select from pg_catalog.unnest(f.ftoptions || s.srvoptions || w.fdwoptions) o
        where o ~* '^use_remote_estimate=' and o !~* '^use_remote_estimate=(false|off|no|0)$'))";

/// About the tables that this transaction has locked, with their partitions: $1 the role that ran the statement, $2 its text.
pub(super) fn of_tables() -> String {
    let depends = |class: &str, objects: &str| {
        format!(
            "d.classid = 'pg_catalog.{class}'::pg_catalog.regclass and d.objid in (select oid from pg_catalog.{class} where {objects} in (select
              oid from mine))"
        )
    };
    format!(
        "with recursive {}, {}, {}, touched as (select l.relation from pg_catalog.pg_locks l where l.pid = pg_catalog.pg_backend_pid() and
          l.locktype = 'relation' and l.relation >= 16384
            union select i.inhrelid from pg_catalog.pg_inherits i join touched t on i.inhparent = t.relation),
          mine as materialized (select c.oid, c.relname, c.relkind, c.relowner, c.relhasrules from pg_catalog.pg_class c join touched t on
            t.relation = c.oid where c.relkind in ('r', 'p', 'm', 'v', 'f')),
          used as (select d.classid, d.objid from pg_catalog.pg_depend d where d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass and
              d.refobjid in (select oid from loose)
            union all select d.classid, d.objid from pg_catalog.pg_depend d where d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass and
              d.refobjid in (select oid from tainted))
         select json_build_object('tables', (select count(*) from mine),
          'left_out', {LEFT_OUT},
          'foreign', (select min(relname::text) from mine where relkind = 'f' and not {ALONE}),
          'view', (select min(relname::text) from mine where relkind = 'v' and relowner not in (select oid from trusted)),
          'rule', (select min(relname::text) from mine where relkind in ('r', 'p') and relhasrules),
          'others', (select min(relname::text) from mine where relowner not in (select oid from trusted)),
          'policy', (select min(relname::text) from mine where oid in (select polrelid from pg_catalog.pg_policy)),
          'unreadable', (select min(relname::text) from mine where not pg_catalog.has_table_privilege(oid, 'select')),
          'hidden', exists (select from used d where {}
             or {} or {} or {} or {}
             or d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and (d.objid in (select oid from mine)
                  or d.objid in (select indexrelid from pg_catalog.pg_index where indrelid in (select oid from mine))))
            or exists (select from pg_catalog.pg_policy p where p.polrelid in (select oid from mine) and ({} or {}))
            or exists (select from pg_catalog.pg_constraint c where c.conrelid in (select oid from mine) and {})
            or exists (select from pg_catalog.pg_attrdef f where f.adrelid in (select oid from mine) and {}))::text",
        common(),
        of_role("$1"),
        looked("$1"),
        depends("pg_constraint", "conrelid"),
        depends("pg_attrdef", "adrelid"),
        depends("pg_policy", "polrelid"),
        depends("pg_rewrite", "ev_class"),
        depends("pg_statistic_ext", "stxrelid"),
        calls_forbidden("p.polqual"),
        calls_forbidden("p.polwithcheck"),
        calls_forbidden("c.conbin"),
        calls_forbidden("f.adbin"),
    )
}

/// Why a statement is not planned with our own rights, if so.
pub(super) fn check_names(answer: &Value) -> Result<(), String> {
    if flag(answer, "hidden") != Some(false) {
        return Err("the database has operators, casts or types with functions of roles that are not superusers: planning could run them".to_string());
    }
    let function = text(answer, "functions");
    if !function.is_empty() {
        return Err(format!(
            "function {function} belongs to a role that is no superuser: planning could run it"
        ));
    }
    let function = text(answer, "runs_sql");
    if !function.is_empty() {
        return Err(format!(
            "function {function} runs SQL that it is given, or finds a type by its name: planning could run it"
        ));
    }
    let kind = text(answer, "types");
    if !kind.is_empty() {
        return Err(format!(
            "{kind} is, or has columns of, a domain whose check calls functions that planning could run"
        ));
    }
    let written = text(answer, "written");
    let is_open = |row: &Value| row[2] == Value::Bool(true);
    if !written.is_empty() && list(answer, "tables").iter().any(is_open) {
        return Err(format!(
            "function {written} finds its tables by the search_path, and other roles may create tables there: alter function {written} ... set search_path"
        ));
    }
    Ok(())
}

/// Where the tables of a statement are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Places {
    /// The schemas in which names are looked up.
    pub(super) path: Vec<String>,
    /// Those of tables that have to be written with it: others may make objects there, which could be found in the place of functions and operators.
    pub(super) written: BTreeMap<String, String>,
}

/// The schemas in which the tables without a schema, `wanted`, are found, behind those where a role looks names up first. For a role none is added in which
/// others may make objects: a table there is named with its schema, if it and the schema belong to a role whose objects this one uses in any case, or if this
/// one is seen to use it.
///
/// # Errors
/// Why they are not known.
pub(super) fn schemas(
    answer: &Value,
    wanted: &[String],
    first: Option<&[String]>,
) -> Result<Places, NotPlanned> {
    let why = |why: String| Err(NotPlanned::Why(why));
    if flag(answer, "plans") != Some(true) {
        return why("the server has no plan_cache_mode (before PostgreSQL 12)".to_string());
    }
    let mut places = Places { path: first.unwrap_or_default().to_vec(), ..Places::default() };
    for name in wanted {
        let of_name: Vec<&Value> =
            list(answer, "tables").iter().filter(|row| row[0].as_str() == Some(name)).collect();
        let schema = |row: &&Value| row[1].as_str().map(str::to_string);
        let is_theirs = |row: &&&Value| row[4] == Value::Bool(true);
        if let Some(first) = first {
            // The one that the role finds first; a table of others in its way would be its own trouble.
            let is_of_path = |schema: &String| first.contains(schema);
            let on_path =
                of_name.iter().filter(|row| is_theirs(row) || schema(row).as_ref().is_some_and(is_of_path));
            if let Some((_, nearest)) = on_path.filter_map(|row| Some((row[5].as_u64()?, schema(row)?))).min()
            {
                if !is_of_path(&nearest) {
                    places.written.insert(name.clone(), nearest);
                }
                continue;
            }
        }
        let is_fit = |row: &&&Value| first.is_none() || row[3] == Value::Bool(false);
        let found: Vec<String> = of_name.iter().filter(is_fit).filter_map(schema).collect();
        let theirs: Vec<String> = of_name.iter().filter(is_theirs).filter_map(schema).collect();
        match (found.as_slice(), theirs.as_slice()) {
            ([only], _) if places.path.contains(only) => {}
            ([only], _) => places.path.push(only.clone()),
            ([], [only]) => {
                places.written.insert(name.clone(), only.clone());
            }
            ([], []) if of_name.is_empty() => {
                return why(format!("table {name} is not in this database, or temporary"));
            }
            ([], []) => {
                return Err(NotPlanned::Unproved(format!(
                    "table {name} belongs to another role than the one that ran the statement, the database's owner and superusers, no session of that role \
                     was seen to hold its lock by this statement, and it is in no schema of that role's search_path in which only these have objects and may \
                     make some: ALTER ROLE ... SET search_path, or REVOKE CREATE ON SCHEMA ... FROM PUBLIC"
                )));
            }
            ([], several) | (several, _) => {
                return why(format!(
                    "table {name} is in {} schemas, and the statement does not name one",
                    several.len()
                ));
            }
        }
    }
    Ok(places)
}

/// Who plans a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Planner {
    /// Our own role: what is evaluated must belong to it or to a superuser.
    Ourselves,
    /// The role that ran it.
    Itself,
    /// One that reads everything, for a superuser: the tables themselves must belong to superusers, and a policy could read any others.
    Reader,
}

/// Whether the locked tables may be planned; else why not. `is_for_role`: schemas in which others may make objects are left out of the path.
pub(super) fn check_tables(answer: &Value, planner: Planner, is_for_role: bool) -> Result<(), String> {
    let left_out = &answer["left_out"];
    if let (true, Some(table), Some(schema)) = (is_for_role, left_out[0].as_str(), left_out[1].as_str()) {
        return Err(format!(
            "operators in schema {schema} compare columns of table {table}, and the schema is left out: {}; without them the plan would be another one",
            path::left_out(schema, left_out[2].as_str().unwrap_or_default())
        ));
    }
    let reasons = [
        (
            "foreign",
            "is a foreign table whose planning could query another server, or that is not of postgres_fdw",
        ),
        ("view", "is a view of a role that is no superuser: planning could run its functions"),
        ("rule", "has rules"),
        ("unreadable", "is not readable for our role; grant pg_read_all_data"),
        ("others", "belongs to a role that is no superuser, and a superuser ran the statement"),
        ("policy", "has policies, and a superuser ran the statement"),
    ];
    let applies = |name: &str| match planner {
        Planner::Itself => ["foreign", "rule"].contains(&name),
        Planner::Ourselves => !["others", "policy"].contains(&name),
        Planner::Reader => true,
    };
    for (name, why) in reasons {
        let table = text(answer, name);
        if !table.is_empty() && applies(name) {
            return Err(format!("{table} {why}"));
        }
    }
    if planner != Planner::Itself && flag(answer, "hidden") != Some(false) {
        return Err("an index, a check, a default or a policy of its tables uses a function of a role that is no superuser".to_string());
    }
    Ok(())
}

/// The collation of an object id: `C` for every one in the order of the code points, whatever it is called. That of the database has no name of its own, and
/// is kept in columns that differ between releases.
fn collation(oid: &str) -> String {
    format!(
        "(select case when l.collprovider = 'd' then
             (select case coalesce(s.b->>'datlocprovider', 'c')
                when 'c' then case when s.b->>'datcollate' in ('C', 'POSIX') then 'C' else s.b->>'datcollate' end
                when 'b' then 'C' else coalesce(s.b->>'datlocale', s.b->>'daticulocale') end
              from (select pg_catalog.to_jsonb(d) b from pg_catalog.pg_database d where d.datname = current_database()) s)
           when l.collprovider = 'b' or l.collprovider = 'c' and l.collcollate in ('C', 'POSIX') then 'C' else l.collname::text end
         from pg_catalog.pg_collation l where l.oid = {oid})"
    )
}

/// Rows, types of columns and indexes of tables: $1 schemas, $2 names; and functions with the names of $3, which have the least volatility first.
pub(super) fn details() -> String {
    const FREQUENT_MIN: f64 = 0.01;
    const OVERLOADS_MAX: usize = 40;
    // ANALYZE keeps no values above 1,024 bytes: a column of such values has neither common ones nor a histogram, and of values that are stored apart it counts
    // only the pointers.
    const WIDE_BYTES_MIN: u32 = 512;
    const POINTER_BYTES: u32 = 18;
    let (of_column, of_key) = (collation("a.attcollation"), collation("k.\"collation\""));
    format!("select json_build_object('tables', (select json_agg(r) from (
  select n.nspname::text as schema, c.relname::text as name, pg_catalog.format('%I.%I', n.nspname, c.relname) relation, c.reltuples::float8 as
    rows, c.relispartition partitioned,
    (select s.srvname::text from pg_catalog.pg_foreign_table f join pg_catalog.pg_foreign_server s on s.oid = f.ftserver where f.ftrelid = c.oid) server,
    (select json_object_agg(a.attname, pg_catalog.format_type(a.atttypid, null)) from pg_catalog.pg_attribute a where a.attrelid = c.oid and
      a.attnum > 0 and not a.attisdropped) as columns,
    (select json_object_agg(a.attname, {of_column}) from pg_catalog.pg_attribute a where a.attrelid = c.oid and
      a.attnum > 0 and not a.attisdropped and a.attcollation <> 0) collations,
    (select json_object_agg(s.attname, round(s.most_common_freqs[1]::numeric, 4)::text) from pg_catalog.pg_stats s
      where s.schemaname = n.nspname and s.tablename = c.relname and not s.inherited and s.most_common_freqs[1] >= {FREQUENT_MIN}) most,
    (select json_object_agg(s.attname, round((case when s.n_distinct < 0 then -s.n_distinct * c.reltuples else s.n_distinct end)::numeric)::text)
      from pg_catalog.pg_stats s where s.schemaname = n.nspname and s.tablename = c.relname and not s.inherited and s.n_distinct <> 0
      and c.reltuples >= 0) as values,
    (select json_object_agg(a.attname, pg_catalog.format_type(a.atttypid, null)) from pg_catalog.pg_stats s join pg_catalog.pg_attribute a
        on a.attrelid = c.oid and a.attname = s.attname
      where s.schemaname = n.nspname and s.tablename = c.relname and not s.inherited and c.reltoastrelid <> 0 and a.attlen = -1
        and a.attstorage in ('x', 'e', 'm') and (s.avg_width >= {WIDE_BYTES_MIN}
          or s.null_frac < 1 and s.most_common_vals is null and s.histogram_bounds is null and s.avg_width >= {POINTER_BYTES})) as wide,
    (select json_agg(json_build_object('index', x.relname, 'definition', pg_catalog.pg_get_indexdef(i.indexrelid), 'method', m.amname, 'valid',
      i.indisvalid, 'partial', i.indpred is not null, 'options', x.reloptions,
       'correlation', (select s.correlation from pg_catalog.pg_stats s join pg_catalog.pg_attribute a on a.attname = s.attname
          where s.schemaname = n.nspname and s.tablename = c.relname and not s.inherited and a.attrelid = c.oid and a.attnum = i.indkey[0] limit 1),
       'columns', (select json_agg(coalesce(a.attname::text, '') order by k.ord) from pg_catalog.unnest(i.indkey::smallint[]) with ordinality k(attnum, ord)
          left join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum and k.attnum > 0 where k.ord <= i.indnkeyatts),
       'classes', (select json_agg(o.opcname order by k.ord) from pg_catalog.unnest(i.indclass::oid[]) with ordinality k(class, ord)
          join pg_catalog.pg_opclass o on o.oid = k.class),
       'collations', (select json_agg(coalesce({of_key}, '') order by k.ord)
          from pg_catalog.unnest(i.indcollation::oid[]) with ordinality k(\"collation\", ord))))
     from pg_catalog.pg_index i join pg_catalog.pg_class x on x.oid = i.indexrelid join pg_catalog.pg_am m on m.oid = x.relam where i.indrelid =
       c.oid) as indexes
  from unnest($1::text[], $2::text[]) w(s, t) join pg_catalog.pg_namespace n on n.nspname = w.s join pg_catalog.pg_class c on
    c.relnamespace = n.oid and c.relname = w.t) r),
  'functions', (select json_agg(f) from (
  select p.name, string_agg(p.overload, '; ' order by p.overload) overloads from (
    select p.proname::text as name, p.provolatile::text || ' ' || pg_catalog.oidvectortypes(p.proargtypes) ||
      case when p.provariadic <> 0 then '...' else '' end overload,
      row_number() over (partition by p.proname order by p.provolatile, p.oid) place
    from pg_catalog.pg_proc p where p.proname = any($3::text[]::name[])) p
  where p.place <= {OVERLOADS_MAX} group by p.name order by p.name) f))::text")
}
