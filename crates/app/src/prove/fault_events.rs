//! What happened when, in the run directory: phases of the step, and the faults at their own times on the run's clock, not when they were written.

use crate::context::Context;
use crate::recording::{Recording, fields};
use ::prove::fault::{Fault, Happened, Site};
use ::prove::live::event_log::LoggedEvent;
use record::event::{self, Event};
use record::{RunDir, StepId};
use serde_json::{Map, Value, json};
use std::sync::mpsc;

/// Writes down what was noted of one trial; `repeat`: which one it was, where there are several. Times of a plan count from the begin of
/// the load, which is a phase.
pub(super) fn write_down(
    context: &Context,
    recording: &Recording<'_>,
    step: &StepId,
    repeat: Option<u64>,
    noted: Vec<LoggedEvent>,
) {
    let dir = recording.dir();
    let phase = |word: &str, at_ns: u64| {
        let name = repeat.map_or_else(|| word.to_owned(), |number| format!("{word}, repeat {number}"));
        recording.keep(dir.begin_phase_at(step, &name, dir.clock().t_us(at_ns)));
    };
    let has_faults = noted.iter().any(|one| matches!(one, LoggedEvent::Step(_)));
    for one in noted {
        match one {
            LoggedEvent::Load { at_ns } => phase("load", at_ns),
            LoggedEvent::Step(happened) => {
                context.terminal.detail(&happened.to_string());
                recording.keep(dir.event(&of_step(dir, step, repeat, &happened)));
            }
            LoggedEvent::Undone { at_ns, end_ns } => {
                if has_faults {
                    let more = fields(json!({"fault": "heal", "repeat": repeat}));
                    let message = "the load has ended, all faults are undone".to_owned();
                    recording.keep(dir.event(&fault(dir, step, [at_ns, end_ns], message, more)));
                }
                phase("judge", end_ns);
            }
        }
    }
}

/// Does `work` on a site, and shows at once what takes long there.
pub(super) fn announcing<T>(context: &Context, site: &Site, work: impl FnOnce() -> T) -> T {
    let (sender, words) = mpsc::channel::<String>();
    site.announce_to(Some(sender));
    std::thread::scope(|scope| {
        scope.spawn(move || words.iter().for_each(|words| context.terminal.say(&words)));
        let _end = Announcing(site);
        work()
    })
}

/// The listener ends with its sender, also when the work panics.
struct Announcing<'a>(&'a Site);

impl Drop for Announcing<'_> {
    fn drop(&mut self) {
        self.0.announce_to(None);
    }
}

fn of_step(dir: &RunDir, step: &StepId, repeat: Option<u64>, happened: &Happened) -> Event {
    let more = fields(json!({
        "node": (!happened.node.is_empty()).then_some(&happened.node),
        "fault": happened.step.fault.map_or("heal", Fault::word),
        "planned_s": happened.step.at.as_secs_f64(),
        "repeat": repeat,
    }));
    let took_ns = u64::try_from(happened.took.as_nanos()).unwrap_or(u64::MAX);
    let span_ns = [happened.at_ns, happened.at_ns.saturating_add(took_ns)];
    fault(dir, step, span_ns, happened.to_string(), more)
}

fn fault(
    dir: &RunDir,
    step: &StepId,
    [begin_ns, end_ns]: [u64; 2],
    message: String,
    more: Map<String, Value>,
) -> Event {
    Event {
        t_us: dir.clock().t_us(begin_ns),
        kind: event::FAULT.to_owned(),
        step: step.key().to_owned(),
        message,
        duration_us: Some(end_ns.saturating_sub(begin_ns) / 1_000),
        more,
    }
}
