//! Parses a log into entries, in the three formats of the server.

use super::Format;
use super::prefix::{Free, Prefix, PrefixFields, Reading, timestamp};
use super::words::{self, Supplement};
use super::writer::Writer;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::VecDeque;

/// An entry longer than this is cut: the first lines of a long statement are enough.
const ENTRY_BYTES_MAX: usize = 256 * 1024;
/// Bytes in which the time of a CSV entry and the first letter of its user are.
const CSV_BEGIN_BYTES: usize = 100;

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
    /// The function of the server's sources that wrote it, as far as `log_error_verbosity` is `verbose`.
    pub(crate) location: String,
    /// By the fields of the line alone.
    pub(crate) writer: Writer,
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
    /// Places with more than one reading, because a client chose a part of the prefix.
    pub(crate) doubtful: u64,
}

/// What a session writes to the log before its role and its database are known to exist, without a name: `pqcomm.c`.
const OF_NEW_SESSIONS: [&str; 2] = ["could not receive data from client", "could not send data to client"];
/// Characters of a message in which a name is looked for.
const MESSAGE_CHARS: usize = 400;

/// Cuts a stream into entries.
#[derive(Debug)]
pub(crate) struct Splitter {
    format: Format,
    prefix: Prefix,
    rest: Vec<u8>,
    /// For a plain log: lines that are not read yet, because the next ones decide what they are.
    lines: VecDeque<String>,
    /// The entry whose end is not known yet.
    open: Option<Entry>,
    /// The name with a line feed that stood before it.
    open_name: Option<String>,
    /// The first line after a cut may be the rest of another.
    is_torn: bool,
    sense: LogSense,
}

impl Splitter {
    pub(crate) fn new(format: Format, line_prefix: &str) -> Splitter {
        let prefix = Prefix::new(line_prefix);
        Splitter {
            format,
            prefix,
            rest: Vec::new(),
            lines: VecDeque::new(),
            open: None,
            open_name: None,
            is_torn: false,
            sense: LogSense::default(),
        }
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

    /// The next bytes do not continue the previous ones, and may begin anywhere.
    pub(crate) fn cut(&mut self) {
        self.begin_anew();
        self.is_torn = true;
    }

    /// The next bytes are the beginning of a file.
    pub(crate) fn begin_anew(&mut self) {
        self.rest.clear();
        self.lines.clear();
        self.open = None;
    }

    /// Takes more bytes; returns the complete entries.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Entry> {
        self.rest.extend_from_slice(bytes);
        if self.is_torn && !self.resume() {
            return vec![];
        }
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
        let is_all = self.rest.is_empty();
        self.plain(is_all, &mut entries);
        if is_all {
            entries.extend(self.open.take());
        }
        entries
    }

    /// The last entry as it stands.
    pub(crate) fn finish(&mut self) -> Vec<Entry> {
        let mut entries = vec![];
        self.plain(true, &mut entries);
        entries.extend(self.open.take());
        entries
    }

    /// Leaves out the rest of what was cut, up to a line that is certainly the first of an entry: a statement inside of a CSV entry has its own line feeds,
    /// and may look like entries. Its quotes are doubled, so the single one before the name of a user cannot be inside of it. False if there is none yet.
    fn resume(&mut self) -> bool {
        let is_begin = |line: &[u8]| match self.format {
            Format::Csv => {
                let line = String::from_utf8_lossy(&line[..line.len().min(CSV_BEGIN_BYTES)]);
                let user = timestamp(&line).and_then(|(_, rest)| rest.strip_prefix(",\""));
                user.is_some_and(|user| !user.is_empty() && !user.starts_with('"'))
            }
            Format::Stderr => !line.starts_with(b"\t"),
            Format::Json => true,
        };
        let feeds = self.rest.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let complete = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let begin = feeds.filter(|at| *at < complete).find(|at| is_begin(&self.rest[*at..]));
        match begin {
            Some(at) => {
                self.rest.drain(..at);
                self.is_torn = false;
                true
            }
            None => {
                // The last line feed stays: the line behind it may be the one.
                self.rest
                    .drain(..complete.saturating_sub(1).max(self.rest.len().saturating_sub(ENTRY_BYTES_MAX)));
                false
            }
        }
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
        let entry = match self.format {
            Format::Csv => csv(line),
            Format::Json => json(line),
            Format::Stderr => return self.lines.push_back(line.to_string()),
        };
        match entry {
            Some(mut entry) => {
                self.sense.understood += 1;
                entry.severity = self.severity_of(&entry.severity).unwrap_or(entry.severity);
                entries.push(entry);
            }
            None if line.is_empty() => {}
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

    /// Reads the lines of a plain log. If names in the prefix can have line feeds, a line waits for so many of the next ones as may belong to it.
    fn plain(&mut self, is_all: bool, entries: &mut Vec<Entry>) {
        let reach = self.prefix.reach();
        while let Some(line) = self.lines.front() {
            if line.starts_with('\t') && !self.prefix.begins_with_tab() {
                let line = self.lines.pop_front().unwrap_or_default();
                self.continued(&line);
                continue;
            }
            let ahead = if reach == 0 { 0 } else { reach + MESSAGE_CHARS };
            let Some(text) = self.ahead(ahead).or_else(|| is_all.then(|| self.joined(self.lines.len())))
            else {
                return;
            };
            let Some(mut readings) = self.prefix.readings(&text) else {
                // Whatever it is, the lines in which it may end are of no use.
                let taken = text.matches('\n').count() + 1;
                self.lines.drain(..taken);
                self.sense.doubtful += 1;
                entries.extend(self.open.take());
                continue;
            };
            readings.retain(|reading| self.can_be(reading, &text));
            readings.dedup_by(|next, before| {
                let is_same = (next.at, next.fields.plain()) == (before.at, before.fields.plain());
                if is_same {
                    before.fields.writer = before.fields.writer.max(next.fields.writer);
                }
                is_same
            });
            let lines = |reading: &Reading| text[..reading.at].matches('\n').count() + 1;
            let taken = readings.iter().map(lines).max().unwrap_or(1);
            let text = text.into_owned();
            self.lines.drain(..taken);
            match &readings[..] {
                [] if text.split('\n').next().is_some_and(str::is_empty) => {}
                [] => self.sense.not_understood += 1,
                [reading] => {
                    let rest = text[reading.at..].split('\n').next().unwrap_or_default();
                    self.message(reading, &text, rest, entries);
                }
                several => {
                    self.sense.doubtful += 1;
                    entries.extend(self.open.take());
                    self.open_name = several.iter().find_map(|one| name_of(one, &text).map(str::to_string));
                }
            }
        }
    }

    /// The first lines, if they have so many characters; always the first one alone if none are wanted.
    fn ahead(&self, chars: usize) -> Option<Cow<'_, str>> {
        let mut count = 0;
        for (index, line) in self.lines.iter().enumerate() {
            count += line.chars().take(chars.saturating_sub(count)).count() + 1;
            if count >= chars {
                return Some(self.joined(index + 1));
            }
        }
        None
    }

    fn joined(&self, lines: usize) -> Cow<'_, str> {
        match lines {
            1 => Cow::Borrowed(&self.lines[0]),
            _ => Cow::Owned(self.lines.iter().take(lines).map(String::as_str).collect::<Vec<_>>().join("\n")),
        }
    }

