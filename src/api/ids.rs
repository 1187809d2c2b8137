//! Opaque ids: a prefix by kind and a sortable random part.

use std::{fmt, str::FromStr};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A text that is not an id of the expected kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id of this kind")]
pub struct InvalidId;

/// Length of the random part: a ULID's 26 characters, in lower case.
const RANDOM_LEN: usize = 26;

/// Keeps the ids of one millisecond in order.
static GENERATOR: Mutex<ulid::Generator> = Mutex::new(ulid::Generator::new());

fn generate(prefix: &str) -> String {
    let mut generator = GENERATOR.lock();
    let ulid = generator.generate();
    // No process generates the 2^80 ids of a millisecond.
    let ulid = ulid.unwrap_or_else(|overflow| overflow.commit_overflow_increment());
    format!("{prefix}{}", ulid.to_string().to_ascii_lowercase())
}

fn is_valid(prefix: &str, text: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|random| {
        random.len() == RANDOM_LEN
            && random
                .bytes()
                .all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
            && ulid::Ulid::from_string(random).is_ok()
    })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schema(value_type = String)]
        pub struct $name(String);

        impl $name {
            /// Generates an id. Later ids of a process sort after earlier ones.
            #[must_use]
            pub fn generate() -> Self {
                Self(generate($prefix))
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                is_valid($prefix, text).then(|| Self(text.to_owned())).ok_or(InvalidId)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// The id of the organization, which all projects belong to.
    OrganizationId, "org_"
);
id!(
    /// The id of a project.
    ProjectId, "proj_"
);
id!(
    /// The id of a browser session.
    BrowserId, "brw_"
);
id!(
    /// The id of a pool of browsers.
    PoolId, "pool_"
);
id!(
    /// The id of a host, which browser sessions run on.
    HostId, "host_"
);
id!(
    /// The id of an API key.
    KeyId, "key_"
);
id!(
    /// The id of a join token.
    JoinTokenId, "join_"
);
id!(
    /// The id of a launch of a host.
    LaunchId, "launch_"
);
id!(
    /// The id of an entry in the audit log.
    AuditLogId, "log_"
);
id!(
    /// The id of a profile.
    ProfileId, "prof_"
);
id!(
    /// The id of a credential.
    CredentialId, "cred_"
);
id!(
    /// The id of a credential provider.
    ProviderId, "prov_"
);
id!(
    /// The id of a login flow of an auth connection.
    FlowId, "flow_"
);
id!(
    /// The id of an auth connection.
    AuthConnectionId, "conn_"
);
id!(
    /// The id of a webhook.
    WebhookId, "hook_"
);
id!(
    /// The id of an event that webhooks receive.
    WebhookEventId, "evt_"
);
id!(
    /// The id of the delivery of an event to one webhook.
    WebhookDeliveryId, "dlv_"
);
id!(
    /// The id of an entry in the timeline of an auth connection.
    AuthTimelineId, "atl_"
);
id!(
    /// The id of a watch.
    WatchId, "watch_"
);
id!(
    /// The id of a replay.
    ReplayId, "rep_"
);

/// The id of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(value_type = String, format = Uuid)]
pub struct ProcessId(uuid::Uuid);

impl ProcessId {
    #[must_use]
    pub fn generate() -> Self {
        Self(uuid::Uuid::new_v4())
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_parses_its_own_text() {
        let id = BrowserId::generate();
        assert_eq!(id.as_str().parse(), Ok(id));
    }

    #[test]
    fn ids_of_one_millisecond_are_in_order() {
        let ids: Vec<_> = (0..10_000).map(|_| AuditLogId::generate()).collect();
        assert!(ids.is_sorted_by(|earlier, later| earlier.as_str() < later.as_str()));
    }

    #[test]
    fn other_forms_are_rejected() {
        let id = BrowserId::generate().to_string();
        for bad in [
            "",
            "brw_",
            "brw_x",
            &id.to_uppercase(),
            &format!("{id}0"),
            &id.replace("brw_", "key_"),
            "brw_!!!!!!!!!!!!!!!!!!!!!!!!!!",
        ] {
            assert_eq!(bad.parse::<BrowserId>(), Err(InvalidId), "{bad}");
        }
    }
}
