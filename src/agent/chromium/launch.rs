//! Starting one Chromium, up to the moment its DevTools answers.

use std::{
    ffi::OsString,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use tokio::{process::Command, time};

use super::{Devtools, leftovers, temporary::TemporaryDir};
use crate::{
    agent::{display::Display, settings::Config},
    api::viewport::Viewport,
    system::{
        cdp::connection::{Cdp, CdpError},
        cdp::devtools::{DevtoolsError, DevtoolsHttp},
        files::wait::{DirectoryWatch, wait_for_file},
        process::child::{Child, Listener, Stdout},
    },
};

const START_DEADLINE: Duration = Duration::from_secs(30);
/// For the agent's own calls to DevTools.
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// For Chromium to write its profile and end after being asked.
const CLOSE_GRACE: Duration = Duration::from_secs(5);
/// The same where somebody is to have its profile next: whoever waits for that has more patience than a restart needs.
const CLOSE_WELL_GRACE: Duration = Duration::from_secs(30);
/// For the cookies to be written.
const FLUSH_DEADLINE: Duration = Duration::from_secs(5);
/// How often a running one is asked whether it still answers, and after how many missed answers it is given up.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const MISSED_ANSWERS: u32 = 3;
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Where the kernel has graphics cards, if there are any. What draws has a name of this kind; one that only shows, as many a VM has, has none.
const GRAPHICS_CARDS: &str = "/dev/dri";
const RENDER_NODE: &[u8] = b"renderD";
/// With less shared memory than this its tabs crash; it then uses files instead.
const MIN_SHARED_MEMORY: u64 = 512 * 1024 * 1024;

/// What calls home, changes pages by itself, or is a page of Chromium's own beside the user's (the address bar's suggestions are one, with a
/// process of some 150 MB, and stand among the tabs in a client's list).
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

/// Never in the user's interest here: traffic of its own, questions nobody answers, slowing of tabs that are not in front.
const FLAGS: [&str; 22] = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
    // Going back to a cached page never ends for a DevTools client.
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
    // The profile must be readable on another machine, which has no such key ring.
    "--password-store=basic",
];

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("Chromium could not be started: {0}")]
    Io(#[from] io::Error),
    #[error("Chromium ended while starting ({status})")]
    Ended {
        status: String,
        /// The last it printed; for the log alone.
        tail: String,
    },
    #[error("Chromium's DevTools did not answer within {} s", START_DEADLINE.as_secs())]
    Deadline,
    #[error(transparent)]
    Devtools(#[from] DevtoolsError),
    #[error(transparent)]
    Cdp(#[from] CdpError),
}

/// A Chromium that answers.
pub struct Process {
    child: Child,
    pub devtools: Arc<Devtools>,
    /// After the child, whose end comes first.
    _temporary: TemporaryDir,
}

impl Process {
    pub async fn start(
        config: &Config,
        viewport: Viewport,
        display: Option<&Display>,
        generation: u64,
        listener: Listener,
    ) -> Result<Self, LaunchError> {
        let user_data = config.state_dir.user_data();
        leftovers::clear_profile(&user_data)?;
        let temporary = TemporaryDir::fresh(config.state_dir.temporary())?;
        let mut command = Command::new(&config.chromium);
        command
            .args(arguments(config, viewport))
            .env("TMPDIR", temporary.name())
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY");
        if let Some(server) = &config.pulse_server {
            command.env("PULSE_SERVER", server);
        }
        if let Some(display) = display {
            command
                .env("DISPLAY", display.name())
                .env("XAUTHORITY", display.authority());
        }
        let (mut child, _) = Child::spawn("chromium", command, Stdout::Log, listener).await?;
        leftovers::record(&config.state_dir.run().join("chromium.pid"), child.pid())?;
        let answering = async {
            let active_port = user_data.join("DevToolsActivePort");
            let (addr, browser_path) = wait_for_file(&active_port, parse_active_port).await?;
            let version = DevtoolsHttp::default().version(addr).await?;
            Ok::<_, LaunchError>((addr, browser_path, version.browser))
        };
        let (addr, browser_path, version) = tokio::select! {
            answering = time::timeout(START_DEADLINE, answering) => {
                answering.map_err(|_| LaunchError::Deadline)??
            }
            status = child.wait() => {
                let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                return Err(LaunchError::Ended { status, tail: child.tail() });
            }
        };
        let devtools = Arc::new(Devtools {
            addr,
            browser_path,
            generation,
            pid: child.pid(),
            version,
        });
        Ok(Self {
            child,
            devtools,
            _temporary: temporary,
        })
    }

    /// Resolves with the reason when it ends.
    pub async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => format!("Chromium ended ({status})"),
            Err(error) => format!("Chromium ended ({error})"),
        }
    }

    async fn cdp(&self) -> Result<Cdp, CdpError> {
        Cdp::connect(&self.devtools.browser_url(), CALL_DEADLINE).await
    }

    /// Makes its windows follow the screen.
    pub async fn fill_screen(&self, viewport: Viewport) -> Result<(), CdpError> {
        self.cdp()
            .await?
            .fill_screen(viewport.width, viewport.height)
            .await
    }

    pub async fn kill(self) {
        let _ = self.child.kill().await;
    }

    /// Ends it so that the profile is written: asks over DevTools, then by SIGTERM, then kills.
    pub async fn close(self) {
        self.close_within(CLOSE_GRACE).await;
    }

    /// As [`Self::close`], with more patience; says whether it ended by itself.
    pub async fn close_well(self) -> bool {
        self.close_within(CLOSE_WELL_GRACE).await
    }

    async fn close_within(mut self, grace: Duration) -> bool {
        let closing = async {
            if let Ok(cdp) = self.cdp().await {
                // It may go without an answer.
                let _ = cdp.close_browser().await;
            }
        };
        let _ = time::timeout(CLOSE_GRACE, closing).await;
        let status = match time::timeout(grace, self.child.wait()).await {
            Ok(status) => status,
            Err(_) => self.child.terminate(TERM_GRACE).await,
        };
        status.is_ok_and(|status| status.success())
    }
}

