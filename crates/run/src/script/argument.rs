//! The script arguments of the command line, read as pgbench reads them: `-f FILE[@WEIGHT]`, `-b NAME[@WEIGHT]`, `-D NAME=VALUE`.

use std::io::Read as _;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::builtin::{BUILTINS, Builtin};
use super::mix::Source;
use super::names::{is_name, nearest};
use super::parse::SCRIPT_BYTES_MAX;

/// Most scripts in a run (pgbench's limit, too).
pub const SCRIPTS_MAX: usize = 128;
/// Largest weight of a script.
pub(crate) const WEIGHT_MAX: u32 = i32::MAX as u32;

/// A script argument that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentError {
    #[error("{flag} {argument}: \"{weight}\" is not a weight")]
    Weight { flag: &'static str, argument: String, weight: String },
    #[error("{flag} {argument}: a weight must be between 0 and {WEIGHT_MAX}")]
    WeightRange { flag: &'static str, argument: String },
    #[error("{flag}: a name is missing")]
    NoName { flag: &'static str },
    #[error("-b {name}: there is no built-in script of that name")]
    UnknownBuiltin { name: String, similar: Option<&'static str> },
    #[error("-b {name}: {} built-in scripts begin with that", candidates.len())]
    AmbiguousBuiltin { name: String, candidates: Vec<&'static str> },
    #[error("cannot read script {path}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("script {path}: {problem}")]
    NotText { path: String, problem: super::Problem },
    #[error("-D {argument}: not of the form NAME=VALUE")]
    Define { argument: String },
    #[error("-D {argument}: \"{name}\" is not a variable name")]
    DefineName { argument: String, name: String },
    #[error("-D {name}=...: the value is {bytes} bytes long; the limit is {}", super::TEXT_BYTES_MAX)]
    DefineLength { name: String, bytes: usize },
    #[error("{count} scripts; the limit is {SCRIPTS_MAX}")]
    TooManyScripts { count: usize },
    #[error("the weights of all scripts are 0: nothing would run")]
    ZeroWeight,
}

impl ArgumentError {
    /// What to type instead.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            ArgumentError::Weight { flag, argument, .. } => Some(format!(
                "a weight is a whole number behind @, as in {flag} name@3; a file whose name has an @ needs one: {flag} {argument}@1"
            )),
            ArgumentError::UnknownBuiltin { similar: Some(similar), .. } => {
                Some(format!("is {similar} meant? -b list shows all"))
            }
            ArgumentError::UnknownBuiltin { similar: None, .. } | ArgumentError::NoName { flag: "-b" } => {
                Some(format!("there are: {}", BUILTINS.map(|builtin| builtin.name).join(", ")))
            }
            ArgumentError::AmbiguousBuiltin { candidates, .. } => {
                Some(format!("write more of the name: {}", candidates.join(", ")))
            }
            ArgumentError::NotText { problem, .. } => problem.hint(),
            ArgumentError::Define { .. } => {
                Some("write -D name=value; the value must not be empty".to_owned())
            }
            ArgumentError::DefineName { .. } => {
                Some("a name is letters, digits and underscores, not starting with a digit".to_owned())
            }
            ArgumentError::ZeroWeight => {
                Some("give at least one script a weight above 0, as in -f file@1".to_owned())
            }
            _ => None,
        }
    }
}

/// Splits `NAME[@WEIGHT]` at the last `@`; without one the weight is 1. A weight of 0 is allowed: the script is checked but not run.
///
/// # Errors
/// [`ArgumentError`] for a weight that is no number or out of range, and for an empty name.
pub(crate) fn split_weight<'a>(
    flag: &'static str,
    argument: &'a str,
) -> Result<(&'a str, u32), ArgumentError> {
    let (name, weight) = match argument.rsplit_once('@') {
        None => (argument, 1),
        Some((name, text)) => {
            let number = text.trim_start();
            let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                let (argument, weight) = (argument.to_owned(), text.to_owned());
                return Err(ArgumentError::Weight { flag, argument, weight });
            }
            let weight = number.parse().ok().filter(|weight| *weight <= WEIGHT_MAX);
            (name, weight.ok_or_else(|| ArgumentError::WeightRange { flag, argument: argument.to_owned() })?)
        }
    };
    if name.is_empty() {
        return Err(ArgumentError::NoName { flag });
    }
    Ok((name, weight))
}

