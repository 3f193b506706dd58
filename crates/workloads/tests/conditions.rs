//! The books of a loaded TPC-C database on every PostgreSQL found: whole, then damaged condition by condition, then while they are written.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::ConnSpec;
use engines::Cluster;
use lab::throwaway::{Installation, Throwaway, installations};
use prove::conditions::{Answer, Condition, Options, Outcome, ProveError, Report, WITNESSES_MAX, prove};
use workloads::tpcb::Tpcb;
use workloads::tpcb::conditions::{B1, B2, B3, B4, B5, B6, TpcbConditions};
use workloads::tpcc::conditions::*;

const WAREHOUSES: u32 = 2;
/// A query that waits for a lock is seen within this time.
const WAITING_MAX: Duration = Duration::from_secs(60);

/// A database of its own on a server that all tests of this file share.
struct Loaded {
    server: &'static Throwaway,
    name: String,
}

impl Loaded {
    fn spec(&self) -> ConnSpec {
        self.server.spec().with_dbname(&self.name)
    }

    fn execute(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, impl std::error::Error> {
        self.server.execute_in(&self.name, sql)
    }

    /// A copy of what was loaded, in place of the copy of this name.
    fn copy(server: &'static Throwaway, name: &str) -> Loaded {
        server.execute(&format!("drop database if exists {name}")).unwrap();
        server.execute(&format!("create database {name} template {LOADED} strategy file_copy")).unwrap();
        Loaded { server, name: name.to_owned() }
    }
}

/// The database that is loaded once and then only copied.
const LOADED: &str = "loaded";

/// The server of an installation with a loaded database. It ends with this process.
fn server(installation: &Installation) -> &'static Throwaway {
    static SERVERS: Mutex<BTreeMap<u32, &'static Throwaway>> = Mutex::new(BTreeMap::new());
    // One loads, the others wait for it.
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    servers.entry(installation.version.major).or_insert_with(|| {
        let server = Box::leak(Box::new(Throwaway::start(installation, &[("max_wal_size", "4GB")]).unwrap()));
        server.execute(&format!("create database {LOADED}")).unwrap();
        let dataset = workloads::tpcc::Tpcc::new(WAREHOUSES, 1, false, None);
        let options = load::Options::new();
        let (target, stop) = (Cluster::single(server.spec().with_dbname(LOADED)), load::Stop::new());
        load::load(&target, &dataset, &options, &stop, &mut load::progress::Silent).unwrap();
        server
    })
}

/// Runs `test` on every installation, in parallel, each with a loaded database of this name.
fn on_each(name: &str, test: impl Fn(&Installation, Loaded) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            scope.spawn(move || test(installation, Loaded::copy(server(installation), name)));
        }
    });
}

fn options() -> Options {
    Options { jobs: 2, conditions: ALL.into_iter().collect(), range: None }
}

