//! Which hosts `watch` looks at, and how evidence is exported.

use crate::context::Context;
use crate::failure::Failure;
use crate::quantity::ValueError;
use crate::recording::Recording;
use ::watch::bundle::{self, redact::Redaction};
use ::watch::perf::Mode;
use ::watch::ssh::Remote;
use ::watch::{Board, Collect, collectors, machines};
use connect::ConnSpec;
use engines::ClusterNode;
use record::State;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The end of a bundle's name unless another is named.
const BUNDLE_END: &str = ".tar.gz";

/// Which hosts to watch, and what of them.
#[derive(Clone, Debug)]
pub struct Machines {
    /// Further hosts.
    pub ssh: Vec<RemoteHost>,
    /// When to keep stacks of all processors.
    pub perf: Mode,
    /// Read a copy of /proc and /sys below this folder in place of this host's.
    pub sysroot: Option<PathBuf>,
}

impl Default for Machines {
    fn default() -> Machines {
        Machines { ssh: Vec::new(), perf: Mode::Auto, sysroot: None }
    }
}

/// A host behind ssh.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteHost {
    /// HOST or USER@HOST, as for ssh.
    pub destination: String,
    /// The nodes that run on it; without them those that are connected to by its name.
    pub nodes: Option<Vec<String>>,
}

impl FromStr for RemoteHost {
    type Err = ValueError;

    /// Reads `HOST` or `HOST=NODE,...`.
    fn from_str(text: &str) -> Result<RemoteHost, ValueError> {
        const HINT: &str =
            "write HOST or USER@HOST as for ssh, or HOST=NODE,... for the nodes that run on it";
        let (destination, nodes) = match text.split_once('=') {
            Some((destination, nodes)) => {
                let names = nodes.split(',').map(str::trim).map(str::to_string).collect::<Vec<_>>();
                if names.iter().any(String::is_empty) {
                    return Err(ValueError::new(format!("{text:?} contains an empty node name"), HINT));
                }
                (destination, Some(names))
            }
            None => (text, None),
        };
        // What begins with a dash would be an option of ssh's.
        if destination.is_empty() || destination.starts_with('-') || destination.contains(char::is_whitespace)
        {
            return Err(ValueError::new(format!("{text:?} has no host"), HINT));
        }
        Ok(RemoteHost { destination: destination.to_string(), nodes })
    }
}

impl RemoteHost {
    /// The machine's name in the record.
    pub fn host(&self) -> &str {
        self.destination.rsplit_once('@').map_or(&self.destination, |(_, host)| host)
    }

    /// The machine with its nodes.
    ///
    /// # Errors
    /// When a node was named that the cluster has not.
    fn remote(&self, nodes: &[ClusterNode]) -> Result<Remote, Failure> {
        let names = match &self.nodes {
            Some(names) => {
                if let Some(name) = names.iter().find(|name| nodes.iter().all(|node| node.name != **name)) {
                    let known: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
                    return Err(Failure::usage(format!(
                        "--ssh {}={name}: there is no node {name}",
                        self.destination
                    ))
                    .hint(format!("the nodes are {}", known.join(", "))));
                }
                names.clone()
            }
            None => {
                let is_on =
                    |spec: &ConnSpec| spec.hosts.iter().any(|host| host.host.to_string() == self.host());
                nodes.iter().filter(|node| is_on(&node.spec)).map(|node| node.name.clone()).collect()
            }
        };
        Ok(Remote::new(self.host(), &self.destination, names))
    }
}

impl Machines {
    /// The collectors of this machine, unless it is left out, and of the others.
    ///
    /// # Errors
    /// When `--ssh` names a node that is not there.
    pub fn collectors(
        &self,
        is_here: bool,
        nodes: &[ClusterNode],
        board: &Arc<Board>,
        run_dir: &Path,
    ) -> Result<Vec<Box<dyn Collect>>, Failure> {
        let mut all = vec![];
        if is_here {
            all =
                machines::here(&collectors::host_name(), board, self.sysroot.as_deref(), self.perf, run_dir);
        }
        for way in &self.ssh {
            all.push(machines::there(way.remote(nodes)?, board));
        }
        Ok(all)
    }

