//! `/profiles`.

use axum::extract::State;

use super::{TAG, to_profile};
use crate::{
    api::{
        ErrorBody,
        paging::Page,
        profiles::{CreateProfile, ListProfiles, Profile},
    },
    control::{
        profiles::Profiles,
        routes::{auditing::Created, authentication::Principal, paged::Paged},
        store::ProfileListing,
    },
    http::{ApiResult, Json, Query},
};

/// Create a profile
///
/// The profile has no content before the first save.
#[utoipa::path(
    post,
    path = "/profiles",
    operation_id = "create_profile",
    tag = TAG,
    request_body(content = CreateProfile, example = json!({"name": "shop-login"})),
    responses(
        (status = 201, body = Profile),
        (status = 409, body = ErrorBody, description = "The name is taken"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn create(
    State(profiles): State<Profiles>,
    principal: Principal,
    Json(request): Json<CreateProfile>,
) -> ApiResult<Created<Profile>> {
    let row = profiles.create(&principal.project, request.name.as_ref());
    let row = row.await?;
    Ok(Created {
        id: row.id.to_string(),
        body: to_profile(row),
    })
}

/// List profiles
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/profiles",
    operation_id = "list_profiles",
    tag = TAG,
    params(ListProfiles, Page),
    responses((status = 200, body = Vec<Profile>, headers(
        ("X-Has-More" = bool, description = "Whether there are more entries"),
        ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
    )))
)]
pub(crate) async fn list(
    State(profiles): State<Profiles>,
    principal: Principal,
    Query(request): Query<ListProfiles>,
) -> ApiResult<Paged<Profile>> {
    let page = request.page();
    let listing = ProfileListing {
        name: request.name.map(Into::into),
        query: request.query.map(Into::into),
        offset: page.offset.get().into(),
        limit: page.limit.get().into(),
    };
    let rows = profiles.list(&principal.project, &listing).await?;
    Ok(Paged::new(page, rows, to_profile))
}
