//! `run -b tpcb`: TPC-B's transaction in one round trip, and the balances that must agree afterwards.
//!
//! It is the transaction of pgbench's `tpcb-like`, whose seven statements are seven round trips; here they are sent together, so the figures
//! of the two are not comparable: this one shows what the server can do, pgbench's shows what an application gets that waits for each reply.

use postgres::Client;
use record::benchmark::{Benchmark as Found, Check, Count, Figure};
use record::summary::Summary;
use run::audit::{Audits, Sums};
use run::drive::Account;
use run::engine::Nanos;
use run::random::Random;
use run::statement::StatementSpec;
use run::verdict::Opinion;
use run::workload::{Item, TransactionError, Try, Workload};

use super::schema::{ACCOUNTS, ACCOUNTS_PER_BRANCH, BRANCHES, HISTORY, TELLERS, TELLERS_PER_BRANCH};
use crate::driving::{
    About, Builtin, Family, Given, Prepared, Refusal, ServerAudit, Tables, failed, weight_of,
};
use crate::request::{ask, expect_commit, expect_rows};

/// The name of the workload and of its dataset.
const NAME: &str = "tpcb";
/// A change of a balance is at most so large, either way.
const DELTA_MAX: i64 = 5_000;
/// Accounts are summed up to this scale: reading more of them twice would take longer than many a run.
const SCALE_SUMMED_MAX: u64 = 200;
/// What makes the tables: pgbench's have the same names.
pub(crate) const FILLED_BY: &str = "load tpcb, or pgbench -i";
/// The same, for pgbench's own scripts.
pub(crate) const FILL_SCRIPTS: &str = "fill pgbench's tables first: pgfathom load tpcb -s 10, or pgbench -i";
/// What to type instead of the flags of pgbench that make the tables.
pub(crate) const INSTEAD_OF_INIT: &[(&[&str], &str)] = &[
    (&["-i", "--initialize"], "pgfathom load tpcb -s SCALE DBNAME makes the same tables as pgbench -i"),
    (&["-I", "--init-steps"], MADE_BY_PGBENCH),
    (&["-F", "--fillfactor"], "pgfathom load tpcb --fillfactor PERCENT sets that of pgbench's tables"),
    (&["--foreign-keys"], MADE_BY_PGBENCH),
    (&["--index-tablespace"], MADE_BY_PGBENCH),
    (&["--partition-method"], MADE_BY_PGBENCH),
    (&["--partitions"], "pgfathom load tpcb --partitions N makes partitions of pgbench's tables"),
    (&["--tablespace"], "pgfathom load tpcb --tablespaces NAME places pgbench's tables"),
    (&["--unlogged-tables"], "pgfathom load tpcb --unlogged makes such tables"),
];
const MADE_BY_PGBENCH: &str =
    "it belongs to the creation of pgbench's tables: use pgbench -i with the same flag, then run";
/// What fills the tables.
const FILL: &str = "fill it first: pgfathom load tpcb -s 10";

/// Places of the statements.
mod statement {
    pub(super) const BEGIN: usize = 0;
    pub(super) const ACCOUNT: usize = 1;
    pub(super) const BALANCE: usize = 2;
    pub(super) const TELLER: usize = 3;
    pub(super) const BRANCH: usize = 4;
    pub(super) const HISTORY: usize = 5;
    pub(super) const COMMIT: usize = 6;
}

/// The workload.
#[derive(Clone, Debug)]
pub struct Tpcb {
    schema: String,
    scale: u64,
    weight: u64,
}

/// What a transaction draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Draw {
    account: u64,
    teller: u64,
    branch: u64,
    delta: i64,
}

impl Draw {
    /// As pgbench draws: account, branch and teller independently of each other.
    fn new(scale: u64, random: &mut Random) -> Draw {
        let mut one_of = |count: u64| 1 + random.below(count);
        let account = one_of(ACCOUNTS_PER_BRANCH * scale);
        let branch = one_of(scale);
        let teller = one_of(TELLERS_PER_BRANCH * scale);
        let delta = one_of(2 * DELTA_MAX as u64 + 1) as i64 - 1 - DELTA_MAX;
        Draw { account, teller, branch, delta }
    }
}

