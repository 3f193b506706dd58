//! NET: queues, bandwidth, round trips, loss.

use super::paste::word;
use crate::case::Case;
use crate::decompose;
use crate::rule::Need::{Any, Driven, Facts, Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::statistics;
use crate::units;
use record::finding::{Level, Severity};
use record::watched::Fact;
use std::collections::BTreeMap;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "NET-01",
        title: "a network card has too few queues",
        needs: &[Facts("nic"), Any(&[Field("core", "softirq_pct"), Field("host", "softnet_squeezed")])],
        limits: "fewer receive queues than processors (4 are enough), and one processor above 70 % softirq or 1 squeeze a second (R2, R3)",
        judge: queues,
        links: &["https://docs.kernel.org/networking/scaling.html"],
    },
    Rule {
        id: "NET-02",
        title: "a link is slower than its peers or than 1 Gbit/s",
        needs: &[Facts("nic")],
        limits: "below 1 Gbit/s (R2's acceptance) or 0.9 of the fastest (gpcheckperf), as far as the cards report their speed",
        judge: bandwidth,
        links: &[],
    },
    Rule {
        id: "NET-03",
        title: "round trips take most of the time",
        needs: &[Driven, Field("clock", "error_us"), Looked("wait")],
        limits: "round trips of a transaction are half of its response time, and one takes 0.2 ms (R3, R4)",
        judge: round_trips,
        links: &["docs/explain.md"],
    },
    Rule {
        id: "NET-04",
        title: "the network loses packets",
        needs: &[Field("host", "tcp_retransmits"), Field("host", "tcp_segments_out")],
        limits: "0.1 % of the TCP segments are retransmitted (ours), on a host whose cards send packets: the counters include connections within the host",
        judge: loss,
        links: &[],
    },
    Rule {
        id: "NET-05",
        title: "network processing takes CPU from queries",
        needs: &[Field("host", "cpu_softirq_pct")],
        limits: "10 % of all processors in softirq for 30 s (R2: multiqueue costs CPU)",
        judge: softirq,
        links: &["https://docs.kernel.org/networking/scaling.html"],
    },
];

/// More queues than this are rarely needed.
const QUEUES_ENOUGH: f64 = 4.0;
/// A processor that does little else.
const SOFTIRQ_PCT: f64 = 70.0;
/// Times a second that a softirq ran out of budget.
const SQUEEZED_PER_S: f64 = 1.0;
/// R2's acceptance test.
const LINK_MBIT_MIN: f64 = 1_000.0;
/// gpcheckperf's rule: "no good" below this share of the best.
const LINK_SHARE_MIN: f64 = 0.9;
/// Of the response time.
const ROUND_TRIP_SHARE: f64 = 0.5;
/// A shorter round trip is within a host, not over a network.
const ROUND_TRIP_US_MIN: f64 = 200.0;
/// Segments sent again.
const RETRANSMIT_SHARE: f64 = 0.001;
/// The interface of connections within a host.
const LOOPBACK: &str = "lo";
/// Segments below which a share is meaningless.
const SEGMENTS_MIN: f64 = 1_000.0;
/// Of all processors.
const SOFTIRQ_ALL_PCT: f64 = 10.0;
/// For so long.
const SOFTIRQ_US: u64 = 30_000_000;

fn number(fact: &Fact) -> Option<f64> {
    fact.value.split_whitespace().next()?.parse().ok()
}

/// Interfaces with a number of theirs: `eth0 rx queues` -> (`h1`, `eth0`) -> 1.
fn cards<'a>(case: &'a Case, what: &str) -> BTreeMap<(&'a str, &'a str), f64> {
    case.facts("nic")
        .filter_map(|fact| {
            Some(((fact.host.as_str(), fact.name.strip_suffix(what)?.trim_end()), number(fact)?))
        })
        .collect()
}

