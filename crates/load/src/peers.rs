//! Multimaster: the table is added to the publications of all nodes when it is complete on each of them.
//!
//! Before that it is in no publication, so what is loaded is not replicated: every node is filled separately ([`crate::shape::Shape::Repeated`]). The
//! moment of joining decides what is replicated: `pgoutput` looks up publications as of the change it decodes, so rows that were loaded before are
//! never sent.

use std::time::{Duration, Instant};

use connect::sql::literal;
use postgres::Client;

use crate::dataset::{Table, table_names};
use crate::error::LoadError;
use crate::fill::{Fill, Reporter};
use crate::ledger::{Dataset, qualified, quoted};
use crate::node_sessions::{NodeSession, NodeSessions};
use crate::options::{Stop, StopLevel};
use crate::progress::LoadEvent;
use crate::shape::Shape;
use engines::profile::{REPLICATING_EXTENSIONS, Replication};
use engines::sets::{self, Sent, Unsent};
use engines::{Cluster, directions};

/// How long nodes are waited for that lag behind what others wrote before the table was published.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(300);

/// How long a subscription is waited for that has stopped: pgactive starts one again 5 s after an error.
const RESTART_LIMIT: Duration = Duration::from_secs(10);

/// How often they are looked at.
const CATCH_UP_LOOK: Duration = Duration::from_millis(200);

/// Refuses to fill a table that is replicated already: each node would get its rows once more from every other.
pub(crate) fn refuse_published(
    sessions: &mut NodeSessions,
    datasets: &[Dataset],
    tables: &[Table],
) -> Result<(), LoadError> {
    for (member, dataset) in std::iter::zip(&mut sessions.members, datasets) {
        let names = table_names(tables, dataset.partitions);
        let found = member.control.query_opt(
            "select pubname::text from pg_publication_tables where schemaname = $1 and tablename = any($2) order by 1 limit 1",
            &[&dataset.schema_name, &names],
        );
        let found =
            found.map_err(|source| LoadError::sql("reading the publications", source).at(&member.name))?;
        if let Some(row) = found {
            return Err(LoadError::Published { publication: row.get(0) }.at(&member.name));
        }
    }
    Ok(())
}

/// Refuses to load nodes separately whose extension replicates a table before its rows are loaded, and does not let a session keep its writes.
pub(crate) fn refuse_extensions(sessions: &mut NodeSessions) -> Result<(), LoadError> {
    if sessions.shape != Shape::Repeated {
        return Ok(());
    }
    for member in &mut sessions.members {
        let found = member.control.query_opt(
            "select extname::text from pg_extension where extname = any ($1) order by 1 limit 1",
            &[&REPLICATING_EXTENSIONS],
        );
        let found =
            found.map_err(|source| LoadError::sql("reading the extensions", source).at(&member.name))?;
        if let Some(row) = found {
            return Err(LoadError::ReplicatesAll { extension: row.get(0) }.at(&member.name));
        }
    }
    Ok(())
}

/// Refuses some nodes of a group, before anything is made: what is made on them, the ledger too, is replicated to others that do not have the tables.
pub(crate) fn refuse_part(cluster: &Cluster, sessions: &mut NodeSessions) -> Result<(), LoadError> {
    for member in &mut sessions.members {
        let larger = cluster.larger_group(&mut member.control);
        let larger = larger.map_err(|source| LoadError::sql("reading the nodes of the group", source));
        if let Some((system, nodes)) = larger.map_err(|error| error.at(&member.name))? {
            let named = cluster.data_nodes().count();
            return Err(LoadError::PartOfGroup { system, nodes, named }.at(&member.name));
        }
    }
    Ok(())
}

/// The error to report instead of `error` when a node publishes all of its tables: nothing that is done there goes well then.
pub(crate) fn explain(sessions: &mut NodeSessions, error: LoadError) -> LoadError {
    for member in &mut sessions.members {
        let found = member
            .control
            .query_opt("select pubname::text from pg_publication where puballtables order by 1 limit 1", &[]);
        if let Ok(Some(row)) = found {
            return LoadError::Published { publication: row.get(0) }.at(&member.name);
        }
    }
    error
}

