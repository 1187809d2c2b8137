//! Agents as child processes of this one.

use std::{
    fs::{DirBuilder, OpenOptions},
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{ChildStdout, Command},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::spawn_blocking,
};
use tokio_util::sync::CancellationToken;

use super::{
    agent_client::{Agent, AgentClient, AgentError},
    agent_log,
    leftovers::{self, Programs},
    replay_client::ReplayClient,
};
use crate::{
    api::{ids::BrowserId, viewport::Viewport},
    control::{keys::random_hex, settings::FleetConfig, state_dir::StateDir},
    shutdown::Shutdown,
    system::process::child::{Child, LogParser, Stdout},
};

/// An agent says where it listens before it starts anything else.
const LISTEN_DEADLINE: Duration = Duration::from_secs(15);
/// Its one line on standard output is short.
const MAX_LINE: u64 = 4096;
/// An agent that is told to stop stops its children first.
const STOP_GRACE: Duration = Duration::from_secs(20);
/// Between two looks at an agent whose browser is not up.
const READY_PAUSE: Duration = Duration::from_millis(100);
/// Waiting before a dead agent is started again: the first time, and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// An agent that dies this often, never having lived for `STABLE` in between, is given up.
const MAX_DEATHS: u32 = 8;
const STABLE: Duration = Duration::from_secs(60);
/// A route that does not wait for anything answers within this.
const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// What a browser is started with.
#[derive(Debug, Clone)]
pub struct Launch {
    pub headless: bool,
    pub kiosk_mode: bool,
    pub viewport: Viewport,
    pub start_url: Option<String>,
}

/// The right to have one browser more.
pub struct Slot(
    #[expect(dead_code, reason = "it counts as long as it is held")] OwnedSemaphorePermit,
);

/// Why an agent could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{path}: {source}")]
    Folder { path: String, source: io::Error },
    #[error("cannot run {program}: {source}")]
    Spawn { program: String, source: io::Error },
    #[error("the agent ended before it listened: {status}\n{tail}")]
    Ended { status: String, tail: String },
    #[error("the agent did not say where it listens: {0}")]
    Silent(String),
}

/// Why a host does not serve.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HostDown {
    #[error("the browser's host is gone")]
    Gone,
    #[error("the browser's host is not up: {0}")]
    NotReady(String),
}

/// The agents of this machine; clones share them.
#[derive(Clone)]
pub struct LocalFleet {
    inner: Arc<Inner>,
}

struct Inner {
    config: FleetConfig,
    programs: Programs,
    folder: PathBuf,
    /// Where recordings go that agents have left.
    left_replays: PathBuf,
    slots: Arc<Semaphore>,
    client: AgentClient,
    shutdown: Shutdown,
}

/// A running agent. Dropping it stops it as well.
pub struct Host {
    token: SecretString,
    state: watch::Receiver<HostState>,
    stop: CancellationToken,
    shared: Arc<Shared>,
    client: AgentClient,
}

/// What the handle tells the task that owns the process.
struct Shared {
    launch: Mutex<Launch>,
    /// Until then a death is a failed start, and no reason to try again.
    proven: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostState {
    Up(SocketAddr),
    Restarting,
    /// Stopped or given up; nothing is left.
    Gone,
}

impl LocalFleet {
    pub fn new(config: FleetConfig, state_dir: &StateDir, shutdown: Shutdown) -> LocalFleet {
        let programs = config.programs.iter().map(PathBuf::as_path);
        LocalFleet {
            inner: Arc::new(Inner {
                programs: Programs::new(programs),
                slots: Arc::new(Semaphore::new(config.max_browsers as usize)),
                config,
                folder: state_dir.browsers(),
                left_replays: state_dir.left_replays(),
                client: AgentClient::default(),
                shutdown,
            }),
        }
    }

    /// A place for one browser more; `None` where the machine is full.
    pub fn reserve(&self) -> Option<Slot> {
        let permit = self.inner.slots.clone().try_acquire_owned();
        permit.ok().map(Slot)
    }

    /// How many browsers may live at once.
    pub fn capacity(&self) -> u32 {
        self.inner.config.max_browsers
    }

    pub fn start_deadline(&self) -> Duration {
        self.inner.config.start_deadline
    }

