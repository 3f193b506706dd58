//! Whether code of others could do more with our rights than to read. Planning evaluates functions, and names of extensions' objects are looked up anew
//! whenever a statement is analysed, so that neither can be checked and then used without a moment between.

/// Owners whose functions may run: superusers, the role that connected, and the owners of this database where that is one of them. Goes behind `with`.
pub(super) const TRUSTED: &str = "trusted as materialized (select oid from pg_catalog.pg_roles where rolsuper or rolname = session_user
     or rolname = 'pg_database_owner' and exists (select from pg_catalog.pg_database d join pg_catalog.pg_roles o on o.oid = d.datdba
        where d.datname = current_database() and (o.rolsuper or o.rolname = session_user)))";

/// Whether our role may do more than read: a superuser, one that makes roles or databases, a member of any role but those that monitor and read, an owner. The
/// role that connected counts as well as that of the session, because a function can take it back.
pub(super) const IS_POWERFUL: &str = "(exists (select from pg_catalog.pg_roles me where me.rolname in (current_user, session_user)
     and (me.rolsuper or me.rolcreaterole or me.rolcreatedb or me.rolreplication or me.rolbypassrls
       or exists (select from pg_catalog.pg_roles r where pg_catalog.pg_has_role(me.oid, r.oid, 'member') and r.oid <> me.oid and r.rolname not in
         ('pg_monitor', 'pg_read_all_settings', 'pg_read_all_stats', 'pg_stat_scan_tables', 'pg_read_all_data'))
       or exists (select from pg_catalog.pg_class c where c.relowner = me.oid)
       or exists (select from pg_catalog.pg_proc p where p.proowner = me.oid)
       or exists (select from pg_catalog.pg_database d where d.datdba = me.oid)
       or exists (select from pg_catalog.pg_namespace n where n.nspowner = me.oid))))";

/// The other roles that can log in and are no superusers, whatever they may do now: each may make temporary functions and types by default, the owner of a
/// database decides who may connect to it, and what a session has made stays with it when a right is taken away. Goes behind [`TRUSTED`].
pub(super) const OTHERS: &str = "others as materialized (select r.rolname from pg_catalog.pg_roles r where not r.rolsuper and r.rolname <> session_user
     and (r.rolcanlogin or exists (select from pg_catalog.pg_stat_activity a where a.usesysid = r.oid)))";

/// Whether our role may read the tables of all, so that who gets its rights reads them, too.
pub(super) const READS_ALL: &str = "exists (select from pg_catalog.pg_roles r where r.rolname = 'pg_read_all_data' and pg_catalog.pg_has_role(r.oid, \
    'member'))";

/// Whether the server may be one of an engine that sends definitions of tables to its other nodes.
pub(super) fn is_engine() -> String {
    let signs = engines::engine::signs();
    // Replication of rows sends no definitions.
    let engines = signs.iter().filter(|sign| sign.replication.is_none());
    let signs: Vec<&str> = engines.map(|sign| sign.sql).collect();
    format!("({})", signs.join(" or "))
}
