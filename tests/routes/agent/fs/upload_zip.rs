use std::{
    fs,
    io::{Cursor, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use reqwest::{
    StatusCode,
    multipart::{Form, Part},
};
use serde_json::Value;
use tempfile::TempDir;
use zip::{ZipWriter, write::SimpleFileOptions};

use crate::support::{
    agent::{Start, TestAgent},
    files::{noise, tree},
    requests::wrong_fields,
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

async fn upload(agent: &TestAgent, archive: Vec<u8>, path: &Path) -> (StatusCode, Value) {
    let form = Form::new()
        .part("zip_file", Part::bytes(archive).file_name("a.zip"))
        .text("dest_path", path.to_str().unwrap().to_owned());
    agent
        .answer(agent.post("/fs/upload_zip").multipart(form))
        .await
}

type Writer = ZipWriter<Cursor<Vec<u8>>>;

fn zipped(fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    fill(&mut writer);
    writer.finish().unwrap().into_inner()
}

fn options() -> SimpleFileOptions {
    SimpleFileOptions::default()
}

fn file(writer: &mut Writer, name: &str, content: &[u8]) {
    writer.start_file(name, options()).unwrap();
    writer.write_all(content).unwrap();
}

fn link(writer: &mut Writer, name: &str, target: &str) {
    writer.add_symlink(name, target, options()).unwrap();
}

/// Replaces every occurrence of `from` in an archive by `to`, which has the same length.
fn patched(mut archive: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut is_found = false;
    for offset in 0..=archive.len() - from.len() {
        if &archive[offset..offset + from.len()] == from {
            archive[offset..offset + to.len()].copy_from_slice(to);
            is_found = true;
        }
    }
    assert!(is_found);
    archive
}

/// Overwrites two bytes of each header: at offset `local` in local headers, at offset `central` in
/// those of the central directory.
fn with_headers(mut archive: Vec<u8>, local: usize, central: usize, value: u16) -> Vec<u8> {
    for header in 0..archive.len() - 4 {
        let field = match &archive[header..header + 4] {
            b"PK\x03\x04" => header + local,
            b"PK\x01\x02" => header + central,
            _ => continue,
        };
        archive[field..field + 2].copy_from_slice(&value.to_le_bytes());
    }
    archive
}

fn assert_no_temp_files(agent: &TestAgent) {
    for directory in ["work", "run/drafts"] {
        let remaining = fs::read_dir(agent.session_dir().join(directory))
            .unwrap()
            .count();
        assert_eq!(remaining, 0, "{directory}");
    }
}

#[tokio::test]
async fn downloaded_directory_is_restored_by_upload() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("tree");
    fs::create_dir_all(root.join("sub/empty")).unwrap();
    fs::write(root.join("sub/ünïcode 😀"), noise(1 << 20)).unwrap();
    fs::write(root.join("empty file"), "").unwrap();
    symlink("sub/ünïcode 😀", root.join("link")).unwrap();
    symlink("../empty file", root.join("sub/up")).unwrap();
    fs::set_permissions(root.join("empty file"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(root.join("sub/empty"), fs::Permissions::from_mode(0o700)).unwrap();
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_891);
    let opened = fs::File::options()
        .write(true)
        .open(root.join("empty file"));
    opened.unwrap().set_modified(modified).unwrap();

    let route = format!("/fs/download_dir_zip?path={}", root.display());
    let archive = agent.get(&route).send().await.unwrap();
    let archive = archive.bytes().await.unwrap().to_vec();
    let copy = directory.path().join("missing/parents/copy");
    let (status, response) = upload(&agent, archive, &copy).await;
    assert_eq!(status, StatusCode::CREATED, "{response}");
    assert_eq!(tree(&copy), tree(&root));
    assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o7777, 0o755);
    let metadata = fs::metadata(copy.join("empty file")).unwrap();
    assert_eq!(metadata.modified().unwrap(), modified);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    assert_no_temp_files(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn existing_files_are_replaced_and_others_stay() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name);
    fs::create_dir_all(path_of("sub")).unwrap();
    fs::set_permissions(path_of("sub"), fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["kept", "replaced", "sub/kept", "sub/replaced"] {
        fs::write(path_of(name), "old").unwrap();
    }
    symlink("kept", path_of("link")).unwrap();
    let archive = zipped(|writer| {
        for name in ["replaced", "sub/replaced", "sub/new", "new/new", "link"] {
            file(writer, name, b"new");
        }
    });
    let (status, response) = upload(&agent, archive, directory.path()).await;
    assert_eq!(status, StatusCode::CREATED, "{response}");
    for (name, content) in [
        ("kept", "old"),
        ("sub/kept", "old"),
        ("replaced", "new"),
        ("sub/replaced", "new"),
        ("sub/new", "new"),
        ("new/new", "new"),
        ("link", "new"),
    ] {
        assert_eq!(
            fs::read_to_string(path_of(name)).unwrap(),
            content,
            "{name}"
        );
    }
    // Links are replaced, not followed.
    assert!(fs::symlink_metadata(path_of("link")).unwrap().is_file());
    let mode = |name: &str| fs::metadata(path_of(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("sub"), 0o700);
    // The archive does not list this directory.
    assert_eq!(mode("new"), 0o755);
    assert_eq!(tree(directory.path()).len(), 9);
    agent.stop().await;
}

#[tokio::test]
async fn invalid_archive_changes_nothing() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("dir")).unwrap();
    fs::write(root.join("file"), "old").unwrap();
    symlink(directory.path(), root.join("out")).unwrap();
    let before = tree(directory.path());

    let one = zipped(|writer| file(writer, "new", b"content"));
    let noisy = zipped(|writer| file(writer, "new", &noise(1000)));
    let mode = |mode: u32| options().external_attributes(mode << 16);
    let invalid_archives = [
        ("no archive", b"PK, or is it?".to_vec()),
        ("empty", Vec::new()),
        ("cut", one[..one.len() - 10].to_vec()),
        (
            "torn",
            patched(noisy, &noise(1000)[100..110], b"0123456789"),
        ),
        ("dots", zipped(|writer| file(writer, "../new", b""))),
        (
            "dots within",
            zipped(|writer| file(writer, "dir/../../new", b"")),
        ),
        ("absolute", zipped(|writer| file(writer, "/tmp/new", b""))),
        ("no name", zipped(|writer| file(writer, ".", b""))),
        ("long", zipped(|writer| file(writer, &"x".repeat(300), b""))),
        (
            "longer",
            zipped(|writer| file(writer, &"x/".repeat(2500), b"")),
        ),
        ("link out", zipped(|writer| link(writer, "new", "/etc"))),
        (
            "link up",
            zipped(|writer| link(writer, "dir/new", "../../new")),
        ),
        (
            "link out through a link",
            zipped(|writer| {
                link(writer, "dir/up", "..");
                link(writer, "new", "dir/up/..");
            }),
        ),
        (
            "link out through a missing directory",
            zipped(|writer| {
                link(writer, "dir/up", "..");
                link(writer, "new", "dir/up/missing/../../..");
            }),
        ),
        (
            "directory with content",
            patched(
                zipped(|writer| file(writer, "new!", b"content")),
                b"new!",
                b"new/",
            ),
        ),
        (
            "through a link",
            zipped(|writer| {
                link(writer, "in", "dir");
                file(writer, "in/new", b"");
            }),
        ),
        (
            "below a file",
            zipped(|writer| {
                file(writer, "new", b"");
                file(writer, "new/below", b"");
            }),
        ),
        (
            "twice",
            patched(
                zipped(|writer| {
                    file(writer, "one!", b"1");
                    file(writer, "two!", b"2");
                }),
                b"two!",
                b"one!",
            ),
        ),
        (
            "twice by another name",
            zipped(|writer| {
                file(writer, "new", b"1");
                file(writer, "./new", b"2");
            }),
        ),
        (
            "overlapping",
            zipped(|writer| {
                file(writer, "new", b"1");
                writer.shallow_copy_file("new", "same").unwrap();
            }),
        ),
        (
            "device",
            zipped(|writer| writer.start_file("new", mode(0o020_666)).unwrap()),
        ),
        (
            "FIFO",
            zipped(|writer| writer.start_file("new", mode(0o010_666)).unwrap()),
        ),
        ("encrypted", with_headers(one.clone(), 6, 8, 1)),
        ("unknown compression", with_headers(one.clone(), 8, 10, 98)),
        ("too many", with_claimed_count(&zipped(|_| {}), 1_000_000)),
    ];
    for (case, archive) in invalid_archives {
        for path in [&root, &directory.path().join("fresh")] {
            let (status, response) = upload(&agent, archive.clone(), path).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{case}: {response}");
            assert_eq!(
                response["details"][0]["code"], "zip_file",
                "{case}: {response}"
            );
            assert_eq!(tree(directory.path()), before, "{case}");
        }
    }
    for (case, archive) in [
        (
            "file over directory",
            zipped(|writer| file(writer, "dir", b"")),
        ),
        (
            "directory over file",
            zipped(|writer| file(writer, "file/new", b"")),
        ),
        (
            "directory over link",
            zipped(|writer| file(writer, "out/new", b"")),
        ),
    ] {
        let (status, response) = upload(&agent, archive, &root).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{case}: {response}");
        assert_eq!(
            response["details"][0]["code"], "dest_path",
            "{case}: {response}"
        );
        assert_eq!(tree(directory.path()), before, "{case}");
    }
    assert_no_temp_files(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn unwritable_directory_prevents_all_changes() {
    let agent = Start::without_browser()
        .without_rights_over_files()
        .listening()
        .await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name);
    for name in ["a", "closed", "passage/open"] {
        fs::create_dir_all(path_of(name)).unwrap();
    }
    let set =
        |name: &str, mode| fs::set_permissions(path_of(name), fs::Permissions::from_mode(mode));
    set("passage", 0o555).unwrap();
    // The first mode prevents access to the entries, the second only new entries.
    for mode in [0o600, 0o555] {
        set("closed", mode).unwrap();
        let before = tree(directory.path());
        let archive = zipped(|writer| {
            for name in ["a/new", "closed/new", "z/new"] {
                file(writer, name, b"new");
            }
        });
        let (status, response) = upload(&agent, archive, directory.path()).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{response}");
        assert_eq!(tree(directory.path()), before);
    }
    // Directories that get no new entries need not be writable.
    let archive = zipped(|writer| file(writer, "passage/open/new", b"new"));
    let (status, response) = upload(&agent, archive, directory.path()).await;
    assert_eq!(status, StatusCode::CREATED, "{response}");
    assert_eq!(fs::read(path_of("passage/open/new")).unwrap(), b"new");
    assert_no_temp_files(&agent);
    agent.stop().await;
}

/// Returns an archive whose zip64 end record claims `count` entries.
fn with_claimed_count(empty: &[u8], count: u64) -> Vec<u8> {
    let mut archive = Vec::new();
    archive.extend(b"PK\x06\x06");
    archive.extend(44_u64.to_le_bytes());
    archive.extend([45, 0, 45, 0]);
    archive.extend([0; 8]);
    archive.extend(count.to_le_bytes());
    archive.extend(count.to_le_bytes());
    archive.extend([0; 16]);
    archive.extend(b"PK\x06\x07");
    archive.extend([0; 4]);
    archive.extend(0_u64.to_le_bytes());
    archive.extend(1_u32.to_le_bytes());
    let mut end = empty.to_vec();
    end[8..20].fill(0xff);
    archive.extend(end);
    archive
}

#[tokio::test]
async fn nested_archive_and_trailing_backslash_are_plain_files() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    // A stored zip64 archive: its end record must not be taken for that of the outer archive.
    let inner = with_claimed_count(&zipped(|_| {}), 1);
    let archive = zipped(|writer| {
        file(writer, "back!", b"content");
        let stored = options().compression_method(zip::CompressionMethod::Stored);
        writer.start_file("inner.zip", stored).unwrap();
        writer.write_all(&inner).unwrap();
    });
    let archive = patched(archive, b"back!", b"back\\");
    let (status, response) = upload(&agent, archive, &directory.path().join("new")).await;
    assert_eq!(status, StatusCode::CREATED, "{response}");
    let content = |name: &str| fs::read(directory.path().join("new").join(name)).unwrap();
    assert_eq!(content("back\\"), b"content");
    assert!(content("inner.zip") == inner);
    agent.stop().await;
}

#[tokio::test]
async fn decompression_bomb_is_413() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let archive = zipped(|writer| {
        file(writer, "small", &vec![0; 1 << 20]);
        file(writer, "bomb", &vec![0; 66 << 20]);
    });
    assert!(archive.len() < 1 << 20);
    // Directories that no entry lists count as well.
    let directories = zipped(|writer| {
        for number in 0..140 {
            let name = format!("{number}/{}file", "d/".repeat(126));
            file(writer, &name, b"");
        }
    });
    for archive in [archive, directories] {
        let path = directory.path().join("new");
        let (status, response) = upload(&agent, archive, &path).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{response}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
    assert_no_temp_files(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn invalid_zip_upload_names_each_invalid_field() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(path_of("file"), "x").unwrap();
    symlink("nowhere", path_of("link")).unwrap();
    nix::unistd::mkfifo(path_of("fifo").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let before = tree(directory.path());
    let archive = || Part::bytes(zipped(|writer| file(writer, "new", b"")));
    let long = format!("/{}", "x".repeat(5000));
    for (path, status) in [
        ("relative", 400),
        ("", 400),
        ("/tmp\0", 400),
        (long.as_str(), 400),
        (&path_of("file"), 400),
        (&path_of("file/below"), 400),
        (&path_of("fifo"), 400),
        (&path_of("link"), 404),
        (&path_of("none/../new"), 404),
        ("/proc/new", 404),
    ] {
        let form = Form::new()
            .text("dest_path", path.to_owned())
            .part("zip_file", archive());
        let request = agent.post("/fs/upload_zip").multipart(form);
        let (actual, response) = agent.answer(request).await;
        assert_eq!(actual.as_u16(), status, "{path}: {response}");
        if status == 400 {
            assert_eq!(response["details"][0]["code"], "dest_path", "{response}");
        }
    }
    for (form, expected) in [
        (
            Form::new().text("other", "x"),
            vec!["dest_path", "zip_file"],
        ),
        (Form::new().part("zip_file", archive()), vec!["dest_path"]),
        (
            Form::new().text("dest_path", path_of("new")),
            vec!["zip_file"],
        ),
        (
            Form::new()
                .part("zip_file", archive())
                .part("zip_file", archive()),
            vec!["zip_file"],
        ),
        (
            Form::new()
                .text("dest_path", path_of("new"))
                .text("dest_path", path_of("new")),
            vec!["dest_path"],
        ),
    ] {
        let request = agent.post("/fs/upload_zip").multipart(form);
        let (status, response) = agent.answer(request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
        assert_eq!(wrong_fields(&response), expected, "{response}");
    }
    let request = agent.post("/fs/upload_zip").body("x");
    assert_eq!(
        agent.answer(request).await.0,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    assert_eq!(tree(directory.path()), before);
    assert_no_temp_files(&agent);
    agent.stop().await;
}
