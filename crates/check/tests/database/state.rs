//! The state of a server: each condition is made, found, and gone after its remedy.

use super::{check, cure, fired, machine, silent};
use check::database::Expected;
use lab::throwaway::{Options, StopMode, Throwaway, installations};
use postgres::Client;
use record::check::{Item, Verdict};
use std::os::unix::fs::FileExt;
use testing::{on_each, wait_for};

fn client(server: &Throwaway) -> Client {
    Client::connect(&format!(
        "host='{}' port={} user=postgres dbname=postgres",
        server.socket_dir().display(),
        server.port()
    ))
    .unwrap()
}

fn items(server: &Throwaway) -> Vec<Item> {
    check(server, "postgres", Some(machine()), &Expected::default())
}

fn options(settings: &[(&str, &str)]) -> Options {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Options { settings, ..Options::default() }
}

/// Uses so many transaction ids.
fn burn(server: &Throwaway, ids: u32) {
    server
        .execute(&format!("do $$ begin for i in 1..{ids} loop begin insert into burnt values (i); exception when others then raise; end; end loop; end $$"))
        .unwrap();
}

#[test]
fn old_snapshots_prepared_transactions_and_ages_are_found() {
    on_each(&installations(), |installation| {
        // The smallest limits that the server has.
        let settings = [
            ("autovacuum_freeze_max_age", "100000"),
            ("autovacuum_multixact_freeze_max_age", "10000"),
            ("vacuum_freeze_min_age", "0"),
            ("autovacuum_naptime", "1h"),
            ("max_prepared_transactions", "5"),
        ];
        let server = options(&settings).start(installation).unwrap();
        server
            .execute("create table burnt (i int); create table locked_rows (i int primary key, v int)")
            .unwrap();
        server.execute("insert into locked_rows select generate_series(1, 12000)").unwrap();
        let all = items(&server);
        for id in [
            "state.old_transactions",
            "state.idle_in_transaction",
            "state.prepared_transactions",
            "state.table_age",
        ] {
            silent(&all, id, "");
        }
        let mut old = client(&server);
        old.batch_execute("begin isolation level repeatable read; select 1; insert into burnt values (0)")
            .unwrap();
        let mut coordinator = client(&server);
        coordinator
            .batch_execute("begin; insert into burnt values (0); prepare transaction 'it''s'")
            .unwrap();
        // Two transactions lock each row, so each row gets a multixact id.
        server
            .execute("do $$ begin for r in 1..12000 loop perform 1 from locked_rows where i = r for key share; begin update locked_rows set v = 1 where i = r; exception when others then raise; end; end loop; end $$")
            .unwrap();
        burn(&server, 115_000);
        let all = items(&server);
        let session = fired(&all, "state.old_transactions", "process", Verdict::Fail);
        let prepared = fired(&all, "state.prepared_transactions", "it's", Verdict::Warn);
        fired(&all, "state.database_age", "postgres", Verdict::Warn);
        fired(&all, "state.table_age", "public.burnt", Verdict::Warn);
        fired(&all, "state.multixact_age", "postgres", Verdict::Warn);
        cure(&server, "postgres", session);
        // It is shown and not ended: an engine may have prepared it, and only its coordinator knows how it ended.
        cure(&server, "postgres", prepared);
        fired(&items(&server), "state.prepared_transactions", "it's", Verdict::Warn);
        server.execute_in("postgres", "rollback prepared 'it''s'").unwrap();
        let all = items(&server);
        silent(&all, "state.old_transactions", "");
        silent(&all, "state.prepared_transactions", "");
        // Each database has its own tables to freeze; template0 is left to autovacuum.
        for database in ["template1", "postgres"] {
            for _ in 0..2 {
                server.execute_in(database, "vacuum (freeze)").unwrap();
            }
        }
        let all = items(&server);
        for id in ["state.database_age", "state.table_age", "state.multixact_age"] {
            silent(&all, id, "postgres");
            silent(&all, id, "public");
        }
        // At a planned rate, the forced vacuum is near.
        let planned = Expected { xids_per_s: Some(1000.0), ..Expected::default() };
        let all = check(&server, "postgres", Some(machine()), &planned);
        assert!(fired(&all, "state.database_age", "postgres", Verdict::Note).claim.contains("1,000 ids/s"));
    });
}

