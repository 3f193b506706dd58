//! How a superuser plans a statement where other roles can log in, if they are trusted (`--trust-roles`).
//!
//! The sieve of [`super::safety`] has holes, so here nothing passes that is not known to be harmless. That is a second wall and no proof: who may create types
//! can try to commit a cast to the type of a table's rows between the check and the plan. So it is for servers whose roles would not attack it: each table is
//! named with its schema, all else is looked up in `pg_catalog` alone, functions are those of a list, and columns, indexes, checks and statistics of the tables
//! have built-in types and functions only.
//!
//! What is checked cannot change before it is used. A statement finds its tables by name each time it is analysed: while we have `pg_namespace` locked in SHARE
//! mode no schema is renamed or made, and while we have a table locked in SHARE UPDATE EXCLUSIVE mode it is not renamed, and gets no index, check, default,
//! statistics, rule or partition (the lock of each command: `AlterTableGetLockLevel` in tablecmds.c, `DefineIndex` in indexcmds.c, `CreateStatistics` in
//! statscmds.c, `DefineQueryRewrite` in rewriteDefine.c). Other catalogs keep no lock until the end of the transaction that changes them (`CastCreate`,
//! `NamespaceCreate`, `AlterDomainDefault`): so nothing that they could add may be reached, such as a cast or a default of a type that is not built in.
//! Reads and writes go on beside both locks. Autovacuum passes the table by, or keeps it: then we do not wait for long enough to have it cancelled. A standby
//! takes no such locks, and engines that send them to their other nodes are left out.

use super::NotPlanned;
use super::safety::calls;
use crate::sql::json::{flag, list, text};
use crate::sql::powers::TRUSTED;
use crate::sql::session::Session;
use record::statement::{self, Chain};
use serde_json::Value;

/// Tables of one statement, with their partitions: each takes a place in the server's table of locks.
const TABLES_MAX: u32 = 500;

/// What makes rows anew: a column that is not named gets its default, or that of its domain, which its owner changes without a lock on the table.
const WRITES: [&str; 3] = ["insert", "merge", "default"];

/// Longer numbers make long values: `char(10485760)`. What stood for constants are parameters.
const DIGITS_MAX: usize = 3;
/// Times that values are put together.
const JOINED_MAX: usize = 4;

/// What may stand before a name of several parts, besides signs: there it is a table or a column, and no type, collation or operator.
const BEFORE_NAMES: &str = "all and any array asc between both by case desc distinct else escape except exists filter for from full group having
    ilike in inner intersect into is join lateral leading left like limit not offset on only or order outer over partition placing returning right row
    select set similar some table then trailing union update using values when where zone";

/// Words of the language behind which a parenthesis opens no call. A list of names behind any other word gives columns other names than those that are checked.
const BEFORE_LISTS: &str = "all and any array as between by case cast distinct else except exists filter from full having ilike in intersect is join
    lateral like limit materialized not offset on only or order over partition recursive rollup row select set sets similar some then union using values when
    where with within group grouping cube";

