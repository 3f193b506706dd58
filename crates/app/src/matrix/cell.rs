//! One cell: visited once a round, written down as one step.

use super::{Operation, Plan};
use crate::context::Context;
use crate::context::cpus;
use crate::failure::Failure;
use crate::human;
use crate::recording::Recording;
use crate::terminal;
use connect::conninfo::Pinned;
use engines::Cluster;
use record::hlog::Kind as LatencyKind;
use record::matrix as names;
use record::model::{Dataset, ErrorStatistics, PHASE_DRAIN, PHASE_MEASURE, PHASE_WARMUP, Verdict};
use record::totals::{CellTotals, Distance};
use record::{ClientSample, Latency, State, StepId};
use run::client::SessionRecord;
use run::control::StopFlag;
use run::dial::TargetDial;
use run::drive::{Account, DriveError, Observer, Options, Second, drive};
use run::engine::{NANOS_PER_MICRO, Nanos};
use run::routing::Connects;
use run::schedule::Pace;
use run::tally::ErrorTally;
use run::verdict;
use run::workload::Mix;
use serde_json::{Map, Value};
use std::sync::Arc;
use workloads::driving::Benchmark;

/// Sessions that one worker thread is given unless -j is given.
const SESSIONS_PER_WORKER: u64 = 32;
/// Tries of an update that meets another one; as for `run`.
const TRIES_MAX: u64 = 10;
/// Between the visits of a cell the others have their turns.
const PHASE_OTHERS: &str = "others";
/// Begins the note on too few transactions for high percentiles, which is judged for all visits together.
const ROUGH: &str = "only ";
/// Ends the note on failures, which are counted for all visits together.
const FAILED: &str = " failed";
/// Begins the reason of a visit in which nothing was committed, which is judged for all visits together, too.
const NOTHING: &str = "no transaction succeeded";

/// What a visit needs to know of the whole.
pub(super) struct Visit<'a> {
    pub(super) matrix: &'a Plan,
    pub(super) context: &'a Context,
    pub(super) recording: &'a Recording<'a>,
    pub(super) cluster: &'a Cluster,
    pub(super) stop: &'a StopFlag,
    /// Stands in front of the progress.
    pub(super) label: &'a str,
}

/// A cell, with what its visits gave so far.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) operation: Operation,
    /// The number of its first session; it has the same sessions in each round.
    pub(super) first_session: u64,
    pub(super) pair: (usize, Option<usize>),
    pub(super) step: StepId,
    seconds: f64,
    round_tps: Vec<f64>,
    transactions: u64,
    failed: u64,
    /// Of these, what more time would not have helped.
    failed_for_good: u64,
    retries: u64,
    unfinished: u64,
    client_cpu: Nanos,
    response: Option<Latency>,
    errors: Vec<ErrorTally>,
    invalid: Vec<String>,
    notes: Vec<String>,
    /// Why it could not be visited.
    failure: Option<Failure>,
    is_given_up: bool,
}

impl Cell {
    /// A cell, and its step. Steps are begun in the order of the matrix, so that their order does not depend on the visits.
    pub(super) fn begin(
        recording: &Recording<'_>,
        cluster: &Cluster,
        operation: Operation,
        first_session: u64,
        pair: (usize, Option<usize>),
    ) -> Result<Cell, Failure> {
        let name = |node: usize| cluster.nodes[node].name.as_str();
        let both: Vec<&str> = [Some(name(pair.0)), pair.1.map(name)].into_iter().flatten().collect();
        let title = format!("{}-{}", operation.name(), both.join("-"));
        let step = recording.dir().begin_step(names::VERB, &title)?;
        recording.keep(recording.dir().begin_phase(&step, PHASE_OTHERS).map(drop));
        Ok(Cell {
            operation,
            first_session,
            pair,
            step,
            seconds: 0.0,
            round_tps: vec![],
            transactions: 0,
            failed: 0,
            failed_for_good: 0,
            retries: 0,
            unfinished: 0,
            client_cpu: 0,
            response: None,
            errors: vec![],
            invalid: vec![],
            notes: vec![],
            failure: None,
            is_given_up: false,
        })
    }

    /// It cannot be visited and is left out of further rounds.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Nothing was measured in it.
    pub(super) fn is_empty(&self) -> bool {
        self.transactions == 0
    }

    pub(super) fn has_errors(&self) -> bool {
        self.failed_for_good > 0 || self.unfinished > 0 || self.is_given_up
    }

    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Median response time.
    pub(super) fn p50_us(&self) -> Option<f64> {
        self.response.as_ref().map(|response| response.quantile_us(0.5) as f64)
    }

