//! Verifies nodes that should all hold the same rows: the peers of a multimaster, or a primary with its standbys.
//!
//! Each node is verified separately against the dataset. For peers that is not enough: two runs on two nodes may each have written a field, and
//! either value is one that may stand there; that both nodes hold the *same* one only a comparison shows. So buckets of keys are
//! summed on each node, and where sums differ, rows are compared.
//!
//! ```text
//! rows that differ -> wait until every node has what the others had written -> read again
//!       equal now                      -> it was on its way
//!       different, and as before       -> diverged
//!       different, and changed         -> being written: read again, until the limit
//! ```

use std::time::{Duration, Instant};

use super::catalog::Catalog;
use super::cluster::{self, Agreed};
use super::compare::{self, Compared, Wait};
use super::error::VerifyError;
use super::problem::Problem;
use super::prove::{Proved, prove};
use super::replication::{self, Quiet};
use super::report::{Method, NodeReport, VerifyReport};
use super::site::Site;
use super::workers::VerifyProgress;
use super::{Loaded, Task};
use crate::dataset::Audit;
use crate::difference::{Difference, KINDS, keep_named};
use crate::ledger::{self, Dataset};
use engines::profile::{Arrival, Copies, Layout};
use engines::sets::Unsent;

/// What the comparison shows where runs have changed rows in ways that no node can be blamed for alone.
const ALIKE: &str = "all nodes hold the same rows in all tables, also in those that runs have changed";

/// A wait of this length is explained.
const WAIT_NOTED: Duration = Duration::from_secs(5);

/// Verifies peers that all take writes.
pub(super) fn peers(
    task: &Task<'_>,
    data: &[usize],
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let mut whole = Whole::default();
    let mut sites = Vec::with_capacity(data.len());
    for &node in data {
        let node = &task.cluster.nodes[node];
        sites.push(Site::connect(&node.spec, Some(&node.name))?);
    }
    observer(&VerifyProgress::waiting(task.start.elapsed()));
    let (mut problems, can_wait) = await_peers(task, &mut sites, &mut whole.notes)?;
    for site in &mut sites {
        site.open_snapshot(&mut whole.notes)?;
    }
    let Agreed { mut loaded, ids, problems: others } = cluster::agree(task, &mut sites)?;
    problems.extend(others);
    let (mut catalogs, mut keys, model) = (Vec::with_capacity(sites.len()), None, loaded.dataset.clone());
    for (site, id) in sites.iter_mut().zip(&ids) {
        loaded.dataset = Dataset { id: id.unwrap_or(model.id), ..model.clone() };
        let mut catalog = cluster::catalog_of(task, site, &loaded)?;
        problems.append(&mut catalog.problems);
        let mut found = prove_one(task, site, &loaded, &catalog, keys.is_none(), observer)?;
        keys = keys.or(found.ledger_keys.take());
        if let Some((id, keys)) = id.zip(keys.as_ref()) {
            problems.extend(keys.check_copy(site, id, &catalog)?);
        }
        whole.add(task, site, &catalog, found);
        catalogs.push(catalog);
    }
    // Runs have changed the other tables, so only the nodes show each other what is wrong there.
    let verified = std::mem::replace(&mut loaded.judged, (0..loaded.content.tables().len()).collect());
    let is_part = verified.len() < loaded.judged.len();
    if is_part {
        catalogs = all_tables(task, &mut sites, &ids, &mut loaded, &mut problems)?;
    }
    // Sums that are those of the dataset on every node are the same on every node.
    if is_part || whole.nodes.iter().any(|node| node.method != Method::Fast) {
        let wait = match task.cluster.engine.layout {
            _ if !can_wait || problems.iter().any(Problem::is_doubt) => Wait::No,
            Layout::Copies(Copies { arrival: Arrival::Rows, .. }) => Wait::Quiet,
            _ => Wait::Slots,
        };
        let sides = compare::Sides { catalogs: &catalogs, wait, are_parts: false, verified: &verified };
        let mut compared = compare::nodes(task, &mut sites, sides, &loaded, observer)?;
        if is_part && compared.is_alike() {
            compared.notes.push(ALIKE.to_owned());
        }
        whole.compared(compared, &mut problems);
    }
    if can_wait {
        problems.extend(unsent(&mut sites, &loaded, &mut whole.notes)?);
    }
    Ok(whole.into_report(task, problems).without_idle_doubts())
}

