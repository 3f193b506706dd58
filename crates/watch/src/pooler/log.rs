//! What a pooler of this host writes to its log about clients that it sends away: no command of its console counts them, and no server sees them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// What pgbouncer writes before the reason (`disconnect_client` in `src/objects.c`).
const REFUSED: &str = "pooler error: ";
/// Bytes that are read at a look: what a faster log has more is passed over.
const BYTES_MAX: u64 = 1 << 20;
/// Characters of a reason.
const REASON_CHARS: usize = 120;

/// The end of a log.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    at: u64,
    /// A line that is not ended.
    open: String,
}

/// Clients that were sent away in an interval, and the most frequent reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Refusals {
    pub(super) clients: u64,
    pub(super) reason: String,
}

impl Log {
    /// The log at this path, which is the pooler's `logfile`; `None` if it cannot be read.
    pub(super) fn open(path: &str) -> Option<Log> {
        let path = Some(path).filter(|path| path.starts_with('/'))?;
        Log::at_end(record::file::open(Path::new(path)).ok()?)
    }

    fn at_end(file: File) -> Option<Log> {
        let at = file.metadata().ok()?.len();
        Some(Log { file, at, open: String::new() })
    }

    /// What is new. A log that became shorter is read from its begin.
    pub(super) fn read(&mut self) -> Refusals {
        let length = self.file.metadata().map_or(self.at, |metadata| metadata.len());
        if length < self.at {
            (self.at, self.open) = (0, String::new());
        }
        if length - self.at > BYTES_MAX {
            (self.at, self.open) = (length - BYTES_MAX, String::new());
        }
        let mut bytes = vec![];
        let found = self
            .file
            .seek(SeekFrom::Start(self.at))
            .and_then(|_| Read::by_ref(&mut self.file).take(length - self.at).read_to_end(&mut bytes));
        let Ok(read) = found else { return Refusals::default() };
        self.at += read as u64;
        self.take(&String::from_utf8_lossy(&bytes))
    }

    fn take(&mut self, text: &str) -> Refusals {
        let text = std::mem::take(&mut self.open) + text;
        let (whole, open) = text.rsplit_once('\n').unwrap_or(("", &text));
        if (open.len() as u64) < BYTES_MAX {
            self.open = open.to_string();
        }
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        for reason in whole.lines().filter_map(reason) {
            *reasons.entry(reason).or_default() += 1;
        }
        let most = reasons.iter().max_by_key(|(_, count)| **count).map_or("", |(reason, _)| *reason);
        Refusals {
            clients: reasons.values().sum(),
            reason: most.chars().filter(|c| !c.is_control()).take(REASON_CHARS).collect(),
        }
    }
}

/// `... LOG C-0x55d0: cart/app@10.0.0.7:40112 pooler error: no more connections allowed (max_client_conn)`. The name of a role may hold anything, but the
/// place of the client stands behind it, and the reason behind that.
fn reason(line: &str) -> Option<&str> {
    line.contains(" C-0x").then(|| line.rsplit_once(REFUSED)).flatten().map(|(_, reason)| reason.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const LINE: &str = "2026-11-30 02:45:14.001 UTC [7] LOG C-0x5581: cart/app@unix(812):6432 pooler error: no more connections allowed (max_client_conn)\n";

    #[test]
    fn clients_that_were_sent_away_are_counted_with_the_most_frequent_reason() {
        let path = std::env::temp_dir().join(format!("pgfathom-pooler-log-{}", std::process::id()));
        let open = || std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let add = |text: &str| open().write_all(text.as_bytes()).unwrap();
        add(LINE);
        let mut log = Log::at_end(File::open(&path).unwrap()).unwrap();
        assert_eq!(log.read(), Refusals::default(), "what is older is not of the recording");
        let timeout = LINE.replace("no more connections allowed (max_client_conn)", "query_wait_timeout");
        add(&format!("{LINE}{timeout}{LINE}2026 LOG stats: 3 xacts/s\n{}", &LINE[..90]));
        let found = log.read();
        assert_eq!(
            (found.clients, found.reason.as_str()),
            (3, "no more connections allowed (max_client_conn)")
        );
        add(&LINE[90..]);
        assert_eq!(log.read().clients, 1, "a line in two parts");
        open().set_len(0).unwrap();
        add(LINE);
        assert_eq!(log.read().clients, 1, "a log that was begun anew");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn other_lines_are_none() {
        assert_eq!(
            reason("2026 LOG S-0x55: cart/app@10.0.0.1:5432 closing because: server lifetime over"),
            None
        );
        assert_eq!(reason("2026 WARNING pooler error: of its own"), None);
        assert_eq!(
            reason("2026 LOG C-0x55: d/pooler error: x@unix:6432 pooler error: no such user"),
            Some("no such user")
        );
    }
}
