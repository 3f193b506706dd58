//! The New-Order transaction (clause 2.4).

use wire::prepared::Execution;

use super::TpccSession;
use super::answer::{Row, cents};
use super::audit::Done;
use super::draw::{Home, LINES_MAX, Line, NewOrder, UNUSED_ITEM};
use super::pipeline::{Call, Request};
use super::statement::Statement;
use run::random::Random;
use run::workload::TransactionError;

/// Characters of S_DIST_xx.
const DIST_INFO: usize = data::tpcc::rows::DIST_INFO;

/// What is known of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    /// I_PRICE; `None` until the item was found.
    i_price_cents: Option<i64>,
    /// ORIGINAL stands in I_DATA and in S_DATA.
    is_brand: [bool; 2],
    /// S_QUANTITY after the update, and S_DIST_xx; `None` until the stock was found.
    stock: Option<(i64, [u8; DIST_INFO])>,
    /// OL_AMOUNT.
    ol_amount_cents: i64,
}

/// Room for one order, and for an array on its way to the server.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    known: [Known; LINES_MAX],
    array: Vec<u8>,
}

impl Buffers {
    /// Room for a parameter's text.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        self.array.clear();
        &mut self.array
    }
}

/// What is shown to the user at the end (clause 2.4.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// O_ID.
    pub o_id: u32,
    /// total-amount = sum(OL_AMOUNT) * (1 - C_DISCOUNT) * (1 + W_TAX + D_TAX), in 10^-10.
    pub total_amount_e10: i128,
    /// Lines whose brand-generic field is "B".
    pub brands: u32,
}

/// Clause 2.4.2.
///
/// The first request reads customer, warehouse and items, takes the stock and the order's number; the second one, which needs all of
/// that, inserts and ends the transaction. Stock rows are updated in the order of (warehouse, item), so that two orders never wait for
/// each other in a circle; the district, which every order of it must pass, is locked last, for one round trip.
pub(super) async fn transaction(
    call: &Call<'_>,
    home: Home,
    state: &mut TpccSession,
    random: &mut Random,
) -> Result<(), TransactionError> {
    let input = NewOrder::draw(random, call.tpcc, home);
    let TpccSession { done, new_order: Buffers { known, array: buffer }, .. } = state;
    done.order(&input, call.tpcc);
    *known = Default::default();
    let order = Order::new(&input, call.tpcc.is_spread);
    let lines = order.lines;
    let reply = call.ask(done, |request| order.prepare(request, buffer)).await?;
    let mut read = Read::default();
    let tags = call.read(reply, |statement, row| order.read(statement, row, known, &mut read))?;
    tags.expect(CUSTOMER, 1, "customer and warehouse")?;
    tags.expect(order.district(), 1, "district")?;

    let is_rolled_back = is_rolled_back(lines, known)?;
    let end = if is_rolled_back { Statement::Rollback } else { Statement::Commit };
    let reply = call
        .ask(done, |request| {
            order.insert(request, read.o_id, known, buffer);
            request.command(end);
        })
        .await?;
    let tags = call.read(reply, |_, _| Ok(()))?;
    tags.expect(2, found(lines, known).count() as u64, "new order lines")?;
    if !is_rolled_back {
        tags.committed()?;
    }
    done.is_rolled_back = is_rolled_back;
    let shown = Shown { o_id: read.o_id, ..Shown::default() };
    show(done, known, lines, shown, (read.c_discount_e4, read.w_tax_e4 + read.d_tax_e4));
    Ok(())
}

/// Places of statements in the first request; those that take the stock are followed by the district.
const CUSTOMER: usize = 1;
const ITEMS: usize = 2;
const STOCK: usize = 3;

/// An order, and which statement takes the stock of which line.
struct Order<'a> {
    input: &'a NewOrder,
    lines: &'a [Line],
    sorted: [usize; LINES_MAX],
    rounds: Rounds,
    is_sharded: bool,
}

/// What the first request reads beside the lines.
#[derive(Default)]
struct Read {
    w_tax_e4: i64,
    c_discount_e4: i64,
    d_tax_e4: i64,
    o_id: u32,
}

