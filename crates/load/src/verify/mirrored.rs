//! Verifying nodes that should all hold the same: the peers of a multimaster, or a primary with its standbys.
//!
//! Each node is verified against the dataset by itself. For peers that is not enough: two runs on two nodes may each have written a field, and
//! either value is one that may stand there; that both nodes hold the *same* one only a comparison shows. So buckets of keys are
//! summed on each node, and where sums differ, rows are compared.
//!
//! ```text
//! rows that differ -> wait until every node has what the others had written -> read again
//!       equal now                      -> it was on its way
//!       different, and as before       -> diverged
//!       different, and changed         -> somebody writes it: read again, until the limit
//! ```

use std::time::Instant;

use engines::cluster::Cluster;

use super::catalog::{self, Catalog};
use super::cluster::{self, Agreed, MirrorOptions};
use super::compare::{self, Compared};
use super::error::VerifyError;
use super::grid::Sum;
use super::problem::Problem;
use super::replication;
use super::report::{KINDS, Method, NodeReport, VerifyReport, keep_named};
use super::workers::VerifyProgress;
use super::{LIMITS, Proved, Site, VerifyOptions, find_dataset, prove};
use crate::ledger::{self, Dataset, Writer};

/// Verifies peers that all take writes.
pub(super) fn peers(
    cluster: &Cluster,
    data: &[usize],
    options: &VerifyOptions<'_>,
    mirror: &MirrorOptions,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let start = Instant::now();
    let mut notes = Vec::new();
    let mut sites = Vec::with_capacity(data.len());
    for &node in data {
        let node = &cluster.nodes[node];
        sites.push(Site::connect(&node.spec, Some(&node.name))?);
    }
    let unfollowed = replication::unfollowed(&mut sites)?;
    let can_wait = unfollowed.is_some();
    if !can_wait {
        notes.push(
            "no node has a subscription, so verify cannot wait for replication: rows in transit look like differences"
                .to_owned(),
        );
    }
    let mut problems = unfollowed.unwrap_or_default();
    problems.extend(replication::await_logical(&mut sites, start, mirror.lag_limit, options.stop)?);
    for site in &mut sites {
        site.open_snapshot(&mut notes)?;
    }
    let Agreed { dataset, ids, problems: others } = cluster::agree(&mut sites)?;
    problems.extend(others);
    let writers = cluster::merged_writers(&mut sites, &ids, &dataset)?;
    let mut whole = Whole::new(start, notes);
    let mut catalogs = Vec::with_capacity(sites.len());
    for (site, id) in sites.iter_mut().zip(&ids) {
        let dataset = Dataset { id: id.unwrap_or(dataset.id), ..dataset.clone() };
        let mut catalog = catalog::read(&mut site.control, &dataset, site.name.as_deref())?;
        problems.append(&mut catalog.problems);
        let want_keys = whole.ledger_keys.is_empty();
        let found = prove_one(site, &dataset, &writers, &catalog, options, want_keys, observer)?;
        if want_keys {
            whole.ledger_keys = found.ledger_keys.leaves.clone();
        }
        if let Some(id) = id {
            let totals = ledger::chunk_totals(&mut *site.control, *id)?;
            let mut loaded = Sum::default();
            whole.ledger_keys.iter().for_each(|sum| loaded.add(sum.rows, sum.hash));
            let in_ledger = Sum { rows: totals.rows, hash: totals.checksum };
            problems.extend(cluster::compare_ledger(site.name.clone(), in_ledger, loaded));
        }
        whole.add(site, &catalog, found);
        catalogs.push(catalog);
    }
    // Sums that are those of the dataset on every node are the same on every node.
    if whole.methods.iter().any(|method| *method != Method::Fast) {
        let compared = compare::nodes(
            &mut sites,
            &catalogs,
            &dataset,
            &writers,
            options,
            mirror,
            can_wait && !problems.iter().any(Problem::is_doubt),
            observer,
        )?;
        whole.compared(compared, &mut problems);
    }
    Ok(whole.into_report(problems))
}

