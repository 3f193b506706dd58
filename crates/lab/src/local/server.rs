//! One server of a local cluster: its files, settings, start and stop.

use connect::poll;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::distance::{self, Detour};
use super::folder::{make_dir_as, remove_sockets, text_of, write_as};
use super::process::{self, Lifetime, PidFile, Workplace};
use super::relays::Line;
use super::seed;
use super::topology::{self, Link, Peer, SUPERUSER};
use super::{Installation, LocalError};
use connect::Secret;
use connect::cluster_file::Role;
use connect::conninfo::{self, ConnSpec, PORT_DEFAULT};
use connect::os_user::OsUser;

/// The time limit for a start, including crash recovery.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// The time limit for the end of a server whose files will be deleted; then it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// With less free space, a failed start without a log message is attributed to the full disk.
const DISK_FULL_BYTES: u64 = 32 << 20;

/// The location of a server and its user.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) role: Role,
    /// The folder with `data` and `log`.
    pub(super) dir: PathBuf,
    pub(super) socket_dir: PathBuf,
    pub(super) port: u16,
    pub(super) user: Option<OsUser>,
    pub(super) installation: Installation,
    /// Whether it listens on 127.0.0.1 too.
    pub(super) tcp: bool,
    /// The role and password of the other nodes' connections over TCP.
    pub(super) login: Option<(&'static str, Secret)>,
    /// Other ports, for those who are far away.
    pub(super) detours: Vec<Detour>,
}

impl Server {
    pub(super) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(super) fn user(&self) -> Option<&OsUser> {
        self.user.as_ref()
    }

    /// How to connect over its socket.
    pub(super) fn spec(&self) -> ConnSpec {
        ConnSpec::unix(&self.socket_dir, self.port, SUPERUSER, SUPERUSER)
    }

    /// The way of clients, which may be far away.
    pub(super) fn client_spec(&self) -> ConnSpec {
        let port = distance::port_for(distance::CLIENT, &self.detours, self.port);
        ConnSpec::unix(&self.socket_dir, port, SUPERUSER, SUPERUSER)
    }

    /// The addresses under which other nodes know it, where they do not take the way of clients: those of its relays, and its own.
    pub(super) fn known_as(&self) -> Vec<String> {
        let link = self.peer().link;
        let ways =
            self.detours.iter().filter(|detour| detour.from != distance::CLIENT).map(|detour| detour.port);
        let own = (!self.detours.is_empty()).then_some(self.port);
        ways.chain(own).map(|port| format!("host={} port={port}", conninfo::quoted(&link.host))).collect()
    }

    /// The relays that lead here, to its socket. Nodes reach them over TCP if it is enabled; clients use a socket.
    pub(super) fn relays(&self) -> Vec<Line> {
        let socket = |port: u16| self.socket_dir.join(format!(".s.PGSQL.{port}"));
        let line = |detour: &Detour| Line {
            from: detour.from.clone(),
            to: self.name.clone(),
            listen: match self.login.is_some() && self.tcp && detour.from != distance::CLIENT {
                true => PathBuf::from(detour.port.to_string()),
                false => socket(detour.port),
            },
            upstream: socket(self.port),
            one_way: detour.round_trip / 2,
        };
        self.detours.iter().map(line).collect()
    }

    /// The same for a topology: the other nodes use TCP if it is enabled, so that their traffic takes the same path as between hosts.
    pub(super) fn peer(&self) -> Peer {
        let spec = self.spec();
        let link = match &self.login {
            Some((user, password)) if self.tcp => Link {
                host: "127.0.0.1".to_owned(),
                port: self.port,
                user: (*user).to_owned(),
                password: Some(password.clone()),
                dbname: spec.dbname.clone(),
                detours: self.detours.clone(),
            },
            _ => Link { detours: self.detours.clone(), ..Link::of(&spec) },
        };
        Peer { name: self.name.clone(), spec, link }
    }

