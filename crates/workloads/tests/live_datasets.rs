//! Datasets on live servers: loaded with every flag, killed and resumed, used by `pgbench`, damaged and found out.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::process::Command;
use std::time::Duration;

use connect::ConnSpec;
use connect::conninfo::Sources;
use engines::Cluster;
use lab::throwaway::{Installation, Throwaway, ThrowawayCluster, installations};
use load::dataset::Dataset;
use load::progress::LoadEvent;
use load::verify::{Method as Way, Subject, Verdict, VerifyOptions, VerifyReport};
use load::{LoadError, LoadReport, Method, Observer, Options, Outcome, Progress, Segment, Stop, Via};
use postgres::Client;
use record::ProgressSample;
use workloads::documents::Documents;
use workloads::tpcb::Tpcb;
use workloads::tpcc::Tpcc;

fn each_postgres(test: impl Fn(&Installation) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL found: run scripts/install-deps");
    found.iter().for_each(test);
}

/// Nothing here depends on plans, and ANALYZE reads 300 rows for each unit of this.
const SETTINGS: [(&str, &str); 1] = [("default_statistics_target", "10")];

fn start(installation: &Installation) -> Throwaway {
    Throwaway::start(installation, &SETTINGS).expect("a throwaway cluster starts")
}

fn client(target: &ConnSpec) -> Client {
    connect::control::connect(target).expect("the cluster accepts connections").into_client()
}

struct Quiet;

impl Observer for Quiet {
    fn progress(&mut self, _: &Progress, _: &ProgressSample, _: Duration) {}
    fn event(&mut self, _: &LoadEvent) {}
}

fn options() -> Options {
    Options { streams: 3, ..Options::new() }
}

fn load_on(cluster: &Cluster, dataset: &dyn Dataset, options: &Options) -> Result<LoadReport, LoadError> {
    load::load(cluster, dataset, options, &Stop::new(), &mut Quiet)
}

fn verify_on(cluster: &Cluster, dataset: &dyn Dataset, deep: bool) -> VerifyReport {
    let registration = workloads::dataset::named(dataset.name()).unwrap();
    let subject = Subject { name: registration.name, find: &|client| registration.find(client) };
    load::verify::run(cluster, &subject, &VerifyOptions::new(deep, 2, &Stop::new()), &mut |_| {}).unwrap()
}

/// Exact both ways, with all rows of the load.
fn assert_exact(cluster: &Cluster, dataset: &dyn Dataset) {
    assert_exact_in(cluster, dataset, &[(false, Way::Fast), (true, Way::Deep)]);
}

fn assert_exact_in(cluster: &Cluster, dataset: &dyn Dataset, ways: &[(bool, Way)]) {
    for &(deep, way) in ways {
        let report = verify_on(cluster, dataset, deep);
        assert_eq!(report.verdict(), Verdict::Exact, "{report:?}");
        assert_eq!((report.method, report.rows_found), (way, report.rows_expected), "{report:?}");
        assert!(report.rows_expected >= dataset.rows());
    }
}

fn lines(report: &VerifyReport) -> Vec<String> {
    report.differences.iter().map(ToString::to_string).collect()
}

