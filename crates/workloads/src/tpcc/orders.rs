//! The orders that the client saw commit against those that the server has more than before.

use crate::tpcc::run::Tpcc;
use crate::tpcc::run::judge::{self, Terms};
use postgres::Client;
use record::summary::Summary;
use run::drive::Account;
use run::verdict::Opinion;

use crate::driving::{Refusal, ServerAudit};

/// Counts the orders of a run on both sides.
#[derive(Debug)]
pub struct OrdersAudit {
    tpcc: Tpcc,
    terms: Terms,
    before: Option<i64>,
    after: Option<i64>,
}

impl OrdersAudit {
    /// Of a run of `tpcc`.
    pub fn new(tpcc: &Tpcc, terms: Terms) -> OrdersAudit {
        OrdersAudit { tpcc: tpcc.clone(), terms, before: None, after: None }
    }

    /// Sum of D_NEXT_O_ID: grows by one with every order that commits.
    fn orders(&self, client: &mut Client) -> Result<Option<i64>, Refusal> {
        let Some(schema) = &self.tpcc.schema else { return Ok(None) };
        let sql =
            format!("select sum(d_next_o_id)::int8 from {}", load::ledger::qualified(schema, "district"));
        let row = client.query_one(&sql, &[]).map_err(|error| {
            Refusal::new("cannot read the number of orders from the server").because(error)
        })?;
        Ok(Some(row.get::<_, Option<i64>>(0).unwrap_or(0)))
    }
}

impl ServerAudit for OrdersAudit {
    fn before(&mut self, client: &mut Client) -> Result<(), Refusal> {
        self.before = self.orders(client)?;
        Ok(())
    }

    fn after(&mut self, client: &mut Client) -> Result<(), Refusal> {
        self.after = self.orders(client)?;
        Ok(())
    }

    fn judge(&self, account: &Account, first: usize, summary: &mut Summary, opinion: &mut Opinion) {
        let orders = self.before.zip(self.after);
        let answer = judge::judge(account, first, &self.tpcc, self.terms, orders);
        if let Some(orders) = answer.orders.filter(|orders| !orders.agree) {
            let unknown = match orders.unknown {
                0 => String::new(),
                unknown => format!(" and does not know of {unknown}"),
            };
            opinion.invalid.push(format!(
                "client and server disagree: the client saw {} orders commit{unknown}, the server has {} more (sum of D_NEXT_O_ID); did \
                 somebody else run on these tables?",
                orders.client, orders.server
            ));
        }
        opinion.notes.extend(answer.misses.iter().cloned());
        summary.tpcc = Some(answer);
    }
}
