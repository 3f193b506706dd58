-- The catalog of Greenplum 6 by its reference on a PostgreSQL that has none. The rows were placed by hand as the known answers say.
create table pg_catalog.gp_segment_configuration (dbid smallint, content smallint, role "char", preferred_role "char", mode "char", status "char",
    port int, hostname text, address text, datadir text);
create table pg_catalog.gp_distribution_policy (localoid oid, policytype "char", numsegments int, distkey int2vector, distclass oidvector);
insert into gp_segment_configuration values (1, -1, 'p', 'p', 'n', 'u', {port}, 'h', '{host}', '/d'),
    (2, 0, 'p', 'p', 's', 'u', 6000, 'h', 'sdw1', '/d'), (3, 1, 'p', 'p', 's', 'u', 6001, 'h', 'sdw1', '/d'), (4, 2, 'p', 'p', 's', 'u', 6000, 'h', 'sdw2', '/d'),
    (5, 2, 'm', 'm', 's', 'd', 7000, 'h', 'sdw1', '/d');
create table usertable (ycsb_key varchar(64), gp_segment_id int);
insert into usertable values ('user1', 1), ('user1000000', 0);
create table countries (id int);
insert into gp_distribution_policy
    select 'usertable'::regclass, 'p', 3, '1'::int2vector, o.oid::text::oidvector from pg_opclass o join pg_am a on a.oid = o.opcmethod
    where a.amname = 'hash' and o.opcname = 'text_ops';
insert into gp_distribution_policy values ('countries'::regclass, 'r', 3, '', '');
