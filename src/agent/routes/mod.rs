//! The agent's routes.
//!
//! The tree of files repeats the tree of paths: `POST /process/exec` is in `process/exec.rs`, and
//! parameters have no level. Each handler decodes a request, makes one call into a service of the
//! agent and encodes its result; `mod.rs` of a group maps the errors of its service to API errors,
//! in a match without wildcard.
//!
//! ```text
//! request ── guard (token) ── handler ── service (crate::agent) ── error? ── ApiError
//! ```
//!
//! Handlers take only the services that they use, through axum's `FromRef`. The routes own no
//! state.

use std::time::Duration;

use axum::middleware::from_fn_with_state;
use utoipa::openapi::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

pub use self::cdp::{PassedConnection, ResumableConnections, StoppedConnection};
use super::{
    Agent,
    cdp_clients::AdmitError,
    chromium::{NoScreen, NotReady, ResizeError},
};
use crate::http::{self, ApiError, ApiInfo, App};

mod automation;
mod cdp;
mod chromium;
mod computer;
mod credentials;
mod devtools;
mod display;
mod fs;
mod health;
mod json;
mod live;
mod login;
mod logs;
mod process;
mod replays;
mod session;
mod session_scope;
mod sessions;
mod user_data;

const API_INFO: ApiInfo = ApiInfo {
    title: "Berth agent",
    description: include_str!("introduction.md"),
    bearer: "The agent's token. An agent without a token accepts any client on its own machine.",
    // Without a token: requests from pages of other sites.
    guard_errors: &[403],
    session_routes: None,
};

/// The routes of HTML pages. A request to one has no effect.
pub(crate) const PAGES: [&str; 2] = ["/live", "/live/view"];

/// The delay before a client retries while Chromium restarts.
const RESTART_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The delay before a client retries after a limit was reached.
const FULL_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The routes that need no token.
fn open() -> OpenApiRouter<Agent> {
    OpenApiRouter::new().routes(routes!(health::health))
}

/// The routes that need the agent's token. `session` limits those of a session to it.
fn guarded(
    session: impl FnOnce(OpenApiRouter<Agent>) -> OpenApiRouter<Agent>,
) -> OpenApiRouter<Agent> {
    let routes = OpenApiRouter::new()
        .merge(browser_routes())
        .merge(computer_routes())
        .merge(file_routes())
        .merge(process_routes());
    session(routes)
        .routes(routes!(session::status))
        .routes(routes!(session::end::end))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::replays::collection::list))
        .routes(routes!(sessions::replays::item::download))
        .routes(routes!(sessions::replays::item::delete))
}

/// Automation, credentials, DevTools, and Chromium with its profile.
fn browser_routes() -> OpenApiRouter<Agent> {
    OpenApiRouter::new()
        .routes(routes!(automation::execute::execute))
        .routes(routes!(automation::execute::execute_as_playwright))
        .routes(routes!(cdp::cdp))
        .routes(routes!(devtools::browser::browser))
        .routes(routes!(devtools::page::page))
        .routes(routes!(json::version::version))
        .routes(routes!(json::version::version_slash))
        .routes(routes!(json::list::list))
        .routes(routes!(json::list::root))
        .routes(routes!(chromium::status))
        .routes(routes!(chromium::restart::restart))
        .routes(routes!(chromium::start_url::start_url))
        .routes(routes!(credentials::fill::fill))
        .routes(routes!(credentials::page::get))
        .routes(routes!(login::inspect::inspect))
        .routes(routes!(login::act::act))
        .routes(routes!(login::open::open))
        .routes(routes!(user_data::archive))
        .routes(routes!(user_data::restore))
}

