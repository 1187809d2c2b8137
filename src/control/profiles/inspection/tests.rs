use std::fs;

use tempfile::TempDir;

use super::*;
use crate::system::{
    files::archive::unpack::raw_tar::{EntryType, TarEntry, compressed, compressed_with_window},
    profile::{
        database::tests::{COOKIES, create},
        leveldb::writer,
    },
};

const LIMITS: InspectLimits = InspectLimits {
    unpacked_bytes: 1 << 30,
    ratio: 200,
    newest_chromium: Some(156),
};

/// Inspects an archive, and checks that no temporary file is left.
fn inspect_bytes(archive: &[u8], limits: InspectLimits) -> Result<Inspection, InspectError> {
    let work = TempDir::new().unwrap();
    let inspected = inspect(archive, work.path(), limits);
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
    inspected
}

fn inspect_entries(entries: &[TarEntry]) -> Result<Inspection, InspectError> {
    inspect_bytes(&TarEntry::packed(entries), LIMITS)
}

/// Returns the files of a database.
fn database(statements: &[&str]) -> Vec<u8> {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("database");
    create(&path, statements);
    fs::read(path).unwrap()
}

pub(super) fn cookies(domains: &[&str]) -> Vec<u8> {
    let inserts: Vec<String> = domains
        .iter()
        .map(|domain| format!("INSERT INTO cookies VALUES ('{domain}', 'a', 1, 99999999999999999)"))
        .collect();
    let mut statements = vec![COOKIES];
    statements.extend(inserts.iter().map(String::as_str));
    database(&statements)
}

pub(super) fn level_db(directory: &str, keys: &[&str]) -> Vec<TarEntry> {
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    writer::database(&keys)
        .into_iter()
        .map(|(name, content)| TarEntry::file(&format!("{directory}/{name}"), content))
        .collect()
}

fn marker() -> TarEntry {
    TarEntry::file("Local State", "{}")
}

/// Returns a profile with every kind of storage.
pub(super) fn full_profile() -> Vec<TarEntry> {
    let buckets = database(&[
        "CREATE TABLE buckets(id INTEGER PRIMARY KEY, storage_key TEXT NOT NULL) STRICT",
        "INSERT INTO buckets VALUES (1, 'https://unused.example/'),
            (2, 'https://frame.example/^0https://top.example')",
    ]);
    let mut entries = vec![
        TarEntry::new(EntryType::Directory, "Default"),
        TarEntry::file(
            "Default/Cookies",
            cookies(&[".example.com", ".example.com", "b.example"]),
        ),
        TarEntry::file("Default/Cookies-journal", ""),
        TarEntry::file(
            "Default/IndexedDB/https_db.example_0.indexeddb.leveldb/CURRENT",
            "x",
        ),
        TarEntry::file("Default/IndexedDB/file__0.indexeddb.leveldb/CURRENT", "x"),
        TarEntry::file("Default/Preferences", "{}"),
        TarEntry::file(
            "Default/Service Worker/CacheStorage/abc/index.txt",
            b"\x12\x16http://127.0.0.1:8802/\x1a\x16http://127.0.0.1:8802/",
        ),
        TarEntry::file(
            "Default/WebStorage/2/IndexedDB/indexeddb.leveldb/CURRENT",
            "x",
        ),
        TarEntry::file("Default/WebStorage/QuotaManager", buckets),
        TarEntry::file("Last Version", "156.0.8078.79"),
        marker(),
        TarEntry::file(
            "Profile 1/Network/Cookies",
            cookies(&["b.example", "c.example"]),
        ),
    ];
    entries.extend(level_db(
        "Default/Local Storage/leveldb",
        &[
            "META:https://local.example",
            "METAACCESS:https://x.example",
            "VERSION",
        ],
    ));
    entries.extend(level_db(
        "Default/Service Worker/Database",
        &[
            "INITDATA_UNIQUE_ORIGIN:https://worker.example/",
            "REG:https://x.example/",
        ],
    ));
    entries.extend(level_db(
        "Profile 1/File System/Origins",
        &["ORIGIN:https_files.example_8443", "LAST_PATH"],
    ));
    entries
}

