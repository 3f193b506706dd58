//! The tables of a proof, whose rows are placed on different shards, in their own schema.
//!
//! A row's shard is its column `shard`. On a sharded cluster each shard is another node; on one server there are two partitions, so that
//! the same workload must find there what it should.

mod converge;
mod pending;

use std::collections::BTreeSet;
use std::time::Duration;

use connect::ConnSpec;
use connect::cluster_file::Role;
use connect::sql::{identifier, literal};
use engines::directions;
use engines::profile::{Layout, REPLICATING_EXTENSIONS, Replication};
use engines::trust::{EVENT_TRIGGERS, EventTrigger, TRUSTED};

use super::{LiveError, again, again_if_cut, announced_on, arrival};
use crate::client::{Client, ClientError, text};
use crate::fault::Site;
pub(crate) use converge::converge;

/// Our schema on every node.
pub const SCHEMA: &str = "pgfathom_prove";
/// The begin of the schema's comment: we may drop a schema with it. The name of the proof follows.
const MARK: &str = "made by pgfathom prove";
/// The time limit for a new session: while the tables are made all nodes have to answer, and one that hangs would hold up the proof.
const SESSION_PATIENCE: Duration = Duration::from_secs(10);
/// The time limit for our statements.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long each step of the cleaning up may take: the result is printed after it.
const CLEANUP_PATIENCE: Duration = Duration::from_secs(10);
/// How long a node may take that need not answer.
pub(super) const ABSENT_PATIENCE: Duration = Duration::from_secs(2);
/// The number of shards on a single server.
const SHARDS_OF_ONE: usize = 2;

/// What a table looks like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name in our schema.
    pub name: &'static str,
    /// Its columns after `shard int not null`.
    pub columns: &'static str,
    /// Its primary key, which begins with the shard; `None` if duplicates must be possible.
    pub key: Option<&'static str>,
}

/// The table in which each node writes a row that all others must show.
const ARRIVED: Shape = Shape { name: "arrived", columns: "mark bigint not null", key: Some("shard, mark") };

/// Tables that were made. They are dropped by [`Tables::remove`].
#[derive(Clone, Debug)]
pub struct Tables {
    /// Names of the shards; the first has number 1 in the column `shard`.
    pub shards: Vec<String>,
    /// Whether they are on different nodes.
    pub is_spread: bool,
}

impl Tables {
    /// Makes our schema and these tables on every node that needs them. The rest of an earlier proof is dropped first.
    ///
    /// # Errors
    /// [`LiveError::Foreign`], and what the servers refuse.
    pub fn make(site: &Site, shapes: &[Shape]) -> Result<Tables, LiveError> {
        Tables::make_for(site, &[site.primary()], shapes)
    }

    /// The same, so that the whole table can be used through each of these nodes.
    ///
    /// # Errors
    /// As [`Tables::make`].
    pub(crate) fn make_for(site: &Site, entries: &[usize], shapes: &[Shape]) -> Result<Tables, LiveError> {
        let made = announced_on(site, "making the tables of the proof", || {
            match site.engine.layout.commits_everywhere() {
                // The others go on when one dies now, after a while.
                true => again(site, || {
                    site.move_entry();
                    Tables::build(site, &[site.primary()], shapes)
                }),
                // A failover or a restart in the middle is no reason to give up before anything was proved.
                false => again_if_cut(site, || Tables::build(site, entries, shapes)),
            }
        });
        if made.is_err() {
            remove_everywhere(site, ABSENT_PATIENCE);
        }
        made
    }

