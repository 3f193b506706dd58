//! REP-18: commits that wait until a standby has replayed them, as far as the primary shows it: the standby itself need not be watched.

use super::synchronous::{ON, SYNC_SHARE, Still, is_sync, setting, shortage, stood_still};
use crate::case::{Case, Thing};
use crate::rule::Need::Looked;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use crate::waits::Who;
use record::finding::{Level, Severity};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "REP-18",
    title: "commits wait for the replay on a standby",
    needs: &[Looked("wait"), Looked("replication")],
    limits: "20 % of the active sessions in IPC:SyncRep with remote_apply, while standbys that commits must wait for have flushed the WAL and not replayed it: \
        four fifths of the bytes that are behind, and of a delay of 20 ms or more, or no replay at all in three looks in a row in which commits wait (ours)",
    judge: replayed_late,
    links: &["https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-CONFLICT"],
}];

/// The level of `synchronous_commit` at which commits wait for replay.
const MODE: &str = "remote_apply";
/// The limit of a high finding.
const SHARE_HIGH: f64 = 0.5;
/// Of the bytes that are not replayed, those that are flushed; and of the delay, that of replay.
const REPLAY_SHARE: f64 = 0.8;
/// A replay that takes less is part of every commit with `remote_apply`.
const DELAY_US: f64 = 20_000.0;

/// The setting of a server, role or database that makes commits wait for replay; `None` where none is known.
fn mode(case: &Case, node: &str) -> Option<String> {
    const NAME: &str = "synchronous_commit";
    let is_apply = |value: &str| value == MODE;
    let of_server = case.setting(node, NAME).filter(|value| is_apply(value)).map(|_| String::new());
    let own = || {
        let mut all = case.own_settings(node, NAME);
        let (owner, _) = all.find(|(owner, value)| is_apply(value) && case.is_at_work(node, owner, ""))?;
        Some(format!(" for all of {owner}"))
    };
    of_server.or_else(own)
}

/// How late the replay of a standby is.
struct Late<'a> {
    standby: Thing<'a>,
    /// Flushed there and not replayed.
    bytes: f64,
    /// The delay that is replay's own.
    delay_us: f64,
    /// Looks in which it stood still with something to replay.
    still: Still,
}

/// `None` if the network, the disk there, or nothing is late.
fn late<'a>(case: &Case, standby: Thing<'a>) -> Option<Late<'a>> {
    let mean = |field: &str| standby.lines.mean(field);
    let (flush_us, replay_us) = (mean("flush_lag_us").unwrap_or(0.0), mean("replay_lag_us").unwrap_or(0.0));
    let delay_us = replay_us - flush_us;
    // While nothing is replayed, the delay stays that of the last commit before; and the looks before and after are of another state.
    let still = stood_still(case, &standby, MODE);
    let (flushed, replayed) = match still.is_long() {
        true => (still.unflushed, still.bytes),
        false => (mean("flush_lag_bytes")?, mean("replay_lag_bytes")?),
    };
    let bytes = replayed - flushed;
    let is_slow = delay_us >= DELAY_US && delay_us >= replay_us * REPLAY_SHARE;
    let is_late = bytes > 0.0 && bytes >= replayed * REPLAY_SHARE && (is_slow || still.is_long());
    is_late.then_some(Late { standby, bytes, delay_us, still })
}

/// The standbys whose replay commits of a node wait for; empty if enough others have replayed.
fn waited_for<'a>(case: &'a Case, node: &'a str) -> Vec<Late<'a>> {
    let of_state = |state: &str| -> Vec<Thing<'a>> {
        case.at("replication", node).filter(|one| one.lines.word("sync_state") == state).collect()
    };
    // All of those that are called sync must confirm; of a quorum so many as the setting wants.
    let mut all: Vec<Late> = of_state("sync").into_iter().filter_map(|one| late(case, one)).collect();
    let quorum = of_state("quorum");
    let count = quorum.len();
    let of_quorum: Vec<Late> = quorum.into_iter().filter_map(|one| late(case, one)).collect();
    let least = setting(case, node).map_or(1, |wanted| wanted.count);
    if count - of_quorum.len() < least {
        all.extend(of_quorum);
    }
    all
}

fn replayed_late(case: &Case) -> Answer {
    let mut claims = vec![];
    for (node, waits) in case.waiting_nodes() {
        let share = waits.share(Who::Client, is_sync).filter(|share| *share >= SYNC_SHARE);
        let (Some(share), Some(whose)) = (share, mode(case, node)) else { continue };
        if shortage(case, node).is_some() {
            continue;
        }
        let all = waited_for(case, node);
        let Some(worst) = all.iter().max_by(|left, right| left.bytes.total_cmp(&right.bytes)) else {
            continue;
        };
        let severity = if share >= SHARE_HIGH { Severity::High } else { Severity::Medium };
        let claim = Claim::new(
            severity,
            Level::DiscriminatingCounter,
            format!(
                "{node}: {} of the active sessions wait until standby {} has replayed their commit (synchronous_commit = remote_apply{whose}): it has the WAL \
                 on its disk, and its replay {}",
                units::percent(share),
                worst.standby.name,
                how_late(worst)
            ),
        )
        .on_node(node)
        .during(waits.windows(Who::Client, is_sync))
        .number("sync_share", share)
        .number("replay_behind_bytes", worst.bytes)
        .number("replay_delay_us", worst.delay_us)
        .number("looks_still", worst.still.looks as f64);
        claims.push(described(case, node, worst, claim));
    }
    Answer::of(claims, || "what synchronous standbys have flushed and not replayed".to_string())
}

