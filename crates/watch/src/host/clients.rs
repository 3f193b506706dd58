//! Which processes of this host are clients of its servers: their sockets are connected to one.
//!
//! A driver or an application on the server's own host takes CPUs from it as any neighbour does, and yet it is part of the load. TCP connections are in
//! /proc/net/tcp; for unix sockets only the kernel's socket diagnosis (`sock_diag(7)`) knows who the peer is.

use super::files::Files;
use super::server::Server;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

/// Descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 1_024;
/// A part of the kernel's answer is not longer.
const PART_BYTES: usize = 32 << 10;
/// Parts of an answer: some hundred sockets each.
const PARTS_MAX: usize = 1_000;
/// `ESTABLISHED`, in /proc/net/tcp and in a request for sockets.
const ESTABLISHED: u32 = 1;

/// Sizes and numbers of `linux/netlink.h`, `linux/sock_diag.h` and `linux/unix_diag.h`.
mod kernel {
    pub(super) const HEADER_BYTES: usize = 16;
    pub(super) const BY_FAMILY: u16 = 20;
    /// NLM_F_REQUEST and NLM_F_DUMP.
    pub(super) const REQUEST_ALL: u16 = 0x301;
    pub(super) const ERROR: u16 = 2;
    pub(super) const DONE: u16 = 3;
    pub(super) const AF_UNIX: u8 = 1;
    /// The family and state, the inode and a cookie in front of the attributes.
    pub(super) const SOCKET_BYTES: usize = 16;
    /// UDIAG_SHOW_NAME and UDIAG_SHOW_PEER.
    pub(super) const NAME_AND_PEER: u32 = 0x5;
    pub(super) const NAME: u16 = 0;
    pub(super) const PEER: u16 = 2;
}

/// A connected unix socket.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Unix {
    /// The address that a server bound; empty at a client's end.
    name: String,
    /// The inode of the other end.
    peer: u64,
}

/// Where a server of this host listens.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Listening {
    port: u16,
    /// The path of its unix socket, if it has one.
    socket: Option<String>,
}

/// The sockets of clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    inodes: BTreeSet<u64>,
}

impl Clients {
    /// Reads the connections to the servers of this host. What cannot be read has no clients.
    pub(crate) fn read(files: &mut dyn Files, servers: &[Server]) -> Clients {
        let listening: Vec<Listening> =
            servers.iter().filter_map(|server| listening(files, server)).collect();
        let unix = if files.is_live() { unix_sockets() } else { vec![] };
        Clients::of(files, &listening, &unix)
    }

    fn of(files: &mut dyn Files, listening: &[Listening], unix: &[Unix]) -> Clients {
        let mut inodes = BTreeSet::new();
        for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let Ok(text) = files.text(path) else { continue };
            let connected = text.lines().filter_map(tcp);
            inodes.extend(
                connected
                    .filter(|(port, _)| listening.iter().any(|server| server.port == *port))
                    .map(|(_, inode)| inode),
            );
        }
        let is_server = |name: &str| listening.iter().any(|server| server.socket.as_deref() == Some(name));
        inodes.extend(unix.iter().filter(|socket| is_server(&socket.name)).map(|socket| socket.peer));
        Clients { inodes }
    }

    /// Whether a process has one of the sockets. Those of other users need root.
    pub(crate) fn has(&self, files: &mut dyn Files, pid: u32) -> bool {
        if self.inodes.is_empty() {
            return false;
        }
        let folder = format!("/proc/{pid}/fd");
        files.entries(&folder).iter().take(DESCRIPTORS_MAX).any(|descriptor| {
            let target = files.link(&format!("{folder}/{descriptor}"));
            let inode = target
                .as_deref()
                .and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            inode.is_some_and(|inode: u64| self.inodes.contains(&inode))
        })
    }
}

/// Port and socket of a server, from its postmaster.pid: the port is in line 4, and the socket's folder in line 5 (miscadmin.h).
fn listening(files: &mut dyn Files, server: &Server) -> Option<Listening> {
    let data = server.parts.iter().find(|part| part.what == "pgdata")?;
    let text = files.text(&format!("{}/postmaster.pid", data.path)).ok()?;
    let mut lines = text.lines().skip(3).map(str::trim);
    let port: u16 = lines.next()?.parse().ok()?;
    let folder = lines.next().filter(|folder| !folder.is_empty());
    Some(Listening { port, socket: folder.map(|folder| format!("{folder}/.s.PGSQL.{port}")) })
}

/// The remote port and the inode of a connection, from a line of /proc/net/tcp: `sl local remote state queues timer retransmits uid timeout inode`.
fn tcp(line: &str) -> Option<(u16, u64)> {
    let mut words = line.split_whitespace().skip(2);
    let (_, port) = words.next()?.rsplit_once(':')?;
    if u32::from_str_radix(words.next()?, 16).ok()? != ESTABLISHED {
        return None;
    }
    Some((u16::from_str_radix(port, 16).ok()?, words.nth(5)?.parse().ok()?))
}

/// All connected unix sockets of this host; empty if the kernel does not show them.
fn unix_sockets() -> Vec<Unix> {
    let request = || -> rustix::io::Result<OwnedFd> {
        let socket = net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        net::send(&socket, &request(), SendFlags::empty())?;
        Ok(socket)
    };
    let Ok(socket) = request() else { return vec![] };
    let (mut found, mut part) = (vec![], vec![0; PART_BYTES]);
    for _ in 0..PARTS_MAX {
        // The kernel has each part ready when it is requested: nothing is waited for.
        let Ok((length, _)) = net::recv(&socket, part.as_mut_slice(), RecvFlags::DONTWAIT) else { break };
        if is_last(&part[..length], &mut found) {
            break;
        }
    }
    found
}

