//! `/browsers/{id}/credentials`.

pub(crate) mod fill;
