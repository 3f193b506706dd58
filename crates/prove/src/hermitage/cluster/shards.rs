//! Cases of rows on different nodes that one transaction writes: fractured sums, deadlocks over two nodes, commits that stop half-way.

use std::time::{Duration, Instant};

use connect::cluster_file::Role;
use engines::profile::{Anomaly, Case, Statements};
use record::promise::Control;

use super::super::{Answer, HermitageError, LEVELS};
use super::{LOOK, QUIET, ScriptedSession, Stage, expected, of_role};
use crate::fault::{Site, Undo};
use crate::live::tables::{SCHEMA, Shape, Tables};
use crate::live::{self, bank};
use crate::promise;
use engines::profile::Isolation;

const SHAPE: Shape =
    Shape { name: "hermitage", columns: "id int not null, value int not null", key: Some("shard, id") };
/// Deadlocks are observed for this multiple of `deadlock_timeout`.
const DETECTORS: u32 = 5;
/// And at least so long.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// So often sums are read at most until some are wrong.
const ROUNDS_MAX: u32 = 4;
/// Sessions that move money while sums are read.
const MOVERS: usize = 4;

/// Plays them all.
pub(super) fn play(stage: &mut Stage<'_>) -> Result<(), HermitageError> {
    let settings = &promise::Settings::of(&stage.site.entry(), &live::Options::default())?;
    for level in LEVELS {
        let title = "fractured sum: a transfer between two shards is seen on one of them only";
        let answer = of_profile((stage.site, settings), "FR2", title, level, Anomaly::ReadSkew);
        stage.play(answer, &[], |site, answer| half_a_transfer(site, level, answer))?;
    }
    if !stage.chance.sums.is_zero() {
        for level in LEVELS {
            let title =
                "fractured sum by chance: all accounts in one SELECT while money moves between shards";
            let answer = of_profile((stage.site, settings), "FR", title, level, Anomaly::FracturedRead);
            let options = live::Options {
                duration: stage.chance.sums,
                clients: MOVERS,
                level,
                seed: stage.chance.seed,
                ..live::Options::default()
            };
            let stop = stage.stop;
            stage.play(answer, &[], |site, answer| sums(site, &options, stop, answer))?;
        }
    }
    let answer = Answer {
        level: Some(Isolation::ReadCommitted),
        ..expected(
            Case::Deadlock,
            stage.site.engine,
            "distributed deadlock: two transactions wait for each other on two nodes",
            "a deadlock over two nodes is found and ended",
        )
    };
    stage.play(answer, &[], deadlock)?;
    if stage.site.engine.expectation(Case::InDoubt).is_some() {
        let answer = expected(
            Case::InDoubt,
            stage.site.engine,
            "in doubt: a two-phase commit stops after the first node",
            "a commit over two nodes is seen on both or on none, and blocks no other session when its coordinator has failed",
        );
        stage.play(answer, &[], in_doubt)?;
    }
    Ok(())
}

/// An answer whose rule comes from the engine's profile at this level.
fn of_profile(
    (site, settings): (&Site, &promise::Settings),
    case: &'static str,
    title: &'static str,
    level: Isolation,
    anomaly: Anomaly,
) -> Answer {
    Answer {
        case,
        title,
        level: Some(level),
        promise: match anomaly {
            Anomaly::FracturedRead => "one SELECT over the shards sees all of a transfer or nothing of it",
            _ => "one transaction sees all of a transfer between shards or nothing of it",
        },
        expected: match promise::rule(site, settings, promise::Span::Entry, level, anomaly) {
            promise::Rule::Forbidden => Some(false),
            promise::Rule::Allowed => Some(true),
            promise::Rule::Measured => None,
        },
        why: match (site.engine.statements, level) {
            (Statements::FirstUse, _) => "each node's snapshot begins with its first use in the transaction",
            (_, Isolation::ReadCommitted) => "each statement has its own snapshot",
            _ => "whether a snapshot spans all nodes depends on the engine",
        },
        change: "read rows that must agree from one shard, or use an engine with one snapshot for all nodes",
        ..Answer::default()
    }
}

/// A table with one row on each of two shards.
struct Rows<'a> {
    site: &'a Site,
    tables: Option<Tables>,
    referee: ScriptedSession,
}

