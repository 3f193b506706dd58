//! Numbers as people type them: `1e6`, `1_000_000`, `1M`, `10GB`, `1h30m`.
//!
//! Everything is computed in integers, so that `--rows 1e15` means exactly that, and a value that does not come out whole is
//! refused instead of being rounded.

use ::prove::live::Isolation;
use std::fmt;
use std::time::Duration;

/// Longest number accepted, in digits: 10^38 still fits into the 128 bits used here.
const DIGITS_MAX: usize = 30;
/// Largest exponent accepted in `1e6`.
const EXPONENT_MAX: i32 = 30;
/// Longest duration accepted, in days: more is a typing mistake.
const DURATION_DAYS_MAX: u64 = 3660;

/// Why a value was refused, and what to type instead. The flag's name is put in front by the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueError {
    /// What is wrong, lower-case, without the flag.
    pub message: String,
    /// What to type.
    pub hint: String,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ValueError {}

impl ValueError {
    /// A refusal with its remedy.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> ValueError {
        ValueError { message: message.into(), hint: hint.into() }
    }
}

const COUNT_HINT: &str =
    "write a whole number, as 1000000, 1_000_000, 1e6, 1M (k, M, G, T are powers of 1000)";
const SIZE_HINT: &str = "write a number and B, kB, MB, GB, TB, PB (powers of 1000) or KiB, MiB, GiB, TiB, PiB (powers of 1024), as 10GB";
const DURATION_HINT: &str = "write seconds, or a number and ms, s, m, h or d, as 600, 10m, 1h30m";

/// A decimal number, `digits` x 10^`exponent`, before its unit is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Decimal {
    digits: u128,
    exponent: i32,
}

impl Decimal {
    /// The number times `unit`, if that is whole and fits.
    fn times(self, unit: u64) -> Result<u64, &'static str> {
        let product = self.digits.checked_mul(u128::from(unit)).ok_or("is too large")?;
        let power = 10u128.checked_pow(self.exponent.unsigned_abs()).ok_or("is too large")?;
        let whole = if self.exponent >= 0 {
            product.checked_mul(power).ok_or("is too large")?
        } else if product % power == 0 {
            product / power
        } else {
            return Err("is not whole");
        };
        u64::try_from(whole).map_err(|_| "is too large")
    }
}

/// Splits `1_000.5e3GB` into its number and the rest. None: it does not begin with a number.
fn decimal(text: &str) -> Option<(Decimal, &str)> {
    let bytes = text.as_bytes();
    let (mut digits, mut count, mut fraction, mut seen_point) = (0u128, 0usize, 0i32, false);
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            digit @ b'0'..=b'9' => {
                count += 1;
                if count > DIGITS_MAX {
                    return None;
                }
                digits = digits * 10 + u128::from(digit - b'0');
                fraction += i32::from(seen_point);
            }
            b'_' if count > 0 => {}
            b'.' if !seen_point => seen_point = true,
            _ => break,
        }
        at += 1;
    }
    if count == 0 {
        return None;
    }
    // An exponent is `e`, an optional sign and at least one digit; anything else that begins with e is a (wrong) unit.
    let mut exponent = 0;
    if let Some(rest) = text[at..].strip_prefix(['e', 'E']) {
        let unsigned = rest.strip_prefix(['+', '-']).unwrap_or(rest);
        let length = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        if length > 0 {
            let magnitude = unsigned[..length].parse::<i32>().ok().filter(|value| *value <= EXPONENT_MAX)?;
            exponent = if rest.starts_with('-') { -magnitude } else { magnitude };
            at = text.len() - unsigned.len() + length;
        }
    }
    Some((Decimal { digits, exponent: exponent - fraction }, &text[at..]))
}

/// Reads an isolation level.
///
/// # Errors
/// If the text names none.
pub fn isolation(text: &str) -> Result<Isolation, ValueError> {
    Isolation::parse(text).ok_or_else(|| {
        ValueError::new(
            format!("{text:?} is not an isolation level"),
            "write \"read committed\", \"repeatable read\" or serializable (rc, rr or ser)",
        )
    })
}

/// A count: `1000000`, `1_000_000`, `1e6`, `1M`, `1.5k`.
///
/// # Errors
/// A [`ValueError`] that names what is wrong with the text.
pub fn count(text: &str) -> Result<u64, ValueError> {
    let (number, unit) = number("number", text, COUNT_HINT)?;
    let unit = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" | "b" | "B" => 1_000_000_000,
        "t" | "T" => 1_000_000_000_000,
        other => return Err(no_unit("number", text, other, COUNT_HINT)),
    };
    number.times(unit).map_err(|why| ValueError::new(format!("{text:?} {why}"), COUNT_HINT))
}

/// A count of at least one.
///
/// # Errors
/// As [`count`], and for 0.
pub fn positive_count(text: &str) -> Result<u64, ValueError> {
    match count(text)? {
        0 => Err(ValueError::new("must be at least 1", COUNT_HINT)),
        value => Ok(value),
    }
}

