//! PostgreSQL's own partitions, on this node or behind `postgres_fdw`.

use postgres::GenericClient;

use super::{Bound, KeyColumn, Leaf, Placement, PlacementError, Routing, Rule};
use crate::catalog::{self, TextRow, identifier, literal, qualified};
use crate::cluster::Cluster;
use crate::hash::KeyType;
use crate::profile::Layout;
use connect::conninfo::PORT_DEFAULT;

/// The greatest modulus for which a table of remainders is kept.
const MODULUS_MAX: u32 = 1 << 20;
/// Keys in one query to the server.
const KEYS_PER_QUESTION: usize = 1000;

/// `relkind`, the partitioning of the table, and the encoding of its text.
fn table_query(relation: &str) -> String {
    format!(
        "select c.relkind::text, p.partstrat::text, pg_catalog.current_setting('server_encoding') \
         from pg_catalog.pg_class c left join pg_catalog.pg_partitioned_table p on p.partrelid = c.oid \
         where c.oid = pg_catalog.to_regclass({relation})"
    )
}

/// One row per column of the partition key, in order. A column number of 0 is an expression.
fn key_query(relation: &str) -> String {
    format!(
        "select k.attnum::text, a.attname::text, pg_catalog.format_type(a.atttypid, -1), o.opcdefault::text, \
                case when f.pronamespace = 'pg_catalog'::regnamespace then f.proname::text end, \
                coalesce(l.collisdeterministic, true)::text, pg_catalog.format_type(o.opcintype, -1) \
         from pg_catalog.pg_partitioned_table p \
         cross join lateral unnest(p.partattrs::int2[], p.partclass::oid[], p.partcollation::oid[]) \
              with ordinality as k (attnum, class, collated, place) \
         left join pg_catalog.pg_attribute a on a.attrelid = p.partrelid and a.attnum = k.attnum and k.attnum > 0 \
         left join pg_catalog.pg_opclass o on o.oid = k.class \
         left join pg_catalog.pg_amproc m on m.amprocfamily = o.opcfamily and m.amproclefttype = o.opcintype \
              and m.amprocrighttype = o.opcintype and m.amprocnum = 2 \
         left join pg_catalog.pg_proc f on f.oid = m.amproc \
         left join pg_catalog.pg_collation l on l.oid = k.collated \
         where p.partrelid = pg_catalog.to_regclass({relation}) order by k.place"
    )
}

/// One row per leaf: its location and content. A table without partitions is its own leaf; `pg_partition_tree` returns none for it.
fn leaves_query(relation: &str, partitioned: bool) -> String {
    let tree = if partitioned {
        format!("pg_catalog.pg_partition_tree(pg_catalog.to_regclass({relation}))")
    } else {
        format!("(select pg_catalog.to_regclass({relation}) as relid, 0 as level, true as isleaf)")
    };
    let option = |options: &str, name: &str| {
        format!(
            "(select option_value from pg_catalog.pg_options_to_table({options}) where option_name = '{name}')"
        )
    };
    format!(
        "select c.oid::text, n.nspname::text, c.relname::text, t.level::text, c.relkind::text, \
                pg_catalog.pg_get_expr(c.relpartbound, c.oid), s.srvname::text, w.fdwname::text, {}, {}, {}, {}, {} \
         from {tree} t join pg_catalog.pg_class c on c.oid = t.relid join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         left join pg_catalog.pg_foreign_table f on f.ftrelid = c.oid \
         left join pg_catalog.pg_foreign_server s on s.oid = f.ftserver \
         left join pg_catalog.pg_foreign_data_wrapper w on w.oid = s.srvfdw \
         where t.isleaf and c.relkind <> 'p' order by n.nspname, c.relname",
        option("s.srvoptions", "host"),
        option("s.srvoptions", "port"),
        option("s.srvoptions", "dbname"),
        option("f.ftoptions", "schema_name"),
        option("f.ftoptions", "table_name"),
    )
}

