//! Secrets for time-based one-time codes (RFC 6238), and how codes are computed from them.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use secrecy::{SecretSlice, zeroize::Zeroizing};
use serde::{Deserialize, Serialize};
use totp_rs::{Algorithm, Secret, Totp};
use utoipa::ToSchema;

use super::field;

/// The hash function of one-time codes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Deserr, ToSchema)]
pub enum TotpAlgorithm {
    #[default]
    #[serde(rename = "SHA1")]
    #[deserr(rename = "SHA1")]
    #[schema(rename = "SHA1")]
    Sha1,
    #[serde(rename = "SHA256")]
    #[deserr(rename = "SHA256")]
    #[schema(rename = "SHA256")]
    Sha256,
    #[serde(rename = "SHA512")]
    #[deserr(rename = "SHA512")]
    #[schema(rename = "SHA512")]
    Sha512,
}

impl TotpAlgorithm {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TotpAlgorithm::Sha1 => "SHA1",
            TotpAlgorithm::Sha256 => "SHA256",
            TotpAlgorithm::Sha512 => "SHA512",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<TotpAlgorithm> {
        let all = [Self::Sha1, Self::Sha256, Self::Sha512];
        all.into_iter().find(|algorithm| algorithm.as_str() == text)
    }

    fn of(algorithm: Algorithm) -> Option<TotpAlgorithm> {
        match algorithm {
            Algorithm::SHA1 => Some(Self::Sha1),
            Algorithm::SHA256 => Some(Self::Sha256),
            Algorithm::SHA512 => Some(Self::Sha512),
            _ => None,
        }
    }
}

/// The number of digits of a code: 6–8.
pub type TotpDigits = field::WholeNumber<6, 8>;
/// The time for which a code is valid: 10–300 seconds.
pub type TotpPeriod = field::WholeNumber<10, 300>;

/// A secret for one-time codes.
pub struct TotpSecret {
    pub bytes: SecretSlice<u8>,
    /// The algorithm that an `otpauth` URI has beside the secret.
    pub algorithm: Option<TotpAlgorithm>,
    pub digits: Option<u32>,
    /// In seconds.
    pub period: Option<u32>,
}

impl TotpSecret {
    /// The bounds of the Base32 form in characters.
    const BASE32: std::ops::RangeInclusive<usize> = 16..=128;
    /// The most bytes of an `otpauth` URI.
    const MAX_URI: usize = 2048;
    const URI_SCHEME: &str = "otpauth://";

    /// Parses Base32, or an `otpauth` URI that has it.
    ///
    /// # Errors
    /// Returns the rule that the text breaks, without the text.
    pub fn parse(text: String) -> Result<TotpSecret, String> {
        let text = Zeroizing::new(text);
        let trimmed = text.trim();
        let is_uri = trimmed
            .get(..Self::URI_SCHEME.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(Self::URI_SCHEME));
        if is_uri {
            return Self::parse_uri(trimmed);
        }
        Ok(TotpSecret {
            bytes: decode(trimmed)?,
            algorithm: None,
            digits: None,
            period: None,
        })
    }

    fn parse_uri(uri: &str) -> Result<TotpSecret, String> {
        if uri.len() > Self::MAX_URI {
            return Err(format!("must have at most {} bytes", Self::MAX_URI));
        }
        let malformed = |_| "is not an otpauth://totp URI with a secret".to_owned();
        let parsed = url::Url::parse(uri).map_err(|_| malformed(()))?;
        let secrets = parsed.query_pairs().filter(|(key, _)| key == "secret");
        let mut secrets = secrets.map(|(_, value)| Zeroizing::new(value.into_owned()));
        let secret = secrets.next().ok_or_else(|| malformed(()))?;
        if secrets.next().is_some() {
            return Err("must have one secret".to_owned());
        }
        let bytes = decode(&secret)?;
        // The library decodes no padding and no lower case.
        let mut uri = parsed.clone();
        let others = parsed.query_pairs().filter(|(key, _)| key != "secret");
        let others: Vec<_> = others.collect();
        uri.query_pairs_mut()
            .clear()
            .extend_pairs(&others)
            .append_pair("secret", UNUSED_SECRET);
        let totp = Totp::from_url_unchecked(uri.as_str()).map_err(|_| malformed(()))?;
        let names = |name: &str| others.iter().any(|(key, _)| key == name);
        let digits = u32::from(totp.digits());
        let period = u32::try_from(totp.step()).unwrap_or(u32::MAX);
        if !(6..=8).contains(&digits) {
            return Err("must have 6 to 8 digits".to_owned());
        }
        if !(10..=300).contains(&period) {
            return Err("must have a period of 10 to 300 seconds".to_owned());
        }
        let algorithm = TotpAlgorithm::of(totp.algorithm()).ok_or_else(|| malformed(()))?;
        Ok(TotpSecret {
            bytes,
            algorithm: names("algorithm").then_some(algorithm),
            digits: names("digits").then_some(digits),
            period: names("period").then_some(period),
        })
    }
}

