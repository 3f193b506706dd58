//! The nine tables in SQL: columns and keys by clause 1.3, and how a dataset of them is made, recognised or removed.
//!
//! Identifiers and counts are `int`: four bytes hold every value that clause 1.3 asks for. Money and rates are `numeric`, because the
//! consistency conditions (clause 3.3.2) compare sums for equality. Two columns of names have the collation "C", so that their index is
//! sorted by bytes, which is fast and the same on every machine.

use connect::ConnSpec;
use data::FORMAT_VERSION;
use data::tpcc::{DISTRICTS_PER_WAREHOUSE, Table};
use data::ycsb::{Compressible, KeyOrder, Spec};
use postgres::{Client, GenericClient};

use super::{TPCC, TpccDataset, TpccOptions};
use crate::connections;
use crate::error::LoadError;
use crate::ledger::{self, Dataset, qualified, quoted};
use crate::options::Method;
use crate::schema::{clear_names, remove};
use crate::trust;

/// What the ledger knows of a TPC-C dataset beyond what it knows of all.
const LEDGER_DDL: &str = "
create table if not exists pgfathom.tpcc (
    dataset      int primary key references pgfathom.dataset on delete cascade,
    warehouses   int not null,
    c_load       int not null,
    foreign_keys boolean not null,
    fillfactor   int
);
comment on table pgfathom.tpcc is 'TPC-C: number of warehouses, and C-Load of clause 2.1.6.1, from which runs keep their distance';
";

/// Columns with their types, in the order of clause 1.3.
pub(crate) const fn columns(table: Table) -> &'static [(&'static str, &'static str)] {
    match table {
        Table::Warehouse => &[
            ("w_id", "int not null"),
            ("w_name", "varchar(10) not null"),
            ("w_street_1", "varchar(20) not null"),
            ("w_street_2", "varchar(20) not null"),
            ("w_city", "varchar(20) not null"),
            ("w_state", "char(2) not null"),
            ("w_zip", "char(9) not null"),
            ("w_tax", "numeric(4,4) not null"),
            ("w_ytd", "numeric(12,2) not null"),
        ],
        Table::District => &[
            ("d_id", "int not null"),
            ("d_w_id", "int not null"),
            ("d_name", "varchar(10) not null"),
            ("d_street_1", "varchar(20) not null"),
            ("d_street_2", "varchar(20) not null"),
            ("d_city", "varchar(20) not null"),
            ("d_state", "char(2) not null"),
            ("d_zip", "char(9) not null"),
            ("d_tax", "numeric(4,4) not null"),
            ("d_ytd", "numeric(12,2) not null"),
            ("d_next_o_id", "int not null"),
        ],
        Table::Customer => &[
            ("c_id", "int not null"),
            ("c_d_id", "int not null"),
            ("c_w_id", "int not null"),
            ("c_first", "varchar(16) collate \"C\" not null"),
            ("c_middle", "char(2) not null"),
            ("c_last", "varchar(16) collate \"C\" not null"),
            ("c_street_1", "varchar(20) not null"),
            ("c_street_2", "varchar(20) not null"),
            ("c_city", "varchar(20) not null"),
            ("c_state", "char(2) not null"),
            ("c_zip", "char(9) not null"),
            ("c_phone", "char(16) not null"),
            ("c_since", "timestamp not null"),
            ("c_credit", "char(2) not null"),
            ("c_credit_lim", "numeric(12,2) not null"),
            ("c_discount", "numeric(4,4) not null"),
            ("c_balance", "numeric(12,2) not null"),
            ("c_ytd_payment", "numeric(12,2) not null"),
            ("c_payment_cnt", "int not null"),
            ("c_delivery_cnt", "int not null"),
            ("c_data", "varchar(500) not null"),
        ],
        Table::History => &[
            ("h_c_id", "int not null"),
            ("h_c_d_id", "int not null"),
            ("h_c_w_id", "int not null"),
            ("h_d_id", "int not null"),
            ("h_w_id", "int not null"),
            ("h_date", "timestamp not null"),
            ("h_amount", "numeric(6,2) not null"),
            ("h_data", "varchar(24) not null"),
        ],
        Table::NewOrder => {
            &[("no_o_id", "int not null"), ("no_d_id", "int not null"), ("no_w_id", "int not null")]
        }
        Table::Orders => &[
            ("o_id", "int not null"),
            ("o_d_id", "int not null"),
            ("o_w_id", "int not null"),
            ("o_c_id", "int not null"),
            ("o_entry_d", "timestamp not null"),
            ("o_carrier_id", "int"),
            ("o_ol_cnt", "int not null"),
            ("o_all_local", "int not null"),
        ],
        Table::OrderLine => &[
            ("ol_o_id", "int not null"),
            ("ol_d_id", "int not null"),
            ("ol_w_id", "int not null"),
            ("ol_number", "int not null"),
            ("ol_i_id", "int not null"),
            ("ol_supply_w_id", "int not null"),
            ("ol_delivery_d", "timestamp"),
            ("ol_quantity", "int not null"),
            ("ol_amount", "numeric(6,2) not null"),
            ("ol_dist_info", "char(24) not null"),
        ],
        Table::Item => &[
            ("i_id", "int not null"),
            ("i_im_id", "int not null"),
            ("i_name", "varchar(24) not null"),
            ("i_price", "numeric(5,2) not null"),
            ("i_data", "varchar(50) not null"),
        ],
        Table::Stock => &[
            ("s_i_id", "int not null"),
            ("s_w_id", "int not null"),
            ("s_quantity", "int not null"),
            ("s_dist_01", "char(24) not null"),
            ("s_dist_02", "char(24) not null"),
            ("s_dist_03", "char(24) not null"),
            ("s_dist_04", "char(24) not null"),
            ("s_dist_05", "char(24) not null"),
            ("s_dist_06", "char(24) not null"),
            ("s_dist_07", "char(24) not null"),
            ("s_dist_08", "char(24) not null"),
            ("s_dist_09", "char(24) not null"),
            ("s_dist_10", "char(24) not null"),
            ("s_ytd", "int not null"),
            ("s_order_cnt", "int not null"),
            ("s_remote_cnt", "int not null"),
            ("s_data", "varchar(50) not null"),
        ],
    }
}

