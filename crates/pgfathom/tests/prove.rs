//! Promises by the command: a history is refuted or not, a server plays its scripts, a cluster shows what it adds.

use crate::support;
use std::ffi::OsStr;

use lab::throwaway::{SUPERUSER, Throwaway, ThrowawayCluster, installations};
use serde_json::Value;
use support::{Ended, Folder, pgfathom};

/// Two lists, two transactions that each read both and append to one of them: write skew.
const WRITE_SKEW: &str = r#"
{:type :invoke, :process 0, :f :txn, :value [[:r :x nil] [:r :y nil] [:append :x 1]]}
{:type :invoke, :process 1, :f :txn, :value [[:r :x nil] [:r :y nil] [:append :y 1]]}
{:type :ok, :process 0, :f :txn, :value [[:r :x []] [:r :y []] [:append :x 1]]}
{:type :ok, :process 1, :f :txn, :value [[:r :x []] [:r :y []] [:append :y 1]]}
"#;

fn typed(folder: &Folder, arguments: &str, environment: &[(&str, &OsStr)]) -> Ended {
    let mut command = pgfathom(folder.path());
    command.envs(environment.iter().copied());
    command.args(arguments.split_whitespace()).output().expect("the command starts").into()
}

#[test]
fn a_history_of_elle_is_refuted_at_the_levels_that_forbid_it() {
    let folder = Folder::new();
    folder.write("skew.edn", WRITE_SKEW);
    let told = typed(&folder, "prove check skew.edn -o told", &[]);
    assert_eq!(told.exit, Some(0), "{}", told.stderr);
    for said in [
        "refuted   repeatable-read, and every stronger level",
        "not refuted  up to strong-snapshot-isolation",
        "G2-item",
        "T1 < T2 because T1 read the empty list of key :y, and T2 wrote element 1 over it",
    ] {
        assert!(told.stdout.contains(said), "{said}\n{}", told.stdout);
    }
    assert_eq!(typed(&folder, "prove check skew.edn --level si -o si", &[]).exit, Some(0));
    let refuted = typed(&folder, "prove check skew.edn --level si,serializable --format json -o ser", &[]);
    assert_eq!(refuted.exit, Some(3), "{}", refuted.stderr);
    let printed: Value = serde_json::from_str(&refuted.stdout).expect("JSON on stdout");
    let level = |name: &str| {
        let levels = printed["levels"].as_array().expect("levels");
        levels.iter().find(|level| level["name"] == name).expect("every level").clone()
    };
    assert_eq!(level("serializable")["refuted"], true);
    assert_eq!(level("snapshot-isolation")["refuted"], false);
    assert_eq!(printed["anomalies"][0]["code"], "G2-item");
    assert_eq!(printed["anomalies"][0]["refutes"][0], "repeatable-read");
    let witness = printed["anomalies"][0]["witnesses"][0].as_array().expect("lines");
    assert!(witness.iter().any(|line| line.as_str().is_some_and(|line| line.contains("T1 < T2 because"))));
    let run: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("ser/run.json")).expect("run.json"))
            .expect("run.json is JSON");
    let checks = run["steps"][0]["checks"].as_array().expect("checks");
    let of =
        |name: &str| checks.iter().find(|check| check["name"] == name).expect("every level has its check");
    assert_eq!(of("serializable")["result"], "fail");
    assert_eq!(of("serializable")["detail"], "refuted by G2-item");
    assert_eq!(of("snapshot-isolation")["result"], "ok");
    assert_eq!(run["steps"][0]["totals"]["refuted"][0], "repeatable-read");
    // What is no history names its line, and what to do.
    folder.write("broken.json", "[{\"type\":\"ok\",\"process\":0,\n\"value\":[[\"cas\",1,2]]}]");
    let broken = typed(&folder, "prove check broken.json", &[]);
    assert_eq!(broken.exit, Some(1));
    assert!(broken.stderr.contains("error: line 1: each part of a value is"), "{}", broken.stderr);
}

