//! What goes wrong with TLS.

use std::io;
use std::path::PathBuf;

use rustls::{AlertDescription, CertificateError};

/// Why TLS could not be set up or negotiated.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TlsError {
    /// `verify-ca` or `verify-full` without roots.
    #[error("root certificate file {} does not exist, and sslmode={sslmode} needs one", path.display())]
    RootMissing {
        /// Where it was expected.
        path: PathBuf,
        /// The mode.
        sslmode: &'static str,
    },
    /// The same, and there is no home directory to search.
    #[error("sslmode={sslmode} needs a root certificate file, but none is named")]
    RootUnnamed {
        /// The mode.
        sslmode: &'static str,
    },
    /// The operating system has no trusted roots.
    #[error("sslrootcert=system, but this host has no trusted root certificates{}", .0.as_ref().map(|e| format!(": {e}")).unwrap_or_default())]
    NoSystemRoots(Option<String>),
    /// A file that cannot be read or contains something else.
    #[error("{what} file {} {problem}", path.display())]
    File {
        /// Which file.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A certificate without its key.
    #[error("certificate {} is present, but its private key file {} is not", cert.display(), key.display())]
    KeyMissing {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// A key that others may read.
    #[error("private key file {} has group or world access", path.display())]
    KeyOpen {
        /// The key.
        path: PathBuf,
    },
    /// A certificate and key that do not match, or of an unsupported kind.
    #[error("client certificate {} cannot be used: {source}", path.display())]
    ClientCertificate {
        /// The certificate.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// rustls does not take the configuration.
    #[error("TLS cannot be set up: {0}")]
    Setup(rustls::Error),
    /// The handshake failed.
    #[error("TLS failed: {}", handshake_words(.0))]
    Handshake(rustls::Error),
    /// The connection broke during the handshake.
    #[error("the connection broke during the TLS handshake: {message}")]
    Broken {
        /// What kind of break.
        kind: io::ErrorKind,
        /// In words.
        message: String,
    },
}

/// The message of rustls, or a clearer one for common errors.
fn handshake_words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet".to_owned()
            }
            CertificateError::UnknownIssuer => {
                "the server's certificate is not signed by a trusted root".to_owned()
            }
            CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
                "the server's certificate is signed by an algorithm that is too weak or not supported (RSA from \
                 2048 bits, ECDSA P-256 and P-384, Ed25519; SHA-256 and longer)"
                    .to_owned()
            }
            CertificateError::Revoked => "the server's certificate is revoked".to_owned(),
            CertificateError::NotValidForNameContext { expected, presented } => format!(
                "the server's certificate is for {}, not for \"{}\"",
                if presented.is_empty() { "no host name".to_owned() } else { presented.join(", ") },
                expected.to_str()
            ),
            error => format!("the server's certificate is not acceptable: {error}"),
        },
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => "the server requires a client certificate".to_owned(),
            AlertDescription::UnknownCA => "the server does not trust our client certificate".to_owned(),
            AlertDescription::ProtocolVersion => {
                "the server supports none of the allowed TLS versions".to_owned()
            }
            AlertDescription::HandshakeFailure => "the server found no common cipher or key type".to_owned(),
            alert => format!("the server refused ({alert:?})"),
        },
        error => error.to_string(),
    }
}

impl TlsError {
    /// From an I/O error of a handshake, which may carry rustls's error inside.
    pub(crate) fn from_io(error: &io::Error) -> TlsError {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(inner) => TlsError::Handshake(inner.clone()),
            None => TlsError::Broken { kind: error.kind(), message: error.to_string() },
        }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            TlsError::RootMissing { .. } | TlsError::RootUnnamed { .. } => {
                "name the file with sslrootcert, or use sslrootcert=system, or a weaker sslmode to skip the check"
            }
            TlsError::NoSystemRoots(_) => "apt-get install ca-certificates, or name a file with sslrootcert",
            TlsError::KeyOpen { .. } => {
                "chmod 0600 the key (or 0640 when it belongs to root), as PostgreSQL's own programs require"
            }
            TlsError::KeyMissing { .. } => {
                "name the key with sslkey, or disable the certificate with sslcertmode=disable"
            }
            TlsError::File { .. } => "PEM files are needed (-----BEGIN ...-----), readable by you",
            TlsError::Handshake(rustls::Error::InvalidCertificate(error)) => match error {
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "connect by a name that is in the certificate (hostaddr=ADDRESS keeps the address), or use sslmode=verify-ca"
                }
                CertificateError::UnknownIssuer => {
                    "sslrootcert must hold the certificate of the authority that signed the server's"
                }
                _ => "the server needs a new certificate, or use a weaker sslmode to skip the check",
            },
            TlsError::Handshake(rustls::Error::AlertReceived(
                AlertDescription::CertificateRequired | AlertDescription::UnknownCA,
            )) => "name a certificate and key that the server trusts with sslcert and sslkey",
            TlsError::Handshake(rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)) => {
                "this client supports TLS 1.2 and 1.3; see ssl_min_protocol_version on both sides"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
