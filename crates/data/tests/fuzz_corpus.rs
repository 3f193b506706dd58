//! Replays the seeds of the fuzz targets, so that what was found once stays found without a fuzzer.

#[path = "../../../fuzz/exercise/judge.rs"]
mod judge;
#[path = "../../../fuzz/exercise/row_of_key.rs"]
mod row_of_key;

fn replay(target: &str, exercise: fn(&[u8])) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is there") {
        let path = entry.expect("the corpus can be listed").path();
        let bytes = std::fs::read(&path).expect("an input can be read");
        println!("{}", path.display());
        // Every input cut short is an input as well.
        for length in 0..=bytes.len() {
            exercise(&bytes[..length]);
        }
        inputs += 1;
    }
    assert!(inputs >= 10, "{inputs} inputs in {}", folder.display());
}

#[test]
fn keys() {
    replay("row_of_key", row_of_key::exercise);
}

#[test]
fn fields() {
    replay("judge", judge::exercise);
}
