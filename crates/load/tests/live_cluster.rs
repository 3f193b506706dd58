//! Loading into clusters sharded by postgres_fdw, on every PostgreSQL found: placement, moved partitions, refusals.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use crate::support;
use std::time::Duration;

use lab::throwaway::{Installation, ThrowawayCluster};
use load::{LoadError, LoadReport, Method, Outcome, Segment, Stop, Via, ledger};
use postgres::Client;
use support::cluster::{assert_exact_on, cluster_of, local_leaves, move_leaf, rows_and_ledgers};
use support::{Notes, Options, connect, each_postgres, load_ycsb, load_ycsb_on, options, spec};
use workloads::ycsb::dataset as ycsb;

fn sharded(installation: &Installation, nodes: u32, partitions: u32) -> ThrowawayCluster {
    ThrowawayCluster::sharded(installation, nodes, partitions).expect("a throwaway cluster starts")
}

fn load_on(nodes: &ThrowawayCluster, options: &Options) -> Result<(LoadReport, Notes), LoadError> {
    let mut notes = Notes::default();
    load_ycsb_on(&cluster_of(nodes), options, &Stop::new(), &mut notes).map(|report| (report, notes))
}

/// Small chunks; partitions are those of the cluster.
fn asked(rows: u64, streams: usize, method: Method) -> Options {
    Options { partitions: None, streams, method: Some(method), ..options(rows, 0) }
}

#[test]
fn every_row_goes_straight_to_its_owner() {
    each_postgres(|installation| {
        for (nodes, partitions) in [(3, 6), (2, 5)] {
            let cluster = sharded(installation, nodes, partitions);
            for method in [Method::Copy, Method::Freeze] {
                for (rows, streams) in [(0, 1), (1, 4), (1_999, 2), (5_003, 7)] {
                    let options = Options { restart: true, ..asked(rows, streams, method) };
                    let (report, notes) = load_on(&cluster, &options).unwrap();
                    assert_eq!(report.outcome, Outcome::Complete, "{method} {rows}");
                    assert_eq!((report.rows, report.totals.rows, report.retries), (rows, rows, 0));
                    assert_eq!(report.chunks, report.chunks_total);
                    assert_eq!(report.nodes.iter().map(|node| node.rows).sum::<u64>(), rows);
                    assert_eq!(report.nodes.len(), nodes as usize);
                    assert_exact_on(&cluster, rows, partitions, &spec(1));
                    assert_eq!(notes.last.unwrap().rows_done, rows);
                    assert_eq!(notes.samples.iter().map(|sample| sample.rows).sum::<u64>(), rows);
                    for (node, report) in report.nodes.iter().enumerate() {
                        assert_eq!(report.name, format!("n{}", node + 1));
                        let mut client = connect(&cluster.node(node).spec());
                        let owned: Vec<u32> =
                            local_leaves(&mut client).into_iter().map(|(_, leaf)| leaf).collect();
                        let dealt: Vec<u32> =
                            (0..partitions).filter(|leaf| leaf % nodes == node as u32).collect();
                        assert_eq!(owned, dealt, "leaves are dealt out in turn");
                    }
                }
            }
            let (again, _) = load_on(&cluster, &asked(5_003, 2, Method::Freeze)).unwrap();
            assert_eq!((again.outcome, again.rows, again.totals.rows), (Outcome::AlreadyComplete, 0, 5_003));
        }
    });
}

/// What is on the nodes does not depend on which node the catalog was read from.
#[test]
fn a_plain_connection_finds_the_other_nodes() {
    each_postgres(|installation| {
        let cluster = sharded(installation, 3, 6);
        load_on(&cluster, &asked(700, 3, Method::Copy)).unwrap();
        for entry in cluster.nodes() {
            let found = engines::Cluster::discover(&entry.spec()).unwrap();
            let again =
                load_ycsb_on(&found, &asked(700, 3, Method::Copy), &Stop::new(), &mut Notes::default());
            assert_eq!(again.unwrap().outcome, Outcome::AlreadyComplete);
        }
        let found = engines::Cluster::discover(&cluster.node(1).spec()).unwrap();
        let options = Options { restart: true, partitions: Some(4), ..asked(900, 3, Method::Freeze) };
        load_ycsb_on(&found, &options, &Stop::new(), &mut Notes::default()).unwrap();
        assert_exact_on(&cluster, 900, 4, &spec(1));
    });
}