/// Adds the table to the publications that peers subscribe to, refreshes the subscriptions, and waits until every node has read what the others
/// wrote so far. `Ok(false)`: the stop was noticed.
pub(crate) fn publish(fill: &mut Fill<'_>, reporter: &mut Reporter<'_>) -> Result<bool, LoadError> {
    let (stop, content) = (fill.stop, fill.content);
    let members = &mut fill.sessions.members;
    let mut wanted: Vec<String> = Vec::new();
    for member in members.iter_mut() {
        let rows = member.control.query(
            "select distinct unnest(subpublications) from pg_subscription
             where subdbid = (select oid from pg_database where datname = current_database())",
            &[],
        );
        let rows =
            rows.map_err(|source| LoadError::sql("reading the subscriptions", source).at(&member.name))?;
        wanted.extend(rows.iter().map(|row| row.get::<_, String>(0)));
    }
    // All publications first: a subscription looks at what is published when it is refreshed.
    let mut published = 0;
    for (member, dataset) in std::iter::zip(&mut *members, &fill.datasets) {
        for table in content.tables() {
            let joined = add_to_publications(&mut member.control, dataset, table, &wanted)
                .and_then(|joined| Ok(joined + add_by_call(&mut member.control, dataset, table)?));
            published += joined.map_err(|error| error.at(&member.name))?;
        }
    }
    for member in members.iter_mut() {
        refresh(&mut member.control).map_err(|error| error.at(&member.name))?;
    }
    let begun = Instant::now();
    for member in members.iter_mut() {
        if !caught_up(&mut member.control, begun, stop).map_err(|error| error.at(&member.name))? {
            return Ok(false);
        }
    }
    let (mut faults, hidden) = match published {
        0 => Default::default(),
        _ => await_directions(members, stop)?,
    };
    if let (Some(dataset), true) = (fill.datasets.first(), published > 0 && faults.is_empty()) {
        let tables = sent(&dataset.schema_name, content.tables(), dataset.partitions);
        faults = unsent(members, &tables)?;
    }
    let message = match published {
        0 => "no node subscribes to a publication of another node: the table is not replicated".to_owned(),
        _ if !faults.is_empty() => format!(
            "{} was loaded on {} nodes separately and added to what they replicate, but replication does not work: {}; repair it before you write, then run \
             pgfathom verify",
            names(content.tables()),
            members.len(),
            faults.join("; ")
        ),
        _ if !hidden.is_empty() => format!(
            "{} was loaded on {} nodes separately and added to what they replicate. Whether replication works is unknown: {}; run pgfathom verify as a role \
             that may (-U)",
            names(content.tables()),
            members.len(),
            hidden.join("; ")
        ),
        _ => format!(
            "{} was loaded on {} nodes separately and added to what they replicate; all nodes have caught up",
            names(content.tables()),
            members.len()
        ),
    };
    reporter.observer.event(&LoadEvent {
        kind: record::event::NOTE,
        message,
        duration: Some(begun.elapsed()),
    });
    Ok(true)
}

/// The directions in which nothing is replicated, in words, after a short wait for processes that are started again. A node without a slot on another one waits
/// for nothing, so the positions of slots do not show it. Also, in words, what the role may not read of it.
fn await_directions(
    members: &mut [NodeSession],
    stop: &Stop,
) -> Result<(Vec<String>, Vec<String>), LoadError> {
    let begun = Instant::now();
    loop {
        let found = directions::of_clients(members.iter_mut().map(|member| &mut *member.control));
        let found = found.map_err(|source| LoadError::sql("reading the subscriptions", source))?;
        let faults = found.faults().into_iter().map(|(follower, source, why)| {
            format!("{} does not get what {} writes ({why})", members[follower].name, members[source].name)
        });
        let hidden = found.hidden.iter().map(|hidden| {
            let node = &members[hidden.node].name;
            format!("this role may not read the state of {} on {node} ({})", hidden.system, hidden.why)
        });
        let faults: Vec<String> = faults.collect();
        if faults.is_empty() || stop.level() > StopLevel::Run || begun.elapsed() >= RESTART_LIMIT {
            return Ok((faults, hidden.collect()));
        }
        std::thread::sleep(CATCH_UP_LOOK);
    }
}

/// The tables that do not reach a node although a subscription leads there, in words.
fn unsent(members: &mut [NodeSession], tables: &[Sent]) -> Result<Vec<String>, LoadError> {
    let found = sets::of_clients(members.iter_mut().map(|member| &mut *member.control), tables);
    let found = found.map_err(|source| LoadError::sql("reading which tables are replicated", source))?;
    let name = |node: usize| &members[node].name;
    let words = |Unsent { follower, source, table, why }: Unsent| {
        format!("{} does not get what {} writes to {table} ({why})", name(follower), name(source))
    };
    Ok(found.into_iter().map(words).collect())
}

