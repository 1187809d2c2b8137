//! Processes of clients: starting them (`launch`), their input, output and status.

mod launch;

use std::{fmt, sync::Arc};

use base64::{Engine, display::Base64Display, engine::general_purpose::STANDARD};
use bytes::Bytes;
use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

pub use self::launch::{
    Launch, MAX_STRING, MAX_STRINGS, MAX_STRINGS_BYTES, ProcessTimeout, SpawnRequest, TerminalSide,
    Variables,
};
use super::{field::from_text, ids::ProcessId, time::Timestamp};

/// Bytes of one write to a standard input, at most.
pub const MAX_STDIN: usize = 1 << 20;

/// A started process.
#[derive(Debug, Serialize, ToSchema)]
pub struct Spawned {
    /// Id of the process in this API.
    pub process_id: ProcessId,
    /// Process id on the browser's host.
    pub pid: u32,
    pub started_at: Timestamp,
}

/// The result of a program.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExecResponse {
    /// Exit code: 124 after a timeout, 128 plus the signal's number after a signal.
    pub exit_code: i32,
    /// Standard output in base64.
    #[schema(value_type = String, format = Byte)]
    pub stdout_b64: Base64,
    /// Standard error in base64.
    #[schema(value_type = String, format = Byte)]
    pub stderr_b64: Base64,
    /// Whether the standard output exceeded the limit; `stdout_b64` is then its start.
    pub stdout_truncated: bool,
    /// Whether the standard error exceeded the limit; `stderr_b64` is then its start.
    pub stderr_truncated: bool,
    /// Whether a descendant survived and still has an output open, so that output may be missing.
    pub output_open: bool,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// The status of a process.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProcessStatus {
    pub state: ProcessState,
    /// Exit code, 128 plus the signal's number after a signal. Present if the process has exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// CPU usage in percent of one core, of all processes of the session since the last status
    /// request at least 0.5 s ago, or since the start.
    pub cpu_pct: f64,
    /// Resident memory in bytes of all processes of the session. Shared memory counts for each.
    pub mem_bytes: u64,
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    Running,
    Exited,
}

/// Data for a standard input.
#[derive(Debug, Deserr, ToSchema)]
pub struct StdinRequest {
    /// Data in base64, at most 1 MiB decoded.
    #[deserr(default)]
    #[schema(value_type = String, format = Byte)]
    pub data_b64: Option<StdinData>,
    /// Close the standard input after the data. On a terminal this types Ctrl-D, which ends the
    /// input at the start of a line; if the terminal accepts no input, Ctrl-D is delivered before
    /// any later data. Ignored if not all data could be written.
    #[deserr(default)]
    #[schema(value_type = Option<bool>, default = false)]
    pub end: Option<bool>,
}

/// Decoded data of at most [`MAX_STDIN`] bytes.
pub struct StdinData(pub Bytes);

impl fmt::Debug for StdinData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl<E: DeserializeError> Deserr<E> for StdinData {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| match STANDARD.decode(text) {
            Ok(data) if data.len() <= MAX_STDIN => Ok(StdinData(data.into())),
            Ok(_) => Err(format!("must have at most {MAX_STDIN} bytes")),
            Err(_) => Err("must be base64 with padding".to_owned()),
        })
    }
}

/// The result of a write to a standard input.
#[derive(Debug, Serialize, ToSchema)]
pub struct StdinWritten {
    /// Number of bytes written. Less than sent if the process did not read for 5 s or closed its
    /// standard input; the rest may be sent again.
    pub written_bytes: usize,
}

/// The signal for a process and its descendants.
#[derive(Debug, Deserr, ToSchema)]
pub struct KillRequest {
    /// Signal to send.
    #[deserr(default)]
    #[schema(default = "TERM")]
    pub signal: Option<KillSignal>,
}

/// A signal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
pub enum KillSignal {
    #[default]
    #[deserr(rename = "TERM")]
    #[schema(rename = "TERM")]
    Term,
    #[deserr(rename = "KILL")]
    #[schema(rename = "KILL")]
    Kill,
    #[deserr(rename = "INT")]
    #[schema(rename = "INT")]
    Int,
    #[deserr(rename = "HUP")]
    #[schema(rename = "HUP")]
    Hup,
}

/// The new size of a terminal.
#[derive(Debug, Deserr, ToSchema)]
pub struct ResizeRequest {
    /// Number of rows.
    #[schema(value_type = u16, minimum = 1, maximum = 65_535)]
    pub rows: TerminalSide,
    /// Number of columns.
    #[schema(value_type = u16, minimum = 1, maximum = 65_535)]
    pub cols: TerminalSide,
}

/// An event of a process: output, its exit, or dropped events.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProcessEvent {
    /// With output: the stream. Output of a terminal is always `stdout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<OutputStream>,
    /// With output: the data in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Byte)]
    pub data_b64: Option<Base64>,
    /// Kind of an event other than output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<ProcessEventKind>,
    /// With `exit`, the last event: the exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// With `exit`: `true` if other programs still have the output open. Their output is discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_open: Option<bool>,
    /// With `overflow`: number of events that were dropped before they were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

impl ProcessEvent {
    const EMPTY: Self = ProcessEvent {
        stream: None,
        data_b64: None,
        event: None,
        exit_code: None,
        output_open: None,
        missed: None,
    };

    #[must_use]
    pub fn output(stream: OutputStream, data: Bytes) -> Arc<Self> {
        Arc::new(ProcessEvent {
            stream: Some(stream),
            data_b64: Some(Base64(data)),
            ..Self::EMPTY
        })
    }

    #[must_use]
    pub fn exit(code: i32, output_open: bool) -> Arc<Self> {
        Arc::new(ProcessEvent {
            event: Some(ProcessEventKind::Exit),
            exit_code: Some(code),
            output_open: output_open.then_some(true),
            ..Self::EMPTY
        })
    }

    #[must_use]
    pub fn overflow(missed: u64) -> Arc<Self> {
        Arc::new(ProcessEvent {
            event: Some(ProcessEventKind::Overflow),
            missed: Some(missed),
            ..Self::EMPTY
        })
    }
}

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// The kind of a process event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessEventKind {
    /// The process has exited. The last event.
    Exit,
    /// Events were dropped before they were read.
    Overflow,
}

/// Bytes that are serialized as base64.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Base64(pub Bytes);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Written directly, without an intermediate copy.
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

impl fmt::Debug for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
