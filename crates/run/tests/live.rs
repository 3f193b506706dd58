//! Drives real servers: every PostgreSQL found on this machine, each on a throwaway cluster of its own.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;
use std::time::Duration;

use data::ycsb::{Compressible, KeyOrder, Spec, Table};
use lab::throwaway::{Installation, StopMode, Throwaway, installations};
use record::clock::monotonic_ns;
use run::client::Exception;
use run::control::StopFlag;
use run::dial::TargetDial;
use run::drive::{Account, DriveError, Observer, Options, Second, drive};
use run::engine::Nanos;
use run::engine::poller::Choice;
use run::schedule::Pace;
use run::script::{Mix, Options as ScriptOptions, Predefined, QueryMode, Source};
use run::workload::script::Scripts;
use run::workload::{self, Workload};
use wire::prepared::Wire;
use workloads::ycsb::mixes::CORE;
use workloads::ycsb::run::Ycsb;

const ROWS: u64 = 500;

/// Runs `test` on every installation, in parallel.
fn on_each(test: impl Fn(&Installation, Throwaway) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            scope.spawn(move || test(installation, Throwaway::start(installation, &[]).unwrap()));
        }
    });
}

fn table() -> Table {
    Table::new(Spec { seed: 5, key_order: KeyOrder::Scattered, compressible: Compressible::default() })
}

fn fill(cluster: &Throwaway) {
    let fields: Vec<String> = (0..10).map(|field| format!("field{field} varchar(100)")).collect();
    let mut sql =
        format!("create table usertable (ycsb_key varchar(64) primary key, {});", fields.join(", "));
    let table = table();
    let mut values = [[0; 100]; 10];
    for row in 0..ROWS {
        table.row_fields(row, &mut values);
        let text = |bytes: &[u8]| format!("'{}'", std::str::from_utf8(bytes).unwrap());
        let fields: Vec<String> = values.iter().map(|value| text(value)).collect();
        sql.push_str(&format!(
            "insert into usertable values ({}, {});",
            text(&table.key(row)),
            fields.join(", ")
        ));
    }
    cluster.execute(&sql).unwrap();
}

fn ycsb(name: &str, sessions: u64) -> workload::Mix<Ycsb> {
    let core = CORE.iter().find(|core| core.builtin.name == name).unwrap();
    workload::Mix::of(Ycsb::new(table(), ROWS, ROWS, sessions, 1).with_items(core.items(1, None))).unwrap()
}

fn script(text: &str, mode: QueryMode) -> workload::Mix<Scripts> {
    let source = Source { name: "test.sql".into(), text: text.into(), weight: 1 };
    let mix = Mix::compile(&[source], &ScriptOptions { mode, defines: Vec::new() }).unwrap();
    let predefined = Predefined { client_id: 0, scale: 1, random_seed: 1, default_seed: 1 };
    workload::Mix::of(Scripts::new(Arc::new(mix), mode, predefined)).unwrap()
}

fn options<W: Workload>(mix: workload::Mix<W>) -> Options<W> {
    Options {
        mix,
        sessions: 4,
        workers: 2,
        pace: Pace::Closed,
        duration: Some(Duration::from_millis(1_200)),
        warmup: Duration::ZERO,
        transactions_per_session: None,
        latency_limit: None,
        tries_max: 10,
        wire: Wire::Libpq,
        poller: Choice::Auto,
        seed: 3,
        connects: Default::default(),
        first_session: 0,
    }
}

#[derive(Default)]
struct Watch {
    begun: bool,
    seconds: Vec<(Nanos, Nanos, u64)>,
    /// Called with each second's end.
    then: Option<Box<dyn FnMut(usize)>>,
}

impl Observer for Watch {
    fn begins(&mut self, begin: Nanos) {
        assert!(begin > monotonic_ns() - 1_000_000_000);
        self.begun = true;
    }

    fn second(&mut self, second: &Second<'_>) {
        let done = second.posted.measured.transactions() + second.posted.warmup.transactions();
        self.seconds.push((second.from, second.to, done));
        if let Some(then) = &mut self.then {
            then(self.seconds.len());
        }
    }
}

fn run<W: Workload>(cluster: &Throwaway, options: Options<W>) -> Result<Account, DriveError> {
    drive(options, Arc::new(TargetDial::new(cluster.spec())), &StopFlag::default(), &mut Watch::default())
}

