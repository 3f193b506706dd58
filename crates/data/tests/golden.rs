//! Format v1 is frozen: these vectors were made by a second implementation (`format_v1.py`) and may never change.

use data::Permutation;
use data::ycsb::{Compressible, FIELD_BYTES, FIELD_COUNT, Judgement, KeyOrder, Spec, Table, Version};

const VECTORS: &str = include_str!("format_v1.tsv");

/// The lines of one kind, split into their columns.
fn vectors(kind: &str) -> impl Iterator<Item = Vec<&str>> {
    VECTORS
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .filter(move |columns| columns[0] == kind)
        .map(|columns| columns[1..].to_vec())
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("bad vector: {text}"))
}

fn table(seed: &str, key_order: KeyOrder, percent: u16) -> Table {
    let compressible = Compressible::from_percent(percent).expect("a valid ratio");
    Table::new(Spec { seed: number(seed), key_order, compressible })
}

#[test]
fn the_format_is_version_1() {
    assert_eq!(data::FORMAT_VERSION, 1);
    assert_eq!(
        VECTORS.lines().count(),
        1 + vectors("key").count() + vectors("permutation").count() + vectors("field").count()
    );
}

#[test]
fn keys() {
    let mut checked = 0;
    for vector in vectors("key") {
        let [seed, row, key] = vector[..] else { panic!("bad vector {vector:?}") };
        let scattered = table(seed, KeyOrder::Scattered, 100);
        assert_eq!(scattered.key(number(row)), key.as_bytes());
        assert_eq!(scattered.row_of_key(key.as_bytes()), Some(number(row)));
        let sequential = table(seed, KeyOrder::Sequential, 100);
        let key = format!("user{:018}", number::<u64>(row));
        assert_eq!(sequential.key(number(row)), key.as_bytes());
        assert_eq!(sequential.row_of_key(key.as_bytes()), Some(number(row)));
        checked += 1;
    }
    assert_eq!(checked, 32);
}

#[test]
fn permutations() {
    let mut checked = 0;
    for vector in vectors("permutation") {
        let [seed, stream, domain, i, image] = vector[..] else { panic!("bad vector {vector:?}") };
        let permutation = Permutation::new(number(seed), number(stream), number(domain));
        assert_eq!(permutation.apply(number(i)), number::<u64>(image), "{vector:?}");
        assert_eq!(permutation.invert(number(image)), number::<u64>(i), "{vector:?}");
        checked += 1;
    }
    assert!(checked > 100);
}

#[test]
fn fields_and_versions() {
    let mut checked = 0;
    for vector in vectors("field") {
        let [seed, percent, row, column, run, session, sequence, value] = vector[..] else {
            panic!("bad vector {vector:?}")
        };
        let (row, column) = (number(row), number(column));
        let version = Version::new(number(run), number(session), number(sequence));
        let table = table(seed, KeyOrder::Scattered, number(percent));
        let mut field = [0; FIELD_BYTES];
        table.field(row, column, version, &mut field);
        assert_eq!(std::str::from_utf8(&field).unwrap(), value, "{vector:?}");
        assert_eq!(table.judge(row, column, value.as_bytes()), Judgement::Exact { version });
        if version == Version::LOADED {
            let mut fields = [[0; FIELD_BYTES]; FIELD_COUNT];
            table.row_fields(row, &mut fields);
            assert_eq!(fields[column], field);
        }
        checked += 1;
    }
    assert_eq!(checked, 4 * 4 * 8 * 3);
}
