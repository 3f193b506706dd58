//! The queries that do not run at every tick: each part has its own interval.

use super::counters::Counters;
use super::held::{self, Held};
use super::probe::{Call, Probe};
use super::session::Failed;
use super::{
    Link, Node, REFUSED_FACTOR, Up, clock, core, facts, functions, is_local, json, memory, progress,
    relations, slru, statements, texts,
};
use crate::collect::{Batch, Collect, Place, Tick, With};
use crate::log;
use crate::meter::Meter;
use record::event;
use record::watched::ClockOffset;
use serde_json::Value;

/// A query that does not run at every tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Facts,
    Clock,
    Ages,
    Tables,
    Statements,
    Functions,
    WaitProfile,
    Io,
    Slru,
    Subscriptions,
    Progress,
    Memory,
}

/// Every part, in the order of the queries.
pub(super) const PARTS: [Part; 12] = [
    Part::Facts,
    Part::Clock,
    Part::Ages,
    Part::Progress,
    Part::Memory,
    Part::Io,
    Part::Slru,
    Part::Subscriptions,
    Part::WaitProfile,
    Part::Statements,
    Part::Functions,
    Part::Tables,
];

impl Part {
    /// Its interval, in seconds.
    pub(super) fn cadence_s(self) -> u64 {
        match self {
            // Also at once after a reload of the configuration.
            Part::Facts => 600,
            Part::Clock | Part::Ages | Part::Tables => 60,
            Part::Statements | Part::Functions | Part::WaitProfile | Part::Progress => 10,
            Part::Io | Part::Slru | Part::Subscriptions => 5,
            Part::Memory => 4,
        }
    }

    /// Its name, and what is unknown without it.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Part::Facts => ("settings", "the configuration of the server"),
            Part::Clock => (
                "clock",
                "the difference between the server's clock and ours: its log lines may be at the wrong second",
            ),
            Part::Ages => ("age of databases", "how near the next vacuum against wraparound is"),
            Part::Tables => (
                "tables",
                "which tables grow, are scanned, or are vacuumed without effect; tables without primary key; indexes in other tablespaces",
            ),
            Part::Statements => ("statements", "which statements take the time"),
            Part::Functions => ("functions", "which functions take the time of a statement that calls them"),
            Part::WaitProfile => ("wait profile", "waits shorter than the sampling interval"),
            Part::Io => ("server I/O", "reads, writes and syncs by kind of backend"),
            Part::Slru => ("transaction status caches", "reads of subtransactions and multixacts from disk"),
            Part::Subscriptions => ("subscriptions", "whether changes of other servers are applied"),
            Part::Progress => ("progress", "the progress of vacuums, index builds and copies"),
            Part::Memory => ("memory of sessions", "whose server processes take the memory"),
        }
    }
}

impl Part {
    /// What has to stay in its place while this part is read.
    fn held(self, probe: &Probe) -> Vec<&Held> {
        let calls = match self {
            Part::Statements => vec![&probe.statements, &probe.kcache],
            Part::WaitProfile => vec![&probe.wait_sampling],
            _ => vec![],
        };
        calls.into_iter().filter_map(|call| call.held.as_ref()).collect()
    }
}

/// The state of a part, and when it is due.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) part: Part,
    pub(super) due_us: u64,
    pub(super) last_us: Option<u64>,
    pub(super) counters: Counters,
}

impl Node {
    pub(super) fn turn(&mut self, part: Part) -> &mut Turn {
        let index = PARTS.iter().position(|other| *other == part).expect("every part has its turn");
        &mut self.turns[index]
    }

    /// Queries the parts that are due.
    pub(super) fn query_parts(&mut self, tick: &Tick, batch: &mut Batch) -> Result<(), Failed> {
        for index in 0..self.turns.len() {
            let now_us = tick.clock.now_us();
            if now_us < self.turns[index].due_us {
                continue;
            }
            let part = self.turns[index].part;
            let (name, lost) = part.words();
            let mut counters = std::mem::take(&mut self.turns[index].counters);
            let last_us = self.turns[index].last_us;
            let answered = self.query_part(part, tick, last_us, &mut counters, batch);
            let went_back = counters.went_back();
            self.turns[index].counters = counters;
            // A coarser cadence of the whole is a coarser cadence of each part.
            let cadence_us = (part.cadence_s() * 1_000_000).max(tick.cadence_us);
            let mut wait_us = cadence_us;
            match answered {
                Ok(()) => {
                    self.turns[index].last_us = Some(tick.clock.now_us());
                    let place = self.place();
                    self.recorded.found(batch, now_us, &place, name);
                    if went_back {
                        let event = self.event(
                            now_us,
                            event::RESET,
                            format!("{}: counters of {name} decreased", self.name),
                        );
                        batch.event(event.with("what", name));
                    }
                }
                Err(failed) => {
                    if !failed.is_passing() {
                        wait_us = cadence_us * REFUSED_FACTOR;
                    }
                    self.refused(name, lost, failed, now_us, batch)?;
                }
            }
            self.turns[index].due_us = now_us + wait_us;
        }
        Ok(())
    }

