//! Plans without a command line: whoever has a plan value starts the work, and the run directory holds the result.

use app::connection::Address;
use app::context::Context;
use app::run::Weighted;
use app::watching::Watching;
use app::{load, prove, run, verify, watch};
use lab::throwaway::{Throwaway, installations};
use record::sample::Sample;
use record::watched::Sampled;
use record::{Exit, RunReader, State};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Rows of the dataset.
const ROWS: u64 = 1_000;
/// How long each plan works.
const WORK: Duration = Duration::from_secs(1);

/// A folder for run directories that is gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("pgfathom-plans-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder for run directories");
        Folder(path)
    }

    fn run(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(directory: &Path) -> RunReader {
    RunReader::open(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
}

/// A load of a few rows.
fn loading(address: Address, directory: PathBuf) -> load::Plan {
    let content = data::ycsb::Spec {
        seed: 1,
        key_order: data::ycsb::KeyOrder::Scattered,
        compressible: data::ycsb::Compressible::NONE,
    };
    load::Plan {
        address,
        content: Arc::new(workloads::ycsb::dataset::Ycsb::new(ROWS, content)),
        options: ::load::Options::new(),
        progress: None,
        watching: Watching::Off,
        planned: None,
        directory: Some(directory),
    }
}

#[test]
fn plans_are_started_without_a_command_line() {
    let all = installations();
    let server = Throwaway::start(all.last().expect("this test needs a PostgreSQL"), &[]).expect("a server");
    let address = || Address::from(server.spec());
    let folder = Folder::new();
    let context = Context::silent();

    let directory = folder.run("load");
    let exit = loading(address(), directory.clone()).run(&context).expect("the load runs");
    let loaded = read(&directory).run;
    assert_eq!((exit, loaded.state), (Exit::Ok, State::Finished));
    assert_eq!(loaded.summary.rows, Some(ROWS));
    // The same plan into a directory that is in use is refused, and says what to do.
    let refused = loading(address(), directory).run(&context).expect_err("the directory is in use");
    assert_eq!(refused.exit(), Exit::Usage);
    assert!(refused.render(false).contains("hint: "), "{}", refused.render(false));

    let directory = folder.run("run");
    let plan = run::Plan {
        builtin: vec![Weighted::one("ycsb-a")],
        time: Some(WORK),
        directory: Some(directory.clone()),
        ..run::Plan::new(address())
    };
    plan.run(&context).expect("the run drives");
    let driven = read(&directory);
    assert_eq!(driven.run.state, State::Finished);
    assert!(driven.run.summary.transactions.is_some_and(|transactions| transactions > 0));
    assert!(directory.join(record::files::REPORT).is_file(), "its page is there");
    assert!(directory.join(record::files::FINDINGS).is_file(), "and its findings");
    let mut views = 0;
    let is_view = |sample: &Sample| matches!(Sampled::parse(sample), Some(Sampled::Server(_)));
    RunReader::stream(&directory, |sample| views += u32::from(is_view(&sample))).expect("samples");
    assert!(views > 0, "the server is watched beside the run");

    let directory = folder.run("verify");
    let plan =
        verify::Plan { deep: true, directory: Some(directory.clone()), ..verify::Plan::new(address()) };
    assert_eq!(plan.run(&context).expect("the verification runs"), Exit::Ok);
    assert!(read(&directory).run.verdict.valid, "what the run wrote is accepted");

    let directory = folder.run("prove");
    let place = prove::live::Place::There(address());
    let plan = prove::live::Plan {
        time: WORK,
        directory: Some(directory.clone()),
        ..prove::live::Plan::new(prove::What::Bank, place)
    };
    assert_eq!(plan.run(&context).expect("the proof runs"), Exit::Ok);
    let proved = read(&directory).run;
    assert!(!record::promise::of(&proved).is_empty(), "a promise has an answer");

    let directory = folder.run("watch");
    let plan =
        watch::Plan { time: Some(WORK), directory: Some(directory.clone()), ..watch::Plan::new(address()) };
    assert_eq!(plan.run(&context).expect("the server is watched"), Exit::Ok);
    assert!(read(&directory).run.summary.transactions.is_some());

    // A watch without an end ends when a stop is requested, by whoever holds the context.
    let directory = folder.run("stopped");
    let plan = watch::Plan { directory: Some(directory.clone()), ..watch::Plan::new(address()) };
    let stop = context.stop.clone();
    let exit = std::thread::scope(|scope| {
        scope.spawn(|| {
            testing::wait_for("the watch to begin", || directory.join(record::files::RUN).is_file());
            stop.request();
        });
        plan.run(&context)
    });
    assert_eq!(exit.expect("the watch ends"), Exit::Ok);
}

#[test]
fn a_plan_for_a_target_that_is_away_fails_with_a_hint_and_leaves_no_directory() {
    let nobody = connect::ConnSpec::new("127.0.0.1", 1, "nobody", "nothing");
    let directory = std::env::temp_dir().join(format!("pgfathom-plans-away-{}", std::process::id()));
    let plan = loading(Address::from(nobody), directory.clone());
    let failure = plan.run(&Context::silent()).expect_err("nobody listens there");
    assert_eq!(failure.exit(), Exit::Usage);
    assert!(failure.render(false).contains("hint: "), "{}", failure.render(false));
    assert!(!directory.exists());
}
