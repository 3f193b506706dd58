//! Slow facts: settings, extensions, the location of the data, the visibility for our role.

use crate::collect::{Batch, Place, Recorded};
use crate::sql::core::Slow;
use crate::sql::json::{count, flag, list, text};
use engines::profile::Own;
use record::watched::{
    COLLATION_VERSION, COMMAND_LINE, COMMIT_WAITS, EVENT_TRIGGER, Fact, NODE_WAITS, OWN as OWN_TOPIC,
    OWN_SETTING, SETTING_DEFAULT, SETTING_SOURCE, own,
};
use serde_json::Value;
use std::path::PathBuf;

/// Settings that are recorded even at their default, because a finding may name them.
const TELLING: &str = "'archive_command', 'archive_library', 'archive_mode', 'autovacuum', 'autovacuum_freeze_max_age', 'autovacuum_max_workers', \
    'autovacuum_naptime', 'autovacuum_vacuum_cost_delay', \
    'autovacuum_vacuum_cost_limit', 'autovacuum_work_mem', 'bgwriter_delay', 'block_size', 'checkpoint_completion_target', \
    'checkpoint_flush_after', 'checkpoint_timeout', 'commit_delay', 'data_checksums', 'deadlock_timeout', 'effective_io_concurrency', 'fsync', \
    'debug_assertions', 'full_page_writes', 'hash_mem_multiplier', 'huge_pages', 'huge_pages_status', 'idle_in_transaction_session_timeout', \
    'idle_replication_slot_timeout', 'io_method', 'io_workers', \
    'lc_messages', 'log_autovacuum_min_duration', 'log_checkpoints', 'log_destination', 'log_line_prefix', 'log_lock_waits', \
    'log_temp_files', 'logical_decoding_work_mem', 'maintenance_work_mem', 'max_connections', 'max_locks_per_transaction', 'max_logical_replication_workers', \
    'max_prepared_transactions', \
    'max_slot_wal_keep_size', 'max_wal_size', 'min_wal_size', 'max_standby_archive_delay', 'max_standby_streaming_delay', 'pg_stat_statements.track', \
    'primary_slot_name', 'random_page_cost', \
    'recovery_min_apply_delay', 'recovery_prefetch', 'segment_size', 'shared_buffers', \
    'synchronous_commit', 'synchronous_standby_names', 'temp_buffers', 'track_cost_delay_timing', 'track_functions', 'track_io_timing', 'track_wal_io_timing', \
    'transaction_timeout', 'vacuum_cost_delay', 'vacuum_cost_limit', 'vacuum_cost_page_dirty', 'vacuum_freeze_min_age', \
    'vacuum_freeze_table_age', 'wal_buffers', 'wal_compression', 'wal_level', 'wal_log_hints', 'wal_segment_size', 'wal_sync_method', 'work_mem'";

/// Settings that differ between sessions, or describe where this one came from.
const UNTELLING: &str = "'application_name', 'client_encoding', 'jit', 'statement_timeout', 'lock_timeout', 'default_transaction_read_only', \
 'max_parallel_workers_per_gather', 'stats_fetch_consistency', 'transaction_read_only', 'extra_float_digits', 'DateStyle', 'TimeZone'";

/// Where a setting comes from that our role or this database has instead of the server's, which is then not known.
const OF_OUR_ROLE: &str = "'user', 'database', 'database user'";

/// Settings of roles, databases and functions that are recorded: the server's own, and those of extensions that change how statements run. Others, with a
/// dot in their name, may hold an application's secrets.
pub(super) const OWN_SETTINGS: &str =
    "^([a-z_]+|(auto_explain|pg_hint_plan|pg_stat_statements|pgaudit|plpgsql)[.][a-z_]+)$";
/// Settings of roles and databases in one answer.
const OWN_SETTINGS_MAX: u32 = 200;

/// Characters of a setting: any role may give itself a longer one.
const VALUE_CHARS: u32 = 4_000;