    fn build(site: &Site, entries: &[usize], shapes: &[Shape]) -> Result<Tables, LiveError> {
        site.follow_primary();
        let entry = site.primary();
        let layout = site.engine.layout;
        let mut holders: Vec<usize> =
            (0..site.nodes.len()).filter(|node| holds_tables(site, *node)).collect();
        if holders.is_empty() {
            holders.push(entry);
        }
        let readers = slots_of_peers(site, &holders)?;
        for (node, readers) in std::iter::zip(&holders, &readers) {
            let mut client = client(site, *node)?;
            refuse_replicated(&mut client, &site.nodes[*node].name, readers)?;
            refuse_absent(site, &mut client, &site.nodes[*node].name)?;
        }
        if layout.publishes() && holders.len() > 1 {
            let has_remains = |node: &usize| Ok(owner(&mut client(site, *node)?)?.flatten().is_some());
            let remains = holders.iter().map(has_remains).collect::<Result<Vec<bool>, ClientError>>()?;
            if remains.contains(&true) {
                pending::await_remains(site)?;
            }
        }
        for node in &holders {
            make_schema(&mut client(site, *node)?, site.proof().token())?;
        }
        if layout.commits_everywhere() {
            client(site, entry)?.execute(&mark_as_table(site.proof().token()))?;
        }
        let shards: Vec<String> = match layout {
            Layout::ForeignPartitions => holders.iter().map(|node| site.nodes[*node].name.clone()).collect(),
            _ => (1..=SHARDS_OF_ONE).map(|number| format!("part {number}")).collect(),
        };
        let needs_key = layout.publishes()
            && !replications(&mut client(site, entry)?, |replication| replication.needs_key)?.is_empty();
        for shape in shapes {
            if layout == Layout::ForeignPartitions {
                spread(site, entries, &holders, shape)?;
                continue;
            }
            for node in &holders {
                create(&mut client(site, *node)?, layout, shape, needs_key)?;
            }
        }
        if layout.publishes() && !shapes.is_empty() {
            for node in &holders {
                create(&mut client(site, *node)?, layout, &ARRIVED, needs_key)?;
            }
            publish(site, &holders, &[shapes, &[ARRIVED]].concat())?;
            let members =
                holders.iter().map(|node| Ok((*node, &*site.nodes[*node].name, client(site, *node)?)));
            let mut members = members.collect::<Result<Vec<_>, ClientError>>()?;
            let table = format!("{SCHEMA}.{}", ARRIVED.name);
            arrival::check(&mut members, &table)?;
        }
        Ok(Tables { shards, is_spread: layout.is_spread() })
    }

    /// Whether the tables are still those of this proof: checked before their content is judged. `client` is connected to the entry.
    ///
    /// # Errors
    /// [`LiveError::Disturbed`] when another proof has replaced them. Missing tables are no error here: a server may have lost them.
    pub fn check(&self, site: &Site, client: &mut Client) -> Result<(), LiveError> {
        let ours = site.proof().token();
        match owner(client)? {
            Some(Some(owner)) if owner.contains(ours) => Ok(()),
            Some(owner) => Err(LiveError::Disturbed(match owner {
                Some(owner) => format!("the tables were replaced during the proof; now they are {owner}"),
                None => format!("the schema {SCHEMA} was replaced during the proof"),
            })),
            None => Ok(()),
        }
    }

    /// Drops our schema everywhere. A failure becomes a note: the results are kept.
    pub fn remove(&self, site: &Site) {
        announced_on(site, "removing the tables of the proof", || {
            if !site.engine.layout.publishes() || pending::is_received(site) {
                remove_everywhere(site, CLEANUP_PATIENCE);
            }
        });
    }

    /// The numbers of the shards.
    pub fn numbers(&self) -> std::ops::RangeInclusive<usize> {
        1..=self.shards.len()
    }
}

/// Drops our schema on every node that answers; `patience`: how long a new session with one of the others than the entry may take.
pub(super) fn remove_everywhere(site: &Site, patience: Duration) {
    let entry = site.primary();
    let others = (0..site.nodes.len()).filter(|node| *node != entry && holds_tables(site, *node));
    for node in std::iter::once(entry).chain(others) {
        if let Err(error) = remove_from(site, node, patience) {
            site.note(format!(
                "the schema {SCHEMA} is left on {}: {error}; to remove it: drop schema {SCHEMA} cascade; the next proof does it, too",
                site.nodes[node].name
            ));
        }
    }
}

