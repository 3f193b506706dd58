//! Searches by a pattern (LIKE, ILIKE, ~): which index serves them, and why one that is there does not.
//!
//! A plan for unknown values never uses an index for a pattern, because the index is searched for what the pattern begins with. So counters must show that
//! the table is scanned, except where no pattern at all could use the index.

use super::index::{Scan, class_of, forgive_relabelling, indexes, indexes_of};
use super::settings::own_setting;
use super::{Planned, scanned};
use crate::case::engine::reset_command;
use crate::case::{Case, Thing};
use crate::rules::paste::literal;
use record::finding::StatementTime;
use record::statement::{self, Condition, Use};

/// What a pattern begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begin {
    /// Fixed characters: `'abc%'`.
    Fixed,
    /// `%` or `_`: `'%abc%'`.
    Any,
    /// Constants are replaced by parameters.
    Unknown,
}

/// What else narrows a scan beside a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beside {
    Nothing,
    /// A range, which mostly keeps more than the first characters of a text do.
    Range,
}

impl Beside {
    /// `None` if a condition compares with one value: an index for that serves the scan.
    fn of(conditions: &[Condition]) -> Option<Beside> {
        let has = |hows: &[Use]| conditions.iter().any(|condition| hows.contains(&condition.how));
        match (has(&[Use::Equality, Use::Join]), has(&[Use::Range])) {
            (true, _) => None,
            (false, true) => Some(Beside::Range),
            (false, false) => Some(Beside::Nothing),
        }
    }
}

/// What counters show of the executions of a plan that reads all rows for a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    /// They scan the table.
    Scanned,
    /// The plan reads the table in the order of an index, and executions touch far more blocks than they return rows.
    Walked,
    Unknown,
}

/// Why an index of the searched column is in the plan all the same.
const FOR_ORDER: &str = " (it is read for ORDER BY alone, and the pattern is compared with each row)";
/// Blocks of an execution that walks, and for each row that it returns.
const WALK_BLOCKS_MIN: f64 = 1_000.0;
const WALK_BLOCKS_PER_ROW_MIN: f64 = 100.0;

impl Seen {
    fn of(case: &Case, planned: &Planned<'_>, scan: &Scan<'_>) -> Seen {
        let counted = scanned(case, &planned.time.node, planned.statement);
        if counted.is_some_and(|(table, _, _)| table.lines.word("relation") == scan.relation) {
            return Seen::Scanned;
        }
        // Of a join another table may be the one that is read.
        let is_alone =
            planned.nodes.iter().filter(|node| !node.lines.word("relation").is_empty()).count() == 1;
        let (blocks, rows) =
            (planned.statement.blocks.unwrap_or(0.0), planned.statement.rows.unwrap_or(f64::MAX));
        let is_much = blocks >= WALK_BLOCKS_MIN && blocks >= rows * WALK_BLOCKS_PER_ROW_MIN;
        if scan.is_walk && is_alone && is_much { Seen::Walked } else { Seen::Unknown }
    }
}

/// An index for a pattern.
pub(in crate::rules) struct Advice {
    /// Why an index that is there does not serve the pattern; `None` if there is none on the column.
    pub(in crate::rules) obstacle: Option<String>,
    /// What is known of the search.
    pub(in crate::rules) evidence: String,
    pub(in crate::rules) lacking: Option<String>,
    pub(in crate::rules) text: String,
    pub(in crate::rules) commands: Vec<String>,
}

/// A column, or `lower()` of it, that is searched by a pattern.
struct Key<'a> {
    relation: &'a str,
    column: &'a str,
    is_lower: bool,
    how: Use,
    /// Type and collation; empty if they were not recorded.
    kind: &'a str,
    collation: &'a str,
    begin: Begin,
}

/// The word behind a name in a list: `integer` of `a` in `a integer; b text`.
fn of_name<'a>(list: &'a str, name: &str) -> &'a str {
    let of = |item: &'a str| item.strip_prefix(name)?.strip_prefix(' ');
    list.split("; ").find_map(of).unwrap_or_default()
}

