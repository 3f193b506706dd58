//! The server's clock.

use crate::database::draft::{judged, unknown};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged};
use crate::host::{CLOCKS_MATTER, OFFSET_US, SYNCHRONISE, apart};
use record::check::{Area, Unit, Verdict};
use watch::sql::clock::Offset;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "state.clock",
    area: Area::State,
    title: "distance of the server's clock to that of the host that runs `check`",
    limits: "beyond the error of the measurement, half of a round trip: above 10 ms: warning; above 100 ms: fail",
    units: &[Unit::Microseconds],
    needs: &[],
    why: CLOCKS_MATTER,
    judge: clock,
}];

fn clock(node: &mut Node<'_>) -> Judged {
    let Some(Offset { offset_us, error_us }) = node.clock()? else {
        return Ok(vec![unknown("the server's clock is not known", "the server gave no time")]);
    };
    let (verdict, claim) = apart(offset_us, error_us);
    let draft = judged(verdict, "", claim)
        .figure(offset_us.unsigned_abs() as f64, Unit::Microseconds)
        .at_most(OFFSET_US.0 as f64);
    Ok(vec![if verdict == Verdict::Pass { draft } else { draft.advice(SYNCHRONISE.0).run(SYNCHRONISE.1) }])
}
