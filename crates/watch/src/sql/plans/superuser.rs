//! How a superuser plans a statement where other roles can log in.
//!
//! The sieve of [`super::safety`] has holes that no superuser should fall through, so here nothing passes that is not known to be harmless: each table is named
//! with its schema, all else is looked up in `pg_catalog` alone, functions are those of a list, and columns, indexes, checks, defaults and statistics of the
//! tables have built-in types and functions only.
//!
//! What is checked cannot change before it is used. A statement finds its tables by name each time it is analysed: while we have `pg_namespace` locked in SHARE
//! mode no schema is renamed or made, and while we have a table locked in SHARE UPDATE EXCLUSIVE mode it is not renamed, and gets no index, check, default,
//! statistics, rule or partition (the lock of each command: `AlterTableGetLockLevel` in tablecmds.c, `DefineIndex` in indexcmds.c, `CreateStatistics` in
//! statscmds.c, `DefineQueryRewrite` in rewriteDefine.c). Reads and writes go on beside both. Autovacuum passes the table by, or keeps it: then we do not wait for
//! long enough to have it cancelled. A standby takes no such locks, and engines that send them to their other nodes are left out.

use super::NotPlanned;
use super::safety::{OF_THE_SERVER, RUNS_SQL, calls};
use crate::sql::json::{flag, list, text};
use crate::sql::powers::TRUSTED;
use crate::sql::session::Session;
use record::statement::{self, Chain};
use serde_json::Value;

/// Tables of one statement, with their partitions: each takes a place in the server's table of locks.
const TABLES_MAX: u32 = 500;

/// Where a table may be named with its schema: nothing there can be a type or a function. Behind a comma it is one of the list behind FROM, or a column.
const BEFORE_TABLES: [&str; 9] = ["from", "join", "into", "update", "only", "using", "table", ",", "("];

/// Functions that may be called: they compute from their arguments alone, or count and read what the server has of itself. Those that run SQL or find objects
/// by a name or number that they are given are not among them, nor any that converts a text to a type that it is given.
const HARMLESS: &str = "abs age any_value array_agg array_append array_cat array_dims array_fill array_length array_lower array_ndims array_position
    array_positions array_prepend array_remove array_replace array_to_json array_to_string array_upper ascii asin acos atan atan2 avg
    bigint bit bit_and bit_count bit_length bit_or bit_xor bool bool_and bool_or bpchar btrim cardinality cbrt ceil ceiling char char_length character_length chr
    clock_timestamp coalesce concat concat_ws convert_from convert_to corr cos cosh cot count covar_pop covar_samp cume_dist current_database
    current_schema current_setting currval date daterange date_add date_bin date_part date_subtract date_trunc decode degrees dense_rank div
    encode every exp extract factorial first_value float4 float8 floor format gcd gen_random_uuid generate_series generate_subscripts get_bit get_byte
    greatest hashtext hashtextextended height host hostmask initcap int2 int4 int4range int8 int8range interval isempty isfinite
    json_agg json_array_elements json_array_elements_text json_array_length json_build_array json_build_object json_each json_each_text json_extract_path
    json_extract_path_text json_object json_object_agg json_object_keys json_strip_nulls json_typeof jsonb_agg jsonb_array_elements jsonb_array_elements_text
    jsonb_array_length jsonb_build_array jsonb_build_object jsonb_concat jsonb_contained jsonb_contains jsonb_delete jsonb_each jsonb_each_text jsonb_exists
    jsonb_exists_all jsonb_exists_any jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_agg jsonb_object_keys jsonb_path_exists
    jsonb_path_match jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_pretty jsonb_set jsonb_set_lax jsonb_strip_nulls jsonb_typeof
    justify_days justify_hours justify_interval lag last_value lastval lcm lead least left length like ln localtime localtimestamp log log10 lower lower_inc
    lower_inf lpad ltrim make_date make_interval make_time make_timestamp make_timestamptz masklen max md5 min mod mode money netmask network nextval normalize
    notlike now nth_value ntile nullif num_nonnulls num_nulls numeric numnode numrange octet_length overlaps overlay percent_rank percentile_cont percentile_disc
    pg_advisory_lock pg_advisory_unlock pg_advisory_xact_lock pg_backend_pid pg_column_size pg_is_in_recovery pg_sleep pg_try_advisory_lock
    pg_try_advisory_xact_lock pg_typeof phraseto_tsquery pi plainto_tsquery position power pow quote_ident quote_literal quote_nullable radians random
    range_agg range_merge rank regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array
    regexp_split_to_table regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right
    round row_number row_to_json rpad rtrim scale set_byte set_bit setseed setval setweight sha224 sha256 sha384 sha512 sign sin sinh split_part sqrt
    starts_with statement_timestamp stddev stddev_pop stddev_samp string_agg string_to_array string_to_table strip strpos substr substring sum tan tanh
    text time timeofday timestamp timestamptz timetz timezone to_ascii to_bin to_char to_date to_hex to_json to_jsonb to_number to_oct to_timestamp
    to_tsquery to_tsvector transaction_timestamp translate trim trim_array trim_scale trunc ts_delete ts_filter ts_headline ts_rank ts_rank_cd tsrange tstzrange tsvector_to_array
    txid_current unnest upper upper_inc upper_inf uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7 var_pop var_samp varbit varchar variance version
    websearch_to_tsquery width width_bucket";