/// A size in bytes: `10GB` (10^10), `512MiB`.
///
/// # Errors
/// A [`ValueError`] that names what is wrong with the text.
pub fn size_bytes(text: &str) -> Result<u64, ValueError> {
    let (number, unit) = number("size", text, SIZE_HINT)?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" => return Err(ValueError::new(format!("{text:?} has no unit"), SIZE_HINT)),
        "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "p" | "pb" => 1_000_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        "pib" => 1 << 50,
        _ => return Err(no_unit("size", text, unit, SIZE_HINT)),
    };
    match number.times(unit) {
        Ok(0) => Err(ValueError::new("must be more than 0", SIZE_HINT)),
        Ok(bytes) => Ok(bytes),
        Err(why) => Err(ValueError::new(format!("{text:?} {why}"), SIZE_HINT)),
    }
}

/// A duration of more than nothing: `600` (seconds), `10m`, `1h30m`, `500ms`.
///
/// # Errors
/// A [`ValueError`] that names what is wrong with the text.
pub fn duration(text: &str) -> Result<Duration, ValueError> {
    duration_with(text, US_PER_S, DURATION_HINT)
}

/// As [`duration`], but 0 is a value: no warm-up, no wait.
///
/// # Errors
/// A [`ValueError`] that names what is wrong with the text.
pub fn duration_or_zero(text: &str) -> Result<Duration, ValueError> {
    if text.trim() == "0" { Ok(Duration::ZERO) } else { duration(text) }
}

/// As [`duration`], where a bare number is milliseconds, as for pgbench's `--latency-limit`.
///
/// # Errors
/// A [`ValueError`] that names what is wrong with the text.
pub fn duration_ms(text: &str) -> Result<Duration, ValueError> {
    duration_with(text, 1_000, "write milliseconds, or a number and us, ms or s, as 50, 50ms, 1.5s")
}

const US_PER_S: u64 = 1_000_000;

fn duration_with(text: &str, bare_us: u64, hint: &'static str) -> Result<Duration, ValueError> {
    let mut rest = text.trim();
    let (mut total_us, mut parts) = (0u64, 0);
    while !rest.is_empty() {
        let (value, after) = number("duration", rest, hint)
            .map_err(|_| ValueError::new(format!("{text:?} is not a duration"), hint))?;
        let length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit = &after[..length];
        let unit_us = match unit.to_ascii_lowercase().as_str() {
            // A bare number stands alone: in `1h30` the 30 could be anything.
            "" if parts == 0 && after.is_empty() => bare_us,
            "" => {
                return Err(ValueError::new(format!("{text:?} is not a duration: a part has no unit"), hint));
            }
            "us" => 1,
            "ms" => 1_000,
            "s" | "sec" => US_PER_S,
            "m" | "min" => 60 * US_PER_S,
            "h" => 3_600 * US_PER_S,
            "d" => 86_400 * US_PER_S,
            _ => return Err(no_unit("duration", text, unit, hint)),
        };
        let part_us = value.times(unit_us).map_err(|why| ValueError::new(format!("{text:?} {why}"), hint))?;
        total_us = total_us.saturating_add(part_us);
        parts += 1;
        rest = &after[length..];
    }
    if parts == 0 {
        return Err(ValueError::new("is empty", hint));
    }
    if total_us == 0 {
        return Err(ValueError::new("must be more than 0", hint));
    }
    if total_us > DURATION_DAYS_MAX * 86_400 * US_PER_S {
        return Err(ValueError::new(format!("{text:?} is more than {DURATION_DAYS_MAX} days"), hint));
    }
    Ok(Duration::from_micros(total_us))
}

/// A rate per second of more than nothing: `1000`, `2.5`, `10k`.
///
/// # Errors
/// A [`ValueError`] that names what is wrong with the text.
pub fn rate_per_s(text: &str) -> Result<f64, ValueError> {
    let hint = "write transactions per second, as 1000, 10k, 0.5";
    let (value, unit) = number("rate", text, hint)?;
    let unit = match unit {
        "" | "/s" => 1.0,
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        other => return Err(no_unit("rate", text, other, hint)),
    };
    let rate = value.digits as f64 * 10f64.powi(value.exponent) * unit;
    match rate {
        rate if rate > RATE_PER_S_MAX => Err(ValueError::new(
            "must not be more than 1000000000 a second, one in each nanosecond",
            "the fastest servers commit some million transactions a second; without -R each session starts its next transaction at once",
        )),
        rate if rate > 0.0 => Ok(rate),
        _ => Err(ValueError::new("must be more than 0", hint)),
    }
}

/// Times are counted in nanoseconds.
const RATE_PER_S_MAX: f64 = 1e9;

