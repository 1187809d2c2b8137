//! The part of a client that fills the login page of its session.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{interval, timeout};

use super::{CALL_INTERVAL, Client, Session, send};
use crate::{
    flows::system::{
        history::{Operation, Outcome},
        logins::Login,
    },
    support::wait::in_time,
};

/// The name of the login that all clients of a project share, and compete for its codes.
const SHARED: &str = "shared";
/// The bounds of the time after which a client leaves, because all codes of its login are used.
const MIN_PATIENCE_MILLIS: usize = 500;
const MAX_PATIENCE_MILLIS: usize = 4000;

impl Client {
    /// Fills the page of a session with the shared login, or that of this client; twice, for
    /// which the login has one code, or two.
    pub(super) async fn fill(&mut self, session: &Session) -> Outcome {
        let name = match self.random.one_in(2) {
            true => SHARED.to_owned(),
            false => format!("client-{}", self.number),
        };
        let Some(login) = self.login(name).await else {
            return Outcome::Unknown;
        };
        let mut outcome = self.open_login(session).await;
        for _ in 0..2 {
            if outcome == Outcome::NotFound {
                break;
            }
            let millis = self.random.below(MAX_PATIENCE_MILLIS - MIN_PATIENCE_MILLIS);
            let patience = Duration::from_millis((MIN_PATIENCE_MILLIS + millis) as u64);
            (outcome, _) = self.fill_with(session, &login, Some(patience)).await;
        }
        outcome
    }

    /// Fills a page with a login whose code is not used yet, when nothing is killed any more, and
    /// waits until the page has the code. So each run has a page that is filled.
    pub async fn fill_at_last(&mut self) {
        let login = in_time("a filled page", self.fill_until_filled()).await;
        let since = self.recorder.started_at();
        self.logins.has_code_of(&login, since).await;
    }

    async fn fill_until_filled(&mut self) -> Login {
        let mut ticks = interval(CALL_INTERVAL);
        loop {
            ticks.tick().await;
            let Some(login) = self.login(format!("last-{}", self.number)).await else {
                continue;
            };
            let Some(session) = self.session.take() else {
                match self.list().await.pop() {
                    Some(name) => self.find(name).await,
                    None => self.create().await,
                }
                continue;
            };
            let (outcome, has_code) = match self.open_login(&session).await {
                Outcome::Done => self.fill_with(&session, &login, None).await,
                other => (other, false),
            };
            if outcome != Outcome::NotFound {
                self.session = Some(session);
            }
            if has_code {
                return login;
            }
        }
    }

    /// Returns the login with a name, if its project certainly has it.
    async fn login(&mut self, name: String) -> Option<Login> {
        let login = Login {
            project: self.project,
            name,
        };
        if !self.known_logins.contains(&login) {
            self.logins.add(&login);
            let request = self.request(Method::POST, "/credentials").await;
            match send(request.json(&login.credential())).await {
                // Another client was faster, or an attempt without a definite outcome.
                Ok((StatusCode::CREATED | StatusCode::CONFLICT, _)) => {}
                _ => return None,
            }
            self.known_logins.insert(login.clone());
        }
        Some(login)
    }

    /// Opens the page of a session.
    async fn open_login(&mut self, session: &Session) -> Outcome {
        let url = self.logins.url_for(&session.id);
        let script = json!({"code": format!("await page.goto('{url}', {{timeout: 5000}})")});
        self.send(session, Method::POST, "/automation/execute", script)
            .await
    }

    /// Fills the page of a session, and returns whether it has got a code.
    async fn fill_with(
        &mut self,
        session: &Session,
        login: &Login,
        patience: Option<Duration>,
    ) -> (Outcome, bool) {
        self.fills += 1;
        let server = self.server().await;
        let request_id = format!("fill-{}-{}", self.number, self.fills);
        let path = format!("/browsers/{}/credentials/fill", session.id);
        let request = self
            .request_to(&server, Method::POST, &path)
            .header("x-request-id", &request_id)
            .json(&json!({"credential": login.name}));
        let operation = Operation::Fill {
            session: session.id.clone(),
            login: login.name.clone(),
            process: server.process,
            request_id,
        };
        let mut has_code = false;
        let filling = async {
            match send(request).await {
                Ok((StatusCode::OK, filled)) => {
                    has_code = is_code_filled(&filled);
                    Outcome::Done
                }
                Ok((StatusCode::NOT_FOUND | StatusCode::GONE, _)) => Outcome::NotFound,
                // Nothing was written, whichever the error is.
                Ok((status, _)) => Outcome::Refused(status.as_u16()),
                Err(failure) => failure.into(),
            }
        };
        let client = (self.number, self.project);
        let call = self.recorder.call(client, operation, filling);
        let outcome = match patience {
            Some(limit) => timeout(limit, call).await.unwrap_or(Outcome::Unknown),
            None => call.await,
        };
        (outcome, has_code)
    }
}

fn is_code_filled(filled: &Value) -> bool {
    let mut fields = filled["fields"].as_array().into_iter().flatten();
    fields.any(|field| field["name"] == "code" && field["outcome"] == "filled")
}
