//! From the counters of a run to its report: throughput, limits, shares, nodes.

use record::benchmark::{
    Benchmark as Answer, COUNT, Check, Column, Count, Figure, MICROSECONDS, PERCENT, Requests, Row, Setting,
    Share, Table,
};
use record::number;

use super::audit::{Audit, NODES_MAX};
use super::pace::{MIX_PERCENT_MIN, Mix, RESPONSE_LIMIT_S, TPMC_PER_WAREHOUSE_MAX};
use super::{Profile, Tpcc};
use run::drive::Account;
use run::tally::TypeTally;

/// The benchmark's name in messages and reports.
pub(crate) const TITLE: &str = "TPC-C";
/// What every report of such a run has.
const DISCLAIMER: &str =
    "not a TPC result: unaudited, not comparable with results published by the TPC (see docs/tpcc.md)";
/// The setting for the number of driven warehouses.
const WAREHOUSES: &str = "warehouses";

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

/// The sums of a run: of the part that is measured, and of the warm-up before it.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Measured.
    pub measured: Audit,
    /// Before.
    pub warmup: Audit,
}

impl Sums {
    /// Of the whole run: orders that committed, and those of which it is unknown.
    fn orders(&self) -> (u64, u64) {
        let committed = self.measured.committed_orders() + self.warmup.committed_orders();
        (committed, self.measured.unknown_orders + self.warmup.unknown_orders)
    }
}

/// Orders of the whole run by both counts. `own` are those of the benchmark that is judged, `others` those of another one on the same tables.
pub(crate) fn count_orders(
    account: &Account,
    own: &Sums,
    others: &Sums,
    (before, after): (i64, i64),
) -> Check {
    let ((committed, unknown), (theirs, their_unknown)) = (own.orders(), others.orders());
    let count = Count {
        client: committed + theirs,
        unknown: unknown + their_unknown + account.unfinished,
        server: after - before,
    };
    let of_others = match theirs {
        0 => String::new(),
        some => format!(", {} of them by other workloads of this run", number::count(some)),
    };
    let unknown = match count.unknown {
        0 => String::new(),
        some => format!(", {} unknown", number::count(some)),
    };
    let agree = count.agrees();
    Check {
        name: "orders counted by client and server".into(),
        holds: Some(agree),
        detail: format!(
            "the client saw {} commit{of_others}{unknown}; the server has {} more",
            number::count(count.client),
            u64::try_from(count.server).map_or_else(|_| count.server.to_string(), number::count)
        ),
        count: Some(count),
    }
}

/// What came of a run, in which the five transactions begin at `first`.
pub fn judge(account: &Account, first: usize, tpcc: &Tpcc, terms: Terms, sums: &Sums) -> Answer {
    let types = &account.posted.measured.types[first..first + Profile::ALL.len()];
    let audit = &sums.measured;
    let minutes = account.measured().as_secs_f64() / 60.0;
    let limits = Limits::judge(types, audit, tpcc, terms, minutes);
    let transactions: u64 = audit.nodes.iter().flatten().sum();
    let mut figures = limits.figures;
    figures.extend(figures_of(tpcc, audit, transactions));
    let mut tables = vec![limits.profiles];
    if tpcc.homes.is_some() {
        tables.push(nodes_touched(audit));
    }
    tables.push(Table::of_latencies(
        "time",
        [
            ("wait for a session", audit.session_wait.as_deref().and_then(record::Latency::summary)),
            ("transaction", service_times(types).summary()),
            (
                "of that in the database",
                match tpcc.simulate {
                    Some(_) => None,
                    None => audit.database.as_deref().and_then(record::Latency::summary),
                },
            ),
        ],
    ));
    Answer {
        name: TITLE.into(),
        disclaimer: DISCLAIMER.into(),
        settings: settings(tpcc, terms),
        figures,
        tables,
        shares: shares(tpcc, audit),
        checks: vec![],
        notes: vec![match tpcc.is_spread {
            false => BATCHING.into(),
            true => format!("{BATCHING}; on shards one statement per supplying warehouse"),
        }],
        requests: tpcc.simulate.is_none().then_some(Requests { awaited: audit.round_trips, transactions }),
        passes: Some(limits.misses.is_empty()),
        misses: limits.misses,
    }
}

