//! What is measured: our programs, theirs, a Chromium with our flags, and a small page. Each ends when it is dropped.

use axum::{Router, http::header::CONTENT_TYPE, response::Html, routing::get};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub const BERTH: &str = env!("CARGO_BIN_EXE_berth");
const THEIRS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/theirs");
const AGENT_TOKEN: &str = "for-the-benchmark-alone";
const LIMIT: Duration = Duration::from_secs(60);

/// A page with a button that changes its title, one that stands still, one that scrolls for ever, and one that plays a video.
pub struct Site {
    pub url: String,
}

impl Site {
    pub async fn serve() -> Result<Self> {
        const BUTTON: &str = "<!doctype html><title>before</title><button onclick=\"document.title = 'after'\">Go</button>";
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/", listener.local_addr()?);
        let video = make_video().await?;
        let video = async move || ([(CONTENT_TYPE, "video/webm")], video.clone());
        let pages = Router::new()
            .route("/", get(async || Html(BUTTON)))
            .route("/still", get(async || Html(text_page(""))))
            .route("/scrolling", get(async || Html(text_page(SCROLL))))
            .route("/video", get(async || Html(VIDEO_PAGE)))
            .route("/video.webm", get(video));
        tokio::spawn(async move { axum::serve(listener, pages).await });
        Ok(Self { url })
    }

    pub fn still(&self) -> String {
        format!("{}still", self.url)
    }

    pub fn scrolling(&self) -> String {
        format!("{}scrolling", self.url)
    }

    pub fn video(&self) -> String {
        format!("{}video", self.url)
    }
}

const SCROLL: &str = "<script>(function go() { scrollBy(0, 4); \
    if (scrollY + innerHeight >= document.body.scrollHeight - 8) scrollTo(0, 0); requestAnimationFrame(go); })()</script>";
const VIDEO_PAGE: &str = "<!doctype html><title>video</title><video src=/video.webm style=width:1280px autoplay muted loop>";

fn text_page(script: &str) -> String {
    let line = "<p>The quick brown fox jumps over the lazy dog, and then once more, until the line is full of it.</p>";
    format!(
        "<!doctype html><title>text</title><h1>A page of text</h1>{}{script}",
        line.repeat(500)
    )
}

/// Moving colours, ten seconds of them.
async fn make_video() -> Result<bytes::Bytes> {
    let made = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-f", "lavfi"])
        .args(["-i", "testsrc2=size=640x360:rate=25:duration=10"])
        .args(["-c:v", "libvpx", "-deadline", "realtime", "-f", "webm", "-"])
        .output()
        .await?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        return Err(format!("ffmpeg does not make the video that is measured: {said}").into());
    }
    Ok(made.stdout.into())
}

/// The screen of an agent, for programs of theirs.
pub struct Screen {
    pub display: String,
    pub size: (u32, u32),
    authority: String,
}

impl Screen {
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("DISPLAY", &self.display)
            .env("XAUTHORITY", &self.authority);
        command
    }
}

pub struct Agent {
    pub http: Http,
    child: Child,
    state: TempDir,
}

impl Agent {
    pub async fn start() -> Result<Self> {
        let state = TempDir::new()?;
        let (child, base_url) = Self::spawn(&state).await?;
        let http = Http::new(base_url, AGENT_TOKEN);
        let agent = Self { http, child, state };
        agent.http.wait_for("/json/version").await?;
        Ok(agent)
    }

    /// Starts one and waits until it listens; its Chromium may still be starting then.
    pub async fn spawn(state: &TempDir) -> Result<(Child, String)> {
        let mut command = Command::new(BERTH);
        command
            .args(["agent", "--json", "--listen", "127.0.0.1:0", "--state-dir"])
            .arg(state.path())
            .env("BERTH_AGENT_TOKEN", AGENT_TOKEN);
        let (child, served) = spawn_served(command).await?;
        Ok((child, text(&served, "base_url")?))
    }

    pub fn pid(&self) -> Result<u32> {
        Ok(self.child.id().ok_or("the agent has ended")?)
    }

    pub fn state_dir(&self) -> &Path {
        self.state.path()
    }

    pub fn workers(&self) -> Result<Vec<u32>> {
        self.children("berth-script")
    }

    /// Its children whose program begins with that.
    pub fn children(&self, name: &str) -> Result<Vec<u32>> {
        let agent = self.pid()?;
        Ok(processes()
            .filter(|p| p.parent == agent && p.name.starts_with(name))
            .map(|p| p.pid)
            .collect())
    }

    /// Opens a page in its tab; until the page has loaded.
    pub async fn show(&self, url: &str) -> Result<()> {
        let code = format!("await page.goto({})", json!(url));
        let told = self
            .http
            .post("/automation/execute", &json!({ "code": code }))
            .await?;
        if told["success"] == true {
            Ok(())
        } else {
            Err(format!("{url} was not shown: {told}").into())
        }
    }

