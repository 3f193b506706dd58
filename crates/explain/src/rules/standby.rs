//! REP: standbys: statements that replay cancels, replay that is paused, and replay that waits for something else than a CPU.

use crate::case::{Case, Lines, Thing};
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity, Window};
use serde_json::Value;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "REP-09",
        title: "statements on a standby are cancelled by replay",
        needs: &[Field("server", "in_recovery"), Looked("server")],
        limits: "any cancelled statement, by the counter or the server's log; high from one a second (ours)",
        judge: conflicts,
        links: &["https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-CONFLICT"],
    },
    Rule {
        id: "REP-10",
        title: "the replay of WAL is paused",
        needs: &[Field("server", "in_recovery")],
        limits: "any standby whose replay was paused by command",
        judge: paused,
        links: &["https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-RECOVERY-CONTROL"],
    },
    Rule {
        id: "REP-11",
        title: "a standby receives the WAL in time and replays it late",
        needs: &[Looked("replication")],
        limits: "64 MB flushed and not replayed, 5 s of lag, more at the end than in the middle, and the process that replays uses less than 90 % of a CPU \
            (which is REP-02) (ours)",
        judge: late,
        links: &["https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-ADMIN"],
    },
];

/// WAL that is flushed and not replayed.
const BEHIND_BYTES: f64 = 64e6;
/// Its age.
const BEHIND_S: f64 = 5.0;
/// Replay is that of REP-02 from here on.
const BUSY_SHARE: f64 = 0.9;
/// Of the time in which it is ready to run, that in which it has no CPU.
const HELD_SHARE_MIN: f64 = 0.5;

/// What the server writes for a statement that replay cancels, for servers whose counter was not sampled.
const CANCELLED: &str = "due to conflict with recovery";

fn conflicts(case: &Case) -> Answer {
    let (mut claims, mut blind) = (vec![], vec![]);
    for server in case.things("server") {
        let logged = case.events_of(event::SERVER_LOG).filter(|event| {
            event.message.contains(CANCELLED) && [server.place, ""].contains(&Case::word_of(event, "node"))
        });
        let logged: Vec<&Event> = logged.collect();
        let repeated =
            |event: &&Event| 1.0 + event.more.get("repeated").and_then(Value::as_f64).unwrap_or(0.0);
        let in_log: f64 = logged.iter().map(repeated).sum();
        let series = server.lines.series("conflicts");
        let count = series.map_or(0.0, crate::series::Series::sum).max(in_log);
        if series.is_none() && count <= 0.0 && server.lines.flag("in_recovery") == Some(true) {
            blind.push(server.place);
        }
        if count <= 0.0 {
            continue;
        }
        let per_s = count / (server.lines.ticks.window().length_us() as f64 / 1e6).max(1.0);
        let windows: Vec<Window> = match series.filter(|series| series.sum() > 0.0) {
            Some(series) => series.stretches(0, |point| point.sum > 0.0),
            None => logged.iter().map(|event| Window::new(event.t_us, event.t_us + 1_000_000)).collect(),
        };
        claims.push(
            Claim::new(
                if per_s >= 1.0 { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!("{}: replay cancelled {} of the standby", server.place, units::counted(count as usize, "statement")),
            )
            .on_node(server.place)
            .during(windows)
            .number("conflicts", count)
            .because("a statement looked at rows that the primary has removed, or held a lock that replay needed (pg_stat_database.conflicts, server's log)")
            .with(logged.first(), |claim, event| claim.because(format!("the server's log: {}", event.message)))
            .remedy(
                "let replay wait longer for statements, or let the standby report its oldest one to the primary (whose dead rows then stay as long)",
                &[
                    "SELECT * FROM pg_stat_database_conflicts; -- on the standby: which kind",
                    "ALTER SYSTEM SET max_standby_streaming_delay = '5min'; SELECT pg_reload_conf(); -- on the standby",
                    "ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf(); -- on the standby",
                ],
            ),
        );
    }
    if claims.is_empty() && !blind.is_empty() {
        return Answer::CannotTell(format!(
            "the directory lacks `conflicts` in samples of `server` ({})",
            blind.join(", ")
        ));
    }
    Answer::of(claims, || "statements cancelled by replay".to_string())
}

fn paused(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server").filter(|server| server.lines.flag("replay_paused") == Some(true)) {
        claims.push(
            Claim::new(
                Severity::Medium,
                Level::DiscriminatingCounter,
                format!("{}: the replay of WAL is paused on this standby", server.place),
            )
            .on_node(server.place)
            .during([server.lines.ticks.window()])
            .number("paused", 1.0)
            .because("pg_is_wal_replay_paused() is true: the standby falls behind, and commits with remote_apply wait for it")
            .not("a slow standby: replay was stopped by command, or by recovery_target_action")
            .remedy("go on with it, on the standby", &["SELECT pg_wal_replay_resume();"]),
        );
    }
    Answer::of(claims, || "whether replay is paused on standbys".to_string())
}

