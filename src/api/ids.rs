//! Opaque ids: a short prefix by kind and a sortable random part.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The text is not an id of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id of this kind")]
pub struct NotAnId;

/// Length of the random part: a ULID's 26 characters, in lower case.
const RANDOM_LEN: usize = 26;

fn generate(prefix: &str) -> String {
    format!(
        "{prefix}{}",
        ulid::Ulid::generate().to_string().to_ascii_lowercase()
    )
}

fn has_shape(prefix: &str, text: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|random| {
        random.len() == RANDOM_LEN
            && random
                .bytes()
                .all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
            && ulid::Ulid::from_string(random).is_ok()
    })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schema(value_type = String)]
        pub struct $name(String);

        impl $name {
            /// A new id; later ones sort after earlier ones.
            #[must_use]
            pub fn generate() -> Self {
                Self(generate($prefix))
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;
            fn from_str(text: &str) -> Result<Self, NotAnId> {
                has_shape($prefix, text).then(|| Self(text.to_owned())).ok_or(NotAnId)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotAnId;
            fn try_from(text: String) -> Result<Self, NotAnId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// A project.
    ProjectId, "proj_"
);
id!(
    /// A browser session.
    BrowserId, "brw_"
);
id!(
    /// An API key.
    KeyId, "key_"
);
id!(
    /// A watched directory.
    WatchId, "watch_"
);
id!(
    /// A recording of a browser's screen.
    ReplayId, "rep_"
);

/// A process that was started for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(value_type = String, format = Uuid)]
pub struct ProcessId(uuid::Uuid);

impl ProcessId {
    #[must_use]
    pub fn generate() -> Self {
        Self(uuid::Uuid::new_v4())
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back() {
        let id = BrowserId::generate();
        assert_eq!(id.as_str().parse(), Ok(id));
    }

    #[test]
    fn other_shapes_are_refused() {
        let id = BrowserId::generate().to_string();
        for bad in [
            "",
            "brw_",
            "brw_x",
            &id.to_uppercase(),
            &format!("{id}0"),
            &id.replace("brw_", "key_"),
            "brw_!!!!!!!!!!!!!!!!!!!!!!!!!!",
        ] {
            assert_eq!(bad.parse::<BrowserId>(), Err(NotAnId), "{bad}");
        }
    }
}
