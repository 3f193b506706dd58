//! What libpq's rules need of a certificate beyond what webpki reads: names, dates, version 1, the algorithm of the signature.
//!
//! Anyone may send a certificate. `der` reads it; what does not decode is an error, never a guess.

use der::asn1::{BitStringRef, GeneralizedTime, UtcTime};
use der::oid::ObjectIdentifier;
use der::{AnyRef, Decode, Reader, SliceReader, Tag, TagMode, TagNumber};
use rustls::crypto::WebPkiSupportedAlgorithms;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const SUBJECT_ALTERNATIVE_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// A certificate, as far as it is read at once. The fields borrow from its bytes.
pub(super) struct Certificate<'a> {
    /// The signed part, with its tag.
    signed: &'a [u8],
    algorithm: AlgorithmIdentifier<'a>,
    signature: &'a [u8],
    version: u8,
    /// The algorithm again, within the signed part.
    signed_algorithm: AlgorithmIdentifier<'a>,
    issuer: AnyRef<'a>,
    validity: AnyRef<'a>,
    subject: AnyRef<'a>,
    /// `SubjectPublicKeyInfo`, with its tag.
    key: &'a [u8],
    extensions: Option<AnyRef<'a>>,
}

/// `AlgorithmIdentifier`: the encoded fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct AlgorithmIdentifier<'a>(AnyRef<'a>);

/// A name of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AlternativeName<'a> {
    Dns(&'a [u8]),
    Ip(&'a [u8]),
}

/// First and last second at which a certificate is valid, as Unix time.
pub(super) struct Validity {
    pub(super) not_before: u64,
    pub(super) not_after: u64,
}

impl<'a> Certificate<'a> {
    pub(super) fn read(der: &'a [u8]) -> der::Result<Certificate<'a>> {
        AnyRef::from_der(der)?.sequence(|outer| {
            let signed = outer.tlv_bytes()?;
            let algorithm = AlgorithmIdentifier(outer.decode()?);
            let signature = whole_bytes(outer)?;
            AnyRef::from_der(signed)?.sequence(|fields| {
                let version = fields.context_specific(TagNumber(0), TagMode::Explicit)?.unwrap_or(0);
                let _serial_number: AnyRef<'_> = fields.decode()?;
                Ok(Certificate {
                    signed,
                    algorithm,
                    signature,
                    version,
                    signed_algorithm: AlgorithmIdentifier(fields.decode()?),
                    issuer: fields.decode()?,
                    validity: fields.decode()?,
                    subject: fields.decode()?,
                    key: fields.tlv_bytes()?,
                    extensions: extensions(fields)?,
                })
            })
        })
    }

    pub(super) fn is_version_1(&self) -> bool {
        self.version == 0
    }

    pub(super) fn algorithm(&self) -> AlgorithmIdentifier<'a> {
        self.algorithm
    }

    /// `SubjectPublicKeyInfo` in DER.
    pub(super) fn public_key(&self) -> &'a [u8] {
        self.key
    }

    /// Whether `authority` issued it: its name is the issuer's and its key made the signature, by one of `algorithms`.
    pub(super) fn is_issued_by(
        &self,
        authority: &Certificate<'_>,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> bool {
        let key = AnyRef::from_der(authority.key).and_then(|info| {
            info.sequence(|fields| Ok((AlgorithmIdentifier(fields.decode()?), whole_bytes(fields)?)))
        });
        let Ok((key_algorithm, key)) = key else { return false };
        self.issuer == authority.subject
            && self.algorithm == self.signed_algorithm
            && algorithms.all.iter().any(|algorithm| {
                algorithm.signature_alg_id().as_ref() == self.algorithm.0.value()
                    && algorithm.public_key_alg_id().as_ref() == key_algorithm.0.value()
                    && algorithm.verify_signature(key, self.signed, self.signature).is_ok()
            })
    }

    pub(super) fn validity(&self) -> der::Result<Validity> {
        self.validity.sequence(|times| Ok(Validity { not_before: time(times)?, not_after: time(times)? }))
    }

    /// DNS names and addresses. None if there are several such extensions, or one that does not decode: OpenSSL gives libpq none then.
    pub(super) fn alternative_names(&self) -> Vec<AlternativeName<'a>> {
        self.extension(SUBJECT_ALTERNATIVE_NAME)
            .and_then(|encoded| match encoded {
                Some(names) => AnyRef::from_der(names)?.sequence(alternative_names),
                None => Ok(Vec::new()),
            })
            .unwrap_or_default()
    }

    /// The value of the only extension of this kind.
    fn extension(&self, kind: ObjectIdentifier) -> der::Result<Option<&'a [u8]>> {
        let Some(extensions) = self.extensions else { return Ok(None) };
        let mut found = None;
        extensions.sequence(|extensions| {
            while !extensions.is_finished() {
                extensions.sequence(|fields| {
                    let is_wanted = fields.decode::<AnyRef<'_>>()?.value() == kind.as_bytes();
                    let _critical: Option<bool> = fields.decode()?;
                    let value = <&der::asn1::OctetStringRef>::decode(fields)?.as_bytes();
                    if is_wanted && found.replace(value).is_some() {
                        return Err(Tag::OctetString.value_error().to_error());
                    }
                    Ok(())
                })?;
            }
            Ok(found)
        })
    }

    /// The first common name of the subject, in whatever alphabet.
    pub(super) fn common_name(&self) -> Option<&'a [u8]> {
        let mut found = None;
        let whole = self.subject.sequence(|sets| {
            while !sets.is_finished() {
                let set: AnyRef<'_> = sets.decode()?;
                let mut attributes = SliceReader::new(set.value())?;
                while !attributes.is_finished() {
                    attributes.sequence(|fields| {
                        let kind: AnyRef<'_> = fields.decode()?;
                        let value: AnyRef<'_> = fields.decode()?;
                        if kind.value() == COMMON_NAME.as_bytes() {
                            found.get_or_insert(value.value());
                        }
                        der::Result::Ok(())
                    })?;
                }
            }
            der::Result::Ok(())
        });
        whole.ok().and(found)
    }
}

