//! A Chromium process: its command line, its start until DevTools answers, and its end.

use std::{
    ffi::OsString, fs, io, mem::ManuallyDrop, os::unix::ffi::OsStrExt, path::Path, sync::Arc,
    time::Duration,
};

use tokio::{process::Command, task::spawn_blocking, time};
use uuid::Uuid;

use super::{
    Devtools,
    identity::{Identity, Sandbox},
    leftovers, stored_tabs,
    tabs::TabOrder,
    temporary::TemporaryDir,
};
use crate::{
    agent::{display::Display, preferences, session_dir::SessionDir, settings::Config},
    api::viewport::Viewport,
    system::{
        cdp::{
            connection::{BrowserVersion, Cdp, CdpError},
            multiplexer::Multiplexer,
            pipe::CdpPipe,
        },
        files::{owner::give_tree, space::FileSystemSpace},
        process::{
            child::{self, Child, Listener, Stdout},
            environment::Inherited,
        },
    },
};

/// The name of Chromium in the log.
pub(super) const NAME: &str = "chromium";
/// The profile in the user data that Chromium starts with.
pub(super) const PROFILE: &str = "Default";
/// The longest time from the start of the process until DevTools answers.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of each DevTools call of the agent itself.
pub(super) const CDP_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that Chromium has to write its profile and end.
const CLOSE_GRACE_PERIOD: Duration = Duration::from_secs(5);
/// The same before a profile lease, which needs a complete profile more than a fast restart.
const PATIENT_CLOSE_GRACE_PERIOD: Duration = Duration::from_secs(30);
/// The time between SIGTERM and SIGKILL.
pub(super) const TERMINATE_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// The directory of the kernel's graphics devices. A GPU that can render has a render node; a
/// display-only one, as many virtual machines have, has none.
const GPU_DEVICES: &str = "/dev/dri";
const RENDER_NODE_PREFIX: &[u8] = b"renderD";
/// The shared memory in bytes below which tabs crash, so that Chromium uses files instead.
const MIN_SHARED_MEMORY: u64 = 512 * 1024 * 1024;

/// Features that call home, change pages, or add pages of Chromium itself to those of the user.
/// (The address bar's suggestions are such a page: a process of about 150 MB, and an entry among
/// the tabs in a client's list.)
const DISABLED_FEATURES: [&str; 9] = [
    "Translate",
    "MediaRouter",
    "DialMediaRouteProvider",
    "OptimizationHints",
    "CertificateTransparencyComponentUpdater",
    "PreloadTopChromeWebUI",
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
];

/// The process that Chromium keeps ready for the next page. On a machine that others are resumed
/// from, it would have to be replaced as well, which takes half a second.
const SPARE_PROCESS: &str = "SpareRendererForSitePerProcess";

/// Flags that disable background traffic, prompts that no user answers, and the throttling of tabs
/// that are not in front.
const FLAGS: [&str; 23] = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
    // For a DevTools client, a navigation back to a cached page never completes.
    "--disable-back-forward-cache",
    "--no-default-browser-check",
    "--disable-default-apps",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--disable-client-side-phishing-detection",
    "--disable-search-engine-choice-screen",
    "--hide-crash-restore-bubble",
    "--noerrdialogs",
    "--disable-prompt-on-repost",
    "--disable-hang-monitor",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--metrics-recording-only",
    "--no-pings",
    // Local storage reaches the disk within a second. Otherwise a page that changes it all the time
    // has it written once a minute, and an archive of the running browser lacks the changes since.
    "--enable-aggressive-domstorage-flushing",
    // The profile must be readable on another machine, which lacks this machine's key ring.
    "--password-store=basic",
];

/// Why Chromium did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error("cannot start Chromium: {0}")]
    Io(#[from] io::Error),
    #[error("Chromium ended while starting ({status})")]
    Ended {
        status: String,
        /// The last output, for the log only.
        tail: String,
    },
    #[error("Chromium's DevTools did not answer within {} s", START_TIMEOUT.as_secs())]
    Timeout,
    #[error(transparent)]
    Cdp(#[from] CdpError),
}

impl LaunchError {
    /// Describes how a process ends that has closed its pipe or ended.
    async fn of_ended(mut child: Child) -> Self {
        let status = match time::timeout(TERMINATE_GRACE_PERIOD, child.wait()).await {
            Ok(status) => child::describe_exit(status),
            Err(_) => "its pipe is closed".to_owned(),
        };
        LaunchError::Ended {
            status,
            tail: child.tail(),
        }
    }
}

/// A Chromium process whose DevTools has answered.
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) devtools: Arc<Devtools>,
    // Declared after the child, so that they are dropped after the process has ended.
    pub(super) remaining: RemainingProcesses,
    pub(super) temporary: TemporaryDir,
}

/// A Chromium that has not answered yet.
pub(super) struct RunningProcess {
    pub(super) child: Child,
    pub(super) multiplexer: Multiplexer,
    pub(super) browser_id: Uuid,
    pub(super) generation: u64,
}

