//! The values that a person has submitted to a login flow, sealed while they are needed.

use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    api::auth_flow::InteractionId,
    control::{
        auth_connections::flow::AnswerEntry,
        secrets::{Sealed, SealedPlace, SecretError, SecretScope, Secrets},
        store::{AuthFlowRow, SealedAnswers},
    },
};

/// The most values that are kept for a flow. The oldest are dropped.
const MAX_VALUES: usize = 64;
/// The name of the sealed field.
const FIELD: &str = "answers";
/// The answers are sealed anew with each submit, so no earlier version is distinguished.
const REVISION: u64 = 1;

/// The values that a person has submitted. They cannot be printed.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Answers {
    values: Vec<SubmittedValue>,
}

#[derive(Serialize, Deserialize)]
struct SubmittedValue {
    interaction: InteractionId,
    /// The name or id with which the value was submitted.
    key: String,
    /// The name under which a credential stores the value. `None` if it cannot.
    stored_name: Option<String>,
    #[serde(serialize_with = "expose", deserialize_with = "hide")]
    value: SecretString,
}

impl Answers {
    /// Adds the values of an answer, and whether a credential may store them. Those of earlier
    /// answers that it does not store are not needed any more.
    pub(super) fn add(
        &mut self,
        interaction: &InteractionId,
        (entries, is_lasting): (&[AnswerEntry], bool),
        mut value_of: impl FnMut(&str) -> Option<SecretString>,
    ) {
        self.values.retain(|value| value.stored_name.is_some());
        for entry in entries {
            let Some(value) = value_of(&entry.key) else {
                continue;
            };
            let is_stored = is_lasting && entry.kind.is_lasting();
            let stored_name = is_stored.then(|| entry.value_name.clone());
            // A password that is entered twice has two values in one answer.
            self.values.retain(|known| {
                known.interaction == *interaction || known.stored_name != stored_name
            });
            self.values.push(SubmittedValue {
                interaction: interaction.clone(),
                key: entry.key.clone(),
                stored_name,
                value,
            });
        }
        let surplus = self.values.len().saturating_sub(MAX_VALUES);
        self.values.drain(..surplus);
    }

    /// Returns the value that was submitted with a key.
    pub(super) fn value_of(&self, interaction: &InteractionId, key: &str) -> Option<&SecretString> {
        let mut values = self.values.iter();
        let found = values.find(|value| value.interaction == *interaction && value.key == key);
        found.map(|found| &found.value)
    }

    /// Returns the values that a credential stores, by their names.
    pub(super) fn lasting(&self) -> impl Iterator<Item = (&str, &SecretString)> {
        let values = self.values.iter();
        values.filter_map(|value| Some((value.stored_name.as_deref()?, &value.value)))
    }

    /// Returns all values.
    pub(super) fn values(&self) -> impl Iterator<Item = &SecretString> {
        self.values.iter().map(|value| &value.value)
    }
}

/// Opens the answers of a flow.
pub(super) async fn open(secrets: &Secrets, row: &AuthFlowRow) -> Result<Answers, SecretError> {
    let Some(SealedAnswers { key_version, bytes }) = row.answers.clone() else {
        return Ok(Answers::default());
    };
    let scope = SecretScope::Project(row.project_id.clone());
    let keys = secrets.keys_of(&scope).await?;
    let opened = keys.open(&place(row), &Sealed { key_version, bytes })?;
    serde_json::from_slice(opened.expose_secret()).map_err(|_| SecretError::Damaged)
}

/// Seals the answers of a flow.
pub(super) async fn seal(
    secrets: &Secrets,
    row: &AuthFlowRow,
    answers: &Answers,
) -> Result<SealedAnswers, SecretError> {
    let scope = SecretScope::Project(row.project_id.clone());
    let keys = secrets.keys_of(&scope).await?;
    let text = serde_json::to_vec(answers).map_err(|_| SecretError::Damaged)?;
    let sealed = keys.seal(&place(row), &Zeroizing::new(text))?;
    Ok(SealedAnswers {
        key_version: sealed.key_version,
        bytes: sealed.bytes,
    })
}

/// Returns the place of the answers. They open only for the flow and its connection.
fn place(row: &AuthFlowRow) -> SealedPlace<'_> {
    SealedPlace {
        record: row.id().as_str(),
        purpose: row.connection_id.as_str(),
        field: FIELD,
        revision: REVISION,
    }
}

fn expose<S: Serializer>(value: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.expose_secret())
}

fn hide<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}
