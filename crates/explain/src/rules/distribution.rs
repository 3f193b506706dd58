//! DIST: differences between similar nodes, paths between them, scaling.

mod hot;
mod joined;

use crate::case::Case;
use crate::rule::Need::{Any, Looked, Matrix, Peers, Sweep};
use crate::rule::{Answer, Claim, Rule};
use crate::series::Series;
use crate::statistics::{self, contrasts};
use crate::units;
use crate::waits::Who;
use record::finding::Finding;
use record::finding::{Level, Severity, Window};
use record::matrix::DISTANCE;
use record::number;
use record::sweep::Outcome;
use record::watched::{Fact, SETTING_SOURCE};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "DIST-01",
        title: "a node is ahead of or behind its peers",
        needs: &[Any(&[Peers("node", 3), Peers("server", 3)])],
        limits: "20 % from the median of the others for 60 s (R0: 975 against 630 GB)",
        judge: behind,
        links: &[],
    },
    Rule {
        id: "DIST-02",
        title: "access to rows of other nodes is slow",
        needs: &[Matrix],
        limits: "the median throughput for rows of other nodes is below 20 % of that for own rows (R0: 700 against 10,000)",
        judge: remote,
        links: &["docs/matrix.md"],
    },
    Rule {
        id: "DIST-03",
        title: "one node is slow for every peer",
        needs: &[Matrix],
        limits: "a row, column or node of the matrix is an outlier (R0: node 7)",
        judge: sick_node,
        links: &["docs/matrix.md"],
    },
    Rule {
        id: "DIST-04",
        title: "more sessions no longer help",
        needs: &[Sweep],
        limits: "throughput per session below half of that of few sessions, or a knee within the measured range (R0: 80 workers)",
        judge: knee,
        links: &["docs/sweeps.md"],
    },
    Rule {
        id: "DIST-05",
        title: "a mix of reads and updates is much slower than each alone",
        needs: &[Sweep],
        limits: "20 % below the throughput expected from pure reads and pure updates (R0: 50/50)",
        judge: mix,
        links: &["docs/sweeps.md"],
    },
    Rule {
        id: "DIST-06",
        title: "sessions compete for a row or page",
        needs: &[Looked("wait")],
        limits: "20 % of the active sessions in Lock:tuple, Lock:transactionid or LWLock:BufferContent (ours)",
        judge: hot::hot,
        links: &["https://www.postgresql.org/docs/current/monitoring-stats.html#WAIT-EVENT-TABLE"],
    },
    Rule {
        id: "DIST-07",
        title: "similar hosts or nodes differ",
        needs: &[Any(&[Peers("host", 2), Peers("server", 2)])],
        limits: "any difference in kernel, mounts, disks, cards, settings (R0: one mount option)",
        judge: differ,
        links: &[],
    },
];

/// From the median of the others.
const NODE_DIFFERENCE: f64 = 0.2;
/// For so long.
const NODE_US: u64 = 60_000_000;
/// Work is compared over intervals of this length: a server publishes its counters in bursts.
const NODE_LOOK_US: u64 = 10_000_000;
/// Rates a second below which nodes are idle.
const NODE_RATE_MIN: f64 = 10.0;
/// Throughput per session, of that with the fewest.
const EFFICIENCY: f64 = 0.5;
/// Differences listed.
const DIFFERENCES_MAX: usize = 20;
/// If more hosts than this differ from all others in one fact, it always differs: serial numbers, sizes of memory to the byte.
const NAMES_ONLY: [&str; 6] = ["build", "tainted", "members", "file", "sectors", "online"];

/// The work of each node, as rates: transactions of the client by node, else rows written, else commits.
fn work(case: &Case) -> (Vec<(&str, &Series)>, &'static str) {
    let of = |source: &str, field: &str| -> Vec<(&str, &Series)> {
        let things: Vec<_> = case.things(source).collect();
        things.into_iter().filter_map(|thing| Some((thing.place, thing.lines.series(field)?))).collect()
    };
    for (source, field, words) in [
        ("node", "transactions", "transactions"),
        ("server", "tup_inserted", "rows inserted"),
        ("server", "xact_commit", "commits"),
    ] {
        let found = of(source, field);
        let busy = found.iter().filter(|(_, series)| series.rate() >= NODE_RATE_MIN).count();
        // A cluster of a primary and standbys has one node that writes: there is no peer.
        if busy >= 3 {
            return (found, words);
        }
    }
    (vec![], "")
}

