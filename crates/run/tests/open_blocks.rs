//! Scripts that leave a transaction block open, on real servers: what is counted as committed is in the table, and nothing else is.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;
use std::time::Duration;

use lab::throwaway::{Throwaway, installations};
use run::control::StopFlag;
use run::dial::TargetDial;
use run::drive::{Account, DriveError, Observer, Options, Second, drive};
use run::engine::Nanos;
use run::engine::poller::Choice;
use run::schedule::Pace;
use run::script::{Mix, Options as ScriptOptions, Predefined, QueryMode, Source};
use run::workload;
use run::workload::script::Scripts;
use wire::prepared::Wire;

const SESSIONS: u64 = 4;
const ALL: [QueryMode; 3] = [QueryMode::Simple, QueryMode::Extended, QueryMode::Prepared];

/// Runs `test` on every installation, in parallel.
fn on_each(test: impl Fn(Throwaway) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            scope.spawn(move || test(Throwaway::start(installation, &[]).unwrap()));
        }
    });
}

fn scripts(texts: &[&str], mode: QueryMode) -> workload::Mix<Scripts> {
    let name = |at: usize| format!("test{at}");
    let source = |(at, text): (usize, &&str)| Source {
        name: format!("{}.sql", name(at)),
        text: (*text).into(),
        weight: 1,
    };
    let sources: Vec<Source> = texts.iter().enumerate().map(source).collect();
    let mix = Mix::compile(&sources, &ScriptOptions { mode, defines: Vec::new() }).unwrap();
    let predefined = Predefined { client_id: 0, scale: 1, random_seed: 1, default_seed: 1 };
    workload::Mix::of(Scripts::new(Arc::new(mix), mode, predefined)).unwrap()
}

struct Silent;

