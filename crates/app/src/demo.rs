//! `demo`: everything at once on a throwaway local PostgreSQL.

use crate::connection::Address;
use crate::context::{Context, Format, cpus};
use crate::failure::Failure;
use crate::load::fill;
use crate::recording::Recording;
use crate::run::{self, Sessions, Weighted};
use crate::skeleton::{Opening, Outcome, Target, in_steps};
use crate::stop::CleanupGuard;
use crate::verify::{How, differences, exit_of, prove};
use crate::watching::Watching;
use crate::{fingerprint, human};
use connect::ConnSpec;
use connect::cluster_file::CLUSTER_FILE_NAME;
use connect::control::Control;
use engines::Cluster;
use lab::local::{self, Installation, LocalCluster, Preset, Search, UpOptions};
use lab::throwaway::{self, Throwaway};
use load::verify::VerifyError;
use record::{Exit, State, files};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use workloads::dataset::{DEMO, Request};

/// Seed of the demo's rows: the same demo loads the same table everywhere.
const SEED: u64 = 1;
/// The buffer pool is a quarter of the memory, at most this: the demo's table is not larger.
const SHARED_BUFFERS_MIB_MAX: u64 = 2048;
/// And at least this, PostgreSQL's own default.
const SHARED_BUFFERS_MIB_MIN: u64 = 128;
/// PostgreSQL's own default of max_connections.
const CONNECTIONS_DEFAULT: u64 = 100;
/// Connections beside the sessions: streams, control, verification.
const CONNECTIONS_SPARE: u64 = 50;

/// How large and how long the demo is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rows to load.
    pub rows: u64,
    /// Sessions of each run.
    pub client: u64,
    /// How long each run measures.
    pub time: Duration,
    /// Folder of the PostgreSQL programs; `None`: the newest found.
    pub pg_bin: Option<PathBuf>,
    /// Leave the cluster running at the end.
    pub keep: bool,
    /// Monitoring during the run.
    pub watching: Watching,
    /// The run directory.
    pub directory: Option<PathBuf>,
}

/// The demo's server: gone with the value, or kept on request.
enum Server {
    Throwaway(Throwaway),
    Kept(Box<LocalCluster>),
}

impl Server {
    fn spec(&self) -> ConnSpec {
        match self {
            Server::Throwaway(cluster) => cluster.spec(),
            Server::Kept(cluster) => cluster.spec.clone(),
        }
    }
}

