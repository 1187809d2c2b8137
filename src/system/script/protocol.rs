//! What the agent and a script worker say to each other.
//!
//! Both ends include this file: the library as a module, `berth-script` by path, so that the worker does not link the daemon.
//! A frame is its payload's length (`u32`, little-endian), one byte that says what it is, and the payload. CDP messages pass
//! as the JSON text that Chromium or Playwright wrote; nothing on the way decodes them.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The longest payload either side accepts. A CDP message that carries a large screenshot or body fits; a peer that sends more is broken.
pub const MAX_PAYLOAD: usize = 64 << 20;
/// Length and kind.
pub const HEADER: usize = 5;
/// How much of `result` is kept.
pub const MAX_RESULT: usize = 8 << 20;
/// How much of each output stream is kept, before the line that says that the rest was dropped.
pub const MAX_OUTPUT: usize = 1 << 20;

/// Where a script finds what the browser downloaded for it, in its own directory. The agent puts it there.
pub const DOWNLOADS: &str = ".downloads";
/// How many files and directories a script may have; each costs an inode however small it is.
pub const MAX_ENTRIES: usize = 4096;

/// Agent to worker.
#[derive(Debug)]
pub enum ToWorker {
    /// A message of the browser, for Playwright.
    Cdp(Bytes),
    /// The script of the `Run` that follows, to be compiled meanwhile.
    Prepare(Script),
    /// Runs the script that was prepared last.
    Run(RunRequest),
}

/// Worker to agent.
#[derive(Debug)]
pub enum FromWorker {
    /// A message of Playwright, for the browser.
    Cdp(Bytes),
    /// Playwright is connected; the next `Run` starts at once.
    Attached,
    Stdout(Bytes),
    Stderr(Bytes),
    /// The answer to one `Run`.
    Done(Box<RunOutcome>),
    /// The worker could not start or attach and ends.
    Failed(String),
}

/// One script.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Script {
    /// TypeScript, the body of an async function.
    pub code: String,
    /// How stack traces name the script.
    pub file_name: String,
}

/// What a script finds as `page`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Page {
    /// The tab with this CDP target id.
    Tab(String),
    /// A fresh `about:blank`.
    Fresh,
    /// Nothing: the script names nothing of the browser's.
    Unused,
}

/// Where and for how long a script is to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRequest {
    pub page: Page,
    /// When the worker stops the script by itself, so that the answer can say where it hung. The agent kills the worker
    /// a little later, whatever the worker does.
    pub timeout_ms: u64,
}

/// How one script ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunOutcome {
    pub success: bool,
    /// The returned value as JSON, never longer than [`MAX_RESULT`].
    pub result: Option<Box<RawValue>>,
    /// Playwright's message, or the script's own.
    pub error: Option<String>,
    /// `result` is a string: the beginning of JSON that was too long.
    #[serde(default)]
    pub result_truncated: bool,
    /// Whether the worker may run another script. Not after the heap was exhausted or the script was stopped in the middle.
    pub reusable: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes is over the bound of {MAX_PAYLOAD}")]
    TooLong(usize),
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    #[error("malformed frame: {0}")]
    Malformed(String),
}

impl From<serde_json::Error> for FrameError {
    fn from(err: serde_json::Error) -> Self {
        FrameError::Malformed(err.to_string())
    }
}

impl From<std::string::FromUtf8Error> for FrameError {
    fn from(err: std::string::FromUtf8Error) -> Self {
        FrameError::Malformed(err.to_string())
    }
}

/// A message that knows its place in a frame. The kinds are the wire format: a number, once given, keeps its meaning.
pub trait Frame: Sized {
    /// The kind and the payload.
    fn encode(self) -> Result<(u8, Bytes), FrameError>;
    fn decode(kind: u8, payload: Bytes) -> Result<Self, FrameError>;
}

impl Frame for ToWorker {
    fn encode(self) -> Result<(u8, Bytes), FrameError> {
        Ok(match self {
            ToWorker::Cdp(text) => (1, text),
            ToWorker::Run(request) => (3, serde_json::to_vec(&request)?.into()),
            ToWorker::Prepare(script) => (4, serde_json::to_vec(&script)?.into()),
        })
    }

