//! The control groups of a server: limits of CPU, memory and I/O that the host's own counters do not show.
//!
//! Both versions are read. In version 2 a process is in one group; in version 1 each controller has its own tree. A limit of any group above a process
//! holds for it, so the tightest counts.

use super::files::Files;
use super::server::Server;
use crate::collect::Batch;
use record::watched::Cgroup;
use std::collections::BTreeMap;
use std::path::Path;

/// Limits change rarely, and their counters are sums.
const EVERY_US: u64 = 2_000_000;
/// Where the groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// A limit of version 1 above this is none: the kernel writes the largest multiple of a page.
const MEMORY_NONE: u64 = 1 << 62;
/// Files of version 1 with limits of I/O.
const THROTTLES: [&str; 4] = ["read_bps_device", "write_bps_device", "read_iops_device", "write_iops_device"];

/// Counts since a group was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    periods: u64,
    throttled: u64,
    throttled_us: u64,
    oom_kills: u64,
    pids_refused: u64,
}

/// The limits of a process, and the counts of its groups.
#[derive(Clone, PartialEq, Debug, Default)]
struct Reading {
    path: String,
    quota_cpus: Option<f64>,
    memory_max: Option<u64>,
    memory: Option<u64>,
    cpus_allowed: Option<u64>,
    io_limit: String,
    pids_max: Option<u64>,
    pids: Option<u64>,
    counts: Counts,
}

/// The groups of each node, with the last counts.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    due_us: u64,
    before: BTreeMap<String, (u64, Counts)>,
    /// The groups of the last process that was there: one that a limit has killed still had them.
    groups: BTreeMap<String, String>,
}

impl Cgroups {
    /// Reads the groups of every node that has a known process on this host.
    pub(crate) fn tick(
        &mut self,
        files: &mut dyn Files,
        host: &str,
        now_us: u64,
        servers: &[Server],
        batch: &mut Batch,
    ) {
        if now_us < self.due_us {
            return;
        }
        self.due_us = now_us + EVERY_US;
        for server in servers {
            if let Some(groups) = server.pid.and_then(|pid| groups_of(files, pid)) {
                self.groups.insert(server.node.clone(), groups);
            }
            let Some(groups) = self.groups.get(&server.node) else { continue };
            let reading = read_groups(files, groups, server.pid);
            let before = self.before.insert(server.node.clone(), (now_us, reading.counts));
            let is_pinned =
                reading.cpus_allowed.zip(online(files)).is_some_and(|(allowed, all)| allowed < all);
            let is_limited = is_pinned
                || reading.pids_max.is_some()
                || reading.quota_cpus.is_some()
                || reading.memory_max.is_some()
                || !reading.io_limit.is_empty();
            let Some((last_us, before)) = before.filter(|_| is_limited) else { continue };
            let grown = |of: fn(&Counts) -> u64| Some(of(&reading.counts).saturating_sub(of(&before)));
            batch.counted(
                now_us,
                now_us.saturating_sub(last_us),
                Cgroup {
                    host: host.to_string(),
                    node: server.node.clone(),
                    path: reading.path.clone(),
                    quota_cpus: reading.quota_cpus,
                    cpus_allowed: reading.cpus_allowed,
                    periods: grown(|counts| counts.periods),
                    periods_throttled: grown(|counts| counts.throttled),
                    throttled_us: grown(|counts| counts.throttled_us),
                    memory_max_bytes: reading.memory_max,
                    memory_bytes: reading.memory,
                    oom_kills: grown(|counts| counts.oom_kills),
                    io_limit: reading.io_limit.clone(),
                    pids_max: reading.pids_max,
                    pids: reading.pids,
                    pids_refused: reading.pids_max.and_then(|_| grown(|counts| counts.pids_refused)),
                },
            );
        }
    }
}

/// What the groups of a process allow it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Allowed {
    /// Bytes of memory; `None` without a limit.
    pub memory_max_bytes: Option<u64>,
    /// What the group with that limit uses.
    pub memory_bytes: Option<u64>,
    /// CPUs, by quota and by the list of allowed ones.
    pub cpus: Option<f64>,
}

/// Reads what the groups of a process allow; nothing if it is gone.
pub fn allowed(files: &mut dyn Files, pid: u32) -> Allowed {
    let Some(reading) = read(files, pid) else { return Allowed::default() };
    let listed = reading.cpus_allowed.map(|cpus| cpus as f64);
    let cpus = [reading.quota_cpus, listed].into_iter().flatten().reduce(f64::min);
    Allowed { memory_max_bytes: reading.memory_max, memory_bytes: reading.memory, cpus }
}

