//! Verifying one server, and a cluster of several nodes.
//!
//! **Sharded**: every row is on one node. Each node's leaves are read there, all nodes at once, and the client makes each row once. The places
//! of leaves in the nodes' catalogs are compared ([`super::spread`]), and so are their ledgers.
//!
//! **Multimaster, and standbys**: every row is on every node ([`super::mirrored`]).

use std::collections::HashMap;

use super::catalog::{self, Catalog, Wanted};
use super::chunks;
use super::error::VerifyError;
use super::parts;
use super::problem::Problem;
use super::prove::{Proved, prove};
use super::report::{NodeReport, VerifyReport};
use super::site::Site;
use super::workers::VerifyProgress;
use super::{Loaded, Task, what_else};
use crate::dataset::table_names;
use crate::difference::keep_named;
use crate::error::LoadError;
use crate::ledger::{self, Dataset, Writer};
use crate::{schema, writers};

/// Verifies a server that has everything.
pub(super) fn server(
    task: &Task<'_>,
    node: usize,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    Ok(alone(task, node, observer)?.0)
}

/// Verifies a database whose rows an engine spreads over nodes: through the engine, and then part by part. `whole`: the same for the cluster.
pub(super) fn spread(
    task: &Task<'_>,
    whole: &Task<'_>,
    node: usize,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let (mut report, loaded) = alone(task, node, observer)?;
    let compared = parts::check(whole, &loaded, &mut report.differences, observer)?;
    report.add_compared(compared);
    keep_named(&mut report.differences);
    Ok(VerifyReport { duration: task.start.elapsed(), ..report })
}

fn alone(
    task: &Task<'_>,
    node: usize,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<(VerifyReport, Loaded), VerifyError> {
    let mut site = Site::connect(&task.cluster.nodes[node].spec, None)?;
    let mut notes = Vec::new();
    site.open_snapshot(&mut notes)?;
    let dataset = complete(task, &mut site)?;
    let writers = ledger::writers(&mut *site.control, &dataset)?;
    let loaded = loaded(task, &mut site, dataset, &writers)?;
    let nodes = ledger::layout(&mut *site.control, loaded.dataset.id)?.nodes;
    if !nodes.is_empty() {
        notes.push(format!(
            "the ledger has the dataset on the nodes {}: only this server was verified",
            nodes.join(", ")
        ));
    }
    chunks::check(&mut site.control, &loaded.dataset, &*loaded.content)?;
    let mut catalog = catalog_of(task, &mut site, &loaded)?;
    let mut problems = std::mem::take(&mut catalog.problems);
    let sites = std::slice::from_mut(&mut site);
    let found = prove(task, sites, &loaded, &catalog, true, observer)?;
    if let Some(keys) = &found.ledger_keys {
        let places_bytes = loaded.content.places_bytes();
        problems.extend(keys.odd_chunks(&mut site.control, &loaded.dataset, places_bytes)?);
    }
    problems.sort();
    let mut report = VerifyReport { problems, ..found.into_report(task) };
    report.notes.splice(0..0, notes);
    Ok((report, loaded))
}

/// Verifies nodes that share the rows.
pub(super) fn sharded(
    task: &Task<'_>,
    data: &[usize],
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let mut notes = Vec::new();
    let mut sites = Vec::with_capacity(data.len());
    for &node in data {
        let node = &task.cluster.nodes[node];
        let mut site = Site::connect(&node.spec, Some(&node.name))?;
        site.open_snapshot(&mut notes)?;
        sites.push(site);
    }
    let Agreed { loaded, ids, mut problems } = agree(task, &mut sites)?;
    let wanted = wanted(&mut sites, &ids, &loaded)?;
    let mut catalog = catalog::of_nodes(task.cluster, data, &mut sites, wanted)?;
    may_hash(task, &mut catalog);
    problems.append(&mut catalog.problems);
    let found = prove(task, &mut sites, &loaded, &catalog, true, observer)?;
    if let Some(keys) = &found.ledger_keys {
        problems.extend(keys.check_nodes(&mut sites, &ids, &catalog)?);
    }
    problems.sort();
    notes.extend((catalog.loose_from..catalog.leaves.len()).filter(|leaf| found.found[*leaf] > 0).map(
        |leaf| {
            let (name, rows) = (&catalog.names[leaf], rows_of(found.found[leaf]));
            format!("{name} is not a partition of any table, but has {rows} of the dataset")
        },
    ));
    notes.extend(checked_by_constraints(&loaded));
    let nodes = node_reports(&sites, &catalog, &found, &problems);
    let mut report = VerifyReport { problems, nodes, ..found.into_report(task) };
    report.notes.splice(0..0, notes);
    Ok(report)
}

/// Who checks that the rows of a table are in the leaves of their keys, where the client does not compute that again.
fn checked_by_constraints(loaded: &Loaded) -> Option<String> {
    let partitions = loaded.dataset.partitions;
    let is_unknown = |number: &usize| {
        let is_divided = loaded.content.tables()[*number].is_divided(partitions);
        is_divided && loaded.content.partition_of(*number, 0, partitions).is_none()
    };
    let unknown = loaded.judged.iter().copied().filter(is_unknown);
    let names: Vec<&str> = unknown.map(|number| loaded.content.tables()[number].name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: every row was compared, and every leaf has the bounds of the load; that each row is in the leaf of its key is a check of PostgreSQL's \
             partition constraints, which verify did not repeat",
            names.join(", ")
        )
    })
}

