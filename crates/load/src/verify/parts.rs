//! Reads the parts of tables one by one on the nodes that have them, where an engine spreads the rows itself.
//!
//! Such a table is verified through the engine: it returns the rows of all parts, whichever part a row is in, and reads one copy of each part. A statement
//! about one key reads only the part that the key is routed to, and another node may read another copy. So here rows are looked for in each part that are not
//! routed to it, and the copies of a part are compared with each other. The engine may move parts at any time: if something is wrong and the catalog
//! is another one afterwards, everything is read again.

use std::collections::{BTreeMap, BTreeSet};

use engines::placement::{Part, Parts};
use postgres::SimpleQueryMessage;
use wire::error::SqlState;

use super::catalog::{Catalog, Leaf, TableAt};
use super::compare::{self, Compared, Sides, Wait};
use super::content::{self, identify};
use super::error::VerifyError;
use super::site::{Site, split};
use super::workers::{self, Coordinator, Phase, Queues, VerifyProgress, Workers, number};
use super::{Loaded, Task};
use crate::dataset::Dataset;
use crate::difference::{Difference, DifferenceKind, NAMED_MAX, TableName};
use crate::error::sqlstate_of;
use crate::ledger::qualified;

/// How often everything is read while the engine moves parts.
const ATTEMPTS: usize = 3;
const UNDEFINED_TABLE: SqlState = SqlState(*b"42P01");

/// The tables of a dataset that are in parts, by their numbers.
type Tables = Vec<(usize, Parts)>;

