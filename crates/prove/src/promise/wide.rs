//! The cost of a commit over several nodes, compared with the expected cost.

use record::promise::{Control, Promise, Standing};
use serde_json::json;

use super::figures;
use crate::live::wide::{Cost, Report};

/// A count that is off by no more is the one that was predicted: half of a round trip is none.
pub(crate) const ROUND_TRIPS_OFF_MAX: f64 = 0.5;

/// One line for each kind of commit. A commit that costs more breaks nothing: the model does not fit, and the verdict is "not tested".
pub fn wide(report: &Report, setting: &str) -> Vec<Promise> {
    report.costs.iter().map(|cost| one(report, cost, setting)).collect()
}

fn one(report: &Report, cost: &Cost, setting: &str) -> Promise {
    let nodes = cost.nodes.join(", ");
    let trips = match cost.predicted {
        1.0 => "1 round trip".to_owned(),
        count => format!("{count} round trips"),
    };
    let (standing, why) = match (cost.measured, &report.undelayed) {
        (None, Some(why)) => (
            Standing::NotTested,
            format!("the connections between the nodes cannot be delayed, so only times are measured: {why}"),
        ),
        (None, None) => (Standing::NotTested, "the delay had no visible effect".to_owned()),
        (Some(measured), _) if (cost.predicted - measured).abs() <= ROUND_TRIPS_OFF_MAX => {
            (Standing::Kept, cost.protocol.to_owned())
        }
        (Some(measured), _) => (
            Standing::NotTested,
            format!(
                "{measured:.2} round trips were measured: something else waits, or the host was busy ({})",
                cost.protocol
            ),
        ),
    };
    Promise {
        workload: "wide".to_owned(),
        promise: format!("a commit on {nodes} waits for {trips} between nodes"),
        setting: setting.to_owned(),
        standing,
        n: cost.commits.iter().sum(),
        unit: "commits".to_owned(),
        control: (report.control[0] > 0).then(|| Control {
            what: "queries between nodes, whose times must show the delay".to_owned(),
            n: report.control[0],
            seen: report.control[1],
        }),
        why,
        change: if standing == Standing::NotTested && cost.measured.is_none() {
            report.remedy.clone()
        } else {
            String::new()
        },
        figures: figures(json!({
            "nodes_count": cost.nodes.len(),
            "round_trips_predicted": cost.predicted,
            "round_trips_measured": cost.measured.map(|count| (count * 100.0).round() / 100.0),
            "commit_us_p50": cost.commit_us_p50[0],
            "commit_predicted_us": cost.predicted_us[0],
            "commit_delayed_us_p50": (cost.commit_us_p50[1] > 0).then_some(cost.commit_us_p50[1]),
            "commit_delayed_predicted_us": cost.predicted_us[1],
            "round_trip_us": cost.round_trip_us[0].unwrap_or(report.round_trip_us[0]),
            "round_trip_delayed_us":
                (report.round_trip_us[1] > 0).then_some(cost.round_trip_us[1].unwrap_or(report.round_trip_us[1])),
        })),
        ..Promise::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promised(measured: Option<f64>) -> Promise {
        let report = Report {
            undelayed: Some("the nodes make them by themselves".to_owned()),
            remedy: "make a cluster whose nodes are apart".to_owned(),
            ..Report::default()
        };
        let cost = Cost {
            nodes: vec!["w1".to_owned()],
            protocol: "as it should",
            predicted: 2.0,
            measured,
            ..Cost::default()
        };
        one(&report, &cost, "")
    }

    #[test]
    fn where_nothing_can_be_delayed_the_distance_of_the_nodes_counts_or_how_to_have_one_is_named() {
        let near = promised(None);
        assert_eq!(
            (near.standing, near.change.as_str()),
            (Standing::NotTested, "make a cluster whose nodes are apart")
        );
        assert!(
            near.why.contains("only times are measured: the nodes make them by themselves"),
            "{}",
            near.why
        );
        let far = promised(Some(2.4));
        assert_eq!(
            (far.standing, far.why.as_str(), far.change.as_str()),
            (Standing::Kept, "as it should", "")
        );
        let slow = promised(Some(2.6));
        assert_eq!((slow.standing, slow.change.as_str()), (Standing::NotTested, ""));
    }
}
