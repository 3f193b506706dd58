//! Functions of users and the time in them (`pg_stat_user_functions`): what happens inside of a statement. The view is empty unless `track_functions` is set.

use crate::collect::Batch;
use crate::sql::core::Answered;
use crate::sql::counters::Counters;
use crate::sql::json::{list, text};
use record::watched::Function;
use serde_json::Value;

/// Functions per sample, by their time.
const FUNCTIONS_MAX: usize = 50;
const COUNTED: &[&str] = &["calls", "total_ms", "self_ms"];

/// The query: functions of the current database that were called.
pub(crate) const QUESTION: &str = "select json_build_object('database', current_database(), 'functions', (select json_agg(r) from (
    select funcid::pg_catalog.regprocedure::text as function, calls, total_time total_ms, self_time self_ms from pg_catalog.pg_stat_user_functions) r))::text";

/// Turns an answer into lines: only functions that were called.
pub(crate) fn answer(answered: &Answered<'_>, answer: &Value, counters: &mut Counters, batch: &mut Batch) {
    counters.begin();
    let mut moved = vec![];
    for row in list(answer, "functions") {
        let function = text(row, "function");
        if let Some(delta) = counters.delta_of_new(&function, COUNTED, row).filter(|delta| !delta.is_quiet())
        {
            moved.push((function, delta));
        }
    }
    counters.sweep();
    moved.sort_by(|left, right| {
        let ms = |delta: &crate::sql::counters::Delta| delta.number("total_ms").unwrap_or(0.0);
        ms(&right.1).total_cmp(&ms(&left.1))
    });
    moved.truncate(FUNCTIONS_MAX);
    for (function, delta) in moved {
        batch.counted(
            answered.t_us,
            answered.interval_us,
            Function {
                node: answered.node.to_string(),
                database: text(answer, "database"),
                function,
                calls: delta.count("calls"),
                total_ms: delta.number("total_ms"),
                self_ms: delta.number("self_ms"),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::watched::Sampled;
    use serde_json::json;

    #[test]
    fn only_functions_that_were_called_have_lines() {
        let mut counters = Counters::default();
        let mut round = |calls: [u64; 2]| {
            let rows = json!({"database": "shop", "functions": [
                {"function": "renew(integer)", "calls": calls[0], "total_ms": calls[0] as f64 * 2.0, "self_ms": 1.0},
                {"function": "idle()", "calls": calls[1], "total_ms": 5.0, "self_ms": 5.0},
            ]});
            let answered = Answered { node: "n1", t_us: 5, interval_us: 1, queried_us: 1, rtt_us: None };
            let mut batch = Batch::default();
            answer(&answered, &rows, &mut counters, &mut batch);
            batch.lines.into_iter().map(|(_, _, line)| line).collect::<Vec<_>>()
        };
        assert!(round([5, 5]).is_empty(), "nothing to compare with");
        let lines = round([8, 5]);
        let [Sampled::Function(line)] = &lines[..] else { panic!("one was called: {lines:?}") };
        assert_eq!(
            (line.function.as_str(), line.calls, line.total_ms),
            ("renew(integer)", Some(3), Some(6.0))
        );
    }
}
