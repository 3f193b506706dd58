use super::*;
use record::check::{Counted, Mount, Processor, WallClock};

fn host(facts: &[(&str, &str, &str)]) -> Host {
    let fact = |(topic, name, value): &(&str, &str, &str)| Fact {
        topic: (*topic).into(),
        name: (*name).into(),
        value: (*value).into(),
    };
    Host { host: "db1".into(), cpus: 8, facts: facts.iter().map(fact).collect(), ..Host::default() }
}

fn verdict_of(host: &Host, check: &str) -> Option<Verdict> {
    items(host, &["/data/pg"], &["/data/pg", "/wal"], "")
        .into_iter()
        .filter(|item| item.check == check)
        .map(|item| item.verdict)
        .max()
}

fn mount(point: &str, options: &str, free: u64) -> Mount {
    Mount {
        mount: point.into(),
        device: "md0".into(),
        filesystem: "ext4".into(),
        options: options.into(),
        size_bytes: Some(1000),
        free_bytes: Some(free),
    }
}

#[test]
fn an_unreachable_host_has_one_failed_item() {
    let lost = Host { lost: Some("Connection refused".into()), ..host(&[]) };
    let found = items(&lost, &[], &[], "$ ssh -p 2222 dn1 true");
    assert_eq!(found[0].remedy.commands, ["$ ssh -p 2222 dn1 true"]);
    assert_eq!((found.len(), found[0].verdict), (1, Verdict::Fail));
    let bare = Host { no_program: Some("pgfathom is not installed there".into()), ..host(&[]) };
    assert_eq!(verdict_of(&bare, "host.reached"), Some(Verdict::Warn));
}

#[test]
fn a_stripe_fails_before_linux_6_8_and_where_data_lies() {
    let under = |release: &str, point: &str, options: &str| {
        let mut host = host(&[("kernel", "release", release)]);
        host.mounts = vec![mount("/", "rw", 900), mount(point, options, 900)];
        verdict_of(&host, "mount.stripe")
    };
    assert_eq!(under("6.1.0-13-amd64", "/data", "rw,stripe=1280"), Some(Verdict::Fail));
    assert_eq!(under("6.8.0", "/data", "rw,stripe=1280"), Some(Verdict::Warn));
    assert_eq!(under("6.1.0", "/home", "rw,stripe=1280"), Some(Verdict::Warn));
    assert_eq!(under("6.1.0", "/data", "rw,stripe=0"), None);
    assert_eq!(under("6.1.0", "/data", "rw"), None);
}

#[test]
fn space_and_mount_points() {
    let with =
        |free: u64| Host { mounts: vec![mount("/data", "rw", free), mount("/wal", "rw", 900)], ..host(&[]) };
    assert_eq!(verdict_of(&with(20), "mount.space"), Some(Verdict::Fail));
    assert_eq!(verdict_of(&with(80), "mount.space"), Some(Verdict::Warn));
    assert_eq!(verdict_of(&with(500), "mount.space"), Some(Verdict::Pass));
    let mut volatile = with(500);
    volatile.mounts[0].filesystem = "tmpfs".to_string();
    assert_eq!(verdict_of(&volatile, "mount.volatile"), Some(Verdict::Fail));
    let found = items(&with(500), &[], &["/data/pg", "/wal"], "");
    let points: Vec<_> = found
        .iter()
        .filter(|item| item.check == "mount.pgdata")
        .map(|item| (item.subject.as_str(), item.verdict))
        .collect();
    assert_eq!(points, [("/data/pg", Verdict::Pass), ("/wal", Verdict::Warn)]);
}

#[test]
fn a_card_with_one_queue_is_a_warning() {
    let card = |queues| {
        let driver = ("nic", "eth0 driver", "virtio_net");
        verdict_of(
            &host(&[("nic", "eth0 rx queues", queues), driver, ("nic", "br0 rx queues", "1")]),
            "nic.queues",
        )
    };
    assert_eq!((card("1"), card("4")), (Some(Verdict::Warn), Some(Verdict::Pass)));
    assert_eq!(cpus("0-7,16"), 9);
}

#[test]
fn zfs_of_old_versions_and_dangerous_properties() {
    let with = |version: &str, nodes: &str| {
        let mut host = host(&[
            ("zfs", "version", version),
            ("cpu", "memory nodes", nodes),
            ("zfs", "tank sync", "disabled"),
        ]);
        host.mounts = vec![Mount { filesystem: "zfs".into(), ..mount("/data", "rw", 900) }];
        host
    };
    assert_eq!(verdict_of(&with("0.8.6-1", "8"), "zfs.version"), Some(Verdict::Fail));
    assert_eq!(verdict_of(&with("0.8.6-1", "1"), "zfs.version"), Some(Verdict::Warn));
    assert_eq!(verdict_of(&with("2.1.14", "8"), "zfs.version"), Some(Verdict::Note));
    assert_eq!(verdict_of(&with("2.1.14", "8"), "zfs.property"), Some(Verdict::Fail));
}

#[test]
fn clocks_are_judged_beyond_their_error() {
    let with =
        |offset_us: i64, error_us| Host { clock: Some(WallClock { offset_us, error_us }), ..host(&[]) };
    assert_eq!(verdict_of(&with(-500, 100), "clock.offset"), Some(Verdict::Pass));
    assert_eq!(verdict_of(&with(-50_000, 100), "clock.offset"), Some(Verdict::Warn));
    assert_eq!(verdict_of(&with(500_000, 100), "clock.offset"), Some(Verdict::Fail));
    assert_eq!(verdict_of(&with(500_000, 499_000), "clock.offset"), Some(Verdict::Pass));
    assert_eq!(
        verdict_of(&host(&[("clock", "kernel", "not synchronised")]), "clock.synchronised"),
        Some(Verdict::Warn)
    );
}

#[test]
fn memory_errors_steal_scanners_and_audit_rules() {
    let counted = |kind: &str, name: &str, value| {
        let counters = vec![Counted { kind: kind.into(), name: name.into(), value }];
        Host { counters, ..host(&[]) }
    };
    assert_eq!(verdict_of(&counted("edac", "mc5/dimm0 ce", 2.0), "hardware.memory"), Some(Verdict::Warn));
    assert_eq!(verdict_of(&counted("edac", "mc5 ue", 1.0), "hardware.memory"), Some(Verdict::Fail));
    assert_eq!(
        verdict_of(&counted("smart", "nvme0n1 media_errors", 3.0), "hardware.drive"),
        Some(Verdict::Fail)
    );
    assert_eq!(verdict_of(&host(&[]), "hardware.memory"), Some(Verdict::Pass));
    let processor = Processor { steal_share: 0.2, ..Processor::default() };
    assert_eq!(
        verdict_of(&Host { processor: Some(processor), ..host(&[]) }, "cpu.steal"),
        Some(Verdict::Warn)
    );
    let scanner = host(&[
        ("fanotify", "clamd 77 on /data", "must permit: opens"),
        ("audit", "rules", "-a always,exit -S pwrite64"),
    ]);
    assert_eq!(verdict_of(&scanner, "scanner.fanotify"), Some(Verdict::Warn));
    assert_eq!(verdict_of(&scanner, "audit.rules"), Some(Verdict::Warn));
}
