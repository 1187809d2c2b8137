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

/// More than all buffers between an archive and a client that does not read it.
const MORE_THAN_IS_BUFFERED: usize = 24 << 20;

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

async fn begin(agent: &TestAgent, route: &str, path: &Path) -> Response {
    let url = query(route, &[("path", path.to_str().unwrap())]);
    let response = in_time("an archive", agent.request(Method::GET, &url).send())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response
}

async fn whole(response: Response) -> Vec<u8> {
    in_time("its content", response.bytes())
        .await
        .unwrap()
        .into()
}

async fn download(agent: &TestAgent, route: &str, path: &Path) -> Vec<u8> {
    whole(begin(agent, route, path).await).await
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Names, sizes, permissions and links of all kinds.
fn plant(root: &Path) {
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
async fn a_directory_comes_as_tar_with_all_that_it_is() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("tree");
    fs::create_dir(&root).unwrap();
    plant(&root);
    fs::hard_link(root.join("sub/noise"), root.join("twin")).unwrap();
    chmod(root.join("twin"), 0o4755);
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_891);
    let file = fs::File::options().write(true).open(root.join("photo.jpg"));
    file.unwrap().set_modified(modified).unwrap();

    let response = begin(&agent, "download_dir_zstd", &root).await;
    assert_eq!(response.headers()["content-type"], "application/zstd");
    assert_eq!(
        response.headers()["content-disposition"],
        "attachment; filename*=UTF-8''tree%2Etar%2Ezst"
    );
    let copy = folder.path().join("copy");
    untar(&whole(response).await, &copy);
    assert_eq!(tree(&copy), tree(&root));
    let (one, other) = (copy.join("sub/noise"), copy.join("twin"));
    assert_eq!(
        fs::metadata(one).unwrap().ino(),
        fs::metadata(other).unwrap().ino()
    );
    let kept = fs::metadata(copy.join("photo.jpg")).unwrap();
    assert_eq!(kept.modified().unwrap(), modified);
    agent.stop().await;
}

#[tokio::test]
async fn a_directory_comes_as_zip_with_all_that_the_format_has() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("tree");
    fs::create_dir(&root).unwrap();
    plant(&root);
    let response = begin(&agent, "download_dir_zip", &root).await;
    assert_eq!(response.headers()["content-type"], "application/zip");
    let archive = whole(response).await;
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(archive)).unwrap();
    let mut found = std::collections::BTreeMap::new();
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
        assert!(found.insert(path, node).is_none());
    }
    assert_eq!(found, tree(&root));
    agent.stop().await;
}

#[tokio::test]
async fn what_is_left_out_is_listed() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    fs::write(root.join("file"), "content").unwrap();
    fs::write(root.join(".berth-skipped.json"), "of somebody else").unwrap();
    nix::unistd::mkfifo(&root.join("fifo"), Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(root.join("socket")).unwrap();
    let due = json!({
        "skipped": [
            {"path": "fifo", "reason": "is a FIFO"},
            {"path": "socket", "reason": "is a socket"},
        ],
        "more": 0,
    });
    let files = unzipped(&download(&agent, "download_dir_zip", root).await);
    assert_eq!(files[".berth-skipped.json"], b"of somebody else");
    let list: Value = serde_json::from_slice(&files[".berth-skipped-2.json"]).unwrap();
    assert_eq!(list, due);
    assert_eq!(files.len(), 3);

    let elsewhere = TempDir::new().unwrap();
    let copy = elsewhere.path().join("copy");
    untar(&download(&agent, "download_dir_zstd", root).await, &copy);
    let list = fs::read(copy.join(".berth-skipped-2.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&list).unwrap(), due);
    assert_eq!(tree(&copy).len(), 3);
    agent.stop().await;
}

/// The archive of a tree that `change` changes while its first file is being read.
async fn changed(agent: &TestAgent, root: &Path, change: impl FnOnce()) -> Vec<u8> {
    let response = begin(agent, "download_dir_zip", root).await;
    let mut chunks = response.bytes_stream();
    let mut archive = in_time("its beginning", chunks.next())
        .await
        .unwrap()
        .unwrap()
        .to_vec();
    change();
    while let Some(chunk) = in_time("more", chunks.next()).await {
        archive.extend_from_slice(&chunk.unwrap());
    }
    archive
}

#[tokio::test]
async fn a_directory_that_changes_meanwhile_is_archived_all_the_same() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let (root, outside) = (folder.path().join("tree"), folder.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "of others").unwrap();
    for name in ["b", "c", "d"] {
        fs::create_dir_all(root.join(name)).unwrap();
        fs::write(root.join(name).join("secret"), "own").unwrap();
    }
    fs::write(root.join("z"), "last").unwrap();
    let content = noise(MORE_THAN_IS_BUFFERED);
    let first = root.join("a");
    fs::write(&first, &content).unwrap();

    let files = unzipped(
        &changed(&agent, &root, || {
            let mut file = fs::File::options().append(true).open(&first).unwrap();
            file.write_all(b"more").unwrap();
            fs::remove_dir_all(root.join("b")).unwrap();
            fs::rename(root.join("c"), folder.path().join("moved")).unwrap();
            symlink(&outside, root.join("c")).unwrap();
        })
        .await,
    );
    assert!(files["a"] == content);
    assert_eq!(files["z"], b"last");
    // The directory that became a link is one, and nothing of where it leads is there.
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
    let files = unzipped(&changed(&agent, &root, shrink).await);
    assert_eq!(files["a"].len(), content.len());
    assert_eq!(files["a"].last(), Some(&0));
    let list: Value = serde_json::from_slice(&files[".berth-skipped.json"]).unwrap();
    assert_eq!(list["skipped"][0]["path"], "a");
    agent.stop().await;
}

#[tokio::test]
async fn archives_nobody_takes_are_few_and_end_with_their_clients() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), noise(MORE_THAN_IS_BUFFERED)).unwrap();
    let mut unread = Vec::new();
    for _ in 0..4 {
        unread.push(begin(&agent, "download_dir_zip", folder.path()).await);
    }
    let path = folder.path().to_str().unwrap();
    let request = agent.get(&query("download_dir_zstd", &[("path", path)]));
    let (status, answer) = agent.answer(request).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
    drop(unread);
    until("the archives' end", async || {
        (threads_named(agent.pid(), "archive") == 0).then_some(())
    })
    .await;
    download(&agent, "download_dir_zstd", folder.path()).await;
    agent.stop().await;
}

