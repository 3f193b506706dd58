//! Loading into every PostgreSQL found: shapes, resuming, refusals.

use crate::support;
use connect::conninfo::SslMode;
use load::{LoadError, Method, Outcome, Stop, StopLevel};
use support::{Notes, Options, assert_exact, connect, each_postgres, load, load_ycsb, options, spec, start};
use workloads::ycsb::dataset as ycsb;

#[test]
fn any_shape_loads_exactly_by_both_methods() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        for method in [Method::Copy, Method::Freeze] {
            for (rows, partitions, streams) in [
                (0, 0, 2),
                (0, 3, 2),
                (1, 0, 1),
                (1, 1, 4),
                (1, 8, 2),
                (2, 3, 3),
                (996, 1, 2),
                (1_009, 3, 2),
                (1_013, 8, 1),
                (1_999, 70, 3),
            ] {
                let asked =
                    Options { method: Some(method), streams, restart: true, ..options(rows, partitions) };
                let mut notes = Notes::default();
                let report = load_ycsb(&target, &asked, &Stop::new(), &mut notes).unwrap();
                assert_eq!(report.outcome, Outcome::Complete, "{method} {rows} rows {partitions} partitions");
                assert_eq!((report.rows, report.totals.rows, report.retries), (rows, rows, 0));
                assert_eq!(report.chunks, report.chunks_total);
                assert_eq!(report.bytes, rows * 1022);
                assert_exact(&target, rows, partitions, &spec(1), true);
                // The samples are the progress: they sum up to what was done.
                assert_eq!(notes.samples.iter().map(|sample| sample.rows).sum::<u64>(), rows);
                assert_eq!(notes.samples.iter().map(|sample| sample.chunks).sum::<u64>(), report.chunks);
                let phases: Vec<&str> = notes
                    .events
                    .iter()
                    .filter(|event| event.kind == record::event::PHASE)
                    .map(|event| event.message.as_str())
                    .collect();
                assert_eq!(phases, ["schema", "copy", "index", "analyze"]);
                assert_eq!(notes.last.unwrap().rows_done, rows);
            }
        }
    });
}

#[test]
fn a_complete_dataset_is_left_alone() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        let first = load(&target, &options(500, 3)).unwrap();
        assert!(first.table_bytes_on_disk > 500 * 1022 && first.index_bytes_on_disk > 0);
        assert!(first.bytes_per_row_on_disk().unwrap() > 1022.0);
        assert!(first.wal_bytes.unwrap() > 500 * 1022, "method copy is logged");
        let again = load(&target, &Options { partitions: None, ..options(500, 0) }).unwrap();
        assert_eq!((again.outcome, again.rows, again.totals.rows), (Outcome::AlreadyComplete, 0, 500));
        assert_eq!(again.dataset, first.dataset);
        assert_eq!(again.advice(), None);
        assert_exact(&target, 500, 3, &spec(1), true);
    });
}

#[test]
fn another_dataset_is_refused_and_restart_replaces_it() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        load(&target, &options(500, 3)).unwrap();
        let other_seed = Options { spec: spec(2), ..options(500, 3) };
        let error = load(&target, &other_seed).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the dataset ycsb in this database has seed 1, but this load specifies 2"
        );
        assert!(error.hint().unwrap().contains("--seed 1") && error.hint().unwrap().contains("--restart"));
        let error = load(&target, &options(501, 3)).unwrap_err();
        assert!(error.to_string().contains("has rows 500, but this load specifies 501"), "{error}");
        let error = load(&target, &options(500, 4)).unwrap_err();
        assert!(error.to_string().contains("has partitions 3, but this load specifies 4"), "{error}");
        assert_exact(&target, 500, 3, &spec(1), true);

        load(&target, &Options { restart: true, ..other_seed }).unwrap();
        assert_exact(&target, 500, 3, &spec(2), true);
        load(&target, &Options { restart: true, ..options(77, 0) }).unwrap();
        assert_exact(&target, 77, 0, &spec(1), true);
    });
}

