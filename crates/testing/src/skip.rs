//! A test that cannot be made here.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::path::Path;

/// Names the file that skips are written to, one line each: need, test, place, reason, separated by tabs.
const SKIPS: &str = "PGFATHOM_TEST_SKIPS";

/// Something that this machine has not got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// A name without spaces, by which `scripts/test-expected` knows it.
    pub need: &'static str,
    /// What was found instead.
    pub why: String,
}

impl Lack {
    pub fn new(need: &'static str, why: impl fmt::Display) -> Lack {
        Lack { need, why: why.to_string() }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.need, self.why)
    }
}

/// Prints, and writes down for `scripts/test`, that the test that calls it cannot be made on this machine. The caller returns after it.
#[track_caller]
pub fn skip(lack: &Lack) {
    let thread = std::thread::current();
    // libtest names a test's thread after the test; threads that a test starts have other names or none.
    let test = thread.name().unwrap_or("-");
    let line = line(lack, test, Location::caller());
    eprintln!("skipped: {lack}");
    if let Some(path) = std::env::var_os(SKIPS) {
        append(Path::new(&path), &line);
    }
}

fn line(lack: &Lack, test: &str, place: &Location<'_>) -> String {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}\t{}\t{}:{}\t{}\n", lack.need, one_line(test), place.file(), place.line(), one_line(&lack.why))
}

/// In one write, as other threads and processes write there, too.
pub(crate) fn append(path: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: a skip cannot be written down: {error}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_one_line_whatever_its_reason_holds() {
        let line = line(&Lack::new("psql", "not\there,\nnor there"), "a test", Location::caller());
        assert_eq!(line.lines().count(), 1, "{line:?}");
        let fields: Vec<&str> = line.trim_end().split('\t').collect();
        assert_eq!((fields[0], fields[1], fields[3]), ("psql", "a test", "not here, nor there"));
        assert!(fields[2].ends_with(&format!("skip.rs:{}", line!() - 4)), "{fields:?}");
    }

    #[test]
    fn a_skip_that_cannot_be_written_down_fails() {
        let nowhere = Path::new("/proc/no such folder/skips");
        assert!(std::panic::catch_unwind(|| append(nowhere, "lost\n")).is_err());
    }
}
