//! `-b tpcc`: its flags, how it finds its warehouses, and where these are on a cluster.

use std::sync::Arc;

use data::tpcc::nurand::Constants;
use data::tpcc::{Table, WAREHOUSES_MAX};
use engines::{Cluster, Placement};
use load::ledger;
use postgres::Client;
use run::routing::Connects;
use run::terminals::Users;

use super::orders::OrdersAudit;
use super::run::Tpcc;
use super::run::homes::Homes;
use super::run::judge::{TITLE, Terms};
use super::run::pace::Mix;
use super::{TPCC, TpccDataset};
use crate::driving::{
    About, Builtin, Family, Flag, Given, Kind, Prepared, Refusal, Search, Tables, weight_of,
};

/// The least efficiency that passes, in percent, unless --efficiency is given.
const EFFICIENCY_PERCENT_DEFAULT: f64 = 95.0;

const WAREHOUSES: &str = "warehouses";
const NO_DELAYS: &str = "no-delays";
const ISOLATION: &str = "isolation";
const DECK: &str = "deck";
const SIMULATE: &str = "simulate";
const UNTIL_SLO: &str = "until-slo";
const EFFICIENCY: &str = "efficiency";

const FLAGS: &[Flag] = &[
    Flag {
        long: WAREHOUSES,
        kind: Kind::Count,
        help: "Drive only N of the loaded warehouses, with ten terminals each [default: all]",
        excludes: &[],
    },
    Flag {
        long: NO_DELAYS,
        kind: Kind::Switch,
        help: "No keying and think times: every session starts its next transaction when the last one has ended",
        excludes: &[],
    },
    Flag {
        long: ISOLATION,
        kind: Kind::Isolation,
        help: "Isolation level: rc, rr, ser (read committed, repeatable read, serializable) [default: rc]",
        excludes: &[],
    },
    Flag {
        long: DECK,
        kind: Kind::Switch,
        help: "Take transactions from the deck of clause 5.2.4.2, instead of choosing them at random with the shares 45/43/4/4/4",
        excludes: &[],
    },
    Flag {
        long: SIMULATE,
        kind: Kind::Time,
        help: "Use no database: each transaction takes this long (milliseconds, or as 5ms). Shows the cost of the client alone; \
               needs --warehouses",
        excludes: &[],
    },
    Flag {
        long: UNTIL_SLO,
        kind: Kind::Switch,
        help: "Find the largest number of warehouses that passes: 90th percentiles within their limits and --efficiency reached; \
               each step takes --warmup and -T",
        excludes: &[NO_DELAYS, SIMULATE, WAREHOUSES],
    },
    Flag {
        long: EFFICIENCY,
        kind: Kind::Percent,
        help: "Minimum efficiency to pass, in percent of 12.86 New-Orders per minute and warehouse [default: 95]",
        excludes: &[NO_DELAYS],
    },
];

const ABOUT: About = About {
    title: TITLE,
    filled_by: "load tpcc, or load chbench",
    fill: "load it first: pgfathom load tpcc -s 10",
    builtins: &[Builtin {
        name: TPCC,
        about: "the five transactions of TPC-C with keying and think times; not a TPC result",
    }],
    flags: FLAGS,
    heading: "TPC-C (-b tpcc)",
    examples: &[
        (
            "-b tpcc -c 16 --warmup 1m -T 10m ...",
            "TPC-C with keying and think times, on warehouses of load tpcc",
        ),
        ("-b tpcc --no-delays -c 8 -T 60 ...", "TPC-C with eight sessions at full speed"),
        (
            "-b tpcc@1 -b ycsb-a@3 --no-delays ...",
            "two benchmarks in one run: three of four transactions are YCSB",
        ),
    ],
};

/// `-b tpcc`.
#[derive(Debug)]
pub struct TpccFamily;

impl Family for TpccFamily {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn check(&self, given: &Given<'_>) -> Result<(), Refusal> {
        if given.is_mixed {
            check_mixed(given)?;
        }
        if given.names_data_node {
            return Err(Refusal::new(
                "--data chooses keys of one node, but each terminal of TPC-C has its own warehouse",
            )
            .with_hint(
                "omit it; with --connect owner every session serves warehouses of the node that it connects to",
            ));
        }
        if given.has_rate && !given.has(NO_DELAYS) {
            return Err(Refusal::new("-R: the terminals of TPC-C set the rate themselves").with_hint(
                "omit -R: --warehouses N makes more or less load; or add --no-delays, and sessions follow the rate",
            ));
        }
        if given.has(SIMULATE) && !given.has(WAREHOUSES) {
            return Err(Refusal::new("--simulate: without a database the number of warehouses is unknown")
                .with_hint("give it: --warehouses 15000"));
        }
        if given.has(UNTIL_SLO) && given.counts_transactions {
            return Err(
                Refusal::new("-t: the steps of --until-slo are timed").with_hint("give their time: -T 5m")
            );
        }
        Ok(())
    }

