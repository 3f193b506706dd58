//! Expressions of the catalog that are evaluated for rows of a statement's tables and stand in no text of it: policies of row-level security, which the plan of
//! a role that they do not apply to has not either, and generated columns that are computed when they are read.

use super::inside::NAMES_MAX;
use super::{Batch, Failed, Link, Node, Tick, flag, list, text};
use crate::collect::Collect;
use connect::sql::literal;
use record::statement::mask;
use record::watched::VIRTUAL_COLUMN;
use record::watched::policy::{Function, Policy, TOPIC};
use serde_json::Value;

/// Policies, and columns, of the tables of one statement.
const DEFINITIONS_MAX: usize = 16;
/// Roles of a list.
const ROLES_MAX: usize = 50;

/// Characters of an expression.
const EXPRESSION_CHARS: u32 = 4_000;

/// The query for tables with one of these names. PostgreSQL before 12 has no column `attgenerated`: the name is then that of the query around. (A row of
/// `pg_attribute` as JSON would have it or not, but holds values of users' types, whose casts could run with our rights.)
fn question(names: &[String]) -> String {
    let names: Vec<String> = names.iter().take(NAMES_MAX).map(|name| literal(name)).collect();
    let names = names.join(", ");
    let tables = "pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace";
    let named = format!(
        "c.relname in ({names}) and n.nspname not in ('pg_catalog', 'information_schema') and c.oid not in ({})",
        crate::sql::relations::LOCKED
    );
    format!(
        "select json_build_object('policies', (select json_agg(r) from (select pg_catalog.format('%I.%I', n.nspname, c.relname) as relation,
            pg_catalog.quote_ident(p.polname) as name,
            case p.polcmd when 'r' then 'SELECT' when 'a' then 'INSERT' when 'w' then 'UPDATE' when 'd' then 'DELETE' else 'ALL' end as command,
            (select json_agg(m.rolname) from (select r.rolname from pg_catalog.pg_roles r where not r.rolsuper
               and exists (select from pg_catalog.unnest(p.polroles) o (id)
                 where o.id <> 0 and pg_catalog.pg_has_role(r.oid, o.id, 'usage')) order by 1 limit {ROLES_MAX}) m) as roles,
            (select json_agg(e.rolname) from (select r.rolname from pg_catalog.pg_roles r where r.rolcanlogin and (r.rolsuper or r.rolbypassrls
               or not c.relforcerowsecurity and pg_catalog.pg_has_role(r.oid, c.relowner, 'usage')) order by 1 limit {ROLES_MAX}) e) as exempt,
            pg_catalog.left(pg_catalog.pg_get_expr(p.polqual, p.polrelid), {EXPRESSION_CHARS}) as condition,
            (select json_agg(json_build_object('name', pg_catalog.format('%I.%I', s.nspname, f.proname), 'signature', f.oid::pg_catalog.regprocedure::text,
               'language', l.lanname, 'volatility', case f.provolatile when 'v' then 'VOLATILE' when 's' then 'STABLE' else 'IMMUTABLE' end,
               'leakproof', f.proleakproof))
              from pg_catalog.pg_proc f join pg_catalog.pg_namespace s on s.oid = f.pronamespace join pg_catalog.pg_language l on l.oid = f.prolang
              where f.oid in (select d.refobjid from pg_catalog.pg_depend d where d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
                and d.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass and d.objid = p.oid)) as functions
          from pg_catalog.pg_policy p join {tables} on c.oid = p.polrelid
          where c.relrowsecurity and p.polqual is not null and {named} order by 1, 2 limit {DEFINITIONS_MAX}) r),
         'virtual', (select json_agg(r) from (select pg_catalog.format('%I.%I %I', n.nspname, c.relname, a.attname) as column,
            pg_catalog.left(pg_catalog.pg_get_expr(d.adbin, d.adrelid), {EXPRESSION_CHARS}) as expression
          from (select ''::\"char\" as attgenerated) older cross join pg_catalog.pg_attribute a join {tables} on c.oid = a.attrelid
            join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
          where a.atthasdef and not a.attisdropped and {named} and 'v'::\"char\" = (select attgenerated from pg_catalog.pg_attribute b
            where b.attrelid = a.attrelid and b.attnum = a.attnum)
          order by 1 limit {DEFINITIONS_MAX}) r))::text"
    )
}

/// A policy from its row.
fn policy(row: &Value) -> Policy {
    let words = |name: &str| list(row, name).iter().filter_map(Value::as_str).map(str::to_string).collect();
    let function = |row: &Value| Function {
        name: text(row, "name"),
        signature: text(row, "signature"),
        language: text(row, "language"),
        volatility: text(row, "volatility"),
        leakproof: flag(row, "leakproof") == Some(true),
    };
    Policy {
        relation: text(row, "relation"),
        name: text(row, "name"),
        command: text(row, "command"),
        roles: words("roles"),
        exempt: words("exempt"),
        condition: mask(&text(row, "condition")),
        functions: list(row, "functions").iter().map(function).collect(),
    }
}

impl Node {
    /// Records such expressions of the tables that a statement names. A refusal is none.
    pub(super) fn record_definitions(
        &mut self,
        tick: &Tick,
        names: &[String],
        batch: &mut Batch,
    ) -> Result<(), Failed> {
        let Link::Up(up) = &mut self.link else { return Ok(()) };
        let answer = match up.session.query(&question(names), &[]) {
            Ok(answer) => answer,
            Err(Failed::Refused { .. }) => return Ok(()),
            Err(gone) => return Err(gone),
        };
        let place = self.place();
        for policy in list(&answer, "policies").iter().map(policy) {
            let name = format!("{} {}", policy.relation, policy.name);
            let value = serde_json::to_string(&policy).unwrap_or_default();
            self.recorded.fact(batch, tick.now_us, place.fact(TOPIC, name, value));
        }
        for row in list(&answer, "virtual") {
            let fact = place.fact(VIRTUAL_COLUMN, text(row, "column"), mask(&text(row, "expression")));
            self.recorded.fact(batch, tick.now_us, fact);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is longer than we read ends in the middle of a constant.
    #[test]
    fn constants_of_an_expression_that_was_cut_stay_out() {
        let row = json!({"name": "mine", "relation": "app.note", "condition": "((kind <> 'secr"});
        assert!(!policy(&row).condition.contains("secr"), "{}", policy(&row).condition);
    }

    #[test]
    fn a_policy_has_its_functions_and_no_constants() {
        let row = json!({"name": "mine", "relation": "app.note", "command": "ALL", "roles": null, "exempt": ["postgres"],
            "condition": "((kind <> 'secret'::text) AND app.can_see(branch))", "functions": [{"name": "app.can_see",
            "signature": "app.can_see(integer)", "language": "plpgsql", "volatility": "STABLE", "leakproof": false}]});
        let found = policy(&row);
        assert_eq!(found.condition, "((kind <> '***'::text) AND app.can_see(branch))");
        assert_eq!((found.roles.len(), found.exempt.as_slice()), (0, ["postgres".to_string()].as_slice()));
        assert_eq!(found.functions[0].signature, "app.can_see(integer)");
        assert!(question(&["it's".to_string()]).contains("in ('it''s')"));
    }
}
