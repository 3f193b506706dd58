//! Any bytes as a history, of Elle or of ours: read or refused, judged in any case, and the same after it was written and read again.

use std::io::Read;
use std::path::Path;

use prove::check::{Level, Options, Report, check};
use prove::history::elle::{self, Notation};
use prove::history::{History, Outcome};

pub(crate) fn exercise(data: &[u8]) {
    if let Ok(history) = elle::parse(data) {
        let report = judge(&history);
        // However the bytes come.
        let in_pieces = elle::read(Pieces(data)).expect("what was read whole can be read in pieces");
        assert_eq!(in_pieces.txns(), history.txns());
        assert_eq!(in_pieces.ops(), history.ops());
        for notation in [Notation::Edn, Notation::Json] {
            let text = elle::write(&history, notation);
            let again = elle::parse(text.as_bytes()).expect("what was written can be read");
            let writes = |history: &History| history.ops().iter().filter(|op| op.kind.is_write()).count();
            assert_eq!(writes(&again), writes(&history), "{text}");
            let acknowledged =
                |history: &History| history.txns().iter().filter(|txn| txn.outcome == Outcome::Ok).count();
            assert_eq!(acknowledged(&again), acknowledged(&history));
            // JSON has fewer kinds of values, and writes some that differ as one.
            if notation == Notation::Edn {
                let again = check(&again, &Options::default());
                assert_eq!(again.refuted, report.refuted, "{text}");
            }
        }
    }
    if let Ok(history) = History::read_from(data, Path::new("fuzzed")) {
        judge(&history);
    }
}

/// Whatever the history is, its answers must fit each other.
fn judge(history: &History) -> Report {
    let report = check(history, &Options::default());
    for level in Level::all() {
        assert!(!(report.refutes(level) && report.is_open(level)));
        let stronger = Level::all().filter(|stronger| level.is_implied_by(*stronger));
        for stronger in stronger.filter(|_| report.refutes(level)) {
            assert!(report.refutes(stronger), "{level} is refuted, and {stronger} is not");
        }
    }
    assert!(report.witnesses.iter().all(|witness| !witness.text.is_empty()));
    report
}

/// A source that gives few bytes at a time.
struct Pieces<'a>(&'a [u8]);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.len().min(buffer.len()).min(7);
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}