/// The names of the columns as a list.
pub(crate) fn column_list(table: Table) -> String {
    columns(table).iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Columns of the primary key; HISTORY has none.
pub(crate) const fn primary_key(table: Table) -> Option<&'static str> {
    match table {
        Table::Warehouse => Some("w_id"),
        Table::District => Some("d_w_id, d_id"),
        Table::Customer => Some("c_w_id, c_d_id, c_id"),
        Table::History => None,
        Table::NewOrder => Some("no_w_id, no_d_id, no_o_id"),
        Table::Orders => Some("o_w_id, o_d_id, o_id"),
        Table::OrderLine => Some("ol_w_id, ol_d_id, ol_o_id, ol_number"),
        Table::Item => Some("i_id"),
        Table::Stock => Some("s_w_id, s_i_id"),
    }
}

/// A further index: its name and columns. Payment and Order-Status look for customers by name (clauses 2.5.2.2 and 2.6.2.2), Order-Status
/// for a customer's last order.
pub(crate) const fn index(table: Table) -> Option<(&'static str, &'static str)> {
    match table {
        Table::Customer => Some(("customer_by_name", "c_w_id, c_d_id, c_last, c_first")),
        Table::Orders => Some(("orders_by_customer", "o_w_id, o_d_id, o_c_id, o_id")),
        _ => None,
    }
}

/// The foreign keys of clause 1.3: table, name, columns, table referred to.
pub(crate) const FOREIGN_KEYS: [(Table, &str, &str, Table); 10] = [
    (Table::District, "district_warehouse", "d_w_id", Table::Warehouse),
    (Table::Customer, "customer_district", "c_w_id, c_d_id", Table::District),
    (Table::History, "history_customer", "h_c_w_id, h_c_d_id, h_c_id", Table::Customer),
    (Table::History, "history_district", "h_w_id, h_d_id", Table::District),
    (Table::Orders, "orders_customer", "o_w_id, o_d_id, o_c_id", Table::Customer),
    (Table::NewOrder, "new_order_orders", "no_w_id, no_d_id, no_o_id", Table::Orders),
    (Table::OrderLine, "order_line_orders", "ol_w_id, ol_d_id, ol_o_id", Table::Orders),
    (Table::OrderLine, "order_line_stock", "ol_supply_w_id, ol_i_id", Table::Stock),
    (Table::Stock, "stock_warehouse", "s_w_id", Table::Warehouse),
    (Table::Stock, "stock_item", "s_i_id", Table::Item),
];

/// Whether transactions update rows of a table, so that a fill factor serves it.
const fn is_updated(table: Table) -> bool {
    !matches!(table, Table::History | Table::NewOrder | Table::Item)
}

/// The column that says to which warehouse a row belongs.
pub(crate) const fn warehouse_column(table: Table) -> Option<&'static str> {
    match table {
        Table::Warehouse => Some("w_id"),
        Table::District => Some("d_w_id"),
        Table::Customer => Some("c_w_id"),
        Table::History => Some("h_c_w_id"),
        Table::NewOrder => Some("no_w_id"),
        Table::Orders => Some("o_w_id"),
        Table::OrderLine => Some("ol_w_id"),
        Table::Item => None,
        Table::Stock => Some("s_w_id"),
    }
}