/// The built-in script whose name begins with `prefix`, if there is just one.
///
/// # Errors
/// [`ArgumentError::UnknownBuiltin`] and [`ArgumentError::AmbiguousBuiltin`].
pub(crate) fn find_builtin(prefix: &str) -> Result<&'static Builtin, ArgumentError> {
    static ALL: [Builtin; BUILTINS.len()] = BUILTINS;
    let found: Vec<&'static Builtin> =
        ALL.iter().filter(|builtin| builtin.name.starts_with(prefix)).collect();
    match found[..] {
        [builtin] => Ok(builtin),
        [] => {
            let similar = nearest(prefix, ALL.iter().map(|builtin| builtin.name));
            Err(ArgumentError::UnknownBuiltin { name: prefix.to_owned(), similar })
        }
        _ => {
            let candidates = found.iter().map(|builtin| builtin.name).collect();
            Err(ArgumentError::AmbiguousBuiltin { name: prefix.to_owned(), candidates })
        }
    }
}

/// The script of a `-b NAME[@WEIGHT]`.
///
/// # Errors
/// As [`split_weight`] and [`find_builtin`].
pub fn builtin_source(argument: &str) -> Result<Source, ArgumentError> {
    let (name, weight) = split_weight("-b", argument)?;
    let builtin = find_builtin(name)?;
    Ok(Source { name: builtin.name.to_owned(), text: builtin.text.to_owned(), weight })
}

/// The file that is standard input.
pub const STDIN: &str = "-";

/// The script of a `-f FILE[@WEIGHT]`, and the SHA-256 of the file's bytes as `sha256sum` prints it. Standard input can be read only once.
///
/// # Errors
/// As [`split_weight`], and where the file cannot be read or is no text.
pub fn file_source(argument: &str) -> Result<(Source, String), ArgumentError> {
    let (path, weight) = split_weight("-f", argument)?;
    let unreadable = |source| ArgumentError::Unreadable { path: path.to_owned(), source };
    // One byte more than allowed is enough to know.
    let limit = SCRIPT_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    if path == STDIN {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
    } else {
        let file = std::fs::File::open(Path::new(path)).map_err(unreadable)?;
        file.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    let sha256 = sha256(&bytes);
    let text = text_of(bytes).map_err(|problem| ArgumentError::NotText { path: path.to_owned(), problem })?;
    Ok((Source { name: path.to_owned(), text, weight }, sha256))
}

/// SHA-256 in hexadecimal digits.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A script's bytes as text, without the byte order mark some editors write.
fn text_of(bytes: Vec<u8>) -> Result<String, super::Problem> {
    if bytes.len() > SCRIPT_BYTES_MAX {
        let limit = SCRIPT_BYTES_MAX as u64;
        return Err(super::Problem::TooLong { bytes: bytes.len() as u64, limit });
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        super::Problem::NotUtf8 { line: valid.iter().filter(|byte| **byte == b'\n').count() + 1 }
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The name and value of a `-D NAME=VALUE`.
///
/// # Errors
/// Where a part is missing, the name is none, or the value is longer than a variable may hold.
pub fn define(argument: &str) -> Result<(String, String), ArgumentError> {
    match argument.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            if !is_name(name) {
                let (argument, name) = (argument.to_owned(), name.to_owned());
                return Err(ArgumentError::DefineName { argument, name });
            }
            if value.len() > super::TEXT_BYTES_MAX {
                return Err(ArgumentError::DefineLength { name: name.to_owned(), bytes: value.len() });
            }
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(ArgumentError::Define { argument: argument.to_owned() }),
    }
}

/// Checks what concerns the scripts of a run together; with none given the run takes `tpcb-like`, as pgbench does.
///
/// # Errors
/// [`ArgumentError::TooManyScripts`] and [`ArgumentError::ZeroWeight`].
pub fn complete(mut sources: Vec<Source>) -> Result<Vec<Source>, ArgumentError> {
    if sources.is_empty() {
        sources.push(builtin_source("tpcb-like")?);
    }
    if sources.len() > SCRIPTS_MAX {
        return Err(ArgumentError::TooManyScripts { count: sources.len() });
    }
    if sources.iter().all(|source| source.weight == 0) {
        return Err(ArgumentError::ZeroWeight);
    }
    Ok(sources)
}
