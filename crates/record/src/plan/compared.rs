//! A plan beside what a run measured.

use super::{Plan, Unit};
use crate::model::Step;
use crate::totals::LoadTotals;
use serde::{Deserialize, Serialize};

/// One figure of a plan beside what a step measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Compared {
    /// The step.
    pub step: String,
    /// What it is.
    pub name: String,
    /// The planned value.
    pub planned: f64,
    /// The measured value.
    pub measured: f64,
    /// The unit of both.
    pub unit: Unit,
    /// Measured divided by planned, minus 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<f64>,
}

impl Plan {
    /// The figures of the plan that a step measured: of loads of the plan's dataset, and of runs if the plan has their rate.
    pub fn compared(&self, step: &Step) -> Vec<Compared> {
        let figures = match step.verb.as_str() {
            "load" if step.name == self.input.dataset => self.compared_load(step),
            "run" => self.compared_run(step),
            _ => vec![],
        };
        let compare = |(name, unit, planned, measured): (&str, Unit, Option<f64>, Option<f64>)| {
            let (planned, measured) = (planned?, measured?);
            Some(Compared {
                step: step.key.clone(),
                name: name.into(),
                planned,
                measured,
                unit,
                difference: (planned != 0.0).then(|| measured / planned - 1.0),
            })
        };
        figures.into_iter().filter_map(compare).collect()
    }

    fn compared_load(&self, step: &Step) -> Vec<(&'static str, Unit, Option<f64>, Option<f64>)> {
        let totals: LoadTotals = step.totals_as();
        let (size, time, summary) = (&self.size, &self.time, &step.summary);
        let rows = totals.rows_in_ledger;
        // A load that continued another one wrote only its own rows.
        let loaded = summary.rows.filter(|rows| *rows > 0);
        let per_row = |bytes: u64, rows: u64| (rows > 0).then(|| bytes as f64 / rows as f64);
        let disk = totals.table_bytes_on_disk + totals.index_bytes_on_disk;
        let is_whole = loaded == Some(rows);
        vec![
            ("rows", Unit::Count, Some(time.rows as f64), (rows > 0).then_some(rows as f64)),
            (
                "rows per second",
                Unit::PerSecond,
                time.rows_per_s,
                summary.rows_per_s.filter(|rate| *rate > 0.0),
            ),
            ("copy", Unit::Seconds, time.copy_s, is_whole.then_some(summary.duration_s)),
            ("indexes", Unit::Seconds, time.index_s, is_whole.then_some(totals.index_seconds)),
            ("duration", Unit::Seconds, time.total_s, is_whole.then_some(totals.total_seconds)),
            (
                "table bytes per row",
                Unit::BytesPerRow,
                per_row(size.heap_bytes + size.toast_bytes, size.rows),
                per_row(totals.table_bytes_on_disk, rows),
            ),
            (
                "index bytes per row",
                Unit::BytesPerRow,
                per_row(size.index_bytes, size.rows),
                per_row(totals.index_bytes_on_disk, rows),
            ),
            ("bytes per row", Unit::BytesPerRow, per_row(size.disk_bytes, size.rows), per_row(disk, rows)),
            (
                "WAL bytes per row",
                Unit::BytesPerRow,
                per_row(size.wal_bytes, size.rows),
                loaded.and_then(|rows| per_row(totals.wal_bytes?, rows)),
            ),
            (
                "disk",
                Unit::Bytes,
                per_row(size.disk_bytes, size.rows).map(|bytes| bytes * time.rows as f64),
                (rows > 0).then_some(disk as f64),
            ),
        ]
    }

    fn compared_run(&self, step: &Step) -> Vec<(&'static str, Unit, Option<f64>, Option<f64>)> {
        let workload = &self.input.workload;
        let client_us = workload.tps.map(|_| workload.client_us_per_transaction);
        vec![
            ("transactions per second", Unit::PerSecond, workload.tps, step.summary.tps),
            (
                "client CPU per transaction",
                Unit::Microseconds,
                client_us,
                step.summary.client_cpu_us_per_transaction,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let mut plan = Plan::default();
        plan.input.dataset = "a".into();
        plan.size.rows = 100;
        plan.size.heap_bytes = 1_000;
        plan.size.index_bytes = 200;
        plan.size.disk_bytes = 1_200;
        plan.size.wal_bytes = 1_100;
        plan.time.rows = 100;
        plan.time.rows_per_s = Some(10.0);
        plan.input.workload.tps = Some(50.0);
        plan
    }

    fn loaded(rows: u64, in_ledger: u64) -> Step {
        let mut step = Step { verb: "load".into(), name: "a".into(), key: "load".into(), ..Step::default() };
        step.summary.rows = Some(rows);
        step.summary.rows_per_s = Some(8.0);
        step.set_totals(&LoadTotals {
            rows_in_ledger: in_ledger,
            table_bytes_on_disk: 11 * in_ledger,
            index_bytes_on_disk: 2 * in_ledger,
            wal_bytes: Some(12 * rows),
            ..LoadTotals::default()
        });
        step
    }

    #[test]
    fn a_load_is_compared_per_row_whatever_its_length() {
        let of = |step: &Step, name: &str| {
            plan()
                .compared(step)
                .into_iter()
                .find(|one| one.name == name)
                .map(|one| (one.planned, one.measured))
        };
        let step = loaded(50, 50);
        assert_eq!(of(&step, "bytes per row"), Some((12.0, 13.0)));
        assert_eq!(of(&step, "rows per second"), Some((10.0, 8.0)));
        assert_eq!(of(&step, "WAL bytes per row"), Some((11.0, 12.0)));
        let difference =
            plan().compared(&step).into_iter().find(|one| one.name == "rows").and_then(|one| one.difference);
        assert_eq!(difference, Some(-0.5));
        // What continued an earlier load has no duration to compare, and its WAL is that of its own rows.
        let step = loaded(10, 50);
        assert_eq!(of(&step, "WAL bytes per row"), Some((11.0, 12.0)));
        assert_eq!(of(&step, "duration"), None);
    }

    #[test]
    fn other_datasets_and_verbs_are_not_compared() {
        let other = Step { name: "b".into(), ..loaded(50, 50) };
        assert_eq!(plan().compared(&other), vec![]);
        let verify = Step { verb: "verify".into(), ..loaded(50, 50) };
        assert_eq!(plan().compared(&verify), vec![]);
        let mut run = Step { verb: "run".into(), ..Step::default() };
        run.summary.tps = Some(60.0);
        let compared = plan().compared(&run);
        assert_eq!(
            compared.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
            ["transactions per second"]
        );
    }
}
