//! The server's caches for the status of transactions (`pg_stat_slru`): subtransactions, multixacts, commits, NOTIFY.

use crate::collect::Batch;
use crate::sql::core::Answered;
use crate::sql::counters::Counters;
use crate::sql::json::{list, text};
use crate::sql::probe::Probe;
use record::watched::Slru;
use serde_json::Value;

const COUNTED: &[&str] = &["blks_hit", "blks_read", "blks_written"];

/// The query; `None` before the view exists.
pub(crate) fn question(probe: &Probe) -> Option<String> {
    COUNTED.iter().all(|name| probe.slru.contains(*name)).then(|| {
        "select json_build_object('slru', (select json_agg(r) from (select name, blks_hit, blks_read, blks_written from pg_catalog.pg_stat_slru) r))::text"
            .to_string()
    })
}

/// Turns an answer into lines: only caches that were used.
pub(crate) fn answer(answered: &Answered<'_>, answer: &Value, counters: &mut Counters, batch: &mut Batch) {
    counters.begin();
    for row in list(answer, "slru") {
        let name = text(row, "name");
        let Some(delta) = counters.delta(&name, COUNTED, row).filter(|delta| !delta.is_quiet()) else {
            continue;
        };
        batch.counted(
            answered.t_us,
            answered.interval_us,
            Slru {
                node: answered.node.to_string(),
                name,
                hits: delta.count("blks_hit"),
                reads: delta.count("blks_read"),
                writes: delta.count("blks_written"),
            },
        );
    }
    counters.sweep();
}