    /// Starts the agent of `id`. It listens when this returns; its browser is still coming up.
    pub async fn start(
        &self,
        id: &BrowserId,
        launch: Launch,
        slot: Slot,
    ) -> Result<Host, StartError> {
        let folder = self.inner.folder.join(id.as_str());
        let token = SecretString::from(random_hex::<32>());
        let program = Program {
            browser: id.clone(),
            path: self.inner.config.agent_program.clone(),
            options: self.inner.config.agent_options.clone(),
            token_file: folder.join("token"),
            state_dir: folder.join(leftovers::AGENT_FOLDER),
        };
        let prepared = prepare(folder.clone(), program.token_file.clone(), token.clone()).await;
        let started = match prepared {
            Ok(()) => program.start(&launch).await,
            Err(source) => Err(StartError::Folder {
                path: folder.display().to_string(),
                source,
            }),
        };
        let (child, address) = match started {
            Ok(started) => started,
            Err(error) => {
                clear(&folder, &self.inner.left_replays, &self.inner.programs).await;
                return Err(error);
            }
        };
        let (state, receiver) = watch::channel(HostState::Up(address));
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            launch: Mutex::new(launch),
            proven: AtomicBool::new(false),
        });
        let supervisor = Supervisor {
            id: id.clone(),
            program,
            programs: self.inner.programs.clone(),
            folder,
            left_replays: self.inner.left_replays.clone(),
            state,
            stop: stop.clone(),
            shared: shared.clone(),
            _slot: slot,
        };
        self.inner.shutdown.spawn(supervisor.run(child));
        Ok(Host {
            token,
            state: receiver,
            stop,
            shared,
            client: self.inner.client.clone(),
        })
    }

    /// Ends what earlier runs of this program have left, saves their recordings and removes the rest of their data. Nothing may run yet.
    pub async fn clear_leftovers(&self) -> io::Result<()> {
        let folder = &self.inner.folder;
        if tokio::fs::try_exists(folder).await? {
            let mut browsers = Vec::new();
            let mut entries = tokio::fs::read_dir(folder).await?;
            while let Some(browser) = entries.next_entry().await? {
                leftovers::end_what_clients_started(&browser.path()).await;
                browsers.push(browser.path());
            }
            leftovers::end_processes(folder, &self.inner.programs).await?;
            for browser in browsers {
                leftovers::save_replays(&browser, &self.inner.left_replays).await?;
            }
            leftovers::remove_folder(folder).await?;
        }
        Ok(())
    }
}

impl Host {
    pub fn token(&self) -> &SecretString {
        &self.token
    }

    /// Where the agent listens, waiting for it to come back where it is being started again.
    pub async fn address(&self, deadline: Duration) -> Result<SocketAddr, HostDown> {
        let waiting = async {
            let mut state = self.state.clone();
            loop {
                match *state.borrow_and_update() {
                    HostState::Up(address) => return Ok(address),
                    HostState::Gone => return Err(HostDown::Gone),
                    HostState::Restarting => {}
                }
                // The task that owns the process says `Gone` before it ends.
                if state.changed().await.is_err() {
                    return Err(HostDown::Gone);
                }
            }
        };
        match tokio::time::timeout(deadline, waiting).await {
            Ok(address) => address,
            Err(_) => Err(HostDown::NotReady("it is being started again".to_owned())),
        }
    }

