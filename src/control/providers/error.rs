//! Why a provider has no answer. None of the texts contains a token, a value, a body or an id.

use std::time::Duration;

use crate::system::outbound::OutboundError;

/// Why a request to a provider failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    #[error("the provider refused the token")]
    TokenRefused,
    #[error("the token lacks the permission")]
    Forbidden,
    #[error("the provider is not ready: it responded {status} to the first requests")]
    NotReady { status: u16 },
    #[error("the provider limits requests, retry in {} s", .retry_after.as_secs().max(1))]
    RateLimited { retry_after: Duration },
    #[error("the provider is unavailable: it responded {status}")]
    Unavailable { status: u16 },
    #[error("the provider is unreachable: {0}")]
    Unreachable(OutboundError),
    #[error("the provider did not respond in time")]
    Timeout,
    #[error("the provider's certificate cannot be accepted: {0}")]
    Tls(OutboundError),
    #[error("{0}")]
    AddressNotAllowed(OutboundError),
    #[error("the provider redirects to another address: {0}")]
    RedirectRefused(OutboundError),
    #[error("the provider responded {status}, which is not expected")]
    UnexpectedStatus { status: u16 },
    #[error("invalid response of the provider: {0}")]
    InvalidResponse(&'static str),
    #[error("the provider has more than {max} {items}")]
    TooLarge { max: usize, items: &'static str },
    #[error("the provider failed repeatedly, retry in {} s", .retry_after.as_secs().max(1))]
    CircuitOpen { retry_after: Duration },
    #[error("the provider has no such item")]
    NotFound,
    #[error("invalid configuration of the provider: {0}")]
    InvalidConfig(&'static str),
    #[error("not an id of an item of this provider")]
    InvalidId,
}

/// The influence of a result on the circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Up,
    Down,
    /// The provider was not asked, or has asked for patience.
    Unknown,
}

impl ProviderError {
    /// Returns the time to wait before the next attempt, if the error has one.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            ProviderError::RateLimited { retry_after }
            | ProviderError::CircuitOpen { retry_after } => Some(*retry_after),
            _ => None,
        }
    }

    /// Returns whether another attempt may succeed without a change of the configuration.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            ProviderError::NotReady { .. }
            | ProviderError::RateLimited { .. }
            | ProviderError::Unavailable { .. }
            | ProviderError::Unreachable(_)
            | ProviderError::Timeout
            | ProviderError::CircuitOpen { .. } => true,
            ProviderError::TokenRefused
            | ProviderError::Forbidden
            | ProviderError::Tls(_)
            | ProviderError::AddressNotAllowed(_)
            | ProviderError::RedirectRefused(_)
            | ProviderError::UnexpectedStatus { .. }
            | ProviderError::InvalidResponse(_)
            | ProviderError::TooLarge { .. }
            | ProviderError::NotFound
            | ProviderError::InvalidConfig(_)
            | ProviderError::InvalidId => false,
        }
    }

    pub(super) fn health(&self) -> Health {
        match self {
            ProviderError::TokenRefused
            | ProviderError::Forbidden
            | ProviderError::NotFound
            | ProviderError::UnexpectedStatus { .. } => Health::Up,
            ProviderError::NotReady { .. }
            | ProviderError::Unavailable { .. }
            | ProviderError::Unreachable(_)
            | ProviderError::Timeout
            | ProviderError::Tls(_)
            | ProviderError::InvalidResponse(_)
            | ProviderError::TooLarge { .. } => Health::Down,
            ProviderError::RateLimited { .. }
            | ProviderError::AddressNotAllowed(_)
            | ProviderError::RedirectRefused(_)
            | ProviderError::CircuitOpen { .. }
            | ProviderError::InvalidConfig(_)
            | ProviderError::InvalidId => Health::Unknown,
        }
    }

    /// Returns the label of the metric.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            ProviderError::TokenRefused | ProviderError::Forbidden => "refused",
            ProviderError::NotFound => "not_found",
            ProviderError::RateLimited { .. } => "rate_limited",
            ProviderError::CircuitOpen { .. } => "circuit_open",
            ProviderError::Timeout => "timeout",
            ProviderError::AddressNotAllowed(_) => "address_not_allowed",
            ProviderError::InvalidResponse(_)
            | ProviderError::TooLarge { .. }
            | ProviderError::UnexpectedStatus { .. }
            | ProviderError::RedirectRefused(_) => "invalid_response",
            ProviderError::NotReady { .. }
            | ProviderError::Unavailable { .. }
            | ProviderError::Unreachable(_)
            | ProviderError::Tls(_)
            | ProviderError::InvalidConfig(_)
            | ProviderError::InvalidId => "failed",
        }
    }
}

impl From<OutboundError> for ProviderError {
    fn from(error: OutboundError) -> ProviderError {
        match error {
            OutboundError::InvalidUrl => ProviderError::InvalidConfig("base_url is not usable"),
            OutboundError::AddressNotAllowed { .. }
            | OutboundError::OwnAddress { .. }
            | OutboundError::PlainHttpNotAllowed { .. } => ProviderError::AddressNotAllowed(error),
            OutboundError::Resolve { .. }
            | OutboundError::Connect { .. }
            | OutboundError::ConnectTimeout { .. }
            | OutboundError::Interrupted { .. } => ProviderError::Unreachable(error),
            OutboundError::Tls { .. } => ProviderError::Tls(error),
            OutboundError::Timeout { .. } => ProviderError::Timeout,
            OutboundError::CrossOriginRedirect | OutboundError::TooManyRedirects { .. } => {
                ProviderError::RedirectRefused(error)
            }
            OutboundError::TooLarge { limit } => ProviderError::TooLarge {
                max: limit,
                items: "bytes in a response",
            },
        }
    }
}
