//! Scripted cases that need more than one node: what a cluster of PostgreSQL servers does not promise, shown once and without luck.
//!
//! | case | nodes | shows |
//! |---|---|---|
//! | FR2 | shards by postgres_fdw | a REPEATABLE READ transaction sees half of a transfer between two shards: each node's snapshot begins with its first use |
//! | DD | shards by postgres_fdw | a deadlock over two nodes that no server sees |
//! | ST | primary, standby | SERIALIZABLE is refused on a standby |
//! | RYW | primary, standby | a write that was acknowledged on the primary is not there on the standby |
//! | LF | primary, standby | long fork: primary and standby show two writes in opposite orders |
//!
//! [`long_fork`] changes a setting of the primary for a moment and pauses the standby's replay; it takes both back whatever happens, and must be asked for.

use std::time::{Duration, Instant};

use target::ConnSpec;

use super::{Answer, HermitageError, MARKER, TABLE};
use crate::history::Isolation;
use crate::talk::{Reply, Session};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How long a condition is waited for: generous, since nothing depends on it but a broken cluster.
const LIMIT: Duration = Duration::from_secs(60);

/// A node by name.
#[derive(Clone, Debug)]
pub struct Node {
    /// As in the cluster file.
    pub name: String,
    /// How to reach it.
    pub spec: ConnSpec,
}

/// A session that keeps a script of what it was asked.
struct Player {
    who: String,
    session: Session,
}

impl Player {
    fn open(who: &str, node: &Node) -> Result<Player, HermitageError> {
        Ok(Player { who: format!("{who} on {}", node.name), session: Session::open(&node.spec)? })
    }

    /// Asks; a refusal is a broken script.
    fn ask(&mut self, script: &mut Vec<String>, sql: &str) -> Result<Reply, HermitageError> {
        let reply = self.try_ask(script, sql)?;
        match &reply.error {
            None => Ok(reply),
            Some(error) => Err(HermitageError::Refused {
                doing: "a statement of the script",
                message: format!("{sql}: {error}"),
            }),
        }
    }

    fn try_ask(&mut self, script: &mut Vec<String>, sql: &str) -> Result<Reply, HermitageError> {
        script.push(format!("{}: {sql};", self.who));
        Ok(self.session.ask(sql, LIMIT)?)
    }

    fn send(&mut self, script: &mut Vec<String>, sql: &str) -> Result<(), HermitageError> {
        script.push(format!("{}: {sql};", self.who));
        Ok(self.session.send(sql)?)
    }

    fn value(&mut self, script: &mut Vec<String>, sql: &str) -> Result<String, HermitageError> {
        Ok(self.ask(script, sql)?.text(0).unwrap_or_default())
    }

    /// The same without a line in the script: what only the referee does.
    fn quietly(&mut self, sql: &str) -> Result<String, HermitageError> {
        self.value(&mut Vec::new(), sql)
    }

