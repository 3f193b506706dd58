//! One host, tick by tick: the activity of its CPUs, memory, disks, network and server processes since the last tick.
//!
//! It reads [`Files`], whatever their source. Slower data (mounts, hardware counters, facts) is in
//! [`super::slow`].

use super::backends::{Backends, Target};
use super::cgroup::Cgroups;
use super::cpu::{self, Pressure, Softnet, Stat};
use super::disk::{self, Counters};
use super::files::{Files, growth};
use super::memory::{self, PAGE_BYTES, Vmstat};
use super::net::{self, Interface};
use super::recorded::Recorded;
use super::server::Server;
use super::slow::Slow;
use crate::collect::{Batch, Place};
use record::watched::{Core, Disk, Host, Net};
use std::collections::BTreeMap;

/// Lines about single processors per tick at most: the busiest.
const CORES_MAX: usize = 16;
/// A processor gets a line when it is this busy ...
const CORE_BUSY_PCT: f64 = 70.0;
/// ... and another is less busy by this much: the load is skewed.
const CORE_SKEW_PCT: f64 = 30.0;
/// Or when it spends this much on soft interrupts.
const CORE_SOFTIRQ_PCT: f64 = 20.0;

/// The files of pressure stall information.
const PRESSURE: [&str; 3] = ["/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory"];

/// All counters since boot, at one time.
#[derive(Clone, Debug, Default)]
struct Reading {
    t_us: u64,
    stat: Option<Stat>,
    pressure: [Pressure; 3],
    vmstat: Vmstat,
    tcp_retransmits: Option<u64>,
    tcp_segments_out: Option<u64>,
    softnet: BTreeMap<u32, Softnet>,
    disks: BTreeMap<String, Counters>,
    interfaces: BTreeMap<String, Interface>,
}

/// A machine being watched.
#[derive(Debug)]
pub struct Machine {
    host: String,
    place: Place,
    before: Option<Reading>,
    backends: Backends,
    cgroups: Cgroups,
    slow: Slow,
    recorded: Recorded,
    /// CPU time of programs and of the kernel in the last interval, for the collector of stacks.
    cpu: Option<(f64, f64)>,
}

impl Machine {
    /// A host without a sample yet.
    pub fn new(host: &str) -> Machine {
        Machine {
            host: host.to_string(),
            place: Place::Host(host.to_string()),
            before: None,
            backends: Backends::default(),
            cgroups: Cgroups::default(),
            slow: Slow::default(),
            recorded: Recorded::default(),
            cpu: None,
        }
    }

    /// Its name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its place in the record.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// CPU time of programs and of the kernel in the last interval, in percent of all processors.
    pub(crate) fn cpu(&self) -> Option<(f64, f64)> {
        self.cpu
    }

    /// The slow part, to which the output of programs is added.
    pub fn slow(&mut self) -> (&mut Slow, &mut Recorded) {
        (&mut self.slow, &mut self.recorded)
    }

    /// Takes a sample. `now_us` is its time.
    pub fn tick(&mut self, files: &mut dyn Files, now_us: u64, servers: &[Server], batch: &mut Batch) {
        self.slow.tick(files, now_us, &self.place, servers, &mut self.recorded, batch);
        let now = self.read(files, now_us);
        if let Some(before) = self.before.take() {
            self.record_change(files, &before, &now, batch);
        }
        self.before = Some(now);
        let targets: Vec<Target> = servers.iter().flat_map(|server| server.active.iter().cloned()).collect();
        self.backends.tick(files, &self.host, now_us, &targets, batch);
        self.cgroups.tick(files, &self.host, now_us, servers, batch);
        self.lacks(&targets);
        self.slow.end(now_us, &self.place, &mut self.recorded, batch);
    }

    fn read(&self, files: &mut dyn Files, t_us: u64) -> Reading {
        let snmp = files.kept("/proc/net/snmp").map(|text| {
            let of = |name| net::protocol_counter(text, "Tcp", name);
            (of("RetransSegs"), of("OutSegs"))
        });
        let (tcp_retransmits, tcp_segments_out) = snmp.unwrap_or_default();
        Reading {
            t_us,
            stat: files.kept("/proc/stat").ok().and_then(cpu::stat),
            pressure: PRESSURE.map(|path| files.kept(path).map(cpu::pressure).unwrap_or_default()),
            vmstat: files.kept("/proc/vmstat").map(memory::vmstat).unwrap_or_default(),
            tcp_retransmits,
            tcp_segments_out,
            softnet: files.kept("/proc/net/softnet_stat").map(cpu::softnet).unwrap_or_default(),
            disks: files.kept("/proc/diskstats").map(disk::diskstats).unwrap_or_default(),
            interfaces: files.kept("/proc/net/dev").map(net::interfaces).unwrap_or_default(),
        }
    }