impl<'a> Rows<'a> {
    fn make(site: &'a Site, script: &mut Vec<String>) -> Result<Rows<'a>, HermitageError> {
        let tables = Tables::make(site, &[SHAPE])?;
        let mut referee = ScriptedSession::open("referee", &site.nodes[site.primary()])?;
        for shard in [1, 2] {
            referee.quietly(&format!("INSERT INTO {SCHEMA}.hermitage VALUES ({shard}, {shard}, 0)"))?;
        }
        let names = &tables.shards;
        script.push(format!(
            "-- {SCHEMA}.hermitage (shard, id, value) holds (1, 1, 0) on {} and (2, 2, 0) on {}",
            names.first().map_or("one shard", String::as_str),
            names.get(1).map_or("another", String::as_str)
        ));
        Ok(Rows { site, tables: Some(tables), referee })
    }

    fn open(&self, who: &str) -> Result<ScriptedSession, HermitageError> {
        ScriptedSession::open(who, &self.site.nodes[self.site.primary()])
    }

    fn remove(mut self) -> Result<(), HermitageError> {
        if let Some(tables) = self.tables.take() {
            tables.remove(self.site);
        }
        Ok(())
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        if let Some(tables) = self.tables.take() {
            // The script was aborted; the next proof also drops the schema.
            tables.remove(self.site);
        }
    }
}

fn read(shard: u32) -> String {
    format!("SELECT value FROM {SCHEMA}.hermitage WHERE shard = {shard}")
}

fn add(shard: u32, amount: i32) -> String {
    let sign = if amount < 0 { '-' } else { '+' };
    format!("UPDATE {SCHEMA}.hermitage SET value = value {sign} {} WHERE shard = {shard}", amount.abs())
}

/// FR2: a reader between the two halves of a transfer from one shard to the other.
fn half_a_transfer(site: &Site, level: Isolation, answer: &mut Answer) -> Result<(), HermitageError> {
    let script = &mut answer.script;
    let rows = Rows::make(site, script)?;
    let (mut reader, mut writer) = (rows.open("a")?, rows.open("b")?);
    reader.request(script, &level.begin())?;
    let near = reader.value(script, &read(1))?;
    writer.request(script, &level.begin())?;
    writer.request(script, &add(1, -10))?;
    writer.request(script, &add(2, 10))?;
    let committed = writer.try_request(script, "COMMIT")?;
    let distant = reader.try_request(script, &read(2))?;
    let seen = match &distant.error {
        None => distant.text(0).unwrap_or_default(),
        Some(error) => error.sqlstate.to_string(),
    };
    let last = reader.try_request(script, "COMMIT")?;
    let ended = last.sqlstate().map_or_else(|| last.tag().to_owned(), str::to_owned);
    answer.happened = Some((near.as_str(), seen.as_str(), last.tag()) == ("0", "10", "COMMIT"));
    answer.line = format!("a read {near} here and {seen} there, {ended}; b {}", committed.tag());
    drop((reader, writer));
    rows.remove()
}

/// FR: the same by chance.
fn sums(
    site: &Site,
    options: &live::Options,
    stop: &std::sync::atomic::AtomicBool,
    answer: &mut Answer,
) -> Result<(), HermitageError> {
    let report = until_seen(site, options, stop)?;
    answer.happened = (report.reads > 0).then_some(report.wrong > 0);
    answer.counted = Some((report.reads, report.wrong, "sums read"));
    answer.control = Some(Control {
        what: "sums read shard by shard, each in its own statement".to_owned(),
        n: report.control_reads,
        seen: report.control_wrong,
    });
    answer.script = report.witnesses;
    answer.line = format!(
        "{} of {} sums wrong; the last one {}",
        report.wrong,
        report.reads,
        match report.last_sum == report.expected {
            true => "right".to_owned(),
            false => format!("{} instead of {}", report.last_sum, report.expected),
        }
    );
    // No transfer overlapped a read, so the absence of wrong sums proves nothing.
    if report.wrong == 0 && report.control_wrong == 0 {
        answer.happened = None;
        answer.line.push_str("; the control saw none either: too few transactions overlapped");
    }
    Ok(())
}

/// Reads sums until some were wrong, of the control at least: a busy machine overlaps few transactions in the time that was meant. Each round is as long as
/// all before it, and there are at most [`ROUNDS_MAX`].
fn until_seen(
    site: &Site,
    options: &live::Options,
    stop: &std::sync::atomic::AtomicBool,
) -> Result<bank::Report, HermitageError> {
    let mut options = options.clone();
    let mut all = bank::run(site, &options, stop)?;
    for _ in 1..ROUNDS_MAX {
        if all.wrong > 0 || all.control_wrong > 0 || stop.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        let next = bank::run(site, &options, stop)?;
        options.duration *= 2;
        all = bank::Report {
            reads: all.reads + next.reads,
            control_reads: all.control_reads + next.control_reads,
            ..next
        };
    }
    Ok(all)
}

/// Whether one of our statements waits for a lock on some node.
struct Locks {
    watchers: Vec<ScriptedSession>,
}

impl Locks {
    fn watch(site: &Site) -> Result<Locks, HermitageError> {
        let mut watchers = Vec::new();
        for node in &site.nodes {
            let mut watcher = ScriptedSession::open("referee", node)?;
            if watcher.quietly("select pg_catalog.pg_blocking_pids(0)").is_ok() {
                watchers.push(watcher);
            }
        }
        Ok(Locks { watchers })
    }

