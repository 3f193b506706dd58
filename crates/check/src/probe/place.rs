//! Where a directory lies: its mount, its device, the disks that it consists of, and the free space.

use std::path::Path;
use watch::host::files::{Files, Tree};
use watch::host::mount::{self, Mount};
use watch::host::topology::Topology;

/// A directory's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its file system.
    pub mount: Mount,
    /// The device as the kernel calls it, if it has one.
    pub device: Option<String>,
    /// The disks below it, in natural order.
    pub members: Vec<String>,
    /// Size of the file system and what is free for users.
    pub space_bytes: Option<(u64, u64)>,
}

/// Finds the place of a directory of this host.
pub fn of(directory: &Path) -> Option<Place> {
    let directory = directory.canonicalize().ok()?;
    let mut files = Tree::live();
    let mounts = mount::read(&mut files);
    let topology = Topology::read(&mut files, &mounts);
    let found = mount::holding(&mounts, &directory.to_string_lossy())?.clone();
    let device = topology.device_of(&found);
    let members =
        device.as_deref().map(|device| topology.leaves(device).into_iter().collect()).unwrap_or_default();
    let space_bytes = mount::space(&directory.to_string_lossy());
    Some(Place { mount: found, device, members, space_bytes })
}

/// Operations and milliseconds that each device has spent so far.
pub fn waits(devices: &[String]) -> Vec<(u64, u64)> {
    let mut files = Tree::live();
    let all = files.text("/proc/diskstats").map(watch::host::disk::diskstats).unwrap_or_default();
    let of = |device: &String| {
        all.get(device).map_or((0, 0), |one| (one.reads + one.writes, one.read_ms + one.write_ms))
    };
    devices.iter().map(of).collect()
}
