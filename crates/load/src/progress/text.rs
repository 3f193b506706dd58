//! A snapshot as one line of text: short for a terminal that redraws it, complete for a log.

use record::number;

use super::{Phase, Progress};

/// One line for a terminal `width` characters wide. What matters least stands last and is left out first.
///
/// ```text
/// load  38.2 %  382 MB/1.02 GB  now 112 MB/s  mean 108 MB/s  99.8k rows/s  eta 6.0 s  chunks 5/12  slowest #1 40k (median 52k)
/// ```
pub fn line(progress: &Progress, width: usize) -> String {
    let mut line = String::from("load");
    for part in parts(progress) {
        // Two blanks between parts.
        if line.chars().count() + 2 + part.chars().count() > width {
            break;
        }
        line.push_str("  ");
        line.push_str(&part);
    }
    line
}

fn parts(progress: &Progress) -> Vec<String> {
    let mut parts = Vec::new();
    let percent = progress.percent.map(|percent| format!("{percent:.1} %"));
    if progress.phase == Phase::Copy {
        parts.extend(percent);
        parts.push(format!(
            "{}/{}",
            number::bytes(progress.bytes_done() as f64),
            number::bytes(progress.bytes_total() as f64)
        ));
        if progress.streams_connected < progress.streams {
            parts.push(format!("{} of {} streams connected", progress.streams_connected, progress.streams));
        }
        parts.push(format!("now {}/s", number::bytes(progress.bytes_per_s_now())));
        parts.push(format!("mean {}/s", number::bytes(progress.bytes_per_s_mean())));
        parts.push(format!("{} rows/s", number::short(progress.rows_per_s_now)));
        parts.extend(progress.eta.map(|eta| format!("eta {}", number::duration(eta.as_secs_f64().round()))));
        parts.push(format!("chunks {}/{}", progress.chunks_done, progress.chunks_total));
        if progress.retries > 0 {
            parts.push(format!("retries {}", progress.retries));
        }
        parts.extend(progress.slowest_node.as_ref().map(|node| {
            format!(
                "slowest {} {} rows/s (others {})",
                node.name,
                number::short(node.rows_per_s),
                number::short(node.others_rows_per_s)
            )
        }));
        let of_one_node = progress.slowest.filter(|_| progress.slowest_node.is_none());
        parts.extend(of_one_node.map(|slowest| {
            format!(
                "slowest #{} {} rows/s (median {})",
                slowest.index,
                number::short(slowest.rows_per_s),
                number::short(slowest.median_rows_per_s)
            )
        }));
    } else {
        parts.push(phase_name(progress.phase).to_owned());
        parts.extend(percent);
        parts.push(number::duration(progress.elapsed.as_secs_f64().round()));
    }
    parts
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Schema => "tables",
        Phase::Copy => "rows",
        Phase::Index => "primary keys",
        Phase::Analyze => "statistics",
    }
}

