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

/// Functions with a search path of their own that has a schema in which a role may make objects that this session does not trust: what their bodies name
/// without a schema can become code of that role. Columns: the function, the schema, the role (`public`: everybody). It needs the query `trusted`.
///
/// A function without such a path looks names up in ours, which is `pg_catalog`.
macro_rules! open_paths {
    () => {
        r#"select f.oid, n.nspname::text, case m.role when 0 then 'public' else pg_catalog.pg_get_userbyid(m.role)::text end
     from pg_catalog.pg_proc f cross join lateral pg_catalog.unnest(f.proconfig) s (setting)
     cross join lateral pg_catalog.regexp_matches(pg_catalog.substr(s.setting, 13), '"(?:[^"]|"")*"|[^",[:space:]]+', 'g') t (words)
     cross join lateral (select t.words[1] as word) w
     join pg_catalog.pg_namespace n on n.nspname not in ('pg_catalog', 'information_schema') and n.nspname::text =
        case when w.word in ('$user', '"$user"') then current_user::text
             when w.word like '"%' then pg_catalog.replace(pg_catalog.substr(w.word, 2, pg_catalog.length(w.word) - 2), '""', '"')
             else pg_catalog.lower(w.word) end
     cross join lateral (select n.nspowner union select a.grantee from pg_catalog.aclexplode(n.nspacl) a where a.privilege_type = 'CREATE') m (role)
     where s.setting like 'search\_path=%' and m.role not in (select oid from trusted)"#
    };
}

/// [`TRUSTED`] in words, for hints.
pub const TRUSTED_WORDS: &str = "a session trusts superusers and its own role; unless it may do what the database's owner may not (a superuser, a role with a \
     predefined role such as pg_monitor), it also trusts that owner and the roles that its role is a member of";

/// The query [`PROBLEMS`] of these relations, in one message behind a setting of its own: the planner's estimate for it is high enough to compile it, which
/// takes seconds, and executing it takes milliseconds. The setting ends with the message, or with the transaction around it, so a pooler's session keeps
/// nothing; servers before PostgreSQL 11 and relatives have no such setting. Rows of one column are those of the setting.
pub fn problems_of(oids: &[u32]) -> String {
    let oids: Vec<String> = oids.iter().map(u32::to_string).collect();
    let problems = PROBLEMS.replace("$1", &format!("'{{{}}}'::oid[]", oids.join(",")));
    format!(
        "select pg_catalog.set_config(name, 'off', true) from pg_catalog.pg_settings where name = 'jit'; {problems}"
    )
}

