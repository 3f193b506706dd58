//! Who wrote a value, inside the value.
//!
//! Any row can be judged after any number of updates only if a value names its writer: which run, which session of it,
//! and which of that session's writes.

/// Characters that hold the 60 bits.
pub(super) const CHARACTERS: usize = 10;

const RUN_BITS: u32 = 14;
const SESSION_BITS: u32 = 14;
const SEQUENCE_BITS: u32 = 32;
const _: () = assert!((RUN_BITS + SESSION_BITS + SEQUENCE_BITS) as usize == 6 * CHARACTERS);

/// The writer of a value: 14 bits of run number (0 is the load), 14 of session, 32 of sequence within the session.
///
/// The order is by run, session, sequence; it is the order of writing only within one session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// The version of every field as it was loaded.
    pub const LOADED: Version = Version(0);
    /// The highest run number. Run 0 is the load.
    pub(crate) const RUN_MAX: u16 = (1 << RUN_BITS) - 1;
    /// The highest session number.
    pub const SESSION_MAX: u16 = (1 << SESSION_BITS) - 1;

    /// The version of write number `sequence` of a session of a run.
    ///
    /// # Panics
    /// When `run` or `session` exceeds its maximum.
    #[must_use]
    pub fn new(run: u16, session: u16, sequence: u32) -> Version {
        assert!(run <= Version::RUN_MAX, "run {run} does not fit into a version");
        assert!(session <= Version::SESSION_MAX, "session {session} does not fit into a version");
        Version(
            u64::from(run) << (SESSION_BITS + SEQUENCE_BITS)
                | u64::from(session) << SEQUENCE_BITS
                | u64::from(sequence),
        )
    }

    /// The run that wrote the value; 0 is the load.
    #[must_use]
    pub fn run(self) -> u16 {
        (self.0 >> (SESSION_BITS + SEQUENCE_BITS)) as u16
    }

    /// The session of the run.
    #[must_use]
    pub fn session(self) -> u16 {
        (self.0 >> SEQUENCE_BITS) as u16 & Version::SESSION_MAX
    }

    /// The write of the session.
    #[must_use]
    pub fn sequence(self) -> u32 {
        self.0 as u32
    }

    /// (run, session, sequence).
    #[must_use]
    pub fn parts(self) -> (u16, u16, u32) {
        (self.run(), self.session(), self.sequence())
    }

    /// The 60 bits as a number.
    #[must_use]
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// Ten groups of six bits, highest first, and the exclusive or of them.
    #[inline]
    pub(super) fn characters(self) -> [u8; CHARACTERS + 1] {
        let mut characters = [0; CHARACTERS + 1];
        for (position, character) in characters[..CHARACTERS].iter_mut().enumerate() {
            *character = (self.0 >> (6 * (CHARACTERS - 1 - position))) as u8 & 63;
        }
        characters[CHARACTERS] = characters.iter().fold(0, |check, character| check ^ character);
        characters
    }

    /// The version whose first ten groups these are.
    #[inline]
    pub(super) fn of_characters(characters: &[u8; CHARACTERS + 1]) -> Version {
        Version(
            characters[..CHARACTERS].iter().fold(0, |bits, &character| bits << 6 | u64::from(character & 63)),
        )
    }
}

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Version({self})")
    }
}

/// `loaded`, or `run 3, session 12, write 40`.
impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Version::LOADED {
            return f.write_str("loaded");
        }
        write!(f, "run {}, session {}, write {}", self.run(), self.session(), self.sequence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_and_characters_return(run in 0..=Version::RUN_MAX, session in 0..=Version::SESSION_MAX, sequence: u32) {
            let version = Version::new(run, session, sequence);
            prop_assert_eq!(version.parts(), (run, session, sequence));
            prop_assert_eq!(Version::of_characters(&version.characters()), version);
            prop_assert!(version.characters().iter().all(|&character| character < 64));
            prop_assert_eq!(version.characters().iter().fold(0, |check, character| check ^ character), 0);
        }
    }

    #[test]
    fn names_the_writer() {
        assert_eq!(Version::LOADED.to_string(), "loaded");
        assert_eq!(Version::new(3, 12, 40).to_string(), "run 3, session 12, write 40");
        assert_eq!(Version::new(0, 0, 0), Version::LOADED);
        assert_eq!(Version::new(Version::RUN_MAX, Version::SESSION_MAX, u32::MAX).as_u64(), (1 << 60) - 1);
    }
}
