//! The poolers of this host that have a node among their databases: from their processes, and the file that each was started with.

use super::outside::Entrance;
use connect::ConnSpec;
use connect::conninfo::HostSpec;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of the process.
const PROGRAM: &str = "pgbouncer";
/// Its port, and the folder of its socket, where the file names none.
const PORT: u16 = 6432;
const FOLDER: &str = "/tmp";
/// Connections of a pool, where the file names none (`default_pool_size`).
const POOL_SIZE: u64 = 20;
/// The port of its servers, where an entry names none.
const SERVER_PORT: u16 = 5432;
/// Any user of this host may start a process of that name with any file.
const INI_BYTES_MAX: u64 = 1 << 20;
/// A role that its console admits over the socket without a password, if it comes from the same user of the system.
const OWNER: &str = "pgbouncer";

/// What is needed of pgbouncer.ini.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Ini {
    port: u16,
    /// The folder of its socket; empty if it has none.
    folder: String,
    /// The ports of the servers of its databases.
    servers: Vec<u16>,
    /// `default_pool_size`.
    size: u64,
    /// `max_client_conn`.
    clients_max: Option<u64>,
    /// `logfile`.
    log: String,
}

impl Ini {
    fn of(text: &str) -> Ini {
        let mut ini = Ini {
            port: PORT,
            folder: FOLDER.to_string(),
            servers: vec![],
            size: POOL_SIZE,
            clients_max: None,
            log: String::new(),
        };
        let mut section = "";
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with([';', '#'])) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name;
            }
            let Some((name, value)) = line.split_once('=') else { continue };
            let (name, value) = (name.trim(), value.trim());
            match (section, name) {
                ("databases", _) => ini.servers.push(port_of(value)),
                (_, "listen_port") => ini.port = value.parse().unwrap_or(PORT),
                (_, "unix_socket_dir") => ini.folder = value.to_string(),
                (_, "default_pool_size") => ini.size = value.parse().unwrap_or(POOL_SIZE),
                (_, "max_client_conn") => ini.clients_max = value.parse().ok(),
                (_, "logfile") => ini.log = value.to_string(),
                _ => {}
            }
        }
        ini
    }
}

/// The port in the description of a database: `host=/run port=5433 dbname=x`.
fn port_of(described: &str) -> u16 {
    let spaced = described.replace(" =", "=").replace("= ", "=");
    let port = spaced.split_whitespace().find_map(|word| word.strip_prefix("port="));
    port.and_then(|port| port.trim_matches('\'').parse().ok()).unwrap_or(SERVER_PORT)
}

/// Users below this number are accounts of the system, which no one logs in as (UID_MIN of login.defs).
const PEOPLE_FROM_UID: u32 = 1000;

/// A pooler of this host whose databases are on the server.
#[derive(Debug)]
pub(super) struct Here {
    /// The ways to its console, for our role first.
    pub(super) ways: Vec<ConnSpec>,
    /// Why it is not taken for one before it is named: any user of this host may start a process of this name, with a console that forges what it shows.
    pub(super) distrusted: Option<String>,
    /// What is visible of it without its console; `None` if its clients may be those of other servers.
    pub(super) entrance: Option<Entrance>,
}

/// The poolers whose databases are on the server at `port` of this host; its own user is that of the server's data.
pub(super) fn here(spec: &ConnSpec, port: u16, data: Option<&Path>) -> Vec<Here> {
    let Ok(all) = fs::read_dir("/proc") else { return vec![] };
    let is_pooler = |folder: &PathBuf| {
        fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.trim_end() == PROGRAM)
    };
    let owner_of = |path: &Path| fs::metadata(path).map(|there| there.uid()).ok();
    let (ours, server) = (rustix::process::geteuid().as_raw(), data.and_then(owner_of));
    let processes = all.flatten().map(|entry| entry.path()).filter(is_pooler);
    let mut found = vec![];
    for process in processes {
        let Some(ini) = ini_of(&process).filter(|ini| ini.servers.contains(&port)) else { continue };
        let Some(owner) = owner_of(&process) else { continue };
        let socket = format!("{}/.s.PGSQL.{}", ini.folder, ini.port);
        let has_socket = !ini.folder.is_empty() && Path::new(&socket).exists();
        let host = if has_socket { ini.folder.as_str() } else { "127.0.0.1" };
        let mut place = spec.clone().with_dbname(super::CONSOLE);
        // Whatever role runs it, the password is not for it.
        place.password = None;
        place.hosts = vec![HostSpec::new(host, ini.port)];
        let mut ways = vec![place.clone()];
        if owner == ours {
            ways.push(place.with_user(OWNER));
        }
        let is_only = ini.servers.iter().all(|other| *other == port);
        let entrance = is_only.then(|| Entrance {
            port: ini.port,
            socket: if has_socket { socket } else { String::new() },
            size: ini.size,
            clients_max: ini.clients_max,
            log: ini.log,
        });
        found.push(Here { ways, distrusted: distrusted(owner, ours, server), entrance });
    }
    found
}

