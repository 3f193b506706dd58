//! SES, MEM, IO: limits that are reached: connections, the memory and the I/O of a control group, what fits into memory.

mod asleep;
mod holder;
mod system;

use super::costly::{busy, severity};
use super::paste::literal;
use super::vacuum::is_wal;
use crate::case::engine::reset_command;
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::{Any, Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use crate::waits::Who;
use record::event::{self, Event};
use record::finding::{Level, Severity, Window};

pub(super) use asleep::{KINDS, is_silent, of_node as asleep};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "SES-04",
        title: "connections are refused because all are in use, or those of a role or database, or by a limit of the system",
        needs: &[Field("server", "sessions_total")],
        limits: "any connection refused for it, as the server's log or our own connection has it, or max_connections in use in half of the samples; any \
            process or file refused by the system (pids.max of the control group, processes, open files)",
        judge: refused,
        links: &[
            "https://www.postgresql.org/docs/current/runtime-config-connection.html#GUC-MAX-CONNECTIONS",
        ],
    },
    Rule {
        id: "SES-05",
        title: "idle sessions take the memory",
        needs: &[
            Field("server", "sessions_total"),
            Field("server", "sessions_active"),
            Field("host", "memory_available_bytes"),
        ],
        limits: "200 idle sessions, nine of ten idle, on a host with less than 10 % of its memory available (ours)",
        judge: idle,
        links: &[
            "https://www.postgresql.org/docs/current/runtime-config-client.html#GUC-IDLE-SESSION-TIMEOUT",
        ],
    },
    Rule {
        id: "MEM-05",
        title: "the server was killed for the memory limit of its own control group",
        needs: &[Looked("cgroup")],
        limits: "any process of the group killed; the host may have free memory",
        judge: killed,
        links: &["https://docs.kernel.org/admin-guide/cgroup-v2.html#memory"],
    },
    Rule {
        id: "IO-07",
        title: "sessions wait for blocks that are read from disks",
        needs: &[Looked("wait"), Field("server", "blks_read"), Field("disk", "read_bytes")],
        limits: "25 % of the session time in reads of table files, of which disks deliver a third or more (ours)",
        judge: reading,
        links: &["https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-SHARED-BUFFERS"],
    },
    Rule {
        id: "IO-09",
        title: "the control group of the server has an I/O limit, and sessions wait for I/O",
        needs: &[Looked("cgroup"), Any(&[Looked("wait"), Field("backend", "asleep")]), Looked("disk")],
        limits: "20 % of the session time in I/O or the WAL, while a disk does half of what the limit allows or more; or, of a server that does not answer, \
            half of the looks at its sessions' processes in uninterruptible sleep (ours)",
        judge: throttled,
        links: &["https://docs.kernel.org/admin-guide/cgroup-v2.html#io"],
    },
];

/// SQLSTATE of a refused connection.
const TOO_MANY_CONNECTIONS: &str = "53300";
/// Parts of its messages, for logs without SQLSTATE.
const REFUSALS: [&str; 3] = [ALL_IN_USE, "connection slots are reserved", "too many connections for"];
/// The message while not even the reserved ones are free.
const ALL_IN_USE: &str = "too many clients";
/// The limit of the connections of standbys, which is another one.
const FOR_STANDBYS: &str = "max_wal_senders";
/// Where a limit of its own refuses a connection: what it belongs to.
const OWN_LIMITS: [(&str, &str); 2] =
    [("too many connections for role \"", "role"), ("too many connections for database \"", "database")];
/// Connections reserved for superusers, by default.
const RESERVED: f64 = 3.0;
/// Of the samples.
const FULL_SHARE: f64 = 0.5;
/// Idle sessions.
const IDLE_MIN: f64 = 200.0;
/// The share of idle ones.
const IDLE_SHARE: f64 = 0.9;
/// Memory available.
const AVAILABLE_SHARE_MAX: f64 = 0.1;
/// The share of the session time in reads.
const READING_SHARE_MIN: f64 = 0.25;
/// Bytes from disks, of those that were missed.
const FROM_DISK_MIN: f64 = 1.0 / 3.0;
/// Bytes of a block, by default.
const BLOCK_BYTES: f64 = 8192.0;
/// What a disk does, of what the limit allows.
const LIMIT_SHARE_MIN: f64 = 0.5;
/// The share of the session time in any I/O.
const IO_SHARE_MIN: f64 = 0.2;

