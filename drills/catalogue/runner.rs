//! The runner: one entry of the catalogue on a throwaway server of its own, watched and explained by the command as a user would, and scored.

use super::cure::{self, Cure};
use super::entry::{Disk, Entry, Load};
use super::host::{Foreign, Group};
use super::load::{Place, Running, words_of};
use super::pooler::Pooler;
use super::score::{self, Expected, Verdict};
use crate::island::{BLKIO, Brake, Island, Limit};
use crate::support::pgfathom;
use crate::sys;
use lab::local::{Replication, SyncStandbys, Topology};
use lab::throwaway::{Installation, Options, Throwaway, ThrowawayCluster, installations};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// From the start of the load to that of the watch.
const WARM_S: u64 = 2;
/// The longest that a watch may take beyond its time.
const WATCH_GRACE: Duration = Duration::from_secs(60);

/// The run directory of the first watch.
const FIRST_LOOK: &str = "run";

/// The rule about I/O limits of control groups.
const STAND_IN: &str = "IO-09";
/// For the self-test: rules whose claims are removed before they are scored, separated by spaces.
pub(crate) const WITHOUT: &str = "PGFATHOM_DRILLS_WITHOUT";

/// What became of an entry: a line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) area: String,
    pub(crate) cause: String,
    pub(crate) healthy: bool,
    pub(crate) rules: Vec<String>,
    pub(crate) verdict: Verdict,
    /// CPU of programs that do not belong to the entry, in percent of the host's.
    pub(crate) foreign_cpu_pct: Option<f64>,
    pub(crate) postgres: u32,
    /// What failed, or what is lacking.
    pub(crate) why: Option<String>,
    pub(crate) cure: Option<Cure>,
    /// Where the run directory is, if it was kept.
    pub(crate) run: Option<PathBuf>,
    pub(crate) wall_s: f64,
}

/// The servers of an entry.
enum Servers {
    One(Throwaway),
    Several(ThrowawayCluster),
}

impl Servers {
    fn node(&self, index: usize) -> Result<&Throwaway, String> {
        match self {
            Servers::One(server) if index == 0 => Ok(server),
            Servers::Several(cluster) if index < cluster.nodes().len() => Ok(cluster.node(index)),
            _ => Err(format!("there is no node {index}")),
        }
    }
}

/// An entry at work.
pub(crate) struct Stage<'a> {
    entry: &'a Entry,
    folder: &'a Path,
    servers: Servers,
    /// How loads connect to each node.
    places: Vec<Place>,
    pooler: Option<Pooler>,
    pub(crate) loads: Running,
    foreign: &'a Foreign,
    _limits: Vec<Group>,
    _brake: Option<Brake>,
}

/// One watch, explained.
pub(crate) struct Look {
    pub(crate) answer: Value,
    pub(crate) foreign_cpu_pct: Option<f64>,
    /// Mean latency of the first script.
    pub(crate) latency_ms: Option<f64>,
    pub(crate) dir: PathBuf,
}

/// The release that an entry is for.
pub(crate) fn installation(entry: &Entry) -> Result<Installation, String> {
    let wanted = |one: &Installation| entry.postgres.is_none_or(|major| one.version.major == major);
    installations().into_iter().find(wanted).ok_or_else(|| match entry.postgres {
        Some(major) => format!("PostgreSQL {major} is not installed"),
        None => "no PostgreSQL is installed".to_owned(),
    })
}