/// The query at the start, and after every reload of the configuration.
pub(crate) fn question() -> String {
    format!(
        "select json_build_object(
           'settings', (select json_agg(json_build_array(name,
             coalesce(pg_catalog.left(pg_catalog.current_setting(name, true), {VALUE_CHARS}), '')) order by name)
             from pg_catalog.pg_settings where source not in ({OF_OUR_ROLE})
               and (name in ({TELLING}) or source not in ('default', 'override', 'client', 'session') and name not in ({UNTELLING}))),
           'own_settings', (select json_agg(r) from (select pg_catalog.split_part(c, '=', 1) as name,
             pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1, {VALUE_CHARS}) as value,
               case when s.setrole <> '0' then pg_catalog.pg_get_userbyid(s.setrole) end as of_role,
               (select datname from pg_catalog.pg_database d where d.oid = s.setdatabase) as of_database, null::name as of_tablespace
             from pg_catalog.pg_db_role_setting s cross join lateral unnest(s.setconfig) c where pg_catalog.split_part(c, '=', 1) ~ '{OWN_SETTINGS}'
             union all select pg_catalog.split_part(c, '=', 1), pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1, {VALUE_CHARS}), null, null, s.spcname
             from pg_catalog.pg_tablespace s cross join lateral unnest(s.spcoptions) c
               limit {OWN_SETTINGS_MAX}) r),
           'sources', (select json_agg(json_build_array(name, source, sourcefile, sourceline, pg_catalog.left(boot_val, {VALUE_CHARS}), unit) order by name)
             from pg_catalog.pg_settings where source in ('configuration file', '{COMMAND_LINE}')),
           'event_triggers', (select json_agg(json_build_array(evtname, evtfoid::regproc::text || ' at ' || evtevent)) from pg_catalog.pg_event_trigger
             where evtenabled in ('O', 'A')),
           'extensions', (select json_agg(json_build_array(extname, extversion)) from pg_catalog.pg_extension),
           'version', pg_catalog.version(),
           'version_num', pg_catalog.current_setting('server_version_num'),
           'database', current_database(),
           'role', current_user,
           'reads_statistics', pg_catalog.pg_has_role('pg_read_all_stats', 'usage'),
           'reads_settings', pg_catalog.pg_has_role('pg_read_all_settings', 'usage'),
           'superuser', pg_catalog.current_setting('is_superuser')::bool,
           'pid', pg_catalog.pg_backend_pid(),
           'data_directory', case when pg_catalog.pg_has_role('pg_read_all_settings', 'usage') then pg_catalog.current_setting('data_directory', true) end,
           'reads_log_file', (select bool_or(pg_catalog.has_function_privilege(oid, 'execute')) from pg_catalog.pg_proc where proname = 'pg_current_logfile'),
           'freeze_max_age', pg_catalog.current_setting('autovacuum_freeze_max_age')::bigint,
           'workers_max', pg_catalog.current_setting('autovacuum_max_workers')::bigint,
           'log_destination', pg_catalog.current_setting('log_destination', true),
           'log_line_prefix', pg_catalog.current_setting('log_line_prefix', true),
           'lc_messages', pg_catalog.current_setting('lc_messages', true),
           'log_error_verbosity', pg_catalog.current_setting('log_error_verbosity', true),
           'logging_collector', pg_catalog.current_setting('logging_collector', true),
           'log_checkpoints', pg_catalog.current_setting('log_checkpoints', true),
           'tablespaces', (select json_agg(json_build_array(spcname, pg_catalog.pg_tablespace_location(oid))) from pg_catalog.pg_tablespace where \
           pg_catalog.pg_tablespace_location(oid) <> ''))::text"
    )
}

/// The data directory may be hidden, and relatives of PostgreSQL lack a catalog: then everything else is queried without them.
pub(crate) fn question_without_places() -> String {
    let question =
        question().replace("pg_catalog.current_setting('data_directory', true) end", "null::text end");
    let lines = question.lines().collect::<Vec<_>>();
    let (first, last) = (
        lines.iter().position(|line| line.contains("'own_settings'")),
        lines.iter().position(|line| line.contains("'extensions'")),
    );
    match first.zip(last) {
        Some((first, last)) => [&lines[..first], &lines[last..]].concat().join("\n"),
        None => question,
    }
}

