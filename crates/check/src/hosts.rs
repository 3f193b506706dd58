//! Which hosts are checked: host files as gpssh and gpcheckperf read them, `[user@]host[:port] [address=ADDRESS] [disk=DIR]...`.

use std::path::{Path, PathBuf};

/// Hosts of one list at most: a range with a typing mistake must not become a million connections.
const HOSTS_MAX: usize = 4096;

/// A host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// Its name, without user and port.
    pub name: String,
    /// User and host, as ssh takes them.
    pub destination: String,
    /// The port of its ssh server, if it is not the configured one.
    pub port: Option<u16>,
    /// The address that the other hosts use for measuring the network; its name, unless given.
    pub address: String,
    /// Directories to measure on this host in addition to those of every host.
    pub disks: Vec<String>,
    /// It is the host that runs this: no ssh.
    pub is_local: bool,
}

impl Host {
    /// The host that runs this.
    pub fn local(name: &str) -> Host {
        Host {
            name: name.to_string(),
            destination: name.to_string(),
            address: name.to_string(),
            is_local: true,
            ..Host::default()
        }
    }

    /// What a user types to see whether ssh reaches it.
    pub(crate) fn ssh_command(&self) -> String {
        let port = self.port.map(|port| format!("-p {port} ")).unwrap_or_default();
        format!("$ ssh {port}{} true", self.destination)
    }
}

/// Why a list of hosts was not understood.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The file cannot be read.
    #[error("cannot read the host file {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A host is not understood.
    #[error("{place}{text:?}: {why}")]
    Bad {
        /// `FILE line N: `, or empty for a flag.
        place: String,
        /// What was given.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A host is named twice.
    #[error("the host {name} is named twice")]
    Twice {
        /// Its name.
        name: String,
    },
    /// There is none.
    #[error("the host file {path} names no host")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

impl HostsError {
    /// What the user can type next.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            HostsError::Io { .. } => "name a file with one host a line, as gpssh -f takes it".to_string(),
            HostsError::Bad { .. } => {
                "write [user@]host[:port] [address=ADDRESS] [disk=DIR], one host a line; ranges as sdw[1-4] or sdw[01-16,20]".to_string()
            }
            HostsError::Twice { .. } => "name each host once; a second network of it is checked with address=".to_string(),
            HostsError::Empty { .. } => "write one host a line: [user@]host[:port]; # begins a comment".to_string(),
        })
    }
}

/// Reads a host file.
///
/// # Errors
/// When the file cannot be read, names no host, or a line is not understood.
pub fn read(path: &Path) -> Result<Vec<Host>, HostsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| HostsError::Io { path: path.to_path_buf(), source })?;
    let hosts = parse(&text, &path.display().to_string())?;
    if hosts.is_empty() {
        return Err(HostsError::Empty { path: path.to_path_buf() });
    }
    Ok(hosts)
}

/// The hosts of a file's text; `name` is the file's name in messages.
///
/// # Errors
/// When a line is not understood.
pub fn parse(text: &str, name: &str) -> Result<Vec<Host>, HostsError> {
    let mut hosts = vec![];
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            one(line, &format!("{name} line {}: ", at + 1), &mut hosts)?;
        }
    }
    unique(hosts)
}

/// The hosts of `--host`: a host or a range, each as a line of a host file.
///
/// # Errors
/// When one is not understood.
pub fn named(texts: &[String]) -> Result<Vec<Host>, HostsError> {
    let mut hosts = vec![];
    for text in texts {
        one(text.trim(), "", &mut hosts)?;
    }
    unique(hosts)
}

/// Refuses a host that is named twice: its disks would be measured against themselves.
///
/// # Errors
/// When one is.
pub fn unique(hosts: Vec<Host>) -> Result<Vec<Host>, HostsError> {
    let mut names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(HostsError::Twice { name: pair[0].to_string() });
    }
    // This host has several names: localhost, 127.0.0.1, ::1.
    if let Some(again) = hosts.iter().filter(|host| host.is_local).nth(1) {
        return Err(HostsError::Twice { name: again.name.clone() });
    }
    Ok(hosts)
}

fn one(line: &str, place: &str, hosts: &mut Vec<Host>) -> Result<(), HostsError> {
    let bad = |why| HostsError::Bad { place: place.to_string(), text: line.to_string(), why };
    let mut words = line.split_whitespace();
    let target = words.next().ok_or_else(|| bad("there is no host"))?;
    let (mut address, mut disks) = (None, vec![]);
    for word in words {
        match word.split_once('=') {
            Some(("address", value)) if !value.is_empty() => address = Some(value.to_string()),
            Some(("disk", value)) if value.starts_with('/') => disks.push(value.to_string()),
            Some(("disk", _)) => return Err(bad("a disk is an absolute directory")),
            _ => return Err(bad("only address=ADDRESS and disk=DIR may follow the host")),
        }
    }
    // ssh takes a word that begins with a minus for an option; everything else here is a name or an address.
    let is_plain = |text: &str| {
        !text.starts_with('-') && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-:%".contains(c))
    };
    if !address.as_deref().is_none_or(is_plain) {
        return Err(bad("an address has letters, digits, dots, colons, minus and underscores"));
    }
    let (user, rest) = match target.rsplit_once('@') {
        Some(("", _)) => return Err(bad("the user before @ is empty")),
        Some((user, rest)) => (Some(user), rest),
        None => (None, target),
    };
    let (pattern, port) = host_and_port(rest).map_err(&bad)?;
    let names = expanded(pattern).map_err(&bad)?;
    if address.is_some() && names.len() > 1 {
        return Err(bad("a range of hosts cannot have one address"));
    }
    for name in names {
        if !is_plain(&name) || name.is_empty() || !user.is_none_or(is_plain) {
            return Err(bad("a host or user has letters, digits, dots, minus and underscores"));
        }
        let destination = user.map_or_else(|| name.clone(), |user| format!("{user}@{name}"));
        let address = address.clone().unwrap_or_else(|| name.clone());
        // The name itself stays on this host; another user there needs ssh.
        let is_local =
            user.is_none() && port.is_none() && matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1");
        hosts.push(Host { name, destination, port, address, disks: disks.clone(), is_local });
        if hosts.len() > HOSTS_MAX {
            return Err(bad("these are too many hosts"));
        }
    }
    Ok(())
}