impl<'a> AlgorithmIdentifier<'a> {
    /// The algorithm's number, and its parameters.
    pub(super) fn parts(self) -> der::Result<(ObjectIdentifier, Option<AnyRef<'a>>)> {
        self.0.sequence(|fields| Ok((fields.decode()?, fields.decode()?)))
    }

    /// The hash function in the parameters of RSASSA-PSS; `None` if the parameters leave it out.
    pub(super) fn pss_hash(parameters: AnyRef<'a>) -> der::Result<Option<ObjectIdentifier>> {
        parameters.sequence(|fields| {
            let mut hash = None;
            while !fields.is_finished() {
                let field: AnyRef<'_> = fields.decode()?;
                if is_context(field, 0) {
                    hash = Some(AlgorithmIdentifier(AnyRef::from_der(field.value())?).parts()?.0);
                }
            }
            Ok(hash)
        })
    }
}

/// What follows the key in a certificate: two old unique identifiers, and the extensions.
fn extensions<'a>(fields: &mut SliceReader<'a>) -> der::Result<Option<AnyRef<'a>>> {
    let mut extensions = None;
    while !fields.is_finished() {
        let field: AnyRef<'a> = fields.decode()?;
        if is_context(field, 3) {
            extensions = Some(AnyRef::from_der(field.value())?);
        }
    }
    Ok(extensions)
}

fn alternative_names<'a>(names: &mut SliceReader<'a>) -> der::Result<Vec<AlternativeName<'a>>> {
    let mut found = Vec::new();
    while !names.is_finished() {
        let name: AnyRef<'a> = names.decode()?;
        if is_context(name, 2) {
            found.push(AlternativeName::Dns(name.value()));
        } else if is_context(name, 7) {
            found.push(AlternativeName::Ip(name.value()));
        }
    }
    Ok(found)
}

fn is_context(field: AnyRef<'_>, number: u32) -> bool {
    let tag = der::Tagged::tag(&field);
    tag.is_context_specific() && tag.number() == TagNumber(number)
}

/// A bit string that is whole bytes, as every key and every signature.
fn whole_bytes<'a>(fields: &mut SliceReader<'a>) -> der::Result<&'a [u8]> {
    let bits: BitStringRef<'a> = fields.decode()?;
    bits.as_bytes().ok_or_else(|| Tag::BitString.value_error().to_error())
}

fn time(times: &mut SliceReader<'_>) -> der::Result<u64> {
    let time: AnyRef<'_> = times.decode()?;
    Ok(match der::Tagged::tag(&time) {
        Tag::UtcTime => time.decode_as::<UtcTime>()?.to_unix_duration(),
        _ => time.decode_as::<GeneralizedTime>()?.to_unix_duration(),
    }
    .as_secs())
}

#[cfg(test)]
mod tests;
