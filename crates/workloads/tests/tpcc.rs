//! TPC-C against real servers: the books balance after calm runs, at every isolation level, and after connections were killed.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use data::tpcc::nurand::Constants;
use lab::throwaway::{Installation, Throwaway, installations};
use run::control::StopFlag;
use run::dial::TargetDial;
use run::drive::{Account, Observer, Options, Second, drive};
use run::engine::poller::Choice;
use run::engine::{NANOS_PER_SECOND, Nanos};
use run::schedule::Pace;
use run::terminals::Users;
use run::workload;
use wire::prepared::Wire;
use workloads::tpcc::run::audit::Audit;
use workloads::tpcc::run::pace::Mix;
use workloads::tpcc::run::{Isolation, Profile, Tpcc};

const WAREHOUSES: u32 = 2;

/// The tables with their keys, and rows that keep all consistency conditions; texts are shorter than the specification asks for, which
/// no transaction minds.
const FILL: &str = r#"
create table warehouse (w_id int primary key, w_name varchar(10), w_street_1 varchar(20), w_street_2 varchar(20), w_city varchar(20),
  w_state char(2), w_zip char(9), w_tax numeric(4,4), w_ytd numeric(12,2));
create table district (d_id int, d_w_id int, d_name varchar(10), d_street_1 varchar(20), d_street_2 varchar(20), d_city varchar(20),
  d_state char(2), d_zip char(9), d_tax numeric(4,4), d_ytd numeric(12,2), d_next_o_id int, primary key (d_w_id, d_id));
create table customer (c_id int, c_d_id int, c_w_id int, c_first varchar(16), c_middle char(2), c_last varchar(16), c_street_1 varchar(20),
  c_street_2 varchar(20), c_city varchar(20), c_state char(2), c_zip char(9), c_phone char(16), c_since timestamp, c_credit char(2),
  c_credit_lim numeric(12,2), c_discount numeric(4,4), c_balance numeric(12,2), c_ytd_payment numeric(12,2), c_payment_cnt int,
  c_delivery_cnt int, c_data varchar(500), primary key (c_w_id, c_d_id, c_id));
create table history (h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp, h_amount numeric(6,2), h_data varchar(24));
create table new_order (no_o_id int, no_d_id int, no_w_id int, primary key (no_w_id, no_d_id, no_o_id));
create table orders (o_id int, o_d_id int, o_w_id int, o_c_id int, o_entry_d timestamp, o_carrier_id int, o_ol_cnt int, o_all_local int,
  primary key (o_w_id, o_d_id, o_id));
create table order_line (ol_o_id int, ol_d_id int, ol_w_id int, ol_number int, ol_i_id int, ol_supply_w_id int, ol_delivery_d timestamp,
  ol_quantity int, ol_amount numeric(6,2), ol_dist_info char(24), primary key (ol_w_id, ol_d_id, ol_o_id, ol_number));
create table item (i_id int primary key, i_im_id int, i_name varchar(24), i_price numeric(5,2), i_data varchar(50));
create table stock (s_i_id int, s_w_id int, s_quantity int, s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24), s_dist_04 char(24),
  s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24), s_dist_09 char(24), s_dist_10 char(24), s_ytd int,
  s_order_cnt int, s_remote_cnt int, s_data varchar(50), primary key (s_w_id, s_i_id));
insert into item select i, i % 10000 + 1, 'item ' || i, 1 + i % 99 + 0.25, case i % 10 when 0 then 'an ORIGINAL item' else 'no such item' end
  from generate_series(1, 100000) i;
insert into warehouse select w, 'house ' || w, 'a', 'b', 'c', 'dd', '123411111', 0.0725, 300000 from generate_series(1, WAREHOUSES) w;
insert into district select d, w, 'part ' || d, 'a', 'b', 'c', 'dd', '123411111', 0.01 * d, 30000, 3001
  from generate_series(1, WAREHOUSES) w, generate_series(1, 10) d;
insert into stock select i, w, 10 + i % 91, 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'a "quoted\ {one}', 'j', 0, 0, 0,
  case i % 20 when 0 then 'an ORIGINAL stock' else 'no such stock' end
  from generate_series(1, WAREHOUSES) w, generate_series(1, 100000) i;
insert into customer select c, d, w, 'first ' || (c * 7919) % 1000, 'OE', s[n / 100 + 1] || s[n / 10 % 10 + 1] || s[n % 10 + 1], 'a', 'b', 'c', 'dd',
  '123411111', '1234567890123456', now(), case c % 10 when 0 then 'BC' else 'GC' end, 50000, 0.0001 * (c % 5000), -10, 10, 1, 0, repeat('x', 300)
  from generate_series(1, WAREHOUSES) w, generate_series(1, 10) d, generate_series(1, 3000) c, lateral (select (c - 1) % 1000 as n) numbered,
  (select array['BAR','OUGHT','ABLE','PRI','PRES','ESE','ANTI','CALLY','ATION','EING'] as s) syllables;
