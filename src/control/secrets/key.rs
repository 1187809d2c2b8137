//! A key of the operator, which wraps data keys.

use std::io;

use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};

use crate::system::locked_memory::LockedBytes;

/// The length of a key in bytes.
pub const KEY_BYTES: usize = 32;
/// Separates the digest of a key from other uses of the function.
const ID_CONTEXT: &[u8] = b"berth key-encryption key id\0";
/// The length of an id in bytes: enough to tell the keys of an operator apart.
const ID_BYTES: usize = 8;

/// A key, and the id that is stored with what it wraps.
pub struct OperatorKey {
    id: String,
    bytes: LockedBytes,
}

impl OperatorKey {
    /// Parses a key of 64 hexadecimal digits.
    ///
    /// # Errors
    /// `None` if the text is no key.
    pub fn parse(text: &str) -> io::Result<Option<OperatorKey>> {
        let Some(bytes) = decode_hex(text) else {
            return Ok(None);
        };
        let digest = Sha256::new().chain_update(ID_CONTEXT);
        let digest = digest.chain_update(&bytes[..]).finalize();
        let id = digest[..ID_BYTES].iter().map(|byte| format!("{byte:02x}"));
        Ok(Some(OperatorKey {
            id: id.collect(),
            bytes: LockedBytes::copy_of(&bytes[..])?,
        }))
    }

    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn expose(&self) -> &[u8] {
        self.bytes.expose()
    }
}

fn decode_hex(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let digits = text.as_bytes();
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| (digit as char).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(bytes)
}
