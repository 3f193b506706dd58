//! Statements that should be written in another way, indexes that nearly serve them, and what only looks like it.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires};
use crate::advice::of;
use crate::scene::Scene;
use record::finding::Severity;
use serde_json::{Value, json};

/// An index of a table, as the server defines it.
fn index(scene: &mut Scene, (relation, name): (&str, &str), columns: &str, definition: &str) {
    let keys = json!({"node": "n1", "relation": relation, "index": name});
    let method = definition.split(' ').next().unwrap_or_default();
    let fields = json!({"columns": columns, "method": method, "valid": true, "partial": definition.contains(" WHERE "),
        "definition": format!("CREATE INDEX {name} ON {relation} USING {definition}")});
    scene.set("plan_index", keys, fields);
}

/// Figures of tickets, each by a subquery: how each of them reads the table.
fn figures(scene: &mut Scene, readers: &[(&str, Value)]) {
    let columns: Vec<String> = (1..=readers.len())
        .map(|at| format!("(select count(*) from ticket where state = ${at}) as n{at}"))
        .collect();
    let text = format!("select {}", columns.join(", "));
    let counted = json!({"calls": 10, "rows": 10, "shared_hit": 300_000});
    statement(scene, &text, counted, json!({"cost_total": 48_000.0}));
    node(scene, 1, 0, "Result", json!({"cost_total": 48_000.0}));
    for (at, (kind, fields)) in readers.iter().enumerate() {
        let number = 2 + 2 * at as u64;
        node(scene, number, 1, "Aggregate", json!({"subquery": true, "cost_total": 15_900.0}));
        let table = json!({"relation": "public.ticket", "alias": "ticket", "table_rows": 400_000.0, "rows_planned": 50_000.0,
            "cost_total": 15_000.0, "filter": format!("(ticket.state = ${at})")});
        node(scene, number + 1, number, kind, table);
        let keys = json!({"node": "n1", "query_id": "9", "hash": "c0", "number": number + 1});
        scene.set("plan_node", keys, fields.clone());
    }
}

/// A sum over the rows of a shop, which lie all over a table.
fn sums(scene: &mut Scene, text: &str, blocks: u64, definition: &str) {
    let counted = json!({"calls": 100, "rows": 100, "shared_hit": blocks * 60, "shared_read": blocks * 40});
    statement(scene, text, counted, json!({"cost_total": 3_042.0}));
    node(scene, 1, 0, "Aggregate", json!({"cost_total": 3_042.0}));
    let condition = "(sale.shop = $1)";
    let table = json!({"relation": "public.sale", "alias": "sale", "condition": condition, "rows_planned": 831.0, "width_bytes": 12,
        "cost_total": 3_040.0, "table_rows": 2_500_000.0});
    node(scene, 2, 1, "Bitmap Heap Scan", table);
    node(
        scene,
        3,
        2,
        "Bitmap Index Scan",
        json!({"index": "sale_shop", "condition": condition, "rows_planned": 831.0, "cost_total": 10.0}),
    );
    index(scene, ("public.sale", "sale_shop"), "shop", definition);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.sale"});
    let columns = "amount numeric; day date; id bigint; pad text; shop integer";
    scene.set("plan_table", keys, json!({"columns": columns, "wide_columns": "pad text"}));
    // The tables of a plan are recorded one by one.
    let keys = json!({"node": "n1", "database": "db", "relation": "public.zone"});
    scene.set("plan_table", keys, json!({"columns": "id integer", "wide_columns": ""}));
}

const SUM: &str = "select sum(amount) from sale where shop = $1";
const BY_SHOP: &str = "btree (shop)";