/// Whether the server's own lock tables are all that a lock reaches: we are a superuser on a primary of PostgreSQL without one of these engines. A lock that
/// waits for `deadlock_timeout` cancels an autovacuum, so that time must be longer than ours.
pub(super) const MAY_LOCK: &str = "(select pg_catalog.bool_and(rolsuper) from pg_catalog.pg_roles where rolname in (current_user, session_user))
    and not pg_catalog.pg_is_in_recovery() and (select setting::int > 100 from pg_catalog.pg_settings where name = 'deadlock_timeout') and pg_catalog.version() !~* 'greenplum|arenadata|-yb-|cockroach|redshift'
    and not exists (select from pg_catalog.pg_extension where extname in ('citus', 'multimaster', 'shardman', 'pgactive', 'bdr', 'spock'))";

/// The text to plan, each of its tables with the schema in which it alone is, and all of them locked, in the transaction that is open. What the server finds
/// in it is still to be checked, by [`check_locked`].
///
/// # Errors
/// Why it may not be planned so.
pub(super) fn lock(session: &mut Session, plain: &str, names: &Value) -> Result<String, NotPlanned> {
    let why = |why: String| NotPlanned::Why(why);
    let schema_of = |name: &str| {
        let mut found = list(names, "tables").iter().filter(|row| row[0].as_str() == Some(name));
        let schema = found.next()?[1].as_str()?.to_string();
        found.next().is_none().then_some(schema)
    };
    let whole = statement::qualified(plain, schema_of).map_err(|error| why(error.to_string()))?;
    let chains = statement::chains(&whole).map_err(|error| why(error.to_string()))?;
    let tables = statement::parse(&whole).map_err(|error| why(error.to_string()))?.tables;
    let tables: Vec<(String, String)> =
        tables.into_iter().filter_map(|table| Some((table.schema?, table.name))).collect();
    session.plain("lock table pg_catalog.pg_namespace in share mode")?;
    let calls: Vec<&String> =
        chains.iter().filter(|chain| is_call(chain)).flat_map(Chain::spellings).collect();
    let words: Vec<&String> = chains.iter().flat_map(Chain::spellings).collect();
    let (of, called): (Vec<&String>, Vec<&String>) =
        tables.iter().map(|(schema, name)| (schema, name)).unzip();
    let answer = session.query(&of_words(), &[&calls, &words, &of, &called])?;
    let function = text(&answer, "function");
    if !function.is_empty() {
        return Err(why(format!("function {function} is not one of those that a superuser plans")));
    }
    let schemas: Vec<&str> = list(&answer, "schemas").iter().filter_map(Value::as_str).collect();
    check(&chains, &schemas, &tables).map_err(why)?;
    if answer["count"].as_u64().is_none_or(|count| count > u64::from(TABLES_MAX)) {
        return Err(why(format!(
            "its tables have more than {TABLES_MAX} partitions: a superuser does not plan that"
        )));
    }
    if !tables.is_empty() {
        let quoted = |(schema, name): &(String, String)| {
            format!("{}.{}", statement::quoted(schema), statement::quoted(name))
        };
        let all = tables.iter().map(quoted).collect::<Vec<_>>().join(", ");
        session.plain(&format!("lock table {all} in share update exclusive mode"))?;
    }
    Ok(whole)
}

