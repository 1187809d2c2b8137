//! The agent's own files, which no file route reaches.

use std::{
    fs,
    io::{Cursor, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use reqwest::{
    Method, RequestBuilder, StatusCode,
    multipart::{Form, Part},
};
use serde_json::json;
use tempfile::TempDir;
use zip::{ZipWriter, write::SimpleFileOptions};

use crate::support::{
    agent::{Start, TestAgent},
    wait::until,
};

const SECRET: &str = "a secret of the agent";

/// An agent with files in all of its directories, and a directory outside of them.
struct Fixture {
    agent: TestAgent,
    outside: TempDir,
}

impl Fixture {
    async fn start() -> Self {
        let fixture = Fixture {
            agent: Start::without_browser().listening().await,
            outside: TempDir::new().unwrap(),
        };
        for file in fixture.secrets() {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, SECRET).unwrap();
        }
        fs::write(fixture.outside("file"), "outside").unwrap();
        fixture
    }

    /// Returns a file of each kind.
    fn secrets(&self) -> Vec<PathBuf> {
        let names = [
            "run/host-key.pem",
            "sessions/2/user-data/file",
            "sessions/1/work/file",
            "sessions/1/file",
            "replays/1/file",
        ];
        let state = self.agent.state_dir();
        names.map(|name| state.join(name)).into()
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.outside.path().join(name)
    }

    fn downloads(&self) -> PathBuf {
        self.agent.session_dir().join("downloads")
    }

    /// Returns paths that lead to the same entry, of which each takes another way.
    fn ways(&self, path: &Path) -> Vec<PathBuf> {
        let state = self.agent.state_dir();
        let relative = path.strip_prefix(&state).unwrap();
        let number = fs::read_dir(self.outside.path()).unwrap().count();
        let link = self.outside(&format!("link {number}"));
        symlink(path, &link).unwrap();
        let inner = self.downloads().join(format!("link {number}"));
        symlink(Path::new("../../..").join(relative), &inner).unwrap();
        let below = |prefix: String| PathBuf::from(format!("{prefix}{}", path.display()));
        vec![
            path.to_owned(),
            self.downloads().join("../../..").join(relative),
            self.downloads().join("../../../run/..").join(relative),
            link,
            inner,
            below("/proc/self/root".into()),
            below(format!("/proc/{}/root", self.agent.pid())),
            below(format!("/proc/{0}/task/{0}/root", self.agent.pid())),
        ]
    }

    async fn assert_forbidden(&self, name: &str, request: RequestBuilder) {
        let (status, answer) = self.agent.answer(request).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{name}: {answer}");
        assert_eq!(answer["code"], "forbidden", "{name}: {answer}");
        assert!(!answer.to_string().contains(SECRET), "{name}: {answer}");
    }

    async fn assert_all_forbidden(&self, requests: Vec<(String, RequestBuilder)>) {
        for (name, request) in requests {
            self.assert_forbidden(&name, request).await;
        }
    }

    /// Returns a request with `path` to each route that reads or changes a file.
    fn on_file(&self, path: &Path) -> Vec<(String, RequestBuilder)> {
        let agent = &self.agent;
        let moved = |from: PathBuf, to: PathBuf| json!({"src_path": from, "dest_path": to});
        let upload = Form::new()
            .text("files.0.dest_path", path.to_str().unwrap().to_owned())
            .text("files.0.file", "new");
        let log = query("/logs/stream", path) + "&source=path&follow=false";
        let requests = [
            ("read", agent.get(&query("/fs/read_file", path))),
            ("write", agent.put(&query("/fs/write_file", path)).body("x")),
            ("log", agent.get(&log)),
            ("upload", agent.post("/fs/upload").multipart(upload)),
            (
                "permissions",
                agent
                    .put("/fs/set_file_permissions")
                    .json(&json!({"path": path, "mode": "777"})),
            ),
        ];
        let mut requests = named(path, requests);
        // These do not follow a link at the end of their path.
        if !path.is_symlink() {
            requests.extend(named(
                path,
                [
                    ("info", agent.get(&query("/fs/file_info", path))),
                    (
                        "delete",
                        agent.put("/fs/delete_file").json(&json!({"path": path})),
                    ),
                    (
                        "move away",
                        agent
                            .put("/fs/move")
                            .json(&moved(path.to_owned(), self.outside("moved"))),
                    ),
                    (
                        "move there",
                        agent
                            .put("/fs/move")
                            .json(&moved(self.outside("file"), path.to_owned())),
                    ),
                ],
            ));
        }
        requests
    }

    /// Returns a request with `path` to each route that reads or changes a directory.
    fn on_directory(&self, path: &Path) -> Vec<(String, RequestBuilder)> {
        let agent = &self.agent;
        let new = path.join("new");
        let mut requests = named(
            path,
            [
                ("list", agent.get(&query("/fs/list_files", path))),
                (
                    "watch",
                    agent.post("/fs/watch").json(&json!({"path": path})),
                ),
                (
                    "create",
                    agent
                        .put("/fs/create_directory")
                        .json(&json!({"path": new})),
                ),
                (
                    "write",
                    agent.put(&query("/fs/write_file", &new)).body("new"),
                ),
                (
                    "delete",
                    agent
                        .put("/fs/delete_directory")
                        .json(&json!({"path": path.join(".")})),
                ),
            ],
        );
        requests.extend(self.on_tree(path));
        requests.push(("unzip".to_owned(), self.unzip(path, "file")));
        requests
    }

    /// Returns a request with `path` to each route that reads a whole directory.
    fn on_tree(&self, path: &Path) -> Vec<(String, RequestBuilder)> {
        let agent = &self.agent;
        let watched = json!({"path": path, "recursive": true});
        named(
            path,
            [
                ("zip", agent.get(&query("/fs/download_dir_zip", path))),
                ("zstd", agent.get(&query("/fs/download_dir_zstd", path))),
                ("watch below", agent.post("/fs/watch").json(&watched)),
            ],
        )
    }

    fn unzip(&self, path: &Path, name: &str) -> RequestBuilder {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        archive
            .start_file(name, SimpleFileOptions::default())
            .unwrap();
        archive.write_all(b"new").unwrap();
        let archive = archive.finish().unwrap().into_inner();
        let form = Form::new()
            .part("zip_file", Part::bytes(archive).file_name("a.zip"))
            .text("dest_path", path.to_str().unwrap().to_owned());
        self.agent.post("/fs/upload_zip").multipart(form)
    }

    /// Asserts that the files are what they were, and that nothing has changed the machine.
    async fn stop_unchanged(self) {
        for file in self.secrets() {
            assert_eq!(fs::read_to_string(file).unwrap(), SECRET);
        }
        let status = self.agent.ok(self.agent.get("/session")).await;
        assert_eq!(status["tainted_by"], json!([]));
        self.agent.stop().await;
    }
}

fn query(route: &str, path: &Path) -> String {
    let mut query = url::form_urlencoded::Serializer::new(format!("{route}?"));
    query.append_pair("path", path.to_str().unwrap()).finish()
}

fn named<const N: usize>(
    path: &Path,
    requests: [(&str, RequestBuilder); N],
) -> Vec<(String, RequestBuilder)> {
    requests
        .into_iter()
        .map(|(name, request)| (format!("{name} {}", path.display()), request))
        .collect()
}

#[tokio::test]
async fn file_of_the_agent_is_403_by_every_path() {
    let fixture = Fixture::start().await;
    for file in fixture.secrets() {
        for path in fixture.ways(&file) {
            fixture.assert_all_forbidden(fixture.on_file(&path)).await;
        }
    }
    fixture.stop_unchanged().await;
}

#[tokio::test]
async fn directory_of_the_agent_is_403_by_every_path() {
    let fixture = Fixture::start().await;
    let state = fixture.agent.state_dir();
    for name in [
        "",
        "run",
        "sessions",
        "sessions/1",
        "sessions/1/run",
        "sessions/2/user-data",
    ] {
        for path in fixture.ways(&state.join(name)) {
            let requests = fixture.on_directory(&path);
            fixture.assert_all_forbidden(requests).await;
        }
    }
    fixture.stop_unchanged().await;
}

#[tokio::test]
async fn open_files_of_the_agent_are_403() {
    let fixture = Fixture::start().await;
    let state = fixture.agent.state_dir();
    let mut found = 0;
    for entry in fs::read_dir(format!("/proc/{}/fd", fixture.agent.pid())).unwrap() {
        let descriptor = entry.unwrap().path();
        // It may be closed meanwhile.
        let Ok(path) = fs::read_link(&descriptor) else {
            continue;
        };
        if !path.starts_with(state.join("run")) || path.is_dir() {
            continue;
        }
        found += 1;
        for request in [
            fixture.agent.get(&query("/fs/read_file", &descriptor)),
            fixture
                .agent
                .put(&query("/fs/write_file", &descriptor))
                .body("x"),
        ] {
            fixture
                .assert_forbidden(&path.display().to_string(), request)
                .await;
        }
    }
    assert!(found >= 2, "the lock and the record of taints are open");
    fixture.stop_unchanged().await;
}

#[tokio::test]
async fn memory_of_the_machine_is_403() {
    let fixture = Fixture::start().await;
    let memory = Path::new("/proc/kcore");
    if memory.exists() {
        let request = fixture.agent.get(&query("/fs/read_file", memory));
        fixture.assert_forbidden("read", request).await;
    }
    fixture.stop_unchanged().await;
}

#[tokio::test]
async fn directory_above_the_agents_is_neither_moved_nor_removed_nor_read_as_a_whole() {
    let fixture = Fixture::start().await;
    let agent = &fixture.agent;
    let state = agent.state_dir();
    let above = state.parent().unwrap();
    let through_proc = PathBuf::from(format!("/proc/self/root{}", above.display()));
    for path in [
        above,
        &through_proc,
        Path::new("/"),
        Path::new("/proc/self/root"),
    ] {
        fixture.assert_all_forbidden(fixture.on_tree(path)).await;
    }
    for path in [above, &through_proc] {
        let body = json!({"path": path});
        let moved = json!({"src_path": path, "dest_path": fixture.outside("moved")});
        let replaced = json!({"src_path": fixture.outside.path(), "dest_path": path});
        let writable = json!({"path": path, "mode": "777"});
        let requests = [
            ("delete", agent.put("/fs/delete_directory").json(&body)),
            ("move", agent.put("/fs/move").json(&moved)),
            ("replace", agent.put("/fs/move").json(&replaced)),
            (
                "mode",
                agent.put("/fs/set_file_permissions").json(&writable),
            ),
            ("unzip", fixture.unzip(path, "state/run/file")),
            ("unzip", fixture.unzip(path, "state/sessions/1/run/file")),
        ];
        fixture.assert_all_forbidden(named(path, requests)).await;
    }
    assert!(!state.join("run/file").exists());
    // Its own entries are no secret.
    let listed = agent.ok(agent.get(&query("/fs/list_files", above))).await;
    let names = listed.as_array().unwrap().iter();
    assert!(
        names.into_iter().any(|entry| entry["name"] == "state"),
        "{listed}"
    );
    let watch = agent.post("/fs/watch").json(&json!({"path": above}));
    agent.ok(watch).await;
    let request = agent.request(Method::GET, &query("/fs/file_info", above));
    agent.ok(request).await;
    for file in fixture.secrets() {
        assert_eq!(fs::read_to_string(file).unwrap(), SECRET);
    }
    fixture.agent.stop().await;
}

#[tokio::test]
async fn directories_of_the_session_are_used_and_stay_in_place() {
    let fixture = Fixture::start().await;
    let agent = &fixture.agent;
    for name in ["user-data", "cache", "downloads", "home"] {
        let path = agent.session_dir().join(name);
        let file = path.join("new file");
        agent
            .ok(agent.put(&query("/fs/write_file", &file)).body("text"))
            .await;
        let read = agent.ok(agent.get(&query("/fs/read_file", &file))).await;
        assert_eq!(read, "text");
        for (request, is_changed) in [
            (agent.get(&query("/fs/list_files", &path)), false),
            (agent.get(&query("/fs/download_dir_zip", &path)), false),
            (
                agent
                    .post("/fs/watch")
                    .json(&json!({"path": path, "recursive": true})),
                false,
            ),
            (fixture.unzip(&path, "sub/file"), true),
        ] {
            agent.ok(request).await;
            assert_eq!(path.join("sub/file").exists(), is_changed);
        }
        let body = json!({"path": path});
        let moved = json!({"src_path": path, "dest_path": fixture.outside("moved")});
        let requests = [
            ("delete", agent.put("/fs/delete_directory").json(&body)),
            ("move", agent.put("/fs/move").json(&moved)),
        ];
        fixture.assert_all_forbidden(named(&path, requests)).await;
        assert_eq!(fs::read(file).unwrap(), b"text");
    }
    fixture.stop_unchanged().await;
}

#[tokio::test]
async fn next_session_reaches_its_own_directories_only() {
    let agent = Start::without_browser().with(["--spare"]).listening().await;
    let downloads = |generation: u64| {
        let session = agent.state_dir().join(format!("sessions/{generation}"));
        session.join("downloads")
    };
    let list = |generation: u64| agent.get(&query("/fs/list_files", &downloads(generation)));
    let prepared = async |generation: u64| {
        until("the directories of the spare session", async || {
            downloads(generation).exists().then_some(())
        })
        .await;
    };
    for current in 1..=3 {
        prepared(current + 1).await;
        agent.ok(list(current)).await;
        let (status, answer) = agent.answer(list(current + 1)).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
        let ended = json!({"generation": current});
        agent.ok(agent.post("/session/end").json(&ended)).await;
        let (status, answer) = agent.answer(list(current)).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    }
    agent.stop().await;
}
