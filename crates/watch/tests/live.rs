//! Each collector shows something that was provoked for it, on PostgreSQL 15 and 18.
//!
//! One server per version serves all tests of the version; each test provokes in its own objects and looks for them only.

mod customs;
mod hostile;
mod names;
mod plans;
mod raised;
mod reached;
mod summed;
mod superuser;
mod typed;
mod unended;
mod watched;

use record::event;
use record::watched::{Sampled, WAIT_CPU};
use std::time::{Duration, Instant};
use watched::{NODE, Watch, background, client, major, on_each};

#[test]
fn a_tree_of_waiting_sessions_has_its_root() {
    on_each(&[("deadlock_timeout", "100ms"), ("log_lock_waits", "on")], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create table tree (id int primary key, v int); insert into tree values (1, 0), (2, 0)",
            )
            .unwrap();
        let mut root = client(server, "the root");
        let root_pid: i32 = root.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
        root.batch_execute("begin; update tree set v = 1 where id = 1").unwrap();
        let middle = background(
            server,
            "the middle",
            "begin; update tree set v = 2 where id = 2; update tree set v = 2 where id = 1; commit",
        );
        let mut watch = Watch::of(&server.spec());
        let first = watch.until("the first waiter", |line| match line {
            Sampled::Block(block) => Some(block.clone()),
            _ => None,
        });
        assert_eq!(
            (first.root, first.depth, first.lock_type.as_str()),
            (Some(root_pid as u64), Some(1), "transactionid")
        );
        let leaf = background(server, "the leaf", "update tree set v = 3 where id = 2");
        let second = watch.until("the second level", |line| match line {
            Sampled::Block(block) if block.depth == Some(2) => Some(block.clone()),
            _ => None,
        });
        assert_eq!(
            (second.root, second.blocked_by, second.root_state.as_str()),
            (Some(root_pid as u64), Some(first.pid), "idle in transaction")
        );
        assert!(second.query.contains("v = 3") && second.blocker_query.contains("v = 2"), "{second:?}");
        // The root is named, and it is idle in a transaction.
        let session = watch.until("the root by name", |line| match line {
            Sampled::Session(session) if session.pid == root_pid as u64 => Some(session.clone()),
            _ => None,
        });
        assert_eq!(
            (session.application.as_str(), session.state.as_str()),
            ("the root", "idle in transaction")
        );
        let waits = watch.until("the waits", |line| match line {
            Sampled::Wait(wait) if wait.wait_type == "Lock" => Some(wait.clone()),
            _ => None,
        });
        assert_eq!((waits.state.as_str(), waits.wait_event.as_str()), ("active", "transactionid"));
        watch.until_event("the wait in the log", |event| {
            event.kind == event::LOCK_WAIT && event.more["mode"] == "ShareLock"
        });
        // It blocks nobody itself: the sampling takes no locks that matter here, and leaves no transaction open.
        root.batch_execute("commit").unwrap();
        middle.join().unwrap().unwrap();
        leaf.join().unwrap().unwrap();
        let open = setup.query_one("select count(*) from pg_stat_activity where application_name = 'pgfathom watch' and state <> 'idle'", &[]);
        assert_eq!(open.unwrap().get::<_, i64>(0), 0);
    });
}

