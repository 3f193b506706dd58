//! Numbers as people read them: `1,000,000`, `1.10 GB`, `101k rows/s`, `84 us`, `1.9 ms`.
//!
//! Only the screen rounds; the run directory holds the exact values. Units are ASCII (`us`), for terminals without UTF-8.

/// `1,000,000`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits: `1.23`, `12.3`, `123`.
fn three_digits(value: f64) -> String {
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$}")
}

/// The largest unit that leaves at least 1, `factor` apart; the rounding is looked at, so that 999,999 is `1.00M`, not `1000k`.
fn scaled(value: f64, units: &'static [&'static str]) -> (String, &'static str) {
    let (mut value, mut index) = (value, 0);
    while value >= 999.5 && index + 1 < units.len() {
        value /= 1000.0;
        index += 1;
    }
    (three_digits(value), units[index])
}

/// `1.10 GB` (powers of 1000).
pub fn bytes(value: u64) -> String {
    if value < 1000 {
        return format!("{value} B");
    }
    let (number, unit) = scaled(value as f64, &["B", "kB", "MB", "GB", "TB", "PB", "EB"]);
    format!("{number} {unit}")
}

/// `23 GiB`: memory comes in powers of 1024.
pub fn memory(bytes: u64) -> String {
    format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30))
}

/// `101k`, `1.20M`, `345`: for rates, where the third digit is noise already.
pub fn short(value: f64) -> String {
    if value < 0.0005 {
        return "0".to_string();
    }
    let (number, unit) = scaled(value, &["", "k", "M", "G", "T"]);
    format!("{number}{unit}")
}

/// `112 MB/s`.
pub fn bytes_per_s(value: f64) -> String {
    let (number, unit) = scaled(value, &["B", "kB", "MB", "GB", "TB"]);
    format!("{number} {unit}/s")
}

/// A latency: `84 us`, `1.9 ms`, `310 ms`, `2.5 s`, `1m 05s`.
pub fn latency_us(value: u64) -> String {
    match value {
        0..1_000 => format!("{value} us"),
        1_000..9_950 => format!("{:.1} ms", value as f64 / 1e3),
        9_950..999_500 => format!("{:.0} ms", value as f64 / 1e3),
        _ => seconds(value as f64 / 1e6),
    }
}

/// A cost of a few microseconds, `3.9 us`.
pub fn cost_us(value: f64) -> String {
    if value < 99.95 { format!("{value:.1} us") } else { latency_us(value.round() as u64) }
}

/// How long something took: `0.8 s`, `9.9 s`, `85 s`, `2m 05s`, `1h 02m`, `3d 04h`.
pub fn seconds(value: f64) -> String {
    if value < 9.95 {
        return format!("{value:.1} s");
    }
    let whole = value.round() as u64;
    match whole {
        0..100 => format!("{whole} s"),
        100..3_600 => format!("{}m {:02}s", whole / 60, whole % 60),
        3_600..86_400 => format!("{}h {:02}m", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{}d {:02}h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

/// `1 row`, `2 rows`.
pub fn plural(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(value), if value == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_thousands() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_000_000, "1,000,000"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(count(value), text);
        }
        assert_eq!(plural(1, "row"), "1 row");
        assert_eq!(plural(12_000, "row"), "12,000 rows");
    }

    #[test]
    fn bytes_have_three_digits() {
        for (value, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (1_100_000_000, "1.10 GB"),
            (999_999_999, "1.00 GB"),
            (12_345_678, "12.3 MB"),
            (863_000_000_000_000, "863 TB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(memory(25_262_956_544), "24 GiB");
        assert_eq!(bytes_per_s(112_000_000.0), "112 MB/s");
        assert_eq!(bytes_per_s(2_340_000_000.0), "2.34 GB/s");
    }

    #[test]
    fn rates_are_short_or_full() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.50"),
            (345.0, "345"),
            (101_234.0, "101k"),
            (999_700.0, "1.00M"),
            (1_234.0, "1.23k"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn times_change_unit_with_size() {
        for (value, text) in [
            (84, "84 us"),
            (999, "999 us"),
            (1_900, "1.9 ms"),
            (9_949, "9.9 ms"),
            (9_950, "10 ms"),
            (310_000, "310 ms"),
            (999_499, "999 ms"),
            (999_500, "1.0 s"),
            (2_500_000, "2.5 s"),
            (65_000_000, "65 s"),
            (125_000_000, "2m 05s"),
        ] {
            assert_eq!(latency_us(value), text);
        }
        for (value, text) in
            [(0.84, "0.8 s"), (9.94, "9.9 s"), (9.96, "10 s"), (3_725.0, "1h 02m"), (273_600.0, "3d 04h")]
        {
            assert_eq!(seconds(value), text);
        }
        assert_eq!(cost_us(3.94), "3.9 us");
        assert_eq!(cost_us(1_900.0), "1.9 ms");
    }
}
