//! Scripted interleavings that show an isolation level: Martin Kleppmann's Hermitage (github.com/ept/hermitage, CC BY 4.0), run by several sessions on
//! a live server, and our own cases for clusters ([`cluster`]).
//!
//! Each [`Case`] is a list of statements, each of one session. The server's own view shows whether a statement waits for a lock
//! (`pg_blocking_pids`), and then the script continues; without such a view, a statement without a reply for a quarter of a second counts as waiting.
//! What happened is one line, for example `b waits; b 40001; final 1=11 2=21`, and it is compared with the line that the engine's profile expects.

pub mod cases;
pub mod cluster;
mod play;
mod transcript;

use std::sync::atomic::{AtomicBool, Ordering};

use connect::ConnSpec;
use engines::engine::Engine;
use record::promise::Control;

use crate::client::ClientError;
use crate::fault::FaultError;
use crate::live::LiveError;
use crate::session::SessionError;
pub use cases::{CASES, Case};
use engines::profile::{Anomaly, Arrangement, Isolation, Place, Rule};
pub use transcript::{Event, Transcript};

/// The levels of a script.
pub const LEVELS: [Isolation; 3] = Isolation::ALL;
/// The table of the scripts, in the schema of all proofs. pgfathom creates and drops it; a schema of that name that another user made is left alone.
pub const TABLE: &str = "pgfathom_prove.hermitage";

/// The verdict of an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// The anomaly was prevented, as it must be.
    Kept,
    /// It happened, and the level allows it, or no promise mentions it.
    ByDesign,
    /// It did not happen, although it may.
    AllowedNotSeen,
    /// It happened, although the level promises that it does not.
    Broken,
    /// There is no answer.
    NotTested,
    /// It is impossible on this cluster; the answer has the reason.
    NotPossible,
}

impl Verdict {
    /// The words for it.
    pub fn description(self) -> &'static str {
        match self {
            Verdict::Kept => "kept",
            Verdict::ByDesign => "by design",
            Verdict::AllowedNotSeen => "allowed, not seen",
            Verdict::Broken => "broken",
            Verdict::NotTested => "not tested",
            Verdict::NotPossible => "not possible",
        }
    }
}

/// What one script came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// The short name of the case.
    pub case: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// The level; `None` for cases that choose their own.
    pub level: Option<Isolation>,
    /// Whether the anomaly is expected; `None`: unknown for this engine.
    pub expected: Option<bool>,
    /// The expected line, if it is known literally.
    pub expected_line: Option<&'static str>,
    /// Whether it happened.
    pub happened: Option<bool>,
    /// The result in one line, or why there is none.
    pub line: String,
    /// The script as it was run, one statement a line.
    pub script: Vec<String>,
    /// What is promised, where it is a case of a cluster.
    pub promise: &'static str,
    /// The rule of the engine behind it.
    pub why: &'static str,
    /// What to change where that hurts.
    pub change: &'static str,
    /// The setting that decides, if one does.
    pub setting: String,
    /// For cases by chance: observations, and how many showed the anomaly. A script runs once.
    pub counted: Option<(u64, u64, &'static str)>,
    /// The same observation where the anomaly must appear.
    pub control: Option<Control>,
    /// Why it cannot be played here.
    pub is_impossible: bool,
}

impl Answer {
    /// What it means.
    pub fn verdict(&self) -> Verdict {
        match (self.happened, self.expected) {
            (None, _) if self.is_impossible => Verdict::NotPossible,
            (None, _) => Verdict::NotTested,
            (Some(false), Some(false)) => Verdict::Kept,
            (Some(false), Some(true) | None) => Verdict::AllowedNotSeen,
            (Some(true), Some(false)) => Verdict::Broken,
            (Some(true), Some(true)) => Verdict::ByDesign,
            // Without a promise, what happened is reported without a verdict.
            (Some(true), None) => Verdict::ByDesign,
        }
    }
}

