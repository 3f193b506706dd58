//! The query of every tick, in one statement: sessions, counters, WAL, checkpoints, standbys, slots.
//!
//! The server counts sessions and returns sums, so a tick with a thousand sessions costs as much to read as one with ten. Only
//! remarkable sessions are returned individually.

use crate::board::{NodeState, Process};
use crate::collect::Batch;
use crate::host::schedule::{BACKENDS_MAX, SESSIONS_MAX};
use crate::sql::connected;
use crate::sql::counters::Counters;
use crate::sql::json::{self, age, count, flag, list, number, text};
use crate::sql::probe::{Probe, column};
use crate::sql::sampled;
use crate::sql::standbys;
use record::watched::{Activity, Horizon, NAMED_AGE_S, NAMED_MAX, Server, Session, Slot, WAIT_CPU};
use serde_json::Value;
use std::collections::HashMap;

/// Snapshots younger than this many transactions hold back little.
const HORIZON_XIDS: u32 = 100_000;
/// The same for standbys and slots, which are always there and always a little behind.
const FOLLOWER_XIDS: u64 = 1000;
/// What serves a client's session.
const BACKEND: &str = "backend_type in ('client backend', 'parallel worker')";
/// Active processes passed to the collector of the host.
const PROCESSES_MAX: u32 = 256;
/// Those of them whose texts come with them.
const TEXTS_MAX: u32 = 32;
/// Waiting sessions whose blockers are looked for.
pub(crate) const LOCKERS_MAX: u32 = 32;
/// Groups of active sessions named per tick.
const GROUPS_MAX: u32 = 20;
/// Characters of a statement that are kept.
pub(crate) const QUERY_CHARS: u32 = 200;
/// Commands that report progress begin with one of these.
const REPORTING: &str = "'^[[:space:](]*(vacuum|analyze|copy|create|reindex|cluster|repack|alter|refresh|import|base_backup|autovacuum)'";

const DATABASE: &[&str] = &[
    "xact_commit",
    "xact_rollback",
    "tup_inserted",
    "tup_updated",
    "tup_deleted",
    "tup_returned",
    "tup_fetched",
    "blks_read",
    "blks_hit",
    "temp_bytes",
    "temp_files",
    "deadlocks",
    // From 14 on: milliseconds that sessions spent in a state, and how many were opened.
    "active_time",
    "idle_in_transaction_time",
    "sessions",
    "conflicts",
];
/// Rows written to the catalog of relations: no view of users' tables shows temporary ones that come and go.
const CATALOG: &[&str] = &["relations_made"];
const CHECKPOINTS: &[&str] = &[
    "timed",
    "requested",
    "buffers",
    "write_ms",
    "sync_ms",
    "backend_fsync",
    "backend_writes",
    "cleaner_stops",
];
const WAL: &[&str] = &["wal_records", "wal_fpi", "wal_buffers_full"];

/// The results of the tick's query besides lines.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Moment {
    /// Processes that wait for a lock, the longest first.
    pub(crate) lockers: Vec<i32>,
    /// Whether something may report progress.
    pub(crate) reports: bool,
    /// Sessions whose state is hidden from us.
    pub(crate) masked: u64,
    /// `pg_postmaster_start_time`, microseconds since the Unix epoch.
    pub(crate) started_us: i64,
    /// `pg_conf_load_time`, likewise.
    pub(crate) loaded_us: i64,
    /// The counters that decreased, for the event.
    pub(crate) resets: Vec<&'static str>,
    /// Checkpoint counters: timed, requested, and their times.
    pub(crate) checkpoints: Option<Server>,
}

