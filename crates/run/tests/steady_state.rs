//! What a transaction costs in counts, which no noisy machine can blur: no allocation, one send, one receive.
//!
//! Everything runs against the null server in this process, so its side of the connection is counted too. Two runs that differ
//! only in length cancel out what starting and ending costs.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::alloc::System;
use std::time::Duration;

use data::ycsb::{Compressible, KeyOrder, Spec, Table};
use run::control::StopFlag;
use run::drive::{Account, Observer, Options, Second, drive};
use run::engine::Nanos;
use run::engine::poller::Choice;
use run::null_server::NullServer;
use run::schedule::Pace;
use run::script::{
    BUILTINS as SCRIPTS, Mix as Compiled, Options as ScriptOptions, Predefined, QueryMode, Source,
};
use run::workload::script::Scripts;
use run::workload::{self, Item};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use wire::prepared::Wire;
use workloads::tpcc::run::audit::Audit;
use workloads::tpcc::run::null::TpccAnswers;
use workloads::tpcc::run::{Isolation, Profile, Tpcc, pace};
use workloads::ycsb::run::{Distribution, Operation, Verb, Ycsb};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Publishing once a second, and thread start-up racing with the measured region, may allocate this often in all.
const UNRELATED_ALLOCATIONS_MAX: usize = 40;
const SESSIONS: u64 = 4;
const SHORT: u64 = 1_000;
const LONG: u64 = 6_000;

struct Silent;