/// Looks at all parts of the dataset's tables. `named`: what was found through the engine; rows that are there twice get the parts in which they are.
pub(super) fn check(
    task: &Task<'_>,
    loaded: &Loaded,
    named: &mut [Difference],
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<Compared, VerifyError> {
    let Some(entry) = task.cluster.table_node() else { return Ok(Compared::default()) };
    let node = &task.cluster.nodes[entry];
    let mut control = Site::again(&node.spec, Some(&node.name))?.control;
    let mut read = || -> Result<Tables, VerifyError> {
        let schema = &loaded.dataset.schema_name;
        let mut tables = Tables::new();
        for (number, table) in loaded.content.tables().iter().enumerate() {
            let parts = Parts::read(task.cluster, &mut *control, entry, schema, table.name);
            tables.extend(parts?.map(|parts| (number, parts)));
        }
        Ok(tables)
    };
    if !Parts::are_read(task.cluster) && task.cluster.data_nodes().nth(1).is_some() {
        let note = format!(
            "every row was compared as {} returns it; in which part and on which node it is was not checked, because pgfathom does not read the parts \
             of this engine",
            task.cluster.engine.title
        );
        return Ok(Compared { notes: vec![note], ..Compared::default() });
    }
    let mut tables = read()?;
    for _ in 0..ATTEMPTS {
        let looked = look(task, loaded, &tables, named, observer);
        match &looked {
            Ok(compared) if compared.totals.iter().sum::<u64>() == 0 => return looked,
            Err(error) if !is_gone(error) => return looked,
            _ => {}
        }
        let now = read()?;
        if now == tables {
            return looked;
        }
        tables = now;
    }
    let unjudged =
        Some("the engine kept moving parts of the tables, so they were not read one by one".to_owned());
    Ok(Compared { unjudged, ..Compared::default() })
}

/// Whether a table is not there: its part was moved.
fn is_gone(error: &VerifyError) -> bool {
    let state = match error {
        VerifyError::Sql { source, .. } => sqlstate_of(source),
        VerifyError::Server { source, .. } => Some(source.sqlstate),
        VerifyError::Node { source, .. } => return is_gone(source),
        _ => None,
    };
    state == Some(UNDEFINED_TABLE)
}

fn look(
    task: &Task<'_>,
    loaded: &Loaded,
    tables: &Tables,
    named: &mut [Difference],
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<Compared, VerifyError> {
    let mut compared = Compared::default();
    let of_all = || tables.iter().flat_map(|(_, parts)| &parts.parts).flat_map(|part| &part.nodes);
    let unknown: BTreeSet<&str> =
        of_all().filter_map(|node| node.as_ref().err().map(String::as_str)).collect();
    if !unknown.is_empty() {
        let names = Vec::from_iter(unknown).join(", ");
        compared.unjudged = Some(format!(
            "the parts of tables on {names} were not read one by one, because no [[node]] leads there: name all nodes in the cluster file, each at an address \
             where it answers"
        ));
    }
    let nodes: BTreeSet<usize> = of_all().filter_map(|node| node.as_ref().ok().copied()).collect();
    let nodes = Vec::from_iter(nodes);
    let mut sites = connect(task, &nodes, &mut compared.notes)?;
    let reader = PartReader { task, loaded, nodes: &nodes };
    reader.misplaced(&mut sites, tables, &mut compared, observer)?;
    reader.locate(&mut sites, tables, named)?;
    drop(sites);
    for (nodes, tables) in copied(tables) {
        let mut sites = connect(task, &nodes, &mut compared.notes)?;
        let mut catalogs = Vec::with_capacity(nodes.len());
        for (place, site) in sites.iter_mut().enumerate() {
            catalogs.push(catalog_of(&*loaded.content, task, site, place, &tables)?);
        }
        let sides = Sides { catalogs: &catalogs, wait: Wait::Commit, are_parts: true, verified: &[] };
        compared.add(compare::nodes(task, &mut sites, sides, loaded, observer)?);
    }
    Ok(compared)
}

fn connect(task: &Task<'_>, nodes: &[usize], notes: &mut Vec<String>) -> Result<Vec<Site>, VerifyError> {
    let mut sites = Vec::with_capacity(nodes.len());
    for &node in nodes {
        let node = &task.cluster.nodes[node];
        let mut site = Site::again(&node.spec, Some(&node.name))?;
        site.open_snapshot(notes)?;
        sites.push(site);
    }
    Ok(sites)
}

/// The parts with several copies, by the nodes that have these.
fn copied(tables: &Tables) -> BTreeMap<Vec<usize>, Vec<(usize, Vec<&Part>)>> {
    let mut groups: BTreeMap<Vec<usize>, Vec<(usize, Vec<&Part>)>> = BTreeMap::new();
    for (table, parts) in tables {
        for part in &parts.parts {
            let nodes: Vec<usize> =
                part.nodes.iter().filter_map(|node| node.as_ref().ok().copied()).collect();
            if nodes.len() < 2 {
                continue;
            }
            let group = groups.entry(nodes).or_default();
            match group.last_mut().filter(|(last, _)| last == table) {
                Some((_, parts)) => parts.push(part),
                None => group.push((*table, vec![part])),
            }
        }
    }
    groups
}

/// One node's copies of some parts.
fn catalog_of(
    content: &dyn Dataset,
    task: &Task<'_>,
    site: &mut Site,
    place: usize,
    tables: &[(usize, Vec<&Part>)],
) -> Result<Catalog, VerifyError> {
    let mut catalog = Catalog::new();
    let (key_hash, record_hash) = content::probe(&mut site.control, content.hashing().as_ref())?;
    catalog.key_hash = key_hash && task.options.may_hash;
    catalog.record_hash = record_hash && task.options.may_hash;
    // Their sizes are not known, so each is read as a whole.
    catalog.block_ranges = false;
    for (table, parts) in tables {
        let (at, first_leaf) = (catalog.tables.len(), catalog.leaves.len());
        let partitions = parts.len() as u32;
        catalog.tables.push(TableAt { table: *table, node: site.name.clone(), first_leaf, partitions });
        for (partition, part) in parts.iter().enumerate() {
            catalog.names.push(TableName { table: part.name.clone(), node: site.name.clone() });
            catalog.leaves.push(Leaf {
                at,
                partition: partition as u32,
                is_home: true,
                site: place,
                relation: Some(qualified(&part.schema, &part.name)),
                blocks: 0,
            });
        }
    }
    Ok(catalog)
}

/// Reads parts one by one, and finds where rows are.
struct PartReader<'a> {
    task: &'a Task<'a>,
    loaded: &'a Loaded,
    /// The nodes that are read, by their places in the cluster.
    nodes: &'a [usize],
}

/// A copy of a part, and the rows that must not be in it.
struct PartCopy<'a> {
    name: TableName,
    site: usize,
    table: usize,
    parts: &'a Parts,
    part: &'a Part,
    condition: String,
}