/// Kills the remaining processes of Chromium's user on drop.
pub(super) struct RemainingProcesses(pub(super) Arc<Identity>);

impl RemainingProcesses {
    /// Leaves them to the next program of the agent.
    pub(super) fn keep(self) {
        let _ = ManuallyDrop::new(self);
    }
}

impl Drop for RemainingProcesses {
    fn drop(&mut self) {
        self.0.kill_processes();
    }
}

impl Process {
    pub(super) async fn start(
        config: &Config,
        identity: &Arc<Identity>,
        viewport: Viewport,
        display: Option<&Display>,
        generation: u64,
        listener: Listener,
    ) -> Result<Self, LaunchError> {
        let user_data = config.session_dir.user_data();
        leftovers::clear_process_files(&user_data)?;
        stored_tabs::forbid(&user_data)?;
        if let Err(error) = preferences::forbid_password_dialog(&user_data) {
            tracing::warn!(%error, "Chromium may offer to save passwords");
        }
        let remaining = RemainingProcesses(identity.clone());
        let temporary = TemporaryDir::create(config.session_dir.temporary())?;
        let mut command = temporary.command(&config.chromium)?;
        command.args(arguments(config, identity, viewport));
        set_environment(&mut command, config, display, &temporary)?;
        let pipe = CdpPipe::open(&mut command)?;
        identity.confine(&mut command);
        let (state_dir, owner) = (config.session_dir.clone(), identity.clone());
        let given = spawn_blocking(move || give_directories(&state_dir, &owner)).await;
        given.map_err(io::Error::other)??;
        let inherited = Inherited::Plain;
        let spawned = Child::spawn(NAME, command, inherited, Stdout::Log, listener).await;
        let (child, _) = spawned?;
        leftovers::record(&config.session_dir.run().join("chromium.pid"), child.pid())?;
        let starting = RunningProcess {
            child,
            multiplexer: Multiplexer::start(pipe),
            browser_id: Uuid::new_v4(),
            generation,
        };
        Self::when_answering(starting, remaining, temporary).await
    }

    /// Waits until DevTools answers.
    pub(super) async fn when_answering(
        process: RunningProcess,
        remaining: RemainingProcesses,
        temporary: TemporaryDir,
    ) -> Result<Self, LaunchError> {
        let RunningProcess {
            mut child,
            multiplexer,
            browser_id,
            generation,
        } = process;
        let (cdp, version) = tokio::select! {
            biased;
            _ = child.wait() => return Err(LaunchError::of_ended(child).await),
            ready = first_answer(&multiplexer) => match ready {
                // The pipe closes before the process has ended.
                Err(_) if multiplexer.has_ended() => return Err(LaunchError::of_ended(child).await),
                ready => ready?,
            },
        };
        let devtools = Arc::new(Devtools {
            multiplexer,
            browser_id,
            generation,
            pid: child.pid(),
            version,
            cdp,
            tab_order: TabOrder::default(),
        });
        Ok(Self {
            child,
            devtools,
            remaining,
            temporary,
        })
    }

    /// Waits until Chromium ends, and returns the reason.
    pub(super) async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => format!("Chromium ended ({status})"),
            Err(error) => format!("Chromium ended ({error})"),
        }
    }

    /// Resizes Chromium's windows to fill the screen.
    pub(super) async fn fill_screen(&self, viewport: Viewport) -> Result<(), CdpError> {
        let cdp = &self.devtools.cdp;
        cdp.fill_screen(viewport.width, viewport.height).await
    }

    pub(super) async fn kill(self) {
        let _ = self.child.kill().await;
    }

    /// Ends Chromium so that it writes its profile: by a DevTools command, then by SIGTERM, then by
    /// SIGKILL.
    pub(super) async fn close(self) {
        self.close_within(CLOSE_GRACE_PERIOD).await;
    }

    /// Ends Chromium like [`Self::close`], with a longer grace period. Returns whether it ended
    /// without an error.
    pub(super) async fn close_patiently(self) -> bool {
        self.close_within(PATIENT_CLOSE_GRACE_PERIOD).await
    }

    async fn close_within(mut self, grace: Duration) -> bool {
        // Chromium may end without a reply.
        let _ = self.devtools.cdp.close_browser().await;
        let status = match time::timeout(grace, self.child.wait()).await {
            Ok(status) => status,
            Err(_) => self.child.terminate(TERMINATE_GRACE_PERIOD).await,
        };
        status.is_ok_and(|status| status.success())
    }
}

/// Waits until Chromium answers, and returns a connection and the version.
async fn first_answer(multiplexer: &Multiplexer) -> Result<(Cdp, BrowserVersion), LaunchError> {
    let answer = async {
        let cdp = Cdp::connect(multiplexer, START_TIMEOUT).await?;
        let version = cdp.version().await?;
        Ok((cdp.with_call_timeout(CDP_CALL_TIMEOUT), version))
    };
    let answer = time::timeout(START_TIMEOUT, answer).await;
    answer.map_err(|_| LaunchError::Timeout)?
}

