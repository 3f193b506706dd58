//! Slow or expensive data: tables, statements, the server's I/O, subscriptions.

use crate::collect::Batch;
use crate::sql::core::Answered;
use crate::sql::counters::Counters;
use crate::sql::json::{age, count, flag, list, number, text};
use crate::sql::probe::{Probe, column};
use engines::profile::Own;
use record::watched::{Io, Subscription, Table, WAIT_CPU, WaitProfile};
use serde_json::Value;

/// Tables per sample: the largest and the busiest, about half each.
pub(crate) const TABLES_MAX: u32 = 200;
const TABLE: &[&str] = &[
    "rows_inserted",
    "rows_updated",
    "rows_hot_updated",
    "rows_newpage_updated",
    "rows_deleted",
    "seq_scans",
    "seq_rows",
    "index_scans",
    "autovacuums",
    "vacuums",
    "blocks_hit",
    "blocks_fetched",
    "index_rows",
];
const IO: &[&str] =
    &["reads", "read_bytes", "read_ms", "writes", "write_bytes", "write_ms", "extends", "fsyncs", "fsync_ms"];
const SUBSCRIPTION: &[&str] = &["apply_errors", "sync_errors"];

/// The object id of the method BRIN, the same in every database (`pg_am.dat`).
const BRIN: u32 = 3580;
/// Partitions that are compared with their siblings: those whose rows are read and written the most.
const SEARCHED_MAX: u32 = 10;
/// Columns of the indexes that most of the other partitions have, of 64 at most, and partition `c` has not.
const SIBLING_INDEXES: &str = "select pg_catalog.string_agg(q.columns || ': ' || q.parts || ' of ' || least(q.total, 64), '; ') from (
  select k.columns, count(distinct o.inhrelid) parts, o.total
  from (select h2.inhrelid, count(*) over () total from pg_catalog.pg_inherits h join pg_catalog.pg_inherits h2 on h2.inhparent = h.inhparent
      and h2.inhrelid <> c.oid where h.inhrelid = c.oid order by h2.inhrelid desc limit 64) o
    join pg_catalog.pg_index x on x.indrelid = o.inhrelid and x.indisvalid and x.indpred is null
    cross join lateral (select pg_catalog.string_agg(a.attname, ', ' order by n.ord) as columns, count(*) as named
      from pg_catalog.unnest(x.indkey::smallint[]) with ordinality n(attnum, ord) join pg_catalog.pg_attribute a on a.attrelid = x.indrelid
      and a.attnum = n.attnum where n.ord <= x.indnkeyatts) k
  where k.named = x.indnkeyatts group by k.columns, o.total) q
  where q.parts * 2 > least(q.total, 64) and not exists (select from pg_catalog.pg_index y join pg_catalog.pg_attribute a on a.attrelid = c.oid
    and a.attnum = y.indkey[0] where y.indrelid = c.oid and y.indisvalid and a.attname = pg_catalog.split_part(q.columns, ', ', 1))";
/// Of table `c`: unique indexes of one column that takes its default from a sequence, its own (an identity column) or any other.
const KEY_SEQUENCES: &str = "select string_agg(pg_catalog.format('%I(%I) from %I.%I', x.relname, a.attname, n.nspname, s.relname), '; ' order by x.relname)
               from pg_catalog.pg_index k join pg_catalog.pg_class x on x.oid = k.indexrelid
               join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = k.indkey[0]
               join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.refclassid = d.classid and d.refobjid = c.oid
                   and d.refobjsubid = a.attnum and d.deptype = 'i'
                 or d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
                   and d.objid = (select f.oid from pg_catalog.pg_attrdef f where f.adrelid = c.oid and f.adnum = a.attnum)
               join pg_catalog.pg_class s on s.relkind = 'S' and s.oid = case when d.classid = d.refclassid then d.objid else d.refobjid end
               join pg_catalog.pg_namespace n on n.oid = s.relnamespace
               where k.indrelid = c.oid and k.indisunique and k.indnatts = 1";
/// Triggers of table `c` whose functions send NOTIFY, [`record::watched::NONE_NOTIFIES`] if it has others only. Names alone are recorded, not what
/// the functions do.
const NOTIFYING: &str = "case when c.relhastriggers then (
               select coalesce(
                 string_agg(pg_catalog.format('%s(%s)', g.tgname, g.tgfoid::pg_catalog.regproc), '; ' order by g.tgname), 'none')
               from pg_catalog.pg_trigger g join pg_catalog.pg_proc f on f.oid = g.tgfoid
               where g.tgrelid = c.oid and not g.tgisinternal and g.tgenabled <> 'D' and f.prosrc ~* '\\m(pg_notify|notify)\\M') end";