/// Input, screen, clipboard, live view and replays.
fn computer_routes() -> OpenApiRouter<Agent> {
    OpenApiRouter::new()
        .routes(routes!(computer::clipboard::read::read))
        .routes(routes!(computer::clipboard::write::write))
        .routes(routes!(computer::batch::batch))
        .routes(routes!(computer::click_mouse::click_mouse))
        .routes(routes!(computer::cursor::cursor))
        .routes(routes!(computer::drag_mouse::drag_mouse))
        .routes(routes!(computer::get_mouse_position::get_mouse_position))
        .routes(routes!(computer::move_mouse::move_mouse))
        .routes(routes!(computer::press_key::press_key))
        .routes(routes!(computer::scroll::scroll))
        .routes(routes!(computer::r#type::type_text))
        .routes(routes!(computer::screenshot::screenshot))
        .routes(routes!(display::display))
        .routes(routes!(live::live))
        .routes(routes!(live::socket::socket))
        .routes(routes!(live::view::view))
        .routes(routes!(live::view::socket::socket))
        .routes(routes!(replays::collection::list))
        .routes(routes!(replays::collection::start))
        .routes(routes!(replays::item::download))
        .routes(routes!(replays::item::delete))
        .routes(routes!(replays::stop::stop))
}

/// Files, watches and logs.
fn file_routes() -> OpenApiRouter<Agent> {
    OpenApiRouter::new()
        .routes(routes!(fs::create_directory::create_directory))
        .routes(routes!(fs::delete_directory::delete_directory))
        .routes(routes!(fs::delete_file::delete_file))
        .routes(routes!(fs::download_dir_zip::download_dir_zip))
        .routes(routes!(fs::download_dir_zstd::download_dir_zstd))
        .routes(routes!(fs::file_info::file_info))
        .routes(routes!(fs::list_files::list_files))
        .routes(routes!(fs::r#move::move_file))
        .routes(routes!(fs::read_file::read_file))
        .routes(routes!(fs::set_file_permissions::set_file_permissions))
        .routes(routes!(fs::upload::upload))
        .routes(routes!(fs::upload_zip::upload_zip))
        .routes(routes!(fs::write_file::write_file))
        .routes(routes!(fs::watch::start))
        .routes(routes!(fs::watch::stop))
        .routes(routes!(fs::watch::events::events))
        .routes(routes!(logs::stream::stream))
}

/// Processes.
fn process_routes() -> OpenApiRouter<Agent> {
    OpenApiRouter::new()
        .routes(routes!(process::attach::attach))
        .routes(routes!(process::exec::exec))
        .routes(routes!(process::kill::kill))
        .routes(routes!(process::resize::resize))
        .routes(routes!(process::spawn::spawn))
        .routes(routes!(process::status::status))
        .routes(routes!(process::stdin::stdin))
        .routes(routes!(process::stdout::stream::stream))
}

/// Returns the routes with their state.
pub(crate) fn app(agent: &Agent) -> App {
    App {
        info: API_INFO,
        open: open().with_state(agent.clone()),
        guarded: guarded(|routes| {
            routes.route_layer(from_fn_with_state(
                agent.session.clone(),
                session_scope::within_session,
            ))
        })
        .with_state(agent.clone()),
        is_behind_control: agent.config.is_behind_control,
    }
}

/// Returns the OpenAPI document of all routes.
pub(crate) fn document() -> OpenApi {
    http::document(
        API_INFO,
        open().get_openapi().clone(),
        guarded(|routes| routes).get_openapi().clone(),
    )
}

impl From<NotReady> for ApiError {
    fn from(error: NotReady) -> Self {
        let message = error.to_string();
        match error {
            NotReady::Timeout(_) | NotReady::Restarting | NotReady::Stopped => {
                ApiError::unavailable(message, RESTART_RETRY_DELAY)
            }
        }
    }
}

impl From<NoScreen> for ApiError {
    fn from(error: NoScreen) -> Self {
        let message = error.to_string();
        match error {
            NoScreen::Headless => ApiError::conflict(message).code("no_display").permanent(),
            NoScreen::Down => ApiError::unavailable(message, RESTART_RETRY_DELAY),
        }
    }
}

impl From<AdmitError> for ApiError {
    fn from(error: AdmitError) -> Self {
        match error {
            AdmitError::Full(_) => ApiError::limit_exceeded(error.to_string(), RESTART_RETRY_DELAY),
            AdmitError::NotReady(error) => error.into(),
        }
    }
}

impl From<ResizeError> for ApiError {
    fn from(error: ResizeError) -> Self {
        match error {
            ResizeError::NotReady(error) => error.into(),
            ResizeError::Failed(cause) => ApiError::internal(cause),
        }
    }
}