/// The slots of each of these nodes that the others read: every one of them gets the tables of a proof before a row is written.
fn slots_of_peers(site: &Site, holders: &[usize]) -> Result<Vec<Vec<String>>, LiveError> {
    let mut slots = vec![Vec::new(); holders.len()];
    if !site.engine.layout.publishes() || holders.len() < 2 {
        return Ok(slots);
    }
    let mut clients = holders.iter().map(|node| client(site, *node)).collect::<Result<Vec<_>, _>>()?;
    let found = directions::find(clients.len(), |node, sql| arrival::ask(&mut clients[node], sql))?;
    for direction in found.all.into_iter().filter(|direction| direction.has_slot) {
        slots[direction.source].push(direction.subscription.slot);
    }
    Ok(slots)
}

/// Refuses a database that sends every new table to other servers: they do not have the tables of a proof, and a subscriber stops at the first row that it has
/// no table for, and with it the user's own replication. `readers`: slots of servers that will have the tables.
pub(crate) fn refuse_replicated(
    client: &mut Client,
    node: &str,
    readers: &[String],
) -> Result<(), LiveError> {
    let list = |names: &mut dyn Iterator<Item = String>| names.collect::<Vec<_>>().join(", ");
    let extensions = list(&mut REPLICATING_EXTENSIONS.iter().map(|name| literal(name)));
    let readers = list(&mut readers.iter().map(|name| literal(name)));
    let found = client.request(&format!(
        "select 'the publication ' || pg_catalog.quote_ident(p.pubname) || ', which the slot ' || pg_catalog.quote_ident(s.slot_name) || ' may read,' \
         from pg_catalog.pg_publication p cross join pg_catalog.pg_replication_slots s \
         where p.puballtables and s.slot_type = 'logical' and s.database = pg_catalog.current_database() \
           and s.slot_name <> all (array[{readers}]::pg_catalog.name[]) \
         union all select 'the extension ' || extname from pg_catalog.pg_extension where extname in ({extensions}) limit 1"
    ))?;
    // An engine without publications replicates otherwise.
    match found.value() {
        None => Ok(()),
        Some(what) => Err(LiveError::Replicated { node: node.to_owned(), what }),
    }
}

/// Refuses a group of nodes of which some are not in the cluster, as `load` does: the tables of a proof are replicated to those, too, and they would not have
/// them. A cluster that replicates nothing itself makes them on one node, which only a system that replicates each table at once does not leave alone.
fn refuse_absent(site: &Site, client: &mut Client, node: &str) -> Result<(), LiveError> {
    let publishes = site.engine.layout.publishes();
    for replication in replications(client, Replication::has_group)? {
        let nodes = client.execute(replication.nodes)?.rows().len();
        let is_larger = publishes && nodes > site.nodes.len();
        if is_larger || !publishes && replication.local_writes.is_some() {
            let what = format!(
                "{}, whose group has {nodes} nodes while the proof has {},",
                replication.name,
                site.nodes.len()
            );
            return Err(LiveError::Replicated { node: node.to_owned(), what });
        }
    }
    Ok(())
}

/// The replication systems with one of the values that `is_wanted` looks for, as far as a server has them.
pub(crate) fn replications(
    client: &mut Client,
    is_wanted: impl Fn(&Replication) -> bool,
) -> Result<Vec<&'static Replication>, ClientError> {
    engines::engine::replications(is_wanted, |sign| {
        // An engine that does not know these catalogs refuses the question.
        let reply = client.request(&format!("select {sign}"))?;
        Ok(reply.value().as_deref() == Some("t"))
    })
}

/// The connection for tables of a proof that are on one node only: its writes stay there.
pub(crate) fn of_one_node(spec: &ConnSpec) -> Result<ConnSpec, ClientError> {
    let mut client = Client::connect(spec, PATIENCE)?;
    let found = replications(&mut client, |replication| replication.local_writes.is_some())?;
    let settings = found.iter().filter_map(|replication| replication.local_writes);
    let mut spec = spec.clone();
    spec.session_settings.extend(settings.map(|(name, value)| (name.to_owned(), value.to_owned())));
    Ok(spec)
}