#[test]
fn foreign_tables_are_refused_unless_named() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        let mut client = connect(&target);
        client.batch_execute("create table usertable (mine int); insert into usertable values (1)").unwrap();
        let error = load(&target, &options(50, 0)).unwrap_err();
        assert_eq!(error.to_string(), "usertable exists and is a table that pgfathom did not make");
        assert!(error.hint().unwrap().contains("--force usertable"));
        // A restart is no permission either, and nothing of the attempt remains.
        let error = load(&target, &Options { restart: true, ..options(50, 0) }).unwrap_err();
        assert!(matches!(error, LoadError::ForeignTable { .. }), "{error}");
        let error =
            load(&target, &Options { force: vec!["usertable_p0".into()], ..options(50, 0) }).unwrap_err();
        assert!(matches!(error, LoadError::ForeignTable { .. }), "{error}");
        let kept: i64 = client.query_one("select count(mine) from usertable", &[]).unwrap().get(0);
        assert_eq!(kept, 1);
        let schemas = client.query("select from pg_namespace where nspname = 'pgfathom'", &[]).unwrap();
        assert!(schemas.is_empty(), "a refused load leaves no ledger");

        load(&target, &Options { force: vec!["usertable".into()], ..options(50, 0) }).unwrap();
        assert_exact(&target, 50, 0, &spec(1), true);

        // A table of the user's that took the place of ours is foreign too, and so is a view under a leaf's name.
        client.batch_execute("drop table usertable; create table usertable (mine int)").unwrap();
        let error = load(&target, &options(50, 0)).unwrap_err();
        assert!(matches!(error, LoadError::ChangedTable { .. }), "{error}");
        let error = load(&target, &Options { restart: true, ..options(50, 0) }).unwrap_err();
        assert!(matches!(error, LoadError::ForeignTable { .. }), "{error}");
        client.batch_execute("drop table usertable; create view usertable_p1 as select 1").unwrap();
        let error = load(&target, &Options { restart: true, ..options(50, 2) }).unwrap_err();
        assert_eq!(error.to_string(), "usertable_p1 exists and is a view that pgfathom did not make");
        client.batch_execute("drop view usertable_p1; create sequence usertable_p1").unwrap();
        let force = vec!["usertable_p1".to_owned()];
        let error = load(&target, &Options { restart: true, force, ..options(50, 2) }).unwrap_err();
        assert!(error.to_string().contains("is a sequence") && !error.hint().unwrap().contains("--force"));
    });
}

#[test]
fn a_foreign_schema_and_other_ledger_versions_are_refused() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        let mut client = connect(&target);
        client.batch_execute("create schema pgfathom").unwrap();
        let error = load(&target, &options(5, 0)).unwrap_err();
        assert!(matches!(error, LoadError::ForeignSchema { is_empty: true }), "{error}");
        client.batch_execute("comment on schema pgfathom is 'pgfathom ledger 3: from the future'").unwrap();
        let error = load(&target, &options(5, 0)).unwrap_err();
        assert!(matches!(error, LoadError::LedgerVersion { found: 3, known: 2 }), "{error}");
        client.batch_execute("drop schema pgfathom").unwrap();
        load(&target, &options(5, 0)).unwrap();
        client.batch_execute("set search_path = ''").unwrap();
        client.batch_execute("alter role postgres set search_path = nowhere").unwrap();
        // What is there needs no schema for new tables.
        assert_eq!(load(&target, &options(5, 0)).unwrap().outcome, Outcome::AlreadyComplete);
        let error = load(&target, &Options { restart: true, ..options(5, 0) }).unwrap_err();
        assert!(matches!(error, LoadError::NoSchema), "{error}");
    });
}

/// What an older pgfathom left is continued: its ledger gets the new columns, its chunks stay what they are.
#[test]
fn a_ledger_of_version_1_is_read_and_continued() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        load(&target, &options(2_000, 3)).unwrap();
        let mut client = connect(&target);
        let chunk = "select leaf is not null and leaves is null from pgfathom.chunk limit 1";
        client
            .batch_execute(
                "alter table pgfathom.dataset drop column token, drop column nodes, drop column via,
                     drop column tablespaces, drop column unlogged;
                 alter table pgfathom.chunk drop constraint chunk_pkey, drop column leaf, drop column leaves,
                     add primary key (dataset, chunk);
                 drop table pgfathom.progress, pgfathom.pending, pgfathom.unlogged;
                 comment on schema pgfathom is 'pgfathom ledger 1: of an older program';
                 update pgfathom.dataset set loaded_at = null",
            )
            .unwrap();
        let found = load::ledger::find_dataset(&mut client, ycsb::NAME).unwrap().unwrap();
        assert!(!found.loaded, "an old ledger can be read as it is");
        assert_eq!(load::ledger::layout(&mut client, found.id).unwrap(), load::ledger::Layout::default());
        assert_eq!(load::ledger::chunk_totals(&mut client, found.id).unwrap().rows, 2_000);
        assert!(client.query_one(chunk, &[]).is_err(), "reading upgrades nothing");
        let report = load(&target, &options(2_000, 3)).unwrap();
        assert_eq!((report.outcome, report.rows), (Outcome::Complete, 0));
        assert!(client.query_one(chunk, &[]).unwrap().get::<_, bool>(0));
        assert_exact(&target, 2_000, 3, &spec(1), true);
    });
}

