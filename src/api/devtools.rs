//! Resumable connections to DevTools.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::field::from_text;

/// The subprotocol of resumable connections.
pub const RESUME_PROTOCOL: &str = "berth.resume.v1";

/// The parameters of a DevTools connection.
#[derive(Debug, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DevtoolsQuery {
    /// `new` for a connection that can be resumed, or the id of one to resume. Both need the
    /// subprotocol `berth.resume.v1`.
    #[deserr(default)]
    #[param(value_type = Option<String>, pattern = "^(new|[0-9a-f]{32})$", example = "new")]
    resume: Option<ResumeTarget>,
    /// With the id of a connection: the number of the last message that the client has received.
    #[deserr(default)]
    #[param(value_type = Option<u64>, minimum = 0, example = 17)]
    received: Option<MessageNumber>,
}

/// The id of a resumable connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ResumeId(u128);

/// The value of `resume`.
#[derive(Debug, Clone, Copy)]
enum ResumeTarget {
    New,
    Id(ResumeId),
}

/// The number of a message, from 1, or 0 for none.
#[derive(Debug, Clone, Copy)]
struct MessageNumber(u64);

/// The kind of connection that a client requests.
#[derive(Debug, Clone, Copy)]
pub enum ResumeRequest {
    /// A connection that ends with its WebSocket.
    Plain,
    New,
    Resume {
        id: ResumeId,
        /// The number of the last message that the client has received.
        received: u64,
    },
}

impl DevtoolsQuery {
    /// Returns the kind of connection, or `None` if `resume` and `received` do not fit together.
    #[must_use]
    pub fn request(&self) -> Option<ResumeRequest> {
        match (self.resume, self.received) {
            (None, None) => Some(ResumeRequest::Plain),
            (Some(ResumeTarget::New), None) => Some(ResumeRequest::New),
            (Some(ResumeTarget::Id(id)), Some(MessageNumber(received))) => {
                Some(ResumeRequest::Resume { id, received })
            }
            _ => None,
        }
    }
}

impl<E: DeserializeError> Deserr<E> for ResumeTarget {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text: String| match text.as_str() {
            "new" => Ok(ResumeTarget::New),
            id => ResumeId::parse(id)
                .map(ResumeTarget::Id)
                .ok_or("must be `new` or the id of a connection".to_owned()),
        })
    }
}

impl<E: DeserializeError> Deserr<E> for MessageNumber {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text: String| {
            let number = text.parse().map(MessageNumber);
            number.map_err(|_| "must be the number of a message".to_owned())
        })
    }
}

impl ResumeId {
    /// Returns an id that nobody can guess.
    #[must_use]
    pub fn random() -> Self {
        ResumeId(uuid::Uuid::new_v4().as_u128())
    }

    fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_id = text.len() == 32 && text.bytes().all(is_digit);
        let id = is_id.then(|| u128::from_str_radix(text, 16).ok())?;
        id.map(ResumeId)
    }
}

impl From<ResumeId> for String {
    fn from(id: ResumeId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ResumeId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        ResumeId::parse(&text).ok_or("no id of a connection")
    }
}

impl std::fmt::Display for ResumeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Shows the start alone: the complete id resumes a connection.
impl std::fmt::Debug for ResumeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}…", self.0 >> 96)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_id_is_parsed_to_the_same() {
        let id = ResumeId::random();
        assert_eq!(ResumeId::parse(&id.to_string()), Some(id));
        assert!(!format!("{id:?}").contains(&id.to_string()));
        for text in [
            "",
            "0",
            "new ",
            &"F".repeat(32),
            &"+".repeat(32),
            &"0".repeat(33),
        ] {
            assert_eq!(ResumeId::parse(text), None, "{text}");
        }
    }
}
