//! Promises of a cluster and their verdicts: one line per promise, setting and fault, with the number of observations, a witness, the rule, and what
//! to change.
//!
//! "0 seen" is evidence only with a number behind it, so every line has `n`, the bound that n allows (below 3/n with 95 % confidence, the rule of
//! three) and a positive control: the same observation where the anomaly must show.

mod failover;
mod of_steps;

pub use failover::{Failover, Spread};
pub use of_steps::{of, seen, verdict};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What became of a promise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Forbidden, and seen.
    Broken,
    /// Allowed by the engine or a setting, or not promised at all, and seen.
    ByDesign,
    /// Allowed by the engine or a setting, or not promised at all, and not seen this time.
    AllowedNotSeen,
    /// Forbidden, looked for and not seen.
    Kept,
    /// Unknown: the control showed nothing, or too little was looked at.
    #[default]
    NotTested,
    /// The fault cannot be injected here.
    NotPossible,
    /// A standing of a newer version.
    #[serde(other)]
    Unknown,
}

impl Standing {
    /// All that this version writes, worst first.
    pub const ALL: [Standing; 6] = [
        Standing::Broken,
        Standing::ByDesign,
        Standing::AllowedNotSeen,
        Standing::Kept,
        Standing::NotTested,
        Standing::NotPossible,
    ];

    /// What a stronger promise comes to when a weaker one that it contains has come to `self`: whatever refutes the weaker one refutes it, too,
    /// and where the weaker one could not be judged or is not promised, it is neither.
    #[must_use]
    pub fn bounds(self, stronger: Standing) -> Standing {
        match (self, stronger) {
            (Standing::Broken, _) => Standing::Broken,
            (Standing::ByDesign, _) => stronger.min(Standing::ByDesign),
            (
                Standing::NotTested | Standing::NotPossible | Standing::Unknown,
                Standing::Kept | Standing::AllowedNotSeen,
            ) => Standing::NotTested,
            (Standing::AllowedNotSeen, Standing::Kept) => Standing::AllowedNotSeen,
            _ => stronger,
        }
    }

    /// In words.
    pub fn description(self) -> &'static str {
        match self {
            Standing::Broken => "BROKEN",
            Standing::ByDesign => "by design",
            Standing::AllowedNotSeen => "allowed, not seen",
            Standing::Kept => "kept",
            Standing::NotTested => "not tested",
            Standing::NotPossible => "not possible here",
            Standing::Unknown => "unknown",
        }
    }
}

/// In what the things behind a figure were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// Each SELECT by itself: in a snapshot of its own, if its engine gives one.
    Statements,
    /// Each transaction by itself.
    Transactions,
    /// Each node by itself; no snapshot spans them.
    Nodes,
    /// From the results that the sessions received.
    Answers,
    /// Nothing was read, or an earlier version did not say.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Reading {
    /// In words; empty: nothing is known.
    pub fn description(self) -> &'static str {
        match self {
            Reading::Statements => "each SELECT separately, without a common snapshot",
            Reading::Transactions => "each transaction separately, without a common snapshot",
            Reading::Nodes => "each node separately, without a common snapshot",
            Reading::Answers => "the results that the sessions received",
            Reading::Unknown => "",
        }
    }

    /// Whether there is nothing to say.
    pub fn is_unknown(&self) -> bool {
        *self == Reading::Unknown
    }
}

/// One promise under one setting and one fault.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Promise {
    /// The workload that watched it: `ack`, `bank`.
    pub workload: String,
    /// What is promised, as a sentence without a full stop.
    pub promise: String,
    /// Under which setting: `synchronous_commit=off`, `SERIALIZABLE`.
    pub setting: String,
    /// Under which fault; empty: none.
    pub fault: String,
    /// What became of it.
    pub standing: Standing,
    /// How much was looked at.
    pub n: u64,
    /// Of what: `acknowledged commits`.
    pub unit: String,
    /// In what it was looked at.
    #[serde(skip_serializing_if = "Reading::is_unknown")]
    pub reading: Reading,
    /// How often it was seen, allowed or not.
    pub seen: u64,
    /// With nothing seen: the true share is below this with 95 % confidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// The same observation where it must show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// What shows it: the first cases, or SQL.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub witness: Vec<String>,
    /// The rule behind it; for what is not tested or not possible: why not.
    pub why: String,
    /// What to change, where something should be.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub change: String,
    /// What the faults cost, where there were any and this line has measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// Figures, units last in their names: `rpo_us`, `rto_write_us`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub figures: Map<String, Value>,
}

/// A positive control.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Control {
    /// What was done.
    pub what: String,
    /// How often it was looked.
    pub n: u64,
    /// How often it showed.
    pub seen: u64,
}

/// "0 of n" as a bound at 95 %.
pub fn bound(n: u64) -> Option<f64> {
    (n > 0).then(|| (3.0 / n as f64).min(1.0))
}

