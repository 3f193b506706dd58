//! Who owns the tables, and what is attached to them.
//!
//! Statements on a table can run code that others have attached to it: a trigger or a default when rows are written, an index's expression as
//! soon as a statement is planned. It runs with the rights of the session. So tables of the ledger and of a dataset are used only if their
//! owners are *trusted* ([`engines::trust::TRUSTED`]), and everything attached to them calls nothing but what trusted roles have made. A load also
//! refuses triggers and rules of whomever, because they change what is loaded.
//!
//! Who is not trusted shall not be able to attach anything later either: the tables' schema has to belong to a trusted role, who could otherwise
//! put others in their place, and no other role may have the rights TRIGGER and REFERENCES on them. Tables that a load makes lose them where default
//! privileges grant them ([`keep_code_out`]).
//!
//! What a trusted role attaches while we work is its own responsibility; a load looks once more at its end. The question itself is
//! [`engines::trust`]'s.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use connect::sql::{identifier as quoted, qualified};
use engines::trust::{EVENT_TRIGGERS, EventTrigger, Problem, TRUSTED, problems_of};
use postgres::{GenericClient, SimpleQueryMessage};

use crate::error::LoadError;

/// What will be done with the relations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// They are read, or written as the user's own statements would.
    Use,
    /// They are filled: nothing may change the rows on their way.
    Fill,
}

/// What it is, the relation, whom it belongs to, and what that is.
type Found = (Option<Problem>, String, String, String);

/// Problems of relations.
fn problems(client: &mut impl GenericClient, oids: &[u32]) -> Result<Vec<Found>, postgres::Error> {
    let messages = client.simple_query(&problems_of(oids))?;
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let text = |at: usize| row.get(at).unwrap_or_default().to_string();
            let number = row.get(0).and_then(|number| number.parse().ok())?;
            Some((Problem::of(number), text(1), text(2), text(3)))
        }
        _ => None,
    });
    Ok(rows.collect())
}

/// Refuses relations that this session should not use.
pub(crate) fn check(
    client: &mut impl GenericClient,
    oids: &[u32],
    purpose: Purpose,
) -> Result<(), LoadError> {
    let rows = problems(client, oids);
    let rows = rows.map_err(|source| LoadError::sql("checking who owns the tables", source))?;
    for (problem, name, owner, what) in rows {
        match problem {
            Some(Problem::Owner) => return Err(LoadError::NotTrusted { object: name, owner }),
            Some(Problem::Code) => return Err(LoadError::ForeignCode { table: name, what, owner }),
            Some(Problem::Right) => return Err(LoadError::MayAttach { table: name, right: what, owner }),
            Some(Problem::Path) => return Err(LoadError::OpenPath { table: name, what, owner }),
            Some(Problem::Attached) if purpose == Purpose::Fill => {
                return Err(LoadError::Attached { table: name, what });
            }
            Some(Problem::Attached) | None => {}
        }
    }
    Ok(())
}

/// Refuses tables with a rule that replaces what this session writes: a statement is then another one, or none.
pub(crate) fn check_rules(client: &mut impl GenericClient, oids: &[u32]) -> Result<(), LoadError> {
    let found = client.query(
        "select c.relname::text, r.rulename::text from pg_rewrite r join pg_class c on c.oid = r.ev_class
         where r.ev_class = any ($1) and r.is_instead and r.ev_type in ('2', '3', '4') and r.ev_enabled <> 'D'
           and r.ev_enabled <> case when exists (select from pg_settings where name = 'session_replication_role' and setting = 'replica')
                               then 'O' else 'R' end
         order by 1, 2 limit 1",
        &[&oids],
    );
    let found = found.map_err(|source| LoadError::sql("looking for rules of the tables", source))?;
    found.first().map_or(Ok(()), |row| Err(LoadError::Rewritten { table: row.get(0), rule: row.get(1) }))
}

/// Takes the rights TRIGGER and REFERENCES on new tables from roles that are not trusted: default privileges may have granted them. To be called
/// in the transaction that makes the tables. What was taken from whom, in words.
pub(crate) fn keep_code_out(
    client: &mut impl GenericClient,
    schema: &str,
    tables: &[String],
) -> Result<Vec<String>, LoadError> {
    let failed = |source| LoadError::sql("checking who may attach code to the new tables", source);
    let oids = client.query(
        "select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = any ($2)",
        &[&schema, &tables],
    );
    let oids: Vec<u32> = oids.map_err(failed)?.iter().map(|row| row.get(0)).collect();
    let mut taken: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (problem, name, owner, _) in problems(client, &oids).map_err(failed)? {
        if problem == Some(Problem::Right) {
            taken.entry(owner).or_default().insert(name);
        }
    }
    let mut notes = Vec::new();
    for (role, tables) in taken {
        let grantee = if role == "public" { role.clone() } else { quoted(&role) };
        let listed: Vec<String> = tables.iter().map(|table| qualified(schema, table)).collect();
        let revoke = format!("revoke trigger, references on {} from {grantee}", listed.join(", "));
        let revoked = client.batch_execute(&revoke);
        revoked.map_err(|source| {
            LoadError::sql("revoking the right to attach code to the new tables", source)
        })?;
        let (who, first) = (if role == "public" { "everybody" } else { &role }, tables.iter().next());
        let named = match (first, tables.len()) {
            (Some(first), 1) => first.clone(),
            (first, count) => format!("{} and {} more", first.map_or("", String::as_str), count - 1),
        };
        notes.push(format!(
            "default privileges gave {who} the rights TRIGGER and REFERENCES on {named}: they were revoked, because code attached with them would \
             run with the rights of other roles"
        ));
    }
    Ok(notes)
}

