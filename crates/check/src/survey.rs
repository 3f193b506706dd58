//! The whole preflight of hosts: all hosts in parallel, pairs of hosts in turn, in one or several rounds.

use crate::host;
use crate::hosts::Host;
use crate::link::{Link, LinkError, Ways};
use crate::probe::message::{DiskPlan, Reply, Request};
use record::Clock;
use record::check::{Area, Checks, Disk, Host as Checked, Item, Verdict};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long the tests of a directory may take beside their own time: a disk that is stuck must not hold up the other hosts forever.
const DISK_PATIENCE: Duration = Duration::from_secs(120);

/// What is checked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// How they are reached.
    pub ways: Ways,
    /// Directories to measure on every host.
    pub disks: Vec<String>,
    /// How a directory is measured; its `directory` is not used.
    pub disk: DiskPlan,
}

/// Checks them all.
pub fn run(plan: &Plan, clock: Clock, say: &(dyn Fn(&str) + Sync), stop: &AtomicBool) -> Checks {
    let mut checks = Checks::default();
    let found: Vec<(Checked, Vec<Disk>)> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            plan.hosts.iter().map(|host| scope.spawn(move || one(plan, host, clock, say, stop))).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    for (host, disks) in found {
        checks.items.push(reached(&host));
        checks.items.extend(disks.iter().flat_map(host::disk::items));
        checks.disks.extend(disks);
        checks.hosts.push(host);
    }
    checks.items.sort_by_key(|item| item.area);
    checks
}

/// Checks one host.
fn one(
    plan: &Plan,
    host: &Host,
    clock: Clock,
    say: &(dyn Fn(&str) + Sync),
    stop: &AtomicBool,
) -> (Checked, Vec<Disk>) {
    let mut checked =
        Checked { host: host.name.clone(), address: host.address.clone(), ..Checked::default() };
    let mut link = match Link::open(host, &plan.ways, stop) {
        Ok(link) => link,
        Err(error) => {
            checked.lost = Some(error.to_string());
            return (checked, vec![]);
        }
    };
    checked.measured_by = link.measured_by.to_string();
    let mut disks = vec![];
    for directory in plan.disks.iter().chain(&host.disks) {
        say(&format!("{}: measuring {directory}", host.name));
        let request = DiskPlan { directory: directory.clone(), ..plan.disk.clone() };
        let patience = DISK_PATIENCE + Duration::from_millis(plan.disk.time_ms) * 20;
        let mut disk = match link.call(&Request::Disk(request), patience, stop) {
            Ok(Reply::Disk(disk)) => *disk,
            Ok(_) => refused(directory, "the probe gave another reply"),
            Err(LinkError::Stopped) => break,
            Err(error) => refused(directory, &error.to_string()),
        };
        disk.host.clone_from(&host.name);
        disk.t_us = clock.now_us();
        disks.push(disk);
    }
    (checked, disks)
}

fn refused(directory: &str, why: &str) -> Disk {
    Disk { directory: directory.to_string(), refused: Some(why.to_string()), ..Disk::default() }
}

/// Whether the host was reached.
fn reached(host: &Checked) -> Item {
    let item = Item::of_host("host.reached", Area::System, &host.host, "");
    match &host.lost {
        Some(lost) => item
            .judged(Verdict::Fail, format!("the host was not checked: {lost}"))
            .why("Nothing is known about this host.")
            .remedy("ssh must work without a question.", &[&format!("$ ssh {} true", host.host)]),
        None => item.judged(Verdict::Pass, format!("measured by {}", host.measured_by)),
    }
}
