//! A cluster under a failover manager: Patroni beside each server, etcd as the store of its state, and haproxy in front.
//!
//! Each program works in a folder of the cluster and is found again by that folder, whatever happened to the process that started it. Only loopback addresses
//! and sockets in the cluster's folder are used; nothing of the system's services is read or changed. The store and the REST interface require a password,
//! because both can change the settings of the servers.

mod config;
mod member;

pub(super) use member::{Manager, Member};

use connect::conninfo::{ConnSpec, SessionAttrs};
use connect::{Secret, control, poll};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::config::{Fronts, STORE_USER, Shared};
use super::folder::{make_dir_as, make_socket_dir, text_of, write_as};
use super::http::Request;
use super::job::{self, Job};
use super::{Installation, LocalError, process};
use connect::os_user::OsUser;

/// Name of the cluster in the store.
const SCOPE: &str = "pgfathom";
/// Its kind on the command line and in `cluster.toml`.
pub(crate) const KIND: &str = "patroni";
/// Patroni's own default of `ttl`, in seconds.
pub const TTL_S_DEFAULT: u32 = 30;
/// The least: a lease of etcd is not shorter, and Patroni needs time for its requests within it.
const TTL_S_MIN: u32 = 6;
/// The most.
const TTL_S_MAX: u32 = 3600;
/// How long a program may take to answer for the first time.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The time limit for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether Patroni makes commits wait for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SynchronousMode {
    /// They do not wait: a failover can lose acknowledged commits.
    #[default]
    Off,
    /// They wait for one standby, as long as there is one.
    On,
    /// They wait for one standby always: without a standby nothing is written.
    Strict,
}

impl SynchronousMode {
    /// All of them.
    pub const ALL: [SynchronousMode; 3] =
        [SynchronousMode::Off, SynchronousMode::On, SynchronousMode::Strict];

    /// Its word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            SynchronousMode::Off => "off",
            SynchronousMode::On => "on",
            SynchronousMode::Strict => "strict",
        }
    }

    /// The mode of this name.
    pub fn parse(name: &str) -> Option<SynchronousMode> {
        SynchronousMode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The servers, and how Patroni manages them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Managed {
    /// How many servers.
    pub nodes: u32,
    /// Whether commits wait for a standby.
    pub synchronous_mode: SynchronousMode,
    /// How long the primary keeps its role without renewing it (`ttl`).
    pub ttl_s: u32,
}

impl Managed {
    /// What commits wait for, for `cluster.toml`.
    pub(super) fn sync(self) -> String {
        format!("synchronous_mode {}", self.synchronous_mode.name())
    }

    /// Whether it is possible on this host: what is missing is named before anything is made.
    pub(super) fn check(self, installation: &Installation) -> Result<(), LocalError> {
        let wrong =
            |problem: String, hint: &str| Err(LocalError::Topology { problem, hint: hint.to_owned() });
        if self.nodes < 2 {
            return wrong("a failover needs a second server".to_owned(), "--nodes 3, or: pgfathom up single");
        }
        if !(TTL_S_MIN..=TTL_S_MAX).contains(&self.ttl_s) {
            return wrong(
                format!("a ttl of {} s: Patroni and its store need {TTL_S_MIN} to {TTL_S_MAX}", self.ttl_s),
                "--ttl 30 is Patroni's own default",
            );
        }
        let missing = missing_programs(|name| job::find_program(name).is_some());
        if !missing.is_empty() {
            return wrong(
                format!("not installed on this host: {}", missing.join(", ")),
                "apt-get install patroni etcd-server haproxy, and stop the services that the packages start",
            );
        }
        let missing = missing_clients(installation);
        if !missing.is_empty() {
            return wrong(
                format!(
                    "Patroni needs {} of PostgreSQL, which {} has not",
                    missing.join(", "),
                    installation.bin_dir.display()
                ),
                "apt-get install postgresql postgresql-client, and choose its folder with --pg-bin",
            );
        }
        Ok(())
    }
}

/// What is not installed.
fn missing_programs(is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    job::PROGRAMS.into_iter().filter(|name| !is_there(name)).collect()
}

/// The programs beside the server that Patroni starts, and that are not there.
fn missing_clients(installation: &Installation) -> Vec<&'static str> {
    ["pg_basebackup", "pg_rewind", "pg_isready", "pg_controldata", "pg_ctl"]
        .into_iter()
        .filter(|name| !installation.program(name).is_file())
        .collect()
}

