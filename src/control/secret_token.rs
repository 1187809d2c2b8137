//! Secret tokens: generated at random, shown once, stored as a digest.
//!
//! A token has the form `<prefix><public part>_<secret>`. The public part identifies its row. The
//! SHA-256 digest of the complete token is compared in constant time.

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// 48 bits, enough to make a collision of two tokens improbable.
const PUBLIC_BYTES: usize = 6;
/// 256 bits.
const SECRET_BYTES: usize = 32;

/// The form of the tokens of one kind.
#[derive(Debug, Clone, Copy)]
pub struct TokenFormat {
    /// Distinguishes the kinds, for people and for programs that search for leaked secrets.
    pub prefix: &'static str,
}

/// A new token.
pub struct GeneratedToken {
    pub public_part: String,
    pub digest: [u8; 32],
    pub token: SecretString,
}

impl TokenFormat {
    pub fn generate(self) -> GeneratedToken {
        let public_part = random_hex::<PUBLIC_BYTES>();
        let secret = random_hex::<SECRET_BYTES>();
        let token = format!("{}{public_part}_{secret}", self.prefix);
        GeneratedToken {
            public_part,
            digest: digest(&token),
            token: SecretString::from(token),
        }
    }

    /// Returns the public part of a text that has the form of a token.
    pub fn public_part(self, presented: &str) -> Option<&str> {
        let (public, secret) = presented.strip_prefix(self.prefix)?.split_once('_')?;
        let hex = |text: &str, bytes: usize| {
            text.len() == 2 * bytes && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        (hex(public, PUBLIC_BYTES) && hex(secret, SECRET_BYTES)).then_some(public)
    }

    /// Returns the representation of a token without its secret.
    pub fn mask(self, public_part: &str) -> String {
        format!("{}{public_part}_…", self.prefix)
    }

    /// Returns the public part, or its start, if `text` has the form of a masked token or its
    /// start.
    pub fn masked_part(self, text: &str) -> Option<String> {
        let rest = text.strip_prefix(self.prefix)?;
        let part = rest.split_once('_').map_or(rest, |(part, _)| part);
        Some(part.to_owned())
    }
}

/// Returns whether `presented` is the token with that digest, in constant time.
pub fn matches(presented: &str, expected: &[u8; 32]) -> bool {
    digest(presented).ct_eq(expected).into()
}

/// Returns the text of a token, to be shown once.
pub fn reveal(token: &SecretString) -> String {
    token.expose_secret().to_owned()
}

/// Returns `N` random bytes as lower-case hexadecimal digits.
#[expect(
    clippy::expect_used,
    reason = "without random numbers no secret can be created, and the kernel always has them"
)]
pub fn random_hex<const N: usize>() -> String {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel provides random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