    /// Drives it for its part of a round; returns what each session did. A node that cannot be reached leaves a hole in the matrix.
    pub(super) fn visit(
        &mut self,
        visit: &Visit<'_>,
        mix: Mix<Benchmark>,
        seed: u64,
    ) -> Result<Vec<SessionRecord>, Failure> {
        let Visit { matrix, recording, cluster, .. } = visit;
        let step = self.step.clone();
        let workers = match matrix.jobs {
            Some(jobs) => jobs as usize,
            None => (matrix.client.div_ceil(SESSIONS_PER_WORKER) as usize).clamp(1, cpus()),
        };
        let options = Options {
            mix,
            sessions: matrix.client,
            workers,
            pace: Pace::Closed,
            duration: Some(matrix.time / matrix.rounds as u32),
            warmup: matrix.warmup,
            transactions_per_session: None,
            latency_limit: None,
            tries_max: TRIES_MAX,
            wire: matrix.wire,
            poller: run::engine::poller::Choice::Auto,
            seed,
            connects: Connects::default(),
            first_session: self.first_session,
        };
        let mut watcher = Watcher {
            visit,
            step: &step,
            operation: self.operation.name(),
            progress: terminal::Progress::new(visit.context.terminal.as_ref(), matrix.progress),
            measure_from: 0,
            end: 0,
            phase: "",
        };
        let duration = options.duration;
        let dial = TargetDial::new(cluster.nodes[self.pair.0].spec.clone().with_pinned(Pinned::Names))
            .with_isolated(engines::engine::isolated());
        let outcome = drive(options, Arc::new(dial), visit.stop, &mut watcher);
        recording.keep(recording.dir().begin_phase(&step, PHASE_OTHERS).map(drop));
        match outcome {
            Ok(account) => {
                self.add(&account, duration);
                Ok(account.sessions)
            }
            Err(DriveError::Interrupted) => Ok(vec![]),
            Err(error) => {
                self.invalid.push(error.to_string());
                self.is_given_up = true;
                self.failure = Some(error.into());
                Ok(vec![])
            }
        }
    }

    fn add(&mut self, account: &Account, duration: Option<std::time::Duration>) {
        let measured = &account.posted.measured;
        let measured_s = account.measured().as_secs_f64();
        self.seconds += measured_s;
        if measured_s > 0.0 {
            self.round_tps.push(measured.transactions() as f64 / measured_s);
        }
        self.transactions += measured.transactions();
        self.failed += measured.failed() + account.posted.warmup.failed();
        self.failed_for_good += account.failed();
        self.retries += measured.retries();
        self.unfinished += account.unfinished;
        self.client_cpu += account.client_cpu;
        let response = self.response.get_or_insert_with(Latency::new);
        for tally in measured.types.iter().filter(|tally| !tally.response.is_empty()) {
            response.merge(&tally.response);
        }
        for error in account.posted.errors.iter().filter(|error| error.count > 0) {
            match self.errors.iter_mut().find(|known| known.sqlstate == error.sqlstate) {
                Some(known) => {
                    known.count += error.count;
                    known.retried += error.retried;
                }
                None => self.errors.push(error.clone()),
            }
        }
        let opinion = verdict::judge(account, duration);
        for (all, new) in [(&mut self.invalid, opinion.invalid), (&mut self.notes, opinion.notes)] {
            for label in new.into_iter().filter(|label| {
                !label.starts_with(ROUGH) && !label.starts_with(NOTHING) && !label.ends_with(FAILED)
            }) {
                // One visit's remark with other numbers is the other visit's remark.
                let letters = |text: &str| text.chars().filter(|c| c.is_alphabetic()).collect::<String>();
                if !all.iter().any(|known| letters(known) == letters(&label)) {
                    all.push(label);
                }
            }
        }
    }

