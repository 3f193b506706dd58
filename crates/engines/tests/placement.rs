//! Placement of native partitions on every PostgreSQL found: what the catalog says, what the client computes, and what the server answers.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod cluster;

use std::fmt::Debug;

use connect::cluster_file::Role;
use connect::conninfo::Sources;
use connect::control::{self, Control};
use engines::cluster::Cluster;
use engines::engine::Engine;
use engines::hash::Key;
use engines::placement::{Placement, PlacementError, Routing};
use lab::local::Installation;
use lab::throwaway::{StopMode, Throwaway, ThrowawayCluster, installations};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use testing::on_each;

/// Values per type.
const CASES: usize = 200;

/// A server, its cluster of one, and a session.
struct Alone {
    server: Throwaway,
    cluster: Cluster,
    control: Control,
}

impl Alone {
    fn start(installation: &Installation) -> Alone {
        let server = Throwaway::start(installation, &[]).unwrap();
        let cluster = Cluster::single(server.spec());
        let control = control::connect(&server.spec()).unwrap();
        Alone { server, cluster, control }
    }

    fn run(&mut self, sql: &str) {
        self.control.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    fn read(&mut self, table: &str) -> Result<Placement, PlacementError> {
        Placement::read(&self.cluster, &mut *self.control, 0, "public", table)
    }

    /// Makes `table` with hash partitions of these moduli and remainders.
    fn partitioned(&mut self, table: &str, columns: &str, key: &str, bounds: &[(u32, u32)]) {
        self.run(&format!("create table {table} ({columns}) partition by hash ({key})"));
        for (modulus, remainder) in bounds {
            self.run(&format!(
                "create table {table}_{modulus}_{remainder} partition of {table} for values with (modulus {modulus}, remainder {remainder})"
            ));
        }
    }
}

fn sixteen() -> Vec<(u32, u32)> {
    (0..16).map(|remainder| (16, remainder)).collect()
}

fn values<T: Debug + 'static>(strategy: impl Strategy<Value = T> + 'static) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    std::iter::repeat_with(|| strategy.new_tree(&mut runner).expect("values are made").current())
        .take(CASES)
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Partitions a table by one column and compares the client's leaf of each value with the server's, and with where an inserted row goes.
fn compare<'a>(alone: &mut Alone, sql_type: &str, values: impl IntoIterator<Item = (String, Key<'a>)>) {
    alone.run("drop table if exists t");
    alone.partitioned("t", &format!("k {sql_type}, n int"), "k", &sixteen());
    let placement = alone.read("t").unwrap();
    assert!(matches!(placement.routing(), Routing::Client { .. }), "{sql_type}: {}", placement.routing());
    let mut keys = vec![vec![None]];
    let mut ours = vec![placement.leaf_of(&[None]).unwrap()];
    for (text, key) in values {
        ours.push(placement.leaf_of(&[Some(key)]).unwrap_or_else(|| panic!("{sql_type}: {key:?}")));
        keys.push(vec![Some(text)]);
    }
    placement
        .compare(&mut *alone.control, &keys, &ours)
        .unwrap_or_else(|error| panic!("{sql_type}: {error}"));
    // The rows themselves, once: the constraint that was asked is the one that is kept.
    for (number, (key, leaf)) in keys.iter().zip(&ours).enumerate().take(20) {
        let leaf = &placement.leaves()[*leaf].name;
        let value =
            key[0].as_ref().map_or("null".to_owned(), |text| format!("'{}'", text.replace('\'', "''")));
        alone.run(&format!("insert into {leaf} values ({value}, {number})"));
    }
}

