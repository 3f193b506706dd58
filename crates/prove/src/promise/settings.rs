//! The settings that take promises back.

use target::ConnSpec;

use crate::client::{Client, text};
use crate::fault::Fault;
use crate::live::{LiveError, Options};

/// The settings that take promises back, as the entry node has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// `synchronous_commit` of our sessions.
    pub synchronous_commit: String,
    /// `synchronous_standby_names`.
    pub standby_names: String,
    /// `fsync`.
    pub fsync: String,
}

impl Settings {
    /// Asks. What an engine does not have stays empty.
    ///
    /// # Errors
    /// When nobody answers.
    pub fn of(spec: &ConnSpec, options: &Options) -> Result<Settings, LiveError> {
        let mut client = Client::connect(spec, options.patience)?;
        let mut ask = |name: &str| -> Result<String, LiveError> {
            let reply = client.ask(&format!("show {name}"))?;
            Ok(reply.rows().first().and_then(|row| text(row.first()?)).unwrap_or_default())
        };
        let ours = options.settings.iter().rev().find(|(name, _)| name == "synchronous_commit");
        Ok(Settings {
            synchronous_commit: match ours {
                Some((_, value)) => value.clone(),
                None => ask("synchronous_commit")?,
            },
            standby_names: ask("synchronous_standby_names")?,
            fsync: ask("fsync")?,
        })
    }

    /// Whether a commit waits until a standby has it.
    pub fn waits_for_standbys(&self) -> bool {
        !self.standby_names.is_empty() && !matches!(self.synchronous_commit.as_str(), "off" | "local")
    }

    /// In words, for a column of the matrix.
    pub fn says(&self) -> String {
        let mut words = format!("synchronous_commit={}", self.synchronous_commit);
        if !self.standby_names.is_empty() {
            words.push_str(&format!(", {}", self.standby_names));
        }
        if self.fsync == "off" {
            words.push_str(", fsync=off");
        }
        words
    }

    /// The setting that explains why acknowledged rows may be lost under these faults, and what to change.
    pub(super) fn excuse(
        &self,
        faults: &[Fault],
        has_standbys: bool,
    ) -> Option<(&'static str, &'static str)> {
        let has = |fault: Fault| faults.contains(&fault);
        let crashes = has(Fault::Kill) || has(Fault::Power) || has(Fault::Full);
        if self.synchronous_commit == "off" && crashes {
            return Some((
                "synchronous_commit=off acknowledges before the WAL is written: a crash loses what the WAL writer had not written yet",
                "set synchronous_commit = on, for these transactions at least",
            ));
        }
        if self.fsync == "off" && (has(Fault::Power) || has(Fault::Full)) {
            return Some((
                "fsync=off leaves everything to the kernel's page cache: kill -9 survives it, a power cut does not",
                "set fsync = on",
            ));
        }
        if has(Fault::Promote) && has_standbys && !self.waits_for_standbys() {
            return Some((
                "no standby is waited for: a promoted one lacks what had not reached it",
                "set synchronous_standby_names, and synchronous_commit = on or stronger",
            ));
        }
        if self.synchronous_commit == "remote_write" && has(Fault::Promote) && has(Fault::Power) {
            return Some((
                "remote_write waits until the standby's operating system has the WAL, not its disk",
                "set synchronous_commit = on",
            ));
        }
        None
    }
}