/// The query for a server with the columns that `probe` found. `ours` is the `application_name` of the sessions that we drive.
pub(crate) fn question(probe: &Probe, ours: &str) -> String {
    // Any role can choose the name.
    let is_ours = format!(
        "client and application_name = {} and pg_catalog.pg_get_userbyid(usesysid) = session_user",
        connect::sql::literal(ours)
    );
    let query_id = column(&probe.activity_columns, "query_id", "null::bigint");
    let leader = column(&probe.activity_columns, "leader_pid", "null::int");
    let tls = column(&probe.activity_columns, "ssl", "null::boolean");
    let lsn = "case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn() else pg_catalog.pg_current_wal_insert_lsn() end";
    let there = DATABASE.iter().filter(|name| probe.database.contains(**name));
    let sums: Vec<String> = there.map(|name| format!("sum({name}) {name}")).collect();
    let sampled = sampled::text(probe, BACKEND);
    let mut parts = processes_sql(&is_ours);
    parts.extend(named_sql());
    parts.push(connected::question());
    parts.extend([
        format!("'database', (select row_to_json(d) from (select {}, count(*) || '/' || sum(datid::bigint) as listed \
            from pg_catalog.pg_stat_database) d)", sums.join(", ")),
        "'catalog', json_build_object('relations_made', pg_catalog.pg_stat_get_tuples_inserted('pg_catalog.pg_class'::pg_catalog.regclass))".to_string(),
        "'prepared', (select row_to_json(p) from (select count(*) n, extract(epoch from clock_timestamp() - min(prepared)) age_s from \
            pg_catalog.pg_prepared_xact()) p)".to_string(),
        format!("'position', pg_catalog.pg_wal_lsn_diff({lsn}, '0/0')"),
        "'recovery', pg_catalog.pg_is_in_recovery()".to_string(),
        "'archived_failed', (select failed_count from pg_catalog.pg_stat_archiver)".to_string(),
        "'archived_last', (select last_archived_wal from pg_catalog.pg_stat_archiver where pg_catalog.current_setting('archive_mode', true) in \
            ('on', 'always'))".to_string(),
        "'segment', pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size', true))".to_string(),
        "'started', (extract(epoch from pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint".to_string(),
        "'loaded', (extract(epoch from pg_catalog.pg_conf_load_time()) * 1000000)::bigint".to_string(),
        format!("'checkpoints', {}", checkpoints(probe)),
        "'sessions_max', pg_catalog.current_setting('max_connections')::bigint".to_string(),
    ]);
    if probe.has_replay_pause {
        // The function is an error on a primary, so it must not be called there.
        parts.push(
            "'replay_paused', case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_is_wal_replay_paused() end"
                .to_string(),
        );
    }
    if probe.has_notify_queue {
        parts.push("'notify_queue', pg_catalog.pg_notification_queue_usage()".to_string());
    }
    if !probe.wal.is_empty() {
        let names: Vec<&str> = WAL.iter().map(|name| column(&probe.wal, name, "null")).collect();
        parts.push(format!(
            "'wal', (select json_build_object('wal_records', {}, 'wal_fpi', {}, 'wal_buffers_full', {}) from pg_catalog.pg_stat_wal)",
            names[0], names[1], names[2]
        ));
    }
    parts.extend(standbys::question(probe, lsn));
    parts.extend(standbys::own_question(probe));
    parts.extend(slots_sql(probe, lsn));
    let daemons = daemons(probe);
    format!(
        "with a as materialized (select *, backend_type = 'client backend' and not ({daemons}) client,
             state = 'active' and query ~* {REPORTING} or query = '<insufficient privilege>' or backend_type = 'walsender' and query ~* 'base_backup' reports
           from (select pid, backend_type, case when {daemons} then 'idle' else coalesce(state, '') end state, coalesce(wait_event_type, '') wait_type, \
           coalesce(wait_event, '') wait_event, {query_id} query_id,
             {leader} leader_pid, xact_start, query_start, state_change, backend_start, backend_xid, backend_xmin, usesysid, datid, application_name, \
             client_addr, {tls} tls,
             {sampled} sampled, pg_catalog.left(query, {QUERY_CHARS}) query
           from {} where pid <> pg_catalog.pg_backend_pid()) r)
         select json_build_object({})::text",
        probe.activity,
        parts.join(",\n")
    )
}

/// A condition: whether a session is one of the engine that serves no client.
fn daemons(probe: &Probe) -> String {
    let begins = |begin: &&str| {
        format!("pg_catalog.left(application_name, {}) = {}", begin.len(), connect::sql::literal(begin))
    };
    let all: Vec<String> = probe.own.iter().flat_map(|own| own.daemons).map(begins).collect();
    if all.is_empty() {
        return "false".to_string();
    }
    // Any role can choose the name; an engine's own sessions are those of a superuser, or of no role.
    let of_engine = "coalesce((select rolsuper from pg_catalog.pg_roles where oid = usesysid), true)";
    format!("coalesce(({}) and {of_engine}, false)", all.join(" or "))
}