fn committed(account: &Account) -> u64 {
    account.posted.measured.transactions()
}

#[test]
fn every_ycsb_workload_runs_clean_in_both_wire_modes() {
    on_each(|_, cluster| {
        fill(&cluster);
        for builtin in CORE.iter().map(|core| core.builtin) {
            for wire in [Wire::Libpq, Wire::Lean] {
                let count = 50;
                let options = Options {
                    duration: None,
                    transactions_per_session: Some(count),
                    wire,
                    ..options(ycsb(builtin.name, 4))
                };
                let account = run(&cluster, options).unwrap();
                assert_eq!(account.posted.errors, [], "{} {}", builtin.name, wire.name());
                assert_eq!(committed(&account), 4 * count);
                assert_eq!(account.scheduled, 4 * count);
                cluster
                    .execute(&format!("delete from usertable where ycsb_key not in ({})", keys()))
                    .unwrap();
            }
        }
    });
}

/// The keys of all loaded rows, quoted.
fn keys() -> String {
    let table = table();
    (0..ROWS)
        .map(|row| format!("'{}'", String::from_utf8(table.key(row).to_vec()).unwrap()))
        .collect::<Vec<_>>()
        .join(",")
}

#[test]
fn a_deleted_row_is_an_error_and_never_a_good_read() {
    on_each(|_, cluster| {
        fill(&cluster);
        cluster.execute("delete from usertable").unwrap();
        let account =
            run(&cluster, Options { transactions_per_session: Some(3), ..options(ycsb("ycsb-c", 4)) })
                .unwrap();
        assert_eq!(committed(&account), 0);
        assert_eq!(account.posted.measured.failed(), 12);
        let error = &account.posted.errors[0];
        assert_eq!((error.sqlstate.as_str(), error.count), ("02000", 12));
        assert!(error.first_message.contains("expected one row with key user"), "{}", error.first_message);
    });
}

#[test]
fn scripts_run_in_every_query_mode() {
    const SCRIPT: &str = "\\set n random(1, 100)\n\
        BEGIN;\n\
        SELECT :n::int + 1 AS sum, 'it''s' AS word, NULL AS nothing \\gset got_\n\
        \\if :got_sum > 50\n  UPDATE counter SET high = high + 1;\n\\else\n  UPDATE counter SET low = low + 1;\n\\endif\n\
        END;\n";
    on_each(|_, cluster| {
        cluster
            .execute("create table counter (low int, high int); insert into counter values (0, 0)")
            .unwrap();
        let mut total = 0;
        for mode in [QueryMode::Simple, QueryMode::Extended, QueryMode::Prepared] {
            for wire in [Wire::Libpq, Wire::Lean] {
                let options = Options {
                    duration: None,
                    transactions_per_session: Some(25),
                    wire,
                    ..options(script(SCRIPT, mode))
                };
                let account = run(&cluster, options).unwrap();
                assert_eq!(account.posted.errors, [], "{mode:?} {wire:?}");
                total += committed(&account);
            }
        }
        assert_eq!(total, 6 * 100);
        assert_eq!(cluster.value("select low + high from counter").unwrap().unwrap(), total.to_string());
    });
}

#[test]
fn pipelines_send_once_and_stay_in_step() {
    const SCRIPT: &str = "\\startpipeline\nSELECT 1;\nSELECT 2;\n\\syncpipeline\nSELECT 1/:zero;\nSELECT 3;\n\\endpipeline\nSELECT 4;\n";
    on_each(|_, cluster| {
        for (zero, fails) in [("1", false), ("0", true)] {
            let text = format!("\\set zero {zero}\n{SCRIPT}");
            let options = Options {
                sessions: 1,
                duration: None,
                transactions_per_session: Some(20),
                ..options(script(&text, QueryMode::Prepared))
            };
            let account = run(&cluster, options).unwrap();
            assert_eq!(
                (committed(&account), account.posted.measured.failed()),
                if fails { (0, 20) } else { (20, 0) }
            );
            if fails {
                assert_eq!(account.posted.errors[0].sqlstate.as_str(), "22012");
            }
        }
    });
}

