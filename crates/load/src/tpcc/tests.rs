//! Loads into real servers: what is there afterwards, what is refused, and what a kill leaves.

use std::time::Duration;

use connect::ConnSpec;
use data::tpcc::Table;
use lab::throwaway::{Installation, Throwaway, installations};
use postgres::Client;

use super::plan::chunks;
use super::schema::place_sql;
use super::*;
use crate::options::Stop;
use crate::progress::{LoadEvent, Observer, Progress, Silent};
use crate::{LoadReport, Outcome, ledger};

/// Runs `test` against every PostgreSQL found, each in a thread of its own. Fails when there is none.
pub(crate) fn each_postgres(test: impl Fn(&Installation) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL found: run scripts/install-deps");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            std::thread::Builder::new()
                .name(format!("postgres {}", installation.version))
                .spawn_scoped(scope, move || test(installation))
                .expect("a thread starts");
        }
    });
}

pub(crate) fn start(installation: &Installation) -> Throwaway {
    Throwaway::start(installation, &[("max_wal_size", "4GB")]).expect("a throwaway cluster starts")
}

pub(crate) fn connect(target: &ConnSpec) -> Client {
    connect::control::connect(target).expect("the cluster accepts connections").into_client()
}

pub(crate) fn load(target: &ConnSpec, options: &TpccOptions) -> Result<LoadReport, LoadError> {
    load_tpcc(target, options, &Stop::new(), &mut Silent)
}

fn number(client: &mut Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
}

/// The twelve consistency conditions (clause 3.3.2): each counts what violates it.
const CONDITIONS: [&str; 12] = [
    "select count(*) from warehouse left join (select d_w_id, sum(d_ytd) s from district group by 1) d on d_w_id = w_id
     where w_ytd is distinct from s",
    "select count(*) from district
     left join (select o_w_id, o_d_id, max(o_id) mo from orders group by 1, 2) o on (o_w_id, o_d_id) = (d_w_id, d_id)
     left join (select no_w_id, no_d_id, max(no_o_id) mn from new_order group by 1, 2) n on (no_w_id, no_d_id) = (d_w_id, d_id)
     where d_next_o_id - 1 is distinct from mo or mn is distinct from mo",
    "select count(*) from (select no_w_id from new_order group by no_w_id, no_d_id
                           having max(no_o_id) - min(no_o_id) + 1 <> count(*)) x",
    "select count(*) from (select o_w_id w, o_d_id d, sum(o_ol_cnt) a from orders group by 1, 2) o
     full join (select ol_w_id w, ol_d_id d, count(*) b from order_line group by 1, 2) l using (w, d)
     where a is distinct from b",
    "select count(*) from orders full join new_order on (no_w_id, no_d_id, no_o_id) = (o_w_id, o_d_id, o_id)
     where o_id is null or (o_carrier_id is null) <> (no_o_id is not null)",
    "select count(*) from orders
     full join (select ol_w_id, ol_d_id, ol_o_id, count(*) n from order_line group by 1, 2, 3) l
     on (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id) where o_ol_cnt is distinct from n",
    "select count(*) from order_line left join orders on (o_w_id, o_d_id, o_id) = (ol_w_id, ol_d_id, ol_o_id)
     where o_id is null or (ol_delivery_d is null) <> (o_carrier_id is null)",
    "select count(*) from warehouse left join (select h_w_id, sum(h_amount) s from history group by 1) h on h_w_id = w_id
     where w_ytd is distinct from s",
    "select count(*) from district left join (select h_w_id, h_d_id, sum(h_amount) s from history group by 1, 2) h
     on (h_w_id, h_d_id) = (d_w_id, d_id) where d_ytd is distinct from s",
    "select count(*) from customer
     left join (select o_w_id w, o_d_id d, o_c_id c, sum(ol_amount) s from orders
                join order_line on (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
                where ol_delivery_d is not null group by 1, 2, 3) ol on (w, d, c) = (c_w_id, c_d_id, c_id)
     left join (select h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) a from history group by 1, 2, 3) h
     on (h_c_w_id, h_c_d_id, h_c_id) = (c_w_id, c_d_id, c_id)
     where c_balance <> coalesce(s, 0) - coalesce(a, 0) or c_balance + c_ytd_payment <> coalesce(s, 0)",
    "select count(*) from (select o_w_id w, o_d_id d, count(*) a from orders group by 1, 2) o
     full join (select no_w_id w, no_d_id d, count(*) b from new_order group by 1, 2) n using (w, d)
     where a - coalesce(b, 0) <> 2100",
    "select count(*) from customer where c_balance + c_ytd_payment <> 0",
];

