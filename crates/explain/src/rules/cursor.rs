//! PLAN-94: cursors that are read to their end, and were planned for their first rows.

use super::costly::{busy, lowered, names_table, plain, severity};
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event;
use record::finding::{Level, NodeTime, StatementTime};
use record::statement::quoted;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-94",
    title: "a cursor that is read as a whole was planned for its first rows",
    needs: &[Field("statement", "calls"), Field("table", "index_rows"), Field("server", "sessions_active")],
    limits: "20 % of the session time in FETCH from a cursor whose DECLARE is known, and ten rows of its tables read for each that is fetched, with \
        cursor_tuple_fraction below 1 (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/runtime-config-query.html#GUC-CURSOR-TUPLE-FRACTION"],
}];

const SHARE_MIN: f64 = 0.2;
/// Rows read for each that is fetched.
const READ_MIN: f64 = 10.0;
/// The setting, and its default.
const SETTING: &str = "cursor_tuple_fraction";
const DEFAULT: &str = "0.1";
/// Characters of a cursor's query in a claim.
const QUERY_CHARS: usize = 120;

/// The cursor that a statement fetches from.
fn fetched_from(text: &str) -> Option<String> {
    if !lowered(text).starts_with("fetch ") {
        return None;
    }
    text.trim_end_matches([';', ' ', '\n']).split_whitespace().next_back().map(name_of)
}

/// A name as the server keeps it: in small letters unless it is quoted.
fn name_of(word: &str) -> String {
    match word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(name) => name.replace("\"\"", "\""),
        None => word.to_ascii_lowercase(),
    }
}

/// The query of a cursor, and the role that declared it.
fn declared<'a>(case: &'a Case, node: &str, cursor: &str) -> Option<(&'a str, &'a str)> {
    let texts = case.events_of(event::QUERY).filter(|one| Case::word_of(one, "node") == node);
    texts.into_iter().find_map(|one| {
        let text = Case::word_of(one, "text");
        let small = text.to_ascii_lowercase();
        small.strip_prefix("declare ")?;
        let name = name_of(text.split_whitespace().nth(1)?);
        let begin = small.find(" for ")? + " for ".len();
        // The words may be of another length in other letters only where they are not ASCII.
        (name == cursor).then(|| text.get(begin..)).flatten().map(|query| (query, Case::word_of(one, "user")))
    })
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|one| one.share >= SHARE_MIN) {
            claims.extend(of_cursor(case, time, one));
        }
    }
    Answer::of(claims, || "cursors that take the time".to_string())
}

fn of_cursor(case: &Case, time: &NodeTime, one: &StatementTime) -> Option<Claim> {
    let cursor = fetched_from(&one.text)?;
    let (query, role) = declared(case, &time.node, &cursor)?;
    let fraction = case.setting(&time.node, SETTING).unwrap_or(DEFAULT);
    if fraction.parse::<f64>().is_ok_and(|fraction| fraction >= 1.0) {
        return None;
    }
    let of_query = StatementTime { text: query.to_string(), ..StatementTime::default() };
    let tables =
        case.at("table", &time.node).filter(|table| names_table(&of_query, table.lines.word("relation")));
    let read = |field: &str, table: &crate::case::Thing<'_>| table.lines.rate(field).unwrap_or(0.0);
    let of_tables: Vec<(&str, f64)> = tables
        .map(|table| (table.lines.word("relation"), read("index_rows", &table) + read("seq_rows", &table)))
        .collect();
    let (relation, rows) = of_tables.into_iter().max_by(|left, right| left.1.total_cmp(&right.1))?;
    let fetched = one.calls_per_s? * one.rows?;
    let each = rows / fetched.max(1.0);
    if each < READ_MIN {
        return None;
    }
    let set = match role {
        "" => format!("SET {SETTING} = 1; -- in the session of the program, before DECLARE"),
        role => {
            format!("ALTER ROLE {} SET {SETTING} = 1; -- for sessions that connect from now on", quoted(role))
        }
    };
    let compare = format!(
        "SHOW {SETTING}; -- EXPLAIN shows both plans: with DECLARE {} CURSOR FOR in front of the query, and without",
        quoted(&cursor)
    );
    Some(
        Claim::new(
            severity(one.share),
            Level::CoOccurrence,
            format!(
                "{}: {} of the session time is FETCH from cursor {}, whose query reads {} rows of {relation} for each that is fetched: a cursor is planned to \
                 return its first rows soon ({SETTING} = {fraction}), though all of them are read: {}",
                time.node,
                units::percent(one.share),
                plain(&cursor, QUERY_CHARS),
                units::short(each),
                plain(query, QUERY_CHARS)
            ),
        )
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("share", one.share)
        .number("rows_read_per_row", each)
        .because(format!("the statement: {}", plain(&one.text, QUERY_CHARS)))
        .because("such a plan walks an index in the wanted order and throws most rows away, rather than find those that fit and sort them")
        .lacking("the plan of the cursor: no view has it")
        .remedy(
            "plan cursors that are read to their end for all rows (cursor_tuple_fraction = 1, for the role or session of such exports), or give the condition \
                and \
             the order one index together",
            &[&set, &compare],
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::fetched_from;

    #[test]
    fn the_cursor_stands_at_the_end() {
        assert_eq!(fetched_from("FETCH 20000 FROM c_export").as_deref(), Some("c_export"));
        assert_eq!(fetched_from("fetch forward $1 in \"C1\";").as_deref(), Some("C1"));
        assert_eq!(fetched_from("FETCH NEXT FROM C1").as_deref(), Some("c1"));
        assert_eq!(fetched_from("select 1"), None);
    }
}