/// Faults by settings, for one workload.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Grid<'a> {
    /// Settings, in the order they were tried.
    pub columns: Vec<&'a str>,
    /// Faults likewise, each with a cell per setting: the worst standing there.
    pub rows: Vec<(&'a str, Vec<Option<Standing>>)>,
}

/// The grid of one workload; `None` when there is only one setting and one fault.
pub fn grid<'a>(promises: &[&'a Promise], workload: &str) -> Option<Grid<'a>> {
    let ours = || promises.iter().filter(|promise| promise.workload == workload);
    let mut grid = Grid::default();
    for promise in ours() {
        if !grid.columns.contains(&promise.setting.as_str()) {
            grid.columns.push(&promise.setting);
        }
    }
    for promise in ours() {
        let column = grid.columns.iter().position(|setting| *setting == promise.setting).unwrap_or(0);
        let row = match grid.rows.iter().position(|(fault, _)| *fault == promise.fault) {
            Some(row) => row,
            None => {
                grid.rows.push((&promise.fault, vec![None; grid.columns.len()]));
                grid.rows.len() - 1
            }
        };
        let cell = &mut grid.rows[row].1[column];
        *cell = Some(cell.map_or(promise.standing, |other| other.min(promise.standing)));
    }
    (grid.columns.len() > 1 || grid.rows.len() > 1).then_some(grid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Step;

    fn promise(setting: &str, fault: &str, standing: Standing) -> Promise {
        Promise {
            workload: "ack".into(),
            promise: "nothing that was acknowledged is lost".into(),
            setting: setting.into(),
            fault: fault.into(),
            standing,
            n: 100,
            unit: "commits".into(),
            ..Promise::default()
        }
    }

    #[test]
    fn only_what_is_broken_makes_a_step_invalid() {
        let mut step = Step {
            promises: vec![
                promise("on", "kill", Standing::Kept),
                promise("off", "kill", Standing::ByDesign),
                promise("on", "power", Standing::NotPossible),
            ],
            ..Step::default()
        };
        let calm = verdict(&step);
        assert!(
            calm.valid && calm.notes.len() == 1 && calm.notes[0].starts_with("not possible here"),
            "{calm:?}"
        );
        step.promises.push(promise("on", "pause", Standing::Broken));
        let broken = verdict(&step);
        assert!(!broken.valid);
        assert_eq!(
            broken.reasons,
            ["broken: nothing that was acknowledged is lost (on, under pause): 0 of 100 commits"]
        );
    }

    #[test]
    fn one_transaction_can_show_several_anomalies() {
        let mut promise = promise("on", "", Standing::ByDesign);
        promise.seen = 14_176;
        assert_eq!(seen(&promise), "14,176 in 100 commits");
        promise.seen = 100;
        assert_eq!(seen(&promise), "100 of 100 commits");
    }

    #[test]
    fn the_grid_holds_the_worst_of_each_pair() {
        let all = [
            promise("on", "kill", Standing::Kept),
            promise("off", "kill", Standing::ByDesign),
            promise("on", "power", Standing::Kept),
            promise("on", "power", Standing::Broken),
        ];
        let all: Vec<&Promise> = all.iter().collect();
        let found = grid(&all, "ack").unwrap();
        assert_eq!(found.columns, ["on", "off"]);
        assert_eq!(
            found.rows,
            [
                ("kill", vec![Some(Standing::Kept), Some(Standing::ByDesign)]),
                ("power", vec![Some(Standing::Broken), None])
            ]
        );
        assert_eq!(grid(&all, "bank"), None);
        assert_eq!(grid(&all[..1], "ack"), None);
    }

    #[test]
    fn a_stronger_promise_is_never_better_than_a_weaker_one_that_it_contains() {
        for weaker in Standing::ALL {
            for stronger in Standing::ALL {
                let bound = weaker.bounds(stronger);
                // If the stronger one is kept, so is the weaker one.
                assert!(bound != Standing::Kept || weaker == Standing::Kept, "{weaker:?} {stronger:?}");
                // What is refuted stays refuted.
                assert!(weaker > Standing::ByDesign || bound <= weaker, "{weaker:?} {stronger:?}");
                assert!(stronger > Standing::ByDesign || bound <= stronger, "{weaker:?} {stronger:?}");
                assert_eq!(weaker.bounds(bound), bound);
            }
        }
    }

    #[test]
    fn the_rule_of_three() {
        assert_eq!(bound(0), None);
        assert_eq!(bound(2), Some(1.0));
        assert_eq!(bound(3_000), Some(0.001));
    }

    #[test]
    fn a_standing_of_a_newer_version_is_read() {
        let read: Promise = serde_json::from_str(r#"{"standing": "half", "n": 3}"#).unwrap();
        assert_eq!((read.standing, read.n), (Standing::Unknown, 3));
    }
}
