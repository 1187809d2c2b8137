use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::stream;
use reqwest::{
    Body, StatusCode,
    multipart::{Form, Part},
};
use serde_json::Value;
use tempfile::TempDir;

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

/// The beginning of a form: where the first file goes, and some of its content.
fn half_a_form(path: &Path) -> String {
    format!(
        "--x\r\nContent-Disposition: form-data; name=\"files.0.dest_path\"\r\n\r\n{}\r\n\
         --x\r\nContent-Disposition: form-data; name=\"files.0.file\"; filename=\"f\"\r\n\r\nhalf",
        path.display()
    )
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

fn no_work_left(agent: &TestAgent) {
    assert_eq!(entries(&agent.state_dir().join("work")), 0);
    assert_eq!(entries(&agent.state_dir().join("run/drafts")), 0);
}

#[tokio::test]
async fn files_come_in_any_order_and_under_any_of_their_names() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let large = noise(3 << 20);
    fs::write(at("replaced"), "old").unwrap();
    fs::set_permissions(at("replaced"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("replaced", at("link")).unwrap();
    let form = Form::new()
        .part("files.7.file", content(large.clone()))
        .text("files.0.dest_path", text(&at("empty")))
        .text("ignored", "whatever")
        .part("files.0.file", content(""))
        .text("files[1].dest_path", text(&at("ünïcode 😀")))
        .part("files[1][file]", content("text"))
        .text("files.7.dest_path", text(&at("large")))
        .part("files[2].file", content("new"))
        .text("files[2].dest_path", text(&at("link")));
    let (status, answer) = upload(&agent, form).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert!(fs::read(at("large")).unwrap() == large);
    assert_eq!(fs::read(at("empty")).unwrap(), b"");
    assert_eq!(fs::read(at("ünïcode 😀")).unwrap(), b"text");
    assert_eq!(fs::read(at("replaced")).unwrap(), b"new");
    let mode = |name: &str| fs::symlink_metadata(at(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("large"), mode("replaced")), (0o644, 0o640));
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert_eq!(entries(folder.path()), 5);

    let form = Form::new()
        .text("files[][dest_path]", text(&at("one")))
        .part("files[][file]", content("1"))
        .text("files[][dest_path]", text(&at("two")))
        .part("files[][file]", content("2"));
    let (status, answer) = upload(&agent, form).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!(fs::read(at("one")).unwrap(), b"1");
    assert_eq!(fs::read(at("two")).unwrap(), b"2");
    no_work_left(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn a_request_that_is_wrong_in_one_thing_changes_nothing() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    fs::write(at("file"), "old").unwrap();
    fs::create_dir(at("dir")).unwrap();
    nix::unistd::mkfifo(at("fifo").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let before = tree(folder.path());
    let long = format!("/{}", "x".repeat(5000));
    let good = || {
        Form::new()
            .text("files.0.dest_path", at("file"))
            .part("files.0.file", content("new"))
    };
    for (path, status) in [
        ("relative", 400),
        ("", 400),
        ("/tmp\0", 400),
        (long.as_str(), 400),
        (&at("dir"), 400),
        (&at("fifo"), 400),
        (&at("file/below"), 400),
        (&at("none/new"), 404),
        (&at("file"), 400),
        ("/proc/self/new", 404),
        ("/", 400),
    ] {
        for form in [
            good()
                .text("files.1.dest_path", path.to_owned())
                .part("files.1.file", content("x")),
            good()
                .part("files.1.file", content("x"))
                .text("files.1.dest_path", path.to_owned()),
        ] {
            let (found, answer) = upload(&agent, form).await;
            assert_eq!(found.as_u16(), status, "{path}: {answer}");
            if status == 400 {
                assert_eq!(
                    wrong_fields(&answer),
                    ["files.1.dest_path"],
                    "{path}: {answer}"
                );
            }
        }
    }
    for (form, wrong) in [
        (
            Form::new().text("other", "x"),
            vec!["files.0.dest_path", "files.0.file"],
        ),
        (
            good().part("files.1.path", content("x")),
            vec!["files.1.path"],
        ),
        (
            good().text("files.99999999999.dest_path", at("new")),
            vec!["files.99999999999.dest_path"],
        ),
        (good().part("file", content("x")), vec!["file"]),
        (
            good().text("files.1.dest_path", at("new")),
            vec!["files.1.file"],
        ),
        (
            good().part("files.1.file", content("x")),
            vec!["files.1.dest_path"],
        ),
        (
            good().part("files.0.file", content("x")),
            vec!["files.0.file"],
        ),
        (
            good().text("files.0.dest_path", at("new")),
            vec!["files.0.dest_path"],
        ),
        (
            good()
                .text("files.1.dest_path", "x")
                .text("files.2.dest_path", at("dir"))
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
        let (status, answer) = upload(&agent, form).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(wrong_fields(&answer), wrong, "{answer}");
    }
    let many = (0..=1000).fold(Form::new(), |form, number| {
        let path = at(&format!("new{number}"));
        form.text(format!("files.{number}.dest_path"), path)
    });
    let (status, answer) = upload(&agent, many).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(wrong_fields(&answer), ["files.1000.dest_path"]);

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
        &half_a_form(Path::new(&at("new"))),
        &endless_head,
    ] {
        let (status, answer) = agent.answer(form(body.to_owned())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    }
    assert_eq!(tree(folder.path()), before);
    no_work_left(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("new");
    let (sender, body) = unfinished(half_a_form(&path));
    let request = agent
        .post("/fs/upload")
        .header("content-type", "multipart/form-data; boundary=x")
        .body(body);
    let uploading = tokio::spawn(request.send());
    until("the draft", async || {
        (entries(folder.path()) == 1).then_some(())
    })
    .await;
    assert!(!path.exists());
    uploading.abort();
    let records = agent.state_dir().join("run/drafts");
    until("the end of the draft and of its record", async || {
        (entries(folder.path()) + entries(&records) == 0).then_some(())
    })
    .await;
    drop(sender);
    no_work_left(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn what_a_killed_agent_was_writing_is_removed_by_the_next() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let (_sender, body) = unfinished(half_a_form(&folder.path().join("new")));
    let request = agent
        .post("/fs/upload")
        .header("content-type", "multipart/form-data; boundary=x")
        .body(body);
    let uploading = tokio::spawn(request.send());
    until("the draft", async || {
        (entries(folder.path()) == 1).then_some(())
    })
    .await;
    fs::write(folder.path().join(".berth-of-somebody-else"), "").unwrap();
    let state = agent.kill().await;
    let _ = uploading.await;
    assert_eq!(entries(folder.path()), 2);
    let agent = TestAgent::again(state)
        .with(["--headless", "--chromium", "/bin/true"])
        .listening()
        .await;
    until("the end of the draft", async || {
        (entries(folder.path()) == 1).then_some(())
    })
    .await;
    until("the end of its record", async || {
        (entries(&agent.state_dir().join("run/drafts")) == 0).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn large_files_pass_through_little_memory() {
    const CHUNK: usize = 1 << 20;
    const CHUNKS: usize = 128;
    const MOST_KIB: u64 = 32 << 10;
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let large = || {
        let chunk = Bytes::from(vec![7; CHUNK]);
        let chunks = (0..CHUNKS).map(move |_| Ok::<_, std::io::Error>(chunk.clone()));
        Part::stream(Body::wrap_stream(stream::iter(chunks))).file_name("name")
    };
    let at = |name: &str| folder.path().join(name);
    let form = Form::new()
        .text("files.0.dest_path", text(&at("small")))
        .part("files.0.file", content(vec![1; CHUNK]));
    upload(&agent, form).await;
    let memory = PeakMemory::of(agent.pid());
    // What is small and comes first is not handed on with much of what comes after it.
    let mut form = Form::new();
    for number in 2..500 {
        form = form
            .text(
                format!("files.{number}.dest_path"),
                text(&at(&number.to_string())),
            )
            .part(format!("files.{number}.file"), content("small"));
    }
    let form = form
        .text("files.0.dest_path", text(&at("first")))
        .part("files.0.file", large())
        .part("files.1.file", large())
        .text("files.1.dest_path", text(&at("last")));
    let (status, answer) = upload(&agent, form).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let length = |path: PathBuf| fs::metadata(path).unwrap().len() as usize;
    assert_eq!(length(at("first")), CHUNK * CHUNKS);
    assert_eq!(length(at("last")), CHUNK * CHUNKS);
    let grown = memory.grown_kib();
    assert!(grown < MOST_KIB, "grown by {grown} KiB");
    agent.stop().await;
}
