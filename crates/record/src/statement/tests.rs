use super::*;
use proptest::prelude::*;
use std::time::{Duration, Instant};

fn conditions_of(text: &str) -> Vec<(String, Use, Option<String>)> {
    let parsed = parse(text).expect("parses");
    parsed.conditions.into_iter().map(|c| (c.column, c.how, c.inside)).collect()
}

#[test]
fn tables_and_conditions_come_from_the_parser() {
    let parsed = parse(
        "WITH recent AS (SELECT * FROM log WHERE at > $1) SELECT o.id, (SELECT max(p) FROM prices) FROM shop.orders AS o JOIN \"Customers\" c ON c.id \
            = o.customer \
         JOIN recent USING (id) WHERE o.state = $2 AND o.amount BETWEEN $3 AND $4 AND EXISTS (SELECT FROM lines l WHERE l.order_id = o.id)",
    )
    .expect("parses");
    let tables: Vec<String> = parsed.tables.iter().map(|table| table.name.clone()).collect();
    assert_eq!(tables, ["log", "orders", "Customers", "prices", "lines"]);
    assert_eq!(parsed.tables[1].schema.as_deref(), Some("shop"));
    assert_eq!(parsed.tables[1].alias.as_deref(), Some("o"));
    let of_o: Vec<(&str, Use)> = parsed
        .conditions
        .iter()
        .filter(|c| c.table.as_deref() == Some("o"))
        .map(|c| (c.column.as_str(), c.how))
        .collect();
    assert_eq!(
        of_o,
        [("customer", Use::Join), ("state", Use::Equality), ("amount", Use::Range), ("id", Use::Join)]
    );
    assert!(parsed.is_filtered && parsed.verb == Verb::Select);
    assert!(!parse("select count(*) from orders").expect("parses").is_filtered);
    // A word in a constant or a name is no condition, which a search for text takes for one.
    assert!(!parse("select 'where', \"where\" from orders").expect("parses").is_filtered);
}

#[test]
fn schemas_are_put_in_front_of_tables_and_of_nothing_else() {
    let schemas = [("orders", "public"), ("Lines", "\"My Shop\""), ("log", "public")]
        .map(|(a, b)| (a.to_string(), b.to_string()));
    let put = |text: &str| with_schemas(text, &schemas.clone().into()).expect("parses");
    for (text, wanted) in [
        (
            "select orders.id from orders where orders.id = $1",
            "select orders.id from public.orders where orders.id = $1",
        ),
        (
            "select ü, log from ORDERS o, \"Lines\" l, lines",
            "select ü, log from public.ORDERS o, \"My Shop\".\"Lines\" l, lines",
        ),
        (
            "select 1 from shop.orders, log() where a in (select b from log)",
            "select 1 from shop.orders, log() where a in (select b from public.log)",
        ),
        (
            "with log as (select 1) select * from log, orders",
            "with log as (select 1) select * from log, public.orders",
        ),
        ("update orders set log = $1 where id = $2", "update public.orders set log = $1 where id = $2"),
        ("insert into log select * from orders", "insert into public.log select * from public.orders"),
        (
            "delete from orders using log where log.id = orders.log",
            "delete from public.orders using public.log where log.id = orders.log",
        ),
        (
            "merge into orders using log on orders.id = log.id when matched then delete",
            "merge into public.orders using public.log on orders.id = log.id when matched then delete",
        ),
    ] {
        assert_eq!(put(text), wanted);
    }
    assert!(with_schemas("select 1\nfrom orders", &schemas.clone().into()).is_err());
}

#[test]
fn columns_that_a_statement_sets_are_known() {
    let set = |text: &str| parse(text).expect("parses").assigned;
    assert_eq!(
        set("update profile set logins = logins + $1, (a, \"B\") = ($2, $3) where id = $4"),
        ["logins", "a", "B"]
    );
    assert_eq!(
        set("insert into t (id, n) values ($1, $2) on conflict (id) do update set n = excluded.n"),
        ["n"]
    );
    assert_eq!(set("insert into t (id) values ($1) on conflict do nothing"), [""; 0]);
    assert_eq!(set("with u as (update t set a = $1 returning a) select a from u"), ["a"]);
    assert_eq!(set("select a from t where b = $1"), [""; 0]);
}