/// Why the process that replays does so little, as far as it shows; and what to do.
fn reason(startup: Option<&Lines>, waits: &[String]) -> (String, Vec<String>) {
    let mut words = vec![];
    if let Some(lines) = startup {
        let (run, queue) = (lines.rate("cpu_us").unwrap_or(0.0), lines.rate("run_queue_us").unwrap_or(0.0));
        words.push(format!("the process that replays uses {} of a CPU", units::percent(run / 1e6)));
        if queue / (run + queue).max(1.0) >= HELD_SHARE_MIN {
            words.push(format!(
                "it waits for a CPU {} times as long as it has one: other programs, a quota or an affinity of its host",
                units::short(queue / run.max(1.0))
            ));
        }
        if lines.word("state") == "T" {
            words.push("it was found stopped (state T): a signal or a debugger holds it".to_string());
        }
    }
    let text = "find what it waits for on the standby: its CPU (quota, other programs), its disk (recovery_prefetch), queries that it must not cancel yet \
                (max_standby_streaming_delay), a delay by design (recovery_min_apply_delay)";
    words.extend(waits.iter().cloned());
    (text.to_string(), words)
}

fn late(case: &Case) -> Answer {
    let mut claims = vec![];
    for standby in case.things("replication") {
        let lag = |field: &str| standby.lines.last(field).unwrap_or(0.0);
        let behind = lag("replay_lag_bytes") - lag("flush_lag_bytes");
        let lag_s = lag("replay_lag_us") / 1e6;
        let grows = standby
            .lines
            .series("replay_lag_bytes")
            .is_some_and(|series| lag("replay_lag_bytes") > series.mean());
        if behind < BEHIND_BYTES || lag_s < BEHIND_S || !grows {
            continue;
        }
        let node = case.nodes().into_iter().find(|node| *node == standby.name);
        let is_paused = |node: &str| {
            case.one("server", node).and_then(|server| server.flag("replay_paused")) == Some(true)
        };
        let is_its = |thing: &Thing<'_>| {
            thing.lines.word("backend") == "startup"
                && node.is_none_or(|node| thing.lines.word("node") == node)
        };
        let mut processes = case.things("backend").filter(is_its);
        let startup = processes.next().filter(|_| node.is_some() || processes.next().is_none());
        let busy = startup.and_then(|process| process.lines.rate("cpu_us")).unwrap_or(0.0) / 1e6;
        if node.is_some_and(is_paused) || busy >= BUSY_SHARE {
            continue;
        }
        let delay = node
            .and_then(|node| case.setting(node, "recovery_min_apply_delay"))
            .filter(|delay| *delay != "0");
        let waits = delay.map(|delay| format!("recovery_min_apply_delay is {delay}: a delay by design"));
        let (text, words) =
            reason(startup.map(|process| process.lines), &waits.iter().cloned().collect::<Vec<_>>());
        let mut claim = Claim::new(
            if delay.is_some() { Severity::Note } else { Severity::Medium },
            Level::DiscriminatingCounter,
            format!(
                "{}: {} are flushed there and not replayed, {} old and growing",
                standby.name,
                units::bytes(behind),
                units::seconds(lag_s)
            ),
        )
        .on_node(node.unwrap_or(standby.place))
        .during([standby.lines.ticks.window()])
        .number("replay_behind_bytes", behind)
        .number("replay_lag_s", lag_s)
        .because(format!(
            "the primary counts {} sent and not flushed: the network and the standby's disk of the WAL keep up",
            units::bytes(lag("flush_lag_bytes"))
        ))
        .not("the network: WAL is received and flushed in time");
        for sentence in words {
            claim = claim.because(sentence);
        }
        if startup.is_none() {
            claim = claim.lacking("the process that replays: monitor the standby's host, too");
        }
        claims.push(claim.remedy(
            text,
            &[
                "SELECT pid, wait_event_type, wait_event FROM pg_stat_activity WHERE backend_type = 'startup'; -- on the standby",
                "SELECT name, setting FROM pg_settings WHERE name IN ('recovery_min_apply_delay', 'max_standby_streaming_delay', 'recovery_prefetch'); -- on \
                 the standby",
            ],
        ));
    }
    Answer::of(claims, || "WAL that standbys have flushed and not replayed".to_string())
}
