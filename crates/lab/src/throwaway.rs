//! A throwaway PostgreSQL server for tests and for the demo; dropping the value removes it.
//!
//! It listens on a Unix socket in a folder that only the server's user (and root) may enter, so `trust` is safe, and
//! it is not durable (`fsync=off`). It ends when the value is dropped, and also when our process dies in any way; then the next start
//! on this host removes its folder.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

mod cluster;

pub use cluster::ThrowawayCluster;

use crate::local::LocalError;
use crate::local::folder::{text_of, write_as};
use crate::local::process::{self, Lifetime};
use crate::local::seed;
pub use crate::local::{Installation, Instance, StopMode};
use connect::os_user::OsUser;
use connect::{ConnSpec, conninfo, poll};

/// The superuser and database of every throwaway cluster.
pub const SUPERUSER: &str = "postgres";
/// Folder names begin with this.
const DIR_PREFIX: &str = "pgfathom-t-";
/// An environment variable: the file for the major version of every started server.
const SERVERS: &str = "PGFATHOM_TEST_SERVERS";
/// An environment variable: the releases for tests, as major versions separated by blanks. Missing ones are ignored; without any of them, or without
/// the variable, all installed ones are used.
const RELEASES: &str = "PGFATHOM_TEST_POSTGRES";
/// The time limit for a start, including crash recovery on a loaded host.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The time limit for a stop, including a checkpoint on a loaded host.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);
/// The time limit for an immediate stop, before the postmaster is killed.
const DROP_TIMEOUT: Duration = Duration::from_secs(10);
/// After a SIGKILL of the postmaster its children need a moment to notice.
const ORPHANS_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of attempts with another free TCP port.
const PORT_TRIES: u32 = 10;
/// The least age at which a folder without an owner is removed: a younger one may be about to be locked.
const ORPHAN_AGE: Duration = Duration::from_secs(5);
/// The longest temporary folder that leaves room for a socket path.
const TEMP_DIR_BYTES_MAX: usize = 50;

/// Every PostgreSQL of this host that tests use, newest first.
pub fn installations() -> Vec<Installation> {
    let all = crate::local::installations();
    let wanted = std::env::var(RELEASES).unwrap_or_default();
    let is_wanted =
        |one: &&Installation| wanted.split(' ').any(|major| major == one.version.major.to_string());
    let chosen: Vec<Installation> = all.iter().filter(is_wanted).cloned().collect();
    if chosen.is_empty() { all } else { chosen }
}

/// How to make one.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Lines for `postgresql.conf`, after our own.
    pub settings: Vec<(String, String)>,
    /// Further arguments for initdb, for example `--data-checksums`.
    pub initdb: Vec<String>,
    /// Listen on a free port of 127.0.0.1 as well.
    pub tcp: bool,
    /// Replaces `pg_hba.conf`.
    pub hba: Option<String>,
    /// Files to write into the data directory before the start (name, content), mode 0600.
    pub files: Vec<(String, Vec<u8>)>,
    /// An empty folder that becomes the data directory, for example a separate file system; the caller removes it. By default one is made.
    pub data_dir: Option<PathBuf>,
}

impl Options {
    /// Starts a cluster made this way.
    pub fn start(&self, installation: &Installation) -> Result<Throwaway, LocalError> {
        Throwaway::with_options(installation, self)
    }
}

/// A running (or stopped) throwaway cluster.
#[derive(Debug)]
pub struct Throwaway {
    installation: Installation,
    base: PathBuf,
    data_dir: PathBuf,
    port: u16,
    user: Option<OsUser>,
    child: Option<Child>,
    /// Locked as long as this process runs; dropped last.
    _lock: File,
}

impl Throwaway {
    /// Makes and starts a cluster; `settings` go to `postgresql.conf`.
    pub fn start(installation: &Installation, settings: &[(&str, &str)]) -> Result<Throwaway, LocalError> {
        let settings = settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Options { settings, ..Options::default() }.start(installation)
    }

