//! REP: standbys: statements that replay cancels, replay that is paused, replay that waits for something else than a CPU; and consumers
//! of logical slots that do not keep up.

mod own;
mod unsent;

use crate::case::{Case, Lines, Thing};
use crate::node_time;
use crate::rule::Need::{Field, Looked, Peers};
use crate::rule::{Answer, Claim, Rule};
use crate::rules::replication::keep_size_command;
use crate::units;
use crate::waits::{Waits, Who};
use record::event::{self, Event};
use record::finding::{Level, Severity, Window};
use record::statement;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "REP-08",
        title: "standbys are idle while the primary works",
        needs: &[Field("server", "in_recovery"), Peers("server", 2)],
        limits: "a standby reads less than a tenth of what its primary reads, and the primary is above 50 % CPU (R4: 66 % waste)",
        judge: idle,
        links: &["https://www.postgresql.org/docs/current/hot-standby.html"],
    },
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
        limits: "any standby whose replay is paused; high where max_connections or another setting that must not be is lower than on another node",
        judge: paused,
        links: &["https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-RECOVERY-CONTROL"],
    },
    Rule {
        id: "REP-11",
        title: "a standby gets the WAL late, or replays it late",
        needs: &[Looked("replication")],
        limits: "64 MB flushed and not replayed, 5 s of lag, more at the end than in the middle, and the process that replays uses less than 90 % of a CPU \
            (which is REP-02); or by the standby's own account 1 MB and 5 s behind at each look, a recovery_min_apply_delay, or no process that receives; \
            or 8 MB and 5 s that are not sent, or not flushed there, most of what it lacks, and a tenth more at the end than at the beginning (ours)",
        judge: late,
        links: &["https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-ADMIN"],
    },
    Rule {
        id: "REP-12",
        title: "replay on a standby waits for a session there",
        needs: &[Field("server", "in_recovery"), Looked("wait")],
        limits: "the process that replays waits for a lock or a recovery conflict in 30 % of the looks, 3 or more (ours)",
        judge: held_up,
        links: &["https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-CONFLICT"],
    },
    Rule {
        id: "REP-15",
        title: "the consumer of a logical slot does not keep up",
        needs: &[Looked("slot"), Looked("wait")],
        limits: "a logical slot in use keeps 16 MB and more and more of it, and in half of the looks a walsender waits until its receiver reads (ours)",
        judge: outrun,
        links: &["https://www.postgresql.org/docs/current/logicaldecoding-walsender.html"],
    },
];

/// WAL that a slot in use keeps.
const OUTRUN_BYTES_MIN: f64 = 16.0 * 1024.0 * 1024.0;
/// Looks in which a walsender waits for its receiver, of all.
const OUTRUN_LOOKS_SHARE: f64 = 0.5;
/// Looks in which replay waits for a session.
const HELD_LOOKS_MIN: f64 = 3.0;
/// Of all looks.
const HELD_LOOKS_SHARE: f64 = 0.3;
/// Characters of a statement in a claim.
const HOLDER_CHARS: usize = 80;