impl Order<'_> {
    fn new(input: &NewOrder, is_sharded: bool) -> Order<'_> {
        let lines = input.lines();
        let sorted = sorted_by_stock(lines);
        let rounds = rounds(lines, &sorted);
        let rounds = if is_sharded { by_warehouse(lines, &sorted, &rounds) } else { rounds };
        Order { input, lines, sorted, rounds, is_sharded }
    }

    /// Place of the district's statement in the first request.
    fn district(&self) -> usize {
        STOCK + self.rounds.count
    }

    /// Writes the first request.
    fn prepare(&self, request: &mut Request<'_>, buffer: &mut Vec<u8>) {
        let input = self.input;
        request.command(Statement::Begin);
        // Customer and warehouse: C_DISCOUNT, C_LAST, C_CREDIT, W_TAX.
        request.execute(Statement::NewOrderCustomer, |values| {
            values.integer(input.w_id.into());
            values.integer(input.d_id.into());
            values.integer(input.c_id.into());
        });
        // The items of all lines.
        request.execute(Statement::NewOrderItems, |values| {
            array(values, buffer, self.lines.iter().map(|line| line.i_id));
        });
        for round in 0..self.rounds.count {
            self.take_stock(request, buffer, round);
        }
        // The district: D_TAX, and D_NEXT_O_ID, which is incremented.
        request.execute(Statement::NewOrderDistrict, |values| {
            values.integer(input.w_id.into());
            values.integer(input.d_id.into());
        });
    }

    /// Takes the stock of the lines of one round. A second line of the same stock row needs a statement of its own: one changes a row once. On shards
    /// each supplying warehouse has its own, see [`by_warehouse`].
    fn take_stock(&self, request: &mut Request<'_>, buffer: &mut Vec<u8>, round: usize) {
        let lines = self.lines;
        let own = || self.sorted[..lines.len()].iter().filter(|at| self.rounds.of[**at] == round);
        let own = || own().map(|at| lines[*at]).filter(|line| line.i_id != UNUSED_ITEM);
        let supplied_by =
            self.is_sharded.then(|| own().next().map_or(self.input.w_id, |line| line.supply_w_id));
        let statement = if self.is_sharded { Statement::NewOrderStockOf } else { Statement::NewOrderStock };
        request.execute(statement, |values| {
            values.integer(self.input.w_id.into());
            values.integer(self.input.d_id.into());
            match supplied_by {
                Some(w_id) => values.integer(w_id.into()),
                None => array(values, buffer, own().map(|line| line.supply_w_id)),
            }
            array(values, buffer, own().map(|line| line.i_id));
            array(values, buffer, own().map(|line| line.quantity));
        });
    }

    /// Reads a row of the first request's answer.
    fn read(
        &self,
        statement: usize,
        row: &mut Row<'_>,
        known: &mut [Known],
        read: &mut Read,
    ) -> Result<(), TransactionError> {
        match statement {
            CUSTOMER => {
                read.w_tax_e4 = row.numeric(4)?;
                read.c_discount_e4 = row.numeric(4)?;
            }
            ITEMS => {
                let i_id = row.count()?;
                let i_price_cents = row.numeric(2)?;
                let _i_name = row.text()?;
                let is_brand = is_original(row.text()?);
                let own = self.lines.iter().zip(known.iter_mut()).filter(|(line, _)| line.i_id == i_id);
                for (line, known) in own {
                    known.i_price_cents = Some(i_price_cents);
                    known.is_brand[0] = is_brand;
                    known.ol_amount_cents = i_price_cents * i64::from(line.quantity);
                }
            }
            statement if (STOCK..self.district()).contains(&statement) => {
                self.read_stock(statement - STOCK, row, known)?;
            }
            statement if statement == self.district() => {
                read.o_id = row.count()?;
                read.d_tax_e4 = row.numeric(4)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn read_stock(
        &self,
        round: usize,
        row: &mut Row<'_>,
        known: &mut [Known],
    ) -> Result<(), TransactionError> {
        let (s_w_id, s_i_id) = (row.count()?, row.count()?);
        let s_quantity = row.integer()?;
        let s_dist: [u8; DIST_INFO] = row
            .text()?
            .try_into()
            .map_err(|_| TransactionError::Script(format!("S_DIST is not {DIST_INFO} characters long")))?;
        let is_brand = is_original(row.text()?);
        let lines = self.lines;
        let own = (0..lines.len()).find(|at| {
            self.rounds.of[*at] == round && (lines[*at].supply_w_id, lines[*at].i_id) == (s_w_id, s_i_id)
        });
        if let Some(at) = own {
            known[at].stock = Some((s_quantity, s_dist));
            known[at].is_brand[1] = is_brand;
        }
        Ok(())
    }

    /// Inserts the order and its lines.
    fn insert(&self, request: &mut Request<'_>, o_id: u32, known: &[Known], buffer: &mut Vec<u8>) {
        let Order { input, lines, .. } = *self;
        let order = |values: &mut Execution<'_>| {
            values.integer(input.w_id.into());
            values.integer(input.d_id.into());
            values.integer(o_id.into());
        };
        request.execute(Statement::InsertOrder, |values| {
            order(values);
            values.integer(input.c_id.into());
            values.integer(lines.len() as i64);
            values.integer((input.remote_lines() == 0).into()); // O_ALL_LOCAL
        });
        request.execute(Statement::InsertNewOrder, order);
        let found = || found(lines, known);
        request.execute(Statement::InsertLines, |values| {
            order(values);
            array(values, buffer, found().map(|(at, ..)| at as u32 + 1));
            array(values, buffer, found().map(|(_, line, _)| line.i_id));
            array(values, buffer, found().map(|(_, line, _)| line.supply_w_id));
            array(values, buffer, found().map(|(_, line, _)| line.quantity));
            array_with(values, buffer, found(), |(.., known), out| cents(out, known.ol_amount_cents));
            array_with(values, buffer, found(), |(.., known), out| {
                quoted(out, &known.stock.map_or([b' '; DIST_INFO], |(_, s_dist)| s_dist));
            });
        });
    }
}

/// The lines whose stock was found, with their places.
fn found<'a>(lines: &'a [Line], known: &'a [Known]) -> impl Iterator<Item = (usize, &'a Line, &'a Known)> {
    let all = lines.iter().zip(known).enumerate().map(|(at, (line, known))| (at, line, known));
    all.filter(|(.., known)| known.stock.is_some())
}

