//! A core dump of one server process, only if the user gave its pid: it contains rows, passwords and keys, so it is never packed into a
//! bundle, and it stops the process while it is written.

use crate::host::files::{Files, Tree};
use crate::host::tools;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// gcore is not there.
    #[error("gcore is not installed")]
    NoProgram,
    /// The pid is not that of a server process.
    #[error("process {pid} is {what}, not a server process of PostgreSQL")]
    NotServer {
        /// As typed.
        pid: u32,
        /// Its program, or that it does not exist.
        what: String,
    },
    /// gcore failed.
    #[error("gcore {pid} failed: {recorded}")]
    Failed {
        /// As typed.
        pid: u32,
        /// Its last words.
        recorded: String,
    },
}

impl CoreError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            CoreError::NoProgram => "install gdb, which contains gcore".to_string(),
            CoreError::NotServer { .. } => {
                "select pid, query from pg_stat_activity lists the server's processes".to_string()
            }
            CoreError::Failed { .. } => {
                "run as root or as the server's user, and check the free space".to_string()
            }
        })
    }
}

/// Writes `FOLDER/core.PID`. The server's other processes continue; this one is stopped meanwhile.
///
/// # Errors
/// When the pid is not that of a server process, or `gcore` fails.
pub fn dump(pid: u32, folder: &Path) -> Result<PathBuf, CoreError> {
    dump_by(tools::find("gcore").ok_or(CoreError::NoProgram)?.as_path(), pid, folder)
}

fn dump_by(program: &Path, pid: u32, folder: &Path) -> Result<PathBuf, CoreError> {
    let command = Tree::live().text(&format!("/proc/{pid}/comm")).map(|text| text.trim().to_string());
    match command.as_deref() {
        Ok("postgres" | "postmaster" | "edb-postgres") => {}
        Ok(other) => return Err(CoreError::NotServer { pid, what: other.to_string() }),
        Err(_) => return Err(CoreError::NotServer { pid, what: "not there".to_string() }),
    }
    let failed = |recorded: String| CoreError::Failed { pid, recorded };
    // It contains rows and passwords: no other user may read it, not even while it is written.
    let output = Command::new("sh")
        .args(["-c", r#"umask 077; exec "$0" "$@""#])
        .arg(program)
        .arg("-o")
        .arg(folder.join("core"))
        .arg(pid.to_string())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    // gcore appends the pid to the given name.
    let path = folder.join(format!("core.{pid}"));
    if output.status.success() && path.is_file() {
        return Ok(path);
    }
    // An incomplete core is useless, and uses the space that was lacking.
    let _ = fs::remove_file(&path);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(failed(
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it wrote no file").to_string(),
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use lab::throwaway::{Throwaway, installations};

    use super::*;

    /// A fake gcore with a given output and exit code: gdb is not on every host.
    fn stand_in(folder: &Path, name: &str, end: u8) -> PathBuf {
        let path = folder.join(name);
        let text =
            format!("#!/bin/sh\necho of $3 >\"$2.$3\"\necho 'No space left on device' >&2\nexit {end}\n");
        fs::write(&path, text).expect("a folder of ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of ours");
        path
    }

    #[test]
    fn a_core_is_for_its_owner_alone_and_half_of_one_is_removed() {
        let installation = installations().into_iter().next().expect("no PostgreSQL on this machine");
        let server = Throwaway::start(&installation, &[]).expect("the throwaway server starts");
        let pid = server.pid().expect("it runs");
        let folder = std::env::temp_dir().join(format!("pgfathom-core-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let path = dump_by(&stand_in(&folder, "good", 0), pid, &folder).expect("a core");
        assert_eq!(fs::read_to_string(&path).expect("ours"), format!("of {pid}\n"));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let failed = dump_by(&stand_in(&folder, "full", 1), pid, &folder).expect_err("it failed");
        assert!(failed.to_string().contains("No space left"), "{failed}");
        assert!(!path.exists());
        fs::remove_dir_all(&folder).expect("a folder of ours");
    }

    #[test]
    fn only_server_processes_are_dumped() {
        let folder = std::env::temp_dir();
        let of_us =
            dump_by(Path::new("/nowhere/gcore"), std::process::id(), &folder).expect_err("we are no server");
        assert!(matches!(of_us, CoreError::NotServer { .. }) && of_us.hint().is_some(), "{of_us}");
        let of_no_process = dump_by(Path::new("/nowhere/gcore"), u32::MAX, &folder).expect_err("no process");
        assert!(of_no_process.to_string().contains("not there"), "{of_no_process}");
    }
}
