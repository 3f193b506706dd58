//! Evidence bundles: a run directory in one archive that is opened and explained elsewhere.
//!
//! A bundle is a tar archive with one folder, compressed by gzip (or zstd, by the archive's name), made and opened by the system's `tar`:
//! it is on every machine that runs PostgreSQL, its output is what support engineers know, and it spares five packages. Before it
//! opens an archive of somebody else's, the list of its entries is checked: only plain files and folders, nothing outside.
//!
//! Only files of a run directory that are known go in. Whatever is to be taken out is taken out of a copy ([`redact`]); the run
//! directory stays as it is.

pub mod core;
pub mod redact;

use redact::{Redaction, Redactor};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

/// The file that says what a bundle is.
pub const MANIFEST: &str = "bundle.json";
/// Version of the manifest.
pub const SCHEMA_VERSION: u32 = 1;
/// Ends of names that archives have, and tar's flag for each.
const KINDS: [(&str, &[&str]); 5] = [
    (".tar.gz", &["-z"]),
    (".tgz", &["-z"]),
    (".tar.zst", &["--use-compress-program=zstd"]),
    (".tar.xz", &["-J"]),
    (".tar", &[]),
];
/// Unpacked bytes of an archive at most.
const UNPACKED_BYTES_MAX: u64 = 16 << 30;
/// Entries of an archive at most.
const ENTRIES_MAX: usize = 10_000;
/// Folders of a run directory that go in, with the ends of the names of their files.
const FOLDERS: [(&str, &str); 2] = [(record::files::STACKS, ".perf"), (record::files::STUCK, ".txt")];

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file could not be read or written.
    #[error("cannot {action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// tar is not there or failed.
    #[error("tar failed on {path}: {said}")]
    Tar {
        /// The archive.
        path: PathBuf,
        /// Its last words.
        said: String,
    },
    /// The name says no known kind of archive.
    #[error("{path} is neither a run directory nor a bundle")]
    Unknown {
        /// As typed.
        path: PathBuf,
    },
    /// The archive holds something that no bundle holds.
    #[error("{path} is not a bundle: {why}")]
    Foreign {
        /// The archive.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// There is a file already.
    #[error("{path} exists")]
    Exists {
        /// The archive or folder.
        path: PathBuf,
    },
}

impl BundleError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            BundleError::Io { .. } => None,
            BundleError::Tar { said, .. } if said.contains("zst") => Some("install zstd, or use a .tar.gz".to_string()),
            BundleError::Tar { .. } => Some("tar -tvf FILE shows what is in it".to_string()),
            BundleError::Unknown { .. } => {
                Some("name a run directory (ls runs/), or an archive whose name ends with .tar.gz, .tgz, .tar.zst, .tar.xz or .tar".to_string())
            }
            BundleError::Foreign { .. } => Some("a bundle is made by: pgfathom watch -T 60 --bundle".to_string()),
            BundleError::Exists { .. } => Some("move it away, or name another file".to_string()),
        }
    }

    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BundleError {
        let path = path.to_path_buf();
        move |source| BundleError::Io { action, path, source }
    }
}

/// What was packed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packed {
    /// The archive.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// The files in it.
    pub files: Vec<String>,
}

