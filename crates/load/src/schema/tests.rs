use super::*;
use std::collections::BTreeMap;

use crate::dataset::Table;
use crate::ycsb::Ycsb;
use data::ycsb::{Compressible, KeyOrder, Spec};

fn spec(seed: u64) -> Spec {
    Spec { seed, key_order: KeyOrder::Scattered, compressible: Compressible::NONE }
}

fn dataset() -> Dataset {
    Dataset {
        id: 1,
        name: "ycsb".into(),
        schema_name: "public".into(),
        format: FORMAT_VERSION,
        spec: spec(1),
        rows: 1000,
        partitions: 8,
        method: Method::Copy,
        chunk_rows: 100,
        loaded: false,
    }
}

fn tables() -> Vec<Table> {
    dataset::Dataset::tables(&Ycsb::new(1000, spec(1))).to_vec()
}

/// The check of the options against the dataset, for a YCSB table.
fn check_identity(dataset: &Dataset, requested: &(Ycsb, Options)) -> Result<(), LoadError> {
    super::check::check_identity(dataset, &BTreeMap::new(), &requested.0, &requested.1)
}

#[test]
fn every_difference_of_identity_is_refused_with_both_values() {
    let of = |rows: u64, spec: Spec| (Ycsb::new(rows, spec), Options::new());
    let by = |options: Options| (Ycsb::new(1000, spec(1)), options);
    let requested = of(1000, spec(1));
    assert!(check_identity(&dataset(), &requested).is_ok());
    assert!(check_identity(&dataset(), &by(Options { partitions: Some(8), ..Options::new() })).is_ok());
    let sequential = Spec { key_order: KeyOrder::Sequential, ..spec(1) };
    let compressible = Spec { compressible: Compressible::MAX, ..spec(1) };
    let cases = [
        (of(1000, spec(2)), "seed 1", "specifies 2", "--seed 1"),
        (of(2000, spec(1)), "rows 1000", "specifies 2000", "--rows 1000"),
        (of(1000, sequential), "key order scattered", "sequential", "--key-order scattered"),
        (of(1000, compressible), "compressibility 1.0", "6.0", "--compressible 1.0"),
        (
            by(Options { partitions: Some(4), ..Options::new() }),
            "partitions 8",
            "specifies 4",
            "--partitions 8",
        ),
        (
            by(Options { partitions: Some(1), ..Options::new() }),
            "partitions 8",
            "specifies 0",
            "--partitions 8",
        ),
        (
            by(Options { method: Some(Method::Freeze), ..Options::new() }),
            "method copy",
            "freeze",
            "--method copy",
        ),
    ];
    for (options, existing, wanted, flag) in cases {
        let error = check_identity(&dataset(), &options).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(existing) && message.contains(wanted), "{message}");
        let hint = error.hint().unwrap();
        assert!(hint.contains(flag) && hint.contains("--restart"), "{hint}");
    }
    let loaded = Dataset { loaded: true, ..dataset() };
    let again = check_identity(&loaded, &by(Options { method: Some(Method::Freeze), ..Options::new() }));
    assert!(again.unwrap_err().to_string().contains("method copy"), "finished data stays as it was loaded");
    let newer = Dataset { format: FORMAT_VERSION + 1, ..dataset() };
    assert!(check_identity(&newer, &requested).unwrap_err().to_string().contains("format 2"));
}

#[test]
fn two_differences_give_two_flags() {
    let error = check_identity(&dataset(), &(Ycsb::new(5, spec(9)), Options::new())).unwrap_err();
    assert!(error.hint().unwrap().contains("--seed 1 --rows 1000"));
}

#[test]
fn the_table_is_that_of_the_field_report() {
    let plain = create_sql(&Dataset { partitions: 0, ..dataset() }, &tables(), &Layout::default(), None);
    assert!(plain.starts_with(
        "create table \"public\".\"usertable\" (ycsb_key varchar(64) not null, field0 varchar(100), field1"
    ));
    assert!(plain.ends_with("field9 varchar(100));"), "{plain}");
    let layout = Layout { tablespaces: Some(vec!["fast".into(), "big".into()]), ..Layout::default() };
    let parts = create_sql(&Dataset { partitions: 3, ..dataset() }, &tables(), &layout, None);
    assert!(parts.contains("field9 varchar(100)) partition by hash (ycsb_key) tablespace \"fast\";"));
    let leaf = |remainder: u32, tablespace: &str| {
        format!(
            "create table \"public\".\"usertable_p{remainder}\" partition of \"public\".\"usertable\" \
             FOR VALUES WITH (modulus 3, remainder {remainder}) tablespace \"{tablespace}\";"
        )
    };
    assert!(parts.contains(&leaf(0, "fast")) && parts.contains(&leaf(1, "big")), "{parts}");
    assert!(parts.ends_with(&leaf(2, "fast")), "tablespaces come round again: {parts}");
    let unlogged = Layout { unlogged: true, ..Layout::default() };
    let plain = create_sql(&Dataset { partitions: 0, ..dataset() }, &tables(), &unlogged, None);
    assert!(plain.starts_with("create unlogged table "));
    let parts = create_sql(&Dataset { partitions: 2, ..dataset() }, &tables(), &unlogged, None);
    // The parent holds nothing, and PostgreSQL 18 has no unlogged partitioned tables.
    assert!(parts.starts_with("create table ") && parts.matches("create unlogged table ").count() == 2);
}

