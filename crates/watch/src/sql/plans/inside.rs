//! What no plan shows of a statement: the users' functions that it calls, with the plan of a statement inside of them that costs most, and what is unusual
//! about its tables and views (rules, triggers, policies, options, statistics that are switched off, ...).

use super::{
    Batch, Collect, Failed, Known, Link, Looked, Node, NotPlanned, Session, TRIED_MAX, Tick, Wanted, list,
    text,
};
use crate::sql::facts::OWN_SETTINGS;
use connect::sql::literal;
use record::statement;
use record::watched::{
    CHECK, COLUMN_KINDS, DEFAULT, FUNCTION_SETTINGS, FUNCTION_TEXT, NEVER_ANALYSED, NO_STATISTICS, PECULIAR,
    REMOTE_ESTIMATE, TEMPORARY, VIEW_TEXT,
};
use serde_json::Value;
use std::time::Instant;

/// Functions of one statement.
const FUNCTIONS_MAX: usize = 5;
/// Names of a text that are looked up.
pub(super) const NAMES_MAX: usize = 200;
/// Tables and views of one statement.
const RELATIONS_MAX: usize = 8;
/// Characters of a function's text.
const SOURCE_CHARS: usize = 4_000;

/// Statements of these functions that are planned.
const INNER_MAX: usize = 8;
/// So many times as costly as the statement itself is one that takes its time.
const COSTLIER_TIMES: f64 = 10.0;

/// A statement inside of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Inner {
    pub(super) function: String,
    pub(super) text: String,
    pub(super) author: Author,
}

/// The owner of a function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Author {
    name: String,
    is_superuser: bool,
    /// What is inside runs with the owner's rights, or finds names by a path of the function's own: it is not what a caller would execute.
    is_apart: bool,
}

impl Author {
    /// Whether a role may plan what is inside as what it ran itself.
    pub(super) fn is_for(&self, role: &str) -> bool {
        !self.is_apart && (self.is_superuser || self.name == role)
    }
}

/// The query for functions in SQL or PL/pgSQL with one of these names, or that triggers of tables with these names call, without those of the server.
fn question(names: &[String]) -> String {
    let names: Vec<String> = names.iter().take(NAMES_MAX).map(|name| literal(name)).collect();
    let names = names.join(", ");
    format!(
        "select json_build_object('functions', (select json_agg(f) from (select p.proname::text as name, l.lanname::text as language,
            pg_catalog.left(p.prosrc, {SOURCE_CHARS}) as source, p.prorows::bigint as returned, p.proargnames as arguments,
            (select pg_catalog.array_agg(pg_catalog.format_type(t.id, null) order by t.at)
              from pg_catalog.unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]))
              with ordinality t (id, at)) as types, (select pg_catalog.string_agg(c, ', ') from pg_catalog.unnest(p.proconfig) c
                where pg_catalog.split_part(c, '=', 1) ~ '{OWN_SETTINGS}') as settings,
            p.proname in ({names}) as is_named, pg_catalog.pg_get_userbyid(p.proowner)::text as owner,
            exists (select from pg_catalog.pg_roles o where o.oid = p.proowner and o.rolsuper) as of_superuser,
            p.prosecdef or exists (select from pg_catalog.unnest(p.proconfig) c where c like 'search_path=%') as is_apart
          from pg_catalog.pg_proc p join pg_catalog.pg_language l on l.oid = p.prolang join pg_catalog.pg_namespace n on n.oid = p.pronamespace
          where (p.proname in ({names}) or p.oid in (select t.tgfoid from pg_catalog.pg_trigger t join pg_catalog.pg_class c on c.oid = t.tgrelid
              where c.relname in ({names}) and not t.tgisinternal and t.tgenabled in ('O', 'A')))
            and l.lanname in ('sql', 'plpgsql') and n.nspname not in ('pg_catalog', 'information_schema')
          order by 1 limit {FUNCTIONS_MAX}) f),
          'counts_inner', pg_catalog.current_setting('pg_stat_statements.track', true) is not distinct from 'all')::text"
    )
}

