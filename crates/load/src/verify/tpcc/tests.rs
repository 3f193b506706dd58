//! Damage to each table, found by name; on every PostgreSQL found.

use std::collections::BTreeSet;

use super::*;
use crate::tpcc::TpccOptions;
use crate::tpcc::tests::{connect, each_postgres, load, start};
use crate::verify::Verdict;

fn verify(spec: &ConnSpec, deep: bool) -> TablesReport {
    let stop = Stop::new();
    run(spec, &TpccVerifyOptions { deep, jobs: 2, stop: &stop }, &mut |_| {}).unwrap()
}

/// What one statement damages, and the differences it makes.
const DAMAGES: [(&str, &[&str]); 24] = [
    ("update warehouse set w_ytd = -w_ytd where w_id = 2", &["warehouse where w_id = 2: w_ytd damaged"]),
    ("delete from warehouse where w_id = 1", &["warehouse where w_id = 1: missing"]),
    (
        "update district set d_tax = d_tax + 0.0001 where d_w_id = 1 and d_id = 10",
        &["district where d_w_id = 1 and d_id = 10: d_tax damaged"],
    ),
    (
        "update district set d_next_o_id = 3002, d_name = 'x' where d_w_id = 2 and d_id = 1",
        &["district where d_w_id = 2 and d_id = 1: d_name, d_next_o_id damaged"],
    ),
    // The sign is all that differs.
    (
        "update customer set c_balance = 10.00 where c_w_id = 1 and c_d_id = 3 and c_id = 3000",
        &["customer where c_w_id = 1 and c_d_id = 3 and c_id = 3000: c_balance damaged"],
    ),
    (
        "update customer set c_data = overlay(c_data placing '!' from 299 for 1) where c_w_id = 2 and c_d_id = 10 and c_id = 1",
        &["customer where c_w_id = 2 and c_d_id = 10 and c_id = 1: c_data damaged"],
    ),
    (
        "update customer set c_since = c_since + interval '1 microsecond' where c_w_id = 2 and c_d_id = 4 and c_id = 7",
        &["customer where c_w_id = 2 and c_d_id = 4 and c_id = 7: c_since damaged"],
    ),
    (
        "delete from history where h_c_w_id = 1 and h_c_d_id = 1 and h_c_id = 1",
        &["history where h_c_w_id = 1 and h_c_d_id = 1 and h_c_id = 1: missing"],
    ),
    (
        "insert into history select * from history where h_c_w_id = 2 and h_c_d_id = 1 and h_c_id = 5",
        &["history where h_c_w_id = 2 and h_c_d_id = 1 and h_c_id = 5: is present once too often"],
    ),
    (
        "update history set h_w_id = 2 where h_c_w_id = 1 and h_c_d_id = 1 and h_c_id = 9",
        &["history where h_c_w_id = 1 and h_c_d_id = 1 and h_c_id = 9: h_w_id damaged"],
    ),
    (
        "delete from new_order where no_w_id = 2 and no_d_id = 7 and no_o_id = 2101",
        &["new_order where no_w_id = 2 and no_d_id = 7 and no_o_id = 2101: missing"],
    ),
    (
        "insert into new_order values (2100, 7, 2)",
        &["new_order where no_w_id = 2 and no_d_id = 7 and no_o_id = 2100: stranger, not made by the load"],
    ),
    (
        "update new_order set no_w_id = 3 where no_w_id = 1 and no_d_id = 1 and no_o_id = 2500",
        &[
            "new_order where no_w_id = 1 and no_d_id = 1 and no_o_id = 2500: missing",
            "new_order where no_w_id = 3 and no_d_id = 1 and no_o_id = 2500: stranger, not made by the load",
        ],
    ),
    (
        "update orders set o_carrier_id = null where o_w_id = 1 and o_d_id = 2 and o_id = 1",
        &["orders where o_w_id = 1 and o_d_id = 2 and o_id = 1: o_carrier_id damaged"],
    ),
    (
        "update orders set o_carrier_id = 3 where o_w_id = 1 and o_d_id = 2 and o_id = 3000",
        &["orders where o_w_id = 1 and o_d_id = 2 and o_id = 3000: o_carrier_id damaged"],
    ),
    // Two rows trade a value.
    (
        "update orders a set o_entry_d = b.o_entry_d from orders b where (a.o_w_id, a.o_d_id) = (2, 2) and (b.o_w_id, b.o_d_id) = (2, 2) and a.o_id + b.o_id = 3 and a.o_id in (1, 2)",
        &[
            "orders where o_w_id = 2 and o_d_id = 2 and o_id = 1: o_entry_d damaged",
            "orders where o_w_id = 2 and o_d_id = 2 and o_id = 2: o_entry_d damaged",
        ],
    ),
    (
        "update order_line set ol_amount = 0.01 where ol_w_id = 1 and ol_d_id = 1 and ol_o_id = 1 and ol_number = 1",
        &[
            "order_line where ol_w_id = 1 and ol_d_id = 1 and ol_o_id = 1 and ol_number = 1: ol_amount damaged",
        ],
    ),
    (
        "insert into order_line select ol_o_id, ol_d_id, ol_w_id, 16, ol_i_id, 1, null, 5, 0, ol_dist_info from order_line where ol_w_id = 1 and ol_d_id = 1 and ol_o_id = 7 and ol_number = 1",
        &[
            "order_line where ol_w_id = 1 and ol_d_id = 1 and ol_o_id = 7 and ol_number = 16: stranger, not made by the load",
        ],
    ),
    (
        "delete from order_line where ol_w_id = 2 and ol_d_id = 10 and ol_o_id = 3000 and ol_number = 5",
        &["order_line where ol_w_id = 2 and ol_d_id = 10 and ol_o_id = 3000 and ol_number = 5: missing"],
    ),
    (
        "update item set i_price = i_price + 0.01 where i_id = 100000",
        &["item where i_id = 100000: i_price damaged"],
    ),
    (
        "insert into item select 0, i_im_id, i_name, i_price, i_data from item where i_id = 1",
        &["item where i_id = 0: stranger, not made by the load"],
    ),
    ("delete from item where i_id = 1", &["item where i_id = 1: missing"]),
    (
        "update stock set s_dist_01 = s_dist_10, s_ytd = 1 where s_w_id = 1 and s_i_id = 50000",
        &["stock where s_w_id = 1 and s_i_id = 50000: s_dist_01, s_ytd damaged"],
    ),
    (
        "delete from stock where s_w_id = 2 and s_i_id = 100000",
        &["stock where s_w_id = 2 and s_i_id = 100000: missing"],
    ),
];

