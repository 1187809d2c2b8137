//! The clipboard.

use deserr::Deserr;
use serde::Serialize;
use utoipa::ToSchema;

/// Size limit of a text, in bytes of UTF-8.
pub const MAX_TEXT: usize = 1 << 20;

/// The new content of the clipboard.
// Not `Debug`: the content of a clipboard may be a secret.
#[derive(Deserr, ToSchema)]
pub struct WriteClipboardRequest {
    /// Text of at most 1 MiB (UTF-8). An empty text clears the clipboard.
    #[schema(max_length = 1_048_576)]
    pub text: String,
}

/// The content of the clipboard.
#[derive(Serialize, ToSchema)]
pub struct ReadClipboardResponse {
    /// The text; empty if the clipboard holds none.
    pub text: String,
}
