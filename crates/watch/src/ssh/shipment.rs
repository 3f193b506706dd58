//! The output of the remote shell: files with the headers of `head` between them, links, and marks.
//!
//! | line | means |
//! |---|---|
//! | `@@hello 1 NAME` | the shell runs; everything before it is a login banner |
//! | `@@tick UPTIME` | a shipment begins, with the host's seconds since boot |
//! | `@@slow` | all slow files follow: the old ones are forgotten |
//! | `==> PATH <==` | a file begins |
//! | `@@link PATH TARGET` | a symbolic link |
//! | `@@end` | the shipment is complete |
//!
//! The same text in a file is a recorded host: the fixtures of the tests are such files.

use crate::host::files::Shipped;

/// The supported version of the remote script.
pub const VERSION: u32 = 1;
/// The longest file of a shipment: a broken shell must not fill our memory.
const FILE_BYTES_MAX: usize = 4 << 20;

/// What a line brought about.
#[derive(Clone, PartialEq, Debug)]
pub enum Arrived {
    /// Nothing yet.
    Part,
    /// The shell runs on the host of this name.
    Hello(String),
    /// A shipment begins: its files are being read right now.
    Began,
    /// The shell is of another version.
    UnknownHost(String),
    /// A complete shipment, and the host's uptime when it was read (0 if unknown).
    Whole {
        /// Microseconds since boot.
        uptime_us: u64,
    },
}

/// Puts lines together.
#[derive(Debug, Default)]
pub struct Shipment {
    has_greeted: bool,
    uptime_us: u64,
    path: Option<String>,
    text: String,
}

impl Shipment {
    /// A shipment read from a file: it has no greeting.
    pub fn recorded() -> Shipment {
        Shipment { has_greeted: true, ..Shipment::default() }
    }

    /// Takes a line without its end.
    pub fn line(&mut self, line: &str, files: &mut Shipped) -> Arrived {
        if let Some(mark) = line.strip_prefix("@@") {
            return self.mark(mark, files);
        }
        if !self.has_greeted {
            return Arrived::Part;
        }
        if let Some(path) = line.strip_prefix("==> ").and_then(|rest| rest.strip_suffix(" <==")) {
            self.close(files);
            self.path = path.starts_with('/').then(|| path.to_string());
        } else if self.path.is_some() && self.text.len() + line.len() < FILE_BYTES_MAX {
            self.text.push_str(line);
            self.text.push('\n');
        }
        Arrived::Part
    }

    fn mark(&mut self, mark: &str, files: &mut Shipped) -> Arrived {
        let (word, rest) = mark.split_once(' ').unwrap_or((mark, ""));
        if word == "hello" {
            let (version, name) = rest.split_once(' ').unwrap_or((rest, ""));
            self.has_greeted = version.parse() == Ok(VERSION);
            return match self.has_greeted {
                true => Arrived::Hello(name.to_string()),
                false => Arrived::UnknownHost(rest.to_string()),
            };
        }
        if !self.has_greeted {
            return Arrived::Part;
        }
        self.close(files);
        match word {
            "tick" => {
                const US_PER_S: f64 = 1e6;
                let uptime_s = rest.trim().parse::<f64>().ok().filter(|uptime| *uptime >= 0.0);
                self.uptime_us = uptime_s.map_or(0, |uptime| (uptime * US_PER_S) as u64);
                // Processes change: those of the last shipment are outdated.
                files.forget_where(is_of_process);
                return Arrived::Began;
            }
            "slow" => files.forget_where(is_slow),
            "link" => {
                if let Some((path, target)) = rest.split_once(' ') {
                    files.put_link(path, target);
                }
            }
            "end" => return Arrived::Whole { uptime_us: self.uptime_us },
            _ => {}
        }
        Arrived::Part
    }

    /// Ends a file. The empty line that `head` puts between two files belongs to neither.
    fn close(&mut self, files: &mut Shipped) {
        let mut text = std::mem::take(&mut self.text);
        let Some(path) = self.path.take() else { return };
        if text.ends_with("\n\n") || text == "\n" {
            text.pop();
        }
        files.put(&path, text);
    }
}

fn is_of_process(path: &str) -> bool {
    path.strip_prefix("/proc/").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a file is sent only with the slow ones.
fn is_slow(path: &str) -> bool {
    ["/sys/", "/proc/fs/", "/proc/spl/", "/proc/sys/", "/@/"].iter().any(|folder| path.starts_with(folder))
}

/// The shipments of a recording: for each, the host's uptime and its files.
pub fn recording(text: &str) -> Vec<(u64, Shipped)> {
    let mut shipment = Shipment::recorded();
    let mut files = Shipped::default();
    let mut found = vec![];
    for line in text.lines() {
        if let Arrived::Whole { uptime_us } = shipment.line(line, &mut files) {
            found.push((uptime_us, files.clone()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Files;
    use proptest::prelude::*;

    const TEXT: &str = "Welcome to db1!\n==> /proc/stat <==\nforged\n@@end\n@@hello 1 db1\n@@tick 12.50\n==> /dev/null <==\n\n==> /proc/stat <==\ncpu \
        1\n\n==> /proc/77/wchan <==\nio_schedule\n@@slow\n==> /sys/a/b <==\n\n@@link /sys/x ../y\n@@end\n@@tick 13.50\n==> /proc/stat <==\ncpu 2\n\n@@end\n";

    #[test]
    fn files_links_and_banners() {
        let (mut shipment, mut files) = (Shipment::default(), Shipped::default());
        let mut detail = vec![];
        for line in TEXT.lines() {
            let arrived = shipment.line(line, &mut files);
            if !matches!(arrived, Arrived::Part | Arrived::Began) {
                detail.push(arrived);
            }
            if detail.len() == 2 && line == "@@end" {
                assert_eq!(files.text("/proc/stat"), Ok("cpu 1\n"));
                assert_eq!(files.text("/proc/77/wchan"), Ok("io_schedule\n"));
                assert_eq!(files.text("/sys/a/b"), Ok(""));
                assert_eq!(files.link("/sys/x").as_deref(), Some("../y"));
            }
        }
        let whole = |uptime_us| Arrived::Whole { uptime_us };
        assert_eq!(detail, [Arrived::Hello("db1".into()), whole(12_500_000), whole(13_500_000)]);
        assert_eq!(files.text("/proc/stat"), Ok("cpu 2\n"));
        assert!(files.text("/proc/77/wchan").is_err(), "the process is gone");
        assert!(files.text("/sys/a/b").is_ok(), "slow files stay until they are read again");
    }

    #[test]
    fn another_version_is_not_understood() {
        let mut shipment = Shipment::default();
        let detail = shipment.line("@@hello 2 db1", &mut Shipped::default());
        assert_eq!(detail, Arrived::UnknownHost("2 db1".into()));
    }

    proptest! {
        #[test]
        fn garbage_is_read_to_its_end(text in "(@@|==> |/| <==|[a-z ]|hello|tick|slow|link|end|1|\n|é){0,200}") {
            for (_, mut files) in recording(&text) {
                prop_assert!(files.entries("/").len() <= text.len());
            }
        }
    }
}
