//! Sites with codes, notifications and actions that only a person can take.

use super::*;
use crate::api::auth_flow::{ActingParty, FieldReason, FlowFieldType};

fn totp_credential() -> CredentialSummary {
    CredentialSummary {
        has_totp_secret: true,
        ..password_credential()
    }
}

/// Returns a flow that has submitted the password.
fn after_password(credential: CredentialSummary) -> Login {
    let mut login = Login::attended(Some(credential));
    login.find(password_page());
    login.submit();
    login
}

#[test]
fn totp_is_filled_from_credential_and_not_again_after_rejection() {
    let mut login = after_password(totp_credential());
    login.find(code_page(MfaType::Totp));
    assert_eq!(login.filled_values(), ["code"]);
    login.submit();
    login.find(with_error(code_page(MfaType::Totp), "Wrong code"));
    let fields = login.requested().fields;
    assert_eq!(
        (fields[0].kind, fields[0].reason),
        (FlowFieldType::TotpCode, FieldReason::Rejected)
    );
    login.answer_fields();
    login.submit();
    login.find(welcome());
    // A code is no lasting answer.
    assert_eq!(
        login.effect,
        Effect::SaveProfile {
            save_answers: false
        }
    );
}

#[test]
fn sms_code_is_requested_from_the_person() {
    let mut login = after_password(totp_credential());
    login.find(code_page(MfaType::Sms));
    assert_eq!(login.requested().fields[0].kind, FlowFieldType::Code);
    let state = login.flow.state();
    assert_eq!(state.actor, ActingParty::User);
    let deadline = state.deadline.map(|deadline| deadline.0);
    assert_eq!(deadline, Some(login.now + INPUT_TIMEOUT));
    login.answer_fields();
    login.submit();
    login.succeed();
}

#[test]
fn method_is_selected_by_credential_or_person() {
    let methods = || {
        page_with_choices(vec![
            PageChoice {
                target: Some("•••12".to_owned()),
                ..method(MfaType::Sms, "Text message")
            },
            method(MfaType::Totp, "App"),
        ])
    };
    let mut login = after_password(totp_credential());
    login.find(methods());
    let Effect::Act(PageAction::Choose { label, .. }) = &login.effect else {
        panic!("{:?}", login.effect);
    };
    assert_eq!(label, "App");
    // A method that leads nowhere is not selected again.
    login.find(methods());
    assert_eq!(login.flow.step(), FlowStep::AwaitingInput);

    let mut login = after_password(password_credential());
    login.find(methods());
    let options = login.requested().mfa_options;
    assert_eq!(options[0].target.as_deref(), Some("•••12"));
    login.answer(&FlowAnswer::MfaOption("sms".to_owned()));
    login.find(code_page(MfaType::Sms));
    login.answer_fields();
    login.submit();
    login.succeed();
}

#[test]
fn push_continues_by_itself() {
    let mut login = after_password(password_credential());
    let push = PageFindings {
        external: Some(ExternalAction {
            kind: ExternalActionKind::Push,
            detail: Some("42".to_owned()),
        }),
        choices: vec![method(MfaType::Sms, "Text message")],
        ..page()
    };
    login.find(push.clone());
    assert_eq!(login.flow.step(), FlowStep::AwaitingExternalAction);
    assert_eq!(login.flow.actor(), ActingParty::User);
    let requested = login.requested();
    assert!(requested.external_action_message.unwrap().ends_with("42"));
    // Another method can be selected meanwhile.
    assert_eq!(requested.mfa_options.len(), 1);
    login.find(push);
    assert_eq!(login.effect, Effect::WatchPage);
    login.succeed();
    assert_eq!(
        login.steps()[2..],
        [
            FlowStep::Submitting,
            FlowStep::AwaitingExternalAction,
            FlowStep::Submitting,
            FlowStep::Completed,
        ]
    );
}

