use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use reqwest::{Body, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TestAgent},
    files::tree,
    processes::PeakMemory,
    requests::{unfinished, wrong_fields},
    wait::{in_time, until},
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

fn at(agent: &TestAgent, method: Method, route: &str, path: &Path) -> RequestBuilder {
    let path = path.to_str().expect("UTF-8");
    agent.request(method, &query(route, &[("path", path)]))
}

fn query(route: &str, pairs: &[(&str, &str)]) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish();
    format!("/fs/{route}?{query}")
}

async fn put(agent: &TestAgent, route: &str, body: Value) -> (StatusCode, Value) {
    let request = agent.put(&format!("/fs/{route}")).json(&body);
    agent.answer(request).await
}

async fn read(agent: &TestAgent, path: &Path) -> Vec<u8> {
    let response = in_time("a file", at(agent, Method::GET, "read_file", path).send())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        response.headers()["content-type"],
        "application/octet-stream"
    );
    in_time("its content", response.bytes())
        .await
        .unwrap()
        .into()
}

async fn write(agent: &TestAgent, path: &Path, body: impl Into<Body>) -> StatusCode {
    let request = at(agent, Method::PUT, "write_file", path).body(body);
    agent.answer(request).await.0
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn what_is_written_is_read_again() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let every_byte: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    for (name, content) in [
        ("empty", &b""[..]),
        ("every byte", &every_byte),
        ("ünïcode 😀 & %2F?#", b"text"),
    ] {
        let path = folder.path().join(name);
        assert_eq!(
            write(&agent, &path, content.to_vec()).await,
            StatusCode::CREATED
        );
        assert_eq!(fs::read(&path).unwrap(), content);
        assert!(read(&agent, &path).await == content, "{name}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
    }
    // Files whose length only their end tells: one says 0, the other that it fills a page.
    let told = read(&agent, Path::new("/proc/self/cmdline")).await;
    assert!(String::from_utf8_lossy(&told).contains("agent"));
    let mtu = Path::new("/sys/class/net/lo/mtu");
    assert_eq!(read(&agent, mtu).await, fs::read(mtu).unwrap());
    agent.stop().await;
}

#[tokio::test]
async fn what_a_link_leads_to_is_made() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("sub")).unwrap();
    symlink("sub/new", at("link")).unwrap();
    symlink("../link", at("sub/link")).unwrap();
    assert_eq!(
        write(&agent, &at("sub/link"), "1").await,
        StatusCode::CREATED
    );
    assert_eq!(fs::read(at("sub/new")).unwrap(), b"1");
    fs::remove_file(at("sub/new")).unwrap();
    let form = reqwest::multipart::Form::new()
        .text("files.0.dest_path", at("link").to_str().unwrap().to_owned())
        .text("files.0.file", "2");
    agent.ok(agent.post("/fs/upload").multipart(form)).await;
    assert_eq!(fs::read(at("sub/new")).unwrap(), b"2");
    for link in ["link", "sub/link"] {
        assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink());
    }
    fs::remove_dir_all(at("sub")).unwrap();
    assert_eq!(write(&agent, &at("link"), "3").await, StatusCode::NOT_FOUND);
    assert_eq!(names(folder.path()), ["link"]);
    agent.stop().await;
}

#[tokio::test]
async fn set_user_bits_outlast_the_writing() {
    let agent = Start::without_browser()
        .without_rights_over_files()
        .listening()
        .await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("program");
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    let pairs = [("path", path.to_str().unwrap()), ("mode", "4755")];
    let request = agent.put(&query("write_file", &pairs)).body("new");
    assert_eq!(agent.answer(request).await.0, StatusCode::CREATED);
    assert_eq!(mode(), 0o4755);
    assert_eq!(write(&agent, &path, "replaced").await, StatusCode::CREATED);
    assert_eq!(fs::read(&path).unwrap(), b"replaced");
    assert_eq!(mode(), 0o4755);
    agent.stop().await;
}

