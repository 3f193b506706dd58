//! Output of other programs: `smartctl`, `chronyc`, `auditctl`, `zpool`. They run only if they are installed, never delay a
//! tick, and never run when a recording is read. Functions of text parse their output, so recordings of it can be tested.

use super::files::Files;
use super::hardware::{Counter, Kind};
use connect::poll;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

/// The time limit for a program: a failing disk can block `smartctl` for minutes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Output kept of a program.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Folders with programs that a user's PATH often lacks.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// The path of a program, by PATH and the system's folders.
pub fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.iter().map(Path::new).map(Path::to_path_buf))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Runs a program to its end and returns what it printed, whatever its exit code (`smartctl` reports findings in it); `None` if it
/// could not be run or did not end.
pub fn output(program: &Path, arguments: &[&str]) -> Option<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut pipe = child.stdout.take()?;
    let (detail, text) = channel();
    // A separate reader, because a program with much output would block on a full pipe while we wait for its end.
    std::thread::spawn(move || {
        let mut bytes = vec![];
        let _ = pipe.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        let _ = detail.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    let ended = poll::until(PATIENCE, || child.try_wait().transpose());
    if !matches!(ended, Some(Ok(_))) {
        let _ = child.kill();
        // A process in uninterruptible sleep ends later: no thread waits for it here.
        return None;
    }
    text.recv_timeout(PATIENCE).ok()
}

/// The drive's health in `smartctl -j -a`. A clean report does not rule out a bad drive: slow drives had one.
pub fn smartctl(json: &str) -> Vec<Counter> {
    let Ok(report) = serde_json::from_str::<Value>(json) else { return vec![] };
    let device = report.pointer("/device/name").and_then(Value::as_str).unwrap_or("drive");
    let device = device.trim_start_matches("/dev/");
    let mut found = vec![];
    let mut push = |name: &str, value: Option<u64>, is_remarkable: fn(u64) -> bool| {
        if let Some(value) = value {
            let name = format!("{device} {name}");
            found.push(Counter::new(Kind::Smart, name, value, is_remarkable(value)));
        }
    };
    let log = report.get("nvme_smart_health_information_log");
    let nvme = |name: &str| log.and_then(|log| log.get(name)).and_then(Value::as_u64);
    push("critical_warning", nvme("critical_warning"), |value| value > 0);
    push("media_errors", nvme("media_errors"), |value| value > 0);
    push("num_err_log_entries", nvme("num_err_log_entries"), |_| false);
    // The rated life is used up.
    push("percentage_used", nvme("percentage_used"), |value| value >= 100);
    let spare = nvme("available_spare");
    let threshold = nvme("available_spare_threshold").unwrap_or(0);
    push("available_spare_below_threshold", spare.map(|spare| u64::from(spare < threshold)), |value| {
        value > 0
    });
    push("warning_temp_minutes", nvme("warning_temp_time"), |value| value > 0);
    push("thermal_throttle_s", nvme("thm_temp1_total_time"), |value| value > 0);
    if let Some(passed) = report.pointer("/smart_status/passed").and_then(Value::as_bool) {
        push("smart_failed", Some(u64::from(!passed)), |value| value > 0);
    }
    let exit = report.pointer("/smartctl/exit_status").and_then(Value::as_u64);
    push("smartctl_exit_bits", exit, |value| value != 0);
    // ATA attributes whose raw value counts failures.
    const ATA: [(u64, &str); 4] = [
        (5, "reallocated_sectors"),
        (197, "pending_sectors"),
        (198, "uncorrectable_sectors"),
        (199, "interface_crc_errors"),
    ];
    let table = report.pointer("/ata_smart_attributes/table").and_then(Value::as_array);
    for attribute in table.into_iter().flatten() {
        let id = attribute.get("id").and_then(Value::as_u64);
        if let Some((_, name)) = ATA.iter().find(|(known, _)| Some(*known) == id) {
            push(name, attribute.pointer("/raw/value").and_then(Value::as_u64), |value| value > 0);
        }
    }
    found
}

/// The output of `chronyc -c tracking`.
#[derive(Clone, PartialEq, Debug)]
pub struct Tracking {
    /// Who the clock follows.
    pub reference: String,
    /// Distance from the reference clock; 0 is not synchronised.
    pub stratum: u64,
    /// The current error of the clock, by chrony's estimate.
    pub offset_us: f64,
    /// Bound of the error: dispersion and half of the delay to the root.
    pub error_us: f64,
    /// `Normal`, `Insert second`, `Not synchronised`, ...
    pub leap: String,
}

/// Reads `chronyc -c tracking`: one line of comma-separated values.
pub(crate) fn chronyc_tracking(text: &str) -> Option<Tracking> {
    const FIELDS: usize = 14;
    const US_PER_S: f64 = 1e6;
    let fields: Vec<&str> = text.lines().next()?.split(',').collect();
    if fields.len() < FIELDS {
        return None;
    }
    let seconds = |index: usize| fields[index].trim().parse::<f64>().ok().filter(|value| value.is_finite());
    Some(Tracking {
        reference: fields[1].to_string(),
        stratum: fields[2].parse().ok()?,
        offset_us: seconds(4)? * US_PER_S,
        error_us: (seconds(11)? + seconds(10)? / 2.0) * US_PER_S,
        leap: fields[13].trim().to_string(),
    })
}

/// The output of the programs of this host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ToolOutput {
    /// `smartctl`; `None` if it is missing or may not read any drive.
    pub smart: Option<Vec<Counter>>,
    /// `chronyc`.
    pub tracking: Option<Tracking>,
    /// `auditctl -s` and `-l`; `None` if it is missing or lacks the privilege.
    pub audit: Option<(super::security::AuditStatus, Vec<String>)>,
    /// Members of ZFS pools.
    pub pools: std::collections::BTreeMap<String, Vec<String>>,
}

