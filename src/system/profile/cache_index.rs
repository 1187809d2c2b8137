//! The index of a cache storage (`index.txt`), a protocol buffer.

use super::coding::{Damage, Slice};

/// The fields with the storage key, and with the origin in files of older versions.
const STORAGE_KEY: u64 = 3;
const ORIGIN: u64 = 2;

/// Returns the storage key in an index.
#[must_use]
pub fn storage_key(index: &[u8]) -> Option<String> {
    read(index).ok().flatten()
}

fn read(index: &[u8]) -> Result<Option<String>, Damage> {
    let mut rest = Slice(index);
    let (mut key, mut origin) = (None, None);
    while !rest.is_empty() {
        let tag = rest.varint()?;
        let text = match tag & 7 {
            0 => {
                rest.varint()?;
                continue;
            }
            1 => {
                rest.bytes(8)?;
                continue;
            }
            2 => rest.string()?,
            5 => {
                rest.bytes(4)?;
                continue;
            }
            _ => return Err("has a field of an unknown type"),
        };
        let text = || std::str::from_utf8(text).ok().map(str::to_owned);
        match tag >> 3 {
            STORAGE_KEY => key = text(),
            ORIGIN => origin = text(),
            _ => {}
        }
    }
    Ok(key.or(origin))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn storage_key_is_preferred_to_origin() {
        let mut index = b"\x0a\x04\x0a\x02ab".to_vec();
        assert_eq!(storage_key(&index), None);
        index.extend(b"\x12\x03a:/\x20\x01\x2d1234");
        assert_eq!(storage_key(&index).as_deref(), Some("a:/"));
        index.extend(b"\x1a\x05a:/^0\x29\x00\x00\x00\x00\x00\x00\x00\x00");
        assert_eq!(storage_key(&index).as_deref(), Some("a:/^0"));
        index.pop();
        assert_eq!(storage_key(&index), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(index in prop::collection::vec(any::<u8>(), 0..100)) {
            let key = storage_key(&index).unwrap_or_default();
            prop_assert!(key.len() <= index.len());
        }
    }
}