fn is_refusal(event: &Event) -> bool {
    // The server has the same SQLSTATE for a standby too many: walsender.c, InitWalSnd.
    !event.message.contains(FOR_STANDBYS)
        && (Case::word_of(event, "sqlstate") == TOO_MANY_CONNECTIONS
            || REFUSALS.iter().any(|words| event.message.contains(words)))
}

/// The role or database whose own limit refused a connection: `role`, its name.
fn own_limit(message: &str) -> Option<(&'static str, &str)> {
    OWN_LIMITS.iter().find_map(|(words, kind)| {
        let (_, rest) = message.split_once(words)?;
        Some((*kind, rest.rsplit_once('"')?.0))
    })
}

/// Connections that were refused although the server has room: `CONNECTION LIMIT` of a role or database.
fn refused_for_itself(case: &Case, server: &Thing<'_>, events: &[(&Event, f64)]) -> Option<Claim> {
    let limited: Vec<_> = events
        .iter()
        .filter_map(|(event, count)| Some((own_limit(&event.message)?, *event, *count)))
        .collect();
    let all: f64 = events.iter().map(|(_, count)| count).sum();
    let count: f64 = limited.iter().map(|(_, _, count)| count).sum();
    let ((kind, name), first, _) = limited.first().filter(|_| count * 2.0 > all)?;
    let quoted = record::statement::quoted(name);
    let shown = match *kind {
        "role" => format!("SELECT rolname, rolconnlimit FROM pg_roles WHERE rolname = {};", literal(name)),
        _ => format!("SELECT datname, datconnlimit FROM pg_database WHERE datname = {};", literal(name)),
    };
    let windows = limited.iter().map(|(_, event, _)| Window::new(event.t_us, event.t_us + 1_000_000));
    let field = if *kind == "role" { "user" } else { "database" };
    let holders = holder::all(case, server.place, |group| group.lines.word(field) == *name);
    let all_of_it: f64 = holders.iter().map(|holder| holder.sessions).sum();
    let unused = holder::unused(&holders, all_of_it);
    let (text, mut commands) = unused.and_then(holder::advice).unwrap_or_else(|| {
        (format!("use fewer connections for this {kind} (a pool), or raise its limit; -1 is none"), vec![])
    });
    commands.extend([shown, format!("ALTER {} {quoted} CONNECTION LIMIT 50;", kind.to_uppercase())]);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    Some(
        Claim::new(
            Severity::High,
            Level::DiscriminatingCounter,
            format!(
                "{}: {} refused: {kind} {name} has reached its own CONNECTION LIMIT{}",
                server.place,
                units::counted(count as usize, "connection"),
                holder::claimed(&holders, all_of_it, f64::MAX)
            ),
        )
        .on_node(server.place)
        .during(windows.collect::<Vec<_>>())
        .number("refused", count)
        .because(format!("the server's log: {}", first.message))
        .with(server.lines.max("sessions_total"), |claim, most| {
            claim
                .number("sessions_total", most)
                .because(format!("{} sessions were open at most", units::short(most)))
        })
        .with(case.setting(server.place, "max_connections"), |claim, most| {
            claim.not(format!("max_connections: it is {most}, and the server refuses with other words"))
        })
        .remedy(text, &commands),
    )
}

/// Refused connections in the log of a node. What another node refused stands in the log of the one that was refused, too.
fn refusals<'a>(case: &'a Case, node: &str) -> Vec<&'a Event> {
    let of_node = case
        .events_of(event::SERVER_LOG)
        .filter(|event| is_refusal(event) && [node, ""].contains(&Case::word_of(event, "node")));
    of_node.filter(|event| !super::member::is_away(case, node, &event.message)).collect()
}

