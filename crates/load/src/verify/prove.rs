//! The phases, over all tables of a catalog.

use super::audit::audit;
use super::catalog::{Catalog, Leaf};
use super::chunks::{LedgerKeys, ledger_keys};
use super::error::VerifyError;
use super::findings::Findings;
use super::grid::{Grid, Selection, Shape};
use super::report::{Method, TableFound, VerifyReport};
use super::rows::Judged;
use super::site::{Site, split};
use super::workers::{self, Coordinator, VerifyProgress, Workers};
use super::{Loaded, Setting, Task, names, rows, sums};
use crate::dataset::Audit;
use crate::difference::{Difference, KINDS};
use record::number::counted;

/// What the phases came to.
pub(super) struct Proved {
    pub(super) method: Method,
    pub(super) notes: Vec<String>,
    pub(super) tables: Vec<TableFound>,
    /// Rows that must be there, by leaf, where the nodes of a cluster share them.
    pub(super) expected: Vec<u64>,
    /// Rows that are there, by leaf.
    pub(super) found: Vec<u64>,
    /// Differences by leaf; there are none in those beyond its end.
    pub(super) of_leaf: Vec<u64>,
    rows_uncertain: u64,
    updates_accepted: u64,
    values_unjudged: u64,
    totals: [u64; KINDS],
    differences: Vec<Difference>,
    unjudged: Option<String>,
    unfinished: Option<String>,
    audit: Audit,
    /// What the ledgers' chunks must add up to, if it was requested.
    pub(super) ledger_keys: Option<LedgerKeys>,
}

impl Proved {
    pub(super) fn into_report(self, task: &Task<'_>) -> VerifyReport {
        VerifyReport {
            method: self.method,
            notes: self.notes,
            rows_expected: self.tables.iter().map(|table| table.rows_expected).sum(),
            rows_found: self.found.iter().sum(),
            rows_uncertain: self.rows_uncertain,
            updates_accepted: self.updates_accepted,
            values_unjudged: self.values_unjudged,
            tables: self.tables,
            differences: self.differences,
            totals: self.totals,
            unjudged: self.unjudged,
            unfinished: self.unfinished,
            audit: self.audit,
            problems: Vec::new(),
            nodes: Vec::new(),
            duration: task.start.elapsed(),
        }
    }
}

