//! MEM-02: processes that the kernel killed: because the memory of the host ran out, or because their control group had used what it may.

use crate::case::{Case, Thing};
use crate::rule::Claim;
use crate::rules::costly::plain;
use crate::series::Series;
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity};

/// What the kernel writes of a kill at the limit of a control group, in one line or the other.
const OF_GROUP: [&str; 2] = ["constraint=CONSTRAINT_MEMCG", "Memory cgroup out of memory"];
/// Characters of the name of a group.
const PATH_CHARS: usize = 120;
/// The part of the host's memory that is available, from which on the host itself does not lack it.
const FREE_SHARE_MIN: f64 = 0.1;

/// The limit that was reached.
struct Limit<'a> {
    path: &'a str,
    bytes: Option<f64>,
}

/// The kernel's lines about kills on a host.
fn lines<'a>(case: &'a Case, host: &'a str) -> impl Iterator<Item = &'a Event> {
    case.events_of(event::KERNEL).filter(move |event| {
        Case::word_of(event, "topic") == "oom" && [host, ""].contains(&Case::word_of(event, "host"))
    })
}

/// The groups of the servers on a host.
fn groups<'a>(case: &'a Case, host: &'a str) -> impl Iterator<Item = Thing<'a>> {
    case.things("cgroup")
        .filter(move |group| group.lines.word("host") == host || case.host_of(group.place) == Some(host))
}

/// Whether the counter of a server's group has these kills.
pub(super) fn is_counted(case: &Case, host: &str) -> bool {
    groups(case, host).any(|group| group.lines.sum("oom_kills").is_some_and(|kills| kills > 0.0))
}

/// The group with the limit, by the kernel's line.
fn limit<'a>(case: &'a Case, host: &'a str) -> Option<Limit<'a>> {
    let group = groups(case, host).next();
    let bytes = group.and_then(|group| group.lines.last("memory_max_bytes"));
    let is_of_group = lines(case, host).any(|line| OF_GROUP.iter().any(|words| line.message.contains(words)));
    let named = lines(case, host).find_map(|line| {
        let (_, rest) = line.message.split_once("oom_memcg=")?;
        rest.split([',', ' ']).next().filter(|path| !path.is_empty())
    });
    let path = named.or(group.map(|group| group.lines.word("path")).filter(|path| !path.is_empty()));
    is_of_group.then(|| Limit { path: path.unwrap_or("of the server"), bytes })
}

/// About the processes that were killed on a host.
pub(super) fn of_host(case: &Case, host: &Thing<'_>, killed: &Series) -> Claim {
    let line = lines(case, host.place).next();
    let limit = limit(case, host.place);
    let count = units::counted(killed.sum() as usize, "process");
    let text = match &limit {
        Some(limit) => format!(
            "{}: the kernel killed {count} at the memory limit{} of the control group {}{}",
            host.place,
            limit.bytes.map_or(String::new(), |bytes| format!(" of {}", units::bytes(bytes))),
            plain(limit.path, PATH_CHARS),
            free(host).map_or(String::new(), |free| format!(
                ", while the host has {} available",
                units::bytes(free)
            ))
        ),
        None => format!("{}: the kernel killed {count} because memory ran out", host.place),
    };
    let claim = Claim::new(Severity::High, Level::DiscriminatingCounter, text)
        .on_host(host.place)
        .during(killed.stretches(0, |point| point.sum > 0.0))
        .number("oom_kills", killed.sum())
        .with(line, |claim, line| claim.because(format!("the kernel's log: {}", line.message)))
        .with(limit.as_ref().and_then(|limit| limit.bytes), |claim, bytes| {
            claim.number("memory_max_bytes", bytes)
        });
    match limit {
        Some(limit) => at_limit(claim, limit.path),
        None => claim.remedy(
            "reduce the server's concurrent work, and disable overcommit so that the kernel refuses memory instead of killing processes",
            &[
                "$ sysctl vm.overcommit_memory=2",
                "ALTER SYSTEM SET work_mem = '16MB'; ALTER SYSTEM SET logical_decoding_work_mem = '64MB'; SELECT pg_reload_conf();",
            ],
        ),
    }
}

/// What the host has left, if that is much.
fn free(host: &Thing<'_>) -> Option<f64> {
    let least = host
        .lines
        .series("memory_available_bytes")?
        .points()
        .iter()
        .map(|point| point.mean())
        .fold(f64::MAX, f64::min);
    let total = host.lines.last("memory_total_bytes")?;
    (least >= total * FREE_SHARE_MIN).then_some(least)
}

/// The group's limit knows nothing of overcommit: it counts what is used.
fn at_limit(claim: Claim, path: &str) -> Claim {
    let path = if path.starts_with('/') { path } else { "" };
    // The second path is that of groups in version 1.
    let show = format!(
        "$ grep . /sys/fs/cgroup{path}/memory.max /sys/fs/cgroup{path}/memory.events /sys/fs/cgroup/memory{path}/memory.limit_in_bytes 2>/dev/null"
    );
    claim
        .because("when one process of a server is killed, the server ends all its sessions and recovers from its WAL: every client loses its connection")
        .not("the memory of the host: a control group (container, systemd unit) may use less than the host has, and vm.overcommit_memory does not count for it")
        .remedy(
            "raise the group's limit (container: its memory limit; systemd: MemoryMax), or let the server need less of it: shared_buffers, and work_mem times \
                the sorts and hashes that run at once, must fit in it with room for the page cache",
            &[
                &show,
                "$ systemctl show postgresql -p MemoryMax -p MemoryHigh -p MemoryCurrent",
                "ALTER SYSTEM SET work_mem = '16MB'; ALTER SYSTEM SET logical_decoding_work_mem = '64MB'; SELECT pg_reload_conf();",
            ],
        )
}
