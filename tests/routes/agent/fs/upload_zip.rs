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

/// The archive with all that is `from` replaced by as many bytes `to`.
fn patched(mut archive: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut found = false;
    for at in 0..=archive.len() - from.len() {
        if &archive[at..at + from.len()] == from {
            archive[at..at + to.len()].copy_from_slice(to);
            found = true;
        }
    }
    assert!(found);
    archive
}

/// The archive with two bytes of each header changed: those at `local` of the file's own, at `central` of the directory's.
fn with_headers(mut archive: Vec<u8>, local: usize, central: usize, value: u16) -> Vec<u8> {
    for at in 0..archive.len() - 4 {
        let offset = match &archive[at..at + 4] {
            b"PK\x03\x04" => local,
            b"PK\x01\x02" => central,
            _ => continue,
        };
        archive[at + offset..at + offset + 2].copy_from_slice(&value.to_le_bytes());
    }
    archive
}

fn nothing_left(agent: &TestAgent) {
    for folder in ["work", "run/drafts"] {
        let left = fs::read_dir(agent.state_dir().join(folder))
            .unwrap()
            .count();
        assert_eq!(left, 0, "{folder}");
    }
}

#[tokio::test]
async fn a_directory_comes_back_as_it_was_downloaded() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("tree");
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
    let copy = folder.path().join("missing/parents/copy");
    let (status, answer) = upload(&agent, archive, &copy).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!(tree(&copy), tree(&root));
    assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o7777, 0o755);
    let kept = fs::metadata(copy.join("empty file")).unwrap();
    assert_eq!(kept.modified().unwrap(), modified);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    nothing_left(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn what_is_there_is_replaced_file_by_file() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("sub")).unwrap();
    fs::set_permissions(at("sub"), fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["kept", "replaced", "sub/kept", "sub/replaced"] {
        fs::write(at(name), "old").unwrap();
    }
    symlink("kept", at("link")).unwrap();
    let archive = zipped(|writer| {
        for name in ["replaced", "sub/replaced", "sub/new", "new/new", "link"] {
            file(writer, name, b"new");
        }
    });
    let (status, answer) = upload(&agent, archive, folder.path()).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    for (name, content) in [
        ("kept", "old"),
        ("sub/kept", "old"),
        ("replaced", "new"),
        ("sub/replaced", "new"),
        ("sub/new", "new"),
        ("new/new", "new"),
        ("link", "new"),
    ] {
        assert_eq!(fs::read_to_string(at(name)).unwrap(), content, "{name}");
    }
    // A link is replaced, not followed.
    assert!(fs::symlink_metadata(at("link")).unwrap().is_file());
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("sub"), 0o700);
    // The archive says nothing of it.
    assert_eq!(mode("new"), 0o755);
    assert_eq!(tree(folder.path()).len(), 9);
    agent.stop().await;
}

#[tokio::test]
async fn a_bad_archive_changes_nothing() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("dir")).unwrap();
    fs::write(root.join("file"), "old").unwrap();
    symlink(folder.path(), root.join("out")).unwrap();
    let before = tree(folder.path());

    let one = zipped(|writer| file(writer, "new", b"content"));
    let noisy = zipped(|writer| file(writer, "new", &noise(1000)));
    let mode = |mode: u32| options().external_attributes(mode << 16);
    let evil = [
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
            "link out through what is not there yet",
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
            "behind a file",
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
        ("too many", large_count(&zipped(|_| {}), 1_000_000)),
    ];
    for (what, archive) in evil {
        for path in [&root, &folder.path().join("fresh")] {
            let (status, answer) = upload(&agent, archive.clone(), path).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{what}: {answer}");
            assert_eq!(answer["details"][0]["code"], "zip_file", "{what}: {answer}");
            assert_eq!(tree(folder.path()), before, "{what}");
        }
    }
    for (what, archive) in [
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
        let (status, answer) = upload(&agent, archive, &root).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{what}: {answer}");
        assert_eq!(
            answer["details"][0]["code"], "dest_path",
            "{what}: {answer}"
        );
        assert_eq!(tree(folder.path()), before, "{what}");
    }
    nothing_left(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn what_may_not_be_written_keeps_all_from_its_place() {
    let agent = Start::without_browser()
        .without_rights_over_files()
        .listening()
        .await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["a", "closed", "passage/open"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    let set = |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode));
    set("passage", 0o555).unwrap();
    // What is in it is not to be seen, or is, but takes nothing.
    for mode in [0o600, 0o555] {
        set("closed", mode).unwrap();
        let before = tree(folder.path());
        let archive = zipped(|writer| {
            for name in ["a/new", "closed/new", "z/new"] {
                file(writer, name, b"new");
            }
        });
        let (status, answer) = upload(&agent, archive, folder.path()).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
        assert_eq!(tree(folder.path()), before);
    }
    // A directory that gets no entry itself need not be writable.
    let archive = zipped(|writer| file(writer, "passage/open/new", b"new"));
    let (status, answer) = upload(&agent, archive, folder.path()).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!(fs::read(at("passage/open/new")).unwrap(), b"new");
    nothing_left(&agent);
    agent.stop().await;
}