/// Verifies a primary and then its standbys, each after it has replayed what the primary had written by then.
pub(super) fn standbys(
    cluster: &Cluster,
    primary: usize,
    standbys: &[usize],
    options: &VerifyOptions<'_>,
    mirror: &MirrorOptions,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let start = Instant::now();
    let mut whole = Whole::new(start, Vec::new());
    let mut problems = Vec::new();
    let connect = |node: usize| {
        let node = &cluster.nodes[node];
        Site::connect(&node.spec, Some(&node.name))
    };
    for &node in std::iter::once(&primary).chain(standbys) {
        let mut site = connect(node)?;
        if node != primary {
            // On a connection of its own: the primary's snapshot is no longer needed.
            let mut source = connect(primary)?;
            let (begin, limit) = (Instant::now(), mirror.lag_limit);
            problems.extend(replication::await_standby(&mut source, &mut site, begin, limit, options.stop)?);
        }
        site.open_snapshot(&mut whole.notes)?;
        // What stands in the ledger of a standby is the primary's, of the same moment as the rows.
        let dataset = find_dataset(&mut site.control)?;
        let writers = ledger::writers(&mut *site.control, &dataset)?;
        let mut catalog = catalog::read(&mut site.control, &dataset, site.name.as_deref())?;
        problems.append(&mut catalog.problems);
        let found = prove_one(&mut site, &dataset, &writers, &catalog, options, false, observer)?;
        whole.add(&site, &catalog, found);
    }
    Ok(whole.into_report(problems))
}

fn prove_one(
    site: &mut Site,
    dataset: &Dataset,
    writers: &[Writer],
    catalog: &Catalog,
    options: &VerifyOptions<'_>,
    want_keys: bool,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<Proved, VerifyError> {
    let sites = std::slice::from_mut(site);
    prove(sites, dataset, writers, catalog, options, observer, LIMITS, want_keys, Vec::new())
}

/// What all nodes came to, added up.
struct Whole {
    start: Instant,
    notes: Vec<String>,
    methods: Vec<Method>,
    nodes: Vec<NodeReport>,
    ledger_keys: Vec<Sum>,
    /// Its node names do not matter: everything is summed over all.
    sum: Option<VerifyReport>,
}

impl Whole {
    fn new(start: Instant, notes: Vec<String>) -> Whole {
        Whole { start, notes, methods: Vec::new(), nodes: Vec::new(), ledger_keys: Vec::new(), sum: None }
    }

    fn add(&mut self, site: &Site, catalog: &Catalog, found: Proved) {
        self.methods.push(found.method);
        self.nodes.push(NodeReport {
            name: site.name.clone().unwrap_or_default(),
            method: found.method,
            leaves: catalog.leaves.len() as u64,
            rows_expected: found.expected.iter().sum(),
            rows_found: found.found.iter().sum(),
            tables_differing: found.differs.iter().filter(|differs| **differs).count() as u64,
            problems: 0,
        });
        // What is said of every node is said once.
        self.notes.extend(
            found.notes.iter().filter(|note| !self.notes.contains(note)).cloned().collect::<Vec<_>>(),
        );
        let report = found.into_report(self.start);
        let Some(sum) = &mut self.sum else {
            self.sum = Some(report);
            return;
        };
        sum.method = sum.method.max(report.method);
        sum.rows_expected += report.rows_expected;
        sum.rows_found += report.rows_found;
        sum.rows_uncertain += report.rows_uncertain;
        sum.updates_accepted += report.updates_accepted;
        sum.values_unjudged += report.values_unjudged;
        sum.differences.extend(report.differences);
        add_totals(&mut sum.totals, report.totals);
    }

    /// Adds what the comparison of nodes has shown.
    fn compared(&mut self, compared: Compared, problems: &mut Vec<Problem>) {
        self.notes.extend(compared.notes);
        problems.extend(compared.problems);
        for node in &mut self.nodes {
            let named = |difference: &super::Difference| difference.table.node.as_ref() == Some(&node.name);
            node.tables_differing +=
                u64::from(node.tables_differing == 0 && compared.differences.iter().any(named));
        }
        if let Some(sum) = &mut self.sum {
            sum.values_unjudged += compared.rows_unjudged;
            sum.differences.extend(compared.differences);
            add_totals(&mut sum.totals, compared.totals);
        }
    }

    fn into_report(self, mut problems: Vec<Problem>) -> VerifyReport {
        let Whole { start, notes, mut nodes, sum, .. } = self;
        problems.sort();
        problems.dedup();
        for node in &mut nodes {
            let count = problems.iter().filter(|problem| problem.node() == Some(&node.name)).count();
            node.problems = count as u64;
        }
        let mut report = sum.expect("a cluster has a node");
        keep_named(&mut report.differences);
        VerifyReport { notes, problems, nodes, duration: start.elapsed(), ..report }
    }
}

fn add_totals(totals: &mut [u64; KINDS], more: [u64; KINDS]) {
    totals.iter_mut().zip(more).for_each(|(total, more)| *total += more);
}

#[cfg(test)]
mod tests;
