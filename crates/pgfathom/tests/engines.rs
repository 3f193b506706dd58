//! The engines that `scripts/engines` has built, each on a cluster of three nodes: loaded, verified, driven and proved by the command.

use crate::every_verb::Trial;
use crate::labs::{self, ClusterLab};
use std::path::Path;
use std::time::Duration;

mod hints;
mod named;
mod outlived;
mod placed;
pub(crate) mod values;

use crate::support;
use lab::local::{Installation, Topology};
use lab::throwaway::{ThrowawayCluster, installations};
use serde_json::Value;
use support::{Ended, Folder, pgfathom};

/// The cluster, or nothing where the engine is not built.
fn trial(need: &'static str, topology: &Topology, extension: Option<&str>) -> Option<Trial> {
    let programs = built(need, topology.kind())?;
    let installation = Installation::at(Path::new(&programs)).expect("an engine that was built has a server");
    let servers = ThrowawayCluster::start(&installation, topology, &[]).expect("a throwaway cluster starts");
    Some(Trial::new(ClusterLab::new(servers), topology.kind(), extension))
}

fn engine(name: &str) -> engines::Engine {
    engines::Engine::parse(name).expect("an engine has this name")
}

/// The programs of an engine; nothing, and a skip, where it is not built.
fn built(need: &'static str, engine: &str) -> Option<std::path::PathBuf> {
    testing::needs::engine(need, engine).map_err(|lack| testing::skip(&lack)).ok()
}

#[test]
fn citus_is_loaded_verified_driven_and_proved() {
    let Some(trial) = trial("engine-citus", &Topology::Citus { nodes: 3 }, Some("citus")) else { return };
    let lab = &trial.lab;
    trial.load_and_verify();
    for routed in ["each", "owner"] {
        lab.expect(0, &format!("run -b ycsb-a -c 6 -t 20 --connect {routed} -o {routed}"));
        assert_eq!(lab.run_json(routed)["target"]["engine"], "citus");
    }
    let refused = lab.expect(1, "load ycsb --rows 3000 --restart --via each").stderr;
    assert!(refused.contains("the ledger of this engine is on one node"), "{refused}");
    // A worker names the coordinator, which has the ledger.
    let told = lab.expect_at(0, "verify ycsb", 2).stdout;
    assert!(told.contains("accepted"), "{told}");
    // And a run enters there all the same.
    let entered = lab.expect_at(0, "run -b ycsb-a -t 5 -o entered", 2).stderr;
    assert!(entered.contains("this server is a worker of a cluster whose coordinator is "), "{entered}");
    assert_eq!(lab.run_json("entered")["steps"][0]["summary"]["transactions"], 5);
    trial.run();
    // Any other statement of these would have gone to all shards, and taken their locks.
    lab.execute(0, "alter system set citus.enable_stat_counters = on");
    lab.execute(0, "select pg_catalog.pg_reload_conf()");
    lab.expect(0, "run -b tpcc --no-delays -c 3 -t 20 -o tpcc");
    let counted = lab.sql(0, SHARDS_ASKED);
    let (of_one, of_several) = counted.split_once(' ').expect("two counts");
    let [of_one, of_several] = [of_one, of_several].map(|count| count.parse::<u64>().expect("a count"));
    assert!(of_one > 300 && of_several <= ORDERS_COUNTED, "{counted}");
    let tpcc = lab.run_json("tpcc").to_string();
    assert!(tpcc.contains("two-phase commits") && tpcc.contains("nodes touched"), "{tpcc}");
    trial.look();
    trial.prove();
    a_node_that_the_file_lacks_is_named(lab);
    a_node_of_another_cluster_is_refused(lab);
    a_database_without_nodes_is_refused(lab);
    values::of_a_catalog_are_found(lab, engine("citus"));
}

/// What the coordinator does not return is looked for on each node.
#[test]
fn citus_is_verified_shard_by_shard() {
    let Some(trial) = trial("engine-citus", &Topology::Citus { nodes: 3 }, None) else { return };
    let lab = &trial.lab;
    lab.expect(0, "load tpcc -s 1");
    copies_of_a_reference_table_are_compared(lab);
    rows_are_looked_for_in_each_shard(lab);
    copies_of_a_shard_are_compared(lab);
}