/// Gives what the nodes send each other the time to arrive. What is wrong with that, and whether it can be waited for.
fn await_peers(
    task: &Task<'_>,
    sites: &mut [Site],
    notes: &mut Vec<String>,
) -> Result<(Vec<Problem>, bool), VerifyError> {
    let (limit, stop, begin) = (task.options.mirror.lag_limit, task.options.stop, Instant::now());
    let found = match task.cluster.engine.layout {
        Layout::Copies(Copies { arrival: Arrival::Rows, .. }) => {
            let is_quiet = replication::await_quiet(sites, task.start, limit, stop)?;
            notes.extend(is_quiet.note());
            (vec![], is_quiet == Quiet::Yes)
        }
        _ => {
            let unfollowed = replication::unfollowed(sites)?;
            let can_wait = unfollowed.is_some();
            if !can_wait {
                notes.push(
                    "no node has a subscription, so verify cannot wait for replication: rows in transit look like differences"
                        .to_owned(),
                );
            }
            let mut problems = unfollowed.unwrap_or_default();
            problems.extend(replication::hidden(sites)?);
            let can_wait = can_wait && problems.iter().all(|problem| !problem.is_doubt());
            let behind = replication::await_logical(sites, task.start, limit, stop)?;
            problems.extend(replication::halted(sites, task.start, limit, &behind, stop)?);
            problems.extend(behind);
            (problems, can_wait)
        }
    };
    notes.extend(waited(begin.elapsed()));
    Ok(found)
}

/// The tables that do not reach a node although a subscription leads there: the cause of differences, also of those that come with the next write.
fn unsent(sites: &mut [Site], loaded: &Loaded, notes: &mut Vec<String>) -> Result<Vec<Problem>, VerifyError> {
    sites.iter_mut().try_for_each(Site::close_snapshot)?;
    let Dataset { schema_name, partitions, .. } = &loaded.dataset;
    let tables = crate::peers::sent(schema_name, loaded.content.tables(), *partitions);
    let found = engines::sets::of_clients(sites.iter_mut().map(|site| &mut *site.control), &tables);
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let why = connect::control::server_error(&error).map_or(error.to_string(), |error| error.message);
            notes.push(format!("which tables the nodes send each other cannot be read: {why}"));
            return Ok(vec![]);
        }
    };
    let name = |site: usize| sites[site].name.clone().unwrap_or_default();
    let problem = |Unsent { follower, source, table, why }: Unsent| {
        let (node, source) = (name(follower), name(source));
        Problem::NotSent { node, source, table, why }
    };
    Ok(found.into_iter().map(problem).collect())
}

/// What a longer wait was for.
fn waited(time: Duration) -> Option<String> {
    (time >= WAIT_NOTED).then(|| {
        format!(
            "waited {:.0} s until the nodes had confirmed what the others had written",
            time.as_secs_f64()
        )
    })
}

/// The catalogs of all nodes with every table of the dataset.
fn all_tables(
    task: &Task<'_>,
    sites: &mut [Site],
    ids: &[Option<i32>],
    loaded: &mut Loaded,
    problems: &mut Vec<Problem>,
) -> Result<Vec<Catalog>, VerifyError> {
    let mut catalogs = Vec::with_capacity(sites.len());
    let own = loaded.dataset.id;
    for (site, id) in sites.iter_mut().zip(ids) {
        loaded.dataset.id = id.unwrap_or(own);
        let mut catalog = cluster::catalog_of(task, site, loaded)?;
        problems.append(&mut catalog.problems);
        catalogs.push(catalog);
    }
    Ok(catalogs)
}

/// Verifies a primary and then its standbys, each after it has replayed what the primary had written by then.
pub(super) fn standbys(
    task: &Task<'_>,
    primary: usize,
    standbys: &[usize],
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let (limit, stop) = (task.options.mirror.lag_limit, task.options.stop);
    let mut whole = Whole::default();
    let mut problems = Vec::new();
    let connect = |node: usize| {
        let node = &task.cluster.nodes[node];
        Site::connect(&node.spec, Some(&node.name))
    };
    for &node in std::iter::once(&primary).chain(standbys) {
        let mut site = connect(node)?;
        if node == primary {
            // A file may still have the role that a standby is to get.
            let recovers = site.control.query_one("select pg_is_in_recovery()", &[]);
            if site.answer("looking for the primary", recovers)?.get(0) {
                return Err(VerifyError::NoPrimary { nodes: site.name.into_iter().collect() });
            }
        }
        if node != primary {
            // On a connection of its own: the primary's snapshot is no longer needed.
            let mut source = connect(primary)?;
            let begin = Instant::now();
            problems.extend(replication::await_standby(&mut source, &mut site, begin, limit, stop)?);
        }
        site.open_snapshot(&mut whole.notes)?;
        // What stands in the ledger of a standby is the primary's, of the same moment as the rows.
        let dataset = cluster::complete(task, &mut site)?;
        let writers = ledger::writers(&mut *site.control, &dataset)?;
        let loaded = cluster::loaded(task, &mut site, dataset, &writers)?;
        let mut catalog = cluster::catalog_of(task, &mut site, &loaded)?;
        problems.append(&mut catalog.problems);
        let found = prove_one(task, &mut site, &loaded, &catalog, false, observer)?;
        whole.add(task, &site, &catalog, found);
    }
    Ok(whole.into_report(task, problems))
}

