//! MEM: memory errors, memory that runs out, page tables. HW: heat.

mod killed;

use super::paste::data_directory;
use crate::case::Case;
use crate::rule::Need::{Facts, Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity, Window};
use std::collections::BTreeMap;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "MEM-01",
        title: "memory has corrected errors",
        needs: &[Looked("edac")],
        limits: "1 corrected error an hour on one DIMM, high from 10 or for any uncorrected one (ours; rasdaemon: totals mean little)",
        judge: corrected,
        links: &["https://docs.kernel.org/admin-guide/ras.html"],
    },
    Rule {
        id: "MEM-02",
        title: "memory ran out: processes killed or swapped",
        needs: &[Field("host", "memory_available_bytes")],
        limits: "any process killed; swapping out while tasks stall for memory 5 % of the time",
        judge: out_of_memory,
        links: &["https://www.postgresql.org/docs/current/kernel-resources.html#LINUX-MEMORY-OVERCOMMIT"],
    },
    Rule {
        id: "MEM-03",
        title: "page tables take much memory: no huge pages",
        needs: &[Field("host", "page_tables_bytes"), Facts("setting")],
        limits: "page tables above 1 GiB or 1 % of memory; a note from shared_buffers of 8 GB on without huge pages (ours)",
        judge: page_tables,
        links: &["https://www.postgresql.org/docs/current/kernel-resources.html#LINUX-HUGE-PAGES"],
    },
    Rule {
        id: "HW-01",
        title: "heat: a fan has stopped, or processors are throttled",
        needs: &[Looked("sensors")],
        limits: "any throttling, a fan at 0 rpm that ran before or has a minimum speed, a critical temperature",
        judge: heat,
        links: &[],
    },
];

/// Corrected errors an hour on one DIMM.
const ERRORS_PER_H: f64 = 1.0;
/// The same, when the DIMM must be replaced.
const ERRORS_PER_H_HIGH: f64 = 10.0;
/// Shorter watches must not turn one error into a rate.
const RATE_SPAN_H_MIN: f64 = 1.0;
/// The share of time in which tasks stalled for memory (pressure stall information).
const MEMORY_STALL_PCT: f64 = 5.0;
/// Page tables of this size ...
const PAGE_TABLES_BYTES: f64 = 1_073_741_824.0;
/// ... or of this share of memory.
const PAGE_TABLES_SHARE: f64 = 0.01;

/// shared_buffers from which on huge pages are worth a note.
const BUFFERS_LARGE_BYTES: f64 = 8_589_934_592.0;

/// What an EDAC line of the kernel's log counts: `EDAC MC5: 2 CE memory read error on CPU_SrcID#1_MC#1_Chan#0_DIMM#0 (...)`.
fn edac_line(text: &str) -> Option<(String, f64, bool)> {
    let (_, rest) = text.split_once("EDAC MC")?;
    let (controller, rest) = rest.split_once(": ")?;
    let mut words = rest.split_whitespace();
    let count: f64 = words.next()?.parse().ok()?;
    let kind = words.next()?;
    let label = rest.split_once(" on ")?.1.split_whitespace().next()?;
    matches!(kind, "CE" | "UE").then(|| (format!("mc{controller} {label}"), count, kind == "UE"))
}

/// Errors of one DIMM.
#[derive(Default)]
struct Errors {
    count: f64,
    window: Option<Window>,
}

/// Errors by host, DIMM, and whether they could not be corrected.
#[derive(Default)]
struct Tally(BTreeMap<(String, String, bool), Errors>);

impl Tally {
    fn add(&mut self, host: &str, dimm: &str, is_bad: bool, count: f64, window: Window) {
        let errors = self.0.entry((host.to_string(), dimm.to_string(), is_bad)).or_default();
        errors.count += count;
        errors.window = Some(match errors.window {
            Some(old) => Window::new(old.from_us.min(window.from_us), old.to_us.max(window.to_us)),
            None => window,
        });
    }

    fn of_counters(case: &Case) -> Tally {
        let mut tally = Tally::default();
        for counter in case.things("hardware").filter(|counter| counter.lines.word("kind") == "edac") {
            let name = counter.lines.word("name");
            // A controller's counter repeats those of its DIMMs.
            let parts = format!("{}/", name.split(' ').next().unwrap_or(name));
            let mut others = case.at("hardware", counter.place);
            if !name.contains('/') && others.any(|other| other.lines.word("name").starts_with(&parts)) {
                continue;
            }
            let (dimm, what) = name.rsplit_once(' ').unwrap_or((name, "ce"));
            if let Some(moved) = counter.lines.series("change").filter(|series| series.sum() > 0.0) {
                tally.add(counter.place, dimm, what == "ue", moved.sum(), moved.window());
            }
        }
        tally
    }

