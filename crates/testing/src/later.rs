//! What `make test` leaves for `make test-all`.

use std::path::Path;

use crate::skip::append;

/// Set by `make test-all`.
const ALL: &str = "PGFATHOM_TEST_ALL";
/// Names the file that parts left out are written to, one line each.
const LATER: &str = "PGFATHOM_TEST_LATER";

/// Whether a test is to do all of what `what` names, and not only a part that is representative. A part left out is written down for `scripts/test`,
/// which prints it and, when it is strict, fails unless `scripts/test-expected` names it.
pub fn is_thorough(what: &str) -> bool {
    let is_all = std::env::var_os(ALL).is_some_and(|value| !value.is_empty());
    if !is_all && let Some(path) = std::env::var_os(LATER) {
        append(Path::new(&path), &format!("{what}\n"));
    }
    is_all
}

/// Of several ways to test the same thing: all of them in a thorough run, else the one whose turn it is, so that case after case takes each of them.
pub fn in_turn<'a, T>(what: &str, number: usize, ways: &'a [T]) -> &'a [T] {
    match is_thorough(what) || ways.is_empty() {
        true => ways,
        false => std::slice::from_ref(&ways[number % ways.len()]),
    }
}