/// Clause 2.4.2.3: an item that is not found, and only that, rolls the transaction back, after all else of it was done.
fn is_rolled_back(lines: &[Line], known: &[Known]) -> Result<bool, TransactionError> {
    let mut is_rolled_back = false;
    for (line, known) in lines.iter().zip(known) {
        match (known.i_price_cents, known.stock) {
            (Some(_), Some(_)) => {}
            (None, _) if line.i_id == UNUSED_ITEM => is_rolled_back = true,
            _ => {
                return Err(TransactionError::RowMissing(format!(
                    "item {} or its stock in warehouse {} is missing",
                    line.i_id, line.supply_w_id
                )));
            }
        }
    }
    Ok(is_rolled_back)
}

/// Clause 2.4.3.3: what the terminal displays. Nothing looks at it here, but it is computed, as it is part of the work.
fn show(done: &Done, known: &[Known], lines: &[Line], shown: Shown, (discount_e4, tax_e4): (i64, i64)) {
    let known = &known[..lines.len()];
    let sum: i64 = known.iter().map(|known| known.ol_amount_cents).sum();
    let total_amount_e10 = i128::from(sum) * i128::from(10_000 - discount_e4) * i128::from(10_000 + tax_e4);
    let brands = known.iter().filter(|known| known.is_brand == [true, true]).count() as u32;
    if !done.is_rolled_back {
        std::hint::black_box(Shown { total_amount_e10, brands, ..shown });
    }
}

/// Clause 2.4.2.2: both I_DATA and S_DATA hold it where brand-generic is "B".
fn is_original(data: &[u8]) -> bool {
    data.windows(8).any(|window| window == b"ORIGINAL")
}

/// Places of lines by (supplying warehouse, item).
fn sorted_by_stock(lines: &[Line]) -> [usize; LINES_MAX] {
    let mut places: [usize; LINES_MAX] = std::array::from_fn(|at| at);
    places[..lines.len()].sort_unstable_by_key(|at| (lines[*at].supply_w_id, lines[*at].i_id, *at));
    places
}

