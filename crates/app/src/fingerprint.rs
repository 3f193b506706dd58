//! What the target reports about itself, for run.json: version, settings that differ from the built-in defaults, size.
//!
//! Each value is queried alone: what a role may not read is named in `missing`, and the rest is still there.

use connect::ConnSpec;
use connect::control::Control;
use record::model::{Setting, Target};

/// Settings that describe the connection or the place of files, not how the server works.
const UNTELLING: &str = "'application_name', 'client_encoding', 'config_file', 'data_directory', 'hba_file', 'ident_file', \
     'external_pid_file', 'transaction_isolation', 'transaction_read_only', 'transaction_deferrable'";

/// Queries the server. Never fails: what cannot be learned is listed.
pub fn take(control: &mut Control, spec: &ConnSpec) -> Target {
    let mut target =
        Target { engine: "postgres".to_string(), connection: spec.describe(), ..Target::default() };
    let mut missing = Vec::new();
    match control.query_one(
        "select current_setting('server_version'), current_setting('server_version_num')::int8, version()",
        &[],
    ) {
        Ok(row) => {
            // Distributions append their own revision: `15.18 (Debian 15.18-0+deb12u1)`.
            let version: String = row.get(0);
            target.server_version = version.split_whitespace().next().unwrap_or_default().to_string();
            target.version_num = row.get::<_, i64>(1).unsigned_abs();
            target.version_text = row.get(2);
        }
        Err(error) => missing.push(format!("version: {}", server_text(&error))),
    }
    let settings = format!(
        "select name, setting, unit, source, boot_val from pg_catalog.pg_settings
         where source not in ('default', 'override', 'client', 'session') and setting is distinct from boot_val
           and name not in ({UNTELLING}) order by name"
    );
    match control.query(settings.as_str(), &[]) {
        Ok(rows) => {
            target.settings = rows
                .iter()
                .map(|row| Setting {
                    name: row.get(0),
                    value: row.get(1),
                    unit: row.get(2),
                    source: row.get(3),
                    default: row.get(4),
                })
                .collect();
        }
        Err(error) => missing.push(format!("settings: {}", server_text(&error))),
    }
    match database_bytes(control) {
        Ok(bytes) => target.database_bytes = Some(bytes),
        Err(error) => missing.push(format!("size of the database: {}", server_text(&error))),
    }
    target.missing = missing;
    target
}

/// `pg_database_size` of the current database.
pub fn database_bytes(control: &mut Control) -> Result<u64, postgres::Error> {
    let row = control.query_one("select pg_catalog.pg_database_size(pg_catalog.current_database())", &[])?;
    Ok(row.get::<_, i64>(0).unsigned_abs())
}

fn server_text(error: &postgres::Error) -> String {
    connect::control::server_error(error).map_or_else(|| error.to_string(), |error| error.message)
}
