//! Cases of a primary and a standby that follows it: long forks, cancelled waits, stale reads.

use connect::{cluster_file::Role, sql, waiting};

use engines::profile::Case;

use super::super::{Answer, HermitageError};
use super::{LIMIT, LOOK, PendingUndo, ScriptedSession, Stage, expected, of_role, stale_reads, timed_out};
use crate::fault::Site;
use crate::live::tables::{SCHEMA, Shape, Tables};
use engines::profile::Isolation;

const SHAPE: Shape =
    Shape { name: "hermitage", columns: "id int not null, value int not null", key: Some("shard, id") };
/// What replays and what does not.
const RESUME: &str = "select pg_catalog.pg_wal_replay_resume() where pg_catalog.pg_is_in_recovery() and pg_catalog.pg_is_wal_replay_paused()";
const PAUSED: &str = "select pg_catalog.pg_get_wal_replay_pause_state() = 'paused'";

/// Runs all cases, with the first standby.
pub(super) fn play(stage: &mut Stage<'_>) -> Result<(), HermitageError> {
    let site = stage.site;
    let (primary, Some(standby)) = (site.primary(), of_role(site, Role::Standby).first().copied()) else {
        return Ok(());
    };
    let (chance, stop) = (*stage.chance, stage.stop);
    let engine = site.engine;
    let both = [primary, standby];
    let answer = Answer {
        level: Some(Isolation::RepeatableRead),
        ..expected(
            Case::LongFork,
            engine,
            "long fork: primary and standby show two writes in opposite orders",
            "primary and standby show commits in one order",
        )
    };
    stage.play(answer, &both, |site, answer| long_fork(site, both, answer))?;
    let answer = expected(
        Case::CancelledWait,
        engine,
        "cancelled wait: a commit whose wait for a standby is cancelled remains, on the primary only",
        "what is acknowledged is on a synchronous standby",
    );
    stage.play(answer, &both, |site, answer| cancelled_wait(site, both, answer))?;
    let answer = Answer {
        level: Some(Isolation::Serializable),
        ..expected(
            Case::Serializable,
            engine,
            "SERIALIZABLE on a standby is refused, so that no client relies on it",
            "SERIALIZABLE is refused where it cannot be kept",
        )
    };
    stage.play(answer, &[], |site, answer| serializable(site, standby, answer))?;
    let (commit, is_synchronous) = waited_for(site, both).unwrap_or_default();
    let is_applied = commit == "remote_apply" && is_synchronous;
    let title = "read your writes: an acknowledged write is missing on the standby";
    let promise = "a standby shows at once what was acknowledged on the primary";
    let own = Answer {
        setting: format!("synchronous_commit = {commit}"),
        ..expected(
            if is_applied { Case::ReadYourWritesApplied } else { Case::ReadYourWrites },
            engine,
            title,
            promise,
        )
    };
    stage.play(own.clone(), &[standby], |site, answer| paused_read(site, both, None, answer))?;
    if !is_applied {
        let answer = Answer {
            setting: "synchronous_commit = remote_apply".to_owned(),
            ..expected(Case::ReadYourWritesApplied, engine, title, promise)
        };
        stage.play(answer, &both, |site, answer| paused_read(site, both, Some("remote_apply"), answer))?;
    }
    let answer = Answer {
        title: "read your writes by chance: read on the standby right after the acknowledgement",
        ..own
    };
    stage.play(answer, &[], |site, answer| {
        let table = Rows::make(site, both)?;
        let nodes = (&site.nodes[primary], &site.nodes[standby]);
        stale_reads(answer, nodes, &format!("{SCHEMA}.hermitage"), chance.reads, stop)?;
        table.remove()
    })
}

/// What commits wait for, and whether they wait for this standby: one outside of the synchronous set may lag.
fn waited_for(site: &Site, [primary, standby]: [usize; 2]) -> Result<(String, bool), HermitageError> {
    let mut referee = ScriptedSession::open("referee", &site.nodes[primary])?;
    let is_synchronous = format!(
        "select coalesce(bool_and(sync_state = 'sync') or bool_or(sync_state = 'sync' and application_name = {}), false) \
         from pg_catalog.pg_stat_replication",
        sql::literal(&site.nodes[standby].name)
    );
    Ok((referee.quietly("show synchronous_commit")?, referee.quietly(&is_synchronous)? == "t"))
}