fn rows_of(rows: u64) -> String {
    if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") }
}

/// A test may want to see what is done without the hashes of servers.
fn may_hash(task: &Task<'_>, catalog: &mut Catalog) {
    catalog.record_hash &= task.options.may_hash;
    catalog.key_hash &= task.options.may_hash;
}

fn wanted<'a>(
    sites: &mut [Site],
    ids: &[Option<i32>],
    loaded: &'a Loaded,
) -> Result<Wanted<'a>, VerifyError> {
    let known = sites.iter_mut().zip(ids).find_map(|(site, id)| Some((site, (*id)?)));
    let is_unlogged = known.map(|(site, id)| catalog::is_unlogged(site, id)).transpose()?.unwrap_or(false);
    let Loaded { dataset, content, judged, .. } = loaded;
    Ok(Wanted { content: &**content, dataset, judged, is_unlogged })
}

/// The catalog of a server that has everything.
pub(super) fn catalog_of(task: &Task<'_>, site: &mut Site, loaded: &Loaded) -> Result<Catalog, VerifyError> {
    let is_unlogged = catalog::is_unlogged(site, loaded.dataset.id)?;
    let Loaded { dataset, content, judged, .. } = loaded;
    let wanted = Wanted { content: &**content, dataset, judged, is_unlogged };
    let mut catalog = catalog::of_server(site, wanted)?;
    may_hash(task, &mut catalog);
    Ok(catalog)
}

/// The dataset in the ledger of a server, if it is loaded completely.
pub(super) fn complete(task: &Task<'_>, site: &mut Site) -> Result<Dataset, VerifyError> {
    let name = task.subject.name;
    let Some(dataset) = ledger::find_dataset(&mut *site.control, name)? else {
        return Err(what_else(&mut site.control, name));
    };
    check_format(&dataset)?;
    if !dataset.loaded {
        return Err(VerifyError::Incomplete { dataset: dataset.name });
    }
    Ok(dataset)
}

fn check_format(dataset: &Dataset) -> Result<(), VerifyError> {
    let (found, known) = (dataset.format, data::FORMAT_VERSION);
    match found == known {
        true => Ok(()),
        false => Err(VerifyError::Format { dataset: dataset.name.clone(), found, known }),
    }
}

/// The dataset of a server's ledger, as it must be after these runs.
pub(super) fn loaded(
    task: &Task<'_>,
    site: &mut Site,
    dataset: Dataset,
    writers: &[Writer],
) -> Result<Loaded, VerifyError> {
    let found = (task.subject.find)(&mut site.control)?;
    let content = found.ok_or_else(|| what_else(&mut site.control, task.subject.name))?;
    if dataset.rows != content.rows() || dataset.spec != *content.spec() {
        let problem = format!("it has {} rows, but its parameters give {}", dataset.rows, content.rows());
        return Err(LoadError::Contradiction { dataset: dataset.name, problem }.into());
    }
    let names = table_names(content.tables(), dataset.partitions);
    ledger::check_in_place(&mut *site.control, &dataset, &names)?;
    let content = content.after_writers(writers).unwrap_or(content);
    let after_runs = content.after_runs().filter(|_| !writers.is_empty());
    let judged = after_runs.map_or_else(|| (0..content.tables().len()).collect(), |after| after.unchanged);
    let unfinished = unfinished(writers);
    Ok(Loaded { dataset, content, runs: writers.len(), unfinished, judged })
}

/// What cannot be seen of runs that have no end in the ledger: how far their sessions came is unknown, so no write of theirs can be missed.
pub(super) fn unfinished(writers: &[Writer]) -> Option<String> {
    /// Runs that are named; there may be thousands.
    const NAMED: usize = 5;
    let open: Vec<String> =
        writers.iter().filter(|writer| !writer.finished).map(|writer| writer.run_no.to_string()).collect();
    let more = open.len().saturating_sub(NAMED);
    let (which, theirs) = match open.as_slice() {
        [] => return None,
        [one] => (format!("run {one} has no end in the ledger (it was killed or is active)"), "its"),
        several => {
            let named = several[..several.len() - more].join(", ");
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            (
                format!("runs {named}{rest} have no end in the ledger (they were killed or are active)"),
                "their",
            )
        }
    };
    Some(format!("{which}, so {theirs} lost updates and inserts cannot be detected"))
}