#[test]
fn what_is_computed_from_a_column_is_named() {
    let inside = |text: &str| conditions_of(text).remove(0).2;
    assert_eq!(inside("select 1 from t where lower(name) = $1").as_deref(), Some("function lower"));
    assert_eq!(inside("select 1 from t where id::text = $1").as_deref(), Some("a cast to text"));
    assert_eq!(inside("select 1 from t where id + 1 > $1").as_deref(), Some("an expression"));
    assert_eq!(inside("select 1 from t where name collate \"C\" = $1").as_deref(), Some("collation \"C\""));
    assert_eq!(inside("select 1 from t where id = $1"), None);
    let computed = |text: &str| conditions(text).expect("parses").remove(0).computed;
    assert_eq!(computed("((h.id)::text = m.holder_no)").as_deref(), Some("(id)::TEXT"));
    assert_eq!(computed("lower(\"Ah\".name) = $1"), computed("lower(h.name) = $1"));
    assert_eq!(computed("((doc.body ->> $1) = $2)").as_deref(), Some("(body ->> $1)"));
    assert_eq!(computed("(h.id = $1)"), None);
    // A constant may contain what looks like the table.
    let constant = "((\"Ah\".name || ' Ah.x Ah.'::text) = $1)";
    assert_eq!(computed(constant).as_deref(), Some("(name || ' Ah.x Ah.'::TEXT)"));
    // OR and NOT are no conditions that an index in the order of a column serves.
    assert!(conditions_of("select 1 from t where a = $1 or b = $2").is_empty());
    assert_eq!(conditions_of("select 1 from t where a not in ($1)")[0].1, Use::Other);
}

#[test]
fn searches_by_a_pattern_are_neither_comparisons_nor_anything_else() {
    for (text, how, inside) in [
        ("a like $1", Use::Pattern, None),
        ("a LIKE left(md5($1::text), $2) || $3", Use::Pattern, None),
        ("a ~ $1", Use::Pattern, None),
        ("lower(a) like $1", Use::Pattern, Some("function lower")),
        ("a ilike $1", Use::AnyCase, None),
        ("a not like $1", Use::Other, None),
        ("a !~ $1", Use::Other, None),
        // A pattern that is a column has no fixed beginning.
        ("a like b", Use::Other, None),
    ] {
        let found = conditions_of(&format!("select 1 from t where {text}")).remove(0);
        assert_eq!((found.1, found.2.as_deref()), (how, inside), "{text}");
        assert!(!how.is_compared() && index_columns(&conditions(text).expect("parses")).is_empty(), "{text}");
    }
    // As EXPLAIN writes them.
    for (filter, how) in [
        ("((surname)::text ~~ (\"left\"(md5(($1)::text), $2) || $3))", Use::Pattern),
        ("(surname ~~* $1)", Use::AnyCase),
        ("(surname !~~ $1)", Use::Other),
    ] {
        assert_eq!(conditions(filter).expect("parses")[0].how, how, "{filter}");
    }
}

#[test]
fn an_index_has_equality_before_range_and_names_in_quotes() {
    let found = conditions(
        "((at > $1) AND (\"Kind\" = $2) AND (customer = ANY ($3)) AND (lower(name) = $4) AND (at < $5) AND (x > $6))",
    );
    let columns = index_columns(&found.expect("parses"));
    assert_eq!(columns, ["Kind", "customer", "at"]);
    assert_eq!(
        index_command("public.\"T\"", &columns, true),
        "CREATE INDEX CONCURRENTLY ON public.\"T\" (\"Kind\", \"customer\", \"at\");"
    );
    let odd = ["a\"b".to_string()];
    assert_eq!(index_command("t", &odd, false), "CREATE INDEX ON t (\"a\"\"b\");");
}

