//! The configuration of the browsers of a pool.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    api::{ids::ProfileId, viewport::Viewport},
    control::{fleet::LaunchOptions, store::HostMode},
};

/// The number of bytes of a digest that identify a configuration.
const HASH_BYTES: usize = 16;

/// The properties that the browsers of a pool are started with. Stored as JSON: a new field needs a
/// default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolConfig {
    pub headless: bool,
    pub kiosk_mode: bool,
    pub viewport: Viewport,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileId>,
}

impl PoolConfig {
    /// Returns what identifies the configuration: equal ones have the same hash.
    #[must_use]
    pub fn hash(&self) -> String {
        // Fields in the order of their declaration, none of which can fail.
        let text = serde_json::to_string(self).unwrap_or_default();
        let digest = Sha256::digest(text);
        let hex = digest.iter().take(HASH_BYTES);
        hex.map(|byte| format!("{byte:02x}")).collect()
    }

    #[must_use]
    pub fn mode(&self) -> HostMode {
        HostMode {
            headless: self.headless,
            kiosk_mode: self.kiosk_mode,
        }
    }

    #[must_use]
    pub fn launch_options(&self) -> LaunchOptions {
        LaunchOptions {
            mode: self.mode(),
            viewport: self.viewport,
        }
    }
}

#[cfg(test)]
impl PoolConfig {
    /// Returns the configuration of headless browsers.
    pub(crate) fn sample() -> PoolConfig {
        PoolConfig {
            headless: true,
            kiosk_mode: false,
            viewport: Viewport::default(),
            start_url: None,
            profile: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_depends_on_each_field_and_survives_storing() {
        let config = PoolConfig::sample();
        let stored = serde_json::to_string(&config).unwrap();
        let read: PoolConfig = serde_json::from_str(&stored).unwrap();
        assert_eq!(read.hash(), config.hash());
        let others = [
            PoolConfig {
                headless: false,
                ..config.clone()
            },
            PoolConfig {
                kiosk_mode: true,
                ..config.clone()
            },
            PoolConfig {
                viewport: Viewport {
                    width: 800,
                    ..Viewport::default()
                },
                ..config.clone()
            },
            PoolConfig {
                start_url: Some("about:blank".to_owned()),
                ..config.clone()
            },
            PoolConfig {
                profile: Some(ProfileId::generate()),
                ..config.clone()
            },
        ];
        for other in others {
            assert_ne!(other.hash(), config.hash(), "{other:?}");
        }
    }
}
