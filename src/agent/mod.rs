//! The daemon beside one browser.

use std::{
    io::{self, Write},
    ops::Deref,
    sync::Arc,
    time::Instant,
};

use axum::{Router, middleware::from_fn_with_state};
use tokio::net::TcpListener;
use utoipa::openapi::OpenApi;

use crate::{
    http::{Metrics, StaticToken, require_static_token, serve},
    shutdown::Shutdown,
    system::{cdp::devtools::DevtoolsHttp, files::watcher::SharedWatcher},
};

pub mod automation;
pub mod chromium;
pub mod clients;
pub mod clipboard;
pub mod computer;
pub mod cursor;
pub mod display;
pub mod fs;
pub mod live;
pub mod logs;
pub mod process;
pub mod replays;
pub mod routes;
pub mod screenshots;
pub mod settings;
pub mod state_dir;
pub mod user_data;

use automation::Automation;
use chromium::Chromium;
use clients::Clients;
use clipboard::Clipboard;
use computer::Computer;
use cursor::CursorShown;
use fs::{archives::Archives, drafts::Drafts, watches::Watches};
use live::Live;
use logs::{Logs, Printed};
use process::Processes;
use replays::Replays;
use screenshots::Screenshots;
use settings::Config;
use user_data::UserData;

/// Far above what the clients of one browser have open.
const MAX_CONNECTIONS: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Settings(#[from] settings::Problems),
    #[error("the state folder {path} cannot be used: {source}")]
    StateDir { path: String, source: io::Error },
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: std::net::SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs an agent until it is told to stop by a signal. `own_log` is where its own log is kept for readers.
pub async fn run(settings: &settings::Settings, own_log: Printed) -> Result<(), AgentError> {
    let config = settings.check()?;
    Agent::run(config, own_log, Shutdown::on_signals()?).await
}

/// What the routes of the agent work with. Each request takes several copies of it, so these are cheap.
#[derive(Clone)]
pub struct Agent(Arc<Parts>);

impl Deref for Agent {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// What an agent is made of: one of each.
pub struct Parts {
    pub archives: Archives,
    pub config: Arc<Config>,
    pub automation: Automation,
    pub chromium: Chromium,
    pub clients: Clients,
    pub clipboard: Clipboard,
    pub computer: Computer,
    pub devtools: DevtoolsHttp,
    pub drafts: Drafts,
    pub live: Live,
    pub logs: Logs,
    pub processes: Processes,
    pub replays: Replays,
    pub screenshots: Screenshots,
    pub shutdown: Shutdown,
    pub started: Instant,
    pub user_data: UserData,
    pub watches: Watches,
}

impl Agent {
    /// Serves until `shutdown`. It listens at once; Chromium comes up meanwhile.
    pub async fn run(
        config: Config,
        own_log: Printed,
        shutdown: Shutdown,
    ) -> Result<(), AgentError> {
        let _claim = config
            .state_dir
            .claim()
            .map_err(|source| AgentError::StateDir {
                path: config.state_dir.root().display().to_string(),
                source,
            })?;
        let drafts = Drafts::new(&config.state_dir.run().join("drafts"))?;
        let left_over = drafts.left_over()?;
        // A thread of its own, which a stop does not wait for: the next agent goes on with it.
        std::thread::Builder::new()
            .name("left-over".into())
            .spawn(move || left_over.remove())?;
        let listener =
            TcpListener::bind(config.listen)
                .await
                .map_err(|source| AgentError::Listen {
                    address: config.listen,
                    source,
                })?;
        let address = listener.local_addr()?;
        let config = Arc::new(config);
        let metrics = Metrics::install();
        metrics.keep_up(&shutdown);
        let watcher = SharedWatcher::default();
        let logs = Logs::new(own_log, watcher.clone());
        let processes = Processes::new(
            process::Options {
                max: config.max_processes,
                kept_output: config.process_output_mb << 20,
                exec_output: config.exec_output_mb << 20,
                exec_total: config.exec_total_mb << 20,
                folder: config.state_dir.root().to_owned(),
            },
            &shutdown,
        )
        .await?;
        let chromium = chromium::start(config.clone(), logs.clone(), &shutdown);
        let automation = Automation::start(
            automation::Options {
                program: config.script_worker.clone(),
                scratch: config.state_dir.scratch(),
                downloads: config.state_dir.downloads(),
                warm_workers: config.warm_workers,
                max_executes: config.max_executes,
                heap_mb: config.script_heap_mb,
                scratch_mb: config.script_files_mb,
                user: Some(config.script_user.clone()),
                executor_idle: config.executor_idle,
            },
            chromium.clone(),
            &shutdown,
        )?;
        let cursor = CursorShown::default();
        let clipboard = Clipboard::start(
            chromium.clone(),
            &config.state_dir.display_authority(),
            &shutdown,
        );
        let on_cursor = {
            let cursor = cursor.clone();
            move |hidden: bool| cursor.set(!hidden)
        };
        let computer = Computer::start(chromium.clone(), on_cursor, &shutdown)?;
        let agent = Self(Arc::new(Parts {
            archives: Archives::new(config.unpack, &shutdown),
            automation,
            user_data: UserData::new(
                chromium.clone(),
                config.state_dir.clone(),
                config.unpack,
                &shutdown,
            ),
            clients: Clients::new(chromium.clone(), config.max_cdp_clients, config.cdp_hold),
            live: Live::new(
                chromium.clone(),
                computer.clone(),
                clipboard.clone(),
                cursor.clone(),
            ),
            replays: Replays::start(
                replays::Options {
                    folder: config.state_dir.replays(),
                    encoder: config.ffmpeg.clone(),
                    pulse_server: config.pulse_server.clone(),
                    max_duration: config.replay_duration,
                    max_bytes: config.replay_bytes,
                    total_bytes: config.replays_bytes,
                },
                chromium.clone(),
                cursor.clone(),
                &shutdown,
            )?,
            screenshots: Screenshots::new(chromium.clone(), cursor),
            chromium,
            clipboard,
            computer,
            devtools: DevtoolsHttp::default(),
            drafts,
            logs,
            processes,
            shutdown: shutdown.clone(),
            started: Instant::now(),
            watches: Watches::new(config.watch_idle, watcher, &shutdown),
            config: config.clone(),
        }));
        let app = agent.router(metrics);
        if config.json {
            let line = serde_json::json!({"base_url": format!("http://{address}")});
            let mut out = io::stdout().lock();
            writeln!(out, "{line}")?;
            out.flush()?;
        }
        serve(listener, app, MAX_CONNECTIONS, &shutdown).await?;
        if !shutdown.drain(config.stop_grace).await {
            tracing::warn!("not all has ended in time; the rest is killed");
        }
        Ok(())
    }

    fn router(&self, metrics: Metrics) -> Router {
        let token = StaticToken::new(self.config.token.as_ref());
        routes::app(self).router(metrics, |guarded| {
            guarded.route_layer(from_fn_with_state(token, require_static_token))
        })
    }
}

/// The OpenAPI document of the agent's routes.
pub fn document() -> OpenApi {
    routes::document()
}
