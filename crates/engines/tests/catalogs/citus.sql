-- The catalog of Citus by its documentation ("Metadata Tables Reference") on a PostgreSQL that has no Citus, so that the profile's questions meet
-- a real parser. The oracle is PostgreSQL's own hashtext.
insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) values (90001, 'citus', 10, 11, false, '12.1');
create type pg_catalog.noderole as enum ('primary', 'secondary', 'unavailable');
create table pg_catalog.pg_dist_node (nodeid int, groupid int, nodename text, nodeport int, noderack text, hasmetadata boolean,
    isactive boolean, noderole noderole, nodecluster name, metadatasynced boolean, shouldhaveshards boolean);
create table pg_catalog.pg_dist_local_group (groupid int);
create table pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod "char", partkey text, colocationid int, repmodel "char", autoconverted boolean);
create table pg_catalog.pg_dist_shard (logicalrelid regclass, shardid bigint, shardstorage "char", shardminvalue text, shardmaxvalue text);
create table pg_catalog.pg_dist_placement (placementid bigint, shardid bigint, shardstate int, shardlength bigint, groupid int);
create function pg_catalog.column_to_column_name(regclass, text) returns text language sql as 'select $2';
create function pg_catalog.get_shard_id_for_distribution_column(regclass, anyelement) returns bigint language sql as
    'select shardid from pg_dist_shard where logicalrelid = $1 and hashtext($2::text) between shardminvalue::int and shardmaxvalue::int';
insert into pg_dist_local_group values (0);
insert into pg_dist_node values (1, 0, '{host}', {port}, 'default', true, true, 'primary', 'default', true, false),
    (2, 1, '{host}/', {port}, 'default', true, true, 'primary', 'other', true, true),
    (3, 1, 'nowhere', 1, 'default', true, true, 'secondary', 'default', true, true),
    -- A worker without metadata.
    (4, 2, '{host}//', {port}, 'default', false, true, 'primary', 'default', true, true);
create table usertable (ycsb_key varchar(64) primary key);
create table countries (id int);
insert into pg_dist_partition values ('usertable', 'h', 'ycsb_key', 1, 's', false), ('countries', 'n', null, 2, 't', false);
insert into pg_dist_shard select 'usertable'::regclass, 100 + i, 't', (-2147483648 + i * 536870912)::text, (-2147483648 + (i + 1) * 536870912 - 1)::text
    from generate_series(0::bigint, 7) i;
insert into pg_dist_shard values ('countries', 200, 't', null, null);
insert into pg_dist_placement select shardid, shardid, 1, 0, 1 from pg_dist_shard;
-- A copy that waits for its removal.
insert into pg_dist_placement values (999, 100, 4, 0, 0);
