//! What a script leaves behind: its result, its output, how it ended. All of it bounded while it is written.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::script_protocol::{FromWorker, MAX_OUTPUT, MAX_RESULT, RunOutcome};

/// One output stream of one script.
#[derive(Default)]
pub struct Output {
    written: usize,
    full: bool,
}

impl Output {
    /// What of `text` is to be sent. The line that says that the stream was cut is sent when it happens, not at the end: a
    /// script that writes without end is killed before its end.
    pub fn take(&mut self, name: &str, text: &str) -> Option<String> {
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
            "{kept}{newline}[{name} was cut here: it is over {} MiB]\n",
            MAX_OUTPUT >> 20
        ))
    }

    pub fn is_full(&self) -> bool {
        self.full
    }
}

/// The result's JSON while it is written.
#[derive(Default)]
pub struct ResultText {
    json: String,
    truncated: bool,
}

impl ResultText {
    /// False once it is full.
    pub fn push(&mut self, json: &str) -> bool {
        let room = MAX_RESULT - self.json.len();
        if json.len() <= room {
            self.json.push_str(json);
            return true;
        }
        self.json.push_str(&json[..json.floor_char_boundary(room)]);
        self.truncated = true;
        false
    }
}

/// How the script said it ended.
pub enum Ending {
    Succeeded,
    Failed { error: String, stack: String },
}

/// Turns an ending into the messages for the agent.
pub fn messages(
    ending: Ending,
    result: ResultText,
    stderr: &mut Output,
    reusable: bool,
) -> Vec<FromWorker> {
    let mut messages = Vec::new();
    let mut say = |text: &str| {
        if let Some(text) = stderr.take("stderr", text) {
            messages.push(FromWorker::Stderr(Bytes::from(text)));
        }
    };
    let outcome = match ending {
        Ending::Succeeded => {
            if result.truncated {
                say(&format!(
                    "[the result was cut: as JSON it is over {} MiB, so `result` is a string with its beginning]\n",
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
                say(&format!("{}\n", stack.trim_end()));
            }
            failure(error, reusable)
        }
    };
    messages.push(FromWorker::Done(Box::new(outcome)));
    messages
}

/// How much of an error's message is kept; the call log of a long retry is the longest of the usual ones.
const MAX_ERROR: usize = 64 << 10;

fn failure(mut error: String, reusable: bool) -> RunOutcome {
    if error.len() > MAX_ERROR {
        error.truncate(error.floor_char_boundary(MAX_ERROR));
        error.push_str("… [cut]");
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
    // As a string of JSON inside JSON it grows by its escapes; keep what fits.
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
