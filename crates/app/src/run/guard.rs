//! Whose tables the built-in workloads drive.
//!
//! A trigger, a rule or a default of another role runs with the rights of the session that writes the row, and an operator in a schema in front of `pg_catalog` with those of
//! any that names it. `load` and `verify` refuse such tables, and so does a run of what is built in. A script of the user is the user's own.

use super::Plan;
use super::mix::{PGBENCH_TABLES, is_builtin};
use super::scripts::Selected;
use crate::failure::Failure;
use connect::ConnSpec;
use connect::conninfo::Pinned;
use connect::control::Control;
use std::collections::BTreeMap;

/// The relation that a name means: its object id and its schema.
const RELATION: &str = "select c.oid, n.nspname::text from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.oid = pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid";

/// The schemas in which names are looked up before `pg_catalog`.
const BEFORE_CATALOG: &str = "select s.name::text from pg_catalog.unnest(pg_catalog.current_schemas(true)) with ordinality s (name, at)
    where s.at operator(pg_catalog.<) pg_catalog.array_position(pg_catalog.current_schemas(true), 'pg_catalog'::pg_catalog.name)
      and pg_catalog.left(s.name::pg_catalog.text, 8) operator(pg_catalog.<>) 'pg_temp_'";

impl Plan {
    /// Refuses tables that this session should not use.
    ///
    /// # Errors
    /// Which table or schema it is, and whose.
    pub(super) fn check_tables(
        &self,
        control: &mut Control,
        spec: &ConnSpec,
        selected: &[Selected],
    ) -> Result<(), Failure> {
        let mut found: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let mut add = |client: &mut Control, name: &str| {
            let row = client
                .query_opt(RELATION, &[&name])
                .map_err(|error| Failure::caused(format!("cannot look up {name}"), error))?;
            // What is not there is refused by the server, or by the workload, in better words.
            if let Some(row) = row {
                found.entry(row.get(1)).or_default().push(row.get(0));
            }
            Ok::<(), Failure>(())
        };
        let mut before_catalog: Vec<String> = vec![];
        if selected.iter().filter_map(Selected::script).any(|script| is_builtin(&script.source)) {
            // The sessions find names as the user's do.
            let users = spec.clone().with_pinned(Pinned::Nothing);
            let mut users = connect::control::connect_shared(&users)?;
            for table in PGBENCH_TABLES {
                add(&mut users, table)?;
            }
            let rows = users
                .query(BEFORE_CATALOG, &[])
                .map_err(|error| Failure::caused("cannot read the search path", error))?;
            before_catalog.extend(rows.iter().map(|row| row.get::<_, String>(0)));
        }
        for one in selected {
            let Selected::Family(builtin, _) = one else { continue };
            // The workload itself reports tables that are missing, in better words.
            let Ok(tables) = self.tables_of_family(builtin, control) else { continue };
            for (schema, table) in tables {
                let Some(schema) = schema else { continue };
                add(control, &load::ledger::qualified(&schema, table))?;
            }
        }
        for schema in before_catalog {
            found.entry(schema).or_default();
        }
        for (schema, oids) in &found {
            load::ledger::check_usable(&mut **control, schema, oids)?;
        }
        Ok(())
    }
}
