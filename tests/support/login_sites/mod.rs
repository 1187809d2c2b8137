//! Web sites with every kind of login, over HTTP and HTTPS. Each is a host name of one server.
//!
//! All sites have the same members. A session is a persistent HttpOnly cookie. `/account` is for
//! members, and `/whoami` has the user name of the session as JSON.

mod captcha;
mod change;
mod factors;
mod frames;
mod members;
mod pages;
mod password;
mod phone;
mod request;
mod scripted;
mod sso;
mod state;
mod steps;
mod tls;

use std::{collections::HashMap, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
};
use tokio::net::TcpListener;
use tower::ServiceExt;

pub use self::{members::Member, state::ReceivedForm};
use self::{
    request::{Scheme, SiteRequest, receive_form},
    state::SharedState,
    tls::TlsListener,
};
use super::{url_log::UrlLog, wait::until};

/// The sites, served until the test's runtime ends.
pub struct LoginSites {
    pub ada: Member,
    /// The second account of the picker.
    pub grace: Member,
    /// The URLs of all requests, and their referrers.
    pub urls: UrlLog,
    port: u16,
    secure_port: u16,
    /// The hash of the certificate's key, as Chromium's flag expects it.
    key_hash: String,
    state: SharedState,
}

impl LoginSites {
    pub async fn serve() -> LoginSites {
        let [ada, grace] = ["Ada Lovelace", "Grace Hopper"].map(Member::new);
        let state = SharedState::new(vec![ada.clone(), grace.clone()]);
        let urls = UrlLog::default();
        let router = router(state.clone(), urls.clone());
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secure = TlsListener::bind(&names()).await;
        let port = plain.local_addr().unwrap().port();
        let (secure_port, key_hash) = (secure.port(), secure.key_hash.clone());
        let plain_router = router.clone().layer(axum::Extension(Scheme::Http));
        tokio::spawn(async move { axum::serve(plain, plain_router).await });
        tokio::spawn(secure.serve(router.layer(axum::Extension(Scheme::Https))));
        LoginSites {
            ada,
            grace,
            urls,
            port,
            secure_port,
            key_hash,
            state,
        }
    }

    /// Returns the port of plain HTTP.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a page over HTTP. Chromium does not replace a session of HTTPS there.
    pub fn url(&self, site: &str, path: &str) -> String {
        format!("http://{site}:{}{path}", self.port)
    }

    /// Returns the URL of a page over HTTPS, on its default port: auth connections accept only
    /// these.
    pub fn secure_url(&self, site: &str, path: &str) -> String {
        format!("https://{site}{path}")
    }

    /// Returns the flag with which Chromium finds the sites.
    pub fn resolver_flag(&self) -> String {
        format!(
            "--chromium-flag=--host-resolver-rules=MAP *.test:443 127.0.0.1:{port}, MAP *.test 127.0.0.1, \
             MAP {}:443 127.0.0.1:{port}",
            sso::KNOWN_PROVIDER,
            port = self.secure_port,
        )
    }

    /// Returns the flag with which Chromium trusts the sites' certificate.
    pub fn certificate_flag(&self) -> String {
        format!(
            "--chromium-flag=--ignore-certificate-errors-spki-list={}",
            self.key_hash
        )
    }

    /// Returns all forms that were submitted, in their order.
    pub fn received(&self) -> Vec<ReceivedForm> {
        self.state.lock().received.clone()
    }

    /// Returns the forms that were submitted to a site, in their order.
    pub fn received_by(&self, site: &str) -> Vec<ReceivedForm> {
        let mut received = self.received();
        received.retain(|form| form.site == site);
        received
    }

    /// Returns the places that have received a value: `password.test /login password`.
    pub fn places_of(&self, value: &str) -> Vec<String> {
        let places = self.received().into_iter().flat_map(|form| {
            let ReceivedForm { site, path, fields } = form;
            let fields = fields.into_iter().filter(|(_, received)| received == value);
            fields
                .map(|(name, _)| format!("{site} {path} {name}"))
                .collect::<Vec<_>>()
        });
        places.collect()
    }

    /// Ends the sessions of all sites, as a restarted server without stored sessions does.
    pub fn expire_sessions(&self) {
        self.state.lock().sessions.clear();
    }

