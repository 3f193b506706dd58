//! Which node owns which leaf of a sharded table, by the catalogs of all nodes, and how a move is noticed.
//!
//! # A partition that moves in the middle of a load
//!
//! Administrators and rebalancers move partitions between nodes, also during a load that takes weeks. What a mover does is: keep
//! writers out of the leaf, carry its committed rows to another node, make it a partition there and a foreign table here, let writers in
//! again. The load must neither lose a row nor load one twice, whenever that happens, with any number of loaders. Four things do it:
//!
//! 1. **A pair of chunk and leaf is loaded when the ledger of any node has it** ([`crate::ledger`]). The leaf takes its rows along and leaves its
//!    ledger rows behind, which stay true: they say what was loaded, not where it is.
//! 2. **Inside its transaction, after locking the leaves, a stream looks whether each is still attached here, and still the one it was when
//!    the plan was made** ([`Attachment`]: the table's oid, and the transaction that attached it). From then to the commit the lock (row
//!    exclusive, as any writer's) keeps a mover from carrying rows, as it must wait for writers. So no row gets into a leaf that is no
//!    longer read, and a leaf that went away and came back is not taken for one that stayed.
//! 3. **A plan is made from ledgers that are read after the attachments.** Whatever was loaded into a leaf on its earlier nodes was committed
//!    before it moved here, hence is in a ledger by the time it is seen here.
//! 4. **On one node, no two ledger rows of a chunk share a leaf.** Loaders may have plans of different age and so want
//!    different leaves of a chunk. Each takes an advisory lock on the chunk on that node and looks for an overlap before it inserts its ledger row.
//!
//! By 4 no pair is loaded twice on one node; by 2 and 3 none is loaded on a second one. A stream whose look fails rolls
//! back, all catalogs and ledgers are read again, and the load continues with the new owner. Loaders also look every [`LOOK`]
//! on its own, so that a leaf that arrives at an idle node is found.
//!
//! There is no circle of waits over several nodes: a stream has a transaction on one node only, and the streams of a wave of the method freeze, which do
//! wait for each other, take no lock that they would have to wait for.
//!
//! This rests on the mover: it carries every committed row and no other, and keeps every session from writing to the old table afterwards. A mover that
//! copies without keeping writers out loses rows of any writer; `verify` reports that.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(crate) use connect::sql::literal;
use postgres::{Client, GenericClient};

use crate::dataset::{Leaves, Placement, Table, leaf_names};
use crate::dispatch::{Attachment, Owned};
use crate::error::LoadError;
use crate::ledger::{self, Dataset, qualified};
use crate::node_sessions::NodeSessions;
use crate::options::{Stop, StopLevel};

/// How often the catalogs are looked at when nothing hints at a change.
pub(crate) const LOOK: Duration = Duration::from_secs(10);

/// How long a lock on a catalog's table is waited for at a time.
pub(crate) const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// The pause between two looks at catalogs that disagree.
const SETTLE_PAUSE: Duration = Duration::from_millis(200);

/// A partition as one node's catalog has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Partition {
    /// Its number among the leaves of all tables.
    pub(crate) leaf: u16,
    pub(crate) name: String,
    /// It is a table of this node, not a foreign one.
    pub(crate) local: bool,
    pub(crate) attachment: Attachment,
}

/// The partitions that this node's tables have. One that is being detached is none: queries of the parent do not return its rows.
pub(crate) fn partitions(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    tables: &[Table],
) -> Result<Vec<Partition>, LoadError> {
    let mut found = Vec::new();
    let leaves = Leaves::of_tables(tables, dataset.partitions);
    for (number, table) in tables.iter().enumerate().filter(|(_, table)| table.placement != Placement::Whole)
    {
        found.extend(partitions_of(client, dataset, table, leaves.at(number as u32, 0))?);
    }
    Ok(found)
}