insert into history select c_id, c_d_id, c_w_id, c_d_id, c_w_id, now(), 10, 'loaded' from customer;
insert into orders select c, d, w, (c * 1301) % 3000 + 1, now(), case when c < 2101 then 1 + c % 10 end, 5, 1
  from generate_series(1, WAREHOUSES) w, generate_series(1, 10) d, generate_series(1, 3000) c;
insert into new_order select o_id, o_d_id, o_w_id from orders where o_id >= 2101;
insert into order_line select o_id, o_d_id, o_w_id, n, (o_id * 31 + n * 977) % 100000 + 1, o_w_id, case when o_id < 2101 then now() end, 5,
  case when o_id < 2101 then 0 else n + 0.5 end, 'loaded' from orders, generate_series(1, 5) n;
create index customer_by_name on customer (c_w_id, c_d_id, c_last, c_first);
create index orders_by_customer on orders (o_w_id, o_d_id, o_c_id, o_id);
analyze;
"#;

/// Conditions 1 to 4, 8, 9, 10 and 12 of clause 3.3.2, the stock's counters against the lines of new orders, and no hole in O_ID: each
/// counts what breaks it.
const CONDITIONS: [(&str, &str); 9] = [
    ("1: W_YTD = sum(D_YTD)", "select count(*) from warehouse join (select d_w_id, sum(d_ytd) s from district group by 1) d on d_w_id = w_id where w_ytd <> s"),
    ("2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
     "select count(*) from district left join (select o_w_id, o_d_id, max(o_id) mo from orders group by 1, 2) o on (o_w_id, o_d_id) = (d_w_id, d_id)
      left join (select no_w_id, no_d_id, max(no_o_id) mn from new_order group by 1, 2) n on (no_w_id, no_d_id) = (d_w_id, d_id)
      where d_next_o_id - 1 is distinct from mo or mn <> mo"),
    ("3: NO_O_ID without holes", "select count(*) from (select 1 from new_order group by no_w_id, no_d_id having max(no_o_id) - min(no_o_id) + 1 <> count(*)) x"),
    ("4: sum(O_OL_CNT) = lines",
     "select count(*) from (select o_w_id w, o_d_id d, sum(o_ol_cnt) a from orders group by 1, 2) o
      full join (select ol_w_id w, ol_d_id d, count(*) b from order_line group by 1, 2) l using (w, d) where a is distinct from b"),
    ("5, 7: carrier, NEW-ORDER and delivery date agree",
     "select count(*) from orders left join new_order on (no_w_id, no_d_id, no_o_id) = (o_w_id, o_d_id, o_id)
      left join (select ol_w_id, ol_d_id, ol_o_id, count(*) n, count(ol_delivery_d) delivered from order_line group by 1, 2, 3) l
        on (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
      where (o_carrier_id is null) <> (no_o_id is not null) or n is distinct from o_ol_cnt
         or delivered is distinct from case when o_carrier_id is null then 0 else n end"),
    ("8, 9: W_YTD and D_YTD = sum(H_AMOUNT)",
     "select count(*) from district full join (select h_w_id, h_d_id, sum(h_amount) s from history group by 1, 2) h
      on (h_w_id, h_d_id) = (d_w_id, d_id) where d_ytd is distinct from s"),
    ("10, 12: C_BALANCE = delivered lines - payments",
     "with ol as (select o_w_id w, o_d_id d, o_c_id c, sum(ol_amount) s from orders join order_line on (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
                  where ol_delivery_d is not null group by 1, 2, 3),
           h as (select h_c_w_id w, h_c_d_id d, h_c_id c, sum(h_amount) s, count(*) n from history group by 1, 2, 3)
      select count(*) from customer left join ol on (ol.w, ol.d, ol.c) = (c_w_id, c_d_id, c_id) left join h on (h.w, h.d, h.c) = (c_w_id, c_d_id, c_id)
      where c_balance <> coalesce(ol.s, 0) - coalesce(h.s, 0) or c_balance + c_ytd_payment <> coalesce(ol.s, 0) or c_payment_cnt <> n"),
    ("stock = lines of new orders",
     "select count(*) from stock full join (select ol_supply_w_id w, ol_i_id i, sum(ol_quantity) q, count(*) n,
      count(*) filter (where ol_supply_w_id <> ol_w_id) r from order_line where ol_o_id > 3000 group by 1, 2) l on (w, i) = (s_w_id, s_i_id)
      where (s_ytd, s_order_cnt, s_remote_cnt) is distinct from (coalesce(q, 0)::int, coalesce(n, 0)::int, coalesce(r, 0)::int)
         or s_quantity not between 1 and 109"),
    ("amounts are quantity * price, and dist info is the district's",
     "select count(*) from order_line join item on i_id = ol_i_id where ol_o_id > 3000 and (ol_amount <> ol_quantity * i_price
      or rtrim(ol_dist_info) <> case ol_d_id when 9 then 'a \"quoted\\ {one}' else (array['a','b','c','d','e','f','g','h','','j'])[ol_d_id] end)"),
];

fn on_each(test: impl Fn(&Installation, Throwaway) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            scope.spawn(move || {
                let cluster = Throwaway::start(installation, &[("max_connections", "50")]).unwrap();
                cluster.execute(&FILL.replace("WAREHOUSES", &WAREHOUSES.to_string())).unwrap();
                test(installation, cluster);
            });
        }
    });
}

fn number(cluster: &Throwaway, sql: &str) -> u64 {
    cluster.value(&format!("select ({sql})::text")).unwrap().unwrap().parse().unwrap()
}

fn orders(cluster: &Throwaway) -> u64 {
    number(cluster, "select sum(d_next_o_id) from district")
}

fn assert_consistent(cluster: &Throwaway, when: &str) {
    for (condition, sql) in CONDITIONS {
        assert_eq!(number(cluster, sql), 0, "{when}: condition {condition}");
    }
}

fn tpcc(isolation: Isolation, wire: Wire, sessions: u64) -> Tpcc {
    Tpcc {
        warehouses: WAREHOUSES,
        constants: Constants::for_run(17, 3),
        mix: Mix::default(),
        isolation,
        wire,
        schema: Some("public".into()),
        homes: None,
        is_spread: false,
        simulate: None,
        sessions,
    }
}

fn options(tpcc: Tpcc, pace: Pace, millis: u64) -> Options<Tpcc> {
    Options {
        sessions: tpcc.sessions,
        wire: tpcc.wire,
        mix: workload::Mix::of(tpcc).unwrap(),
        workers: 2,
        pace,
        duration: Some(Duration::from_millis(millis)),
        warmup: Duration::from_millis(300),
        transactions_per_session: None,
        latency_limit: None,
        tries_max: 0,
        poller: Choice::Auto,
        seed: 3,
        connects: Default::default(),
        first_session: 0,
    }
}

struct Silent;

impl Observer for Silent {
    fn begins(&mut self, _: Nanos) {}
    fn second(&mut self, _: &Second<'_>) {}
}

fn run(cluster: &Throwaway, options: Options<Tpcc>) -> Account {
    drive(options, Arc::new(TargetDial::new(cluster.spec())), &StopFlag::default(), &mut Silent).unwrap()
}

/// Everything that reached its end, warm-up included.
fn audit(account: &Account) -> Audit {
    let mut audit = account.posted.measured.audits.clone();
    audit.add(&account.posted.warmup.audits);
    audit.of()
}

#[test]
fn the_books_balance_at_every_isolation_level_and_in_every_wire_mode() {
    on_each(|installation, cluster| {
        assert_consistent(&cluster, "after the load");
        let all = [
            (Isolation::ReadCommitted, Wire::Libpq),
            (Isolation::Serializable, Wire::Lean),
            (Isolation::ReadCommitted, Wire::Lean),
            (Isolation::RepeatableRead, Wire::Libpq),
        ];
        let is_thorough = testing::is_thorough("levels and wire modes: two of four pairs");
        for (isolation, wire) in all.into_iter().take(if is_thorough { 4 } else { 2 }) {
            let before = orders(&cluster);
            let account = run(&cluster, options(tpcc(isolation, wire, 8), Pace::Closed, 1_500));
            let when = format!("{installation:?} {isolation:?} {wire:?}");
            let retryable = |code: &str| code == "40001" || code == "40P01";
            for error in &account.posted.errors {
                assert!(retryable(&error.sqlstate.to_string()), "{when}: {error:?}");
            }
            // Only at the end of the run is nothing tried again.
            let given_up: u64 = account.posted.errors.iter().map(|error| error.count - error.retried).sum();
            assert_eq!(given_up, account.posted.measured.failed(), "{when}: {:?}", account.posted.errors);
            if isolation == Isolation::ReadCommitted {
                assert_eq!(account.posted.errors, [], "{when}: nothing to retry, and no deadlock");
            }
            let audit = audit(&account);
            assert_eq!(orders(&cluster) - before, audit.committed_orders(), "{when}");
            assert!(audit.ended.iter().all(|count| *count > 0), "{when}: {:?}", audit.ended);
            assert!(audit.delivered > 0 && audit.lines > 4 * audit.ended[0], "{when}");
            let trips = |profile: Profile| audit.ended[profile as usize];
            let by_name = audit.payments_by_name + audit.statuses_by_name;
            let least = 2 * trips(Profile::NewOrder)
                + trips(Profile::Payment)
                + trips(Profile::OrderStatus)
                + by_name
                + 3 * trips(Profile::Delivery)
                + trips(Profile::StockLevel);
            assert_eq!(audit.round_trips, least, "{when}: round trips of those that came to their end");
            assert_consistent(&cluster, &when);
        }
    });
}

#[test]
fn connections_that_are_killed_lose_no_order_and_invent_none() {
    on_each(|installation, cluster| {
        let before = orders(&cluster);
        let account = std::thread::scope(|scope| {
            let (stop, cluster) = (testing::Stop::new(), &cluster);
            let is_over = stop.flag();
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(40));
                    // A random one of the run's own sessions.
                    let kill = "select pg_terminate_backend(pid) from pg_stat_activity where query like '%ol_%' \
                                and pid <> pg_backend_pid() order by random() limit 1";
                    let _ = cluster.execute(kill);
                }
            });
            // Also after a panic of this one nobody goes on killing.
            run(cluster, options(tpcc(Isolation::RepeatableRead, Wire::Libpq, 6), Pace::Closed, 3_000))
        });
        let audit = audit(&account);
        assert!(account.lost > 0, "{installation:?}: somebody was killed");
        let grown = orders(&cluster) - before;
        let (least, most) = (audit.committed_orders(), audit.committed_orders() + audit.unknown_orders);
        assert!((least..=most).contains(&grown), "{installation:?}: {grown} orders, not {least} to {most}");
        assert_consistent(&cluster, &format!("{installation:?} after {} kills", account.lost));
    });
}