/// How late replay is, as the end of a sentence.
fn how_late(late: &Late) -> String {
    if late.still.is_long() {
        let since = if late.delay_us >= DELAY_US {
            format!(", {} late", units::us(late.delay_us))
        } else {
            String::new()
        };
        return format!(
            "stands still in {} of {} looks, for {} at a stretch{since}",
            late.still.looks,
            late.still.of,
            units::us(late.still.longest_us as f64)
        );
    }
    format!("is {} late", units::us(late.delay_us))
}

/// What is flushed and not replayed, and how late that is where it moves.
fn behind(node: &str, late: &Late) -> String {
    let mean = |field: &str| late.standby.lines.mean(field).unwrap_or(0.0);
    let (unflushed, lags) = match late.still.is_long() {
        true => (
            late.still.unflushed,
            "while it stands still; its replay_lag is that of the last commit before".to_string(),
        ),
        false => (
            mean("flush_lag_bytes"),
            format!(
                "write_lag {}, flush_lag {}, replay_lag {}",
                units::us(mean("write_lag_us")),
                units::us(mean("flush_lag_us")),
                units::us(mean("replay_lag_us"))
            ),
        ),
    };
    format!(
        "pg_stat_replication of {node}: on average {} are flushed there and not replayed, and {} not flushed; {lags}",
        units::bytes(late.bytes),
        units::bytes(unflushed)
    )
}

/// The evidence, what the standby reports, and what to type there.
fn described(case: &Case, node: &str, late: &Late, claim: Claim) -> Claim {
    let is_watched =
        case.one("server", late.standby.name).is_some_and(|server| server.flag("in_recovery") == Some(true));
    let delay = case
        .setting(late.standby.name, "recovery_min_apply_delay")
        .filter(|delay| is_watched && *delay != "0");
    let oldest = late.standby.lines.max("feedback_xids").unwrap_or(0.0);
    let feedback = late.standby.lines.flag("feedback").map(|reports| {
        if reports {
            format!(
                "the standby reports its oldest snapshot, {} transactions old (hot_standby_feedback is on): VACUUM keeps the rows that it needs, so what stops \
                 replay is more likely the lock of a table (ALTER, TRUNCATE, DROP, a VACUUM that truncates)",
                units::count(oldest)
            )
        } else {
            "the standby reports no snapshot (hot_standby_feedback is off): what a VACUUM here removes is in the way of every older \
             transaction there"
                .to_string()
        }
    });
    let who = "SELECT pid, state, now() - xact_start AS age, wait_event, left(query, 60) AS query FROM pg_stat_activity WHERE backend_type = 'startup' OR \
         xact_start < now() - interval '1 s' ORDER BY backend_type = 'startup' DESC, xact_start LIMIT 6; -- on the standby: what the startup process waits \
         for, and the oldest transactions";
    let resume = "SELECT pg_wal_replay_resume(); -- on the standby, if its replay is paused";
    let settings = "SELECT pg_is_wal_replay_paused(), name, setting FROM pg_settings WHERE name IN ('max_standby_streaming_delay', 'recovery_min_apply_delay', \
         'hot_standby_feedback', 'recovery_prefetch'); -- on the standby";
    let cut = "ALTER SYSTEM SET max_standby_streaming_delay = '5s'; SELECT pg_reload_conf(); -- on the standby, for waits \
         that begin from now on: one that has begun goes on";
    let end = "SELECT pg_terminate_backend(pid), usename, left(query, 60) AS query FROM (SELECT * FROM pg_stat_activity WHERE backend_type = 'client backend' \
        AND \
         pid <> pg_backend_pid() AND xact_start IS NOT NULL ORDER BY xact_start LIMIT 1) oldest; -- on the standby: ends the oldest transaction, which \
         replay most likely waits for";
    claim
        .because(behind(node, late))
        .with(feedback, Claim::because)
        .with(delay, |claim, delay| claim.because(format!("recovery_min_apply_delay is {delay} there: every commit waits for it by design")))
        .not("the network and the disk of the standby: the WAL is written and flushed there in time")
        .with((!is_watched).then_some(()), |claim, ()| {
            claim.lacking("what its process that replays waits for: watch the standby, too (name both servers: -h HOST1,HOST2 -p PORT1,PORT2)")
        })
        .remedy(
            "look on the standby at what its replay waits for: a transaction there (a report, with max_standby_streaming_delay = -1 or long), a pause, \
             recovery_min_apply_delay, or its CPU and disk; end the report, let replay cancel such ones sooner, and give reports a standby that is \
             not synchronous",
            &[who, end, settings, resume, cut, ON],
        )
}
