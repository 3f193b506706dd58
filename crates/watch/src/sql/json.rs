//! Reading the JSON that the server makes of its views: anything may be null, and numbers may come as any of its types.

use postgres::types::{FromSql, Type};
use serde_json::Value;

/// A text as the server sends it. A database with the encoding SQL_ASCII sends bytes that need not be UTF-8: one such name or statement must not cost the
/// whole answer, so these bytes become the replacement character.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) String);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Raw, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(String::from_utf8_lossy(raw).into_owned()))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::TEXT | Type::VARCHAR | Type::NAME | Type::UNKNOWN)
    }
}

/// The document; null if it is not JSON, which a server does not send.
pub(crate) fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

/// A field as text; empty if null.
pub fn text(value: &Value, name: &str) -> String {
    match &value[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A field as a number.
pub fn number(value: &Value, name: &str) -> Option<f64> {
    match &value[name] {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// A field as a count; negative values are unknown.
pub fn count(value: &Value, name: &str) -> Option<u64> {
    match &value[name] {
        Value::Number(exact) if exact.is_u64() => exact.as_u64(),
        _ => number(value, name).filter(|number| *number >= 0.0).map(|number| number as u64),
    }
}

/// A field as yes or no.
pub fn flag(value: &Value, name: &str) -> Option<bool> {
    value[name].as_bool()
}

/// The elements of a list; none if null.
pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// A duration in seconds as microseconds.
pub(crate) fn micros(value: &Value, name: &str) -> Option<u64> {
    number(value, name).map(|seconds| (seconds.max(0.0) * 1e6) as u64)
}

/// Never below zero: clocks of two statements may disagree.
pub(crate) fn age(value: &Value, name: &str) -> Option<f64> {
    number(value, name).map(|seconds| (seconds.max(0.0) * 1000.0).round() / 1000.0)
}
