//! What the faults of a trial cost, over all of its repeats: lost commits, the time until writes are answered again, the share of the time without answers.

use record::promise::{Failover, Promise, Spread, Standing};
use serde_json::Value;

/// Of the promises of each repeat; `None`: there were no faults, or these promises measure none of it.
pub(super) fn of(trials: &[Vec<Promise>]) -> Option<Failover> {
    let has_faults = |promise: &Promise| !promise.fault.is_empty();
    let is_judged = |promise: &Promise| promise.standing != Standing::NotPossible;
    let trials: Vec<Vec<&Promise>> = trials
        .iter()
        .map(|trial| trial.iter().filter(|one| has_faults(one) && is_judged(one)).collect::<Vec<_>>())
        .filter(|trial: &Vec<&Promise>| trial.iter().any(|one| one.figures.contains_key("lost")))
        .collect();
    if trials.is_empty() {
        return None;
    }
    let lost = |trial: &Vec<&Promise>| -> f64 {
        trial.iter().filter_map(|one| one.figures.get("lost")?.as_f64()).sum()
    };
    let percent = |name: &str| {
        let worst = |trial: &Vec<&Promise>| values(trial, name).into_iter().flatten().reduce(f64::max);
        spread(trials.iter().filter_map(worst).map(|share| Some(100.0 * share)))
    };
    let all = |name: &str| spread(trials.iter().flat_map(|trial| values(trial, name)));
    Some(Failover {
        repeats: trials.len() as u64,
        lost_commits: Spread::of(trials.iter().map(|trial| Some(lost(trial)))),
        rpo_us: all("rpo_us"),
        rto_write_us: all("rto_write_us"),
        rto_read_us: all("rto_read_us"),
        downtime_write_percent: percent("share_unanswered_write"),
        downtime_read_percent: percent("share_unanswered_read"),
    })
}

/// The figures of this name in one trial; of lists, which have a value for each fault, every value.
fn values(trial: &[&Promise], name: &str) -> Vec<Option<f64>> {
    let found = trial.iter().filter_map(|one| one.figures.get(name));
    found
        .flat_map(|value| match value {
            Value::Array(items) => items.iter().map(Value::as_f64).collect(),
            one => vec![one.as_f64()],
        })
        .collect()
}

fn spread(values: impl Iterator<Item = Option<f64>>) -> Option<Spread> {
    let spread = Spread::of(values);
    (spread.n > 0).then_some(spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn trial(lost: u64, rto_us: Option<u64>, share: f64, fault: &str) -> Vec<Promise> {
        let promise = |figures: Value| Promise {
            workload: "hb".to_owned(),
            fault: fault.to_owned(),
            standing: Standing::Kept,
            figures: figures.as_object().cloned().unwrap_or_default(),
            ..Promise::default()
        };
        vec![
            promise(json!({"rto_write_us": [rto_us], "share_unanswered_write": share})),
            promise(json!({"lost": lost})),
        ]
    }

    #[test]
    fn each_measure_is_a_distribution_over_the_repeats() {
        let trials =
            [trial(0, Some(9_000), 0.1, "x"), trial(4, None, 0.5, "x"), trial(1, Some(7_000), 0.2, "x")];
        let found = of(&trials).unwrap();
        assert_eq!(found.repeats, 3);
        let spread = |spread: Spread| (spread.min, spread.median, spread.max, spread.never);
        assert_eq!(spread(found.lost_commits), (Some(0.0), Some(1.0), Some(4.0), 0));
        assert_eq!(spread(found.rto_write_us.unwrap()), (Some(7_000.0), Some(8_000.0), Some(9_000.0), 1));
        assert_eq!(spread(found.downtime_write_percent.unwrap()), (Some(10.0), Some(20.0), Some(50.0), 0));
        assert_eq!(found.rpo_us, None);
    }

    #[test]
    fn without_a_fault_nothing_was_a_failover() {
        assert_eq!(of(&[trial(0, None, 0.0, "")]), None);
        assert_eq!(of(&[Vec::new()]), None);
    }
}
