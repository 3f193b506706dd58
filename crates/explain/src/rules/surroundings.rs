//! MEM, IO, WAL: what surrounds the sessions: the memory of a control group, other programs on the database's disk, the archive of the WAL, recovery after a
//! crash.

use super::costly::{busy, plain, severity};
use super::paste::data_directory;
use super::vacuum::is_wal;
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity, Window};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "MEM-06",
        title: "the memory limit of a control group leaves no room for the page cache",
        needs: &[Looked("cgroup"), Looked("wait"), Field("host", "memory_available_bytes")],
        limits: "95 % of the group's memory limit in use, page cache included, while 10 % of the session time is reading, or 20 MB a second are read \
            from the disk of the data although the host has as much memory available (ours)",
        judge: full_group,
        links: &["https://docs.kernel.org/admin-guide/cgroup-v2.html#memory"],
    },
    Rule {
        id: "IO-10",
        title: "other programs use the database's disk",
        needs: &[Looked("disk"), Looked("backend"), Looked("wait")],
        limits: "20 % of the session time in I/O or the WAL; half of the bytes of a disk of the database, 1 MB a second or more, are not the server's, and \
            it has a request in 50 % of the time or one takes 5 ms (ours)",
        judge: neighbour,
        links: &["https://docs.kernel.org/admin-guide/cgroup-v2.html#io"],
    },
    Rule {
        id: "WAL-08",
        title: "archiving the WAL fails",
        needs: &[Field("server", "archived_failed")],
        limits: "any attempt that failed; high from three on, because WAL stays until it is archived; or 64 MB behind, and 30 % of what is written is not \
            archived; \
            high from 60 % on; or archive_mode on without a command (ours)",
        judge: not_archived,
        links: &["https://www.postgresql.org/docs/current/continuous-archiving.html"],
    },
    Rule {
        id: "WAL-09",
        title: "recovery after a crash takes long",
        needs: &[Looked("server")],
        limits: "10 s from the start until connections are accepted; high from a minute on (ours)",
        judge: recovering,
        links: &["https://www.postgresql.org/docs/current/wal-configuration.html"],
    },
];

/// Of the limit.
const FULL_SHARE: f64 = 0.95;
/// The share of the session time in reads.
const READING_SHARE_MIN: f64 = 0.1;
/// Bytes a second that are read again although the host has room for all that the group may hold, and the share that they count as.
const REREAD_PER_S_MIN: f64 = 20e6;
const REREAD_SHARE: f64 = 0.2;
/// The share of the session time in any I/O.
const IO_SHARE_MIN: f64 = 0.2;
/// Of a disk's bytes.
const OTHERS_SHARE_MIN: f64 = 0.5;
/// Bytes a second.
const OTHERS_PER_S_MIN: f64 = 1e6;
/// The share of the time in which a disk has a request, in percent, from which on another program is in the way.
const BUSY_PCT_MIN: f64 = 50.0;
/// A request that takes so long has waited for others.
const SLOW_MS_MIN: f64 = 5.0;
/// Why no program is named.
const NOT_SEEN: &str = "the name of the program: none was seen with half of these bytes. It may end within seconds, run on another host that has this disk, \
    or belong to another user: only root may read what it does";
/// Failed attempts; the server makes three and then waits for a minute.
const FAILED_HIGH: f64 = 3.0;
/// Seconds of recovery.
const RECOVERY_S: f64 = 10.0;
/// Seconds likewise.
const RECOVERY_HIGH_S: f64 = 60.0;
/// SQLSTATE of a connection that is refused meanwhile.
const CANNOT_CONNECT_NOW: &str = "57P03";

fn is_read(kind: &str, event: &str) -> bool {
    kind == "IO" && (event.ends_with("Read") || event.ends_with("Prefetch") || event.starts_with("Aio"))
}

/// Programs that start others: the kernel counts what these have read and written as theirs when they have ended.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ash", "ksh", "zsh", "busybox"];
const OF_SHELL: &str = "which command of the script it is: what a command has read and written counts as its shell's once it has ended (ps -ef --forest)";

