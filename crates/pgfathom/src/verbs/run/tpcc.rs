//! `run -b tpcc`: the terminals of TPC-C on the warehouses of `load tpcc`, and the search for the most of them that pass.

use super::mix::Assembled;
use super::{Protocol, Run};
use crate::cli::Format;
use crate::context::Context;
use crate::failure::Failure;
use crate::fingerprint;
use crate::human;
use crate::quantity::{self, ValueError};
use crate::recording::Recording;
use crate::verbs::load as filling;
use clap::{Args, ValueEnum};
use data::tpcc::WAREHOUSES_MAX;
use data::tpcc::nurand::Constants;
use load::tpcc::TpccDataset;
use load::{LoadError, ledger};
use record::{Exit, State, StepId};
use run::drive::Account;
use run::schedule::Pace;
use run::terminals::Users;
use run::verdict::Opinion;
use run::workload::Workload;
use run::workload::tpcc::judge::{self, Terms};
use run::workload::tpcc::pace::Mix;
use run::workload::tpcc::{Isolation, Tpcc};
use std::time::Duration;
use target::ConnSpec;
use target::control::Control;

/// The name of the workload.
pub(crate) const NAME: &str = "tpcc";
/// One line about it.
pub(crate) const ABOUT: &str =
    "the five transactions of TPC-C at terminals that key in and think; not a TPC result";
/// The least efficiency that passes, in percent, unless --efficiency says otherwise.
const EFFICIENCY_PERCENT_DEFAULT: f64 = 95.0;
/// A search ends when the largest number that passes and the least that fails are closer than this share of it.
const SEARCH_SHARE: u64 = 20;
/// A search begins with this share of the loaded warehouses.
const SEARCH_BEGIN: u64 = 8;

/// The flags of TPC-C.
#[derive(Clone, Debug, Args)]
// Flags of a sweep have the same name.
#[group(id = "tpcc_flags")]
#[command(next_help_heading = "TPC-C (-b tpcc)")]
#[group(id = "tpcc")]
pub struct Flags {
    /// Drive only so many of the loaded warehouses, ten terminals each [default: all]
    #[arg(long, value_name = "N", value_parser = quantity::positive_count)]
    pub warehouses: Option<u64>,
    /// Nobody keys in or thinks: every session starts its next transaction when the last one is done
    #[arg(long)]
    pub no_delays: bool,
    /// Isolation level: rc, rr, ser (read committed, repeatable read, serializable) [default: rc]
    #[arg(long, value_name = "LEVEL", value_enum, hide_possible_values = true)]
    pub isolation: Option<Level>,
    /// Deal transactions from the deck of clause 5.2.4.2 instead of drawing them by 45/43/4/4/4
    #[arg(long)]
    pub deck: bool,
    /// No database: a transaction takes so long (milliseconds, or as 5ms). Shows what the client alone costs; needs --warehouses
    #[arg(long, value_name = "TIME", value_parser = quantity::duration_ms)]
    pub simulate: Option<Duration>,
    /// Find the largest number of warehouses that passes: 90th percentiles within their limits and --efficiency reached; each step
    /// takes --warmup and -T
    #[arg(long, conflicts_with_all = ["no_delays", "simulate", "warehouses"])]
    pub until_slo: bool,
    /// The least efficiency that passes, in percent of 12.86 New-Orders per minute and warehouse [default: 95]
    #[arg(long, value_name = "PERCENT", value_parser = efficiency, conflicts_with = "no_delays")]
    pub efficiency: Option<f64>,
}

/// Isolation levels, as they are typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Level {
    /// READ COMMITTED
    Rc,
    /// REPEATABLE READ
    Rr,
    /// SERIALIZABLE
    Ser,
}

impl From<Level> for Isolation {
    fn from(level: Level) -> Isolation {
        match level {
            Level::Rc => Isolation::ReadCommitted,
            Level::Rr => Isolation::RepeatableRead,
            Level::Ser => Isolation::Serializable,
        }
    }
}

