//! One test in a separate process.

use std::process::Command;

/// This test program once more, to run nothing but one test of a module: `module` is the caller's `module_path!()`.
///
/// # Panics
/// If the system does not report which program this is.
pub fn again(module: &str, test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("we were started from a file"));
    command.args(["--exact", &name(module, test)]);
    command
}

/// As libtest names it: modules without the program's own name.
fn name(module: &str, test: &str) -> String {
    match module.split_once("::") {
        Some((_, inner)) => format!("{inner}::{test}"),
        None => test.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_named_below_its_program() {
        assert_eq!(name("all::live_crash", "dies"), "live_crash::dies");
        assert_eq!(name("steady_state", "dies"), "dies");
        let this = std::thread::current();
        assert_eq!(this.name(), Some(&*name(module_path!(), "a_test_is_named_below_its_program")));
    }
}
