//! SES-04 of what the system refuses the server: processes, open files and memory for new sessions. The postmaster reports these at level LOG, because no
//! session is there yet that could have an error.

use crate::case::{Case, Lines, Thing};
use crate::rule::Claim;
use crate::rules::costly::plain;
use crate::rules::paste::data_directory;
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity, Window};

/// What the system refuses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Processes,
    Memory,
    Files,
    FilesOfAll,
}

/// What such lines begin with: `postmaster.c`, `launch_backend.c`, `pqcomm.c`, `fd.c`.
const FORK: &str = "could not fork";
const ACCEPT: &str = "could not accept new connection";
const DESCRIPTORS: &str = "out of file descriptors";
/// The system's words for ENFILE, EMFILE and ENOMEM.
const OF_ALL: &str = "Too many open files in system";
const FILES: &str = "Too many open files";
const NO_MEMORY: &str = "Cannot allocate memory";
/// So few are high: each is a session or a worker that could not start.
const HIGH_MIN: f64 = 3.0;
/// Characters of a line.
const LINE_CHARS: usize = 120;
/// Processes beside those that settings limit: the server's own ones, and room for tools in the same group.
const MORE_PROCESSES: f64 = 20.0;
/// Settings that limit processes, with the servers' defaults.
const OF_SETTINGS: [(&str, f64); 4] = [
    ("max_connections", 100.0),
    ("max_worker_processes", 8.0),
    ("autovacuum_max_workers", 3.0),
    ("max_wal_senders", 10.0),
];

impl What {
    /// By a line of the log; `None` if it is about something else.
    fn of(message: &str) -> Option<What> {
        let is_one = |begin: &&str| message.starts_with(*begin);
        if ![FORK, ACCEPT, DESCRIPTORS].iter().any(is_one) {
            return None;
        }
        match message {
            _ if message.contains(OF_ALL) => Some(What::FilesOfAll),
            _ if message.contains(FILES) => Some(What::Files),
            _ if message.contains(NO_MEMORY) => Some(What::Memory),
            _ => message.starts_with(FORK).then_some(What::Processes),
        }
    }
}

/// One claim for each thing that the system refused a node.
pub(super) fn claims(case: &Case, server: &Thing<'_>) -> Vec<Claim> {
    let group = case.one("cgroup", server.place);
    let refused = group.and_then(|group| group.sum("pids_refused")).unwrap_or(0.0);
    let mut lines: Vec<(What, &Event)> = case
        .events_of(event::SERVER_LOG)
        .filter(|event| [server.place, ""].contains(&Case::word_of(event, "node")))
        .filter_map(|event| Some((What::of(&event.message)?, event)))
        .collect();
    lines.sort_by_key(|(what, _)| *what);
    let mut claims: Vec<Claim> = lines
        .chunk_by(|left, right| left.0 == right.0)
        .map(|chunk| {
            let events: Vec<&Event> = chunk.iter().map(|(_, event)| *event).collect();
            claim(case, server, chunk[0].0, &events, refused)
        })
        .collect();
    if refused > 0.0 && lines.iter().all(|(what, _)| *what != What::Processes) {
        claims.push(claim(case, server, What::Processes, &[], refused));
    }
    claims
}

