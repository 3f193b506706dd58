//! A warm-up that ends early: the measured part begins when the observer has seen enough, and lasts as long as it was asked to.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;
use std::time::Duration;

use run::control::StopFlag;
use run::drive::{Account, Observer, Options, Second, drive};
use run::engine::Nanos;
use run::engine::poller::Choice;
use run::null_server::NullServer;
use run::schedule::Pace;
use run::script::{Mix, Options as ScriptOptions, Predefined, QueryMode, Source};
use run::workload;
use run::workload::script::Scripts;
use wire::prepared::Wire;

const PER_SECOND: f64 = 2_000.0;

/// Is content after so many seconds.
#[derive(Default)]
struct Patience {
    enough: usize,
    seconds: usize,
    warm: usize,
    told: Vec<Nanos>,
}

impl Observer for Patience {
    fn begins(&mut self, _: Nanos) {}
    fn second(&mut self, second: &Second<'_>) {
        self.seconds += 1;
        self.warm += usize::from(second.is_warmup);
    }
    fn is_settled(&mut self) -> bool {
        self.seconds >= self.enough
    }
    fn measures_from(&mut self, moment: Nanos) {
        self.told.push(moment);
    }
}

fn run(patience: &mut Patience, pace: Pace, warmup: Duration, stop: &StopFlag) -> Account {
    let source = Source { name: "one".into(), text: "SELECT 1;\n".into(), weight: 1 };
    let options = ScriptOptions { mode: QueryMode::Prepared, defines: Vec::new() };
    let mix = Arc::new(Mix::compile(&[source], &options).unwrap());
    let predefined = Predefined { client_id: 0, scale: 1, random_seed: 1, default_seed: 1 };
    let scripts = Scripts::new(mix, QueryMode::Prepared, predefined);
    let options = Options {
        mix: workload::Mix::of(scripts).unwrap(),
        sessions: 3,
        workers: 2,
        pace,
        duration: Some(Duration::from_secs(2)),
        warmup,
        transactions_per_session: None,
        latency_limit: None,
        tries_max: 1,
        wire: Wire::Lean,
        poller: Choice::Auto,
        seed: 1,
        connects: Default::default(),
        first_session: 0,
    };
    let server = NullServer::start().unwrap();
    drive(options, server.dial(), stop, patience).unwrap()
}

#[test]
fn the_measured_part_begins_early_and_lasts_its_whole_time() {
    for pace in [Pace::Regular { per_second: PER_SECOND }, Pace::Closed] {
        let mut patience = Patience { enough: 2, ..Patience::default() };
        let account = run(&mut patience, pace, Duration::from_secs(600), &StopFlag::default());
        assert_eq!(patience.told, [account.measure_from]);
        let warmup_s = (account.measure_from - account.begin) as f64 / 1e9;
        assert!((2.0..4.0).contains(&warmup_s), "{warmup_s}");
        let measured_s = account.measured().as_secs_f64();
        assert!((1.9..3.0).contains(&measured_s), "{measured_s}");
        let (warm, measured) =
            (account.posted.warmup.transactions() as f64, account.posted.measured.transactions() as f64);
        assert!(warm > 0.0 && measured > 0.0);
        if pace != Pace::Closed {
            // On a full machine some of what was due has not begun when the time is over.
            let measured = measured + account.unstarted as f64;
            assert!((measured - 2.0 * PER_SECOND).abs() < 0.1 * PER_SECOND, "{measured} in two seconds");
            assert!((warm - warmup_s * PER_SECOND).abs() < 0.1 * PER_SECOND, "{warm} in {warmup_s} s");
        }
        assert!(account.worker_cpu_share_max > 0.0, "the worker's CPU time is that of the measured part");
    }
}

#[test]
fn nobody_who_is_never_content_shortens_anything() {
    let mut patience = Patience { enough: usize::MAX, ..Patience::default() };
    let pace = Pace::Regular { per_second: PER_SECOND };
    let account = run(&mut patience, pace, Duration::from_millis(1_500), &StopFlag::default());
    assert_eq!(account.measure_from - account.begin, 1_500_000_000);
    assert_eq!((patience.told.len(), patience.warm), (0, 1));
}

#[test]
fn a_stop_during_the_warm_up_ends_the_run() {
    let stop = Arc::new(StopFlag::default());
    let asker = Arc::clone(&stop);
    let asking = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        asker.request();
    });
    let mut patience = Patience { enough: 1, ..Patience::default() };
    let pace = Pace::Regular { per_second: PER_SECOND };
    let account = run(&mut patience, pace, Duration::from_secs(100_000), &stop);
    asking.join().unwrap();
    // Without the stop it would have taken a day.
    assert!(account.is_interrupted);
    assert_eq!(account.posted.measured.transactions(), 0);
}