/// Queries all of them.
pub fn ask(disks: &[String]) -> ToolOutput {
    run_all(disks, |program, arguments| output(&find(program)?, arguments))
}

/// The file of a shipment that lists the programs of a remote host.
pub(crate) const PROGRAMS_PATH: &str = "/@/programs";

/// The output of the programs of a remote host, when its shell has sent it.
pub(crate) fn shipped(files: &mut dyn Files, disks: &[String]) -> Option<ToolOutput> {
    files.text(PROGRAMS_PATH).ok()?;
    Some(run_all(disks, |program, arguments| {
        let name = match (program, arguments) {
            ("smartctl", [.., device]) => format!("smartctl/{}", device.trim_start_matches("/dev/")),
            ("auditctl", [flag, ..]) => format!("auditctl{flag}"),
            _ => program.to_string(),
        };
        files.text(&format!("/@/{name}")).ok().map(str::to_string)
    }))
}

/// Runs each program by `run_program`, which returns its output, or `None` if it is missing.
fn run_all(disks: &[String], mut run_program: impl FnMut(&str, &[&str]) -> Option<String>) -> ToolOutput {
    let mut found = ToolOutput::default();
    let mut counters = vec![];
    for disk in disks {
        let device = format!("/dev/{disk}");
        // A sleeping disk is left asleep.
        let text = run_program("smartctl", &["-j", "-a", "-n", "standby", &device]).unwrap_or_default();
        counters.extend(smartctl(&text));
    }
    // Without the privilege there is only an exit code.
    let has_health = counters.iter().any(|counter| !counter.name.ends_with("smartctl_exit_bits"));
    found.smart = has_health.then_some(counters);
    found.tracking = run_program("chronyc", &["-c", "tracking"]).as_deref().and_then(chronyc_tracking);
    if let Some(text) = run_program("auditctl", &["-s"]) {
        let status = super::security::audit_status(&text);
        if status.enabled.is_some() {
            let rules = super::security::audit_rules(&run_program("auditctl", &["-l"]).unwrap_or_default());
            found.audit = Some((status, rules));
        }
    }
    if let Some(text) = run_program("zpool", &["status", "-LP"]) {
        found.pools = super::topology::zpool_members(&text);
    }
    found
}

