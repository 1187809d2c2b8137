//! `/browsers/{id}/credentials`.

mod fill;
