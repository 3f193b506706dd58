//! Placement from an engine's own catalog: turns the results of the profile's queries into leaves and a rule.

use postgres::GenericClient;

use super::{Bound, KeyColumn, Leaf, Placement, PlacementError, Routing, Rule};
use crate::catalog::{self, TextRow, literal, qualified};
use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::hash::KeyType;
use crate::profile::{Catalog, Kind, Oracle};
use connect::conninfo::PORT_DEFAULT;

/// The most leaves: more are a sign of another error.
const LEAVES_MAX: usize = 1 << 20;

/// Fills in the placeholders of a query about a table.
fn about(question: &str, schema: &str, table: &str) -> String {
    let name = qualified(schema, table);
    question
        .replace("{relation}", &literal(&name))
        .replace("{schema}", &literal(schema))
        .replace("{table}", &literal(table))
        .replace("{name}", &name)
}

/// A reading of one table's placement.
pub(super) struct Reading<'a> {
    pub(super) engine: Engine,
    pub(super) schema: &'a str,
    pub(super) table: &'a str,
}

impl Reading<'_> {
    fn nonsense(&self, problem: String) -> PlacementError {
        PlacementError::Catalog {
            what: format!("read the placement of {}.{}", self.schema, self.table),
            problem,
        }
    }

    pub(super) fn query(
        &self,
        control: &mut impl GenericClient,
        what: &str,
        sql: &str,
    ) -> Result<Vec<TextRow>, PlacementError> {
        let failed = PlacementError::sql(self.engine, format!("{what} of {}.{}", self.schema, self.table));
        catalog::rows(control, &about(sql, self.schema, self.table)).map_err(failed)
    }

    fn number<T: std::str::FromStr>(&self, what: &str, text: Option<&str>) -> Result<T, PlacementError> {
        text.and_then(|text| text.parse().ok()).ok_or_else(|| {
            self.nonsense(format!(
                "{} is not a {what}",
                text.map_or("NULL".to_owned(), |text| format!("{text:?}"))
            ))
        })
    }

    pub(super) fn bound(&self, kind: Kind, row: &TextRow) -> Result<Bound, PlacementError> {
        let (low, high) = (row.get(3), row.get(4));
        Ok(match kind {
            Kind::Hash32 => {
                Bound::Hash32 { least: self.number("hash", low)?, greatest: self.number("hash", high)? }
            }
            Kind::Remainder => Bound::Hash {
                modulus: self.number("modulus", high)?,
                remainder: self.number("remainder", low)?,
            },
            Kind::Segment => Bound::Segment(self.number("segment", low)?),
            Kind::Code => {
                Bound::Code { from: self.number("hash code", low)?, to: self.number("hash code", high)? }
            }
            Kind::Keys => Bound::Keys { from: self.bytes(low)?, to: self.bytes(high)? },
            Kind::Everywhere | Kind::One => Bound::All,
        })
    }

    /// Bytes in hexadecimal.
    fn bytes(&self, text: Option<&str>) -> Result<Vec<u8>, PlacementError> {
        let text = text.unwrap_or_default();
        let wrong = || self.nonsense(format!("{text:?} is not a key"));
        if !text.is_ascii() || !text.len().is_multiple_of(2) {
            return Err(wrong());
        }
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong()))
            .collect()
    }
}

/// A node of the catalog.
pub(super) struct Place {
    /// What leaves call it.
    pub(super) key: String,
    /// Its name and address in the catalog.
    pub(super) name: String,
    address: String,
    /// Its index in the cluster, if it is there.
    pub(super) at: Option<usize>,
}

/// The nodes of the catalog, and their indexes in the cluster.
pub(super) fn places(
    reading: &Reading<'_>,
    catalog: &Catalog,
    cluster: &Cluster,
    control: &mut impl GenericClient,
    entry: usize,
) -> Result<Vec<Place>, PlacementError> {
    let rows = reading.query(control, "list the nodes that hold partitions", catalog.nodes)?;
    let place = |row: &TextRow| {
        let name = row.get(1).unwrap_or_default();
        let port = row.get(3).map_or(Some(PORT_DEFAULT), |port| port.parse().ok());
        let dbname = row.get(4).unwrap_or(&cluster.nodes[entry].spec.dbname);
        let at = if row.is_true(6) {
            Some(entry)
        } else {
            let at = port.and_then(|port| cluster.node_at(entry, row.get(2), port, dbname));
            at.or_else(|| cluster.node(name))
        };
        Place {
            key: row.get(0).unwrap_or_default().to_owned(),
            name: name.to_owned(),
            address: format!("{}:{}", row.get(2).unwrap_or("localhost"), row.get(3).unwrap_or("5432")),
            at,
        }
    };
    Ok(rows.iter().map(place).collect())
}