/// Rows of a copy that belong elsewhere: how many, and the first of them, each behind the number of its key.
struct Misplaced {
    copy: usize,
    count: u64,
    rows: Vec<(i64, Vec<Option<String>>)>,
}

impl PartReader<'_> {
    fn site_of(&self, node: usize) -> Option<usize> {
        self.nodes.binary_search(&node).ok()
    }

    fn name_of(&self, node: usize, part: &Part) -> TableName {
        TableName::on(&part.name, &self.task.cluster.nodes[node].name)
    }

    /// Finds rows in parts that their keys are not routed to.
    fn misplaced(
        &self,
        sites: &mut [Site],
        tables: &Tables,
        compared: &mut Compared,
        observer: &mut dyn FnMut(&VerifyProgress),
    ) -> Result<(), VerifyError> {
        let mut copies = Vec::new();
        for (table, parts) in tables {
            for part in &parts.parts {
                let Some(condition) = parts.misplaced(part) else { continue };
                let sites = part.nodes.iter().filter_map(|node| self.site_of(*node.as_ref().ok()?));
                copies.extend(sites.map(|site| PartCopy {
                    name: self.name_of(self.nodes[site], part),
                    site,
                    table: *table,
                    parts,
                    part,
                    condition: condition.clone(),
                }));
            }
        }
        let (controls, openers) = split(sites);
        let servers = openers.iter().map(|(connect, snapshot)| workers::Site::new(connect, *snapshot));
        let workers = Workers::new(servers.collect(), self.task.options.stop);
        let mut coordinator = Coordinator::new(controls, observer);
        let queues =
            Queues::new(workers.sites(), copies.iter().enumerate().map(|(number, copy)| (copy.site, number)));
        let (queues, copies, workers, content) = (&queues, &copies, &workers, &*self.loaded.content);
        let connections = queues.connections(self.task.options.jobs.max(1)).into_iter();
        let tasks = connections.map(|(site, _)| -> workers::Task<'_, Vec<Misplaced>> {
            Box::new(move || read_copies(content, workers, queues, copies, site))
        });
        for misplaced in coordinator.run(workers, Phase::Place, 0, tasks.collect())?.into_iter().flatten() {
            self.add(&copies[misplaced.copy], misplaced, compared);
        }
        Ok(())
    }

    /// Adds what was found in a copy.
    fn add(&self, copy: &PartCopy<'_>, misplaced: Misplaced, compared: &mut Compared) {
        let content = &*self.loaded.content;
        let table = copy.name.clone();
        let nowhere = || TableName::local("no part");
        for (hash, fields) in misplaced.rows {
            let home = copy.parts.home(hash).map_or_else(nowhere, |home| match home.nodes.first() {
                Some(Ok(node)) => self.name_of(*node, home),
                Some(Err(node)) => TableName::on(&home.name, node),
                None => TableName::local(&home.name),
            });
            let (row, key) = identify(content, copy.table, &fields);
            let (row, subject) = match content.is_named_by_key() {
                true => (row, None),
                false => (None, Some(TableName::local(content.tables()[copy.table].name))),
            };
            let kind = DifferenceKind::WrongPartition { home };
            compared.differences.push(Difference { kind, key, row, table: table.clone(), subject });
        }
        let index = DifferenceKind::WrongPartition { home: table }.index();
        compared.totals[index] += misplaced.count;
        *compared.of_table.entry(content.tables()[copy.table].name).or_default() += misplaced.count;
    }

    /// Finds the parts in which rows are that are there more than once.
    fn locate(
        &self,
        sites: &mut [Site],
        tables: &Tables,
        named: &mut [Difference],
    ) -> Result<(), VerifyError> {
        let is_double =
            |difference: &&mut Difference| matches!(difference.kind, DifferenceKind::Duplicate { .. });
        let mut doubles: Vec<&mut Difference> = named.iter_mut().filter(is_double).collect();
        if doubles.is_empty() {
            return Ok(());
        }
        for double in &mut doubles {
            if let DifferenceKind::Duplicate { places, .. } = &mut double.kind {
                places.clear();
            }
        }
        // An index is of use now.
        sites.iter_mut().try_for_each(Site::close_snapshot)?;
        for (number, parts) in tables {
            let table = &self.loaded.content.tables()[*number];
            let mut of_table: Vec<&mut Difference> = doubles
                .iter_mut()
                .filter(|double| double.subject.as_ref().is_none_or(|subject| subject.table == table.name))
                .map(|double| &mut **double)
                .collect();
            if of_table.is_empty() {
                continue;
            }
            let condition = |double: &&mut Difference| match (&double.subject, table.key) {
                (None, Some(key)) => format!("{key} = {}", connect::sql::literal(&double.key)),
                _ => double.key.clone(),
            };
            let conditions: Vec<String> = of_table.iter().map(condition).collect();
            for part in &parts.parts {
                let Some(Ok(node)) = part.nodes.first() else { continue };
                let Some(site) = self.site_of(*node) else { continue };
                let counts = count_rows(&mut sites[site], part, &conditions)?;
                for (double, count) in of_table.iter_mut().zip(counts) {
                    if let (true, DifferenceKind::Duplicate { places, .. }) = (count > 0, &mut double.kind) {
                        places.push(self.name_of(*node, part));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Lets a connection read one copy after another.
fn read_copies(
    content: &dyn Dataset,
    workers: &Workers<'_>,
    queues: &Queues,
    copies: &[PartCopy<'_>],
    site: usize,
) -> Result<Vec<Misplaced>, VerifyError> {
    let mut found = Vec::new();
    let mut reader = workers.open(site)?;
    while let Some(copy) = queues.next(site) {
        workers.check()?;
        let PartCopy { name, table, parts, part, condition, .. } = &copies[copy];
        let doing = format!("reading {name}");
        let from = format!("from only {} where {condition}", qualified(&part.schema, &part.name));
        let mut count = 0;
        reader.query(&doing, &format!("select count(*) {from}"), |row| {
            count = number(&doing, row.first().copied().flatten())? as u64;
            Ok(())
        })?;
        if count == 0 {
            continue;
        }
        let columns = &content.tables()[*table].columns;
        let columns: Vec<String> = columns.iter().map(|(name, _)| format!("{name}::text")).collect();
        let hash = parts.hash.as_deref().unwrap_or("null");
        let named = format!("select {hash}, {} {from} limit {NAMED_MAX}", columns.join(", "));
        let mut rows = Vec::new();
        reader.query(&doing, &named, |row| {
            let [hash, fields @ ..] = row else { return Ok(()) };
            // A null key belongs nowhere.
            let hash = hash.map_or(Ok(i128::MAX), |hash| number(&doing, Some(hash)))?;
            let hash = i64::try_from(hash).unwrap_or(i64::MAX);
            rows.push((hash, fields.iter().map(|field| field.map(str::to_owned)).collect()));
            Ok(())
        })?;
        found.push(Misplaced { copy, count, rows });
    }
    Ok(found)
}

/// How many rows of a part each of some conditions holds for.
fn count_rows(site: &mut Site, part: &Part, conditions: &[String]) -> Result<Vec<u64>, VerifyError> {
    const DOING: &str = "looking for the parts of rows that are there twice";
    let counts: Vec<String> =
        conditions.iter().map(|condition| format!("count(*) filter (where {condition})")).collect();
    let any: Vec<String> = conditions.iter().map(|condition| format!("({condition})")).collect();
    let query = format!(
        "select {} from only {} where {}",
        counts.join(", "),
        qualified(&part.schema, &part.name),
        any.join(" or ")
    );
    let answer = site.control.simple_query(&query);
    for message in site.answer(DOING, answer)? {
        if let SimpleQueryMessage::Row(row) = message {
            let count = |column| row.get(column).and_then(|text: &str| text.parse().ok()).unwrap_or(0);
            return Ok((0..conditions.len()).map(count).collect());
        }
    }
    Ok(vec![0; conditions.len()])
}