/// What the pattern of a text begins with, if the text has its constant.
fn begin_in(text: &str, column: &str) -> Option<Begin> {
    let text = text.to_ascii_lowercase();
    if !text.contains(&column.to_ascii_lowercase()) {
        return None;
    }
    let is_fixed = |first: Option<char>| first.is_some_and(char::is_alphanumeric);
    if let Some((_, pattern)) = text.split_once("like '") {
        return match pattern.chars().next()? {
            '%' | '_' => Some(Begin::Any),
            first => is_fixed(Some(first)).then_some(Begin::Fixed),
        };
    }
    // A regular expression looks everywhere in a text, unless it begins with ^.
    let (_, pattern) = text.split_once(" ~ '")?;
    match pattern.strip_prefix('^') {
        Some(rest) => is_fixed(rest.chars().next()).then_some(Begin::Fixed),
        None => is_fixed(pattern.chars().next()).then_some(Begin::Any),
    }
}

/// What patterns begin with: pg_stat_statements has no constants, but a session that was seen with such a statement shows them.
fn begin(case: &Case, node: &str, statement: &StatementTime, relation: &str, column: &str) -> Begin {
    let name = relation.rsplit('.').next().unwrap_or(relation).trim_matches('"').to_ascii_lowercase();
    let seen = case.at("session", node).map(|session| session.lines.word("query"));
    let about_it = seen.filter(|query| query.to_ascii_lowercase().contains(&name));
    let mut texts = std::iter::once(statement.text.as_str()).chain(about_it);
    texts.find_map(|text| begin_in(text, column)).unwrap_or(Begin::Unknown)
}

