//! Values of script variables and expressions, and their text forms.

use std::io::Write as _;

use super::eval_error::EvalError;

/// What an expression computes. Text never enters an expression: a variable that holds text (from `\gset` or `-D`) is read as one
/// of these, or the expression fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
}

/// Significant digits of a double's text: as many as survive a round trip from decimal (C's `DBL_DIG`), which is what pgbench prints.
const DOUBLE_DIGITS: usize = 15;
/// Longest text of a number: an i64 with its sign, or a double as `-1.23456789012345e-300`.
const NUMBER_BYTES_MAX: usize = 32;
/// Where the i64 range ends, as doubles: `[-2^63, 2^63)`.
const INT_LIMIT: f64 = 9_223_372_036_854_775_808.0;

impl Value {
    /// The name of the value's type, as error messages and `debug()` say it.
    #[must_use]
    pub fn type_name(self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Int(_) => "int",
            Value::Double(_) => "double",
        }
    }

    /// How `\if` and `CASE WHEN` read it: NULL and zero are false, other numbers true.
    #[must_use]
    pub fn truth(self) -> bool {
        match self {
            Value::Null => false,
            Value::Bool(value) => value,
            Value::Int(value) => value != 0,
            Value::Double(value) => value != 0.0,
        }
    }

    /// The value where a boolean is required: numbers are refused.
    ///
    /// # Errors
    /// [`EvalError::CannotCoerce`] for anything but a boolean.
    pub(crate) fn to_bool(self) -> Result<bool, EvalError> {
        match self {
            Value::Bool(value) => Ok(value),
            other => Err(EvalError::CannotCoerce { from: other.type_name(), to: "boolean" }),
        }
    }

    /// The value where an integer is required: a double is rounded to the nearest, halves to the even one.
    ///
    /// # Errors
    /// [`EvalError::CannotCoerce`] for a boolean or NULL, [`EvalError::DoubleToInt`] where the range ends.
    pub(crate) fn to_int(self) -> Result<i64, EvalError> {
        match self {
            Value::Int(value) => Ok(value),
            Value::Double(value) => {
                let rounded = libm::rint(value);
                if (-INT_LIMIT..INT_LIMIT).contains(&rounded) {
                    Ok(rounded as i64)
                } else {
                    Err(EvalError::DoubleToInt(rounded))
                }
            }
            other => Err(EvalError::CannotCoerce { from: other.type_name(), to: "int" }),
        }
    }

    /// The value where a double is required.
    ///
    /// # Errors
    /// [`EvalError::CannotCoerce`] for a boolean or NULL.
    pub(crate) fn to_double(self) -> Result<f64, EvalError> {
        match self {
            Value::Double(value) => Ok(value),
            Value::Int(value) => Ok(value as f64),
            other => Err(EvalError::CannotCoerce { from: other.type_name(), to: "double" }),
        }
    }

    /// Appends the text that takes the place of `:name` in SQL: `NULL`, `true`, `-17`, `0.25`. Allocates only where `out` must grow.
    pub fn write_text(self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.extend_from_slice(b"NULL"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Int(value) => write_int(value, out),
            Value::Double(value) => write_double(value, out),
        }
    }

    /// Reads a variable's text as pgbench does: `null`, a boolean word or the beginning of one (`t`, `ye`, `off`), an integer, a
    /// double. `None` where it is none of these, which includes integers outside the i64 range and doubles outside theirs.
    #[must_use]
    pub(crate) fn from_text(text: &[u8]) -> Option<Value> {
        let begins = |word: &[u8]| text.len() <= word.len() && word[..text.len()].eq_ignore_ascii_case(text);
        let is = |word: &[u8]| word.eq_ignore_ascii_case(text);
        if text.is_empty() {
            return None;
        }
        if is(b"null") {
            return Some(Value::Null);
        }
        if begins(b"true") || begins(b"yes") || is(b"on") {
            return Some(Value::Bool(true));
        }
        if begins(b"false") || begins(b"no") || is(b"off") || is(b"of") {
            return Some(Value::Bool(false));
        }
        let number = std::str::from_utf8(text).ok()?.trim_start();
        let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return number.parse().ok().map(Value::Int);
        }
        parse_double(number).map(Value::Double)
    }
}