    /// Returns once the browser answers.
    pub async fn ready(&self, deadline: Duration) -> Result<(), HostDown> {
        let started = Instant::now();
        let mut why = String::from("it has not answered");
        loop {
            let left = deadline.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(HostDown::NotReady(why));
            }
            let address = self.address(left).await?;
            let agent = Agent {
                address,
                token: &self.token,
            };
            let answer = tokio::select! {
                answer = self.client.wait_ready(agent, left) => answer,
                () = self.leaves(address) => continue,
            };
            match answer {
                Ok(()) => {
                    self.shared.proven.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) => why = error.to_string(),
            }
            let pause = READY_PAUSE.min(deadline.saturating_sub(started.elapsed()));
            tokio::time::sleep(pause).await;
        }
    }

    /// Its agent's recordings, waiting for it to come back where it is being started again.
    pub async fn recorder(&self, deadline: Duration) -> Result<ReplayClient, HostDown> {
        let address = self.address(deadline).await?;
        Ok(ReplayClient::new(
            self.client.clone(),
            address,
            self.token.clone(),
        ))
    }

    /// What it is, and starts with again.
    pub fn viewport(&self) -> Viewport {
        self.launch().viewport
    }

    pub async fn set_viewport(&self, viewport: Viewport) -> Result<(), AgentError> {
        let agent = self.agent().await?;
        self.client
            .set_viewport(agent, viewport, CALL_DEADLINE)
            .await?;
        self.launch().viewport = viewport;
        Ok(())
    }

    pub async fn set_start_url(&self, url: &str) -> Result<(), AgentError> {
        let agent = self.agent().await?;
        self.client.set_start_url(agent, url, CALL_DEADLINE).await?;
        self.launch().start_url = Some(url.to_owned());
        Ok(())
    }

    /// Stops the agent and all it runs; resolves once nothing is left, its data included.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.gone().await;
    }

    /// Resolves once nothing is left, be it stopped or given up.
    pub async fn gone(&self) {
        let mut state = self.state.clone();
        // An error means that the owner of the process is gone, and the process with it.
        let _ = state.wait_for(|state| *state == HostState::Gone).await;
    }

    async fn agent(&self) -> Result<Agent<'_>, AgentError> {
        let address = self.address(CALL_DEADLINE).await;
        let address = address.map_err(|error| AgentError::Unreachable(error.to_string()))?;
        let token = &self.token;
        Ok(Agent { address, token })
    }

    /// Resolves once the agent is not at `address` any more.
    async fn leaves(&self, address: SocketAddr) {
        let mut state = self.state.clone();
        let _ = state
            .wait_for(|state| *state != HostState::Up(address))
            .await;
    }

    fn launch(&self) -> parking_lot::MutexGuard<'_, Launch> {
        self.shared.launch.lock()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// How one agent is started, the first time and every other.
struct Program {
    browser: BrowserId,
    path: PathBuf,
    options: Vec<std::ffi::OsString>,
    token_file: PathBuf,
    state_dir: PathBuf,
}

impl Program {
    async fn start(&self, launch: &Launch) -> Result<(Child, SocketAddr), StartError> {
        let browser = self.browser.clone();
        let log: LogParser = Box::new(move |line| agent_log::tell(&browser, line));
        let command = self.command(launch);
        let spawned = Child::spawn_with_log_parser("agent", command, Stdout::Pipe, log).await;
        let (mut child, stdout) = spawned.map_err(|source| StartError::Spawn {
            program: self.path.display().to_string(),
            source,
        })?;
        let Some(stdout) = stdout else {
            return Err(StartError::Silent("it has no standard output".to_owned()));
        };
        match tokio::time::timeout(LISTEN_DEADLINE, read_address(stdout)).await {
            Ok(Ok(Some(address))) => Ok((child, address)),
            // It closed its output: it is ending, and says why on standard error.
            Ok(Ok(None)) => {
                let ended = tokio::time::timeout(LISTEN_DEADLINE, child.wait()).await;
                let status = match ended {
                    Ok(Ok(status)) => status.to_string(),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "it hangs".to_owned(),
                };
                let tail = child.tail();
                Err(StartError::Ended { status, tail })
            }
            Ok(Err(error)) => Err(StartError::Silent(error.to_string())),
            Err(_) => Err(StartError::Silent(format!(
                "nothing within {LISTEN_DEADLINE:?}"
            ))),
        }
    }

    fn command(&self, launch: &Launch) -> Command {
        let mut command = Command::new(&self.path);
        command
            .arg("agent")
            .args(["--listen=127.0.0.1:0", "--json"])
            .arg("--token-file")
            .arg(&self.token_file)
            .arg("--state-dir")
            .arg(&self.state_dir)
            .arg(format!("--viewport={}", launch.viewport));
        // As a variable, for it wins over the configuration file either way.
        command.env("BERTH_AGENT_HEADLESS", launch.headless.to_string());
        if launch.kiosk_mode {
            command.arg("--chromium-flag=--kiosk");
        }
        // It may carry a secret, and arguments are for everybody to see.
        match &launch.start_url {
            Some(url) => command.env("BERTH_AGENT_START_URL", url),
            None => command.env_remove("BERTH_AGENT_START_URL"),
        };
        command.args(&self.options);
        command
    }
}

/// The task that owns one agent's process.
struct Supervisor {
    id: BrowserId,
    program: Program,
    programs: Programs,
    folder: PathBuf,
    left_replays: PathBuf,
    state: watch::Sender<HostState>,
    stop: CancellationToken,
    shared: Arc<Shared>,
    _slot: Slot,
}

