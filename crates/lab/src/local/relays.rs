//! The relays that make the distances of a cluster: a program of their own, in the folder `relays` of the cluster, so they outlive `up`.
//!
//! Each listens under a port of the cluster's own, next to the servers: `.s.PGSQL.PORT` in the folder of the sockets, or 127.0.0.1:PORT.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use connect::conninfo::{ConnSpec, HostSpec};
use connect::poll;

use super::folder::{make_dir_as, text_of, write_as};
use super::job::Job;
use super::process::{self, log_tail};
use super::{LocalError, distance};
use crate::relay::{Limits, Listen, NoTap, Relay, Upstream};

/// The relays' folder in that of the cluster.
const FOLDER: &str = "relays";
/// What they do, in that folder.
const FILE: &str = "relays.tsv";
/// How long the relays may take until all of them listen.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Their behaviour never changes, so an idle connection rests. The window lets 640 MB each second pass over 50 ms.
const LIMITS: Limits = Limits { tick: Duration::from_secs(1), window_bytes: 32 << 20 };

/// One relay of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    /// Who is far away: a node, the client, or `*` for every node.
    pub(super) from: String,
    /// The node that it leads to.
    pub(super) to: String,
    pub(super) listen: PathBuf,
    pub(super) upstream: PathBuf,
    pub(super) one_way: Duration,
}

/// The program with the relays of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Relays {
    dir: PathBuf,
}

impl Relays {
    pub(super) fn of(cluster: &Path) -> Relays {
        Relays { dir: cluster.join(FOLDER) }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.dir
    }

    fn file(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Only as far as the file is ours or the server's user's.
    pub(super) fn exist(&self) -> bool {
        let is_ours = |path: &Path, is_kind: fn(&fs::Metadata) -> bool| {
            fs::symlink_metadata(path).is_ok_and(|there| is_kind(&there) && process::is_ours(there.uid()))
        };
        is_ours(&self.dir, fs::Metadata::is_dir) && is_ours(&self.file(), fs::Metadata::is_file)
    }

    fn job(&self, program: Option<PathBuf>) -> Job {
        Job::relays(&self.dir, FILE, program)
    }

    /// Writes what they do and starts them; returns when all of them listen.
    pub(super) fn make(&self, lines: &[Line], program: &Path) -> Result<(), LocalError> {
        let user = process::server_user()?;
        if !self.exist() {
            make_dir_as(&self.dir, user.as_ref())?;
        }
        let mut text = String::new();
        for line in lines {
            text.push_str(&format!(
                "{}\t{}\t{}\t{}\t{}\n",
                line.from,
                line.to,
                line.listen.display(),
                line.upstream.display(),
                line.one_way.as_nanos()
            ));
        }
        let file = self.file();
        write_as(&file, text.as_bytes(), user.as_ref())?;
        self.start(program)
    }

    /// Starts them, unless they run. They run as the server's user: that user may change their file, and gains no other rights by it.
    pub(super) fn start(&self, program: &Path) -> Result<(), LocalError> {
        let job = self.job(Some(program.to_owned()));
        let user = process::server_user()?;
        job.start(user.as_ref())?;
        let file = self.file();
        let text = text_of(&file).map_err(LocalError::io("read", &file))?;
        let lines = read(&text, &file)?;
        let all_listen = || lines.iter().all(|line| address(&line.listen).is_up());
        let ready = poll::until(READY_TIMEOUT, || match (all_listen(), job.is_up()) {
            (true, _) => Some(true),
            (false, false) => Some(false),
            (false, true) => None,
        });
        if ready == Some(true) {
            return Ok(());
        }
        let output = log_tail(&job.log(), user.as_ref());
        let _ = self.kill();
        Err(LocalError::Program {
            program: "the program with the relays of --delay".to_owned(),
            status: "it does not listen".to_owned(),
            output,
        })
    }

    pub(super) fn are_up(&self) -> bool {
        self.job(None).is_up()
    }

    /// Ends them and removes their sockets.
    pub(super) fn kill(&self) -> Result<(), LocalError> {
        self.job(None).kill()?;
        if !self.exist() {
            return Ok(());
        }
        let (user, file) = (process::server_user()?, self.file());
        let lines = text_of(&file).ok().and_then(|text| read(&text, &file).ok()).unwrap_or_default();
        // The server's user may have changed the file.
        process::with_files_of(user.as_ref(), || {
            for line in lines {
                if fs::symlink_metadata(&line.listen).is_ok_and(|there| there.file_type().is_socket()) {
                    let _ = fs::remove_file(&line.listen);
                }
            }
        });
        Ok(())
    }
}

/// An address of the file: the path of a socket, or a port of 127.0.0.1.
enum Address {
    Socket(PathBuf),
    Port(u16),
}

impl Address {
    fn is_up(&self) -> bool {
        match self {
            Address::Socket(path) => std::os::unix::net::UnixStream::connect(path).is_ok(),
            Address::Port(port) => std::net::TcpStream::connect(("127.0.0.1", *port)).is_ok(),
        }
    }