/// The part about sessions and holders of the horizon that are returned one by one, and about the groups of active sessions.
fn named_sql() -> Vec<String> {
    vec![
        format!("'sessions', (select json_agg(s) from (select pid, backend_type backend, application_name application, \
            pg_catalog.pg_get_userbyid(usesysid) \"user\", (select datname from pg_catalog.pg_database where oid = datid) \"database\", backend_start::text,
            state, wait_type, wait_event, extract(epoch from clock_timestamp() - xact_start) xact_age_s, extract(epoch from clock_timestamp() - state_change) \
            state_age_s,
            pg_catalog.age(backend_xmin) xmin_age_xids, query_id::text query_id, query
          from a where client and (xact_start < clock_timestamp() - interval '{NAMED_AGE_S} s'
            or state like 'idle in transaction%' and state_change < clock_timestamp() - interval '1 s'
            or query ~* '^[[:space:]]*checkpoint') order by xact_start limit {NAMED_MAX}) s)"),
        format!("'horizon', (select json_agg(h) from (select * from (select case backend_type when 'walsender' then 'standby' else 'session' end \
            kind, application_name as name, pid,
              greatest(pg_catalog.age(backend_xmin), pg_catalog.age(backend_xid)) age_xids, extract(epoch from clock_timestamp() - coalesce(xact_start, \
              backend_start)) age_s
            from a where coalesce(backend_xmin, backend_xid) is not null and query !~* '^(autovacuum: )?vacuum'
            union all select 'prepared', gid, null, pg_catalog.age(transaction), extract(epoch from clock_timestamp() - prepared) from \
            pg_catalog.pg_prepared_xact()) h
          where age_xids >= {HORIZON_XIDS} or age_s >= {NAMED_AGE_S} and kind <> 'standby' or kind = 'standby' and age_xids >= {FOLLOWER_XIDS} order by \
          age_xids desc, age_s desc limit {NAMED_MAX}) h)"),
        format!("'activity', (select json_agg(g) from (select application_name application, pg_catalog.pg_get_userbyid(usesysid) \"user\",
            (select datname from pg_catalog.pg_database where oid = datid) \"database\", coalesce(pg_catalog.host(client_addr), 'local') client, count(*) \
            sessions
          from a where client and state = 'active' group by application_name, usesysid, datid, client_addr order by 5 desc limit {GROUPS_MAX}) g)"),
    ]
}

/// The part about replication slots; `None` without the view.
fn slots_sql(probe: &Probe, lsn: &str) -> Option<String> {
    if !probe.slots.contains("restart_lsn") {
        return None;
    }
    let (spill, join) = if probe.slot_statistics.contains("spill_bytes") {
        (
            ", t.spill_bytes, t.spill_txns",
            " left join pg_catalog.pg_stat_replication_slots t using (slot_name)",
        )
    } else {
        ("", "")
    };
    let inactive = column(&probe.slots, "inactive_since", "null::timestamptz");
    Some(format!(
        "'slots', (select json_agg(r) from (select s.slot_name slot, s.slot_type kind, s.active, {} wal_status, {} safe_wal_bytes,
            pg_catalog.pg_wal_lsn_diff({lsn}, s.restart_lsn) retained_bytes,
            pg_catalog.pg_wal_lsn_diff(s.confirmed_flush_lsn, '0/0') confirmed_bytes, extract(epoch from clock_timestamp() - {inactive}) inactive_s,
            pg_catalog.age(s.xmin) xmin_age, pg_catalog.age(s.catalog_xmin) catalog_xmin_age{spill} from pg_catalog.pg_replication_slots s{join}) r)",
        column(&probe.slots, "wal_status", "null::text"),
        column(&probe.slots, "safe_wal_size", "null::bigint"),
    ))
}

