//! Which block device is built of which: md and device-mapper arrays, loop devices, btrfs, partitions.
//!
//! A database uses the top device; the slow one is below. So every sample of a device names what it is a member of, and the
//! devices under a folder can be followed down to the leaves (is the WAL on the same disk as the data?).

use super::files::{Files, word};
use super::mount::Mount;
use std::collections::{BTreeMap, BTreeSet};

/// The deepest stack that is followed: a loop in a damaged recording must end.
const DEPTH_MAX: usize = 16;

/// The block devices of a host and their stacking.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Topology {
    /// For each device, those directly below it.
    below: BTreeMap<String, BTreeSet<String>>,
    /// For each partition its disk.
    disk_of: BTreeMap<String, String>,
    /// Names for people: `dm-0` is `vg-data`.
    titles: BTreeMap<String, String>,
    /// Whole devices.
    disks: BTreeSet<String>,
    /// Names by device number, partitions included.
    names: BTreeMap<(u32, u32), String>,
}

impl Topology {
    /// Reads `/sys/block`, and `mounts` to find the devices under the files of loop devices.
    pub fn read(files: &mut dyn Files, mounts: &[Mount]) -> Topology {
        let mut topology = Topology::default();
        for disk in files.entries("/sys/block") {
            let folder = format!("/sys/block/{disk}");
            topology.learn_number(files, &folder, &disk);
            // A partition is a folder named after its disk: sda1, nvme0n1p1.
            for name in files.entries(&folder).into_iter().filter(|name| name.starts_with(&disk)) {
                if files.text(&format!("{folder}/{name}/partition")).is_ok() {
                    topology.learn_number(files, &format!("{folder}/{name}"), &name);
                    topology.disk_of.insert(name, disk.clone());
                }
            }
            topology.disks.insert(disk);
        }
        for disk in topology.disks.clone() {
            let folder = format!("/sys/block/{disk}");
            for slave in files.entries(&format!("{folder}/slaves")) {
                topology.stack(&disk, &slave);
            }
            for attribute in ["dm/name", "loop/backing_file"] {
                let Some(title) = word(files, &format!("{folder}/{attribute}")) else { continue };
                // A loop device is above the device of the file system with its file.
                if attribute.starts_with("loop")
                    && let Some(device) =
                        super::mount::holding(mounts, &title).and_then(|mount| topology.device_of(mount))
                {
                    topology.stack(&disk, &device);
                }
                topology.titles.insert(disk.clone(), title);
            }
        }
        for id in files.entries("/sys/fs/btrfs") {
            let devices = files.entries(&format!("/sys/fs/btrfs/{id}/devices"));
            if devices.is_empty() {
                continue;
            }
            let label = word(files, &format!("/sys/fs/btrfs/{id}/label"));
            let name = format!("btrfs:{}", label.unwrap_or_else(|| id.chars().take(8).collect()));
            for device in devices {
                topology.stack(&name, &device);
            }
        }
        topology
    }

    fn learn_number(&mut self, files: &mut dyn Files, folder: &str, name: &str) {
        let number = word(files, &format!("{folder}/dev"));
        if let Some(number) = number.as_deref().and_then(super::mount::number_pair) {
            self.names.insert(number, name.to_string());
        }
    }

    /// The device under a file system, by the name that `/proc/diskstats` uses; for ZFS the pool, for btrfs of several disks their
    /// array. `None` for file systems without a device.
    pub fn device_of(&self, mount: &Mount) -> Option<String> {
        if mount.filesystem == "zfs" {
            return mount.device.split('/').next().map(str::to_string);
        }
        if let Some(name) = self.names.get(&mount.number) {
            return Some(name.clone());
        }
        let name = mount.device_name()?;
        let disk = self.disk_of.get(&name).unwrap_or(&name);
        let array =
            self.member_of(disk).filter(|array| array.starts_with("btrfs:") && mount.filesystem == "btrfs");
        Some(array.map_or(name, str::to_string))
    }

    /// The device and everything below it.
    pub(crate) fn stack_of(&self, device: &str) -> BTreeSet<String> {
        let device = self.disk_of.get(device).map_or(device, String::as_str);
        let mut found = BTreeSet::new();
        let mut open = vec![device.to_string()];
        while let Some(name) = open.pop() {
            if found.insert(name.clone()) {
                open.extend(self.members(&name).map(str::to_string));
            }
        }
        found
    }

    fn stack(&mut self, upper: &str, lower: &str) {
        let lower = self.disk_of.get(lower).map_or(lower, String::as_str).to_string();
        if lower != upper {
            self.below.entry(upper.to_string()).or_default().insert(lower);
        }
    }

    /// Notes a pool whose members a tool named (`zpool status`).
    pub(crate) fn add_pool(&mut self, pool: &str, members: &[String]) {
        for member in members {
            self.stack(pool, member);
        }
    }

    /// Whether this is a whole device and not a partition. Without `/sys/block` this is unknown: then every device counts.
    pub(crate) fn is_disk(&self, device: &str) -> bool {
        self.disks.is_empty() || self.disks.contains(device)
    }

    /// The array of the device, the first by name if there are several.
    pub fn member_of(&self, device: &str) -> Option<&str> {
        self.below.iter().find(|(_, members)| members.contains(device)).map(|(upper, _)| upper.as_str())
    }

