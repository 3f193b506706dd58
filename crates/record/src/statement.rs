//! Reads statements with a parser of SQL: which tables they use, which columns their conditions compare and how, whether they can be planned again; and hides
//! their constants; and finds the statements in the text of a function.
//!
//! Texts come from servers, so they are hostile until proved otherwise. The parser is called only for texts of [`TEXT_BYTES_MAX`] with [`DEPTH_MAX`] open
//! parentheses: it tries several readings of each, so its time grows with the depth, and it follows nested expressions on the stack. A text that is not
//! read is an error, never a guess.

mod columns;
mod conjunct;
mod grouped;
mod index;
mod inner;
mod interval;
mod joins;
mod keys;
mod mask;
mod shape;
mod walk;

pub use columns::{
    as_name, index_columns, index_command, is_name, narrowing, quoted, schema_of, statistics_commands,
};
pub use conjunct::{Conjunct, Form};
pub use index::{Call, Index, index};
pub use inner::{commands, inner};
pub use interval::Interval;
pub use joins::{OrJoin, RangeJoin};
pub use keys::document_keys;
pub use mask::{mask, parameterized};
pub use shape::Shape;

use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::collections::BTreeMap;

/// Longer texts are not parsed. `watch` keeps 4,000 characters of a statement.
pub const TEXT_BYTES_MAX: usize = 16_000;
/// Parentheses, brackets and `CASE` that may be open at once.
pub const DEPTH_MAX: usize = 24;
/// Words and signs: chains of operators become as deep as they are long.
const TOKENS_MAX: usize = 4_000;
/// Expressions inside of each other that the parser follows.
const RECURSION_MAX: usize = 40;
/// Levels of the parsed statement that are walked; what lies below is not read.
const WALK_DEPTH_MAX: usize = 60;

/// What a statement does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// SELECT, VALUES, TABLE, with or without WITH.
    Select,
    /// INSERT.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
    /// MERGE.
    Merge,
    /// Everything else: it is not planned, or not alone.
    Other,
}

/// How a condition compares a column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Use {
    /// `=`, `IN`, `IS NULL`: an index finds the entries together.
    Equality,
    /// With `=` to a column of another table.
    Join,
    /// `<`, `BETWEEN`, ...: an index finds the entries in a row.
    Range,
    /// `LIKE` or `~`: an index in the order of the characters finds the entries if the pattern begins with fixed ones.
    Pattern,
    /// `ILIKE` or `~*`, which ignores the case.
    AnyCase,
    /// Everything else that an index in the order of the column does not serve: `<>`, `NOT LIKE`, a condition below OR.
    Other,
}

impl Use {
    /// Whether an index in the order of the values serves it.
    pub fn is_compared(self) -> bool {
        matches!(self, Use::Equality | Use::Join | Use::Range)
    }

    /// Whether a text is searched by a pattern.
    pub fn is_pattern(self) -> bool {
        matches!(self, Use::Pattern | Use::AnyCase)
    }
}

/// A column in a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// Name or alias of the table in front of the column, if it is written.
    pub table: Option<String>,
    /// The column.
    pub column: String,
    /// How it is compared.
    pub how: Use,
    /// What is computed from the column before it is compared: a function, `cast to TYPE`, `an expression`, `collation NAME`.
    pub inside: Option<String>,
    /// What is computed, as SQL without names of tables: parameters are as in the text. None where the column itself is compared.
    pub computed: Option<String>,
}

/// A table by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableName {
    /// Its schema, if it is written.
    pub schema: Option<String>,
    /// Its name.
    pub name: String,
    /// The name it has in the statement, if another one.
    pub alias: Option<String>,
}

/// A statement as the parser reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// What it does.
    pub verb: Verb,
    /// Its tables, in the order of the text; those of subqueries too, the names of WITH excluded.
    pub tables: Vec<TableName>,
    /// Columns of WHERE and of joins.
    pub conditions: Vec<Condition>,
    /// Whether it has WHERE, or joins tables by a condition.
    pub is_filtered: bool,
    /// Columns that UPDATE or ON CONFLICT DO UPDATE sets.
    pub assigned: Vec<String>,
}

