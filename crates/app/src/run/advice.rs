//! What to do about the errors of a run, as far as their SQLSTATE and the kind of connection show it.

use super::Protocol;
use connect::ConnSpec;
use connect::conninfo::SessionAttrs;
use run::drive::Account;
use run::pooler::{self, Between};
use run::statement::StatementSpec;

/// `read_only_sql_transaction`.
const READ_ONLY: &str = "25006";

/// One sentence for each kind of trouble.
pub(super) fn of(
    account: &Account,
    spec: &ConnSpec,
    is_shared: bool,
    protocol: Protocol,
    ours: &[StatementSpec],
) -> Vec<String> {
    let between = match (is_shared, protocol) {
        (true, _) => Between::SharedPool,
        (false, Protocol::Prepared) => Between::Unknown,
        // Nothing of ours is prepared: what is missing is the script's own.
        (false, Protocol::Simple | Protocol::Extended) => Between::Scripts,
    };
    let errors = &account.posted.errors;
    let lost =
        errors.iter().find_map(|error| pooler::hint(error.sqlstate, &error.first_message, between, ours));
    let refuses_writes = errors.iter().any(|error| error.sqlstate.as_str() == READ_ONLY);
    lost.map(str::to_owned).into_iter().chain(refuses_writes.then(|| read_only(spec))).collect()
}

/// Where writes were refused: by a standby, or by a setting.
fn read_only(spec: &ConnSpec) -> String {
    let setting = "default_transaction_read_only of the role or the database also refuses writes on a primary: PGOPTIONS='-c \
        default_transaction_read_only=off'";
    match (spec.hosts.len(), spec.target_session_attrs) {
        (2.., SessionAttrs::Any) => format!(
            "several hosts are named, and the first one that accepts a connection may be a standby: add target_session_attrs=read-write; {setting}"
        ),
        _ => format!("writes were refused: if it is a standby, connect to the primary; {setting}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_on_a_standby_of_several_hosts_lead_to_the_session_attributes() {
        let mut spec = ConnSpec::new("a", 1, "u", "d");
        assert!(!read_only(&spec).contains("target_session_attrs"));
        spec.hosts.push(spec.hosts[0].clone());
        assert!(read_only(&spec).contains("target_session_attrs=read-write"));
        spec.target_session_attrs = SessionAttrs::ReadWrite;
        let text = read_only(&spec);
        assert!(!text.contains("target_session_attrs") && text.contains("default_transaction_read_only"));
    }
}