    /// The number of our waiting statements on all nodes; `None`: the servers do not show it.
    fn waiting(&mut self) -> Result<Option<usize>, HermitageError> {
        let sql = format!(
            "select count(*) from pg_catalog.pg_stat_activity where pg_catalog.pg_blocking_pids(pid) <> '{{}}' \
             and query like '%{SCHEMA}%' and datname = pg_catalog.current_database()"
        );
        let mut count = 0;
        for watcher in &mut self.watchers {
            count += watcher.quietly(&sql)?.parse::<usize>().unwrap_or(0);
        }
        Ok((!self.watchers.is_empty()).then_some(count))
    }

    /// Whether `count` statements wait; where no view shows that, whether no answer came for long enough.
    fn are(&mut self, count: usize, since: Instant) -> Result<bool, HermitageError> {
        Ok(match self.waiting()? {
            Some(waiting) => waiting >= count,
            None => since.elapsed() >= QUIET,
        })
    }

    /// Longer than a detector waits.
    fn patience(&mut self) -> Result<Duration, HermitageError> {
        let sql = "select setting from pg_catalog.pg_settings where name = 'deadlock_timeout'";
        let mut longest = PATIENCE_MIN;
        for watcher in &mut self.watchers {
            let wait = Duration::from_millis(watcher.quietly(sql)?.parse().unwrap_or(1_000));
            longest = longest.max(wait * DETECTORS);
        }
        Ok(longest)
    }
}

/// DD: two transactions lock rows of two nodes in opposite order.
fn deadlock(site: &Site, answer: &mut Answer) -> Result<(), HermitageError> {
    let script = &mut answer.script;
    let rows = Rows::make(site, script)?;
    let mut locks = Locks::watch(site)?;
    let patience = locks.patience()?;
    let (mut a, mut b) = (rows.open("a")?, rows.open("b")?);
    a.request(script, &Isolation::ReadCommitted.begin())?;
    b.request(script, &Isolation::ReadCommitted.begin())?;
    a.request(script, &add(1, 1))?;
    b.request(script, &add(2, 1))?;
    b.send(script, &add(1, 1))?;
    let sent = Instant::now();
    let mut refused = None;
    let mut done = 0;
    let mut take = |who: &'static str, reply: crate::session::Reply| match reply.sqlstate() {
        Some(code) => refused = refused.take().or(Some((who, code.to_owned()))),
        None => done += 1,
    };
    if let Some(reply) = b.settle(|_| locks.are(1, sent))? {
        take("b", reply);
    }
    a.send(script, &add(2, 1))?;
    let sent = Instant::now();
    // A session that answers at once does not wait; a refusal frees the other one.
    if let Some(reply) = a.settle(|_| locks.are(2, sent))? {
        take("a", reply);
    }
    let seen = Instant::now();
    // The refused session ends the deadlock: a detector reports 40P01, a time limit another code. The other one goes on, and may answer first.
    while refused.is_none() && done < 2 && seen.elapsed() < patience {
        for (who, session) in [("a", &mut a), ("b", &mut b)] {
            if refused.is_none()
                && session.session.is_waiting()
                && let Some(reply) = session.session.reply_within(LOOK)?
            {
                match reply.sqlstate() {
                    Some(code) => refused = Some((who, code.to_owned())),
                    None => done += 1,
                }
            }
        }
    }
    // 40001 comes from engines without lock waits; any other code is a time limit.
    let is_detected = |code: &str| {
        code == "40P01" || code == "40001" || (code == "55P03" && !site.engine.misses_deadlocks())
    };
    answer.happened = Some(match &refused {
        Some((_, code)) => !is_detected(code),
        None => done < 2,
    });
    answer.line = match refused {
        Some((who, code)) if code == "40P01" => format!("{who} {code}: a deadlock detector ended it"),
        Some((who, code)) if is_detected(&code) => format!("{who} {code}: no session was left waiting"),
        Some((who, code)) => format!(
            "a and b wait for each other; {who} {code}: a time limit ended it, no server detected the deadlock"
        ),
        None if done < 2 => format!(
            "a and b waited for each other for {:.1} s, no server detected it",
            seen.elapsed().as_secs_f64()
        ),
        None => "neither waited".to_owned(),
    };
    // Cancelled by their sessions' ends.
    drop((a, b));
    rows.remove()
}