/// Why a text is not read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unread {
    /// Longer than a limit, or nested deeper.
    #[error("the statement is too long or nested too deeply to be parsed")]
    TooLarge,
    /// Not understood. The parser's message may quote the text, so it is not kept.
    #[error("the statement cannot be parsed: it may be cut off, or use syntax that is not known")]
    Syntax,
    /// Several statements, or none.
    #[error("the text is not exactly one statement")]
    NotOne,
    /// Planned by the server alone at the time it runs, or not at all.
    #[error("only SELECT, INSERT, UPDATE, DELETE and MERGE are planned again")]
    NoPlan,
    /// It has constants, comments or signs that could be read in two ways.
    #[error("the statement has constants, comments or special characters: it is not sent to a server again")]
    NotPlain,
    /// `interval $1`: `pg_stat_statements` has replaced the constant, and the rest is no valid statement.
    #[error("pg_stat_statements has replaced the constant behind a type name: the text is no longer valid")]
    TypedConstant,
}

/// Reads a text that is one statement.
///
/// # Errors
/// See [`Unread`]. None of them quotes the text.
pub fn parse(text: &str) -> Result<Statement, Unread> {
    Ok(walk::statement(&one(text)?))
}

/// Reads the form of a text that is one statement.
///
/// # Errors
/// See [`Unread`].
pub fn shape(text: &str) -> Result<Shape, Unread> {
    Ok(shape::of(&one(text)?))
}

/// The joins of a text by a range between two columns; none if it cannot be read.
pub fn range_joins(text: &str) -> Vec<RangeJoin> {
    one(text).map(|parsed| joins::ranges(&parsed)).unwrap_or_default()
}

/// The joins of a text by conditions with OR, beside which no columns of the two tables are equal; none if it cannot be read.
pub fn or_joins(text: &str) -> Vec<OrJoin> {
    one(text).map(|parsed| joins::all(&parsed)).unwrap_or_default()
}

/// Reads an expression: the filter of a plan.
///
/// # Errors
/// See [`Unread`].
pub fn conditions(expression: &str) -> Result<Vec<Condition>, Unread> {
    Ok(walk::expression(&expression_of(expression)?))
}

/// The conditions on each side of an OR in an expression; as [`conditions`] reads them. Empty without an OR that all rows must satisfy.
///
/// # Errors
/// See [`Unread`].
pub fn alternatives(expression: &str) -> Result<Vec<Vec<Condition>>, Unread> {
    Ok(walk::alternatives(&expression_of(expression)?))
}

/// The parts of an expression, all of which must hold: the filter of a plan.
///
/// # Errors
/// Why it is not read.
pub fn conjuncts(expression: &str) -> Result<Vec<Conjunct>, Unread> {
    Ok(conjunct::all(&expression_of(expression)?))
}

/// The interval that a condition looks for, if it compares two columns so; as [`conditions`] reads it.
///
/// # Errors
/// Why it is not read.
pub fn interval(expression: &str) -> Result<Option<Interval>, Unread> {
    Ok(interval::find(&expression_of(expression)?))
}

fn expression_of(expression: &str) -> Result<sqlparser::ast::Expr, Unread> {
    check_size(expression)?;
    let dialect = PostgreSqlDialect {};
    let parser = Parser::new(&dialect).with_recursion_limit(RECURSION_MAX);
    let mut parser = parser.try_with_sql(expression).map_err(|_| Unread::Syntax)?;
    let parsed = parser.parse_expr().map_err(|_| Unread::Syntax)?;
    if parser.peek_token().token != sqlparser::tokenizer::Token::EOF {
        return Err(Unread::Syntax);
    }
    Ok(parsed)
}

/// A statement that may be sent to a server for its plan, or pasted behind EXPLAIN: one line, one SELECT, INSERT, UPDATE or DELETE by every reading of the
/// text. Literals and comments are refused whatever they contain, so a semicolon cannot hide in one, and no constant is evaluated by the type's input
/// function.
///
/// # Errors
/// Why not.
pub fn plannable(text: &str) -> Result<String, Unread> {
    let text = text.replace(mask::SQUASHED, " ");
    let text = text.trim().trim_end_matches(';');
    let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let is_plain = text.chars().all(|c| {
        c.is_alphanumeric()
            || (c.is_ascii() && !c.is_ascii_control() && !matches!(c, '\'' | '\\' | ';' | '`'))
    });
    let has_odd_dollar = text.match_indices('$').any(|(at, _)| {
        let before = text[..at].chars().next_back();
        before.is_some_and(|c| c.is_alphanumeric() || c == '_')
            || !text[at + 1..].starts_with(|c: char| c.is_ascii_digit())
    });
    if !is_plain || has_odd_dollar || text.contains("--") || text.contains("/*") {
        return Err(Unread::NotPlain);
    }
    let text = with_casts(&text)?;
    let parsed = one(&text)?;
    if walk::statement(&parsed).verb == Verb::Other {
        return Err(Unread::NoPlan);
    }
    Ok(grouped::unified(&text, &parsed))
}

