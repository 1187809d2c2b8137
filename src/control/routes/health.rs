//! `/health`.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    control::store::Store,
    http::{ApiResult, Json},
};

/// The health of the server.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `ok`. An unhealthy server responds with an error.
    status: &'static str,
    version: &'static str,
}

/// Check the health of the server
///
/// Succeeds if the server can reach its database.
#[utoipa::path(get, path = "/health",
    operation_id = "get_health", tag = crate::api::groups::SERVER, responses((status = 200, body = Health)))]
pub(crate) async fn health(State(store): State<Store>) -> ApiResult<Json<Health>> {
    store.ping().await?;
    Ok(Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
    }))
}
