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
    // Four sessions were seen waiting, and counters leave room for two: the other two had been woken and had no CPU.
    assert_eq!((figure(&time, ON_CPU), figure(&time, FOR_CPU)), (2.0, 2.0));
    assert_eq!(
        (figure(&time, "reading"), figure(&time, "WAL and commit"), figure(&time, "locks")),
        (2.0, 1.0, 1.0)
    );
    let woken: Vec<f64> = time.parts.iter().filter_map(|part| part.woken).collect();
    assert_eq!(woken.iter().sum::<f64>(), 2.0, "{time:?}");
    assert_eq!(figure(&time, CPU), 0.0, "the scheduler has counted it");
    assert_eq!(figure(&time, UNACCOUNTED), 0.0);
    assert!(time.parts[0].sessions >= time.parts[1].sessions, "the largest first");
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
    assert_eq!((time.active, figure(&time, UNACCOUNTED), figure(&time, "reading")), (4.0, 0.0, 1.0));
    assert_eq!((figure(&time, ON_CPU), figure(&time, FOR_CPU)), (1.0, 2.0));
}

/// Sessions that queue for a row on full CPUs: nearly all of their time is the queue, although the scheduler counts most of it as waiting for a CPU.
#[test]
fn a_lock_queue_on_full_cpus_is_a_lock_queue() {
    let recording = Recording {
        seconds: 20,
        active_ms: Some(10_000.0),
        run_wait_ms: Some((2_000.0, 6_000.0)),
        waits: vec![("CPU", "CPU", 4), ("Lock", "transactionid", 6)],
    };
    let time = only(&recording.case(&[]));
    assert_eq!((figure(&time, "locks"), figure(&time, FOR_CPU), figure(&time, ON_CPU)), (6.0, 2.0, 2.0));
    let case = recording.case(&[]);
    let is_lock = |kind: &str, _: &str| kind == "Lock";
    assert_eq!(share_waiting(&case, "n1", is_lock), Some(0.6));
    let without = share_of(&case, "n1", is_lock).expect("known");
    assert!((without - 0.2).abs() < 1e-9, "without those that were woken: {without}");
}

/// With a session for each request hardly any process is there at two looks: what they computed is in the kernel's count of those that ended.
#[test]
fn sessions_that_ended_computed_for_what_nothing_else_explains() {
    let recording = Recording {
        seconds: 20,
        active_ms: Some(1_000.0),
        run_wait_ms: Some((100.0, 0.0)),
        waits: vec![("CPU", "CPU", 1)],
    };
    for (ended_us, on_cpu, unaccounted) in [(0, 0.1, 0.9), (700_000, 0.8, 0.2), (5_000_000, 1.0, 0.0)] {
        let line = serde_json::json!({"t_us": 20_000_000, "interval_us": 1_000_000, "source": "schedule", "host": "h", "node": "n1", "who": "backends",
            "tasks": 0, "looked": 0, "ended_us": ended_us});
        let time = only(&recording.case(&[&line.to_string()]));
        assert_eq!((figure(&time, ON_CPU), figure(&time, UNACCOUNTED)), (on_cpu, unaccounted), "{ended_us}");
    }
}

/// Parallel workers end before the next look: they wait for a CPU as long as the sessions that were read, as far as samples show them without a wait.
#[test]
fn processes_that_ended_waited_for_a_cpu_as_the_others_did() {
    let recording = |computing| Recording {
        seconds: 20,
        active_ms: Some(8_000.0),
        run_wait_ms: Some((500.0, 2_000.0)),
        waits: vec![("CPU", "CPU", computing)],
    };
    for (computing, waiting, unaccounted) in [(8, 6.0, 0.5), (4, 2.5, 4.0)] {
        let line = serde_json::json!({"t_us": 20_000_000, "interval_us": 1_000_000, "source": "schedule", "host": "h", "node": "n1", "who": "backends",
            "tasks": 0, "looked": 0, "ended_us": 1_000_000});
        let time = only(&recording(computing).case(&[&line.to_string()]));
        assert_eq!(
            (figure(&time, FOR_CPU), figure(&time, UNACCOUNTED)),
            (waiting, unaccounted),
            "{computing}"
        );
    }
}

/// Of what sessions waited for a CPU, the part before a statement was read is in no sample; it follows from the number of statements.
#[test]
fn the_wait_before_a_statement_is_read_follows_from_the_turns() {
    let scheduled = Scheduled { run: 2.0, wait: 6.0, ended: 0.0, turns_per_s: Some(3_000.0) };
    assert_eq!(scheduled.unread(9.0, 3.0, Some(1_000.0)), 2.0);
    assert_eq!(scheduled.unread(9.0, 3.0, None), 0.0, "not less than nothing");
    assert_eq!(scheduled.unread(5.0, 3.0, None), 3.0, "more ran and wanted to than were active");
    assert_eq!(scheduled.unread(9.0, 7.0, Some(9_000.0)), 1.0, "those that computed wanted a CPU as well");
}

