use super::*;

#[test]
fn only_one_whole_harmless_statement_is_offered_for_pasting() {
    let of = |text: &str| {
        explain_generic(&StatementTime {
            query_id: "17".to_string(),
            text: text.to_string(),
            is_counted: true,
            ..StatementTime::default()
        })
    };
    assert_eq!(
        of("select *\n  from t where a = $1;"),
        "EXPLAIN (GENERIC_PLAN) select * from t where a = $1; -- as the application's role, not as a superuser: planning runs functions of the application"
    );
    let by_id = "SELECT query FROM pg_stat_statements WHERE queryid = 17;";
    let long = format!("select {}", "a, ".repeat(PASTED_CHARS_MAX));
    let hostile = [
        "",
        ";",
        "copy (select 1) to stdout",
        "select 1; drop table t",
        "select 1 -- first\n, drop_all()",
        "select /* a */ 1",
        "select 'a'",
        "select 1 \\! rm x",
        "select '\u{1b}[2J'",
        "select 'é'",
        long.as_str(),
    ];
    for text in hostile {
        assert_eq!(of(text), by_id, "{text:?}");
    }
    // What has not ended is in no statistics, and what has no id in no view.
    for (query_id, is_counted) in [("17", false), ("text-17e76ca56cd3ae9b", true)] {
        let statement =
            StatementTime { query_id: query_id.to_string(), is_counted, ..StatementTime::default() };
        assert_eq!(explain_generic(&statement), NOW_AT_WORK, "{query_id}");
    }
}

#[test]
fn a_value_that_is_looked_up_in_lists_is_seen_in_the_text() {
    let found = Some("tags".to_string());
    assert_eq!(searched_list("select * from article where $1 = ANY (tags)"), found);
    assert_eq!(searched_list("select * from article a where $1 = any(a.tags) and b > $2"), found);
    for list in ["any($1)", "any(array[$1, $2])", "any(select b from u)"] {
        assert_eq!(searched_list(&format!("select a from t where id = {list}")), None, "{list}");
    }
}
