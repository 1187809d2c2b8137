//! Requests to agents to fill the page in front.

use std::time::Duration;

use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::agent_client::{AgentClient, AgentEndpoint, AgentError};
use crate::api::credential_fill::{
    FillField, FillOutcome, FillResponse, FilledField, FrontPageAddress,
};

/// The bytes of the body of a request beside its values.
const BODY_OVERHEAD: usize = 16 << 10;
/// The most bytes of JSON for a byte of text.
const MAX_ESCAPE: usize = 6;

/// A request to an agent. It is serialized only into the body of that request.
pub struct AgentFill<'a> {
    pub domain: &'a str,
    pub values: &'a [(String, SecretString)],
    pub fields: Option<&'a [FillField]>,
    pub allowed_domains: &'a [String],
    pub submit: bool,
    /// Finds the fields and writes nothing.
    pub dry_run: bool,
    /// Permits pages with `http` of other machines.
    pub allow_http: bool,
}

impl AgentFill<'_> {
    /// Returns the response if the agent has not reported what it has done.
    pub(super) fn unknown_response(&self) -> FillResponse {
        let names: Vec<&str> = match self.fields {
            Some(fields) => fields.iter().map(|field| field.name.as_str()).collect(),
            None => self.values.iter().map(|(name, _)| name.as_str()).collect(),
        };
        let fields = names.into_iter().map(|name| FilledField {
            name: name.to_owned(),
            outcome: FillOutcome::Unknown,
        });
        FillResponse {
            fields: fields.collect(),
            submitted: false,
            url: String::new(),
        }
    }
}

impl AgentClient {
    /// Fills the page in front of the browser.
    pub async fn fill_credentials(
        &self,
        agent: &AgentEndpoint,
        fill: &AgentFill<'_>,
        timeout: Duration,
    ) -> Result<FillResponse, AgentError> {
        let sizes = fill
            .values
            .iter()
            .map(|(name, value)| name.len() + value.expose_secret().len());
        // Large enough for the whole body, so that no part of it is left in memory.
        let capacity = sizes.sum::<usize>() * MAX_ESCAPE + BODY_OVERHEAD;
        let mut body = Zeroizing::new(Vec::with_capacity(capacity));
        let written = serde_json::to_writer(&mut *body, fill);
        written.map_err(|error| AgentError::InvalidResponse(error.to_string()))?;
        let body = Bytes::from_owner(body);
        self.post(agent, "/credentials/fill", body, timeout).await
    }

    /// Returns the URL of the page in front, without its query and its fragment.
    pub async fn front_page_url(
        &self,
        agent: &AgentEndpoint,
        timeout: Duration,
    ) -> Result<String, AgentError> {
        let page: FrontPageAddress = self.get(agent, "/credentials/page", timeout).await?;
        Ok(page.url)
    }
}

impl Serialize for AgentFill<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("domain", self.domain)?;
        map.serialize_entry("values", &ExposedValues(self.values))?;
        if let Some(fields) = self.fields {
            let fields: Vec<_> = fields.iter().map(ExposedField).collect();
            map.serialize_entry("fields", &fields)?;
        }
        map.serialize_entry("allowed_domains", self.allowed_domains)?;
        map.serialize_entry("submit", &self.submit)?;
        map.serialize_entry("dry_run", &self.dry_run)?;
        map.serialize_entry("allow_http", &self.allow_http)?;
        map.end()
    }
}

/// Values in the body of a request to an agent.
struct ExposedValues<'a>(&'a [(String, SecretString)]);

impl Serialize for ExposedValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            self.0
                .iter()
                .map(|(name, value)| (name, value.expose_secret())),
        )
    }
}

/// A field in the body of a request to an agent.
struct ExposedField<'a>(&'a FillField);

impl Serialize for ExposedField<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", self.0.name.as_str())?;
        if let Some(selector) = &self.0.selector {
            map.serialize_entry("selector", selector.as_str())?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use deserr::errors::JsonError;
    use serde_json::json;

    use super::*;
    use crate::api::credential_fill::{AgentFillRequest, FillFields};

    #[test]
    fn agent_reads_each_field_of_a_request() {
        let fields = json!([{"name": "password", "selector": "#p"}, {"name": "username"}]);
        let fields = deserr::deserialize::<FillFields, _, JsonError>(fields).unwrap();
        let values = [
            ("username".to_owned(), SecretString::from("a \"name\"")),
            ("password".to_owned(), SecretString::from("ü".repeat(2048))),
        ];
        let fill = AgentFill {
            domain: "example.com",
            values: &values,
            fields: Some(fields.as_slice()),
            allowed_domains: &["login.example".to_owned()],
            submit: true,
            dry_run: true,
            allow_http: true,
        };
        let body = serde_json::to_value(&fill).unwrap();
        let read = deserr::deserialize::<AgentFillRequest, _, JsonError>(body);
        let read = read.map_err(|error| error.to_string()).unwrap();
        assert_eq!(read.domain.host().to_string(), "example.com");
        assert_eq!(read.fields, Some(fields.clone()));
        assert_eq!(read.allowed_domains.unwrap().as_slice().len(), 1);
        assert_eq!((read.submit, read.dry_run), (Some(true), Some(true)));
        assert_eq!(read.allow_http, Some(true));
        for (name, value) in read.values.iter() {
            let mut sent = values.iter();
            let (_, sent) = sent.find(|(sent, _)| sent == name.as_str()).unwrap();
            assert_eq!(value.expose(), sent.expose_secret());
        }
        let unknown = fill.unknown_response();
        let names: Vec<_> = unknown.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["password", "username"]);
        assert!(!unknown.submitted);
    }
}
