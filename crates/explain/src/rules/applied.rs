//! REP-16: a subscription whose worker looks for each row that it changes by a scan of the table. REP-20: one whose worker waits for a session.

pub(crate) mod held;

use super::costly::busy;
use super::paste::columns_of_a_key;
use crate::case::{Case, Thing};
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use crate::waits::Who;
use record::finding::{Level, Severity};
use record::statement;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "REP-20",
        title: "the worker of a subscription waits for a lock of a session",
        needs: &[Looked("subscription"), Looked("block")],
        limits: "a worker that applies changes waits for a lock which a session of its own node holds: in 30 % of the looks, 3 or more, or for 5 s; high in \
            half of the looks, or from 10 s on (ours)",
        judge: held::judge,
        links: &["https://www.postgresql.org/docs/current/logical-replication-architecture.html"],
    },
    Rule {
        id: "REP-16",
        title: "the worker of a subscription scans a table for each change",
        needs: &[Looked("subscription"), Field("table", "seq_scans"), Field("table", "primary_key")],
        limits: "a subscription is at work, and a table without a primary key is scanned for as many changes as it gets, 10 times a second and 1,000 \
            rows each, by \
        no statement that is known; where it gets none, only if a background process is on a CPU in half of the looks (ours)",
        judge,
        links: &[
            "https://www.postgresql.org/docs/current/logical-replication-publication.html#LOGICAL-REPLICATION-PUBLICATION-REPLICA-IDENTITY",
        ],
    },
];

/// Scans of the table a second.
const SCANS_PER_S_MIN: f64 = 10.0;
/// Rows of a scan.
const ROWS_MIN: f64 = 1_000.0;
/// Scans for each change.
const SCANS_PER_CHANGE_MIN: f64 = 0.5;
/// Looks in which background processes were on a CPU, from which on the worker is the limit.
const BUSY_LOOKS_SHARE: f64 = 0.5;

/// A table that is scanned for each of its changes: changes and scans a second, and rows of a scan.
fn scanned(case: &Case, table: &Thing<'_>) -> Option<(f64, f64, f64)> {
    let rate = |field: &str| table.lines.rate(field).unwrap_or(0.0);
    let changes = rate("rows_updated") + rate("rows_deleted");
    let (scans, rows) = (rate("seq_scans"), rate("seq_rows"));
    let each = rows / scans.max(f64::MIN_POSITIVE);
    let relation = table.lines.word("relation");
    let name = relation.rsplit('.').next().unwrap_or(relation).trim_matches('"');
    let is_named = busy(case).filter(|time| time.node == table.place).any(|time| {
        let frequent = |calls: Option<f64>| calls.is_some_and(|calls| calls >= scans * SCANS_PER_CHANGE_MIN);
        time.statements.iter().any(|one| {
            statement::names(&one.text).iter().any(|word| word == name) && frequent(one.calls_per_s)
        })
    });
    let fits = table.lines.flag("primary_key") == Some(false)
        && scans >= SCANS_PER_S_MIN
        && each >= ROWS_MIN
        && scans >= changes * SCANS_PER_CHANGE_MIN;
    (fits && !is_named).then_some((changes, scans, each))
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for node in case.nodes() {
        let mut subscriptions =
            case.at("subscription", node).filter(|one| one.lines.flag("running") == Some(true));
        let Some(subscription) = subscriptions.next() else { continue };
        let on_cpu =
            case.waits(node).map_or(0.0, |waits| waits.seen_in(Who::Background, |kind, _| kind == "CPU"));
        let is_limit = on_cpu >= case.looks(node, &[case.span]) * BUSY_LOOKS_SHARE;
        for table in case.at("table", node) {
            let Some((changes, scans, rows)) = scanned(case, &table) else { continue };
            // Without a change it could be anyone's scan, unless a worker computes all the time.
            if changes == 0.0 && !is_limit {
                continue;
            }
            let of_changes = match changes {
                0.0 => "and finds none of them: the changes are lost, because this table has other rows than the publisher's".to_string(),
                changes => format!("for {} changes", units::short(changes)),
            };
            let relation = table.lines.word("relation");
            claims.push(
                Claim::new(
                    if is_limit { Severity::High } else { Severity::Medium },
                    Level::DiscriminatingCounter,
                    format!(
                        "{node}: the apply worker of subscription {} looks for each row that it changes by a scan of {relation}, which has no primary \
                         key: {} scans a \
                         second of {} rows each, {of_changes}",
                        subscription.name,
                        units::short(scans),
                        units::short(rows)
                    ),
                )
                .on_node(node)
                .during([table.lines.ticks.window()])
                .number("scans_per_s", scans)
                .number("rows_per_scan", rows)
                .number("changes_per_s", changes)
                .because("the publisher sends old rows as a whole (REPLICA IDENTITY FULL) or by a key that this table has no index for")
                .with(is_limit.then_some(()), |claim, ()| {
                    claim.because("a background process was on a CPU in most looks: one worker applies all changes, so it falls behind when more come")
                })
                .with(subscription.lines.last("lag_bytes"), |claim, lag| claim.number("lag_bytes", lag))
                .not("sessions: no statement that is known names this table as often as it is scanned")
                .remedy(
                    "give the table a primary key on both sides, or an index that the worker can use (PostgreSQL 16 or later: any B-tree index on a \
                     column of each old row)",
                    &[&columns_of_a_key(relation), &format!("ALTER TABLE {relation} REPLICA IDENTITY DEFAULT; -- on the publisher, once it has a primary key")],
                ),
            );
        }
    }
    Answer::of(claims, || "scans of tables that a subscription changes".to_string())
}