impl<'a> Stage<'a> {
    /// Starts the servers and prepares them.
    pub(crate) fn set(
        entry: &'a Entry,
        folder: &'a Path,
        foreign: &'a Foreign,
        island: Option<&Island>,
    ) -> Result<Stage<'a>, String> {
        let disk = match (entry.disk, island) {
            (Some(disk), Some(island)) => Some((island.disk("data", disk.mib)?, disk)),
            _ => None,
        };
        let data_dir = disk.as_ref().map(|(disk, _)| disk.mount.clone());
        let mut servers = start(entry, data_dir)?;
        // The page cache of what is written before belongs to another group.
        let pids = |server: &Throwaway| lab::local::servers_in(&server.data_dir());
        let mut limits = Vec::new();
        if let Some(mib) = entry.memory_mib {
            limits.push(Group::memory(mib)?);
            limits[0].hold(pids(servers.node(0)?))?;
        }
        prepare(entry, servers.node(0)?)?;
        if let Servers::One(server) = &mut servers {
            restart(entry, server)?;
        }
        let count = if entry.standby.is_some() { 2 } else { 1 };
        let places =
            (0..count).map(|index| place(entry, servers.node(index)?)).collect::<Result<Vec<_>, String>>()?;
        let pids = || lab::local::servers_in(&places[0].data_dir);
        if let Some(pct) = entry.cpu_quota_pct {
            let group = Group::cpu_quota(pct)?;
            group.hold(pids())?;
            limits.push(group);
        }
        let brake = match &disk {
            Some((disk, limit)) => {
                let brake = Brake::new()?;
                // And ourselves, so the programs that we start later are slow there, too.
                brake.hold(pids().into_iter().chain([std::process::id()]))?;
                for one in limits_of(limit) {
                    brake.set(disk, Some(one))?;
                }
                Some(brake)
            }
            None => None,
        };
        let pooler =
            entry.pooler.as_ref().map(|how| Pooler::start(how, servers.node(0)?, &places[0], folder));
        let pooler = pooler.transpose()?;
        let loads = Running::new(folder);
        Ok(Stage { entry, folder, servers, places, pooler, loads, foreign, _limits: limits, _brake: brake })
    }

    /// How a load connects.
    pub(crate) fn place_of(&self, load: &Load) -> Result<Place, String> {
        match (&self.pooler, load.pooled) {
            (Some(pooler), true) => Ok(pooler.place.clone()),
            (None, true) => Err("there is no pooler".to_owned()),
            _ => self.places.get(load.node).cloned().ok_or_else(|| "no such node".to_owned()),
        }
    }

    pub(crate) fn server(&self) -> Result<&Throwaway, String> {
        self.servers.node(0)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder
    }

    pub(crate) fn place(&self) -> &Place {
        &self.places[0]
    }

    /// Starts the loads (only scripts, for a second look), watches, and explains.
    pub(crate) fn look(&mut self, name: &str, only_scripts: bool) -> Result<Look, String> {
        let entry = self.entry;
        let wanted = |load: &&Load| load.script.is_some() || !only_scripts;
        let (first, later): (Vec<_>, Vec<_>) =
            entry.load.iter().filter(wanted).partition(|load| load.at_s <= 0.0);
        for load in first {
            let place = self.place_of(load)?;
            self.loads.start(&place, load, WARM_S + entry.seconds + 1)?;
        }
        thread::sleep(Duration::from_secs(WARM_S));
        let then = self.foreign.read();
        let begun = Instant::now();
        let mut watch = self.watch(name)?;
        for load in later {
            let at = Duration::from_secs_f64(load.at_s);
            thread::sleep(at.saturating_sub(begun.elapsed()));
            let left = entry.seconds.saturating_sub(begun.elapsed().as_secs()).max(1);
            let place = self.place_of(load)?;
            self.loads.start(&place, load, left)?;
        }
        let deadline = begun + Duration::from_secs(entry.seconds) + WATCH_GRACE;
        let mut status = None;
        while status.is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(50));
            status = watch.try_wait().map_err(|error| error.to_string())?;
        }
        let foreign_cpu_pct = self.foreign.pct_since(then);
        if status.is_none() {
            let _ = watch.kill();
            let _ = watch.wait();
            return Err("the watch did not end".to_owned());
        }
        let latency_ms = self.loads.end_scripts()?;
        let dir = self.folder.join(name);
        let answer = explain(self.folder, name)?;
        Ok(Look { answer, foreign_cpu_pct, latency_ms, dir })
    }

    fn watch(&self, name: &str) -> Result<std::process::Child, String> {
        let mut command = pgfathom(self.folder);
        command.args(["watch", "-q", "-T", &self.entry.seconds.to_string(), "-o", name]);
        match &self.servers {
            Servers::Several(cluster) => {
                command.arg("--cluster").arg(cluster.cluster_toml());
            }
            Servers::One(server) => {
                let role = self.entry.watch_user.as_deref().unwrap_or("postgres");
                command.args(["-U", role, "-d", "postgres", "-p", &server.port().to_string(), "-h"]);
                command.arg(server.socket_dir());
            }
        }
        command.env("TMPDIR", self.folder).stdout(Stdio::null()).stderr(Stdio::null());
        sys::end_with_us(&mut command);
        command.spawn().map_err(|error| format!("the watch: {error}"))
    }

    /// Whether the condition is there, by the entry's own query.
    fn provoked(&self) -> Result<(), String> {
        let Some(query) = &self.entry.provoked else { return Ok(()) };
        let answer = self.server()?.value(query).map_err(|error| format!("{query}: {}", words_of(&error)))?;
        match answer.as_deref() {
            Some("t") => Ok(()),
            other => Err(format!("the condition was not there: {query} returned {other:?}")),
        }
    }

    fn end(self) {
        let Stage { servers, loads, pooler, _brake: brake, .. } = self;
        drop(pooler);
        drop(servers);
        loads.end();
        if brake.is_some() {
            let _ = fs::write(Path::new(BLKIO).join("cgroup.procs"), std::process::id().to_string());
        }
    }
}

