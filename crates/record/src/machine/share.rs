//! Other users of the CPUs while a step was measured: the hypervisor (steal), other programs, and control groups at their limit. The target causes
//! none of this, so every result shows it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Taken by the hypervisor from this share on: noted.
const STEAL_SHARE_NOTED: f64 = 0.02;
/// Taken by other programs from this share on: noted.
const OTHERS_SHARE_NOTED: f64 = 0.10;
/// Periods in which a control group was stopped, from this share on: noted.
const THROTTLED_SHARE_NOTED: f64 = 0.01;
/// Ticks of all processors below which shares prove nothing: the kernel counts in hundredths of a second.
const TICKS_MIN: u64 = 50;
/// Processes of the server by the name of their program.
const SERVERS: [&str; 3] = ["postgres", "postmaster", "edb-postgres"];

/// What the kernel has counted up to a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    /// Ticks of all processors: all of them, busy ones, stolen ones.
    total: u64,
    busy: u64,
    stolen: u64,
    /// Of this process and its children.
    own: u64,
    /// Of PostgreSQL's processes, and which of them collect the counts of those that ended.
    servers: u64,
    parents: BTreeSet<u64>,
    /// Periods of control groups (of this process and of the servers), and those in which one was stopped.
    periods: Vec<(&'static str, Periods)>,
}

/// `cpu.stat` of a control group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Periods {
    all: u64,
    stopped: u64,
}

/// A process in `/proc`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Process {
    name: String,
    parent: u64,
    /// Its own ticks, and those of its children that ended.
    ticks: u64,
}

impl Shares {
    /// As of now; `None` where the kernel does not say.
    pub(crate) fn now() -> Option<Shares> {
        Shares::of(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
    }

    fn of(proc: &Path, groups: &Path) -> Option<Shares> {
        let (total, busy, stolen) = totals(&fs::read_to_string(proc.join("stat")).ok()?)?;
        let own = process(&fs::read_to_string(proc.join("self/stat")).ok()?)?.1.ticks;
        let mut processes = vec![];
        for entry in fs::read_dir(proc).ok()?.flatten() {
            let is_process = entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
            let stat = is_process.then(|| fs::read_to_string(entry.path().join("stat")).ok()).flatten();
            let found = stat.and_then(|text| process(&text));
            processes.extend(found.filter(|(_, process)| SERVERS.contains(&process.name.as_str())));
        }
        let pids: BTreeSet<u64> = processes.iter().map(|(pid, _)| *pid).collect();
        let parents: BTreeSet<u64> = processes
            .iter()
            .filter(|(_, process)| !pids.contains(&process.parent))
            .map(|(pid, _)| *pid)
            .collect();
        let mut periods = vec![("pgfathom's", group(proc, "self", groups))];
        periods.extend(
            parents.iter().take(1).map(|pid| ("PostgreSQL's", group(proc, &pid.to_string(), groups))),
        );
        Some(Shares {
            total,
            busy,
            stolen,
            own,
            servers: processes.iter().map(|(_, process)| process.ticks).sum(),
            parents,
            periods,
        })
    }

    /// What a careful reader of a result should know, one sentence each.
    pub(crate) fn notes_since(&self, before: &Shares) -> Vec<String> {
        let mut notes = vec![];
        let total = self.total.saturating_sub(before.total);
        if total >= TICKS_MIN {
            let share = |ticks: u64| ticks as f64 / total as f64;
            let percent = |share: f64| (share * 100.0).round();
            let stolen = share(self.stolen.saturating_sub(before.stolen));
            if stolen >= STEAL_SHARE_NOTED {
                notes.push(format!(
                    "the hypervisor took {} % of this host's CPU time away (steal): rates are lower and latencies higher because of it",
                    percent(stolen)
                ));
            }
            if let Some(others) =
                self.others_since(before).map(share).filter(|share| *share >= OTHERS_SHARE_NOTED)
            {
                notes.push(format!(
                    "other programs than pgfathom and PostgreSQL took {} % of this host's CPU time",
                    percent(others)
                ));
            }
        }
        for (whose, periods) in &self.periods {
            let Some((_, earlier)) = before.periods.iter().find(|(name, _)| name == whose) else { continue };
            let all = periods.all.saturating_sub(earlier.all);
            let stopped = periods.stopped.saturating_sub(earlier.stopped);
            if all > 0 && stopped as f64 / all as f64 >= THROTTLED_SHARE_NOTED {
                notes.push(format!(
                    "{whose} control group was throttled in {stopped} of {all} periods: its CPU limit (cpu.max) was reached"
                ));
            }
        }
        notes
    }

    /// Ticks of programs that are neither ours nor PostgreSQL's; `None` if a server ended in between and took its count along.
    fn others_since(&self, before: &Shares) -> Option<u64> {
        if !before.parents.is_subset(&self.parents) || self.servers < before.servers {
            return None;
        }
        let busy = self.busy.saturating_sub(before.busy);
        Some(
            busy.saturating_sub(self.own.saturating_sub(before.own))
                .saturating_sub(self.servers - before.servers),
        )
    }
}

/// The first line of `/proc/stat`: all ticks, busy ones, stolen ones. Time of guests is part of user time.
fn totals(text: &str) -> Option<(u64, u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let counts: Vec<u64> =
        line.split_ascii_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, stolen] = *counts.first_chunk::<8>()?;
    let busy = user + nice + system + irq + softirq;
    Some((busy + idle + iowait + stolen, busy, stolen))
}

