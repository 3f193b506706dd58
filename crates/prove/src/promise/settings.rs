//! The settings that weaken promises.

use connect::sql::literal;
use connect::{ConnSpec, cluster_file::Role};
use engines::profile::{Anomaly, Arrangement, Isolation, Place, Rule, Setting};

use crate::client::Client;
use crate::fault::{Fault, Site};
use crate::live::servers::{Observed, Waited};
use crate::live::{LiveError, Options, again};

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

/// What the engine's profile reports about an anomaly, at this level and with these settings.
pub fn rule(site: &Site, settings: &Settings, span: Span, level: Isolation, anomaly: Anomaly) -> Rule {
    let has_standbys = site.nodes.iter().any(|node| node.role == Role::Standby);
    let is_about_standbys = site.engine.promises.iter().any(|promise| promise.at == Arrangement::Standbys);
    let at = match span {
        Span::Everywhere if has_standbys && is_about_standbys => Arrangement::Standbys,
        Span::Everywhere | Span::Entry => Arrangement::Plain,
    };
    let is_set = |setting: Setting| settings.is_set(setting);
    // Our tables are spread over all shards there are.
    let is_spread = site.engine.layout.is_spread();
    site.engine.rule(&Place { level, at, is_spread, is_set: &is_set }, anomaly)
}

impl Settings {
    /// The settings of a site that is there. Where every node has all rows, the others take a moment until they work without one that is lost: that is
    /// waited for.
    ///
    /// # Errors
    /// When no server answers.
    pub fn of_site(site: &Site, options: &Options) -> Result<Settings, LiveError> {
        let read = || {
            site.move_entry();
            Settings::of(&site.entry(), options)
        };
        if site.engine.layout.commits_everywhere() { again(site, read) } else { read() }
    }

    /// Reads the settings. What an engine does not have stays empty.
    ///
    /// # Errors
    /// When no server answers.
    pub fn of(spec: &ConnSpec, options: &Options) -> Result<Settings, LiveError> {
        let mut client = Client::connect(spec, options.patience)?;
        // Servers without the extension, or without standbys, have nothing to say.
        let mut is_true = |sql: &str| -> Result<bool, LiveError> {
            let reply = client.request(sql)?;
            Ok(reply.value().is_some_and(|value| value == "t"))
        };
        let are_all_synchronous = is_true(
            "select count(*) > 0 and bool_and(sync_state = 'sync') from pg_catalog.pg_stat_replication",
        )?;
        let mut show = |name: &str| -> Result<String, LiveError> {
            // Not SHOW: an engine's own setting would be an error in the log of every other server.
            let reply =
                client.request(&format!("select pg_catalog.current_setting({}, true)", literal(name)))?;
            Ok(reply.value().unwrap_or_default())
        };
        let ours = options.settings.iter().rev().find(|(name, _)| name == "synchronous_commit");
        Ok(Settings {
            synchronous_commit: match ours {
                Some((_, value)) => value.clone(),
                None => show("synchronous_commit")?,
            },
            standby_names: show("synchronous_standby_names")?,
            fsync: show("fsync")?,
            csn_snapshot: show("enable_csn_snapshot")?,
            are_all_synchronous,
        })
    }