/// Checks the tables that the server has found in a text of [`lock`] when it prepared it.
///
/// # Errors
/// Why it may not be planned.
pub(super) fn check_locked(session: &mut Session, whole: &str) -> Result<(), NotPlanned> {
    let chains = statement::chains(whole).map_err(|error| NotPlanned::Why(error.to_string()))?;
    let words: Vec<&String> = chains.iter().flat_map(Chain::spellings).collect();
    check_tables(&session.query(&of_locked(), &[&words])?).map_err(NotPlanned::Why)
}

/// Whether a function may be called there. Behind INTO stands a table with its columns.
fn is_call(chain: &Chain) -> bool {
    chain.is_open && chain.before != "into"
}

/// Whether nothing in the text but its tables is named by a schema: no function, type, operator or collation.
fn check(chains: &[Chain], schemas: &[&str], tables: &[(String, String)]) -> Result<(), String> {
    let is_schema = |part: &[String; 2]| part.iter().any(|name| schemas.contains(&name.as_str()));
    for chain in chains {
        let name = chain.parts.iter().map(|part| part[1].as_str()).collect::<Vec<_>>().join(".");
        let refused = |what: &str| Err(format!("{name} {what}: a superuser does not plan that"));
        match chain.parts.as_slice() {
            [word] if word[1] == "operator" || word[1] == "natural" => return refused("is in the statement"),
            [_] => {}
            _ if is_call(chain) => return refused("is called with its schema"),
            [schema, rest @ ..] if is_schema(schema) => {
                let is_table = |table: &[String; 2]| {
                    tables.iter().any(|(of, name)| schema.contains(of) && table.contains(name))
                };
                if !is_table(&rest[0]) {
                    return refused("is no table of the statement");
                }
                // `schema.table.column` is found where the type `database.schema.type` could be.
                if !BEFORE_TABLES.contains(&chain.before.as_str()) {
                    return refused("may be a type");
                }
            }
            [_, rest @ ..] if rest.len() > 1 && rest.iter().any(is_schema) => {
                return refused("names a schema of a database");
            }
            _ => {}
        }
    }
    Ok(())
}

/// About the words of a text: $1 those that may be calls, $2 all, $3 and $4 its tables.
fn of_words() -> String {
    let harmless = HARMLESS.split_whitespace().collect::<Vec<_>>().join(",");
    format!(
        "select json_build_object('function', (select min(proname::text) from pg_catalog.pg_proc where pronamespace = 'pg_catalog'::pg_catalog.regnamespace
             and proname = any($1::text[]::name[]) and proname <> all('{{{harmless}}}'::name[])),
           'schemas', (select json_agg(nspname) from pg_catalog.pg_namespace where nspname = any($2::text[]::name[])),
           'count', (with recursive t as (select c.oid from rows from (pg_catalog.unnest($3::text[]), pg_catalog.unnest($4::text[])) as named (s, t)
               join pg_catalog.pg_namespace n on n.nspname = named.s join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = named.t
               union select i.inhrelid from pg_catalog.pg_inherits i join t on t.oid = i.inhparent)
             select count(*) from t))::text"
    )
}

/// Whether a stored expression has a function, an operator or a type that is not built in, but for types that only list values, or a function that must
/// not run.
fn is_strange(tree: &str) -> String {
    let of = |fields: &str| {
        format!(
            "exists (select from pg_catalog.regexp_matches({tree}::text, ':(?:{fields}) ([0-9]+)', 'g') found where found[1]::oid >= 16384
               and found[1]::oid not in (select oid from listed))"
        )
    };
    format!(
        "({tree}::text ~ '[{{](COERCETODOMAIN|ROWCOMPARE|CONVERTROWTYPE|SUBLINK)' or {} or {})",
        of("[A-Za-z_]*[tT]ype(?:[iI]d)?|opno"),
        calls(tree, "in (select oid from barred)")
    )
}

