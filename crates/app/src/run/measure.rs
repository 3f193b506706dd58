//! Drives the workload as one step of a run directory: samples, histograms and events while it lasts, the account at its end.

mod progress;

use self::progress::{Period, Watcher};
use super::Plan;
use super::advice;
use super::assembled::{Assembled, Entries};
use super::nodes::Nodes;
use super::settle::Settling;
use super::silence::Silences;
use crate::failure::Failure;
use crate::moved::Moved;
use crate::recording::{Recording, fields};
use crate::terminal;
use connect::ConnSpec;
use connect::conninfo::Pinned;
use connect::control::Control;
use record::event::{self, Event};
use record::hlog::Kind as LatencyKind;
use record::model::{
    ErrorStatistics, OutageStatistics, PHASE_DRAIN, PHASE_MEASURE, PHASE_WARMUP, TypeStatistics, Verdict,
};
use record::totals::RunTotals;
use record::{ClientSample, Exit, State, StepId};
use run::control::Cause;
use run::control::Outage;
use run::drive::{Account, Observer, Options, Second, drive};
use run::engine::{NANOS_PER_MICRO, Nanos};
use run::schedule::Pace;
use run::tally::{Posted, Shape, TypeTally};
use run::verdict::{self, Opinion};
use serde_json::json;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;
use workloads::driving::{Benchmark, ServerAudit};

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Measured {
    /// What the process ends with.
    pub exit: Exit,
    /// What the directory holds.
    pub state: State,
}

impl Plan {
    /// Drives `assembled` against `spec` as the step `step`, which is ended, except after an error. Only a simulation has no control
    /// connection.
    ///
    /// # Errors
    /// When no session could start.
    pub(crate) fn measure(
        &self,
        recording: &Recording<'_>,
        step: &StepId,
        spec: &ConnSpec,
        mut control: Option<&mut Control>,
        mut assembled: Assembled,
        seed: u64,
    ) -> Result<Measured, Failure> {
        let context = recording.context();
        let options = self.drive_options(&assembled, seed);
        let duration = options.duration;
        let parameters = self.parameters(&options, assembled.scale)?;
        let mut datasets = std::mem::take(&mut assembled.datasets).into_iter();
        recording.keep(recording.dir().edit_step(step, |step| {
            step.parameters = parameters;
            step.dataset = datasets.next();
            step.further_datasets = datasets.collect();
        }));
        let items: Vec<(String, u64)> =
            assembled.mix.items().iter().map(|item| (item.name.clone(), item.weight)).collect();
        let stop = context.stop.session_flag();
        let is_open_loop = options.pace != Pace::Closed;
        let nodes = Nodes::of(self.route.cluster(), &options.connects);
        let mut watcher = self.watcher(recording, step, &items, &nodes, &options);
        let audits = &mut assembled.audits;
        query_server(control.as_deref_mut(), spec, audits, true)?;
        let moved = Moved::begin(recording, control.as_deref_mut());
        let is_shared = control.as_deref().is_some_and(Control::is_shared);
        if let Some(control) = control.as_deref_mut() {
            // A pool's server process that nothing needs now is one for the sessions. If it is lost, the next use finds out.
            let _ = control.release();
        }
        // A script means what it means in psql; workloads of ours name their schemas.
        let pinned = if options.mix.is_users() { Pinned::Nothing } else { Pinned::Names };
        let dial = self.route.dial(spec, &options.connects, pinned, assembled.plans_each);
        let ours = options.mix.statements().to_vec();
        assembled.writers.set_begun();
        let account = assembled.writers.driven(drive(options, dial, &stop, &mut watcher));
        context.terminal.end_progress();
        let (settling, silences) = (watcher.settling, watcher.silences);
        let account = account?;
        let mut missed = compare_again(control.as_deref_mut(), spec, audits);
        let moved = moved.notes(recording, control.as_deref_mut(), &errors(recording, &items, &account));
        if let Some(control) = control {
            // In a pool of two server processes the mark of the run has one, and the ledger needs the other one.
            let _ = control.release();
        }
        if let Some(settling) = settling {
            self.write_settling(recording, step, &settling, &account);
        }
        missed.extend(end_in_ledger(&mut assembled.writers, &account));
        let mut opinion = verdict::judge(&account, duration);
        let is_missed = !missed.is_empty();
        opinion.notes.extend(missed);
        opinion.notes.extend(moved);
        opinion.notes.extend(advice::of(&account, spec, is_shared, self.protocol()?, &ours));
        recording.keep(recording.dir().edit_step(step, |step| {
            for (first, audit) in audits.iter() {
                audit.judge(&account, *first, &mut step.summary, &mut opinion);
            }
        }));
        self.write_account(recording, step, &items, &account, &opinion, is_open_loop);
        let seconds = account.measured().as_secs_f64();
        nodes.write(recording, step, (&account, seconds), &silences);
        let state = if account.is_interrupted { State::Interrupted } else { State::Finished };
        recording.keep(recording.dir().end_step(step, state));
        Ok(Measured { exit: not_better_than_errors(exit_of(&account, &opinion), is_missed), state })
    }

