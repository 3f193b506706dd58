//! IO: disks against their peers, their links, their health and their limits.

use super::paste::word;
use crate::case::{Case, Thing};
use crate::rule::Need::{Any, Field, Looked, Peers};
use crate::rule::{Answer, Claim, Rule, grouped};
use crate::series::Series;
use crate::statistics::{self, Contrast, contrasts};
use crate::units;
use record::event;
use record::finding::{Level, Severity};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "IO-01",
        title: "one slow member among disks that do the same work",
        needs: &[Any(&[Field("disk", "write_await_ms"), Field("disk", "read_await_ms")])],
        limits: "3 times the median of its peers and 1 ms, at 50 requests/s for 30 s; high from 10 times (R0: 33 times)",
        judge: slow_member,
        links: &["https://docs.kernel.org/admin-guide/iostats.html"],
    },
    Rule {
        id: "IO-02",
        title: "similar hosts have disks of different speed",
        needs: &[Peers("disk", 3)],
        limits: "1.2 times the median of the other hosts, 3 robust deviations and 0.1 ms; reads and writes are compared separately (R0, gpcheckperf)",
        judge: hosts_differ,
        links: &[],
    },
    Rule {
        id: "IO-03",
        title: "a PCI Express link is below its best speed, or has errors",
        needs: &[Looked("aer")],
        limits: "the current speed or width is below the maximum, or any new error (R0: cables)",
        judge: link,
        links: &["https://docs.kernel.org/PCI/pcieaer-howto.html"],
    },
    Rule {
        id: "IO-04",
        title: "a drive reports that it is failing",
        needs: &[Looked("smart")],
        limits: "critical_warning, new media errors, spare below its threshold (NVMe base specification); a clean SMART report does not rule out a bad drive",
        judge: health,
        links: &["https://www.smartmontools.org/wiki/NVMe_Support"],
    },
    Rule {
        id: "IO-05",
        title: "disk latency is too high for a database",
        needs: &[Any(&[Field("disk", "write_await_ms"), Field("disk", "read_await_ms")])],
        limits: "100 ms for 30 s (R2's acceptance), or slower by half while it does no more work",
        judge: latency,
        links: &[],
    },
    Rule {
        id: "IO-06",
        title: "a disk is at its limit of requests or bytes",
        needs: &[Field("disk", "queue")],
        limits: "half of the rates of requests or bytes are within 2 % of their median for 60 s while the queue is above 1 and requests wait (ours)",
        judge: cap,
        links: &[],
    },
];

/// Requests a second below which a mean is meaningless.
const REQUESTS_MIN_PER_S: f64 = 50.0;
/// A slow member takes this many times longer than its peers ...
const MEMBER_RATIO: f64 = 3.0;
/// ... this often when it dominates ...
const MEMBER_RATIO_HIGH: f64 = 10.0;
/// ... and at least so long.
const MEMBER_AWAIT_MS_MIN: f64 = 1.0;
/// ... for so long.
const MEMBER_US: u64 = 30_000_000;
/// Peers do the same work if their rates and sizes are this close.
const SAME_WORK: f64 = 3.0;
/// A host's disks differ from the others' ...
const HOST_RATIO: f64 = 1.2;
/// ... beyond noise ...
const DEVIATIONS_MIN: f64 = 3.0;
/// ... and by this much.
const HOST_DIFFERENCE_MS_MIN: f64 = 0.1;
/// R2's acceptance test.
const AWAIT_MS_MAX: f64 = 100.0;
/// The same work, so many times slower than at first.
const SLOWER: f64 = 1.5;
/// A rate that varies less is at its limit: median deviation, as a standard deviation (half of the readings are then within 2 %).
const FLAT: f64 = 0.03;
/// ... for so long.
const FLAT_US: u64 = 60_000_000;
/// Points of a flat stretch at least.
const FLAT_POINTS_MIN: usize = 30;

/// Requests are judged in steps of this length: between two checkpoints some steps have too few requests for a mean.
const STEP_US: u64 = 5_000_000;

/// Reads and writes are judged separately: R0's slow writers were its fastest readers.
const DIRECTIONS: [(&str, &str, &str, &str); 2] =
    [("write", "writes", "write_bytes", "write_await_ms"), ("read", "reads", "read_bytes", "read_await_ms")];