/// Nothing to judge is not "not refuted", and what the history leaves open is said.
#[test]
fn a_history_that_says_nothing_is_no_answer() {
    let folder = Folder::new();
    for (name, text) in [
        ("empty.edn", ""),
        ("blank.json", " \n"),
        ("list.json", "[]"),
        ("nemesis.edn", "{:type :info :process :nemesis :f :kill :value nil}"),
    ] {
        folder.write(name, text);
        let told = typed(&folder, &format!("prove check {name}"), &[]);
        assert_eq!(told.exit, Some(1), "{name}: {}", told.stdout);
        let said = format!("error: {name} has no transaction: there is nothing to check");
        assert!(told.stderr.contains(&said), "{}", told.stderr);
    }
    folder.write("failed.edn", "{:type :fail :process 0 :value [[:append 1 1]]}");
    let told = typed(&folder, "prove check failed.edn", &[]);
    assert_eq!(told.exit, Some(8), "{}", told.stdout);
    assert!(told.stderr.contains("no acknowledged transaction did anything"), "{}", told.stderr);
    // The same value twice: it is unknown which write was read.
    folder.write(
        "ambiguous.edn",
        "{:type :ok :process 0 :value [[:w 1 1]]} {:type :ok :process 1 :value [[:w 1 1]]} {:type :ok :process 2 :value [[:r 1 1]]}",
    );
    let told = typed(&folder, "prove check ambiguous.edn --level ser", &[]);
    assert_eq!(told.exit, Some(8), "{}{}", told.stdout, told.stderr);
    assert!(told.stdout.contains("incomplete: version order of 1 keys unknown"), "{}", told.stdout);
    let told = typed(&folder, "prove check ambiguous.edn --format json", &[]);
    assert_eq!(told.exit, Some(0), "{}", told.stderr);
    let printed: Value = serde_json::from_str(&told.stdout).expect("JSON on stdout");
    assert_eq!(printed["incomplete"]["keys"], 1);
}

#[test]
fn a_server_plays_every_script_as_its_levels_promise() {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    let newest = found.iter().max_by_key(|one| one.version.major).expect("there is one");
    let server = Throwaway::start(newest, &[]).expect("a throwaway server starts");
    let folder = Folder::new();
    let port = server.port().to_string();
    let environment = [
        ("PGHOST", server.socket_dir().as_os_str()),
        ("PGPORT", port.as_ref()),
        ("PGUSER", SUPERUSER.as_ref()),
    ];
    let played = typed(&folder, "prove hermitage -d postgres -o played", &environment);
    assert_eq!(played.exit, Some(0), "{}{}", played.stdout, played.stderr);
    let strict = typed(&folder, "prove hermitage -d postgres --strict -o strict", &environment);
    assert_eq!(strict.exit, Some(3), "what is allowed was seen: {}{}", strict.stdout, strict.stderr);
    assert_eq!(
        // Witnesses on the page are indented.
        played
            .stdout
            .lines()
            .filter(|line| !line.starts_with(' ') && (line.contains("; final ") || line.contains("  final ")))
            .count(),
        42
    );
    for words in [
        "hermitage: SERIALIZABLE prevents G0, G1a",
        "control (the same scripts at READ COMMITTED): 9 of 14",
        "hermitage: REPEATABLE READ does not promise to prevent G2-item, G2, G2-fekete",
        "5 promises: 2 by design, 3 kept",
    ] {
        assert!(played.stdout.contains(words), "{words:?} is missing in:\n{}", played.stdout);
    }
    let line = |start: &str, level: &str| {
        let found = played.stdout.lines().find(|line| line.starts_with(start) && line.contains(level));
        found.expect("a line for each script and level").to_string()
    };
    assert!(line("G2-item ", "REPEATABLE READ").contains("by design"));
    assert!(line("G2-item ", "SERIALIZABLE").contains("kept"));
    assert!(line("P4 ", "REPEATABLE READ").contains("b waits; b 40001"));
}