fn efficiency(text: &str) -> Result<f64, ValueError> {
    let percent = text.trim().trim_end_matches('%').parse::<f64>().ok();
    percent.filter(|percent| (0.0..=100.0).contains(percent)).ok_or_else(|| {
        ValueError::new(format!("{text:?} is not a percentage"), "write a number from 0 to 100, as 95")
    })
}

impl Flags {
    /// The first flag that was given.
    fn given(&self) -> Option<&'static str> {
        [
            (self.warehouses.is_some(), "--warehouses"),
            (self.no_delays, "--no-delays"),
            (self.isolation.is_some(), "--isolation"),
            (self.deck, "--deck"),
            (self.simulate.is_some(), "--simulate"),
            (self.until_slo, "--until-slo"),
            (self.efficiency.is_some(), "--efficiency"),
        ]
        .into_iter()
        .find_map(|(given, flag)| given.then_some(flag))
    }

    fn terms(&self) -> Terms {
        Terms {
            has_terminals: !self.no_delays,
            efficiency_percent_min: self.efficiency.unwrap_or(EFFICIENCY_PERCENT_DEFAULT),
        }
    }
}

impl Run {
    /// Checks the flags of TPC-C, touching no server. `is_asked`: `-b tpcc` was given; `others`: so was something else.
    pub(super) fn check_tpcc(&self, is_asked: bool, others: bool) -> Result<(), Failure> {
        if !is_asked {
            return match self.tpcc.given() {
                Some(flag) => Err(Failure::usage(format!("{flag} belongs to TPC-C, which is not run"))
                    .hint(format!("add -b tpcc, or leave {flag} away"))),
                None => Ok(()),
            };
        }
        if others {
            return Err(Failure::usage("-b tpcc is a mix of its own and runs alone")
                .hint("leave the other -b and -f away, or drive them from a second pgfathom run"));
        }
        if self.route.data.is_some() {
            return Err(Failure::usage("--data draws the keys of one node, and the terminals of TPC-C have homes of their own")
                .hint("leave it away; --connect owner lets every session stand for warehouses of the node it enters at"));
        }
        if self.protocol.is_some_and(|protocol| protocol != Protocol::Prepared) {
            return Err(Failure::usage("-M: TPC-C uses prepared statements only").hint("leave -M away"));
        }
        if self.rate.is_some() {
            return Err(Failure::usage("-R: the terminals of TPC-C have a pace of their own").hint(
                "leave -R away: --warehouses N makes more or less load, --no-delays as much as the sessions can",
            ));
        }
        if self.tpcc.simulate.is_some() && self.tpcc.warehouses.is_none() {
            return Err(Failure::usage(
                "--simulate: without a database nobody knows how many warehouses there are",
            )
            .hint("say it: --warehouses 15000"));
        }
        if self.tpcc.until_slo && self.transactions.is_some() {
            return Err(
                Failure::usage("-t: the steps of --until-slo last a time").hint("give that time: -T 5m")
            );
        }
        Ok(())
    }

    /// Checks what a sweep cannot have.
    pub(super) fn check_tpcc_sweep(&self) -> Result<(), Failure> {
        if self.tpcc.until_slo {
            return Err(Failure::usage(
                "--until-slo looks for a number of warehouses, a sweep for one of sessions",
            )
            .hint("give one number behind -c, and no --repeat"));
        }
        if self.tpcc.simulate.is_some() {
            return Err(Failure::usage("--simulate drives no database, so there is nothing to sweep")
                .hint("give one number behind -c, and no --repeat"));
        }
        Ok(())
    }

