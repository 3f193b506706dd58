//! Verifying a cluster of several nodes.
//!
//! **Sharded**: every row is on one node. Each node's leaves are read there, all nodes at once, and the client makes each row once. What the
//! nodes' catalogs say of where leaves are is compared ([`super::spread`]), and so are their ledgers.
//!
//! **Multimaster, and standbys**: every row is on every node ([`super::mirrored`]).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use engines::cluster::Cluster;
use engines::profile::Layout;

use super::catalog::{Catalog, definition_of, sql};
use super::error::VerifyError;
use super::foreign;
use super::grid::Sum;
use super::mirrored;
use super::problem::Problem;
use super::report::{NodeReport, VerifyReport};
use super::spread::{self, Spread};
use super::workers::VerifyProgress;
use super::{LIMITS, Proved, Site, VerifyOptions, prove, run};
use crate::ledger::{self, Dataset, Writer, qualified};
use crate::plan::TABLE;
use crate::writers;

/// What a verification of nodes that hold the same shall do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MirrorOptions {
    /// How long a node may take to apply what others had written.
    pub lag_limit: Duration,
    /// Verify the standbys of a primary, too.
    pub standbys: bool,
}

/// Verifies the YCSB dataset of a cluster: every row, and what its nodes say of each other. `observer` is called about once a second by
/// the calling thread. A cluster of one node is verified as that node.
///
/// # Errors
/// When there is no verdict; whatever is wrong with the content or the nodes is part of the report instead.
pub fn run_cluster(
    cluster: &Cluster,
    options: &VerifyOptions<'_>,
    mirror: &MirrorOptions,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let one = cluster.as_one_database();
    let cluster = one.as_ref().unwrap_or(cluster);
    let data: Vec<usize> = cluster.data_nodes().collect();
    if mirror.standbys
        && (cluster.engine.layout != Layout::OneServer
            || data.len() != 1
            || data.len() == cluster.nodes.len())
    {
        return Err(VerifyError::NoStandbys);
    }
    match (cluster.engine.layout, data.as_slice()) {
        (Layout::OneServer, &[primary]) if mirror.standbys => {
            let standbys: Vec<usize> = (0..cluster.nodes.len()).filter(|&node| node != primary).collect();
            mirrored::standbys(cluster, primary, &standbys, options, mirror, observer)
        }
        (Layout::OneServer | Layout::ForeignPartitions | Layout::Copies(_), &[node]) => {
            run(&cluster.nodes[node].spec, options, observer)
        }
        (Layout::ForeignPartitions, _) => sharded(cluster, &data, options, observer),
        (Layout::Copies(_), _) => mirrored::peers(cluster, &data, options, mirror, observer),
        (Layout::OneServer | Layout::Spread(_), _) => Err(VerifyError::Engine { engine: cluster.engine }),
    }
}

fn sharded(
    cluster: &Cluster,
    data: &[usize],
    options: &VerifyOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let start = Instant::now();
    let mut notes = Vec::new();
    let mut sites = connect(cluster, data, &mut notes)?;
    let Agreed { dataset, ids, mut problems } = agree(&mut sites)?;
    let writers = merged_writers(&mut sites, &ids, &dataset)?;
    let spread = spread_of(cluster, data, &mut sites, &dataset)?;
    let Spread { leaves, names, problems: misplaced, loose_from } = spread;
    problems.extend(misplaced);
    let mut catalog = Catalog::new(leaves, names);
    let is_unlogged = is_unlogged(&mut sites, &ids)?;
    for (number, site) in sites.iter_mut().enumerate() {
        catalog.probe(&mut site.control, number, &dataset, is_unlogged)?;
        let (node, parent) =
            (site.name.as_deref().unwrap_or_default(), qualified(&dataset.schema_name, TABLE));
        let astray = problems.iter().filter_map(|problem| match problem {
            Problem::Dangling { node: at, leaf, .. } | Problem::Misdirected { node: at, leaf, .. } => {
                (at == node).then_some(leaf.as_str())
            }
            _ => None,
        });
        let astray: Vec<&str> = astray.collect();
        let unreached = foreign::check(&site.spec, node, &parent, &definition_of(false), &astray)?;
        problems.extend(unreached);
    }
    problems.append(&mut catalog.problems);
    let found = prove(&mut sites, &dataset, &writers, &catalog, options, observer, LIMITS, true, notes)?;
    problems.extend(check_ledgers(&mut sites, &ids, &dataset, &catalog, &found.ledger_keys.leaves)?);
    problems.sort();
    let nodes = node_reports(&sites, &catalog, &found, &problems);
    let loose: Vec<String> = (loose_from..catalog.names.len())
        .filter(|&table| found.found[table] > 0)
        .map(|table| {
            format!(
                "{} is not a partition of any table, but has {} of the dataset",
                catalog.names[table],
                rows_of(found.found[table])
            )
        })
        .collect();
    let mut report = VerifyReport { problems, nodes, ..found.into_report(start) };
    report.notes.extend(loose);
    Ok(report)
}

