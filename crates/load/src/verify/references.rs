//! Checks that the foreign keys of the load exist and are enforced.

use postgres::Client;

use super::error::{VerifyError, sql};
use super::problem::Problem;
use crate::dataset::{Dataset, ForeignKey};
use crate::ledger::qualified;

/// Foreign keys that the load made and that are gone, or that let rows pass.
pub(super) fn references(
    control: &mut Client,
    schema: &str,
    content: &dyn Dataset,
    node: Option<&String>,
) -> Result<Vec<Problem>, VerifyError> {
    let mut problems = Vec::new();
    for ForeignKey { table, name, columns, referred } in content.foreign_keys() {
        // Servers before PostgreSQL 18 have no conenforced.
        let state = control.query_one(
            "select coalesce((
                 select case when coalesce(to_jsonb(c) ->> 'conenforced', 'true') <> 'true' then 'is not enforced'
                             when not c.convalidated then 'is not valid: older rows may violate it'
                             when exists (select from pg_trigger t where t.tgconstraint = c.oid and t.tgenabled not in ('O', 'A'))
                             then 'is not enforced: its triggers are disabled' else '' end
                 from pg_constraint c
                 where c.conrelid = to_regclass($1) and c.confrelid = to_regclass($2) and c.contype = 'f'
                   and (select string_agg(a.attname, ', ' order by k.n) from unnest(c.conkey) with ordinality as k (attnum, n)
                        join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.attnum) = $3
                 order by 1 limit 1), 'is gone')",
            &[&qualified(schema, table), &qualified(schema, referred), columns],
        );
        let state: String = sql("looking for the foreign keys", state)?.get(0);
        if !state.is_empty() {
            let problem = format!("its foreign key {name} ({columns}) on {referred} {state}");
            problems.push(Problem::Definition { node: node.cloned(), table: (*table).to_owned(), problem });
        }
    }
    Ok(problems)
}
