//! Connections against real servers with TLS: every sslmode with every authentication and channel binding, on both planes, compared with a model
//! of libpq's rules and, where it is there, with psql itself. Then every kind of certificate that is found in the field.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod servers;

use std::fs;
use std::io::Read;
use std::time::Duration;

use connect::conninfo::{ChannelBindingMode, Host, RootCert, SslMode, TlsVersion};
use connect::tls::{Link, Verified};
use connect::{ConnSpec, ConnectError, Secret, control, hot};
use lab::throwaway::installations;
use rcgen::{
    CertificateRevocationListParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    RevokedCertParams, SerialNumber,
};
use servers::{
    Folder, PASSWORD, authority, change_certificate, fixture, leaf, leaf_params, server, tcp, try_control,
    try_hot, try_psql,
};

fn assert_no_secret(error: &ConnectError) {
    let shown = format!("{error} {error:?} {error:#?} {:?}", error.hint());
    assert!(!shown.contains(PASSWORD), "{shown}");
}

/// The root certificates that a client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    None,
    Right,
    Wrong,
}

/// libpq's rules: whether the session is encrypted, or `None` when there is none.
fn expected(
    over_tcp: bool,
    user: &str,
    mode: SslMode,
    binding: ChannelBindingMode,
    root: Root,
    right_name: bool,
) -> Option<bool> {
    let require = binding == ChannelBindingMode::Require;
    let bound = |encrypted: bool| !require || (encrypted && user == "scram");
    if !over_tcp {
        return bound(false).then_some(false);
    }
    if root == Root::None && mode >= SslMode::VerifyCa {
        return None;
    }
    let handshake = root != Root::Wrong && (mode != SslMode::VerifyFull || right_name);
    // Some(true): let in; Some(false): refused by the server or TLS, so that another attempt makes sense; None: we refuse ourselves.
    let plain = match user {
        "cert" | "sslonly" => Some(false),
        _ => bound(false).then_some(true),
    };
    let encrypted = match user {
        _ if !handshake => Some(false),
        "nossl" => Some(false),
        _ => bound(true).then_some(true),
    };
    let attempts: &[bool] = match mode {
        SslMode::Disable => &[false],
        SslMode::Allow => &[false, true],
        SslMode::Prefer => &[true, false],
        _ => &[true],
    };
    for with_tls in attempts {
        match if *with_tls { encrypted } else { plain } {
            Some(true) => return Some(*with_tls),
            Some(false) => {}
            None => return None,
        }
    }
    None
}

#[test]
fn every_mode_authentication_and_binding_behaves_as_in_libpq() {
    let folder = Folder::new("matrix");
    let (ca, stranger) = (authority("right root"), authority("wrong root"));
    let (certificate, key) = leaf(&ca, &["db.test", "127.0.0.1"], "db.test", &PKCS_ECDSA_P256_SHA256);
    let right = folder.write("right.crt", &ca.pem());
    let wrong = folder.write("wrong.crt", &stranger.pem());
    let (client_certificate, client_key) = leaf(&ca, &[], "cert", &PKCS_ECDSA_P256_SHA256);
    let client = (folder.write("cert.crt", &client_certificate), folder.write("cert.key", &client_key));
    let all = installations();
    let psql = testing::needs::client_program("psql").inspect_err(testing::skip).ok();
    let compared = std::thread::scope(|scope| {
        let servers: Vec<_> = all
            .iter()
            .map(|installation| {
                let (root, certificate, key) = (ca.pem(), certificate.as_str(), key.as_str());
                let (folder, client, right, wrong, psql, first) =
                    (&folder, &client, &right, &wrong, &psql, &all[0]);
                scope.spawn(move || {
                    let cluster = server(installation, &root, certificate, key);
                    let mut cells = 0;
                    for cell in cells_of_the_matrix() {
                        let mut spec = if cell.over_tcp {
                            tcp(&cluster, cell.host, cell.user)
                        } else {
                            let mut spec = cluster.spec().with_user(cell.user);
                            spec.password = Some(Secret::new(PASSWORD));
                            spec
                        };
                        spec.sslmode = cell.mode;
                        spec.channel_binding = cell.binding;
                        spec.tls.root_cert = match cell.root {
                            Root::None => RootCert::File(folder.0.join("missing.crt")),
                            Root::Right => RootCert::File(right.clone()),
                            Root::Wrong => RootCert::File(wrong.clone()),
                        };
                        if cell.user == "cert" {
                            spec.tls.cert = Some(client.0.clone());
                            spec.tls.key = Some(client.1.clone());
                        }
                        let right_name = cell.host != "other.test";
                        let wanted = expected(
                            cell.over_tcp,
                            cell.user,
                            cell.mode,
                            cell.binding,
                            cell.root,
                            right_name,
                        );
                        for (plane, result) in [("hot", try_hot(&spec)), ("control", try_control(&spec))] {
                            if let Err(error) = &result {
                                assert_no_secret(error);
                            }
                            let found = result.as_ref().ok().copied();
                            assert_eq!(found, wanted, "{plane}: {cell:?}: {result:?}");
                        }
                        // libpq of the same age speaks for all: one server is enough for the comparison.
                        if let (Some(psql), true) = (psql, installation == first) {
                            let result = try_psql(psql, &folder.0, &spec);
                            assert_eq!(result.as_ref().ok().copied(), wanted, "psql: {cell:?}: {result:?}");
                        }
                        cells += 1;
                    }
                    cells
                })
            })
            .collect();
        servers.into_iter().map(|server| server.join().unwrap()).sum::<usize>()
    });
    assert_eq!(compared, all.len() * cells_of_the_matrix().len());
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    over_tcp: bool,
    host: &'static str,
    user: &'static str,
    mode: SslMode,
    binding: ChannelBindingMode,
    root: Root,
}

