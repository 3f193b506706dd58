//! Evidence bundles: a run directory in one archive, to open and explain elsewhere.
//!
//! A bundle is a tar archive with one folder, compressed by gzip (or zstd, by the archive's name). The system's `tar` packs it: it is
//! on every host with PostgreSQL, and saves five dependencies. [`archive`] reads a foreign archive entry by entry.
//!
//! It contains only known files of a run directory. Redaction works on a copy ([`redact`]); the run
//! directory is not changed.

pub mod archive;
pub mod core;
pub mod redact;

use archive::ArchiveError;
use lab::leftover::Leftover;
use record::file::{self, Lines};
use redact::{Redaction, Redactor};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The file that describes a bundle.
pub(crate) const MANIFEST: &str = "bundle.json";
/// Version of the manifest.
pub const SCHEMA_VERSION: u32 = 1;
/// Suffixes of archives, tar's flag to pack each, and the program that unpacks it.
const KINDS: [(&str, &[&str], Option<&str>); 5] = [
    (".tar.gz", &["-z"], Some("gzip")),
    (".tgz", &["-z"], Some("gzip")),
    (".tar.zst", &["--use-compress-program=zstd"], Some("zstd")),
    (".tar.xz", &["-J"], Some("xz")),
    (".tar", &[], None),
];
/// The padding after tar's last entry: zeros up to the record size.
const TRAILER_BYTES_MAX: u64 = 1 << 20;
/// Folders of a run directory that are packed, with the suffixes of their files.
const FOLDERS: [(&str, &str); 3] =
    [(record::files::STACKS, ".perf"), (record::files::STUCK, ".txt"), (record::files::PLANS, ".json")];

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
    /// A program that packs or unpacks is missing or failed.
    #[error("{program} failed on {path}: {recorded}")]
    Program {
        /// Which.
        program: &'static str,
        /// The archive.
        path: PathBuf,
        /// Its last words.
        recorded: String,
    },
    /// The name has no known suffix of an archive.
    #[error("{path} is neither a run directory nor a bundle")]
    Unknown {
        /// As typed.
        path: PathBuf,
    },
    /// The archive contains something that a bundle never contains.
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
            BundleError::Program { recorded, .. } if recorded.contains("zst") => Some("install zstd, or use a .tar.gz".to_string()),
            BundleError::Program { program, recorded, .. } if recorded.contains("No such file") => Some(format!("install {program}")),
            BundleError::Program { .. } => Some("tar -tvf FILE shows what is in it".to_string()),
            BundleError::Unknown { .. } => {
                Some("name a run directory (ls runs/), or an archive whose name ends with .tar.gz, .tgz, .tar.zst, .tar.xz or .tar".to_string())
            }
            BundleError::Foreign { .. } => Some("to make a bundle: pgfathom watch -T 60 --bundle".to_string()),
            BundleError::Exists { .. } => Some("move it, or name another file".to_string()),
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

