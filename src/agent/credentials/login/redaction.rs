//! Removing values from the texts of a page.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::api::{
    credential_fill::FillValue,
    login_page::{ChoiceKind, InspectedPage},
};

/// The text in the place of a value.
const REDACTED: &str = "•••";
/// The shortest value that is removed. A shorter one is part of many words.
const MIN_CHARS: usize = 3;

/// Removes values from all texts of a page but the labels of accounts, and from the path of its
/// address.
pub(super) fn redact(page: &mut InspectedPage, values: &[FillValue]) {
    page.url = redact_path(&page.url, values);
    for text in texts_of(page) {
        for value in values {
            if let Cow::Owned(redacted) = without(text, value.expose()) {
                *text = redacted;
            }
        }
    }
}

/// Replaces the parts of an address's path that contain a value. Its origin is not secret.
fn redact_path(url: &str, values: &[FillValue]) -> String {
    let path = url.find("://").map_or(0, |start| start + "://".len());
    let path = path + url[path..].find('/').unwrap_or(url.len() - path);
    let (origin, path) = url.split_at(path);
    let parts = path.split('/').map(|part| {
        let text = percent_decode_str(part).decode_utf8_lossy();
        let has_value = |value: &FillValue| matches!(without(&text, value.expose()), Cow::Owned(_));
        match values.iter().any(has_value) {
            true => REDACTED,
            false => part,
        }
    });
    let parts: Vec<&str> = parts.collect();
    format!("{origin}{}", parts.join("/"))
}

fn texts_of(page: &mut InspectedPage) -> Vec<&mut String> {
    let mut texts: Vec<&mut String> = [&mut page.error, &mut page.email_link]
        .into_iter()
        .flatten()
        .collect();
    texts.extend(page.push.as_mut().map(|push| &mut push.text));
    texts.extend(
        page.code
            .as_mut()
            .and_then(|code| code.masked_target.as_mut()),
    );
    let elements = [
        &mut page.submit,
        &mut page.login_link,
        &mut page.consent,
        &mut page.skip,
    ];
    let elements = elements.into_iter().flatten();
    texts.extend(elements.map(|element| &mut element.label));
    texts.extend(page.remember.as_mut().map(|one| &mut one.label));
    for choice in &mut page.choices {
        if choice.kind != ChoiceKind::Account {
            texts.push(&mut choice.label);
        }
        texts.extend(&mut choice.masked_target);
    }
    for field in &mut page.fields {
        texts.push(&mut field.label);
        texts.extend(&mut field.placeholder);
        texts.extend(&mut field.hint);
    }
    texts
}

/// Returns a text without the occurrences of a value, in any case. Borrowed if it has none. No copy
/// of the value is made.
fn without<'a>(text: &'a str, value: &str) -> Cow<'a, str> {
    let value = value.trim();
    let length = value.chars().count();
    if length < MIN_CHARS {
        return text.into();
    }
    let is_same = |(a, b): (&char, char)| *a == b || a.to_lowercase().eq(b.to_lowercase());
    let characters: Vec<char> = text.chars().collect();
    let (mut result, mut index, mut has_value) = (String::with_capacity(text.len()), 0, false);
    while index < characters.len() {
        let rest = &characters[index..];
        if rest.len() >= length && rest.iter().zip(value.chars()).all(is_same) {
            result.push_str(REDACTED);
            index += length;
            has_value = true;
        } else {
            result.push(characters[index]);
            index += 1;
        }
    }
    match has_value {
        true => result.into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_removed_in_any_case() {
        for (text, value, expected) in [
            ("No user ada.", "ada", "No user •••."),
            ("No user ADA, ada", "Ada", "No user •••, •••"),
            ("Ünal, ÜNAL", "ünal", "•••, •••"),
            ("ad", "ada", "ad"),
            ("a b", "a", "a b"),
            ("", "ada", ""),
        ] {
            assert_eq!(without(text, value), expected, "{text}");
        }
    }

    #[test]
    fn value_is_removed_from_the_path_but_not_the_host() {
        let values = ["ada", "a b/c"].map(|value| FillValue::parse(value.to_owned()).unwrap());
        for (url, expected) in [
            ("https://ada.test/u/ada/edit", "https://ada.test/u/•••/edit"),
            ("https://ada.test", "https://ada.test"),
            ("https://a.test/a%20b%2Fc", "https://a.test/•••"),
            ("about:blank", "about:blank"),
            ("", ""),
        ] {
            assert_eq!(redact_path(url, &values), expected);
        }
    }
}
