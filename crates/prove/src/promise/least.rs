//! How many observations are needed before "none seen" means "kept", and how much of a load may be refused.

use record::promise::{Promise, Standing};
use serde_json::json;

use crate::live::failures::Failures;
use crate::live::skew;

/// With nothing seen among n, the true share is below 3/n with 95 % confidence (the rule of three). Transactions come by the thousand, so a
/// promise about them is kept only when it is broken in less than one of a hundred.
const LEAST_OF_LOAD: u64 = 300;
/// Probes come at a fixed beat, 50 a second: two seconds of them, and less than three of a hundred.
const LEAST_OF_PROBES: u64 = 100;
/// More refusals than one of ten while nothing is broken by us: the load is not what it should be, and what was not seen may have been refused.
const REFUSED_SHARE_MAX: f64 = 0.1;

/// The least n of a workload; 0: its promises are measured, or judged one by one.
fn least(workload: &str) -> u64 {
    match workload {
        "ack" | "bank" | "twin" | "conflict" | "verreg" | "append" => LEAST_OF_LOAD,
        "hb" => LEAST_OF_PROBES,
        "skew" => skew::PAIRS_MIN,
        _ => 0,
    }
}

/// What to do where too little was seen.
const LONGER: &str = "run longer (-T), with more sessions (-c), or several times (--repeat)";
/// What to do where a node did not answer.
pub(super) const ALL_ANSWER: &str = "run pgfathom prove again when all nodes answer";

/// A promise that was not tested names what to do.
pub(super) fn way_out(promise: &mut Promise) {
    if promise.standing == Standing::NotTested && promise.change.is_empty() {
        promise.change = if promise.n == 0 { ALL_ANSWER } else { LONGER }.to_owned();
    }
}

/// Takes back what is reported of too little.
pub(super) fn enough(promise: &mut Promise) {
    let least = least(&promise.workload);
    if promise.standing == Standing::Kept && promise.n < least {
        promise.standing = Standing::NotTested;
        promise.why = format!(
            "{} {} are too few: with fewer than {least}, it can happen in more than {:.2} % of all cases and still not be seen",
            promise.n,
            promise.unit,
            300.0 / least as f64,
        );
        promise.change = LONGER.to_owned();
        promise.bound = None;
    }
}

/// Shows what was refused, and takes "kept" back where that is too much.
pub(super) fn doubt(promises: &mut [Promise], failures: &Failures) {
    if failures.refused == 0 {
        return;
    }
    let words: Vec<String> =
        failures.messages.iter().map(|(message, count)| format!("{count} times {message}")).collect();
    for promise in promises {
        promise.figures.insert("refused_by_error".to_owned(), json!(failures.refused));
        promise.figures.insert("answered".to_owned(), json!(failures.tried));
        if promise.standing == Standing::Kept && failures.calm_share() > REFUSED_SHARE_MAX {
            promise.standing = Standing::NotTested;
            promise.why = format!(
                "{} of {} statements and transactions were refused while no fault was active: {}",
                failures.calm[1],
                failures.calm[0],
                words.join("; ")
            );
            promise.change = "find out why the server refuses them, then repeat the proof".to_owned();
            promise.bound = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(workload: &str, n: u64) -> Promise {
        Promise {
            workload: workload.to_owned(),
            standing: Standing::Kept,
            n,
            unit: "commits".to_owned(),
            bound: Some(0.5),
            ..Promise::default()
        }
    }

    #[test]
    fn a_promise_that_was_not_tested_names_what_to_do() {
        let promise = |standing, n, change: &str| {
            let mut promise = Promise { standing, n, change: change.to_owned(), ..Promise::default() };
            way_out(&mut promise);
            promise.change
        };
        assert_eq!(promise(Standing::NotTested, 0, ""), ALL_ANSWER);
        assert_eq!(promise(Standing::NotTested, 9, ""), LONGER);
        assert_eq!(promise(Standing::NotTested, 9, "known"), "known");
        assert_eq!(promise(Standing::Kept, 9, ""), "");
    }

    #[test]
    fn nothing_seen_among_too_few_is_not_tested() {
        for (workload, few, enough_of_them) in
            [("ack", 299, 300), ("conflict", 4, 300), ("verreg", 14, 300), ("hb", 99, 100), ("skew", 5, 30)]
        {
            let (mut small, mut large) = (kept(workload, few), kept(workload, enough_of_them));
            enough(&mut small);
            enough(&mut large);
            assert_eq!((small.standing, large.standing), (Standing::NotTested, Standing::Kept), "{workload}");
            assert!(small.bound.is_none() && small.why.contains("too few"), "{}", small.why);
        }
        // What was seen was seen, among however few.
        let mut broken = Promise { standing: Standing::Broken, seen: 1, ..kept("ack", 4) };
        enough(&mut broken);
        assert_eq!(broken.standing, Standing::Broken);
    }

    #[test]
    fn kept_beside_thousands_of_refusals_is_not_tested() {
        let failures = |refused: u64, tried: u64| Failures {
            tried,
            refused,
            calm: [tried, refused],
            messages: vec![("42P01: relation does not exist".to_owned(), refused)],
        };
        let mut promises = [kept("ack", 5_000)];
        doubt(&mut promises, &failures(100, 40_000));
        assert_eq!(promises[0].standing, Standing::Kept, "a few are shown, and no more");
        assert_eq!(promises[0].figures["refused_by_error"], json!(100));
        doubt(&mut promises, &failures(38_324, 40_000));
        assert_eq!(promises[0].standing, Standing::NotTested);
        assert!(
            promises[0].why.contains("38324 of 40000") && promises[0].why.contains("42P01"),
            "{}",
            promises[0].why
        );
        // Refused while something was broken by us: that is what faults do.
        let mut faulty = [kept("ack", 5_000)];
        doubt(&mut faulty, &Failures { calm: [1_000, 0], ..failures(38_324, 40_000) });
        assert_eq!(faulty[0].standing, Standing::Kept);
    }
}
