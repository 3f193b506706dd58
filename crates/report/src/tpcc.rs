//! Results of TPC-C, on the terminal and on the page: the same rows in both.

use crate::facts::{Facts, StepFacts};
use crate::layout::{columns, fold};
use record::LatencySummary;
use record::number;
use record::tpcc::{Tpcc, TpccShareResult};

/// Name of a run that searches for the largest number of warehouses that passes; its steps have the same name and the number.
const SEARCH: &str = "tpcc-until-slo";

/// One row: name, value, requirement, and whether it is met.
pub(crate) type Line = [String; 4];

/// Everything except the latencies, which are in the tables of all workloads.
pub(crate) fn lines(tpcc: &Tpcc) -> Vec<Line> {
    let line = |what: &str, value: String, goal: String, met: &str| [what.into(), value, goal, met.into()];
    let verdict = |met: bool| if met { "ok" } else { "MISSED" };
    let mut lines = vec![line(
        "New-Orders per minute (tpmC)",
        number::three(tpcc.tpmc),
        format!("{} of them committed", number::three(tpcc.committed_per_minute)),
        "",
    )];
    if let Some(percent) = tpcc.efficiency_percent {
        let goal = format!("of 12.86 for each of {}", number::counted(tpcc.warehouses, "warehouse"));
        let met = verdict(!tpcc.misses.iter().any(|miss| miss.starts_with("efficiency")));
        lines.push(line("efficiency", format!("{percent:.1} %"), goal, met));
    }
    for profile in &tpcc.profiles {
        let Some(p90) = profile.response_us_p90 else { continue };
        lines.push(line(
            &format!("{} p90", profile.name),
            number::latency(p90 as f64),
            format!("at most {} s", profile.limit_us / 1_000_000),
            verdict(p90 <= profile.limit_us),
        ));
    }
    for share in &tpcc.audit {
        let goal = match share.percent_max {
            most if most >= 100.0 => format!("at least {} %", share.percent_min),
            most => format!("{} to {most} %", share.percent_min),
        };
        let value = match share.result {
            TpccShareResult::NotApplicable => "-".to_string(),
            _ => format!("{:.2} % of {}", share.percent(), number::count(share.of)),
        };
        lines.push(line(&share.name, value, goal, share.result.word()));
    }
    let time = |latency: &LatencySummary| {
        let us = |us: f64| number::latency(us);
        format!(
            "mean {}, p90 {}, p99 {}",
            us(latency.mean.round()),
            us(latency.p90 as f64),
            us(latency.p99 as f64)
        )
    };
    for (what, latency) in [
        ("wait for a session", &tpcc.session_wait_us),
        ("transaction", &tpcc.transaction_us),
        ("of that in the database", &tpcc.database_us),
    ] {
        if let Some(latency) = latency {
            lines.push(line(what, time(latency), String::new(), ""));
        }
    }
    if tpcc.simulated_ms.is_none() {
        lines.push(line(
            "round trips per transaction",
            format!("{:.2}", tpcc.round_trips),
            String::new(),
            "",
        ));
    }
    lines.push(line(
        "nodes touched per transaction",
        format!("{:.3}", tpcc.nodes_mean),
        format!("two-phase commits {:.2} %", tpcc.two_phase_percent),
        "",
    ));
    for profile in tpcc.profiles.iter().filter(|profile| profile.nodes.len() > 1) {
        lines.push(line(&format!("{} by nodes", profile.name), by_nodes(&profile.nodes), String::new(), ""));
    }
    if tpcc.simulated_ms.is_none() {
        lines.push(line(
            "districts skipped by Deliveries",
            number::count(tpcc.skipped_deliveries),
            format!("{} delivered", number::counted(tpcc.delivered, "order")),
            "",
        ));
    }
    if let Some(orders) = tpcc.orders {
        let unknown = match orders.unknown {
            0 => String::new(),
            some => format!(", {} unknown", number::count(some)),
        };
        lines.push(line(
            "orders counted by the client",
            format!("{}{unknown}", number::count(orders.client)),
            format!("the server has {} more", orders.server),
            if orders.agree { "agree" } else { "DIFFER" },
        ));
    }
    lines
}