/// Jobs that an UPDATE of their state moves, and the rows that their partitions count in a minute.
fn jobs(scene: &mut Scene, inserted: u64, deleted: u64, other: &str) {
    let text = "update job set state = $1 where id = $2";
    statement(scene, text, json!({"calls": 4_000, "rows": 4_000, "shared_hit": 60_000}), json!({}));
    for (relation, inserted, deleted) in [("public.job_open", 0, deleted), ("public.job_done", inserted, 0)] {
        let keys = json!({"node": "n1", "database": "db", "relation": relation});
        scene.set(
            "table",
            keys,
            json!({"partition_of": "public.job", "rows_inserted": inserted, "rows_deleted": deleted,
            "rows_updated": 1_000, "live_rows": 100_000, "bytes": 30_000_000}),
        );
    }
    if !other.is_empty() {
        let keys = json!({"node": "n1", "database": "db", "query_id": "8"});
        scene.event(1, record::event::QUERY, "", json!({"query_id": "8", "text": other}));
        scene.set(
            "statement",
            keys,
            json!({"calls": 4_000, "total_ms": 2_000.0, "rows": 4_000, "shared_hit": 20_000}),
        );
    }
}

/// A scan of members by a condition, beside an index.
fn compared(scene: &mut Scene, filter: &str, types: &str, columns: &str, definition: &str) {
    statement(scene, "select id from member where mail = $1", json!({}), json!({}));
    let scan = json!({"relation": "public.member", "alias": "member", "filter": filter, "table_rows": 1_000_000.0, "column_types": types,
        "column_collations": "mail en-x-icu"});
    node(scene, 1, 0, "Seq Scan", scan);
    index(scene, ("public.member", "member_key"), columns, definition);
}

/// A scan that filters by a column, and has this part of the cost of a join.
fn beside_join(scene: &mut Scene, filter: &str, cost: f64) {
    let text =
        "select distinct c.id, c.name from customer c join purchase p on p.customer = c.id where c.name = $1";
    statement(scene, text, json!({}), json!({"cost_total": 50_000.0}));
    node(scene, 1, 0, "Unique", json!({"cost_total": 50_000.0}));
    node(scene, 2, 1, "Nested Loop", json!({"cost_total": 49_000.0, "rows_planned": 5_000.0}));
    let scan = json!({"relation": "public.customer", "alias": "c", "filter": filter, "table_rows": 60_000.0, "rows_planned": 300.0,
        "cost_total": cost, "column_types": "name text"});
    node(scene, 3, 2, "Seq Scan", scan);
    let inner = json!({"relation": "public.purchase", "alias": "p", "index": "purchase_customer", "condition": "(p.customer = c.id)",
        "rows_planned": 20.0, "cost_total": 75.0, "table_rows": 1_200_000.0});
    node(scene, 4, 2, "Index Scan", inner);
    index(scene, ("public.customer", "customer_name"), "name", "btree (name)");
}

/// The first members in an order, beside an index.
fn in_order(scene: &mut Scene, key: &str, definition: &str) {
    let text = "select id from member order by nick limit $1";
    statement(scene, text, json!({"calls": 100, "rows": 2_000, "shared_hit": 700_000}), json!({}));
    node(scene, 1, 0, "Limit", json!({"cost_total": 49_000.0, "rows_planned": 20.0}));
    node(scene, 2, 1, "Sort", json!({"condition": key, "cost_total": 49_900.0, "rows_planned": 1_000_000.0}));
    let scan = json!({"relation": "public.member", "alias": "member", "table_rows": 1_000_000.0, "rows_planned": 1_000_000.0,
        "cost_total": 40_000.0});
    node(scene, 3, 2, "Seq Scan", scan);
    index(scene, ("public.member", "member_nick"), "nick", definition);
    let keys = json!({"node": "n1", "relation": "public.member", "index": "member_nick"});
    scene.set("plan_index", keys, json!({"collations": "en-x-icu"}));
}

/// The price of a product at a time, by an index of the times alone.
fn as_of(scene: &mut Scene, definition: &str) {
    let text = "select price from price where product = $1 and since <= $2 order by since desc limit $3";
    statement(scene, text, json!({"calls": 1_000, "rows": 1_000, "shared_hit": 2_000_000}), json!({}));
    node(scene, 1, 0, "Limit", json!({"cost_total": 200.0}));
    let walk = json!({"relation": "public.price", "alias": "price", "index": "price_since", "condition": "(price.since <= $2)",
        "filter": "(price.product = $1)", "rows_planned": 300.0, "table_rows": 1_500_000.0, "cost_total": 58_000.0});
    node(scene, 2, 1, "Index Scan", walk);
    index(scene, ("public.price", "price_since"), "since", "btree (since)");
    index(scene, ("public.price", "price_now"), "product; since", definition);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.price"});
    scene.set(
        "table",
        keys,
        json!({"index_rows": 12_000_000, "index_scans": 6_000, "seq_scans": 0, "live_rows": 1_500_000,
        "bytes": 200_000_000}),
    );
}

