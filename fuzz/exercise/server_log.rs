//! Any bytes as a server's log, in each format and torn anywhere: events come out, or nothing.

use record::Clock;
use watch::Tick;
use watch::log::{Format, events_of};

const FORMATS: [Format; 3] = [Format::Stderr, Format::Csv, Format::Json];
const PREFIXES: [&str; 5] = ["%m [%p] ", "%t %u@%d %e ", "%p", "", "%m%p%q%"];
/// Events of one input: one a line, and a few of the whole.
const EVENTS_BESIDE: usize = 8;

/// The first byte chooses format and prefix, the second how the bytes are torn.
pub(crate) fn exercise(data: &[u8]) {
    let Some((&[style, piece], log)) = data.split_first_chunk::<2>() else { return };
    let format = FORMATS[usize::from(style) % FORMATS.len()];
    let prefix = PREFIXES[usize::from(style) / FORMATS.len() % PREFIXES.len()];
    let clock = Clock { monotonic_us: 77, wall_us: 1_763_633_700_000_000 };
    let tick = Tick { now_us: 5_000_000, clock, cadence_us: 1_000_000 };
    let events = events_of(log, usize::from(piece) + 1, format, prefix, &tick);
    let lines = log.iter().filter(|byte| **byte == b'\n').count() + 1;
    assert!(events.len() <= 2 * lines + EVENTS_BESIDE, "{} events of {lines} lines", events.len());
    assert!(events.iter().all(|event| !event.kind.is_empty()));
}