/// One line for a log, in the manner of `pgbench -P`: everything, with units, nothing redrawn.
pub fn plain(progress: &Progress) -> String {
    let mut line = format!("progress: {:.1} s, {}", progress.elapsed.as_secs_f64(), progress.phase.as_str());
    if let Some(percent) = progress.percent {
        line.push_str(&format!(" {percent:.1} %"));
    }
    if progress.phase != Phase::Copy {
        return line;
    }
    line.push_str(&format!(
        ", {} of {} rows, now {} rows/s {}/s, mean {} rows/s {}/s, chunks {}/{}",
        progress.rows_done,
        progress.rows_total,
        number::short(progress.rows_per_s_now),
        number::bytes(progress.bytes_per_s_now()),
        number::short(progress.rows_per_s_mean),
        number::bytes(progress.bytes_per_s_mean()),
        progress.chunks_done,
        progress.chunks_total
    ));
    if let Some(eta) = progress.eta {
        line.push_str(&format!(", eta {}", number::duration(eta.as_secs_f64().round())));
    }
    if progress.streams_connected < progress.streams {
        line.push_str(&format!(", {} of {} streams connected", progress.streams_connected, progress.streams));
    }
    if progress.retries > 0 {
        line.push_str(&format!(", retries {}", progress.retries));
    }
    if let Some(node) = &progress.slowest_node {
        line.push_str(&format!(
            ", slowest node {} at {} rows/s (median of the others {})",
            node.name,
            number::short(node.rows_per_s),
            number::short(node.others_rows_per_s)
        ));
    }
    if let Some(slowest) = progress.slowest {
        line.push_str(&format!(
            ", slowest stream {} at {} rows/s (median {})",
            slowest.index,
            number::short(slowest.rows_per_s),
            number::short(slowest.median_rows_per_s)
        ));
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{SlowestNode, SlowestStream};
    use super::*;

    fn copying() -> Progress {
        Progress {
            phase: Phase::Copy,
            elapsed: Duration::from_millis(3_750),
            percent: Some(38.24),
            rows_done: 373_777,
            rows_total: 1_000_000,
            rows_earlier: 0,
            row_bytes: 1022,
            rows_per_s_now: 109_589.0,
            rows_per_s_mean: 105_675.0,
            eta: Some(Duration::from_secs(6)),
            chunks_done: 5,
            chunks_total: 12,
            streams: 2,
            streams_connected: 2,
            retries: 0,
            slowest: Some(SlowestStream { index: 1, rows_per_s: 40_000.0, median_rows_per_s: 52_000.0 }),
            slowest_node: None,
        }
    }

    #[test]
    fn on_a_cluster_the_slowest_node_is_named() {
        let slowest = SlowestNode { name: "n4".into(), rows_per_s: 3_500.0, others_rows_per_s: 15_000.0 };
        let progress = Progress { slowest_node: Some(slowest), ..copying() };
        assert!(line(&progress, 200).ends_with("chunks 5/12  slowest n4 3,500 rows/s (others 15k)"));
        assert!(plain(&progress).contains(
            ", slowest node n4 at 3,500 rows/s (median of the others 15k), slowest stream 1 at 40k rows/s"
        ));
    }

    #[test]
    fn a_terminal_line_shows_everything_that_fits() {
        assert_eq!(
            line(&copying(), 200),
            "load  38.2 %  382 MB/1.02 GB  now 112 MB/s  mean 108 MB/s  110k rows/s  eta 6.0 s  chunks 5/12  \
             slowest #1 40k rows/s (median 52k)"
        );
        assert_eq!(
            line(&copying(), 79),
            "load  38.2 %  382 MB/1.02 GB  now 112 MB/s  mean 108 MB/s  110k rows/s"
        );
        assert_eq!(line(&copying(), 3), "load");
        for width in 4..200 {
            assert!(line(&copying(), width).len() <= width);
        }
    }

    #[test]
    fn trouble_is_shown_before_rates() {
        let progress = Progress { streams_connected: 0, retries: 3, ..copying() };
        assert!(line(&progress, 60).contains("0 of 2 streams connected"));
        assert!(plain(&progress).contains(", 0 of 2 streams connected, retries 3"));
    }

    #[test]
    fn a_log_line_is_complete() {
        assert_eq!(
            plain(&copying()),
            "progress: 3.8 s, copy 38.2 %, 373777 of 1000000 rows, now 110k rows/s 112 MB/s, mean 106k rows/s 108 MB/s, \
             chunks 5/12, eta 6.0 s, slowest stream 1 at 40k rows/s (median 52k)"
        );
    }

    #[test]
    fn other_phases_say_what_they_are() {
        let progress = Progress { phase: Phase::Index, percent: Some(40.0), ..copying() };
        assert_eq!(line(&progress, 80), "load  primary keys  40.0 %  4.0 s");
        assert_eq!(plain(&progress), "progress: 3.8 s, index 40.0 %");
        let progress = Progress { phase: Phase::Analyze, percent: None, ..copying() };
        assert_eq!(line(&progress, 80), "load  statistics  4.0 s");
    }
}
