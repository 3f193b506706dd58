//! Answers to the five transactions from nowhere, for the null server: of the right shape, so that what is left is the client.

use std::fmt::Write as _;

use wire::backend::tag;

use super::draw::UNUSED_ITEM;
use run::null_server::Answers;
use run::responder::{Executed, Parameters};

/// Districts in which a Delivery always finds an order.
const DISTRICTS: u32 = 10;
/// Arrays of one statement at most, and values in front of them.
const PARAMETERS_MAX: usize = 9;

/// Where an answer is put together, kept from one to the next.
#[derive(Debug, Default)]
pub struct TpccAnswers {
    rows: Vec<u8>,
    tag: String,
}

impl Answers for TpccAnswers {
    fn to(&mut self, sql: &str, parameters: Parameters<'_>) -> Option<Executed<'_>> {
        let mut values = [&b""[..]; PARAMETERS_MAX];
        for (value, parameter) in values.iter_mut().zip(parameters) {
            *value = parameter.unwrap_or_default();
        }
        self.rows.clear();
        let begins = |text: &str| sql.starts_with(text);
        let word = match () {
            () if begins("SELECT w_tax") => self.one("SELECT", &[b"0.1000", b"0.2000", b"BARBARBAR", b"GC"]),
            () if begins("SELECT i_id, i_price") => {
                let items = elements(values[0]).filter(|item| *item != UNUSED_ITEM);
                let count =
                    items.map(|item| self.row(&[&text(item), b"5.25", b"item", b"nothing special"])).count();
                ("SELECT", count)
            }
            () if begins("UPDATE ") && sql.contains("stock SET") => {
                let stock = elements(values[2]).zip(elements(values[3]));
                let row = [&b"50"[..], b"abcdefghijklmnopqrstuvwx", b"nothing special"];
                let count =
                    stock.map(|(w, i)| self.row(&[&text(w), &text(i), row[0], row[1], row[2]])).count();
                ("UPDATE", count)
            }
            () if begins("UPDATE ") && sql.contains("d_next_o_id") => {
                self.one("UPDATE", &[b"3001", b"0.1000"])
            }
            () if begins("INSERT INTO ") && sql.contains("order_line") => {
                ("INSERT 0", elements(values[3]).count())
            }
            () if begins("SELECT c_id FROM") => self.one("SELECT", &[b"1"]),
            () if begins("SELECT c_id, c_balance") => {
                self.one("SELECT", &[b"1", b"-10.00", b"first", b"OE", b"BARBARBAR"])
            }
            () if begins("SELECT o_id, o_entry_d") => {
                let row: [&[u8]; 8] = [b"3000", b"2026-01-01 00:00:00", b"1", b"7", b"1", b"5", b"1.25", b""];
                ("SELECT", (0..10).map(|_| self.row(&row)).count())
            }
            () if begins("SELECT no_d_id") => {
                ("SELECT", (1..=DISTRICTS).map(|d_id| self.row(&[&text(d_id), b"2101"])).count())
            }
            () if begins("DELETE FROM ") && sql.contains("new_order") => {
                ("DELETE", elements(values[1]).count())
            }
            () if begins("UPDATE ") && sql.contains("o_carrier_id") => {
                ("UPDATE", elements(values[1]).map(|d_id| self.row(&[&text(d_id), b"77"])).count())
            }
            () if begins("WITH delivered") => {
                ("SELECT", elements(values[1]).map(|d_id| self.row(&[&text(d_id), b"12.50"])).count())
            }
            () if begins("UPDATE ") && sql.contains("c_delivery_cnt") => {
                ("UPDATE", elements(values[1]).count())
            }
            () if begins("SELECT count(DISTINCT s_i_id)") => self.one("SELECT", &[b"7"]),
            () => return None,
        };
        self.tag.clear();
        write!(self.tag, "{} {}", word.0, word.1).expect("writing into a String cannot fail");
        Some(Executed::Rows { tag: &self.tag, messages: &self.rows })
    }
}

impl TpccAnswers {
    fn one(&mut self, word: &'static str, columns: &[&[u8]]) -> (&'static str, usize) {
        self.row(columns);
        (word, 1)
    }

    /// Appends a DataRow.
    fn row(&mut self, columns: &[&[u8]]) {
        let bytes: usize = columns.iter().map(|column| 4 + column.len()).sum();
        self.rows.push(tag::DATA_ROW);
        self.rows.extend_from_slice(&(6 + bytes as u32).to_be_bytes());
        self.rows.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for column in columns {
            self.rows.extend_from_slice(&(column.len() as u32).to_be_bytes());
            self.rows.extend_from_slice(column);
        }
    }
}

/// Numbers of an array in text form.
fn elements(array: &[u8]) -> impl Iterator<Item = u32> {
    let inner = array.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")).unwrap_or_default();
    inner
        .split(|byte| *byte == b',')
        .filter(|digits| !digits.is_empty())
        .map(|digits| digits.iter().fold(0u32, |number, digit| 10 * number + u32::from(digit - b'0')))
}

/// Decimal digits, padded with zeros on the left to a fixed width: no heap.
fn text(number: u32) -> [u8; 10] {
    let mut digits = [b'0'; 10];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    digits
}
