//! The answers of the person to a login flow.

use std::collections::BTreeMap;

use deserr::{DeserializeError, Deserr, IntoValue, Map, Value, ValuePointerRef};
use utoipa::ToSchema;

use super::InteractionId;
use crate::api::{
    credential_fill::{FillSelector, FillValues},
    field::{Fields, InvalidField},
    fill::ReferenceText,
};

/// An answer to a login flow. It has exactly one of the forms.
#[derive(ToSchema)]
pub struct SubmitAuthFlow {
    #[serde(flatten)]
    #[schema(value_type = SubmittedAnswerFields)]
    pub answer: SubmittedAnswer,
    /// The request that is answered. If the flow has made another one since, the answer is 409.
    /// Required with `field_values`.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 64)]
    pub interaction_id: Option<InteractionId>,
}

/// An answer of the person. It cannot be printed.
pub enum SubmittedAnswer {
    /// Values by the names of [`DiscoveredField`](super::DiscoveredField).
    Fields(FillValues),
    /// Values by the ids of [`FlowField`](super::FlowField).
    FieldValues(FillValues),
    /// The type of a [`MfaOption`](super::MfaOption), or the id of its choice.
    MfaOption(ReferenceText),
    /// The id of a [`FlowChoice`](super::FlowChoice).
    Choice(ReferenceText),
    /// The id of a [`SignInOption`](super::SignInOption).
    SignInOption(ReferenceText),
    /// The selector of a [`SsoButton`](super::SsoButton).
    SsoButton(FillSelector),
    /// The provider of a [`SsoButton`](super::SsoButton).
    SsoProvider(ReferenceText),
}

/// The forms of a [`SubmittedAnswer`].
#[derive(ToSchema)]
pub struct SubmittedAnswerFields {
    /// Values by the names of `discovered_fields`: 1–33, of 1–4096 bytes each.
    pub fields: Option<BTreeMap<String, String>>,
    /// Values by the ids of `fields` of the flow: 1–33, of 1–4096 bytes each.
    pub field_values: Option<BTreeMap<String, String>>,
    /// The type of one of `mfa_options`, such as `sms`, or the id of its choice.
    #[schema(min_length = 1, max_length = 1024)]
    pub mfa_option_id: Option<String>,
    /// The id of one of `choices`.
    #[schema(min_length = 1, max_length = 1024)]
    pub selected_choice_id: Option<String>,
    /// The id of one of `sign_in_options`.
    #[schema(min_length = 1, max_length = 1024)]
    pub sign_in_option_id: Option<String>,
    /// The selector of one of `pending_sso_buttons`.
    #[schema(min_length = 1, max_length = 1024)]
    pub sso_button_selector: Option<String>,
    /// The provider of one of `pending_sso_buttons`.
    #[schema(min_length = 1, max_length = 1024)]
    pub sso_provider: Option<String>,
}

impl<E: DeserializeError> Deserr<E> for SubmitAuthFlow {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::new(value, location)?;
        let interaction_id = fields.try_optional::<InteractionId>("interaction_id");
        let answer = read_answer(&mut fields);
        if matches!(
            (&answer, &interaction_id),
            (Some(SubmittedAnswer::FieldValues(_)), Ok(None))
        ) {
            fields.reject("interaction_id", "is required with field_values");
        }
        let request = match (answer, interaction_id) {
            (Some(answer), Ok(interaction_id)) => Some(SubmitAuthFlow {
                answer,
                interaction_id,
            }),
            _ => None,
        };
        fields.finish(request)
    }
}

