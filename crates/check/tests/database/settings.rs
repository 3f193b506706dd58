//! Settings: a server with every bad one, and the same after the remedies.

use super::{check, cure, fired, machine, silent};
use check::database::{Expected, Machine};
use lab::throwaway::{Options, StopMode, Throwaway, installations};
use record::check::{Item, Verdict};
use testing::on_each;

/// Settings that are wrong for [`small`].
const BAD: &[(&str, &str)] = &[
    ("max_wal_size", "64MB"),
    ("min_wal_size", "32MB"),
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("checkpoint_completion_target", "0.5"),
    ("wal_compression", "off"),
    ("shared_buffers", "300MB"),
    ("effective_cache_size", "100MB"),
    ("work_mem", "64MB"),
    ("huge_pages", "off"),
    ("max_connections", "50"),
    ("autovacuum", "off"),
    ("track_counts", "on"),
    ("autovacuum_max_workers", "20"),
    ("autovacuum_naptime", "30min"),
    ("synchronous_commit", "off"),
    ("random_page_cost", "4"),
    ("jit", "on"),
    ("track_io_timing", "off"),
    ("track_wal_io_timing", "off"),
    ("log_checkpoints", "off"),
    ("log_lock_waits", "off"),
    ("log_autovacuum_min_duration", "-1"),
    ("log_temp_files", "-1"),
    ("log_line_prefix", "x"),
    ("password_encryption", "md5"),
    ("idle_in_transaction_session_timeout", "0"),
];

fn small() -> Machine {
    Machine { memory_bytes: Some(600 << 20), cpus: Some(4), ..machine() }
}

fn expected() -> Expected {
    Expected {
        wal_bytes_per_s: Some(100e6),
        connections: Some(60),
        data_bytes: Some(100e12),
        xids_per_s: None,
        storage: None,
    }
}

/// Every setting that [`BAD`] is judged for, with the verdict.
const FIRING: &[(&str, &str, Verdict)] = &[
    ("settings.max_wal_size", "max_wal_size", Verdict::Warn),
    ("settings.wal_level", "wal_level", Verdict::Warn),
    ("settings.checkpoint_completion_target", "checkpoint", Verdict::Warn),
    ("settings.wal_compression", "wal_compression", Verdict::Note),
    ("settings.shared_buffers", "shared_buffers", Verdict::Warn),
    ("settings.effective_cache_size", "effective_cache_size", Verdict::Warn),
    ("settings.work_mem", "work_mem", Verdict::Warn),
    ("settings.max_connections", "max_connections", Verdict::Fail),
    ("settings.idle_in_transaction_session_timeout", "idle", Verdict::Warn),
    ("settings.fsync", "fsync", Verdict::Fail),
    ("settings.full_page_writes", "full_page_writes", Verdict::Fail),
    ("settings.synchronous_commit", "synchronous_commit", Verdict::Warn),
    ("settings.autovacuum", "autovacuum", Verdict::Fail),
    ("settings.autovacuum_max_workers", "autovacuum_max_workers", Verdict::Warn),
    ("settings.autovacuum_cost", "autovacuum_vacuum_cost_limit", Verdict::Warn),
    ("settings.autovacuum_naptime", "autovacuum_naptime", Verdict::Warn),
    ("settings.random_page_cost", "random_page_cost", Verdict::Warn),
    ("settings.track_io_timing", "track_io_timing", Verdict::Warn),
    ("settings.track_wal_io_timing", "track_wal_io_timing", Verdict::Warn),
    ("settings.log", "log_checkpoints", Verdict::Warn),
    ("settings.log", "log_lock_waits", Verdict::Warn),
    ("settings.log", "log_autovacuum_min_duration", Verdict::Warn),
    ("settings.log", "log_temp_files", Verdict::Note),
    ("settings.log", "log_line_prefix", Verdict::Note),
    ("settings.password_encryption", "password_encryption", Verdict::Warn),
];

