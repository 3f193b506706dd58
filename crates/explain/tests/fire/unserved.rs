//! Conditions that no index serves, by each reason, and what only looks like them.

use super::plan::{node, statement};
use super::work::statement as unplanned;
use super::{Change, Co, Fires};
use crate::advice::{commands, of};
use crate::scene::Scene;
use record::finding::{Finding, Severity};
use serde_json::{Value, json};

/// An index of the table of orders, as the server defines it.
fn index(scene: &mut Scene, name: &str, columns: &str, definition: &str) {
    let keys = json!({"node": "n1", "relation": "public.orders", "index": name});
    let method = definition.split(' ').next().unwrap_or_default().to_string();
    let definition = format!("CREATE INDEX {name} ON public.orders USING {definition}");
    let partial = definition.contains(" WHERE ");
    scene.set(
        "plan_index",
        keys,
        json!({"columns": columns, "method": method, "valid": true, "partial": partial, "definition": definition}),
    );
}

const TYPES: &str = "customer integer; during tsrange; name text; tags text[]; net inet; state text; done boolean; used integer; allowed integer; day date";

/// A distance in a condition, beside a column of few values.
pub(crate) const DISTANCE: &str = "((o.state = $4) AND ((o.place <-> point($1, $2)) < $3))";

/// A range that is made of two columns, and overlaps another one.
pub(crate) const MADE_RANGE: &str = "(tstzrange(o.begins, o.ends) && tstzrange($1, $2))";

/// A text search in another configuration than that of the index: the plan has a parameter in its place.
pub(crate) fn searched_text(scene: &mut Scene) {
    let text = "select id from orders where to_tsvector($1, note) @@ to_tsquery($2) limit $3";
    statement(scene, text, json!({"calls": 100, "rows": 500, "shared_hit": 1_600_000}), json!({}));
    node(scene, 1, 0, "Limit", json!({"cost_total": 9_000.0}));
    let scan = json!({"relation": "public.orders", "alias": "orders", "filter": "(to_tsvector($1, orders.note) @@ to_tsquery($2))", "rows_planned": 200.0,
        "cost_total": 50_000.0, "table_rows": 1_000_000.0, "column_types": "note text"});
    node(scene, 2, 1, "Seq Scan", scan);
    index(scene, "orders_text", "", "gin (to_tsvector('***'::regconfig, note))");
}

/// Orders of some customers, each found by an index, of which a filter keeps few.
pub(crate) fn beside(scene: &mut Scene, filter: &str, more: Value) {
    let text = "select c.id from customer c join orders o on o.customer = c.id where c.kind = $1";
    statement(scene, text, json!({"calls": 1_000, "rows": 1_000, "shared_hit": 20_000_000}), json!({}));
    node(scene, 1, 0, "Nested Loop", json!({"cost_total": 50_000.0}));
    let outer = json!({"relation": "public.customer", "alias": "c", "rows_planned": 80.0, "cost_total": 20.0, "table_rows": 2_000.0});
    node(scene, 2, 1, "Seq Scan", outer);
    node(
        scene,
        3,
        1,
        "Index Scan",
        json!({"relation": "public.orders", "alias": "o", "index": "orders_customer", "condition": "(o.customer = c.id)",
            "filter": filter, "rows_planned": 2.0, "cost_total": 600.0, "table_rows": 1_000_000.0, "column_types": TYPES}),
    );
    node(scene, 3, 1, "Index Scan", more);
    index(scene, "orders_customer", "customer", "btree (customer)");
}

/// All orders but those with the most frequent state, which has this share of them, the first ones in an order.
fn differ(scene: &mut Scene, most: &str) {
    let text = "select id from orders where state <> $1 order by day limit $2";
    statement(scene, text, json!({"calls": 1_000, "rows": 10_000, "shared_hit": 20_000_000}), json!({}));
    node(scene, 1, 0, "Limit", json!({"cost_total": 9_000.0}));
    node(
        scene,
        2,
        1,
        "Sort",
        json!({"condition": "orders.day", "rows_planned": 500_000.0, "cost_total": 50_000.0}),
    );
    node(
        scene,
        3,
        2,
        "Seq Scan",
        json!({"relation": "public.orders", "alias": "orders", "filter": "(orders.state <> $1)", "rows_planned": 500_000.0, "cost_total": 40_000.0,
            "table_rows": 1_000_000.0, "column_types": TYPES, "column_most": format!("state {most}")}),
    );
}

