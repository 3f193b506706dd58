//! Checks whether a certificate has a host's name, as libpq does (`pgtls_verify_peer_name_matches_certificate_guts`).

use std::net::IpAddr;

use super::certificate::{AlternativeName, Certificate};

/// Checks it; on a mismatch returns the names in the certificate.
///
/// Subject alternative names count; the common name only when there is none of the host's kind (DNS name or address).
pub(super) fn check(certificate: &[u8], host: &str) -> Result<(), Vec<String>> {
    let Ok(certificate) = Certificate::read(certificate) else { return Err(Vec::new()) };
    let address: Option<IpAddr> = host.parse().ok();
    let mut presented = Vec::new();
    let mut needs_common_name = true;
    for name in certificate.alternative_names() {
        match name {
            AlternativeName::Dns(name) => {
                needs_common_name &= address.is_some();
                if matches_name(name, host) {
                    return Ok(());
                }
                presented.push(String::from_utf8_lossy(name).into_owned());
            }
            AlternativeName::Ip(bytes) => {
                needs_common_name &= address.is_none();
                let found = <[u8; 4]>::try_from(bytes)
                    .map(IpAddr::from)
                    .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
                    .ok();
                if found.is_some() && found == address {
                    return Ok(());
                }
                presented.extend(found.map(|address| address.to_string()));
            }
        }
    }
    if needs_common_name && let Some(name) = certificate.common_name() {
        if matches_name(name, host) {
            return Ok(());
        }
        presented.push(String::from_utf8_lossy(name).into_owned());
    }
    Err(presented)
}

/// Equal except for case, or a wildcard for exactly the first label.
fn matches_name(pattern: &[u8], host: &str) -> bool {
    let Ok(pattern) = str::from_utf8(pattern) else { return false };
    if pattern.contains('\0') {
        return false;
    }
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some(suffix) = pattern.strip_prefix('*').filter(|suffix| suffix.len() > 1 && suffix.starts_with('.'))
    else {
        return false;
    };
    match host.split_once('.') {
        Some((label, rest)) => !label.is_empty() && rest.eq_ignore_ascii_case(&suffix[1..]),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_libpq() {
        for (pattern, host, expected) in [
            ("db.example.org", "db.example.org", true),
            ("DB.example.org", "db.EXAMPLE.org", true),
            ("*.example.org", "db.example.org", true),
            ("*.example.org", "a.db.example.org", false),
            ("*.example.org", "example.org", false),
            ("*.example.org", ".example.org", false),
            ("*", "db", false),
            ("*.", "db.", false),
            ("d*.example.org", "db.example.org", false),
            ("db.example.org\0.evil.org", "db.example.org", false),
        ] {
            assert_eq!(matches_name(pattern.as_bytes(), host), expected, "{pattern} {host}");
        }
    }
}
