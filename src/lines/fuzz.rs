//! Fuzz targets of the line splitter: bytes of any kind in chunks of any size, against a splitter
//! that has the complete input.

use proptest::{
    prelude::*,
    sample::{Index, select},
};

use super::*;

/// Bytes that start, continue and break characters and lines.
const BYTES: &[u8] = b"\n\n\r ax\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff\xc0\xed\xa0\xe0\xf4";
/// Sequences that are repeated to lines longer than [`MAX_LINE`].
const LONG_LINE_PATTERNS: [&[u8]; 5] = [
    b"x",
    "é".as_bytes(),
    "€".as_bytes(),
    "😀".as_bytes(),
    b"\x80",
];
/// The length of a long line beyond [`MAX_LINE`], at most. Twice the limit is reached as well.
const MAX_EXCESS: usize = MAX_LINE + 8;

fn short_part() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![4 => select(BYTES), 1 => any::<u8>()], 0..40)
}

fn long_part() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![MAX_LINE - 8..MAX_LINE + 8, MAX_LINE..MAX_LINE + MAX_EXCESS];
    (select(&LONG_LINE_PATTERNS[..]), length)
        .prop_map(|(pattern, length)| pattern.iter().copied().cycle().take(length).collect())
}

fn input() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![60 => short_part(), 1 => long_part()], 0..6)
        .prop_map(|parts| parts.concat())
}

/// A position at which the input is cut, and whether the incomplete line is taken there.
fn cuts() -> impl Strategy<Value = Vec<(Index, bool)>> {
    prop::collection::vec((any::<Index>(), any::<bool>()), 0..24)
}

/// The lines of an input, complete or not, put together from what a [`LineBuffer`] returns.
#[derive(Debug, Default)]
struct CollectedLines {
    complete: Vec<String>,
    rest: String,
    longest_part: usize,
}

impl CollectedLines {
    fn add(&mut self, line: &Line) {
        self.rest.push_str(&line.text);
        self.longest_part = self.longest_part.max(line.text.chars().count());
        if !line.partial {
            self.complete.push(std::mem::take(&mut self.rest));
        }
    }
}

proptest! {
    #[test]
    fn lines_are_those_of_the_complete_input_at_any_cut(input in input(), cuts in cuts()) {
        let mut cuts: Vec<(usize, bool)> = cuts
            .into_iter()
            .map(|(index, take_partial)| (index.index(input.len() + 1), take_partial))
            .collect();
        cuts.push((input.len(), false));
        cuts.sort_unstable();

        let mut lines = LineBuffer::default();
        let mut found = CollectedLines::default();
        let mut start = 0;
        for (end, take_partial) in cuts {
            lines.push(&input[start..end]);
            start = end;
            while let Some(line) = lines.next_line() {
                found.add(&line);
            }
            prop_assert!(lines.buffered() <= MAX_LINE);
            if take_partial {
                let expected = lines.partial_len();
                let before = lines.buffered();
                lines.take_partial().iter().for_each(|line| found.add(line));
                prop_assert_eq!(before - lines.buffered(), expected);
                prop_assert!(lines.buffered() < MAX_CHARACTER);
            }
        }
        lines.take_rest().iter().for_each(|line| found.add(line));

        let mut expected: Vec<String> = input
            .split(|byte| *byte == b'\n')
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect();
        let expected_rest = expected.pop().unwrap_or_default();
        // Without the values, which may be of several 64 KiB.
        prop_assert!(found.complete == expected, "other lines");
        prop_assert!(found.rest == expected_rest, "another rest");
        prop_assert!(found.longest_part <= MAX_LINE);
    }
}
