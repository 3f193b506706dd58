//! The dataset's tables: made, recognised, refused or removed. Everything here is one transaction, so a kill leaves either the old
//! state or the new one.
//!
//! Leaf tables are partitions from the start. Filling them as tables of their own and attaching them later would make the server read
//! every row once more to prove the partition constraint; as partitions the constraint is checked row by row while the row is in the
//! cache anyway, and a row routed wrongly is refused. The price is one hash per row on the server.
//!
//! There is no primary key while rows come in: an index built afterwards is faster, smaller and needs less WAL, and without one no
//! insert ever waits for another.

use data::FORMAT_VERSION;
use data::ycsb::{FIELD_BYTES, FIELD_COUNT};
use postgres::{Client, GenericClient};

use crate::error::LoadError;
use crate::ledger::{self, Dataset, Relation, qualified, quoted};
use crate::options::{Method, Options};
use crate::plan::{Chunks, TABLE, leaf_names};

/// The dataset to load, and whether somebody has begun it before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Prepared {
    pub(crate) dataset: Dataset,
    pub(crate) created: bool,
}

/// Finds the dataset and checks that it is the one that `options` describe, or makes it.
pub(crate) fn prepare(client: &mut Client, options: &Options) -> Result<Prepared, LoadError> {
    let failed = |source| LoadError::sql("preparing the tables", source);
    let mut transaction = client.transaction().map_err(failed)?;
    // Two loaders that start at once create one dataset: the second waits here and finds it.
    transaction
        .execute("select pg_advisory_xact_lock($1, $2)", &[&ledger::lock::CLASS, &ledger::lock::SETUP])
        .map_err(failed)?;
    let schema: Option<String> =
        transaction.query_one("select current_schema()::text", &[]).map_err(failed)?.get(0);
    let schema = schema.ok_or(LoadError::NoSchema)?;
    if ledger::exists(&mut transaction)? {
        // One of an older version is brought up to date, whatever it holds.
        ledger::create_if_missing(&mut transaction)?;
    }
    let mut existing = ledger::find_dataset(&mut transaction, ledger::YCSB)?;
    if let Some(old) = existing.take_if(|_| options.restart) {
        remove(&mut transaction, &old)?;
    }
    let prepared = match existing {
        Some(dataset) => {
            check_identity(&dataset, options)?;
            check_tables(&mut transaction, &dataset)?;
            Prepared { dataset, created: false }
        }
        None => Prepared { dataset: create(&mut transaction, options, schema)?, created: true },
    };
    transaction.commit().map_err(failed)?;
    Ok(prepared)
}

/// Drops a dataset: what the ledger lists and nothing else.
///
/// Its row goes first. That waits for chunks in flight, which hold a share lock on it, while this transaction holds no lock that a
/// chunk could want; later chunks of the old dataset fail on the foreign key. So nothing waits in a circle.
pub(crate) fn remove(client: &mut impl GenericClient, dataset: &Dataset) -> Result<(), LoadError> {
    let names = ledger::owned_names(client, dataset.id)?;
    let relations = ledger::relations(client, &dataset.schema_name, &names, Some(dataset.id))?;
    ledger::delete_dataset(client, dataset.id)?;
    let ours: Vec<String> = relations
        .iter()
        .filter(|relation| relation.ours)
        .map(|relation| qualified(&dataset.schema_name, &relation.name))
        .collect();
    if ours.is_empty() {
        return Ok(());
    }
    client
        .batch_execute(&format!("drop table {}", ours.join(", ")))
        .map_err(|source| LoadError::sql("dropping the old dataset's tables", source))
}