/// The part of the query about all processes: counts, and the ids of those that others look at.
fn processes_sql(is_ours: &str) -> Vec<String> {
    vec![
        format!("'waits', (select json_agg(w) from (select backend_type backend, state, case wait_type when '' then '{WAIT_CPU}' else wait_type end wait_type,
            case wait_type when '' then '{WAIT_CPU}' else wait_event end wait_event, query_id::text query_id, sampled,
            case when sampled is not null then (select datname from pg_catalog.pg_database where oid = datid) end \"database\",
            case when sampled is not null then pg_catalog.pg_get_userbyid(usesysid) end \"user\", count(*) sessions
          from a where backend_type is not null and state <> 'idle' and wait_type <> 'Activity' group by 1, 2, 3, 4, 5, 6, 7, 8) w)"),
        format!("'counts', (select row_to_json(c) from (select count(*) filter (where client) total, count(*) filter (where client and state = 'active') active,
            count(*) filter (where client and state like 'idle in transaction%') idle_in_transaction, count(*) filter (where wait_type = 'Lock') waiting_lock,
            count(*) filter (where backend_type = 'autovacuum worker') autovacuum, count(*) filter (where backend_type is null) masked,
            extract(epoch from clock_timestamp() - min(xact_start) filter (where client)) oldest, count(*) filter (where {is_ours}) ours,
            count(*) filter (where {BACKEND}) backends, count(*) filter (where client and tls) tls,
            coalesce(bool_or(reports), false) reports from a) c)"),
        format!("'ours', (select json_agg(pid) from (select pid from a where {is_ours} order by pid limit {SESSIONS_MAX}) o)"),
        // Those at work first: with more than can be read, they are the ones that have used something.
        format!("'backends', (select json_agg(pid) from (select pid from a where {BACKEND}
          order by state = 'active' desc, state_change desc nulls last limit {BACKENDS_MAX}) o)"),
        // Texts are long: they are requested of a few that use the CPU, and only where no id names their statement.
        format!("'processes', (select json_agg(json_build_array(pid, backend_type, case wait_type when '' then '' else wait_type || ':' || wait_event end,
              query_id::text, case when number <= {TEXTS_MAX} then sampled end))
          from (select a.*, row_number() over (order by wait_type) number from a
            where backend_type is not null and state <> 'idle' and wait_type <> 'Activity' limit {PROCESSES_MAX}) p)"),
        format!("'lockers', (select json_agg(pid) from (select pid from a where wait_type = 'Lock' order by query_start limit {LOCKERS_MAX}) l)"),
    ]
}

/// The checkpointer's counters under names of our own.
fn checkpoints(probe: &Probe) -> String {
    let old = &probe.bgwriter;
    // With the statistics of I/O the count of syncs by backends moved there.
    let fsync = if old.contains("buffers_backend_fsync") {
        "(select buffers_backend_fsync from pg_catalog.pg_stat_bgwriter)"
    } else if probe.io.contains("fsyncs") {
        "(select sum(fsyncs) from pg_catalog.pg_stat_io where backend_type = 'client backend')"
    } else {
        "null"
    };
    // Blocks that sessions wrote because no clean one was free, or to extend a file.
    let writes = if old.contains("buffers_backend") {
        "(select buffers_backend from pg_catalog.pg_stat_bgwriter)"
    } else if probe.io.contains("writes") {
        "(select sum(writes) from pg_catalog.pg_stat_io where backend_type = 'client backend' and object = 'relation')"
    } else {
        "null"
    };
    let stops = if old.contains("maxwritten_clean") {
        "(select maxwritten_clean from pg_catalog.pg_stat_bgwriter)"
    } else {
        "null"
    };
    if probe.checkpointer.contains("num_timed") {
        format!("(select json_build_object('timed', num_timed, 'requested', num_requested, 'buffers', buffers_written, 'write_ms', write_time,
            'sync_ms', sync_time, 'reset', stats_reset::text, 'backend_fsync', {fsync}, 'backend_writes', {writes}, 'cleaner_stops', {stops}) from \
            pg_catalog.pg_stat_checkpointer)")
    } else if old.contains("checkpoints_timed") {
        format!("(select json_build_object('timed', checkpoints_timed, 'requested', checkpoints_req, 'buffers', buffers_checkpoint, 'write_ms', \
            checkpoint_write_time,
            'sync_ms', checkpoint_sync_time, 'reset', stats_reset::text, 'backend_fsync', {fsync}, 'backend_writes', {writes}, 'cleaner_stops', {stops}) from \
            pg_catalog.pg_stat_bgwriter)")
    } else {
        "null".to_string()
    }
}

/// What is remembered between two ticks.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    counters: Counters,
    slots: Counters,
    /// Which databases the sums of their counters are of.
    databases: String,
    position: Option<u64>,
    /// Statements whose texts were recorded because a session was seen at work with them, with the names that their texts have.
    texts: HashMap<String, String>,
}

