//! The summary of a run, from its steps.

use super::Summary;
use crate::matrix::Matrix;
use crate::model::Step;
use crate::sweep::Sweep;

impl Summary {
    /// The summary of a run of several steps, or of a sweep: what [`Summary::of_steps`] gives, and what the sweep found. A sweep over
    /// several numbers of sessions has no throughput of its own: the mean over them proves nothing. Nor has a node matrix, whose cells
    /// stand in `matrix` and need not stand in `steps` once more.
    pub fn of_run(verb: &str, name: &str, steps: &[Step]) -> Summary {
        let summary = Summary::of_steps(verb, name, steps.iter().map(|step| step.summary.clone()).collect());
        if let Some(matrix) = Matrix::of_steps(steps) {
            let findings = Some(matrix.findings());
            return Summary { tps: None, steps: vec![], matrix: Some(matrix), findings, ..summary };
        }
        let sweep = Sweep::of(steps);
        let points =
            sweep.iter().flat_map(|sweep| &sweep.curves).map(|curve| curve.points.len()).sum::<usize>();
        Summary { tps: summary.tps.filter(|_| points <= 1), sweep, ..summary }
    }
}