/// Sets the variables that Chromium needs besides search path, language and time zone. It writes
/// nothing outside the state directory.
fn set_environment(
    command: &mut Command,
    config: &Config,
    display: Option<&Display>,
    temporary: &TemporaryDir,
) -> io::Result<()> {
    command
        .env("HOME", config.session_dir.home())
        .env("XDG_RUNTIME_DIR", temporary.path())
        // Chromium writes crash dumps even if its crash reporter is disabled.
        .env("BREAKPAD_DUMP_LOCATION", temporary.path().join("crashes"))
        // Without an address, its library would start a bus that outlives Chromium.
        .env("DBUS_SESSION_BUS_ADDRESS", "disabled:");
    if let Some(server) = &config.pulse_server {
        command.env("PULSE_SERVER", server);
        // Without a cookie, a server may still accept Chromium's user.
        let cookie = config.pulse_cookie.as_deref();
        let copied = cookie.map(|cookie| temporary.copy_cookie(cookie, "pulse-cookie"));
        if let Some(Ok(cookie)) = copied {
            command.env("PULSE_COOKIE", cookie);
        }
    }
    if let Some(display) = display {
        let authority = temporary.copy_cookie(display.authority(), "Xauthority")?;
        command
            .env("DISPLAY", display.name())
            .env("XAUTHORITY", authority);
    }
    Ok(())
}

/// Gives Chromium's directories to its user: the agent, an earlier build or a restored archive may
/// have created files in them. Blocks.
fn give_directories(state_dir: &SessionDir, identity: &Identity) -> io::Result<()> {
    for directory in state_dir.of_chromium() {
        give_tree(&directory, identity.uid(), identity.gid())?;
    }
    Ok(())
}

fn arguments(config: &Config, identity: &Identity, viewport: Viewport) -> Vec<OsString> {
    let state = &config.session_dir;
    let mut arguments: Vec<OsString> = FLAGS.iter().map(Into::into).collect();
    let mut path = |flag: &str, path: std::path::PathBuf| {
        let mut argument = OsString::from(flag);
        argument.push(path);
        arguments.push(argument);
    };
    path("--user-data-dir=", state.user_data());
    path("--disk-cache-dir=", state.cache());
    let mut features = DISABLED_FEATURES.join(",");
    if config
        .control
        .as_ref()
        .is_some_and(|control| control.is_template)
    {
        features = format!("{features},{SPARE_PROCESS}");
    }
    let mut own = vec![
        "--window-position=0,0".to_owned(),
        format!("--window-size={},{}", viewport.width, viewport.height),
    ];
    if config.headless {
        own.push("--headless=new".to_owned());
        own.push(format!(
            "--screen-info={{{}x{}}}",
            viewport.width, viewport.height
        ));
    } else {
        own.push("--ozone-platform=x11".to_owned());
        // Without a render node, Chromium's GPU process fails twice, and clicks made at that time
        // are lost.
        if !has_render_node(Path::new(GPU_DEVICES)) {
            own.push("--disable-gpu".to_owned());
        }
    }
    if let Sandbox::Off { .. } = identity.sandbox() {
        // The second flag hides the warning about the first.
        own.extend(["--no-sandbox".to_owned(), "--test-type".to_owned()]);
    }
    if available_shared_memory().is_some_and(|bytes| bytes < MIN_SHARED_MEMORY) {
        own.push("--disable-dev-shm-usage".to_owned());
    }
    for flag in &config.chromium_flags {
        match flag.strip_prefix("--disable-features=") {
            // Chromium uses only the last of these flags.
            Some(additional) => features = format!("{features},{additional}"),
            None => own.push(flag.clone()),
        }
    }
    own.push(format!("--disable-features={features}"));
    own.push("about:blank".to_owned());
    arguments.extend(own.into_iter().map(OsString::from));
    arguments
}

fn available_shared_memory() -> Option<u64> {
    let space = FileSystemSpace::read(Path::new("/dev/shm")).ok()?;
    Some(space.available)
}

/// Whether a GPU in this directory can render.
fn has_render_node(cards: &Path) -> bool {
    let mut cards = fs::read_dir(cards).into_iter().flatten().flatten();
    cards.any(|card| card.file_name().as_bytes().starts_with(RENDER_NODE_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_only_gpu_has_no_render_node() {
        let cards = tempfile::tempdir().unwrap();
        assert!(!has_render_node(&cards.path().join("none")));
        fs::write(cards.path().join("card0"), "").unwrap();
        assert!(!has_render_node(cards.path()));
        fs::write(cards.path().join("renderD128"), "").unwrap();
        assert!(has_render_node(cards.path()));
    }
}
