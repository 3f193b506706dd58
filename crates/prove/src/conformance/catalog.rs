//! The catalog and the views: engine, nodes, sizes, WAL, links.

use std::time::Duration;

use connect::poll;
use engines::Cluster;
use engines::profile::{Copies, Ddl, Discovery, Layout, NodeLinks};

use super::{Outcome, Stage};
use crate::client::ClientError;
use crate::live::tables::{SCHEMA, replications};
use record::number::counted;

/// How long DDL may take to reach another node.
const DDL_TIMEOUT: Duration = Duration::from_secs(20);

/// The engine and its nodes, from each node.
pub(super) fn discovery(stage: &mut Stage<'_>, is_listed: bool) {
    let (engine, count) = (stage.site.engine, stage.cluster.nodes.len());
    for node in 0..count {
        let check = format!("discovery: node {}", node + 1);
        if let Discovery::None(reason) = engine.discovery {
            stage.add(check, "nodes from a cluster file", Outcome::NotChecked(reason.to_owned()));
            return;
        }
        let outcome = match Cluster::discover(&stage.cluster.nodes[node].spec) {
            Err(error) => Outcome::Differs(error.to_string()),
            // The catalog of a primary does not have the addresses of its standbys.
            Ok(found) if engine.layout == Layout::OneServer && count > 1 => Outcome::of(
                found.engine == engine,
                format!("{}; its catalog names no standbys", found.engine),
            ),
            Ok(found) => {
                let agrees = found.engine == engine && found.nodes.len() == count;
                Outcome::of(
                    agrees,
                    format!("{}, {}", found.engine, counted(found.nodes.len() as u64, "node")),
                )
            }
        };
        let from = if is_listed { "of the cluster file" } else { "found from the first one" };
        stage.add(check, format!("{engine}, {count} nodes {from}"), outcome);
    }
}

/// The values of the profile that name functions and views. The tables of the routing checks have rows.
pub(super) fn views(stage: &mut Stage<'_>) {
    let engine = stage.site.engine;
    let outcome = Outcome::tried(sizes(stage));
    stage.add("sizes", engine.sizes.table, outcome);
    let outcome = Outcome::tried(wal(stage));
    let claimed = if engine.has_wal { "the WAL of the entry node has its commits" } else { "no claim" };
    stage.add("wal", claimed, outcome);
    let outcome = Outcome::tried(links(stage));
    stage.add("links", format!("nodes connect by {}", engine.links), outcome);
    if let Layout::Copies(Copies { ddl, .. }) = engine.layout {
        let claimed = match ddl {
            Ddl::EachNode => "tables are created on each node",
            Ddl::Replicated => "the engine replicates DDL",
        };
        let outcome = Outcome::tried(tables(stage, ddl));
        stage.add("ddl", claimed, outcome);
    }
    if let Discovery::Copies(replications) = engine.discovery {
        for prefix in replications.iter().flat_map(|replication| replication.own.subscriptions) {
            let outcome = Outcome::tried(own_subscriptions(stage, prefix));
            let claimed = format!("subscriptions {prefix}... are its own, and disabled");
            stage.add("subscriptions", claimed, outcome);
        }
    }
    if let Layout::Spread(_) = engine.layout {
        let (count, entry) = (stage.site.nodes.len(), stage.entry);
        for node in (0..count).filter(|node| *node != entry) {
            let outcome = Outcome::tried(seen_from(stage, node));
            stage.add(format!("entry: node {}", node + 1), engine.entry.to_string(), outcome);
        }
    }
}

fn count(stage: &Stage<'_>, node: usize, sql: &str) -> Result<i64, ClientError> {
    Ok(stage.client(node)?.execute(sql)?.number().unwrap_or_default())
}

fn sizes(stage: &Stage<'_>) -> Result<Outcome, ClientError> {
    let columns = stage.site.engine.sizes.columns("c.oid");
    let reply = stage.client(stage.entry)?.execute(&format!(
        "select {columns} from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where n.nspname = '{SCHEMA}' and c.relname = 'wire'"
    ))?;
    let row = reply.rows().first().cloned().unwrap_or_default();
    let bytes: Vec<i64> = row.iter().filter_map(crate::client::number).collect();
    let agrees = bytes.len() == 2 && bytes.iter().all(|bytes| *bytes > 0);
    Ok(Outcome::of(agrees, format!("bytes of a table with rows and of its indexes: {bytes:?}")))
}