#[test]
fn every_type_that_the_client_hashes_goes_where_the_server_puts_it() {
    on_each(&installations(), |installation| {
        let mut alone = Alone::start(installation);
        let mut text = values(prop_oneof!["[^\\x00]{0,40}", "user[0-9]{18}", "[ a]{0,9}"]);
        // What engines.md calls known answers, and text that needs care inside a string constant.
        text.extend(["", "a", "ключ-éü€", "it's \\' a \\", "x  "].map(str::to_owned));
        let texts = || text.iter().map(|text| (text.clone(), Key::Text(text.as_bytes())));
        compare(&mut alone, "text", texts());
        compare(&mut alone, "varchar(64)", texts());
        alone.run("create domain word as varchar(64) check (value is not null or true)");
        compare(&mut alone, "word", texts());
        compare(&mut alone, "char(50)", text.iter().map(|text| (text.clone(), Key::Bpchar(text.as_bytes()))));
        compare(&mut alone, "boolean", [true, false].map(|value| (value.to_string(), Key::Bool(value))));
        // The text form of "char" is its byte when that is ASCII.
        compare(
            &mut alone,
            "\"char\"",
            (1..=127i8).map(|byte| (char::from(byte as u8).to_string(), Key::Char(byte))),
        );
        let whole = || values(prop_oneof![any::<i64>(), -3i64..3, Just(i64::MIN), Just(i64::MAX)]);
        compare(
            &mut alone,
            "smallint",
            whole().into_iter().map(|v| v as i16).map(|v| (v.to_string(), Key::Int2(v))),
        );
        compare(
            &mut alone,
            "integer",
            whole().into_iter().map(|v| v as i32).map(|v| (v.to_string(), Key::Int4(v))),
        );
        compare(&mut alone, "bigint", whole().into_iter().map(|v| (v.to_string(), Key::Int8(v))));
        compare(
            &mut alone,
            "oid",
            whole().into_iter().map(|v| v as u32).map(|v| (v.to_string(), Key::Oid(v))),
        );
        // Years 1 to 5881 or so, as numbers that the server turns into dates.
        let days = values(-700_000i32..1_400_000);
        let dates: Vec<_> = days
            .iter()
            .map(|day| (shown(&mut alone, &format!("date '2000-01-01' + ({day})")), Key::Date(*day)))
            .collect();
        compare(&mut alone, "date", dates);
        let instants: Vec<i64> = values(-60_000_000_000_000_000i64..120_000_000_000_000_000);
        let stamps: Vec<_> = instants
            .iter()
            .map(|us| {
                let interval = format!(
                    "{} * interval '1 second' + {} * interval '1 microsecond'",
                    us / 1_000_000,
                    us % 1_000_000
                );
                (shown(&mut alone, &format!("timestamp '2000-01-01' + {interval}")), Key::Timestamp(*us))
            })
            .collect();
        compare(&mut alone, "timestamp", stamps.clone());
        alone.run("set timezone = 'UTC'");
        compare(&mut alone, "timestamptz", stamps);
        let times: Vec<_> = values(0i64..86_400_000_000)
            .into_iter()
            .map(|us| {
                let text = format!(
                    "{:02}:{:02}:{:02}.{:06}",
                    us / 3_600_000_000,
                    us / 60_000_000 % 60,
                    us / 1_000_000 % 60,
                    us % 1_000_000
                );
                (text, Key::Time(us))
            })
            .collect();
        compare(&mut alone, "time", times);
        let uuids = values(any::<[u8; 16]>());
        compare(&mut alone, "uuid", uuids.iter().map(|uuid| (hex(uuid), Key::Uuid(*uuid))));
        let bytes = values(prop::collection::vec(any::<u8>(), 0..40));
        compare(
            &mut alone,
            "bytea",
            bytes.iter().map(|bytes| (format!("\\x{}", hex(bytes)), Key::Bytea(bytes))),
        );
        let mut doubles = values(any::<f64>());
        doubles.extend([0.0, -0.0, 1.5, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
        let shown = |value: f64| {
            if value.is_infinite() {
                if value > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() }
            } else {
                format!("{value:e}")
            }
        };
        compare(&mut alone, "double precision", doubles.iter().map(|v| (shown(*v), Key::Float8(*v))));
        let mut singles = values(prop::num::f32::NORMAL);
        singles.extend([0.0, -0.0, 0.1, f32::NAN]);
        compare(&mut alone, "real", singles.iter().map(|v| (format!("{v:e}"), Key::Float4(*v))));
    });
}

fn shown(alone: &mut Alone, expression: &str) -> String {
    alone.control.query_one(&format!("select ({expression})::text"), &[]).unwrap().get(0)
}

/// A key as text finds the same leaf as the key itself, and no leaf when the text is none of the type's.
#[test]
fn keys_are_read_from_text() {
    on_each(&installations(), |installation| {
        let mut alone = Alone::start(installation);
        alone.partitioned("i", "k int8", "k", &sixteen());
        let placement = alone.read("i").unwrap();
        for value in [0, 1, -1, 42, 4_294_967_296, i64::MAX, i64::MIN] {
            assert_eq!(
                placement.leaf_of_text(value.to_string().as_bytes()),
                placement.leaf_of(&[Some(Key::Int8(value))]),
            );
        }
        // engines.md 2.1: "mod 16" of the known answers.
        for (text, remainder) in
            [("0", 0), ("1", 8), ("-1", 5), ("42", 2), ("4294967296", 8), ("9223372036854775807", 6)]
        {
            assert_eq!(placement.leaf_of_text(text.as_bytes()), Some(remainder), "{text}");
        }
        for wrong in ["", "x", "9223372036854775808", "1.0"] {
            assert_eq!(placement.leaf_of_text(wrong.as_bytes()), None, "{wrong}");
        }
        // A value of another type has another hash, or none that is known.
        assert_eq!(placement.leaf_of(&[Some(Key::Text(b"1"))]), None);
        assert_eq!(placement.leaf_of(&[Some(Key::Int8(1)), None]), None);
        placement.self_test(&mut *alone.control, &["1", "2", "3"]).unwrap();
        let error = placement.self_test(&mut *alone.control, &["x"]).unwrap_err();
        assert!(matches!(error, PlacementError::NothingToTest { .. }), "{error}");

        alone.partitioned("u", "k uuid", "k", &sixteen());
        let placement = alone.read("u").unwrap();
        let uuid = "00112233-4455-6677-8899-aabbccddeeff";
        placement.self_test(&mut *alone.control, &[uuid]).unwrap();
        assert_eq!(placement.leaf_of_text(uuid.replace('-', "").as_bytes()), None);
    });
}

#[test]
fn moduli_may_differ_and_keys_may_have_many_columns() {
    on_each(&installations(), |installation| {
        let mut alone = Alone::start(installation);
        // A table of two partitions, one of which was split in two, and one of those in three.
        let split = [(2, 1), (4, 0), (12, 2), (12, 6), (12, 10)];
        alone.partitioned("t", "a int4, b text, c uuid", "a, b, c", &split);
        let placement = alone.read("t").unwrap();
        let names: Vec<&str> = placement.leaves().iter().map(|leaf| leaf.name.as_str()).collect();
        assert_eq!(names, ["t_4_0", "t_2_1", "t_12_2", "t_12_6", "t_12_10"]);
        let rows = values((any::<i32>(), "[^\\x00]{0,20}", any::<[u8; 16]>(), 0u8..8));
        let (mut keys, mut ours) = (Vec::new(), Vec::new());
        for (a, b, c, nulls) in &rows {
            let key = [
                (nulls & 1 == 0).then_some(Key::Int4(*a)),
                (nulls & 2 == 0).then_some(Key::Text(b.as_bytes())),
                (nulls & 4 == 0).then_some(Key::Uuid(*c)),
            ];
            ours.push(placement.leaf_of(&key).unwrap());
            let texts = [a.to_string(), b.clone(), hex(c)];
            keys.push(key.iter().zip(texts).map(|(key, text)| key.map(|_| text)).collect());
        }
        placement.compare(&mut *alone.control, &keys, &ours).unwrap();
        for (leaf, name) in names.iter().enumerate() {
            assert!(ours.contains(&leaf), "no key went to {name}");
        }
        assert_eq!(placement.leaf_of_text(b"1"), None, "a key of three columns is no text");
        assert!(!placement.routes_by_partition_hash());

        // One remainder without a partition: its rows would be refused.
        alone.run("drop table t_12_6");
        let error = alone.read("t").unwrap_err();
        assert_eq!(
            error.to_string(),
            "t has no partition for 1 of 12 remainders: rows with such keys would be refused"
        );
        assert!(error.hint().unwrap().contains("attached again"));
    });
}

#[test]
fn what_the_client_must_not_hash_is_asked_from_the_server() {
    on_each(&installations(), |installation| {
        let mut alone = Alone::start(installation);
        alone.run("create type mood as enum ('sad', 'glad')");
        alone.run(
            "create operator class odd for type text using hash as operator 1 =, function 1 hashtext(text), function 2 hashtextextended(text, int8)",
        );
        let mut cases = vec![
            ("k numeric", "k", "the hash of numeric (k) is known to the server only", ["1", "1.50"]),
            ("k mood", "k", "the hash of mood (k) is known to the server only", ["sad", "glad"]),
            ("k text", "k odd", "k uses an operator class that is not its type's default", ["a", "b"]),
            ("k text", "lower(k)", "its partition key holds an expression", ["A", "b"]),
        ];
        let has_icu = "select exists (select from pg_collation where collprovider = 'i')";
        if alone.control.query_one(has_icu, &[]).unwrap().get(0) {
            alone.run(
                "create collation loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
            );
            cases.push((
                "k text collate loose",
                "k",
                "the collation of k is not deterministic",
                ["Abc", "aBC"],
            ));
        } else {
            let why = format!("PostgreSQL {} is built without it", installation.version);
            testing::skip(&testing::Lack::new("icu", why));
        }
        for (number, (columns, key, reason, keys)) in cases.into_iter().enumerate() {
            let table = format!("s{number}");
            alone.partitioned(&table, columns, key, &[(4, 0), (4, 1), (4, 2), (4, 3)]);
            let placement = alone.read(&table).unwrap();
            assert_eq!(placement.routing(), &Routing::Server(reason.to_owned()), "{columns}");
            assert_eq!(placement.leaf_of_text(keys[0].as_bytes()), None);
            assert_eq!(placement.key_columns().collect::<Vec<_>>(), ["k"], "{columns}");
            placement.self_test(&mut *alone.control, &keys).unwrap();
            let asked: Vec<Vec<Option<String>>> =
                keys.iter().map(|key| vec![Some((*key).to_owned())]).collect();
            let leaves = placement.by_server(&mut *alone.control, &asked).unwrap();
            for (key, leaf) in keys.iter().zip(leaves) {
                alone.run(&format!("insert into {table} values ('{key}')"));
                let sql =
                    format!("select distinct tableoid::regclass::text from {table} where k::text = '{key}'");
                let theirs: String = alone.control.query_one(&sql, &[]).unwrap().get(0);
                assert_eq!(placement.leaves()[leaf.unwrap()].name, theirs, "{columns} {key}");
            }
        }
    });
}

#[test]
fn ranges_lists_and_levels_are_asked_from_the_server() {
    on_each(&installations(), |installation| {
        let mut alone = Alone::start(installation);
        alone.run(
            "create table r (k int) partition by range (k);
             create table r_low partition of r for values from (minvalue) to (10);
             create table r_rest partition of r for values from (10) to (20);
             create table l (k text) partition by list (k);
             create table l_a partition of l for values in ('a', null);
             create table l_other partition of l default;
             create table two (day date, k text) partition by range (day);
             create table two_1 partition of two for values from ('2024-01-01') to ('2025-01-01') partition by hash (k);
             create table two_1_0 partition of two_1 for values with (modulus 2, remainder 0);
             create table two_1_1 partition of two_1 for values with (modulus 2, remainder 1);
             create table deep (k text, j int) partition by hash (k);
             create table deep_0 partition of deep for values with (modulus 1, remainder 0) partition by hash (j);
             create table deep_0_0 partition of deep_0 for values with (modulus 1, remainder 0);",
        );
        let text = |key: &str| Some(key.to_owned());
        for (table, reason, keys, expected) in [
            (
                "r",
                "it is partitioned by range",
                vec![vec![text("-5")], vec![text("10")], vec![text("20")]],
                vec![Some("r_low"), Some("r_rest"), None],
            ),
            (
                "l",
                "it is partitioned by list",
                vec![vec![text("a")], vec![None], vec![text("b")]],
                vec![Some("l_a"), Some("l_a"), Some("l_other")],
            ),
            (
                "two",
                "it is partitioned by range",
                vec![vec![text("2024-05-05"), text("a")], vec![text("2020-01-01"), text("a")]],
                vec![Some("two_1_0"), None],
            ),
            (
                "deep",
                "partitions are partitioned again",
                vec![vec![text("a"), text("1")]],
                vec![Some("deep_0_0")],
            ),
        ] {
            let placement = alone.read(table).unwrap();
            assert_eq!(placement.routing(), &Routing::Server(reason.to_owned()));
            let leaves = placement.by_server(&mut *alone.control, &keys).unwrap();
            let names: Vec<Option<&str>> =
                leaves.iter().map(|leaf| leaf.map(|leaf| placement.leaves()[leaf].name.as_str())).collect();
            assert_eq!(names, expected, "{table}");
        }
    });
}

/// In a database of another encoding the server hashes bytes that the client does not have.
#[test]
fn text_beyond_ascii_is_not_hashed_for_another_encoding() {
    on_each(&installations(), |installation| {
        let mut alone = Alone::start(installation);
        alone.run("create database latin encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0");
        alone.control = control::connect(&alone.server.spec().with_dbname("latin")).unwrap();
        alone.partitioned("t", "k text", "k", &sixteen());
        let placement = alone.read("t").unwrap();
        assert!(placement.leaf_of_text(b"user1").is_some());
        assert_eq!(placement.leaf_of_text("é".as_bytes()), None);
        assert_eq!(placement.leaf_of(&[Some(Key::Text("é".as_bytes()))]), None);
        // What the client can route is right, and the rest is left to the server.
        placement.self_test(&mut *alone.control, &["user1", "é", "a"]).unwrap();
        let leaves = placement.by_server(&mut *alone.control, &[vec![Some("é".to_owned())]]).unwrap();
        assert!(leaves[0].is_some());
    });
}

#[test]
fn a_wrong_route_is_refused() {
    on_each(&installations(), |installation| {
        let mut alone = Alone::start(installation);
        alone.partitioned("t", "k text", "k", &[(2, 0), (2, 1)]);
        let stale = alone.read("t").unwrap();
        let keys: Vec<String> = (0..100).map(|number| format!("user{number}")).collect();
        stale.self_test(&mut *alone.control, &keys).unwrap();
        // Somebody exchanges the bounds of the partitions under our feet.
        alone.run(
            "alter table t detach partition t_2_0; alter table t detach partition t_2_1;
             alter table t attach partition t_2_0 for values with (modulus 2, remainder 1);
             alter table t attach partition t_2_1 for values with (modulus 2, remainder 0);",
        );
        let error = stale.self_test(&mut *alone.control, &keys).unwrap_err();
        let leaf = stale.leaves()[stale.leaf_of_text(b"user0").unwrap()].name.clone();
        let other = if leaf == "t_2_0" { "t_2_1" } else { "t_2_0" };
        assert_eq!(
            error.to_string(),
            format!(
                "the server routes 100 of 100 keys of t differently from pgfathom's computation; the key user0 belongs to {other}, not {leaf}"
            ),
        );
        assert!(error.hint().unwrap().contains("--via connect"));
        let fresh = alone.read("t").unwrap();
        fresh.self_test(&mut *alone.control, &keys).unwrap();
        assert_ne!(fresh.fingerprint(), stale.fingerprint());
    });
}

#[test]
fn plain_tables_are_one_leaf_and_other_relations_are_refused() {
    on_each(&installations(), |installation| {
        let mut alone = Alone::start(installation);
        alone.run("create schema \"Odd one\"; create table \"Odd one\".\"t\"\"1\" (k text); create view v as select 1; create sequence s");
        let placement = Placement::read(&alone.cluster, &mut *alone.control, 0, "Odd one", "t\"1").unwrap();
        assert_eq!((placement.leaves().len(), placement.routing()), (1, &Routing::Whole));
        assert_eq!((placement.leaf_of_text(b"x"), placement.leaf_of_hash(7)), (Some(0), 0));
        assert!(placement.routes_by_partition_hash());
        placement.self_test(&mut *alone.control, &["x"]).unwrap();
        for (table, words) in [
            ("v", "public.v is not a table"),
            ("s", "public.s is not a table"),
            ("nothing", "there is no table public.nothing"),
        ] {
            let error = alone.read(table).unwrap_err();
            assert_eq!(error.to_string(), words);
            assert!(error.hint().unwrap().contains("pgfathom load"));
        }
    });
}
