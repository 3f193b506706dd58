//! FS: the file system below the database: its allocator, its locks, its mount point.

use super::paste::word;
use crate::case::Case;
use crate::node_time::share_waiting;
use crate::rule::Need::{Any, Facts, Field, Stacks};
use crate::rule::{Answer, Claim, Rule};
use crate::stacks::{EXT4_ALLOCATOR, KERNEL_LOCKS, ZFS_COUNTERS};
use crate::units;
use record::finding::{Level, Severity};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "FS-01",
        title: "ext4's stripe option makes its allocator search endlessly",
        needs: &[Any(&[Facts("mount"), Field("mount", "options")])],
        limits: "stripe set, and the allocator takes 3 % of the samples or examines 100 groups per request (kernel commit 1f6bc02f1848)",
        judge: stripe,
        links: &["https://git.kernel.org/linus/1f6bc02f1848"],
    },
    Rule {
        id: "FS-02",
        title: "ext4's allocator is slow because the file system is full or fragmented",
        needs: &[Any(&[Stacks, Field("hardware", "value")]), Field("mount", "free_bytes")],
        limits: "90 % full, and the allocator takes 3 % of the samples or examines 100 groups per request",
        judge: full,
        links: &["https://docs.kernel.org/filesystems/ext4/allocators.html"],
    },
    Rule {
        id: "FS-03",
        title: "sessions contend for the lock of ZFS's counters",
        needs: &[Stacks],
        limits: "10 % of the samples wait for a lock below aggsum_*, arc_* or dbuf_*; fixed in OpenZFS 2.1 (PR 8901, 9930)",
        judge: zfs,
        links: &["https://github.com/openzfs/zfs/pull/8901", "https://github.com/openzfs/zfs/pull/9930"],
    },
    Rule {
        id: "FS-04",
        title: "the data directory is the mount point itself",
        needs: &[Field("mount", "used_for"), Any(&[Facts("server"), Facts("mount")])],
        limits: "data_directory is a mount point",
        judge: mount_point,
        links: &[
            "https://www.postgresql.org/docs/current/creating-cluster.html#CREATING-CLUSTER-MOUNT-POINTS",
        ],
    },
    Rule {
        id: "FS-05",
        title: "the database's file system is mounted so that every write waits for the disk",
        needs: &[Field("mount", "used_for"), Field("mount", "options"), Field("server", "sessions_active")],
        limits: "option sync on the mount of the data directory or the WAL; low below 20 % of the session time in waits for files and the WAL (ours)",
        judge: synchronous,
        links: &["https://man7.org/linux/man-pages/man8/mount.8.html"],
    },
];

/// Waits for files and the WAL, of the session time.
const WAITING_SHARE: f64 = 0.2;
/// The allocator's share of all samples.
const ALLOCATOR_SHARE: f64 = 0.03;
/// Groups of blocks looked at per request.
const GROUPS_PER_REQUEST: f64 = 100.0;
/// Used share of a file system beyond which ext4 has to search.
const FULL_SHARE: f64 = 0.9;
/// Share of samples that wait for a lock of ZFS's counters.
const ZFS_SHARE: f64 = 0.1;
/// The first kernel that gives up aligned searches: 6.8.
const FIXED_KERNEL: (u64, u64) = (6, 8);

/// The data about ext4's allocator: its share of the samples, and groups per request of the busiest device.
struct Allocator {
    share: Option<f64>,
    groups: Option<(String, f64)>,
    useless: f64,
}

impl Allocator {
    fn of(case: &Case, host: &str) -> Allocator {
        let counters: Vec<_> =
            case.at("hardware", host).filter(|counter| counter.lines.word("kind") == "mb_stats").collect();
        let sum = |name: &str| {
            let found = counters.iter().find(|counter| counter.lines.word("name") == name);
            found.and_then(|counter| counter.lines.sum("change")).unwrap_or(0.0)
        };
        let groups = counters
            .iter()
            .filter_map(|counter| {
                let device = counter.lines.word("name").strip_suffix(" groups_considered")?;
                let requests = sum(&format!("{device} reqs"));
                (requests > 0.0)
                    .then(|| (device.to_string(), counter.lines.sum("change").unwrap_or(0.0) / requests))
            })
            .max_by(|left, right| left.1.total_cmp(&right.1));
        let useless = counters
            .iter()
            .filter(|counter| counter.lines.word("name").ends_with(" useless_loops"))
            .filter_map(|counter| counter.lines.sum("change"))
            .sum();
        Allocator {
            share: case.stacks.as_ref().map(|stacks| stacks.share_with(EXT4_ALLOCATOR)),
            groups,
            useless,
        }
    }

