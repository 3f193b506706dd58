//! Replays the seeds of the fuzz target about catalogs and mutates them, so that faults are found, and stay found, without a fuzzer.

#[path = "../../../fuzz/exercise/catalog.rs"]
mod catalog;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn catalogs() {
    replay::replay_slow("catalog", catalog::exercise);
}

/// A seed that names no engine would try nothing.
#[test]
fn every_seed_names_an_engine() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/catalog");
    for entry in std::fs::read_dir(folder).expect("the corpus is there") {
        let path = entry.expect("it can be listed").path();
        let text = std::fs::read_to_string(&path).expect("a seed is text");
        let engine = text.lines().next().and_then(engines::engine::Engine::parse);
        assert!(engine.is_some(), "{}", path.display());
    }
}
