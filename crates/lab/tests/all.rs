//! All tests of this crate in one program; `scripts/test` runs each module as a suite of its own.

mod engines;
mod local;
mod throwaway;
mod topologies;

use lab::throwaway::{Installation, installations};

/// Runs a test on every PostgreSQL found, at once.
fn each(test: impl Fn(&Installation) + Sync) {
    let all = installations();
    assert!(!all.is_empty(), "these tests need a PostgreSQL");
    std::thread::scope(|scope| {
        for installation in &all {
            scope.spawn(|| test(installation));
        }
    });
}
