//! The scripts of Hermitage on every PostgreSQL found: exactly what the table says, at every level; and the cases that need a cluster.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use crate::local;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use connect::cluster_file::Role;
use connect::poll;
use engines::Engine;
use engines::profile::Isolation;
use lab::local::Topology;
use lab::throwaway::{Installation, Throwaway, ThrowawayCluster, installations};
use prove::fault::{Node, Site};
use prove::hermitage::cluster::{self, Chance};
use prove::hermitage::{Answer, CASES, Case, HermitageError, LEVELS, TABLE, Verdict, run};
use prove::live::LiveError;

/// Nothing stops the scripts.
static RUNS_ON: AtomicBool = AtomicBool::new(false);

/// Runs `test` on every installation, in parallel.
fn on_each(test: impl Fn(&Installation) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            scope.spawn(move || test(installation));
        }
    });
}

#[test]
fn one_server_answers_as_the_table_says() {
    on_each(|installation| {
        let server = Throwaway::start(installation, &[]).unwrap();
        let cases: Vec<&'static Case> = CASES.iter().collect();
        let mut heard = 0;
        let answers =
            run(&server.spec(), Engine::default(), &cases, &LEVELS, &RUNS_ON, &mut |_| heard += 1).unwrap();
        assert_eq!((answers.len(), heard), (42, 42));
        let mut wrong = Vec::new();
        for answer in &answers {
            if Some(answer.line.as_str()) != answer.expected_line || answer.happened != answer.expected {
                wrong.push(format!(
                    "{} {:?}: {} ({:?})",
                    answer.case, answer.level, answer.line, answer.happened
                ));
            }
            assert_ne!(answer.verdict(), Verdict::Broken);
        }
        assert!(wrong.is_empty(), "{}: {wrong:#?}", installation.version);
        // Write skew, where the two levels differ: the one row everybody should know.
        let skew = |level: Isolation| {
            let found = answers.iter().find(|answer| answer.case == "G2-item" && answer.level == Some(level));
            found.unwrap().verdict()
        };
        assert_eq!(skew(Isolation::RepeatableRead), Verdict::ByDesign);
        assert_eq!(skew(Isolation::Serializable), Verdict::Kept);
        // Nothing is left behind, and an unknown engine is not accused of anything.
        assert_eq!(server.value(&format!("select to_regclass('{TABLE}')")).unwrap(), None);
        let p4 = [Case::find("p4").unwrap()];
        let answers =
            run(&server.spec(), Engine::parse("ydb").unwrap(), &p4, &LEVELS[..1], &RUNS_ON, &mut |_| {})
                .unwrap();
        assert_eq!((answers[0].happened, answers[0].expected), (Some(true), None));
        // What is not ours stays as it is.
        server.execute(&format!("create schema pgfathom_prove; create table {TABLE} (mine int); insert into {TABLE} values (7)")).unwrap();
        let refused =
            run(&server.spec(), Engine::default(), &p4, &LEVELS[..1], &RUNS_ON, &mut |_| {}).unwrap_err();
        assert!(matches!(refused, HermitageError::Live(LiveError::Foreign(_))) && refused.hint().is_some());
        assert_eq!(server.value(&format!("select mine from {TABLE}")).unwrap().as_deref(), Some("7"));
    });
}

#[test]
fn a_request_to_stop_ends_after_the_script_that_runs() {
    let installation = installations().pop().expect("a PostgreSQL");
    let server = Throwaway::start(&installation, &[]).unwrap();
    let cases: Vec<&'static Case> = CASES.iter().collect();
    let stop = AtomicBool::new(false);
    let answers = run(&server.spec(), Engine::default(), &cases, &LEVELS, &stop, &mut |answer| {
        stop.store(answer.case == "G1a", Ordering::Relaxed);
    })
    .unwrap();
    let played: Vec<&str> = answers.iter().map(|answer| answer.case).collect();
    assert_eq!(played, ["G0", "G0", "G0", "G1a"]);
    assert_eq!(server.value(&format!("select to_regclass('{TABLE}')")).unwrap(), None);
}