    /// Waits until a query says `t`.
    fn until(&mut self, what: &'static str, sql: &str) -> Result<(), HermitageError> {
        let deadline = Instant::now() + LIMIT;
        while self.quietly(sql)? != "t" {
            if Instant::now() > deadline {
                let message = format!("it did not happen within {} s", LIMIT.as_secs());
                return Err(HermitageError::Refused { doing: what, message });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

fn answer(case: &'static str, title: &'static str, level: Isolation, expected: bool) -> Answer {
    Answer {
        case,
        title,
        level,
        expected: Some(expected),
        expected_line: None,
        happened: None,
        line: String::new(),
        script: Vec::new(),
    }
}

/// A table of ours on a node, with two rows; another one's is left alone.
fn make_table(node: &mut Player) -> Result<(), HermitageError> {
    let found = node.quietly(&format!(
        "select coalesce(obj_description(to_regclass('{TABLE}'), 'pg_class'), to_regclass('{TABLE}')::text, '')"
    ))?;
    if !found.is_empty() && found != MARKER {
        return Err(HermitageError::ForeignTable);
    }
    node.quietly(&format!("DROP TABLE IF EXISTS {TABLE}"))?;
    node.quietly(&format!("CREATE TABLE {TABLE} (id int PRIMARY KEY, value int)"))?;
    node.quietly(&format!("COMMENT ON TABLE {TABLE} IS '{MARKER}'"))?;
    node.quietly(&format!("INSERT INTO {TABLE} VALUES (1, 0), (2, 0)"))?;
    Ok(())
}

/// Two shards: a table on each of two nodes, the far one seen from the entry by postgres_fdw under the name `_far`.
struct Shards<'a> {
    entry: &'a Node,
    home: Player,
    away: Player,
}

impl<'a> Shards<'a> {
    fn make(entry: &'a Node, far: &Node) -> Result<Shards<'a>, HermitageError> {
        let mut shards =
            Shards { entry, home: Player::open("referee", entry)?, away: Player::open("referee", far)? };
        make_table(&mut shards.home)?;
        make_table(&mut shards.away)?;
        shards.home.quietly(&format!("DROP FOREIGN TABLE IF EXISTS {TABLE}_far"))?;
        shards.home.quietly(&format!(
            "CREATE FOREIGN TABLE {TABLE}_far (id int, value int) SERVER {} OPTIONS (schema_name 'public', table_name '{TABLE}')",
            far.name
        ))?;
        Ok(shards)
    }

    fn drop(mut self) -> Result<(), HermitageError> {
        self.home.quietly(&format!("DROP FOREIGN TABLE {TABLE}_far"))?;
        self.home.quietly(&format!("DROP TABLE {TABLE}"))?;
        self.away.quietly(&format!("DROP TABLE {TABLE}"))?;
        Ok(())
    }
}

/// FR2: a reader between the two halves of a transfer from one shard to the other.
///
/// # Errors
/// When the nodes cannot be reached, or the script breaks off.
pub fn fractured_sum(entry: &Node, far: &Node, level: Isolation) -> Result<Answer, HermitageError> {
    let title = "fractured sum: a transfer between two shards is seen on one of them only";
    // One server would prevent it at REPEATABLE READ and above. Here nobody promises it at any level.
    let mut answer = answer("FR2", title, level, true);
    let shards = Shards::make(entry, far)?;
    let script = &mut answer.script;
    let mut reader = Player::open("a", shards.entry)?;
    let mut writer = Player::open("b", shards.entry)?;
    reader.ask(script, &format!("BEGIN ISOLATION LEVEL {}", level.sql()))?;
    let near = reader.value(script, &format!("SELECT value FROM {TABLE} WHERE id = 1"))?;
    writer.ask(script, &format!("BEGIN ISOLATION LEVEL {}", level.sql()))?;
    writer.ask(script, &format!("UPDATE {TABLE} SET value = value - 10 WHERE id = 1"))?;
    writer.ask(script, &format!("UPDATE {TABLE}_far SET value = value + 10 WHERE id = 1"))?;
    let committed = writer.ask(script, "COMMIT")?;
    let distant = reader.value(script, &format!("SELECT value FROM {TABLE}_far WHERE id = 1"))?;
    let last = reader.try_ask(script, "COMMIT")?;
    let ended = last.sqlstate().map_or_else(|| last.tag().to_owned(), str::to_owned);
    answer.happened = Some((near.as_str(), distant.as_str(), last.tag()) == ("0", "10", "COMMIT"));
    answer.line = format!("a read {near} here and {distant} there, {ended}; b {}", committed.tag());
    drop((reader, writer));
    shards.drop()?;
    Ok(answer)
}

/// DD: two transactions lock rows of two nodes in opposite order. `patience` is how long it is watched where nothing else ends it.
///
/// # Errors
/// As [`fractured_sum`].
pub fn distributed_deadlock(entry: &Node, far: &Node, patience: Duration) -> Result<Answer, HermitageError> {
    let title =
        "distributed deadlock: two transactions wait for each other on two nodes, and no server sees it";
    let mut answer = answer("DD", title, Isolation::ReadCommitted, true);
    let mut shards = Shards::make(entry, far)?;
    let script = &mut answer.script;
    let mut a = Player::open("a", shards.entry)?;
    let mut b = Player::open("b", shards.entry)?;
    a.ask(script, "BEGIN ISOLATION LEVEL READ COMMITTED")?;
    b.ask(script, "BEGIN ISOLATION LEVEL READ COMMITTED")?;
    a.ask(script, &format!("UPDATE {TABLE} SET value = 1 WHERE id = 1"))?;
    b.ask(script, &format!("UPDATE {TABLE}_far SET value = 2 WHERE id = 1"))?;
    b.send(script, &format!("UPDATE {TABLE} SET value = 2 WHERE id = 1"))?;
    let waits = format!("select pg_catalog.pg_blocking_pids({}) <> '{{}}'", b.session.process_id());
    shards.home.until("waiting for the first lock", &waits)?;
    a.send(script, &format!("UPDATE {TABLE}_far SET value = 1 WHERE id = 1"))?;
    let far_waits = format!(
        "select count(*) > 0 from pg_catalog.pg_stat_activity where pg_catalog.pg_blocking_pids(pid) <> '{{}}' and query like '%{TABLE}%'
            and datname = pg_catalog.current_database()"
    );
    shards.away.until("waiting for the second lock", &far_waits)?;
    let seen = Instant::now();
    // Whoever is refused ends it: a detector says 40P01, a time limit something else. The other one then goes on, and may be heard first.
    let ended = loop {
        let mut refused = None;
        for (who, player) in [("a", &mut a), ("b", &mut b)] {
            if refused.is_none()
                && let Some(reply) = player.session.reply_within(LOOK)?
            {
                refused = reply.sqlstate().map(|code| (who, code.to_owned()));
            }
        }
        if refused.is_some() || seen.elapsed() >= patience {
            break refused;
        }
    };
    answer.happened = Some(ended.as_ref().is_none_or(|(_, code)| code != "40P01"));
    answer.line = match ended {
        Some((who, code)) if code == "40P01" => format!("{who} {code}: a deadlock detector ended it"),
        Some((who, code)) => format!(
            "a and b wait for each other; {who} {code}: a time limit ended it, no server saw the deadlock"
        ),
        None => format!(
            "a and b waited for each other for {:.1} s, no server saw it",
            seen.elapsed().as_secs_f64()
        ),
    };
    // Cancelled by their sessions' ends.
    drop((a, b));
    shards.drop()?;
    Ok(answer)
}

/// ST: SERIALIZABLE on a standby.
///
/// # Errors
/// As [`fractured_sum`].
pub fn serializable_on_standby(standby: &Node) -> Result<Answer, HermitageError> {
    let title = "SERIALIZABLE on a standby is refused, so that nobody relies on it";
    let mut answer = answer("ST", title, Isolation::Serializable, false);
    let mut reader = Player::open("a", standby)?;
    let reply = reader.try_ask(&mut answer.script, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1")?;
    answer.happened = Some(reply.error.is_none());
    answer.line = match &reply.error {
        Some(error) => format!("a {}: {}", error.sqlstate, error.message),
        None => "a standby gave a SERIALIZABLE transaction".to_string(),
    };
    Ok(answer)
}

/// Gives back what a case has changed, also when it breaks off.
struct Undo<'a> {
    node: &'a Node,
    sql: Vec<String>,
}

impl Undo<'_> {
    fn now(&mut self) {
        if self.sql.is_empty() {
            return;
        }
        if let Ok(mut player) = Player::open("undo", self.node) {
            for sql in self.sql.drain(..).rev() {
                let _ = player.quietly(&sql);
            }
        }
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.now();
    }
}

/// Waits until a standby has replayed all that the primary has written.
fn catch_up(primary: &mut Player, standby: &mut Player) -> Result<(), HermitageError> {
    let position = primary.quietly("select pg_catalog.pg_current_wal_insert_lsn()")?;
    standby.until("replaying", &format!("select pg_catalog.pg_last_wal_replay_lsn() >= '{position}'"))
}

/// RYW: what the primary has acknowledged, read on a standby that has not replayed it.
///
/// # Errors
/// As [`fractured_sum`].
pub fn read_your_writes(primary: &Node, standby: &Node) -> Result<Answer, HermitageError> {
    let title = "read your writes: an acknowledged write is not there on the standby";
    let mut answer = answer("RYW", title, Isolation::ReadCommitted, true);
    let mut writer = Player::open("a", primary)?;
    let mut referee = Player::open("referee", primary)?;
    let mut reader = Player::open("b", standby)?;
    make_table(&mut referee)?;
    catch_up(&mut referee, &mut reader)?;
    let commit = referee.quietly("show synchronous_commit")?;
    let script = &mut answer.script;
    let mut undo = Undo { node: standby, sql: vec!["select pg_catalog.pg_wal_replay_resume()".to_string()] };
    reader.ask(script, "SELECT pg_wal_replay_pause()")?;
    reader.until("pausing the replay", "select pg_catalog.pg_get_wal_replay_pause_state() = 'paused'")?;
    writer.send(script, &format!("UPDATE {TABLE} SET value = 1 WHERE id = 1"))?;
    let waits = format!(
        "select count(*) > 0 from pg_catalog.pg_stat_activity where pid = {} and wait_event = 'SyncRep'",
        writer.session.process_id()
    );
    let deadline = Instant::now() + LIMIT;
    let acknowledged = loop {
        if writer.session.reply_within(LOOK)?.is_some() {
            break true;
        }
        // With remote_apply the writer waits for this very replay, and the promise is kept by waiting.
        if commit == "remote_apply" && referee.quietly(&waits)? == "t" {
            break false;
        }
        if Instant::now() > deadline {
            let message = format!("it had no answer for {} s", LIMIT.as_secs());
            return Err(HermitageError::Refused { doing: "writing on the primary", message });
        }
    };
    let read = reader.value(script, &format!("SELECT value FROM {TABLE} WHERE id = 1"))?;
    answer.happened = Some(acknowledged && read == "0");
    answer.line = match acknowledged {
        true => format!(
            "a was told that 1 is committed (synchronous_commit = {commit}), b read {read} afterwards"
        ),
        false => format!("a is not told before the standby has replayed it (synchronous_commit = {commit})"),
    };
    undo.now();
    drop(writer);
    referee.quietly(&format!("DROP TABLE {TABLE}"))?;
    Ok(answer)
}

/// LF: primary and standby show two writes in opposite orders. A transaction waits for a standby that does not exist, while the one that exists has replayed
/// it: there it is visible, on the primary it is not yet. Changes `synchronous_standby_names` for a moment, so only for clusters that may be disturbed.
///
/// # Errors
/// As [`fractured_sum`].
pub fn long_fork(primary: &Node, standby: &Node) -> Result<Answer, HermitageError> {
    let title = "long fork: primary and standby show two writes in opposite orders";
    let mut answer = answer("LF", title, Isolation::RepeatableRead, true);
    let mut referee = Player::open("referee", primary)?;
    let mut writer = Player::open("a", primary)?;
    let mut second = Player::open("b", primary)?;
    let mut here = Player::open("c", primary)?;
    let mut there = Player::open("d", standby)?;
    make_table(&mut referee)?;
    catch_up(&mut referee, &mut there)?;
    let script = &mut answer.script;
    // What ALTER SYSTEM had set before comes back; otherwise the file's value does.
    let before = referee.quietly(
        "select coalesce((select setting from pg_catalog.pg_file_settings where name = 'synchronous_standby_names'
            and sourcefile like '%postgresql.auto.conf' order by seqno desc limit 1), '')",
    )?;
    let back = match before.as_str() {
        "" => "ALTER SYSTEM RESET synchronous_standby_names".to_string(),
        value => format!("ALTER SYSTEM SET synchronous_standby_names = '{}'", value.replace('\'', "''")),
    };
    let mut undo = Undo { node: primary, sql: vec!["select pg_catalog.pg_reload_conf()".to_string(), back] };
    let mut resume =
        Undo { node: standby, sql: vec!["select pg_catalog.pg_wal_replay_resume()".to_string()] };
    referee.ask(script, "ALTER SYSTEM SET synchronous_standby_names = 'nosuch'")?;
    referee.ask(script, "SELECT pg_reload_conf()")?;
    referee.until(
        "changing a setting",
        "select pg_catalog.current_setting('synchronous_standby_names') = 'nosuch'",
    )?;
    // The session that is to wait must know the setting too.
    writer.until(
        "changing a setting",
        "select pg_catalog.current_setting('synchronous_standby_names') = 'nosuch'",
    )?;
    writer.ask(script, "SET synchronous_commit = on")?;
    writer.send(script, &format!("UPDATE {TABLE} SET value = 1 WHERE id = 1"))?;
    there.until("replaying", &format!("select value = 1 from {TABLE} where id = 1"))?;
    there.ask(script, "SELECT pg_wal_replay_pause()")?;
    there.until("pausing the replay", "select pg_catalog.pg_get_wal_replay_pause_state() = 'paused'")?;
    second.ask(script, "SET synchronous_commit = local")?;
    second.ask(script, &format!("UPDATE {TABLE} SET value = 1 WHERE id = 2"))?;
    let both = format!("SELECT string_agg(value::text, ' ' ORDER BY id) FROM {TABLE}");
    let mut read = |player: &mut Player| -> Result<String, HermitageError> {
        player.ask(script, "BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        let seen = player.value(script, &both)?;
        player.ask(script, "COMMIT")?;
        Ok(seen)
    };
    let (on_primary, on_standby) = (read(&mut here)?, read(&mut there)?);
    answer.happened = Some((on_primary.as_str(), on_standby.as_str()) == ("0 1", "1 0"));
    answer.line = format!("the primary showed ({on_primary}), the standby ({on_standby})");
    resume.now();
    undo.now();
    // The waiting transaction ends when the setting is back.
    writer.session.reply_within(LIMIT)?;
    referee.quietly(&format!("DROP TABLE {TABLE}"))?;
    Ok(answer)
}
