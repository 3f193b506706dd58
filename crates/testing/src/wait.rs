//! Conditions that must come true.

use std::time::{Duration, Instant};

/// What has not come by then will not come: long enough for a machine that does ten other things.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until something is so.
///
/// # Panics
/// If it is not so after [`PATIENCE`].
#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    value_of(what, || is_so().then_some(()));
}

/// Waits until there is a value.
///
/// # Panics
/// If there is none after [`PATIENCE`].
#[track_caller]
pub fn value_of<T>(what: &str, find: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, find)
}

#[track_caller]
fn within<T>(patience: Duration, what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = find() {
            return value;
        }
        assert!(begun.elapsed() < patience, "waited {} s in vain: {what}", patience.as_secs());
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_comes_is_waited_for() {
        let mut looks = 0;
        wait_for("the third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    fn a_condition_that_does_not_come_fails_with_its_name() {
        let vain = std::panic::catch_unwind(|| within(Duration::ZERO, "rain", || None::<()>)).unwrap_err();
        assert!(vain.downcast_ref::<String>().unwrap().contains("rain"));
    }
}