    /// Makes its folder, unless it is that of the cluster.
    pub(super) fn make_dir(&self, cluster: &Path) -> Result<(), LocalError> {
        if self.dir == cluster { Ok(()) } else { make_dir_as(&self.dir, self.user()) }
    }

    /// Makes an empty database cluster that requires no password on its socket, and one over TCP.
    pub(super) fn initdb(&self, checksums: Option<bool>, arguments: &[String]) -> Result<(), LocalError> {
        let mut command = process::command(&self.installation.program("initdb"), self.user(), &self.dir);
        command.arg("-D").arg(self.data_dir());
        command.args(["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C"]);
        // Its final sync would take longer than everything else. The kernel writes these files within half a minute by itself, and the server syncs later
        // writes as configured.
        command.arg("--no-sync");
        match checksums {
            Some(true) => command.arg("--data-checksums"),
            // Older versions have no flag for it: there it is off by default.
            Some(false) if self.installation.version.major >= 18 => command.arg("--no-data-checksums"),
            _ => &mut command,
        };
        command.args(arguments);
        crate::sys::die_with_parent(&mut command, rustix::process::Signal::TERM);
        seed::initdb(command, &self.data_dir(), self.user())?;
        let hba = "# Written by pgfathom: the socket's folder is closed to other users, so it needs no password; TCP does.\n\
                   local all all trust\nlocal replication all trust\n\
                   host all all all scram-sha-256\nhost replication all all scram-sha-256\n";
        write_as(&self.data_dir().join("pg_hba.conf"), hba.as_bytes(), self.user())
    }

