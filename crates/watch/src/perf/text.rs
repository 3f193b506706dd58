//! The text of `perf script`, cut by time: a dump of the ring contains normal seconds and odd ones.

/// The samples from `from_us` on and before `to_us` of the host's monotonic clock. Samples are separated by empty lines; each begins
/// with a line that holds its time, `postgres 41235/41235 [007] 81234.501000: cpu-clock:`.
pub(super) fn between(text: &[u8], from_us: u64, to_us: u64) -> Vec<u8> {
    let mut kept = vec![];
    let mut at = 0;
    while at < text.len() {
        let end =
            text[at..].windows(2).position(|pair| pair == b"\n\n").map_or(text.len(), |end| at + end + 2);
        let sample = &text[at..end];
        if time_us(sample).is_some_and(|t_us| (from_us..to_us).contains(&t_us)) {
            kept.extend_from_slice(sample);
        }
        at = end;
    }
    kept
}

/// The time in a sample's first line. The name of a program may contain anything, so the search begins at the end.
fn time_us(sample: &[u8]) -> Option<u64> {
    let line = sample.split(|byte| *byte == b'\n').find(|line| !line.is_empty())?;
    let line = String::from_utf8_lossy(line);
    line.split_ascii_whitespace().rev().find_map(|word| {
        let (seconds, part) = word.strip_suffix(':')?.split_once('.')?;
        let micros: u64 = format!("{part:0<6}").get(..6)?.parse().ok()?;
        seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)
    })
}

/// Cuts behind the last whole sample.
pub(super) fn truncate(text: &mut Vec<u8>) {
    let end = text.windows(2).rposition(|pair| pair == b"\n\n").map_or(0, |at| at + 2);
    text.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "postgres 1/1 [000] 10.500000: cpu-clock:\n\tff a (b)\n\na 5.5: b 2/2 [001] 11.25: cpu-clock:\n\tff c (d)\n\n\
                        swapper 0/0 [001] 12.000001: cpu-clock:\n\tff e (f)\n\n";

    #[test]
    fn samples_are_cut_by_their_time_and_not_by_what_a_program_calls_itself() {
        let cut = |from, to| String::from_utf8(between(TEXT.as_bytes(), from, to)).expect("text");
        assert_eq!(cut(0, u64::MAX), TEXT);
        assert_eq!(cut(10_500_000, 11_250_000).matches("cpu-clock").count(), 1);
        assert!(cut(10_500_001, 12_000_001).starts_with("a 5.5: b 2/2"));
        assert_eq!(cut(12_000_002, u64::MAX), "");
        assert_eq!(String::from_utf8_lossy(&between(b"torn", 0, 1)), "");
        let mut torn = TEXT.as_bytes()[..TEXT.len() - 3].to_vec();
        truncate(&mut torn);
        assert_eq!(torn, between(TEXT.as_bytes(), 0, 12_000_000));
    }
}
