//! File systems: what is mounted where with which options, how full it is, and which mounts hold the parts of the database.

use super::files::Files;
use std::collections::BTreeMap;

/// File systems without a device that are irrelevant for a database.
const PSEUDO: [&str; 22] = [
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "securityfs",
    "pstore",
    "bpf",
    "debugfs",
    "tracefs",
    "configfs",
    "fusectl",
    "mqueue",
    "hugetlbfs",
    "autofs",
    "binfmt_misc",
    "rpc_pipefs",
    "nsfs",
    "efivarfs",
    "ramfs",
    "squashfs",
];

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mount {
    /// Mount id, as fanotify marks name it.
    pub id: u64,
    /// Device numbers: `st_dev` of its files.
    pub number: (u32, u32),
    /// The mounted folder of the file system; `/` unless it is a bind mount.
    pub root: String,
    /// Where.
    pub mount: String,
    /// Kind of file system.
    pub filesystem: String,
    /// The device, or its substitute.
    pub device: String,
    /// Options of the mount and of the file system, each once, comma-separated, in their order.
    pub options: String,
}

impl Mount {
    /// The device's name as in `/proc/diskstats`; `None` for a file system without one.
    pub fn device_name(&self) -> Option<String> {
        let name = self.device.strip_prefix("/dev/")?;
        Some(name.to_string())
    }

    /// The value of an option `name=value`, or an empty text for a plain `name`.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|option| match option.split_once('=') {
            Some((key, value)) => (key == name).then_some(value),
            None => (option == name).then_some(""),
        })
    }

    /// Whether it may contain files of a database.
    pub(crate) fn is_real(&self) -> bool {
        !PSEUDO.contains(&self.filesystem.as_str())
    }
}

/// Undoes the kernel's octal escapes of white space and backslashes.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let raw = text.as_bytes();
    let mut at = 0;
    while at < raw.len() {
        let code = (raw[at] == b'\\')
            .then(|| raw.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                at += 4;
            }
            None => {
                bytes.push(raw[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A device number pair `8:1`.
pub(super) fn number_pair(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Reads `/proc/self/mountinfo` (proc(5)): id, parent, number, root, mount point, options, optional fields, `-`, kind, device, options.
pub(crate) fn mountinfo(text: &str) -> Vec<Mount> {
    text.lines().filter_map(mount_line).collect()
}

fn mount_line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    let [id, _, number, root, mount, options, ..] = left[..] else { return None };
    let filesystem = right.next()?.to_string();
    let device = unescape(right.next()?);
    let mut all: Vec<&str> = vec![];
    for option in options.split(',').chain(right.next().unwrap_or_default().split(',')) {
        if !option.is_empty() && !all.contains(&option) {
            all.push(option);
        }
    }
    Some(Mount {
        id: id.parse().ok()?,
        number: number_pair(number)?,
        root: unescape(root),
        mount: unescape(mount),
        filesystem,
        device,
        options: all.join(","),
    })
}

/// The mount that holds a path: the one with the longest mount point above it; of several on one mount point the last, which hides the others.
pub fn holding<'a>(mounts: &'a [Mount], path: &str) -> Option<&'a Mount> {
    let is_above = |mount: &Mount| {
        let point = mount.mount.trim_end_matches('/');
        path.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    mounts.iter().filter(|mount| is_above(mount)).max_by_key(|mount| mount.mount.trim_end_matches('/').len())
}

/// The options that ext4 really uses, from `/proc/fs/ext4/DEV/options`, one per line. It drops some silently (a stripe larger than a
/// block group), so this outranks fstab.
pub(crate) fn ext4_options(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| match line.trim().split_once('=') {
            Some((name, value)) => (name.to_string(), value.to_string()),
            None => (line.trim().to_string(), String::new()),
        })
        .collect()
}

/// The activity of ext4's block allocator, from `/proc/fs/ext4/DEV/mb_stats`. Off until an administrator writes 1 into `/sys/fs/ext4/DEV/mb_stats`,
/// which we never do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MbStats {
    /// Requests.
    pub reqs: u64,
    /// Groups scanned, over all kinds of scans.
    pub groups_considered: u64,
    /// Passes over the groups that found nothing, over all kinds of scans.
    pub useless_loops: u64,
    /// Extents looked at.
    pub extents_scanned: u64,
}

/// Reads `mb_stats`; `None` while the collection is off.
pub fn mb_stats(text: &str) -> Option<MbStats> {
    let mut stats = MbStats::default();
    let mut found = false;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let Ok(value) = value.trim().parse::<u64>() else { continue };
        match name.trim() {
            "reqs" => {
                stats.reqs = value;
                found = true;
            }
            "groups_considered" => stats.groups_considered = stats.groups_considered.saturating_add(value),
            "useless_loops" => stats.useless_loops = stats.useless_loops.saturating_add(value),
            "extents_scanned" => stats.extents_scanned = value,
            _ => {}
        }
    }
    found.then_some(stats)
}