    /// As a client connects to it.
    fn host(&self) -> Option<HostSpec> {
        match self {
            Address::Port(port) => Some(HostSpec::new("127.0.0.1", *port)),
            Address::Socket(path) => {
                let port = path.extension()?.to_str()?.parse().ok()?;
                Some(HostSpec::new(path.parent()?.to_str()?, port))
            }
        }
    }
}

/// How the nodes of a cluster with distances reach each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeWays {
    lines: Vec<Line>,
}

impl NodeWays {
    /// Those of the cluster in this folder; none if it has no distances.
    ///
    /// # Errors
    /// When the file of its relays cannot be read.
    pub fn of(dir: &Path) -> Result<NodeWays, LocalError> {
        let file = Relays::of(dir).file();
        let text = match text_of(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(NodeWays::default()),
            text => text.map_err(LocalError::io("read", &file))?,
        };
        Ok(NodeWays { lines: read(&text, &file)? })
    }

    /// How `from` reaches `to`, of which `spec` is the way of clients: through the relay between them, else directly. `None` if nothing is in between for
    /// anyone.
    pub fn between(&self, from: &str, to: &str, spec: &ConnSpec) -> Option<ConnSpec> {
        let leading: Vec<&Line> = self.lines.iter().filter(|line| line.to == to).collect();
        let way = distance::for_end(from, leading.iter().copied(), |line: &&Line| &line.from);
        let place = match way {
            Some(line) => &line.listen,
            None => &leading.first()?.upstream,
        };
        Some(ConnSpec { hosts: vec![address(place).host()?], ..spec.clone() })
    }
}

fn address(path: &Path) -> Address {
    match path.to_str().and_then(|text| text.parse().ok()) {
        Some(port) => Address::Port(port),
        None => Address::Socket(path.to_owned()),
    }
}

fn read(text: &str, file: &Path) -> Result<Vec<Line>, LocalError> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [from, to, listen, upstream, nanos] = fields[..] else { return None };
        let one_way = Duration::from_nanos(nanos.parse().ok()?);
        let [from, to] = [from, to].map(str::to_owned);
        Some(Line { from, to, listen: listen.into(), upstream: upstream.into(), one_way })
    };
    let lines: Option<Vec<Line>> = text.lines().map(line).collect();
    lines.ok_or_else(|| LocalError::Topology {
        problem: format!("{} is not a file of relays", file.display()),
        hint: "pgfathom up --delay writes it".to_owned(),
    })
}

/// Runs the relays of a file until `is_over`.
///
/// # Errors
/// When the file cannot be read, or a relay cannot listen.
pub fn serve_relays(file: &Path, is_over: impl Fn() -> bool) -> Result<(), LocalError> {
    /// How often the end is looked for.
    const PAUSE: Duration = Duration::from_millis(200);
    let text = text_of(file).map_err(LocalError::io("read", file))?;
    let mut relays = Vec::new();
    for line in read(&text, file)? {
        let listen = match address(&line.listen) {
            Address::Socket(path) => Listen::Socket(path),
            Address::Port(port) => Listen::Port(port),
        };
        let upstream = match address(&line.upstream) {
            Address::Socket(path) => Upstream::Unix(path),
            Address::Port(port) => Upstream::Tcp(vec![([127, 0, 0, 1], port).into()]),
        };
        let relay = Relay::start(&listen, upstream, LIMITS, || Box::new(NoTap))
            .map_err(LocalError::io("listen on", &line.listen))?;
        relay.change(|behaviour| {
            behaviour.to_server.delay = line.one_way;
            behaviour.to_client.delay = line.one_way;
        });
        relays.push(relay);
    }
    while !is_over() {
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_relays_is_read_as_it_was_written() {
        let file = Path::new("relays.tsv");
        let lines = read("n2\tn1\t/run/.s.PGSQL.7\t/run/.s.PGSQL.5\t500000\n*\tn1\t7\t5\t1\n", file).unwrap();
        assert_eq!((lines[0].from.as_str(), lines[0].one_way), ("n2", Duration::from_micros(500)));
        assert_eq!(lines[1].listen, Path::new("7"));
        assert!(read("a\tb\t7\t5\n", file).is_err() && read("a\tb\t7\t5\tx\n", file).is_err());
        assert_eq!(address(&lines[0].listen).host(), Some(HostSpec::new("/run", 7)));
        assert_eq!(address(&lines[1].listen).host(), Some(HostSpec::new("127.0.0.1", 7)));
    }
}
