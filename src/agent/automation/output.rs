//! The output of a script, in bounded memory even if the worker exceeds its own bound.

use crate::system::script::worker::MAX_OUTPUT;

/// Room for the worker's own line about dropped output.
const NOTICE_LEN: usize = 4 << 10;

#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    dropped: usize,
}

impl Output {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = (MAX_OUTPUT + NOTICE_LEN).saturating_sub(self.bytes.len());
        let accepted = bytes.len().min(room);
        self.bytes.extend_from_slice(&bytes[..accepted]);
        self.dropped += bytes.len() - accepted;
    }

    pub(super) fn into_text(self) -> String {
        let mut text = match String::from_utf8(self.bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        if self.dropped > 0 {
            text.push_str(&format!("\n[{} more bytes were dropped]\n", self.dropped));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_over_the_bound_is_dropped_and_counted() {
        let mut output = Output::default();
        output.push(b"begin ");
        for _ in 0..3 {
            output.push(&vec![b'x'; MAX_OUTPUT]);
        }
        let text = output.into_text();
        assert!(text.starts_with("begin "));
        assert!(text.len() < MAX_OUTPUT + 2 * NOTICE_LEN);
        assert!(
            text.ends_with(" more bytes were dropped]\n"),
            "{}",
            &text[text.len() - 80..]
        );
    }
}
