//! Verification against live servers: tables that are exact, and tables damaged in every way there is.

pub(crate) mod fixture;
mod history;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::Ordering;

use connect::{ConnSpec, control};
use data::ycsb::{Compressible, FIELD_BYTES, FIELD_COUNT, KeyOrder, Spec, Version};
use engines::Cluster;
use lab::throwaway::{Installation, Throwaway, installations};

use std::sync::Arc;

use data::ycsb::Table;

use super::*;
use history::{Run, set_field};

use crate::dataset::MESSAGE_BYTES;
use crate::history::{Expect, VersionJudgement, WriterHistory};
use crate::node_sessions::NodeSessions;
use crate::options::Options;
use crate::route::{Route, key_hash};
use crate::schema;
use crate::ycsb::{NAME as YCSB, ROW_VALUE_BYTES, RowMessage, Ycsb};

const SEED: u64 = 42;

/// Runs a test on every PostgreSQL that is installed, side by side.
fn on_each(test: impl Fn(&Throwaway) + Sync) {
    let all = installations();
    assert!(!all.is_empty(), "these tests need a PostgreSQL");
    std::thread::scope(|scope| {
        for installation in &all {
            scope.spawn(|| test(&start(installation)));
        }
    });
}

fn start(installation: &Installation) -> Throwaway {
    Throwaway::start(installation, &[("max_wal_size", "4GB")]).unwrap()
}

fn spec_of(seed: u64) -> Spec {
    Spec { seed, key_order: KeyOrder::Scattered, compressible: Compressible::NONE }
}

fn database(cluster: &Throwaway, name: &str) -> ConnSpec {
    ConnSpec { dbname: name.to_owned(), ..cluster.spec() }
}

/// Makes a database with a loaded dataset, without the loader that is tested elsewhere.
fn load(cluster: &Throwaway, name: &str, rows: u64, partitions: u32, spec: Spec) -> Table {
    cluster.execute(&format!("create database {name}")).unwrap();
    let mut client = control::connect(&database(cluster, name)).unwrap();
    let options = Options { partitions: Some(partitions), ..Options::new() };
    let target = Cluster::single(database(cluster, name));
    let mut sessions = NodeSessions::connect(&target).unwrap();
    let prepared = schema::prepare(
        &mut sessions,
        &target,
        &Ycsb::new(rows, spec.clone()),
        &options,
        &Stop::new(),
        &mut |_| (),
    )
    .unwrap();
    let table = Table::new(spec);
    let mut copy = client.copy_in("copy usertable from stdin (format binary)").unwrap();
    copy.write_all(&wire::copy::HEADER).unwrap();
    let mut message = RowMessage::new(MESSAGE_BYTES);
    for row in 0..rows {
        message.push(&table, row);
        if message.is_full() || row + 1 == rows {
            // Without the frame of the protocol, which the library adds.
            copy.write_all(&message.message()[5..]).unwrap();
            message.clear();
        }
    }
    copy.write_all(&wire::copy::TRAILER).unwrap();
    copy.finish().unwrap();
    client.batch_execute("alter table usertable add primary key (ycsb_key); analyze usertable").unwrap();
    let dataset = &prepared.datasets[0];
    let chunks = crate::plan::Chunks::of_length(rows, dataset.chunk_rows);
    for chunk in 0..chunks.count() {
        let range = chunks.range(chunk);
        let hash = |sum: u64, row| sum.wrapping_add(crate::route::key_hash(&table.key(row)));
        let claim = ledger::Claim {
            dataset: dataset.id,
            chunk,
            first_row: range.start,
            rows: range.end - range.start,
            bytes: (range.end - range.start) * ROW_VALUE_BYTES,
            checksum: range.fold(0, hash),
            stream: 0,
        };
        client.batch_execute(&claim.insert_sql()).unwrap();
    }
    ledger::mark_loaded(&mut *client, dataset.id).unwrap();
    table
}

fn check(spec: &ConnSpec, deep: bool, history: Option<Run>) -> Result<VerifyReport, VerifyError> {
    verify(spec, &VerifyOptions::new(deep, 2, &Stop::new()), history, &mut |_| {})
}

fn verify(
    spec: &ConnSpec,
    options: &VerifyOptions<'_>,
    history: Option<Run>,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let history = history.map(|history| Arc::new(history) as Arc<dyn WriterHistory>);
    let subject = Subject { name: YCSB, find: &|client| fixture::find(client, history.clone()) };
    run(&Cluster::single(spec.clone()), &subject, options, observer)
}