/// Tables that foreign keys of table `c` refer to. What stands for one partition of such a table is left out: the key itself is there.
const FOREIGN_KEYS: &str = "select string_agg(distinct pg_catalog.format('%I.%I', n.nspname, r.relname), '; ')
               from pg_catalog.pg_constraint f join pg_catalog.pg_class r on r.oid = f.confrelid join pg_catalog.pg_namespace n on n.oid = r.relnamespace
               where f.conrelid = c.oid and f.contype = 'f'
                 and not exists (select from pg_catalog.pg_constraint p where p.oid = f.conparentid and p.conrelid = f.conrelid)";

/// Pages of an index from which on it is named if nothing has read it.
const UNSCANNED_PAGES_MIN: u32 = 64;

/// Whether all tables of a schema are published.
const PUBLISHED_BY_SCHEMA: &str =
    "exists (select from pg_catalog.pg_publication_namespace where pnnspid = c.relnamespace)";

/// SQL for how many parts a table has of which relation `c` is one: partitions beside each other, or parts that the engine has made.
fn parts(probe: &Probe) -> String {
    let of_engine = probe.own.iter().find_map(|own| own.parts).unwrap_or("null");
    format!(
        "case when c.relispartition then (select count(*) from pg_catalog.pg_inherits h join pg_catalog.pg_inherits h2 on h2.inhparent = h.inhparent
               where h.inhrelid = c.oid) else ({of_engine}) end"
    )
}

/// SQL for the tables that a session has for itself, or waits to have: functions that open a table (its size, its expressions) would wait for it until our
/// limit, and leave an error in the server's log.
pub(super) const LOCKED: &str = "select l.relation from pg_catalog.pg_locks l where l.locktype = 'relation' and l.mode = 'AccessExclusiveLock'
  and l.relation is not null";

/// The largest tables, and as many of those that are used most.
const HALF: u32 = TABLES_MAX * 3 / 5;

/// The tablespace of this database.
const HOME: &str = "select t.spcname from pg_catalog.pg_database d join pg_catalog.pg_tablespace t on t.oid = d.dattablespace
  where d.datname = current_database()";

