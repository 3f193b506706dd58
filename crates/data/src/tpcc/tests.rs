use std::collections::BTreeSet;

use super::*;
use proptest::prelude::*;

/// Warehouses that are looked at as a whole: the first, one in between, the last that fits.
const WAREHOUSES: [u32; 3] = [1, 4_711, WAREHOUSES_MAX];

fn each_district() -> impl Iterator<Item = (Population, u32, u32)> {
    let of = |seed| {
        WAREHOUSES.into_iter().flat_map(move |w_id| {
            (1..=DISTRICTS_PER_WAREHOUSE).map(move |d_id| (Population::new(seed), w_id, d_id))
        })
    };
    of(1).chain(of(u64::MAX))
}

/// Clauses 3.3.2.1 to 3.3.2.12, on the generated rows. The sums are those that the specification's SQL forms.
#[test]
fn the_consistency_conditions_hold() {
    for seed in [1, u64::MAX] {
        let population = Population::new(seed);
        for w_id in WAREHOUSES {
            let mut d_ytd_sum = 0;
            let mut h_amount_sum_of_warehouse = 0;
            for d_id in 1..=DISTRICTS_PER_WAREHOUSE {
                let district = population.district(w_id, d_id);
                d_ytd_sum += district.d_ytd_cents;
                let orders = population.orders(w_id, d_id);
                let (mut o_ids, mut no_o_ids) = (Vec::new(), Vec::new());
                let (mut o_ol_cnt_sum, mut lines, mut h_amount_sum) = (0, 0, 0);
                let mut delivered = vec![0; CUSTOMERS_PER_DISTRICT as usize + 1];
                for o_id in 1..=ORDERS_PER_DISTRICT {
                    let order = orders.order(o_id);
                    o_ids.push(order.o_id);
                    o_ol_cnt_sum += order.o_ol_cnt;
                    no_o_ids.extend(orders.new_order(o_id).map(|new_order| new_order.no_o_id));
                    // Condition 5.
                    assert_eq!(order.o_carrier_id.is_none(), orders.new_order(o_id).is_some());
                    // Condition 6, as the loader writes as many lines as the order counts.
                    for ol_number in 1..=order.o_ol_cnt {
                        let line = orders.line(&order, ol_number);
                        lines += 1;
                        // Condition 7.
                        assert_eq!(line.ol_delivery_d_us.is_none(), order.o_carrier_id.is_none());
                        if line.ol_delivery_d_us.is_some() {
                            delivered[order.o_c_id as usize] += i64::from(line.ol_amount_cents);
                        }
                    }
                }
                // Conditions 2 and 3.
                assert_eq!(Some(&(district.d_next_o_id - 1)), o_ids.iter().max());
                assert_eq!(o_ids.iter().max(), no_o_ids.iter().max());
                let span = no_o_ids.iter().max().unwrap() - no_o_ids.iter().min().unwrap() + 1;
                assert_eq!(span as usize, no_o_ids.len());
                // Condition 4.
                assert_eq!(o_ol_cnt_sum, lines);
                for c_id in 1..=CUSTOMERS_PER_DISTRICT {
                    let customer = population.customer(w_id, d_id, c_id);
                    let history = population.history(w_id, d_id, c_id);
                    h_amount_sum += history.h_amount_cents;
                    // Conditions 10 and 12.
                    let delivered = delivered[c_id as usize];
                    assert_eq!(customer.c_balance_cents, delivered - history.h_amount_cents);
                    assert_eq!(customer.c_balance_cents + customer.c_ytd_payment_cents, delivered);
                }
                // Condition 9.
                assert_eq!(district.d_ytd_cents, h_amount_sum);
                h_amount_sum_of_warehouse += h_amount_sum;
                // Condition 11.
                assert_eq!(o_ids.len() - no_o_ids.len(), 2_100);
            }
            let w_ytd = population.warehouse(w_id).w_ytd_cents;
            // Conditions 1 and 8.
            assert_eq!(w_ytd, d_ytd_sum);
            assert_eq!(w_ytd, h_amount_sum_of_warehouse);
        }
    }
}

#[test]
fn every_customer_of_a_district_has_one_order() {
    let mut beginnings = BTreeSet::new();
    for (population, w_id, d_id) in each_district() {
        let orders = population.orders(w_id, d_id);
        let customers: Vec<u32> = (1..=ORDERS_PER_DISTRICT).map(|o_id| orders.order(o_id).o_c_id).collect();
        let distinct: BTreeSet<u32> = customers.iter().copied().collect();
        assert_eq!(distinct.len(), customers.len());
        assert_eq!((distinct.first(), distinct.last()), (Some(&1), Some(&CUSTOMERS_PER_DISTRICT)));
        beginnings.insert(customers[..8].to_vec());
    }
    assert_eq!(beginnings.len(), each_district().count(), "each district has a permutation of its own");
}

