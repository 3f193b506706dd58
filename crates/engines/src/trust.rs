//! Who owns tables, and what is attached to them: queried before pgfathom uses tables that other roles may own.
//!
//! Statements on a table can run code that others have attached to it: an index's expression as soon as a statement is planned, a cast of a
//! column's type when it is compared. It runs with the privileges of the session. The same holds for addresses that others chose: the role that chooses the
//! address gets the session's user and password. [`TRUSTED`] defines the roles that a session trusts.

use connect::hot::{HotConnection, QueryError};

/// The text of [`TRUSTED`], for use in other constants.
macro_rules! trusted {
    () => {
        "select r.oid from pg_catalog.pg_roles r \
         cross join (select o.oid, o.rolsuper or o.rolname = session_user as is_safe, \
                       (select pg_catalog.bool_or(s.rolsuper or s.rolcreaterole and not o.rolcreaterole or s.rolcreatedb and not o.rolcreatedb \
                            or s.rolreplication and not o.rolreplication \
                            or exists (select 1 from pg_catalog.pg_roles f where f.oid < 16384 and f.rolname like 'pg\\_%' \
                              and f.rolname <> 'pg_database_owner' \
                              and pg_catalog.pg_has_role(s.oid, f.oid, 'MEMBER') and not pg_catalog.pg_has_role(o.oid, f.oid, 'MEMBER'))) \
                        from pg_catalog.pg_roles s where s.rolname in (current_user, session_user)) as is_mighty \
                     from pg_catalog.pg_database b join pg_catalog.pg_roles o on o.oid = b.datdba \
                     where b.datname = pg_catalog.current_database()) owner \
         where r.rolsuper or r.rolname = session_user \
            or (r.rolname = 'pg_database_owner' and owner.is_safe) \
            or (not owner.is_mighty and (r.oid = owner.oid or pg_catalog.pg_has_role(r.oid, 'USAGE')))"
    };
}

pub(crate) use trusted;

/// The roles that this session trusts, as a query of their oids, for use in parentheses.
///
/// Superusers and the role that connected always. A session that can do what the owner of the database cannot (a superuser's, or one that may make roles, or
/// has a predefined role that the owner has not, as those for monitoring) trusts no other role: else the owner of a database, or another member of a role,
/// could gain its privileges. Other sessions also trust the owner of the database and the roles that theirs is a member of.
pub const TRUSTED: &str = trusted!();

/// [`TRUSTED`] in words, for hints.
pub const TRUSTED_WORDS: &str = "a session trusts superusers and its own role; unless it may do what the database's owner may not (a superuser, a role with a \
     predefined role such as pg_monitor), it also trusts that owner and the roles that its role is a member of";

/// What is wrong with relations, worst first; `$1` is an array of oids. Columns: 1 for an owner who is not trusted, 2 for something attached that uses what
/// such a role has made, 3 for a right with which such a role can attach something at any time, 4 for a rule or a trigger; the relation's name; whom the thing
/// belongs to (`public`: everybody); what it is.
///
/// With the relations go the tables that refer to them by foreign keys, and so on: to delete a row may delete theirs, and up to PostgreSQL 17 their triggers
/// then run with the rights of the session. Objects that come with the server are in no dependency, as all of them belong to a superuser.
pub const PROBLEMS: &str = concat!(
    "with recursive trusted as (",
    trusted!(),
    "),
reached (oid) as (
    select unnest($1::oid[])
    union
    select next.oid from reached r cross join lateral (
        select conrelid from pg_constraint where confrelid = r.oid and contype = 'f' union all select inhrelid from pg_inherits where inhparent = r.oid
    ) next (oid)
),
relations as (select oid, relname::text as name, relowner, relacl, oid = any ($1) as is_ours from pg_class where oid in (select oid from reached)),
parts (relation, kind, classid, objid, what) as (
    select oid, 1, 'pg_class'::regclass, oid, 'its columns or partitions' from relations
    union all
    select adrelid, 1, 'pg_attrdef'::regclass, oid, 'a default or generated value' from pg_attrdef where adrelid in (select oid from reached)
    union all
    select conrelid, 1, 'pg_constraint'::regclass, oid, 'the constraint ' || conname from pg_constraint where conrelid in (select oid from reached)
    union all
    select indrelid, 1, 'pg_class'::regclass, indexrelid, 'the index ' || (select relname from pg_class where oid = indexrelid)
    from pg_index where indrelid in (select oid from reached)
    union all
    select stxrelid, 1, 'pg_statistic_ext'::regclass, oid, 'the statistics ' || stxname from pg_statistic_ext where stxrelid in (select oid from reached)
    union all
    select polrelid, 1, 'pg_policy'::regclass, oid, 'the policy ' || polname from pg_policy where polrelid in (select oid from reached)
    union all
    select ev_class, 2, 'pg_rewrite'::regclass, oid, 'the rule ' || rulename from pg_rewrite where ev_class in (select oid from reached)
    union all
    select tgrelid, 2, 'pg_trigger'::regclass, oid, 'the trigger ' || tgname from pg_trigger where tgrelid in (select oid from reached) and not tgisinternal
),
calls as (
    select p.relation, p.what, coalesce(f.proowner, o.oprowner, t.typowner, s.srvowner) as owner, pg_describe_object(d.refclassid, d.refobjid, 0) as called
    from parts p join pg_depend d on d.classid = p.classid and d.objid = p.objid
    left join pg_proc f on d.refclassid = 'pg_proc'::regclass and f.oid = d.refobjid
    left join pg_operator o on d.refclassid = 'pg_operator'::regclass and o.oid = d.refobjid
    left join pg_type t on d.refclassid = 'pg_type'::regclass and t.oid = d.refobjid
    left join pg_foreign_server s on d.refclassid = 'pg_foreign_server'::regclass and s.oid = d.refobjid
),
rights as (
    select r.name, a.grantee, a.privilege_type as what from relations r cross join aclexplode(r.relacl) a
    union all
    select r.name, a.grantee, a.privilege_type || ' on the column ' || c.attname
    from relations r join pg_attribute c on c.attrelid = r.oid cross join aclexplode(c.attacl) a
)
select 1, name, pg_get_userbyid(relowner)::text, '' from relations where relowner not in (select oid from trusted)
union all
select 2, r.name, pg_get_userbyid(c.owner)::text, c.what || ' uses ' || c.called
from calls c join relations r on r.oid = c.relation where c.owner not in (select oid from trusted)
union all
select 3, name, case grantee when 0 then 'public' else pg_get_userbyid(grantee)::text end, what from rights
where (what like 'TRIGGER%' or what like 'REFERENCES%') and grantee not in (select oid from trusted)
union all
select 4, r.name, '', p.what from parts p join relations r on r.oid = p.relation where p.kind = 2 and r.is_ours
order by 1, 2, 4"
);

