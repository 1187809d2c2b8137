//! Script execution.

use std::{convert::Infallible, fmt, time::Duration};

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, Value, ValuePointerRef, take_cf_content,
};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Size limit of a script, in bytes.
pub const MAX_CODE: usize = 1 << 20;

/// A script to execute.
#[derive(Debug, Deserr, ToSchema)]
pub struct ExecuteRequest {
    /// TypeScript or JavaScript: the body of an async function, so `await` and `return` work.
    /// `page`, `context` and `browser` are Playwright objects. At most 1 MiB.
    #[schema(value_type = String, example = "await page.goto('https://example.com'); return page.title()")]
    pub code: Code,
    /// Time limit of the script, in seconds.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 300, default = 60)]
    pub timeout_sec: Option<ScriptTimeout>,
    /// Name of a persistent executor, whose globals are kept between calls: 1–64 characters of
    /// `A-Z a-z 0-9 . _ -`. By default each script runs in a new process.
    #[deserr(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 64)]
    pub executor: Option<ExecutorName>,
}

/// The result of a script.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExecuteResponse {
    /// Whether the script returned. `false` if it threw, timed out, ran out of memory or crashed.
    pub success: bool,
    /// The returned value as JSON.
    #[schema(value_type = serde_json::Value)]
    pub result: Option<Box<RawValue>>,
    /// The reason of the failure. Present if `success` is `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Output of `console.log` and other calls that write to standard output.
    pub stdout: String,
    /// Output of `console.error` and other calls that write to standard error.
    pub stderr: String,
}

/// A script of at least one non-blank character.
#[derive(Debug)]
pub struct Code(String);

impl Code {
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Code {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let text: String = Deserr::<E>::deserialize_from_value(value, location)?;
        if text.trim().is_empty() {
            return Err(invalid("must not be empty", location));
        }
        Ok(Code(text))
    }
}

/// The time limit of a script: 1–300 s, 60 s by default.
#[derive(Debug, Clone, Copy)]
pub struct ScriptTimeout(u64);

impl Default for ScriptTimeout {
    fn default() -> Self {
        ScriptTimeout(60)
    }
}

impl From<ScriptTimeout> for Duration {
    fn from(timeout: ScriptTimeout) -> Self {
        Duration::from_secs(timeout.0)
    }
}

impl<E: DeserializeError> Deserr<E> for ScriptTimeout {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let seconds: i64 = Deserr::<E>::deserialize_from_value(value, location)?;
        match u64::try_from(seconds) {
            Ok(seconds @ 1..=300) => Ok(ScriptTimeout(seconds)),
            _ => Err(invalid("must be a whole number from 1 to 300", location)),
        }
    }
}

/// The name of an executor: 1–64 characters of `[A-Za-z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExecutorName(String);

impl ExecutorName {
    pub const MAX: usize = 64;

    #[must_use]
    pub fn new(name: String) -> Option<Self> {
        let fits = (1..=Self::MAX).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        fits.then_some(ExecutorName(name))
    }
}

impl fmt::Display for ExecutorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: DeserializeError> Deserr<E> for ExecutorName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let text: String = Deserr::<E>::deserialize_from_value(value, location)?;
        let message = "must have 1 to 64 characters of A-Z a-z 0-9 . _ -";
        ExecutorName::new(text).ok_or_else(|| invalid(message, location))
    }
}

fn invalid<E: DeserializeError>(message: &str, location: ValuePointerRef) -> E {
    let kind = ErrorKind::Unexpected::<Infallible> {
        msg: message.to_owned(),
    };
    take_cf_content(E::error(None, kind, location))
}
