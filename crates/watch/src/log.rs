//! Follows the server's log where it is readable: on the server's own host, with the rights of its user or group.
//!
//! Only new lines count. A truncated file is read from its beginning, a replaced one to its end and then
//! the new one. A tick reads at most [`READ_BYTES_MAX`], the next ones the rest; if the log grows faster than that, parts are skipped and
//! reported with what was read since the last such report, so that errors can be counted for the whole. Messages must be in English: with
//! another `lc_messages` severities, SQLSTATEs and statements are read (`words.rs`), the texts of messages are not. That is reported as
//! missing, and so are lines without the prefix of `log_line_prefix`.

mod author;
mod events;
mod parse;
mod prefix;
mod words;
mod writer;

use crate::collect::{Batch, Place, Recorded, Tick, With};
use crate::guarded;
use record::event;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of the log that one tick reads.
const READ_BYTES_MAX: usize = 1024 * 1024;
/// A reader that is further behind than this goes on near the end: what it reads is of the present then, and a sample.
const BEHIND_BYTES_MAX: u64 = 8 * READ_BYTES_MAX as u64;
/// The list of the present log files that the server keeps in its data directory.
const CURRENT_LOGFILES: &str = "current_logfiles";
/// Its first line is the postmaster's process id.
const PID_FILE: &str = "postmaster.pid";

/// Bytes of either that are read.
const LIST_BYTES_MAX: u64 = 64 * 1024;

/// Lines to read before a prefix counts as wrong: other programs write into the same file, too.
const ODD_LINES_MIN: u64 = 10;
/// What is reported as missing: the text, and all of it.
const WORDS: &str = "words of the server log";
const LINES: &str = "lines of the server log";
const DOUBTFUL: &str = "ambiguous lines of the server log";
const ORIGINS: &str = "origins of lines of the server log";

/// What the lines look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `log_line_prefix`, severity, message.
    Stderr,
    /// `csvlog`.
    Csv,
    /// `jsonlog`.
    Json,
}

impl Format {
    /// Its name in `log_destination`.
    pub fn name(self) -> &'static str {
        match self {
            Format::Stderr => "stderr",
            Format::Csv => "csvlog",
            Format::Json => "jsonlog",
        }
    }
}

/// Where a log is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The file as it was found.
    pub path: PathBuf,
    /// What its lines look like.
    pub format: Format,
    /// The data directory of a server that collects its log: its list names the next file.
    pub collected_in: Option<PathBuf>,
}

/// The settings of a server's log, before the file is found.
pub(crate) struct Wanted<'a> {
    pub(crate) is_local: bool,
    pub(crate) data_directory: Option<&'a Path>,
    pub(crate) destination: &'a str,
    pub(crate) collects: bool,
    /// `pg_current_logfile`, if we may ask it.
    pub(crate) file_of: &'a dyn Fn(&str) -> Option<String>,
}

/// Finds the log, in the format with the most fields.
///
/// # Errors
/// Why there is none to read.
pub(crate) fn find(wanted: &Wanted<'_>) -> Result<Source, String> {
    if !wanted.is_local {
        return Err("the server runs on another host".to_string());
    }
    let data = wanted.data_directory.ok_or("our role cannot see the data directory; grant pg_monitor")?;
    let formats = [Format::Json, Format::Csv, Format::Stderr].into_iter().filter(|format| {
        wanted.destination.split(',').any(|word| word.trim().eq_ignore_ascii_case(format.name()))
    });
    let mut why = format!("log_destination = {}: not a file that can be read", wanted.destination);
    for format in formats {
        let (path, collected_in) = if wanted.collects {
            let listed = listed(data, format);
            let Some(path) = listed.or_else(|| (wanted.file_of)(format.name()).map(|name| data.join(name)))
            else {
                why = format!(
                    "{}: no {} file is named there",
                    data.join(CURRENT_LOGFILES).display(),
                    format.name()
                );
                continue;
            };
            (path, Some(data.to_path_buf()))
        } else {
            match error_output(data) {
                Ok(path) => (path, None),
                Err(error) => {
                    why = error;
                    continue;
                }
            }
        };
        match guarded::open(&path) {
            Ok(_) => return Ok(Source { path, format, collected_in }),
            Err(error) => why = format!("{}: {error}", path.display()),
        }
    }
    Err(why)
}

