//! The deprecation of `/projects` and the routes below, the former paths of `/org/projects`.
//!
//! Each response announces it. From the sunset on, every request is 410 if that is enforced.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderName, HeaderValue, header::LINK};
use url::Url;
use utoipa::openapi::{
    Deprecated, Header, Object, OpenApi, RefOr, header::HeaderBuilder, schema::Type,
};

use crate::http::ApiError;

const PREFIX: &str = "/projects";
/// Replaces [`PREFIX`].
const SUCCESSOR_PREFIX: &str = "/org/projects";
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
/// 2025-11-24, in the form of RFC 9745.
const DEPRECATED_SINCE: HeaderValue = HeaderValue::from_static("@1763942400");
const SUNSET: HeaderName = HeaderName::from_static("sunset");
/// The time of [`SUNSET_TIMESTAMP`], in the form of RFC 8594.
const SUNSET_DATE: HeaderValue = HeaderValue::from_static("Tue, 24 Nov 2026 00:00:00 GMT");
/// 2026-11-24 00:00:00 UTC, in seconds since the Unix epoch.
const SUNSET_TIMESTAMP: i64 = 1_795_478_400;

/// Announces the sunset of the deprecated routes, and enforces it if configured.
#[derive(Debug, Clone)]
pub struct Sunset {
    /// Whether the routes are gone from the sunset on.
    pub is_enforced: bool,
    /// The path of the public URL, without a trailing slash.
    pub base_path: String,
    pub clock: fn() -> DateTime<Utc>,
}

impl Sunset {
    pub fn new(is_enforced: bool, public_url: Option<&Url>) -> Sunset {
        let base_path = public_url.map(Url::path).unwrap_or_default();
        Sunset {
            is_enforced,
            base_path: base_path.trim_end_matches('/').to_owned(),
            clock: Utc::now,
        }
    }

    /// Returns whether the deprecated routes are gone.
    fn is_over(&self) -> bool {
        self.is_enforced && (self.clock)().timestamp() >= SUNSET_TIMESTAMP
    }

    /// Adds the headers that announce the sunset and the route that replaces `path`.
    fn announce(&self, path: &str, headers: &mut HeaderMap) {
        headers.insert(DEPRECATION, DEPRECATED_SINCE);
        headers.insert(SUNSET, SUNSET_DATE);
        let rest = path.strip_prefix(PREFIX).unwrap_or_default();
        let link = format!(
            "<{}{SUCCESSOR_PREFIX}{rest}>; rel=\"successor-version\"",
            self.base_path
        );
        if let Ok(link) = HeaderValue::try_from(link) {
            headers.append(LINK, link);
        }
    }
}

/// Middleware that announces and enforces the sunset of the deprecated routes. Other routes are
/// not affected.
pub async fn enforce_sunset(
    State(sunset): State<Sunset>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    if !is_deprecated(&path) {
        return next.run(request).await;
    }
    let mut response = match sunset.is_over() {
        true => ApiError::gone("this route was removed on 2026-11-24; /org/projects replaces it")
            .into_response(),
        false => next.run(request).await,
    };
    sunset.announce(&path, response.headers_mut());
    response
}

fn is_deprecated(path: &str) -> bool {
    path.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Marks the operations of the deprecated routes, and describes their headers.
pub fn document(document: &mut OpenApi) {
    let deprecated = document.paths.paths.iter_mut();
    for (_, item) in deprecated.filter(|(path, _)| is_deprecated(path)) {
        let operations = [
            &mut item.get,
            &mut item.post,
            &mut item.patch,
            &mut item.delete,
        ];
        for operation in operations.into_iter().flatten() {
            operation.deprecated = Some(Deprecated::True);
            for response in operation.responses.responses.values_mut() {
                if let RefOr::T(response) = response {
                    response.headers.extend(described_headers());
                }
            }
        }
    }
}

fn described_headers() -> [(String, RefOr<Header>); 3] {
    [
        (
            "Deprecation",
            "The time since which the route is deprecated, as in RFC 9745",
        ),
        (
            "Sunset",
            "The time of the removal of the route, as in RFC 8594",
        ),
        (
            "Link",
            "The route that replaces this one, with `rel=\"successor-version\"`",
        ),
    ]
    .map(|(name, description)| {
        let header = HeaderBuilder::new()
            .description(Some(description))
            .schema(Some(Object::with_type(Type::String)))
            .build();
        (name.to_owned(), RefOr::T(header))
    })
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, middleware::from_fn_with_state, routing::get};
    use http::StatusCode;
    use tower::ServiceExt;

    use super::*;

    fn last_second() -> DateTime<Utc> {
        DateTime::parse_from_rfc2822("Mon, 23 Nov 2026 23:59:59 GMT")
            .unwrap()
            .to_utc()
    }

    fn sunset() -> DateTime<Utc> {
        DateTime::parse_from_rfc2822(SUNSET_DATE.to_str().unwrap())
            .unwrap()
            .to_utc()
    }

    async fn send(path: &str, is_enforced: bool, clock: fn() -> DateTime<Utc>) -> Response {
        let sunset = Sunset {
            is_enforced,
            base_path: "/berth".to_owned(),
            clock,
        };
        let ok = || get(|| async {});
        let app = Router::new()
            .route("/projects", ok())
            .route("/projects/{id}", ok())
            .route("/projectsX", ok())
            .route("/org/projects", ok())
            .layer(from_fn_with_state(sunset, enforce_sunset));
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        app.oneshot(request).await.unwrap()
    }

    #[tokio::test]
    async fn deprecated_routes_are_gone_from_the_enforced_sunset_on() {
        for (clock, is_enforced, status) in [
            (last_second as fn() -> DateTime<Utc>, true, StatusCode::OK),
            (sunset, true, StatusCode::GONE),
            (sunset, false, StatusCode::OK),
        ] {
            for path in ["/projects", "/projects/a%20b"] {
                let response = send(path, is_enforced, clock).await;
                assert_eq!(response.status(), status);
                let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
                assert_eq!(header("sunset"), "Tue, 24 Nov 2026 00:00:00 GMT");
                assert_eq!(header("deprecation"), "@1763942400");
                let link = format!("</berth/org{path}>; rel=\"successor-version\"");
                assert_eq!(header("link"), link);
            }
            for path in ["/projectsX", "/org/projects"] {
                let response = send(path, is_enforced, clock).await;
                assert_eq!(response.status(), StatusCode::OK);
                assert!(!response.headers().contains_key("sunset"));
            }
        }
    }
}