/// A load is stopped again and again, and leaves move in between: what is loaded stays known although the ledgers stay behind.
#[test]
fn leaves_that_moved_between_two_loads_are_not_loaded_again() {
    each_postgres(|installation| {
        for method in [Method::Copy, Method::Freeze] {
            let (rows, partitions) = (9_001, 6);
            let cluster = sharded(installation, 3, partitions);
            let target = cluster_of(&cluster);
            let options = Options { chunk_rows: Some(150), ..asked(rows, 3, method) };
            let mut clients: Vec<Client> = cluster.nodes().iter().map(|node| connect(&node.spec())).collect();
            for (turn, (leaf, from, to)) in [(1, 1, 2), (3, 0, 1), (1, 2, 0)].into_iter().enumerate() {
                let stop = Stop::new();
                let goal = (turn as i64 + 1) * if method == Method::Copy { 1_500 } else { 1_000 };
                let report = std::thread::scope(|scope| {
                    let loader =
                        scope.spawn(|| load_ycsb_on(&target, &options, &stop, &mut Notes::default()));
                    while !loader.is_finished() {
                        let begun = clients
                            .iter_mut()
                            .all(|client| client.query("select from pgfathom.chunk limit 1", &[]).is_ok());
                        if begun && rows_and_ledgers(&mut clients).1 >= goal {
                            stop.request();
                            break;
                        }
                    }
                    loader.join().unwrap().unwrap()
                });
                assert!(report.outcome == Outcome::Interrupted || turn > 0, "{:?}", report.outcome);
                let (table, ledger) = rows_and_ledgers(&mut clients);
                assert_eq!(table, ledger, "{method} turn {turn}");
                move_leaf(&cluster, partitions, leaf, from, to);
            }
            load_on(&cluster, &options).unwrap();
            assert_exact_on(&cluster, rows, partitions, &spec(1));
            // A leaf that has come back is as good as one that stayed.
            let owned: Vec<u32> = local_leaves(&mut clients[1]).into_iter().map(|(_, leaf)| leaf).collect();
            assert_eq!(owned, [3, 4]);
        }
    });
}

/// The same in the middle of a load: it notices, says so, and goes on with the new owner.
#[test]
fn a_leaf_that_moves_during_a_load_is_followed() {
    each_postgres(|installation| {
        for method in [Method::Copy, Method::Freeze] {
            let (rows, partitions) = (60_007, 12);
            let cluster = sharded(installation, 3, partitions);
            let target = cluster_of(&cluster);
            let options = Options { chunk_rows: Some(400), ..asked(rows, 3, method) };
            let mut notes = Notes::default();
            let report = std::thread::scope(|scope| {
                let loader =
                    scope.spawn(|| load_ycsb_on(&target, &options, &Stop::new(), &mut notes).unwrap());
                let mut client = connect(&cluster.node(0).spec());
                for (turn, (leaf, from, to)) in
                    [(9, 0, 1), (10, 1, 2), (9, 1, 0), (11, 2, 0)].into_iter().enumerate()
                {
                    let wanted = if method == Method::Copy { 5 * (turn + 1) } else { 1 };
                    let count = "select count(*) from pgfathom.chunk";
                    testing::wait_for("so many chunks", || {
                        client.query_one(count, &[]).is_ok_and(|row| row.get::<_, i64>(0) >= wanted as i64)
                    });
                    move_leaf(&cluster, partitions, leaf, from, to);
                }
                loader.join().unwrap()
            });
            assert_eq!((report.outcome, report.totals.rows), (Outcome::Complete, rows), "{method}");
            assert_exact_on(&cluster, rows, partitions, &spec(1));
            let told: Vec<&str> = notes
                .events
                .iter()
                .map(|event| event.message.as_str())
                .filter(|message| {
                    message.contains(" has moved from ") || message.contains(" was detached and ")
                })
                .collect();
            println!("{}: {method}: {told:?}", installation.version);
            assert!(!told.is_empty(), "{method}: it says that it noticed");
        }
    });
}

