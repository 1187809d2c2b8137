//! Bodies that are not text.

use utoipa::ToSchema;

/// Bytes of a file, an image or an archive.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct Binary(pub Vec<u8>);
