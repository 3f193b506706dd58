-- The catalog of pglogical by its sources on a PostgreSQL that has none.
insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) values (90001, 'pglogical', 10, 11, false, '2.4');
create schema pglogical;
create table pglogical.node (node_id oid primary key, node_name name not null);
create table pglogical.node_interface (if_id oid, if_name name, if_nodeid oid, if_dsn text);
create table pglogical.local_node (node_id oid, node_local_interface oid);
insert into pglogical.node values (1, 'a'), (2, 'b');
insert into pglogical.node_interface values (1, 'a', 1, 'host={host} port={port} dbname={dbname}'), (2, 'b', 2, 'host={host} port={port} dbname={dbname}');
insert into pglogical.local_node values (1, 1);
create table usertable (ycsb_key varchar(64) primary key);