/// What a session may do with a shard by itself.
const BY_HAND: &str = "set citus.enable_manual_changes_to_shards = on";

/// Another node may read another copy than the coordinator, which returns what was loaded.
fn copies_of_a_reference_table_are_compared(lab: &ClusterLab) {
    let copy = lab.sql(
        0,
        "select 'item_' || shardid from pg_catalog.pg_dist_shard where logicalrelid = 'item'::regclass",
    );
    lab.execute(2, &format!("{BY_HAND}; delete from {copy} where i_id = 77"));
    lab.execute(1, &format!("{BY_HAND}; update {copy} set i_price = i_price + 1 where i_id = 78"));
    let verified = lab.expect(3, "verify tpcc").stdout;
    for words in [
        format!("where i_id = 77: is in {copy} on coordinator, but not on w2"),
        format!("where i_id = 78: differs between {copy} on w1 and coordinator"),
    ] {
        assert!(verified.contains(&words), "{words}: {verified}");
    }
    let proved = lab.expect(3, "prove tpcc --conditions X15").stdout;
    for words in
        [format!("i_id 77, missing on w2 ({copy})"), format!("i_id 78, on w1 ({copy}) it differs from")]
    {
        assert!(proved.contains(&words), "{words}: {proved}");
    }
    lab.execute(1, &format!("{BY_HAND}; update {copy} set i_price = i_price - 1 where i_id = 78"));
}

/// A row that a statement with its key does not find.
fn rows_are_looked_for_in_each_shard(lab: &ClusterLab) {
    lab.expect(0, "load ycsb --rows 3000");
    let shard = |node: usize| {
        let group = lab.sql(node, "select groupid::text from pg_catalog.pg_dist_local_group");
        lab.sql(
            0,
            &format!(
                "select 'usertable_' || shardid from pg_catalog.pg_dist_placement join pg_catalog.pg_dist_shard using (shardid) \
                 where logicalrelid = 'usertable'::regclass and groupid = {group} order by shardid limit 1"
            ),
        )
    };
    let (other, home) = (shard(1), shard(2));
    let key = lab.sql(2, &format!("select min(ycsb_key)::text from {home}"));
    let values: Vec<String> = (0..10).map(|field| format!("quote_literal(field{field})")).collect();
    let values = lab.sql(
        2,
        &format!(
            "select concat_ws(', ', quote_literal(ycsb_key), {}) from {home} where ycsb_key = '{key}'",
            values.join(", ")
        ),
    );
    lab.execute(1, &format!("{BY_HAND}; insert into {other} values ({values})"));
    let misplaced = format!("is in {other} on w1, belongs in {home} on w2");
    let doubled = lab.expect(3, "verify ycsb").stdout;
    for words in [misplaced.as_str(), "2 copies in ", &format!("{other} on w1"), &format!("{home} on w2")] {
        assert!(doubled.contains(words), "{words}: {doubled}");
    }
    lab.execute(2, &format!("{BY_HAND}; delete from {home} where ycsb_key = '{key}'"));
    assert_eq!(lab.sql(0, &format!("select count(*)::text from usertable where ycsb_key = '{key}'")), "0");
    for how in ["", " --deep"] {
        let found = lab.expect(3, &format!("verify ycsb{how}")).stdout;
        assert!(found.contains(&misplaced), "{how}: {found}");
    }
    // Without the worker there is no way of finding it.
    let whole = std::fs::read_to_string(lab.servers.cluster_toml()).expect("a cluster file");
    let (short, _) = whole.rsplit_once("[[node]]").expect("nodes");
    std::fs::write(lab.folder.path().join("less.toml"), short).expect("a file");
    lab.execute(1, &format!("{BY_HAND}; delete from {other} where ycsb_key = '{key}'"));
    lab.execute(2, &format!("{BY_HAND}; insert into {home} values ({values})"));
    let mut command = pgfathom(lab.folder.path());
    command.args(["verify", "ycsb", "--cluster", "less.toml"]);
    let ended: Ended = command.output().expect("the command starts").into();
    let printed = format!("{}{}", ended.stdout, ended.stderr);
    assert!(ended.exit == Some(8) && printed.contains("name all nodes in the cluster file"), "{printed}");
    assert!(lab.expect(0, "verify ycsb").stdout.contains("3,000 rows exact"));
}

