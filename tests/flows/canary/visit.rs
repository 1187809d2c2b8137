//! A session in which canaries are planted, or looked for.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use parking_lot::Mutex;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use super::places::{Place, Step};
use crate::support::{
    agent::{Start, TestAgent},
    canary_site::CanarySite,
    page::Page,
    painter::Image,
    spawned::exec_shell,
    wait::{WAIT_TIMEOUT, in_time, until},
    websocket::Client,
};

/// The name of the files that are planted.
const FILE: &str = "canary-file";

/// The things that the sessions of a test share: the site, and names that no other test has.
pub(super) struct Fixture {
    pub(super) site: CanarySite,
    /// A name that only processes of this test have in their command line or environment.
    pub(super) marker: String,
    /// An extension that Chromium can load.
    extension: TempDir,
    /// A directory in which any user can create files.
    shared: TempDir,
    watch: Mutex<String>,
    memory: Mutex<String>,
}

impl Fixture {
    pub(super) async fn new() -> Self {
        let site = CanarySite::serve().await;
        let directory = |mode: u32| {
            let directory = tempfile::tempdir().unwrap();
            fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            directory
        };
        let extension = directory(0o755);
        let manifest = json!({"manifest_version": 3, "name": "canary", "version": "1", "permissions": ["storage"]});
        for (name, content) in [
            ("manifest.json", manifest.to_string()),
            (
                "page.html",
                "<!doctype html><title>canary</title>".to_owned(),
            ),
        ] {
            let file = extension.path().join(name);
            fs::write(&file, content).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        }
        Self {
            marker: format!("canary-{}", site.url.rsplit(':').next().unwrap()),
            site,
            extension,
            shared: directory(0o1777),
            watch: Mutex::default(),
            memory: Mutex::default(),
        }
    }

    /// Adds what Chromium needs to reach the site.
    pub(super) fn configure(&self, start: Start) -> Start {
        let [names, certificate] = self.site.chromium_flags();
        start.with([&names, &certificate])
    }

    /// A directory in `/tmp` that does not exist.
    pub(super) fn temporary(&self) -> PathBuf {
        Path::new("/tmp").join(&self.marker)
    }

    pub(super) fn shared(&self) -> &Path {
        self.shared.path()
    }
}

/// A session that plants canaries or looks for them.
pub(super) struct Visit<'a> {
    pub(super) agent: &'a TestAgent,
    pub(super) fixture: &'a Fixture,
    generation: u64,
    /// The tab with the site's page.
    pub(super) page: Page,
}

impl<'a> Visit<'a> {
    pub(super) async fn start(agent: &'a TestAgent, fixture: &'a Fixture, generation: u64) -> Self {
        agent.ready().await;
        let page = Page::of(agent).await;
        let mut visit = Self {
            agent,
            fixture,
            generation,
            page,
        };
        visit.go_home().await;
        visit
    }

    pub(super) async fn go_home(&mut self) {
        let url = format!("{}/", self.fixture.site.url);
        self.page.go_to(&url).await;
    }

    pub(super) async fn plant(&mut self, place: &Place) {
        self.run(&place.plant).await;
    }

    /// Waits until the canaries of all places are found: one that was never planted proves nothing.
    pub(super) async fn assert_planted(&mut self, places: &[&'static Place]) {
        let mut missing = Vec::new();
        let waiting = async {
            loop {
                let found = self.found(places).await;
                let names = places.iter().map(|place| place.name);
                missing = names.filter(|name| !found.contains(name)).collect();
                if missing.is_empty() {
                    return;
                }
            }
        };
        let is_planted = timeout(WAIT_TIMEOUT, waiting).await.is_ok();
        assert!(is_planted, "not planted: {missing:?}");
    }

    /// Returns the names of the places with a canary.
    pub(super) async fn found(&mut self, places: &[&Place]) -> Vec<&'static str> {
        let mut found = Vec::new();
        for place in places {
            if self.run(&place.probe).await {
                found.push(place.name);
            }
        }
        found
    }

    async fn run(&mut self, step: &Step) -> bool {
        match step {
            Step::Page(script) => {
                let script = self.resolve(script);
                self.page.evaluate_as_user(&script).await == true
            }
            Step::Tab(url, script) => {
                let script = self.resolve(script);
                let mut tab = Page::open(self.agent, url).await;
                let result = tab.evaluate_as_user(&script).await;
                tab.call("Page.close", json!({})).await;
                result == true
            }
            Step::WriteFile(directory) => {
                self.write_file(directory).await;
                true
            }
            Step::WriteOwnFile(directory) => {
                fs::write(self.directory(directory).join(FILE), "a file").unwrap();
                true
            }
            Step::FindFile(directory) => {
                let directories = self.directories(directory).into_iter();
                directories
                    .map(|path| path.join(FILE))
                    .any(|file| file.exists())
            }
            Step::WriteAsProcess(directory) => self.sh(&format!("echo > {directory}/{FILE}")).await,
            Step::ReadAsProcess(directory) => self.sh(&format!("cat {directory}/{FILE}")).await,
            Step::Find(directory, name, content) => self.is_in_files(directory, name, content),
            Step::Call(call) => call(self).await,
        }
    }

    /// Lets a process run a line of shell. Returns whether it succeeds.
    async fn sh(&self, line: &str) -> bool {
        exec_shell(self.agent, line).await.exit_code == 0
    }

    /// Replaces the names of the site's addresses.
    fn resolve(&self, script: &str) -> String {
        let site = &self.fixture.site;
        script
            .replace("$ORIGIN", &site.url)
            .replace("$NAMED", &site.named_url)
            .replace("$SECURE", &site.secure_url)
    }

