//! WAL-13: files of the WAL that commands close long before they are full.

use super::super::costly::{lowered, severity};
use crate::case::{Case, Lines, Thing};
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::units;
use record::finding::{Level, Severity};

/// Switches a second from which on it is worth a word, and from which on it is no longer low.
const PER_S_MIN: f64 = 0.5;
const PER_S_MEDIUM: f64 = 1.0;

/// Bytes of a megabyte, as settings count it.
const FILE_MB: f64 = 1024.0 * 1024.0;
/// The default of wal_segment_size.
const FILE_BYTES: f64 = 16.0 * FILE_MB;

/// Files that calls may have closed in a second.
struct Switches {
    per_s: f64,
    /// The size of a file.
    bytes: f64,
    /// The calls may do nothing, and the record does not hold it.
    is_unknown: bool,
}

/// Calls of a second, by the counts of statements, and at most the files by which the WAL went on: a call does nothing where nothing was written since the
/// last one, or where the condition of its statement is not true.
fn switches(case: &Case, server: Thing<'_>) -> Switches {
    let text = |one: &Thing<'_>| lowered(case.query(one.lines.word("query_id")).unwrap_or_default());
    let calling = case.at("statement", server.place).filter(|one| text(one).contains("pg_switch_wal"));
    let (mut calls, mut has_condition) = (0.0, false);
    for one in calling {
        calls += one.lines.rate("calls").unwrap_or(0.0);
        has_condition |= [" case ", " where "].iter().any(|word| text(&one).contains(word));
    }
    let size = case.setting(server.place, "wal_segment_size").and_then(units::setting);
    let bytes = size.filter(|bytes| *bytes > 0.0).unwrap_or(FILE_BYTES);
    let position = |of: fn(&Lines, &str) -> Option<f64>| of(server.lines, "wal_position_bytes_total");
    let seconds = server.lines.ticks.window().length_us() as f64 / 1e6;
    let advanced = position(Lines::first).zip(position(Lines::last)).map(|(first, last)| last - first);
    let files = advanced.filter(|_| seconds > 0.0).map(|advanced| advanced / bytes / seconds);
    Switches {
        per_s: files.map_or(calls, |files| files.min(calls)),
        bytes,
        is_unknown: files.is_none() || has_condition,
    }
}

pub(super) fn switched(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let Switches { per_s, bytes, is_unknown } = switches(case, server);
        if per_s < PER_S_MIN {
            continue;
        }
        let waits = node_time::share_waiting(case, server.place, |kind, event| {
            (kind == "IO" || kind == "LWLock") && event.to_ascii_lowercase().contains("wal")
        });
        let share = waits.unwrap_or(0.0);
        claims.push(
            Claim::new(
                if per_s >= PER_S_MEDIUM && !is_unknown { severity(share.max(0.1)) } else { Severity::Low },
                Level::DiscriminatingCounter,
                format!(
                    "{}: pg_switch_wal() is called {} times a second: each call closes a file of the WAL that is not full, and fills it with zeros to \
                        its {}, \
                     which are written, sent to standbys and archived",
                    server.place,
                    units::short(per_s),
                    format_args!("{} MB", units::short(bytes / FILE_MB))
                ),
            )
            .on_node(server.place)
            .during([server.lines.ticks.window()])
            .number("switches_per_s", per_s)
            .number("share", share)
            .because(format!("{} of the session time waits for the WAL", units::percent(share)))
            .with(is_unknown.then_some("whether each call closes a file: one does nothing where nothing was written since the last"), Claim::lacking)
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
