//! Numbers for people: at most three significant digits, thousands separated, units as SI and PostgreSQL write them. Terminal, page and
//! findings use these functions, so that a figure reads the same everywhere; files hold the exact values.

/// What stands for a number that is none, or is infinite.
const UNKNOWN: &str = "-";

const THOUSANDS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// `1,000,000`: exact.
pub fn count(value: u64) -> String {
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

/// `1 row`, `2 rows`, `2 indexes`; a word that ends with a consonant and y takes a plain s, as `standbys` does.
pub fn counted(value: u64, one: &str) -> String {
    let end = match value {
        1 => "",
        _ if ["s", "x", "ch", "sh"].iter().any(|end| one.ends_with(end)) => "es",
        _ => "s",
    };
    format!("{} {one}{end}", count(value))
}

/// Three significant digits: `9.53`, `95.3`, `953`; whole numbers have no decimals, thousands are separated and kept whole.
pub fn three(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    match value.abs() {
        size if !size.is_finite() => UNKNOWN.to_string(),
        0.0 => "0".to_string(),
        size if size.fract() == 0.0 || size >= 99.95 => format!("{sign}{}", count(size.round() as u64)),
        size if size < 9.995 => format!("{sign}{size:.2}"),
        size => format!("{sign}{size:.1}"),
    }
}

/// A number of a size where not even the thousands matter: `870`, `4,200`, `99.8k`, `1.25M`.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_string();
    }
    if value.abs() < 9_999.5 {
        return three(if value.abs() < 0.005 { 0.0 } else { value });
    }
    let (value, power) = scaled(value);
    format!("{}{}", three(value), THOUSANDS[power])
}

/// Bytes in powers of 1000, as disks and networks are sold: `1.10 GB`.
pub fn bytes(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_string();
    }
    match scaled(value) {
        // Of a negative fraction not even the sign is left.
        (value, 0) => format!("{:.0} B", value.round() + 0.0),
        (value, 1) => format!("{} kB", three(value)),
        (value, power) => format!("{} {}B", three(value), THOUSANDS[power]),
    }
}

/// Memory in powers of 1024: `23 GiB`.
pub fn memory(bytes: u64) -> String {
    format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30))
}

/// The number of thousands that leaves at least 1; 999.5 of one unit would be printed as 1000.
fn scaled(value: f64) -> (f64, usize) {
    let (mut value, mut power) = (value, 0);
    while value.abs() >= 999.5 && power + 1 < THOUSANDS.len() {
        value /= 1000.0;
        power += 1;
    }
    (value, power)
}

/// A latency given in microseconds: `84 us`, `1.90 ms`, `2.05 s`.
pub fn latency(us: f64) -> String {
    match us.abs() {
        small if small < 999.5 => format!("{} us", three(us)),
        middle if middle < 999_500.0 => format!("{} ms", three(us / 1e3)),
        long if long < 99_500_000.0 => format!("{} s", three(us / 1e6)),
        _ => duration(us / 1e6),
    }
}

/// How long something took, in seconds: `45 ms`, `9.9 s`, `85 s`, `2 min 5 s`, `1 h 3 min`, `3 d 4 h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return UNKNOWN.to_string();
    }
    if seconds < 0.0 {
        return format!("-{}", duration(-seconds));
    }
    let whole = seconds.round() as u64;
    let two = |large: u64, one: &str, small: u64, other: &str| match small {
        0 => format!("{large} {one}"),
        _ => format!("{large} {one} {small} {other}"),
    };
    match seconds {
        0.0 => "0 s".to_string(),
        tiny if tiny < 0.0995 => latency(tiny * 1e6),
        short if short < 9.95 => format!("{short:.1} s"),
        _ if whole < 100 => format!("{whole} s"),
        _ if whole < 3_600 => two(whole / 60, "min", whole % 60, "s"),
        _ if whole < 86_400 => two(whole / 3_600, "h", whole % 3_600 / 60, "min"),
        _ => two(whole / 86_400, "d", whole % 86_400 / 3_600, "h"),
    }
}

/// A share of 1 as percent, never rounded to nothing: `0 %`, `< 0.01 %`, `0.30 %`, `5.2 %`, `12 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let sign = if percent < 0.0 { "-" } else { "" };
    match percent.abs() {
        size if !size.is_finite() => UNKNOWN.to_string(),
        0.0 => "0 %".to_string(),
        tiny if tiny < 0.01 && percent > 0.0 => "< 0.01 %".to_string(),
        tiny if tiny < 0.01 => "> -0.01 %".to_string(),
        small if small < 1.0 => format!("{sign}{small:.2} %"),
        middle if middle < 9.95 => format!("{sign}{middle:.1} %"),
        size => format!("{sign}{size:.0} %"),
    }
}

/// A part of a whole as percent; `-` of nothing.
pub fn percent_of(part: f64, whole: f64) -> String {
    if whole <= 0.0 { UNKNOWN.to_string() } else { percent(part / whole) }
}

