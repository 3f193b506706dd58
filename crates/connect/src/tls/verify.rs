//! Verifies the server's identity, as far as the `sslmode` requires.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::certificate::Certificate;
use super::{TlsError, Verified, name};

/// Verifies by mode. The handshake's signature is checked in every mode: without that, channel binding would prove nothing, because anyone can present
/// a certificate without its key.
#[derive(Debug)]
pub(super) struct Verifier {
    wanted: Verified,
    roots: Vec<CertificateDer<'static>>,
    chain: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(
        roots: Option<Vec<CertificateDer<'static>>>,
        revoked: Vec<CertificateRevocationListDer<'static>>,
        wanted: Verified,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Verifier, TlsError> {
        let algorithms = provider.signature_verification_algorithms;
        let roots = roots.unwrap_or_default();
        let mut store = RootCertStore::empty();
        // A certificate in the file that rustls cannot use as a root may still be the server's own.
        store.add_parsable_certificates(roots.iter().cloned());
        let chain = if store.is_empty() {
            None
        } else {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider));
            let builder = if revoked.is_empty() {
                builder
            } else {
                builder.with_crls(revoked).enforce_revocation_expiration()
            };
            Some(builder.build().map_err(|error| TlsError::Setup(Error::General(error.to_string())))?)
        };
        Ok(Verifier { wanted, roots, chain, algorithms })
    }

    /// Whether the certificate leads to one of the roots.
    fn check_chain(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        // The server's own certificate in the root file: OpenSSL trusts it, webpki would require an authority above it.
        if self.roots.iter().any(|root| root.as_ref() == end_entity.as_ref()) {
            return check_dates(end_entity, now);
        }
        let Some(chain) = &self.chain else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        match chain.verify_server_cert(end_entity, intermediates, server_name, &[], now) {
            Ok(_) => Ok(()),
            // webpki checks the name last, so the chain is valid. The name is checked by libpq's rule.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(()),
            Err(error) => match self.check_version_1(end_entity, now) {
                Some(result) => result,
                None => Err(error),
            },
        }
    }

    /// Version 1 certificates have no extensions, and webpki does not read them. One that a root signed directly is accepted, as by OpenSSL.
    /// `None` when the certificate is of another version.
    fn check_version_1(&self, end_entity: &CertificateDer<'_>, now: UnixTime) -> Option<Result<(), Error>> {
        let certificate = Certificate::read(end_entity).ok()?;
        if !certificate.is_version_1() {
            return None;
        }
        let signed = self.roots.iter().any(|root| {
            Certificate::read(root).is_ok_and(|root| certificate.is_issued_by(&root, &self.algorithms))
        });
        Some(if signed { check_dates(end_entity, now) } else { Err(CertificateError::UnknownIssuer.into()) })
    }
}

fn check_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let validity = Certificate::read(certificate)
        .and_then(|certificate| certificate.validity())
        .map_err(|_| Error::from(CertificateError::BadEncoding))?;
    if now.as_secs() < validity.not_before {
        return Err(CertificateError::NotValidYet.into());
    }
    if now.as_secs() > validity.not_after {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.wanted >= Verified::Root {
            self.check_chain(end_entity, intermediates, server_name, now)?;
        }
        if self.wanted >= Verified::RootAndName {
            name::check(end_entity, &server_name.to_str()).map_err(|presented| {
                CertificateError::NotValidForNameContext { expected: server_name.to_owned(), presented }
            })?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms).or_else(|error| {
            // Again version 1, whose key webpki does not accept either.
            match Certificate::read(cert) {
                Ok(parsed) if parsed.is_version_1() => {
                    let key = SubjectPublicKeyInfoDer::from(parsed.public_key());
                    verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
                }
                _ => Err(error),
            }
        })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
