//! One trial of a proof, run once: its verdict, or why there is none.

use super::testbed::Testbed;
use super::trial::Trial;
use super::{What, history};
use ::prove::live::{LiveError, Options, ack, bank, chain, conflict, explained, heartbeat, skew, twin, wide};
use ::prove::promise::{self as verdicts, Settings};
use record::promise::Promise;
use std::sync::atomic::AtomicBool;

/// What becomes of the tables of a proof whose rows could not be judged.
const LEFT_TABLES: &str = "its tables are left in schema pgfathom_prove: the next proof replaces them, or drop schema pgfathom_prove cascade";

/// Runs a trial once. A cluster that does not come back after a fault is an answer, too, and so is a proof that was disturbed.
pub(super) fn once(
    testbed: &Testbed,
    trial: &Trial,
    options: &Options,
    history_files: history::HistoryFiles<'_>,
    stop: &AtomicBool,
) -> Result<Watched, LiveError> {
    let settings =
        Settings::of_site(&testbed.site, options).map_err(|error| explained(&testbed.site, error))?;
    let what = trial.what.word();
    let place = place(testbed, &settings);
    let not_tested =
        |why: &str, change: &str| Ok(vec![verdicts::not_tested(what, &place, &trial.plan, why, change)]);
    let watched = watched(testbed, trial, options, (&settings, history_files), stop);
    if let (Some(holder), Ok(_)) = (testbed.taken(), &watched) {
        let why = format!("another pgfathom prove has started on the same tables: {holder}");
        return not_tested(&why, "run pgfathom prove again when no other one runs on these tables");
    }
    match watched {
        Err(LiveError::NotBack(error)) if testbed.site.is_gone() || was_hurt(testbed, trial) => {
            let lost = verdicts::did_not_return(
                what,
                &testbed.site,
                &settings,
                &place,
                &trial.plan,
                &chain(error.as_ref()),
            );
            Ok(vec![lost])
        }
        Err(LiveError::NotBack(error)) => not_tested(
            &format!(
                "at the end the cluster accepted no writes, or its rows could not be read: {}; {LEFT_TABLES}",
                chain(error.as_ref()),
            ),
            "run pgfathom prove again when it accepts writes",
        ),
        Err(error @ LiveError::Restless(_)) => not_tested(
            &format!("{}; {LEFT_TABLES}", chain(&error)),
            &error.hint().unwrap_or_else(|| "run pgfathom prove again when it is at rest".to_owned()),
        ),
        Err(error @ LiveError::Deaf(_)) => not_tested(
            &format!("replication did not work before the rows of the proof were written: {error}"),
            &error.hint().unwrap_or_default(),
        ),
        Err(error @ LiveError::Disturbed(_)) => {
            not_tested(&error.to_string(), "run pgfathom prove again when no other one runs on these tables")
        }
        Err(error) => match explained(&testbed.site, error) {
            // A node that goes away is no error of the user, and the other proofs of a suite go on.
            lost @ LiveError::Lost { .. } => {
                not_tested(&chain(&lost), "run pgfathom prove again when all nodes answer")
            }
            error => Err(error),
        },
        watched => watched,
    }
}

/// Whether a server of ours was hurt by the plan, and answers: then it is not for want of time that its rows are missing.
fn was_hurt(testbed: &Testbed, trial: &Trial) -> bool {
    trial.plan.faults().iter().any(|fault| fault.hurts_server())
        && connect::control::connect(&testbed.site.entry()).is_ok()
}

/// The column of the matrix.
fn place(testbed: &Testbed, settings: &Settings) -> String {
    match testbed.name.as_str() {
        "" => settings.description(),
        name => format!("{name}, {}", settings.description()),
    }
}

type Watched = Vec<Promise>;

fn watched(
    testbed: &Testbed,
    trial: &Trial,
    options: &Options,
    (settings, history_files): (&Settings, history::HistoryFiles<'_>),
    stop: &AtomicBool,
) -> Result<Watched, LiveError> {
    let site = &testbed.site;
    if let Some(words) = site.unknown_node(&options.plan) {
        return Err(LiveError::Unfit(words));
    }
    let place = place(testbed, settings);
    if let Some(promise) = trial.objection(&testbed.site, &place) {
        return Ok(vec![promise]);
    }
    let name = testbed.name.as_str();
    Ok(match trial.what {
        What::Ack => {
            let report = ack::run(site, options, stop)?;
            verdicts::ack(site, &report, settings, &place)
        }
        What::Hb => {
            let report = heartbeat::run(site, options, stop)?;
            verdicts::heartbeat(site, &report, settings, &place)
        }
        What::Bank => {
            let report = bank::run(site, options, stop)?;
            verdicts::bank(site, &report, settings, trial.level, name)
        }
        What::Twin => {
            let report = twin::run(site, options, stop)?;
            verdicts::twin(site, &report, settings, trial.level, name)
        }
        What::Skew => {
            let report = skew::run(site, options, stop)?;
            verdicts::skew(site, &report, settings, trial.level, name)
        }
        What::Conflict => {
            let report = conflict::run(site, options, stop)?;
            verdicts::conflict(site, &report, settings, name)
        }
        What::Verreg | What::Append => {
            history::watch(history_files, testbed, (trial, options, settings), stop)?
        }
        What::Wide => {
            let report = wide::run(site, options, settings.waits_for_standbys(), stop)?;
            verdicts::wide(&report, &place)
        }
        // These are no workloads: they are taken apart before anything is watched.
        What::Hermitage | What::All => Vec::new(),
    })
}