/// The same of one table, whose leaves are numbered from `first` on.
fn partitions_of(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    table: &Table,
    first: u32,
) -> Result<Vec<Partition>, LoadError> {
    let parent = qualified(&dataset.schema_name, table.name);
    let rows = client.query(
        "select c.relname::text, n.nspname::text, c.relkind::text, c.oid, i.xmin::text, coalesce(pg_get_expr(c.relpartbound, c.oid), '')
         from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_namespace n on n.oid = c.relnamespace
         where i.inhparent = to_regclass($1) and coalesce(to_jsonb(i) ->> 'inhdetachpending', '') <> 'true'",
        &[&parent],
    );
    let rows = rows.map_err(|source| LoadError::sql("reading the partitions", source))?;
    let bounds: BTreeMap<String, u16> = (0..dataset.partitions)
        .map(|remainder| (table.placement.bound(remainder, dataset.partitions), (first + remainder) as u16))
        .collect();
    rows.iter()
        // Without a bound: it was detached or dropped while the query ran.
        .filter(|row| !row.get::<_, &str>(5).is_empty())
        .map(|row| {
            let (name, schema): (String, &str) = (row.get(0), row.get(1));
            let changed = |problem: String| LoadError::ChangedTable { table: name.clone(), problem };
            let bound: &str = row.get(5);
            let leaf = bounds.get(bound);
            let leaf = *leaf.ok_or_else(|| changed(format!("it is a partition {bound}")))?;
            let relation = qualified(schema, &name);
            let parent = parent.clone();
            let attachment = Attachment { oid: row.get(3), xmin: row.get(4), relation, parent };
            Ok(Partition { leaf, local: row.get::<_, &str>(2) == "r", attachment, name })
        })
        .collect()
}

/// The names of the leaves that are on one node each.
pub(crate) fn divided_names(dataset: &Dataset, tables: &[Table]) -> Vec<String> {
    let mut names = leaf_names(tables, dataset.partitions);
    names.truncate(Leaves::of_tables(tables, dataset.partitions).whole_from());
    names
}

/// The leaves that are whole tables, which every node owns.
pub(crate) fn whole(dataset: &Dataset, tables: &[Table]) -> Owned {
    let leaves = Leaves::of_tables(tables, dataset.partitions);
    (leaves.whole_from()..leaves.count()).map(|leaf| (leaf as u16, None)).collect()
}

/// What the nodes own, or the first leaf about which they disagree.
pub(crate) fn ownership(
    nodes: &[(&str, Vec<Partition>)],
    leaves: &[String],
) -> Result<Vec<Owned>, LoadError> {
    let mut owned = vec![Owned::new(); nodes.len()];
    for (leaf, name) in leaves.iter().enumerate() {
        let disagree = |problem: String| Err(LoadError::Placement { leaf: name.clone(), problem });
        let mut owners = Vec::new();
        for (node, (node_name, partitions)) in nodes.iter().enumerate() {
            let Some(partition) = partitions.iter().find(|partition| usize::from(partition.leaf) == leaf)
            else {
                return disagree(format!("is not a partition on {node_name}"));
            };
            if partition.local {
                owners.push((node, &partition.attachment));
            }
        }
        match owners.as_slice() {
            [(node, attachment)] => {
                owned[*node].insert(leaf as u16, Some((*attachment).clone()));
            }
            [] => return disagree("is not a table on any node".to_owned()),
            owners => {
                let names: Vec<&str> = owners.iter().map(|(node, _)| nodes[*node].0).collect();
                return disagree(format!("is a table on {}", names.join(" and on ")));
            }
        }
    }
    Ok(owned)
}