impl Memory {
    /// The server was started again: nothing can be compared.
    pub(crate) fn clear(&mut self) {
        *self = Memory::default();
    }
}

/// Values for the tick's line that do not come with every tick.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Slow {
    pub(crate) autovacuum_workers_max: Option<u64>,
    pub(crate) freeze_max_age_xids: Option<u64>,
    pub(crate) database_age_xids: Option<u64>,
    pub(crate) database_age_mxids: Option<u64>,
}

/// Where and when an answer was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) node: &'a str,
    /// When it had come.
    pub(crate) t_us: u64,
    /// Since the last one; 0 for the first.
    pub(crate) interval_us: u64,
    /// From sending the query to its result.
    pub(crate) queried_us: u64,
    /// An empty round trip measured in addition.
    pub(crate) rtt_us: Option<u64>,
}

/// Turns an answer into lines.
pub(crate) fn answer(
    answered: &Answered<'_>,
    answer: &Value,
    slow: &Slow,
    memory: &mut Memory,
    batch: &mut Batch,
    state: &mut NodeState,
) -> Moment {
    let Answered { node, t_us, interval_us, .. } = *answered;
    let node = || node.to_string();
    let counts = &answer["counts"];
    let mut moment = Moment {
        lockers: list(answer, "lockers").iter().filter_map(|pid| i32::try_from(pid.as_i64()?).ok()).collect(),
        reports: flag(counts, "reports") != Some(false),
        masked: count(counts, "masked").unwrap_or(0),
        started_us: answer["started"].as_i64().unwrap_or(0),
        loaded_us: answer["loaded"].as_i64().unwrap_or(0),
        ..Moment::default()
    };
    let mut server = server(answered, answer, slow, moment.masked > 0);
    counted(answer, memory, &mut server, &mut moment);

    state.ours = list(answer, "ours").iter().filter_map(|pid| u32::try_from(pid.as_i64()?).ok()).collect();
    state.ours_count = count(counts, "ours").unwrap_or(0);
    state.backends =
        list(answer, "backends").iter().filter_map(|pid| u32::try_from(pid.as_i64()?).ok()).collect();
    state.backends_count = count(counts, "backends").unwrap_or(0);
    state.sessions_active = server.sessions_active.unwrap_or(0);
    state.sessions_blocked = server.sessions_waiting_lock.unwrap_or(0);
    state.oldest_transaction_s = server.oldest_transaction_s.unwrap_or(0.0);
    let per_s = |counted: Option<u64>| match interval_us {
        0 => 0.0,
        interval_us => counted.unwrap_or(0) as f64 * 1e6 / interval_us as f64,
    };
    state.transactions_per_s = per_s(server.xact_commit) + per_s(server.xact_rollback);
    state.wal_bytes_per_s = per_s(server.wal_bytes);

    batch.counted(t_us, interval_us, server);
    sampled::waits(sampled::Seen { node: answered.node, t_us }, answer, &mut memory.texts, batch, state);
    state.active = list(answer, "processes").iter().filter_map(|row| process(row, &memory.texts)).collect();
    for row in list(answer, "sessions") {
        batch.reading(t_us, session(&node(), row));
    }
    for row in list(answer, "activity") {
        batch.reading(
            t_us,
            Activity {
                node: node(),
                application: text(row, "application"),
                user: text(row, "user"),
                database: text(row, "database"),
                client: text(row, "client"),
                sessions: count(row, "sessions").unwrap_or(0),
            },
        );
    }
    connected::lines(answered.node, t_us, answer, batch);
    horizons(answered, answer, batch);
    state.replay_lag_bytes = 0;
    for row in list(answer, "standbys") {
        let standby = standbys::line(&node(), row);
        state.replay_lag_bytes = state.replay_lag_bytes.max(standby.replay_lag_bytes.unwrap_or(0));
        batch.reading(t_us, standby);
    }
    slots(answered, answer, memory, batch);
    moment
}

