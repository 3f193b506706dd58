//! Which tables reach which nodes: a subscription names sets of tables, and a table is in some of them, or in none. Only the catalogs of both sides together
//! show a table that is not sent at all.

use std::collections::BTreeSet;

use postgres::{Client, Error};

use crate::catalog::{self, QueryError, TextRow};
use crate::directions::{self, Direction, Directions};
use crate::engine::{native_sets, replications};
use crate::profile::Sets;

/// A table by schema and name, and the table that it is a partition of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sent {
    /// The schema of both.
    pub schema: String,
    /// The table that holds rows.
    pub table: String,
    /// The whole, which may be sent in the place of its partitions.
    pub root: String,
}

/// A table that does not reach a node as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsent {
    /// The node that does not get it.
    pub follower: usize,
    /// The node whose writes these are.
    pub source: usize,
    /// The table, as a whole.
    pub table: String,
    /// Why, in words.
    pub why: String,
}

/// What one node has of one replication system.
struct Seen {
    /// The name of the system, `None` for PostgreSQL's own.
    system: Option<&'static str>,
    sets: &'static Sets,
    subscribed: Vec<TextRow>,
    sent: Vec<TextRow>,
    taken: Option<Vec<TextRow>>,
}

/// The tables that do not reach a node although a subscription does. `ask` runs a query at a node, by its place.
///
/// # Errors
/// Those of `ask`.
pub fn unsent<E: QueryError>(
    directions: &Directions,
    nodes: usize,
    tables: &[Sent],
    mut ask: impl FnMut(usize, &str) -> Result<Vec<TextRow>, E>,
) -> Result<Vec<Unsent>, E> {
    let mut seen = Vec::with_capacity(nodes);
    for node in 0..nodes {
        seen.push(look(&mut |sql: &str| ask(node, sql))?);
    }
    let pairs: BTreeSet<(usize, usize)> =
        directions.all.iter().map(|one| (one.follower, one.source)).collect();
    let mut found = Vec::new();
    for (follower, source) in pairs {
        let between: Vec<&Direction> = directions
            .all
            .iter()
            .filter(|one| (one.follower, one.source) == (follower, source) && one.has_slot)
            .collect();
        // What has no sets sends every table; sets that the role may not read are unknown.
        let has = |node: usize, one: &Direction| {
            seen[node].iter().any(|seen| seen.system == one.subscription.system)
        };
        let has_sets = |one: &&Direction| has(follower, one) && has(source, one);
        if between.is_empty() || !between.iter().all(has_sets) {
            continue;
        }
        for table in tables {
            if let Some(why) = why_not(&seen[follower], &seen[source], &between, table) {
                let table = table.root.clone();
                found.push(Unsent { follower, source, table, why });
            }
        }
    }
    // Its partitions have one reason, mostly.
    found.dedup();
    Ok(found)
}

/// The same through sessions of the control plane.
///
/// # Errors
/// When a catalog cannot be read.
pub fn of_clients<'c>(
    clients: impl IntoIterator<Item = &'c mut Client>,
    tables: &[Sent],
) -> Result<Vec<Unsent>, Error> {
    let mut clients: Vec<&mut Client> = clients.into_iter().collect();
    let nodes = clients.len();
    let mut ask = |node: usize, sql: &str| catalog::rows(clients[node], sql);
    let directions = directions::find(nodes, &mut ask)?;
    unsent(&directions, nodes, tables, ask)
}