/// Whether tables have to be created on this node, beside the entry.
fn holds_tables(site: &Site, node: usize) -> bool {
    match site.engine.layout {
        Layout::ForeignPartitions => site.nodes[node].role == Role::Shard,
        layout => layout.publishes(),
    }
}

pub(super) fn client(site: &Site, node: usize) -> Result<Client, ClientError> {
    let client = Client::connect(&site.nodes[node].spec, SESSION_PATIENCE)?;
    client.set_timeout(Some(PATIENCE));
    Ok(client)
}

/// Inserts the first rows of a proof, each of them as `table values ...`, in a statement of its own: not every engine takes rows of several shards in one.
/// Where every node has all rows, any node that answers takes them.
///
/// # Errors
/// When they are refused, or no node took them in time.
pub(super) fn fill(
    site: &Site,
    node: usize,
    rows: impl IntoIterator<Item = String> + Clone,
) -> Result<(), LiveError> {
    let mut attempt = 0;
    again(site, || {
        attempt += 1;
        // What an attempt that was cut off has inserted stays. Not every engine knows the clause.
        let unless_there = if attempt == 1 { "" } else { " on conflict do nothing" };
        let mut client = match node == site.primary() || site.engine.layout.commits_everywhere() {
            true => site.enter(PATIENCE)?,
            false => client(site, node)?,
        };
        for row in rows.clone() {
            client.execute(&format!("insert into {row}{unless_there}"))?;
        }
        Ok(())
    })
}

/// Drops our schema on one node, as long as it is this proof's.
fn remove_from(site: &Site, node: usize, patience: Duration) -> Result<(), LiveError> {
    // The primary may have changed again, or need another address.
    let mut client = match node == site.primary() {
        true => site.enter(CLEANUP_PATIENCE)?,
        false => Client::connect(&site.nodes[node].spec, patience)?,
    };
    client.set_timeout(Some(CLEANUP_PATIENCE));
    let is_ours = match owner(&mut client)? {
        Some(Some(owner)) => owner.contains(site.proof().token()),
        Some(None) | None => false,
    };
    if is_ours {
        client
            .execute(&format!("set client_min_messages = error; drop schema if exists {SCHEMA} cascade"))?;
    }
    Ok(())
}

/// Whether our schema exists, and its owner: its comment, or its table that stands for one, if it begins with our mark. The comment alone is not enough: any
/// role that may create schemas can write it.
fn owner(client: &mut Client) -> Result<Option<Option<String>>, ClientError> {
    let there = client.execute(&format!(
        "select case when n.nspowner in ({TRUSTED}) then coalesce(pg_catalog.obj_description(n.oid, 'pg_namespace'), \
           (select c.relname || ', ' || a.attname from pg_catalog.pg_class c join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = 1 \
            where c.relnamespace = n.oid and c.relname = '{MARK}' and c.relowner in ({TRUSTED}))) end \
         from pg_catalog.pg_namespace n where n.nspname = '{SCHEMA}'"
    ))?;
    let comment = there.rows().first().map(|row| row.first().and_then(text));
    Ok(comment.map(|comment| comment.filter(|words| words.starts_with(MARK))))
}

/// Refuses a database in which the statements that make and drop our tables would run code of another role.
fn refuse_event_triggers(client: &mut Client) -> Result<(), LiveError> {
    let found = client.execute(EVENT_TRIGGERS)?;
    let Some(first) = found.rows().first() else { return Ok(()) };
    Err(LiveError::EventTrigger(EventTrigger::of(|at| first.get(at).and_then(text))))
}