fn rows_of(rows: u64) -> String {
    if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") }
}

/// Opens a snapshot on each node that holds rows.
fn connect(cluster: &Cluster, data: &[usize], notes: &mut Vec<String>) -> Result<Vec<Site>, VerifyError> {
    data.iter()
        .map(|&node| {
            let node = &cluster.nodes[node];
            let mut site = Site::connect(&node.spec, Some(&node.name))?;
            site.open_snapshot(notes)?;
            Ok(site)
        })
        .collect()
}

/// The dataset that the ledgers speak of.
pub(super) struct Agreed {
    /// As most of them have it.
    pub(super) dataset: Dataset,
    /// Its number in each node's ledger; `None` where the ledger has another one or none.
    pub(super) ids: Vec<Option<i32>>,
    pub(super) problems: Vec<Problem>,
}

/// Asks every node's ledger what the dataset is.
pub(super) fn agree(sites: &mut [Site]) -> Result<Agreed, VerifyError> {
    let mut datasets = Vec::with_capacity(sites.len());
    let mut identities = Vec::with_capacity(sites.len());
    for site in sites.iter_mut() {
        let dataset = ledger::find_dataset(&mut *site.control, ledger::YCSB)?;
        if let Some(dataset) = &dataset
            && dataset.format != data::FORMAT_VERSION
        {
            let (found, known) = (dataset.format, data::FORMAT_VERSION);
            return Err(VerifyError::Format { dataset: dataset.name.clone(), found, known });
        }
        identities.push(match &dataset {
            Some(dataset) => identity(dataset, ledger::layout(&mut *site.control, dataset.id)?.token),
            None => "nothing".to_owned(),
        });
        datasets.push(dataset);
    }
    let mut votes: HashMap<&str, usize> = HashMap::new();
    for (dataset, identity) in datasets.iter().zip(&identities) {
        *votes.entry(identity).or_default() += usize::from(dataset.is_some());
    }
    // Of two with as many nodes, the first node's.
    let chosen = (0..datasets.len())
        .filter(|&site| datasets[site].is_some())
        .max_by_key(|&site| (votes[identities[site].as_str()], std::cmp::Reverse(site)))
        .ok_or(VerifyError::NoDataset);
    let chosen = match chosen {
        Ok(chosen) => chosen,
        Err(_) => return Err(super::what_else(&mut sites[0].control, ledger::YCSB)),
    };
    let mut agreed = Agreed {
        dataset: datasets[chosen].clone().expect("only nodes with a dataset are chosen from"),
        ids: Vec::with_capacity(sites.len()),
        problems: Vec::new(),
    };
    for (site, (dataset, says)) in sites.iter().zip(datasets.into_iter().zip(&identities)) {
        let node = site.name.clone().unwrap_or_default();
        if *says != identities[chosen] {
            let (says, others) = (says.clone(), identities[chosen].clone());
            agreed.problems.push(Problem::OtherDataset { node, says, others });
            agreed.ids.push(None);
            continue;
        }
        agreed.ids.push(dataset.as_ref().map(|dataset| dataset.id));
        if let Some(dataset) = dataset.filter(|dataset| !dataset.loaded) {
            return Err(VerifyError::IncompleteOn { dataset: dataset.name, node });
        }
    }
    let mut extent = ledger::Extent::EMPTY;
    for (site, id) in sites.iter_mut().zip(&agreed.ids) {
        if let Some(id) = *id {
            let dataset = Dataset { id, ..agreed.dataset.clone() };
            let names = crate::plan::table_names(dataset.partitions);
            ledger::check_in_place(&mut *site.control, &dataset, &names)?;
            extent.add(&mut *site.control, &dataset)?;
        }
    }
    extent.check(&agreed.dataset)?;
    Ok(agreed)
}

/// Whether the dataset was made in unlogged tables, by the first ledger that knows it.
fn is_unlogged(sites: &mut [Site], ids: &[Option<i32>]) -> Result<bool, VerifyError> {
    let known = sites.iter_mut().zip(ids).find_map(|(site, id)| Some((site, (*id)?)));
    Ok(known
        .map(|(site, id)| ledger::layout(&mut *site.control, id))
        .transpose()?
        .is_some_and(|layout| layout.unlogged))
}

/// The runs that any of the ledgers knows.
pub(super) fn merged_writers(
    sites: &mut [Site],
    ids: &[Option<i32>],
    dataset: &Dataset,
) -> Result<Vec<Writer>, VerifyError> {
    let mut ledgers = Vec::new();
    for (site, id) in sites.iter_mut().zip(ids) {
        if let Some(id) = id {
            ledgers.push(ledger::writers(&mut *site.control, &Dataset { id: *id, ..dataset.clone() })?);
        }
    }
    Ok(writers::merge(ledgers)?)
}