#[test]
fn a_session_that_is_idle_in_a_transaction_and_blocks_another_is_found() {
    on_each(&installations(), |installation| {
        let server = options(&[]).start(installation).unwrap();
        server.execute("create table t (i int)").unwrap();
        let mut holder = client(&server);
        holder.batch_execute("begin; lock table t").unwrap();
        silent(&items(&server), "state.idle_in_transaction", "");
        std::thread::scope(|scope| {
            // A wrong expectation below must not leave it waiting for ever.
            let waiter = scope.spawn(|| server.execute("set lock_timeout = '60s'; select * from t"));
            wait_for("a waiting session", || {
                server
                    .value("select count(*) from pg_stat_activity where wait_event_type = 'Lock'")
                    .unwrap()
                    .as_deref()
                    == Some("1")
            });
            let all = items(&server);
            let item = fired(&all, "state.idle_in_transaction", "process", Verdict::Warn);
            assert!(item.claim.contains("another session waits"), "{item:?}");
            cure(&server, "postgres", item);
            waiter.join().unwrap().unwrap();
        });
        silent(&items(&server), "state.idle_in_transaction", "");
    });
}

#[test]
fn slots_archiving_and_configuration_are_judged() {
    on_each(&installations(), |installation| {
        let mut server =
            options(&[("archive_mode", "on"), ("archive_command", "true"), ("log_checkpoints", "on")])
                .start(installation)
                .unwrap();
        let all = items(&server);
        for id in [
            "state.slots",
            "state.archiver",
            "state.pending_restart",
            "state.configuration_files",
            "state.access_rules",
        ] {
            silent(&all, id, "");
        }
        server.execute("select pg_create_physical_replication_slot('it_s', true)").unwrap();
        // Without a reservation a slot keeps nothing until a standby has connected.
        server.execute("select pg_create_physical_replication_slot('later')").unwrap();
        server.execute("alter system set archive_command = 'false'; ").unwrap();
        server.execute("alter system set max_connections = 123").unwrap();
        server.reload().unwrap();
        wait_for("the reload", || server.value("show archive_command").unwrap().as_deref() == Some("false"));
        server.execute("create table t (i int)").unwrap();
        server.execute("select pg_switch_wal()").unwrap();
        wait_for("a failed archive command", || {
            server.value("select failed_count > 0 from pg_stat_archiver").unwrap().as_deref() == Some("t")
        });
        std::fs::write(
            server.data_dir().join("pg_hba.conf"),
            "local all all trust\nhost all all 10.0.0.0/8 trust\nhost all all 10.0.0.0/8 nonsense\n",
        )
        .unwrap();
        let conf = server.data_dir().join("postgresql.conf");
        let before = std::fs::read_to_string(&conf).unwrap();
        std::fs::write(&conf, format!("{before}\nwork_mem = 'much'\n")).unwrap();
        let all = items(&server);
        let slot = fired(&all, "state.slots", "it_s", Verdict::Warn);
        cure(&server, "postgres", slot);
        fired(&all, "state.slots", "later", Verdict::Note);
        server.execute("select pg_drop_replication_slot('later')").unwrap();
        fired(&all, "state.archiver", "archive_command", Verdict::Fail);
        fired(&all, "state.pending_restart", "max_connections", Verdict::Warn);
        assert!(
            fired(&all, "state.configuration_files", "postgresql.conf", Verdict::Fail)
                .claim
                .contains("work_mem")
        );
        fired(&all, "state.access_rules", "line 2", Verdict::Warn);
        fired(&all, "state.access_rules", "line 3", Verdict::Fail);

        std::fs::write(&conf, before).unwrap();
        std::fs::write(server.data_dir().join("pg_hba.conf"), "local all all trust\n").unwrap();
        server.execute("alter system set archive_command = 'true'").unwrap();
        server.stop(StopMode::Fast).unwrap();
        server.start_again().unwrap();
        server.execute("create table u (i int)").unwrap();
        server.execute("select pg_switch_wal()").unwrap();
        wait_for("an archived segment", || {
            server
                .value("select last_archived_time > last_failed_time from pg_stat_archiver")
                .unwrap()
                .as_deref()
                == Some("t")
        });
        let all = items(&server);
        for id in [
            "state.slots",
            "state.archiver",
            "state.pending_restart",
            "state.configuration_files",
            "state.access_rules",
        ] {
            silent(&all, id, "");
        }
    });
}