/// What is wrong with relations, worst first; `$1` is an array of oids. Columns: 1 for an owner who is not trusted, 2 for something attached that uses what
/// such a role has made, 3 for a right with which such a role can attach something at any time, 4 for a rule or a trigger; the relation's name; whom the thing
/// belongs to (`public`: everybody); what it is.
///
/// With the relations go the tables that refer to them by foreign keys, and so on: to delete a row may delete theirs, and up to PostgreSQL 17 their triggers
/// then run with the rights of the session. Objects that come with the server are in no dependency, as all of them belong to a superuser.
const PROBLEMS: &str = concat!(
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
    select oid, 1, 'pg_class'::regclass, oid, 'a column or the partition key' from relations
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
code (relation, what, classid, objid, is_part) as (
    select relation, what, classid::oid, objid, true from parts
    union
    select c.relation, c.what, next.classid, next.objid, false from code c cross join lateral (
        select d.refclassid, d.refobjid from pg_depend d where d.classid = c.classid and d.objid = c.objid
           and (d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass, 'pg_opclass'::regclass, 'pg_opfamily'::regclass,
                                 'pg_foreign_server'::regclass)
                or d.refclassid = 'pg_class'::regclass and d.refobjid <> c.relation
                   and c.classid in ('pg_rewrite'::regclass, 'pg_policy'::regclass, 'pg_proc'::regclass))
        union all
        select 'pg_constraint'::regclass, o.oid from pg_constraint o where c.classid = 'pg_type'::regclass and o.contypid = c.objid
        union all
        select 'pg_class'::regclass, t.typrelid from pg_type t where c.classid = 'pg_type'::regclass and t.oid = c.objid and t.typrelid <> 0
        union all
        select 'pg_rewrite'::regclass, w.oid from pg_rewrite w where c.classid = 'pg_class'::regclass and not c.is_part and w.ev_class = c.objid
        union all
        select d.classid, d.objid from pg_depend d
        where c.classid in ('pg_opclass'::regclass, 'pg_opfamily'::regclass) and d.refclassid = c.classid and d.refobjid = c.objid
          and d.classid in ('pg_amop'::regclass, 'pg_amproc'::regclass)
    ) next (classid, objid)
),
calls as (
    select c.relation, c.what, c.classid, c.objid, coalesce(f.proowner, o.oprowner, t.typowner, s.srvowner, k.opcowner, y.opfowner, r.relowner) as owner,
           pg_describe_object(c.classid, c.objid, 0) as called
    from code c
    left join pg_proc f on c.classid = 'pg_proc'::regclass and f.oid = c.objid
    left join pg_operator o on c.classid = 'pg_operator'::regclass and o.oid = c.objid
    left join pg_type t on c.classid = 'pg_type'::regclass and t.oid = c.objid
    left join pg_foreign_server s on c.classid = 'pg_foreign_server'::regclass and s.oid = c.objid
    left join pg_opclass k on c.classid = 'pg_opclass'::regclass and k.oid = c.objid
    left join pg_opfamily y on c.classid = 'pg_opfamily'::regclass and y.oid = c.objid
    left join pg_class r on c.classid = 'pg_class'::regclass and r.oid = c.objid
    where not c.is_part
),
open_path (function, schema, role) as (
    ",
    open_paths!(),
    "
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
union all
select 5, r.name, p.role, c.what || ' uses ' || c.called || ', whose search_path has the schema ' || p.schema
from calls c join relations r on r.oid = c.relation join open_path p on p.function = c.objid
where c.classid = 'pg_proc'::regclass and c.owner in (select oid from trusted)
order by 1, 2, 4"
);

/// Event triggers whose function belongs to a role that this session does not trust, or looks names up where such a role may make objects: what makes,
/// changes or drops objects runs it with the privileges of the session, and its owner may write it anew at any time. Columns of [`EventTrigger::of`].
pub const EVENT_TRIGGERS: &str = concat!(
    "with trusted as (",
    trusted!(),
    "),
open_path (function, schema, role) as (
    ",
    open_paths!(),
    "
)
select e.evtname::text, case when f.proowner in (select oid from trusted) then p.role else pg_catalog.pg_get_userbyid(f.proowner)::text end,
       pg_catalog.format('%I.%I()', n.nspname, f.proname), case when f.proowner in (select oid from trusted) then p.schema end
from pg_catalog.pg_event_trigger e join pg_catalog.pg_proc f on f.oid = e.evtfoid join pg_catalog.pg_namespace n on n.oid = f.pronamespace
left join open_path p on p.function = f.oid
where e.evtenabled <> case when exists (select from pg_catalog.pg_settings where name = 'session_replication_role' and setting = 'replica')
                      then 'O' else 'R' end
  and e.evtenabled <> 'D' and (p.function is not null or f.proowner not in (select oid from trusted))
order by 1, 4 nulls first"
);

/// Such an event trigger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventTrigger {
    /// Its name.
    pub name: String,
    /// The role whose code it runs, or could run.
    pub owner: String,
    /// Its function.
    pub function: String,
    /// The schema in which the function of a trusted role looks names up, and in which the other role may make objects; `None`: the function is that role's.
    pub schema: Option<String>,
}

