//! Functions of users that statements call: their texts, because no plan shows what they do.

use super::{Batch, Collect, Failed, Link, Node, Tick, text};
use connect::sql::literal;
use record::statement;
use record::watched::FUNCTION_TEXT;
#[cfg(test)]
use serde_json::Value;

/// Functions of one statement.
const FUNCTIONS_MAX: usize = 5;
/// Names of a text that are looked up.
const NAMES_MAX: usize = 200;
/// Characters of a function's text.
const SOURCE_CHARS: usize = 4_000;

/// The query for functions in SQL or PL/pgSQL with one of these names, without those of the server.
fn question(names: &[String]) -> String {
    let names: Vec<String> = names.iter().take(NAMES_MAX).map(|name| literal(name)).collect();
    format!(
        "select json_build_object('functions', (select json_agg(f) from (select p.proname::text as name, l.lanname::text as language,
            pg_catalog.left(p.prosrc, {SOURCE_CHARS}) as source, p.prorows::bigint as returned
          from pg_catalog.pg_proc p join pg_catalog.pg_language l on l.oid = p.prolang join pg_catalog.pg_namespace n on n.oid = p.pronamespace
          where p.proname in ({}) and l.lanname in ('sql', 'plpgsql') and n.nspname not in ('pg_catalog', 'information_schema')
          order by 1 limit {FUNCTIONS_MAX}) f))::text",
        names.join(", ")
    )
}

impl Node {
    /// Records the functions that a statement names. A refusal is none: their texts are only a help.
    pub(super) fn record_functions(
        &mut self,
        tick: &Tick,
        (query_id, statement): (&str, &str),
        batch: &mut Batch,
    ) -> Result<(), Failed> {
        if self.plans.seen.contains_key(query_id) {
            return Ok(());
        }
        let Link::Up(up) = &mut self.link else { return Ok(()) };
        let names = statement::names(statement);
        if names.is_empty() || !statement.contains('(') {
            return Ok(());
        }
        let answer = match up.session.query(&question(&names), &[]) {
            Ok(answer) => answer,
            Err(Failed::Refused { .. }) => return Ok(()),
            Err(gone) => return Err(gone),
        };
        let place = self.place();
        for row in answer["functions"].as_array().into_iter().flatten() {
            let rows = row["returned"].as_u64().unwrap_or(0);
            let source = text(row, "source");
            let source = source.split_whitespace().collect::<Vec<_>>().join(" ");
            let value =
                format!("{} returning {rows} rows: {}", text(row, "language"), statement::mask(&source));
            self.recorded.fact(batch, tick.now_us, place.fact(FUNCTION_TEXT, text(row, "name"), value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_constants_in_the_query() {
        let query = question(&["find_offer".to_string(), "it's".to_string()]);
        assert!(query.contains("in ('find_offer', 'it''s')"), "{query}");
        assert_eq!(Value::Null["functions"].as_array(), None);
    }
}
