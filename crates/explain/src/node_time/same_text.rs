//! Statements with one text and several ids: the server gives another id for each temporary table, schema or role's own table that the names mean. Each alone
//! is small, so the account has one line for the text. The same is true for lists: before PostgreSQL 18 each length of a list is another statement.

use record::finding::StatementTime;
use record::statement;
use std::collections::HashMap;

/// One statement for each text of a database, with the ids of all that have it. The id of the costliest stays its own.
pub(super) fn merged(mut all: Vec<StatementTime>) -> Vec<(StatementTime, Vec<String>)> {
    all.sort_by(|left, right| right.sessions.total_cmp(&left.sessions));
    let mut found: Vec<(StatementTime, Vec<String>)> = vec![];
    let mut places: HashMap<(String, String), usize> = HashMap::new();
    for one in all {
        let text = statement::without_lengths(&one.text).unwrap_or_else(|| one.text.clone());
        let key = (one.database.clone(), text);
        match places.get(&key).filter(|_| !one.text.is_empty()) {
            Some(place) => {
                let (to, ids) = &mut found[*place];
                add(to, &one);
                ids.push(one.query_id);
            }
            None => {
                places.insert(key, found.len());
                let ids = vec![one.query_id.clone()];
                found.push((one, ids));
            }
        }
    }
    for (one, ids) in &mut found {
        one.entries = (ids.len() > 1).then_some(ids.len() as u64);
    }
    found
}

/// The statements of a node that have no line of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// Entries in an interval, at most.
    pub(super) entries: f64,
    /// Average sessions.
    pub(super) sessions: f64,
}

/// Ids of a text from which on more of its entries are among those without a line.
const IDS_MIN: usize = 10;
/// Entries without a line that are worth it.
const REST_MIN: f64 = 20.0;
/// Of the entries with a line, those of such texts, so that the others can be taken for theirs as well.
const ALIKE_MIN: f64 = 0.8;

/// Shares out the entries without a line among the texts with many ids, where nearly all entries with a line are of such texts.
pub(super) fn with_rest(all: &mut [(StatementTime, Vec<String>)], rest: Rest) {
    let entries: usize = all.iter().filter(|(one, _)| one.is_counted).map(|(_, ids)| ids.len()).sum();
    let is_many = |one: &StatementTime, ids: &[String]| one.is_counted && ids.len() >= IDS_MIN;
    let of_many: usize = all.iter().filter(|(one, ids)| is_many(one, ids)).map(|(_, ids)| ids.len()).sum();
    if rest.entries < REST_MIN || (of_many as f64) < entries as f64 * ALIKE_MIN {
        return;
    }
    for (one, ids) in all.iter_mut().filter(|(one, ids)| is_many(one, ids)) {
        let part = ids.len() as f64 / of_many as f64;
        let sessions = rest.sessions * part;
        let calls = one.calls_per_s.unwrap_or(0.0) * sessions / one.sessions.max(f64::MIN_POSITIVE);
        one.sessions += sessions;
        one.calls_per_s = one.calls_per_s.map(|of_lines| of_lines + calls);
        one.entries = one.entries.map(|of_lines| of_lines + (rest.entries * part).round() as u64);
    }
}

/// Adds the figures of a statement with the same text: times and rates are summed up, figures of an execution are means over the executions of both.
fn add(to: &mut StatementTime, one: &StatementTime) {
    to.sessions += one.sessions;
    let (Some(calls), Some(more)) = (to.calls_per_s, one.calls_per_s) else { return };
    let mean = |left: &mut Option<f64>, right: Option<f64>| {
        let sum = left.unwrap_or(0.0) * calls + right.unwrap_or(0.0) * more;
        *left = (left.is_some() || right.is_some()).then_some(sum / (calls + more).max(f64::MIN_POSITIVE));
    };
    mean(&mut to.mean_ms, one.mean_ms);
    mean(&mut to.plan_ms, one.plan_ms);
    mean(&mut to.jit_ms, one.jit_ms);
    mean(&mut to.rows, one.rows);
    mean(&mut to.blocks, one.blocks);
    mean(&mut to.blocks_read, one.blocks_read);
    mean(&mut to.temp_bytes, one.temp_bytes);
    mean(&mut to.wal_bytes, one.wal_bytes);
    to.calls_per_s = Some(calls + more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_is_one_statement() {
        let of = |id: &str, text: &str, sessions: f64, calls: f64, mean_ms: f64| StatementTime {
            query_id: id.to_string(),
            text: text.to_string(),
            sessions,
            calls_per_s: Some(calls),
            mean_ms: Some(mean_ms),
            ..StatementTime::default()
        };
        let all = vec![
            of("1", "select a", 0.1, 1.0, 100.0),
            of("2", "select a", 0.3, 3.0, 20.0),
            of("3", "", 0.2, 1.0, 5.0),
            of("4", "", 0.2, 1.0, 5.0),
        ];
        let merged = merged(all);
        let first = &merged[0];
        assert_eq!(
            (first.0.query_id.as_str(), first.1.as_slice()),
            ("2", ["2".to_string(), "1".to_string()].as_slice())
        );
        assert_eq!((first.0.sessions, first.0.calls_per_s, first.0.mean_ms), (0.4, Some(4.0), Some(40.0)));
        // Texts that are not known are not the same.
        assert_eq!(merged.len(), 3);
    }

    #[test]
    fn lists_of_all_lengths_are_one_statement_with_what_has_no_line() {
        let list = |n: usize| (1..=n).map(|n| format!("${n}")).collect::<Vec<_>>().join(",");
        let of = |n: usize| StatementTime {
            query_id: n.to_string(),
            text: format!("select a from t where id in ({})", list(n)),
            sessions: 0.01,
            is_counted: true,
            calls_per_s: Some(1.0),
            mean_ms: Some(10.0),
            ..StatementTime::default()
        };
        let mut one = merged((100..150).map(of).collect());
        assert_eq!((one.len(), one[0].0.entries), (1, Some(50)));
        with_rest(&mut one, Rest { entries: 150.0, sessions: 1.5 });
        let found = &one[0].0;
        assert!((found.sessions - 2.0).abs() < 1e-9, "{found:?}");
        assert!(found.calls_per_s.is_some_and(|calls| (calls - 200.0).abs() < 1e-6), "{found:?}");
        assert_eq!(found.entries, Some(200));
        // Where other statements have lines as well, nothing is known of the rest.
        let other = |n: usize| StatementTime { text: format!("select {n}"), ..of(n) };
        let mut mixed = merged((100..150).map(of).chain((0..50).map(other)).collect());
        with_rest(&mut mixed, Rest { entries: 150.0, sessions: 1.5 });
        assert!(mixed.iter().all(|(one, _)| one.sessions < 1.0));
    }
}