/// `1: 98.20 %, 2: 1.75 %, 3: 0.05 %`
fn by_nodes(counts: &[u64]) -> String {
    let all = counts.iter().copied().fold(0, u64::saturating_add);
    let share = |(count, nodes): (&u64, usize)| {
        format!("{nodes}: {:.2} %", 100.0 * *count as f64 / all.max(1) as f64)
    };
    counts.iter().zip(1..).map(share).collect::<Vec<String>>().join(", ")
}

/// The kind of run, in a sentence.
pub(crate) fn kind(tpcc: &Tpcc) -> String {
    let users = match (tpcc.terminals, tpcc.simulated_ms) {
        (Some(terminals), None) => {
            format!("{} with keying and think times", number::counted(terminals, "terminal"))
        }
        (Some(terminals), Some(ms)) => format!(
            "{} with keying and think times, and no database: a transaction takes {ms} ms",
            number::counted(terminals, "terminal")
        ),
        (None, None) => "no keying and think times".to_string(),
        (None, Some(ms)) => {
            format!("no keying and think times, and no database: a transaction takes {ms} ms")
        }
    };
    format!("{}, {users}, {}, {}", number::counted(tpcc.warehouses, "warehouse"), tpcc.isolation, tpcc.mix)
}

/// The part of the terminal page.
pub(crate) fn print(out: &mut String, tpcc: &Tpcc) {
    fold(out, "  ", &tpcc.disclaimer);
    fold(out, "  ", &kind(tpcc));
    columns(out, &lines(tpcc), |column| column != 1);
    fold(out, "  ", &tpcc.batching);
}

/// Steps of a search for the largest number of warehouses that passes; `None` for any other run.
pub(crate) fn search<'a, 'r>(facts: &'a Facts<'r>) -> Option<Vec<&'a StepFacts<'r>>> {
    if facts.reader.run.name != SEARCH {
        return None;
    }
    let steps: Vec<&'a StepFacts<'r>> =
        facts.steps.iter().filter(|step| step.step.summary.tpcc.is_some()).collect();
    (!steps.is_empty()).then_some(steps)
}

/// The step with the largest number of warehouses that pass.
pub(crate) fn is_answer(steps: &[&StepFacts<'_>], step: &StepFacts<'_>) -> bool {
    let passing = |step: &StepFacts<'_>| {
        let tpcc = step.step.summary.tpcc.as_ref().filter(|tpcc| tpcc.passes && step.step.verdict.valid)?;
        Some(tpcc.warehouses)
    };
    let best = steps.iter().filter_map(|step| passing(step)).max();
    best.is_some() && passing(step) == best
}

/// The answer of a search.
pub(crate) fn search_sentence(steps: &[&StepFacts<'_>]) -> String {
    let of =
        |step: &&&StepFacts<'_>| step.step.summary.tpcc.as_ref().map(|tpcc| (tpcc.warehouses, tpcc.passes));
    let passing = steps.iter().filter(|step| step.step.verdict.valid).filter_map(|step| of(&step));
    let best = passing.filter(|(_, passes)| *passes).map(|(warehouses, _)| warehouses).max();
    let failing = steps.iter().filter_map(|step| of(&step)).filter(|(_, passes)| !passes);
    let least_failing = failing.map(|(warehouses, _)| warehouses).min();
    let pass = |count: u64| {
        format!("{} {}", number::counted(count, "warehouse"), if count == 1 { "passes" } else { "pass" })
    };
    match (best, least_failing) {
        (Some(best), Some(fails)) => format!("{}, {fails} do not", pass(best)),
        (Some(best), None) => format!("{}, and none was found that does not", pass(best)),
        (None, Some(fails)) => format!("not even {}", pass(fails)),
        (None, None) => "no step could be judged".to_string(),
    }
}
