//! The logins that clients fill pages with, and the site of these pages. Each session has a page of
//! its own, which reports every value that is written into it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::Arc,
};

use axum::{
    Form, Router,
    extract::{Path, State},
    response::Html,
    routing::get,
};
use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use totp_rs::{Algorithm, Builder, Secret};

use super::history::{DeliveredValue, Delivery, TestProject};
use crate::support::wait::until;

/// The host name of the site, which is that of the credentials.
const HOST: &str = "localhost";
/// The shortest possible time step of one-time codes, in seconds.
const PERIOD: u64 = 10;
/// The most digits, so that two codes of a run are hardly the same by chance.
const DIGITS: u8 = 8;
/// Sends each value that is written to the site, with the number of its event, because Chromium may
/// send a request again.
const PAGE: &str = "<!doctype html><title>login</title><form>\
    <input name=username autocomplete=username>\
    <input name=password type=password autocomplete=current-password>\
    <input name=code autocomplete=one-time-code><button>Sign in</button></form><script>\
    let count = 0; \
    addEventListener('input', ({target: {name, value}}) => { \
      const event = `${performance.timeOrigin} ${count++}`; \
      const body = new URLSearchParams({event, name, value}); \
      fetch(location.pathname, {method: 'POST', body, keepalive: true}) \
    })</script>";

/// A login of a project, which it has as a credential of that name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Login {
    pub project: TestProject,
    pub name: String,
}

impl Login {
    /// Returns the request that creates the credential.
    pub fn credential(&self) -> Value {
        json!({
            "name": self.name,
            "domain": HOST,
            "values": {"username": self.text("username"), "password": self.text("password")},
            "totp_secret": self.totp_secret().to_base32(),
            "totp_digits": DIGITS,
            "totp_period": PERIOD,
        })
    }

    /// Returns a value that no other login has.
    fn text(&self, name: &str) -> String {
        format!("{name} of {} in {}", self.name, self.project.name())
    }

    /// Returns a secret that no other login has.
    fn totp_secret(&self) -> Secret {
        let digest = Sha256::digest(self.text("secret"));
        Secret::from(digest[..20].to_vec())
    }

    /// Returns all values that a page may receive, with the codes of these time steps.
    fn values(&self, steps: RangeInclusive<u64>) -> Vec<(String, DeliveredValue)> {
        let totp = Builder::new()
            .with_algorithm(Algorithm::SHA1)
            .with_digits(DIGITS)
            .with_step_duration(PERIOD)
            .with_secret(self.totp_secret())
            .build_noncompliant();
        let code = |step| totp.generate(step * PERIOD).to_string();
        let codes = steps.map(|step| (code(step), DeliveredValue::Code(step)));
        let texts = [
            (self.text("username"), DeliveredValue::UserName),
            (self.text("password"), DeliveredValue::Password),
        ];
        texts.into_iter().chain(codes).collect()
    }
}

/// The site. Clones share what its pages have received.
#[derive(Clone)]
pub struct LoginPages {
    url: String,
    logins: Arc<Mutex<BTreeSet<Login>>>,
    received: Arc<Mutex<Vec<(String, Report)>>>,
}

/// A value, as the page of a session reports it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Report {
    event: String,
    name: String,
    value: String,
}

impl LoginPages {
    pub async fn serve() -> LoginPages {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let pages = LoginPages {
            url: format!("http://{HOST}:{port}"),
            logins: Arc::default(),
            received: Arc::default(),
        };
        let page = get(async || Html(PAGE)).post(receive);
        let router = Router::new().route("/{session}", page);
        let router = router.with_state(pages.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        pages
    }

    /// Returns the address of the page of a session.
    pub fn url_for(&self, session: &str) -> String {
        format!("{}/{session}", self.url)
    }

    /// Adds a login, by which values are recognized.
    pub fn add(&self, login: &Login) {
        self.logins.lock().insert(login.clone());
    }

    /// Waits until a page has received a code of a login.
    pub async fn has_code_of(&self, login: &Login, since: DateTime<Utc>) {
        until("a code in a page", async || {
            let mut deliveries = self.deliveries(since).into_iter();
            let found = deliveries.find(|delivery| {
                let is_code = matches!(delivery.value, DeliveredValue::Code(_));
                is_code && delivery.project == login.project && delivery.login == login.name
            });
            found.map(drop)
        })
        .await;
    }

    /// Returns all values that pages have received. The codes are of time steps `since` a time.
    pub fn deliveries(&self, since: DateTime<Utc>) -> Vec<Delivery> {
        let step_of = |time: DateTime<Utc>| time.timestamp().cast_unsigned() / PERIOD;
        let steps = step_of(since)..=step_of(Utc::now());
        let logins = self.logins.lock().clone();
        let mut known = BTreeMap::new();
        for login in &logins {
            let values = login.values(steps.clone()).into_iter();
            known.extend(values.map(|(text, value)| (text, (login, value))));
        }
        let received = self.received.lock().clone().into_iter();
        let deliveries = received.map(|(session, report)| {
            let Some((login, value)) = known.get(&report.value) else {
                panic!("{session} has received {report:?}");
            };
            Delivery {
                session,
                project: login.project,
                login: login.name.clone(),
                value: *value,
            }
        });
        deliveries.collect()
    }
}

async fn receive(
    State(pages): State<LoginPages>,
    Path(session): Path<String>,
    Form(report): Form<Report>,
) {
    let report = (session, report);
    let mut received = pages.received.lock();
    if !received.contains(&report) {
        received.push(report);
    }
}
