//! Verification of clusters against live servers: clusters that are exact, and clusters damaged in every way there is.

use connect::conninfo::Sources;
use data::ycsb::Table;
use lab::throwaway::{Installation, ThrowawayCluster, installations};

use super::*;
use std::time::Duration;

use engines::cluster::Cluster;

use crate::options::Stop;
use crate::plan::names_of;
use crate::route::{self, Route};
use crate::verify::tests::fixture::{
    self, CHUNK_ROWS, ROWS, columns, copy, dataset, enter, enter_chunk, key, mark_loaded,
};
use crate::verify::{
    DifferenceKind, KIND_NAMES, Method, MirrorOptions, Subject, Verdict, VerifyOptions, run,
};
use crate::ycsb::{NAME as YCSB, TABLE};

const NODES: u32 = 3;
const PARTITIONS: u32 = 6;
const MIRROR: MirrorOptions = MirrorOptions { lag_limit: Duration::from_secs(30), standbys: false };

/// Runs a test on a cluster of every PostgreSQL that is installed, one after the other: three servers each are enough at once.
fn on_each(start: impl Fn(&Installation) -> ThrowawayCluster, test: impl Fn(&ThrowawayCluster)) {
    let all = installations();
    assert!(!all.is_empty(), "these tests need a PostgreSQL");
    for installation in &all {
        test(&start(installation));
    }
}

fn sharded(installation: &Installation) -> ThrowawayCluster {
    ThrowawayCluster::sharded(installation, NODES, PARTITIONS).unwrap()
}

fn cluster_of(servers: &ThrowawayCluster) -> Cluster {
    Cluster::from_file(servers.file(), &Sources::of_process()).unwrap()
}

/// The node of a leaf as `load` deals them.
fn owner(leaf: usize) -> usize {
    leaf % NODES as usize
}

fn home(table: &Table, row: u64) -> usize {
    Route::new(PARTITIONS).leaf(route::key_hash(&table.key(row))) as usize
}

/// Tables, rows and ledgers of a sharded dataset, without the loader that is tested elsewhere.
fn load_sharded(servers: &ThrowawayCluster) -> Table {
    let dataset = dataset(PARTITIONS);
    let table = Table::new(dataset.spec.clone());
    let leaves = names_of(TABLE, PARTITIONS);
    let mut rows: Vec<Vec<u64>> = vec![Vec::new(); leaves.len()];
    (0..ROWS).for_each(|row| rows[home(&table, row)].push(row));
    for node in 0..NODES as usize {
        let mut sql = format!(
            "create table {TABLE} (ycsb_key varchar(64) not null{}) partition by hash (ycsb_key);",
            columns()
        );
        for (leaf, name) in leaves.iter().enumerate() {
            let bound = format!("for values with (modulus {PARTITIONS}, remainder {leaf})");
            sql += &if owner(leaf) == node {
                format!("create table {name} partition of {TABLE} {bound};")
            } else {
                let server = &servers.file().node[owner(leaf)].name;
                format!(
                    "create foreign table {name} partition of {TABLE} {bound} server {server} options (schema_name 'public', table_name '{name}');"
                )
            };
        }
        servers.node(node).execute(&sql).unwrap();
        let ours: Vec<usize> = (0..leaves.len()).filter(|&leaf| owner(leaf) == node).collect();
        let names: Vec<String> = [TABLE.to_owned()].into_iter().chain(leaves.iter().cloned()).collect();
        let dataset = enter(servers.node(node), &["n1", "n2", "n3"], &dataset, &names);
        for &leaf in &ours {
            copy(servers.node(node), &leaves[leaf], &table, &rows[leaf]);
            servers
                .node(node)
                .execute(&format!("alter table {0} add primary key (ycsb_key); analyze {0}", leaves[leaf]))
                .unwrap();
        }
        for chunk in 0..ROWS.div_ceil(CHUNK_ROWS) {
            let in_chunk = |row: &&u64| **row / CHUNK_ROWS == chunk;
            let here: Vec<u64> =
                ours.iter().flat_map(|&leaf| rows[leaf].iter().filter(in_chunk).copied()).collect();
            enter_chunk(servers.node(node), &dataset, &table, chunk, &here, Some(&ours));
        }
        mark_loaded(servers.node(node), &dataset);
    }
    table
}