fn refused(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        claims.extend(system::claims(case, &server));
        let events = refusals(case, server.place);
        let counted: Vec<(&Event, f64)> = events.iter().map(|event| (*event, event.times())).collect();
        let count: f64 = counted.iter().map(|(_, times)| times).sum();
        if let Some(claim) = refused_for_itself(case, &server, &counted) {
            claims.push(claim);
            continue;
        }
        let own = case
            .gaps
            .iter()
            .find(|gap| gap.node == server.place && REFUSALS.iter().any(|words| gap.why.contains(words)));
        let set = || case.setting(server.place, "max_connections").and_then(|value| value.parse().ok());
        let most = server.lines.last("sessions_max").or_else(set).unwrap_or(f64::MAX);
        let (of_superusers, of_roles) = reserved(case, server.place);
        let full = server.lines.series("sessions_total").map_or(0.0, |series| {
            let points = series.points();
            let is_full = points.iter().filter(|point| point.max >= most - of_superusers - of_roles).count();
            is_full as f64 / points.len().max(1) as f64
        });
        if count == 0.0 && own.is_none() && full < FULL_SHARE {
            continue;
        }
        let refused = Refused { count, events, own: own.map(|gap| gap.why.as_str()), most, full };
        claims.push(all_in_use(case, &server, &refused));
    }
    Answer::of(claims, || "refused connections in the log, and sessions against max_connections".to_string())
}

/// Connections that were refused, or are all in use.
struct Refused<'a> {
    count: f64,
    events: Vec<&'a Event>,
    /// Why our own was refused.
    own: Option<&'a str>,
    /// How many there are, and the share of the samples in which all are in use.
    most: f64,
    full: f64,
}