impl EventTrigger {
    /// By a row of [`EVENT_TRIGGERS`].
    pub fn of(mut column: impl FnMut(usize) -> Option<String>) -> EventTrigger {
        let mut text = |at| column(at).unwrap_or_default();
        let (name, owner, function) = (text(0), text(1), text(2));
        EventTrigger { name, owner, function, schema: column(3) }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        let off = "drop or disable the trigger (alter event trigger ... disable)";
        let owner = role_word(&self.owner);
        match &self.schema {
            Some(_) => format!("{OTHER_PATH}, or {off}"),
            None => format!(
                "give the function to a superuser (alter function ... owner to), {off}, or connect as {owner} (-U {owner})"
            ),
        }
    }
}

impl std::fmt::Display for EventTrigger {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let EventTrigger { name, owner, function, schema } = self;
        let what = format!("the event trigger {name} uses {function}");
        match schema {
            Some(schema) => out
                .write_str(&open_path(&format!("{what}, whose search_path has the schema {schema}"), owner)),
            None => write!(
                out,
                "{what}, which belongs to the role {owner} and would run with the rights of this session"
            ),
        }
    }
}

/// What to do about a function whose search path has a schema in which others may make objects.
pub const OTHER_PATH: &str = "set a search_path without that schema (alter function ... set search_path = pg_catalog, pg_temp; its body must then name \
     schemas), or revoke the right to make objects there";

/// The consequence of such a path: `what` ends with the schema.
pub fn open_path(what: &str, owner: &str) -> String {
    format!("{what}, where {} may make objects, which would run with the rights of this session", who(owner))
}

/// A role in words.
fn who(role: &str) -> String {
    if role == "public" { "everybody".to_owned() } else { format!("the role {role}") }
}

/// What kind of problem a table has, by the first column of [`PROBLEMS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// Its owner.
    Owner,
    /// Code of such a role is attached.
    Code,
    /// Such a role may attach code.
    Right,
    /// A trigger or a rule of any role.
    Attached,
    /// Names in attached code can become code of such a role.
    Path,
}

impl Problem {
    /// By its number.
    pub fn of(number: i32) -> Option<Problem> {
        Some(match number {
            1 => Problem::Owner,
            2 => Problem::Code,
            3 => Problem::Right,
            4 => Problem::Attached,
            5 => Problem::Path,
            _ => return None,
        })
    }
}

/// Why a table should not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distrust {
    /// The table.
    pub table: String,
    /// Its owner, or that of an object attached to it, or a role that may attach one or give it another meaning.
    pub owner: String,
    /// What is attached to the table, or the privilege to do so; empty if the table itself is the problem.
    pub what: String,
    /// Which of these it is.
    pub problem: Problem,
}

impl std::fmt::Display for Distrust {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Distrust { table, owner, what, problem } = self;
        match problem {
            Problem::Right => out.write_str(&may_attach(table, what, owner)),
            Problem::Path => out.write_str(&open_path(&format!("{table}: {what}"), owner)),
            Problem::Owner => {
                write!(
                    out,
                    "{table} belongs to the role {owner}, whose code would run with the rights of this session"
                )
            }
            Problem::Code | Problem::Attached => {
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
        match self.problem {
            Problem::Owner => format!(
                "connect as {owner} (-U {owner}), or give {} to a role of yours (alter ... owner to); {TRUSTED_WORDS}",
                self.table
            ),
            Problem::Right => revoke(&self.table, &self.owner),
            Problem::Path => OTHER_PATH.to_owned(),
            Problem::Code | Problem::Attached => format!("drop it, or connect as {owner} (-U {owner})"),
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
    format!(
        "{table}: {} has the right {right} on it, and could attach code that runs with the rights of this session",
        who(owner)
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
         select oid::text from tree"
    );
    let tree = session.simple_query(&tree)?;
    let oids: Vec<u32> = tree.iter().filter_map(|row| text(row.first()).parse().ok()).collect();
    let rows = session.simple_query(&problems_of(&oids))?;
    Ok(rows.iter().find_map(|row| {
        let problem = text(row.first()).parse().ok().and_then(Problem::of)?;
        let (table, owner, what) = (text(row.get(1)), text(row.get(2)), text(row.get(3)));
        (problem != Problem::Attached).then_some(Distrust { table, owner, what, problem })
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
