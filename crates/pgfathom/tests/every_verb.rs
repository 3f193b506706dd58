//! Every verb on every kind of cluster that stock PostgreSQL makes, on each release that is there, and what the other engines share with it.

use crate::labs::{self, ClusterLab};
use crate::tried;
use lab::local::{Installation, Replication, SyncStandbys, Topology};
use lab::throwaway::{ThrowawayCluster, installations};

/// A dataset as it is loaded, and the benchmark that drives it.
type Dataset = (&'static str, &'static str);
/// Two warehouses: every node gets the same number of them.
const ALL: [Dataset; 4] = [
    ("ycsb --rows 3000", "ycsb-a"),
    ("tpcc -s 2", "tpcc --no-delays"),
    ("tpcb -s 2", "tpcb"),
    ("documents --rows 20 --document-size 1kB..16kB", "documents"),
];
/// What a proof may end with: kept, a promise that this engine does not make is broken, too few samples in three seconds of a busy host.
const PROVED: [i32; 2] = [0, 8];

/// A cluster on which every verb is tried, and the row of the README's table that it stands for.
pub(crate) struct Trial {
    pub(crate) lab: ClusterLab,
    row: &'static str,
    release: String,
    datasets: &'static [Dataset],
}

impl Trial {
    /// A trial with all datasets. `extension`: the one that makes the engine, whose release is named before that of the server.
    pub(crate) fn new(lab: ClusterLab, row: &'static str, extension: Option<&str>) -> Trial {
        let server = lab.sql(0, "select split_part(current_setting('server_version'), ' ', 1)");
        let release = match extension {
            None => server,
            Some(name) => {
                let theirs = lab.sql(
                    0,
                    &format!("select extversion from pg_catalog.pg_extension where extname = '{name}'"),
                );
                format!("{theirs} on PostgreSQL {server}")
            }
        };
        Trial { lab, row, release, datasets: &ALL }
    }

    /// The same with these alone, as a cluster on which every node has every row takes no others.
    pub(crate) fn with(self, datasets: &'static [Dataset]) -> Trial {
        Trial { datasets, ..self }
    }

    fn note(&self, verb: &str) {
        tried::note(self.row, &self.release, verb, "yes");
    }

    fn note_datasets(&self, verb: &str) {
        let names: Vec<&str> = self.names().collect();
        let what = if names.len() == ALL.len() { "yes".to_owned() } else { names.join(", ") };
        tried::note(self.row, &self.release, verb, &what);
    }