    fn is_hot(&self) -> bool {
        self.share.is_some_and(|share| share >= ALLOCATOR_SHARE)
            || self.groups.as_ref().is_some_and(|(_, groups)| *groups >= GROUPS_PER_REQUEST)
    }

    fn is_known(&self) -> bool {
        self.share.is_some() || self.groups.is_some()
    }

    fn add_to(&self, mut claim: Claim) -> Claim {
        if let Some(share) = self.share {
            claim = claim.number("allocator_share", share).because(format!(
                "{} of the CPU samples are in ext4's allocator (family ext4_mb_*)",
                units::percent(share)
            ));
        }
        if let Some((device, groups)) = &self.groups {
            claim = claim
                .number("groups_per_request", *groups)
                .number("useless_loops", self.useless)
                .because(format!(
                    "mb_stats of {device}: {} groups examined per request, {} useless loops",
                    units::count(*groups),
                    units::count(self.useless)
                ));
        }
        if self.share.is_none() {
            claim = claim.lacking("stacks (`watch --perf always`) show whether the allocator burns CPU");
        }
        if self.groups.is_none() {
            claim = claim.lacking(
                "mb_stats (write 1 to /sys/fs/ext4/DEVICE/mb_stats) counts what the allocator examines",
            );
        }
        claim
    }
}

/// The stripe in force of each ext4 mount: `(host, mount, blocks)`.
fn stripes(case: &Case) -> Vec<(&str, &str, u64)> {
    let in_force: Vec<(&str, &str, u64)> = case
        .facts("mount")
        .filter_map(|fact| {
            Some((fact.host.as_str(), fact.name.strip_suffix(" stripe")?, fact.value.parse().ok()?))
        })
        .collect();
    let wanted =
        case.things("mount").filter(|mount| mount.lines.word("filesystem") == "ext4").filter_map(|mount| {
            let options = mount.lines.word("options");
            let stripe = options.split(',').find_map(|option| option.strip_prefix("stripe="))?;
            Some((mount.place, mount.name, stripe.parse().ok()?))
        });
    // ext4 silently drops a stripe that does not fit its groups: the option in force counts, not the requested one.
    let known = |host: &str, mount: &str| in_force.iter().any(|(of, at, _)| (*of, *at) == (host, mount));
    let wanted: Vec<_> = wanted.filter(|(host, mount, _)| !known(host, mount)).collect();
    in_force.into_iter().chain(wanted).filter(|(_, _, blocks)| *blocks > 0).collect()
}

