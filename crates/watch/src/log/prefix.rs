//! `log_line_prefix`: the position of the time and the process id in a line.
//!
//! The escapes are those of `log_line_prefix()` in the server's `elog.c`. Only time, process and SQLSTATE are kept; the others are
//! skipped up to the text that follows them.

/// A part of the prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    /// `%m`: with milliseconds.
    Milliseconds,
    /// `%t`.
    Seconds,
    /// `%n`: seconds since the epoch with milliseconds.
    Epoch,
    /// `%p`.
    Process,
    /// `%c`: start time and process id, in hexadecimal.
    Session,
    /// `%e`.
    State,
    /// `%q`: processes that serve no session stop here.
    Sessions,
    /// Anything else.
    Other,
}

/// The fields of a prefix.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PrefixFields {
    /// Microseconds since the epoch, as if the server's time zone were UTC unless `is_absolute`.
    pub(crate) time_us: Option<i64>,
    pub(crate) is_absolute: bool,
    pub(crate) pid: Option<u32>,
    pub(crate) sqlstate: Option<String>,
}

/// A prefix, ready to be matched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Prefix {
    parts: Vec<Part>,
}

impl Prefix {
    /// Reads the setting.
    pub(crate) fn new(setting: &str) -> Prefix {
        let mut parts: Vec<Part> = Vec::new();
        let mut text = String::new();
        let mut letters = setting.chars().peekable();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                text.push(letter);
                continue;
            }
            // Padding: an optional minus and a width.
            while letters.peek().is_some_and(|letter| *letter == '-' || letter.is_ascii_digit()) {
                letters.next();
            }
            let part = match letters.next() {
                Some('%') => {
                    text.push('%');
                    continue;
                }
                Some('m') => Part::Milliseconds,
                Some('t') => Part::Seconds,
                Some('n') => Part::Epoch,
                Some('p') => Part::Process,
                Some('c') => Part::Session,
                Some('e') => Part::State,
                Some('q') => Part::Sessions,
                Some(_) => Part::Other,
                None => break,
            };
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(part);
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Prefix { parts }
    }

    /// The fields of the prefix of a line, and the rest; `None` if the line does not begin with it. The server begins each further line of a message with a
    /// tab (`append_with_tabs` in elog.c): such a line is none of its own, whatever a statement with line feeds makes it look like.
    pub(crate) fn strip<'a>(&self, line: &'a str) -> Option<(PrefixFields, &'a str)> {
        let begins_with_tab = matches!(self.parts.first(), Some(Part::Text(text)) if text.starts_with('\t'));
        if line.starts_with('\t') && !begins_with_tab {
            return None;
        }
        let mut fields = PrefixFields::default();
        match strip(&self.parts, line, &mut fields) {
            Some(rest) => Some((fields, rest)),
            None => {
                let end = self.parts.iter().position(|part| *part == Part::Sessions)?;
                let mut fields = PrefixFields::default();
                let rest = strip(&self.parts[..end], line, &mut fields)?;
                Some((fields, rest))
            }
        }
    }
}

fn strip<'a>(parts: &[Part], line: &'a str, fields: &mut PrefixFields) -> Option<&'a str> {
    let mut rest = line;
    for (index, part) in parts.iter().enumerate() {
        if let Part::Text(text) = part {
            // Padded fields may have more blanks than the setting shows.
            rest = match rest.strip_prefix(text.as_str()) {
                Some(rest) => rest,
                None => rest.trim_start().strip_prefix(text.trim_start())?,
            };
            continue;
        }
        if *part == Part::Sessions {
            continue;
        }
        if matches!(part, Part::Milliseconds | Part::Seconds) {
            let (time_us, after) = timestamp(rest.trim_start())?;
            (fields.time_us, rest) = (Some(time_us), after);
            continue;
        }
        let next = parts[index + 1..].iter().find(|part| **part != Part::Sessions);
        let word = match next {
            Some(Part::Text(text)) => &rest[..rest.find(text.as_str())?],
            // Two adjacent fields, or the end of the prefix: the first ends with its digits and letters.
            _ => {
                let end =
                    rest.trim_start().find(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_'));
                let blanks = rest.len() - rest.trim_start().len();
                &rest[..blanks + end.unwrap_or(rest.len() - blanks)]
            }
        };
        rest = &rest[word.len()..];
        let word = word.trim();
        match part {
            Part::Process => fields.pid = Some(word.parse().ok()?),
            Part::Session => {
                let (_, pid) = word.split_once('.')?;
                fields.pid = Some(u32::from_str_radix(pid, 16).ok()?);
            }
            Part::State => fields.sqlstate = Some(word.to_string()).filter(|word| word.len() == 5),
            Part::Epoch => {
                let seconds: f64 = word.parse().ok()?;
                fields.time_us = Some((seconds * 1e6).round() as i64);
                fields.is_absolute = true;
            }
            _ => {}
        }
    }
    Some(rest)
}

