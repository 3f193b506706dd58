//! Numbers in sentences: short, with their unit, the same everywhere.

/// `12.3 GB`; decimal units, as disks and networks are sold.
pub(crate) fn bytes(bytes: f64) -> String {
    scaled(bytes, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// `4.2 million`, `870`.
pub(crate) fn count(count: f64) -> String {
    match count.abs() {
        small if small < 1e4 => short(count),
        middle if middle < 1e6 => format!("{} thousand", short(count / 1e3)),
        large if large < 1e9 => format!("{} million", short(count / 1e6)),
        _ => format!("{} billion", short(count / 1e9)),
    }
}

/// `58 %` of a share of 1; one decimal below ten.
pub(crate) fn percent(share: f64) -> String {
    // The sum of no numbers is -0.0, which is nothing to print.
    let percent = share * 100.0 + 0.0;
    match percent.abs() {
        tiny if tiny > 0.0 && tiny < 0.1 => format!("{percent:.2} %"),
        small if small < 10.0 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// `5.00 ms`, `120 us`, `3.1 s` of microseconds.
pub(crate) fn us(us: f64) -> String {
    match us.abs() {
        small if small < 1e3 => format!("{} us", short(us)),
        middle if middle < 1e6 => format!("{} ms", short(us / 1e3)),
        _ => seconds(us / 1e6),
    }
}

/// `42 s`, `3.5 min`, `2.0 h`, `4.1 days`.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds.abs() {
        short_time if short_time < 120.0 => format!("{} s", short(seconds)),
        minutes if minutes < 7_200.0 => format!("{} min", short(seconds / 60.0)),
        hours if hours < 172_800.0 => format!("{} h", short(seconds / 3_600.0)),
        _ => format!("{} days", short(seconds / 86_400.0)),
    }
}

/// `1 second`, `3 seconds`: a count with its word.
pub(crate) fn counted(count: usize, word: &str) -> String {
    match count {
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    }
}

/// Three significant digits at least, no needless decimals.
pub(crate) fn short(value: f64) -> String {
    let value = value + 0.0;
    match value.abs() {
        whole if whole >= 100.0 || whole == whole.trunc() => format!("{value:.0}"),
        tens if tens >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn scaled(value: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= 1_000.0 && unit + 1 < units.len() {
        value /= 1_000.0;
        unit += 1;
    }
    format!("{} {}", short(value), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_carry_their_unit() {
        assert_eq!(bytes(9.3e12), "9.30 TB");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(percent(0.58), "58 %");
        assert_eq!((percent(-0.0), short(-0.0)), ("0.0 %".to_string(), "0".to_string()));
        assert_eq!(percent(0.0004), "0.04 %");
        assert_eq!(us(5_000.0), "5 ms");
        assert_eq!(us(150.0), "150 us");
        assert_eq!(seconds(90.0), "90 s");
        assert_eq!(seconds(86_400.0), "24 h");
        assert_eq!(count(1.2e6), "1.20 million");
        assert_eq!(counted(1, "checkpoint"), "1 checkpoint");
    }
}
