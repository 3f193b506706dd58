//! A search for the largest number of something with which a benchmark passes: one step for each number that was tried.

use crate::facts::{Facts, StepFacts};
use record::number;
use record::summary::Tried;

/// Steps of a search; `None` for any other run.
pub(crate) fn steps<'a, 'r>(facts: &'a Facts<'r>) -> Option<Vec<&'a StepFacts<'r>>> {
    let steps: Vec<&'a StepFacts<'r>> =
        facts.steps.iter().filter(|step| step.step.summary.tried.is_some()).collect();
    (!steps.is_empty()).then_some(steps)
}

/// What a step tried.
fn tried<'a>(step: &'a StepFacts<'_>) -> Option<&'a Tried> {
    step.step.summary.tried.as_ref()
}

/// The number of a valid step that passes.
fn passing(step: &StepFacts<'_>) -> Option<u64> {
    tried(step).filter(|tried| tried.passes && step.step.verdict.valid).map(|tried| tried.number)
}

/// The step with the largest number that passes.
pub(crate) fn is_answer(steps: &[&StepFacts<'_>], step: &StepFacts<'_>) -> bool {
    let best = steps.iter().filter_map(|step| passing(step)).max();
    best.is_some() && passing(step) == best
}

/// The answer.
pub(crate) fn sentence(steps: &[&StepFacts<'_>]) -> String {
    let best = steps.iter().filter_map(|step| passing(step)).max();
    let tried = || steps.iter().filter_map(|step| tried(step));
    let least_failing = tried().filter(|tried| !tried.passes).map(|tried| tried.number).min();
    let unit = tried().next().map_or("", |tried| tried.unit.as_str());
    let pass = |count: u64| {
        format!("{} {}", number::counted(count, unit), if count == 1 { "passes" } else { "pass" })
    };
    match (best, least_failing) {
        (Some(best), Some(fails)) => format!("{}, {fails} do not", pass(best)),
        (Some(best), None) => format!("{}, and none was found that does not", pass(best)),
        (None, Some(fails)) => format!("not even {}", pass(fails)),
        (None, None) => "no step could be judged".to_string(),
    }
}