/// The request for the names and peers of all connected unix sockets.
fn request() -> Vec<u8> {
    let mut bytes = vec![];
    bytes.extend((kernel::HEADER_BYTES as u32 + 24).to_ne_bytes());
    bytes.extend(kernel::BY_FAMILY.to_ne_bytes());
    bytes.extend(kernel::REQUEST_ALL.to_ne_bytes());
    // A number for the answer, and a port: the kernel chooses one.
    bytes.extend([0; 8]);
    bytes.extend([kernel::AF_UNIX, 0, 0, 0]);
    bytes.extend((1_u32 << ESTABLISHED).to_ne_bytes());
    // Of any inode.
    bytes.extend([0; 4]);
    bytes.extend(kernel::NAME_AND_PEER.to_ne_bytes());
    // With any cookie.
    bytes.extend([0xff; 8]);
    bytes
}

/// Adds the sockets of a part of the answer, and returns whether it is the last one.
fn is_last(mut part: &[u8], found: &mut Vec<Unix>) -> bool {
    while let Some((length, kind)) = number(part, 0).zip(half(part, 4)) {
        let length = length as usize;
        if matches!(kind, kernel::DONE | kernel::ERROR)
            || length < kernel::HEADER_BYTES
            || length > part.len()
        {
            return true;
        }
        found.extend(unix(&part[kernel::HEADER_BYTES..length]));
        part = part.get(aligned(length)..).unwrap_or_default();
    }
    false
}

/// One socket; `None` without a peer.
fn unix(message: &[u8]) -> Option<Unix> {
    let mut attributes = message.get(kernel::SOCKET_BYTES..)?;
    let mut values: BTreeMap<u16, &[u8]> = BTreeMap::new();
    while let Some((length, kind)) = half(attributes, 0).zip(half(attributes, 2)) {
        let Some(value) = attributes.get(4..usize::from(length)) else { break };
        values.insert(kind, value);
        attributes = attributes.get(aligned(usize::from(length))..).unwrap_or_default();
    }
    let peer = number(values.get(&kernel::PEER)?, 0)?;
    let name = values.get(&kernel::NAME).map_or(&[][..], |name| name.strip_suffix(&[0]).unwrap_or(name));
    Some(Unix { name: String::from_utf8_lossy(name).into_owned(), peer: u64::from(peer) })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Netlink pads to four bytes.
fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::{Shipped, Tree};
    use crate::host::server::Part;
    use proptest::prelude::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn server(data: &str) -> Server {
        let part = Part { node: "n1".into(), what: "pgdata".into(), path: data.into() };
        Server { node: "n1".into(), parts: vec![part], ..Server::default() }
    }

    #[test]
    fn a_connection_over_tcp_shows_its_client_and_not_the_server() {
        let mut files = Shipped::default();
        files.put("/data/postmaster.pid", "101\n/data\n1700000000\n5432\n\nlocalhost\n 1 2\nready\n".into());
        // The server's end, its client's end, a connection that is closing, and one to another port.
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1538 0100007F:C001 01 00000000:00000000 00:00000000 00000000   105        0 11 1 0 20 4 30 10 -1\n\
             1: 0100007F:C001 0100007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 20 4 30 10 -1\n\
             2: 0100007F:C002 0100007F:1538 06 00000000:00000000 00:00000000 00000000     0        0 13 1 0 20 4 30 10 -1\n\
             3: 0100007F:C003 0100007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0 20 4 30 10 -1\n";
        files.put("/proc/net/tcp", tcp.into());
        for (pid, inode) in [(101, 11), (7, 12), (8, 13), (9, 14)] {
            files.put_link(&format!("/proc/{pid}/fd/5"), &format!("socket:[{inode}]"));
        }
        let clients = Clients::read(&mut files, &[server("/data")]);
        let found: Vec<u32> =
            [101, 7, 8, 9].into_iter().filter(|pid| clients.has(&mut files, *pid)).collect();
        assert_eq!(found, [7]);
    }

    #[test]
    fn the_kernel_shows_the_peers_of_a_unix_socket() {
        let folder = std::env::temp_dir().join(format!("pgfathom-clients-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(".s.PGSQL.6001");
        let listener = UnixListener::bind(&path).expect("a socket");
        let (_client, _accepted) =
            (UnixStream::connect(&path).expect("a client"), listener.accept().expect("a server"));
        let data = folder.display().to_string();
        std::fs::write(folder.join("postmaster.pid"), format!("1\n/d\n1\n6001\n{data}\n*\n"))
            .expect("a file");
        let mut files = Tree::live();
        let clients = Clients::read(&mut files, &[server(&data)]);
        assert_eq!(clients.inodes.len(), 1, "one connection");
        assert!(clients.has(&mut files, std::process::id()));
        let elsewhere = Clients::read(&mut files, &[]);
        assert!(!elsewhere.has(&mut files, std::process::id()), "of no server");
        std::fs::remove_dir_all(&folder).expect("it goes");
    }

    proptest! {
        #[test]
        fn no_answer_of_the_kernel_breaks_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut found = vec![];
            is_last(&bytes, &mut found);
            prop_assert!(found.len() * kernel::HEADER_BYTES <= bytes.len());
        }
    }
}
