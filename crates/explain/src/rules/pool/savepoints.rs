//! SES-06 of savepoints: a driver or an object mapper puts each statement between SAVEPOINT and RELEASE, so that an error undoes only that one.

use super::{FRAMES, PER_S_MIN, beside_work, normal};
use crate::case::Case;
use crate::rule::Claim;
use crate::rules::costly::plain;
use crate::units;
use record::finding::{Level, NodeTime, Severity};

/// Savepoints for each statement that works, from which on it is the driver that makes them.
const EACH_MIN: f64 = 0.4;
/// Of all statements, from which on it is medium, and high.
const SHARE_MEDIUM: f64 = 0.3;
const SHARE_HIGH: f64 = 0.5;
/// Characters of a name.
const NAME_CHARS: usize = 40;

/// Who names savepoints so, and how it is changed.
const MAKERS: [(&str, &str); 6] = [
    (
        "pgjdbc_autosave",
        "autosave=always of the JDBC driver: set autosave=never, or conservative, which makes one only where a plan may fail",
    ),
    (
        "_exec_svp",
        "the ODBC driver undoes single statements (Protocol=7.4-2): set it to 7.4-1, which undoes transactions",
    ),
    ("pg_psql_temporary_savepoint", "ON_ERROR_ROLLBACK of psql: \\unset ON_ERROR_ROLLBACK in scripts"),
    (
        "__efsavepoint",
        "Entity Framework: context.Database.AutoSavepointsEnabled = false where SaveChanges is called in a transaction",
    ),
    (
        "active_record",
        "ActiveRecord: transaction(requires_new: true) inside of another one; leave it out where the whole is to be undone",
    ),
    ("sa_savepoint", "SQLAlchemy: begin_nested() around each statement; once around the whole is enough"),
];
/// Django names them s, the number of the thread, _x, and a number.
const OF_DJANGO: &str =
    "Django: atomic() inside of atomic(); atomic(savepoint=False) where the whole is to be undone";

/// How the maker of a savepoint is changed, by its name.
fn maker(name: &str) -> Option<&'static str> {
    let is_of_django = || {
        let (thread, count) = name.strip_prefix('s')?.split_once("_x")?;
        let are_digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        (are_digits(thread) && are_digits(count)).then_some(OF_DJANGO)
    };
    let known = MAKERS.iter().find(|(part, _)| name.contains(part)).map(|(_, how)| *how);
    known.or_else(is_of_django)
}

/// What a node's statements are, as far as savepoints go.
#[derive(Default)]
struct Counts {
    made: f64,
    released: f64,
    working: f64,
    all: f64,
    /// The name that is used most.
    name: String,
    most: f64,
}

fn counts(case: &Case, node: &str) -> Counts {
    let mut counts = Counts::default();
    for line in case.at("statement", node) {
        let id = line.lines.word("query_id");
        if case.is_own_statement(id) {
            continue;
        }
        let text = normal(case.query(id).unwrap_or_default());
        let calls = line.lines.sum("calls").unwrap_or(0.0);
        counts.all += calls;
        match text.split(' ').collect::<Vec<_>>().as_slice() {
            ["savepoint", name] => {
                counts.made += calls;
                if calls > counts.most {
                    (counts.most, counts.name) = (calls, plain(name, NAME_CHARS));
                }
            }
            ["release", ..] => counts.released += calls,
            [first, ..] if FRAMES.contains(first) => {}
            _ if beside_work(&text).is_some() => {}
            _ => counts.working += calls,
        }
    }
    counts
}

/// The claim about a node whose statements have a savepoint each.
pub(super) fn claim(case: &Case, time: &NodeTime, covered_s: f64) -> Option<Claim> {
    let Counts { made, released, working, all, name, .. } = counts(case, &time.node);
    let each = made / working.max(1.0);
    if covered_s <= 0.0 || made / covered_s < PER_S_MIN || each < EACH_MIN {
        return None;
    }
    let share = (made + released) / all.max(1.0);
    let maker = maker(&name);
    let severity = match share {
        share if share >= SHARE_HIGH => Severity::High,
        share if share >= SHARE_MEDIUM => Severity::Medium,
        _ => Severity::Low,
    };
    let text = format!(
        "{}: {} of the statements only make and release savepoints, {} for each statement that works, {} a second: {}",
        time.node,
        units::percent(share),
        units::short((made + released) / working.max(1.0)),
        units::short((made + released) / covered_s),
        maker.map_or_else(
            || format!("a driver or an object mapper puts each statement into one of its own ({name})"),
            str::to_string
        )
    );
    let claim = Claim::new(severity, Level::DiscriminatingCounter, text)
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("savepoints_per_statement", each)
        .number("calls_share", share)
        .number("savepoints_per_s", made / covered_s)
        .because(format!("the name that is used most: {name}; of the savepoints {} are released", units::percent((released / made).min(1.0))))
        .because(
            "for the client each is a round trip, and those of 64 or more with writes in one transaction overflow what the server keeps (LWL-02); while \
             the transaction lasts so much longer, its locks are held",
        )
        .not("work of the application: none of them names a table");
    Some(claim.remedy(
        "let the program undo the whole transaction and try it again, and make savepoints only where one statement is expected to fail (better: INSERT ... ON \
         CONFLICT)",
        &["SELECT calls, left(query, 60) AS query FROM pg_stat_statements WHERE query ~* '^\\s*(savepoint|release)' ORDER BY calls DESC LIMIT 10;"],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makers_are_known_by_the_names_they_give() {
        for (name, part) in [
            ("pgjdbc_autosave", Some("JDBC")),
            ("_exec_svp_0x55d", Some("ODBC")),
            ("s140213_x12", Some("Django")),
            ("sa_savepoint_3", Some("SQLAlchemy")),
            ("step_x1", None),
            ("before_import", None),
        ] {
            assert_eq!(maker(name).is_some(), part.is_some(), "{name}");
            assert!(part.is_none_or(|part| maker(name).is_some_and(|how| how.contains(part))), "{name}");
        }
    }
}
