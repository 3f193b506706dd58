//! WAL-13: files of the WAL that commands close long before they are full.

use super::super::costly::{lowered, severity};
use crate::case::Case;
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::units;
use record::finding::{Level, Severity};

/// Switches a second from which on it is worth a word, and from which on it is no longer low.
const PER_S_MIN: f64 = 0.5;
const PER_S_MEDIUM: f64 = 1.0;

/// Switches of a second: by the counts of statements.
fn switches(case: &Case, node: &str) -> f64 {
    let text = |id: &str| lowered(case.query(id).unwrap_or_default());
    case.at("statement", node)
        .filter(|one| text(one.lines.word("query_id")).contains("pg_switch_wal"))
        .filter_map(|one| one.lines.rate("calls"))
        .sum()
}

pub(super) fn switched(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let per_s = switches(case, server.place);
        if per_s < PER_S_MIN {
            continue;
        }
        let waits = node_time::share_waiting(case, server.place, |kind, event| {
            (kind == "IO" || kind == "LWLock") && event.to_ascii_lowercase().contains("wal")
        });
        let share = waits.unwrap_or(0.0);
        claims.push(
            Claim::new(
                if per_s >= PER_S_MEDIUM { severity(share.max(0.1)) } else { Severity::Low },
                Level::DiscriminatingCounter,
                format!(
                    "{}: pg_switch_wal() is called {} times a second: each call closes a file of the WAL that is not full, and fills it with zeros to \
                        its 16 MB, \
                     which are written, sent to standbys and archived",
                    server.place,
                    units::short(per_s)
                ),
            )
            .on_node(server.place)
            .during([server.lines.ticks.window()])
            .number("switches_per_s", per_s)
            .number("share", share)
            .because(format!("{} of the session time waits for the WAL", units::percent(share)))
            .lacking("what it is for: a backup needs it once at its end, and does it itself")
            .remedy(
                "leave the call out: standbys and pg_receivewal follow the WAL as it is written; for an archive that may lag by a minute set archive_timeout",
                &[
                    "SELECT calls, left(query, 80) AS query FROM pg_stat_statements WHERE query ILIKE '%pg_switch_wal%';",
                    "ALTER SYSTEM SET archive_timeout = '1min'; SELECT pg_reload_conf();",
                ],
            ),
        );
    }
    Answer::of(claims, || "calls of pg_switch_wal".to_string())
}