/// Tables of the current database.
pub(crate) fn tables(probe: &Probe) -> String {
    let (newpage, blocks_hot) = match probe.has_newpage_updates {
        // From that release on, a heap-only update may leave a BRIN index as it is.
        true => ("pg_catalog.pg_stat_get_tuples_newpage_updated(c.oid)", format!("x.relam <> {BRIN}")),
        false => ("null::bigint", "true".to_string()),
    };
    let parts = parts(probe);
    let by_schema = if probe.publication_namespace.is_empty() { "false" } else { PUBLISHED_BY_SCHEMA };
    format!(
        "with c as materialized (select c.*, n.nspname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            where c.relkind in ('r', 'm') and c.relpersistence <> 't' and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'),
          ranked as (select c.*, row_number() over (order by relpages desc) by_size, row_number() over (order by pg_catalog.pg_stat_get_tuples_inserted(oid)
              + pg_catalog.pg_stat_get_tuples_updated(oid) + pg_catalog.pg_stat_get_tuples_deleted(oid) + pg_catalog.pg_stat_get_tuples_returned(oid) desc) by_use from c),
          picked as materialized (select * from ranked where by_size <= {HALF} or by_use <= {HALF} order by least(by_size, by_use) limit {TABLES_MAX}),
          home as materialized ({HOME}), locked as materialized ({LOCKED})
         select json_build_object('database', current_database(), 'tables', (select json_agg(r) from (
           select c.oid, pg_catalog.format('%I.%I', c.nspname, c.relname) relation, c.relpages::bigint * b.bytes + coalesce(t.relpages, 0)::bigint * b.bytes bytes,
             i.pages * b.bytes index_bytes, pg_catalog.pg_stat_get_live_tuples(c.oid) live_rows, pg_catalog.pg_stat_get_dead_tuples(c.oid) dead_rows,
             pg_catalog.pg_stat_get_tuples_inserted(c.oid) rows_inserted, pg_catalog.pg_stat_get_tuples_updated(c.oid) rows_updated,
             pg_catalog.pg_stat_get_tuples_hot_updated(c.oid) rows_hot_updated, {newpage} rows_newpage_updated,
             pg_catalog.pg_stat_get_tuples_deleted(c.oid) rows_deleted,
             pg_catalog.pg_stat_get_numscans(c.oid) seq_scans, pg_catalog.pg_stat_get_tuples_returned(c.oid) seq_rows, i.scans index_scans,
             pg_catalog.pg_stat_get_autovacuum_count(c.oid) autovacuums, pg_catalog.pg_stat_get_vacuum_count(c.oid) vacuums,
             case when c.reltuples >= 0 and c.relpages > 0 then c.reltuples::bigint end planned_rows, pg_catalog.pg_stat_get_mod_since_analyze(c.oid) changed_since_analyze,
             pg_catalog.pg_stat_get_analyze_count(c.oid) + pg_catalog.pg_stat_get_autoanalyze_count(c.oid) analyzes,
             extract(epoch from clock_timestamp() - greatest(pg_catalog.pg_stat_get_last_analyze_time(c.oid), pg_catalog.pg_stat_get_last_autoanalyze_time(c.oid))) analyzed_s,
             extract(epoch from clock_timestamp() - greatest(pg_catalog.pg_stat_get_last_vacuum_time(c.oid), pg_catalog.pg_stat_get_last_autovacuum_time(c.oid))) vacuumed_s,
             case when c.relpages > 0 then least(c.relallvisible::float8 / c.relpages, 1) end all_visible_share,
             not coalesce(pg_catalog.array_to_string(c.reloptions, ' ') ~* 'autovacuum_enabled=(false|off|no|0)', false) autovacuum,
             (select string_agg(o, ', ') from pg_catalog.unnest(c.reloptions) o where o like 'autovacuum%') autovacuum_options,
             (pg_catalog.regexp_match(pg_catalog.array_to_string(c.reloptions, ' '), 'fillfactor=([0-9]+)'))[1]::bigint fillfactor,
             (select string_agg(pg_catalog.quote_ident(a.attname)
               || ' ' || (select string_agg(o, ',') from pg_catalog.unnest(a.attoptions) o where o like 'n\\_distinct%'), '; ' order by a.attnum)
               from pg_catalog.pg_attribute a
               where a.attrelid = c.oid and a.attnum > 0 and a.attoptions::text like '%n\\_distinct%') column_options,
             pg_catalog.pg_stat_get_blocks_fetched(c.oid) + coalesce(i.fetched, 0) blocks_fetched, pg_catalog.pg_stat_get_blocks_hit(c.oid) + coalesce(i.hit, 0) blocks_hit,
             pg_catalog.pg_stat_get_tuples_fetched(c.oid) + coalesce(i.rows, 0) index_rows, i.indexes, i.index_columns, i.invalid_indexes, i.unscanned_indexes,
             ({KEY_SEQUENCES}) key_sequences, case when c.relispartition and c.by_use <= {SEARCHED_MAX} and pg_catalog.pg_stat_get_numscans(c.oid) > 0
               then ({SIBLING_INDEXES}) end sibling_indexes,
             case when c.relispartition then (select h.inhparent::regclass::text from pg_catalog.pg_inherits h where h.inhrelid = c.oid limit 1) end partition_of,
             case when c.relispartition and c.oid not in (select relation from locked)
               then pg_catalog.left(pg_catalog.pg_get_expr(c.relpartbound, c.oid), 200) end partition_bound,
             case when c.relhastriggers then (select count(*) from pg_catalog.pg_trigger g where g.tgrelid = c.oid and not g.tgisinternal) else 0 end triggers,
             case when c.relhastriggers then (select string_agg(pg_catalog.format('%s(%s)', g.tgname, g.tgfoid::pg_catalog.regproc), '; ' order by g.tgname)
               from pg_catalog.pg_trigger g where g.tgrelid = c.oid and not g.tgisinternal) end trigger_functions,
             {NOTIFYING} notifying_triggers, case when c.relhastriggers then ({FOREIGN_KEYS}) end foreign_keys, {parts} parts,
             case when c.relhastriggers then (select count(*) from pg_catalog.pg_constraint f where f.confrelid = c.oid and f.contype = 'f' and not exists (
                 select from pg_catalog.pg_index k where k.indrelid = f.conrelid and k.indisvalid and k.indpred is null
                   and (k.indkey::smallint[])[0:pg_catalog.array_length(f.conkey, 1) - 1] @> f.conkey)) else 0 end unindexed_references,
             case when c.relfrozenxid <> '0' then pg_catalog.age(c.relfrozenxid) end frozen_age_xids, coalesce(i.has_key, false) primary_key,
             case c.relreplident when 'd' then 'default' when 'f' then 'full' when 'i' then 'index' when 'n' then 'nothing' end replica_identity,
             exists (select from pg_catalog.pg_publication where puballtables) or exists (select from pg_catalog.pg_publication_rel where prrelid = c.oid) or {by_schema} published,
             coalesce(s.spcname, (select spcname from home)) as tablespace, i.tablespaces index_tablespaces
           from picked c cross join (select pg_catalog.current_setting('block_size')::bigint bytes) b
             left join pg_catalog.pg_class t on t.oid = c.reltoastrelid left join pg_catalog.pg_tablespace s on s.oid = c.reltablespace
             left join lateral (select sum(x.relpages)::bigint pages, sum(pg_catalog.pg_stat_get_numscans(x.oid))::bigint scans, count(*) as indexes,
               sum(pg_catalog.pg_stat_get_tuples_fetched(x.oid))::bigint as rows, bool_or(k.indisprimary) has_key,
                 sum(pg_catalog.pg_stat_get_blocks_fetched(x.oid))::bigint fetched, sum(pg_catalog.pg_stat_get_blocks_hit(x.oid))::bigint hit,
                 string_agg(distinct coalesce(s.spcname, (select spcname from home)), ',') tablespaces,
                 string_agg(x.relname::text, '; ' order by x.relname) filter (where not k.indisvalid) invalid_indexes,
                 string_agg(x.relname || '(' || (select string_agg(a.attname, ', ' order by a.attnum) from pg_catalog.pg_attribute a
                   where a.attrelid = k.indrelid and a.attnum > 0 and (a.attnum = any(k.indkey::smallint[]) or exists (select from pg_catalog.pg_depend d
                     where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.objid = k.indexrelid and d.refclassid = d.classid
                       and d.refobjid = k.indrelid and d.refobjsubid = a.attnum))) || ')', '; ' order by x.relname) filter (where {blocks_hot}) index_columns,
                 string_agg(x.relname || ' (' || (select m.amname from pg_catalog.pg_am m where m.oid = x.relam) || ')', '; ' order by x.relname)
                   filter (where not k.indisunique and k.indisvalid and x.relpages >= {UNSCANNED_PAGES_MIN} and pg_catalog.pg_stat_get_numscans(x.oid) = 0) unscanned_indexes
               from pg_catalog.pg_index k join pg_catalog.pg_class x on x.oid = k.indexrelid left join pg_catalog.pg_tablespace s on s.oid = x.reltablespace
               where k.indrelid = c.oid) i on true) r))::text"
    )
}