pub(super) fn read(
    catalog: &Catalog,
    cluster: &Cluster,
    control: &mut impl GenericClient,
    entry: usize,
    schema: &str,
    table: &str,
) -> Result<Placement, PlacementError> {
    let reading = Reading { engine: cluster.engine, schema, table };
    let keys = reading.query(control, "read the distribution key", catalog.table)?;
    let Some(first) = keys.first() else {
        return Err(PlacementError::NoTable { schema: schema.to_owned(), table: table.to_owned() });
    };
    let kind = first.get(0).unwrap_or_default();
    let places = places(&reading, catalog, cluster, control, entry)?;
    let rows = reading.query(control, "list the partitions", catalog.leaves)?;
    if rows.len() > LEAVES_MAX {
        return Err(reading.nonsense(format!("it has {} partitions", rows.len())));
    }
    let parsed = Kind::parse(kind);
    let mut leaves = leaves(&reading, &rows, &places, kind)?;
    if leaves.is_empty() {
        return Err(reading.nonsense("it has no partitions".to_owned()));
    }
    let on_every_node = parsed == Some(Kind::Everywhere);
    let routing = match parsed {
        None => Routing::Server(kind.to_owned()),
        Some(Kind::Everywhere | Kind::One) => Routing::Whole,
        Some(kind) => routing(&reading, kind, &keys, &mut leaves)?,
    };
    let key = keys
        .iter()
        .filter_map(|row| Some((row.get(1)?.to_owned(), row.get(2).unwrap_or("text").to_owned())))
        .collect();
    Ok(Placement {
        engine: cluster.engine,
        schema: schema.to_owned(),
        table: table.to_owned(),
        key,
        leaves,
        routing,
        on_every_node,
    })
}

/// The partitions that the catalog lists, each with the node that has it.
fn leaves(
    reading: &Reading<'_>,
    rows: &[TextRow],
    places: &[Place],
    kind: &str,
) -> Result<Vec<Leaf>, PlacementError> {
    let mut leaves: Vec<Leaf> = Vec::with_capacity(rows.len());
    for row in rows {
        let id = row.get(6).unwrap_or_default();
        if let Some(state) = row.get(5) {
            return Err(PlacementError::Unsettled {
                table: reading.table.to_owned(),
                leaf: id.to_owned(),
                state: state.to_owned(),
            });
        }
        // Further placements of the same rows.
        if leaves.last().is_some_and(|last| last.id == id) {
            continue;
        }
        let key = row.get(2).unwrap_or_default();
        let Some(place) = places.iter().find(|place| place.key == key) else {
            return Err(reading.nonsense(format!("partition {id} is on the node {key}, which is unknown")));
        };
        let node = place.at.ok_or_else(|| PlacementError::UnknownNode {
            table: reading.table.to_owned(),
            server: place.name.clone(),
            address: place.address.clone(),
        })?;
        let bound =
            Kind::parse(kind).map_or(Ok(Bound::Other(kind.to_owned())), |kind| reading.bound(kind, row))?;
        let schema = row.get(0).unwrap_or(reading.schema).to_owned();
        let name = row.get(1).unwrap_or(reading.table).to_owned();
        leaves.push(Leaf {
            seen_as: (schema.clone(), name.clone()),
            schema,
            name,
            node,
            oid: row.get(7).and_then(|oid| oid.parse().ok()).unwrap_or(0),
            bound,
            id: id.to_owned(),
        });
    }
    Ok(leaves)
}

