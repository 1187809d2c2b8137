//! Digests of texts that may be secret, to be compared with each other.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The number of bytes of the digest that are returned.
const DIGEST_LENGTH: usize = 16;

/// A key. A digest cannot be compared with those of guessed texts without a random one.
pub(super) struct DigestKey([u8; 32]);

impl DigestKey {
    #[expect(
        clippy::expect_used,
        reason = "a key that is known protects nothing, and the kernel always has random numbers"
    )]
    pub(super) fn random() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the kernel provides random numbers");
        Self(key)
    }

    /// Returns a known key, for digests that are compared with those of other agents.
    pub(super) fn shared() -> Self {
        Self([0; 32])
    }

    /// Returns the digest of parts without zero bytes, in hexadecimal.
    pub(super) fn digest<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> String {
        let mut digest = Sha256::new_with_prefix(self.0);
        for part in parts {
            digest.update(part.as_bytes());
            digest.update([0]);
        }
        let digest = digest.finalize();
        let bytes = digest.iter().take(DIGEST_LENGTH);
        bytes.fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_of_the_key_and_the_parts() {
        let key = DigestKey::random();
        let digest = key.digest(["a", "b"]);
        assert_eq!(digest.len(), 2 * DIGEST_LENGTH);
        assert_eq!(key.digest(["a", "b"]), digest);
        for other in [&["ab"][..], &["a"], &["b", "a"], &[]] {
            assert_ne!(key.digest(other.iter().copied()), digest, "{other:?}");
        }
        assert_ne!(DigestKey::random().digest(["a", "b"]), digest);
    }
}
