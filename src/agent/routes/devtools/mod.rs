//! `/devtools`: Chromium's own paths, for clients that go by `/json/version` and `/json/list`.

pub mod browser;
pub mod page;

/// Chromium's ids: anything else would change the path.
fn is_id(id: &str) -> bool {
    const LONGEST: usize = 64;
    (1..=LONGEST).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