    fn of_log(case: &Case) -> Tally {
        let mut tally = Tally::default();
        for event in case.events_of(event::KERNEL) {
            if let Some((dimm, errors, is_bad)) = edac_line(&event.message) {
                let moment = Window::new(event.t_us, event.t_us);
                tally.add(Case::word_of(event, "host"), &dimm, is_bad, errors, moment);
            }
        }
        tally
    }
}

fn corrected(case: &Case) -> Answer {
    let hours = (case.span.length_us() as f64 / 3.6e9).max(RATE_SPAN_H_MIN);
    let counted = Tally::of_counters(case);
    let found = if counted.0.is_empty() { Tally::of_log(case).0 } else { counted.0 };
    let claims = found
        .into_iter()
        .filter(|((_, _, is_bad), errors)| *is_bad || errors.count / hours >= ERRORS_PER_H)
        .map(|((host, dimm, is_bad), Errors { count: errors, window })| {
            let per_h = errors / hours;
            let severity = if is_bad || per_h >= ERRORS_PER_H_HIGH { Severity::High } else { Severity::Medium };
            let what = if is_bad { "uncorrected errors" } else { "corrected errors" };
            Claim::new(
                severity,
                Level::DiscriminatingCounter,
                format!("{host}: {} {what} in memory at {dimm}, {} an hour", units::count(errors), units::short(per_h)),
            )
            .on_host(&host)
            .during(window)
            .number("errors", errors)
            .number("errors_per_h", per_h)
            .because("the memory controller counted them during the run; the rate matters, not the total")
            .remedy(
                "replace the DIMM, and exclude the host from comparisons until then: correction takes time that no other counter shows",
                &["$ ras-mc-ctl --errors", "$ grep . /sys/devices/system/edac/mc/mc*/dimm*/dimm_*_count"],
            )
        })
        .collect();
    Answer::of(claims, || "counters of the memory controllers".to_string())
}

fn out_of_memory(case: &Case) -> Answer {
    let mut claims = vec![];
    for host in case.things("host") {
        if let Some(killed) = host.lines.series("oom_kills").filter(|series| series.sum() > 0.0) {
            // MEM-05 has those that the counter of a server's group has.
            if killed::is_counted(case, host.place) {
                continue;
            }
            claims.push(killed::of_host(case, &host, killed));
            continue;
        }
        let swapped = host.lines.sum("swap_out_bytes").unwrap_or(0.0);
        let stalls = host.lines.series("psi_memory_some_pct");
        let windows = stalls
            .map(|series| series.stretches(5_000_000, |point| point.mean() >= MEMORY_STALL_PCT))
            .unwrap_or_default();
        if swapped > 0.0 && !windows.is_empty() {
            claims.push(
                Claim::new(
                    Severity::Medium,
                    Level::CoOccurrence,
                    format!(
                        "{}: {} were swapped out while tasks waited for memory",
                        host.place,
                        units::bytes(swapped)
                    ),
                )
                .on_host(host.place)
                .during(windows)
                .number("swap_out_bytes", swapped)
                .remedy(
                    "shared_buffers, work_mem times sessions, and the page cache must fit together",
                    &["$ sysctl vm.swappiness=1"],
                ),
            );
        }
    }
    let killed: Vec<_> = case
        .events_of(event::SERVER_LOG)
        .filter(|event| event.message.contains("terminated by signal 9"))
        .collect();
    if let Some(first) = killed.first().filter(|_| claims.is_empty()) {
        claims.push(by_signal(case, first, killed.len()));
    }
    Answer::of(claims, || "killed processes, swapping, stalls for memory".to_string())
}

/// How the claim about a process begins that may have been killed for memory.
pub(crate) const BY_SIGNAL: &str = "a server process was killed by signal 9";

/// About processes of a server that signal 9 ended, by its log. Where the kernel's counter did not move, memory was not the reason.
fn by_signal(case: &Case, first: &Event, times: usize) -> Claim {
    let node = Case::word_of(first, "node");
    let host = case.host_of(node).and_then(|host| case.one("host", host));
    let is_by_hand = host.and_then(|host| host.sum("oom_kills")) == Some(0.0);
    let text = match is_by_hand {
        true => format!(
            "a program or a person ended a server process by signal 9 (kill -9), {} in the log: {}; the server ends all sessions then, and recovers",
            if times == 1 { "once".to_string() } else { format!("{times} times") },
            first.message
        ),
        false => format!("{BY_SIGNAL}: {}", first.message),
    };
    let claim = Claim::new(Severity::High, Level::Symptom, text)
        .on_node(node)
        .during([Window::new(first.t_us, first.t_us)])
        .number("times", times as f64);
    if !is_by_hand {
        return claim
            .lacking("whether memory ran out: the kernel's log and its counter of killed processes")
            .remedy("read the kernel's log of that moment", &["$ dmesg -T | grep -i 'out of memory'"]);
    }
    claim
        .not("memory: the kernel killed no process for it in the recording (oom_kill of /proc/vmstat)")
        .lacking("who sends it: the kernel does not record that")
        .remedy(
            "look for kill -9 in scripts, cron jobs and watchdogs, and let them end sessions by the server: that ends one session and no other",
            &[
                "$ grep -rlE 'kill(all)? +-(9|KILL)' /etc/cron* /var/spool/cron /etc/systemd /usr/local 2>/dev/null",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'active' AND now() - query_start > interval '5 min'; -- instead",
            ],
        )
}

