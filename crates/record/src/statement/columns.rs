//! The columns of an index that would serve conditions, and the command that creates it.

use super::{Condition, Use};

/// Columns of a proposed index: more are rarely worth their size.
const COLUMNS_MAX: usize = 4;

/// Columns of an index for these conditions, all of one table: those compared by equality first, then one that is compared by range. Columns that an index
/// in their order does not serve are left out.
pub fn index_columns(conditions: &[Condition]) -> Vec<String> {
    let mut columns: Vec<String> = vec![];
    for how in [Use::Equality, Use::Join] {
        for condition in conditions.iter().filter(|c| c.how == how && c.inside.is_none()) {
            if !columns.contains(&condition.column) {
                columns.push(condition.column.clone());
            }
        }
    }
    columns.truncate(COLUMNS_MAX);
    let range =
        conditions.iter().find(|c| c.how == Use::Range && c.inside.is_none() && !columns.contains(&c.column));
    if let Some(range) = range.filter(|_| columns.len() < COLUMNS_MAX) {
        columns.push(range.column.clone());
    }
    columns
}

/// `CREATE INDEX CONCURRENTLY ON schema.table ("column", ...);`: `table` is quoted by the server, columns are quoted here. A partitioned table takes no
/// CONCURRENTLY: its partitions do.
pub fn index_command(table: &str, columns: &[String], is_concurrent: bool) -> String {
    let names: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let how = if is_concurrent { "CONCURRENTLY " } else { "" };
    format!("CREATE INDEX {how}ON {table} ({});", names.join(", "))
}

/// A name as SQL takes it: always in quotes, because a list of reserved words would differ between releases.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `CREATE STATISTICS ... ON "a", "b" FROM table;`: before PostgreSQL 16 it needs a name.
pub fn statistics_command(table: &str, columns: &[String]) -> String {
    let names: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let schema = table.split('.').next().unwrap_or_default();
    let own = quoted(&format!("stats_{}", columns.join("_")));
    format!("CREATE STATISTICS {schema}.{own} ON {} FROM {table};", names.join(", "))
}
