//! Runs a suite of tests so that its failure cannot become a hang: `scripts/test` starts each suite through this.
//!
//! ```text
//! supervise LIMIT_S GRACE_S USAGE_FILE PROGRAM [ARGUMENT ...]
//! ```
//!
//! Whatever the program starts stays below us, also a server that made itself a daemon (`PR_SET_CHILD_SUBREAPER`). A program that has not ended
//! after LIMIT_S seconds is killed with all of it, and the exit code is 124; what is left GRACE_S seconds after its end is named and killed, too. The
//! file gets one line: seconds of processor time of all of them, and the number of processes that were left.

use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The exit code of `timeout`.
const TIMED_OUT: u8 = 124;
/// How long killed processes may take to go.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let mut seconds = || arguments.next()?.to_str()?.parse().ok().map(Duration::from_secs);
    let limits = seconds().zip(seconds());
    let (Some((limit, grace)), Some(usage), Some(program)) = (limits, arguments.next(), arguments.next())
    else {
        eprintln!("usage: supervise LIMIT_S GRACE_S USAGE_FILE PROGRAM [ARGUMENT ...]");
        return ExitCode::from(2);
    };
    match supervise((limit, grace), Path::new(&usage), &program, arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("supervise: {}: {error}", program.display());
            ExitCode::from(125)
        }
    }
}

fn supervise(
    (limit, grace): (Duration, Duration),
    usage: &Path,
    program: &OsString,
    arguments: impl Iterator<Item = OsString>,
) -> io::Result<u8> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let child = Command::new(program).args(arguments).stdin(Stdio::null()).spawn()?;
    let child = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::InvalidData)?;
    let begun = Instant::now();
    let mut code = None;
    while code.is_none() && begun.elapsed() < limit {
        code = reap(child)?;
        std::thread::sleep(PAUSE);
    }
    if code.is_none() {
        eprintln!(
            "\nsupervise: no end after {} s; killed, with all that it started. It was at:",
            limit.as_secs()
        );
        threads_of(child).into_iter().for_each(|thread| eprintln!("  test {thread}"));
    } else {
        // Servers get a signal when the program ends: that takes them a moment.
        let ended = Instant::now();
        while !below_us().is_empty() && ended.elapsed() < grace {
            reap(child)?;
            std::thread::sleep(PAUSE);
        }
    }
    let left = below_us();
    for (pid, words) in &left {
        eprintln!("supervise: left running: {pid} {words}");
    }
    kill_all(child)?;
    std::fs::write(usage, format!("{:.1} {}\n", processor_s(), left.len()))?;
    Ok(code.unwrap_or(TIMED_OUT))
}

/// Takes note of every child that has ended, also of those that were left to us; gives the exit code of `child` if it is among them.
fn reap(child: Pid) -> io::Result<Option<u8>> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == child => {
                let signalled = status.terminating_signal().map(|signal| 128 + signal);
                let code = status.exit_status().or(signalled).unwrap_or(1);
                return Ok(Some(u8::try_from(code).unwrap_or(1)));
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Kills everything below us: what a killed process has started is then ours, and is killed in the next round.
fn kill_all(child: Pid) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let left = below_us();
        if left.is_empty() || begun.elapsed() > KILL_TIMEOUT {
            return Ok(());
        }
        for pid in left.keys().filter_map(|pid| Pid::from_raw(*pid)) {
            // It may have ended by itself meanwhile.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        reap(child)?;
        std::thread::sleep(PAUSE);
    }
}

/// Every process below us that is not only waiting to be reaped, with its command line.
fn below_us() -> BTreeMap<i32, String> {
    let mut parents = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((state, parent)) = state_and_parent(&stat) else { continue };
        parents.insert(pid, (parent, state));
    }
    let us = rustix::process::getpid().as_raw_nonzero().get();
    let is_below = |mut pid: i32| {
        for _ in 0..parents.len() {
            match parents.get(&pid) {
                Some((parent, _)) if *parent == us => return true,
                Some((parent, _)) => pid = *parent,
                None => return false,
            }
        }
        false
    };
    let alive = parents.iter().filter(|(pid, (_, state))| *state != 'Z' && *state != 'X' && is_below(**pid));
    alive.map(|(pid, _)| (*pid, command_line(*pid))).collect()
}

/// State and parent of a line of `/proc/PID/stat`; the name between them may hold blanks and parentheses.
fn state_and_parent(stat: &str) -> Option<(char, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn command_line(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_string()
}

/// The names of a process' threads: libtest names each after its test, the kernel keeps 15 characters.
fn threads_of(pid: Pid) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).into_iter().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.flatten().filter_map(name).map(|name| name.trim().to_string()).skip(1).collect()
}

/// Processor time of all that was waited for, in seconds: cutime and cstime of proc(5), in hundredths.
fn processor_s() -> f64 {
    const USER_TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = rest.split_ascii_whitespace().skip(13).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / USER_TICKS_PER_S
}