/// Whether these binaries have everything that Patroni needs of PostgreSQL.
pub(super) fn suits(installation: &Installation) -> bool {
    missing_clients(installation).is_empty()
}

/// All of its programs in the cluster's folder.
struct Programs {
    store: Job,
    managers: Vec<Job>,
    front: Job,
}

impl Programs {
    fn of(dir: &Path, node_dirs: &[PathBuf]) -> Programs {
        Programs {
            store: Job::store(dir),
            managers: node_dirs.iter().map(|dir| Job::manager(dir)).collect(),
            front: Job::front(dir),
        }
    }
}

/// The ports besides those of the servers.
#[derive(Debug)]
pub(super) struct MorePorts {
    /// Of haproxy: for writes, for reads.
    pub(super) fronts: [u16; 2],
    /// Of the REST interfaces, node by node.
    pub(super) rest: Vec<u16>,
    /// Of etcd: for clients, for other members.
    pub(super) store: [u16; 2],
}

/// A node to be made: its name, its folder, its port.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    pub(super) port: u16,
}

/// Everything that the programs are configured with.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) managed: &'a Managed,
    pub(super) spots: &'a [Spot],
    pub(super) ports: MorePorts,
    pub(super) user: Option<&'a OsUser>,
    pub(super) installation: &'a Installation,
    pub(super) socket_dir: &'a Path,
    /// haproxy listens on 127.0.0.1, too.
    pub(super) tcp: bool,
    pub(super) password: Secret,
    pub(super) settings: &'a [(String, String)],
    pub(super) checksums: Option<bool>,
    /// The way to the first node, and to what haproxy makes of writes.
    pub(super) entry: ConnSpec,
    pub(super) front: ConnSpec,
}

/// The steps after the marker. Returns the seconds for the store, the first node, and the others.
pub(super) fn make(dir: &Path, order: &Order<'_>) -> Result<[f64; 3], LocalError> {
    let begin = Instant::now();
    let user = order.user;
    make_socket_dir(order.socket_dir, dir, user)?;
    write_files(dir, order)?;
    let node_dirs: Vec<PathBuf> = order.spots.iter().map(|spot| spot.dir.clone()).collect();
    let programs = Programs::of(dir, &node_dirs);
    start_store(&programs.store, user, order.ports.store[0])?;
    protect_store(order.ports.store[0], &order.password)?;
    let store_s = begin.elapsed().as_secs_f64();

    let begin = Instant::now();
    let on =
        |at: usize, result: Result<(), LocalError>| result.map_err(|error| error.on(&order.spots[at].name));
    let await_node =
        |at: usize, path: &str| on(at, await_state(&programs.managers[at], order.ports.rest[at], path));
    // One first, so that the first node of the cluster file is the primary.
    on(0, programs.managers[0].start(user))?;
    await_node(0, "/primary")?;
    let first_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    (1..order.spots.len()).try_for_each(|at| on(at, programs.managers[at].start(user)))?;
    (1..order.spots.len()).try_for_each(|at| await_node(at, "/replica"))?;
    programs.front.start(user)?;
    await_whole(order.spots.len() - 1, &order.entry, order.managed.synchronous_mode)?;
    await_front(&programs.front, &order.front, order.spots.len())?;
    Ok([store_s, first_s, begin.elapsed().as_secs_f64()])
}

/// The configuration of every program, readable by its user only.
fn write_files(dir: &Path, order: &Order<'_>) -> Result<(), LocalError> {
    let (user, [store_port, peer_port]) = (order.user, order.ports.store);
    let shared = Shared {
        managed: order.managed,
        bin_dir: &order.installation.bin_dir,
        socket_dir: order.socket_dir,
        store_port,
        password: &order.password,
        settings: order.settings,
        checksums: match order.checksums {
            Some(true) => Some("data-checksums"),
            // Older versions have no word for it: there it is off by default.
            Some(false) if order.installation.version.major >= 18 => Some("no-data-checksums"),
            _ => None,
        },
    };
    let members: Vec<config::Member<'_>> = std::iter::zip(order.spots, &order.ports.rest)
        .map(|(spot, rest)| config::Member {
            name: &spot.name,
            dir: &spot.dir,
            port: spot.port,
            rest_port: *rest,
        })
        .collect();
    for member in &members {
        make_dir_as(member.dir, user)?;
        write_as(&member.dir.join(job::MANAGER_FILE), config::patroni(&shared, member).as_bytes(), user)?;
    }
    let (store, front) = (Job::store(dir), Job::front(dir));
    make_dir_as(store.dir(), user)?;
    let text = config::etcd(store.dir(), store_port, peer_port);
    write_as(&store.dir().join(job::STORE_FILE), text.as_bytes(), user)?;
    make_dir_as(front.dir(), user)?;
    let [write, read] = order.ports.fronts;
    let text = config::haproxy(order.socket_dir, Fronts { write, read }, order.tcp, &members);
    write_as(&front.dir().join(job::FRONT_FILE), text.as_bytes(), user)
}

