//! Join tokens, with which hosts register.

use std::collections::BTreeMap;

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{
    api_keys::ApiKeyCreator,
    browsers::Tags,
    field,
    ids::JoinTokenId,
    time::{FutureTime, Timestamp},
};

/// A join token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinToken {
    pub id: JoinTokenId,
    /// The public part of the token, which identifies it.
    pub masked_token: String,
    /// The number of hosts that can register with the token in all.
    pub uses: u32,
    /// The number of hosts that can still register with it.
    pub remaining_uses: u32,
    /// Labels of the hosts that register with it.
    pub labels: BTreeMap<String, String>,
    pub created_at: Timestamp,
    pub created_by: ApiKeyCreator,
    /// The time when a host last registered with it. Absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A new join token with its secret, which is shown only once.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JoinTokenWithSecret {
    #[serde(flatten)]
    pub record: JoinToken,
    /// The secret token, with which hosts register.
    pub token: String,
}

/// The properties of a new join token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, ToSchema)]
pub struct CreateJoinToken {
    /// Number of hosts that can register with the token, 1–10000.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 10_000, default = 1)]
    pub uses: Option<TokenUses>,
    /// Time of expiry, in the future. By default the token expires with the API key of the request,
    /// or never.
    #[deserr(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<FutureTime>,
    /// Up to 50 labels of the hosts that register with the token, with keys of 1–128 and values of
    /// up to 256 characters.
    #[deserr(default)]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub labels: Option<Tags>,
}

/// The number of uses of a join token: 1–10000, 1 by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenUses(u32);

impl TokenUses {
    pub const MAX: u32 = 10_000;

    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl Default for TokenUses {
    fn default() -> Self {
        TokenUses(1)
    }
}

impl<E: DeserializeError> Deserr<E> for TokenUses {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::whole_number(value, location, 1..=Self::MAX).map(TokenUses)
    }
}