    /// Ends the sessions of one site.
    pub fn expire_sessions_of(&self, site: &str) {
        let mut state = self.state.lock();
        state.sessions.retain(|_, session| session.site != site);
    }

    /// Makes a site be down, or up again.
    pub fn set_down(&self, site: &'static str, is_down: bool) {
        let mut state = self.state.lock();
        match is_down {
            true => state.down.insert(site),
            false => state.down.remove(site),
        };
    }

    /// Makes a site not recognize its sessions, or do so again.
    pub fn suspend_sessions(&self, site: &'static str, is_suspended: bool) {
        let mut state = self.state.lock();
        match is_suspended {
            true => state.suspended.insert(site),
            false => state.suspended.remove(site),
        };
    }

    /// Returns the password of a member on a site.
    pub fn password(&self, site: &str, member: &Member) -> String {
        self.state.lock().password(site, &member.user)
    }

    /// Sets the password of a member on a site. Sessions stay valid.
    pub fn set_password(&self, site: &'static str, member: &Member, password: &str) {
        let mut state = self.state.lock();
        state.set_password(site, &member.user, password.to_owned());
    }

    /// Waits for the next code that `sms.test` sends, and returns it.
    pub async fn sms_code(&self) -> String {
        let poll = async || self.state.lock().sent_codes.pop_front();
        until("a code by text message", poll).await
    }

    /// Waits for a login at `push.test`, and approves all of them.
    pub async fn approve_push(&self) {
        let poll = async || self.state.lock().approve_pushes().then_some(());
        until("a push notification", poll).await;
    }

    /// Sets the URL to which `redirect.test` redirects after the user name. At first it is an
    /// internal address.
    pub fn redirect_to(&self, url: &str) {
        url.clone_into(&mut self.state.lock().redirect_url);
    }
}

type SiteRouters = Arc<HashMap<&'static str, Router>>;

/// Returns the routes of each site by its host name.
fn sites() -> HashMap<&'static str, Router> {
    HashMap::from([
        ("captcha.test", captcha::routes()),
        ("change.test", change::routes()),
        ("consent.test", scripted::consent()),
        ("discover.test", password::discover()),
        ("down.test", password::down()),
        ("elsewhere.test", password::routes()),
        ("expiry.test", password::routes()),
        ("idp.test", sso::identity_provider()),
        ("iframe.test", frames::page()),
        ("known-sso.test", sso::routes()),
        (sso::KNOWN_PROVIDER, sso::identity_provider()),
        ("login.iframe.test", frames::frame()),
        ("password.test", password::routes()),
        ("phone.test", phone::routes()),
        ("picker.test", steps::picker()),
        ("popup.test", sso::popup()),
        ("push.test", factors::push()),
        ("question.test", factors::question()),
        ("redirect.test", steps::redirect()),
        ("remember.test", factors::remember()),
        ("rerender.test", scripted::rerender()),
        ("shadow.test", scripted::shadow()),
        ("slow.test", scripted::slow()),
        ("sms.test", factors::sms()),
        ("sso.test", sso::routes()),
        ("totp.test", factors::totp()),
        ("two-steps.test", steps::routes()),
    ])
}

fn names() -> Vec<String> {
    sites().into_keys().map(str::to_owned).collect()
}

fn router(state: SharedState, urls: UrlLog) -> Router {
    Router::new()
        .fallback(dispatch)
        .with_state((Arc::new(sites()), state))
        .layer(from_fn_with_state(urls, UrlLog::record))
}

/// Serves a request with the routes of the site that its `Host` header names.
async fn dispatch(
    State((sites, state)): State<(SiteRouters, SharedState)>,
    axum::Extension(scheme): axum::Extension<Scheme>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
    let host = host.unwrap_or_default();
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let Some((&site, router)) = sites.get_key_value(name) else {
        return (StatusCode::NOT_FOUND, "no site has this name").into_response();
    };
    if state.lock().down.contains(site) {
        return (StatusCode::SERVICE_UNAVAILABLE, "under maintenance").into_response();
    }
    let mut request = match receive_form(site, &state, request).await {
        Ok(request) => request,
        Err(status) => return status.into_response(),
    };
    let site_request = SiteRequest::new(site, scheme, &headers, state);
    request.extensions_mut().insert(site_request);
    match router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
