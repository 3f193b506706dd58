//! What a run reports once a second while it lasts: samples, events, and the line of progress.

use super::*;

/// What was counted since the last report of progress.
pub(super) struct Period {
    posted: Posted,
    from: Nanos,
}

impl Period {
    pub(super) fn new(shape: Shape) -> Period {
        Period { posted: Posted::new(shape), from: 0 }
    }
}

/// Receives the progress of a run once a second.
pub(super) struct Watcher<'a> {
    pub(super) recording: &'a Recording<'a>,
    pub(super) step: &'a StepId,
    pub(super) items: &'a [(String, u64)],
    pub(super) progress: terminal::Progress<'a>,
    /// Put in front of every line of progress.
    pub(super) progress_line: &'a str,
    /// In a sweep: whether throughput settles in the warm-up.
    pub(super) settling: Option<Settling>,
    pub(super) begin: Nanos,
    pub(super) measure_from: Nanos,
    pub(super) warmup: Duration,
    pub(super) duration: Option<Duration>,
    pub(super) is_open_loop: bool,
    pub(super) phase: &'static str,
    pub(super) since_report: Period,
    pub(super) nodes: &'a Nodes,
    pub(super) silences: Silences,
}

impl Watcher<'_> {
    fn phase(&mut self, phase: &'static str, at: Nanos) {
        if self.phase != phase {
            self.phase = phase;
            let dir = self.recording.dir();
            self.recording.keep(dir.begin_phase_at(self.step, phase, dir.clock().t_us(at)));
        }
    }

    fn keep(&mut self, second: &Second<'_>) {
        let dir = self.recording.dir();
        let (from_us, to_us) = (dir.clock().t_us(second.from), dir.clock().t_us(second.to));
        let posted = second.posted;
        let mut response = record::Latency::new();
        let mut service = record::Latency::new();
        let mut sample = ClientSample {
            phase: self.phase.to_string(),
            scheduled: second.scheduled,
            backlog: second.backlog,
            sessions: second.connected as u64,
            client_cpu_us: second.client_cpu / NANOS_PER_MICRO,
            ..ClientSample::default()
        };
        for interval in [&posted.warmup, &posted.measured] {
            sample.started += interval.started;
            sample.transactions += interval.transactions();
            sample.errors += interval.failed();
            sample.retries += interval.retries();
            for ((name, _), tally) in self.items.iter().zip(&interval.types) {
                let own = if self.is_open_loop { &tally.service } else { &tally.response };
                response.merge(&tally.response);
                service.merge(own);
                for (kind, latency) in
                    [(LatencyKind::Response, &tally.response), (LatencyKind::Service, &tally.service)]
                {
                    self.recording.keep(dir.interval(self.step, name, kind, from_us, to_us, latency));
                }
            }
        }
        self.nodes.keep(self.recording, self.step, self.phase, (from_us, to_us), posted);
        sample.set_response(&response);
        sample.set_service(&service);
        if self.is_open_loop {
            let mut lag = posted.measured.lag.clone();
            lag.merge(&posted.warmup.lag);
            sample.set_lag(&lag);
        } else {
            sample.scheduled = sample.started;
        }
        self.recording.keep(dir.client_sample(self.step, to_us, to_us.saturating_sub(from_us), &sample));
    }
}

impl Observer for Watcher<'_> {
    fn begins(&mut self, begin: Nanos) {
        self.begin = begin;
        self.since_report.from = begin;
        self.measure_from = begin + self.warmup.as_nanos() as Nanos;
        self.phase(if self.warmup.is_zero() { PHASE_MEASURE } else { PHASE_WARMUP }, begin);
    }

    fn second(&mut self, second: &Second<'_>) {
        if second.to > self.measure_from {
            self.phase(PHASE_MEASURE, self.measure_from);
        }
        let end =
            self.duration.map_or(Nanos::MAX, |duration| self.measure_from + duration.as_nanos() as Nanos);
        if second.from >= end {
            self.phase(PHASE_DRAIN, end);
        }
        self.keep(second);
        self.silences.second(
            (second.from / NANOS_PER_MICRO, second.to / NANOS_PER_MICRO),
            &self.nodes.done(second.posted),
        );
        if let Some(settling) = self.settling.as_mut().filter(|_| second.is_warmup) {
            settling.add(second.posted.warmup.transactions(), (second.to - second.from) as f64 / 1e9);
        }
        let Watcher {
            progress,
            since_report,
            is_open_loop,
            phase,
            begin,
            duration,
            warmup,
            progress_line: step,
            ..
        } = self;
        since_report.posted.add(second.posted);
        let is_reported = Cell::new(false);
        let text = || {
            is_reported.set(true);
            let label = if *phase == PHASE_WARMUP { " (warm-up)" } else { "" };
            format!("{}{label}", progress_line(since_report, *begin, second.to, *is_open_loop))
        };
        let share = duration.map_or(String::new(), |duration| {
            let done = second.to.saturating_sub(*begin) as f64 / 1e9;
            format!("{:.0} %  ", (done * 100.0 / (*warmup + duration).as_secs_f64()).min(100.0))
        });
        progress.show(
            |width| format!("{step}{share}{}", text()).chars().take(width).collect(),
            || format!("progress: {step}{}", text()),
        );
        if is_reported.get() {
            since_report.posted.reset();
            since_report.from = second.to;
        }
    }

    fn is_settled(&mut self) -> bool {
        self.settling.as_ref().is_some_and(|settling| settling.is_settled() == Some(true))
    }

    fn measures_from(&mut self, moment: Nanos) {
        self.measure_from = moment;
        self.warmup = Duration::from_nanos(moment.saturating_sub(self.begin));
    }
}

/// pgbench's line of progress, with percentiles.
fn progress_line(period: &Period, begin: Nanos, now: Nanos, is_open_loop: bool) -> String {
    let seconds = (now.saturating_sub(period.from)).max(1) as f64 / 1e9;
    let mut response = record::Latency::new();
    let mut lag = record::Latency::new();
    let (mut transactions, mut failed, mut retries) = (0, 0, 0);
    for interval in [&period.posted.warmup, &period.posted.measured] {
        transactions += interval.transactions();
        failed += interval.failed();
        retries += interval.retries();
        lag.merge(&interval.lag);
        interval.types.iter().for_each(|tally| response.merge(&tally.response));
    }
    let ms = |us: f64| format!("{:.3}", us / 1e3);
    let mut text = format!(
        "{:.1} s, {:.1} tps, lat {} ms p50 {} p99 {} max {}, {failed} failed",
        now.saturating_sub(begin) as f64 / 1e9,
        transactions as f64 / seconds,
        ms(response.mean_us()),
        ms(response.quantile_us(0.5) as f64),
        ms(response.quantile_us(0.99) as f64),
        ms(response.max_us() as f64),
    );
    if retries > 0 {
        text.push_str(&format!(", {retries} retried"));
    }
    if is_open_loop {
        text.push_str(&format!(", lag p99 {} ms", ms(lag.quantile_us(0.99) as f64)));
    }
    text
}