#[test]
fn terminals_keep_their_pace_on_a_few_sessions() {
    on_each(|installation, cluster| {
        // Two warehouses have 20 terminals, of which one begins a transaction every second.
        let users = Users { first: 0, count: 20, seed: 3, habits: Mix::Deck.habits() };
        let account = run(
            &cluster,
            options(tpcc(Isolation::ReadCommitted, Wire::Lean, 3), Pace::Terminals(users), 8_000),
        );
        assert_eq!(account.posted.errors, [], "{installation:?}");
        let ended = audit(&account).ended.iter().sum::<u64>();
        // 8.3 s * 20 / 20.7 s = 8; by chance between 1 and 25.
        assert!((1..=25).contains(&ended), "{installation:?}: {ended} transactions");
        assert_eq!(account.scheduled, ended + account.unstarted, "{installation:?}");
        assert_consistent(&cluster, &format!("{installation:?}"));
    });
}

#[test]
fn fifteen_thousand_warehouses_are_simulated_by_one_thread() {
    let users = Users { first: 0, count: 150_000, seed: 3, habits: Mix::default().habits() };
    let tpcc = Tpcc {
        warehouses: 15_000,
        simulate: Some(NANOS_PER_SECOND / 100),
        ..tpcc(Isolation::ReadCommitted, Wire::Libpq, 400)
    };
    let mut options = options(tpcc, Pace::Terminals(users), 3_000);
    options.workers = 1;
    struct NoDial;
    impl std::fmt::Debug for NoDial {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("NoDial")
        }
    }
    impl run::engine::connector::Dial for NoDial {
        fn dial(&self, _: u64) -> Result<run::engine::link::Link, run::engine::connector::DialError> {
            panic!("a simulation needs no connection")
        }
    }
    let account = drive(options, Arc::new(NoDial), &StopFlag::default(), &mut Silent).unwrap();
    let measured = &account.posted.measured;
    let per_second = measured.transactions() as f64 / account.measured().as_secs_f64();
    // Little's law: 150,000 terminals that key and think for 21.09 s, and wait for their answers, which a full machine delays: 7,112 a
    // second when it does not.
    let waited_us: f64 =
        measured.types.iter().map(|tally| tally.response.mean_us() * tally.response.count() as f64).sum();
    let waited_s = waited_us / 1e6 / measured.transactions() as f64;
    let terminals = per_second * (21.09 + waited_s);
    assert!((127_500.0..172_500.0).contains(&terminals), "{per_second} a second, {waited_s} s waited");
    let audit: Audit = measured.audits.of();
    let share = |part: u64, of: u64| part as f64 * 100.0 / of as f64;
    assert!((0.6..1.5).contains(&share(audit.rolled_back, audit.ended[0])));
    assert!((13.0..17.0).contains(&share(audit.remote_payments, audit.ended[1])));
    assert!((57.0..63.0).contains(&share(audit.payments_by_name, audit.ended[1])));
    assert!((0.8..1.2).contains(&share(audit.remote_lines, audit.lines)));
}