    fn with_options(installation: &Installation, options: &Options) -> Result<Throwaway, LocalError> {
        let user = process::server_user()?;
        static SWEEP: Once = Once::new();
        SWEEP.call_once(|| {
            sweep(&temp_dir(), user.as_ref());
        });
        let (base, lock) = make_base(user.as_ref())?;
        let data_dir = options.data_dir.clone().unwrap_or_else(|| base.join("data"));
        if let (Some(dir), Some(user)) = (&options.data_dir, &user) {
            process::give(dir, user)?;
        }
        let mut cluster = Throwaway {
            installation: installation.clone(),
            base,
            data_dir,
            port: conninfo::PORT_DEFAULT,
            user,
            child: None,
            _lock: lock,
        };
        cluster.initdb(options)?;
        let mut tries = 0;
        loop {
            if options.tcp {
                cluster.port = free_port()?;
            }
            cluster.write_settings(options)?;
            match cluster.start_again() {
                // Another program took the port between our check and the server's start.
                Err(LocalError::Start { log, .. })
                    if options.tcp && tries < PORT_TRIES && log.contains("bind") =>
                {
                    tries += 1;
                }
                result => return result.map(|()| cluster),
            }
        }
    }

    /// An empty folder like this one's, for a copy.
    fn empty_neighbour(&self, data_dir: Option<&PathBuf>) -> Result<Throwaway, LocalError> {
        let (base, lock) = make_base(self.user.as_ref())?;
        if let (Some(dir), Some(user)) = (data_dir, &self.user) {
            process::give(dir, user)?;
        }
        Ok(Throwaway {
            installation: self.installation.clone(),
            data_dir: data_dir.cloned().unwrap_or_else(|| base.join("data")),
            base,
            port: conninfo::PORT_DEFAULT,
            user: self.user.clone(),
            child: None,
            _lock: lock,
        })
    }

    fn initdb(&self, options: &Options) -> Result<(), LocalError> {
        let mut command =
            process::command(&self.installation.program("initdb"), self.user.as_ref(), &self.base);
        command.arg("-D").arg(self.data_dir()).args(["-U", SUPERUSER, "-A", "trust", "-E", "UTF8"]);
        command.args(["--locale=C", "--no-sync"]).args(&options.initdb);
        seed::initdb(command, &self.data_dir, self.user.as_ref())?;
        let conf = self.data_dir().join("postgresql.conf");
        let text = process::with_files_of(self.user.as_ref(), || text_of(&conf));
        let text = text.map_err(LocalError::io("read", &conf))?;
        write_as(&conf.with_extension("conf.initdb"), text.as_bytes(), self.user.as_ref())?;
        for (name, content) in &options.files {
            self.write_file(name, content)?;
        }
        match &options.hba {
            Some(hba) => self.write_file("pg_hba.conf", hba.as_bytes()),
            None => Ok(()),
        }
    }

    /// Writes a file into the data directory as the server's own, mode 0600. A configuration file needs [`Throwaway::reload`] after.
    pub fn write_file(&self, name: &str, content: &[u8]) -> Result<(), LocalError> {
        write_as(&self.data_dir().join(name), content, self.user.as_ref())
    }

    /// Reloads the configuration of a running server.
    pub fn reload(&self) -> Result<(), LocalError> {
        self.signal(Signal::HUP)
    }

