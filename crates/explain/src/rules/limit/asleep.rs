//! A server that is too short of reads to answer: what its processes show, without its views.

use super::{LIMIT_SHARE_MIN, used};
use crate::case::{Case, Thing};
use crate::rule::Claim;
use crate::units;
use record::finding::{Level, Severity};

/// Of the looks at processes that serve sessions, those in uninterruptible sleep.
const ASLEEP_SHARE_MIN: f64 = 0.5;
/// Processes that are looked at in one way or the other.
pub(in crate::rules) const KINDS: [&str; 2] = ["client backend", "parallel worker"];

/// Processes of sessions, and how much of their looks they were asleep in.
pub(in crate::rules) struct Asleep<'a> {
    pub(in crate::rules) processes: usize,
    pub(in crate::rules) share: f64,
    /// Where in the kernel the first of them sleeps.
    pub(in crate::rules) at: &'a str,
    pub(in crate::rules) read_bytes_per_s: f64,
}

/// `None` if no process of a session was looked at.
pub(in crate::rules) fn of_node<'a>(case: &'a Case, node: &str) -> Option<Asleep<'a>> {
    let is_its = |process: &Thing<'_>| {
        process.lines.word("node") == node && KINDS.contains(&process.lines.word("backend"))
    };
    let all: Vec<Thing<'a>> = case.things("backend").filter(is_its).collect();
    let series: Vec<_> = all.iter().filter_map(|process| process.lines.series("asleep")).collect();
    let looks: f64 = series.iter().map(|series| series.readings() as f64).sum();
    let asleep: f64 = series.iter().map(|series| series.sum()).sum();
    (looks > 0.0).then(|| Asleep {
        processes: all.len(),
        share: asleep / looks,
        at: all.iter().map(|process| process.lines.word("wchan")).find(|at| !at.is_empty()).unwrap_or(""),
        read_bytes_per_s: all.iter().filter_map(|process| process.lines.rate("read_bytes")).sum(),
    })
}

/// Whether sessions of a node were seen by its views.
pub(in crate::rules) fn is_silent(case: &Case, node: &str) -> bool {
    let looks = case.one("server", node).map_or(0, |server| server.ticks.points().len());
    looks < LOOKS_MIN
}

/// Fewer answers than these show nothing.
const LOOKS_MIN: usize = 4;

/// IO-09 of a server that did not answer, or hardly.
pub(super) fn at_limit(case: &Case, group: &Thing<'_>) -> Option<Claim> {
    let node = group.place;
    let asleep = of_node(case, node).filter(|asleep| asleep.share >= ASLEEP_SHARE_MIN)?;
    let (host, limit) = (group.lines.word("host"), group.lines.word("io_limit"));
    let used = used(case, host, limit);
    if used < LIMIT_SHARE_MIN || !is_silent(case, node) {
        return None;
    }
    let pressure = case.one("host", host).and_then(|host| host.mean("psi_io_some_pct"));
    Some(
        Claim::new(
            Severity::High,
            Level::CoOccurrence,
            format!(
                "{node}: the processes of {} wait for I/O in {} of the looks at them, and the server hardly answers our own queries: the control group of the \
                 server limits I/O: {limit}",
                units::counted(asleep.processes, "session"),
                units::percent(asleep.share)
            ),
        )
        .on_node(node)
        .on_host(host)
        .during([group.lines.ticks.window()])
        .number("asleep_share", asleep.share)
        .number("limit_used_share", used)
        .because(format!("a disk of the host does {} of what the limit allows", units::percent(used)))
        .because(format!(
            "they sleep in the kernel (state D{}), and read {} a second",
            if asleep.at.is_empty() { String::new() } else { format!(", {}", asleep.at) },
            units::bytes(asleep.read_bytes_per_s)
        ))
        .with(pressure, |claim, pct| claim.because(format!("tasks of the host waited for I/O in {} % of the time", units::short(pct))))
        .not("a full disk: the limit holds requests back above the device")
        .lacking("which statements: the server's views did not answer")
        .remedy(
            "raise or remove the limit",
            &[
                "$ systemctl show postgresql -p IOReadBandwidthMax -p IOWriteBandwidthMax -p IOReadIOPSMax -p IOWriteIOPSMax",
                "$ grep . /sys/fs/cgroup/system.slice/postgresql*/io.max /sys/fs/cgroup/blkio/*/blkio.throttle.*_device 2>/dev/null",
            ],
        ),
    )
}
