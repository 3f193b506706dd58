//! The proof of a remedy: exactly what the finding printed is typed, the same scripts drive again, and the saving is compared with the predicted one.

use super::runner::{Look, Stage};
use super::score::{self, Expected};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program that the remedy names may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What became of a remedy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cure {
    pub(crate) rule: String,
    pub(crate) commands: Vec<String>,
    /// Why a command could not be typed.
    pub(crate) failed: Option<String>,
    /// Whether the second look claims the cause no more.
    pub(crate) gone: Option<bool>,
    /// The share of session time that the remedy is predicted to save: at least and at most, 0 to 1.
    pub(crate) predicted: Option<(f64, f64)>,
    /// What of the finding predicts it.
    pub(crate) predicted_by: String,
    /// The measured saving: 1 - mean latency after / before.
    pub(crate) saved: Option<f64>,
    pub(crate) latency_ms_before: Option<f64>,
    pub(crate) latency_ms_after: Option<f64>,
}

impl Cure {
    /// Whether the measured saving is within a factor of two of the predicted range; `None` if one is lacking.
    pub(crate) fn within_two(&self) -> Option<bool> {
        let ((least, most), saved) = (self.predicted?, self.saved?);
        Some(saved > 0.0 && saved >= least / 2.0 && saved <= most * 2.0)
    }
}

/// Types the remedy of a finding, and looks again.
pub(crate) fn tried(
    stage: &mut Stage<'_>,
    before: &Look,
    finding: &Value,
    expected: &Expected,
) -> Result<Cure, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let commands: Vec<String> =
        finding["remedy"]["commands"].as_array().into_iter().flatten().map(text).collect();
    let (predicted, predicted_by) = prediction(finding);
    let mut cure = Cure {
        rule: text(&finding["rule"]),
        failed: None,
        gone: None,
        predicted,
        predicted_by,
        saved: None,
        latency_ms_before: before.latency_ms,
        latency_ms_after: None,
        commands,
    };
    if cure.commands.is_empty() {
        cure.failed = Some("no command is printed".to_owned());
        return Ok(cure);
    }
    for command in cure.commands.clone() {
        if let Err(why) = typed(stage, &command) {
            cure.failed = Some(format!("{command}: {why}"));
            return Ok(cure);
        }
    }
    let after = stage.look("after", true)?;
    cure.gone = Some(score::judge(&after.answer, expected).rank.is_none());
    cure.latency_ms_after = after.latency_ms;
    cure.saved = before.latency_ms.zip(after.latency_ms).map(|(before, after)| 1.0 - after / before);
    Ok(cure)
}

/// What the finding itself predicts: the range of its remedy's benefit, else its share of the time of all sessions, which the remedy saves at most.
fn prediction(finding: &Value) -> (Option<(f64, f64)>, String) {
    let benefit = &finding["benefit"];
    if let (Some(least), Some(most)) = (benefit["least"].as_f64(), benefit["most"].as_f64()) {
        return (Some((least, most)), "benefit".to_owned());
    }
    for name in ["impact", "share_of_client_time"] {
        if let Some(share) = finding[name].as_f64() {
            return (Some((share, share)), name.to_owned());
        }
    }
    let numbers = finding["numbers"].as_object();
    let share = |(name, value): (&String, &Value)| {
        let share = (name == "share").then(|| value.as_f64()).flatten()?;
        Some((Some((share, share)), "share of the session time".to_owned()))
    };
    numbers.into_iter().flatten().find_map(share).unwrap_or((None, "nothing".to_owned()))
}

/// Types one line: SQL in psql, which runs its statements one after another; a line with `$ ` in a shell of the server's user.
fn typed(stage: &Stage<'_>, command: &str) -> Result<(), String> {
    let mut program = match command.strip_prefix("$ ") {
        Some(line) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]);
            shell
        }
        None => {
            let psql = testing::needs::client_program("psql").map_err(|lack| lack.to_string())?;
            let mut psql = Command::new(psql);
            psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
            psql
        }
    };
    stage.place().set_environment(&mut program, "postgres");
    stage.place().set_owner(&mut program)?;
    program.current_dir("/");
    // A file and no pipe: VACUUM VERBOSE writes more than a pipe holds.
    let output = stage.folder().join("typed.txt");
    let file = fs::File::create(&output).map_err(|error| error.to_string())?;
    program.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(file);
    let mut child = program.spawn().map_err(|error| error.to_string())?;
    let mut input = child.stdin.take().ok_or("it has no input")?;
    let typed = if command.starts_with("$ ") { String::new() } else { format!("{command}\n") };
    input.write_all(typed.as_bytes()).map_err(|error| error.to_string())?;
    drop(input);
    let begun = Instant::now();
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                let words = fs::read_to_string(&output).unwrap_or_default();
                return Err(format!("{status}: {}", words.trim().replace('\n', " ")));
            }
            None if begun.elapsed() > TIMEOUT => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not end in {} s", TIMEOUT.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    }
}