/// Plans a statement; or one inside of the functions that it leads to, if that costs so much more that it is what takes the time.
pub(super) fn look(
    session: &mut Session,
    wanted: &Wanted,
    known: &Known,
    inner: &[Inner],
) -> Result<Looked, NotPlanned> {
    let mut outer = super::look(session, wanted, known);
    if let Err(NotPlanned::Gone(_)) = outer {
        return outer;
    }
    let cost = |looked: &Looked| looked.plan.cost_total.unwrap_or(0.0);
    // A call alone reads nothing: whatever its function reads is the work.
    let reads = outer.as_ref().is_ok_and(|looked| looked.nodes.iter().any(|node| !node.table.is_empty()));
    let least = if reads { COSTLIER_TIMES * outer.as_ref().map_or(0.0, cost).max(1.0) } else { 0.0 };
    let begun = Instant::now();
    for one in inner.iter().take(INNER_MAX) {
        if begun.elapsed() > TRIED_MAX {
            break;
        }
        let Inner { function, text, .. } = one;
        match super::look(session, wanted, &known.clone().inside(one)) {
            Ok(mut found) if cost(&found) >= least.max(outer.as_ref().map_or(0.0, cost)) => {
                (found.plan.function, found.plan.inner) = (function.clone(), text.clone());
                outer = Ok(found);
            }
            Err(NotPlanned::Gone(failed)) => return Err(NotPlanned::Gone(failed)),
            // Many of them cannot be planned alone.
            Ok(_) | Err(_) => {}
        }
    }
    outer
}

/// The statements in the text of a function, without those that only ask for values.
fn inner_of(function: &Value) -> Vec<Inner> {
    let texts = |name: &str| -> Vec<String> {
        list(function, name).iter().map(|one| one.as_str().unwrap_or("").to_string()).collect()
    };
    let (mut names, types) = (texts("arguments"), texts("types"));
    names.resize(types.len().max(names.len()), String::new());
    let arguments: Vec<(String, String)> =
        names.into_iter().zip(types.into_iter().chain(std::iter::repeat(String::new()))).collect();
    let has_tables = |text: &String| statement::parse(text).is_ok_and(|parsed| !parsed.tables.is_empty());
    let found = statement::inner(&text(function, "source"), &arguments).into_iter().filter(has_tables);
    let author = Author {
        name: text(function, "owner"),
        is_superuser: function["of_superuser"].as_bool() == Some(true),
        is_apart: function["is_apart"].as_bool() != Some(false),
    };
    found
        .map(|inner| Inner { function: text(function, "name"), text: inner, author: author.clone() })
        .collect()
}

/// The types json and character(n), the same in every database (`pg_type.dat`).
const JSON: u32 = 114;
const BPCHAR: u32 = 1042;

/// A table that is smaller is read in a moment, whatever the planner expects of it.
const UNANALYSED_BYTES_MIN: u32 = 1 << 16;

/// Whether a function is written in SQL or a procedural language.
const WRITTEN: &str =
    "p.prolang not in (select oid from pg_catalog.pg_language where lanname in ('c', 'internal'))";