/// A double, unless its magnitude does not fit. C's `strtod` reports a range error where Rust answers infinity, zero or a number of
/// less than full precision; pgbench refuses all three.
pub(super) fn parse_double(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let overflowed = value.is_infinite() && mantissa.bytes().any(|byte| byte.is_ascii_digit());
    let written_zero = !mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    let underflowed = value.abs() < f64::MIN_POSITIVE && !written_zero;
    (!overflowed && !underflowed).then_some(value)
}

/// 00 to 99.
static DIGIT_PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut number = 0;
    while number < 100 {
        pairs[number * 2] = b'0' + (number / 10) as u8;
        pairs[number * 2 + 1] = b'0' + (number % 10) as u8;
        number += 1;
    }
    pairs
};

/// Appends a decimal integer.
pub(super) fn write_int(value: i64, out: &mut Vec<u8>) {
    let mut buffer = [0_u8; NUMBER_BYTES_MAX];
    let mut start = buffer.len();
    let mut rest = value.unsigned_abs();
    // Two digits at a time: a key is printed in every transaction.
    while rest >= 100 {
        let pair = (rest % 100) as usize * 2;
        rest /= 100;
        start -= 2;
        buffer[start..start + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    }
    if rest >= 10 {
        let pair = rest as usize * 2;
        start -= 2;
        buffer[start..start + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    } else {
        start -= 1;
        buffer[start] = b'0' + rest as u8;
    }
    if value < 0 {
        start -= 1;
        buffer[start] = b'-';
    }
    out.extend_from_slice(&buffer[start..]);
}

/// Appends a double as C's `%.15g` prints it, with PostgreSQL's words for what is not a number.
pub(super) fn write_double(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value < 0.0 { b"-Infinity" } else { b"Infinity" });
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    // Rust prints one digit, a point, fourteen digits and the exponent, correctly rounded; %g only arranges them.
    let mut buffer = [0_u8; NUMBER_BYTES_MAX];
    let mut cursor = std::io::Cursor::new(&mut buffer[..]);
    write!(cursor, "{:.*e}", DOUBLE_DIGITS - 1, value.abs())
        .expect("15 digits and an exponent fit the buffer");
    let length = cursor.position() as usize;
    let text = &buffer[..length];
    let exponent_at = text.iter().position(|byte| *byte == b'e').unwrap_or(length);
    let exponent: i32 = std::str::from_utf8(&text[(exponent_at + 1).min(length)..])
        .ok()
        .and_then(|e| e.parse().ok())
        .unwrap_or(0);
    let mut digits = [b'0'; DOUBLE_DIGITS];
    for (to, from) in digits.iter_mut().zip(text[..exponent_at].iter().filter(|byte| **byte != b'.')) {
        *to = *from;
    }
    let significant = DOUBLE_DIGITS - digits.iter().rev().take_while(|digit| **digit == b'0').count();
    let digits = &digits[..significant.max(1)];

    if exponent < -4 || exponent >= DOUBLE_DIGITS as i32 {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        let magnitude = exponent.unsigned_abs();
        if magnitude < 10 {
            out.push(b'0');
        }
        write_int(i64::from(magnitude), out);
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
        out.extend_from_slice(digits);
    } else {
        let whole = exponent as usize + 1;
        out.extend_from_slice(&digits[..whole.min(digits.len())]);
        out.extend(std::iter::repeat_n(b'0', whole.saturating_sub(digits.len())));
        if digits.len() > whole {
            out.push(b'.');
            out.extend_from_slice(&digits[whole..]);
        }
    }
}