    pub fn screen(&self) -> Result<Screen> {
        let (pid, _) = self.chromium()?;
        let env =
            strings(&format!("/proc/{pid}/environ")).ok_or("its environment is unreadable")?;
        let of = |name: &str| {
            let pair = env.iter().filter_map(|pair| pair.split_once('='));
            let found = pair.into_iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.to_owned())
        };
        Ok(Screen {
            display: of("DISPLAY").ok_or("the agent's Chromium has no display")?,
            authority: of("XAUTHORITY").ok_or("the agent's Chromium has no X authority")?,
            size: (1920, 1080),
        })
    }

    /// The WebSocket address of its Chromium itself, past the agent.
    pub fn chromium_ws_url(&self) -> Result<String> {
        devtools(&self.state.path().join("user-data"))?
            .ok_or_else(|| "the agent's Chromium has no DevToolsActivePort".into())
    }

    pub fn cdp_request(&self) -> (String, Option<String>) {
        (
            format!("{}/cdp", self.http.base_url.replacen("http", "ws", 1)),
            Some(AGENT_TOKEN.into()),
        )
    }

    /// Its Chromium's first process, and how that was started.
    fn chromium(&self) -> Result<(u32, Vec<String>)> {
        let own = format!(
            "--user-data-dir={}",
            self.state.path().join("user-data").display()
        );
        let found = processes()
            .filter_map(|p| Some((p.pid, strings(&format!("/proc/{}/cmdline", p.pid))?)))
            .find(|(_, args)| {
                args.contains(&own) && !args.iter().any(|arg| arg.starts_with("--type="))
            });
        found.ok_or_else(|| "the agent's Chromium was not found among the processes".into())
    }

    /// Starts a Chromium as its own was started, but in another directory.
    fn chromium_like(&self, state: &Path) -> Result<Command> {
        let (pid, args) = self.chromium()?;
        let env =
            strings(&format!("/proc/{pid}/environ")).ok_or("its environment is unreadable")?;
        let (program, args) = args
            .split_first()
            .ok_or("Chromium has an empty command line")?;
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(env.iter().filter_map(|pair| pair.split_once('=')));
        for arg in args {
            match arg.split_once('=') {
                Some((name @ "--user-data-dir", _)) => {
                    command.arg(format!("{name}={}", state.join("user-data").display()))
                }
                Some((name @ "--disk-cache-dir", _)) => {
                    command.arg(format!("{name}={}", state.join("cache").display()))
                }
                _ => command.arg(arg),
            };
        }
        Ok(command)
    }

    pub async fn stop(self) -> Result<()> {
        stop(self.child).await
    }
}

/// A Chromium of its own with the very flags and display of the agent's.
pub struct BareChromium {
    pub ws_url: String,
    child: Child,
    _state: TempDir,
}

impl BareChromium {
    /// Until DevTools answers.
    pub async fn start(like: &Agent) -> Result<Self> {
        let state = TempDir::new()?;
        let mut command = like.chromium_like(state.path())?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = child_of(&mut command)?;
        let ws_url = until(|| async { Ok(devtools(&state.path().join("user-data"))?) }).await?;
        let address = ws_url
            .trim_start_matches("ws://")
            .split('/')
            .next()
            .unwrap_or_default();
        Http::new(format!("http://{address}"), "")
            .wait_for("/json/version")
            .await?;
        Ok(Self {
            ws_url,
            child,
            _state: state,
        })
    }

    pub async fn stop(self) -> Result<()> {
        stop(self.child).await
    }
}

/// Their daemon: Node with playwright-core and esbuild, connected to a Chromium.
pub struct Daemon {
    pub http: Http,
    child: Child,
}

impl Daemon {
    pub async fn start(cdp: &str) -> Result<Self> {
        let mut command = Command::new("node");
        command.arg(format!("{THEIRS}/daemon.mjs")).arg(cdp);
        let (child, served) = spawn_served(command).await?;
        Ok(Self {
            http: Http::new(text(&served, "base_url")?, ""),
            child,
        })
    }

    pub fn pid(&self) -> Result<u32> {
        Ok(self.child.id().ok_or("their daemon has ended")?)
    }

    pub async fn stop(self) -> Result<()> {
        stop(self.child).await
    }
}

