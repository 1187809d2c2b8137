use std::{
    fs,
    io::Write,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
};

use futures::StreamExt;
use nix::sys::stat::Mode;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TestAgent},
    files::{Node, noise, tree, untar, unzipped},
    processes::{PeakMemory, threads_named},
    requests::wrong_fields,
    wait::{in_time, until},
};

/// A content size larger than all buffers between an archive and a client that does not read it.
const MORE_THAN_BUFFERED: usize = 24 << 20;

const ROUTES: [&str; 2] = ["download_dir_zip", "download_dir_zstd"];

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

fn query(route: &str, pairs: &[(&str, &str)]) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish();
    format!("/fs/{route}?{query}")
}

async fn start_download(agent: &TestAgent, route: &str, path: &Path) -> Response {
    let url = query(route, &[("path", path.to_str().unwrap())]);
    let response = in_time("an archive", agent.request(Method::GET, &url).send())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response
}

async fn body_of(response: Response) -> Vec<u8> {
    in_time("the content", response.bytes())
        .await
        .unwrap()
        .into()
}

async fn download(agent: &TestAgent, route: &str, path: &Path) -> Vec<u8> {
    body_of(start_download(agent, route, path).await).await
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Creates files with unusual names, sizes and permissions, and links.
fn create_tree(root: &Path) {
    fs::create_dir_all(root.join("sub/empty")).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("ünïcode 😀 name"), "text").unwrap();
    fs::write(root.join("sub/noise"), noise(3 << 20)).unwrap();
    fs::write(root.join("photo.jpg"), noise(1000)).unwrap();
    fs::write(root.join("x".repeat(250)), vec![7; 1 << 20]).unwrap();
    let deep = root.join("d".repeat(120)).join("e".repeat(120));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("f".repeat(120)), "deep").unwrap();
    symlink("../photo.jpg", root.join("sub/link")).unwrap();
    symlink("n/".repeat(100), root.join("long link")).unwrap();
    chmod(root.join("empty"), 0o600);
    chmod(root.join("photo.jpg"), 0o751);
    chmod(root.join("sub/empty"), 0o700);
}

#[tokio::test]
async fn tar_download_preserves_everything() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("tree");
    fs::create_dir(&root).unwrap();
    create_tree(&root);
    fs::hard_link(root.join("sub/noise"), root.join("twin")).unwrap();
    chmod(root.join("twin"), 0o4755);
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_891);
    let file = fs::File::options().write(true).open(root.join("photo.jpg"));
    file.unwrap().set_modified(modified).unwrap();

    let response = start_download(&agent, "download_dir_zstd", &root).await;
    assert_eq!(response.headers()["content-type"], "application/zstd");
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    assert_eq!(
        response.headers()["content-disposition"],
        "attachment; filename*=UTF-8''tree%2Etar%2Ezst"
    );
    let copy = directory.path().join("copy");
    untar(&body_of(response).await, &copy);
    assert_eq!(tree(&copy), tree(&root));
    let (first_link, second_link) = (copy.join("sub/noise"), copy.join("twin"));
    assert_eq!(
        fs::metadata(first_link).unwrap().ino(),
        fs::metadata(second_link).unwrap().ino()
    );
    let metadata = fs::metadata(copy.join("photo.jpg")).unwrap();
    assert_eq!(metadata.modified().unwrap(), modified);
    agent.stop().await;
}

#[tokio::test]
async fn zip_download_preserves_everything_the_format_supports() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("tree");
    fs::create_dir(&root).unwrap();
    create_tree(&root);
    let response = start_download(&agent, "download_dir_zip", &root).await;
    assert_eq!(response.headers()["content-type"], "application/zip");
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    let archive = body_of(response).await;
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(archive)).unwrap();
    let mut nodes = std::collections::BTreeMap::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).unwrap();
        let mode = file.unix_mode().unwrap() & 0o7777;
        let path = file.name().unwrap().trim_end_matches('/').into();
        let (is_dir, is_link) = (file.is_dir(), file.is_symlink());
        let mut content = Vec::new();
        std::io::copy(&mut file, &mut content).unwrap();
        let node = match (is_dir, is_link) {
            (true, _) => Node::Directory { mode },
            (_, true) => Node::Link {
                target: String::from_utf8(content).unwrap().into(),
            },
            _ => Node::File { mode, content },
        };
        assert!(nodes.insert(path, node).is_none());
    }
    assert_eq!(nodes, tree(&root));
    agent.stop().await;
}