#[test]
fn a_cluster_of_shards_tears_sums_by_design() {
    let found = installations();
    let newest = found.iter().max_by_key(|one| one.version.major).expect("there is one");
    let cluster = ThrowawayCluster::sharded(newest, 2, 2).expect("a throwaway cluster starts");
    for node in cluster.nodes() {
        // Longer than a detector waits for, and short enough for a test.
        let limit = "-c lock_timeout=2500ms -c deadlock_timeout=100ms";
        let servers = node.execute("select srvname from pg_foreign_server").expect("servers");
        for server in servers.iter().flatten().flatten() {
            node.execute(&format!("alter server {server} options (set options '{limit}')")).expect("options");
        }
    }
    let folder = Folder::new();
    let file = cluster.cluster_toml();
    let played = typed(&folder, &format!("prove hermitage --cluster {} -T 1 -o played", file.display()), &[]);
    assert_eq!(played.exit, Some(0), "{}{}", played.stdout, played.stderr);
    let lines =
        |start: &str| played.stdout.lines().filter(|line| line.starts_with(start)).collect::<Vec<_>>();
    assert_eq!(lines("FR2 ").len(), 3, "{}", played.stdout);
    assert!(lines("FR2 ").iter().all(|line| line.contains("by design")));
    assert!(lines("DD ")[0].contains("no server detected the deadlock"), "{}", played.stdout);
    assert_eq!(lines("FR ").len(), 3, "{}", played.stdout);
    let unknown = typed(
        &folder,
        &format!("prove ack --cluster {} -T 1 --fault delay=20ms:w9@0.5s", file.display()),
        &[],
    );
    assert!(
        unknown.exit == Some(1) && unknown.stderr.contains("there is no node \"w9\"; the nodes are n1, n2"),
        "{:?} {}{}",
        unknown.exit,
        unknown.stdout,
        unknown.stderr
    );
    // A server without prepared transactions is an answer, too.
    assert!(
        lines("ID ")[0].contains("not possible") && lines("ID ")[0].contains("max_prepared_transactions")
    );
    for words in
        ["hermitage: FR2: one transaction sees all of a transfer", "| a on n1: BEGIN ISOLATION LEVEL"]
    {
        let page: Vec<&str> = played.stdout.split_whitespace().collect();
        assert!(page.join(" ").contains(words), "{words:?} is missing in:\n{}", played.stdout);
    }
}

/// Everyone can write a cluster file: it permits no fault on the server that it names.
#[test]
fn a_cluster_file_is_no_permission_for_faults() {
    let installation = &installations()[0];
    let [served, victim] = [(); 2].map(|()| Throwaway::start(installation, &[]).expect("a server"));
    let folder = Folder::new();
    let prove = |data_dir: &std::path::Path| {
        let file = format!(
            "format = 1\nengine = \"postgres\"\n[made]\nby = \"pgfathom 1\"\nkind = \"single\"\nbinaries = \"{}\"\nversion = \"{}\"\n\
             preset = \"throwaway\"\n[[node]]\nname = \"n1\"\nrole = \"primary\"\nconnection = \"{}\"\ndata_directory = \"{}\"\n",
            installation.bin_dir.display(),
            installation.version,
            served.spec().describe(),
            data_dir.display()
        );
        folder.write("cluster.toml", &file);
        typed(&folder, "prove ack --cluster cluster.toml -T 2 --fault kill@1s,heal@1.5s", &[])
    };
    let (before, pid) = (lab::local::servers_in(&victim.data_dir()), victim.pid());
    for (data_dir, why) in [
        (victim.data_dir(), "and the cluster file names"),
        (std::env::temp_dir(), "it was not started by pgfathom up"),
    ] {
        let ended = prove(&data_dir);
        let output = format!("{}{}", ended.stdout, ended.stderr);
        let words = output.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(ended.exit != Some(0) && words.contains(why), "{output}");
        assert_eq!((victim.pid(), victim.execute("select 1").is_ok()), (pid, true));
    }
    let after = lab::local::servers_in(&victim.data_dir());
    assert!(
        before.iter().filter(|pid| after.contains(pid)).count() > 1,
        "its processes live: {before:?} {after:?}"
    );
    let own = prove(&served.data_dir());
    assert_eq!(own.exit, Some(0), "its own server may be killed: {}{}", own.stdout, own.stderr);
}