    /// The first word: the dataset's name.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.datasets.iter().filter_map(|(load, _)| load.split(' ').next())
    }

    pub(crate) fn load_and_verify(&self) {
        for (load, _) in self.datasets {
            let printed = self.lab.expect(0, &format!("load {load}")).stdout;
            assert!(!printed.contains(" 0 bytes a row"), "{printed}");
        }
        self.note_datasets("load");
        for dataset in self.names() {
            for how in ["", " --deep"] {
                let printed = self.lab.expect(0, &format!("verify {dataset}{how}")).stdout;
                assert!(printed.contains("exact"), "{printed}");
            }
        }
        self.note_datasets("verify");
    }

    /// Every benchmark; afterwards the rows are those of the load and of what was run.
    pub(crate) fn run(&self) {
        for (number, (_, benchmark)) in self.datasets.iter().enumerate() {
            self.lab.expect(0, &format!("run -b {benchmark} -c 3 -t 20 -o run{number}"));
            let run = self.lab.run_json(&format!("run{number}"));
            assert_eq!(run["steps"][0]["summary"]["transactions"], 60, "{benchmark}: {run}");
        }
        self.lab.expect(0, "verify ycsb");
        self.note_datasets("run");
    }

    /// Proves what the engine promises; the conditions of TPC-C are those after the run.
    pub(crate) fn prove(&self) {
        if self.names().any(|name| name == "tpcc") {
            self.lab.expect(0, "prove tpcc");
            let asked = self.lab.expect(0, "prove tpcc --conditions X15,X21").stdout;
            assert!(asked.contains("  X15  ") && asked.contains("  X21  "), "{asked}");
        }
        if self.names().any(|name| name == "tpcb") {
            let judged = self.lab.expect(0, "prove tpcb").stdout;
            assert!(judged.contains("6 conditions kept"), "{judged}");
        }
        self.lab.expect(0, "prove engine -o profile");
        let claims = crate::conformance::claims(&self.lab.folder.path().join("profile"));
        for check in
            ["copy: binary", "savepoints", "routing: text", "sizes", "isolation: P4 at READ COMMITTED"]
        {
            let result = claims.get(check).map(String::as_str);
            assert_eq!(result, Some("agrees"), "{check}: {claims:#?}");
        }
        for what in ["bank", "ack", "hermitage"] {
            self.proved(what);
        }
        self.note("prove");
    }

    /// A proof that ended; its promises.
    pub(crate) fn proved(&self, what: &str) -> serde_json::Value {
        let arguments = format!("prove {what} -T 3 -o {what}");
        let ended = labs::typed(self.lab.command(&arguments), &arguments);
        let is_known = ended.exit.is_some_and(|exit| PROVED.contains(&exit));
        assert!(is_known, "$ pgfathom {arguments}\n{}{}", ended.stdout, ended.stderr);
        let run = self.lab.run_json(what);
        let promises = run["steps"][0]["promises"].clone();
        assert!(promises.as_array().is_some_and(|promises| !promises.is_empty()), "{what}: {run}");
        promises
    }

    /// Every node is measured. On few CPUs the client may be the limit of such short runs; then the program says so, and the figures do not count.
    fn matrix(&self) {
        let arguments = "matrix -T 1 -o matrix";
        let ended = labs::typed(self.lab.command(arguments), arguments);
        if ended.exit != Some(0) {
            labs::ended_with(5, ended, arguments);
            let run = self.lab.run_json("matrix");
            let steps = run["steps"].as_array().expect("a run has steps");
            for reason in steps.iter().flat_map(|step| step["verdict"]["reasons"].as_array()).flatten() {
                let reason = reason.as_str().unwrap_or_default();
                assert!(reason.starts_with("this client was the limit"), "{reason}");
            }
        }
        self.note("matrix");
    }

    /// The verbs that look and tell.
    pub(crate) fn look(&self) {
        self.matrix();
        self.lab.expect(0, "watch -T 2 -o watched");
        let watched = self.lab.run_json("watched");
        let nodes = watched["steps"][0]["parameters"]["nodes"].as_array().map(Vec::len);
        assert_eq!(nodes, Some(self.lab.servers.nodes().len()), "{watched}");
        self.note("watch");
        for verb in ["explain", "report"] {
            for directory in ["watched", "matrix"] {
                let mut command = crate::support::pgfathom(self.lab.folder.path());
                command.args([verb, directory]);
                labs::expect(0, command, &format!("{verb} {directory}"));
            }
            self.note(verb);
        }
    }
}

/// Of the releases that are there, those on which this kind of cluster is possible.
fn on_each_release(row: &'static str, topology: &Topology, first_major: u32, datasets: &'static [Dataset]) {
    let all: Vec<Installation> =
        installations().into_iter().filter(|one| one.version.major >= first_major).collect();
    testing::on_each(&all, |installation| {
        let servers =
            ThrowawayCluster::start(installation, topology, &[]).expect("a throwaway cluster starts");
        let trial = Trial::new(ClusterLab::new(servers), row, None).with(datasets);
        trial.load_and_verify();
        trial.run();
        trial.look();
        trial.prove();
    });
}

#[test]
fn a_single_server() {
    on_each_release("postgres", &Topology::Single, 0, &ALL);
}

#[test]
fn a_primary_with_synchronous_standbys() {
    let replication = Replication { standbys: 2, sync: SyncStandbys::default_for(2), commit: None };
    on_each_release("replicated", &Topology::Replicated(replication), 0, &ALL);
}

#[test]
fn shards_behind_every_node() {
    on_each_release("fdw-sharded", &Topology::Sharded { nodes: 2, partitions: 4 }, 0, &ALL);
}

#[test]
fn masters_that_replicate_to_each_other() {
    on_each_release("multimaster", &Topology::Multimaster { nodes: 2 }, 16, &ALL);
}
