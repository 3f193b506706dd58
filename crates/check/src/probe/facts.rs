//! What a host is: the facts, mounts, hardware counters and gaps that `watch` reads, of one moment.

use record::Clock;
use record::check::{Counted, Fact, Host, Lack, Mount};
use record::watched::Sampled;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use watch::host::LocalHost;
use watch::{Batch, Board, Collect, Tick, collectors};

/// Programs (`smartctl`, `chronyc`, `auditctl`, `zpool`) have answered after this long, or are not waited for.
const PATIENCE: Duration = Duration::from_secs(8);
/// The time between two looks.
const BEAT: Duration = Duration::from_millis(200);
/// Properties of ZFS that decide how a database runs on it.
const ZFS_PROPERTIES: &str = "recordsize,compression,sync,logbias,primarycache,atime,dedup";

/// Reads the local host.
pub(crate) fn of_this_host(stop: &AtomicBool) -> Host {
    let mut collector = LocalHost::new(&collectors::host_name(), Arc::new(Board::new()));
    let mut host = Host::default();
    gather(&mut collector, &mut host, PATIENCE, stop);
    if host.mounts.iter().any(|mount| mount.filesystem == "zfs") {
        host.facts.extend(zfs());
    }
    host
}

/// Lets a collector look until its programs have answered, and keeps what it found in `host`. Whether it found anything.
pub fn gather(collector: &mut dyn Collect, host: &mut Host, patience: Duration, stop: &AtomicBool) -> bool {
    let clock = Clock::start();
    let begun = Instant::now();
    let tick =
        |now_us| Tick { now_us, clock, cadence_us: u64::try_from(BEAT.as_micros()).unwrap_or(u64::MAX) };
    let mut have_programs_answered = false;
    while !have_programs_answered && begun.elapsed() < patience && !stop.load(Ordering::Relaxed) {
        let mut batch = Batch::default();
        collector.tick(&tick(clock.now_us()), &mut batch);
        for (_, _, line) in batch.lines {
            have_programs_answered |= is_of_program(&line);
            keep(line, host);
        }
        std::thread::sleep(BEAT);
    }
    collector.finish(&tick(clock.now_us()), &mut Batch::default());
    host.facts.sort();
    !host.facts.is_empty()
}

/// The reports of programs come together.
fn is_of_program(line: &Sampled) -> bool {
    match line {
        Sampled::Fact(fact) => fact.topic == "audit" || fact.name.starts_with("chrony"),
        Sampled::Missing(missing) => {
            matches!(missing.what.as_str(), "smart" | "audit") && !missing.why.is_empty()
        }
        Sampled::Hardware(counter) => counter.kind == "smart",
        _ => false,
    }
}

fn keep(line: Sampled, host: &mut Host) {
    match line {
        Sampled::Fact(fact) => {
            host.facts.retain(|old| (&old.topic, &old.name) != (&fact.topic, &fact.name));
            host.facts.push(Fact { topic: fact.topic, name: fact.name, value: fact.value });
        }
        Sampled::Mount(mount) => {
            host.mounts.retain(|old| old.mount != mount.mount);
            host.mounts.push(Mount {
                mount: mount.mount,
                device: mount.device,
                filesystem: mount.filesystem,
                options: mount.options,
                size_bytes: mount.size_bytes,
                free_bytes: mount.free_bytes,
            });
        }
        Sampled::Hardware(counter) => {
            let Some(value) = counter.value else { return };
            host.counters.retain(|old| (&old.kind, &old.name) != (&counter.kind, &counter.name));
            host.counters.push(Counted { kind: counter.kind, name: counter.name, value });
        }
        Sampled::Missing(missing) => {
            host.missing.retain(|old| old.what != missing.what);
            if !missing.why.is_empty() {
                host.missing.push(Lack { what: missing.what, why: missing.why, lost: missing.lost });
            }
        }
        _ => {}
    }
}

/// The properties of all file systems of ZFS.
fn zfs() -> Vec<Fact> {
    let output = Command::new("zfs")
        .args(["get", "-Hp", "-t", "filesystem", "-o", "name,property,value", ZFS_PROPERTIES])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    zfs_properties(&text)
}

fn zfs_properties(text: &str) -> Vec<Fact> {
    let of = |line: &str| {
        let mut words = line.split('\t');
        let (name, property, value) = (words.next()?, words.next()?, words.next()?);
        Some(Fact {
            topic: "zfs".to_string(),
            name: format!("{name} {property}"),
            value: value.trim().to_string(),
        })
    };
    text.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_facts_and_mounts() {
        let host = of_this_host(&AtomicBool::new(false));
        let fact =
            |topic: &str, name: &str| host.facts.iter().any(|fact| fact.topic == topic && fact.name == name);
        assert!(fact("kernel", "release") && fact("memory", "total"), "{:?}", host.facts);
        assert!(host.mounts.iter().any(|mount| mount.mount == "/"), "{:?}", host.mounts);
        assert!(host.mounts.iter().all(|mount| mount.size_bytes.is_some()), "{:?}", host.mounts);
    }

    #[test]
    fn properties_of_zfs() {
        let text = "tank/pg\trecordsize\t131072\ntank/pg\tsync\tdisabled\nbroken line\n";
        let facts = zfs_properties(text);
        assert_eq!(facts.len(), 2);
        assert_eq!((facts[1].name.as_str(), facts[1].value.as_str()), ("tank/pg sync", "disabled"));
    }
}