fn all_in_use(case: &Case, server: &Thing<'_>, refused: &Refused<'_>) -> Claim {
    let Refused { count, events, own, most, full } = refused;
    let idle = server.lines.mean("sessions_total").zip(server.lines.mean("sessions_active"));
    let windows: Vec<Window> = match events.is_empty() {
        true => vec![server.lines.ticks.window()],
        false => events.iter().map(|event| Window::new(event.t_us, event.t_us + 1_000_000)).collect(),
    };
    let holders = holder::all(case, server.place, |_| true);
    let what = match *count > 0.0 {
        true => format!(
            "{} refused: {}",
            units::counted(*count as usize, "connection"),
            in_use(case, server, refused)
        ),
        false => format!("in {} of the samples {}", units::percent(*full), in_use(case, server, refused)),
    };
    let unused = holder::unused(&holders, *most);
    let (text, commands) = unused.and_then(holder::advice).unwrap_or_else(|| (POOL.to_string(), vec![]));
    let mut commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    if commands.is_empty() {
        commands.extend(IDLE_ONES);
    }
    Claim::new(
        if *count > 0.0 || own.is_some() { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!("{}: {what}{}", server.place, holder::claimed(&holders, *most, *most)),
    )
    .on_node(server.place)
    .during(windows)
    .number("refused", *count)
    .number("sessions_max", *most)
    .number("full_share", *full)
    .with(unused, |claim, holder| {
        claim.number("idle_of_holder", holder.idle).number("idle_s_max", holder.idle_s_max)
    })
    .because(match events.first() {
        Some(event) => format!("the server's log: {}", event.message),
        None => format!(
            "up to {} sessions were counted",
            units::short(server.lines.max("sessions_total").unwrap_or(*most))
        ),
    })
    .with(*own, |claim, why| claim.because(format!("our own connection: {why}")))
    .with(of_engine(case, server.place), Claim::because)
    .with(idle, |claim, (total, active)| {
        claim.because(format!(
            "of {} sessions {} were active on average",
            units::short(total),
            units::short(active)
        ))
    })
    .with((!holders.is_empty()).then(|| holder::listed(&holders, *most)), |claim, all| {
        all.into_iter().fold(claim, Claim::because)
    })
    .remedy(text, &commands)
}

/// What to do where the connections are used, or their holders are not known.
const POOL: &str = "put a pool in front of the server, and end what sits idle; more connections cost memory and make snapshots slower";
/// What shows the holders, and ends those that are idle.
const IDLE_ONES: [&str; 2] = [
    "SELECT application_name, usename, client_addr, state, count(*), max(now() - state_change) AS oldest FROM pg_stat_activity \
      WHERE backend_type = 'client backend' GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC;",
    "ALTER SYSTEM SET idle_session_timeout = '10min'; SELECT pg_reload_conf(); -- PostgreSQL 14; not with a pool",
];

/// The connections that the server keeps for superusers, and for roles with `pg_use_reserved_connections`: others are refused them while they are free, too.
fn reserved(case: &Case, node: &str) -> (f64, f64) {
    let value = |name: &str| case.setting(node, name).and_then(|value| value.parse::<f64>().ok());
    (
        value("superuser_reserved_connections").unwrap_or(RESERVED),
        value("reserved_connections").unwrap_or(0.0),
    )
}

/// What is in use of its connections.
fn in_use(case: &Case, server: &Thing<'_>, refused: &Refused<'_>) -> String {
    let most = refused.most;
    let (of_superusers, of_roles) = reserved(case, server.place);
    let kept = of_superusers + of_roles;
    // The server has other words for it while those that it keeps are free.
    let messages = refused.events.iter().map(|event| event.message.as_str()).chain(refused.own);
    let is_all = messages.into_iter().any(|message| message.contains(ALL_IN_USE))
        || server.lines.max("sessions_total").is_some_and(|open| open >= most);
    if kept == 0.0 || is_all {
        return format!("all {} are in use", units::short(most));
    }
    format!(
        "the {} connections for all roles are in use; {} of the {} are reserved for superusers and roles with pg_use_reserved_connections \
         (superuser_reserved_connections = {of_superusers}, reserved_connections = {of_roles})",
        units::short((most - kept).max(0.0)),
        units::short(kept),
        units::short(most)
    )
}

/// That other nodes take connections, too, and what limits them.
fn of_engine(case: &Case, node: &str) -> Option<String> {
    let pools = case.own(node, record::watched::own::POOLS)?;
    Some(format!(
        "the engine of the cluster opens sessions here for those of other nodes; it has settings for how many: {pools}"
    ))
}

fn idle(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let (Some(total), Some(active)) =
            (server.lines.mean("sessions_total"), server.lines.mean("sessions_active"))
        else {
            continue;
        };
        let Some(host) = case.host_of(server.place).and_then(|host| case.one("host", host)) else { continue };
        let (Some(available), Some(memory)) =
            (host.mean("memory_available_bytes"), host.last("memory_total_bytes"))
        else {
            continue;
        };
        let idle = total - active;
        if idle < IDLE_MIN || idle < total * IDLE_SHARE || available >= memory * AVAILABLE_SHARE_MAX {
            continue;
        }
        claims.push(
            Claim::new(
                Severity::Medium,
                Level::CoOccurrence,
                format!(
                    "{}: {} idle sessions, and {} of the memory of {} is available",
                    server.place,
                    units::short(idle),
                    units::percent(available / memory),
                    units::bytes(memory)
                ),
            )
            .on_node(server.place)
            .during([server.lines.ticks.window()])
            .number("idle_sessions", idle)
            .number("memory_available_bytes", available)
            .because("each session is a process with caches of its own, which it keeps while it is idle")
            .with(Some(holder::listed(&holder::all(case, server.place, |_| true), f64::MAX)), |claim, all| {
                all.into_iter().fold(claim, Claim::because)
            })
            .lacking("the memory of each process: the command shows it")
            .remedy(
                "use a pool with fewer connections, and end sessions that are idle for long",
                &[
                    "$ for p in $(pgrep -x postgres); do awk -v p=$p '/^Pss_Anon|^Private_Dirty/ {s += $2} END {print s, \"kB\", p}' \
                        /proc/$p/smaps_rollup; done | sort -rn | head",
                    "ALTER SYSTEM SET idle_session_timeout = '10min'; SELECT pg_reload_conf(); -- PostgreSQL 14; not with a pool",
                ],
            ),
        );
    }
    Answer::of(claims, || "idle sessions, and the memory that is available".to_string())
}

/// The memory of a sort, and of the limit of a group what one of them may take before it is named.
const WORK_MEM: &str = "work_mem";
const OF_LIMIT_MIN: f64 = 0.1;

