//! From the account of a run to what its report says: throughput, limits, shares, nodes.

use record::tpcc::{DISCLAIMER, Tpcc as Answer, TpccOrders, TpccProfile, TpccShare};

use super::audit::{Audit, NODES_MAX};
use super::pace::{MIX_PERCENT_MIN, Mix, RESPONSE_LIMIT_S, TPMC_PER_WAREHOUSE_MAX};
use super::{Profile, Tpcc};
use run::drive::Account;
use run::tally::TypeTally;

/// What stands in a report about requests of several statements.
const BATCHING: &str = "independent statements share a round trip and rows of one table one statement: New-Order 2 round trips, Payment \
     and Order-Status 1 (2 by last name), Delivery 3 for all ten districts in one database transaction and not queued, Stock-Level 1";

/// Shares that clause 2 prescribes, with the bounds of clause 5.2.3 and its kin: least and most percent.
const ROLLED_BACK: (f64, f64) = (0.9, 1.1);
const REMOTE_LINES: (f64, f64) = (0.95, 1.05);
const REMOTE_PAYMENTS: (f64, f64) = (14.0, 16.0);
const BY_NAME: (f64, f64) = (57.0, 63.0);

/// Two-sided 99 % of the normal distribution.
const SPREAD: f64 = 2.576;

/// What a run is measured against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Keying and think times were waited for.
    pub has_terminals: bool,
    /// The least efficiency in percent that passes.
    pub efficiency_percent_min: f64,
}

fn mix_in_words(mix: Mix) -> String {
    match mix {
        Mix::Deck => "deck of 23 cards".into(),
        Mix::Weights => format!("weights {}", mix.weights().map(|weight| weight.to_string()).join("/")),
    }
}

/// Times from the real start. In a closed loop these are the response times.
fn service_times(types: &[TypeTally]) -> record::Latency {
    let mut service = record::Latency::new();
    for tally in types {
        let own = if tally.service.is_empty() { &tally.response } else { &tally.service };
        if !own.is_empty() {
            service.merge(own);
        }
    }
    service
}

/// What came of a run, in which TPC-C's items begin at `first`. `orders` is what the server says, if there is one.
pub fn judge(
    account: &Account,
    first: usize,
    tpcc: &Tpcc,
    terms: Terms,
    orders: Option<(i64, i64)>,
) -> Answer {
    let measured = &account.posted.measured;
    let types = &measured.types[first..first + Profile::ALL.len()];
    let audit = &measured.audits.of::<Audit>();
    let minutes = account.measured().as_secs_f64() / 60.0;
    let per_minute = |count: u64| if minutes > 0.0 { count as f64 / minutes } else { 0.0 };
    let profiles: Vec<TpccProfile> = Profile::ALL
        .into_iter()
        .zip(types)
        .map(|(profile, tally)| TpccProfile {
            name: profile.name().into(),
            transactions: tally.transactions,
            response_us_p90: (tally.transactions > 0).then(|| tally.response.quantile_us(0.9)),
            limit_us: RESPONSE_LIMIT_S[profile as usize] * 1_000_000,
            nodes: tpcc
                .homes
                .as_ref()
                .map(|_| without_end(&audit.nodes[profile as usize]))
                .unwrap_or_default(),
        })
        .collect();
    let tpmc = per_minute(audit.ended[Profile::NewOrder as usize]);
    let efficiency_percent =
        terms.has_terminals.then(|| tpmc * 100.0 / (TPMC_PER_WAREHOUSE_MAX * f64::from(tpcc.warehouses)));
    let service = service_times(types);
    let requested =
        terms.efficiency_percent_min / 100.0 * TPMC_PER_WAREHOUSE_MAX * f64::from(tpcc.warehouses) * minutes;
    let falls_short = efficiency_percent.filter(|_| {
        // Arrivals are random: what is requested within 99 % of their spread is reached.
        audit.ended[Profile::NewOrder as usize] as f64 + SPREAD * requested.sqrt() < requested
    });
    let misses = misses(&profiles, falls_short, terms);
    let mut nodes = [0; NODES_MAX];
    for of_profile in &audit.nodes {
        nodes.iter_mut().zip(of_profile).for_each(|(sum, count)| *sum += count);
    }
    let transactions: u64 = nodes.iter().sum();
    let weighted: u64 = nodes.iter().zip(1..).map(|(count, nodes)| count * nodes).sum();
    let of_all = |count: u64| if transactions == 0 { 0.0 } else { count as f64 / transactions as f64 };
    Answer {
        disclaimer: DISCLAIMER.into(),
        warehouses: tpcc.warehouses.into(),
        terminals: terms.has_terminals.then(|| tpcc.terminals().into()),
        simulated_ms: tpcc.simulate.map(|takes| takes as f64 / 1e6),
        isolation: tpcc.isolation.name().into(),
        mix: mix_in_words(tpcc.mix),
        batching: match tpcc.homes {
            None => BATCHING.into(),
            Some(_) => format!("{BATCHING}; on shards one statement per supplying warehouse"),
        },
        tpmc,
        committed_per_minute: per_minute(audit.committed_orders()),
        efficiency_percent,
        profiles,
        session_wait_us: audit.session_wait.as_deref().and_then(record::Latency::summary),
        transaction_us: service.summary(),
        database_us: match tpcc.simulate {
            Some(_) => None,
            None => audit.database.as_deref().and_then(record::Latency::summary),
        },
        round_trips: of_all(audit.round_trips),
        audit: shares(tpcc, account),
        delivered: audit.delivered,
        skipped_deliveries: audit.skipped,
        nodes: without_end(&nodes),
        nodes_mean: of_all(weighted),
        two_phase_percent: 100.0 * of_all(audit.wide_commits),
        orders: orders.map(|(before, after)| {
            let warmup = account.posted.warmup.audits.of::<Audit>();
            let client = audit.committed_orders() + warmup.committed_orders();
            let unknown = audit.unknown_orders + warmup.unknown_orders + account.unfinished;
            TpccOrders::new(client, unknown, before, after)
        }),
        passes: misses.is_empty(),
        misses,
    }
}

