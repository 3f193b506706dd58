//! Which functions are PostgreSQL's own: all others may read tables that the statement does not name.

/// Functions of PostgreSQL that are called alone; the others begin with `pg_`, or with the name of a large group.
const BUILT_IN: [&str; 22] = [
    "array_agg",
    "avg",
    "coalesce",
    "count",
    "current_database",
    "current_schema",
    "current_setting",
    "currval",
    "greatest",
    "lastval",
    "least",
    "max",
    "md5",
    "min",
    "nextval",
    "now",
    "random",
    "set_config",
    "setval",
    "sum",
    "unnest",
    "version",
];
const BUILT_IN_GROUPS: [&str; 8] = ["pg_", "json", "lo_", "to_", "txid_", "generate_", "string_", "has_"];

/// Of those that only compute, what stands in conditions and lists.
const COMPUTING: [&str; 27] = [
    "abs",
    "bool_and",
    "bool_or",
    "ceil",
    "concat",
    "count_distinct",
    "date_part",
    "date_trunc",
    "extract",
    "first_value",
    "floor",
    "grouping",
    "lag",
    "last_value",
    "lead",
    "left",
    "length",
    "lower",
    "nullif",
    "rank",
    "replace",
    "right",
    "round",
    "row_number",
    "substring",
    "trim",
    "upper",
];
/// Words of SQL that stand in front of a parenthesis.
const WORDS: [&str; 37] = [
    "all",
    "and",
    "any",
    "array",
    "as",
    "between",
    "by",
    "case",
    "cast",
    "distinct",
    "else",
    "except",
    "exists",
    "filter",
    "from",
    "group",
    "having",
    "in",
    "interval",
    "intersect",
    "join",
    "lateral",
    "like",
    "limit",
    "not",
    "offset",
    "on",
    "or",
    "over",
    "row",
    "select",
    "some",
    "then",
    "union",
    "using",
    "values",
    "where",
];
/// Types with a length.
const TYPES: [&str; 8] = ["bit", "char", "character", "decimal", "numeric", "time", "timestamp", "varchar"];

/// Whether a function, in lower case and without its schema, is PostgreSQL's own.
pub(super) fn is_built_in(name: &str) -> bool {
    BUILT_IN.contains(&name) || BUILT_IN_GROUPS.iter().any(|group| name.starts_with(group))
}

/// Functions that compute next to nothing, beside those that stand in conditions and lists.
const CHEAP: [&str; 4] = ["ascii", "chr", "mod", "sign"];

/// Whether a function, in lower case, computes so little that a statement does not take long because of it.
pub(super) fn is_cheap(name: &str) -> bool {
    COMPUTING.contains(&name) || CHEAP.contains(&name) || BUILT_IN.contains(&name) && name != "md5"
}

/// Whether a text, in lower case, may call a function of the application.
pub(super) fn calls_others(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_\"".contains(c);
    text.match_indices('(').any(|(at, _)| {
        let name = text[..at].trim_end().rsplit(|c| !is_part(c)).next().unwrap_or_default();
        let is_own =
            [&COMPUTING[..], &WORDS, &TYPES].iter().any(|list| list.contains(&name)) || is_built_in(name);
        !name.is_empty() && !is_own
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cheap_is_not_where_the_time_goes() {
        assert!(["chr", "count", "upper"].into_iter().all(is_cheap));
        assert!(!["crypt", "ts_headline", "to_tsvector", "md5", "regexp_replace"].into_iter().any(is_cheap));
    }

    #[test]
    fn what_only_computes_reads_no_other_table() {
        for own in [
            "select count(*) from audit where tenant = $1",
            "select date_trunc($1, at), sum(n) from t where a in ($1, $2) and (b or not (c)) group by 1",
            "select max(x)::numeric(10, 2) from (select x from t) s",
        ] {
            assert!(!calls_others(own), "{own}");
        }
        for other in [
            "select price_of(id) from t",
            "select id from t where app.may_see(id)",
            "select \"Rate\"(x) from t",
        ] {
            assert!(calls_others(other), "{other}");
        }
    }
}