fn limits_of(disk: &Disk) -> Vec<Limit> {
    let writes = disk.writes_per_s.map(Limit::WritesPerS);
    writes.into_iter().chain(disk.write_bytes_per_s.map(Limit::WriteBytesPerS)).collect()
}

fn start(entry: &Entry, data_dir: Option<PathBuf>) -> Result<Servers, String> {
    let installation = installation(entry)?;
    let mut settings: Vec<(String, String)> = entry.settings.clone().into_iter().collect();
    if entry.statements && !entry.settings.contains_key("shared_preload_libraries") {
        settings.push(("shared_preload_libraries".to_owned(), "pg_stat_statements".to_owned()));
    }
    if let Some(sync) = &entry.standby {
        let sync = SyncStandbys::parse(sync, 1).map_err(|error| error.to_string())?;
        let topology = Topology::Replicated(Replication { standbys: 1, sync, commit: None });
        let words: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let cluster = ThrowawayCluster::start(&installation, &topology, &words);
        return cluster.map(Servers::Several).map_err(|error| error.to_string());
    }
    let options =
        Options { settings, tcp: entry.tcp, hba: entry.hba.clone(), data_dir, ..Options::default() };
    options.start(&installation).map(Servers::One).map_err(|error| error.to_string())
}

fn prepare(entry: &Entry, server: &Throwaway) -> Result<(), String> {
    let place = place(entry, server)?;
    let mut session = place.session("postgres")?;
    let extension = entry.statements.then(|| "CREATE EXTENSION pg_stat_statements".to_owned());
    for text in extension.iter().chain(&entry.prepare) {
        session.batch_execute(text).map_err(|error| format!("{text}: {}", words_of(&error)))?;
    }
    Ok(())
}

