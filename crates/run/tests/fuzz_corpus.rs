//! Replays the fuzzers' corpora, so that what they once found stays repaired without a nightly compiler.

#[path = "../../../fuzz/exercise/random.rs"]
mod random;
#[path = "../../../fuzz/exercise/script.rs"]
mod script;

fn replay(target: &str, exercise: fn(&[u8])) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is there") {
        let path = entry.expect("the corpus is readable").path();
        let bytes = std::fs::read(&path).expect("the corpus is readable");
        eprintln!("{}", path.display());
        exercise(&bytes);
        // Every beginning of a seed is an input of its own.
        for length in 0..bytes.len() {
            exercise(&bytes[..length]);
        }
        count += 1;
    }
    assert!(count >= 10, "only {count} seeds in {}", folder.display());
}

#[test]
fn the_corpus_of_scripts() {
    replay("script", script::exercise);
}

#[test]
fn the_corpus_of_random_arguments() {
    replay("random", random::exercise);
}
