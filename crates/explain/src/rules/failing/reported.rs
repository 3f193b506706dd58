//! TXN-13 of what the server's own processes report at level LOG, outside of any statement: clients that go away or speak something else, settings that are
//! not read, addresses and files that it does not get.

use super::ERROR_CHARS;
use crate::case::{Case, Thing};
use crate::rule::Claim;
use crate::rules::costly::plain;
use crate::rules::paste::data_directory;
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity};

/// What such a line means.
struct Reported {
    /// What the message begins with, and what it has.
    begins: &'static str,
    has: &'static str,
    /// So many, and so many a second.
    least: (f64, f64),
    severity: Severity,
    what: &'static str,
    text: &'static str,
    command: &'static str,
}

/// A connection now and then is lost anywhere.
const OF_CLIENTS: (f64, f64) = (10.0, 0.5);
/// One is enough.
const ONE: (f64, f64) = (1.0, 0.0);
/// What shows the lines themselves.
const LOG: &str =
    "SELECT pg_current_logfile(); -- with log_connections = on the log has the addresses of such clients";

static REPORTED: [Reported; 11] = [
    Reported {
        begins: "",
        has: "of startup packet",
        least: OF_CLIENTS,
        severity: Severity::Low,
        what: "connections are opened by something that does not speak the server's protocol: a check of a load balancer or a monitor that only opens the \
            port, or a scanner; each takes a process",
        text: "let the check speak the protocol (pg_isready, option pgsql-check of haproxy), or make it rarer; keep scanners away by the firewall or \
            listen_addresses",
        command: LOG,
    },
    Reported {
        begins: "could not receive data from client",
        has: "",
        least: OF_CLIENTS,
        severity: Severity::Low,
        what: "clients go away without ending their session: programs that are killed or exit without closing it, or a firewall or load balancer that cuts \
            the connection; what was not committed is lost",
        text: "find the program, and let it close its connections; against devices that cut idle ones set tcp_keepalives_idle below their limit",
        command: LOG,
    },
    Reported {
        begins: "could not accept SSL connection",
        has: "certificate expired",
        least: OF_CLIENTS,
        severity: Severity::High,
        what: "clients refuse the server's certificate, because it has expired: each new connection that checks it fails, and those that are open go on",
        text: "renew the certificate (and those of its authority, if it is one of these), and let the server read it: SELECT pg_reload_conf() is enough; \
            watch its date from now on",
        command: "$ openssl x509 -noout -enddate -in \"$(psql -Atc \"SELECT CASE WHEN left(current_setting('ssl_cert_file'), 1) = '/' THEN '' ELSE \
            current_setting('data_directory') || '/' END || current_setting('ssl_cert_file')\")\"",
    },
    Reported {
        begins: "could not accept SSL connection",
        has: "unknown ca",
        least: OF_CLIENTS,
        severity: Severity::Medium,
        what: "clients refuse the server's certificate, because they do not know the authority that signed it: each new connection that checks it fails",
        text: "give these clients the certificate of the authority (sslrootcert), or the server one that is signed by an authority which they know",
        command: LOG,
    },
    Reported {
        begins: "could not accept SSL connection",
        has: "certificate verify failed",
        least: OF_CLIENTS,
        severity: Severity::Medium,
        what: "the server refuses the certificates of clients: they have expired, are revoked, or an authority signed them that it does not know (ssl_ca_file)",
        text: "look at the date and the authority of the client's certificate; the DETAIL of the log's lines names it",
        command: LOG,
    },
    Reported {
        begins: "could not accept SSL connection",
        has: "",
        least: OF_CLIENTS,
        severity: Severity::Low,
        what: "TLS handshakes fail: clients that go away during them, do not know the certificate, or want another version of TLS; each takes a process",
        text: "compare certificate, sslmode, ssl_min_protocol_version and ssl_ciphers with those of the client",
        command: LOG,
    },
    Reported {
        begins: "",
        has: "was not reloaded",
        least: ONE,
        severity: Severity::Medium,
        what: "a file was changed and has errors, so that the change is not in force: the server goes on with the former one, and does not start with this one",
        text: "mend the line that the log names before this message, then SELECT pg_reload_conf()",
        command: "SELECT 'pg_hba.conf' AS file, line_number, error FROM pg_hba_file_rules WHERE error IS NOT NULL;",
    },
    Reported {
        begins: "configuration file",
        has: "contains errors",
        least: ONE,
        severity: Severity::Medium,
        what: "the configuration was changed and has errors, so that a part of the changes is not in force: the server may not start with it",
        text: "mend these lines, then SELECT pg_reload_conf()",
        command: "SELECT sourcefile, sourceline, name, setting, error FROM pg_file_settings WHERE error IS NOT NULL;",
    },
    Reported {
        begins: "could not bind",
        has: "",
        least: ONE,
        severity: Severity::Medium,
        what: "the server does not get an address of listen_addresses: another program has its port, or the address is not of this host; clients that use \
            it are refused",
        text: "end the other program, or correct listen_addresses and port (a restart)",
        command: "$ ss -ltnp",
    },
    Reported {
        begins: "using stale statistics",
        has: "",
        least: (3.0, 0.0),
        severity: Severity::Low,
        what: "the process that keeps the statistics does not answer in time (before PostgreSQL 15): autovacuum and views use old counts",
        text: "look for a busy disk below the statistics' folder, and move that into memory (stats_temp_directory)",
        command: "SHOW stats_temp_directory;",
    },
    Reported {
        begins: "could not ",
        has: "statistics file",
        least: ONE,
        severity: Severity::Medium,
        what: "the server cannot read or write the file of its statistics: counts are lost, and autovacuum does not know what has changed",
        text: "look at the disk, the owner and the rights of the folder: the message has the reason",
        command: "",
    },
];

