//! Sites with values, accounts and identity providers.

use super::*;
use crate::api::auth_flow::{FieldReason, FlowFieldType};

const BY_CREDENTIAL: [FlowStep; 4] = [
    FlowStep::Initialized,
    FlowStep::Discovering,
    FlowStep::Submitting,
    FlowStep::Completed,
];

#[test]
fn password_form_is_filled_from_credential() {
    let mut login = Login::unattended(password_credential());
    login.find(password_page());
    let entry = |value_name: &str, selector: &str, kind| CredentialEntry {
        value_name: value_name.to_owned(),
        selector: selector.to_owned(),
        kind,
    };
    assert_eq!(
        login.effect,
        Effect::FillFromCredential {
            host: SITE.to_owned(),
            entries: vec![
                entry("username", "#login", FieldKind::Identifier),
                entry("password", "#password", FieldKind::Password),
            ],
        }
    );
    login.submit();
    login.succeed();
    assert_eq!(login.steps(), BY_CREDENTIAL);
}

#[test]
fn password_form_is_answered_by_person() {
    let mut login = Login::attended(None);
    login.find(password_page());
    assert_eq!(login.effect, Effect::WatchPage);
    let requested = login.requested();
    let fields: Vec<_> = requested
        .fields
        .iter()
        .map(|field| (field.kind, field.reference.as_str(), field.reason))
        .collect();
    assert_eq!(
        fields,
        [
            (FlowFieldType::Identifier, "username", FieldReason::Missing),
            (FlowFieldType::Password, "password", FieldReason::Missing),
        ]
    );
    let discovered: Vec<_> = requested
        .discovered_fields
        .iter()
        .map(|field| &field.name)
        .collect();
    assert_eq!(discovered, ["login", "password"]);

    login.answer(&names(&["login", "password"]));
    assert_eq!(login.entered_answers(), ["login", "password"]);
    login.submit();
    login.find(welcome());
    assert_eq!(login.effect, Effect::SaveProfile { save_answers: true });
    login.send(FlowEvent::Saved);
    assert_eq!(login.flow.status(), FlowStatus::Success);
    assert_eq!(
        login.steps(),
        [
            FlowStep::Initialized,
            FlowStep::Discovering,
            FlowStep::AwaitingInput,
            FlowStep::Submitting,
            FlowStep::Completed,
        ]
    );
}

#[test]
fn two_steps_are_filled_one_after_the_other() {
    let mut login = Login::unattended(password_credential());
    login.find(page_with(&[FieldKind::Identifier]));
    assert_eq!(login.filled_values(), ["username"]);
    login.submit();
    login.find(page_with(&[FieldKind::Password]));
    assert_eq!(login.filled_values(), ["password"]);
    login.submit();
    login.succeed();
    assert_eq!(login.steps(), BY_CREDENTIAL);
}

#[test]
fn rejected_credential_is_replaced_by_the_persons_answer() {
    let mut login = Login::attended(Some(password_credential()));
    login.find(password_page());
    assert_eq!(login.filled_values(), ["username", "password"]);
    login.submit();
    login.find(with_error(password_page(), "Wrong password"));
    assert_eq!(login.flow.step(), FlowStep::AwaitingInput);
    assert_eq!(
        login.flow.state().website_error.as_deref(),
        Some("Wrong password")
    );
    let fields = login.requested().fields;
    assert!(
        fields
            .iter()
            .all(|field| field.reason == FieldReason::Rejected)
    );

    login.answer_fields();
    assert!(login.filled_values().is_empty());
    assert_eq!(login.flow.state().website_error, None);
    login.submit();
    // The person was wrong, too.
    login.find(with_error(password_page(), "Wrong password"));
    login.answer_fields();
    login.submit();
    login.succeed();
    let (waiting, submitting) = (FlowStep::AwaitingInput, FlowStep::Submitting);
    assert_eq!(
        login.steps()[2..],
        [
            submitting,
            waiting,
            submitting,
            waiting,
            submitting,
            FlowStep::Completed
        ]
    );
}

