//! Timestamps in the format of the API.

use chrono::{DateTime, SecondsFormat, Utc};
use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use super::field;

/// A time in RFC 3339 format, UTC, with milliseconds: `2026-01-31T12:00:00.000Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct Timestamp(pub DateTime<Utc>);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DateTime::deserialize(deserializer).map(Timestamp)
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(time: DateTime<Utc>) -> Self {
        Timestamp(time)
    }
}

/// A time of a request in RFC 3339 format, later than now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FutureTime(pub DateTime<Utc>);

impl<E: DeserializeError> Deserr<E> for FutureTime {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            let time = DateTime::parse_from_rfc3339(&text)
                .map_err(|_| "must be an RFC 3339 time such as 2030-01-31T12:00:00Z".to_owned())?;
            if time <= Utc::now() {
                return Err("must be in the future".to_owned());
            }
            Ok(FutureTime(time.to_utc()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_has_milliseconds() {
        let time = Timestamp(DateTime::from_timestamp_millis(1_769_860_800_005).unwrap());
        assert_eq!(
            serde_json::to_string(&time).unwrap(),
            r#""2026-01-31T12:00:00.005Z""#
        );
    }
}