#[test]
fn changed_tables_are_not_continued() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        load(&target, &options(300, 4)).unwrap();
        let mut client = connect(&target);
        client.batch_execute("alter table usertable detach partition usertable_p2").unwrap();
        let error = load(&target, &options(300, 4)).unwrap_err();
        assert!(error.to_string().starts_with("usertable_p2: it is no longer the same partition"), "{error}");
        client.batch_execute("drop table usertable_p2").unwrap();
        let error = load(&target, &options(300, 4)).unwrap_err();
        assert!(error.to_string().starts_with("usertable_p2: the table no longer exists"), "{error}");
        load(&target, &Options { restart: true, ..options(300, 4) }).unwrap();
        assert_exact(&target, 300, 4, &spec(1), true);
    });
}

#[test]
fn names_and_schemas_that_need_quoting_work() {
    each_postgres(|installation| {
        let cluster = start(installation);
        cluster.execute("create schema \"My \"\"odd\"\" schema\"").unwrap();
        cluster.execute("alter role postgres set search_path = \"My \"\"odd\"\" schema\"").unwrap();
        for method in [Method::Copy, Method::Freeze] {
            let asked = Options { method: Some(method), restart: true, ..options(400, 3) };
            load(&cluster.spec(), &asked).unwrap();
            assert_exact(&cluster.spec(), 400, 3, &spec(1), true);
        }
    });
}

#[test]
fn a_stop_ends_exact_and_the_next_load_continues() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        for method in [Method::Copy, Method::Freeze] {
            for level in [StopLevel::Drain, StopLevel::Now] {
                let asked = Options {
                    method: Some(method),
                    restart: true,
                    streams: 2,
                    chunk_rows: Some(2_000),
                    ..options(30_000, 5)
                };
                let stop = Stop::new();
                let report = std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(std::time::Duration::from_millis(150));
                        stop.request_level(level);
                    });
                    load_ycsb(&target, &asked, &stop, &mut Notes::default()).unwrap()
                });
                let mut client = connect(&target);
                let there: i64 = client.query_one("select count(*) from usertable", &[]).unwrap().get(0);
                assert_eq!(there as u64, report.totals.rows, "rows are those of the ledger at once");
                if report.outcome == Outcome::Interrupted {
                    assert!(report.advice().unwrap().contains("run the same command again"));
                }
                let report = load(&target, &Options { restart: false, ..asked }).unwrap();
                assert!(matches!(report.outcome, Outcome::Complete | Outcome::AlreadyComplete));
                assert_exact(&target, 30_000, 5, &spec(1), true);
            }
        }
    });
}

#[test]
fn two_loaders_at_once_end_exact() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        for method in [Method::Copy, Method::Freeze] {
            load(&target, &Options { restart: true, ..options(10, 0) }).unwrap();
            let asked = Options { method: Some(method), streams: 3, ..options(5_003, 7) };
            // The first creates the dataset, so that `--restart` of the second does not throw away its work.
            load::ledger::find_dataset(&mut connect(&target), "ycsb").unwrap();
            cluster.execute("drop table usertable; drop schema pgfathom cascade").unwrap();
            let reports: Vec<_> = std::thread::scope(|scope| {
                let loaders: Vec<_> =
                    (0..3).map(|_| scope.spawn(|| load(&target, &asked).unwrap())).collect();
                loaders.into_iter().map(|loader| loader.join().unwrap()).collect()
            });
            for report in &reports {
                assert_eq!(report.totals.rows, 5_003);
            }
            // Each reports what it has committed itself, not what it found done.
            let own: u64 = reports.iter().map(|report| report.chunks).sum();
            assert_eq!(own, reports[0].totals.chunks, "{method:?}");
            assert_exact(&target, 5_003, 7, &spec(1), true);
        }
    });
}

#[test]
fn a_loader_whose_dataset_is_started_over_stops_and_harms_nothing() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        let old = Options { streams: 1, chunk_rows: Some(50), ..options(20_000, 3) };
        std::thread::scope(|scope| {
            let loader = scope.spawn(|| load(&target, &old));
            // Wait until it is at work.
            let mut client = connect(&target);
            testing::wait_for("four chunks", || {
                let chunks = client.query_one("select count(*) from pgfathom.chunk", &[]);
                chunks.is_ok_and(|row| row.get::<_, i64>(0) > 3)
            });
            let fresh = Options { spec: spec(9), restart: true, ..options(1_000, 3) };
            load(&target, &fresh).unwrap();
            let error = loader.join().unwrap().unwrap_err();
            assert!(matches!(error, LoadError::Restarted), "{error}");
        });
        assert_exact(&target, 1_000, 3, &spec(9), true);
    });
}

