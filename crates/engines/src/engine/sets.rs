//! The sets of tables that nodes of a multimaster send each other, and those that they subscribe to. A table without a key has no updates to send.

use crate::profile::Sets;

/// What of a table is not sent, in words, of pglogical and of Spock, which is a fork of it.
macro_rules! sent {
    ($schema:literal) => {
        concat!(
            "select r.set_name::text, n.nspname::text, c.relname::text, \
                    nullif(pg_catalog.concat_ws(', ', \
                        case when not r.replicate_insert then 'no inserts' end, \
                        case when k.has_key and not r.replicate_update then 'no updates' end, \
                        case when k.has_key and not r.replicate_delete then 'no deletes' end, \
                        case when t.set_row_filter is not null then 'only rows that pass a filter' end, \
                        case when pg_catalog.cardinality(t.set_att_list) < (select count(*) from pg_catalog.pg_attribute a \
                             where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) then 'only some columns' end), '') \
             from ", $schema, ".replication_set r join ", $schema, ".local_node l on l.node_id = r.set_nodeid \
             join ", $schema, ".replication_set_table t on t.set_id = r.set_id \
             join pg_catalog.pg_class c on c.oid = t.set_reloid::pg_catalog.oid and c.relkind = 'r' \
             join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
             cross join lateral (select exists (select 1 from pg_catalog.pg_index i \
                                                where i.indrelid = c.oid and i.indisprimary)) k (has_key)"
        )
    };
}

pub(super) const PGLOGICAL_SETS: Sets = Sets {
    word: "set",
    subscribed: "select s.subscription_name::text, r.name::text \
                 from pglogical.show_subscription_status() s cross join lateral pg_catalog.unnest(s.replication_sets) r (name)",
    sent: sent!("pglogical"),
    taken: None,
};

pub(super) const SPOCK_SETS: Sets = Sets {
    word: "set",
    subscribed: "select s.subscription_name::text, r.name::text \
                 from spock.sub_show_status() s cross join lateral pg_catalog.unnest(s.replication_sets) r (name)",
    sent: sent!("spock"),
    taken: None,
};

/// A table without a set is in `default`, and every table is in `all`; a connection without sets takes all tables. By its sources (`pgactive_relcache.c`).
pub(super) const PGACTIVE_SETS: Sets = Sets {
    word: "set",
    subscribed: "select n.node_name::text, s.name from pgactive.pgactive_nodes n \
                 join pgactive.pgactive_connections c \
                   on (c.conn_sysid, c.conn_timeline, c.conn_dboid) = (n.node_sysid, n.node_timeline, n.node_dboid) \
                 cross join lateral pg_catalog.unnest(coalesce(c.conn_replication_sets, '{all}')) s (name) \
                 where n.node_status <> 'k'",
    sent: "select s.name, n.nspname::text, c.relname::text, \
                  nullif(pg_catalog.concat_ws(', ', \
                      case when not g.replicate_inserts then 'no inserts' end, \
                      case when k.has_key and not g.replicate_updates then 'no updates' end, \
                      case when k.has_key and not g.replicate_deletes then 'no deletes' end), '') \
           from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
           cross join lateral pg_catalog.unnest(pgactive.pgactive_get_table_replication_sets(c.oid::pg_catalog.regclass)) s (name) \
           left join pgactive.pgactive_replication_set_config g on g.set_name = s.name \
           cross join lateral (select exists (select 1 from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisprimary)) k (has_key) \
           where c.relkind = 'r' and c.relpersistence = 'p' \
                 and n.nspname not in ('pg_catalog', 'information_schema', 'pgactive')",
    taken: None,
};

/// PostgreSQL's own publications. Lists of columns and conditions on rows exist since PostgreSQL 15.
pub(crate) const NATIVE: Sets = Sets {
    word: "publication",
    subscribed: "select s.subname::text, p.name::text \
                 from pg_catalog.pg_subscription s join pg_catalog.pg_database d on d.oid = s.subdbid and d.datname = pg_catalog.current_database() \
                 cross join lateral pg_catalog.unnest(s.subpublications) p (name)",
    sent: "select p.pubname::text, t.schemaname::text, t.tablename::text, \
                  nullif(pg_catalog.concat_ws(', ', \
                      case when not p.pubinsert then 'no inserts' end, \
                      case when k.has_key and not p.pubupdate then 'no updates' end, \
                      case when k.has_key and not p.pubdelete then 'no deletes' end, \
                      case when pg_catalog.to_jsonb(r) ->> 'prqual' is not null then 'only rows that pass a filter' end, \
                      case when pg_catalog.to_jsonb(t) -> 'attnames' is not null \
                            and pg_catalog.jsonb_array_length(pg_catalog.to_jsonb(t) -> 'attnames') < \
                                (select count(*) from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped \
                                                                                 and a.attgenerated = '') \
                           then 'only some columns' end), '') \
           from pg_catalog.pg_publication p join pg_catalog.pg_publication_tables t on t.pubname = p.pubname \
           join pg_catalog.pg_namespace n on n.nspname = t.schemaname \
           join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = t.tablename \
           left join pg_catalog.pg_publication_rel r on r.prpubid = p.oid and r.prrelid = c.oid \
           cross join lateral (select exists (select 1 from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisprimary)) k (has_key)",
    taken: Some(
        "select s.subname::text, n.nspname::text, c.relname::text \
         from pg_catalog.pg_subscription s join pg_catalog.pg_subscription_rel r on r.srsubid = s.oid \
         join pg_catalog.pg_class c on c.oid = r.srrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace",
    ),
};
