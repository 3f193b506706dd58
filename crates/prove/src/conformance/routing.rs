//! Whether the client finds the leaf of a key where the server has it, and hashes as the server does.

use connect::cluster_file::Role;
use connect::sql::identifier;
use engines::hash;
use engines::placement::{Placement, Routing};
use engines::profile::{Layout, LoadPath};

use super::{Outcome, Stage};
use crate::client::{Client, ClientError};
use crate::live::tables::SCHEMA;

/// Keys of each type.
const KEYS: u64 = 256;
/// Partitions of a table that is on one node.
const PARTITIONS: usize = 4;
/// Of all values that are computed here.
const SEED: u64 = 1;

/// How a number is written as a value of a type.
type Written = fn(u64) -> String;

/// Types of keys.
const TYPES: [(&str, Written); 4] = [
    ("text", |number| format!("user{number:0width$x}", width = (number % 40) as usize)),
    ("int", |number| (number as i32).to_string()),
    ("bigint", |number| (number as i64).to_string()),
    ("uuid", |number| {
        let hex = format!("{number:016x}{:016x}", random(number));
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }),
];

fn random(number: u64) -> u64 {
    hash::bytes_extended(&number.to_le_bytes(), SEED)
}

pub(super) fn check(stage: &mut Stage<'_>) {
    for (kind, written) in TYPES {
        if stage.is_stopped() {
            return;
        }
        let keys: Vec<String> = (0..KEYS).map(|number| written(random(number))).collect();
        let claimed = format!("pgfathom finds the leaf of a key of type {kind} as the server does");
        let table = format!("routing_{kind}");
        match fill(stage, &table, kind, &keys) {
            Ok(()) => {
                let (outcome, placement) = route(stage, &table, &keys);
                stage.add(format!("routing: {kind}"), claimed, outcome);
                if let Some(placement) = placement.filter(|_| stage.site.engine.load == LoadPath::Leaves) {
                    let outcome = Outcome::tried(rows(stage, &placement, &keys));
                    stage.add(
                        format!("rows: {kind}"),
                        "each row is in the leaf that pgfathom computes",
                        outcome,
                    );
                }
            }
            Err(error) => stage.add(format!("routing: {kind}"), claimed, Outcome::tried(Err(error))),
        }
    }
    let outcome = Outcome::tried(hashes(stage));
    stage.add("hash functions", "the server hashes text, int, bigint and uuid as PostgreSQL does", outcome);
}

fn fill(stage: &Stage<'_>, table: &str, kind: &str, keys: &[String]) -> Result<(), ClientError> {
    create(stage, table, kind)?;
    let rows: Vec<String> = keys.iter().map(|key| format!("('{key}', 1)")).collect();
    stage
        .client(stage.entry)?
        .execute(&format!("insert into {SCHEMA}.{table} values {}", rows.join(", ")))
        .map(drop)
}

/// A table whose rows the engine places by its key `k`.
fn create(stage: &Stage<'_>, table: &str, kind: &str) -> Result<(), ClientError> {
    let site = stage.site;
    let mut entry = stage.client(stage.entry)?;
    match site.engine.layout {
        layout @ Layout::Spread(_) => create_plain(&mut entry, layout, table, kind),
        Layout::ForeignPartitions => {
            let holders: Vec<usize> =
                (0..site.nodes.len()).filter(|node| site.nodes[*node].role == Role::Shard).collect();
            entry.execute(&parent(table, kind, ""))?;
            for (remainder, node) in holders.iter().enumerate() {
                let leaf = format!("{table}_{remainder}");
                let plain = format!("create table {SCHEMA}.{leaf} (k {kind} primary key, v int not null)");
                stage.client(*node)?.execute(&plain)?;
                let bound = format!("for values with (modulus {}, remainder {remainder})", holders.len());
                entry.execute(&match *node == stage.entry {
                    true => format!("alter table {SCHEMA}.{table} attach partition {SCHEMA}.{leaf} {bound}"),
                    false => format!(
                        "create foreign table {SCHEMA}.{leaf} partition of {SCHEMA}.{table} {bound} \
                         server {} options (schema_name '{SCHEMA}', table_name '{leaf}')",
                        identifier(site.nodes[*node].server_at(&site.nodes[stage.entry].name))
                    ),
                })?;
            }
            Ok(())
        }
        Layout::OneServer | Layout::Copies(_) => {
            entry.execute(&parent(table, kind, ", primary key (k)"))?;
            for remainder in 0..PARTITIONS {
                entry.execute(&format!(
                    "create table {SCHEMA}.{table}_{remainder} partition of {SCHEMA}.{table} \
                     for values with (modulus {PARTITIONS}, remainder {remainder})"
                ))?;
            }
            Ok(())
        }
    }
}

