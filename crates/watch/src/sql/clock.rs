//! The server's clock against ours.

use super::session::{Failed, Session};
use record::clock::{monotonic_us, wall_us};

/// Round trips of which the shortest gives the offset.
const PROBES: u32 = 5;

/// How far the server's clock is from ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offset {
    /// Theirs minus ours.
    pub offset_us: i64,
    /// Half of the round trip: the offset is at most this far from the true one.
    pub error_us: u64,
}

/// By the midpoint method: the server's reading lies between two of ours, and the shortest round trip is the most exact. `None`: no answer had a time.
///
/// # Errors
/// The server's message, or why the connection is gone.
pub fn offset(session: &mut Session) -> Result<Option<Offset>, Failed> {
    let mut best: Option<(u64, i64)> = None;
    for _ in 0..PROBES {
        let (begin_us, begin_wall_us) = (monotonic_us(), wall_us());
        let answer = session.query(
            "select json_build_object('now', (extract(epoch from clock_timestamp()) * 1000000)::bigint)::text",
            &[],
        )?;
        let round_us = monotonic_us() - begin_us;
        let Some(theirs_us) = answer["now"].as_i64() else { continue };
        if best.is_none_or(|(shortest, _)| round_us < shortest) {
            best = Some((round_us, theirs_us - (begin_wall_us as i64 + (round_us / 2) as i64)));
        }
    }
    Ok(best.map(|(round_us, offset_us)| Offset { offset_us, error_us: round_us.div_ceil(2) }))
}