#[tokio::test]
async fn an_archive_of_much_that_comes_to_little_ends_with_its_client() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("first"), noise(1 << 20)).unwrap();
    let sparse = fs::File::create(folder.path().join("second")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    for route in ROUTES {
        let mut body = begin(&agent, route, folder.path()).await.bytes_stream();
        in_time("its beginning", body.next()).await;
        drop(body);
        until("the archive's end", async || {
            (threads_named(agent.pid(), "archive") == 0).then_some(())
        })
        .await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_large_directory_passes_through_little_memory() {
    // Each of the compressor's threads takes its own.
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8));
    let most_kib = (96 + 48 * cores.max(2) as u64) << 10;
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    for number in 0..5 {
        let file = fs::File::create(folder.path().join(number.to_string())).unwrap();
        file.set_len(64 << 20).unwrap();
    }
    let memory = PeakMemory::of(agent.pid());
    let response = begin(&agent, "download_dir_zstd", folder.path()).await;
    let mut body = response.bytes_stream();
    while let Some(chunk) = in_time("a chunk", body.next()).await {
        chunk.unwrap();
    }
    let grown = memory.grown_kib();
    assert!(grown < most_kib, "grown by {grown} KiB");
    agent.stop().await;
}

#[tokio::test]
async fn bad_requests_are_refused_field_by_field() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("file"), "x").unwrap();
    nix::unistd::mkfifo(at("fifo").as_str(), Mode::S_IRWXU).unwrap();
    let long = format!("/{}", "x".repeat(5000));
    for route in ROUTES {
        for (path, status) in [
            ("", 400),
            ("tmp", 400),
            ("/tmp\0", 400),
            (long.as_str(), 400),
            (&at("none"), 404),
            (&at("file"), 400),
            (&at("fifo"), 400),
            (&at("file/below"), 400),
            ("/proc", 400),
            ("/proc/self/fd", 400),
            ("/sys", 400),
            ("/dev/zero", 400),
        ] {
            let request = agent.get(&query(route, &[("path", path)]));
            let (found, answer) = agent.answer(request).await;
            assert_eq!(found.as_u16(), status, "{route} {path}: {answer}");
            if status == 400 {
                assert_eq!(answer["details"][0]["code"], "path", "{answer}");
            }
        }
        let (status, answer) = agent.answer(agent.get(&format!("/fs/{route}"))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(answer["details"][0]["code"], "path");
    }
    for level in ["0", "20", "-1", "x", "", "3.5"] {
        let pairs = [("path", "tmp"), ("compression_level", level)];
        let request = agent.get(&query("download_dir_zstd", &pairs));
        let (status, answer) = agent.answer(request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{level}: {answer}");
        assert_eq!(
            wrong_fields(&answer),
            ["compression_level", "path"],
            "{answer}"
        );
    }
    let pairs = [("path", &*at("")), ("compression_level", "best")];
    let request = agent.get(&query("download_dir_zstd", &pairs));
    let answer = in_time("an answer", request.send()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    agent.stop().await;
}