    fn watcher<'a>(
        &'a self,
        recording: &'a Recording<'a>,
        step: &'a StepId,
        items: &'a [(String, u64)],
        nodes: &'a Nodes,
        options: &Options<Benchmark>,
    ) -> Watcher<'a> {
        let context = recording.context();
        Watcher {
            recording,
            step,
            items,
            progress: terminal::Progress::new(context.terminal.as_ref(), self.progress),
            progress_line: &self.prepared.title,
            settling: (self.prepared.is_step && !self.warmup.is_zero())
                .then(|| Settling::new(self.warmup, self.settle_percent())),
            begin: 0,
            measure_from: 0,
            warmup: options.warmup,
            duration: options.duration,
            is_open_loop: options.pace != Pace::Closed,
            phase: "",
            since_report: Period::new(nodes.shape(items.len())),
            nodes,
            silences: Silences::default(),
        }
    }

    fn drive_options(&self, assembled: &Assembled, seed: u64) -> Options<Benchmark> {
        let pace = match (self.rate, assembled.users) {
            (_, Some(users)) => Pace::Terminals(users),
            (None, _) => Pace::Closed,
            (Some(per_second), _) if self.regular => Pace::Regular { per_second },
            (Some(per_second), _) => Pace::Poisson { per_second },
        };
        Options {
            mix: assembled.mix.clone(),
            sessions: self.client.first(),
            workers: self.workers(),
            pace,
            duration: if self.transactions.is_some() {
                None
            } else {
                Some(self.time.unwrap_or(super::TIME_DEFAULT))
            },
            warmup: self.warmup,
            transactions_per_session: self.transactions,
            latency_limit: self.latency_limit,
            tries_max: self.max_tries,
            wire: self.wire,
            poller: self.poller,
            seed,
            connects: assembled
                .connects
                .clone()
                .unwrap_or_else(|| self.route.connects(self.client.first(), seed)),
            first_session: 0,
        }
    }

    fn parameters(
        &self,
        options: &Options<Benchmark>,
        scale: Option<i64>,
    ) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
        Ok(fields(json!({
            "sessions": options.sessions,
            "workers": options.workers,
            "time_s": options.duration.map(|duration| duration.as_secs_f64()),
            "transactions_per_session": options.transactions_per_session,
            "rate_per_s": self.rate,
            "arrivals": self.rate.map(|_| if self.regular { "regular" } else { "poisson" }),
            "latency_limit_ms": options.latency_limit.map(|limit| limit.as_secs_f64() * 1e3),
            "warmup_s": options.warmup.as_secs_f64(),
            "max_tries": options.tries_max,
            "protocol": self.protocol()?.name(),
            "scale": scale,
            "scripts": self.described_scripts(),
            "wire": options.wire.name(),
            "seed": options.seed,
            "connect": self.route.words().0,
            "data": self.route.words().1,
        })))
    }

    /// How the warm-up of a sweep's step went.
    fn write_settling(
        &self,
        recording: &Recording<'_>,
        step: &StepId,
        settling: &Settling,
        account: &Account,
    ) {
        let warmup_s = account.measure_from.saturating_sub(account.begin) as f64 / 1e9;
        recording.keep(recording.dir().edit_step(step, |step| {
            if let Some(place) = &mut step.sweep {
                place.warmup_s = Some(warmup_s);
                place.settled = settling.is_settled();
                place.spread_percent = settling.spread_percent();
            }
        }));
    }

    fn write_account(
        &self,
        recording: &Recording<'_>,
        step: &StepId,
        items: &[(String, u64)],
        account: &Account,
        opinion: &Opinion,
        is_open_loop: bool,
    ) {
        let poller = account.poller.name().into();
        recording.keep(recording.dir().edit_step(step, |step| {
            step.parameters.insert("poller".into(), poller);
        }));
        let measured = &account.posted.measured;
        let seconds = account.measured().as_secs_f64();
        let mut response = record::Latency::new();
        let mut service = record::Latency::new();
        for tally in items.iter().zip(&measured.types).map(|(_, tally)| tally) {
            response.merge(&tally.response);
            service.merge(own_time(tally, is_open_loop));
        }
        let types = types(items, account, is_open_loop);
        let errors = errors(recording, items, account);
        for error in &errors {
            let message = format!("{}: {}", error.sqlstate, error.first_message);
            recording.keep(recording.dir().event(&Event {
                t_us: error.first_us,
                kind: event::ERROR.to_string(),
                step: step.key().to_string(),
                message,
                ..Event::default()
            }));
        }
        write_outages(recording, step, account);
        if account.is_interrupted {
            recording.keep(recording.dir().happened(Some(step), event::INTERRUPT, "stopped on request"));
        }
        let outages = outages(recording, account);
        let totals = self.totals(account, is_open_loop);
        recording.keep(recording.dir().edit_step(step, |step| {
            step.summary.duration_s = seconds;
            step.summary.transactions = Some(measured.transactions());
            step.summary.tps = Some(per_second(measured.transactions(), seconds));
            step.summary.errors = measured.failed();
            step.summary.retries = measured.retries();
            step.summary.latency_us = response.summary();
            step.summary.service_us = service.summary();
            step.summary.client_cpu_us_per_transaction = verdict::client_cpu_us_per_transaction(account);
            step.types = types;
            step.errors = errors;
            step.outages = outages;
            step.set_totals(&totals);
            step.verdict = Verdict {
                valid: opinion.invalid.is_empty(),
                reasons: opinion.invalid.clone(),
                notes: opinion.notes.clone(),
            };
        }));
    }

    fn totals(&self, account: &Account, is_open_loop: bool) -> RunTotals {
        let measured = &account.posted.measured;
        let late: u64 = measured.types.iter().map(|tally| tally.late).sum();
        let outage_s = |cause: Cause| {
            let ones = account.outages.iter().filter(|outage| outage.cause == cause);
            ones.map(|outage| length(account, outage)).sum::<Nanos>() as f64 / 1e9
        };
        RunTotals {
            scheduled: account.scheduled,
            started: measured.started + account.posted.warmup.started,
            skipped: account.skipped,
            unstarted: account.unstarted,
            unfinished: account.unfinished,
            cancelled: (account.cancelled > 0).then_some(account.cancelled),
            still_at_work: (account.still_at_work > 0).then_some(account.still_at_work),
            warmup_transactions: account.posted.warmup.transactions(),
            late: self.latency_limit.map(|_| late),
            lag_us_p99: is_open_loop.then(|| measured.lag.quantile_us(0.99)),
            lag_us_max: is_open_loop.then(|| measured.lag.max_us()),
            connections_lost: account.lost,
            reconnected: account.reconnected,
            weak_commits: (account.weak_commits > 0).then_some(account.weak_commits),
            cut_off: (account.cut_off > 0).then_some(account.cut_off),
            sessions_aborted: (account.aborted > 0).then_some(account.aborted),
            outage_s: outage_s(Cause::Disconnected),
            stalled_s: outage_s(Cause::Stalled),
            failing_s: (outage_s(Cause::Failing) > 0.0).then(|| outage_s(Cause::Failing)),
            client_cpu_us: account.client_cpu / NANOS_PER_MICRO,
            worker_cpu_share_max: account.worker_cpu_share_max,
            worker_wait_share_max: account.worker_wait_share_max,
            sends: account.traffic.sends,
            receives: account.traffic.receives,
            sent_bytes: account.traffic.sent_bytes,
            received_bytes: account.traffic.received_bytes,
            session_buffer_bytes: account.buffer_bytes,
        }
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Times from the real start of transactions; in a closed loop that is the scheduled one.
fn own_time(tally: &TypeTally, is_open_loop: bool) -> &record::Latency {
    if is_open_loop { &tally.service } else { &tally.response }
}

fn types(items: &[(String, u64)], account: &Account, is_open_loop: bool) -> Vec<TypeStatistics> {
    let seconds = account.measured().as_secs_f64();
    let types =
        items.iter().zip(&account.posted.measured.types).map(|((name, weight), tally)| TypeStatistics {
            name: name.clone(),
            weight: Some(*weight as f64),
            transactions: tally.transactions,
            errors: tally.failed,
            retries: tally.retries,
            tps: per_second(tally.transactions, seconds),
            latency_us: tally.response.summary(),
            service_us: own_time(tally, is_open_loop).summary(),
            overflow: tally.response.overflow(),
        });
    types.collect()
}

/// The errors, the most frequent first.
fn errors(recording: &Recording<'_>, items: &[(String, u64)], account: &Account) -> Vec<ErrorStatistics> {
    let t_us = |at: Nanos| recording.dir().clock().t_us(at);
    let mut errors: Vec<ErrorStatistics> = account
        .posted
        .errors
        .iter()
        .map(|error| ErrorStatistics {
            sqlstate: error.sqlstate.to_string(),
            count: error.count,
            retried: error.retried,
            first_message: error.first_message.clone(),
            first_us: t_us(error.first),
            first_type: items.get(error.first_type).map(|(name, _)| name.clone()),
        })
        .collect();
    errors.sort_by_key(|error| std::cmp::Reverse(error.count));
    errors
}

/// How long an outage lasted, or until now.
fn length(account: &Account, outage: &Outage) -> Nanos {
    outage.to.unwrap_or(account.end).saturating_sub(outage.from)
}

fn write_outages(recording: &Recording<'_>, step: &StepId, account: &Account) {
    for outage in &account.outages {
        recording.keep(recording.dir().event(&Event {
            t_us: recording.dir().clock().t_us(outage.from),
            kind: event::OUTAGE.to_string(),
            step: step.key().to_string(),
            message: outage.message.clone(),
            duration_us: Some(length(account, outage) / NANOS_PER_MICRO),
            more: fields(json!({"cause": outage.cause.name()})),
        }));
    }
}

fn outages(recording: &Recording<'_>, account: &Account) -> Vec<OutageStatistics> {
    let t_us = |at: Nanos| recording.dir().clock().t_us(at);
    account
        .outages
        .iter()
        .map(|outage| OutageStatistics {
            cause: outage.cause.name().to_string(),
            from_us: t_us(outage.from),
            duration_us: outage.to.map(|to| (to - outage.from) / NANOS_PER_MICRO),
            message: outage.message.clone(),
            failed: (outage.failed > 0).then_some(outage.failed),
            tps_before: outage.tps_before,
            back_after_us: outage.back.map(|back| (back - outage.from) / NANOS_PER_MICRO),
            server: account.server_after(outage).map(str::to_string),
        })
        .collect()
}

/// What the process ends with.
fn exit_of(account: &Account, opinion: &Opinion) -> Exit {
    let has_failed = account.failed() > 0 || account.unfinished > 0;
    match () {
        () if account.is_interrupted => Exit::Interrupted,
        // Not the client's doing: there is just nothing.
        () if opinion.has_nothing => Exit::Errors,
        () if !opinion.invalid.is_empty() => Exit::Invalid,
        () if has_failed => Exit::Errors,
        () => Exit::Ok,
    }
}

/// What benchmarks compare with the server, each with the place of its first item.
type Audits = Vec<(usize, Box<dyn ServerAudit>)>;

/// Lets the benchmarks look at the server after the run. The run counts without that; what was not compared is returned.
fn compare_again(control: Option<&mut Control>, spec: &ConnSpec, audits: &mut Audits) -> Vec<String> {
    match query_server(control, spec, audits, false) {
        Ok(()) => vec![],
        Err(failure) => {
            let proofs: BTreeSet<&str> = audits.iter().filter_map(|(_, audit)| audit.proof()).collect();
            let later = |proof| format!("; when the server answers again: pgfathom prove {proof}");
            let later: String = proofs.into_iter().map(later).collect();
            // Without the second look there is nothing to compare.
            audits.clear();
            vec![format!(
                "what the server counts was not compared with the run: {}{later}",
                failure.message()
            )]
        }
    }
}

/// Notes in the ledgers that the run has ended; the run counts without that. Returns what failed.
fn end_in_ledger(writers: &mut Entries, account: &Account) -> Option<String> {
    let failure = writers.finish(&account.sessions).err()?;
    Some(format!(
        "the ledger does not have the end of this run, so verify judges its rows as those of a run that was killed: {}",
        failure.message()
    ))
}

/// The exit code of a run of which something was missed at its end.
fn not_better_than_errors(exit: Exit, is_missed: bool) -> Exit {
    if is_missed && exit == Exit::Ok { Exit::Errors } else { exit }
}

/// Lets the benchmarks look at the server before or after the run.
fn query_server(
    control: Option<&mut Control>,
    spec: &ConnSpec,
    audits: &mut Audits,
    is_before: bool,
) -> Result<(), Failure> {
    let Some(control) = control.filter(|_| !audits.is_empty()) else { return Ok(()) };
    // A server that went away during the run closed a connection that nothing has used since.
    if control.simple_query("").is_err() {
        *control = match control.is_shared() {
            true => connect::control::connect_shared(spec)?,
            false => connect::control::connect(spec)?,
        };
    }
    for (_, audit) in audits {
        match is_before {
            true => audit.before(control)?,
            false => audit.after(control)?,
        }
    }
    Ok(())
}
