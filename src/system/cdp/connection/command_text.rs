//! Commands in JSON, without copies of their parameters in memory.

use std::{io, mem};

use chromiumoxide::cdp::browser_protocol::target::SessionId;
use secrecy::zeroize::Zeroizing;
use serde::{Serialize, ser::Error};

#[derive(Serialize)]
struct Command<'a, P> {
    id: u32,
    method: &'a str,
    params: &'a P,
    #[serde(rename = "sessionId", skip_serializing_if = "Option::is_none")]
    session: Option<&'a SessionId>,
}

/// Returns a command in JSON. It is written once, into a buffer of its length: one that grew would
/// leave parts of it in memory.
pub(super) fn encode(
    id: u32,
    method: &str,
    params: &impl Serialize,
    session: Option<&SessionId>,
) -> serde_json::Result<Zeroizing<String>> {
    let command = Command {
        id,
        method,
        params,
        session,
    };
    let mut length = ByteCount(0);
    serde_json::to_writer(&mut length, &command)?;
    let mut text = Zeroizing::new(Vec::with_capacity(length.0));
    serde_json::to_writer(&mut *text, &command)?;
    let text = String::from_utf8(mem::take(&mut *text));
    text.map(Zeroizing::new).map_err(Error::custom)
}

/// Counts the bytes that are written to it.
struct ByteCount(usize);

impl io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
