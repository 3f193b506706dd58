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
    /// The figures of the plan that a step measured: of loads of the plan's dataset, and of runs on it.
    pub fn compared(&self, step: &Step) -> Vec<Compared> {
        let figures = match step.verb.as_str() {
            "load" if step.name == self.input.dataset => self.compared_load(step),
            "run" if self.drove_other(step).is_none() => self.compared_run(step),
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
        // Nothing on disk is planned of an engine that stores rows otherwise.
        let planned = |bytes: u64| per_row(bytes, size.rows).filter(|_| self.input.other_storage.is_none());
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
                planned(size.heap_bytes + size.toast_bytes),
                per_row(totals.table_bytes_on_disk, rows),
            ),
            (
                "index bytes per row",
                Unit::BytesPerRow,
                planned(size.index_bytes),
                per_row(totals.index_bytes_on_disk, rows),
            ),
            ("bytes per row", Unit::BytesPerRow, planned(size.disk_bytes), per_row(disk, rows)),
            (
                "WAL bytes per row",
                Unit::BytesPerRow,
                planned(size.wal_bytes),
                loaded.and_then(|rows| per_row(totals.wal_bytes?, rows)),
            ),
            (
                "disk",
                Unit::Bytes,
                planned(size.disk_bytes).map(|bytes| bytes * time.rows as f64),
                (rows > 0).then_some(disk as f64),
            ),
        ]
    }

    fn compared_run(&self, step: &Step) -> Vec<(&'static str, Unit, Option<f64>, Option<f64>)> {
        let workload = &self.input.workload;
        let planned_sessions = Some(workload.sessions).filter(|sessions| *sessions > 0);
        let sessions = step.parameters.get("sessions").and_then(serde_json::Value::as_f64);
        let client_us = Some(workload.client_us_per_transaction).filter(|us| *us > 0.0);
        let (rows_of_main, rows) = (self.rows_of_main(), step.dataset.as_ref().map(|dataset| dataset.rows));
        vec![
            (
                "rows of the dataset",
                Unit::Count,
                rows_of_main.map(|rows| rows as f64),
                rows.map(|rows| rows as f64),
            ),
            ("sessions", Unit::Count, planned_sessions.map(|count| count as f64), sessions),
            ("transactions per second", Unit::PerSecond, workload.tps, step.summary.tps),
            (
                "client CPU per transaction",
                Unit::Microseconds,
                client_us,
                step.summary.client_cpu_us_per_transaction,
            ),
        ]
    }

    /// The rows of the main table as a run directory has them, if the plan is for all of them.
    fn rows_of_main(&self) -> Option<u64> {
        let rows: u64 = self.input.flags.get("rows")?.parse().ok()?;
        (self.time.rows >= self.size.rows).then_some(rows)
    }

    /// The datasets that a run drove, if the plan's is not among them. A script of the user's own has none.
    fn drove_other(&self, step: &Step) -> Option<String> {
        let driven: Vec<&str> =
            step.dataset.iter().chain(&step.further_datasets).map(|dataset| dataset.name.as_str()).collect();
        let is_other = !driven.is_empty() && !driven.contains(&self.input.dataset.as_str());
        is_other.then(|| driven.join(" and "))
    }

    /// What of a step cannot be compared, in one sentence for each reason.
    pub fn not_compared(&self, step: &Step) -> Vec<String> {
        if step.verb != "run" {
            return vec![];
        }
        if let Some(driven) = self.drove_other(step) {
            return vec![format!("The run drove {driven}, which the plan is not for: nothing is compared.")];
        }
        let lacks = |is_given: bool, what: &str, flag: &str| {
            (!is_given).then(|| format!("The plan has no {what}: give plan {flag} to compare it."))
        };
        let workload = &self.input.workload;
        [
            lacks(workload.tps.is_some(), "rate of transactions", "--tps"),
            lacks(workload.sessions > 0, "number of sessions", "-c"),
        ]
        .into_iter()
        .flatten()
        .collect()
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

    #[test]
    fn a_run_is_compared_by_what_the_plan_has_and_the_rest_is_named() {
        let mut plan = plan();
        plan.input.workload.tps = None;
        plan.input.workload.client_us_per_transaction = 6.0;
        plan.input.flags.insert("rows".into(), "100".into());
        let mut run = Step { verb: "run".into(), ..Step::default() };
        run.dataset = Some(crate::model::Dataset { name: "a".into(), rows: 80, ..Default::default() });
        run.parameters.insert("sessions".into(), 4.into());
        (run.summary.tps, run.summary.client_cpu_us_per_transaction) = (Some(60.0), Some(9.0));
        let of = |plan: &Plan, run: &Step| -> Vec<(String, f64, f64)> {
            plan.compared(run).into_iter().map(|one| (one.name, one.planned, one.measured)).collect()
        };
        assert_eq!(
            of(&plan, &run),
            [("rows of the dataset".into(), 100.0, 80.0), ("client CPU per transaction".into(), 6.0, 9.0)]
        );
        let lacking = plan.not_compared(&run).join(" ");
        assert!(lacking.contains("--tps") && lacking.contains("-c"), "{lacking}");
        (plan.input.workload.tps, plan.input.workload.sessions) = (Some(50.0), 8);
        assert_eq!(of(&plan, &run).len(), 4);
        assert!(plan.not_compared(&run).is_empty());
        // A plan of which only a part fits has another number of rows than its flags.
        plan.time.rows = 50;
        assert_eq!(of(&plan, &run).len(), 3);
        // A run on other data is not compared, and that is reported; a mix with the plan's data is.
        run.dataset = Some(crate::model::Dataset { name: "b".into(), ..Default::default() });
        assert_eq!(of(&plan, &run), []);
        assert!(plan.not_compared(&run)[0].contains("The run drove b"), "{:?}", plan.not_compared(&run));
        run.further_datasets = vec![crate::model::Dataset { name: "a".into(), ..Default::default() }];
        assert!(!of(&plan, &run).is_empty() && plan.not_compared(&run).is_empty());
    }
}