impl Supervisor {
    async fn run(self, mut child: Child) {
        let mut deaths = 0;
        loop {
            let started = Instant::now();
            let status = tokio::select! {
                status = child.wait() => status,
                () = self.stop.cancelled() => {
                    if let Err(error) = child.terminate(STOP_GRACE).await {
                        tracing::error!(browser = %self.id, %error, "cannot stop the agent");
                    }
                    break;
                }
            };
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            tracing::warn!(browser = %self.id, %status, tail = child.tail(), "the agent ended");
            self.state.send_replace(HostState::Restarting);
            if started.elapsed() >= STABLE {
                deaths = 0;
            }
            match self.start_again(&mut deaths).await {
                Some((next, address)) => {
                    tracing::info!(browser = %self.id, %address, "the agent is back");
                    child = next;
                    self.state.send_replace(HostState::Up(address));
                }
                None => break,
            }
        }
        clear(&self.folder, &self.left_replays, &self.programs).await;
        self.state.send_replace(HostState::Gone);
    }

    /// `None`: it was stopped meanwhile, or is given up.
    async fn start_again(&self, deaths: &mut u32) -> Option<(Child, SocketAddr)> {
        loop {
            if !self.shared.proven.load(Ordering::Relaxed) {
                return None;
            }
            *deaths += 1;
            if *deaths > MAX_DEATHS {
                tracing::error!(browser = %self.id, "the agent is given up");
                return None;
            }
            tokio::select! {
                () = tokio::time::sleep(back_off(*deaths)) => {}
                () = self.stop.cancelled() => return None,
            }
            // What the dead one left must not stand in the way of the next.
            leftovers::end_what_clients_started(&self.folder).await;
            if let Err(error) = leftovers::end_processes(&self.folder, &self.programs).await {
                tracing::error!(browser = %self.id, %error, "cannot clear what the agent left");
            }
            let launch = self.shared.launch.lock().clone();
            match self.program.start(&launch).await {
                Ok(started) => return Some(started),
                Err(error) => {
                    tracing::warn!(browser = %self.id, %error, "the agent does not start");
                }
            }
        }
    }
}

/// The time before the `deaths`-th restart in a row.
fn back_off(deaths: u32) -> Duration {
    let (first, most) = BACK_OFF;
    first
        .saturating_mul(2_u32.saturating_pow(deaths.saturating_sub(1)))
        .min(most)
}

/// Ends what still uses the folder, saves the recordings in it, and removes it. Where they cannot be saved it stays: the next start tries
/// again.
async fn clear(folder: &Path, left_replays: &Path, programs: &Programs) {
    let cleared = async {
        leftovers::end_what_clients_started(folder).await;
        leftovers::end_processes(folder, programs).await?;
        leftovers::save_replays(folder, left_replays).await?;
        leftovers::remove_folder(folder).await
    };
    if let Err(error) = cleared.await {
        tracing::error!(folder = %folder.display(), %error, "cannot clear a browser's folder");
    }
}

async fn prepare(folder: PathBuf, token_file: PathBuf, token: SecretString) -> io::Result<()> {
    let prepare = move || {
        let mut private = DirBuilder::new();
        private.mode(0o700).recursive(true).create(&folder)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(token_file)?;
        file.write_all(token.expose_secret().as_bytes())
    };
    spawn_blocking(prepare).await.map_err(io::Error::other)?
}

#[derive(Deserialize)]
struct Listening {
    base_url: url::Url,
}

/// The address in the agent's one line; `None` where its output ends before it.
async fn read_address(stdout: ChildStdout) -> io::Result<Option<SocketAddr>> {
    let mut output = BufReader::new(stdout);
    let mut line = String::new();
    (&mut output).take(MAX_LINE).read_line(&mut line).await?;
    if line.is_empty() {
        return Ok(None);
    }
    // Whatever it should print later must not stall it.
    tokio::spawn(async move { tokio::io::copy(&mut output, &mut tokio::io::sink()).await });
    let listening: Listening = serde_json::from_str(&line).map_err(io::Error::other)?;
    let address = listening.base_url.socket_addrs(|| None)?;
    Ok(address.into_iter().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_up_to_its_bound() {
        let waits: Vec<u128> = (1..=MAX_DEATHS).map(|n| back_off(n).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(back_off(u32::MAX), BACK_OFF.1);
    }
}