fn wal(stage: &Stage<'_>) -> Result<Outcome, ClientError> {
    if !stage.site.engine.has_wal {
        return Ok(Outcome::Note);
    }
    let mut client = stage.client(stage.entry)?;
    let before = client.execute("select pg_catalog.pg_current_wal_lsn()")?;
    let before = before.value().unwrap_or_default();
    // Otherwise the WAL of an asynchronous commit is written some time later.
    client.execute("set synchronous_commit = local")?;
    client.execute(&format!("update {SCHEMA}.wire set v = v + 1"))?;
    let grown = client.execute(&format!(
        "select pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), '{before}')::bigint"
    ))?;
    let grown = grown.number().unwrap_or_default();
    Ok(Outcome::of(grown > 0, format!("an update of all rows wrote {grown} bytes")))
}

fn links(stage: &Stage<'_>) -> Result<Outcome, ClientError> {
    if stage.site.nodes.len() < 2 {
        return Ok(Outcome::NotChecked("there is one node".to_owned()));
    }
    let sql = match stage.site.engine.links {
        NodeLinks::Streaming => "select count(*) from pg_catalog.pg_stat_replication",
        NodeLinks::ForeignServers => "select count(*) from pg_catalog.pg_foreign_server",
        NodeLinks::Subscriptions => "select count(*) from pg_catalog.pg_subscription",
        NodeLinks::Own => {
            return Ok(Outcome::NotChecked("the engine's own connections have no view".to_owned()));
        }
    };
    let mut found = count(stage, stage.entry, sql)?;
    let foreign = replications(&mut stage.client(stage.entry)?, |other| other.subscriptions.is_some())?;
    for subscriptions in foreign.iter().filter_map(|replication| replication.subscriptions) {
        found += count(stage, stage.entry, &format!("select count(*) from ({subscriptions}) f"))?;
    }
    let others = stage.site.nodes.len() as i64 - 1;
    Ok(Outcome::of(found >= others, format!("{found} on the entry node, for {others} other nodes")))
}

/// Whether a table that was made on the entry node is on the others, too.
fn tables(stage: &Stage<'_>, ddl: Ddl) -> Result<Outcome, ClientError> {
    let there = format!(
        "select count(*) from pg_catalog.pg_tables where schemaname = '{SCHEMA}' and tablename = 'wire'"
    );
    for node in (0..stage.site.nodes.len()).filter(|node| *node != stage.entry) {
        let is_there = || count(stage, node, &there).is_ok_and(|count| count == 1);
        let arrived = match ddl {
            Ddl::EachNode => is_there(),
            Ddl::Replicated => poll::until(DDL_TIMEOUT, || is_there().then_some(())).is_some(),
        };
        if arrived != (ddl == Ddl::Replicated) {
            let what = if arrived { "has" } else { "does not have" };
            return Ok(Outcome::Differs(format!("node {} {what} a table of the entry node", node + 1)));
        }
    }
    Ok(Outcome::Agrees(counted(stage.site.nodes.len() as u64, "node")))
}

fn own_subscriptions(stage: &Stage<'_>, prefix: &str) -> Result<Outcome, ClientError> {
    let all = count(stage, stage.entry, "select count(*) from pg_catalog.pg_subscription")?;
    let own = count(
        stage,
        stage.entry,
        &format!(
            "select count(*) from pg_catalog.pg_subscription where pg_catalog.starts_with(subname, '{prefix}') and not subenabled"
        ),
    )?;
    Ok(Outcome::of(own > 0, format!("{own} of {all} subscriptions")))
}

/// Whether all rows are seen through another node.
fn seen_from(stage: &Stage<'_>, node: usize) -> Result<Outcome, ClientError> {
    let sql = format!("select count(*) from {SCHEMA}.wire");
    let (here, there) = (count(stage, stage.entry, &sql)?, count(stage, node, &sql)?);
    if here <= 0 {
        return Ok(Outcome::NotChecked("the table has no rows".to_owned()));
    }
    Ok(Outcome::of(here == there, format!("{there} of {here} rows")))
}