/// The present file of a format, as the server lists it.
fn listed(data: &Path, format: Format) -> Option<PathBuf> {
    let list = guarded::text(&data.join(CURRENT_LOGFILES), LIST_BYTES_MAX).ok()?;
    let name = list.lines().find_map(|line| line.strip_prefix(format.name())?.strip_prefix(' '))?;
    Some(data.join(name))
}

/// The file of the server's stderr without a logging collector: opened by pg_ctl or a service manager.
fn error_output(data: &Path) -> Result<PathBuf, String> {
    let pid = main_process(data)?;
    let link = format!("/proc/{pid}/fd/2");
    let path = std::fs::read_link(&link).map_err(|error| format!("{link}: {error}"))?;
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("the server's error output goes to {}, which is not a file", path.display())),
    }
}

/// The server's main process, as the server itself counts processes: in a container another number than on its host.
pub(crate) fn main_process(data: &Path) -> Result<u32, String> {
    let file = data.join(PID_FILE);
    let text =
        guarded::text(&file, LIST_BYTES_MAX).map_err(|error| format!("{}: {error}", file.display()))?;
    text.lines()
        .next()
        .and_then(|line| line.trim().parse().ok())
        .ok_or_else(|| format!("{}: no process id", file.display()))
}

/// The events of a log in a file, without a server. It is read `piece` bytes at a time, as if
/// it grew.
pub fn events_of(
    log: &[u8],
    piece: usize,
    format: Format,
    line_prefix: &str,
    tick: &Tick,
) -> Vec<event::Event> {
    let mut splitter = parse::Splitter::new(format, line_prefix);
    let mut reader = events::Reader::new(Place::Node(String::new()));
    reader.set_clock(tick, 0);
    let mut batch = Batch::default();
    for part in log.chunks(piece.max(1)) {
        splitter.push(part).iter().for_each(|entry| reader.entry(entry, &mut batch));
    }
    splitter.finish().iter().for_each(|entry| reader.entry(entry, &mut batch));
    reader.end_of_tick(&mut batch);
    batch.events
}

/// A part of the log that is not read: errors in what was read stand for those in it.
fn skipped_part(place: &Place, t_us: u64, skipped: u64, read: u64) -> event::Event {
    let name = place.name();
    let message =
        format!("{name}: {skipped} bytes of the server's log skipped, it grows faster than it can be read");
    place.event(t_us, event::GAP, message).with("bytes", skipped).with(event::LOG_READ_BYTES, read)
}

/// Reads a log as it grows.
#[derive(Debug)]
pub struct Follower {
    place: Place,
    source: Source,
    file: Option<Open>,
    splitter: parse::Splitter,
    reader: events::Reader,
    is_readable: bool,
    is_first: bool,
    style: Style,
    /// Bytes read since the last report of bytes that were skipped.
    read_bytes: u64,
}

/// The server's settings of its log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Style {
    /// `log_line_prefix`.
    pub(crate) line_prefix: String,
    /// `lc_messages`.
    pub(crate) language: String,
    /// `log_error_verbosity` is `terse`: a plain log has no CONTEXT then, and a message of a function looks like one of the server.
    pub(crate) is_terse: bool,
}

/// Whether a line of the log has its CONTEXT. Collected logs have it with every `log_error_verbosity`.
fn shows_context(source: &Source, style: &Style) -> bool {
    source.format != Format::Stderr || !style.is_terse
}

#[derive(Debug)]
struct Open {
    file: File,
    inode: u64,
    at: u64,
    /// Its length at the last look.
    length: u64,
}

impl Follower {
    pub(crate) fn new(place: Place, source: Source, style: Style) -> Follower {
        let mut reader = events::Reader::new(place.clone());
        reader.show_context(shows_context(&source, &style));
        Follower {
            splitter: parse::Splitter::new(source.format, &style.line_prefix),
            reader,
            place,
            source,
            file: None,
            is_readable: true,
            is_first: true,
            style,
            read_bytes: 0,
        }
    }