impl Plan {
    /// Runs the demo.
    ///
    /// # Errors
    /// When there is no PostgreSQL, or a step fails. The cluster is removed in every case, unless it is to be kept.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let search = Search { pg_bin: self.pg_bin.clone(), ..Search::default() };
        let found = local::find_installations(&search, |name| std::env::var_os(name))?;
        let installation =
            found.into_iter().next().ok_or_else(|| Failure::usage("no PostgreSQL server was found"))?;
        let opening = Opening::new("demo", "", self.directory.as_deref()).watched(self.watching);
        let recording = opening.begin(context)?;
        let machine = recording.dir().run().client;
        print_line(
            context,
            &format!(
                "pgfathom demo   PostgreSQL {} ({})   {}, {}",
                installation.version,
                if self.keep { "kept" } else { "throwaway" },
                human::plural(machine.cpus, "core"),
                machine.memory_bytes.map_or("unknown memory".to_string(), human::memory)
            ),
        );
        let begun = Instant::now();
        let server = match self.start(&installation, machine.memory_bytes) {
            Ok(server) => server,
            Err(failure) => {
                recording.discard();
                return Err(failure);
            }
        };
        let _guard = guard(context, &server);
        print_line(context, &format!("up            {}", human::seconds(begun.elapsed().as_secs_f64())));
        let outcome = in_steps(recording, |recording| {
            let spec = server.spec();
            let mut control = connect::control::connect(&spec).map_err(Failure::from)?;
            opening.connected(recording, Target::server(&spec), &mut control)?;
            let exit = self.steps(context, recording, &spec, control)?;
            let state = if exit == Exit::Interrupted { State::Interrupted } else { State::Finished };
            let page = recording.path().join(files::REPORT);
            print_line(context, &format!("report        {}", page.display()));
            Ok(Outcome::plain(state, exit))
        });
        match server {
            Server::Kept(cluster) if context.stop.is_requested() || outcome.is_err() => {
                local::down(&cluster.dir, &local::Registry::of_process())?;
            }
            Server::Kept(cluster) => {
                let dir = cluster.dir.display();
                context.terminal.say(&format!(
                    "kept: psql '{}'; --cluster {dir}/{CLUSTER_FILE_NAME}",
                    cluster.spec.describe()
                ));
                context.terminal.say(&format!("remove it with: pgfathom down {dir}"));
            }
            Server::Throwaway(cluster) => drop(cluster),
        }
        outcome
    }

    fn start(&self, installation: &Installation, memory_bytes: Option<u64>) -> Result<Server, Failure> {
        if self.keep {
            let dir = local::default_dir("demo");
            let connections = ("max_connections".to_string(), self.connections().to_string());
            let options = UpOptions {
                preset: Preset::Careless,
                settings: vec![connections],
                ..UpOptions::new(&dir, installation.clone())
            };
            return Ok(Server::Kept(Box::new(local::up(&options)?)));
        }
        let quarter_mib = memory_bytes.map_or(0, |bytes| (bytes / 4) >> 20);
        let buffers_mib = quarter_mib.clamp(SHARED_BUFFERS_MIB_MIN, SHARED_BUFFERS_MIB_MAX);
        let settings = [
            ("shared_buffers", format!("{buffers_mib}MB")),
            // A checkpoint in the middle of ten seconds would be all that the second run shows.
            ("max_wal_size", "8GB".to_string()),
            ("checkpoint_timeout", "30min".to_string()),
            ("max_connections", self.connections().to_string()),
        ];
        let options = throwaway::Options {
            settings: settings.map(|(name, value)| (name.to_string(), value)).to_vec(),
            ..throwaway::Options::default()
        };
        Ok(Server::Throwaway(options.start(installation)?))
    }

    fn connections(&self) -> u64 {
        (self.client + CONNECTIONS_SPARE).max(CONNECTIONS_DEFAULT)
    }

    /// Load, verify, run, run, verify: the first that is not well decides the exit code, and the rest runs all the same.
    fn steps(
        &self,
        context: &Context,
        recording: &Recording<'_>,
        spec: &ConnSpec,
        mut control: Control,
    ) -> Result<Exit, Failure> {
        let mut exits = vec![self.load(context, recording, spec)?];
        if !context.stop.is_requested() {
            exits.push(verify(context, recording, spec, false)?);
        }
        for workload in DEMO.workloads {
            if context.stop.is_requested() {
                break;
            }
            let plan = run::Plan {
                builtin: vec![Weighted::one(workload)],
                client: Sessions::one(self.client),
                time: Some(self.time),
                ..run::Plan::new(Address::from(spec.clone()))
            };
            let step = recording.dir().begin_step("run", workload)?;
            match plan.step(recording, &step, spec, &mut control) {
                Ok(exit) => exits.push(exit),
                // Stopped while its sessions were connecting.
                Err(failure) if failure.exit() == Exit::Interrupted => {
                    recording.keep(recording.dir().end_step(&step, State::Interrupted));
                    break;
                }
                Err(failure) => return Err(failure),
            }
            print_findings(context, recording)?;
        }
        if !context.stop.is_requested() {
            exits.push(verify(context, recording, spec, true)?);
        }
        if let Ok(bytes) = fingerprint::database_bytes(&mut control) {
            recording.dir().edit(|run| {
                if let Some(target) = &mut run.target {
                    target.database_bytes = Some(bytes);
                }
            })?;
        }
        if context.stop.is_requested() {
            return Ok(Exit::Interrupted);
        }
        Ok(exits.into_iter().find(|exit| *exit != Exit::Ok).unwrap_or(Exit::Ok))
    }

    fn load(&self, context: &Context, recording: &Recording<'_>, spec: &ConnSpec) -> Result<Exit, Failure> {
        let request = Request { rows: Some(self.rows), seed: SEED, ..Request::default() };
        let options = load::Options { streams: cpus(), ..load::Options::new() };
        let dataset = (DEMO.dataset.build)(&request)?;
        options.check(&*dataset)?;
        let step = recording.dir().begin_step("load", DEMO.dataset.name)?;
        let cluster = engines::Cluster::single(spec.clone());
        let report = fill(context, recording, &step, &cluster, &*dataset, &options, None)?;
        print_findings(context, recording)?;
        Ok(if report.outcome.is_partial() { Exit::Interrupted } else { Exit::Ok })
    }
}

fn verify(
    context: &Context,
    recording: &Recording<'_>,
    spec: &ConnSpec,
    deep: bool,
) -> Result<Exit, Failure> {
    let step = recording.dir().begin_step("verify", DEMO.dataset.name)?;
    let cluster = Cluster::single(spec.clone());
    match prove(context, recording, &step, &cluster, DEMO.dataset.name, &How::new(deep)) {
        Ok(report) => {
            print_findings(context, recording)?;
            for line in differences(&report) {
                print_line(context, &line);
            }
            Ok(exit_of(&report))
        }
        Err(VerifyError::Interrupted) => {
            recording.keep(recording.dir().end_step(&step, State::Interrupted));
            Ok(Exit::Interrupted)
        }
        Err(error) => Err(error.into()),
    }
}

/// The line of a step that has ended, and why its numbers are not to be trusted, if they are not.
fn print_findings(context: &Context, recording: &Recording<'_>) -> Result<(), Failure> {
    print_line(context, &recording.last_line()?);
    let run = recording.dir().run();
    for reason in run.steps.last().into_iter().flat_map(|step| &step.verdict.reasons) {
        print_line(context, &format!("  {reason}"));
    }
    Ok(())
}

/// The demo's screen is its result; with JSON it prints nothing, and the summary comes at the end.
fn print_line(context: &Context, line: &str) {
    if context.format == Format::Text {
        context.terminal.data(line);
    }
}

/// What the second Ctrl-C still does when a step hangs: no server and no folder stay behind.
fn guard(context: &Context, server: &Server) -> CleanupGuard {
    match server {
        Server::Throwaway(cluster) => {
            let (pid, folder) = (cluster.pid(), cluster.data_dir().parent().map(Path::to_owned));
            context.stop.on_forced_exit(move || {
                let pid =
                    pid.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
                if let Some(pid) = pid {
                    // Nothing can be reported from here; what stays is removed by the next throwaway cluster.
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
                    std::thread::sleep(Duration::from_millis(500));
                }
                if let Some(folder) = folder {
                    let _ = std::fs::remove_dir_all(folder);
                }
            })
        }
        Server::Kept(cluster) => {
            let dir = cluster.dir.clone();
            context.stop.on_forced_exit(move || {
                let _ = local::down(&dir, &local::Registry::of_process());
            })
        }
    }
}