/// Proves what SQL alone can prove: counts, checksums of the ledger, conditions, keys, statistics.
fn assert_complete(client: &mut Client, found: &TpccDataset, rows: u64) {
    assert!(found.dataset.loaded);
    let totals = ledger::chunk_totals(client, found.dataset.id).unwrap();
    assert_eq!((totals.chunks, totals.rows), (chunks(found.warehouses), rows));
    let mut counted = 0;
    let mut checksum = 0u64;
    for table in Table::ALL {
        let sql = format!(
            "select count(*), mod(coalesce(sum(hashint8extended({}, {})), 0), 18446744073709551616)::text from {}",
            place_sql(table),
            table as u64,
            table.name()
        );
        let row = client.query_one(&sql, &[]).unwrap();
        counted += row.get::<_, i64>(0) as u64;
        checksum = checksum.wrapping_add(row.get::<_, &str>(1).parse::<i128>().unwrap() as u64);
    }
    assert_eq!(counted, rows, "rows of all tables");
    assert_eq!(checksum, totals.checksum, "the checksums of the ledger");
    for (condition, sql) in (1..).zip(CONDITIONS) {
        assert_eq!(number(client, sql), 0, "condition {condition}");
    }
    let keys = "select count(*) from pg_index i join pg_class c on c.oid = i.indrelid
                where c.relname = any ('{warehouse,district,customer,history,new_order,orders,order_line,item,stock}') and i.indisvalid";
    assert_eq!(number(client, keys), 8 + 2, "keys of all tables but history, and two indexes");
    let analyzed = "select count(*) from pg_class where reltuples > 0 and relkind = 'r'
                    and relname = any ('{warehouse,district,customer,history,new_order,orders,order_line,item,stock}')";
    assert_eq!(number(client, analyzed), 9, "statistics of all tables");
}

#[test]
fn two_warehouses_are_loaded_as_the_specification_says() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        let asked = TpccOptions { seed: 7, foreign_keys: true, fillfactor: Some(90), ..TpccOptions::new(2) };
        let report = load(&target, &asked).unwrap();
        let population = Population::new(7);
        assert_eq!(report.outcome, Outcome::Complete);
        assert_eq!((report.rows, report.totals.rows), (population.rows(2), population.rows(2)));
        assert_eq!((report.chunks, report.chunks_total), (7, 7));
        assert!(
            report.bytes > 0 && report.table_bytes_on_disk > report.bytes && report.index_bytes_on_disk > 0
        );
        let mean = report.bytes / report.rows;
        assert!(mean.abs_diff(fill::row_bytes_mean(2, report.rows)) <= 1, "{mean} bytes a row");

        let mut client = connect(&target);
        let found = find(&mut client).unwrap().expect("a dataset");
        assert_eq!((found.warehouses, found.c_load), (2, population.c_load()));
        assert!(data::tpcc::nurand::is_allowed(found.c_load, found.run_constants().c_last));
        assert_complete(&mut client, &found, population.rows(2));
        assert_eq!(
            number(
                &mut client,
                "select count(*) from pg_constraint where contype = 'f' and convalidated and connamespace = 'public'::regnamespace"
            ),
            10
        );
        let filled = "select count(*) from pg_class where 'fillfactor=90' = any (reloptions)";
        assert_eq!(number(&mut client, filled), 6);

        let again = load(&target, &asked).unwrap();
        assert_eq!((again.outcome, again.rows), (Outcome::AlreadyComplete, 0));
        for (options, words) in [
            (TpccOptions::new(3), "has scale 2, but this load specifies 3"),
            (TpccOptions { seed: 8, ..asked.clone() }, "has seed 7, but this load specifies 8"),
        ] {
            assert!(load(&target, &options).unwrap_err().to_string().contains(words));
        }
        let restarted = TpccOptions { restart: true, seed: 8, ..TpccOptions::new(1) };
        let report = load(&target, &restarted).unwrap();
        assert_eq!(report.rows, Population::new(8).rows(1));
        let found = find(&mut client).unwrap().expect("a dataset");
        assert_complete(&mut client, &found, report.rows);
    });
}