fn behind(case: &Case) -> Answer {
    let (nodes, words) = work(case);
    let standby =
        |node: &str| case.one("server", node).and_then(|server| server.flag("in_recovery")) == Some(true);
    let nodes: Vec<(&str, &Series)> = nodes.into_iter().filter(|(node, _)| !standby(node)).collect();
    if nodes.len() < 3 {
        return Answer::CannotTell(format!(
            "fewer than three nodes did {NODE_RATE_MIN} transactions or rows a second"
        ));
    }
    let mut claims = vec![];
    let rates: Vec<f64> = nodes.iter().map(|(_, series)| series.rate()).collect();
    for contrast in contrasts(&rates) {
        let node = nodes[contrast.index].0;
        let series = &nodes[contrast.index].1.coarse(NODE_LOOK_US);
        let far = |value: f64| (value - contrast.others).abs() > contrast.others * NODE_DIFFERENCE;
        let windows = series.stretches(NODE_US, |point| far(point.rate()));
        if !far(contrast.value) || contrast.deviations.abs() < 3.0 || windows.is_empty() {
            continue;
        }
        let change = statistics::change(&series.rates()).filter(|change| {
            change.p < 0.05 && (change.after / change.before.max(1.0) - 1.0).abs() > NODE_DIFFERENCE
        });
        let at = change.and_then(|change| series.points().get(change.at)).map(|point| point.from_us);
        let is_behind = contrast.value < contrast.others;
        let mut claim = Claim::new(
            if is_behind { Severity::Medium } else { Severity::Note },
            Level::PeerContrast,
            format!(
                "{node} is {} its peers: {} {words} a second, the others {}",
                if is_behind { "behind" } else { "ahead of" },
                units::short(contrast.value),
                units::short(contrast.others)
            ),
        )
        .on_node(node)
        .during(windows)
        .number("per_s", contrast.value)
        .number("peers_per_s", contrast.others)
        .with(change.zip(at), |claim, (change, at)| {
            claim.number("p", change.p).because(format!(
                "it changed at second {}: from {} to {} a second",
                at / 1_000_000,
                units::short(change.before),
                units::short(change.after)
            ))
        })
        .remedy(
            "find what differs on that node: its disks (IO-01, IO-02), its options (DIST-07), its waits",
            &[],
        );
        for (name, mine, theirs) in resources(case, node) {
            claim = claim.because(format!(
                "its {name} is {} against {}",
                units::short(mine),
                units::short(theirs)
            ));
        }
        claims.push(claim);
    }
    Answer::of(claims, || format!("{words} of {} nodes", nodes.len()))
}

/// Resources of the node's machine that stand out among all machines.
fn resources(case: &Case, node: &str) -> Vec<(String, f64, f64)> {
    let Some(host) = case.host_of(node) else { return vec![] };
    let mut found = vec![];
    let mut compare = |name: String, values: Vec<(&str, f64)>| {
        let stands = contrasts(&values.iter().map(|(_, value)| *value).collect::<Vec<_>>()).into_iter().find(
            |contrast| {
                values[contrast.index].0 == host
                    && (contrast.ratio - 1.0).abs() > NODE_DIFFERENCE
                    && contrast.deviations.abs() >= 3.0
            },
        );
        found.extend(stands.map(|contrast| (name, contrast.value, contrast.others)));
    };
    for field in ["cpu_user_pct", "cpu_system_pct", "cpu_iowait_pct", "cpu_steal_pct", "psi_io_full_pct"] {
        compare(
            field.to_string(),
            case.things("host").filter_map(|host| Some((host.place, host.lines.mean(field)?))).collect(),
        );
    }
    for field in ["write_await_ms", "read_await_ms"] {
        let mut by_host: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for disk in case.things("disk") {
            by_host.entry(disk.place).or_default().extend(disk.lines.mean(field));
        }
        let values = by_host
            .into_iter()
            .filter_map(|(host, values)| Some((host, values.into_iter().reduce(f64::max)?)))
            .collect();
        compare(format!("slowest {field}"), values);
    }
    found
}

fn remote(case: &Case) -> Answer {
    let Some(matrix) = &case.matrix else { return Answer::CannotTell("no node matrix".to_string()) };
    let far = matrix
        .findings()
        .into_iter()
        .filter(|finding| finding.rule == DISTANCE && finding.severity > Severity::Low);
    let claims = far.map(|finding| {
        Claim::from(finding).during([case.span]).because(
            "medians over all pairs of the matrix, measured one after another with the same sessions",
        )
    });
    Answer::of(claims.collect(), || "own rows against rows of other nodes".to_string())
}