    /// Writes its step and ends it.
    pub(super) fn write(
        &mut self,
        recording: &Recording<'_>,
        parameters: Map<String, Value>,
        dataset: Option<Dataset>,
        distance: Option<Distance>,
        notes: &[String],
        is_interrupted: bool,
    ) {
        let step = &self.step;
        let dir = recording.dir();
        let mut verdict = Verdict::valid();
        self.invalid.iter().for_each(|reason| verdict.invalidate(reason.clone()));
        if self.transactions == 0 && self.invalid.is_empty() && !is_interrupted {
            verdict.invalidate("no transaction was committed in the measured time");
        }
        verdict.notes = notes.iter().chain(&self.notes).cloned().collect();
        if self.failed > 0 {
            verdict.notes.push(format!("{}{FAILED}", human::plural(self.failed, "transaction")));
        }
        if (1..verdict::TRANSACTIONS_FOR_P99_MIN).contains(&self.transactions) {
            verdict
                .notes
                .push(format!("only {} transactions: the high percentiles are inexact", self.transactions));
        }
        let mut errors: Vec<ErrorStatistics> = self
            .errors
            .iter()
            .map(|error| ErrorStatistics {
                sqlstate: error.sqlstate.to_string(),
                count: error.count,
                retried: error.retried,
                first_message: error.first_message.clone(),
                first_us: dir.clock().t_us(error.first),
                first_type: Some(self.operation.name().to_string()),
            })
            .collect();
        errors.sort_by_key(|error| std::cmp::Reverse(error.count));
        let totals = CellTotals {
            unfinished: self.unfinished,
            client_cpu_us: self.client_cpu / NANOS_PER_MICRO,
            round_tps: self.round_tps.clone(),
            distance: distance.unwrap_or_default(),
        };
        let latency = self.response.as_ref().and_then(Latency::summary);
        let state = match () {
            () if self.is_given_up => State::Failed,
            () if is_interrupted => State::Interrupted,
            () => State::Finished,
        };
        recording.keep(dir.edit_step(step, |step| {
            step.parameters = parameters;
            step.dataset = dataset;
            step.summary.duration_s = self.seconds;
            if self.seconds > 0.0 {
                step.summary.transactions = Some(self.transactions);
                step.summary.tps = Some(self.transactions as f64 / self.seconds);
            }
            step.summary.errors = self.failed;
            step.summary.retries = self.retries;
            step.summary.latency_us = latency;
            step.summary.service_us = latency;
            step.summary.client_cpu_us_per_transaction = (self.transactions > 0)
                .then(|| self.client_cpu as f64 / NANOS_PER_MICRO as f64 / self.transactions as f64);
            step.errors = errors;
            step.set_totals(&totals);
            step.verdict = verdict;
        }));
        recording.keep(dir.end_step(step, state));
    }
}

/// Receives the progress of a visit once a second.
struct Watcher<'a> {
    visit: &'a Visit<'a>,
    step: &'a StepId,
    operation: &'static str,
    progress: terminal::Progress<'a>,
    measure_from: Nanos,
    end: Nanos,
    phase: &'static str,
}

impl Watcher<'_> {
    fn phase(&mut self, phase: &'static str, at: Nanos) {
        if self.phase != phase {
            self.phase = phase;
            let recording = self.visit.recording;
            let t_us = recording.dir().clock().t_us(at);
            recording.keep(recording.dir().begin_phase_at(self.step, phase, t_us));
        }
    }
}

impl Observer for Watcher<'_> {
    fn begins(&mut self, begin: Nanos) {
        let matrix = self.visit.matrix;
        self.measure_from = begin + matrix.warmup.as_nanos() as Nanos;
        self.end = self.measure_from + (matrix.time / matrix.rounds as u32).as_nanos() as Nanos;
        self.phase(if matrix.warmup.is_zero() { PHASE_MEASURE } else { PHASE_WARMUP }, begin);
    }

    fn second(&mut self, second: &Second<'_>) {
        if second.to > self.measure_from {
            self.phase(PHASE_MEASURE, self.measure_from);
        }
        if second.from >= self.end {
            self.phase(PHASE_DRAIN, self.end);
        }
        let recording = self.visit.recording;
        let dir = recording.dir();
        let (from_us, to_us) = (dir.clock().t_us(second.from), dir.clock().t_us(second.to));
        let mut response = Latency::new();
        let mut sample = ClientSample {
            phase: self.phase.to_string(),
            sessions: second.connected as u64,
            client_cpu_us: second.client_cpu / NANOS_PER_MICRO,
            ..ClientSample::default()
        };
        for interval in [&second.posted.warmup, &second.posted.measured] {
            sample.started += interval.started;
            sample.transactions += interval.transactions();
            sample.errors += interval.failed();
            sample.retries += interval.retries();
            interval.types.iter().for_each(|tally| response.merge(&tally.response));
        }
        sample.scheduled = sample.started;
        sample.set_response(&response);
        sample.set_service(&response);
        recording.keep(dir.interval(
            self.step,
            self.operation,
            LatencyKind::Response,
            from_us,
            to_us,
            &response,
        ));
        recording.keep(dir.client_sample(self.step, to_us, to_us.saturating_sub(from_us), &sample));
        let seconds = second.to.saturating_sub(second.from).max(1) as f64 / 1e9;
        let text = format!("{}  {:.0} tps", self.visit.label, sample.transactions as f64 / seconds);
        self.progress.show(|width| text.chars().take(width).collect(), || format!("progress: {text}"));
    }
}
