//! Settings of the application's own, such as `app.tenant`, which policies of row-level security and views read while a statement is planned. The sessions of
//! the application set them and ours do not, so the server refuses to plan. They get a value for the transaction: the plan for any value does not depend on it.
//!
//! A name comes from the server's message, which code of others may have chosen. So only a name with a prefix is set that no setting of the server has; nothing
//! but such code reads it.

use super::{NotPlanned, Open, Session, answers};
use connect::sql::literal;
use serde_json::Value;

/// Attempts for one statement.
const TRIES_MAX: usize = 8;
/// Settings of one session.
const CUSTOMS_MAX: usize = 8;
/// Kinds of values that are tried, one after another.
const KINDS: usize = 3;

/// A setting, and which kind of value it has now.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Custom {
    name: String,
    number: usize,
    kind: usize,
}

impl Custom {
    /// A value that no other setting has, so that a message with it leads to this one. Numbers and texts, then universally unique ids, then dates.
    fn value(&self) -> String {
        match self.kind {
            0 => format!("{}", 918_273 + self.number),
            1 => format!("00000000-0000-4000-8000-0000009182{:02}", 73 + self.number),
            _ => format!("2019-08-{:02}", 17 + self.number),
        }
    }

    fn set(&self) -> String {
        format!(
            "select pg_catalog.set_config({0}, {1}, true) where coalesce(pg_catalog.current_setting({0}, true), '') operator(pg_catalog.=) '' \
             and not exists (select from pg_catalog.pg_settings s where s.name operator(pg_catalog.=) {0})",
            literal(&self.name),
            literal(&self.value())
        )
    }
}

fn is_name_byte(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The first word of a message that may be the name of such a setting: two parts or more with points between them.
fn named(message: &str) -> Option<&str> {
    let words = message.split(|c: char| !is_name_byte(c) && c != '.');
    let is_part = |part: &str| part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    words.map(|word| word.trim_matches('.')).find(|word| word.contains('.') && word.split('.').all(is_part))
}

/// Whether a refusal shows a setting that is missing, or a value of another type, so that another attempt may be planned.
fn learn(customs: &mut Vec<Custom>, message: &str) -> bool {
    if let Some(wrong) = customs.iter_mut().find(|custom| message.contains(&custom.value())) {
        wrong.kind += 1;
        return wrong.kind < KINDS;
    }
    match named(message) {
        Some(name) if customs.len() < CUSTOMS_MAX && !customs.iter().any(|known| known.name == name) => {
            customs.push(Custom { name: name.to_string(), number: customs.len(), kind: 0 });
            true
        }
        _ => false,
    }
}

/// The plan that a command returns, with the names of the statement looked up in its schemas.
pub(super) fn explain(session: &mut Session, open: &Open, command: &str) -> Result<Value, NotPlanned> {
    // What a transaction has set is empty in the next ones of the session, and no longer unknown.
    let known = session.customs.iter().enumerate();
    let mut customs: Vec<Custom> =
        known.map(|(number, name)| Custom { name: name.clone(), number, kind: 0 }).collect();
    for _ in 0..TRIES_MAX {
        let sets: Vec<String> = customs.iter().map(Custom::set).collect();
        let begin = [&["savepoint pgfathom_custom".to_string()], sets.as_slice()].concat();
        session.plain(&begin.join("; "))?;
        // One that the server refuses to set is not tried again.
        session.customs = customs.iter().map(|custom| custom.name.clone()).collect();
        let refused = match answers(session, open, &[command.to_string()]) {
            Ok(found) => return Ok(serde_json::from_str(&found.concat()).unwrap_or(Value::Null)),
            Err(NotPlanned::Why(message)) => message,
            Err(other) => return Err(other),
        };
        if !learn(&mut customs, &refused) {
            return Err(NotPlanned::Why(refused));
        }
        session.plain("rollback to savepoint pgfathom_custom")?;
    }
    Err(NotPlanned::Why("settings that its tables read have no known values".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_setting_is_found_in_any_language() {
        assert_eq!(named("unrecognized configuration parameter \"app.tenant\""), Some("app.tenant"));
        assert_eq!(
            named("nicht erkannter Konfigurationsparameter »app.current.user«."),
            Some("app.current.user")
        );
        for other in ["division by zero", "function f(1.5) does not exist", "see 3.14 and v. 2", "a. b"] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_followed_by_the_next_one_and_only_of_its_setting() {
        let mut customs = vec![];
        assert!(learn(&mut customs, "unrecognized configuration parameter \"app.tenant\""));
        assert!(learn(&mut customs, "unrecognized configuration parameter \"app.user\""));
        // The server has no third value for it, and the name alone is no news.
        assert!(!learn(&mut customs, "unrecognized configuration parameter \"app.user\""));
        assert_ne!(customs[0].value(), customs[1].value());
        let wrong = format!("invalid input syntax for type uuid: \"{}\"", customs[1].value());
        assert!(learn(&mut customs, &wrong));
        assert_eq!((customs[0].kind, customs[1].kind), (0, 1));
        for is_more in [true, false] {
            let wrong = format!("invalid input syntax for type date: \"{}\"", customs[1].value());
            assert_eq!(learn(&mut customs, &wrong), is_more);
        }
        let quoted = Custom { name: "a.b'; drop table t; --".to_string(), number: 0, kind: 0 }.set();
        assert!(quoted.contains("'a.b''; drop table t; --'"), "{quoted}");
    }
}
