use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink},
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

fn path_request(agent: &TestAgent, method: Method, route: &str, path: &Path) -> RequestBuilder {
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
    let response = in_time(
        "a file",
        path_request(agent, Method::GET, "read_file", path).send(),
    )
    .await
    .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        response.headers()["content-type"],
        "application/octet-stream"
    );
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    in_time("the content", response.bytes())
        .await
        .unwrap()
        .into()
}

async fn write(agent: &TestAgent, path: &Path, body: impl Into<Body>) -> StatusCode {
    let request = path_request(agent, Method::PUT, "write_file", path).body(body);
    agent.answer(request).await.0
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn written_file_is_read_back() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let every_byte: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    for (name, content) in [
        ("empty", &b""[..]),
        ("every byte", &every_byte),
        ("ünïcode 😀 & %2F?#", b"text"),
    ] {
        let path = directory.path().join(name);
        assert_eq!(
            write(&agent, &path, content.to_vec()).await,
            StatusCode::CREATED
        );
        assert_eq!(fs::read(&path).unwrap(), content);
        assert!(read(&agent, &path).await == content, "{name}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
    }
    // Generated files without a real length: one claims 0, the other a full page.
    let content = read(&agent, Path::new("/proc/self/cmdline")).await;
    assert!(String::from_utf8_lossy(&content).contains("agent"));
    let mtu = Path::new("/sys/class/net/lo/mtu");
    assert_eq!(read(&agent, mtu).await, fs::read(mtu).unwrap());
    agent.stop().await;
}

#[tokio::test]
async fn file_that_blocks_its_readers_ends_instead() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let agent = agent().await;
    // More than the limit on concurrent reads.
    for _ in 0..20 {
        read(&agent, Path::new("/proc/kmsg")).await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn query_that_is_not_utf8_changes_no_other_file() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let other = directory.path().join("bad\u{fffd}");
    fs::write(&other, "content").unwrap();
    let path = format!("/fs/write_file?path={}/bad%FF", directory.path().display());
    let (status, response) = agent
        .answer(agent.request(Method::PUT, &path).body("new"))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
    assert_eq!(wrong_fields(&response), ["path"]);
    assert_eq!(fs::read(&other).unwrap(), b"content");
    agent.stop().await;
}

#[tokio::test]
async fn dangling_link_target_is_created() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name);
    fs::create_dir(path_of("sub")).unwrap();
    symlink("sub/new", path_of("link")).unwrap();
    symlink("../link", path_of("sub/link")).unwrap();
    assert_eq!(
        write(&agent, &path_of("sub/link"), "1").await,
        StatusCode::CREATED
    );
    assert_eq!(fs::read(path_of("sub/new")).unwrap(), b"1");
    fs::remove_file(path_of("sub/new")).unwrap();
    let form = reqwest::multipart::Form::new()
        .text(
            "files.0.dest_path",
            path_of("link").to_str().unwrap().to_owned(),
        )
        .text("files.0.file", "2");
    agent.ok(agent.post("/fs/upload").multipart(form)).await;
    assert_eq!(fs::read(path_of("sub/new")).unwrap(), b"2");
    for link in ["link", "sub/link"] {
        assert!(fs::symlink_metadata(path_of(link)).unwrap().is_symlink());
    }
    fs::remove_dir_all(path_of("sub")).unwrap();
    assert_eq!(
        write(&agent, &path_of("link"), "3").await,
        StatusCode::NOT_FOUND
    );
    assert_eq!(names(directory.path()), ["link"]);
    agent.stop().await;
}

#[tokio::test]
async fn missing_directory_of_written_file_is_named() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    let missing = directory.join("none");
    for path in ["none/new", "none/deeper/new"] {
        let request = path_request(&agent, Method::PUT, "write_file", &directory.join(path));
        let (status, response) = agent.answer(request.body("x")).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        let expected = format!("path: no such directory: {}", missing.display());
        assert_eq!(response["message"], expected);
    }
    assert!(names(&directory).is_empty());
    agent.stop().await;
}