fn judge(spec: &ConnSpec, options: &Options) -> Report {
    prove(&TpccConditions, spec, options, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn answer(report: &Report, condition: Condition) -> &Answer {
    report.answers.iter().find(|answer| answer.condition == condition).unwrap()
}

fn broken(report: &Report) -> BTreeSet<Condition> {
    let is_broken = |answer: &&Answer| matches!(answer.outcome, Outcome::Broken { .. });
    report.answers.iter().filter(is_broken).map(|answer| answer.condition).collect()
}

/// One damage, what it breaks, and what the first witness of the first condition says.
struct Damage {
    sql: &'static str,
    breaks: &'static [Condition],
    first: &'static str,
}

/// What one database is damaged by at once: conditions that no two of them share.
const ROUNDS: [&[Damage]; 9] = [
    &[
        Damage {
            sql: "update warehouse set w_ytd = w_ytd + 0.01 where w_id = 2",
            breaks: &[C1, C8],
            first: "w_id 2, w_ytd 300000.01, district_ytd 300000.00",
        },
        Damage {
            sql: "update district set d_next_o_id = 3002 where (d_w_id, d_id) = (2, 7)",
            breaks: &[C2],
            first: "d_w_id 2, d_id 7, d_next_o_id 3002, last_order 3000, last_new_order 3000",
        },
        Damage {
            sql: "delete from new_order where (no_w_id, no_d_id, no_o_id) = (1, 3, 2500)",
            breaks: &[C3, C5, C11],
            first: "no_w_id 1, no_d_id 3, first 2101, last 3000, new_orders 899",
        },
        Damage {
            sql: "update orders set o_ol_cnt = o_ol_cnt + 1 where (o_w_id, o_d_id, o_id) = (2, 1, 17)",
            breaks: &[C4, C6],
            first: "o_w_id 2, o_d_id 1, ",
        },
        Damage {
            sql: "update order_line set ol_delivery_d = null where (ol_w_id, ol_d_id, ol_o_id, ol_number) = (1, 4, 9, 2)",
            breaks: &[C7],
            first: "ol_w_id 1, ol_d_id 4, ol_o_id 9, ol_number 2, ol_delivery_d missing, o_carrier_id ",
        },
        Damage {
            sql: "update customer set c_balance = c_balance + 1, c_ytd_payment = c_ytd_payment - 1
                where (c_w_id, c_d_id, c_id) = (1, 1, 1)",
            breaks: &[C10],
            first: "c_w_id 1, c_d_id 1, c_id 1, c_balance -9.00, ",
        },
        Damage {
            sql: "update stock set s_remote_cnt = 1 where (s_w_id, s_i_id) = (2, 100000)",
            breaks: &[X13],
            first: "s_w_id 2, s_i_id 100000, s_ytd 0, taken missing, s_order_cnt 0, lines missing, s_remote_cnt 1, remote_lines missing",
        },
    ],
    &[
        Damage {
            sql: "update orders set o_carrier_id = null where (o_w_id, o_d_id, o_id) = (1, 10, 5)",
            breaks: &[C5, C7],
            first: "o_w_id 1, o_d_id 10, o_id 5, o_carrier_id missing, no_o_id missing",
        },
        Damage {
            sql: "delete from order_line where (ol_w_id, ol_d_id, ol_o_id, ol_number) = (1, 2, 2999, 1)",
            breaks: &[C4, C6, X23],
            first: "o_w_id 1, o_d_id 2, ",
        },
        Damage {
            sql: "update history set h_d_id = h_d_id % 10 + 1 where (h_c_w_id, h_c_d_id, h_c_id) = (2, 5, 77)",
            breaks: &[C9],
            first: "d_w_id 2, d_id 5, d_ytd 30000.00, paid 29990.00",
        },
        Damage {
            sql: "delete from new_order where (no_w_id, no_d_id) = (1, 1) and no_o_id = 2101;
                update orders set o_carrier_id = 1 where (o_w_id, o_d_id, o_id) = (1, 1, 2101);
                update order_line set ol_delivery_d = now(), ol_amount = 0 where (ol_w_id, ol_d_id, ol_o_id) = (1, 1, 2101)",
            breaks: &[C11, X25],
            first: "o_w_id 1, o_d_id 1, orders 3000, new_orders 899",
        },
        Damage {
            sql: "update customer set c_ytd_payment = 11 where (c_w_id, c_d_id, c_id) = (2, 10, 3000)",
            breaks: &[C12],
            first: "c_w_id 2, c_d_id 10, c_id 3000, c_balance -10.00, c_ytd_payment 11.00, ",
        },
    ],
    &[
        Damage {
            sql: "update district set d_ytd = d_ytd - 1; update warehouse set w_ytd = w_ytd - 10",
            breaks: &[C8, C9],
            first: "w_id 1, w_ytd 299990.00, paid 300000.00",
        },
        Damage {
            sql: "delete from orders where (o_w_id, o_d_id, o_id) = (1, 6, 1000);
                delete from order_line where (ol_w_id, ol_d_id, ol_o_id) = (1, 6, 1000)",
            breaks: &[C11, X14, X22],
            first: "o_w_id 1, o_d_id 6, orders 2999, new_orders 900",
        },
    ],
    &[
        // Whole things that are gone, where a join from one side would see nothing.
        Damage {
            sql: "delete from district where (d_w_id, d_id) = (2, 9)",
            breaks: &[
                C1,
                C2,
                C9,
                X18,
                X19,
                X22,
            ],
            first: "w_id 2, w_ytd 300000.00, district_ytd 270000.00",
        },
        Damage {
            sql: "delete from stock where (s_w_id, s_i_id) = (1, 1);
                insert into order_line select ol_o_id + 900, ol_d_id, ol_w_id, ol_number, 1, 1, null, 5, 0, ol_dist_info
                from order_line where (ol_w_id, ol_d_id, ol_o_id, ol_number) = (2, 1, 3000, 1)",
            breaks: &[C4, C6, C7, X13, X20],
            first: "o_w_id 2, o_d_id 1, ",
        },
    ],
    // What clause 3.3.2 does not look at: rows that no equation needs, and rows of no warehouse.
    &[
        Damage {
            sql: "delete from stock where (s_w_id, s_i_id) = (2, 77777)",
            breaks: &[X20],
            first: "w_id 2, first 1, last 100000, stock_rows 99999, different 99999, with_null 0",
        },
        Damage {
            sql: "insert into new_order (no_o_id, no_d_id, no_w_id) values (5, 1, 99)",
            breaks: &[X17],
            first: "relation new_order, attribute no_w_id, orphans 1, lowest 99, highest 99",
        },
        Damage {
            sql: "delete from item where i_id = 5",
            breaks: &[X21],
            first: "first 1, last 100000, items 99999, different 99999, with_null 0",
        },
        Damage {
            sql: "update orders set o_c_id = 3001 where (o_w_id, o_d_id, o_id) = (1, 1, 1)",
            breaks: &[X22],
            first: "d_w_id 1, d_id 1, first 1, last 3000, orders 3000, different 3000, out_of_range_or_null 1",
        },
        Damage {
            sql: "update order_line set ol_i_id = 100001 where (ol_w_id, ol_d_id, ol_o_id, ol_number) = (2, 3, 9, 2)",
            breaks: &[X23],
            first: "ol_w_id 2, ol_d_id 3, ol_o_id 9, first 1, ",
        },
        Damage {
            sql: "delete from customer where (c_w_id, c_d_id, c_id) = (1, 10, 3000)",
            breaks: &[X19, C10, C12, X25],
            first: "d_w_id 1, d_id 10, first 1, last 2999, customers 2999, different 2999, with_null 0",
        },
    ],
    &[
        Damage {
            sql: "update district set d_id = 11 where (d_w_id, d_id) = (2, 10)",
            breaks: &[X18, X19, X22, C2, C9],
            first: "w_id 2, first 1, last 11, districts 10, different 10, with_null 0",
        },
        Damage {
            sql: "update history set h_c_w_id = 9 where (h_c_w_id, h_c_d_id, h_c_id) = (1, 4, 77);
                update order_line set ol_supply_w_id = 3 where (ol_w_id, ol_d_id, ol_o_id, ol_number) = (1, 4, 9, 1)",
            breaks: &[X17, C10, X25],
            first: "relation history, attribute h_c_w_id, orphans 1, lowest 9, highest 9",
        },
        Damage {
            sql: "alter table history alter h_date drop not null;
                update history set h_date = null where (h_c_w_id, h_c_d_id, h_c_id) = (2, 1, 1)",
            breaks: &[X24],
            first: "h_w_id 2, h_d_id 1, h_c_w_id 2, h_c_d_id 1, h_c_id 1, h_date missing, h_amount 10.00",
        },
    ],
    &[Damage {
        sql: "delete from warehouse where w_id = 1",
        breaks: &[X16, X17],
        first: "w_id 2 of 1 warehouses",
    }],
    // Money that is no number equals itself; counters that no equation of the clause reads; values out of their ranges.
    &[
        Damage {
            sql: "update warehouse set w_ytd = 'NaN' where w_id = 1; update district set d_ytd = 'NaN' where d_w_id = 1;
                update history set h_amount = 'NaN' where h_w_id = 1",
            breaks: &[C1, C8, C9, C10, X24],
            first: "w_id 1, w_ytd NaN, district_ytd NaN",
        },
        Damage {
            sql: "update customer set c_payment_cnt = c_payment_cnt + 5 where (c_w_id, c_d_id, c_id) = (2, 1, 1)",
            breaks: &[X25],
            first: "c_w_id 2, c_d_id 1, c_id 1, ",
        },
        Damage {
            sql: "update orders set o_carrier_id = 99 where (o_w_id, o_d_id, o_id) = (2, 2, 1)",
            breaks: &[X22],
            first: "d_w_id 2, d_id 2, ",
        },
        Damage {
            sql: "update order_line set ol_quantity = 11 where (ol_w_id, ol_d_id, ol_o_id, ol_number) = (2, 2, 2500, 1)",
            breaks: &[X23],
            first: "ol_w_id 2, ol_d_id 2, ol_o_id 2500, ",
        },
    ],
    &[
        Damage {
            sql: "delete from warehouse",
            breaks: &[X16, X17, C1, C8, X18, X20],
            first: "no warehouse at all",
        },
        Damage {
            sql: "update customer set c_delivery_cnt = 5 where (c_w_id, c_d_id, c_id) = (1, 2, 3)",
            breaks: &[X25],
            first: "c_w_id 1, c_d_id 2, c_id 3, ",
        },
    ],
];

#[test]
fn a_fresh_load_keeps_every_condition_and_each_damage_is_named() {
    on_each("fresh", |installation, cluster| {
        let spec = cluster.spec();
        let report = judge(&spec, &options());
        assert_eq!(report.extent.count, u64::from(WAREHOUSES));
        assert_eq!((report.extent.added, report.notes.len()), (Some(0), 0));
        for answer in &report.answers {
            if answer.condition == X15 {
                // One node has no copies to compare.
                assert!(matches!(answer.outcome, Outcome::DoesNotApply { .. }), "{answer:?}");
                continue;
            }
            assert_eq!(answer.outcome, Outcome::Kept, "{installation:?} {answer:?}");
            let expected = match answer.condition.thing() {
                "warehouse" => 2,
                "district" => 20,
                "order" => 60_000,
                "customer" => 60_000,
                "stock row" => 200_000,
                "payment" => 60_000,
                "column" => 9,
                "copy of ITEM" => 1,
                // 5 to 15 lines an order.
                _ => answer.looked_at.clamp(5 * 60_000, 15 * 60_000),
            };
            assert_eq!(answer.looked_at, expected, "{}", answer.condition);
        }
        // The first two break each condition of the specification.
        let is_thorough = testing::is_thorough("damages of TPC-C: two of nine rounds");
        for damages in ROUNDS.into_iter().take(if is_thorough { ROUNDS.len() } else { 2 }) {
            let damaged = Loaded::copy(cluster.server, "damaged");
            for damage in damages {
                damaged.execute(damage.sql).unwrap();
            }
            let report = judge(&damaged.spec(), &options());
            let expected: Vec<Condition> = damages.iter().flat_map(|damage| damage.breaks).copied().collect();
            let as_set: BTreeSet<Condition> = expected.iter().copied().collect();
            assert_eq!(as_set.len(), expected.len(), "two damages of one round break the same condition");
            assert_eq!(broken(&report), as_set, "{:#?}", report.answers);
            for damage in damages {
                let Outcome::Broken { witnesses, .. } = &answer(&report, damage.breaks[0]).outcome else {
                    unreachable!("it is among the broken ones")
                };
                assert!(witnesses[0].starts_with(damage.first), "{}\n{witnesses:?}", damage.sql);
            }
        }
    });
}

#[test]
fn many_breaks_are_counted_and_the_first_are_named() {
    on_each("many", |_, cluster| {
        cluster.execute("update customer set c_balance = c_balance + 1 where c_d_id = 3").unwrap();
        let options = || Options { conditions: [C10, C12, X25].into(), ..options() };
        for (warehouses, count) in [(None, 6_000), (Some((2, 2)), 3_000)] {
            let report = judge(&cluster.spec(), &Options { range: warehouses, ..options() });
            assert_eq!(broken(&report), [C10, C12].into());
            for condition in [C10, C12] {
                let Outcome::Broken { count: found, witnesses } = &answer(&report, condition).outcome else {
                    unreachable!("it is among the broken ones")
                };
                assert_eq!((*found, witnesses.len()), (count, WITNESSES_MAX));
            }
        }
        // Only what is asked for.
        let only = Options { conditions: [C12].into(), ..options() };
        assert_eq!(judge(&cluster.spec(), &only).answers.len(), 1);
    });
}

#[test]
fn a_query_that_fails_is_no_zero() {
    on_each("failing", |_, cluster| {
        cluster.execute("alter table history rename column h_amount to h_sum").unwrap();
        let report = judge(&cluster.spec(), &options());
        for condition in [C8, C9, C10, C12, X24, X25] {
            let answer = answer(&report, condition);
            let Outcome::Failed { error } = &answer.outcome else { panic!("{answer:?}") };
            assert!(error.contains("h_amount") && error.starts_with("warehouses "), "{error}");
        }
        // The others were judged all the same, by the same connections.
        assert!(report.has_failed() && !report.is_broken());
        let kept = report.answers.iter().filter(|answer| answer.outcome == Outcome::Kept).count();
        assert_eq!(kept, ALL.len() - 7, "X15 needs several nodes, and six have failed");
        cluster.execute("alter table stock rename to stocks").unwrap();
        let error = prove(&TpccConditions, &cluster.spec(), &options(), &AtomicBool::new(false), &mut |_| {})
            .unwrap_err();
        assert!(matches!(error, ProveError::NoTable { table: "stock", .. }), "{error:?}");
    });
}

/// Payments by hand: each keeps the books, so every snapshot must find them whole; and a torn one must be found.
#[test]
fn the_books_are_judged_in_one_snapshot_while_they_are_written() {
    on_each("written", |_, cluster| {
        let spec = cluster.spec();
        std::thread::scope(|scope| {
            let (stop, spec) = (testing::Stop::new(), &spec);
            let is_over = stop.flag();
            let writer = scope.spawn(move || {
                let mut connection = connect::control::connect(spec).unwrap();
                let mut payments = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let (w, c) = (1 + payments % 2, 1 + payments % 3_000);
                    // Payment of clause 2.5: the customer lives in the other warehouse.
                    let sql = format!(
                        "begin;
                        update warehouse set w_ytd = w_ytd + 3.5 where w_id = {w};
                        update district set d_ytd = d_ytd + 3.5 where (d_w_id, d_id) = ({w}, 1);
                        update customer set c_balance = c_balance - 3.5, c_ytd_payment = c_ytd_payment + 3.5, c_payment_cnt = c_payment_cnt + 1
                            where (c_w_id, c_d_id, c_id) = (3 - {w}, 2, {c});
                        insert into history values ({c}, 2, 3 - {w}, 1, {w}, now(), 3.5, 'x');
                        commit"
                    );
                    connection.batch_execute(&sql).unwrap();
                    payments += 1;
                }
                payments
            });
            // All of them once, then those that a payment could break.
            let payments = Options { conditions: [C1, C8, C9, C10, C12, X24, X25].into(), ..options() };
            for options in [&options(), &payments, &payments] {
                let report = judge(spec, options);
                assert!(!report.is_broken() && !report.has_failed(), "{:#?}", report.answers);
            }
            stop.now();
            assert!(writer.join().unwrap() > 0);
        });
        // The half of a payment: what two-phase commit exists to prevent.
        cluster.execute("insert into history values (1, 2, 2, 1, 1, now(), 3.5, 'torn')").unwrap();
        assert_eq!(broken(&judge(&spec, &options())), [C8, C9, C10, X25].into());
    });
}

#[test]
fn after_a_delivery_one_condition_does_not_apply() {
    on_each("delivered", |_, cluster| {
        let sql = "begin;
            delete from new_order where (no_w_id, no_d_id, no_o_id) = (1, 1, 2101);
            update orders set o_carrier_id = 3 where (o_w_id, o_d_id, o_id) = (1, 1, 2101);
            update order_line set ol_delivery_d = now() where (ol_w_id, ol_d_id, ol_o_id) = (1, 1, 2101);
            update customer set c_delivery_cnt = c_delivery_cnt + 1, c_balance = c_balance + (select sum(ol_amount)
                    from order_line where (ol_w_id, ol_d_id, ol_o_id) = (1, 1, 2101))
                where (c_w_id, c_d_id) = (1, 1) and c_id = (select o_c_id from orders
                    where (o_w_id, o_d_id, o_id) = (1, 1, 2101));
            commit";
        cluster.execute(sql).unwrap();
        let report = judge(&cluster.spec(), &options());
        let answer = answer(&report, C11);
        assert!(matches!(&answer.outcome, Outcome::DoesNotApply { why } if why.contains("Delivery")));
        assert!(!report.is_broken() && !report.has_failed(), "{:#?}", report.answers);
        // The other warehouse is still as it was loaded.
        let other = Options { range: Some((2, 2)), ..options() };
        for answer in judge(&cluster.spec(), &other).answers {
            let is_about_all = matches!(answer.condition, X15 | X16 | X17);
            match answer.outcome {
                Outcome::DoesNotApply { .. } => assert!(is_about_all, "{}", answer.condition),
                outcome => assert_eq!(outcome, Outcome::Kept, "{}", answer.condition),
            }
        }
    });
}

#[test]
fn a_stop_ends_running_queries() {
    on_each("stopped", |_, cluster| {
        let quick = Options { conditions: [C1, X13].into(), ..options() };
        assert!(
            prove(&TpccConditions, &cluster.spec(), &quick, &AtomicBool::new(false), &mut |_| {}).is_ok()
        );
        // A query that would wait for ever.
        let mut other = connect::control::connect(&cluster.spec()).unwrap();
        other.batch_execute("begin; lock table stock in access exclusive mode").unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
                let deadline = Instant::now() + WAITING_MAX;
                while cluster.execute(waiting).unwrap().is_empty() && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(20));
                }
                stop.store(true, Ordering::Relaxed);
            });
            let error = prove(&TpccConditions, &cluster.spec(), &options(), &stop, &mut |_| {}).unwrap_err();
            assert!(matches!(error, ProveError::Interrupted | ProveError::Sql { .. }), "{error:?}");
        });
        other.batch_execute("rollback").unwrap();
    });
}