/// The columns for the client's hash, or why it must not compute it.
fn columns(kind: Kind, keys: &[TextRow]) -> Result<Vec<KeyColumn>, String> {
    keys.iter()
        .map(|row| {
            // Each key column can have its own reason.
            if let Some(reason) = row.get(0).filter(|word| Kind::parse(word) != Some(kind)) {
                return Err(reason.to_owned());
            }
            let name = row.get(1).ok_or("its key is not a list of columns")?;
            let sql_type = row.get(2).unwrap_or("a dropped type");
            if !row.is_true(4) {
                return Err(format!("the collation of {name} decides its hash"));
            }
            let known = match kind {
                Kind::Remainder => row.get(3).and_then(|function| KeyType::of_function(function, sql_type)),
                Kind::Segment => KeyType::of_name(sql_type),
                // These support only a few types.
                Kind::Code => KeyType::of_name(sql_type).filter(|known| {
                    matches!(
                        known,
                        KeyType::Text | KeyType::Bytea | KeyType::Int2 | KeyType::Int4 | KeyType::Int8
                    )
                }),
                Kind::Keys => KeyType::of_name(sql_type).filter(|known| {
                    matches!(
                        known,
                        KeyType::Text
                            | KeyType::Bytea
                            | KeyType::Int2
                            | KeyType::Int4
                            | KeyType::Int8
                            | KeyType::Uuid
                    )
                }),
                Kind::Hash32 | Kind::Everywhere | Kind::One => KeyType::of_name(sql_type),
            };
            let key_type = known
                .ok_or_else(|| format!("the hash of {sql_type} ({name}) is known to the server only"))?;
            Ok(KeyColumn { name: name.to_owned(), key_type, ascii_only: false })
        })
        .collect()
}

fn routing(
    reading: &Reading<'_>,
    kind: Kind,
    keys: &[TextRow],
    leaves: &mut [Leaf],
) -> Result<Routing, PlacementError> {
    let columns = match columns(kind, keys) {
        Ok(columns) => columns,
        Err(reason) => return Ok(Routing::Server(reason)),
    };
    let first = &keys[0];
    let rule = match kind {
        Kind::Remainder => return super::native::hash_rule(reading.table, leaves, columns),
        Kind::Hash32 => Rule::HashRange { starts: hash_starts(reading, leaves)? },
        Kind::Code => Rule::CodeRange { starts: code_starts(reading, leaves)? },
        Kind::Segment => {
            let segments: u32 = reading.number("count of segments", first.get(5))?;
            sort_segments(reading, segments, leaves)?;
            let is_legacy = |row: &&TextRow| row.get(3).is_some_and(|class| class.starts_with("cdbhash_"));
            let legacy = keys.iter().filter(is_legacy).count();
            if legacy != 0 && legacy != keys.len() {
                return Ok(Routing::Server("its key mixes two generations of hash functions".to_owned()));
            }
            Rule::Segment { segments, legacy: legacy > 0 }
        }
        Kind::Keys => Rule::KeyRange {
            starts: key_starts(reading, leaves)?,
            table: reading.number("table number", first.get(5))?,
            index: reading.number("index number", first.get(6))?,
        },
        Kind::Everywhere | Kind::One => return Ok(Routing::Whole),
    };
    Ok(Routing::Client { columns, rule })
}

fn gap(reading: &Reading<'_>, after: String) -> PlacementError {
    PlacementError::Gap { table: reading.table.to_owned(), after }
}

/// Sorts ranges of 32-bit hashes, which must cover all of them without a gap. Returns where they begin.
fn hash_starts(reading: &Reading<'_>, leaves: &mut [Leaf]) -> Result<Vec<i32>, PlacementError> {
    let bounds = |leaf: &Leaf| match leaf.bound {
        Bound::Hash32 { least, greatest } => (least, greatest),
        _ => (0, 0),
    };
    leaves.sort_by_key(bounds);
    let mut next = i64::from(i32::MIN);
    for leaf in leaves.iter() {
        let (least, greatest) = bounds(leaf);
        if i64::from(least) != next || greatest < least {
            return Err(gap(reading, (next - 1).to_string()));
        }
        next = i64::from(greatest) + 1;
    }
    if next != i64::from(i32::MAX) + 1 {
        return Err(gap(reading, (next - 1).to_string()));
    }
    Ok(leaves.iter().map(|leaf| bounds(leaf).0).collect())
}