/// Of the processes of a standby that are no sessions, only the one that replays waits for locks.
fn held_up(case: &Case) -> Answer {
    let is_held = |kind: &str, event: &str| kind == "Lock" || event.starts_with("RecoveryConflict");
    let mut claims = vec![];
    for server in case.things("server").filter(|server| server.lines.flag("in_recovery") == Some(true)) {
        let Some(waits) = case.waits(server.place) else { continue };
        let (seen, looks) = (waits.seen_in(Who::Background, is_held), case.looks(server.place, &[case.span]));
        if seen < HELD_LOOKS_MIN || seen < looks * HELD_LOOKS_SHARE {
            continue;
        }
        let age = |session: &Thing<'_>| session.lines.max("xact_age_s").unwrap_or(0.0);
        let holder = case
            .at("session", server.place)
            .filter(|session| !session.lines.word("state").is_empty())
            .max_by(|left, right| age(left).total_cmp(&age(right)));
        let who = holder.map_or(String::new(), |session| {
            let query = super::costly::plain(session.lines.word("query"), HOLDER_CHARS);
            let application = super::costly::plain(session.lines.word("application"), NAME_CHARS);
            let of = if application.is_empty() { application } else { format!(" of {application}") };
            format!(
                ": session {}{of} has a transaction of {} and is {}: {query}",
                session.name,
                units::seconds(age(&session)),
                session.lines.word("state")
            )
        });
        let open = case.at("session", server.place).filter(|session| age(session) >= OPEN_S).count();
        let end = holder.filter(|_| open <= 1).and_then(|session| {
            let start = session.lines.word("backend_start");
            super::ddl::end_of("pg_terminate_backend", session.name.parse().ok()?, start)
        });
        let look = "SELECT b.pid, b.state, now() - b.xact_start AS age, left(b.query, 60) AS query FROM pg_stat_activity s CROSS JOIN LATERAL \
            unnest(pg_blocking_pids(s.pid)) p JOIN pg_stat_activity b ON b.pid = p WHERE s.backend_type = 'startup'; -- on the standby";
        claims.push(
            Claim::new(
                Severity::High,
                Level::DiscriminatingCounter,
                format!("{}: the replay of WAL waits for a session of the standby{who}{}{}", server.place, among(open), exclusive(case, server.place, waits)),
            )
            .on_node(server.place)
            .during(waits.windows(Who::Background, is_held))
            .number("looks_held", seen)
            .number("looks", looks)
            .because(format!(
                "the process that replays waited in {} of {} looks ({})",
                units::short(seen),
                units::short(looks),
                waits.top_in_words(Who::Background)
            ))
            .with(case.setting(server.place, "max_standby_streaming_delay"), |claim, delay| {
                claim.because(format!("max_standby_streaming_delay is {delay}: so long it waits before it cancels what is in its way (-1: for ever)"))
            })
            .because("with synchronous_commit = remote_apply every commit of the primary waits as long, and without it reads of the standby grow old")
            .remedy(
                "end the transaction there; keep reports on a standby short, or let replay cancel them after a time; a standby for long reports should not \
                    be the \
                 synchronous one",
                &[end.as_deref().unwrap_or(look), "ALTER SYSTEM SET max_standby_streaming_delay = '30s'; SELECT pg_reload_conf(); -- on the standby"],
            ),
        );
    }
    Answer::of(claims, || "what the process that replays waited for on standbys".to_string())
}

/// A transaction that is open for so long (seconds) may be what replay waits for.
const OPEN_S: f64 = 1.0;

/// That other sessions may be the one.
fn among(open: usize) -> String {
    if open <= 1 {
        String::new()
    } else {
        format!(" (the oldest of {open} transactions that are open there)")
    }
}

/// Where the process that replays waits for the lock of a table: which kind, and what on the primary may have taken it, as the end of a sentence.
fn exclusive(case: &Case, standby: &str, waits: &Waits) -> String {
    let is_table = |kind: &str, event: &str| kind == "Lock" && event == "relation";
    if waits.seen_in(Who::Background, is_table) <= 0.0 {
        return String::new();
    }
    let here: Vec<String> = case
        .at("session", standby)
        .flat_map(|session| statement::names(session.lines.word("query")))
        .collect();
    let sessions = case.things("session").filter(|session| session.place != standby);
    let texts = sessions.map(|session| session.lines.word("query"));
    let texts = texts.chain(case.events_of(event::QUERY).map(|event| Case::word_of(event, "text")));
    let is_such = |text: &&str| {
        let first = super::costly::lowered(text);
        // What a session of the standby has named may be the table that it keeps.
        EXCLUSIVE.iter().any(|word| first.starts_with(word))
            && statement::names(text).iter().any(|name| here.contains(name))
    };
    let taken = texts.filter(|text| !text.is_empty()).find(is_such).map_or(String::new(), |text| {
        format!("; the primary ran {}", super::costly::plain(text, HOLDER_CHARS))
    });
    format!(
        "; replay repeats an ACCESS EXCLUSIVE lock that the primary took on a table (of DDL, TRUNCATE, or a VACUUM that truncates the empty end of its file: \
         vacuum_truncate){taken}"
    )
}

/// Commands that take such a lock, or may.
const EXCLUSIVE: [&str; 6] = ["vacuum ", "truncate ", "alter table ", "drop ", "cluster ", "lock table "];
/// Characters of an application's name.
const NAME_CHARS: usize = 60;