fn cells_of_the_matrix() -> Vec<Cell> {
    use ChannelBindingMode::{Disable, Prefer, Require};
    let mut cells = Vec::new();
    for (_, mode) in SslMode::ALL {
        for binding in [Disable, Prefer, Require] {
            for user in ["scram", "md5", "password", "trust", "cert", "sslonly", "nossl"] {
                let tcp = |host, root| Cell { over_tcp: true, host, user, mode, binding, root };
                cells.push(tcp("db.test", Root::Right));
                // The rest of TLS does not depend on how the server then authenticates: two roles are enough.
                if user == "scram" || user == "nossl" {
                    cells.push(tcp("db.test", Root::None));
                    cells.push(tcp("db.test", Root::Wrong));
                    cells.push(tcp("other.test", Root::Right));
                    cells.push(tcp("127.0.0.1", Root::Right));
                }
                if !matches!(user, "cert" | "sslonly" | "nossl") && mode <= SslMode::Prefer {
                    cells.push(Cell { over_tcp: false, host: "", user, mode, binding, root: Root::None });
                }
            }
        }
    }
    cells
}

#[test]
fn every_kind_of_certificate_works_with_channel_binding() {
    let ca = authority("root");
    let fixed_root = fixture("ca.crt");
    let names = ["db.test", "127.0.0.1"];
    let own = |algorithm| {
        let (certificate, key) = leaf(&ca, &names, "db.test", algorithm);
        (ca.pem(), certificate, key)
    };
    let ed25519 = |name: &str, root: &str| (fixture(root), fixture(name), fixture("ed25519.key"));
    let fixed = |name: &str| (fixed_root.clone(), fixture(name), fixture("server.key"));
    let self_signed = fixture("self-signed.crt");
    /// What; root, certificate and key; the host; whether SCRAM can be bound to it.
    type Kind = (&'static str, (String, String, String), &'static str, bool);
    let kinds: Vec<Kind> = vec![
        ("ECDSA P-256", own(&PKCS_ECDSA_P256_SHA256), "db.test", true),
        ("ECDSA P-384", own(&PKCS_ECDSA_P384_SHA384), "db.test", true),
        ("Ed25519 key", ed25519("ed25519.crt", "ca.crt"), "localhost", true),
        // RFC 5929 knows no binding for such a signature, and neither does PostgreSQL.
        (
            "Ed25519 signature",
            ed25519("ed25519-self-signed.crt", "ed25519-self-signed.crt"),
            "localhost",
            false,
        ),
        ("RSA, SHA-256", fixed("rsa-sha256.crt"), "localhost", true),
        ("RSA, SHA-512", fixed("rsa-sha512.crt"), "127.0.0.1", true),
        ("RSA-PSS, SHA-384", fixed("rsa-pss-sha384.crt"), "localhost", true),
        ("version 1, common name only", fixed("version-1.crt"), "localhost", true),
        ("self-signed", (self_signed.clone(), self_signed, fixture("server.key")), "localhost", true),
    ];
    let folder = Folder::new("kinds");
    std::thread::scope(|scope| {
        for installation in installations() {
            let (kinds, folder) = (&kinds, &folder);
            scope.spawn(move || {
                let (root, certificate, key) = &kinds[0].1;
                let cluster = server(&installation, root, certificate, key);
                for (index, (what, (root, certificate, key), host, binds)) in kinds.iter().enumerate() {
                    change_certificate(&cluster, root, certificate, key);
                    let root_file = folder.write(&format!("{}-{index}.crt", installation.version), root);
                    for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
                        // webpki does not take the key of a version 1 certificate in TLS 1.2; no server of today insists on that.
                        if version == TlsVersion::V1_2 && what.starts_with("version 1") {
                            continue;
                        }
                        let mut spec = tcp(&cluster, host, "scram");
                        spec.tls.min_version = version;
                        spec.tls.max_version = Some(version);
                        spec.tls.root_cert = RootCert::File(root_file.clone());
                        for (mode, verified) in [
                            (SslMode::VerifyFull, Verified::RootAndName),
                            (SslMode::VerifyCa, Verified::Root),
                            (SslMode::Require, Verified::Root),
                        ] {
                            spec.sslmode = mode;
                            let session =
                                hot::connect(&spec).unwrap_or_else(|e| panic!("{what} {version:?}: {e}"));
                            let Link::Tls { version: spoken, verified: found, .. } = session.link() else {
                                panic!("{what}: not encrypted")
                            };
                            assert_eq!(*found, verified, "{what}");
                            assert_eq!(
                                spoken,
                                if version == TlsVersion::V1_2 { "TLSv1.2" } else { "TLSv1.3" }
                            );
                            assert_eq!(session.authentication().1, *binds, "{what} {version:?}");
                            assert!(try_control(&spec).unwrap_or_else(|e| panic!("{what}: {e}")));
                        }
                        spec.channel_binding = ChannelBindingMode::Require;
                        for result in [try_hot(&spec), try_control(&spec)] {
                            assert_eq!(result.is_ok(), *binds, "{what} {version:?}: {result:?}");
                        }
                        spec.channel_binding = ChannelBindingMode::Disable;
                        assert!(!hot::connect(&spec).unwrap().authentication().1);
                        assert!(control::connect(&spec).is_ok());
                    }
                }
            });
        }
    });
}

