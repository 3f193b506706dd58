//! Compares the orders that the client saw commit with the orders that the server has added.

use crate::tpcc::run::Tpcc;
use crate::tpcc::run::audit::{Audit, Beside};
use crate::tpcc::run::judge::{self, Terms};
use postgres::Client;
use record::benchmark::{Benchmark, Check};
use record::summary::Summary;
use run::audit::{Audits, Sums};
use run::drive::Account;
use run::verdict::Opinion;

use crate::driving::{Refusal, ServerAudit};

/// Counts the orders of a run on both sides.
#[derive(Debug)]
pub struct OrdersAudit {
    tpcc: Tpcc,
    terms: Terms,
    /// No other benchmark of the run can drive them.
    has_own_tables: bool,
    before: Option<i64>,
    after: Option<i64>,
}

impl OrdersAudit {
    /// Of a run of `tpcc`.
    pub fn new(tpcc: &Tpcc, terms: Terms) -> OrdersAudit {
        OrdersAudit { tpcc: tpcc.clone(), terms, has_own_tables: false, before: None, after: None }
    }

    /// The same where a database has these transactions' tables twice, each for one benchmark.
    #[must_use]
    pub(crate) fn with_own_tables(self, has_own_tables: bool) -> OrdersAudit {
        OrdersAudit { has_own_tables, ..self }
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

impl OrdersAudit {
    /// What came of a run. `own` are the sums of the benchmark that is judged, `others` those of another one that runs the same transactions.
    pub(crate) fn answer(
        &self,
        account: &Account,
        first: usize,
        (own, others): (&judge::Sums, &judge::Sums),
        opinion: &mut Opinion,
    ) -> Benchmark {
        let mut answer = judge::judge(account, first, &self.tpcc, self.terms, own);
        opinion.notes.extend(answer.misses.iter().cloned());
        let Some(orders) = self.before.zip(self.after) else { return answer };
        let none = judge::Sums::default();
        let others = if self.has_own_tables { &none } else { others };
        let check = judge::count_orders(account, own, others, orders);
        if let Some(reason) = disagreement(&check).filter(|reason| !opinion.invalid.contains(reason)) {
            opinion.invalid.push(reason);
        }
        answer.checks.push(check);
        answer
    }
}

/// That client and server disagree, if they do.
fn disagreement(check: &Check) -> Option<String> {
    let count = check.count.filter(|count| !count.agrees())?;
    let unknown = match count.unknown {
        0 => String::new(),
        unknown => format!(" and does not know the outcome of {unknown}"),
    };
    Some(format!(
        "client and server disagree: the client saw {} orders commit{unknown}, the server has {} more (sum of D_NEXT_O_ID); did \
         another client write to these tables?",
        count.client, count.server
    ))
}

impl ServerAudit for OrdersAudit {
    fn proof(&self) -> Option<&'static str> {
        Some("tpcc")
    }

    fn before(&mut self, client: &mut Client) -> Result<(), Refusal> {
        self.before = self.orders(client)?;
        Ok(())
    }

    fn after(&mut self, client: &mut Client) -> Result<(), Refusal> {
        self.after = self.orders(client)?;
        Ok(())
    }

    fn judge(&self, account: &Account, first: usize, summary: &mut Summary, opinion: &mut Opinion) {
        let [own, others] = [sums::<Audit>(account), sums::<Beside>(account)];
        summary.benchmarks.push(self.answer(account, first, (&own, &others), opinion));
    }
}

/// The sums of one benchmark that runs these transactions.
pub(crate) fn sums<T: Sums + Into<Audit>>(account: &Account) -> judge::Sums {
    let of = |audits: &Audits| audits.of::<T>().into();
    let posted = &account.posted;
    judge::Sums { measured: of(&posted.measured.audits), warmup: of(&posted.warmup.audits) }
}