#[test]
fn archive_that_needs_a_large_window_is_invalid() {
    let tar = TarEntry::archive(&[marker()]);
    let with_window = |log: u32| inspect_bytes(&compressed_with_window(&tar, log), LIMITS);
    assert!(with_window(24).is_ok());
    assert!(matches!(with_window(25), Err(InspectError::Invalid(_))));
}

#[test]
fn domains_with_cookies_are_limited_over_all_databases() {
    let database = |name: &str, count: u32| {
        let insert = format!(
            "INSERT INTO cookies WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n \
             LIMIT {count}) SELECT x || '.{name}', 'a', 1, 99999999999999999 FROM n"
        );
        database(&[COOKIES, &insert])
    };
    let inspection = inspect_entries(&[
        TarEntry::file("Default/Cookies", database("a.example", 9_999)),
        marker(),
        TarEntry::file("Profile 1/Cookies", database("b.example", 2)),
    ]);
    let inspection = inspection.unwrap();
    let unlisted = 10_001 - inspection.cookies.len();
    assert!(unlisted > 0 && bytes(&inspection.cookies) <= MAX_LIST_BYTES);
    let expected =
        format!("domains with cookies: {unlisted} are too many or too long to be listed");
    assert_eq!(inspection.skipped, [expected]);
}

/// Returns the size of a list as it is stored and returned.
fn bytes(list: &impl serde::Serialize) -> usize {
    serde_json::to_string(list).unwrap().len()
}

#[test]
fn receipt_of_long_names_is_limited_in_bytes() {
    let label = "x".repeat(240);
    let mut entries = vec![marker()];
    let origins: Vec<String> = (0..2_000)
        .map(|number| format!("META:https://{label}{number:04}"))
        .chain((0..100).map(|number| format!("META:https://{}{number:04}", label.repeat(10))))
        .collect();
    let origins: Vec<&str> = origins.iter().map(String::as_str).collect();
    entries.extend(level_db("Default/Local Storage/leveldb", &origins));
    let domains: Vec<String> = (0..2_000)
        .map(|number| format!("{label}{number:04}"))
        .chain([label.repeat(2)])
        .collect();
    let domains: Vec<&str> = domains.iter().map(String::as_str).collect();
    entries.push(TarEntry::file("Default/Cookies", cookies(&domains)));
    let skipped: Vec<_> = (0..1_500)
        .map(|number| serde_json::json!({"path": format!("{label}{number}"), "reason": "\u{1}".repeat(1_000)}))
        .collect();
    let skipped = serde_json::json!({ "skipped": skipped }).to_string();
    entries.push(TarEntry::file(".berth-skipped.json", skipped));

    let found = inspect_entries(&entries).unwrap();
    for (list, length) in [
        (bytes(&found.cookies), found.cookies.len()),
        (bytes(&found.origins), found.origins.len()),
        (bytes(&found.skipped), found.skipped.len()),
    ] {
        assert!((1..600).contains(&length), "{length}");
        assert!(list <= MAX_LIST_BYTES, "{list}");
    }
    let more = found.skipped.last().unwrap();
    assert!(more.ends_with(" more"), "{more}");
    let longest = found.origins.iter().map(String::len).max();
    assert_eq!(longest, Some(252));
}

#[test]
fn cookies_and_origins_of_all_storages_are_found() {
    let entries = full_profile();
    let found = inspect_entries(&entries).unwrap();
    assert_eq!(found.chromium_version.as_deref(), Some("156.0.8078.79"));
    let cookies = [(".example.com", 2), ("b.example", 2), ("c.example", 1)];
    let cookies = cookies.map(|(domain, count)| (domain.to_owned(), count));
    assert_eq!(found.cookies, cookies.into());
    let origins = [
        "file://",
        "http://127.0.0.1:8802",
        "https://db.example",
        "https://files.example:8443",
        "https://frame.example (embedded in https://top.example)",
        "https://local.example",
        "https://worker.example",
    ];
    assert_eq!(found.origins, origins);
    assert_eq!(found.skipped, [""; 0]);
    let bytes: usize = entries.iter().map(|entry| entry.content.len()).sum();
    assert_eq!(found.unpacked_bytes, bytes as u64);
    assert!(found.entries > entries.len() as u64);
}