/// `nvme` of `nvme3n1`: disks of one kind are peers.
fn kind(device: &str) -> &str {
    device.split(|c: char| c.is_ascii_digit()).next().unwrap_or(device)
}

/// Groups of disks that should do equal work: members of one array, else disks of one kind with the same job on one machine.
fn peers<'a>(case: &'a Case) -> Vec<(String, Vec<Thing<'a>>)> {
    let mut groups = vec![];
    for (host, disks) in grouped(case.things("disk"), |disk| disk.place) {
        let (members, single): (Vec<_>, Vec<_>) =
            disks.into_iter().partition(|disk| !disk.lines.word("member_of").is_empty());
        for (array, disks) in grouped(members, |disk| disk.lines.word("member_of")) {
            groups.push((format!("members of {array}"), disks));
        }
        for (kind, disks) in grouped(single, |disk| kind(disk.name)) {
            let used: Vec<_> =
                disks.iter().copied().filter(|disk| !disk.lines.word("used_for").is_empty()).collect();
            groups.push((format!("{kind} disks of {host}"), if used.len() >= 2 { used } else { disks }));
        }
    }
    groups
}

/// The mean wait of a disk's requests, step by step, each reading weighed by its requests. Steps with fewer than so many requests a second are
/// left out.
fn waits(disk: &Thing<'_>, count: &str, wait: &str, least_per_s: f64) -> Series {
    let mut steps = Series::default();
    let (Some(counts), Some(waits)) = (disk.lines.series(count), disk.lines.series(wait)) else {
        return steps;
    };
    let counts = counts.points();
    // (first moment, last moment, requests, their waits)
    let mut open: Option<(u64, u64, f64, f64)> = None;
    let mut close = |step: Option<(u64, u64, f64, f64)>| {
        let Some((from_us, to_us, requests, sum)) = step else { return };
        if requests >= least_per_s * STEP_US as f64 / 1e6 {
            steps.push(to_us, to_us - from_us, sum / requests);
        }
    };
    for point in waits.points() {
        let at = counts.partition_point(|other| other.to_us < point.to_us);
        let requests = counts.get(at).map_or(0.0, |point| point.sum);
        if open.is_some_and(|(from_us, ..)| from_us / STEP_US != point.from_us / STEP_US) {
            close(open.take());
        }
        let (from_us, _, before, sum) = open.unwrap_or((point.from_us, 0, 0.0, 0.0));
        open = Some((from_us, point.to_us, before + requests, sum + requests * point.mean()));
    }
    close(open);
    steps
}

/// The means of a series, step by step.
fn steps(series: &Series) -> Series {
    let mut steps = Series::default();
    for points in series.points().chunk_by(|one, next| one.from_us / STEP_US == next.from_us / STEP_US) {
        let values: Vec<f64> = points.iter().map(crate::series::Point::mean).collect();
        let (from_us, to_us) = (points[0].from_us, points[points.len() - 1].to_us);
        steps.push(to_us, to_us - from_us, statistics::mean(&values).unwrap_or(0.0));
    }
    steps
}