#[tokio::test]
async fn a_file_that_is_replaced_keeps_its_mode_and_its_links() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let (path, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    symlink("file", &link).unwrap();
    assert_eq!(write(&agent, &link, "new").await, StatusCode::CREATED);
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o750);

    let pairs = [("path", path.to_str().unwrap()), ("mode", "0600")];
    let request = agent.put(&query("write_file", &pairs)).body("newer");
    assert_eq!(agent.answer(request).await.0, StatusCode::CREATED);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(names(folder.path()), ["file", "link"]);
    agent.stop().await;
}

#[tokio::test]
async fn a_write_that_breaks_off_changes_nothing() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "old").unwrap();
    let (_sender, body) = unfinished("half");
    let request = at(&agent, Method::PUT, "write_file", &path).body(body);
    let writing = tokio::spawn(request.send());
    until("the draft", async || {
        (names(folder.path()).len() == 2).then_some(())
    })
    .await;
    assert_eq!(read(&agent, &path).await, b"old");
    writing.abort();
    until("the end of the draft", async || {
        (names(folder.path()) == ["file"]).then_some(())
    })
    .await;
    assert_eq!(fs::read(&path).unwrap(), b"old");
    agent.stop().await;
}

#[tokio::test]
async fn a_large_file_passes_through_little_memory() {
    const CHUNK: usize = 1 << 20;
    const CHUNKS: usize = 512;
    const MOST_KIB: u64 = 24 << 10;
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("large");
    write(&agent, &path, vec![1; CHUNK]).await;
    let memory = PeakMemory::of(agent.pid());
    let chunk = Bytes::from(vec![7; CHUNK]);
    let chunks = stream::iter((0..CHUNKS).map(move |_| Ok::<_, std::io::Error>(chunk.clone())));
    let body = Body::wrap_stream(chunks);
    assert_eq!(write(&agent, &path, body).await, StatusCode::CREATED);
    let response = at(&agent, Method::GET, "read_file", &path)
        .send()
        .await
        .unwrap();
    let (mut length, mut body) = (0, response.bytes_stream());
    while let Some(chunk) = in_time("a chunk", body.next()).await {
        length += chunk.unwrap().len();
    }
    assert_eq!(length, CHUNK * CHUNKS);
    let grown = memory.grown_kib();
    assert!(grown < MOST_KIB, "grown by {grown} KiB");
    agent.stop().await;
}

