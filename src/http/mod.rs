//! The HTTP layer that the agent and the control plane share.
//!
//! # Contents
//! - Serving: `serve` accepts connections of TCP and `serve_stream` serves others, `connections`
//!   limits them, `tcp_keepalive` detects lost peers and `write_timeout` those that do not read,
//!   `lingering_close` keeps a refused upload from being reset.
//! - Routing: `app` joins routes, guard, `/metrics` and `/docs`; `telemetry` is the outermost
//!   middleware (request id, trace, log line, metrics, panics, error format); `openapi` and `docs`
//!   make the API reference.
//! - Decoding: `extract` (JSON, path, query), `json_body` (limits of size, time and memory) and
//!   `json_text` (parsing without a tree), `fields` (one error per invalid field), `body` and
//!   `multipart` (streamed bodies), `auth` and `local_only` (who may call), `arrival` (since when).
//! - Responding: `error` (the one error format), `ranges` (partial content), `sse` (event streams),
//!   `page` (HTML pages), `asset` (files of pages), `guarded_body` (what lasts until the end of a
//!   response).
//! - Upgrades: `websocket` (sockets that end here), `tunnel` (sockets relayed to another server),
//!   `websocket_frames` (frame boundaries within relayed bytes), `close_reason` (the close codes).
//!
//! # Path of a request
//! ```text
//! accept ─▶ ConnectionPermit ─▶ hyper ─▶ telemetry ─▶ guard ─▶ handler ─▶ normalize_error
//!                 │    ▲                                │        │
//!                 │    └──── now authenticated ─────────┘        └─ upgrade ─▶ websocket or
//!                 │                                                            tunnel task
//!                 └─ held until the connection, or what it was upgraded to, has ended
//! ```
//!
//! # Ownership
//! Every connection, WebSocket and tunnel is a task of the server's `Shutdown`. A connection's
//! permit is shared by the connection and its upgrade; the last of them to end returns it.

mod app;
mod arrival;
mod asset;
mod auth;
mod body;
mod close_reason;
mod connections;
mod docs;
mod error;
mod extract;
mod fields;
pub mod forward;
mod guarded_body;
mod json_body;
mod json_text;
mod lingering_close;
mod local_only;
mod metrics;
mod multipart;
mod openapi;
mod page;
mod ranges;
mod request_id;
mod serve;
mod serve_stream;
mod sse;
mod tcp_keepalive;
mod telemetry;
mod tls;
mod trace_context;
pub mod tunnel;
mod websocket;
mod websocket_frames;
mod write_timeout;

pub use app::App;
pub use arrival::ArrivedAt;
pub use asset::Asset;
pub(crate) use asset::assets;
#[cfg(test)]
pub(crate) use asset::checks as asset_checks;
pub use auth::{StaticToken, bearer_token, require_static_token};
pub use body::{BODY_IDLE_TIMEOUT, BodyError, RawBody};
pub use close_reason::{CloseCode, CloseReason};
pub use connections::{ConnectionLimits, LinkId};
pub use error::{ApiError, ApiResult, JSON_CONTENT_TYPE, PassThrough};
pub use extract::{Json, LargeJson, Path, Query};
pub use fields::{BoundsError, FieldErrors, Param};
pub use guarded_body::GuardedBody;
pub use json_body::JSON_BODY_LIMIT;
pub use json_text::decode_json;
pub use metrics::Metrics;
pub use multipart::{Multipart, Part};
pub use openapi::{ApiInfo, SessionRoutes, declare_errors, document};
pub use page::HtmlPage;
pub use ranges::{RangeResponse, is_not_modified};
pub use request_id::{REQUEST_ID, RequestId};
pub use serve::{serve, serve_tls};
pub use serve_stream::serve_stream;
pub use sse::{LastEventId, NamedEventId, SseEvent, follow_log, sse_response};
pub use tls::TlsSettings;
pub use websocket::{WebSocketLimits, accept_websocket, close_gracefully, is_websocket_upgrade};
