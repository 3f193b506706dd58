//! Ages of transaction and multixact ids, and the time to the vacuum against wraparound at the present rate.

use crate::database::draft::{Draft, each, fail, judged, note, pass, warn};
use crate::database::node::{Node, Rates};
use crate::database::rule::{Check, Judged};
use record::check::{Area, Unit, Verdict};
use record::number;
use serde_json::Value;
use watch::sql::json;
use watch::sql::session::Failed;

/// Of autovacuum_freeze_max_age: the vacuum comes soon.
const SHARE_NOTE: f64 = 0.8;
/// The forced vacuum has begun, and has not ended.
const SHARE_WARN: f64 = 1.1;
/// Vacuum cannot keep up (VAC-07).
const SHARE_FAIL: f64 = 4.0;
/// The server refuses new ids this far before 2^31 (xidStopLimit in varsup.c).
const STOP_BEFORE: f64 = 3_000_000.0;
/// From this age on, vacuum drops everything else to advance (vacuum_failsafe_age).
const FAILSAFE_AGE: f64 = 1_600_000_000.0;
/// The forced vacuum in less time than this should be planned.
const SOON_S: f64 = 86_400.0;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "state.database_age",
        area: Area::State,
        title: "age of the oldest transaction id of each database",
        limits: "80 % of autovacuum_freeze_max_age, or all of it within a day at the planned or present rate: a note; 110 %: warning; 4 times, or 1.6 \
            billion (vacuum_failsafe_age): fail",
        units: &[Unit::Transactions],
        needs: &[],
        why: "at autovacuum_freeze_max_age a vacuum of every old table is forced; shortly before 2^31 the server refuses every write",
        judge: databases,
    },
    Check {
        id: "state.table_age",
        area: Area::State,
        title: "tables that the vacuum against wraparound has not reached",
        limits: "110 % of autovacuum_freeze_max_age: warning; 4 times: fail",
        units: &[Unit::Transactions],
        needs: &[],
        why: "the oldest table decides the age of the database",
        judge: tables,
    },
    Check {
        id: "state.multixact_age",
        area: Area::State,
        title: "age of the oldest multixact id of each database",
        limits: "80 % of autovacuum_multixact_freeze_max_age: a note; 110 %: warning; 4 times, or 1.6 billion: fail",
        units: &[Unit::Transactions],
        needs: &[],
        why: "row locks of several transactions (foreign keys, SELECT FOR SHARE) use multixact ids, which wrap around like transaction ids",
        judge: multixacts,
    },
];

/// Kinds of ids.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ids {
    Transactions,
    Multixacts,
}

impl Ids {
    fn name(self) -> &'static str {
        match self {
            Ids::Transactions => "transaction",
            Ids::Multixacts => "multixact",
        }
    }

    fn rate(self, node: &Node<'_>, rates: &Rates) -> f64 {
        match self {
            Ids::Transactions => rates.xids.max(node.expected.xids_per_s.unwrap_or(0.0)),
            Ids::Multixacts => rates.mxids,
        }
    }
}

/// The verdict of an age, against the limit at which a vacuum is forced.
fn verdict(age: f64, most: f64) -> Verdict {
    match age {
        age if age >= most * SHARE_FAIL || age >= FAILSAFE_AGE => Verdict::Fail,
        age if age >= most * SHARE_WARN => Verdict::Warn,
        age if age >= most * SHARE_NOTE => Verdict::Note,
        _ => Verdict::Pass,
    }
}

fn databases(node: &mut Node<'_>) -> Judged {
    of_databases(node, Ids::Transactions, "pg_catalog.age(datfrozenxid)", "autovacuum_freeze_max_age")
}

fn multixacts(node: &mut Node<'_>) -> Judged {
    of_databases(
        node,
        Ids::Multixacts,
        "pg_catalog.mxid_age(datminmxid)",
        "autovacuum_multixact_freeze_max_age",
    )
}