fn settings(tpcc: &Tpcc, terms: Terms) -> Vec<Setting> {
    let warehouses = u64::from(tpcc.warehouses);
    let terminals = terms.has_terminals.then(|| u64::from(tpcc.terminals()));
    let mut settings = vec![
        Setting::number(WAREHOUSES, warehouses as f64, number::counted(warehouses, "warehouse")),
        match terminals {
            Some(count) => {
                let text = format!("{} with keying and think times", number::counted(count, "terminal"));
                Setting::number("terminals", count as f64, text)
            }
            None => Setting::words("terminals", "no keying and think times"),
        },
    ];
    if let Some(takes) = tpcc.simulate {
        let ms = takes as f64 / 1e6;
        let text = format!("no database: a transaction takes {ms} ms");
        settings.push(Setting::number("simulated_ms", ms, text));
    }
    settings.push(Setting::words("isolation", tpcc.isolation.name()));
    settings.push(Setting::words("mix", &mix_in_words(tpcc.mix)));
    settings
}

/// What must be kept, and by how much.
struct Limits {
    figures: Vec<Figure>,
    profiles: Table,
    misses: Vec<String>,
}

impl Limits {
    fn judge(types: &[TypeTally], audit: &Audit, tpcc: &Tpcc, terms: Terms, minutes: f64) -> Limits {
        let per_minute = |count: u64| if minutes > 0.0 { count as f64 / minutes } else { 0.0 };
        let orders = audit.ended[Profile::NewOrder as usize];
        let tpmc = per_minute(orders);
        let mut figures = vec![
            Figure::new("New-Orders per minute (tpmC)", tpmc, "/min"),
            Figure::new("New-Orders per minute that committed", per_minute(audit.committed_orders()), "/min"),
        ];
        let (profiles, mut misses) = profiles(types);
        if terms.has_terminals {
            let most = TPMC_PER_WAREHOUSE_MAX * f64::from(tpcc.warehouses);
            let percent = tpmc * 100.0 / most;
            let least = terms.efficiency_percent_min;
            let requested = least / 100.0 * most * minutes;
            // Arrivals are random: what is requested within 99 % of their spread is reached.
            let falls_short = orders as f64 + SPREAD * requested.sqrt() < requested;
            if falls_short {
                misses.push(format!(
                    "efficiency is {percent:.1} % of {TPMC_PER_WAREHOUSE_MAX} New-Orders per minute and warehouse, {least:.1} % are required"
                ));
            }
            let warehouses = number::counted(tpcc.warehouses.into(), "warehouse");
            figures.push(Figure {
                at_least: Some(least),
                met: Some(!falls_short),
                detail: format!("of {TPMC_PER_WAREHOUSE_MAX} for each of {warehouses}"),
                ..Figure::new("efficiency", percent, PERCENT)
            });
        }
        Limits { figures, profiles, misses }
    }
}

/// Response times against their limits, and what is missed.
fn profiles(types: &[TypeTally]) -> (Table, Vec<String>) {
    let mut misses = vec![];
    let row = |(profile, tally): (Profile, &TypeTally)| {
        let limit_s = RESPONSE_LIMIT_S[profile as usize];
        let limit_us = limit_s * 1_000_000;
        let p90 = (tally.transactions > 0).then(|| tally.response.quantile_us(0.9));
        if let Some(p90) = p90.filter(|p90| *p90 > limit_us) {
            misses.push(format!(
                "{} takes {:.2} s at the 90th percentile, {limit_s} s are allowed (5.2.5.3)",
                profile.name(),
                p90 as f64 / 1e6
            ));
        }
        Row {
            name: profile.name().into(),
            values: vec![Some(tally.transactions as f64), p90.map(|us| us as f64), Some(limit_us as f64)],
            met: p90.map(|p90| p90 <= limit_us),
        }
    };
    let rows = Profile::ALL.into_iter().zip(types).map(row).collect();
    let columns = vec![
        Column::new("transactions", COUNT),
        Column::new("p90", MICROSECONDS),
        Column::new("at most", MICROSECONDS),
    ];
    (Table { name: "profile".into(), columns, rows, are_parts: false }, misses)
}

