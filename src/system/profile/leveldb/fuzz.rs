//! Databases with random changes, compared with a map, and damaged ones.

use std::collections::BTreeMap;

use proptest::{prelude::*, sample::Index};

use super::{
    LevelDbError, LevelDbKeys,
    writer::{Written, batch, database, log, manifest, table},
};

const PREFIXES: &[&[u8]] = &[b"META:", b"ORIGIN:"];

fn keys(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<Vec<u8>>, LevelDbError> {
    let mut keys = LevelDbKeys::new(PREFIXES);
    for (name, content) in files {
        keys.add_file(name, content)?;
    }
    Ok(keys.finish()?.into_iter().collect())
}

/// Returns keys at and around the borders of the prefixes.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let start = prop::sample::select(vec![
        &b"META:"[..],
        b"META",
        b"META;",
        b"METAACCESS:",
        b"ORIGIN:",
        b"ORIGIM\xff",
        b"_https://example.com\0\x01",
        b"",
    ]);
    let end = prop_oneof![
        prop::sample::select(vec![&b""[..], b"a", b"b", b"\xff"]).prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    (start, end).prop_map(|(start, end)| [start, &end].concat())
}

/// A change: a key, and the length of its value or `None` for its deletion.
fn changes() -> impl Strategy<Value = Vec<(Vec<u8>, Option<usize>)>> {
    let value = prop::option::weighted(0.7, prop_oneof![8 => 0..20_usize, 1 => 0..70_000_usize]);
    prop::collection::vec((key(), value), 0..40)
}

#[derive(Debug, Clone)]
struct Layout {
    /// The positions at which the changes are divided: tables, then logs.
    splits: Vec<Index>,
    tables: usize,
    per_block: usize,
    compressed: bool,
}

fn layout() -> impl Strategy<Value = Layout> {
    let splits = prop::collection::vec(any::<Index>(), 0..5);
    (splits, 0..5_usize, 1..5_usize, any::<bool>()).prop_map(
        |(splits, tables, per_block, compressed)| Layout {
            splits,
            tables,
            per_block,
            compressed,
        },
    )
}

fn files(changes: &[(Vec<u8>, Option<usize>)], layout: &Layout) -> BTreeMap<String, Vec<u8>> {
    let value = vec![b'v'; 70_000];
    let written: Vec<Written<'_>> = changes
        .iter()
        .zip(1..)
        .map(|((key, length), sequence)| {
            (sequence, &key[..], length.map(|length| &value[..length]))
        })
        .collect();
    let mut ends: Vec<usize> = layout
        .splits
        .iter()
        .map(|split| split.index(written.len() + 1))
        .collect();
    ends.push(written.len());
    ends.sort_unstable();
    let mut files = BTreeMap::from([("CURRENT".to_owned(), b"MANIFEST-000002\n".to_vec())]);
    let (mut start, mut tables) = (0, Vec::new());
    for (end, number) in ends.into_iter().zip(10..) {
        let part = &written[start..end];
        start = end;
        if tables.len() < layout.tables {
            tables.push(number);
            let content = table(part, layout.per_block, layout.compressed);
            files.insert(format!("{number:06}.ldb"), content);
        } else {
            let records: Vec<_> = part.chunks(3).map(batch).collect();
            files.insert(format!("{number:06}.log"), log(&records));
        }
    }
    let log_number = tables.last().map_or(10, |last| last + 1);
    files.insert("MANIFEST-000002".to_owned(), manifest(&tables, log_number));
    // Files that the database has replaced, and not yet deleted.
    let stale = [(1_000, &b"META:stale"[..], Some(&b"x"[..]))];
    files.insert("000003.ldb".to_owned(), table(&stale, 1, false));
    files.insert("000004.log".to_owned(), log(&[batch(&stale)]));
    files
}

proptest! {
    #[test]
    fn reader_finds_keys_that_were_written(changes in changes(), layout in layout()) {
        let mut expected = BTreeMap::new();
        for (key, value) in &changes {
            expected.insert(key.clone(), value.is_some());
        }
        let expected: Vec<_> = expected
            .into_iter()
            .filter(|(key, present)| *present && PREFIXES.iter().any(|prefix| key.starts_with(prefix)))
            .map(|(key, _)| key)
            .collect();
        prop_assert_eq!(keys(&files(&changes, &layout)).unwrap(), expected);
    }

    #[test]
    fn damaged_database_is_error_or_has_written_keys(
        changes in changes(),
        layout in layout(),
        file in any::<Index>(),
        cut in prop::option::of(any::<Index>()),
        flips in prop::collection::vec((any::<Index>(), any::<u8>()), 0..4),
    ) {
        let mut files = files(&changes, &layout);
        let name = files.keys().nth(file.index(files.len())).unwrap().clone();
        let content = files.get_mut(&name).unwrap();
        for (index, bits) in flips {
            if !content.is_empty() {
                let index = index.index(content.len());
                content[index] ^= bits;
            }
        }
        if let Some(cut) = cut {
            content.truncate(cut.index(content.len() + 1));
        }
        if let Ok(found) = keys(&files) {
            for key in found {
                let was_written = changes.iter().any(|(written, _)| *written == key);
                prop_assert!(was_written || key == b"META:stale", "{key:?}");
            }
        }
    }

    #[test]
    fn random_files_are_rejected(
        name in prop::sample::select(vec!["000005.ldb", "000003.log", "MANIFEST-000001", "CURRENT"]),
        content in prop::collection::vec(any::<u8>(), 0..3000),
    ) {
        let mut files = database(&[b"META:known"]);
        files.insert(name.to_owned(), content);
        if let Ok(found) = keys(&files) {
            prop_assert!(found.is_empty() || found == [b"META:known"]);
        }
    }
}

#[test]
fn missing_and_damaged_files_are_named() {
    let complete = database(&[b"META:https://example.com"]);
    assert_eq!(keys(&complete).unwrap(), [b"META:https://example.com"]);
    let mut flipped = complete["000003.log"].clone();
    flipped[0] ^= 1;
    for (change, message) in [
        (("CURRENT", None), "CURRENT is missing"),
        (
            ("CURRENT", Some(&b"x"[..])),
            "CURRENT is damaged: names no manifest",
        ),
        (("MANIFEST-000001", None), "MANIFEST-000001 is missing"),
        (
            ("MANIFEST-000001", Some(&manifest(&[5], 3)[..])),
            "000005.ldb is missing",
        ),
        (
            ("MANIFEST-000001", Some(&log(&[])[..])),
            "has an unknown order of keys",
        ),
        (
            ("000003.log", Some(&flipped[..])),
            "000003.log is damaged: a checksum does not match",
        ),
    ] {
        let mut files = complete.clone();
        let (name, content) = change;
        match content {
            None => drop(files.remove(name)),
            Some(content) => drop(files.insert(name.to_owned(), content.to_vec())),
        }
        assert_eq!(keys(&files).unwrap_err().to_string(), message);
    }
}

#[test]
fn keys_beyond_the_bound_are_rejected() {
    let long = [&b"META:"[..], &vec![b'x'; 1 << 20]].concat();
    let numbered: Vec<Vec<u8>> = (0..20_u8).map(|end| [&long[..], &[end]].concat()).collect();
    let changes: Vec<&[u8]> = numbered.iter().map(Vec::as_slice).collect();
    let message = "000003.log is damaged: has too many keys";
    assert_eq!(keys(&database(&changes)).unwrap_err().to_string(), message);
}