fn claim(case: &Case, server: &Thing<'_>, what: What, events: &[&Event], refused: f64) -> Claim {
    let node = server.place;
    let logged: f64 = events.iter().map(|event| event.times()).sum();
    let count = if events.is_empty() { refused } else { logged };
    let group = case.one("cgroup", node).filter(|_| what == What::Processes && refused > 0.0);
    let windows: Vec<Window> = match events.is_empty() {
        true => vec![server.lines.ticks.window()],
        false => events.iter().map(|event| Window::new(event.t_us, event.t_us + 1_000_000)).collect(),
    };
    let (text, commands) = remedy(case, node, what);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    Claim::new(
        if count >= HIGH_MIN { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!("{node}: {}", described(what, count, group)),
    )
    .on_node(node)
    .during(windows)
    .number("refused", count)
    .with(events.first(), |claim, event| {
        claim.because(format!("the server's log, {logged:.0} times: {}", plain(&event.message, LINE_CHARS)))
    })
    .with(group, |claim, group| {
        claim
            .number("pids_max", group.last("pids_max").unwrap_or(0.0))
            .because(format!("pids.events of control group {}: {refused:.0} times refused", plain(group.word("path"), LINE_CHARS)))
    })
    .with((what == What::Processes && group.is_none()).then_some(()), |claim, ()| {
        claim.lacking("which limit: pids.max of a control group, the processes of the user (ulimit -u), kernel.pid_max or kernel.threads-max")
    })
    .not("max_connections: the server refuses with other words then, and to a session that has begun")
    .remedy(text, &commands)
}

/// What was refused, and by which limit.
fn described(what: What, count: f64, group: Option<&Lines>) -> String {
    let limit = group.and_then(|group| group.last("pids_max").zip(group.max("pids")));
    let processes = units::counted(count as usize, "process");
    match (what, limit) {
        (What::Processes, Some((most, used))) => format!(
            "{processes} for new connections or workers could not be started: the server's control group may have {} processes and threads (pids.max), \
             and has had {}",
            units::short(most),
            units::short(used)
        ),
        (What::Processes, None) => format!(
            "{processes} for new connections or workers could not be started: the system has a limit of processes for the server, and it is reached"
        ),
        (What::Memory, _) => format!(
            "{processes} for new connections or workers could not be started for want of memory: the system commits no more of it"
        ),
        (What::Files, _) => format!(
            "{} a file or a new connection could not be opened: a process of the server has as many open files as it may (LimitNOFILE, ulimit -n)",
            times(count)
        ),
        (What::FilesOfAll, _) => format!(
            "{} a file or a new connection could not be opened: all processes of the host have as many open files as the kernel allows (fs.file-max)",
            times(count)
        ),
    }
}

fn times(count: f64) -> String {
    if count <= 1.0 { "once".to_string() } else { format!("{count:.0} times") }
}

/// So many processes may be needed, by the settings.
fn needed(case: &Case, node: &str) -> f64 {
    let value = |name: &str| case.setting(node, name).and_then(|value| value.parse::<f64>().ok());
    OF_SETTINGS.iter().map(|(name, default)| value(name).unwrap_or(*default)).sum::<f64>() + MORE_PROCESSES
}

fn remedy(case: &Case, node: &str, what: What) -> (String, Vec<String>) {
    let file = format!("{}/postmaster.pid", data_directory(case, node));
    let limits = format!("$ grep -E 'Max (processes|open files)' /proc/$(head -n 1 {file})/limits");
    match what {
        What::Processes => (
            format!(
                "let fewer connections be open at once (a pool in front of the server, max_connections below the limit), or raise the limit: by the settings \
                 the server may need {:.0} processes. systemd: TasksMax of its unit (systemctl set-property UNIT TasksMax=...); Docker: --pids-limit \
                 (docker update --pids-limit ...); Kubernetes: podPidsLimit of the kubelet; of the user: LimitNPROC, limits.conf",
                needed(case, node)
            ),
            vec![
                format!(
                    "$ for g in $(cut -d: -f3 /proc/$(head -n 1 {file})/cgroup | sort -u); do grep -H . /sys/fs/cgroup$g/pids.* /sys/fs/cgroup/pids$g/pids.* \
                     2>/dev/null; done"
                ),
                limits,
                "$ sysctl kernel.pid_max kernel.threads-max".to_string(),
            ],
        ),
        What::Memory => (
            "give the host more memory, or let fewer sessions be open (a pool); with vm.overcommit_memory = 2 raise vm.overcommit_ratio, or add swap: what \
             is committed counts there, and not what is used"
                .to_string(),
            vec!["$ sysctl vm.overcommit_memory vm.overcommit_ratio && grep -E 'Commit|MemAvailable' /proc/meminfo".to_string()],
        ),
        What::Files => (
            "raise the limit of the server's service (LimitNOFILE of its unit, --ulimit nofile in a container; a restart), or lower \
             max_files_per_process; the postmaster needs a few, each session max_files_per_process"
                .to_string(),
            vec![limits, "SHOW max_files_per_process;".to_string()],
        ),
        What::FilesOfAll => (
            "raise fs.file-max, or lower max_files_per_process: sessions and workers may each have so many files open".to_string(),
            vec!["$ sysctl fs.file-max fs.file-nr".to_string(), "SHOW max_files_per_process;".to_string()],
        ),
    }
}
