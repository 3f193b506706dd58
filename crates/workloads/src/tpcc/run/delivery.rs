//! The Delivery transaction (clause 2.7).

use data::tpcc::DISTRICTS_PER_WAREHOUSE;

use super::TpccSession;
use super::answer::cents;
use super::audit::Done;
use super::draw::{Delivery, Home};
use super::new_order::{array, array_with};
use super::pipeline::Call;
use super::statement::Statement;
use run::random::Random;
use run::workload::TransactionError;

const DISTRICTS: usize = DISTRICTS_PER_WAREHOUSE as usize;

/// The order that is delivered in a district.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    o_id: u32,
    o_c_id: u32,
    amount_cents: i64,
}

/// Room for the orders of one Delivery, and for an array on its way to the server.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    orders: [Option<Order>; DISTRICTS],
    array: Vec<u8>,
}

/// Clause 2.7.4: in each district the oldest order that has not been delivered.
///
/// The specification lets a Delivery wait in a queue and answers the terminal at once (clause 2.7.2); here the terminal waits until it is
/// done. All ten districts are one database transaction (clause 2.7.4.1 allows one to ten), three requests: find, deliver, pay.
pub(super) async fn transaction(
    call: &Call<'_>,
    home: Home,
    state: &mut TpccSession,
    random: &mut Random,
) -> Result<(), TransactionError> {
    let input = Delivery::draw(random, home);
    let TpccSession { done, delivery: Buffers { orders, array: buffer }, .. } = state;
    *orders = Default::default();

    find(call, done, orders, &input).await?;
    let found = orders.iter().flatten().count() as u64;
    (done.delivered, done.skipped) = (found, DISTRICTS as u64 - found);
    if found == 0 {
        let reply = call.ask(done, |request| request.command(Statement::Commit)).await?;
        return call.read(reply, |_, _| Ok(()))?.committed();
    }

    // NEW-ORDER is deleted; ORDER gets O_CARRIER_ID and gives O_C_ID; ORDER-LINE gets OL_DELIVERY_D and gives the sum of OL_AMOUNT.
    let reply = call
        .ask(done, |request| {
            for statement in [Statement::DeleteNewOrders, Statement::CarryOrders, Statement::DeliverLines] {
                request.execute(statement, |values| {
                    values.integer(input.w_id.into());
                    array(values, buffer, districts(orders).map(|(d_id, _)| d_id));
                    array(values, buffer, districts(orders).map(|(_, order)| order.o_id));
                    if statement == Statement::CarryOrders {
                        values.integer(input.o_carrier_id.into());
                    }
                });
            }
        })
        .await?;
    let tags = call.read(reply, |statement, row| {
        let d_id = row.count()?;
        let Some(order) = of_district(orders, d_id)? else { return Ok(()) };
        match statement {
            1 => order.o_c_id = row.count()?,
            _ => order.amount_cents = row.numeric(2)?,
        }
        Ok(())
    })?;
    for (place, what) in ["new-order", "order", "order-line"].iter().enumerate() {
        tags.expect(place, found, what)?;
    }

    // CUSTOMER: C_BALANCE, C_DELIVERY_CNT.
    let reply = call
        .ask(done, |request| {
            request.execute(Statement::PayDeliveries, |values| {
                values.integer(input.w_id.into());
                array(values, buffer, districts(orders).map(|(d_id, _)| d_id));
                array(values, buffer, districts(orders).map(|(_, order)| order.o_c_id));
                array_with(values, buffer, districts(orders), |(_, order), out| {
                    cents(out, order.amount_cents);
                });
            });
            request.command(Statement::Commit);
        })
        .await?;
    let tags = call.read(reply, |_, _| Ok(()))?;
    tags.expect(0, found, "customer")?;
    tags.committed()
}

/// Begins, and finds the lowest NO_O_ID of each district.
async fn find(
    call: &Call<'_>,
    done: &mut Done,
    orders: &mut [Option<Order>; DISTRICTS],
    input: &Delivery,
) -> Result<(), TransactionError> {
    let reply = call
        .ask(done, |request| {
            request.command(Statement::Begin);
            request.execute(Statement::OldestOrders, |values| values.integer(input.w_id.into()));
        })
        .await?;
    call.read(reply, |_, row| {
        let (d_id, o_id) = (row.count()?, row.count()?);
        *of_district(orders, d_id)? = Some(Order { o_id, ..Order::default() });
        Ok(())
    })?;
    Ok(())
}

fn districts(orders: &[Option<Order>; DISTRICTS]) -> impl Iterator<Item = (u32, Order)> {
    orders.iter().zip(1..).filter_map(|(order, d_id)| order.map(|order| (d_id, order)))
}

fn of_district(
    orders: &mut [Option<Order>; DISTRICTS],
    d_id: u32,
) -> Result<&mut Option<Order>, TransactionError> {
    let at = (d_id as usize).wrapping_sub(1);
    orders.get_mut(at).ok_or_else(|| TransactionError::Script(format!("there is no district {d_id}")))
}