#[test]
fn orders_are_as_clause_4_3_3_1_requires() {
    let mut counts = [0u32; LINES_PER_ORDER_MAX as usize + 1];
    let mut carriers = [0u32; 11];
    for (population, w_id, d_id) in each_district() {
        let orders = population.orders(w_id, d_id);
        let mut last = LOAD_DAY_US;
        for o_id in 1..=ORDERS_PER_DISTRICT {
            let order = orders.order(o_id);
            assert_eq!((order.o_id, order.o_d_id, order.o_w_id, order.o_all_local), (o_id, d_id, w_id, 1));
            counts[order.o_ol_cnt as usize] += 1;
            assert_eq!(order.o_carrier_id.is_some(), o_id < 2_101);
            carriers[order.o_carrier_id.unwrap_or(0) as usize] += 1;
            assert!(order.o_entry_d_us > last && order.o_entry_d_us < LOAD_DAY_US + 86_400_000_000);
            last = order.o_entry_d_us;
            for ol_number in [1, order.o_ol_cnt] {
                let line = orders.line(&order, ol_number);
                assert_eq!((line.ol_o_id, line.ol_d_id, line.ol_w_id), (o_id, d_id, w_id));
                assert_eq!((line.ol_supply_w_id, line.ol_quantity, line.ol_number), (w_id, 5, ol_number));
                assert!((1..=ITEMS).contains(&line.ol_i_id));
                match line.ol_delivery_d_us {
                    Some(time_us) => {
                        assert_eq!((time_us, line.ol_amount_cents), (order.o_entry_d_us, 0));
                    }
                    None => assert!((1..=999_999).contains(&line.ol_amount_cents)),
                }
            }
        }
    }
    assert!(counts[..5].iter().all(|count| *count == 0));
    // 180,000 orders over eleven counts, 126,000 carriers over ten.
    assert!(counts[5..].iter().all(|count| (15_800..16_950).contains(count)), "{counts:?}");
    assert!(carriers[1..].iter().all(|count| (12_100..13_100).contains(count)), "{carriers:?}");
}

#[test]
fn customers_are_as_clause_4_3_3_1_requires() {
    let mut bad_credits = 0u32;
    for (population, w_id, d_id) in each_district() {
        for c_id in (1..=CUSTOMERS_PER_DISTRICT).step_by(7) {
            let customer = population.customer(w_id, d_id, c_id);
            if c_id <= 1_000 {
                assert_eq!(customer.c_last, last_name(c_id - 1));
            }
            bad_credits += u32::from(&customer.c_credit == b"BC");
            assert!(matches!(&customer.c_credit, b"BC" | b"GC"));
            assert!(customer.c_discount_e4 <= 5_000 && customer.c_address.zip.ends_with(b"11111"));
            assert!(customer.c_phone.iter().all(u8::is_ascii_digit));
            assert!(
                (300..=500).contains(&customer.c_data.len()) && (8..=16).contains(&customer.c_first.len())
            );
            assert!((LOAD_DAY_US..LOAD_DAY_US + 86_400_000_000).contains(&customer.c_since_us));
        }
    }
    // 25,740 customers.
    assert!((2_380..2_770).contains(&bad_credits), "{bad_credits} of 25740 have bad credit");
}

/// NURand(255, 0, 999) prefers numbers with many bits set, shifted by the constant: the names after the thousandth are not spread evenly,
/// and the preferred ones move with C-Load.
#[test]
fn later_last_names_are_not_uniform() {
    let population = Population::new(3);
    let mut of_number = vec![0u32; 1_000];
    let mut numbers = std::collections::BTreeMap::new();
    for number in 0..1_000 {
        numbers.insert(last_name(number).as_bytes().to_vec(), number as usize);
    }
    for d_id in 1..=DISTRICTS_PER_WAREHOUSE {
        for c_id in 1_001..=CUSTOMERS_PER_DISTRICT {
            let name = population.customer(1, d_id, c_id).c_last;
            of_number[numbers[name.as_bytes()]] += 1;
        }
    }
    let shift = population.c_load() as usize;
    let count = |number: usize| of_number[(number + shift) % 1_000];
    // A number below 1000 whose low eight bits are all set, and one where they are all clear.
    assert!(count(255) > 10 * count(256).max(1), "{} and {}", count(255), count(256));
    assert!(of_number.iter().filter(|count| **count > 0).count() > 800);
}