#[test]
fn foreign_tables_are_refused_unless_named() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        cluster.execute("create table item (i int); create view stock as select 1 as one").unwrap();
        let asked = TpccOptions::new(1);
        let error = load(&target, &asked).unwrap_err();
        assert!(matches!(&error, LoadError::ForeignTable { name, .. } if name == "item"), "{error}");
        let one = TpccOptions { force: vec!["item".into()], ..asked.clone() };
        let error = load(&target, &one).unwrap_err();
        assert!(matches!(&error, LoadError::ForeignTable { name, .. } if name == "stock"), "{error}");
        let mut client = connect(&target);
        assert_eq!(
            number(&mut client, "select count(*) from pg_class where relname = 'item'"),
            1,
            "still there"
        );
        assert!(find(&mut client).unwrap().is_none());
        let both = TpccOptions { force: vec!["item".into(), "stock".into()], ..asked };
        let report = load(&target, &both).unwrap();
        assert_eq!(report.outcome, Outcome::Complete);
    });
}

/// Requests a stop when so many chunks are done.
struct StopAt<'a>(&'a Stop, u64);

impl Observer for StopAt<'_> {
    fn progress(&mut self, progress: &Progress, _: &record::ProgressSample, _: Duration) {
        if progress.chunks_done >= self.1 && self.0.level() == crate::StopLevel::Run {
            self.0.request();
        }
    }
    fn event(&mut self, _: &LoadEvent) {}
}

#[test]
fn a_stopped_load_continues() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let target = cluster.spec();
        let (asked, stop) = (TpccOptions::new(2), Stop::new());
        let report = load_tpcc(&target, &asked, &stop, &mut StopAt(&stop, 1)).unwrap();
        assert_eq!(report.outcome, Outcome::Interrupted);
        assert!(report.totals.chunks >= 1 && report.totals.chunks < report.chunks_total, "{report:?}");
        let safe = report.totals.rows;
        let report = load(&target, &asked).unwrap();
        assert_eq!((report.outcome, report.rows + safe), (Outcome::Complete, report.totals.rows));
        let mut client = connect(&target);
        let found = find(&mut client).unwrap().expect("a dataset");
        assert_complete(&mut client, &found, Population::new(1).rows(2));
    });
}

#[test]
fn what_cannot_be_is_refused_with_its_flag() {
    let asked = TpccOptions::new(1);
    assert!(asked.check().is_ok());
    let refused = |options: TpccOptions| match options.check() {
        Err(LoadError::Option { flag, hint, .. }) => (flag, hint),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(TpccOptions::new(0)).0, "-s/--scale");
    assert!(refused(TpccOptions::new(WAREHOUSES_MAX + 1)).1.contains("1000000"));
    assert_eq!(refused(TpccOptions { streams: 0, ..asked.clone() }).0, "-j");
    for percent in [9, 101] {
        assert_eq!(refused(TpccOptions { fillfactor: Some(percent), ..asked.clone() }).0, "--fillfactor");
    }
}
