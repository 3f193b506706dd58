//! Programs that intercept the database's system calls: virus scanners (fanotify permission marks) and the audit system.
//!
//! A fanotify permission mark makes every open or read below it wait for another program's answer. The kernel shows the marks of a
//! process in `/proc/PID/fdinfo/FD`, with the id of the mount or the number of the file system; no log mentions them.

use super::files::{Absent, Files};

/// Opens must be permitted.
const OPEN_PERM: u64 = 0x1_0000;
/// Reads must be permitted.
const ACCESS_PERM: u64 = 0x2_0000;
/// Executions must be permitted.
const OPEN_EXEC_PERM: u64 = 0x4_0000;

/// The most descriptors read in one scan, so that a host with thousands of sessions is not scanned for seconds.
pub(crate) const DESCRIPTORS_MAX: usize = 20_000;

/// One mark of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The message types that the caller requests.
    pub pid: u32,
    /// Its program's name.
    pub command: String,
    /// What it lies on.
    pub on: MarkedOn,
    /// The kinds of access that wait, of `open`, `read`, `execute`; empty for a mark that only gets notifications.
    pub waits: Vec<&'static str>,
}

/// What a mark lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkedOn {
    /// A mount, by its id in mountinfo.
    Mount(u64),
    /// A file system, by the kernel's device number.
    FileSystem(u32, u32),
}

/// Reads the marks in one file of `/proc/PID/fdinfo` (proc_pid_fdinfo(5)): `fanotify mnt_id:2c mflags:0 mask:10000 ignored_mask:0` and
/// `fanotify sdev:fd00001 ...`, both hexadecimal.
pub fn marks(text: &str) -> Vec<(MarkedOn, u64)> {
    // The kernel prints its internal number: 12 bits of major above 20 of minor.
    const MINOR_BITS: u32 = 20;
    let mark = |line: &str| {
        let words: Vec<&str> = line.strip_prefix("fanotify ")?.split_ascii_whitespace().collect();
        let field = |name: &str| {
            let value = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix(':'))?;
            u64::from_str_radix(value, 16).ok()
        };
        let on = match (field("mnt_id"), field("sdev")) {
            (Some(id), _) => MarkedOn::Mount(id),
            (None, Some(number)) => {
                let number = u32::try_from(number).ok()?;
                MarkedOn::FileSystem(number >> MINOR_BITS, number & ((1 << MINOR_BITS) - 1))
            }
            _ => return None,
        };
        Some((on, field("mask")?))
    };
    text.lines().filter_map(mark).collect()
}

/// The kinds of access of a mask that wait for an answer.
pub fn waits(mask: u64) -> Vec<&'static str> {
    [(OPEN_PERM, "open"), (ACCESS_PERM, "read"), (OPEN_EXEC_PERM, "execute")]
        .into_iter()
        .filter(|(bit, _)| mask & bit != 0)
        .map(|(_, word)| word)
        .collect()
}

/// The result of a scan of all processes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scan {
    /// The marks.
    pub marks: Vec<Mark>,
    /// Processes that could not be read for lack of privilege.
    pub denied: u64,
    /// The scan stopped at [`DESCRIPTORS_MAX`].
    pub is_cut: bool,
}

/// Scans the descriptors of all processes. Server processes are skipped: they are many and have no marks.
pub fn fanotify(files: &mut dyn Files) -> Scan {
    let mut scan = Scan::default();
    let mut looked_at = 0;
    let pids: Vec<u32> = files.entries("/proc").iter().filter_map(|name| name.parse().ok()).collect();
    for pid in pids {
        let Ok(command) = files.text(&format!("/proc/{pid}/comm")).map(|text| text.trim().to_string()) else {
            continue;
        };
        if command.starts_with("postgres") || command.starts_with("postmaster") {
            continue;
        }
        let descriptors = files.entries(&format!("/proc/{pid}/fd"));
        if descriptors.is_empty() && files.text(&format!("/proc/{pid}/fdinfo/0")) == Err(Absent::Denied) {
            scan.denied += 1;
        }
        for descriptor in descriptors {
            if looked_at >= DESCRIPTORS_MAX {
                scan.is_cut = true;
                return scan;
            }
            looked_at += 1;
            let target = files.link(&format!("/proc/{pid}/fd/{descriptor}")).unwrap_or_default();
            if !target.contains("[fanotify]") {
                continue;
            }
            let Ok(text) = files.text(&format!("/proc/{pid}/fdinfo/{descriptor}")) else { continue };
            for (on, mask) in marks(text) {
                scan.marks.push(Mark { pid, command: command.clone(), on, waits: waits(mask) });
            }
        }
    }
    scan
}

