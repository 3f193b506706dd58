//! `wide`: what a commit over several nodes costs, in round trips between them: predicted from the protocol, and measured.
//!
//! If all nodes are on one host, a round trip costs little and a flush much, so times do not predict those of a cluster over several hosts. So
//! the commits are measured twice, without and with a known delay on every connection between the nodes: the added time of a commit, divided by the
//! added time of one query, is its number of round trips, independent of the disks. If connections cannot be delayed, the distance that the nodes have anyway
//! takes the place of the delay, where it is as long; else only times are compared.

mod rows;
mod trips;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use connect::ConnSpec;
use engines::profile::NodeLinks;
use lab::local::Topology;
use rows::Row;
use trips::Measured;

use super::tables::{SCHEMA, Shape, Tables};
use super::{LiveError, Options, again_if_cut};
use crate::client::{Client, ClientError, number, text};
use crate::fault::{Links, Site};

const SHAPE: Shape = Shape { name: "wide", columns: "v bigint not null", key: Some("shard") };
/// The delay of every connection between two nodes, in each direction: far more than a flush takes.
const DELAY: Duration = Duration::from_millis(10);
/// The least commits of each kind and phase, however short the time: a median needs some.
const COMMITS_MIN: usize = 7;
/// Writes WAL, and no table.
const LOG_MESSAGE: &str = "select pg_catalog.pg_logical_emit_message(true, 'pgfathom', '')";
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
    /// How long one of its round trips takes, without and with the delay; `None`: it waits for no other node, or that is unknown.
    pub round_trip_us: [Option<u64>; 2],
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
    /// How to have nodes that are far enough from each other without that, if there is a way here.
    pub remedy: String,
}

impl Report {
    fn begun(site: &Site, client: &mut Client, trips: &Measured) -> Result<Report, ClientError> {
        Ok(Report {
            undelayed: site.links().err().map(str::to_owned),
            remedy: apart(site, client)?,
            round_trip_us: [trips.first().unwrap_or(0), 0],
            ..Report::default()
        })
    }
}

/// A kind of commit.
struct Kind {
    rows: Vec<Row>,
    /// Waits for no standby: the base that the others are compared with.
    is_base: bool,
}

/// Runs it, in one session: it is a measurement, not a load. One that a node cuts off by going away is begun again.
///
/// # Errors
/// When the tables cannot be made, or a commit fails.
pub fn run(
    site: &Site,
    options: &Options,
    waits_for_standbys: bool,
    stop: &AtomicBool,
) -> Result<Report, LiveError> {
    let mut attempt = 0;
    again_if_cut(site, || {
        attempt += 1;
        if attempt == 2 {
            site.note("a node went away during the measurement, which was begun again".to_owned());
        }
        measure(site, options, waits_for_standbys, stop)
    })
}

/// One measurement, from making the tables to removing them.
fn measure(
    site: &Site,
    options: &Options,
    waits_for_standbys: bool,
    stop: &AtomicBool,
) -> Result<Report, LiveError> {
    let tables = Tables::make(site, &[SHAPE])?;
    let mut client = Client::connect(&options.dressed(site.entry()), options.patience)?;
    let rows = rows::one_each(site, &tables)?;
    fill(&mut client, &rows)?;
    let kinds = kinds(site, &rows)?;
    let links = site.links();
    let half = if links.is_ok() { options.duration / 2 } else { options.duration };
    let trips = Measured::of(site, &mut client, options.patience)?;
    let has_messages = can_log_messages(&mut client)?;
    let time = |client: &mut Client| time(client, &kinds, (half, has_messages), stop);
    let plain = time(&mut client)?;
    let mut report = Report::begun(site, &mut client, &trips)?;
    let mut delayed = vec![Vec::new(); kinds.len()];
    if let Ok(links) = &links {
        let mut other = Client::connect(&probe(site, links)?, options.patience)?;
        delayed = under_delay(&mut report, links, &mut other, || time(&mut client))?;
    }
    let is_parallel = site.engine.links == NodeLinks::ForeignServers && commits_at_once(&mut client)?;
    let mut base = [0, 0];
    let pings = ping(&mut client)?;
    let flush = flush_us(site, &plain[0], &pings);
    let unit = report.round_trip_us[1].saturating_sub(report.round_trip_us[0]);
    for ((kind, plain), delayed) in std::iter::zip(&kinds, &plain).zip(&delayed) {
        let medians = [median(plain), median(delayed)];
        if kind.is_base {
            // Without a commit of one node alone, only the connection from the client to the entry node remains.
            base = if site.engine.commit.protocol.agrees_on_all() { [median(&pings); 2] } else { medians };
            continue;
        }
        let nodes = |rows: &[Row]| rows.iter().map(|row| site.nodes[row.node].name.clone()).collect();
        let away: Vec<Row> = kind.rows.iter().copied().filter(|row| row.node != site.primary()).collect();
        let protocol = site.engine.commit.protocol;
        let wrote = (away.len() < kind.rows.len(), away.len());
        let cost = protocol.cost(wrote, waits_for_standbys, is_parallel);
        let names: Vec<String> = nodes(&away);
        let trip = trips.of_commit(protocol, &names, is_parallel).filter(|_| cost.round_trips > 0.0);
        let round_trip_us = [trip, trip.filter(|_| !delayed.is_empty()).map(|trip| trip + unit)];
        let longer = |now: u64, before: u64| now as f64 - before as f64;
        report.costs.push(Cost {
            nodes: nodes(&kind.rows),
            protocol: cost.words,
            predicted: cost.round_trips,
            // The base shows what the delay changes for a commit that waits for no standby: nothing, unless the host has changed in between.
            measured: match links {
                Ok(_) => (unit > 0 && !delayed.is_empty())
                    .then(|| (longer(medians[1], medians[0]) - longer(base[1], base[0])) / unit as f64),
                Err(_) => by_distance(trip.or(trips.first()), longer(medians[0], base[0]), flush)
                    .filter(|_| base[0] > 0),
            },
            commits: [plain.len() as u64, delayed.len() as u64],
            commit_us_p50: medians,
            round_trip_us,
            predicted_us: [0, 1].map(|phase: usize| {
                let trip = if cost.round_trips == 0.0 { Some(0) } else { round_trip_us[phase] };
                trip.filter(|_| base[phase] > 0).map(|trip| cost.predicted_us(base[phase], trip, flush))
            }),
        });
    }
    note_absent(site);
    tables.remove(site);
    Ok(report)
}