#[tokio::test]
async fn links_and_files_of_others_in_sticky_directory_are_rejected() {
    const OTHER_USER: u32 = 65_534;
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name);
    for name in ["sticky", "outside"] {
        fs::create_dir(path_of(name)).unwrap();
    }
    fs::set_permissions(path_of("sticky"), fs::Permissions::from_mode(0o1777)).unwrap();
    for (path, target) in [
        ("sticky/file", "../outside/file"),
        ("sticky/new", "../outside/new"),
        ("sticky/dir", "../outside"),
        ("sticky/own", "../outside/own"),
        ("link", "outside/own"),
    ] {
        symlink(target, path_of(path)).unwrap();
    }
    for name in ["outside/file", "outside/own", "sticky/foreign"] {
        fs::write(path_of(name), "old").unwrap();
    }
    // A link outside of a sticky directory may be anyone's.
    for name in [
        "sticky/file",
        "sticky/new",
        "sticky/dir",
        "sticky/foreign",
        "link",
    ] {
        lchown(path_of(name), Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    }
    let before = tree(directory.path());
    for name in ["file", "new", "dir/file", "dir/new", "foreign"] {
        let path = path_of("sticky").join(name);
        assert_eq!(
            write(&agent, &path, "new").await,
            StatusCode::FORBIDDEN,
            "{name}"
        );
        let form = reqwest::multipart::Form::new()
            .text("files.0.dest_path", path.to_str().unwrap().to_owned())
            .text("files.0.file", "new");
        let uploaded = agent.answer(agent.post("/fs/upload").multipart(form)).await;
        assert_eq!(uploaded.0, StatusCode::FORBIDDEN, "{name}");
    }
    let (file, dir) = (path_of("sticky/file"), path_of("sticky/dir"));
    for (route, body) in [
        ("create_directory", json!({"path": dir.join("made")})),
        ("delete_file", json!({"path": dir.join("file")})),
        (
            "delete_directory",
            json!({"path": format!("{}/", dir.display())}),
        ),
        (
            "move",
            json!({"src_path": dir.join("file"), "dest_path": path_of("moved")}),
        ),
        (
            "move",
            json!({"src_path": path_of("outside/own"), "dest_path": dir.join("moved")}),
        ),
        ("set_file_permissions", json!({"path": file, "mode": "777"})),
    ] {
        let (status, response) = put(&agent, route, body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{route}: {response}");
    }
    for (route, path) in [
        ("read_file", &file),
        ("list_files", &dir),
        ("download_dir_zip", &dir),
    ] {
        let (status, response) = agent
            .answer(path_request(&agent, Method::GET, route, path))
            .await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{route}: {response}");
    }
    assert_eq!(tree(directory.path()), before);
    for link in ["sticky/own", "link"] {
        assert_eq!(
            write(&agent, &path_of(link), link).await,
            StatusCode::CREATED
        );
        assert_eq!(fs::read_to_string(path_of("outside/own")).unwrap(), link);
    }
    agent.stop().await;
}

#[tokio::test]
async fn set_user_id_bit_survives_write() {
    let agent = Start::without_browser()
        .without_rights_over_files()
        .listening()
        .await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("program");
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
async fn replaced_file_keeps_mode_and_links() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let (path, link) = (directory.path().join("file"), directory.path().join("link"));
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
    assert_eq!(names(directory.path()), ["file", "link"]);
    agent.stop().await;
}

#[tokio::test]
async fn aborted_write_changes_nothing() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "old").unwrap();
    let (_sender, body) = unfinished("half");
    let request = path_request(&agent, Method::PUT, "write_file", &path).body(body);
    let writing = tokio::spawn(request.send());
    until("the temporary file", async || {
        (names(directory.path()).len() == 2).then_some(())
    })
    .await;
    assert_eq!(read(&agent, &path).await, b"old");
    writing.abort();
    until("the removal of the temporary file", async || {
        (names(directory.path()) == ["file"]).then_some(())
    })
    .await;
    assert_eq!(fs::read(&path).unwrap(), b"old");
    agent.stop().await;
}