fn full_group(case: &Case) -> Answer {
    let mut claims = vec![];
    for group in case.things("cgroup") {
        let (Some(limit), Some(used)) =
            (group.lines.last("memory_max_bytes"), group.lines.mean("memory_bytes"))
        else {
            continue;
        };
        // Who waits for a CPU behind a read would not wait without it.
        let share = node_time::share_waiting(case, group.place, is_read).unwrap_or(0.0);
        let host = group.lines.word("host");
        let available = case.one("host", host).and_then(|host| host.mean("memory_available_bytes"));
        // Where the CPUs are full of reclaiming the pages, sessions are seen to compute and not to read.
        let read_per_s: f64 = case
            .at("disk", host)
            .filter(|disk| disk.lines.word("used_for").contains("pgdata"))
            .filter_map(|disk| disk.lines.rate("read_bytes"))
            .sum();
        let is_reread = read_per_s >= REREAD_PER_S_MIN && available.is_some_and(|bytes| bytes >= limit);
        if used < limit * FULL_SHARE || share < READING_SHARE_MIN && !is_reread {
            continue;
        }
        let missed = case.one("server", group.place).and_then(|server| server.rate("blks_read"));
        claims.push(
            Claim::new(
                severity(if is_reread { share.max(REREAD_SHARE) } else { share }),
                Level::CoOccurrence,
                format!(
                    "{}: sessions read for {} of their time, {} a second from the disk, while the server's control group uses {} of the {} of memory it may",
                    group.place,
                    units::percent(share),
                    units::bytes(read_per_s),
                    units::percent(used / limit),
                    units::bytes(limit)
                ),
            )
            .on_node(group.place)
            .on_host(host)
            .during([group.lines.ticks.window()])
            .number("share", share)
            .number("memory_bytes", used)
            .number("memory_max_bytes", limit)
            .because(format!("the limit of {} counts the page cache: files that the server reads push each other out", group.lines.word("path")))
            .with(missed, |claim, rate| claim.because(format!("{} blocks a second are not in shared_buffers", units::short(rate))))
            .with(available, |claim, bytes| claim.not(format!("the host's memory: {} are available", units::bytes(bytes))))
            .lacking("the same load with a higher limit")
            .remedy(
                "raise the limit until the working set fits, or give most of it to shared_buffers",
                &[&format!(
                    "$ for g in $(cut -d: -f3 /proc/$(head -n 1 {}/postmaster.pid)/cgroup | sort -u); do grep -H . /sys/fs/cgroup$g/memory.max \
                     /sys/fs/cgroup$g/memory.current /sys/fs/cgroup/memory$g/memory.limit_in_bytes 2>/dev/null; done",
                    data_directory(case, group.place)
                )],
            ),
        );
    }
    Answer::of(claims, || "memory of the control groups of the servers, and reads".to_string())
}

/// Bytes a second that all server processes of a host read from and wrote to disks.
fn own_bytes(case: &Case, host: &str) -> f64 {
    let of = |process: &Thing<'_>| {
        let sum = |field: &str| process.lines.sum(field).unwrap_or(0.0);
        sum("read_bytes") + sum("write_bytes")
    };
    let all: f64 = case.at("backend", host).map(|process| of(&process)).sum();
    let seconds = case.one("host", host).map_or(0.0, |host| host.ticks.window().length_us() as f64 / 1e6);
    let programs =
        case.at("program", host).filter(|program| case.is_of_nodes(host, program.lines.word("program")));
    let of_program = programs.map(|program| of(&program)).sum::<f64>();
    all.max(of_program) / seconds.max(1.0)
}

/// The program that moved the most bytes besides the server, and how many a second, if that is most of what others moved.
fn program<'a>(case: &'a Case, host: &'a str, others: f64) -> Option<(&'a str, f64)> {
    let of_one = |found: Thing<'a>| {
        let rate = |field: &str| found.lines.rate(field).unwrap_or(0.0);
        (found.lines.word("program"), rate("read_bytes") + rate("write_bytes"))
    };
    let all = case.other_programs(host).map(of_one);
    all.max_by(|left, right| left.1.total_cmp(&right.1))
        .filter(|(_, per_s)| *per_s >= others * OTHERS_SHARE_MIN)
}

/// Whose bytes most of them are, in words.
fn whose(program: &str) -> String {
    match SHELLS.contains(&program) {
        true => format!(", most of them those of commands that {program} started"),
        false => format!(", most of them {}'s", plain(program, 40)),
    }
}