fn create(
    client: &mut impl GenericClient,
    options: &Options,
    schema_name: String,
) -> Result<Dataset, LoadError> {
    ledger::create_if_missing(client)?;
    let partitions = options.partitions.unwrap_or(0);
    let partitions = if partitions == 1 { 0 } else { partitions };
    let chunks = match options.chunk_rows {
        Some(chunk_rows) => Chunks::of_length(options.rows, chunk_rows),
        None => Chunks::for_streams(options.rows, options.streams),
    };
    let mut dataset = Dataset {
        id: 0,
        name: ledger::YCSB.to_owned(),
        schema_name,
        format: FORMAT_VERSION,
        spec: options.spec.clone(),
        rows: options.rows,
        partitions,
        method: options.method.unwrap_or_default(),
        chunk_rows: chunks.chunk_rows(),
        loaded: false,
    };
    clear_names(client, &dataset.schema_name, &table_names(partitions), &options.force)?;
    dataset.id = ledger::insert_dataset(client, &dataset)?;
    client
        .batch_execute(&create_sql(&dataset, options.tablespace.as_deref()))
        .map_err(|source| LoadError::sql("creating the tables", source))?;
    for name in table_names(partitions) {
        ledger::own_table(client, &dataset, &name)?;
    }
    Ok(dataset)
}

/// All tables of a dataset with this many partitions, the parent first.
fn table_names(partitions: u32) -> Vec<String> {
    let mut names = vec![TABLE.to_owned()];
    if partitions > 1 {
        names.extend(leaf_names(partitions));
    }
    names
}

/// Makes sure that the names are free: drops what the user named with `--force`, refuses the rest.
pub(crate) fn clear_names(
    client: &mut impl GenericClient,
    schema_name: &str,
    names: &[String],
    force: &[String],
) -> Result<(), LoadError> {
    // Dropping one relation may take others along, so look again each time.
    while let Some(foreign) = ledger::relations(client, schema_name, names, None)?.first() {
        let kind = drop_kind(foreign);
        let Some(kind) = kind.filter(|_| force.contains(&foreign.name)) else {
            return Err(LoadError::ForeignTable {
                name: foreign.name.clone(),
                kind: foreign.kind_name(),
                droppable: kind.is_some(),
            });
        };
        client
            .batch_execute(&format!("drop {kind} {}", qualified(schema_name, &foreign.name)))
            .map_err(|source| LoadError::sql(format!("dropping {} (--force)", foreign.name), source))?;
    }
    Ok(())
}

/// The word after `drop` for relations that `--force` may drop.
fn drop_kind(relation: &Relation) -> Option<&'static str> {
    matches!(relation.kind, 'r' | 'p' | 'v' | 'm' | 'f').then(|| relation.kind_name())
}

fn create_sql(dataset: &Dataset, tablespace: Option<&str>) -> String {
    let columns: String =
        (0..FIELD_COUNT).map(|column| format!(", field{column} varchar({FIELD_BYTES})")).collect();
    let parent = qualified(&dataset.schema_name, TABLE);
    let tablespace = tablespace.map(|name| format!(" tablespace {}", quoted(name))).unwrap_or_default();
    // Not null from the start: the primary key would have to read every row to add it.
    let mut sql = format!("create table {parent} (ycsb_key varchar(64) not null{columns})");
    if dataset.partitions > 1 {
        sql.push_str(" partition by hash (ycsb_key)");
    }
    sql.push_str(&tablespace);
    sql.push(';');
    if dataset.partitions > 1 {
        for (remainder, leaf) in leaf_names(dataset.partitions).iter().enumerate() {
            let leaf = qualified(&dataset.schema_name, leaf);
            let modulus = dataset.partitions;
            sql.push_str(&format!(
                "create table {leaf} partition of {parent} for values with (modulus {modulus}, remainder {remainder}){tablespace};"
            ));
        }
    }
    sql
}