#[test]
fn an_open_snapshot_holds_the_horizon_and_so_does_a_prepared_transaction() {
    on_each(&[("max_prepared_transactions", "5")], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create table t (v int); begin; insert into t values (1); prepare transaction 'orphan'",
            )
            .unwrap();
        let mut holder = client(server, "the holder");
        holder.batch_execute("begin isolation level repeatable read; select 1").unwrap();
        let mut watch = Watch::of(&server.spec());
        let held = watch.until("the holder", |line| match line {
            Sampled::Horizon(horizon) if horizon.kind == "session" => Some(horizon.clone()),
            _ => None,
        });
        assert_eq!(held.name, "the holder");
        assert!(held.age_s.is_some_and(|age| age >= 2.0) && held.pid.is_some(), "{held:?}");
        let orphan = watch.until("the orphan", |line| match line {
            Sampled::Horizon(horizon) if horizon.kind == "prepared" => Some(horizon.clone()),
            _ => None,
        });
        assert_eq!((orphan.name.as_str(), orphan.pid), ("orphan", None));
        let totals = watch.until("totals", |line| match line {
            Sampled::Server(server) => Some(server.clone()),
            _ => None,
        });
        assert_eq!((totals.prepared_xacts, totals.sessions_idle_in_transaction), (Some(1), Some(1)));
        assert!(
            totals.oldest_transaction_s.is_some_and(|age| age >= 2.0)
                && totals.freeze_max_age_xids == Some(200_000_000)
        );
        assert!(totals.database_age_xids.is_some(), "asked with the first tick");
        setup.batch_execute("rollback prepared 'orphan'").unwrap();
    });
}

#[test]
fn vacuums_and_copies_report_progress() {
    on_each(&[], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create table big (id int, v text); insert into big select i, repeat('x', 200) from generate_series(1, 20000) i; delete from big where id % 2 = 0").unwrap();
        // So slow that it is still there when it is looked for.
        setup.batch_execute("alter table big set (autovacuum_enabled = off)").unwrap();
        let mut slow = client(server, "vacuum");
        slow.batch_execute("set vacuum_cost_delay = 100; set vacuum_cost_limit = 1").unwrap();
        let slow = std::thread::spawn(move || slow.batch_execute("vacuum big"));
        let mut watch = Watch::of(&server.spec());
        let vacuum = watch.until("the vacuum", |line| match line {
            Sampled::Progress(progress)
                if progress.command == "vacuum" && progress.done.is_some_and(|done| done > 0) =>
            {
                Some(progress.clone())
            }
            _ => None,
        });
        assert_eq!(
            (vacuum.relation.as_str(), vacuum.unit.as_str(), vacuum.auto),
            ("public.big", "blocks", Some(false))
        );
        assert!(
            vacuum.total.is_some_and(|total| total > 100) && vacuum.wraparound == Some(false),
            "{vacuum:?}"
        );
        setup
            .batch_execute(
                "select pg_cancel_backend(pid) from pg_stat_activity where application_name = 'vacuum'",
            )
            .unwrap();
        assert!(slow.join().unwrap().is_err());
        let mut copier = client(server, "copy");
        let copy = copier.copy_in("copy big from stdin").unwrap();
        let seen = watch.until("the copy", |line| match line {
            Sampled::Progress(progress) if progress.command == "copy" => Some(progress.clone()),
            _ => None,
        });
        assert_eq!((seen.relation.as_str(), seen.total), ("public.big", None));
        drop(copy);
    });
}

