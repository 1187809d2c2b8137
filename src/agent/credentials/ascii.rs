//! JavaScript in ASCII.

use std::fmt::Write as _;

/// Replaces all other characters of a source by escapes, which mean the same in strings, templates
/// and regular expressions, unless a backslash is in front of them.
pub(super) fn to_ascii(source: &str) -> String {
    let mut ascii = String::with_capacity(source.len());
    let mut units = [0; 2];
    for character in source.chars() {
        if character.is_ascii() {
            ascii.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut units) {
            // Writing to a string does not fail.
            let _ = write!(ascii, "\\u{unit:04x}");
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_characters_are_escaped() {
        assert_eq!(to_ascii("'a\\n é 😀'"), "'a\\n \\u00e9 \\ud83d\\ude00'");
    }
}