/// Refuses a dataset that differs from what was asked for, naming the first difference and every flag that would match.
fn check_identity(dataset: &Dataset, options: &Options) -> Result<(), LoadError> {
    let spec = &options.spec;
    let asked_partitions = options.partitions.map(|partitions| if partitions == 1 { 0 } else { partitions });
    // A load that is complete is nobody's business to do in another way.
    let asked_method = options.method.filter(|_| !dataset.loaded);
    let existing: [(&'static str, Option<&str>, String, Option<String>); 7] = [
        ("format", None, dataset.format.to_string(), Some(FORMAT_VERSION.to_string())),
        ("seed", Some("--seed"), dataset.spec.seed.to_string(), Some(spec.seed.to_string())),
        ("rows", Some("--rows"), dataset.rows.to_string(), Some(options.rows.to_string())),
        (
            "key order",
            Some("--key-order"),
            dataset.spec.key_order.to_string(),
            Some(spec.key_order.to_string()),
        ),
        (
            "compressibility",
            Some("--compressible"),
            dataset.spec.compressible.to_string(),
            Some(spec.compressible.to_string()),
        ),
        (
            "partitions",
            Some("--partitions"),
            dataset.partitions.to_string(),
            asked_partitions.map(|partitions| partitions.to_string()),
        ),
        (
            "method",
            Some("--method"),
            dataset.method.to_string(),
            asked_method.map(|method| method.to_string()),
        ),
    ];
    let differs =
        |asked: &Option<String>, existing: &str| asked.as_deref().is_some_and(|asked| asked != existing);
    let Some((what, _, value, asked)) = existing.iter().find(|(_, _, value, asked)| differs(asked, value))
    else {
        return Ok(());
    };
    let matching: Vec<String> = existing
        .iter()
        .filter(|(_, _, value, asked)| differs(asked, value))
        .map(|(_, flag, value, _)| match flag {
            Some(flag) => format!("{flag} {value}"),
            None => format!("a pgfathom of format {value}"),
        })
        .collect();
    Err(LoadError::OtherDataset {
        dataset: dataset.name.clone(),
        what,
        existing: value.clone(),
        asked: asked.clone().unwrap_or_default(),
        matching: matching.join(" "),
    })
}

/// Refuses to continue when a table of the dataset is gone, is somebody else's by now, or is partitioned in another way.
fn check_tables(client: &mut impl GenericClient, dataset: &Dataset) -> Result<(), LoadError> {
    let names = table_names(dataset.partitions);
    let found = ledger::relations(client, &dataset.schema_name, &names, Some(dataset.id))?;
    let changed = |table: &str, problem: &str| LoadError::ChangedTable {
        table: table.to_owned(),
        problem: problem.to_owned(),
    };
    for name in &names {
        let Some(relation) = found.iter().find(|relation| &relation.name == name) else {
            return Err(changed(name, "the table is gone"));
        };
        let kind = if name == TABLE && dataset.partitions > 1 { 'p' } else { 'r' };
        if !relation.ours || relation.kind != kind {
            return Err(changed(name, "the table is another one"));
        }
    }
    if dataset.partitions <= 1 {
        return Ok(());
    }
    let rows = client
        .query(
            "select c.relname::text, pg_get_expr(c.relpartbound, c.oid) from pg_inherits i
             join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
             join pg_namespace n on n.oid = p.relnamespace where n.nspname = $1 and p.relname = $2",
            &[&dataset.schema_name, &TABLE],
        )
        .map_err(|source| LoadError::sql("reading the partitions' bounds", source))?;
    let bounds: std::collections::BTreeMap<String, String> =
        rows.iter().map(|row| (row.get(0), row.get::<_, Option<String>>(1).unwrap_or_default())).collect();
    for (remainder, name) in leaf_names(dataset.partitions).iter().enumerate() {
        let expected = format!("FOR VALUES WITH (modulus {}, remainder {remainder})", dataset.partitions);
        if bounds.get(name) != Some(&expected) {
            return Err(changed(name, "it is no longer the partition it was"));
        }
    }
    if bounds.len() != dataset.partitions as usize {
        return Err(changed(TABLE, "it has partitions of somebody else"));
    }
    Ok(())
}

/// Rows per unit of the ledger: chunks of rows, or leaf tables.
pub(crate) fn chunk_count(dataset: &Dataset) -> u64 {
    match dataset.method {
        Method::Copy => Chunks::of_length(dataset.rows, dataset.chunk_rows).count(),
        Method::Freeze => u64::from(dataset.partitions.max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::ycsb::{Compressible, KeyOrder, Spec};

    fn spec(seed: u64) -> Spec {
        Spec { seed, key_order: KeyOrder::Scattered, compressible: Compressible::NONE }
    }

    fn dataset() -> Dataset {
        Dataset {
            id: 1,
            name: "ycsb".into(),
            schema_name: "public".into(),
            format: FORMAT_VERSION,
            spec: spec(1),
            rows: 1000,
            partitions: 8,
            method: Method::Copy,
            chunk_rows: 100,
            loaded: false,
        }
    }

    #[test]
    fn every_difference_of_identity_is_refused_with_both_values() {
        let asked = Options::new(1000, spec(1));
        assert!(check_identity(&dataset(), &asked).is_ok());
        assert!(check_identity(&dataset(), &Options { partitions: Some(8), ..asked.clone() }).is_ok());
        let sequential = Spec { key_order: KeyOrder::Sequential, ..spec(1) };
        let compressible = Spec { compressible: Compressible::MAX, ..spec(1) };
        let cases = [
            (Options { spec: spec(2), ..asked.clone() }, "seed 1", "asks for 2", "--seed 1"),
            (Options { rows: 2000, ..asked.clone() }, "rows 1000", "asks for 2000", "--rows 1000"),
            (
                Options { spec: sequential, ..asked.clone() },
                "key order scattered",
                "sequential",
                "--key-order scattered",
            ),
            (
                Options { spec: compressible, ..asked.clone() },
                "compressibility 1.0",
                "6.0",
                "--compressible 1.0",
            ),
            (
                Options { partitions: Some(4), ..asked.clone() },
                "partitions 8",
                "asks for 4",
                "--partitions 8",
            ),
            (
                Options { partitions: Some(1), ..asked.clone() },
                "partitions 8",
                "asks for 0",
                "--partitions 8",
            ),
            (
                Options { method: Some(Method::Freeze), ..asked.clone() },
                "method copy",
                "freeze",
                "--method copy",
            ),
        ];
        for (options, existing, wanted, flag) in cases {
            let error = check_identity(&dataset(), &options).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(existing) && message.contains(wanted), "{message}");
            let hint = error.hint().unwrap();
            assert!(hint.contains(flag) && hint.contains("--restart"), "{hint}");
        }
        let loaded = Dataset { loaded: true, ..dataset() };
        assert!(check_identity(&loaded, &Options { method: Some(Method::Freeze), ..asked.clone() }).is_ok());
        let newer = Dataset { format: FORMAT_VERSION + 1, ..dataset() };
        assert!(check_identity(&newer, &asked).unwrap_err().to_string().contains("format 2"));
    }

    #[test]
    fn two_differences_give_two_flags() {
        let error = check_identity(&dataset(), &Options::new(5, spec(9))).unwrap_err();
        assert!(error.hint().unwrap().contains("--seed 1 --rows 1000"));
    }

    #[test]
    fn the_table_is_that_of_the_field_report() {
        let plain = create_sql(&Dataset { partitions: 0, ..dataset() }, None);
        assert!(plain.starts_with(
            "create table \"public\".\"usertable\" (ycsb_key varchar(64) not null, field0 varchar(100), field1"
        ));
        assert!(plain.ends_with("field9 varchar(100));"), "{plain}");
        let parts = create_sql(&Dataset { partitions: 2, ..dataset() }, Some("fast"));
        assert!(parts.contains("field9 varchar(100)) partition by hash (ycsb_key) tablespace \"fast\";"));
        assert!(parts.ends_with(
            "create table \"public\".\"usertable_p1\" partition of \"public\".\"usertable\" \
             for values with (modulus 2, remainder 1) tablespace \"fast\";"
        ));
    }

    #[test]
    fn units_are_chunks_or_leaves() {
        assert_eq!(chunk_count(&dataset()), 10);
        assert_eq!(chunk_count(&Dataset { method: Method::Freeze, ..dataset() }), 8);
        assert_eq!(chunk_count(&Dataset { method: Method::Freeze, partitions: 0, ..dataset() }), 1);
    }
}
