//! Variable names and their slots. All scripts of a run share one table, because in pgbench a client keeps its variables from one
//! transaction to the next, whichever script set them.

use std::collections::HashMap;

/// The place of a variable in every session's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub(super) u32);

impl Slot {
    /// The index of the slot, below [`Names::count`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The names that scripts mention, each with its slot.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: Vec<String>,
    slots: HashMap<String, Slot>,
}

impl Names {
    /// The slot of a name, made where there is none yet.
    pub(super) fn intern(&mut self, name: &str) -> Slot {
        if let Some(slot) = self.slots.get(name) {
            return *slot;
        }
        // Names come from scripts, whose size is limited far below 2^32.
        let slot = Slot(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(name.to_owned());
        self.slots.insert(name.to_owned(), slot);
        slot
    }

    /// The slot of a name; `None` where no script mentions it.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Slot> {
        self.slots.get(name).copied()
    }

    /// The name of a slot.
    #[must_use]
    pub fn name(&self, slot: Slot) -> &str {
        self.names.get(slot.index()).map_or("?", String::as_str)
    }

    /// How many names there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// All names with their slots, in the order in which scripts mention them.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &str)> {
        self.names.iter().enumerate().map(|(index, name)| (Slot(index as u32), name.as_str()))
    }
}

/// Whether a byte may begin a variable name: a letter, an underscore, or any byte of a non-ASCII character.
pub(super) fn starts_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

/// Whether a byte may go on in a variable name.
pub(super) fn continues_name(byte: u8) -> bool {
    starts_name(byte) || byte.is_ascii_digit()
}

/// Whether a text is a variable name.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|first| starts_name(*first)) && bytes.iter().all(|byte| continues_name(*byte))
}

/// The candidate nearest to `word` by edits, where it is near enough to be a slip of the finger.
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Words longer than any sensible name are not worth a quadratic comparison.
    const WORD_MAX: usize = 64;
    if word.len() > WORD_MAX {
        return None;
    }
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .filter(|candidate| candidate.len() <= WORD_MAX && *candidate != word)
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edit distance with neighbouring letters swapped counting as one edit (optimal string alignment), ignoring ASCII case.
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().map(|c| c.to_ascii_lowercase()).collect();
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut rows: [Vec<usize>; 3] = [vec![0; b.len() + 1], (0..=b.len()).collect(), vec![0; b.len() + 1]];
    for i in 0..a.len() {
        let [before, above, row] = &mut rows;
        row[0] = i + 1;
        for j in 0..b.len() {
            let changed = above[j] + usize::from(a[i] != b[j]);
            row[j + 1] = changed.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}