/// ID: a transaction is prepared on two nodes and committed on one.
fn in_doubt(site: &Site, answer: &mut Answer) -> Result<(), HermitageError> {
    let holders = of_role(site, Role::Shard);
    let [first, second, ..] = holders[..] else {
        answer.is_impossible = true;
        answer.line = "two shards are needed".to_owned();
        return Ok(());
    };
    for node in [first, second] {
        let count =
            ScriptedSession::open("referee", &site.nodes[node])?.quietly("show max_prepared_transactions")?;
        if count == "0" {
            answer.is_impossible = true;
            answer.line = format!("max_prepared_transactions is 0 on {}", site.nodes[node].name);
            return Ok(());
        }
    }
    let script = &mut answer.script;
    let mut rows = Rows::make(site, script)?;
    let mut locks = Locks::watch(site)?;
    let name = format!("pgfathom-doubt-{}-{}", std::process::id(), record::clock::monotonic_ns());
    let mut prepared = Vec::new();
    for (node, leaf, amount) in [(first, 1, -10), (second, 2, 10)] {
        let at = &site.nodes[node];
        let mut coordinator = ScriptedSession::open("a", at)?;
        let undo = Undo::RollBack { connection: at.spec.describe(), name: name.clone() };
        let id = site.journal().note(undo)?;
        let undo = Prepared { site, node, name: &name, id: Some(id) };
        coordinator.request(script, "BEGIN")?;
        let sign = if amount < 0 { '-' } else { '+' };
        coordinator
            .request(script, &format!("UPDATE {SCHEMA}.hermitage_{leaf} SET value = value {sign} 10"))?;
        coordinator.request(script, &format!("PREPARE TRANSACTION '{name}'"))?;
        prepared.push((coordinator, undo));
    }
    let commit = format!("COMMIT PREPARED '{name}'");
    prepared[0].0.request(script, &commit)?;
    script.push(format!("-- the coordinator fails before it sends the same to {}", site.nodes[second].name));
    let both = format!("SELECT string_agg(value::text, ' and ' ORDER BY shard) FROM {SCHEMA}.hermitage");
    let (mut b, mut c) = (rows.open("b")?, rows.open("c")?);
    let half = b.value(script, &both)?;
    c.send(script, &add(2, 1))?;
    let sent = Instant::now();
    let is_locked = c.settle(|_| locks.are(1, sent))?.is_none();
    if is_locked {
        c.session.cancel()?;
        c.session.reply_within(super::LIMIT)?;
        script.push(format!("-- {} waits, and is cancelled", c.who));
    }
    prepared[1].0.request(script, &commit)?;
    let whole = rows.referee.quietly(&both)?;
    answer.happened = Some(half != whole && half == "-10 and 0");
    answer.line = format!(
        "b read {half}{}; after the transaction was committed on both, {whole}",
        if is_locked {
            format!(", and a write to {} waited", site.nodes[second].name)
        } else {
            String::new()
        }
    );
    for (_, undo) in &mut prepared {
        undo.settled();
    }
    drop((b, c, prepared));
    rows.remove()
}

/// One of our prepared transactions; rolled back if the script is aborted.
struct Prepared<'a> {
    site: &'a Site,
    node: usize,
    name: &'a str,
    id: Option<u64>,
}

impl Prepared<'_> {
    fn settled(&mut self) {
        if let Some(id) = self.id.take() {
            self.site.journal().forget(id);
        }
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if self.id.is_none() {
            return;
        }
        let gone = ScriptedSession::open("referee", &self.site.nodes[self.node]).and_then(|mut referee| {
            let there =
                format!("select count(*) from pg_catalog.pg_prepared_xacts where gid = '{}'", self.name);
            if referee.quietly(&there)? == "1" {
                referee.quietly(&format!("ROLLBACK PREPARED '{}'", self.name))?;
            }
            Ok(())
        });
        // Otherwise the journal has it, for `prove --heal`.
        if gone.is_ok() {
            self.settled();
        }
    }
}
