//! Slow data of a host: mounts and their free space, hardware counters, facts, programs that intercept system calls.
//!
//! | every | what |
//! |---|---|
//! | 10 s | space of the file systems that hold the database, hardware counters |
//! | 60 s | mounts, the stack of block devices, facts, the clock's state |
//! | 600 s | fanotify marks of all processes; programs (`smartctl`, `chronyc`, `auditctl`, `zpool`) |

use super::facts;
use super::files::{Absent, Files, growth};
use super::hardware::{self, Counter, Kind};
use super::mount::{self, Mount};
use super::recorded::Recorded;
use super::security::{self, MarkedOn};
use super::server::{Part, Server};
use super::tools;
use super::topology::Topology;
use crate::collect::{Batch, Place};
use record::watched::{Hardware, Mount as MountLine};
use std::collections::{BTreeMap, BTreeSet};

/// The interval for space and counters.
const COUNTERS_EVERY_US: u64 = 10_000_000;
/// Time between looks at facts.
const FACTS_EVERY_US: u64 = 60_000_000;
/// Time between searches of all processes.
const SEARCH_EVERY_US: u64 = 600_000_000;
/// File systems recorded when it is unknown which hold the database.
const MOUNTS_MAX: usize = 32;
/// The file of a shipment with the output of `df -Pk`.
pub(crate) const DF_PATH: &str = "/@/df";

/// The slow part of a machine.
#[derive(Debug, Default)]
pub struct Slow {
    counters_due_us: u64,
    facts_due_us: u64,
    search_due_us: u64,
    /// Whether this tick reads every item that may be missing.
    is_round: bool,
    mounts: Vec<Mount>,
    topology: Topology,
    /// What lies where, of all servers.
    parts: Vec<Part>,
    /// The database's files on each device and all below it.
    used_for: BTreeMap<String, BTreeSet<String>>,
    counters: BTreeMap<(Kind, String), (u64, u64, bool)>,
    /// Whether some PCI device reports its errors.
    has_aer: bool,
    disks: Vec<String>,
    scan_lack: Option<String>,
    pools: BTreeMap<String, Vec<String>>,
    asking: tools::ToolQuery,
    tools: Option<tools::ToolOutput>,
}

impl Slow {
    /// The stack of block devices.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The database's files on a device.
    pub fn used_for(&self, device: &str) -> String {
        let parts = self.used_for.get(device).into_iter().flatten();
        parts.map(String::as_str).collect::<Vec<_>>().join(",")
    }

    /// Looks at whatever is due.
    pub fn tick(
        &mut self,
        files: &mut dyn Files,
        now_us: u64,
        place: &Place,
        servers: &[Server],
        recorded: &mut Recorded,
        batch: &mut Batch,
    ) {
        let mut parts: Vec<Part> = servers.iter().flat_map(|server| server.parts.iter().cloned()).collect();
        parts.sort();
        parts.dedup();
        let has_moved = parts != self.parts;
        self.parts = parts;
        self.is_round = now_us >= self.facts_due_us || has_moved;
        if self.is_round {
            self.facts_due_us = now_us + FACTS_EVERY_US;
            self.look_at_facts(files, now_us, place, recorded, batch);
            self.locate(now_us, place, recorded, batch);
        }
        let is_search = now_us >= self.search_due_us;
        if is_search {
            self.search_due_us = now_us + SEARCH_EVERY_US;
            self.search(files, now_us, place, recorded, batch);
            if files.is_live() {
                self.asking.begin(self.disks.clone());
            }
        }
        let answer = self.asking.answer();
        if let Some(answer) =
            answer.or_else(|| is_search.then(|| tools::shipped(files, &self.disks)).flatten())
        {
            self.pools.clone_from(&answer.pools);
            self.tools = Some(answer);
            self.record_tools(now_us, place, recorded, batch);
            self.is_round = true;
        }
        if now_us >= self.counters_due_us || has_moved {
            self.counters_due_us = now_us + COUNTERS_EVERY_US;
            self.record_mounts(files, now_us, place, batch);
            self.count(files, now_us, place, batch);
        }
        if self.is_round {
            self.lacks(files, recorded);
        }
    }