fn slow_member(case: &Case) -> Answer {
    let mut claims = vec![];
    let mut looked = 0;
    for (group, disks) in peers(case) {
        for (verb, count, bytes, wait) in DIRECTIONS {
            let busy: Vec<(Thing<'_>, f64)> = disks
                .iter()
                .filter(|disk| disk.lines.rate(count).is_some_and(|rate| rate >= REQUESTS_MIN_PER_S))
                .filter_map(|disk| Some((*disk, statistics::median(disk.lines.series(wait)?.values())?)))
                .collect();
            looked += usize::from(busy.len() >= 2);
            for contrast in contrasts(&busy.iter().map(|(_, wait)| *wait).collect::<Vec<_>>()) {
                let disk = busy[contrast.index].0;
                let slow =
                    |value: f64| value >= MEMBER_AWAIT_MS_MIN && value >= contrast.others * MEMBER_RATIO;
                if !slow(contrast.value) {
                    continue;
                }
                let series = waits(&disk, count, wait, REQUESTS_MIN_PER_S);
                let windows = series.stretches(MEMBER_US, |point| slow(point.mean()));
                if windows.is_empty() {
                    continue;
                }
                let others: Vec<&Thing<'_>> =
                    busy.iter().map(|(other, _)| other).filter(|other| other.name != disk.name).collect();
                let direction = (verb, count, bytes, wait);
                let made = slower_than_peers(&disk, &others, &group, direction, &contrast);
                claims.push(made.during(windows));
            }
        }
    }
    match looked {
        0 => Answer::CannotTell(format!(
            "no two comparable disks did {REQUESTS_MIN_PER_S} reads or writes a second, so there is no peer to compare with"
        )),
        _ => Answer::of(claims, || format!("{looked} groups of disks with equal work")),
    }
}

/// One disk whose requests take much longer than those of its peers: by itself, or because it does other work.
fn slower_than_peers(
    disk: &Thing<'_>,
    others: &[&Thing<'_>],
    group: &str,
    (verb, count, bytes, wait): (&str, &str, &str, &str),
    contrast: &Contrast,
) -> Claim {
    let rate = |disk: &Thing<'_>| disk.lines.rate(count).unwrap_or(0.0);
    let size = |disk: &Thing<'_>| disk.lines.rate(bytes).unwrap_or(0.0) / rate(disk).max(1.0);
    let typical = |of: &dyn Fn(&Thing<'_>) -> f64| {
        statistics::median(others.iter().map(|other| of(other))).unwrap_or(0.0)
    };
    let near =
        |mine: f64, theirs: f64| theirs <= 0.0 || (mine <= theirs * SAME_WORK && mine * SAME_WORK >= theirs);
    // A slow member of a stripe gets as many requests as the others; one on its own may get fewer because it is slow.
    let same = near(size(disk), typical(&|other| size(other)))
        && rate(disk) <= typical(&|other| rate(other)) * SAME_WORK;
    let severity = if contrast.ratio >= MEMBER_RATIO_HIGH { Severity::High } else { Severity::Medium };
    let level = if same { Level::PeerContrast } else { Level::Symptom };
    let claim = format!(
        "{}: {verb}s on {} take {} ms, and on its {} they take {} ms: {} times longer",
        disk.place,
        disk.name,
        units::short(contrast.value),
        units::counted(others.len(), "peer"),
        units::short(contrast.others),
        units::short(contrast.ratio)
    );
    let mut made = Claim::new(severity, level, claim)
        .on_host(disk.place)
        .number(wait, contrast.value)
        .number(&format!("peers_{wait}"), contrast.others)
        .number("ratio", contrast.ratio)
        .number("requests_per_s", rate(disk))
        .because(format!("{group}: {}", others.iter().map(|other| other.name).collect::<Vec<_>>().join(", ")))
        .remedy(
            "replace it, or remove it from the array: a stripe is as slow as its slowest member; until then, move tables to tablespaces on the other disks",
            &[&format!("$ smartctl -a {}", word(&format!("/dev/{}", disk.name))), "ALTER TABLE t SET TABLESPACE other; -- and every index of it: ALTER \
                INDEX i SET TABLESPACE other"],
        );
    if same {
        made = made.not(format!(
            "more work: it does {} {verb}s/s of {} each, and its peers do {} of {}",
            units::short(rate(disk)),
            units::bytes(size(disk)),
            units::short(typical(&|other| rate(other))),
            units::bytes(typical(&|other| size(other)))
        ));
    } else {
        made = made.lacking(
            "a comparison with equal work: its requests differ in size or number from those of its peers",
        );
    }
    made.lacking("a clean SMART report does not rule the drive out: the slow drives of R0 had one")
}

fn hosts_differ(case: &Case) -> Answer {
    let mut claims = vec![];
    let mut looked = 0;
    let hosts = grouped(case.things("disk"), |disk| disk.place);
    for (verb, count, _, wait) in DIRECTIONS {
        let of_host = |disks: &Vec<Thing<'_>>| {
            let busy = disks
                .iter()
                .filter(|disk| disk.lines.rate(count).is_some_and(|rate| rate >= REQUESTS_MIN_PER_S));
            statistics::median(busy.filter_map(|disk| statistics::median(disk.lines.series(wait)?.values())))
        };
        let found: Vec<(&str, f64)> =
            hosts.iter().filter_map(|(host, disks)| Some((*host, of_host(disks)?))).collect();
        if found.len() < 3 {
            continue;
        }
        looked += 1;
        for contrast in contrasts(&found.iter().map(|(_, wait)| *wait).collect::<Vec<_>>()) {
            if contrast.ratio < HOST_RATIO
                || contrast.deviations < DEVIATIONS_MIN
                || contrast.value - contrast.others < HOST_DIFFERENCE_MS_MIN
            {
                continue;
            }
            let host = found[contrast.index].0;
            let severity = match contrast.ratio {
                ratio if ratio >= MEMBER_RATIO => Severity::High,
                ratio if ratio >= SLOWER => Severity::Medium,
                _ => Severity::Low,
            };
            claims.push(
                Claim::new(
                    severity,
                    Level::PeerContrast,
                    format!(
                        "{host}: a {verb} takes {} ms; on {} other hosts it takes {} ms",
                        units::short(contrast.value),
                        found.len() - 1,
                        units::short(contrast.others)
                    ),
                )
                .on_host(host)
                .during([case.span])
                .number(wait, contrast.value)
                .number(&format!("peers_{wait}"), contrast.others)
                .number("ratio", contrast.ratio)
                .because(format!("this compares the medians over the disks of each host, for {verb}s only"))
                .lacking("a measurement of each disk alone, without the database")
                .remedy(
                    "look for one slow member (IO-01), other mount options or firmware (DIST-07), then measure the disks alone",
                    &["$ fio --name=w --rw=randwrite --bs=8k --iodepth=1 --direct=1 --fdatasync=1 --size=1G --runtime=30 --directory=DIR --output-format=json"],
                ),
            );
        }
    }
    match looked {
        0 => Answer::CannotTell(format!(
            "fewer than 3 hosts had disks with {REQUESTS_MIN_PER_S} reads or writes a second"
        )),
        _ => Answer::of(claims, || format!("disks of {} hosts", hosts.len())),
    }
}

/// Errors of PCI Express that were counted during the run.
fn link_errors(case: &Case) -> Vec<Claim> {
    let mut claims = vec![];
    for counter in case.things("hardware").filter(|counter| counter.lines.word("kind") == "aer") {
        let Some(moved) = counter.lines.series("change").filter(|series| series.sum() > 0.0) else {
            continue;
        };
        let severity = if counter.name.contains("fatal") { Severity::High } else { Severity::Medium };
        claims.push(
            Claim::new(
                severity,
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} PCI Express errors at {}",
                    counter.place,
                    units::count(moved.sum()),
                    counter.lines.word("name")
                ),
            )
            .on_host(counter.place)
            .during(moved.stretches(0, |point| point.sum > 0.0))
            .number("errors", moved.sum())
            .because("the counters of Advanced Error Reporting increased during the run")
            .remedy(
                "reseat or replace the device, its cable or the riser (in R0 new cables helped only for a while)",
                &["$ dmesg | grep -E 'AER|PCIe Bus Error'"],
            ),
        );
    }
    let lines: Vec<_> = case
        .events_of(event::KERNEL)
        .filter(|event| matches!(Case::word_of(event, "topic"), "aer" | "nvme" | "disk" | "array"))
        .collect();
    if let (Some(first), Some(last)) = (lines.first(), lines.last()) {
        claims.push(
            Claim::new(
                Severity::High,
                Level::DiscriminatingCounter,
                format!(
                    "the kernel reported {} of disks or their links, first: {}",
                    units::counted(lines.len(), "error"),
                    first.message
                ),
            )
            .on_host(Case::word_of(first, "host"))
            .during([record::finding::Window::new(first.t_us, last.t_us)])
            .number("lines", lines.len() as f64)
            .because("lines of the kernel's log during the run")
            .remedy(
                "check the device named in that line",
                &["$ dmesg -T | grep -E 'nvme|AER|I/O error|md/raid'"],
            ),
        );
    }
    claims
}