/// The query for tables and views with one of these names, with what is unusual about each.
fn question_of_relations(names: &[String]) -> String {
    let names: Vec<String> = names.iter().take(NAMES_MAX).map(|name| literal(name)).collect();
    format!(
        "select json_build_object('relations', (select json_agg(r) from (select * from (select pg_catalog.format('%I.%I', n.nspname, c.relname) as relation,
            pg_catalog.concat_ws('; ',
              case when c.relpersistence = 'u' then 'it is unlogged' end,
              case when c.relkind in ('r', 'm') and c.relpersistence <> 't' and pg_catalog.pg_relation_size(c.oid) >= {UNANALYSED_BYTES_MIN}
                and pg_catalog.has_table_privilege(c.oid, 'select') and not c.relrowsecurity and not exists (select from pg_catalog.pg_stats s
                  where s.schemaname = n.nspname and s.tablename = c.relname) then '{NO_STATISTICS}' end,
              (select 'foreign table of ' || w.fdwname from pg_catalog.pg_foreign_table f join pg_catalog.pg_foreign_server s on s.oid = f.ftserver
                join pg_catalog.pg_foreign_data_wrapper w on w.oid = s.srvfdw where f.ftrelid = c.oid and w.fdwname <> 'postgres_fdw'),
              (select '{REMOTE_ESTIMATE}' from pg_catalog.pg_foreign_table f
                join pg_catalog.pg_foreign_server s on s.oid = f.ftserver where f.ftrelid = c.oid and coalesce(
                  (select o from pg_catalog.unnest(f.ftoptions) o where o like 'use\\_remote\\_estimate=%'),
                  (select o from pg_catalog.unnest(s.srvoptions) o where o like 'use\\_remote\\_estimate=%')) ~* '=(true|on|yes|1)$'),
              (select 'options ' || string_agg(o, ', ') from pg_catalog.unnest(c.reloptions) o
                where o !~ '^(autovacuum|toast\\.|fillfactor=[7-9][0-9]|fillfactor=100)' having count(*) > 0),
              case when c.relkind = 'p' then 'partitioned by ' || pg_catalog.pg_get_partkeydef(c.oid)
                || case when c.reltuples < 0 then ', {NEVER_ANALYSED}' else '' end end,
              (select count(*) || ' tables inherit from it' from pg_catalog.pg_inherits where inhparent = c.oid and c.relkind = 'r' having count(*) > 0),
              (select 'rule ' || string_agg(w.rulename || ' on ' || case w.ev_type when '2' then 'UPDATE' when '3' then 'INSERT' when '4' then 'DELETE'
                else 'SELECT' end, ', ' order by w.rulename) from pg_catalog.pg_rewrite w where w.ev_class = c.oid and w.rulename <> '_RETURN' having
                  count(*) > 0),
              (select 'trigger ' || string_agg(t.tgname || ' calls ' || p.proname || '()', ', ' order by t.tgname) from pg_catalog.pg_trigger t
                join pg_catalog.pg_proc p on p.oid = t.tgfoid where t.tgrelid = c.oid and not t.tgisinternal having count(*) > 0),
              (select string_agg('{CHECK}' || pg_catalog.quote_ident(k.conname) || ' calls ' || p.proname || '()', '; ' order by k.conname)
                from pg_catalog.pg_constraint k join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass
                  and d.objid = k.oid and d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass join pg_catalog.pg_proc p on p.oid = d.refobjid
                where k.conrelid = c.oid and k.contype = 'c' and {WRITTEN}),
              (select string_agg('{DEFAULT}' || pg_catalog.quote_ident(a.attname) || ' calls ' || p.proname || '()', '; ' order by a.attnum)
                from pg_catalog.pg_attrdef f join pg_catalog.pg_attribute a on a.attrelid = f.adrelid and a.attnum = f.adnum
                  join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass and d.objid = f.oid
                  and d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass join pg_catalog.pg_proc p on p.oid = d.refobjid
                where f.adrelid = c.oid and {WRITTEN}),
              case when c.relrowsecurity then 'row-level security' end,
              (select 'statistics target ' || string_agg(a.attstattarget || ' for column ' || pg_catalog.quote_ident(a.attname), ', ' order by a.attnum)
                from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and (a.attstattarget = 0 or a.attstattarget > 1000) having
                  count(*) > 0),
              (select string_agg('column ' || pg_catalog.quote_ident(a.attname)
                || ': ' || (select string_agg(o, ', ') from pg_catalog.unnest(a.attoptions) o where o like 'n\\_distinct%'), '; ' order by a.attnum)
                from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and a.attoptions::text like '%n\\_distinct%' having count(*) > 0),
              (select count(*) || ' deferrable constraints' from pg_catalog.pg_constraint where conrelid = c.oid and condeferrable having count(*) > 0),
              (select count(*) || ' exclusion constraints' from pg_catalog.pg_constraint where conrelid = c.oid and contype = 'x' having count(*) > 0),
              (select count(*) || ' indexes' from pg_catalog.pg_index where indrelid = c.oid having count(*) >= 8)) as peculiar,
            (select string_agg(pg_catalog.quote_ident(a.attname) || ' ' || case when a.atttypid = {JSON} then 'json'
                else 'character(' || a.atttypmod - 4 || ')' end, '; ' order by a.attnum) from pg_catalog.pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                and (a.atttypid = {JSON} or a.atttypid = {BPCHAR} and a.atttypmod >= 50 + 4 and not exists (select from pg_catalog.pg_stats s
                  where s.schemaname = n.nspname and s.tablename = c.relname and s.attname = a.attname and (s.null_frac > 0.5
                    or (select avg(pg_catalog.length(pg_catalog.rtrim(v))) from pg_catalog.unnest(coalesce(s.histogram_bounds,
                      s.most_common_vals)::text::text[]) v)
                      >= 0.5 * (a.atttypmod - 4))))
                and c.relkind in ('r', 'p')) as kinds,
            case when c.relkind = 'v' then pg_catalog.left(pg_catalog.pg_get_viewdef(c.oid), {SOURCE_CHARS}) end as definition,
            case when c.relpersistence = 't' then pg_catalog.pg_stat_get_live_tuples(c.oid) || ' ' || pg_catalog.pg_stat_get_dead_tuples(c.oid)
              || ' ' || pg_catalog.pg_relation_size(c.oid)
              end as temporary
          from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
          where c.relname in ({}) and c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname not in ('pg_catalog', 'information_schema') and c.oid not in ({})
          order by 1 limit {RELATIONS_MAX}) s where s.peculiar <> '' or s.kinds <> '' or s.temporary <> '' or s.definition <> '') r))::text",
        names.join(", "),
        crate::sql::relations::LOCKED
    )
}

