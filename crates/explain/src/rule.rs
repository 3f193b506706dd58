//! A rule: data that names what it needs, and one pure function; and its outcome.
//!
//! A rule without data never reports "ok": its needs are checked first, and the outcome names what is missing.

use crate::case::Case;
use crate::command::printable;
use record::finding::{Finding, Level, Remedy, Severity, StatementTime, Window};
use std::collections::BTreeMap;

/// A condition that can be claimed.
#[derive(Debug)]
pub struct Rule {
    /// Stable name: `WAL-02`.
    pub id: &'static str,
    /// The condition in a few words.
    pub title: &'static str,
    /// The required data; all of it must be in the directory.
    pub needs: &'static [Need],
    /// Limits and where they come from, for the manual.
    pub limits: &'static str,
    /// Evaluates the condition.
    pub judge: fn(&Case) -> Answer,
    /// Where to read more.
    pub links: &'static [&'static str],
}

/// Data that a rule needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Lines of a source in which this field is known.
    Field(&'static str, &'static str),
    /// The source was recorded. Having no lines (no slot, no blocked session) is a result, too.
    Looked(&'static str),
    /// Facts of a topic.
    Facts(&'static str),
    /// Stacks.
    Stacks,
    /// A step that drove transactions.
    Driven,
    /// A step that filled.
    Filled,
    /// A node matrix.
    Matrix,
    /// A sweep over numbers of sessions.
    Sweep,
    /// A proof.
    Proof,
    /// So many nodes with this source.
    Peers(&'static str, usize),
    /// One of several.
    Any(&'static [Need]),
}

/// Sources whose collector uses the server's connection, and those that run on the host.
const OF_MACHINES: [&str; 18] = [
    "cgroup", "core", "disk", "net", "nic", "backend", "mount", "hardware", "fanotify", "audit", "edac",
    "aer", "sensors", "thermal", "smart", "mb_stats", "numa", "zfs",
];

impl Need {
    /// `Ok` if it is there, else why not.
    pub fn check(&self, case: &Case) -> Result<(), String> {
        let there = match self {
            Need::Field(source, "*") => case.things(source).next().is_some(),
            Need::Field(source, field) => {
                let known = case
                    .things(source)
                    .any(|thing| thing.lines.series(field).is_some() || !thing.lines.word(field).is_empty());
                known || (*source == "wait" && case.waiting_nodes().next().is_some())
            }
            Need::Looked(source) => {
                let carrier = if OF_MACHINES.contains(source) { "host" } else { "server" };
                let seen = case.things(source).next().is_some() || case.facts(source).next().is_some();
                let waits = *source == "wait" && case.waiting_nodes().next().is_some();
                seen || waits || (case.things(carrier).next().is_some() && gap_of(case, source).is_none())
            }
            Need::Facts(topic) => case.facts(topic).next().is_some(),
            Need::Stacks => case.stacks.is_some(),
            Need::Driven => !case.driven().is_empty(),
            Need::Filled => !case.loads().is_empty(),
            Need::Matrix => case.matrix.is_some(),
            Need::Sweep => case.sweep.is_some(),
            Need::Proof => case.run.steps.iter().any(|step| step.verb == "prove"),
            Need::Peers(source, least) => {
                let mut places: Vec<&str> = case.things(source).map(|thing| thing.place).collect();
                places.dedup();
                places.len() >= *least
            }
            Need::Any(options) => options.iter().any(|option| option.check(case).is_ok()),
        };
        if there { Ok(()) } else { Err(self.why_not(case)) }
    }

    /// Whether it is about plans of statements.
    fn is_of_plans(&self) -> bool {
        matches!(self, Need::Field("plan" | "plan_node" | "plan_index", _))
    }

    /// What it is, in words.
    pub fn words(&self) -> String {
        match self {
            Need::Field("wait", _) | Need::Looked("wait") => "samples of wait events".to_string(),
            Need::Field(source, "*") | Need::Looked(source) => format!("samples of `{source}`"),
            Need::Field(source, field) => format!("`{field}` in samples of `{source}`"),
            Need::Facts(topic) => format!("facts about `{topic}`"),
            Need::Stacks => "stacks (`watch --perf`)".to_string(),
            Need::Driven => "a step that drove transactions".to_string(),
            Need::Filled => "a step that loaded rows".to_string(),
            Need::Matrix => "a node matrix".to_string(),
            Need::Sweep => "a sweep over numbers of sessions".to_string(),
            Need::Proof => "a step of `prove`".to_string(),
            Need::Peers(source, least) => format!("samples of `{source}` of {least} nodes or hosts or more"),
            Need::Any(options) => options.iter().map(Need::words).collect::<Vec<_>>().join(", or "),
        }
    }

    fn why_not(&self, case: &Case) -> String {
        let source = match self {
            Need::Field(source, _) | Need::Looked(source) | Need::Facts(source) => source,
            Need::Stacks => "perf",
            Need::Peers(source, least) => {
                return format!("there are fewer than {least} nodes or hosts to compare (`{source}`)");
            }
            _ => return format!("the directory lacks {}", self.words()),
        };
        match gap_of(case, source) {
            Some(why) => format!("the directory lacks {}: {why}", self.words()),
            None => format!("the directory lacks {}", self.words()),
        }
    }
}

/// The names under which the collectors of a source report what they could not read, if they differ from the source's.
const COLLECTORS: [(&str, &[&str]); 20] = [
    ("server", &["sessions of other roles"]),
    ("wait", &["server", "sessions of other roles", "hidden sessions"]),
    ("session", &["server", "sessions of other roles", "hidden sessions"]),
    ("horizon", &["server", "sessions of other roles", "hidden sessions"]),
    ("block", &["server", "blockers", "sessions of other roles"]),
    ("replication", &["server", "sessions of other roles"]),
    ("slot", &["server"]),
    ("pool", &["pools"]),
    ("pooler", &["pools"]),
    ("subscription", &["server", "subscriptions"]),
    ("progress", &["server"]),
    ("table", &["server", "tables"]),
    ("statement", &["server", "statements", "pg_stat_statements"]),
    ("plan", &["server", "plans", "statements", "pg_stat_statements"]),
    ("what_if", &["server", "plans", "pg_stat_statements"]),
    ("setting", &["server", "settings", "settings of superusers"]),
    ("host", &["machine", "processors"]),
    ("disk", &["machine", "disks"]),
    ("mount", &["machine", "mounts"]),
    ("backend", &["machine", "backend io"]),
];

/// Why a collector could not read its source, if it reported it.
fn gap_of(case: &Case, source: &str) -> Option<String> {
    let others = COLLECTORS.iter().find(|(name, _)| *name == source).map_or(&[][..], |(_, others)| others);
    let of_machine = OF_MACHINES.contains(&source) && !source.is_empty();
    let is_its = |what: &str| {
        what == source
            || others.contains(&what)
            || (of_machine && what == "machine")
            // `mb_stats md0`: of one device among others.
            || what.split(' ').next() == Some(source)
    };
    let gap = case.gaps.iter().find(|gap| is_its(&gap.what))?;
    let place = if gap.host.is_empty() { &gap.node } else { &gap.host };
    Some(if place.is_empty() { gap.why.clone() } else { format!("{} ({place})", gap.why) })
}

/// The outcome of a rule.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// The condition is present.
    Found(Vec<Claim>),
    /// It is not present; what was checked.
    Clean(String),
    /// It could not be checked; what is missing.
    CannotTell(String),
}

impl Answer {
    /// The findings, or, if there are none, that what was checked is clean.
    pub fn of(claims: Vec<Claim>, looked_at: impl FnOnce() -> String) -> Answer {
        if claims.is_empty() { Answer::Clean(looked_at()) } else { Answer::Found(claims) }
    }
}

/// A finding in the making. The engine adds the rule's name, title and links.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim(Finding);

impl From<Finding> for Claim {
    /// The run's own findings.
    fn from(finding: Finding) -> Claim {
        Claim(finding)
    }
}

impl Claim {
    /// One sentence with the numbers; how much it matters; how well it is proved.
    pub fn new(severity: Severity, level: Level, claim: impl Into<String>) -> Claim {
        Claim(Finding { severity, level, claim: claim.into(), ..Finding::default() })
    }

    /// Another level of proof than it began with.
    pub fn at_level(mut self, level: Level) -> Claim {
        self.0.level = level;
        self
    }

    /// It matters no more than this.
    pub(crate) fn at_most(mut self, severity: Severity) -> Claim {
        self.0.severity = self.0.severity.min(severity);
        self
    }

    /// It matters at least so much.
    pub(crate) fn at_least(mut self, severity: Severity) -> Claim {
        self.0.severity = self.0.severity.max(severity);
        self
    }

    /// When it was present.
    pub fn during(mut self, windows: impl IntoIterator<Item = Window>) -> Claim {
        self.0.windows.extend(windows);
        self
    }

    /// The node it is about.
    pub(crate) fn on_node(mut self, node: &str) -> Claim {
        self.0.node = Some(node.to_string()).filter(|node| !node.is_empty());
        self
    }

    /// The machine it is about.
    pub(crate) fn on_host(mut self, host: &str) -> Claim {
        self.0.host = Some(host.to_string()).filter(|host| !host.is_empty());
        self
    }

    /// A measured value; the name ends with the unit.
    pub fn number(mut self, name: &str, value: f64) -> Claim {
        if value.is_finite() {
            self.0.numbers.insert(name.to_string(), value);
        }
        self
    }

    /// Evidence for it.
    pub fn because(mut self, sentence: impl Into<String>) -> Claim {
        self.0.evidence.push(sentence.into());
        self
    }

    /// Another cause that the recording rules out, and why.
    pub fn not(mut self, sentence: impl Into<String>) -> Claim {
        self.0.ruled_out.push(sentence.into());
        self
    }

    /// What would have proved more.
    pub fn lacking(mut self, sentence: impl Into<String>) -> Claim {
        self.0.missing.push(sentence.into());
        self
    }

    /// What to do, and the commands.
    pub fn remedy(mut self, text: impl Into<String>, commands: &[&str]) -> Claim {
        self.0.remedy = Remedy {
            text: text.into(),
            commands: commands.iter().map(|command| printable(command)).collect(),
        };
        self
    }

    /// Its share of the clients' waiting time.
    pub(crate) fn of_client_time(mut self, share: Option<f64>) -> Claim {
        self.0.share_of_client_time = share;
        self
    }

    /// Changes the claim if there is a value for it.
    pub fn with<T>(self, value: Option<T>, change: impl FnOnce(Claim, T) -> Claim) -> Claim {
        match value {
            Some(value) => change(self, value),
            None => self,
        }
    }

    /// The finding so far.
    pub fn finding(&self) -> &Finding {
        &self.0
    }

    /// The finding, named after its rule; `number` counts a rule's claims from 1.
    pub fn finish(self, rule: &Rule, number: usize) -> Finding {
        let id = if number == 1 { rule.id.to_string() } else { format!("{}.{number}", rule.id) };
        Finding {
            id,
            rule: rule.id.to_string(),
            title: rule.title.to_string(),
            links: rule.links.iter().map(|link| (*link).to_string()).collect(),
            ..self.0
        }
    }
}

/// Windows listed at most; the longest are kept.
pub const WINDOWS_MAX: usize = 50;
/// Claims of one rule listed at most; the rest is counted in the last.
pub(crate) const CLAIMS_MAX: usize = 10;

/// Evaluates one rule.
pub fn ask(rule: &Rule, case: &Case) -> Answer {
    for need in rule.needs {
        match need.check(case) {
            Ok(()) => {}
            Err(_) if need.is_of_plans() && needs_no_plans(case) => {
                return Answer::Clean(
                    "no statement takes a twentieth of the session time, so none was planned".to_string(),
                );
            }
            Err(why) => return Answer::CannotTell(why),
        }
    }
    (rule.judge)(case)
}

/// The share of the session time of a statement from which on rules look at its plan.
const PLANNED_SHARE_MIN: f64 = 0.05;

/// Whether the statements of all nodes are counted, and none of them takes so much of the time that its plan would matter.
fn needs_no_plans(case: &Case) -> bool {
    let times = crate::node_time::all(case);
    let is_small = |one: &StatementTime| one.share < PLANNED_SHARE_MIN;
    case.things("statement").next().is_some()
        && case.things("what_if").next().is_none()
        && !times.is_empty()
        && times.iter().all(|time| time.is_idle() || time.statements.iter().all(is_small))
}

/// Limits the claims of one rule, and the windows of one claim.
pub fn bound(mut claims: Vec<Claim>) -> Vec<Claim> {
    claims.sort_by_key(|claim| std::cmp::Reverse((claim.0.severity, claim.0.level)));
    let rest = claims.len().saturating_sub(CLAIMS_MAX);
    claims.truncate(CLAIMS_MAX);
    if let Some(last) = claims.last_mut().filter(|_| rest > 0) {
        last.0.evidence.push(format!("{rest} more of this kind are not listed"));
    }
    for claim in &mut claims {
        if claim.0.windows.len() > WINDOWS_MAX {
            claim.0.windows.sort_by_key(|window| std::cmp::Reverse(window.length_us()));
            claim.0.windows.truncate(WINDOWS_MAX);
        }
        claim.0.windows.sort();
    }
    claims
}

/// Groups of objects by a text field.
pub fn grouped<'a, T>(
    things: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> &'a str,
) -> BTreeMap<&'a str, Vec<T>> {
    let mut groups: BTreeMap<&str, Vec<T>> = BTreeMap::new();
    for thing in things {
        groups.entry(key(&thing)).or_default().push(thing);
    }
    groups
}
