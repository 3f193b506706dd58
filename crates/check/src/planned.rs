//! What the checked hosts give, against what a plan needs of them: nodes, space and rates of the disks.

use crate::database::given::{nearest, volume_bytes};
use record::check::{Area, Checks, Disk, Item, Mount, Pattern, Unit, Verdict};
use record::number;
use record::plan::Plan;
use std::path::Path;

/// Why the rates of the disks matter.
const WHY_RATE: &str = "the plan's times hold only if the disks are as fast as it assumes";

/// The items of a plan about nodes and disks. `nodes` are those of the cluster that share the rows, if a database is checked.
pub fn items(plan: &Plan, nodes: Option<u64>, checks: &Checks) -> Vec<Item> {
    let mut items: Vec<Item> = nodes.into_iter().map(|nodes| of_nodes(plan, nodes)).collect();
    if plan.input.other_storage.is_some() {
        // Nothing is planned of its disks.
        return items;
    }
    let last = checks.disks.iter().map(|disk| disk.round).max().unwrap_or(0);
    for disk in checks.disks.iter().filter(|disk| disk.round == last) {
        let volumes = volumes_on(plan, checks, disk);
        items.extend(free_space(plan, checks, disk, volumes));
        let of_all = |rate: Option<f64>| rate.map(|rate| rate * volumes as f64);
        let read = plan.input.hardware.disk_read_bytes_per_s;
        items.extend(of_rate(of_all(read), disk, Pattern::SequentialRead));
        items.extend(of_rate(of_all(write_bytes_per_s(plan)), disk, Pattern::SequentialWrite));
    }
    items
}

/// The mount of a disk; fio knows none.
fn mount_of<'a>(checks: &'a Checks, disk: &Disk) -> Option<&'a Mount> {
    let host = checks.hosts.iter().find(|host| host.host == disk.host)?;
    let of_probe = host.mounts.iter().find(|mount| mount.mount == disk.mount);
    of_probe.or_else(|| nearest(&host.mounts, Path::new(&disk.directory)))
}

/// Volumes of the plan that share the file system of a disk: its directories, but not more than the plan puts on one host.
fn volumes_on(plan: &Plan, checks: &Checks, disk: &Disk) -> u64 {
    let Some(mount) = mount_of(checks, disk) else { return 1 };
    let of_host = checks.disks.iter().filter(|other| other.host == disk.host && other.round == disk.round);
    let sharing = of_host.filter(|other| mount_of(checks, other).is_some_and(|one| one.mount == mount.mount));
    let hosts = checks.hosts.iter().filter(|host| host.lost.is_none()).count().max(1) as u64;
    let most = plan.input.hardware.nodes.div_ceil(hosts).max(1) * plan.layout.volumes_per_node.max(1);
    (sharing.count() as u64).clamp(1, most)
}

fn of_nodes(plan: &Plan, nodes: u64) -> Item {
    let planned = plan.input.hardware.nodes;
    let verdict = if nodes < planned { Verdict::Fail } else { Verdict::Pass };
    let claim = format!(
        "the plan is for {}; {} that can have rows answered",
        number::counted(planned, "node"),
        number::counted(nodes, "node")
    );
    let mut item = Item { check: "plan.nodes".into(), area: Area::State, ..Item::default() };
    item.limit = Some(record::check::Limit::AtLeast(planned as f64));
    item.figure(nodes as f64, Unit::Count)
        .judged(verdict, claim)
        .why("fewer nodes have more rows each: they do not fit, and take longer")
}

/// Free space of a measured disk against what the plan puts on each volume.
fn free_space(plan: &Plan, checks: &Checks, disk: &Disk, volumes: u64) -> Option<Item> {
    let free = mount_of(checks, disk)?.free_bytes? as f64;
    let needed = volume_bytes(plan) * volumes as f64;
    let verdict = if free < needed { Verdict::Fail } else { Verdict::Pass };
    let each = number::bytes(volume_bytes(plan));
    let claim = match volumes {
        1 => format!("{} are free; the plan needs {each} on each volume", number::bytes(free)),
        _ => format!(
            "{} are free for {volumes} volumes; the plan needs {each} on each, {} here",
            number::bytes(free),
            number::bytes(needed)
        ),
    };
    let mut item = Item::of_host("plan.space", Area::Disk, &disk.host, disk.directory.as_str());
    item.limit = Some(record::check::Limit::AtLeast(needed));
    Some(
        item.figure(free, Unit::Bytes)
            .judged(verdict, claim)
            .why("the load ends when the disk is full; data that is there already counts as used"),
    )
}

/// Bytes of tables that the load writes to each measured disk in a second, at the planned rate or at that of the deadline.
fn write_bytes_per_s(plan: &Plan) -> Option<f64> {
    let rate =
        plan.input.loading.rate.as_ref().map(|rate| rate.bytes_per_s).or(plan.time.needed_bytes_per_s)?;
    let size = &plan.size;
    let per_value = (size.heap_bytes + size.toast_bytes) as f64 / size.value_bytes.max(1) as f64;
    let volumes = (plan.input.hardware.nodes * plan.layout.volumes_per_node).max(1);
    Some(rate * per_value / volumes as f64)
}

