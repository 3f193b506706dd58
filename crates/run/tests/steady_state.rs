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
use run::script::{BUILTINS as SCRIPTS, Mix, Options as ScriptOptions, Predefined, QueryMode, Source};
use run::workload::script::Scripts;
use run::workload::tpcc::{Isolation, Tpcc, pace};
use run::workload::ycsb::{Distribution, Operation, Verb, Ycsb};
use run::workload::{Item, Kind, Workload};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use wire::prepared::Wire;

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

fn ycsb() -> Workload {
    let table =
        Table::new(Spec { seed: 5, key_order: KeyOrder::Scattered, compressible: Compressible::default() });
    let item = |verb, weight| Item {
        name: format!("{verb:?}"),
        weight,
        kind: Kind::Ycsb(Operation { verb, distribution: Distribution::Zipfian }),
    };
    let items =
        vec![item(Verb::Read, 60), item(Verb::Update, 30), item(Verb::Insert, 5), item(Verb::Scan, 5)];
    Workload::new(items, Some(Ycsb::new(table, 1_000_000, 1_000_000, SESSIONS, 1)), None).unwrap()
}

fn script(name: &str) -> Workload {
    let builtin = SCRIPTS.iter().find(|builtin| builtin.name == name).unwrap();
    let source = Source { name: name.into(), text: builtin.text.into(), weight: 1 };
    let options = ScriptOptions { mode: QueryMode::Prepared, defines: Vec::new() };
    let mix = Mix::compile(&[source], &options).unwrap();
    let predefined = Predefined { client_id: 0, scale: 10, random_seed: 1, default_seed: 1 };
    let item = Item { name: name.into(), weight: 1, kind: Kind::Script(0) };
    let scripts = Scripts::new(std::sync::Arc::new(mix), QueryMode::Prepared, predefined);
    Workload::new(vec![item], None, Some(scripts)).unwrap()
}

fn tpcc() -> Workload {
    Workload::of_tpcc(Tpcc {
        warehouses: 10,
        constants: data::tpcc::nurand::Constants::for_run(17, 3),
        mix: pace::Mix::default(),
        isolation: Isolation::default(),
        wire: Wire::Libpq,
        schema: None,
        homes: None,
        simulate: None,
        sessions: SESSIONS,
    })
}

fn run(workload: Workload, poller: Choice, wire: Wire, pace: Pace, transactions: u64) -> (Account, usize) {
    let server = NullServer::start().unwrap();
    let options = Options {
        workload,
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
    type Make = fn() -> Workload;
    // Name, mix, round trips per transaction.
    let cases: [(&str, Make, u64); 4] = [
        ("ycsb", ycsb, 1),
        ("select-only", || script("select-only"), 1),
        ("simple-update", || script("simple-update"), 5),
        ("tpcb-like", || script("tpcb-like"), 7),
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
            let (short, short_allocations) = run(workload(), poller, wire, pace, SHORT);
            let (long, long_allocations) = run(workload(), poller, wire, pace, LONG);
            let more = (LONG - SHORT) * SESSIONS;
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
        let (short, short_allocations) = run(tpcc(), *poller, Wire::Libpq, CLOSED, SHORT);
        let (long, long_allocations) = run(tpcc(), *poller, Wire::Libpq, CLOSED, LONG);
        // A longer run meets longer orders: a buffer may still grow a few times.
        let allocations = long_allocations.saturating_sub(short_allocations);
        assert!(allocations <= UNRELATED_ALLOCATIONS_MAX, "tpcc {poller:?}: {allocations} allocations");
        let round_trips = |account: &Account| account.posted.measured.tpcc.round_trips;
        let sends = long.traffic.sends - short.traffic.sends;
        assert_eq!(sends, round_trips(&long) - round_trips(&short), "tpcc {poller:?}: sends");
        let mean = round_trips(&long) as f64 / (SESSIONS * LONG) as f64;
        // 0.45 * 2 + 0.43 * 1.6 + 0.04 * (1.6 + 3 + 1).
        assert!((mean - 1.812).abs() < 0.02, "{mean} round trips");
    }
}
