//! CPU-07: sessions that all work at the same moment, and rest in between.

use super::costly::{busy, in_a_line, severity};
use crate::case::Case;
use crate::node_time;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, StatementTime};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "CPU-07",
    title: "sessions work at the same moment and rest in between",
    needs: &[Field("schedule", "wait_us"), Field("server", "sessions_active")],
    limits: "30 % of the session time waiting for a CPU, 90 % of that in a third of the looks or less, which are not one after another, and then for one \
        session more than the host has CPUs (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/rules-materializedviews.html"],
}];

/// The share of the session time waiting for a CPU.
const SHARE_MIN: f64 = 0.3;
/// The share of the looks that have nearly all of the waiting, at most.
const BURST_SHARE_MAX: f64 = 1.0 / 3.0;
/// Of all waiting, that in these looks.
const IN_BURSTS_MIN: f64 = 0.9;
/// Looks from which on bursts differ from a beginning.
const LOOKS_MIN: usize = 8;
/// Bursts that are apart from each other.
const BURSTS_MIN: usize = 3;
/// The share of the session time of the statement that is named.
const STATEMENT_MIN: f64 = 0.3;

/// Bursts of waiting for a CPU: how many, the share of the looks that they take, and the sessions that wait in them on average.
struct Bursts {
    count: usize,
    share: f64,
    waiting: f64,
}

/// `waits`: sessions that waited in each look.
fn bursts(waits: &[f64]) -> Option<Bursts> {
    let (all, most) = (waits.iter().sum::<f64>(), (waits.len() as f64 * BURST_SHARE_MAX).ceil() as usize);
    let mut sorted = waits.to_vec();
    sorted.sort_by(|left, right| right.total_cmp(left));
    // The least of the largest that have nearly all.
    let mut sum = 0.0;
    let needed = sorted.iter().position(|wait| {
        sum += wait;
        sum >= all * IN_BURSTS_MIN
    })? + 1;
    let limit = sorted[needed - 1];
    let is_burst: Vec<bool> = waits.iter().map(|wait| *wait >= limit).collect();
    let count = (0..waits.len()).filter(|at| is_burst[*at] && (*at == 0 || !is_burst[at - 1])).count();
    let is_it = waits.len() >= LOOKS_MIN && needed <= most && count >= BURSTS_MIN && limit > 0.0;
    is_it.then(|| Bursts { count, share: needed as f64 / waits.len() as f64, waiting: sum / needed as f64 })
}

/// Whether the sessions of a node wait for a CPU in bursts, so that their means say nothing about the CPUs at one moment.
pub(super) fn is_in_bursts(case: &Case, node: &str) -> bool {
    of_node(case, node).is_some()
}

fn of_node(case: &Case, node: &str) -> Option<Bursts> {
    let backends = case.at("schedule", node).find(|thing| thing.name == "backends")?;
    let of = |field: &str| -> Option<Vec<f64>> {
        let mut rates: Vec<f64> =
            backends.lines.series(field)?.rates().iter().map(|rate| rate / 1e6).collect();
        // The end of a recording is a short look.
        rates.pop();
        Some(rates)
    };
    let (waits, runs) = (of("wait_us")?, of("run_us")?);
    // Sessions that work all the time, and wait when others burst, are no bursts of their own.
    let is_own = bursts(&runs).is_some();
    // Nor are those on a host that is always full.
    let host = case.one("host", case.host_of(node)?)?;
    let used: f64 = ["cpu_user_pct", "cpu_system_pct"].iter().filter_map(|field| host.mean(field)).sum();
    bursts(&waits).filter(|_| is_own && used <= USED_PCT_MAX)
}

/// The host's CPUs in use, on average, in percent: between bursts they rest.
const USED_PCT_MAX: f64 = 70.0;

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some(part) = time.parts.iter().find(|part| part.name == node_time::FOR_CPU) else { continue };
        let Some(host) = case.host_of(&time.node) else { continue };
        let cores = case.one("host", host).and_then(|host| host.last("cores")).unwrap_or(1.0);
        let Some(found) = of_node(case, &time.node).filter(|found| found.waiting >= cores + 1.0) else {
            continue;
        };
        if part.share < SHARE_MIN {
            continue;
        }
        let main: Option<&StatementTime> = time.statements.iter().find(|one| one.share >= STATEMENT_MIN);
        let same = main.map_or(String::new(), |one| {
            format!(
                "; {} of the session time is the same statement, executed by several sessions at once",
                units::percent(one.share)
            )
        });
        claims.push(
            Claim::new(
                severity(part.share),
                Level::DiscriminatingCounter,
                format!(
                    "{}: sessions come in bursts: nearly all waiting for a CPU, {} of the session time, is in {} bursts that take {} of the looks, when \
                        {} sessions \
                     at the same time wait for the {} CPUs of {host}, and in between they rest{same}",
                    time.node,
                    units::percent(part.share),
                    found.count,
                    units::percent(found.share),
                    units::short(found.waiting),
                    units::short(cores)
                ),
            )
            .on_node(&time.node)
            .on_host(host)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", part.share)
            .number("bursts", found.count as f64)
            .number("sessions_waiting_in_bursts", found.waiting)
            .with(main, |claim, one| claim.because(format!("the statement with most of the time: {}", in_a_line(one))))
            .because("the scheduler's counters of all sessions, look by look")
            .not("a host that is too small for the work: between the bursts its CPUs are idle")
            .lacking("what starts them together: a cache that expires for all at once (a stampede), jobs of the same minute, clients that retry in step")
            .remedy(
                "let one session compute what all need, and the others wait for it or take the old value (a lock per key of the cache, an expiry with a random \
                 part, a materialized view); spread jobs over the minute; limit how many run at once (a pool)",
                &["SELECT date_trunc('second', query_start) AS began, count(*), left(query, 60) AS query FROM pg_stat_activity WHERE state = 'active' \
                   GROUP BY 1, left(query, 60) HAVING count(*) > 1 ORDER BY 2 DESC;"],
            ),
        );
    }
    Answer::of(claims, || "waiting for a CPU, look by look".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_apart_from_each_other_and_have_nearly_all_waiting() {
        let found = bursts(&[0.0, 7.8, 0.0, 0.0, 7.3, 0.0, 0.0, 7.5, 0.0]).expect("three bursts");
        assert_eq!((found.count, found.waiting.round()), (3, 8.0));
        assert!(bursts(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 7.0, 7.0, 7.0]).is_none(), "something that began");
        assert!(bursts(&[2.0; 12]).is_none(), "a host that is full");
        assert!(bursts(&[0.0; 12]).is_none(), "nothing waits");
        assert!(bursts(&[1.0, 5.0, 1.0, 5.0, 1.0, 5.0, 1.0, 5.0, 1.0]).is_none(), "uneven");
        assert!(bursts(&[]).is_none());
    }
}
