//! Paging of lists, and texts to filter them by.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use utoipa::{IntoParams, ToSchema};

use super::field;

/// The size of a page: 1–100 entries, 20 by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
pub struct Limit(u32);

/// The number of entries before the page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ToSchema)]
pub struct Offset(u32);

/// The page of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// Number of entries per page.
    #[deserr(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    pub limit: Limit,
    /// Number of entries to skip.
    #[deserr(default)]
    #[param(value_type = Option<u32>, default = 0)]
    pub offset: Offset,
}

impl Page {
    /// Returns the page with at most `entries` entries.
    #[must_use]
    pub fn of_at_most(self, entries: u32) -> Page {
        Page {
            limit: Limit(self.limit.0.min(entries)),
            ..self
        }
    }
}

impl Limit {
    pub const MAX: u32 = 100;

    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl Default for Limit {
    fn default() -> Self {
        Limit(20)
    }
}

impl Offset {
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Limit {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| match text.parse() {
            Ok(limit @ 1..=Self::MAX) => Ok(Limit(limit)),
            _ => Err(format!("must be a whole number from 1 to {}", Self::MAX)),
        })
    }
}

impl<E: DeserializeError> Deserr<E> for Offset {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            text.parse()
                .map(Offset)
                .map_err(|_| format!("must be a whole number from 0 to {}", u32::MAX))
        })
    }
}

/// A text that list entries are compared with: at most 255 characters, none of them U+0000.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchText(String);

impl SearchText {
    pub const MAX: usize = 255;
}

impl From<SearchText> for String {
    fn from(text: SearchText) -> String {
        text.0
    }
}

impl<E: DeserializeError> Deserr<E> for SearchText {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            // A database may not store U+0000, and rejects it also in queries.
            if text.chars().count() > Self::MAX || text.contains('\0') {
                return Err(format!(
                    "must have at most {} characters, none of them U+0000",
                    Self::MAX
                ));
            }
            Ok(SearchText(text))
        })
    }
}