/// Documents by the members of a list, beside an index of the column.
fn members(scene: &mut Scene, kind: &str, class: &str, definition: &str) {
    let text = "select id from doc where tags @> $1";
    statement(scene, text, json!({"calls": 100, "rows": 1_000, "shared_hit": 1_100_000}), json!({}));
    let scan = json!({"relation": "public.doc", "alias": "doc", "filter": "(doc.tags @> $1)", "table_rows": 300_000.0, "rows_planned": 10.0,
        "cost_total": 49_000.0, "column_types": format!("tags {kind}")});
    node(scene, 1, 0, "Seq Scan", scan);
    index(scene, ("public.doc", "doc_tags"), "tags", definition);
    let keys = json!({"node": "n1", "relation": "public.doc", "index": "doc_tags"});
    scene.set("plan_index", keys, json!({"operator_classes": class}));
    scene.fact(json!({"node": "n1"}), "extension", "intarray", "1.5");
}

fn whole() -> (&'static str, Value) {
    ("Seq Scan", json!({}))
}

fn by_team(at: u64, parameter: u64) -> (&'static str, Value) {
    let condition = format!("(ticket_{at}.team = ${parameter})");
    ("Index Scan", json!({"index": "ticket_team", "condition": condition, "alias": format!("ticket_{at}")}))
}

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("PLAN-97", Co, |scene| figures(scene, &[whole(), whole(), whole()])),
    ("PLAN-97", Co, |scene| figures(scene, &[by_team(1, 1), by_team(2, 1), by_team(3, 1)])),
    ("PLAN-98", Co, |scene| sums(scene, SUM, 880, BY_SHOP)),
    ("PLAN-99", Counter, |scene| jobs(scene, 24_000, 24_000, "")),
    ("PLAN-11", Co, |scene| {
        compared(scene, "(member.mail = $1)", "mail text", "mail", "btree (mail COLLATE \"C\")")
    }),
    ("PLAN-11", Co, |scene| {
        compared(scene, "(member.mail = $1 COLLATE \"C\")", "mail text", "mail", "btree (mail)")
    }),
    ("PLAN-11", Co, |scene| {
        compared(scene, "((member.k >= $1) AND (member.k <= $2))", "k integer", "k", "hash (k)");
    }),
    ("PLAN-11", Co, |scene| {
        compared(scene, "(member.mail > $1)", "mail text", "mail", "btree (mail text_pattern_ops)");
        let keys = json!({"node": "n1", "relation": "public.member", "index": "member_key"});
        scene.set("plan_index", keys, json!({"operator_classes": "text_pattern_ops"}));
    }),
    ("PLAN-11", Co, |scene| beside_join(scene, "(lower(c.name) = $1)", 30_000.0)),
    ("PLAN-88", Co, |scene| members(scene, "integer[]", "array_ops", "gin (tags)")),
    ("PLAN-54", Co, |scene| members(scene, "text[]", "array_ops", "btree (tags)")),
    ("PLAN-88", Co, |scene| in_order(scene, "member.nick COLLATE \"C\"", "btree (nick)")),
    ("PLAN-27", Co, |scene| as_of(scene, "btree (product, since DESC) WHERE is_now")),
    ("PLAN-52", Counter, |scene| {
        let text = "select c.id, c.name from customer c join purchase p on p.customer = c.id where c.region = $1 group by c.id, c.name";
        statement(scene, text, json!({"rows": 1_000}), json!({}));
        node(scene, 1, 0, "Group", json!({"rows_planned": 1_200.0}));
        node(scene, 2, 1, "Nested Loop", json!({"rows_planned": 24_000.0}));
    }),
];

