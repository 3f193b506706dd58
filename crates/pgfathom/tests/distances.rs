//! `up --delay`: what travels between far nodes really takes the time of the distance, through a program that can die, come back and be removed.

use crate::support;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use connect::ConnSpec;
use connect::cluster_file::ClusterFile;
use connect::conninfo::Sources;
use connect::control::{self, Control};
use engines::Cluster;
use lab::local::NodeWays;
use serde_json::Value;
use support::{Ended, Folder, pgfathom, run};

/// A cluster of `up`, removed at the end.
struct Up {
    folder: Folder,
    dir: String,
}

impl Up {
    fn new(kind_and_flags: &[&str]) -> Up {
        let folder = Folder::new();
        let dir = folder.path().join("c").to_str().expect("the temporary folder is UTF-8").to_owned();
        let up = Up { folder, dir };
        let started = up.up(kind_and_flags);
        assert_eq!(started.exit, Some(0), "{}", started.stderr);
        up
    }

    fn up(&self, kind_and_flags: &[&str]) -> Ended {
        let (kind, flags) = kind_and_flags.split_first().expect("a kind");
        run(self.folder.path(), &[&["up", kind, "--dir", &self.dir, "--preset", "careless"], flags].concat())
    }

    fn down(&self) -> Ended {
        run(self.folder.path(), &["down", &self.dir])
    }

    /// The way of clients to a node.
    fn spec(&self, node: usize) -> ConnSpec {
        let file = ClusterFile::read(Path::new(&self.dir)).expect("a cluster file");
        Cluster::from_file(&file, &Sources::of_process()).expect("a cluster").nodes[node].spec.clone()
    }

    fn connect(&self, node: usize) -> Control {
        control::connect(&self.spec(node)).expect("the node answers")
    }

    /// The program with the relays: it works in their folder.
    fn relays(&self) -> Vec<u32> {
        let Ok(folder) = Path::new(&self.dir).join("relays").canonicalize() else { return Vec::new() };
        let works_there =
            |pid: &u32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder);
        let all = std::fs::read_dir("/proc").expect("/proc").flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(works_there).collect()
    }

    /// Kills them as the kernel's OOM killer would.
    fn kill_relays(&self) {
        let pids = self.relays();
        assert_eq!(pids.len(), 1, "one program runs all relays");
        let owner =
            |path: &str| std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path).expect("it is there"));
        assert_eq!(
            owner(&format!("/proc/{}", pids[0])),
            owner(&self.dir),
            "they have the rights of the servers"
        );
        let killed = Command::new("kill").args(["-9", &pids[0].to_string()]).status().expect("kill");
        assert!(killed.success());
        testing::wait_for("the end of the relays", || self.relays().is_empty());
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.down();
    }
}

