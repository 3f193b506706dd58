//! What the programs of a cluster under Patroni are configured with: pure functions, so that they can be tested without starting any.

use std::fmt::Write as _;
use std::path::Path;

use super::{Managed, SCOPE, SynchronousMode};
use connect::Secret;

/// User name of the store and of the REST interface.
pub(super) const STORE_USER: &str = "root";
/// The role that standbys stream with.
pub(super) const REPLICATION_ROLE: &str = "pgfathom_node";
/// The role of `pg_rewind`.
pub(super) const REWIND_ROLE: &str = "pgfathom_rewind";

/// Addresses and passwords that all programs of the cluster share.
#[derive(Clone, Debug)]
pub(super) struct Shared<'a> {
    pub(super) managed: &'a Managed,
    pub(super) bin_dir: &'a Path,
    pub(super) socket_dir: &'a Path,
    pub(super) store_port: u16,
    pub(super) password: &'a Secret,
    /// Lines of `postgresql.conf`.
    pub(super) settings: &'a [(String, String)],
    /// An argument of initdb.
    pub(super) checksums: Option<&'static str>,
}

/// One node.
#[derive(Clone, Debug)]
pub(super) struct Member<'a> {
    pub(super) name: &'a str,
    pub(super) dir: &'a Path,
    pub(super) port: u16,
    pub(super) rest_port: u16,
}

/// A YAML string.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// `patroni.yml` of one node.
pub(super) fn patroni(shared: &Shared<'_>, member: &Member<'_>) -> String {
    let Managed { ttl_s, synchronous_mode, .. } = shared.managed;
    let password = quoted(shared.password.reveal());
    let path = |path: &Path| quoted(&path.display().to_string());
    let mut text = format!(
        "# Written by pgfathom up.\n\
         scope: {SCOPE}\n\
         name: {name}\n\
         log:\n  dir: {dir}\n  file_num: 1\n\
         restapi:\n  listen: 127.0.0.1:{rest}\n  connect_address: 127.0.0.1:{rest}\n  \
         authentication:\n    username: {STORE_USER}\n    password: {password}\n\
         etcd3:\n  host: 127.0.0.1:{store}\n  username: {STORE_USER}\n  password: {password}\n",
        name = member.name,
        dir = path(member.dir),
        rest = member.rest_port,
        store = shared.store_port,
    );
    // Patroni's own proportions: 30, 10 and 10 seconds. The sum of one wait and two retries must not exceed the time to live.
    let (loop_wait_s, retry_s) = ((ttl_s / 3).max(1), (ttl_s / 3).max(1));
    let (mode, strict) = match synchronous_mode {
        SynchronousMode::Off => ("false", "false"),
        SynchronousMode::On => ("true", "false"),
        SynchronousMode::Strict => ("true", "true"),
    };
    let _ = write!(
        text,
        "bootstrap:\n  dcs:\n    ttl: {ttl_s}\n    loop_wait: {loop_wait_s}\n    retry_timeout: {retry_s}\n    \
         synchronous_mode: {mode}\n    synchronous_mode_strict: {strict}\n    \
         postgresql:\n      use_pg_rewind: true\n      use_slots: true\n      parameters:\n",
    );
    for (name, value) in shared.settings {
        let _ = writeln!(text, "        {name}: {}", quoted(value));
    }
    text.push_str("  initdb:\n    - encoding: UTF8\n    - locale: C\n    - auth: trust\n    - no-sync\n");
    if let Some(word) = shared.checksums {
        let _ = writeln!(text, "    - {word}");
    }
    let _ = write!(
        text,
        "postgresql:\n  listen: 127.0.0.1:{port}\n  connect_address: 127.0.0.1:{port}\n  \
         use_unix_socket: true\n  data_dir: {data}\n  bin_dir: {bin}\n  pgpass: {pgpass}\n  \
         authentication:\n    superuser:\n      username: postgres\n    \
         replication:\n      username: {REPLICATION_ROLE}\n      password: {password}\n    \
         rewind:\n      username: {REWIND_ROLE}\n      password: {password}\n  \
         pg_hba:\n    - local all all trust\n    - local replication all trust\n    \
         - host all all all scram-sha-256\n    - host replication all all scram-sha-256\n  \
         parameters:\n    unix_socket_directories: {sockets}\n    unix_socket_permissions: '0700'\n",
        port = member.port,
        data = path(&member.dir.join("data")),
        bin = path(shared.bin_dir),
        pgpass = path(&member.dir.join("pgpass")),
        sockets = path(shared.socket_dir),
    );
    text
}

/// The ports that clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fronts {
    /// For the node that takes writes.
    pub(super) write: u16,
    /// For the standbys.
    pub(super) read: u16,
}