/// What only looks like the conditions of these rules.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // Two figures; and rare values, each of which an index would find.
    ("PLAN-97", |scene| figures(scene, &[whole(), whole()])),
    // Each may have a value of its own.
    ("PLAN-97", |scene| figures(scene, &[by_team(1, 1), by_team(2, 2), by_team(3, 3)])),
    ("PLAN-97", |scene| {
        let rare = || ("Seq Scan", json!({"rows_planned": 40.0}));
        figures(scene, &[rare(), rare(), rare()]);
    }),
    // Other tables, other groups, and figures that cost little beside the rest.
    ("PLAN-97", |scene| {
        let of = |relation: &str| ("Seq Scan", json!({"relation": relation}));
        figures(scene, &[of("public.ticket_1"), of("public.ticket_2"), of("public.ticket_3")]);
    }),
    ("PLAN-97", |scene| {
        figures(scene, &[whole(), whole(), whole()]);
        let keys = json!({"node": "n1", "query_id": "9", "hash": "c0"});
        scene.set("plan", keys, json!({"cost_total": 500_000.0}));
    }),
    ("PLAN-97", |scene| {
        figures(scene, &[whole(), whole(), whole()]);
        for (number, key) in [(2, "ticket.team"), (4, "ticket.state"), (6, "ticket.prio")] {
            let keys = json!({"node": "n1", "query_id": "9", "hash": "c0", "number": number});
            scene.set("plan_node", keys, json!({"condition": key}));
        }
    }),
    // Each index search finds other rows, and few.
    ("PLAN-97", |scene| {
        let of = |column: &str| {
            ("Index Scan", json!({"index": "t", "condition": format!("(ticket.{column} = $1)")}))
        };
        figures(scene, &[of("team"), of("state"), of("prio")]);
        let keys = json!({"node": "n1", "database": "db", "relation": "public.ticket"});
        scene.set("table", keys, json!({"bytes": 900_000_000, "live_rows": 400_000}));
    }),
    // The index holds all; the rows lie together; all columns are wanted, or a large one.
    ("PLAN-98", |scene| sums(scene, SUM, 880, "btree (shop) INCLUDE (amount)")),
    ("PLAN-98", |scene| sums(scene, SUM, 90, BY_SHOP)),
    ("PLAN-98", |scene| sums(scene, "select * from sale where shop = $1", 880, BY_SHOP)),
    ("PLAN-98", |scene| sums(scene, "select max(pad) from sale where shop = $1", 880, BY_SHOP)),
    // They are few.
    ("PLAN-98", |scene| {
        sums(scene, SUM, 80, BY_SHOP);
        for number in [2, 3] {
            let keys = json!({"node": "n1", "query_id": "9", "hash": "c0", "number": number});
            scene.set("plan_node", keys, json!({"rows_planned": 75.0}));
        }
    }),
    // Updates in place, and rows that other statements insert or delete.
    ("PLAN-99", |scene| jobs(scene, 0, 0, "")),
    ("PLAN-99", |scene| jobs(scene, 24_000, 0, "")),
    ("PLAN-99", |scene| jobs(scene, 24_000, 24_000, "delete from job where id = $1")),
    ("PLAN-99", |scene| jobs(scene, 24_000, 24_000, "insert into job (id, state) values ($1, $2)")),
    // The same collation on both sides; equal values in a hash index.
    ("PLAN-11", |scene| compared(scene, "(member.mail = $1)", "mail text", "mail", "btree (mail)")),
    ("PLAN-11", |scene| {
        compared(
            scene,
            "(member.mail = $1 COLLATE \"C\")",
            "mail text",
            "mail",
            "btree (mail COLLATE \"C\")",
        );
    }),
    ("PLAN-11", |scene| {
        compared(scene, "(member.mail = $1 COLLATE \"en-x-icu\")", "mail text", "mail", "btree (mail)");
    }),
    ("PLAN-11", |scene| compared(scene, "(member.k = $1)", "k integer", "k", "hash (k)")),
    // One reason is enough.
    ("PLAN-10", |scene| {
        compared(scene, "((member.k >= $1) AND (member.k <= $2))", "k integer", "k", "hash (k)");
    }),
    // The scan is a small part of what the statement costs.
    ("PLAN-11", |scene| beside_join(scene, "(lower(c.name) = $1)", 1_700.0)),
    ("PLAN-10", |scene| beside_join(scene, "(c.region = $1)", 1_700.0)),
    ("PLAN-88", |scene| in_order(scene, "member.nick", "btree (nick)")),
    ("PLAN-88", |scene| members(scene, "integer[]", "gin__int_ops", "gin (tags gin__int_ops)")),
    ("PLAN-88", |scene| members(scene, "text[]", "array_ops", "gin (tags)")),
];

