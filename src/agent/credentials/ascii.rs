//! JavaScript in ASCII.

use std::fmt::Write as _;

/// Replaces all other characters of a source by escapes, which mean the same in strings, templates
/// and regular expressions.
pub(super) fn to_ascii(source: &str) -> String {
    let mut ascii = String::with_capacity(source.len());
    let mut units = [0; 2];
    let mut backslashes = 0;
    for character in source.chars() {
        if character.is_ascii() {
            backslashes = if character == '\\' {
                backslashes + 1
            } else {
                0
            };
            ascii.push(character);
            continue;
        }
        if backslashes % 2 == 1 {
            // Without a meaning before the character, it would have one before the escape.
            ascii.pop();
        }
        backslashes = 0;
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
        assert_eq!(to_ascii(r"'\é \\é'"), r"'\u00e9 \\\u00e9'");
    }
}
