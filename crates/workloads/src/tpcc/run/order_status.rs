//! The Order-Status transaction (clause 2.6).

use super::TpccSession;
use super::draw::{Customer, Home, OrderStatus};
use super::payment::customer_by_name;
use super::pipeline::{Call, Request};
use super::statement::Statement;
use run::random::Random;
use run::workload::TransactionError;

/// Clause 2.6.2: a customer's balance, and the customer's last order with its lines.
pub(super) async fn transaction(
    call: &Call<'_>,
    home: Home,
    state: &mut TpccSession,
    random: &mut Random,
) -> Result<(), TransactionError> {
    let input = OrderStatus::draw(random, call.tpcc, home);
    let done = &mut state.done;
    done.is_by_name = input.customer.is_by_name();
    let last_order = |request: &mut Request<'_>, c_id: u32| {
        request.execute(Statement::LastOrder, |values| {
            values.integer(input.w_id.into());
            values.integer(input.d_id.into());
            values.integer(c_id.into());
        });
        request.command(Statement::Commit);
    };
    let (reply, place) = match &input.customer {
        // Case 1: by number.
        Customer::Id(c_id) => {
            let reply = call
                .ask(done, |request| {
                    request.command(Statement::BeginReadOnly);
                    request.execute(Statement::StatusById, |values| {
                        values.integer(input.w_id.into());
                        values.integer(input.d_id.into());
                        values.integer((*c_id).into());
                    });
                    last_order(request, *c_id);
                })
                .await?;
            (reply, 2)
        }
        // Case 2: of all with that name, sorted by C_FIRST, the one in the middle.
        Customer::Name(c_last) => {
            let statements = (Statement::BeginReadOnly, Statement::StatusByName);
            let district = (input.w_id, input.d_id);
            let c_id = customer_by_name(call, done, statements, district, c_last.as_bytes()).await?;
            (call.ask(done, |request| last_order(request, c_id)).await?, 0)
        }
    };
    let mut sum_cents = 0;
    let tags = call.read(reply, |statement, row| {
        if statement == place {
            let (_o_id, _o_entry_d, _o_carrier_id) = (row.count()?, row.any()?, row.any()?);
            let (_ol_i_id, _ol_supply_w_id, _ol_quantity) = (row.count()?, row.count()?, row.count()?);
            sum_cents += row.numeric(2)?;
        }
        Ok(())
    })?;
    if tags.rows(place) == 0 {
        return Err(TransactionError::RowMissing(
            "the customer has no order: each has one after the load".into(),
        ));
    }
    if place == 2 {
        tags.expect(1, 1, "customer")?;
    }
    std::hint::black_box(sum_cents);
    tags.committed()
}
