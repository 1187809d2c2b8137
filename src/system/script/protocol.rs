//! The protocols between the agent and its script processes: the template, which forks a worker per
//! request, and the workers.
//!
//! Both ends include this file: the library as a module, and `berth-script` by path, so that the
//! worker does not link the daemon. On a worker's socket, a frame consists of the length of its
//! payload (`u32`, little-endian), one byte for its kind, and the payload. CDP messages are passed
//! as the JSON text that Chromium or Playwright has written.
//!
//! ```text
//! agent                         worker
//!   |<------- Cdp, Cdp ... ------->|   Playwright attaches
//!   |<----------- Ready -----------|   (or Failed)
//!   |----------- Prepare --------->|   compile
//!   |------------- Run ----------->|
//!   |<- Stdout, Stderr, Cdp, Cdp ->|
//!   |<-------- HttpRequest --------|
//!   |-- HttpHead, HttpBody … End ->|   (or HttpFailed)
//!   |<------------ Done -----------|
//! ```

use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The longest payload in bytes that either side accepts, as long as the longest message of
/// Chromium. A longer one is a protocol error. Whether a worker has room for one depends on its
/// memory limit.
pub const MAX_PAYLOAD: usize = 256 << 20;
/// The size of a frame's header in bytes: length and kind.
pub const HEADER: usize = 5;
/// The longest `result` in bytes. A longer one is cut.
pub const MAX_RESULT: usize = 8 << 20;
/// The most bytes retained of each output stream. A line after them reports dropped output.
pub const MAX_OUTPUT: usize = 1 << 20;

/// The longest head of a script's HTTP request in bytes: its URL and headers as JSON.
pub const MAX_HTTP_HEAD: usize = 256 << 10;
/// The longest body of a script's HTTP request in bytes.
pub const MAX_HTTP_REQUEST: usize = 32 << 20;
/// The longest body of a response in bytes, before and after it is decompressed.
pub const MAX_HTTP_RESPONSE: usize = 128 << 20;

/// The longest datagram in bytes between the agent and the template.
pub const MAX_FORK_MESSAGE: usize = 4096;

/// The directory in a script's scratch directory into which the agent delivers downloads.
pub const DOWNLOADS: &str = ".downloads";
/// The most files and directories of a script. Each takes an inode, even if it is empty.
pub const MAX_ENTRIES: usize = 4096;

/// A request for a worker, as JSON in one datagram with two descriptors: the worker's end of its
/// socket, and its standard error.
#[derive(Debug, Serialize, Deserialize)]
pub struct ForkRequest {
    /// The name of the worker's directory in the directory of all scratch directories.
    pub scratch: String,
    /// Whether it attaches to the browser before it is ready.
    pub attaches: bool,
}

/// The template's reply, as JSON in one datagram.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkReply {
    /// The worker runs, as a child of the agent.
    Forked {
        pid: i32,
    },
    Failed {
        reason: String,
    },
}

/// A message from the agent to the worker.
#[derive(Debug)]
pub enum ToWorker {
    /// A message from the browser to Playwright.
    Cdp(Bytes),
    /// The script of the next `Run`, which the worker compiles at once.
    Prepare(Script),
    /// Runs the last prepared script.
    Run(RunRequest),
    HttpHead(Box<HttpResponse>),
    /// A part of the body of the response with this id.
    HttpBody(u32, Bytes),
    /// The response with this id is complete.
    HttpEnd(u32),
    HttpFailed(HttpFailure),
}

/// A message from the worker to the agent.
#[derive(Debug)]
pub enum FromWorker {
    /// A message from Playwright to the browser.
    Cdp(Bytes),
    /// The next `Run` starts at once: Playwright is attached, unless the worker is not to attach.
    Ready,
    Stdout(Bytes),
    Stderr(Bytes),
    /// The result of a `Run`.
    Done(Box<RunOutcome>),
    /// The worker cannot start or attach, and exits.
    Failed(String),
    /// A request that the agent performs, with its body.
    HttpRequest(Box<HttpRequest>, Bytes),
    /// The worker needs no response to the request with this id.
    HttpCancel(u32),
}

/// A script's HTTP request. Characters of headers stand for bytes.
#[derive(Debug, Serialize, Deserialize)]
pub struct HttpRequest {
    pub id: u32,
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// Whether the server may have any certificate.
    pub insecure: bool,
}

/// The head of the response to the request with the same id. Characters of headers stand for bytes.
#[derive(Debug, Serialize, Deserialize)]
pub struct HttpResponse {
    pub id: u32,
    /// The version of HTTP, such as `1.1`.
    pub version: String,
    pub status: u16,
    pub reason: String,
    pub headers: Vec<(String, String)>,
    pub server: Option<SocketAddr>,
}

/// Why the request with this id has no response, or no complete one.
#[derive(Debug, Serialize, Deserialize)]
pub struct HttpFailure {
    pub id: u32,
    /// The code of the error in Node, such as `ECONNREFUSED`.
    pub code: String,
    pub reason: String,
}