/// With two placements of each shard the coordinator reads one.
fn copies_of_a_shard_are_compared(lab: &ClusterLab) {
    let factor = |sql: &str| {
        lab.execute(0, &format!("alter system {sql}"));
        lab.execute(0, "select pg_catalog.pg_reload_conf()");
    };
    factor("set citus.shard_replication_factor = 2");
    testing::wait_for("the setting holds", || lab.sql(0, "show citus.shard_replication_factor") == "2");
    lab.expect(0, "load ycsb --rows 1000 --restart");
    lab.expect(0, "load tpcb -s 1");
    for what in ["ycsb", "ycsb --deep", "tpcb"] {
        assert!(lab.expect(0, &format!("verify {what}")).stdout.contains("exact"));
    }
    let second = |table: &str| {
        lab.sql(
            0,
            &format!(
                "select '{table}_' || shardid from pg_catalog.pg_dist_shard where logicalrelid = '{table}'::regclass order by shardid limit 1"
            ),
        )
    };
    let shard = second("usertable");
    let key = lab.sql(2, &format!("select min(ycsb_key)::text from {shard}"));
    lab.execute(2, &format!("{BY_HAND}; update {shard} set field3 = field4 where ycsb_key = '{key}'"));
    let found = lab.expect(3, "verify ycsb").stdout;
    let words = format!("differs between {shard} on w2 and w1");
    assert!(found.contains(&words) && found.contains(&key), "{found}");
    lab.expect(0, "run -b tpcb -t 20 -o paid");
    let shard = lab.sql(
        0,
        "select shard_name::text from citus_shards where table_name = 'pgbench_history'::regclass and shard_size > 0 order by shard_size desc limit 1",
    );
    lab.execute(2, &format!("{BY_HAND}; delete from {shard}"));
    let found = lab.expect(3, "verify tpcb").stdout;
    let words = format!("pgbench_history on w2 where true: differs between {shard} on w2 and w1");
    assert!(found.contains(&words), "{found}");
    factor("reset citus.shard_replication_factor");
}

/// A cluster file from before the last worker was added.
fn a_node_that_the_file_lacks_is_named(lab: &ClusterLab) {
    let whole = std::fs::read_to_string(lab.servers.cluster_toml()).expect("a cluster file");
    let (short, last) = whole.rsplit_once("[[node]]").expect("nodes");
    let port = last.split("port=").nth(1).and_then(|rest| rest.split([' ', '"']).next()).expect("a port");
    std::fs::write(lab.folder.path().join("short.toml"), short).expect("a file");
    let named = format!(":{port} that the cluster file does not name");
    for arguments in [
        "check --skip network,memory,processor --size 64MB --probe-time 0.1",
        "load ycsb --rows 300 --restart",
        "run -b ycsb-c -t 2",
        "prove ack -T 1",
    ] {
        let mut command = pgfathom(lab.folder.path());
        command.args(arguments.split_whitespace()).args(["--cluster", "short.toml"]);
        let ended: Ended = command.output().expect("the command starts").into();
        let shown = format!("{}{}", ended.stdout, ended.stderr);
        // A long path breaks the line elsewhere.
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&named), "{arguments}: {shown}");
    }
}