#[test]
fn serialization_failures_are_retried_until_they_commit() {
    const SCRIPT: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE;\nSELECT v FROM hot \\gset\n\\sleep 1 ms\n\
        UPDATE hot SET v = :v + 1;\nEND;\n";
    on_each(|_, cluster| {
        cluster.execute("create table hot (v int); insert into hot values (0)").unwrap();
        let base = || Options {
            duration: None,
            transactions_per_session: Some(20),
            ..options(script(SCRIPT, QueryMode::Prepared))
        };
        let account = run(&cluster, Options { tries_max: 0, ..base() }).unwrap();
        assert_eq!(committed(&account), 80, "every one commits in the end");
        assert!(account.posted.measured.retries() > 0);
        assert_eq!(cluster.value("select v from hot").unwrap().unwrap(), "80");
        let error = &account.posted.errors[0];
        assert_eq!((error.sqlstate.as_str(), error.count), ("40001", error.retried));
        let account = run(&cluster, Options { tries_max: 1, ..base() }).unwrap();
        assert_eq!(account.posted.measured.retries(), 0);
        assert_eq!(committed(&account) + account.posted.measured.failed(), 80);
        assert!(account.posted.measured.failed() > 0);
    });
}

#[test]
fn an_open_loop_keeps_its_rate_and_its_books() {
    on_each(|_, cluster| {
        fill(&cluster);
        for pace in [Pace::Poisson { per_second: 500.0 }, Pace::Regular { per_second: 500.0 }] {
            let account = run(&cluster, Options { pace, ..options(ycsb("ycsb-b", 4)) }).unwrap();
            // 1.2 s at 500/s: 600 expected, standard deviation 24.5 for Poisson.
            assert!((account.scheduled as i64 - 600).abs() < 150, "{} scheduled", account.scheduled);
            let measured = &account.posted.measured;
            assert_eq!(account.scheduled, measured.started + account.skipped + account.unstarted);
            assert_eq!(measured.started, measured.transactions() + measured.failed() + account.unfinished);
            assert_eq!(measured.lag.count(), measured.started);
            assert!(measured.types.iter().all(|tally| tally.response.count() == tally.service.count()));
        }
    });
}

#[test]
fn backlog_counts_into_response_time_and_not_into_lag() {
    on_each(|_, cluster| {
        // One session, 20 ms a transaction, 100 a second wanted: it can do 50.
        let workload = script("SELECT pg_sleep(0.02);\n", QueryMode::Simple);
        let pace = Pace::Regular { per_second: 100.0 };
        let account = run(&cluster, Options { sessions: 1, pace, ..options(workload) }).unwrap();
        let measured = &account.posted.measured;
        assert!(account.unstarted >= 30, "{} unstarted", account.unstarted);
        let tally = &measured.types[0];
        assert!(tally.response.max_us() > 400_000, "response {} us", tally.response.max_us());
        assert!(tally.service.quantile_us(0.5) < 60_000, "service {} us", tally.service.quantile_us(0.5));
        assert!(measured.lag.quantile_us(0.5) < 20_000, "lag {} us", measured.lag.quantile_us(0.5));
    });
}

#[test]
fn a_server_restart_in_mid_run_is_an_outage_and_not_the_end() {
    restart_in_mid_run(Choice::Auto);
}

#[test]
fn a_server_restart_in_mid_run_is_no_end_for_epoll_either() {
    restart_in_mid_run(Choice::Epoll);
}