fn kernel(case: &Case, host: &str) -> Option<(u64, u64)> {
    let release = case.facts("kernel").find(|fact| fact.host == host && fact.name == "release")?;
    let mut parts = release.value.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn stripe(case: &Case) -> Answer {
    let mut claims = vec![];
    let mut unknown = vec![];
    for (host, mount, blocks) in stripes(case) {
        let allocator = Allocator::of(case, host);
        let kernel = kernel(case, host);
        let fixed = kernel.is_some_and(|version| version >= FIXED_KERNEL);
        let version = kernel.map(|(major, minor)| format!("Linux {major}.{minor}"));
        let remedy = |claim: Claim| {
            claim.remedy(
                "remove the option; Linux 6.8 and later fall back to a search that ends",
                &[
                    &format!("$ mount -o remount,stripe=0 {}", word(mount)),
                    &format!("$ tune2fs -E stride=0,stripe-width=0 DEVICE   # and stripe=0 in /etc/fstab for {mount}"),
                ],
            )
        };
        if allocator.is_hot() {
            let claim = Claim::new(
                Severity::High,
                Level::DiscriminatingCounter,
                format!(
                    "{host}: {mount} is mounted with stripe={blocks}, and ext4's allocator searches for aligned space and finds none"
                ),
            );
            let mut claim = allocator
                .add_to(claim.on_host(host).during([case.span]).number("stripe_blocks", blocks as f64))
                .because(format!("stripe={blocks} is in force on {mount}"))
                .with(version, |claim, version| {
                    claim.because(format!("the kernel is {version}; Linux 6.8 limits the search"))
                });
            let free = case
                .at("mount", host)
                .find(|thing| thing.name == mount)
                .and_then(|thing| Some(thing.lines.last("free_bytes")? / thing.lines.last("size_bytes")?));
            if let Some(free) = free.filter(|free| *free > 1.0 - FULL_SHARE) {
                claim = claim.not(format!("a full file system (FS-02): {} are free", units::percent(free)));
            }
            claims.push(remedy(claim));
        } else if !allocator.is_known() && !fixed {
            unknown.push(mount);
            let claim = Claim::new(
                Severity::Low,
                Level::Symptom,
                format!(
                    "{host}: {mount} is mounted with stripe={blocks} under {}: ext4's allocator may search endlessly there",
                    version.unwrap_or_else(|| "a kernel of unknown version".to_string())
                ),
            );
            claims.push(remedy(
                allocator
                    .add_to(claim.on_host(host).during([case.span]).number("stripe_blocks", blocks as f64)),
            ));
        }
    }
    Answer::of(claims, || "mount options in force, the allocator's share of CPU".to_string())
}

fn full(case: &Case) -> Answer {
    let mut claims = vec![];
    let mut known = case.things("mount").all(|mount| mount.lines.word("filesystem") != "ext4");
    for mount in case.things("mount").filter(|mount| mount.lines.word("filesystem") == "ext4") {
        let allocator = Allocator::of(case, mount.place);
        known |= allocator.is_known();
        let (Some(free), Some(size)) = (mount.lines.last("free_bytes"), mount.lines.max("size_bytes")) else {
            continue;
        };
        let used = 1.0 - free / size.max(1.0);
        let striped = stripes(case).iter().any(|(host, at, _)| (*host, *at) == (mount.place, mount.name));
        let is_fragmented =
            allocator.groups.as_ref().is_some_and(|(_, groups)| *groups >= GROUPS_PER_REQUEST);
        if striped || !allocator.is_hot() || (used < FULL_SHARE && !is_fragmented) {
            continue;
        }
        let claim = Claim::new(
            Severity::High,
            Level::DiscriminatingCounter,
            format!(
                "{}: {} is {} full, and ext4 takes long to find free blocks",
                mount.place,
                mount.name,
                units::percent(used)
            ),
        );
        claims.push(
            allocator
                .add_to(claim.on_host(mount.place).during([case.span]).number("used_share", used))
                .not("a stripe option (FS-01): none is in force")
                .remedy(
                    "keep a tenth of it free, or use XFS for files of terabytes",
                    &["$ filefrag -v FILE | tail -1", "$ df -h"],
                ),
        );
    }
    if !known {
        return Answer::CannotTell("neither stacks nor mb_stats of ext4 were recorded".to_string());
    }
    Answer::of(claims, || "used space of file systems, the allocator's share of CPU".to_string())
}

fn zfs(case: &Case) -> Answer {
    let Some(stacks) = &case.stacks else { return Answer::CannotTell("no stacks".to_string()) };
    let share = stacks.share_in_through(KERNEL_LOCKS, ZFS_COUNTERS);
    if share < ZFS_SHARE {
        return Answer::Clean(format!("{} of the samples wait for locks of ZFS", units::percent(share)));
    }
    let version = case.facts("zfs").find(|fact| fact.name == "version").map(|fact| fact.value.clone());
    let nodes: Option<f64> =
        case.facts("cpu").find(|fact| fact.name == "memory nodes").and_then(|fact| fact.value.parse().ok());
    let system = case.things("host").filter_map(|host| host.lines.mean("cpu_system_pct")).fold(0.0, f64::max);
    let callers = stacks.callers(KERNEL_LOCKS, 3);
    let named: Vec<String> =
        callers.iter().map(|(name, share)| format!("{name} {}", units::percent(*share))).collect();
    let claim = Claim::new(
        Severity::High,
        Level::DiscriminatingCounter,
        format!(
            "{} of the CPU is spent waiting for a lock inside the counters of ZFS",
            units::percent(share)
        ),
    )
    .during([case.span])
    .number("share", share)
    .number("cpu_system_pct", system)
    .because(format!("the lock's callers: {}", named.join(", ")))
    .with(version, |claim, version| {
        claim.because(format!("ZFS is {version}; version 2.1 gave the counters one bucket per CPU"))
    })
    .with(nodes, |claim, nodes| {
        claim
            .number("memory_nodes", nodes)
            .because(format!("the host has {nodes} NUMA nodes: the lock's cache line moves between them"))
    })
    .not("locks of PostgreSQL: the samples are in the kernel")
    .remedy(
        "upgrade to OpenZFS 2.1 or later, or move the database off ZFS",
        &[
            "$ cat /sys/module/zfs/version",
            "$ zfs set recordsize=32k POOL/DATA   # fewer counters per byte until then",
        ],
    );
    Answer::Found(vec![claim])
}

/// The server writes WAL and tables in many small steps, and asks for the disk itself at a commit or a checkpoint: with `sync` the kernel waits at each step.
fn synchronous(case: &Case) -> Answer {
    let is_wait =
        |kind: &str, event: &str| kind == "IO" || event.starts_with("WALWrite") || event == "WALInsert";
    let mut claims = vec![];
    for mount in case.things("mount") {
        let used_for = mount.lines.word("used_for");
        let is_ours = used_for.split(',').any(|part| ["pgdata", "wal"].contains(&part.trim()));
        if !is_ours || !mount.lines.word("options").split(',').any(|option| option == "sync") {
            continue;
        }
        let nodes = case.nodes().into_iter().filter(|node| case.host_of(node) == Some(mount.place));
        let shares = nodes.map(|node| (node, share_waiting(case, node, is_wait).unwrap_or(0.0)));
        let most = shares.max_by(|left, right| left.1.total_cmp(&right.1));
        let share = most.map_or(0.0, |(_, share)| share);
        let severity = match share {
            share if share >= 0.5 => Severity::High,
            share if share >= WAITING_SHARE => Severity::Medium,
            _ => Severity::Low,
        };
        claims.push(
            Claim::new(
                severity,
                Level::CoOccurrence,
                format!(
                    "{}: {} (of {used_for}) is mounted with the option sync: each write waits for the disk, and sessions spend {} of their time with \
                        files and the WAL",
                    mount.place,
                    mount.name,
                    units::percent(share)
                ),
            )
            .on_host(mount.place)
            .with(most, |claim, (node, _)| claim.on_node(node))
            .during([mount.lines.ticks.window()])
            .number("share", share)
            .because(format!("options of the mount: {}", mount.lines.word("options")))
            .because("the server itself asks for the disk where it must, at commits and checkpoints: the option adds nothing to safety")
            .lacking("how long a write takes without it")
            .remedy(
                "mount it without sync, now and in /etc/fstab",
                &[
                    &format!("$ findmnt -no TARGET,SOURCE,FSTYPE,OPTIONS {}", word(mount.name)),
                    &format!("$ mount -o remount,async {}", word(mount.name)),
                ],
            ),
        );
    }
    Answer::of(claims, || "options of the mounts of data directories and the WAL".to_string())
}

fn mount_point(case: &Case) -> Answer {
    let mut claims = vec![];
    let directory_of = |node: &str| {
        let reported =
            case.facts("server").find(|fact| fact.name == "data_directory" && fact.node == node)?;
        Some(reported.value.trim_end_matches('/')).filter(|directory| !directory.is_empty())
    };
    // The host's collector followed links; without it the names are compared.
    let looked: Vec<(&str, bool)> = case
        .facts("mount")
        .filter_map(|fact| Some((fact.name.strip_suffix(" pgdata is a mount point")?, fact.value == "yes")))
        .collect();
    for node in case.nodes() {
        let directory = directory_of(node);
        let is_point = match looked.iter().find(|(of, _)| *of == node) {
            Some((_, is_point)) => *is_point,
            None => case.things("mount").any(|mount| {
                Some(mount.name.trim_end_matches('/')) == directory
                    && case.host_of(node).is_none_or(|host| host == mount.place)
            }),
        };
        if is_point {
            let directory = directory.unwrap_or("its data directory");
            let word = super::paste::data_directory(case, node);
            claims.push(
                Claim::new(Severity::Note, Level::DiscriminatingCounter, format!("{node}: the data directory {directory} is a mount point itself"))
                    .on_node(node)
                    .during([case.span])
                    .because("if the mount fails at boot, the server starts on an empty directory of the disk below; lost+found is also among its files")
                    .remedy(
                        "this stops the database, and all sessions end: move the data directory one level below the mount point, and let the service start \
                         it from there",
                        &[&format!(
                            "$ d={word} && pg_ctl stop -D \"$d\" -m fast && mkdir -m 700 \"$d/data\" && find \"$d\" -mindepth 1 -maxdepth 1 ! -name data \
                             ! -name lost+found -exec mv -t \"$d/data\" {{}} + && pg_ctl start -D \"$d/data\""
                        )],
                    ),
            );
        }
    }
    Answer::of(claims, || "data directories and mount points".to_string())
}
