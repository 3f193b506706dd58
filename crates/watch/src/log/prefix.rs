//! `log_line_prefix`: the position of the time and the process id in a line.
//!
//! The escapes are those of `log_line_prefix()` in the server's `elog.c`. Only time, process and SQLSTATE are kept; the others are
//! skipped.
//!
//! The server writes what clients choose as it is: a user or database name of a failed login (`%u`, `%d`) may have line feeds, and an application's name
//! (`%a`) any printable character. So a line, or several, may be read in more than one way. [`Prefix::readings`] returns all of them, and the parser decides
//! which of them can be.

use super::words;
use super::writer::Writer;
use std::collections::HashSet;
use std::ops::Range;

/// Characters of a name: `NAMEDATALEN - 1` bytes.
const NAME_CHARS_MAX: usize = 63;
/// Of an application's name: each of its bytes may be written as `\\x20`.
const APPLICATION_CHARS_MAX: usize = NAME_CHARS_MAX * 4;
/// Of a host's name (`NI_MAXHOST`), with a port.
const HOST_CHARS_MAX: usize = 1_100;
/// Steps in which a line is matched: a line of separators has thousands of ways.
const STEPS_MAX: usize = 2_000;
/// What the server writes behind a severity.
const BEHIND_SEVERITY: &str = ":  ";
/// Characters of the longest severity.
const SEVERITY_CHARS_MAX: usize = 40;

/// What a part of any length may consist of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Free {
    /// `%u`: any characters.
    User,
    /// `%d`: any characters.
    Database,
    /// `%a`: one line.
    Application,
    /// `%b`: one line.
    Backend,
    /// Words of the server with blanks (`%i`): one line.
    Line,
    /// `%h`, `%r`: no blanks.
    Host,
}

/// A part of the prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    /// `%m`, `%t`.
    Time,
    /// `%s`: when the session began.
    Start,
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
    /// What has so many characters at most.
    Free(Free, usize),
    /// Anything else.
    Other,
}

impl Part {
    /// Whether it names the kind of process.
    fn is_backend(&self) -> bool {
        matches!(self, Part::Free(Free::Backend, _))
    }
}

/// The fields of a prefix.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct PrefixFields {
    /// Microseconds since the epoch, as if the server's time zone were UTC unless `is_absolute`.
    pub(crate) time_us: Option<i64>,
    pub(crate) is_absolute: bool,
    pub(crate) pid: Option<u32>,
    pub(crate) sqlstate: Option<String>,
    pub(crate) writer: Writer,
}

impl PrefixFields {
    /// All but the writer: of two readings that differ in nothing else the more suspicious writer counts.
    pub(crate) fn plain(&self) -> (Option<i64>, bool, Option<u32>, Option<&str>) {
        (self.time_us, self.is_absolute, self.pid, self.sqlstate.as_deref())
    }

    /// What a part of the prefix shows of the writer. An application's name may be empty in a session; a process without a session has no names at all.
    fn show(&mut self, kind: Free, name: &str) {
        let name = name.trim();
        let shown = match kind {
            Free::Backend => Writer::of_backend(name),
            Free::User | Free::Database | Free::Host | Free::Application if !name.is_empty() => {
                Writer::Session
            }
            // In every session these have a value, if only `[unknown]` or `[local]`.
            Free::User | Free::Database | Free::Host => Writer::Server,
            Free::Application | Free::Line => return,
        };
        let is_decided = self.writer != Writer::Unknown;
        self.writer = if is_decided { self.writer.max(shown) } else { shown };
    }
}