fn lines(report: &TablesReport) -> BTreeSet<String> {
    report.differences.iter().map(ToString::to_string).collect()
}

/// All damage at once, as it must be told; then the damaged tables.
fn damage(client: &mut Client) -> (BTreeSet<String>, BTreeSet<Table>) {
    let mut expected = BTreeSet::new();
    for (statement, differences) in DAMAGES {
        let rows = client.execute(statement, &[]).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        assert!(rows >= 1, "{statement}");
        expected.extend(differences.iter().map(|line| (*line).to_owned()));
    }
    let damaged = Table::ALL.into_iter();
    let damaged = damaged
        .filter(|table| expected.iter().any(|line| line.starts_with(&format!("{} where", table.name()))));
    let damaged = damaged.collect();
    (expected, damaged)
}

#[test]
fn damage_is_named_fast_and_deep() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let spec = cluster.spec();
        let rows = load(&spec, &TpccOptions::new(2)).unwrap().rows;
        for deep in [false, true] {
            let report = verify(&spec, deep);
            assert_eq!(report.verdict(), Verdict::Exact, "{deep} {:?}", report.differences);
            assert_eq!(report.method, if deep { Method::Deep } else { Method::Fast });
            assert_eq!((report.rows_expected(), report.rows_found()), (rows, rows));
            assert_eq!((report.tables.len(), report.notes.len()), (9, 0));
        }
        let mut client = connect(&spec);
        let (expected, damaged) = damage(&mut client);
        assert_eq!(damaged.len(), 9, "every table is damaged");
        // The versions differ in what the server does for us, not in how we take it in: portions are tried on the newest.
        let newest = installation.version == lab::throwaway::installations().remove(0).version;
        let ways = [(false, LIMITS.places), (true, LIMITS.places), (false, 1), (true, 1)];
        for (deep, places) in ways.into_iter().take(if newest { 4 } else { 2 }) {
            let (stop, limits) =
                (Stop::new(), Limits { places, blocks_at_once: if places == 1 { 100 } else { 8192 } });
            let options = TpccVerifyOptions { deep, jobs: 2, stop: &stop };
            let report =
                run_within(&Cluster::single(spec.clone()), &options, &mut |_| {}, limits, true).unwrap();
            assert_eq!(lines(&report), expected, "deep {deep}, {places} places at a time");
            assert_eq!(report.differences_total(), expected.len() as u64);
            assert_eq!(report.verdict(), Verdict::Different);
            assert_eq!(report.method, if deep { Method::Deep } else { Method::FastThenDeep });
            assert_eq!(report.rows_expected(), rows);
            assert!(report.tables.iter().all(|table| table.differences > 0), "{:?}", report.tables);
        }
        // Without the server's hash: the same answer, and why it took longer.
        let stop = Stop::new();
        let options = TpccVerifyOptions { deep: false, jobs: 1, stop: &stop };
        let report =
            run_within(&Cluster::single(spec.clone()), &options, &mut |_| {}, LIMITS, false).unwrap();
        assert_eq!((report.method, lines(&report)), (Method::Deep, expected));
        assert!(report.notes[0].contains("cannot hash"), "{:?}", report.notes);
    });
}

