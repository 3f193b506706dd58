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

/// Rows that a search finds, below which another column of its index narrows it no further.
const FEW: f64 = 10.0;

/// Of columns as of [`index_columns`] for these conditions, those that narrow the search: the column with the most different values first, and others only as
/// long as many rows are left. `values` is the number of different values of a column; where one is not known, all columns are kept as they are.
pub fn narrowing(
    columns: Vec<String>,
    conditions: &[Condition],
    rows: f64,
    values: impl Fn(&str) -> Option<f64>,
) -> Vec<String> {
    let is_equal = |column: &String| {
        let mut all = conditions.iter().filter(|one| one.column == *column && one.inside.is_none());
        all.any(|one| matches!(one.how, Use::Equality | Use::Join))
    };
    let (equal, ranges): (Vec<String>, Vec<String>) = columns.iter().cloned().partition(is_equal);
    let known: Option<Vec<(String, f64)>> =
        equal.into_iter().map(|column| values(&column).map(|count| (column, count))).collect();
    let Some(mut equal) = known.filter(|all| !all.is_empty()) else { return columns };
    equal.sort_by(|left, right| right.1.total_cmp(&left.1));
    let (mut kept, mut left) = (vec![], rows);
    for (column, count) in equal {
        if kept.is_empty() || left > FEW && count >= 2.0 {
            left /= count.max(1.0);
            kept.push(column);
        }
    }
    if left > FEW {
        kept.extend(ranges);
    }
    kept
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

/// Entries of a list of common values, so that it holds most groups of columns that are not compared by equality alone.
const COMMON_VALUES: u32 = 1_000;

/// Commands that let the planner know how columns of a table depend on each other, which the conditions compare together; before PostgreSQL 16 the
/// statistics need a name. For columns that are compared by equality only `dependencies`: a list of common values would be used first, and where there are
/// more groups than the statistics target it shows the planner nothing of the others.
pub fn statistics_commands(table: &str, conditions: &[Condition]) -> Vec<String> {
    let columns = index_columns(conditions);
    let is_equal = |name: &&String| {
        conditions.iter().any(|one| one.column == **name && one.how == Use::Equality && one.inside.is_none())
    };
    let equal: Vec<&String> = columns.iter().filter(is_equal).collect();
    let is_of_equal = equal.len() > 1;
    let columns: Vec<&String> = if is_of_equal { equal } else { columns.iter().collect() };
    if columns.len() < 2 {
        return vec![];
    }
    let names: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let words: Vec<&str> = columns.iter().map(|name| name.as_str()).collect();
    let own = format!("{}.{}", schema_of(table), quoted(&format!("stats_{}", words.join("_"))));
    let create =
        |kind: &str| format!("CREATE STATISTICS {own} ({kind}) ON {} FROM {table};", names.join(", "));
    match is_of_equal {
        true => vec![create("dependencies")],
        false => vec![
            create("mcv"),
            format!("ALTER STATISTICS {own} SET STATISTICS {COMMON_VALUES}; -- PostgreSQL 13"),
        ],
    }
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
        let of = |text: &str| {
            statistics_commands("\"x.y; drop\".t", &crate::statement::conditions(text).expect("reads"))
        };
        assert_eq!(
            of("((t.a = $1) AND (t.b = $2) AND (t.at > $3))"),
            [
                "CREATE STATISTICS \"x.y; drop\".\"stats_a_b\" (dependencies) ON \"a\", \"b\" FROM \"x.y; drop\".t;"
            ]
        );
        let ranged = of("((t.a = $1) AND (t.at > $3))");
        assert!(ranged[0].contains("(mcv) ON \"a\", \"at\""), "{ranged:?}");
        assert_eq!(
            ranged[1],
            "ALTER STATISTICS \"x.y; drop\".\"stats_a_at\" SET STATISTICS 1000; -- PostgreSQL 13"
        );
        assert_eq!(of("(t.a = $1)"), [""; 0]);
    }

    #[test]
    fn a_column_that_does_not_narrow_the_search_is_left_out() {
        let conditions = crate::statement::conditions(
            "((a.state = $1) AND (a.mail = $2) AND (a.shop = $3) AND (a.at > $4))",
        )
        .expect("reads");
        let of = |counts: &'static [(&'static str, f64)]| {
            let values =
                |column: &str| counts.iter().find(|(name, _)| *name == column).map(|(_, count)| *count);
            narrowing(index_columns(&conditions), &conditions, 1e6, values).join(", ")
        };
        assert_eq!(of(&[("state", 3.0), ("mail", 900_000.0), ("shop", 40.0)]), "mail");
        assert_eq!(of(&[("state", 1.0), ("mail", 50.0), ("shop", 40.0)]), "mail, shop, at");
        assert_eq!(of(&[("state", 3.0), ("mail", 50_000.0), ("shop", 40.0)]), "mail, shop");
        assert_eq!(of(&[("mail", 900_000.0)]), "state, mail, shop, at");
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
