//! `prove verreg`, `prove append`: where the histories of random transactions go.

use super::testbed::Testbed;
use super::trial::Trial;
use crate::context::cpus;
use crate::failure::Failure;
use ::prove::history::elle::{self, Notation};
use ::prove::history::file::FILE_NAME;
use ::prove::history::{History, Model};
use ::prove::live::{LiveError, Options, verreg};
use ::prove::promise as verdicts;
use record::promise::Promise;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Where histories are put.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryFiles<'a> {
    /// The run directory.
    pub dir: &'a Path,
    /// A copy for Elle.
    pub elle: Option<&'a Path>,
}

/// Writes a history for Elle; the file's name decides the format.
pub(super) fn export(history: &History, path: &Path) -> Result<(), Failure> {
    let notation = Notation::of(path).unwrap_or(Notation::Edn);
    crate::recording::write_named(path, &elle::write(history, notation))
        .map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))
}

/// `history.bin`, and `history-2.bin` for the next one in the same run directory.
fn unused(dir: &Path) -> PathBuf {
    let first = dir.join(FILE_NAME);
    let later = (2..).map(|number: u32| dir.join(FILE_NAME.replace(".bin", &format!("-{number}.bin"))));
    std::iter::once(first).chain(later).find(|path| !path.exists()).unwrap_or_else(|| dir.join(FILE_NAME))
}

/// Runs the load, checks its history, and gives what became of the level.
pub(super) fn watch(
    history_files: HistoryFiles<'_>,
    testbed: &Testbed,
    (trial, options, settings): (&Trial, &Options, &verdicts::Settings),
    stop: &AtomicBool,
) -> Result<Vec<Promise>, LiveError> {
    let path = unused(history_files.dir);
    let model = match trial.what {
        super::What::Append => Model::Append,
        _ => Model::VersionedRegister,
    };
    let paper = verreg::HistoryOptions { model, history: &path, has_control: true, threads: cpus() };
    let report = verreg::run(&testbed.site, options, &paper, stop)?;
    let workload = trial.what.word();
    let mut promises = verdicts::verreg(&testbed.site, &report, settings, workload, &testbed.name);
    if let Some(first) = promises.first_mut() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        first.figures.insert("history".to_owned(), name.into());
    }
    if let Some(elle) = history_files.elle {
        let history = History::read(&path).map_err(|error| LiveError::Unfit(error.to_string()))?;
        export(&history, elle).map_err(|failure| LiveError::Unfit(failure.message()))?;
    }
    Ok(promises)
}