/// Both planes fail with these words and this hint.
fn refused(spec: &ConnSpec, message: &str, hint: &str) {
    for (plane, result) in [("hot", try_hot(spec)), ("control", try_control(spec))] {
        let error = result.map(|_| ()).expect_err(message);
        assert_no_secret(&error);
        let (text, found) = (error.to_string(), error.hint().unwrap_or_default());
        assert!(text.contains(message), "{plane}: {text}\n  does not say: {message}");
        assert!(found.contains(hint), "{plane}: {text}\n  hint {found:?} does not say: {hint}");
    }
}

#[test]
fn certificate_trouble_is_explained() {
    let folder = Folder::new("trouble");
    let (ca, stranger) = (authority("root"), authority("stranger"));
    let names = ["db.test", "*.wild.test", "10.1.2.3"];
    let key = KeyPair::generate().unwrap();
    let mut params = leaf_params(&names, "ignored.test");
    params.serial_number = Some(SerialNumber::from(4711u64));
    let certificate = params.signed_by(&key, &ca).unwrap().pem();
    let root = folder.write("root.crt", &ca.pem());
    let cluster = server(&installations()[0], &ca.pem(), &certificate, &key.serialize_pem());
    let with = |mode: SslMode, host: &str| {
        let mut spec = tcp(&cluster, host, "scram");
        spec.sslmode = mode;
        spec.tls.root_cert = RootCert::File(root.clone());
        spec
    };
    let full = |host: &str| with(SslMode::VerifyFull, host);
    assert!(try_hot(&full("db.test")).unwrap() && try_hot(&full("a.wild.test")).unwrap());
    for host in ["ignored.test", "a.b.wild.test", "127.0.0.1", "not_a-name!"] {
        refused(
            &full(host),
            "the server's certificate is for db.test, *.wild.test, 10.1.2.3, not for",
            "sslmode=verify-ca",
        );
    }

    let mut spec = full("db.test");
    spec.tls.root_cert = RootCert::File(folder.write("stranger.crt", &stranger.pem()));
    refused(&spec, "not signed by a trusted root", "sslrootcert must hold");
    spec.sslmode = SslMode::Require;
    refused(&spec, "not signed by a trusted root", "sslrootcert must hold");
    spec.tls.root_cert = RootCert::File(folder.0.join("missing.crt"));
    assert!(try_hot(&spec).unwrap());
    spec.sslmode = SslMode::VerifyCa;
    refused(&spec, "missing.crt does not exist, and sslmode=verify-ca needs one", "sslrootcert=system");
    spec.tls.root_cert = RootCert::Default;
    refused(&spec, "needs a root certificate file, but none is named", "sslrootcert");
    spec.tls.root_cert = RootCert::File(folder.write("empty.crt", "nothing\n"));
    refused(&spec, "empty.crt holds no certificate", "PEM");

    // The default place.
    let home = Folder::new("home");
    let mut spec = with(SslMode::VerifyFull, "db.test");
    spec.tls.root_cert = RootCert::Default;
    spec.tls.default_dir = Some(home.0.clone());
    refused(&spec, "root.crt does not exist", "sslrootcert");
    home.write("root.crt", &ca.pem());
    assert!(try_hot(&spec).unwrap() && try_control(&spec).unwrap());

    // Revoked, by a list that is named and by one in the default place.
    let list = |revoked: &[u64]| {
        let at = rcgen::date_time_ymd(2020, 1, 1);
        CertificateRevocationListParams {
            this_update: at,
            next_update: rcgen::date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: revoked
                .iter()
                .map(|serial| RevokedCertParams {
                    serial_number: SerialNumber::from(*serial),
                    revocation_time: at,
                    reason_code: None,
                    invalidity_date: None,
                })
                .collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        }
        .signed_by(&ca)
        .unwrap()
        .pem()
        .unwrap()
    };
    let mut spec = full("db.test");
    spec.tls.crl = Some(folder.write("harmless.crl", &list(&[1])));
    assert!(try_hot(&spec).unwrap());
    spec.tls.crl = Some(folder.write("revoked.crl", &list(&[4711])));
    refused(&spec, "the server's certificate is revoked", "new certificate");
    spec.tls.crl = Some(folder.0.join("none.crl"));
    refused(&spec, "none.crl cannot be read", "PEM");

    // Out of its time.
    let mut params = leaf_params(&["db.test"], "db.test");
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let old = params.signed_by(&key, &ca).unwrap().pem();
    change_certificate(&cluster, &ca.pem(), &old, &key.serialize_pem());
    refused(&full("db.test"), "the server's certificate has expired", "new certificate");
    let mut spec = with(SslMode::Require, "db.test");
    spec.tls.root_cert = RootCert::Default;
    assert!(try_hot(&spec).unwrap(), "sslmode=require without a root checks nothing");
}