    /// Which files this module lacks; only reported where their absence was seen.
    fn lacks(&mut self, targets: &[Target]) {
        let Some(now) = &self.before else { return };
        if now.stat.is_none() {
            self.recorded.lacks(
                "processors",
                "/proc/stat could not be read",
                "how busy the host is, and with what",
            );
        }
        if now.pressure.iter().all(|pressure| *pressure == Pressure::default()) {
            self.recorded.lacks(
                "pressure",
                "/proc/pressure does not exist (Linux before 4.20, or booted without psi=1)",
                "the share of time in which tasks waited for CPUs, disks and memory",
            );
        }
        if now.disks.is_empty() {
            self.recorded.lacks(
                "disks",
                "/proc/diskstats could not be read",
                "how long requests wait at each disk",
            );
        }
        if !targets.is_empty() {
            if let Some(absent) = self.backends.io_absent {
                self.recorded.lacks(
                    "backend io",
                    format!("/proc/PID/io: {absent} (needs the server's own user, or CAP_SYS_PTRACE)"),
                    "what each server process reads and writes during a statement",
                );
            }
            if self.backends.has_no_schedule {
                self.recorded.lacks(
                    "run queue",
                    "/proc/PID/schedstat does not exist",
                    "how long server processes wait for a CPU",
                );
            }
        }
    }

    fn record_change(&mut self, files: &mut dyn Files, before: &Reading, now: &Reading, batch: &mut Batch) {
        let interval_us = now.t_us.saturating_sub(before.t_us);
        if interval_us == 0 {
            return;
        }
        let host = self.totals(files, before, now, interval_us);
        batch.counted(now.t_us, interval_us, host);
        for core in self.cores(before, now) {
            batch.counted(now.t_us, interval_us, core);
        }
        for (device, counters) in &now.disks {
            let used_for = self.slow.used_for(device);
            let Some(work) = before
                .disks
                .get(device)
                .filter(|_| self.slow.topology().is_disk(device) && counters.has_worked())
                .and_then(|before| disk::work(before, counters, interval_us))
            else {
                continue;
            };
            // Idle disks without data of the database are left out: a host may have hundreds.
            let is_idle = work.reads + work.writes + work.in_flight == 0 && work.flushes.unwrap_or(0) == 0;
            if is_idle && used_for.is_empty() {
                continue;
            }
            batch.counted(now.t_us, interval_us, self.disk(device, used_for, &work));
        }
        for (name, counters) in &now.interfaces {
            let Some(earlier) = before.interfaces.get(name) else { continue };
            let moved = net::traffic(earlier, counters);
            if moved == Interface::default() {
                continue;
            }
            batch.counted(
                now.t_us,
                interval_us,
                Net {
                    host: self.host.clone(),
                    interface: name.clone(),
                    rx_bytes: Some(moved.rx_bytes),
                    tx_bytes: Some(moved.tx_bytes),
                    rx_packets: Some(moved.rx_packets),
                    tx_packets: Some(moved.tx_packets),
                    rx_drops: Some(moved.rx_drops),
                    tx_drops: Some(moved.tx_drops),
                    errors: Some(moved.rx_errors + moved.tx_errors),
                },
            );
        }
    }