/// A way to read lines.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) fields: PrefixFields,
    /// Where a name with a line feed stands.
    pub(crate) broken: Option<(Free, Range<usize>)>,
    /// Where the severity begins.
    pub(crate) at: usize,
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
            let mut width = String::new();
            while let Some(letter) = letters.next_if(|letter| *letter == '-' || letter.is_ascii_digit()) {
                width.push(letter);
            }
            let width = width.trim_start_matches('-').parse().unwrap_or(0);
            let free = |kind, chars: usize| Part::Free(kind, chars.max(width));
            let part = match letters.next() {
                Some('%') => {
                    text.push('%');
                    continue;
                }
                Some('m' | 't') => Part::Time,
                Some('s') => Part::Start,
                Some('n') => Part::Epoch,
                Some('p') => Part::Process,
                Some('c') => Part::Session,
                Some('e') => Part::State,
                Some('q') => Part::Sessions,
                Some('u') => free(Free::User, NAME_CHARS_MAX),
                Some('d') => free(Free::Database, NAME_CHARS_MAX),
                Some('a') => free(Free::Application, APPLICATION_CHARS_MAX),
                Some('b') => free(Free::Backend, NAME_CHARS_MAX),
                Some('i') => free(Free::Line, NAME_CHARS_MAX),
                Some('h' | 'r') => free(Free::Host, HOST_CHARS_MAX),
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

    /// Whether a line that begins with a tab may be one of its own. The server begins each further line of a message with a tab (`append_with_tabs` in elog.c):
    /// such a line is none of its own, whatever a statement with line feeds makes it look like.
    pub(crate) fn begins_with_tab(&self) -> bool {
        matches!(self.parts.first(), Some(Part::Text(text)) if text.starts_with('\t'))
    }

    /// Characters within which a prefix with line feeds in its names has ended; 0 if it has none.
    pub(crate) fn reach(&self) -> usize {
        let of_part = |part: &Part| match part {
            Part::Text(text) => text.chars().count(),
            Part::Free(_, chars) => *chars,
            _ => SEVERITY_CHARS_MAX,
        };
        let breaks = |part: &Part| matches!(part, Part::Free(Free::User | Free::Database, _));
        match self.parts.iter().any(breaks) {
            true => self.parts.iter().map(of_part).sum::<usize>() + SEVERITY_CHARS_MAX,
            false => 0,
        }
    }

    /// Every way in which a text begins with this prefix and a severity, or the word of what belongs to a message: each at another place, with other fields, or
    /// with another name that has line feeds. `None`: there are too many ways to try all.
    pub(crate) fn readings(&self, text: &str) -> Option<Vec<Reading>> {
        let mut states = vec![Reading::default()];
        let mut steps = 0;
        let mut found: Vec<Reading> = vec![];
        for (index, part) in self.parts.iter().enumerate() {
            if *part == Part::Sessions {
                // A process without a session stops here.
                let ends = states.iter().filter(|state| is_message(&text[state.at..])).cloned();
                found.extend(ends.map(|mut state| {
                    if state.fields.writer == Writer::Unknown
                        && !self.parts[..index].iter().any(Part::is_backend)
                    {
                        state.fields.writer = Writer::Server;
                    }
                    state
                }));
                continue;
            }
            let next = self.parts[index + 1..].iter().find(|part| **part != Part::Sessions);
            let (mut after, mut known): (Vec<Reading>, HashSet<Reading>) = (vec![], HashSet::new());
            let is_single = states.len() == 1;
            for state in states {
                step(part, next, text, state, &mut |reading| {
                    steps += 1;
                    if is_single || known.insert(reading.clone()) {
                        after.push(reading);
                    }
                });
                if steps > STEPS_MAX {
                    return None;
                }
            }
            states = after;
        }
        found.extend(states.into_iter().filter(|state| is_message(&text[state.at..])));
        let mut known = HashSet::new();
        found.retain(|reading| known.insert(reading.clone()));
        Some(found)
    }
}

/// Whether a text begins with a severity, or the word of what belongs to a message.
fn is_message(text: &str) -> bool {
    let end = text.char_indices().nth(SEVERITY_CHARS_MAX).map_or(text.len(), |(at, _)| at);
    text[..end]
        .split_once(BEHIND_SEVERITY)
        .is_some_and(|(word, _)| words::severity(word).is_some() || words::supplement(word).is_some())
}

