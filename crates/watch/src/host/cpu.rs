//! CPU use: `/proc/stat`, pressure stall information, and the network's share of interrupts
//! (`/proc/softirqs`, `/proc/net/softnet_stat`) per processor.

use super::files::{growth, rounded};
use std::collections::BTreeMap;

/// Processor time in ticks of USER_HZ since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// User mode, niced or not. It includes the time of guests.
    pub user: u64,
    /// Kernel mode, hard interrupts included.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle with an outstanding disk request of this processor. May decrease.
    pub iowait: u64,
    /// Soft interrupts: mostly the network.
    pub softirq: u64,
    /// Taken by the hypervisor for others.
    pub steal: u64,
}

/// `/proc/stat`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// All processors together.
    pub all: Times,
    /// Each processor that is online.
    pub cores: BTreeMap<u32, Times>,
    /// Context switches since boot.
    pub context_switches: u64,
    /// Processes made since boot.
    pub forks: u64,
    /// Tasks that run or want to run, the reader included.
    pub runnable: u64,
    /// Tasks in uninterruptible sleep, most of them for a disk.
    pub blocked: u64,
}

/// Reads `/proc/stat`; `None` without its first line. Unknown lines are ignored.
pub fn stat(text: &str) -> Option<Stat> {
    let mut stat = Stat::default();
    let mut found = false;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(name) = words.next() else { continue };
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        match name {
            "ctxt" => stat.context_switches = number().unwrap_or(0),
            "processes" => stat.forks = number().unwrap_or(0),
            "procs_blocked" => stat.blocked = number().unwrap_or(0),
            "procs_running" => stat.runnable = number().unwrap_or(0),
            _ => {
                let Some(rest) = name.strip_prefix("cpu") else { continue };
                let mut fields = [0_u64; 8];
                for field in &mut fields {
                    *field = number().unwrap_or(0);
                }
                let [user, nice, system, idle, iowait, irq, softirq, steal] = fields;
                let times = Times {
                    user: user.saturating_add(nice),
                    system: system.saturating_add(irq),
                    idle,
                    iowait,
                    softirq,
                    steal,
                };
                if rest.is_empty() {
                    stat.all = times;
                    found = true;
                } else if let Ok(core) = rest.parse() {
                    stat.cores.insert(core, times);
                }
            }
        }
    }
    found.then_some(stat)
}

/// The use of an interval, in percent of the available CPU time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Shares {
    /// User mode.
    pub user_pct: f64,
    /// Kernel mode without soft interrupts.
    pub system_pct: f64,
    /// Idle, waiting for a disk.
    pub iowait_pct: f64,
    /// Soft interrupts.
    pub softirq_pct: f64,
    /// Taken by the hypervisor.
    pub steal_pct: f64,
    /// Everything but idle, waiting and stolen.
    pub busy_pct: f64,
}

/// The difference between two samples; `None` if no tick passed. A class that decreased counts as unchanged: the iowait of
/// a processor may do that.
pub fn shares(before: &Times, now: &Times) -> Option<Shares> {
    let of = |field: fn(&Times) -> u64| field(now).saturating_sub(field(before)) as f64;
    let (user, system, idle) = (of(|t| t.user), of(|t| t.system), of(|t| t.idle));
    let (iowait, softirq, steal) = (of(|t| t.iowait), of(|t| t.softirq), of(|t| t.steal));
    let total = user + system + idle + iowait + softirq + steal;
    if total == 0.0 {
        return None;
    }
    let pct = |part: f64| rounded(100.0 * part / total);
    Some(Shares {
        user_pct: pct(user),
        system_pct: pct(system),
        iowait_pct: pct(iowait),
        softirq_pct: pct(softirq),
        steal_pct: pct(steal),
        busy_pct: pct(user + system + softirq),
    })
}

/// Stalled time since boot of one file of `/proc/pressure`, in microseconds. Averages are not used: the totals of two samples
/// give the share of exactly our interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressure {
    /// Some task waited.
    pub some_us: Option<u64>,
    /// All tasks that were not idle waited. Kernels before 5.13 have none for the processors.
    pub full_us: Option<u64>,
}

/// Reads a file of `/proc/pressure`.
pub fn pressure(text: &str) -> Pressure {
    let total = |kind: &str| {
        let line = text.lines().find(|line| line.split_ascii_whitespace().next() == Some(kind))?;
        line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
    };
    Pressure { some_us: total("some"), full_us: total("full") }
}

/// The share of an interval in which tasks were stalled, 100 at most.
pub(crate) fn stalled_pct(before: Option<u64>, now: Option<u64>, interval_us: u64) -> Option<f64> {
    let stalled_us = now?.checked_sub(before?)?;
    (interval_us > 0).then(|| rounded((100.0 * stalled_us as f64 / interval_us as f64).min(100.0)))
}