#[test]
fn items_and_stock_hold_the_original_in_a_tenth() {
    let population = Population::new(5);
    let holds = |data: &[u8]| data.windows(8).any(|window| window == b"ORIGINAL");
    let items = (1..=ITEMS).map(|i_id| population.item(i_id));
    let mut positions = BTreeSet::new();
    let (mut of_items, mut of_stock) = (0, 0);
    for item in items {
        assert!((1..=10_000).contains(&item.i_im_id) && (100..=10_000).contains(&item.i_price_cents));
        assert!((14..=24).contains(&item.i_name.len()) && (26..=50).contains(&item.i_data.len()));
        if holds(item.i_data.as_bytes()) {
            of_items += 1;
            positions.extend(item.i_data.as_bytes().windows(8).position(|window| window == b"ORIGINAL"));
        }
        let stock = population.stock(2, item.i_id);
        assert_eq!((stock.s_i_id, stock.s_w_id), (item.i_id, 2));
        assert_eq!((stock.s_ytd, stock.s_order_cnt, stock.s_remote_cnt), (0, 0, 0));
        assert!((10..=100).contains(&stock.s_quantity));
        of_stock += u32::from(holds(stock.s_data.as_bytes()));
    }
    assert!((9_600..10_400).contains(&of_items), "{of_items}");
    assert!((9_600..10_400).contains(&of_stock), "{of_stock}");
    assert_eq!(positions, (0..=42).collect::<BTreeSet<usize>>(), "at every position");
}

#[test]
fn rows_are_counted_as_they_are_made() {
    let population = Population::new(1);
    let mut lines = 0;
    for d_id in 1..=DISTRICTS_PER_WAREHOUSE {
        let orders = population.orders(2, d_id);
        lines += (1..=ORDERS_PER_DISTRICT).map(|o_id| u64::from(orders.order(o_id).o_ol_cnt)).sum::<u64>();
    }
    assert_eq!(population.lines_of_warehouse(2), lines);
    assert_eq!(population.rows_of_warehouse(2), 1 + 10 + 30_000 + 30_000 + 30_000 + 9_000 + 100_000 + lines);
    assert_eq!(
        population.rows(2),
        100_000 + population.rows_of_warehouse(1) + population.rows_of_warehouse(2)
    );
}

/// Counts columns and checks that they could be stored.
#[derive(Default)]
struct Counted(usize);

impl rows::Columns for Counted {
    fn int(&mut self, _: i32) {
        self.0 += 1;
    }
    fn numeric(&mut self, _: i64, scale: u8) {
        assert!(scale <= 4);
        self.0 += 1;
    }
    fn text(&mut self, value: &[u8]) {
        assert!(!value.is_empty() && value.iter().all(u8::is_ascii_alphanumeric));
        self.0 += 1;
    }
    fn time_us(&mut self, _: i64) {
        self.0 += 1;
    }
    fn null(&mut self) {
        self.0 += 1;
    }
}

fn columns<R: rows::Row>(row: &R) {
    let mut counted = Counted::default();
    row.columns(&mut counted);
    assert_eq!(counted.0, R::COLUMNS);
}

proptest! {
    #[test]
    fn every_row_hands_out_its_columns(
        seed: u64,
        w_id in 1..=WAREHOUSES_MAX,
        d_id in 1..=DISTRICTS_PER_WAREHOUSE,
        c_id in 1..=CUSTOMERS_PER_DISTRICT,
        i_id in 1..=ITEMS,
    ) {
        let population = Population::new(seed);
        columns(&population.warehouse(w_id));
        columns(&population.district(w_id, d_id));
        columns(&population.customer(w_id, d_id, c_id));
        columns(&population.history(w_id, d_id, c_id));
        columns(&population.item(i_id));
        columns(&population.stock(w_id, i_id));
        let orders = population.orders(w_id, d_id);
        let order = orders.order(c_id);
        columns(&order);
        columns(&orders.line(&order, order.o_ol_cnt));
        if let Some(new_order) = orders.new_order(c_id) {
            columns(&new_order);
        }
        prop_assert_eq!(Population::new(seed).customer(w_id, d_id, c_id), population.customer(w_id, d_id, c_id));
        prop_assert_ne!(population.customer(w_id, d_id, c_id).c_data, population.customer(w_id, d_id, c_id % 3_000 + 1).c_data);
    }
}