impl<'a> Key<'a> {
    /// `None` if the condition is no pattern, or computes something from the column that has no simple index.
    fn of(
        relation: &'a str,
        condition: &'a Condition,
        types: &'a str,
        collations: &'a str,
    ) -> Option<Key<'a>> {
        let is_lower = match condition.inside.as_deref() {
            None => false,
            Some("function lower") => true,
            Some(_) => return None,
        };
        let column = condition.column.as_str();
        let (kind, collation) = (of_name(types, column), of_name(collations, column));
        let is_text = ["text", "character", "name"].iter().any(|name| kind.starts_with(name));
        (condition.how.is_pattern() && (kind.is_empty() || is_text)).then_some(Key {
            relation,
            column,
            is_lower,
            how: condition.how,
            kind,
            collation,
            begin: Begin::Unknown,
        })
    }

    /// As it stands in an index.
    fn expression(&self) -> String {
        let column = statement::quoted(self.column);
        if self.is_lower { format!("lower({column})") } else { column }
    }

    /// `char(n)`, which has an operator class of its own.
    fn is_padded(&self) -> bool {
        !self.is_lower && (self.kind == "character" || self.kind.starts_with("character("))
    }

    fn class(&self) -> &'static str {
        if self.is_padded() { "bpchar_pattern_ops" } else { "text_pattern_ops" }
    }

    /// Whether an index is on this key.
    fn is_first_of(&self, index: &Thing<'_>, columns: &[&str]) -> bool {
        if !self.is_lower {
            return columns.first() == Some(&self.column);
        }
        let definition = index.lines.word("definition").replace('"', "");
        let is_there = |part: String| definition.contains(&part);
        columns.first() == Some(&"")
            && (is_there(format!("(lower({})", self.column)) || is_there(format!("(lower(({})", self.column)))
    }

    /// The index for patterns that begin with fixed characters.
    fn prefix_command(&self) -> String {
        // In the order of C an index serves them as it is.
        let class = if self.collation == "C" { String::new() } else { format!(" {}", self.class()) };
        format!(
            "CREATE INDEX CONCURRENTLY ON {} ({}{class}); -- for patterns that begin with fixed characters: 'abc%'",
            self.relation,
            self.expression()
        )
    }

    /// The index for all patterns.
    fn trigram_commands(&self) -> Vec<String> {
        vec![
            "CREATE EXTENSION IF NOT EXISTS pg_trgm;".to_string(),
            format!(
                "CREATE INDEX CONCURRENTLY ON {} USING gin ({} gin_trgm_ops); -- for patterns that begin with %: '%abc%'",
                self.relation,
                self.expression()
            ),
        ]
    }

    /// ILIKE, rewritten so that a B-tree serves it.
    fn lower_command(&self) -> String {
        format!(
            "CREATE INDEX CONCURRENTLY ON {} (lower({}) text_pattern_ops); -- for: lower({}) LIKE lower('abc%')",
            self.relation,
            statement::quoted(self.column),
            self.column
        )
    }

    fn commands(&self) -> Vec<String> {
        let trigrams = if self.is_padded() { vec![] } else { self.trigram_commands() };
        match (self.how, self.begin) {
            (Use::AnyCase, Begin::Any) => trigrams,
            (Use::AnyCase, _) => trigrams.into_iter().chain([self.lower_command()]).collect(),
            (_, Begin::Fixed) => vec![self.prefix_command()],
            (_, Begin::Any) => trigrams,
            (_, Begin::Unknown) => [self.prefix_command()].into_iter().chain(trigrams).collect(),
        }
    }

    /// What to do, in words.
    fn text(&self) -> String {
        let class = self.class();
        let by_class = match self.collation {
            "C" => "a pattern that begins with fixed characters is served by an index in the order of C"
                .to_string(),
            "" => format!(
                "a pattern that begins with fixed characters needs an index with {class} (or COLLATE \"C\"), unless the collation is C"
            ),
            other => format!(
                "a pattern that begins with fixed characters needs an index with {class} (or COLLATE \"C\"): the order of {other} does not serve it"
            ),
        };
        match (self.how, self.begin) {
            (Use::AnyCase, _) => "ILIKE is served by trigrams (pg_trgm); a pattern that begins with fixed characters also by an index on lower() with \
                text_pattern_ops, if the statement compares lower() with LIKE"
                .to_string(),
            (_, Begin::Fixed) => by_class,
            (_, Begin::Any) => "a pattern that begins with % or _ is served by trigrams (pg_trgm): no order of the values helps to find it".to_string(),
            (_, Begin::Unknown) => format!("{by_class}; one that begins with % or _ needs trigrams (pg_trgm). Create the one that fits"),
        }
    }

    /// Why an index on the column does not serve the pattern, and what the pattern must then begin with.
    fn obstacle(&self, index: &Thing<'_>, seen: Seen) -> Option<(String, Begin)> {
        let name = index.lines.word("index");
        let class = class_of(index);
        let collation = index.lines.word("collations").split("; ").next().unwrap_or_default();
        let is_known = !class.is_empty();
        let serves_fixed = class.ends_with("pattern_ops") || collation == "C";
        let column = self.expression();
        match (self.how, self.begin) {
            (Use::AnyCase, begin) => Some((
                format!("index {name} is on {column}, and ILIKE ignores the case: no B-tree serves it"),
                begin,
            )),
            (_, Begin::Any) => Some((
                format!(
                    "index {name} is on {column}, and patterns that begin with % or _ have no place in its order"
                ),
                Begin::Any,
            )),
            (_, begin) if is_known && !serves_fixed => Some((
                format!(
                    "index {name} is in the order of collation {}, which does not serve LIKE: that takes the operator class {}{}",
                    if collation.is_empty() { "the column" } else { collation },
                    self.class(),
                    if seen == Seen::Walked { FOR_ORDER } else { "" }
                ),
                begin,
            )),
            // Of a walk it is not known: many rows may fit what the pattern begins with.
            (_, Begin::Unknown) if is_known && seen == Seen::Scanned => Some((
                format!(
                    "index {name} serves patterns that begin with fixed characters, and the table is scanned: these begin with % or _"
                ),
                Begin::Any,
            )),
            _ => None,
        }
    }

    /// A pattern that trigrams do not serve, although an index has them.
    fn too_short(&self, index: &str) -> Advice {
        Advice {
            obstacle: Some(format!(
                "index {index} has the trigrams of {}, and the table is scanned all the same: a pattern with fewer than three letters or digits in a row (or \
                    one that most rows fit) has no useful trigram to look for",
                self.expression()
            )),
            evidence: format!("{} of {} is searched by a pattern", self.expression(), self.relation),
            lacking: Some("how long the patterns are: pg_stat_statements has no constants".to_string()),
            text: "do not search before three characters are typed; for shorter ones show the rows that begin with them (text_pattern_ops, LIKE \
                'ab%')".to_string(),
            commands: vec![self.prefix_command()],
        }
    }

    /// Trigrams that the planner is not allowed to look for.
    fn forbidden(&self, index: &str, forbidden: &(String, String)) -> Advice {
        let (setting, command) = forbidden;
        Advice {
            obstacle: Some(format!(
                "index {index} has the trigrams of {}, but {setting}, and a GIN index is read by bitmap scans alone",
                self.expression()
            )),
            evidence: format!("{} of {} is searched by a pattern", self.expression(), self.relation),
            lacking: None,
            text: "turn the setting on again; one that is meant for a single statement belongs into its transaction (SET LOCAL)".to_string(),
            commands: vec![command.clone(), format!("ANALYZE {}; -- so that sessions plan prepared statements again", self.relation)],
        }
    }

    /// `indexes`: those of the table, if they are known; `forbidden`: the setting that forbids bitmap scans, and the command that takes it back.
    /// Beside a range the pattern has the advice only if an index is known to serve it better.
    fn advice(
        mut self,
        indexes: &[(Thing<'_>, Vec<&str>)],
        forbidden: Option<(String, String)>,
        seen: Seen,
        beside: Beside,
    ) -> Option<Advice> {
        let is_scanned = seen != Seen::Unknown;
        let is_own = |(index, columns): &&(Thing<'_>, Vec<&str>)| self.is_first_of(index, columns);
        let own: Vec<&Thing<'_>> = indexes.iter().filter(is_own).map(|(index, _)| index).collect();
        let is_tree = |index: &Thing<'_>| {
            index.lines.word("method") == "btree" && index.lines.flag("valid") != Some(false)
        };
        let obstacles: Vec<Option<(String, Begin)>> =
            own.iter().filter(|index| is_tree(index)).map(|index| self.obstacle(index, seen)).collect();
        if let Some(short) =
            own.iter().find(|index| seen == Seen::Scanned && class_of(index).ends_with("_trgm_ops"))
        {
            let name = short.lines.word("index");
            let forbidden = forbidden.filter(|_| short.lines.word("method") == "gin");
            return Some(
                forbidden.map_or_else(|| self.too_short(name), |reason| self.forbidden(name, &reason)),
            );
        }
        // Trigrams serve every pattern with three characters in a row; of another index nothing may be known that speaks against it.
        if own.iter().any(|index| class_of(index).ends_with("_trgm_ops"))
            || obstacles.iter().any(Option::is_none)
        {
            return None;
        }
        let found = obstacles.into_iter().flatten().max_by_key(|(_, begin)| *begin == Begin::Any);
        let of_column = indexes.iter().find(|(index, columns)| {
            self.is_lower && is_tree(index) && columns.first() == Some(&self.column)
        });
        let obstacle = match (found, of_column) {
            (Some((why, begin)), _) if is_scanned => {
                self.begin = begin;
                Some(why)
            }
            (None, Some((index, _))) => Some(format!(
                "index {} is on {}, and the condition searches lower() of it",
                index.lines.word("index"),
                self.column
            )),
            _ => None,
        };
        if obstacle.is_none() && !is_scanned {
            return None;
        }
        let is_prefix = self.begin == Begin::Fixed || (self.begin == Begin::Unknown && obstacle.is_some());
        if beside == Beside::Range && !is_prefix {
            return None;
        }
        let words = if self.how == Use::AnyCase { "a pattern that ignores the case" } else { "a pattern" };
        let kind = match self.collation {
            "" => String::new(),
            collation => format!(" (its collation is {collation})"),
        };
        Some(Advice {
            obstacle,
            evidence: format!("{} of {} is searched by {words}{kind}", self.expression(), self.relation),
            lacking: (self.begin == Begin::Unknown).then(|| {
                "what the patterns begin with: pg_stat_statements has no constants; pg_stat_activity shows those of running statements".to_string()
            }),
            text: self.text(),
            commands: self.commands(),
        })
    }
}

/// What forbids bitmap scans to the sessions of a statement, and the command that takes it back.
fn no_bitmaps(case: &Case, planned: &Planned<'_>) -> Option<(String, String)> {
    const NAME: &str = "enable_bitmapscan";
    if case.setting(&planned.time.node, NAME) == Some("off") {
        let command = format!("ALTER SYSTEM RESET {NAME}; SELECT pg_reload_conf();");
        return Some((format!("{NAME} is off"), command));
    }
    let (_, value, owner) = own_setting(case, planned).filter(|(name, ..)| *name == NAME)?;
    Some((format!("{NAME} is {value} for {owner}"), reset_command(owner, NAME)))
}

/// What is known about the search of a scan by a pattern; `None` if another condition narrows it, or an index serves it.
pub(super) fn of_scan(case: &Case, planned: &Planned<'_>, scan: &Scan<'_>) -> Option<Advice> {
    // A generic plan is forced: it never uses an index for a pattern.
    if case.setting(&planned.time.node, "plan_cache_mode") == Some("force_generic_plan") {
        return None;
    }
    if scan.conditions.is_empty() {
        return of_alternatives(case, planned, scan);
    }
    let beside = Beside::of(&scan.conditions)?;
    of_conditions(case, planned, scan, &scan.conditions, beside)
}

/// The advice for the first pattern among conditions.
fn of_conditions(
    case: &Case,
    planned: &Planned<'_>,
    scan: &Scan<'_>,
    conditions: &[Condition],
    beside: Beside,
) -> Option<Advice> {
    let mut of_each =
        conditions.iter().map(|condition| Key::of(scan.relation, condition, scan.types, scan.collations));
    let mut key = of_each.find_map(|key| key)?;
    key.begin = begin(case, &planned.time.node, planned.statement, scan.relation, key.column);
    let seen = Seen::of(case, planned, scan);
    key.advice(&indexes(case, planned, scan.relation), no_bitmaps(case, planned), seen, beside)
}

/// The same for patterns that OR connects: each side needs an index of its own, so that nothing is known if one of them is no pattern.
fn of_alternatives(case: &Case, planned: &Planned<'_>, scan: &Scan<'_>) -> Option<Advice> {
    let sides = statement::alternatives(scan.filter).unwrap_or_default();
    let advice: Vec<Advice> = sides
        .into_iter()
        .map(|mut side| {
            side.iter_mut().for_each(|condition| forgive_relabelling(condition, scan.types));
            let beside = Beside::of(&side)?;
            of_conditions(case, planned, scan, &side, beside)
        })
        .collect::<Option<_>>()?;
    let mut sides = advice.into_iter();
    let mut all = sides.next()?;
    all.text.push_str("; OR connects several, and each of them needs such an index");
    for side in sides {
        all.obstacle = all.obstacle.or(side.obstacle);
        all.evidence = format!("{}, or {}", all.evidence, side.evidence);
        let new: Vec<String> =
            side.commands.into_iter().filter(|command| !all.commands.contains(command)).collect();
        all.commands.extend(new);
    }
    Some(all)
}

/// The same for a statement without a plan, by the conditions in its text on a table that is scanned.
pub(in crate::rules) fn of_text<'a>(
    case: &'a Case,
    node: &'a str,
    statement: &StatementTime,
    relation: &str,
    conditions: &[Condition],
) -> Option<Advice> {
    let beside = Beside::of(conditions)?;
    let mut key = conditions.iter().find_map(|condition| Key::of(relation, condition, "", ""))?;
    key.begin = begin(case, node, statement, relation, key.column);
    let column = key.column.to_string();
    let there = indexes_of(case, node, &statement.database, relation);
    let mut advice = key.advice(&there, None, Seen::Scanned, beside)?;
    // What is there was recorded with a plan of this or another statement.
    if !there.is_empty() {
        return Some(advice);
    }
    advice.commands.insert(
        0,
        format!(
            "SELECT indexdef, (SELECT collname FROM pg_collation c JOIN pg_attribute a ON a.attcollation = c.oid WHERE a.attrelid = {0}::regclass AND \
             a.attname = {1}) AS collation, datcollate FROM pg_database LEFT JOIN pg_indexes ON format('%I.%I', schemaname, tablename) = {0} \
             WHERE datname = current_database(); -- is there an index already, and in which order?",
            literal(relation),
            literal(&column)
        ),
    );
    Some(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_shows_what_a_pattern_begins_with() {
        assert_eq!(begin_in("select 1 from t where name LIKE 'abc%'", "name"), Some(Begin::Fixed));
        assert_eq!(begin_in("select 1 from t where name ilike '%abc%'", "name"), Some(Begin::Any));
        assert_eq!(begin_in("select 1 from t where name like $1", "name"), None);
        // A constant that was hidden, and a pattern of another column.
        assert_eq!(begin_in("select 1 from t where name like '***'", "name"), None);
        assert_eq!(begin_in("select 1 from t where other like 'abc%'", "name"), None);
        // Regular expressions look everywhere, unless they begin with ^.
        assert_eq!(begin_in("select 1 from t where name ~ '^abc'", "name"), Some(Begin::Fixed));
        assert_eq!(begin_in("select 1 from t where name ~ 'abc'", "name"), Some(Begin::Any));
        assert_eq!(begin_in("select 1 from t where name ~ '^(a|b)'", "name"), None);
    }

    #[test]
    fn a_word_of_a_list_belongs_to_the_whole_name() {
        assert_eq!(of_name("first_name text; name character varying(20)", "name"), "character varying(20)");
        assert_eq!(of_name("first_name text", "name"), "");
    }
}