/// Figures without a limit.
fn figures_of(tpcc: &Tpcc, audit: &Audit, transactions: u64) -> Vec<Figure> {
    let of_all = |count: u64| if transactions == 0 { 0.0 } else { count as f64 / transactions as f64 };
    let by_profile = audit.nodes.iter();
    let touched: u64 =
        by_profile.flat_map(|counts| counts.iter().zip(1..)).map(|(count, nodes)| count * nodes).sum();
    let counted = [
        Figure::new("nodes touched per transaction", of_all(touched), COUNT),
        Figure::new("two-phase commits", 100.0 * of_all(audit.wide_commits), PERCENT),
    ];
    let mut figures: Vec<Figure> =
        counted.into_iter().filter(|_| tpcc.homes.is_some() || !tpcc.is_spread).collect();
    if tpcc.simulate.is_none() {
        figures.extend([
            Figure::new("round trips per transaction", of_all(audit.round_trips), COUNT),
            Figure::new("orders delivered", audit.delivered as f64, COUNT),
            Figure::new("districts skipped by Deliveries", audit.skipped as f64, COUNT),
        ]);
    }
    figures
}

/// Transactions of each profile by the number of nodes whose rows they touched.
fn nodes_touched(audit: &Audit) -> Table {
    let used = |nodes: &usize| audit.nodes.iter().any(|counts| counts[*nodes] > 0);
    let most = (0..NODES_MAX).rev().find(used).map_or(1, |last| last + 1);
    let column = |nodes: usize| {
        let more = if nodes == NODES_MAX { " or more" } else { "" };
        Column {
            name: format!("{nodes}{more} {}", if nodes == 1 { "node" } else { "nodes" }),
            unit: COUNT.into(),
        }
    };
    let row = |profile: Profile| Row {
        name: profile.name().into(),
        values: audit.nodes[profile as usize][..most].iter().map(|count| Some(*count as f64)).collect(),
        met: None,
    };
    Table {
        name: "nodes touched".into(),
        columns: (1..=most).map(column).collect(),
        rows: Profile::ALL.into_iter().map(row).collect(),
        are_parts: true,
    }
}

fn shares(tpcc: &Tpcc, audit: &Audit) -> Vec<Share> {
    let ended = |profile: Profile| audit.ended[profile as usize];
    let all: u64 = audit.ended.iter().sum();
    let mut shares: Vec<Share> = Profile::ALL
        .into_iter()
        .filter(|profile| MIX_PERCENT_MIN[*profile as usize] > 0)
        .map(|profile| {
            let least = MIX_PERCENT_MIN[profile as usize] as f64;
            let name = format!("{} among all", profile.name());
            Share::judge(&name, "5.2.3", ended(profile), all, (least, 100.0))
        })
        .collect();
    // With a single warehouse nothing can be remote.
    let of_several = |count: u64| if tpcc.warehouses > 1 { count } else { 0 };
    let (orders, payments) = (ended(Profile::NewOrder), ended(Profile::Payment));
    shares.extend([
        Share::judge("New-Orders rolled back", "2.4.1.4", audit.rolled_back, orders, ROLLED_BACK),
        Share::judge(
            "remote order lines",
            "2.4.1.5",
            audit.remote_lines,
            of_several(audit.lines),
            REMOTE_LINES,
        ),
        Share::judge(
            "remote Payments",
            "2.5.1.2",
            audit.remote_payments,
            of_several(payments),
            REMOTE_PAYMENTS,
        ),
        Share::judge("Payments by last name", "2.5.1.2", audit.payments_by_name, payments, BY_NAME),
        Share::judge(
            "Order-Statuses by last name",
            "2.6.1.2",
            audit.statuses_by_name,
            ended(Profile::OrderStatus),
            BY_NAME,
        ),
    ]);
    shares
}