    fn write_settings(&self, options: &Options) -> Result<(), LocalError> {
        let base = self.data_dir().join("postgresql.conf.initdb");
        let mut text = process::with_files_of(self.user.as_ref(), || text_of(&base))
            .map_err(LocalError::io("read", &base))?;
        let ours = [
            ("listen_addresses", if options.tcp { "127.0.0.1" } else { "" }.to_owned()),
            ("port", self.port.to_string()),
            ("unix_socket_directories", self.base.display().to_string()),
            ("max_connections", "200".to_owned()),
            ("shared_buffers", "64MB".to_owned()),
            ("fsync", "off".to_owned()),
            ("full_page_writes", "off".to_owned()),
            ("max_wal_size", "1GB".to_owned()),
            ("log_line_prefix", "%m [%p] ".to_owned()),
        ];
        let theirs = options.settings.iter().map(|(n, v)| (n.as_str(), v.clone()));
        for (name, value) in ours.into_iter().chain(theirs) {
            text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        self.write_file("postgresql.conf", text.as_bytes())
    }

    /// Starts the server again after [`Throwaway::stop`] or [`Throwaway::kill9`]; waits until it accepts connections.
    pub fn start_again(&mut self) -> Result<(), LocalError> {
        // Some children of the killed postmaster have not ended yet.
        let has_orphans = |error: &LocalError| {
            let LocalError::Start { log, .. } = error else { return false };
            // They may write their last words behind those of this start.
            log.contains("pre-existing shared memory block")
        };
        poll::retry(ORPHANS_TIMEOUT, has_orphans, || {
            process::end_outlived(&self.data_dir())?;
            self.start_once()
        })
    }

    fn start_once(&mut self) -> Result<(), LocalError> {
        let (data_dir, log) = (self.data_dir(), self.log_path());
        let (child, launch) = process::spawn_postmaster(
            &self.installation,
            (&data_dir, None),
            &log,
            self.user.as_ref(),
            Lifetime::OurProcess,
        )?;
        let child = self.child.insert(child);
        launch.wait_ready(child, START_TIMEOUT)?;
        record_version(self.installation.version.major);
        Ok(())
    }

    /// Stops the server and waits for its end.
    pub fn stop(&mut self, mode: StopMode) -> Result<(), LocalError> {
        self.signal(mode.signal())?;
        self.await_end()
    }

    /// Kills the postmaster with SIGKILL, as the OOM killer would; its children then end by themselves. Waits for the postmaster's end.
    pub fn kill9(&mut self) -> Result<(), LocalError> {
        self.signal(Signal::KILL)?;
        self.await_end()
    }

    fn await_end(&mut self) -> Result<(), LocalError> {
        let data_dir = self.data_dir();
        if let Some(child) = &mut self.child {
            if !process::wait_ended(child, STOP_TIMEOUT) {
                return Err(LocalError::NotStopped {
                    data_dir,
                    pid: child.id(),
                    waited_s: STOP_TIMEOUT.as_secs(),
                });
            }
            self.child = None;
        }
        Ok(())
    }

    /// Sends a signal to the postmaster, if it runs.
    fn signal(&self, signal: Signal) -> Result<(), LocalError> {
        match &self.child {
            Some(child) => {
                process::send_signal(child.id(), signal).map_err(LocalError::io("signal", self.data_dir()))
            }
            None => Ok(()),
        }
    }

    /// How to connect: superuser `postgres`, database `postgres`, over the socket.
    pub fn spec(&self) -> ConnSpec {
        ConnSpec::unix(&self.base, self.port, SUPERUSER, SUPERUSER)
    }

    /// The same over TCP; only for a cluster made with [`Options::tcp`].
    pub fn spec_tcp(&self) -> ConnSpec {
        ConnSpec::new("127.0.0.1", self.port, SUPERUSER, SUPERUSER)
    }

    /// The binaries it was made from.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.data_dir.clone()
    }

    /// The server, for faults. A server started through it also ends with this value.
    pub fn instance(&self) -> Instance {
        Instance::of_throwaway(&self.installation, &self.data_dir, &self.log_path(), self.user.as_ref())
    }

    /// The folder of the socket.
    pub fn socket_dir(&self) -> &Path {
        &self.base
    }

    /// The port, also part of the socket's name.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The postmaster's process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The server log's path.
    pub fn log_path(&self) -> PathBuf {
        self.base.join("log")
    }

