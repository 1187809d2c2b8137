//! Logs: records in blocks of 32 KiB. The manifest has the same form.

use super::{Change, Changes, Damage, Slice, has_prefix, masked_checksum};

const BLOCK_BYTES: usize = 32 << 10;
/// Checksum, length and type.
const HEADER_BYTES: usize = 7;

/// The types of a record's parts.
const ZERO: u8 = 0;
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Calls `on_record` with each complete record. An incomplete one at the end is that of a writer
/// that was interrupted, and ignored as LevelDB does.
pub(super) fn read_records(
    content: &[u8],
    mut on_record: impl FnMut(&[u8]) -> Result<(), Damage>,
) -> Result<(), Damage> {
    let mut partial: Option<Vec<u8>> = None;
    for block in content.chunks(BLOCK_BYTES) {
        let mut rest = Slice(block);
        // A shorter rest of a block is padding.
        while rest.0.len() >= HEADER_BYTES {
            let checksum = u32::from_le_bytes(rest.array()?);
            let length = u16::from_le_bytes(rest.array()?).into();
            let kind = rest.byte()?;
            if kind == ZERO && length == 0 {
                // Space that the writer allocated in advance.
                break;
            }
            if rest.0.len() < length && block.len() < BLOCK_BYTES {
                return Ok(());
            }
            let data = rest.bytes(length)?;
            if masked_checksum(&[&[kind], data]) != checksum {
                return Err("a checksum does not match");
            }
            match (kind, partial.take()) {
                (FULL, None) => on_record(data)?,
                (FIRST, None) => partial = Some(data.to_vec()),
                (MIDDLE, Some(mut record)) => {
                    record.extend_from_slice(data);
                    partial = Some(record);
                }
                (LAST, Some(mut record)) => {
                    record.extend_from_slice(data);
                    on_record(&record)?;
                }
                _ => return Err("has parts of records in a wrong order"),
            }
        }
    }
    Ok(())
}

/// Returns the changes in a log.
pub(super) fn read_changes(content: &[u8], prefixes: &[&[u8]]) -> Result<Changes, Damage> {
    let mut changes = Changes::default();
    read_records(content, |record| read_batch(record, prefixes, &mut changes))?;
    Ok(changes)
}

/// Reads a record of changes that were made at once.
fn read_batch(record: &[u8], prefixes: &[&[u8]], changes: &mut Changes) -> Result<(), Damage> {
    let mut rest = Slice(record);
    let mut sequence = u64::from_le_bytes(rest.array()?);
    let count = u32::from_le_bytes(rest.array()?);
    for _ in 0..count {
        let is_deletion = match rest.byte()? {
            0 => true,
            1 => false,
            _ => return Err("has a change of an unknown type"),
        };
        let key = rest.string()?;
        if !is_deletion {
            rest.string()?;
        }
        if has_prefix(key, prefixes) {
            let change = Change {
                sequence,
                is_deletion,
            };
            changes.add(key, change)?;
        }
        sequence = sequence.wrapping_add(1);
    }
    match rest.is_empty() {
        true => Ok(()),
        false => Err("has data after the changes of a record"),
    }
}