#[test]
fn an_execution_with_parallel_workers_is_more_than_its_session() {
    let recording = Recording {
        seconds: 10,
        active_ms: Some(1_000.0),
        run_wait_ms: Some((3_000.0, 0.0)),
        waits: vec![("CPU", "CPU", 1)],
    };
    let at = |second: u64| format!(r#""t_us":{},"interval_us":10000000"#, second * 1_000_000);
    let mut lines = vec![format!(
        r#"{{{},"source":"statement","node":"n1","query_id":"42","calls":10,"total_ms":10000}}"#,
        at(10)
    )];
    for second in 1..=10 {
        lines.push(format!(
            r#"{{"t_us":{},"source":"wait","node":"n1","backend":"parallel worker","state":"active","wait_type":"CPU","wait_event":"CPU","query_id":"42","sessions":2}}"#,
            second * 1_000_000
        ));
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let time = only(&recording.case(&lines));
    assert_eq!((time.statements[0].sessions, time.statements[0].share), (3.0, 1.0));
}

#[test]
fn the_time_is_shared_out_by_relation_and_by_who_the_sessions_belong_to() {
    let recording = Recording {
        seconds: 10,
        active_ms: Some(4_000.0),
        run_wait_ms: Some((2_000.0, 0.0)),
        waits: vec![("CPU", "CPU", 2), ("Lock", "relation", 2)],
    };
    let at = r#""t_us":9000000,"interval_us":9000000"#;
    let mut lines = vec![
        format!(r#"{{{at},"source":"table","node":"n1","relation":"a","blocks_hit":300,"blocks_read":0}}"#),
        format!(r#"{{{at},"source":"table","node":"n1","relation":"b","blocks_hit":50,"blocks_read":50}}"#),
    ];
    for (application, sessions) in [("shop", 3), ("", 1)] {
        lines.push(format!(
            r#"{{"t_us":9000000,"source":"activity","node":"n1","application":"{application}","user":"u","database":"d","client":"local","sessions":{sessions}}}"#
        ));
    }
    lines.push(
        r#"{"t_us":9000000,"source":"block","node":"n1","pid":5,"blocked_by":4,"root":4,"wait_s":3.0}"#
            .to_string(),
    );
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let time = only(&recording.case(&lines));
    let of = |name: &str| time.by.iter().find(|by| by.name == name).map(|by| by.shares.clone());
    assert_eq!(of("relation"), Some(vec![("a".to_string(), 0.375), ("b".to_string(), 0.125)]));
    assert_eq!(of("application"), Some(vec![("shop".to_string(), 0.75), ("(none)".to_string(), 0.25)]));
    assert_eq!(of("lock root"), Some(vec![("session 4".to_string(), 0.025)]));
    assert_eq!(of("client host").map(|shares| shares.len()), Some(1));
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

/// A procedure of 53 s ends in the tenth second: at most ten of them are of this time, and samples saw it at work in two.
#[test]
fn what_began_before_the_recording_counts_as_far_as_it_lies_in_it() {
    let recording = Recording {
        seconds: 12,
        active_ms: Some(6_000.0),
        run_wait_ms: None,
        waits: vec![("CPU", "CPU", 2)],
    };
    let seen = |second: u64| {
        format!(
            concat!(
                r#"{{"t_us":{},"interval_us":1000000,"source":"wait","node":"n1","backend":"client backend","#,
                r#""state":"active","wait_type":"CPU","wait_event":"CPU","query_id":"77","sessions":1}}"#
            ),
            second * 1_000_000
        )
    };
    let counted = |query_id: &str, calls: u64, total_ms: u64| {
        format!(
            concat!(
                r#"{{"t_us":10000000,"interval_us":10000000,"source":"statement","node":"n1","database":"db","#,
                r#""query_id":"{}","calls":{},"total_ms":{}}}"#
            ),
            query_id, calls, total_ms
        )
    };
    let lines = [seen(1), seen(2), counted("77", 1, 53_000), counted("42", 900, 19_000)];
    let time = only(&recording.case(&lines.each_ref().map(String::as_str)));
    assert!((2.1..2.5).contains(&time.active), "{}", time.active);
    let of = |id: &str| time.statements.iter().find(|one| one.query_id == id).map_or(0.0, |one| one.sessions);
    assert!((1.8..2.0).contains(&of("42")) && of("77") <= 0.25, "{:?}", time.statements);
    assert!(time.notes.iter().any(|note| note.contains("began before")), "{:?}", time.notes);
    // One that began in this time has all of it.
    let lines = [counted("77", 2, 18_000), counted("42", 900, 19_000)];
    let time = only(&recording.case(&lines.each_ref().map(String::as_str)));
    assert_eq!((time.active, time.notes.iter().any(|note| note.contains("began before"))), (6.0, false));
}

/// A recording may come from anywhere: no number in it ends the program.
#[test]
fn numbers_that_no_scheduler_counts_are_survived() {
    for run_wait_ms in [(-2_000.0, -4_000.0), (1e300, -1e300), (-1e300, 1e300), (0.0, -1.0)] {
        for active_ms in [None, Some(-8_000.0), Some(1e300)] {
            let waits = vec![("CPU", "CPU", 5), ("IO", "DataFileRead", 2)];
            let recording = Recording { seconds: 20, active_ms, run_wait_ms: Some(run_wait_ms), waits };
            let found = all(&recording.case(&[])).to_vec();
            assert!(found.len() <= 1, "{found:?}");
        }
    }
}
