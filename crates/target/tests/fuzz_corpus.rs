//! Replays the seeds of the fuzz target about catalogs and mutates them, so that faults are found, and stay found, without a fuzzer.

#[path = "../../../fuzz/exercise/catalog.rs"]
mod catalog;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn catalogs() {
    replay::replay_slow("catalog", catalog::exercise);
}
