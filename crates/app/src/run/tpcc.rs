//! `run -b tpcc`: the terminals of TPC-C on the warehouses of `load tpcc`, and the search for the most of them that pass.

use super::assembled::Assembled;
use super::{Plan, Protocol};
use crate::context::Context;
use crate::failure::Failure;
use crate::human;
use crate::recording::{Recording, fields};
use crate::skeleton::{NoOutcome, Outcome, in_steps};
use connect::ConnSpec;
use connect::control::Control;
use data::tpcc::WAREHOUSES_MAX;
use data::tpcc::nurand::Constants;
use load::{LoadError, ledger};
use record::{Exit, State};
use run::routing::Connects;
use run::terminals::Users;
use run::workload::Mix as Mixed;
use run::workload::tpcc::judge::Terms;
use run::workload::tpcc::pace::Mix;
use run::workload::tpcc::{Isolation, Tpcc};
use serde_json::json;
use std::time::Duration;
use workloads::driving::ServerAudit;
use workloads::tpcc::TpccDataset;
use workloads::tpcc::orders::OrdersAudit;

/// The name of the workload.
pub(crate) const NAME: &str = "tpcc";
/// One line about it.
pub(crate) const ABOUT: &str = "the five transactions of TPC-C with keying and think times; not a TPC result";
/// The least efficiency that passes, in percent, unless --efficiency is given.
const EFFICIENCY_PERCENT_DEFAULT: f64 = 95.0;
/// A search ends when the largest number that passes and the least that fails are closer than this share of it.
const SEARCH_SHARE: u64 = 20;
/// A search begins with this share of the loaded warehouses.
const SEARCH_BEGIN: u64 = 8;

/// What belongs to TPC-C.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Drive only so many of the loaded warehouses, ten terminals each.
    pub warehouses: Option<u64>,
    /// Nobody keys in or thinks: each session starts its next transaction when the last one is done.
    pub no_delays: bool,
    /// Isolation level; `None`: read committed.
    pub isolation: Option<Isolation>,
    /// Deal transactions from the deck of clause 5.2.4.2.
    pub deck: bool,
    /// No database: a transaction takes so long.
    pub simulate: Option<Duration>,
    /// Find the largest number of warehouses that passes.
    pub until_slo: bool,
    /// The least efficiency that passes, in percent.
    pub efficiency: Option<f64>,
}

impl Options {
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

    pub(super) fn terms(&self) -> Terms {
        Terms {
            has_terminals: !self.no_delays,
            efficiency_percent_min: self.efficiency.unwrap_or(EFFICIENCY_PERCENT_DEFAULT),
        }
    }
}

impl Plan {
    /// Checks the flags of TPC-C, touching no server. `is_asked`: `-b tpcc` was given; `others`: so was something else.
    pub(super) fn check_tpcc(&self, is_asked: bool, others: bool) -> Result<(), Failure> {
        if !is_asked {
            return match self.tpcc.given() {
                Some(flag) => Err(Failure::usage(format!("{flag} applies to TPC-C, which is not run"))
                    .hint(format!("add -b tpcc, or omit {flag}"))),
                None => Ok(()),
            };
        }
        if others {
            self.check_tpcc_among_others()?;
        }
        if self.route.data.is_some() {
            return Err(Failure::usage("--data draws the keys of one node, but each terminal of TPC-C has its own warehouse")
                .hint("omit it; with --connect owner every session serves warehouses of the node that it connects to"));
        }
        if self.protocol.is_some_and(|protocol| protocol != Protocol::Prepared) {
            return Err(Failure::usage("-M: TPC-C uses prepared statements only").hint("omit -M"));
        }
        if self.rate.is_some() && !self.tpcc.no_delays {
            return Err(Failure::usage("-R: the terminals of TPC-C set the rate themselves").hint(
                "leave -R away: --warehouses N makes more or less load; or add --no-delays, and sessions follow the rate",
            ));
        }
        if self.tpcc.simulate.is_some() && self.tpcc.warehouses.is_none() {
            return Err(Failure::usage("--simulate: without a database the number of warehouses is unknown")
                .hint("give it: --warehouses 15000"));
        }
        if self.tpcc.until_slo && self.transactions.is_some() {
            return Err(
                Failure::usage("-t: the steps of --until-slo are timed").hint("give their time: -T 5m")
            );
        }
        Ok(())
    }