    pub(super) fn query_part(
        &mut self,
        part: Part,
        tick: &Tick,
        last_us: Option<u64>,
        counters: &mut Counters,
        batch: &mut Batch,
    ) -> Result<(), Failed> {
        let Link::Up(up) = &mut self.link else { return Ok(()) };
        let Up { session, probe, .. } = up.as_mut();
        let sql = match part {
            Part::Facts => return self.query_facts(tick, batch),
            Part::Clock => return self.query_clock(tick, batch),
            Part::Ages => Some(facts::AGES.to_string()),
            Part::Tables => Some(relations::tables(probe)),
            Part::Statements => statements::statements(probe),
            Part::Functions => Some(functions::QUESTION.to_string()),
            Part::WaitProfile => relations::wait_profile(probe),
            Part::Io => relations::io(probe),
            Part::Slru => slru::question(probe),
            Part::Subscriptions => relations::subscriptions(probe),
            Part::Progress => progress::question(probe),
            Part::Memory => self.is_local.then(memory::question),
        };
        // Parts that this server does not have were reported with the facts.
        let Some(sql) = sql else { return Ok(()) };
        let begin_us = tick.clock.now_us();
        let held = part.held(probe);
        let answer = held::query(session, &held, &sql, &[])?;
        let t_us = tick.clock.now_us();
        let interval_us = last_us.map_or(0, |last| t_us - last);
        let answered =
            core::Answered { node: &self.name, t_us, interval_us, queried_us: t_us - begin_us, rtt_us: None };
        match part {
            Part::Tables => relations::tables_answer(&answered, &answer, counters, batch),
            Part::Functions => functions::answer(&answered, &answer, counters, batch),
            Part::WaitProfile => relations::wait_profile_answer(&answered, &answer, counters, batch),
            Part::Io => relations::io_answer(&answered, &answer, counters, batch),
            Part::Slru => slru::answer(&answered, &answer, counters, batch),
            Part::Subscriptions => relations::subscriptions_answer(&answered, &answer, counters, batch),
            Part::Progress => progress::answer(&self.name, t_us, &answer, batch),
            Part::Memory => {
                let read = |pid| std::fs::read_to_string(format!("/proc/{pid}/statm")).ok();
                memory::answer(&answered, &answer, read, batch);
            }
            Part::Statements => {
                let looked = statements::moved(&answered, &answer, counters);
                let unjudged = self.ours.unjudged(&looked.moved);
                if !unjudged.is_empty() && self.texts_turn.is_due(t_us) {
                    match held::query(session, &held, &statements::texts_of_our_role(probe), &[&unjudged]) {
                        Ok(texts) => self.ours.judge(&texts),
                        // A text that is not valid in this database's encoding: then no entry of our role is left out.
                        Err(Failed::Refused { .. }) => {}
                        Err(gone) => return Err(gone),
                    }
                }
                let unknown = statements::record(&answered, looked, &self.ours, &self.texts, batch);
                self.query_texts(unknown, tick, batch)?;
            }
            _ => {
                self.slow.database_age_xids = json::count(&answer, "xids");
                self.slow.database_age_mxids = json::count(&answer, "mxids");
            }
        }
        Ok(())
    }

    /// Reads the texts of these statements, and of those with which sessions are at work. What never ends, because it is cancelled each time or takes longer
    /// than we watch, is in no view but that of the sessions.
    fn query_texts(&mut self, unknown: Vec<String>, tick: &Tick, batch: &mut Batch) -> Result<(), Failed> {
        let t_us = tick.clock.now_us();
        let Link::Up(up) = &mut self.link else { return Ok(()) };
        let (session, probe) = (&mut up.session, &up.probe);
        let held = Part::Statements.held(probe);
        let mut running = self.plans.at_work_without(&self.texts);
        let ids = |all: &[String]| -> Vec<i64> { all.iter().filter_map(|id| id.parse().ok()).collect() };
        if !unknown.is_empty() && !self.texts_turn.is_due(t_us) {
            let lost = "texts of statements that were never seen running";
            let missing =
                Place::Node(self.name.clone()).missing("statement texts", self.texts_turn.why(), lost);
            self.recorded.missing(batch, t_us, missing);
            running.extend(unknown);
        } else if !unknown.is_empty() {
            let own = self.ours.ids();
            let answer = held::query(session, &held, &texts::texts(probe), &[&ids(&unknown), &own]);
            self.texts_turn.took(t_us, tick.clock.now_us());
            match answer {
                // One text that is not valid in this database's encoding makes the server refuse all of them.
                Err(Failed::Refused { message, .. }) => {
                    let lost = "texts of statements that were never seen running";
                    let missing = Place::Node(self.name.clone()).missing("statement texts", message, lost);
                    self.recorded.missing(batch, t_us, missing);
                    running.extend(unknown);
                }
                answer => texts::texts_answer(&self.name, t_us, &answer?, &mut self.texts, batch),
            }
        }
        if !running.is_empty() {
            let answer = session.query(&texts::running_texts(probe), &[&ids(&running)])?;
            texts::running_answer(&self.name, t_us, &answer, &mut self.texts, batch);
        }
        Ok(())
    }