#[test]
fn every_bad_setting_is_found_and_its_remedy_removes_the_item() {
    on_each(&installations(), |installation| {
        let settings = BAD.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut server = Options { settings, ..Options::default() }.start(installation).unwrap();
        server.execute("alter role postgres set enable_hashjoin = off; alter database template1 set work_mem = '5MB'").unwrap();
        let items = check(&server, "postgres", Some(small()), &expected());
        for (id, subject, verdict) in FIRING {
            fired(&items, id, subject, *verdict);
        }
        // The host gives no huge pages, so this remedy is only read.
        let huge = fired(&items, "settings.huge_pages", "huge_pages", Verdict::Warn);
        assert!(huge.remedy.commands[0].starts_with("$ sysctl -w vm.nr_hugepages="), "{huge:?}");
        fired(&items, "settings.jit", "jit", Verdict::Note);
        fired(&items, "settings.overrides", "role postgres", Verdict::Warn);
        fired(&items, "settings.overrides", "database template1", Verdict::Note);
        assert!(
            fired(&items, "settings.max_wal_size", "", Verdict::Warn).claim.contains("postgresql.conf line")
        );

        let cured = |items: &[Item]| {
            for (id, subject, verdict) in FIRING {
                cure(&server, "postgres", fired(items, id, subject, *verdict));
            }
            cure(&server, "postgres", fired(items, "settings.overrides", "role postgres", Verdict::Warn));
            cure(
                &server,
                "postgres",
                fired(items, "settings.overrides", "database template1", Verdict::Note),
            );
            cure(&server, "postgres", fired(items, "settings.jit", "jit", Verdict::Note));
        };
        cured(&items);
        server.stop(StopMode::Fast).unwrap();
        server.start_again().unwrap();
        let items = check(&server, "postgres", Some(small()), &expected());
        for (id, subject, _) in
            FIRING.iter().filter(|(id, ..)| !["settings.work_mem", "settings.wal_level"].contains(id))
        {
            silent(&items, id, subject);
        }
        silent(&items, "settings.overrides", "");
        silent(&items, "settings.jit", "");
        // More connections and fewer buffers need another value.
        for item in
            items.iter().filter(|item| item.check == "settings.work_mem" && item.verdict == Verdict::Warn)
        {
            cure(&server, "postgres", item);
        }
        assert_eq!(server.value("show wal_level").unwrap().as_deref(), Some("replica"));
        server.reload().unwrap();
        testing::wait_for("the new work_mem", || {
            check(&server, "postgres", Some(small()), &expected())
                .iter()
                .any(|item| item.check == "settings.work_mem" && item.verdict == Verdict::Pass)
        });
    });
}

#[test]
fn checkpoints_that_were_requested_and_a_small_disk_are_found() {
    on_each(&installations(), |installation| {
        let server = Options::default().start(installation).unwrap();
        server.execute("create table t (i int)").unwrap();
        silent(
            &check(&server, "postgres", Some(machine()), &Expected::default()),
            "settings.max_wal_size",
            "",
        );
        for _ in 0..10 {
            server.execute("insert into t values (1)").unwrap();
            server.execute("checkpoint").unwrap();
        }
        let small = Machine { wal_disk_bytes: Some(1 << 30), ..machine() };
        let items = check(&server, "postgres", Some(small.clone()), &Expected::default());
        cure(&server, "postgres", fired(&items, "settings.max_wal_size", "max_wal_size", Verdict::Fail));
        testing::wait_for("the reload", || {
            server.value("show max_wal_size").unwrap().as_deref() == Some("512MB")
        });
        let items = check(&server, "postgres", Some(small), &Expected::default());
        cure(&server, "postgres", fired(&items, "settings.max_wal_size", "max_wal_size", Verdict::Warn));
        testing::wait_for("the reload", || {
            server.value("show max_wal_size").unwrap().as_deref() == Some("1GB")
        });
        silent(
            &check(&server, "postgres", Some(machine()), &Expected::default()),
            "settings.max_wal_size",
            "",
        );
    });
}

#[test]
fn addresses_tls_and_slots_without_a_limit_are_found() {
    on_each(&installations(), |installation| {
        let settings = vec![("wal_level".to_owned(), "logical".to_owned())];
        let mut server = Options { tcp: true, settings, ..Options::default() }.start(installation).unwrap();
        let items = check(&server, "postgres", None, &Expected::default());
        silent(&items, "settings.ssl", "");
        silent(&items, "settings.slot_limit", "");
        fired(&items, "settings.wal_level", "wal_level", Verdict::Note);
        server.execute("alter system set listen_addresses = '*'").unwrap();
        server.execute("select pg_create_physical_replication_slot('s')").unwrap();
        server.stop(StopMode::Fast).unwrap();
        server.start_again().unwrap();
        let items = check(&server, "postgres", None, &Expected::default());
        fired(&items, "settings.ssl", "ssl", Verdict::Warn);
        fired(&items, "settings.listen_addresses", "listen_addresses", Verdict::Note);
        cure(
            &server,
            "postgres",
            fired(&items, "settings.slot_limit", "max_slot_wal_keep_size", Verdict::Warn),
        );
        testing::wait_for("the reload", || {
            server.value("show max_slot_wal_keep_size").unwrap().as_deref() != Some("-1")
        });
        silent(&check(&server, "postgres", None, &Expected::default()), "settings.slot_limit", "");
        server.execute("alter system set listen_addresses = '127.0.0.1'").unwrap();
    });
}

