//! The statements in the text of a function, as it would send them to the server: with parameters for its variables, arguments and constants.
//!
//! A text is divided at the words and signs between which PL/pgSQL has its statements (`src/pl/plpgsql/src/pl_gram.y`); what cannot be read as one is left out.
//! `EXECUTE` builds its statement when it runs, so that one stays unknown.

use super::{check_size, parameterized};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Token, Tokenizer};
use std::collections::BTreeMap;

/// Statements of one function.
const STATEMENTS_MAX: usize = 12;
/// Words that begin one.
const BEGINS: [&str; 6] = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "PERFORM"];
/// Words behind which one can begin, besides the begin of the text and a semicolon.
const BEFORE: [&str; 8] = ["BEGIN", "THEN", "ELSE", "LOOP", "QUERY", "IN", "FOR", "AS"];
/// Variables of triggers.
const OF_TRIGGERS: [&str; 2] = ["new", "old"];

/// The statements in a function's text; `arguments` are the names and types of its arguments, as the catalog has them, an empty name for one without.
pub fn inner(source: &str, arguments: &[(String, String)]) -> Vec<String> {
    if check_size(source).is_err() {
        return Vec::new();
    }
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, source).tokenize() else { return Vec::new() };
    // Comments are white space, too.
    let tokens: Vec<Token> =
        tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let variables = variables(&tokens, arguments);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() && found.len() < STATEMENTS_MAX {
        match begins(&tokens, at) {
            Some(is_enclosed) => {
                let end = end(&tokens, at, is_enclosed);
                found.push(written(&tokens[at..end], (&variables, arguments), source));
                at = end;
            }
            None => at += 1,
        }
    }
    found
}

/// Commands that work on whole tables, or lock them, and have no plan.
const COMMANDS: [&str; 11] = [
    "REFRESH", "TRUNCATE", "ANALYZE", "CLUSTER", "REINDEX", "LOCK", "CREATE", "ALTER", "DROP", "COPY",
    "NOTIFY",
];
/// Words of a command that are kept.
const COMMAND_WORDS_MAX: usize = 12;

/// The commands in a function's text that work on whole tables or objects and have no plan: `REFRESH MATERIALIZED VIEW totals`. What `EXECUTE` builds is not
/// known.
pub fn commands(source: &str) -> Vec<String> {
    if check_size(source).is_err() {
        return Vec::new();
    }
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, source).tokenize() else { return Vec::new() };
    let tokens: Vec<Token> =
        tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let is_command = word(tokens.get(at)).is_some_and(|word| COMMANDS.contains(&word.as_str()));
        let is_first = match at.checked_sub(1).and_then(|before| tokens.get(before)) {
            None | Some(Token::SemiColon | Token::Colon) => true,
            before => word(before).is_some_and(|word| BEFORE.contains(&word.as_str())),
        };
        if is_command && is_first && found.len() < STATEMENTS_MAX {
            let end = end(&tokens, at, false).min(at + COMMAND_WORDS_MAX);
            let words: Vec<String> = tokens[at..end].iter().map(Token::to_string).collect();
            found.push(words.join(" ").replace(" . ", "."));
        }
    }
    found
}

/// An unquoted word in capitals.
fn word(token: Option<&Token>) -> Option<String> {
    match token {
        Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
        _ => None,
    }
}

/// Whether a statement begins here; and if so, whether it stands in parentheses.
fn begins(tokens: &[Token], at: usize) -> Option<bool> {
    let first = word(tokens.get(at))?;
    if !BEGINS.contains(&first.as_str()) {
        return None;
    }
    let before = at.checked_sub(1).and_then(|before| tokens.get(before));
    match before {
        None | Some(Token::SemiColon) => Some(false),
        Some(Token::LParen) => Some(true),
        other => BEFORE.contains(&word(other)?.as_str()).then_some(false),
    }
}

/// Where it ends: at the semicolon, at the LOOP that it is for, or where its parenthesis is closed.
fn end(tokens: &[Token], begin: usize, is_enclosed: bool) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(begin) {
        match token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return at,
            Token::RParen => depth -= 1,
            Token::SemiColon => return at,
            other if !is_enclosed && depth == 0 && word(Some(other)).as_deref() == Some("LOOP") => return at,
            _ => {}
        }
    }
    tokens.len()
}

