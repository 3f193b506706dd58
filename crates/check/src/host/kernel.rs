//! Settings of the kernel, the processors' governor, network queues, scanners and auditing.

use super::{fact as fact_of, facts, of};
use record::check::{Area, Host, Item, Unit, Verdict};
use record::number;

/// More queues than this gain little (docs/explain.md, NET-01).
const QUEUES_ENOUGH: u64 = 4;

pub(super) fn items(host: &Host) -> Vec<Item> {
    let mut items = vec![];
    items.extend(fact_of(host, "kernel", "release").map(|release| {
        of(host, "kernel.release", Area::System, "").judged(Verdict::Note, format!("Linux {release}"))
    }));
    items.extend(governor(host));
    items.extend(huge_pages(host));
    items.extend(nodes(host));
    items.extend(settings(host));
    items.extend(queues(host));
    items.extend(scanners(host));
    items.extend(audit(host));
    items
}

fn governor(host: &Host) -> Option<Item> {
    let governor = fact_of(host, "cpu", "governor")?;
    // With intel_pstate and amd_pstate "powersave" scales up under load, but later than "performance".
    let verdict = if governor == "performance" { Verdict::Pass } else { Verdict::Warn };
    Some(
        of(host, "cpu.governor", Area::Cpu, "")
            .judged(verdict, format!("the frequency governor is {governor}"))
            .why("A processor that first has to speed up lengthens every short query.")
            .remedy("Use the governor performance.", &["$ cpupower frequency-set -g performance"]),
    )
}

fn huge_pages(host: &Host) -> Vec<Item> {
    let mut items = vec![];
    if let Some(pages) = fact_of(host, "memory", "huge pages") {
        let claim = match pages.starts_with("0 ") {
            true => "no huge pages are reserved".to_string(),
            false => format!("huge pages: {pages}"),
        };
        items.push(
            of(host, "memory.huge_pages", Area::Memory, "")
                .judged(Verdict::Note, claim)
                .why("Without them each session needs its own page table for shared_buffers.")
                .remedy(
                    "Reserve them for large shared_buffers.",
                    &["SHOW shared_memory_size_in_huge_pages;"],
                ),
        );
    }
    if let Some(chosen) = fact_of(host, "kernel", "transparent huge pages")
        && chosen.contains("[always]")
    {
        items.push(
            of(host, "memory.transparent_huge_pages", Area::Memory, "")
                .judged(Verdict::Warn, "transparent huge pages are set to always")
                .why("The kernel may stop a session to make room for one.")
                .remedy("Use madvise.", &["$ echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"]),
        );
    }
    items
}

fn nodes(host: &Host) -> Vec<Item> {
    let Some(count) = fact_of(host, "cpu", "memory nodes").and_then(|text| text.parse::<u64>().ok()) else {
        return vec![];
    };
    let mut items = vec![
        of(host, "memory.nodes", Area::Memory, "")
            .figure(count as f64, Unit::Count)
            .judged(Verdict::Note, number::counted(count, "NUMA node")),
    ];
    if count > 1 && fact_of(host, "kernel", "vm.zone_reclaim_mode").is_some_and(|mode| mode != "0") {
        items.push(
            of(host, "memory.zone_reclaim", Area::Memory, "")
                .judged(Verdict::Warn, "vm.zone_reclaim_mode is on")
                .why("The kernel drops cached pages of one node while others have free memory.")
                .remedy("Switch it off.", &["$ sysctl vm.zone_reclaim_mode=0"]),
        );
    }
    items
}

fn settings(host: &Host) -> Vec<Item> {
    let mut items = vec![];
    let number_of = |name: &str| fact_of(host, "kernel", name).and_then(|text| text.parse::<u64>().ok());
    if number_of("vm.overcommit_memory").is_some_and(|mode| mode != 2) {
        items.push(
            of(host, "memory.overcommit", Area::Memory, "")
                .judged(Verdict::Note, "vm.overcommit_memory is not 2")
                .why("When memory runs out, the kernel kills a server process, and the server restarts.")
                .remedy("Let allocations fail instead.", &["$ sysctl vm.overcommit_memory=2"]),
        );
    }
    if let Some(swappiness) = number_of("vm.swappiness").filter(|value| *value > 10) {
        items.push(
            of(host, "memory.swappiness", Area::Memory, "")
                .figure(swappiness as f64, Unit::Count)
                .judged(Verdict::Note, format!("vm.swappiness is {swappiness}"))
                .why("Sessions that were idle are swapped out in favour of cached files.")
                .remedy("Lower it.", &["$ sysctl vm.swappiness=1"]),
        );
    }
    items
}

fn queues(host: &Host) -> Vec<Item> {
    let wanted = QUEUES_ENOUGH.min(host.cpus.max(1));
    let of_card = |fact: &record::check::Fact| {
        let card = fact.name.strip_suffix(" rx queues")?;
        // A virtual interface (a bridge, one end of a pair) has no driver, and its queues serve no hardware.
        fact_of(host, "nic", &format!("{card} driver"))?;
        let count: u64 = fact.value.parse().ok()?;
        let is_few = count < wanted;
        let claim = format!(
            "{card} has {}, for {}",
            number::counted(count, "receive queue"),
            number::counted(host.cpus, "processor")
        );
        let command = format!("$ ethtool -L {card} combined {wanted}   # in the hypervisor first");
        Some(
            of(host, "nic.queues", Area::Network, card)
                .figure(count as f64, Unit::Count)
                .judged(if is_few { Verdict::Warn } else { Verdict::Pass }, claim)
                .why("One queue is served by one processor, which limits packets per second.")
                .remedy("Give the card more queues.", &[&command]),
        )
    };
    let mut items: Vec<Item> = facts(host, "nic").filter_map(of_card).collect();
    for item in &mut items {
        item.limit = Some(record::check::Limit::AtLeast(wanted as f64));
    }
    items
}

fn scanners(host: &Host) -> Vec<Item> {
    let of_mark = |fact: &record::check::Fact| {
        let verdict = if fact.value.contains("nothing") { Verdict::Note } else { Verdict::Warn };
        of(host, "scanner.fanotify", Area::System, &fact.name)
            .judged(verdict, format!("{}: {}", fact.name, fact.value))
            .why("The kernel waits for this process before it opens or reads a file there.")
            .remedy("Exclude the data directory from the scanner.", &[])
    };
    facts(host, "fanotify").map(of_mark).collect()
}

fn audit(host: &Host) -> Vec<Item> {
    let mut items = vec![];
    if let Some(rules) =
        fact_of(host, "audit", "rules").filter(|rules| !rules.is_empty() && !rules.contains("No rules"))
    {
        let is_costly = rules.split(';').any(|rule| rule.contains("-S ") && !rule.contains("never"));
        items.push(
            of(host, "audit.rules", Area::System, "")
                .judged(
                    if is_costly { Verdict::Warn } else { Verdict::Note },
                    format!("audit rules: {rules}"),
                )
                .why("A rule on system calls is evaluated at each of them.")
                .remedy(
                    "Exclude the server.",
                    &["$ auditctl -a never,exit -F exe=/usr/lib/postgresql/17/bin/postgres"],
                ),
        );
    }
    if let Some(lost) =
        fact_of(host, "audit", "lost").and_then(|text| text.parse::<u64>().ok()).filter(|lost| *lost > 0)
    {
        items.push(
            of(host, "audit.lost", Area::System, "")
                .figure(lost as f64, Unit::Count)
                .judged(Verdict::Warn, format!("the audit system lost {}", number::counted(lost, "record")))
                .why("When its queue is full, audited processes may have to wait."),
        );
    }
    items
}