pub(super) fn read(
    cluster: &Cluster,
    control: &mut impl GenericClient,
    entry: usize,
    schema: &str,
    table: &str,
) -> Result<Placement, PlacementError> {
    let engine = cluster.engine;
    let relation = literal(&qualified(schema, table));
    let mut rows_of = |what: &str, sql: String| {
        catalog::rows(control, &sql)
            .map_err(PlacementError::sql(engine, format!("{what} of {schema}.{table}")))
    };
    let no_table = || PlacementError::NoTable { schema: schema.to_owned(), table: table.to_owned() };
    let found = rows_of("read the kind", table_query(&relation))?;
    let found = found.first().ok_or_else(no_table)?;
    let partitioned = match found.get(0) {
        Some("r" | "f") => None,
        Some("p") => Some(found.get(1).unwrap_or_default().to_owned()),
        _ => return Err(PlacementError::NotATable { schema: schema.to_owned(), table: table.to_owned() }),
    };
    let ascii_only = !matches!(found.get(2), Some("UTF8" | "SQL_ASCII"));
    let keys = rows_of("read the partition key", key_query(&relation))?;
    let rows = rows_of("list the partitions", leaves_query(&relation, partitioned.is_some()))?;
    let mut levels = Vec::with_capacity(rows.len());
    let mut leaves = Vec::with_capacity(rows.len());
    for row in &rows {
        levels.push(row.get(3).unwrap_or_default().to_owned());
        leaves.push(leaf(cluster, entry, table, row)?);
    }
    let routing = match partitioned.as_deref() {
        None => Routing::Whole,
        Some("h") if levels.iter().any(|level| level != "1") => {
            Routing::Server("partitions are partitioned again".to_owned())
        }
        Some("h") => match key_columns(&keys, ascii_only) {
            Ok(columns) => hash_rule(table, &mut leaves, columns)?,
            Err(reason) => Routing::Server(reason),
        },
        Some("r") => Routing::Server("it is partitioned by range".to_owned()),
        Some("l") => Routing::Server("it is partitioned by list".to_owned()),
        Some(other) => Routing::Server(format!("its partitioning strategy {other:?} is not known")),
    };
    let key = rows_of("list the key columns", columns_query(&relation))?
        .iter()
        .filter_map(|row| Some((row.get(0)?.to_owned(), row.get(1)?.to_owned())))
        .collect();
    Ok(Placement {
        engine,
        key,
        schema: schema.to_owned(),
        table: table.to_owned(),
        leaves,
        routing,
        on_every_node: matches!(engine.layout, Layout::Copies(_)),
    })
}

fn leaf(cluster: &Cluster, entry: usize, table: &str, row: &TextRow) -> Result<Leaf, PlacementError> {
    let what = || format!("read the partitions of {table}");
    let (Some(oid), Some(schema), Some(name)) = (row.get(0), row.get(1), row.get(2)) else {
        return Err(PlacementError::Catalog { what: what(), problem: "a partition has no name".to_owned() });
    };
    let oid = oid
        .parse()
        .map_err(|_| PlacementError::Catalog { what: what(), problem: format!("{oid:?} is not an OID") })?;
    let bound = row.get(5).map_or(Bound::All, bound);
    let seen_as = (schema.to_owned(), name.to_owned());
    if row.get(4) != Some("f") {
        let (schema, name) = seen_as.clone();
        let id = name.clone();
        return Ok(Leaf { schema, name, node: entry, oid, bound, seen_as, id });
    }
    let wrapper = row.get(7).unwrap_or_default();
    if wrapper != "postgres_fdw" {
        return Err(PlacementError::Wrapper { leaf: name.to_owned(), wrapper: wrapper.to_owned() });
    }
    let (host, port) = (row.get(8), row.get(9));
    let dbname = row.get(10).unwrap_or(&cluster.nodes[entry].spec.dbname);
    let number = port.map_or(Some(PORT_DEFAULT), |port| port.parse().ok());
    let node = number.and_then(|port| cluster.node_at(entry, host, port, dbname)).ok_or_else(|| {
        PlacementError::UnknownNode {
            table: table.to_owned(),
            server: row.get(6).unwrap_or_default().to_owned(),
            address: format!(
                "{}:{} (database {dbname})",
                host.unwrap_or("localhost"),
                port.unwrap_or("5432")
            ),
        }
    })?;
    Ok(Leaf {
        schema: row.get(11).unwrap_or(schema).to_owned(),
        name: row.get(12).unwrap_or(name).to_owned(),
        node,
        oid,
        bound,
        id: name.to_owned(),
        seen_as,
    })
}