    /// Ends the tick: at the end of a round it reports what is missing.
    pub fn end(&mut self, now_us: u64, place: &Place, recorded: &mut Recorded, batch: &mut Batch) {
        if std::mem::take(&mut self.is_round) {
            recorded.end_round(batch, now_us, place);
        }
    }

    fn look_at_facts(
        &mut self,
        files: &mut dyn Files,
        now_us: u64,
        place: &Place,
        recorded: &mut Recorded,
        batch: &mut Batch,
    ) {
        self.mounts = mount::read(files);
        self.topology = Topology::read(files, &self.mounts);
        for (pool, members) in &self.pools {
            self.topology.add_pool(pool, members);
        }
        let worked = files.text("/proc/diskstats").map(super::disk::diskstats).unwrap_or_default();
        self.disks = worked
            .iter()
            .filter(|(name, counters)| counters.has_worked() && self.topology.is_disk(name))
            .map(|(name, _)| name.clone())
            .collect();
        for (topic, name, value) in facts::read(files, &self.topology, &self.mounts, &self.disks) {
            recorded.fact(batch, now_us, place, topic, &name, &value);
        }
        if files.is_live()
            && let Some(clock) = crate::sys::clock::clock_state()
        {
            let word = if clock.is_synchronised { "synchronised" } else { "not synchronised" };
            recorded.fact(batch, now_us, place, "clock", "kernel", word);
            // The bound grows with every second since the last correction: it is reported once per power of two.
            let bound_us = clock.maximum_error_us.max(1).unsigned_abs().next_power_of_two();
            recorded.fact(batch, now_us, place, "clock", "error at most", &format!("{bound_us} us"));
        }
    }

    /// Finds the file system and device of each part.
    fn locate(&mut self, now_us: u64, place: &Place, recorded: &mut Recorded, batch: &mut Batch) {
        self.used_for.clear();
        for Part { node, what, path } in &self.parts {
            let Some(mount) = mount::holding(&self.mounts, path) else { continue };
            if what == "pgdata" {
                let is_point = mount.mount.trim_end_matches('/') == path.trim_end_matches('/');
                let value = if is_point { "yes" } else { "no" };
                recorded.fact(
                    batch,
                    now_us,
                    place,
                    "mount",
                    &format!("{node} {what} is a mount point"),
                    value,
                );
            }
            let Some(device) = self.topology.device_of(mount) else { continue };
            let leaves: Vec<String> = self.topology.leaves(&device).into_iter().collect();
            recorded.fact(batch, now_us, place, "disk", &format!("{node} {what} lies on"), &leaves.join(","));
            for name in self.topology.stack_of(&device) {
                self.used_for.entry(name).or_default().insert(what.clone());
            }
        }
    }

    fn record_mounts(&self, files: &mut dyn Files, now_us: u64, place: &Place, batch: &mut Batch) {
        let shipped = files.text(DF_PATH).map(mount::df).unwrap_or_default();
        let mut reported: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for part in &self.parts {
            if let Some(mount) = mount::holding(&self.mounts, &part.path) {
                reported.entry(&mount.mount).or_default().insert(&part.what);
            }
        }
        if reported.is_empty() {
            let real = self.mounts.iter().filter(|mount| mount.is_real() && mount.root == "/");
            // A request for free space would hang on a dead NFS server.
            let local =
                real.filter(|mount| !mount.filesystem.starts_with("nfs") && mount.filesystem != "cifs");
            reported.extend(local.take(MOUNTS_MAX).map(|mount| (mount.mount.as_str(), BTreeSet::new())));
        }
        for (point, parts) in reported {
            let Some(mount) = self.mounts.iter().rfind(|mount| mount.mount == point) else { continue };
            let space = if files.is_live() { mount::space(point) } else { shipped.get(point).copied() };
            batch.reading(
                now_us,
                MountLine {
                    host: place.name().to_string(),
                    mount: mount.mount.clone(),
                    device: self.topology.device_of(mount).unwrap_or_else(|| mount.device.clone()),
                    filesystem: mount.filesystem.clone(),
                    options: mount.options.clone(),
                    size_bytes: space.map(|(size, _)| size),
                    free_bytes: space.map(|(_, free)| free),
                    used_for: parts.into_iter().collect::<Vec<_>>().join(","),
                },
            );
        }
    }

