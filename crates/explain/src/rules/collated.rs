//! CFG-04: indexes that were made with another order of texts than the one that the host's library has now.

use crate::case::Case;
use crate::rule::Need::Facts;
use crate::rule::{Answer, Claim, Rule};
use crate::rules::costly::plain;
use crate::rules::paste::word;
use record::finding::{Level, Severity};
use record::statement::quoted;
use record::watched::COLLATION_VERSION;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "CFG-04",
    title: "indexes are in another order than texts are compared in",
    needs: &[Facts("setting")],
    limits: "any collation with indexes whose recorded version is not the one of the host's library now (PostgreSQL 15 and later)",
    judge,
    links: &[
        "https://www.postgresql.org/docs/current/sql-altercollation.html#SQL-ALTERCOLLATION-NOTES",
        "https://wiki.postgresql.org/wiki/Locale_data_changes",
    ],
}];

/// Characters of names in a claim.
const NAME_CHARS: usize = 80;

fn judge(case: &Case) -> Answer {
    let claims = case.facts(COLLATION_VERSION).map(|fact| {
        let name = plain(&fact.name, NAME_CHARS);
        let (versions, indexes) = fact.value.split_once("; ").unwrap_or((&fact.value, ""));
        let versions = plain(versions, NAME_CHARS);
        let refresh = match fact.name.strip_prefix("database ") {
            Some(database) => format!("ALTER DATABASE {} REFRESH COLLATION VERSION; -- after that", quoted(database)),
            // The server has quoted its name, and written its schema.
            None => format!(
                "ALTER COLLATION {} REFRESH VERSION; -- after that",
                fact.name.trim_start_matches("collation ")
            ),
        };
        Claim::new(
            Severity::High,
            Level::DiscriminatingCounter,
            format!(
                "{}: the library that compares texts was changed since indexes were made (version of {name}: {versions}): they are in the old order, so that \
                 look-ups miss rows that are there, and unique indexes let values in twice",
                fact.node
            ),
        )
        .on_node(&fact.node)
        .during([case.span])
        .number("indexes", indexes.parse().unwrap_or(0.0))
        .because(format!("the catalog has the version of when they were made: {indexes} indexes use this collation"))
        .because("an upgrade of the operating system, of its C library or of ICU, or a standby on another system, changes the order of texts")
        .lacking("which indexes are wrong: the new order may differ for a few characters only (amcheck finds them)")
        .remedy(
            "build all indexes on texts anew, and look for rows that are there twice before; then record the new version in the catalog",
            &[
                "SELECT indexrelid::regclass AS index, bt_index_check(indexrelid) FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = \
                 c.relam AND a.amname = 'btree' WHERE indcollation::oid[] && array(SELECT oid FROM pg_collation) AND indrelid >= 16384; -- needs \
                     CREATE EXTENSION amcheck; ends at the first that is wrong",
                &format!("$ reindexdb --concurrently -d {}", database_of(case, &fact.node)),
                &refresh,
            ],
        )
    });
    let claims = claims.collect();
    Answer::of(claims, || "versions of collations, as recorded and now".to_string())
}

/// The database that was watched, for a shell.
fn database_of(case: &Case, node: &str) -> String {
    let found = case.facts("server").find(|fact| fact.node == node && fact.name == "database");
    found.map_or_else(|| "DATABASE".to_string(), |fact| word(&fact.value))
}