#[test]
fn rejected_credential_ends_an_unattended_flow() {
    let mut login = Login::unattended(password_credential());
    login.find(page_with(&[FieldKind::Identifier]));
    login.submit();
    login.find(page_with(&[FieldKind::Password]));
    login.submit();
    // The site begins anew, without its message in the second step.
    login.find(with_error(
        page_with(&[FieldKind::Identifier]),
        "Wrong password",
    ));
    assert_eq!(login.filled_values(), ["username"]);
    login.submit();
    login.find(page_with(&[FieldKind::Password]));
    login.assert_error(FlowErrorCode::CredentialRejected);
}

#[test]
fn credential_is_entered_twice_at_most_without_a_message_of_the_site() {
    let mut login = Login::attended(Some(password_credential()));
    for _ in 0..2 {
        login.find(password_page());
        assert_eq!(login.filled_values(), ["username", "password"]);
        login.submit();
    }
    login.find(password_page());
    assert_eq!(login.flow.step(), FlowStep::AwaitingInput);
}

#[test]
fn credential_without_password_leaves_it_to_the_person() {
    let mut login = Login::attended(Some(credential(&["Email"])));
    login.find(password_page());
    let fields = login.requested().discovered_fields;
    assert_eq!(
        fields.iter().map(|field| &field.name).collect::<Vec<_>>(),
        ["password"]
    );
    login.answer_fields();
    assert_eq!(login.filled_values(), ["Email"]);
    login.submit();
    login.succeed();
}

#[test]
fn sso_of_the_credential_is_followed_to_an_allowed_domain() {
    let mut login = Login::unattended(CredentialSummary {
        sso_provider: Some("Idp".to_owned()),
        ..password_credential()
    });
    // The password belongs to the identity provider, not to this form.
    let mut first = password_page();
    first.choices = vec![sso_button("other"), sso_button("idp")];
    login.find(first);
    assert_eq!(
        login.effect,
        Effect::Act(PageAction::Choose {
            label: "Log in with idp".to_owned(),
            selector: "[data-choice='Log in with idp']".to_owned(),
        })
    );
    assert_eq!(login.flow.sso_provider(), Some("idp"));
    login.find(on_host(
        password_page(),
        "idp.test",
        PageOrigin::AllowedDomain,
    ));
    let Effect::FillFromCredential { host, .. } = &login.effect else {
        panic!("{:?}", login.effect);
    };
    assert_eq!(host, "idp.test");
    login.submit();
    login.succeed();
    assert_eq!(login.steps(), BY_CREDENTIAL);
}

#[test]
fn sso_selected_by_the_person_is_followed_to_a_well_known_provider() {
    let mut login = Login::attended(Some(password_credential()));
    let mut first = page_with(&[FieldKind::Text]);
    first.choices = vec![sso_button("google")];
    login.find(first);
    let button = login.requested().pending_sso_buttons.remove(0);
    login.answer(&FlowAnswer::SsoButton(button.selector));
    let provider = PageOrigin::IdentityProvider {
        provider: "google".to_owned(),
    };
    // The credential is of the site, and is not disclosed to the provider.
    login.find(on_host(
        password_page(),
        "accounts.google.test",
        provider.clone(),
    ));
    assert_eq!(login.flow.step(), FlowStep::AwaitingInput);
    login.answer_fields();
    assert!(login.filled_values().is_empty());
    login.submit();
    // A page of the provider is no success.
    login.find(on_host(welcome(), "accounts.google.test", provider));
    assert_eq!(login.effect, Effect::Act(PageAction::WaitForSite));
    login.succeed();
}

