//! Replays the seeds of the fuzz target, so that what was found once stays found without a fuzzer.

#[path = "../../../fuzz/exercise/wire_backend.rs"]
mod wire_backend;

#[test]
fn servers() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wire_backend");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is there") {
        let path = entry.expect("the corpus can be listed").path();
        let bytes = std::fs::read(&path).expect("an input can be read");
        println!("{}", path.display());
        // Every input cut short is an input as well, and so is every input with one bit turned.
        for length in 0..=bytes.len() {
            wire_backend::exercise(&bytes[..length]);
        }
        let mut turned = bytes;
        for bit in 0..8 * turned.len() {
            turned[bit / 8] ^= 1 << (bit % 8);
            wire_backend::exercise(&turned);
            turned[bit / 8] ^= 1 << (bit % 8);
        }
        inputs += 1;
    }
    assert!(inputs >= 10, "{inputs} inputs in {}", folder.display());
}
