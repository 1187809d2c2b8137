//! `GET /user_data` and `PUT /user_data`.

use std::time::Duration;

use axum::{body::Body, extract::State, response::Response};
use http::{HeaderValue, header};

use super::fs::unpack_error;
use crate::{
    agent::{
        chromium::{LeaseError, LeaseMode},
        user_data::{RestoreError, UserData, UserDataError},
    },
    api::{
        Binary, ErrorBody,
        agent::{Done, NEWER_CHROMIUM, UserDataQuery},
        groups,
    },
    http::{ApiError, ApiResult, Json, Query, RawBody},
};

const TAG: &str = groups::USER_DATA;

/// The delay before a client retries: about the time of an archive or of a start of Chromium.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Archive the profile
///
/// Returns a tar archive, compressed with zstd, of Chromium's user data directory without the files
/// of the running process (`Singleton*`, `DevToolsActivePort`). The archive is always complete: if
/// a part of the profile cannot be archived, such as an unreadable file or a socket, the connection
/// is closed early (with `live=true` the status is 500), and the log names the part. The limits of
/// a restoration do not apply.
///
/// By default Chromium is closed, which writes all that it holds in memory, and started again once
/// the archive is made: its tabs are lost, and its clients wait or are disconnected as on a
/// restart. A slow download does not delay the start. With `restart=false` it stays closed, and its
/// clients wait, until `POST /chromium/restart`, another archive or a restoration; the end of the
/// session does not wait for a start.
///
/// With `live=true` Chromium keeps running: it is made to write its cookies, then all of its
/// processes are stopped while the profile is copied, and the copy is archived. It has the cookies,
/// local storage and databases of the time of the request, and may have later changes. A file that
/// Chromium was writing is as after a power failure, from which Chromium recovers. If Chromium does
/// not write its cookies within 5 seconds, the latest may be missing, which is logged.
#[utoipa::path(
    get,
    path = "/user_data",
    operation_id = "archive_user_data",
    tag = TAG,
    params(UserDataQuery),
    responses(
        (status = 200, body = inline(Binary), content_type = "application/zstd"),
        (status = 400, body = ErrorBody, description = "A parameter is invalid, or `restart` is false with `live`"),
        (status = 409, body = ErrorBody, description = "The profile is being archived or restored"),
        (status = 503, body = ErrorBody, description = "Chromium is not running or did not close in an orderly way, or the agent is stopping"),
    )
)]
pub(crate) async fn archive(
    State(user_data): State<UserData>,
    Query(query): Query<UserDataQuery>,
) -> ApiResult<Response> {
    let level = query.compression_level.unwrap_or_default();
    let live = query.live.unwrap_or_default().0;
    let mode = match query.restart.is_none_or(|restart| restart.0) {
        true if live => LeaseMode::Frozen,
        true => LeaseMode::Closed,
        false if live => {
            let message = "restart does not apply to a live archive, which needs no restart";
            return Err(ApiError::bad_request(message));
        }
        false => LeaseMode::KeptClosed,
    };
    let chunks = user_data.archive(level, mode).await?;
    let mut response = Response::new(Body::from_stream(chunks));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/zstd"),
    );
    Ok(response)
}

/// Restore the profile
///
/// The body is an archive as `GET /user_data` returns it. It is unpacked and checked first. Only
/// then is Chromium closed, its profile replaced by a rename, and Chromium started again; an
/// invalid archive changes nothing. Responds once the profile is in place, while Chromium comes up.
///
/// Chromium keeps the session cookies of the profile, but opens no tab of it.
///
/// Limits are 250,000 entries and 16 GiB of content.
#[utoipa::path(
    put,
    path = "/user_data",
    operation_id = "restore_user_data",
    tag = TAG,
    request_body(content = inline(Binary), content_type = "application/zstd", description = "A tar archive, compressed with zstd"),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "The archive is invalid or incomplete"),
        (status = 408, body = ErrorBody, description = "The body made no progress for 30 s"),
        (status = 409, body = ErrorBody, description = "The profile is being archived or restored, or the archive is of a newer major version of Chromium (`newer_chromium`)"),
        (status = 413, body = ErrorBody, description = "The content of the archive exceeds a limit, or the space on the disk"),
        (status = 503, body = ErrorBody, description = "Chromium did not close"),
    )
)]
pub(crate) async fn restore(
    State(user_data): State<UserData>,
    body: RawBody,
) -> ApiResult<Json<Done>> {
    let restore = user_data.begin_restore()?;
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
            UserDataError::NewerChromium { .. } => {
                ApiError::conflict(message).code(NEWER_CHROMIUM).permanent()
            }
            UserDataError::Lease(LeaseError::NotReady(error)) => error.into(),
            UserDataError::Lease(LeaseError::Freeze(_)) | UserDataError::UncleanExit => {
                ApiError::unavailable(message, RETRY_DELAY)
            }
            UserDataError::Unpack(error) => unpack_error("body", error),
            UserDataError::Io(cause) => ApiError::internal(cause),
        }
    }
}