#[test]
fn nobody_else_reaches_the_table_of_the_scripts() {
    on_each(|installation| {
        let server = Throwaway::start(installation, &[]).unwrap();
        let mallory = "create role mallory; alter default privileges grant all on tables to mallory, public; \
                       alter default privileges grant all on schemas to mallory, public;";
        server.execute(mallory).unwrap();
        let p4 = [Case::find("p4").unwrap()];
        let mut looked = 0;
        // Between the scripts the table is there.
        run(&server.spec(), Engine::default(), &p4, &LEVELS, &RUNS_ON, &mut |_| {
            looked += 1;
            let reaches = "select has_schema_privilege('mallory', 'pgfathom_prove', 'usage') or has_schema_privilege('mallory', 'pgfathom_prove', 'create')";
            assert_eq!(server.value(&format!("select ({reaches})::text")).unwrap().as_deref(), Some("false"));
            let attach = format!("set role mallory; create trigger t before update on {TABLE} for each row execute function suppress_redundant_updates_trigger()");
            assert!(server.execute(&attach).is_err());
        })
        .unwrap();
        assert_eq!(looked, 3);
        // Another role's schema with our comment is no schema of ours.
        server
            .execute("create schema pgfathom_prove authorization mallory; comment on schema pgfathom_prove is 'made by pgfathom prove, hermitage'")
            .unwrap();
        let refused =
            run(&server.spec(), Engine::default(), &p4, &LEVELS[..1], &RUNS_ON, &mut |_| {}).unwrap_err();
        assert!(matches!(refused, HermitageError::Live(LiveError::Foreign(_))), "{refused}");
    });
}

/// Every case that a cluster of this kind has. Nothing is left of it, neither on the nodes nor in the journal.
fn play(cluster: &ThrowawayCluster, name: &str) -> Vec<Answer> {
    let (dir, journal) = local::journal(name);
    let site = local::site_of(cluster, &journal);
    let chance = Chance { sums: Duration::from_millis(300), reads: Duration::from_millis(300), seed: 1 };
    let mut heard = 0;
    let answers = cluster::run(&site, &chance, &AtomicBool::new(false), &mut |_| heard += 1).unwrap();
    assert_eq!(answers.len(), heard);
    assert!(journal.open().is_empty(), "{:?}", journal.open());
    for node in cluster.nodes() {
        // A standby drops it a little later than its primary.
        let is_gone =
            || node.value("select to_regnamespace('pgfathom_prove')::text").unwrap().is_none().then_some(());
        poll::until(Duration::from_secs(10), is_gone).expect("nothing is left");
        assert_eq!(node.value("select count(*)::text from pg_prepared_xacts").unwrap().as_deref(), Some("0"));
    }
    drop((site, journal));
    std::fs::remove_dir_all(dir).unwrap();
    for answer in &answers {
        assert_ne!(answer.verdict(), Verdict::Broken, "{answer:#?}");
        assert!(!answer.why.is_empty() && !answer.promise.is_empty(), "{answer:#?}");
    }
    answers
}

/// The answers of one case.
fn of<'a>(answers: &'a [Answer], case: &str) -> Vec<&'a Answer> {
    answers.iter().filter(|answer| answer.case == case).collect()
}

/// Who waits for a detector or a time limit waits less.
const QUICK: (&str, &str) = ("deadlock_timeout", "100ms");

