//! LCK-07: many short waits for the lock of one table, behind ever other sessions that do the same.

use super::super::costly::{peculiar_of, plain};
use super::holder::{self, Deed, Modes};
use super::root_of;
use crate::case::{Case, TableQueue};
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::units;
use record::finding::{Level, Severity};

/// The share of the session time in waits for the table.
const SHARE_MIN: f64 = 0.2;
/// From which on it is high.
const SHARE_HIGH: f64 = 0.5;
/// Waits seen.
const SEEN_MIN: u64 = 5;
/// Characters of a statement in a claim.
const STATEMENT_CHARS: usize = 90;
/// What of a statement decides its kind: digits differ from one to the next.
const KIND_CHARS: usize = 40;

/// The statement seen most often, with those of its kind, of those that take a strong lock: its text, what it does, and how often it was seen.
fn culprit(queue: &TableQueue) -> Option<(&str, Deed, u64)> {
    let kind = |text: &str| -> String {
        text.chars().filter(|c| !c.is_ascii_digit()).take(KIND_CHARS).collect::<String>().to_lowercase()
    };
    let strong =
        queue.statements.iter().filter(|(text, _)| holder::of_table(text, Modes::default()).is_some());
    let seen_of = |text: &str| -> u64 {
        queue.statements.iter().filter(|(other, _)| kind(other) == kind(text)).map(|(_, seen)| seen).sum()
    };
    let (text, _) = strong.max_by_key(|(text, _)| seen_of(text))?;
    Some((text.as_str(), holder::of_table(text, Modes::default())?, seen_of(text)))
}

/// The statement seen most often at the root where none of them shows the lock that it holds: a trigger of its table has taken it.
fn hidden<'a>(case: &Case, node: &str, queue: &'a TableQueue) -> Option<(&'a str, Deed, u64)> {
    let (text, seen) = queue.statements.iter().max_by_key(|(_, seen)| **seen)?;
    let has_trigger = peculiar_of(case, node, text).iter().any(|fact| fact.value.contains("trigger "));
    // Without one the session at the root may wait for something else than this table.
    if !has_trigger {
        return None;
    }
    let what = "a trigger of its table takes a lock of a whole table (LOCK TABLE, or a command that defines something), and its transaction keeps it to \
        its end";
    let text_of_remedy = "lock rows (SELECT ... FOR UPDATE of a counter's row) or a key (pg_advisory_xact_lock) instead of a table, as late as possible, \
        and let \
        the transaction not wait for anything else meanwhile (a device, another service)";
    Some((text.as_str(), Deed { what, text: text_of_remedy, commands: vec![] }, *seen))
}

/// LCK-07.
pub(super) fn queue(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in node_time::all(case) {
        let node = time.node.as_str();
        // LCK-01 names a session that does it alone.
        let has_one_root = case.at("block", node).any(|root| {
            root.lines.word("lock_type") == "relation"
                && root_of(case, &root).is_some_and(|root| root.is_alone())
        });
        let lost = node_time::share_waiting(case, node, |kind, event| (kind, event) == ("Lock", "relation"));
        let Some(lost) = lost.filter(|lost| *lost >= SHARE_MIN && !has_one_root) else { continue };
        let all: u64 = case.table_queues(node).map(|(_, queue)| queue.seen).sum();
        for (relation, queue) in case.table_queues(node) {
            let share = lost * queue.seen as f64 / all.max(1) as f64;
            if share < SHARE_MIN || queue.seen < SEEN_MIN {
                continue;
            }
            let Some((statement, deed, seen)) = culprit(queue).or_else(|| hidden(case, node, queue)) else {
                continue;
            };
            claims.push(
                Claim::new(
                    if share >= SHARE_HIGH { Severity::High } else { Severity::Medium },
                    Level::DiscriminatingCounter,
                    format!(
                        "{node}: {} of the session time waits for the lock of {relation}: {}; {}",
                        units::percent(share),
                        plain(statement, STATEMENT_CHARS),
                        deed.what
                    ),
                )
                .on_node(node)
                .during(case.one("server", node).map(|server| server.ticks.window()))
                .number("share", share)
                .number("roots", queue.roots.len() as f64)
                .because(format!(
                    "{} at the root in turn; statements of this kind were there, or wanted such a lock, {}",
                    units::counted(queue.roots.len(), "session"),
                    units::counted(seen as usize, "time")
                ))
                .not("one session that blocks the others (LCK-01), or a queue behind one schema change (LCK-04)")
                .remedy(deed.text, &["SET lock_timeout = '2s'; -- before schema changes: they give up instead of holding up everybody"]),
            );
        }
    }
    Answer::of(claims, || "waits for the locks of tables, and the statements at their roots".to_string())
}
