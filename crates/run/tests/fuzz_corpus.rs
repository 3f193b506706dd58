//! Replays the seeds of the fuzz targets and mutates them, so that faults are found, and stay found, without a fuzzer.

#[path = "../../../fuzz/exercise/random.rs"]
mod random;
#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/exercise/script.rs"]
mod script;

#[test]
fn the_corpus_of_scripts() {
    replay::replay("script", script::exercise);
}

#[test]
fn the_corpus_of_random_arguments() {
    replay::replay("random", random::exercise);
}