/// `None` if the process is gone.
fn groups_of(files: &mut dyn Files, pid: u32) -> Option<String> {
    files.text(&format!("/proc/{pid}/cgroup")).ok().map(str::to_string)
}

fn read(files: &mut dyn Files, pid: u32) -> Option<Reading> {
    let groups = groups_of(files, pid)?;
    Some(read_groups(files, &groups, Some(pid)))
}

/// The limits of groups, as the kernel lists them, and of the process, if it is there.
fn read_groups(files: &mut dyn Files, text: &str, pid: Option<u32>) -> Reading {
    let status = pid.and_then(|pid| files.text(&format!("/proc/{pid}/status")).ok().map(str::to_string));
    let status = status.unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut reading = Reading { cpus_allowed: list.and_then(cpus), ..Reading::default() };
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let names: Vec<&str> = controllers.split(',').collect();
        let is_unified = controllers.is_empty();
        let roots: Vec<(&str, String)> = ["cpu", "memory", "blkio", "pids"]
            .into_iter()
            .filter(|name| is_unified || names.contains(name))
            .map(|name| (name, if is_unified { ROOT.to_string() } else { format!("{ROOT}/{name}") }))
            .collect();
        for above in Path::new(path.trim_start_matches('/')).ancestors() {
            for (controller, root) in &roots {
                let folder = format!("{root}/{}", above.display());
                reading.take(files, controller, folder.trim_end_matches('/'), is_unified);
            }
        }
        if !roots.is_empty() && (reading.path.is_empty() || path.len() > reading.path.len()) {
            reading.path = path.to_string();
        }
    }
    reading
}

impl Reading {
    fn take(&mut self, files: &mut dyn Files, controller: &str, folder: &str, is_unified: bool) {
        match controller {
            "cpu" => self.take_cpu(files, folder, is_unified),
            "memory" => self.take_memory(files, folder, is_unified),
            "pids" => self.take_pids(files, folder),
            _ => self.take_io(files, folder, is_unified),
        }
    }

    fn take_cpu(&mut self, files: &mut dyn Files, folder: &str, is_unified: bool) {
        let quota = if is_unified {
            text(files, folder, "cpu.max")
                .and_then(|text| quota(text.split_whitespace().next(), text.split_whitespace().nth(1)))
        } else {
            let (all, period) =
                (text(files, folder, "cpu.cfs_quota_us"), text(files, folder, "cpu.cfs_period_us"));
            quota(all.as_deref(), period.as_deref())
        };
        // Only a group with a quota has periods.
        let Some(quota) = quota else { return };
        self.quota_cpus = Some(self.quota_cpus.map_or(quota, |other| other.min(quota)));
        let Some(stat) = text(files, folder, "cpu.stat") else { return };
        self.counts.periods += count(&stat, "nr_periods");
        self.counts.throttled += count(&stat, "nr_throttled");
        // Version 1 counts nanoseconds.
        self.counts.throttled_us += count(&stat, "throttled_usec") + count(&stat, "throttled_time") / 1000;
    }

    fn take_memory(&mut self, files: &mut dyn Files, folder: &str, is_unified: bool) {
        let (limit, used, events) = match is_unified {
            true => ("memory.max", "memory.current", "memory.events"),
            false => ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"),
        };
        let most = text(files, folder, limit).and_then(|text| text.parse::<u64>().ok());
        let Some(most) = most.filter(|bytes| *bytes < MEMORY_NONE) else { return };
        if self.memory_max.is_none_or(|other| most < other) {
            self.memory_max = Some(most);
            self.memory = text(files, folder, used).and_then(|text| text.parse().ok());
        }
        self.counts.oom_kills += text(files, folder, events).map_or(0, |text| count(&text, "oom_kill"));
    }

    /// The names are the same in both versions. Service managers give every service a limit, so that one far away is no news.
    fn take_pids(&mut self, files: &mut dyn Files, folder: &str) {
        let number = |text: String| text.parse::<u64>().ok();
        let Some(most) = text(files, folder, "pids.max").and_then(number) else { return };
        let refused = text(files, folder, "pids.events").map_or(0, |text| count(&text, "max"));
        self.counts.pids_refused += refused;
        let Some(used) = text(files, folder, "pids.current").and_then(number) else { return };
        let is_near = used.saturating_mul(2) >= most;
        let is_nearer = self
            .pids
            .zip(self.pids_max)
            .is_none_or(|(other, other_most)| most.saturating_sub(used) < other_most.saturating_sub(other));
        if is_near && is_nearer {
            (self.pids_max, self.pids) = (Some(most), Some(used));
        }
    }

