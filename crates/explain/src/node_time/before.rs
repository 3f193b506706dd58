//! Time of executions that began before the recording, or before its measured phase. A statement is counted when it ends, and then with all of its time:
//! a command of an hour that ends in a recording of a minute would have most of it.

use crate::case::Lines;
use record::finding::Window;

/// Milliseconds that a statement was counted with and that lie before the window of its count: in that window each execution had no more time than
/// since its begin.
pub(super) fn of(lines: &Lines, windows: &[Window]) -> f64 {
    let inside = |field: &str| lines.series(field).map(|series| series.within(windows));
    let (Some(calls), Some(total)) = (inside("calls"), inside("total_ms")) else { return 0.0 };
    let before = total.points().iter().filter_map(|point| {
        let window = windows.iter().find(|window| window.holds(point.to_us))?;
        let at = calls.points().binary_search_by_key(&point.to_us, |count| count.to_us).ok()?;
        let most_ms = calls.points()[at].sum * point.to_us.saturating_sub(window.from_us) as f64 / 1e3;
        Some((point.sum - most_ms).max(0.0))
    });
    before.sum()
}