    /// The dataset in the target.
    pub(super) fn tpcc_dataset(&self, control: &mut Control) -> Result<TpccDataset, Failure> {
        let missing = || {
            Failure::usage("this database holds no TPC-C dataset")
                .hint("fill it first: pgfathom load tpcc -s 10")
        };
        let client: &mut postgres::Client = control;
        if !ledger::exists(client)? {
            return Err(missing());
        }
        let found = load::tpcc::find(client)?.ok_or_else(missing)?;
        if !found.dataset.loaded {
            return Err(Failure::usage("the TPC-C dataset of this database is not completely loaded")
                .hint(format!("continue where it stopped: pgfathom load tpcc -s {}", found.warehouses)));
        }
        ledger::check_in_place(client, &found.dataset)?;
        Ok(found)
    }

    /// The workload on the target's dataset.
    pub(super) fn assemble_tpcc(&self, control: &mut Control, seed: u64) -> Result<Assembled, Failure> {
        let found = self.tpcc_dataset(control)?;
        let warehouses = match self.tpcc.warehouses {
            None => found.warehouses,
            Some(asked) if asked > u64::from(found.warehouses) => {
                return Err(Failure::usage(format!(
                    "--warehouses {asked}: only {} are loaded",
                    human::plural(found.warehouses.into(), "warehouse")
                ))
                .hint(format!("ask for at most {}, or load more of them", found.warehouses)));
            }
            Some(asked) => asked as u32,
        };
        let schema = Some(found.dataset.schema_name.clone());
        let mut tpcc = self.tpcc_workload(warehouses, found.run_constants(), schema);
        let placed = self.route.warehouses(
            control,
            &found.dataset.schema_name,
            (found.warehouses, warehouses),
            (self.client.first(), seed),
        )?;
        let (homes, connects) = placed.unzip();
        tpcc.homes = homes;
        announce(control, &found)?;
        Ok(Assembled {
            workload: Workload::of_tpcc(tpcc),
            name: NAME.to_string(),
            dataset: None,
            described: Some(filling::tpcc::dataset(&found)),
            writer: None,
            uses_pgbench_tables: false,
            connects,
            scale: None,
        })
    }

    fn tpcc_workload(&self, warehouses: u32, constants: Constants, schema: Option<String>) -> Tpcc {
        Tpcc {
            warehouses,
            constants,
            mix: if self.tpcc.deck { Mix::Deck } else { Mix::default() },
            isolation: self.tpcc.isolation.map_or(Isolation::default(), Isolation::from),
            wire: self.wire.into(),
            schema,
            homes: None,
            simulate: self.tpcc.simulate.map(|takes| takes.as_nanos() as u64),
            sessions: self.client.first(),
        }
    }

    /// When transactions start: at terminals, unless nobody waits for them.
    pub(super) fn tpcc_pace(&self, tpcc: &Tpcc, seed: u64) -> Pace {
        if self.tpcc.no_delays {
            return Pace::Closed;
        }
        Pace::Terminals(Users { first: 0, count: tpcc.terminals(), seed, mix: tpcc.mix })
    }

    /// Writes what came of it into the step, and refuses the result where client and server disagree about the orders.
    pub(super) fn write_tpcc(
        &self,
        recording: &Recording<'_>,
        step: &StepId,
        tpcc: &Tpcc,
        account: &Account,
        orders: Option<(i64, i64)>,
        opinion: &mut Opinion,
    ) {
        let answer = judge::judge(account, tpcc, self.tpcc.terms(), orders);
        if let Some(orders) = answer.orders.filter(|orders| !orders.agree) {
            opinion.invalid.push(format!(
                "client and server disagree: the client saw {} orders commit{}, the server has {} more (sum of D_NEXT_O_ID); did \
                 somebody else run on these tables?",
                orders.client,
                if orders.unknown > 0 { format!(" and does not know of {}", orders.unknown) } else { String::new() },
                orders.server
            ));
        }
        opinion.notes.extend(answer.misses.iter().cloned());
        recording.keep(recording.dir().edit_step(step, |step| step.summary.tpcc = Some(answer)));
    }