fn neighbour(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let (Some(host), Some(waits)) = (case.host_of(&time.node), case.waits(&time.node)) else { continue };
        let is_io = |kind: &str, event: &str| kind == "IO" || is_wal(kind, event);
        let share = node_time::share_of(case, &time.node, is_io).unwrap_or(0.0);
        if share < IO_SHARE_MIN
            || case.at("backend", host).all(|process| process.lines.sum("write_bytes").is_none())
        {
            continue;
        }
        let own = own_bytes(case, host);
        let of_disk = |disk: &Thing<'_>| {
            let rate = |field: &str| disk.lines.rate(field).unwrap_or(0.0);
            rate("read_bytes") + rate("write_bytes")
        };
        let used = case.at("disk", host).filter(|disk| !disk.lines.word("used_for").is_empty());
        let Some((disk, bytes)) =
            used.map(|disk| (disk, of_disk(&disk))).max_by(|left, right| left.1.total_cmp(&right.1))
        else {
            continue;
        };
        let others = bytes - own;
        let slowest = ["read_await_ms", "write_await_ms", "flush_await_ms"]
            .iter()
            .filter_map(|field| disk.lines.mean(field))
            .fold(0.0, f64::max);
        let is_busy =
            disk.lines.mean("util_pct").is_some_and(|pct| pct >= BUSY_PCT_MIN) || slowest >= SLOW_MS_MIN;
        if others < OTHERS_PER_S_MIN || others < bytes * OTHERS_SHARE_MIN || !is_busy {
            continue;
        }
        let program = program(case, host, others);
        let by = program.map_or(String::new(), |(name, _)| whose(name));
        claims.push(
            Claim::new(
                severity(share),
                Level::CoOccurrence,
                format!(
                    "{}: sessions wait {} of their time for I/O, and {} of the {} a second of {} are not the server's{by}",
                    time.node,
                    units::percent(share),
                    units::percent(others / bytes),
                    units::bytes(bytes),
                    disk.name
                ),
            )
            .on_node(&time.node)
            .on_host(host)
            .during(waits.windows(crate::waits::Who::Client, is_io))
            .number("share", share)
            .number("bytes_of_others_per_s", others)
            .number("bytes_of_server_per_s", own)
            .because(format!("all processes of the server together read and wrote {} a second (/proc/PID/io)", units::bytes(own)))
            .with(disk.lines.mean("util_pct"), |claim, pct| claim.because(format!("{} had a request in {} % of the time", disk.name, units::short(pct))))
            .not("the server's own reads and writes: they are subtracted")
            .with(program, |claim, (name, per_s)| {
                let figures = format!("program {} read and wrote {} a second (/proc/PID/io)", plain(name, 40), units::bytes(per_s));
                claim.number("bytes_of_program_per_s", per_s).because(figures)
            })
            .with(program.is_none().then_some(NOT_SEEN), Claim::lacking)
            .with(program.filter(|(name, _)| SHELLS.contains(name)).map(|_| OF_SHELL), Claim::lacking)
            .remedy(
                "find the program, and move it to another disk or give it a lower weight",
                &["$ pidstat -d 1 5", "$ sudo iotop -boP -n 3", "$ systemd-cgtop -n 2 --order=io"],
            ),
        );
    }
    Answer::of(claims, || "bytes of the disks, and of the server's processes".to_string())
}

fn not_archived(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let Some(series) = server.lines.series("archived_failed").filter(|series| series.sum() > 0.0) else {
            continue;
        };
        let logged = case.events_of(event::SERVER_LOG).find(|event| {
            event.message.contains("archive command failed")
                && [server.place, ""].contains(&Case::word_of(event, "node"))
        });
        let free = super::replication::free_for_wal(case, server.place);
        let wal = server.lines.rate("wal_bytes").unwrap_or(0.0);
        let left_s = free.filter(|_| wal > 0.0).map(|free| free / wal);
        let command = case.setting(server.place, "archive_command").filter(|command| !command.is_empty());
        claims.push(
            Claim::new(
                if series.sum() >= FAILED_HIGH { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} to archive a file of WAL failed: WAL stays on its disk until it is archived",
                    server.place,
                    units::counted(series.sum() as usize, "attempt")
                ),
            )
            .on_node(server.place)
            .during(series.stretches(0, |point| point.sum > 0.0))
            .number("archived_failed", series.sum())
            .with(left_s, |claim, left| {
                let words = format!("at {} of WAL a second its disk is full in {}", units::bytes(wal), units::seconds(left));
                claim.number("until_full_s", left).because(words)
            })
            .with(logged, |claim, event| claim.because(format!("the server's log: {}", event.message)))
            .with(command, |claim, command| claim.because(format!("archive_command is {}", plain(command, 200))))
            .because("pg_stat_archiver.failed_count grows; the server stops when the disk of the WAL is full")
            .lacking("the message of the command itself: it is in the server's log, or in that of the tool")
            .remedy(
                "run the command by hand as the server's user, and mend what it reports; a file that is deleted from pg_wal breaks every backup before it",
                &["SELECT last_failed_wal, last_failed_time, failed_count, last_archived_wal, last_archived_time FROM pg_stat_archiver;"],
            ),
        );
    }
    claims.extend(
        case.things("server")
            .filter_map(|server| archived_nowhere(case, &server).or_else(|| archived_late(case, &server))),
    );
    Answer::of(claims, || "failed attempts to archive WAL, and WAL that is not archived yet".to_string())
}