/// What a session remembers: the change of the transaction under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct TpcbSession {
    delta: i64,
}

impl Workload for Tpcb {
    type Session = TpcbSession;

    fn items(&self) -> Vec<Item> {
        vec![Item { name: NAME.into(), weight: 100 * self.weight }]
    }

    fn statements(&self) -> Vec<StatementSpec> {
        let table = |name: &str| load::ledger::qualified(&self.schema, name);
        let change = |name: &str, column: &str, key: &str| {
            format!("UPDATE {} SET {column} = {column} + $1 WHERE {key} = $2", table(name))
        };
        let texts = [
            ("begin", "BEGIN".to_owned()),
            ("account", change(ACCOUNTS, "abalance", "aid")),
            ("balance", format!("SELECT abalance FROM {} WHERE aid = $1", table(ACCOUNTS))),
            ("teller", change(TELLERS, "tbalance", "tid")),
            ("branch", change(BRANCHES, "bbalance", "bid")),
            (
                "history",
                format!(
                    "INSERT INTO {} (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
                    table(HISTORY)
                ),
            ),
            ("commit", "COMMIT".to_owned()),
        ];
        let spec = |(name, sql): (&str, String)| StatementSpec {
            fill: Some(FILL),
            ..StatementSpec::ours(format!("{NAME}_{name}"), sql)
        };
        texts.map(spec).into()
    }

    fn session(&self, _: u64) -> Result<TpcbSession, String> {
        Ok(TpcbSession::default())
    }

    async fn transaction(
        &self,
        _: usize,
        state: &mut TpcbSession,
        attempt: Try<'_>,
    ) -> Result<(), TransactionError> {
        let Try { session, templates, random, .. } = attempt;
        let Draw { account, teller, branch, delta } = Draw::new(self.scale, random);
        state.delta = delta;
        let reply = ask(session, templates, |request| {
            let change = |request: &mut crate::request::Request<'_>, statement: usize, key: u64| {
                request.execute(statement, |execution| {
                    execution.integer(delta);
                    execution.integer(key as i64);
                });
            };
            request.command(statement::BEGIN);
            change(request, statement::ACCOUNT, account);
            request.execute(statement::BALANCE, |execution| execution.integer(account as i64));
            change(request, statement::TELLER, teller);
            change(request, statement::BRANCH, branch);
            request.execute(statement::HISTORY, |execution| {
                for key in [teller, branch, account] {
                    execution.integer(key as i64);
                }
                execution.integer(delta);
            });
            request.command(statement::COMMIT);
        })
        .await?;
        expect_commit(session, reply)?;
        expect_rows(session, reply, &[None, Some(1), Some(1), Some(1), Some(1), Some(1)], "TPC-B's tables")
    }

    #[inline]
    fn audit(&self, _: usize, state: &TpcbSession, _: Option<Nanos>, audits: &mut Audits) {
        let sums = audits.entry::<Changes>();
        sums.committed += 1;
        sums.delta += state.delta;
    }

    fn lost(&self, _: usize, _: &TpcbSession, audits: &mut Audits) {
        audits.entry::<Changes>().unknown += 1;
    }
}

/// What the client saw commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Changes {
    committed: u64,
    /// Sum of their changes.
    delta: i64,
    /// Transactions whose connection was lost.
    unknown: u64,
}

impl Sums for Changes {
    fn add(&mut self, other: &Changes) {
        self.committed += other.committed;
        self.delta += other.delta;
        self.unknown += other.unknown;
    }

    fn reset(&mut self) {
        *self = Changes::default();
    }
}

const ABOUT: About = About {
    title: "TPC-B",
    filled_by: FILLED_BY,
    fill: FILL,
    builtins: &[Builtin {
        name: NAME,
        about: "TPC-B's transaction in one round trip; the balances are checked afterwards",
    }],
    flags: &[],
    heading: About::HEADING,
    examples: &[],
};

/// `-b tpcb`.
#[derive(Debug)]
pub struct TpcbFamily;

