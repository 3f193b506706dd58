//! Availability and staleness. Every outage is measured, whatever caused it. The promises are: an acknowledged write stays, and a node shows it where a
//! setting requires that.

use engines::profile::Case;
use record::promise::{Control, Promise, Reading, Standing};
use serde_json::json;

use super::settings::{Excuse, Settings};
use super::{Count, Rule, counted, explain_missing, faults_of, figures, has_standbys, least, share};
use crate::fault::Site;
use crate::live::heartbeat::{Gap, Outage, Report, ShardReport, Staleness};
use crate::live::servers::{Observed, Waited};

/// Of the probes outside of all faults, more than this share without an answer is an outage in pieces.
const UNANSWERED_SHARE_MAX: f64 = 0.05;

/// All lines of `hb`: for each shard whether it answers, and whether what it answered stays; for each other node how old what it shows is.
pub fn heartbeat(site: &Site, report: &Report, settings: &Settings, setting: &str) -> Vec<Promise> {
    let (fault, faults) = faults_of(&report.happened);
    let excuse = settings.excuse(&faults, has_standbys(site), &report.observed);
    let mut promises = Vec::new();
    for shard in &report.shards {
        promises.push(answers(shard, site.has_front(), setting));
        promises.push(stays(shard, excuse.as_ref(), setting));
    }
    for node in &report.staleness {
        promises.push(shows(site, node, settings, &report.observed, setting));
    }
    for promise in &mut promises {
        promise.fault.clone_from(&fault);
        explain_missing(promise, &report.happened);
    }
    least::doubt(&mut promises, &report.failures);
    promises
}

fn seconds(us: u64) -> String {
    format!("{:.2} s", us as f64 / 1e6)
}

/// The verdict on the answers, its reason, and what to change. `foreign`: the outages that were not planned; `is_away`: one lasted until the end.
/// `has_front`: clients come through a proxy or a pooler, which may be what did not answer.
fn judge_answers(
    shard: &ShardReport,
    foreign: &[&Gap],
    is_away: bool,
    has_front: bool,
) -> (Standing, String, &'static str) {
    let undisturbed = match has_front {
        true => {
            "if you caused it by hand, its length is the answer; else check the log of the proxy, then the server's, and repeat the proof undisturbed"
        }
        false => {
            "if you caused it by hand, its length is the answer; else check the server's log, and repeat the proof on an undisturbed server"
        }
    };
    let never = shard
        .outages
        .iter()
        .any(|[write, read]: &[Outage; 2]| write.back_us.is_none() || read.back_us.is_none());
    let sent = shard.writes[0] + shard.reads[0];
    let longest = foreign.iter().map(|gap| gap.us()).max().unwrap_or(0);
    if longest > 0 {
        let end = if is_away { "it had not recovered at the end" } else { "it came back" };
        // The longest outage, and the probes sent during it.
        let due = foreign.iter().max_by_key(|gap| gap.us()).map_or(0, |gap| gap.unanswered);
        (
            Standing::NotTested,
            format!(
                "an outage of {} that this proof did not plan: {due} probes in a row got no reply, of {sent} in all; {end}",
                seconds(longest),
            ),
            undisturbed,
        )
    } else if shard.share_unanswered_calm > UNANSWERED_SHARE_MAX {
        (
            Standing::NotTested,
            format!(
                "{:.1} % of the probes got no reply while this proof injected no fault",
                100.0 * shard.share_unanswered_calm
            ),
            undisturbed,
        )
    } else if never || is_away {
        (
            Standing::NotTested,
            "the measurement ended before probes were answered again: the recovery took longer, or no fault was undone before"
                .to_owned(),
            "run longer (-T), and heal in time: --fault kill@3s,heal@4s",
        )
    } else if shard.gap_control != Some(true) {
        let why = "too short to detect an outage: two seconds without a reply must be visible".to_owned();
        (Standing::NotTested, why, "run longer (-T)")
    } else if shard.outages.is_empty() {
        (Standing::Kept, "all probes were answered".to_owned(), "")
    } else {
        (Standing::Kept, "after every fault probes were answered again; that time is measured".to_owned(), "")
    }
}