/// An archive whose (64-bit) end says that it has so many entries.
fn large_count(empty: &[u8], count: u64) -> Vec<u8> {
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
async fn what_looks_like_something_else_is_a_file() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    // An archive of the larger form, stored: its end is no end of the one it is in.
    let inner = large_count(&zipped(|_| {}), 1);
    let archive = zipped(|writer| {
        file(writer, "back!", b"content");
        let stored = options().compression_method(zip::CompressionMethod::Stored);
        writer.start_file("inner.zip", stored).unwrap();
        writer.write_all(&inner).unwrap();
    });
    let archive = patched(archive, b"back!", b"back\\");
    let (status, answer) = upload(&agent, archive, &folder.path().join("new")).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let content = |name: &str| fs::read(folder.path().join("new").join(name)).unwrap();
    assert_eq!(content("back\\"), b"content");
    assert!(content("inner.zip") == inner);
    agent.stop().await;
}

#[tokio::test]
async fn a_bomb_does_not_go_off() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let archive = zipped(|writer| {
        file(writer, "small", &vec![0; 1 << 20]);
        file(writer, "bomb", &vec![0; 66 << 20]);
    });
    assert!(archive.len() < 1 << 20);
    // Directories that no entry names take room as well.
    let directories = zipped(|writer| {
        for number in 0..140 {
            let name = format!("{number}/{}file", "d/".repeat(126));
            file(writer, &name, b"");
        }
    });
    for archive in [archive, directories] {
        let path = folder.path().join("new");
        let (status, answer) = upload(&agent, archive, &path).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{answer}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    nothing_left(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn bad_requests_are_refused_field_by_field() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("file"), "x").unwrap();
    symlink("nowhere", at("link")).unwrap();
    nix::unistd::mkfifo(at("fifo").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let before = tree(folder.path());
    let archive = || Part::bytes(zipped(|writer| file(writer, "new", b"")));
    let long = format!("/{}", "x".repeat(5000));
    for (path, status) in [
        ("relative", 400),
        ("", 400),
        ("/tmp\0", 400),
        (long.as_str(), 400),
        (&at("file"), 400),
        (&at("file/below"), 400),
        (&at("fifo"), 400),
        (&at("link"), 404),
        (&at("none/../new"), 404),
        ("/proc/new", 404),
    ] {
        let form = Form::new()
            .text("dest_path", path.to_owned())
            .part("zip_file", archive());
        let request = agent.post("/fs/upload_zip").multipart(form);
        let (found, answer) = agent.answer(request).await;
        assert_eq!(found.as_u16(), status, "{path}: {answer}");
        if status == 400 {
            assert_eq!(answer["details"][0]["code"], "dest_path", "{answer}");
        }
    }
    for (form, due) in [
        (
            Form::new().text("other", "x"),
            vec!["dest_path", "zip_file"],
        ),
        (Form::new().part("zip_file", archive()), vec!["dest_path"]),
        (Form::new().text("dest_path", at("new")), vec!["zip_file"]),
        (
            Form::new()
                .part("zip_file", archive())
                .part("zip_file", archive()),
            vec!["zip_file"],
        ),
        (
            Form::new()
                .text("dest_path", at("new"))
                .text("dest_path", at("new")),
            vec!["dest_path"],
        ),
    ] {
        let request = agent.post("/fs/upload_zip").multipart(form);
        let (status, answer) = agent.answer(request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(wrong_fields(&answer), due, "{answer}");
    }
    let request = agent.post("/fs/upload_zip").body("x");
    assert_eq!(
        agent.answer(request).await.0,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    assert_eq!(tree(folder.path()), before);
    nothing_left(&agent);
    agent.stop().await;
}