/// The last order of each customer, by a subquery.
fn last(scene: &mut Scene, keys: &str) {
    last_by(
        scene,
        keys,
        "select c.name, (select o.name from orders o where o.customer = c.id order by o.day desc limit $1) from customer c where c.kind = $2",
    );
}

fn last_by(scene: &mut Scene, keys: &str, text: &str) {
    statement(scene, text, json!({"calls": 1_000, "rows": 20_000, "shared_hit": 30_000_000}), json!({}));
    let outer = json!({"relation": "public.customer", "alias": "c", "rows_planned": 20.0, "cost_total": 50_000.0, "table_rows": 2_000.0});
    node(scene, 1, 0, "Seq Scan", outer);
    node(scene, 2, 1, "Limit", json!({"subquery": true, "cost_total": 1_700.0, "rows_planned": 170.0}));
    node(scene, 3, 2, "Sort", json!({"condition": keys, "cost_total": 1_690.0, "rows_planned": 1_700.0}));
    node(
        scene,
        4,
        3,
        "Bitmap Heap Scan",
        json!({"relation": "public.orders", "alias": "o", "condition": "(o.customer = c.id)", "rows_planned": 1_700.0, "cost_total": 1_600.0,
            "table_rows": 1_000_000.0, "column_types": TYPES}),
    );
    node(
        scene,
        5,
        4,
        "Bitmap Index Scan",
        json!({"index": "orders_customer", "condition": "(o.customer = c.id)", "rows_planned": 1_700.0}),
    );
    index(scene, "orders_customer", "customer", "btree (customer)");
}

/// The same with the greatest value instead of an order.
fn greatest(scene: &mut Scene) {
    let text = "select c.name, (select max(o.day) from orders o where o.customer = c.id) from customer c where c.kind = $2";
    last_by(scene, "o.day DESC", text);
    node(scene, 2, 1, "Aggregate", json!({"subquery": true, "cost_total": 1_700.0, "rows_planned": 1.0}));
    node(scene, 4, 2, "Bitmap Heap Scan", json!({"rows_planned": 1_700.0}));
    node(scene, 3, 0, "Result", json!({"condition": ""}));
}

/// Joins of two tables without a plan, where nested loops are off or on.
fn unplanned_join(scene: &mut Scene, value: &str) {
    scene.fact(json!({"node": "n1"}), "setting", "enable_nestloop", value);
    let text = "select b.qty from bom b join part p on p.id = b.child where b.parent = $1";
    let figures = json!({"calls": 1_000, "total_ms": 30_000.0, "rows": 15_000, "shared_hit": 2_500_000});
    unplanned(scene, "9", text, figures);
}

const OVERLAP: &str = "(o.during && tsrange($1, $2))";

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("PLAN-88", Co, |scene| beside(scene, OVERLAP, json!({}))),
    ("PLAN-88", Co, |scene| beside(scene, "(o.net <<= $1)", json!({}))),
    ("PLAN-88", Co, |scene| beside(scene, DISTANCE, json!({"column_types": "place point"}))),
    ("PLAN-88", Co, searched_text),
    ("PLAN-88", Co, |scene| beside(scene, MADE_RANGE, json!({"column_types": "begins timestamptz"}))),
    ("PLAN-88", Co, |scene| beside(scene, "(o.tags @> $1)", json!({}))),
    ("PLAN-88", Co, |scene| beside(scene, "($1 = ANY (o.tags))", json!({}))),
    ("PLAN-88", Co, |scene| beside(scene, "(o.day <@ $1)", json!({}))),
    ("PLAN-88", Co, |scene| beside(scene, "(NOT o.done)", json!({}))),
    ("PLAN-88", Co, |scene| beside(scene, "(o.used < o.allowed)", json!({}))),
    ("PLAN-88", Co, |scene| beside(scene, "(o.day > $1)", json!({}))),
    ("PLAN-88", Co, |scene| beside(scene, "(lower(o.name) = $1)", json!({}))),
    ("PLAN-88", Co, |scene| beside(scene, "(o.name ~~ $1)", json!({}))),
    ("PLAN-88", Co, |scene| differ(scene, "0.9987")),
    ("PLAN-88", Co, |scene| beside(scene, "(o.state <> $1)", json!({"column_most": "state 0.9987"}))),
    ("PLAN-88", Co, |scene| last(scene, "o.day DESC")),
    ("PLAN-88", Co, greatest),
    ("PLAN-56", Co, |scene| unplanned_join(scene, "off")),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // An index is there, or most of what is read is wanted.
    ("PLAN-88", |scene| {
        beside(scene, OVERLAP, json!({}));
        index(scene, "orders_during", "during", "gist (during)");
    }),
    ("PLAN-88", |scene| beside(scene, OVERLAP, json!({"rows_planned": 500.0}))),
    ("PLAN-88", |scene| beside(scene, "(o.state <> $1)", json!({"column_most": "state 0.3000"}))),
    ("PLAN-88", |scene| {
        beside(scene, "(NOT o.done)", json!({}));
        index(scene, "orders_open", "customer", "btree (customer) WHERE (NOT done)");
    }),
    ("PLAN-88", |scene| {
        beside(scene, "(o.day > $1)", json!({}));
        index(scene, "orders_both", "customer; day", "btree (customer, day)");
    }),
    ("PLAN-88", |scene| {
        last(scene, "o.day DESC");
        index(scene, "orders_last", "customer; day", "btree (customer, day)");
    }),
    // An order by another table's column.
    ("PLAN-88", |scene| last(scene, "c.day DESC")),
    ("PLAN-56", |scene| unplanned_join(scene, "on")),
];