/// A secret that stands for the one of a URI while its other parameters are parsed.
const UNUSED_SECRET: &str = "AAAAAAAAAAAAAAAA";

/// Decodes Base32 as people write it: in any case, in groups, with or without padding.
fn decode(text: &str) -> Result<SecretSlice<u8>, String> {
    let (min, max) = (TotpSecret::BASE32.start(), TotpSecret::BASE32.end());
    let rule = || format!("must be Base32 of {min} to {max} characters, or an otpauth:// URI");
    let text = text.trim_end_matches('=');
    let digits = text.chars().filter(|c| !matches!(c, ' ' | '-'));
    let digits = Zeroizing::new(digits.collect::<String>().to_ascii_uppercase());
    if !TotpSecret::BASE32.contains(&digits.len()) {
        return Err(rule());
    }
    let secret = Secret::try_from_base32(&*digits).map_err(|_| rule())?;
    Ok(secret.as_bytes().to_vec().into())
}

/// A change of the secret for one-time codes.
pub enum TotpSecretChange {
    Remove,
    Set(TotpSecret),
}

impl TotpSecretChange {
    /// Returns the new secret.
    #[must_use]
    pub fn secret(self) -> Option<TotpSecret> {
        match self {
            TotpSecretChange::Remove => None,
            TotpSecretChange::Set(secret) => Some(secret),
        }
    }
}

impl<E: DeserializeError> Deserr<E> for TotpSecretChange {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| match text.is_empty() {
            true => Ok(TotpSecretChange::Remove),
            false => TotpSecret::parse(text).map(TotpSecretChange::Set),
        })
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

    fn parse(text: &str) -> Result<TotpSecret, String> {
        TotpSecret::parse(text.to_owned())
    }

    #[test]
    fn base32_is_read_as_people_write_it() {
        for text in [
            SECRET.to_owned(),
            SECRET.to_lowercase(),
            format!(" {}\n", SECRET),
            "gezd gnbv gy3t qojq gezd gnbv gy3t qojq".to_owned(),
            "GEZD-GNBV-GY3T-QOJQ-GEZD-GNBV-GY3T-QOJQ".to_owned(),
            format!("{SECRET}======"),
        ] {
            let secret = parse(&text).map_err(|rule| format!("{text}: {rule}"));
            let secret = secret.unwrap();
            assert_eq!(
                secret.bytes.expose_secret(),
                b"12345678901234567890",
                "{text}"
            );
        }
    }

    #[test]
    fn uri_has_secret_and_options() {
        let uri = format!(
            "otpauth://totp/Shop:me%40example.com?secret={}&issuer=Shop&algorithm=SHA256&digits=8&period=60",
            SECRET.to_lowercase()
        );
        let secret = parse(&uri).unwrap();
        assert_eq!(secret.bytes.expose_secret(), b"12345678901234567890");
        let options = (secret.algorithm, secret.digits, secret.period);
        assert_eq!(options, (Some(TotpAlgorithm::Sha256), Some(8), Some(60)));

        let plain = parse(&format!("OTPAUTH://totp/me?secret={SECRET}")).unwrap();
        let options = (plain.algorithm, plain.digits, plain.period);
        assert_eq!(options, (None, None, None));
    }

    #[test]
    fn malformed_secret_is_rejected_without_its_text() {
        for text in [
            "GEZDGNBVGY3TQOJ",
            &"A".repeat(129),
            "GEZDGNBVGY3TQOJ1",
            "GEZDGNBVGY3TQOJÄ",
            "otpauth://hotp/me?secret=GEZDGNBVGY3TQOJQ",
            "otpauth://totp/me",
            "otpauth://totp/me?secret=",
            "otpauth://totp/me?secret=GEZDGNBVGY3TQOJ1",
            "otpauth://totp/me?secret=GEZDGNBVGY3TQOJQ&secret=GEZDGNBVGY3TQOJQ",
            "otpauth://totp/me?secret=GEZDGNBVGY3TQOJQ&digits=9",
            "otpauth://totp/me?secret=GEZDGNBVGY3TQOJQ&digits=x",
            "otpauth://totp/me?secret=GEZDGNBVGY3TQOJQ&period=0",
            "otpauth://totp/me?secret=GEZDGNBVGY3TQOJQ&period=99999999999999999999",
            "otpauth://totp/me?secret=GEZDGNBVGY3TQOJQ&algorithm=MD5",
            &format!(
                "otpauth://totp/{}?secret=GEZDGNBVGY3TQOJQ",
                "m".repeat(2048)
            ),
        ] {
            let Err(rule) = parse(text) else {
                panic!("{text} was accepted");
            };
            assert!(!rule.contains("GEZDGN") && rule.len() < 100, "{rule}");
        }
    }
}