/// The server's line, without what is counted since the last answer. `is_masked`: sessions of other users are hidden.
fn server(answered: &Answered<'_>, answer: &Value, slow: &Slow, is_masked: bool) -> Server {
    let counts = &answer["counts"];
    let mut server = Server {
        node: answered.node.to_string(),
        rtt_us: answered.rtt_us,
        asked_us: Some(answered.queried_us),
        sessions_total: count(counts, "total"),
        sessions_active: count(counts, "active"),
        sessions_idle_in_transaction: count(counts, "idle_in_transaction"),
        sessions_tls: count(counts, "tls"),
        sessions_max: count(answer, "sessions_max"),
        replay_paused: flag(answer, "replay_paused"),
        notify_queue_share: number(answer, "notify_queue"),
        sessions_waiting_lock: count(counts, "waiting_lock"),
        oldest_transaction_s: age(counts, "oldest"),
        wal_position_bytes_total: count(answer, "position"),
        archive_behind_bytes: archive_behind(answer),
        in_recovery: flag(answer, "recovery"),
        autovacuum_workers: count(counts, "autovacuum"),
        autovacuum_workers_max: slow.autovacuum_workers_max,
        database_age_xids: slow.database_age_xids,
        database_age_mxids: slow.database_age_mxids,
        freeze_max_age_xids: slow.freeze_max_age_xids,
        prepared_xacts: count(&answer["prepared"], "n"),
        prepared_age_s_max: age(&answer["prepared"], "age_s"),
        ..Server::default()
    };
    standbys::own_line(answer, &mut server);
    if is_masked {
        // Sessions of other users exist, but their activity is hidden: a count of the rest would be taken for all.
        server.sessions_total = None;
        server.sessions_active = None;
        server.sessions_idle_in_transaction = None;
        server.sessions_waiting_lock = None;
    }
    server
}

/// WAL behind the last archived file. Its name has the timeline, and then the number of the file in two parts of eight digits (`XLogFileName` in
/// `xlog_internal.h`).
fn archive_behind(answer: &Value) -> Option<u64> {
    let (position, segment) =
        (count(answer, "position")?, count(answer, "segment").filter(|bytes| *bytes > 0)?);
    let name = text(answer, "archived_last");
    let part = |from: usize| u64::from_str_radix(name.get(from..from + 8)?, 16).ok();
    let files = part(8)? * ((1 << 32) / segment) + part(16)? + 1;
    Some(position.saturating_sub(files * segment))
}

/// What keeps old row versions from being removed.
fn horizons(answered: &Answered<'_>, answer: &Value, batch: &mut Batch) {
    for row in list(answer, "horizon") {
        batch.reading(
            answered.t_us,
            Horizon {
                node: answered.node.to_string(),
                kind: text(row, "kind"),
                name: text(row, "name"),
                pid: count(row, "pid"),
                age_xids: count(row, "age_xids"),
                age_s: age(row, "age_s"),
            },
        );
    }
}

/// Fills what is counted.
fn counted(answer: &Value, memory: &mut Memory, server: &mut Server, moment: &mut Moment) {
    let counters = &mut memory.counters;
    // A database that is dropped takes its counters away from the sum, which is no reset.
    let listed = text(&answer["database"], "listed");
    let is_same = std::mem::replace(&mut memory.databases, listed.clone()) == listed;
    let mut delta = |key: &'static str, names, row: &Value| {
        counters.begin();
        let delta = counters.delta(key, names, row).unwrap_or_default();
        if counters.went_back() && (is_same || key != record::event::DATABASES) {
            moment.resets.push(key);
        }
        delta
    };
    let database = delta(record::event::DATABASES, DATABASE, &answer["database"]);
    server.xact_commit = database.count("xact_commit");
    server.xact_rollback = database.count("xact_rollback");
    server.tup_inserted = database.count("tup_inserted");
    server.tup_updated = database.count("tup_updated");
    server.tup_deleted = database.count("tup_deleted");
    server.tup_returned = database.count("tup_returned");
    server.tup_fetched = database.count("tup_fetched");
    server.blks_read = database.count("blks_read");
    server.blks_hit = database.count("blks_hit");
    server.temp_bytes = database.count("temp_bytes");
    server.temp_files = database.count("temp_files");
    server.deadlocks = database.count("deadlocks");
    server.active_ms = database.number("active_time");
    server.idle_in_transaction_ms = database.number("idle_in_transaction_time");
    server.sessions_opened = database.count("sessions");
    server.conflicts = database.count("conflicts");
    server.relations_made = delta("pg_class", CATALOG, &answer["catalog"]).count("relations_made");
    let wal = delta("pg_stat_wal", WAL, &answer["wal"]);
    server.wal_records = wal.count("wal_records");
    server.wal_fpi = wal.count("wal_fpi");
    server.wal_buffers_full = wal.count("wal_buffers_full");
    let checkpoints = delta("pg_stat_bgwriter", CHECKPOINTS, &answer["checkpoints"]);
    server.checkpoints_timed = checkpoints.count("timed");
    server.checkpoints_requested = checkpoints.count("requested");
    server.checkpoint_buffers = checkpoints.count("buffers");
    server.checkpoint_write_ms = checkpoints.number("write_ms");
    server.checkpoint_sync_ms = checkpoints.number("sync_ms");
    server.backend_fsync = checkpoints.count("backend_fsync");
    server.backend_writes = checkpoints.count("backend_writes");
    server.cleaner_stops = checkpoints.count("cleaner_stops");
    server.archived_failed = delta("pg_stat_archiver", &["archived_failed"], answer).count("archived_failed");
    let before = std::mem::replace(&mut memory.position, server.wal_position_bytes_total);
    server.wal_bytes =
        server.wal_position_bytes_total.zip(before).and_then(|(now, before)| now.checked_sub(before));
    let ended = server.checkpoints_timed.unwrap_or(0) + server.checkpoints_requested.unwrap_or(0);
    if ended > 0 || server.checkpoint_sync_ms.is_some_and(|ms| ms > 0.0) {
        moment.checkpoints = Some(server.clone());
    }
}