/// A plannable text with schemas in front of tables that have none: `schemas` has them by the name of the table, quoted where they have to be. What is not
/// walked stays as it is.
///
/// # Errors
/// The text is not one line, or not parsed.
pub fn with_schemas(text: &str, schemas: &BTreeMap<String, String>) -> Result<String, Unread> {
    if text.contains('\n') {
        return Err(Unread::NotPlain);
    }
    let mut places: Vec<(usize, &String)> = walk::places(&one(text)?)
        .iter()
        .filter_map(|(name, place)| {
            Some((usize::try_from(place.column).ok()?.checked_sub(1)?, schemas.get(name)?))
        })
        .collect();
    places.sort_unstable();
    places.dedup();
    let mut found = String::with_capacity(text.len());
    let mut places = places.into_iter().peekable();
    for (at, letter) in text.chars().enumerate() {
        if let Some((_, schema)) = places.next_if(|(place, _)| *place == at) {
            found.push_str(schema);
            found.push('.');
        }
        found.push(letter);
    }
    Ok(found)
}

/// The same text with `$1::interval` instead of `interval $1`: `pg_stat_statements` replaces the constant behind a type name, and what it leaves is no valid
/// statement. Names of types that have several words are left to an error.
fn with_casts(text: &str) -> Result<String, Unread> {
    const TYPES: [&str; 13] = [
        "interval",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "timetz",
        "uuid",
        "inet",
        "json",
        "jsonb",
        "numeric",
        "point",
        "box",
    ];
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    for at in 0..words.len() {
        // An operator may stand before it without a blank.
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '"' || c == '.';
        let name = words[at].trim_end_matches(is_name).len();
        let (before, name) = words[at].split_at(name);
        let Some(next) = words.get(at + 1).filter(|next| next.starts_with('$')) else { continue };
        if name.eq_ignore_ascii_case("zone") && !text.to_ascii_lowercase().contains("at time zone $") {
            return Err(Unread::TypedConstant);
        }
        if TYPES.iter().any(|one| name.eq_ignore_ascii_case(one)) {
            let digits = 1 + next[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(next.len() - 1);
            // What follows may end in a type as well: `date $1+$2*interval $3`.
            words[at + 1] = format!("{before}{}::{name}{}", &next[..digits], &next[digits..]);
            words[at].clear();
        }
    }
    words.retain(|word| !word.is_empty());
    Ok(words.join(" "))
}

/// Every word of a text that can be a name, as the server spells it: a function is also called as `(row).name`, without parentheses.
pub fn names(text: &str) -> Vec<String> {
    let mut found = std::collections::BTreeSet::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            // What is not closed is a name to its end.
            let closed = mask::quoted_length(rest);
            let length = closed.unwrap_or(rest.len());
            found.insert(mask::unquoted(&rest[1..length - usize::from(closed.is_some())]));
            rest = &rest[length..];
        } else if mask::is_name_start(first) {
            let length = mask::name_length(rest);
            // The server folds letters above ASCII in some encodings: all spellings are names.
            found.insert(rest[..length].to_lowercase());
            // Letter by letter, as in encodings of one byte: a final sigma is one as any other, and a letter stays one.
            found.insert(rest[..length].chars().map(|c| c.to_lowercase().next().unwrap_or(c)).collect());
            found.insert(rest[..length].to_ascii_lowercase());
            rest = &rest[length..];
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    found.into_iter().collect()
}

/// The parameters (`$1`, `$2`) of a plannable text: the largest number.
pub fn parameters(text: &str) -> usize {
    let numbers = text.split('$').skip(1).filter_map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse::<usize>().ok()
    });
    numbers.max().unwrap_or(0)
}

fn check_size(text: &str) -> Result<(), Unread> {
    let mut depth = 0_usize;
    let mut deepest = 0;
    let mut tokens = 0_usize;
    let mut is_word = false;
    // Parentheses in literals count as well: a literal cannot then hide the depth from here by being read differently there.
    for c in text.chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
        let in_word = c.is_alphanumeric() || c == '_';
        tokens += usize::from(!(c.is_whitespace() || in_word && is_word));
        is_word = in_word;
    }
    if text.len() > TEXT_BYTES_MAX || deepest > DEPTH_MAX || tokens > TOKENS_MAX {
        return Err(Unread::TooLarge);
    }
    Ok(())
}

/// The statement of a text that is one.
fn one(text: &str) -> Result<sqlparser::ast::Statement, Unread> {
    let parsed = <[_; 1]>::try_from(statements(text)?);
    parsed.map(|[statement]| statement).map_err(|_| Unread::NotOne)
}

