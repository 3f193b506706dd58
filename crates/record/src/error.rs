//! Errors of a run directory.

use std::io;
use std::path::PathBuf;

/// An error of reading or writing a run directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The folder named for the run is in use.
    #[error("run directory {} already exists and is not empty", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// More than [`crate::writer::NAME_TRIES`] runs of that name exist.
    #[error("no free name for the run directory: {} and the following names exist", path.display())]
    NoFreeName {
        /// The first name tried.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: "create", "write", ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The path is no run directory.
    #[error("{} is not a run directory: it has none of run.json, samples.ndjson, events.ndjson, latency.hlog", path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// A file is there and is not what its name implies.
    #[error("{} is damaged: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The decoder's error.
        source: serde_json::Error,
    },
    /// A file of the run holds something else than a run would have written, not even a killed one.
    #[error("{} is not valid: {why}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file was written by a later version of this program.
    #[error("{} has schema version {found}, but this program reads versions up to {known}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The highest version that can be read.
        known: u32,
    },
    /// A histogram could not be encoded. Only a broken counter array can cause it.
    #[error("cannot encode the latency histogram {tag}: {reason}")]
    Encode {
        /// The tag of the interval.
        tag: String,
        /// The encoder's error.
        reason: String,
    },
    /// A value has no JSON form.
    #[error("cannot encode {what} as JSON: {source}")]
    Json {
        /// What was to be written.
        what: &'static str,
        /// The encoder's error.
        source: serde_json::Error,
    },
}

impl RecordError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> RecordError {
        let path = crate::held::shown(&path.into());
        move |source| RecordError::Io { action, path, source }
    }

    /// What the user can type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            RecordError::NotEmpty { path } => Some(format!(
                "name another folder with -o DIR, or omit -o to get a new one; to keep the name: mv {0} {0}.old",
                path.display()
            )),
            RecordError::NoFreeName { .. } => Some("name the run directory with -o DIR".to_string()),
            RecordError::NotARun { .. } => Some(
                "name a folder that a run has written (the last line of its output is \"run: DIR\"); ls runs/".to_string(),
            ),
            RecordError::Io { source, path, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => Some(format!(
                    "the current user has no access to {}; name one of your folders with -o DIR",
                    path.display()
                )),
                io::ErrorKind::StorageFull => Some(format!(
                    "df -h {} shows which file system is full (a tmpfs has a size of its own, whatever the disks have free); \
                     name a folder on another one with -o DIR",
                    path.parent().unwrap_or(path).display()
                )),
                io::ErrorKind::NotFound => {
                    Some("check the spelling; ls runs/ shows the runs here".to_string())
                }
                _ => None,
            },
            RecordError::Damaged { path, .. } => Some(match path.parent() {
                Some(dir) => format!("make it again with pgfathom explain {}", dir.display()),
                None => "make it again with pgfathom explain RUN".to_string(),
            }),
            RecordError::Invalid { path, .. } => Some(format!(
                "use an undamaged copy of the run; the rest of the run can be read without this file: mv {0} {0}.damaged",
                path.display()
            )),
            RecordError::Version { .. } => {
                Some("read the run with the version of pgfathom that wrote it, or a later one".to_string())
            }
            RecordError::Encode { .. } | RecordError::Json { .. } => None,
        }
    }
}
