//! The manuals and the example of an acceptance file agree with the program.

use check::accept::Acceptance;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn the_example_is_an_acceptance_file_and_its_checks_are_in_the_manual() {
    let example = Acceptance::read(&docs().join("accept-r2.toml")).expect("docs/accept-r2.toml");
    assert_eq!(example.probe.block_bytes, Some(4096));
    assert!(example.requirements.len() >= 10, "{example:?}");
    let manual = std::fs::read_to_string(docs().join("accept.md")).expect("docs/accept.md");
    for requirement in &example.requirements {
        // The depth stands as N there.
        let name: String = requirement
            .check
            .split('.')
            .map(|part| match part.strip_prefix('q') {
                Some(rest) if rest.parse::<u32>().is_ok() => "qN".to_string(),
                _ => part.to_string(),
            })
            .collect::<Vec<_>>()
            .join(".");
        assert!(manual.contains(&format!("`{name}`")), "{name} is not in docs/accept.md");
    }
}

#[test]
fn the_toml_of_the_manual_is_understood() {
    let manual = std::fs::read_to_string(docs().join("accept.md")).expect("docs/accept.md");
    let block =
        manual.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let read = Acceptance::parse(block).expect("the example of docs/accept.md");
    assert_eq!(read.requirements.len(), 3);
}
