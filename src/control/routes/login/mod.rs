//! The hosted login page `/login/{connection_id}`, on which a person signs in for an auth
//! connection. Its files are below `/login/assets`, its appearance is at `/login/theme`.
//!
//! The page is open, because it holds nothing that the source code and the theme do not. It is the
//! same for each connection. It exchanges the code in the fragment of its address, which is not
//! sent to the server, for a token, and uses the public API with it.

use axum::{extract::State, response::Response};
use http::{HeaderMap, HeaderValue};
use utoipa_axum::{router::OpenApiRouter, routes};

use self::assets::INDEX;
use crate::{
    api::groups::SERVER,
    control::{
        Control,
        login_page::{FrameOrigin, LoginLogo, LoginPageConfig},
    },
    http::Asset,
};

mod assets;
mod theme;

/// The parts of the login page that depend on the settings. Clones are cheap.
#[derive(Debug, Clone)]
pub struct HostedLoginPage {
    policy: HeaderValue,
    theme: Asset,
    logo: Option<Asset>,
}

impl HostedLoginPage {
    /// Prepares the responses.
    ///
    /// # Panics
    /// Never: the origins of a valid configuration are ASCII text, and a theme is valid JSON.
    #[expect(clippy::expect_used, reason = "the configuration is valid")]
    #[must_use]
    pub fn new(config: &LoginPageConfig) -> Self {
        let theme = serde_json::to_vec(&config.theme).expect("a theme is valid JSON");
        let policy = content_policy(&config.frame_origins);
        Self {
            policy: HeaderValue::try_from(policy).expect("the policy is ASCII text"),
            theme: Asset::new(Asset::JSON, theme),
            logo: config.logo.as_ref().map(|logo| match logo {
                LoginLogo::Svg(content) => Asset::new(Asset::SVG, content.clone()),
                LoginLogo::Png(content) => Asset::new(Asset::PNG, content.clone()),
            }),
        }
    }
}

/// Returns a policy that allows modules, styles, requests and frames of this server only. The frame
/// is the live view. Trusted Types keep texts of sites from being parsed as HTML or as a script.
fn content_policy(frame_origins: &[FrameOrigin]) -> String {
    let mut ancestors: Vec<&str> = frame_origins.iter().map(FrameOrigin::as_str).collect();
    if ancestors.is_empty() {
        ancestors.push("'none'");
    }
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors {}; require-trusted-types-for 'script'; trusted-types 'none'",
        ancestors.join(" ")
    )
}

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(page))
        .routes(routes!(assets::asset))
        .routes(routes!(theme::theme))
        .routes(routes!(theme::logo))
}

/// Open the hosted login page
///
/// Returns a web page on which a person signs in for an auth connection. Send people to the
/// `hosted_url` of a login, whose fragment contains the handoff code. The page is the same for all
/// ids: it asks the API about the connection.
#[utoipa::path(
    get,
    path = "/login/{connection_id}",
    operation_id = "open_login_page",
    tag = SERVER,
    params(("connection_id" = String, Path, description = "The id of the auth connection", example = "conn_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = String, content_type = "text/html", headers(("ETag" = String, description = "An entity tag, for `If-None-Match`"))),
        (status = 304, description = "The client has the current page"),
    )
)]
pub(crate) async fn page(State(page): State<HostedLoginPage>, request: HeaderMap) -> Response {
    INDEX.respond(&request, &page.policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configured_origins_may_embed_the_page() {
        let origins = ["https://a.example", "https://b.example:8443"];
        let origins = origins.map(|origin| origin.parse().unwrap());
        let policy = content_policy(&origins);
        let expected = "; frame-ancestors https://a.example https://b.example:8443; ";
        assert!(policy.contains(expected), "{policy}");
        assert!(content_policy(&[]).contains("; frame-ancestors 'none'; "));
    }
}