/// `2024-05-06 07:08:09.123 CEST` at the beginning of a text: microseconds as if that were UTC, and the rest after the zone.
pub(crate) fn timestamp(text: &str) -> Option<(i64, &str)> {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| -> Option<i64> {
        let part = text.get(from..to)?;
        if part.bytes().all(|byte| byte.is_ascii_digit()) { part.parse().ok() } else { None }
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b' '), (13, b':'), (16, b':')];
    if separators.iter().any(|(at, byte)| bytes.get(*at) != Some(byte)) {
        return None;
    }
    let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    let (millis, end) = match bytes.get(19) {
        Some(b'.') => (digits(20, 23)?, 23),
        _ => (0, 19),
    };
    // The zone is a word of letters, or an offset.
    let rest = text.get(end..)?;
    let after = rest.strip_prefix(' ').map_or(rest, |zone| {
        let is_digit = |at: usize| zone.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        let is_zone = |at: usize, letter: char| match letter {
            // `+05:30`; a colon after a word belongs to the prefix.
            ':' => at > 0 && is_digit(at - 1) && is_digit(at + 1),
            letter => letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '/' | '_'),
        };
        let length =
            zone.char_indices().find(|(at, letter)| !is_zone(*at, *letter)).map_or(zone.len(), |(at, _)| at);
        &zone[length..]
    });
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some((seconds * 1_000_000 + millis * 1000, after))
}

/// Days since 1970-01-01 of the proleptic Gregorian calendar (H. Hinnant, `days_from_civil`).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(prefix: &str, line: &str) -> Option<(Option<u32>, Option<i64>, String)> {
        let (fields, rest) = Prefix::new(prefix).strip(line)?;
        Some((fields.pid, fields.time_us, rest.to_string()))
    }

    #[test]
    fn prefixes_of_the_world_are_read() {
        let t = Some(1_714_979_289_123_000);
        let rest = "LOG:  hello".to_string();
        for (prefix, line) in [
            ("%m [%p] ", "2024-05-06 07:08:09.123 UTC [42] LOG:  hello"),
            ("%m [%p] %q%u@%d ", "2024-05-06 07:08:09.123 CEST [42] bob@shop LOG:  hello"),
            ("%m [%p] %q%u@%d ", "2024-05-06 07:08:09.123 CEST [42] LOG:  hello"),
            (
                "%m [%p]: [%l-1] user=%u,db=%d,app=%a,client=%h ",
                "2024-05-06 07:08:09.123 +03 [42]: [7-1] user=,db=,app=,client= LOG:  hello",
            ),
            (
                "%m [%p]: [%l-1] user=%u,db=%d,app=%a,client=%h ",
                "2024-05-06 07:08:09.123 +03 [42]: [7-1] user=bob,db=shop,app=my app,client=10.0.0.1 LOG:  hello",
            ),
            ("%-8p|%m|%e|", "42      |2024-05-06 07:08:09.123 Europe/Moscow|00000|LOG:  hello"),
            ("%p %n ", "42 1714979289.123 LOG:  hello"),
            ("%c %m:", "6638a1b2.2a 2024-05-06 07:08:09.123 UTC:LOG:  hello"),
        ] {
            assert_eq!(fields(prefix, line), Some((Some(42), t, rest.clone())), "{prefix}");
        }
        assert_eq!(
            fields("%t [%p] ", "2024-05-06 07:08:09 UTC [42] LOG:  hello").expect("fits").1,
            Some(1_714_979_289_000_000)
        );
        assert_eq!(fields("", "LOG:  hello"), Some((None, None, rest)));
    }

    #[test]
    fn other_lines_are_not_taken_for_it() {
        assert_eq!(fields("%m [%p] ", "\tcontinued"), None);
        assert_eq!(fields("%m [%p] ", "2024-05-06 07:08:09.123 UTC [4x2] LOG:  hello"), None);
        assert_eq!(fields("%m [%p] ", "2024-05-06"), None);
        assert_eq!(fields("%m [%p] ", "2024-05-ö6 07:08:09.123 UTC [42] LOG:  hello"), None);
    }

    #[test]
    fn days_are_counted_from_the_epoch() {
        assert_eq!(
            [(1970, 1, 1), (2000, 2, 29), (2000, 3, 1), (1969, 12, 31)].map(|(y, m, d)| days(y, m, d)),
            [0, 11_016, 11_017, -1]
        );
    }
}