/// Runs the programs in the background; at most one run at a time.
#[derive(Debug, Default)]
pub struct ToolQuery {
    answer: Option<Receiver<ToolOutput>>,
}

impl ToolQuery {
    /// Starts a run, unless an earlier one has not ended (a program hangs).
    pub fn begin(&mut self, disks: Vec<String>) {
        if self.answer.is_none() {
            let (detail, answer) = channel();
            std::thread::spawn(move || {
                // If the sampling is over, nothing reads this.
                let _ = detail.send(ask(&disks));
            });
            self.answer = Some(answer);
        }
    }

    /// The answer, once.
    pub fn answer(&mut self) -> Option<ToolOutput> {
        match self.answer.as_ref()?.try_recv() {
            Ok(reported) => {
                self.answer = None;
                Some(reported)
            }
            Err(TryRecvError::Disconnected) => {
                self.answer = None;
                None
            }
            Err(TryRecvError::Empty) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remarkable(counters: &[Counter]) -> Vec<(&str, u64)> {
        let of = counters.iter().filter(|counter| counter.is_remarkable);
        of.map(|counter| (counter.name.as_str(), counter.value)).collect()
    }

    #[test]
    fn a_worn_nvme_drive() {
        let found = smartctl(include_str!("../../tests/fixtures/smartctl-nvme-worn.json"));
        assert_eq!(
            remarkable(&found),
            [
                ("nvme0n1 critical_warning", 4),
                ("nvme0n1 media_errors", 17),
                ("nvme0n1 percentage_used", 103),
                ("nvme0n1 available_spare_below_threshold", 1),
                ("nvme0n1 warning_temp_minutes", 12),
                ("nvme0n1 smart_failed", 1),
                ("nvme0n1 smartctl_exit_bits", 8),
            ]
        );
    }

    #[test]
    fn a_clean_drive_and_an_ata_drive() {
        let clean = smartctl(include_str!("../../tests/fixtures/smartctl-nvme-clean.json"));
        assert!(remarkable(&clean).is_empty() && clean.len() >= 8, "{clean:?}");
        let ata = smartctl(include_str!("../../tests/fixtures/smartctl-ata.json"));
        assert_eq!(remarkable(&ata), [("sda pending_sectors", 8), ("sda interface_crc_errors", 41)]);
        assert!(smartctl("{").is_empty() && smartctl("[]").is_empty());
    }

    #[test]
    fn chrony_in_time_and_out_of_it() {
        let good =
            chronyc_tracking(include_str!("../../tests/fixtures/chronyc-tracking.csv")).expect("14 fields");
        assert_eq!(
            (good.stratum, good.leap.as_str(), good.reference.as_str()),
            (3, "Normal", "ntp1.example.net")
        );
        assert!((good.offset_us - 12.345).abs() < 1e-6 && (good.error_us - 5_610.0).abs() < 1.0, "{good:?}");
        let lost = chronyc_tracking(
            "00000000,,0,0.000000000,0.000000000,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised\n",
        );
        assert_eq!(lost.expect("14 fields").leap, "Not synchronised");
        assert_eq!(chronyc_tracking("506 Cannot talk to daemon\n"), None);
    }

    #[test]
    fn a_program_is_run_and_one_that_is_not_there_is_not() {
        assert_eq!(find("no-such-program-anywhere"), None);
        let sh = find("sh").expect("a shell");
        assert_eq!(output(&sh, &["-c", "echo yes; exit 4"]).as_deref(), Some("yes\n"));
    }
}
