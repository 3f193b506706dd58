//! Finds PostgreSQL server binaries.
//!
//! Only `postgres` and `initdb` are needed: the npm package has little more, and pgfathom uses no other program.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::LocalError;
use super::process;
use record::owner::Others;

/// A server version; `18.4`, `19beta1` counts as 19.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The release.
    pub major: u32,
    /// The update.
    pub minor: u32,
}

impl Version {
    /// From the output of `postgres --version`: `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
    pub fn parse(output: &str) -> Option<Version> {
        let word = output.split_once("(PostgreSQL) ")?.1.split_whitespace().next()?;
        let mut numbers = word.split('.').map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse::<u32>().ok()
        });
        let major = numbers.next()??;
        Some(Version { major, minor: numbers.next().flatten().unwrap_or(0) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Server binaries on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The folder with `postgres` and `initdb`.
    pub bin_dir: PathBuf,
    /// The output of `postgres --version` now; packages are updated under running tests.
    pub version: Version,
}

impl Installation {
    /// Looks into one folder.
    pub fn at(bin_dir: &Path) -> Result<Installation, String> {
        for program in ["postgres", "initdb"] {
            if !bin_dir.join(program).is_file() {
                return Err(format!("it holds no program {program}"));
            }
        }
        let output = Command::new(bin_dir.join("postgres"))
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("postgres --version cannot be run: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = Version::parse(&text).ok_or_else(|| {
            let error = String::from_utf8_lossy(&output.stderr);
            format!("postgres --version printed {:?}", format!("{}{}", text.trim(), error.trim()))
        })?;
        Ok(Installation { bin_dir: bin_dir.to_owned(), version })
    }

    /// The same for a folder that a cluster file names. Such a file may belong to the server's user or to someone else: as root, only programs of root run, by
    /// a path that root alone can change.
    ///
    /// # Errors
    /// As [`Installation::at`], and for programs of others.
    pub fn recorded(bin_dir: &Path) -> Result<Installation, String> {
        if !rustix::process::geteuid().is_root() {
            return Installation::at(bin_dir);
        }
        let real = |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
        let bin_dir = real(bin_dir)?;
        for program in ["postgres", "initdb"] {
            real(&bin_dir.join(program))?.ancestors().try_for_each(check_of_root)?;
        }
        bin_dir.ancestors().try_for_each(check_of_root)?;
        Installation::at(&bin_dir)
    }

    /// Whether the files of this extension are installed.
    pub(crate) fn has_extension(&self, extension: &Extension) -> bool {
        let control = format!("extension/{}.control", extension.name);
        self.share_dirs().iter().any(|dir| dir.join(&control).is_file())
    }

    /// Whether its server knows this setting.
    pub(crate) fn has_setting(&self, name: &str) -> bool {
        let described = self.output("postgres", "--describe-config").unwrap_or_default();
        described.lines().any(|line| line.split('\t').next() == Some(name))
    }

    /// The folder with the files of extensions: as `pg_config` prints it, else where the usual builds have it relative to their programs.
    fn share_dirs(&self) -> Vec<PathBuf> {
        if let Some(printed) = self.output("pg_config", "--sharedir") {
            return vec![PathBuf::from(printed.trim_end())];
        }
        let major = self.version.major;
        [
            "../share".to_owned(),
            "../share/postgresql".to_owned(),
            format!("../../../../share/postgresql/{major}"),
        ]
        .map(|relative| self.bin_dir.join(relative))
        .into()
    }

    /// What one of its programs prints; nothing if it is missing or fails.
    fn output(&self, program: &str, argument: &str) -> Option<String> {
        let mut command = Command::new(self.program(program));
        let output = command.arg(argument).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The path of one of its programs, which may be missing.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }
}

impl fmt::Display for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL {} in {}", self.version, self.bin_dir.display())
    }
}

/// An extension that servers of a topology must have.
#[derive(Debug, PartialEq, Eq)]
pub struct Extension {
    /// Its name for `create extension`.
    pub name: &'static str,
    /// The folder of its server below `PGFATHOM_ENGINES`, as `scripts/engines` names it.
    pub engine: &'static str,
    /// How to get it.
    pub hint: &'static str,
}

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// `--pg-bin`: if given, nothing else counts.
    pub pg_bin: Option<PathBuf>,
    /// Installations that have it come first.
    pub extension: Option<&'static Extension>,
}

/// Every usable PostgreSQL on this host, newest first. `PGFATHOM_PG_BIN`, when set, is the only one.
pub fn installations() -> Vec<Installation> {
    find_installations(&Search::default(), |name| std::env::var_os(name)).unwrap_or_default()
}

