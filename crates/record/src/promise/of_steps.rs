//! Summarises the promises of a step and of a run.

use super::{Promise, Standing};
use crate::model::{Run, Step, Verdict};

/// All promises of a run, in the order of its steps.
pub fn of(run: &Run) -> Vec<&Promise> {
    run.steps.iter().flat_map(|step| &step.promises).collect()
}

/// What the promises of a step come to: every broken one is a reason.
pub fn verdict(step: &Step) -> Verdict {
    let mut verdict = Verdict::valid();
    for promise in &step.promises {
        let under =
            if promise.fault.is_empty() { String::new() } else { format!(", under {}", promise.fault) };
        let place = format!("{} ({}{under})", promise.promise, promise.setting);
        match promise.standing {
            Standing::Broken => {
                verdict.invalidate(format!(
                    "broken: {place}: {} of {} {}",
                    promise.seen, promise.n, promise.unit
                ));
            }
            Standing::NotTested | Standing::NotPossible => {
                verdict.notes.push(format!("{}: {place}: {}", promise.standing.description(), promise.why));
            }
            Standing::ByDesign | Standing::AllowedNotSeen | Standing::Kept | Standing::Unknown => {}
        }
    }
    verdict
}