/// Their other way: a fresh Node process for one call.
pub async fn fresh_node(cdp: &str, code: &str) -> Result<Value> {
    let mut command = Command::new("node");
    command
        .arg(format!("{THEIRS}/fresh.mjs"))
        .args([cdp, code])
        .kill_on_drop(true);
    let output = command.output().await?;
    if !output.status.success() {
        return Err(format!("fresh.mjs: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

pub struct Dev {
    pub http: Http,
    child: Child,
    _state: TempDir,
}

pub struct Browser {
    pub id: String,
    pub cdp_ws_url: String,
}

impl Dev {
    pub async fn start() -> Result<Self> {
        let state = TempDir::new()?;
        let mut command = Command::new(BERTH);
        command
            .args(["dev", "--json", "--listen", "127.0.0.1:0", "--state-dir"])
            .arg(state.path());
        let (child, served) = spawn_served(command).await?;
        Ok(Self {
            http: Http::new(text(&served, "base_url")?, &text(&served, "api_key")?),
            child,
            _state: state,
        })
    }

    pub async fn create_browser(&self) -> Result<Browser> {
        let made = self
            .http
            .post("/browsers", &json!({ "timeout_seconds": 600 }))
            .await?;
        Ok(Browser {
            id: text(&made, "session_id")?,
            cdp_ws_url: text(&made, "cdp_ws_url")?,
        })
    }

    pub async fn delete_browser(&self, browser: &Browser) -> Result<()> {
        let request = self.http.request(
            reqwest::Method::DELETE,
            &format!("/browsers/{}", browser.id),
        );
        request.send().await?.error_for_status()?;
        Ok(())
    }

    pub async fn stop(self) -> Result<()> {
        stop(self.child).await
    }
}

/// A kept-open connection to one server.
#[derive(Clone)]
pub struct Http {
    pub base_url: String,
    token: String,
    client: reqwest::Client,
}

impl Http {
    fn new(base_url: String, token: &str) -> Self {
        Self {
            base_url,
            token: token.to_owned(),
            client: reqwest::Client::new(),
        }
    }

    pub fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.client
            .request(method, format!("{}{path}", self.base_url))
            .bearer_auth(&self.token)
            .timeout(LIMIT)
    }

    pub async fn get(&self, path: &str) -> Result<bytes::Bytes> {
        Ok(self
            .request(reqwest::Method::GET, path)
            .send()
            .await?
            .error_for_status()?
            .bytes()
            .await?)
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let response = self
            .request(reqwest::Method::POST, path)
            .json(body)
            .send()
            .await?;
        let status = response.status();
        let answer: Value = response.json().await?;
        if status.is_success() {
            Ok(answer)
        } else {
            Err(format!("POST {path} answered {status}: {answer}").into())
        }
    }

    async fn wait_for(&self, path: &str) -> Result<()> {
        let mut tick = tokio::time::interval(Duration::from_millis(2));
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.get(path).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => tick.tick().await,
            };
        }
    }
}

fn text(value: &Value, field: &str) -> Result<String> {
    Ok(value[field]
        .as_str()
        .ok_or_else(|| format!("no {field} in {value}"))?
        .to_owned())
}

fn child_of(command: &mut Command) -> Result<Child> {
    Ok(command.kill_on_drop(true).spawn()?)
}

/// Starts a program that says on its first line of standard output where it serves.
async fn spawn_served(mut command: Command) -> Result<(Child, Value)> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = child_of(&mut command)?;
    let stdout: ChildStdout = child.stdout.take().ok_or("no standard output")?;
    let mut line = String::new();
    timeout(LIMIT, BufReader::new(stdout).read_line(&mut line)).await??;
    if line.is_empty() {
        return Err(format!(
            "{:?} ended before it served: {}",
            command.as_std().get_program(),
            child.wait().await?
        )
        .into());
    }
    Ok((child, serde_json::from_str(&line)?))
}

/// Asks it to end, and waits until it has.
pub async fn stop(mut child: Child) -> Result<()> {
    let pid = child.id().ok_or("it has ended by itself")?;
    kill(Pid::from_raw(pid.try_into()?), Signal::SIGTERM)?;
    timeout(LIMIT, child.wait()).await??;
    Ok(())
}

pub async fn until<T, F>(mut condition: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if let Some(value) = condition().await? {
            return Ok(value);
        }
        tick.tick().await;
    }
    Err("waited too long".into())
}

/// Where a Chromium with this profile serves DevTools; none while it has not said so.
fn devtools(profile: &Path) -> std::io::Result<Option<String>> {
    match std::fs::read_to_string(profile.join("DevToolsActivePort")) {
        Ok(text) => Ok(text
            .split_once('\n')
            .map(|(port, path)| format!("ws://127.0.0.1:{port}{}", path.trim_end()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

struct Process {
    pid: u32,
    parent: u32,
    name: String,
}

fn processes() -> impl Iterator<Item = Process> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
            let field = |name: &str| {
                status
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .map(str::trim)
            };
            Some(Process {
                pid,
                parent: field("PPid:")?.parse().ok()?,
                name: field("Name:")?.to_owned(),
            })
        })
}

fn strings(path: &str) -> Option<Vec<String>> {
    let bytes = std::fs::read(PathBuf::from(OsString::from(path))).ok()?;
    let parts = bytes
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty());
    Some(
        parts
            .map(|part| String::from_utf8_lossy(part).into_owned())
            .collect(),
    )
}

/// Resident memory in MiB.
pub fn resident(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib: f64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .ok_or("the process has ended")?
        .parse()?;
    Ok(kib / 1024.0)
}

/// Processor time a process has used, its ended threads included.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in brackets may hold anything; user and system time are the 12th and 13th field after it.
    let (_, rest) = stat.rsplit_once(')').ok_or("a torn /proc/stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?.unwrap_or(100);
    Ok(ticks / per_second as f64)
}
