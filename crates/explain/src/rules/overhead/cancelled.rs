//! TXN-08: statements that statement_timeout cancels.

use super::super::costly::{busy, plain};
use crate::case::Case;
use crate::case::engine::reset_command;
use crate::rule::{Answer, Claim};
use crate::units;
use record::finding::{Level, Severity};

/// Transactions rolled back a second.
const CANCELLED_PER_S_MIN: f64 = 1.0;
/// Likewise, of all.
const CANCELLED_SHARE_MIN: f64 = 0.1;
/// Statements that are cancelled, however long each of them takes.
const CANCELLED_MIN: f64 = 2.0;
/// As the server's log has it.
const CANCELLED: &str = "canceling statement due to statement timeout";
/// Characters of a statement.
const STATEMENT_CHARS: usize = 200;
/// Of the session time, that of statements which are cancelled.
const WASTED_SHARE_MIN: f64 = 0.2;

/// A limit of the time of a statement.
struct Timeout<'a> {
    /// The role or database that sets it; `None`: it is the server's.
    owner: Option<&'a str>,
    value: &'a str,
    ms: f64,
}

/// The shortest statement_timeout of the server, or of a role or database at work.
fn timeout<'a>(case: &'a Case, node: &'a str) -> Option<Timeout<'a>> {
    const NAME: &str = "statement_timeout";
    let own = case.own_settings(node, NAME).filter(|(owner, _)| case.is_at_work(node, owner, ""));
    let own = own.map(|(owner, value)| (Some(owner), value));
    let all = case.setting(node, NAME).map(|value| (None, value));
    let known = own
        .chain(all)
        .filter_map(|(owner, value)| Some(Timeout { owner, value, ms: units::setting(value)? }));
    known.filter(|timeout| timeout.ms > 0.0).min_by(|left, right| left.ms.total_cmp(&right.ms))
}

impl Timeout<'_> {
    fn words(&self) -> String {
        format!(" ({}{})", self.value, self.owner.map_or(String::new(), |owner| format!(" for {owner}")))
    }

    /// What takes it away, if it is not the server's.
    fn command(&self) -> Option<String> {
        let command = reset_command(self.owner?, "statement_timeout");
        Some(format!("{command}, or SET a limit that these statements keep"))
    }
}

/// What statement_timeout has cancelled on a node, by its log.
struct Cancelled<'a> {
    count: f64,
    per_s: f64,
    seconds: f64,
    /// One of the statements.
    statement: Option<&'a str>,
}

impl Cancelled<'_> {
    fn of<'a>(case: &'a Case, node: &str, seconds: f64) -> Cancelled<'a> {
        let is_its = |event: &&record::event::Event| {
            event.message.contains(CANCELLED) && [node, ""].contains(&Case::word_of(event, "node"))
        };
        let all = || case.events_of(record::event::SERVER_LOG).filter(is_its);
        let count: f64 = all().map(record::event::Event::times).sum();
        let mut statements = all().map(|event| Case::word_of(event, "statement"));
        Cancelled {
            count,
            per_s: count / seconds,
            seconds,
            statement: statements.find(|text| !text.is_empty()),
        }
    }

    fn words(&self) -> String {
        match self.per_s >= 1.0 {
            true => format!("{} statements a second are", units::short(self.per_s)),
            false => {
                format!("{} statements in {} s are", units::short(self.count), units::short(self.seconds))
            }
        }
    }
}

pub(super) fn judge(case: &Case) -> Answer {
    const LIMITS: &str = "SELECT coalesce(r.rolname, '(all roles)') AS role, s.setconfig FROM pg_db_role_setting s LEFT JOIN pg_roles r ON \
        r.oid = s.setrole WHERE s.setconfig::text LIKE '%statement_timeout%';";
    const RUNNING: &str = "SELECT usename, now() - query_start AS since, left(query, 200) AS query FROM pg_stat_activity WHERE state = 'active' ORDER BY 2 \
        DESC;";
    let mut claims = vec![];
    for time in busy(case) {
        let Some(server) = case.one("server", &time.node) else { continue };
        let rate = |field: &str| server.rate(field).unwrap_or(0.0);
        let (lost, all) = (rate("xact_rollback"), rate("xact_rollback") + rate("xact_commit"));
        let seconds = (server.ticks.window().length_us() as f64 / 1e6).max(1.0);
        let logged = Cancelled::of(case, &time.node, seconds);
        let limit = timeout(case, &time.node);
        // Each ran for as long as the limit before it was cancelled.
        let wasted =
            limit.as_ref().map_or(0.0, |limit| (logged.per_s * limit.ms / 1e3 / time.active).min(1.0));
        let share = lost / all.max(f64::MIN_POSITIVE);
        let is_much = lost >= CANCELLED_PER_S_MIN && share >= CANCELLED_SHARE_MIN
            || logged.count >= CANCELLED_MIN && wasted >= WASTED_SHARE_MIN;
        if logged.count < 1.0 || !is_much {
            continue;
        }
        let counted: f64 = time.statements.iter().map(|one| one.share).sum();
        let mut commands: Vec<String> = limit.as_ref().and_then(Timeout::command).into_iter().collect();
        commands.extend([LIMITS, RUNNING].map(str::to_string));
        claims.push(
            Claim::new(
                Severity::High,
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} cancelled by statement_timeout{}: what they did is lost{}",
                    time.node,
                    logged.words(),
                    limit.as_ref().map_or(String::new(), Timeout::words),
                    if wasted >= WASTED_SHARE_MIN {
                        format!(", {} of the session time", units::percent(wasted))
                    } else {
                        String::new()
                    }
                ),
            )
            .on_node(&time.node)
            .during([server.ticks.window()])
            .number("rollbacks_per_s", lost)
            .number("rolled_back_share", share)
            .with((wasted > 0.0).then_some(wasted), |claim, wasted| claim.number("share", wasted))
            .because(format!("the server's log: {CANCELLED}"))
            .with(logged.statement, |claim, text| {
                claim.because(format!("one of them: {}", plain(text, STATEMENT_CHARS)))
            })
            .because(format!(
                "{} of the transactions are rolled back; statements that ended take {} of the session time, and pg_stat_statements does not count \
                    those that were cancelled",
                units::percent(share),
                units::percent(counted.min(1.0))
            ))
            .not("conflicts between transactions: the log names the timeout")
            .remedy(
                "make the statement faster, or give it the time that it needs in its own session; a client that repeats it at once adds to the load. \
                    The commands show the limits, and the statements that run",
                &commands.iter().map(String::as_str).collect::<Vec<_>>(),
            ),
        );
    }
    Answer::of(claims, || "statements that a timeout cancelled, by the server's log".to_string())
}
