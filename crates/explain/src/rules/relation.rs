//! LCK-09: command after command takes a table for itself, each for a short time.

use super::costly::{busy, lowered, plain};
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity};
use std::collections::BTreeSet;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "LCK-09",
    title: "one command after the other takes a table for itself",
    needs: &[Looked("block"), Field("server", "sessions_active")],
    limits: "20 % of the session time in waits for locks of relations, behind three sessions or more one after the other that change a definition, \
        empty, refresh or lock a table (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-TABLES"],
}];

/// The share of the session time.
const SHARE_MIN: f64 = 0.2;
/// From here on it is high.
const SHARE_HIGH: f64 = 0.5;
/// Sessions at the end of the chains.
const ROOTS_MIN: usize = 3;
/// Of the waits that were seen, those behind such commands.
const OF_WAITS_MIN: f64 = 0.5;
/// Characters of a statement.
const STATEMENT_CHARS: usize = 160;

/// Commands that lock a table against others, by words that they hold, also where a DO block or EXECUTE wraps them.
const COMMANDS: [&str; 10] = [
    "partition of",
    "attach partition",
    "detach partition",
    "alter table",
    "create index",
    "create trigger",
    "drop ",
    "truncate",
    "lock table",
    "refresh materialized",
];

/// The command that a text holds.
fn command(text: &str) -> Option<&'static str> {
    let text = lowered(text);
    COMMANDS.into_iter().find(|command| text.contains(command))
}

/// What was seen of one relation.
struct Taken<'a> {
    relation: &'a str,
    command: &'static str,
    text: &'a str,
    roots: usize,
}

/// The relation that most of the waits are for, and the commands behind which they are.
fn taken<'a>(case: &'a Case, node: &'a str) -> Option<Taken<'a>> {
    let waits: Vec<Thing<'a>> =
        case.at("block", node).filter(|block| block.lines.word("lock_type") == "relation").collect();
    let commands: Vec<(&Thing<'a>, &'static str)> =
        waits.iter().filter_map(|block| Some((block, command(block.lines.word("blocker_query"))?))).collect();
    let (first, named) = commands.first()?;
    let roots: BTreeSet<u64> =
        commands.iter().filter_map(|(block, _)| block.lines.last("root").map(|root| root as u64)).collect();
    let is_most = commands.len() as f64 >= waits.len() as f64 * OF_WAITS_MIN;
    (is_most && roots.len() >= ROOTS_MIN).then(|| Taken {
        relation: first.lines.word("relation"),
        command: named,
        text: first.lines.word("blocker_query"),
        roots: roots.len(),
    })
}

/// The partition of a table of which most rows are read while new ones are made: the default one, which has to be searched for rows of the new one.
fn searched<'a>(case: &'a Case, node: &'a str, parent: &str) -> Option<(&'a str, f64)> {
    let parts = case.at("table", node).filter(|table| table.lines.word("partition_of") == parent);
    let read = parts.filter_map(|table| {
        let rows = table.lines.sum("seq_rows").filter(|rows| *rows > 0.0)?;
        Some((table.lines.word("relation"), table.lines.last("live_rows").unwrap_or(0.0), rows))
    });
    let most = read.max_by(|left, right| left.2.total_cmp(&right.2))?;
    Some((most.0, most.1))
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let share =
            node_time::share_of(case, &time.node, |kind, event| kind == "Lock" && event == "relation")
                .unwrap_or(0.0);
        let Some(taken) = taken(case, &time.node).filter(|_| share >= SHARE_MIN) else { continue };
        claims.push(of_relation(case, time, &taken, share));
    }
    Answer::of(claims, || "waits for locks of relations, and the commands that hold them".to_string())
}

fn of_relation(case: &Case, time: &NodeTime, taken: &Taken<'_>, share: f64) -> Claim {
    let is_partition = ["partition of", "attach partition"].contains(&taken.command);
    let default = is_partition.then(|| searched(case, &time.node, taken.relation)).flatten();
    let why = match default {
        Some((default, rows)) => format!(
            ": each new partition reads all {} rows of {default} under that lock, to see whether some belong to it (the default partition)",
            units::count(rows)
        ),
        None => String::new(),
    };
    let remedy = match default {
        Some(_) => {
            "keep the default partition empty: move its rows into partitions of their own; give it a CHECK constraint that excludes the new range \
             before a partition is attached, \
             or make partitions ahead, at a quiet hour"
        }
        None => {
            "let such commands run at a quiet hour, many of them in one, and with a lock_timeout; CONCURRENTLY where there is such a form"
        }
    };
    Claim::new(
        if share >= SHARE_HIGH { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!(
            "{}: sessions wait {} of their time for {}, which one command after the other takes for itself ({}, by {} sessions){why}",
            time.node,
            units::percent(share),
            taken.relation,
            taken.command.to_ascii_uppercase().trim(),
            taken.roots
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", share)
    .number("sessions", taken.roots as f64)
    .because(format!("a session at the end of a chain runs: {}", plain(taken.text, STATEMENT_CHARS)))
    .not("one long command: the sessions that block are new ones again and again")
    .remedy(
        remedy,
        &["SELECT pid, backend_start, application_name, left(query, 80) AS query FROM pg_stat_activity WHERE query ~* \
            '(partition|alter|truncate|create|drop|lock|refresh)' AND state = 'active';"],
    )
}

#[cfg(test)]
mod tests {
    use super::command;

    #[test]
    fn commands_are_found_inside_of_blocks() {
        assert_eq!(
            command("DO $$ BEGIN EXECUTE format('CREATE TABLE %I  PARTITION OF t"),
            Some("partition of")
        );
        assert_eq!(command("alter table t add column a int"), Some("alter table"));
        assert_eq!(command("UPDATE t SET a = 1"), None);
    }
}
