-- The catalog of Multimaster by the open multimaster--1.0.sql on a PostgreSQL that has none.
insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) values (90001, 'multimaster', 10, 11, false, '1.0');
create schema mtm;
create table mtm.cluster_nodes (id int primary key, conninfo text not null, is_self boolean not null, init_done boolean not null default false);
create type mtm.node as (id int, conninfo text, is_self boolean, enabled boolean, connected boolean, sender_pid int, receiver_pid int, n_workers int, receiver_status text);
create function mtm.nodes() returns setof mtm.node language sql as
    'select id, conninfo, is_self, true, not is_self, 0, 0, 0, null from mtm.cluster_nodes order by id';
insert into mtm.cluster_nodes values (1, 'host={host} port={port} dbname={dbname}', true), (2, 'host={host} port={port} dbname={dbname}', false);
create table usertable (ycsb_key varchar(64) primary key);