    /// Drives terminals without a database: what is left is the client.
    pub(super) fn run_simulated(&self, context: &Context) -> Result<Exit, Failure> {
        let warehouses = self.tpcc.warehouses.unwrap_or(1);
        let warehouses =
            u32::try_from(warehouses).ok().filter(|count| *count <= WAREHOUSES_MAX).ok_or_else(|| {
                Failure::usage(format!("--warehouses {warehouses}: that many are not possible"))
                    .hint(format!("ask for at most {WAREHOUSES_MAX}"))
            })?;
        let seed = self.seed();
        let tpcc = self.tpcc_workload(warehouses, Constants::for_run(0, seed), None);
        let name = format!("{NAME}-simulated");
        let assembled = Assembled {
            workload: Workload::of_tpcc(tpcc),
            name: name.clone(),
            dataset: None,
            described: None,
            writer: None,
            uses_pgbench_tables: false,
            connects: None,
            scale: None,
        };
        let recording = Recording::begin(context, &self.directory, "run", &name)?;
        let step = recording.dir().begin_step("run", &name)?;
        // Nobody dials it.
        let nowhere = ConnSpec::new("nowhere", 1, "nobody", "nothing");
        let measured = match self.measure(&recording, &step, &nowhere, None, assembled, seed) {
            Ok(measured) => measured,
            Err(failure) => {
                recording.discard();
                return Err(failure);
            }
        };
        recording.dir().finish(measured.state)?;
        if context.format == Format::Text {
            context.terminal.data(&recording.text()?);
        }
        recording.finish(measured.state)?;
        Ok(measured.exit)
    }

    /// Looks for the largest number of warehouses that passes, a step of the run directory for each number that is tried.
    pub(super) fn run_until_slo(&self, context: &Context, spec: &ConnSpec) -> Result<Exit, Failure> {
        let mut control = target::control::connect(spec)?;
        let loaded = self.tpcc_dataset(&mut control)?.warehouses;
        let recording = Recording::begin(context, &self.directory, "run", &format!("{NAME}-until-slo"))?;
        self.watch(&recording, spec)?;
        let fingerprint = fingerprint::take(&mut control, spec);
        recording.dir().edit(|run| run.target = Some(fingerprint))?;
        let seed = self.seed();
        let mut search = Search::new(loaded.into());
        let mut exits: Vec<Exit> = vec![];
        let mut is_second_try = false;
        while let Some(warehouses) = search.next().filter(|_| !context.stop.is_requested()) {
            let mut run = self.clone();
            run.tpcc = Flags { warehouses: Some(warehouses), until_slo: false, ..self.tpcc.clone() };
            run.told = format!("{}: ", human::plural(warehouses, "warehouse"));
            let seed = seed.wrapping_add(exits.len() as u64);
            let step = recording.dir().begin_step_as(
                "run",
                &human::plural(warehouses, "warehouse"),
                &format!("{NAME}-{warehouses}"),
            )?;
            if control.is_closed() {
                control = target::control::connect(spec)?;
            }
            let measured = run.assemble_tpcc(&mut control, seed).and_then(|assembled| {
                run.measure(&recording, &step, spec, Some(&mut control), assembled, seed)
            });
            let measured = match measured {
                Ok(measured) => measured,
                Err(failure) if exits.is_empty() => {
                    recording.discard();
                    return Err(failure);
                }
                Err(failure) => {
                    recording.keep(recording.dir().edit_step(&step, |step| {
                        step.verdict.invalidate("the step failed, and the search ended with it");
                    }));
                    recording.keep(recording.dir().end_step(&step, State::Failed));
                    recording.finish(State::Failed)?;
                    return Err(failure);
                }
            };
            exits.push(measured.exit);
            // A step that this client spoiled says nothing about the target: it has one more try.
            if measured.exit == Exit::Invalid && !is_second_try {
                is_second_try = true;
                context.terminal.say(&recording.step_line(&step)?);
                continue;
            }
            is_second_try = false;
            context.terminal.say(&recording.step_line(&step)?);
            let told = recording.dir().run();
            let answer = told.step(step.key()).and_then(|step| step.summary.tpcc.clone());
            let is_valid = matches!(measured.exit, Exit::Ok | Exit::Errors);
            search.tell(warehouses, is_valid && answer.is_some_and(|answer| answer.passes));
        }
        let state = if context.stop.is_requested() { State::Interrupted } else { State::Finished };
        recording.dir().finish(state)?;
        if context.format == Format::Text {
            context.terminal.data(&recording.text()?);
        }
        recording.finish(state)?;
        Ok(match () {
            () if state == State::Interrupted => Exit::Interrupted,
            () if exits.iter().all(|exit| *exit == Exit::Invalid) => Exit::Invalid,
            () if search.passing == 0 => Exit::SloMissed,
            () => Exit::Ok,
        })
    }
}

