//! Damage that leaves the rows alone: tables that are defined otherwise than the load made them, ledgers that somebody has changed, tables and
//! ledgers of roles that nobody should trust. Each is done to a copy of a loaded database, and verified fast and deep, on every PostgreSQL found.

mod rights;

use crate::support;
use connect::ConnSpec;
use data::ycsb::{Compressible, KeyOrder, Spec};
use lab::throwaway::{SUPERUSER, Throwaway, installations};
use load::progress::Silent;
use load::verify::{Verdict, VerifyError};
use load::{LoadError, Outcome, Stop};
use support::tpcc::{load_tpcc, verify_tpcc, warehouses};
use support::{Options, load_ycsb, verify_ycsb, words};
use workloads::tpcc::Tpcc;

const ROWS: u64 = 2000;

/// What a verification must come to.
enum Expected {
    /// No verdict, with these words.
    Refused(&'static str),
    /// A difference, with a line that holds these words.
    Different(&'static str),
    /// Exact, with a note that holds these words.
    Noted(&'static str),
    /// Exact, without a note.
    Exact,
}
use Expected::{Different, Exact, Noted, Refused};

fn database(server: &Throwaway, name: &str) -> ConnSpec {
    server.spec().with_dbname(name)
}

fn options(rows: u64, partitions: u32) -> Options {
    let spec = Spec { seed: 3, key_order: KeyOrder::Scattered, compressible: Compressible::NONE };
    Options { partitions: Some(partitions), chunk_rows: Some(500), ..Options::new(rows, spec) }
}

fn on_each(test: impl Fn(&Throwaway) + Sync) {
    let all = installations();
    assert!(!all.is_empty(), "these tests need a PostgreSQL");
    std::thread::scope(|scope| {
        for installation in &all {
            scope.spawn(|| test(&Throwaway::start(installation, &[]).expect("a throwaway cluster starts")));
        }
    });
}

/// Verdict, lines and notes of the verification of either dataset.
fn verify(spec: &ConnSpec, is_tpcc: bool, deep: bool) -> Result<(Verdict, String, String), VerifyError> {
    let report = if is_tpcc { verify_tpcc(spec, deep)? } else { verify_ycsb(spec, deep)? };
    let problems = report.problems.iter().map(ToString::to_string);
    let lines: Vec<String> = problems.chain(report.differences.iter().map(ToString::to_string)).collect();
    Ok((report.verdict(), lines.join("\n"), report.notes.join("\n")))
}

/// Does each damage to a copy of the database and verifies it. All that is judged otherwise than expected is named at the end.
fn damage(server: &Throwaway, template: &str, is_tpcc: bool, damages: &[(&str, Expected)]) {
    let version = server.installation().version;
    // Both ways judge definitions and ledgers with the same code before they read rows, and TPC-C has many of these.
    let is_thorough =
        testing::is_thorough("each damage verified fast and deep: every other one of YCSB is verified deep");
    let mut wrong = Vec::new();
    for (number, (sql, expected)) in damages.iter().enumerate() {
        let name = format!("copy{number}");
        // Large ones are copied as files, not page by page through the WAL.
        let strategy = if is_tpcc { "file_copy" } else { "wal_log" };
        server
            .execute(&format!("create database {name} template {template} strategy {strategy}"))
            .expect("a copy");
        server.execute_in(&name, sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let ways = if is_thorough { &[false, true][..] } else { &[!is_tpcc && number % 2 == 1][..] };
        for &deep in ways {
            let found = verify(&database(server, &name), is_tpcc, deep);
            let result = format!("PostgreSQL {version}, deep {deep}, after {sql}: {found:?}");
            let is_right = match (expected, found) {
                (Refused(text), Err(error)) => words(&error).contains(text),
                (Different(text), Ok((Verdict::Different, lines, _))) => lines.contains(text),
                (Noted(text), Ok((Verdict::Exact, _, notes))) => notes.contains(text),
                (Exact, Ok((Verdict::Exact, lines, notes))) => lines.is_empty() && notes.is_empty(),
                _ => false,
            };
            if !is_right {
                wrong.push(result);
            }
        }
        server.execute(&format!("drop database {name}")).expect("it goes away");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_table_that_is_defined_otherwise_is_never_exact() {
    on_each(|server| {
        for (name, partitions) in [("plain", 0), ("parts", 3)] {
            server.execute(&format!("create database {name}")).unwrap();
            let report =
                load_ycsb(&database(server, name), &options(ROWS, partitions), &Stop::new(), &mut Silent);
            assert_eq!(report.unwrap().outcome, Outcome::Complete);
        }
        let hidden = "create policy p on usertable using (ycsb_key < 'user5')";
        damage(
            server,
            "plain",
            false,
            &[
                ("select 1", Exact),
                (
                    "alter table usertable alter field3 type char(120)",
                    Refused("field3 is no longer varchar(100), but character(120)"),
                ),
                (
                    "alter table usertable alter field3 type varchar(101)",
                    Refused("field3 is no longer varchar(100), but character varying(101)"),
                ),
                (
                    "alter table usertable alter field3 type varchar",
                    Refused("field3 is no longer varchar(100), but character varying"),
                ),
                ("alter table usertable alter field3 type text", Refused("but text")),
                ("alter table usertable alter field3 type bytea using field3::bytea", Refused("but bytea")),
                (
                    "create domain d as varchar(100); alter table usertable alter field3 type d",
                    Refused("is no longer varchar(100), but"),
                ),
                (
                    "alter table usertable alter field3 type varchar(100) collate \"C\"",
                    Refused("field3 has another collation, \"C\""),
                ),
                (
                    "alter table usertable alter ycsb_key type varchar(65)",
                    Refused("ycsb_key is no longer varchar(64)"),
                ),
                ("alter table usertable drop field9", Refused("has no column field9")),
                ("alter table usertable rename field9 to field_9", Refused("has no column field9")),
                (
                    "alter table usertable rename to users",
                    Refused("is not where the load made it: it is now public.users"),
                ),
                ("create schema s; alter table usertable set schema s", Refused("it is now s.usertable")),
                ("drop table usertable", Different("usertable: is gone")),
                (
                    "alter table usertable rename to t; create view usertable as select * from t",
                    Refused("public.usertable is a view, not a table"),
                ),
                (
                    "alter table usertable drop constraint usertable_pkey",
                    Different("has no primary key (ycsb_key)"),
                ),
                (
                    "alter table usertable drop constraint usertable_pkey; alter table usertable alter ycsb_key drop not null",
                    Different("ycsb_key is nullable"),
                ),
                (
                    "alter table usertable drop constraint usertable_pkey; create unique index on usertable (ycsb_key)",
                    Different("has no primary key"),
                ),
                (
                    "alter table usertable drop constraint usertable_pkey; alter table usertable add primary key (ycsb_key) deferrable",
                    Different("has no primary key"),
                ),
                (
                    "update pg_index set indisvalid = false where indrelid = 'usertable'::regclass",
                    Different("its index usertable_pkey is invalid"),
                ),
                (
                    "update pg_index set indisready = false where indrelid = 'usertable'::regclass",
                    Different("its index usertable_pkey is invalid"),
                ),
                ("alter table usertable set unlogged", Different("is unlogged, but was created logged")),
                ("create table child () inherits (usertable)", Different("has child tables")),
                (
                    "create table child () inherits (usertable); insert into child select * from usertable limit 3",
                    Different("has child tables"),
                ),
                ("alter table usertable add mine int", Noted("columns that the load did not make (mine)")),
                (
                    "alter table usertable drop field9; alter table usertable add field9 varchar(100)",
                    Different("null"),
                ),
                (
                    "alter table usertable add column f varchar(100); update usertable set f = field2; alter table usertable drop field2; alter table usertable rename f to field2",
                    Different("has its columns in another order"),
                ),
                (
                    "alter table usertable drop field9; alter table usertable add field9 varchar(100) generated always as ('x') stored",
                    Refused("field9 is generated"),
                ),
                (hidden, Exact),
                ("create index on usertable (field3)", Exact),
                ("create role watcher; grant select on usertable to watcher", Exact),
            ],
        );
        damage(
            server,
            "parts",
            false,
            &[
                ("select 1", Exact),
                (
                    "alter table usertable detach partition usertable_p1",
                    Different("usertable_p1: is no longer a partition of the table"),
                ),
                ("drop table usertable_p1", Different("usertable_p1: is gone")),
                ("alter table usertable_p1 set unlogged", Different("usertable_p1: is unlogged")),
                (
                    "alter table usertable alter field0 type varchar(99) using left(field0, 99)",
                    Refused("field0 is no longer varchar(100)"),
                ),
                ("alter table usertable drop constraint usertable_pkey", Different("has no primary key")),
                (
                    "update pg_index set indisvalid = false where indrelid = 'usertable'::regclass",
                    Different("usertable: its index usertable_pkey is invalid"),
                ),
                (
                    "update pg_index set indisvalid = false where indrelid = 'usertable_p2'::regclass",
                    Different("usertable_p2: its index"),
                ),
                (
                    "alter table usertable detach partition usertable_p1; alter table usertable_p1 rename to old; \
                     create table usertable_p1 partition of usertable for values with (modulus 3, remainder 1) partition by hash (ycsb_key); \
                     create table usertable_p1_a partition of usertable_p1 for values with (modulus 1, remainder 0); \
                     insert into usertable_p1 select * from old; drop table old",
                    Refused("usertable_p1: is itself partitioned"),
                ),
                (
                    "create extension postgres_fdw; create server far foreign data wrapper postgres_fdw; \
                     alter table usertable detach partition usertable_p1; alter table usertable drop constraint usertable_pkey; \
                     drop table usertable_p1; \
                     create foreign table usertable_p1 partition of usertable for values with (modulus 3, remainder 1) server far",
                    Refused("usertable_p1: is a foreign table: its rows are on another server"),
                ),
                (
                    "create table whole as select * from usertable; drop table usertable; alter table whole rename to usertable",
                    Refused(""),
                ),
            ],
        );
    });
}

#[test]
fn a_ledger_that_somebody_has_changed_is_noticed() {
    on_each(|server| {
        server.execute("create database one").unwrap();
        load_ycsb(&database(server, "one"), &options(ROWS, 0), &Stop::new(), &mut Silent).unwrap();
        let contradicts = "is inconsistent";
        damage(
            server,
            "one",
            false,
            &[
                ("update pgfathom.dataset set rows = 9000000000000000000", Refused(contradicts)),
                ("update pgfathom.dataset set rows = 2001", Refused(contradicts)),
                ("update pgfathom.dataset set rows = 1999", Refused(contradicts)),
                ("update pgfathom.dataset set rows = 0", Refused(contradicts)),
                ("update pgfathom.dataset set rows = -1", Refused("the ledger is damaged")),
                ("update pgfathom.dataset set chunk_rows = 499", Refused(contradicts)),
                ("update pgfathom.dataset set chunk_rows = 0", Refused(contradicts)),
                ("update pgfathom.dataset set seed = 4", Different("missing")),
                ("delete from pgfathom.chunk where chunk = 2", Refused(contradicts)),
                ("delete from pgfathom.chunk where chunk = 3", Refused(contradicts)),
                ("delete from pgfathom.chunk", Refused(contradicts)),
                ("update pgfathom.chunk set rows = 501 where chunk = 1", Refused(contradicts)),
                (
                    "update pgfathom.chunk set rows = rows + case chunk when 1 then 7 else -7 end where chunk in (1, 2)",
                    Refused("chunk 1 is recorded with 507 rows"),
                ),
                ("update pgfathom.chunk set rows = -rows", Refused(contradicts)),
                ("update pgfathom.chunk set rows = 9000000000000000000", Refused(contradicts)),
                (
                    "update pgfathom.chunk set first_row = 0 where chunk = 3",
                    Refused("chunk 3 is recorded with 500 rows from row 0 on"),
                ),
                (
                    "update pgfathom.chunk set chunk = 9000000000000000000 where chunk = 3",
                    Refused(contradicts),
                ),
                ("update pgfathom.chunk set chunk = -1 where chunk = 3", Refused(contradicts)),
                (
                    "update pgfathom.chunk set checksum = checksum + 1 where chunk = 3",
                    Different("of chunk 3 do not match its rows"),
                ),
                (
                    "insert into pgfathom.chunk select dataset, chunk, first_row, rows, bytes, checksum, stream, started_at, 1 from pgfathom.chunk",
                    Refused(contradicts),
                ),
                (
                    "update pgfathom.chunk set leaf = 2, leaves = '{2}' where chunk = 1",
                    Refused("for some partitions only"),
                ),
                ("update pgfathom.chunk set leaf = 1 where chunk = 1", Refused("for some partitions only")),
                ("update pgfathom.chunk set bytes = 9000000000000000000", Different("of chunk 0 and 3 more")),
                (
                    "update pgfathom.chunk set bytes = bytes + 1 where chunk = 0",
                    Different("of chunk 0 do not match its rows"),
                ),
                (
                    "update pgfathom.chunk set checksum = checksum + case chunk when 1 then 1 else -1 end where chunk in (1, 2)",
                    Different("chunk 1 and 1 more"),
                ),
                (
                    "update pgfathom.dataset set nodes = '{a,b}'",
                    Refused("names the nodes a, b, but has no token"),
                ),
                ("update pgfathom.dataset set token = 77", Refused("has a token, but names no nodes")),
                (
                    "update pgfathom.dataset set token = 77, nodes = '{a,b}'",
                    Noted("the ledger has the dataset on the nodes a, b"),
                ),
                ("delete from pgfathom.object", Refused("does not list the table usertable")),
                (
                    "alter table pgfathom.chunk rename to c; create view pgfathom.chunk as select * from pgfathom.c",
                    Refused("pgfathom.chunk is a view, not a table"),
                ),
            ],
        );
    });
}

#[test]
fn tables_of_tpcc_that_are_defined_otherwise_are_never_exact() {
    on_each(|server| {
        server.execute("create database w").unwrap();
        load_tpcc(&database(server, "w"), &warehouses(1), &mut Silent).unwrap();
        let contradicts = "is inconsistent";
        damage(
            server,
            "w",
            true,
            &[
                ("select 1", Exact),
                (
                    "alter table item alter i_price type numeric(6,2)",
                    Refused("i_price is no longer numeric(5,2), but numeric(6,2)"),
                ),
                (
                    "alter table customer alter c_last type varchar(16) collate \"default\"",
                    Refused("c_last has another collation"),
                ),
                ("alter table stock alter s_ytd type bigint", Refused("s_ytd is no longer int, but bigint")),
                (
                    "alter table orders drop constraint orders_pkey",
                    Different("orders: has no primary key (o_w_id, o_d_id, o_id)"),
                ),
                (
                    "drop index customer_by_name",
                    Different("customer: has no index on (c_w_id, c_d_id, c_last, c_first)"),
                ),
                (
                    "alter table history alter h_data drop not null",
                    Different("history: its column h_data is nullable"),
                ),
                ("alter table warehouse set unlogged", Different("warehouse: is unlogged")),
                (
                    "drop index customer_by_name; create index customer_by_name on customer using brin (c_w_id, c_d_id, c_last, c_first)",
                    Different("customer: has no index on (c_w_id, c_d_id, c_last, c_first)"),
                ),
                (
                    "drop index customer_by_name; create index customer_by_name on customer (c_w_id, c_d_id, c_last collate \"C\", c_first collate \"POSIX\")",
                    Different("customer: has no index on (c_w_id, c_d_id, c_last, c_first)"),
                ),
                (
                    "drop index customer_by_name; create index customer_by_name on customer (c_w_id, c_d_id, c_last varchar_pattern_ops, c_first)",
                    Different("customer: has no index on (c_w_id, c_d_id, c_last, c_first)"),
                ),
                (
                    "alter table item rename to i; create table item (like i including all) partition by range (i_id); \
                     create table item_p0 partition of item default; insert into item select * from i; drop table i",
                    Refused("is partitioned now, but was created as one table"),
                ),
                (
                    "update pgfathom.chunk set checksum = checksum + 1 where chunk = 2",
                    Different("of chunk 2 do not match its rows"),
                ),
                ("update pgfathom.chunk set first_row = first_row + 1 where chunk = 2", Refused(contradicts)),
                (
                    "update pgfathom.chunk set bytes = bytes + 1 where chunk = 2",
                    Different("of chunk 2 do not match its rows"),
                ),
                (
                    "update pgfathom.chunk set leaves = '{2}' where chunk = 2",
                    Refused("for some partitions only"),
                ),
                (
                    "update pgfathom.dataset set token = 77, nodes = '{a,b}'",
                    Noted("the ledger has the dataset on the nodes a, b"),
                ),
                (
                    "delete from pgfathom.object where name = 'stock'",
                    Refused("does not list the table stock"),
                ),
                ("alter table item rename to items", Refused("it is now public.items")),
                ("create table more () inherits (district)", Different("has child tables")),
                ("update pgfathom.parameter set value = 2 where name = 'scale'", Refused(contradicts)),
                ("update pgfathom.dataset set rows = rows + 1", Refused(contradicts)),
                ("delete from pgfathom.chunk where chunk = 3", Refused(contradicts)),
                ("update pgfathom.chunk set rows = rows - 1 where chunk = 2", Refused(contradicts)),
            ],
        );
    });
}

#[test]
fn a_partition_that_is_being_detached_is_never_exact() {
    on_each(|server| {
        if server.installation().version.major < 14 {
            return;
        }
        server.execute("create database parts").unwrap();
        let spec = database(server, "parts");
        load_ycsb(&spec, &options(ROWS, 3), &Stop::new(), &mut Silent).unwrap();
        // It waits for this transaction, and is cancelled while it does.
        let mut reader = connect::control::connect(&spec).unwrap();
        reader
            .batch_execute("begin isolation level repeatable read; select count(*) from usertable")
            .unwrap();
        let mut other = connect::control::connect(&spec).unwrap();
        other.batch_execute("set statement_timeout = '500ms'").unwrap();
        let detach = "alter table usertable detach partition usertable_p2 concurrently";
        other.batch_execute(detach).expect_err("the reader keeps it from its end");
        reader.batch_execute("commit").unwrap();
        for deep in [false, true] {
            let (verdict, lines, _) = verify(&spec, false, deep).unwrap();
            assert_eq!(verdict, Verdict::Different, "{lines}");
            assert!(lines.contains("usertable_p2: is being detached"), "{lines}");
        }
        server.execute_in("parts", "update pgfathom.dataset set loaded_at = null").unwrap();
        let error = load_ycsb(&spec, &options(ROWS, 3), &Stop::new(), &mut Silent).unwrap_err();
        assert!(words(&error).contains("usertable_p2"), "{}", words(&error));
        other.batch_execute("alter table usertable detach partition usertable_p2 finalize").unwrap();
        server.execute_in("parts", "update pgfathom.dataset set loaded_at = now()").unwrap();
        let (_, lines, _) = verify(&spec, false, false).unwrap();
        assert!(lines.contains("usertable_p2: is no longer a partition of the table"), "{lines}");
    });
}

#[test]
fn foreign_keys_that_let_rows_pass_are_never_exact() {
    on_each(|server| {
        server.execute("create database k").unwrap();
        load_tpcc(&database(server, "k"), &Tpcc::new(1, 1, true, None), &mut Silent).unwrap();
        damage(
            server,
            "k",
            true,
            &[
                ("select 1", Exact),
                (
                    "alter table stock drop constraint stock_item",
                    Different("stock: its foreign key stock_item (s_i_id) on item is gone"),
                ),
                (
                    "alter table stock drop constraint stock_item; alter table stock add constraint stock_item foreign key (s_i_id) references item not valid",
                    Different("stock_item (s_i_id) on item is not valid"),
                ),
                (
                    "alter table stock disable trigger all",
                    Different("stock_warehouse (s_w_id) on warehouse is not enforced"),
                ),
                (
                    "alter table stock drop constraint stock_item; alter table stock add constraint mine foreign key (s_i_id) references item",
                    Exact,
                ),
            ],
        );
    });
}
