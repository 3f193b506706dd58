//! CPU: what uses the processors, and when they are not the limit. SEC: security software that slows the server.

use crate::case::{Case, Thing};
use crate::rule::Need::{Any, Facts, Field, Looked, Stacks};
use crate::rule::{Answer, Claim, Rule};
use crate::series::Series;
use crate::stacks::{AUDIT, KERNEL_LOCKS, ZFS_COUNTERS};
use crate::statistics;
use crate::units;
use crate::waits::Who;
use record::event;
use record::finding::{Level, Severity};
use record::watched::WAIT_CPU;
use std::collections::BTreeMap;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "CPU-01",
        title: "processors wait for kernel locks",
        needs: &[Field("host", "cpu_system_pct"), Stacks],
        limits: "30 % of the CPU in the kernel and 10 % of the samples in its lock functions (ours)",
        judge: kernel_locks,
        links: &["https://docs.kernel.org/locking/index.html"],
    },
    Rule {
        id: "CPU-02",
        title: "saw-tooth CPU use under even load",
        needs: &[
            Field("host", "cpu_user_pct"),
            Any(&[Field("client", "scheduled"), Field("server", "xact_commit")]),
        ],
        limits: "autocorrelation 0.5, a swing of 30 percentage points, offered load even within 5 %, or within what arrivals at random vary by (ours; \
            R0's node 7)",
        judge: saw_tooth,
        links: &[],
    },
    Rule {
        id: "CPU-03",
        title: "processes use memory of another NUMA node",
        needs: &[Looked("numa")],
        limits: "20 % of the pages are allocated on another NUMA node than that of their process (ours)",
        judge: remote_memory,
        links: &["https://docs.kernel.org/admin-guide/numastat.html"],
    },
    Rule {
        id: "CPU-04",
        title: "the hypervisor takes CPU time away",
        needs: &[Field("host", "cpu_steal_pct")],
        limits: "5 % stolen for 30 s (ours)",
        judge: steal,
        links: &[],
    },
    Rule {
        id: "CPU-05",
        title: "sessions wait for one thing, not for CPU",
        needs: &[Field("host", "cpu_user_pct"), Looked("wait")],
        limits: "CPU below 50 % while 70 % of the active sessions wait in one class (R4: 20 of 128 cores busy)",
        judge: not_cpu,
        links: &["https://www.postgresql.org/docs/current/monitoring-stats.html#WAIT-EVENT-TABLE"],
    },
    Rule {
        id: "SEC-01",
        title: "system call auditing slows the database",
        needs: &[Any(&[Stacks, Facts("audit")])],
        limits: "2 % of the samples in audit functions, or audit records lost (ours)",
        judge: audit,
        links: &["https://man7.org/linux/man-pages/man8/auditctl.8.html"],
    },
    Rule {
        id: "SEC-02",
        title: "a virus scanner must permit every open of a data file",
        needs: &[Looked("fanotify"), Field("mount", "used_for")],
        limits: "any fanotify permission mark on a mount of the database",
        judge: scanner,
        links: &["https://man7.org/linux/man-pages/man7/fanotify.7.html"],
    },
];

/// CPU time in the kernel that is suspicious.
const SYSTEM_PCT: f64 = 30.0;
/// Samples in lock functions.
const LOCK_SHARE: f64 = 0.1;
/// Autocorrelation of a saw.
const SAW_CORRELATION: f64 = 0.5;
/// Percent points between its teeth and its gaps.
const SAW_POINTS: f64 = 30.0;
/// Load that varies less is even.
const EVEN: f64 = 0.05;
/// CPUs of a program that is named.
const PROGRAM_CPUS_MIN: f64 = 0.1;
/// Arrivals at random vary from second to second by the root of their number (Poisson); half as much again is still even.
const AT_RANDOM: f64 = 1.5;
/// Pages from another memory node.
const REMOTE_SHARE: f64 = 0.2;
/// Pages below which a share is meaningless.
const PAGES_MIN: f64 = 10_000.0;
/// Stolen CPU ...
const STEAL_PCT: f64 = 5.0;
/// ... for so long.
const STEAL_US: u64 = 30_000_000;
/// A host with less CPU use is not limited by CPU.
const CPU_PCT: f64 = 50.0;
/// The share of active sessions from which one class of waits is the bottleneck.
const CLASS_SHARE: f64 = 0.7;
/// Active sessions below which there is no bottleneck.
const ACTIVE_MIN: f64 = 1.0;
/// Samples in audit functions.
const AUDIT_SHARE: f64 = 0.02;