#[test]
fn shards_show_fractures_at_every_level_and_deadlocks_that_nobody_sees() {
    let installation = local::newest();
    let topology = Topology::Sharded { nodes: 2, partitions: 2 };
    let settings = [QUICK, ("max_prepared_transactions", "4")];
    let cluster = ThrowawayCluster::start(&installation, &topology, &settings).unwrap();
    let answers = play(&cluster, "shards");
    let halves = of(&answers, "FR2");
    assert_eq!(halves.len(), 3);
    for answer in halves {
        assert_eq!((answer.happened, answer.verdict()), (Some(true), Verdict::ByDesign), "{answer:#?}");
        assert_eq!(answer.line, "a read 0 here and 10 there, COMMIT; b COMMIT");
        assert!(answer.script[0].contains(" on n1 and ") && answer.script[1].starts_with("a on n1: BEGIN"));
    }
    let sums = of(&answers, "FR");
    assert_eq!(sums.len(), 3);
    for answer in sums {
        let (reads, wrong, _) = answer.counted.unwrap();
        // How many are wrong is up to the machine. At SERIALIZABLE the entry may refuse its own commit after the other node's: then money is lost or made.
        assert!(
            wrong <= reads
                && (answer.level == Some(Isolation::Serializable) || answer.line.ends_with("right")),
            "{answer:#?}"
        );
    }
    let dead = of(&answers, "DD")[0];
    assert!(dead.happened == Some(true) && dead.line.contains("no server detected it"), "{dead:#?}");
    let doubt = of(&answers, "ID")[0];
    assert_eq!(
        doubt.line,
        "b read -10 and 0, and a write to n2 waited; after the transaction was committed on both, -10 and 10"
    );
    assert_eq!(doubt.verdict(), Verdict::ByDesign);
    // A time limit is no detector; it has to be longer than what a detector waits for, or it would prove nothing.
    cluster
        .node(0)
        .execute("alter server n2 options (set options '-c lock_timeout=400ms -c deadlock_timeout=100ms')")
        .unwrap();
    let answers = play(&cluster, "limit");
    assert!(of(&answers, "DD")[0].line.contains("a 55P03: a time limit ended it"), "{answers:#?}");
}

