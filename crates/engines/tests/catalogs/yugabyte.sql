-- The catalog of YugabyteDB by its documentation on a PostgreSQL that has none. The codes are known answers.
create function pg_catalog.yb_servers() returns table (host text, port bigint, num_connections bigint, node_type text, cloud text, region text, zone text,
    public_ip text, uuid text) language sql as $$ select '{host}', {port}::bigint, 0::bigint, 'primary', 'c', 'r', 'z', '', 'u' $$;
create function pg_catalog.yb_hash_code(anyelement) returns int language sql as $$ select case $1::text when 'user1' then 20739 end $$;
create table usertable (ycsb_key varchar(64) primary key);
create table ordered (k int primary key);
-- What HASH in a primary key leaves in the index (INDOPTION_HASH).
update pg_index set indoption = '4' where indrelid = 'usertable'::regclass;
create view pg_catalog.yb_tablet_metadata as
    select 't' || i as tablet_id, 'usertable'::regclass::oid as oid, current_database()::text as db_name, 'usertable'::text as relname,
           i * 16384 as start_hash_code, (i + 1) * 16384 as end_hash_code, '{host}:{port}'::text as leader, array['{host}:{port}'] as replicas
    from generate_series(0, 3) i
    union all select 't9', 'ordered'::regclass::oid, current_database()::text, 'ordered', null, null, '{host}:{port}', null;