/// Why a table should not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distrust {
    /// The table.
    pub table: String,
    /// Its owner, or an object attached to it, or a role that may attach one.
    pub owner: String,
    /// What is attached to the table and uses something of this role's; `None`: the table itself is this role's.
    pub what: Option<String>,
    /// Nothing is attached yet: `what` is the privilege to do so.
    pub is_right: bool,
}

impl std::fmt::Display for Distrust {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Distrust { table, owner, what, is_right } = self;
        match what {
            Some(what) if *is_right => out.write_str(&may_attach(table, what, owner)),
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
        let owner = &role_word(&self.owner);
        match self.what {
            None => format!(
                "connect as {owner} (-U {owner}), or give {} to a role of yours (alter ... owner to); {TRUSTED_WORDS}",
                self.table
            ),
            Some(_) if self.is_right => revoke(&self.table, &self.owner),
            Some(_) => format!("drop it, or connect as {owner} (-U {owner})"),
        }
    }
}

/// A role's name as one word of a shell: it may hold blanks, quotes and line feeds, and another role may have chosen it.
pub fn role_word(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_.".contains(c);
    if !name.is_empty() && name.chars().all(is_plain) {
        return name.to_string();
    }
    if !name.contains(char::is_control) {
        return format!("'{}'", name.replace('\'', r"'\''"));
    }
    let escaped: String = name
        .chars()
        .map(|c| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("$'{escaped}'")
}

/// The consequence of a role's privilege on a table.
pub fn may_attach(table: &str, right: &str, owner: &str) -> String {
    let who = if owner == "public" { "everybody".to_owned() } else { format!("the role {owner}") };
    format!(
        "{table}: {who} has the right {right} on it, and could attach code that runs with the rights of this session"
    )
}

/// How to take it away.
pub fn revoke(table: &str, owner: &str) -> String {
    format!(
        "revoke it: revoke trigger, references on {table} from {owner}; or connect as a role with fewer rights"
    )
}

/// Whether a table, with all of its partitions, may be read with the privileges of this session.
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
            "1" => Some(Distrust { table, owner, what: None, is_right: false }),
            "2" => Some(Distrust { table, owner, what: Some(what), is_right: false }),
            "3" => Some(Distrust { table, owner, what: Some(what), is_right: true }),
            _ => None,
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_of_a_hint_is_one_word_and_one_line() {
        assert_eq!(role_word("app_owner"), "app_owner");
        assert_eq!(role_word("App Owner"), "'App Owner'");
        assert_eq!(role_word("it's; rm -r /"), r"'it'\''s; rm -r /'");
        assert_eq!(role_word("-x"), "'-x'");
        assert_eq!(role_word("a'\n$ touch x\u{1b}[31m"), r"$'a\'\u000a$ touch x\u001b[31m'");
    }
}