#[tokio::test]
async fn large_file_transfer_uses_little_memory() {
    const CHUNK: usize = 1 << 20;
    const CHUNKS: usize = 512;
    const LIMIT_KIB: u64 = 24 << 10;
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("large");
    write(&agent, &path, vec![1; CHUNK]).await;
    let memory = PeakMemory::of(agent.pid());
    let chunk = Bytes::from(vec![7; CHUNK]);
    let chunks = stream::iter((0..CHUNKS).map(move |_| Ok::<_, std::io::Error>(chunk.clone())));
    let body = Body::wrap_stream(chunks);
    assert_eq!(write(&agent, &path, body).await, StatusCode::CREATED);
    let response = path_request(&agent, Method::GET, "read_file", &path)
        .send()
        .await
        .unwrap();
    let (mut length, mut body) = (0, response.bytes_stream());
    while let Some(chunk) = in_time("a chunk", body.next()).await {
        length += chunk.unwrap().len();
    }
    assert_eq!(length, CHUNK * CHUNKS);
    let grown = memory.grown_kib();
    assert!(grown < LIMIT_KIB, "grew by {grown} KiB");
    agent.stop().await;
}

#[tokio::test]
async fn directories_are_created_listed_and_removed() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let deep = directory.path().join("a/b");
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
    let listed = agent
        .ok(path_request(&agent, Method::GET, "list_files", &deep))
        .await;
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
    let info = path_request(&agent, Method::GET, "file_info", &deep.join("file"));
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
        json!({"path": directory.path().join("a")}),
    )
    .await;
    assert_eq!(status, StatusCode::OK);
    assert!(names(directory.path()).is_empty());

    // Every form of its path removes the directory with its content.
    let target = directory.path().join("target");
    symlink("target", directory.path().join("link")).unwrap();
    for name in ["target/", "target/.", "target//", "link/", "link/."] {
        fs::create_dir_all(target.join("full")).unwrap();
        let path = format!("{}/{name}", directory.path().display());
        let (status, response) = put(&agent, "delete_directory", json!({"path": path})).await;
        assert_eq!(status, StatusCode::OK, "{name}: {response}");
        assert_eq!(names(directory.path()), ["link"], "{name}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn move_works_within_and_across_file_systems() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    // The in-memory file system, unless the temporary directory is also on it.
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    let candidates = ["/dev/shm", env!("CARGO_TARGET_TMPDIR")].map(Path::new);
    let other_file_system = candidates
        .into_iter()
        .find(|path| device(path) != device(directory.path()))
        .expect("a second file system");
    let other = TempDir::new_in(other_file_system).unwrap();
    for target in [directory.path().join("moved"), other.path().join("moved")] {
        let source = directory.path().join("tree");
        fs::create_dir_all(source.join("sub")).unwrap();
        fs::write(source.join("sub/file"), "content").unwrap();
        fs::set_permissions(source.join("sub/file"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("sub/file", source.join("link")).unwrap();
        let body = json!({"src_path": source, "dest_path": target});
        let (status, response) = put(&agent, "move", body).await;
        assert_eq!(status, StatusCode::OK, "{response}");
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
async fn permissions_and_owner_are_set() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "").unwrap();
    let own = fs::metadata(&path).unwrap();
    let body = json!({"path": path, "mode": "4711", "owner": own.uid().to_string(), "group": own.gid().to_string()});
    let (status, response) = put(&agent, "set_file_permissions", body).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4711);
    let body = json!({"path": path, "mode": "600", "owner": "no-such-user", "group": "root"});
    let (status, response) = put(&agent, "set_file_permissions", body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(response["details"][0]["code"], "owner");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4711);
    agent.stop().await;
}

#[tokio::test]
async fn invalid_file_request_names_each_invalid_field() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(path_of("file"), "x").unwrap();
    fs::create_dir_all(path_of("dir/full")).unwrap();
    symlink("dir", path_of("link")).unwrap();
    nix::unistd::mkfifo(
        directory.path().join("fifo").as_path(),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .unwrap();
    let before = tree(directory.path());

    let long = format!("/{}", "x".repeat(5000));
    let component = format!("/{}", "x".repeat(300));
    for (path, status) in [
        ("", 400),
        ("file", 400),
        ("/tmp\0", 400),
        (long.as_str(), 400),
        (component.as_str(), 400),
        (&path_of("none"), 404),
        (&path_of("dir"), 400),
        (&path_of("fifo"), 400),
        (&path_of("file/below"), 400),
        ("/dev/zero", 400),
    ] {
        let request = agent.get(&query("read_file", &[("path", path)]));
        let (actual, response) = agent.answer(request).await;
        assert_eq!(actual.as_u16(), status, "{path}: {response}");
        if status == 400 {
            assert_eq!(response["details"][0]["code"], "path", "{response}");
        }
    }
    for (path, mode, status, field) in [
        (path_of("new"), "9", 400, "mode"),
        (path_of("new"), "00644", 400, "mode"),
        (path_of("dir"), "644", 400, "path"),
        (path_of("fifo"), "644", 400, "path"),
        (path_of("none/new"), "644", 404, ""),
        (path_of("file/new"), "644", 400, "path"),
        (path_of("new/"), "644", 400, "path"),
        (path_of("new/."), "644", 400, "path"),
        ("/".to_owned(), "644", 400, "path"),
    ] {
        let request = agent
            .put(&query("write_file", &[("path", &path), ("mode", mode)]))
            .body("x");
        let (actual, response) = agent.answer(request).await;
        assert_eq!(actual.as_u16(), status, "{path}: {response}");
        if status == 400 {
            assert_eq!(response["details"][0]["code"], field, "{response}");
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
        (
            "create_directory",
            json!({"path": path_of("file")}),
            409,
            vec![],
        ),
        (
            "create_directory",
            json!({"path": path_of("file/below")}),
            409,
            vec![],
        ),
        (
            "create_directory",
            json!({"path": path_of("file/below/deeper")}),
            409,
            vec![],
        ),
        (
            "delete_directory",
            json!({"path": path_of("file")}),
            400,
            vec!["path"],
        ),
        (
            "delete_directory",
            json!({"path": path_of("none")}),
            404,
            vec![],
        ),
        ("delete_directory", json!({"path": "/"}), 400, vec!["path"]),
        (
            "delete_directory",
            json!({"path": "/tmp/.."}),
            400,
            vec!["path"],
        ),
        (
            "delete_directory",
            json!({"path": path_of("dir/full/..")}),
            400,
            vec!["path"],
        ),
        (
            "delete_directory",
            json!({"path": path_of("link")}),
            400,
            vec!["path"],
        ),
        (
            "delete_file",
            json!({"path": path_of("dir")}),
            400,
            vec!["path"],
        ),
        ("delete_file", json!({"path": path_of("none")}), 404, vec![]),
        (
            "move",
            json!({"src_path": 1}),
            400,
            vec!["dest_path", "src_path"],
        ),
        (
            "move",
            json!({"src_path": path_of("none"), "dest_path": path_of("new")}),
            404,
            vec![],
        ),
        (
            "move",
            json!({"src_path": path_of("file"), "dest_path": path_of("none/new")}),
            404,
            vec![],
        ),
        (
            "move",
            json!({"src_path": path_of("dir"), "dest_path": path_of("dir/full/in")}),
            400,
            vec!["dest_path"],
        ),
        (
            "move",
            json!({"src_path": path_of("file"), "dest_path": path_of("dir")}),
            400,
            vec!["dest_path"],
        ),
        (
            "move",
            json!({"src_path": path_of("dir"), "dest_path": path_of("file")}),
            400,
            vec!["dest_path"],
        ),
        (
            "set_file_permissions",
            json!({"path": path_of("file")}),
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
            json!({"path": path_of("file"), "mode": "644", "group": "no-such-group"}),
            400,
            vec!["group"],
        ),
        (
            "set_file_permissions",
            json!({"path": path_of("none"), "mode": "644"}),
            404,
            vec![],
        ),
    ] {
        let (actual, response) = put(&agent, route, body.clone()).await;
        assert_eq!(actual.as_u16(), status, "{route} {body}: {response}");
        assert_eq!(
            wrong_fields(&response),
            fields,
            "{route} {body}: {response}"
        );
    }
    assert_eq!(tree(directory.path()), before);
    agent.stop().await;
}