/// A line of `/proc/PID/stat`; the name may hold anything, so the last parenthesis ends it.
fn process(text: &str) -> Option<(u64, Process)> {
    let (pid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| words.get(index)?.parse::<u64>().ok();
    // utime, stime, cutime, cstime: fields 14 to 17, counted from 1.
    let ticks = (11..=14).map(number).sum::<Option<u64>>()?;
    Some((pid.parse().ok()?, Process { name: name.to_string(), parent: number(1)?, ticks }))
}

/// What the control groups of a process count, all above it together: each may have a limit.
fn group(proc: &Path, pid: &str, groups: &Path) -> Periods {
    let text = fs::read_to_string(proc.join(pid).join("cgroup")).unwrap_or_default();
    let mut sum = Periods::default();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let root: PathBuf = match controllers {
            "" => groups.to_path_buf(),
            _ if controllers.split(',').any(|name| name == "cpu") => groups.join("cpu"),
            _ => continue,
        };
        for above in Path::new(path.trim_start_matches('/')).ancestors() {
            let stat = fs::read_to_string(root.join(above).join("cpu.stat")).unwrap_or_default();
            let count = |name: &str| {
                let value = stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
                value.unwrap_or(0)
            };
            sum.all += count("nr_periods ");
            sum.stopped += count("nr_throttled ");
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(busy: u64, idle: u64, stolen: u64, own: u64, servers: u64) -> Shares {
        Shares {
            total: busy + idle + stolen,
            busy,
            stolen,
            own,
            servers,
            parents: BTreeSet::from([7]),
            periods: vec![("pgfathom's", Periods::default())],
        }
    }

    #[test]
    fn steal_foreign_programs_and_throttling_are_noted_with_their_share() {
        let before = shares(1000, 1000, 0, 100, 500);
        let calm = shares(1600, 1390, 10, 200, 990);
        assert_eq!(calm.notes_since(&before), Vec::<String>::new());
        let stolen = shares(1500, 1100, 400, 300, 800).notes_since(&before);
        assert!(
            stolen.len() == 1 && stolen[0].contains("took 40 %") && stolen[0].contains("steal"),
            "{stolen:?}"
        );
        let others = shares(1700, 1300, 0, 200, 800).notes_since(&before);
        assert!(
            others.len() == 1 && others[0].contains("other programs") && others[0].contains("30 %"),
            "{others:?}"
        );
        let mut throttled = calm.clone();
        throttled.periods = vec![("pgfathom's", Periods { all: 100, stopped: 12 })];
        let throttled = throttled.notes_since(&before);
        assert!(throttled[0].contains("throttled in 12 of 100 periods"), "{throttled:?}");
    }

    #[test]
    fn a_server_that_ended_makes_no_foreign_program() {
        let before = shares(1000, 1000, 0, 100, 500);
        let mut after = shares(1700, 1300, 0, 200, 10);
        assert_eq!(after.notes_since(&before), Vec::<String>::new());
        after.servers = 600;
        after.parents = BTreeSet::from([8]);
        assert_eq!(after.notes_since(&before), Vec::<String>::new());
        // Too short to say anything.
        assert_eq!(shares(1040, 1000, 5, 100, 500).notes_since(&before), Vec::<String>::new());
    }

    #[test]
    fn files_of_the_kernel_are_understood() {
        assert_eq!(totals("cpu  10 1 5 80 4 1 2 7 3 0\ncpu0 1\n"), Some((110, 19, 7)));
        assert_eq!(totals("cpu  10 1\n"), None);
        let stat = "42 (post) gres) S 7 42 42 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1";
        let expected = Process { name: "post) gres".to_string(), parent: 7, ticks: 50 };
        assert_eq!(process(stat), Some((42, expected)));
        assert_eq!(process("42 (x"), None);
        let folder = std::env::temp_dir().join(format!("pgfathom-share-{}", std::process::id()));
        fs::create_dir_all(folder.join("proc/self")).expect("made");
        fs::create_dir_all(folder.join("groups/a/b")).expect("made");
        fs::write(folder.join("proc/self/cgroup"), "0::/a/b\n").expect("written");
        let stat = |periods: u64, stopped: u64| {
            format!("usage_usec 1\nnr_periods {periods}\nnr_throttled {stopped}\n")
        };
        fs::write(folder.join("groups/a/cpu.stat"), stat(5, 2)).expect("written");
        fs::write(folder.join("groups/a/b/cpu.stat"), stat(0, 0)).expect("written");
        assert_eq!(
            group(&folder.join("proc"), "self", &folder.join("groups")),
            Periods { all: 5, stopped: 2 }
        );
        fs::remove_dir_all(&folder).expect("ours");
        assert!(Shares::now().is_some_and(|shares| shares.total > shares.own));
    }
}