#[test]
fn session_cookies_are_counted() {
    let insert = "INSERT INTO cookies VALUES ('a.example', 'a', 0, 0), ('b.example', 'b', 0, 0)";
    let cookies = TarEntry::file("Default/Cookies", database(&[COOKIES, insert]));
    let found = inspect_entries(&[marker(), cookies]).unwrap();
    let expected = [("a.example".to_owned(), 1), ("b.example".to_owned(), 1)];
    assert_eq!(found.cookies, expected.into());
    assert_eq!(found.skipped, Vec::<String>::new());
}

#[test]
fn unreadable_content_is_listed() {
    let damaged_table = TarEntry::file("Default/File System/Origins/000005.ldb", "x");
    let mut entries = vec![
        marker(),
        TarEntry::file("Default/Cookies", "no database"),
        TarEntry::link(EntryType::Link, "Profile 1/Cookies", "Local State"),
        TarEntry::file("Default/IndexedDB/https_x_y.indexeddb.leveldb/CURRENT", ""),
        TarEntry::file("Default/IndexedDB/new/CURRENT", ""),
        TarEntry::file("Default/Local Storage/sqlite", ""),
        TarEntry::file("Default/Storage/ext/abc/def/Cookies", ""),
        TarEntry::file("Default/WebStorage/7/CacheStorage/index.txt", ""),
        TarEntry::file("Default/Service Worker/Database/000003.log", ""),
        TarEntry::file("Default/Service Worker/CacheStorage/a/index.txt", "\x07"),
        TarEntry::link(
            EntryType::Symlink,
            "Profile 1/Local Storage/leveldb/CURRENT",
            "x",
        ),
    ];
    entries.extend(level_db(
        "Default/File System/Origins",
        &["ORIGIN:https_a_0"],
    ));
    entries.push(damaged_table);
    let list = r#"{"skipped": [{"path": "a", "reason": "is a socket"}], "more": 4}"#;
    entries.push(TarEntry::file(".berth-skipped.json", list));
    let found = inspect_entries(&entries).unwrap();
    // A table that the database does not use does not matter.
    assert_eq!(found.origins, ["https://a"]);
    let skipped = found.skipped.join("\n");
    for expected in [
        "a: is a socket\n",
        "Default/Cookies: is not a readable database: ",
        "Profile 1/Cookies: is a link, which is not followed\n",
        "Default/Service Worker/Database: CURRENT is missing\n",
        "Profile 1/Local Storage/leveldb: is a link, which is not followed\n",
        "Default/WebStorage/7: has no origin in the list of storage buckets\n",
        "Default/IndexedDB/https_x_y.indexeddb.leveldb/CURRENT: has an origin of an unknown form or length\n",
        "Default/Service Worker/CacheStorage/a/index.txt: has an origin of an unknown form or length\n",
        "IndexedDB of an unknown form: is not read\n",
        "local storage of an unknown form: is not read\n",
        "storage of apps: is not read\n",
    ] {
        assert!(skipped.contains(expected), "{expected}{skipped}");
    }
    assert!(skipped.ends_with("\n4 more"), "{skipped}");
    // The list counts only as the last entry.
    entries.push(TarEntry::file("z", ""));
    let skipped = inspect_entries(&entries).unwrap().skipped.join("\n");
    assert!(!skipped.contains("socket"), "{skipped}");
}