    fn seeks_owner(&self) -> bool {
        true
    }

    fn holds_rows(&self) -> bool {
        true
    }

    fn tables(&self, client: &mut Client) -> Result<Tables, Refusal> {
        let schema = dataset(client)?.dataset.schema_name;
        Ok(Table::ALL.map(|table| (Some(schema.clone()), table.name())).into())
    }

    fn prepare(
        &self,
        requested: &[(&'static str, u64)],
        given: &Given<'_>,
        client: &mut Client,
    ) -> Result<Prepared, Refusal> {
        let found = dataset(client)?;
        let warehouses = match given.count(WAREHOUSES) {
            None => found.warehouses,
            Some(count) if count > u64::from(found.warehouses) => {
                return Err(Refusal::new(format!(
                    "--warehouses {count}: only {} are loaded",
                    in_words(found.warehouses)
                ))
                .with_hint(format!("give at most {}, or load more of them", found.warehouses)));
            }
            Some(count) => count as u32,
        };
        let schema = Some(found.dataset.schema_name.clone());
        let mut tpcc = workload(given, warehouses, found.run_constants(), schema);
        let spread = Spread::read(given, client, &found, warehouses)?;
        (tpcc.homes, tpcc.is_spread) = (spread.homes, spread.is_spread);
        // CH-benCHmark beside it runs on tables of its own only where these are not its.
        let audit = OrdersAudit::new(&tpcc, terms(given)).with_own_tables(found.dataset.name == TPCC);
        let prepared = Prepared::new(tpcc.clone(), found.described(), audit).listed_in(found.dataset, TPCC);
        Ok(Prepared {
            weight: weight_of(requested),
            users: users(given, &tpcc),
            connects: spread.connects,
            plans_each: spread.plans_each,
            ..prepared
        })
    }

    fn simulates(&self) -> Option<&'static str> {
        Some(SIMULATE)
    }

    fn simulated(&self, given: &Given<'_>) -> Result<Prepared, Refusal> {
        let warehouses = given.count(WAREHOUSES).unwrap_or(1);
        let warehouses =
            u32::try_from(warehouses).ok().filter(|count| *count <= WAREHOUSES_MAX).ok_or_else(|| {
                Refusal::new(format!("--warehouses {warehouses}: too many"))
                    .with_hint(format!("give at most {WAREHOUSES_MAX}"))
            })?;
        let tpcc = workload(given, warehouses, Constants::for_run(0, given.seed), None);
        Ok(Prepared {
            weight: 1,
            dataset: None,
            audit: Some(Box::new(OrdersAudit::new(&tpcc, terms(given)))),
            writer: None,
            users: users(given, &tpcc),
            connects: None,
            plans_each: false,
            workload: tpcc.into(),
        })
    }

    fn search(&self) -> Option<Search> {
        Some(Search { flag: UNTIL_SLO, sets: WAREHOUSES, unit: "warehouse" })
    }

    fn search_limit(&self, client: &mut Client) -> Result<u64, Refusal> {
        Ok(dataset(client)?.warehouses.into())
    }
}

/// Checks what TPC-C cannot have beside another workload.
fn check_mixed(given: &Given<'_>) -> Result<(), Refusal> {
    const ALONE: &str = "omit the other -b and -f, or drive them from a second pgfathom run";
    if !given.has(NO_DELAYS) {
        return Err(Refusal::new(
            "-b tpcc: terminals set their own rate, but the other workloads of this run do not",
        )
        .with_hint(format!(
            "add --no-delays: every session then draws its next transaction from the whole mix; or {ALONE}"
        )));
    }
    if given.has(DECK) {
        return Err(Refusal::new("--deck: the deck's shares are those of TPC-C alone").with_hint(ALONE));
    }
    Ok(())
}

fn terms(given: &Given<'_>) -> Terms {
    Terms {
        has_terminals: !given.has(NO_DELAYS),
        efficiency_percent_min: given.percent(EFFICIENCY).unwrap_or(EFFICIENCY_PERCENT_DEFAULT),
    }
}

fn workload(given: &Given<'_>, warehouses: u32, constants: Constants, schema: Option<String>) -> Tpcc {
    Tpcc {
        warehouses,
        constants,
        mix: if given.has(DECK) { Mix::Deck } else { Mix::default() },
        isolation: given.isolation(ISOLATION).unwrap_or_default(),
        wire: given.wire,
        schema,
        homes: None,
        is_spread: false,
        simulate: given.time(SIMULATE).map(|takes| takes.as_nanos() as u64),
        sessions: given.sessions,
    }
}

/// The users whose pace the run follows; `None`: nothing waits for them.
fn users(given: &Given<'_>, tpcc: &Tpcc) -> Option<Users> {
    let habits = tpcc.mix.habits();
    (!given.has(NO_DELAYS)).then(|| Users { first: 0, count: tpcc.terminals(), seed: given.seed, habits })
}

fn in_words(warehouses: u32) -> String {
    let s = if warehouses == 1 { "" } else { "s" };
    format!("{warehouses} warehouse{s}")
}

/// The dataset in the target, complete.
///
/// # Errors
/// When there is none, or not all of it.
pub fn dataset(client: &mut Client) -> Result<TpccDataset, Refusal> {
    if !ledger::exists(client)? {
        return Err(ABOUT.missing());
    }
    let found = super::find(client)?.ok_or_else(|| ABOUT.missing())?;
    check_complete(client, &ABOUT, &found)?;
    Ok(found)
}

/// Refuses the dataset of a benchmark that is not completely loaded, or whose tables of TPC-C are not in their place.
pub(crate) fn check_complete(client: &mut Client, about: &About, found: &TpccDataset) -> Result<(), Refusal> {
    let TpccDataset { dataset, .. } = found;
    if !dataset.loaded {
        return Err(about.incomplete());
    }
    Ok(ledger::check_in_place(client, dataset, &found.table_names())?)
}

/// How a target spreads the warehouses over its nodes.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    /// Where they are, if that can be read.
    pub(crate) homes: Option<Homes>,
    /// Where each session enters, if this decides it.
    pub(crate) connects: Option<Connects>,
    /// They are on several nodes.
    pub(crate) is_spread: bool,
    /// Sessions plan every execution: tables with foreign partitions need it.
    pub(crate) plans_each: bool,
}

