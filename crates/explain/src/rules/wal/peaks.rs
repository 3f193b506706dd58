//! WAL-02: latency peaks that coincide with checkpoints.

use super::*;

/// A peak is a second this many times above the median p99 ...
const PEAK_FACTOR: f64 = 3.0;
/// Of the tallest: lower peaks are ignored (ours).
const PEAK_TALL: f64 = 0.1;
/// ... and peaks so close together are one.
const PEAK_GAP_US: u64 = 5_000_000;
/// Peaks needed.
const PEAKS_MIN: usize = 3;
/// Of the peaks.
const PEAK_SHARE: f64 = 0.7;
/// A peak may begin so long before its checkpoint is recorded ...
const BEFORE_US: u64 = 1_000_000;
/// ... and so long after.
const AFTER_US: u64 = 5_000_000;
/// Largest probability of chance.
const P_MAX: f64 = 0.01;

/// Times at which checkpoints began: from events, else from the counters.
fn checkpoints(case: &Case) -> Vec<u64> {
    let wording: Vec<u64> = case
        .events_of(event::CHECKPOINT)
        .filter(|event| event.more.get("end_only").and_then(serde_json::Value::as_bool) != Some(true))
        .map(|event| event.t_us)
        .collect();
    if !wording.is_empty() {
        return wording;
    }
    let counted = |field: &'static str| {
        case.things("server").filter_map(move |server| server.lines.series(field)).flat_map(|series| {
            series
                .points()
                .iter()
                .filter(|point| point.sum > 0.0)
                .map(|point| point.from_us)
                .collect::<Vec<_>>()
        })
    };
    let mut times: Vec<u64> = counted("checkpoints_timed").chain(counted("checkpoints_requested")).collect();
    times.sort_unstable();
    times.dedup();
    times
}

/// Stretches above a floor; those that follow closely are one peak.
fn peaks_above(p99: &Series, floor: f64) -> Vec<Window> {
    let mut joined: Vec<Window> = vec![];
    for stretch in p99.stretches(0, |point| point.max >= floor) {
        match joined.last_mut() {
            Some(last) if stretch.from_us.saturating_sub(last.to_us) <= PEAK_GAP_US => {
                last.to_us = stretch.to_us;
            }
            _ => joined.push(stretch),
        }
    }
    joined
}

/// Adds what sessions wait for in the peaks.
fn waits_in_peaks(case: &Case, mut claim: Claim, peaks: &[Window]) -> Claim {
    let sync = |kind: &str, event: &str| (kind, event) == ("IPC", "SyncRep");
    for (node, waits) in case.waiting_nodes() {
        let in_peaks = waits.seen_within(Who::Client, peaks);
        let top = waits
            .of(Who::Client)
            .map(|(event, series)| (waits::name(event), series.within(peaks).sum()))
            .max_by(|left, right| left.1.total_cmp(&right.1))
            .filter(|_| in_peaks > 0.0);
        claim = claim.with(top, |claim, (event, seen)| {
            claim.because(format!(
                "{node}: in the peaks {} of the active sessions are in {event}",
                units::percent(seen / in_peaks)
            ))
        });
        if waits.share(Who::Client, sync).unwrap_or(0.0) > 0.1 {
            claim = claim.because(format!("{node}: sessions wait for synchronous standbys; the checkpoint's writes reach their disks, too"));
        }
    }
    claim
}

/// Adds the hosts that write back much more in the peaks than else.
fn writeback_in_peaks(case: &Case, mut claim: Claim, peaks: &[Window]) -> Claim {
    for host in case.things("host") {
        if let Some(writeback) = host.lines.series("writeback_bytes") {
            let (inside, all) = (writeback.within(peaks).max(), writeback.mean());
            if inside > all * 2.0 {
                claim = claim.because(format!(
                    "{}: up to {} are being written back in the peaks, {} on average",
                    host.place,
                    units::bytes(inside),
                    units::bytes(all)
                ));
            }
        }
    }
    claim
}

pub(super) fn peaks(case: &Case) -> Answer {
    let mut claims = vec![];
    let all = checkpoints(case);
    for (step, window) in case.driven() {
        let Some(p99) = case.client(&step.key).and_then(|client| client.series("response_us_p99")) else {
            continue;
        };
        let p99 = p99.within(&[window]);
        let usual = statistics::median(p99.values()).unwrap_or(0.0);
        let inside: Vec<u64> =
            all.iter().filter(|t_us| window.holds(**t_us)).map(|t_us| t_us - window.from_us).collect();
        if usual <= 0.0 || inside.is_empty() {
            continue;
        }
        // Among peaks of seconds those of milliseconds are noise, however far above the median: if not all of them fit, the tall ones may.
        let floors = [usual * PEAK_FACTOR, (usual * PEAK_FACTOR).max(p99.max() * PEAK_TALL)];
        let coincide = |floor: f64| {
            let joined = peaks_above(&p99, floor);
            let times_us: Vec<u64> =
                joined.iter().map(|peak| peak.from_us.saturating_sub(window.from_us)).collect();
            if times_us.len() < PEAKS_MIN {
                return None;
            }
            let (hits, p) =
                statistics::coincidence(&times_us, &inside, window.length_us(), BEFORE_US, AFTER_US);
            let share = hits as f64 / times_us.len() as f64;
            (share >= PEAK_SHARE && p < P_MAX).then_some((joined, times_us, hits, p))
        };
        let Some((joined, times_us, hits, p)) = floors.into_iter().find_map(coincide) else { continue };
        let height = p99.within(&joined).max();
        let mut claim = Claim::new(
            Severity::High,
            Level::CoOccurrence,
            format!(
                "{}: {hits} of {} latency peaks begin with a checkpoint: p99 rises from {} to {}",
                step.key,
                times_us.len(),
                units::us(usual),
                units::us(height)
            ),
        )
        .number("peaks", times_us.len() as f64)
        .number("peaks_at_checkpoints", hits as f64)
        .number("checkpoints", inside.len() as f64)
        .number("p", p)
        .number("p99_us", usual)
        .number("p99_us_in_peaks", height)
        .because(format!(
            "the probability that this many coincide by chance is p = {}",
            if p < 0.002 { "0.001 or less".to_string() } else { units::short(p) }
        ));
        claim = writeback_in_peaks(case, waits_in_peaks(case, claim, &joined), &joined);
        claims.push(claim.during(joined).remedy(
            "make checkpoints rarer and slower, and put the WAL on a disk that checkpoints do not write to",
            &[
                "ALTER SYSTEM SET max_wal_size = '32GB'; ALTER SYSTEM SET checkpoint_timeout = '15min'; SELECT pg_reload_conf();",
                "ALTER SYSTEM SET checkpoint_completion_target = 0.9; ALTER SYSTEM SET checkpoint_flush_after = '256kB'; SELECT pg_reload_conf();",
            ],
        ));
    }
    let count = all.len();
    Answer::of(claims, || format!("p99 of every second against {}", units::counted(count, "checkpoint")))
}