#[test]
fn a_freeze_load_is_frozen_and_writes_no_wal_when_the_server_allows() {
    each_postgres(|installation| {
        let settings = [("wal_level", "minimal"), ("max_wal_senders", "0")];
        let cluster = lab::throwaway::Throwaway::start(installation, &settings).unwrap();
        let target = cluster.spec();
        let rows = 20_011;
        let asked = Options { method: Some(Method::Freeze), ..options(rows, 4) };
        let report = load(&target, &asked).unwrap();
        assert_exact(&target, rows, 4, &spec(1), true);
        let wal = report.wal_bytes.unwrap();
        assert!(wal < report.bytes / 10, "{wal} bytes of WAL for {} bytes of rows", report.bytes);
        let mut client = connect(&target);
        client.batch_execute("create extension if not exists pg_visibility").unwrap();
        for leaf in 0..4 {
            // Pages that the server has allocated ahead hold no rows, so there is nothing on them to freeze.
            let frozen = client
                .query_one(
                    &format!(
                        "select bool_and(all_frozen) from pg_visibility_map('usertable_p{leaf}')
                         where blkno in (select (ctid::text::point)[0]::bigint from usertable_p{leaf})"
                    ),
                    &[],
                )
                .unwrap();
            assert!(frozen.get::<_, bool>(0), "every page of leaf {leaf} is frozen");
        }
        let copied = load(&target, &Options { restart: true, ..options(rows, 4) }).unwrap();
        assert!(copied.wal_bytes.unwrap() > copied.bytes, "method copy is logged");
    });
}

#[test]
fn the_server_is_asked_for_its_routing_before_a_row_is_sent() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        load(&target, &options(100, 3)).unwrap();
        let mut client = connect(&target);
        let dataset = |rows| ycsb::Ycsb::new(rows, spec(1));
        load::route::self_test(&mut client, "public.usertable", &dataset(1 << 40), 0, 3).unwrap();
        // A table of another number of partitions must be noticed.
        client
            .batch_execute(
                "create table other (ycsb_key varchar(64)) partition by hash (ycsb_key);
                 create table other_0 partition of other for values with (modulus 3, remainder 0)",
            )
            .unwrap();
        client
            .batch_execute(
                "create collation if not exists odd (provider = icu, locale = 'und', deterministic = false)",
            )
            .expect("ICU");
        client
            .batch_execute(
                "create table strange (ycsb_key varchar(64) collate odd) partition by hash (ycsb_key);
                 create table strange_0 partition of strange for values with (modulus 3, remainder 0)",
            )
            .unwrap();
        let error = load::route::self_test(&mut client, "strange", &dataset(1000), 0, 3).unwrap_err();
        let LoadError::Routing { wrong, tried, .. } = &error else { panic!("{error}") };
        assert!(*wrong > 0 && *tried == load::route::SELF_TEST_KEYS, "{error}");
    });
}

#[test]
fn writers_get_numbers_of_their_own() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        let dataset = load(&target, &options(10, 0)).unwrap().dataset;
        let mut client = connect(&target);
        assert_eq!(load::ledger::writers(&mut client, &dataset).unwrap(), []);
        let numbers: Vec<u16> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        load::ledger::create_writer(&mut connect(&target), &dataset, "{\"mix\": \"a\"}")
                            .unwrap()
                    })
                })
                .collect();
            let mut numbers: Vec<u16> = runs.into_iter().map(|run| run.join().unwrap()).collect();
            numbers.sort_unstable();
            numbers
        });
        assert_eq!(numbers, [1, 2, 3, 4]);
        load::ledger::finish_writer(&mut client, &dataset, 2, &[7, 0, u64::from(u32::MAX)]).unwrap();
        let writers = load::ledger::writers(&mut client, &dataset).unwrap();
        assert_eq!(writers.len(), 4);
        assert!(writers[1].finished && !writers[0].finished);
        assert_eq!(writers[1].transactions, [7, 0, u64::from(u32::MAX)]);
        assert!(writers[0].transactions.is_empty() && writers[0].spec.contains("mix"));
        load(&target, &Options { restart: true, ..options(10, 0) }).unwrap();
        let error = load::ledger::finish_writer(&mut client, &dataset, 3, &[]).unwrap_err();
        assert!(matches!(error, LoadError::Restarted), "{error}");
    });
}