/// What two ledgers must have in common to speak of one dataset.
fn identity(dataset: &Dataset, token: i64) -> String {
    let Dataset { schema_name, format, spec, rows, partitions, .. } = dataset;
    format!(
        "{rows} rows in {partitions} partitions in schema {schema_name}, seed {}, {} keys, compressible {}, format {format}, \
         load {token:x}",
        spec.seed, spec.key_order, spec.compressible
    )
}

/// Reads all catalogs and makes one answer of them.
fn spread_of(
    cluster: &Cluster,
    data: &[usize],
    sites: &mut [Site],
    dataset: &Dataset,
) -> Result<Spread, VerifyError> {
    let mut views = Vec::with_capacity(sites.len());
    for (number, site) in sites.iter_mut().enumerate() {
        views.push(spread::view(&mut site.control, cluster, data, number, dataset)?);
    }
    let mut there = Vec::with_capacity(sites.len());
    for (number, site) in sites.iter_mut().enumerate() {
        there.push(spread::targets_there(&mut site.control, &views, number)?);
    }
    let names: Vec<&str> = data.iter().map(|&node| cluster.nodes[node].name.as_str()).collect();
    Ok(spread::resolve(&names, dataset, &views, &there))
}

/// Holds the ledgers against what was loaded: each node's, where it speaks of the leaves that the node has now, and all of them together.
fn check_ledgers(
    sites: &mut [Site],
    ids: &[Option<i32>],
    dataset: &Dataset,
    catalog: &Catalog,
    keys: &[Sum],
) -> Result<Vec<Problem>, VerifyError> {
    let mut problems = Vec::new();
    let mut has_moved = false;
    let (mut in_ledgers, mut of_nodes) = (Sum::default(), Sum::default());
    for (number, (site, id)) in sites.iter_mut().zip(ids).enumerate() {
        let Some(id) = id else { return Ok(problems) };
        let totals = ledger::chunk_totals(&mut *site.control, *id)?;
        let in_ledger = Sum { rows: totals.rows, hash: totals.checksum };
        let mut loaded = Sum::default();
        for (sum, _) in keys.iter().zip(&catalog.leaves).filter(|(_, leaf)| leaf.site == number) {
            loaded.add(sum.rows, sum.hash);
        }
        in_ledgers.add(in_ledger.rows, in_ledger.hash);
        of_nodes.add(loaded.rows, loaded.hash);
        problems.extend(compare_ledger(site.name.clone(), in_ledger, loaded));
        let here = |leaf: &i16| {
            usize::try_from(*leaf)
                .is_ok_and(|leaf| catalog.leaves.get(leaf).is_some_and(|leaf| leaf.site == number))
        };
        has_moved |= !leaves_in_ledger(site, *id)?.is_some_and(|leaves| leaves.iter().all(here));
    }
    debug_assert_eq!(of_nodes.rows, dataset.rows);
    // Leaves that were moved after the load left their chunks in the ledger of the node they came from: then only the whole tells.
    Ok(match compare_ledger(None, in_ledgers, of_nodes) {
        None => Vec::new(),
        Some(_) if !problems.is_empty() && !has_moved => problems,
        Some(together) => vec![together],
    })
}

/// The leaves that the chunks of a node's ledger speak of; `None`: of all leaves, as rows came in through this node.
fn leaves_in_ledger(site: &mut Site, id: i32) -> Result<Option<Vec<i16>>, VerifyError> {
    let row = site.control.query_one(
        "select bool_or(leaves is null), array(select distinct unnest(leaves) from pgfathom.chunk where dataset = $1)
         from pgfathom.chunk where dataset = $1",
        &[&id],
    );
    let row = sql("reading pgfathom.chunk", row)?;
    Ok((row.get::<_, Option<bool>>(0) != Some(true)).then(|| row.get(1)))
}

pub(super) fn compare_ledger(node: Option<String>, ledger: Sum, loaded: Sum) -> Option<Problem> {
    if ledger.rows != loaded.rows {
        Some(Problem::LedgerRows { node, ledger: ledger.rows, rows: loaded.rows })
    } else if ledger.hash != loaded.hash {
        Some(Problem::LedgerChecksum { node })
    } else {
        None
    }
}

fn node_reports(sites: &[Site], catalog: &Catalog, found: &Proved, problems: &[Problem]) -> Vec<NodeReport> {
    let leaves = found.ledger_keys.leaves.len();
    let of_site = |(number, site): (usize, &Site)| {
        let name = site.name.clone().unwrap_or_default();
        let tables = || (0..catalog.leaves.len()).filter(|&table| catalog.leaves[table].site == number);
        NodeReport {
            method: found.method,
            leaves: tables().filter(|&table| table < leaves).count() as u64,
            rows_expected: tables().map(|table| found.expected[table]).sum(),
            rows_found: tables().map(|table| found.found[table]).sum(),
            tables_differing: tables().filter(|&table| found.differs.get(table) == Some(&true)).count()
                as u64,
            problems: problems.iter().filter(|problem| problem.node() == Some(&name)).count() as u64,
            name,
        }
    };
    sites.iter().enumerate().map(of_site).collect()
}

#[cfg(test)]
pub(super) mod tests;
