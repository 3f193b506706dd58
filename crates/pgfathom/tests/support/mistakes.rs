//! Mistakes and the answers to them.
//!
//! A row is (what is typed, exit code, the error line, words of the hint). `{dir}` in a message stands for the folder of the row.
//! The shape of every answer is checked as well: `error: ...`, causes indented, a blank line, `hint: ...`, nothing on stdout.

use crate::support::{Ended, Folder, pgfathom};

/// One mistake.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) typed: &'a str,
    pub(crate) exit: i32,
    pub(crate) error: &'a str,
    pub(crate) hint: &'a str,
}

/// A mistake that ends with exit code 1, as nearly all do.
pub(crate) const fn usage<'a>(typed: &'a str, error: &'a str, hint: &'a str) -> Row<'a> {
    Row { typed, exit: 1, error, hint }
}

/// Splits as a shell would, single quotes included: rows look like what is typed.
pub(crate) fn words(typed: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    for c in typed.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                any = true;
            }
            ' ' if !quoted => {
                if any || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            other => word.push(other),
        }
    }
    if any || !word.is_empty() {
        words.push(word);
    }
    words
}

/// What is wrong with an answer, if anything: it must have the shape of every answer, and these words.
pub(crate) fn problem(row: &Row<'_>, ended: &Ended, folder: &str) -> Option<String> {
    let mut lines = ended.stderr.lines();
    let error = lines.next().unwrap_or_default();
    let expected = format!("error: {}", row.error.replace("{dir}", folder));
    let said = match expected.strip_suffix("...") {
        Some(start) => error.starts_with(start) && error.len() > "error: ".len(),
        None => error == expected,
    };
    let mut rest: Vec<&str> = lines.collect();
    let hint = rest.pop().unwrap_or_default();
    let blank = rest.pop();
    let what = if ended.exit != Some(row.exit) {
        format!("the exit code is {:?}, not {}", ended.exit, row.exit)
    } else if !ended.stdout.is_empty() {
        "mistakes are talk, not data".to_string()
    } else if !said {
        format!("expected {expected}")
    } else if !hint.starts_with("hint: ") || !hint.contains(&row.hint.replace("{dir}", folder)) {
        format!("the last line is no hint with {:?}", row.hint)
    } else if blank != Some("") {
        "no blank line before the hint".to_string()
    } else if !rest.iter().all(|cause| cause.starts_with("  ")) {
        "causes are not indented".to_string()
    } else {
        return None;
    };
    Some(format!("{what}\n$ pgfathom {}\n{}{}", row.typed, ended.stdout, ended.stderr))
}

/// Types every row in a folder of its own; all that go wrong are told at once.
pub(crate) fn check(rows: &[Row<'_>], prepare: impl Fn(&Folder)) {
    let mut problems = Vec::new();
    for row in rows {
        let folder = Folder::new();
        prepare(&folder);
        let dir = folder.path().display().to_string();
        let typed = words(&row.typed.replace("{dir}", &dir));
        let typed: Vec<&str> = typed.iter().map(String::as_str).collect();
        // What killed programs of other tests left is looked for in the folder for temporary files.
        let mut command = pgfathom(folder.path());
        let ended = command.args(&typed).env("TMPDIR", folder.path()).output().expect("the command starts");
        problems.extend(problem(row, &ended.into(), &dir));
    }
    assert!(
        problems.is_empty(),
        "{} of {} rows:\n\n{}",
        problems.len(),
        rows.len(),
        problems.join("\n----\n")
    );
}