    fn take_io(&mut self, files: &mut dyn Files, folder: &str, is_unified: bool) {
        let mut limits: Vec<String> = vec![];
        if is_unified {
            limits.extend(text(files, folder, "io.max").filter(|text| !text.is_empty()));
        } else {
            for name in THROTTLES {
                let lines = text(files, folder, &format!("blkio.throttle.{name}")).unwrap_or_default();
                let word = name.trim_end_matches("_device");
                limits.extend(lines.lines().map(|line| format!("{} {word}", line.trim())));
            }
        }
        for limit in limits {
            let separator = if self.io_limit.is_empty() { "" } else { "; " };
            self.io_limit.push_str(&format!("{separator}{}", limit.replace('\n', "; ")));
        }
    }
}

fn text(files: &mut dyn Files, folder: &str, name: &str) -> Option<String> {
    files.text(&format!("{folder}/{name}")).ok().map(|text| text.trim().to_string())
}

/// The number of CPUs in a list of the kernel: `0-3,8`.
fn cpus(list: &str) -> Option<u64> {
    let mut sum = 0;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        sum += last.checked_sub(first)? + 1;
    }
    Some(sum)
}

fn online(files: &mut dyn Files) -> Option<u64> {
    files.text("/sys/devices/system/cpu/online").ok().and_then(cpus)
}

/// CPUs; `None` without a limit (`max`, or -1 in version 1).
fn quota(all: Option<&str>, period: Option<&str>) -> Option<f64> {
    let (all, period) = (all?.trim().parse::<f64>().ok()?, period?.trim().parse::<f64>().ok()?);
    (all > 0.0 && period > 0.0).then(|| all / period)
}