fn kind_of(path: &Path) -> Option<(&'static str, &'static [&'static str], Option<&'static str>)> {
    let name = path.file_name()?.to_str()?;
    KINDS.into_iter().find(|(end, ..)| name.ends_with(end) && name.len() > end.len())
}

/// Whether a path names an archive, by its name.
pub fn is_archive(path: &Path) -> bool {
    kind_of(path).is_some()
}

/// Packs a run directory.
///
/// # Errors
/// [`BundleError::Unknown`] for a name without the suffix of an archive, [`BundleError::Exists`] if it is there already.
pub fn pack(run_dir: &Path, archive: &Path, redaction: Redaction) -> Result<Packed, BundleError> {
    let Some((end, flags, _)) = kind_of(archive) else {
        return Err(BundleError::Unknown { path: archive.to_path_buf() });
    };
    if archive.symlink_metadata().is_ok() {
        return Err(BundleError::Exists { path: archive.to_path_buf() });
    }
    let name = archive.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let inner = name.strip_suffix(end).unwrap_or(name);
    let stage = Stage::beside(archive)?;
    let copy = stage.path().join(inner);
    file::create_folder(&copy).map_err(BundleError::io("create", &copy))?;
    let files = copy_run(run_dir, &copy, redaction)?;
    let part = stage.path().join(format!("bundle{end}"));
    // tar writes into it, and leaves its mode alone.
    file::create(&part).map_err(BundleError::io("create", &part))?;
    let mut command = Command::new("tar");
    // The packing user is not part of the evidence.
    command.args(["--owner=0", "--group=0", "--numeric-owner"]).args(flags).arg("-cf").arg(&part);
    tar(command.arg("-C").arg(stage.path()).arg("--").arg(inner), archive)?;
    fs::rename(&part, archive).map_err(BundleError::io("write", archive))?;
    let bytes = fs::metadata(archive).map_err(BundleError::io("read", archive))?.len();
    Ok(Packed { path: archive.to_path_buf(), bytes, files })
}

/// A folder that is removed with everything in it.
#[derive(Debug)]
struct Stage(Leftover);

impl Stage {
    /// In the folder of a file, so that a result can be renamed to it.
    fn beside(path: &Path) -> Result<Stage, BundleError> {
        let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy().into_owned());
        let folder = path.with_file_name(format!(".{name}.{}", std::process::id()));
        Leftover::create(&folder).map(Stage).map_err(BundleError::io("create", &folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Runs tar.
fn tar(command: &mut Command, archive: &Path) -> Result<(), BundleError> {
    let failed =
        |recorded: String| BundleError::Program { program: "tar", path: archive.to_path_buf(), recorded };
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(first_line(&output.stderr))),
    }
}

fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines().next().unwrap_or("no reason given").to_string()
}

/// The bytes of an archive, unpacked by a program if it is packed.
enum Source {
    Plain(fs::File),
    Piped(&'static str, Child),
}

impl Source {
    fn open(packed: fs::File, program: Option<&'static str>, path: &Path) -> Result<Source, BundleError> {
        let Some(program) = program else { return Ok(Source::Plain(packed)) };
        let mut command = Command::new(program);
        command.arg("-dc").env("LC_ALL", "C").stdin(packed).stdout(Stdio::piped()).stderr(Stdio::piped());
        match command.spawn() {
            Ok(child) => Ok(Source::Piped(program, child)),
            Err(error) => {
                Err(BundleError::Program { program, path: path.to_path_buf(), recorded: error.to_string() })
            }
        }
    }

    /// Reads the archive to its end; returns the program's error message if it failed.
    fn unpack(self, into: &Path, bytes_max: u64, path: &Path) -> Result<PathBuf, BundleError> {
        let foreign = |why: String| BundleError::Foreign { path: path.to_path_buf(), why };
        let detail = |error: ArchiveError| match error {
            ArchiveError::Foreign(why) => foreign(why),
            ArchiveError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                foreign("it ends in the middle of a file".to_string())
            }
            ArchiveError::Io(error) => BundleError::io("unpack", path)(error),
        };
        let (program, mut child) = match self {
            Source::Plain(file) => {
                return archive::unpack(file, into, bytes_max).map(|(dir, _)| dir).map_err(detail);
            }
            Source::Piped(program, child) => (program, child),
        };
        let mut pipe = child.stdout.take().expect("it was read from a pipe");
        let unpacked = archive::unpack(&mut pipe, into, bytes_max);
        // Zeros follow the last entry; if the program writes more than that, this does not wait for it.
        let trailer = io::copy(&mut pipe.by_ref().take(TRAILER_BYTES_MAX), &mut io::sink());
        let is_whole = trailer.is_ok_and(|bytes| bytes < TRAILER_BYTES_MAX);
        drop(pipe);
        if !is_whole {
            let _ = child.kill();
        }
        let ended = child.wait_with_output().map_err(BundleError::io("unpack", path))?;
        if is_whole && !ended.status.success() {
            let recorded = first_line(&ended.stderr);
            return Err(BundleError::Program { program, path: path.to_path_buf(), recorded });
        }
        unpacked.map(|(dir, _)| dir).map_err(detail)
    }
}

/// Collects the names that are to be replaced: from files of one JSON value each, and from files of lines.
fn learn(redactor: &mut Redactor, from: &Path, whole: &[&str], lines: &[&str]) -> Result<(), BundleError> {
    for name in whole {
        redactor.learn(&json_of(&from.join(name))?);
    }
    for path in lines.iter().map(|name| from.join(name)).filter(|path| path.is_file()) {
        for_lines(&path, |line| {
            if let Ok(value) = serde_json::from_str(line) {
                redactor.learn(&value);
            }
            Ok(())
        })?;
    }
    redactor.end_learning();
    Ok(())
}

/// Copies the known files of a run directory, redacted. Returns their names.
fn copy_run(from: &Path, to: &Path, redaction: Redaction) -> Result<Vec<String>, BundleError> {
    let mut redactor = Redactor::new(redaction);
    let has = |name: &str| from.join(name).is_file();
    let lines = [record::files::SAMPLES, record::files::EVENTS];
    // Findings quote statements; if these are removed, the findings are better made again.
    let whole: Vec<&str> = [record::files::RUN, record::files::FINDINGS]
        .into_iter()
        .filter(|name| has(name) && !(redaction.sql && *name == record::files::FINDINGS))
        .collect();
    if !redaction.is_none() {
        learn(&mut redactor, from, &whole, &lines)?;
    }
    let mut names = vec![];
    for name in &whole {
        let mut value = json_of(&from.join(name))?;
        redactor.replace(&mut value);
        let text = serde_json::to_vec_pretty(&value).unwrap_or_default();
        write(&to.join(name), &text)?;
        names.push((*name).to_string());
    }
    for name in lines.into_iter().filter(|name| has(name)) {
        copy_lines(&from.join(name), &to.join(name), |line| {
            if redaction.is_none() {
                return Some(record::redact::line(line).into_owned());
            }
            // A torn line cannot be redacted and has no value: it is left out.
            let mut value: Value = serde_json::from_str(line).ok()?;
            redactor.replace(&mut value);
            Some(value.to_string())
        })?;
        names.push(name.to_string());
    }
    if has(record::files::LATENCY) {
        // The text before the numbers of a line names steps and transactions; the numbers are not changed.
        copy_lines(&from.join(record::files::LATENCY), &to.join(record::files::LATENCY), |line| {
            let (head, tail) =
                if line.starts_with('#') { (line, "") } else { line.split_at(line.find(',').unwrap_or(0)) };
            Some(redactor.text(head) + tail)
        })?;
        names.push(record::files::LATENCY.to_string());
    }
    // A plan is a statement in another form.
    for (folder, end) in
        FOLDERS.into_iter().filter(|(folder, _)| !(redaction.sql && *folder == record::files::PLANS))
    {
        let files: BTreeSet<String> = file::list(&from.join(folder))
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        for file in files.into_iter().filter(|file| file.ends_with(end)) {
            let name = format!("{folder}/{file}");
            file::own_folder(&to.join(folder)).map_err(BundleError::io("create", &to.join(folder)))?;
            // The frames of stacks are functions; only our own header names hosts.
            let is_stack = folder == record::files::STACKS;
            copy_lines(&from.join(&name), &to.join(&name), |line| {
                let is_frame = is_stack && !line.starts_with('#');
                Some(if is_frame { line.to_string() } else { redactor.text(&record::redact::text(line)) })
            })?;
            names.push(name);
        }
    }
    if names.is_empty() {
        let why = "it has no file of a run".to_string();
        return Err(BundleError::Foreign { path: from.to_path_buf(), why });
    }
    write_manifest(to, redaction, &names)?;
    names.push(MANIFEST.to_string());
    Ok(names)
}

/// Writes the list of the files that a bundle contains, and what was removed from them.
fn write_manifest(to: &Path, redaction: Redaction, names: &[String]) -> Result<(), BundleError> {
    let manifest = json!({"schema": "pgfathom.bundle", "schema_version": SCHEMA_VERSION,
        "redacted": redaction.words(), "files": names});
    write(&to.join(MANIFEST), format!("{manifest:#}\n").as_bytes())
}

fn write(path: &Path, content: &[u8]) -> Result<(), BundleError> {
    file::replace(path, content).map_err(BundleError::io("write", path))
}

fn json_of(path: &Path) -> Result<Value, BundleError> {
    let text = file::read(path, file::WHOLE_BYTES_MAX).map_err(BundleError::io("read", path))?;
    serde_json::from_slice(&text).map_err(|error| BundleError::io("read", path)(io::Error::other(error)))
}

fn for_lines(path: &Path, mut each: impl FnMut(&str) -> io::Result<()>) -> Result<(), BundleError> {
    let mut all = || -> io::Result<()> {
        let mut lines = Lines::new(file::open(path)?);
        while let Some(line) = lines.next_line()? {
            // Such a long line is not ours.
            if !line.is_too_long {
                each(&String::from_utf8_lossy(line.bytes))?;
            }
        }
        Ok(())
    };
    all().map_err(BundleError::io("read", path))
}

fn copy_lines(from: &Path, to: &Path, change: impl Fn(&str) -> Option<String>) -> Result<(), BundleError> {
    let mut out = BufWriter::new(file::create(to).map_err(BundleError::io("create", to))?);
    for_lines(from, |line| match change(line) {
        Some(line) => writeln!(out, "{line}"),
        None => Ok(()),
    })?;
    out.flush().map_err(BundleError::io("write", to))
}

/// A run directory that the user named, or that was unpacked from a named bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The run directory.
    pub run_dir: PathBuf,
    /// Whether it was unpacked just now: then the folder is printed.
    pub is_new: bool,
}