    pub(super) fn query_facts(&mut self, tick: &Tick, batch: &mut Batch) -> Result<(), Failed> {
        let Link::Up(up) = &mut self.link else { return Ok(()) };
        let answer = match up.session.query(&facts::question(), &[]) {
            Err(Failed::Refused { .. }) => up.session.query(&facts::question_without_places(), &[])?,
            answer => answer?,
        };
        let t_us = tick.clock.now_us();
        let place = Place::Node(self.name.clone());
        let of_call = |call: &Call| (!call.columns.is_empty(), call.why_not.clone());
        let probe = &up.probe;
        for (what, (is_there, why), lost) in [
            ("pg_stat_statements", of_call(&probe.statements), Part::Statements.words().1),
            ("pg_stat_kcache", of_call(&probe.kcache), "CPU time by statement"),
            ("pg_wait_sampling", of_call(&probe.wait_sampling), Part::WaitProfile.words().1),
            ("pg_stat_io", (!probe.io.is_empty(), None), Part::Io.words().1),
        ] {
            if !is_there {
                let why = why.unwrap_or_else(|| "missing, or not readable for our role".to_string());
                self.recorded.missing(batch, t_us, place.missing(what, why, lost));
            }
        }
        let (known, changed) =
            facts::answer(&place, t_us, &answer, &mut self.recorded, &mut self.slow, batch);
        if let Some(question) = facts::collations(&json::text(&answer, "version_num")) {
            match up.session.query(question, &[]) {
                Ok(found) => facts::collations_answer(&place, t_us, &found, &mut self.recorded, batch),
                Err(Failed::Refused { .. }) => {}
                Err(gone) => return Err(gone),
            }
        }
        facts::of_engine(&place, t_us, &up.probe.own, &mut self.recorded, batch);
        let is_first = self.known == facts::Known::default();
        self.is_local = is_local(&self.spec, known.backend_pid);
        if self.is_local && up.backend.is_none() {
            up.backend = known.backend_pid.and_then(Meter::of);
        }
        self.own.extend(known.backend_pid);
        self.known = facts::Known { backend_pid: None, ..known };
        if !changed.is_empty() {
            let message = format!("{}: {}", self.name, changed.join(", "));
            batch.event(self.event(t_us, event::SETTINGS_CHANGED, message));
        }
        if is_first || !changed.is_empty() || self.log.is_none() {
            self.find_log(tick, batch)?;
        }
        Ok(())
    }

    /// Finds the log of a server on this host.
    pub(super) fn find_log(&mut self, tick: &Tick, batch: &mut Batch) -> Result<(), Failed> {
        let Link::Up(up) = &mut self.link else { return Ok(()) };
        let mut files = Value::Null;
        if self.known.collects_log && self.known.reads_log_file {
            let in_json = self.known.has_log_in_json.then_some(facts::LOG_FILE_JSON);
            for question in std::iter::once(facts::LOG_FILE).chain(in_json) {
                match up.session.query(question, &[]) {
                    Ok(Value::Object(more)) => match &mut files {
                        Value::Object(all) => all.extend(more),
                        _ => files = Value::Object(more),
                    },
                    Ok(_) | Err(Failed::Refused { .. }) => {}
                    Err(gone) => return Err(gone),
                }
            }
        }
        let found = log::find(&log::Wanted {
            is_local: self.is_local,
            data_directory: self.known.data_directory.as_deref(),
            destination: &self.known.log_destination,
            collects: self.known.collects_log,
            file_of: &|kind| files[kind].as_str().map(str::to_string),
        });
        let place = Place::Node(self.name.clone());
        let t_us = tick.clock.now_us();
        match found {
            Ok(source) => {
                self.recorded.found(batch, t_us, &place, "server log");
                let style = log::Style {
                    line_prefix: self.known.log_line_prefix.clone(),
                    language: self.known.lc_messages.clone(),
                    is_terse: self.known.has_terse_log,
                };
                match &mut self.log {
                    Some(log) if log.source() == &source => log.restyle(style),
                    log => *log = Some(log::Follower::new(place, source, style)),
                }
            }
            Err(why) => {
                self.log = None;
                let lost = "reasons and phases of checkpoints, work of autovacuum, deadlocks with their statements, lock waits, temporary files, \
                    errors and crashes";
                self.recorded.missing(batch, t_us, place.missing("server log", why, lost));
            }
        }
        Ok(())
    }

    /// The difference between the server's clock and ours.
    pub(super) fn query_clock(&mut self, tick: &Tick, batch: &mut Batch) -> Result<(), Failed> {
        let Link::Up(up) = &mut self.link else { return Ok(()) };
        if let Some(clock::Offset { offset_us, error_us }) = clock::offset(&mut up.session)? {
            self.offset_us = offset_us;
            batch.reading(
                tick.clock.now_us(),
                ClockOffset { node: self.name.clone(), offset_us: Some(offset_us), error_us: Some(error_us) },
            );
        }
        Ok(())
    }
}