/// Refuses a database in which our statements that make and drop tables would run code of another role.
pub(crate) fn check_event_triggers(client: &mut impl GenericClient) -> Result<(), LoadError> {
    let found = client.query(EVENT_TRIGGERS, &[]);
    let found = found.map_err(|source| LoadError::sql("checking whose event triggers there are", source))?;
    found.first().map_or(Ok(()), |row| Err(LoadError::EventTrigger(EventTrigger::of(|at| row.get(at)))))
}

/// Refuses a schema that belongs to a role which is not trusted: it could put tables of its own in the place of ours.
pub(crate) fn check_schema(client: &mut impl GenericClient, schema: &str) -> Result<(), LoadError> {
    // The schema public belongs to a role that stands for the owner of the database.
    let owner = client.query_opt(
        &format!(
            "select pg_get_userbyid(o.oid)::text, o.oid in ({TRUSTED})
             from pg_namespace n join pg_database d on d.datname = current_database()
             cross join lateral (select case pg_get_userbyid(n.nspowner) when 'pg_database_owner' then d.datdba else n.nspowner end) o (oid)
             where n.nspname = $1"
        ),
        &[&schema],
    );
    match owner.map_err(|source| LoadError::sql("checking who owns the schema", source))? {
        Some(owner) if !owner.get::<_, bool>(1) => {
            Err(LoadError::NotTrusted { object: format!("the schema {schema}"), owner: owner.get(0) })
        }
        _ => Ok(()),
    }
}

/// For how long a session relies on its own look at the ledger: the steps of a verb ask for it one after the other.
const LOOK: (&str, Duration) = ("whose ledger it is", Duration::from_secs(1));

/// Refuses a ledger that this session should not use: its schema, and those of its tables that exist. What was fine a moment ago can have been
/// changed by trusted roles only.
pub(crate) fn check_ledger(
    client: &mut impl GenericClient,
    schema: &str,
    tables: &[&str],
) -> Result<(), LoadError> {
    if client.recent().holds(LOOK.0, LOOK.1) {
        return Ok(());
    }
    check_schema(client, schema)?;
    check_tables_of_ledger(client, schema, tables)?;
    client.recent().note(LOOK.0);
    Ok(())
}

/// Refuses those of these tables of the ledger that exist and that this session should not use.
pub(crate) fn check_tables_of_ledger(
    client: &mut impl GenericClient,
    schema: &str,
    tables: &[&str],
) -> Result<(), LoadError> {
    let failed = |source| LoadError::sql("checking who owns the ledger", source);
    let rows = client.query(
        "select c.oid, c.relname::text, case c.relkind when 'r' then '' when 'v' then 'view' when 'f' then 'foreign table' else 'relation' end
         from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = $1 and c.relname = any ($2)",
        &[&schema, &tables],
    );
    let rows = rows.map_err(failed)?;
    if let Some(other) = rows.iter().find(|row| !row.get::<_, &str>(2).is_empty()) {
        let name = format!("{schema}.{}", other.get::<_, &str>(1));
        return Err(LoadError::NotATable { name, kind: other.get(2) });
    }
    let oids: Vec<u32> = rows.iter().map(|row| row.get(0)).collect();
    check(client, &oids, Purpose::Fill)
}

/// The tables of a dataset that are there: those that the ledger lists, by the names they have there, and all of their partitions.
pub(crate) fn tables_of(
    client: &mut impl GenericClient,
    dataset: i32,
    schema: &str,
) -> Result<Vec<u32>, LoadError> {
    let rows = client.query(
        "with recursive tree (oid) as (
             select c.oid from pgfathom.object b join pg_class c on c.relname = b.name join pg_namespace n on n.oid = c.relnamespace
             where b.dataset = $1 and n.nspname = $2
             union
             select i.inhrelid from pg_inherits i join tree t on i.inhparent = t.oid
         )
         select oid from tree",
        &[&dataset, &schema],
    );
    let rows = rows.map_err(|source| LoadError::sql("looking for the tables of the dataset", source))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Refuses tables of a dataset that others could change the rows of while they are filled, or that policies apply to.
pub(crate) fn check_filled(
    client: &mut impl GenericClient,
    dataset: i32,
    schema: &str,
) -> Result<(), LoadError> {
    let oids = tables_of(client, dataset, schema)?;
    check(client, &oids, Purpose::Fill)?;
    let hidden = client.query_opt(
        "select relname::text from pg_class where oid = any ($1) and relkind in ('r', 'p') and row_security_active(oid) limit 1",
        &[&oids],
    );
    match hidden.map_err(|source| LoadError::sql("looking for row-level security", source))? {
        Some(row) => Err(LoadError::RowSecurity { table: row.get(0) }),
        None => Ok(()),
    }
}
