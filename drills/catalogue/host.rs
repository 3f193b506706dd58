//! What belongs to an entry on this host: control groups (v1) that limit the server and count the CPU of everything that the entry started.

use crate::island::{GROUP, run, sweep};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const ROOT: &str = "/sys/fs/cgroup";
const PERIOD_US: u64 = 100_000;
/// USER_HZ, the unit of /proc/stat on every architecture that PostgreSQL supports on Linux.
const TICKS_PER_S: f64 = 100.0;
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Gives this process, which has its own mounts, and all that it starts a small /dev/shm, as containers have.
pub(crate) fn shrink_shared_memory(mib: u64) -> Result<(), String> {
    let options = format!("size={mib}m,mode=1777");
    run("mount", &["-t", "tmpfs", "-o", &options, "pgfathom"], &["/dev/shm"]).map(drop)
}

/// A control group of one controller.
pub(crate) struct Group {
    path: PathBuf,
    root: PathBuf,
}

impl Group {
    /// Makes one. The error is what the host lacks.
    pub(crate) fn new(controller: &str) -> Result<Group, String> {
        let root = Path::new(ROOT).join(controller);
        if !root.join("cgroup.procs").exists() {
            return Err(format!("no {} (cgroup v1)", root.display()));
        }
        sweep(&root);
        let path = root.join(format!("{GROUP}{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Group { path, root })
    }

    /// At most so many percent of one CPU.
    pub(crate) fn cpu_quota(pct: u64) -> Result<Group, String> {
        let group = Group::new("cpu")?;
        group.write("cpu.cfs_period_us", PERIOD_US)?;
        group.write("cpu.cfs_quota_us", PERIOD_US * pct / 100)?;
        Ok(group)
    }

    /// At most so much memory, page cache included.
    pub(crate) fn memory(mib: u64) -> Result<Group, String> {
        let group = Group::new("memory")?;
        group.write("memory.limit_in_bytes", mib << 20)?;
        Ok(group)
    }

    fn write(&self, file: &str, value: u64) -> Result<(), String> {
        let path = self.path.join(file);
        fs::write(&path, value.to_string()).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Moves processes into it; what they start later is in it, too.
    pub(crate) fn hold(&self, pids: impl IntoIterator<Item = u32>) -> Result<(), String> {
        for pid in pids {
            let moved = fs::write(self.path.join("cgroup.procs"), pid.to_string());
            if moved.is_err() && Path::new(&format!("/proc/{pid}")).exists() {
                return Err(format!("process {pid} cannot be moved into {}", self.path.display()));
            }
        }
        Ok(())
    }

    fn cpu_s(&self) -> f64 {
        let text = fs::read_to_string(self.path.join("cpuacct.usage")).unwrap_or_default();
        text.trim().parse::<f64>().unwrap_or(0.0) / 1e9
    }
}

impl Drop for Group {
    /// A group can be removed once its processes are elsewhere.
    fn drop(&mut self) {
        let begun = Instant::now();
        loop {
            for pid in fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default().lines() {
                let _ = fs::write(self.root.join("cgroup.procs"), pid);
            }
            if fs::remove_dir(&self.path).is_ok() || begun.elapsed() > LEAVE_TIMEOUT {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Counts the CPU time of programs that do not belong to this entry.
pub(crate) struct Foreign {
    group: Option<Group>,
}

/// A reading of [`Foreign`].
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    busy_s: f64,
    total_s: f64,
    ours_s: f64,
}

impl Foreign {
    /// From now on, this process and all that it starts are ours. Without the controller, everything else that runs is foreign.
    pub(crate) fn new() -> Foreign {
        let group = Group::new("cpuacct").ok();
        let held = group.filter(|group| group.hold([std::process::id()]).is_ok());
        Foreign { group: held }
    }

    pub(crate) fn read(&self) -> Reading {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        let ticks: Vec<f64> = first.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let per_s = TICKS_PER_S;
        let total: f64 = ticks.iter().take(8).sum();
        let idle: f64 = ticks.iter().skip(3).take(2).sum();
        Reading {
            busy_s: (total - idle) / per_s,
            total_s: total / per_s,
            ours_s: self.group.as_ref().map_or(0.0, Group::cpu_s),
        }
    }

    /// The share of the host's CPU time that others used since then, in percent; `None` if it cannot be told apart from ours.
    pub(crate) fn pct_since(&self, then: Reading) -> Option<f64> {
        self.group.as_ref()?;
        let now = self.read();
        let others = (now.busy_s - then.busy_s) - (now.ours_s - then.ours_s);
        Some((100.0 * others / (now.total_s - then.total_s).max(0.01)).clamp(0.0, 100.0))
    }

    /// Waits until others use less than that, at most so long.
    pub(crate) fn wait_for_less_than(&self, pct: f64, at_most: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < at_most {
            let then = self.read();
            thread::sleep(Duration::from_secs(1));
            if self.pct_since(then).is_none_or(|now| now < pct) {
                return;
            }
        }
    }
}