fn start_store(store: &Job, user: Option<&OsUser>, port: u16) -> Result<(), LocalError> {
    store.start(user)?;
    await_answer(store, || {
        let request =
            Request { method: "GET", port, path: "/health", login: None, body: "", timeout: REQUEST_TIMEOUT };
        // It answers 503 before it has elected itself.
        request.send().is_ok_and(|answer| answer.status == 200)
    })
}

/// Requires a password of every client of the store: who writes there can give the servers any setting.
fn protect_store(port: u16, password: &Secret) -> Result<(), LocalError> {
    let user = format!(r#"{{"name":"{STORE_USER}","password":"{}"}}"#, password.reveal());
    for (path, body) in [
        ("/v3/auth/role/add", r#"{"name":"root"}"#),
        ("/v3/auth/user/add", user.as_str()),
        ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("/v3/auth/enable", "{}"),
    ] {
        let request = Request { method: "POST", port, path, login: None, body, timeout: REQUEST_TIMEOUT };
        let answer = request.send().map_err(LocalError::io("ask etcd for", path))?;
        if answer.status != 200 {
            return Err(LocalError::Program {
                program: "etcd".to_owned(),
                status: format!("{path}: {}", answer.status),
                output: answer.body,
            });
        }
    }
    Ok(())
}

fn log_tail(job: &Job) -> String {
    process::log_tail(&job.log(), process::server_user().ok().flatten().as_ref())
}

/// Waits until a program does what it is there for, or has ended.
fn await_answer(job: &Job, mut is_there: impl FnMut() -> bool) -> Result<(), LocalError> {
    let ended = || LocalError::Program {
        program: job.name().to_owned(),
        status: "it ended".to_owned(),
        output: log_tail(job),
    };
    let found = poll::until(START_TIMEOUT, || match is_there() {
        true => Some(Ok(())),
        false => (!job.is_up()).then(|| Err(ended())),
    });
    found.unwrap_or_else(|| {
        Err(LocalError::Program {
            program: job.name().to_owned(),
            status: format!("no answer in {} s", START_TIMEOUT.as_secs()),
            output: log_tail(job),
        })
    })
}

/// Waits until the REST interface of a node reports the state that `path` asks for.
fn await_state(manager: &Job, port: u16, path: &str) -> Result<(), LocalError> {
    await_answer(manager, || {
        let request = Request { method: "GET", port, path, login: None, body: "", timeout: REQUEST_TIMEOUT };
        request.send().is_ok_and(|answer| answer.status == 200)
    })
}

fn await_connection(job: &Job, spec: &ConnSpec) -> Result<(), LocalError> {
    await_answer(job, || control::connect(spec).is_ok())
}

/// Waits until haproxy leads to the primary only: before its first checks it takes every server for one.
fn await_front(job: &Job, front: &ConnSpec, nodes: usize) -> Result<(), LocalError> {
    let mut writable = front.clone();
    writable.target_session_attrs = SessionAttrs::ReadWrite;
    // New connections go to the servers in turn.
    await_answer(job, || (0..2 * nodes).all(|_| control::connect(&writable).is_ok()))
}

/// Waits until every standby streams from the primary, and commits wait for one of them if they have to.
fn await_whole(standbys: usize, primary: &ConnSpec, mode: SynchronousMode) -> Result<(), LocalError> {
    let standbys = i64::try_from(standbys).unwrap_or(i64::MAX);
    let question = "select count(*) filter (where state = 'streaming'), \
                    count(*) filter (where sync_state in ('sync', 'quorum')) from pg_catalog.pg_stat_replication";
    let is_whole = || -> Result<bool, LocalError> {
        let mut client = control::connect(primary)?;
        let row = client
            .query_one(question, &[])
            .map_err(|source| LocalError::Sql { what: "read pg_stat_replication".to_owned(), source })?;
        let (streaming, synchronous): (i64, i64) = (row.get(0), row.get(1));
        Ok(streaming >= standbys && (mode == SynchronousMode::Off || synchronous > 0))
    };
    match poll::until(START_TIMEOUT, || is_whole().is_ok_and(|whole| whole).then_some(())) {
        Some(()) => Ok(()),
        None => {
            Err(LocalError::NotFollowing { node: "of Patroni".to_owned(), waited_s: START_TIMEOUT.as_secs() })
        }
    }
}

/// Starts the programs of a stopped cluster again, and waits until a node takes writes; Patroni decides which one. Returns the ports of haproxy;
/// `None`: all programs run already.
pub(super) fn start_again(
    dir: &Path,
    node_dirs: &[PathBuf],
    entry: &ConnSpec,
    user: Option<&OsUser>,
) -> Result<Option<[u16; 2]>, LocalError> {
    let programs = Programs::of(dir, node_dirs);
    let all = || std::iter::once(&programs.store).chain(&programs.managers).chain([&programs.front]);
    if all().all(Job::is_up) {
        return Ok(None);
    }
    all().try_for_each(|job| job.start(user))?;
    await_connection(programs.managers.first().unwrap_or(&programs.store), entry)?;
    let text = text_of(&programs.front.dir().join(job::FRONT_FILE)).unwrap_or_default();
    Ok(config::fronts_in(&text).map(|fronts| [fronts.write, fronts.read]))
}

/// Ends every program in a cluster's folder that would start a server again. Without Patroni there is none.
pub(super) fn end_programs(dir: &Path, node_dirs: &[PathBuf]) -> Result<(), LocalError> {
    let Programs { store, managers, front } = Programs::of(dir, node_dirs);
    managers.iter().chain([&front, &store]).try_for_each(Job::kill)
}

/// What it leaves in a cluster's folder, and in those of the nodes.
pub(super) fn leftovers(dir: &Path, node_dirs: &[PathBuf]) -> Vec<PathBuf> {
    let of_node = |node: &PathBuf| -> Vec<PathBuf> {
        fs::read_dir(node)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                let name =
                    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                // A data directory that pg_rewind could not repair is kept beside the new one.
                [job::MANAGER_FILE, "patroni.log", "pgpass"].iter().any(|ours| name.starts_with(ours))
                    || name.starts_with("data_")
                    || name.starts_with("data.")
            })
            .collect()
    };
    let is_managed = |node: &&PathBuf| node.join(job::MANAGER_FILE).is_file();
    let mut left: Vec<PathBuf> = node_dirs.iter().filter(is_managed).flat_map(of_node).collect();
    left.extend(
        [Job::store(dir), Job::front(dir)]
            .iter()
            .filter(|job| job.has_file())
            .map(|job| job.dir().to_owned()),
    );
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Version;

    fn managed(nodes: u32, ttl_s: u32) -> Managed {
        Managed { nodes, synchronous_mode: SynchronousMode::Off, ttl_s }
    }

    #[test]
    fn what_is_not_installed_is_named() {
        assert_eq!(missing_programs(|_| false), ["patroni", "etcd", "haproxy"]);
        assert_eq!(missing_programs(|name| name != "etcd"), ["etcd"]);
        assert!(missing_programs(|_| true).is_empty());
    }

    #[test]
    fn impossible_clusters_are_refused_with_what_to_type() {
        let nowhere =
            Installation { bin_dir: "/nowhere/bin".into(), version: Version { major: 15, minor: 0 } };
        for (managed, words, hint) in [
            (managed(1, 30), "a second server", "--nodes 3"),
            (managed(3, 5), "a ttl of 5 s", "--ttl 30"),
            (managed(3, 100_000), "a ttl of 100000 s", "--ttl 30"),
        ] {
            let error = managed.check(&nowhere).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.hint().unwrap().contains(hint), "{:?}", error.hint());
        }
        // Either the packages are missing, or these binaries have no pg_rewind.
        let error = managed(3, 30).check(&nowhere).unwrap_err();
        assert!(error.hint().unwrap().contains("apt-get install"), "{:?}", error.hint());
        assert!(!suits(&nowhere));
    }

    #[test]
    fn every_mode_is_read_by_its_name() {
        for mode in SynchronousMode::ALL {
            assert_eq!(SynchronousMode::parse(mode.name()), Some(mode));
        }
        assert_eq!(SynchronousMode::parse("maybe"), None);
    }
}
