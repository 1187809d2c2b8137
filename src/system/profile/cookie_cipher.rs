//! The encryption of cookie values on Linux: AES-128-CBC with a key from a password.
//!
//! The first three bytes of an encrypted value say where the password is from: `v10` is the same in
//! every Chromium (`--password-store=basic`), `v11` is in the key ring of the user. The plain text
//! begins with the SHA-256 of the cookie's domain since version 24 of the database.

use aes::Aes128;
use cbc::{
    Decryptor, Encryptor,
    cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit, block_padding::Pkcs7},
};
use pbkdf2::pbkdf2_hmac_array;
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use sha1::Sha1;
use sha2::{Digest, Sha256};

const BASIC_VERSION: &[u8] = b"v10";
pub(super) const KEY_RING_VERSION: &[u8] = b"v11";
const BASIC_PASSWORD: &str = "peanuts";
const SALT: &[u8] = b"saltysalt";
const ITERATIONS: u32 = 1;
const KEY_BYTES: usize = 16;
const IV: [u8; 16] = [b' '; 16];
const DIGEST_BYTES: usize = 32;

/// A key that cookies are encrypted with.
#[derive(Clone)]
pub struct CookieKey(SecretSlice<u8>);

impl CookieKey {
    /// Returns the key of `v10`.
    #[must_use]
    pub fn basic() -> Self {
        Self::from_password(&SecretString::from(BASIC_PASSWORD))
    }

    #[must_use]
    pub fn from_password(password: &SecretString) -> Self {
        let password = password.expose_secret().as_bytes();
        let key = pbkdf2_hmac_array::<Sha1, KEY_BYTES>(password, SALT, ITERATIONS);
        CookieKey(SecretSlice::from(key.to_vec()))
    }
}

/// The keys that may decrypt the cookies of a profile.
pub struct CookieCipher {
    basic: CookieKey,
    key_ring: Vec<CookieKey>,
    /// Whether the plain text begins with the digest of the domain.
    has_digest: bool,
}

impl CookieCipher {
    /// `key_ring` are the keys of `v11` to be tried.
    #[must_use]
    pub fn new(key_ring: Vec<CookieKey>, has_digest: bool) -> Self {
        CookieCipher {
            basic: CookieKey::basic(),
            key_ring,
            has_digest,
        }
    }

    /// Returns a value as any Chromium with `--password-store=basic` reads it; `None` if no key
    /// decrypts it.
    #[must_use]
    pub fn reencrypt(&self, domain: &str, encrypted: &[u8]) -> Option<Vec<u8>> {
        let (version, ciphertext) = encrypted.split_at_checked(BASIC_VERSION.len())?;
        if version == BASIC_VERSION {
            return self
                .decrypts(&self.basic, domain, ciphertext)?
                .then(|| encrypted.to_vec());
        }
        if version != KEY_RING_VERSION {
            return None;
        }
        let plain = self
            .key_ring
            .iter()
            .find_map(|key| self.decrypt(key, domain, ciphertext))?;
        Some(encrypt(&self.basic, plain.expose_secret()))
    }

    fn decrypts(&self, key: &CookieKey, domain: &str, ciphertext: &[u8]) -> Option<bool> {
        Some(self.decrypt(key, domain, ciphertext).is_some())
    }

    /// Returns the plain text with its digest. A wrong key is recognized by the digest, or else by
    /// the padding and by characters that cookies cannot have.
    fn decrypt(&self, key: &CookieKey, domain: &str, ciphertext: &[u8]) -> Option<SecretSlice<u8>> {
        let decryptor = Decryptor::<Aes128>::new_from_slices(key.0.expose_secret(), &IV).ok()?;
        let plain = decryptor
            .decrypt_padded_vec_mut::<Pkcs7>(ciphertext)
            .ok()
            .map(SecretSlice::from)?;
        let content = plain.expose_secret();
        let is_valid = match self.has_digest {
            true => content
                .split_at_checked(DIGEST_BYTES)
                .is_some_and(|(digest, _)| *digest == Sha256::digest(domain)[..]),
            false => content.iter().all(|byte| !byte.is_ascii_control()),
        };
        is_valid.then_some(plain)
    }
}

fn encrypt(key: &CookieKey, plain: &[u8]) -> Vec<u8> {
    let mut encrypted = BASIC_VERSION.to_vec();
    let encryptor = Encryptor::<Aes128>::new_from_slices(key.0.expose_secret(), &IV);
    // Fails only for a key of another length.
    if let Ok(encryptor) = encryptor {
        encrypted.extend(encryptor.encrypt_padded_vec_mut::<Pkcs7>(plain));
    }
    encrypted
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a value that was encrypted with the key of a password.
    pub(in crate::system::profile) fn encrypted(
        version: &[u8],
        password: &str,
        plain: &[u8],
    ) -> Vec<u8> {
        let key = CookieKey::from_password(&SecretString::from(password));
        let mut value = encrypt(&key, plain);
        value[..version.len()].copy_from_slice(version);
        value
    }

    #[test]
    fn value_of_chromium_is_decrypted() {
        // Written by Chromium 156 with `--password-store=basic`: the value `now` of 127.0.0.1.
        let value = "7631302BB01EEBE40CCFF8B9D3B700273158B01EEE6BEDEECAB4DE6DBA0816A56B0038E682494345EC56774C6F11E107DE7098";
        let value: Vec<u8> = (0..value.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&value[at..at + 2], 16).unwrap())
            .collect();
        let cipher = CookieCipher::new(Vec::new(), true);
        let plain = cipher
            .decrypt(&cipher.basic, "127.0.0.1", &value[3..])
            .unwrap();
        assert_eq!(&plain.expose_secret()[DIGEST_BYTES..], b"now");
        assert_eq!(cipher.reencrypt("127.0.0.1", &value), Some(value.clone()));
        assert_eq!(cipher.reencrypt("127.0.0.2", &value), None);
    }

    #[test]
    fn value_with_key_of_key_ring_is_encrypted_with_basic_one() {
        let password = |text: &str| CookieKey::from_password(&SecretString::from(text));
        let digest = Sha256::digest(b"example.com").to_vec();
        for (has_digest, plain) in [
            (true, [&digest[..], b"value"].concat()),
            (false, b"value".to_vec()),
            (false, Vec::new()),
        ] {
            let keys = vec![password("other"), password("of the key ring")];
            let cipher = CookieCipher::new(keys, has_digest);
            let value = encrypted(KEY_RING_VERSION, "of the key ring", &plain);
            let expected = encrypted(BASIC_VERSION, BASIC_PASSWORD, &plain);
            assert_eq!(cipher.reencrypt("example.com", &value), Some(expected));
            let without_key = CookieCipher::new(Vec::new(), has_digest);
            assert_eq!(without_key.reencrypt("example.com", &value), None);
        }
    }

    #[test]
    fn unknown_forms_are_not_decrypted() {
        let cipher = CookieCipher::new(vec![CookieKey::basic()], false);
        let control = encrypted(BASIC_VERSION, BASIC_PASSWORD, b"a\nb");
        for value in [
            &b""[..],
            b"v1",
            b"v10",
            b"v12abcdefghijklmnop",
            b"v10short",
            &control,
        ] {
            assert_eq!(cipher.reencrypt("example.com", value), None, "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn any_value_is_decrypted_or_rejected(value in prop::collection::vec(any::<u8>(), 0..80)) {
            let cipher = CookieCipher::new(vec![CookieKey::basic()], true);
            prop_assert_eq!(cipher.reencrypt("example.com", &value), None);
        }
    }
}
