//! Lines out of bytes as they come, in bounded memory.

/// The longest line that is given whole, in bytes. Of a longer one the parts are given.
pub const MAX_LINE: usize = 64 << 10;
/// The bytes of the longest character.
const MAX_CHARACTER: usize = 4;

/// A line without its line feed. What is no UTF-8 is shown as well as it can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    /// Its end has not come: what comes next continues it.
    pub partial: bool,
}

/// Takes bytes and gives lines.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// What has been given.
    given: usize,
    /// What has been searched for a line feed.
    searched: usize,
}

impl Lines {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.given);
        self.searched -= self.given;
        self.given = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next line that is complete, or too long to be waited for.
    pub fn next_line(&mut self) -> Option<Line> {
        let unsearched = &self.bytes[self.searched..];
        let feed = unsearched.iter().position(|byte| *byte == b'\n');
        let end = feed.map_or(self.bytes.len(), |at| self.searched + at);
        if end - self.given > MAX_LINE {
            let part = &self.bytes[self.given..self.given + MAX_LINE];
            return Some(self.give(whole_characters(part), true));
        }
        self.searched = end;
        feed?;
        let line = self.give(end - self.given, false);
        self.given += 1;
        self.searched = self.given;
        Some(line)
    }

    /// What there is of a line that is not complete, but for a character that is not.
    pub fn part(&mut self) -> Option<Line> {
        let length = self.part_len();
        (length > 0).then(|| self.give(length, true))
    }

    /// How much [`Lines::part`] would give.
    #[must_use]
    pub fn part_len(&self) -> usize {
        whole_characters(&self.bytes[self.given..])
    }

    /// All that is left, where nothing more will come.
    pub fn rest(&mut self) -> Option<Line> {
        let length = self.held();
        (length > 0).then(|| self.give(length, true))
    }

    /// How many bytes have come and have not been given.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.len() - self.given
    }

    fn give(&mut self, length: usize, partial: bool) -> Line {
        let given = &self.bytes[self.given..self.given + length];
        let text = String::from_utf8_lossy(given).into_owned();
        self.given += length;
        self.searched = self.given;
        Line { text, partial }
    }
}

/// How many of the bytes there are without a character at the end whose rest is missing.
fn whole_characters(bytes: &[u8]) -> usize {
    for back in 1..MAX_CHARACTER.min(bytes.len() + 1) {
        let at = bytes.len() - back;
        let length = match bytes[at] {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if length > back { at } else { bytes.len() };
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
    fn a_line_is_given_once_its_end_has_come() {
        let mut lines = Lines::default();
        lines.push(b"one\n\ntw");
        assert_eq!(lines.next_line(), line("one"));
        assert_eq!(lines.next_line(), line(""));
        assert_eq!(lines.next_line(), None);
        lines.push(b"o\nthr\xc3");
        assert_eq!(lines.next_line(), line("two"));
        assert_eq!(lines.next_line(), None);
        assert_eq!(lines.part(), part("thr"));
        assert_eq!(lines.part(), None);
        assert_eq!(lines.held(), 1);
        lines.push(b"\xa9\n\xc3");
        assert_eq!(lines.next_line(), line("é"));
        assert_eq!(lines.rest(), part("\u{fffd}"));
        assert_eq!(lines.rest(), None);
    }

    #[test]
    fn a_long_line_is_given_in_parts_of_whole_characters() {
        let mut lines = Lines::default();
        let long = format!("x{}", "é".repeat(MAX_LINE));
        lines.push(long.as_bytes());
        lines.push(b"\n");
        let mut given = String::new();
        loop {
            let line = lines.next_line().expect("a part or the end");
            assert!(line.text.len() <= MAX_LINE);
            given.push_str(&line.text);
            if !line.partial {
                break;
            }
        }
        assert!(given == long);
        // One of just that length is whole.
        lines.push(&[b'y'; MAX_LINE]);
        assert_eq!(lines.next_line(), None);
        lines.push(b"\n");
        assert_eq!(lines.next_line(), line(&"y".repeat(MAX_LINE)));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_the_bytes_come(
            text in "[a-zé😀\n]{0,80}",
            cuts in prop::collection::vec((1..6usize, any::<bool>()), 1..20),
        ) {
            let mut lines = Lines::default();
            let mut given = String::new();
            let mut take = |line: Line| {
                given.push_str(&line.text);
                if !line.partial {
                    given.push('\n');
                }
            };
            let mut rest = text.as_bytes();
            for (length, impatient) in cuts.into_iter().cycle() {
                let (now, later) = rest.split_at(length.min(rest.len()));
                lines.push(now);
                while let Some(line) = lines.next_line() {
                    take(line);
                }
                if impatient && let Some(part) = lines.part() {
                    take(part);
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            lines.rest().into_iter().for_each(take);
            prop_assert_eq!(given, text);
        }
    }
}
