//! Identity providers, and the sites that use them: by redirects, and in a pop-up window.

use axum::{
    Router,
    extract::Query,
    http::StatusCode,
    response::{AppendHeaders, IntoResponse, Redirect, Response},
    routing::get,
};
use serde::Deserialize;
use serde_json::json;

use super::{
    pages::{document, login_page, step_page},
    password::{PasswordLogin, member_pages},
    request::SiteRequest,
    state::{MemberSession, new_token},
    steps::StepLogin,
};

/// A provider that is permitted for a connection only.
const PROVIDER: &str = "idp.test";
/// A provider that is always permitted.
pub(super) const KNOWN_PROVIDER: &str = "login.microsoftonline.com";
/// The sites, each with its provider.
const CLIENTS: [(&str, &str); 3] = [
    ("known-sso.test", KNOWN_PROVIDER),
    ("popup.test", PROVIDER),
    ("sso.test", PROVIDER),
];
/// The cookie of a site for the state of a login at the provider.
const OAUTH_STATE: &str = "oauth_state";
/// The cookie of the provider for the request of a site: its name and its state.
const OAUTH_REQUEST: &str = "oauth_request";
const POPUP_BUTTON: &str = "<button type=button id=google>Sign in with Google</button><script>
    google.onclick = () => open('/auth/start', 'login', 'popup,width=500,height=600');
    addEventListener('message', event => {
      if (event.origin === location.origin && event.data === 'logged-in') location = '/account';
    });
    </script>";

#[derive(Deserialize)]
struct AuthorizationRequest {
    client_id: String,
    state: String,
}

#[derive(Deserialize)]
struct AuthorizationResponse {
    code: String,
    state: String,
}

/// A site with a login by redirects, and with passwords of its own.
pub(super) fn routes() -> Router {
    let login = PasswordLogin {
        page: |request, form| {
            let name = match provider_of(request.site) {
                KNOWN_PROVIDER => "Microsoft",
                _ => "Google",
            };
            login_page(&format!(
                "{form}<p>or</p><a href=/auth/start>Sign in with {name}</a>"
            ))
        },
        ..Default::default()
    };
    login.routes().merge(client(SiteRequest::log_in))
}

/// A site with a login in a pop-up window.
pub(super) fn popup() -> Router {
    let show = async |request: SiteRequest| match request.user() {
        Some(_) => Redirect::to("/account").into_response(),
        None => login_page(POPUP_BUTTON).into_response(),
    };
    member_pages("/login")
        .route("/login", get(show))
        .merge(client(close_popup))
}

/// Logs a user in, informs the window that has opened this one, and closes it.
fn close_popup(request: &SiteRequest, user: &str) -> Response {
    let script = format!(
        "<script>opener.postMessage('logged-in', {}); close()</script>",
        json!(request.url_of(request.site, ""))
    );
    (request.start_session(user), document("Logged in", &script)).into_response()
}

/// Returns the routes of a site that uses the provider.
fn client(then: fn(&SiteRequest, &str) -> Response) -> Router {
    let finish = move |request: SiteRequest, Query(response): Query<AuthorizationResponse>| async move {
        match user_of(&request, &response) {
            Some(user) => then(&request, &user),
            None => bad_request("The sign in has expired. Try again."),
        }
    };
    Router::new()
        .route("/auth/start", get(start))
        .route("/auth/callback", get(finish))
}

fn provider_of(site: &str) -> &'static str {
    let mut clients = CLIENTS.iter();
    let client = clients.find(|(client, _)| *client == site);
    client.expect("a site with a provider").1
}

async fn start(request: SiteRequest) -> Response {
    let state = new_token();
    let query = format!(
        "/authorize?response_type=code&client_id={}&state={state}&scope=email",
        request.site
    );
    let cookies = AppendHeaders(request.set_cookie(OAUTH_STATE, &state, ""));
    let url = request.url_of(provider_of(request.site), &query);
    (cookies, Redirect::to(&url)).into_response()
}

/// Returns the user that a code of the provider is for. It is valid once.
fn user_of(request: &SiteRequest, response: &AuthorizationResponse) -> Option<String> {
    if request.cookie(OAUTH_STATE) != Some(&response.state) {
        return None;
    }
    let mut state = request.state.lock();
    let authorization = state.authorizations.remove(&response.code)?;
    (authorization.site == request.site).then_some(authorization.user)
}

/// The provider. It has a page for the email address, and a page for the password.
pub(super) fn identity_provider() -> Router {
    let path = "/signin";
    let login = StepLogin {
        path,
        then: continue_authorization,
        ..Default::default()
    };
    member_pages(path)
        .merge(login.routes())
        .route("/authorize", get(authorize))
}

async fn authorize(
    request: SiteRequest,
    Query(AuthorizationRequest { client_id, state }): Query<AuthorizationRequest>,
) -> Response {
    let mut clients = CLIENTS.iter();
    let client =
        clients.find(|&&(client, provider)| (client, provider) == (&client_id, request.site));
    let (Some((client, _)), true) = (client, state.chars().all(|c| c.is_ascii_alphanumeric()))
    else {
        return bad_request("The site is unknown.");
    };
    let Some(user) = request.user() else {
        let value = format!("{client}.{state}");
        let cookies = AppendHeaders(request.set_cookie(OAUTH_REQUEST, &value, ""));
        return (cookies, Redirect::to("/signin")).into_response();
    };
    let code = new_token();
    let site = (*client).to_owned();
    let authorization = MemberSession { site, user };
    let mut shared = request.state.lock();
    shared.authorizations.insert(code.clone(), authorization);
    drop(shared);
    let path = format!("/auth/callback?code={code}&state={state}");
    Redirect::to(&request.url_of(client, &path)).into_response()
}

/// Logs a user in at the provider, and continues with the request of the site.
fn continue_authorization(request: &SiteRequest, user: &str) -> Response {
    let pending = request.cookie(OAUTH_REQUEST);
    let path = match pending.and_then(|pending| pending.rsplit_once('.')) {
        Some((client, state)) => format!("/authorize?client_id={client}&state={state}"),
        None => "/account".to_owned(),
    };
    (request.start_session(user), Redirect::to(&path)).into_response()
}

fn bad_request(text: &str) -> Response {
    let page = step_page("Something is wrong", &format!("<p>{text}</p>"));
    (StatusCode::BAD_REQUEST, page).into_response()
}
