//! Nodes that ought to be alike: one that takes more space, one that is slow, and rows that are far away.

use crate::ground::{Watching, Worker, findings, not_possible_here, repeat};
use crate::relay::Relay;
use crate::support::{Ended, Folder, pgfathom};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use target::throwaway::{Throwaway, ThrowawayCluster, installations};

fn three_nodes() -> ThrowawayCluster {
    let installation = installations().into_iter().next().expect("no PostgreSQL: make test installs it");
    ThrowawayCluster::sharded(&installation, 3, 6).expect("a cluster")
}

fn watch(cluster: &ThrowawayCluster) -> String {
    format!("watch -q --interval 500ms --cluster {}", cluster.cluster_toml().display())
}

fn on_all(cluster: &ThrowawayCluster, text: &str) {
    for node in cluster.nodes() {
        for statement in text.split(';').filter(|statement| !statement.trim().is_empty()) {
            node.execute(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }
}

#[test]
fn the_same_rows_in_more_bytes() {
    let cluster = three_nodes();
    let folder = Folder::new();
    on_all(
        &cluster,
        "CREATE TABLE item (id int PRIMARY KEY, v text);
         INSERT INTO item SELECT i, repeat('x', 200) FROM generate_series(1, 20000) i; ANALYZE item",
    );
    Watching::begin(&folder, &watch(&cluster), "alike").is_silent(&["CAP-04"]);
    let third = cluster.node(2);
    for statement in ["ALTER TABLE item SET (fillfactor = 70)", "VACUUM FULL ANALYZE item"] {
        third.execute(statement).expect(statement);
    }
    let fired = Watching::begin(&folder, &watch(&cluster), "wider").until(&["CAP-04"]);
    assert_eq!(fired["CAP-04"]["node"], "n3", "{:#?}", fired["CAP-04"]);
}

/// A folder of the control group hierarchy (version 1) that lets its processes have a part of one processor.
struct Group(PathBuf);

impl Group {
    /// Processes of each period of 100 ms.
    const PERIOD_US: u32 = 100_000;

    fn of(node: &Throwaway, quota_us: u32) -> Result<Group, String> {
        let root = Path::new("/sys/fs/cgroup/cpu");
        let folder = root.join(format!("pgfathom-drill-{}", std::process::id()));
        let told = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir(&folder).map_err(told)?;
        let group = Group(folder.clone());
        fs::write(folder.join("cpu.cfs_period_us"), Group::PERIOD_US.to_string()).map_err(told)?;
        fs::write(folder.join("cpu.cfs_quota_us"), quota_us.to_string()).map_err(told)?;
        // Those that the server starts from here on belong to it, too.
        for pid in target::local::servers_in(&node.data_dir()) {
            fs::write(folder.join("cgroup.procs"), pid.to_string()).map_err(told)?;
        }
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let members = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines() {
            let _ = fs::write("/sys/fs/cgroup/cpu/cgroup.procs", pid);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
#[ignore = "a node counts as slow after 60 s"]
fn one_node_is_slower_than_its_equals() {
    let cluster = three_nodes();
    let folder = Folder::new();
    on_all(&cluster, "CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY, v text)");
    // Work that takes the processor and pauses: three nodes of a machine of two processors must have enough of them.
    let work = "INSERT INTO item (v) SELECT repeat(md5(i::text), 3) FROM generate_series(1, 500) i";
    let drive = || -> Vec<Worker> {
        cluster.nodes().iter().map(|node| repeat(node, work, Duration::from_millis(50))).collect()
    };
    /// A minute and a little, with two looks a second on three nodes.
    const LOOKS: usize = 66 * 2 * 3;
    {
        let _work = drive();
        let watching = Watching::begin(&folder, &watch(&cluster), "equal");
        watching.looked(LOOKS);
        watching.is_silent(&["DIST-01"]);
    }
    let group = match Group::of(cluster.node(2), 3_000) {
        Ok(group) => group,
        Err(why) => return not_possible_here("DIST-01", &why),
    };
    // Sessions of before would keep their share.
    let _work = drive();
    let fired = Watching::begin(&folder, &watch(&cluster), "throttled").until(&["DIST-01"]);
    assert_eq!(fired["DIST-01"]["node"], "n3", "{:#?}", fired["DIST-01"]);
    drop(group);
}

#[test]
#[ignore = "a matrix of three nodes takes half a minute, and it is measured twice"]
fn rows_of_other_nodes_are_far_and_one_node_is_sick() {
    let cluster = three_nodes();
    let folder = Folder::new();
    let file = cluster.cluster_toml();
    let type_ = |words: &str| {
        let words = words.replace("CLUSTER", &file.display().to_string());
        let ended: Ended =
            pgfathom(folder.path()).args(words.split_whitespace()).output().expect("starts").into();
        assert_eq!(ended.exit, Some(0), "{words}: {}", ended.stderr);
    };
    type_("load ycsb -q --rows 3000 --cluster CLUSTER -o loaded");
    let matrix = |name: &str| {
        type_(&format!(
            "matrix -q --only select -c 2 -T 2 --rounds 2 --warmup 200ms --cluster CLUSTER -o {name}"
        ));
        findings(&folder, name)
    };
    let well = matrix("near");
    assert!(!well.contains_key("DIST-03"), "{well:#?}");
    eprintln!("drill DIST-03: silent in the control");
    // The way to n1's rows becomes long for the other two, as over a wide network.
    let first = cluster.node(0);
    let relay = Relay::start(first.socket_dir(), first.port(), Duration::from_millis(3));
    for node in [cluster.node(1), cluster.node(2)] {
        node.execute(&format!("ALTER SERVER n1 OPTIONS (SET host '{}')", relay.folder().display()))
            .expect("alters");
    }
    let far = matrix("far");
    for rule in ["DIST-02", "DIST-03"] {
        eprintln!(
            "drill {rule}: {}",
            far.get(rule).map_or("did not fire".into(), |finding| finding["claim"].to_string())
        );
    }
    assert!(far.contains_key("DIST-03"), "{far:#?}");
}