#[test]
fn slots_standbys_and_tables_without_keys_are_seen() {
    on_each(&[("wal_level", "logical"), ("max_wal_senders", "5")], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("select pg_create_physical_replication_slot('forgotten', true)").unwrap();
        setup
            .batch_execute(
                "create table keyless (id int, v int); create table keyed (id int primary key); create publication p for table keyless;
                 insert into keyless select i, i from generate_series(1, 1000) i; analyze",
            )
            .unwrap();
        // Otherwise a session tells what it counted up to a second later.
        setup.batch_execute("select pg_stat_force_next_flush()").unwrap();
        setup.batch_execute("create subscription s connection 'host=/nowhere dbname=postgres' publication p with (connect = false)").unwrap();
        let mut watch = Watch::of(&server.spec());
        let slot = watch.until("the slot", |line| match line {
            Sampled::Slot(slot) if slot.retained_bytes.is_some_and(|bytes| bytes > 50_000) => {
                Some(slot.clone())
            }
            _ => None,
        });
        assert_eq!(
            (slot.slot.as_str(), slot.active, slot.wal_status.as_str(), slot.kind.as_str()),
            ("forgotten", Some(false), "reserved", "physical")
        );
        assert_eq!(slot.inactive_s.is_some(), major(server) >= 17);
        // Only consumers of changes confirm what they received.
        assert_eq!(slot.confirmed_bytes, None);
        setup.batch_execute("select pg_create_logical_replication_slot('changes', 'test_decoding')").unwrap();
        let confirmed = watch.until("the position of the consumer", |line| match line {
            Sampled::Slot(slot) if slot.slot == "changes" => slot.confirmed_bytes,
            _ => None,
        });
        let end = setup
            .query_one("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint", &[])
            .unwrap()
            .get::<_, i64>(0);
        assert!(confirmed > 0 && confirmed <= end as u64, "{confirmed} of {end}");
        let table = |wanted: &str| {
            let mut lines = watch.seen.lines.iter().filter_map(|(_, _, line)| match line {
                Sampled::Table(table) if table.relation == wanted => Some(table.clone()),
                _ => None,
            });
            lines.next_back().unwrap_or_else(|| panic!("{wanted} was not seen"))
        };
        let keyless = table("public.keyless");
        assert_eq!(
            (keyless.primary_key, keyless.published, keyless.replica_identity.as_str()),
            (Some(false), Some(true), "default")
        );
        assert_eq!(
            (keyless.live_rows, keyless.tablespace.as_str(), keyless.index_tablespaces.as_str()),
            (Some(1000), "pg_default", "")
        );
        assert!(keyless.bytes.is_some_and(|bytes| bytes > 0));
        let keyed = table("public.keyed");
        assert_eq!(
            (keyed.primary_key, keyed.published, keyed.index_tablespaces.as_str()),
            (Some(true), Some(false), "pg_default")
        );
        let subscription = watch.until_due("the subscription", |line| match line {
            Sampled::Subscription(subscription) => Some(subscription.clone()),
            _ => None,
        });
        assert_eq!(
            (subscription.subscription.as_str(), subscription.enabled, subscription.running),
            ("s", Some(false), Some(false))
        );
        // Whoever streams is a standby to its sender.
        let folder = server.socket_dir().join("received");
        std::fs::create_dir(&folder).unwrap();
        let program = server.installation().bin_dir.join("pg_receivewal");
        if program.is_file() {
            let mut receiver = std::process::Command::new(program)
                .args([
                    "-h",
                    &server.socket_dir().display().to_string(),
                    "-p",
                    &server.port().to_string(),
                    "-U",
                    "postgres",
                    "-D",
                ])
                .arg(&folder)
                .env("PGAPPNAME", "follower")
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let standby = watch.until("the standby", |line| match line {
                Sampled::Replication(standby) if standby.state == "streaming" => Some(standby.clone()),
                _ => None,
            });
            assert_eq!((standby.standby.as_str(), standby.sync_state.as_str()), ("follower", "async"));
            // It never says that it replayed: what was written is how far it lags.
            assert_eq!(standby.replay_lag_bytes, None);
            assert!(standby.sent_lag_bytes.is_some());
            receiver.kill().unwrap();
            receiver.wait().unwrap();
        }
    });
}