#[tokio::test]
async fn directories_are_made_listed_and_removed() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let deep = folder.path().join("a/b");
    for _ in 0..2 {
        let (status, _) = put(
            &agent,
            "create_directory",
            json!({"path": deep, "mode": "700"}),
        )
        .await;
        assert_eq!(status, StatusCode::CREATED);
    }
    assert_eq!(fs::metadata(&deep).unwrap().mode() & 0o7777, 0o700);
    fs::write(deep.join("file"), "four").unwrap();
    symlink("nowhere", deep.join("link")).unwrap();
    fs::create_dir(deep.join("sub")).unwrap();
    let listed = agent.ok(at(&agent, Method::GET, "list_files", &deep)).await;
    let listed = listed.as_array().unwrap();
    let field = |name: &str| {
        listed
            .iter()
            .map(|entry| entry[name].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(field("name"), ["file", "link", "sub"]);
    assert_eq!(field("is_dir"), [false, false, true]);
    assert_eq!(field("mode"), ["-rw-r--r--", "lrwxrwxrwx", "drwxr-xr-x"]);
    assert_eq!(listed[0]["size_bytes"], 4);
    assert_eq!(listed[0]["path"], json!(deep.join("file")));
    let info = at(&agent, Method::GET, "file_info", &deep.join("file"));
    let info = agent.ok(info).await;
    assert_eq!(info, listed[0]);
    let modified = fs::metadata(deep.join("file")).unwrap().modified().unwrap();
    let modified = chrono::DateTime::<chrono::Utc>::from(modified);
    assert_eq!(
        info["mod_time"],
        modified.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
    );

    let (status, _) = put(&agent, "delete_file", json!({"path": deep.join("link")})).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = put(
        &agent,
        "delete_directory",
        json!({"path": folder.path().join("a")}),
    )
    .await;
    assert_eq!(status, StatusCode::OK);
    assert!(names(folder.path()).is_empty());

    // By whatever name, it goes with what is in it.
    let target = folder.path().join("target");
    symlink("target", folder.path().join("link")).unwrap();
    for name in ["target/", "target/.", "target//", "link/", "link/."] {
        fs::create_dir_all(target.join("full")).unwrap();
        let path = format!("{}/{name}", folder.path().display());
        let (status, answer) = put(&agent, "delete_directory", json!({"path": path})).await;
        assert_eq!(status, StatusCode::OK, "{name}: {answer}");
        assert_eq!(names(folder.path()), ["link"], "{name}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn files_are_moved_within_a_file_system_and_to_another() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    // The one that is in memory, unless temporary files are there as well.
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    let elsewhere = ["/dev/shm", env!("CARGO_TARGET_TMPDIR")].map(Path::new);
    let elsewhere = elsewhere
        .into_iter()
        .find(|path| device(path) != device(folder.path()))
        .expect("a second file system");
    let other = TempDir::new_in(elsewhere).unwrap();
    for target in [folder.path().join("moved"), other.path().join("moved")] {
        let source = folder.path().join("tree");
        fs::create_dir_all(source.join("sub")).unwrap();
        fs::write(source.join("sub/file"), "content").unwrap();
        fs::set_permissions(source.join("sub/file"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("sub/file", source.join("link")).unwrap();
        let body = json!({"src_path": source, "dest_path": target});
        let (status, answer) = put(&agent, "move", body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert!(!source.exists());
        assert_eq!(fs::read(target.join("link")).unwrap(), b"content");
        assert_eq!(
            fs::metadata(target.join("sub/file")).unwrap().mode() & 0o777,
            0o600
        );
        let replaced = target.with_file_name("replaced");
        fs::write(&replaced, "old").unwrap();
        let body = json!({"src_path": target.join("sub/file"), "dest_path": replaced});
        assert_eq!(put(&agent, "move", body).await.0, StatusCode::OK);
        assert_eq!(fs::read(&replaced).unwrap(), b"content");
    }
    assert_eq!(names(other.path()), ["moved", "replaced"]);
    agent.stop().await;
}

#[tokio::test]
async fn permissions_and_owners_are_set() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "").unwrap();
    let own = fs::metadata(&path).unwrap();
    let body = json!({"path": path, "mode": "4711", "owner": own.uid().to_string(), "group": own.gid().to_string()});
    let (status, answer) = put(&agent, "set_file_permissions", body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4711);
    let body =
        json!({"path": path, "mode": "600", "owner": "nobody-of-that-name", "group": "root"});
    let (status, answer) = put(&agent, "set_file_permissions", body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(answer["details"][0]["code"], "owner");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4711);
    agent.stop().await;
}

#[tokio::test]
async fn bad_requests_are_refused_field_by_field() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("file"), "x").unwrap();
    fs::create_dir_all(at("dir/full")).unwrap();
    symlink("dir", at("link")).unwrap();
    nix::unistd::mkfifo(
        folder.path().join("fifo").as_path(),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .unwrap();
    let before = tree(folder.path());

    let long = format!("/{}", "x".repeat(5000));
    let component = format!("/{}", "x".repeat(300));
    for (path, status) in [
        ("", 400),
        ("file", 400),
        ("/tmp\0", 400),
        (long.as_str(), 400),
        (component.as_str(), 400),
        (&at("none"), 404),
        (&at("dir"), 400),
        (&at("fifo"), 400),
        (&at("file/below"), 400),
        ("/dev/zero", 400),
    ] {
        let request = agent.get(&query("read_file", &[("path", path)]));
        let (found, answer) = agent.answer(request).await;
        assert_eq!(found.as_u16(), status, "{path}: {answer}");
        if status == 400 {
            assert_eq!(answer["details"][0]["code"], "path", "{answer}");
        }
    }
    for (path, mode, status, field) in [
        (at("new"), "9", 400, "mode"),
        (at("new"), "00644", 400, "mode"),
        (at("dir"), "644", 400, "path"),
        (at("fifo"), "644", 400, "path"),
        (at("none/new"), "644", 404, ""),
        (at("file/new"), "644", 400, "path"),
        (at("new/"), "644", 400, "path"),
        (at("new/."), "644", 400, "path"),
        ("/".to_owned(), "644", 400, "path"),
    ] {
        let request = agent
            .put(&query("write_file", &[("path", &path), ("mode", mode)]))
            .body("x");
        let (found, answer) = agent.answer(request).await;
        assert_eq!(found.as_u16(), status, "{path}: {answer}");
        if status == 400 {
            assert_eq!(answer["details"][0]["code"], field, "{answer}");
        }
    }
    for (route, body, status, fields) in [
        ("create_directory", json!({}), 400, vec!["path"]),
        (
            "create_directory",
            json!({"path": "x", "mode": 7}),
            400,
            vec!["mode", "path"],
        ),
        ("create_directory", json!({"path": at("file")}), 409, vec![]),
        (
            "create_directory",
            json!({"path": at("file/below")}),
            409,
            vec![],
        ),
        (
            "create_directory",
            json!({"path": at("file/below/deeper")}),
            409,
            vec![],
        ),
        (
            "delete_directory",
            json!({"path": at("file")}),
            400,
            vec!["path"],
        ),
        ("delete_directory", json!({"path": at("none")}), 404, vec![]),
        ("delete_directory", json!({"path": "/"}), 400, vec!["path"]),
        (
            "delete_directory",
            json!({"path": "/tmp/.."}),
            400,
            vec!["path"],
        ),
        (
            "delete_directory",
            json!({"path": at("dir/full/..")}),
            400,
            vec!["path"],
        ),
        (
            "delete_directory",
            json!({"path": at("link")}),
            400,
            vec!["path"],
        ),
        ("delete_file", json!({"path": at("dir")}), 400, vec!["path"]),
        ("delete_file", json!({"path": at("none")}), 404, vec![]),
        (
            "move",
            json!({"src_path": 1}),
            400,
            vec!["dest_path", "src_path"],
        ),
        (
            "move",
            json!({"src_path": at("none"), "dest_path": at("new")}),
            404,
            vec![],
        ),
        (
            "move",
            json!({"src_path": at("file"), "dest_path": at("none/new")}),
            404,
            vec![],
        ),
        (
            "move",
            json!({"src_path": at("dir"), "dest_path": at("dir/full/in")}),
            400,
            vec!["dest_path"],
        ),
        (
            "move",
            json!({"src_path": at("file"), "dest_path": at("dir")}),
            400,
            vec!["dest_path"],
        ),
        (
            "move",
            json!({"src_path": at("dir"), "dest_path": at("file")}),
            400,
            vec!["dest_path"],
        ),
        (
            "set_file_permissions",
            json!({"path": at("file")}),
            400,
            vec!["mode"],
        ),
        (
            "set_file_permissions",
            json!({"path": "x", "mode": "rwx", "owner": "", "group": "x".repeat(33)}),
            400,
            vec!["group", "mode", "owner", "path"],
        ),
        (
            "set_file_permissions",
            json!({"path": at("file"), "mode": "644", "group": "no-such-group"}),
            400,
            vec!["group"],
        ),
        (
            "set_file_permissions",
            json!({"path": at("none"), "mode": "644"}),
            404,
            vec![],
        ),
    ] {
        let (found, answer) = put(&agent, route, body.clone()).await;
        assert_eq!(found.as_u16(), status, "{route} {body}: {answer}");
        assert_eq!(wrong_fields(&answer), fields, "{route} {body}: {answer}");
    }
    assert_eq!(tree(folder.path()), before);
    agent.stop().await;
}
