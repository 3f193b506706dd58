//! A search for the largest number of something with which a benchmark passes: a step of the run directory for each number that is tried.

use super::Plan;
use crate::context::Context;
use crate::failure::Failure;
use crate::human;
use crate::recording::Recording;
use crate::skeleton::{NoOutcome, Outcome, in_steps};
use connect::ConnSpec;
use connect::control::Control;
use record::summary::Tried;
use record::{Exit, State};
use workloads::driving::{Family, Search as Wanted, Value};

/// A search ends when the largest number that passes and the least that fails are closer than this share of it.
const SEARCH_SHARE: u64 = 20;
/// A search begins with this share of the largest number.
const SEARCH_BEGIN: u64 = 8;

impl Plan {
    /// Looks for the largest number that passes.
    pub(super) fn run_search(
        &self,
        family: &dyn Family,
        wanted: Wanted,
        context: &Context,
        spec: &ConnSpec,
    ) -> Result<Exit, Failure> {
        let mut control = connect::control::connect(spec).map_err(Failure::from)?;
        let limit = family.search_limit(&mut control)?;
        let name = family.builtins()[0].name;
        let title = format!("{name}-{}", wanted.flag);
        let recording = self.open(context, &title, spec, &mut control)?;
        let search = Search::new(limit);
        in_steps(recording, |recording| {
            self.search_in(recording, (family, &wanted), context, spec, control, search)
        })
    }

    /// Tries one number after the other.
    fn search_in(
        &self,
        recording: &Recording<'_>,
        (family, wanted): (&dyn Family, &Wanted),
        context: &Context,
        spec: &ConnSpec,
        mut control: Control,
        mut search: Search,
    ) -> Result<Outcome, NoOutcome> {
        let name = family.builtins()[0].name;
        let seed = self.seed();
        let mut exits: Vec<Exit> = vec![];
        let mut is_second_try = false;
        while let Some(number) = search.next().filter(|_| !context.stop.is_requested()) {
            let mut run = self.clone();
            run.families.remove(wanted.flag);
            run.families.insert(wanted.sets, Value::Count(number));
            let words = human::plural(number, wanted.unit);
            run.prepared.title = format!("{words}: ");
            let seed = seed.wrapping_add(exits.len() as u64);
            let step = recording.dir().begin_step_as("run", &words, &format!("{name}-{number}"))?;
            if control.is_closed() {
                control = connect::control::connect(spec).map_err(Failure::from)?;
            }
            let measured =
                run.assemble(&mut control, spec, seed, context.terminal.as_ref()).and_then(|assembled| {
                    run.measure(recording, &step, spec, Some(&mut control), assembled, seed)
                });
            let measured = match measured {
                Ok(measured) => measured,
                Err(failure) if exits.is_empty() => return Err(NoOutcome::Refused(failure)),
                Err(failure) => return Err(NoOutcome::Failed(failure)),
            };
            exits.push(measured.exit);
            let detail = recording.dir().run();
            let passes = detail.step(step.key()).is_some_and(|step| family.passes(&step.summary));
            let tried = Tried { number, unit: wanted.unit.to_string(), passes };
            recording.keep(recording.dir().edit_step(&step, |step| step.summary.tried = Some(tried)));
            // A step that this client spoiled proves nothing about the target: it has one more try.
            if measured.exit == Exit::Invalid && !is_second_try {
                is_second_try = true;
                context.terminal.say(&recording.last_line()?);
                continue;
            }
            is_second_try = false;
            context.terminal.say(&recording.last_line()?);
            let is_valid = matches!(measured.exit, Exit::Ok | Exit::Errors);
            search.report_try(number, is_valid && passes);
        }
        let state = context.state();
        let exit = match () {
            () if state == State::Interrupted => Exit::Interrupted,
            () if exits.iter().all(|exit| *exit == Exit::Invalid) => Exit::Invalid,
            () if search.passing == 0 => Exit::SloMissed,
            () => Exit::Ok,
        };
        Ok(Outcome::page(state, exit))
    }
}

/// Doubles until a number fails, then halves the gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Search {
    loaded: u64,
    /// The largest number that has passed.
    passing: u64,
    /// The least that has failed; one more than there are while none has.
    failing: u64,
}

impl Search {
    fn new(loaded: u64) -> Search {
        Search { loaded, passing: 0, failing: loaded + 1 }
    }

    /// The number to be tried next; `None` when it is known well enough.
    fn next(&self) -> Option<u64> {
        let gap = self.failing - self.passing;
        if gap <= 1 {
            return None;
        }
        if self.failing > self.loaded {
            let grown = if self.passing == 0 { self.loaded / SEARCH_BEGIN } else { 2 * self.passing };
            return Some(grown.clamp(1, self.loaded));
        }
        (gap > self.passing / SEARCH_SHARE).then(|| self.passing + gap / 2)
    }

    fn report_try(&mut self, number: u64, passes: bool) {
        if passes {
            self.passing = self.passing.max(number);
        } else {
            self.failing = self.failing.min(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries until the search ends, with `limit` warehouses that pass.
    fn search(loaded: u64, limit: u64) -> (u64, Vec<u64>) {
        let mut search = Search::new(loaded);
        let mut tried = vec![];
        while let Some(warehouses) = search.next() {
            tried.push(warehouses);
            search.report_try(warehouses, warehouses <= limit);
            assert!(tried.len() < 40, "{tried:?}");
        }
        (search.passing, tried)
    }

    #[test]
    fn a_search_ends_close_to_the_limit() {
        for loaded in [1, 2, 3, 10, 100, 1_500] {
            for limit in 0..=loaded + 1 {
                let (found, tried) = search(loaded, limit);
                assert!(found <= limit && found <= loaded, "{loaded} {limit}: {tried:?}");
                let wanted = limit.min(loaded);
                assert!(wanted - found <= found / SEARCH_SHARE, "{loaded} {limit}: {found} {tried:?}");
                assert!(tried.iter().all(|warehouses| (1..=loaded).contains(warehouses)));
            }
        }
        assert_eq!(search(100, 100).1, [12, 24, 48, 96, 100]);
    }
}