/// The place of a row in SQL, as [`super::encode::Place::hash`] packs it. The checksum of a chunk is the sum of
/// `hashint8extended(place, number of the table)` over its rows:
/// `select sum(hashint8extended(<place>, <table>)) from <table> where <warehouse> = 1`.
#[cfg(test)]
pub(crate) const fn place_sql(table: Table) -> &'static str {
    match table {
        Table::Warehouse => "w_id::bigint << 32",
        Table::District => "d_w_id::bigint << 32 | (d_id - 1)",
        Table::Customer => "c_w_id::bigint << 32 | ((c_d_id - 1) * 3000 + c_id - 1)",
        Table::History => "h_c_w_id::bigint << 32 | ((h_c_d_id - 1) * 3000 + h_c_id - 1)",
        Table::NewOrder => "no_w_id::bigint << 32 | ((no_d_id - 1) * 900 + no_o_id - 2101)",
        Table::Orders => "o_w_id::bigint << 32 | ((o_d_id - 1) * 3000 + o_id - 1)",
        Table::OrderLine => {
            "ol_w_id::bigint << 32 | (((ol_d_id - 1) * 3000 + ol_o_id - 1) * 16 + ol_number - 1)"
        }
        Table::Item => "(i_id - 1)::bigint",
        Table::Stock => "s_w_id::bigint << 32 | (s_i_id - 1)",
    }
}

/// The dataset to load, and whether somebody has begun it before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Prepared {
    pub(crate) found: TpccDataset,
    pub(crate) created: bool,
    /// What the user should know of how it was made.
    pub(crate) notes: Vec<String>,
}

/// Finds the dataset and checks that it is the one that `options` describe, or makes it. One transaction, so a kill leaves either the
/// old state or the new one.
pub(crate) fn prepare(
    client: &mut Client,
    spec: &ConnSpec,
    options: &TpccOptions,
) -> Result<Prepared, LoadError> {
    let failed = |source| LoadError::sql("preparing the tables", source);
    let mut transaction = client.transaction().map_err(failed)?;
    // Two loaders that start at once create one dataset: the second waits here and finds it.
    transaction
        .execute("select pg_advisory_xact_lock($1, $2)", &[&ledger::lock::CLASS, &ledger::lock::SETUP])
        .map_err(failed)?;
    open(&mut transaction)?;
    let mut existing = super::find(&mut transaction)?;
    if let Some(old) = existing.take_if(|_| options.restart) {
        remove(&mut transaction, &old.dataset)?;
    }
    let prepared = match existing {
        Some(found) => {
            check_identity(&found, options)?;
            check_tables(&mut transaction, &found.dataset)?;
            Prepared { found, created: false, notes: Vec::new() }
        }
        None => {
            let schema_name = connections::users_schema(spec)?;
            let (found, notes) = create(&mut transaction, options, schema_name)?;
            Prepared { found, created: true, notes }
        }
    };
    transaction.commit().map_err(failed)?;
    Ok(prepared)
}

/// Makes sure that there is a ledger that knows of TPC-C.
pub(super) fn open(client: &mut impl GenericClient) -> Result<(), LoadError> {
    ledger::create_if_missing(client)?;
    client.batch_execute(LEDGER_DDL).map_err(|source| LoadError::sql("creating pgfathom.tpcc", source))?;
    ledger::keep_code_out(client)
}

fn create(
    client: &mut impl GenericClient,
    options: &TpccOptions,
    schema_name: String,
) -> Result<(TpccDataset, Vec<String>), LoadError> {
    trust::check_schema(client, &schema_name)?;
    clear_names(client, &schema_name, &super::table_names(0), &options.force)?;
    let found = insert(client, &plan(options, schema_name, 0))?;
    for table in Table::ALL {
        client
            .batch_execute(&create_sql(&found, table, options.tablespace.as_deref()))
            .map_err(|source| LoadError::sql(format!("creating {}", table.name()), source))?;
        ledger::own_table(client, &found.dataset, table.name())?;
    }
    let notes = trust::keep_code_out(client, &found.dataset.schema_name, &super::table_names(0))?;
    Ok((found, notes))
}

