//! The authenticated encryption of secrets: XChaCha20-Poly1305 with a random nonce.
//!
//! A ciphertext opens only at the place that it was sealed for. Its bytes are those of the nonce,
//! then the encrypted text with its tag.

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use secrecy::{SecretSlice, zeroize::Zeroizing};

use super::{SecretError, key::KEY_BYTES};

/// The length of a nonce in bytes. Random ones of this length do not repeat in practice.
const NONCE_BYTES: usize = 24;
/// Names the construction, which distinguishes it from later ones.
const FIELD_CONTEXT: &str = "berth sealed field v1";
const KEY_CONTEXT: &str = "berth wrapped data key v1";

/// The place that a sealed value belongs to. It opens nowhere else.
#[derive(Debug, Clone, Copy)]
pub struct SealedPlace<'a> {
    /// The id of the record.
    pub record: &'a str,
    /// A property of the record that decides where the value may be used, and never changes.
    pub purpose: &'a str,
    pub field: &'a str,
    /// The version of the field.
    pub revision: u64,
}

/// A sealed value, with the version of the data key that opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub key_version: u32,
    pub bytes: Vec<u8>,
}

/// A key of this cipher.
pub(super) type CipherKey = Zeroizing<[u8; KEY_BYTES]>;

/// Returns the associated data of a field.
pub(super) fn field_place(scope: &str, version: u32, place: &SealedPlace<'_>) -> Vec<u8> {
    let (version, revision) = (version.to_string(), place.revision.to_string());
    associated_data(&[
        FIELD_CONTEXT,
        scope,
        &version,
        place.record,
        place.purpose,
        place.field,
        &revision,
    ])
}

/// Returns the associated data of a data key.
pub(super) fn key_place(scope: &str, version: u32, key_id: &str) -> Vec<u8> {
    associated_data(&[KEY_CONTEXT, scope, &version.to_string(), key_id])
}

/// Joins texts with their lengths, so that no other texts give the same bytes.
fn associated_data(parts: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    for part in parts {
        data.extend_from_slice(&(part.len() as u64).to_be_bytes());
        data.extend_from_slice(part.as_bytes());
    }
    data
}

/// Encrypts `secret` for the place with that associated data.
pub(super) fn seal(key: &[u8], place: &[u8], secret: &[u8]) -> Result<Vec<u8>, SecretError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| SecretError::Memory(error.into()))?;
    let payload = Payload {
        msg: secret,
        aad: place,
    };
    let sealed = cipher(key)?.encrypt(&XNonce::from(nonce), payload);
    let sealed = sealed.map_err(|_| SecretError::Damaged)?;
    Ok([&nonce[..], &sealed].concat())
}

/// Decrypts what was sealed for the place with that associated data.
pub(super) fn open(
    key: &[u8],
    place: &[u8],
    sealed: &[u8],
) -> Result<SecretSlice<u8>, SecretError> {
    let (nonce, encrypted) = sealed
        .split_first_chunk::<NONCE_BYTES>()
        .ok_or(SecretError::Damaged)?;
    let payload = Payload {
        msg: encrypted,
        aad: place,
    };
    let opened = cipher(key)?.decrypt(&XNonce::from(*nonce), payload);
    opened.map(Into::into).map_err(|_| SecretError::Damaged)
}

fn cipher(key: &[u8]) -> Result<XChaCha20Poly1305, SecretError> {
    XChaCha20Poly1305::new_from_slice(key).map_err(|_| SecretError::Damaged)
}
