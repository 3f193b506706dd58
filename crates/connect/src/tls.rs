//! TLS by libpq's rules, on rustls: which certificates are trusted under which `sslmode`, client certificates, channel binding.
//!
//! Both planes use it. The difference to rustls's own idea of TLS is that libpq's modes below `verify-full` check less, on purpose, and
//! that real-world certificates must work: without a subject alternative name, self-signed and used as their own root,
//! X.509 version 1 (`openssl x509 -req` made those for decades). The sources are `fe-secure-openssl.c` and `fe-secure-common.c`.

mod certificate;
mod end_point;
mod error;
mod files;
mod name;
mod verify;

use std::fmt;
use std::sync::Arc;

use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::pki_types::ServerName;

pub use error::TlsError;
use verify::Verifier;

use crate::conninfo::{SslMode, TlsOptions, TlsVersion};

pub(crate) use end_point::end_point;

/// What was checked about the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verified {
    /// Nothing: the server is not authenticated.
    Nothing,
    /// It leads to a trusted root.
    Root,
    /// And it has the name of the requested host.
    RootAndName,
}

/// How the bytes travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// In clear.
    Plain,
    /// Through TLS.
    Tls {
        /// `TLSv1.3`.
        version: String,
        /// `TLS13_AES_256_GCM_SHA384`.
        cipher: String,
        /// What was checked.
        verified: Verified,
    },
}

impl Link {
    /// Whether the bytes are encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Link::Tls { .. })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Plain => f.write_str("not encrypted"),
            Link::Tls { version, verified, .. } => {
                let checked = match verified {
                    Verified::Nothing => "server not verified",
                    Verified::Root => "server's root verified",
                    Verified::RootAndName => "server verified",
                };
                write!(f, "{version}, {checked}")
            }
        }
    }
}

/// Prepared TLS: files are read once for all connections.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    verified: Verified,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("verified", &self.verified).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files that the options name.
    pub(crate) fn new(mode: SslMode, options: &TlsOptions) -> Result<Tls, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = files::roots(mode, options)?;
        let verified = match (mode, &roots) {
            (SslMode::VerifyFull, _) => Verified::RootAndName,
            (_, Some(_)) => Verified::Root,
            (_, None) => Verified::Nothing,
        };
        let verifier = Verifier::new(roots, files::revoked(options)?, verified, &provider)?;
        let versions: Vec<&'static rustls::SupportedProtocolVersion> =
            [(TlsVersion::V1_2, &rustls::version::TLS12), (TlsVersion::V1_3, &rustls::version::TLS13)]
                .into_iter()
                .filter(|(version, _)| {
                    *version >= options.min_version && options.max_version.is_none_or(|max| *version <= max)
                })
                .map(|(_, version)| version)
                .collect();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(TlsError::Setup)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match files::client_certificate(options)? {
            Some((chain, key, path)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|source| TlsError::ClientCertificate { path, source })?,
            None => builder.with_no_client_auth(),
        };
        config.enable_sni = options.sni;
        // PostgreSQL issues no tickets; every connection must cost the same.
        config.resumption = Resumption::disabled();
        Ok(Tls { config: Arc::new(config), verified })
    }

    /// The rustls configuration.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// A connection to begin with `host`.
    pub(crate) fn begin(&self, host: &str) -> Result<ClientConnection, TlsError> {
        ClientConnection::new(self.config(), server_name(host)).map_err(TlsError::Setup)
    }

    /// What the finished handshake amounts to.
    pub(crate) fn link(&self, connection: &ClientConnection) -> Link {
        let version = match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3".to_owned(),
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2".to_owned(),
            other => format!("{other:?}"),
        };
        let cipher = connection
            .negotiated_cipher_suite()
            .map(|suite| format!("{:?}", suite.suite()))
            .unwrap_or_default();
        Link::Tls { version, cipher, verified: self.verified }
    }
}

/// The channel binding data of a finished handshake.
pub(crate) fn end_point_of(connection: &ClientConnection) -> Option<Vec<u8>> {
    end_point(connection.peer_certificates()?.first()?)
}

/// The name to put into the handshake. An invalid one (libpq would send it nevertheless) is replaced by an address, for which nothing
/// is sent; under `verify-full` it then matches no certificate.
pub(crate) fn server_name(host: &str) -> ServerName<'static> {
    ServerName::try_from(host.trim_end_matches('.').to_owned())
        .unwrap_or_else(|_| ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into()))
}
