//! One `perf record` that runs as long as we do, and writes what it has on request.
//!
//! Around anomalies it keeps the last seconds in a ring in memory and sleeps: it costs only the interrupts. With `always`
//! it writes samples as they come. Its workload is a `cat` that reads from us: when we end, in any way, the `cat` ends, and then perf.

use crate::meter::Meter;
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

/// Samples per second and CPU. Not 50, so that they are not synchronous with timers. Two processors give 1,500 samples in a
/// slice of 15 s: a share of a tenth is known to within two hundredths.
const FREQUENCY: &str = "49";
/// The ring of one processor: what an unprivileged user may lock (`kernel.perf_event_mlock_kb`). A sample of 40 frames takes 400 bytes, so it
/// holds half a minute.
const RING_BYTES: &str = "512K";

/// A running `perf record`.
#[derive(Debug)]
pub(super) struct Ring {
    child: Child,
    /// Its end is perf's end.
    lifeline: Option<ChildStdin>,
    folder: PathBuf,
    name: String,
    complaint: PathBuf,
    meter: Option<Meter>,
}

impl Ring {
    /// Starts it. `keeps_all`: samples are written as they come, not overwritten in memory.
    pub(super) fn start(
        program: &Path,
        folder: &Path,
        number: u64,
        keeps_all: bool,
    ) -> std::io::Result<Ring> {
        record::file::own_folder(folder)?;
        let name = format!("{number}.data");
        let complaint = folder.join(format!("{number}.err"));
        let mut command = Command::new(program);
        command.args(["record", "-q", "-e", "cpu-clock", "-F", FREQUENCY, "-a", "-g", "-k", "mono"]);
        // No build ids are looked up or cached: the symbols are read at once, on this host.
        command.args(["-B", "-N", "-m", RING_BYTES, "--switch-output"]);
        if !keeps_all {
            command.args(["--overwrite", "--tail-synthesize"]);
        }
        command.arg("-o").arg(folder.join(&name)).args(["--", "cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&complaint)?);
        // Ctrl-C is for us.
        let mut child = command.process_group(0).spawn()?;
        let lifeline = child.stdin.take();
        let meter = Meter::of(child.id());
        Ok(Ring { child, lifeline, folder: folder.to_path_buf(), name, complaint, meter })
    }

    /// CPU time since the last call.
    pub(super) fn spent_us(&mut self) -> u64 {
        self.meter.as_mut().and_then(Meter::spent).unwrap_or(0)
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Requests the samples; they come as a file. False if perf is not ready: before it has opened its file the signal would end it.
    pub(super) fn ask(&self) -> bool {
        let is_ready = self.folder.join(&self.name).exists();
        if is_ready {
            self.signal(Signal::USR2);
        }
        is_ready
    }

    /// Ends it; it writes its samples first. SIGTERM, because background jobs ignore SIGINT.
    pub(super) fn end(&mut self) {
        self.lifeline = None;
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Takes the written files, the oldest first: each gets its own name, `taken` counts them. perf gives a file its last name,
    /// with the time in it, when it is complete.
    pub(super) fn take(&self, taken: &mut u64) -> Vec<PathBuf> {
        let prefix = format!("{}.", self.name);
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .filter(|entry| entry.metadata().is_ok_and(|data| data.is_file() && data.len() > 0))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        let mut named = |path: PathBuf| {
            *taken += 1;
            let name = self.folder.join(format!("slice-{taken}"));
            fs::rename(path, &name).ok().map(|()| name)
        };
        found.into_iter().filter_map(&mut named).collect()
    }

    /// Its first words of complaint.
    pub(super) fn complaint(&self) -> String {
        let text = fs::read_to_string(&self.complaint).unwrap_or_default();
        text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given").to_string()
    }
}

/// The measurement has priority over printing.
pub(super) fn lowest_priority(child: &Child) {
    const LOWEST: i32 = 19;
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = setpriority_process(Some(pid), LOWEST);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