/// A new dataset, which no ledger has yet.
pub(super) fn plan(options: &TpccOptions, schema_name: String, partitions: u32) -> TpccDataset {
    let population = data::tpcc::Population::new(options.seed);
    let dataset = Dataset {
        id: 0,
        name: TPCC.to_owned(),
        schema_name,
        format: FORMAT_VERSION,
        spec: Spec { seed: options.seed, key_order: KeyOrder::Sequential, compressible: Compressible::NONE },
        rows: population.rows(options.warehouses),
        partitions,
        method: Method::Copy,
        // A chunk is a warehouse's part of a group of tables.
        chunk_rows: 0,
        loaded: false,
    };
    TpccDataset {
        warehouses: options.warehouses,
        c_load: population.c_load(),
        foreign_keys: options.foreign_keys,
        fillfactor: options.fillfactor,
        dataset,
    }
}

/// Writes a dataset into the ledger.
pub(super) fn insert(
    client: &mut impl GenericClient,
    planned: &TpccDataset,
) -> Result<TpccDataset, LoadError> {
    let mut found = planned.clone();
    found.dataset.loaded = false;
    found.dataset.id = ledger::insert_dataset(client, &found.dataset)?;
    client
        .execute(
            "insert into pgfathom.tpcc (dataset, warehouses, c_load, foreign_keys, fillfactor) values ($1, $2, $3, $4, $5)",
            &[
                &found.dataset.id,
                &(found.warehouses as i32),
                &(found.c_load as i32),
                &found.foreign_keys,
                &found.fillfactor.map(|percent| percent as i32),
            ],
        )
        .map_err(|source| LoadError::sql("writing pgfathom.tpcc", source))?;
    Ok(found)
}

/// The columns in a table's definition.
pub(super) fn columns_sql(table: Table) -> String {
    let columns: Vec<String> = columns(table).iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    columns.join(", ")
}

/// The words that give a table its fill factor.
pub(super) fn fillfactor_of(found: &TpccDataset, table: Table) -> String {
    let fillfactor = found.fillfactor.filter(|_| is_updated(table));
    fillfactor.map(|percent| format!(" with (fillfactor = {percent})")).unwrap_or_default()
}

pub(super) fn create_sql(found: &TpccDataset, table: Table, tablespace: Option<&str>) -> String {
    format!(
        "create table {} ({}){}{}",
        qualified(&found.dataset.schema_name, table.name()),
        columns_sql(table),
        fillfactor_of(found, table),
        tablespace.map(|name| format!(" tablespace {}", quoted(name))).unwrap_or_default()
    )
}