fn killed(case: &Case) -> Answer {
    let mut claims = vec![];
    for group in case.things("cgroup") {
        let kills = group.lines.sum("oom_kills").unwrap_or(0.0);
        if kills <= 0.0 {
            continue;
        }
        let limit = group.lines.last("memory_max_bytes").unwrap_or(0.0);
        let host = group.lines.word("host");
        let available = case.one("host", host).and_then(|host| host.mean("memory_available_bytes"));
        let bytes = |value: &str| units::setting(value).unwrap_or(0.0);
        // One sort of such a role takes a good part of what all may have.
        let larger = case
            .own_settings(group.place, WORK_MEM)
            .filter(|(owner, value)| {
                bytes(value) >= limit * OF_LIMIT_MIN && case.is_at_work(group.place, owner, "")
            })
            .max_by(|left, right| bytes(left.1).total_cmp(&bytes(right.1)));
        claims.push(
            Claim::new(
                Severity::High,
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} killed because the server's control group reached its limit of {}{}",
                    group.place,
                    units::counted(kills as usize, "process"),
                    units::bytes(limit),
                    larger.as_ref().map(|(owner, value)| format!(", while {owner} has a work_mem of its own: {value}")).unwrap_or_default()
                ),
            )
            .on_node(group.place)
            .on_host(host)
            .during(group.lines.series("oom_kills").map(|series| series.stretches(0, |point| point.sum > 0.0)).unwrap_or_default())
            .number("oom_kills", kills)
            .number("memory_max_bytes", limit)
            .because(format!("memory.events of {} counts it; a killed session makes the server end all others and recover", group.lines.word("path")))
            .with(available, |claim, bytes| claim.not(format!("the host's memory: {} were available", units::bytes(bytes))))
            .remedy(
                "raise the limit, or lower what the server may use: shared_buffers, and work_mem times the sorts and hash tables of all sessions",
                &[larger.map(|(owner, _)| reset_command(owner, WORK_MEM)).as_deref().unwrap_or("SHOW work_mem;"), "$ systemctl show postgresql -p MemoryMax"],
            ),
        );
    }
    Answer::of(claims, || "kills in the control groups of the servers".to_string())
}

/// Active sessions below which reads from disk are no trouble: caches that fill, or a server with little to do.
const READING_ACTIVE_MIN: f64 = 1.0;

fn is_read(kind: &str, event: &str) -> bool {
    kind == "IO" && (event == "DataFileRead" || event == "DataFilePrefetch" || event.starts_with("Aio"))
}

fn reading(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some(waits) = case.waits(&time.node) else { continue };
        let share = node_time::share_of(case, &time.node, is_read).unwrap_or(0.0);
        let missed =
            case.one("server", &time.node).and_then(|server| server.rate("blks_read")).unwrap_or(0.0);
        let host = case.host_of(&time.node).unwrap_or("");
        let busiest = case
            .at("disk", host)
            .filter_map(|disk| Some((disk, disk.lines.rate("read_bytes")?)))
            .max_by(|left, right| left.1.total_cmp(&right.1));
        let Some((disk, from_disk)) = busiest else { continue };
        if share < READING_SHARE_MIN || from_disk < missed * BLOCK_BYTES * FROM_DISK_MIN {
            continue;
        }
        let await_ms = disk.lines.mean("read_await_ms");
        let table = time.by.iter().find(|by| by.name == "relation").and_then(|by| by.shares.first());
        claims.push(
            Claim::new(
                if time.active < READING_ACTIVE_MIN { Severity::Low } else { severity(share) },
                Level::CoOccurrence,
                format!(
                    "{}: sessions wait {} of their time for blocks from disk: {} a second, {} from {}",
                    time.node,
                    units::percent(share),
                    units::short(missed),
                    units::bytes(from_disk),
                    disk.name
                ),
            )
            .on_node(&time.node)
            .on_host(host)
            .during(waits.windows(Who::Client, is_read))
            .number("share", share)
            .number("misses_per_s", missed)
            .number("disk_read_bytes_per_s", from_disk)
            .with(await_ms, |claim, ms| claim.because(format!("a read of {} takes {} ms", disk.name, units::short(ms))))
            .with(table, |claim, (name, _)| claim.because(format!("most blocks are touched in {name}")))
            .because("the disks deliver what is missing in shared_buffers: it is not in the page cache either")
            .not("the page cache: it would deliver without the disks (MEM-04)")
            .lacking("whether the working set can be smaller: plans that read fewer blocks")
            .remedy(
                "read fewer blocks first (indexes, narrower rows, partitions that are pruned), then give the host more memory, then faster disks",
                &["SELECT relname, heap_blks_read, idx_blks_read FROM pg_statio_user_tables ORDER BY heap_blks_read + idx_blks_read DESC LIMIT 5;"],
            ),
        );
    }
    Answer::of(claims, || "reads of table files, and bytes from disks".to_string())
}

