//! The page a browser is sent to.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use url::Url;

use super::field;

/// A page a browser may be sent to: an absolute URL, and nothing that runs in another page's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartUrl(Url);

impl StartUrl {
    /// Bytes it may have once it is percent-encoded: it has to fit into an argument of Chromium's.
    pub const MAX_BYTES: usize = 64 * 1024;
    const SCHEMES: [&str; 5] = ["http", "https", "about", "data", "file"];

    pub fn parse(text: &str) -> Result<StartUrl, String> {
        let url = Url::parse(text).map_err(|error| format!("must be an absolute URL: {error}"))?;
        if !Self::SCHEMES.contains(&url.scheme()) {
            return Err(format!(
                "must be a URL of scheme {}",
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
    fn the_bound_holds_for_what_the_browser_is_given() {
        let page = |text: &str| StartUrl::parse(&format!("https://example.com/{text}"));
        let room = StartUrl::MAX_BYTES - "https://example.com/".len();
        assert!(page(&"x".repeat(room)).is_ok());
        assert!(page(&"x".repeat(room + 1)).is_err());
        // Six bytes each, once encoded.
        assert!(page(&"é".repeat(room / 6)).is_ok());
        assert!(page(&"é".repeat(room / 6 + 1)).is_err());
    }

    #[test]
    fn only_pages_are_taken() {
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