/// A script.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Script {
    /// The source: TypeScript, the body of an async function.
    pub code: String,
    /// The script's name in stack traces.
    pub file_name: String,
}

/// The value of a script's `page`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Page {
    /// The tab with this CDP target id.
    Tab(String),
    /// A new tab with `about:blank`.
    Fresh,
    /// No page: the script does not use the browser.
    Unused,
}

/// The parameters of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRequest {
    pub page: Page,
    /// The timeout after which the worker stops the script, so that the error can report where the
    /// script was. The agent kills a worker that does not do so a little later.
    pub timeout_ms: u64,
}

/// The result of a script.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunOutcome {
    pub success: bool,
    /// The returned value as JSON, of at most [`MAX_RESULT`] bytes.
    pub result: Option<Box<RawValue>>,
    /// The message of an error, from Playwright or from the script.
    pub error: Option<String>,
    /// Whether `result` is a string with the start of JSON that was too long.
    #[serde(default)]
    pub result_truncated: bool,
    /// Whether the worker can run another script. It cannot after it ran out of heap or stopped a
    /// script.
    pub reusable: bool,
}

/// Why a frame is invalid.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("frame of {0} bytes exceeds the limit ({MAX_PAYLOAD})")]
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

/// A message with an encoding as a frame. The kinds are part of the wire format: numbers are never
/// reused.
pub trait Frame: Sized {
    /// Returns the kind and the payload.
    fn encode(self) -> Result<(u8, Bytes), FrameError>;
    fn decode(kind: u8, payload: Bytes) -> Result<Self, FrameError>;
}

impl Frame for ToWorker {
    fn encode(self) -> Result<(u8, Bytes), FrameError> {
        Ok(match self {
            ToWorker::Cdp(text) => (1, text),
            ToWorker::Run(request) => (3, serde_json::to_vec(&request)?.into()),
            ToWorker::Prepare(script) => (4, serde_json::to_vec(&script)?.into()),
            ToWorker::HttpHead(head) => (5, serde_json::to_vec(&head)?.into()),
            ToWorker::HttpBody(id, bytes) => (6, with_prefix(&id.to_le_bytes(), &bytes)),
            ToWorker::HttpEnd(id) => (7, Bytes::copy_from_slice(&id.to_le_bytes())),
            ToWorker::HttpFailed(failure) => (8, serde_json::to_vec(&failure)?.into()),
        })
    }

    fn decode(kind: u8, mut payload: Bytes) -> Result<Self, FrameError> {
        Ok(match kind {
            1 => ToWorker::Cdp(payload),
            3 => ToWorker::Run(serde_json::from_slice(&payload)?),
            4 => ToWorker::Prepare(serde_json::from_slice(&payload)?),
            5 => ToWorker::HttpHead(serde_json::from_slice(&payload)?),
            6 => ToWorker::HttpBody(take_number(&mut payload)?, payload),
            7 => ToWorker::HttpEnd(take_number(&mut payload)?),
            8 => ToWorker::HttpFailed(serde_json::from_slice(&payload)?),
            other => return Err(FrameError::UnknownKind(other)),
        })
    }
}

impl Frame for FromWorker {
    fn encode(self) -> Result<(u8, Bytes), FrameError> {
        Ok(match self {
            FromWorker::Cdp(text) => (1, text),
            FromWorker::Ready => (2, Bytes::new()),
            FromWorker::Stdout(bytes) => (3, bytes),
            FromWorker::Stderr(bytes) => (4, bytes),
            FromWorker::Done(outcome) => (5, serde_json::to_vec(&outcome)?.into()),
            FromWorker::Failed(reason) => (6, reason.into()),
            FromWorker::HttpRequest(head, body) => {
                let head = serde_json::to_vec(&head)?;
                let length = u32::try_from(head.len());
                let length = length.map_err(|_| FrameError::TooLong(head.len()))?;
                let prefix = [&length.to_le_bytes(), head.as_slice()].concat();
                (7, with_prefix(&prefix, &body))
            }
            FromWorker::HttpCancel(id) => (8, Bytes::copy_from_slice(&id.to_le_bytes())),
        })
    }

    fn decode(kind: u8, mut payload: Bytes) -> Result<Self, FrameError> {
        Ok(match kind {
            1 => FromWorker::Cdp(payload),
            2 => FromWorker::Ready,
            3 => FromWorker::Stdout(payload),
            4 => FromWorker::Stderr(payload),
            5 => FromWorker::Done(serde_json::from_slice(&payload)?),
            6 => FromWorker::Failed(String::from_utf8(payload.into())?),
            7 => {
                let length = take_number(&mut payload)? as usize;
                if length > payload.len() {
                    return Err(FrameError::Malformed("incomplete head".to_owned()));
                }
                let head = payload.split_to(length);
                if head.len() > MAX_HTTP_HEAD || payload.len() > MAX_HTTP_REQUEST {
                    return Err(FrameError::TooLong(head.len() + payload.len()));
                }
                // A copy: the payload is a part of the memory of what was read with it.
                let body = Bytes::copy_from_slice(&payload);
                FromWorker::HttpRequest(serde_json::from_slice(&head)?, body)
            }
            8 => FromWorker::HttpCancel(take_number(&mut payload)?),
            other => return Err(FrameError::UnknownKind(other)),
        })
    }
}

