//! Channel binding data `tls-server-end-point` (RFC 5929, section 4).

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::certificate::{AlgorithmIdentifier, Certificate};

/// The hash functions that sign certificates.
#[derive(Clone, Copy)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// The hash of the server's certificate by the hash function of its signature, where MD5 and SHA-1 count as SHA-256.
/// `None` if the signature has no separate hash function (Ed25519): RFC 5929 then defines no binding, and PostgreSQL has none either.
pub(crate) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = Certificate::read(certificate).ok()?.algorithm();
    Some(match hash_of_signature(algorithm)? {
        Hash::Sha224 => Sha224::digest(certificate).to_vec(),
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

fn hash_of_signature(algorithm: AlgorithmIdentifier<'_>) -> Option<Hash> {
    let (algorithm, parameters) = algorithm.parts().ok()?;
    match algorithm.to_string().as_str() {
        // md5WithRSA, sha1WithRSA, sha256WithRSA; ecdsa-with-SHA1, ecdsa-with-SHA256.
        "1.2.840.113549.1.1.4" | "1.2.840.113549.1.1.5" | "1.2.840.113549.1.1.11" => Some(Hash::Sha256),
        "1.2.840.10045.4.1" | "1.2.840.10045.4.3.2" => Some(Hash::Sha256),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Some(Hash::Sha384),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Some(Hash::Sha512),
        "1.2.840.113549.1.1.14" | "1.2.840.10045.4.3.1" => Some(Hash::Sha224),
        // RSASSA-PSS has its hash in its parameters; the default is SHA-1.
        "1.2.840.113549.1.1.10" => match AlgorithmIdentifier::pss_hash(parameters?).ok()? {
            None => Some(Hash::Sha256),
            Some(hash) => match hash.to_string().as_str() {
                "2.16.840.1.101.3.4.2.4" => Some(Hash::Sha224),
                "1.3.14.3.2.26" | "2.16.840.1.101.3.4.2.1" => Some(Hash::Sha256),
                "2.16.840.1.101.3.4.2.2" => Some(Hash::Sha384),
                "2.16.840.1.101.3.4.2.3" => Some(Hash::Sha512),
                _ => None,
            },
        },
        _ => None,
    }
}