#[tokio::test]
async fn skipped_entries_are_listed_in_archive() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    fs::write(root.join("file"), "content").unwrap();
    fs::write(root.join(".berth-skipped.json"), "foreign").unwrap();
    nix::unistd::mkfifo(&root.join("fifo"), Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(root.join("socket")).unwrap();
    let expected = json!({
        "skipped": [
            {"path": "fifo", "reason": "is a FIFO"},
            {"path": "socket", "reason": "is a socket"},
        ],
        "more": 0,
    });
    let files = unzipped(&download(&agent, "download_dir_zip", root).await);
    assert_eq!(files[".berth-skipped.json"], b"foreign");
    let list: Value = serde_json::from_slice(&files[".berth-skipped-2.json"]).unwrap();
    assert_eq!(list, expected);
    assert_eq!(files.len(), 3);

    let elsewhere = TempDir::new().unwrap();
    let copy = elsewhere.path().join("copy");
    untar(&download(&agent, "download_dir_zstd", root).await, &copy);
    let list = fs::read(copy.join(".berth-skipped-2.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&list).unwrap(), expected);
    assert_eq!(tree(&copy).len(), 3);
    agent.stop().await;
}

/// Downloads the archive of a tree while `change` modifies it: the first file is still being read.
async fn download_during(agent: &TestAgent, root: &Path, change: impl FnOnce()) -> Vec<u8> {
    let response = start_download(agent, "download_dir_zip", root).await;
    let mut chunks = response.bytes_stream();
    let mut archive = in_time("the first chunk", chunks.next())
        .await
        .unwrap()
        .unwrap()
        .to_vec();
    change();
    while let Some(chunk) = in_time("another chunk", chunks.next()).await {
        archive.extend_from_slice(&chunk.unwrap());
    }
    archive
}

#[tokio::test]
async fn directory_changed_during_download_is_archived() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let (root, outside) = (
        directory.path().join("tree"),
        directory.path().join("outside"),
    );
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "foreign").unwrap();
    for name in ["b", "c", "d"] {
        fs::create_dir_all(root.join(name)).unwrap();
        fs::write(root.join(name).join("secret"), "own").unwrap();
    }
    fs::write(root.join("z"), "last").unwrap();
    let content = noise(MORE_THAN_BUFFERED);
    let first = root.join("a");
    fs::write(&first, &content).unwrap();

    let files = unzipped(
        &download_during(&agent, &root, || {
            let mut file = fs::File::options().append(true).open(&first).unwrap();
            file.write_all(b"more").unwrap();
            fs::remove_dir_all(root.join("b")).unwrap();
            fs::rename(root.join("c"), directory.path().join("moved")).unwrap();
            symlink(&outside, root.join("c")).unwrap();
        })
        .await,
    );
    assert!(files["a"] == content);
    assert_eq!(files["z"], b"last");
    // The directory that was replaced by a link is archived as a link, without its target.
    assert_eq!(files["c"], outside.to_str().unwrap().as_bytes());
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        [".berth-skipped.json", "a", "c", "d/", "d/secret", "z"]
    );
    let list: Value = serde_json::from_slice(&files[".berth-skipped.json"]).unwrap();
    assert_eq!(
        list["skipped"],
        json!([
            {"path": "a", "reason": "grew while it was read; cut to its initial size"},
            {"path": "b", "reason": "was deleted during the walk"},
        ])
    );

    fs::write(&first, &content).unwrap();
    let shrink = || {
        let file = fs::File::options().write(true).open(&first).unwrap();
        file.set_len(0).unwrap();
    };
    let files = unzipped(&download_during(&agent, &root, shrink).await);
    assert_eq!(files["a"].len(), content.len());
    assert_eq!(files["a"].last(), Some(&0));
    let list: Value = serde_json::from_slice(&files[".berth-skipped.json"]).unwrap();
    assert_eq!(list["skipped"][0]["path"], "a");
    agent.stop().await;
}