    fn totals(&mut self, files: &mut dyn Files, before: &Reading, now: &Reading, interval_us: u64) -> Host {
        let shares = before.stat.as_ref().zip(now.stat.as_ref());
        let shares = shares.and_then(|(before, now)| cpu::shares(&before.all, &now.all));
        self.cpu = shares.map(|shares| (shares.user_pct, shares.system_pct));
        let counted = |of: fn(&Stat) -> u64| {
            let (before, now) = before.stat.as_ref().zip(now.stat.as_ref())?;
            growth(of(before), of(now))
        };
        let grown = |before: Option<u64>, now: Option<u64>| growth(before?, now?);
        let stalled = |index: usize, of: fn(&Pressure) -> Option<u64>| {
            cpu::stalled_pct(of(&before.pressure[index]), of(&now.pressure[index]), interval_us)
        };
        let meminfo = files.kept("/proc/meminfo").map(memory::meminfo).unwrap_or_default();
        let swapped = |of: fn(&Vmstat) -> Option<u64>| {
            grown(of(&before.vmstat), of(&now.vmstat)).map(|pages| pages.saturating_mul(PAGE_BYTES))
        };
        let softnet = (!now.softnet.is_empty()).then(|| cpu::softnet_growth(&before.softnet, &now.softnet));
        let stat = now.stat.as_ref();
        Host {
            host: self.host.clone(),
            cpu_user_pct: shares.map(|shares| shares.user_pct),
            cpu_system_pct: shares.map(|shares| shares.system_pct),
            cpu_iowait_pct: shares.map(|shares| shares.iowait_pct),
            cpu_softirq_pct: shares.map(|shares| shares.softirq_pct),
            cpu_steal_pct: shares.map(|shares| shares.steal_pct),
            cores: stat.map(|stat| stat.cores.len() as u64),
            runnable: stat.map(|stat| stat.runnable),
            blocked: stat.map(|stat| stat.blocked),
            psi_cpu_some_pct: stalled(0, |pressure| pressure.some_us),
            psi_cpu_full_pct: stalled(0, |pressure| pressure.full_us),
            psi_io_some_pct: stalled(1, |pressure| pressure.some_us),
            psi_io_full_pct: stalled(1, |pressure| pressure.full_us),
            psi_memory_some_pct: stalled(2, |pressure| pressure.some_us),
            psi_memory_full_pct: stalled(2, |pressure| pressure.full_us),
            memory_available_bytes: meminfo.available_bytes,
            memory_total_bytes: meminfo.total_bytes,
            page_tables_bytes: meminfo.page_tables_bytes,
            dirty_bytes: meminfo.dirty_bytes,
            writeback_bytes: meminfo.writeback_bytes,
            swap_in_bytes: swapped(|vmstat| vmstat.swapped_in_pages),
            swap_out_bytes: swapped(|vmstat| vmstat.swapped_out_pages),
            oom_kills: grown(before.vmstat.oom_kills, now.vmstat.oom_kills),
            context_switches: counted(|stat| stat.context_switches),
            forks: counted(|stat| stat.forks),
            tcp_retransmits: grown(before.tcp_retransmits, now.tcp_retransmits),
            tcp_segments_out: grown(before.tcp_segments_out, now.tcp_segments_out),
            softnet_drops: softnet.map(|(drops, _)| drops),
            softnet_squeezed: softnet.map(|(_, squeezed)| squeezed),
        }
    }

    /// The busiest processors, if single ones are remarkable.
    fn cores(&self, before: &Reading, now: &Reading) -> Vec<Core> {
        let Some((earlier, later)) = before.stat.as_ref().zip(now.stat.as_ref()) else { return vec![] };
        let mut cores: Vec<(f64, Core)> = vec![];
        let (mut idlest, mut is_squeezed) = (f64::MAX, false);
        for (cpu, times) in &later.cores {
            let Some(shares) = earlier.cores.get(cpu).and_then(|before| cpu::shares(before, times)) else {
                continue;
            };
            idlest = idlest.min(shares.busy_pct);
            let squeezed = before
                .softnet
                .get(cpu)
                .zip(now.softnet.get(cpu))
                .and_then(|(before, now)| growth(before.squeezed, now.squeezed));
            is_squeezed |= squeezed.is_some_and(|squeezed| squeezed > 0);
            let core = Core {
                host: self.host.clone(),
                cpu: u64::from(*cpu),
                busy_pct: Some(shares.busy_pct),
                softirq_pct: Some(shares.softirq_pct),
                softnet_squeezed: squeezed,
            };
            cores.push((shares.busy_pct, core));
        }
        cores.sort_by(|a, b| b.0.total_cmp(&a.0));
        let busiest = cores.first().map_or(0.0, |(busy, _)| *busy);
        let is_skewed = busiest >= CORE_BUSY_PCT && busiest - idlest >= CORE_SKEW_PCT;
        let has_softirqs =
            cores.iter().any(|(_, core)| core.softirq_pct.is_some_and(|pct| pct >= CORE_SOFTIRQ_PCT));
        if !is_skewed && !has_softirqs && !is_squeezed {
            return vec![];
        }
        cores.truncate(CORES_MAX);
        cores.into_iter().map(|(_, core)| core).collect()
    }

    fn disk(&self, device: &str, used_for: String, work: &disk::Work) -> Disk {
        Disk {
            host: self.host.clone(),
            device: device.to_string(),
            member_of: self.slow.topology().member_of(device).unwrap_or_default().to_string(),
            used_for,
            reads: Some(work.reads),
            writes: Some(work.writes),
            flushes: work.flushes,
            read_bytes: Some(work.read_bytes),
            write_bytes: Some(work.write_bytes),
            read_await_ms: work.read_await_ms,
            write_await_ms: work.write_await_ms,
            flush_await_ms: work.flush_await_ms,
            queue: Some(work.queue),
            util_pct: Some(work.util_pct),
            in_flight: Some(work.in_flight),
        }
    }
}