fn sick_node(case: &Case) -> Answer {
    let Some(matrix) = &case.matrix else { return Answer::CannotTell("no node matrix".to_string()) };
    if matrix.connect.len() < record::matrix::NODES_MIN {
        return Answer::CannotTell("with two nodes it is unknown which of them is slow".to_string());
    }
    let is_slow = |finding: &Finding| finding.numbers.get("ratio").is_some_and(|ratio| *ratio < 1.0);
    let slow = matrix.findings().into_iter().filter(|finding| finding.rule != DISTANCE && is_slow(finding));
    let claims = slow.map(|finding| {
        let node = finding.node.clone().unwrap_or_default();
        let its = differences(case).into_iter().filter(|difference| {
            difference.place == node || Some(difference.place.as_str()) == case.host_of(&node)
        });
        let deviations = finding.numbers.get("deviations").copied().unwrap_or_default();
        let claim = Claim::from(finding)
            .during([case.span])
            .because(format!(
                "{} robust deviations from the other nodes, after rows and columns were separated",
                number::short(deviations.abs())
            ))
            .not("the client and the workload: they are the same for every pair");
        its.fold(claim, |claim, difference| claim.because(difference.described()))
    });
    Answer::of(claims.collect(), || "rows, columns and paths of the matrix".to_string())
}

fn knee(case: &Case) -> Answer {
    let Some(sweep) = &case.sweep else { return Answer::CannotTell("no sweep".to_string()) };
    let mut claims = vec![];
    let mut looked = 0;
    for curve in &sweep.curves {
        let points: Vec<(f64, f64)> =
            curve.points.iter().filter_map(|point| Some((point.sessions as f64, point.tps?))).collect();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
        if points.len() < 3 {
            continue;
        }
        looked += 1;
        let efficiency = (last.1 / last.0) / (first.1 / first.0);
        if efficiency >= EFFICIENCY {
            continue;
        }
        let fit = curve.fit.filter(|_| curve.cannot_tell.is_none());
        let wait = case
            .waiting_nodes()
            .filter_map(|(node, waits)| waits.top(Who::Client, 1).into_iter().next().map(|top| (node, top)))
            .next();
        claims.push(
            Claim::new(
                Severity::Low,
                if fit.is_some() { Level::DiscriminatingCounter } else { Level::Symptom },
                format!(
                    "{}: each session reaches {} of the throughput of a single one at {} sessions{}",
                    curve.name,
                    units::percent(efficiency),
                    units::short(last.0),
                    curve.knee_sessions.map_or(String::new(), |knee| format!("; beyond {} sessions, doubling gains less than 10 %", units::short(knee)))
                ),
            )
            .during([case.span])
            .number("efficiency", efficiency)
            .with(curve.knee_sessions, |claim, knee| claim.number("knee_sessions", knee))
            .with(fit, |claim, fit| {
                claim
                    .number("sigma", fit.sigma)
                    .number("kappa", fit.kappa)
                    .because(format!(
                        "fit of the universal scalability law: {} of the work is serial (sigma), {} is the cost of each pair of sessions (kappa)",
                        units::percent(fit.sigma), units::short(fit.kappa),
                    ))
            })
            .with(curve.cannot_tell.clone(), |claim, why| claim.lacking(why))
            .with(wait, |claim, (node, (event, share))| claim.because(format!("{node}: {} of the active sessions are in {event}", units::percent(share))))
            .remedy("use the number of sessions at the knee, behind a pooler; the dominant wait event shows the bottleneck", &[]),
        );
    }
    if looked == 0 {
        return Answer::CannotTell("no curve has three numbers of sessions".to_string());
    }
    Answer::of(claims, || format!("{} of throughput over sessions", units::counted(looked, "curve")))
}

fn mix(case: &Case) -> Answer {
    let Some(sweep) = &case.sweep else { return Answer::CannotTell("no sweep".to_string()) };
    if sweep.mixes.is_empty() {
        return Answer::CannotTell(
            "the sweep lacks mixes of reads and updates together with pure reads and pure updates"
                .to_string(),
        );
    }
    let claims = sweep
        .mixes
        .iter()
        .filter(|mix| mix.outcome == Outcome::Collapse)
        .map(|mix| {
            Claim::new(
                Severity::Medium,
                Level::PeerContrast,
                format!(
                    "{} % reads with {} sessions reach {} of the throughput expected from pure reads and updates",
                    mix.read_percent,
                    mix.sessions,
                    units::percent(mix.factor)
                ),
            )
            .during([case.span])
            .number("factor", mix.factor)
            .with(mix.read_slowdown, |claim, times| {
                claim
                    .number("read_slowdown", times)
                    .because(format!("a read takes {} times as long as in the pure read mix", units::short(times)))
            })
            .with(mix.update_slowdown, |claim, times| {
                claim.number("update_slowdown", times).because(format!(
                    "an update takes {} times as long as in the pure update mix",
                    units::short(times)
                ))
            })
            .because("the expected throughput is the harmonic mean, because sessions share time and not transactions")
            .lacking("the waits of the mix compared with those of the pure mixes, by statement")
            .remedy("look at the waits of the transaction that slowed down more", &[])
        })
        .collect();
    Answer::of(claims, || format!("{} of reads and updates", units::counted(sweep.mixes.len(), "mix")))
}

