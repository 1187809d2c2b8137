//! `/computer`

pub mod clipboard;

const TAG: &str = "computer";
