use super::*;

/// A recording of these seconds: the server's own count of active sessions, the scheduler's, and sampled waits (kind, event, sessions).
struct Recording {
    seconds: u64,
    active_ms: Option<f64>,
    run_wait_ms: Option<(f64, f64)>,
    waits: Vec<(&'static str, &'static str, u64)>,
}

impl Recording {
    fn case(&self, more: &[&str]) -> Case {
        let mut lines = vec![];
        for second in 1..=self.seconds {
            let at = format!(r#""t_us":{},"interval_us":1000000"#, second * 1_000_000);
            let active = self.active_ms.map_or(String::new(), |ms| format!(r#","active_ms":{ms}"#));
            lines.push(format!(
                r#"{{{at},"source":"server","node":"n1"{active},"idle_in_transaction_ms":500}}"#
            ));
            if let Some((run_ms, wait_ms)) = self.run_wait_ms {
                lines.push(format!(
                    r#"{{{at},"source":"schedule","host":"h","node":"n1","who":"backends","tasks":8,"looked":4,"run_us":{},"wait_us":{}}}"#,
                    run_ms * 500.0,
                    wait_ms * 500.0
                ));
            }
            for (kind, event, sessions) in &self.waits {
                lines.push(format!(
                    r#"{{{at},"source":"wait","node":"n1","backend":"client backend","state":"active","wait_type":"{kind}","wait_event":"{event}","query_id":"42","sessions":{sessions}}}"#
                ));
            }
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).chain(more.iter().copied()).collect();
        crate::case::fed(&lines)
    }
}

fn only(case: &Case) -> NodeTime {
    let mut all = all(case).to_vec();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn figure(time: &NodeTime, name: &str) -> f64 {
    let part = time.parts.iter().find(|part| part.name == name);
    part.map_or(0.0, |part| (part.sessions * 100.0).round() / 100.0)
}

#[test]
fn counters_say_how_much_and_samples_in_what_proportion() {
    let recording = Recording {
        seconds: 20,
        active_ms: Some(8_000.0),
        // Half of the processes were read, so the sums are doubled.
        run_wait_ms: Some((2_000.0, 4_000.0)),
        waits: vec![("CPU", "CPU", 5), ("IO", "DataFileRead", 2), ("IO", "WALSync", 1), ("Lock", "tuple", 1)],
    };
    let time = only(&recording.case(&[]));
    assert_eq!((time.active, time.idle_in_transaction, time.seconds, time.samples), (8.0, 0.5, 20.0, 20));
    assert!(time.is_counted);
    assert_eq!((figure(&time, ON_CPU), figure(&time, FOR_CPU)), (2.0, 4.0));
    // Four sessions were seen waiting, and counters leave room for two.
    assert_eq!(
        (figure(&time, "reading"), figure(&time, "WAL and commit"), figure(&time, "locks")),
        (1.0, 0.5, 0.5)
    );
    assert_eq!(figure(&time, CPU), 0.0, "the scheduler has counted it");
    assert_eq!(figure(&time, UNACCOUNTED), 0.0);
    assert_eq!(time.parts[0].name, FOR_CPU, "the largest first");
    let all: f64 = time.parts.iter().map(|part| part.sessions).sum();
    assert!((all - time.active).abs() < 1e-9, "{time:?}");
}

#[test]
fn what_nothing_explains_is_a_part_and_never_negative() {
    let recording = Recording {
        seconds: 10,
        active_ms: Some(3_000.0),
        run_wait_ms: Some((500.0, 0.0)),
        waits: vec![("IO", "DataFileRead", 1)],
    };
    let time = only(&recording.case(&[]));
    assert_eq!((time.active, figure(&time, "reading"), figure(&time, UNACCOUNTED)), (3.0, 1.0, 1.5));
    assert_eq!(time.parts.last().map(|part| part.name.as_str()), Some(UNACCOUNTED));
    // Processes that the scheduler has seen at work for longer than the server counted have worked nevertheless.
    let late = Recording { active_ms: Some(1_000.0), run_wait_ms: Some((1_000.0, 3_000.0)), ..recording };
    let time = only(&late.case(&[]));
    assert_eq!((time.active, figure(&time, UNACCOUNTED), figure(&time, "reading")), (4.0, 0.0, 0.0));
}

#[test]
fn without_counters_the_samples_are_the_measure() {
    let recording = Recording {
        seconds: 10,
        active_ms: None,
        run_wait_ms: None,
        waits: vec![("CPU", "CPU", 3), ("Timeout", "PgSleep", 1)],
    };
    let time = only(&recording.case(&[]));
    assert_eq!((time.active, time.is_counted), (4.0, false));
    assert_eq!((figure(&time, CPU), figure(&time, "sleeping by design")), (3.0, 1.0));
    assert!(time.notes.iter().any(|note| note.contains("are one part")), "{:?}", time.notes);
    // A statement that has not ended is missing in the server's count.
    let long = Recording { active_ms: Some(10.0), ..recording };
    let time = only(&long.case(&[]));
    assert_eq!((time.active, time.is_counted), (4.0, false));
    assert!(time.notes.iter().any(|note| note.contains("when it ends")), "{:?}", time.notes);
    // A glance is no measurement, and an idle server has nothing to share out.
    let glance = Recording { seconds: 2, ..long };
    assert!(all(&glance.case(&[])).is_empty());
    let idle = Recording { seconds: 10, active_ms: Some(0.0), run_wait_ms: None, waits: vec![] };
    assert_eq!(only(&idle.case(&[])).active, 0.0);
}

#[test]
fn statements_are_ranked_by_the_time_that_was_counted_for_them() {
    let recording = Recording {
        seconds: 20,
        active_ms: Some(4_000.0),
        run_wait_ms: None,
        waits: vec![("CPU", "CPU", 3), ("IO", "DataFileRead", 1)],
    };
    let at = |second: u64| format!(r#""t_us":{},"interval_us":10000000"#, second * 1_000_000);
    let (ten, twenty) = (at(10), at(20));
    let statements = [
        format!(
            r#"{{{ten},"source":"statement","node":"n1","database":"shop","query_id":"42","calls":100,"total_ms":30000,"rows":100,"shared_hit":900,"shared_read":100,"temp_written":50,"wal_bytes":0}}"#
        ),
        // This one ran in one of the two intervals.
        format!(
            r#"{{{twenty},"source":"statement","node":"n1","database":"shop","query_id":"7","calls":10,"total_ms":10000,"plan_ms":2000,"rows":0}}"#
        ),
        format!(
            r#"{{{twenty},"source":"statement","node":"n1","database":"shop","query_id":"42","calls":100,"total_ms":30000,"rows":100,"shared_hit":900,"shared_read":100,"temp_written":50,"wal_bytes":0}}"#
        ),
        format!(
            r#"{{{twenty},"source":"statement","node":"n1","database":"shop","query_id":"8","calls":10,"total_ms":1}}"#
        ),
    ];
    let lines: Vec<&str> = statements.iter().map(String::as_str).collect();
    let time = only(&recording.case(&lines));
    let [first, second] = &time.statements[..] else { panic!("{:?}", time.statements) };
    assert_eq!((first.query_id.as_str(), first.database.as_str(), first.is_counted), ("42", "shop", true));
    assert_eq!(
        (first.sessions, first.share, first.calls_per_s, first.mean_ms),
        (3.0, 0.75, Some(10.0), Some(300.0))
    );
    assert_eq!((first.rows, first.blocks, first.blocks_read), (Some(1.0), Some(10.0), Some(1.0)));
    assert_eq!(first.temp_bytes, Some(0.5 * BLOCK_BYTES));
    assert_eq!(first.events, [("CPU".to_string(), 0.75), ("IO:DataFileRead".to_string(), 0.25)]);
    assert_eq!((second.query_id.as_str(), second.sessions, second.plan_ms), ("7", 0.6, Some(200.0)));
    // Without the extension the samples name the statement.
    let time = only(&recording.case(&[]));
    assert_eq!(
        (time.statements.len(), time.statements[0].sessions, time.statements[0].is_counted),
        (1, 4.0, false)
    );
}
