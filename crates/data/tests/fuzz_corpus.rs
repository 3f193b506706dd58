//! Replays the seeds of the fuzz targets and mutates them, so that faults are found, and stay found, without a fuzzer.

#[path = "../../../fuzz/exercise/judge.rs"]
mod judge;
#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/exercise/row_of_key.rs"]
mod row_of_key;

#[test]
fn keys() {
    replay::replay("row_of_key", row_of_key::exercise);
}

#[test]
fn fields() {
    replay::replay("judge", judge::exercise);
}