/// The names that stand for values, with their types where they are known: arguments, what DECLARE has, and what FOR runs over. The value of an untyped
/// parameter would take the type of the column that it is compared with, which is another plan.
fn variables(tokens: &[Token], arguments: &[(String, String)]) -> BTreeMap<String, String> {
    let mut names: BTreeMap<String, String> =
        arguments.iter().map(|(name, kind)| (name.to_lowercase(), kind.clone())).collect();
    names.extend(OF_TRIGGERS.map(|name| (name.to_owned(), String::new())));
    names.remove("");
    let name = |token: &Token| word(Some(token)).map(|word| word.to_lowercase());
    let mut is_declared = false;
    for (at, token) in tokens.iter().enumerate() {
        let word = word(Some(token));
        match word.as_deref() {
            Some("DECLARE") => is_declared = true,
            Some("BEGIN") => is_declared = false,
            Some("FOR") if self::word(tokens.get(at + 2)).as_deref() == Some("IN") => {
                names.extend(tokens.get(at + 1).and_then(name).map(|name| (name, String::new())));
                continue;
            }
            _ => {}
        }
        let is_first = word.as_deref() == Some("DECLARE") || *token == Token::SemiColon;
        if is_declared && is_first {
            let found = tokens.get(at + 1).and_then(name).filter(|name| name != "begin");
            names.extend(found.map(|name| (name, declared_type(tokens, at + 2))));
        }
    }
    names
}

/// The type that stands behind the name of a declared variable; empty where it refers to a column or table.
fn declared_type(tokens: &[Token], from: usize) -> String {
    const TOKENS_MAX: usize = 10;
    let mut kind = String::new();
    let mut is_length = false;
    for token in tokens.iter().skip(from).take(TOKENS_MAX) {
        match token {
            // A length is left out: it changes no plan.
            Token::LParen | Token::RParen => is_length = *token == Token::LParen,
            _ if is_length => {}
            Token::SemiColon | Token::Assignment | Token::Eq => return kind,
            Token::Mod => return String::new(),
            Token::Word(found) => match found.value.to_uppercase().as_str() {
                "DEFAULT" | "NOT" => return kind,
                "CONSTANT" => {}
                "CURSOR" | "RECORD" | "ALIAS" | "REFCURSOR" => return String::new(),
                _ if kind.is_empty() => kind.push_str(&token.to_string()),
                _ => kind.push_str(&format!(" {token}")),
            },
            other => kind.push_str(&other.to_string()),
        }
    }
    String::new()
}

/// A statement as text: without `INTO variables`, and with parameters for what is no name of the database.
fn written(
    tokens: &[Token],
    (variables, arguments): (&BTreeMap<String, String>, &[(String, String)]),
    source: &str,
) -> String {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    // Those that the function itself writes are its arguments.
    let first = super::parameters(source) + 1;
    let mut text = String::new();
    let mut depth = 0_usize;
    let mut at = 0;
    while at < tokens.len() {
        let token = &tokens[at];
        let (before, next) = (at.checked_sub(1).map(|before| &tokens[before]), tokens.get(at + 1));
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        let as_word = word(Some(token));
        let is_target = as_word.as_deref() == Some("INTO")
            && depth == 0
            && !matches!(word(before).as_deref(), Some("INSERT" | "MERGE"));
        if is_target {
            at = behind_target(tokens, at + 1);
            continue;
        }
        let is_variable = as_word.as_ref().is_some_and(|word| variables.contains_key(&word.to_lowercase()))
            && !matches!(before, Some(Token::Period))
            && !matches!(next, Some(Token::LParen));
        let positional = match token {
            Token::Placeholder(name) => {
                name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok())
            }
            _ => None,
        };
        let of_position = positional.and_then(|number| arguments.get(number.checked_sub(1)?));
        let piece = if let Some((_, kind)) = of_position.filter(|(_, kind)| !kind.is_empty()) {
            format!("{token}::{kind}")
        } else if at == 0 && as_word.as_deref() == Some("PERFORM") {
            "SELECT".to_owned()
        } else if is_variable {
            let mut name = token.to_string().to_lowercase();
            let kind =
                variables.get(&name).filter(|kind| !kind.is_empty() && !matches!(next, Some(Token::Period)));
            let cast = kind.map(|kind| format!("::{kind}")).unwrap_or_default();
            if let (Some(Token::Period), Some(field @ Token::Word(_))) = (next, tokens.get(at + 2)) {
                name.push_str(&format!(".{field}"));
                at += 2;
            }
            let number = numbers.len();
            format!("${}{cast}", first + *numbers.entry(name).or_insert(number))
        } else {
            token.to_string()
        };
        at += 1;
        if !text.is_empty() && !joins(token, before) {
            text.push(' ');
        }
        text.push_str(&piece);
    }
    parameterized(&text)
}

/// Whether a token stands right behind the one before it.
fn joins(token: &Token, before: Option<&Token>) -> bool {
    matches!(
        token,
        Token::Period | Token::DoubleColon | Token::Comma | Token::RParen | Token::RBracket | Token::LBracket
    ) || matches!(before, Some(Token::Period | Token::DoubleColon | Token::LParen | Token::LBracket))
        || (*token == Token::LParen && is_called(before))
}

/// Whether a parenthesis behind this token is that of a call.
fn is_called(before: Option<&Token>) -> bool {
    const OPERATORS: [&str; 12] =
        ["IN", "AND", "OR", "NOT", "EXISTS", "ANY", "ALL", "VALUES", "AS", "WHERE", "FROM", "ON"];
    matches!(before, Some(Token::Word(_)))
        && !word(before).is_some_and(|word| OPERATORS.contains(&word.as_str()))
}