#[test]
fn an_engine_that_spreads_rows_is_given_the_column() {
    let spread = |name: &str| spread_of(engines::Engine::parse(name).unwrap());
    let sql = |tables: &[Table], partitions: u32, engine: &str| {
        let dataset = Dataset { partitions, schema_name: "o'k".into(), ..dataset() };
        create_sql(&dataset, tables, &Layout::default(), spread(engine))
    };
    // In a schema that the engine places as a whole the table is there already.
    let unless = " where not exists (select 1 from pg_catalog.pg_dist_partition where logicalrelid = \
                  pg_catalog.to_regclass('\"o''k\".\"usertable\"'));";
    let by_call = format!("select create_distributed_table('\"o''k\".\"usertable\"', 'ycsb_key'){unless}");
    assert!(sql(&tables(), 0, "citus").ends_with(&format!("field9 varchar(100));{by_call}")));
    assert!(sql(&tables(), 2, "citus").ends_with(&by_call), "once, for the partitioned table");
    let whole = [Table { placement: dataset::Placement::Whole, ..tables().remove(0) }];
    let copied = format!("select create_reference_table('\"o''k\".\"usertable\"'){unless}");
    assert!(sql(&whole, 0, "citus").ends_with(&copied));
    assert!(sql(&tables(), 0, "shardman").ends_with("varchar(100)) with (distributed_by = 'ycsb_key');"));
    let loose = [Table { fillfactor: Some(90), ..tables().remove(0) }];
    assert!(sql(&loose, 0, "shardman").ends_with(" with (fillfactor = 90, distributed_by = 'ycsb_key');"));
    for other in ["cockroach", "postgres", "mtm"] {
        assert!(sql(&tables(), 0, other).ends_with("field9 varchar(100));"), "{other}");
    }
}

#[test]
fn a_node_has_its_own_leaves_and_points_at_the_others() {
    let servers = std::collections::BTreeMap::from([(0, "n1".to_owned()), (2, "n3".to_owned())]);
    let layout = Layout { tablespaces: Some(vec!["a".into(), "b".into()]), ..Layout::default() };
    let dataset = Dataset { partitions: 6, ..dataset() };
    let sql = sharded::create_sql(&dataset, &tables(), &layout, &[0, 1, 2, 0, 1, 1], 1, &servers);
    let bound = |remainder: u32| format!("FOR VALUES WITH (modulus 6, remainder {remainder})");
    for (leaf, tablespace) in [(1, "a"), (4, "b"), (5, "a")] {
        let local = format!(
            "create table \"public\".\"usertable_p{leaf}\" partition of \"public\".\"usertable\" {} tablespace \"{tablespace}\";",
            bound(leaf)
        );
        assert!(sql.contains(&local), "{sql}");
    }
    assert!(sql.contains(&format!(
        "create foreign table \"public\".\"usertable_p2\" partition of \"public\".\"usertable\" {} server \"n3\" \
         options (schema_name 'public', table_name 'usertable_p2');",
        bound(2)
    )));
    assert_eq!(sql.matches("create foreign table").count(), 3);
    assert!(!sql.contains("primary key"), "a parent of foreign partitions can have none");
}

#[test]
fn a_layout_is_continued_as_it_was_begun() {
    let there = Layout { token: 5, nodes: vec!["n1".into(), "n2".into()], ..Layout::default() };
    let requested = Options::new();
    let check = |layout: &Layout, options: &Options, nodes| {
        super::check::check_layout(&dataset(), layout, options, Shape::Sharded, nodes)
    };
    assert!(check(&there, &requested, 2).is_ok());
    let refused = |layout: &Layout, options: &Options, nodes, message: &str, hint: &str| {
        let error = check(layout, options, nodes).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert!(error.hint().unwrap().contains(hint), "{:?}", error.hint());
    };
    refused(&there, &requested, 3, "has nodes 2 (n1, n2), but this load specifies 3", "--cluster");
    refused(&Layout::default(), &requested, 2, "has nodes 1, but this load specifies 2", "--cluster");
    let via = Options { via: Some(Via::Connect), ..requested.clone() };
    refused(&there, &via, 2, "has via owner, but this load specifies connect", "--via owner");
    let unlogged = Options { unlogged: true, ..requested.clone() };
    refused(&there, &unlogged, 2, "has tables logged, but this load specifies unlogged", "no --unlogged");
    let spread = Layout { tablespaces: Some(vec!["a".into(), "b".into()]), ..there.clone() };
    assert!(check(&spread, &requested, 2).is_ok(), "without an option, the tablespaces of the dataset count");
    let other = Options { tablespaces: vec!["b".into(), "a".into()], ..requested.clone() };
    refused(&spread, &other, 2, "has tablespaces a,b, but this load specifies b,a", "--tablespaces a,b");
    let none = Layout { tablespaces: Some(Vec::new()), ..there.clone() };
    refused(&none, &other, 2, "has tablespaces none, but this load specifies b,a", "no --tablespaces");
    assert!(check(&there, &other, 2).is_ok(), "an old ledger does not know its map");
}

#[test]
fn units_are_chunks_or_leaves() {
    let content = Ycsb::new(1000, spec(1));
    assert_eq!(chunk_count(&dataset(), &content), 10);
    assert_eq!(chunk_count(&Dataset { method: Method::Freeze, ..dataset() }, &content), 8);
    assert_eq!(chunk_count(&Dataset { method: Method::Freeze, partitions: 0, ..dataset() }, &content), 1);
    let four: Vec<Table> = tables().into_iter().cycle().take(4).collect();
    assert_eq!(Leaves::of_tables(&four, 0).count(), 4);
}
