//! What is read of the certificates in `tests/certificates`, compared with what OpenSSL prints of them, and of broken ones.

use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::Certificate;
use crate::tls::{end_point, name};

fn der(pem: &[u8]) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem).unwrap().to_vec()
}

macro_rules! fixture {
    ($name:literal) => {
        der(include_bytes!(concat!("../../../tests/certificates/", $name, ".crt")))
    };
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `certificate` with `from`, which stands in it once, changed.
fn changed(certificate: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let places: Vec<usize> =
        (0..certificate.len()).filter(|&at| certificate[at..].starts_with(from)).collect();
    assert_eq!((places.len(), from.len()), (1, to.len()));
    let mut result = certificate.to_vec();
    result[places[0]..places[0] + to.len()].copy_from_slice(to);
    result
}

/// The names for which it is good, of those that stand in the odd certificates.
fn good_for(certificate: &[u8]) -> Vec<&'static str> {
    [
        "localhost",
        "db.test",
        "a.wild.test",
        "10.1.2.3",
        "fd00::1",
        "uri.test",
        "ignored.test",
        "first.test",
        "second.test",
    ]
    .into_iter()
    .filter(|host| name::check(certificate, host).is_ok())
    .collect()
}

#[test]
fn channel_binding_hashes_as_the_signature_does() {
    // `openssl x509 -outform der | sha256sum`, and so on.
    for (certificate, bytes, expected) in [
        (fixture!("rsa-sha256"), 32, "c6a986ffbbc4467f"),
        (fixture!("rsa-sha512"), 64, "fd00975e4b77bd00"),
        (fixture!("rsa-pss-sha384"), 48, "263862c54382bef1"),
        (fixture!("version-1"), 32, "09a72a30b9883192"),
        (fixture!("odd-sha1"), 32, "b56ba22805f5ec49"),
        (fixture!("odd-pss-sha1"), 32, "9c9ff495ddda221c"),
    ] {
        let found = end_point(&certificate).unwrap();
        assert_eq!((found.len(), &hex(&found)[..16]), (bytes, expected));
    }
    assert_eq!(end_point(&fixture!("ed25519-self-signed")), None);
}

#[test]
fn names_are_those_that_openssl_gives_libpq() {
    let names = fixture!("odd-names");
    assert_eq!(good_for(&names), ["db.test", "a.wild.test", "10.1.2.3", "fd00::1"]);
    assert_eq!(
        name::check(&names, "other.test"),
        Err(["db.test", "*.wild.test", "10.1.2.3", "fd00::1"].map(String::from).to_vec())
    );
    assert_eq!(good_for(&fixture!("odd-common-names")), ["first.test"]);
    assert_eq!(good_for(&fixture!("odd-utf-16")), [""; 0]);
    assert_eq!(good_for(&fixture!("version-1")), ["localhost"]);

    // Not UTF-8: it matches nothing, and still the common name does not count.
    let broken = changed(&names, b"\x82\x07db.test", b"\x82\x07db\xfftest");
    assert_eq!(good_for(&broken), ["a.wild.test", "10.1.2.3", "fd00::1"]);
    // Two extensions with names, and one that does not decode: as if there were none.
    let twice = changed(&names, b"\x06\x03\x55\x1d\x13", b"\x06\x03\x55\x1d\x11");
    assert_eq!(good_for(&twice), ["ignored.test"]);
    let undecodable = changed(&names, b"\x30\x51\x81", b"\x30\x50\x81");
    assert_eq!(good_for(&undecodable), ["ignored.test"]);
}

#[test]
fn dates_are_read_in_both_forms() {
    // The end is after 2049: a GeneralizedTime.
    let certificate = fixture!("odd-names");
    let validity = Certificate::read(&certificate).unwrap().validity().unwrap();
    assert_eq!((validity.not_before, validity.not_after), (1_795_458_633, 4_949_058_633));
    let impossible = changed(&certificate, b"21261030183033Z", b"21261330183033Z");
    assert!(Certificate::read(&impossible).unwrap().validity().is_err());
}

#[test]
fn version_1_counts_only_with_the_signature_of_its_authority() {
    let (leaf, authority) = (fixture!("version-1"), fixture!("ca"));
    let algorithms = default_provider().signature_verification_algorithms;
    let is_issued = |leaf: &[u8], authority: &[u8]| {
        let (leaf, authority) = (Certificate::read(leaf).unwrap(), Certificate::read(authority).unwrap());
        leaf.is_issued_by(&authority, &algorithms)
    };
    assert!(Certificate::read(&leaf).unwrap().is_version_1());
    assert!(!Certificate::read(&authority).unwrap().is_version_1());
    assert!(is_issued(&leaf, &authority));
    // Another name, another key, another content, another signature, and an algorithm that is no longer trusted.
    assert!(!is_issued(&changed(&leaf, b"test root", b"test roof"), &authority));
    assert!(!is_issued(&leaf, &fixture!("self-signed")));
    assert!(!is_issued(&changed(&leaf, b"localhost", b"evil.host"), &authority));
    let mut signature = leaf.clone();
    *signature.last_mut().unwrap() ^= 1;
    assert!(!is_issued(&signature, &authority));
    let old = fixture!("odd-sha1");
    assert!(!is_issued(&old, &old));
    let own = fixture!("odd-utf-16");
    assert!(is_issued(&own, &own));
}

#[test]
fn broken_certificates_are_errors_and_nothing_worse() {
    let algorithms = default_provider().signature_verification_algorithms;
    let mut readable = 0;
    for whole in [fixture!("odd-names"), fixture!("rsa-pss-sha384"), fixture!("version-1")] {
        for end in 0..whole.len() {
            assert!(Certificate::read(&whole[..end]).is_err(), "the first {end} bytes");
        }
        assert!(Certificate::read(&[whole.as_slice(), &[0]].concat()).is_err());
        for at in 0..whole.len() {
            for bits in [0x01, 0x20, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= bits;
                let _ = (end_point(&bytes), name::check(&bytes, "db.test"));
                if let Ok(certificate) = Certificate::read(&bytes) {
                    readable += usize::from(certificate.validity().is_ok());
                    assert!(!certificate.is_issued_by(&certificate, &algorithms));
                }
            }
        }
    }
    assert!(readable > 1000, "{readable}");
}