fn process(row: &Value, texts: &HashMap<String, String>) -> Option<Process> {
    let [backend, wait] = [row[1].as_str()?.to_string(), row[2].as_str()?.to_string()];
    let query_id = sampled::named(row[3].as_str().unwrap_or(""), row[4].as_str().unwrap_or(""), texts);
    Some(Process { pid: u32::try_from(row[0].as_i64()?).ok()?, backend, wait, query_id })
}

/// A single session, from a row with named fields.
pub(crate) fn session(node: &str, row: &Value) -> Session {
    Session {
        node: node.to_string(),
        pid: count(row, "pid").unwrap_or(0),
        backend: text(row, "backend"),
        application: text(row, "application"),
        user: text(row, "user"),
        database: text(row, "database"),
        state: text(row, "state"),
        wait_type: text(row, "wait_type"),
        wait_event: text(row, "wait_event"),
        xact_age_s: age(row, "xact_age_s"),
        state_age_s: age(row, "state_age_s"),
        xmin_age_xids: count(row, "xmin_age_xids"),
        backend_start: text(row, "backend_start"),
        query_id: text(row, "query_id"),
        query: text(row, "query"),
    }
}

fn slots(answered: &Answered<'_>, answer: &Value, memory: &mut Memory, batch: &mut Batch) {
    const SPILL: &[&str] = &["spill_bytes", "spill_txns"];
    memory.slots.begin();
    for row in list(answer, "slots") {
        let name = text(row, "slot");
        let spill = memory.slots.delta(&name, SPILL, row).unwrap_or_default();
        for (column, horizon) in [("xmin_age", ""), ("catalog_xmin_age", " (catalog)")] {
            if let Some(age_xids) = count(row, column).filter(|xids| *xids >= FOLLOWER_XIDS) {
                batch.reading(
                    answered.t_us,
                    Horizon {
                        node: answered.node.to_string(),
                        kind: "slot".to_string(),
                        name: format!("{name}{horizon}"),
                        pid: None,
                        age_xids: Some(age_xids),
                        age_s: None,
                    },
                );
            }
        }
        batch.counted(
            answered.t_us,
            answered.interval_us,
            Slot {
                node: answered.node.to_string(),
                slot: name,
                kind: text(row, "kind"),
                active: flag(row, "active"),
                retained_bytes: number(row, "retained_bytes").map(|bytes| bytes.max(0.0) as u64),
                confirmed_bytes: count(row, "confirmed_bytes"),
                wal_status: text(row, "wal_status"),
                safe_wal_bytes: count(row, "safe_wal_bytes"),
                inactive_s: json::age(row, "inactive_s"),
                spill_bytes: spill.count("spill_bytes"),
                spill_txns: spill.count("spill_txns"),
                catalog_xmin_age: count(row, "catalog_xmin_age"),
            },
        );
    }
    memory.slots.sweep();
}