    fn decode(kind: u8, payload: Bytes) -> Result<Self, FrameError> {
        Ok(match kind {
            1 => ToWorker::Cdp(payload),
            3 => ToWorker::Run(serde_json::from_slice(&payload)?),
            4 => ToWorker::Prepare(serde_json::from_slice(&payload)?),
            other => return Err(FrameError::UnknownKind(other)),
        })
    }
}

impl Frame for FromWorker {
    fn encode(self) -> Result<(u8, Bytes), FrameError> {
        Ok(match self {
            FromWorker::Cdp(text) => (1, text),
            FromWorker::Attached => (2, Bytes::new()),
            FromWorker::Stdout(bytes) => (3, bytes),
            FromWorker::Stderr(bytes) => (4, bytes),
            FromWorker::Done(outcome) => (5, serde_json::to_vec(&outcome)?.into()),
            FromWorker::Failed(reason) => (6, reason.into()),
        })
    }

    fn decode(kind: u8, payload: Bytes) -> Result<Self, FrameError> {
        Ok(match kind {
            1 => FromWorker::Cdp(payload),
            2 => FromWorker::Attached,
            3 => FromWorker::Stdout(payload),
            4 => FromWorker::Stderr(payload),
            5 => FromWorker::Done(serde_json::from_slice(&payload)?),
            6 => FromWorker::Failed(String::from_utf8(payload.into())?),
            other => return Err(FrameError::UnknownKind(other)),
        })
    }
}

/// The bytes that precede a payload.
pub fn header(kind: u8, payload: &[u8]) -> Result<[u8; HEADER], FrameError> {
    let length = u32::try_from(payload.len())
        .ok()
        .filter(|_| payload.len() <= MAX_PAYLOAD)
        .ok_or(FrameError::TooLong(payload.len()))?;
    let mut header = [kind; HEADER];
    (&mut header[..4]).put_u32_le(length);
    Ok(header)
}

/// Takes the next whole frame off the front of `buffer`, if it is all there.
pub fn take<F: Frame>(buffer: &mut BytesMut) -> Result<Option<F>, FrameError> {
    let Some(mut head) = buffer.get(..HEADER) else {
        return Ok(None);
    };
    let (length, kind) = (head.get_u32_le() as usize, head.get_u8());
    if length > MAX_PAYLOAD {
        return Err(FrameError::TooLong(length));
    }
    if buffer.len() < HEADER + length {
        buffer.reserve(HEADER + length - buffer.len());
        return Ok(None);
    }
    buffer.advance(HEADER);
    F::decode(kind, buffer.split_to(length).freeze()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(frame: impl Frame) -> Vec<u8> {
        let (kind, payload) = frame.encode().expect("encodes");
        let mut out = header(kind, &payload).expect("fits").to_vec();
        out.extend_from_slice(&payload);
        out
    }

    #[test]
    fn frames_come_out_whole_however_they_are_cut() {
        let mut wire = bytes_of(ToWorker::Cdp(Bytes::from_static(b"{\"id\":1}")));
        wire.extend(bytes_of(ToWorker::Prepare(Script {
            code: "return 1".to_owned(),
            file_name: "script.ts".to_owned(),
        })));
        for cut in 0..wire.len() {
            let mut buffer = BytesMut::from(&wire[..cut]);
            let mut seen = Vec::new();
            while let Some(frame) = take::<ToWorker>(&mut buffer).expect("valid") {
                seen.push(frame);
            }
            buffer.extend_from_slice(&wire[cut..]);
            while let Some(frame) = take::<ToWorker>(&mut buffer).expect("valid") {
                seen.push(frame);
            }
            assert!(
                matches!(&seen[..], [ToWorker::Cdp(text), ToWorker::Prepare(script)] if text == "{\"id\":1}" && script.code == "return 1")
            );
        }
    }

    #[test]
    fn a_frame_over_the_bound_is_refused_from_its_header() {
        let mut buffer = BytesMut::new();
        buffer.put_u32_le(MAX_PAYLOAD as u32 + 1);
        buffer.put_u8(1);
        assert!(matches!(
            take::<FromWorker>(&mut buffer),
            Err(FrameError::TooLong(_))
        ));
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        let mut buffer = BytesMut::from(&[0, 0, 0, 0, 99][..]);
        assert!(matches!(
            take::<FromWorker>(&mut buffer),
            Err(FrameError::UnknownKind(99))
        ));
    }
}
