//! The validity of a whole run: its own verdict, and other users of the CPUs during the measurement.
//!
//! A run notes that itself. A `watch` does not, and a directory of an earlier version may lack it, so it is computed here again from the samples
//! of the hosts.

use crate::case::Case;
use crate::units;
use record::finding::Window;

/// Taken by the hypervisor from this percentage on.
const STEAL_PCT_MIN: f64 = 2.0;
/// CPU of a host used by other processes than the client and the server, from this percentage on.
const OTHERS_PCT_MIN: f64 = 20.0;

/// One sentence each, worst first.
pub(crate) fn of(case: &Case) -> Vec<String> {
    let verdict = &case.run.verdict;
    let mut detail: Vec<String> =
        verdict.reasons.iter().map(|reason| format!("the run is invalid: {reason}")).collect();
    detail.extend(verdict.notes.iter().cloned());
    let noted = |word: &str| verdict.notes.iter().any(|note| note.contains(word));
    let driven: Vec<Window> = case.driven().into_iter().map(|(_, window)| window).collect();
    for host in case.things("host") {
        let mean = |field: &str| {
            let series = host.lines.series(field)?;
            let inside = if driven.is_empty() { series.clone() } else { series.within(&driven) };
            (!inside.is_empty()).then(|| inside.mean())
        };
        if let Some(stolen) = mean("cpu_steal_pct").filter(|pct| *pct >= STEAL_PCT_MIN && !noted("(steal)")) {
            detail.push(format!(
                "{}: the hypervisor took {} of the CPU time away (steal): rates are lower and latencies higher because of it",
                host.place,
                units::percent(stolen / 100.0)
            ));
        }
        let busy =
            ["cpu_user_pct", "cpu_system_pct", "cpu_softirq_pct"].into_iter().filter_map(mean).sum::<f64>();
        if let Some(others) = others_pct(case, host.place, busy, &driven)
            && others >= OTHERS_PCT_MIN
            && !noted("other programs")
        {
            detail.push(format!(
                "{}: {} of the CPU time went to other programs than this client and the sampled processes of the server",
                host.place,
                units::percent(others / 100.0)
            ));
        }
    }
    detail
}

/// Percent of a host's CPU used by other processes; `None` if the client's or the server's part is unknown. Only the host of the client records both.
fn others_pct(case: &Case, host: &str, busy_pct: f64, driven: &[Window]) -> Option<f64> {
    let client =
        case.things("schedule").find(|thing| thing.name == "client" && thing.lines.word("host") == host)?;
    let cores = case.one("host", host)?.last("cores").filter(|cores| *cores > 0.0)?;
    let seconds: f64 = driven.iter().map(|window| window.length_us() as f64 / 1e6).sum();
    if seconds <= 0.0 {
        return None;
    }
    // Microseconds per second of the sampled processes, which represent all.
    let rate = |lines: &crate::case::Lines, field: &str| {
        lines
            .series(field)
            .map(|series| series.within(driven))
            .filter(|series| !series.is_empty())
            .map(|series| series.rate())
    };
    let scaled = |lines: &crate::case::Lines| {
        let run = rate(lines, "run_us")?;
        let mean = |field: &str| lines.series(field).map(|series| series.within(driven).mean());
        Some(run * (mean("tasks")? / mean("looked")?.max(1.0)).max(1.0))
    };
    let mut known = scaled(client.lines)?;
    for thing in case.things("schedule").filter(|thing| thing.name == "sessions") {
        known += scaled(thing.lines)?;
    }
    for thing in case.things("backend").filter(|thing| thing.lines.word("backend") != "client backend") {
        known += rate(thing.lines, "cpu_us").unwrap_or(0.0);
    }
    Some(busy_pct - known / 1e6 / cores * 100.0)
}
