//! Summarises the promises of a step and of a run.

use super::{Promise, Standing};
use crate::model::{Run, Step, Verdict};
use crate::number;

/// All promises of a run, in the order of its steps.
pub fn of(run: &Run) -> Vec<&Promise> {
    run.steps.iter().flat_map(|step| &step.promises).collect()
}

/// How much was seen, and in what: `0 of 12,345 sums read`. One transaction can show several anomalies: `14,176 in 10,938 acknowledged transactions`.
pub fn seen(promise: &Promise) -> String {
    let of = if promise.seen > promise.n { "in" } else { "of" };
    format!("{} {of} {} {}", number::count(promise.seen), number::count(promise.n), promise.unit)
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
                verdict.invalidate(format!("broken: {place}: {}", seen(promise)));
            }
            Standing::NotTested | Standing::NotPossible => {
                verdict.notes.push(format!("{}: {place}: {}", promise.standing.description(), promise.why));
            }
            Standing::ByDesign | Standing::AllowedNotSeen | Standing::Kept | Standing::Unknown => {}
        }
    }
    verdict
}