    /// Checks what TPC-C cannot have beside another workload.
    fn check_tpcc_among_others(&self) -> Result<(), Failure> {
        const ALONE: &str = "omit the other -b and -f, or drive them from a second pgfathom run";
        if !self.tpcc.no_delays {
            return Err(Failure::usage(
                "-b tpcc: terminals have a pace of their own, which the other workloads of this run do not have",
            )
            .hint(format!("add --no-delays: every session then draws its next transaction from the whole mix; or {ALONE}")));
        }
        if self.tpcc.deck {
            return Err(Failure::usage("--deck: the deck's shares are those of TPC-C alone").hint(ALONE));
        }
        Ok(())
    }

    /// Checks what a sweep cannot have.
    pub(super) fn check_tpcc_sweep(&self) -> Result<(), Failure> {
        if self.tpcc.until_slo {
            return Err(Failure::usage(
                "--until-slo searches for a number of warehouses, a sweep for a number of sessions",
            )
            .hint("give one number after -c, and no --repeat"));
        }
        if self.tpcc.simulate.is_some() {
            return Err(Failure::usage("--simulate drives no database, so there is nothing to sweep")
                .hint("give one number after -c, and no --repeat"));
        }
        Ok(())
    }

    /// The dataset in the target.
    pub(super) fn tpcc_dataset(&self, control: &mut Control) -> Result<TpccDataset, Failure> {
        let missing = || {
            Failure::usage("this database holds no TPC-C dataset")
                .hint("load it first: pgfathom load tpcc -s 10")
        };
        let client: &mut postgres::Client = control;
        if !ledger::exists(client)? {
            return Err(missing());
        }
        let found = workloads::tpcc::find(client)?.ok_or_else(missing)?;
        if !found.dataset.loaded {
            return Err(Failure::usage("the TPC-C dataset of this database is not completely loaded")
                .hint(format!("continue where it stopped: pgfathom load tpcc -s {}", found.warehouses)));
        }
        let names = found.table_names();
        ledger::check_in_place(client, &found.dataset, &names)?;
        Ok(found)
    }

