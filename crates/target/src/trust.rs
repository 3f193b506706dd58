//! Whose tables these are, and what is attached to them: the question, for whoever is about to use tables that others may own.
//!
//! Statements on a table can run code that others have attached to it: an index's expression as soon as a statement is planned, a cast of a
//! column's type when it is compared. It runs with the rights of the session. Trusted are superusers, the owner of the database, the
//! session's own role, and, unless that is a superuser, the roles that it is a member of.

use crate::hot::{HotConnection, QueryError};

/// What is wrong with relations, worst first; `$1` is an array of oids. Columns: 1 for an owner who is not trusted, 2 for something attached that uses what such a
/// role has made, 3 for a rule or a trigger; the relation's name; whom the thing belongs to; what it is.
///
/// Objects that come with the server are in no dependency, as all of them belong to a superuser.
pub const PROBLEMS: &str = "
with me as (select oid, rolsuper from pg_roles where rolname = current_user),
trusted as (
    select r.oid from pg_roles r, me
    where r.oid = me.oid or r.rolsuper or r.oid = (select datdba from pg_database where datname = current_database())
       or (not me.rolsuper and pg_has_role(me.oid, r.oid, 'USAGE'))
),
relations as (select oid, relname::text as name, relowner from pg_class where oid = any ($1)),
parts (relation, kind, classid, objid, what) as (
    select oid, 1, 'pg_class'::regclass, oid, 'its columns or partitions' from relations
    union all
    select adrelid, 1, 'pg_attrdef'::regclass, oid, 'a default or generated value' from pg_attrdef where adrelid = any ($1)
    union all
    select conrelid, 1, 'pg_constraint'::regclass, oid, 'the constraint ' || conname from pg_constraint where conrelid = any ($1)
    union all
    select indrelid, 1, 'pg_class'::regclass, indexrelid, 'the index ' || (select relname from pg_class where oid = indexrelid)
    from pg_index where indrelid = any ($1)
    union all
    select stxrelid, 1, 'pg_statistic_ext'::regclass, oid, 'the statistics ' || stxname from pg_statistic_ext where stxrelid = any ($1)
    union all
    select polrelid, 1, 'pg_policy'::regclass, oid, 'the policy ' || polname from pg_policy where polrelid = any ($1)
    union all
    select ev_class, 2, 'pg_rewrite'::regclass, oid, 'the rule ' || rulename from pg_rewrite where ev_class = any ($1)
    union all
    select tgrelid, 2, 'pg_trigger'::regclass, oid, 'the trigger ' || tgname from pg_trigger where tgrelid = any ($1) and not tgisinternal
),
calls as (
    select p.relation, p.what, coalesce(f.proowner, o.oprowner, t.typowner) as owner, pg_describe_object(d.refclassid, d.refobjid, 0) as called
    from parts p join pg_depend d on d.classid = p.classid and d.objid = p.objid
    left join pg_proc f on d.refclassid = 'pg_proc'::regclass and f.oid = d.refobjid
    left join pg_operator o on d.refclassid = 'pg_operator'::regclass and o.oid = d.refobjid
    left join pg_type t on d.refclassid = 'pg_type'::regclass and t.oid = d.refobjid
)
select 1, name, pg_get_userbyid(relowner)::text, '' from relations where relowner not in (select oid from trusted)
union all
select 2, r.name, pg_get_userbyid(c.owner)::text, c.what || ' uses ' || c.called
from calls c join relations r on r.oid = c.relation where c.owner not in (select oid from trusted)
union all
select 3, r.name, '', p.what from parts p join relations r on r.oid = p.relation where p.kind = 2
order by 1, 2, 4";

/// Why a table should not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distrust {
    /// The table.
    pub table: String,
    /// Whom it belongs to, or what is attached to it.
    pub owner: String,
    /// What is attached to the table and uses something of this role's; `None`: the table itself is this role's.
    pub what: Option<String>,
}

impl std::fmt::Display for Distrust {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Distrust { table, owner, what } = self;
        match what {
            None => write!(
                out,
                "{table} belongs to the role {owner}, whose code would run with the rights of this session"
            ),
            Some(what) => {
                write!(
                    out,
                    "{table}: {what}, which belongs to the role {owner} and would run with the rights of this session"
                )
            }
        }
    }
}

impl Distrust {
    /// What to do about it.
    pub fn hint(&self) -> String {
        let owner = &self.owner;
        match self.what {
            None => format!(
                "connect as {owner} (-U {owner}), or give {} to a role of yours (alter ... owner to); trusted are superusers, the database's owner, and the \
                 roles that this one is a member of",
                self.table
            ),
            Some(_) => format!("drop it, or connect as {owner} (-U {owner})"),
        }
    }
}

/// Whether a table, with all of its partitions, may be read with the rights of this session.
///
/// # Errors
/// When the server does.
pub fn distrust(session: &mut HotConnection, table: u32) -> Result<Option<Distrust>, QueryError> {
    let text = |value: Option<&Option<Vec<u8>>>| {
        value
            .and_then(Option::as_deref)
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .unwrap_or_default()
    };
    let tree = format!(
        "with recursive tree (oid) as (select {table}::oid union select i.inhrelid from pg_inherits i join tree t on i.inhparent = t.oid)
         select coalesce(array_agg(oid), '{{}}'::oid[])::text from tree"
    );
    let oids = text(session.simple_query(&tree)?.first().and_then(|row| row.first()));
    let rows = session.simple_query(&PROBLEMS.replace("$1", &format!("'{oids}'::oid[]")))?;
    Ok(rows.iter().find_map(|row| {
        let (kind, table, owner, what) =
            (text(row.first()), text(row.get(1)), text(row.get(2)), text(row.get(3)));
        match kind.as_str() {
            "1" => Some(Distrust { table, owner, what: None }),
            "2" => Some(Distrust { table, owner, what: Some(what) }),
            _ => None,
        }
    }))
}