#[tokio::test]
async fn unread_archives_are_limited_and_end_when_clients_disconnect() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("file"), noise(MORE_THAN_BUFFERED)).unwrap();
    let mut unread = Vec::new();
    for _ in 0..4 {
        unread.push(start_download(&agent, "download_dir_zip", directory.path()).await);
    }
    let path = directory.path().to_str().unwrap();
    let request = agent.get(&query("download_dir_zstd", &[("path", path)]));
    let (status, response) = agent.answer(request).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{response}");
    drop(unread);
    until("the end of the archives", async || {
        (threads_named(agent.pid(), "archive") == 0).then_some(())
    })
    .await;
    download(&agent, "download_dir_zstd", directory.path()).await;
    agent.stop().await;
}

#[tokio::test]
async fn archive_of_sparse_file_ends_when_client_disconnects() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("first"), noise(1 << 20)).unwrap();
    let sparse = fs::File::create(directory.path().join("second")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    for route in ROUTES {
        let mut body = start_download(&agent, route, directory.path())
            .await
            .bytes_stream();
        in_time("the first chunk", body.next()).await;
        drop(body);
        until("the end of the archive", async || {
            (threads_named(agent.pid(), "archive") == 0).then_some(())
        })
        .await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn archive_of_large_directory_uses_little_memory() {
    // Each of the compressor's threads needs its own memory.
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8));
    let limit_kib = (96 + 48 * cores.max(2) as u64) << 10;
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    for number in 0..5 {
        let file = fs::File::create(directory.path().join(number.to_string())).unwrap();
        file.set_len(64 << 20).unwrap();
    }
    let memory = PeakMemory::of(agent.pid());
    let response = start_download(&agent, "download_dir_zstd", directory.path()).await;
    let mut body = response.bytes_stream();
    while let Some(chunk) = in_time("a chunk", body.next()).await {
        chunk.unwrap();
    }
    let grown = memory.grown_kib();
    assert!(grown < limit_kib, "grew by {grown} KiB");
    agent.stop().await;
}

#[tokio::test]
async fn invalid_download_request_names_each_invalid_field() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(path_of("file"), "x").unwrap();
    nix::unistd::mkfifo(path_of("fifo").as_str(), Mode::S_IRWXU).unwrap();
    let long = format!("/{}", "x".repeat(5000));
    for route in ROUTES {
        for (path, status) in [
            ("", 400),
            ("tmp", 400),
            ("/tmp\0", 400),
            (long.as_str(), 400),
            (&path_of("none"), 404),
            (&path_of("file"), 400),
            (&path_of("fifo"), 400),
            (&path_of("file/below"), 400),
            ("/proc", 400),
            ("/proc/self/fd", 400),
            ("/sys", 400),
            ("/dev/zero", 400),
        ] {
            let request = agent.get(&query(route, &[("path", path)]));
            let (found, response) = agent.answer(request).await;
            assert_eq!(found.as_u16(), status, "{route} {path}: {response}");
            if status == 400 {
                assert_eq!(response["details"][0]["code"], "path", "{response}");
            }
        }
        let (status, response) = agent.answer(agent.get(&format!("/fs/{route}"))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(response["details"][0]["code"], "path");
    }
    for level in ["0", "20", "-1", "x", "", "3.5"] {
        let pairs = [("path", "tmp"), ("compression_level", level)];
        let request = agent.get(&query("download_dir_zstd", &pairs));
        let (status, response) = agent.answer(request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{level}: {response}");
        assert_eq!(
            wrong_fields(&response),
            ["compression_level", "path"],
            "{response}"
        );
    }
    let pairs = [("path", &*path_of("")), ("compression_level", "best")];
    let request = agent.get(&query("download_dir_zstd", &pairs));
    let response = in_time("a response", request.send()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    agent.stop().await;
}