fn look<E: QueryError>(ask: &mut impl FnMut(&str) -> Result<Vec<TextRow>, E>) -> Result<Vec<Seen>, E> {
    let installed = replications(
        |replication| replication.sets.is_some() && replication.subscriptions.is_some(),
        |sign| Ok(ask(&format!("select {sign}"))?.first().is_some_and(|row| row.is_true(0))),
    )?;
    let named = installed.into_iter().filter_map(|one| Some((Some(one.name), one.sets?)));
    let all: Vec<(Option<&'static str>, &'static Sets)> = named.chain([(None, native_sets())]).collect();
    let mut seen = Vec::with_capacity(all.len());
    for (system, sets) in all {
        let mut read = || -> Result<Seen, E> {
            let (subscribed, sent) = (ask(sets.subscribed)?, ask(sets.sent)?);
            Ok(Seen { system, sets, subscribed, sent, taken: sets.taken.map(&mut *ask).transpose()? })
        };
        match read() {
            Ok(read) => seen.push(read),
            // Directions that the role cannot see have nothing to do with sets either.
            Err(error) if error.refusal().is_some() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(seen)
}

/// Why none of these subscriptions brings the whole table; `None`: one does.
fn why_not(here: &[Seen], there: &[Seen], between: &[&Direction], table: &Sent) -> Option<String> {
    let is_it = |row: &TextRow, schema: usize| {
        let name = row.get(schema + 1);
        row.get(schema) == Some(&*table.schema) && (name == Some(&*table.table) || name == Some(&*table.root))
    };
    let mut why = Vec::new();
    for Direction { subscription, .. } in between {
        let own = here.iter().find(|seen| seen.system == subscription.system)?;
        let sent = there.iter().find(|seen| seen.system == subscription.system);
        let sent: Vec<&TextRow> =
            sent.iter().flat_map(|seen| &seen.sent).filter(|row| is_it(row, 1)).collect();
        let is_own = |row: &&TextRow| row.get(0) == Some(&*subscription.name);
        let sets: Vec<&str> = own.subscribed.iter().filter(is_own).filter_map(|row| row.get(1)).collect();
        let of_sets: Vec<&&TextRow> =
            sent.iter().filter(|row| row.get(0).is_some_and(|set| sets.contains(&set))).collect();
        let is_taken = |rows: &Vec<TextRow>| rows.iter().any(|row| is_own(&row) && is_it(row, 1));
        let (name, word) = (&subscription.name, own.sets.word);
        match of_sets.iter().find(|row| row.get(3).is_none()).or(of_sets.first()) {
            Some(whole) if whole.get(3).is_none() => {
                if own.taken.as_ref().is_none_or(is_taken) {
                    return None;
                }
                why.push(format!("the subscription {name} was not refreshed since the {word} has the table"));
            }
            Some(part) => why.push(format!(
                "the {word} {} sends {}",
                part.get(0).unwrap_or_default(),
                part.get(3).unwrap_or_default()
            )),
            None => {
                let others: Vec<&str> = sent.iter().filter_map(|row| row.get(0)).collect();
                let there = match others.as_slice() {
                    [] => format!("no {word} has the table"),
                    others => format!("the table is in the {word} {}", others.join(", ")),
                };
                why.push(format!(
                    "the subscription {name} takes the {word} {}, and {there}",
                    sets.join(", ")
                ));
            }
        }
    }
    Some(why.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> TextRow {
        cells.iter().map(|cell| (*cell != "-").then(|| (*cell).to_owned())).collect()
    }

    /// Two nodes of which the second follows the first by the publication `mine`.
    fn found(sent: &[&str], taken: &[&str]) -> Vec<Unsent> {
        let native = native_sets();
        let mut ask = |node: usize, sql: &str| {
            Ok::<Vec<TextRow>, postgres::Error>(match (node, sql) {
                (0, sql) if sql.contains("pg_replication_slots") => vec![row(&["s"])],
                (1, sql) if sql.contains("as running") && sql.contains("pg_subscription s") => {
                    vec![row(&["sub", "s", "true", "true", "-"])]
                }
                (1, sql) if sql == native.subscribed => vec![row(&["sub", "mine"])],
                (0, sql) if sql == native.sent && !sent.is_empty() => vec![row(sent)],
                (1, sql) if Some(sql) == native.taken && !taken.is_empty() => vec![row(taken)],
                _ => vec![],
            })
        };
        let directions = directions::find(2, &mut ask).unwrap();
        let table = Sent { schema: "public".into(), table: "t_p0".into(), root: "t".into() };
        unsent(&directions, 2, &[table], &mut ask).unwrap()
    }

    #[test]
    fn a_table_that_a_subscription_does_not_bring_is_found_with_the_reason() {
        let taken = &["sub", "public", "t"];
        assert_eq!(found(&["mine", "public", "t", "-"], taken), []);
        assert_eq!(found(&["mine", "public", "t_p0", "-"], &["sub", "public", "t_p0"]), []);
        let why = |sent: &[&str], taken: &[&str]| {
            let found = found(sent, taken);
            assert_eq!((found.len(), found[0].follower, found[0].source), (1, 1, 0), "{found:?}");
            found[0].why.clone()
        };
        let other = why(&["default", "public", "t", "-"], taken);
        assert_eq!(
            other,
            "the subscription sub takes the publication mine, and the table is in the publication default"
        );
        assert!(why(&[], taken).ends_with("no publication has the table"));
        assert!(why(&["mine", "elsewhere", "t", "-"], taken).ends_with("no publication has the table"));
        assert_eq!(
            why(&["mine", "public", "t", "no updates"], taken),
            "the publication mine sends no updates"
        );
        assert!(why(&["mine", "public", "t", "-"], &[]).contains("was not refreshed"));
    }
}
