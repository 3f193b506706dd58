//! File systems: options that cost, data at a mount point, little free space, properties of ZFS.

use super::{fact, facts, of};
use record::check::{Area, Host, Item, Limit, Mount, Unit, Verdict};
use record::number;

/// Used shares of a file system: warning and failure. ext4 and ZFS search for space from about the first one.
const USED_SHARE: (f64, f64) = (0.9, 0.97);
/// ext4's allocator no longer spins on a stripe from this kernel on (commit 1f6bc02f1848).
const KERNEL_WITHOUT_SPIN: (u64, u64) = (6, 8);
/// The lock of ZFS's counters was removed in this version (openzfs 8901, 9930).
const ZFS_WITHOUT_LOCK: (u64, u64) = (2, 1);
/// Blocks of PostgreSQL.
const PAGE_BYTES: u64 = 8192;

pub(super) fn items(host: &Host, subjects: &[&str], data: &[&str]) -> Vec<Item> {
    let mut items = vec![];
    for mount in &host.mounts {
        let is_used =
            subjects.iter().any(|path| holding(host, path).is_some_and(|one| one.mount == mount.mount));
        // Others in memory (/dev/shm, cgroups) hold no data.
        let is_volatile = mount.filesystem == "tmpfs";
        if is_used || !is_volatile {
            items.extend(space(host, mount, is_used));
        }
        if is_volatile && is_used {
            items.push(
                of(host, "mount.volatile", Area::System, &mount.mount)
                    .judged(Verdict::Fail, format!("{} is memory (tmpfs)", mount.mount))
                    .why("Everything on it is lost with the power."),
            );
        }
        items.extend(stripe(host, mount, is_used));
    }
    items.extend(data.iter().filter_map(|directory| at_mount_point(host, directory)));
    items.extend(zfs_version(host));
    items.extend(facts(host, "zfs").filter_map(|fact| zfs_property(host, &fact.name, &fact.value)));
    items
}

/// The file system that holds a directory: the longest mount point that begins its path.
fn holding<'a>(host: &'a Host, directory: &str) -> Option<&'a Mount> {
    let holds = |mount: &&Mount| {
        let point = mount.mount.trim_end_matches('/');
        directory == point || directory.strip_prefix(point).is_some_and(|rest| rest.starts_with('/'))
    };
    host.mounts.iter().filter(holds).max_by_key(|mount| mount.mount.len())
}

fn space(host: &Host, mount: &Mount, is_used: bool) -> Option<Item> {
    let (size, free) = (mount.size_bytes?, mount.free_bytes?);
    if size == 0 {
        return None;
    }
    let used = 1.0 - free as f64 / size as f64;
    let verdict = match used {
        used if used > USED_SHARE.1 && is_used => Verdict::Fail,
        used if used > USED_SHARE.0 => Verdict::Warn,
        _ => Verdict::Pass,
    };
    let claim = format!(
        "{} is {} full: {} of {} are free",
        mount.mount,
        number::percent(used),
        number::bytes(free as f64),
        number::bytes(size as f64)
    );
    let item =
        of(host, "mount.space", Area::System, &mount.mount).figure(used, Unit::Share).judged(verdict, claim);
    let item = item.why("A full disk stops the server; a nearly full one slows the search for free blocks.");
    Some(Item { limit: Some(Limit::AtMost(USED_SHARE.0)), ..item })
}

/// `(6, 1)` of `6.1.0-13-amd64`.
fn version(text: &str) -> Option<(u64, u64)> {
    let mut numbers =
        text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The effective value where the kernel shows it, else the option.
fn stripe(host: &Host, mount: &Mount, is_used: bool) -> Option<Item> {
    if mount.filesystem != "ext4" {
        return None;
    }
    let option = || mount.options.split(',').find_map(|option| option.strip_prefix("stripe="));
    let blocks: u64 =
        fact(host, "mount", &format!("{} stripe", mount.mount)).or_else(option)?.parse().ok()?;
    if blocks == 0 {
        return None;
    }
    let release = fact(host, "kernel", "release").unwrap_or("unknown");
    let can_spin = version(release).is_none_or(|version| version < KERNEL_WITHOUT_SPIN);
    let verdict = if can_spin && is_used { Verdict::Fail } else { Verdict::Warn };
    let claim = format!("{} is mounted with stripe={blocks} under kernel {release}", mount.mount);
    let command = format!("$ mount -o remount,stripe=0 {}", mount.mount);
    Some(
        of(host, "mount.stripe", Area::System, &mount.mount)
            .figure(blocks as f64, Unit::Count)
            .judged(verdict, claim)
            .why("ext4 searches for free space that is aligned to the stripe; before Linux 6.8 it can spin there and take whole processors.")
            .remedy("Switch the option off, also in /etc/fstab.", &[&command]),
    )
}

fn at_mount_point(host: &Host, directory: &str) -> Option<Item> {
    let mount = holding(host, directory)?;
    let is_point = mount.mount.trim_end_matches('/') == directory.trim_end_matches('/');
    let item = of(host, "mount.pgdata", Area::System, directory);
    Some(match is_point {
        true => item
            .judged(Verdict::Warn, format!("the data directory {directory} is a mount point"))
            .why("If the disk is not mounted at a start, the server finds an empty directory, and the root user's lost+found lies among its files.")
            .remedy("Place the data directory in a folder below the mount point.", &[]),
        false => item.judged(Verdict::Pass, format!("{directory} lies below the mount point {}", mount.mount)),
    })
}

fn zfs_version(host: &Host) -> Option<Item> {
    let text = fact(host, "zfs", "version")?;
    let item = of(host, "zfs.version", Area::System, "");
    let is_old = version(text).is_some_and(|version| version < ZFS_WITHOUT_LOCK);
    let nodes: u64 = fact(host, "cpu", "memory nodes").and_then(|text| text.parse().ok()).unwrap_or(1);
    let is_used = host.mounts.iter().any(|mount| mount.filesystem == "zfs");
    Some(match is_old && is_used {
        true => item
            .judged(
                if nodes > 1 { Verdict::Fail } else { Verdict::Warn },
                format!("ZFS {text} on {}", number::counted(nodes, "NUMA node")),
            )
            .why("Before OpenZFS 2.1 all processors update its counters under one lock, which costs most with several sockets.")
            .remedy("Upgrade to OpenZFS 2.1 or later.", &[]),
        false => item.judged(Verdict::Note, format!("ZFS {text}")),
    })
}

fn zfs_property(host: &Host, name: &str, value: &str) -> Option<Item> {
    let (dataset, property) = name.rsplit_once(' ')?;
    let (verdict, why) = match (property, value) {
        ("sync", "disabled") => (Verdict::Fail, "A commit is lost if the power fails."),
        ("dedup", value) if value != "off" => {
            (Verdict::Warn, "Deduplication costs a lookup for every block written.")
        }
        ("atime", "on") => (Verdict::Warn, "Every read of a file writes its time of access."),
        ("recordsize", value) if value.parse().is_ok_and(|bytes: u64| bytes > 4 * PAGE_BYTES) => {
            (Verdict::Note, "A page of 8 kB is read and written as a whole record.")
        }
        _ => return None,
    };
    let claim = format!("{dataset}: {property}={value}");
    Some(of(host, "zfs.property", Area::System, name).judged(verdict, claim).why(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_kernels_and_modules() {
        assert_eq!(version("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!(version("0.8.6-1"), Some((0, 8)));
        assert_eq!(version("zfs"), None);
    }
}