#[test]
fn checkpoints_deadlocks_and_temporary_files_are_read_from_the_log() {
    on_each(&[("deadlock_timeout", "50ms"), ("log_temp_files", "0"), ("work_mem", "64kB")], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create table pair (id int primary key, v int); insert into pair values (1, 0), (2, 0)",
            )
            .unwrap();
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        assert!(
            !watch.missing().contains(&"server log".to_string()),
            "{:?}",
            watch.node.missing().collect::<Vec<_>>()
        );
        let before_us = watch.clock.now_us();
        setup.batch_execute("checkpoint").unwrap();
        let start = watch
            .until_event("the start", |event| event.kind == event::CHECKPOINT && event.duration_us.is_none());
        assert!(
            start.more["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("immediate") || reason.contains("fast")),
            "{start:?}"
        );
        let complete = watch
            .until_event("the end", |event| event.kind == event::CHECKPOINT && event.duration_us.is_some());
        // The server's stamp has milliseconds; the time is its own, not that of our reading.
        assert!(
            start.t_us + 2_000 >= before_us && complete.t_us <= watch.clock.now_us(),
            "{before_us} {start:?}"
        );
        assert_eq!(complete.more["from"], "log");
        // The counters show it, too, in a tick that has passed or in one to come.
        let is_counted = |line: &Sampled| matches!(line, Sampled::Server(server) if server.checkpoints_requested == Some(1));
        if !watch.seen.lines.iter().any(|(_, _, line)| is_counted(line)) {
            watch.until("its count", |line| is_counted(line).then_some(()));
        }
        let mut one = client(server, "one");
        one.batch_execute("begin; update pair set v = 1 where id = 1").unwrap();
        let two = background(
            server,
            "two",
            "begin; update pair set v = 1 where id = 2; update pair set v = 1 where id = 1; commit",
        );
        watch.until("the other waits", |line| matches!(line, Sampled::Block(_)).then_some(()));
        let first = one.batch_execute("update pair set v = 1 where id = 2; commit");
        let second = two.join().unwrap();
        assert!(first.is_err() ^ second.is_err(), "one of them is the victim");
        // A session's counts go out when its transaction ends.
        one.batch_execute("rollback").unwrap();
        let deadlock = watch.until_event("the deadlock", |event| event.kind == event::DEADLOCK);
        assert!(
            deadlock.more["detail"].as_str().is_some_and(|detail| detail.contains("waits for ShareLock")),
            "{deadlock:?}"
        );
        setup
            .batch_execute(
                "select count(*) from (select i from generate_series(1, 100000) i order by i desc) s",
            )
            .unwrap();
        let file = watch.until_event("the file", |event| event.kind == event::TEMP_FILE);
        assert!(file.more["bytes"].as_u64().is_some_and(|bytes| bytes > 100_000), "{file:?}");
        let counted = |line: &Sampled| matches!(line, Sampled::Server(server) if server.deadlocks == Some(1));
        if !watch.seen.lines.iter().any(|(_, _, line)| counted(line)) {
            watch.until("its count", |line| counted(line).then_some(()));
        }
    });
}

#[test]
fn a_restart_is_survived_and_said() {
    on_each(&[], |server| {
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        assert!(watch.board.node(NODE).expect("it was seen").is_up);
        server.stop(lab::local::StopMode::Immediate).unwrap();
        watch.until_event("the end", |event| {
            event.kind == event::RESTART && event.message.contains("went away")
        });
        assert!(
            watch.missing().contains(&"server".to_string()) && !watch.board.node(NODE).expect("known").is_up
        );
        server.start_again().unwrap();
        watch.until_event("the start", |event| {
            event.kind == event::RESTART && event.message.contains("was started")
        });
        assert!(!watch.missing().contains(&"server".to_string()));
        // Counters began anew: no line may show a jump over the restart, and from the second on there are differences again.
        let after = watch.until("a difference", |line| match line {
            Sampled::Server(server) => server.xact_commit,
            _ => None,
        });
        assert!(after < 100_000);
        // A changed setting is said, with its value.
        let mut setup = client(server, "setup");
        setup.batch_execute("alter system set work_mem = '17MB'").unwrap();
        setup.batch_execute("select pg_reload_conf()").unwrap();
        let changed = watch.until_event("the setting", |event| event.kind == event::SETTINGS_CHANGED);
        assert!(changed.message.contains("work_mem = 17MB"), "{changed:?}");
    });
}

#[test]
fn a_role_without_privileges_sees_little_and_says_so() {
    on_each(&[], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create role nobody login").unwrap();
        let mut hidden = client(server, "hidden");
        hidden.batch_execute("begin; select 1").unwrap();
        let mut watch = Watch::of(&server.spec().with_user("nobody"));
        let totals = watch.until("totals", |line| match line {
            Sampled::Server(server) if server.xact_commit.is_some() => Some(server.clone()),
            _ => None,
        });
        assert_eq!(totals.sessions_active, None, "what is hidden is not counted as idle");
        let missing = watch.missing();
        for what in ["sessions of other roles", "hidden sessions", "settings of superusers", "server log"] {
            assert!(missing.contains(&what.to_string()), "{what} of {missing:?}");
        }
        assert!(!watch.seen.lines.iter().any(|(_, _, line)| matches!(line, Sampled::Session(_))));
        assert!(watch.seen.lines.iter().any(|(_, _, line)| matches!(line, Sampled::Missing(missing) if missing.why.contains("pg_monitor") && !missing.lost.is_empty())));
        // With the one role that is enough for everything, nothing of this is left.
        setup.batch_execute("create role somebody login; grant pg_monitor to somebody").unwrap();
        let mut watch = Watch::of(&server.spec().with_user("somebody"));
        watch.tick();
        let missing = watch.missing();
        assert!(
            !missing.iter().any(|what| what.contains("session") || what.contains("settings")),
            "{missing:?}"
        );
    });
}