    fn count(&mut self, files: &mut dyn Files, now_us: u64, place: &Place, batch: &mut Batch) {
        let mut counters = hardware::edac(files);
        let aer = hardware::aer(files);
        self.has_aer = !aer.is_empty();
        counters.extend(aer);
        counters.extend(hardware::throttling(files));
        counters.extend(hardware::sensors(files));
        counters.extend(hardware::numa(files));
        counters.extend(hardware::zfs(files));
        for device in files.entries("/proc/fs/ext4") {
            let stats =
                files.text(&format!("/proc/fs/ext4/{device}/mb_stats")).ok().and_then(mount::mb_stats);
            let Some(stats) = stats else { continue };
            for (name, value) in [
                ("reqs", stats.reqs),
                ("groups_considered", stats.groups_considered),
                ("useless_loops", stats.useless_loops),
                ("extents_scanned", stats.extents_scanned),
            ] {
                counters.push(Counter::new(Kind::MbStats, format!("{device} {name}"), value, false));
            }
        }
        self.record_counters(counters, now_us, place, batch);
    }

    /// Reports the counters that moved, and in the first sample those that are remarkable. Fans and temperatures are readings, not counts:
    /// they are reported while they are remarkable, and once when they are normal again.
    fn record_counters(&mut self, counters: Vec<Counter>, now_us: u64, place: &Place, batch: &mut Batch) {
        for counter in counters {
            let key = (counter.kind, counter.name.clone());
            let before = self.counters.get(&key).copied();
            let is_gauge = matches!(counter.kind, Kind::Fan) || counter.name.contains("temp");
            // A fan that ran and now stands still is remarkable whatever its limits are.
            let has_stopped = counter.kind == Kind::Fan
                && counter.value == 0
                && before.is_some_and(|(_, value, was_remarkable)| value > 0 || was_remarkable);
            let is_remarkable = counter.is_remarkable || has_stopped;
            self.counters.insert(key, (now_us, counter.value, is_remarkable));
            let is_reported = match before {
                None => is_remarkable,
                Some((_, _, was_remarkable)) if is_gauge => is_remarkable || was_remarkable,
                Some((_, value, _)) => value != counter.value,
            };
            if !is_reported {
                continue;
            }
            let change = before.and_then(|(_, value, _)| growth(value, counter.value));
            batch.counted(
                now_us,
                before.map_or(0, |(t_us, _, _)| now_us.saturating_sub(t_us)),
                Hardware {
                    host: place.name().to_string(),
                    kind: counter.kind.word().to_string(),
                    name: counter.name,
                    value: Some(counter.value as f64),
                    change: change.filter(|_| !is_gauge).map(|change| change as f64),
                },
            );
        }
    }

    fn search(
        &mut self,
        files: &mut dyn Files,
        now_us: u64,
        place: &Place,
        recorded: &mut Recorded,
        batch: &mut Batch,
    ) {
        let scan = security::fanotify(files);
        self.scan_lack = match (scan.denied, scan.is_cut) {
            (0, false) => None,
            (0, true) => Some("there are too many open files to check all".to_string()),
            (denied, _) => Some(format!("{denied} processes could not be checked (needs root)")),
        };
        for mark in scan.marks {
            let on = match mark.on {
                MarkedOn::Mount(id) => self.mounts.iter().find(|mount| mount.id == id),
                MarkedOn::FileSystem(major, minor) => {
                    self.mounts.iter().find(|mount| mount.number == (major, minor))
                }
            };
            let on = on.map_or("an unknown mount", |mount| mount.mount.as_str());
            let waits = if mark.waits.is_empty() { "nothing".to_string() } else { mark.waits.join(",") };
            let name = format!("{} {} on {on}", mark.command, mark.pid);
            recorded.fact(batch, now_us, place, "fanotify", &name, &format!("must permit: {waits}"));
        }
    }

