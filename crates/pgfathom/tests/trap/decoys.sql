-- What a plain role can put into a database: everything that engines and extensions are known by, by name. The code in it says so in the server's log when
-- a superuser runs it.
create role mallory;
grant create on database postgres to mallory;
grant create on schema public to mallory;
create extension postgres_fdw;
grant usage on foreign data wrapper postgres_fdw to mallory;
set role mallory;

create function public.spring() returns boolean language plpgsql as $$
begin
    if (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then
        raise log 'SPRUNG by a superuser';
    end if;
    return true;
end $$;

create schema mtm;
create table mtm.cluster_nodes (id int, conninfo text, is_self boolean);
create function mtm.nodes() returns table (id int, is_self boolean, enabled boolean, connected boolean, conninfo text) language plpgsql as $$
begin
    perform public.spring();
    return query values (1, true, true, true, 'dbname=x'), (2, false, true, true, 'host=127.0.0.1 port={port} dbname=x');
end $$;

create server theirs foreign data wrapper postgres_fdw options (host '127.0.0.1', port '{port}', dbname 'x');
create server marked foreign data wrapper postgres_fdw options (host '127.0.0.1', port '{port}', dbname 'y');
comment on server marked is 'pgfathom node';
create table public.hers (i int) partition by hash (i);
create foreign table public.hers_0 partition of public.hers for values with (modulus 1, remainder 0) server theirs;

create schema shardman;
create view shardman.repgroups as select 1 as id, null::oid as srvid where public.spring()
    union all select 2, (select oid from pg_foreign_server where srvname = 'theirs');
create view shardman.parts as select 1::oid as rel, 0 as pnum, 1 as rgid where public.spring();
create view shardman.sharded_tables as select 1::oid as rel, 1 as nparts, null::oid as colocated_with, ''::name as relname, ''::name as nspname where public.spring();
create view shardman.global_tables as select 1::oid as rel, 1 as main_rgid, ''::name as relname, ''::name as nspname where public.spring();

create schema citus;
create view citus.pg_dist_node as select 1 as nodeid, 0 as groupid, '127.0.0.1' as nodename, {port} as nodeport where public.spring();
create view public.pg_dist_node as select * from citus.pg_dist_node;
create view public.pg_dist_local_group as select 0 as groupid where public.spring();

create schema crdb_internal;
create function crdb_internal.node_id() returns int language sql as 'select 1 where public.spring()';
create view crdb_internal.gossip_nodes as select 1 as node_id, '127.0.0.1:{port}' as sql_address, true as is_live where public.spring();

create function public.yb_servers() returns table (host text, port bigint) language sql as
    $$ select '127.0.0.1', {port}::bigint where public.spring() $$;
create function public.yb_hash_code(anyelement) returns int language sql as 'select 1 where public.spring()';
create view public.yb_tablet_metadata as select 't' as tablet_id where public.spring();

create view public.gp_segment_configuration as
    select 1 as dbid, -1 as content, 'p' as role, 'u' as status, {port} as port, '127.0.0.1' as address where public.spring();
create table public.gp_distribution_policy (localoid oid);

create schema bdr;
create view bdr.bdr_nodes as select 1 as node_id, 'host=127.0.0.1 port={port}' as node_dsn where public.spring();
create schema pgactive;
create view pgactive.pgactive_nodes as
    select 'x' as node_sysid, 'r' as node_status, 'x' as node_name, 'host=127.0.0.1 port={port}' as node_dsn where public.spring();

create schema pglogical;
create view pglogical.node as select 1 as node_id, 'a' as node_name where public.spring();
create view pglogical.node_interface as select 1 as if_nodeid, 'host=127.0.0.1 port={port}' as if_dsn where public.spring();
create view pglogical.local_node as select 1 as node_id where public.spring();
create schema spock;
create view spock.node as select * from pglogical.node;
create view spock.node_interface as select * from pglogical.node_interface;
create view spock.local_node as select * from pglogical.local_node;

-- Columns that tell what a release can do.
create table public.pg_subscription (suborigin text);

create view public.pg_stat_statements as select 0::int8 as calls, 0::oid as dbid where public.spring();
create view public.pg_stat_statements_info as select 0::int8 as dealloc where public.spring();
create function public.pg_stat_statements(boolean) returns setof int language sql as 'select 1 where public.spring()';
create function public.pg_stat_kcache() returns setof int language sql as 'select 1 where public.spring()';
create view public.pg_wait_sampling_profile as select 1 as pid where public.spring();

grant usage on schema mtm, shardman, citus, crdb_internal, bdr, pgactive, pglogical, spock to public;
grant select on all tables in schema public, mtm, shardman, citus, crdb_internal, bdr, pgactive, pglogical, spock to public;
reset role;