    /// The workload on the target's dataset.
    pub(super) fn tpcc_on_target(
        &self,
        control: &mut Control,
        seed: u64,
    ) -> Result<(Tpcc, record::model::Dataset, Option<Connects>), Failure> {
        let found = self.tpcc_dataset(control)?;
        let warehouses = match self.tpcc.warehouses {
            None => found.warehouses,
            Some(requested) if requested > u64::from(found.warehouses) => {
                return Err(Failure::usage(format!(
                    "--warehouses {requested}: only {} are loaded",
                    human::plural(found.warehouses.into(), "warehouse")
                ))
                .hint(format!("give at most {}, or load more of them", found.warehouses)));
            }
            Some(requested) => requested as u32,
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
        Ok((tpcc, described(&found), connects))
    }

    fn tpcc_workload(&self, warehouses: u32, constants: Constants, schema: Option<String>) -> Tpcc {
        Tpcc {
            warehouses,
            constants,
            mix: if self.tpcc.deck { Mix::Deck } else { Mix::default() },
            isolation: self.tpcc.isolation.unwrap_or_default(),
            wire: self.wire,
            schema,
            homes: None,
            simulate: self.tpcc.simulate.map(|takes| takes.as_nanos() as u64),
            sessions: self.client.first(),
        }
    }

    /// The users whose pace the run follows; `None`: nothing waits for them.
    pub(super) fn tpcc_users(&self, tpcc: &Tpcc, seed: u64) -> Option<Users> {
        let habits = tpcc.mix.habits();
        (!self.tpcc.no_delays).then(|| Users { first: 0, count: tpcc.terminals(), seed, habits })
    }

    /// Drives terminals without a database: what is left is the client.
    pub(super) fn run_simulated(&self, context: &Context) -> Result<Exit, Failure> {
        let warehouses = self.tpcc.warehouses.unwrap_or(1);
        let warehouses =
            u32::try_from(warehouses).ok().filter(|count| *count <= WAREHOUSES_MAX).ok_or_else(|| {
                Failure::usage(format!("--warehouses {warehouses}: this is too many"))
                    .hint(format!("give at most {WAREHOUSES_MAX}"))
            })?;
        let seed = self.seed();
        let tpcc = self.tpcc_workload(warehouses, Constants::for_run(0, seed), None);
        let name = format!("{NAME}-simulated");
        let audit: Box<dyn ServerAudit> = Box::new(OrdersAudit::new(&tpcc, self.tpcc.terms()));
        let assembled = Assembled {
            mix: Mixed::of(tpcc.into()).ok_or_else(|| Failure::usage("nothing would run"))?,
            name: name.clone(),
            datasets: vec![],
            audits: vec![(0, audit)],
            writer: None,
            uses_pgbench_tables: false,
            connects: None,
            scale: None,
        };
        // Nobody dials it.
        let nowhere = self.address.spec(context)?;
        let opening = self.opening(&name);
        opening.in_one_step(opening.begin(context)?, |recording, step| {
            let measured = self.measure(recording, step, &nowhere, None, assembled, seed);
            let measured = measured.map_err(NoOutcome::Refused)?;
            Ok(Outcome::page(measured.state, measured.exit))
        })
    }

    /// Looks for the largest number of warehouses that passes, a step of the run directory for each number that is tried.
    pub(super) fn run_until_slo(&self, context: &Context, spec: &ConnSpec) -> Result<Exit, Failure> {
        let mut control = connect::control::connect(spec)?;
        let loaded = self.tpcc_dataset(&mut control)?.warehouses;
        let recording = self.open(context, &format!("{NAME}-until-slo"), spec, &mut control)?;
        in_steps(recording, |recording| self.search(context, recording, spec, control, loaded))
    }

    fn search(
        &self,
        context: &Context,
        recording: &Recording<'_>,
        spec: &ConnSpec,
        mut control: Control,
        loaded: u32,
    ) -> Result<Outcome, NoOutcome> {
        let seed = self.seed();
        let mut search = Search::new(loaded.into());
        let mut exits: Vec<Exit> = vec![];
        let mut is_second_try = false;
        while let Some(warehouses) = search.next().filter(|_| !context.stop.is_requested()) {
            let mut run = self.clone();
            run.tpcc = Options { warehouses: Some(warehouses), until_slo: false, ..self.tpcc.clone() };
            run.prepared.title = format!("{}: ", human::plural(warehouses, "warehouse"));
            let seed = seed.wrapping_add(exits.len() as u64);
            let step = recording.dir().begin_step_as(
                "run",
                &human::plural(warehouses, "warehouse"),
                &format!("{NAME}-{warehouses}"),
            )?;
            if control.is_closed() {
                control = connect::control::connect(spec).map_err(Failure::from)?;
            }
            let measured =
                run.assemble(&mut control, spec, seed, context.terminal.as_ref()).and_then(|assembled| {
                    run.measure(recording, &step, spec, Some(&mut control), assembled, seed)
                });
            let measured = match measured {
                Ok(measured) => measured,
                Err(failure) if exits.is_empty() => return Err(NoOutcome::Refused(failure)),
                Err(failure) => return Err(NoOutcome::Failed(failure)),
            };
            exits.push(measured.exit);
            // A step that this client spoiled proves nothing about the target: it has one more try.
            if measured.exit == Exit::Invalid && !is_second_try {
                is_second_try = true;
                context.terminal.say(&recording.last_line()?);
                continue;
            }
            is_second_try = false;
            context.terminal.say(&recording.last_line()?);
            let detail = recording.dir().run();
            let answer = detail.step(step.key()).and_then(|step| step.summary.tpcc.clone());
            let is_valid = matches!(measured.exit, Exit::Ok | Exit::Errors);
            search.report_try(warehouses, is_valid && answer.is_some_and(|answer| answer.passes));
        }
        let state = context.state();
        let exit = match () {
            () if state == State::Interrupted => Exit::Interrupted,
            () if exits.iter().all(|exit| *exit == Exit::Invalid) => Exit::Invalid,
            () if search.passing == 0 => Exit::SloMissed,
            () => Exit::Ok,
        };
        Ok(Outcome::page(state, exit))
    }
}

/// The dataset as the run directory names it.
fn described(found: &TpccDataset) -> record::model::Dataset {
    record::model::Dataset {
        name: found.dataset.name.clone(),
        format_version: found.dataset.format,
        seed: found.dataset.spec.seed,
        rows: found.dataset.rows,
        parameters: fields(json!({
            "schema": found.dataset.schema_name,
            "warehouses": found.warehouses,
            "c_load": found.c_load(),
            "foreign_keys": found.foreign_keys,
            "fillfactor": found.fillfactor,
            "partitions": (found.dataset.partitions > 0).then_some(found.dataset.partitions),
        })),
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

    fn report_try(&mut self, warehouses: u64, passes: bool) {
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
            search.report_try(warehouses, warehouses <= limit);
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
