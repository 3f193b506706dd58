//! `wide`: what a commit over several nodes costs, in round trips between them: predicted from the protocol, and measured.
//!
//! If all nodes are on one host, a round trip costs little and a flush much, so times do not predict those of a cluster over several hosts. So
//! the commits are measured twice, without and with a known delay on every connection between the nodes: the added time of a commit, divided by the
//! added time of one query, is its number of round trips, independent of the disks. If connections cannot be delayed, only times are compared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engines::profile::NodeLinks;

use super::tables::{SCHEMA, Shape, Tables};
use super::{LiveError, Options};
use crate::client::{Client, ClientError, number};
use crate::fault::{Links, Site};

const SHAPE: Shape = Shape { name: "wide", columns: "v bigint not null", key: Some("shard") };
/// The delay of every connection between two nodes, in each direction: far more than a flush takes.
const DELAY: Duration = Duration::from_millis(10);
/// The least commits of each kind and phase, however short the time: a median needs some.
const COMMITS_MIN: usize = 7;
/// Queries that measure a round trip.
const PINGS: usize = 15;

/// What one kind of commit costs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cost {
    /// Which nodes it writes on.
    pub nodes: Vec<String>,
    /// How it is made, in words.
    pub protocol: &'static str,
    /// Round trips between nodes that its protocol needs.
    pub predicted: f64,
    /// Measured round trips; `None` if the connections cannot be delayed.
    pub measured: Option<f64>,
    /// Commits that were timed, without and with the delay.
    pub commits: [u64; 2],
    /// The median without and with the delay.
    pub commit_us_p50: [u64; 2],
    /// What the model predicts without and with the delay: a commit without waiting, plus the delay and one more flush for each round trip.
    pub predicted_us: [Option<u64>; 2],
}

/// What came out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// One for each kind of commit, the narrowest first.
    pub costs: Vec<Cost>,
    /// A round trip between nodes, without and with the delay; 0: not measured.
    pub round_trip_us: [u64; 2],
    /// Queries that were sent to measure it, and those of them that showed the delay.
    pub control: [u64; 2],
    /// Why the connections could not be delayed.
    pub undelayed: Option<String>,
}

/// A kind of commit.
struct Kind {
    shards: Vec<usize>,
    /// Waits for no standby: the base that the others are compared with.
    is_base: bool,
}

/// Runs it, in one session: it is a measurement, not a load.
///
/// # Errors
/// When the tables cannot be made, or a commit fails.
pub fn run(
    site: &Site,
    options: &Options,
    waits_for_standbys: bool,
    stop: &AtomicBool,
) -> Result<Report, LiveError> {
    let tables = Tables::make(site, &[SHAPE])?;
    let mut client = Client::connect(&options.dressed(site.entry()), options.patience)?;
    for shard in tables.numbers() {
        client.execute(&format!("insert into {SCHEMA}.wide values ({shard}, 0)"))?;
    }
    let own = own_shard(site, &tables);
    let others: Vec<usize> = tables.numbers().filter(|shard| tables.is_spread && *shard != own).collect();
    let kinds = kinds(own, &others);
    let links = site.links();
    let half = if links.is_ok() { options.duration / 2 } else { options.duration };
    let plain = time(&mut client, &kinds, half, stop)?;
    let mut report =
        Report { undelayed: links.as_ref().err().map(|why| (*why).to_owned()), ..Report::default() };
    let mut delayed = vec![Vec::new(); kinds.len()];
    match &links {
        Ok(links) => {
            let probe = links
                .through(&site.nodes)
                .ok_or_else(|| LiveError::Unfit("there is no connection between nodes".to_owned()))?;
            let mut other = Client::connect(&probe, options.patience)?;
            delayed = under_delay(&mut report, links, &mut other, || time(&mut client, &kinds, half, stop))?;
        }
        Err(_) => {
            let other = site.nodes.iter().enumerate().find(|(node, _)| *node != site.primary());
            if let Some((_, node)) = other {
                let mut other = Client::connect(&node.client_spec(), options.patience)?;
                report.round_trip_us[0] = median(&ping(&mut other)?);
            }
        }
    }
    let is_parallel = site.engine.links == NodeLinks::ForeignServers && commits_at_once(&mut client)?;
    let mut base = [0, 0];
    // Every time includes the connection from the client to the entry node; the rest of the base is a flush.
    let flush = median(&plain[0]).saturating_sub(median(&ping(&mut client)?));
    for ((kind, plain), delayed) in std::iter::zip(&kinds, &plain).zip(&delayed) {
        let medians = [median(plain), median(delayed)];
        if kind.is_base {
            base = medians;
            continue;
        }
        let away = kind.shards.iter().filter(|shard| tables.is_spread && **shard != own).count();
        let cost = site.engine.commit.protocol.cost(away, waits_for_standbys, is_parallel);
        let unit = report.round_trip_us[1].saturating_sub(report.round_trip_us[0]);
        let longer = |now: u64, before: u64| now as f64 - before as f64;
        report.costs.push(Cost {
            nodes: kind.shards.iter().map(|shard| node_name(site, &tables, *shard)).collect(),
            protocol: cost.words,
            predicted: cost.round_trips,
            // The base shows what the delay changes for a commit that waits for no standby: nothing, unless the host has changed in between.
            measured: (unit > 0 && !delayed.is_empty())
                .then(|| (longer(medians[1], medians[0]) - longer(base[1], base[0])) / unit as f64),
            commits: [plain.len() as u64, delayed.len() as u64],
            commit_us_p50: medians,
            predicted_us: [0, 1].map(|phase| {
                let trip = report.round_trip_us[phase];
                let is_known = trip > 0 || cost.round_trips == 0.0;
                (is_known && base[phase] > 0)
                    .then(|| base[phase] + (cost.round_trips * (trip + flush) as f64) as u64)
            }),
        });
    }
    tables.remove(site);
    Ok(report)
}