/// A database that is in no cluster, one that is in another, and a node that is named twice.
fn a_node_of_another_cluster_is_refused(lab: &ClusterLab) {
    lab.execute(2, "create database apart");
    lab.execute(2, "create database elsewhere");
    let file = std::fs::read_to_string(lab.servers.cluster_toml()).expect("a cluster file");
    let (rest, last) = file.rsplit_once("[[node]]").expect("nodes");
    let with = |name: &str, last: &str| {
        std::fs::write(lab.folder.path().join(name), format!("{rest}[[node]]{last}")).expect("a file");
    };
    let of_database = |database: &str| last.replace("dbname=postgres", &format!("dbname={database}"));
    with("apart.toml", &of_database("apart"));
    with("elsewhere.toml", &of_database("elsewhere"));
    let first =
        rest.split("connection = ").nth(1).and_then(|rest| rest.lines().next()).expect("a connection");
    let own = last.split("connection = ").nth(1).and_then(|rest| rest.lines().next()).expect("a connection");
    with("twice.toml", &last.replace(own, first));
    let command = |words: &str, file: &str| {
        let mut command = pgfathom(lab.folder.path());
        command.args(words.split_whitespace()).args(["--cluster", file]);
        let ended: Ended = command.output().expect("the command starts").into();
        (ended.exit, ended.stderr)
    };
    let port = lab.sql(2, "select pg_catalog.current_setting('port')");
    for sql in [
        "create extension citus",
        &format!("select pg_catalog.citus_set_coordinator_host('another.invalid', {port})"),
    ] {
        lab.servers.node(2).execute_in("elsewhere", sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    for verb in ["load ycsb --rows 300 --restart", "verify ycsb", "run -b ycsb-c -t 2", "prove ack -T 1"] {
        for (file, words) in [
            ("apart.toml", "the database \"apart\" of node \"w2\" is no part of Citus"),
            ("elsewhere.toml", "belong to two clusters: the catalog of "),
            ("twice.toml", "are the same database"),
        ] {
            let (code, printed) = command(verb, file);
            assert!(
                code == Some(1) && printed.contains(words) && printed.contains("hint: "),
                "{verb} {file}: {code:?} {printed}"
            );
        }
    }
}

/// A database with the extension in which no node was added: all rows would be on the coordinator.
fn a_database_without_nodes_is_refused(lab: &ClusterLab) {
    for node in 0..3 {
        lab.execute(node, "create database alone");
        lab.servers.node(node).execute_in("alone", "create extension citus").expect("an extension");
    }
    let refused = lab.expect(1, "load ycsb --rows 300 -d alone").stderr;
    let words = refused.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("\"alone\"") && words.contains("hint: "), "{refused}");
    let made =
        lab.servers.node(0).execute_in("alone", "select pg_catalog.to_regclass('public.usertable')::text");
    assert_eq!(made.expect("an answer"), [[None]], "nothing was made");
}

/// Statements that one shard answered, and those that went to several.
const SHARDS_ASKED: &str = "select query_execution_single_shard || ' ' || query_execution_multi_shard from pg_catalog.citus_stat_counters \
    where name = pg_catalog.current_database()";
/// A run counts all orders before it and after it.
const ORDERS_COUNTED: u64 = 2;

/// A worker that is away when a load begins, shards that move while it is driven: nothing is lost, and nothing of the engine is blamed on the user.
#[test]
fn citus_loses_a_worker_and_moves_shards_under_load() {
    let Some(mut trial) = trial("engine-citus", &Topology::Citus { nodes: 3 }, None) else { return };
    trial.lab.servers.node_mut(2).kill9().expect("the server is killed");
    let load = "load ycsb --rows 60000 -j 2 -o loaded";
    let command = trial.lab.command(load);
    let loading = std::thread::spawn(move || labs::expect(0, command, load));
    let events = trial.lab.folder.path().join("loaded/events.ndjson");
    testing::wait_for("the load has noticed that the worker is away", || {
        std::fs::read_to_string(&events).is_ok_and(|events| events.contains("another node does not answer"))
    });
    trial.lab.servers.node_mut(2).start_again().expect("the server starts again");
    let loaded = loading.join().expect("the load ends");
    let errors = &loaded.stderr;
    assert!(
        errors.contains("another node does not answer") && errors.contains("all nodes answer again"),
        "{errors}"
    );
    // Where the WAL of the second worker began is not known.
    assert!(loaded.stdout.contains(" of WAL without w2"), "{}", loaded.stdout);
    let lab = &trial.lab;
    let totals = &lab.run_json("loaded")["steps"][0]["totals"];
    assert_eq!(totals["wal_by_node"].as_object().map(|nodes| nodes.len()), Some(2), "{totals}");
    assert!(lab.expect(0, "verify ycsb").stdout.contains("60,000 rows exact"));
    let drive = "run -b ycsb-a -c 4 -T 20 -o driven";
    let command = lab.command(drive);
    let driving = std::thread::spawn(move || labs::expect(0, command, drive));
    std::thread::sleep(AWAY);
    for mode in ["block_writes", "force_logical"] {
        lab.sql(0, &format!("{MOVE_ONE}, shard_transfer_mode => '{mode}')::text from one"));
    }
    // The engine would end it within a minute. A move by logical replication waits for every prepared transaction, so it comes last.
    lab.execute(0, "alter system set citus.recover_2pc_interval = -1");
    lab.execute(0, "select pg_catalog.pg_reload_conf()");
    lab.execute(1, "begin; select pg_catalog.pg_current_xact_id(); prepare transaction 'citus_0_1_1_1'");
    driving.join().expect("the run ends");
    let seen = std::fs::read_to_string(lab.folder.path().join("driven/samples.ndjson")).expect("samples");
    assert!(seen.contains("citus_0_1_1_1"), "the prepared transaction of the engine is watched");
    let findings = std::fs::read_to_string(lab.folder.path().join("driven/findings.json")).expect("findings");
    for wrong in ["pg_drop_replication_slot", "ROLLBACK PREPARED", "ALTER SUBSCRIPTION"] {
        assert!(!findings.contains(wrong), "{wrong}: {findings}");
    }
    assert!(lab.expect(0, "verify ycsb").stdout.contains("60,000 rows exact"));
    // Half of the keys are on the worker that is away, and the others go on.
    let drive = "run -b ycsb-c -c 4 -T 10 --watch off -o parted";
    let command = trial.lab.command(drive);
    let driving = std::thread::spawn(move || labs::expect(2, command, drive));
    std::thread::sleep(AWAY * 2);
    trial.lab.servers.node_mut(2).kill9().expect("the server is killed");
    std::thread::sleep(AWAY);
    trial.lab.servers.node_mut(2).start_again().expect("the server starts again");
    let printed = driving.join().expect("the run ends").stdout;
    assert!(printed.contains("failures beside commits for "), "{printed}");
    let outages = &trial.lab.run_json("parted")["steps"][0]["outages"];
    let is_partial = |one: &Value| one["cause"] == "partial" && one["failed"].as_u64() > Some(0);
    assert!(outages.as_array().is_some_and(|all| all.iter().any(is_partial)), "{outages}");
    a_proof_ends_what_is_in_doubt(&trial.lab);
}

/// The engine's own process is off by now. A proof that does not wait for the end of such a transaction takes its rows for lost.
fn a_proof_ends_what_is_in_doubt(lab: &ClusterLab) {
    let prove = "prove bank -T 8 -o doubted";
    let command = lab.command(prove);
    let proving = std::thread::spawn(move || labs::expect(0, command, prove));
    std::thread::sleep(AWAY);
    lab.execute(1, "begin; select pg_catalog.pg_current_xact_id(); prepare transaction 'citus_0_1_1_2'");
    proving.join().expect("the proof ends");
    assert_eq!(lab.sql(1, "select count(*)::text from pg_catalog.pg_prepared_xacts"), "0");
}

/// How long a worker is away, and a run is under way before shards move.
const AWAY: Duration = Duration::from_secs(2);
/// Moves a shard that the first worker has to the second; the mode follows.
const MOVE_ONE: &str = "\
    with one as (select p.shardid, f.nodename source, f.nodeport source_port, t.nodename target, t.nodeport target_port \
                 from pg_dist_placement p join pg_dist_shard s using (shardid) join pg_dist_node f on f.groupid = p.groupid and f.groupid = 1 \
                 join pg_dist_node t on t.groupid = 2 \
                 where s.logicalrelid = 'usertable'::regclass and p.shardstate = 1 order by 1 limit 1) \
    select pg_catalog.citus_move_shard_placement(shardid, source, source_port, target, target_port";

#[test]
fn postgres_pro_multimaster_is_loaded_verified_driven_and_proved() {
    let Some(mut trial) = trial("engine-mtm", &Topology::Mtm { nodes: 3 }, None) else { return };
    let lab = &trial.lab;
    trial.load_and_verify();
    // The engine brings the rows to the others, and no statistics.
    for node in [0, 1, 2] {
        let known = "select count(*)::text from pg_catalog.pg_stats where tablename = 'usertable'";
        assert_ne!(lab.sql(node, known), "0", "node {node} has statistics");
    }
    lab.expect(0, "run -b ycsb-a -c 3 -t 20 --connect each -o each");
    assert_eq!(lab.run_json("each")["target"]["engine"], "mtm");
    for node in [0, 2] {
        lab.expect_at(0, "verify ycsb", node);
    }
    // Streams at every node, and a load of which each part came through another one.
    lab.expect(0, "load ycsb --rows 6000 --chunk-rows 200 --restart --via each -j 3 -o dealt");
    assert!(lab.expect(0, "verify ycsb --deep").stdout.contains("18,000 rows exact"));
    let streams = "select count(distinct stream)::text from pgfathom.chunk c join pgfathom.dataset d on d.id = c.dataset where d.name = 'ycsb'";
    assert_eq!([0, 1, 2].map(|node| lab.sql(node, streams)), ["3", "3", "3"]);
    lab.expect(0, "run -b ycsb-a -c 3 -T 6 --connect each -o sampled");
    let findings =
        std::fs::read_to_string(lab.folder.path().join("sampled/findings.json")).expect("findings");
    assert!(!findings.contains("mtm_sub_"), "Multimaster's own subscriptions are no finding: {findings}");
    trial.run();
    trial.look();
    trial.prove();
    a_node_that_the_file_lacks_is_named(lab);
    values::of_a_replication_are_found(lab, engine("mtm"), "mtm", &["prepared"]);
    // The node at which a proof enters dies and stays away: it goes on at the others.
    for what in ["bank", "ack"] {
        let prove = format!("prove {what} -T 6 -o without-{what}");
        let command = trial.lab.command(&prove);
        let proving = std::thread::spawn(move || labs::expect(0, command, &prove));
        std::thread::sleep(AWAY * 2);
        trial.lab.servers.node_mut(0).kill9().expect("the server is killed");
        let told = proving.join().expect("the proof ends");
        let is_judged = told.stdout.contains("\n2 promises: ") && !told.stdout.contains("not tested");
        assert!(is_judged, "{}{}", told.stdout, told.stderr);
        assert!(told.stderr.contains("did not answer from"), "{}", told.stderr);
        trial.lab.servers.node_mut(0).start_again().expect("the server starts again");
        testing::wait_for("the node is online", || {
            trial.lab.servers.node(0).value("select 1::text").is_ok_and(|one| one.is_some())
        });
    }
}

#[test]
fn pgactive_is_loaded_verified_driven_and_proved() {
    let topology = Topology::Pgactive { nodes: 2 };
    let Some(trial) = trial("engine-pgactive", &topology, Some("pgactive")) else { return };
    every_node_has_what_one_wrote(&trial);
    values::of_a_replication_are_found(
        &trial.lab,
        engine("multimaster"),
        "pgactive",
        &["pgactive: add table", "pgactive: remove table"],
    );
}

/// Slots of one follower have the same name on all others: the one that is behind is named, and there is no verdict.
#[test]
fn pgactive_of_three_nodes_of_which_one_is_behind_is_no_verdict() {
    let topology = Topology::Pgactive { nodes: 3 };
    let Some(trial) = trial("engine-pgactive", &topology, Some("pgactive")) else { return };
    let lab = &trial.lab;
    lab.expect(0, "load ycsb --rows 300 --watch off");
    lab.expect(0, "verify ycsb");
    lab.execute(1, "select pgactive.pgactive_apply_pause()");
    lab.expect(0, "run -b ycsb-update -c 1 -t 20 --connect m1 --watch off -o written");
    let open = lab.expect(8, "verify ycsb --lag-limit 6 -o open");
    let words = open.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("m2") && words.contains("cannot tell"), "{}{}", open.stdout, open.stderr);
    let page: Ended =
        pgfathom(lab.folder.path()).args(["report", "open"]).output().expect("the command starts").into();
    let page = page.stdout;
    assert!(page.contains("CANNOT TELL") && !page.contains("INVALID"), "{page}");
    lab.execute(1, "select pgactive.pgactive_apply_resume()");
    lab.expect(0, "verify ycsb");
}