/// Notes in the ledger that a run writes into the tables: from now on `verify` knows that they are not as loaded. More runs than the ledger can count
/// change nothing about that.
fn announce(control: &mut Control, found: &TpccDataset) -> Result<(), Failure> {
    match ledger::create_writer(control, &found.dataset, "{\"workload\": \"tpcc\"}") {
        Ok(_) | Err(LoadError::WritersExhausted { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sum of D_NEXT_O_ID: grows by one with every order that commits.
pub(super) fn orders(control: &mut Control, spec: &ConnSpec, schema: &str) -> Result<i64, Failure> {
    if control.is_closed() {
        *control = target::control::connect(spec)?;
    }
    let sql = format!("select sum(d_next_o_id)::int8 from {}", ledger::qualified(schema, "district"));
    let row = control
        .query_one(&sql, &[])
        .map_err(|error| Failure::caused("cannot ask the server how many orders it has", error))?;
    Ok(row.get::<_, Option<i64>>(0).unwrap_or(0))
}

/// Doubles until a number fails, then halves the gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Search {
    loaded: u64,
    /// The largest number that has passed.
    passing: u64,
    /// The least that has failed; one more than there are while none has.
    failing: u64,
}

impl Search {
    fn new(loaded: u64) -> Search {
        Search { loaded, passing: 0, failing: loaded + 1 }
    }

    /// The number to be tried next; `None` when it is known well enough.
    fn next(&self) -> Option<u64> {
        let gap = self.failing - self.passing;
        if gap <= 1 {
            return None;
        }
        if self.failing > self.loaded {
            let grown = if self.passing == 0 { self.loaded / SEARCH_BEGIN } else { 2 * self.passing };
            return Some(grown.clamp(1, self.loaded));
        }
        (gap > self.passing / SEARCH_SHARE).then(|| self.passing + gap / 2)
    }

    fn tell(&mut self, warehouses: u64, passes: bool) {
        if passes {
            self.passing = self.passing.max(warehouses);
        } else {
            self.failing = self.failing.min(warehouses);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries until the search ends, with `limit` warehouses that pass.
    fn search(loaded: u64, limit: u64) -> (u64, Vec<u64>) {
        let mut search = Search::new(loaded);
        let mut tried = vec![];
        while let Some(warehouses) = search.next() {
            tried.push(warehouses);
            search.tell(warehouses, warehouses <= limit);
            assert!(tried.len() < 40, "{tried:?}");
        }
        (search.passing, tried)
    }

    #[test]
    fn a_search_ends_close_to_the_limit() {
        for loaded in [1, 2, 3, 10, 100, 1_500] {
            for limit in 0..=loaded + 1 {
                let (found, tried) = search(loaded, limit);
                assert!(found <= limit && found <= loaded, "{loaded} {limit}: {tried:?}");
                let wanted = limit.min(loaded);
                assert!(wanted - found <= found / SEARCH_SHARE, "{loaded} {limit}: {found} {tried:?}");
                assert!(tried.iter().all(|warehouses| (1..=loaded).contains(warehouses)));
            }
        }
        assert_eq!(search(100, 100).1, [12, 24, 48, 96, 100]);
    }
}
