//! Certificates, keys and revocation lists, found where libpq finds them (`initialize_SSL` in `fe-secure-openssl.c`).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::TlsError;
use crate::conninfo::{RootCert, SslMode, TlsOptions};

/// The trusted roots; `None` when the server is not to be verified. An existing file is used in every mode.
pub(super) fn roots(
    mode: SslMode,
    options: &TlsOptions,
) -> Result<Option<Vec<CertificateDer<'static>>>, TlsError> {
    const WHAT: &str = "root certificate";
    let path = match &options.root_cert {
        RootCert::System => {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                return Err(TlsError::NoSystemRoots(found.errors.first().map(ToString::to_string)));
            }
            return Ok(Some(found.certs));
        }
        RootCert::File(path) => Some(path.clone()),
        RootCert::Default => options.default_dir.as_ref().map(|dir| dir.join("root.crt")),
    };
    match path {
        Some(path) if path.exists() => certificates(WHAT, &path).map(Some),
        Some(path) if mode >= SslMode::VerifyCa => Err(TlsError::RootMissing { path, sslmode: mode.name() }),
        None if mode >= SslMode::VerifyCa => Err(TlsError::RootUnnamed { sslmode: mode.name() }),
        _ => Ok(None),
    }
}

/// Lists of revoked certificates. A named one must exist; the default one may be missing.
pub(super) fn revoked(options: &TlsOptions) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    const WHAT: &str = "certificate revocation list";
    let default = options.default_dir.as_ref().map(|dir| dir.join("root.crl")).filter(|path| path.exists());
    let Some(path) = options.crl.clone().or(default) else { return Ok(Vec::new()) };
    CertificateRevocationListDer::pem_file_iter(&path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| pem_problem(WHAT, &path, &error))
}

type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, PathBuf);

/// The client's certificate chain and key, if there is one and it may be sent. As in libpq a missing certificate is no error: the server may not request one.
pub(super) fn client_certificate(options: &TlsOptions) -> Result<Option<ClientCertificate>, TlsError> {
    if !options.client_cert {
        return Ok(None);
    }
    let default = |name: &str| options.default_dir.as_ref().map(|dir| dir.join(name));
    let Some(cert) = options.cert.clone().or_else(|| default("postgresql.crt")).filter(|path| path.exists())
    else {
        return Ok(None);
    };
    let chain = certificates("certificate", &cert)?;
    let key = options
        .key
        .clone()
        .or_else(|| default("postgresql.key"))
        .unwrap_or_else(|| cert.with_extension("key"));
    let meta = match fs::metadata(&key) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(TlsError::KeyMissing { cert, key });
        }
        Err(error) => return Err(problem(KEY, &key, format!("cannot be read: {error}"))),
    };
    if !meta.is_file() {
        return Err(problem(KEY, &key, "is not a regular file".to_owned()));
    }
    // A key of root may be readable by a group, so that it can be shared with a server.
    let forbidden = if meta.uid() == 0 { 0o037 } else { 0o077 };
    if meta.mode() & forbidden != 0 {
        return Err(TlsError::KeyOpen { path: key });
    }
    let bytes = fs::read(&key).map_err(|error| problem(KEY, &key, format!("cannot be read: {error}")))?;
    let private = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("ENCRYPTED") {
            return problem(
                KEY,
                &key,
                "is protected by a passphrase, which is not supported (openssl pkey -in KEY -out KEY2 removes it)"
                    .to_owned(),
            );
        }
        pem_problem(KEY, &key, &error)
    })?;
    Ok(Some((chain, private, cert)))
}

const KEY: &str = "private key";

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| pem_problem(what, path, &error))?;
    if found.is_empty() {
        return Err(problem(what, path, "holds no certificate".to_owned()));
    }
    Ok(found)
}

fn pem_problem(what: &'static str, path: &Path, error: &pem::Error) -> TlsError {
    let text = match error {
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        pem::Error::NoItemsFound => "contains no object of that kind".to_owned(),
        error => format!("is damaged: {error:?}"),
    };
    problem(what, path, text)
}

fn problem(what: &'static str, path: &Path, problem: String) -> TlsError {
    TlsError::File { what, path: path.to_owned(), problem }
}
