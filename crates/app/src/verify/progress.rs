//! How far a verification is: in the run directory, and on the terminal.

use std::time::Duration;

use load::verify::VerifyProgress;
use record::sample::SOURCE_VERIFY;
use record::{ProgressSample, StepId};

use crate::context::Context;
use crate::recording::Recording;
use crate::{human, terminal};

/// Records and shows the progress of one step.
pub(super) struct Reporter<'a> {
    recording: &'a Recording<'a>,
    step: &'a StepId,
    jobs: usize,
    terminal: terminal::Progress<'a>,
    /// Of the sample before.
    phase: Option<&'static str>,
    rows: u64,
    t_us: u64,
}

impl<'a> Reporter<'a> {
    /// `every`: as [`terminal::Progress::new`].
    pub(super) fn new(
        context: &'a Context,
        recording: &'a Recording<'a>,
        step: &'a StepId,
        jobs: usize,
        every: Option<Duration>,
    ) -> Reporter<'a> {
        let terminal = terminal::Progress::new(context.terminal.as_ref(), every);
        let t_us = recording.dir().now_us();
        Reporter { recording, step, jobs, terminal, phase: None, rows: 0, t_us }
    }

    pub(super) fn report(&mut self, now: &VerifyProgress) {
        let (recording, dir) = (self.recording, self.recording.dir());
        let phase = now.phase.as_str();
        if self.phase != Some(phase) {
            recording.keep(dir.begin_phase(self.step, phase).map(|_| ()));
            self.phase = Some(phase);
            self.rows = 0;
        }
        let t_us = dir.now_us();
        let sample = ProgressSample {
            phase: phase.to_string(),
            rows: now.rows_done.saturating_sub(self.rows),
            rows_total: now.rows_done,
            rows_goal: now.rows_total,
            streams: self.jobs as u64,
            ..ProgressSample::default()
        };
        recording.keep(dir.progress_sample(self.step, SOURCE_VERIFY, t_us, t_us - self.t_us, &sample));
        (self.rows, self.t_us) = (now.rows_done, t_us);
        let text = line(now);
        self.terminal.show(|_| text.clone(), || text.clone());
    }
}

fn line(progress: &VerifyProgress) -> String {
    let seconds = progress.elapsed.as_secs_f64();
    // A phase that waits, or compares nodes, does not know how many rows there are.
    let rows = match (progress.rows_done, progress.rows_total) {
        (0, 0) => String::new(),
        (done, 0) => format!("  {}", human::plural(done, "row")),
        (done, total) => {
            let percent = (done as f64 * 100.0 / total as f64).min(100.0);
            format!("  {percent:.0} %  {} of {}", human::count(done), human::plural(total, "row"))
        }
    };
    format!("verify{rows}  {}  {}", progress.phase.as_str(), human::seconds(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::verify::Phase;
    use std::time::Duration;

    #[test]
    fn rows_are_counted_where_their_number_is_known() {
        let at = |phase, rows_done, rows_total| {
            line(&VerifyProgress { phase, rows_done, rows_total, elapsed: Duration::from_secs(2) })
        };
        assert_eq!(at(Phase::Compare, 0, 0), "verify  compare  2.0 s");
        assert_eq!(at(Phase::Compare, 1_000, 0), "verify  1,000 rows  compare  2.0 s");
        assert_eq!(at(Phase::Judge, 500, 1_000), "verify  50 %  500 of 1,000 rows  judge  2.0 s");
    }
}
