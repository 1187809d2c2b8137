//! `/devtools`: the paths of Chromium's own DevTools server, for clients that discover targets
//! through `/json/version` and `/json/list`.

pub(crate) mod browser;
pub(crate) mod page;

/// Whether `id` has the form of Chromium's ids.
fn is_id(id: &str) -> bool {
    const MAX_LEN: usize = 64;
    (1..=MAX_LEN).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