#[test]
fn a_standby_forks_lags_and_refuses() {
    let installation = local::newest();
    let cluster = ThrowawayCluster::replicated(&installation, 1, "async").unwrap();
    let setting = || cluster.node(0).value("show synchronous_standby_names").unwrap();
    let before = setting();
    let answers = play(&cluster, "standby");
    let found: Vec<(&str, Option<bool>, Verdict)> =
        answers.iter().map(|answer| (answer.case, answer.happened, answer.verdict())).collect();
    assert_eq!(
        found[..5],
        [
            ("LF", Some(true), Verdict::ByDesign),
            ("SC", Some(true), Verdict::ByDesign),
            ("ST", Some(false), Verdict::Kept),
            ("RYW", Some(true), Verdict::ByDesign),
            ("RYW", Some(false), Verdict::Kept),
        ],
        "{answers:#?}"
    );
    assert_eq!(answers[0].line, "the primary showed (0 1), the standby (1 0)");
    assert_eq!(
        answers[1].line,
        "a got UPDATE 1 with WARNING 01000; b reads 1 on the primary, c 0 on the standby"
    );
    assert!(answers[2].line.starts_with("a 0A"), "{}", answers[2].line);
    assert!(answers[3].line.contains("b read 0 afterwards"), "{}", answers[3].line);
    assert!(answers[4].line.contains("remote_apply"), "{}", answers[4].line);
    assert!(answers[5].counted.is_some_and(|(reads, stale, _)| reads > 0 && stale <= reads));
    assert_eq!(setting(), before);
    let paused = "select pg_get_wal_replay_pause_state()";
    assert_eq!(cluster.node(1).value(paused).unwrap().as_deref(), Some("not paused"));
    // Somebody else's servers are not disturbed, and that is said.
    let (dir, journal) = local::journal("spared");
    let nodes = std::iter::zip(&cluster.file().node, cluster.nodes())
        .map(|(node, server)| {
            Node::spared(&node.name, Role::parse(&node.role).unwrap(), server.spec(), "it is not ours")
        })
        .collect();
    let site = Site::new(Engine::default(), nodes, Arc::clone(&journal));
    let chance = Chance { sums: Duration::ZERO, reads: Duration::from_millis(100), seed: 1 };
    let answers = cluster::run(&site, &chance, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let played: Vec<&str> =
        answers.iter().filter(|answer| answer.happened.is_some()).map(|answer| answer.case).collect();
    assert_eq!(played, ["ST", "RYW"], "{answers:#?}");
    assert!(
        answers[0].line.contains("must not be disturbed") && answers[0].verdict() == Verdict::NotPossible
    );
    drop((site, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Stops a process for a while again and again, until it is dropped.
struct Late {
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Late {
    fn make(pid: i32) -> Late {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let signal = move |signal| rustix::process::kill_process(pid, signal).unwrap();
        let thread = std::thread::spawn(move || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                signal(rustix::process::Signal::STOP);
                std::thread::sleep(Duration::from_millis(700));
                signal(rustix::process::Signal::CONT);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Late { is_over, thread: Some(thread) }
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The checkpointer decides whether commits wait, and it reads a changed setting when it likes. A session that knows the setting already would be
/// acknowledged without a wait: SC would find nobody waiting, and remote_apply would look broken.
#[test]
fn scripts_wait_for_a_checkpointer_that_reads_a_changed_setting_late() {
    let installation = local::newest();
    for sync in ["async", "FIRST 1 (s1)"] {
        let cluster = ThrowawayCluster::replicated(&installation, 1, sync).unwrap();
        let pid = "select pid::text from pg_stat_activity where backend_type = 'checkpointer'";
        let pid = cluster.node(0).value(pid).unwrap().unwrap();
        let late = Late::make(pid.parse().unwrap());
        let answers = play(&cluster, &format!("late-{}", sync.len()));
        drop(late);
        for (answer, happened) in std::iter::zip(&answers, [true, true, false, true, false]) {
            assert_eq!(answer.happened, Some(happened), "{sync}: {answer:#?}");
        }
        assert!(answers[4].line.contains("gets COMMIT only after"), "{sync}: {}", answers[4].line);
    }
}

#[test]
fn peers_overwrite_each_other_and_stop() {
    let installation = local::newest();
    if installation.version.major < 16 {
        let why = "only there subscriptions can leave out what came by replication";
        return testing::skip(&testing::Lack::new("postgres-16", why));
    }
    let topology = Topology::Multimaster { nodes: 2 };
    let cluster = ThrowawayCluster::start(&installation, &topology, &[QUICK]).unwrap();
    let answers = play(&cluster, "peers");
    let conflicts = of(&answers, "MC");
    assert_eq!(conflicts.len(), 3);
    assert_eq!(
        conflicts[0].line, "2 increments acknowledged; m1 holds 1 by the second, m2 holds 1 by the first",
        "{:#?}",
        conflicts[0]
    );
    for conflict in &conflicts[1..] {
        assert_eq!(
            conflict.line,
            "both got COMMIT; m1 keeps the row of the first, m2 that of the second; replication stopped on m1 and m2",
            "{conflict:#?}"
        );
    }
    assert!(of(&answers, "LF")[0].line.contains("m1 showed (1 0), m2 showed (0 1)"), "{answers:#?}");
    assert!(of(&answers, "RYW")[0].line.contains("b read 0 afterwards"), "{answers:#?}");
    assert_eq!(of(&answers, "ST")[0].happened, Some(true), "{answers:#?}");
    assert!(of(&answers, "DD")[0].line.contains("neither saw the other's locks"), "{answers:#?}");
    for node in cluster.nodes() {
        let broken = "select count(*)::text from pg_subscription where not subenabled";
        assert_eq!(node.value(broken).unwrap().as_deref(), Some("0"));
        let origins = "select count(*)::text from pg_replication_origin where roname ~ '^pgfathom_[0-9]'";
        assert_eq!(node.value(origins).unwrap().as_deref(), Some("0"));
    }
}