/// Reads and compares as much as is needed for a verdict on the rows.
pub(super) fn prove(
    task: &Task<'_>,
    sites: &mut [Site],
    loaded: &Loaded,
    catalog: &Catalog,
    want_ledger_keys: bool,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<Proved, VerifyError> {
    let content = &*loaded.content;
    let mut notes = Vec::new();
    let mut method = choose_method(task, loaded, catalog, &mut notes);
    notes.extend(catalog.notes.iter().cloned());
    let audit = audit(sites, content, catalog)?;
    let is_shared = sites.len() > 1;
    let (controls, openers) = split(sites);
    let servers = openers.iter().map(|(connect, snapshot)| workers::Site::new(connect, *snapshot)).collect();
    let setting = Setting {
        content,
        hashing: content.hashing(),
        by_digest: false,
        catalog,
        workers: Workers::new(servers, task.options.stop),
        jobs: task.options.jobs.max(1),
        limits: task.options.limits,
    };
    let mut coordinator = Coordinator::new(controls, observer);
    let Read { judged, selection, expected, found } = read(&setting, &mut coordinator, &mut method)?;
    let Judged { mut findings, bytes, .. } = judged;
    findings.lose(&setting, &audit);
    let is_complete = loaded.judged.len() == content.tables().len();
    let ledger_keys = match want_ledger_keys && is_complete {
        true => Some(ledger_keys(&setting, &mut coordinator, &loaded.dataset, (&selection.grid, &bytes))?),
        false => None,
    };
    notes.extend(notes_of(&findings));
    notes.extend(unknown_writes(&setting, loaded, &findings));
    let tables = tables_found(&setting, &expected, &found, &findings);
    let expected =
        if is_shared { expected_by_leaf(&setting, &expected, ledger_keys.as_ref()) } else { Vec::new() };
    let Findings { rows_uncertain, updates_accepted, values_unjudged, .. } = findings;
    let of_leaf = findings.of_leaf.clone();
    let (totals, differences) = findings.into_named(&setting);
    let after_runs = content.after_runs().filter(|_| loaded.runs > 0);
    let unjudged = after_runs.map(|after| after.unjudged.to_owned());
    Ok(Proved {
        method,
        notes,
        tables,
        expected,
        found,
        of_leaf,
        rows_uncertain,
        updates_accepted,
        values_unjudged,
        totals,
        differences,
        unjudged,
        unfinished: loaded.unfinished.clone(),
        audit,
        ledger_keys,
    })
}

/// What reading came to.
struct Read {
    judged: Judged,
    /// What was judged row by row, or, if nothing was, how the tables were summed up.
    selection: Selection,
    /// Rows that must be there, by table.
    expected: Vec<u64>,
    /// Rows that are there, by leaf.
    found: Vec<u64>,
}

fn read(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    method: &mut Method,
) -> Result<Read, VerifyError> {
    let tables = setting.catalog.tables.iter();
    if *method == Method::Deep {
        let shapes = tables.map(|table| Shape::numbers(setting.content, table.table));
        let selection = Selection::all(Grid::new(shapes));
        let mut judged = rows::judge(setting, coordinator, &selection)?;
        names::name(setting, coordinator, &selection, &mut judged)?;
        let (expected, found) = (judged.expected.clone(), judged.read.clone());
        return Ok(Read { judged, selection, expected, found });
    }
    let sums::Compared { expected, mut found, bytes, differing } = sums::compare(setting, coordinator)?;
    let mut judged = Judged::default();
    if !differing.is_empty() || setting.catalog.leaves.iter().any(|leaf| !leaf.is_home) {
        judged = rows::judge(setting, coordinator, &differing)?;
        names::name(setting, coordinator, &differing, &mut judged)?;
        for (leaf, found) in found.iter_mut().enumerate() {
            // These were not summed up.
            if !setting.catalog.leaves[leaf].is_home {
                *found = judged.read[leaf];
            }
        }
        if !differing.is_empty() || judged.findings.totals.iter().any(|total| *total > 0) {
            *method = Method::FastThenDeep;
        }
    }
    judged.bytes = bytes;
    Ok(Read { judged, selection: differing, expected, found })
}

/// Rows that must be in each leaf: those of the load, and those that runs have inserted.
fn expected_by_leaf(setting: &Setting<'_>, of_tables: &[u64], keys: Option<&LedgerKeys>) -> Vec<u64> {
    let Some(keys) = keys else {
        // What is verified although runs have changed the rest is not divided.
        let of_leaf = |leaf: &Leaf| if leaf.is_home { of_tables[leaf.at] } else { 0 };
        return setting.catalog.leaves.iter().map(of_leaf).collect();
    };
    let leaves = 0..setting.catalog.leaves.len();
    let mut expected: Vec<u64> = leaves.map(|leaf| keys.of_leaf(setting.catalog, leaf).rows).collect();
    for (at, table) in setting.catalog.tables.iter().enumerate() {
        let inserted = setting.content.tables()[table.table].rows..setting.content.numbers_end(table.table);
        for row in inserted.filter(|row| setting.content.must_be(table.table, *row)) {
            expected[setting.leaf_of(at, row)] += 1;
        }
    }
    expected
}

/// The rows of each table into which a load puts some, over all copies.
fn tables_found(
    setting: &Setting<'_>,
    expected: &[u64],
    found: &[u64],
    findings: &Findings,
) -> Vec<TableFound> {
    let mut tables: Vec<TableFound> = Vec::new();
    for (at, table) in setting.catalog.tables.iter().enumerate() {
        let name = setting.content.tables()[table.table].name;
        if setting.content.tables()[table.table].rows == 0 && setting.hashing.is_none() {
            continue;
        }
        let place = tables.iter().position(|one| one.table == name);
        let place = place.unwrap_or_else(|| {
            tables.push(TableFound { table: name, rows_expected: 0, rows_found: 0, differences: 0 });
            tables.len() - 1
        });
        let one = &mut tables[place];
        one.rows_expected += expected[at];
        for leaf in (0..found.len()).filter(|leaf| setting.catalog.leaves[*leaf].at == at) {
            one.rows_found += found[leaf];
            one.differences += findings.of_leaf.get(leaf).copied().unwrap_or_default();
        }
    }
    tables
}

/// Fast as far as sums can prove something, deep otherwise.
fn choose_method(task: &Task<'_>, loaded: &Loaded, catalog: &Catalog, notes: &mut Vec<String>) -> Method {
    let content = &*loaded.content;
    let has = if loaded.runs == 1 { "1 run has".to_owned() } else { format!("{} runs have", loaded.runs) };
    if loaded.runs > 0 && !content.is_read_after_runs() {
        let note = content.after_runs().map(|after| format!(": {}", after.note)).unwrap_or_default();
        notes.push(format!("{has} written into the tables since the load{note}"));
    }
    if task.options.deep {
        return Method::Deep;
    }
    if loaded.runs > 0 && content.is_read_after_runs() {
        notes.push(format!("{has} written into the table, so every row was read and checked"));
        return Method::Deep;
    }
    if !catalog.record_hash {
        notes.push(
            "the server cannot hash rows as pgfathom does (hash_record_extended, PostgreSQL 14), so every row was read"
                .to_owned(),
        );
        return Method::Deep;
    }
    Method::Fast
}

/// What was written although the ledger has no run, and rows that nothing describes one by one.
fn unknown_writes(setting: &Setting<'_>, loaded: &Loaded, findings: &Findings) -> Vec<String> {
    let mut notes = Vec::new();
    let updates = findings.updates_accepted;
    if loaded.runs == 0 && updates > 0 {
        notes.push(format!(
            "{} accepted although no run is in the ledger: another program made them, and only what must hold of the tables together is proved of them",
            counted(updates, "update")
        ));
    }
    let of_runs = setting.content.tables().iter().filter(|table| table.rows == 0).map(|table| table.name);
    for name in of_runs.filter(|_| updates > 0) {
        notes.push(format!(
            "rows of {name} come from transactions, not from the load: they are not judged one by one, only their sums are compared"
        ));
    }
    notes
}

/// Further notes about the findings.
fn notes_of(findings: &Findings) -> Vec<String> {
    let mut notes = Vec::new();
    if findings.misplaced_overflow {
        notes.push("so many rows are in wrong partitions that some are also counted as missing".to_owned());
    }
    if let Some(why) = findings.unjudged_why {
        notes.push(format!("{} values cannot be judged: {why}", findings.values_unjudged));
    }
    notes
}
