//! Numbers for people: thousands separated, three significant digits where more would be noise, units that fit.

/// How micro is written: a terminal page keeps to ASCII, a web page does not have to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Letters {
    /// `us`.
    Ascii,
    /// `µs`.
    Unicode,
}

/// `1,000,000`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `2 rows`.
pub(crate) fn counted(value: u64, one: &str) -> String {
    format!("{} {one}{}", count(value), if value == 1 { "" } else { "s" })
}

/// Three significant digits: `9.53`, `95.3`, `953`; thousands are separated and kept whole.
pub(crate) fn three(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "-".to_string(),
        0.0 => "0".to_string(),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => count(value.round().max(0.0) as u64),
    }
}

/// A latency given in microseconds: `84 us`, `1.90 ms`, `2.05 s`.
pub(crate) fn latency(us: f64, letters: Letters) -> String {
    let micro = if letters == Letters::Ascii { "us" } else { "µs" };
    match us {
        small if small < 999.5 && small.fract() == 0.0 => format!("{small:.0} {micro}"),
        small if small < 999.5 => format!("{} {micro}", three(small)),
        middle if middle < 999_500.0 => format!("{} ms", three(middle / 1e3)),
        long => format!("{} s", three(long / 1e6)),
    }
}

/// Bytes in decimal units: `1.10 GB`.
pub(crate) fn bytes(value: f64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = value;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{} {}", three(value), UNITS[unit]) }
}

