use super::*;
use crate::ycsb::ROW_VALUE_BYTES;

fn counters() -> Counters {
    let mut counters = Counters::new(3, 10, 1000, ROW_VALUE_BYTES);
    counters.rows_earlier = 100;
    counters.chunks_done.store(1, Ordering::Relaxed);
    counters
}

fn node(name: &str) -> NodeCounters {
    NodeCounters { name: name.to_owned(), idle: AtomicBool::new(false) }
}

/// Six streams of three nodes; each tick every stream sends its share.
#[test]
fn a_slow_node_is_reported_once_and_when_it_has_recovered() {
    let mut counters = Counters::new(6, 100, 1_000_000, ROW_VALUE_BYTES);
    counters.nodes = ["n1", "n2", "n3"].map(node).into();
    let start = Instant::now();
    let mut meter = Meter::new(start, 0);
    meter.begin(Phase::Copy, &counters, start);
    let mut reported = Vec::new();
    let mut second = 0;
    let mut run = |ticks: usize, rates: [u64; 3], reported: &mut Vec<String>| {
        let mut last = None;
        for _ in 0..ticks {
            second += 1;
            for (stream, sent) in counters.streams.iter().enumerate() {
                sent.add_sent(rates[stream % 3]);
            }
            let now = start + Duration::from_secs(second);
            let (progress, sample, _) = meter.tick(&counters, now, 0);
            reported.extend(meter.slow_node_event(&progress).map(|event| event.message));
            last = Some((progress, sample));
        }
        last.unwrap()
    };
    run(20, [100, 90, 110], &mut reported);
    assert!(reported.is_empty(), "{reported:?}");
    let (progress, sample) = run(20, [100, 10, 110], &mut reported);
    let slowest = progress.slowest_node.unwrap();
    assert_eq!((slowest.name.as_str(), slowest.rows_per_s, slowest.others_rows_per_s), ("n2", 20.0, 210.0));
    assert_eq!((sample.slowest_node.as_deref(), sample.slowest_node_rows), (Some("n2"), Some(20)));
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].starts_with("n2 is slow: ") && reported[0].contains("rows/s, the others "),
        "{reported:?}"
    );
    run(20, [100, 95, 110], &mut reported);
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported[1].starts_with("n2 keeps up again"), "{reported:?}");
    // Who is through is not slow.
    counters.nodes[1].idle.store(true, Ordering::Relaxed);
    let (progress, _) = run(20, [100, 0, 110], &mut reported);
    assert_eq!(progress.slowest_node.unwrap().name, "n1");
    assert_eq!(reported.len(), 2);
}

#[test]
fn rates_percent_and_eta_come_from_the_counters() {
    let counters = counters();
    let start = Instant::now();
    let mut meter = Meter::new(start, 500);
    meter.begin(Phase::Copy, &counters, start);
    counters.streams[0].add_sent(100);
    counters.streams[0].commit(100);
    counters.chunks_done.fetch_add(1, Ordering::Relaxed);
    counters.streams[1].add_sent(50);
    counters.streams[1].set_connected(true);
    let (progress, sample, interval) = meter.tick(&counters, start + Duration::from_secs(1), 1500);
    assert_eq!(interval, Duration::from_secs(1));
    assert_eq!((progress.rows_done, progress.rows_total, progress.rows_earlier), (250, 1000, 100));
    assert_eq!(progress.percent, Some(25.0));
    assert_eq!((progress.rows_per_s_now, progress.rows_per_s_mean), (150.0, 150.0));
    assert_eq!(progress.eta, Some(Duration::from_secs(5)));
    assert_eq!((progress.chunks_done, progress.chunks_total), (2, 10));
    assert_eq!((progress.streams, progress.streams_connected), (3, 1));
    let slowest = progress.slowest.unwrap();
    assert_eq!((slowest.index, slowest.rows_per_s, slowest.median_rows_per_s), (2, 0.0, 50.0));
    assert_eq!((sample.rows, sample.bytes, sample.chunks), (150, 150 * ROW_VALUE_BYTES, 1));
    assert_eq!((sample.rows_total, sample.rows_goal, sample.client_cpu_us), (250, 1000, 1000));
    assert_eq!(sample.phase, "copy");

    let (progress, sample, _) = meter.tick(&counters, start + Duration::from_secs(3), 1500);
    assert_eq!((progress.rows_per_s_now, progress.rows_per_s_mean), (0.0, 50.0));
    assert_eq!((sample.rows, sample.chunks, sample.client_cpu_us), (0, 0, 0));
}

#[test]
fn rolled_back_rows_leave_the_sum_but_not_the_streams_effort() {
    let counters = counters();
    let start = Instant::now();
    let mut meter = Meter::new(start, 0);
    meter.begin(Phase::Copy, &counters, start);
    counters.streams[2].add_sent(300);
    assert_eq!(meter.tick(&counters, start + TICK, 0).0.rows_done, 400);
    counters.streams[2].rolled_back();
    let (progress, sample, _) = meter.tick(&counters, start + 2 * TICK, 0);
    assert_eq!((progress.rows_done, progress.rows_per_s_now, sample.rows), (100, 0.0, 0));
    assert_ne!(progress.slowest.unwrap().index, 2);
}

#[test]
fn a_mean_is_kept_when_the_copy_phase_is_over() {
    let counters = counters();
    let start = Instant::now();
    let mut meter = Meter::new(start, 0);
    meter.begin(Phase::Copy, &counters, start);
    counters.streams[0].add_sent(900);
    counters.streams[0].commit(900);
    meter.begin(Phase::Index, &counters, start + Duration::from_secs(9));
    meter.set_percent(40.0);
    let (progress, _, _) = meter.tick(&counters, start + Duration::from_secs(90), 0);
    assert_eq!((progress.phase, progress.percent, progress.eta), (Phase::Index, Some(40.0), None));
    assert_eq!(progress.rows_per_s_mean, 100.0);
    assert_eq!(progress.slowest, None);
}

#[test]
fn an_empty_dataset_is_complete() {
    let counters = Counters::new(1, 0, 0, ROW_VALUE_BYTES);
    let start = Instant::now();
    let mut meter = Meter::new(start, 0);
    meter.begin(Phase::Copy, &counters, start);
    let (progress, _, _) = meter.tick(&counters, start, 0);
    assert_eq!((progress.percent, progress.rows_per_s_now, progress.eta), (Some(100.0), 0.0, None));
}

#[test]
fn the_window_forgets() {
    let counters = Counters::new(1, 10, 1_000_000, ROW_VALUE_BYTES);
    let start = Instant::now();
    let mut meter = Meter::new(start, 0);
    meter.begin(Phase::Copy, &counters, start);
    // An hour at 100 rows a second, then a minute at 10: the estimate believes the minute.
    let mut at = start;
    for rate in std::iter::repeat_n(100, 3600).chain(std::iter::repeat_n(10, 60)) {
        counters.streams[0].add_sent(rate);
        at += TICK;
        meter.tick(&counters, at, 0);
    }
    counters.streams[0].add_sent(10);
    let (progress, _, _) = meter.tick(&counters, at + TICK, 0);
    let left = 1_000_000 - progress.rows_done;
    assert_eq!(progress.eta.unwrap().as_secs(), left / 10);
}