#[test]
fn sso_to_an_unknown_origin_ends_the_flow() {
    let mut login = Login::attended(Some(password_credential()));
    login.find(page_with_choices(vec![sso_button("idp")]));
    login.answer(&FlowAnswer::SsoProvider("idp".to_owned()));
    login.find(on_host(
        password_page(),
        "evil.test",
        PageOrigin::NotPermitted,
    ));
    login.assert_error(FlowErrorCode::OriginNotPermitted);
}

#[test]
fn account_of_the_credential_is_selected() {
    let mut login = Login::unattended(password_credential());
    let own = PageChoice {
        is_of_credential: true,
        ..choice(FlowChoiceType::Account, "me@shop.test")
    };
    let others = choice(FlowChoiceType::Account, "you@shop.test");
    login.find(page_with_choices(vec![others, own]));
    let Effect::Act(PageAction::Choose { label, .. }) = &login.effect else {
        panic!("{:?}", login.effect);
    };
    assert_eq!(label, "me@shop.test");
    login.find(page_with(&[FieldKind::Password]));
    assert_eq!(login.filled_values(), ["password"]);
    login.submit();
    login.succeed();
}

#[test]
fn account_is_selected_by_the_person() {
    let mut login = Login::attended(None);
    let accounts = ["me@shop.test", "you@shop.test"];
    let accounts = accounts.map(|label| choice(FlowChoiceType::Account, label));
    login.find(page_with_choices(accounts.to_vec()));
    let options = login.requested().sign_in_options;
    assert_eq!(options.len(), 2);
    login.answer(&FlowAnswer::SignInOption(options[1].id.clone()));
    let Effect::Act(PageAction::Choose { label, .. }) = &login.effect else {
        panic!("{:?}", login.effect);
    };
    assert_eq!(label, "you@shop.test");
    login.succeed();
}

#[test]
fn security_question_is_answered_by_its_text() {
    let question = PageField {
        label: "Name of your first pet?".to_owned(),
        ..field(FieldKind::SecurityAnswer)
    };
    let page = PageFindings {
        fields: vec![question],
        ..page()
    };
    let with_answer = credential(&["username", "password", "name of your first pet?"]);
    let mut login = Login::unattended(with_answer);
    login.find(page.clone());
    assert_eq!(login.filled_values(), ["name of your first pet?"]);

    // An answer with the name of the field may be that of another question.
    let mut login = Login::attended(Some(credential(&["username", "password", "answer"])));
    login.find(page);
    let fields = login.requested().fields;
    assert_eq!(fields[0].reference, "Name of your first pet?");
    login.answer_fields();
    login.submit();
    login.succeed();
}

#[test]
fn forced_password_change_is_left_to_the_person() {
    let mut login = Login::attended(Some(password_credential()));
    login.find(password_page());
    login.submit();
    let change = page_with(&[FieldKind::NewPassword, FieldKind::NewPassword]);
    login.find(with_error(change, "Your password has expired"));
    let requested = login.requested();
    let fields: Vec<_> = requested
        .discovered_fields
        .iter()
        .map(|field| &field.name)
        .collect();
    assert_eq!(fields, ["new_password", "new_password_2"]);
    login.answer_fields();
    login.submit();
    login.find(welcome());
    assert_eq!(login.effect, Effect::SaveProfile { save_answers: true });

    let mut login = Login::unattended(password_credential());
    login.find(page_with(&[FieldKind::NewPassword]));
    login.assert_error(FlowErrorCode::InputRequired);
}

#[test]
fn form_in_a_frame_is_filled_on_the_frames_host() {
    let mut login = Login::unattended(password_credential());
    let frame = PageFindings {
        host: "login.shop.test".to_owned(),
        ..password_page()
    };
    login.find(frame);
    let Effect::FillFromCredential { host, .. } = &login.effect else {
        panic!("{:?}", login.effect);
    };
    assert_eq!(host, "login.shop.test");
    // The frame has navigated to another host since.
    login.send(FlowEvent::Filled(EntryOutcome::OriginRefused));
    login.assert_error(FlowErrorCode::OriginNotPermitted);
}