/// Reads what every node owns; waits while the catalogs disagree, as they do while a leaf is moved, for as long as for a lost server. Tables that
/// have taken the place of ours are noted as the dataset's, as they are partitions of its table.
pub(crate) fn settled(
    sessions: &mut NodeSessions,
    datasets: &[Dataset],
    tables: &[Table],
    reconnect_limit: Duration,
    stop: &Stop,
) -> Result<Vec<Owned>, LoadError> {
    let begun = Instant::now();
    loop {
        sessions.reconnect(reconnect_limit, Some(stop))?;
        let mut nodes = Vec::with_capacity(sessions.members.len());
        let mut locked = false;
        for (member, dataset) in sessions.members.iter_mut().zip(datasets) {
            match within(&mut member.control, LOCK_LIMIT, |client| partitions(client, dataset, tables)) {
                Ok(found) => nodes.push(found),
                Err(error) if is_locked(&error) && stop.level() == StopLevel::Run => locked = true,
                Err(error) => return Err(error.at(&member.name)),
            }
        }
        if locked {
            // Who moves a leaf has it locked, and may take its time.
            continue;
        }
        let named: Vec<(&str, Vec<Partition>)> =
            sessions.members.iter().map(|member| member.name.as_str()).zip(nodes).collect();
        let Some(model) = datasets.first() else { return Ok(Vec::new()) };
        match ownership(&named, &divided_names(model, tables)) {
            Ok(mut owned) => {
                owned.iter_mut().for_each(|owned| owned.extend(whole(model, tables)));
                let found: Vec<Vec<Partition>> =
                    named.into_iter().map(|(_, partitions)| partitions).collect();
                adopt(sessions, datasets, &found)?;
                return Ok(owned);
            }
            Err(error) if begun.elapsed() >= reconnect_limit || stop.level() > StopLevel::Run => {
                return Err(error);
            }
            Err(_) => std::thread::sleep(SETTLE_PAUSE),
        }
    }
}

/// Reads something that may be locked by the session that moves a leaf, with a limit to the wait for each lock.
pub(crate) fn within<T>(
    client: &mut Client,
    limit: Duration,
    question: impl FnOnce(&mut Client) -> Result<T, LoadError>,
) -> Result<T, LoadError> {
    let set = |client: &mut Client, milliseconds: u128| {
        let set = client.batch_execute(&format!("set lock_timeout = {milliseconds}"));
        set.map_err(|source| LoadError::sql("setting up the session", source))
    };
    set(client, limit.as_millis())?;
    let answer = question(client);
    // On a connection that is gone nothing has to be set back.
    let back = set(client, 0);
    answer.and_then(|answer| back.map(|()| answer))
}

/// Whether a lock was not to be had in time.
pub(crate) fn is_locked(error: &LoadError) -> bool {
    error.sqlstate().is_some_and(|state| &state.0 == b"55P03")
}

fn adopt(
    sessions: &mut NodeSessions,
    datasets: &[Dataset],
    found: &[Vec<Partition>],
) -> Result<(), LoadError> {
    for ((member, dataset), partitions) in sessions.members.iter_mut().zip(datasets).zip(found) {
        let names: Vec<&str> = partitions.iter().map(|partition| partition.name.as_str()).collect();
        let oids: Vec<u32> = partitions.iter().map(|partition| partition.attachment.oid).collect();
        ledger::adopt_tables(&mut *member.control, dataset.id, &names, &oids)
            .map_err(|error| error.at(&member.name))?;
    }
    Ok(())
}

/// What has moved from one plan to the next, one sentence per leaf.
pub(crate) fn moves(
    before: &[impl AsRef<Owned>],
    after: &[Owned],
    nodes: &[&str],
    leaves: &[String],
) -> Vec<String> {
    let owner = |all: &mut dyn Iterator<Item = &Owned>, leaf: u16| -> Option<(usize, Option<Attachment>)> {
        all.enumerate().find_map(|(node, owned)| Some((node, owned.get(&leaf)?.clone())))
    };
    let moved = |(leaf, name): (usize, &String)| {
        let (from, old) = owner(&mut before.iter().map(AsRef::as_ref), leaf as u16)?;
        let (to, new) = owner(&mut after.iter(), leaf as u16)?;
        if from != to {
            return Some(format!(
                "{name} has moved from {} to {}: the remaining rows go there",
                nodes[from], nodes[to]
            ));
        }
        (old != new).then(|| format!("{name} on {} was detached and attached again", nodes[to]))
    };
    leaves.iter().enumerate().filter_map(moved).collect()
}