/// Of a package, or of `scripts/engines`.
#[test]
fn pglogical_is_loaded_verified_driven_and_proved() {
    const NEED: &str = "engine-pglogical";
    let topology = Topology::Pglogical { nodes: 2 };
    let of_package = installations().into_iter().find(|installation| topology.suits(installation));
    let built = testing::needs::engine(NEED, topology.kind()).ok();
    let built =
        built.map(|programs| Installation::at(&programs).expect("an engine that was built has a server"));
    let Some(installation) = built.or(of_package) else {
        return testing::skip(&testing::Lack::new(NEED, "no PostgreSQL here has the extension pglogical"));
    };
    let servers = ThrowawayCluster::start(&installation, &topology, &[]).expect("a throwaway cluster starts");
    let mut trial = Trial::new(ClusterLab::new(servers), "pglogical", Some("pglogical"));
    every_node_has_what_one_wrote(&trial);
    a_node_that_receives_nothing_is_no_verdict(&trial.lab);
    // Without the first node reads go on; a run that writes has to be recorded there, too.
    trial.lab.servers.node_mut(0).kill9().expect("the server is killed");
    trial.lab.expect(0, "run -b ycsb-c -c 1 -t 5 -o read");
    let refused = trial.lab.expect(1, "run -b ycsb-update -c 1 -t 5 -o written-without").stderr;
    assert!(
        refused.contains("the ledger of node m1 cannot be read")
            && refused.contains("start the server of m1"),
        "{refused}"
    );
}