#[test]
fn what_is_gone_changed_or_unknown_is_said() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let spec = cluster.spec();
        let stop = Stop::new();
        let options = TpccVerifyOptions { deep: false, jobs: 1, stop: &stop };
        let verify_fails = || run(&spec, &options, &mut |_| {}).unwrap_err();
        assert!(matches!(verify_fails(), VerifyError::NoDataset));
        load(&spec, &TpccOptions::new(1)).unwrap();
        let mut client = connect(&spec);
        client.batch_execute("update pgfathom.dataset set loaded_at = null").unwrap();
        assert!(matches!(verify_fails(), VerifyError::Incomplete { .. }));
        client.batch_execute("update pgfathom.dataset set loaded_at = now()").unwrap();

        client.batch_execute("alter table item alter i_data type text").unwrap();
        let error = verify_fails();
        assert_eq!(error.to_string(), "item: its column i_data is no longer varchar(50), but text");
        client.batch_execute("alter table item alter i_data type varchar(50)").unwrap();

        client.batch_execute("drop table warehouse").unwrap();
        let report = verify(&spec, false);
        assert_eq!(lines(&report), ["warehouse where w_id = 1: missing".to_owned()].into());

        // A run changes what it likes, but never the items.
        let found = find(&mut client).unwrap().expect("a dataset");
        ledger::create_writer(&mut client, &found.dataset, "{}").unwrap();
        client.batch_execute("update district set d_next_o_id = 3007").unwrap();
        let report = verify(&spec, false);
        assert_eq!((report.verdict(), report.tables.len()), (Verdict::CannotTell, 1));
        assert!(report.notes[0].starts_with("1 run has written"), "{:?}", report.notes);
        client.batch_execute("update item set i_name = 'x' where i_id = 3").unwrap();
        let report = verify(&spec, false);
        assert_eq!(report.verdict(), Verdict::Different);
        assert_eq!(lines(&report), ["item where i_id = 3: i_name damaged".to_owned()].into());

        let stop = Stop::new();
        stop.request();
        let stopped = run(&spec, &TpccVerifyOptions { deep: true, jobs: 2, stop: &stop }, &mut |_| {});
        assert!(matches!(stopped, Err(VerifyError::Interrupted)));
    });
}