/// Every usable PostgreSQL, newest first; never empty. `env` looks up environment variables.
///
/// Order of precedence: `--pg-bin`; for an extension the server of its engine below `PGFATHOM_ENGINES`; `PGFATHOM_PG_BIN` (each alone if it is there); then
/// everything found by `pg_config`, in the usual folders of the distributions and in our cache.
pub fn find_installations(
    search: &Search,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<Installation>, LocalError> {
    let named = match &search.pg_bin {
        Some(dir) => Some(("--pg-bin", dir.clone())),
        None => {
            if let Some(found) = search.extension.and_then(|extension| of_engine(extension, &env)) {
                return Ok(vec![found]);
            }
            env("PGFATHOM_PG_BIN").filter(|v| !v.is_empty()).map(|v| ("PGFATHOM_PG_BIN", PathBuf::from(v)))
        }
    };
    if let Some((origin, dir)) = named {
        let found = Installation::at(&dir).map_err(|problem| LocalError::BadInstallation {
            origin: origin.to_owned(),
            dir,
            problem,
        })?;
        return Ok(vec![found]);
    }
    let user = process::server_user().ok().flatten();
    let (candidates, searched) = candidates(&env);
    let mut seen = BTreeSet::new();
    let mut found: Vec<Installation> = candidates
        .into_iter()
        .filter_map(|dir| dir.canonicalize().ok())
        .filter(|dir| seen.insert(dir.clone()))
        .filter(|dir| user.as_ref().is_none_or(|user| user.can_reach(dir)))
        .filter_map(|dir| Installation::at(&dir).ok())
        .collect();
    if found.is_empty() {
        return Err(LocalError::NoInstallation { searched });
    }
    found.sort_by_key(|installation| {
        let has_it = search.extension.is_some_and(|extension| installation.has_extension(extension));
        std::cmp::Reverse((has_it, installation.version))
    });
    Ok(found)
}

/// The server that `scripts/engines` built with this extension, if `PGFATHOM_ENGINES` names its folder.
fn of_engine(extension: &Extension, env: impl Fn(&str) -> Option<OsString>) -> Option<Installation> {
    let prefix = env("PGFATHOM_ENGINES").filter(|v| !v.is_empty())?;
    let found = Installation::at(&Path::new(&prefix).join(extension.engine).join("bin")).ok()?;
    found.has_extension(extension).then_some(found)
}

/// Folders that may contain binaries, and their names for a message.
fn candidates(env: &impl Fn(&str) -> Option<OsString>) -> (Vec<PathBuf>, Vec<String>) {
    let mut dirs = Vec::new();
    let mut searched = vec!["pg_config".to_owned()];
    let pg_config =
        Command::new("pg_config").arg("--bindir").stdin(Stdio::null()).stderr(Stdio::null()).output();
    if let Ok(output) = pg_config
        && output.status.success()
    {
        dirs.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    // (folder to search, prefix of the entry's name, path of the binaries below it)
    const FAMILIES: [(&str, &str, &str); 6] = [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/usr/local", "pgsql", "bin"),
        ("/opt/homebrew/opt", "postgresql", "bin"),
        ("/usr/local/opt", "postgresql", "bin"),
        ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
    ];
    let mut look = |folder: &Path, prefix: &str, below: &str| {
        searched.push(folder.join(format!("{prefix}*")).join(below).display().to_string());
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                dirs.push(entry.path().join(below));
            }
        }
    };
    for (folder, prefix, below) in FAMILIES {
        look(Path::new(folder), prefix, below);
    }
    for cache in cache_folders(env) {
        look(&cache.join("postgres"), "", "bin");
    }
    (dirs, searched)
}

/// Where `scripts/fetch-postgres18` may have put binaries: its own order of choice.
fn cache_folders(env: &impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let var = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let user = var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|home| home.join(".cache")));
    [var("PGFATHOM_CACHE"), Some(PathBuf::from("/var/cache/pgfathom")), user.map(|dir| dir.join("pgfathom"))]
        .into_iter()
        .flatten()
        .collect()
}

/// Whether root alone decides what lies there. In a sticky folder others can add entries, but neither rename nor remove those of root.
fn check_of_root(path: &Path) -> Result<(), String> {
    let there = std::fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match Others::of(&there, &[0]) {
        None => Ok(()),
        Some(_) => Err(format!(
            "{} could be changed by others than root, and root runs no program of theirs because a file names it",
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_postgres_prints_them() {
        for (text, expected) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", Some((15, 18))),
            ("postgres (PostgreSQL) 18.4\n", Some((18, 4))),
            ("postgres (PostgreSQL) 19beta1\n", Some((19, 0))),
            ("postgres (PostgreSQL) 20devel\n", Some((20, 0))),
            ("initdb (something else) 3\n", None),
            ("", None),
        ] {
            let expected = expected.map(|(major, minor)| Version { major, minor });
            assert_eq!(Version::parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_named_folder_without_a_server_is_an_error_that_names_it() {
        let search = Search { pg_bin: Some(PathBuf::from("/etc")), ..Search::default() };
        let error = find_installations(&search, |_| None).unwrap_err();
        assert!(
            error.to_string().contains("--pg-bin names /etc, but it holds no program postgres"),
            "{error}"
        );
        let error = find_installations(&Search::default(), |name| {
            (name == "PGFATHOM_PG_BIN").then(|| OsString::from("/nowhere"))
        })
        .unwrap_err();
        assert!(error.to_string().starts_with("PGFATHOM_PG_BIN names /nowhere"), "{error}");
        assert!(error.hint().is_some());
    }

    #[test]
    fn every_installation_is_found_once_and_newest_first() {
        let found = installations();
        assert!(!found.is_empty(), "these tests need a PostgreSQL");
        assert!(found.windows(2).all(|pair| pair[0].version >= pair[1].version));
        let dirs: BTreeSet<_> = found.iter().map(|i| i.bin_dir.clone()).collect();
        assert_eq!(dirs.len(), found.len());
    }
}