/// Turns an answer about tables into lines.
pub(crate) fn tables_answer(
    answered: &Answered<'_>,
    answer: &Value,
    counters: &mut Counters,
    batch: &mut Batch,
) {
    counters.begin();
    for row in list(answer, "tables") {
        let delta = counters.delta(&text(row, "oid"), TABLE, row).unwrap_or_default();
        let fetched = delta.count("blocks_fetched").zip(delta.count("blocks_hit"));
        batch.counted(
            answered.t_us,
            answered.interval_us,
            Table {
                node: answered.node.to_string(),
                database: text(answer, "database"),
                relation: text(row, "relation"),
                bytes: count(row, "bytes"),
                index_bytes: count(row, "index_bytes"),
                live_rows: count(row, "live_rows"),
                dead_rows: count(row, "dead_rows"),
                rows_inserted: delta.count("rows_inserted"),
                rows_updated: delta.count("rows_updated"),
                rows_hot_updated: delta.count("rows_hot_updated"),
                rows_newpage_updated: delta.count("rows_newpage_updated"),
                rows_deleted: delta.count("rows_deleted"),
                seq_scans: delta.count("seq_scans"),
                seq_rows: delta.count("seq_rows"),
                index_scans: delta.count("index_scans"),
                autovacuums: delta.count("autovacuums"),
                vacuums: delta.count("vacuums"),
                planned_rows: count(row, "planned_rows"),
                changed_since_analyze: count(row, "changed_since_analyze"),
                analyzes_total: count(row, "analyzes"),
                analyzed_s: age(row, "analyzed_s"),
                vacuumed_s: age(row, "vacuumed_s"),
                all_visible_share: number(row, "all_visible_share"),
                autovacuum: flag(row, "autovacuum"),
                autovacuum_options: text(row, "autovacuum_options"),
                blocks_hit: delta.count("blocks_hit"),
                blocks_read: fetched.map(|(fetched, hit)| fetched.saturating_sub(hit)),
                index_rows: delta.count("index_rows"),
                indexes: count(row, "indexes").or(Some(0)),
                index_columns: text(row, "index_columns"),
                invalid_indexes: text(row, "invalid_indexes"),
                unscanned_indexes: text(row, "unscanned_indexes"),
                key_sequences: text(row, "key_sequences"),
                sibling_indexes: text(row, "sibling_indexes"),
                partition_of: text(row, "partition_of"),
                partition_bound: text(row, "partition_bound"),
                fillfactor: count(row, "fillfactor"),
                column_options: text(row, "column_options"),
                triggers: count(row, "triggers"),
                trigger_functions: text(row, "trigger_functions"),
                notifying_triggers: text(row, "notifying_triggers"),
                foreign_keys: text(row, "foreign_keys"),
                parts: count(row, "parts"),
                unindexed_references: count(row, "unindexed_references"),
                frozen_age_xids: count(row, "frozen_age_xids"),
                primary_key: flag(row, "primary_key"),
                replica_identity: text(row, "replica_identity"),
                published: flag(row, "published"),
                tablespace: text(row, "tablespace"),
                index_tablespaces: text(row, "index_tablespaces"),
            },
        );
    }
    counters.sweep();
}