/// The current log file of a server with a logging collector; relative to the data directory, or absolute.
pub(crate) const LOG_FILE: &str =
    "select json_build_object('stderr', pg_catalog.pg_current_logfile('stderr'), 'csvlog',
    pg_catalog.pg_current_logfile('csvlog'))::text";
/// `server_version_num` from which the server writes its log in JSON, too.
const LOG_IN_JSON_SINCE: u64 = 150_000;
pub(crate) const LOG_FILE_JSON: &str =
    "select json_build_object('jsonlog', pg_catalog.pg_current_logfile('jsonlog'))::text";

/// `server_version_num` from which a database has a version of its collation.
const COLLATION_VERSIONS_SINCE: u64 = 150_000;
/// Collations of indexes whose version is another one now: the library of the host was changed under them.
const COLLATIONS: &str = "select json_build_object('collations', (select json_agg(json_build_array(name, recorded || ' -> ' || actual || '; ' || indexes))
  from (select 'database ' || d.datname as name, d.datcollversion as recorded, pg_catalog.pg_database_collation_actual_version(d.oid) as actual,
          (select count(*) from pg_catalog.pg_index i where 100 = any (i.indcollation::oid[]) and i.indrelid >= 16384) as indexes
        from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()
        union all select 'collation ' || c.oid::regcollation::text, c.collversion, pg_catalog.pg_collation_actual_version(c.oid), u.indexes
        from (select used, count(*) as indexes from pg_catalog.pg_index i cross join lateral unnest(i.indcollation::oid[]) used
              where i.indrelid >= 16384 and used > 100 group by 1) u join pg_catalog.pg_collation c on c.oid = u.used) v
  where recorded <> actual and indexes > 0))::text";

/// The query for changed collations; none on releases that do not record them.
pub(crate) fn collations(version_num: &str) -> Option<&'static str> {
    let version: u64 = version_num.parse().ok()?;
    (version >= COLLATION_VERSIONS_SINCE).then_some(COLLATIONS)
}

/// Collations whose version has changed, as facts.
pub(crate) fn collations_answer(
    place: &Place,
    t_us: u64,
    answer: &Value,
    recorded: &mut Recorded,
    batch: &mut Batch,
) {
    for row in list(answer, "collations") {
        if let (Some(name), Some(value)) = (row[0].as_str(), row[1].as_str()) {
            recorded.fact(batch, t_us, place.fact(COLLATION_VERSION, name, value));
        }
    }
}

/// The horizon of all databases, once a minute.
pub(crate) const AGES: &str =
    "select json_build_object('xids', (select max(pg_catalog.age(datfrozenxid)) from pg_catalog.pg_database),
  'mxids', (select max(pg_catalog.mxid_age(datminmxid)) from pg_catalog.pg_database))::text";

/// A setting of a role, a database or a tablespace instead of the server's.
fn own_setting(place: &Place, row: &Value) -> Option<Fact> {
    let (role, database) = (text(row, "of_role"), text(row, "of_database"));
    let tablespace = text(row, "of_tablespace");
    let owner = match (role.is_empty(), database.is_empty()) {
        _ if !tablespace.is_empty() => format!("tablespace {tablespace}"),
        (false, true) => format!("role {role}"),
        (true, false) => format!("database {database}"),
        (false, false) => format!("role {role} in database {database}"),
        (true, true) => return None,
    };
    Some(place.fact(OWN_SETTING, format!("{} of {owner}", text(row, "name")), text(row, "value")))
}

/// Where a setting comes from, and its default: ALTER SYSTEM RESET takes away only what ALTER SYSTEM has set.
fn sources(place: &Place, row: &Value) -> Option<(Fact, Option<Fact>)> {
    let name = row[0].as_str()?;
    let source = match (row[1].as_str()?, row[2].as_str().zip(row[3].as_u64())) {
        (COMMAND_LINE, _) => COMMAND_LINE.to_string(),
        // Without the right to see them, the file and the line are unknown.
        (_, place) => place.map(|(file, line)| format!("{file}:{line}"))?,
    };
    let default =
        row[4].as_str().map(|value| place.fact(SETTING_DEFAULT, name, with_unit(value, row[5].as_str())));
    Some((place.fact(SETTING_SOURCE, name, source), default))
}

