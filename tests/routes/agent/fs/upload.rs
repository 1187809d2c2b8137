use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::stream;
use reqwest::{
    Body, Response, StatusCode,
    multipart::{Form, Part},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::support::{
    agent::{Start, TestAgent},
    files::{noise, tree},
    processes::PeakMemory,
    requests::{unfinished, wrong_fields},
    wait::until,
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

fn content(bytes: impl Into<Vec<u8>>) -> Part {
    Part::bytes(bytes.into()).file_name("name")
}

async fn upload(agent: &TestAgent, form: Form) -> (StatusCode, Value) {
    agent.answer(agent.post("/fs/upload").multipart(form)).await
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Returns the start of a form: the destination of the first file, and part of its content.
fn partial_form(path: &Path) -> String {
    format!(
        "--x\r\nContent-Disposition: form-data; name=\"files.0.dest_path\"\r\n\r\n{}\r\n\
         --x\r\nContent-Disposition: form-data; name=\"files.0.file\"; filename=\"f\"\r\n\r\nhalf",
        path.display()
    )
}

/// Starts an upload of a file in `directory` that does not end while the returned sender exists.
/// Returns when it has a temporary file there.
async fn start_upload(
    agent: &TestAgent,
    directory: &TempDir,
    name: &str,
) -> (mpsc::Sender<Bytes>, JoinHandle<reqwest::Result<Response>>) {
    let (sender, body) = unfinished(partial_form(&directory.path().join(name)));
    let request = agent
        .post("/fs/upload")
        .header("content-type", "multipart/form-data; boundary=x")
        .body(body);
    let uploading = tokio::spawn(request.send());
    until("the temporary file", async || {
        (entries(directory.path()) == 1).then_some(())
    })
    .await;
    (sender, uploading)
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

fn assert_no_temp_files(agent: &TestAgent) {
    assert_eq!(entries(&agent.session_dir().join("work")), 0);
    assert_eq!(entries(&agent.session_dir().join("run/drafts")), 0);
}

#[tokio::test]
async fn upload_accepts_parts_in_any_order_and_naming() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name);
    let large = noise(3 << 20);
    fs::write(path_of("replaced"), "old").unwrap();
    fs::set_permissions(path_of("replaced"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("replaced", path_of("link")).unwrap();
    let form = Form::new()
        .part("files.7.file", content(large.clone()))
        .text("files.0.dest_path", text(&path_of("empty")))
        .text("ignored", "any")
        .part("files.0.file", content(""))
        .text("files[1].dest_path", text(&path_of("ünïcode 😀")))
        .part("files[1][file]", content("text"))
        .text("files.7.dest_path", text(&path_of("large")))
        .part("files[2].file", content("new"))
        .text("files[2].dest_path", text(&path_of("link")));
    let (status, response) = upload(&agent, form).await;
    assert_eq!(status, StatusCode::CREATED, "{response}");
    assert!(fs::read(path_of("large")).unwrap() == large);
    assert_eq!(fs::read(path_of("empty")).unwrap(), b"");
    assert_eq!(fs::read(path_of("ünïcode 😀")).unwrap(), b"text");
    assert_eq!(fs::read(path_of("replaced")).unwrap(), b"new");
    let mode = |name: &str| fs::symlink_metadata(path_of(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("large"), mode("replaced")), (0o644, 0o640));
    assert!(fs::symlink_metadata(path_of("link")).unwrap().is_symlink());
    assert_eq!(entries(directory.path()), 5);

    let form = Form::new()
        .text("files[][dest_path]", text(&path_of("one")))
        .part("files[][file]", content("1"))
        .text("files[][dest_path]", text(&path_of("two")))
        .part("files[][file]", content("2"));
    let (status, response) = upload(&agent, form).await;
    assert_eq!(status, StatusCode::CREATED, "{response}");
    assert_eq!(fs::read(path_of("one")).unwrap(), b"1");
    assert_eq!(fs::read(path_of("two")).unwrap(), b"2");
    assert_no_temp_files(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn invalid_upload_changes_nothing() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| text(&directory.path().join(name));
    fs::write(path_of("file"), "old").unwrap();
    fs::create_dir(path_of("dir")).unwrap();
    symlink("nowhere/new", path_of("dangling")).unwrap();
    nix::unistd::mkfifo(path_of("fifo").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let before = tree(directory.path());
    let long = format!("/{}", "x".repeat(5000));
    let valid = || {
        Form::new()
            .text("files.0.dest_path", path_of("file"))
            .part("files.0.file", content("new"))
    };
    for (path, status) in [
        ("relative", 400),
        ("", 400),
        ("/tmp\0", 400),
        (long.as_str(), 400),
        (&path_of("dir"), 400),
        (&path_of("fifo"), 400),
        (&path_of("file/below"), 400),
        (&path_of("dangling"), 404),
        (&path_of("dangling/new"), 404),
        (&path_of("none/../new"), 404),
        (&path_of("none/new/"), 400),
        (&path_of("file"), 400),
        ("/proc/self/new", 404),
        ("/", 400),
    ] {
        for form in [
            valid()
                .text("files.1.dest_path", path.to_owned())
                .part("files.1.file", content("x")),
            valid()
                .part("files.1.file", content("x"))
                .text("files.1.dest_path", path.to_owned()),
        ] {
            let (actual, response) = upload(&agent, form).await;
            assert_eq!(actual.as_u16(), status, "{path}: {response}");
            if status == 400 {
                assert_eq!(
                    wrong_fields(&response),
                    ["files.1.dest_path"],
                    "{path}: {response}"
                );
            }
        }
    }
    for (form, fields) in [
        (
            Form::new().text("other", "x"),
            vec!["files.0.dest_path", "files.0.file"],
        ),
        (
            valid().part("files.1.path", content("x")),
            vec!["files.1.path"],
        ),
        (
            valid().text("files.99999999999.dest_path", path_of("new")),
            vec!["files.99999999999.dest_path"],
        ),
        (valid().part("file", content("x")), vec!["file"]),
        (
            valid().text("files.1.dest_path", path_of("new")),
            vec!["files.1.file"],
        ),
        (
            valid().part("files.1.file", content("x")),
            vec!["files.1.dest_path"],
        ),
        (
            valid().part("files.0.file", content("x")),
            vec!["files.0.file"],
        ),
        (
            valid().text("files.0.dest_path", path_of("new")),
            vec!["files.0.dest_path"],
        ),
        (
            valid()
                .text("files.1.dest_path", path_of("none/a/b"))
                .part("files.1.file", content("x"))
                .text("files.2.dest_path", path_of("none/a"))
                .part("files.2.file", content("x"))
                .text("files.3.dest_path", path_of("none/a-b"))
                .part("files.3.file", content("x")),
            vec!["files.1.dest_path"],
        ),
        (
            valid()
                .text("files.1.dest_path", path_of("none/a"))
                .part("files.1.file", content("x"))
                .text("files.2.dest_path", path_of("./none//a"))
                .part("files.2.file", content("x")),
            vec!["files.2.dest_path"],
        ),
        (
            valid()
                .text("files.1.dest_path", "x")
                .text("files.2.dest_path", path_of("dir"))
                .part("files.3.file", content("x")),
            vec![
                "files.1.dest_path",
                "files.1.file",
                "files.2.dest_path",
                "files.2.file",
                "files.3.dest_path",
            ],
        ),
    ] {
        let (status, response) = upload(&agent, form).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
        assert_eq!(wrong_fields(&response), fields, "{response}");
    }
    let many = (0..=1000).fold(Form::new(), |form, number| {
        let path = path_of(&format!("new{number}"));
        form.text(format!("files.{number}.dest_path"), path)
    });
    let (status, response) = upload(&agent, many).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(wrong_fields(&response), ["files.1000.dest_path"]);

    let request = agent.post("/fs/upload").body("x");
    assert_eq!(
        agent.answer(request).await.0,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    let form = |body: String| {
        agent
            .post("/fs/upload")
            .header("content-type", "multipart/form-data; boundary=x")
            .body(body)
    };
    let endless_head = format!("--x\r\nContent-Disposition: {}", "x".repeat(1 << 20));
    for body in [
        "",
        "x",
        "--x\r\n",
        &partial_form(Path::new(&path_of("new"))),
        &partial_form(Path::new(&path_of("none/deep/new"))),
        &endless_head,
    ] {
        let (status, response) = agent.answer(form(body.to_owned())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
    }
    assert_eq!(tree(directory.path()), before);
    assert_no_temp_files(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn missing_directories_appear_with_their_files() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name);
    fs::create_dir(path_of("old")).unwrap();
    symlink("old", path_of("link")).unwrap();
    let form = Form::new()
        .text("files.0.dest_path", text(&path_of("new/deep/a")))
        .part("files.0.file", content("a"))
        .part("files.1.file", content("b"))
        .text("files.1.dest_path", text(&path_of("new/deep/b")))
        .text("files.2.dest_path", text(&path_of("new/c")))
        .part("files.2.file", content("c"))
        .text("files.3.dest_path", text(&path_of("link/new/d")))
        .part("files.3.file", content("d"))
        .text("files.4.dest_path", text(&path_of("old/e")))
        .part("files.4.file", content("e"));
    let (status, response) = upload(&agent, form).await;
    assert_eq!(status, StatusCode::CREATED, "{response}");
    for (name, content) in [
        ("new/deep/a", "a"),
        ("new/deep/b", "b"),
        ("new/c", "c"),
        ("old/new/d", "d"),
        ("old/e", "e"),
    ] {
        let path = path_of(name);
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
        let file = fs::metadata(&path).unwrap();
        let parent = fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(
            (file.mode() & 0o7777, parent.mode() & 0o7777),
            (0o644, 0o755)
        );
        assert_eq!((file.uid(), file.gid()), (parent.uid(), parent.gid()));
    }
    assert_eq!(tree(directory.path()).len(), 10);

    // Requests that create the same directories at the same time.
    let uploads = (0..20).map(|number| {
        let form = Form::new()
            .text(
                "files.0.dest_path",
                text(&path_of(&format!("same/deep/{number}"))),
            )
            .part("files.0.file", content("x"))
            .text(
                "files.1.dest_path",
                text(&path_of(&format!("same/{number}/x"))),
            )
            .part("files.1.file", content("x"));
        upload(&agent, form)
    });
    for (status, response) in futures::future::join_all(uploads).await {
        assert_eq!(status, StatusCode::CREATED, "{response}");
    }
    assert_eq!(entries(&path_of("same/deep")), 20);
    assert_eq!(entries(&path_of("same")), 21);
    assert_no_temp_files(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn aborted_upload_to_missing_directory_leaves_no_files() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let (_sender, uploading) = start_upload(&agent, &directory, "new/deep/file").await;
    assert!(!directory.path().join("new").exists());
    uploading.abort();
    until("the removal of the temporary file", async || {
        (entries(directory.path()) == 0).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn aborted_upload_leaves_no_files() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let (sender, uploading) = start_upload(&agent, &directory, "new").await;
    assert!(!directory.path().join("new").exists());
    uploading.abort();
    let journal = agent.session_dir().join("run/drafts");
    until(
        "the removal of the temporary file and its journal entry",
        async || (entries(directory.path()) + entries(&journal) == 0).then_some(()),
    )
    .await;
    drop(sender);
    assert_no_temp_files(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn next_agent_removes_temp_files_of_killed_agent() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let (_sender, uploading) = start_upload(&agent, &directory, "new").await;
    fs::write(directory.path().join(".berth-foreign"), "").unwrap();
    let state = agent.kill().await;
    let _ = uploading.await;
    assert_eq!(entries(directory.path()), 2);
    let agent = TestAgent::again(state)
        .with(["--headless", "--chromium", "/bin/true"])
        .listening()
        .await;
    until("the removal of the temporary file", async || {
        (entries(directory.path()) == 1).then_some(())
    })
    .await;
    until("the removal of its journal entry", async || {
        (entries(&agent.session_dir().join("run/drafts")) == 0).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn upload_of_large_files_uses_little_memory() {
    const CHUNK: usize = 1 << 20;
    const CHUNKS: usize = 128;
    const LIMIT_KIB: u64 = 32 << 10;
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let large = || {
        let chunk = Bytes::from(vec![7; CHUNK]);
        let chunks = (0..CHUNKS).map(move |_| Ok::<_, std::io::Error>(chunk.clone()));
        Part::stream(Body::wrap_stream(stream::iter(chunks))).file_name("name")
    };
    let path_of = |name: &str| directory.path().join(name);
    let form = Form::new()
        .text("files.0.dest_path", text(&path_of("small")))
        .part("files.0.file", content(vec![1; CHUNK]));
    upload(&agent, form).await;
    let memory = PeakMemory::of(agent.pid());
    // Small parts must not keep the large buffers that they were received in.
    let mut form = Form::new();
    for number in 2..500 {
        form = form
            .text(
                format!("files.{number}.dest_path"),
                text(&path_of(&number.to_string())),
            )
            .part(format!("files.{number}.file"), content("small"));
    }
    let form = form
        .text("files.0.dest_path", text(&path_of("first")))
        .part("files.0.file", large())
        .part("files.1.file", large())
        .text("files.1.dest_path", text(&path_of("last")));
    let (status, response) = upload(&agent, form).await;
    assert_eq!(status, StatusCode::CREATED, "{response}");
    let length = |path: PathBuf| fs::metadata(path).unwrap().len() as usize;
    assert_eq!(length(path_of("first")), CHUNK * CHUNKS);
    assert_eq!(length(path_of("last")), CHUNK * CHUNKS);
    let grown = memory.grown_kib();
    assert!(grown < LIMIT_KIB, "grew by {grown} KiB");
    agent.stop().await;
}