/// A fact in which one machine or node differs from the others.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Difference {
    place: String,
    what: String,
    here: String,
    others: String,
}

impl Difference {
    fn described(&self) -> String {
        format!("{}: {} is {} here, {} elsewhere", self.place, self.what, self.here, self.others)
    }
}

/// Everything in which a place differs from the majority of the others.
fn differences(case: &Case) -> Vec<Difference> {
    let mut by_name: BTreeMap<(&str, &str, bool), BTreeMap<&str, &str>> = BTreeMap::new();
    let place = |fact: &'_ Fact| fact.node.is_empty();
    for fact in case.all_facts() {
        let is_named =
            NAMES_ONLY.iter().any(|name| fact.name == *name || fact.name.ends_with(&format!(" {name}")));
        let is_own =
            matches!(fact.topic.as_str(), "fanotify" | "clock" | "database" | "index" | SETTING_SOURCE)
                || fact.name.contains("directory")
                || matches!(
                    fact.name.as_str(),
                    "port"
                        | "cluster_name"
                        | "primary_conninfo"
                        | "primary_slot_name"
                        | "synchronous_standby_names"
                        | "listen_addresses"
                        | "unix_socket_directories"
                        | "hba_file"
                        | "ident_file"
                        | "config_file"
                        | "external_pid_file"
                );
        if is_named || is_own {
            continue;
        }
        let of_machine = place(fact);
        let name = if of_machine { &fact.host } else { &fact.node };
        by_name.entry((&fact.topic, &fact.name, of_machine)).or_default().insert(name, &fact.value);
    }
    let mut found = vec![];
    for ((topic, name, _), values) in by_name {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for value in values.values() {
            *counts.entry(value).or_default() += 1;
        }
        let Some((usual, most)) =
            counts.iter().max_by_key(|(_, count)| **count).map(|(value, count)| (*value, *count))
        else {
            continue;
        };
        // Where all values differ (a size in bytes), no node is an outlier.
        if counts.len() < 2
            || (counts.len() == values.len() && values.len() > 2)
            || (values.len() > 2 && most * 2 <= values.len())
        {
            continue;
        }
        for (place, value) in values {
            if value != usual {
                found.push(Difference {
                    place: place.to_string(),
                    what: format!("{topic} {name}"),
                    here: value.to_string(),
                    others: usual.to_string(),
                });
            }
        }
    }
    found
}

fn differ(case: &Case) -> Answer {
    let found = differences(case);
    let mut by_place: BTreeMap<&str, Vec<&Difference>> = BTreeMap::new();
    for difference in &found {
        by_place.entry(&difference.place).or_default().push(difference);
    }
    let slow: BTreeSet<String> = match behind(case) {
        Answer::Found(claims) => claims.iter().filter_map(|claim| claim.finding().node.clone()).collect(),
        _ => BTreeSet::new(),
    };
    let mut claims = vec![];
    for (place, differences) in by_place {
        let is_slow = slow.iter().any(|node| node == place || case.host_of(node) == Some(place));
        let is_node = case.nodes().contains(&place);
        let names: Vec<&str> =
            differences.iter().take(3).map(|difference| difference.what.as_str()).collect();
        let mut claim = Claim::new(
            if is_slow { Severity::Medium } else { Severity::Note },
            if is_slow { Level::CoOccurrence } else { Level::DiscriminatingCounter },
            format!(
                "{place} differs from its peers in {}: {}{}",
                units::counted(differences.len(), "thing"),
                names.join(", "),
                if differences.len() > names.len() { ", ..." } else { "" }
            ),
        )
        .during([Window::new(case.span.from_us, case.span.to_us)])
        .number("differences", differences.len() as f64);
        claim = if is_node { claim.on_node(place) } else { claim.on_host(place) };
        for difference in differences.iter().take(DIFFERENCES_MAX) {
            claim = claim.because(difference.described());
        }
        if is_slow {
            claim = claim.because("and this node is slower than its peers (DIST-01)");
        }
        claims.push(claim.remedy(
            "remove the differences one at a time and measure after each: this shows which one matters",
            &[],
        ));
    }
    Answer::of(claims, || format!("{} facts of all hosts and nodes", case.all_facts().len()))
}