impl Observer for Silent {
    fn begins(&mut self, _: Nanos) {}
    fn second(&mut self, _: &Second<'_>) {}
}

run::workloads! {
    /// A mix of all kinds, as the command drives it.
    enum Any, AnySession {
        /// Rows by key.
        Ycsb(Ycsb),
        /// A script.
        Scripts(Scripts),
        /// Five transactions.
        Tpcc(Tpcc),
    }
}

type Mix = workload::Mix<Any>;

fn ycsb() -> Ycsb {
    let table =
        Table::new(Spec { seed: 5, key_order: KeyOrder::Scattered, compressible: Compressible::default() });
    let item = |(verb, weight)| {
        let item = Item { name: format!("{verb:?}"), weight };
        (item, Operation { verb, distribution: Distribution::Zipfian })
    };
    let items = [(Verb::Read, 60), (Verb::Update, 30), (Verb::Insert, 5), (Verb::Scan, 5)].map(item);
    Ycsb::new(table, 1_000_000, 1_000_000, SESSIONS, 1).with_items(items)
}

fn script(name: &str) -> Scripts {
    let builtin = SCRIPTS.iter().find(|builtin| builtin.name == name).unwrap();
    let source = Source { name: name.into(), text: builtin.text.into(), weight: 1 };
    let options = ScriptOptions { mode: QueryMode::Prepared, defines: Vec::new() };
    let mix = Compiled::compile(&[source], &options).unwrap();
    let predefined = Predefined { client_id: 0, scale: 10, random_seed: 1, default_seed: 1 };
    Scripts::new(std::sync::Arc::new(mix), QueryMode::Prepared, predefined)
}

fn tpcc() -> Tpcc {
    Tpcc {
        warehouses: 10,
        constants: data::tpcc::nurand::Constants::for_run(17, 3),
        mix: pace::Mix::default(),
        isolation: Isolation::default(),
        wire: Wire::Libpq,
        schema: None,
        homes: None,
        is_spread: false,
        simulate: None,
        sessions: SESSIONS,
    }
}

fn alone(workload: impl Into<Any>) -> Mix {
    Mix::of(workload.into()).unwrap()
}

/// Three workloads in one run: one, seven, and several round trips.
fn mixed() -> Mix {
    Mix::new([(Any::from(ycsb()), 3), (script("tpcb-like").into(), 1), (tpcc().into(), 1)]).unwrap()
}

fn run(mix: Mix, poller: Choice, wire: Wire, pace: Pace, transactions: u64) -> (Account, usize) {
    let server = NullServer::answering(|| Box::new(TpccAnswers::default())).unwrap();
    let options = Options {
        mix,
        sessions: SESSIONS,
        workers: 1,
        pace,
        duration: None,
        warmup: Duration::ZERO,
        transactions_per_session: Some(transactions),
        latency_limit: None,
        tries_max: 10,
        wire,
        poller,
        seed: 3,
        connects: Default::default(),
        first_session: 0,
    };
    let region = Region::new(ALLOCATOR);
    let account = drive(options, server.dial(), &StopFlag::default(), &mut Silent).unwrap();
    let change = region.change();
    assert_eq!(account.posted.errors, []);
    assert_eq!(account.posted.measured.transactions(), SESSIONS * transactions);
    (account, change.allocations + change.reallocations)
}

/// One test, because the allocator counts the whole process.
#[test]
fn a_transaction_allocates_nothing_and_sends_and_receives_a_fixed_number_of_times() {
    const CLOSED: Pace = Pace::Closed;
    const OPEN: Pace = Pace::Poisson { per_second: 1e9 };
    type Make = fn() -> Mix;
    // Name, mix, round trips per transaction.
    let cases: [(&str, Make, u64); 4] = [
        ("ycsb", || alone(ycsb()), 1),
        ("select-only", || alone(script("select-only")), 1),
        ("simple-update", || alone(script("simple-update")), 5),
        ("tpcb-like", || alone(script("tpcb-like")), 7),
    ];
    // Where the kernel has no io_uring, epoll is the only way there is.
    let ways: &[Choice] = match testing::needs::io_uring() {
        Ok(()) => &[Choice::Epoll, Choice::IoUring],
        Err(lack) => {
            testing::skip(&lack);
            &[Choice::Epoll]
        }
    };
    for (poller, (name, workload, round_trips)) in
        ways.iter().flat_map(|way| cases.iter().map(move |case| (*way, *case)))
    {
        for (wire, pace) in [(Wire::Libpq, CLOSED), (Wire::Lean, CLOSED), (Wire::Libpq, OPEN)] {
            let (short, short_allocations) = run(workload(), poller, wire, pace, SHORT / 2);
            let (long, long_allocations) = run(workload(), poller, wire, pace, LONG / 2);
            let more = (LONG - SHORT) / 2 * SESSIONS;
            let allocations = long_allocations.saturating_sub(short_allocations);
            assert!(
                allocations <= UNRELATED_ALLOCATIONS_MAX,
                "{name} {poller:?} {wire:?} {pace:?}: {allocations} allocations in {more} transactions"
            );
            let sends = long.traffic.sends - short.traffic.sends;
            assert_eq!(sends, more * round_trips, "{name} {poller:?} {wire:?} {pace:?}: sends");
            // A reply that the kernel hands over in two pieces costs one more: rare, and never less than one.
            let receives = long.traffic.receives - short.traffic.receives;
            assert!(
                (more * round_trips..more * round_trips + more / 100).contains(&receives),
                "{name} {poller:?}: {receives} receives of {}",
                more * round_trips
            );
            assert!(short.buffer_bytes > 0);
            assert_eq!(long.buffer_bytes, short.buffer_bytes, "{name}: buffers do not grow with the run");
        }
    }
    // TPC-C: profiles differ in their round trips, which are counted with them; the null server's answers are text.
    for poller in ways {
        let of_tpcc = |account: &Account| account.posted.measured.audits.of::<Audit>();
        let (short, long) = lengthened("tpcc", || alone(tpcc()), *poller);
        let sends = long.traffic.sends - short.traffic.sends;
        assert_eq!(sends, of_tpcc(&long).round_trips - of_tpcc(&short).round_trips, "tpcc {poller:?}: sends");
        let mean = of_tpcc(&long).round_trips as f64 / (SESSIONS * LONG) as f64;
        // 0.45 * 2 + 0.43 * 1.6 + 0.04 * (1.6 + 3 + 1).
        assert!((mean - 1.812).abs() < 0.02, "{mean} round trips");
        let (short, long) = lengthened("mixed", mixed, *poller);
        let transactions = |account: &Account, items: std::ops::Range<usize>| -> u64 {
            account.posted.measured.types[items].iter().map(|tally| tally.transactions).sum()
        };
        let first = 5;
        let trips = |account: &Account| {
            let tpcc = of_tpcc(account);
            assert_eq!(
                tpcc.ended.iter().sum::<u64>(),
                transactions(account, first..first + Profile::ALL.len())
            );
            transactions(account, 0..4) + 7 * transactions(account, 4..first) + tpcc.round_trips
        };
        assert_eq!(
            long.traffic.sends - short.traffic.sends,
            trips(&long) - trips(&short),
            "mixed {poller:?}"
        );
        let share = transactions(&long, 0..4) as f64 / (SESSIONS * LONG) as f64;
        assert!((share - 0.6).abs() < 0.02, "{share} of all are YCSB's, whose weight is 3 of 5");
    }
}

/// A short run and a long one, neither of which allocates per transaction.
fn lengthened(name: &str, mix: fn() -> Mix, poller: Choice) -> (Account, Account) {
    let (short, short_allocations) = run(mix(), poller, Wire::Libpq, Pace::Closed, SHORT);
    let (long, long_allocations) = run(mix(), poller, Wire::Libpq, Pace::Closed, LONG);
    // A longer run meets longer orders: a buffer may still grow a few times.
    let allocations = long_allocations.saturating_sub(short_allocations);
    assert!(allocations <= UNRELATED_ALLOCATIONS_MAX, "{name} {poller:?}: {allocations} allocations");
    (short, long)
}
