//! Numbers in sentences, under the names that the rules use.

pub(crate) use record::number::{
    bytes, duration as seconds, latency as us, percent, short as count, three as short,
};

/// `1 second`, `3 seconds`: a count with its word.
pub(crate) fn counted(count: usize, word: &str) -> String {
    record::number::counted(count as u64, word)
}

/// `1 CPU`, `0.5 CPUs`.
pub(crate) fn counted_cpus(cpus: f64) -> String {
    format!("{} {}", short(cpus), if cpus == 1.0 { "CPU" } else { "CPUs" })
}

/// A setting as the server writes it, in bytes, in milliseconds or as a plain number: `1GB`, `16kB`, `15min`, `250ms`, `0.9`, `-1`.
pub(crate) fn setting(text: &str) -> Option<f64> {
    const KIB: f64 = 1024.0;
    let text = text.trim();
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let factor = match &text[unit..] {
        "" | "B" | "ms" => 1.0,
        "kB" => KIB,
        "MB" => KIB.powi(2),
        "GB" => KIB.powi(3),
        "TB" => KIB.powi(4),
        "us" => 1e-3,
        "s" => 1e3,
        "min" => 60e3,
        "h" => 3_600e3,
        "d" => 86_400e3,
        _ => return None,
    };
    text[..unit].trim().parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::setting;

    #[test]
    fn settings_are_numbers_in_one_unit() {
        assert_eq!(setting("4MB"), setting("4096kB"));
        assert_eq!((setting("15min"), setting("250us")), (Some(900e3), Some(0.25)));
        assert_eq!(
            (setting("0.9"), setting("-1"), setting("1 GB")),
            (Some(0.9), Some(-1.0), Some(1_073_741_824.0))
        );
        assert_eq!((setting("on"), setting(""), setting("4 XB"), setting("9é")), (None, None, None, None));
    }
}
