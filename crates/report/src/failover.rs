//! What faults cost, over all repeats of a proof: a line on the terminal, a table on the page.

use crate::html::markup::{Cell, Row, table};
use record::number;
use record::promise::{Failover, Promise, Spread};

/// `5 repeats, min / median / max: 0 / 0 / 3 lost commits, RTO of writes 9.10 s / 9.40 s / 11.2 s, ...`; empty: nothing was measured.
pub(crate) fn line(failover: &Failover) -> String {
    let mut words = vec![format!("{} lost commits", spread(&failover.lost_commits, count))];
    let more = [
        ("RPO", failover.rpo_us.as_ref(), number::latency as fn(f64) -> String),
        ("RTO of writes", failover.rto_write_us.as_ref(), number::latency),
        ("of reads", failover.rto_read_us.as_ref(), number::latency),
        ("downtime of writes", failover.downtime_write_percent.as_ref(), percent),
        ("of reads", failover.downtime_read_percent.as_ref(), percent),
    ];
    words.extend(
        more.into_iter().filter_map(|(name, value, form)| Some(format!("{name} {}", spread(value?, form)))),
    );
    let repeats = match failover.repeats {
        1 => "1 repeat".to_owned(),
        repeats => format!("{}, min / median / max", number::counted(repeats, "repeat")),
    };
    format!("{repeats}: {}", words.join(", "))
}

/// Three values, or one where there is only one.
fn spread(spread: &Spread, form: fn(f64) -> String) -> String {
    let values = match (spread.min, spread.median, spread.max) {
        (Some(only), Some(_), Some(_)) if spread.n - spread.never == 1 => form(only),
        (Some(min), Some(median), Some(max)) => {
            format!("{} / {} / {}", form(min), form(median), form(max))
        }
        _ => String::new(),
    };
    match spread.never {
        0 => values,
        never if values.is_empty() => format!("never in {}", number::count(never)),
        never => format!("{values} (never in {} of {})", number::count(never), number::count(spread.n)),
    }
}

fn count(value: f64) -> String {
    if value.fract() == 0.0 { number::count(value as u64) } else { format!("{value:.1}") }
}

fn percent(value: f64) -> String {
    format!("{value:.1} %")
}

/// The table of all lines that measured a failover; nothing without one.
pub(crate) fn section(out: &mut String, promises: &[&Promise]) {
    let rows: Vec<Row> = promises.iter().filter_map(|one| Some(row(one, one.failover.as_ref()?))).collect();
    if rows.is_empty() {
        return;
    }
    let head = [
        ("workload", true),
        ("setting", true),
        ("fault", true),
        ("repeats", false),
        ("lost commits (RPO)", false),
        ("RPO as a time", false),
        ("RTO of writes", false),
        ("RTO of reads", false),
        ("downtime of writes", false),
        ("downtime of reads", false),
    ];
    table(out, "Failover: min / median / max over the repeats", &head, &rows);
}

fn row(promise: &Promise, failover: &Failover) -> Row {
    let cell = |value: Option<&Spread>, form: fn(f64) -> String| {
        Cell::number(value.map(|value| spread(value, form)).unwrap_or_default())
    };
    Row::new(vec![
        Cell::word(&promise.workload),
        Cell::words(&promise.setting),
        Cell::words(&promise.fault),
        Cell::number(number::count(failover.repeats)),
        cell(Some(&failover.lost_commits), count),
        cell(failover.rpo_us.as_ref(), number::latency),
        cell(failover.rto_write_us.as_ref(), number::latency),
        cell(failover.rto_read_us.as_ref(), number::latency),
        cell(failover.downtime_write_percent.as_ref(), percent),
        cell(failover.downtime_read_percent.as_ref(), percent),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failover() -> Failover {
        Failover {
            repeats: 3,
            lost_commits: Spread::of([0.0, 0.0, 12.0].map(Some)),
            rto_write_us: Some(Spread::of([Some(9_100_000.0), None, Some(11_000_000.0)])),
            downtime_write_percent: Some(Spread::of([10.0, 20.0, 31.25].map(Some))),
            ..Failover::default()
        }
    }

    #[test]
    fn a_line_holds_every_measure_with_its_spread() {
        let line = line(&failover());
        assert_eq!(
            line,
            "3 repeats, min / median / max: 0 / 0 / 12 lost commits, RTO of writes 9.10 s / 10.1 s / 11 s (never in 1 of 3), \
             downtime of writes 10.0 % / 20.0 % / 31.2 %"
        );
    }

    #[test]
    fn one_repeat_is_no_distribution() {
        let one = Failover {
            repeats: 1,
            lost_commits: Spread::of([Some(2.0)]),
            rto_write_us: Some(Spread::of([None])),
            ..Failover::default()
        };
        assert_eq!(super::line(&one), "1 repeat: 2 lost commits, RTO of writes never in 1");
    }

    #[test]
    fn the_page_has_a_table_only_where_there_was_a_failover() {
        let calm = Promise::default();
        let moved = Promise { failover: Some(failover()), fault: "kill -9".into(), ..Promise::default() };
        let (mut without, mut with) = (String::new(), String::new());
        section(&mut without, &[&calm]);
        section(&mut with, &[&calm, &moved]);
        assert!(without.is_empty());
        assert!(with.contains("0 / 0 / 12") && with.contains("kill -9"), "{with}");
    }
}
