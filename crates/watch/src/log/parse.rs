//! Parses a log into entries, in the three formats of the server.

use super::Format;
use super::prefix::{Prefix, timestamp};
use super::words::{self, Supplement};
use serde_json::Value;

/// An entry longer than this is cut: the first lines of a long statement are enough.
const ENTRY_BYTES_MAX: usize = 256 * 1024;

/// One message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    /// Microseconds since the epoch, as if the server's time zone were UTC unless `is_absolute`.
    pub(crate) time_us: Option<i64>,
    pub(crate) is_absolute: bool,
    pub(crate) pid: Option<u32>,
    /// In English, whatever the log's language.
    pub(crate) severity: String,
    pub(crate) sqlstate: String,
    pub(crate) message: String,
    pub(crate) detail: String,
    pub(crate) context: String,
    pub(crate) statement: String,
}

/// What was read so far, to judge whether it makes sense.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LogSense {
    /// Messages and what belongs to them.
    pub(crate) understood: u64,
    /// Lines that do not begin like a message.
    pub(crate) not_understood: u64,
    /// The last severity that was not English.
    pub(crate) foreign: Option<String>,
}

/// Cuts a stream into entries.
#[derive(Debug)]
pub(crate) struct Splitter {
    format: Format,
    prefix: Prefix,
    rest: Vec<u8>,
    /// For a plain log: the entry whose end is not known yet.
    open: Option<Entry>,
    /// The first line after a cut may be the rest of another.
    is_torn: bool,
    sense: LogSense,
}

impl Splitter {
    pub(crate) fn new(format: Format, line_prefix: &str) -> Splitter {
        let prefix = Prefix::new(line_prefix);
        Splitter { format, prefix, rest: Vec::new(), open: None, is_torn: false, sense: LogSense::default() }
    }

    /// From here on lines have another prefix, or messages another language: what was learned before no longer applies.
    pub(crate) fn restyle(&mut self, line_prefix: &str) {
        self.prefix = Prefix::new(line_prefix);
        self.sense = LogSense::default();
    }

    /// What was read since the start, or since the style changed.
    pub(crate) fn sense(&self) -> &LogSense {
        &self.sense
    }

    /// The next bytes do not continue the previous ones.
    pub(crate) fn cut(&mut self) {
        self.rest.clear();
        self.open = None;
        self.is_torn = true;
    }