fn kind_of(path: &Path) -> Option<(&'static str, &'static [&'static str])> {
    let name = path.file_name()?.to_str()?;
    KINDS.into_iter().find(|(end, _)| name.ends_with(end) && name.len() > end.len())
}

/// Whether a path names an archive, by its name.
pub fn is_archive(path: &Path) -> bool {
    kind_of(path).is_some()
}

/// Packs a run directory.
///
/// # Errors
/// [`BundleError::Unknown`] for a name that says no kind of archive, [`BundleError::Exists`] if it is there already.
pub fn pack(run_dir: &Path, archive: &Path, redaction: Redaction) -> Result<Packed, BundleError> {
    let Some((end, flags)) = kind_of(archive) else {
        return Err(BundleError::Unknown { path: archive.to_path_buf() });
    };
    if archive.exists() {
        return Err(BundleError::Exists { path: archive.to_path_buf() });
    }
    let name = archive.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let inner = name.strip_suffix(end).unwrap_or(name);
    let stage = Stage::beside(archive)?;
    let copy = stage.0.join(inner);
    fs::create_dir(&copy).map_err(BundleError::io("create", &copy))?;
    let files = copy_run(run_dir, &copy, redaction)?;
    let part = stage.0.join(format!("bundle{end}"));
    let mut command = Command::new("tar");
    // Nobody's business who packed it.
    command.args(["--owner=0", "--group=0", "--numeric-owner"]).args(flags).arg("-cf").arg(&part);
    tar(command.arg("-C").arg(&stage.0).arg("--").arg(inner), archive)?;
    fs::rename(&part, archive).map_err(BundleError::io("write", archive))?;
    let bytes = fs::metadata(archive).map_err(BundleError::io("read", archive))?.len();
    Ok(Packed { path: archive.to_path_buf(), bytes, files })
}

/// A folder that is removed with everything in it.
#[derive(Debug)]
struct Stage(PathBuf);

impl Stage {
    /// Beside a file, so that what is made there can be renamed.
    fn beside(path: &Path) -> Result<Stage, BundleError> {
        let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy().into_owned());
        let folder = path.with_file_name(format!(".{name}.{}", std::process::id()));
        fs::create_dir(&folder).map_err(BundleError::io("create", &folder))?;
        Ok(Stage(folder))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs tar; its first complaint on failure.
fn tar(command: &mut Command, archive: &Path) -> Result<String, BundleError> {
    let failed = |said: String| BundleError::Tar { path: archive.to_path_buf(), said };
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(failed(text.lines().next().unwrap_or("no reason given").to_string()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Copies the known files of a run directory, redacted. Returns their names.
fn copy_run(from: &Path, to: &Path, redaction: Redaction) -> Result<Vec<String>, BundleError> {
    let mut redactor = Redactor::new(redaction);
    let has = |name: &str| from.join(name).is_file();
    let lines = [record::files::SAMPLES, record::files::EVENTS];
    // Findings quote what they found; with statements taken out they are better made anew.
    let whole: Vec<&str> = [record::files::RUN, record::files::FINDINGS]
        .into_iter()
        .filter(|name| has(name) && !(redaction.sql && *name == record::files::FINDINGS))
        .collect();
    if !redaction.is_none() {
        for name in &whole {
            redactor.learn(&json_of(&from.join(name))?);
        }
        for name in lines.into_iter().filter(|name| has(name)) {
            for_lines(&from.join(name), |line| {
                if let Ok(value) = serde_json::from_str(line) {
                    redactor.learn(&value);
                }
                Ok(())
            })?;
        }
        redactor.end_learning();
    }
    let mut names = vec![];
    for name in &whole {
        let mut value = json_of(&from.join(name))?;
        redactor.replace(&mut value);
        let text = serde_json::to_vec_pretty(&value).unwrap_or_default();
        fs::write(to.join(name), text).map_err(BundleError::io("write", &to.join(name)))?;
        names.push((*name).to_string());
    }
    for name in lines.into_iter().filter(|name| has(name)) {
        copy_lines(&from.join(name), &to.join(name), |line| {
            if redaction.is_none() {
                return Some(line.to_string());
            }
            // A line that is torn cannot be redacted, and says nothing: it stays here.
            let mut value: Value = serde_json::from_str(line).ok()?;
            redactor.replace(&mut value);
            Some(value.to_string())
        })?;
        names.push(name.to_string());
    }
    if has(record::files::LATENCY) {
        // What stands before the numbers of a line names steps and transactions; the numbers are left alone.
        copy_lines(&from.join(record::files::LATENCY), &to.join(record::files::LATENCY), |line| {
            let (head, tail) =
                if line.starts_with('#') { (line, "") } else { line.split_at(line.find(',').unwrap_or(0)) };
            Some(redactor.text(head) + tail)
        })?;
        names.push(record::files::LATENCY.to_string());
    }
    for (folder, end) in FOLDERS {
        let Ok(entries) = fs::read_dir(from.join(folder)) else { continue };
        let files: BTreeSet<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        for file in files.into_iter().filter(|file| file.ends_with(end)) {
            let name = format!("{folder}/{file}");
            fs::create_dir_all(to.join(folder)).map_err(BundleError::io("create", &to.join(folder)))?;
            // The frames of stacks are functions; only what we wrote above them names machines.
            let is_stack = folder == record::files::STACKS;
            copy_lines(&from.join(&name), &to.join(&name), |line| {
                Some(if is_stack && !line.starts_with('#') { line.to_string() } else { redactor.text(line) })
            })?;
            names.push(name);
        }
    }
    if names.is_empty() {
        let why = "there is no file of a run in it".to_string();
        return Err(BundleError::Foreign { path: from.to_path_buf(), why });
    }
    let manifest = json!({"schema": "pgfathom.bundle", "schema_version": SCHEMA_VERSION,
        "redacted": redaction.words(), "files": names});
    let path = to.join(MANIFEST);
    fs::write(&path, format!("{manifest:#}\n")).map_err(BundleError::io("write", &path))?;
    names.push(MANIFEST.to_string());
    Ok(names)
}

fn json_of(path: &Path) -> Result<Value, BundleError> {
    let text = fs::read(path).map_err(BundleError::io("read", path))?;
    serde_json::from_slice(&text).map_err(|error| BundleError::io("read", path)(io::Error::other(error)))
}

fn for_lines(path: &Path, mut each: impl FnMut(&str) -> io::Result<()>) -> Result<(), BundleError> {
    let mut reader = BufReader::new(File::open(path).map_err(BundleError::io("read", path))?);
    let mut line = vec![];
    let mut all = || -> io::Result<()> {
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            each(String::from_utf8_lossy(&line).trim_end_matches('\n'))?;
        }
    };
    all().map_err(BundleError::io("read", path))
}

fn copy_lines(from: &Path, to: &Path, change: impl Fn(&str) -> Option<String>) -> Result<(), BundleError> {
    let mut out = BufWriter::new(File::create(to).map_err(BundleError::io("create", to))?);
    for_lines(from, |line| match change(line) {
        Some(line) => writeln!(out, "{line}"),
        None => Ok(()),
    })?;
    out.flush().map_err(BundleError::io("write", to))
}

/// A run directory that was named directly, or unpacked from the bundle that was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The run directory.
    pub run_dir: PathBuf,
    /// Whether it was unpacked just now: then the user is told where.
    pub is_new: bool,
}

/// Opens what the user named: a folder as it is, an archive by unpacking it beside itself, into a folder of its name. An archive that was
/// unpacked before is not unpacked again, so what was made in the folder since (findings, a page) stays.
///
/// # Errors
/// [`BundleError::Foreign`] if the archive holds anything but plain files and folders of one run.
pub fn open(path: &Path) -> Result<Opened, BundleError> {
    if path.is_dir() {
        return Ok(Opened { run_dir: run_dir_in(path).unwrap_or_else(|| path.to_path_buf()), is_new: false });
    }
    let Some((end, flags)) = kind_of(path) else {
        return Err(BundleError::Unknown { path: path.to_path_buf() });
    };
    // A file that is not there is said by its own name, not by tar's.
    File::open(path).map_err(BundleError::io("open", path))?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let folder = path.with_file_name(name.strip_suffix(end).unwrap_or(name));
    if folder.exists() {
        return match run_dir_in(&folder) {
            Some(run_dir) => Ok(Opened { run_dir, is_new: false }),
            None => Err(BundleError::Exists { path: folder }),
        };
    }
    let listing = tar(Command::new("tar").args(flags).arg("-tvf").arg(path), path)?;
    check(&listing).map_err(|why| BundleError::Foreign { path: path.to_path_buf(), why })?;
    let stage = Stage::beside(path)?;
    let mut command = Command::new("tar");
    command.args(["--no-same-owner", "--no-same-permissions"]).args(flags).arg("-xf").arg(path);
    tar(command.arg("-C").arg(&stage.0), path)?;
    let Some(run_dir) = run_dir_in(&stage.0) else {
        let why = "there is no run in it".to_string();
        return Err(BundleError::Foreign { path: path.to_path_buf(), why });
    };
    fs::rename(&run_dir, &folder).map_err(BundleError::io("create", &folder))?;
    Ok(Opened { run_dir: folder, is_new: true })
}

/// The folder itself if it holds a run, else the only one in it that does.
fn run_dir_in(folder: &Path) -> Option<PathBuf> {
    let holds_run = |folder: &Path| {
        [record::files::RUN, record::files::SAMPLES, record::files::EVENTS]
            .iter()
            .any(|name| folder.join(name).is_file())
    };
    if holds_run(folder) {
        return Some(folder.to_path_buf());
    }
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let mut found = entries.filter(|path| path.is_dir() && holds_run(path));
    found.next().filter(|_| found.next().is_none())
}

/// Looks through the listing of an archive (`tar -tv`: mode, owner, size, date, time, name) for what must not be unpacked.
fn check(listing: &str) -> Result<(), String> {
    let mut bytes: u64 = 0;
    for (number, line) in listing.lines().enumerate() {
        if number >= ENTRIES_MAX {
            return Err(format!("it has more than {ENTRIES_MAX} entries"));
        }
        let mut rest = line;
        let mut words = [""; 5];
        for word in &mut words {
            rest = rest.trim_start();
            let end = rest.find(' ').unwrap_or(rest.len());
            (*word, rest) = rest.split_at(end);
        }
        let name = rest.trim_start();
        if !words[0].starts_with(['-', 'd']) {
            return Err(format!("{name} is neither a file nor a folder"));
        }
        let is_inside =
            Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if name.is_empty() || !is_inside {
            return Err(format!("{name:?} leads outside"));
        }
        bytes = bytes.saturating_add(words[2].parse().unwrap_or(u64::MAX));
    }
    match bytes {
        0 => Err("it is empty".to_string()),
        _ if bytes > UNPACKED_BYTES_MAX => Err(format!("it would take {bytes} bytes")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