fn busy(case: &Case, host: &str) -> Option<(f64, f64)> {
    let lines = case.one("host", host)?;
    let system = lines.mean("cpu_system_pct").unwrap_or(0.0) + lines.mean("cpu_softirq_pct").unwrap_or(0.0);
    Some((lines.mean("cpu_user_pct")? + system, system))
}

fn kernel_locks(case: &Case) -> Answer {
    let Some(stacks) = &case.stacks else { return Answer::CannotTell("no stacks".to_string()) };
    let share = stacks.share_in(KERNEL_LOCKS);
    let worst = case
        .things("host")
        .filter_map(|host| Some((host.place, host.lines.series("cpu_system_pct")?)))
        .max_by(|left, right| left.1.max().total_cmp(&right.1.max()));
    let Some((host, system)) = worst else {
        return Answer::CannotTell("the CPU use of no host was recorded".to_string());
    };
    let windows = system.stretches(3_000_000, |point| point.mean() >= SYSTEM_PCT);
    if share < LOCK_SHARE || windows.is_empty() {
        return Answer::Clean(format!(
            "{} of the samples are in the kernel's lock functions, and the kernel uses {} % of the CPU",
            units::percent(share),
            units::short(system.mean())
        ));
    }
    let callers = stacks.callers(KERNEL_LOCKS, 3);
    let named: Vec<String> =
        callers.iter().map(|(name, share)| format!("{name} {}", units::percent(*share))).collect();
    let zfs = stacks.share_in_through(KERNEL_LOCKS, ZFS_COUNTERS);
    let claim = Claim::new(
        Severity::High,
        Level::DiscriminatingCounter,
        format!(
            "{host}: {} of the CPU samples wait for kernel locks, called by {}",
            units::percent(share),
            named.join(", ")
        ),
    )
    .on_host(host)
    .during(windows)
    .number("lock_share", share)
    .number("cpu_system_pct", system.mean())
    .because(
        "the leaf of these stacks is a lock function; the caller is the first frame above the lock functions",
    )
    .not("locks of PostgreSQL (LWLock, Lock): those sleep or spin in user space")
    .remedy(
        "the remedy depends on the caller: fewer writers per file, another file system, a newer module or kernel",
        &["$ perf record -a -g -F 99 -k mono -- sleep 10; perf report --no-children"],
    );
    let claim =
        if zfs >= LOCK_SHARE { claim.because("most of it is FS-03, the counters of ZFS") } else { claim };
    Answer::Found(vec![claim])
}

/// Busy CPU over time.
fn cpu(case: &Case, host: &str) -> Series {
    let mut series = Series::default();
    let Some(lines) = case.one("host", host) else { return series };
    let fields = ["cpu_user_pct", "cpu_system_pct", "cpu_softirq_pct"].map(|field| lines.series(field));
    let Some(user) = fields[0] else { return series };
    for (index, point) in user.points().iter().enumerate() {
        let rest: f64 = fields[1..]
            .iter()
            .flatten()
            .filter_map(|series| series.points().get(index))
            .map(|point| point.mean())
            .sum();
        series.push(point.to_us, point.interval_us, point.mean() + rest);
    }
    series
}

/// By how much an even load varies from second to second.
fn even_within(load: &Series) -> f64 {
    let each = load.sum() / load.readings().max(1) as f64;
    EVEN.max(AT_RANDOM / each.max(1.0).sqrt())
}