fn page_tables(case: &Case) -> Answer {
    let mut claims = vec![];
    for host in case.things("host") {
        let (Some(tables), Some(total)) =
            (host.lines.max("page_tables_bytes"), host.lines.max("memory_total_bytes"))
        else {
            continue;
        };
        let node = case.nodes().into_iter().find(|node| case.host_of(node) == Some(host.place)).unwrap_or("");
        let used = case.setting(node, "huge_pages_status");
        let requested = case.setting(node, "huge_pages").unwrap_or("unknown");
        let is_off = used == Some("off") || used.is_none() && requested == "off";
        let buffers = case.setting(node, "shared_buffers").and_then(units::setting).unwrap_or(0.0);
        let is_large = tables > PAGE_TABLES_BYTES || tables > total * PAGE_TABLES_SHARE;
        let is_costly = is_off && buffers >= BUFFERS_LARGE_BYTES;
        if used == Some("on") || !is_large && !is_costly {
            continue;
        }
        let detail = match used {
            Some(status) => format!("huge_pages_status is {status}"),
            None => format!("huge_pages is {requested}"),
        };
        let text = match is_large {
            true => format!(
                "{}: page tables take {} ({} of memory); {detail}",
                host.place,
                units::bytes(tables),
                units::percent(tables / total.max(1.0))
            ),
            false => format!(
                "{}: shared_buffers of {} are in pages of 4 kB; {detail}",
                host.place,
                units::bytes(buffers)
            ),
        };
        claims.push(
            Claim::new(
                if is_large { Severity::Low } else { Severity::Note },
                if used == Some("off") { Level::DiscriminatingCounter } else { Level::CoOccurrence },
                text,
            )
            .on_host(host.place)
            .during([case.span])
            .number("page_tables_bytes", tables)
            .because("each session maps all of shared_buffers in pages of 4 kB: a table of 2 MB per GB and session, and many more \
                misses of the CPU's cache of it")
            .lacking("the same load with huge pages: how much CPU time they save")
            .remedy(
                "reserve huge pages for shared_buffers and require them; the restart stops the database, and all sessions end",
                &[
                    "$ n=$(psql -qAtX -c 'SHOW shared_memory_size_in_huge_pages') && echo \"vm.nr_hugepages = $n\" | sudo tee \
                     /etc/sysctl.d/60-postgresql.conf && sudo sysctl --system",
                    "ALTER SYSTEM SET huge_pages = on; -- with too few of them the server does not start; 'try' would go on without",
                    &format!("$ pg_ctl restart -D {} -m fast", data_directory(case, node)),
                ],
            ),
        );
    }
    Answer::of(claims, || "size of page tables".to_string())
}

fn heat(case: &Case) -> Answer {
    let mut claims = vec![];
    for counter in case.things("hardware") {
        let (kind, name) = (counter.lines.word("kind"), counter.lines.word("name"));
        let value = counter.lines.last("value").unwrap_or(0.0);
        let detail = match kind {
            "fan" if value == 0.0 => format!("fan {name} has stopped"),
            "fan" => format!("fan {name} is too slow: {value:.0} rpm"),
            "thermal" if name.contains("throttled") => match counter.lines.sum("change") {
                Some(times) if times > 0.0 => format!(
                    "processors were throttled {} because of heat ({name})",
                    units::counted(times as usize, "time")
                ),
                _ => continue,
            },
            "thermal" => format!("{name} is at its critical temperature: {:.0} degrees", value / 1_000.0),
            _ => continue,
        };
        claims.push(
            Claim::new(Severity::High, Level::DiscriminatingCounter, format!("{}: {detail}", counter.place))
                .on_host(counter.place)
                .during([counter.lines.ticks.window()])
                .number("value", value)
                .because("a hardware counter; only heat or a broken sensor changes it")
                .remedy(
                    "replace the fan, clear the air flow; exclude the host from comparisons until then",
                    &["$ sensors", "$ grep . /sys/devices/system/cpu/cpu*/thermal_throttle/*_count"],
                ),
        );
    }
    Answer::of(claims, || "fans, temperatures, throttling".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_memory_controller_are_counted_by_dimm() {
        let text = include_str!("../../tests/fixtures/edac.txt");
        let found: Vec<_> = text.lines().filter_map(edac_line).collect();
        assert_eq!(
            found,
            [
                ("mc5 CPU_SrcID#1_MC#1_Chan#0_DIMM#0".to_string(), 2.0, false),
                ("mc1 CPU_SrcID#0_MC#1_Chan#1_DIMM#0".to_string(), 1.0, true),
            ]
        );
    }
}
