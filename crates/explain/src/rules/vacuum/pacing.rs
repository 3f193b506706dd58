//! Tables whose own settings make vacuum sleep: those of the server do not reach them.

use crate::case::{Case, Thing};
use crate::rule::Claim;

/// The settings of the table for the cost of vacuum, as in its definition; empty where it has none.
pub(crate) fn own_costs(table: &Thing<'_>) -> String {
    let options =
        table.lines.word("autovacuum_options").split(", ").filter(|option| option.contains("_cost_"));
    options.collect::<Vec<_>>().join(", ")
}

/// What takes the sleep away, with commands for the tables under vacuum that have their own settings in front.
pub(super) fn without_delay(case: &Case, node: &str, claim: Claim) -> Claim {
    let is_at_work = |relation: &str| {
        case.at("progress", node).any(|progress| progress.lines.word("relation") == relation)
    };
    let mut commands = vec![];
    let mut claim = claim;
    for table in case.at("table", node) {
        let (relation, own) = (table.lines.word("relation"), own_costs(&table));
        if own.is_empty() || !is_at_work(relation) {
            continue;
        }
        let names: Vec<&str> =
            own.split(", ").map(|option| option.split('=').next().unwrap_or(option)).collect();
        commands.push(format!("ALTER TABLE {relation} RESET ({});", names.join(", ")));
        claim = claim.because(format!(
            "{relation} has its own settings ({own}), which come before those of the server"
        ));
    }
    let text = match commands.is_empty() {
        true => {
            "remove the delay while the host has no other load; after the next load run VACUUM (FREEZE), or load with COPY .. FREEZE"
        }
        false => {
            "take the settings of the table away, so that it is vacuumed at the pace of the server, or give it a higher limit of its own; the server's \
             settings do not reach it"
        }
    };
    if commands.is_empty() {
        commands.extend([
            "ALTER SYSTEM SET autovacuum_vacuum_cost_delay = 0; SELECT pg_reload_conf();".to_string(),
            "ALTER SYSTEM SET autovacuum_vacuum_cost_limit = 10000; SELECT pg_reload_conf(); -- the gentler alternative".to_string(),
        ]);
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    claim.remedy(text, &commands)
}
