//! What a benchmark has written into a summary.

use serde_json::Value;

/// The entry of one benchmark.
#[derive(Clone, Debug)]
pub(crate) struct Found(pub(crate) Value);

impl Found {
    /// The entry of this name; a summary has one at most.
    pub(crate) fn of(summary: &Value, name: &str) -> Found {
        let all = summary["benchmarks"].as_array().expect("benchmarks");
        let own: Vec<&Value> = all.iter().filter(|found| found["name"] == name).collect();
        assert_eq!(own.len(), 1, "{name} in {all:#?}");
        Found(own[0].clone())
    }

    fn one(&self, list: &str, name: &str) -> Option<&Value> {
        self.0[list].as_array()?.iter().find(|one| one["name"] == name)
    }

    /// The value of a figure.
    pub(crate) fn figure(&self, name: &str) -> f64 {
        self.one("figures", name).expect(name)["value"].as_f64().expect("a value")
    }

    /// The value of a setting; `None` where it has words only, or is not there.
    pub(crate) fn setting(&self, name: &str) -> Option<f64> {
        self.one("settings", name)?["value"].as_f64()
    }

    /// A check.
    pub(crate) fn check(&self, name: &str) -> Option<&Value> {
        self.one("checks", name)
    }

    /// A row of a table.
    pub(crate) fn row(&self, table: &str, row: usize) -> Vec<Option<f64>> {
        let values = &self.one("tables", table).expect(table)["rows"][row]["values"];
        values.as_array().expect("values").iter().map(Value::as_f64).collect()
    }
}