/// The program besides the server and its clients that used the most CPU, and how many CPUs.
fn busiest_program<'a>(case: &'a Case, host: &'a str) -> Option<(&'a str, f64)> {
    let rate = |program: &Thing<'_>, field: &str| program.lines.rate(field).unwrap_or(0.0);
    let all = case
        .other_programs(host)
        .map(|program| (program.name, (rate(&program, "cpu_us") - rate(&program, "client_cpu_us")) / 1e6));
    all.max_by(|left, right| left.1.total_cmp(&right.1)).filter(|(_, cpus)| *cpus >= PROGRAM_CPUS_MIN)
}

fn saw_tooth(case: &Case) -> Answer {
    let offered: Vec<Series> = case
        .driven()
        .into_iter()
        .filter_map(|(step, window)| Some(case.client(&step.key)?.series("scheduled")?.within(&[window])))
        .chain(
            case.things("server")
                .filter(|_| case.driven().is_empty())
                .filter_map(|server| server.lines.series("xact_commit").cloned()),
        )
        .collect();
    if offered.is_empty() {
        return Answer::CannotTell("the offered load was not counted".to_string());
    }
    let even = offered.iter().all(|series| {
        statistics::variation(&series.rates()).is_none_or(|variation| variation < even_within(series))
    });
    if !even {
        return Answer::Clean("the offered load itself is uneven".to_string());
    }
    let mut claims = vec![];
    for host in case.hosts() {
        let series = cpu(case, host);
        let values = series.values();
        let high = statistics::quantile(values.iter().copied(), 0.9).unwrap_or(0.0);
        let low = statistics::quantile(values.iter().copied(), 0.1).unwrap_or(0.0);
        let Some(period) = statistics::period(&values, SAW_CORRELATION).filter(|_| high - low >= SAW_POINTS)
        else {
            continue;
        };
        let seconds =
            series.window().length_us() as f64 / 1e6 / values.len().max(1) as f64 * period.lag as f64;
        let mut claim = Claim::new(
            Severity::Medium,
            Level::CoOccurrence,
            format!(
                "{host}: CPU use swings between {} and {} % every {} although the load is even",
                units::short(low),
                units::short(high),
                units::seconds(seconds)
            ),
        )
        .on_host(host)
        .during([series.window()])
        .number("period_s", seconds)
        .number("autocorrelation", period.correlation)
        .number("points", high - low)
        .because(format!(
            "the autocorrelation of its CPU use is {} at that period",
            units::short(period.correlation)
        ))
        .not("the load: it varies no more than arrivals at random do")
        .with(busiest_program(case, host), |claim, (program, cpus)| {
            claim.because(format!(
                "besides the server, {program} used the most CPU: {} CPUs on average",
                units::short(cpus)
            ))
        })
        .lacking("stacks of the peaks compared with stacks of the gaps: they name the code")
        .remedy("find what has the same period", &["$ perf record -a -g -F 99 -k mono -- sleep 30"]);
        for (what, other) in same_period(case, host, seconds) {
            claim = claim.because(format!("{what} has the same period of {}", units::seconds(other)));
        }
        claims.push(claim);
    }
    Answer::of(claims, || "CPU use of every host over time".to_string())
}

/// Checkpoints, vacuums and writes of disks with the same period, within a fifth.
fn same_period(case: &Case, host: &str, seconds: f64) -> Vec<(String, f64)> {
    let near = |other: &f64| (other - seconds).abs() <= seconds / 5.0;
    let mut found = vec![];
    for (kind, name) in [(event::CHECKPOINT, "checkpoints"), (event::AUTOVACUUM, "automatic vacuums")] {
        let times: Vec<u64> = case.events_of(kind).map(|event| event.t_us).collect();
        let between =
            statistics::median(times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64 / 1e6));
        found.extend(between.filter(near).map(|period| (name.to_string(), period)));
    }
    for disk in case.at("disk", host) {
        let Some(series) = disk.lines.series("write_bytes") else { continue };
        let values = series.rates();
        let each = series.window().length_us() as f64 / 1e6 / values.len().max(1) as f64;
        let period = statistics::period(&values, SAW_CORRELATION).map(|period| period.lag as f64 * each);
        found.extend(period.filter(near).map(|period| (format!("writing to {}", disk.name), period)));
    }
    found
}

