//! A script's output, result and end, all bounded while they are written.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::script_protocol::{FromWorker, MAX_OUTPUT, MAX_RESULT, RunOutcome};

/// The state of one output stream of a script.
#[derive(Default)]
pub(crate) struct Output {
    written: usize,
    full: bool,
}

impl Output {
    /// Returns the part of `text` to send. When the limit is reached, the part ends with a notice,
    /// sent at once: a script that writes endlessly is killed, so its end would be too late.
    pub(crate) fn accept(&mut self, name: &str, text: &str) -> Option<String> {
        if self.full {
            return None;
        }
        if self.written + text.len() <= MAX_OUTPUT {
            self.written += text.len();
            return Some(text.to_owned());
        }
        self.full = true;
        let kept = &text[..text.floor_char_boundary(MAX_OUTPUT - self.written)];
        let newline = if kept.is_empty() || kept.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        Some(format!(
            "{kept}{newline}[{name} truncated: the limit of {} MiB is reached]\n",
            MAX_OUTPUT >> 20
        ))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full
    }
}

/// The JSON of a result while it is written.
#[derive(Default)]
pub(crate) struct ResultText {
    json: String,
    truncated: bool,
}

impl ResultText {
    /// Appends `json`. Returns false once the limit is reached.
    pub(crate) fn push(&mut self, json: &str) -> bool {
        let remaining = MAX_RESULT - self.json.len();
        if json.len() <= remaining {
            self.json.push_str(json);
            return true;
        }
        self.json
            .push_str(&json[..json.floor_char_boundary(remaining)]);
        self.truncated = true;
        false
    }
}

/// The end of a script.
pub(crate) enum Ending {
    Succeeded,
    Failed { error: String, stack: String },
}

/// Converts an ending to the messages for the agent.
pub(crate) fn messages(
    ending: Ending,
    result: ResultText,
    stderr: &mut Output,
    reusable: bool,
) -> Vec<FromWorker> {
    let mut messages = Vec::new();
    let mut write_stderr = |text: &str| {
        if let Some(text) = stderr.accept("stderr", text) {
            messages.push(FromWorker::Stderr(Bytes::from(text)));
        }
    };
    let outcome = match ending {
        Ending::Succeeded => {
            if result.truncated {
                write_stderr(&format!(
                    "[result truncated: its JSON exceeds {} MiB, so `result` is a string with its head]\n",
                    MAX_RESULT >> 20
                ));
            }
            let truncated = result.truncated;
            match result_value(result) {
                Ok(value) => RunOutcome {
                    success: true,
                    result: Some(value),
                    error: None,
                    result_truncated: truncated,
                    reusable,
                },
                Err(err) => failure(format!("the result is not JSON: {err}"), reusable),
            }
        }
        Ending::Failed { error, stack } => {
            if !stack.is_empty() {
                write_stderr(&format!("{}\n", stack.trim_end()));
            }
            failure(error, reusable)
        }
    };
    messages.push(FromWorker::Done(Box::new(outcome)));
    messages
}

/// The maximum length of an error message, in bytes. Call logs of long retries are the longest
/// usual ones.
const MAX_ERROR: usize = 64 << 10;

fn failure(mut error: String, reusable: bool) -> RunOutcome {
    if error.len() > MAX_ERROR {
        error.truncate(error.floor_char_boundary(MAX_ERROR));
        error.push_str("… [truncated]");
    }
    RunOutcome {
        success: false,
        result: None,
        error: Some(error),
        result_truncated: false,
        reusable,
    }
}

fn result_value(result: ResultText) -> serde_json::Result<Box<RawValue>> {
    if !result.truncated {
        return RawValue::from_string(result.json);
    }
    // Escapes make the JSON longer when it is encoded as a string: keeps the head that fits.
    let mut length = 2;
    let end = result
        .json
        .char_indices()
        .find(|(_, c)| {
            length += match c {
                '"' | '\\' => 2,
                c => c.len_utf8(),
            };
            length > MAX_RESULT
        })
        .map_or(result.json.len(), |(at, _)| at);
    serde_json::value::to_raw_value(&result.json[..end])
}