#[test]
fn newer_chromium_is_rejected() {
    let with = |version: &str| {
        let version = TarEntry::file("Last Version", version);
        inspect_entries(&[marker(), version])
    };
    for version in ["156.0.8078.79", "156.9.9999.99", "99.0.1.2\n"] {
        let found = with(version).unwrap();
        assert_eq!(found.chromium_version.as_deref(), Some(version.trim()));
    }
    let error = with("157.0.1.2").unwrap_err();
    assert!(matches!(error, InspectError::NewerChromium { .. }));
    let message = "is of Chromium 157.0.1.2, newer than 156, the newest of a browser";
    assert_eq!(error.to_string(), message);
    for invalid in ["", "156.x", "Chromium", "-1.0", &"1".repeat(65)] {
        let error = with(invalid).unwrap_err();
        assert!(
            matches!(error, InspectError::Invalid(_)),
            "{invalid}: {error}"
        );
    }
    let unknown = inspect_entries(&[marker()]).unwrap();
    assert_eq!(unknown.chromium_version, None);
}

/// A case: its name, the archive and the error.
type Case = (&'static str, Vec<u8>, &'static str);

fn packed(entries: &[TarEntry]) -> Vec<u8> {
    TarEntry::packed(&[&[marker()], entries].concat())
}

fn file(name: &str) -> TarEntry {
    TarEntry::file(name, "x")
}

fn symlink(name: &str, target: &str) -> TarEntry {
    TarEntry::link(EntryType::Symlink, name, target)
}

fn incomplete_archives() -> Vec<Case> {
    let valid = TarEntry::packed(&full_profile());
    let (half, most) = (valid.len() / 2, valid.len() - 5);
    let unfinished = TarEntry::unfinished_archive(&[marker(), TarEntry::file("a", [0; 2048])]);
    let mut trailing = TarEntry::archive(&[marker()]);
    trailing.extend(b"more");
    trailing.extend([0; 4096]);
    let tar = TarEntry::archive(&[marker()]);
    let appended = [&valid[..], b"more"].concat();
    vec![
        ("nothing", Vec::new(), "cannot be read"),
        ("not compressed", tar, "cannot be read"),
        ("not a tar file", compressed(&[7; 5000]), "cannot be read"),
        ("no entry", compressed(&[0; 1024]), "is empty"),
        ("truncated", valid[..half].to_vec(), "cannot be read"),
        ("without its end", valid[..most].to_vec(), "cannot be read"),
        (
            "no end marker",
            compressed(&unfinished),
            "has no end marker",
        ),
        (
            "data after the end",
            compressed(&trailing),
            "has data after its end",
        ),
        ("data after the frame", appended, "cannot be read"),
    ]
}

fn archives_with_bad_names() -> Vec<Case> {
    let (long, deep) = ("n".repeat(300), "d/".repeat(200) + "f");
    let other = TarEntry::packed(&[file("user-data/Local State")]);
    vec![
        ("parent", packed(&[file("../a")]), "has `..` in its name"),
        (
            "inner parent",
            packed(&[file("a/../../b")]),
            "has `..` in its name",
        ),
        (
            "absolute",
            packed(&[file("/tmp/a")]),
            "has an absolute name",
        ),
        ("long name", packed(&[file(&long)]), "has too long a name"),
        ("deep", packed(&[file(&deep)]), "is nested too deep"),
        ("twice", packed(&[file("a"), file("a")]), "occurs twice"),
        (
            "below a file",
            packed(&[file("a"), file("a/b")]),
            "is below an entry",
        ),
        ("other directory", other, "is not of a user-data directory"),
    ]
}

fn archives_with_bad_links() -> Vec<Case> {
    let up = [symlink("a/up", ".."), symlink("out", "a/up/..")];
    let hard_link = |target| packed(&[TarEntry::link(EntryType::Link, "a", target)]);
    let outside = "is a link that leads outside";
    let missing = "is a hard link to a file that does not precede it";
    vec![
        ("link out", packed(&[symlink("a", "/etc")]), outside),
        ("up through links", packed(&up), outside),
        (
            "hard link out",
            hard_link("/etc/passwd"),
            "has an absolute name",
        ),
        ("hard link to nothing", hard_link("missing"), missing),
    ]
}