/// Of the primary's reads.
const IDLE_SHARE: f64 = 0.1;
/// A primary that works.
const WORKING_PCT: f64 = 50.0;
/// The share of the session time waiting for a CPU from which on it is more than a note.
const CPU_WAIT_SHARE: f64 = 0.25;
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
        let in_log: f64 = logged.iter().map(|event| event.times()).sum();
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

/// Settings that a standby must not have lower than its primary: replay pauses at the record that has the higher value.
const NOT_BELOW_PRIMARY: [&str; 5] = [
    "max_connections",
    "max_worker_processes",
    "max_wal_senders",
    "max_prepared_transactions",
    "max_locks_per_transaction",
];

/// The settings of those that are lower on a standby than on a node that takes writes: name, value here, and there.
fn lower_than_primary<'a>(case: &'a Case, standby: &str) -> Vec<(&'static str, f64, f64, &'a str)> {
    let value = |node: &str, name: &str| case.setting(node, name)?.parse::<f64>().ok();
    let lower = |name: &'static str| {
        let here = value(standby, name)?;
        let is_primary = |node: &&str| {
            case.one("server", node).is_some_and(|server| server.flag("in_recovery") == Some(false))
        };
        let others = case.nodes().into_iter().filter(|node| *node != standby).filter(is_primary);
        let highest = others.filter_map(|node| Some((value(node, name)?, node)));
        let (there, node) = highest.max_by(|left, right| left.0.total_cmp(&right.0))?;
        (here < there).then_some((name, here, there, node))
    };
    NOT_BELOW_PRIMARY.into_iter().filter_map(lower).collect()
}