    /// The server log so far.
    pub fn log(&self) -> String {
        record::file::read(&self.log_path(), record::file::WHOLE_BYTES_MAX)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Runs SQL (several statements may be separated by semicolons) and returns all rows as text; NULL is `None`. For tests: a new connection
    /// each time, and errors are the library's.
    pub fn execute(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, postgres::Error> {
        self.execute_in(SUPERUSER, sql)
    }

    /// The same in another database.
    pub fn execute_in(&self, dbname: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>, postgres::Error> {
        let words = format!("host='{}' port={} user={SUPERUSER}", self.base.display(), self.port);
        let quoted = dbname.replace('\\', "\\\\").replace('\'', "\\'");
        let mut client = postgres::Client::connect(&format!("{words} dbname='{quoted}'"))?;
        let rows = client.simple_query(sql)?.into_iter().filter_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The single value that `sql` returns, as text. For tests.
    pub fn value(&self, sql: &str) -> Result<Option<String>, postgres::Error> {
        Ok(self.execute(sql)?.into_iter().next().and_then(|row| row.into_iter().next()).flatten())
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        // A failure cannot be reported here; the next throwaway server removes what remains.
        let _ = self.instance().resume();
        let _ = self.signal(Signal::QUIT);
        if let Some(child) = &mut self.child
            && !process::wait_ended(child, DROP_TIMEOUT)
        {
            let _ = child.kill();
            let _ = child.wait();
        }
        // A server started through an instance is not our child.
        let _ = crate::local::stop_for_good(&self.data_dir);
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// A short folder for temporary files: the system's, unless a socket path would not fit.
fn temp_dir() -> PathBuf {
    let dir = std::env::temp_dir();
    if dir.as_os_str().len() <= TEMP_DIR_BYTES_MAX { dir } else { PathBuf::from("/tmp") }
}

/// Makes the cluster's folder and locks it as long as this process runs.
fn make_base(user: Option<&OsUser>) -> Result<(PathBuf, File), LocalError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let temp = temp_dir();
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = temp.join(format!("{DIR_PREFIX}{}-{number}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&base) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(LocalError::io("create", base)(error)),
        }
        let path = base.join("lock");
        let lock = File::create(&path).map_err(LocalError::io("create", &path))?;
        lock.lock().map_err(LocalError::io("lock", &path))?;
        if let Some(user) = user {
            process::give(&base, user)?;
        }
        return Ok((base, lock));
    }
}

/// Whether this is the data directory of a throwaway cluster whose process lives: it is in a folder of our name, which that process has locked.
pub fn is_in_use(data_dir: &Path) -> bool {
    let Some(base) = data_dir.parent() else { return false };
    let is_named_so = base.file_name().is_some_and(|name| name.to_string_lossy().starts_with(DIR_PREFIX));
    let is_ours =
        fs::symlink_metadata(base).is_ok_and(|there| there.is_dir() && process::is_ours(there.uid()));
    is_named_so
        && is_ours
        && record::file::open(&base.join("lock")).is_ok_and(|lock| lock.try_lock().is_err())
}

/// Removes the folders of throwaway clusters whose process died without cleaning up; returns their number. The first start in a process does this, too.
pub fn remove_orphans() -> usize {
    process::server_user().map_or(0, |user| sweep(&temp_dir(), user.as_ref()))
}

/// Removes the remains of dead processes: our folders without a lock holder.
fn sweep(temp: &Path, user: Option<&OsUser>) -> usize {
    let mut removed = 0;
    let our_uid = user.map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid);
    for entry in fs::read_dir(temp).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let old = meta
            .modified()
            .is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age >= ORPHAN_AGE));
        let ours = entry.file_name().to_string_lossy().starts_with(DIR_PREFIX)
            && meta.is_dir()
            && meta.uid() == our_uid;
        if !(ours && old) {
            continue;
        }
        let held = record::file::open(&path.join("lock")).is_ok_and(|lock| lock.try_lock().is_err());
        // Its server has received the parent-death signal; while it is ending, its files must not be removed.
        if !held && process::servers_in(&path.join("data")).is_empty() && fs::remove_dir_all(&path).is_ok() {
            removed += 1;
        }
    }
    removed
}

/// Adds a line to the file in which `scripts/test` collects the releases that its suites really ran on.
fn record_version(major: u32) {
    let Some(path) = std::env::var_os(SERVERS) else { return };
    let file = File::options().create(true).append(true).open(path);
    // `scripts/test` fails a suite without its line.
    let _ = file.and_then(|mut file| file.write_all(format!("{major}\n").as_bytes()));
}

/// A TCP port of 127.0.0.1 that is free now.
fn free_port() -> Result<u16, LocalError> {
    std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(LocalError::io("bind a port of", "127.0.0.1"))
}
