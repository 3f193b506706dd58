//! When autovacuum comes to a table, by the server's settings and the table's own.

use crate::case::{Case, Thing};

/// From how many changed rows on autovacuum comes to a table.
pub(in crate::rules) struct Due {
    /// Dead rows, or rows changed since the last ANALYZE.
    pub(in crate::rules) rows: f64,
    /// The parameter that decides, as `name = value`.
    pub(in crate::rules) by: String,
    /// It is the table's own.
    pub(in crate::rules) is_tables: bool,
}

impl Due {
    /// From how many dead rows on it is vacuumed.
    pub(in crate::rules) fn of_vacuum(case: &Case, table: &Thing<'_>, node: &str, live: f64) -> Option<Due> {
        let due = Due::of(case, table, node, "vacuum", live)?;
        // From PostgreSQL 18 on; -1 switches it off.
        let most = value(case, table, node, "autovacuum_vacuum_max_threshold");
        match most {
            Some((most, by, is_tables)) if most >= 0.0 && most < due.rows => {
                Some(Due { rows: most, by, is_tables })
            }
            _ => Some(due),
        }
    }

    /// From how many changed rows on it is analysed.
    pub(in crate::rules) fn of_analyze(case: &Case, table: &Thing<'_>, node: &str, live: f64) -> Option<Due> {
        Due::of(case, table, node, "analyze", live)
    }

    fn of(case: &Case, table: &Thing<'_>, node: &str, what: &str, live: f64) -> Option<Due> {
        let (threshold, first, is_first) = value(case, table, node, &format!("autovacuum_{what}_threshold"))?;
        let (factor, second, is_second) =
            value(case, table, node, &format!("autovacuum_{what}_scale_factor"))?;
        let rows = threshold + factor * live;
        let by = if threshold >= factor * live { first } else { second };
        Some(Due { rows, by, is_tables: if threshold >= factor * live { is_first } else { is_second } })
    }
}

/// Defaults of autovacuum's parameters (`guc_tables.c`).
fn default_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "autovacuum_vacuum_threshold" | "autovacuum_analyze_threshold" => "50",
        "autovacuum_vacuum_scale_factor" => "0.2",
        "autovacuum_analyze_scale_factor" => "0.1",
        _ => return None,
    })
}

/// The value of a parameter of autovacuum for a table, and whether it is the table's own.
pub(in crate::rules) fn parameter(
    case: &Case,
    table: &Thing<'_>,
    node: &str,
    name: &str,
) -> Option<(f64, bool)> {
    value(case, table, node, name).map(|(value, _, is_tables)| (value, is_tables))
}

/// The value of a parameter, the parameter as `name = value`, and whether it is the table's own.
fn value(case: &Case, table: &Thing<'_>, node: &str, name: &str) -> Option<(f64, String, bool)> {
    let mut own = table.lines.word("autovacuum_options").split(", ");
    let (text, is_tables) = match own.find_map(|one| one.strip_prefix(name)?.strip_prefix('=')) {
        Some(text) => (text, true),
        // A default is no fact of a recording.
        None => (case.setting(node, name).or_else(|| default_of(name))?, false),
    };
    Some((text.parse().ok()?, format!("{name} = {text}"), is_tables))
}
