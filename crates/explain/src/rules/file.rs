//! EXT-04: foreign tables that are files, of which each statement reads all.

use super::costly::{busy, in_a_line, names_table, severity};
use super::statement::explain_it;
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::Level;
use record::statement;
use record::watched::PECULIAR;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "EXT-04",
    title: "a file is read as a whole for few of its rows",
    needs: &[Field("statement", "rows"), Field("server", "sessions_active")],
    limits: "20 % of the session time in a statement on a foreign table of file_fdw that runs once a second and returns 1,000 rows or fewer (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/file-fdw.html"],
}];

const SHARE_MIN: f64 = 0.2;
const CALLS_PER_S_MIN: f64 = 1.0;
const ROWS_MAX: f64 = 1_000.0;
/// What is recorded of such a table.
const OF_FILE: &str = "foreign table of file_fdw";

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let is_file = |fact: &&record::watched::Fact| fact.node == time.node && fact.value.contains(OF_FILE);
        let files: Vec<&str> = case.facts(PECULIAR).filter(is_file).map(|fact| fact.name.as_str()).collect();
        for statement in time.statements.iter().filter(|one| one.share >= SHARE_MIN) {
            let (calls, rows) = (statement.calls_per_s.unwrap_or(0.0), statement.rows.unwrap_or(f64::MAX));
            let relation = files.iter().find(|relation| names_table(statement, relation));
            // One without a condition wants all that the file has.
            let is_filtered = statement::parse(&statement.text).map_or(true, |parsed| parsed.is_filtered);
            let Some(relation) =
                relation.filter(|_| calls >= CALLS_PER_S_MIN && rows <= ROWS_MAX && is_filtered)
            else {
                continue;
            };
            let text = format!(
                "{}: a statement that takes {} of the session time reads foreign table {relation}, a file (file_fdw), as a whole {} times a second, to \
                 return {} \
                 rows: a file has no index, and each of its lines is parsed each time",
                time.node,
                units::percent(statement.share),
                units::short(calls),
                units::short(rows)
            );
            claims.push(
                Claim::new(severity(statement.share), Level::CoOccurrence, text)
                    .on_node(&time.node)
                    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                    .number("share", statement.share)
                    .because(format!("the statement: {}", in_a_line(statement)))
                    .not("a missing index: a foreign table has none")
                    .remedy(
                        "import the file into a table with an index whenever it is delivered (COPY, or a materialized view over the foreign table), and \
                         read that",
                        &[
                            &format!("CREATE TABLE file_copy AS SELECT * FROM {relation}; -- then create the index for the condition"),
                            &explain_it(case, &time.node, statement),
                        ],
                    ),
            );
        }
    }
    Answer::of(claims, || "foreign tables that are files".to_string())
}
