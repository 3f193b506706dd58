-- The catalog of pgactive by its sources on a PostgreSQL that has none.
insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) values (90001, 'pgactive', 10, 11, false, '2.1');
create schema pgactive;
create table pgactive.pgactive_nodes (node_sysid text, node_timeline oid, node_dboid oid, node_status "char", node_name text, node_dsn text, node_init_from_dsn text);
-- The identity of a node is its own, not that of its server, and the addresses of nodes are not those that clients use.
create function pgactive.pgactive_get_local_nodeid(out sysid text, out timeline oid, out dboid oid) language sql as $$select '4711', 1::oid, 1::oid$$;
insert into pgactive.pgactive_nodes values ('4711', 1, 1, 'r', 'a', 'host={host}// port={port} dbname={dbname}', null);
-- An address may be that of a foreign server, so that its password is in a user mapping.
create foreign data wrapper pgactive_fdw;
create server endpoint_b foreign data wrapper pgactive_fdw options (host '{host}', port '{port}', dbname '{dbname}');
insert into pgactive.pgactive_nodes values ('77', 1, 1, 'r', 'b', 'user_mapping=dba pgactive_foreign_server=endpoint_b', null);
create table usertable (ycsb_key varchar(64) primary key);