/// Reads the answer. Returns `None`, and records an error, if there is none, or several.
fn read_answer<M: Map, E: DeserializeError>(
    fields: &mut Fields<'_, M, E>,
) -> Option<SubmittedAnswer> {
    use SubmittedAnswer as Answer;

    let forms = [
        read(fields, "fields", Answer::Fields),
        read(fields, "field_values", Answer::FieldValues),
        read(fields, "mfa_option_id", Answer::MfaOption),
        read(fields, "selected_choice_id", Answer::Choice),
        read(fields, "sign_in_option_id", Answer::SignInOption),
        read(fields, "sso_button_selector", Answer::SsoButton),
        read(fields, "sso_provider", Answer::SsoProvider),
    ];
    let mut answer = None;
    for (key, form) in forms {
        match form {
            // Its error is recorded already.
            Err(InvalidField) => return None,
            Ok(None) => {}
            Ok(Some(_)) if answer.is_some() => {
                fields.reject(key, "must not be combined with another answer");
                return None;
            }
            Ok(form) => answer = form,
        }
    }
    if answer.is_none() {
        fields.reject(
            "fields",
            "one of fields, field_values, mfa_option_id, selected_choice_id, sign_in_option_id, \
             sso_button_selector and sso_provider is required",
        );
    }
    answer
}

/// Reads one form, and returns it with its key.
fn read<T: Deserr<E>, M: Map, E: DeserializeError>(
    fields: &mut Fields<'_, M, E>,
    key: &'static str,
    form: impl FnOnce(T) -> SubmittedAnswer,
) -> (&'static str, Result<Option<SubmittedAnswer>, InvalidField>) {
    let value = fields.try_optional::<T>(key);
    (key, value.map(|value| value.map(form)))
}

#[cfg(test)]
mod tests {
    use deserr::errors::JsonError;
    use serde_json::{Value as Json, json};

    use super::*;

    fn decode(body: Json) -> Result<SubmitAuthFlow, String> {
        let decoded: Result<SubmitAuthFlow, JsonError> = deserr::deserialize(body);
        decoded.map_err(|error| error.to_string())
    }

    /// Returns the rule that a body breaks.
    fn error_of(body: Json) -> String {
        match decode(body.clone()) {
            Ok(_) => panic!("{body} was accepted"),
            Err(rule) => rule,
        }
    }

    #[test]
    fn answer_has_one_form() {
        let fields = decode(json!({"fields": {"password": "secret"}, "mfa_option_id": null}));
        let Ok(SubmittedAnswer::Fields(values)) = fields.map(|request| request.answer) else {
            panic!("not fields");
        };
        assert_eq!(values.iter().count(), 1);
        let choice = decode(json!({"selected_choice_id": "choice_1_1", "interaction_id": "i"}));
        let choice = choice.unwrap();
        assert!(matches!(choice.answer, SubmittedAnswer::Choice(_)));
        assert_eq!(choice.interaction_id.unwrap().as_str(), "i");
        for key in [
            "mfa_option_id",
            "sign_in_option_id",
            "sso_button_selector",
            "sso_provider",
        ] {
            assert!(decode(json!({key: "x"})).is_ok(), "{key}");
        }
        assert!(error_of(json!({})).contains("is required"));
        let both = json!({"fields": {"password": "secret"}, "sso_provider": "google"});
        assert!(error_of(both).contains("must not be combined"));
    }

    #[test]
    fn field_values_need_their_interaction() {
        let values = json!({"field_1_1": "secret"});
        let rule = error_of(json!({"field_values": values}));
        assert!(rule.contains("interaction_id"), "{rule}");
        assert!(decode(json!({"field_values": values, "interaction_id": "i"})).is_ok());
    }

    #[test]
    fn answer_out_of_bounds_is_rejected_without_its_values() {
        let secret = "hunter2".repeat(600);
        let many: BTreeMap<String, &str> = (0..34).map(|n| (n.to_string(), "hunter2")).collect();
        for body in [
            json!({"fields": {}}),
            json!({"fields": many}),
            json!({"fields": {"password": ""}}),
            json!({"fields": {"password": secret}}),
            json!({"fields": {"": "hunter2"}}),
            json!({"fields": {"n".repeat(256): "hunter2"}}),
            json!({"fields": {"password": "hunter2"}, "interaction_id": ""}),
            json!({"fields": {"password": "hunter2"}, "interaction_id": "i".repeat(65)}),
            json!({"selected_choice_id": ""}),
            json!({"sso_provider": "x".repeat(1025)}),
            json!({"sso_button_selector": "x".repeat(1025)}),
        ] {
            let rule = error_of(body);
            assert!(!rule.contains("hunter2"), "{rule}");
        }
    }
}
