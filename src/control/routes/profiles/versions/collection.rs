//! `/profiles/{id_or_name}/versions`.

use axum::extract::State;

use crate::{
    api::{paging::Page, profiles::ProfileVersion},
    control::{
        profiles::Profiles,
        routes::{
            authentication::Principal,
            paged::Paged,
            profiles::{TAG, to_version},
        },
    },
    http::{ApiResult, Path, Query},
};

/// The limit on a page, less than that of other lists, because each version has its receipt.
const MAX_VERSIONS: u32 = 20;

/// List the versions of a profile
///
/// Newest first. The oldest are deleted when there are too many. A page has at most 20 versions,
/// even if more are asked for.
#[utoipa::path(
    get,
    path = "/profiles/{id_or_name}/versions",
    operation_id = "list_profile_versions",
    tag = TAG,
    params(
        ("id_or_name" = String, Path, description = "The id or name of the profile", example = "shop-login"),
        Page,
    ),
    responses((status = 200, body = Vec<ProfileVersion>, headers(
        ("X-Has-More" = bool, description = "Whether there are more entries"),
        ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
    )))
)]
pub(crate) async fn list(
    State(profiles): State<Profiles>,
    principal: Principal,
    Path(id_or_name): Path<String>,
    Query(page): Query<Page>,
) -> ApiResult<Paged<ProfileVersion>> {
    let page = page.of_at_most(MAX_VERSIONS);
    let profile = profiles.get(&principal.project, &id_or_name).await?;
    let (offset, limit) = (page.offset.get().into(), page.limit.get().into());
    let rows = profiles.versions(&profile, offset, limit).await?;
    let current = profile.version;
    Ok(Paged::new(page, rows, |row| to_version(row, current)))
}
