//! Replays the seeds of the fuzz target and mutates them, so that faults are found, and stay found, without a fuzzer.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/exercise/wire_backend.rs"]
mod wire_backend;

#[test]
fn servers() {
    replay::replay("wire_backend", wire_backend::exercise);
}