fn key(table: &Table, row: u64) -> String {
    String::from_utf8(table.key(row).to_vec()).unwrap()
}

/// The leaf of a row among `partitions`.
fn leaf(table: &Table, row: u64, partitions: u32) -> usize {
    Route::new(partitions).leaf(key_hash(&table.key(row))) as usize
}

#[test]
fn exact_tables_are_called_exact() {
    on_each(|cluster| {
        let cases = [(0, 0, "1.0"), (1, 0, "1.0"), (1, 5, "2.5"), (3001, 0, "1.0"), (3001, 3, "6.0")];
        for (index, (rows, partitions, ratio)) in cases.into_iter().enumerate() {
            let name = format!("exact{index}");
            let key_order = if index == 3 { KeyOrder::Sequential } else { KeyOrder::Scattered };
            let spec = Spec { key_order, compressible: ratio.parse().unwrap(), ..spec_of(index as u64) };
            load(cluster, &name, rows, partitions, spec);
            for deep in [false, true] {
                let report = check(&database(cluster, &name), deep, None).unwrap();
                assert_eq!(report.verdict(), Verdict::Exact, "{name}: {}", report.text());
                assert_eq!((report.rows_expected, report.rows_found), (rows, rows));
                assert_eq!(report.method, if deep { Method::Deep } else { Method::Fast });
                assert!(report.notes.is_empty() && report.differences.is_empty(), "{}", report.text());
            }
        }
    });
}

/// One way of damaging a table: the statements, and what must be named, by (kind, row or key).
struct Damage {
    name: &'static str,
    sql: String,
    named: Vec<(&'static str, String)>,
}

const PARTITIONS: u32 = 3;
const ROWS: u64 = 2000;

fn damages(table: &Table, partitioned: bool) -> Vec<Damage> {
    let k = |row| key(table, row);
    let field = |row, column, version| {
        let mut value = [0; FIELD_BYTES];
        table.field(row, column, version, &mut value);
        String::from_utf8(value.to_vec()).unwrap()
    };
    let all_columns: Vec<String> = (0..FIELD_COUNT).map(|column| format!("field{column}")).collect();
    let all_columns = all_columns.join(", ");
    let mut torn = field(7, 2, Version::new(1, 0, 1));
    torn.replace_range(50.., &field(7, 2, Version::LOADED)[50..]);
    let mut wrong_key = k(70);
    wrong_key.replace_range(20..21, if &wrong_key[20..21] == "7" { "8" } else { "7" });
    let unkeyed = "alter table usertable drop constraint usertable_pkey;";
    let mut damages = vec![
        Damage {
            name: "delete",
            sql: format!("delete from usertable where ycsb_key = '{}'", k(1234)),
            named: vec![("missing", k(1234))],
        },
        Damage {
            name: "duplicate",
            sql: format!(
                "{unkeyed} insert into usertable select * from usertable where ycsb_key = '{}'",
                k(99)
            ),
            named: vec![("duplicate", k(99))],
        },
        Damage {
            name: "flip",
            sql: format!(
                "update usertable set field4 = overlay(field4 placing '!' from 78 for 1) where ycsb_key = '{}'",
                k(0)
            ),
            named: vec![("damaged value", k(0))],
        },
        Damage {
            name: "flip_version",
            sql: format!(
                "update usertable set field9 = overlay(field9 placing '!' from 3 for 1) where ycsb_key = '{}'",
                k(ROWS - 1)
            ),
            named: vec![("damaged value", k(ROWS - 1))],
        },
        Damage {
            name: "swap",
            sql: format!(
                "update usertable a set field3 = b.field3 from usertable b
                 where (a.ycsb_key, b.ycsb_key) in (('{0}', '{1}'), ('{1}', '{0}'))",
                k(5),
                k(6)
            ),
            named: vec![("value of another row or column", k(5)), ("value of another row or column", k(6))],
        },
        Damage {
            name: "swap_rows",
            sql: format!(
                "update usertable a set ({all_columns}) = (select {all_columns} from usertable b
                     where b.ycsb_key = case a.ycsb_key when '{0}' then '{1}' else '{0}' end)
                 where a.ycsb_key in ('{0}', '{1}')",
                k(50),
                k(60)
            ),
            named: [50, 60]
                .into_iter()
                .flat_map(|row| vec![("value of another row or column", k(row)); FIELD_COUNT])
                .collect(),
        },
        Damage {
            name: "swap_columns",
            sql: format!("update usertable set field0 = field1, field1 = field0 where ycsb_key = '{}'", k(8)),
            named: vec![("value of another row or column", k(8)); 2],
        },
        Damage {
            name: "extra_row",
            sql: "insert into usertable values ('hello', 'x')".to_owned(),
            named: vec![("extra row", "hello".to_owned())],
        },
        Damage {
            name: "beyond",
            sql: format!("insert into usertable values ('{}')", k(ROWS)),
            named: vec![("extra row", k(ROWS))],
        },
        Damage {
            name: "no_key",
            sql: format!(
                "{unkeyed} alter table usertable alter ycsb_key drop not null; insert into usertable values (null)"
            ),
            named: vec![("extra row", "null".to_owned())],
        },
        Damage {
            name: "null",
            sql: format!("update usertable set field7 = null where ycsb_key = '{}'", k(3)),
            named: vec![("null", k(3))],
        },
        Damage {
            name: "short",
            sql: format!("update usertable set field0 = left(field0, 99) where ycsb_key = '{}'", k(3)),
            named: vec![("damaged value", k(3))],
        },
        Damage {
            name: "key",
            sql: format!("update usertable set ycsb_key = '{wrong_key}' where ycsb_key = '{}'", k(70)),
            named: vec![("damaged key", wrong_key)],
        },
        Damage {
            name: "torn",
            sql: format!("update usertable set field2 = '{torn}' where ycsb_key = '{}'", k(7)),
            named: vec![("damaged value", k(7))],
        },
        Damage {
            name: "unknown",
            sql: format!(
                "update usertable set field2 = '{}' where ycsb_key = '{}'",
                field(7, 2, Version::new(4, 3, 2)),
                k(7)
            ),
            named: vec![("value of an unknown writer", k(7))],
        },
        Damage {
            name: "several",
            sql: format!(
                "delete from usertable where ycsb_key in ('{}', '{}'); update usertable set field1 = '' where ycsb_key = '{}'",
                k(10),
                k(11),
                k(12)
            ),
            named: vec![("missing", k(10)), ("missing", k(11)), ("damaged value", k(12))],
        },
    ];
    if partitioned {
        // The server refuses rows in wrong partitions, so the partition is detached for a moment.
        let (row, home) = (17, leaf(table, 17, PARTITIONS));
        let elsewhere = (home + 1) % PARTITIONS as usize;
        let insert = format!(
            "update pg_class set relispartition = false where relname = 'usertable_p{elsewhere}';
             insert into usertable_p{elsewhere} select * from usertable_p{home} where ycsb_key = '{}';
             update pg_class set relispartition = true where relname = 'usertable_p{elsewhere}'",
            k(row)
        );
        damages.push(Damage {
            name: "copy_elsewhere",
            sql: insert.clone(),
            named: vec![("in the wrong partition", k(row))],
        });
        damages.push(Damage {
            name: "moved_elsewhere",
            sql: format!("{insert}; delete from usertable_p{home} where ycsb_key = '{}'", k(row)),
            named: vec![("in the wrong partition", k(row))],
        });
    }
    damages
}

