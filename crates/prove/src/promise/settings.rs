//! The settings that take promises back.

use target::profile::{Anomaly, Arrangement, Level, Place, Rule, Setting};
use target::{ConnSpec, Engine, Role};

use crate::client::{Client, text};
use crate::fault::{Fault, Site};
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
    /// `enable_csn_snapshot` of Shardman; empty: there is none.
    pub csn_snapshot: String,
    /// Whether commits wait for a majority of nodes (Postgres Pro Multimaster).
    pub has_majority: bool,
    /// Whether every standby is a synchronous one.
    pub are_all_synchronous: bool,
}

/// Which sessions take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// Those through the entry only.
    Entry,
    /// Those on every node, standbys and peers, too.
    Everywhere,
}

/// What the engine's profile says about an anomaly, at this level and with these settings.
pub fn rule(site: &Site, settings: &Settings, span: Span, level: Level, anomaly: Anomaly) -> Rule {
    let has_standbys = site.nodes.iter().any(|node| node.role == Role::Standby);
    let at = match (site.engine, span) {
        (Engine::Multimaster, _) if settings.has_majority => Arrangement::Majority,
        (Engine::Multimaster, _) => Arrangement::Asynchronous,
        (Engine::Postgres, Span::Everywhere) if has_standbys => Arrangement::Standbys,
        _ => Arrangement::Plain,
    };
    let is_set = |setting: Setting| settings.is_set(setting);
    // Our tables are spread over all shards there are.
    let is_spread = !matches!(site.engine, Engine::Postgres | Engine::Multimaster);
    site.engine.profile().rule(&Place { level, at, is_spread, is_set: &is_set }, anomaly)
}

impl Settings {
    /// Asks. What an engine does not have stays empty.
    ///
    /// # Errors
    /// When nobody answers.
    pub fn of(spec: &ConnSpec, options: &Options) -> Result<Settings, LiveError> {
        let mut client = Client::connect(spec, options.patience)?;
        // Servers without the extension, or without standbys, have nothing to say.
        let mut is_true = |sql: &str| -> Result<bool, LiveError> {
            let reply = client.ask(sql)?;
            Ok(reply.rows().first().and_then(|row| text(row.first()?)).is_some_and(|value| value == "t"))
        };
        let has_majority =
            is_true("select exists (select from pg_catalog.pg_extension where extname = 'multimaster')")?;
        let are_all_synchronous = is_true(
            "select count(*) > 0 and bool_and(sync_state = 'sync') from pg_catalog.pg_stat_replication",
        )?;
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
            csn_snapshot: ask("enable_csn_snapshot")?,
            has_majority,
            are_all_synchronous,
        })
    }

    /// Whether a setting that decides is so; `None`: nobody knows.
    fn is_set(&self, setting: Setting) -> Option<bool> {
        match setting {
            Setting::CsnSnapshot => match self.csn_snapshot.as_str() {
                "on" => Some(true),
                "off" => Some(false),
                _ => None,
            },
            Setting::RemoteApply => {
                Some(self.synchronous_commit == "remote_apply" && self.are_all_synchronous)
            }
            Setting::SynchronousStandby => Some(self.waits_for_standbys()),
            // Our sessions do not ask for them.
            Setting::StaleReads => Some(false),
        }
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