/// Two rows that the standby also has.
struct Rows<'a> {
    site: &'a Site,
    tables: Option<Tables>,
    referee: ScriptedSession,
    there: ScriptedSession,
}

impl<'a> Rows<'a> {
    fn make(site: &'a Site, [primary, standby]: [usize; 2]) -> Result<Rows<'a>, HermitageError> {
        let tables = Tables::make(site, &[SHAPE])?;
        let mut referee = ScriptedSession::open("referee", &site.nodes[primary])?;
        referee.quietly(&format!("INSERT INTO {SCHEMA}.hermitage VALUES (1, 1, 0), (1, 2, 0)"))?;
        let position = referee.quietly("select pg_catalog.pg_current_wal_insert_lsn()")?;
        let mut there = ScriptedSession::open("referee", &site.nodes[standby])?;
        there.until("replaying", &format!("select pg_catalog.pg_last_wal_replay_lsn() >= '{position}'"))?;
        Ok(Rows { site, tables: Some(tables), referee, there })
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

/// The replay of a standby is paused until this change is undone.
fn pause<'a>(
    site: &'a Site,
    standby: usize,
    session: &mut ScriptedSession,
    script: &mut Vec<String>,
) -> Result<PendingUndo<'a>, HermitageError> {
    let undo = PendingUndo::note(site, standby, vec![RESUME.to_owned()])?;
    session.request(script, "SELECT pg_wal_replay_pause()")?;
    session.until("pausing the replay", PAUSED)?;
    Ok(undo)
}

/// Another value of `synchronous_standby_names` until this change is undone: then the earlier value of ALTER SYSTEM or of the file applies again.
fn wait_for<'a>(
    site: &'a Site,
    primary: usize,
    referee: &mut ScriptedSession,
    names: &str,
    script: &mut Vec<String>,
) -> Result<PendingUndo<'a>, HermitageError> {
    let before = referee.quietly(
        "select coalesce((select setting from pg_catalog.pg_file_settings where name = 'synchronous_standby_names' \
         and sourcefile like '%postgresql.auto.conf' order by seqno desc limit 1), '')",
    )?;
    let back = match before.as_str() {
        "" => "ALTER SYSTEM RESET synchronous_standby_names".to_owned(),
        value => format!("ALTER SYSTEM SET synchronous_standby_names = {}", sql::literal(value)),
    };
    let undo = PendingUndo::note(site, primary, vec![back, "select pg_catalog.pg_reload_conf()".to_owned()])?;
    let no_standby = waiting::NO_STANDBY;
    let mut set = |referee: &mut ScriptedSession, names: &str| {
        referee.request(script, &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"))?;
        referee.request(script, "SELECT pg_reload_conf()")?;
        referee.until("changing a setting", &knows(names))
    };
    // It is not enough that a session has the setting: the checkpointer makes commits wait, and the walsenders determine for which standbys.
    set(referee, no_standby)?;
    referee.until("changing a setting for every standby", waiting::NONE_IS_SYNCHRONOUS)?;
    waiting::until_commits_wait(&site.nodes[primary].spec, LIMIT)?;
    if names != no_standby {
        set(referee, names)?;
        referee.until(
            "becoming synchronous",
            "select count(*) > 0 and bool_and(sync_priority > 0) and bool_or(sync_state = 'sync') \
             from pg_catalog.pg_stat_replication",
        )?;
    }
    Ok(undo)
}

fn knows(names: &str) -> String {
    format!("select pg_catalog.current_setting('synchronous_standby_names') = '{names}'")
}

/// Whether a session waits for a standby.
fn waits(session: &ScriptedSession) -> String {
    format!(
        "select count(*) > 0 from pg_catalog.pg_stat_activity where pid = {} and wait_event = 'SyncRep'",
        session.session.process_id()
    )
}

