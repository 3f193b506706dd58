//! Judges what was measured and read of a host.

pub mod disk;
mod hardware;
mod kernel;
mod mount;

use crate::link::ENDED;
use record::check::{Area, Fact, Host, Item, Unit, Verdict};
use record::number;

/// From this share of stolen time the hypervisor slows the host (docs/explain.md, CPU-04).
const STEAL_SHARE: f64 = 0.05;
/// From this share of other work the measurements are disturbed.
const BUSY_SHARE: f64 = 0.2;
/// Offsets of clocks in microseconds: warning and failure (docs/explain.md, REP-05).
pub(crate) const OFFSET_US: (u64, u64) = (10_000, 100_000);

/// What is unknown after a test with which the probe was lost: this fails the check.
pub(crate) const PROBE_LOST: &str = "what this test measures: the probe was lost";

/// All items of one host. `subjects` are the directories that matter on it, `data` those of databases, `command` tries whether ssh reaches it.
pub fn items(host: &Host, subjects: &[&str], data: &[&str], command: &str) -> Vec<Item> {
    let mut items = vec![reached(host, command)];
    if host.lost.is_some() {
        return items;
    }
    items.extend(processor(host));
    items.extend(memory(host));
    items.extend(clock(host));
    items.extend(mount::items(host, subjects, data));
    items.extend(kernel::items(host));
    items.extend(hardware::items(host));
    items.extend(host.missing.iter().map(|lack| {
        let claim = format!("{}: {}", lack.what, lack.why);
        let verdict = if lack.lost == PROBE_LOST { Verdict::Fail } else { Verdict::Unknown };
        of(host, "host.unseen", Area::System, lack.what.as_str())
            .judged(verdict, claim)
            .why(format!("Unknown: {}.", lack.lost))
    }));
    items
}

/// That no directory was named, on this host or on any, and none of a database is known: no disk is measured by guess.
pub(crate) fn no_disk(host: Option<&str>, has_nodes: bool) -> Item {
    let host = host.map(str::to_string);
    let item = Item { check: "disk.probe".to_string(), area: Area::Disk, host, ..Item::default() };
    let why = match has_nodes {
        true => {
            "no directory was named, and this role sees no data directory (pg_read_all_settings) of a server on a checked host"
        }
        false => "no directory was named",
    };
    item.judged(Verdict::Unknown, format!("no disk was measured: {why}"))
        .why("Nothing is known about the disks.")
        .remedy("Name a directory on the disk of the database.", &["$ pgfathom check --disk DIR"])
}

/// The number of processors in a list as `0-7,16`.
pub fn cpus(list: &str) -> u64 {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first).map(|more| more + 1)
    };
    list.split(',').filter_map(count).sum()
}

fn of(host: &Host, check: &str, area: Area, subject: &str) -> Item {
    Item::of_host(check, area, &host.host, subject)
}

/// The value of a fact.
fn fact<'a>(host: &'a Host, topic: &str, name: &str) -> Option<&'a str> {
    host.facts.iter().find(|fact| fact.topic == topic && fact.name == name).map(|fact| fact.value.as_str())
}

/// All facts of a topic.
fn facts<'a>(host: &'a Host, topic: &'a str) -> impl Iterator<Item = &'a Fact> {
    host.facts.iter().filter(move |fact| fact.topic == topic)
}

/// Whether the host was reached, and what measured on it.
fn reached(host: &Host, command: &str) -> Item {
    let item = of(host, "host.reached", Area::System, "");
    if let Some(lost) = &host.lost {
        return item
            .judged(Verdict::Fail, format!("{} was not checked: {lost}", host.host))
            .why("Nothing is known about this host.")
            .remedy("ssh must reach it without a question.", &[command]);
    }
    match &host.no_program {
        Some(why) => item
            .judged(Verdict::Warn, format!("{}: {why}; kernel files were read over ssh", host.host))
            .why("Processor, memory and clock were not measured, disks and network only by fio and iperf3 if they are installed.")
            .remedy(
                match why.contains(ENDED) {
                    true => "Install this pgfathom there. A copy needs a temporary folder (TMPDIR) from which programs may run.",
                    false => "Install pgfathom there, or let check copy it.",
                },
                &["$ pgfathom check --copy-program ..."],
            ),
        None => item.judged(Verdict::Pass, format!("{} was measured by {}", host.host, host.measured_by)),
    }
}