/// Functions that may be called: they compute from their arguments alone, in a short time, or count and read what the server has of itself. None makes a long
/// value of short ones, because what is computed from constants is computed while tables are locked, and no timeout ends that. Those that run SQL or find
/// objects by a name or number that they are given are not among them, nor any that converts a text to a type that it is given.
const HARMLESS: &str = "abs age any_value array_agg array_dims array_length array_lower array_ndims array_position array_positions
    array_to_json array_upper ascii asin acos atan atan2 avg bigint bit bit_and bit_count bit_length bit_or bit_xor
    bool bool_and bool_or bpchar btrim cardinality cbrt ceil ceiling char char_length character_length chr
    clock_timestamp coalesce convert_from convert_to corr cos cosh cot count covar_pop covar_samp cume_dist
    current_database current_schema currval date daterange date_add date_bin date_part date_subtract date_trunc decode
    degrees dense_rank div encode every extract first_value float4 float8 floor gen_random_uuid generate_series
    generate_subscripts get_bit get_byte greatest hashtext hashtextextended height host hostmask initcap int2 int4
    int4range int8 int8range interval isempty isfinite json_agg json_array_elements json_array_elements_text
    json_array_length json_build_array json_build_object json_each json_each_text json_extract_path
    json_extract_path_text json_object_agg json_object_keys json_strip_nulls json_typeof jsonb_agg jsonb_array_elements
    jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_contained jsonb_contains
    jsonb_delete jsonb_each jsonb_each_text jsonb_exists jsonb_exists_all jsonb_exists_any jsonb_extract_path
    jsonb_extract_path_text jsonb_object jsonb_object_agg jsonb_object_keys jsonb_path_exists jsonb_path_match
    jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_pretty jsonb_strip_nulls jsonb_typeof
    justify_days justify_hours justify_interval lag last_value lastval lead least left length like localtime
    localtimestamp lower lower_inc lower_inf ltrim make_date make_interval make_time make_timestamp make_timestamptz
    masklen max md5 min mod mode money netmask network nextval normalize notlike now nth_value ntile nullif
    num_nonnulls num_nulls numeric numnode numrange octet_length overlaps percent_rank percentile_cont percentile_disc
    pg_advisory_lock pg_advisory_unlock pg_advisory_xact_lock pg_backend_pid pg_column_size pg_is_in_recovery pg_sleep
    pg_try_advisory_lock pg_try_advisory_xact_lock pg_typeof phraseto_tsquery plainto_tsquery quote_ident quote_literal
    quote_nullable radians random range_agg range_merge rank regexp_count regexp_instr regexp_like regexp_match
    regexp_matches regexp_split_to_array regexp_split_to_table regexp_substr regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy reverse right round row_number row_to_json rtrim scale
    setseed setval setweight sha224 sha256 sha384 sha512 sign sin sinh sqrt starts_with statement_timestamp stddev
    stddev_pop stddev_samp string_agg strip substr substring sum tan tanh text time timeofday timestamp timestamptz
    timetz timezone to_bin to_char to_date to_hex to_json to_jsonb to_number to_oct to_timestamp to_tsquery to_tsvector
    transaction_timestamp trim trim_array trim_scale trunc ts_delete ts_filter ts_headline ts_rank ts_rank_cd tsrange
    tstzrange tsvector_to_array txid_current unnest upper upper_inc upper_inf uuid_extract_timestamp
    uuid_extract_version uuidv4 uuidv7 var_pop var_samp varbit varchar variance websearch_to_tsquery width width_bucket";

/// A text to plan, and what its tables are checked with.
pub(super) struct Locked {
    /// The text, each of its tables with the schema in which it alone is.
    pub(super) whole: String,
    /// All words of it.
    words: Vec<String>,
    /// Those of [`HARMLESS`], and conversions.
    harmless: Vec<u32>,
}

/// The text to plan, with all of its tables locked in the transaction that is open. What the server finds in it is still to be checked, by [`check_locked`].
///
/// # Errors
/// Why it may not be planned so.
pub(super) fn lock(session: &mut Session, plain: &str, names: &Value) -> Result<Locked, NotPlanned> {
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
    if !whole.is_ascii() {
        return Err(why("a name has letters above ASCII: a superuser does not plan that".to_string()));
    }
    check_size(&whole).map_err(why)?;
    if let Some((schema, _)) = tables.iter().find(|(schema, _)| is_of_the_server(schema)) {
        return Err(why(format!("tables of {schema} are not locked for a plan")));
    }
    let words: Vec<String> = chains.iter().flat_map(|chain| chain.parts.clone()).collect();
    if let Some(word) = words.iter().find(|word| WRITES.contains(&word.as_str())) {
        return Err(why(format!(
            "{word} may evaluate the default of a type: a superuser does not plan that"
        )));
    }
    let built_in = session.query(&of_built_in(), &[])?;
    session.plain("set local statement_timeout = '1s'; lock table pg_catalog.pg_namespace, pg_catalog.pg_cast in share mode")?;
    check_words(session, &chains, &tables)?;
    if !tables.is_empty() {
        let quoted = |(schema, name): &(String, String)| {
            format!("{}.{}", statement::quoted(schema), statement::quoted(name))
        };
        let all = tables.iter().map(quoted).collect::<Vec<_>>().join(", ");
        session.plain(&format!("lock table {all} in share update exclusive mode"))?;
    }
    Ok(Locked { whole, words, harmless: oids(&built_in, "harmless") })
}

fn oids(answer: &Value, name: &str) -> Vec<u32> {
    let all = list(answer, name).iter().filter_map(Value::as_u64);
    all.filter_map(|oid| u32::try_from(oid).ok()).collect()
}