/// Whether probes are answered, and succeed again after a fault. An outage breaks no promise: no engine promises that a killed server answers. But an outage
/// that was not part of the plan reports that something else was going on.
fn answers(shard: &ShardReport, has_front: bool, setting: &str) -> Promise {
    let [writes, reads] = &shard.gaps;
    let all = || writes.iter().chain(reads);
    let foreign: Vec<&Gap> = all().filter(|gap| !gap.is_injected).collect();
    let sent = shard.writes[0] + shard.reads[0];
    let missing = sent - shard.writes[1] - shard.reads[1];
    let is_away = all().any(|gap| !gap.is_over);
    let (standing, why, change) = judge_answers(shard, &foreign, is_away, has_front);
    let list =
        |of: fn(&[Outage; 2]) -> Option<u64>| -> Vec<Option<u64>> { shard.outages.iter().map(of).collect() };
    let lengths = |gaps: &[Gap]| -> Vec<u64> { gaps.iter().map(Gap::us).collect() };
    Promise {
        workload: "hb".to_owned(),
        promise: format!("writes and reads of {} are answered, and resume after a fault", shard.shard),
        setting: setting.to_owned(),
        standing,
        n: sent,
        unit: "probes".to_owned(),
        reading: Reading::Answers,
        // Those of the plan are measured and not counted as seen.
        seen: match standing {
            Standing::Kept => 0,
            _ => missing,
        },
        control: shard.gap_control.map(|shows| Control {
            what: "the answers of two seconds removed from the record".to_owned(),
            n: 1,
            seen: u64::from(shows),
        }),
        why,
        change: change.to_owned(),
        figures: figures(json!({
            "write_probes": shard.writes[0],
            "write_answers": shard.writes[1],
            "read_probes": shard.reads[0],
            "read_answers": shard.reads[1],
            "rto_write_us": list(|[write, _]| write.back_us),
            "rto_read_us": list(|[_, read]| read.back_us),
            "rto_full_us": list(|[write, _]| write.full_us),
            "outage_write_us": lengths(writes),
            "outage_read_us": lengths(reads),
            "outage_foreign_us": foreign.iter().map(|gap| gap.us()).collect::<Vec<u64>>(),
            "silence_write_us_max": shard.silence_us[0],
            "silence_read_us_max": shard.silence_us[1],
            "share_unanswered_write": shard.share_unanswered[0],
            "share_unanswered_read": shard.share_unanswered[1],
            "unavailable_s": shard.share_unanswered[0] * shard.writes[0] as f64 * crate::live::heartbeat::BEAT.as_secs_f64(),
        })),
        ..Promise::default()
    }
}

/// Whether what was answered is there in the end: the same promise as that of `ack`, with the same settings that take it back.
fn stays(shard: &ShardReport, excuse: Option<&Excuse>, setting: &str) -> Promise {
    let promise = format!("writes that {} acknowledged are kept", shard.shard);
    let mut promise = counted(Count {
        workload: "hb",
        promise: &promise,
        setting,
        unit: "answered writes",
        n: shard.writes[1],
        seen: shard.doomed,
        control: shard.control.map(|shows| Control {
            what: "the reader removes an acknowledged row in its own transaction".to_owned(),
            n: 1,
            seen: u64::from(shows),
        }),
        rule: if excuse.is_some() { Rule::Allowed } else { Rule::Forbidden },
        reading: Reading::Statements,
        why: ("what is acknowledged is on disk", excuse.map_or("", |it| it.why.as_str())),
        change: excuse.map_or("", |it| it.change),
    });
    promise.figures = figures(json!({
        "lost": shard.doomed,
        "lost_after_warning": shard.weak_doomed,
    }));
    promise
}

/// How old what another node shows is. It is promised to be new only where every commit waited until this very node had applied it.
fn shows(site: &Site, node: &Staleness, settings: &Settings, observed: &Observed, setting: &str) -> Promise {
    let applied = settings.applies_on(observed, node.at);
    let has_standbys = super::has_standbys(site);
    // What a commit waits for on nodes that all take writes is no setting of PostgreSQL.
    let of_engine = site.engine.expectation(Case::ReadYourWrites).filter(|_| !has_standbys);
    let allowed = match (&applied, of_engine) {
        (Waited::No(_), Some(known)) => {
            format!("another node shows a write only when it has applied it: {}", known.why)
        }
        (Waited::No(why), None) => format!(
            "another node shows a write only when it has applied it, and commits do not wait for that here: {why}"
        ),
        (Waited::Unknown(why), _) => {
            format!("whether commits wait until this node has applied them is unknown: {why}")
        }
        (Waited::Yes, _) => String::new(),
    };
    let promise = format!("{} shows at once what was acknowledged", node.node);
    let mut promise = counted(Count {
        workload: "hb",
        promise: &promise,
        setting,
        unit: "reads directly after an acknowledgement",
        n: node.reads,
        seen: node.stale,
        control: Some(Control {
            what: "the same read in a snapshot from before the write".to_owned(),
            n: node.control[0],
            seen: node.control[1],
        }),
        rule: if applied == Waited::Yes { Rule::Forbidden } else { Rule::Allowed },
        reading: Reading::Statements,
        why: (
            "remote_apply waits until this node, which is in the synchronous set, has applied it",
            &allowed,
        ),
        change: match has_standbys {
            true => {
                "read your own writes on the node that took them, or set synchronous_commit = remote_apply with this node as a synchronous one"
            }
            // Other engines have no such setting.
            false => "read your own writes on the node that took them",
        },
    });
    promise.figures = figures(json!({
        "share_stale": share(node.stale, node.reads),
        "stale_age_us_p50": node.age_us_p50,
        "stale_age_us_max": node.age_us_max,
        "went_backwards": node.backwards,
    }));
    promise
}
