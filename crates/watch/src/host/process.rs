//! Server processes: CPU and disk use of each, even in the middle of a statement, when the database's own
//! counters do not move. Only active processes are read: each file costs the kernel tens of microseconds.

use super::files::Files;

/// Ticks of USER_HZ per second: fixed at 100 in every interface of Linux.
pub(crate) const TICKS_PER_S: u64 = 100;
/// Microseconds of one.
pub const TICK_US: u64 = 1_000_000 / TICKS_PER_S;

/// `/proc/PID/stat`, in part.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// The program's name.
    pub command: String,
    /// `R`, `S`, `D`, ...
    pub state: String,
    /// Parent.
    pub parent: u32,
    /// User time in ticks.
    pub user_ticks: u64,
    /// Kernel time in ticks.
    pub system_ticks: u64,
    /// User and kernel time of its children that ended, and of theirs, in ticks.
    pub ended_ticks: u64,
    /// When it started, in ticks since boot: distinguishes a process from a later one with the same pid.
    pub started_ticks: u64,
    /// Its nice value.
    pub nice: i64,
    /// Its scheduling policy, by the kernel's number.
    pub policy: u64,
}

/// What the kernel calls a policy; empty for the usual one, and for those that are newer than this list.
pub(crate) fn policy(number: u64) -> &'static str {
    match number {
        1 => "fifo",
        2 => "rr",
        3 => "batch",
        5 => "idle",
        6 => "deadline",
        _ => "",
    }
}

/// Whether a signal (`T`) or a tracer (`t`) has stopped a process in this state.
pub(crate) fn is_stopped(state: &str) -> bool {
    ["T", "t"].contains(&state)
}

/// The process that traces another one, by its `/proc/PID/status`.
pub(crate) fn tracer(status: &str) -> Option<u32> {
    let pid = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?.trim().parse().ok()?;
    Some(pid).filter(|pid| *pid != 0)
}

/// Reads `/proc/PID/stat`. The name stands in parentheses and may hold some of its own.
pub fn stat(text: &str) -> Option<Stat> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let command = text.get(open + 1..close)?.to_string();
    let fields: Vec<&str> = text.get(close + 1..)?.split_ascii_whitespace().collect();
    // Field 3 of proc(5) is the first after the name.
    let number = |field: usize| fields.get(field - 3).and_then(|word| word.parse::<u64>().ok());
    Some(Stat {
        command,
        state: (*fields.first()?).to_string(),
        parent: number(4).and_then(|parent| u32::try_from(parent).ok())?,
        user_ticks: number(14)?,
        system_ticks: number(15)?,
        ended_ticks: number(16)? + number(17)?,
        started_ticks: number(22)?,
        nice: fields.get(19 - 3).and_then(|word| word.parse().ok()).unwrap_or_default(),
        policy: number(41).unwrap_or_default(),
    })
}

/// `/proc/PID/io`, in part. Unlike the database's statistics it moves during a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Io {
    /// Bytes that had to come from a device.
    pub read_bytes: u64,
    /// Bytes that will have to go to one.
    pub write_bytes: u64,
}

/// Reads `/proc/PID/io`.
pub fn io(text: &str) -> Option<Io> {
    let find = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u64>().ok())
    };
    Some(Io { read_bytes: find("read_bytes")?, write_bytes: find("write_bytes")? })
}

/// `/proc/PID/schedstat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Schedule {
    /// Time on a processor.
    pub run_ns: u64,
    /// Time ready to run but waiting for a processor.
    pub wait_ns: u64,
    /// How often it was put on one.
    pub turns: u64,
}

/// Reads `/proc/PID/schedstat`.
pub fn schedule(text: &str) -> Option<Schedule> {
    let mut words = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    Some(Schedule { run_ns: words.next()??, wait_ns: words.next()??, turns: words.next()?? })
}

/// The kernel function in which a process sleeps; `None` if it does not sleep or this is hidden.
pub fn wchan(text: &str) -> Option<String> {
    let name = text.trim();
    (!matches!(name, "" | "0")).then(|| name.to_string())
}

/// Where a process sleeps that writes more than is taken: to a pipe (`pipe_write`, older kernels `pipe_wait`), to the socket of the system's log
/// (`unix_dgram_sendmsg` and what it calls), or to a terminal. PostgreSQL sends results on sockets that do not block, so what blocks is its log.
const WRITES: [&str; 8] = [
    "pipe_write",
    "anon_pipe_write",
    "pipe_wait",
    "unix_wait_for_peer",
    "unix_dgram_sendmsg",
    "sock_alloc_send_pskb",
    "n_tty_write",
    "tty_write",
];