/// A value as ALTER SYSTEM SET takes it: `pg_settings` may count in blocks, `8kB`, which is no unit there.
fn with_unit(value: &str, unit: Option<&str>) -> String {
    match (unit, value.parse::<i64>()) {
        // Negative values, and 0, have meanings of their own.
        (Some(unit), Ok(number)) if number > 0 => {
            let blocks = unit.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let each = blocks.parse::<i64>().unwrap_or(1);
            format!("{}{}", number.saturating_mul(each), &unit[blocks.len()..])
        }
        _ => value.to_string(),
    }
}

/// What the engine makes for itself, as facts: who reads the recording need not know the engine.
pub(crate) fn of_engine(place: &Place, t_us: u64, all: &[Own], recorded: &mut Recorded, batch: &mut Batch) {
    let names = |of: fn(&Own) -> &'static [&'static str]| {
        all.iter().flat_map(of).copied().collect::<Vec<_>>().join("; ")
    };
    let words = |of: fn(&Own) -> &'static str| {
        all.iter().map(of).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
    };
    let wait = |of: fn(&Own) -> Option<(&'static str, &'static str)>| {
        all.iter().find_map(of).map_or(String::new(), |(kind, event)| format!("{kind}:{event}"))
    };
    let away: Vec<&str> = all.iter().flat_map(|own| own.isolated.iter().chain(own.away)).copied().collect();
    let away = away.join("; ");
    let lock_statement = all.iter().find_map(|own| own.lock_statement);
    let lock_statement = lock_statement.map_or(String::new(), |(part, what)| format!("{part}: {what}"));
    for (topic, name, value) in [
        (OWN_TOPIC, own::PREPARED, names(|own| own.prepared)),
        (OWN_TOPIC, own::RESOLVES, words(|own| own.resolves)),
        (OWN_TOPIC, own::RESOLVE, words(|own| own.resolve.unwrap_or_default())),
        (OWN_TOPIC, own::LOCKS_WHILE, words(|own| own.locks_while)),
        (OWN_TOPIC, own::LOCK_STATEMENT, lock_statement),
        (OWN_TOPIC, own::SHARDS, words(|own| own.shards)),
        (OWN_TOPIC, own::POOLS, words(|own| own.pools)),
        (OWN_TOPIC, own::SLOTS, names(|own| own.slots)),
        (OWN_TOPIC, own::ENABLE, words(|own| own.enable.unwrap_or_default())),
        (OWN_TOPIC, own::ANEW, words(|own| own.anew)),
        (OWN_TOPIC, own::SESSIONS, names(|own| own.sessions)),
        (OWN_TOPIC, own::AWAY, away),
        (OWN_TOPIC, own::ORIGIN, words(|own| own.origin.unwrap_or_default())),
        (COMMIT_WAITS.0, COMMIT_WAITS.1, wait(|own| own.commit_waits)),
        (NODE_WAITS.0, NODE_WAITS.1, wait(|own| own.node_waits)),
    ] {
        if !value.is_empty() {
            recorded.fact(batch, t_us, place.fact(topic, name, value));
        }
    }
}

/// The values that other parts need.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Known {
    pub(crate) data_directory: Option<PathBuf>,
    pub(crate) tablespaces: Vec<(String, PathBuf)>,
    pub(crate) backend_pid: Option<u32>,
    pub(crate) log_destination: String,
    pub(crate) log_line_prefix: String,
    pub(crate) lc_messages: String,
    pub(crate) has_terse_log: bool,
    pub(crate) collects_log: bool,
    /// Whether our role may query the name of the log file: a refusal would be an error in that log.
    pub(crate) reads_log_file: bool,
    pub(crate) has_log_in_json: bool,
}