#[test]
fn more_streams_than_the_server_has_room_for_are_refused_at_once() {
    each_postgres(|installation| {
        let settings = [("max_connections", "10"), ("max_wal_senders", "0")];
        let cluster = lab::throwaway::Throwaway::start(installation, &settings).unwrap();
        let error = load(&cluster.spec(), &Options { streams: 30, ..options(20_000, 0) }).unwrap_err();
        assert!(error.to_string().contains("too many clients"), "{error}");
        assert!(error.hint().unwrap().contains("-j"), "{:?}", error.hint());
        load(&cluster.spec(), &options(20_000, 0)).unwrap();
        assert_exact(&cluster.spec(), 20_000, 0, &spec(1), true);
    });
}

#[test]
fn settings_of_the_role_and_encodings_do_not_matter() {
    each_postgres(|installation| {
        let cluster = start(installation);
        cluster.execute("create role troubled superuser login").unwrap();
        for (name, value) in [
            ("statement_timeout", "300ms"),
            ("lock_timeout", "1ms"),
            ("idle_in_transaction_session_timeout", "1ms"),
            ("default_transaction_isolation", "serializable"),
            ("default_transaction_deferrable", "on"),
            ("client_min_messages", "debug5"),
            ("maintenance_work_mem", "1MB"),
        ] {
            cluster.execute(&format!("alter role troubled set {name} = '{value}'")).unwrap();
        }
        for encoding in ["UTF8", "LATIN1", "SQL_ASCII"] {
            let name = format!("in_{}", encoding.to_lowercase());
            cluster
                .execute(&format!("create database {name} encoding '{encoding}' template template0"))
                .unwrap();
            let target = cluster.spec().with_dbname(&name);
            // A schema whose name is other bytes in other encodings; SQL_ASCII has no idea of letters.
            let schema = if encoding == "SQL_ASCII" { "plain" } else { "größe" };
            let mut client = connect(&target);
            client.batch_execute(&format!("create schema \"{schema}\"")).unwrap();
            for path in [schema, "public"] {
                client.batch_execute(&format!("alter database {name} set search_path = \"{path}\"")).unwrap();
                for method in [Method::Copy, Method::Freeze] {
                    let asked = Options {
                        method: Some(method),
                        restart: true,
                        streams: 3,
                        chunk_rows: Some(500),
                        ..options(3_001, 3)
                    };
                    let report = load(&target.clone().with_user("troubled"), &asked).unwrap();
                    assert_eq!(report.dataset.schema_name, path);
                    assert_exact(&target, 3_001, 3, &spec(1), true);
                }
            }
        }
    });
}

#[test]
fn tcp_and_tls_carry_a_load_too() {
    each_postgres(|installation| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let cluster = lab::throwaway::Options {
            settings: vec![("ssl".into(), "on".into())],
            tcp: true,
            hba: Some("local all all trust\nhost all all 127.0.0.1/32 trust\n".into()),
            files: vec![
                ("server.crt".into(), made.cert.pem().into_bytes()),
                ("server.key".into(), made.signing_key.serialize_pem().into_bytes()),
            ],
            ..Default::default()
        }
        .start(installation)
        .unwrap();
        for (sslmode, encrypted) in [(SslMode::Disable, false), (SslMode::Require, true)] {
            let mut target = cluster.spec_tcp();
            target.sslmode = sslmode;
            for method in [Method::Copy, Method::Freeze] {
                let asked = Options {
                    method: Some(method),
                    restart: true,
                    chunk_rows: Some(700),
                    ..options(20_011, 3)
                };
                // The streams' own connections are looked at while they work.
                let links = std::thread::scope(|scope| {
                    let loader = scope.spawn(|| load(&target, &asked).unwrap());
                    let mut client = connect(&cluster.spec());
                    let mut links = std::collections::BTreeSet::new();
                    while !loader.is_finished() {
                        let rows = client
                            .query(
                                "select s.ssl from pg_stat_ssl s join pg_stat_activity a using (pid)
                                 where a.client_addr is not null and a.query like 'copy %'",
                                &[],
                            )
                            .unwrap();
                        links.extend(rows.iter().map(|row| row.get::<_, bool>(0)));
                    }
                    loader.join().unwrap();
                    links
                });
                assert_eq!(links.into_iter().collect::<Vec<_>>(), [encrypted], "{sslmode:?} {method}");
                assert_exact(&target, 20_011, 3, &spec(1), true);
            }
        }
    });
}
