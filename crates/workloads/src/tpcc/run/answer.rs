//! Reading rows: integers and money in either of the protocol's two formats, without a heap.

use wire::backend::Columns;

use run::workload::TransactionError;

/// A row being read from left to right.
#[derive(Debug)]
pub struct Row<'a> {
    columns: Columns<'a>,
    is_binary: bool,
}

fn misread(what: &str) -> TransactionError {
    TransactionError::Script(format!("the reply of the server lacks {what}"))
}

impl<'a> Row<'a> {
    /// From the body of a DataRow.
    pub fn new(body: &'a [u8], is_binary: bool) -> Result<Row<'a>, TransactionError> {
        Ok(Row { columns: Columns::new(body).map_err(|_| misread("row"))?, is_binary })
    }

    fn next(&mut self) -> Result<Option<&'a [u8]>, TransactionError> {
        match self.columns.next_column() {
            Ok(Some(value)) => Ok(value),
            _ => Err(misread("further column")),
        }
    }

    /// The next column, whatever it is; NULL is `None`.
    pub fn any(&mut self) -> Result<Option<&'a [u8]>, TransactionError> {
        self.next()
    }

    /// The next column, a text.
    pub fn text(&mut self) -> Result<&'a [u8], TransactionError> {
        self.next()?.ok_or_else(|| misread("text"))
    }

    /// The next column, an integer of any width.
    pub fn integer(&mut self) -> Result<i64, TransactionError> {
        let value = self.next()?.ok_or_else(|| misread("integer"))?;
        let number = if self.is_binary { binary_integer(value) } else { decimal(value, 0) };
        number.ok_or_else(|| misread("integer"))
    }

    /// The next column, an integer that fits a `u32`.
    pub fn count(&mut self) -> Result<u32, TransactionError> {
        u32::try_from(self.integer()?).map_err(|_| misread("number from 0 up"))
    }

    /// The next column, a `numeric`, as an integer of 10^-`scale`: cents with 2, ten-thousandths with 4.
    pub fn numeric(&mut self, scale: u32) -> Result<i64, TransactionError> {
        let value = self.next()?.ok_or_else(|| misread("numeric"))?;
        let number = if self.is_binary { binary_numeric(value, scale) } else { decimal(value, scale) };
        number.ok_or_else(|| misread("numeric"))
    }
}

fn binary_integer(value: &[u8]) -> Option<i64> {
    match value.len() {
        2 => Some(i64::from(i16::from_be_bytes(value.try_into().ok()?))),
        4 => Some(i64::from(i32::from_be_bytes(value.try_into().ok()?))),
        8 => Some(i64::from_be_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

/// `-123.45` in units of 10^-`scale`. Digits beyond the scale must be zero: nothing is rounded in silence.
fn decimal(text: &[u8], scale: u32) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    let mut number: i64 = 0;
    let mut behind_point: Option<u32> = None;
    let mut has_digit = false;
    for &byte in digits {
        match byte {
            b'.' if behind_point.is_none() => behind_point = Some(0),
            b'0'..=b'9' => {
                has_digit = true;
                let digit = i64::from(byte - b'0');
                if behind_point == Some(scale) {
                    if digit != 0 {
                        return None;
                    }
                    continue;
                }
                number = number.checked_mul(10)?.checked_add(digit)?;
                behind_point = behind_point.map(|places| places + 1);
            }
            _ => return None,
        }
    }
    if !has_digit {
        return None;
    }
    let missing = scale - behind_point.unwrap_or(0);
    number = number.checked_mul(10_i64.checked_pow(missing)?)?;
    Some(if negative { -number } else { number })
}

/// PostgreSQL's `numeric_send`: count of base-10,000 digits, weight of the first, sign, display scale, digits.
fn binary_numeric(value: &[u8], scale: u32) -> Option<i64> {
    const NEGATIVE: u16 = 0x4000;
    let word = |at: usize| Some(u16::from_be_bytes(value.get(2 * at..2 * at + 2)?.try_into().ok()?));
    let (count, weight, sign) = (word(0)?, word(1)? as i16, word(2)?);
    if value.len() != 8 + 2 * usize::from(count) || (sign != 0 && sign != NEGATIVE) {
        return None;
    }
    let mut number: i64 = 0;
    for at in 0..usize::from(count) {
        let digit = i64::from(word(4 + at)?);
        // The digit's worth is 10^(4 * exponent), in units of 10^-scale.
        let exponent = 4 * (i32::from(weight) - at as i32) + scale as i32;
        number = number.checked_add(match u32::try_from(exponent) {
            Ok(exponent) => digit.checked_mul(10_i64.checked_pow(exponent)?)?,
            Err(_) => {
                let divisor = 10_i64.checked_pow(exponent.unsigned_abs())?;
                if digit % divisor != 0 {
                    return None;
                }
                digit / divisor
            }
        })?;
    }
    Some(if sign == NEGATIVE { -number } else { number })
}

/// Appends `value` units of 10^-2 as PostgreSQL reads them: `-123.45`.
pub(super) fn cents(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    let value = value.unsigned_abs();
    wire::frontend::decimal(out, (value / 100) as i64);
    out.extend_from_slice(&[b'.', b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_text() {
        assert_eq!(decimal(b"-123.45", 2), Some(-12_345));
        assert_eq!(decimal(b"0.1234", 4), Some(1_234));
        assert_eq!(decimal(b"7", 2), Some(700));
        assert_eq!(decimal(b"7.5", 2), Some(750));
        assert_eq!(decimal(b"7.500", 2), Some(750));
        assert_eq!(decimal(b"42", 0), Some(42));
        for wrong in [&b""[..], b"-", b".", b"1.2.3", b"12a", b"7.501", b"NaN", b"99999999999999999999"] {
            assert_eq!(decimal(wrong, 2), None, "{wrong:?}");
        }
    }

    #[test]
    fn numbers_are_read_from_binary() {
        let numeric = |weight: i16, sign: u16, digits: &[u16]| {
            let mut value = Vec::new();
            for word in [digits.len() as u16, weight as u16, sign, 2].iter().chain(digits) {
                value.extend_from_slice(&word.to_be_bytes());
            }
            value
        };
        // 12345.67 is the digits 1, 2345, 6700.
        assert_eq!(binary_numeric(&numeric(1, 0, &[1, 2345, 6700]), 2), Some(1_234_567));
        assert_eq!(binary_numeric(&numeric(1, 0x4000, &[1, 2345, 6700]), 2), Some(-1_234_567));
        assert_eq!(binary_numeric(&numeric(0, 0, &[]), 2), Some(0));
        assert_eq!(binary_numeric(&numeric(-1, 0, &[1234]), 4), Some(1_234));
        assert_eq!(binary_numeric(&numeric(-1, 0, &[1234]), 2), None, "no cent is lost in silence");
        assert_eq!(binary_numeric(&numeric(1, 0, &[3]), 2), Some(3_000_000));
        assert_eq!(binary_numeric(&numeric(0, 0xc000, &[]), 2), None, "NaN");
        assert_eq!(binary_integer(&[255, 255, 255, 254]), Some(-2));
        assert_eq!(binary_integer(&[1]), None);
    }

    #[test]
    fn cents_are_written_as_they_are_read() {
        for value in [0, 5, 99, 100, 12_345, -1, -250_050] {
            let mut text = Vec::new();
            cents(&mut text, value);
            assert_eq!(decimal(&text, 2), Some(value), "{}", String::from_utf8_lossy(&text));
        }
    }
}