fn with_prefix(prefix: &[u8], bytes: &[u8]) -> Bytes {
    let mut joined = BytesMut::with_capacity(prefix.len() + bytes.len());
    joined.extend_from_slice(prefix);
    joined.extend_from_slice(bytes);
    joined.freeze()
}

/// Removes a number from the front of a payload.
fn take_number(payload: &mut Bytes) -> Result<u32, FrameError> {
    let number = payload.try_get_u32_le();
    number.map_err(|_| FrameError::Malformed("incomplete number".to_owned()))
}

/// Returns the header of a frame.
pub fn header(kind: u8, payload: &[u8]) -> Result<[u8; HEADER], FrameError> {
    let length = u32::try_from(payload.len())
        .ok()
        .filter(|_| payload.len() <= MAX_PAYLOAD)
        .ok_or(FrameError::TooLong(payload.len()))?;
    let mut header = [kind; HEADER];
    (&mut header[..4]).put_u32_le(length);
    Ok(header)
}

/// Removes the next frame from the front of `buffer`. Returns `None` if it is incomplete.
pub fn take<F: Frame>(buffer: &mut BytesMut) -> Result<Option<F>, FrameError> {
    let Some(mut header) = buffer.get(..HEADER) else {
        return Ok(None);
    };
    let (length, kind) = (header.get_u32_le() as usize, header.get_u8());
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

    fn encode_frame(frame: impl Frame) -> Vec<u8> {
        let (kind, payload) = frame.encode().expect("encodes");
        let mut out = header(kind, &payload).expect("fits").to_vec();
        out.extend_from_slice(&payload);
        out
    }

    #[test]
    fn frames_are_decoded_from_any_split_of_the_stream() {
        let mut wire = encode_frame(ToWorker::Cdp(Bytes::from_static(b"{\"id\":1}")));
        wire.extend(encode_frame(ToWorker::Prepare(Script {
            code: "return 1".to_owned(),
            file_name: "script.ts".to_owned(),
        })));
        for split in 0..wire.len() {
            let mut buffer = BytesMut::from(&wire[..split]);
            let mut frames = Vec::new();
            while let Some(frame) = take::<ToWorker>(&mut buffer).expect("valid") {
                frames.push(frame);
            }
            buffer.extend_from_slice(&wire[split..]);
            while let Some(frame) = take::<ToWorker>(&mut buffer).expect("valid") {
                frames.push(frame);
            }
            assert!(
                matches!(&frames[..], [ToWorker::Cdp(text), ToWorker::Prepare(script)] if text == "{\"id\":1}" && script.code == "return 1")
            );
        }
    }

    #[test]
    fn http_messages_are_decoded_to_the_same() {
        let request = HttpRequest {
            id: 7,
            method: "POST".to_owned(),
            url: "http://host/".to_owned(),
            headers: vec![("name".to_owned(), "\u{e9}".to_owned())],
            insecure: false,
        };
        let message = FromWorker::HttpRequest(Box::new(request), Bytes::from_static(b"\0body"));
        let (kind, payload) = message.encode().expect("encodes");
        let Ok(FromWorker::HttpRequest(head, body)) = FromWorker::decode(kind, payload.clone())
        else {
            panic!("another message");
        };
        assert_eq!((head.id, head.headers[0].1.as_str()), (7, "\u{e9}"));
        assert_eq!(body, &b"\0body"[..]);
        for length in 0..payload.len() - body.len() {
            let cut = FromWorker::decode(kind, payload.slice(..length));
            assert!(matches!(cut, Err(FrameError::Malformed(_))), "{length}");
        }

        let (kind, payload) = ToWorker::HttpBody(7, body).encode().expect("encodes");
        let decoded = ToWorker::decode(kind, payload);
        assert!(matches!(decoded, Ok(ToWorker::HttpBody(7, body)) if body == b"\0body"[..]));
        assert!(ToWorker::decode(kind, Bytes::from_static(b"123")).is_err());
    }

    #[test]
    fn oversized_frame_is_rejected_by_its_header() {
        let mut buffer = BytesMut::new();
        buffer.put_u32_le(MAX_PAYLOAD as u32 + 1);
        buffer.put_u8(1);
        assert!(matches!(
            take::<FromWorker>(&mut buffer),
            Err(FrameError::TooLong(_))
        ));
    }

    #[test]
    fn unknown_kind_is_rejected() {
        let mut buffer = BytesMut::from(&[0, 0, 0, 0, 99][..]);
        assert!(matches!(
            take::<FromWorker>(&mut buffer),
            Err(FrameError::UnknownKind(99))
        ));
    }
}