fn remote_memory(case: &Case) -> Answer {
    let mut claims = vec![];
    let mut by_host: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for counter in case.things("hardware").filter(|counter| counter.lines.word("kind") == "numa") {
        let moved = counter.lines.sum("change").unwrap_or(0.0);
        let entry = by_host.entry(counter.place).or_default();
        match counter.lines.word("name").rsplit(' ').next() {
            Some("local_node") => entry.0 += moved,
            Some("other_node") => entry.1 += moved,
            _ => {}
        }
    }
    for (host, (local, other)) in by_host {
        let share = other / (local + other).max(1.0);
        if share < REMOTE_SHARE || local + other < PAGES_MIN {
            continue;
        }
        let nodes = case
            .facts("cpu")
            .find(|fact| fact.host == host && fact.name == "memory nodes")
            .map(|fact| fact.value.clone());
        claims.push(
            Claim::new(
                Severity::Low,
                Level::DiscriminatingCounter,
                format!(
                    "{host}: {} of the allocated memory is on another NUMA node than its process",
                    units::percent(share)
                ),
            )
            .on_host(host)
            .during([case.span])
            .number("remote_share", share)
            .number("pages", local + other)
            .with(nodes, |claim, nodes| claim.because(format!("the host has {nodes} NUMA nodes")))
            .because("numastat counts pages by the node of the requesting process")
            .lacking("where shared_buffers is (pg_shmem_allocations_numa, PostgreSQL 18)")
            .remedy(
                "spread shared memory over all NUMA nodes, or pin the server to one",
                &["$ numactl --interleave=all pg_ctl start", "$ numastat -p postgres"],
            ),
        );
    }
    Answer::of(claims, || "pages by NUMA node; a host with one NUMA node has nothing to count".to_string())
}