/// `haproxy.cfg`: one port for the primary and one for the standbys, checked by the REST interface, as Patroni's manual has it.
pub(super) fn haproxy(socket_dir: &Path, fronts: Fronts, tcp: bool, members: &[Member<'_>]) -> String {
    let mut text = "# Written by pgfathom up.\n\
        global\n  maxconn 1000\n\
        defaults\n  mode tcp\n  retries 2\n  timeout connect 4s\n  timeout client 30m\n  timeout server 30m\n  timeout check 5s\n"
        .to_owned();
    for (name, port, path) in [("write", fronts.write, "/primary"), ("read", fronts.read, "/replica")] {
        let socket = |port: u16| format!("{}/.s.PGSQL.{port}", socket_dir.display());
        let _ = write!(text, "listen {name}\n  bind unix@{} mode 700\n", socket(port));
        if tcp {
            let _ = writeln!(text, "  bind 127.0.0.1:{port}");
        }
        let _ = write!(
            text,
            "  option httpchk OPTIONS {path}\n  http-check expect status 200\n  \
             default-server inter 1s fall 3 rise 2 on-marked-down shutdown-sessions\n"
        );
        for member in members {
            // A client over TCP has to give a password, so haproxy goes on over TCP.
            let back = match tcp {
                true => format!("127.0.0.1:{}", member.port),
                false => format!("unix@{}", socket(member.port)),
            };
            let _ = writeln!(
                text,
                "  server {} {back} maxconn 300 check addr 127.0.0.1 port {}",
                member.name, member.rest_port
            );
        }
    }
    text
}

/// `etcd.yml`: one member. Its gateway for HTTP is on by default only without a file.
pub(super) fn etcd(dir: &Path, port: u16, peer_port: u16) -> String {
    format!(
        "# Written by pgfathom up.\n\
         name: {SCOPE}\ndata-dir: {}\n\
         listen-client-urls: http://127.0.0.1:{port}\nadvertise-client-urls: http://127.0.0.1:{port}\n\
         listen-peer-urls: http://127.0.0.1:{peer_port}\ninitial-advertise-peer-urls: http://127.0.0.1:{peer_port}\n\
         initial-cluster: {SCOPE}=http://127.0.0.1:{peer_port}\nlog-level: warn\nenable-grpc-gateway: true\n",
        quoted(&dir.join("data").display().to_string()),
    )
}

/// Port, user and password of the REST interface in a `patroni.yml` of ours.
pub(super) fn rest_in(text: &str) -> Option<(u16, String, String)> {
    let (_, rest) = text.split_once("restapi:\n")?;
    let value = |name: &str| rest.lines().find_map(|line| line.trim().strip_prefix(name).map(str::trim));
    let port = value("listen:")?.rsplit_once(':')?.1.parse().ok()?;
    Some((port, value("username:")?.to_owned(), value("password:")?.trim_matches('\'').to_owned()))
}

/// The ports in a `haproxy.cfg` of ours.
pub(super) fn fronts_in(text: &str) -> Option<Fronts> {
    let mut ports = text.lines().filter_map(|line| {
        let line = line.trim().strip_prefix("bind unix@")?;
        line.split_whitespace().next()?.rsplit_once(".s.PGSQL.")?.1.parse().ok()
    });
    Some(Fronts { write: ports.next()?, read: ports.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> Member<'static> {
        Member { name: "n1", dir: Path::new("/c/it's/n1"), port: 5432, rest_port: 5437 }
    }

    fn text(mode: SynchronousMode) -> String {
        let managed = Managed { nodes: 3, synchronous_mode: mode, ttl_s: 30 };
        let settings = [("log_line_prefix".to_owned(), "%m 'x' ".to_owned())];
        let shared = Shared {
            managed: &managed,
            bin_dir: Path::new("/bin"),
            socket_dir: Path::new("/c/run"),
            store_port: 5440,
            password: &Secret::new("word"),
            settings: &settings,
            checksums: Some("data-checksums"),
        };
        patroni(&shared, &member())
    }

    #[test]
    fn a_node_is_configured_as_requested_and_every_value_is_quoted() {
        let off = text(SynchronousMode::Off);
        for line in [
            "name: n1\n",
            "    ttl: 30\n    loop_wait: 10\n    retry_timeout: 10\n",
            "    synchronous_mode: false\n    synchronous_mode_strict: false\n",
            "        log_line_prefix: '%m ''x'' '\n",
            "  data_dir: '/c/it''s/n1/data'\n",
            "    - data-checksums\n",
            "  listen: 127.0.0.1:5432\n",
        ] {
            assert!(off.contains(line), "{line}\n{off}");
        }
        assert_eq!(rest_in(&off), Some((5437, "root".to_owned(), "word".to_owned())));
        assert_eq!(rest_in("scope: x\n"), None);
        assert!(
            text(SynchronousMode::On).contains("synchronous_mode: true\n    synchronous_mode_strict: false")
        );
        assert!(
            text(SynchronousMode::Strict)
                .contains("synchronous_mode: true\n    synchronous_mode_strict: true")
        );
    }

    /// Without a password on the socket, nothing may lead from TCP to a socket.
    #[test]
    fn haproxy_never_leads_from_tcp_to_a_socket() {
        let fronts = Fronts { write: 5435, read: 5436 };
        let quiet = haproxy(Path::new("/c/run"), fronts, false, &[member()]);
        assert_eq!(fronts_in(&quiet), Some(fronts));
        assert!(!quiet.contains("bind 127.0.0.1"), "{quiet}");
        assert!(quiet.contains("bind unix@/c/run/.s.PGSQL.5435 mode 700"), "{quiet}");
        assert!(
            quiet.contains("server n1 unix@/c/run/.s.PGSQL.5432 maxconn 300 check addr 127.0.0.1 port 5437"),
            "{quiet}"
        );
        let open = haproxy(Path::new("/c/run"), fronts, true, &[member()]);
        assert!(open.contains("bind 127.0.0.1:5435") && open.contains("server n1 127.0.0.1:5432 "), "{open}");
        assert!(!open.contains("server n1 unix@"), "{open}");
        assert!(open.contains("OPTIONS /primary") && open.contains("OPTIONS /replica"), "{open}");
    }
}