fn restart_in_mid_run(poller: Choice) {
    on_each(|_, cluster| {
        fill(&cluster);
        let spec = cluster.spec();
        let cluster = std::cell::RefCell::new(cluster);
        let cluster: &'static std::cell::RefCell<Throwaway> = Box::leak(Box::new(cluster));
        let mut watch = Watch {
            then: Some(Box::new(move |second| {
                if second == 1 {
                    let mut cluster = cluster.borrow_mut();
                    cluster.stop(StopMode::Immediate).unwrap();
                    std::thread::sleep(Duration::from_millis(300));
                    cluster.start_again().unwrap();
                }
            })),
            ..Watch::default()
        };
        let options =
            Options { poller, duration: Some(Duration::from_secs(5)), ..options(ycsb("ycsb-a", 4)) };
        let account =
            drive(options, Arc::new(TargetDial::new(spec)), &StopFlag::default(), &mut watch).unwrap();
        assert!(watch.begun);
        assert_eq!(account.outages.len(), 1, "{:?}", account.outages);
        let outage = &account.outages[0];
        let seconds = (outage.to.unwrap() - outage.from) as f64 / 1e9;
        assert!(seconds >= 0.3, "an outage of {seconds} s");
        assert_eq!((account.lost, account.reconnected), (4, 4));
        let after =
            watch.seconds.iter().filter(|(from, ..)| *from > outage.to.unwrap()).map(|second| second.2);
        assert!(after.sum::<u64>() > 0, "work goes on after the outage");
        assert!(
            account.posted.errors.iter().all(|error| error.sqlstate.as_str().starts_with("57P0")
                || error.sqlstate.as_str().starts_with("08")),
            "{:?}",
            account.posted.errors
        );
        // The throwaway cluster was leaked for the observer: it is stopped here.
        cluster.borrow_mut().stop(StopMode::Immediate).unwrap();
        std::fs::remove_dir_all(cluster.borrow().socket_dir()).unwrap();
    });
}

#[test]
fn one_killed_session_comes_back_alone() {
    on_each(|_, cluster| {
        fill(&cluster);
        let killer = cluster.spec();
        let mut watch = Watch {
            then: Some(Box::new(move |second| {
                if second == 1 {
                    let sql = "select pg_terminate_backend(pid) from pg_stat_activity \
                        where backend_type = 'client backend' and pid <> pg_backend_pid() limit 1";
                    connect::hot::connect(&killer).unwrap().simple_query(sql).unwrap();
                }
            })),
            ..Watch::default()
        };
        let options = Options { duration: Some(Duration::from_secs(2)), ..options(ycsb("ycsb-a", 4)) };
        let dial = Arc::new(TargetDial::new(cluster.spec()));
        let account = drive(options, dial, &StopFlag::default(), &mut watch).unwrap();
        assert_eq!(account.outages, []);
        assert_eq!((account.lost, account.reconnected), (1, 1));
        assert!(account.posted.errors.len() <= 1, "{:?}", account.posted.errors);
    });
}

#[test]
fn a_stop_drains_and_a_second_stop_abandons() {
    on_each(|_, cluster| {
        let stop = Arc::new(StopFlag::default());
        let requests = Arc::clone(&stop);
        let mut watch = Watch { then: Some(Box::new(move |_| requests.request())), ..Watch::default() };
        let workload = script("SELECT pg_sleep(30);\n", QueryMode::Simple);
        let options = Options { duration: Some(Duration::from_secs(60)), ..options(workload) };
        let begun = monotonic_ns();
        let account = drive(options, Arc::new(TargetDial::new(cluster.spec())), &stop, &mut watch).unwrap();
        assert!(account.is_interrupted);
        assert_eq!(account.unfinished, 4);
        // Whoever replays the run must not take their outcome for granted.
        for record in &account.sessions {
            let open = Exception { sequence: 0, is_known_failed: false };
            assert_eq!((record.transactions, record.exceptions.as_slice()), (1, [open].as_slice()));
        }
        assert!(monotonic_ns() - begun < 10_000_000_000);
    });
}

#[test]
fn a_server_that_is_not_there_is_told_at_once() {
    on_each(|_, mut cluster| {
        cluster.stop(StopMode::Immediate).unwrap();
        let error = run(&cluster, options(ycsb("ycsb-c", 4)));
        let DriveError::Failed(failure) = error.unwrap_err() else { panic!("a failure to connect") };
        assert!(failure.hint.is_some(), "{failure:?}");
    });
}

#[test]
fn a_statement_the_server_refuses_is_told_with_what_to_do() {
    on_each(|_, cluster| {
        let DriveError::Failed(failure) = run(&cluster, options(ycsb("ycsb-c", 4))).unwrap_err() else {
            panic!("the table is missing")
        };
        assert!(failure.message.contains("\"usertable\" does not exist"), "{failure:?}");
        assert_eq!(failure.hint.unwrap(), "load it first: pgfathom load ycsb --rows 1M");
    });
}

/// Asks twice to stop once every session's statement is seen at work in the server.
struct TwoStops<'a> {
    cluster: &'a Throwaway,
    sessions: u64,
    stop: &'a StopFlag,
}