fn parent(table: &str, kind: &str, key: &str) -> String {
    format!("create table {SCHEMA}.{table} (k {kind} not null, v int not null{key}) partition by hash (k)")
}

/// A table without partitions of our own.
pub(super) fn create_plain(
    client: &mut Client,
    layout: Layout,
    table: &str,
    kind: &str,
) -> Result<(), ClientError> {
    let name = format!("{SCHEMA}.{table}");
    let plain = format!("create table {name} (k {kind} primary key, v int not null)");
    let Layout::Spread(spread) = layout else { return client.execute(&plain).map(drop) };
    let parameter = spread.parameter("k").map(|parameter| format!(" with ({parameter})"));
    client.execute(&(plain + &parameter.unwrap_or_default()))?;
    spread.statement(&name, Some("k")).map_or(Ok(()), |statement| client.execute(&statement).map(drop))
}

fn route(stage: &Stage<'_>, table: &str, keys: &[String]) -> (Outcome, Option<Placement>) {
    let mut control = match stage.control() {
        Ok(control) => control,
        Err(error) => return (Outcome::NotChecked(error.to_string()), None),
    };
    let placement = match Placement::read(stage.cluster, &mut *control, stage.entry, SCHEMA, table) {
        Ok(placement) => placement,
        Err(error) => return (Outcome::Differs(format!("the placement cannot be read: {error}")), None),
    };
    match placement.routing() {
        Routing::Whole => (Outcome::NotChecked("the table has one leaf".to_owned()), None),
        Routing::Server(reason) => (Outcome::NotChecked(format!("the server routes: {reason}")), None),
        routing @ Routing::Client { .. } => match placement.self_test(&mut *control, keys) {
            Ok(()) => {
                let found =
                    format!("{} keys agree: {routing}, {} leaves", keys.len(), placement.leaves().len());
                (Outcome::Agrees(found), Some(placement))
            }
            Err(error) => (Outcome::Differs(error.to_string()), None),
        },
    }
}

/// Counts each leaf's rows on its node.
fn rows(stage: &Stage<'_>, placement: &Placement, keys: &[String]) -> Result<Outcome, ClientError> {
    let mut expected = vec![0_i64; placement.leaves().len()];
    for leaf in keys.iter().filter_map(|key| placement.leaf_of_text(key.as_bytes())) {
        expected[leaf] += 1;
    }
    for (leaf, expected) in placement.leaves().iter().zip(expected) {
        let mut client = stage.client(leaf.node)?;
        let count = client.execute(&format!("select count(*) from {}.{}", leaf.schema, leaf.name))?.number();
        if count != Some(expected) {
            let found = format!("{} has {} rows, not {expected}", leaf.name, count.unwrap_or_default());
            return Ok(Outcome::Differs(found));
        }
    }
    Ok(Outcome::Agrees(format!("{} rows in {} leaves", keys.len(), placement.leaves().len())))
}

fn hashes(stage: &Stage<'_>) -> Result<Outcome, ClientError> {
    let mut client = stage.client(stage.entry)?;
    for number in (0..KEYS).map(random) {
        let [text, int, big, uuid] = TYPES.map(|(_, written)| written(number));
        let bytes: Vec<u8> = [number, random(number)].iter().flat_map(|half| half.to_be_bytes()).collect();
        let bytes: [u8; 16] = bytes.try_into().unwrap_or_default();
        let seed = hash::PARTITION_SEED;
        let ours = [
            hash::text_extended(text.as_bytes(), seed),
            hash::int4_extended(number as i32, seed),
            hash::int8_extended(number as i64, seed),
            hash::uuid_extended(&bytes, seed),
        ];
        let answer = client.request(&format!(
            "select hashtextextended('{text}', s), hashint4extended('{int}', s), hashint8extended('{big}', s), \
             uuid_hash_extended('{uuid}', s) from (select {}::bigint as s) seed",
            seed as i64
        ))?;
        if let Some(error) = answer.error {
            return Ok(Outcome::NotChecked(format!("the server has no such functions: {}", error.message)));
        }
        let theirs: Vec<Option<i64>> = answer
            .rows()
            .first()
            .map(|row| row.iter().map(crate::client::number).collect())
            .unwrap_or_default();
        if theirs != ours.map(|hash| Some(hash as i64)) {
            return Ok(Outcome::Differs(format!("other values for {text}, {int}, {big}, {uuid}")));
        }
    }
    Ok(Outcome::Agrees(format!("{KEYS} values of 4 types agree")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_values_of_their_types() {
        let [text, int, big, uuid] = TYPES.map(|(_, written)| written(random(3)));
        assert!(text.starts_with("user"));
        assert!(int.parse::<i32>().is_ok() && big.parse::<i64>().is_ok());
        assert_eq!(uuid.len(), 36);
        assert_ne!(random(1), random(2));
    }
}