/// A plan of a load with a tablespace of its own; what it needs is far above any disk.
fn plan(bytes: u64, tablespaces: &[&str]) -> record::plan::Plan {
    let mut plan = record::plan::Plan::default();
    plan.input.hardware.nodes = 1;
    plan.input.loading.tablespaces = tablespaces.iter().map(|name| (*name).to_string()).collect();
    plan.input.server = record::plan::input::Server { max_wal_bytes: 1 << 30, ..Default::default() };
    plan.layout.volumes_per_node = 1;
    plan.layout.partition_bytes = bytes;
    (plan.space.peak_bytes, plan.space.final_bytes) = (bytes, bytes / 2);
    (plan.wal.bytes_per_s, plan.transactions.vacuum_bytes) = (Some(1e8), 100_000_000_000_000);
    plan.clients.connections_per_node = 500;
    plan
}

#[test]
fn a_plan_is_judged_against_settings_tablespaces_partitions_and_space() {
    on_each(&installations(), |installation| {
        let server = Throwaway::start(installation, &[]).unwrap();
        let of_plan = |plan: &record::plan::Plan| check(&server, "postgres", None, &Expected::of_plan(plan));
        let items = of_plan(&plan(1 << 60, &["pg_default", "d 1\u{1b}"]));
        fired(&items, "settings.max_wal_size", "max_wal_size", Verdict::Warn);
        fired(&items, "settings.max_connections", "max_connections", Verdict::Fail);
        fired(&items, "settings.autovacuum_cost", "autovacuum_vacuum_cost_limit", Verdict::Warn);
        fired(&items, "schema.planned_partitions", "", Verdict::Fail);
        fired(&items, "state.planned_tablespaces", "d 1\\u001b", Verdict::Fail);
        let space = fired(&items, "state.planned_space", "pg_default", Verdict::Fail);
        assert_eq!(space.limit, Some(record::check::Limit::AtLeast((1u64 << 60) as f64)));
        silent(&items, "settings.planned", "");

        // Two tablespaces on one disk need its space twice; their partitions fit.
        server.execute("alter system set allow_in_place_tablespaces = on").unwrap();
        server.execute("alter system set max_wal_size = '2GB'").unwrap();
        server.reload().unwrap();
        testing::wait_for("the reload", || {
            server.value("show max_wal_size").unwrap().as_deref() == Some("2GB")
        });
        server.execute("create tablespace own location ''").unwrap();
        let items = of_plan(&plan(1_000, &["pg_default", "own"]));
        silent(&items, "schema.planned_partitions", "");
        silent(&items, "state.planned_tablespaces", "");
        silent(&items, "state.planned_space", "");
        let space = fired(&items, "state.planned_space", "", Verdict::Pass);
        assert_eq!(space.limit, Some(record::check::Limit::AtLeast(2_000.0)), "{space:?}");
        fired(&items, "settings.planned", "max_wal_size", Verdict::Note);

        // Two nodes on one disk: there is room for the rows of one.
        let folder = server.data_dir();
        let free = rustix::fs::statvfs(&folder).map(|space| space.f_bavail * space.f_frsize).unwrap();
        let target =
            |name: &str| check::database::Target { name: name.into(), spec: server.spec(), machine: None };
        let both = |bytes: u64| {
            check::database::check(&[target("n1"), target("n2")], &Expected::of_plan(&plan(bytes, &[])))
        };
        let together = both(free / 10 * 6);
        fired(&together, "state.planned_space", "n1, n2", Verdict::Fail);
        assert_eq!(together.iter().filter(|item| item.check == "state.planned_space").count(), 3);
        silent(&both(free / 10 * 3), "state.planned_space", "");

        // Without the right to read the folder, the space is not known; without a plan there is nothing to judge.
        server.execute("create role plain login").unwrap();
        let spec = server.spec().with_user("plain");
        let target = check::database::Target { name: "n1".into(), spec, machine: None };
        let items = check::database::check(&[target], &Expected::of_plan(&plan(1 << 60, &[])));
        fired(&items, "state.planned_space", "", Verdict::Unknown);
        let items = check(&server, "postgres", None, &Expected::default());
        assert!(!items.iter().any(|item| item.check.contains("planned")), "{items:#?}");
    });
}

#[test]
fn a_value_at_its_limit_passes_and_the_memory_of_a_control_group_counts() {
    let installation = installations().into_iter().next().unwrap();
    let settings = [("shared_buffers", "64MB"), ("effective_cache_size", "149MB")];
    let server = Throwaway::start(&installation, &settings).unwrap();
    let on = |machine: Machine| check(&server, "postgres", Some(machine), &Expected::default());
    // A quarter of 600 MB, rounded down.
    silent(&on(small()), "settings.effective_cache_size", "");
    let all = on(Machine { memory_bytes: Some(640 << 20), ..small() });
    fired(&all, "settings.effective_cache_size", "effective_cache_size", Verdict::Warn);
    let limited = Machine { memory_bytes: Some(700 << 20), is_limited: true, ..small() };
    let all = on(limited);
    let low = fired(&all, "settings.shared_buffers", "shared_buffers", Verdict::Warn);
    assert!(low.claim.contains("MB that its control group allows"), "{low:?}");
}