/// Makes our schema for this proof. No other role may use it, whatever the default privileges are: so no role can attach code to the tables in it.
pub(crate) fn make_schema(client: &mut Client, proof: &str) -> Result<(), LiveError> {
    refuse_event_triggers(client)?;
    match owner(client)? {
        None => {}
        Some(Some(_)) => {
            client.execute(&format!("set client_min_messages = error; drop schema {SCHEMA} cascade"))?;
        }
        Some(None) => return Err(LiveError::Foreign(SCHEMA)),
    }
    // An engine that refuses the question has no such settings.
    client.request(&engines::engine::plain_schemas(false))?;
    client.execute(&format!("create schema {SCHEMA}; {}", mark(proof)))?;
    // An engine without this statement has no default privileges on schemas.
    let others = client.request(&format!(
        "select distinct case a.grantee when 0 then 'public' else pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) end \
         from pg_catalog.pg_namespace n cross join lateral pg_catalog.aclexplode(n.nspacl) a \
         where n.nspname = '{SCHEMA}' and a.grantee <> n.nspowner"
    ));
    let others = others.map_err(ClientError::from)?;
    for role in others.rows().iter().filter_map(|row| row.first().and_then(text)) {
        client.execute(&format!("revoke all on schema {SCHEMA} from {role}"))?;
    }
    Ok(())
}

/// The statement that marks our schema as that of this proof.
fn mark(proof: &str) -> String {
    format!("comment on schema {SCHEMA} is '{MARK}, {proof}'")
}

/// The statement that makes an empty table whose name and column are this mark: an engine that brings the schema to its other nodes does so without the
/// comment, and a node that was away at that time gets it later.
fn mark_as_table(proof: &str) -> String {
    format!("create table {SCHEMA}.{} ({} int)", identifier(MARK), identifier(proof))
}

/// Drops our schema, as long as it is this proof's.
pub(crate) fn drop_schema(client: &mut Client, proof: &str) -> Result<(), ClientError> {
    if owner(client)?.flatten().is_some_and(|owner| owner.contains(proof)) {
        client
            .execute(&format!("set client_min_messages = error; drop schema if exists {SCHEMA} cascade"))?;
    }
    Ok(())
}

/// A key for rows that have none: the node that inserts a row chooses it, and no two nodes choose the same.
const ROW_KEY: &str = ", row_key text primary key \
    default pg_catalog.concat_ws(' ', pg_catalog.random(), pg_catalog.clock_timestamp(), pg_catalog.pg_backend_pid())";

/// Creates a table whose rows the engine places by their shard, if it places rows.
fn create(client: &mut Client, layout: Layout, shape: &Shape, needs_key: bool) -> Result<(), ClientError> {
    let table = format!("{SCHEMA}.{}", shape.name);
    if needs_key && shape.key.is_none() {
        let columns = shape.columns;
        let sql = format!("create table {table} (shard int not null, {columns}{ROW_KEY})");
        return client.execute(&sql).map(drop);
    }
    let Layout::Spread(spread) = layout else { return client.execute(&plain(&table, shape)).map(drop) };
    let parameter = spread.parameter("shard").map(|parameter| format!(" with ({parameter})"));
    client.execute(&(plain(&table, shape) + &parameter.unwrap_or_default()))?;
    spread.statement(&table, Some("shard")).map_or(Ok(()), |statement| client.execute(&statement).map(drop))
}

fn plain(table: &str, shape: &Shape) -> String {
    let key = shape.key.map(|key| format!(", primary key ({key})")).unwrap_or_default();
    format!("create table {table} (shard int not null, {}{key})", shape.columns)
}

/// A leaf on each node, and on each entry node a parent, partitioned by list into these leaves.
fn spread(site: &Site, entries: &[usize], holders: &[usize], shape: &Shape) -> Result<(), LiveError> {
    let leaf = |number: usize| format!("{}_{number}", shape.name);
    for (at, node) in holders.iter().enumerate() {
        client(site, *node)?.execute(&plain(&format!("{SCHEMA}.{}", leaf(at + 1)), shape))?;
    }
    for entry in entries {
        let mut client = client(site, *entry)?;
        client.execute(&format!(
            "create table {SCHEMA}.{} (shard int not null, {}) partition by list (shard)",
            shape.name, shape.columns
        ))?;
        for (at, node) in holders.iter().enumerate() {
            let (number, leaf) = (at + 1, leaf(at + 1));
            client.execute(&match node == entry {
                true => format!(
                    "alter table {SCHEMA}.{} attach partition {SCHEMA}.{leaf} for values in ({number})",
                    shape.name
                ),
                false => format!(
                    "create foreign table {SCHEMA}.{leaf} partition of {SCHEMA}.{} for values in ({number}) \
                     server {} options (schema_name '{SCHEMA}', table_name '{leaf}')",
                    shape.name,
                    identifier(site.nodes[*node].server_at(&site.nodes[*entry].name))
                ),
            })?;
        }
    }
    Ok(())
}