/// A duration in seconds: `9.9 s`, `2 min 5 s`, `1 h 3 min`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match seconds {
        short if short < 9.95 => format!("{short:.1} s"),
        short if short < 59.5 => format!("{short:.0} s"),
        middle if middle < 3599.5 && whole.is_multiple_of(60) => format!("{} min", whole / 60),
        middle if middle < 3599.5 => format!("{} min {} s", whole / 60, whole % 60),
        _ if whole % 3600 < 60 => format!("{} h", whole / 3600),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A share as percent: `0.3 %`, `< 0.01 %`, `12 %`.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "-".to_string();
    }
    let percent = part / whole * 100.0;
    match percent {
        0.0 => "0 %".to_string(),
        tiny if tiny < 0.01 => "< 0.01 %".to_string(),
        small if small < 1.0 => format!("{small:.2} %"),
        middle if middle < 9.95 => format!("{middle:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// A setting's value with its `pg_settings` unit, in the form people type: `16384` of `8kB` is `128 MB` (binary, as in
/// postgresql.conf).
pub(crate) fn setting(value: &str, unit: Option<&str>) -> String {
    let (Some(unit), Ok(number)) = (unit.filter(|unit| !unit.is_empty()), value.parse::<i64>()) else {
        return value.to_string();
    };
    if number <= 0 {
        // 0 and -1 have meanings of their own ("off", "as another setting").
        return number.to_string();
    }
    let number = number as u64;
    let up = |scale: u64, names: &[(&str, u64)]| {
        let total = number.saturating_mul(scale);
        let fitting = names.iter().rev().find(|(_, size)| total >= *size && total.is_multiple_of(*size));
        fitting.map_or_else(
            || format!("{number} {unit}"),
            |(name, size)| format!("{} {name}", count(total / size)),
        )
    };
    const SIZES: [(&str, u64); 5] =
        [("B", 1), ("kB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30), ("TB", 1 << 40)];
    const TIMES: [(&str, u64); 5] =
        [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    match unit {
        "B" => up(1, &SIZES),
        "kB" => up(1 << 10, &SIZES),
        "8kB" => up(8 << 10, &SIZES),
        "MB" => up(1 << 20, &SIZES),
        "16MB" => up(16 << 20, &SIZES),
        "ms" => up(1, &TIMES),
        "s" => up(1000, &TIMES),
        "min" => up(60_000, &TIMES),
        _ => format!("{number} {unit}"),
    }
}

/// A named number of a run directory as a label and a value in its unit. Names carry their unit last (`index_seconds`), or
/// before what the number is of the samples (`sleep_late_us_p99`).
pub(crate) fn named(name: &str, value: f64) -> (String, String) {
    let mut words: Vec<&str> = name.split('_').filter(|word| !word.is_empty()).collect();
    let per_second = words.ends_with(&["per", "s"]) || words.ends_with(&["per", "second"]);
    if per_second {
        words.truncate(words.len() - 2);
    }
    let unit =
        words.iter().position(|word| matches!(*word, "bytes" | "us" | "ns" | "ms" | "seconds" | "percent"));
    let unit = unit.map(|at| words.remove(at));
    let text = match unit {
        Some("bytes") => bytes(value),
        Some("us") => latency(value, Letters::Unicode),
        Some("ms") => latency(value * 1e3, Letters::Unicode),
        Some("ns") if value < 999.5 => format!("{} ns", three(value)),
        Some("ns") => latency(value / 1e3, Letters::Unicode),
        Some("seconds") => duration(value),
        Some("percent") => format!("{} %", three(value)),
        _ if value.fract() == 0.0 && value >= 0.0 => count(value as u64),
        _ => three(value),
    };
    let label = if words.is_empty() { unit.unwrap_or(name).to_string() } else { words.join(" ") };
    (label, if per_second { format!("{text}/s") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well_at_every_size() {
        assert_eq!([0, 7, 999, 1000, 1_234_567].map(count), ["0", "7", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 0.5, 9.994, 9.996, 99.96, 21_530.4].map(three),
            ["0", "0.50", "9.99", "10.0", "100", "21,530"]
        );
        let latencies = [0.0, 3.9, 84.0, 999.0, 1000.0, 1_899.0, 999_499.0, 1_204_000.0, 61_000_000.0];
        let expected =
            ["0 us", "3.90 us", "84 us", "999 us", "1.00 ms", "1.90 ms", "999 ms", "1.20 s", "61.0 s"];
        assert_eq!(latencies.map(|us| latency(us, Letters::Ascii)), expected);
        assert_eq!(latency(84.0, Letters::Unicode), "84 µs");
        assert_eq!(
            [12.0, 999.0, 1000.0, 1.1e9, 1e15].map(bytes),
            ["12 B", "999 B", "1.00 kB", "1.10 GB", "1.00 PB"]
        );
        let seconds = [0.84, 9.9, 10.0, 60.0, 125.0, 3600.0, 3780.0];
        assert_eq!(
            seconds.map(duration),
            ["0.8 s", "9.9 s", "10 s", "1 min", "2 min 5 s", "1 h", "1 h 3 min"]
        );
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(counted(2000, "row"), "2,000 rows");
    }

    #[test]
    fn percent_never_rounds_something_to_nothing() {
        assert_eq!(percent(0.0, 100.0), "0 %");
        assert_eq!(percent(1.0, 1e9), "< 0.01 %");
        assert_eq!(percent(3.0, 1000.0), "0.30 %");
        assert_eq!(percent(993.0, 1000.0), "99 %");
        assert_eq!(percent(1.0, 0.0), "-");
    }

    #[test]
    fn names_tell_their_units() {
        let told = |name, value| {
            let (label, text) = named(name, value);
            format!("{label}: {text}")
        };
        assert_eq!(told("index_seconds", 0.218), "index: 0.2 s");
        assert_eq!(told("table_bytes_on_disk", 352_518_144.0), "table on disk: 353 MB");
        assert_eq!(told("generator_bytes_per_s", 2.39e9), "generator: 2.39 GB/s");
        assert_eq!(told("sleep_late_us_p99", 123.0), "sleep late p99: 123 µs");
        assert_eq!(told("clock_reading_ns", 28.606), "clock reading: 28.6 ns");
        assert_eq!(told("bytes", 1.1e9), "bytes: 1.10 GB");
        assert_eq!(told("chunks", 1200.0), "chunks: 1,200");
        assert_eq!(told("ratio", 0.5), "ratio: 0.50");
    }

    #[test]
    fn settings_are_shown_as_they_are_typed() {
        assert_eq!(setting("16384", Some("8kB")), "128 MB");
        assert_eq!(setting("1024", Some("MB")), "1 GB");
        assert_eq!(setting("300", Some("s")), "5 min");
        assert_eq!(setting("1500", Some("ms")), "1500 ms".replace("1500", "1,500"));
        assert_eq!(setting("-1", Some("8kB")), "-1");
        assert_eq!(setting("off", None), "off");
        assert_eq!(setting("3", Some("fortnights")), "3 fortnights");
    }
}
