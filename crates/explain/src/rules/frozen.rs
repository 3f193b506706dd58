//! IO-12: a file system that is frozen while a snapshot is taken. A process that writes to it sleeps in the kernel until it is thawed; PostgreSQL shows
//! the waits for the WAL of those that queue behind it.

use super::costly::severity;
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::Level;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "IO-12",
    title: "a file system is frozen for snapshots",
    needs: &[Field("backend", "blocked_write")],
    limits: "3 looks at processes of sessions that sleep in the kernel where writers wait for a frozen file system (percpu_rwsem_wait, \
        sb_start_write); high where commits nearly stop for half of the time (ours)",
    judge,
    links: &[
        "https://man7.org/linux/man-pages/man8/fsfreeze.8.html",
        "https://www.postgresql.org/docs/current/backup-file.html",
    ],
}];

/// Where writers of a frozen file system sleep: the semaphore of its super block, in kernels from 4.3 on and before.
const PLACES: [&str; 4] = ["percpu_rwsem_wait", "__percpu_down_read", "sb_start_write", "__sb_start_write"];
/// Looks that are no chance.
const LOOKS_MIN: f64 = 3.0;
/// Of the usual rate of commits, what is as good as none.
const STOPPED_SHARE: f64 = 0.05;
/// Where among the rates, in order, the usual one is: freezes may take half of the time.
const USUAL_AT: f64 = 0.75;

fn judge(case: &Case) -> Answer {
    let claims = case.nodes().into_iter().filter_map(|node| of_node(case, node)).collect();
    Answer::of(claims, || "where processes of sessions sleep in the kernel".to_string())
}

/// In how many intervals commits stopped, the seconds of these, and of all.
fn stops(case: &Case, node: &str) -> Option<(usize, f64, f64)> {
    let commits = case.one("server", node)?.series("xact_commit")?;
    let mut rates = commits.rates();
    rates.sort_by(f64::total_cmp);
    let usual = *rates.get((rates.len() as f64 * USUAL_AT) as usize)?;
    let seconds = |window: record::finding::Window| (window.to_us - window.from_us) as f64 / 1e6;
    let stopped: Vec<f64> = commits
        .points()
        .iter()
        .filter(|point| usual > 0.0 && point.rate() <= usual * STOPPED_SHARE)
        .map(|point| seconds(point.window()))
        .collect();
    Some((stopped.len(), stopped.iter().sum(), seconds(commits.window())))
}

fn of_node(case: &Case, node: &str) -> Option<Claim> {
    let is_held = |process: &Thing<'_>| {
        process.lines.word("node") == node
            && PLACES.contains(&process.lines.word("wchan").split('.').next().unwrap_or_default())
    };
    let held: Vec<Thing<'_>> = case.things("backend").filter(is_held).collect();
    let looks: f64 = held.iter().filter_map(|process| process.lines.sum("asleep")).sum();
    if looks < LOOKS_MIN {
        return None;
    }
    let (stops, stopped_s, all_s) = stops(case, node).unwrap_or_default();
    let share = if all_s > 0.0 { (stopped_s / all_s).min(1.0) } else { 0.0 };
    let stopping = match stops {
        0 => String::new(),
        _ => format!(
            ", and commits stopped in {}, {} in all",
            units::counted(stops, "interval"),
            units::us(stopped_s * 1e6)
        ),
    };
    let place = held.iter().map(|process| process.lines.word("wchan")).max().unwrap_or_default();
    Some(
        Claim::new(
            severity(share),
            Level::DiscriminatingCounter,
            format!(
                "{node}: sessions that write sleep in the kernel at a file system that is frozen, as a snapshot of its volume does it: {}{stopping}",
                units::counted(looks as usize, "look")
            ),
        )
        .on_node(node)
        .during(case.one("server", node).map(|server| server.ticks.window()))
        .number("share", share)
        .number("looks", looks)
        .because(format!("the kernel shows them asleep in {place}, where writers wait until a file system is thawed"))
        .because("one of them holds the lock of the WAL, and all that commit queue behind it (LWLock:WALWrite)")
        .not("a slow device or too many commits: between the stops commits are as fast as ever")
        .remedy(
            "take snapshots without a freeze, or seldom and short: PostgreSQL recovers from a snapshot that is atomic over all its volumes, and pg_basebackup \
             and WAL archiving need none. Look for the job: LVM, the guest agent of the hypervisor (fsfreeze hooks), the snapshots of a cloud or a CSI driver, \
             backup agents",
            &[
                "$ journalctl -S -1h | grep -iE 'freeze|thaw|snapshot'; pgrep -af 'fsfreeze|qemu-ga|lvcreate|snapshot'",
                "$ cat /etc/qemu/fsfreeze-hook.d/* 2>/dev/null; crontab -l; systemctl list-timers",
            ],
        ),
    )
}
