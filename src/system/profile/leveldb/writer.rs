//! Databases for tests.

use std::collections::BTreeMap;

use super::masked_checksum;

/// A change of a key: its sequence number and its value, or `None` for a deletion.
pub(crate) type Written<'a> = (u64, &'a [u8], Option<&'a [u8]>);

fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn put_string(into: &mut Vec<u8>, value: &[u8]) {
    put_varint(into, value.len() as u64);
    into.extend_from_slice(value);
}

/// Returns a log of records.
pub(crate) fn log(records: &[Vec<u8>]) -> Vec<u8> {
    const BLOCK_BYTES: usize = 32 << 10;
    let mut log = Vec::new();
    for record in records {
        let mut rest = &record[..];
        let mut is_first = true;
        loop {
            let room = BLOCK_BYTES - log.len() % BLOCK_BYTES;
            if room < 7 {
                log.resize(log.len() + room, 0);
                continue;
            }
            let (part, after) = rest.split_at(rest.len().min(room - 7));
            let kind: u8 = match (is_first, after.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            log.extend(masked_checksum(&[&[kind], part]).to_le_bytes());
            log.extend((part.len() as u16).to_le_bytes());
            log.push(kind);
            log.extend_from_slice(part);
            (rest, is_first) = (after, false);
            if rest.is_empty() {
                break;
            }
        }
    }
    log
}

/// Returns a record of a log. The sequence numbers must follow each other.
pub(crate) fn batch(changes: &[Written<'_>]) -> Vec<u8> {
    let first = changes.first().map_or(0, |(sequence, ..)| *sequence);
    let mut record = first.to_le_bytes().to_vec();
    record.extend((changes.len() as u32).to_le_bytes());
    for (_, key, value) in changes {
        record.push(u8::from(value.is_some()));
        put_string(&mut record, key);
        if let Some(value) = value {
            put_string(&mut record, value);
        }
    }
    record
}

fn put_block(table: &mut Vec<u8>, content: &[u8], compressed: bool) -> Vec<u8> {
    let (kind, data) = match compressed {
        true => (1, snap::raw::Encoder::new().compress_vec(content).unwrap()),
        false => (0, content.to_vec()),
    };
    let mut handle = Vec::new();
    put_varint(&mut handle, table.len() as u64);
    put_varint(&mut handle, data.len() as u64);
    let checksum = masked_checksum(&[&data, &[kind]]);
    table.extend(data);
    table.push(kind);
    table.extend(checksum.to_le_bytes());
    handle
}

fn block(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let (mut block, mut last): (Vec<u8>, &[u8]) = (Vec::new(), &[]);
    for (key, value) in entries {
        let shared = key.iter().zip(last).take_while(|(a, b)| a == b).count();
        put_varint(&mut block, shared as u64);
        put_varint(&mut block, (key.len() - shared) as u64);
        put_varint(&mut block, value.len() as u64);
        block.extend_from_slice(&key[shared..]);
        block.extend_from_slice(value);
        last = key;
    }
    block.extend(0_u32.to_le_bytes());
    block.extend(1_u32.to_le_bytes());
    block
}

/// Returns a table with `per_block` entries in each block.
pub(crate) fn table(changes: &[Written<'_>], per_block: usize, compressed: bool) -> Vec<u8> {
    let mut sorted: Vec<_> = changes.to_vec();
    sorted.sort_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(&a.0)));
    let entries: Vec<(Vec<u8>, Vec<u8>)> = sorted
        .iter()
        .map(|(sequence, key, value)| {
            let tag = sequence << 8 | u64::from(value.is_some());
            let key = [*key, &tag.to_le_bytes()].concat();
            (key, value.unwrap_or_default().to_vec())
        })
        .collect();
    let (mut table, mut index) = (Vec::new(), Vec::new());
    for entries in entries.chunks(per_block) {
        let handle = put_block(&mut table, &block(entries), compressed);
        index.push((entries.last().unwrap().0.clone(), handle));
    }
    let mut footer = put_block(&mut table, &block(&[]), false);
    footer.extend(put_block(&mut table, &block(&index), compressed));
    footer.resize(40, 0);
    footer.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    table.extend(footer);
    table
}

/// Returns a manifest that names tables, and the log below which logs are no longer used.
pub(crate) fn manifest(tables: &[u64], log_number: u64) -> Vec<u8> {
    let mut edit = vec![1];
    put_string(&mut edit, b"leveldb.BytewiseComparator");
    edit.push(2);
    put_varint(&mut edit, log_number);
    for number in tables {
        edit.push(7);
        for value in [0, *number, 1] {
            put_varint(&mut edit, value);
        }
        put_string(&mut edit, b"smallest");
        put_string(&mut edit, b"largest.");
    }
    log(&[edit])
}

/// Returns the files of a database with one log.
pub(crate) fn database(keys: &[&[u8]]) -> BTreeMap<String, Vec<u8>> {
    let changes: Vec<Written<'_>> = keys
        .iter()
        .zip(1..)
        .map(|(key, sequence)| (sequence, *key, Some(&b"value"[..])))
        .collect();
    BTreeMap::from([
        ("CURRENT".to_owned(), b"MANIFEST-000001\n".to_vec()),
        ("MANIFEST-000001".to_owned(), manifest(&[], 3)),
        ("000003.log".to_owned(), log(&[batch(&changes)])),
        ("LOG".to_owned(), b"text".to_vec()),
    ])
}