fn link(case: &Case) -> Answer {
    let mut claims = vec![];
    for fact in case.facts("disk").filter(|fact| fact.name.ends_with(" link")) {
        claims.push(
            Claim::new(
                Severity::Medium,
                Level::DiscriminatingCounter,
                format!(
                    "{}: the link of {} runs at {}",
                    fact.host,
                    fact.name.trim_end_matches(" link"),
                    fact.value
                ),
            )
            .on_host(&fact.host)
            .during([case.span])
            .because("current_link_speed and current_link_width against max_link_* in /sys/bus/pci/devices")
            .remedy(
                "reseat the device or its cable, check whether the slot has fewer lanes, update the firmware",
                &["$ lspci -vvv | grep -E 'LnkCap|LnkSta'"],
            ),
        );
    }
    claims.extend(link_errors(case));
    Answer::of(claims, || "PCI Express links, their error counters, the kernel's log".to_string())
}

fn health(case: &Case) -> Answer {
    let mut claims = vec![];
    let counters: Vec<Thing<'_>> =
        case.things("hardware").filter(|counter| counter.lines.word("kind") == "smart").collect();
    for counter in &counters {
        let name = counter.lines.word("name");
        let (value, moved) =
            (counter.lines.last("value").unwrap_or(0.0), counter.lines.sum("change").unwrap_or(0.0));
        let Some((drive, what)) = name.rsplit_once(' ') else { continue };
        let (severity, detail) = match what {
            "critical_warning" if value > 0.0 => (Severity::High, format!("critical_warning is {value:#}")),
            "media_errors" if moved > 0.0 => {
                (Severity::High, format!("{} new media errors", units::count(moved)))
            }
            "media_errors" if value > 0.0 => {
                (Severity::Low, format!("{} media errors since it was made", units::count(value)))
            }
            "available_spare_below_threshold" if value > 0.0 => {
                (Severity::High, "its spare blocks are below their threshold".to_string())
            }
            "percentage_used" if value >= 100.0 => {
                (Severity::Medium, format!("{value:.0} % of its rated lifetime is used"))
            }
            "reallocated_sectors" | "pending_sectors" | "uncorrectable_sectors" if moved > 0.0 => {
                (Severity::High, format!("{} more {what}", units::count(moved)))
            }
            "smart_failed" if value > 0.0 => (Severity::High, "its SMART self-assessment failed".to_string()),
            _ => continue,
        };
        claims.push(
            Claim::new(
                severity,
                Level::DiscriminatingCounter,
                format!("{}: drive {drive}: {detail}", counter.place),
            )
            .on_host(counter.place)
            .during([case.span])
            .number(what, value)
            .because("reported by the drive itself (smartctl)")
            .remedy(
                "copy its data elsewhere, then replace it",
                &[&format!("$ smartctl -a {}", word(&format!("/dev/{drive}")))],
            ),
        );
    }
    Answer::of(claims, || {
        "SMART data of the drives; a slow or failing drive can have a clean report (R0), so this does not rule out a bad drive".to_string()
    })
}

