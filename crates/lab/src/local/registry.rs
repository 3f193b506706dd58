//! The list of clusters made by `up`, for `down` without a folder.
//!
//! One small file per cluster, named by a hash of its folder, holding the folder's path. The registry does not prove ownership:
//! the marker inside the cluster's folder does.

use std::fs;
use std::path::{Path, PathBuf};

use super::LocalError;
use connect::os_user::OsUser;

/// The registry's folder: `$XDG_STATE_HOME/pgfathom/clusters`, by default below `~/.local/state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry(PathBuf);

/// The folder for the program's state between two calls: `$XDG_STATE_HOME/pgfathom`, by default below `~/.local/state`.
pub fn state_dir() -> PathBuf {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state = var("XDG_STATE_HOME")
        .or_else(|| {
            var("HOME").or_else(|| OsUser::current().map(|u| u.home)).map(|home| home.join(".local/state"))
        })
        .unwrap_or_else(|| PathBuf::from("/var/lib"));
    state.join("pgfathom")
}

impl Registry {
    /// The registry of this process's user.
    pub fn of_process() -> Registry {
        Registry::at(&state_dir().join("clusters"))
    }

    /// A registry in a folder.
    pub fn at(dir: &Path) -> Registry {
        Registry(dir.to_owned())
    }

    fn entry(&self, cluster: &Path) -> PathBuf {
        // The name must be the same for every build of this program.
        let hash = record::statement::fnv(cluster.as_os_str().as_encoded_bytes().iter().copied());
        self.0.join(format!("{hash:016x}"))
    }

    pub(super) fn add(&self, cluster: &Path) -> Result<(), LocalError> {
        fs::create_dir_all(&self.0).map_err(LocalError::io("create", &self.0))?;
        let entry = self.entry(cluster);
        record::file::replace(&entry, cluster.as_os_str().as_encoded_bytes())
            .map_err(LocalError::io("write", &entry))
    }

    /// A missing entry is no error.
    pub(super) fn remove(&self, cluster: &Path) {
        let _ = fs::remove_file(self.entry(cluster));
    }

    /// Existing folders of clusters, sorted. Entries of missing folders are removed.
    pub fn clusters(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let Ok(text) = super::folder::text_of(&entry.path()) else { continue };
            let dir = PathBuf::from(text);
            if super::folder::is_marked(&dir) {
                found.push(dir);
            } else if !dir.exists() {
                let _ = fs::remove_file(entry.path());
            }
        }
        found.sort();
        found
    }
}
