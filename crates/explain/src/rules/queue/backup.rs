//! SES-17: a base backup whose walsender computes, as where the server compresses what it sends, while sessions wait for a CPU.

use super::{BACKUPS, LATER, backups, most_of, queue};
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::rules::costly::{busy, severity};
use crate::units;
use record::finding::{Level, NodeTime};

/// The share of the session time that waits for a CPU.
const WAITING_MIN: f64 = 0.2;
/// Of the host's CPUs, what the walsenders of base backups use.
const OF_HOST_MIN: f64 = 0.15;

pub(super) fn judge(case: &Case) -> Answer {
    let claims = busy(case).filter_map(|time| of_node(case, time)).collect();
    Answer::of(claims, || "base backups, and the CPU time of their walsenders".to_string())
}

/// CPUs that the walsenders of running base backups use.
fn used(case: &Case, node: &str) -> f64 {
    let running = case.at("progress", node).filter(|one| one.lines.word("command") == "basebackup");
    let pids: Vec<f64> = running.filter_map(|one| one.lines.last("pid")).collect();
    let is_its = |one: &Thing<'_>| {
        one.lines.word("backend") == "walsender"
            && one.lines.word("node") == node
            && one.lines.last("pid").is_some_and(|pid| pids.contains(&pid))
    };
    case.things("backend").filter(is_its).filter_map(|one| one.lines.rate("cpu_us")).sum::<f64>() / 1e6
}

fn of_node(case: &Case, time: &NodeTime) -> Option<Claim> {
    let node = time.node.as_str();
    let looks = backups(case, node)?;
    let queue = queue(case, time)?;
    let (share, cpus) = (node_time::share_of_part(time, node_time::FOR_CPU), used(case, node));
    if share < WAITING_MIN || cpus < queue.cores * OF_HOST_MIN {
        return None;
    }
    Some(
        Claim::new(
            severity(share).min(most_of(queue.waiting.sessions)),
            Level::DiscriminatingCounter,
            format!(
                "{node}: a base backup runs (pg_basebackup), and the server computes for it with {} of the {} CPUs of {}, as it does where it compresses what \
                    it sends, while sessions wait for a CPU in {} of their time",
                units::short(cpus),
                units::short(queue.cores),
                queue.host,
                units::percent(share)
            ),
        )
        .on_node(node)
        .during(case.one("server", node).map(|server| server.ticks.window()))
        .number("share", share)
        .number("cpus_of_backup", cpus)
        .because(format!("pg_stat_progress_basebackup: a base backup runs in {} of the looks", units::percent(looks)))
        .because("the CPU time of its walsender; a backup that is only read and sent takes a few percent of one CPU")
        .lacking("its command line: --compress=server-gzip or server-zstd lets the server compress")
        .remedy(LATER, &BACKUPS),
    )
}
