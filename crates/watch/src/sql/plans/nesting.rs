//! How large a statement becomes when its views are put in their places. The server does that when it prepares a statement, without looking at its limit of
//! time: a view that names another one twice, which names a third one twice, takes memory without a limit. So the definitions are added up before.
//!
//! The dependencies of a view name each relation once; how often stands in the stored tree (`:relid`). Policies are put in their places like views.

use super::{NotPlanned, Session};
use crate::sql::json::{count, list};
use record::statement;
use serde_json::Value;
use std::collections::HashMap;

/// Bytes of the stored trees that a statement may become. A view of a hundred columns has less than 100 kB.
const EXPANDED_BYTES_MAX: u64 = 32 << 20;
/// Bytes of one stored tree that are looked into, as it is kept: compressed.
const STORED_BYTES_MAX: u32 = 1 << 20;
/// Relations that a statement may lead to.
const RELATIONS_MAX: usize = 1_000;

/// The views that a text may mean, and what they lead to: $1 all words of the text, $2 schemas in which names are looked up, quoted.
fn question() -> String {
    let trees = |relation: &str| {
        format!(
            "lateral (select w.oid, 'pg_catalog.pg_rewrite'::pg_catalog.regclass as class, w.ev_action::text as tree, pg_catalog.pg_column_size(w.ev_action) \
                as stored
                from pg_catalog.pg_rewrite w where w.ev_class = {relation}
              union all select p.oid, 'pg_catalog.pg_policy'::pg_catalog.regclass, p.polqual::text, pg_catalog.pg_column_size(p.polqual)
                from pg_catalog.pg_policy p where p.polrelid = {relation}) t"
        )
    };
    // How often the tree has these words with the number of the relation behind them.
    let times = |words: &str| {
        let words = format!("'{words}' || d.refobjid || ' '");
        format!(
            "(pg_catalog.length(t.tree) - pg_catalog.length(pg_catalog.replace(t.tree, {words}, ''))) / pg_catalog.length({words})"
        )
    };
    let named = "d.classid = t.class and d.objid = t.oid and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass";
    format!(
        "with recursive reached (oid) as (
            select c.oid from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
              where c.relname = any($1::text[]::name[]) and (n.nspname = any($1::text[]::name[]) or pg_catalog.quote_ident(n.nspname) = any($2::text[]))
                and (c.relhasrules or c.relrowsecurity)
            union select d.refobjid from reached r, {}, pg_catalog.pg_depend d where {named} and d.refobjid <> r.oid),
          few as materialized (select oid from reached limit {RELATIONS_MAX} + 1),
          trees as materialized (select s.oid relation, t.* from few s, {})
         select json_build_object('relations', (select count(*) from few),
           'seeds', (select json_agg(json_build_array(s.oid::text, c.relname)) from few s join pg_catalog.pg_class c using (oid)),
           'stored', (select max(stored) from trees),
           'bytes', (select json_agg(json_build_array(relation::text, bytes)) from (select relation, sum(pg_catalog.octet_length(tree)) bytes from trees
             where stored <= {STORED_BYTES_MAX} group by 1) b),
           'edges', (select json_agg(json_build_array(relation::text, child::text, times)) from (select t.relation, d.refobjid child,
             sum({} - {}) times
             from trees t join (select distinct classid, objid, refclassid, refobjid from pg_catalog.pg_depend) d on {named}
             where d.refobjid <> t.relation and d.refobjid in (select oid from few) and t.stored <= {STORED_BYTES_MAX} group by 1, 2) e))::text",
        trees("r.oid"),
        trees("s.oid"),
        times(":relid "),
        // From PostgreSQL 16 on each relation also stands among the permissions of the view.
        times("RTEPERMISSIONINFO :relid "),
    )
}

/// Refuses a statement that would become too large.
///
/// # Errors
/// How large it would become, or what the server refuses.
pub(super) fn check(session: &mut Session, plain: &str, schemas: &[String]) -> Result<(), NotPlanned> {
    let answer = session.query(&question(), &[&statement::names(plain), &schemas])?;
    is_small(&answer, plain).map_err(NotPlanned::Why)
}