    fn record_tools(&mut self, now_us: u64, place: &Place, recorded: &mut Recorded, batch: &mut Batch) {
        let Some(answer) = self.tools.clone() else { return };
        if let Some(tracking) = &answer.tracking {
            recorded.fact(batch, now_us, place, "clock", "chrony", &tracking.leap);
            recorded.fact(batch, now_us, place, "clock", "chrony stratum", &tracking.stratum.to_string());
            let offset = format!("{:.0} us, error at most {:.0} us", tracking.offset_us, tracking.error_us);
            recorded.fact(batch, now_us, place, "clock", "chrony offset", &offset);
        }
        if let Some((status, rules)) = &answer.audit {
            let number = |value: Option<u64>| value.map_or("unknown".to_string(), |value| value.to_string());
            recorded.fact(batch, now_us, place, "audit", "enabled", &number(status.enabled));
            recorded.fact(batch, now_us, place, "audit", "lost", &number(status.lost));
            recorded.fact(batch, now_us, place, "audit", "backlog limit", &number(status.backlog_limit));
            recorded.fact(batch, now_us, place, "audit", "rules", &rules.join("; "));
        }
        self.record_counters(answer.smart.unwrap_or_default(), now_us, place, batch);
    }

    /// Notes the missing items of this module.
    fn lacks(&mut self, files: &mut dyn Files, recorded: &mut Recorded) {
        if files.entries("/sys/devices/system/edac/mc").iter().all(|name| !name.starts_with("mc")) {
            let why = "the kernel has no memory controller under /sys/devices/system/edac (a virtual machine, or no driver)";
            recorded.lacks("edac", why, "whether memory has corrected errors");
        }
        if !self.has_aer {
            let why = "no disk or network card under /sys/bus/pci reports errors (a virtual machine, or AER is off)";
            recorded.lacks("aer", why, "whether PCI Express links lose packets");
        }
        if files.entries("/sys/class/hwmon").is_empty() {
            recorded.lacks(
                "sensors",
                "/sys/class/hwmon is empty",
                "whether fans have stopped or parts are too hot",
            );
        }
        if self.mounts.is_empty() {
            recorded.lacks(
                "mounts",
                "/proc/self/mountinfo could not be read",
                "options and free space of file systems",
            );
        }
        if files.entries("/sys/block").is_empty() {
            recorded.lacks("topology", "/sys/block is empty", "which disk is a member of which array");
        }
        if let Some(why) = &self.scan_lack {
            recorded.lacks(
                "fanotify",
                why.as_str(),
                "whether a virus scanner must permit the server's opens and reads",
            );
        }
        for mount in &self.mounts {
            let is_ours =
                self.parts.iter().any(|part| mount::holding(&self.mounts, &part.path) == Some(mount));
            let Some(device) =
                self.topology.device_of(mount).filter(|_| is_ours && mount.filesystem == "ext4")
            else {
                continue;
            };
            let path = format!("/proc/fs/ext4/{device}/mb_stats");
            let why = match files.text(&path) {
                Ok(text) if mount::mb_stats(text).is_some() => continue,
                Ok(_) => format!("collection is off (write 1 to /sys/fs/ext4/{device}/mb_stats)"),
                Err(Absent::Missing) => format!("{path} does not exist (Linux before 5.14)"),
                Err(absent) => format!("{path}: {absent}"),
            };
            recorded.lacks(&format!("mb_stats {device}"), why, "how long ext4 searches for free blocks");
        }
        if !files.is_live() && self.tools.is_none() {
            let why = "the programs of this host were not run";
            recorded.lacks("smart", why, "the health reports of the drives");
            recorded.lacks("audit", why, "which system calls the audit system records");
        }
        if let Some(answer) = &self.tools {
            if answer.smart.is_none() {
                let why = "smartctl is missing, needs root, or finds no drive";
                recorded.lacks("smart", why, "the health reports of the drives");
            }
            if answer.audit.is_none() {
                let why = "auditctl is missing, or needs root";
                recorded.lacks("audit", why, "which system calls the audit system records");
            }
        }
    }
}