fn paused(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server").filter(|server| server.lines.flag("replay_paused") == Some(true)) {
        let node = server.place;
        let lower = lower_than_primary(case, node);
        let claim = |severity, words| {
            Claim::new(severity, Level::DiscriminatingCounter, words)
                .on_node(node)
                .during([server.lines.ticks.window()])
                .number("paused", 1.0)
                .because("pg_is_wal_replay_paused() is true: the standby falls behind, and commits with remote_apply wait for it")
        };
        if lower.is_empty() {
            let paused =
                claim(Severity::Medium, format!("{node}: the replay of WAL is paused on this standby"));
            claims.push(
                paused
                    .not("a slow standby: replay was stopped by command, by recovery_target_action, or for settings lower than the primary's")
                    .lacking("the settings of its primary (watch both nodes): where max_connections and its like are lower here, replay pauses by itself")
                    .remedy(
                        "go on with it, on the standby, unless its log has \"insufficient parameter settings\": then the server ends when replay goes \
                            on; raise the \
                         settings it names, and restart it",
                        &["SELECT pg_wal_replay_resume();"],
                    ),
            );
            continue;
        }
        let named = lower
            .iter()
            .map(|(name, here, there, primary)| format!("{name} is {here} here and {there} on {primary}"));
        let named: Vec<String> = named.collect();
        let sets = lower.iter().map(|(name, _, there, _)| format!("ALTER SYSTEM SET {name} = {there};"));
        let restart = format!("$ pg_ctl restart -D {} -m fast", super::paste::data_directory(case, node));
        let commands: Vec<String> = sets.chain([restart]).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        claims.push(
            claim(
                Severity::High,
                format!("{node}: the replay of WAL is paused, because settings are lower than the primary's: {}", named.join(", ")),
            )
            .because("a standby needs room for all sessions, locks and prepared transactions that its primary may have; it pauses at the change, so that its \
                      readers can end their work, and falls behind until it is restarted")
            .not("a pause by command: pg_wal_replay_resume() would end the server now")
            .remedy("raise them on the standby, and restart it; the restart stops the database there, and all sessions end. Raise such settings on \
                standbys first, and then on \
             the primary", &commands),
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

/// WAL that is not replayed, where the lag shows that nothing is.
const STANDS_BYTES: f64 = 1e6;
/// Seconds of lag that each second adds.
const STANDS_SLOPE: f64 = 0.8;

/// Whether a standby replays nothing at all: each second adds a second of lag.
fn stands(standby: &Thing<'_>, behind: f64) -> bool {
    let slope = standby.lines.series("replay_lag_us").and_then(crate::series::Series::slope);
    behind >= STANDS_BYTES && slope.is_some_and(|slope| slope / 1e6 >= STANDS_SLOPE)
}

/// Whether what is flushed and not replayed is much, or all that comes, is old, and grows.
fn is_growing(standby: &Thing<'_>, behind: f64, lag_s: f64) -> bool {
    let lag = standby.lines.series("replay_lag_bytes");
    let grows = lag.is_some_and(|series| series.last().unwrap_or(0.0) > series.mean());
    (behind >= BEHIND_BYTES || stands(standby, behind)) && lag_s >= BEHIND_S && grows
}

fn late(case: &Case) -> Answer {
    let mut claims = vec![];
    for standby in case.things("replication") {
        let lag = |field: &str| standby.lines.last(field).unwrap_or(0.0);
        let behind = lag("replay_lag_bytes") - lag("flush_lag_bytes");
        let lag_s = lag("replay_lag_us") / 1e6;
        if !is_growing(&standby, behind, lag_s) {
            continue;
        }
        let node = case.nodes().into_iter().find(|node| *node == standby.name).or_else(|| own::only(case));
        // What the standby shows of itself is more.
        if node.is_some_and(|node| own::is_behind(case, node)) {
            continue;
        }
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
    claims.extend(own::behind(case).into_iter().chain(unsent::claims(case)));
    Answer::of(claims, || "WAL that standbys have flushed and not replayed, or not got".to_string())
}

/// Whether the sessions of a node wait for a CPU for much of their time: then reads that go elsewhere help.
fn is_short_of_cpus(case: &Case, node: &str) -> bool {
    let time = node_time::all(case).iter().find(|time| time.node == node && !time.is_idle());
    let waits = time.and_then(|time| time.parts.iter().find(|part| part.name == node_time::FOR_CPU));
    waits.is_some_and(|part| part.share >= CPU_WAIT_SHARE)
}

fn idle(case: &Case) -> Answer {
    let reads = |thing: &Thing<'_>| {
        thing.lines.sum("tup_returned").unwrap_or(0.0) + thing.lines.sum("tup_fetched").unwrap_or(0.0)
    };
    let cpu = |node: &str| {
        let lines = case.one("host", case.host_of(node)?)?;
        Some(lines.mean("cpu_user_pct")? + lines.mean("cpu_system_pct").unwrap_or(0.0))
    };
    let (standbys, primaries): (Vec<Thing<'_>>, Vec<Thing<'_>>) =
        case.things("server").partition(|server| server.lines.flag("in_recovery") == Some(true));
    let Some(primary) = primaries.iter().max_by(|left, right| reads(left).total_cmp(&reads(right))) else {
        return Answer::Clean("there is no primary".to_string());
    };
    let idle: Vec<&Thing<'_>> =
        standbys.iter().filter(|standby| reads(standby) < reads(primary) * IDLE_SHARE).collect();
    let Some(busy) = cpu(primary.place) else {
        return if standbys.is_empty() {
            Answer::Clean("there are no standbys".to_string())
        } else {
            Answer::CannotTell("the primary's host was not monitored".to_string())
        };
    };
    if idle.is_empty() || busy < WORKING_PCT {
        return Answer::Clean(format!(
            "{} standbys beside a primary at {} % CPU",
            standbys.len(),
            units::short(busy)
        ));
    }
    let names: Vec<&str> = idle.iter().map(|standby| standby.place).collect();
    Answer::Found(vec![
        Claim::new(
            if is_short_of_cpus(case, primary.place) { Severity::Low } else { Severity::Note },
            Level::PeerContrast,
            format!(
                "{} is at {} % CPU while {} read almost nothing: {}",
                primary.place,
                units::short(busy),
                units::counted(names.len(), "standby"),
                names.join(", ")
            ),
        )
        .on_node(primary.place)
        .during([Window::new(case.span.from_us, case.span.to_us)])
        .number("primary_cpu_pct", busy)
        .number("idle_standbys", names.len() as f64)
        .because("rows read on each node, from pg_stat_database")
        .remedy(
            "send reads that tolerate stale data to the standbys",
            &["SELECT application_name, client_addr, state, sync_state, replay_lag FROM pg_stat_replication; -- then list them in host= with \
                 target_session_attrs=prefer-standby"],
        ),
    ])
}
/// What to do about a consumer that is slow, and about one that does nothing.
const SLOW_CONSUMER: &str = "make the consumer faster: larger batches, several workers, less work for each change; publish only the tables and operations \
    that it \
    needs; and set max_slot_wal_keep_size, so that the slot is lost and not the server";
const HUNG_CONSUMER: &str = "look at the consumer's own process and log: it hangs, is stopped, or waits for what it writes to; restart it, and it goes on \
    where it \
    was; drop the slot if it is not needed any more; and set max_slot_wal_keep_size, so that the slot is lost and not the server";
/// For so long a consumer confirms nothing until it counts as standing still: it reports every 10 s if it has nothing else to do
/// (`wal_receiver_status_interval`).
const STANDS_S: f64 = 5.0;

/// For how long a slot's consumer has confirmed nothing, if that is so from the first look to the last.
fn stands_still_s(slot: &Thing<'_>) -> Option<f64> {
    let confirmed = slot.lines.series("confirmed_bytes")?;
    let window = slot.lines.ticks.window();
    let seconds = window.to_us.saturating_sub(window.from_us) as f64 / 1e6;
    let is_still = confirmed.first().is_some() && confirmed.first() == confirmed.last();
    (is_still && seconds >= STANDS_S).then_some(seconds)
}

/// REP-15.
fn outrun(case: &Case) -> Answer {
    let mut claims = vec![];
    for (node, waits) in case.waiting_nodes() {
        let is_unread = |_: &str, event: &str| event == "WalSenderWriteData";
        let (seen, looks) = (waits.seen_in(Who::Background, is_unread), case.looks(node, &[case.span]));
        if seen < looks * OUTRUN_LOOKS_SHARE {
            continue;
        }
        let keeps_more = |slot: &Thing<'_>| {
            let kept = slot.lines.series("retained_bytes");
            let kept = kept.and_then(|kept| Some((kept.last()?, kept.slope()?)));
            let is_used = slot.lines.word("kind") == "logical" && slot.lines.flag("active") == Some(true);
            kept.filter(|(now, growth)| is_used && *now >= OUTRUN_BYTES_MIN && *growth > 0.0)
        };
        let all = case.at("slot", node).filter_map(|slot| Some((keeps_more(&slot)?, slot)));
        let Some(((now, growth), slot)) = all.max_by(|left, right| left.0.1.total_cmp(&right.0.1)) else {
            continue;
        };
        let kept = format!(
            "the server keeps {} of WAL for it, {} more each second",
            units::bytes(now),
            units::bytes(growth)
        );
        let stands = stands_still_s(&slot);
        let text = match stands {
            Some(seconds) => format!(
                "{node}: the consumer of logical slot {} is connected and takes nothing: it has confirmed nothing new for {}, and {kept}",
                slot.name,
                units::seconds(seconds)
            ),
            None => format!(
                "{node}: the consumer of logical slot {} reads slower than changes are made: {kept}",
                slot.name
            ),
        };
        let advice = if stands.is_some() { HUNG_CONSUMER } else { SLOW_CONSUMER };
        claims.push(
            Claim::new(Severity::Medium, Level::CoOccurrence, text)
                .on_node(node)
                .during([slot.lines.ticks.window()])
                .number("retained_bytes", now)
                .number("growth_bytes_per_s", growth)
                .because(format!(
                    "in {} of {} looks a walsender waited until its receiver read on (Client:WalSenderWriteData)",
                    units::count(seen.min(looks)),
                    units::count(looks)
                ))
                .not("decoding: the walsender has changes to send, and its receiver takes none")
                .remedy(
                    advice,
                    &[
                        "SELECT s.slot_name, r.pid, r.application_name, r.client_addr, r.backend_start, \
                            pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), s.confirmed_flush_lsn)) AS behind FROM pg_replication_slots s \
                            LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid;",
                        &keep_size_command(case, node),
                    ],
                ),
        );
    }
    Answer::of(claims, || "what slots in use keep, and walsenders that wait for their receivers".to_string())
}
