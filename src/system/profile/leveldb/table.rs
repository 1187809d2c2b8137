//! Tables: sorted keys in blocks, which an index block lists.

use std::borrow::Cow;

use super::{Changes, Damage, Slice, has_prefix, masked_checksum, parse_internal_key};

const MAGIC: [u8; 8] = 0xdb47_7524_8b80_fb57_u64.to_le_bytes();
const FOOTER_BYTES: usize = 48;
/// The type and the checksum after a block.
const TRAILER_BYTES: usize = 5;
const UNCOMPRESSED: u8 = 0;
const SNAPPY: u8 = 1;
/// The limit on the size of a block. A block has one key at least, with a value of any size.
const MAX_BLOCK_BYTES: usize = 64 << 20;
/// The limit on the blocks of a table that are read. An index may name a block several times.
const MAX_READ_BYTES: usize = 256 << 20;

/// The part of a separator that is kept: longer than every prefix.
const MAX_COMPARED_BYTES: usize = 256;

/// The position of a block.
struct BlockHandle {
    offset: usize,
    size: usize,
}

impl BlockHandle {
    fn parse(rest: &mut Slice<'_>) -> Result<Self, Damage> {
        Ok(BlockHandle {
            offset: rest.length()?,
            size: rest.length()?,
        })
    }
}

/// Returns the latest change of each key with one of the prefixes.
pub(super) fn read(content: &[u8], prefixes: &[&[u8]]) -> Result<Changes, Damage> {
    let (_, footer) = content
        .split_last_chunk::<FOOTER_BYTES>()
        .ok_or("is truncated")?;
    if !footer.ends_with(&MAGIC) {
        return Err("is not a table");
    }
    let mut handles = Slice(footer);
    BlockHandle::parse(&mut handles)?;
    let index = BlockHandle::parse(&mut handles)?;
    let mut read_bytes = 0;
    let mut changes = Changes::default();
    let mut previous = Vec::new();
    let index = read_block(content, &index, &mut read_bytes)?;
    for_each_entry(&index, |separator, handle| {
        let (separator, _) = parse_internal_key(separator)?;
        if may_have_prefix(&previous, separator, prefixes) {
            let handle = BlockHandle::parse(&mut Slice(handle))?;
            let block = read_block(content, &handle, &mut read_bytes)?;
            for_each_entry(&block, |key, _| {
                let (key, change) = parse_internal_key(key)?;
                match has_prefix(key, prefixes) {
                    true => changes.add(key, change),
                    false => Ok(()),
                }
            })?;
        }
        previous.clear();
        previous.extend_from_slice(&separator[..separator.len().min(MAX_COMPARED_BYTES)]);
        Ok(())
    })?;
    Ok(changes)
}

/// Returns whether a block whose keys are from `first` to `last` may have a key with a prefix.
fn may_have_prefix(first: &[u8], last: &[u8], prefixes: &[&[u8]]) -> bool {
    prefixes.iter().any(|prefix| {
        // No key with the prefix is below the prefix, and those above all of them lack it.
        last >= *prefix && (first <= *prefix || first.starts_with(prefix))
    })
}

fn read_block<'a>(
    content: &'a [u8],
    handle: &BlockHandle,
    read_bytes: &mut usize,
) -> Result<Cow<'a, [u8]>, Damage> {
    let BlockHandle { offset, size } = *handle;
    let mut rest = Slice(content.get(offset..).ok_or("has a block outside of it")?);
    let data = rest.bytes(size)?;
    let trailer: [u8; TRAILER_BYTES] = rest.array()?;
    let [kind, checksum @ ..] = trailer;
    if masked_checksum(&[data, &[kind]]) != u32::from_le_bytes(checksum) {
        return Err("a checksum does not match");
    }
    let length = match kind {
        UNCOMPRESSED => size,
        SNAPPY => snap::raw::decompress_len(data).map_err(|_| "has a damaged block")?,
        _ => return Err("has a block of an unknown compression"),
    };
    *read_bytes = read_bytes.saturating_add(length);
    if length > MAX_BLOCK_BYTES || *read_bytes > MAX_READ_BYTES {
        return Err("has too large blocks");
    }
    match kind {
        SNAPPY => snap::raw::Decoder::new()
            .decompress_vec(data)
            .map(Cow::Owned)
            .map_err(|_| "has a damaged block"),
        _ => Ok(Cow::Borrowed(data)),
    }
}

/// Calls `on_entry` with the key and value of each entry of a block. A key shares its first bytes
/// with the one before.
fn for_each_entry(
    block: &[u8],
    mut on_entry: impl FnMut(&[u8], &[u8]) -> Result<(), Damage>,
) -> Result<(), Damage> {
    let (entries, restarts) = block.split_last_chunk::<4>().ok_or("has an empty block")?;
    let restarts = usize::try_from(u32::from_le_bytes(*restarts)).map_err(|_| "is truncated")?;
    let length = restarts
        .checked_mul(4)
        .and_then(|bytes| entries.len().checked_sub(bytes))
        .ok_or("has a damaged block")?;
    let mut rest = Slice(&entries[..length]);
    let mut key = Vec::new();
    while !rest.is_empty() {
        let shared = rest.length()?;
        let unshared = rest.length()?;
        let value = rest.length()?;
        if shared > key.len() {
            return Err("has a damaged block");
        }
        key.truncate(shared);
        key.extend_from_slice(rest.bytes(unshared)?);
        on_entry(&key, rest.bytes(value)?)?;
    }
    Ok(())
}