/// The shortest of some executions: the host can only make one longer.
fn shortest(control: &mut Control, sql: &str) -> Duration {
    let one = || {
        let begin = Instant::now();
        control.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        begin.elapsed()
    };
    std::iter::repeat_with(one).take(7).min().expect("seven of them")
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn foreign_tables_and_clients_are_as_far_as_the_flag_says() {
    let up = Up::new(&["sharded", "--nodes", "2", "--delay", "n1-n2=30ms,client-n1=20ms"]);
    let (mut far, mut near) = (up.connect(0), up.connect(1));
    let query = shortest(&mut far, "select 1");
    assert!(query >= ms(20), "{query:?}");
    let query = shortest(&mut near, "select 1");
    assert!(query < ms(20), "no relay is between the client and n2: {query:?}");
    near.batch_execute("create table public.here(v int); insert into public.here values (1)")
        .expect("a table");
    let foreign = "create foreign table public.there(v int) server n2 options (schema_name 'public', table_name 'here')";
    far.batch_execute(foreign).expect("a foreign table");
    // DECLARE, FETCH and CLOSE on the other node.
    let select = "begin; select v from public.there; commit";
    far.batch_execute(select).expect("the connection between the nodes opens");
    let took = shortest(&mut far, "select v from public.there");
    assert!(took >= ms(3 * 30 + 20), "three round trips and the client's: {took:?}");

    up.kill_relays();
    assert!(control::connect(&up.spec(0)).is_err(), "clients of n1 go through a relay");
    near.batch_execute("select 1").expect("those of n2 do not");
    let again = up.up(&["sharded"]);
    assert_eq!(again.exit, Some(0), "{}", again.stderr);
    let mut far = up.connect(0);
    assert!(shortest(&mut far, "select 1") >= ms(20));
    far.batch_execute(select).expect("n1 reaches n2 again");
    let twice = up.up(&["sharded"]);
    assert!(twice.stderr.contains("is already up"), "{}", twice.stderr);
    let other = up.up(&["sharded", "--delay", "n1-n2=5ms"]);
    assert!(
        other.stderr.contains("was made with --delay n1-n2=30ms,client-n1=20ms, not with"),
        "{}",
        other.stderr
    );
    assert!(other.stderr.contains(&format!(
        "hint: choose another --dir, omit --delay, or make it again: pgfathom down {}",
        up.dir
    )));

    let down = up.down();
    assert_eq!((down.exit, down.stdout.contains("stopped and removed")), (Some(0), true), "{}", down.stderr);
    assert!(up.relays().is_empty() && !Path::new(&up.dir).exists());
}

#[test]
fn a_commit_waits_for_a_standby_as_long_as_it_is_far() {
    let up = Up::new(&[
        "replicated",
        "--standbys",
        "1",
        "--set",
        "synchronous_commit=on",
        "--delay",
        "primary-s1=40ms",
    ]);
    let mut primary = up.connect(0);
    primary.batch_execute("create table public.t(v int)").expect("a table");
    let commit = |level: &str| format!("set synchronous_commit = {level}; insert into public.t values (1)");
    let waits = shortest(&mut primary, &commit("on"));
    let own = shortest(&mut primary, &commit("local"));
    assert!(waits >= ms(40) && own < ms(40), "{waits:?}, and {own:?} without the standby");
    let streams = |primary: &mut Control| -> i64 {
        primary.query_one("select count(*) from pg_stat_replication", &[]).expect("a view").get(0)
    };
    assert_eq!(streams(&mut primary), 1);
    up.kill_relays();
    testing::wait_for("the stream to end", || streams(&mut primary) == 0);
    // The relays are dead: `down` removes everything all the same.
    drop(primary);
    assert_eq!(up.down().exit, Some(0));
    assert!(!Path::new(&up.dir).exists());
}

#[test]
fn tcp_between_nodes_goes_through_relays_too_and_down_ends_those_of_a_killed_up() {
    let up = Up::new(&["sharded", "--nodes", "2", "--tcp", "--delay", "*-*=10ms"]);
    let mut first = up.connect(0);
    let port = "select option_value::int from pg_foreign_server, pg_options_to_table(srvoptions) \
                where srvname = 'n2' and option_name = 'port'";
    let port: i32 = first.query_one(port, &[]).expect("a foreign server").get(0);
    let ways = NodeWays::of(Path::new(&up.dir)).expect("its relays");
    let way = ways.between("n1", "n2", &up.spec(1)).expect("a relay");
    assert_eq!((way.hosts[0].host.to_string().as_str(), i32::from(way.hosts[0].port)), ("127.0.0.1", port));
    let mut through = control::connect(&way).expect("the relay leads to n2");
    assert!(shortest(&mut through, "select 1") >= ms(10));
    drop((first, through));
    // As `up` leaves it that was killed before it wrote the cluster file.
    std::fs::remove_file(Path::new(&up.dir).join("cluster.toml")).expect("the cluster file");
    let down = up.down();
    assert_eq!(down.exit, Some(0), "{}", down.stderr);
    assert!(up.relays().is_empty() && !Path::new(&up.dir).exists());
}

/// Predicted from pings on the way of the nodes, and measured.
#[test]
fn prove_wide_and_run_show_what_a_commit_costs_over_the_distance() {
    let up = Up::new(&["sharded", "--nodes", "2", "--delay", "n1-n2=40ms"]);
    let file = format!("{}/cluster.toml", up.dir);
    let wide: Ended = pgfathom(up.folder.path())
        .args(["prove", "wide", "--cluster", &file, "-T", "2", "--format", "json", "-o", "wide"])
        .output()
        .expect("starts")
        .into();
    assert!(matches!(wide.exit, Some(0 | 8)), "{}", wide.stderr);
    let run_json = |name: &str| -> Value {
        let text = std::fs::read_to_string(up.folder.path().join(name).join("run.json")).expect("run.json");
        serde_json::from_str(&text).expect("JSON")
    };
    let text = run_json("wide").to_string();
    for field in ["commit_predicted_us", "round_trip_us"] {
        let values: Vec<f64> = numbers(&text, field);
        assert!(values.iter().any(|us| *us >= 40_000.0), "{field}: {values:?}");
    }
    let load = run(up.folder.path(), &["load", "ycsb", "--rows", "500", "--cluster", &file]);
    assert_eq!(load.exit, Some(0), "{}", load.stderr);
    // The nodes know each other by the ports of relays, which lead to nodes of the cluster file.
    for verb in ["verify", "matrix -T 1 -o matrix"] {
        let arguments: Vec<&str> = verb.split(' ').chain(["--cluster", &file]).collect();
        let ended = run(up.folder.path(), &arguments);
        assert!(
            matches!(ended.exit, Some(0 | 5)),
            "{verb}: {:?} {}{}",
            ended.exit,
            ended.stdout,
            ended.stderr
        );
    }
    let cells = run_json("matrix")["summary"]["matrix"]["operations"][0]["cells"].clone();
    let far = cells.as_array().into_iter().flatten().filter(|cell| cell["connect"] != cell["data"]);
    let pings: Vec<f64> = far.filter_map(|cell| cell["ping_us"].as_f64()).collect();
    assert!(pings.len() == 2 && pings.iter().all(|us| *us >= 40_000.0), "{cells}");
    let driven = run(
        up.folder.path(),
        &[
            "run",
            "-b",
            "ycsb-a",
            "-c",
            "1",
            "-T",
            "1",
            "--cluster",
            &up.dir,
            "--watch",
            "off",
            "-o",
            "driven",
        ],
    );
    assert!(matches!(driven.exit, Some(0 | 5)), "{}", driven.stderr);
    assert!(driven.stdout.contains("commit latency"), "{}", driven.stdout);
    let found = run_json("driven")["summary"]["benchmarks"].clone();
    let commits = found.as_array().and_then(|all| all.iter().find(|one| one["name"] == "commit latency"));
    let rows = commits.expect("commit latency")["tables"][0]["rows"].as_array().expect("rows").clone();
    let wide = rows.iter().find(|row| row["name"] == "n1, n2").expect("a commit on both nodes");
    let value = |column: usize| wide["values"][column].as_f64().expect("a number");
    assert_eq!(value(0), 1.0, "round trips");
    assert!(value(1) >= 40_000.0 && value(2) >= 40_000.0 && value(3) >= 40_000.0, "{wide}");
}

fn numbers(text: &str, field: &str) -> Vec<f64> {
    let name = format!("\"{field}\":");
    let value = |rest: &str| rest.split([',', '}']).next()?.parse().ok();
    text.split(&name).skip(1).filter_map(value).collect()
}
