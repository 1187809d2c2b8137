//! Requests to agents about the login page in front.

use std::time::Duration;

use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};
use serde::{Serialize, Serializer};

use super::agent_client::{AgentClient, AgentEndpoint, AgentError};
use crate::api::login_page::{InspectedPage, LoginActKind, LoginActResponse};

/// The bytes of the body of an inspection beside the values.
const BODY_OVERHEAD: usize = 1 << 10;
/// The most bytes of JSON for a byte of text.
const MAX_ESCAPE: usize = 6;

/// A request to describe the page in front. It is serialized only into the body of that request.
#[derive(Serialize)]
pub struct LoginInspection<'a> {
    /// The longest wait for the page in milliseconds.
    pub wait_ms: u32,
    /// The response contains none of these.
    #[serde(serialize_with = "expose_all")]
    pub redact: &'a [SecretString],
}

/// A request to click an element of the page that was inspected last.
#[derive(Debug, Serialize)]
pub struct LoginAct<'a> {
    #[serde(rename = "ref")]
    pub reference: &'a str,
    pub kind: LoginActKind,
    pub domain: &'a str,
    pub allowed_domains: &'a [String],
    /// Permits pages with `http` of other machines.
    pub allow_http: bool,
}

#[derive(Serialize)]
struct OpenLogin<'a> {
    url: &'a str,
}

impl AgentClient {
    /// Describes the page in front.
    pub async fn inspect_login(
        &self,
        agent: &AgentEndpoint,
        inspection: &LoginInspection<'_>,
        timeout: Duration,
    ) -> Result<InspectedPage, AgentError> {
        let values = inspection.redact.iter();
        let sizes = values.map(|value| value.expose_secret().len());
        // Large enough for the whole body, so that no part of it is left in memory.
        let capacity = sizes.sum::<usize>() * MAX_ESCAPE + BODY_OVERHEAD;
        let mut body = Zeroizing::new(Vec::with_capacity(capacity));
        let written = serde_json::to_writer(&mut *body, inspection);
        written.map_err(|error| AgentError::InvalidResponse(error.to_string()))?;
        let body = Bytes::from_owner(body);
        self.post(agent, "/login/inspect", body, timeout).await
    }

    /// Clicks an element of the page in front.
    pub async fn act_on_login(
        &self,
        agent: &AgentEndpoint,
        act: &LoginAct<'_>,
        timeout: Duration,
    ) -> Result<LoginActResponse, AgentError> {
        self.post(agent, "/login/act", to_body(act)?, timeout).await
    }

    /// Opens a page in the tab in front.
    pub async fn open_login(
        &self,
        agent: &AgentEndpoint,
        url: &str,
        timeout: Duration,
    ) -> Result<(), AgentError> {
        let body = to_body(&OpenLogin { url })?;
        let response = self.post_bytes(agent, "/login/open", body, timeout);
        response.await.map(drop)
    }
}

fn to_body(request: &impl Serialize) -> Result<Bytes, AgentError> {
    let body = serde_json::to_vec(request);
    let body = body.map_err(|error| AgentError::InvalidResponse(error.to_string()))?;
    Ok(body.into())
}

fn expose_all<S: Serializer>(values: &[SecretString], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ExposeSecret::expose_secret))
}

#[cfg(test)]
mod tests {
    use deserr::errors::JsonError;

    use super::*;
    use crate::api::login_page::{ActOnLoginRequest, InspectLoginRequest, OpenLoginRequest};

    #[test]
    fn agent_reads_each_field_of_a_request() {
        let redact = [SecretString::from("a \"value\"")];
        let inspection = LoginInspection {
            wait_ms: 5000,
            redact: &redact,
        };
        let body = serde_json::to_value(&inspection).unwrap();
        let read = deserr::deserialize::<InspectLoginRequest, _, JsonError>(body);
        let read = read.map_err(|error| error.to_string()).unwrap();
        assert_eq!(read.wait_ms.unwrap().get(), 5000);
        let values = read.redact.unwrap();
        assert_eq!(values.as_slice()[0].expose(), "a \"value\"");
        let act = LoginAct {
            reference: "a-1",
            kind: LoginActKind::Dismiss,
            domain: "example.com",
            allowed_domains: &["login.example".to_owned()],
            allow_http: true,
        };
        let body = serde_json::to_value(&act).unwrap();
        let read = deserr::deserialize::<ActOnLoginRequest, _, JsonError>(body).unwrap();
        assert_eq!((read.reference.as_str(), read.kind), ("a-1", act.kind));
        assert_eq!(read.domain.host().to_string(), "example.com");
        assert_eq!(read.allowed_domains.unwrap().as_slice().len(), 1);
        assert_eq!(read.allow_http, Some(true));
        let open = OpenLogin {
            url: "https://example.com/login",
        };
        let body = serde_json::to_value(&open).unwrap();
        let read = deserr::deserialize::<OpenLoginRequest, _, JsonError>(body).unwrap();
        assert_eq!(read.url.0.as_str(), open.url);
    }
}