/// Checks what the text names, behind the lock that keeps schemas as they are.
fn check_words(
    session: &mut Session,
    chains: &[Chain],
    tables: &[(String, String)],
) -> Result<(), NotPlanned> {
    let why = |why: String| NotPlanned::Why(why);
    let calls: Vec<&String> =
        chains.iter().filter(|chain| chain.is_open).flat_map(|chain| &chain.parts).collect();
    let (schemas, names): (Vec<&String>, Vec<&String>) =
        tables.iter().map(|(schema, name)| (schema, name)).unzip();
    let answer = session.query(&of_words(), &[&calls, &schemas, &names])?;
    let function = text(&answer, "function");
    if !function.is_empty() {
        return Err(why(format!("function {function} is not one of those that a superuser plans")));
    }
    let nested = text(&answer, "nested");
    if !nested.is_empty() {
        return Err(why(format!("{nested} is a view of other views: a superuser does not plan that")));
    }
    if flag(&answer, "added") != Some(false) {
        return Err(why("pg_catalog has functions or operators that are not built in".to_string()));
    }
    check(chains).map_err(why)?;
    match answer["count"].as_u64() {
        Some(count) if count <= u64::from(TABLES_MAX) => Ok(()),
        _ => Err(why(format!(
            "its tables have more than {TABLES_MAX} partitions: a superuser does not plan that"
        ))),
    }
}

/// Checks the tables that the server has found in a text of [`lock`] when it prepared it.
///
/// # Errors
/// Why it may not be planned.
pub(super) fn check_locked(session: &mut Session, locked: &Locked) -> Result<(), NotPlanned> {
    let Locked { words, harmless, .. } = locked;
    check_tables(&session.query(&of_locked(), &[words, harmless])?).map_err(NotPlanned::Why)
}

/// Whether nothing in the text but tables and columns is named by several parts: no function, type, operator or collation. Which schemas there are does not
/// count: one that is being made is seen when that is committed.
fn check(chains: &[Chain]) -> Result<(), String> {
    for chain in chains {
        let name = chain.parts.join(".");
        let refused = |what: &str| Err(format!("{name} {what}: a superuser does not plan that"));
        match chain.parts.as_slice() {
            [word] if word == "operator" || word == "natural" => return refused("is in the statement"),
            [word] if chain.is_open && !is_harmless(word) && !may_open(word) => {
                return refused("is called, or gives names to columns");
            }
            [_] => {}
            _ if chain.is_open => return refused("is called with its schema"),
            _ if !may_be_before(&chain.before) => return refused("may be a type"),
            _ => {}
        }
    }
    Ok(())
}

/// [`HARMLESS`], as elements of an array.
fn harmless() -> String {
    HARMLESS.split_whitespace().collect::<Vec<_>>().join(",")
}

fn is_harmless(name: &str) -> bool {
    HARMLESS.split_whitespace().any(|harmless| harmless == name)
}

/// Whether a schema has tables that all sessions need.
fn is_of_the_server(schema: &str) -> bool {
    schema.starts_with("pg_") || schema == "information_schema"
}

/// Whether no long value can be computed from the constants of a text.
fn check_size(text: &str) -> Result<(), String> {
    let is_long = text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > DIGITS_MAX);
    if is_long || text.contains('^') || text.matches("||").count() > JOINED_MAX {
        return Err(
            "its constants may be long, or take long to compute: a superuser does not plan that".to_string()
        );
    }
    Ok(())
}

fn may_open(word: &str) -> bool {
    BEFORE_LISTS.split_whitespace().any(|one| one == word)
}

/// Whether what stands before a name of several parts leaves it to be a table or a column.
fn may_be_before(before: &str) -> bool {
    let is_word = before.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '"' || !c.is_ascii());
    match is_word {
        true => BEFORE_NAMES.split_whitespace().any(|word| word == before),
        false => !before.contains(':'),
    }
}

/// The functions of [`HARMLESS`] and conversions, which stay what they are. They are read before anything is locked.
fn of_built_in() -> String {
    let harmless = harmless();
    format!(
        "select json_build_object(
           'harmless', (select json_agg(oid::bigint) from pg_catalog.pg_proc where oid < 16384 and (proname = any('{{{harmless}}}'::name[])
              or oid in (select castfunc from pg_catalog.pg_cast))))::text"
    )
}

