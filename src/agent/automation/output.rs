//! What a script printed, bounded whatever the worker does.

use crate::system::script::worker::MAX_OUTPUT;

/// Room for the worker's own line that says that the rest was dropped.
const NOTICE: usize = 4 << 10;

#[derive(Debug, Default)]
pub struct Output {
    kept: Vec<u8>,
    dropped: usize,
}

impl Output {
    pub fn push(&mut self, bytes: &[u8]) {
        let room = (MAX_OUTPUT + NOTICE).saturating_sub(self.kept.len());
        let taken = bytes.len().min(room);
        self.kept.extend_from_slice(&bytes[..taken]);
        self.dropped += bytes.len() - taken;
    }

    pub fn into_text(self) -> String {
        let mut text = match String::from_utf8(self.kept) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        if self.dropped > 0 {
            text.push_str(&format!("\n[{} bytes more were dropped]\n", self.dropped));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_the_bound_is_dropped_and_it_is_said() {
        let mut output = Output::default();
        output.push(b"begin ");
        for _ in 0..3 {
            output.push(&vec![b'x'; MAX_OUTPUT]);
        }
        let text = output.into_text();
        assert!(text.starts_with("begin "));
        assert!(text.len() < MAX_OUTPUT + 2 * NOTICE);
        assert!(
            text.ends_with(" bytes more were dropped]\n"),
            "{}",
            &text[text.len() - 80..]
        );
    }
}