fn latency(case: &Case) -> Answer {
    let mut claims = vec![];
    for disk in case.things("disk") {
        for (verb, count, _, wait) in DIRECTIONS {
            let (Some(series), Some(requests)) = (disk.lines.series(wait), disk.lines.series(count)) else {
                continue;
            };
            if requests.rate() < REQUESTS_MIN_PER_S / 5.0 {
                continue;
            }
            let slow = waits(&disk, count, wait, REQUESTS_MIN_PER_S / 5.0);
            let windows = slow.stretches(MEMBER_US, |point| point.mean() >= AWAIT_MS_MAX);
            if !windows.is_empty() {
                let inside = slow.within(&windows).mean();
                claims.push(
                    Claim::new(
                        Severity::High,
                        Level::Symptom,
                        format!("{}: a {verb} on {} took {} ms on average", disk.place, disk.name, units::short(inside)),
                    )
                    .on_host(disk.place)
                    .during(windows)
                    .number(wait, inside)
                    .lacking("a measurement of the disk alone: is the disk or the load the cause?")
                    .remedy(
                        "use a faster class of disk, or give this one less work",
                        &["$ fio --name=r --rw=randread --bs=4k --iodepth=1 --direct=1 --size=1G --runtime=30 --directory=DIR"],
                    ),
                );
            } else if let Some(change) = statistics::change(&series.values()).filter(|change| change.p < 0.01)
            {
                let work = requests.rates();
                let at = change.at.min(work.len());
                let (before, after) = (statistics::mean(&work[..at]), statistics::mean(&work[at..]));
                let same_work = before
                    .zip(after)
                    .is_some_and(|(before, after)| after <= before * 1.1 && after >= REQUESTS_MIN_PER_S);
                if change.after >= change.before * SLOWER && change.after >= MEMBER_AWAIT_MS_MIN && same_work
                {
                    let from_us = series.points().get(change.at).map_or(0, |point| point.from_us);
                    let steal = case.one("host", disk.place).and_then(|host| host.mean("cpu_steal_pct"));
                    claims.push(
                        Claim::new(
                            Severity::Medium,
                            Level::CoOccurrence,
                            format!(
                                "{}: {verb}s on {} became slower at second {}: {} ms instead of {}, without more work",
                                disk.place,
                                disk.name,
                                from_us / 1_000_000,
                                units::short(change.after),
                                units::short(change.before)
                            ),
                        )
                        .on_host(disk.place)
                        .during([record::finding::Window::new(from_us, series.window().to_us)])
                        .number(&format!("{wait}_before"), change.before)
                        .number(&format!("{wait}_after"), change.after)
                        .number("p", change.p)
                        .with(steal, |claim, steal| claim.number("cpu_steal_pct", steal))
                        .not(format!("more requests: {} a second before, {} after", units::short(before.unwrap_or(0.0)), units::short(after.unwrap_or(0.0))))
                        .lacking("the load of other users of the same storage")
                        .remedy("ask the administrators of the storage what happened at that time", &[]),
                    );
                }
            }
        }
    }
    Answer::of(claims, || "mean time of requests of every disk".to_string())
}

