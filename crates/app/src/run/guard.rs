//! Whose tables the built-in workloads drive.
//!
//! A trigger, a rule or a default of another role runs with the rights of the session that writes the row, and an operator in a schema in front of
//! `pg_catalog` with those of any that names it. `load` and `verify` refuse such tables, and so does a run of what is built in. A script of the user is the
//! user's own.

use super::Plan;
use super::mix::{PGBENCH_TABLES, is_builtin};
use super::scripts::Selected;
use crate::failure::Failure;
use connect::ConnSpec;
use connect::conninfo::Pinned;
use connect::control::Control;
use std::collections::BTreeMap;

/// What a name means, looked up as the user's are: so no operator stands in these texts.
const MEANT: &str = "select pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid";
const SCHEMAS: &str = "select pg_catalog.current_schemas(true)";

/// The schema of a relation.
const SCHEMA_OF: &str = "select n.nspname::text from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = $1";

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
        let failed = |what: &str| {
            let words = format!("cannot look up {what}");
            move |error| Failure::caused(words, error)
        };
        let meant = |client: &mut Control, name: &str| -> Result<Option<u32>, Failure> {
            // What is not there is refused by the server, or by the workload, in better words.
            Ok(client.query_one(MEANT, &[&name]).map_err(failed(name))?.get(0))
        };
        let (mut oids, mut schemas): (Vec<u32>, Vec<String>) = (vec![], vec![]);
        if selected.iter().filter_map(Selected::script).any(|script| is_builtin(&script.source)) {
            // The sessions find names as the user's do.
            let users = spec.clone().with_pinned(Pinned::Nothing);
            let mut users = connect::control::connect_shared(&users)?;
            for table in PGBENCH_TABLES {
                oids.extend(meant(&mut users, table)?);
            }
            let row = users.query_one(SCHEMAS, &[]).map_err(failed("the search path"))?;
            let path: Vec<String> = row.get(0);
            let before_catalog = path.into_iter().take_while(|schema| schema != "pg_catalog");
            schemas.extend(before_catalog.filter(|schema| !schema.starts_with("pg_temp_")));
        }
        for one in selected {
            let Selected::Family(builtin, _) = one else { continue };
            // The workload itself reports tables that are missing, in better words.
            let Ok(tables) = self.tables_of_family(builtin, control) else { continue };
            for (schema, table) in tables {
                let Some(schema) = schema else { continue };
                oids.extend(meant(control, &load::ledger::qualified(&schema, table))?);
            }
        }
        let mut found: BTreeMap<String, Vec<u32>> =
            schemas.into_iter().map(|schema| (schema, vec![])).collect();
        for oid in oids {
            let row = control.query_opt(SCHEMA_OF, &[&oid]).map_err(failed("a schema"))?;
            if let Some(row) = row {
                found.entry(row.get(0)).or_default().push(oid);
            }
        }
        for (schema, oids) in &found {
            load::ledger::check_usable(&mut **control, schema, oids)?;
        }
        Ok(())
    }
}
