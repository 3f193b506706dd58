//! OBS-01: a server that took our connection and has not answered a query: our own reads of its catalogue wait for what its sessions wait for.

use crate::case::Case;
use crate::rule::Claim;
use crate::rules::limit;
use crate::units;
use record::event;
use record::finding::{Level, Severity};
use std::collections::BTreeSet;

/// Of the looks at processes of sessions, those in uninterruptible sleep.
const ASLEEP_SHARE_MIN: f64 = 0.5;

/// Nodes of which a query has not returned at the end, and that have hardly a sample.
pub(super) fn all(case: &Case) -> Vec<Claim> {
    let gaps =
        case.events_of(event::GAP).filter(|event| event.message.contains("last query has not returned"));
    let nodes: BTreeSet<&str> =
        gaps.map(|event| Case::word_of(event, "node")).filter(|node| !node.is_empty()).collect();
    nodes.into_iter().filter(|node| limit::is_silent(case, node)).map(|node| of_node(case, node)).collect()
}

fn of_node(case: &Case, node: &str) -> Claim {
    let asleep = limit::asleep(case, node);
    let is_disk = asleep.as_ref().is_some_and(|asleep| asleep.share >= ASLEEP_SHARE_MIN);
    let seconds = case.span.length_us() as f64 / 1e6;
    let host = case.host_of(node).and_then(|host| case.one("host", host)).or_else(|| {
        // Before it answers, which host a node runs on is not known; there may be only one.
        let mut hosts = case.things("host");
        hosts.next().filter(|_| hosts.next().is_none()).map(|host| host.lines)
    });
    // Sessions that sleep for a disk have no use for a CPU.
    let full = host.and_then(super::in_use).filter(|_| !is_disk);
    let mean = |field: &str| host.and_then(|host| host.mean(field));
    let what = match &asleep {
        Some(asleep) if is_disk => format!(
            "; the processes of {} sleep in the kernel in {} of the looks (state D), as in reads from a disk",
            units::counted(asleep.processes, "session"),
            units::percent(asleep.share)
        ),
        _ => String::new(),
    };
    Claim::new(
        if is_disk { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!("{node}: the server answered hardly any of our queries in {}{what}", units::seconds(seconds)),
    )
    .on_node(node)
    .during([case.span])
    .number("seconds", seconds)
    .because("our queries read only the server's catalogue and its statistics: what keeps them waiting keeps all sessions waiting")
    .with(asleep.filter(|_| is_disk), |claim, asleep| {
        claim.number("asleep_share", asleep.share).because(format!(
            "they sleep at {}, and read {} a second",
            if asleep.at.is_empty() { "an unknown place" } else { asleep.at },
            units::bytes(asleep.read_bytes_per_s)
        ))
    })
    .with(mean("cpu_iowait_pct"), |claim, pct| claim.because(idle_for_io(pct)))
    .with(mean("psi_io_full_pct"), |claim, pct| claim.because(stalled(pct)))
    .with(full, |claim, share| {
        claim.because(format!("the CPUs of its host are {} in use: a process that has to answer waits for one", units::percent(share)))
    })
    .remedy(if full.is_some() { FOR_CPUS } else { FOR_DISKS }, if full.is_some() { &OF_CPUS } else { &OF_DISKS })
}

/// What to look at where a disk may be the reason, and where the CPUs are.
const FOR_DISKS: &str = "look at the disk and at limits of I/O above it (control group, virtual machine, volume): how many reads a second they allow, and \
    what waits";
const OF_DISKS: [&str; 4] = [
    "$ iostat -x 1 5",
    "$ cat /proc/pressure/io",
    "$ ps -eo pid,stat,wchan:30,args | grep '[p]ostgres' | head -n 20",
    "$ grep . /sys/fs/cgroup/system.slice/postgresql*/io.max /sys/fs/cgroup/blkio/*/blkio.throttle.*_device 2>/dev/null",
];
const FOR_CPUS: &str = "look for what uses the CPUs (SES-02, SES-03): programs beside the server, or more of its sessions than there are CPUs; and for a \
    limit of the control group";
const OF_CPUS: [&str; 4] = [
    "$ top -b -n 1 -o %CPU | head -n 20",
    "$ cat /proc/pressure/cpu",
    "$ vmstat 1 5",
    "$ grep . /sys/fs/cgroup/system.slice/postgresql*/cpu.max 2>/dev/null",
];

fn idle_for_io(pct: f64) -> String {
    format!("the CPUs of the host had nothing to do but wait for I/O in {} % of the time", units::short(pct))
}

fn stalled(pct: f64) -> String {
    format!(
        "all tasks of the host waited for I/O in {} % of the time (pressure stall information)",
        units::short(pct)
    )
}
