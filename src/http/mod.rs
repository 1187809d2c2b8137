//! HTTP plumbing both servers share.

mod app;
mod auth;
mod body;
mod error;
mod extract;
mod fields;
pub mod forward;
mod linger;
mod local_only;
mod lost_peer;
mod metrics;
mod multipart;
mod observe;
mod page;
mod ranges;
mod request_id;
mod serve;
mod sse;
mod trace_context;
pub mod tunnel;
mod websocket;
mod websocket_frames;

pub use app::{App, document, health_tag};
pub use auth::{StaticToken, bearer, require_static_token};
pub use body::{BODY_PATIENCE, BodyError, RawBody};
pub use error::{ApiError, ApiResult, AsItIs, JSON_CONTENT_TYPE};
pub use extract::{JSON_BODY_LIMIT, Json, Path, Query};
pub use fields::{BoundsError, FieldErrors, Param};
pub use metrics::Metrics;
pub use multipart::{Multipart, Part};
pub use page::Page;
pub use ranges::RangedAnswer;
pub use request_id::{REQUEST_ID, RequestId};
pub use serve::serve;
pub use sse::{LastEventId, SseEvent, follow, sse};
pub use websocket::{closing, see_off, websocket};