#[test]
fn segments_of_several_loaders_add_up() {
    each_postgres(|installation| {
        let cluster = sharded(installation, 3, 6);
        for method in [Method::Copy, Method::Freeze] {
            let part = |number| Options {
                segment: Segment::new(number, 3).unwrap(),
                restart: number == 1,
                ..asked(3_001, 3, method)
            };
            let (first, _) = load_on(&cluster, &part(1)).unwrap();
            assert_eq!(first.outcome, Outcome::SegmentComplete);
            assert!(
                first.advice().unwrap().contains("the last segment creates keys"),
                "{:?}",
                first.advice()
            );
            let (third, _) = load_on(&cluster, &part(3)).unwrap();
            assert_eq!(third.outcome, Outcome::SegmentComplete);
            let (again, _) = load_on(&cluster, &Options { restart: false, ..part(1) }).unwrap();
            assert_eq!((again.outcome, again.rows), (Outcome::SegmentComplete, 0));
            let (second, _) = load_on(&cluster, &part(2)).unwrap();
            assert_eq!(second.outcome, Outcome::Complete);
            assert_eq!(first.rows + second.rows + third.rows, 3_001);
            assert_exact_on(&cluster, 3_001, 6, &spec(1));
        }
    });
}

/// The slow way is as exact: also where commits of several nodes were cut in two.
#[test]
fn loading_through_the_entry_node_is_exact_too() {
    each_postgres(|installation| {
        let cluster = sharded(installation, 3, 6);
        let by_entry = Options { via: Some(Via::Connect), ..asked(2_003, 2, Method::Copy) };
        let (report, _) = load_on(&cluster, &by_entry).unwrap();
        assert_eq!((report.outcome, report.rows), (Outcome::Complete, 2_003));
        assert_exact_on(&cluster, 2_003, 6, &spec(1));
        let entry = cluster.node(0);
        assert_eq!(entry.value("select count(*) from pgfathom.pending").unwrap().as_deref(), Some("0"));

        // What a crash of the entry node leaves between the commits of others and its own: rows of some leaves, a note, no ledger row. And a
        // chunk of which nothing has got through.
        entry
            .execute(
                "update pgfathom.dataset set loaded_at = null;
                 insert into pgfathom.pending (dataset, chunk) select dataset, chunk from pgfathom.chunk where chunk in (3, 7);
                 delete from pgfathom.chunk where chunk in (3, 7)",
            )
            .unwrap();
        let table = data::ycsb::Table::new(spec(1));
        let keys = |rows: std::ops::Range<u64>| -> String {
            let keys = rows.map(|row| format!("'{}'", String::from_utf8(table.key(row).to_vec()).unwrap()));
            keys.collect::<Vec<_>>().join(",")
        };
        for node in cluster.nodes() {
            let mut client = connect(&node.spec());
            for (leaf, remainder) in local_leaves(&mut client) {
                let gone = if remainder % 2 == 0 { keys(3 * 97..4 * 97) } else { keys(7 * 97..8 * 97) };
                client.batch_execute(&format!("delete from {leaf} where ycsb_key in ({gone})")).unwrap();
                client
                    .batch_execute(&format!(
                        "delete from {leaf} where ycsb_key in ({})",
                        keys(7 * 97..8 * 97)
                    ))
                    .unwrap();
            }
        }
        let (report, notes) = load_on(&cluster, &by_entry).unwrap();
        assert_eq!((report.outcome, report.rows), (Outcome::Complete, 2 * 97));
        assert_exact_on(&cluster, 2_003, 6, &spec(1));
        let repaired = |chunk: u32| {
            let text = format!("chunk {chunk} was loaded in part through the entry node");
            notes
                .events
                .iter()
                .find(|event| event.message.starts_with(&text))
                .map(|event| event.message.clone())
        };
        assert!(repaired(3).is_some_and(|message| !message.contains(": 0 rows")), "{:?}", repaired(3));
        assert!(repaired(7).is_some_and(|message| message.contains(": 0 rows")), "{:?}", repaired(7));

        let error =
            load_on(&cluster, &Options { restart: true, method: Some(Method::Freeze), ..by_entry.clone() });
        assert!(
            error.unwrap_err().to_string().starts_with("--via connect: rows that an entry node forwards")
        );
        load_on(&cluster, &Options { restart: true, partitions: Some(6), ..asked(10, 2, Method::Copy) })
            .unwrap();
        cluster.node(0).execute("update pgfathom.dataset set loaded_at = null").unwrap();
        let error = load_on(&cluster, &Options { rows: 10, ..by_entry }).unwrap_err();
        assert!(error.to_string().contains("has via owner, but this load specifies connect"), "{error}");
    });
}

