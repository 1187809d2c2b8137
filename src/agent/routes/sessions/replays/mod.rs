//! `/sessions/{generation}/replays`.

pub(crate) mod collection;
pub(crate) mod item;

use super::TAG;