#[test]
fn hostile_archive_is_invalid() {
    let mut cases = incomplete_archives();
    cases.extend(archives_with_bad_names());
    cases.extend(archives_with_bad_links());
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
        let archive = packed(&[TarEntry::new(kind, "special")]);
        cases.push(("special file", archive, "is not a file, directory or link"));
    }
    for (case, archive, message) in cases {
        let error = inspect_bytes(&archive, LIMITS).unwrap_err();
        assert!(
            matches!(error, InspectError::Invalid(_)),
            "{case}: {error:?}"
        );
        assert!(error.to_string().contains(message), "{case}: {error}");
    }
}

#[test]
fn links_within_the_directory_are_accepted() {
    let entries = [
        marker(),
        TarEntry::link(EntryType::Symlink, "a/up", ".."),
        TarEntry::link(EntryType::Symlink, "dangling", "missing/name"),
        TarEntry::link(EntryType::Symlink, "loop", "loop"),
        symlink("out", "a/up/up/x"),
        symlink("a/b", "../out"),
        TarEntry::link(EntryType::Link, "State", "Local State"),
        TarEntry::link(
            EntryType::Symlink,
            "SingletonSocket",
            "/tmp/x/SingletonSocket",
        ),
    ];
    assert_eq!(inspect_entries(&entries).unwrap().skipped, [""; 0]);
}

#[test]
fn bomb_is_too_large() {
    let zeros = TarEntry::file("zeros", vec![0; 66 << 20]);
    let archive = TarEntry::packed(&[marker(), zeros]);
    let small = InspectLimits {
        unpacked_bytes: 1 << 20,
        ..LIMITS
    };
    for (limits, message) in [
        (LIMITS, "unpacks to more than 200 times its own size"),
        (small, "unpacks to more than 1048576 bytes"),
    ] {
        let error = inspect_bytes(&archive, limits).unwrap_err();
        assert!(matches!(error, InspectError::TooLarge(_)), "{error:?}");
        assert_eq!(error.to_string(), message);
    }
    // Each file needs 100 directories.
    let deep = "/d".repeat(99) + "/file";
    let entries: Vec<_> = (0..2_501)
        .map(|number| TarEntry::file(&format!("{number}{deep}"), ""))
        .collect();
    let unlimited = InspectLimits {
        ratio: u64::MAX,
        ..LIMITS
    };
    let error = inspect_bytes(&TarEntry::packed(&entries), unlimited).unwrap_err();
    let message = "has more than 250000 entries, directories included";
    assert_eq!(error.to_string(), message);
}

#[test]
fn error_of_the_reader_is_no_fault_of_the_archive() {
    struct Failing;
    impl io::Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::TimedOut.into())
        }
    }
    let work = TempDir::new().unwrap();
    let error = inspect(Failing, work.path(), LIMITS).unwrap_err();
    let InspectError::Io(error) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let missing = work.path().join("missing");
    let archive = TarEntry::packed(&full_profile());
    let error = inspect(&archive[..], &missing, LIMITS).unwrap_err();
    assert!(matches!(error, InspectError::Io(_)), "{error:?}");
}

#[test]
fn content_beyond_the_limits_is_listed() {
    let mut entries = vec![marker()];
    entries.extend((0..40).map(|number| {
        let name = format!("Profile {number:02}/Cookies");
        TarEntry::file(&name, cookies(&["example.com"]))
    }));
    entries.extend((0..10_001).map(|number| {
        let name = format!("P/IndexedDB/https_{number}.example_0.indexeddb.leveldb/CURRENT");
        TarEntry::file(&name, "")
    }));
    entries.extend((0..1_100).map(|number| {
        let name = format!("P/IndexedDB/x{number}.indexeddb.leveldb/CURRENT");
        TarEntry::file(&name, "")
    }));
    let found = inspect_entries(&entries).unwrap();
    assert_eq!(found.cookies["example.com"], 32);
    assert!(found.origins.len() < 10_001 && bytes(&found.origins) <= MAX_LIST_BYTES);
    assert_eq!(found.skipped.len(), 1_001);
    assert!(
        found.skipped[1_000].ends_with(" more"),
        "{:?}",
        found.skipped[1_000]
    );
}