#[test]
fn damage_lost_counters_and_collations_are_found() {
    on_each(&installations(), |installation| {
        let mut server =
            Options { initdb: vec!["--data-checksums".into()], ..options(&[("autovacuum", "off")]) }
                .start(installation)
                .unwrap();
        server
            .execute(
                "create table kept (i int primary key); insert into kept select generate_series(1, 5000)",
            )
            .unwrap();
        server
            .execute("create table hurt (t text); insert into hurt select 'x' from generate_series(1, 1000)")
            .unwrap();
        server.execute("create collation c1 (provider = icu, locale = 'en'); create table collated (t text collate c1 primary key)").unwrap();
        server.execute("vacuum analyze").unwrap();
        let all = items(&server);
        for id in [
            "settings.data_checksums",
            "state.checksum_failures",
            "state.lost_statistics",
            "state.collations",
            "state.database_collation",
        ] {
            silent(&all, id, "");
        }
        let file = server.value("select pg_relation_filepath('hurt')").unwrap().unwrap();
        server.stop(StopMode::Fast).unwrap();
        let path = server.data_dir().join(file);
        std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(b"damage", 8000).unwrap();
        server.start_again().unwrap();
        server.execute("select count(*) from hurt").unwrap_err();
        server.execute("update pg_collation set collversion = '0' where collname = 'c1'").unwrap();
        wait_for("the counted failure", || {
            server.value("select sum(checksum_failures) from pg_stat_database").unwrap().as_deref()
                != Some("0")
        });
        let all = items(&server);
        let failed = fired(&all, "state.checksum_failures", "postgres", Verdict::Fail);
        assert!(failed.remedy.commands[0].contains("pg_amcheck"));
        let collation = fired(&all, "state.collations", "c1", Verdict::Warn);
        cure(&server, "postgres", collation);
        silent(&items(&server), "state.collations", "");

        server.kill9().unwrap();
        server.start_again().unwrap();
        let all = items(&server);
        cure(&server, "postgres", fired(&all, "state.lost_statistics", "public.kept", Verdict::Warn));
        wait_for("the counters", || {
            super::of(&items(&server), "state.lost_statistics", "public.kept").is_empty()
        });
    });
}

#[test]
fn a_database_with_another_collation_version_is_found() {
    let installations = installations();
    let newer: Vec<_> = installations.iter().filter(|one| one.version.major >= 15).cloned().collect();
    on_each(&newer, |installation| {
        let server = options(&[]).start(installation).unwrap();
        server
            .execute("create database icu template template0 locale_provider icu icu_locale 'en' locale 'C'")
            .unwrap();
        silent(&items(&server), "state.database_collation", "");
        server.execute("update pg_database set datcollversion = '0' where datname = 'icu'").unwrap();
        let all = items(&server);
        cure(&server, "icu", fired(&all, "state.database_collation", "icu", Verdict::Warn));
        silent(&items(&server), "state.database_collation", "");
    });
}

#[test]
fn the_release_and_its_known_defects_are_named() {
    on_each(&installations(), |installation| {
        let server = options(&[]).start(installation).unwrap();
        let all = items(&server);
        let release = all.iter().find(|item| item.check == "state.support").unwrap();
        assert!(
            release.claim.contains(&format!("support ends on 20{}", installation.version.major + 12)),
            "{}",
            release.claim
        );
        let defects: Vec<_> = all.iter().filter(|item| item.check == "state.known_defects").collect();
        if installation.version.major == 18 && installation.version.minor < 7 {
            assert!(
                defects
                    .iter()
                    .any(|item| item.verdict == Verdict::Fail && item.claim.contains("incremental")),
                "{defects:?}"
            );
        } else {
            assert!(!defects.is_empty());
        }
        assert!(all.iter().any(|item| item.check == "state.uptime" && item.verdict == Verdict::Note));
    });
}
