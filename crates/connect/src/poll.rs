//! Polling: checks a condition repeatedly, up to a limit.

use std::time::{Duration, Instant};

/// The interval of checks: short compared with the awaited events (processes, replication), long compared with the cost of a check.
const PAUSE: Duration = Duration::from_millis(10);

/// Polls until `find` returns a value; `None`: there was none within `limit`. A `find` that can fail returns `Option<Result>`, for which there is
/// [`Result::transpose`].
pub fn until<T>(limit: Duration, mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let found = find();
        // A limit of zero means one check.
        if found.is_some() || begin.elapsed() >= limit {
            return found;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Retries until `work` succeeds or fails permanently, or `limit` is over; returns its last result.
pub fn retry<T, E>(
    limit: Duration,
    is_transient: impl Fn(&E) -> bool,
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut last = None;
    let done = until(limit, || match work() {
        Err(error) if is_transient(&error) => {
            last = Some(error);
            None
        }
        result => Some(result),
    });
    done.or(last.map(Err)).expect("work ran at least once")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_comes_is_given_and_what_does_not_come_ends_at_the_limit() {
        let mut looks = 0;
        let third = until(LONG, || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(third, Some(3));
        assert_eq!(until(PAUSE, || None::<()>), None);
        assert_eq!(until(Duration::ZERO, || Some(1)), Some(1), "one look at least");
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let mut left = vec![Err("for good"), Err("passes"), Err("passes")];
        assert_eq!(retry(LONG, |error| *error == "passes", || left.pop().unwrap_or(Ok(1))), Err("for good"));
        let mut left = vec![Ok(7), Err("passes")];
        assert_eq!(retry(LONG, |_| true, || left.pop().unwrap_or(Ok(1))), Ok(7));
        assert_eq!(retry(PAUSE, |_| true, || Err::<(), _>("passes")), Err("passes"));
    }
}
