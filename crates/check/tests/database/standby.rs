//! A primary and its standby: what each can judge, and the conditions between them.

use super::{cure, fired, machine, silent};
use check::database::{Expected, Target};
use lab::throwaway::{StopMode, Throwaway, ThrowawayCluster, installations};
use record::check::{Item, Verdict};
use testing::{on_each, wait_for};

fn both(cluster: &ThrowawayCluster) -> Vec<Item> {
    let target = |name: &str, node: &Throwaway| Target {
        name: name.into(),
        spec: node.spec(),
        machine: Some(machine()),
    };
    check::database::check(
        &[target("primary", cluster.node(0)), target("standby", cluster.node(1))],
        &Expected::default(),
    )
}

fn on(items: &[Item], node: &str) -> Vec<Item> {
    items.iter().filter(|item| item.node.as_deref() == Some(node)).cloned().collect()
}

#[test]
fn a_primary_and_its_standby_are_judged_each_by_what_it_knows() {
    on_each(&installations(), |installation| {
        let mut cluster = ThrowawayCluster::replicated(installation, 1, "FIRST 1 (s1)").unwrap();
        let items = both(&cluster);
        let (primary, standby) = (on(&items, "primary"), on(&items, "standby"));
        for id in ["settings.synchronous_standby_names", "state.standby_lag"] {
            silent(&primary, id, "");
        }
        let is_of = |items: &[Item], id: &str| items.iter().any(|item| item.check == id);
        for id in ["state.replay", "state.conflicts"] {
            silent(&standby, id, "");
            // A primary has no replay: that is nothing unknown.
            assert!(is_of(&standby, id) && !is_of(&primary, id), "{id}");
        }
        // What only the primary can answer is unknown on a standby alone, and answered where the primary is checked, too.
        let target = Target { name: "alone".into(), spec: cluster.node(1).spec(), machine: Some(machine()) };
        let alone = check::database::check(&[target], &Expected::default());
        for id in [
            "settings.synchronous_standby_names",
            "state.standby_lag",
            "schema.dead_rows",
            "schema.statistics",
            "state.lost_statistics",
            "settings.max_wal_size",
        ] {
            assert!(
                alone.iter().any(|item| item.check == id
                    && item.verdict == Verdict::Unknown
                    && item.why.contains("standby")),
                "{id}"
            );
            assert!(is_of(&primary, id) && !is_of(&standby, id), "{id}");
        }
        // Both are on this host, and share its memory.
        let buffers = |items: &[Item]| {
            items.iter().find(|item| item.check == "settings.shared_buffers").map(|item| item.claim.clone())
        };
        assert!(
            buffers(&standby).is_some_and(|claim| claim.contains("for each of 2 servers")),
            "{standby:#?}"
        );
        assert!(buffers(&alone).is_some_and(|claim| !claim.contains("servers")), "{alone:#?}");
        // Every check works on a standby: none is refused.
        assert!(!standby.iter().any(|item| item.why.contains("the server refused")), "{standby:#?}");

        cluster.node(1).execute("select pg_wal_replay_pause()").unwrap();
        wait_for("the pause", || {
            cluster.node(1).value("select pg_is_wal_replay_paused()").unwrap().as_deref() == Some("t")
        });
        let standby = on(&both(&cluster), "standby");
        cure(cluster.node(1), "postgres", fired(&standby, "state.replay", "replay", Verdict::Warn));
        silent(&on(&both(&cluster), "standby"), "state.replay", "");

        cluster.node_mut(1).stop(StopMode::Fast).unwrap();
        wait_for("the standby's end", || {
            cluster.node(0).value("select count(*) from pg_stat_replication").unwrap().as_deref() == Some("0")
        });
        let items = both(&cluster);
        let gone: Vec<_> = items.iter().filter(|item| item.node.as_deref() == Some("standby")).collect();
        assert!(
            gone.len() == 1 && gone[0].verdict == Verdict::Fail && gone[0].check == "node.reached",
            "{gone:?}"
        );
        let primary = on(&items, "primary");
        fired(&primary, "state.slots", "", Verdict::Warn);
        cure(
            cluster.node(0),
            "postgres",
            fired(&primary, "settings.synchronous_standby_names", "", Verdict::Fail),
        );
        wait_for("the reload", || {
            cluster.node(0).value("show synchronous_standby_names").unwrap().as_deref() == Some("")
        });
        silent(&on(&both(&cluster), "primary"), "settings.synchronous_standby_names", "");
    });
}

#[test]
fn a_subscription_that_is_disabled_is_found() {
    on_each(&installations(), |installation| {
        let options = lab::throwaway::Options {
            settings: vec![("wal_level".into(), "logical".into())],
            ..Default::default()
        };
        let server = options.start(installation).unwrap();
        server.execute("create table t (i int primary key); create publication p for table t").unwrap();
        server.execute("create database other").unwrap();
        server.execute_in("other", "create table t (i int primary key)").unwrap();
        server.execute("select pg_create_logical_replication_slot('sub', 'pgoutput')").unwrap();
        let connection = format!(
            "host={} port={} user=postgres dbname=postgres",
            server.socket_dir().display(),
            server.port()
        );
        server.execute_in("other", &format!("create subscription sub connection '{connection}' publication p with (create_slot = false, enabled = false)")).unwrap();
        let items = super::check(&server, "other", Some(machine()), &Expected::default());
        cure(&server, "other", fired(&items, "state.subscriptions", "sub", Verdict::Warn));
        wait_for("the worker", || {
            server.value("select active from pg_replication_slots").unwrap().as_deref() == Some("t")
        });
        silent(
            &super::check(&server, "other", Some(machine()), &Expected::default()),
            "state.subscriptions",
            "",
        );
        server.execute_in("other", "alter subscription sub disable").unwrap();
        wait_for("the worker's end", || {
            server.value("select active from pg_replication_slots").unwrap().as_deref() == Some("f")
        });
    });
}