impl Family for TpcbFamily {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn tables(&self, client: &mut Client) -> Result<Tables, Refusal> {
        let schema = schema(client)?;
        Ok([ACCOUNTS, BRANCHES, TELLERS, HISTORY].map(|table| (Some(schema.clone()), table)).into())
    }

    fn prepare(
        &self,
        mix: &[(&'static str, u64)],
        _: &Given<'_>,
        client: &mut Client,
    ) -> Result<Prepared, Refusal> {
        let schema = schema(client)?;
        let sql = format!("select count(*)::int8 from {}", load::ledger::qualified(&schema, BRANCHES));
        let row = client.query_one(&sql, &[]).map_err(|error| failed("count the branches", error))?;
        let scale = row.get::<_, i64>(0) as u64;
        if scale == 0 {
            return Err(Refusal::new(format!("{BRANCHES} is empty")).with_hint(FILL));
        }
        let known = ABOUT.dataset(client, NAME)?;
        let dataset = record::model::Dataset {
            name: NAME.into(),
            format_version: known.as_ref().map_or(0, |dataset| dataset.format),
            seed: known.as_ref().map_or(0, |dataset| dataset.spec.seed),
            rows: scale * (ACCOUNTS_PER_BRANCH + TELLERS_PER_BRANCH + 1),
            parameters: [("scale".to_owned(), scale.into()), ("schema".to_owned(), schema.clone().into())]
                .into_iter()
                .collect(),
        };
        let weight = weight_of(mix);
        let audit = BalanceAudit { schema: schema.clone(), scale, before: None, after: None };
        let prepared = Prepared::new(Tpcb { schema, scale, weight }, dataset, audit);
        Ok(match known {
            Some(known) => prepared.listed_in(known, NAME),
            None => prepared,
        })
    }
}

fn schema(client: &mut Client) -> Result<String, Refusal> {
    ABOUT
        .schema(client, NAME, BRANCHES)?
        .ok_or_else(|| Refusal::new("this database holds none of TPC-B's tables").with_hint(FILL))
}

/// The sums that the server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Balances {
    /// `None` where they are too many to be summed.
    accounts: Option<i64>,
    tellers: i64,
    branches: i64,
    history: i64,
    transactions: i64,
}

/// Compares the balances before and after.
#[derive(Debug)]
struct BalanceAudit {
    schema: String,
    scale: u64,
    before: Option<Balances>,
    after: Option<Balances>,
}

impl BalanceAudit {
    fn ask(&self, client: &mut Client) -> Result<Balances, Refusal> {
        let table = |name: &str| load::ledger::qualified(&self.schema, name);
        let sum = |column: &str, name: &str| {
            format!("(select coalesce(sum({column}), 0)::int8 from {})", table(name))
        };
        let accounts = match self.scale <= SCALE_SUMMED_MAX {
            true => sum("abalance", ACCOUNTS),
            false => "null::int8".to_owned(),
        };
        // One statement has one snapshot: what commits meanwhile is in all of the sums or in none.
        let sql = format!(
            "select {accounts}, {}, {}, {}, (select count(*)::int8 from {})",
            sum("tbalance", TELLERS),
            sum("bbalance", BRANCHES),
            sum("delta", HISTORY),
            table(HISTORY)
        );
        let row = client.query_one(&sql, &[]).map_err(|error| failed("sum the balances", error))?;
        Ok(Balances {
            accounts: row.get(0),
            tellers: row.get(1),
            branches: row.get(2),
            history: row.get(3),
            transactions: row.get(4),
        })
    }
}

/// What the balances of a run come to.
fn compare(before: Balances, after: Balances, seen: Changes) -> Vec<Check> {
    let history = after.history - before.history;
    let changes = [
        ("accounts", after.accounts.zip(before.accounts).map(|(after, before)| after - before)),
        ("tellers", Some(after.tellers - before.tellers)),
        ("branches", Some(after.branches - before.branches)),
    ];
    let mut checks: Vec<Check> = changes
        .into_iter()
        .map(|(name, change)| Check {
            name: format!("balances of {name} = history"),
            holds: change.map(|change| change == history),
            detail: match change {
                Some(change) => format!("changed by {change}, the history by {history}"),
                None => format!("not summed above scale {SCALE_SUMMED_MAX}"),
            },
            count: None,
        })
        .collect();
    let added = after.transactions - before.transactions;
    let count = Count { client: seen.committed, unknown: seen.unknown, server: added };
    let committed = seen.committed;
    checks.push(Check {
        name: "committed transactions are in the history".into(),
        holds: Some(count.agrees()),
        detail: match seen.unknown {
            0 => format!("the client saw {committed} commit, the server has {added} more"),
            unknown => {
                format!("the client saw {committed} commit and does not know the outcome of {unknown}, the server has {added} more")
            }
        },
        count: Some(count),
    });
    if seen.unknown == 0 {
        checks.push(Check {
            name: "changes that the client made = history".into(),
            holds: Some(seen.delta == history),
            detail: format!("{} and {history}", seen.delta),
            count: None,
        });
    }
    checks
}

impl ServerAudit for BalanceAudit {
    fn proof(&self) -> Option<&'static str> {
        Some("tpcb")
    }