/// LF: a transaction waits for a standby that does not exist, while the real one has replayed it: it is visible on the standby, but not yet on the primary.
fn long_fork(site: &Site, [primary, standby]: [usize; 2], answer: &mut Answer) -> Result<(), HermitageError> {
    let mut rows = Rows::make(site, [primary, standby])?;
    let at = |who: &str, node: usize| ScriptedSession::open(who, &site.nodes[node]);
    let (mut writer, mut second, mut here) = (at("a", primary)?, at("b", primary)?, at("c", primary)?);
    let mut there = at("d", standby)?;
    let script = &mut answer.script;
    let mut setting = wait_for(site, primary, &mut rows.referee, waiting::NO_STANDBY, script)?;
    // The session that has to wait needs the new setting, too.
    writer.until("changing a setting", &knows(waiting::NO_STANDBY))?;
    writer.request(script, "SET synchronous_commit = on")?;
    writer.send(script, &format!("UPDATE {SCHEMA}.hermitage SET value = 1 WHERE id = 1"))?;
    let replayed = format!("select value = 1 from {SCHEMA}.hermitage where id = 1");
    rows.there.until("replaying", &replayed)?;
    let mut replay = pause(site, standby, &mut there, script)?;
    second.request(script, "SET synchronous_commit = local")?;
    second.request(script, &format!("UPDATE {SCHEMA}.hermitage SET value = 1 WHERE id = 2"))?;
    let both = format!("SELECT string_agg(value::text, ' ' ORDER BY id) FROM {SCHEMA}.hermitage");
    let mut read = |session: &mut ScriptedSession| -> Result<String, HermitageError> {
        session.request(script, &Isolation::RepeatableRead.begin())?;
        let seen = session.value(script, &both)?;
        session.request(script, "COMMIT")?;
        Ok(seen)
    };
    let (on_primary, on_standby) = (read(&mut here)?, read(&mut there)?);
    answer.happened = Some((on_primary.as_str(), on_standby.as_str()) == ("0 1", "1 0"));
    answer.line = format!("the primary showed ({on_primary}), the standby ({on_standby})");
    replay.carry_out()?;
    setting.carry_out()?;
    // The waiting transaction ends when the setting is back and the standby has sent a reply, which it does at once only for new WAL.
    rows.referee.until(
        "becoming synchronous",
        "select pg_catalog.current_setting('synchronous_standby_names') = '' or exists (select from \
         pg_catalog.pg_stat_replication where sync_state in ('sync', 'quorum'))",
    )?;
    rows.referee.quietly(&format!("UPDATE {SCHEMA}.hermitage SET value = 2 WHERE id = 2"))?;
    writer.session.reply_within(LIMIT)?;
    rows.remove()
}

/// SC: a transaction waits for a standby that does not exist; another session cancels the statement, as a client's time limit would.
fn cancelled_wait(
    site: &Site,
    [primary, standby]: [usize; 2],
    answer: &mut Answer,
) -> Result<(), HermitageError> {
    let mut rows = Rows::make(site, [primary, standby])?;
    let mut writer = ScriptedSession::open("a", &site.nodes[primary])?;
    let (mut here, mut there) = (
        ScriptedSession::open("b", &site.nodes[primary])?,
        ScriptedSession::open("c", &site.nodes[standby])?,
    );
    let script = &mut answer.script;
    let mut replay = pause(site, standby, &mut there, script)?;
    let mut setting = wait_for(site, primary, &mut rows.referee, waiting::NO_STANDBY, script)?;
    writer.until("changing a setting", &knows(waiting::NO_STANDBY))?;
    writer.request(script, "SET synchronous_commit = on")?;
    writer.send(script, &format!("UPDATE {SCHEMA}.hermitage SET value = 1 WHERE id = 1"))?;
    rows.referee.until("waiting for a standby", &waits(&writer))?;
    let pid = writer.session.process_id();
    rows.referee.request(script, &format!("SELECT pg_cancel_backend({pid})"))?;
    let reply = writer.session.reply_within(LIMIT)?.ok_or_else(timed_out)?;
    // By its SQLSTATE class: the severity is in the server's language.
    let warning = reply.notices.iter().find(|notice| notice.sqlstate.0.starts_with(b"01"));
    let reported = match (&reply.error, warning) {
        (Some(error), _) => error.sqlstate.to_string(),
        (None, Some(warning)) => format!("{} with WARNING {}", reply.tag(), warning.sqlstate),
        (None, None) => reply.tag().to_owned(),
    };
    script.push(format!("-- a got {reported}"));
    let read = format!("SELECT value FROM {SCHEMA}.hermitage WHERE id = 1");
    let (on_primary, on_standby) = (here.value(script, &read)?, there.value(script, &read)?);
    let is_there = reply.error.is_none() && on_primary == "1" && on_standby == "0";
    answer.happened = Some(is_there);
    answer.line =
        format!("a got {reported}; b reads {on_primary} on the primary, c {on_standby} on the standby");
    if is_there && warning.is_none() {
        let silent = expected(Case::SilentCancelledWait, site.engine, answer.title, answer.promise);
        (answer.expected, answer.why, answer.change) = (silent.expected, silent.why, silent.change);
    }
    setting.carry_out()?;
    replay.carry_out()?;
    rows.remove()
}

