//! The signature of a request to a webhook.

use hmac::{Hmac, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

/// Returns the value of the header `Berth-Signature`: the seconds since the Unix epoch, and the
/// HMAC of them, a full stop and the body.
#[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
pub(super) fn sign(secret: &SecretString, timestamp: i64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes())
        .expect("a key of any length");
    mac.update(format!("{timestamp}.").as_bytes());
    mac.update(body);
    let digest = mac.finalize().into_bytes();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={timestamp},v1={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected value is printed by `openssl dgst -sha256 -hmac KEY` for the text
    /// `1700000000.{"a":1}`.
    #[test]
    fn signature_is_that_of_openssl() {
        let secret = SecretString::from("whsec_0123456789abcdef");
        let signature = sign(&secret, 1_700_000_000, br#"{"a":1}"#);
        let expected = "9f5e37cdc7ea587c7c02062d93283cad000d66a831b2a1676418696db47ed6c2";
        assert_eq!(signature, format!("t=1700000000,v1={expected}"));
    }
}
