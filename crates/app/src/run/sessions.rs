//! The numbers of sessions that a run or a sweep drives.

use std::fmt;

/// One or several numbers of sessions, in the order they are to be run. Never empty, no number twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sessions(Vec<u64>);

impl Sessions {
    /// A single number.
    pub fn one(sessions: u64) -> Sessions {
        Sessions(vec![sessions])
    }

    /// These numbers, each once; none at all is one session.
    pub fn of(numbers: impl IntoIterator<Item = u64>) -> Sessions {
        let mut all = Vec::new();
        for number in numbers {
            if !all.contains(&number) {
                all.push(number);
            }
        }
        if all.is_empty() { Sessions::one(1) } else { Sessions(all) }
    }

    /// The numbers.
    pub fn all(&self) -> &[u64] {
        &self.0
    }

    /// The only number, or the first.
    pub fn first(&self) -> u64 {
        self.0[0]
    }

    /// The largest number.
    pub fn most(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(1)
    }
}

impl fmt::Display for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&words.join(","))
    }
}
