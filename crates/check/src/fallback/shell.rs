//! A shell on a host: over ssh, or on this host. Its script ends when its input does, so that nothing outlives this process.

use crate::hosts::Host;
use crate::link::{Ways, for_any_shell};
use connect::poll;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest output of a tool that is read.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// How long a stopped script may clean up.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// What a script prints first on another host: the files that a login shell reads may print something before.
const BEGIN: &str = "@pgfathom-output";
/// How long output may still come after the end of a script: a process that it left (the master of a shared connection) may keep its pipes open.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);

/// Where scripts run.
pub(super) struct Shell<'a> {
    pub(super) host: &'a Host,
    pub(super) ways: &'a Ways,
    pub(super) stop: &'a AtomicBool,
}

/// What a script printed, and how it ended.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) status: i32,
}

impl Shell<'_> {
    /// Runs a script. Its standard input stays open as long as this waits: a script that watches it (see [`watching`]) ends with it.
    pub(super) fn run(&self, script: &str, patience: Duration) -> Result<Printed, String> {
        let mut command = if self.host.is_local {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        } else {
            let script = format!("echo {BEGIN}; {script}");
            self.ways.remote(self.host).command(&for_any_shell(&script))
        };
        let spawned = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child = spawned.map_err(|error| format!("cannot start a shell: {error}"))?;
        let input = child.stdin.take();
        let stdout = Output::read(child.stdout.take());
        let stderr = Output::read(child.stderr.take());
        let ended = poll::until(patience, || match child.try_wait() {
            Ok(None) if !self.stop.load(Ordering::Relaxed) => None,
            other => Some(other.ok().flatten()),
        });
        // The end of its input stops a script that still runs.
        drop(input);
        let status = match ended.flatten() {
            Some(status) => Some(status),
            None => poll::until(END_PATIENCE, || child.try_wait().ok().flatten()),
        };
        let Some(status) = status else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("no reply for {} s", patience.as_secs()));
        };
        if self.stop.load(Ordering::Relaxed) {
            return Err("interrupted".to_string());
        }
        let (stdout, stderr) = (stdout.text(), stderr.text());
        Ok(Printed {
            stdout: if self.host.is_local { stdout } else { after_banner(&stdout) },
            stderr,
            status: status.code().unwrap_or(-1),
        })
    }
}

/// What a script prints into a pipe.
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Output {
    fn read(pipe: Option<impl Read + Send + 'static>) -> Output {
        let bytes = Arc::new(Mutex::new(vec![]));
        let shared = Arc::clone(&bytes);
        let thread = std::thread::spawn(move || {
            // What is longer is no output of the tool.
            let Some(mut pipe) = pipe.map(|pipe| pipe.take(OUTPUT_BYTES_MAX)) else { return };
            let mut part = [0; 8192];
            while let Ok(count @ 1..) = pipe.read(&mut part) {
                shared.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&part[..count]);
            }
        });
        Output { bytes, thread }
    }

    /// All of it, or what has come so far.
    fn text(self) -> String {
        let _ = poll::until(OUTPUT_PATIENCE, || self.thread.is_finished().then_some(()));
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// The output without what the login shell printed.
fn after_banner(stdout: &str) -> String {
    let at = stdout.find(BEGIN).map(|at| at + BEGIN.len());
    at.map_or("", |at| stdout[at..].trim_start_matches(['\r', '\n'])).to_string()
}

/// A script that runs `work` and ends it when the input of the shell ends; `clean` runs at every end.
pub(super) fn watching(work: &str, clean: &str) -> String {
    // A background command reads from /dev/null unless its input is named, hence descriptor 3. From the end of the work on signals are ignored:
    // the clean-up must not be interrupted by the end of the input, which follows at once. A signal that reaches the work between its fork and its exec is
    // lost, so it is repeated. One that comes before the number of the work is kept finds it in $!.
    format!(
        "exec 3<&0; work=; watch=; again=; ended() {{ trap '' HUP INT TERM; [ -n \"$watch\" ] || work=${{work:-$!}}; \
         if [ -n \"$work\" ] && kill $work 2>/dev/null; then \
         {{ while sleep 1 && kill $work 2>/dev/null; do :; done; }} >/dev/null 2>&1 3<&- & again=$!; fi; \
         [ -z \"$work\" ] || wait $work 2>/dev/null || :; [ -z \"$again\" ] || kill -9 $again 2>/dev/null || :; \
         [ -z \"$watch\" ] || kill -9 $watch 2>/dev/null || :; {clean}; }}; \
         trap ended EXIT; trap 'exit 1' HUP INT TERM; {work} & work=$!; \
         {{ cat <&3 >/dev/null; kill -TERM $$; }} >/dev/null 2>&1 & watch=$!; \
         wait $work; status=$?; trap '' HUP INT TERM; work=; exit $status"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_banner_is_no_output_and_an_open_pipe_holds_nothing_up() {
        assert_eq!(after_banner("Welcome {\n@pgfathom-output\n{\"a\": 1}\n"), "{\"a\": 1}\n");
        assert_eq!(after_banner("Welcome {\n"), "");
        let (host, ways, stop) = (Host::local("here"), Ways::default(), AtomicBool::new(false));
        let shell = Shell { host: &host, ways: &ways, stop: &stop };
        let begun = Instant::now();
        let printed = shell.run("echo out; sleep 30 & exit 0", Duration::from_secs(20)).expect("a shell");
        assert_eq!((printed.stdout.as_str(), printed.status), ("out\n", 0));
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn scripts_print_end_and_are_stopped() {
        let (host, ways, stop) = (Host::local("here"), Ways::default(), AtomicBool::new(false));
        let shell = Shell { host: &host, ways: &ways, stop: &stop };
        let printed = shell.run("echo out; echo err >&2; exit 3", Duration::from_secs(20)).expect("a shell");
        assert_eq!((printed.stdout.as_str(), printed.stderr.as_str(), printed.status), ("out\n", "err\n", 3));

        let file = std::env::temp_dir().join(format!("pgfathom-shell-{}", std::process::id()));
        let clean = format!("echo cleaned >{}", file.display());
        let script = watching("echo done", &clean);
        assert_eq!(shell.run(&script, Duration::from_secs(20)).expect("a shell").stdout, "done\n");
        assert_eq!(std::fs::read_to_string(&file).expect("cleaned"), "cleaned\n");
        std::fs::remove_file(&file).expect("ours");

        // The end of the input comes at any moment of the start: before, between and after the two forks.
        stop.store(true, Ordering::Relaxed);
        for _ in 0..30 {
            let begun = Instant::now();
            let stopped = shell.run(&watching("sleep 60", &clean), Duration::from_secs(50));
            assert_eq!(stopped.expect_err("stopped"), "interrupted");
            assert!(begun.elapsed() < Duration::from_secs(30) && file.exists());
            std::fs::remove_file(&file).expect("ours");
        }
    }
}
