//! The host of this process, read from `/proc` and `/sys`. What cannot be read is omitted.

pub(crate) mod share;

use crate::clock;
use serde::{Deserialize, Serialize};
use std::fs;

/// The client's machine. What could not be read is absent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientMachine {
    /// CPUs this process may use.
    pub cpus: u64,
    /// Model name of the first CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// Main memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Kernel name and release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Operating system's name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Clock source of the kernel: `tsc` is fast, `hpet` and `acpi_pm` make every time stamp a system call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
    /// Resolution of CLOCK_MONOTONIC.
    pub clock_resolution_ns: u64,
}

/// Describes this machine.
pub fn this() -> ClientMachine {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    ClientMachine {
        cpus,
        cpu_model: fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| cpu_model(&text)),
        memory_bytes: fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_bytes(&text)),
        kernel: kernel(),
        os: fs::read_to_string("/etc/os-release").ok().and_then(|text| os_name(&text)),
        clock_source: fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .ok()
            .map(|text| text.trim().to_string()),
        clock_resolution_ns: clock::resolution_ns(),
    }
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn kernel() -> Option<String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok();
    Some(format!("{} {}", read("ostype")?.trim(), read("osrelease")?.trim()))
}

fn os_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_understood() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: AMD EPYC 9B14\n").as_deref(),
            Some("AMD EPYC 9B14")
        );
        assert_eq!(cpu_model("CPU part : 0xd0c\n"), None);
        assert_eq!(memory_bytes("MemTotal:       24037844 kB\nMemFree: 1 kB\n"), Some(24_037_844 * 1024));
        assert_eq!(memory_bytes("MemTotal: lots kB"), None);
        let name = os_name("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
        assert_eq!(name.as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
    }

    #[test]
    fn this_machine_has_a_cpu_and_a_clock() {
        let machine = this();
        assert!(machine.cpus >= 1 && machine.clock_resolution_ns >= 1);
    }
}