#[test]
fn client_certificates_are_found_checked_and_explained() {
    let folder = Folder::new("client");
    let (ca, stranger) = (authority("root"), authority("stranger"));
    let (certificate, key) = leaf(&ca, &["db.test"], "db.test", &PKCS_ECDSA_P256_SHA256);
    let cluster = server(&installations()[0], &ca.pem(), &certificate, &key);
    let mut spec = tcp(&cluster, "db.test", "cert");
    spec.sslmode = SslMode::Require;
    refused(&spec, "connection requires a valid client certificate", "sslcert");
    spec.tls.cert = Some(folder.0.join("none.crt"));
    refused(&spec, "connection requires a valid client certificate", "none.crt, which does not exist");

    let (mine, my_key) = leaf(&ca, &[], "cert", &PKCS_ECDSA_P256_SHA256);
    let (cert, key) = (folder.write("postgresql.crt", &mine), folder.write("postgresql.key", &my_key));
    spec.tls.cert = Some(cert.clone());
    spec.tls.key = Some(key.clone());
    assert!(try_hot(&spec).unwrap() && try_control(&spec).unwrap());
    spec.tls.client_cert = false;
    refused(&spec, "connection requires a valid client certificate", "sslcert");
    spec.tls.client_cert = true;

    // The default place.
    (spec.tls.cert, spec.tls.key) = (None, None);
    spec.tls.default_dir = Some(folder.0.clone());
    assert!(try_hot(&spec).unwrap() && try_control(&spec).unwrap());
    spec.tls.default_dir = None;

    spec.tls.cert = Some(cert);
    spec.tls.key = Some(folder.0.join("none.key"));
    refused(&spec, "none.key is not", "sslkey");
    spec.tls.key = Some(key.clone());
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    refused(&spec, "has group or world access", "chmod 0600");
    spec.tls.key = Some(folder.write(
        "locked.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    ));
    refused(&spec, "protected by a passphrase", "PEM");
    let (_, other_key) = leaf(&ca, &[], "cert", &PKCS_ECDSA_P256_SHA256);
    spec.tls.key = Some(folder.write("other.key", &other_key));
    refused(&spec, "cannot be used", "");

    let (foreign, foreign_key) = leaf(&stranger, &[], "cert", &PKCS_ECDSA_P256_SHA256);
    spec.tls.cert = Some(folder.write("foreign.crt", &foreign));
    spec.tls.key = Some(folder.write("foreign.key", &foreign_key));
    refused(&spec, "the server does not trust our client certificate", "sslcert");
    let (wrong_name, wrong_key) = leaf(&ca, &[], "somebody", &PKCS_ECDSA_P256_SHA256);
    spec.tls.cert = Some(folder.write("wrong.crt", &wrong_name));
    spec.tls.key = Some(folder.write("wrong.key", &wrong_key));
    refused(&spec, "certificate authentication failed for user \"cert\"", "sslcert");
}

#[test]
fn a_query_over_tls_can_be_cancelled_and_taken_apart() {
    let ca = authority("root");
    let (certificate, key) = leaf(&ca, &["db.test"], "db.test", &PKCS_ECDSA_P256_SHA256);
    let cluster = server(&installations()[0], &ca.pem(), &certificate, &key);
    let mut spec = tcp(&cluster, "db.test", "scram");
    spec.sslmode = SslMode::Require;
    assert!(matches!(spec.hosts[0].host, Host::Tcp(_)));
    let mut session = hot::connect(&spec).unwrap();
    let token = session.cancel_token();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            let sleeps = "select exists (select from pg_stat_activity where wait_event = 'PgSleep')";
            testing::wait_for("the sleep", || cluster.value(sleeps).unwrap().as_deref() == Some("t"));
            token.cancel().unwrap();
        });
        session.simple_query("select pg_sleep(300)").unwrap_err()
    });
    assert!(error.to_string().contains("57014"), "{error}");
    // More than one TLS record.
    let rows = session.simple_query("select repeat('x', 100000)").unwrap();
    assert_eq!(rows[0][0].as_ref().unwrap().len(), 100_000);
    let parts = session.into_parts();
    assert!(parts.tls.is_some() && parts.received.is_empty() && parts.link.is_encrypted());
    parts.close();
    drop(hot::connect(&spec).unwrap());
    drop(control::connect(&spec).unwrap());
    cluster.value("select pg_sleep(0.2)").unwrap();
    assert!(!cluster.log().contains("could not receive data"), "{}", cluster.log());
}

