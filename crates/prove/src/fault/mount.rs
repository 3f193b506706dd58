//! Mounting and unmounting of disk images with the programs of the system.

use super::FaultError;
use connect::poll;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long an unmount is tried: the last process of a killed server may still be ending.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(20);

/// Unmounts and removes everything; missing parts are no error.
pub(super) fn remove(mount: &Path, image: &Path) -> Result<(), FaultError> {
    if is_mounted(mount) {
        unmount(mount)?;
    }
    match fs::remove_dir(mount) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(FaultError::io("remove", mount)(error));
        }
        _ => {}
    }
    match fs::remove_file(image) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(FaultError::io("remove", image)(error))
        }
        _ => Ok(()),
    }
}

/// Whether something is mounted there.
pub fn is_mounted(mount: &Path) -> bool {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    text.lines().any(|line| line.split(' ').nth(1) == mount.to_str())
}

pub(super) fn unmount(mount: &Path) -> Result<(), FaultError> {
    poll::retry(UNMOUNT_TIMEOUT, |_| true, || run("umount", &[], &[mount]))
}

pub(super) fn run(program: &'static str, flags: &[&str], paths: &[&Path]) -> Result<(), FaultError> {
    let mut command = Command::new(program);
    // The tools are in a folder that is not on the PATH of an ordinary user.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.args(flags).args(paths).output();
    let output = output.map_err(|error| FaultError::Program { program, output: error.to_string() })?;
    if output.status.success() {
        return Ok(());
    }
    let mut words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if words.is_empty() {
        words = output.status.to_string();
    }
    Err(FaultError::Program { program, output: words })
}
