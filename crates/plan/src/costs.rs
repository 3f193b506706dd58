//! Commit latencies by topology, and money.

use crate::book::Book;
use record::plan::input::{Input, Topology};
use record::plan::{Clients, CommitLatency, Money, Time, Unit};

/// What a wide commit costs in sequential round trips, after a published comparison of PostgreSQL with distributed databases: a synchronous
/// replica is one round trip, two-phase commit two more; a distributed database that runs its phases one after another needs six and 5 ms of
/// planning, with overlapping phases 4.5 and 0.5 ms.
pub fn topologies() -> Vec<Topology> {
    let all = [
        ("one server", 0.0, 0.0),
        ("one server, synchronous replica", 1.0, 0.0),
        ("shards, two-phase commit", 2.0, 0.0),
        ("shards, two-phase commit, synchronous replicas", 3.0, 0.0),
        ("distributed, phases one after another", 6.0, 5_000.0),
        ("distributed, phases overlapped", 4.5, 500.0),
    ];
    all.map(|(name, round_trips, fixed_us)| Topology { name: name.into(), round_trips, fixed_us }).into()
}

pub(crate) fn commits(input: &Input, book: &mut Book) -> Vec<CommitLatency> {
    let mut latency = |topology: &Topology| {
        let of = |us: f64| topology.round_trips * us + topology.fixed_us;
        for ping in &input.pings {
            let given = [
                ("round trips", topology.round_trips, Unit::Count),
                ("ping", ping.us, Unit::Microseconds),
                ("planning", topology.fixed_us, Unit::Microseconds),
            ];
            let name = format!("commit, {}, {}", topology.name, ping.name);
            book.put(&name, "round trips * ping + planning", &given, Unit::Microseconds, of(ping.us));
        }
        CommitLatency {
            topology: topology.name.clone(),
            round_trips: topology.round_trips,
            latency_us: input.pings.iter().map(|ping| of(ping.us)).collect(),
        }
    };
    input.topologies.iter().map(&mut latency).collect()
}

pub(crate) fn money(input: &Input, time: &Time, clients: &Clients, book: &mut Book) -> Option<Money> {
    let prices = input.prices.as_ref()?;
    let servers = (input.hardware.nodes * (1 + input.hardware.standbys)) as f64;
    let hosts = clients.hosts.unwrap_or(input.loading.agents) as f64;
    let given = [
        ("servers", servers, Unit::Count),
        ("price of a server", prices.node_hour, Unit::Money),
        ("client hosts", hosts, Unit::Count),
        ("price of a client host", prices.client_hour, Unit::Money),
    ];
    let per_hour = servers * prices.node_hour + hosts * prices.client_hour;
    let expression = "servers * price of a server + client hosts * price of a client host";
    let per_hour = book.put("money per hour", expression, &given, Unit::Money, per_hour);
    let load = time.total_s.map(|seconds| {
        let given = [("money per hour", per_hour, Unit::Money), ("duration", seconds, Unit::Seconds)];
        book.put(
            "money for the load",
            "money per hour * duration / 1 h",
            &given,
            Unit::Money,
            per_hour * seconds / 3_600.0,
        )
    });
    let per_million_transactions = input.workload.tps.filter(|tps| *tps > 0.0).map(|tps| {
        let given = [("money per hour", per_hour, Unit::Money), ("transactions", tps, Unit::PerSecond)];
        let money = per_hour / (tps * 3_600.0) * 1e6;
        book.put(
            "money per million transactions",
            "money per hour / (transactions * 1 h) * 1,000,000",
            &given,
            Unit::Money,
            money,
        )
    });
    Some(Money { per_hour, load, per_million_transactions })
}