#[test]
fn a_locked_catalog_costs_its_part_and_nothing_else() {
    on_each(&[], |server| {
        let mut locker = client(server, "locker");
        locker.batch_execute("begin; lock table pg_catalog.pg_publication in access exclusive mode").unwrap();
        let mut watch = Watch::of(&server.spec());
        let batch = watch.tick();
        assert!(
            batch.lines.iter().any(|(_, _, line)| matches!(line, Sampled::Server(_))),
            "the rest goes on"
        );
        let (_, why, _) =
            watch.node.missing().find(|(what, _, _)| *what == "tables").expect("it waits for nobody");
        assert!(why.contains("lock timeout"), "{why}");
        locker.batch_execute("rollback").unwrap();
    });
}

#[test]
fn a_quiet_tick_is_one_statement_and_an_empty_one_and_statements_are_attributed() {
    on_each(
        &[
            ("shared_preload_libraries", "pg_stat_statements"),
            ("compute_query_id", "on"),
            ("autovacuum", "off"),
        ],
        |server| {
            let mut setup = client(server, "setup");
            setup.batch_execute("create schema extras; create extension pg_stat_statements schema extras; create table counted (v int)").unwrap();
            let mut watch = Watch::of(&server.spec());
            let begun = Instant::now();
            watch.tick();
            let first = watch.node.queries();
            let mut bytes = vec![];
            for _ in 0..20 {
                let batch = watch.tick();
                let length = |line: &Sampled| serde_json::to_string(line).unwrap().len();
                bytes.push(batch.lines.iter().map(|(_, _, line)| length(line)).sum::<usize>());
            }
            bytes.sort_unstable();
            assert!(bytes[10] < 2048, "bytes of quiet ticks: {bytes:?}");
            let more = watch.node.queries() - first;
            // Parts come every 5, 10 and 60 seconds: nothing of it in a moment, a little on a machine that is busy.
            let passed_s = begun.elapsed().as_secs();
            let parts = passed_s / 5 * 2 + passed_s / 10 * 4 + passed_s / 60 * 8;
            assert!(
                (40..=40 + parts).contains(&more),
                "{more} statements in 20 quiet ticks and {passed_s} s"
            );
            assert!(first <= 26, "{first} in the first");
            let sleeper = background(server, "sleeper", "select count(*) from generate_series(1, 100000000)");
            let wait = watch.until("CPU by statement", |line| match line {
                Sampled::Wait(wait) if wait.wait_type == WAIT_CPU && wait.query_id.is_some() => {
                    Some(wait.clone())
                }
                _ => None,
            });
            assert_eq!(wait.backend, "client backend");
            setup
                .batch_execute(
                    "select pg_cancel_backend(pid) from pg_stat_activity where application_name = 'sleeper'",
                )
                .unwrap();
            let _ = sleeper.join().unwrap();
            setup.batch_execute("insert into counted select generate_series(1, 10)").unwrap();
            watch.skip(Duration::from_secs(10));
            let text = watch.until_event("the text", |event| {
                event.kind == event::QUERY
                    && event.more["text"].as_str().is_some_and(|text| text.contains("insert into counted"))
            });
            let id = text.more["query_id"].as_str().expect("a word");
            let line = watch.seen.lines.iter().find_map(|(_, interval_us, line)| match line {
                Sampled::Statement(statement) if statement.query_id == id => {
                    Some((*interval_us, statement.clone()))
                }
                _ => None,
            });
            let (interval_us, statement) = line.expect("its line came before its text");
            assert!(
                interval_us > 0 && statement.rows == Some(10) && statement.calls == Some(1),
                "{statement:?}"
            );
        },
    );
}

