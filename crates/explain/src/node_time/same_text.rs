//! Statements with one text and several ids: the server gives another id for each temporary table, schema or role's own table that the names mean. Each
//! alone is
//! small, so the account has one line for the text.

use record::finding::StatementTime;
use std::collections::HashMap;

/// One statement for each text of a database, with the ids of all that have it. The id of the costliest stays its own.
pub(super) fn merged(mut all: Vec<StatementTime>) -> Vec<(StatementTime, Vec<String>)> {
    all.sort_by(|left, right| right.sessions.total_cmp(&left.sessions));
    let mut found: Vec<(StatementTime, Vec<String>)> = vec![];
    let mut places: HashMap<(String, String), usize> = HashMap::new();
    for one in all {
        let key = (one.database.clone(), one.text.clone());
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
    found
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
}