fn statements(text: &str) -> Result<Vec<sqlparser::ast::Statement>, Unread> {
    check_size(text)?;
    let dialect = PostgreSqlDialect {};
    let parser = Parser::new(&dialect).with_recursion_limit(RECURSION_MAX);
    let mut parser = parser.try_with_sql(text).map_err(|_| Unread::Syntax)?;
    parser.parse_statements().map_err(|_| Unread::Syntax)
}

/// The name of a statement to which the server gives no id, from its text as of [`parameterized`]. It begins with a word, so it is not taken for one of the
/// ids of `pg_stat_statements`. Lists and rows of all lengths have one name: `VALUES ($1, $2)` and `VALUES ($1, $2), ($3, $4)`.
pub fn text_id(text: &str) -> String {
    let is_list = |byte: &u8| byte.is_ascii_digit() || b"(), $".contains(byte);
    let mut kept: Vec<u8> = text.replace(mask::SQUASHED, "").to_lowercase().into_bytes();
    kept.dedup_by(|next, before| is_list(next) && is_list(before));
    let kept = kept.iter().map(|byte| if is_list(byte) { b' ' } else { *byte });
    format!("text-{:016x}", fnv(kept))
}

/// What comes before lists of constants.
const BEFORE_LISTS: [&str; 3] = [" in (", "array[", "values ("];

/// A text without the lengths of its lists of parameters and without their numbers, which before PostgreSQL 18 make several entries of one statement;
/// `None` if it has no such list. A list at the end may be cut off.
pub fn without_lengths(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let is_of_list = |c: char| c.is_ascii_digit() || c.is_ascii_whitespace() || "$,()".contains(c);
    let (mut kept, mut rest, mut has_list) = (String::new(), text.as_str(), false);
    while let Some(at) = rest.find('$') {
        let (before, behind) = rest.split_at(at);
        kept.push_str(before);
        kept.push('$');
        let is_list = BEFORE_LISTS.iter().any(|begin| kept[..kept.len() - 1].ends_with(begin));
        rest = match is_list {
            true => behind.trim_start_matches(is_of_list),
            false => behind[1..].trim_start_matches(|c: char| c.is_ascii_digit()),
        };
        has_list |= is_list;
    }
    kept.push_str(rest);
    has_list.then_some(kept)
}

/// A short name for bytes, the same in every build: FNV-1a of 64 bits (draft-eastlake-fnv).
pub fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Whether PostgreSQL 18 has shortened a list of constants: how many there were is not in the text, and a plan made from it has one.
pub fn has_shortened_list(text: &str) -> bool {
    text.contains(mask::SQUASHED)
}

/// Characters of an outline: a server keeps the beginning of a text.
const OUTLINE_CHARS: usize = 1_500;
/// Words that are constants to the server, and none to a lexer.
const CONSTANT_WORDS: [&str; 6] = ["null", "true", "false", "on", "off", "epoch"];

/// What the text of a statement and its entry in `pg_stat_statements` have in common: the beginning, without constants, parameters and blanks. One for each
/// statement of a text.
pub fn outlines(text: &str) -> Vec<u64> {
    let is_left_out = |c: char| c.is_ascii_digit() || c.is_whitespace() || "(), :$-+".contains(c);
    let of_one = |one: &str| {
        let one = one.replace(mask::SQUASHED, "").to_lowercase();
        let words = one.split(is_left_out).filter(|word| !word.is_empty() && !CONSTANT_WORDS.contains(word));
        let kept: String = words.flat_map(|word| [word, " "]).collect();
        fnv(kept.chars().take(OUTLINE_CHARS).collect::<String>().bytes())
    };
    let text = parameterized(text);
    text.split(';').map(str::trim).filter(|one| !one.is_empty()).map(of_one).collect()
}

/// First words of statements that begin or end a transaction, or a part of one.
const FRAMES: [&str; 8] = ["begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release"];

/// Whether a statement begins or ends a transaction, or a part of one: it is no work of its own.
pub fn is_frame(text: &str) -> bool {
    let first = text.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    FRAMES.contains(&first.to_ascii_lowercase().as_str())
}

/// Whether a statement of a recording that does not mark own statements looks like one that reads a server's views: on a quiet server those are the costliest,
/// and no user can improve them.
pub fn looks_own(text: &str) -> bool {
    text.contains("json_build_object") && text.contains("pg_catalog.") || text.contains("pgfathom")
}

#[cfg(test)]
mod tests;