impl Observer for Silent {
    fn begins(&mut self, _: Nanos) {}
    fn second(&mut self, _: &Second<'_>) {}
}

fn drive_scripts(
    cluster: &Throwaway,
    texts: &[&str],
    mode: QueryMode,
    each: u64,
) -> Result<Account, DriveError> {
    let options = Options {
        mix: scripts(texts, mode),
        sessions: SESSIONS,
        workers: 2,
        pace: Pace::Closed,
        duration: None,
        warmup: Duration::ZERO,
        transactions_per_session: Some(each),
        latency_limit: None,
        tries_max: 10,
        wire: Wire::Libpq,
        poller: Choice::Auto,
        seed: 3,
        connects: Default::default(),
        first_session: 0,
    };
    drive(options, Arc::new(TargetDial::new(cluster.spec())), &StopFlag::default(), &mut Silent)
}

fn rows(cluster: &Throwaway) -> u64 {
    cluster.value("select count(*) from t").unwrap().unwrap().parse().unwrap()
}

fn fresh(cluster: &Throwaway) {
    cluster.execute("drop table if exists t; create table t (x int)").unwrap();
}

#[test]
fn a_script_that_ends_inside_a_transaction_block_aborts_its_sessions_and_commits_nothing() {
    let extended = &[QueryMode::Extended, QueryMode::Prepared];
    let cases: [(&str, &[QueryMode]); 9] = [
        ("BEGIN;\nINSERT INTO t VALUES (1);\n", &ALL),
        ("BEGIN; INSERT INTO t VALUES (1);", &ALL),
        (
            "start transaction isolation level serializable;\nINSERT INTO t VALUES (1) RETURNING x \\gset\n",
            &ALL,
        ),
        ("BEGIN \\; INSERT INTO t VALUES (1);\n", &ALL[..1]),
        ("BEGIN;\nINSERT INTO t VALUES (1);\nSAVEPOINT s;\nRELEASE s;\nSAVEPOINT r;\nROLLBACK TO r;\n", &ALL),
        ("BEGIN;\nINSERT INTO t VALUES (1);\n\\if false\nCOMMIT;\n\\endif\n", &ALL),
        ("BEGIN;\nINSERT INTO t VALUES (1);\nROLLBACK;\nBEGIN;\nINSERT INTO t VALUES (1);\n", &ALL),
        ("\\startpipeline\nBEGIN;\nINSERT INTO t VALUES (1);\n\\endpipeline\n", extended),
        (
            "\\startpipeline\nBEGIN;\n\\syncpipeline\nINSERT INTO t VALUES (1);\n\\endpipeline\n\\sleep 1 ms\n",
            extended,
        ),
    ];
    on_each(|cluster| {
        for (text, modes) in cases {
            for mode in modes {
                fresh(&cluster);
                let account = drive_scripts(&cluster, &[text], *mode, 50).unwrap();
                let measured = &account.posted.measured;
                assert_eq!((measured.transactions(), measured.failed()), (0, SESSIONS), "{text} {mode:?}");
                assert_eq!(account.aborted, SESSIONS, "{text} {mode:?}");
                let error = &account.posted.errors[0];
                assert_eq!((error.sqlstate.as_str(), error.count), ("25000", SESSIONS), "{text} {mode:?}");
                let expected = "test0: end of script reached without completing the last transaction";
                assert_eq!(error.first_message, expected);
                assert_eq!(rows(&cluster), 0, "{text} {mode:?}");
            }
        }
    });
}

#[test]
fn what_one_session_or_one_script_leaves_open_does_not_stop_the_others() {
    on_each(|cluster| {
        for mode in ALL {
            fresh(&cluster);
            let text = "\\if :client_id = 2\nBEGIN;\n\\endif\nINSERT INTO t VALUES (:client_id);\n";
            let account = drive_scripts(&cluster, &[text], mode, 25).unwrap();
            let measured = &account.posted.measured;
            assert_eq!((measured.transactions(), measured.failed()), (25 * (SESSIONS - 1), 1), "{mode:?}");
            assert_eq!((account.aborted, rows(&cluster)), (1, measured.transactions()), "{mode:?}");
            // BEGIN in one script, COMMIT in another: the first of them ends its session.
            fresh(&cluster);
            let halves = ["BEGIN;\nINSERT INTO t VALUES (1);\n", "COMMIT;\n"];
            let account = drive_scripts(&cluster, &halves, mode, 50).unwrap();
            assert_eq!((account.aborted, rows(&cluster)), (SESSIONS, 0), "{mode:?}");
            // A chain never ends: what was committed before the end of the script is, and is not counted.
            let chain = "BEGIN;\nINSERT INTO t VALUES (1);\nCOMMIT AND CHAIN;\nINSERT INTO t VALUES (2);\n";
            let account = drive_scripts(&cluster, &[chain], mode, 50).unwrap();
            assert_eq!((account.posted.measured.transactions(), account.aborted), (0, SESSIONS), "{mode:?}");
            assert_eq!(rows(&cluster), SESSIONS, "{mode:?}");
        }
    });
}

#[test]
fn a_script_that_fails_inside_a_pipeline_commits_nothing_and_stays_in_step() {
    let plain =
        "\\startpipeline\nINSERT INTO t VALUES (1);\n\\set x 1 / (:client_id - :client_id)\n\\endpipeline\n";
    let synced = "\\startpipeline\nINSERT INTO t VALUES (1);\n\\syncpipeline\nINSERT INTO t VALUES (2);\n\
        \\set x 1 / (:client_id - :client_id)\n\\endpipeline\n";
    let block = "\\startpipeline\nBEGIN;\nINSERT INTO t VALUES (2);\n\\set x 1 / (:client_id - :client_id)\nCOMMIT;\n\\endpipeline\n";
    on_each(|cluster| {
        for (text, ones) in [(plain, 0), (synced, 20 * SESSIONS), (block, 0)] {
            for mode in [QueryMode::Extended, QueryMode::Prepared] {
                fresh(&cluster);
                let account = drive_scripts(&cluster, &[text], mode, 20).unwrap();
                let measured = &account.posted.measured;
                assert_eq!((measured.transactions(), measured.failed()), (0, 20 * SESSIONS), "{text}");
                assert_eq!(account.posted.errors[0].sqlstate.as_str(), "22000", "{text}");
                assert_eq!((account.aborted, account.lost), (0, 0), "{text}");
                assert_eq!(rows(&cluster), ones, "{text}");
                // Its neighbour in the mix reads its own replies, not those that were left behind.
                fresh(&cluster);
                let reader = "SELECT 41 + 1 AS n \\gset\n\\if :n <> 42\n\\set broken 1 / 0\n\\endif\n";
                let account = drive_scripts(&cluster, &[text, reader], mode, 50).unwrap();
                let types = &account.posted.measured.types;
                assert!(types[1].transactions > 0 && types[1].failed == 0, "{text}");
            }
        }
    });
}

#[test]
fn a_statement_with_other_parameters_than_variables_is_refused_with_its_place() {
    on_each(|cluster| {
        fresh(&cluster);
        for (text, counts) in [
            ("SELECT 1;\nDROP TABLE IF EXISTS t_:client_id;\n", ""),
            (
                "SELECT 1;\nCREATE VIEW v AS SELECT :client_id AS n;\n",
                "has 1 variable, but the server expects 0",
            ),
            ("SELECT 1;\nDO 'begin end' ;\nSELECT $1::int;\n", "has no variable, but the server expects 1"),
            ("SELECT 1;\nSELECT :client_id::int, $2::int;\n", "has 1 variable, but the server expects 2"),
            ("CREATE TEMP TABLE made (x int);\nSELECT * FROM made;\n", "does not exist"),
            // Text would not help these.
            ("SELECT 1;\nSELEC 1;\n", "syntax error"),
            ("SELECT 1;\nSELECT * FROM nowhere;\n", "does not exist"),
            ("SELECT 1;\nCALL nowhere(:client_id);\n", "does not exist"),
        ] {
            let error = drive_scripts(&cluster, &[text], QueryMode::Prepared, 10).unwrap_err();
            let DriveError::Failed(failure) = error else { panic!("{text}: {error}") };
            let line = text.lines().count();
            assert!(failure.message.starts_with(&format!("test0.sql:{line}: ")), "{}", failure.message);
            assert!(failure.message.contains(counts), "{text}: {}", failure.message);
            let is_cured = !text.contains("SELEC 1") && !text.contains("nowhere");
            assert_eq!(
                failure.hint.as_ref().is_some_and(|hint| hint.contains("-M simple")),
                is_cured,
                "{failure:?}"
            );
        }
        // What it was refused for works as text.
        let ddl = "CREATE TABLE t_:client_id (x int);\nINSERT INTO t_:client_id VALUES (1);\nDROP TABLE t_:client_id;\n";
        let account = drive_scripts(&cluster, &[ddl], QueryMode::Simple, 10).unwrap();
        assert_eq!((account.posted.measured.transactions(), account.posted.errors.len()), (10 * SESSIONS, 0));
    });
}
