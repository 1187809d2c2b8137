//! The events that webhooks receive. Another event is one entry of the macro `events`.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{
    auth_connections::AuthConnectionStatus,
    auth_flow::{FlowErrorCode, FlowStatus, FlowType},
    field::from_text,
    ids::{AuthConnectionId, BrowserId, FlowId, PoolId, ProfileId, ReplayId, WebhookId},
    replays::ReplayEndReason,
    time::Timestamp,
};

/// Declares the type of each event, with its name and the type of its data.
macro_rules! events {
    ($($(#[$doc:meta])* $event:ident($data:ty) = $name:literal,)*) => {
        /// The type of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        pub enum WebhookEventType {
            $($(#[$doc])* #[serde(rename = $name)] $event,)*
        }

        impl WebhookEventType {
            pub const ALL: &[WebhookEventType] = &[$(WebhookEventType::$event),*];

            /// Returns the name in the API and in the database.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(WebhookEventType::$event => $name,)*
                }
            }
        }

        /// The data of an event.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        pub enum WebhookEventData {
            $($(#[$doc])* $event($data),)*
        }

        impl WebhookEventData {
            #[must_use]
            pub const fn event_type(&self) -> WebhookEventType {
                match self {
                    $(WebhookEventData::$event(_) => WebhookEventType::$event,)*
                }
            }
        }
    };
}

events! {
    /// A browser has started, or was leased from a pool.
    BrowserCreated(StartedBrowser) = "browser.created",
    /// A browser has ended. Its profile and its replays may still be saved.
    BrowserEnded(EndedBrowser) = "browser.ended",
    /// A browser was saved as a new version of a profile.
    BrowserProfileSaved(SavedProfile) = "browser.profile_saved",
    /// A browser has ended without its profile, which it was to save.
    BrowserProfileSaveFailed(UnsavedProfile) = "browser.profile_save_failed",
    /// The file of a replay is stored, and can be downloaded.
    ReplayStored(EndedReplay) = "replay.stored",
    /// The file of a replay does not exist, or no longer.
    ReplayLost(EndedReplay) = "replay.lost",
    /// An auth connection was logged in.
    AuthLoginSucceeded(EndedLogin) = "auth_connection.login_succeeded",
    /// A login of an auth connection has ended without success.
    AuthLoginFailed(EndedLogin) = "auth_connection.login_failed",
    /// Two health checks in a row have found an auth connection logged out.
    AuthNeedsAuth(ChangedAuthConnection) = "auth_connection.needs_auth",
    /// An auth connection that was logged out is logged in again.
    AuthRecovered(ChangedAuthConnection) = "auth_connection.recovered",
    /// Logins of an auth connection without a person were given up.
    AuthReauthStopped(ChangedAuthConnection) = "auth_connection.reauth_stopped",
    /// The session of an auth connection has a known expiry, which is near.
    AuthExpiresSoon(ChangedAuthConnection) = "auth_connection.expires_soon",
}

impl WebhookEventType {
    /// Returns the type with a name.
    #[must_use]
    pub fn parse(text: &str) -> Option<WebhookEventType> {
        let mut all = Self::ALL.iter().copied();
        all.find(|event| event.as_str() == text)
    }
}

impl<E: DeserializeError> Deserr<E> for WebhookEventType {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| {
            WebhookEventType::parse(&text).ok_or_else(|| {
                let names: Vec<&str> = Self::ALL.iter().map(|event| event.as_str()).collect();
                format!("must be one of {}", names.join(", "))
            })
        })
    }
}

/// The data of an event about a browser that has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StartedBrowser {
    pub session_id: BrowserId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub headless: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_id: Option<PoolId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<ProfileId>,
    pub created_at: Timestamp,
}

/// The data of an event about a browser that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndedBrowser {
    #[serde(flatten)]
    pub browser: StartedBrowser,
    /// `deleted`, `idle` or `gone`.
    pub reason: String,
    pub deleted_at: Timestamp,
}

/// The data of an event about a login that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndedLogin {
    pub connection_id: AuthConnectionId,
    pub domain: String,
    pub profile_name: String,
    pub flow_id: FlowId,
    pub flow_type: FlowType,
    pub flow_status: FlowStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<FlowErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<BrowserId>,
}

/// The data of an event about the status of an auth connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedAuthConnection {
    pub connection_id: AuthConnectionId,
    pub domain: String,
    pub profile_name: String,
    pub status: AuthConnectionStatus,
    /// Why logins without a person were given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<FlowErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_expires_at: Option<Timestamp>,
}

/// The data of an event about a version of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SavedProfile {
    pub session_id: BrowserId,
    pub profile_id: ProfileId,
    pub version: u64,
    pub size_bytes: u64,
}

/// The data of an event about a profile that was not saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnsavedProfile {
    pub session_id: BrowserId,
    pub profile_id: ProfileId,
    /// The same text as `last_save_error` of the profile.
    pub reason: String,
}

/// The data of an event about a recording that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndedReplay {
    pub replay_id: ReplayId,
    pub session_id: BrowserId,
    pub started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<ReplayEndReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

/// The data of a test, which is no event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TestEvent {
    pub webhook_id: WebhookId,
}

impl TestEvent {
    /// The name that a test has in place of the type of an event.
    pub const TYPE: &str = "webhook.test";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_parse() {
        for (index, event) in WebhookEventType::ALL.iter().enumerate() {
            assert_eq!(WebhookEventType::parse(event.as_str()), Some(*event));
            let json = serde_json::to_value(event).unwrap();
            assert_eq!(json, event.as_str());
            let others = &WebhookEventType::ALL[index + 1..];
            assert!(others.iter().all(|other| other.as_str() != event.as_str()));
        }
        assert_eq!(WebhookEventType::parse(TestEvent::TYPE), None);
    }
}