fn of_rate(needed: Option<f64>, disk: &Disk, pattern: Pattern) -> Option<Item> {
    let needed = needed?;
    let tests = disk.tests.iter().filter(|test| test.pattern == pattern);
    let given = tests
        .map(|test| test.bytes_per_s)
        .fold(None, |best: Option<f64>, one| Some(best.map_or(one, |best| best.max(one))))?;
    let (check, what, does) = match pattern {
        Pattern::SequentialRead => ("plan.disk_read", "reads", "assumes"),
        _ => ("plan.disk_write", "writes", "needs, without WAL,"),
    };
    let verdict = if given < needed { Verdict::Warn } else { Verdict::Pass };
    let claim = format!(
        "the disk {what} {}/s sequentially; the plan {does} {}/s of it",
        number::bytes(given),
        number::bytes(needed)
    );
    let mut item = Item::of_host(check, Area::Disk, &disk.host, disk.directory.as_str());
    item.limit = Some(record::check::Limit::AtLeast(needed));
    Some(item.figure(given, Unit::BytesPerSecond).judged(verdict, claim).why(WHY_RATE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::{DiskTest, Host};
    use record::plan::input::Rate;

    #[test]
    fn the_space_behind_a_symbolic_link_is_that_of_its_target() {
        let mount = |at: &str, free| Mount { mount: at.into(), free_bytes: Some(free), ..Mount::default() };
        let host = Host { mounts: vec![mount("/", 10), mount("/big", 1_000)], ..Host::default() };
        let checks = Checks { hosts: vec![host], ..Checks::default() };
        let mut plan = Plan::default();
        plan.space.final_bytes = 500;
        let disk = Disk { directory: "/data".into(), mount: "/big".into(), ..Disk::default() };
        let verdict = |disk: &Disk| free_space(&plan, &checks, disk, 1).map(|item| item.verdict);
        assert_eq!(verdict(&disk), Some(Verdict::Pass));
        // fio knows no mount points.
        assert_eq!(verdict(&Disk { mount: String::new(), ..disk }), Some(Verdict::Fail));
    }

    #[test]
    fn volumes_on_one_file_system_need_the_sum_of_them() {
        let mount = Mount { mount: "/data".into(), free_bytes: Some(1_000), ..Mount::default() };
        let host = |name: &str| Host { host: name.into(), mounts: vec![mount.clone()], ..Host::default() };
        let test = |pattern| DiskTest { pattern, bytes_per_s: 1e8, ..DiskTest::default() };
        let disk = |host: &str, directory: &str| Disk {
            host: host.into(),
            directory: directory.into(),
            tests: vec![test(Pattern::SequentialWrite)],
            ..Disk::default()
        };
        let disks = vec![disk("dn1", "/data/a"), disk("dn1", "/data/b"), disk("dn2", "/data/a")];
        let checks = Checks { hosts: vec![host("dn1"), host("dn2")], disks, ..Checks::default() };
        let mut plan = Plan::default();
        (plan.input.hardware.nodes, plan.layout.volumes_per_node) = (2, 2);
        (plan.space.final_bytes, plan.size.heap_bytes, plan.size.value_bytes) = (600, 1, 1);
        // 60 MB/s for each of the four volumes.
        plan.input.loading.rate = Some(Rate { bytes_per_s: 2.4e8, ..Rate::default() });
        let bad = |plan: &Plan| -> Vec<(String, Option<String>, String)> {
            let bad = items(plan, None, &checks).into_iter().filter(|item| item.verdict > Verdict::Pass);
            bad.map(|item| (item.check, item.host, item.subject)).collect()
        };
        let found = bad(&plan);
        let of_dn1 = |check: &str, directory: &str| (check.to_string(), Some("dn1".into()), directory.into());
        let expected =
            ["/data/a", "/data/b"].map(|at| [of_dn1("plan.space", at), of_dn1("plan.disk_write", at)]);
        assert_eq!(found, expected.concat());
        // One node with one volume on each host: the second directory is something else, of the WAL for example.
        plan.layout.volumes_per_node = 1;
        plan.input.loading.rate = None;
        assert!(bad(&plan).is_empty());
    }

    #[test]
    fn a_slow_and_full_disk_and_a_missing_node_are_named() {
        let mut plan = Plan::default();
        (plan.input.hardware.nodes, plan.layout.volumes_per_node) = (2, 2);
        plan.input.hardware.disk_read_bytes_per_s = Some(2e8);
        plan.input.loading.rate = Some(Rate { bytes_per_s: 4e8, ..Rate::default() });
        (plan.size.heap_bytes, plan.size.value_bytes) = (2_000, 1_000);
        (plan.space.final_bytes, plan.space.keep_free_bytes) = (900, 100);
        let test = |pattern, bytes_per_s| DiskTest { pattern, bytes_per_s, ..DiskTest::default() };
        let disk = |host: &str, bytes_per_s| Disk {
            host: host.into(),
            directory: "/data/x".into(),
            tests: vec![
                test(Pattern::SequentialRead, bytes_per_s),
                test(Pattern::SequentialWrite, bytes_per_s),
            ],
            ..Disk::default()
        };
        let host = |name: &str, free| Host {
            host: name.into(),
            mounts: vec![Mount { mount: "/data".into(), free_bytes: Some(free), ..Mount::default() }],
            ..Host::default()
        };
        let checks = Checks {
            hosts: vec![host("dn1", 1_000), host("dn2", 999)],
            disks: vec![disk("dn1", 2e8), disk("dn2", 1.9e8)],
            ..Checks::default()
        };
        let items = items(&plan, Some(1), &checks);
        let bad: Vec<(&str, Option<&str>)> = items
            .iter()
            .filter(|item| item.verdict > Verdict::Pass)
            .map(|item| (item.check.as_str(), item.host.as_deref()))
            .collect();
        // Each of the four volumes takes a quarter of 2 x 400 MB/s.
        assert_eq!(
            bad,
            [
                ("plan.nodes", None),
                ("plan.space", Some("dn2")),
                ("plan.disk_read", Some("dn2")),
                ("plan.disk_write", Some("dn2"))
            ],
            "{items:#?}"
        );
        assert_eq!(items.len(), 7);
    }
}
