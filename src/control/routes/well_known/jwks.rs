//! `/.well-known/jwks.json`.

use axum::extract::State;
use http::{HeaderName, header::CACHE_CONTROL};

use crate::{
    api::{groups::AUTH_CONNECTIONS, jwks::JsonWebKeySet},
    control::auth_connections::flow_tokens::FlowTokens,
    http::{ApiResult, Json},
};

/// Lets caches use the keys for less time than a new one is published before it signs.
const CACHE_POLICY: &str = "public, max-age=300";

/// A response that caches store.
type Cached<T> = ([(HeaderName, &'static str); 1], Json<T>);

/// Get the keys that verify tokens of login flows
///
/// Tokens are signed with EdDSA, and their header names the key. A new key is published ten minutes
/// before it signs.
#[utoipa::path(
    get,
    path = "/.well-known/jwks.json",
    operation_id = "get_flow_token_keys",
    tag = AUTH_CONNECTIONS,
    responses((status = 200, body = JsonWebKeySet))
)]
pub(crate) async fn get(State(tokens): State<FlowTokens>) -> ApiResult<Cached<JsonWebKeySet>> {
    let keys = tokens.public_keys().await?;
    Ok(([(CACHE_CONTROL, CACHE_POLICY)], Json(keys)))
}