/// Splits `host:port`; an IPv6 address with a port is in brackets.
fn host_and_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    const BAD_PORT: &str = "the port after : is no number from 1 to 65535";
    let port = |text: &str| text.parse().ok().filter(|port| *port > 0).map(Some).ok_or(BAD_PORT);
    if let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        && address.contains(':')
    {
        return match rest.strip_prefix(':') {
            Some(rest) => Ok((address, port(rest)?)),
            None if rest.is_empty() => Ok((address, None)),
            None => Err("only :PORT may follow the address in brackets"),
        };
    }
    match text.split_once(':') {
        // More than one colon: an IPv6 address.
        Some((_, rest)) if rest.contains(':') => Ok((text, None)),
        Some((host, rest)) => Ok((host, port(rest)?)),
        None => Ok((text, None)),
    }
}

/// `sdw[1-3,07]-a` is `sdw1-a`, `sdw2-a`, `sdw3-a`, `sdw07-a`; numbers keep the width of their first one.
fn expanded(pattern: &str) -> Result<Vec<String>, &'static str> {
    const BAD: &str = "a range is [FROM-TO] or [N,FROM-TO], of numbers";
    let Some((before, rest)) = pattern.split_once('[') else {
        return if pattern.contains(']') { Err(BAD) } else { Ok(vec![pattern.to_string()]) };
    };
    let (list, after) = rest.split_once(']').ok_or(BAD)?;
    let ends = expanded(after)?;
    let mut names = vec![];
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u32>().map_err(|_| BAD);
        let (first, last) = (number(from)?, number(to)?);
        if first > last || (last - first) as usize >= HOSTS_MAX {
            return Err("a range goes up, to at most some thousand hosts");
        }
        for value in first..=last {
            names.extend(ends.iter().map(|end| format!("{before}{value:0width$}{end}", width = from.len())));
        }
        if names.len() > HOSTS_MAX {
            return Err("these are too many hosts");
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_try_has_the_user_and_the_port() {
        let command = |line: &str| named(&[line.to_string()]).expect("a host")[0].ssh_command();
        assert_eq!(command("db1"), "$ ssh db1 true");
        assert_eq!(command("admin@db1:2222"), "$ ssh -p 2222 admin@db1 true");
        assert_eq!(command("admin@[fd00::1]:22"), "$ ssh -p 22 admin@fd00::1 true");
    }

    fn names(hosts: &[Host]) -> Vec<&str> {
        hosts.iter().map(|host| host.name.as_str()).collect()
    }

    #[test]
    fn a_file_of_gpssh_works_unchanged() {
        let text = "# segments\nsdw1\n\ngpadmin@sdw2:2222   # the second\nsdw[3-5]\nroot@dn[08-10].example disk=/data1 disk=/data2\n\
                    db9 address=10.0.0.9\n[fe80::1]:22\nfe80::2\n";
        let hosts = parse(text, "hosts").expect("hosts");
        let expected = [
            "sdw1",
            "sdw2",
            "sdw3",
            "sdw4",
            "sdw5",
            "dn08.example",
            "dn09.example",
            "dn10.example",
            "db9",
            "fe80::1",
            "fe80::2",
        ];
        assert_eq!(names(&hosts), expected);
        assert_eq!((hosts[1].destination.as_str(), hosts[1].port), ("gpadmin@sdw2", Some(2222)));
        assert_eq!(hosts[7].destination, "root@dn10.example");
        assert_eq!(hosts[6].disks, ["/data1", "/data2"]);
        assert_eq!((hosts[8].address.as_str(), hosts[0].address.as_str()), ("10.0.0.9", "sdw1"));
        assert_eq!((hosts[9].port, hosts[10].port), (Some(22), None));
        assert!(hosts.iter().all(|host| !host.is_local));
        assert!(named(&["localhost".to_string()]).expect("this host")[0].is_local);
        assert!(!named(&["root@localhost".to_string()]).expect("by ssh")[0].is_local);
    }

    #[test]
    fn mistakes_are_refused_with_their_line() {
        let error = |text: &str| parse(text, "hosts").expect_err(text).to_string();
        assert_eq!(
            error("a\nb c"),
            "hosts line 2: \"b c\": only address=ADDRESS and disk=DIR may follow the host"
        );
        for text in [
            "-oProxyCommand=x",
            "a:0",
            "a:70000",
            "a[1",
            "a1]",
            "a[3-1]",
            "a[1-99999]",
            "a[x]",
            "@a",
            "u;x@a",
            "a disk=x",
            "a$(b)",
            "a[1-2] address=10.0.0.1",
            "a address=$(reboot)",
            "a address=-oProxyCommand=x",
            "a b",
            "u@-oProxyCommand=x",
            "-u@a",
            "a[0-999][0-999]",
        ] {
            assert!(error(text).starts_with("hosts line 1: "), "{text}");
        }
        assert_eq!(error("a\na"), "the host a is named twice");
        assert_eq!(error("a\nroot@a:22"), "the host a is named twice");
        assert_eq!(error("localhost\n127.0.0.1"), "the host 127.0.0.1 is named twice");
        assert!(matches!(read(Path::new("/nowhere")), Err(HostsError::Io { .. })));
    }
}
