-- The catalog of Shardman by its documentation on a PostgreSQL that has none. The oracle is PostgreSQL's own satisfies_hash_partition.
insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) values (90001, 'shardman', 10, 11, false, '14');
create schema shardman;
create table shardman.repgroups (id int, srvid oid);
create table shardman.parts (rel oid, pnum int, rgid int);
create table shardman.sharded_tables (rel oid, nparts int, colocated_with oid, relname name, nspname name);
create table shardman.global_tables (rel oid, main_rgid int, relname name, nspname name);
create function shardman.get_partition_for_value(rel regclass, value anyelement)
    returns table (rgid int, local_nspname name, local_relname name, remote_nspname name, remote_relname name) language sql as
    'select p.rgid, t.nspname, t.relname || ''_'' || p.pnum || case when p.rgid = 1 then '''' else ''_fdw'' end,
            case when p.rgid <> 1 then t.nspname end, case when p.rgid <> 1 then t.relname || ''_'' || p.pnum end
     from shardman.sharded_tables t join shardman.parts p on p.rel = t.rel
     where t.rel = $1 and satisfies_hash_partition($1, t.nparts, p.pnum, $2)';
create extension postgres_fdw;
create server shardman_rg_2 foreign data wrapper postgres_fdw options (host '{host},standby', port '{port},5432', dbname '{dbname}');
insert into shardman.repgroups values (1, null), (2, (select oid from pg_foreign_server));
create table usertable (ycsb_key varchar(64)) partition by hash (ycsb_key);
create table countries (id int);
insert into shardman.sharded_tables values ('usertable'::regclass, 7, null, 'usertable', 'public');
insert into shardman.global_tables values ('countries'::regclass, 1, 'countries', 'public');
insert into shardman.parts select 'usertable'::regclass, i, 1 + i % 2 from generate_series(0, 6) i;