fn prove_one(
    task: &Task<'_>,
    site: &mut Site,
    loaded: &Loaded,
    catalog: &Catalog,
    want_keys: bool,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<Proved, VerifyError> {
    prove(task, std::slice::from_mut(site), loaded, catalog, want_keys, observer)
}

/// What all nodes came to, added up.
#[derive(Default)]
struct Whole {
    notes: Vec<String>,
    nodes: Vec<NodeReport>,
    /// Everything is summed over all nodes.
    sum: Option<VerifyReport>,
}

impl Whole {
    fn add(&mut self, task: &Task<'_>, site: &Site, catalog: &Catalog, found: Proved) {
        let name = site.name.clone().unwrap_or_default();
        // What is found on every node is noted once.
        self.notes.extend(
            found.notes.iter().filter(|note| !self.notes.contains(note)).cloned().collect::<Vec<_>>(),
        );
        let tables_differing = found.of_leaf.iter().filter(|count| **count > 0).count() as u64;
        let mut report = found.into_report(task);
        let on = |sentences: Vec<String>| -> Vec<String> {
            sentences.into_iter().map(|sentence| format!("{name}: {sentence}")).collect()
        };
        let Audit { kept, broken, unknown, lost, lost_total } = std::mem::take(&mut report.audit);
        report.audit = Audit { kept: on(kept), broken: on(broken), unknown: on(unknown), lost, lost_total };
        self.nodes.push(NodeReport {
            method: report.method,
            leaves: catalog.leaves.len() as u64,
            rows_expected: report.rows_expected,
            rows_found: report.rows_found,
            tables_differing,
            problems: 0,
            name,
        });
        match &mut self.sum {
            Some(sum) => sum.add(report),
            None => self.sum = Some(report),
        }
    }

    /// Adds what the comparison of nodes has shown.
    fn compared(&mut self, mut compared: Compared, problems: &mut Vec<Problem>) {
        problems.append(&mut compared.problems);
        for node in &mut self.nodes {
            let named = |difference: &Difference| difference.table.node.as_ref() == Some(&node.name);
            node.tables_differing +=
                u64::from(node.tables_differing == 0 && compared.differences.iter().any(named));
        }
        if let Some(sum) = &mut self.sum {
            sum.notes.clear();
            sum.add_compared(compared);
            self.notes.append(&mut sum.notes);
        }
    }

    fn into_report(self, task: &Task<'_>, mut problems: Vec<Problem>) -> VerifyReport {
        let Whole { notes, mut nodes, sum } = self;
        problems.sort();
        problems.dedup();
        for node in &mut nodes {
            let count = problems.iter().filter(|problem| problem.node() == Some(&node.name)).count();
            node.problems = count as u64;
        }
        let mut report = sum.expect("a cluster has a node");
        keep_named(&mut report.differences);
        VerifyReport { notes, problems, nodes, duration: task.start.elapsed(), ..report }
    }
}

impl VerifyReport {
    /// What could not be read about replication explains nothing where all nodes hold the rows: then it is a note.
    fn without_idle_doubts(mut self) -> VerifyReport {
        if self.differences_total() > 0 {
            return self;
        }
        let is_idle = |problem: &Problem| matches!(problem, Problem::HiddenStatus { .. });
        let (idle, others): (Vec<Problem>, Vec<Problem>) = self.problems.into_iter().partition(is_idle);
        for node in &mut self.nodes {
            node.problems -= idle.iter().filter(|problem| problem.node() == Some(&node.name)).count() as u64;
        }
        self.notes.extend(idle.iter().map(ToString::to_string));
        self.problems = others;
        self
    }

    /// Adds what the comparison of copies has shown.
    pub(super) fn add_compared(&mut self, compared: Compared) {
        self.notes.extend(compared.notes);
        self.notes.extend(compared.unjudged.clone());
        self.values_unjudged += compared.rows_unjudged;
        self.differences.extend(compared.differences);
        self.unjudged = self.unjudged.take().or(compared.unjudged);
        add_totals(&mut self.totals, compared.totals);
        for table in &mut self.tables {
            table.differences += compared.of_table.get(table.table).copied().unwrap_or_default();
        }
    }

    /// Adds what was found on another node that holds the same rows.
    fn add(&mut self, report: VerifyReport) {
        self.method = self.method.max(report.method);
        self.rows_expected += report.rows_expected;
        self.rows_found += report.rows_found;
        self.rows_uncertain += report.rows_uncertain;
        self.updates_accepted += report.updates_accepted;
        self.values_unjudged += report.values_unjudged;
        self.differences.extend(report.differences);
        for (table, more) in self.tables.iter_mut().zip(report.tables) {
            table.rows_expected += more.rows_expected;
            table.rows_found += more.rows_found;
            table.differences += more.differences;
        }
        self.unjudged = self.unjudged.take().or(report.unjudged);
        self.unfinished = self.unfinished.take().or(report.unfinished);
        self.audit.kept.extend(report.audit.kept);
        self.audit.broken.extend(report.audit.broken);
        self.audit.unknown.extend(report.audit.unknown);
        add_totals(&mut self.totals, report.totals);
    }
}

fn add_totals(totals: &mut [u64; KINDS], more: [u64; KINDS]) {
    totals.iter_mut().zip(more).for_each(|(total, more)| *total += more);
}

#[cfg(test)]
mod tests;