/// What is left for later.
pub(super) const EACH_WAY: &str = "each damage verified fast and deep: in turn";

fn kinds_and_keys(report: &VerifyReport) -> Vec<(&'static str, String)> {
    let mut named: Vec<_> =
        report.differences.iter().map(|d| (KIND_NAMES[d.kind.index()], d.key.clone())).collect();
    named.sort();
    named
}

#[test]
fn every_damage_is_named_and_nothing_else() {
    on_each(|cluster| {
        for partitions in [0, PARTITIONS] {
            let base = format!("base{partitions}");
            let table = load(cluster, &base, ROWS, partitions, spec_of(SEED));
            for (number, damage) in damages(&table, partitions > 0).into_iter().enumerate() {
                let Damage { name, sql, mut named } = damage;
                let damaged = format!("{name}{partitions}");
                cluster.execute(&format!("create database {damaged} template {base}")).unwrap();
                for statement in sql.split("; ") {
                    cluster
                        .execute_in(&damaged, statement)
                        .unwrap_or_else(|error| panic!("{name}: {error:?}"));
                }
                named.sort();
                // What is verified deep without partitions is verified fast with them.
                let turn = number + usize::from(partitions > 0);
                for &deep in testing::in_turn(EACH_WAY, turn, &[false, true]) {
                    let report = check(&database(cluster, &damaged), deep, None).unwrap();
                    assert_eq!(kinds_and_keys(&report), named, "{damaged}, deep {deep}: {}", report.text());
                    assert_eq!(
                        report.differences_total(),
                        named.len() as u64,
                        "{damaged}: {}",
                        report.text()
                    );
                    assert_eq!(report.verdict(), Verdict::Different);
                    assert_eq!(report.method, if deep { Method::Deep } else { Method::FastThenDeep });
                }
                cluster.execute(&format!("drop database {damaged}")).unwrap();
            }
        }
    });
}

