//! Indexes that remedies create: one that is there already is not created again, and what still has a parameter in it is no command.

mod refused;

use crate::case::{Case, Thing};

/// What begins a command that creates an index.
const CREATE: [&str; 2] = ["CREATE INDEX ", "CREATE UNIQUE INDEX "];

/// The parts of a command, or of the definition of an index, that make it what it is.
#[derive(PartialEq, Eq, Debug)]
struct Made {
    relation: String,
    method: String,
    /// Its columns and expressions.
    keys: Vec<String>,
    /// Columns that it only holds (INCLUDE).
    included: Vec<String>,
    only: String,
}

/// Without what writers of the same differ in: case, blanks, quotes and parentheses outside of calls, and casts that the server adds.
fn bare(text: &str) -> String {
    let text = ["::text", "::character varying", "::regconfig", "ASC"]
        .iter()
        .fold(text.to_string(), |text, word| text.replace(word, ""));
    let is_kept = |c: &char| !c.is_whitespace() && !matches!(c, '"' | '(' | ')');
    text.chars().filter(is_kept).flat_map(char::to_lowercase).collect()
}

/// Where the parenthesis is closed that a text begins with.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some(at),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The parts of a list that stand outside of parentheses.
fn listed(text: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0_usize, vec![String::new()]);
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts.iter().map(|part| bare(part)).collect()
}

impl Made {
    fn of(sql: &str) -> Option<Made> {
        let (_, rest) = sql.split_once(" ON ").or_else(|| sql.split_once(" on "))?;
        let rest = rest.strip_prefix("ONLY ").unwrap_or(rest);
        let open = rest.find('(')?;
        let (relation, method) = match rest[..open].split_once(" USING ") {
            Some((relation, method)) => (relation, method.trim()),
            None => (&rest[..open], "btree"),
        };
        let close = open + closing(&rest[open..])?;
        let only = rest[close + 1..].split_once(" WHERE ").map_or("", |(_, only)| only);
        let included = rest[close + 1..].split_once(" INCLUDE (").and_then(|(_, list)| list.split_once(')'));
        Some(Made {
            included: included.map(|(list, _)| listed(list)).unwrap_or_default(),
            relation: bare(relation),
            method: method.to_lowercase(),
            keys: listed(&rest[open + 1..close]),
            only: bare(only),
        })
    }

    /// Whether an index that is there does what this one would: the same, or one with more columns behind those of a B-tree.
    fn is_done_by(&self, there: &Made) -> bool {
        let is_same =
            self.relation == there.relation && self.method == there.method && self.only == there.only;
        let is_longer = there.keys.len() >= self.keys.len() && there.keys[..self.keys.len()] == self.keys[..];
        // What it holds besides its keys must be in the other one, too.
        let has = |column: &String| there.included.contains(column) || there.keys.contains(column);
        is_same
            && self.included.iter().all(has)
            && (self.keys == there.keys || self.method == "btree" && is_longer)
    }
}

/// A parameter in a text, outside of quotes.
fn parameter(sql: &str) -> Option<String> {
    let outside: String = sql.split('\'').step_by(2).collect();
    let (_, rest) = outside.split_once('$')?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then(|| format!("${digits}"))
}

/// A command that creates an index, as it is printed. `None` if it is no such command.
pub(super) fn checked(case: &Case, node: &str, command: &str) -> Option<String> {
    if !CREATE.iter().any(|begin| command.starts_with(begin)) {
        return None;
    }
    let (sql, comment) = command.split_once(" -- ").map_or((command, ""), |(sql, comment)| (sql, comment));
    if let Some(parameter) = parameter(sql) {
        let more = if comment.is_empty() { String::new() } else { format!(" ({comment})") };
        return Some(format!(
            "-- not to be typed as it is: put the constant of the application in the place of {parameter}: {sql}{more}"
        ));
    }
    let sql = sql.trim_end();
    if let Some(why) = refused::why(case, node, sql) {
        return Some(format!("-- PostgreSQL refuses this index: {why}: {sql}"));
    }
    let wanted = Made::of(sql.trim_end_matches(';'))?;
    let is_it = |index: &Thing<'_>| {
        index.lines.flag("valid") == Some(true)
            && Made::of(index.lines.word("definition")).is_some_and(|there| wanted.is_done_by(&there))
    };
    let there = case.at("plan_index", node).find(is_it)?;
    Some(format!("-- index {} is there already, and does the same: {sql}", there.lines.word("index")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(sql: &str) -> Made {
        Made::of(sql).expect(sql)
    }

    #[test]
    fn the_same_index_is_known_in_the_spelling_of_the_server() {
        for (command, definition) in [
            (
                "CREATE INDEX CONCURRENTLY ON public.company USING gin (\"name\" gin_trgm_ops)",
                "CREATE INDEX company_trgm ON public.company USING gin (name gin_trgm_ops)",
            ),
            (
                "CREATE INDEX CONCURRENTLY ON public.a (\"b\")",
                "CREATE INDEX a_b_c ON public.a USING btree (b, c)",
            ),
            (
                "CREATE INDEX CONCURRENTLY ON public.a (lower(\"name\") text_pattern_ops)",
                "CREATE INDEX i ON public.a USING btree (lower((name)::text) text_pattern_ops)",
            ),
            (
                "CREATE INDEX CONCURRENTLY ON public.a (b) INCLUDE (c)",
                "CREATE INDEX i ON public.a USING btree (b, d) INCLUDE (c, e)",
            ),
            (
                "CREATE INDEX CONCURRENTLY ON public.a (b) WHERE (NOT done)",
                "CREATE INDEX i ON public.a USING btree (b) WHERE (NOT done)",
            ),
        ] {
            assert!(made(command).is_done_by(&made(definition)), "{command}");
        }
    }

    #[test]
    fn another_index_is_not_taken_for_it() {
        for (command, definition) in [
            ("CREATE INDEX ON public.a (b)", "CREATE INDEX i ON public.a USING btree (c, b)"),
            ("CREATE INDEX ON public.a (b)", "CREATE INDEX i ON public.a2 USING btree (b)"),
            ("CREATE INDEX ON public.a USING gist (b)", "CREATE INDEX i ON public.a USING gin (b)"),
            ("CREATE INDEX ON public.a (b)", "CREATE INDEX i ON public.a USING btree (b) WHERE (c > 0)"),
            ("CREATE INDEX ON public.a (b, c)", "CREATE INDEX i ON public.a USING btree (b)"),
            ("CREATE INDEX ON public.a (b text_pattern_ops)", "CREATE INDEX i ON public.a USING btree (b)"),
            (
                "CREATE INDEX ON public.a (\"b\") INCLUDE (\"c\")",
                "CREATE INDEX i ON public.a USING btree (b)",
            ),
        ] {
            assert!(!made(command).is_done_by(&made(definition)), "{command}");
        }
    }

    #[test]
    fn a_parameter_keeps_a_command_from_being_one() {
        let case = Case::default();
        let of = |command: &str| checked(&case, "", command);
        let shown =
            of("CREATE INDEX CONCURRENTLY ON a USING gin (to_tsvector('english', title || $2)); -- why")
                .expect("shown");
        assert!(shown.starts_with("-- not to be typed as it is") && shown.contains("$2"), "{shown}");
        assert_eq!(of("CREATE INDEX CONCURRENTLY ON a ((price > '$2'));"), None);
        assert_eq!(of("ANALYZE a;"), None);
    }
}
