//! What becomes of servers while a promise is watched, and who else is at work: failovers that nobody planned, standbys that nobody waits for, a second proof, hosts
//! that do not answer. A verdict must come out of all of them, and the right one.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use crate::local;
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use connect::cluster_file::Role;
use connect::conninfo::HostSpec;
use engines::Engine;
use lab::throwaway::{Throwaway, ThrowawayCluster};
use local::{journal, newest, site_of, site_of_one, wait_for};
use prove::client::Client;
use prove::fault::{Node, Plan, Site};
use prove::live::claim::Claim;
use prove::live::tables::{Shape, Tables};
use prove::live::{LiveError, Options, ack, heartbeat};
use prove::promise::{self, Settings};
use record::promise::{Promise, Standing};

fn options(plan: &str, seconds: f64) -> Options {
    Options {
        duration: Duration::from_secs_f64(seconds),
        plan: if plan.is_empty() { Plan::default() } else { Plan::parse(plan).unwrap() },
        ..Options::default()
    }
}

/// Runs `work` until it has an answer; `meanwhile` is done as soon as rows are being written.
fn beside<T: Send>(
    server: &Throwaway,
    table: &str,
    work: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(),
) -> T {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        wait_for("rows of the load", || {
            let count = server.value(&format!("select count(*) > 20 from pgfathom_prove.{table}"));
            matches!(count, Ok(Some(is_so)) if is_so == "t")
        });
        meanwhile();
        working.join().unwrap()
    })
}

fn of<'a>(promises: &'a [Promise], words: &str) -> &'a Promise {
    let found = promises.iter().find(|promise| promise.promise.contains(words));
    found.unwrap_or_else(|| panic!("{words:?} is not among {promises:#?}"))
}