/// About the words of a text: $1 those that may be calls, $2 and $3 its tables.
fn of_words() -> String {
    let harmless = harmless();
    format!(
        "select json_build_object('function', (select min(proname::text) from pg_catalog.pg_proc where pronamespace = 'pg_catalog'::pg_catalog.regnamespace
             and proname = any($1::text[]::name[]) and proname <> all('{{{harmless}}}'::name[])),
           'added', exists (select from pg_catalog.pg_proc where oid >= 16384 and pronamespace = 'pg_catalog'::pg_catalog.regnamespace)
             or exists (select from pg_catalog.pg_operator where oid >= 16384 and oprnamespace = 'pg_catalog'::pg_catalog.regnamespace),
           'nested', (select min(c.relname::text) from rows from (pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::text[])) as named (s, t)
               join pg_catalog.pg_namespace n on n.nspname = named.s join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = named.t
               join pg_catalog.pg_rewrite w on w.ev_class = c.oid
               join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and d.objid = w.oid
               join pg_catalog.pg_class r on d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and r.oid = d.refobjid and r.oid <> c.oid
                 and r.relkind not in ('r', 'p') where c.relkind = 'v'),
           'count', (with recursive t as (select c.oid from rows from (pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::text[])) as named (s, t)
               join pg_catalog.pg_namespace n on n.nspname = named.s join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = named.t
               union select i.inhrelid from pg_catalog.pg_inherits i join t on t.oid = i.inhparent)
             select count(*) from t))::text"
    )
}

/// Nodes of stored expressions that evaluate checks of domains, or whose functions are not in the text.
const STRANGE: &str = "COERCETODOMAIN|ROWCOMPARE|CONVERTROWTYPE|SUBLINK";

/// Whether a stored expression or the query of a view has one of these nodes, an operator or a type that is not built in, but for types that only list values,
/// or a function that must not run.
fn is_strange(tree: &str, nodes: &str) -> String {
    let of = |fields: &str| {
        format!(
            "exists (select from pg_catalog.regexp_matches({tree}::text, ':(?:{fields}) ([0-9]+)', 'g') found where found[1]::oid >= 16384
               and found[1]::oid not in (select oid from listed))"
        )
    };
    format!(
        "({tree}::text ~ '[{{]({nodes})' or {} or {})",
        of("[A-Za-z_]*[tT]yp(?:e|e[iI]d|id)?|opno|eqop|sortop"),
        calls(&format!("pg_catalog.regexp_replace({tree}::text, ':opfuncid', '', 'g')"), "<> all($2::oid[])")
    )
}

/// About the tables that this transaction has locked, with their partitions and indexes: $1 all words of the text, $2 the functions of [`of_built_in`].
fn of_locked() -> String {
    format!(
        "with recursive {TRUSTED},
          listed as materialized (select oid from pg_catalog.pg_type where typtype = 'e'),
          foreign_code as (select oid from pg_catalog.pg_proc where oid >= 16384 and (proowner not in (select oid from trusted)
              or prolang not in (select oid from pg_catalog.pg_language where lanname in ('c', 'internal')))),
          held as materialized (select l.relation, l.mode from pg_catalog.pg_locks l where l.pid = pg_catalog.pg_backend_pid()
              and l.locktype = 'relation' and l.relation >= 16384),
          touched as (select relation from held union select i.inhrelid from pg_catalog.pg_inherits i join touched t on i.inhparent = t.relation),
          mine as materialized (select c.oid, c.relname, c.relkind, c.relhasrules from pg_catalog.pg_class c join touched t on t.relation = c.oid
              where c.relkind not in ('i', 'I', 't')),
          indexes as materialized (select i.* from pg_catalog.pg_index i where i.indrelid in (select oid from mine)),
          classes as (select pg_catalog.unnest(indclass::oid[]) oid from indexes
            union select pg_catalog.unnest(p.partclass::oid[]) from pg_catalog.pg_partitioned_table p where p.partrelid in (select oid from mine)),
          families as materialized (select c.opcfamily oid from pg_catalog.pg_opclass c where c.oid >= 16384 and c.oid in (select oid from classes)),
          types as (select t.oid from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid
              left join pg_catalog.pg_type e on e.oid = t.typelem and t.typlen = -1
              where a.attrelid in (select oid from mine) and a.attnum > 0 and not a.attisdropped and t.oid >= 16384
                and (a.attname = any($1::text[]::name[]) or coalesce(e.typtype, t.typtype) not in ('b', 'e')))
         select json_build_object(
          'kind', (select min(relname::text) from mine where relkind not in ('r', 'p', 'v') or relhasrules and relkind <> 'v'),
          'view', (select min(m.relname::text) from mine m join pg_catalog.pg_rewrite w on w.ev_class = m.oid
              where m.relkind = 'v' and (w.rulename <> '_RETURN' or {})),
          'free', (select min(m.relname::text) from mine m where not exists (select from held h where h.relation = m.oid
              and h.mode = 'ShareUpdateExclusiveLock')),
          'type', (select min(pg_catalog.format_type(t.oid, null)) from types t),
          'class', exists (select from pg_catalog.pg_amproc f where f.amprocfamily in (select oid from families) and f.amproc in (select oid from foreign_code))
            or exists (select from pg_catalog.pg_amop o join pg_catalog.pg_operator s on s.oid = o.amopopr
                where o.amopfamily in (select oid from families) and s.oprcode in (select oid from foreign_code)),
          'index', (select min(indexrelid::pg_catalog.regclass::text) from indexes where indexprs is not null and {} or indpred is not null and {}),
          'other', exists (select from pg_catalog.pg_constraint c where c.conrelid in (select oid from mine) and c.conbin is not null and {})
            or exists (select from pg_catalog.pg_policy y where y.polrelid in (select oid from mine)
                and (y.polqual is not null and {} or y.polwithcheck is not null and {}))
            or exists (select from pg_catalog.pg_attrdef d join pg_catalog.pg_attribute g on g.attrelid = d.adrelid and g.attnum = d.adnum
                where d.adrelid in (select oid from mine) and g.attgenerated <> '' and {})
            or exists (select from pg_catalog.pg_partitioned_table p where p.partrelid in (select oid from mine) and p.partexprs is not null and {})
            or exists (select from pg_catalog.pg_statistic_ext s where s.stxrelid in (select oid from mine)
                and (pg_catalog.to_jsonb(s)->>'stxexprs') is not null and {}))::text",
        is_strange("w.ev_action", "COERCETODOMAIN|ROWCOMPARE|CONVERTROWTYPE"),
        is_strange("indexprs", STRANGE),
        is_strange("indpred", STRANGE),
        is_strange("c.conbin", STRANGE),
        is_strange("y.polqual", STRANGE),
        is_strange("y.polwithcheck", STRANGE),
        is_strange("d.adbin", STRANGE),
        is_strange("p.partexprs", STRANGE),
        is_strange("(pg_catalog.to_jsonb(s)->>'stxexprs')", STRANGE),
    )
}