/// Why a process of this user is not taken for a pooler, by our user and that of the server.
fn distrusted(owner: u32, ours: u32, server: Option<u32>) -> Option<String> {
    let is_known = owner == ours || server == Some(owner) || owner < PEOPLE_FROM_UID;
    (!is_known).then(|| {
        format!(
            "its process belongs to user {owner}, which is neither ours nor the server's nor an account of the system"
        )
    })
}

/// The file that a process was started with, if we may read it.
fn ini_of(process: &Path) -> Option<Ini> {
    let line = fs::read(process.join("cmdline")).ok()?;
    let words: Vec<String> =
        line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let path = named_file(&words)?;
    let folder = fs::read_link(process.join("cwd")).unwrap_or_default();
    Some(Ini::of(&crate::guarded::text(&folder.join(path), INI_BYTES_MAX).ok()?))
}

/// The file in a command line: the first word that is neither an option nor the value of one (`-u USER`).
fn named_file(words: &[String]) -> Option<&String> {
    let mut before = "";
    words.iter().skip(1).filter(|word| !word.is_empty()).find(|word| {
        let is_value = ["-u", "--user"].contains(&before);
        before = word.as_str();
        !is_value && !word.starts_with('-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooler_of_another_person_is_not_taken_for_one() {
        for (owner, ours, server) in [(0, 0, None), (110, 0, None), (1003, 1003, None), (1004, 0, Some(1004))]
        {
            assert_eq!(distrusted(owner, ours, server), None, "{owner}");
        }
        for (owner, ours, server) in [(1003, 0, None), (1003, 1000, Some(1004)), (65_534, 0, Some(110))] {
            assert!(
                distrusted(owner, ours, server).is_some_and(|why| why.contains("belongs to user")),
                "{owner}"
            );
        }
    }

    #[test]
    fn the_user_of_a_pooler_is_not_its_file() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            named_file(&words).cloned().unwrap_or_default()
        };
        for line in [
            "pgbouncer /etc/b.ini",
            "pgbouncer -d -u pooler /etc/b.ini",
            "pgbouncer --user=pooler -R /etc/b.ini",
        ] {
            assert_eq!(of(line), "/etc/b.ini", "{line}");
        }
        assert_eq!(of("pgbouncer -V"), "");
    }

    #[test]
    fn the_file_of_a_pooler_names_its_socket_and_its_servers() {
        let ini = Ini::of(
            "; comment\n[databases]\ncart = host=/run/pg port=6100\nother = host=10.0.0.2\n[pgbouncer]\nlisten_port = 6110\n\
             unix_socket_dir=/run/pg\n;listen_port=1\ndefault_pool_size = 2\nmax_client_conn=500\nlogfile = /var/log/b.log\n",
        );
        assert_eq!(
            (ini.port, ini.folder.as_str(), ini.servers.as_slice()),
            (6110, "/run/pg", &[6100, 5432][..])
        );
        assert_eq!((ini.size, ini.clients_max, ini.log.as_str()), (2, Some(500), "/var/log/b.log"));
        let bare = Ini::of("[databases]\n* = port = 5433");
        assert_eq!((bare.port, bare.folder.as_str(), bare.servers.as_slice()), (6432, "/tmp", &[5433][..]));
        assert_eq!((bare.size, bare.clients_max, bare.log.as_str()), (20, None, ""));
    }
}
