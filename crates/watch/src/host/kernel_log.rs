//! The kernel's log: `/dev/kmsg` of this machine, or the `dmesg` of another host, reduced to the lines that concern a database.
//!
//! Old lines (before the run) are only counted: they show that something happened, but not now.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use super::files::Absent;

/// The longest record of /dev/kmsg.
const RECORD_BYTES_MAX: usize = 8192;
/// The most records in one tick: a storm of messages must not delay the samples.
const RECORDS_PER_TICK: usize = 2000;
/// Characters of a message that are kept.
const MESSAGE_CHARS_MAX: usize = 300;

/// What cannot be reported without the log.
pub const LOST: &str = "kernel messages about memory, PCIe, disks, file systems and killed processes";

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Microseconds since boot by the kernel's clock, which CLOCK_MONOTONIC follows closely.
    pub boot_us: u64,
    /// What it concerns.
    pub class: &'static str,
    /// The text.
    pub text: String,
}

/// Classes of messages, each with its phrases: the first class counts of which all words of one phrase occur. Words, not patterns:
/// kernels of twenty years phrase differently.
const CLASSES: [(&str, &[&[&str]]); 10] = [
    (
        "edac",
        &[
            &["EDAC", " CE "],
            &["EDAC", " UE "],
            &["EDAC", "error"],
            &["EDAC", "HANDLING MCE"],
            &["Hardware Error"],
            &["mce: [", "Machine check"],
        ],
    ),
    ("aer", &[&["AER:"], &["PCIe Bus Error"]]),
    ("oom", &[&["Out of memory"], &["oom-kill"], &["Killed process"], &["invoked oom-killer"]]),
    (
        "nvme",
        &[&["nvme", "timeout"], &["nvme", "reset"], &["nvme", "abort"], &["nvme", "down"], &["nvme", "rror"]],
    ),
    (
        "disk",
        &[
            &["I/O error"],
            &["critical medium error"],
            &["critical target error"],
            &["ata", "exception"],
            &["Unrecovered read"],
        ],
    ),
    (
        "array",
        &[&["md/raid", "failure"], &["md/raid", "ailed"], &["Disk failure on"], &["device-mapper", "rror"]],
    ),
    (
        "file system",
        &[
            &["EXT4-fs error"],
            &["EXT4-fs warning"],
            &["EXT4-fs", "Remounting"],
            &["XFS", "orruption"],
            &["XFS", "rror"],
            &["BTRFS error"],
            &["BTRFS", "corrupt"],
        ],
    ),
    ("thermal", &[&["temperature above threshold"], &["throttled"], &["critical temperature"]]),
    (
        "hang",
        &[
            &["blocked for more than"],
            &["soft lockup"],
            &["hard LOCKUP"],
            &["rcu", "stall"],
            &["clocksource", "unstable"],
        ],
    ),
    (
        "network",
        &[
            &["NETDEV WATCHDOG"],
            &["Link is Down"],
            &["ink is not ready"],
            &["transmit queue", "timed out"],
            &["nf_conntrack", "table full"],
        ],
    ),
];

/// The subject of a message; `None` if it does not concern a database.
pub fn class(text: &str) -> Option<&'static str> {
    CLASSES
        .into_iter()
        .find(|(_, phrases)| phrases.iter().any(|words| words.iter().all(|word| text.contains(word))))
        .map(|(class, _)| class)
}

/// The number of corrected or uncorrected errors in an EDAC line: `EDAC MC0: 3 CE memory read error on ...`.
pub(crate) fn edac_count(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("EDAC MC")?;
    let mut words = rest.split_once(": ")?.1.split_ascii_whitespace();
    let count = words.next()?.parse().ok()?;
    matches!(words.next()?, "CE" | "UE").then_some(count)
}

fn message(boot_us: u64, text: &str) -> Option<Message> {
    let class = class(text)?;
    Some(Message { boot_us, class, text: text.trim().chars().take(MESSAGE_CHARS_MAX).collect() })
}

/// Reads a record of /dev/kmsg: `priority,number,microseconds,flags;text`, followed by lines with its device.
pub(crate) fn kmsg_record(record: &str) -> Option<Message> {
    let (head, text) = record.split_once(';')?;
    let boot_us = head.split(',').nth(2)?.parse().ok()?;
    message(boot_us, text.lines().next()?)
}