/// Matches one part: each place where it can end.
fn step(part: &Part, next: Option<&Part>, text: &str, state: Reading, ends: &mut dyn FnMut(Reading)) {
    let rest = &text[state.at..];
    if let Part::Free(kind, chars) = part {
        let can_end = |after: &str| match next {
            Some(Part::Text(text)) => after.starts_with(text.as_str()),
            Some(_) => true,
            None => is_message(after),
        };
        for (length, letter) in rest.char_indices().chain([(rest.len(), '\0')]).take(chars + 1) {
            let (name, after) = rest.split_at(length);
            if can_end(after) {
                let broken = name.contains('\n').then(|| (*kind, state.at..state.at + length));
                let broken = state.broken.clone().or(broken);
                let mut fields = state.fields.clone();
                fields.show(*kind, name);
                ends(Reading { at: state.at + length, broken, fields });
            }
            let goes_on = match kind {
                Free::User | Free::Database => true,
                Free::Application | Free::Backend | Free::Line => letter != '\n',
                Free::Host => !letter.is_whitespace(),
            };
            if !goes_on {
                break;
            }
        }
        return;
    }
    let mut fields = state.fields.clone();
    if let Some(after) = fixed(part, next, rest, &mut fields) {
        ends(Reading { at: text.len() - after.len(), fields, ..state });
    }
}

/// What follows a part that has one end only.
fn fixed<'a>(part: &Part, next: Option<&Part>, rest: &'a str, fields: &mut PrefixFields) -> Option<&'a str> {
    if let Part::Text(text) = part {
        // Padded fields may have more blanks than the setting shows.
        return rest
            .strip_prefix(text.as_str())
            .or_else(|| rest.trim_start_matches(' ').strip_prefix(text.trim_start()));
    }
    if matches!(part, Part::Time | Part::Start) {
        let (time_us, after) = timestamp(rest.trim_start_matches(' '))?;
        if *part == Part::Time {
            fields.time_us = Some(time_us);
        }
        return Some(after);
    }
    let word = match next {
        Some(Part::Text(text)) => &rest[..rest.find(text.as_str())?],
        // Two adjacent fields, or the end of the prefix: the first ends with its digits and letters.
        _ => {
            let digits = rest.trim_start_matches(' ');
            let end = digits.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_'));
            let blanks = rest.len() - digits.len();
            &rest[..blanks + end.unwrap_or(rest.len() - blanks)]
        }
    };
    if word.contains('\n') {
        return None;
    }
    let after = &rest[word.len()..];
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
    Some(after)
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

    /// The only reading of a line.
    fn fields(prefix: &str, line: &str) -> Option<(Option<u32>, Option<i64>, String)> {
        let readings = Prefix::new(prefix).readings(line).expect("few");
        assert!(readings.len() < 2, "{readings:?}");
        let reading = readings.first()?;
        Some((reading.fields.pid, reading.fields.time_us, line[reading.at..].to_string()))
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
            (
                "%m [%p] %b %s ",
                "2024-05-06 07:08:09.123 UTC [42] client backend 2024-05-06 01:02:03 UTC LOG:  hello",
            ),
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
    fn what_a_client_chooses_may_be_read_in_several_ways() {
        let time = "2024-05-06 07:08:09.123 UTC";
        let count = |prefix: &str, line: &str| Prefix::new(prefix).readings(line).map(|all| all.len());
        let ambiguous = format!("{time} [7] x@y PANIC:  no disk@shop FATAL:  role does not exist");
        assert_eq!(count("%m [%p] %q%u@%d ", &ambiguous), Some(2));
        assert_eq!(count("%m [%p] ", &format!("{time} [7] FATAL:  x@y PANIC:  no disk")), Some(1));
        let broken = format!("{time} [7] x\n{time} [1] @shop FATAL:  role does not exist");
        let readings = Prefix::new("%m [%p] %q%u@%d ").readings(&broken).expect("few");
        assert_eq!(readings.len(), 1, "{readings:?}");
        assert_eq!((readings[0].fields.pid, readings[0].broken.is_some()), (Some(7), true));
        // No name is as long as that.
        let long = format!("{time} [7] x\n{} @shop FATAL:  no", "y".repeat(NAME_CHARS_MAX));
        assert_eq!(count("%m [%p] %q%u@%d ", &long), Some(0));
        // Adjacent parts of any length cost a bounded time.
        assert_eq!(count("%a%a%a%u%d%u%d ", &" ".repeat(100_000)), None);
    }

    #[test]
    fn days_are_counted_from_the_epoch() {
        assert_eq!(
            [(1970, 1, 1), (2000, 2, 29), (2000, 3, 1), (1969, 12, 31)].map(|(y, m, d)| days(y, m, d)),
            [0, 11_016, 11_017, -1]
        );
    }
}
