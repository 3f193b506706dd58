//! The Payment transaction (clause 2.5).

use super::TpccSession;
use super::answer::cents;
use super::audit::Done;
use super::draw::{Customer, Home, Payment};
use super::pipeline::Call;
use super::statement::Statement;
use run::random::Random;
use run::workload::TransactionError;

/// Customers of one district with one last name: three on average; the most that are looked at.
const NAMESAKES_MAX: usize = 1_024;

/// Clause 2.5.2.
///
/// A customer known by number: one request. By last name: the customers of that name are requested first. The warehouse's row, which
/// every payment in it must pass, is locked last.
pub(super) async fn transaction(
    call: &Call<'_>,
    home: Home,
    state: &mut TpccSession,
    random: &mut Random,
) -> Result<(), TransactionError> {
    let input = Payment::draw(random, call.tpcc, home);
    let TpccSession { done, new_order: room, .. } = state;
    done.payment(&input, call.tpcc);
    let amount = room.amount(input.h_amount_cents.into());

    let (c_id, has_begun) = match &input.customer {
        // Case 1: by number.
        Customer::Id(c_id) => (*c_id, false),
        // Case 2: of all with that name, sorted by C_FIRST, the one in the middle.
        Customer::Name(c_last) => {
            let statements = (Statement::Begin, Statement::CustomersByName);
            let district = (input.c_w_id, input.c_d_id);
            (customer_by_name(call, done, statements, district, c_last.as_bytes()).await?, true)
        }
    };

    let reply = call
        .ask(done, |request| {
            if !has_begun {
                request.command(Statement::Begin);
            }
            // C_BALANCE, C_YTD_PAYMENT, C_PAYMENT_CNT, and C_DATA where C_CREDIT is "BC".
            request.execute(Statement::PayCustomer, |values| {
                values.integer(input.c_w_id.into());
                values.integer(input.c_d_id.into());
                values.integer(c_id.into());
                values.raw(amount);
                values.integer(input.d_id.into());
                values.integer(input.w_id.into());
            });
            // D_YTD.
            request.execute(Statement::PayDistrict, |values| {
                values.integer(input.w_id.into());
                values.integer(input.d_id.into());
                values.raw(amount);
            });
            // W_YTD.
            request.execute(Statement::PayWarehouse, |values| {
                values.integer(input.w_id.into());
                values.raw(amount);
            });
            request.execute(Statement::InsertHistory, |values| {
                values.integer(c_id.into());
                values.integer(input.c_d_id.into());
                values.integer(input.c_w_id.into());
                values.integer(input.d_id.into());
                values.integer(input.w_id.into());
                values.raw(amount);
            });
            request.command(Statement::Commit);
        })
        .await?;
    let tags = call.read(reply, |_, _| Ok(()))?;
    let first = usize::from(!has_begun);
    // Together with the COMMIT, so too late for a rollback: but a missing row is reported, and counts as an error.
    for (place, what) in ["customer", "district", "warehouse", "history"].iter().enumerate() {
        tags.expect(first + place, 1, what)?;
    }
    tags.committed()
}

/// Clauses 2.5.2.2 and 2.6.2.2: of all customers of a district with this last name, sorted by C_FIRST, the one in the middle. `statements` begin the
/// transaction and list the customers.
pub(super) async fn customer_by_name(
    call: &Call<'_>,
    done: &mut Done,
    (begin, list): (Statement, Statement),
    (w_id, d_id): (u32, u32),
    c_last: &[u8],
) -> Result<u32, TransactionError> {
    let reply = call
        .ask(done, |request| {
            request.command(begin);
            request.execute(list, |values| {
                values.integer(w_id.into());
                values.integer(d_id.into());
                values.raw(c_last);
            });
        })
        .await?;
    let mut namesakes = [0; NAMESAKES_MAX];
    let mut count = 0;
    call.read(reply, |_, row| {
        if count < NAMESAKES_MAX {
            namesakes[count] = row.count()?;
            count += 1;
        }
        Ok(())
    })?;
    middle(count).map(|at| namesakes[at]).ok_or_else(|| no_customer(c_last))
}

/// Clause 2.5.2.2: the place of n / 2 rounded up, counted from 1; here from 0. `None` of none.
fn middle(count: usize) -> Option<usize> {
    count.checked_sub(1).map(|last| last / 2)
}

/// No customer has that last name, although each of the thousand names exists after a load.
fn no_customer(c_last: &[u8]) -> TransactionError {
    TransactionError::RowMissing(format!("no customer has the last name {}", String::from_utf8_lossy(c_last)))
}

impl super::new_order::Buffers {
    /// An amount in text, as a parameter.
    fn amount(&mut self, amount_cents: i64) -> &[u8] {
        let text = self.buffer();
        cents(text, amount_cents);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::middle;

    #[test]
    fn the_middle_is_rounded_up() {
        // n / 2 rounded up: of 1 the first, of 2 the first, of 3 the second, of 4 the second.
        assert_eq!([1, 2, 3, 4, 5].map(middle), [Some(0), Some(0), Some(1), Some(1), Some(2)]);
        assert_eq!(middle(0), None);
    }
}