/// Reads a line of `dmesg`: `[  123.456789] text`.
pub(crate) fn dmesg_line(line: &str) -> Option<Message> {
    let (stamp, text) = line.strip_prefix('[')?.split_once(']')?;
    let (seconds, micros) = stamp.trim().split_once('.')?;
    let micros: u64 = format!("{micros:0<6}").get(..6)?.parse().ok()?;
    let boot_us = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)?;
    message(boot_us, text)
}

/// Follows /dev/kmsg.
#[derive(Debug)]
pub struct Follower {
    file: File,
    record: Vec<u8>,
}

impl Follower {
    /// Opens the log at its oldest message.
    ///
    /// # Errors
    /// [`Absent::Denied`] if the kernel hides its log from this user (`kernel.dmesg_restrict`).
    pub fn open(path: &str) -> Result<Follower, Absent> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path);
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::NotFound => Absent::Missing,
            ErrorKind::PermissionDenied => Absent::Denied,
            _ => Absent::Unreadable,
        })?;
        Ok(Follower { file, record: vec![0; RECORD_BYTES_MAX] })
    }

    /// The messages that concern a database since the last call, and whether some were overwritten before they could be read.
    pub(crate) fn new_messages(&mut self) -> (Vec<Message>, bool) {
        let mut messages = vec![];
        let mut is_torn = false;
        for _ in 0..RECORDS_PER_TICK {
            match self.file.read(&mut self.record) {
                Ok(0) => break,
                Ok(length) => messages.extend(kmsg_record(&String::from_utf8_lossy(&self.record[..length]))),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The ring was overwritten: the next read continues with the oldest remaining message.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => is_torn = true,
                Err(_) => break,
            }
        }
        (messages, is_torn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_lines_say_the_same() {
        let text = "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#1 (channel:1 slot:1 page:0x1 offset:0x0 grain:32 syndrome:0x0)";
        let record = format!("3,1234,5000001,-;{text}\n SUBSYSTEM=pci\n");
        let expected = Message { boot_us: 5_000_001, class: "edac", text: text.to_string() };
        assert_eq!(kmsg_record(&record), Some(expected.clone()));
        assert_eq!(dmesg_line(&format!("[    5.000001] {text}")), Some(expected));
        assert_eq!(edac_count(text), Some(1));
        assert_eq!(
            edac_count(
                "EDAC MC5: 2 CE memory read error on CPU_SrcID#1_MC#1_Chan#0_DIMM#0 (channel:0 slot:0)"
            ),
            Some(2)
        );
        assert_eq!(edac_count("EDAC MC: Ver: 3.0.0"), None);
    }

    #[test]
    fn what_concerns_a_database() {
        for (text, expected) in [
            ("mce: [Hardware Error]: Machine check events logged", Some("edac")),
            ("EDAC skx MC5: HANDLING MCE MEMORY ERROR", Some("edac")),
            ("EDAC sbridge: Seeking for: PCI ID 8086:6fa0", None),
            ("EDAC MC1: 1 UE memory scrubbing error on unknown memory", Some("edac")),
            ("pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0", Some("aer")),
            ("nvme nvme3: I/O 12 QID 5 timeout, aborting", Some("nvme")),
            ("nvme nvme0: 32/0/0 default/read/poll queues", None),
            ("Out of memory: Killed process 4711 (postgres) total-vm:1kB", Some("oom")),
            ("blk_update_request: I/O error, dev sda, sector 5", Some("disk")),
            ("md/raid10:md0: Disk failure on sdc, disabling device.", Some("array")),
            ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2", Some("file system")),
            ("EXT4-fs (sda1): mounted filesystem with ordered data mode", None),
            ("CPU7: Core temperature above threshold, cpu clock throttled", Some("thermal")),
            ("INFO: task postgres:4711 blocked for more than 120 seconds.", Some("hang")),
            ("NETDEV WATCHDOG: eth0 (ixgbe): transmit queue 3 timed out", Some("network")),
            ("usb 1-1: new high-speed USB device", None),
        ] {
            assert_eq!(class(text), expected, "{text}");
        }
    }

    #[test]
    fn torn_records_are_no_messages() {
        for record in ["", ";", "3,1;Out of memory", "3,1,x,-;Out of memory", "3,1,5,-;"] {
            assert_eq!(kmsg_record(record), None, "{record}");
        }
        for line in ["", "[", "[5] Out of memory", "[ x.y] Out of memory", "Out of memory"] {
            assert_eq!(dmesg_line(line), None, "{line}");
        }
        assert_eq!(Follower::open("/nowhere/kmsg").err(), Some(Absent::Missing));
    }
}