const AT_WORK: &str = "select count(*) from pg_stat_activity where state = 'active' and query like '%pg_sleep(1000)%' and pid <> pg_backend_pid()";

impl Observer for TwoStops<'_> {
    fn begins(&mut self, _: Nanos) {}

    fn second(&mut self, _: &Second<'_>) {
        let at_work = self.cluster.value(AT_WORK).unwrap();
        if at_work.is_some_and(|count| count == self.sessions.to_string()) {
            self.stop.request();
            self.stop.request();
        }
    }
}

#[test]
fn statements_that_nobody_waits_for_any_more_do_not_go_on_in_the_server() {
    on_each(|_, cluster| {
        for poller in [Choice::Auto, Choice::Epoll] {
            for (text, mode) in [
                ("SELECT pg_sleep(1000);\n", QueryMode::Simple),
                ("BEGIN;\nSELECT pg_sleep(1000);\nEND;\n", QueryMode::Prepared),
                ("SELECT pg_sleep(1000) \\; SELECT pg_sleep(1000);\n", QueryMode::Simple),
                // The first request ends one statement, and the next one begins.
                (
                    "\\startpipeline\nSELECT pg_sleep(1000);\n\\syncpipeline\nSELECT pg_sleep(1000);\n\\endpipeline\n",
                    QueryMode::Extended,
                ),
            ] {
                let stop = StopFlag::default();
                let mut observer = TwoStops { cluster: &cluster, sessions: 4, stop: &stop };
                let options = Options {
                    poller,
                    duration: Some(Duration::from_secs(600)),
                    ..options(script(text, mode))
                };
                let dial = Arc::new(TargetDial::new(cluster.spec()));
                let account = drive(options, dial, &stop, &mut observer).unwrap();
                assert_eq!(
                    (account.unfinished, account.cancelled, account.still_at_work),
                    (4, 4, 0),
                    "{text}"
                );
                assert_eq!(cluster.value(AT_WORK).unwrap().as_deref(), Some("0"), "{text}");
            }
        }
    });
}

#[test]
fn answers_of_any_length_are_answers_where_nobody_reads_them() {
    on_each(|_, cluster| {
        for (number, (text, mode, code)) in [
            ("SELECT repeat('x', 1000000) FROM generate_series(1, 100);\n", QueryMode::Simple, None),
            ("SELECT repeat('x', 70000000);\n", QueryMode::Prepared, None),
            ("SELECT repeat('x', 10) FROM generate_series(1, 4000000);\n", QueryMode::Extended, None),
            ("DO $$ BEGIN RAISE NOTICE '%', repeat('x', 5000000); END $$;\n", QueryMode::Simple, None),
            (
                "DO $$ BEGIN RAISE EXCEPTION '%', repeat('x', 5000000); END $$;\n",
                QueryMode::Simple,
                Some("P0001"),
            ),
            // Somebody reads this one, and there is no room for it.
            ("SELECT repeat('x', 70000000) AS v \\gset\n", QueryMode::Simple, Some("54000")),
        ]
        .into_iter()
        .enumerate()
        {
            for &poller in testing::in_turn(
                "long answers on both pollers: in turn",
                number,
                &[Choice::Auto, Choice::Epoll],
            ) {
                let options = Options {
                    sessions: 2,
                    poller,
                    duration: None,
                    transactions_per_session: Some(2),
                    ..options(script(text, mode))
                };
                let dial = Arc::new(TargetDial::new(cluster.spec()));
                let account = drive(options, dial, &StopFlag::default(), &mut Watch::default()).unwrap();
                let met: Vec<String> =
                    account.posted.errors.iter().map(|error| error.sqlstate.to_string()).collect();
                assert_eq!(met.first().map(String::as_str), code, "{text}: {:?}", account.posted.errors);
                let wanted = if code.is_none() { 4 } else { 0 };
                assert_eq!(account.posted.measured.transactions(), wanted, "{text}");
                assert_eq!((account.lost, account.outages.len()), (0, 0), "{text}");
                if code.is_none() {
                    assert!(account.buffer_bytes < 8 << 20, "{text}: {} bytes kept", account.buffer_bytes);
                }
            }
        }
    });
}
