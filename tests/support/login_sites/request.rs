//! The requests that the sites receive, with the session that they belong to.

use std::{collections::HashMap, convert::Infallible};

use axum::{
    body::{Body, to_bytes},
    extract::{FromRequestParts, Request},
    http::{HeaderMap, StatusCode, header, request::Parts},
    response::{AppendHeaders, IntoResponse, Redirect, Response},
};

use super::state::{MemberSession, PendingLogin, ReceivedForm, SharedState, new_token};

const MAX_FORM_BYTES: usize = 64 << 10;
const SESSION_SECS: u32 = 30 * 24 * 60 * 60;
const SESSION: &str = "session";
const LOGIN: &str = "login";
const DEVICE: &str = "device";

/// The scheme of the port that has received a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// A request to a site, as its handlers see it.
#[derive(Clone)]
pub(super) struct SiteRequest {
    pub(super) site: &'static str,
    pub(super) state: SharedState,
    scheme: Scheme,
    /// The port of the `Host` header, with its colon.
    port: String,
    cookies: HashMap<String, String>,
}

impl<S: Sync> FromRequestParts<S> for SiteRequest {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let request = parts.extensions.get::<SiteRequest>();
        Ok(request.cloned().expect("set for all requests"))
    }
}

impl SiteRequest {
    pub(super) fn new(
        site: &'static str,
        scheme: Scheme,
        headers: &HeaderMap,
        state: SharedState,
    ) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host: &str = text(header::HOST).unwrap_or_default();
        let cookies: &str = text(header::COOKIE).unwrap_or_default();
        let pairs = cookies.split("; ").filter_map(|it| it.split_once('='));
        SiteRequest {
            site,
            state,
            scheme,
            port: host.strip_prefix(site).unwrap_or_default().to_owned(),
            cookies: pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        }
    }

    /// Returns the URL of a page of a site, with the scheme and the port of this request.
    pub(super) fn url_of(&self, site: &str, path: &str) -> String {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        format!("{scheme}://{site}{}{path}", self.port)
    }

    pub(super) fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies.get(name).map(String::as_str)
    }

    /// Returns the user name of the session.
    pub(super) fn user(&self) -> Option<String> {
        let state = self.state.lock();
        let session = state.sessions.get(self.cookie(SESSION)?)?;
        let is_valid = session.site == self.site && !state.suspended.contains(self.site);
        is_valid.then(|| session.user.clone())
    }

    /// Returns whether the browser has had a session.
    pub(super) fn has_expired_session(&self) -> bool {
        self.cookie(SESSION).is_some() && self.user().is_none()
    }

    /// Logs a user in, and shows the page of members.
    pub(super) fn log_in(&self, user: &str) -> Response {
        (self.start_session(user), Redirect::to("/account")).into_response()
    }

    /// Starts a session, and returns its cookie.
    pub(super) fn start_session(&self, user: &str) -> SetCookies {
        self.start_session_on(self.site, user, "")
    }

    /// Starts a session on another site, to which the cookie's attributes apply.
    pub(super) fn start_session_on(&self, site: &str, user: &str, attributes: &str) -> SetCookies {
        let token = new_token();
        let session = self.member_session(site, user);
        self.state.lock().sessions.insert(token.clone(), session);
        let lasting = format!("{attributes}; Max-Age={SESSION_SECS}");
        let mut cookies = self.set_cookie(SESSION, &token, &lasting);
        cookies.extend(self.set_cookie(LOGIN, "", "; Max-Age=0"));
        AppendHeaders(cookies)
    }

    /// Ends the session.
    pub(super) fn log_out(&self) -> Response {
        if let Some(token) = self.cookie(SESSION) {
            self.state.lock().sessions.remove(token);
        }
        let cookies = AppendHeaders(self.set_cookie(SESSION, "", "; Max-Age=0"));
        (cookies, Redirect::to("/")).into_response()
    }

    /// Stores a login that lacks a step, and shows the page of that.
    pub(super) fn begin_login(&self, user: &str, is_identified: bool, path: &str) -> Response {
        let login = PendingLogin {
            site: self.site,
            user: user.to_owned(),
            is_identified,
            sms_code: None,
            push_number: fastrand::u32(10..100),
            is_approved: false,
        };
        let token = new_token();
        let mut state = self.state.lock();
        state.logins.insert(token.clone(), login);
        if self.site == "sms.test" {
            state.send_code(&token);
        }
        let cookies = AppendHeaders(self.set_cookie(LOGIN, &token, ""));
        (cookies, Redirect::to(path)).into_response()
    }

    /// Returns the login that lacks a step.
    pub(super) fn pending_login(&self) -> Option<PendingLogin> {
        let state = self.state.lock();
        let login = state.logins.get(self.cookie(LOGIN)?)?;
        (login.site == self.site).then(|| login.clone())
    }

    /// Returns the user name of a login with the right password that lacks a step.
    pub(super) fn identified_user(&self) -> Option<String> {
        let login = self.pending_login().filter(|it| it.is_identified);
        login.map(|login| login.user)
    }

    /// Sends another code for the pending login by text message.
    pub(super) fn send_code_again(&self) {
        let login = self.cookie(LOGIN).unwrap_or_default();
        self.state.lock().send_code(login);
    }

    /// Remembers the browser as a device of the user, and returns its cookie.
    pub(super) fn remember_device(&self, user: &str) -> SetCookies {
        let token = new_token();
        let device = self.member_session(self.site, user);
        self.state.lock().devices.insert(token.clone(), device);
        let lasting = format!("; Max-Age={SESSION_SECS}");
        AppendHeaders(self.set_cookie(DEVICE, &token, &lasting))
    }

    /// Returns whether the browser is a remembered device of the user.
    pub(super) fn is_known_device_of(&self, user: &str) -> bool {
        let state = self.state.lock();
        let device = self.cookie(DEVICE).and_then(|it| state.devices.get(it));
        device.is_some_and(|it| it.site == self.site && it.user == user)
    }

    /// Returns the header that sets a cookie, which scripts cannot read.
    pub(super) fn set_cookie(&self, name: &str, value: &str, attributes: &str) -> CookieHeaders {
        let secure = match self.scheme {
            Scheme::Http => "",
            Scheme::Https => "; Secure",
        };
        let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{attributes}");
        vec![(header::SET_COOKIE, cookie)]
    }

    fn member_session(&self, site: &str, user: &str) -> MemberSession {
        MemberSession {
            site: site.to_owned(),
            user: user.to_owned(),
        }
    }
}

pub(super) type CookieHeaders = Vec<(header::HeaderName, String)>;
pub(super) type SetCookies = AppendHeaders<CookieHeaders>;

/// Records a submitted form, and returns the request with its body.
pub(super) async fn receive_form(
    site: &'static str,
    state: &SharedState,
    request: Request,
) -> Result<Request, StatusCode> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_FORM_BYTES).await;
    let body = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let form_type: &[u8] = b"application/x-www-form-urlencoded";
    if content_type.is_some_and(|it| it.as_bytes().starts_with(form_type)) {
        let fields = url::form_urlencoded::parse(&body).into_owned().collect();
        let path = parts.uri.path().to_owned();
        let form = ReceivedForm { site, path, fields };
        state.lock().received.push(form);
    }
    Ok(Request::from_parts(parts, Body::from(body)))
}
