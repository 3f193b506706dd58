//! Runs the command the way a user does: as a process, in a folder of its own, with an environment of its own.

#![allow(dead_code, reason = "drills use a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh folder that is removed at the end of the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pgfathom-cli-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary folder is writable");
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> &Folder {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folder");
        fs::write(&path, content).expect("the temporary folder is writable");
        self
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How the command ended.
pub(crate) struct Ended {
    pub(crate) exit: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            exit: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The command in `folder`: nothing of the developer's own connection settings reaches it.
pub(crate) fn pgfathom(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgfathom"));
    command.current_dir(folder).env("HOME", folder).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let is_of_the_tests = name == "PGFATHOM_INITDB_SEEDS" || name.starts_with("PGFATHOM_TEST_");
        if (name.starts_with("PG") && !is_of_the_tests)
            || matches!(name.as_str(), "NO_COLOR" | "TERM" | "COLUMNS" | "CLICOLOR_FORCE")
        {
            command.env_remove(name);
        }
    }
    // Threads of the parallel tests must not meet a service file of the machine either.
    command.env("PGSYSCONFDIR", folder);
    command
}

/// Runs it with these arguments.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Ended {
    pgfathom(folder).args(arguments).output().expect("the command starts").into()
}
