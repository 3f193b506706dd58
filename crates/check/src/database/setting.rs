//! Settings of the server: their values, where they come from, and the commands that change them.

use serde_json::Value;
use std::collections::BTreeMap;
use watch::sql::json;
use watch::sql::session::{Failed, Session};

/// A setting as `pg_settings` shows it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Setting {
    pub(crate) name: String,
    /// In its unit.
    pub(crate) value: String,
    pub(crate) unit: Option<String>,
    /// What may change it: `postmaster`, `sighup`, `user`.
    context: String,
    source: String,
    file: String,
    line: Option<u64>,
    /// The built-in default.
    pub(crate) boot: String,
    /// A changed value waits for a restart.
    pub(crate) is_pending: bool,
    /// The database and the role of the session, quoted: settings of their own beat the configuration file.
    database: String,
    role: String,
}

impl Setting {
    /// The value as a number in the setting's unit.
    pub(crate) fn number(&self) -> Option<f64> {
        self.value.parse().ok()
    }

    /// The value in bytes; `None` if it is no size, or negative.
    pub(crate) fn bytes(&self) -> Option<f64> {
        let unit = self.unit.as_deref()?;
        let digits = unit.len() - unit.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let times: f64 = if digits == 0 { 1.0 } else { unit[..digits].parse().ok()? };
        let size = match &unit[digits..] {
            "B" => 1.0,
            "kB" => 1024.0,
            "MB" => 1024.0 * 1024.0,
            "GB" => 1024.0 * 1024.0 * 1024.0,
            _ => return None,
        };
        self.number().filter(|number| *number >= 0.0).map(|number| number * times * size)
    }

    /// The value in seconds; `None` if it is no time, or negative.
    pub(crate) fn seconds(&self) -> Option<f64> {
        let second = match self.unit.as_deref()? {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        self.number().filter(|number| *number >= 0.0).map(|number| number * second)
    }

    /// Whether it is on.
    pub(crate) fn is_on(&self) -> bool {
        self.value == "on"
    }

    /// `max_wal_size is 1 GB (set in /etc/postgresql.conf line 240)`.
    pub(crate) fn words(&self) -> String {
        format!("{} is {} ({})", self.name, self.shown(), self.place())
    }

    /// The value as people write it.
    pub(crate) fn shown(&self) -> String {
        match self.value.as_str() {
            "" => "empty".to_string(),
            value => record::number::setting(value, self.unit.as_deref()),
        }
    }

    /// Where it was set.
    pub(crate) fn place(&self) -> String {
        let pending = if self.is_pending { ", a change waits for a restart" } else { "" };
        let place = match (self.source.as_str(), self.file.as_str(), self.line) {
            ("default", ..) => "the default".to_string(),
            ("override", ..) => "fixed at initdb or at the start".to_string(),
            ("configuration file", "", _) => {
                "set in a configuration file, whose place only pg_read_all_settings sees".to_string()
            }
            ("configuration file", file, Some(line)) => format!("set in {file} line {line}"),
            (source, ..) => format!("set by {source}"),
        };
        format!("{place}{pending}")
    }

    /// Whether a change needs a restart.
    pub(crate) fn needs_restart(&self) -> bool {
        self.context == "postmaster"
    }

    /// What to type so that the server uses `value`.
    pub(crate) fn change(&self, value: &str) -> Vec<String> {
        let name = &self.name;
        let after =
            if self.needs_restart() { "-- then restart the server" } else { "SELECT pg_reload_conf();" };
        let literal = connect::sql::literal(value);
        match self.source.as_str() {
            "database" => vec![format!("ALTER DATABASE {} SET {name} = {literal};", self.database)],
            "user" => vec![format!("ALTER ROLE {} SET {name} = {literal};", self.role)],
            "database user" => {
                vec![format!(
                    "ALTER ROLE {} IN DATABASE {} SET {name} = {literal};",
                    self.role, self.database
                )]
            }
            "command line" => vec![format!(
                "-- {name} is given on the server's command line: change it there to {literal}, and restart"
            )],
            _ => vec![format!("ALTER SYSTEM SET {name} = {literal};"), after.to_string()],
        }
    }
}

/// Reads all of them.
///
/// # Errors
/// The server's message.
pub(crate) fn read(session: &mut Session) -> Result<BTreeMap<String, Setting>, Failed> {
    // A parameter of an extension that is not loaded yet has no row, and is not needed.
    let answer = session.query(
        "select pg_catalog.json_build_object('settings', (select pg_catalog.json_agg(s) from (select name, setting, unit, context, source,
           sourcefile, sourceline, boot_val, pending_restart from pg_catalog.pg_settings) s),
           'database', pg_catalog.quote_ident(pg_catalog.current_database()), 'role', pg_catalog.quote_ident(current_user))::text",
        &[],
    )?;
    let setting = |row: &Value| Setting {
        name: json::text(row, "name"),
        value: json::text(row, "setting"),
        unit: Some(json::text(row, "unit")).filter(|unit| !unit.is_empty()),
        context: json::text(row, "context"),
        source: json::text(row, "source"),
        file: json::text(row, "sourcefile"),
        line: json::count(row, "sourceline"),
        boot: json::text(row, "boot_val"),
        is_pending: json::flag(row, "pending_restart") == Some(true),
        database: json::text(&answer, "database"),
        role: json::text(&answer, "role"),
    };
    Ok(json::list(&answer, "settings").iter().map(|row| (json::text(row, "name"), setting(row))).collect())
}

/// A size for `ALTER SYSTEM`: whole GB, or whole MB below.
pub(crate) fn size(bytes: f64) -> String {
    let mib = (bytes / (1024.0 * 1024.0)).ceil().max(1.0);
    let gib = (mib / 1024.0).ceil();
    if mib >= 4096.0 { format!("{gib:.0}GB") } else { format!("{mib:.0}MB") }
}

/// The same, rounded down.
pub(crate) fn size_within(bytes: f64) -> String {
    let mib = (bytes / (1024.0 * 1024.0)).floor().max(1.0);
    format!("{mib:.0}MB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str, unit: &str) -> Setting {
        Setting { name: "s".into(), value: value.into(), unit: Some(unit.into()), ..Setting::default() }
    }

    #[test]
    fn units_are_those_of_the_server() {
        assert_eq!(of("16384", "8kB").bytes(), Some(134_217_728.0));
        assert_eq!(of("16", "32kB").bytes(), Some(524_288.0));
        assert_eq!(of("-1", "MB").bytes(), None);
        assert_eq!(of("1", "min").seconds(), Some(60.0));
        assert_eq!(of("2", "ms").seconds(), Some(0.002));
        assert_eq!((of("2", "ms").bytes(), of("2", "MB").seconds()), (None, None));
        assert_eq!((size(1e9), size(5e9), size_within(1e9)), ("954MB".into(), "5GB".into(), "953MB".into()));
    }

    #[test]
    fn what_to_type_depends_on_where_it_was_set_and_on_what_may_change_it() {
        let mut setting = of("1", "MB");
        assert_eq!(setting.change("it's"), ["ALTER SYSTEM SET s = 'it''s';", "SELECT pg_reload_conf();"]);
        setting.context = "postmaster".into();
        assert_eq!(setting.change("2MB")[1], "-- then restart the server");
        setting.source = "command line".into();
        assert!(setting.change("2MB")[0].contains("command line"));
    }
}