/// The output of `auditctl -s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AuditStatus {
    /// 0 off, 1 on, 2 on until the next boot.
    pub enabled: Option<u64>,
    /// Records that were thrown away.
    pub lost: Option<u64>,
    /// Records that wait for the daemon.
    pub backlog: Option<u64>,
    /// The length of the queue at which processes that cause records have to wait.
    pub backlog_limit: Option<u64>,
}

/// Reads `auditctl -s`: a name and a number per line (since 2.3), or `AUDIT_STATUS: enabled=1 flag=1 ...` in one line before.
pub(crate) fn audit_status(text: &str) -> AuditStatus {
    let mut status = AuditStatus::default();
    let words: Vec<&str> = text.split(|c: char| c.is_ascii_whitespace() || c == '=').collect();
    for pair in words.windows(2) {
        let Ok(value) = pair[1].parse() else { continue };
        match pair[0] {
            "enabled" => status.enabled = Some(value),
            "lost" => status.lost = Some(value),
            "backlog" => status.backlog = Some(value),
            "backlog_limit" => status.backlog_limit = Some(value),
            _ => {}
        }
    }
    status
}

/// The rules of `auditctl -l` that make system calls or file accesses write records; `never` rules cost nothing.
pub(crate) fn audit_rules(text: &str) -> Vec<String> {
    text.lines()
        .map(str::trim)
        .filter(|line| line.starts_with("-a ") || line.starts_with("-w "))
        .filter(|line| !line.contains("never"))
        .map(str::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;

    #[test]
    fn a_scanner_is_named_with_its_mount() {
        let mut files = Shipped::default();
        files.put("/proc/7/comm", "av-agent\n".into());
        files.put_link("/proc/7/fd/3", "anon_inode:[fanotify]");
        files.put_link("/proc/7/fd/4", "/dev/null");
        files.put(
            "/proc/7/fdinfo/3",
            "pos:\t0\nflags:\t02\nfanotify flags:4 event-flags:8000\n\
             fanotify mnt_id:2c mflags:0 mask:10000 ignored_mask:0\nfanotify sdev:fd00001 mflags:0 mask:38 ignored_mask:0\n"
                .into(),
        );
        files.put("/proc/8/comm", "postgres\n".into());
        files.put_link("/proc/8/fd/3", "anon_inode:[fanotify]");
        let scan = fanotify(&mut files);
        assert_eq!(
            scan.marks,
            [
                Mark { pid: 7, command: "av-agent".into(), on: MarkedOn::Mount(44), waits: vec!["open"] },
                Mark { pid: 7, command: "av-agent".into(), on: MarkedOn::FileSystem(253, 1), waits: vec![] },
            ]
        );
        assert_eq!((scan.denied, scan.is_cut), (0, false));
        assert_eq!(waits(0x7_0000), ["open", "read", "execute"]);
    }

    #[test]
    fn torn_marks_are_passed_over() {
        assert!(
            marks("fanotify mnt_id:zz mask:10000\nfanotify mask:1\nfanotify mnt_id:2c\nfanotify\n")
                .is_empty()
        );
    }

    #[test]
    fn audit_of_two_generations() {
        let new = "enabled 1\nfailure 1\npid 500\nrate_limit 0\nbacklog_limit 8192\nlost 17\nbacklog 3\nbacklog_wait_time 60000\n";
        let expected =
            AuditStatus { enabled: Some(1), lost: Some(17), backlog: Some(3), backlog_limit: Some(8192) };
        assert_eq!(audit_status(new), expected);
        let old =
            "AUDIT_STATUS: enabled=1 flag=1 pid=500 rate_limit=0 backlog_limit=8192 lost=17 backlog=3\n";
        assert_eq!(audit_status(old), expected);
        assert_eq!(audit_status("Operation not permitted\n"), AuditStatus::default());
    }

    #[test]
    fn rules_that_cost() {
        let text = "-a always,exit -F arch=b64 -S pwrite64,fdatasync -F key=io\n-w /etc/passwd -p wa\n-a never,exit -S read\nNo rules\n";
        assert_eq!(audit_rules(text).len(), 2);
        assert!(audit_rules("No rules\n").is_empty());
    }
}