/// Has the cookies written, and waits until they are; `false` where that was not to be seen in time.
pub async fn flush_cookies(devtools: &Devtools, user_data: &Path) -> Result<bool, LaunchError> {
    let folder = user_data.join("Default");
    // Without a profile folder there is no cookie.
    let mut watch = DirectoryWatch::new(&folder)?;
    let last_write = || {
        let file = std::fs::metadata(folder.join("Cookies"));
        file.and_then(|file| file.modified()).ok()
    };
    // The journal is empty once what it is for is done.
    let is_done = || {
        std::fs::metadata(folder.join("Cookies-journal")).map_or(true, |journal| journal.len() == 0)
    };
    let before = last_write();
    let cdp = Cdp::connect(&devtools.browser_url(), CALL_DEADLINE).await?;
    cdp.flush_cookies().await?;
    let written = async {
        while last_write() == before || !is_done() {
            watch.changed().await?;
        }
        Ok::<_, io::Error>(())
    };
    match time::timeout(FLUSH_DEADLINE, written).await {
        Ok(written) => Ok(written.map(|()| true)?),
        Err(_) => Ok(false),
    }
}

/// Resolves with the reason once Chromium lives but has not answered several times in a row.
pub async fn hung(devtools: &Devtools) -> String {
    let http = DevtoolsHttp::default();
    let mut missed = 0;
    while missed < MISSED_ANSWERS {
        time::sleep(LOOK_EVERY).await;
        missed = match http.version(devtools.addr).await {
            Ok(_) => 0,
            Err(_) => missed + 1,
        };
    }
    format!("Chromium did not answer {missed} times in a row")
}

fn parse_active_port(content: &str) -> Option<(SocketAddr, String)> {
    let mut lines = content.lines();
    let port = lines.next()?.parse().ok()?;
    let path = lines.next()?;
    // The path is written last; half of it is not the file yet.
    let id = path.strip_prefix("/devtools/browser/")?;
    (id.len() == 36).then(|| {
        (
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            path.to_owned(),
        )
    })
}

fn arguments(config: &Config, viewport: Viewport) -> Vec<OsString> {
    let state = &config.state_dir;
    let mut arguments: Vec<OsString> = FLAGS.iter().map(Into::into).collect();
    let mut path = |flag: &str, path: std::path::PathBuf| {
        let mut argument = OsString::from(flag);
        argument.push(path);
        arguments.push(argument);
    };
    path("--user-data-dir=", state.user_data());
    path("--disk-cache-dir=", state.cache());
    let mut features = DISABLED_FEATURES.join(",");
    let mut own = vec![
        "--remote-debugging-port=0".to_owned(),
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
        // Else it starts a process for the graphics card twice in vain, and what is clicked when that ends is lost.
        if !can_draw(Path::new(GRAPHICS_CARDS)) {
            own.push("--disable-gpu".to_owned());
        }
    }
    if nix::unistd::geteuid().is_root() {
        // Chromium refuses its sandbox to root; the second flag spares the bar that warns of the first.
        own.extend(["--no-sandbox".to_owned(), "--test-type".to_owned()]);
    }
    if shared_memory().is_some_and(|bytes| bytes < MIN_SHARED_MEMORY) {
        own.push("--disable-dev-shm-usage".to_owned());
    }
    for flag in &config.chromium_flags {
        match flag.strip_prefix("--disable-features=") {
            // Chromium heeds only the last of these.
            Some(more) => features = format!("{features},{more}"),
            None => own.push(flag.clone()),
        }
    }
    own.push(format!("--disable-features={features}"));
    own.push("about:blank".to_owned());
    arguments.extend(own.into_iter().map(OsString::from));
    arguments
}

fn shared_memory() -> Option<u64> {
    let found = nix::sys::statvfs::statvfs("/dev/shm").ok()?;
    Some(found.blocks_available() * found.fragment_size())
}

/// Whether one of the graphics cards in this folder draws.
fn can_draw(cards: &Path) -> bool {
    let mut cards = fs::read_dir(cards).into_iter().flatten().flatten();
    cards.any(|card| card.file_name().as_bytes().starts_with(RENDER_NODE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_only_shows_does_not_draw() {
        let cards = tempfile::tempdir().unwrap();
        assert!(!can_draw(&cards.path().join("none")));
        fs::write(cards.path().join("card0"), "").unwrap();
        assert!(!can_draw(cards.path()));
        fs::write(cards.path().join("renderD128"), "").unwrap();
        assert!(can_draw(cards.path()));
    }
}