/// Programs that pack a file with much effort.
const PACKERS: [&str; 8] = ["xz", "lzma", "bzip2", "7z", "7za", "brotli", "gzip", "zstd"];

/// The program in a command that packs what it archives.
fn packer(command: &str) -> Option<&'static str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut words = command.split(|c: char| !is_name(c));
    words.find_map(|word| PACKERS.into_iter().find(|packer| word == *packer))
}

/// WAL that is written faster than it is archived: how far the archive is behind grows.
fn archived_late(case: &Case, server: &Thing<'_>) -> Option<Claim> {
    // What fails is another claim.
    if server.lines.sum("archived_failed").is_some_and(|failed| failed > 0.0) {
        return None;
    }
    let behind = server.lines.series("archive_behind_bytes")?;
    let points = behind.points();
    let (first, last) = (points.first()?.mean(), points.last()?.mean());
    let written = server.lines.sum("wal_bytes")?;
    let grown = last - first;
    let command = case.setting(server.place, "archive_command").filter(|command| !command.is_empty());
    if last < BEHIND_BYTES_MIN || written <= 0.0 || grown < written * OF_WRITTEN_MIN {
        return None;
    }
    let packer = command.and_then(packer);
    let is_moving = written - grown >= ARCHIVED_BYTES_MIN;
    let window = server.lines.ticks.window();
    let seconds = (window.length_us() as f64 / 1e6).max(1.0);
    let free = super::replication::free_for_wal(case, server.place);
    Some(
        Claim::new(
            if grown >= written * OF_WRITTEN_HIGH { Severity::High } else { Severity::Medium },
            Level::DiscriminatingCounter,
            format!(
                "{}: WAL is archived more slowly than it is written: the archive was {} behind at the end, {} more than at the beginning, and pg_wal grows \
                    by that{}",
                server.place,
                units::bytes(last),
                units::bytes(grown),
                packer.map_or(String::new(), |packer| format!(
                    "; the command packs each file with {packer}, one after the other on one CPU"
                ))
            ),
        )
        .on_node(server.place)
        .during([window])
        .number("archive_behind_bytes", last)
        .because(format!(
            "{} of WAL are written a second, {} are archived",
            units::bytes(written / seconds),
            units::bytes((written - grown).max(0.0) / seconds)
        ))
        .with(free.filter(|_| grown > 0.0).map(|free| free * seconds / grown), |claim, left| {
            claim.number("until_full_s", left).because(format!("at this rate the disk of the WAL is full in {}", units::seconds(left)))
        })
        .with(command, |claim, command| claim.because(format!("archive_command is {}", plain(command, 200))))
        .not("attempts that fail: the server counts none")
        .with((!is_moving).then_some(()), |claim, ()| {
            claim.lacking("whether the command ends at all: no file was archived in this time, so it may hang")
        })
        .remedy(
            match packer {
                Some(_) => {
                    "pack them with less effort (zstd -1, lz4, gzip -1), or leave that to a tool that packs several at once (pgBackRest with archive-async, \
                     WAL-G); or write less WAL; a file that is deleted from pg_wal breaks every backup before it"
                }
                None => {
                    "let it archive several files at once (a tool with a queue of its own: pgBackRest with archive-async, WAL-G), compress before the network, \
                     or write less WAL; a file that is deleted from pg_wal breaks every backup before it"
                }
            },
            &["SELECT archived_count, last_archived_wal, last_archived_time, pg_walfile_name(pg_current_wal_lsn()) AS now FROM pg_stat_archiver;"],
        ),
    )
}

