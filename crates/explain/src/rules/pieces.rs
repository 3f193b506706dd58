//! PLAN-71: pieces of large values, for each of which the whole value is fetched and unpacked.

use super::costly::{busy, in_a_line, plain, severity, table_named};
use super::paste::literal;
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::Level;
use record::statement::{self, Verb};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-71",
    title: "pieces of large values are read, and the whole values unpacked",
    needs: &[Field("statement", "calls"), Field("table", "bytes"), Field("server", "sessions_active")],
    limits: "20 % of the session time in a SELECT of one table that returns substr, substring, right, length or the like of a column and not the column \
        itself, \
        where the table has 16 kB for each row, and which touches 4 blocks for each row that it returns (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/storage-toast.html#STORAGE-TOAST-ONDISK"],
}];

/// The share of the session time of the statement.
const SHARE_MIN: f64 = 0.2;
/// Bytes of a row with its large values.
const ROW_BYTES_MIN: f64 = 16_384.0;
/// Blocks of a row that is returned.
const BLOCKS_PER_ROW_MIN: f64 = 4.0;
/// Characters of a name.
const NAME_CHARS: usize = 80;
/// Functions that need a part of a value that does not begin with it, or the number of its characters. Of what begins a value only so much is unpacked
/// (`pg_detoast_datum_slice`), and octet_length reads nothing of it.
const OF_A_PART: [&str; 7] =
    ["substr(", "substring(", "right(", "get_byte(", "length(", "char_length(", "split_part("];

/// The first of these functions among the columns that a statement returns, and the columns that it names there.
fn function_in(text: &str) -> Option<(&'static str, String)> {
    let text = super::costly::lowered(text).replace(" (", "(");
    let returned = text.split(" from ").next().unwrap_or_default();
    let calls = OF_A_PART.iter().filter_map(|name| {
        let (at, _) = returned.match_indices(name).find(|(at, _)| {
            let before = returned[..*at].chars().next_back();
            before.is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
        })?;
        let inside = &returned[at + name.len()..];
        let argument: String =
            inside.chars().take_while(|c| c.is_alphanumeric() || "_.\"".contains(*c)).collect();
        // What another function returns is no column.
        let is_column = !inside[argument.len()..].trim_start().starts_with('(');
        let column = argument.rsplit('.').next().unwrap_or_default().trim_matches('"').to_string();
        // A value that is returned as a whole as well has to be fetched.
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let named = returned.split(|c: char| !is_word(c)).filter(|word| *word == column).count();
        let called = OF_A_PART
            .iter()
            .map(|name| returned.matches(&format!("{name}{argument}")).count())
            .sum::<usize>();
        (is_column && !column.is_empty() && named <= called).then(|| (name.trim_end_matches('('), column))
    });
    calls.into_iter().next()
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            let Some((function, column)) = function_in(&statement.text) else { continue };
            let Ok(parsed) = statement::parse(&statement.text) else { continue };
            let [named] = parsed.tables.as_slice() else { continue };
            let Some(table) = table_named(case, &time.node, statement, named) else { continue };
            let dead = table.lines.last("dead_rows").unwrap_or(0.0);
            let rows = table.lines.last("live_rows").unwrap_or(0.0) + dead;
            let each = table.lines.last("bytes").unwrap_or(0.0) / rows.max(1.0);
            let blocks = statement.blocks.unwrap_or(0.0) / statement.rows.unwrap_or(0.0).max(1.0);
            if parsed.verb != Verb::Select || each < ROW_BYTES_MIN || blocks < BLOCKS_PER_ROW_MIN {
                continue;
            }
            let relation = table.lines.word("relation");
            let text = format!(
                "{}: {} of the session time is one statement that takes a piece of large values of {relation} ({function}() of {}): of a value that is stored \
                 compressed \
                 (STORAGE EXTENDED, the default) all is fetched from TOAST and unpacked for each piece",
                time.node,
                units::percent(statement.share),
                plain(&column, NAME_CHARS)
            );
            let columns = format!(
                "SELECT attname, attstorage, attcompression FROM pg_attribute WHERE attrelid = {}::regclass AND attlen = -1 AND attnum > 0; -- x is \
                 EXTENDED, e \
                 EXTERNAL",
                literal(relation)
            );
            claims.push(
                Claim::new(severity(statement.share), Level::CoOccurrence, text)
                    .on_node(&time.node)
                    .during([table.lines.ticks.window()])
                    .number("share", statement.share)
                    .number("bytes_per_row", each)
                    .number("blocks_per_row", blocks)
                    .because(format!("the statement: {}", in_a_line(statement)))
                    .because(format!(
                        "the table has {} for each row, and the statement touches {} blocks for each row that it returns",
                        units::bytes(each),
                        units::short(blocks)
                    ))
                    .lacking("how the column is stored: the command shows it; of a value that is stored EXTERNAL only the piece is fetched, \
                        if its characters are of one byte or it is a bytea")
                    .remedy(
                        "store the column without compression (ALTER TABLE ... ALTER COLUMN ... SET STORAGE EXTERNAL, then write the values again), keep the \
                         pieces as rows of their own, or the length in a column; or fetch the value once",
                        &[&columns],
                    ),
            );
        }
    }
    Answer::of(claims, || "statements with substr and the like, and the sizes of rows".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_known_by_its_whole_name() {
        let of = |text: &str| function_in(text).map(|(name, column)| format!("{name} {column}"));
        assert_eq!(of("SELECT substr(body, $1, $2) FROM f WHERE id = $3").as_deref(), Some("substr body"));
        assert_eq!(of("select LENGTH (f.body) from f").as_deref(), Some("length body"));
        for other in [
            "SELECT my_right(body) FROM f",
            "SELECT body FROM f RIGHT JOIN g USING (id)",
            "SELECT left(body, 20) FROM f",
            "SELECT body, length(body) FROM f",
            "SELECT id, body FROM f WHERE length(title) > $1",
            "SELECT sum(length(md5(body))) FROM f",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