#[test]
fn verbs_are_what_a_statement_does() {
    for (text, verb) in [
        ("update t set a = $1 where b = $2", Verb::Update),
        ("delete from t using u where t.a = u.a", Verb::Delete),
        ("insert into t (a) values ($1) on conflict do nothing", Verb::Insert),
        ("insert into t select a from u where b = $1 returning a", Verb::Insert),
        ("with d as (delete from t returning a) select * from d", Verb::Select),
        ("select a into u from t", Verb::Other),
        ("merge into t using u on t.a = u.a when matched then update set b = u.b", Verb::Merge),
        (
            "with w as (select 1 as a) merge into t using w on t.a = w.a when not matched then do nothing",
            Verb::Merge,
        ),
        ("create table x (a int)", Verb::Other),
        ("vacuum t", Verb::Other),
        ("set x = $1", Verb::Other),
    ] {
        assert_eq!(parse(text).map(|parsed| parsed.verb).unwrap_or(Verb::Other), verb, "{text}");
    }
}

#[test]
fn only_one_plain_statement_is_sent_or_pasted() {
    let good = |text: &str| plannable(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(good("select *\n  from t where a = $1;"), "select * from t where a = $1");
    assert_eq!(good("select 1 from t where a in ($1 /*, ... */)"), "select 1 from t where a in ($1 )");
    good("update \"Таблица\" set a = a + $1 where b = $2");
    good("select a at time zone $1 from t");
    assert_eq!(good("select now() - interval $1, (date $2)"), "select now() - $1::interval, ($2::date)");
    assert_eq!(
        good("select a from t where m.day=date $1+$2 and b>=timestamp $3"),
        "select a from t where m.day=$1::date+$2 and b>=$3::timestamp"
    );
    assert_eq!(
        good("select a from t where (at < timestamptz $1+$2*interval $3 or b)"),
        "select a from t where (at < $1::timestamptz+$2*$3::interval or b)"
    );
    assert_eq!(
        good("select a from t where at > timestamptz $2 limit $3"),
        "select a from t where at > $2::timestamptz limit $3"
    );
    for text in [
        "",
        ";",
        "select 1; drop table t",
        "select 1 -- first\n, drop_all()",
        "select /* a */ 1",
        "select $1, 'x'",
        "select E'\\'; drop table t; --'",
        "select 1 \\! rm x",
        "select $$x$$",
        "select $x$ from t",
        "select a$1 from t",
        "select \u{1b}[2J",
        "select \u{a0}1",
        "copy (select 1) to stdout",
        "create table x as select 1",
        "explain analyze delete from t",
        "select timestamp with time zone $1",
        "select 1 from t where ((((((((((((((((((((((((((((a = $1))))))))))))))))))))))))))))",
    ] {
        assert!(plannable(text).is_err(), "{text:?}");
    }
    assert_eq!(parameters("select $1, $12, $3"), 12);
    assert_eq!(names("select t.Evil(\"A\"\"b\") from T"), ["A\"b", "evil", "from", "select", "t"]);
}

#[test]
fn constants_are_hidden_and_the_rest_stays() {
    for (text, expected) in [
        ("select * from t1 where a = 'x''y' and b = 42", "select * from t1 where a = '***' and b = ?"),
        ("select $1, a$b$c$b$, \"na'me\" from t", "select $1, a$b$c$b$, \"na'me\" from t"),
        (
            "select E'a\\'b', $q$it's$q$, X'1f', U&'d\\0061t' , 1.5e3, .5",
            "select E'***', '***', X'***', U&'***' , ?, ?",
        ),
        ("select 1 -- a secret\n, 2 /* and /* another */ */", "select ?  \n, ?  "),
        (
            "alter role joe password 's3cret' valid until 'infinity'",
            "alter role joe password '***' valid until '***'",
        ),
        // Cut off in a constant, a comment, a name, a dollar quote.
        ("insert into t values ('abc", "insert into t values ('***"),
        ("select 1 /* abc", "select ?  ***"),
        ("select \"abc", "select ***"),
        ("select $a$ abc", "select ***"),
        // What a backslash means is not known.
        ("select 'a\\' or b = 'secret'", "select '***"),
        ("copy t from '/secret/path' with (format csv)", "copy t from '***' with (format csv)"),
        ("where a in ($1 /*, ... */)", "where a in ($1 /*, ... */)"),
    ] {
        assert_eq!(mask(text), expected, "{text}");
    }
}

#[test]
fn constants_become_parameters() {
    for (text, expected) in [
        ("SELECT * FROM t WHERE id = 7 AND name = 'x''y'", "SELECT * FROM t WHERE id = $1 AND name = $2"),
        ("select  1\n from t -- why\n where b = $2", "select $3 from t where b = $2"),
        ("select E'a\\'b', X'1f', U&'d', $q$it's$q$, 'x'::text", "select $1, $2, $3, $4, $5::text"),
        ("select * from t where at > interval '1 day'", "select * from t where at > interval $1"),
        (
            "select * from t where id in (1, 2,3) and b = 4",
            "select * from t where id in ($1 /*, ... */) and b = $2",
        ),
        ("select * from t where id in (1)", "select * from t where id in ($1)"),
        ("select * from t where id in ($1, $2) and b = 4", "select * from t where id in ($1, $2) and b = $3"),
        ("select * from t where id in (select f(1, 2))", "select * from t where id in (select f($1, $2))"),
        // Cut off: the rest is hidden.
        ("insert into t values (1, 'secr", "insert into t values ($1, '***"),
    ] {
        assert_eq!(parameterized(text), expected, "{text}");
    }
    let id = |text: &str| text_id(&parameterized(text));
    assert_eq!(id("select * from t where id in (1, 2)"), id("SELECT * from t where id in (3, 4, 5)"));
    assert_eq!(id("insert into t values (1, 'a')"), id("insert into t values (1, 'a'), (2, 'b')"));
    assert_ne!(id("select a from t where id = 1"), id("select b from t where id = 1"));
    assert!(plannable(&parameterized("select * from t where id in (1, 2) and a = 'x'")).is_ok());
}

#[test]
fn hostile_nesting_takes_bounded_time() {
    let begun = Instant::now();
    let deep = |open: &str, inner: &str, close: &str, times: usize| {
        format!("select * from {}{inner}{}", open.repeat(times), close.repeat(times))
    };
    let mut texts = vec![
        deep("(", "t", ")", 100_000),
        deep("(select * from (", "t", "))", 11),
        format!("select {}1{}", "(".repeat(DEPTH_MAX), ")".repeat(DEPTH_MAX)),
        format!("select {}1", "not ".repeat(3_000)),
        format!("select {}1", "- ".repeat(3_000)),
        format!("select a{}", "+a".repeat(1_900)),
        format!("select 1 from t where a{}", " and a".repeat(1_900)),
        format!("select {}", "case when a then ".repeat(900)),
        format!("select 1{}", " union select 1".repeat(1_000)),
        format!("select a{}", "[1".repeat(2_000)),
        format!("select {}x{}", "f(".repeat(DEPTH_MAX), ")".repeat(DEPTH_MAX)),
        format!("select a{}", "::int".repeat(1_300)),
        format!("{}select 1", "explain ".repeat(1_900)),
        format!("select {}", "exists (select ".repeat(DEPTH_MAX)),
    ];
    for open in ["(", "(select ", "((select 1) union ", "f(", "array[", "row(", "(t join "] {
        for depth in [6, 12, DEPTH_MAX] {
            texts.push(format!("select * from {}", open.repeat(depth)));
            texts.push(format!("select * from {}t", open.repeat(depth)));
            texts.push(deep(open, "t", ")", depth));
            texts.push(format!("select 1 from t where {}a", open.repeat(depth)));
        }
    }
    for text in &texts {
        let one = Instant::now();
        let _ = (parse(text), conditions(text), plannable(text), mask(text), names(text));
        assert!(one.elapsed() < Duration::from_secs(5), "{:?} for {:.80}", one.elapsed(), text);
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

/// Pieces of statements, among them all that opens or closes something.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("select ".to_string()),
        Just(" from t where ".to_string()),
        Just(" and ".to_string()),
        Just("'".to_string()),
        Just("''".to_string()),
        Just("\"".to_string()),
        Just("\\".to_string()),
        Just("E'".to_string()),
        Just("$a$".to_string()),
        Just("$$".to_string()),
        Just("$1".to_string()),
        Just("--".to_string()),
        Just("\n".to_string()),
        Just("/*".to_string()),
        Just("*/".to_string()),
        Just("(".to_string()),
        Just(")".to_string()),
        Just("é".to_string()),
        "[ -~]{0,6}",
    ]
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(pieces in proptest::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        let once = mask(&text);
        let _ = (parse(&text), conditions(&text), names(&text));
        if let Ok(plain) = plannable(&text) {
            prop_assert!(!plain.contains([';', '\'', '\\']) && !plain.contains("--") && !plain.contains("/*"));
        }
        prop_assert_eq!(mask(&once.clone()).matches("SECRET").count(), 0);
    }

    /// A literal stays hidden behind anything that leaves the lexer outside of a literal, and however the text is cut.
    #[test]
    fn no_literal_leaks(
        before in "[a-z =,()<>]{0,20}",
        secret in "[A-Z]{6}[a-z0-9 ;\"/*-]{0,8}",
        form in 0usize..7,
        after in "[a-z =,()']{0,20}",
        cut in 0usize..80,
    ) {
        let literal = match form {
            0 => format!("'{secret}'"),
            1 => format!("E'\\'{secret}'"),
            2 => format!("$t${secret}$t$"),
            3 => format!("'it''s {secret}'"),
            4 => format!("/* {secret} */"),
            5 => format!("N'{secret}'"),
            _ => format!("U&'{secret}'"),
        };
        let text = format!("{before} {literal} {after}");
        let end = (0..=cut.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        // A comment in the comment leaves its end open, and what follows is hidden as well.
        prop_assert!(!mask(&text).contains(&secret[..6]), "{}", mask(&text));
        prop_assert!(!mask(&text[..end]).contains(&secret[..6]));
        prop_assert!(!parameterized(&text).contains(&secret[..6]) && !parameterized(&text[..end]).contains(&secret[..6]));
        if let Err(error) = parse(&text) {
            prop_assert!(!error.to_string().contains(&secret[..6]));
        }
    }
}

#[test]
fn the_form_of_a_statement_shows_what_no_index_shortens() {
    let of = |text: &str| shape(text).expect("parses");
    let counted = of("select count(*) from visit");
    assert!(counted.counts_rows && counted.aggregates && !counted.is_limited);
    assert!(!of("select count(*) filter (where a) from visit").counts_rows);
    assert!(!of("select shop, count(*) from sale group by shop").counts_rows);
    assert_eq!(of("select max(s.At), min(\"Id\") as first from sale s").extremes, ["at", "Id"]);
    for other in ["max(at), sum(a)", "max(at + a)", "max(at) filter (where a > 1)", "shop, max(at)"] {
        let grouped = if other.starts_with("shop") { " group by shop" } else { "" };
        assert!(of(&format!("select {other} from sale{grouped}")).extremes.is_empty(), "{other}");
    }
    let next = "select coalesce(max(substr(no, $1)::int), $2) + $3 as next from receipt where shop = $4";
    assert_eq!(of(next).sought.as_deref(), Some("substr(no, $1)::int"));
    assert_eq!(of("select max(at) from sale").sought.as_deref(), Some("at"));
    for other in [
        "max(at) + shop",
        "coalesce(max(at), shop)",
        "max(at), min(at)",
        "max(at) filter (where a)",
        "sum(a)",
    ] {
        assert_eq!(of(&format!("select {other} from sale")).sought, None, "{other}");
    }
    assert_eq!(of("select shop, max(at) from sale group by shop").sought, None);
    assert_eq!(of("select count(distinct v.id), count(distinct l.id) from post p").distinct_counts, 2);
    assert!(of("select shop, count(*) from sale group by shop").aggregates);
    assert!(of("select id from question order by random() limit $1").is_in_random_order);
    assert!(!of("select id from question order by random()").is_in_random_order, "all rows are wanted");
    let order = |text: &str| of(text).ordered_by_function;
    assert_eq!(
        order("select id, cosine_distance(e.v, $1) as d from e order by d limit $2").as_deref(),
        Some("cosine_distance")
    );
    assert_eq!(order("select id from e order by app.Score(v) desc, id limit 5").as_deref(), Some("score"));
    for none in [
        "select id from e order by app.score(v)",
        "select id from e order by v limit 5",
        "select id from e order by now() limit 5",
        "select id from e order by f($1) limit 5",
        "select c, count(v) n from e group by c order by n desc limit 5",
    ] {
        assert_eq!(order(none), None, "{none}");
    }
    let newest = of(
        "select * from (select *, row_number() over (partition by sensor order by at desc) as n from r) x where n = $1",
    );
    assert_eq!(newest.numbering.as_deref(), Some("row_number"));
    assert_eq!(newest.numbered_by, ["sensor", "at DESC"]);
    let barrier = of("with valid as materialized (select * from contract) select id from valid where c = $1");
    assert_eq!(barrier.materialized, ["valid"]);
    assert!(of("with valid as (select 1) select * from valid").materialized.is_empty());
    let looked =
        of("select t.name, coalesce((select max(a) from deal d where d.t = t.id), $1) from trader t");
    assert_eq!((looked.looked_up, looked.aggregates), (vec!["deal".to_string()], false));
    assert_eq!(of("select count(distinct visitor) from hits").counted_distinct.as_deref(), Some("visitor"));
    assert!(of("select d.* from dossier d where id between $1 and $2").takes_all_columns);
    assert!(of("select * from news fetch first 5 rows only").is_limited);
    assert_eq!(of("select 1 from t where a = $1 and id in ($2, $3, $4)").list_length, 3);
    assert_eq!(of("update t set a = $1"), Shape::default());
}

#[test]
fn an_interval_has_a_column_below_and_a_column_above_the_value() {
    let of = |text: &str| {
        interval(text).expect("parses").map(|found| (found.low, found.high, found.is_around_one))
    };
    let around = |low: &str, high: &str| Some((low.to_string(), high.to_string(), true));
    assert_eq!(of("(geo.first_ip <= $1) AND ($1 <= geo.last_ip)"), around("first_ip", "last_ip"));
    assert_eq!(of("((a < $1) AND ((c = $2) AND (b >= $1)))"), around("a", "b"));
    assert_eq!(of("$1 BETWEEN a AND b"), around("a", "b"));
    assert_eq!(of("(now() >= valid_from) AND (now() < valid_until)"), around("valid_from", "valid_until"));
    let overlap = of("(starts_at < $2) AND (ends_at > $1)").expect("by their names");
    assert_eq!((overlap.0.as_str(), overlap.1.as_str(), overlap.2), ("starts_at", "ends_at", false));
    for none in [
        "(a >= $1) AND (a <= $2)",
        "(price <= $1) AND (weight >= $2)",
        "(a <= $1) AND (b <= $1)",
        "(a <= $1) OR (b >= $1)",
        "(a <= b) AND (b >= a)",
        "lower(a) <= $1 AND b >= $1",
        "a = $1",
    ] {
        assert_eq!(of(none), None, "{none}");
    }
    assert!(interval("(a <= ").is_err());
}

#[test]
fn sides_of_an_or_are_separate() {
    let columns = |text: &str| -> Vec<Vec<String>> {
        let sides = alternatives(text).expect("parses");
        sides.into_iter().map(|side| side.into_iter().map(|c| c.column).collect()).collect()
    };
    assert_eq!(columns("((m.mail = $1) OR (m.phone = $2))"), [["mail"], ["phone"]]);
    assert_eq!(columns("((a = 1) AND ((b = 2) OR ((c = 3) OR (d = 4))))"), [["b"], ["c"], ["d"]]);
    assert_eq!(columns("((a = 1) AND (b = 2))"), [[""; 0]; 0]);
}

#[test]
fn counts_that_ask_for_any_and_tables_that_are_only_joined_are_marked() {
    let shape = |text: &str| shape(text).expect("parses");
    assert!(shape("select count(*) > $1 as has from t where a = $2").asks_for_any);
    assert!(shape("select (count(1) <> 0) from t").asks_for_any);
    for text in [
        "select case when (select count(*) from t where a = $1) > $2 then $3 else $4 end",
        "select (select count(*) from t where a = u.a) > 0 as has, u.name from u",
        "select name from u where b = $1 and not ((select count(id) from t where a = u.a) = 0)",
    ] {
        assert_eq!(shape(text).asks_for_any, !text.contains("count(id)"), "{text}");
    }
    assert!(
        shape("select name from u where b = $1 and ((select count(*) from t where a = u.a) = 0)")
            .asks_for_any
    );
    assert!(!shape("select name from u where (select count(*) from t group by a limit 1) = 0").asks_for_any);
    assert!(!shape("select name from u where b = (select count(*) from t)").asks_for_any);
    assert!(!shape("select count(*) from t where a = $1").asks_for_any);
    assert!(!shape("select count(*) > 1 from t group by b").asks_for_any);
    assert!(!shape("select count(distinct a) > 1 from t").asks_for_any);
    let distinct =
        shape("select distinct c.id, c.name from customer c join purchase p on p.customer_id = c.id");
    assert!(distinct.is_distinct);
    assert_eq!(distinct.only_joined, ["p"]);
    let unknown = shape("select distinct id from customer c join purchase p on p.customer_id = c.id");
    assert!(unknown.is_distinct && unknown.only_joined.is_empty());
    assert!(!shape("select distinct on (a) a, b from t").is_distinct);
    let grouped = shape("select c.id from customer c join purchase p on p.customer_id = c.id group by c.id");
    assert!(grouped.is_distinct && grouped.is_grouped_alone && grouped.aggregates);
    for other in [
        "select a, count(*) from t group by a",
        "select a from t group by a having count(*) > 1",
        "select median(b) from t group by a",
        "select distinct a from t",
    ] {
        assert!(!shape(other).is_grouped_alone, "{other}");
    }
    assert_eq!(shape("select o.id, l.a from o join l on l.o = o.id").only_joined, [""; 0]);
}

#[test]
fn lists_of_one_parent_in_one_join_are_side_by_side() {
    let of = |text: &str| shape(text).expect("parses").side_by_side;
    assert_eq!(
        of(
            "SELECT r.*, i.\"Label\", c.body FROM \"Recipe\" r LEFT JOIN ingredient i ON r.\"Id\" = i.recipe LEFT JOIN comment c ON (c.recipe = \
                r.\"Id\") WHERE r.\"Id\" = $1"
        ),
        ["i", "c"]
    );
    // A chain, two parents of one row, and lists that are joined to each other.
    assert_eq!(of("select * from a join b on b.a = a.id join c on c.b = b.id"), [""; 0]);
    assert_eq!(of("select * from o join c on c.id = o.customer join p on p.id = o.product"), [""; 0]);
    assert_eq!(
        of("select * from o join l on l.o = o.id join s on s.o = o.id and s.line = l.number"),
        [""; 0]
    );
    assert_eq!(of("select * from o, l, s where l.o = o.id and s.o = o.id"), ["l", "s"]);
}

#[test]
fn lists_of_all_lengths_are_one_statement() {
    let of = |text: &str| without_lengths(text);
    let one = of("SELECT a FROM t WHERE id IN ($1,$2,$3) AND b = $4");
    assert!(one.is_some());
    assert_eq!(one, of("SELECT a FROM t WHERE id IN ($1, $2) AND b = $3"));
    // A text that was cut off in its list.
    assert_eq!(of("SELECT a FROM t WHERE id IN ($1,$2,$3"), of("SELECT a FROM t WHERE id IN ($1,$2,$33,$34"));
    assert_eq!(of("insert into t values ($1, $2), ($3, $4)"), of("insert into t values ($1, $2)"));
    assert_ne!(one, of("SELECT a FROM t2 WHERE id IN ($1,$2,$3) AND b = $4"));
    assert_ne!(one, of("SELECT a FROM t WHERE id IN ($1,$2,$3) AND c = $4"));
    assert_eq!(of("SELECT a FROM t1 WHERE id = $1 AND f($2, $3)"), None);
}

#[test]
fn a_text_and_its_entry_have_one_outline() {
    let sent = "select 'a'::text, null::float8 x, extract(epoch from now()) from t where k in ('b', 'c') and f(false) and n > -1; set local jit = off";
    let kept = [
        "select $1::text, $2::float8 x, extract($3 from now()) from t where k in ($4 /*, ... */) and f($5) and n > $6",
        "set local jit = $1",
    ];
    let all = outlines(sent);
    assert_eq!(kept.map(outlines).concat(), all);
    assert!(!all.contains(&outlines("select $1::text from t")[0]));
    assert_eq!(outlines("").len(), 0);
}
