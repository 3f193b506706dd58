//! The connection parameters libpq knows (`PQconninfoOptions` in `fe-connect.c`, PostgreSQL 18), and how this client treats each.

/// The treatment of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// It works as in libpq.
    Used,
    /// It is accepted and has no effect here; the reason is in the table's comment.
    Ignored,
    /// Only these values are supported; the first is the default. Others are refused, never silently ignored.
    Only(&'static [&'static str]),
    /// It cannot be honoured at all.
    Refused,
}

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) env: Option<&'static str>,
    pub(super) treatment: Treatment,
}

const fn used(name: &'static str, env: &'static str) -> Parameter {
    Parameter { name, env: Some(env), treatment: Treatment::Used }
}

const fn parameter(name: &'static str, env: Option<&'static str>, treatment: Treatment) -> Parameter {
    Parameter { name, env, treatment }
}

use Treatment::{Ignored, Only, Refused, Used};

/// All of them.
pub(super) const PARAMETERS: &[Parameter] = &[
    used("service", "PGSERVICE"),
    used("servicefile", "PGSERVICEFILE"),
    used("user", "PGUSER"),
    used("password", "PGPASSWORD"),
    used("passfile", "PGPASSFILE"),
    used("channel_binding", "PGCHANNELBINDING"),
    used("connect_timeout", "PGCONNECT_TIMEOUT"),
    used("dbname", "PGDATABASE"),
    used("host", "PGHOST"),
    used("hostaddr", "PGHOSTADDR"),
    used("port", "PGPORT"),
    // Both planes use UTF-8, whatever the terminal's encoding is: no text of ours passes the server's conversion.
    parameter("client_encoding", Some("PGCLIENTENCODING"), Ignored),
    used("options", "PGOPTIONS"),
    used("application_name", "PGAPPNAME"),
    parameter("fallback_application_name", None, Used),
    parameter("keepalives", None, Used),
    parameter("keepalives_idle", None, Used),
    parameter("keepalives_interval", None, Used),
    parameter("keepalives_count", None, Used),
    parameter("tcp_user_timeout", None, Used),
    used("sslmode", "PGSSLMODE"),
    parameter("sslnegotiation", Some("PGSSLNEGOTIATION"), Only(&["postgres"])),
    // libpq ignores it too.
    parameter("sslcompression", Some("PGSSLCOMPRESSION"), Ignored),
    used("sslcert", "PGSSLCERT"),
    used("sslkey", "PGSSLKEY"),
    parameter("sslcertmode", Some("PGSSLCERTMODE"), Only(&["allow", "disable"])),
    parameter("sslpassword", None, Refused),
    used("sslrootcert", "PGSSLROOTCERT"),
    used("sslcrl", "PGSSLCRL"),
    parameter("sslcrldir", Some("PGSSLCRLDIR"), Refused),
    used("sslsni", "PGSSLSNI"),
    used("requirepeer", "PGREQUIREPEER"),
    used("require_auth", "PGREQUIREAUTH"),
    parameter("min_protocol_version", Some("PGMINPROTOCOLVERSION"), Only(&["3.0"])),
    // Protocol 3.0 is within any maximum.
    parameter("max_protocol_version", Some("PGMAXPROTOCOLVERSION"), Ignored),
    used("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    used("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    parameter("gssencmode", Some("PGGSSENCMODE"), Only(&["prefer", "disable"])),
    // They configure GSSAPI; a server that requests GSSAPI gets an error that names it.
    parameter("krbsrvname", Some("PGKRBSRVNAME"), Ignored),
    parameter("gsslib", Some("PGGSSLIB"), Ignored),
    parameter("gssdelegation", Some("PGGSSDELEGATION"), Ignored),
    parameter("replication", None, Only(&["false", "off", "no", "0"])),
    used("target_session_attrs", "PGTARGETSESSIONATTRS"),
    used("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    parameter("scram_client_key", None, Refused),
    parameter("scram_server_key", None, Refused),
    parameter("sslkeylogfile", None, Refused),
    // They configure OAuth; a server that requests it gets an error that names it.
    parameter("oauth_issuer", None, Ignored),
    parameter("oauth_client_id", None, Ignored),
    parameter("oauth_client_secret", None, Ignored),
    parameter("oauth_scope", None, Ignored),
];

/// Environment variables that libpq sends as settings of the session (`EnvironmentOptions`).
pub(super) const SESSION_ENVIRONMENT: [(&str, &str); 3] =
    [("PGDATESTYLE", "datestyle"), ("PGTZ", "timezone"), ("PGGEQO", "geqo")];

/// The parameter of that name.
pub(super) fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|parameter| parameter.name == name)
}

/// The known name most similar to `name`, if one is close enough.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let names = PARAMETERS.iter().filter(|p| p.treatment != Refused).map(|p| p.name);
    nearest_of(name, names)
}

/// The closest of `names`, at most a third of its letters away.
pub(super) fn nearest_of<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    names
        .map(|name| (distance(&word, name), name))
        .min()
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .map(|(_, name)| name)
}

/// Edits between two words: letters added, omitted, changed, or two neighbours swapped (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = match (i, j) {
                (0, n) | (n, 0) => n,
                (i, j) => {
                    let changed = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let mut best = changed.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                    if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                        best = best.min(table[i - 2][j - 2] + 1);
                    }
                    best
                }
            };
        }
    }
    table[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_finds_its_neighbour() {
        for (typed, meant) in [
            ("hots", Some("host")),
            ("ssl_mode", Some("sslmode")),
            ("SSLMODE", Some("sslmode")),
            ("database", None),
            ("target_session_attr", Some("target_session_attrs")),
            ("passwort", Some("password")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed), meant, "{typed}");
        }
    }

    #[test]
    fn distances_are_edits() {
        for (a, b, edits) in
            [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("hots", "host", 1)]
        {
            assert_eq!(distance(a, b), edits);
            assert_eq!(distance(b, a), edits);
        }
    }
}
