//! Proofs whose nodes are lost and come back, and what they leave behind.

use super::trial;
use crate::every_verb::Trial;
use crate::labs;
use crate::support::Ended;
use lab::local::Topology;

/// A node that was away when a proof began gets its tables without the comment that marks them. If the entry dies then, the tables are the proof's all
/// the same, sessions leave a node that refuses everything, and a fault on a node that still catches up waits for it.
#[test]
fn proofs_outlive_the_nodes_of_postgres_pro_multimaster() {
    let Some(mut trial) = trial("engine-mtm", &Topology::Mtm { nodes: 3 }, None) else { return };
    let is_there = |trial: &Trial, node: usize| {
        testing::wait_for("the node is online", || {
            trial.lab.servers.node(node).value("select 1::text").is_ok_and(|one| one.is_some())
        });
    };
    trial.lab.servers.node_mut(1).kill9().expect("the server is killed");
    let prove = "prove bank -T 14 -o outlived";
    let command = trial.lab.command(prove);
    let proving = std::thread::spawn(move || labs::typed(command, prove));
    testing::wait_for("money moves", || {
        let moved = "select 1::text from pgfathom_prove.bank where bal <> 1000 limit 1";
        trial.lab.servers.node(2).value(moved).is_ok_and(|one| one.is_some())
    });
    trial.lab.servers.node_mut(1).start_again().expect("the server starts again");
    is_there(&trial, 1);
    trial.lab.servers.node_mut(0).kill9().expect("the server is killed");
    let ended = proving.join().expect("the proof ends");
    is_judged(&ended);
    trial.lab.servers.node_mut(0).start_again().expect("the server starts again");
    is_there(&trial, 0);
    for node in [0, 1, 2] {
        let left = "select count(*)::text from pg_catalog.pg_namespace where nspname = 'pgfathom_prove'";
        assert_eq!(trial.lab.sql(node, left), "0", "the tables of the proof are removed on node {node}");
    }
    // Right after it is started the node catches up, and refuses everything.
    trial.lab.servers.node_mut(0).kill9().expect("the server is killed");
    let meanwhile = "prove twin -T 3 --watch off -o meanwhile";
    is_judged(&labs::typed(trial.lab.command(meanwhile), meanwhile));
    trial.lab.servers.node_mut(0).start_again().expect("the server starts again");
    let pause = "prove bank --fault pause:m1@2s,heal@6s -T 14 -o paused";
    is_judged(&labs::typed(trial.lab.command(pause), pause));
}

/// Sessions that work step by step, and nodes that write at once, outlive a node as well: what was cut off is repeated, and the wait is announced.
#[test]
fn pairs_and_conflicts_outlive_a_node_of_postgres_pro_multimaster() {
    let Some(mut trial) = trial("engine-mtm", &Topology::Mtm { nodes: 3 }, None) else { return };
    for (what, node, is_at_work) in [
        ("skew", 0, "select 1::text from pgfathom_prove.skew having count(*) > 10"),
        ("skew", 1, "select 1::text from pgfathom_prove.skew having count(*) > 60"),
        ("conflict", 1, "select 1::text from pgfathom_prove.conflict where v > 3 limit 1"),
    ] {
        let prove = format!("prove {what} -T 6 --watch off -o {what}-{node}");
        let command = trial.lab.command(&prove);
        let proving = std::thread::spawn(move || labs::typed(command, &prove));
        testing::wait_for("the proof is at work", || {
            trial.lab.servers.node(2).value(is_at_work).is_ok_and(|one| one.is_some())
        });
        trial.lab.servers.node_mut(node).kill9().expect("the server is killed");
        // The others have to agree that it is away.
        testing::wait_for("the others go on", || {
            trial.lab.servers.node(2).value("select 1::text").is_ok_and(|one| one.is_some())
        });
        trial.lab.servers.node_mut(node).start_again().expect("the server starts again");
        let ended = proving.join().expect("the proof ends");
        let text = format!("{}{}", ended.stdout, ended.stderr);
        assert!(matches!(ended.exit, Some(0 | 8)) && text.contains("\n2 promises: "), "{text}");
        assert!(!text.contains("error:") && !text.contains("ended early"), "{text}");
        testing::wait_for("the node is online", || {
            trial.lab.servers.node(node).value("select 1::text").is_ok_and(|one| one.is_some())
        });
    }
}

/// The scripts are played by the nodes that answer; each of them waited a minute for the rows of the one that was away.
#[test]
fn scripts_leave_out_a_node_of_postgres_pro_multimaster_that_is_away() {
    let Some(mut trial) = trial("engine-mtm", &Topology::Mtm { nodes: 3 }, None) else { return };
    trial.lab.servers.node_mut(2).kill9().expect("the server is killed");
    testing::wait_for("the others go on", || {
        trial.lab.servers.node(0).value("select 1::text").is_ok_and(|one| one.is_some())
    });
    let ended = trial.lab.expect(0, "prove hermitage --watch off -o away");
    let text = format!("{}{}", ended.stdout, ended.stderr);
    assert!(text.contains("did not answer at the begin: no case is played there"), "{text}");
    assert!(text.contains(" on m2: ") && !text.contains(" on m3: "), "{text}");
    let run = trial.lab.run_json("away");
    let cases = run["steps"][0]["checks"].as_array().map_or(0, Vec::len);
    let is_skipped = |check: &&serde_json::Value| check["result"] == "skipped";
    let skipped = run["steps"][0]["checks"].as_array().into_iter().flatten().filter(is_skipped).count();
    assert!(cases > 20 && skipped == 0, "{skipped} of {cases}: {text}");
}

/// A busy host may have too few transactions, and nothing else keeps both promises of `prove bank` from being kept.
fn is_judged(ended: &Ended) {
    let text = format!("{}{}", ended.stdout, ended.stderr);
    assert!(matches!(ended.exit, Some(0 | 8)) && text.contains("\n2 promises: "), "{text}");
    for wrong in ["was replaced", "were refused while no fault", "not possible here"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
}

/// Rows that arrive for a table that is gone stop replication for good, with the user's own tables. A node that was killed sends them late.
#[test]
fn a_proof_that_kills_a_node_leaves_replication_as_it_was() {
    let [pgactive, pglogical] = [Topology::Pgactive { nodes: 2 }, Topology::Pglogical { nodes: 2 }];
    for (need, topology) in [("engine-pgactive", pgactive), ("engine-pglogical", pglogical)] {
        let Some(trial) = trial(need, &topology, None) else { continue };
        let lab = &trial.lab;
        let kill = "prove ack -T 6 --fault kill:m1@1s,heal@3s -o killed";
        is_judged(&labs::typed(lab.command(kill), kill));
        for node in [0, 1] {
            let left = "select count(*)::text from pg_catalog.pg_namespace where nspname = 'pgfathom_prove'";
            assert_eq!(lab.sql(node, left), "0", "node {node}");
        }
        // Each node shows what the other one writes, or a proof does not begin.
        let after = "prove bank -T 3 -o afterwards";
        is_judged(&labs::typed(lab.command(after), after));
        // Its connections between nodes cannot be delayed, and the command that makes some which are is named.
        let wide = lab.expect(8, "prove wide -T 1 -o near").stdout;
        let words = wide.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("pgfathom up {} --delay", topology.kind())), "{wide}");
    }
}
