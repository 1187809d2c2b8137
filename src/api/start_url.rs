//! The page that a browser opens.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use url::Url;

use super::field;

/// The URL of a page: absolute, and of a scheme that cannot run code in another page's origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartUrl(Url);

impl StartUrl {
    /// Bytes of a percent-encoded URL, at most: it has to fit into an argument of Chromium.
    pub const MAX_BYTES: usize = 64 * 1024;
    const SCHEMES: [&str; 5] = ["http", "https", "about", "data", "file"];

    /// Parses an absolute URL.
    ///
    /// # Errors
    /// Returns a message about the invalid URL.
    pub fn parse(text: &str) -> Result<StartUrl, String> {
        let url = Url::parse(text).map_err(|error| format!("must be an absolute URL: {error}"))?;
        if !Self::SCHEMES.contains(&url.scheme()) {
            return Err(format!(
                "must have one of the schemes {}",
                Self::SCHEMES.join(", ")
            ));
        }
        if url.as_str().len() > Self::MAX_BYTES {
            return Err(format!(
                "must have at most {} bytes, percent-encoded",
                Self::MAX_BYTES
            ));
        }
        Ok(StartUrl(url))
    }
}

impl From<StartUrl> for Url {
    fn from(url: StartUrl) -> Url {
        url.0
    }
}

impl From<StartUrl> for String {
    fn from(url: StartUrl) -> String {
        url.0.into()
    }
}

impl<E: DeserializeError> Deserr<E> for StartUrl {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| StartUrl::parse(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_limit_applies_to_the_encoded_url() {
        let page = |text: &str| StartUrl::parse(&format!("https://example.com/{text}"));
        let room = StartUrl::MAX_BYTES - "https://example.com/".len();
        assert!(page(&"x".repeat(room)).is_ok());
        assert!(page(&"x".repeat(room + 1)).is_err());
        // Each character has six bytes when encoded.
        assert!(page(&"é".repeat(room / 6)).is_ok());
        assert!(page(&"é".repeat(room / 6 + 1)).is_err());
    }

    #[test]
    fn only_urls_of_pages_are_accepted() {
        for good in [
            "https://example.com",
            "about:blank",
            "data:,x",
            "file:///tmp",
        ] {
            assert!(StartUrl::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "example.com", "javascript:alert(1)", "chrome://version"] {
            assert!(StartUrl::parse(bad).is_err(), "{bad}");
        }
    }
}