fn one(rule: &str, change: Change) -> Finding {
    let mut scene = Scene::healthy();
    change(&mut scene);
    of(&scene.explain(), rule).clone()
}

#[test]
fn the_reason_names_the_operator_and_the_kind_of_index() {
    let found = one("PLAN-88", |scene| beside(scene, OVERLAP, json!({})));
    assert!(
        found.claim.contains("&& on during (tsrange) is served by no B-tree, and no GiST index is on it"),
        "{}",
        found.claim
    );
    assert!(
        found.claim.contains("by index orders_customer, about 80 times for each execution"),
        "{}",
        found.claim
    );
    assert!(
        commands(&found).contains("USING gist (\"during\")")
            && commands(&found).contains("USING gist (\"customer\", \"during\")")
    );
    let network = one("PLAN-88", |scene| beside(scene, "(o.net <<= $1)", json!({})));
    assert!(commands(&network).contains("USING gist (\"net\" inet_ops)"), "{}", commands(&network));
    let day = one("PLAN-88", |scene| beside(scene, "(o.day <@ $1)", json!({})));
    assert!(day.remedy.text.contains("day >= lower end AND day < upper end"), "{}", day.remedy.text);
}

#[test]
fn all_parts_of_a_condition_are_looked_at_and_the_surest_is_claimed() {
    let found = one("PLAN-88", |scene| {
        beside(scene, "((o.used < o.allowed) AND (o.day > $1) AND (o.during && $2))", json!({}))
    });
    assert!(found.claim.contains("&& on during"), "{}", found.claim);
    let others: Vec<&String> = found.evidence.iter().filter(|one| one.starts_with("besides, ")).collect();
    assert_eq!(others.len(), 2, "{others:#?}");
}

#[test]
fn a_frequent_value_is_written_into_the_index_by_the_statistics() {
    let found = one("PLAN-88", |scene| differ(scene, "0.9987"));
    assert!(found.claim.contains("about 1,300 differ from it"), "{}", found.claim);
    let typed = commands(&found);
    assert!(
        typed.starts_with(
            "SELECT format('CREATE INDEX CONCURRENTLY ON public.orders (day) WHERE \"state\" <> %L;'"
        ),
        "{typed}"
    );
    // An index for it is there, but a parameter is no constant.
    let there = one("PLAN-88", |scene| {
        differ(scene, "0.9987");
        index(scene, "orders_open", "day", "btree (day) WHERE (state <> 'done'::text)");
    });
    assert!(
        there.claim.contains("index orders_open") && !commands(&there).contains("CREATE INDEX"),
        "{}",
        there.claim
    );
}

#[test]
fn the_first_row_of_each_has_an_index_in_its_order() {
    let found = one("PLAN-88", |scene| last(scene, "o.day DESC"));
    assert!(commands(&found).contains("ON public.orders (\"customer\", day DESC);"), "{}", commands(&found));
    assert!(commands(&one("PLAN-88", greatest)).contains("ON public.orders (\"customer\", day);"));
}

#[test]
fn what_an_aggregate_takes_is_low() {
    let found = one("PLAN-88", |scene| {
        beside(scene, OVERLAP, json!({}));
        node(scene, 1, 0, "Aggregate", json!({"cost_total": 50_001.0}));
        node(scene, 4, 1, "Nested Loop", json!({"cost_total": 50_000.0}));
        node(scene, 2, 4, "Seq Scan", json!({"above": 4}));
        node(scene, 3, 4, "Index Scan", json!({"above": 4}));
    });
    assert_eq!(found.severity, Severity::Low);
}

