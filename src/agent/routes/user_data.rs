//! `GET /user_data`, `PUT /user_data`

use std::time::Duration;

use axum::{body::Body, extract::State, response::Response};
use http::{HeaderValue, header};

use super::fs::unpack_refusal;
use crate::{
    agent::{
        Agent,
        chromium::HoldError,
        user_data::{RestoreError, UserDataError},
    },
    api::{
        ErrorBody,
        agent::{Done, UserDataQuery},
    },
    http::{ApiError, ApiResult, Json, Query, RawBody},
};

const TAG: &str = crate::api::groups::USER_DATA;

/// About the time an archive takes, or Chromium to come back.
const RETRY: Duration = Duration::from_secs(2);

/// Archive Chromium's whole profile
///
/// A tar archive compressed with zstd, of the user-data directory without what belongs to the running process (`Singleton*`, `DevToolsActivePort`).
/// It is whole: where something of the profile cannot be archived, such as a file that cannot be read or a socket, the connection is closed early (or, `live`, the
/// answer is 500), and the log says what it was. What goes beyond the bounds of a restoration is archived all the same.
///
/// Chromium is asked to close, which writes all it holds in memory, and is started again once the archive is made: its tabs are lost, and its clients wait or are
/// disconnected as on a restart. However slowly the archive is taken, Chromium is away only as long as it takes to make.
///
/// With `live=true` Chromium goes on: it is made to write its cookies, then all its processes are stopped for as long as the profile takes to be copied, and the copy is
/// archived. What pages wrote to their local storage or databases within the last seconds may then not be in it yet, and a file that Chromium was
/// just writing is as after a power cut, from which Chromium recovers. Cookies are in it, unless their being written was not to be seen within 5
/// seconds, which the log says.
#[utoipa::path(
    get,
    path = "/user_data",
    operation_id = "archive_user_data",
    tag = TAG,
    params(UserDataQuery),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/zstd"),
        (status = 400, body = ErrorBody, description = "a bad level"),
        (status = 409, body = ErrorBody, description = "it is being archived or restored"),
        (status = 503, body = ErrorBody, description = "Chromium is not up, did not close in order, or the agent is being stopped"),
    )
)]
pub async fn archive(
    State(agent): State<Agent>,
    Query(query): Query<UserDataQuery>,
) -> ApiResult<Response> {
    let level = query.compression_level.unwrap_or_default();
    let live = query.live.unwrap_or_default().0;
    let chunks = agent.user_data.archive(level, live).await?;
    let mut response = Response::new(Body::from_stream(chunks));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/zstd"),
    );
    Ok(response)
}

/// Restore Chromium's whole profile
///
/// The body is an archive as `GET /user_data` makes it. It is unpacked and checked first; only then is Chromium closed, its profile replaced by a
/// rename, and Chromium started again. A bad archive changes nothing. Answered once the profile is in place: Chromium comes up meanwhile. Bounds are
/// those of an uploaded archive: 250,000 entries, 16 GiB, 200 times its own size beyond 64 MiB.
#[utoipa::path(
    put,
    path = "/user_data",
    operation_id = "restore_user_data",
    tag = TAG,
    request_body(content = Vec<u8>, content_type = "application/zstd"),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "a bad archive, or one that broke off"),
        (status = 408, body = ErrorBody, description = "nothing more of the body came for 30 seconds"),
        (status = 409, body = ErrorBody, description = "it is being archived or restored"),
        (status = 413, body = ErrorBody, description = "it unpacks to too much, or to more than the disk takes"),
        (status = 503, body = ErrorBody, description = "Chromium did not let go of its profile"),
    )
)]
pub async fn restore(State(agent): State<Agent>, body: RawBody) -> ApiResult<Json<Done>> {
    let restore = agent.user_data.begin_restore()?;
    match restore.run(body).await {
        Ok(()) => Ok(Json(Done { ok: true })),
        Err(RestoreError::Body(error)) => Err(error.into()),
        Err(RestoreError::UserData(error)) => Err(error.into()),
    }
}

impl From<UserDataError> for ApiError {
    fn from(error: UserDataError) -> Self {
        let message = error.to_string();
        match error {
            UserDataError::Busy => ApiError::conflict(message),
            UserDataError::Hold(HoldError::NotReady(error)) => error.into(),
            UserDataError::Hold(HoldError::Freeze(_)) | UserDataError::UncleanExit => {
                ApiError::unavailable(message, RETRY)
            }
            UserDataError::Unpack(error) => unpack_refusal("body", error),
            UserDataError::Io(cause) => ApiError::internal(cause),
        }
    }
}