/// How many round trips a commit takes that is `longer_us` longer than one without any, if each of them is far longer than a flush.
fn by_distance(trip_us: Option<u64>, longer_us: f64, flush_us: u64) -> Option<f64> {
    let trip = trip_us.filter(|trip| u128::from(*trip) >= DELAY.as_micros())?;
    Some(longer_us / (trip + flush_us) as f64)
}

/// The command that makes such a cluster with its nodes apart; empty where `up` makes none of this kind.
fn apart(site: &Site, client: &mut Client) -> Result<String, ClientError> {
    let delay = DELAY.as_millis();
    // An engine without this catalog has none of these extensions.
    let found = client.request("select extname::text from pg_catalog.pg_extension")?;
    let extensions: Vec<String> = found.rows().iter().filter_map(|row| row.first().and_then(text)).collect();
    Ok(Topology::kind_of(site.engine.name(), &extensions).map_or_else(String::new, |kind| {
        format!("make a cluster whose nodes are apart: pgfathom up {kind} --delay '*-*={delay}ms'")
    }))
}

/// Notes the nodes that are away: there is no observer beside the one session.
fn note_absent(site: &Site) {
    for (name, why) in site.absent_nodes() {
        site.note(format!(
            "{name} did not answer at the end, so its part of the commits may be missing: {why}"
        ));
    }
}

/// Makes the rows that the commits change.
fn fill(client: &mut Client, rows: &[Row]) -> Result<(), LiveError> {
    for Row { shard, .. } in rows {
        client.execute(&format!("insert into {SCHEMA}.wide values ({shard}, 0)"))?;
    }
    Ok(())
}

/// A flush: what a commit that waits for no other node takes longer than a query, by the shortest of both. Where every commit waits, it is not known.
fn flush_us(site: &Site, commits: &[u64], pings: &[u64]) -> u64 {
    let least = |times: &[u64]| times.iter().min().copied().unwrap_or(0);
    match site.engine.commit.protocol.agrees_on_all() {
        true => 0,
        false => least(commits).saturating_sub(least(pings)),
    }
}

/// The way to another node, through the proxy between it and the entry node.
fn probe(site: &Site, links: &Links) -> Result<ConnSpec, LiveError> {
    (0..site.nodes.len())
        .find_map(|node| links.between(&site.nodes, site.primary(), node))
        .ok_or_else(|| LiveError::Unfit("there is no connection between nodes".to_owned()))
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

/// The kinds of commit: on the node that the client is connected to, on another one, on two nodes, on three, and so on.
fn kinds(site: &Site, rows: &[Row]) -> Result<Vec<Kind>, LiveError> {
    let first = *rows.first().ok_or_else(|| LiveError::Unfit("no node holds rows".to_owned()))?;
    let mut kinds =
        vec![Kind { rows: vec![first], is_base: true }, Kind { rows: vec![first], is_base: false }];
    // A coordinator may have no rows of its own.
    if first.node == site.primary() {
        kinds.extend(rows.get(1).map(|other| Kind { rows: vec![*other], is_base: false }));
    }
    kinds.extend((2..=rows.len()).map(|count| Kind { rows: rows[..count].to_vec(), is_base: false }));
    Ok(kinds)
}

/// Microseconds of each COMMIT, by kind. The kinds take turns, so that other activity of the host affects all of them.
fn time(
    client: &mut Client,
    kinds: &[Kind],
    (duration, has_messages): (Duration, bool),
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
            // Written on this node only, whatever the engine replicates at a commit.
            if kind.is_base && has_messages {
                sql.push_str(&format!("; {LOG_MESSAGE}"));
            }
            for Row { shard, .. } in kind.rows.iter().filter(|_| !(kind.is_base && has_messages)) {
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

/// Whether a message can be written into the WAL: then a commit that no other node takes part in is known on every engine.
fn can_log_messages(client: &mut Client) -> Result<bool, ClientError> {
    let can = client.request(&format!("begin; {LOG_MESSAGE}; rollback")).map_err(ClientError::from);
    if !matches!(can, Ok(ref reply) if reply.sqlstate().is_none()) {
        client.execute("rollback")?;
        return Ok(false);
    }
    Ok(true)
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

    #[test]
    fn only_a_distance_far_longer_than_a_flush_counts_round_trips() {
        assert_eq!(by_distance(Some(19_500), 40_000.0, 500), Some(2.0));
        assert_eq!(by_distance(Some(9_999), 40_000.0, 500), None);
        assert_eq!(by_distance(None, 40_000.0, 500), None);
    }
}