fn count(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
    value.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;
    use record::watched::Sampled;

    fn lines(cgroups: &mut Cgroups, files: &mut Shipped, now_us: u64) -> Vec<Cgroup> {
        let mut batch = Batch::default();
        let server = Server { node: "n1".into(), pid: Some(7), ..Server::default() };
        cgroups.tick(files, "h", now_us, &[server], &mut batch);
        let line = |(_, _, line)| match line {
            Sampled::Cgroup(line) => line,
            other => panic!("{other:?}"),
        };
        batch.lines.into_iter().map(line).collect()
    }

    #[test]
    fn the_tightest_limit_of_all_groups_above_counts() {
        let (mut cgroups, mut files) = (Cgroups::default(), Shipped::default());
        files.put("/proc/7/cgroup", "0::/a.slice/pg\n".into());
        files.put("/sys/fs/cgroup/a.slice/cpu.max", "50000 100000\n".into());
        files.put("/sys/fs/cgroup/a.slice/pg/cpu.max", "max 100000\n".into());
        files.put(
            "/sys/fs/cgroup/a.slice/cpu.stat",
            "usage_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 9000\n".into(),
        );
        files.put("/sys/fs/cgroup/a.slice/pg/memory.max", "1000000\n".into());
        files.put("/sys/fs/cgroup/a.slice/pg/memory.current", "900000\n".into());
        files.put("/sys/fs/cgroup/a.slice/pg/memory.events", "oom 1\noom_kill 1\n".into());
        files.put("/sys/fs/cgroup/a.slice/pg/io.max", "8:0 wbps=1048576\n".into());
        assert!(lines(&mut cgroups, &mut files, 1_000_000).is_empty(), "no basis yet");
        files.put(
            "/sys/fs/cgroup/a.slice/cpu.stat",
            "nr_periods 40\nnr_throttled 24\nthrottled_usec 109000\n".into(),
        );
        let seen = lines(&mut cgroups, &mut files, 4_000_000);
        let [line] = seen.as_slice() else { panic!("{seen:?}") };
        assert_eq!((line.quota_cpus, line.periods, line.periods_throttled), (Some(0.5), Some(30), Some(20)));
        assert_eq!((line.throttled_us, line.oom_kills), (Some(100_000), Some(0)));
        assert_eq!((line.memory_max_bytes, line.memory_bytes), (Some(1_000_000), Some(900_000)));
        let allowed = allowed(&mut files, 7);
        assert_eq!((allowed.memory_max_bytes, allowed.memory_bytes), (Some(1_000_000), Some(900_000)));
        assert_eq!(allowed.cpus, Some(0.5));
        assert_eq!(super::allowed(&mut files, 8), Allowed::default());
        assert_eq!((line.io_limit.as_str(), line.path.as_str()), ("8:0 wbps=1048576", "/a.slice/pg"));
    }

    #[test]
    fn a_limit_of_processes_is_read_when_it_is_near() {
        for (group, folder) in [("0::/pg", "/sys/fs/cgroup/pg"), ("9:pids:/pg", "/sys/fs/cgroup/pids/pg")] {
            let (mut cgroups, mut files) = (Cgroups::default(), Shipped::default());
            files.put("/proc/7/cgroup", format!("{group}\n"));
            files.put(&format!("{folder}/pids.max"), "42\n".into());
            files.put(&format!("{folder}/pids.current"), "9\n".into());
            files.put(&format!("{folder}/pids.events"), "max 3\n".into());
            lines(&mut cgroups, &mut files, 1_000_000);
            assert!(lines(&mut cgroups, &mut files, 4_000_000).is_empty(), "far away");
            files.put(&format!("{folder}/pids.current"), "42\n".into());
            files.put(&format!("{folder}/pids.events"), "max 60\n".into());
            let seen = lines(&mut cgroups, &mut files, 7_000_000);
            assert_eq!(
                (seen[0].pids_max, seen[0].pids, seen[0].pids_refused),
                (Some(42), Some(42), Some(57))
            );
            files.put(&format!("{folder}/pids.max"), "max\n".into());
            assert!(lines(&mut cgroups, &mut files, 10_000_000).is_empty(), "no limit");
        }
    }

    #[test]
    fn the_groups_of_a_process_that_was_killed_are_read_further() {
        let (mut cgroups, mut files) = (Cgroups::default(), Shipped::default());
        files.put("/proc/7/cgroup", "0::/pg\n".into());
        files.put("/sys/fs/cgroup/pg/memory.max", "1000000\n".into());
        files.put("/sys/fs/cgroup/pg/memory.events", "oom_kill 1\n".into());
        assert!(lines(&mut cgroups, &mut files, 1_000_000).is_empty());
        let mut files = Shipped::default();
        files.put("/sys/fs/cgroup/pg/memory.max", "1000000\n".into());
        files.put("/sys/fs/cgroup/pg/memory.events", "oom_kill 4\n".into());
        let seen = lines(&mut cgroups, &mut files, 4_000_000);
        assert_eq!((seen[0].oom_kills, seen[0].memory_max_bytes), (Some(3), Some(1_000_000)));
    }

    #[test]
    fn a_server_that_may_not_use_all_cpus_has_a_line() {
        let (mut cgroups, mut files) = (Cgroups::default(), Shipped::default());
        files.put("/proc/7/cgroup", "0::/\n".into());
        files.put("/proc/7/status", "Name:\tpostgres\nCpus_allowed_list:\t0-1,4\n".into());
        files.put("/sys/devices/system/cpu/online", "0-2\n".into());
        lines(&mut cgroups, &mut files, 1_000_000);
        assert!(lines(&mut cgroups, &mut files, 4_000_000).is_empty(), "three of three");
        files.put("/sys/devices/system/cpu/online", "0-7\n".into());
        assert_eq!(lines(&mut cgroups, &mut files, 7_000_000)[0].cpus_allowed, Some(3));
        assert_eq!((cpus("5"), cpus("3-1"), cpus("x")), (Some(1), None, None));
    }

    #[test]
    fn version_1_has_a_tree_for_each_controller_and_no_limit_is_no_line() {
        let (mut cgroups, mut files) = (Cgroups::default(), Shipped::default());
        files.put("/proc/7/cgroup", "4:memory:/\n3:cpu,cpuacct:/pg\n2:blkio:/pg\n".into());
        files.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n".into());
        files.put("/sys/fs/cgroup/cpu/pg/cpu.cfs_quota_us", "-1\n".into());
        files.put("/sys/fs/cgroup/cpu/pg/cpu.cfs_period_us", "100000\n".into());
        lines(&mut cgroups, &mut files, 1_000_000);
        assert!(lines(&mut cgroups, &mut files, 4_000_000).is_empty());
        files.put("/sys/fs/cgroup/blkio/pg/blkio.throttle.write_bps_device", "7:0 3145728\n".into());
        let seen = lines(&mut cgroups, &mut files, 7_000_000);
        assert_eq!(seen[0].io_limit, "7:0 3145728 write_bps");
        assert_eq!((seen[0].quota_cpus, seen[0].memory_max_bytes), (None, None));
    }
}
