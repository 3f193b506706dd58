//! Checks how a script's pipelines open and close along every path through its conditionals.
//!
//! Jumps only lead forward, so one pass over the commands knows all states a command can be reached in. A command that is wrong in
//! every one of them is refused before the run; where only some paths are wrong the run reports it, because the conditions may exclude
//! those paths.

use super::command::Action;
use super::error::{Problem, Span};
use super::expression::Misplaced;

/// The states a command can be reached in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reached {
    outside: bool,
    inside: bool,
}

impl Reached {
    fn join(&mut self, other: Reached) {
        self.outside |= other.outside;
        self.inside |= other.inside;
    }

    fn never_inside(self) -> bool {
        self.outside && !self.inside
    }

    fn never_outside(self) -> bool {
        self.inside && !self.outside
    }
}

/// Refuses commands that cannot but fail.
pub(super) fn check_pipelines(commands: &[(Span, Action)]) -> Result<(), Misplaced> {
    let mut reached = vec![Reached::default(); commands.len() + 1];
    reached[0].outside = true;
    let mut opened = Span::default();
    for (index, (span, action)) in commands.iter().enumerate() {
        let here = reached[index];
        let (next, after) = match action {
            Action::StartPipeline => {
                if here.never_outside() {
                    return Err((Problem::AlreadyInPipeline, *span));
                }
                opened = *span;
                (index + 1, Reached { outside: false, inside: here.outside })
            }
            Action::SyncPipeline | Action::EndPipeline => {
                let end = matches!(action, Action::EndPipeline);
                if here.never_inside() {
                    let command = if end { "endpipeline" } else { "syncpipeline" };
                    return Err((Problem::NotInPipeline { command }, *span));
                }
                (index + 1, Reached { outside: end && here.inside, inside: !end && here.inside })
            }
            Action::Sql(statement) => {
                if let (Some(capture), true) = (statement.capture(), here.never_outside()) {
                    return Err((Problem::CaptureInPipeline { command: capture.kind.name() }, *span));
                }
                (index + 1, here)
            }
            Action::JumpUnless { target, .. } => {
                reached[*target].join(here);
                (index + 1, here)
            }
            Action::Jump { target } => (*target, here),
            Action::Set { .. } | Action::Sleep { .. } => (index + 1, here),
        };
        reached[next].join(after);
    }
    if reached[commands.len()].never_outside() {
        return Err((Problem::PipelineLeftOpen, opened));
    }
    Ok(())
}
