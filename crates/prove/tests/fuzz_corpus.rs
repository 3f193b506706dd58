//! Replays the seeds of the fuzz target and mutates them, so that faults are found, and stay found, without a fuzzer.

#[path = "../../../fuzz/exercise/history.rs"]
mod history;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn histories() {
    replay::replay("history", history::exercise);
}