/// Sorts ranges of 16-bit hash codes, which must cover all of them without a gap. Returns where they begin.
fn code_starts(reading: &Reading<'_>, leaves: &mut [Leaf]) -> Result<Vec<u32>, PlacementError> {
    let bounds = |leaf: &Leaf| match leaf.bound {
        Bound::Code { from, to } => (from, to),
        _ => (0, 0),
    };
    leaves.sort_by_key(bounds);
    let mut next = 0;
    for leaf in leaves.iter() {
        let (from, to) = bounds(leaf);
        if from != next || to <= from {
            return Err(gap(reading, next.to_string()));
        }
        next = to;
    }
    if next != 1 << 16 {
        return Err(gap(reading, next.to_string()));
    }
    Ok(leaves.iter().map(|leaf| bounds(leaf).0).collect())
}

/// Sorts segments by their numbers, of which none may be missing.
fn sort_segments(reading: &Reading<'_>, segments: u32, leaves: &mut [Leaf]) -> Result<(), PlacementError> {
    leaves.sort_by_key(|leaf| match leaf.bound {
        Bound::Segment(number) => number,
        _ => 0,
    });
    let numbered = leaves.iter().zip(0..).all(|(leaf, number)| leaf.bound == Bound::Segment(number));
    if leaves.len() != segments as usize || !numbered {
        return Err(reading.nonsense(format!(
            "its rows are distributed over {segments} segments, and the catalog lists {} of them",
            leaves.len()
        )));
    }
    Ok(())
}

/// Sorts ranges of encoded keys, each of which must begin where the one before it ends. Returns where they begin.
fn key_starts(reading: &Reading<'_>, leaves: &mut [Leaf]) -> Result<Vec<Vec<u8>>, PlacementError> {
    let bounds = |leaf: &Leaf| match &leaf.bound {
        Bound::Keys { from, to } => (from.clone(), to.clone()),
        _ => Default::default(),
    };
    leaves.sort_by_cached_key(bounds);
    for pair in leaves.windows(2) {
        if bounds(&pair[0]).1 != bounds(&pair[1]).0 {
            return Err(gap(reading, format!("{:02x?}", bounds(&pair[0]).1)));
        }
    }
    Ok(leaves.iter().map(|leaf| bounds(leaf).0).collect())
}

/// The server's own answer for each key; the outer `None` means that it has none.
pub(super) fn by_server(
    catalog: &Catalog,
    placement: &Placement,
    control: &mut impl GenericClient,
    keys: &[Vec<Option<String>>],
) -> Result<Vec<Option<Option<usize>>>, PlacementError> {
    let reading = Reading { engine: placement.engine, schema: &placement.schema, table: &placement.table };
    let mut answers = Vec::with_capacity(keys.len());
    for key in keys {
        let typed: Vec<(&str, String)> = placement
            .key
            .iter()
            .zip(key)
            .map(|((name, sql_type), value)| {
                let value = value.as_ref().map_or("null".to_owned(), |text| literal(text));
                (name.as_str(), format!("{value}::{sql_type}"))
            })
            .collect();
        let values: Vec<&str> = typed.iter().map(|(_, value)| value.as_str()).collect();
        let question = match catalog.oracle {
            Oracle::Leaf(question) | Oracle::Code(question) => question.replace("{keys}", &values.join(", ")),
            Oracle::Row(question) => {
                let equal: Vec<String> = typed
                    .iter()
                    .map(|(name, value)| format!("{} = {value}", catalog::identifier(name)))
                    .collect();
                question.replace("{where}", &equal.join(" and "))
            }
        };
        let rows = reading.query(control, "read the partition of a key", &question)?;
        let answer = rows.first().and_then(|row| row.get(0));
        answers.push(match (catalog.oracle, answer) {
            (Oracle::Row(_), None) => None,
            (Oracle::Leaf(_) | Oracle::Row(_), answer) => {
                Some(answer.and_then(|id| placement.leaves.iter().position(|leaf| leaf.id == id)))
            }
            (Oracle::Code(_), answer) => {
                let code: u32 = reading.number("hash code", answer)?;
                let holds = |leaf: &Leaf| match leaf.bound {
                    Bound::Code { from, to } => (from..to).contains(&code),
                    _ => false,
                };
                Some(placement.leaves.iter().position(holds))
            }
        });
    }
    Ok(answers)
}