    /// The log settings have changed. Older lines that are still unread are read with the new settings.
    pub(crate) fn restyle(&mut self, style: Style) {
        if self.style != style {
            self.splitter.restyle(&style.line_prefix);
            self.reader.show_context(shows_context(&self.source, &style));
            self.style = style;
        }
    }

    /// Whether checkpoints and the like can be recognised: the log is readable, its lines have the prefix, and its messages are in English.
    pub(crate) fn is_telling(&self) -> bool {
        self.is_readable && !self.is_odd() && self.foreign().is_none()
    }

    /// No line makes sense.
    fn is_odd(&self) -> bool {
        let sense = self.splitter.sense();
        sense.understood == 0 && sense.not_understood >= ODD_LINES_MIN
    }

    /// Why the messages are not in English.
    fn foreign(&self) -> Option<String> {
        const TYPE: &str = "ALTER SYSTEM SET lc_messages = 'C'; SELECT pg_reload_conf();";
        let language = &self.style.language;
        if !words::is_english(language) {
            return Some(format!("lc_messages is {language}; type: {TYPE}"));
        }
        let word = self.splitter.sense().foreign.as_ref()?;
        Some(format!(
            "messages are in another language ({word}), because a role or database has its own lc_messages or because of the server's environment; type: {TYPE}"
        ))
    }

    /// Reports unreadable parts of the log, and revokes that when they are readable again.
    fn report_sense(&self, t_us: u64, reported: &mut Recorded, batch: &mut Batch) {
        match self.foreign() {
            Some(why) => {
                let lost = "reasons and phases of checkpoints (their number comes from counters), work of autovacuum, lock waits, temporary files; \
                            errors are recognised by severity and SQLSTATE";
                reported.missing(batch, t_us, self.place.missing(WORDS, why, lost));
            }
            None => reported.found(batch, t_us, &self.place, WORDS),
        }
        if shows_context(&self.source, &self.style) {
            reported.found(batch, t_us, &self.place, ORIGINS);
        } else {
            let why = "log_error_verbosity is terse: a line does not show whether the server or a function of any role wrote it; type: \
                ALTER SYSTEM SET log_error_verbosity = 'default'; SELECT pg_reload_conf();";
            let lost = "lock waits, temporary files and deadlocks in the log";
            reported.missing(batch, t_us, self.place.missing(ORIGINS, why, lost));
        }
        let sense = self.splitter.sense();
        if self.is_odd() {
            let why = match self.source.format {
                Format::Stderr => format!(
                    "{}: no line begins as log_line_prefix = '{}' requires; type: ALTER SYSTEM SET log_line_prefix = '%m [%p] '; SELECT pg_reload_conf();",
                    self.source.path.display(),
                    self.style.line_prefix
                ),
                format => format!("{}: no line is one of {}", self.source.path.display(), format.name()),
            };
            reported.missing(batch, t_us, self.place.missing(LINES, why, "the messages of the server"));
        } else if sense.understood > 0 {
            reported.found(batch, t_us, &self.place, LINES);
        }
        if sense.doubtful > 0 {
            let why = format!(
                "{}: with log_line_prefix = '{}' some lines can be read in more than one way, because a client chose a part of them (a user name, a \
                 database name, an application name), perhaps to forge other lines; type: ALTER SYSTEM SET log_line_prefix = '%m [%p] '; SELECT \
                 pg_reload_conf();",
                self.source.path.display(),
                self.style.line_prefix
            );
            let lost = "these lines, which are left out";
            reported.missing(batch, t_us, self.place.missing(DOUBTFUL, why, lost));
        }
    }

    /// Where it reads.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// What these server processes are refused is no error of the application.
    pub(crate) fn know(&mut self, own: &BTreeSet<u32>) {
        self.reader.know(own);
    }

    /// The server's main process: some lines are believed of no other one.
    pub(crate) fn know_main(&mut self, main: Option<u32>) {
        main.into_iter().for_each(|main| self.reader.know_main(main));
    }