/// Reads the mounts of this process' view.
pub fn read(files: &mut dyn Files) -> Vec<Mount> {
    files.text("/proc/self/mountinfo").map(mountinfo).unwrap_or_default()
}

/// Space of a live file system, total and free to unprivileged users, in bytes.
pub fn space(path: &str) -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some((stat.f_blocks.saturating_mul(stat.f_frsize), stat.f_bavail.saturating_mul(stat.f_frsize)))
}

/// The lines of `df -Pk`: mount point, total and available bytes. A remote host provides this without a program of ours.
pub fn df(text: &str) -> BTreeMap<String, (u64, u64)> {
    const COLUMNS_BEFORE_MOUNT: usize = 5;
    let mut found = BTreeMap::new();
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.len() <= COLUMNS_BEFORE_MOUNT {
            continue;
        }
        let mount = words[COLUMNS_BEFORE_MOUNT..].join(" ");
        if let (Ok(total), Ok(available)) = (words[1].parse::<u64>(), words[3].parse::<u64>()) {
            found.insert(mount, (total.saturating_mul(1024), available.saturating_mul(1024)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard,stripe=1280\n\
        40 27 8:1 / /data rw,noatime shared:5 master:1 - xfs /dev/sda1 rw,attr2\n\
        41 27 8:1 /old /data rw - xfs /dev/sda1 rw\n\
        42 27 8:17 / /mnt/big\\040disk rw - ext4 /dev/sdb1 rw\nbroken line\n43 27 x:y / /z rw - ext4 /dev/z rw\n";

    #[test]
    fn mountinfo_is_read_with_its_optional_fields_and_escapes() {
        let mounts = mountinfo(MOUNTS);
        assert_eq!(mounts.len(), 5);
        assert_eq!(mounts[1].options, "rw,relatime,discard,stripe=1280");
        assert_eq!((mounts[1].option("stripe"), mounts[1].option("discard")), (Some("1280"), Some("")));
        assert_eq!(mounts[1].option("strip"), None);
        assert_eq!((mounts[2].filesystem.as_str(), mounts[2].number), ("xfs", (8, 1)));
        assert_eq!(mounts[4].mount, "/mnt/big disk");
        assert_eq!(mounts[4].device_name().as_deref(), Some("sdb1"));
        assert!(!mounts[0].is_real() && mounts[4].is_real());
        assert_eq!(unescape("a\\0"), "a\\0", "a torn escape stays");
    }

    #[test]
    fn a_path_is_held_by_the_nearest_mount() {
        let mounts = mountinfo(MOUNTS);
        let at = |path| holding(&mounts, path).map(|mount| mount.id);
        assert_eq!(at("/var/lib/pg"), Some(27));
        assert_eq!(at("/data"), Some(41), "the later mount hides the earlier");
        assert_eq!(at("/database"), Some(27), "a name that only begins alike is elsewhere");
        assert_eq!(at("/mnt/big disk/pg/base"), Some(42));
        assert_eq!(holding(&[], "/"), None);
    }

    #[test]
    fn ext4_statistics_are_read() {
        let options = ext4_options("rw\nbsddf\nstripe=1280\n\ncommit=5\n");
        assert_eq!((options["stripe"].as_str(), options["rw"].as_str(), options.len()), ("1280", "", 4));
    }

    #[test]
    fn allocator_counters_are_summed_over_the_criteria() {
        let text = "mballoc:\n\treqs: 34672\n\tsuccess: 1000\n\tgroups_scanned: 77\n\tcr_p2_aligned_stats:\n\t\thits: 1\n\t\tgroups_considered: 50000000\n\
                    \t\textents_scanned: 5\n\t\tuseless_loops: 8148\n\t\tbad_suggestions: 0\n\tcr_goal_fast_stats:\n\t\tgroups_considered: 3000000\n\
                    \t\tuseless_loops: 8596\n\textents_scanned: 12345\n";
        let stats = mb_stats(text).expect("the collection is on");
        let expected = MbStats {
            reqs: 34_672,
            groups_considered: 53_000_000,
            useless_loops: 16_744,
            extents_scanned: 12_345,
        };
        assert_eq!(stats, expected);
        assert_eq!(mb_stats("mballoc:\n\tmb stats collection turned off.\n"), None);
    }

    #[test]
    fn df_gives_the_space_of_a_remote_machine() {
        let text = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 1000 400 600 40% /data\n/dev/sdb1 2000 1 1999 1% /mnt/big disk\nx\n";
        let found = df(text);
        assert_eq!(found["/data"], (1_024_000, 614_400));
        assert_eq!(found["/mnt/big disk"].1, 1999 * 1024);
    }
}
