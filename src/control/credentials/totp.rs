//! Time-based one-time codes (RFC 6238).

use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use totp_rs::{Algorithm, Builder, Secret};

use crate::{
    api::credentials::{TotpAlgorithm, TotpSecret},
    control::store::TotpOptions,
};

/// The options of a secret that has none of its own.
pub(super) const DEFAULT_OPTIONS: TotpOptions = TotpOptions {
    algorithm: TotpAlgorithm::Sha1,
    digits: 6,
    period: 30,
};

/// Returns the options of a secret, as its URI has them.
pub(super) fn options_of(secret: &TotpSecret) -> TotpOptions {
    TotpOptions {
        algorithm: secret.algorithm.unwrap_or(DEFAULT_OPTIONS.algorithm),
        digits: secret.digits.unwrap_or(DEFAULT_OPTIONS.digits),
        period: secret.period.unwrap_or(DEFAULT_OPTIONS.period),
    }
}

/// A code, and until when it is valid.
pub struct OneTimeCode {
    pub code: SecretString,
    pub expires_at: DateTime<Utc>,
}

/// Returns the code that is valid at a time.
#[must_use]
pub fn code_at(secret: &SecretSlice<u8>, options: TotpOptions, time: DateTime<Utc>) -> OneTimeCode {
    let algorithm = match options.algorithm {
        TotpAlgorithm::Sha1 => Algorithm::SHA1,
        TotpAlgorithm::Sha256 => Algorithm::SHA256,
        TotpAlgorithm::Sha512 => Algorithm::SHA512,
    };
    // Secrets of many sites are shorter than the library demands of new ones.
    let totp = Builder::new()
        .with_algorithm(algorithm)
        .with_digits(u8::try_from(options.digits).unwrap_or(u8::MAX).min(8))
        .with_step_duration(u64::from(options.period.max(1)))
        .with_secret(Secret::from(secret.expose_secret().to_vec()))
        .build_noncompliant();
    let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
    OneTimeCode {
        code: totp.generate(seconds).to_string().into(),
        expires_at: step_end(options, time),
    }
}

/// Returns the end of the time step that a time is in.
#[must_use]
pub fn step_end(options: TotpOptions, time: DateTime<Utc>) -> DateTime<Utc> {
    let period = i64::from(options.period.max(1));
    let end = (time.timestamp().div_euclid(period) + 1).saturating_mul(period);
    DateTime::from_timestamp(end, 0).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(
        secret: &[u8],
        algorithm: TotpAlgorithm,
        digits: u32,
        period: u32,
        seconds: i64,
    ) -> (String, i64) {
        let options = TotpOptions {
            algorithm,
            digits,
            period,
        };
        let time = DateTime::from_timestamp(seconds, 999_000_000).unwrap();
        let code = code_at(&secret.to_vec().into(), options, time);
        let expiry = code.expires_at.timestamp();
        (code.code.expose_secret().to_owned(), expiry)
    }

    /// Returns the secret of the RFC's appendix B with a length in bytes.
    fn rfc_secret(length: usize) -> Vec<u8> {
        b"1234567890".iter().copied().cycle().take(length).collect()
    }

    #[test]
    fn codes_are_those_of_rfc_6238() {
        use TotpAlgorithm::{Sha1, Sha256, Sha512};
        for (seconds, algorithm, expected) in [
            (59, Sha1, "94287082"),
            (59, Sha256, "46119246"),
            (59, Sha512, "90693936"),
            (1_111_111_109, Sha1, "07081804"),
            (1_111_111_109, Sha256, "68084774"),
            (1_111_111_109, Sha512, "25091201"),
            (1_111_111_111, Sha1, "14050471"),
            (1_111_111_111, Sha256, "67062674"),
            (1_111_111_111, Sha512, "99943326"),
            (1_234_567_890, Sha1, "89005924"),
            (1_234_567_890, Sha256, "91819424"),
            (1_234_567_890, Sha512, "93441116"),
            (2_000_000_000, Sha1, "69279037"),
            (2_000_000_000, Sha256, "90698825"),
            (2_000_000_000, Sha512, "38618901"),
            (20_000_000_000, Sha1, "65353130"),
            (20_000_000_000, Sha256, "77737706"),
            (20_000_000_000, Sha512, "47863826"),
        ] {
            let length = match algorithm {
                Sha1 => 20,
                Sha256 => 32,
                Sha512 => 64,
            };
            let (found, _) = code(&rfc_secret(length), algorithm, 8, 30, seconds);
            assert_eq!(found, expected, "{algorithm:?} at {seconds}");
            // Fewer digits are the last ones.
            for digits in 6..8 {
                let (found, _) = code(&rfc_secret(length), algorithm, digits, 30, seconds);
                assert_eq!(
                    found,
                    expected[8 - digits as usize..],
                    "{algorithm:?}, {digits}"
                );
            }
        }
    }

    #[test]
    fn code_is_valid_for_its_period() {
        for period in [10, 30, 60, 300] {
            let at = |seconds| code(&rfc_secret(20), TotpAlgorithm::Sha1, 6, period, seconds);
            let start = i64::from(period) * 1000;
            let end = start + i64::from(period);
            assert_eq!(at(start).1, end);
            assert_eq!(at(start), at(end - 1));
            assert_ne!(at(end - 1), at(end));
        }
    }
}
