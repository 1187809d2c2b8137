//! `/process/{process_id}/stdout`.

pub mod stream;