#[test]
fn clusters_that_are_not_what_the_ledger_says_are_refused() {
    each_postgres(|installation| {
        let mut cluster = sharded(installation, 3, 6);
        let options = asked(600, 3, Method::Copy);
        let refused = |cluster: &ThrowawayCluster, options: &Options, message: &str, hint: &str| {
            let error = load_on(cluster, options).unwrap_err();
            let mut text = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(inner) = source {
                text.push_str(&format!(": {inner}"));
                source = inner.source();
            }
            assert!(text.contains(message), "{text}");
            assert!(error.hint().unwrap_or_default().contains(hint), "{:?}", error.hint());
        };
        let few = Options { partitions: Some(2), ..options.clone() };
        refused(&cluster, &few, "--partitions: 2 partitions cannot be spread over 3 nodes", "at least 3");
        // A node without a way to another one.
        cluster
            .node(1)
            .execute("alter server n3 rename to gone; alter server gone options (set port '1')")
            .unwrap();
        refused(
            &cluster,
            &options,
            "node n2 failed: node n2 has no foreign server for n3",
            "create server n3",
        );
        let port = cluster.node(2).port();
        cluster.node(1).execute(&format!("alter server gone options (set port '{port}')")).unwrap();
        let nothing = "select count(*) from pg_class where relname like 'usertable%'";
        assert_eq!(
            cluster.node(0).value(nothing).unwrap().as_deref(),
            Some("0"),
            "a refused load leaves nothing"
        );
        // A table of somebody else on one node.
        cluster.node(2).execute("create table usertable_p4 (mine int)").unwrap();
        refused(
            &cluster,
            &options,
            "node n3 failed: usertable_p4 exists and is a table that pgfathom did not make",
            "--force usertable_p4",
        );
        load_on(&cluster, &Options { force: vec!["usertable_p4".into()], ..options.clone() }).unwrap();
        assert_exact_on(&cluster, 600, 6, &spec(1));

        refused(
            &cluster,
            &Options { rows: 700, ..options.clone() },
            "has rows 600, but this load specifies 700",
            "--restart",
        );
        // One node alone is not the cluster.
        let error = load_ycsb(&cluster.node(0).spec(), &options, &Stop::new(), &mut Notes::default());
        let error = error.unwrap_err();
        assert!(error.to_string().contains("has nodes 3 (n1, n2, n3), but this load specifies 1"), "{error}");

        // A restart that was cut short has replaced the dataset on one node.
        for node in cluster.nodes() {
            node.execute("update pgfathom.dataset set loaded_at = null").unwrap();
        }
        cluster.node(1).execute("update pgfathom.dataset set token = token + 1").unwrap();
        refused(&cluster, &options, "the nodes hold different datasets: n1 and n2", "--restart");
        cluster.node(1).execute("update pgfathom.dataset set token = token - 1").unwrap();
        load_on(&cluster, &options).unwrap();

        // A node that has lost everything gets its own leaves again.
        cluster.node(2).execute("drop table usertable; drop schema pgfathom cascade").unwrap();
        let (report, _) = load_on(&cluster, &options).unwrap();
        assert!(report.rows > 0 && report.rows < 600, "{} rows", report.rows);
        assert_exact_on(&cluster, 600, 6, &spec(1));

        // A leaf that is nowhere attached, and one that two nodes own.
        let soon = Options { reconnect_limit: Duration::from_secs(1), ..options.clone() };
        let attach = "attach partition usertable_p2 for values with (modulus 6, remainder 2)";
        cluster.node(2).execute("alter table usertable detach partition usertable_p2").unwrap();
        refused(&cluster, &soon, "usertable_p2 is not a partition on n3", "usertable_p2 on every node");
        cluster.node(2).execute(&format!("alter table usertable {attach}")).unwrap();
        let twice = "begin; alter table usertable detach partition usertable_p2; alter foreign table usertable_p2 rename to aside;
                     create table usertable_p2 (like usertable)";
        cluster.node(0).execute(&format!("{twice}; alter table usertable {attach}; commit")).unwrap();
        refused(&cluster, &soon, "usertable_p2 is a table on n1 and on n3", "usertable_p2 on every node");
        cluster.node(0).execute(&format!("drop table usertable_p2; alter foreign table aside rename to usertable_p2; alter table usertable {attach}")).unwrap();
        load_on(&cluster, &soon).unwrap();
        cluster.node_mut(1).kill9().unwrap();
        refused(&cluster, &options, "node n2 failed", "server");
        cluster.node_mut(1).start_again().unwrap();
        load_on(&cluster, &options).unwrap();
    });
}