/// Replication that did not work before the proof is no sign of what the engine promises.
fn a_node_that_receives_nothing_is_no_verdict(lab: &ClusterLab) {
    lab.execute(1, "select pglogical.alter_subscription_disable('m2_from_m1', true)");
    let left = "select count(*)::text from pg_catalog.pg_replication_slots where active and slot_name like '%m2_from_m1'";
    testing::wait_for("the slot is free", || lab.sql(0, left) == "0");
    lab.execute(
        0,
        "select pg_catalog.pg_drop_replication_slot(slot_name) from pg_catalog.pg_replication_slots where slot_name like '%m2_from_m1'",
    );
    lab.execute(1, "select pglogical.alter_subscription_enable('m2_from_m1', true)");
    for what in ["conflict", "bank"] {
        let ended = lab.expect(8, &format!("prove {what} -T 1")).stdout;
        let words = ended.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("node m2 does not receive from m1") && words.contains("m2_from_m1"),
            "{ended}"
        );
        assert!(!words.contains("acknowledged increments"), "{ended}");
    }
}

/// Of engines that replicate after the commit: loads, runs and proofs through one node leave the others with the same rows.
fn every_node_has_what_one_wrote(trial: &Trial) {
    trial.load_and_verify();
    trial.run();
    trial.look();
    trial.prove();
    // Rows without a key of their own are removed, too.
    for what in ["skew", "hb"] {
        let promises = trial.proved(what);
        assert!(!promises.to_string().contains("not_tested"), "{what}: {promises}");
    }
    // Each node is judged, not only the first one.
    let judged = trial.lab.expect(0, "prove tpcb").stdout;
    assert!(judged.contains("B1   sum(TBALANCE) = sum(BBALANCE): kept by 2 sums"), "{judged}");
    trial.lab.expect_at(0, "verify ycsb", 1);
    // Nor does a row that runs have changed stay different on one of them unseen. A change with an origin is not sent to the others.
    trial.lab.execute(
        1,
        "select pg_catalog.pg_replication_origin_create('elsewhere'); select pg_catalog.pg_replication_origin_session_setup('elsewhere'); \
         update pgbench_accounts set abalance = abalance + 1 where aid = 7",
    );
    let found = trial.lab.expect(3, "verify tpcb").stdout;
    assert!(found.contains("aid = 7") && found.contains("differs between"), "{found}");
    // A load that begins again drops tables that are replicated, and each partition is replicated.
    let lab = &trial.lab;
    lab.expect(0, "load ycsb --rows 2000 --partitions 3 --restart");
    lab.expect(0, "run -b ycsb-a -c 2 -t 200 --connect m1 -o parted");
    let verified = || {
        let verify = "verify ycsb --deep";
        let ended = labs::typed(lab.command(verify), verify);
        (ended.exit == Some(0)).then_some(ended)
    };
    testing::wait_for("every node has what one wrote into partitions", || verified().is_some());
    let ended = verified().expect("it stays so");
    assert!(ended.stdout.contains("3 leaf tables"), "{}", ended.stdout);
}

