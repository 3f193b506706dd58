//! The Stock-Level transaction (clause 2.8).

use super::TpccSession;
use super::draw::{Home, StockLevel};
use super::pipeline::Call;
use super::statement::Statement;
use run::random::Random;
use run::workload::TransactionError;

/// Clause 2.8.2: items of the last 20 orders of the terminal's district whose stock is low.
pub(super) async fn transaction(
    call: &Call<'_>,
    home: Home,
    state: &mut TpccSession,
    random: &mut Random,
) -> Result<(), TransactionError> {
    let input = StockLevel::draw(random, home);
    let done = &mut state.done;
    let reply = call
        .ask(done, |request| {
            request.command(Statement::BeginReadOnly);
            request.execute(Statement::LowStock, |values| {
                values.integer(input.w_id.into());
                values.integer(input.d_id.into());
                values.integer(input.threshold.into());
            });
            request.command(Statement::Commit);
        })
        .await?;
    let mut low_stock = None;
    let tags = call.read(reply, |_, row| {
        low_stock = Some(row.integer()?);
        Ok(())
    })?;
    if low_stock.is_none() {
        return Err(TransactionError::RowMissing("Stock-Level counted nothing".into()));
    }
    tags.committed()
}