#[test]
fn push_with_a_code_as_alternative_continues_with_either() {
    let both = || PageFindings {
        external: page_with_action(ExternalActionKind::Push).external,
        ..code_page(MfaType::Sms)
    };
    let mut login = after_password(password_credential());
    login.find(both());
    assert_eq!(login.flow.step(), FlowStep::AwaitingInput);
    login.succeed();

    let mut login = after_password(password_credential());
    login.find(both());
    login.answer_fields();
    login.submit();
    login.succeed();
}

#[test]
fn captcha_is_handed_to_the_person_before_the_form_is_filled() {
    let mut login = Login::attended(Some(password_credential()));
    let captcha = PageFindings {
        external: page_with_action(ExternalActionKind::Captcha).external,
        ..password_page()
    };
    login.find(captcha);
    assert_eq!(login.flow.step(), FlowStep::AwaitingExternalAction);
    assert!(login.requested().fields.is_empty());
    login.send(FlowEvent::ExternalActionSeen);
    assert_eq!(login.effect, Effect::Act(PageAction::WaitForSite));
    login.find(password_page());
    assert_eq!(login.filled_values(), ["username", "password"]);
    login.submit();
    login.succeed();
}

#[test]
fn solved_captcha_is_no_evidence_of_a_login() {
    let mut login = Login::attended(None);
    login.find(page_with_action(ExternalActionKind::Captcha));
    let mut home = welcome();
    home.evidence.member_content = false;
    login.send(FlowEvent::ExternalActionSeen);
    login.find(home);
    assert_eq!(login.effect, Effect::Act(PageAction::WaitForSite));
}

#[test]
fn user_name_alone_is_no_login() {
    let mut login = Login::attended(None);
    login.find(page_with(&[FieldKind::Identifier]));
    login.answer_fields();
    login.submit();
    let mut sent_link = welcome();
    sent_link.evidence.member_content = false;
    login.find(sent_link.clone());
    assert_eq!(login.effect, Effect::Act(PageAction::WaitForSite));
    // After the person has opened the link, the change is evidence.
    login.find(page_with_action(ExternalActionKind::EmailLink));
    login.find(sent_link);
    assert_eq!(login.effect, Effect::SaveProfile { save_answers: true });
}

#[test]
fn change_after_a_password_is_evidence_of_a_login() {
    let mut login = after_password(password_credential());
    let mut account = welcome();
    account.evidence.member_content = false;
    for missing in 0..3 {
        let mut account = account.clone();
        let LoginEvidence {
            url_changed,
            cookies_changed,
            form_absent,
            ..
        } = &mut account.evidence;
        *[url_changed, cookies_changed, form_absent][missing] = false;
        assert!(!account.is_logged_in(true), "{account:?}");
    }
    login.find(account);
    assert_eq!(
        login.effect,
        Effect::SaveProfile {
            save_answers: false
        }
    );
}

#[test]
fn passkey_and_unknown_pages_are_handed_to_the_person() {
    let mut login = after_password(password_credential());
    login.find(page_with_action(ExternalActionKind::Passkey));
    assert_eq!(login.flow.step(), FlowStep::AwaitingExternalAction);
    login.succeed();

    // The choice of another method is preferred.
    let mut login = after_password(password_credential());
    let mut passkey = page_with_action(ExternalActionKind::Passkey);
    passkey.choices = vec![method(MfaType::Switch, "Another method")];
    login.find(passkey);
    assert_eq!(login.flow.step(), FlowStep::AwaitingInput);

    let mut login = after_password(password_credential());
    login.find(page_with_action(ExternalActionKind::Unknown));
    assert_eq!(login.flow.step(), FlowStep::AwaitingExternalAction);
    // The person may pass through pages of other origins, where nothing is entered.
    login.find(on_host(
        password_page(),
        "bank.test",
        PageOrigin::NotPermitted,
    ));
    assert_eq!(login.effect, Effect::WatchPage);
    login.succeed();

    let mut login = Login::unattended(password_credential());
    login.find(page_with_action(ExternalActionKind::Push));
    login.assert_error(FlowErrorCode::ExternalActionRequired);
}