/// Which statement changes the stock of which line: the n-th line of the same stock row is in round n.
struct Rounds {
    of: [usize; LINES_MAX],
    count: usize,
}

fn rounds(lines: &[Line], sorted: &[usize; LINES_MAX]) -> Rounds {
    let mut rounds = Rounds { of: [0; LINES_MAX], count: 1 };
    for pair in sorted[..lines.len()].windows(2) {
        let [before, at] = [lines[pair[0]], lines[pair[1]]];
        if (before.supply_w_id, before.i_id) == (at.supply_w_id, at.i_id) {
            rounds.of[pair[1]] = rounds.of[pair[0]] + 1;
            rounds.count = rounds.count.max(rounds.of[pair[1]] + 1);
        }
    }
    rounds
}

/// The same with a statement per supplying warehouse, none for unused items. An entry node that joins lines with the stock of all warehouses reads and
/// locks every row of the other nodes; for one warehouse and a list of items it asks the one node for just these.
fn by_warehouse(lines: &[Line], sorted: &[usize; LINES_MAX], rounds: &Rounds) -> Rounds {
    let mut statements = Rounds { of: [usize::MAX; LINES_MAX], count: 0 };
    for round in 0..rounds.count {
        let mut last = None;
        let own = sorted[..lines.len()].iter().copied().filter(|at| rounds.of[*at] == round);
        for at in own.filter(|at| lines[*at].i_id != UNUSED_ITEM) {
            let w_id = lines[at].supply_w_id;
            if last.replace(w_id) != Some(w_id) {
                statements.count += 1;
            }
            statements.of[at] = statements.count - 1;
        }
    }
    statements
}

/// The next parameter is an array of integers.
pub(super) fn array(values: &mut Execution<'_>, buffer: &mut Vec<u8>, elements: impl Iterator<Item = u32>) {
    array_with(values, buffer, elements, |element, out| wire::frontend::decimal(out, element.into()));
}

/// The next parameter is an array whose elements `write` writes, in PostgreSQL's text form: `{1,2,3}`.
pub(super) fn array_with<T>(
    values: &mut Execution<'_>,
    buffer: &mut Vec<u8>,
    elements: impl Iterator<Item = T>,
    mut write: impl FnMut(T, &mut Vec<u8>),
) {
    buffer.clear();
    buffer.push(b'{');
    for element in elements {
        if buffer.len() > 1 {
            buffer.push(b',');
        }
        write(element, buffer);
    }
    buffer.push(b'}');
    values.raw(buffer);
}

/// A text inside an array.
fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_stock_row_are_changed_one_after_the_other() {
        let line = |supply_w_id, i_id| Line { i_id, supply_w_id, quantity: 1 };
        let lines = [line(2, 7), line(1, 9), line(2, 7), line(1, 3), line(2, 7)];
        let sorted = sorted_by_stock(&lines);
        assert_eq!(sorted[..5], [3, 1, 0, 2, 4]);
        let rounds = rounds(&lines, &sorted);
        assert_eq!((rounds.of[..5].to_vec(), rounds.count), (vec![0, 0, 1, 0, 2], 3));
    }

    #[test]
    fn on_shards_each_supplying_warehouse_has_a_statement() {
        let line = |supply_w_id, i_id| Line { i_id, supply_w_id, quantity: 1 };
        let lines = [line(2, 7), line(1, 9), line(2, 7), line(1, 3), line(3, UNUSED_ITEM), line(2, 8)];
        let sorted = sorted_by_stock(&lines);
        let statements = by_warehouse(&lines, &sorted, &rounds(&lines, &sorted));
        assert_eq!(statements.of[..6], [1, 0, 2, 0, usize::MAX, 1]);
        assert_eq!(statements.count, 3);
    }

    #[test]
    fn texts_survive_an_array() {
        let mut out = Vec::new();
        quoted(&mut out, br#"a"b\c,{}"#);
        assert_eq!(out, br#""a\"b\\c,{}""#);
    }

    #[test]
    fn brands_are_found_anywhere() {
        assert!(is_original(b"xxORIGINALyy") && is_original(b"ORIGINAL"));
        assert!(!is_original(b"ORIGINA") && !is_original(b"") && !is_original(b"xORIGINxAL"));
    }
}