/// Turns an answer into facts and missing items. Returns what other parts need, and the settings that changed.
pub(crate) fn answer(
    place: &Place,
    t_us: u64,
    answer: &Value,
    recorded: &mut Recorded,
    slow: &mut Slow,
    batch: &mut Batch,
) -> (Known, Vec<String>) {
    let mut changed = Vec::new();
    for row in list(answer, "settings") {
        let (Some(name), Some(value)) = (row[0].as_str(), row[1].as_str()) else { continue };
        if recorded.fact(batch, t_us, place.fact("setting", name, value)) {
            changed.push(format!("{name} = {value}"));
        }
    }
    for (source, default) in list(answer, "sources").iter().filter_map(|row| sources(place, row)) {
        for fact in [Some(source), default].into_iter().flatten() {
            recorded.fact(batch, t_us, fact);
        }
    }
    for fact in list(answer, "own_settings").iter().filter_map(|row| own_setting(place, row)) {
        recorded.fact(batch, t_us, fact);
    }
    for (of, topic) in [("extensions", "extension"), ("event_triggers", EVENT_TRIGGER)] {
        let pairs = list(answer, of).iter().filter_map(|row| row[0].as_str().zip(row[1].as_str()));
        for (name, value) in pairs {
            recorded.fact(batch, t_us, place.fact(topic, name, value));
        }
    }
    for name in ["version", "version_num", "database", "role", "data_directory"] {
        let value = text(answer, name);
        if !value.is_empty() {
            recorded.fact(batch, t_us, place.fact("server", name, value));
        }
    }
    let is_superuser = flag(answer, "superuser") == Some(true);
    for (what, has, role, lost) in [
        (
            "sessions of other roles",
            "reads_statistics",
            "pg_read_all_stats",
            "what sessions of other roles do and wait for, how many are active, the lag of standbys: an idle and a busy server look the same",
        ),
        (
            "settings of superusers",
            "reads_settings",
            "pg_read_all_settings",
            "the location of the data directory, and therefore its disks and the server's log",
        ),
    ] {
        if is_superuser || flag(answer, has) == Some(true) {
            recorded.found(batch, t_us, place, what);
        } else {
            let why = format!("role {} is not in {role}; grant pg_monitor", text(answer, "role"));
            recorded.missing(batch, t_us, place.missing(what, why, lost));
        }
    }
    slow.autovacuum_workers_max = count(answer, "workers_max");
    slow.freeze_max_age_xids = count(answer, "freeze_max_age");
    (known(answer), changed)
}

/// What other questions need to know.
fn known(answer: &Value) -> Known {
    let path = |value: &Value| value.as_str().filter(|path| !path.is_empty()).map(PathBuf::from);
    Known {
        data_directory: path(&answer["data_directory"]),
        tablespaces: list(answer, "tablespaces")
            .iter()
            .filter_map(|row| Some((row[0].as_str()?.to_string(), path(&row[1])?)))
            .collect(),
        backend_pid: count(answer, "pid").and_then(|pid| u32::try_from(pid).ok()),
        log_destination: text(answer, "log_destination"),
        log_line_prefix: text(answer, "log_line_prefix"),
        lc_messages: text(answer, "lc_messages"),
        has_terse_log: text(answer, "log_error_verbosity") == "terse",
        collects_log: text(answer, "logging_collector") == "on",
        reads_log_file: flag(answer, "reads_log_file") == Some(true),
        has_log_in_json: text(answer, "version_num")
            .parse()
            .is_ok_and(|version: u64| version >= LOG_IN_JSON_SINCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_setting_has_its_file_or_the_command_line_as_its_source() {
        let place = Place::Node("n1".to_string());
        let of = |row: Value| {
            sources(&place, &row).map(|(source, default)| (source.value, default.map(|fact| fact.value)))
        };
        let file =
            of(json!(["jit_above_cost", "configuration file", "/srv/postgresql.conf", 12, "100000", null]));
        assert_eq!(file, Some(("/srv/postgresql.conf:12".to_string(), Some("100000".to_string()))));
        let option = of(json!(["shared_buffers", "command line", null, null, "16384", "8kB"]));
        assert_eq!(option, Some(("command line".to_string(), Some("131072kB".to_string()))));
        assert_eq!(of(json!(["work_mem", "configuration file", null, null, "4096", "kB"])), None);
        assert_eq!(with_unit("-1", Some("ms")), "-1");
        assert_eq!(with_unit("300", Some("s")), "300s");
    }
}
