//! The texts of the queries that this process has sent: a server's statistics of statements show them among those of others, and a text that another role
//! writes into a statement, as a comment or a name, is no sign of whose it is.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// Different texts that are kept, and bytes of them: a verb sends some hundreds.
const TEXTS_MAX: usize = 5_000;
const BYTES_MAX: usize = 8 << 20;

#[derive(Default)]
struct Sent {
    known: HashSet<u64>,
    texts: Vec<String>,
    bytes: usize,
}

static SENT: Mutex<Option<Sent>> = Mutex::new(None);

/// Keeps a text that is sent.
pub(crate) fn note(text: &str) {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let mut sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
    let sent = sent.get_or_insert_default();
    let is_room = sent.texts.len() < TEXTS_MAX && sent.bytes + text.len() <= BYTES_MAX;
    if is_room && sent.known.insert(hasher.finish()) {
        sent.bytes += text.len();
        sent.texts.push(text.to_string());
    }
}

/// The different texts that were sent, without the first so many.
pub fn sent_since(count: usize) -> Vec<String> {
    let sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
    let texts = sent.as_ref().map_or(&[][..], |sent| sent.texts.get(count..).unwrap_or_default());
    texts.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_kept_once() {
        let own = || sent_since(0).into_iter().filter(|text| text.starts_with("each text")).count();
        note("each text once");
        note("each text once");
        note("each text of several");
        assert_eq!(own(), 2);
        assert_eq!(sent_since(usize::MAX), Vec::<String>::new());
        note(&"x".repeat(BYTES_MAX));
        assert!(sent_since(0).iter().all(|text| text.len() < BYTES_MAX));
    }
}