/// Refuses a dataset that differs from what was asked for, naming the first difference and every flag that would match. What was not
/// asked for is taken as it is.
pub(super) fn check_identity(found: &TpccDataset, options: &TpccOptions) -> Result<(), LoadError> {
    let fillfactor =
        |percent: Option<u32>| percent.map_or("default".to_owned(), |percent| percent.to_string());
    let existing = [
        (
            "format",
            "a pgfathom of format",
            found.dataset.format.to_string(),
            Some(FORMAT_VERSION.to_string()),
        ),
        ("scale", "--scale", found.warehouses.to_string(), Some(options.warehouses.to_string())),
        ("seed", "--seed", found.dataset.spec.seed.to_string(), Some(options.seed.to_string())),
        (
            "fill factor",
            "--fillfactor",
            fillfactor(found.fillfactor),
            options.fillfactor.map(|percent| fillfactor(Some(percent))),
        ),
        (
            "partitions",
            "--partitions",
            found.dataset.partitions.to_string(),
            options.partitions.map(|partitions| partitions.to_string()),
        ),
    ];
    let mut differing: Vec<(&'static str, String, String, String)> = existing
        .into_iter()
        .filter_map(|(what, flag, value, asked)| {
            let asked = asked.filter(|asked| *asked != value)?;
            let matching = if value == "default" { format!("no {flag}") } else { format!("{flag} {value}") };
            Some((what, value, asked, matching))
        })
        .collect();
    if options.foreign_keys && !found.foreign_keys {
        differing.push(("foreign keys", "off".into(), "on".into(), "no --foreign-keys".into()));
    }
    let matching: Vec<String> = differing.iter().map(|(_, _, _, matching)| matching.clone()).collect();
    match differing.into_iter().next() {
        None => Ok(()),
        Some((what, existing, asked, _)) => Err(LoadError::OtherDataset {
            dataset: found.dataset.name.clone(),
            what,
            existing,
            asked,
            matching: matching.join(" "),
        }),
    }
}

/// Refuses tables that a load should not fill.
pub(super) fn check_in_place(client: &mut impl GenericClient, dataset: &Dataset) -> Result<(), LoadError> {
    ledger::check_in_place(client, dataset, &super::table_names(dataset.partitions))?;
    trust::check_filled(client, dataset)
}

/// Refuses to continue when a table of the dataset is gone or is somebody else's by now.
fn check_tables(client: &mut impl GenericClient, dataset: &Dataset) -> Result<(), LoadError> {
    let found = ledger::relations(client, &dataset.schema_name, &super::table_names(0), Some(dataset.id))?;
    check_in_place(client, dataset)?;
    for table in Table::ALL {
        let problem = match found.iter().find(|relation| relation.name == table.name()) {
            None => "the table is gone",
            Some(relation) if !relation.ours || relation.kind != 'r' => "the table is another one",
            Some(_) => continue,
        };
        return Err(LoadError::ChangedTable { table: table.name().to_owned(), problem: problem.to_owned() });
    }
    Ok(())
}

/// Districts must be numbered in SQL as here.
const _: () = assert!(DISTRICTS_PER_WAREHOUSE == 10);

#[cfg(test)]
mod tests {
    use super::*;
    use data::tpcc::rows::{
        Customer, District, History, Item, NewOrder, Order, OrderLine, Row, Stock, Warehouse,
    };

    fn found() -> TpccDataset {
        TpccDataset {
            dataset: Dataset {
                id: 1,
                name: TPCC.into(),
                schema_name: "public".into(),
                format: FORMAT_VERSION,
                spec: Spec { seed: 1, key_order: KeyOrder::Sequential, compressible: Compressible::NONE },
                rows: 598_000,
                partitions: 0,
                method: Method::Copy,
                chunk_rows: 0,
                loaded: false,
            },
            warehouses: 10,
            c_load: 7,
            foreign_keys: false,
            fillfactor: None,
        }
    }

    #[test]
    fn rows_and_tables_have_the_same_columns() {
        for (table, count) in [
            (Table::Warehouse, Warehouse::COLUMNS),
            (Table::District, District::COLUMNS),
            (Table::Customer, Customer::COLUMNS),
            (Table::History, History::COLUMNS),
            (Table::NewOrder, NewOrder::COLUMNS),
            (Table::Orders, Order::COLUMNS),
            (Table::OrderLine, OrderLine::COLUMNS),
            (Table::Item, Item::COLUMNS),
            (Table::Stock, Stock::COLUMNS),
        ] {
            assert_eq!(columns(table).len(), count, "{table:?}");
            let known = |name: &str| columns(table).iter().any(|(column, _)| *column == name);
            let named = primary_key(table).into_iter().chain(index(table).map(|(_, columns)| columns));
            assert!(named.flat_map(|list| list.split(", ")).all(known), "{table:?}");
            assert!(warehouse_column(table).is_none_or(known), "{table:?}");
        }
        for (table, _, list, referred) in FOREIGN_KEYS {
            assert!(list.split(", ").all(|name| columns(table).iter().any(|(column, _)| *column == name)));
            let key = primary_key(referred).expect("a key to refer to");
            assert_eq!(list.split(", ").count(), key.split(", ").count());
        }
    }

    #[test]
    fn a_fill_factor_is_for_tables_that_are_updated() {
        let found = TpccDataset { fillfactor: Some(80), ..found() };
        let stock = create_sql(&found, Table::Stock, Some("fast"));
        assert!(stock.starts_with("create table \"public\".\"stock\" (s_i_id int not null, "), "{stock}");
        assert!(
            stock.ends_with("s_data varchar(50) not null) with (fillfactor = 80) tablespace \"fast\""),
            "{stock}"
        );
        assert!(create_sql(&found, Table::Item, None).ends_with("i_data varchar(50) not null)"));
    }

    #[test]
    fn another_dataset_is_refused_with_the_flags_that_match() {
        let asked = TpccOptions::new(10);
        assert!(check_identity(&found(), &asked).is_ok());
        let with_keys = TpccDataset { foreign_keys: true, fillfactor: Some(90), ..found() };
        assert!(check_identity(&with_keys, &asked).is_ok(), "what was not asked for is taken as it is");
        for (options, what, matching) in [
            (
                TpccOptions { warehouses: 20, ..asked.clone() },
                "scale 10, but this load specifies 20",
                "--scale 10",
            ),
            (TpccOptions { seed: 2, ..asked.clone() }, "seed 1, but this load specifies 2", "--seed 1"),
            (TpccOptions { fillfactor: Some(90), ..asked.clone() }, "fill factor default", "no --fillfactor"),
            (TpccOptions { foreign_keys: true, ..asked.clone() }, "foreign keys off", "no --foreign-keys"),
        ] {
            let error = check_identity(&found(), &options).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
            assert!(error.hint().unwrap().contains(matching), "{:?}", error.hint());
        }
    }
}