/// The statements with which a stream, inside its transaction, keeps its leaves where they are and checks that they are where the plan has them. The
/// last one gives one row per leaf that is.
///
/// The parents come first, then the leaves as they ascend: the order in which `alter table ... detach partition` locks too. Without
/// `wait` a lock that another session has or waits for is an error.
pub(crate) fn hold_sql<'a>(attachments: impl Iterator<Item = &'a Attachment> + Clone, wait: bool) -> String {
    let nowait = if wait { "" } else { " nowait" };
    let relations: Vec<&str> = attachments.clone().map(|attachment| attachment.relation.as_str()).collect();
    let mut parents: Vec<&str> = attachments.clone().map(|attachment| attachment.parent.as_str()).collect();
    parents.dedup();
    let wanted: Vec<String> = attachments
        .map(|Attachment { oid, xmin, relation, parent }| {
            format!("({}::regclass, {oid}, '{xmin}', {}::regclass)", literal(relation), literal(parent))
        })
        .collect();
    format!(
        "lock table only {} in access share mode{nowait}; lock table only {} in row exclusive mode{nowait}; \
         select from (values {}) as w (relation, oid, attached_by, parent) \
         join pg_inherits i on i.inhrelid = w.oid and i.inhrelid = w.relation and i.xmin::text = w.attached_by \
         where i.inhparent = w.parent",
        parents.join(", only "),
        relations.join(", only "),
        wanted.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(leaf: u16, local: bool, oid: u32) -> Partition {
        let name = format!("usertable_p{leaf}");
        let (relation, parent) = (qualified("public", &name), qualified("public", "usertable"));
        let attachment = Attachment { oid, xmin: "7".into(), relation, parent };
        Partition { leaf, name, local, attachment }
    }

    #[test]
    fn a_leaf_has_one_owner_or_there_is_no_plan() {
        let leaves = crate::plan::names_of("usertable", 2);
        let node = |first: bool, second: bool| vec![partition(0, first, 1), partition(1, second, 2)];
        let owned = ownership(&[("n1", node(true, false)), ("n2", node(false, true))], &leaves).unwrap();
        assert_eq!(owned[0].keys().copied().collect::<Vec<_>>(), [0]);
        assert_eq!(owned[1].keys().copied().collect::<Vec<_>>(), [1]);
        for (n1, n2, message) in [
            (node(true, false), node(false, false), "usertable_p1 is not a table on any node"),
            (node(true, true), node(false, true), "usertable_p1 is a table on n1 and on n2"),
            (node(true, false), vec![partition(0, false, 1)], "usertable_p1 is not a partition on n2"),
        ] {
            let error = ownership(&[("n1", n1), ("n2", n2)], &leaves).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(error.hint().unwrap().contains("usertable_p1 on every node"));
        }
    }

    #[test]
    fn moves_are_reported_by_leaf() {
        let owned = |leaves: &[(u16, u32)]| -> Owned {
            leaves.iter().map(|(leaf, oid)| (*leaf, Some(partition(*leaf, true, *oid).attachment))).collect()
        };
        let before = [std::sync::Arc::new(owned(&[(0, 1), (2, 3)])), std::sync::Arc::new(owned(&[(1, 2)]))];
        let after = [owned(&[(2, 9)]), owned(&[(0, 4), (1, 2)])];
        assert_eq!(
            moves(&before, &after, &["n1", "n2"], &crate::plan::names_of("usertable", 3)),
            [
                "usertable_p0 has moved from n1 to n2: the remaining rows go there",
                "usertable_p2 on n1 was detached and attached again"
            ]
        );
    }

    #[test]
    fn leaves_are_locked_after_their_parent_and_looked_at_under_the_lock() {
        let attachments = [partition(1, true, 11).attachment, partition(4, true, 14).attachment];
        let sql = hold_sql(attachments.iter(), true);
        let parent = sql.find("only \"public\".\"usertable\" in access share").unwrap();
        let leaves = sql
            .find("only \"public\".\"usertable_p1\", only \"public\".\"usertable_p4\" in row excl")
            .unwrap();
        let look = sql
            .find("select from (values ('\"public\".\"usertable_p1\"'::regclass, 11, '7', '\"public")
            .unwrap();
        assert!(parent < leaves && leaves < look, "{sql}");
        let sql = hold_sql(attachments.iter(), false);
        assert_eq!(sql.matches(" mode nowait;").count(), 2, "{sql}");
    }
}