/// About the tables that this transaction has locked, with their partitions and indexes: $1 all words of the text.
fn of_locked() -> String {
    format!(
        "with recursive {TRUSTED},
          barred as materialized (select oid from pg_catalog.pg_proc where oid < 16384 and (proname ~ '{RUNS_SQL}' or {OF_THE_SERVER})
              or oid >= 16384 and (proowner not in (select oid from trusted)
                or prolang not in (select oid from pg_catalog.pg_language where lanname in ('c', 'internal')))),
          listed as materialized (select t.oid from pg_catalog.pg_type t where t.typtype = 'e' and not exists (select from pg_catalog.pg_cast c
              where t.oid in (c.castsource, c.casttarget))),
          held as materialized (select l.relation, l.mode from pg_catalog.pg_locks l where l.pid = pg_catalog.pg_backend_pid()
              and l.locktype = 'relation' and l.relation >= 16384),
          touched as (select relation from held union select i.inhrelid from pg_catalog.pg_inherits i join touched t on i.inhparent = t.relation),
          mine as materialized (select c.oid, c.relname, c.relkind, c.relhasrules from pg_catalog.pg_class c join touched t on t.relation = c.oid
              where c.relkind not in ('i', 'I', 't')),
          indexes as materialized (select i.* from pg_catalog.pg_index i where i.indrelid in (select oid from mine)),
          classes as (select pg_catalog.unnest(indclass::oid[]) oid from indexes
            union select pg_catalog.unnest(p.partclass::oid[]) from pg_catalog.pg_partitioned_table p where p.partrelid in (select oid from mine)),
          families as materialized (select c.opcfamily oid from pg_catalog.pg_opclass c where c.oid >= 16384 and c.oid in (select oid from classes)),
          types as (select case when t.typtype = 'b' and t.typelem <> 0 and t.typlen = -1 then t.typelem else t.oid end oid
              from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid
              where a.attrelid in (select oid from mine) and a.attnum > 0 and not a.attisdropped and a.attname = any($1::text[]::name[]))
         select json_build_object(
          'kind', (select min(relname::text) from mine where relkind not in ('r', 'p') or relhasrules),
          'free', (select min(m.relname::text) from mine m where not exists (select from held h where h.relation = m.oid
              and h.mode = 'ShareUpdateExclusiveLock')),
          'type', (select min(pg_catalog.format_type(t.oid, null)) from types join pg_catalog.pg_type t on t.oid = types.oid where t.oid >= 16384
              and t.oid not in (select oid from listed)),
          'class', exists (select from pg_catalog.pg_amproc f where f.amprocfamily in (select oid from families) and f.amproc in (select oid from barred))
            or exists (select from pg_catalog.pg_amop o join pg_catalog.pg_operator s on s.oid = o.amopopr
                where o.amopfamily in (select oid from families) and s.oprcode in (select oid from barred)),
          'index', (select min(indexrelid::pg_catalog.regclass::text) from indexes where indexprs is not null and {} or indpred is not null and {}),
          'other', exists (select from pg_catalog.pg_constraint c where c.conrelid in (select oid from mine) and c.conbin is not null and {})
            or exists (select from pg_catalog.pg_attrdef d where d.adrelid in (select oid from mine) and {})
            or exists (select from pg_catalog.pg_partitioned_table p where p.partrelid in (select oid from mine) and p.partexprs is not null and {})
            or exists (select from pg_catalog.pg_statistic_ext s where s.stxrelid in (select oid from mine)
                and (pg_catalog.to_jsonb(s)->>'stxexprs') is not null and {}))::text",
        is_strange("indexprs"),
        is_strange("indpred"),
        is_strange("c.conbin"),
        is_strange("d.adbin"),
        is_strange("p.partexprs"),
        is_strange("(pg_catalog.to_jsonb(s)->>'stxexprs')"),
    )
}

fn check_tables(answer: &Value) -> Result<(), String> {
    let named = |name: &str, what: &str| {
        let found = text(answer, name);
        if found.is_empty() { Ok(()) } else { Err(format!("{found} {what}: a superuser does not plan that")) }
    };
    named("kind", "is no plain table, or has rules")?;
    named("free", "is not locked")?;
    named("type", "is a type of its columns that is not built in")?;
    named("index", "has an expression with functions or types that are not built in")?;
    if flag(answer, "class") != Some(false) {
        return Err(
            "an index of its tables has an operator class of its own: a superuser does not plan that"
                .to_string(),
        );
    }
    if flag(answer, "other") != Some(false) {
        return Err(
            "a check, a default, a partition key or statistics of its tables have functions or types that are not built in: a superuser does not \
                plan that"
                .to_string(),
        );
    }
    Ok(())
}