#[test]
fn a_second_proof_is_refused_while_the_first_one_lasts_also_after_a_restart() {
    let (dir, journal) = journal("claim");
    let server = Throwaway::start(&newest(), &[]).unwrap();
    let (one, other) = (site_of_one(&server, &journal), site_of_one(&server, &journal));
    let refused = |site: &Site| match Claim::take(site) {
        Err(LiveError::Taken { node, holder }) => {
            assert_eq!(node, "single");
            holder
        }
        found => panic!("{found:?}"),
    };
    let claim = Claim::take(&one).unwrap();
    let holder = refused(&other);
    assert!(
        holder.starts_with("pid ") && holder.contains("pgfathom prove") && holder.contains("role "),
        "{holder}"
    );
    // A session that is lost with its server comes back with it.
    server.instance().kill9().unwrap();
    server.instance().start().unwrap();
    wait_for("the lock after a restart", || {
        let locks = "select count(*) from pg_locks where locktype = 'advisory' and granted";
        server.value(locks).ok().flatten().as_deref() == Some("1")
    });
    refused(&other);
    assert_eq!(claim.taken(), None);
    // It holds back no vacuum: there is no snapshot behind it.
    let horizon = "select count(*) from pg_stat_activity where application_name like 'pgfathom prove%' \
                   and (backend_xmin is not null or backend_xid is not null)";
    assert_eq!(server.value(horizon).unwrap().as_deref(), Some("0"));
    drop(claim);
    drop(Claim::take(&other).unwrap());
    // Who holds it in another database is nobody's business here.
    server.execute("create database elsewhere").unwrap();
    let node = Node::spared("single", Role::Primary, server.spec().with_dbname("elsewhere"), "");
    let elsewhere = Site::new(Engine::default(), vec![node], std::sync::Arc::clone(&journal));
    let (_here, _there) = (Claim::take(&one).unwrap(), Claim::take(&elsewhere).unwrap());
    drop((one, other, elsewhere, server, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_lock_of_a_role_that_can_run_no_proof_refuses_none() {
    let (dir, journal) = journal("claim-stranger");
    let server = Throwaway::start(&newest(), &[]).unwrap();
    server.execute("create role mallory login").unwrap();
    let site = site_of_one(&server, &journal);
    let mut hers = connect::control::connect(&server.spec().with_user("mallory")).unwrap();
    hers.batch_execute("select pg_catalog.pg_advisory_lock(x'70676674'::int, x'70726f76'::int)").unwrap();
    assert_eq!(Claim::take(&site).unwrap().taken(), None);
    server.execute("grant create on database postgres to mallory").unwrap();
    assert!(
        matches!(Claim::take(&site), Err(LiveError::Taken { holder, .. }) if holder.contains("role mallory"))
    );
    drop((site, hers, server, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_lock_outlives_a_promotion() {
    let (dir, journal) = journal("claim-standby");
    let mut cluster = ThrowawayCluster::replicated(&newest(), 1, "async").unwrap();
    let site = site_of(&cluster, &journal);
    let _claim = Claim::take(&site).unwrap();
    cluster.node_mut(0).kill9().unwrap();
    assert_eq!(cluster.node(1).value("select pg_promote()").unwrap().as_deref(), Some("t"));
    let other = site_of_one(cluster.node(1), &journal);
    assert!(matches!(Claim::take(&other), Err(LiveError::Taken { .. })));
    drop((site, other, cluster, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Without the lock (a pooler, an engine that has none) two proofs still replace each other's tables: then nothing is judged.
#[test]
fn a_proof_whose_tables_were_replaced_judges_nothing() {
    const SHAPE: Shape = Shape { name: "ack", columns: "client int not null, seq int not null", key: None };
    let (dir, journal) = journal("replaced");
    let server = Throwaway::start(&newest(), &[]).unwrap();
    let (one, other) = (site_of_one(&server, &journal), site_of_one(&server, &journal));
    let stop = AtomicBool::new(false);
    let found = beside(
        &server,
        "ack",
        || ack::run(&one, &options("", 60.0), &stop),
        || {
            Tables::make(&other, &[SHAPE]).unwrap();
            stop.store(true, Ordering::Relaxed);
        },
    );
    assert!(matches!(found, Err(LiveError::Disturbed(_))), "{found:?}");
    // And leaves the other one's tables alone.
    let left = "select count(*) from pg_class where relnamespace = 'pgfathom_prove'::regnamespace";
    assert_eq!(server.value(left).unwrap().as_deref(), Some("1"));
    drop((one, other, server, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Somebody kills the server and starts it again: that is no outage of the plan, and no "kept".
#[test]
fn an_outage_that_somebody_else_made_is_measured_and_told() {
    let (dir, journal) = journal("foreign");
    let server = Throwaway::start(&newest(), &[("fsync", "on")]).unwrap();
    let site = site_of_one(&server, &journal);
    let stop = AtomicBool::new(false);
    let away = Duration::from_millis(1_800);
    let settings = Settings::of(&site.entry(), &options("", 1.0)).unwrap();
    let report = beside(
        &server,
        "hb",
        || heartbeat::run(&site, &options("", 60.0), &stop),
        || {
            server.instance().kill9().unwrap();
            std::thread::sleep(away);
            server.instance().start().unwrap();
            let before = server.value("select count(*) from pgfathom_prove.hb").unwrap();
            wait_for("answers after it", || {
                server.value("select count(*) from pgfathom_prove.hb").is_ok_and(|now| now != before)
            });
            stop.store(true, Ordering::Relaxed);
        },
    )
    .unwrap();
    assert_eq!(report.observed.restarts(), 1, "{:?}", report.observed);
    let promises = promise::heartbeat(&site, &report, &settings, "");
    let answers = of(&promises, "resume after a fault");
    assert_eq!(answers.standing, Standing::NotTested, "{promises:#?}");
    assert!(answers.why.contains("this proof did not plan"), "{}", answers.why);
    let longest = report.shards[0].gaps[0].iter().map(heartbeat::Gap::us).max().unwrap();
    assert!(u128::from(longest) >= away.as_micros(), "{report:?}");
    let stays = of(&promises, "acknowledged are kept");
    assert_eq!((stays.standing, stays.seen), (Standing::Kept, 0), "{stays:?}");
    drop((site, server, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Every probe that hangs has a connection of its own. When the server answers again it gets them back: they used to stay to the end, a hundred of them.
#[test]
fn probes_that_hung_give_their_connections_back() {
    let (dir, journal) = journal("hung");
    let server = Throwaway::start(&newest(), &[("fsync", "on"), ("max_connections", "60")]).unwrap();
    let site = site_of_one(&server, &journal);
    let stop = AtomicBool::new(false);
    let clients =
        "select count(*) from pg_stat_activity where backend_type = 'client backend' and datname is not null";
    let report = beside(
        &server,
        "hb",
        || heartbeat::run(&site, &options("pause@1s,heal@3s", 60.0), &stop),
        || {
            let before = server.value("select max(n) from pgfathom_prove.hb").unwrap();
            // 150 beats are three seconds; what is written after them, the healed server has written.
            wait_for("answers after the pause", || {
                let sql =
                    format!("select max(n) > {} + 150 from pgfathom_prove.hb", before.as_deref().unwrap());
                server.value(&sql).is_ok_and(|is_so| is_so.as_deref() == Some("t"))
            });
            wait_for("few connections", || {
                let count: u64 = server.value(clients).unwrap().unwrap().parse().unwrap();
                count <= 10
            });
            stop.store(true, Ordering::Relaxed);
        },
    )
    .unwrap();
    let [write, _] = report.shards[0].outages[0];
    assert!(write.back_us.unwrap() >= 1_900_000, "{report:?}");
    assert!(write.full_us.is_none_or(|full| Some(full) >= write.back_us), "{report:?}");
    drop((site, server, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Nothing heals the server before the watch ends: that says nothing about the server.
#[test]
fn a_recovery_that_outlasts_the_watch_is_not_tested_and_one_that_does_not_is_kept() {
    let (dir, journal) = journal("outlasts");
    let server = Throwaway::start(&newest(), &[("fsync", "on")]).unwrap();
    let site = site_of_one(&server, &journal);
    let no_stop = AtomicBool::new(false);
    let judge = |plan: &str, seconds: f64| {
        let options = options(plan, seconds);
        let settings = Settings::of(&site.entry(), &options).unwrap();
        let report = heartbeat::run(&site, &options, &no_stop).unwrap();
        promise::heartbeat(&site, &report, &settings, "")
    };
    let promises = judge("kill@1s", 2.5);
    assert_eq!(of(&promises, "resume after a fault").standing, Standing::NotTested, "{promises:#?}");
    assert_eq!(of(&promises, "acknowledged are kept").standing, Standing::Kept, "{promises:#?}");
    let healed = (0..5).find(|_| {
        let promises = judge("kill@1s,heal@1.2s", 8.0);
        assert_eq!(of(&promises, "acknowledged are kept").standing, Standing::Kept, "{promises:#?}");
        of(&promises, "resume after a fault").standing == Standing::Kept
    });
    assert!(healed.is_some(), "it never came back in time");
    drop((site, server, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// A standby that no commit waits for may be stale, whatever `synchronous_commit` says; the one that they wait for may not.
#[test]
fn only_a_standby_of_the_synchronous_set_has_to_show_what_was_acknowledged() {
    let (dir, journal) = journal("set");
    let cluster = ThrowawayCluster::replicated(&newest(), 2, "FIRST 1 (s1)").unwrap();
    let site = site_of(&cluster, &journal);
    let mut options = options("", 3.0);
    options.settings.push(("synchronous_commit".to_owned(), "remote_apply".to_owned()));
    let settings = Settings::of(&site.entry(), &options).unwrap();
    let stop = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| heartbeat::run(&site, &options, &stop));
        // Without the table there is nothing to be read on the standby.
        wait_for("the table on the standby", || {
            cluster.node(2).value("select count(*) from pgfathom_prove.hb").is_ok()
        });
        cluster.node(2).execute("select pg_wal_replay_pause()").unwrap();
        running.join().unwrap()
    })
    .unwrap();
    cluster.node(2).execute("select pg_wal_replay_resume()").unwrap();
    let promises = promise::heartbeat(&site, &report, &settings, "");
    let (first, second) = (of(&promises, "s1 shows"), of(&promises, "s2 shows"));
    assert!(second.seen > 0, "{second:?}");
    assert_eq!(second.standing, Standing::ByDesign, "{second:?}");
    assert!(second.why.contains("s2 is not in synchronous_standby_names"), "{}", second.why);
    assert_eq!((first.seen, first.standing), (0, Standing::Kept), "{first:?}");
    // The same reading would break the promise of the one that is waited for.
    let mut broken = report.clone();
    let stale = broken.staleness.iter().find(|node| node.node == "s2").unwrap().stale;
    broken.staleness.iter_mut().filter(|node| node.node == "s1").for_each(|node| node.stale = stale);
    let promises = promise::heartbeat(&site, &broken, &settings, "");
    assert_eq!(of(&promises, "s1 shows").standing, Standing::Broken);
    drop((site, cluster, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// A manager that is not ours promotes a standby, and the old primary stays dead: the first host of the connection never answers again. The verdict comes all the
/// same, with an RPO where nobody was waited for, and the cleaning up finds its way.
#[test]
fn a_failover_by_somebody_else_ends_in_a_verdict() {
    for (sync, is_cut, standing) in
        [("async", true, Standing::ByDesign), ("FIRST 1 (s1)", false, Standing::Kept)]
    {
        let (dir, journal) = journal("failover");
        let mut cluster = ThrowawayCluster::replicated(&newest(), 1, sync).unwrap();
        // A program without its files cannot mend it.
        let nodes = std::iter::zip(&cluster.file().node, cluster.nodes()).map(|(node, server)| {
            Node::spared(&node.name, Role::parse(&node.role).unwrap(), server.spec(), "somebody else's")
        });
        let site = Site::new(Engine::default(), nodes.collect(), std::sync::Arc::clone(&journal));
        let settings = Settings::of(&site.entry(), &options("", 1.0)).unwrap();
        let stop = AtomicBool::new(false);
        let report = std::thread::scope(|scope| {
            let running = scope.spawn(|| ack::run(&site, &options("", 60.0), &stop));
            let rows = |server: &Throwaway| {
                let count = server.value("select count(*) from pgfathom_prove.ack").ok().flatten();
                count.and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
            };
            wait_for("rows on the standby", || rows(cluster.node(1)) > 20);
            // On a busy host the first rows may be there before the settings were read once.
            wait_for("a look at the primary's settings", || {
                let asked = "select count(*) > 0 from pg_stat_activity where query like '%synchronous_standby_names%' and state = 'idle' \
                             and pid <> pg_backend_pid()";
                cluster.node(0).value(asked).ok().flatten().as_deref() == Some("t")
            });
            if is_cut {
                // What the primary acknowledges from now on never reaches the standby.
                cluster.node(1).execute("alter system set primary_conninfo = ''").unwrap();
                cluster.node(1).reload().unwrap();
                wait_for("the end of the replication", || {
                    let senders = cluster.node(0).value("select count(*) from pg_stat_replication");
                    senders.unwrap().as_deref() == Some("0")
                });
                let before = rows(cluster.node(0));
                wait_for("rows on the primary alone", || rows(cluster.node(0)) > before + 50);
            }
            cluster.node_mut(0).kill9().unwrap();
            assert_eq!(cluster.node(1).value("select pg_promote()").unwrap().as_deref(), Some("t"));
            let before = rows(cluster.node(1));
            wait_for("rows at the new primary", || rows(cluster.node(1)) > before + 20);
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap()
        })
        .unwrap();
        assert_eq!(site.primary(), 1, "{sync}");
        assert!(report.observed.has_failed_over(), "{sync}: {:?}", report.observed);
        let promises = promise::ack(&site, &report, &settings, "");
        let lost = of(&promises, "no acknowledged write is lost");
        assert_eq!(lost.standing, standing, "{sync}: {lost:#?}");
        assert_eq!(report.findings.lost > 0, is_cut, "{sync}: {lost:#?}");
        assert_eq!(report.findings.holes, 0, "{sync}: a lost tail is no hole: {lost:#?}");
        assert_eq!(report.findings.rpo_us > 0, is_cut, "{sync}: {lost:#?}");
        // That the dead primary is away may be noted, if it was asked meanwhile; nothing else is.
        let mut notes = site.take_notes();
        notes.retain(|note| !note.starts_with("primary did not answer"));
        assert_eq!(notes, Vec::<String>::new(), "{sync}");
        let left = "select count(*) from pg_namespace where nspname = 'pgfathom_prove'";
        assert_eq!(cluster.node(1).value(left).unwrap().as_deref(), Some("0"), "{sync}");
        drop((site, cluster, journal));
        std::fs::remove_dir_all(dir).unwrap();
    }
}

/// The first process of the primary is stopped, as by a hang: the sessions of the proof go on, and no other client gets in.
#[test]
fn a_node_that_takes_no_new_session_is_named() {
    let (dir, journal) = journal("closed");
    let cluster = ThrowawayCluster::replicated(&newest(), 1, "async").unwrap();
    let nodes = std::iter::zip(&cluster.file().node, cluster.nodes()).map(|(node, server)| {
        Node::spared(&node.name, Role::parse(&node.role).unwrap(), server.spec(), "somebody else's")
    });
    let site = Site::new(Engine::default(), nodes.collect(), std::sync::Arc::clone(&journal));
    let stop = AtomicBool::new(false);
    let file = cluster.node(0).value("select pg_read_file('postmaster.pid')").unwrap().unwrap();
    let first = file.lines().next().unwrap().to_owned();
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &first]).status().unwrap().success(), "{name} {first}");
    };
    let mut notes: Vec<String> = Vec::new();
    let report = beside(
        cluster.node(0),
        "ack",
        || ack::run(&site, &options("", 90.0), &stop),
        || {
            signal("-STOP");
            let begin = Instant::now();
            wait_for("a time that is news", || begin.elapsed() > Duration::from_secs(8));
            signal("-CONT");
            wait_for("a note", || {
                notes.extend(site.take_notes());
                notes.iter().any(|note| note.contains("took no new session for"))
            });
            stop.store(true, Ordering::Relaxed);
        },
    )
    .unwrap();
    let closed: Vec<&String> = notes.iter().filter(|note| note.contains("took no new session")).collect();
    assert_eq!(closed.len(), 1, "only the primary was closed: {notes:?}");
    assert!(
        closed[0].contains("no fault of this proof was active")
            && closed[0].contains("open ones were answered")
    );
    assert_eq!((report.findings.lost, report.observed.restarts()), (0, 0), "{report:?}");
    drop((site, cluster, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// What cannot be cleaned up is told, with what to do about it, and takes no verdict away.
#[test]
fn what_cannot_be_removed_is_a_note() {
    let (dir, journal) = journal("left");
    let mut server = Throwaway::start(&newest(), &[]).unwrap();
    let site = site_of_one(&server, &journal);
    let tables = Tables::make(&site, &[]).unwrap();
    server.kill9().unwrap();
    tables.remove(&site);
    let notes = site.take_notes();
    assert!(
        notes.len() == 1 && notes[0].contains("is left on single") && notes[0].contains("drop schema"),
        "{notes:?}"
    );
    drop((site, server, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// A host that is silent, one that refuses and one that hangs after the handshake: each leads to the next one in a part of the patience.
#[test]
fn a_dead_host_does_not_use_up_the_time_of_the_others() {
    let server = Throwaway::start(&newest(), &[]).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let good = server.spec();
    let patience = Duration::from_secs(600);
    for port in [silent.local_addr().unwrap().port(), refusing] {
        let mut spec = good.clone();
        spec.hosts.insert(0, HostSpec::new("127.0.0.1", port));
        let begin = Instant::now();
        let mut client = Client::connect(&spec, patience).unwrap();
        assert_eq!(client.host_index(), 1);
        assert_eq!(client.request("select 7").unwrap().number(), Some(7));
        assert!(begin.elapsed() < patience / 5, "it waited for the first host");
        // The control plane has no patience of its own, and would wait for ever.
        assert_eq!(connect::control::connect(&spec).unwrap().host_index(), 1);
    }
}

/// A statement that does not return is explained by the server, not by advice on how to ask it.
#[test]
fn what_a_statement_waits_for_that_does_not_return_is_asked_in_the_server() {
    const PATIENCE: Duration = Duration::from_millis(700);
    let server = Throwaway::start(&newest(), &[("synchronous_standby_names", "nosuch")]).unwrap();
    server
        .execute("set synchronous_commit = local; create table t (id int primary key, n int); insert into t values (1)")
        .unwrap();
    let hint = |sql: &str| {
        let mut client = Client::connect(&server.spec(), PATIENCE).unwrap();
        client.execute("set synchronous_commit = local").unwrap();
        let error = client.execute(sql).expect_err("it does not return");
        assert_eq!(error.to_string(), "no answer within the time limit");
        error.hint().unwrap()
    };
    let commit = hint("set synchronous_commit = on; insert into public.t values (2)");
    assert!(
        commit.contains("synchronous_standby_names is \"nosuch\", and no standby is connected"),
        "{commit}"
    );
    let mut holder = Client::connect(&server.spec(), Duration::from_mins(1)).unwrap();
    holder.execute("set synchronous_commit = local; begin; update public.t set n = 1 where id = 1").unwrap();
    let pid = holder.cancel_token().process_id();
    let lock = hint("update public.t set n = 2 where id = 1");
    assert!(
        lock.contains(&format!("held by pid {pid} ")) && lock.contains("idle in transaction for"),
        "{lock}"
    );
    assert!(lock.contains("update public.t set n = 1"), "{lock}");
    let sleep = hint("select pg_sleep(5)");
    assert!(sleep.contains("waits for Timeout PgSleep"), "{sleep}");
}

/// What is cut while the tables of a proof are made is made again; a server that is away from the begin is no reason to wait.
#[test]
fn tables_whose_making_is_cut_are_made_again() {
    const SHAPE: Shape = Shape { name: "ack", columns: "client int not null, seq int not null", key: None };
    let (dir, journal) = journal("cut");
    let server = Throwaway::start(&newest(), &[]).unwrap();
    server
        .execute(
            "create sequence cuts;
             create function cut() returns event_trigger language plpgsql as
             $$ begin if nextval('public.cuts') <= 2 then perform pg_terminate_backend(pg_backend_pid()); end if; end $$;
             create event trigger cut on ddl_command_end when tag in ('CREATE TABLE') execute function cut()",
        )
        .unwrap();
    let site = site_of_one(&server, &journal);
    Tables::make(&site, &[SHAPE]).unwrap();
    let cuts = server.value("select last_value > 2 from cuts").unwrap();
    assert_eq!(cuts.as_deref(), Some("t"), "two attempts were cut");
    assert_eq!(server.value("select count(*) from pgfathom_prove.ack").unwrap().as_deref(), Some("0"));
    server.instance().kill9().unwrap();
    let begin = Instant::now();
    Tables::make(&site, &[SHAPE]).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    drop((site, server, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// A multimaster that a DBA made publishes all tables, mostly. The nodes of the proof all get its tables; a subscriber outside would stop at their first row.
#[test]
fn publications_of_all_tables_carry_a_proof_whose_nodes_are_all_their_readers() {
    const SHAPE: Shape = Shape { name: "ack", columns: "client int not null, seq int not null", key: None };
    let (dir, journal) = journal("all-tables");
    let cluster = ThrowawayCluster::multimaster(&newest(), 2).unwrap();
    for node in cluster.nodes() {
        node.execute("drop publication pgfathom").unwrap();
        node.execute("create publication pgfathom for all tables").unwrap();
    }
    let site = site_of(&cluster, &journal);
    let tables = Tables::make(&site, &[SHAPE]).unwrap();
    tables.remove(&site);
    cluster.node(0).execute("select pg_create_logical_replication_slot('outside', 'pgoutput')").unwrap();
    match Tables::make(&site, &[SHAPE]) {
        Err(LiveError::Replicated { node, what }) => {
            assert_eq!(node, cluster.file().node[0].name);
            assert!(what.contains("the slot outside may read"), "{what}");
        }
        found => panic!("{found:?}"),
    }
    let left = "select count(*) from pg_namespace where nspname = 'pgfathom_prove'";
    assert_eq!(cluster.node(1).value(left).unwrap().as_deref(), Some("0"));
    drop((site, cluster, journal));
    std::fs::remove_dir_all(dir).unwrap();
}
