//! `findings.json`: what `explain` claims about causes, with the evidence, and which rules found nothing.
//!
//! A claim without a level is a guess, so each carries one ([`Level`]), together with what was ruled out and what is still missing.
//! A rule without data is listed as such: "nothing found" and "not covered" are different answers.

use crate::SCHEMA_VERSION;
use crate::error::RecordError;
use crate::file;
use crate::file::write_atomically;
use crate::files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

mod node_time;
mod words;

pub use node_time::{Dimension, NodePart, NodeTime, StatementTime};

/// `schema` of the file.
pub const SCHEMA: &str = "pgfathom.findings";

/// The whole of `findings.json`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Findings {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`crate::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The run that was explained, as in `run.json`.
    pub run_id: String,
    /// The program that wrote this.
    pub tool_version: String,
    /// Worst first.
    pub findings: Vec<Finding>,
    /// Every rule that claims nothing: it looked and found nothing, or could not look.
    pub checked: Vec<Checked>,
    /// Where the time of all sessions went, per node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_time: Vec<NodeTime>,
    /// Slices of the nodes' time that are large and that no finding explains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uncovered: Vec<Uncovered>,
    /// Whether the absence of a finding means something.
    #[serde(skip_serializing_if = "Health::is_unknown")]
    pub health: Health,
    /// What "nothing found" cannot mean, and what to install or grant first, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blind: Vec<String>,
    /// Where the clients' time went, per driven step.
    pub client_time: Vec<ClientTime>,
    /// What limits the trust in the run as a whole, one sentence each: why it is invalid, who else had the processors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validity: Vec<String>,
    /// What the directory lacks as a whole, one sentence each.
    pub missing: Vec<String>,
}

impl Findings {
    /// An empty file of this version.
    pub fn new(run_id: &str, tool_version: &str) -> Findings {
        Findings {
            schema: SCHEMA.to_string(),
            schema_version: SCHEMA_VERSION,
            run_id: run_id.to_string(),
            tool_version: tool_version.to_string(),
            ..Findings::default()
        }
    }

    /// Puts the worst first: [`worst_first`].
    pub fn rank(&mut self) {
        worst_first(&mut self.findings);
    }

    /// Writes `findings.json` into a run directory; a reader finds the old file or the new one, never half of it.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the folder cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), RecordError> {
        write_atomically(&dir.join(files::FINDINGS), self)
    }

    /// The content of `findings.json`: indented, ends with a line feed.
    ///
    /// # Errors
    /// [`RecordError::Json`] if a number has no JSON form.
    pub fn to_json(&self) -> Result<String, RecordError> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|source| RecordError::Json { what: "the findings", source })
    }

    /// Reads `findings.json` of a run directory; `None` if it was not explained yet.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the file is there and cannot be read, [`RecordError::Damaged`] if it is not what it should be.
    pub fn read(dir: &Path) -> Result<Option<Findings>, RecordError> {
        let path = dir.join(files::FINDINGS);
        let bytes = match file::read(&path, file::WHOLE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(RecordError::io("read", path)(error)),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|source| RecordError::Damaged { path, source })
    }
}

/// The rule about the costliest step of any plan.
pub const GENERAL: &str = "PLAN-45";

/// Puts the worst first: by severity, then by the share of DB time, then by how well it is proved, then by the share of client time. A symptom stands
/// behind its cause.
pub(crate) fn worst_first(findings: &mut Vec<Finding>) {
    let share = |finding: &Finding| finding.share_of_client_time.unwrap_or(0.0);
    let impact = |finding: &Finding| finding.impact.unwrap_or(0.0);
    // How well we looked comes behind what we saw.
    let is_about_us = |finding: &Finding| finding.rule.starts_with("OBS-");
    // What fits any statement comes behind what is known of this one.
    let is_general = |finding: &Finding| finding.rule == GENERAL;
    findings.sort_by(|left, right| {
        (right.severity.cmp(&left.severity))
            .then_with(|| is_about_us(left).cmp(&is_about_us(right)))
            .then_with(|| is_general(left).cmp(&is_general(right)))
            .then_with(|| impact(right).total_cmp(&impact(left)))
            .then_with(|| right.level.cmp(&left.level))
            .then_with(|| share(right).total_cmp(&share(left)))
            .then_with(|| (&left.rule, &left.id).cmp(&(&right.rule, &right.id)))
    });
    let ids: Vec<String> = findings.iter().map(|finding| finding.id.clone()).collect();
    let is_symptom = |finding: &Finding| finding.symptom_of.as_ref().is_some_and(|cause| ids.contains(cause));
    let (mut symptoms, causes): (Vec<Finding>, Vec<Finding>) =
        std::mem::take(findings).into_iter().partition(is_symptom);
    for cause in causes {
        let id = cause.id.clone();
        findings.push(cause);
        let (own, others) =
            symptoms.into_iter().partition(|symptom| symptom.symptom_of.as_deref() == Some(id.as_str()));
        findings.extend::<Vec<Finding>>(own);
        symptoms = others;
    }
    // Symptoms of symptoms, which a reader of a foreign file may meet.
    findings.extend(symptoms);
}