#[test]
fn up_takes_the_server_of_the_engine_and_finds_the_cluster_from_any_node() {
    for (need, kind, nodes) in
        [("engine-citus", "citus", 2), ("engine-mtm", "mtm", 5), ("engine-pgactive", "pgactive", 2)]
    {
        let Some(programs) = built(need, kind) else { continue };
        let folder = Folder::new();
        let prefix = programs.parent().and_then(Path::parent).expect("a folder of engines");
        // The default folder of a cluster may not be open to the server's user, the temporary one is.
        let dir = std::env::temp_dir().join(format!("pgf-up-{kind}-{}", std::process::id()));
        let typed = |arguments: &[&str]| -> Ended {
            let mut command = pgfathom(folder.path());
            command.env("PGFATHOM_ENGINES", prefix).args(arguments);
            command.output().expect("the command starts").into()
        };
        let at = dir.display().to_string();
        let count = nodes.to_string();
        let first = ["up", kind, "--dir", &at, "--nodes", &count];
        let up = typed(&[&first[..], &["--preset", "careless", "--set", "shared_buffers=64MB"]].concat());
        // A node that was killed takes transactions when `up` has started it again.
        let pid_file = dir.join(if kind == "mtm" { "m1" } else { "n1" }).join("data/postmaster.pid");
        let again = std::fs::read_to_string(&pid_file).ok().filter(|_| kind == "mtm").map(|text| {
            let pid = text.lines().next().and_then(|pid| pid.parse().ok()).expect("a pid");
            let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
            std::fs::write(folder.path().join("one.sql"), "select 1;\n").expect("a file");
            let file = format!("{at}/cluster.toml");
            testing::wait_for("the killed node is up again", || {
                typed(&["up", kind, "--dir", &at]).exit == Some(0)
            });
            typed(&["run", "-t", "1", "-f", "one.sql", "--cluster", &file, "-o", "again"])
        });
        let port = connection_port(&dir, nodes);
        let run = port.map(|port| {
            let socket = dir.join("run").display().to_string();
            typed(&[
                "watch", "-T", "1", "-h", &socket, "-p", &port, "-U", "postgres", "-o", "seen", "postgres",
            ])
        });
        let down = typed(&["down", &at]);
        assert_eq!(up.exit, Some(0), "{}{}", up.stdout, up.stderr);
        if let Some(asked) = again {
            assert_eq!(asked.exit, Some(0), "{}{}", asked.stdout, asked.stderr);
        }
        let run = run.expect("a cluster file has nodes");
        assert_eq!(run.exit, Some(0), "{}{}", run.stdout, run.stderr);
        let seen = std::fs::read_to_string(folder.path().join("seen/run.json")).expect("run.json");
        let seen: Value = serde_json::from_str(&seen).expect("JSON");
        let found = seen["steps"][0]["parameters"]["nodes"].as_array().map(Vec::len);
        assert_eq!(found, Some(nodes), "{kind}: {}", seen["steps"][0]["parameters"]);
        assert_eq!(down.exit, Some(0), "{}{}", down.stdout, down.stderr);
    }
}

/// The port of the last node in the cluster file.
fn connection_port(dir: &Path, nodes: usize) -> Option<String> {
    let text = std::fs::read_to_string(dir.join("cluster.toml")).ok()?;
    let mut ports = text.split("port=").skip(1).map(|rest| rest.split([' ', '"']).next().unwrap_or_default());
    ports.nth(nodes - 1).map(str::to_owned)
}
