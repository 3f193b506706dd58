//! The text of a document, byte for byte as PostgreSQL prints a `jsonb`: keys by length and then by bytes, one blank
//! behind each colon and comma. So the text that is sent is the text that comes back.
//!
//! ```json
//! {"id": 7, "rev": 0, "tags": ["Qk3dPz", "x0RmBe"], "parts": [{"n": 0, "text": "...", "amount": 417203}, ...]}
//! ```
//!
//! Text is drawn from 64 characters at random, so compression finds nothing in it. All of it follows from the seed, the
//! document's number and its version; a document keeps its size through all versions.

use data::mix::{mix, subkey, word};

use super::size::Sizes;

/// Bytes of one element of `parts`, but the last one.
const PART_BYTES: u64 = 1_024;

/// The least text that the last part has.
const LAST_TEXT_MIN: u64 = 16;

/// Purposes of random streams, see [`subkey`].
const SIZES: u64 = 0x646f_6301;
const TEXTS: u64 = 0x646f_6302;

/// Characters of texts: none that JSON escapes.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .";

/// Characters of a tag.
const TAG_CHARS: u64 = 6;

/// All documents of a dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Documents {
    sizes: Sizes,
    size_key: u64,
    text_key: u64,
}

impl Documents {
    /// Documents of these sizes.
    pub fn new(seed: u64, sizes: Sizes) -> Documents {
        Documents { sizes, size_key: subkey(seed, SIZES), text_key: subkey(seed, TEXTS) }
    }

    /// Bytes of the text of document `id`.
    #[inline]
    pub fn bytes(&self, id: u64) -> u64 {
        self.sizes.draw(mix(self.size_key ^ id))
    }

    /// The mean of [`bytes`](Documents::bytes).
    pub(super) fn mean_bytes(&self) -> u64 {
        self.sizes.mean()
    }

    /// The text of document `id` as its update number `version` leaves it; 0 is the load.
    pub fn text(&self, id: u64, version: u32) -> Pieces {
        Pieces {
            state: mix(self.text_key ^ mix(id) ^ u64::from(version) << 32),
            id,
            version,
            left: self.bytes(id),
            part: None,
        }
    }

    /// Appends the whole text.
    pub fn write(&self, id: u64, version: u32, out: &mut Vec<u8>) {
        let mut pieces = self.text(id, version);
        while pieces.next_into(out) {}
    }
}

/// A document's text, about a kilobyte at a time.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    state: u64,
    id: u64,
    version: u32,
    /// Bytes of the document that were not given yet.
    left: u64,
    /// The part to give next; `None`: the head is next.
    part: Option<u64>,
}

/// What follows the last part.
const END: &[u8] = b"]}";

impl Pieces {
    /// Appends the next piece; `false` when nothing was left.
    pub(super) fn next_into(&mut self, out: &mut Vec<u8>) -> bool {
        if self.left == 0 {
            return false;
        }
        let start = out.len();
        match self.part {
            None => {
                self.head(out);
                self.part = Some(0);
            }
            Some(part) => {
                self.part(part, out);
                self.part = Some(part + 1);
            }
        }
        self.left -= (out.len() - start) as u64;
        true
    }

    fn head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            format!("{{\"id\": {}, \"rev\": {}, \"tags\": [\"", self.id, self.version).as_bytes(),
        );
        letters(word(self.state, 1), 0, TAG_CHARS, out);
        out.extend_from_slice(b"\", \"");
        letters(word(self.state, 2), 0, TAG_CHARS, out);
        out.extend_from_slice(b"\"], \"parts\": [");
    }

    fn part(&self, part: u64, out: &mut Vec<u8>) {
        let start = out.len();
        if part > 0 {
            out.extend_from_slice(b", ");
        }
        let state = mix(self.state ^ (part + 1));
        out.extend_from_slice(format!("{{\"n\": {part}, \"text\": \"").as_bytes());
        let tail = format!("\", \"amount\": {}}}", 100_000 + word(state, 0) % 900_000);
        let frame = (out.len() - start + tail.len()) as u64;
        let whole = self.left - END.len() as u64;
        // What would be left for one more part must be enough for one.
        let is_last = whole < PART_BYTES + frame + LAST_TEXT_MIN + 2;
        let text = if is_last { whole - frame } else { PART_BYTES - frame };
        letters(state, 1, text, out);
        out.extend_from_slice(tail.as_bytes());
        if is_last {
            out.extend_from_slice(END);
        }
    }
}

/// Appends so many letters, ten of them from each word of a stream from word `from` on.
#[inline]
fn letters(state: u64, from: u64, count: u64, out: &mut Vec<u8>) {
    const PER_WORD: u64 = 10;
    for nth in 0..count / PER_WORD {
        let bits = word(state, from + nth);
        let chars: [u8; PER_WORD as usize] =
            std::array::from_fn(|at| LETTERS[(bits >> (6 * at) & 63) as usize]);
        out.extend_from_slice(&chars);
    }
    let bits = word(state, from + count / PER_WORD);
    out.extend((0..count % PER_WORD).map(|at| LETTERS[(bits >> (6 * at) & 63) as usize]));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(documents: &Documents, id: u64, version: u32) -> String {
        let mut out = Vec::new();
        documents.write(id, version, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn documents_are_json_of_the_size_that_was_drawn() {
        for sizes in ["256", "257..1300", "1kB..20kB", "3MB"] {
            let documents = Documents::new(5, sizes.parse().expect("a size"));
            for id in [1, 2, 99, 1_000, 123_456_789_012] {
                let text = text(&documents, id, 3);
                assert_eq!(text.len() as u64, documents.bytes(id), "{sizes} {id}");
                assert!(text.starts_with(&format!("{{\"id\": {id}, \"rev\": 3, \"tags\": [\"")), "{text}");
                assert!(text.ends_with("}]}"), "{sizes} {id}");
                assert_eq!(text.matches("{\"n\": ").count(), text.matches("\"amount\": ").count());
            }
        }
    }

    #[test]
    fn every_document_and_version_has_a_text_of_its_own() {
        let documents = Documents::new(1, Sizes::new(300, 300).expect("possible"));
        let texts: std::collections::BTreeSet<String> =
            (1..50).flat_map(|id| [0, 1, 2].map(|version| text(&documents, id, version))).collect();
        assert_eq!(texts.len(), 49 * 3);
        let tails: std::collections::BTreeSet<&str> = texts.iter().map(|text| &text[100..]).collect();
        assert_eq!(tails.len(), 49 * 3);
        assert_ne!(text(&documents, 7, 0), text(&Documents::new(2, documents.sizes), 7, 0));
    }

    /// Frozen: a document that was loaded must be found again by every later release.
    #[test]
    fn content_stays_as_it_is() {
        let documents = Documents::new(1, Sizes::new(256, 4_000).expect("possible"));
        let sum = |id: u64, version: u32| {
            text(&documents, id, version).bytes().fold(0u64, |sum, byte| mix(sum ^ u64::from(byte)))
        };
        let sums: Vec<u64> =
            [(1, 0), (2, 0), (3, 1), (1_000_000, 0)].map(|(id, version)| sum(id, version)).into();
        assert_eq!(
            sums,
            [
                12_502_765_139_408_001_402,
                1_392_721_624_905_534_921,
                7_458_078_179_024_117_179,
                17_793_875_634_658_065_864
            ]
        );
    }
}