    /// Returns the path of a directory of the current session.
    pub(super) fn directory(&self, name: &str) -> PathBuf {
        let sessions = self.agent.state_dir().join("sessions");
        sessions.join(self.generation.to_string()).join(name)
    }

    /// Returns the paths of a directory of all sessions that have one.
    fn directories(&self, name: &str) -> Vec<PathBuf> {
        let sessions = fs::read_dir(self.agent.state_dir().join("sessions")).unwrap();
        sessions
            .map(|session| session.unwrap().path().join(name))
            .collect()
    }

    async fn write_file(&self, directory: &str) {
        let path = self.directory(directory).join(FILE);
        let route = format!("/fs/write_file?path={}", path.display());
        self.agent.ok(self.agent.put(&route).body("a file")).await;
    }

    /// Whether a file of any session whose name starts with `name` has this content.
    fn is_in_files(&self, directory: &str, name: &str, content: &str) -> bool {
        let directories = self.directories(directory).into_iter();
        let files = directories
            .filter_map(|path| fs::read_dir(path).ok())
            .flatten()
            .flatten();
        let mut named = files.filter(|file| file.file_name().to_string_lossy().starts_with(name));
        named.any(|file| {
            // It may be removed meanwhile, or be a directory.
            let bytes = fs::read(file.path()).unwrap_or_default();
            memchr::memmem::find(&bytes, content.as_bytes()).is_some()
        })
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        self.agent.ok(self.agent.get(path)).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Value {
        self.agent.ok(self.agent.post(path).json(&body)).await
    }

    /// Whether a tab or a window shows a page of the site.
    pub(super) async fn shows(&self, path: &str) -> bool {
        let list = self.get("/json/list").await;
        let mut targets = list.as_array().unwrap().iter();
        targets.any(|target| target["url"].as_str().unwrap().ends_with(path))
    }

    /// Presses keys in the page.
    pub(super) async fn press(&mut self, body: Value) {
        self.page.call("Page.bringToFront", json!({})).await;
        self.page.ready().await;
        self.post("/computer/press_key", body).await;
    }

    /// Returns a pixel of the page as `0xRRGGBB`.
    pub(super) async fn pixel(&mut self, x: u32, y: u32) -> u32 {
        self.page.call("Page.bringToFront", json!({})).await;
        let clip = json!({"x": x, "y": y, "width": 1, "height": 1, "scale": 1});
        let shot = self
            .page
            .call("Page.captureScreenshot", json!({ "clip": clip }))
            .await;
        let png = BASE64_STANDARD
            .decode(shot["data"].as_str().unwrap())
            .unwrap();
        Image::of_png(&png).at(0, 0)
    }

    /// Makes Chromium save a file in `directory`.
    pub(super) async fn download_to(&mut self, directory: &Path) -> bool {
        let mut browser = Client::connect(&self.agent.ws_url("/cdp")).await;
        let behavior = json!({"behavior": "allow", "downloadPath": directory});
        let answer = browser.call("Browser.setDownloadBehavior", behavior).await;
        assert!(answer["error"].is_null(), "{answer}");
        self.page.evaluate_as_user(super::places::DOWNLOAD).await;
        // The behaviour ends with its connection.
        until("a saved file", async || {
            has_planted_file(directory).then_some(())
        })
        .await;
        true
    }

    /// Loads the extension, and evaluates an expression in its page.
    pub(super) async fn in_extension(&mut self, script: &str) -> Value {
        let mut browser = Client::connect(&self.agent.ws_url("/cdp")).await;
        let path = json!({"path": self.fixture.extension.path()});
        let loaded = browser.call("Extensions.loadUnpacked", path).await;
        let id = loaded["result"]["id"].as_str();
        let id = id.unwrap_or_else(|| panic!("{loaded}"));
        let url = format!("chrome-extension://{id}/page.html");
        let mut tab = Page::open(self.agent, &url).await;
        let result = tab.evaluate(script).await;
        tab.call("Page.close", json!({})).await;
        result
    }

    pub(super) async fn start_watch(&mut self) -> bool {
        let path = json!({"path": self.directory("downloads")});
        let watch = self.post("/fs/watch", path).await;
        watch["watch_id"]
            .as_str()
            .unwrap()
            .clone_into(&mut self.fixture.watch.lock());
        true
    }

    /// Creates shared memory as Chromium's user.
    pub(super) async fn create_memory(&mut self) -> bool {
        let chromium = self.get("/chromium").await;
        let mut create = Command::new("setpriv");
        create.arg(format!("--reuid={}", chromium["uid"]));
        let output = create
            .args(["--clear-groups", "ipcmk", "-M", "4096"])
            .output();
        let output = output.expect("util-linux is installed").stdout;
        let text = String::from_utf8(output).unwrap();
        let id = text.rsplit(' ').next().unwrap().trim();
        id.clone_into(&mut self.fixture.memory.lock());
        true
    }

    pub(super) async fn has_memory(&mut self) -> bool {
        let list = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let memory = self.fixture.memory.lock();
        let mut ids = list
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1));
        ids.any(|id| id == *memory)
    }

    pub(super) async fn has_watch(&mut self) -> bool {
        let path = format!("/fs/watch/{}/events", *self.fixture.watch.lock());
        let response = in_time("an answer", self.agent.get(&path).send())
            .await
            .unwrap();
        assert!([200, 404].contains(&response.status().as_u16()));
        response.status() == StatusCode::OK
    }
}

/// Whether a file in a directory is the download of the site.
pub(super) fn has_planted_file(directory: &Path) -> bool {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    files
        .map(|file| fs::read(file.path()).unwrap_or_default())
        .any(|content| content == b"planted")
}