/// The profile of `pg_wait_sampling`; `None` without it.
pub(crate) fn wait_profile(probe: &Probe) -> Option<String> {
    let columns = &probe.wait_sampling.columns;
    if !columns.contains("count") {
        return None;
    }
    let query_id = column(columns, "queryid", "null::bigint");
    Some(format!(
        "select json_build_object('profile', (select json_agg(r) from (select event_type wait_type, event wait_event, nullif({query_id}, 0)::text \
            query_id, sum(count) samples
           from {} where event_type is distinct from 'Activity' group by 1, 2, 3) r))::text",
        probe.wait_sampling.sql
    ))
}

/// Turns a profile into lines.
pub(crate) fn wait_profile_answer(
    answered: &Answered<'_>,
    answer: &Value,
    counters: &mut Counters,
    batch: &mut Batch,
) {
    counters.begin();
    for row in list(answer, "profile") {
        let or_cpu = |word: String| if word.is_empty() { WAIT_CPU.to_string() } else { word };
        let (kind, wait, id) =
            (or_cpu(text(row, "wait_type")), or_cpu(text(row, "wait_event")), text(row, "query_id"));
        let delta = counters.delta_of_new(&format!("{kind}/{wait}/{id}"), &["samples"], row);
        let samples = delta.and_then(|delta| delta.count("samples")).unwrap_or(0);
        if samples > 0 {
            batch.counted(
                answered.t_us,
                answered.interval_us,
                WaitProfile {
                    node: answered.node.to_string(),
                    wait_type: kind,
                    wait_event: wait,
                    query_id: Some(id).filter(|id| !id.is_empty()),
                    samples,
                },
            );
        }
    }
    counters.sweep();
}

/// The server's own I/O statistics; `None` before they exist.
pub(crate) fn io(probe: &Probe) -> Option<String> {
    let columns = &probe.io;
    if columns.is_empty() {
        return None;
    }
    // Version 18 counts bytes; before, every operation had the same size.
    let bytes = |operations: &str, name: &'static str| match columns.contains(name) {
        true => name.to_string(),
        false => format!("{operations} * op_bytes"),
    };
    Some(format!(
        "select json_build_object('timed', pg_catalog.current_setting('track_io_timing')::bool, 'io', (select json_agg(r) from (select backend_type \
            backend, object, context, reads, {} read_bytes,
            read_time read_ms, writes, {} write_bytes, write_time write_ms, extends, fsyncs, fsync_time fsync_ms from pg_catalog.pg_stat_io) r))::text",
        bytes("reads", "read_bytes"),
        bytes("writes", "write_bytes")
    ))
}