/// What a limit allows: the field of a disk's line that it limits, and how much of it a second. Version 2 writes `wbps=3145728`, version 1 is recorded as
/// `7:0 3145728 write_bps`.
fn allowed(limit: &str) -> Vec<(&'static str, f64)> {
    const FIELDS: [(&str, &str, &str); 4] = [
        ("rbps", "read_bps", "read_bytes"),
        ("wbps", "write_bps", "write_bytes"),
        ("riops", "read_iops", "reads"),
        ("wiops", "write_iops", "writes"),
    ];
    let mut found = vec![];
    for part in limit.split(';') {
        let words: Vec<&str> = part.split_whitespace().collect();
        for (new, old, field) in FIELDS {
            let is_old = words.last() == Some(&old);
            let value = words.iter().find_map(|word| match is_old {
                true => word.parse::<f64>().ok(),
                false => word.strip_prefix(new)?.strip_prefix('=')?.parse().ok(),
            });
            found.extend(value.map(|value| (field, value)));
        }
    }
    found
}

/// The largest share of what a limit allows that a disk of the host does.
fn used(case: &Case, host: &str, limit: &str) -> f64 {
    let of = |(field, most): (&str, f64)| {
        let rates = case.at("disk", host).filter_map(|disk| disk.lines.rate(field));
        rates.fold(0.0, f64::max) / most.max(1.0)
    };
    allowed(limit).into_iter().map(of).fold(0.0, f64::max)
}

fn throttled(case: &Case) -> Answer {
    let mut claims = vec![];
    for group in case.things("cgroup").filter(|group| !group.lines.word("io_limit").is_empty()) {
        let is_io = |kind: &str, event: &str| kind == "IO" || is_wal(kind, event);
        let share = node_time::share_of(case, group.place, is_io).unwrap_or(0.0);
        let waits = case.waits(group.place).filter(|_| share >= IO_SHARE_MIN);
        let Some(waits) = waits else {
            claims.extend(asleep::at_limit(case, &group));
            continue;
        };
        let host = group.lines.word("host");
        let used = used(case, host, group.lines.word("io_limit"));
        if used < LIMIT_SHARE_MIN {
            continue;
        }
        let pressure = case.one("host", host).and_then(|host| host.mean("psi_io_some_pct"));
        claims.push(
            Claim::new(
                severity(share),
                Level::CoOccurrence,
                format!(
                    "{}: sessions wait {} of their time for I/O, which the control group of the server limits: {}",
                    group.place,
                    units::percent(share),
                    group.lines.word("io_limit")
                ),
            )
            .on_node(group.place)
            .on_host(host)
            .during(waits.windows(Who::Client, is_io))
            .number("share", share)
            .number("limit_used_share", used)
            .because(format!("a disk of the host does {} of what the limit allows", units::percent(used)))
            .because("the limit holds requests back above the device: the device's own counters show no wait")
            .with(pressure, |claim, pct| claim.because(format!("tasks of the host waited for I/O in {} % of the time", units::short(pct))))
            .lacking("the same load without the limit")
            .remedy(
                "raise or remove the limit",
                &["$ systemctl show postgresql -p IOReadBandwidthMax -p IOWriteBandwidthMax -p IOReadIOPSMax -p IOWriteIOPSMax"],
            ),
        );
    }
    Answer::of(claims, || "I/O limits of the control groups of the servers".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_both_versions_are_read() {
        assert_eq!(
            allowed("8:0 rbps=max wbps=3145728 riops=max wiops=200"),
            [("write_bytes", 3_145_728.0), ("writes", 200.0)]
        );
        assert_eq!(allowed("7:0 500 write_iops; 7:1 9 read_bps"), [("writes", 500.0), ("read_bytes", 9.0)]);
        assert_eq!(allowed("8:0 rbps=max"), []);
    }
}
