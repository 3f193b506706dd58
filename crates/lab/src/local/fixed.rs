//! Settings that are written behind those of the user, or that decide where a server is found: what a user sets would be ignored, or would hide the
//! server from the program that starts it.

use super::{LocalError, Topology};

/// Set last, when the standbys stream.
pub(super) const SYNC_NAMES: &str = "synchronous_standby_names";

/// Where a server and its files are.
const PLACE: [&str; 5] = ["port", "unix_socket_directories", "data_directory", "hba_file", "config_file"];

/// How a standby finds its primary.
const LINK: [&str; 2] = ["primary_conninfo", "primary_slot_name"];

/// Refuses settings that the program decides itself.
pub(crate) fn check(topology: &Topology, settings: &[(String, String)]) -> Result<(), LocalError> {
    let has_standbys = topology.sync().is_some();
    for (name, _) in settings {
        let is = |known: &&str| name.eq_ignore_ascii_case(known);
        let (why, hint) = match name {
            _ if is(&SYNC_NAMES) && has_standbys => (
                "cannot be set before the standbys are there",
                match topology {
                    Topology::Patroni(_) => "use --synchronous-mode on",
                    _ => {
                        "use --sync of pgfathom up replicated, for example --sync \"ANY 1 (s1, s2)\"; prove \
                         takes that cluster by --cluster, with its cluster.toml"
                    }
                },
            ),
            _ if LINK.iter().any(is) && has_standbys => {
                ("is set on each standby so that it follows its primary", "omit it")
            }
            _ if PLACE.iter().any(is) => (
                "cannot be set: it decides where the server is found",
                "omit it; pgfathom up has --port, --socket-dir and --dir",
            ),
            _ => continue,
        };
        return Err(LocalError::Topology { problem: format!("{name} {why}"), hint: hint.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::{Replication, SyncStandbys};

    fn refused(topology: &Topology, name: &str) -> Option<String> {
        check(topology, &[(name.to_owned(), "x".to_owned())]).err().map(|error| error.to_string())
    }

    #[test]
    fn what_is_written_behind_the_users_settings_is_refused() {
        let sync = SyncStandbys::parse("FIRST 1 (s1)", 1).unwrap();
        let replicated = Topology::Replicated(Replication { standbys: 1, sync, commit: None });
        for name in ["synchronous_standby_names", "Synchronous_Standby_Names", "primary_conninfo", "PORT"] {
            let why = refused(&replicated, name).unwrap();
            assert!(why.starts_with(name), "{why}");
        }
        assert_eq!(refused(&replicated, "work_mem"), None);
        assert_eq!(refused(&Topology::Single, "synchronous_standby_names"), None);
        assert!(refused(&Topology::Single, "unix_socket_directories").is_some());
    }
}