#[test]
fn the_first_wrong_byte_and_the_writer_are_named() {
    on_each(|cluster| {
        let table = load(cluster, "bytes", 300, 2, spec_of(SEED));
        let damage = format!(
            "update usertable set field4 = overlay(field4 placing '!' from 78 for 1) where ycsb_key = '{}'",
            key(&table, 200)
        );
        cluster.execute_in("bytes", &damage).unwrap();
        let report = check(&database(cluster, "bytes"), false, None).unwrap();
        let leaf = leaf(&table, 200, 2);
        assert_eq!(
            report.text(),
            format!(
                "damaged value: 1\n  {} (row 200): field4 is damaged from byte 77 on (1 byte wrong in the value of the load)\n",
                key(&table, 200)
            )
        );
        assert_eq!(report.differences[0].table.table, format!("usertable_p{leaf}"));
    });
}

/// Whole tables gone: every row is counted, and as many named as there is room for.
#[test]
fn lost_tables_are_counted_exactly() {
    on_each(|cluster| {
        let table = load(cluster, "lost", ROWS, PARTITIONS, spec_of(SEED));
        let of_leaf =
            |leaf| (0..ROWS).filter(|&row| self::leaf(&table, row, PARTITIONS) == leaf).count() as u64;
        let mut gone = 0;
        for (sql, leaf) in [
            ("truncate usertable_p1", 1),
            ("alter table usertable detach partition usertable_p2", 2),
            ("drop table usertable", 0),
        ] {
            cluster.execute_in("lost", sql).unwrap();
            gone += of_leaf(leaf);
            for deep in [false, true] {
                let report = check(&database(cluster, "lost"), deep, None).unwrap();
                assert_eq!((report.totals[0], report.differences_total()), (gone, gone), "{sql}");
                assert_eq!(report.differences.len(), NAMED_MAX);
                assert_eq!((report.rows_expected, report.rows_found), (ROWS, ROWS - gone));
                assert!(report.text().contains(&format!("  and {} more\n", gone - NAMED_MAX as u64)));
            }
        }
        assert_eq!(gone, ROWS);
    });
}

/// Servers that can do less, and tables that are larger than what is done at once.
#[test]
fn less_able_servers_and_small_portions_come_to_the_same() {
    const PORTIONS: Limits = Limits { found_rows: 5, blocks_at_once: 7 };
    on_each(|cluster| {
        for partitions in [0, PARTITIONS] {
            let name = format!("portions{partitions}");
            let table = load(cluster, &name, ROWS, partitions, spec_of(SEED));
            let (one, two, three) = (key(&table, 1), key(&table, 500), key(&table, 1500));
            let damage = format!(
                "alter table usertable drop constraint usertable_pkey; delete from usertable where ycsb_key in ('{one}', '{two}');
                 insert into usertable select * from usertable where ycsb_key = '{three}'"
            );
            cluster.execute_in(&name, &damage).unwrap();
            for (may_hash, method) in [(true, Method::FastThenDeep), (false, Method::Deep)] {
                let stop = Stop::new();
                let options =
                    VerifyOptions { limits: PORTIONS, may_hash, ..VerifyOptions::new(false, 3, &stop) };
                let report = verify(&database(cluster, &name), &options, None, &mut |_| {}).unwrap();
                let mut named =
                    vec![("duplicate", three.clone()), ("missing", one.clone()), ("missing", two.clone())];
                named.sort();
                assert_eq!(kinds_and_keys(&report), named, "{}", report.text());
                assert_eq!((report.method, report.rows_found), (method, ROWS - 1));
                assert_eq!(report.notes.len(), usize::from(method == Method::Deep), "{:?}", report.notes);
            }
        }
    });
}

