//! Errors in connection parameters. No message quotes a value that may contain a password.

use std::io;
use std::path::PathBuf;

/// Why a connection could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum ConninfoError {
    /// An unknown parameter.
    #[error("unknown connection parameter \"{name}\"{}", at(.origin))]
    UnknownParameter {
        /// As it was typed.
        name: String,
        /// Where.
        origin: Origin,
    },
    /// A word after a password, which may be a part of it.
    #[error("an unknown connection parameter behind the password{}", at(.origin))]
    BehindPassword {
        /// Where.
        origin: Origin,
    },
    /// A URI of something else.
    #[error("not a connection URI of PostgreSQL: it begins with neither postgresql:// nor postgres://")]
    OtherUri,
    /// A key=value string that is none.
    #[error("{0} in the connection string")]
    KeyValueSyntax(String),
    /// A URI that is none.
    #[error("{0} in the connection URI")]
    UriSyntax(String),
    /// A value that its parameter does not accept.
    #[error("invalid {parameter} value \"{value}\"{}", at(.origin))]
    InvalidValue {
        /// The parameter.
        parameter: &'static str,
        /// As it was typed.
        value: String,
        /// Where.
        origin: Origin,
        /// What it takes.
        expected: String,
    },
    /// A feature of libpq that this client lacks.
    #[error("{parameter}{}{} cannot be honoured by this client", value.as_ref().map(|v| format!("={v}")).unwrap_or_default(), at(.origin))]
    Unsupported {
        /// The parameter.
        parameter: &'static str,
        /// The value, unless it may be a secret.
        value: Option<String>,
        /// Where.
        origin: Origin,
    },
    /// Lists of different lengths.
    #[error("could not match {count} {what} to {hosts} hosts")]
    CountMismatch {
        /// `port numbers` or `hostaddr values`.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many hosts.
        hosts: usize,
    },
    /// sslrootcert=system with a mode that does not check the name.
    #[error("weak sslmode \"{sslmode}\" may not be used with sslrootcert=system")]
    WeakSslMode {
        /// The mode.
        sslmode: &'static str,
    },
    /// Two places name the database.
    #[error("-d and the last argument both name a database to connect to")]
    TwoTargets,
    /// A service without a definition.
    #[error("definition of service \"{name}\" not found")]
    ServiceNotFound {
        /// The service.
        name: String,
        /// Files looked at.
        searched: Vec<PathBuf>,
    },
    /// The named service file is missing or cannot be read.
    #[error("service file {} cannot be read", path.display())]
    ServiceFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A malformed line in a service file.
    #[error("{problem} in service file {}, line {line}", path.display())]
    ServiceSyntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// It is unknown who we are.
    #[error("the name of the current operating system user is unknown, and no role was given")]
    NoUser,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag, `-p`.
    Flag(&'static str),
    /// A connection string.
    String,
    /// A connection URI.
    Uri,
    /// A service file.
    Service(PathBuf),
    /// An environment variable.
    Environment(&'static str),
    /// Nowhere: libpq's default.
    Default,
}

/// The source as shown in a message.
fn at(origin: &Origin) -> String {
    match origin {
        Origin::Flag(flag) => format!(" ({flag})"),
        Origin::String => " in the connection string".to_owned(),
        Origin::Uri => " in the connection URI".to_owned(),
        Origin::Service(path) => format!(" in {}", path.display()),
        Origin::Environment(name) => format!(" (environment variable {name})"),
        Origin::Default => String::new(),
    }
}

impl ConninfoError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        use super::parameter::{self, Treatment};
        Some(match self {
            ConninfoError::UnknownParameter { name, .. } => match parameter::nearest(name) {
                Some(near) => format!("did you mean {near}?"),
                None if name == "database" || name == "db" => "the parameter is called dbname".to_owned(),
                None => "see \"Parameter Key Words\" in PostgreSQL's documentation of libpq".to_owned(),
            },
            ConninfoError::BehindPassword { origin: Origin::Uri } => {
                "special characters of a password are percent-encoded: %26 for &, %3D for =, %40 for @".to_owned()
            }
            ConninfoError::BehindPassword { .. } => {
                "a password with blanks is quoted: password='two words'; \\' is a quote in it".to_owned()
            }
            ConninfoError::OtherUri => "write postgresql://user@host:port/dbname".to_owned(),
            ConninfoError::KeyValueSyntax(_) => {
                "write key=value pairs: 'host=/tmp port=5433 dbname=x'; quote values that hold blanks with '...'".to_owned()
            }
            ConninfoError::UriSyntax(_) => {
                "write postgresql://user@host:port/dbname?sslmode=require; special characters are percent-encoded (%2F for /, %40 for @)".to_owned()
            }
            ConninfoError::InvalidValue { expected, .. } => format!("it takes {expected}"),
            ConninfoError::Unsupported { parameter: name, .. } => match parameter::find(name)?.treatment {
                Treatment::Only(values) => format!("leave it out, or use {name}={}", values[0]),
                _ => match *name {
                    "sslpassword" => "use a key file without a passphrase: openssl pkey -in KEY -out KEY2".to_owned(),
                    "sslcrldir" => "put the lists into one file and name it with sslcrl".to_owned(),
                    _ => format!("leave {name} out"),
                },
            },
            ConninfoError::CountMismatch { .. } => "give one for all hosts, or one for each, separated by commas".to_owned(),
            ConninfoError::WeakSslMode { .. } => "use sslmode=verify-full, or leave sslmode out".to_owned(),
            ConninfoError::TwoTargets => "leave one of them out".to_owned(),
            ConninfoError::ServiceNotFound { name, searched } if searched.is_empty() => {
                format!("write [{name}] with its parameters into ~/.pg_service.conf, or name a file with PGSERVICEFILE")
            }
            ConninfoError::ServiceNotFound { name, searched } => {
                let files: Vec<String> = searched.iter().map(|p| p.display().to_string()).collect();
                format!("no section [{name}] in {}", files.join(", "))
            }
            ConninfoError::ServiceFile { .. } => "check PGSERVICEFILE or servicefile".to_owned(),
            ConninfoError::ServiceSyntax { .. } => "lines are [service], parameter=value without blanks around =, or # comment".to_owned(),
            ConninfoError::NoUser => "name the role with -U".to_owned(),
        })
    }
}