fn check_tables(answer: &Value) -> Result<(), String> {
    let named = |name: &str, what: &str| {
        let found = text(answer, name);
        if found.is_empty() { Ok(()) } else { Err(format!("{found} {what}: a superuser does not plan that")) }
    };
    named("kind", "is no plain table or view, or has rules")?;
    named("view", "is a view with functions or types that are not built in")?;
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
            "a check, a generated column, a policy, a partition key or statistics of its tables have functions or types that are not built in: a \
                superuser does not plan that"
                .to_string(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_and_columns_have_names_of_several_parts() {
        let is_fit = |text: &str| statement::chains(text).is_ok_and(|chains| check(&chains).is_ok());
        for text in [
            "select o.id, count(*) from app.orders o join app.lines l on o.id = l.order_id where not o.done and l.n > $1 group by o.id order by o.at desc",
            "select extract(year from o.at) from app.orders o where o.at at time zone o.zone > now() and o.id between o.low and o.high",
            "update app.orders o set n = o.n + $1 where o.id = any(array[o.a, o.b]) returning o.id",
            "select case when o.a then o.b else o.c end from app.orders as o where o.d in (select l.d from app.lines l)",
        ] {
            assert!(is_fit(text), "{text}");
        }
        for text in [
            "select $1::app.kind",
            "select cast($1 as app.kind)",
            "select app.f($1)",
            "select $1 operator(app.=) $2",
            "select a collate app.c from t",
            "select * from f() as t(\"from\" app.kind)",
            "select json_value(a, $1 returning app.kind) from t",
            "select x.b from app.t as x (a, b)",
            "with x (a) as (select * from app.t) select a from x",
            "select xmltable($1 passing a columns b app.kind) from t",
            "select * from t natural join u",
            "select s.u&\"f\"($1)",
        ] {
            assert!(!is_fit(text), "{text}");
        }
    }

    #[test]
    fn constants_stay_short() {
        for text in ["select a::char(10485760)", "select a ^ b", "select a || b || c || d || e || f"] {
            assert!(check_size(text).is_err(), "{text}");
        }
        assert!(check_size("select a::numeric(10, 2) || b from t where c = $12").is_ok());
        for word in ["repeat", "lpad", "pi", "replace", "current_setting", "query_to_xml", "domain_in"] {
            assert!(!is_harmless(word), "{word}");
        }
        assert!(is_harmless("lower") && is_harmless("count") && is_harmless("date_trunc"));
    }
}
