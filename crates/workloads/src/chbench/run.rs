//! `run -b chbench`: some of the sessions are analysts, which run one query after the other; the others run the transactions of TPC-C at full speed.

use crate::tpcc::family::Spread;
use crate::tpcc::run::judge::Terms;
use crate::tpcc::run::pace::Mix;
use crate::tpcc::run::{Isolation, Profile, Tpcc, TpccSession};
use postgres::Client;
use record::benchmark::{COUNT, Column, Figure, MICROSECONDS, Row, Setting, Table};
use record::number;
use record::summary::Summary;
use run::audit::Audits;
use run::drive::Account;
use run::engine::Nanos;
use run::statement::StatementSpec;
use run::terminals::Turn;
use run::verdict::Opinion;
use run::workload::{Item, TransactionError, Try, Workload};

use super::dataset::{NAME, own_names};
use super::queries::{self, QUERIES};
use crate::driving::{
    About, Builtin, Family, Flag, Given, Kind, Prepared, Refusal, ServerAudit, Tables, weight_of,
};
use crate::request::ask_without_rows;
use crate::tpcc::family::check_complete;
use crate::tpcc::orders::{OrdersAudit, sums};
use crate::tpcc::run::audit::{Audit, Beside};
use crate::tpcc::{TPCC, TpccDataset, find_named};
use load::ledger;

/// The flag for the number of sessions that ask queries.
const ANALYSTS_FLAG: &str = "analysts";
/// Items of TPC-C, which stand before the queries.
const PROFILES: usize = Profile::ALL.len();
/// What fills the tables.
const FILL: &str = "load it first: pgfathom load chbench -s 10";

/// The workload.
#[derive(Clone, Debug)]
pub struct ChBench {
    tpcc: Tpcc,
    /// Sessions of the run, and how many of them ask queries: the last ones.
    sessions: u64,
    analysts: u64,
    queries: Vec<String>,
    weight: u64,
    /// Other workloads run beside it, and may have transactions of the same names.
    is_mixed: bool,
}

impl ChBench {
    /// On these warehouses, with queries on the tables of this schema.
    fn new(tpcc: Tpcc, schema: &str, analysts: u64, weight: u64) -> ChBench {
        let queries = queries::all(&ledger::quoted(schema));
        ChBench { sessions: tpcc.sessions + analysts, tpcc, analysts, queries, weight, is_mixed: false }
    }

    fn is_analyst(&self, session: u64) -> bool {
        session % self.sessions >= self.sessions - self.analysts
    }
}

impl Workload for ChBench {
    type Session = Box<TpccSession>;

    /// The profiles of TPC-C, then the queries: who asks those does not draw, so they have no weight.
    fn items(&self) -> Vec<Item> {
        let beside = if self.is_mixed { format!("{NAME}.") } else { String::new() };
        let transactions = self
            .tpcc
            .items()
            .into_iter()
            .map(|item| Item { name: format!("{beside}{}", item.name), weight: item.weight * self.weight });
        let queries = (1..=QUERIES).map(|number| Item { name: format!("Q{number}"), weight: 0 });
        transactions.chain(queries).collect()
    }

    fn statements(&self) -> Vec<StatementSpec> {
        let query = |(at, sql): (usize, &String)| StatementSpec {
            fill: Some(FILL),
            ..StatementSpec::ours(format!("{NAME}_q{}", at + 1), sql.clone())
        };
        let mut statements: Vec<StatementSpec> = self.queries.iter().enumerate().map(query).collect();
        statements.extend(self.tpcc.statements());
        statements
    }

    fn session(&self, session: u64) -> Result<Box<TpccSession>, String> {
        self.tpcc.session(session)
    }

    async fn transaction(
        &self,
        item: usize,
        state: &mut Box<TpccSession>,
        attempt: Try<'_>,
    ) -> Result<(), TransactionError> {
        let Some(query) = item.checked_sub(PROFILES) else {
            let templates = attempt.templates.get(QUERIES..).unwrap_or_default();
            return self.tpcc.transaction(item, state, Try { templates, ..attempt }).await;
        };
        ask_without_rows(attempt.session, attempt.templates, |request| request.command(query)).await
    }

    /// Analysts go through the queries in order, each beginning with another one.
    #[inline]
    fn choose(&self, drawn: usize, _: u64, session: u64, sequence: u64) -> usize {
        match self.is_analyst(session) {
            true => PROFILES + ((session * 5 + sequence) % QUERIES as u64) as usize,
            false => drawn,
        }
    }

    #[inline]
    fn begin(&self, state: &mut Box<TpccSession>, turn: Option<Turn>) {
        self.tpcc.begin(state, turn);
    }

    #[inline]
    fn audit(&self, item: usize, state: &Box<TpccSession>, waited: Option<Nanos>, audits: &mut Audits) {
        if item < PROFILES {
            audits.entry::<Beside>().0.count(&state.done, waited);
        }
    }

