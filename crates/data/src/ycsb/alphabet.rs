//! The 64 letters: `-`, `0..9`, `A..Z`, `_`, `a..z`, in ascending order of ASCII.
//!
//! Ascending order makes the map from six bits a short sum of comparisons, which the compiler turns into vector code on
//! any CPU; a table look-up per byte would be the slowest step of the generator.

/// In the table of values: not a letter of the alphabet.
pub(super) const FOREIGN: u8 = 0xFF;

/// The letter of the low six bits of `byte`.
#[inline(always)]
const fn letter(byte: u8) -> u8 {
    let value = byte & 63;
    // The gaps in ASCII before '0', 'A', '_' and 'a'.
    value
        + b'-'
        + if value >= 1 { 2 } else { 0 }
        + if value >= 11 { 7 } else { 0 }
        + if value >= 37 { 4 } else { 0 }
        + if value >= 38 { 1 } else { 0 }
}

/// Replaces every byte by the letter of its low six bits.
#[inline(always)]
pub(super) fn letters(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = letter(*byte);
    }
}

const VALUES: [u8; 256] = {
    let mut values = [FOREIGN; 256];
    let mut value = 0;
    while value < 64 {
        values[letter(value) as usize] = value;
        value += 1;
    }
    values
};

/// The six bits of a letter, or [`FOREIGN`].
#[inline]
pub(super) fn value(letter: u8) -> u8 {
    VALUES[usize::from(letter)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_sorted_alphabet_and_back() {
        let mut bytes: Vec<u8> = (0..=255).collect();
        letters(&mut bytes);
        let expected = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
        assert_eq!(&bytes[..64], expected);
        assert_eq!(&bytes[192..], expected);
        for (six_bits, &letter) in expected.iter().enumerate() {
            assert_eq!(usize::from(value(letter)), six_bits);
        }
        assert_eq!((0..=255).filter(|&byte| value(byte) != FOREIGN).count(), 64);
    }
}