const COPY: &str = "damaged";

/// A fresh copy of the loaded database of a server that this test has for itself.
fn copy(cluster: &Throwaway) -> ConnSpec {
    cluster.execute_in("template1", &format!("drop database if exists {COPY}")).unwrap();
    let sql = format!("create database {COPY} template postgres strategy file_copy");
    cluster.execute_in("template1", &sql).unwrap();
    cluster.spec().with_dbname(COPY)
}

/// A transaction of TPC-B on an account, a teller and a branch.
fn transfer(cluster: &Throwaway, (aid, tid, bid): (u32, u32, u32), delta: i32) {
    let sql = format!(
        "begin;
        update pgbench_accounts set abalance = abalance + {delta} where aid = {aid};
        update pgbench_tellers set tbalance = tbalance + {delta} where tid = {tid};
        update pgbench_branches set bbalance = bbalance + {delta} where bid = {bid};
        insert into pgbench_history (tid, bid, aid, delta, mtime) values ({tid}, {bid}, {aid}, {delta}, now());
        commit"
    );
    cluster.execute_in(COPY, &sql).unwrap();
}

#[test]
fn balances_of_tpcb_are_kept_and_each_damage_is_named() {
    const ONLY: Options = Options { jobs: 2, conditions: BTreeSet::new(), range: None };
    let found = installations();
    let cluster = Throwaway::start(&found[found.len() - 1], &[]).unwrap();
    let dataset = Tpcb::new(2, 1, None);
    let options = load::Options::new();
    let (target, stop) = (Cluster::single(cluster.spec()), load::Stop::new());
    load::load(&target, &dataset, &options, &stop, &mut load::progress::Silent).unwrap();
    let judge = |spec: &ConnSpec| {
        let options = Options { conditions: workloads::tpcb::conditions::ALL.into(), ..ONLY };
        prove(&TpcbConditions, spec, &options, &AtomicBool::new(false), &mut |_| {}).unwrap()
    };
    let skipped = |report: &Report| -> BTreeSet<Condition> {
        // Nothing is lost for certain, and no such state may pass: only without any history there is nothing to judge.
        let is_empty = report.extent.added == Some(0);
        let is_left = |answer: &&Answer| match answer.outcome {
            Outcome::DoesNotApply { .. } => is_empty,
            Outcome::Failed { .. } => !is_empty,
            _ => false,
        };
        report.answers.iter().filter(is_left).map(|answer| answer.condition).collect()
    };
    // Damage, what it breaks, and what it makes void.
    let cases: [(&str, &[Condition], &[Condition]); 8] = [
        ("select 1", &[], &[]),
        ("update pgbench_tellers set tbalance = tbalance + 1 where tid = 20", &[B1, B5], &[]),
        ("update pgbench_accounts set abalance = abalance + 1 where aid = 200000", &[B2, B4], &[]),
        (
            "update pgbench_accounts set abalance = abalance + case aid when 1 then 5 else -5 end where aid in (1, 150000)",
            &[B4],
            &[],
        ),
        ("update pgbench_branches set bbalance = bbalance + case bid when 1 then 5 else -5 end", &[B6], &[]),
        ("truncate pgbench_history", &[], &[B3, B4, B5, B6]),
        ("delete from pgbench_history where aid = 1", &[], &[B3, B4, B5, B6]),
        (
            "update pgbench_accounts set abalance = abalance + 9 where aid = 3;
            insert into pgbench_history (tid, bid, aid, delta, mtime) values (1, 1, 3, 9, now())",
            &[],
            &[B2, B3, B5, B6],
        ),
    ];
    for (sql, breaks, void) in cases {
        let spec = copy(&cluster);
        transfer(&cluster, (1, 1, 1), 70);
        transfer(&cluster, (150_000, 20, 1), -3);
        transfer(&cluster, (200_000, 7, 2), 11);
        cluster.execute_in(COPY, sql).unwrap();
        let report = judge(&spec);
        assert_eq!(broken(&report), breaks.iter().copied().collect(), "{sql}: {:#?}", report.answers);
        assert_eq!(skipped(&report), void.iter().copied().collect(), "{sql}: {:#?}", report.answers);
        assert_eq!(report.extent.count, 2);
        if sql == "select 1" {
            assert_eq!(report.extent.added, Some(3));
            assert_eq!(answer(&report, B4).looked_at, 200_000);
        }
    }
}
