//! The client's samples of this run, second by second: read from the run directory as it grows.

use record::files;
use record::sample::Body;
use record::sample::Sample;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The most bytes read at once; the rest is read next time.
const LOOK_BYTES_MAX: u64 = 4 << 20;
/// A text that identifies the line of a client's sample; others are not parsed.
const MARK: &str = "\"source\":\"client\"";

/// Follows `samples.ndjson`.
#[derive(Debug)]
pub(super) struct ClientTail {
    path: PathBuf,
    file: Option<File>,
    /// The line that was incomplete at the last read.
    rest: Vec<u8>,
}

/// A second of the client.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct ClientSecond {
    /// Transactions per second.
    pub(super) rate: f64,
    /// 99th percentile of the response time.
    pub(super) latency_us_p99: Option<f64>,
}

impl ClientTail {
    /// Follows the samples of a run directory from now on.
    pub(super) fn new(run_dir: &Path) -> ClientTail {
        ClientTail { path: run_dir.join(files::SAMPLES), file: None, rest: vec![] }
    }

    /// The newest second since the last read; `None` if the client wrote none (there may be no client at all).
    pub(super) fn newest(&mut self) -> Option<ClientSecond> {
        if self.file.is_none() {
            let mut file = File::open(&self.path).ok()?;
            file.seek(SeekFrom::End(0)).ok()?;
            self.file = Some(file);
        }
        let file = self.file.as_mut()?;
        file.by_ref().take(LOOK_BYTES_MAX).read_to_end(&mut self.rest).ok()?;
        let end = self.rest.iter().rposition(|byte| *byte == b'\n')? + 1;
        let text = String::from_utf8_lossy(&self.rest[..end]).into_owned();
        self.rest.drain(..end);
        text.lines().filter(|line| line.contains(MARK)).filter_map(second).next_back()
    }
}

fn second(line: &str) -> Option<ClientSecond> {
    const US_PER_S: f64 = 1e6;
    let sample = Sample::parse(line)?;
    let Body::Client(client) = sample.body else { return None };
    if client.phase == "drain" || sample.interval_us == 0 {
        return None;
    }
    Some(ClientSecond {
        rate: client.transactions as f64 * US_PER_S / sample.interval_us as f64,
        latency_us_p99: client.response_us_p99.map(|p99| p99 as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn seconds_are_read_as_they_are_written() {
        let dir = std::env::temp_dir().join(format!("pgfathom-tail-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        let mut tail = ClientTail::new(&dir);
        assert_eq!(tail.newest(), None, "nothing there yet");
        let mut file = File::create(dir.join(files::SAMPLES)).expect("made");
        assert_eq!(tail.newest(), None);
        let line = |n: u64| {
            format!(
                r#"{{"t_us":5,"interval_us":500000,"source":"client","phase":"measure","transactions":{n},"response_us_p99":900}}"#
            )
        };
        write!(file, "{}\n{}\n{{\"t_us\":6,\"source\":\"host\"}}\n{}", line(1), line(50), &line(7)[..20])
            .expect("written");
        let expected = ClientSecond { rate: 100.0, latency_us_p99: Some(900.0) };
        assert_eq!(tail.newest(), Some(expected));
        assert_eq!(tail.newest(), None, "a torn line waits");
        writeln!(file, "{}", &line(7)[20..]).expect("written");
        assert_eq!(tail.newest().map(|second| second.rate), Some(14.0));
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