/// A setting's value with its `pg_settings` unit, in the form people type: `16384` of `8kB` is `128 MB` (binary, as in
/// postgresql.conf).
pub fn setting(value: &str, unit: Option<&str>) -> String {
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
pub fn named(name: &str, value: f64) -> (String, String) {
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
        Some("us") => latency(value),
        Some("ms") => latency(value * 1e3),
        Some("ns") if value < 999.5 => format!("{} ns", three(value)),
        Some("ns") => latency(value / 1e3),
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
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(
            [0.0, 0.5, 3.0, 9.994, 9.996, 99.96, 21_530.4, -1.5, -2_000.0, f64::NAN].map(three),
            ["0", "0.50", "3", "9.99", "10.0", "100", "21,530", "-1.50", "-2,000", "-"]
        );
        assert_eq!(
            [0.0, 0.0004, 345.0, 4_200.0, 9_999.7, 99_812.0, 999_700.0, 4.2e6].map(short),
            ["0", "0", "345", "4,200", "10.0k", "99.8k", "1.00M", "4.20M"]
        );
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(counted(2000, "row"), "2,000 rows");
        assert_eq!(
            ["process", "index", "switch"].map(|one| counted(4, one)),
            ["4 processes", "4 indexes", "4 switches"]
        );
    }

    #[test]
    fn bytes_have_three_digits() {
        assert_eq!(
            [0.0, 12.0, 999.0, 9_994.0, 99_951.0, 999_500.0, 1.1e9, 1e15, u64::MAX as f64].map(bytes),
            ["0 B", "12 B", "999 B", "9.99 kB", "100 kB", "1.00 MB", "1.10 GB", "1 PB", "18.4 EB"]
        );
        assert_eq!(memory(25_262_956_544), "24 GiB");
    }

    #[test]
    fn times_change_unit_with_size() {
        let latencies = [0.0, 3.9, 84.0, 999.0, 1_899.0, 999_499.0, 1_204_000.0, 61_000_000.0, 125e6];
        let expected =
            ["0 us", "3.90 us", "84 us", "999 us", "1.90 ms", "999 ms", "1.20 s", "61 s", "2 min 5 s"];
        assert_eq!(latencies.map(latency), expected);
        let seconds = [0.0, 0.004, 0.84, 9.9, 10.0, 85.0, 125.0, 3600.0, 3780.0, 273_600.0];
        let expected =
            ["0 s", "4 ms", "0.8 s", "9.9 s", "10 s", "85 s", "2 min 5 s", "1 h", "1 h 3 min", "3 d 4 h"];
        assert_eq!(seconds.map(duration), expected);
    }

    #[test]
    fn what_lies_in_the_past_is_negative() {
        let seconds = [-0.004, -0.84, -85.0, -125.0, -2.4e6, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let expected = ["-4 ms", "-0.8 s", "-85 s", "-2 min 5 s", "-27 d 18 h", "-", "-", "-"];
        assert_eq!(seconds.map(duration), expected);
        assert_eq!([-2.4e12, -1_899.0, f64::NAN].map(latency), ["-27 d 18 h", "-1.90 ms", "-"]);
        assert_eq!([-0.4, -9_994.0, f64::NAN, f64::INFINITY].map(bytes), ["0 B", "-9.99 kB", "-", "-"]);
    }

    proptest::proptest! {
        #[test]
        fn every_number_has_a_text(bits in proptest::prelude::any::<u64>()) {
            let value = f64::from_bits(bits);
            for format in [three, short, bytes, latency, duration, percent] {
                let text = format(value);
                proptest::prop_assert!(!text.is_empty() && !text.contains("NaN") && !text.contains("inf"), "{value}: {text}");
                // A number and its negative differ in the sign alone, and where it is rounded away in nothing.
                let other = format(-value);
                let plain = |text: &str| text.trim_start_matches(['-', '<', '>', ' ']).to_string();
                proptest::prop_assert_eq!(plain(&text), plain(&other));
            }
            for name in ["index_seconds", "sleep_late_us", "clock_reading_ns", "sent_bytes_per_s", "used_percent", "wait_ms", "chunks"] {
                proptest::prop_assert!(!named(name, value).1.contains("NaN"), "{name} {value}");
            }
        }
    }

    #[test]
    fn percent_never_rounds_something_to_nothing() {
        assert_eq!(
            [0.0, -0.0, 1e-9, 0.003, 0.052, 0.993, -0.12, 1.0 / 0.0].map(percent),
            ["0 %", "0 %", "< 0.01 %", "0.30 %", "5.2 %", "99 %", "-12 %", "-"]
        );
    }

    #[test]
    fn names_contain_their_units() {
        let detail = |name, value| {
            let (label, text) = named(name, value);
            format!("{label}: {text}")
        };
        assert_eq!(detail("index_seconds", 0.218), "index: 0.2 s");
        assert_eq!(detail("table_bytes_on_disk", 352_518_144.0), "table on disk: 353 MB");
        assert_eq!(detail("generator_bytes_per_s", 2.39e9), "generator: 2.39 GB/s");
        assert_eq!(detail("sleep_late_us_p99", 123.0), "sleep late p99: 123 us");
        assert_eq!(detail("clock_reading_ns", 28.606), "clock reading: 28.6 ns");
        assert_eq!(detail("bytes", 1.1e9), "bytes: 1.10 GB");
        assert_eq!(detail("chunks", 1200.0), "chunks: 1,200");
        assert_eq!(detail("ratio", 0.5), "ratio: 0.50");
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