    fn before(&mut self, client: &mut Client) -> Result<(), Refusal> {
        self.before = Some(self.ask(client)?);
        Ok(())
    }

    fn after(&mut self, client: &mut Client) -> Result<(), Refusal> {
        self.after = Some(self.ask(client)?);
        Ok(())
    }

    fn judge(&self, account: &Account, _: usize, summary: &mut Summary, opinion: &mut Opinion) {
        let mut seen = account.posted.measured.audits.of::<Changes>();
        seen.add(&account.posted.warmup.audits.of());
        let checks =
            self.before.zip(self.after).map_or_else(Vec::new, |(before, after)| compare(before, after, seen));
        for check in checks.iter().filter(|check| check.holds == Some(false)) {
            opinion.invalid.push(format!(
                "TPC-B: {} does not hold: {}; did another client write to these tables?",
                check.name, check.detail
            ));
        }
        let figures = vec![Figure::new("scale", self.scale as f64, "branches")];
        summary.benchmarks.push(Found { name: "TPC-B".into(), figures, checks, ..Found::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_within_the_scale_and_reach_its_ends() {
        let draws: Vec<Draw> =
            (0..60_000).map(|number| Draw::new(2, &mut Random::for_transaction(1, 1, number))).collect();
        let all = |of: fn(&Draw) -> i64| {
            let values = || draws.iter().map(of);
            (values().min(), values().max())
        };
        assert_eq!(all(|draw| draw.branch as i64), (Some(1), Some(2)));
        assert_eq!(all(|draw| draw.teller as i64), (Some(1), Some(20)));
        assert_eq!(all(|draw| draw.delta), (Some(-5_000), Some(5_000)));
        let (least, most) = all(|draw| draw.account as i64);
        assert!(least < Some(20) && most > Some(199_980) && most <= Some(200_000), "{least:?} {most:?}");
    }

    #[test]
    fn a_lost_or_a_foreign_transaction_breaks_the_books() {
        let before = Balances { accounts: Some(5), tellers: 5, branches: 5, history: 5, transactions: 2 };
        let after = Balances { accounts: Some(8), tellers: 8, branches: 8, history: 8, transactions: 4 };
        let broken = |after: Balances, seen: Changes| {
            compare(before, after, seen).iter().filter(|check| check.holds == Some(false)).count()
        };
        let seen = Changes { committed: 2, delta: 3, unknown: 0 };
        assert_eq!(broken(after, seen), 0);
        assert_eq!(broken(Balances { transactions: 3, ..after }, seen), 1, "a commit was lost");
        assert_eq!(broken(Balances { branches: 7, ..after }, seen), 1);
        assert_eq!(broken(Balances { accounts: None, ..after }, seen), 0, "not summed is not broken");
        assert_eq!(broken(Balances { history: 9, ..after }, seen), 4);
        let unsure = Changes { committed: 1, delta: 1, unknown: 1 };
        assert_eq!(broken(after, unsure), 0, "the unknown one may have committed");
        assert_eq!(broken(Balances { transactions: 5, ..after }, unsure), 1);
    }
}
