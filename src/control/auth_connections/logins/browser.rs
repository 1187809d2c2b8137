//! The browsers of logins and of health checks.

use std::time::Duration;

use tokio::time::sleep;

use super::LoginParts;
use crate::{
    api::{
        ids::{BrowserId, ProjectId},
        profiles::{ProfileName, ProfileRef, ProfileSelection},
        viewport::Viewport,
    },
    control::{
        browsers::{BrowserError, NewBrowser},
        store::AuthConnectionRow,
    },
};

/// The idle time after which a browser ends that nothing drives any more.
const BROWSER_TIMEOUT_SECONDS: u32 = 300;
/// The delay before a browser is requested again.
const START_RETRY_DELAY: Duration = Duration::from_secs(2);
/// The tag of a browser with its connection.
const CONNECTION_TAG: &str = "auth_connection";

/// Returns the profile of a connection, if its stored name is one.
pub(in crate::control::auth_connections) fn profile_of(
    connection: &AuthConnectionRow,
) -> Option<ProfileRef> {
    let name = ProfileName::parse(connection.profile_name.clone());
    name.ok().map(ProfileRef::Name)
}

/// Returns a browser with the profile of a connection, which it does not save by itself. It has a
/// window, because sites treat others differently and a person may have to act in the live view.
pub(in crate::control::auth_connections) fn new_browser(
    connection: &AuthConnectionRow,
    profile: ProfileRef,
) -> NewBrowser {
    NewBrowser {
        name: None,
        headless: false,
        kiosk_mode: false,
        timeout_seconds: BROWSER_TIMEOUT_SECONDS,
        viewport: Viewport::default(),
        start_url: None,
        tags: [(CONNECTION_TAG.to_owned(), connection.id.to_string())].into(),
        profile: Some(ProfileSelection {
            profile,
            save_changes: false,
        }),
    }
}

/// Creates a browser, as soon as there is a host for it.
pub(in crate::control::auth_connections) async fn create_when_available<F>(
    create: impl Fn() -> F,
) -> Result<BrowserId, BrowserError>
where
    F: Future<Output = Result<BrowserId, BrowserError>>,
{
    loop {
        match create().await {
            Err(error) if is_temporary(&error) => {
                tracing::info!(%error, "no browser for a login or a health check yet");
                sleep(START_RETRY_DELAY).await;
            }
            created => return created,
        }
    }
}

impl LoginParts {
    /// Ends a browser. One that cannot be ended now ends when it is idle.
    pub(in crate::control::auth_connections) async fn end_browser(
        &self,
        project: &ProjectId,
        id: &BrowserId,
    ) {
        match self.browsers.delete(project, id.as_str()).await {
            Ok(()) | Err(BrowserError::NotFound) => {}
            Err(error) => {
                tracing::warn!(browser = %id, %error, "cannot end the browser of a login");
            }
        }
    }
}

/// Returns whether a browser may be available soon.
fn is_temporary(error: &BrowserError) -> bool {
    matches!(
        error,
        BrowserError::LimitReached(_)
            | BrowserError::ProjectLimitReached(_)
            | BrowserError::NoHostReady
            | BrowserError::HostStart(_)
            | BrowserError::NotReady(_)
            | BrowserError::Store(_)
            | BrowserError::Profile(_)
            | BrowserError::IdempotencyKeyInFlight
    )
}
