//! SES-01: connections that the server opens to itself or to others, by dblink in a function or trigger.

use crate::case::Case;
use crate::node_time;
use crate::rule::Claim;
use crate::rules::costly::{in_a_line, in_extension, lowered, peculiar_of, plain};
use crate::units;
use record::finding::{Severity, StatementTime};
use record::statement::{self, Verb};
use record::watched::FUNCTION_TEXT;

/// The extension that opens a connection with each call that names none.
const EXTENSION: &str = "dblink";
/// Of the connections, the executions of the statement that opens them, or the rows that it writes, at least and at most.
const PER_CONNECTION_MIN: f64 = 0.3;
const PER_CONNECTION_MAX: f64 = 2.0;
/// Of the statement's samples, those in waits of an extension.
const WAITS_MIN: f64 = 0.1;
/// Of the session time, from which on it is high.
const SHARE_HIGH: f64 = 0.3;
/// Characters of a statement, and of what is unusual about its table.
const STATEMENT_CHARS: usize = 90;
const PECULIAR_CHARS: usize = 120;
/// The number of a claim whose connections a statement opens.
pub(crate) const BY_STATEMENT: &str = "opened_by_statement_share";
/// What ends it.
pub(super) const KEEP: &str = "open the connection once for a session (dblink_connect with a name, and dblink_get_connections() to see whether it is there) \
    instead of with each call, or write the rows in the transaction itself, without dblink; a log that must outlive a rollback can go through a table that \
    another process reads, or through pg_background; a pool in the application changes nothing here";

/// The statement whose executions open the connections.
pub(super) struct Opener<'a> {
    statement: &'a StatementTime,
    /// What calls dblink: a trigger of its table, or a function.
    by: Option<String>,
}

impl<'a> Opener<'a> {
    /// `None` without dblink, or where no statement is executed, or writes rows, as often as connections are opened.
    pub(super) fn of(case: &'a Case, node: &str, opened_per_s: f64) -> Option<Opener<'a>> {
        case.facts("extension").find(|fact| fact.node == node && fact.name == EXTENSION)?;
        let time = node_time::all(case).iter().find(|time| time.node == node)?;
        // A trigger for each row opens as many as rows are written.
        let of_connections = |one: &StatementTime| {
            let times = match statement::parse(&one.text).map(|parsed| parsed.verb) {
                Ok(Verb::Insert | Verb::Update | Verb::Delete) => one.rows.unwrap_or(1.0).max(1.0),
                _ => 1.0,
            };
            one.calls_per_s.unwrap_or(0.0) * times / opened_per_s.max(f64::MIN_POSITIVE)
        };
        let fits = |one: &&StatementTime| {
            let names_it = lowered(&one.text).contains(EXTENSION);
            (PER_CONNECTION_MIN..=PER_CONNECTION_MAX).contains(&of_connections(one))
                && (names_it || in_extension(one) >= WAITS_MIN)
        };
        let statement =
            time.statements.iter().filter(fits).max_by(|left, right| left.share.total_cmp(&right.share))?;
        let triggers = peculiar_of(case, node, &statement.text);
        let trigger =
            triggers.iter().map(|fact| fact.value.as_str()).find(|value| value.contains("trigger "));
        let of_text = || {
            let mut functions = case.facts(FUNCTION_TEXT).filter(|fact| fact.node == node);
            functions.find(|fact| lowered(&fact.value).contains(EXTENSION)).map(|fact| fact.name.as_str())
        };
        Some(Opener { statement, by: trigger.or_else(of_text).map(str::to_string) })
    }

    pub(super) fn severity(&self) -> Severity {
        if self.statement.share >= SHARE_HIGH { Severity::High } else { Severity::Medium }
    }

    /// As the end of the claim. What is known of it is counted for the statement that the client sends, not for one inside of it.
    pub(super) fn words(&self) -> String {
        let text = if self.statement.outer.is_empty() { &self.statement.text } else { &self.statement.outer };
        format!(
            ": by dblink, within a statement that takes {} of the session time{}: {}",
            units::percent(self.statement.share),
            self.by.as_ref().map_or(String::new(), |by| format!(" ({})", plain(by, PECULIAR_CHARS))),
            plain(text, STATEMENT_CHARS)
        )
    }

    pub(super) fn described(&self, claim: Claim) -> Claim {
        claim
            .number(BY_STATEMENT, self.statement.share)
            .because(format!("the statement: {}", in_a_line(self.statement)))
            .because(format!(
                "it is executed {} times a second for {} rows each, about as often as a connection is opened, and its sessions wait in an extension in {} of \
                 their samples; \
                 dblink is installed here, and each of its calls without the name of a connection opens one and closes it",
                units::short(self.statement.calls_per_s.unwrap_or(0.0)),
                units::short(self.statement.rows.unwrap_or(0.0)),
                units::percent(in_extension(self.statement).min(1.0))
            ))
            .not("clients of the server: a pool of the application does not see these connections")
    }
}
