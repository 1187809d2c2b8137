//! Tests of the providers, most of them against scripted servers of both APIs.

mod api;
mod canary;
mod failures;
mod hosts;
mod kv;
mod stored_tokens;
mod vendorpassword;

use std::time::Duration;

use super::{ProviderClient, ProviderConfig, ProviderError, ProviderTimings, ProviderType};
use crate::system::outbound::tests::{loopback_client, server::ScriptedServer};

pub(super) const TOKEN: &str = "canary-token-of-the-provider";

/// Times with which a test waits for nothing but what it is about.
fn timings() -> ProviderTimings {
    ProviderTimings {
        request_timeout: Duration::from_secs(20),
        list_timeout: Duration::from_secs(20),
        fetch_timeout: Duration::from_secs(20),
        first_retry_delay: Duration::from_millis(1),
        longest_retry_delay: Duration::from_millis(2),
        ready_delay: Duration::from_millis(1),
        ready_window: Duration::from_secs(20),
        longest_wait: Duration::from_secs(2),
        circuit_interval: Duration::from_secs(60),
        longest_circuit_interval: Duration::from_secs(60),
    }
}

fn config(kind: ProviderType, server: &ScriptedServer) -> ProviderConfig {
    ProviderConfig {
        id: format!("prov_{}", kind.as_str()),
        name: kind.as_str().to_owned(),
        provider_type: kind,
        base_url: server.url(),
        token: TOKEN.into(),
        cache_ttl: Duration::ZERO,
        enabled: true,
        priority: 0,
    }
}

fn client_of(config: &ProviderConfig) -> ProviderClient {
    ProviderClient::new(config, &loopback_client(), timings()).unwrap()
}

fn client(kind: ProviderType, server: &ScriptedServer) -> ProviderClient {
    client_of(&config(kind, server))
}

/// Returns the error of a result whose value cannot be printed.
fn error<T>(result: Result<T, ProviderError>) -> ProviderError {
    result.err().expect("the request fails")
}