/// The base, the own shard, another one, and the own with more and more others.
fn kinds(own: usize, others: &[usize]) -> Vec<Kind> {
    let mut kinds = vec![Kind { shards: vec![own], is_base: true }];
    kinds.push(Kind { shards: vec![own], is_base: false });
    kinds.extend(others.first().map(|other| Kind { shards: vec![*other], is_base: false }));
    kinds.extend((1..=others.len()).map(|count| Kind {
        shards: std::iter::once(own).chain(others[..count].iter().copied()).collect(),
        is_base: false,
    }));
    kinds
}

/// Times the commits again while the connections between the nodes are delayed, and measures the round trip without and with the delay.
fn under_delay(
    report: &mut Report,
    links: &Links,
    other: &mut Client,
    time: impl FnOnce() -> Result<Vec<Vec<u64>>, LiveError>,
) -> Result<Vec<Vec<u64>>, LiveError> {
    report.round_trip_us[0] = median(&ping(other)?);
    links.delay(DELAY);
    // The delay is removed in any case.
    let timed = ping(other).and_then(|pings| Ok((pings, time()?)));
    links.delay(Duration::ZERO);
    let (pings, timed) = timed?;
    report.round_trip_us[1] = median(&pings);
    let shows = |us: &&u64| **us >= DELAY.as_micros() as u64;
    report.control = [pings.len() as u64, pings.iter().filter(shows).count() as u64];
    Ok(timed)
}

/// The shard on the node that the client is connected to.
fn own_shard(site: &Site, tables: &Tables) -> usize {
    let entry = &site.nodes[site.primary()].name;
    tables.shards.iter().position(|shard| shard == entry).map_or(1, |place| place + 1)
}

fn node_name(site: &Site, tables: &Tables, shard: usize) -> String {
    match tables.is_spread {
        true => tables.shards[shard - 1].clone(),
        false => site.nodes[site.primary()].name.clone(),
    }
}

/// Microseconds of each COMMIT, by kind. The kinds take turns, so that other activity of the host affects all of them.
fn time(
    client: &mut Client,
    kinds: &[Kind],
    duration: Duration,
    stop: &AtomicBool,
) -> Result<Vec<Vec<u64>>, LiveError> {
    let mut times = vec![Vec::new(); kinds.len()];
    let begin = Instant::now();
    let mut round = 0;
    while round < COMMITS_MIN || (begin.elapsed() < duration && !stop.load(Ordering::Relaxed)) {
        round += 1;
        for (kind, times) in std::iter::zip(kinds, &mut times) {
            let mut sql = "begin".to_owned();
            if kind.is_base {
                sql.push_str("; set local synchronous_commit = local");
            }
            for shard in &kind.shards {
                sql.push_str(&format!("; update {SCHEMA}.wide set v = v + 1 where shard = {shard}"));
            }
            client.execute(&sql)?;
            let sent = Instant::now();
            client.execute("commit")?;
            times.push(sent.elapsed().as_micros() as u64);
        }
    }
    Ok(times)
}

/// Microseconds of small queries.
fn ping(client: &mut Client) -> Result<Vec<u64>, LiveError> {
    let mut times = Vec::new();
    for _ in 0..PINGS {
        let sent = Instant::now();
        client.execute("select 1")?;
        times.push(sent.elapsed().as_micros() as u64);
    }
    Ok(times)
}

fn median(times: &[u64]) -> u64 {
    record::statistics::median(times.iter().map(|time| *time as f64)).unwrap_or(0.0) as u64
}

/// Whether every foreign server has `parallel_commit`.
fn commits_at_once(client: &mut Client) -> Result<bool, ClientError> {
    let without = client.execute(
        "select count(*) from pg_catalog.pg_foreign_server where not exists (select from \
         pg_catalog.pg_options_to_table(srvoptions) where option_name = 'parallel_commit' and option_value::bool)",
    )?;
    Ok(without.rows().first().and_then(|row| number(row.first()?)) == Some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(&[5, 1, 9]), 5);
        assert_eq!(median(&[]), 0);
    }
}