fn steal(case: &Case) -> Answer {
    let mut claims = vec![];
    for host in case.things("host") {
        let Some(series) = host.lines.series("cpu_steal_pct") else { continue };
        let windows = series.stretches(STEAL_US, |point| point.mean() > STEAL_PCT);
        if windows.is_empty() {
            continue;
        }
        let inside = series.within(&windows).mean();
        claims.push(
            Claim::new(
                if inside > STEAL_PCT * 4.0 { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!("{}: the hypervisor took {} % of the CPU away", host.place, units::short(inside)),
            )
            .on_host(host.place)
            .during(windows)
            .number("cpu_steal_pct", inside)
            .because("the kernel counts as steal the time in which it was ready to run and the hypervisor gave it no CPU")
            .remedy("use another host, or dedicated CPUs; nothing inside the virtual machine helps", &[]),
        );
    }
    Answer::of(claims, || "stolen CPU of every host".to_string())
}

fn not_cpu(case: &Case) -> Answer {
    let mut claims = vec![];
    for (node, waits) in case.waiting_nodes() {
        let Some(host) = case.host_of(node) else { continue };
        let Some((pct, _)) = busy(case, host) else { continue };
        // A session in pg_sleep is meant to wait.
        let asleep = waits.seen_in(Who::Client, |kind, event| kind == "Timeout" && event == "PgSleep");
        let at_work = waits.seen(Who::Client) - asleep;
        let active = at_work / case.looks(node, &[case.span]).max(1.0);
        let mut classes: BTreeMap<&str, f64> = BTreeMap::new();
        for ((kind, event), series) in waits.of(Who::Client) {
            if event != "PgSleep" {
                *classes.entry(kind).or_default() += series.sum();
            }
        }
        let worst = classes.into_iter().max_by(|left, right| left.1.total_cmp(&right.1));
        let Some((class, seen)) = worst.filter(|(class, _)| *class != WAIT_CPU) else { continue };
        let share = seen / at_work.max(1.0);
        if pct >= CPU_PCT || share < CLASS_SHARE || active < ACTIVE_MIN {
            continue;
        }
        let top = waits.top_in_words(Who::Client);
        let statement = waits.worst_statement(|kind, _| kind == class);
        let statement = statement.map(|(id, share)| (case.query(id).unwrap_or(id).to_string(), share));
        // It names no cause: what does comes first.
        claims.push(
            Claim::new(
                Severity::Low,
                Level::DiscriminatingCounter,
                format!(
                    "{node}: the CPU is not the limit ({} % busy): {} of {} active sessions wait for {class}",
                    units::short(pct),
                    units::percent(share),
                    units::short(active)
                ),
            )
            .on_node(node)
            .on_host(host)
            .during(waits.windows(Who::Client, |kind, _| kind == class))
            .number("cpu_pct", pct)
            .number("share", share)
            .number("active_sessions", active)
            .because(format!("sessions were sampled in {}", top))
            .with(statement, |claim, (text, share)| {
                claim.because(format!("{} of it in: {text}", units::percent(share)))
            })
            .not("too few processors: they are idle more than half of the time")
            .remedy("more or faster processors do not help: follow the wait event", &[]),
        );
    }
    Answer::of(claims, || "CPU of the hosts compared with the waits of sessions".to_string())
}

fn audit(case: &Case) -> Answer {
    let mut claims = vec![];
    let rules = case
        .facts("audit")
        .find(|fact| fact.name == "rules" && !fact.value.is_empty())
        .map(|fact| fact.value.clone());
    let remedy = |claim: Claim| {
        claim.remedy(
            "exclude the server's system calls from the audit rules",
            &[
                "$ auditctl -a never,exit -F exe=/usr/lib/postgresql/17/bin/postgres",
                "$ auditctl -l; auditctl -s",
            ],
        )
    };
    if let Some(stacks) = &case.stacks {
        let share = stacks.share_with(AUDIT);
        if share >= AUDIT_SHARE {
            claims.push(remedy(
                Claim::new(
                    Severity::Medium,
                    Level::DiscriminatingCounter,
                    format!("{} of the CPU is spent auditing system calls", units::percent(share)),
                )
                .during([case.span])
                .number("share", share)
                .because("stacks go through audit_* at the end of system calls")
                .with(rules.clone(), |claim, rules| claim.because(format!("rules: {rules}"))),
            ));
        }
    }
    for fact in case.facts("audit").filter(|fact| fact.name == "lost") {
        let lost: f64 = fact.value.parse().unwrap_or(0.0);
        if lost > 0.0 {
            claims.push(remedy(
                Claim::new(
                    Severity::Low,
                    Level::DiscriminatingCounter,
                    format!("{}: the audit system lost {} records", fact.host, units::count(lost)),
                )
                .on_host(&fact.host)
                .during([case.span])
                .number("lost", lost)
                .because("when its queue is full, audited processes may have to wait")
                .with(rules.clone(), |claim, rules| claim.because(format!("rules: {rules}"))),
            ));
        }
    }
    Answer::of(claims, || "audit functions in stacks, lost audit records".to_string())
}

fn scanner(case: &Case) -> Answer {
    let mut claims = vec![];
    for fact in case.facts("fanotify") {
        let Some((agent, mount)) = fact.name.split_once(" on ") else { continue };
        let kinds = fact.value.strip_prefix("must permit: ").unwrap_or(&fact.value);
        let ours = case
            .at("mount", &fact.host)
            .find(|thing| thing.name == mount && !thing.lines.word("used_for").is_empty());
        let Some(ours) = ours.filter(|_| kinds != "nothing") else { continue };
        claims.push(
            Claim::new(
                Severity::High,
                Level::DiscriminatingCounter,
                format!("{}: {agent} must permit every {kinds} below {mount}, which holds {}", fact.host, ours.lines.word("used_for")),
            )
            .on_host(&fact.host)
            .during([case.span])
            .because("the kernel lists the mark under /proc/PID/fdinfo: the call sleeps until that process replies")
            .not("a slow disk: the wait is before any disk access")
            .remedy(
                "exclude the data directory, the WAL and the server's programs from scanning",
                &["$ grep -l fanotify /proc/*/fdinfo/* 2>/dev/null", "$ systemctl stop SCANNER   # to see what it costs"],
            ),
        );
    }
    Answer::of(claims, || "fanotify permission marks on mounts of the database".to_string())
}