/// Stops the server, does to its files what the entry wants, and starts it again.
fn restart(entry: &Entry, server: &mut Throwaway) -> Result<(), String> {
    if !entry.restart && entry.offline.is_none() {
        return Ok(());
    }
    server.stop(lab::throwaway::StopMode::Fast).map_err(|error| error.to_string())?;
    if let Some(words) = &entry.offline {
        let mut command = Command::new("sh");
        command.args(["-e", "-c", words]).current_dir("/").stdin(Stdio::null());
        let place = place(entry, server)?;
        place.set_environment(&mut command, "postgres");
        place.set_owner(&mut command)?;
        let output = command.output().map_err(|error| format!("sh: {error}"))?;
        if !output.status.success() {
            return Err(format!(
                "offline: {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
    }
    server.start_again().map_err(|error| error.to_string())
}

fn place(entry: &Entry, server: &Throwaway) -> Result<Place, String> {
    let host = if entry.tcp { "127.0.0.1".to_owned() } else { server.socket_dir().display().to_string() };
    let bin = server.installation().bin_dir.clone();
    Ok(Place { bin, host, port: server.port(), data_dir: server.data_dir() })
}

/// What the command makes of a run directory; its text is kept beside the recording.
fn explain(folder: &Path, name: &str) -> Result<Value, String> {
    let text = pgfathom(folder).args(["explain", "-v", name]).output().map_err(|error| error.to_string())?;
    let _ = fs::write(folder.join(name).join("explain.txt"), &text.stdout);
    let answer = crate::ground::explain(folder, name);
    if answer["findings"].is_array() {
        Ok(answer)
    } else {
        Err(format!("explain {name} has no findings: {answer}"))
    }
}

/// Removes what these rules claim, as if they did not exist.
fn remove_rules(answer: &mut Value, rules: &str) {
    let is_left = |finding: &Value| !rules.split(' ').any(|rule| finding["rule"] == rule);
    if let Some(findings) = answer["findings"].as_array_mut() {
        findings.retain(is_left);
    }
}

/// The limit of a control group stands in for a slow disk: what is claimed about the limit itself is true of the stand-in, and belongs to no entry, and
/// neither does
/// its place above what it causes.
fn remove_stand_in(entry: &Entry, answer: &mut Value) {
    if entry.disk.is_none() || entry.rules.iter().any(|rule| rule == STAND_IN) {
        return;
    }
    remove_rules(answer, STAND_IN);
    for finding in answer["findings"].as_array_mut().into_iter().flatten() {
        let is_below = finding["symptom_of"].as_str().is_some_and(|id| id.starts_with(STAND_IN));
        if let (true, Some(fields)) = (is_below, finding.as_object_mut()) {
            fields.remove("symptom_of");
        }
    }
}

/// What the scorer holds the findings against.
fn expected(entry: &Entry, foreign_cpu_pct: Option<f64>) -> Expected<'_> {
    Expected {
        healthy: entry.healthy,
        rules: &entry.rules,
        names: &entry.names,
        symptoms: &entry.symptoms,
        also: &entry.also,
        foreign_cpu_pct: foreign_cpu_pct.unwrap_or(100.0),
    }
}

/// Explains the recording of the first watch in `folder` again, and judges that. What was measured then stays.
pub(crate) fn judge_kept(entry: &Entry, folder: &Path, before: Record) -> Result<Record, String> {
    let mut answer = explain(folder, FIRST_LOOK)?;
    remove_stand_in(entry, &mut answer);
    let verdict = score::judge(&answer, &expected(entry, before.foreign_cpu_pct));
    let (cause, rules) = (entry.cause.clone(), entry.rules.clone());
    Ok(Record { area: entry.area.clone(), healthy: entry.healthy, cause, rules, verdict, ..before })
}

/// Does all of it. Errors are the runner's, or the condition's that could not be caused.
pub(crate) fn perform(
    entry: &Entry,
    folder: &Path,
    foreign: &Foreign,
    island: Option<&Island>,
) -> Result<Record, String> {
    let begun = Instant::now();
    let mut stage = Stage::set(entry, folder, foreign, island)?;
    let mut look = stage.look(FIRST_LOOK, false)?;
    remove_rules(&mut look.answer, &std::env::var(WITHOUT).unwrap_or_default());
    remove_stand_in(entry, &mut look.answer);
    stage.loads.worked()?;
    stage.provoked()?;
    let expected = expected(entry, look.foreign_cpu_pct);
    let verdict = score::judge(&look.answer, &expected);
    let cure = match score::cause(&look.answer, &expected) {
        Some(finding) if entry.remedy && !entry.healthy => {
            Some(cure::tried(&mut stage, &look, finding, &expected)?)
        }
        _ => None,
    };
    let postgres = stage.server()?.installation().version.major;
    let run = Some(look.dir.clone());
    let foreign_cpu_pct = look.foreign_cpu_pct;
    stage.end();
    Ok(Record {
        name: entry.name.clone(),
        area: entry.area.clone(),
        cause: entry.cause.clone(),
        healthy: entry.healthy,
        rules: entry.rules.clone(),
        verdict,
        foreign_cpu_pct,
        postgres,
        why: None,
        cure,
        run,
        wall_s: begun.elapsed().as_secs_f64(),
    })
}
