//! Running scripts, on the wire.

use std::{convert::Infallible, fmt, time::Duration};

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, Value, ValuePointerRef, take_cf_content,
};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// The longest script.
pub const MAX_CODE: usize = 1 << 20;

/// A script, and how it is run.
#[derive(Debug, Deserr, ToSchema)]
pub struct ExecuteRequest {
    /// TypeScript, the body of an async function: `await` and `return` work, and `page`, `context` and `browser` are Playwright's.
    /// 1 MiB at most.
    #[schema(value_type = String, example = "await page.goto('https://example.com'); return page.title()")]
    pub code: Code,
    /// How long it may run.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 300, default = 60)]
    pub timeout_sec: Option<TimeoutSec>,
    /// Runs in the process of that name, which keeps its globals from call to call: 1–64 characters of `A-Z a-z 0-9 . _ -`.
    #[deserr(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 64)]
    pub executor: Option<ExecutorName>,
}

/// What came of a script.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExecuteResponse {
    /// Whether it returned, and did not throw, time out, run out of memory or crash.
    pub success: bool,
    /// What it returned, as JSON.
    #[schema(value_type = serde_json::Value)]
    pub result: Option<Box<RawValue>>,
    /// Why there was no success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub stdout: String,
    pub stderr: String,
}

/// A script that is not empty.
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
            return Err(refused("must not be empty", location));
        }
        Ok(Code(text))
    }
}

/// 1–300 seconds.
#[derive(Debug, Clone, Copy)]
pub struct TimeoutSec(u64);

impl Default for TimeoutSec {
    fn default() -> Self {
        TimeoutSec(60)
    }
}

impl From<TimeoutSec> for Duration {
    fn from(timeout: TimeoutSec) -> Self {
        Duration::from_secs(timeout.0)
    }
}

impl<E: DeserializeError> Deserr<E> for TimeoutSec {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let seconds: i64 = Deserr::<E>::deserialize_from_value(value, location)?;
        match u64::try_from(seconds) {
            Ok(seconds @ 1..=300) => Ok(TimeoutSec(seconds)),
            _ => Err(refused("must be between 1 and 300", location)),
        }
    }
}

/// 1–64 characters of `[A-Za-z0-9._-]`.
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
        let what = "must have 1 to 64 characters of A-Z a-z 0-9 . _ -";
        ExecutorName::new(text).ok_or_else(|| refused(what, location))
    }
}

fn refused<E: DeserializeError>(message: &str, location: ValuePointerRef) -> E {
    let kind = ErrorKind::Unexpected::<Infallible> {
        msg: message.to_owned(),
    };
    take_cf_content(E::error(None, kind, location))
}