fn cap(case: &Case) -> Answer {
    let mut claims = vec![];
    for disk in case.things("disk") {
        let Some(queue) = disk.lines.series("queue") else { continue };
        let full = steps(queue).stretches(FLAT_US, |point| point.mean() > 1.0);
        for (verb, count, bytes, wait) in DIRECTIONS {
            for (field, unit) in [(count, "requests"), (bytes, "bytes")] {
                let Some(series) = disk.lines.series(field) else { continue };
                let Some(window) = full.first().copied() else { continue };
                let rates = series.within(&full).rates();
                // Not the standard deviation: between two checkpoints there is no rate at all.
                let rate = statistics::median(rates.iter().copied()).unwrap_or(0.0);
                let variation = statistics::deviation(&rates).unwrap_or(0.0) / rate.max(f64::MIN_POSITIVE);
                let flat = variation < FLAT;
                let waits = disk.lines.series(wait).map_or(0.0, |series| series.within(&full).mean());
                let requests = disk.lines.series(count).map_or(0.0, |series| series.within(&full).rate());
                if rates.len() < FLAT_POINTS_MIN
                    || !flat
                    || requests < REQUESTS_MIN_PER_S
                    || waits < MEMBER_AWAIT_MS_MIN
                {
                    continue;
                }
                let stalled = case
                    .one("host", disk.place)
                    .and_then(|host| Some(host.series("psi_io_full_pct")?.within(&full).mean()));
                let amount = if unit == "bytes" { units::bytes(rate) } else { units::count(rate) };
                claims.push(
                    Claim::new(
                        Severity::Medium,
                        if stalled.is_some_and(|share| share > 1.0) { Level::DiscriminatingCounter } else { Level::CoOccurrence },
                        format!(
                            "{}: {} stays at {amount} {} a second: {verb}s wait {} ms in a queue of {}",
                            disk.place,
                            disk.name,
                            if unit == "bytes" { verb } else { unit },
                            units::short(waits),
                            units::short(queue.within(&full).mean())
                        ),
                    )
                    .on_host(disk.place)
                    .during([window])
                    .number(&format!("{field}_per_s"), rate)
                    .number("variation", variation)
                    .number("queue", queue.within(&full).mean())
                    .with(stalled, |claim, stalled| claim.number("psi_io_full_pct", stalled))
                    .because("below its limit a device shows uneven rates; this one stays flat while requests queue")
                    .remedy("raise the provider's limit, spread the load over more disks, or send fewer requests: fewer fsyncs, larger requests", &[]),
                );
                break;
            }
        }
    }
    Answer::of(claims, || "rates and queues of every disk".to_string())
}