/// Trigrams of a column are there, the plan looks for them, and executions scan the table.
#[test]
fn a_pattern_too_short_for_its_trigrams_does_not_get_the_same_index_again() {
    let mut scene = Scene::healthy();
    super::search::pattern(&mut scene, "name ilike $1", "");
    super::search::scanned(&mut scene);
    node(
        &mut scene,
        1,
        0,
        "Bitmap Heap Scan",
        json!({"relation": "public.orders", "condition": "(orders.name ~~* $1)", "rows_planned": 1_250.0, "table_rows": 1_000_000.0}),
    );
    node(
        &mut scene,
        2,
        1,
        "Bitmap Index Scan",
        json!({"index": "orders_trgm", "condition": "(orders.name ~~* $1)", "rows_planned": 1_250.0}),
    );
    index(&mut scene, "orders_trgm", "name", "gin (name gin_trgm_ops)");
    let keys = json!({"node": "n1", "relation": "public.orders", "index": "orders_trgm"});
    scene.set("plan_index", keys, json!({"operator_classes": "gin_trgm_ops"}));
    let findings = scene.explain();
    let found = of(&findings, "PLAN-01");
    assert!(found.claim.contains("index orders_trgm has the trigrams of \"name\""), "{}", found.claim);
    assert!(!commands(found).contains("USING gin"), "{}", commands(found));
}

/// An index on what is computed with a constant that only the application knows.
#[test]
fn a_command_with_a_parameter_is_not_offered_for_typing() {
    let mut scene = Scene::healthy();
    super::plan::scan(
        &mut scene,
        "(to_tsvector($1, ((title || $2) || body)) @@ plainto_tsquery($3, $4))",
        "title text; body text",
    );
    let findings = scene.explain();
    let typed = commands(of(&findings, "PLAN-54"));
    let with_parameter = typed.lines().find(|line| line.contains("USING gin")).expect("an index");
    assert!(
        with_parameter.starts_with(
            "-- not to be typed as it is: put the constant of the application in the place of $2"
        ),
        "{typed}"
    );
}

/// The plan checks here what is computed of parameters alone, and the cursors fetch what is returned: it is sent when the values are known.
#[test]
fn a_condition_that_is_sent_later_is_one_for_an_index_of_the_other_server() {
    let found = one("EXT-06", |scene| {
        super::outside::foreign(scene, super::outside::ALL_ROWS, "(customers.phone = ($1 || $2))", 1);
        unplanned(scene, "62", "FETCH 100 FROM c1", json!({"calls": 90, "rows": 90, "total_ms": 20_000.0}));
    });
    assert!(found.claim.contains("the condition is sent (phone)"), "{}", found.claim);
    let typed = commands(&found);
    assert!(typed.contains("FROM public.customers WHERE (phone = ($1 || $2));"), "{typed}");
    assert!(typed.contains("in database db: is there one that begins with phone?"), "{typed}");
    assert!(typed.contains("CREATE INDEX CONCURRENTLY ON \"public\".\"customers\" (\"phone\");"), "{typed}");
}

/// Different values of each group are counted.
fn counted(scene: &mut Scene, types: &str) {
    let text = "select o.customer, count(distinct o.ref) from orders o where o.kind = $1 group by o.customer";
    statement(scene, text, json!({}), json!({}));
    node(scene, 1, 0, "Aggregate", json!({"condition": "o.customer", "cost_total": 50_000.0}));
    node(scene, 2, 1, "Sort", json!({"condition": "o.customer", "cost_total": 40_000.0}));
    let fields = json!({"relation": "public.orders", "alias": "o", "cost_total": 9_000.0, "table_rows": 1_000_000.0, "column_types": types});
    node(scene, 3, 2, "Seq Scan", fields);
}

#[test]
fn counting_different_numbers_in_groups_is_low_and_texts_are_not() {
    let numbers = one("PLAN-36", |scene| counted(scene, "ref integer"));
    assert_eq!(numbers.severity, Severity::Low);
    let texts = one("PLAN-36", |scene| counted(scene, "ref text"));
    assert!(texts.severity > Severity::Low);
    // From PostgreSQL 16 on the plan has the sort of the values.
    let by_plan = one("PLAN-36", |scene| {
        counted(scene, "ref integer");
        node(scene, 2, 1, "Sort", json!({"condition": "o.customer, o.ref"}));
    });
    assert!(by_plan.severity > Severity::Low);
}