fn processor(host: &Host) -> Vec<Item> {
    let Some(processor) = &host.processor else { return vec![] };
    let frequency =
        processor.frequency_mhz.map_or(String::new(), |mhz| format!(" at {} MHz", number::three(mhz)));
    let claim = format!("one thread makes {} rounds/s{frequency}", number::short(processor.rounds_per_s));
    let mut items = vec![
        of(host, "cpu.thread", Area::Cpu, "")
            .figure(processor.rounds_per_s, Unit::PerSecond)
            .judged(Verdict::Note, claim),
    ];
    if let Some(mhz) = processor.frequency_mhz {
        let claim = format!("{} MHz under load", number::three(mhz));
        items.push(
            of(host, "cpu.frequency", Area::Cpu, "")
                .figure(mhz, Unit::Megahertz)
                .judged(Verdict::Note, claim),
        );
    }
    let share = |check: &str, value: f64, most: f64, what: &str, why: &str| {
        let verdict = if value > most { Verdict::Warn } else { Verdict::Pass };
        let item = of(host, check, Area::Cpu, "").figure(value, Unit::Share);
        let item = item
            .judged(verdict, format!("{} of the processors' time {what}", number::percent(value)))
            .why(why);
        Item { limit: Some(record::check::Limit::AtMost(most)), ..item }
    };
    items.push(share(
        "cpu.steal",
        processor.steal_share,
        STEAL_SHARE,
        "was taken by the hypervisor",
        "Stolen time looks like slow queries.",
    ));
    items.push(share(
        "cpu.busy",
        processor.busy_share,
        BUSY_SHARE,
        "was used by other work while this was measured",
        "A busy host measures lower than it is.",
    ));
    items
}

fn memory(host: &Host) -> Vec<Item> {
    let of_node = |memory: &record::check::Memory| {
        let subject = format!("NUMA node {}", memory.node);
        let item = |check: &str, value, unit| of(host, check, Area::Memory, &subject).figure(value, unit);
        let remote = memory.remote_latency_ns;
        let claim = format!(
            "reads {}/s, copies {}/s, one access takes {} ns{}",
            number::bytes(memory.read_bytes_per_s),
            number::bytes(memory.copy_bytes_per_s),
            number::three(memory.latency_ns),
            remote.map_or(String::new(), |ns| format!(", {} ns on the farthest node", number::three(ns)))
        );
        let mut items = vec![
            item("memory.read", memory.read_bytes_per_s, Unit::BytesPerSecond)
                .judged(Verdict::Note, claim.clone()),
            item("memory.copy", memory.copy_bytes_per_s, Unit::BytesPerSecond)
                .judged(Verdict::Note, claim.clone()),
            item("memory.latency", memory.latency_ns, Unit::Nanoseconds).judged(Verdict::Note, claim.clone()),
        ];
        items.extend(
            remote
                .map(|ns| item("memory.remote_latency", ns, Unit::Nanoseconds).judged(Verdict::Note, claim)),
        );
        items
    };
    host.memory.iter().flat_map(of_node).collect()
}

/// Why clocks matter.
pub(crate) const CLOCKS_MATTER: &str = "A distributed database orders transactions by clocks.";
/// What makes them agree, and how to see whether they do.
pub(crate) const SYNCHRONISE: (&str, &str) =
    ("Run chrony on every host, with the same sources.", "$ chronyc tracking; chronyc sources");

/// Judges the distance of a clock from ours.
pub(crate) fn apart(offset_us: i64, error_us: u64) -> (Verdict, String) {
    let distance_us = offset_us.unsigned_abs();
    // What the error of the measurement explains is no offset.
    let verdict = match distance_us.saturating_sub(error_us) {
        us if us > OFFSET_US.1 => Verdict::Fail,
        us if us > OFFSET_US.0 => Verdict::Warn,
        _ => Verdict::Pass,
    };
    let claim = format!(
        "its clock is {} (+- {}) {} the clock of the host that runs check",
        number::latency(distance_us as f64),
        number::latency(error_us as f64),
        if offset_us < 0 { "behind" } else { "ahead of" }
    );
    (verdict, claim)
}

fn clock(host: &Host) -> Vec<Item> {
    let mut items = vec![];
    if let Some(clock) = &host.clock {
        let offset_us = clock.offset_us.unsigned_abs();
        let (verdict, claim) = apart(clock.offset_us, clock.error_us);
        let item = of(host, "clock.offset", Area::Clock, "").figure(offset_us as f64, Unit::Microseconds);
        let item = item.judged(verdict, claim).why(CLOCKS_MATTER).remedy(SYNCHRONISE.0, &[SYNCHRONISE.1]);
        items.push(Item { limit: Some(record::check::Limit::AtMost(OFFSET_US.0 as f64)), ..item });
    }
    if let Some(state) = fact(host, "clock", "kernel") {
        let verdict = if state == "synchronised" { Verdict::Pass } else { Verdict::Warn };
        let detail = fact(host, "clock", "chrony offset")
            .map_or(String::new(), |offset| format!("; chrony: {offset}"));
        items.push(
            of(host, "clock.synchronised", Area::Clock, "")
                .judged(verdict, format!("the kernel's clock is {state}{detail}"))
                .why("A clock that nothing corrects drifts by seconds a week.")
                .remedy("Run chrony.", &["$ systemctl enable --now chrony"]),
        );
    }
    items
}

#[cfg(test)]
mod tests;
