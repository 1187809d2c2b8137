//! `/audit-logs/export`.

pub(super) mod chunk;