/// Opens what the user named: a folder as it is, an archive by unpacking it beside itself, into a folder of its name. An archive is
/// not unpacked twice, so later files in the folder (findings, a page) stay.
///
/// # Errors
/// [`BundleError::Foreign`] if the archive holds anything but plain files and folders of one run.
pub fn open(path: &Path) -> Result<Opened, BundleError> {
    if path.is_dir() {
        return Ok(Opened { run_dir: run_dir_in(path).unwrap_or_else(|| path.to_path_buf()), is_new: false });
    }
    let Some((end, _, program)) = kind_of(path) else {
        return Err(BundleError::Unknown { path: path.to_path_buf() });
    };
    // The user may have named a link; what it leads to must be a file.
    let archive = fs::canonicalize(path).map_err(BundleError::io("open", path))?;
    let packed = file::open(&archive).map_err(BundleError::io("open", path))?;
    let packed_bytes = packed.metadata().map_err(BundleError::io("read", path))?.len();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let folder = path.with_file_name(name.strip_suffix(end).unwrap_or(name));
    if folder.symlink_metadata().is_ok() {
        return match run_dir_in(&folder) {
            Some(run_dir) => Ok(Opened { run_dir, is_new: false }),
            None => Err(BundleError::Exists { path: folder }),
        };
    }
    let stage = Stage::beside(path)?;
    let source = Source::open(packed, program, path)?;
    let inner = stage.path().join("run");
    file::create_folder(&inner).map_err(BundleError::io("create", &inner))?;
    let run_dir = source.unpack(&inner, archive::unpacked_bytes_max(packed_bytes), path)?;
    fs::rename(&run_dir, &folder).map_err(BundleError::io("create", &folder))?;
    Ok(Opened { run_dir: folder, is_new: true })
}

/// The folder itself if it contains a run, else the only subfolder that does.
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

#[cfg(test)]
mod tests;