impl Node {
    /// Records what is unusual about the relations that a statement names. A refusal is none.
    fn record_relations(&mut self, tick: &Tick, names: &[String], batch: &mut Batch) -> Result<(), Failed> {
        let Link::Up(up) = &mut self.link else { return Ok(()) };
        let answer = match up.session.query(&question_of_relations(names), &[]) {
            Ok(answer) => answer,
            Err(Failed::Refused { .. }) => return Ok(()),
            Err(gone) => return Err(gone),
        };
        let place = self.place();
        for row in answer["relations"].as_array().into_iter().flatten() {
            for (topic, field) in [(PECULIAR, "peculiar"), (COLUMN_KINDS, "kinds"), (TEMPORARY, "temporary")]
            {
                let value = text(row, field);
                if !value.is_empty() {
                    self.recorded.fact(batch, tick.now_us, place.fact(topic, text(row, "relation"), value));
                }
            }
            let definition = text(row, "definition").split_whitespace().collect::<Vec<_>>().join(" ");
            if !definition.is_empty() {
                let fact = place.fact(VIEW_TEXT, text(row, "relation"), statement::mask(&definition));
                self.recorded.fact(batch, tick.now_us, fact);
            }
        }
        Ok(())
    }

    /// Records the functions and relations that a statement names. A refusal is none: their texts are only a help.
    pub(super) fn record_named(
        &mut self,
        tick: &Tick,
        (query_id, statement): (&str, &str),
        batch: &mut Batch,
    ) -> Result<(), Failed> {
        if self.plans.seen.contains_key(query_id) {
            return Ok(());
        }
        let names = statement::names(statement);
        if names.is_empty() {
            return Ok(());
        }
        self.record_relations(tick, &names, batch)?;
        self.record_definitions(tick, &names, batch)?;
        let Link::Up(up) = &mut self.link else { return Ok(()) };
        let answer = match up.session.query(&question(&names), &[]) {
            Ok(answer) => answer,
            Err(Failed::Refused { .. }) => return Ok(()),
            Err(gone) => return Err(gone),
        };
        let place = self.place();
        let functions = list(&answer, "functions");
        // What the server counts apart is planned apart.
        if answer["counts_inner"].as_bool() == Some(false) {
            let inner = functions.iter().flat_map(inner_of).collect();
            self.plans.inner.insert(query_id.to_string(), inner);
        }
        for row in functions.iter().filter(|row| row["is_named"].as_bool() == Some(true)) {
            let rows = row["returned"].as_u64().unwrap_or(0);
            let source = text(row, "source");
            let source = source.split_whitespace().collect::<Vec<_>>().join(" ");
            let value =
                format!("{} returning {rows} rows: {}", text(row, "language"), statement::mask(&source));
            self.recorded.fact(batch, tick.now_us, place.fact(FUNCTION_TEXT, text(row, "name"), value));
            let settings = text(row, "settings");
            if !settings.is_empty() {
                let fact = place.fact(FUNCTION_SETTINGS, text(row, "name"), settings);
                self.recorded.fact(batch, tick.now_us, fact);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_constants_in_the_query() {
        let query = question(&["find_offer".to_string(), "it's".to_string()]);
        assert!(query.contains("in ('find_offer', 'it''s')"), "{query}");
        assert_eq!(Value::Null["functions"].as_array(), None);
    }

    #[test]
    fn statements_of_functions_are_those_with_tables() {
        let function = serde_json::json!({"name": "login", "owner": "clerk", "of_superuser": false, "is_apart": false,
            "arguments": ["u"], "types": ["integer"], "source":
            "begin perform nextval('n'); delete from visit where person = u and at < now(); return u; end"});
        let found = Inner {
            function: "login".to_string(),
            text: "delete from visit where person = $1::integer and at < now()".to_string(),
            author: Author { name: "clerk".to_string(), is_superuser: false, is_apart: false },
        };
        assert!(found.author.is_for("clerk") && !found.author.is_for("shop"));
        assert_eq!(inner_of(&function), [found]);
        assert_eq!(inner_of(&serde_json::json!({"name": "f", "arguments": null, "source": null})), []);
    }
}