/// ST: SERIALIZABLE on a standby.
fn serializable(site: &Site, standby: usize, answer: &mut Answer) -> Result<(), HermitageError> {
    let mut reader = ScriptedSession::open("a", &site.nodes[standby])?;
    let reply = reader.try_request(&mut answer.script, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1")?;
    answer.happened = Some(reply.error.is_none());
    answer.line = match &reply.error {
        Some(error) => format!("a {}: {}", error.sqlstate, error.message),
        None => "a standby gave a SERIALIZABLE transaction".to_owned(),
    };
    Ok(())
}

/// RYW: a write that the primary has acknowledged, read on a standby whose replay is paused. `commit`: with this setting instead of the server's, and every
/// standby synchronous.
fn paused_read(
    site: &Site,
    [primary, standby]: [usize; 2],
    commit: Option<&str>,
    answer: &mut Answer,
) -> Result<(), HermitageError> {
    let mut rows = Rows::make(site, [primary, standby])?;
    let mut writer = ScriptedSession::open("a", &site.nodes[primary])?;
    let mut reader = ScriptedSession::open("b", &site.nodes[standby])?;
    let script = &mut answer.script;
    let mut setting = None;
    if let Some(commit) = commit {
        let count = rows.referee.quietly("select count(*) from pg_catalog.pg_stat_replication")?;
        if count == "0" {
            answer.is_impossible = true;
            answer.line = "no standby is connected to the primary".to_owned();
            return rows.remove();
        }
        let names = format!("FIRST {count} (*)");
        setting = Some(wait_for(site, primary, &mut rows.referee, &names, script)?);
        writer.until("changing a setting", &knows(&names))?;
        writer.request(script, &format!("SET synchronous_commit = {commit}"))?;
    }
    let mode = writer.quietly("show synchronous_commit")?;
    let mut replay = pause(site, standby, &mut reader, script)?;
    writer.send(script, &format!("UPDATE {SCHEMA}.hermitage SET value = 1 WHERE id = 1"))?;
    let waits = waits(&writer);
    let deadline = std::time::Instant::now() + LIMIT;
    let is_acknowledged = loop {
        if writer.session.reply_within(LOOK)?.is_some() {
            break true;
        }
        // With remote_apply the writer waits for this replay, so the promise is kept.
        if mode == "remote_apply" && rows.referee.quietly(&waits)? == "t" {
            break false;
        }
        if std::time::Instant::now() > deadline {
            let message = format!("it got no reply for {} s", LIMIT.as_secs());
            return Err(HermitageError::Refused { doing: "writing on the primary", message });
        }
    };
    let read = reader.value(script, &format!("SELECT value FROM {SCHEMA}.hermitage WHERE id = 1"))?;
    answer.happened = Some(is_acknowledged && read == "0");
    answer.line = match is_acknowledged {
        true => {
            format!("a got COMMIT for 1 (synchronous_commit = {mode}), b read {read} afterwards")
        }
        false => {
            format!("a gets COMMIT only after the standby has replayed it (synchronous_commit = {mode})")
        }
    };
    replay.carry_out()?;
    if !is_acknowledged {
        writer.session.reply_within(LIMIT)?;
    }
    if let Some(setting) = &mut setting {
        setting.carry_out()?;
    }
    rows.remove()
}
