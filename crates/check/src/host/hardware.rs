//! Counters of the hardware: memory errors, PCI Express errors and links, drives, fans, temperatures.

use super::{facts, of};
use record::check::{Area, Counted, Host, Item, Unit, Verdict};
use record::number;

pub(super) fn items(host: &Host) -> Vec<Item> {
    let mut items: Vec<Item> = host.counters.iter().filter_map(|counter| one(host, counter)).collect();
    items.extend(facts(host, "disk").filter_map(|fact| {
        let device = fact.name.strip_suffix(" link")?;
        Some(
            of(host, "hardware.link", Area::Hardware, device)
                .judged(Verdict::Warn, format!("{device}: the PCI Express link runs at {}", fact.value))
                .why("A link below its best speed halves the throughput of the device.")
                .remedy("Reseat the card, replace its cable, update its firmware.", &[]),
        )
    }));
    let has_edac = !host.missing.iter().any(|lack| lack.what == "edac");
    if has_edac && !items.iter().any(|item| item.check == "hardware.memory") {
        items.push(
            of(host, "hardware.memory", Area::Hardware, "")
                .judged(Verdict::Pass, "memory has had no errors since boot"),
        );
    }
    items
}

fn one(host: &Host, counter: &Counted) -> Option<Item> {
    if counter.value <= 0.0 && counter.kind != "fan" {
        return None;
    }
    let count = number::short(counter.value);
    let (check, verdict, claim, why, remedy) = match counter.kind.as_str() {
        "edac" if counter.name.ends_with(" ue") => (
            "hardware.memory",
            Verdict::Fail,
            format!("{}: {count} uncorrected memory errors since boot", counter.name),
            "Data in memory was damaged.",
            "Replace the module before any data is loaded.",
        ),
        "edac" => (
            "hardware.memory",
            Verdict::Warn,
            format!("{}: {count} corrected memory errors since boot", counter.name),
            "Corrections cost time, and errors that cannot be corrected often follow.",
            "Watch the rate with rasdaemon; replace the module if it grows.",
        ),
        "aer" if !counter.name.ends_with(" correctable") => (
            "hardware.pcie",
            Verdict::Fail,
            format!("{}: {count} PCI Express errors since boot", counter.name),
            "The link lost data.",
            "Reseat the card, replace its cable.",
        ),
        "aer" => (
            "hardware.pcie",
            Verdict::Warn,
            format!("{}: {count} corrected PCI Express errors since boot", counter.name),
            "Each is a packet that was sent again.",
            "Reseat the card, replace its cable.",
        ),
        "smart" => (
            "hardware.drive",
            Verdict::Fail,
            format!("SMART of {}: {count}", counter.name),
            "The drive reports its own wear or failure.",
            "Replace the drive.",
        ),
        "fan" => (
            "hardware.cooling",
            Verdict::Warn,
            format!("{} turns at {count} rpm", counter.name),
            "A hot processor or drive slows itself down.",
            "Replace the fan.",
        ),
        "thermal" if counter.name.contains("temp") => (
            "hardware.cooling",
            Verdict::Warn,
            format!("{} is at its limit", counter.name),
            "A hot processor or drive slows itself down.",
            "Check the fans and the air flow.",
        ),
        // Counts since boot without a limit: throttled cores, NUMA, ZFS, the allocator of ext4.
        _ => return None,
    };
    let item = of(host, check, Area::Hardware, &counter.name).figure(counter.value, Unit::Count);
    Some(item.judged(verdict, claim).why(why).remedy(remedy, &[]))
}