/// One processor's line of `/proc/net/softnet_stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Softnet {
    /// Packets taken from the queue.
    pub processed: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
    /// Times that the processor ran out of budget with packets left.
    pub squeezed: u64,
}

/// Reads `/proc/net/softnet_stat` by processor. Since 5.10 column 13 is the processor; before, lines of processors
/// that are offline are missing, and the number of the line is the best estimate.
pub(crate) fn softnet(text: &str) -> BTreeMap<u32, Softnet> {
    const CPU_COLUMN: usize = 12;
    let mut found = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let columns: Vec<u64> =
            line.split_ascii_whitespace().map_while(|word| u64::from_str_radix(word, 16).ok()).collect();
        let [processed, dropped, squeezed, ..] = columns[..] else { continue };
        let cpu = columns.get(CPU_COLUMN).copied().unwrap_or(index as u64);
        let Ok(cpu) = u32::try_from(cpu) else { continue };
        found.insert(cpu, Softnet { processed, dropped, squeezed });
    }
    found
}

/// Drops and squeezes of all processors between two samples.
pub(crate) fn softnet_growth(before: &BTreeMap<u32, Softnet>, now: &BTreeMap<u32, Softnet>) -> (u64, u64) {
    let mut sums = (0, 0);
    for (cpu, after) in now {
        let Some(earlier) = before.get(cpu) else { continue };
        sums.0 += growth(earlier.dropped, after.dropped).unwrap_or(0);
        sums.1 += growth(earlier.squeezed, after.squeezed).unwrap_or(0);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  10 20 30 400 5 1 2 3 0 0\ncpu0 4 0 10 200 5 0 2 0 0 0\ncpu7 6 20 20 200 0 1 0 3 0 0\n\
        intr 12 0 0 1\nctxt 999\nbtime 1\nprocesses 77\nprocs_running 3\nprocs_blocked 0\n";

    #[test]
    fn stat_is_read_by_processor() {
        let stat = stat(STAT).expect("understood");
        assert_eq!(
            stat.all,
            Times { user: 30, system: 31, idle: 400, iowait: 5, softirq: 2, steal: 3 },
            "nice is user, irq is system"
        );
        assert_eq!(stat.cores.keys().copied().collect::<Vec<_>>(), [0, 7]);
        assert_eq!((stat.context_switches, stat.forks, stat.runnable), (999, 77, 3));
        assert_eq!(super::stat("intr 5\n"), None);
    }

    #[test]
    fn shares_add_up_and_a_class_may_go_back() {
        let before = Times { user: 100, system: 50, idle: 800, iowait: 40, softirq: 0, steal: 10 };
        let now = Times { user: 130, system: 60, idle: 850, iowait: 30, softirq: 5, steal: 15 };
        let shares = shares(&before, &now).expect("ticks passed");
        assert_eq!(shares.iowait_pct, 0.0, "40 to 30 is no negative share");
        assert_eq!((shares.user_pct, shares.system_pct, shares.softirq_pct), (30.0, 10.0, 5.0));
        assert_eq!((shares.steal_pct, shares.busy_pct), (5.0, 45.0));
        assert_eq!(super::shares(&now, &now), None);
    }

    #[test]
    fn pressure_of_old_and_new_kernels() {
        let new = pressure(
            "some avg10=1.00 avg60=0.50 avg300=0.10 total=5000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
        );
        assert_eq!(new, Pressure { some_us: Some(5000), full_us: Some(7) });
        assert_eq!(pressure("some avg10=1.00 total=5000").full_us, None, "5.12 has no full line for cpu");
        assert_eq!(pressure("some"), Pressure::default());
        assert_eq!(stalled_pct(Some(1_000_000), Some(1_250_000), 1_000_000), Some(25.0));
        assert_eq!(stalled_pct(Some(0), Some(1_010_000), 1_000_000), Some(100.0));
        assert_eq!(stalled_pct(None, Some(1), 1_000_000), None);
    }

    #[test]
    fn softnet_lines_name_their_processor() {
        let new = "0000000a 00000002 00000001 0 0 0 0 0 0 0 0 0 00000003 0 0\n";
        assert_eq!(
            softnet(new).into_iter().collect::<Vec<_>>(),
            [(3, Softnet { processed: 10, dropped: 2, squeezed: 1 })]
        );
        let old = softnet("1 0 0 0 0 0 0 0 0 0 0\nff 0 5 0 0 0 0 0 0 0 0\n");
        assert_eq!(old[&1], Softnet { processed: 255, dropped: 0, squeezed: 5 });
        let later = softnet("1 0 0 0 0 0 0 0 0 0 0\nff 4 8 0 0 0 0 0 0 0 0\n");
        assert_eq!(softnet_growth(&old, &later), (4, 3));
    }
}