/// The tables with rows, as catalogs of replication have them.
pub(crate) fn sent(schema: &str, tables: &[Table], partitions: u32) -> Vec<Sent> {
    let of_table = |table: &Table| {
        let (schema, root) = (schema.to_owned(), table.name.to_owned());
        let leaf = move |table: String| Sent { schema: schema.clone(), table, root: root.clone() };
        table.leaf_names(partitions).into_iter().map(leaf).collect::<Vec<_>>()
    };
    tables.iter().flat_map(of_table).collect()
}

/// The tables in words.
fn names(tables: &[Table]) -> String {
    tables.iter().map(|table| table.name).collect::<Vec<_>>().join(", ")
}

/// Returns how many publications of this node carry the table afterwards.
fn add_to_publications(
    client: &mut Client,
    dataset: &Dataset,
    table: &Table,
    wanted: &[String],
) -> Result<usize, LoadError> {
    let table = qualified(&dataset.schema_name, table.name);
    let rows = client.query(
        "select p.pubname::text,
                p.puballtables or exists (select from pg_publication_rel r
                    where r.prpubid = p.oid and r.prrelid = to_regclass($2))
         from pg_publication p where p.pubname = any($1)",
        &[&wanted, &table],
    );
    let rows = rows.map_err(|source| LoadError::sql("reading the publications", source))?;
    for row in rows.iter().filter(|row| !row.get::<_, bool>(1)) {
        let name: &str = row.get(0);
        client
            .batch_execute(&format!("alter publication {} add table {table}", quoted(name)))
            .map_err(|source| LoadError::sql(format!("adding the table to publication {name}"), source))?;
    }
    Ok(rows.len())
}

/// Replicates the table where that needs no publication: by a call, or because it is replicated from its creation on. Returns whether it is so.
fn add_by_call(client: &mut Client, dataset: &Dataset, table: &Table) -> Result<usize, LoadError> {
    let failed = |source| LoadError::sql("adding the table to the replication", source);
    let is_own =
        |replication: &Replication| replication.add_table.is_some() || replication.local_writes.is_some();
    let found = engines::engine::replications(is_own, |sign| {
        Ok(client.query_one(&format!("select {sign}"), &[])?.get::<_, bool>(0))
    });
    let found = found.map_err(failed)?;
    let oid = format!("{}::pg_catalog.regclass::oid", literal(&qualified(&dataset.schema_name, table.name)));
    for call in found.iter().filter_map(|replication| replication.add_table) {
        client.batch_execute(&call.replace("{table}", &oid)).map_err(failed)?;
    }
    Ok(found.len().min(1))
}

/// Makes the subscriptions of this node see what is published now. Rows that are there are not copied: they are here too.
fn refresh(client: &mut Client) -> Result<(), LoadError> {
    let rows = client.query(
        "select subname::text from pg_subscription
         where subenabled and subdbid = (select oid from pg_database where datname = current_database())",
        &[],
    );
    let rows = rows.map_err(|source| LoadError::sql("reading the subscriptions", source))?;
    for row in &rows {
        let name: &str = row.get(0);
        client
            .batch_execute(&format!(
                "alter subscription {} refresh publication with (copy_data = false)",
                quoted(name)
            ))
            .map_err(|source| LoadError::sql(format!("refreshing subscription {name}"), source))?;
    }
    Ok(())
}

/// Waits until all that subscribe to this node have confirmed what it has written so far.
fn caught_up(client: &mut Client, begun: Instant, stop: &Stop) -> Result<bool, LoadError> {
    let failed = |source| LoadError::sql("reading the progress of the subscribers", source);
    let end: String = client.query_one("select pg_current_wal_lsn()::text", &[]).map_err(failed)?.get(0);
    loop {
        let row = client
            .query_one(
                "select count(*), min(slot_name)::text from pg_replication_slots
                 where slot_type = 'logical' and database = current_database() and not temporary
                   and confirmed_flush_lsn < $1::text::pg_lsn",
                &[&end],
            )
            .map_err(failed)?;
        if row.get::<_, i64>(0) == 0 {
            return Ok(true);
        }
        if stop.level() > StopLevel::Run {
            return Ok(false);
        }
        if begun.elapsed() >= CATCH_UP_LIMIT {
            return Err(LoadError::Behind { slot: row.get(1), waited: begun.elapsed() });
        }
        std::thread::sleep(CATCH_UP_LOOK);
    }
}