/// The number at the start of `text`, and what follows it.
fn number<'a>(what: &str, text: &'a str, hint: &str) -> Result<(Decimal, &'a str), ValueError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(ValueError::new("is empty", hint));
    }
    if text.starts_with('-') && decimal(&text[1..]).is_some() {
        return Err(ValueError::new("must not be negative", hint));
    }
    let (value, unit) =
        decimal(text).ok_or_else(|| ValueError::new(format!("{text:?} is not a {what}"), hint))?;
    Ok((value, unit.trim_start()))
}

fn no_unit(what: &str, text: &str, unit: &str, hint: &str) -> ValueError {
    ValueError::new(format!("{text:?} is not a {what}: {unit:?} is not a unit"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact() {
        for (text, value) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("1_000_000", 1_000_000),
            ("1e6", 1_000_000),
            ("1E+6", 1_000_000),
            ("1M", 1_000_000),
            ("1.5k", 1_500),
            ("2.5e3", 2_500),
            ("10e-1", 1),
            ("9007199254740993", 9_007_199_254_740_993), // 2^53 + 1: a float would lose it
            ("18446744073709551615", u64::MAX),
            ("1T", 1_000_000_000_000),
        ] {
            assert_eq!(count(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn wrong_counts_are_named() {
        for (text, message) in [
            ("", "is empty"),
            ("abc", "\"abc\" is not a number"),
            ("-5", "must not be negative"),
            ("1.5", "\"1.5\" is not whole"),
            ("1e-1", "\"1e-1\" is not whole"),
            ("12x", "\"12x\" is not a number: \"x\" is not a unit"),
            ("18446744073709551616", "\"18446744073709551616\" is too large"),
            ("1e99", "\"1e99\" is not a number"),
            ("_1", "\"_1\" is not a number"),
            ("0x10", "\"0x10\" is not a number: \"x10\" is not a unit"),
        ] {
            assert_eq!(count(text).map_err(|error| error.message), Err(message.to_string()), "{text}");
        }
        assert_eq!(positive_count("0").map_err(|error| error.message), Err("must be at least 1".to_string()));
    }

    #[test]
    fn sizes_know_both_kinds_of_units() {
        for (text, value) in [
            ("10GB", 10_000_000_000),
            ("10 GB", 10_000_000_000),
            ("1TB", 1_000_000_000_000),
            ("1P", 1_000_000_000_000_000),
            ("1GiB", 1 << 30),
            ("1.5kb", 1_500),
            ("4096B", 4_096),
            ("1e3MB", 1_000_000_000),
        ] {
            assert_eq!(size_bytes(text), Ok(value), "{text}");
        }
        for (text, message) in [
            ("10", "\"10\" has no unit"),
            ("10XB", "\"10XB\" is not a size: \"XB\" is not a unit"),
            ("0GB", "must be more than 0"),
            ("GB", "\"GB\" is not a size"),
            ("99999PB", "\"99999PB\" is too large"),
        ] {
            assert_eq!(size_bytes(text).map_err(|error| error.message), Err(message.to_string()), "{text}");
        }
    }

    #[test]
    fn durations_are_seconds_or_carry_units() {
        for (text, ms) in [
            ("600", 600_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("1d", 86_400_000),
            ("2 min", 120_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for (text, message) in [
            ("", "is empty"),
            ("0", "must be more than 0"),
            ("10x", "\"10x\" is not a duration: \"x\" is not a unit"),
            ("1h30", "\"1h30\" is not a duration: a part has no unit"),
            ("soon", "\"soon\" is not a duration"),
            ("-3", "\"-3\" is not a duration"),
            ("99999d", "\"99999d\" is more than 3660 days"),
        ] {
            assert_eq!(duration(text).map_err(|error| error.message), Err(message.to_string()), "{text}");
        }
        assert_eq!(duration_or_zero("0"), Ok(Duration::ZERO));
        assert_eq!(duration_ms("50"), Ok(Duration::from_millis(50)));
        assert_eq!(duration_ms("2s"), Ok(Duration::from_secs(2)));
    }

    #[test]
    fn rates_may_be_fractions() {
        assert_eq!(rate_per_s("2.5"), Ok(2.5));
        assert_eq!(rate_per_s("10k"), Ok(10_000.0));
        assert_eq!(rate_per_s("100/s"), Ok(100.0));
        assert_eq!(rate_per_s("1000m"), Ok(1e9));
        for absurd in ["1000000001", "1e300", "2000m", "1000000k"] {
            let error = rate_per_s(absurd).map_err(|error| error.message);
            assert_eq!(error.is_err(), absurd != "1000000k", "{absurd}: {error:?}");
        }
        assert_eq!(rate_per_s("0").map_err(|error| error.message), Err("must be more than 0".to_string()));
        assert_eq!(
            rate_per_s("fast").map_err(|error| error.message),
            Err("\"fast\" is not a rate".to_string())
        );
    }
}