/// `FOR VALUES WITH (modulus 6, remainder 0)`, as `pg_get_expr` writes it.
fn bound(text: &str) -> Bound {
    let numbers = || {
        let inside = text.strip_prefix("FOR VALUES WITH (modulus ")?.strip_suffix(')')?;
        let (modulus, remainder) = inside.split_once(", remainder ")?;
        Some(Bound::Hash { modulus: modulus.parse().ok()?, remainder: remainder.parse().ok()? })
    };
    numbers().unwrap_or_else(|| Bound::Other(text.to_owned()))
}

/// The columns of a hash partition key, or why the client must not hash them.
fn key_columns(rows: &[TextRow], ascii_only: bool) -> Result<Vec<KeyColumn>, String> {
    rows.iter()
        .map(|row| {
            let Some(name) = row.get(1) else {
                return Err("its partition key holds an expression".to_owned());
            };
            let column_type = row.get(2).unwrap_or("a dropped type");
            if !row.is_true(5) {
                return Err(format!("the collation of {name} is not deterministic"));
            }
            if !row.is_true(3) {
                return Err(format!("{name} uses an operator class that is not its type's default"));
            }
            let key_type = row
                .get(4)
                .and_then(|function| KeyType::of_function(function, row.get(6).unwrap_or_default()));
            let key_type = key_type
                .ok_or_else(|| format!("the hash of {column_type} ({name}) is known to the server only"))?;
            Ok(KeyColumn { name: name.to_owned(), key_type, ascii_only })
        })
        .collect()
}

/// Orders the leaves by remainder and makes the table of remainders.
pub(super) fn hash_rule(
    table: &str,
    leaves: &mut [Leaf],
    columns: Vec<KeyColumn>,
) -> Result<Routing, PlacementError> {
    let numbers = |leaf: &Leaf| match leaf.bound {
        Bound::Hash { modulus, remainder } if modulus > remainder => Some((remainder, modulus)),
        _ => None,
    };
    if let Some(odd) = leaves.iter().find(|leaf| numbers(leaf).is_none()) {
        return Err(PlacementError::Catalog {
            what: format!("read the bounds of {table}'s partitions"),
            problem: format!("{} has {:?}", odd.name, odd.bound),
        });
    }
    leaves.sort_by_key(numbers);
    let greatest = leaves.iter().filter_map(numbers).map(|(_, modulus)| modulus).max().unwrap_or(1);
    if greatest > MODULUS_MAX {
        return Ok(Routing::Server(format!("its modulus {greatest} exceeds {MODULUS_MAX}")));
    }
    const NO_ROLE: u32 = u32::MAX;
    let mut leaf_of = vec![NO_ROLE; greatest as usize];
    for (index, (remainder, modulus)) in leaves.iter().filter_map(numbers).enumerate() {
        // Every modulus divides the next greater one, so the remainders of a small one repeat in the table of the greatest.
        for place in (remainder as usize..leaf_of.len()).step_by(modulus as usize) {
            leaf_of[place] = index as u32;
        }
    }
    let missing = leaf_of.iter().filter(|&&leaf| leaf == NO_ROLE).count();
    if missing > 0 {
        return Err(PlacementError::Incomplete {
            table: table.to_owned(),
            missing,
            modulus: u64::from(greatest),
        });
    }
    Ok(Routing::Client { columns, rule: Rule::PartitionHash { modulus: u64::from(greatest), leaf_of } })
}

/// The query for the leaf of each key, by the constraints of the leaves.
fn leaves_sql(columns: &[(String, String)], whens: &str, keys: &[Vec<Option<String>>]) -> String {
    let lists: Vec<String> = (0..columns.len())
        .map(|column| {
            let values: Vec<String> = keys
                .iter()
                .map(|key| match key.get(column) {
                    Some(Some(text)) => literal(text),
                    _ => "null".to_owned(),
                })
                .collect();
            format!("array[{}]::text[]", values.join(", "))
        })
        .collect();
    let cast: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(column, (name, sql_type))| format!("c{column}::{sql_type} as {}", identifier(name)))
        .collect();
    let inner: Vec<String> = (0..columns.len()).map(|column| format!("c{column}")).collect();
    format!(
        "select (case{whens} end)::text from (select {}, place from unnest({}) with ordinality as u ({}, place)) k \
         order by place",
        cast.join(", "),
        lists.join(", "),
        inner.join(", "),
    )
}

