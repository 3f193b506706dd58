//! Our hashes against those of every PostgreSQL that is installed.

use engines::hash;
use lab::throwaway::{Throwaway, installations};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const CASES: usize = 300;
const MODULUS: u32 = 16;

/// One row of values of every type.
#[derive(Clone, Debug)]
struct Case {
    seed: i64,
    text: String,
    small: i16,
    integer: i32,
    big: i64,
    uuid: [u8; 16],
    flag: bool,
}

fn cases() -> Vec<Case> {
    // PostgreSQL's text holds every character but NUL; lengths on both sides of lookup3's blocks.
    let text = prop_oneof!["[^\\x00]{0,40}", "[a-z]{11,13}", "[0-9]{22,26}", "[^\\x00]{90,110}"];
    let seed = prop_oneof![Just(0i64), Just(hash::PARTITION_SEED as i64), any::<i64>()];
    let small = any::<(i16, i32, bool)>();
    let strategy = (seed, text, small, prop_oneof![any::<i64>(), -3i64..3], any::<[u8; 16]>());
    let mut runner = TestRunner::deterministic();
    std::iter::repeat_with(|| strategy.new_tree(&mut runner).expect("values are made").current())
        .take(CASES)
        .map(|(seed, text, (small, integer, flag), big, uuid)| Case {
            seed,
            text,
            small,
            integer,
            big,
            uuid,
            flag,
        })
        .collect()
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn servers_hash_and_route_as_we_do() {
    let all = installations();
    assert!(!all.is_empty(), "these tests need a PostgreSQL");
    let cases = cases();
    std::thread::scope(|scope| {
        for installation in &all {
            let cases = &cases;
            scope.spawn(move || {
                let cluster = Throwaway::start(installation, &[]).expect("a throwaway cluster starts");
                let mut client =
                    connect::control::connect(&cluster.spec()).expect("it accepts connections").into_client();
                compare(&mut client, cases);
                route(&mut client, cases);
            });
        }
    });
}

fn compare(client: &mut postgres::Client, cases: &[Case]) {
    for case in cases {
        let Case { seed, text, small, integer, big, uuid, flag } = case;
        let ours = [
            hash::text_extended(text.as_bytes(), *seed as u64),
            hash::int2_extended(*small, *seed as u64),
            hash::int4_extended(*integer, *seed as u64),
            hash::int8_extended(*big, *seed as u64),
            hash::uuid_extended(uuid, *seed as u64),
            hash::bool_extended(*flag, *seed as u64),
        ];
        // bool has no support function of its own name before PostgreSQL 18: it hashes like "char".
        let row = client
            .query_one(
                "select hashtextextended($2, $1), hashint2extended($3, $1), hashint4extended($4, $1),
                        hashint8extended($5, $1), uuid_hash_extended($6::text::uuid, $1),
                        hashcharextended(case when $7 then '\\001' else '' end::\"char\", $1), hashtext($2)",
                &[seed, text, small, integer, big, &uuid_text(uuid), flag],
            )
            .expect("the server hashes");
        let theirs: [i64; 6] = std::array::from_fn(|column| row.get(column));
        assert_eq!(theirs.map(|hash| hash as u64), ours, "{case:?}");
        assert_eq!(row.get::<_, i32>(6) as u32, hash::bytes(text.as_bytes()), "{case:?}");

        let record = hash::record([
            Some(hash::text_extended(text.as_bytes(), *seed as u64)),
            None,
            Some(ours[2]),
            Some(hash::text_extended(b"", *seed as u64)),
        ]);
        let theirs = client.query_opt(
            "select hash_record_extended(row($2::varchar, null::text, $3::int4, ''::text), $1)",
            &[seed, text, integer],
        );
        match theirs {
            Ok(row) => assert_eq!(row.expect("one row").get::<_, i64>(0) as u64, record, "{case:?}"),
            // Before PostgreSQL 14.
            Err(error) => assert_eq!(error.code().map(|code| code.code()), Some("42883"), "{error:?}"),
        }
    }
}

fn route(client: &mut postgres::Client, cases: &[Case]) {
    client
        .batch_execute("create table routed (a varchar(64), b int8, c uuid) partition by hash (a, b, c)")
        .expect("a table is made");
    for case in cases {
        let text: String = case.text.chars().take(64).collect();
        // Every combination of NULLs in turn.
        let nulls = case.small as u16 % 8;
        let a = (nulls & 1 == 0).then_some(&text);
        let b = (nulls & 2 == 0).then_some(case.big);
        let c = (nulls & 4 == 0).then(|| uuid_text(&case.uuid));
        let key = hash::partition_key([
            a.map(|a| hash::text_extended(a.as_bytes(), hash::PARTITION_SEED)),
            b.map(|b| hash::int8_extended(b, hash::PARTITION_SEED)),
            c.as_ref().map(|_| hash::uuid_extended(&case.uuid, hash::PARTITION_SEED)),
        ]);
        let remainder = hash::partition_remainder(key, MODULUS);
        let row = client
            .query_one(
                "select array_agg(r) from generate_series(0, $4 - 1) as r
                 where satisfies_hash_partition('routed'::regclass, $4, r, $1::varchar, $2::int8, $3::text::uuid)",
                &[&a, &b, &c, &(MODULUS as i32)],
            )
            .expect("the server routes");
        assert_eq!(row.get::<_, Vec<i32>>(0), [remainder as i32], "{case:?}");
    }
}
