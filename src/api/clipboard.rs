//! The clipboard, on the wire.

use deserr::Deserr;
use serde::Serialize;
use utoipa::ToSchema;

/// The longest text, in bytes of UTF-8.
pub const MAX_TEXT: usize = 1 << 20;

/// What is to be on the clipboard. It cannot be printed: whatever is on a clipboard may be a secret.
#[derive(Deserr, ToSchema)]
pub struct WriteClipboardRequest {
    /// Any text, 1 MiB of UTF-8 at most; empty leaves nothing to paste.
    #[schema(max_length = 1_048_576)]
    pub text: String,
}

/// What is on the clipboard.
#[derive(Serialize, ToSchema)]
pub struct ReadClipboardResponse {
    /// Empty where there is nothing, or nothing that is text.
    pub text: String,
}