/// Verifies the YCSB dataset of a cluster.
pub(in crate::verify) fn verify(
    cluster: &Cluster,
    options: &VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    let subject = Subject { name: YCSB, find: &|client| fixture::find(client, None) };
    run(cluster, &subject, options, &mut |_| {})
}

fn check(cluster: &Cluster, deep: bool) -> Result<VerifyReport, VerifyError> {
    let stop = Stop::new();
    let options = VerifyOptions { mirror: MIRROR, ..VerifyOptions::new(deep, 2, &stop) };
    verify(cluster, &options)
}

/// Differences by kind, key and table; problems in words.
pub(in crate::verify) fn named(report: &VerifyReport) -> (Vec<(&'static str, String, String)>, Vec<String>) {
    let mut named: Vec<_> = report
        .differences
        .iter()
        .map(|d| (KIND_NAMES[d.kind.index()], d.key.clone(), d.table.to_string()))
        .collect();
    named.sort();
    (named, report.problems.iter().map(ToString::to_string).collect())
}

#[test]
fn an_exact_cluster_is_called_exact_through_any_node() {
    on_each(sharded, |servers| {
        load_sharded(servers);
        let cluster = cluster_of(servers);
        for deep in [false, true] {
            let report = check(&cluster, deep).unwrap();
            assert_eq!(report.verdict(), Verdict::Exact, "{}", report.text());
            assert_eq!((report.rows_expected, report.rows_found), (ROWS, ROWS));
            assert_eq!(report.method, if deep { Method::Deep } else { Method::Fast });
            assert!(report.notes.is_empty() && report.problems.is_empty(), "{}", report.text());
            let nodes: Vec<(&str, u64)> =
                report.nodes.iter().map(|node| (node.name.as_str(), node.leaves)).collect();
            assert_eq!(nodes, [("n1", 2), ("n2", 2), ("n3", 2)]);
            assert_eq!(report.nodes.iter().map(|node| node.rows_found).sum::<u64>(), ROWS);
            assert!(report.nodes.iter().all(|node| node.rows_found == node.rows_expected
                && node.rows_found > ROWS / 5
                && node.tables_differing + node.problems == 0));
        }
        // Each node's catalog knows the others, whichever node runs the query.
        for entry in 0..NODES as usize {
            let found = Cluster::discover(&servers.node(entry).spec()).unwrap();
            let report = check(&found, false).unwrap();
            assert_eq!(report.verdict(), Verdict::Exact, "{}", report.text());
            assert_eq!((report.nodes.len(), report.rows_found), (NODES as usize, ROWS));
        }
    });
}

/// One way of damaging a cluster: statements on nodes, how they are undone, and what must be named.
struct Damage {
    name: &'static str,
    sql: Vec<(usize, String)>,
    undo: Vec<(usize, String)>,
    rows: Vec<(&'static str, String, String)>,
    problems: Vec<String>,
}

fn damages(table: &Table) -> Vec<Damage> {
    let of_leaf = |leaf: usize| (0..ROWS).filter(move |&row| home(table, row) == leaf);
    let first = |leaf: usize| of_leaf(leaf).next().unwrap();
    // Leaf 0 and 3 are on n1, leaf 1 and 4 on n2, leaf 2 and 5 on n3.
    let (row0, row1) = (key(table, first(0)), key(table, first(1)));
    let row1_again = key(table, of_leaf(1).nth(1).unwrap());
    // The server refuses rows in wrong partitions, so the partition is detached for a moment.
    let smuggle = |leaf: &str, values: &str| {
        format!(
            "update pg_class set relispartition = false where relname = '{leaf}'; insert into {leaf} {values};
             update pg_class set relispartition = true where relname = '{leaf}'"
        )
    };
    let row_sql = |row: u64| {
        let mut fields = [[0; data::ycsb::FIELD_BYTES]; data::ycsb::FIELD_COUNT];
        table.row_fields(row, &mut fields);
        let fields: String =
            fields.iter().map(|field| format!(", '{}'", std::str::from_utf8(field).unwrap())).collect();
        format!("values ('{}'{fields})", key(table, row))
    };
    let delete = |leaf: &str, key: &str| format!("delete from {leaf} where ycsb_key = '{key}'");
    vec![
        Damage {
            name: "deleted",
            sql: vec![(1, delete("usertable_p1", &row1))],
            undo: vec![(1, format!("insert into usertable_p1 {}", row_sql(first(1))))],
            rows: vec![("missing", row1.clone(), "usertable_p1 on n2".into())],
            problems: vec![],
        },
        Damage {
            name: "damaged value",
            sql: vec![(
                1,
                format!("update usertable_p1 set field4 = overlay(field4 placing '!' from 78 for 1) where ycsb_key = '{row1}'"),
            )],
            undo: vec![
                (1, delete("usertable_p1", &row1)),
                (1, format!("insert into usertable_p1 {}", row_sql(first(1)))),
            ],
            rows: vec![("damaged value", row1.clone(), "usertable_p1 on n2".into())],
            problems: vec![],
        },
        Damage {
            name: "an extra row",
            sql: vec![(2, smuggle("usertable_p5", "values ('hello', 'x')"))],
            undo: vec![(2, delete("usertable_p5", "hello"))],
            rows: vec![("extra row", "hello".into(), "usertable_p5 on n3".into())],
            problems: vec![],
        },
        Damage {
            name: "a copy on another node",
            sql: vec![(0, smuggle("usertable_p0", &row_sql(first(1))))],
            undo: vec![(0, delete("usertable_p0", &row1))],
            rows: vec![("on the wrong node", row1.clone(), "usertable_p0 on n1".into())],
            problems: vec![],
        },
        Damage {
            name: "moved to another node",
            sql: vec![(0, smuggle("usertable_p0", &row_sql(first(1)))), (1, delete("usertable_p1", &row1))],
            undo: vec![
                (0, delete("usertable_p0", &row1)),
                (1, format!("insert into usertable_p1 {}", row_sql(first(1)))),
            ],
            rows: vec![("on the wrong node", row1.clone(), "usertable_p0 on n1".into())],
            problems: vec![],
        },
        Damage {
            name: "in the other leaf of its node",
            sql: vec![(0, smuggle("usertable_p3", &row_sql(first(0))))],
            undo: vec![(0, delete("usertable_p3", &row0))],
            rows: vec![("in the wrong partition", row0.clone(), "usertable_p3 on n1".into())],
            problems: vec![],
        },
        Damage {
            name: "a table left behind by a move",
            sql: vec![(
                2,
                format!(
                    "create table usertable_p1_old (like usertable); comment on table usertable_p1_old is 'pgfathom dataset ycsb 1: moved away';
                     insert into usertable_p1_old {}; insert into usertable_p1_old {}",
                    row_sql(first(1)),
                    row_sql(of_leaf(1).nth(1).unwrap())
                ),
            )],
            undo: vec![(2, "drop table usertable_p1_old".into())],
            rows: vec![
                ("on the wrong node", row1.clone(), "usertable_p1_old on n3".into()),
                ("on the wrong node", row1_again, "usertable_p1_old on n3".into()),
            ],
            problems: vec![],
        },
        Damage {
            name: "a leaf with two owners",
            sql: vec![(
                0,
                "drop foreign table usertable_p1; create table usertable_p1 partition of usertable for values with (modulus 6, remainder 1)".into(),
            )],
            undo: vec![(0, "drop table usertable_p1".into()), (0, foreign(1, "n2", "usertable_p1"))],
            rows: vec![],
            problems: vec!["usertable_p1 is a table on n1 as well as on n2".into()],
        },
        Damage {
            name: "a row in the second owner",
            sql: vec![(
                0,
                format!(
                    "drop foreign table usertable_p1; create table usertable_p1 partition of usertable for values with (modulus 6, remainder 1);
                     insert into usertable_p1 {}",
                    row_sql(first(1))
                ),
            )],
            undo: vec![(0, "drop table usertable_p1".into()), (0, foreign(1, "n2", "usertable_p1"))],
            rows: vec![("on the wrong node", row1.clone(), "usertable_p1 on n1".into())],
            problems: vec!["usertable_p1 is a table on n1 as well as on n2".into()],
        },
        Damage {
            name: "a foreign table that points at nothing",
            sql: vec![(0, format!("drop foreign table usertable_p1; {}", foreign(1, "n2", "nowhere")))],
            undo: vec![(0, format!("drop foreign table usertable_p1; {}", foreign(1, "n2", "usertable_p1")))],
            rows: vec![],
            problems: vec!["usertable_p1: the catalog of n1 points to nowhere on n2, but there is no such table".into()],
        },
        Damage {
            name: "entry nodes that disagree",
            sql: vec![(0, format!("drop foreign table usertable_p1; {}", foreign(1, "n3", "usertable_p1")))],
            undo: vec![(0, format!("drop foreign table usertable_p1; {}", foreign(1, "n2", "usertable_p1")))],
            rows: vec![],
            problems: vec!["usertable_p1: the catalog of n1 points to usertable_p1 on n3, but it is on n2".into()],
        },
        Damage {
            name: "a leaf that a node does not know",
            sql: vec![(2, "drop foreign table usertable_p1".into())],
            undo: vec![(2, foreign(1, "n2", "usertable_p1"))],
            rows: vec![],
            problems: vec!["usertable_p1 is not a partition on n3: its rows cannot be reached through that node".into()],
        },
        Damage {
            name: "a leaf detached on its owner",
            sql: vec![(1, "alter table usertable detach partition usertable_p1".into())],
            undo: vec![(
                1,
                "alter table usertable attach partition usertable_p1 for values with (modulus 6, remainder 1)".into(),
            )],
            rows: vec![],
            problems: vec!["usertable_p1 is not a partition on n2: its rows cannot be reached through that node".into()],
        },
        Damage {
            name: "a ledger with other keys",
            sql: vec![(1, "update pgfathom.chunk set checksum = checksum + 1 where chunk = 1".into())],
            undo: vec![(1, "update pgfathom.chunk set checksum = checksum - 1 where chunk = 1".into())],
            rows: vec![],
            problems: vec!["the ledger of n2 has the right number of rows, but not the right keys".into()],
        },
        Damage {
            name: "a ledger with another dataset",
            sql: vec![(2, "update pgfathom.dataset set seed = 43".into())],
            undo: vec![(2, "update pgfathom.dataset set seed = 42".into())],
            rows: vec![],
            problems: vec!["the ledger of n3 has 3000 rows in 6 partitions in schema public, seed 43, scattered keys, compressible 1.0, \
                 format 1, load 4d, but the others have 3000 rows in 6 partitions in schema public, seed 42, scattered keys, compressible 1.0, format 1, load 4d".into()],
        },
        Damage {
            name: "a ledger of another load",
            sql: vec![(2, "update pgfathom.dataset set token = 78".into())],
            undo: vec![(2, "update pgfathom.dataset set token = 77".into())],
            rows: vec![],
            problems: vec!["the ledger of n3 has 3000 rows in 6 partitions in schema public, seed 42, scattered keys, compressible 1.0, \
                 format 1, load 4e, but the others have 3000 rows in 6 partitions in schema public, seed 42, scattered keys, compressible 1.0, format 1, load 4d".into()],
        },
    ]
}

fn foreign(leaf: usize, server: &str, target: &str) -> String {
    format!(
        "create foreign table usertable_p{leaf} partition of usertable for values with (modulus {PARTITIONS}, remainder {leaf})
         server {server} options (schema_name 'public', table_name '{target}')"
    )
}

#[test]
fn every_damage_of_a_cluster_is_named_and_nothing_else() {
    on_each(sharded, |servers| {
        let table = load_sharded(servers);
        let cluster = cluster_of(servers);
        for (number, damage) in damages(&table).into_iter().enumerate() {
            let Damage { name, sql, undo, mut rows, problems } = damage;
            // As single statements, because a query of several is one transaction, in which the catalog is not looked at anew.
            let apply = |sql: &[(usize, String)]| {
                for (node, sql) in sql {
                    for statement in sql.split("; ") {
                        let done = servers.node(*node).execute(statement);
                        done.unwrap_or_else(|error| panic!("{name}: {statement}: {error:?}"));
                    }
                }
            };
            apply(&sql);
            rows.sort();
            for &deep in testing::in_turn(crate::verify::tests::EACH_WAY, number, &[false, true]) {
                let report = check(&cluster, deep).unwrap();
                assert_eq!(
                    named(&report),
                    (rows.clone(), problems.clone()),
                    "{name}, deep {deep}: {}",
                    report.text()
                );
                assert_eq!(report.differences_total(), rows.len() as u64, "{name}: {}", report.text());
                assert_eq!(report.verdict(), Verdict::Different, "{name}");
                let also_home = report.differences.iter().any(|difference| {
                    matches!(difference.kind, DifferenceKind::WrongNode { is_home_too: true, .. })
                });
                let is_on_wrong_node = rows.iter().any(|(kind, ..)| *kind == "on the wrong node");
                assert_eq!(
                    also_home,
                    is_on_wrong_node && name != "moved to another node",
                    "{}",
                    report.text()
                );
            }
            apply(&undo);
        }
        let report = check(&cluster, false).unwrap();
        assert_eq!(report.verdict(), Verdict::Exact, "everything was undone: {}", report.text());
    });
}

/// A leaf that was moved with everything that belongs to it is where it is, though the ledger of its old node has it.
#[test]
fn a_leaf_that_moved_is_verified_where_it_is() {
    on_each(sharded, |servers| {
        let table = load_sharded(servers);
        let rows: Vec<u64> = (0..ROWS).filter(|&row| home(&table, row) == 1).collect();
        let bound = "for values with (modulus 6, remainder 1)";
        servers.node(1).execute("drop table usertable_p1").unwrap();
        servers.node(1).execute(&foreign(1, "n3", "usertable_p1")).unwrap();
        servers.node(0).execute("drop foreign table usertable_p1").unwrap();
        servers.node(0).execute(&foreign(1, "n3", "usertable_p1")).unwrap();
        servers.node(2).execute("drop foreign table usertable_p1").unwrap();
        servers
            .node(2)
            .execute(&format!(
                "create table usertable_p1 partition of usertable {bound}; alter table usertable_p1 add primary key (ycsb_key)"
            ))
            .unwrap();
        copy(servers.node(2), "usertable_p1", &table, &rows);
        let report = check(&cluster_of(servers), false).unwrap();
        assert_eq!(report.verdict(), Verdict::Exact, "{}", report.text());
        assert_eq!(report.nodes.iter().map(|node| node.leaves).collect::<Vec<_>>(), [2, 1, 3]);
        // Which of the nodes' ledgers is wrong cannot be decided any more, only that they differ.
        servers.node(0).execute("update pgfathom.chunk set rows = rows + 1 where chunk = 0").unwrap();
        let report = check(&cluster_of(servers), false).unwrap();
        assert_eq!(
            named(&report).1,
            [format!("the ledgers of all nodes together counts {} loaded rows instead of {ROWS}", ROWS + 1)]
        );
    });
}

/// A right that is missing on one node is named with it, and a node whose table is another one's is not to be loaded again.
#[test]
fn what_is_wrong_on_one_node_is_reported_with_its_name() {
    let servers = sharded(&installations()[0]);
    load_sharded(&servers);
    for node in 0..NODES as usize {
        let rights = if node == 2 { "nologin" } else { "superuser" };
        servers.node(node).execute(&format!("create role plain {rights}; alter role plain login")).unwrap();
    }
    let mut cluster = cluster_of(&servers);
    cluster.nodes.iter_mut().for_each(|node| node.spec.user = "plain".to_owned());
    let error = check(&cluster, false).unwrap_err();
    assert!(error.to_string().starts_with("node n3: "), "{error}");
    assert!(error.hint().unwrap().contains("pg_read_all_data"));
    servers.node(2).execute("drop table usertable cascade; create table usertable (k int)").unwrap();
    let error = check(&cluster_of(&servers), false).unwrap_err();
    assert_eq!(error.to_string(), "usertable on n3: is a plain table, not partitioned over the nodes");
    let hint = error.hint().unwrap();
    assert!(hint.contains("check that the connection of n3") && !hint.contains("--restart"), "{hint}");
}

#[test]
fn a_cluster_that_is_not_loaded_is_refused() {
    let servers = sharded(&installations()[0]);
    let cluster = cluster_of(&servers);
    assert!(matches!(check(&cluster, false), Err(VerifyError::NoDataset { .. })));
    load_sharded(&servers);
    servers.node(1).execute("update pgfathom.dataset set loaded_at = null").unwrap();
    let error = check(&cluster, false).unwrap_err();
    assert_eq!(error.to_string(), "the load of dataset ycsb is not complete on node n2");
    assert!(error.hint().unwrap().contains("same load command"));
}