fn of_databases(node: &mut Node<'_>, ids: Ids, age: &str, setting: &str) -> Result<Vec<Draft>, Failed> {
    let most = node.setting(setting)?.number().unwrap_or(200_000_000.0);
    let rates = node.rates()?;
    let rate = ids.rate(node, &rates);
    let found = node.list(
        "",
        &format!("select pg_catalog.quote_ident(datname) as database, {age} age, datname = pg_catalog.current_database() is_here from \
            pg_catalog.pg_database"),
        "age desc, 1",
    )?;
    let left = |age: f64| if rate > 0.0 { (most - age).max(0.0) / rate } else { f64::INFINITY };
    let oldest = found.rows.first().map_or(0.0, |row| json::number(row, "age").unwrap_or(0.0));
    let is_remarkable = |row: &&Value| {
        let age = json::number(row, "age").unwrap_or(0.0);
        verdict(age, most) != Verdict::Pass || left(age) < SOON_S
    };
    let bad: Vec<Value> = found.rows.iter().filter(is_remarkable).cloned().collect();
    let draft = |row: &Value| {
        let database = json::text(row, "database");
        let age = json::number(row, "age").unwrap_or(0.0);
        let claim = format!(
            "{database}: the oldest {} id is {} old, {}",
            ids.name(),
            number::short(age),
            outlook(age, most, rate, rates.over_s)
        );
        let draft = match verdict(age, most) {
            Verdict::Pass => note(&*database, claim),
            verdict => judged(verdict, &*database, claim),
        };
        draft
            .figure(age, Unit::Transactions)
            .at_most(most)
            .advice(format!("freeze its oldest tables at a time of your choice, in database {database}; look for what holds the horizon first \
                (state.old_transactions, state.prepared_transactions, state.slots)"))
            .run("VACUUM (FREEZE);")
    };
    Ok(each(&bad, bad.len() as u64, draft, || {
        pass(format!(
            "the oldest {} id is {} old, {}",
            ids.name(),
            number::short(oldest),
            outlook(oldest, most, rate, rates.over_s)
        ))
        .figure(oldest, Unit::Transactions)
        .at_most(most)
    }))
}

/// When the vacuum is forced, and when the server stops, at this rate.
fn outlook(age: f64, most: f64, rate: f64, over_s: f64) -> String {
    let forced = format!("a vacuum is forced at {}", number::short(most));
    if rate <= 0.0 {
        return format!("{forced}; no id was used in {}", number::duration(over_s));
    }
    let until = |limit: f64| number::duration((limit - age).max(0.0) / rate);
    let vacuum = if age >= most { "now".to_string() } else { format!("in {}", until(most)) };
    let stop = until(2f64.powi(31) - STOP_BEFORE);
    format!(
        "{forced}, {vacuum} at {} ids/s (with 32-bit ids the server stops writing in {stop})",
        number::short(rate)
    )
}

fn tables(node: &mut Node<'_>) -> Judged {
    let most = node.setting("autovacuum_freeze_max_age")?.number().unwrap_or(200_000_000.0);
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, c.relpages::bigint & 4294967295 pages, pg_catalog.age(c.relfrozenxid) \
                age, c.relpersistence = 't' as temporary, n.nspname !~ '^pg_' is_user
             from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where c.relkind in ('r', 'm', 't') and c.relfrozenxid <> '0' and pg_catalog.age(c.relfrozenxid) > {}",
            (most * SHARE_WARN).floor()
        ),
        "is_user desc, age desc, pages desc, relation",
    )?;
    let block_bytes = node.block_bytes();
    let draft = |row: &Value| {
        let relation = json::text(row, "relation");
        let age = json::number(row, "age").unwrap_or(0.0);
        let bytes = json::number(row, "pages").unwrap_or(0.0) * block_bytes;
        let claim = format!(
            "the oldest row of {relation} ({}) is {} transactions old, a vacuum was forced at {}",
            number::bytes(bytes),
            number::short(age),
            number::short(most)
        );
        let draft = if verdict(age, most) == Verdict::Fail {
            fail(&*relation, claim)
        } else {
            warn(&*relation, claim)
        };
        let draft = draft.figure(age, Unit::Transactions).at_most(most * SHARE_WARN);
        if json::flag(row, "temporary") == Some(true) {
            draft.advice("a temporary table is vacuumed only by its own session: end that session")
        } else {
            draft
                .advice("freeze it now; look for what holds the horizon first (state.*)")
                .run(format!("VACUUM (FREEZE) {relation};"))
        }
    };
    Ok(each(&found.rows, found.total, draft, || pass("no table of this database is past the forced vacuum")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_setting_and_the_rate_gives_the_time() {
        let most = 200e6;
        assert_eq!(verdict(100e6, most), Verdict::Pass);
        assert_eq!(verdict(170e6, most), Verdict::Note);
        assert_eq!(verdict(201e6, most), Verdict::Note);
        assert_eq!(verdict(230e6, most), Verdict::Warn);
        assert_eq!(verdict(900e6, most), Verdict::Fail);
        assert_eq!(verdict(1.7e9, 2e9), Verdict::Fail);
        assert!(
            outlook(100e6, most, 1000.0, 1.0).contains("in 1 d 3 h at 1,000 ids/s"),
            "{}",
            outlook(100e6, most, 1000.0, 1.0)
        );
        assert!(outlook(1.0, most, 0.0, 1.0).contains("no id was used in 1.0 s"));
    }
}
