//! CFG-02: what a role or a database at work sets for itself. It is no cause by itself: it is where sessions differ from what the server's settings show.

use super::costly::{busy, plain};
use crate::case::Case;
use crate::case::engine::reset_command;
use crate::rule::Need::{Facts, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, Severity};
use record::watched::OWN_SETTING;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "CFG-02",
    title: "a role or database at work has settings of its own",
    needs: &[Facts("setting"), Field("server", "sessions_active")],
    limits: "settings of a role or database whose sessions were at work, without those that decide how values are shown or when a session gives up; \
        always low (ours)",
    judge: own,
    links: &["https://www.postgresql.org/docs/current/sql-alterrole.html"],
}];

/// What changes no plan and no wait.
const HARMLESS: [&str; 14] = [
    "search_path",
    "application_name",
    "client_encoding",
    "client_min_messages",
    "bytea_output",
    "extra_float_digits",
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
    "role",
    "xmloption",
    "default_tablespace",
];
/// Characters of a value in a claim.
const VALUE_CHARS: usize = 80;
/// Settings in a claim.
const SETTINGS_MAX: usize = 6;

fn own(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        // By their owners, in the order of the facts.
        let mut owners: Vec<(&str, Vec<(&str, &str)>)> = vec![];
        for fact in case.facts(OWN_SETTING).filter(|fact| fact.node == time.node) {
            let Some((name, owner)) = fact.name.split_once(" of ") else { continue };
            let is_harmless =
                HARMLESS.contains(&name) || name.starts_with("lc_") || name.starts_with("datestyle");
            if is_harmless || !case.is_at_work(&time.node, owner, "") {
                continue;
            }
            match owners.iter_mut().find(|(of, _)| *of == owner) {
                Some((_, all)) => all.push((name, fact.value.as_str())),
                None => owners.push((owner, vec![(name, fact.value.as_str())])),
            }
        }
        for (owner, all) in owners {
            let of_server =
                |name: &str| case.setting(&time.node, name).map(|value| format!(" (the server: {value})"));
            let words: Vec<String> = all
                .iter()
                .take(SETTINGS_MAX)
                .map(|(name, value)| {
                    format!("{name} = {}{}", plain(value, VALUE_CHARS), of_server(name).unwrap_or_default())
                })
                .collect();
            let commands: Vec<String> =
                all.iter().take(SETTINGS_MAX).map(|(name, _)| reset_command(owner, name)).collect();
            let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
            claims.push(
                Claim::new(
                    Severity::Low,
                    Level::CoOccurrence,
                    format!("{}: {owner} has settings of its own: {}", time.node, words.join(", ")),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("settings", all.len() as f64)
                .because(format!("its sessions were at work: {} active in all", units::short(time.active)))
                .lacking("whether that costs anything: it may be meant, and is where its sessions differ from the server's settings")
                .remedy(
                    "compare its statements with and without the setting (SET, in one session); if it is not meant, take it back: sessions that connect from \
                     then on have the server's",
                    &commands,
                ),
            );
        }
    }
    Answer::of(claims, || "settings of roles and databases at work".to_string())
}
