//! The state of a subscription in words, which are the same wherever it is reported.

use crate::number;

/// What its own node shows of a subscription, as the end of a sentence: `is disabled after 2 errors`. `errors`: as the server counts them.
pub fn state(enabled: bool, running: bool, errors: u64) -> String {
    let errors = (errors > 0).then(|| number::counted(errors, "error"));
    match (enabled, running, errors) {
        (false, _, None) => "is disabled".to_owned(),
        (false, _, Some(errors)) => format!("is disabled after {errors}"),
        (true, false, None) => "has stopped".to_owned(),
        (true, false, Some(errors)) => format!("has stopped after {errors}"),
        (true, true, None) => "is enabled".to_owned(),
        (true, true, Some(errors)) => format!("is enabled, with {errors} so far"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_part_of_the_state() {
        assert_eq!(state(true, true, 0), "is enabled");
        assert_eq!(state(false, false, 0), "is disabled");
        assert_eq!(state(false, true, 1), "is disabled after 1 error");
        assert_eq!(state(true, false, 0), "has stopped");
        assert_eq!(state(true, false, 2000), "has stopped after 2,000 errors");
        assert_eq!(state(true, true, 3), "is enabled, with 3 errors so far");
    }
}