    fn lost(&self, item: usize, _: &Box<TpccSession>, audits: &mut Audits) {
        if item < PROFILES {
            audits.entry::<Beside>().0.count_lost(item);
        }
    }
}

const ABOUT: About = About {
    title: "CH-benCHmark",
    filled_by: "load chbench",
    fill: FILL,
    builtins: &[Builtin {
        name: NAME,
        about: "CH-benCHmark: TPC-C's transactions, and 22 analytic queries beside them on the same tables",
    }],
    flags: &[Flag {
        long: ANALYSTS_FLAG,
        kind: Kind::Text("N"),
        help: "Number of sessions (of -c) that run analytic queries; the others run transactions [default: 1]",
        excludes: &[],
    }],
    heading: About::HEADING,
    examples: &[("-b chbench -c 10 --analysts 2 -T 5m ...", "TPC-C with analytic queries beside it")],
};

/// `-b chbench`.
#[derive(Debug)]
pub struct ChBenchFamily;

impl Family for ChBenchFamily {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn check(&self, given: &Given<'_>) -> Result<(), Refusal> {
        analysts(given).map(drop)
    }

    fn seeks_owner(&self) -> bool {
        true
    }

    fn holds_rows(&self) -> bool {
        true
    }

    fn tables(&self, client: &mut Client) -> Result<Tables, Refusal> {
        let schema = dataset(client)?.dataset.schema_name;
        let names = data::tpcc::Table::ALL.into_iter().map(|table| table.name()).chain(own_names());
        Ok(names.map(|name| (Some(schema.clone()), name)).collect())
    }