/// The end of the first claim of a rule about a scene.
fn claim(rule: &str, change: impl Fn(&mut Scene)) -> String {
    let mut scene = Scene::healthy();
    change(&mut scene);
    of(&scene.explain(), rule).claim.clone()
}

#[test]
fn the_index_that_nearly_serves_is_named_with_its_reason() {
    let collated = claim("PLAN-11", |scene| {
        compared(scene, "(member.mail = $1)", "mail text", "mail", "btree (mail COLLATE \"C\")");
    });
    assert!(
        collated.contains("member_key has mail in the order of collation C")
            && collated.contains("by en-x-icu"),
        "{collated}"
    );
    let hashed = claim("PLAN-11", |scene| {
        compared(scene, "((member.k >= $1) AND (member.k <= $2))", "k integer", "k", "hash (k)");
    });
    assert!(hashed.contains("is a hash index, which has no order"), "{hashed}");
    let ordered = claim("PLAN-88", |scene| in_order(scene, "member.nick COLLATE \"C\"", "btree (nick)"));
    assert!(ordered.contains("index member_nick has it by collation en-x-icu"), "{ordered}");
    let integers = claim("PLAN-88", |scene| members(scene, "integer[]", "array_ops", "gin (tags)"));
    assert!(integers.contains("the operator of the extension intarray"), "{integers}");
    let tree = claim("PLAN-54", |scene| members(scene, "text[]", "array_ops", "btree (tags)"));
    assert!(tree.contains("index doc_tags is a B-tree"), "{tree}");
    let partial = claim("PLAN-27", |scene| as_of(scene, "btree (product, since DESC) WHERE is_now"));
    assert!(partial.contains("index price_now has them, but holds only the rows WHERE is_now"), "{partial}");
}

#[test]
fn columns_that_change_or_lie_in_the_cache_make_a_wider_index_a_small_matter() {
    let severity = |change: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::healthy();
        sums(&mut scene, SUM, 880, BY_SHOP);
        change(&mut scene);
        of(&scene.explain(), "PLAN-98").severity
    };
    assert!(severity(&|_| {}) >= Severity::Medium);
    let counted = json!({"node": "n1", "database": "db", "query_id": "9"});
    assert_eq!(
        severity(&|scene| {
            scene.set("statement", counted.clone(), json!({"shared_hit": 88_000, "shared_read": 0}));
        }),
        Severity::Low
    );
    assert_eq!(
        severity(&|scene| {
            let keys = json!({"node": "n1", "database": "db", "query_id": "8"});
            let text = "update sale set amount = $1 where id = $2";
            scene.event(1, record::event::QUERY, "", json!({"query_id": "8", "text": text}));
            scene.set(
                "statement",
                keys,
                json!({"calls": 900, "total_ms": 2_000.0, "rows": 900, "shared_hit": 9_000}),
            );
        }),
        Severity::Low
    );
}

/// The plan expects a tenth of the rows, and executions read little beside them.
#[test]
fn a_wrong_estimate_that_harms_nothing_is_low() {
    let severity = |blocks: u64| {
        let mut scene = Scene::healthy();
        let counted = json!({"calls": 10, "rows": 500_000, "shared_hit": blocks * 10});
        statement(&mut scene, "select * from t where a = $1", counted, json!({"rows_planned": 5.0}));
        node(&mut scene, 1, 0, "Index Scan", json!({"relation": "public.t", "condition": "(a = $1)"}));
        of(&scene.explain(), "PLAN-12").severity
    };
    assert_eq!(severity(20_000), Severity::Low);
    assert!(severity(700_000) >= Severity::Medium);
}