/// The place behind `[STRICT] a, b.c` of INTO.
fn behind_target(tokens: &[Token], from: usize) -> usize {
    let mut at = from + usize::from(word(tokens.get(from)).as_deref() == Some("STRICT"));
    loop {
        // A name, with a field or an element.
        at += 1;
        while matches!(tokens.get(at), Some(Token::Period)) {
            at += 2;
        }
        match tokens.get(at) {
            Some(Token::Comma) => at += 1,
            _ => return at.min(tokens.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_on_whole_tables_are_found_in_a_text() {
        let text = "plpgsql returning 0 rows: BEGIN IF $1 THEN refresh materialized view concurrently app.totals; END IF; LOCK TABLE \"A\"; \
            UPDATE a SET refresh = $2; RETURN NULL; END";
        assert_eq!(commands(text), ["refresh materialized view concurrently app.totals", "LOCK TABLE \"A\""]);
        assert_eq!(
            commands("sql returning 1 rows: REFRESH MATERIALIZED VIEW totals"),
            ["REFRESH MATERIALIZED VIEW totals"]
        );
        assert!(commands("select create_order($1)").is_empty());
    }

    fn of(source: &str, arguments: &[&str]) -> Vec<String> {
        let arguments: Vec<(String, String)> =
            arguments.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        inner(source, &arguments)
    }

    #[test]
    fn a_function_in_sql_is_its_statements() {
        assert_eq!(
            of(" SELECT max(event_no) FROM ingest.raw_event WHERE source_id = s ", &["s"]),
            ["SELECT max(event_no) FROM ingest.raw_event WHERE source_id = $1"]
        );
        assert_eq!(
            of("select 1 from t where a = $1 and b = 'x'", &["a1"]),
            ["select $2 from t where a = $1 and b = $3"]
        );
    }

    #[test]
    fn statements_of_a_block_stand_without_their_variables_and_targets() {
        let source = "DECLARE t text := md5(nextval('n')::text); k int; -- of the login
            BEGIN
              DELETE FROM portail.session_web WHERE expires_at < now();
              SELECT count(*), max(id) INTO STRICT k, t FROM page WHERE owner = u;
              IF EXISTS (SELECT 1 FROM ban WHERE person = u) THEN RETURN NULL; END IF;
              FOR r IN SELECT * FROM item WHERE basket = k LOOP
                PERFORM note(r.id);
                UPDATE stock SET pieces = pieces - r.pieces WHERE id = r.item_id;
              END LOOP;
              INSERT INTO portail.session_web VALUES (t, u, now() + interval '8 hours', '');
              EXECUTE 'select 1';
              RETURN t;
            END";
        assert_eq!(
            of(source, &["u"]),
            [
                "DELETE FROM portail.session_web WHERE expires_at < now()",
                "SELECT count(*), max(id) FROM page WHERE owner = $1",
                "SELECT $2 FROM ban WHERE person = $1",
                "SELECT * FROM item WHERE basket = $1::int",
                "SELECT note($1)",
                "UPDATE stock SET pieces = pieces - $1 WHERE id = $2",
                "INSERT INTO portail.session_web VALUES ($1::text, $2, now() + interval $3, $4)",
            ]
        );
    }

    #[test]
    fn arguments_and_variables_keep_their_types() {
        let typed = |source: &str| {
            inner(source, &[("nr".to_owned(), "text".to_owned()), (String::new(), "bigint".to_owned())])
        };
        assert_eq!(
            typed("SELECT price FROM art a WHERE a.artnr = nr AND n > $2"),
            ["SELECT price FROM art a WHERE a.artnr = $3::text AND n > $2::bigint"]
        );
        assert_eq!(
            typed(
                "DECLARE k constant numeric(10, 2) := 1; r art%ROWTYPE; d double precision; BEGIN DELETE FROM art WHERE a = k AND b = r.b AND c = d; END"
            ),
            ["DELETE FROM art WHERE a = $1::numeric AND b = $2 AND c = $3::double precision"]
        );
    }

    #[test]
    fn triggers_have_the_rows_old_and_new() {
        let source = "BEGIN UPDATE summary SET total = (SELECT sum(amount) FROM booking WHERE account = NEW.account) WHERE account = NEW.account; \
            RETURN NEW; END";
        assert_eq!(
            of(source, &[]),
            [
                "UPDATE summary SET total = (SELECT sum(amount) FROM booking WHERE account = $1) WHERE account = $1"
            ]
        );
    }

    #[test]
    fn what_is_no_text_of_a_function_has_none() {
        for text in ["", "'", "SELECT (((((", "LOOP SELECT", "FOR IN", "INTO", "SELECT INTO", "DECLARE"] {
            let _ = of(text, &["a", ""]);
        }
        assert!(of("RETURN 1", &[]).is_empty());
    }
}
