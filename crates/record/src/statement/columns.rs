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

/// The end of the first name in a text of names that the server has quoted where they need it, separated by dots; `None` if it does not begin with one.
fn end_of_name(text: &str) -> Option<usize> {
    if text.starts_with('"') {
        let mut rest = 1;
        loop {
            let at = rest + text[rest..].find('"')?;
            if !text[at + 1..].starts_with('"') {
                return (at > 1 && !text[..at].contains(char::is_control)).then_some(at + 1);
            }
            rest = at + 2;
        }
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let end = text.find(|c: char| !is_name(c)).unwrap_or(text.len());
    (end > 0).then_some(end)
}

/// The schema of a table that is written as the server quotes it, and the name of the table alone. Both stay quoted.
fn split_name(table: &str) -> (&str, &str) {
    match end_of_name(table) {
        Some(end) if table[end..].starts_with('.') => (&table[..end], &table[end + 1..]),
        _ => ("public", table),
    }
}

/// The schema alone.
pub fn schema_of(table: &str) -> &str {
    split_name(table).0
}

/// Whether a text is one name, or several with dots between, each quoted where it needs that: nothing else of it would be executed.
pub fn is_name(text: &str) -> bool {
    let mut rest = text;
    while let Some(end) = end_of_name(rest) {
        match rest[end..].strip_prefix('.') {
            Some(next) => rest = next,
            None => return end == rest.len(),
        }
    }
    false
}

/// A text that should be such a name: what is none, as in a record that was forged, becomes one name in quotes.
pub fn as_name(text: &str) -> std::borrow::Cow<'_, str> {
    if text.is_empty() || is_name(text) {
        return text.into();
    }
    quoted(&text.replace(char::is_control, " ")).into()
}

/// `CREATE STATISTICS ... ON "a", "b" FROM table;`: before PostgreSQL 16 it needs a name.
pub fn statistics_command(table: &str, columns: &[String]) -> String {
    let names: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let schema = schema_of(table);
    let own = quoted(&format!("stats_{}", columns.join("_")));
    format!("CREATE STATISTICS {schema}.{own} ON {} FROM {table};", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_in_quotes_is_no_end_of_a_schema() {
        for (table, schema, name) in [
            ("public.orders", "public", "orders"),
            ("app.\"o.\"", "app", "\"o.\""),
            ("\"a.b\".\"c\"\".d\"", "\"a.b\"", "\"c\"\".d\""),
            ("orders", "public", "orders"),
        ] {
            assert_eq!(split_name(table), (schema, name), "{table}");
        }
        let made = statistics_command("\"x.y; drop\".t", &["a".to_owned()]);
        assert_eq!(made, "CREATE STATISTICS \"x.y; drop\".\"stats_a\" ON \"a\" FROM \"x.y; drop\".t;");
    }

    #[test]
    fn what_is_no_name_becomes_one() {
        for name in ["public.orders", "\"A b\".\"c;\"\"d\"", "größe", "a.b.c", "pg_toast.pg_toast_1"] {
            assert_eq!(as_name(name), name);
        }
        for (text, name) in [
            ("public.orders ; \\! id", "\"public.orders ; \\! id\""),
            ("a\"; drop table b; --", "\"a\"\"; drop table b; --\""),
            ("\"a\"b", "\"\"\"a\"\"b\""),
            ("a..b", "\"a..b\""),
            ("\"a\nb\"", "\"\"\"a b\"\"\""),
        ] {
            assert_eq!(as_name(text), name);
            assert!(is_name(&as_name(text)));
        }
    }
}