/// Turns an answer about I/O into lines: only counters that moved.
pub(crate) fn io_answer(answered: &Answered<'_>, answer: &Value, counters: &mut Counters, batch: &mut Batch) {
    counters.begin();
    let is_timed = flag(answer, "timed") == Some(true);
    for row in list(answer, "io") {
        let key = format!("{}/{}/{}", text(row, "backend"), text(row, "object"), text(row, "context"));
        let Some(delta) = counters.delta(&key, IO, row).filter(|delta| !delta.is_quiet()) else { continue };
        // Without timing the server reports 0, which would look fast.
        let timed = |name| delta.number(name).filter(|_| is_timed);
        batch.counted(
            answered.t_us,
            answered.interval_us,
            Io {
                node: answered.node.to_string(),
                backend: text(row, "backend"),
                object: text(row, "object"),
                context: text(row, "context"),
                reads: delta.count("reads"),
                read_bytes: delta.count("read_bytes"),
                read_ms: timed("read_ms"),
                writes: delta.count("writes"),
                write_bytes: delta.count("write_bytes"),
                write_ms: timed("write_ms"),
                extends: delta.count("extends"),
                fsyncs: delta.count("fsyncs"),
                fsync_ms: timed("fsync_ms"),
            },
        );
    }
    counters.sweep();
}

/// Subscriptions; `None` if the server has no such view.
pub(crate) fn subscriptions(probe: &Probe) -> Option<String> {
    if probe.subscription.is_empty() {
        return None;
    }
    let (errors, join, no_errors) = if probe.subscription_statistics.contains("apply_error_count") {
        (
            ", t.apply_error_count apply_errors, t.sync_error_count sync_errors",
            " left join pg_catalog.pg_stat_subscription_stats t on t.subid = s.oid",
            ", null, null",
        )
    } else {
        ("", "", "")
    };
    let foreign = |(name, sql): &(&str, &str)| {
        format!(
            " union all select f.subscription::text, '{name}', f.slot::text, f.enabled, null, f.running, null, null{no_errors} from ({sql}) f"
        )
    };
    let foreign: String = probe.foreign_subscriptions.iter().map(foreign).collect();
    let begins = |prefix: &&str| format!("pg_catalog.starts_with(s.subname, '{prefix}')");
    let mut own: Vec<String> = probe.own.iter().flat_map(|own| own.subscriptions).map(begins).collect();
    // Those of other databases are listed as well, and their engines' signs are there.
    let elsewhere: Vec<Own> = engines::engine::signs().iter().map(engines::engine::Signs::own).collect();
    let elsewhere: Vec<String> = elsewhere.iter().flat_map(|own| own.subscriptions).map(begins).collect();
    if !elsewhere.is_empty() {
        let here = "(select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())";
        own.push(format!("s.subdbid <> {here} and ({})", elsewhere.join(" or ")));
    }
    let own = if own.is_empty() { "null::boolean".to_owned() } else { own.join(" or ") };
    Some(format!(
        "select json_build_object('subscriptions', (select json_agg(r) from (select s.subname::text as subscription, null::text replication, \
            s.subslotname::text slot, s.subenabled enabled,
            {own} own, w.pid is not null running, w.pid,
            greatest(pg_catalog.pg_wal_lsn_diff(w.received_lsn, w.latest_end_lsn), 0) lag_bytes{errors}
          from pg_catalog.pg_subscription s left join (select distinct on (subid) * from pg_catalog.pg_stat_subscription where relid is null order by subid, pid) w on w.subid = s.oid{join}{foreign}) r))::text"
    ))
}

/// Turns an answer about subscriptions into lines.
pub(crate) fn subscriptions_answer(
    answered: &Answered<'_>,
    answer: &Value,
    counters: &mut Counters,
    batch: &mut Batch,
) {
    counters.begin();
    for row in list(answer, "subscriptions") {
        let name = text(row, "subscription");
        let delta = counters.delta(&name, SUBSCRIPTION, row).unwrap_or_default();
        batch.counted(
            answered.t_us,
            answered.interval_us,
            Subscription {
                node: answered.node.to_string(),
                subscription: name,
                replication: row.get("replication").and_then(Value::as_str).map(str::to_owned),
                slot: text(row, "slot"),
                apply_errors: delta.count("apply_errors"),
                sync_errors: delta.count("sync_errors"),
                enabled: flag(row, "enabled"),
                own: flag(row, "own"),
                running: flag(row, "running"),
                pid: count(row, "pid"),
                lag_bytes: number(row, "lag_bytes").map(|bytes| bytes as u64),
            },
        );
    }
    counters.sweep();
}