impl Reported {
    fn fits(&self, message: &str) -> bool {
        message.starts_with(self.begins) && message.contains(self.has) && !is_of_client(message)
    }
}

/// Whether a client chose the text of a line: what statement logging writes.
fn is_of_client(message: &str) -> bool {
    ["statement: ", "execute ", "duration: ", "parse ", "bind ", "fastpath "]
        .iter()
        .any(|begin| message.starts_with(begin))
}

/// One claim for each kind that comes often enough.
pub(super) fn claims(case: &Case, server: &Thing<'_>) -> Vec<Claim> {
    let seconds = (server.lines.ticks.window().length_us() as f64 / 1e6).max(1.0);
    let lines: Vec<&Event> = case
        .events_of(event::SERVER_LOG)
        .filter(|event| Case::word_of(event, "severity") == "LOG")
        .filter(|event| [server.place, ""].contains(&Case::word_of(event, "node")))
        .collect();
    let claim = |kind: &Reported| {
        // The first that fits: the last ones of their words are for the rest.
        let is_it = |event: &&&Event| {
            REPORTED.iter().find(|one| one.fits(&event.message)).is_some_and(|one| std::ptr::eq(one, kind))
        };
        let of_kind: Vec<&&Event> = lines.iter().filter(is_it).collect();
        let count: f64 = of_kind.iter().map(|event| event.times()).sum();
        let is_often = count >= kind.least.0 && count / seconds >= kind.least.1;
        of_kind
            .first()
            .filter(|_| is_often)
            .map(|first| claim(case, server, kind, (count, count / seconds), first))
    };
    REPORTED.iter().filter_map(claim).collect()
}

fn claim(
    case: &Case,
    server: &Thing<'_>,
    kind: &Reported,
    (count, per_s): (f64, f64),
    first: &Event,
) -> Claim {
    let message = plain(&first.message, ERROR_CHARS);
    let often = match kind.least.1 > 0.0 {
        true => format!("{} times a second", units::short(per_s)),
        false => units::counted(count as usize, "time"),
    };
    let folder =
        format!("$ ls -ld {0} {0}/pg_stat {0}/pg_stat_tmp && df -h {0}", data_directory(case, server.place));
    let command = if kind.command.is_empty() { &folder } else { kind.command };
    Claim::new(
        kind.severity,
        Level::DiscriminatingCounter,
        format!("{}: {often}: {}; one of them: {message}", server.place, kind.what),
    )
    .on_node(server.place)
    .during([server.lines.ticks.window()])
    .number("errors_per_s", per_s)
    .because(format!("the server's log, {count:.0} times at level LOG: {message}"))
    .remedy(kind.text, &[command])
}
