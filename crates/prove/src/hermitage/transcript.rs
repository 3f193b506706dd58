//! The results of a script.

/// What one statement came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// It waits for a lock.
    Waits,
    /// It read these rows: `id=value` with spaces between.
    Read(String),
    /// It succeeded.
    Done,
    /// A transaction was committed.
    Committed,
    /// A COMMIT was answered with ROLLBACK, or a transaction was rolled back as requested.
    RolledBack,
    /// The server refused with this SQLSTATE; true: at COMMIT.
    Refused(String, bool),
}

/// What a script came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transcript {
    pub(super) events: Vec<(char, Event)>,
    pub(super) last: String,
}

impl Transcript {
    /// Everything that one session read.
    pub fn reads(&self, who: char) -> Vec<String> {
        let read = |(session, event): &(char, Event)| match event {
            Event::Read(rows) if *session == who => Some(rows.clone()),
            _ => None,
        };
        self.events.iter().filter_map(read).collect()
    }

    /// Whether a session's transaction was committed.
    pub fn is_committed(&self, who: char) -> bool {
        self.events.contains(&(who, Event::Committed))
    }

    /// The rows at the end.
    pub fn last(&self) -> &str {
        &self.last
    }

    /// What is remarkable, in one line.
    pub fn line(&self) -> String {
        let mut parts = Vec::new();
        for (who, event) in &self.events {
            match event {
                Event::Waits => parts.push(format!("{who} waits")),
                Event::Read(rows) if rows.is_empty() => parts.push(format!("{who} no rows")),
                Event::Read(rows) => parts.push(format!("{who} {rows}")),
                // Later statements of a failed transaction.
                Event::Refused(code, _) if code == "25P02" => {}
                Event::Refused(code, true) => parts.push(format!("{who} {code} at COMMIT")),
                Event::Refused(code, false) => parts.push(format!("{who} {code}")),
                Event::Done | Event::Committed | Event::RolledBack => {}
            }
        }
        parts.push(format!("final {}", self.last));
        parts.join("; ")
    }
}