/// The leaf whose partition constraint each key meets. The server checks inserted rows against this constraint, so this holds for
/// every strategy, operator class, collation and level.
pub(super) fn by_server(
    placement: &Placement,
    control: &mut impl GenericClient,
    keys: &[Vec<Option<String>>],
) -> Result<Vec<Option<usize>>, PlacementError> {
    let table = &placement.table;
    let failed = |what: &str| PlacementError::sql(placement.engine, format!("{what} of {table}"));
    // One row for each key, no more and no less.
    let counted = |what: &str, requested: usize, rows: Vec<TextRow>| {
        if rows.len() == requested {
            return Ok(rows);
        }
        let problem = format!("the server returned {} rows for {requested} keys", rows.len());
        Err(PlacementError::Catalog { what: format!("{what} of {table}"), problem })
    };
    let names: Vec<String> =
        placement.leaves.iter().map(|leaf| literal(&qualified(&leaf.seen_as.0, &leaf.seen_as.1))).collect();
    let constraints = catalog::rows(
        control,
        &format!(
            "select pg_catalog.pg_get_partition_constraintdef(pg_catalog.to_regclass(n)) \
             from unnest(array[{}]::text[]) with ordinality as t (n, place) order by place",
            names.join(", ")
        ),
    )
    .map_err(failed("read the partition constraints"))?;
    let constraints = counted("read the partition constraints", placement.leaves.len(), constraints)?;
    let mut whens = String::new();
    for (index, row) in constraints.iter().enumerate() {
        let constraint = row.get(0).ok_or_else(|| PlacementError::Catalog {
            what: format!("read the partition constraints of {table}"),
            problem: format!("{} is no longer a partition", placement.leaves[index].name),
        })?;
        whens.push_str(&format!(" when {constraint} then {index}"));
    }
    if whens.is_empty() {
        return Ok(vec![None; keys.len()]);
    }
    let mut answers = Vec::with_capacity(keys.len());
    for keys in keys.chunks(KEYS_PER_QUESTION) {
        let sql = leaves_sql(&placement.key, &whens, keys);
        let what = "read the partitions of keys";
        let rows = counted(what, keys.len(), catalog::rows(control, &sql).map_err(failed(what))?)?;
        let leaves = 0..placement.leaves.len();
        answers
            .extend(rows.iter().map(|row| row.get(0)?.parse().ok().filter(|index| leaves.contains(index))));
    }
    Ok(answers)
}

/// Names and types of the columns in the partition constraints of all levels: plain key columns in their order, then those inside
/// expressions. (A column that a partition key's expression uses depends internally on its table, `StorePartitionKey` in `heap.c`.)
fn columns_query(relation: &str) -> String {
    format!(
        "with level as (select t.relid, t.level, p.partattrs::int2[] as attrs \
                        from pg_catalog.pg_partition_tree(pg_catalog.to_regclass({relation})) t \
                        join pg_catalog.pg_partitioned_table p on p.partrelid = t.relid), \
         used as (select l.relid, l.level, k.attnum, k.place from level l \
                  cross join lateral unnest(l.attrs) with ordinality as k (attnum, place) where k.attnum > 0 \
                  union all \
                  select l.relid, l.level, d.objsubid, 1000 + d.objsubid from level l join pg_catalog.pg_depend d \
                  on d.classid = 'pg_catalog.pg_class'::regclass and d.objid = l.relid and d.objsubid > 0 \
                  and d.refclassid = d.classid and d.refobjid = l.relid and d.refobjsubid = 0 and d.deptype = 'i') \
         select a.attname::text, min(pg_catalog.format_type(a.atttypid, -1)) from used u \
         join pg_catalog.pg_attribute a on a.attrelid = u.relid and a.attnum = u.attnum \
         group by a.attname order by min(u.level * 10000 + u.place)"
    )
}
