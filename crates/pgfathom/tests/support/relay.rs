//! A relay in front of a server's Unix socket: it counts requests, and lets each take a while longer, as a distance would.
//!
//! A request is what the client waits for the answer of: everything up to a simple query (`Q`) or a `Sync` (`S`). It is passed on as a whole, so that
//! the server does not begin with its first half while the rest is still on its way.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The relay's folder, which is to be named as the host, and what it counted.
pub(crate) struct Relay {
    folder: PathBuf,
    requests: Arc<AtomicU64>,
}

impl Relay {
    /// Listens in a folder of its own under the port of the server whose sockets are in `server`.
    pub(crate) fn start(server: &Path, port: u16, delay: Duration) -> Relay {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("pgf-relay-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the relay");
        let socket = format!(".s.PGSQL.{port}");
        let listener = UnixListener::bind(folder.join(&socket)).expect("the relay listens");
        // The servers run as another user.
        for path in [folder.clone(), folder.join(&socket)] {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(path, open).expect("the relay is open to all");
        }
        let requests = Arc::new(AtomicU64::new(0));
        let (counter, target) = (Arc::clone(&requests), server.join(&socket));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = UnixStream::connect(&target) else { return };
                let counter = Arc::clone(&counter);
                let (mut from, mut to) =
                    (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
                std::thread::spawn(move || {
                    pass(client, server, delay, &counter);
                });
            }
        });
        Relay { folder, requests }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Passes the client's messages on, one by one.
fn pass(mut client: UnixStream, mut server: UnixStream, delay: Duration, requests: &AtomicU64) {
    // The first message has no type.
    let mut is_first = true;
    let mut request = Vec::new();
    loop {
        let mut head = [0u8; 5];
        let head = if is_first { &mut head[1..] } else { &mut head[..] };
        if client.read_exact(head).is_err() {
            break;
        }
        let kind = if is_first { 0 } else { head[0] };
        let at = head.len() - 4;
        let length = u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let mut body = vec![0; length.saturating_sub(4)];
        if client.read_exact(&mut body).is_err() {
            break;
        }
        if matches!(kind, b'Q' | b'S') {
            requests.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(delay);
        }
        is_first = false;
        request.extend_from_slice(head);
        request.append(&mut body);
        if matches!(kind, b'P' | b'B' | b'D' | b'E' | b'C') {
            continue;
        }
        if server.write_all(&request).is_err() {
            break;
        }
        request.clear();
    }
    let _ = server.shutdown(std::net::Shutdown::Both);
}