#[test]
fn extensions_that_profile_waits_and_cpu_are_used_when_they_are_there() {
    // They are not packaged everywhere: objects with their names and columns stand in for them, as members of an extension: others are not called.
    on_each(&[("shared_preload_libraries", "pg_stat_statements")], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create extension pg_stat_statements;
                 create table profile (pid int, event_type text, event text, queryid bigint, count bigint);
                 insert into profile values (1, 'LWLock', 'WALWrite', 7, 100), (2, 'LWLock', 'WALWrite', 7, 50), (3, null, null, 7, 10), (4, 'Activity', 'WalWriterMain', 0, 999);
                 create view pg_wait_sampling_profile as select * from profile;
                 create function pg_stat_kcache() returns table (queryid bigint, userid oid, dbid oid, exec_user_time float8, exec_system_time float8) language sql
                   as $$ select queryid, userid, dbid, calls * 0.5, calls * 0.25 from public.pg_stat_statements where query like 'select%kcache_probe%' $$;
                 alter extension pg_stat_statements add view pg_wait_sampling_profile;
                 alter extension pg_stat_statements add function pg_stat_kcache()",
            )
            .unwrap();
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        for what in ["pg_stat_kcache", "pg_wait_sampling", "pg_stat_statements"] {
            assert!(!watch.missing().contains(&what.to_string()), "{what}");
        }
        setup.batch_execute("update profile set count = count + 5 where event = 'WALWrite'").unwrap();
        setup.batch_execute("select 1 as kcache_probe").unwrap();
        let profile = watch.until_due("the profile", |line| match line {
            Sampled::WaitProfile(profile) => Some(profile.clone()),
            _ => None,
        });
        assert_eq!(
            (profile.wait_event.as_str(), profile.query_id.as_deref(), profile.samples),
            ("WALWrite", Some("7"), 10)
        );
        setup.batch_execute("select 1 as kcache_probe").unwrap();
        let statement = watch.until_due("CPU of a statement", |line| match line {
            Sampled::Statement(statement) if statement.cpu_ms.is_some_and(|ms| ms > 0.0) => {
                Some(statement.clone())
            }
            _ => None,
        });
        assert_eq!(statement.cpu_ms, statement.calls.map(|calls| calls as f64 * 750.0));
    });
}

#[test]
fn io_statistics_and_the_clock_are_read() {
    on_each(&[("track_io_timing", "on")], |server| {
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        let offset = watch.seen.lines.iter().find_map(|(_, _, line)| match line {
            Sampled::ClockOffset(clock) => Some(clock.clone()),
            _ => None,
        });
        let offset = offset.expect("measured at the start");
        // The same machine: as far off as it may be by its own error, and the two readings of the wall clock.
        let (off, error) = (offset.offset_us.expect("measured"), offset.error_us.expect("measured"));
        assert!(off.unsigned_abs() <= error + 1000, "{offset:?}");
        let has_io = major(server) >= 16;
        assert_eq!(watch.missing().contains(&"pg_stat_io".to_string()), !has_io);
        if has_io {
            let mut setup = client(server, "setup");
            setup
                .batch_execute("create table t as select i from generate_series(1, 50000) i; checkpoint")
                .unwrap();
            let io = watch.until_due("writes", |line| match line {
                Sampled::Io(io) if io.object == "relation" && io.writes.is_some_and(|writes| writes > 0) => {
                    Some(io.clone())
                }
                _ => None,
            });
            // Since 18 one write may hold several blocks.
            assert!(
                io.write_bytes.zip(io.writes).is_some_and(|(bytes, writes)| bytes >= writes * 8192),
                "{io:?}"
            );
            assert!(io.write_ms.is_some(), "timing is on");
        }
    });
}