/// A process that is killed sends no alert of TLS: that is the end of the connection, as it is in clear.
#[test]
fn a_server_that_is_killed_ends_the_connection_in_the_same_words_with_tls() {
    let ca = authority("root");
    let (certificate, key) = leaf(&ca, &["localhost"], "localhost", &PKCS_ECDSA_P256_SHA256);
    let mut cluster = server(&installations()[0], &ca.pem(), &certificate, &key);
    let mut spec = tcp(&cluster, "localhost", "scram");
    spec.sslmode = SslMode::Require;
    let mut hot = hot::connect(&spec).unwrap();
    let mut control = control::connect(&spec).unwrap();
    assert!(hot.link().is_encrypted());
    cluster.kill9().unwrap();
    hot.socket().set_timeout(Some(Duration::from_secs(30))).unwrap();
    // Its last words, and then the end.
    hot.read_to_end(&mut Vec::new()).unwrap();
    // Each backend notices by itself that its postmaster is gone, and may answer until then.
    let mut failed = None;
    testing::wait_for("the end of the other session", || {
        failed = control.simple_query("select 1").err();
        failed.is_some()
    });
    let error = failed.expect("it failed");
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        words.push_str(&error.to_string());
        cause = error.source();
    }
    assert!(!words.contains("rustls") && !words.contains("close_notify"), "{words}");
}