    fn prepare(
        &self,
        mix: &[(&'static str, u64)],
        given: &Given<'_>,
        client: &mut Client,
    ) -> Result<Prepared, Refusal> {
        let analysts = analysts(given)?;
        let found = dataset(client)?;
        let spread = Spread::read(given, client, &found, found.warehouses)?;
        let schema = found.dataset.schema_name.clone();
        let tpcc = Tpcc {
            warehouses: found.warehouses,
            constants: found.run_constants(),
            mix: Mix::default(),
            isolation: Isolation::default(),
            wire: given.wire,
            schema: Some(schema.clone()),
            is_spread: spread.is_spread,
            homes: spread.homes,
            simulate: None,
            // Without sessions for transactions they are shared out among one.
            sessions: (given.sessions - analysts).max(1),
        };
        let terms = Terms { has_terminals: false, efficiency_percent_min: 0.0 };
        // Otherwise TPC-C beside it runs on these tables.
        let has_own_tables = find_named(client, TPCC)?.is_some();
        let orders = OrdersAudit::new(&tpcc, terms).with_own_tables(has_own_tables);
        let audit = Hybrid { orders, analysts };
        let weight = weight_of(mix);
        let is_mixed = given.is_mixed;
        let workload = ChBench { is_mixed, ..ChBench::new(tpcc, &schema, analysts, weight) };
        let prepared = Prepared::new(workload, found.described(), audit).listed_in(found.dataset, NAME);
        Ok(Prepared { connects: spread.connects, plans_each: spread.plans_each, ..prepared })
    }
}

/// The dataset in the target, complete.
fn dataset(client: &mut Client) -> Result<TpccDataset, Refusal> {
    if !ledger::exists(client)? {
        return Err(ABOUT.missing());
    }
    let Some(found) = find_named(client, NAME)? else {
        return Err(match find_named(client, TPCC)? {
            None => ABOUT.missing(),
            Some(found) => Refusal::new(
                "this database holds TPC-C without the suppliers, nations and regions of CH-benCHmark",
            )
            .with_hint(format!(
                "load all of them into another database: pgfathom load chbench -s {} DBNAME",
                found.warehouses
            )),
        });
    };
    check_complete(client, &ABOUT, &found)?;
    let own: Vec<String> = own_names().map(str::to_owned).collect();
    ledger::check_in_place(client, &found.dataset, &own)?;
    Ok(found)
}

fn analysts(given: &Given<'_>) -> Result<u64, Refusal> {
    let analysts = given.flag(ANALYSTS_FLAG, 1u64, "2")?;
    if analysts >= given.sessions {
        return Err(Refusal::new(format!(
            "-c {}: {analysts} of them run queries, so no session is left for transactions",
            given.sessions
        ))
        .with_hint(format!(
            "use more sessions, for example -c {} --{ANALYSTS_FLAG} {analysts}",
            analysts + 8
        )));
    }
    Ok(analysts)
}

/// Judges the transactions as TPC-C's, and counts the queries.
#[derive(Debug)]
struct Hybrid {
    orders: OrdersAudit,
    analysts: u64,
}

impl ServerAudit for Hybrid {
    fn proof(&self) -> Option<&'static str> {
        Some("tpcc")
    }

    fn before(&mut self, client: &mut Client) -> Result<(), Refusal> {
        self.orders.before(client)
    }

    fn after(&mut self, client: &mut Client) -> Result<(), Refusal> {
        self.orders.after(client)
    }

    fn judge(&self, account: &Account, first: usize, summary: &mut Summary, opinion: &mut Opinion) {
        let [own, others] = [sums::<Beside>(account), sums::<Audit>(account)];
        let mut answer = self.orders.answer(account, first, (&own, &others), opinion);
        let queries = &account.posted.measured.types[first + PROFILES..first + PROFILES + QUERIES];
        let hours = account.measured().as_secs_f64() / 3_600.0;
        let completed: u64 = queries.iter().map(|tally| tally.transactions).sum();
        let per_hour = if hours > 0.0 { completed as f64 / hours } else { 0.0 };
        answer.name = ABOUT.title.into();
        answer.settings.push(Setting::number(
            ANALYSTS_FLAG,
            self.analysts as f64,
            number::counted(self.analysts, "session") + " for queries",
        ));
        answer.figures.extend([
            Figure::new("analytic queries", per_hour, "queries/h"),
            Figure::new("queries answered at least once", answered(queries) as f64, "of 22"),
        ]);
        if let Some(mean) = geometric_mean_us(queries) {
            answer.figures.push(Figure::new("geometric mean of the queries' mean times", mean, MICROSECONDS));
        }
        if let Some(requests) = &mut answer.requests {
            // Each query is one request.
            requests.awaited += completed;
            requests.transactions += completed;
        }
        if completed > 0 {
            answer.tables.push(table_of(queries));
        }
        summary.benchmarks.push(answer);
    }
}

/// The queries that were answered, with their response times.
fn table_of(queries: &[run::tally::TypeTally]) -> Table {
    let row = |(number, tally): (usize, &run::tally::TypeTally)| {
        (tally.transactions > 0).then(|| Row {
            name: format!("Q{number} {}", queries::ABOUT[number - 1]),
            values: vec![
                Some(tally.transactions as f64),
                Some(tally.response.mean_us()),
                Some(tally.response.quantile_us(0.9) as f64),
            ],
            met: None,
        })
    };
    let columns = vec![
        Column::new("answered", COUNT),
        Column::new("mean", MICROSECONDS),
        Column::new("p90", MICROSECONDS),
    ];
    let rows = (1..=QUERIES).zip(queries).filter_map(row).collect();
    Table { name: "query".into(), columns, rows, are_parts: false }
}

fn answered(queries: &[run::tally::TypeTally]) -> usize {
    queries.iter().filter(|tally| tally.transactions > 0).count()
}

/// Only over all queries: without the slow ones the mean would look better.
fn geometric_mean_us(queries: &[run::tally::TypeTally]) -> Option<f64> {
    (answered(queries) == queries.len()).then(|| {
        let logs: f64 = queries.iter().map(|tally| tally.response.mean_us().ln()).sum();
        (logs / queries.len() as f64).exp()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::tpcc::nurand::Constants;
    use wire::prepared::Wire;

    fn workload(transactional: u64, analysts: u64) -> ChBench {
        let tpcc = Tpcc {
            warehouses: 1,
            constants: Constants::for_run(17, 3),
            mix: Mix::default(),
            isolation: Isolation::default(),
            wire: Wire::Libpq,
            schema: Some("public".into()),
            homes: None,
            is_spread: false,
            simulate: None,
            sessions: transactional,
        };
        ChBench::new(tpcc, "public", analysts, 1)
    }

    #[test]
    fn analysts_go_through_all_queries_and_the_others_ask_none() {
        let workload = workload(3, 2);
        assert!((0..3).all(|session| (0..50).all(|sequence| workload.choose(1, 7, session, sequence) == 1)));
        for session in 3..5 {
            let completed: std::collections::BTreeSet<usize> =
                (0..22).map(|sequence| workload.choose(1, 7, session, sequence)).collect();
            assert_eq!(completed, (PROFILES..PROFILES + QUERIES).collect());
        }
        assert_ne!(
            workload.choose(0, 7, 3, 0),
            workload.choose(0, 7, 4, 0),
            "they begin with different ones"
        );
    }

    #[test]
    fn statements_of_both_parts_are_told_apart() {
        let statements = workload(3, 1).statements();
        assert!(statements[..QUERIES].iter().all(|spec| spec.name.starts_with("chbench_q")));
        assert!(statements[..QUERIES].iter().all(|spec| !spec.sql.contains('{') && spec.parameters == 0));
        assert!(statements[QUERIES..].iter().all(|spec| spec.name.starts_with("tpcc_")));
    }
}