/// Why nothing could be played.
#[derive(Debug, thiserror::Error)]
pub enum HermitageError {
    /// No sessions.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[from] std::io::Error),
    /// The server refused a statement that is not part of a script.
    #[error("{doing} failed: {message}")]
    Refused {
        /// What was tried.
        doing: &'static str,
        /// The server's words.
        message: String,
    },
    /// The tables of a cluster's cases.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// It is unknown whether commits wait for standbys.
    #[error(transparent)]
    Wait(#[from] connect::waiting::WaitError),
    /// The undo journal could not be written.
    #[error("the undo journal could not be written")]
    Journal(#[from] FaultError),
}

impl HermitageError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            HermitageError::Session(SessionError::Connect(error)) => error.hint(),
            HermitageError::Refused { .. } => {
                Some("the role needs CREATE on the database, and the server must not be read-only".into())
            }
            HermitageError::Live(error) => error.hint(),
            HermitageError::Journal(error) => error.hint(),
            HermitageError::Session(_) | HermitageError::Io(_) | HermitageError::Wait(_) => None,
        }
    }
}

impl From<ClientError> for HermitageError {
    fn from(error: ClientError) -> Self {
        HermitageError::Live(error.into())
    }
}

/// Runs cases at levels on one server, until `stop`. `observer` receives each answer as it comes.
///
/// # Errors
/// When there is no connection, or the table cannot be made. An aborted script is an answer.
pub fn run(
    spec: &ConnSpec,
    engine: Engine,
    cases: &[&'static Case],
    levels: &[Isolation],
    stop: &AtomicBool,
    observer: &mut dyn FnMut(&Answer),
) -> Result<Vec<Answer>, HermitageError> {
    let mut stage = play::Stage::open(spec)?;
    stage.make_table()?;
    let mut answers = Vec::new();
    for case in cases {
        for level in levels.iter().take_while(|_| !stop.load(Ordering::Relaxed)) {
            let answer = answer(case, *level, engine, stage.play(case, *level));
            observer(&answer);
            answers.push(answer);
        }
    }
    stage.drop_table()?;
    Ok(answers)
}

fn answer(
    case: &'static Case,
    level: Isolation,
    engine: Engine,
    played: Result<Transcript, String>,
) -> Answer {
    let place = LEVELS.iter().position(|one| *one == level).unwrap_or(0);
    let (expected, line) = case.expected[place];
    let known = engine.levels.expects_outcomes().then_some(expected);
    let expected = known.or_else(|| promised(engine, case.code, level));
    let script = case.script(level);
    let common = Answer {
        case: case.code,
        title: case.title,
        level: Some(level),
        expected,
        // The table of the scripts is on one server, also in a cluster.
        expected_line: engine.levels.expects_steps().then_some(line),
        script,
        ..Answer::default()
    };
    match played {
        Ok(transcript) => {
            Answer { happened: Some((case.happened)(&transcript)), line: transcript.line(), ..common }
        }
        Err(why) => Answer { line: why, ..common },
    }
}

/// What the promises of an engine state about a script, where the script itself is known for PostgreSQL only.
fn promised(engine: Engine, case: &str, level: Isolation) -> Option<bool> {
    let anomaly = match case {
        "G0" | "G1a" | "G1b" | "G1c" => Anomaly::DirtyOrCircular,
        "P4" => Anomaly::LostUpdate,
        "G-single" | "G-single-predicate" | "G-single-write" => Anomaly::ReadSkew,
        "G2-item" | "G2" | "G2-fekete" => Anomaly::WriteSkew,
        _ => return None,
    };
    // The table of the scripts is on one server, also in a cluster.
    let place = Place { level, at: Arrangement::Plain, is_spread: false, is_set: &|_| None };
    match engine.rule(&place, anomaly) {
        Rule::Forbidden => Some(false),
        Rule::Allowed => Some(true),
        Rule::Measured => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dirty write that shows on an engine whose steps are not known is a violation all the same.
    #[test]
    fn what_a_profile_forbids_is_forbidden_to_its_scripts() {
        let dirty = CASES.iter().find(|case| case.code == "G0").unwrap();
        for (engine, skew) in [("citus", Some(true)), ("mtm", Some(true)), ("multimaster", Some(true))] {
            let engine = Engine::parse(engine).unwrap();
            for level in LEVELS {
                let answer = answer(dirty, level, engine, Ok(Transcript::default()));
                assert_eq!(answer.expected, Some(false), "{} at {level}", engine.name());
                let seen = Answer { happened: Some(true), ..answer };
                assert_eq!(seen.verdict(), Verdict::Broken);
            }
            assert_eq!(promised(engine, "G2-item", Isolation::RepeatableRead), skew);
            assert_eq!(promised(engine, "OTV", Isolation::ReadCommitted), None);
        }
    }
}