    /// Reads new lines. `offset_us` is the server's clock minus ours.
    pub(crate) fn read(&mut self, tick: &Tick, offset_us: i64, reported: &mut Recorded, batch: &mut Batch) {
        self.reader.set_clock(tick, offset_us);
        let read = self.advance(batch, tick);
        let t_us = tick.clock.now_us();
        self.is_readable = read.is_ok();
        match read {
            Ok(()) => self.report_sense(t_us, reported, batch),
            Err(error) => {
                let why = format!("{}: {error}", self.source.path.display());
                reported.missing(
                    batch,
                    t_us,
                    self.place.missing("server log", why, "the messages of the server"),
                );
            }
        }
        self.reader.end_of_tick(batch);
    }

    /// The last entry of a plain log is complete only when the next begins; at the end it counts as it is.
    pub(crate) fn finish(&mut self, tick: &Tick, batch: &mut Batch) {
        for entry in self.splitter.finish() {
            self.reader.entry(&entry, batch);
        }
        if let Some(open) = self.file.as_ref().filter(|open| open.length > open.at) {
            let unread = open.length - open.at;
            let read_bytes = std::mem::take(&mut self.read_bytes);
            batch.event(skipped_part(&self.place, tick.clock.now_us(), unread, read_bytes));
        }
        self.reader.end_of_tick(batch);
    }

    fn advance(&mut self, batch: &mut Batch, tick: &Tick) -> std::io::Result<()> {
        if self.file.is_none() {
            self.open()?;
        }
        let mut budget = READ_BYTES_MAX;
        loop {
            let read = self.read_some(budget, batch, tick)?;
            budget -= read;
            if budget == 0 || !self.follow_rotation()? {
                return Ok(());
            }
        }
    }

    /// Opens the file: the first one at its end, a following one at its beginning.
    fn open(&mut self) -> std::io::Result<()> {
        let file = guarded::open(&self.source.path)?;
        let meta = file.metadata()?;
        let at = if std::mem::take(&mut self.is_first) { meta.len() } else { 0 };
        self.file = Some(Open { inode: meta.ino(), at, length: at, file });
        Ok(())
    }

    fn read_some(&mut self, budget: usize, batch: &mut Batch, tick: &Tick) -> std::io::Result<usize> {
        let Some(open) = &mut self.file else { return Ok(0) };
        let length = open.file.metadata()?.len();
        if length < open.at {
            // Truncated in place: all its lines are new.
            (open.at, open.length) = (0, 0);
            self.splitter.begin_anew();
        }
        self.reader.grown(length.saturating_sub(open.length));
        open.length = length;
        if length - open.at > BEHIND_BYTES_MAX {
            // The present ones are read, and not those that wait to be.
            let skipped = length - open.at - budget as u64;
            open.at += skipped;
            let read_bytes = std::mem::take(&mut self.read_bytes);
            batch.event(skipped_part(&self.place, tick.clock.now_us(), skipped, read_bytes));
            self.splitter.cut();
        }
        let wanted = usize::try_from(length - open.at).unwrap_or(budget).min(budget);
        if wanted == 0 {
            return Ok(0);
        }
        let mut bytes = vec![0; wanted];
        open.file.seek(SeekFrom::Start(open.at))?;
        let mut filled = 0;
        while filled < wanted {
            match open.file.read(&mut bytes[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        open.at += filled as u64;
        self.read_bytes += filled as u64;
        for entry in self.splitter.push(&bytes[..filled]) {
            self.reader.entry(&entry, batch);
        }
        Ok(filled)
    }

    /// Switches to the next file if there is one; the old one was read to its end. True if it switched.
    fn follow_rotation(&mut self) -> std::io::Result<bool> {
        let now = match &self.source.collected_in {
            // The server names its file before it writes the first line into it.
            Some(data) => listed(data, self.source.format).unwrap_or_else(|| self.source.path.clone()),
            None => self.source.path.clone(),
        };
        let Some(open) = &self.file else { return Ok(false) };
        let inode = match std::fs::metadata(&now) {
            Ok(meta) => meta.ino(),
            // Renamed by a rotation before the new file exists: the server still writes into the old one.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if inode == open.inode {
            return Ok(false);
        }
        // Lines may have been written between our last read and the switch of files.
        let length = open.file.metadata()?.len();
        if length > open.at {
            return Ok(true);
        }
        self.source.path = now;
        self.file = None;
        self.open()?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