impl Spread {
    /// Reads it. Sessions that enter at owners stand for warehouses of the node that they enter at, and nodes without any get no session.
    pub(crate) fn read(
        given: &Given<'_>,
        client: &mut Client,
        found: &TpccDataset,
        driven: u32,
    ) -> Result<Spread, Refusal> {
        let is_engines = engines::engine::is_spread(client).unwrap_or(false);
        let unknown = Spread { is_spread: is_engines, ..Spread::default() };
        let Some(entry) = &given.entry else { return Ok(unknown) };
        let cluster = entry.cluster;
        let nodes = match homes(cluster, client, found) {
            Ok(Some(nodes)) => nodes,
            Ok(None) => return Ok(Spread::default()),
            // Sessions enter in one place, whatever is where.
            Err(_) if is_engines && !entry.is_at_owner => return Ok(unknown),
            Err(error) => return Err(error),
        };
        let spread =
            Spread { is_spread: true, plans_each: cluster.has_foreign_partitions(), ..Spread::default() };
        if !entry.is_at_owner {
            let connects = Some(entry.connects.clone());
            return Ok(Spread { homes: Some(Homes::anywhere(nodes)), connects, ..spread });
        }
        let owners = Homes::owners(&nodes, driven);
        let connects = Connects::by_turns(cluster.nodes.len(), &owners, given.sessions);
        let entered: Vec<u16> = (0..given.sessions).map(|session| connects.of(session)).collect();
        let homes = Homes::held(nodes, driven, &entered);
        Ok(Spread { homes: Some(homes), connects: Some(connects), ..spread })
    }
}

/// The node of each warehouse; `None` when the target does not spread them over nodes.
fn homes(cluster: &Cluster, client: &mut Client, found: &TpccDataset) -> Result<Option<Arc<[u16]>>, Refusal> {
    let at = cluster.entry_node();
    let placement = Placement::read(cluster, client, at, &found.dataset.schema_name, "warehouse")?;
    if placement.on_every_node() || !cluster.is_clustered() {
        return Ok(None);
    }
    let keys: Vec<Vec<Option<String>>> =
        (1..=found.warehouses).map(|w_id| vec![Some(w_id.to_string())]).collect();
    let leaves = placement.by_server(client, &keys)?;
    let nodes: Option<Vec<u16>> =
        leaves.into_iter().map(|leaf| Some(placement.leaves().get(leaf?)?.node as u16)).collect();
    let nodes = nodes.ok_or_else(|| {
        Refusal::new("the catalog of this cluster does not show on which node each warehouse is")
            .with_hint("check the partitions of the table warehouse: each W_ID needs one")
    })?;
    Ok(Some(nodes.into()))
}