    /// Takes more bytes; returns the complete entries.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Entry> {
        self.rest.extend_from_slice(bytes);
        let mut entries = Vec::new();
        let mut from = 0;
        while let Some(length) = self.line_end(&self.rest[from..]) {
            let line = String::from_utf8_lossy(&self.rest[from..from + length]).into_owned();
            from += length + 1;
            self.line(line.trim_end_matches('\r'), &mut entries);
        }
        self.rest.drain(..from);
        if self.rest.len() > ENTRY_BYTES_MAX {
            self.cut();
        }
        // The next entry ends an entry of a plain log. The last one is returned when all is read, and a
        // DETAIL that comes in a later tick is lost, so that the message is not delayed.
        if self.rest.is_empty() {
            entries.extend(self.open.take());
        }
        entries
    }

    /// The last entry as it stands.
    pub(crate) fn finish(&mut self) -> Vec<Entry> {
        self.open.take().into_iter().collect()
    }

    /// The end of the first line: a newline, in CSV one outside of quotes.
    fn line_end(&self, bytes: &[u8]) -> Option<usize> {
        let mut is_quoted = false;
        bytes.iter().position(|byte| {
            is_quoted ^= self.format == Format::Csv && *byte == b'"';
            *byte == b'\n' && !is_quoted
        })
    }

    fn line(&mut self, line: &str, entries: &mut Vec<Entry>) {
        let is_torn = std::mem::take(&mut self.is_torn);
        let entry = match self.format {
            Format::Csv => csv(line),
            Format::Json => json(line),
            Format::Stderr => return self.plain(line, is_torn, entries),
        };
        match entry {
            Some(mut entry) => {
                self.sense.understood += 1;
                entry.severity = self.severity_of(&entry.severity).unwrap_or(entry.severity);
                entries.push(entry);
            }
            None if line.is_empty() || is_torn => {}
            None => self.sense.not_understood += 1,
        }
    }

    /// A severity in English; remembers others.
    fn severity_of(&mut self, word: &str) -> Option<String> {
        let severity = words::severity(word)?;
        if severity.is_foreign {
            self.sense.foreign = Some(word.to_string());
        }
        Some(severity.name)
    }

    fn plain(&mut self, line: &str, is_torn: bool, entries: &mut Vec<Entry>) {
        let parsed = self.prefix.strip(line).and_then(|(wording, rest)| {
            let (word, message) = rest.split_once(':')?;
            let message = message.trim_start();
            Some((wording, word.trim(), message))
        });
        let severity = parsed.as_ref().and_then(|(_, word, _)| self.severity_of(word));
        let supplement = parsed.as_ref().and_then(|(_, word, _)| words::supplement(word));
        match (parsed, severity, supplement) {
            (Some((wording, _, message)), Some(severity), _) => {
                self.sense.understood += 1;
                entries.extend(self.open.take());
                self.open = Some(Entry {
                    time_us: wording.time_us,
                    is_absolute: wording.is_absolute,
                    pid: wording.pid,
                    severity,
                    sqlstate: wording.sqlstate.unwrap_or_default(),
                    message: message.to_string(),
                    ..Entry::default()
                });
            }
            (Some((wording, word, message)), None, Some(supplement)) => {
                self.sense.understood += 1;
                // From another process: messages are interleaved, and it is unknown to which the detail belongs.
                if let Some(open) = self.open.as_mut().filter(|open| open.pid == wording.pid) {
                    match supplement {
                        Supplement::Detail => open.detail = message.to_string(),
                        Supplement::Statement => open.statement = message.to_string(),
                        // Only messages that are English are looked into.
                        Supplement::Other if word == "CONTEXT" => open.context = message.to_string(),
                        Supplement::Other => {}
                    }
                }
            }
            _ if is_torn => {}
            // A continuation line begins with a tab.
            _ => {
                if !line.is_empty() && !line.starts_with('\t') {
                    self.sense.not_understood += 1;
                }
                if let (Some(open), Some(more)) = (&mut self.open, line.strip_prefix('\t')) {
                    let text = if !open.statement.is_empty() {
                        &mut open.statement
                    } else if !open.context.is_empty() {
                        &mut open.context
                    } else if !open.detail.is_empty() {
                        &mut open.detail
                    } else {
                        &mut open.message
                    };
                    if text.len() < ENTRY_BYTES_MAX {
                        text.push('\n');
                        text.push_str(more);
                    }
                }
            }
        }
    }
}

/// A line of `csvlog`; the columns are those of the manual, section "Using CSV-Format Log Output".
fn csv(line: &str) -> Option<Entry> {
    let fields = csv_fields(line);
    let (time_us, _) = timestamp(fields.first()?)?;
    let at = |index: usize| fields.get(index).cloned().unwrap_or_default();
    let entry = Entry {
        time_us: Some(time_us),
        is_absolute: false,
        pid: at(3).parse().ok(),
        severity: at(11),
        sqlstate: at(12),
        message: at(13),
        detail: at(14),
        context: at(18),
        statement: at(19),
    };
    (!entry.severity.is_empty()).then_some(entry)
}

fn csv_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                fields.last_mut().expect("never empty").push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            letter => fields.last_mut().expect("never empty").push(letter),
        }
    }
    fields
}

/// A line of `jsonlog`.
fn json(line: &str) -> Option<Entry> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_string();
    let (time_us, _) = timestamp(value["timestamp"].as_str()?)?;
    Some(Entry {
        time_us: Some(time_us),
        is_absolute: false,
        pid: value["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()),
        severity: text("error_severity"),
        sqlstate: text("state_code"),
        message: text("message"),
        detail: text("detail"),
        context: text("context"),
        statement: text("statement"),
    })
}
