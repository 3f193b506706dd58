//! Whether the target's engine moved rows to other nodes while something was measured.

use crate::recording::Recording;
use connect::control::Control;
use engines::Engine;
use engines::placement::Places;
use record::model::ErrorStatistics;

/// SQLSTATE of our own error that a row which must be there was not found.
const NOT_FOUND: &str = "02000";

/// Where the rows were at the begin; `None` on engines that move none.
pub(crate) struct Moved(Option<Places>);

impl Moved {
    pub(crate) fn begin(recording: &Recording<'_>, control: Option<&mut Control>) -> Moved {
        Moved(places(recording, control))
    }

    /// What was moved since then, as notes.
    pub(crate) fn notes(
        self,
        recording: &Recording<'_>,
        control: Option<&mut Control>,
        errors: &[ErrorStatistics],
    ) -> Vec<String> {
        let now = places(recording, control);
        let Some(moved) = self.0.zip(now).and_then(|(before, now)| before.moved(&now)) else { return vec![] };
        let missed: u64 =
            errors.iter().filter(|error| error.sqlstate == NOT_FOUND).map(|error| error.count).sum();
        let missed = (missed > 0).then(|| {
            format!(
                "{missed} times a row was not found, which can happen at the moment in which its shard changes the node; \
                 pgfathom verify shows whether rows are missing"
            )
        });
        [Some(moved), missed].into_iter().flatten().collect()
    }
}

fn places(recording: &Recording<'_>, control: Option<&mut Control>) -> Option<Places> {
    let engine = recording.dir().run().target.as_ref().and_then(|target| Engine::parse(&target.engine))?;
    Places::read(&mut **control?, engine)
}