fn queues(case: &Case) -> Answer {
    let mut claims = vec![];
    for ((host, interface), queues) in cards(case, "rx queues") {
        let lines = case.one("host", host);
        let cores = lines.and_then(|lines| lines.max("cores")).unwrap_or(1.0);
        let wanted = cores.min(QUEUES_ENOUGH);
        let traffic = case
            .at("net", host)
            .find(|net| net.name == interface)
            .and_then(|net| net.lines.rate("rx_packets"));
        // A card without traffic is ignored.
        if queues >= wanted || traffic.is_some_and(|packets| packets < 100.0) {
            continue;
        }
        let hot = case.at("core", host).filter_map(|core| {
            let series = core.lines.series("softirq_pct")?;
            let windows = series.stretches(5_000_000, |point| point.mean() >= SOFTIRQ_PCT);
            (!windows.is_empty()).then_some((core.name, series.max(), windows))
        });
        let hot = hot.max_by(|left, right| left.1.total_cmp(&right.1));
        let squeezed = lines.and_then(|lines| lines.rate("softnet_squeezed")).unwrap_or(0.0);
        if hot.is_none() && squeezed < SQUEEZED_PER_S {
            continue;
        }
        let driver = case
            .facts("nic")
            .find(|fact| fact.host == host && fact.name == format!("{interface} driver"))
            .map(|fact| fact.value.clone());
        let steered = case
            .facts("nic")
            .any(|fact| fact.host == host && fact.name == format!("{interface} packet steering"));
        let detail = match &hot {
            Some((cpu, pct, _)) => format!("CPU {cpu} spends {} % on them", units::short(*pct)),
            None => format!("its softirq exhausts its budget {} times a second", units::short(squeezed)),
        };
        let mut claim = Claim::new(
            Severity::Medium,
            if hot.is_some() { Level::DiscriminatingCounter } else { Level::CoOccurrence },
            format!(
                "{host}: all packets of {interface} go through {} for {} processors: {detail}",
                units::counted(queues as usize, "queue"),
                units::short(cores)
            ),
        )
        .on_host(host)
        .number("queues", queues)
        .number("cores", cores)
        .number("squeezed_per_s", squeezed)
        .because(
            "/sys/class/net/IF/queues has one entry per queue; one queue is one interrupt on one processor",
        )
        .with(driver, |claim, driver| claim.because(format!("driver {driver}")))
        .remedy(
            "give the card more queues (in the hypervisor first), or steer packets in software",
            &[
                &format!("$ ethtool -l {0}; ethtool -L {0} combined {wanted:.0}", word(interface)),
                "# libvirt: <driver name='vhost' queues='4'/>",
                &format!("$ echo ff > {}", word(&format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus"))),
            ],
        );
        claim = match hot {
            Some((_, _, windows)) => claim.during(windows),
            None => claim.during([case.span]),
        };
        claims.push(if steered { claim.because("packets are already steered in software") } else { claim });
    }
    Answer::of(claims, || "queues of every card, softirqs of every processor".to_string())
}

fn bandwidth(case: &Case) -> Answer {
    let speeds: Vec<_> = cards(case, "speed").into_iter().filter(|(_, speed)| *speed > 0.0).collect();
    if speeds.is_empty() {
        return Answer::CannotTell("no card reports its speed (virtual cards do not)".to_string());
    }
    let best = speeds.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
    let claims = speeds
        .iter()
        .filter(|(_, speed)| *speed < LINK_MBIT_MIN || *speed < best * LINK_SHARE_MIN)
        .filter(|((host, interface), _)| {
            // Cards for administration are slow everywhere, and nothing goes over them.
            case.at("net", host)
                .any(|net| net.name == *interface && net.lines.rate("tx_bytes").unwrap_or(0.0) > 1e5)
        })
        .map(|((host, interface), speed)| {
            let contrast = *speed < best * LINK_SHARE_MIN;
            Claim::new(
                Severity::Medium,
                if contrast { Level::PeerContrast } else { Level::DiscriminatingCounter },
                format!(
                    "{host}: {interface} runs at {} Mbit/s, the fastest card here at {} Mbit/s",
                    units::short(*speed),
                    units::short(best)
                ),
            )
            .on_host(host)
            .during([case.span])
            .number("speed_mbit_s", *speed)
            .number("best_mbit_s", best)
            .because("the card reports the speed that it negotiated with the switch")
            .lacking("the real throughput between two hosts (iperf3 between every pair)")
            .remedy(
                "check cable, port and negotiation",
                &[&format!("$ ethtool {} | grep -E 'Speed|Duplex'", word(interface)), "$ iperf3 -c PEER -J"],
            )
        })
        .collect();
    Answer::of(claims, || {
        format!("{} cards that report their speed; their real throughput was not measured", speeds.len())
    })
}

fn round_trips(case: &Case) -> Answer {
    let mut claims = vec![];
    let trip_us = decompose::round_trip_us(case).unwrap_or(0.0);
    if trip_us < ROUND_TRIP_US_MIN {
        return Answer::Clean(format!("a round trip takes {}: too short for a network", units::us(trip_us)));
    }
    for time in decompose::all(case) {
        let Some(part) = time.parts.iter().find(|part| part.name == decompose::ROUND_TRIPS) else { continue };
        if part.share < ROUND_TRIP_SHARE {
            continue;
        }
        let assumed = time.notes.iter().any(|note| note == decompose::ROUND_TRIPS_ASSUMED);
        let window =
            case.driven().into_iter().find(|(step, _)| step.key == time.step).map(|(_, window)| window);
        claims.push(
            Claim::new(
                Severity::Medium,
                if assumed { Level::CoOccurrence } else { Level::DiscriminatingCounter },
                format!(
                    "{}: {} of the response time of {} are round trips between client and server",
                    time.step, units::percent(part.share), units::us(time.response_us_mean),
                ),
            )
            .during(window)
            .number("share", part.share)
            .number("round_trips_us", part.us)
            .of_client_time(Some(part.share.min(1.0)))
            .because("the round trip measured by the monitoring connection, times the statements of a transaction")
            .not("the server: its sessions are idle during that time")
            .remedy(
                "send fewer statements per transaction (batches, pipelining, functions in the server), or move the client closer",
                &["$ pgfathom run --protocol prepared ... -c MORE"],
            ),
        );
    }
    let steps = case.driven().len();
    Answer::of(claims, || format!("round trips of {}", units::counted(steps, "driven step")))
}

/// Whether the segments of a host stayed within it: its counters of TCP include the loopback interface, and its cards sent next to nothing.
fn is_within_host(case: &Case, host: &str) -> bool {
    let cards = case.at("net", host).filter(|net| net.name != LOOPBACK);
    let sent: Vec<f64> = cards.filter_map(|net| net.lines.sum("tx_packets")).collect();
    let loopback = case.at("net", host).any(|net| net.name == LOOPBACK);
    (loopback || !sent.is_empty()) && sent.iter().sum::<f64>() < SEGMENTS_MIN
}

fn loss(case: &Case) -> Answer {
    let mut claims = vec![];
    for host in case.things("host") {
        let (Some(again), Some(sent)) =
            (host.lines.series("tcp_retransmits"), host.lines.sum("tcp_segments_out"))
        else {
            continue;
        };
        let share = again.sum() / sent.max(1.0);
        if sent < SEGMENTS_MIN || share < RETRANSMIT_SHARE {
            continue;
        }
        if is_within_host(case, host.place) {
            continue;
        }
        let drops: f64 = case
            .at("net", host.place)
            .map(|net| {
                net.lines.sum("rx_drops").unwrap_or(0.0)
                    + net.lines.sum("tx_drops").unwrap_or(0.0)
                    + net.lines.sum("errors").unwrap_or(0.0)
            })
            .sum();
        claims.push(
            Claim::new(
                if share >= RETRANSMIT_SHARE * 10.0 { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!("{}: {} of the TCP segments were retransmitted", host.place, units::percent(share)),
            )
            .on_host(host.place)
            .during(again.stretches(0, |point| point.sum > 0.0))
            .number("retransmit_share", share)
            .number("retransmits", again.sum())
            .number("interface_drops_and_errors", drops)
            .because(if drops > 0.0 {
                "its own cards also dropped packets"
            } else {
                "its own cards dropped nothing: the loss is on the path or at the peer"
            })
            .remedy(
                "check cables, MTU and ring sizes along the path",
                &["$ ethtool -S IF | grep -iE 'drop|err'; ethtool -g IF", "$ ip -s link"],
            ),
        );
    }
    Answer::of(claims, || "retransmitted TCP segments on every host".to_string())
}

fn softirq(case: &Case) -> Answer {
    let mut claims = vec![];
    for host in case.things("host") {
        let Some(series) = host.lines.series("cpu_softirq_pct") else { continue };
        let windows = series.stretches(SOFTIRQ_US, |point| point.mean() > SOFTIRQ_ALL_PCT);
        if windows.is_empty() {
            continue;
        }
        let change = statistics::change(&series.values())
            .filter(|change| change.p < 0.01 && change.after > change.before * 1.5);
        claims.push(
            Claim::new(
                Severity::Low,
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} % of all processors is spent on the network",
                    host.place,
                    units::short(series.within(&windows).mean())
                ),
            )
            .on_host(host.place)
            .during(windows)
            .number("cpu_softirq_pct", series.mean())
            .because("most softirq time is for receiving packets, the rest for timers")
            .with(change, |claim, change| {
                claim.because(format!(
                    "it rose from {} % to {} % during the run",
                    units::short(change.before),
                    units::short(change.after)
                ))
            })
            .remedy(
                "use fewer queues, or pin them away from the server's processors; use larger interrupt intervals",
                &["$ ethtool -L IF combined 2; ethtool -C IF rx-usecs 50"],
            ),
        );
    }
    Answer::of(claims, || "softirqs of every host".to_string())
}