    /// Whether a setting that decides is so; `None`: it is unknown.
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
            // Our sessions do not request them.
            Setting::StaleReads => Some(false),
        }
    }

    /// Whether a commit waits until a standby has it.
    pub fn waits_for_standbys(&self) -> bool {
        !self.standby_names.is_empty() && !matches!(self.synchronous_commit.as_str(), "off" | "local")
    }

    /// In words, for a column of the matrix.
    pub fn description(&self) -> String {
        let mut words = format!("synchronous_commit={}", self.synchronous_commit);
        if !self.standby_names.is_empty() {
            words.push_str(&format!(", {}", self.standby_names));
        }
        if self.fsync == "off" {
            words.push_str(", fsync=off");
        }
        words
    }

    /// The setting that explains why acknowledged rows may be lost under these faults, and under what else became of the servers, and what to change.
    pub(super) fn excuse(&self, faults: &[Fault], has_standbys: bool, observed: &Observed) -> Option<Excuse> {
        let excuse = |why: &str, change| Some(Excuse { why: why.to_owned(), change });
        let has = |fault: Fault| faults.contains(&fault);
        let injected = has(Fault::Kill) || has(Fault::Crash) || has(Fault::Power) || has(Fault::Full);
        // Another session may have done it.
        let restarted = observed.restarts() > 0;
        if self.synchronous_commit == "off" && (injected || restarted || observed.has_failed_over()) {
            return excuse(
                "synchronous_commit=off acknowledges before the WAL is written: a crash loses what the WAL writer had not written yet",
                "set synchronous_commit = on, for these transactions at least",
            );
        }
        // Of a restart that we did not make it is unknown whether the power was cut.
        let is_unknown = restarted && !injected && !has(Fault::Restart);
        if self.fsync == "off" && (has(Fault::Power) || has(Fault::Full) || is_unknown) {
            return excuse(
                "fsync=off leaves everything to the kernel's page cache: data survives kill -9, but not a power cut",
                "set fsync = on",
            );
        }
        if (has(Fault::Promote) && has_standbys) || observed.has_failed_over() {
            return self.excuse_of_failover(has(Fault::Power), observed);
        }
        None
    }

    /// Why what was acknowledged may be missing on a standby that was promoted.
    fn excuse_of_failover(&self, lost_power: bool, observed: &Observed) -> Option<Excuse> {
        let excuse = |why: String, change| Some(Excuse { why, change });
        let wait = "set synchronous_standby_names, and synchronous_commit = on or stronger";
        if observed.has_returned() {
            return excuse(
                "a primary that had been stopped took its role back; the commits that the standby promoted in its place had acknowledged were discarded"
                    .to_owned(),
                "let the failover manager fence a primary that does not renew its role (with Patroni: a watchdog) before it promotes a standby",
            );
        }
        if !self.waits_for_standbys() && observed.periods.is_empty() {
            return excuse(
                "commits wait for no standby: a promoted one lacks the WAL that had not reached it"
                    .to_owned(),
                wait,
            );
        }
        if matches!(self.synchronous_commit.as_str(), "off" | "local") {
            return excuse(
                format!(
                    "synchronous_commit={} waits for no standby: a promoted one lacks the WAL that had not reached it",
                    self.synchronous_commit
                ),
                wait,
            );
        }
        match observed.waited_for(observed.taker.as_deref()) {
            Waited::No(why) => excuse(
                format!("commits did not wait for the standby that was promoted: {why}"),
                "promote only a standby that every commit waits for: FIRST with this one first in the list, or FIRST or ANY with the number of all of them",
            ),
            Waited::Unknown(why) if !observed.periods.is_empty() => excuse(
                format!("whether commits waited for the standby that was promoted is unknown: {why}"),
                "repeat the proof with a role that has pg_monitor",
            ),
            Waited::Yes | Waited::Unknown(_) if self.synchronous_commit == "remote_write" && lost_power => {
                excuse(
                    "remote_write waits until the standby's operating system has the WAL, not its disk"
                        .to_owned(),
                    "set synchronous_commit = on",
                )
            }
            Waited::Yes | Waited::Unknown(_) => None,
        }
    }

    /// Whether a node shows everything at once that was acknowledged: as long as every commit waited until it had replayed it.
    pub(super) fn applies_on(&self, observed: &Observed, node: usize) -> Waited {
        if self.synchronous_commit != "remote_apply" {
            return Waited::No(
                "the acknowledgement does not wait for another node to apply the write".to_owned(),
            );
        }
        observed.always_waited_for(observed.names.get(node).and_then(Option::as_deref))
    }
}

/// Why something may be lost, and what to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Excuse {
    pub why: String,
    pub change: &'static str,
}