    /// The devices right below.
    pub fn members(&self, device: &str) -> impl Iterator<Item = &str> {
        self.below.get(device).into_iter().flatten().map(String::as_str)
    }

    /// A readable name: that of a logical volume, or the file of a loop device.
    pub fn title(&self, device: &str) -> Option<&str> {
        self.titles.get(device).map(String::as_str)
    }

    /// The physical disks of a device: itself if nothing is below.
    pub fn leaves(&self, device: &str) -> BTreeSet<String> {
        let device = self.disk_of.get(device).map_or(device, String::as_str);
        let mut leaves = BTreeSet::new();
        let mut level = BTreeSet::from([device.to_string()]);
        for _ in 0..DEPTH_MAX {
            let mut next = BTreeSet::new();
            for name in level {
                match self.below.get(&name) {
                    Some(members) => next.extend(members.iter().cloned()),
                    None => {
                        leaves.insert(name);
                    }
                }
            }
            if next.is_empty() {
                break;
            }
            level = next;
        }
        leaves
    }
}

/// The members of the pools in the output of `zpool status -LP`: pool name and device names without `/dev/` and partition numbers
/// of disks that `disk_of` knows are left to [`Topology::add_pool`].
pub(crate) fn zpool_members(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut pools: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut pool = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("pool:") {
            pool = Some(name.trim().to_string());
        } else if let (Some(pool), Some(rest)) = (&pool, line.strip_prefix("/dev/")) {
            let device = rest.split_ascii_whitespace().next().unwrap_or_default();
            if !device.is_empty() {
                pools.entry(pool.clone()).or_default().push(device.to_string());
            }
        }
    }
    pools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;

    /// LVM on md on two NVMe partitions, a loop device on it, and a btrfs of two disks.
    fn machine() -> (Shipped, Vec<Mount>) {
        let mut files = Shipped::default();
        for disk in ["nvme0n1", "nvme1n1"] {
            files.put(&format!("/sys/block/{disk}/size"), "1\n".into());
            files.put(&format!("/sys/block/{disk}/{disk}p2/partition"), "2\n".into());
            files.put_link(&format!("/sys/block/md0/slaves/{disk}p2"), "../../x");
        }
        files.put("/sys/block/md0/size", "1\n".into());
        files.put("/sys/block/dm-0/dm/name", "vg-data\n".into());
        files.put("/sys/block/dm-0/dev", "254:0\n".into());
        files.put_link("/sys/block/dm-0/slaves/md0", "../../x");
        files.put("/sys/block/loop1/loop/backing_file", "/data/pg/slow.img\n".into());
        for disk in ["sda", "sdb"] {
            files.put(&format!("/sys/block/{disk}/size"), "1\n".into());
            files.put_link(&format!("/sys/fs/btrfs/8a6c7b2e-0000/devices/{disk}"), "../x");
        }
        let mounts = super::super::mount::mountinfo(
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 254:0 / /data rw - ext4 /dev/mapper/vg-data rw\n3 1 0:44 / /b rw - btrfs /dev/sda rw\n4 1 0:45 / \
                /z rw - zfs tank/pg rw\n",
        );
        (files, mounts)
    }

    #[test]
    fn stacks_are_followed_to_the_leaves() {
        let (mut files, mounts) = machine();
        let topology = Topology::read(&mut files, &mounts);
        assert_eq!(topology.member_of("nvme1n1"), Some("md0"));
        assert_eq!(topology.member_of("md0"), Some("dm-0"));
        assert_eq!(topology.member_of("dm-0"), Some("loop1"), "the loop device's file lies on it");
        assert_eq!(topology.member_of("loop1"), None);
        assert_eq!(topology.member_of("sdb"), Some("btrfs:8a6c7b2e"));
        let disks = BTreeSet::from(["nvme0n1".to_string(), "nvme1n1".to_string()]);
        assert_eq!(topology.leaves("loop1"), disks);
        assert_eq!(topology.leaves("nvme0n1p2"), BTreeSet::from(["nvme0n1".to_string()]));
        let devices: Vec<_> = mounts.iter().map(|mount| topology.device_of(mount)).collect();
        let expected = ["sda1", "dm-0", "btrfs:8a6c7b2e", "tank"].map(|name| Some(name.to_string()));
        assert_eq!(devices, expected);
        assert_eq!(topology.stack_of("dm-0").len(), 4);
        assert_eq!(topology.title("dm-0"), Some("vg-data"));
        assert!(topology.is_disk("md0") && !topology.is_disk("nvme0n1p2"));
    }

    #[test]
    fn a_circle_in_a_damaged_recording_ends() {
        let mut files = Shipped::default();
        files.put_link("/sys/block/md0/slaves/md1", "x");
        files.put_link("/sys/block/md1/slaves/md0", "x");
        let topology = Topology::read(&mut files, &[]);
        assert!(topology.leaves("md0").is_empty());
    }

    #[test]
    fn members_of_a_zfs_pool() {
        let text = "  pool: tank\n state: ONLINE\nconfig:\n\n\tNAME        STATE     READ WRITE CKSUM\n\ttank        ONLINE       0     0     0\n\
                    \t  mirror-0  ONLINE       0     0     0\n\t    /dev/sda1  ONLINE       0     0     0\n\t    /dev/sdb1  ONLINE       0     0     0\n";
        assert_eq!(zpool_members(text)["tank"], ["sda1", "sdb1"]);
        assert!(zpool_members("no pools available\n").is_empty());
    }
}
