//! Format v1 of the TPC-C tables is frozen: these vectors were made by a second implementation (`format_v1_tpcc.py`) and may never change.

use std::fmt::Write;

use data::tpcc::nurand::{self, Constants};
use data::tpcc::rows::{Columns, Row};
use data::tpcc::{LOAD_DAY_US, Population};

const VECTORS: &str = include_str!("format_v1_tpcc.tsv");

/// The lines of one kind, split into their columns, without the kind.
fn vectors(kind: &str) -> impl Iterator<Item = Vec<&'static str>> {
    VECTORS
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .filter(move |columns| columns[0] == kind)
        .map(|columns| columns[1..].to_vec())
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("bad vector: {text}"))
}

/// Prints columns as PostgreSQL would.
#[derive(Default)]
struct Printed(Vec<String>);

impl Columns for Printed {
    fn int(&mut self, value: i32) {
        self.0.push(value.to_string());
    }

    fn numeric(&mut self, value: i64, scale: u8) {
        let (unit, sign) = (10u64.pow(scale.into()), if value < 0 { "-" } else { "" });
        let (whole, fraction) = (value.unsigned_abs() / unit, value.unsigned_abs() % unit);
        self.0.push(format!("{sign}{whole}.{fraction:0width$}", width = usize::from(scale)));
    }

    fn text(&mut self, value: &[u8]) {
        self.0.push(String::from_utf8(value.to_vec()).expect("ASCII"));
    }

    fn time_us(&mut self, value: i64) {
        let (seconds, fraction) = ((value - LOAD_DAY_US) / 1_000_000, (value - LOAD_DAY_US) % 1_000_000);
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let mut text = format!("2026-01-01 {hours:02}:{minutes:02}:{:02}", seconds % 60);
        if fraction > 0 {
            write!(text, ".{fraction:06}").expect("a string takes everything");
            text.truncate(text.trim_end_matches('0').len());
        }
        self.0.push(text);
    }

    fn null(&mut self) {
        self.0.push("\\N".to_owned());
    }
}

fn assert_row(vector: &[&str], row: &impl Row) {
    let mut printed = Printed::default();
    row.columns(&mut printed);
    assert_eq!(printed.0, vector);
}

/// Checks all rows of a table whose key has `IDS` parts; `make` is called with the population and the key.
fn table<const IDS: usize>(
    kind: &str,
    vectors_expected: usize,
    check: impl Fn(&Population, [u32; IDS], &[&str]),
) {
    let mut checked = 0;
    for vector in vectors(kind) {
        let population = Population::new(number(vector[0]));
        let ids = std::array::from_fn(|id| number(vector[id + 1]));
        check(&population, ids, &vector[IDS + 1..]);
        checked += 1;
    }
    assert_eq!(checked, vectors_expected, "{kind}");
}

#[test]
fn rows() {
    table("warehouse", 20, |population, [w], row| assert_row(row, &population.warehouse(w)));
    table("district", 40, |population, [w, d], row| assert_row(row, &population.district(w, d)));
    table("customer", 240, |population, [w, d, c], row| assert_row(row, &population.customer(w, d, c)));
    table("history", 240, |population, [w, d, c], row| assert_row(row, &population.history(w, d, c)));
    table("orders", 240, |population, [w, d, o], row| assert_row(row, &population.orders(w, d).order(o)));
    table("order_line", 480, |population, [w, d, o, number], row| {
        let orders = population.orders(w, d);
        assert_row(row, &orders.line(&orders.order(o), number));
    });
    table("item", 20, |population, [i], row| assert_row(row, &population.item(i)));
    table("stock", 60, |population, [w, i], row| assert_row(row, &population.stock(w, i)));
}

#[test]
fn constants() {
    for vector in vectors("c_load") {
        let c_load: u32 = number(vector[1]);
        assert_eq!(nurand::c_load(number(vector[0])), c_load);
        assert_eq!(Population::new(number(vector[0])).c_load(), c_load);
    }
    for vector in vectors("for_run") {
        let [c_load, seed, c_last, c_id, ol_i_id] = vector[..] else { panic!("bad vector {vector:?}") };
        let expected = Constants { c_last: number(c_last), c_id: number(c_id), ol_i_id: number(ol_i_id) };
        assert_eq!(Constants::for_run(number(c_load), number(seed)), expected);
    }
    assert_eq!((vectors("c_load").count(), vectors("for_run").count()), (4, 12));
}