    /// Whether several lines can be one prefix. A role or a database whose name has a line feed does not exist, so such a session is refused: with FATAL, whose
    /// message often has the name again, or because its client is gone.
    fn can_be(&self, reading: &Reading, text: &str) -> bool {
        let (Some((kind, _)), Some(name)) = (&reading.broken, name_of(reading, text)) else { return true };
        let Some((word, message)) = text[reading.at..].split_once(':') else { return false };
        if words::supplement(word).is_some() {
            return self.open_name.as_deref() == Some(name);
        }
        let message: String = message.trim_start().chars().take(MESSAGE_CHARS).collect();
        if message.replace("\n\t", "\n").contains(&format!("\"{name}\"")) {
            return true;
        }
        let kinds: &[&str] = match kind {
            Free::Database => &["database \""],
            _ => &["user \"", "role \""],
        };
        let first = message.split('\n').next().unwrap_or_default();
        match words::severity(word).map(|severity| severity.name).as_deref() {
            Some("FATAL") => !kinds.iter().any(|kind| first.contains(kind)),
            Some("LOG") => OF_NEW_SESSIONS.iter().any(|words| first.starts_with(words)),
            _ => false,
        }
    }

    /// A line behind its prefix: a message, or what belongs to one.
    fn message(&mut self, reading: &Reading, text: &str, rest: &str, entries: &mut Vec<Entry>) {
        let Some((word, message)) = rest.split_once(':') else { return };
        let message = message.trim_start();
        self.sense.understood += 1;
        let PrefixFields { time_us, is_absolute, pid, sqlstate, writer } = reading.fields.clone();
        if let Some(severity) = self.severity_of(word) {
            entries.extend(self.open.take());
            self.open_name = name_of(reading, text).map(str::to_string);
            self.open = Some(Entry {
                time_us,
                is_absolute,
                pid,
                severity,
                sqlstate: sqlstate.unwrap_or_default(),
                message: message.to_string(),
                writer,
                ..Entry::default()
            });
            return;
        }
        // From another process: messages are interleaved, and it is unknown to which the detail belongs.
        let Some(open) = self.open.as_mut().filter(|open| open.pid == pid) else { return };
        match words::supplement(word) {
            Some(Supplement::Detail) => open.detail = message.to_string(),
            Some(Supplement::Statement) => open.statement = message.to_string(),
            Some(Supplement::Context) => open.context = message.to_string(),
            Some(Supplement::Location) => open.location = message.to_string(),
            Some(Supplement::Other) | None => {}
        }
    }

    /// A further line of a message, behind its tab.
    fn continued(&mut self, line: &str) {
        let (Some(open), Some(more)) = (&mut self.open, line.strip_prefix('\t')) else { return };
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

/// The name with a line feed of a reading.
fn name_of<'a>(reading: &Reading, text: &'a str) -> Option<&'a str> {
    text.get(reading.broken.as_ref()?.1.clone())
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
        location: at(21),
        writer: collected_writer(&at(23), [&at(1), &at(2), &at(4)]),
    };
    (!entry.severity.is_empty()).then_some(entry)
}

/// The writer of an entry of a collected log: by its kind (PostgreSQL 13), else by the names that only sessions have.
fn collected_writer(backend: &str, names: [&str; 3]) -> Writer {
    match names.iter().all(|name| name.is_empty()) {
        false => Writer::Session,
        true if backend.is_empty() => Writer::Server,
        true => Writer::of_backend(backend),
    }
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
        location: text("func_name"),
        writer: collected_writer(
            &text("backend_type"),
            [&text("user"), &text("dbname"), &text("remote_host")],
        ),
    })
}