/// A node that crashes is waited for while the others go on; one that stays away ends the load, by name.
#[test]
fn a_node_that_goes_away_is_named_and_waited_for() {
    each_postgres(|installation| {
        let mut cluster = sharded(installation, 3, 6);
        let target = cluster_of(&cluster);
        let options = Options { chunk_rows: Some(300), ..asked(60_001, 3, Method::Copy) };
        let mut notes = Notes::default();
        let await_chunks = |cluster: &ThrowawayCluster, node: usize, since: &str, chunks: i64| {
            let mut client = connect(&cluster.node(node).spec());
            let count = format!("select count(*) from pgfathom.chunk where started_at > '{since}'");
            testing::wait_for("so many chunks", || {
                client.query_one(&count, &[]).is_ok_and(|row| row.get::<_, i64>(0) >= chunks)
            });
        };
        let report = std::thread::scope(|scope| {
            let loader = scope.spawn(|| load_ycsb_on(&target, &options, &Stop::new(), &mut notes).unwrap());
            await_chunks(&cluster, 1, "-infinity", 10);
            cluster.node_mut(1).kill9().unwrap();
            let so_far = cluster.node(0).value("select count(*) from pgfathom.chunk").unwrap().unwrap();
            await_chunks(&cluster, 0, "-infinity", so_far.parse::<i64>().unwrap() + 20);
            cluster.node_mut(1).start_again().unwrap();
            loader.join().unwrap()
        });
        assert_eq!((report.outcome, report.totals.rows), (Outcome::Complete, 60_001));
        assert!(report.retries > 0);
        assert_exact_on(&cluster, 60_001, 6, &spec(1));
        let told: Vec<&str> = notes.events.iter().map(|event| event.message.as_str()).collect();
        assert!(told.iter().any(|message| message.contains("stream 1 (n2) lost the connection")), "{told:?}");
        assert!(told.iter().any(|message| message.contains("stream 1 (n2) has reconnected")), "{told:?}");

        let soon = Options { restart: true, reconnect_limit: Duration::from_secs(2), ..options.clone() };
        // The chunks of the load before are there until the tables are made anew.
        let before = cluster.node(2).value("select clock_timestamp()").unwrap().unwrap();
        let error = std::thread::scope(|scope| {
            let loader = scope.spawn(|| load_ycsb_on(&target, &soon, &Stop::new(), &mut Notes::default()));
            await_chunks(&cluster, 2, &before, 5);
            cluster.node_mut(2).kill9().unwrap();
            loader.join().unwrap().unwrap_err()
        });
        assert!(error.to_string() == "node n3 failed", "{error}");
        assert!(matches!(error.innermost(), LoadError::ServerLost { .. }), "{:?}", error.innermost());
        assert!(error.hint().unwrap().contains("same command again"));
        cluster.node_mut(2).start_again().unwrap();
        load_on(&cluster, &options).unwrap();
        assert_exact_on(&cluster, 60_001, 6, &spec(1));
    });
}

#[test]
fn an_interrupted_creation_is_completed() {
    each_postgres(|installation| {
        let cluster = sharded(installation, 3, 6);
        let options = asked(900, 3, Method::Copy);
        load_on(&cluster, &options).unwrap();
        // As if the load had been killed after the first of three commits.
        for node in [1, 2] {
            cluster.node(node).execute("drop table usertable; drop schema pgfathom cascade").unwrap();
        }
        cluster
            .node(0)
            .execute("update pgfathom.dataset set loaded_at = null; delete from pgfathom.chunk")
            .unwrap();
        for (leaf, _) in local_leaves(&mut connect(&cluster.node(0).spec())) {
            cluster.node(0).execute(&format!("truncate {leaf}")).unwrap();
        }
        load_on(&cluster, &options).unwrap();
        assert_exact_on(&cluster, 900, 6, &spec(1));
        let mut client = connect(&cluster.node(0).spec());
        let dataset = ledger::find_dataset(&mut client, ycsb::NAME).unwrap().unwrap();
        let layout = ledger::layout(&mut client, dataset.id).unwrap();
        assert_eq!(layout.nodes, ["n1", "n2", "n3"]);
        assert_ne!(layout.token, 0);
    });
}
