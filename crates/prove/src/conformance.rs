//! `prove engine`: compares the claims of an engine's profile with a live cluster, one line for each claim.
//!
//! The result is a file that a user of any engine can send in. Messages in it can name hosts; the user reads it first.

mod catalog;
mod isolation;
mod own;
mod routing;
mod values;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::wire::error::ServerError;
use connect::control::Control;
use connect::{ConnSpec, ConnectError};
use engines::Cluster;
use serde::Serialize;

use crate::client::{Client, ClientError};
use crate::fault::Site;
use crate::live::LiveError;
use crate::live::tables::{Tables, of_one_node};
pub use isolation::commits;

/// The time limit of a statement.
const PATIENCE: Duration = Duration::from_secs(60);
/// Why a value that only the loss of a node shows is not checked.
const NEEDS_LOSS: &str = "only a lost node shows it: prove ack --fault kill:NODE@3s,heal@6s";

/// Whether a claim holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Agreement {
    /// The cluster does what is claimed.
    #[serde(rename = "agrees")]
    Agrees,
    /// It does not.
    #[serde(rename = "differs")]
    Differs,
    /// It could not be checked.
    #[serde(rename = "not checked")]
    NotChecked,
    /// The profile claims nothing; what the cluster does is shown.
    #[serde(rename = "no claim")]
    NoClaim,
    /// Words of the profile for readers: no program can check them.
    #[serde(rename = "note")]
    Note,
}

impl Agreement {
    /// As the terminal shows it.
    pub fn word(self) -> &'static str {
        match self {
            Agreement::Agrees => "agrees",
            Agreement::Differs => "differs",
            Agreement::NotChecked => "not checked",
            Agreement::NoClaim => "no claim",
            Agreement::Note => "note",
        }
    }
}

/// One claim of a profile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Line {
    /// What it is about.
    pub check: String,
    /// What the profile claims, or what pgfathom needs.
    pub claimed: String,
    /// What was found; empty if it could not be checked, and for a note.
    pub found: String,
    /// Whether they agree.
    pub result: Agreement,
    /// Why it could not be checked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What came of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// As claimed: what was found.
    Agrees(String),
    /// Otherwise: what was found.
    Differs(String),
    /// Why it could not be checked.
    NotChecked(String),
    /// The profile claims nothing: what was found.
    NoClaim(String),
    /// Words for readers.
    Note,
}

impl Outcome {
    /// Agrees or differs.
    fn of(agrees: bool, found: impl Into<String>) -> Outcome {
        if agrees { Outcome::Agrees(found.into()) } else { Outcome::Differs(found.into()) }
    }

    /// A server that refuses what is claimed differs; one that does not answer, or refuses for other reasons, is no evidence.
    fn tried(result: Result<Outcome, ClientError>) -> Outcome {
        match result {
            Ok(outcome) => outcome,
            Err(ClientError::Refused { error, sql }) if !is_about_the_session(&error) => {
                Outcome::Differs(format!("{error}, at: {sql}"))
            }
            Err(error) => Outcome::NotChecked(error.to_string()),
        }
    }
}

/// Lost connections, full disks, missing rights and ended statements: nothing about the engine.
fn is_about_the_session(error: &ServerError) -> bool {
    let code = error.sqlstate.as_str();
    ["08", "53", "57"].iter().any(|class| code.starts_with(class)) || code == "42501"
}

/// The checks, one after another.
struct Stage<'a> {
    cluster: &'a Cluster,
    site: &'a Site,
    /// The connections to the nodes, whose writes stay where they are made: a table of the checks is on one node.
    specs: Vec<ConnSpec>,
    /// The node of the checks.
    entry: usize,
    stop: &'a AtomicBool,
    observer: &'a mut dyn FnMut(&Line),
    lines: Vec<Line>,
}

impl Stage<'_> {
    fn add(&mut self, check: impl Into<String>, claimed: impl Into<String>, outcome: Outcome) {
        let (found, result, why) = match outcome {
            Outcome::Agrees(found) => (found, Agreement::Agrees, String::new()),
            Outcome::Differs(found) => (found, Agreement::Differs, String::new()),
            Outcome::NotChecked(why) => (String::new(), Agreement::NotChecked, why),
            Outcome::NoClaim(found) => (found, Agreement::NoClaim, String::new()),
            Outcome::Note => (String::new(), Agreement::Note, String::new()),
        };
        let line = Line { check: check.into(), claimed: claimed.into(), found, result, why };
        (self.observer)(&line);
        self.lines.push(line);
    }

    fn client(&self, node: usize) -> Result<Client, ClientError> {
        Ok(Client::connect(&self.specs[node], PATIENCE)?)
    }

    /// The same through the library that loads.
    fn control(&self) -> Result<Control, ConnectError> {
        connect::control::connect(&self.specs[self.entry])
    }

    /// Adds a line about SQL of the profile that is not run for its effect: the server plans it at the entry node, so every function, view and column of it
    /// exists.
    fn plan(&mut self, check: &str, sql: &str) {
        let statement = sql.trim_end().trim_end_matches(';');
        let planned = self.client(self.entry).and_then(|mut client| {
            client.execute(&format!("explain (costs off) {statement}"))?;
            Ok(Outcome::Agrees("the server plans it".to_owned()))
        });
        self.add(check, sql, Outcome::tried(planned));
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Checks everything but the cost of commits; see [`commits`]. The tables of the checks are removed. `is_listed`: the nodes come from a cluster file.
///
/// # Errors
/// When the entry node does not answer, or its schema of our name has another owner.
pub fn run(
    cluster: &Cluster,
    site: &Site,
    is_listed: bool,
    stop: &AtomicBool,
    observer: &mut dyn FnMut(&Line),
) -> Result<Vec<Line>, LiveError> {
    let specs = site.nodes.iter().map(|node| of_one_node(&node.spec)).collect::<Result<_, _>>()?;
    let mut stage = Stage { cluster, site, specs, entry: site.primary(), stop, observer, lines: Vec::new() };
    catalog::discovery(&mut stage, is_listed);
    let tables = Tables::make(site, &[])?;
    routing::check(&mut stage);
    wire::check(&mut stage);
    catalog::views(&mut stage);
    values::check(&mut stage);
    tables.remove(site);
    isolation::check(&mut stage);
    values::cases(&mut stage);
    for limit in site.engine.limits {
        stage.add("limit", *limit, Outcome::Note);
    }
    Ok(stage.lines)
}
