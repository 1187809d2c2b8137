//! `/process/{process_id}/stdout`.

pub(crate) mod stream;