/// What the ledgers have in common.
pub(super) struct Agreed {
    /// The dataset as most of them have it.
    pub(super) loaded: Loaded,
    /// Its number in each node's ledger; `None` where the ledger has another one or none.
    pub(super) ids: Vec<Option<i32>>,
    pub(super) problems: Vec<Problem>,
}

/// Reads from every node's ledger what the dataset is.
pub(super) fn agree(task: &Task<'_>, sites: &mut [Site]) -> Result<Agreed, VerifyError> {
    let name = task.subject.name;
    let mut datasets = Vec::with_capacity(sites.len());
    let mut identities = Vec::with_capacity(sites.len());
    for site in sites.iter_mut() {
        let (dataset, identity) = entered(site, name).map_err(|error| site.named(error))?;
        identities.push(identity);
        datasets.push(dataset);
    }
    let mut votes: HashMap<&str, usize> = HashMap::new();
    for (dataset, identity) in datasets.iter().zip(&identities) {
        *votes.entry(identity).or_default() += usize::from(dataset.is_some());
    }
    // Of two with as many nodes, the first node's.
    let chosen = (0..datasets.len())
        .filter(|&site| datasets[site].is_some())
        .max_by_key(|&site| (votes[identities[site].as_str()], std::cmp::Reverse(site)));
    let Some((chosen, dataset)) = chosen.and_then(|site| Some((site, datasets[site].clone()?))) else {
        return Err(what_else(&mut sites[0].control, name));
    };
    let (mut ids, mut problems) = (Vec::with_capacity(sites.len()), Vec::new());
    for (site, (dataset, own)) in sites.iter().zip(datasets.into_iter().zip(&identities)) {
        let node = site.name.clone().unwrap_or_default();
        if *own != identities[chosen] {
            let (own, others) = (own.clone(), identities[chosen].clone());
            problems.push(Problem::OtherDataset { node, own, others });
            ids.push(None);
            continue;
        }
        ids.push(dataset.as_ref().map(|dataset| dataset.id));
        if let Some(dataset) = dataset.filter(|dataset| !dataset.loaded) {
            return Err(VerifyError::IncompleteOn { dataset: dataset.name, node });
        }
    }
    let writers = merged_writers(sites, &ids, &dataset)?;
    let loaded = loaded(task, &mut sites[chosen], dataset, &writers)?;
    let mut extent = ledger::Extent::EMPTY;
    for (site, id) in sites.iter_mut().zip(&ids) {
        if let Some(id) = *id {
            let dataset = Dataset { id, ..loaded.dataset.clone() };
            let names = table_names(loaded.content.tables(), dataset.partitions);
            ledger::check_in_place(&mut *site.control, &dataset, &names)?;
            extent.add(&mut *site.control, &dataset)?;
        }
    }
    extent.check(&loaded.dataset, schema::chunk_count(&loaded.dataset, &*loaded.content))?;
    Ok(Agreed { loaded, ids, problems })
}

/// The dataset in the ledger of a node, and what identifies it.
fn entered(site: &mut Site, name: &str) -> Result<(Option<Dataset>, String), VerifyError> {
    let Some(dataset) = ledger::find_dataset(&mut *site.control, name)? else {
        return Ok((None, "nothing".to_owned()));
    };
    check_format(&dataset)?;
    let token = ledger::layout(&mut *site.control, dataset.id)?.token;
    let identity = identity(&dataset, token);
    Ok((Some(dataset), identity))
}

/// The runs that any of the ledgers knows.
fn merged_writers(
    sites: &mut [Site],
    ids: &[Option<i32>],
    dataset: &Dataset,
) -> Result<Vec<Writer>, VerifyError> {
    let mut ledgers = Vec::new();
    for (site, id) in sites.iter_mut().zip(ids) {
        if let Some(id) = id {
            let writers = ledger::writers(&mut *site.control, &Dataset { id: *id, ..dataset.clone() });
            ledgers.push(writers.map_err(|error| site.named(error.into()))?);
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

fn node_reports(sites: &[Site], catalog: &Catalog, found: &Proved, problems: &[Problem]) -> Vec<NodeReport> {
    let of_site = |(number, site): (usize, &Site)| {
        let name = site.name.clone().unwrap_or_default();
        let leaves = || (0..catalog.leaves.len()).filter(|&leaf| catalog.leaves[leaf].site == number);
        let differs = |leaf: &usize| found.of_leaf.get(*leaf).is_some_and(|count| *count > 0);
        NodeReport {
            method: found.method,
            leaves: leaves().filter(|leaf| catalog.leaves[*leaf].is_home).count() as u64,
            rows_expected: leaves().filter_map(|leaf| found.expected.get(leaf)).sum(),
            rows_found: leaves().map(|leaf| found.found[leaf]).sum(),
            tables_differing: leaves().filter(differs).count() as u64,
            problems: problems.iter().filter(|problem| problem.node() == Some(&name)).count() as u64,
            name,
        }
    };
    sites.iter().enumerate().map(of_site).collect()
}

#[cfg(test)]
pub(super) mod tests;