fn is_small(answer: &Value, plain: &str) -> Result<(), String> {
    if count(answer, "relations").is_some_and(|relations| relations > RELATIONS_MAX as u64) {
        return Err(format!("its views and policies lead to more than {RELATIONS_MAX} relations"));
    }
    if count(answer, "stored").is_some_and(|bytes| bytes > u64::from(STORED_BYTES_MAX)) {
        return Err(format!("a view or policy is larger than {STORED_BYTES_MAX} bytes"));
    }
    let mut expansion = Expansion::default();
    for row in list(answer, "bytes") {
        if let (Some(relation), Some(bytes)) = (row[0].as_str(), row[1].as_u64()) {
            expansion.bytes.insert(relation, bytes);
        }
    }
    for row in list(answer, "edges") {
        if let (Some(relation), Some(child), Some(times)) =
            (row[0].as_str(), row[1].as_str(), row[2].as_u64())
        {
            expansion.edges.entry(relation).or_default().push((child, times));
        }
    }
    let plain = plain.to_lowercase();
    let mut bytes = 0u64;
    for row in list(answer, "seeds") {
        let (relation, name) = (row[0].as_str().unwrap_or_default(), row[1].as_str().unwrap_or_default());
        // Relations that the text does not name are below others.
        let times = plain.matches(&name.to_lowercase()).count() as u64;
        bytes = bytes.saturating_add(expansion.of(relation).saturating_mul(times));
    }
    if bytes > EXPANDED_BYTES_MAX {
        return Err(format!(
            "with its views and policies in their places it would have more than {} MB",
            EXPANDED_BYTES_MAX >> 20
        ));
    }
    Ok(())
}

/// What relations consist of.
#[derive(Debug, Default)]
struct Expansion<'a> {
    /// Bytes of their own trees.
    bytes: HashMap<&'a str, u64>,
    /// What is put into their trees, and how often.
    edges: HashMap<&'a str, Vec<(&'a str, u64)>>,
    known: HashMap<&'a str, u64>,
}

impl<'a> Expansion<'a> {
    /// Bytes of a relation with all that is put in its place. Policies may lead back to their table: the server refuses that.
    fn of(&mut self, relation: &'a str) -> u64 {
        if let Some(known) = self.known.get(relation) {
            return *known;
        }
        self.known.insert(relation, 0);
        let mut sum = self.bytes.get(relation).copied().unwrap_or(0);
        for (child, times) in self.edges.get(relation).cloned().unwrap_or_default() {
            sum = sum.saturating_add(self.of(child).saturating_mul(times));
        }
        self.known.insert(relation, sum);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Views that each name the one before twice.
    fn doubling(views: usize) -> Value {
        let name = |number: usize| (1000 + number).to_string();
        let edges: Vec<Value> = (1..views).map(|n| json!([name(n), name(n - 1), 2])).collect();
        let bytes: Vec<Value> = (0..views).map(|n| json!([name(n), 1000])).collect();
        json!({"relations": views, "stored": 900, "bytes": bytes, "edges": edges,
            "seeds": (0..views).map(|n| json!([name(n), format!("v{n}_")])).collect::<Vec<_>>()})
    }

    #[test]
    fn what_views_become_is_added_up_and_refused_above_the_limit() {
        assert_eq!(is_small(&doubling(12), "select * from v11_"), Ok(()));
        assert!(is_small(&doubling(40), "select * from v39_").is_err_and(|why| why.contains("32 MB")));
        assert_eq!(is_small(&doubling(40), "select * from v3_, V4_"), Ok(()));
        assert!(is_small(&doubling(200), "select * from v199_").is_err(), "no overflow");
        // The same view many times.
        assert!(is_small(&doubling(12), &"v11_, ".repeat(50)).is_err());
        assert!(is_small(&json!({"relations": 2_000}), "").is_err());
        assert!(is_small(&json!({"stored": 5 << 20}), "").is_err());
        // A policy that leads back to its table.
        let back =
            json!({"bytes": [["1", 10]], "edges": [["1", "2", 3], ["2", "1", 3]], "seeds": [["1", "t"]]});
        assert_eq!(is_small(&back, "t"), Ok(()));
        assert_eq!(is_small(&Value::Null, "select 1"), Ok(()));
    }
}
