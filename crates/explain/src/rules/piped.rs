//! LOG-04: sessions that sleep in the kernel until what they write to the server's log is taken. PostgreSQL has no wait event for it.

use super::costly::severity;
use super::limit::KINDS;
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::Level;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "LOG-04",
    title: "sessions are blocked while they write to the server's log",
    needs: &[Field("backend", "blocked_write")],
    limits: "a fifth of the looks at processes of active sessions find them asleep in a write to a pipe, a terminal or the socket of the system's log, of 20 \
        looks or more (ours)",
    judge,
    links: &[
        "https://www.postgresql.org/docs/current/runtime-config-logging.html#RUNTIME-CONFIG-LOGGING-WHERE",
    ],
}];

/// Of the looks at active processes, those in such a write.
const SHARE_MIN: f64 = 0.2;
/// Looks from which on a share counts.
const LOOKS_MIN: f64 = 20.0;

fn judge(case: &Case) -> Answer {
    let claims = case.nodes().into_iter().filter_map(|node| of_node(case, node)).collect();
    Answer::of(claims, || "where processes of active sessions sleep in the kernel".to_string())
}

fn of_node(case: &Case, node: &str) -> Option<Claim> {
    let is_its = |process: &Thing<'_>| {
        process.lines.word("node") == node && KINDS.contains(&process.lines.word("backend"))
    };
    let all: Vec<Thing<'_>> = case.things("backend").filter(is_its).collect();
    let series: Vec<_> = all.iter().filter_map(|process| process.lines.series("blocked_write")).collect();
    let looks: f64 = series.iter().map(|series| series.readings() as f64).sum();
    let blocked: f64 = series.iter().map(|series| series.sum()).sum();
    let sessions = series.iter().filter(|series| series.sum() > 0.0).count();
    if looks < LOOKS_MIN || blocked < looks * SHARE_MIN {
        return None;
    }
    let share = blocked / looks;
    let places = all.iter().map(|process| process.lines.word("wchan")).filter(|at| !at.is_empty());
    let place = places.max().unwrap_or("a write").to_string();
    let is_collected = case.setting(node, "logging_collector") == Some("on");
    let (reader, remedy) = match (place.starts_with("unix") || place.starts_with("sock"), is_collected) {
        (true, _) => (
            "the system's log (syslog, journald)",
            "let its service take more (its rate limits, its disk), or log to files with logging_collector = on",
        ),
        (false, true) => {
            ("the logging collector of the server", "give it a faster disk for log_directory, or CPU time")
        }
        (false, false) => (
            "whatever reads its standard error (journald, the runtime of a container, a pipe to a program)",
            "let that program read faster or drop lines, or let the server write files by itself: logging_collector = on, from the next start on",
        ),
    };
    Some(
        Claim::new(
            severity(share),
            Level::DiscriminatingCounter,
            format!(
                "{node}: sessions are blocked while they write lines of the server's log, in {} of the looks at those at work ({}): {reader} does not take \
                    them \
                 fast enough",
                units::percent(share),
                units::counted(sessions, "session")
            ),
        )
        .on_node(node)
        .during(case.one("server", node).map(|server| server.ticks.window()))
        .number("share", share)
        .number("looks", looks)
        .because(format!("the kernel shows them asleep in {place}: the buffer is full, and they wait until it is read"))
        .not("locks, disks of the data and CPUs: such waits have names of their own in PostgreSQL, or count as time on a CPU")
        .remedy(
            format!("{remedy}; and write less: what fails again and again, log_statement, log_min_duration_statement, log_min_error_statement"),
            &[
                "$ for p in $(pgrep -x postgres); do ls -l /proc/$p/fd/2; done | sort -k 9 | uniq -c -f 8 | head -n 5 # where the log goes",
                "SELECT name, setting, source FROM pg_settings WHERE name IN ('log_destination', 'logging_collector', 'log_directory', 'log_statement', \
                    'log_min_duration_statement', 'log_min_messages');",
            ],
        ),
    )
}