/// A claim about a cause.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Finding {
    /// Unique in the file: the rule, and a number if it claims several things. `WAL-02`, `VAC-05.2`.
    pub id: String,
    /// The rule's stable name.
    #[serde(alias = "code")]
    pub rule: String,
    /// The condition in a few words.
    pub title: String,
    /// One sentence with the numbers.
    pub claim: String,
    /// How much it matters.
    pub severity: Severity,
    /// How well it is proved.
    #[serde(alias = "proof")]
    pub level: Level,
    /// When it was present.
    pub windows: Vec<Window>,
    /// The database node, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The machine, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What was measured, by name; the unit stands last in the name.
    pub numbers: BTreeMap<String, f64>,
    /// The evidence, one sentence each.
    pub evidence: Vec<String>,
    /// Other causes that the same record excludes, and by what.
    pub ruled_out: Vec<String>,
    /// What would have proved more, and why it is not there.
    pub missing: Vec<String>,
    /// What to do about it.
    pub remedy: Remedy,
    /// Its part of the time that clients waited, 0 to 1, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_of_client_time: Option<f64>,
    /// The share of the DB time (time of active sessions) of its node that it takes, 0 to 1; absent if it is not about time, or not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impact: Option<f64>,
    /// The share of the DB time that the remedy would save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub benefit: Option<Benefit>,
    /// Other nodes or hosts with the same cause; `node` and `host` name the worst.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_at: Vec<String>,
    /// The id of the finding that causes this one: this is then a symptom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symptom_of: Option<String>,
    /// Where to read more.
    pub links: Vec<String>,
}

/// What a remedy would save, as a range of shares of the DB time, 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Benefit {
    /// At least.
    pub least: f64,
    /// At most.
    pub most: f64,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, from = "RemedyInFile")]
pub struct Remedy {
    /// In words.
    pub text: String,
    /// What to type: SQL, or a shell line that begins with `$ `.
    pub commands: Vec<String>,
}

/// A remedy as directories have it: summaries used to hold its words alone.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
enum RemedyInFile {
    Words(String),
    Whole {
        #[serde(default)]
        text: String,
        #[serde(default)]
        commands: Vec<String>,
    },
}

impl From<RemedyInFile> for Remedy {
    fn from(remedy: RemedyInFile) -> Remedy {
        match remedy {
            RemedyInFile::Words(text) => Remedy { text, ..Remedy::default() },
            RemedyInFile::Whole { text, commands } => Remedy { text, commands },
        }
    }
}

/// A stretch of time on the run's clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Window {
    /// Begin.
    pub from_us: u64,
    /// End.
    pub to_us: u64,
}

impl Window {
    /// From here to there.
    pub fn new(from_us: u64, to_us: u64) -> Window {
        Window { from_us, to_us: to_us.max(from_us) }
    }

    /// Its length.
    pub fn length_us(self) -> u64 {
        self.to_us.saturating_sub(self.from_us)
    }

    /// How long both last together.
    pub fn overlap_us(self, other: Window) -> u64 {
        self.to_us.min(other.to_us).saturating_sub(self.from_us.max(other.from_us))
    }

    /// Whether a moment lies in it: after its begin, not after its end, as samples end their intervals.
    pub fn holds(self, t_us: u64) -> bool {
        self.from_us < t_us && t_us <= self.to_us
    }
}