/// Runs the `pgbench` of this machine, of whatever release; `None`: there is none, and the skip is reported.
fn pgbench(server: &Throwaway, arguments: &[&str]) -> Option<()> {
    let program = testing::needs::client_program("pgbench").inspect_err(testing::skip).ok()?;
    let target = server.spec();
    let output = Command::new(program)
        .args(arguments)
        .env("PGHOST", server.socket_dir())
        .env("PGPORT", server.port().to_string())
        .env("PGUSER", &target.user)
        .env("PGDATABASE", &target.dbname)
        .output()
        .expect("pgbench starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

#[test]
fn tpcb_is_what_pgbench_makes_and_pgbench_runs_on_it() {
    each_postgres(|installation| {
        let server = start(installation);
        let target = server.spec();
        let (cluster, dataset) = (Cluster::single(target.clone()), Tpcb::new(1, 1, None));
        let Some(()) = pgbench(&server, &["-i", "-q", "-s", "1"]) else { return };
        let mut sql = client(&target);
        sql.batch_execute(
            "create schema theirs; alter table pgbench_accounts set schema theirs; alter table pgbench_tellers set schema theirs;
             alter table pgbench_branches set schema theirs; alter table pgbench_history set schema theirs",
        )
        .unwrap();
        let report = load_on(&cluster, &dataset, &options()).unwrap();
        assert_eq!((report.outcome, report.rows), (Outcome::Complete, 100_011));
        for table in ["pgbench_accounts", "pgbench_tellers", "pgbench_branches", "pgbench_history"] {
            let differing = format!(
                "select count(*) from ((table {table} except table theirs.{table}) union all (table theirs.{table} except table {table})) as d"
            );
            assert_eq!(sql.query_one(&differing, &[]).unwrap().get::<_, i64>(0), 0, "rows of {table}");
            let definition = |schema: &str| -> String {
                sql_row(
                    &target,
                    &format!(
                        "select string_agg(attname || ' ' || format_type(atttypid, atttypmod) || attnotnull, ', ' order by attnum)
                                || coalesce((select pg_get_constraintdef(oid) from pg_constraint where conrelid = '{schema}.{table}'::regclass and contype = 'p'), '')
                                || coalesce((select reloptions::text from pg_class where oid = '{schema}.{table}'::regclass), '')
                         from pg_attribute where attrelid = '{schema}.{table}'::regclass and attnum > 0"
                    ),
                )
            };
            assert_eq!(definition("public"), definition("theirs"), "{table}");
        }
        assert_exact(&cluster, &dataset);
        pgbench(&server, &["-n", "-c", "2", "-t", "100"]).unwrap();
        let report = verify_on(&cluster, &dataset, false);
        assert_eq!((report.verdict(), report.method), (Verdict::Exact, Way::FastThenDeep), "{report:?}");
        assert!(
            report.updates_accepted > 0 && report.audit.kept[0].contains("in 200 transactions"),
            "{report:?}"
        );
        // A balance that no transaction has made, and a filler that none changes.
        sql.batch_execute("update pgbench_accounts set abalance = abalance + 1 where aid = 7").unwrap();
        let report = verify_on(&cluster, &dataset, false);
        assert_eq!(report.verdict(), Verdict::Different, "{report:?}");
        assert!(report.audit.broken[0].contains("balances of accounts differ"), "{report:?}");
        sql.batch_execute(
            "update pgbench_accounts set abalance = abalance - 1 where aid = 7;
             update pgbench_accounts set filler = 'x' where aid = 99; delete from pgbench_tellers where tid = 4",
        )
        .unwrap();
        let found = lines(&verify_on(&cluster, &dataset, true));
        assert!(found.contains(&"pgbench_tellers where tid = 4: missing".to_owned()), "{found:?}");
        assert!(found.contains(&"pgbench_accounts where aid = 99: filler damaged".to_owned()), "{found:?}");
    });
}

fn sql_row(target: &ConnSpec, query: &str) -> String {
    client(target).query_one(query, &[]).unwrap().get(0)
}

#[test]
fn what_pgbench_breaks_on_purpose_is_not_called_damage() {
    each_postgres(|installation| {
        let server = start(installation);
        let target = server.spec();
        let (cluster, dataset) = (Cluster::single(target.clone()), Tpcb::new(1, 1, Some(90)));
        load_on(&cluster, &dataset, &options()).unwrap();
        let Some(()) = pgbench(&server, &["-n", "-N", "-t", "20"]) else { return };
        let report = verify_on(&cluster, &dataset, false);
        assert_eq!(report.verdict(), Verdict::CannotTell, "{report:?}");
        assert!(report.audit.unknown[0].contains("simple-update"), "{report:?}");
        let other = Tpcb::new(1, 1, None);
        let refused = load_on(&cluster, &other, &options()).unwrap_err();
        assert!(refused.to_string().contains("fill factor 90"), "{refused}");
    });
}

/// What is left for later.
const LARGE_TOO: &str =
    "every loading flag with TPC-C too: what differs from the others is that it has nine tables";

#[test]
fn every_loading_flag_works_for_every_dataset() {
    each_postgres(|installation| {
        let server = start(installation);
        let cluster = Cluster::single(server.spec());
        let sizes = "300..40kB".parse().unwrap();
        let datasets: [Box<dyn Dataset>; 3] = [
            Box::new(Tpcb::new(1, 1, None)),
            Box::new(Documents::new(500, 7, sizes)),
            Box::new(Tpcc::new(2, 1, false, None)),
        ];
        let count = if testing::is_thorough(LARGE_TOO) { datasets.len() } else { datasets.len() - 1 };
        for dataset in &datasets[..count] {
            let dataset = &**dataset;
            let plain =
                Options { restart: true, chunk_rows: Some((dataset.numbers() / 9).max(1)), ..options() };
            let ways = [
                (2, Method::Freeze, true),
                (0, Method::Copy, false),
                (2, Method::Copy, true),
                (0, Method::Freeze, false),
            ];
            // Of the larger ones one way is enough.
            for (partitions, method, unlogged) in
                ways.into_iter().take(if dataset.rows() < 1_000 { 4 } else { 1 })
            {
                let (partitions, method) = (Some(partitions), Some(method));
                let asked =
                    Options { partitions, method, unlogged, keep_free_bytes: Some(1), ..plain.clone() };
                let report = load_on(&cluster, dataset, &asked).unwrap();
                assert_eq!((report.outcome, report.totals.rows), (Outcome::Complete, dataset.rows()));
                assert_exact(&cluster, dataset);
            }
            // Two loaders, each with its share; the last one makes the keys.
            let share = |number: u32, restart: bool| Options {
                segment: Segment::new(number, 2).unwrap(),
                restart,
                ..plain.clone()
            };
            assert_eq!(
                load_on(&cluster, dataset, &share(2, true)).unwrap().outcome,
                Outcome::SegmentComplete
            );
            assert_eq!(load_on(&cluster, dataset, &share(1, false)).unwrap().outcome, Outcome::Complete);
            assert_exact(&cluster, dataset);
            let full = Options { keep_free_bytes: Some(1 << 60), ..plain.clone() };
            assert_eq!(load_on(&cluster, dataset, &full).unwrap().outcome, Outcome::Stopped);
            let rest = Options { restart: false, ..plain };
            assert_eq!(load_on(&cluster, dataset, &rest).unwrap().outcome, Outcome::Complete);
            assert_exact(&cluster, dataset);
        }
    });
}

#[test]
fn a_load_whose_sessions_are_killed_continues_and_ends_exact() {
    each_postgres(|installation| {
        let server = start(installation);
        let target = server.spec();
        let cluster = Cluster::single(target.clone());
        let dataset = Documents::new(200, 3, "100kB..400kB".parse().unwrap());
        let asked = Options { chunk_rows: Some(10), partitions: Some(2), ..options() };
        let report = std::thread::scope(|scope| {
            let loading = scope.spawn(|| load_on(&cluster, &dataset, &asked));
            let mut sql = client(&target);
            let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity where query like 'copy %' and pid <> pg_backend_pid()";
            let mut killed = 0;
            while !loading.is_finished() && killed < 5 {
                killed += sql.query_one(kill, &[]).unwrap().get::<_, i64>(0);
                std::thread::yield_now();
            }
            let report = loading.join().unwrap().unwrap();
            assert!(killed > 0, "no COPY was seen");
            report
        });
        assert_eq!((report.outcome, report.totals.rows), (Outcome::Complete, 200));
        assert!(report.retries > 0);
        assert_exact(&cluster, &dataset);
    });
}

#[test]
fn documents_are_proved_in_every_version_and_damage_is_named() {
    each_postgres(|installation| {
        let server = start(installation);
        let target = server.spec();
        let cluster = Cluster::single(target.clone());
        let dataset = Documents::new(40, 11, "1kB..6MB".parse().unwrap());
        load_on(&cluster, &dataset, &options()).unwrap();
        assert_exact(&cluster, &dataset);
        let mut sql = client(&target);
        let mut write = |id: u64, version: u32| {
            let mut text = Vec::new();
            dataset.content().write(id, version, &mut text);
            let text = String::from_utf8(text).unwrap();
            sql.execute(
                "insert into documents values ($1, $2, $3::text::jsonb)
                 on conflict (doc_id) do update set doc_version = excluded.doc_version, body = excluded.body",
                &[&(id as i64), &(version as i32), &text],
            )
            .unwrap();
        };
        // What a run does: an update, and a document more.
        write(5, 1);
        write(41, 0);
        for deep in [false, true] {
            let report = verify_on(&cluster, &dataset, deep);
            assert_eq!((report.verdict(), report.updates_accepted), (Verdict::Exact, 2), "{report:?}");
        }
        sql.batch_execute(
            "update documents set body = jsonb_set(body, '{rev}', '9') where doc_id = 7; delete from documents where doc_id = 8",
        )
        .unwrap();
        for deep in [false, true] {
            let found = lines(&verify_on(&cluster, &dataset, deep));
            assert_eq!(
                found,
                ["documents where doc_id = 8: missing", "documents where doc_id = 7: body damaged"]
            );
        }
    });
}

/// What is left for later.
const LARGE: &str = "TPC-C on a cluster: the command's test loads one";

#[test]
fn on_a_cluster_every_row_is_where_its_key_belongs() {
    each_postgres(|installation| {
        let nodes = ThrowawayCluster::sharded(installation, 2, 4).expect("a throwaway cluster starts");
        let cluster = Cluster::from_file(nodes.file(), &Sources::of_process()).unwrap();
        let documents = Documents::new(200, 1, "300..3kB".parse().unwrap());
        let (tpcb, tpcc) = (Tpcb::new(1, 1, None), Tpcc::new(2, 1, false, None));
        let datasets: [&dyn Dataset; 3] = [&documents, &tpcb, &tpcc];
        for dataset in datasets {
            for (method, via) in
                [(Method::Copy, Via::Owner), (Method::Freeze, Via::Owner), (Method::Copy, Via::Connect)]
            {
                let is_large = dataset.rows() > 1_000_000;
                if is_large && !testing::is_thorough(LARGE) {
                    continue;
                }
                let asked = Options { restart: true, method: Some(method), via: Some(via), ..options() };
                let report = load_on(&cluster, dataset, &asked).unwrap();
                // Two nodes: a table that every node has whole is there twice.
                let rows = dataset.rows() + dataset.whole_rows();
                assert_eq!((report.outcome, report.totals.rows), (Outcome::Complete, rows));
                assert_exact(&cluster, dataset);
            }
        }
        let seen = "select count(*) from pgbench_accounts";
        for node in nodes.nodes() {
            assert_eq!(client(&node.spec()).query_one(seen, &[]).unwrap().get::<_, i64>(0), 100_000);
        }
    });
}
