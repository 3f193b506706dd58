//! WAL-10: a setting that makes commits wait for each other, so that they share a flush, although the wait costs more than the flush.

use crate::case::Case;
use crate::case::engine::reset_command;
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::rules::costly::severity;
use crate::units;
use record::finding::Level;

/// The share of the session time in such sleeps.
const SHARE_MIN: f64 = 0.1;
const SETTING: &str = "commit_delay";
/// `commit_siblings` by default: so many other transactions must be open.
const SIBLINGS: f64 = 5.0;

/// The command that takes a delay away.
fn off(owner: Option<&str>) -> String {
    match owner {
        Some(owner) => reset_command(owner, SETTING),
        None => format!("ALTER SYSTEM SET {SETTING} = 0; SELECT pg_reload_conf();"),
    }
}

impl Delay<'_> {
    /// The command that takes it away.
    pub(super) fn off(&self) -> String {
        off(self.owner)
    }
}

/// A delay that commits sleep for, and the role or database at work that has it, if it is not the server's.
pub(super) struct Delay<'a> {
    us: f64,
    owner: Option<&'a str>,
    /// Of the sessions at work, those that have it.
    share: f64,
}

/// `None` without such a delay.
pub(super) fn delay<'a>(case: &'a Case, node: &'a str) -> Option<Delay<'a>> {
    let number = |value: &str| value.parse::<f64>().ok().filter(|us| *us > 0.0);
    let of_server = case.setting(node, SETTING).and_then(number);
    let own = || {
        let mut own = case.own_settings(node, SETTING);
        own.find_map(|(owner, value)| {
            let us = number(value).filter(|_| case.is_at_work(node, owner, ""))?;
            Some(Delay { us, owner: Some(owner), share: case.share_at_work(node, owner, "") })
        })
    };
    of_server.map(|us| Delay { us, owner: None, share: 1.0 }).or_else(own)
}

pub(super) fn delayed(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in node_time::all(case).iter().filter(|time| !time.is_idle()) {
        let number = |name: &str| case.setting(&time.node, name).and_then(|value| value.parse::<f64>().ok());
        let Some(Delay { us: delay_us, owner, share: of_sessions }) = delay(case, &time.node) else {
            continue;
        };
        let own_siblings = owner.and_then(|owner| {
            let mut own = case.own_settings(&time.node, "commit_siblings");
            own.find(|(whose, _)| *whose == owner).and_then(|(_, value)| value.parse::<f64>().ok())
        });
        let siblings = own_siblings.or(number("commit_siblings")).unwrap_or(SIBLINGS);
        let is_off = |name: &str| case.setting(&time.node, name) == Some("off");
        let Some(server) = case.one("server", &time.node) else { continue };
        let rate = |field: &str| server.rate(field).unwrap_or(0.0);
        let mut commits =
            rate("xact_commit").min(rate("tup_inserted") + rate("tup_updated") + rate("tup_deleted"));
        if case.applies(&time.node) {
            // Workers that apply others' changes sleep, too, but not in the time of sessions: at most each statement of these commits.
            let calls = case.at("statement", &time.node).filter_map(|one| one.lines.rate("calls"));
            commits = commits.min(calls.sum());
        }
        let sleeping = commits * of_sessions * delay_us / 1e6;
        let share = (sleeping / time.active).min(1.0);
        // With fewer open transactions than commit_siblings no commit sleeps.
        if share < SHARE_MIN || time.active < siblings || is_off("fsync") || is_off("synchronous_commit") {
            continue;
        }
        let of_wal = node_time::share_of(case, &time.node, crate::rules::vacuum::is_wal);
        claims.push(
            Claim::new(
                severity(share),
                Level::CoOccurrence,
                format!(
                    "{}: commits sleep {} before they flush the WAL (commit_delay{}), which is {} of the session time",
                    time.node,
                    units::us(delay_us),
                    owner.map_or(String::new(), |owner| format!(" of {owner}")),
                    units::percent(share)
                ),
            )
            .on_node(&time.node)
            .during([server.ticks.window()])
            .number("share", share)
            .number("commit_delay_us", delay_us)
            .number("commits_per_s", commits)
            .because(format!(
                "{} commits a second that wrote rows, each with a sleep of {}: {} sessions sleep at any time",
                units::short(commits),
                units::us(delay_us),
                units::short(sleeping)
            ))
            .because(format!("commit_siblings is {siblings:.0}: a commit sleeps while so many other transactions are open"))
            .with(of_wal, |claim, share| {
                claim.because(format!("{} of the session time is seen as waiting for the WAL: these wait for the one that sleeps", units::percent(share)))
            })
            .lacking("the same load without the setting: it helps only where a flush takes longer than the sleep")
            .remedy(
                "turn it off; sessions follow at the reload",
                &[&off(owner)],
            ),
        );
    }
    Answer::of(claims, || "commit_delay, against commits that wrote rows".to_string())
}
