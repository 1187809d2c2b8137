//! Splits a byte stream into lines, in bounded memory.

#[cfg(test)]
mod fuzz;

/// The longest line that is returned complete, in bytes. Longer lines are returned in parts.
pub const MAX_LINE: usize = 64 << 10;
/// Bytes of the longest UTF-8 character.
const MAX_CHARACTER: usize = 4;

/// A line without its line feed. Invalid UTF-8 is replaced by U+FFFD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    /// Whether the line is incomplete: the next [`Line`] continues it.
    pub partial: bool,
}

/// A buffer that takes bytes and returns lines.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Number of leading bytes that have been returned.
    returned: usize,
    /// Number of leading bytes that have been searched for a line feed.
    searched: usize,
}

impl LineBuffer {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.returned);
        self.searched -= self.returned;
        self.returned = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete line, or a part of one that is longer than [`MAX_LINE`].
    pub fn next_line(&mut self) -> Option<Line> {
        let unsearched = &self.bytes[self.searched..];
        let feed = unsearched.iter().position(|byte| *byte == b'\n');
        let end = feed.map_or(self.bytes.len(), |offset| self.searched + offset);
        if end - self.returned > MAX_LINE {
            let part = &self.bytes[self.returned..self.returned + MAX_LINE];
            return Some(self.take(complete_characters(part), true));
        }
        self.searched = end;
        feed?;
        let line = self.take(end - self.returned, false);
        self.returned += 1;
        self.searched = self.returned;
        Some(line)
    }

    /// Returns the start of an incomplete line, without an incomplete character at its end.
    pub fn take_partial(&mut self) -> Option<Line> {
        let length = self.partial_len();
        (length > 0).then(|| self.take(length, true))
    }

    /// Returns the number of bytes that [`Self::take_partial`] would return.
    #[must_use]
    pub fn partial_len(&self) -> usize {
        complete_characters(&self.bytes[self.returned..])
    }

    /// Returns all remaining bytes, for the end of the stream.
    pub fn take_rest(&mut self) -> Option<Line> {
        let length = self.buffered();
        (length > 0).then(|| self.take(length, true))
    }

    /// Returns the number of bytes that have not been returned.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.bytes.len() - self.returned
    }

    fn take(&mut self, length: usize, partial: bool) -> Line {
        let bytes = &self.bytes[self.returned..self.returned + length];
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.returned += length;
        self.searched = self.returned;
        Line { text, partial }
    }
}

/// Returns the length of `bytes` without an incomplete character at the end.
fn complete_characters(bytes: &[u8]) -> usize {
    for back in 1..MAX_CHARACTER.min(bytes.len() + 1) {
        let start = bytes.len() - back;
        let length = match bytes[start] {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if length > back { start } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(text: &str) -> Option<Line> {
        let text = text.to_owned();
        Some(Line {
            text,
            partial: false,
        })
    }

    fn part(text: &str) -> Option<Line> {
        let text = text.to_owned();
        Some(Line {
            text,
            partial: true,
        })
    }

    #[test]
    fn line_is_returned_once_it_is_complete() {
        let mut lines = LineBuffer::default();
        lines.push(b"one\n\ntw");
        assert_eq!(lines.next_line(), line("one"));
        assert_eq!(lines.next_line(), line(""));
        assert_eq!(lines.next_line(), None);
        lines.push(b"o\nthr\xc3");
        assert_eq!(lines.next_line(), line("two"));
        assert_eq!(lines.next_line(), None);
        assert_eq!(lines.take_partial(), part("thr"));
        assert_eq!(lines.take_partial(), None);
        assert_eq!(lines.buffered(), 1);
        lines.push(b"\xa9\n\xc3");
        assert_eq!(lines.next_line(), line("é"));
        assert_eq!(lines.take_rest(), part("\u{fffd}"));
        assert_eq!(lines.take_rest(), None);
    }

    #[test]
    fn long_line_is_returned_in_parts_of_complete_characters() {
        let mut lines = LineBuffer::default();
        let long = format!("x{}", "é".repeat(MAX_LINE));
        lines.push(long.as_bytes());
        lines.push(b"\n");
        let mut returned = String::new();
        loop {
            let line = lines.next_line().expect("a part or the end of the line");
            assert!(line.text.len() <= MAX_LINE);
            returned.push_str(&line.text);
            if !line.partial {
                break;
            }
        }
        assert!(returned == long);
        // A line of exactly that length is not split.
        lines.push(&[b'y'; MAX_LINE]);
        assert_eq!(lines.next_line(), None);
        lines.push(b"\n");
        assert_eq!(lines.next_line(), line(&"y".repeat(MAX_LINE)));
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_at_any_chunk_size(
            text in "[a-zé😀\n]{0,80}",
            cuts in prop::collection::vec((1..6usize, any::<bool>()), 1..20),
        ) {
            let mut lines = LineBuffer::default();
            let mut returned = String::new();
            let mut collect = |line: Line| {
                returned.push_str(&line.text);
                if !line.partial {
                    returned.push('\n');
                }
            };
            let mut rest = text.as_bytes();
            for (length, take_partial) in cuts.into_iter().cycle() {
                let (now, later) = rest.split_at(length.min(rest.len()));
                lines.push(now);
                while let Some(line) = lines.next_line() {
                    collect(line);
                }
                if take_partial && let Some(part) = lines.take_partial() {
                    collect(part);
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            lines.take_rest().into_iter().for_each(collect);
            prop_assert_eq!(returned, text);
        }
    }
}
