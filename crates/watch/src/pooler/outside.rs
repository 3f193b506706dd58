//! What a pooler of this host shows without its console: the sockets of its clients, its log, and the file that it was started with.

use super::log::Log;
use crate::collect::{Batch, Tick};
use record::watched::Pooler;
use std::fs;

/// Between two counts: the kernel lists all sockets of the host.
const EVERY_US: u64 = 2_000_000;
/// The state of a connection in `/proc/net/tcp` (`TCP_ESTABLISHED`) and in `/proc/net/unix` (`SS_CONNECTED`).
const ESTABLISHED: &str = "01";
const CONNECTED: &str = "03";

/// Where its clients come in, and what its file has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Entrance {
    pub(super) port: u16,
    /// Its socket; empty if it has none.
    pub(super) socket: String,
    /// `default_pool_size`, or pgbouncer's own default.
    pub(super) size: u64,
    /// `max_client_conn`, if the file has it.
    pub(super) clients_max: Option<u64>,
    /// `logfile`; empty if it has none.
    pub(super) log: String,
}

/// A pooler whose console is not read.
#[derive(Debug)]
pub(super) struct Outside {
    pub(super) place: String,
    /// How its console is reached, once it admits a role.
    name: String,
    entrance: Entrance,
    log: Option<Log>,
    last_us: u64,
}

impl Outside {
    pub(super) fn of(place: String, name: String, entrance: Entrance) -> Outside {
        let log = Log::open(&entrance.log);
        Outside { place, name, entrance, log, last_us: 0 }
    }

    /// Counts its clients, if that is due.
    pub(super) fn read(&mut self, node: &str, tick: &Tick, batch: &mut Batch) {
        if self.last_us > 0 && tick.now_us < self.last_us + EVERY_US {
            return;
        }
        let refused = self.log.as_mut().map(Log::read);
        let Some(clients) = clients(&self.entrance) else { return };
        let line = Pooler {
            node: node.to_string(),
            pooler: self.name.clone(),
            clients: Some(clients),
            clients_max: self.entrance.clients_max,
            size: Some(self.entrance.size),
            refused: refused.as_ref().map(|refused| refused.clients),
            reason: refused.map(|refused| refused.reason).unwrap_or_default(),
        };
        let interval_us = tick.now_us - if self.last_us > 0 { self.last_us } else { tick.now_us };
        self.last_us = tick.now_us;
        batch.counted(tick.now_us, interval_us, line);
    }
}

/// How many clients are connected; `None` where the kernel does not show it.
fn clients(entrance: &Entrance) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("/proc/net/{name}"));
    let (tcp, unix) = (read("tcp").ok()?, read("unix").ok()?);
    let of_tcp = |text: &str| connections(text, entrance.port);
    Some(of_tcp(&tcp) + read("tcp6").map_or(0, |text| of_tcp(&text)) + accepted(&unix, &entrance.socket))
}

/// Established connections to a port of this host, from `/proc/net/tcp` (`get_tcp4_sock` in `net/ipv4/tcp_ipv4.c`): the end of the server is the one whose own
/// address has the port.
fn connections(text: &str, port: u16) -> u64 {
    let end = format!(":{port:04X}");
    let is_one = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|own| own.ends_with(&end)) && words.nth(1) == Some(ESTABLISHED)
    };
    text.lines().filter(is_one).count() as u64
}

/// Connections that were accepted at a socket, from `/proc/net/unix` (`unix_seq_show` in `net/unix/af_unix.c`): they have its path.
fn accepted(text: &str, socket: &str) -> u64 {
    let is_one = |line: &&str| {
        let mut words = line.split_whitespace().skip(5);
        !socket.is_empty() && words.next() == Some(CONNECTED) && words.nth(1) == Some(socket)
    };
    text.lines().filter(is_one).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn the_clients_of_a_port_and_of_a_socket_are_counted_and_nothing_else() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let at = listener.local_addr().expect("an address");
        let folder = std::env::temp_dir().join(format!("pgfathom-outside-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let socket = folder.join(".s.PGSQL.1");
        let local = UnixListener::bind(&socket).expect("a socket");
        let entrance =
            Entrance { port: at.port(), socket: socket.display().to_string(), ..Entrance::default() };
        assert_eq!(clients(&entrance), Some(0));
        let over_tcp: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(at).expect("connects")).collect();
        let accepted: Vec<TcpStream> = (0..3).map(|_| listener.accept().expect("accepts").0).collect();
        let by_socket: Vec<UnixStream> =
            (0..2).map(|_| UnixStream::connect(&socket).expect("connects")).collect();
        let taken: Vec<UnixStream> = (0..2).map(|_| local.accept().expect("accepts").0).collect();
        assert_eq!(clients(&entrance), Some(5));
        let only_tcp = Entrance { socket: String::new(), ..entrance.clone() };
        assert_eq!(clients(&only_tcp), Some(3));
        drop((over_tcp, accepted, by_socket, taken));
        fs::remove_dir_all(&folder).expect("it is removed");
    }
}