/// Whether a process that sleeps there waits until what it writes is taken.
pub(crate) fn is_blocked_write(wchan: &str) -> bool {
    // The compiler's parts of a function have endings such as `.isra.0`.
    WRITES.contains(&wchan.split('.').next().unwrap_or_default())
}

/// The children of a process, from the kernel's list if it keeps one, else by a scan of all processes.
pub fn children(files: &mut dyn Files, parent: u32) -> Vec<u32> {
    if let Ok(text) = files.text(&format!("/proc/{parent}/task/{parent}/children")) {
        return text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    }
    let pids: Vec<u32> = files.entries("/proc").iter().filter_map(|name| name.parse().ok()).collect();
    let is_child = |files: &mut dyn Files, pid: &u32| {
        files.text(&format!("/proc/{pid}/stat")).ok().and_then(stat).is_some_and(|stat| stat.parent == parent)
    };
    pids.into_iter().filter(|pid| is_child(files, pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;

    const STAT: &str = "4711 (post) gres (x) D 42 4711 4711 0 -1 4194304 100 0 3 0 250 75 0 0 20 0 1 0 88888 220000000 3000 18446744073709551615 0 0 \
        0 0 0 0 0 0 0 0 0 0 17 1 0 0 12 0 0\n";

    #[test]
    fn a_name_with_parentheses_is_no_trap() {
        let stat = stat(STAT).expect("understood");
        assert_eq!((stat.command.as_str(), stat.state.as_str(), stat.parent), ("post) gres (x", "D", 42));
        assert_eq!((stat.user_ticks, stat.system_ticks, stat.started_ticks), (250, 75, 88_888));
        assert_eq!((stat.nice, policy(stat.policy)), (0, ""));
        for torn in ["", "1 (a", "1 )(", "1 (a) S", "1 (a) S 2 3"] {
            assert_eq!(super::stat(torn), None, "{torn}");
        }
    }

    #[test]
    fn writes_that_nothing_takes_are_known_by_their_place() {
        for place in ["pipe_write", "anon_pipe_write", "unix_wait_for_peer", "sock_alloc_send_pskb.isra.0"] {
            assert!(is_blocked_write(place), "{place}");
        }
        for place in ["ep_poll", "do_epoll_wait", "futex_wait_queue", "pipe_read", "do_sys_poll", ""] {
            assert!(!is_blocked_write(place), "{place}");
        }
    }

    #[test]
    fn priorities_and_tracers() {
        let words: Vec<String> = STAT.split(' ').map(str::to_string).collect();
        let changed = |at: usize, value: &str| {
            let mut words = words.clone();
            words[at] = value.into();
            stat(&words.join(" ")).expect("understood")
        };
        // The name has three words: field 3 is the fourth.
        assert_eq!(changed(19 + 1, "-5").nice, -5);
        assert_eq!(policy(changed(41 + 1, "5").policy), "idle");
        assert_eq!(tracer("Name:\tpostgres\nTracerPid:\t4711\nUid:\t0\n"), Some(4711));
        assert_eq!((tracer("TracerPid:\t0\n"), tracer("")), (None, None));
        assert!(is_stopped("t") && is_stopped("T") && !is_stopped("S"));
    }

    #[test]
    fn io_and_schedule() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n";
        assert_eq!(io(text), Some(Io { read_bytes: 4096, write_bytes: 8192 }));
        assert_eq!(io("rchar: 1\n"), None);
        assert_eq!(
            schedule("1500000 20000 7\n"),
            Some(Schedule { run_ns: 1_500_000, wait_ns: 20_000, turns: 7 })
        );
        assert_eq!(schedule("15"), None);
        assert_eq!(
            (wchan("0"), wchan("do_epoll_wait"), wchan("")),
            (None, Some("do_epoll_wait".into()), None)
        );
    }

    #[test]
    fn children_are_found_with_and_without_the_kernels_list() {
        let mut files = Shipped::default();
        files.put("/proc/42/task/42/children", "43 44 \n".into());
        assert_eq!(children(&mut files, 42), [43, 44]);
        let mut files = Shipped::default();
        files.put("/proc/4711/stat", STAT.into());
        files.put("/proc/4712/stat", STAT.replace(" D 42 ", " D 1 "));
        files.put("/proc/meminfo", String::new());
        assert_eq!(children(&mut files, 42), [4711]);
    }
}