/// Counts up to the last that is not 0, the first at least.
fn without_end(counts: &[u64]) -> Vec<u64> {
    let end = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    counts[..=end].to_vec()
}

/// What is missed; `falls_short` is an efficiency that is too low.
fn misses(profiles: &[TpccProfile], falls_short: Option<f64>, terms: Terms) -> Vec<String> {
    let mut misses: Vec<String> = profiles
        .iter()
        .filter_map(|profile| {
            let p90 = profile.response_us_p90.filter(|p90| *p90 > profile.limit_us)?;
            Some(format!(
                "{} takes {:.2} s at the 90th percentile, {} s are allowed (5.2.5.3)",
                profile.name,
                p90 as f64 / 1e6,
                profile.limit_us / 1_000_000
            ))
        })
        .collect();
    if let Some(percent) = falls_short {
        misses.push(format!(
            "efficiency is {percent:.1} % of {TPMC_PER_WAREHOUSE_MAX} New-Orders per minute and warehouse, {:.1} % are required",
            terms.efficiency_percent_min
        ));
    }
    misses
}

fn shares(tpcc: &Tpcc, account: &Account) -> Vec<TpccShare> {
    let audit = &account.posted.measured.audits.of::<Audit>();
    let ended = |profile: Profile| audit.ended[profile as usize];
    let all: u64 = audit.ended.iter().sum();
    let mut shares: Vec<TpccShare> = Profile::ALL
        .into_iter()
        .filter(|profile| MIX_PERCENT_MIN[*profile as usize] > 0)
        .map(|profile| {
            let least = MIX_PERCENT_MIN[profile as usize] as f64;
            let name = format!("{} among all", profile.name());
            TpccShare::judge(&name, "5.2.3", ended(profile), all, (least, 100.0))
        })
        .collect();
    // With a single warehouse nothing can be remote.
    let of_several = |count: u64| if tpcc.warehouses > 1 { count } else { 0 };
    let (orders, payments) = (ended(Profile::NewOrder), ended(Profile::Payment));
    shares.extend([
        TpccShare::judge("New-Orders rolled back", "2.4.1.4", audit.rolled_back, orders, ROLLED_BACK),
        TpccShare::judge(
            "remote order lines",
            "2.4.1.5",
            audit.remote_lines,
            of_several(audit.lines),
            REMOTE_LINES,
        ),
        TpccShare::judge(
            "remote Payments",
            "2.5.1.2",
            audit.remote_payments,
            of_several(payments),
            REMOTE_PAYMENTS,
        ),
        TpccShare::judge("Payments by last name", "2.5.1.2", audit.payments_by_name, payments, BY_NAME),
        TpccShare::judge(
            "Order-Statuses by last name",
            "2.6.1.2",
            audit.statuses_by_name,
            ended(Profile::OrderStatus),
            BY_NAME,
        ),
    ]);
    shares
}
