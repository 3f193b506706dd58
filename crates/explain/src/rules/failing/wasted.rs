//! The time that failed executions of a statement have taken: a few errors waste much if each ends long work.

use super::Kind;
use crate::case::Case;
use crate::node_time;
use crate::rules::costly::{has_not_ended, in_a_line, lowered};
use crate::units;
use record::finding::{NodeTime, StatementTime};

/// Of the session time, from which on a rare error matters.
const SHARE_MIN: f64 = 0.1;
/// Seconds of work that were in vain.
const SECONDS_MIN: f64 = 2.0;
/// One error may be anything.
const ERRORS_MIN: f64 = 2.0;
/// Characters of a statement that the log's events keep, less those of a cut in the middle of a word.
const COMPARED_CHARS: usize = 280;

/// What the errors of a kind have wasted.
pub(super) struct Wasted {
    /// Of the session time.
    pub(super) share: f64,
    /// Seconds of sessions.
    pub(super) seconds: f64,
    /// The statement with the largest part of it.
    pub(super) statement: String,
}

impl Wasted {
    /// `None` if it is little, or not known.
    pub(super) fn of(case: &Case, node: &str, kind: &Kind<'_>) -> Option<Wasted> {
        let time = node_time::all(case).iter().find(|time| time.node == node && !time.is_idle())?;
        let covered_s = node_time::polled_s(case, node, &node_time::windows(case));
        let all_s = time.active * covered_s;
        let mut each: Vec<(f64, &StatementTime)> = time
            .statements
            .iter()
            .filter_map(|statement| Some((wasted_s(case, time, statement, kind, all_s)?, statement)))
            .collect();
        each.sort_by(|left, right| right.0.total_cmp(&left.0));
        let seconds: f64 = each.iter().map(|(seconds, _)| seconds).sum();
        let share = seconds / all_s.max(f64::MIN_POSITIVE);
        let is_much = kind.count >= ERRORS_MIN && share >= SHARE_MIN && seconds >= SECONDS_MIN;
        let (_, largest) = each.first().filter(|_| is_much)?;
        Some(Wasted { share, seconds, statement: in_a_line(largest) })
    }

    /// As the begin of a claim: how often, and what it costs.
    pub(super) fn words(&self, count: f64) -> String {
        format!(
            "{} of the session time goes into {} that end with an error, after {} each",
            units::percent(self.share.min(1.0)),
            units::counted(count as usize, "execution"),
            units::seconds(self.seconds / count.max(1.0))
        )
    }
}

/// The time of the executions of a statement that ended with this error: all of it where none has ended otherwise, else as long as the others take.
fn wasted_s(
    case: &Case,
    time: &NodeTime,
    statement: &StatementTime,
    kind: &Kind<'_>,
    all_s: f64,
) -> Option<f64> {
    let is_of_it = |text: &str| !text.is_empty() && is_same(text, &statement.text);
    let errors: f64 = kind
        .events
        .iter()
        .filter(|event| is_of_it(Case::word_of(event, "statement")))
        .map(|event| event.times())
        .sum();
    if errors == 0.0 {
        return None;
    }
    match statement.mean_ms.filter(|_| statement.calls_per_s.is_some_and(|calls| calls > 0.0)) {
        Some(mean_ms) => Some(errors * mean_ms / 1e3),
        None if has_not_ended(case, &time.node, statement) || !statement.is_counted => {
            Some(statement.share * all_s)
        }
        None => None,
    }
}

/// Whether the statement of an error, with parameters for its constants, is this one: parameters may have other numbers, and the log's is cut.
fn is_same(logged: &str, text: &str) -> bool {
    let (logged, text) = (comparable(logged), comparable(text));
    !logged.is_empty() && logged == text
}

fn comparable(text: &str) -> String {
    let mut out = String::new();
    let mut rest = lowered(text.trim_end_matches([';', ' ']));
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..=at]);
        rest = rest[at + 1..].trim_start_matches(|c: char| c.is_ascii_digit()).to_string();
    }
    out.push_str(&rest);
    out.chars().take(COMPARED_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn a_logged_statement_is_that_of_the_account_whatever_its_parameters_are_numbered() {
        assert!(is_same("SELECT a FROM t\n WHERE b = $3;", "select a from t where b = $1"));
        assert!(!is_same("SELECT a FROM t", "SELECT a FROM tt"));
        assert!(!is_same("", ""));
    }
}
