//! Whether code of others could do more with our rights than to read. Planning evaluates functions, and names of extensions' objects are looked up anew
//! whenever a statement is analysed, so that neither can be checked and then used without a moment between.

/// Owners whose functions may run: superusers, our role, and the owners of this database where that is one of them. Goes behind `with`.
pub(super) const TRUSTED: &str = "trusted as materialized (select oid from pg_catalog.pg_roles where rolsuper or rolname = current_user
     or rolname = 'pg_database_owner' and exists (select from pg_catalog.pg_database d join pg_catalog.pg_roles o on o.oid = d.datdba
        where d.datname = current_database() and (o.rolsuper or o.rolname = current_user)))";

/// Whether our role may do more than read: a superuser, one that makes roles or databases, a member of any role but those that monitor and read, an owner.
pub(super) const IS_POWERFUL: &str = "(exists (select from pg_catalog.pg_roles where rolname = current_user
       and (rolsuper or rolcreaterole or rolcreatedb or rolreplication))
    or exists (select from pg_catalog.pg_roles r where pg_catalog.pg_has_role(r.oid, 'member') and r.rolname <> current_user and r.rolname not in
       ('pg_monitor', 'pg_read_all_settings', 'pg_read_all_stats', 'pg_stat_scan_tables', 'pg_read_all_data'))
    or exists (select from pg_catalog.pg_class c join pg_catalog.pg_roles r on r.oid = c.relowner where r.rolname = current_user)
    or exists (select from pg_catalog.pg_namespace n join pg_catalog.pg_roles r on r.oid = n.nspowner where r.rolname = current_user))";

/// The roles, beside the trusted ones, that can log in here and make objects, or have some. Temporary objects do not count: no statement that names them is
/// planned. Goes behind [`TRUSTED`].
pub(super) const MAKERS: &str =
    "owners as materialized (select distinct d.refobjid oid from pg_catalog.pg_shdepend d where d.deptype = 'o'
       and d.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass and d.dbid = (select oid from pg_catalog.pg_database where datname = current_database())
       and not (d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and exists (select from pg_catalog.pg_class c
          where c.oid = d.objid and c.relpersistence = 't'))),
  makers as materialized (select r.rolname from pg_catalog.pg_roles r where r.rolcanlogin and r.oid not in (select oid from trusted)
     and pg_catalog.has_database_privilege(r.oid, current_database(), 'connect')
     and (pg_catalog.has_database_privilege(r.oid, current_database(), 'create')
       or exists (select from pg_catalog.pg_namespace n where n.nspname !~ '^pg_(temp|toast)' and pg_catalog.has_schema_privilege(r.oid, n.oid, 'create'))
       or exists (select from owners o where pg_catalog.pg_has_role(r.oid, o.oid, 'member'))))";