    /// Refuses a recording that is none, before any host is reached.
    ///
    /// # Errors
    /// When `--sysroot` names no folder with a `proc` in it.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.sysroot {
            Some(root) if !root.join("proc").is_dir() => {
                Err(Failure::usage(format!("--sysroot {}: there is no folder proc in it", root.display()))
                    .hint("name a folder that holds copies of /proc and /sys"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses machines with nodes that are not there.
    ///
    /// # Errors
    /// When `--ssh` names such a node.
    pub(crate) fn check_nodes(&self, nodes: &[ClusterNode]) -> Result<(), Failure> {
        self.ssh.iter().try_for_each(|way| way.remote(nodes).map(drop))
    }
}

/// How evidence is exported.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Pack the run into one archive, of this name or of the run's.
    pub bundle: Option<Option<PathBuf>>,
    /// What is taken out of the archive.
    pub redact: Option<Redaction>,
    /// Server processes whose core dump is written at the end, beside the run and never into the archive: it holds rows and passwords.
    pub core: Vec<u32>,
}

impl Evidence {
    /// Refuses what cannot be packed, before anything is watched.
    ///
    /// # Errors
    /// When the archive's name has no known ending, or the archive exists.
    pub fn check(&self) -> Result<(), Failure> {
        let Some(Some(archive)) = &self.bundle else { return Ok(()) };
        if !bundle::is_archive(archive) {
            return Err(Failure::usage(format!(
                "--bundle={}: the file name has no known ending",
                archive.display()
            ))
            .hint("name it FILE.tar.gz, or FILE.tar.zst"));
        }
        if archive.exists() {
            return Err(Failure::usage(format!("--bundle={} exists", archive.display()))
                .hint("move it, or name another file"));
        }
        Ok(())
    }

    /// Writes the core dumps that were requested, into the run directory.
    pub fn dump(&self, context: &Context, run_dir: &Path) {
        for pid in &self.core {
            match bundle::core::dump(*pid, run_dir) {
                Ok(path) => context.terminal.say(&format!("core: {}", path.display())),
                // What was watched is worth keeping without it.
                Err(error) => {
                    let hint = error.hint().unwrap_or_default();
                    context.terminal.warn(&format!("{error}; {hint}"));
                }
            }
        }
    }

    /// Packs the run, which ends with this, if that was requested; its page is made where it is opened. Before the recording closes: the last line
    /// names the run directory.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn pack(&self, context: &Context, recording: &Recording<'_>, state: State) -> Result<(), Failure> {
        let Some(archive) = &self.bundle else { return Ok(()) };
        let archive = archive.clone().unwrap_or_else(|| {
            let mut name = recording.path().as_os_str().to_os_string();
            name.push(BUNDLE_END);
            PathBuf::from(name)
        });
        recording.conclude(state)?;
        let packed = bundle::pack(recording.path(), &archive, self.redact.unwrap_or_default())?;
        context.terminal.result(&format!("bundle: {}", packed.path.display()));
        Ok(())
    }
}

/// The run directory that the user named, unpacked if it was named as a bundle.
///
/// # Errors
/// When it is neither.
pub fn opened(named: &Path, context: &Context) -> Result<PathBuf, Failure> {
    if named.is_dir() || !named.exists() {
        // The reader of a folder knows best what is wrong with it.
        return Ok(named.to_path_buf());
    }
    let opened = bundle::open(named)?;
    if opened.is_new {
        context.terminal.say(&format!("unpacked: {}", opened.run_dir.display()));
    }
    Ok(opened.run_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_named_with_their_nodes() {
        let found = "admin@db1=n1,n2".parse::<RemoteHost>().expect("a machine");
        assert_eq!(
            (found.host(), found.nodes.as_deref()),
            ("db1", Some(["n1".to_string(), "n2".to_string()].as_slice()))
        );
        assert_eq!("db1".parse::<RemoteHost>().expect("a machine").host(), "db1");
        for wrong in ["", "=n1", "-oProxyCommand=x", "db1=", "db1=n1,,n2", "a b"] {
            assert!(wrong.parse::<RemoteHost>().is_err(), "{wrong}");
        }
    }
}