    /// Writes `postgresql.conf`: the text of initdb, of which a copy is kept, then the addresses, then `settings`; later ones win.
    pub(super) fn write_settings(&self, tcp: bool, settings: &[(String, String)]) -> Result<(), LocalError> {
        let conf = self.data_dir().join("postgresql.conf");
        let original = self.data_dir().join("postgresql.conf.initdb");
        if !original.exists() {
            let text = process::with_files_of(self.user(), || text_of(&conf));
            write_as(&original, text.map_err(LocalError::io("read", &conf))?.as_bytes(), self.user())?;
        }
        let mut text = process::with_files_of(self.user(), || text_of(&original))
            .map_err(LocalError::io("read", &original))?;
        let ours = [
            ("port", self.port.to_string()),
            ("listen_addresses", if tcp { "127.0.0.1" } else { "" }.to_owned()),
            ("unix_socket_directories", self.socket_dir.display().to_string()),
            ("unix_socket_permissions", "0700".to_owned()),
            ("log_line_prefix", "%m [%p] %q%u@%d ".to_owned()),
            ("lc_messages", "C".to_owned()),
            // What pg_hba.conf demands; before PostgreSQL 14 another one is the default.
            ("password_encryption", "scram-sha-256".to_owned()),
        ];
        text.push_str("\n# Written by pgfathom up.\n");
        let ours = ours.into_iter().map(|(name, value)| (name.to_owned(), value));
        for (name, value) in ours.chain(settings.iter().cloned()) {
            text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        write_as(&conf, text.as_bytes(), self.user())
    }

    /// Starts it and waits until it accepts connections; it survives our process. Returns the time.
    pub(super) fn start(&self) -> Result<f64, LocalError> {
        let begin = Instant::now();
        let (data_dir, log) = (self.data_dir(), self.log());
        let (mut child, launch) = process::spawn_postmaster(
            &self.installation,
            (&data_dir, None),
            &log,
            self.user(),
            Lifetime::Independent,
        )?;
        match launch.wait_ready(&mut child, START_TIMEOUT) {
            Ok(()) => Ok(begin.elapsed().as_secs_f64()),
            Err(LocalError::Start { log, .. })
                if log.is_empty() && free_bytes(&data_dir) < DISK_FULL_BYTES =>
            {
                // On a full disk there are no log lines either.
                Err(LocalError::DiskFull { free_bytes: free_bytes(&data_dir), path: data_dir })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Starts it with the files in its folder, for example after a reboot of the host. Returns the time.
    pub(super) fn start_again(&mut self) -> Result<f64, LocalError> {
        let data_dir = self.data_dir();
        process::end_outlived(&data_dir)?;
        if PidFile::read(&data_dir).is_some() {
            // No server runs in this folder, although some process has that pid now; PostgreSQL itself would refuse to start.
            let path = data_dir.join("postmaster.pid");
            process::with_files_of(self.user(), || fs::remove_file(&path))
                .map_err(LocalError::io("remove", &path))?;
            remove_sockets(&self.socket_dir, &data_dir);
        }
        let start_s = self.start()?;
        self.port = PidFile::read(&data_dir).and_then(|pid_file| pid_file.port).unwrap_or(PORT_DEFAULT);
        Ok(start_s)
    }

    /// Whether it runs. Processes that have outlived it do not count.
    pub(super) fn is_up(&self) -> bool {
        let data_dir = self.data_dir();
        !process::servers_in(&data_dir).is_empty() && process::outlived_in(&data_dir).is_empty()
    }

    /// Reloads the settings of a running server.
    pub(super) fn reload(&self) -> Result<(), LocalError> {
        match process::postmaster_in(&self.data_dir()) {
            Some(pid) => process::signal_servers(&self.data_dir(), &[pid], rustix::process::Signal::HUP),
            None => Ok(()),
        }
    }
}

/// Free space on the disk of `path`, as an ordinary user gets it.
pub(super) fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Ends any server in a data directory that will be deleted: by an immediate stop, then by SIGKILL. False if none runs.
///
/// Not a fast stop: its checkpoint would write files that are deleted, and it waits for the standbys and subscribers of a cluster, which are stopped
/// at the same time.
pub(crate) fn stop_for_good(data_dir: &Path) -> Result<bool, LocalError> {
    // The folder is the one of now: while a server stops, its owner may give it another name, and that is not the server's end.
    let Some(place) = Workplace::of(data_dir) else { return Ok(false) };
    let Some(postmaster) = process::postmaster_in(data_dir) else { return Ok(false) };
    let first = process::Handle::of(postmaster);
    for signal in [rustix::process::Signal::QUIT, rustix::process::Signal::KILL] {
        // The children of a killed postmaster follow by themselves, unless they are stopped (SIGSTOP).
        let force = signal == rustix::process::Signal::KILL;
        let pids = if force { place.servers(data_dir) } else { vec![postmaster] };
        if !process::is_ours(place.owner()) {
            let problem = format!("it belongs to user {}", place.owner());
            return Err(LocalError::OfOther { path: data_dir.to_owned(), problem });
        }
        let send = |pid: u32| place.signal(pid, signal);
        pids.into_iter().try_for_each(send).map_err(LocalError::io("signal the server in", data_dir))?;
        let has_ended = || first.has_ended() && place.servers(data_dir).is_empty();
        if poll::until(STOP_TIMEOUT, || has_ended().then_some(())).is_some() {
            return Ok(true);
        }
    }
    Err(LocalError::NotStopped {
        data_dir: data_dir.to_owned(),
        pid: postmaster,
        waited_s: 2 * STOP_TIMEOUT.as_secs(),
    })
}

/// Starts stopped servers again, in parallel: the time of the slowest, and how to reach each. Errors name the server if there are others.
pub(super) fn start_all_again(stopped: &[Server], has_others: bool) -> Result<(f64, Vec<Peer>), LocalError> {
    let started = topology::at_once(stopped.len(), |number| {
        let mut server = stopped[number].clone();
        let start_s = server.start_again();
        let start_s = start_s.map_err(|error| if has_others { error.on(&server.name) } else { error })?;
        Ok((start_s, server.peer()))
    })?;
    let (times, peers): (Vec<f64>, Vec<Peer>) = started.into_iter().unzip();
    Ok((times.into_iter().fold(0.0, f64::max), peers))
}