/// How much a finding matters. Later is worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; nothing is wrong by it alone.
    #[default]
    Note,
    /// Costs something.
    Low,
    /// Costs much, or will stop the target if nothing is done.
    Medium,
    /// Dominates the result, or is about to stop the target, or endangers data.
    High,
}

impl Severity {
    /// The word in the file.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
        }
    }
}

/// How well a claim is proved. Later is stronger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It can be seen; several causes explain it.
    #[default]
    Symptom,
    /// Cause and effect come at the same times, more often than chance would have it.
    #[serde(alias = "co-occurrence")]
    CoOccurrence,
    /// The server's planner was shown the change, by EXPLAIN alone: an estimate of the effect, nothing was changed or measured.
    #[serde(alias = "what-if")]
    WhatIf,
    /// A counter moved that has no other explanation.
    #[serde(alias = "discriminating counter")]
    DiscriminatingCounter,
    /// Under the same load its peers are well.
    #[serde(alias = "peer contrast")]
    PeerContrast,
    /// It went away when the cause was removed, and came back with it.
    Intervention,
}

impl Level {
    /// Every level, weakest first.
    pub const ALL: [Level; 6] = [
        Level::Symptom,
        Level::CoOccurrence,
        Level::WhatIf,
        Level::DiscriminatingCounter,
        Level::PeerContrast,
        Level::Intervention,
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Level::Symptom => "symptom",
            Level::CoOccurrence => "co-occurrence",
            Level::WhatIf => "what-if",
            Level::DiscriminatingCounter => "discriminating counter",
            Level::PeerContrast => "peer contrast",
            Level::Intervention => "intervention",
        }
    }
}

/// A rule that claims nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Checked {
    /// Its stable name.
    pub rule: String,
    /// The condition in a few words.
    pub title: String,
    /// Whether it could look.
    #[serde(rename = "said")]
    pub state: CheckState,
    /// Clean: what was looked at. Cannot tell: what is missing.
    pub why: String,
}

/// The state of a rule without a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// It looked, and the condition is not there.
    Clean,
    /// It could not look. Never means that all is well.
    #[default]
    CannotTell,
}

/// The answer about the target, which is another thing than the validity of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// The directory does not contain enough for an answer.
    #[default]
    CannotTell,
    /// Looked at, and nothing that costs time or endangers anything was found.
    Clear,
    /// Nothing was found, but a large part of the time is explained by no rule.
    NotCovered,
    /// Something costs a little.
    Minor,
    /// Something costs much or endangers the target.
    Troubled,
}

impl Health {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Health::CannotTell => "cannot tell",
            Health::Clear => "clear",
            Health::NotCovered => "not covered by any rule",
            Health::Minor => "minor findings",
            Health::Troubled => "troubled",
        }
    }

    fn is_unknown(&self) -> bool {
        *self == Health::CannotTell
    }
}

/// A slice of a node's time that is large, and that no finding explains.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Uncovered {
    /// The node.
    pub node: String,
    /// Name of the part, as in [`NodePart::name`], or of the wait event.
    pub slice: String,
    /// Average sessions.
    pub sessions: f64,
    /// Of the DB time.
    pub share: f64,
    /// Where to look, in a sentence.
    pub look_at: String,
    /// What to type.
    pub commands: Vec<String>,
}

/// Where the time went that clients waited in one step.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientTime {
    /// Key of the step.
    pub step: String,
    /// Transactions that were looked at.
    pub transactions: u64,
    /// Their mean response time, which is what the parts add up to.
    pub response_us_mean: f64,
    /// The parts, `unexplained` last and always there. Measured apart, so that they may add up to more than the whole: then nothing
    /// is unexplained, and a note has the size of the overlap. No part is negative.
    pub parts: Vec<Part>,
    /// What a careful reader should know about them.
    pub notes: Vec<String>,
}

/// A part of the response time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TimePart"))]
#[serde(default)]
pub struct Part {
    /// `lag and backlog`, `round trips`, `CPU`, `LWLock`, `IO`, ..., `unexplained`.
    pub name: String,
    /// Of the mean response time.
    pub us: f64,
    /// The same as a share of it.
    pub share: f64,
    /// The largest wait events in it, with their shares; empty if it has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<(String, f64)>,
}

#[cfg(test)]
mod tests;