/// Every node replicates its rows to every other one, as soon as all have the tables.
fn publish(site: &Site, holders: &[usize], shapes: &[Shape]) -> Result<(), LiveError> {
    let mut followed = BTreeSet::new();
    for node in holders {
        followed.extend(followed_publications(&mut client(site, *node)?)?);
    }
    // A cluster of `up` has one publication; what else its subscriptions name is the user's.
    if followed.contains(lab::local::PUBLICATION) {
        followed.retain(|name| name == lab::local::PUBLICATION);
    }
    let followed: Vec<String> = followed.iter().map(|name| literal(name)).collect();
    let followed = format!("array[{}]::pg_catalog.name[]", followed.join(", "));
    for node in holders {
        let mut client = client(site, *node)?;
        let is_own = |found: &Replication| found.add_table.is_some() || found.local_writes.is_some();
        let own = replications(&mut client, is_own)?;
        for shape in shapes.iter().filter(|_| !own.is_empty()) {
            let oid = format!("'{SCHEMA}.{}'::pg_catalog.regclass::oid", shape.name);
            for call in own.iter().filter_map(|replication| replication.add_table) {
                client.execute(&call.replace("{table}", &oid))?;
            }
        }
        for shape in shapes.iter().filter(|_| own.is_empty()) {
            if shape.key.is_none() {
                // Without a key a row is identified by all columns.
                client.execute(&format!("alter table {SCHEMA}.{} replica identity full", shape.name))?;
            }
            let own =
                "select pubname from pg_catalog.pg_publication where not puballtables and pubname = any";
            for publication in names(&mut client, &format!("{own} ({followed}) order by 1"))? {
                let publication = identifier(&publication);
                client
                    .execute(&format!("alter publication {publication} add table {SCHEMA}.{}", shape.name))?;
            }
        }
    }
    for node in holders {
        let mut client = client(site, *node)?;
        // Subscriptions are of all databases; those of the user to other publications stay as they are.
        let subscriptions = format!(
            "select s.subname from pg_catalog.pg_subscription s \
             join pg_catalog.pg_database d on d.oid = s.subdbid and d.datname = pg_catalog.current_database() \
             where s.subpublications && {followed}::text[] order by 1"
        );
        for name in names(&mut client, &subscriptions)? {
            let name = identifier(&name);
            client.execute(&format!(
                "alter subscription {name} refresh publication with (copy_data = false)"
            ))?;
        }
    }
    Ok(())
}

/// The publications that a node gets the writes of its peers by: its subscriptions to them do not forward what comes from elsewhere.
fn followed_publications(client: &mut Client) -> Result<Vec<String>, ClientError> {
    let knows_origin = names(
        client,
        "select attname from pg_catalog.pg_attribute where attrelid = 'pg_catalog.pg_subscription'::pg_catalog.regclass and attname = 'suborigin'",
    )?;
    let of_peers = if knows_origin.is_empty() { "true" } else { "s.suborigin = 'none'" };
    names(
        client,
        &format!(
            "select distinct p.name from pg_catalog.pg_subscription s \
             join pg_catalog.pg_database d on d.oid = s.subdbid and d.datname = pg_catalog.current_database() \
             cross join lateral pg_catalog.unnest(s.subpublications) p (name) where {of_peers}"
        ),
    )
}

/// The texts in the first column of an answer.
fn names(client: &mut Client, sql: &str) -> Result<Vec<String>, ClientError> {
    Ok(client.execute(sql)?.rows().iter().filter_map(|row| row.first().and_then(text)).collect())
}