/// A row that moves while the table is read must neither be missed nor be seen twice.
#[test]
fn a_table_that_is_written_meanwhile_is_seen_at_one_moment() {
    on_each(|cluster| {
        let table = load(cluster, "busy", ROWS, 2, spec_of(SEED));
        let spec = database(cluster, "busy");
        let mut client = control::connect(&spec).unwrap();
        let dataset = ledger::find_dataset(&mut *client, YCSB).unwrap().unwrap();
        ledger::create_writer(&mut client, &dataset, "{}").unwrap();
        std::thread::scope(|scope| {
            let (stop, table) = (testing::Stop::new(), &table);
            let done = stop.flag();
            let writer = scope.spawn(move || {
                let mut writes = 0;
                while !done.load(Ordering::Relaxed) {
                    writes += 1;
                    let row = u64::from(writes) * 7 % ROWS;
                    client.batch_execute(&set_field(table, row, 3, Version::new(1, 0, writes))).unwrap();
                }
                writes
            });
            for _ in 0..5 {
                let report = check(&spec, false, None).unwrap();
                // The run is on, so what it loses cannot be known.
                assert_eq!(report.verdict(), Verdict::CannotTell, "{}", report.text());
                assert_eq!((report.differences_total(), report.rows_found), (0, ROWS));
            }
            stop.now();
            assert!(writer.join().unwrap() > 0);
        });
    });
}

#[test]
fn databases_without_a_complete_dataset_are_refused() {
    on_each(|cluster| {
        let error = |name: &str| check(&database(cluster, name), false, None).unwrap_err();
        assert!(matches!(error("postgres"), VerifyError::NoDataset { .. }));
        assert!(matches!(error("nowhere"), VerifyError::Connect { .. }));
        load(cluster, "refused", 10, 0, spec_of(SEED));
        for (sql, expected) in [
            ("alter table usertable drop column field3", "usertable: has no column field3"),
            ("alter table usertable rename to other", ""),
            ("create view usertable as select 1 as one", "public.usertable is a view, not a table"),
            ("update pgfathom.dataset set loaded_at = null", "the load of dataset ycsb is not complete"),
            (
                "update pgfathom.dataset set format = 2",
                "the dataset ycsb has format 2, but this program uses format 1",
            ),
        ] {
            cluster.execute_in("refused", sql).unwrap();
            if !expected.is_empty() {
                let error = error("refused");
                assert_eq!(error.to_string().split(", but this load").next().unwrap(), expected);
                assert!(error.hint().is_some());
            }
        }
    });
}

#[test]
fn added_columns_do_not_matter() {
    on_each(|cluster| {
        load(cluster, "wide", 500, 2, spec_of(SEED));
        cluster.execute_in("wide", "alter table usertable add column note text default 'ours'").unwrap();
        for deep in [false, true] {
            assert!(check(&database(cluster, "wide"), deep, None).unwrap().exact());
        }
    });
}

#[test]
fn a_locked_table_is_not_waited_for_long() {
    let cluster = start(&installations().remove(0));
    load(&cluster, "locked", 100, 0, spec_of(SEED));
    let mut blocker = control::connect(&database(&cluster, "locked")).unwrap();
    blocker.batch_execute("begin; lock table usertable in access exclusive mode").unwrap();
    let error = check(&database(&cluster, "locked"), false, None).unwrap_err();
    assert!(error.hint().unwrap().contains("lock"), "{error:?}");
}

/// More rows than the sums of one pass hold apart: one of them deleted.
#[test]
fn one_row_of_many_is_found() {
    let rows = 100_000;
    let cluster = start(&installations().remove(0));
    let table = load(&cluster, "many", rows, 4, spec_of(SEED));
    let spec = database(&cluster, "many");
    let mut phases = Vec::new();
    let stop = Stop::new();
    let options = VerifyOptions::new(false, 2, &stop);
    let report = verify(&spec, &options, None, &mut |progress| phases.push(*progress)).unwrap();
    assert!(report.exact(), "{}", report.text());
    println!("fast: {:?}", report.duration);
    assert!(
        phases.iter().all(
            |progress| progress.rows_done <= rows && matches!(progress.phase, Phase::Sum | Phase::Ledger)
        )
    );

    // Stopped in the middle: an end soon, and nothing of ours stays busy on the server.
    let options = VerifyOptions { deep: true, ..options };
    let stopped = std::thread::scope(|scope| {
        let verification = scope.spawn(|| verify(&spec, &options, None, &mut |_| {}));
        let reading = "select count(*) from pg_stat_activity where query like 'copy (select%'";
        testing::wait_for("a reader", || cluster.value(reading).unwrap().as_deref() != Some("0"));
        stop.request();
        verification.join().unwrap()
    });
    assert!(matches!(stopped, Err(VerifyError::Interrupted)));

    cluster
        .execute_in("many", &format!("delete from usertable where ycsb_key = '{}'", key(&table, 65_432)))
        .unwrap();
    let report = check(&spec, false, None).unwrap();
    println!("fast, then deep: {:?}", report.duration);
    assert_eq!(kinds_and_keys(&report), [("missing", key(&table, 65_432))]);
    assert_eq!((report.rows_found, report.differences[0].row), (rows - 1, Some(65_432)));
}
