//! One test on several things, as every PostgreSQL found.

use std::fmt::Display;

/// Runs `test` on each of them at once, in threads that bear their names.
///
/// # Panics
/// If there is none, as a live test that tests nothing must not pass; if the test panics.
#[track_caller]
pub fn on_each<T: Display + Sync>(all: &[T], test: impl Fn(&T) + Sync) {
    assert!(!all.is_empty(), "nothing to test on: no PostgreSQL was found (scripts/install-deps)");
    std::thread::scope(|scope| {
        for one in all {
            let named = std::thread::Builder::new().name(one.to_string());
            named.spawn_scoped(scope, || test(one)).expect("a thread starts");
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::on_each;

    #[test]
    fn each_is_tested_once() {
        let seen = Mutex::new(vec![]);
        on_each(&[15, 18], |one| seen.lock().unwrap().push(*one));
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [15, 18]);
    }

    #[test]
    fn nothing_and_a_failure_are_failures() {
        assert!(std::panic::catch_unwind(|| on_each(&[] as &[u32], |_| ())).is_err());
        assert!(std::panic::catch_unwind(|| on_each(&[1, 2], |one| assert_eq!(*one, 1))).is_err());
    }
}