/// Archiving that is switched on and has nothing to do it: WAL is kept for ever, and nothing fails.
fn archived_nowhere(case: &Case, server: &Thing<'_>) -> Option<Claim> {
    let value = |name: &str| case.setting(server.place, name);
    let is_on = value("archive_mode").is_some_and(|mode| ["on", "always"].contains(&mode));
    let is_empty = value("archive_command").is_some_and(str::is_empty)
        && value("archive_library").is_none_or(str::is_empty);
    let written = server.lines.rate("wal_bytes").unwrap_or(0.0);
    // A standby archives only with `always`.
    let is_standby = server.lines.flag("in_recovery") == Some(true) && value("archive_mode") == Some("on");
    if !is_on || !is_empty || is_standby {
        return None;
    }
    let free = super::replication::free_for_wal(case, server.place);
    Some(
        Claim::new(
            Severity::Medium,
            Level::DiscriminatingCounter,
            format!(
                "{}: archive_mode is on and archive_command is empty: nothing is archived, no attempt fails, and every WAL file is kept for it: pg_wal \
                    grows by {} a \
                    second",
                server.place,
                units::bytes(written)
            ),
        )
        .on_node(server.place)
        .during([server.lines.ticks.window()])
        .number("wal_bytes_per_s", written)
        .because("files wait in pg_wal/archive_status with the ending .ready; a checkpoint removes only those that are .done")
        .with(free.filter(|_| written > 0.0).map(|free| free / written), |claim, left| {
            claim.number("until_full_s", left).because(format!("at this rate the disk of the WAL is full in {}", units::seconds(left)))
        })
        .remedy(
            "set the command of the archive; if there is to be none, let a command succeed that does nothing until the next restart, at which archiving is \
                switched off",
            &[
                "ALTER SYSTEM SET archive_command = '/bin/true'; SELECT pg_reload_conf(); -- releases what is kept: backups that need it are worthless",
                "ALTER SYSTEM SET archive_mode = off; -- then restart: all sessions end",
            ],
        ),
    )
}

/// WAL behind the last archived file: one file is being written, and one archived.
const BEHIND_BYTES_MIN: f64 = 4.0 * 16.0 * 1024.0 * 1024.0;
/// WAL that was archived in the recording, if the command does not hang.
const ARCHIVED_BYTES_MIN: f64 = 8.0 * 1024.0 * 1024.0;
/// Of the WAL that was written, what was not archived.
const OF_WRITTEN_MIN: f64 = 0.3;
const OF_WRITTEN_HIGH: f64 = 0.6;

fn recovering(case: &Case) -> Answer {
    let mut claims = vec![];
    for node in case.nodes() {
        let logged: Vec<&Event> = case
            .events_of(event::SERVER_LOG)
            .filter(|event| [node, ""].contains(&Case::word_of(event, "node")))
            .collect();
        let Some(begin) =
            logged.iter().find(|event| event.message.contains("database system was interrupted"))
        else {
            continue;
        };
        let is_end = |event: &&&Event| event.t_us >= begin.t_us && event.message.contains("ready to accept");
        let end = logged.iter().find(is_end);
        let window = Window::new(begin.t_us, end.map_or(case.span.to_us, |event| event.t_us));
        let seconds = window.length_us() as f64 / 1e6;
        if seconds < RECOVERY_S {
            continue;
        }
        let refused: f64 = logged
            .iter()
            .filter(|event| Case::word_of(event, "sqlstate") == CANNOT_CONNECT_NOW)
            .map(|event| event.times())
            .sum();
        let redo = logged.iter().find(|event| event.message.contains("redo done"));
        let most = case.setting(node, "max_wal_size").unwrap_or("unknown");
        claims.push(
            Claim::new(
                if seconds >= RECOVERY_HIGH_S { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!(
                    "{node}: recovery after a crash took {}{}",
                    units::seconds(seconds),
                    if end.is_some() { "" } else { ", and was not finished at the end" }
                ),
            )
            .on_node(node)
            .during([window])
            .number("recovery_s", seconds)
            .number("refused", refused)
            .because(format!("the server's log: {}", begin.message))
            .with(redo, |claim, event| claim.because(format!("the server's log: {}", event.message)))
            .because(format!("max_wal_size is {most}: up to that much WAL since the last checkpoint is read again, by one process"))
            .lacking("what stopped the server: look at its log and the kernel's log before that moment")
            .remedy(
                "find out first why it stopped; then let checkpoints come more often, if shorter recoveries are worth more WAL, and let recovery prefetch",
                &[
                    "SELECT name, setting FROM pg_settings WHERE name IN ('max_wal_size', 'checkpoint_timeout', 'recovery_prefetch', \
                     'recovery_init_sync_method');",
                    "ALTER SYSTEM SET recovery_init_sync_method = 'syncfs'; -- one call for each file system instead of one for each file",
                ],
            ),
        );
    }
    Answer::of(claims, || "restarts after a crash in the servers' logs".to_string())
}
