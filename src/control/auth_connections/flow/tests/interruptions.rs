//! Sites that are slow, broken or hostile, and everything that ends or interrupts a flow.

use super::*;
use crate::api::auth_flow::FlowErrorCode as Code;

#[test]
fn page_that_is_slow_to_render_is_waited_for() {
    let mut login = Login::unattended(password_credential());
    for _ in 0..MAX_STALLS {
        login.find(page());
        assert_eq!(login.effect, Effect::Act(PageAction::WaitForSite));
    }
    assert_eq!(
        login.steps(),
        [FlowStep::Initialized, FlowStep::Discovering]
    );
    login.find(password_page());
    login.submit();
    login.succeed();

    let mut login = Login::attended(None);
    for _ in 0..=MAX_STALLS {
        login.find(page());
    }
    assert_eq!(login.flow.step(), FlowStep::AwaitingExternalAction);
}

#[test]
fn page_that_is_rendered_anew_keeps_its_request() {
    let mut login = Login::attended(None);
    login.find(password_page());
    let interaction = login.flow.interaction_id().unwrap();
    let entries = login.entries.len();
    // Nothing is there for a moment.
    login.find(page());
    let mut again = password_page();
    again.fields[1].selector = "#r2".to_owned();
    login.find(again);
    assert_eq!(login.flow.interaction_id().as_ref(), Some(&interaction));
    assert_eq!(login.entries.len(), entries);
    login
        .try_answer(Some(&interaction), &names(&["login", "password"]))
        .unwrap();
    let Effect::EnterAnswers { answers, .. } = &login.effect else {
        panic!("{:?}", login.effect);
    };
    assert_eq!(answers[1].selector, "#r2");
    // The field was replaced at the moment of the entry.
    login.send(FlowEvent::Filled(EntryOutcome::NotSubmitted));
    assert_eq!(login.effect, Effect::Act(PageAction::Inspect));
    login.find(password_page());
    assert_ne!(login.flow.interaction_id().unwrap(), interaction);
}

#[test]
fn form_that_cannot_be_filled_is_handed_to_the_person() {
    let mut login = Login::attended(Some(password_credential()));
    for _ in 0..MAX_STALLS {
        login.find(password_page());
        assert_eq!(login.filled_values(), ["username", "password"]);
        login.send(FlowEvent::Filled(EntryOutcome::NotSubmitted));
    }
    login.find(password_page());
    assert_eq!(login.flow.step(), FlowStep::AwaitingExternalAction);
}

#[test]
fn consent_banner_is_dismissed_or_handed_to_the_person() {
    let banner = || PageFindings {
        obstacle: Some(PageObstacle::ConsentBanner),
        ..password_page()
    };
    let mut login = Login::unattended(password_credential());
    login.find(banner());
    assert_eq!(login.effect, Effect::Act(PageAction::DismissConsent));
    assert_eq!(login.flow.step(), FlowStep::Discovering);
    login.find(password_page());
    login.submit();
    login.succeed();

    let mut login = Login::attended(Some(password_credential()));
    for _ in 0..MAX_STALLS {
        login.find(banner());
        assert_eq!(login.effect, Effect::Act(PageAction::DismissConsent));
    }
    login.find(banner());
    assert_eq!(login.flow.step(), FlowStep::AwaitingExternalAction);
}

#[test]
fn device_is_trusted_and_offers_are_skipped_after_the_login() {
    let mut login = Login::unattended(password_credential());
    login.find(password_page());
    login.submit();
    for (obstacle, action) in [
        (PageObstacle::RememberDevice, PageAction::RememberDevice),
        (PageObstacle::Offer, PageAction::SkipOffer),
    ] {
        login.find(PageFindings {
            obstacle: Some(obstacle),
            ..welcome()
        });
        assert_eq!(login.effect, Effect::Act(action));
        assert_eq!(login.flow.step(), FlowStep::Submitting);
    }
    login.succeed();
}

#[test]
fn box_that_cannot_be_checked_is_left() {
    let mut login = Login::unattended(password_credential());
    let form = || PageFindings {
        obstacle: Some(PageObstacle::RememberDevice),
        ..password_page()
    };
    for _ in 0..MAX_STALLS {
        login.find(form());
        assert_eq!(login.effect, Effect::Act(PageAction::RememberDevice));
    }
    login.find(form());
    login.submit();
    login.succeed();
}

#[test]
fn expired_session_is_renewed_and_a_valid_one_is_kept() {
    let mut login = Login::unattended(password_credential());
    login.find(with_error(password_page(), "Your session has expired"));
    assert_eq!(login.filled_values(), ["username", "password"]);
    login.submit();
    login.succeed();
    assert_eq!(login.flow.state().flow_type, FlowType::Reauth);

    let mut login = Login::unattended(password_credential());
    login.succeed();
}

#[test]
fn site_that_is_down_ends_the_flow() {
    for (failure, error) in [
        (PageFailure::Unavailable, Code::SiteUnavailable),
        (PageFailure::NoLoginPage, Code::LoginPageNotFound),
        (PageFailure::InternalAddress, Code::InternalAddress),
    ] {
        let mut login = Login::attended(None);
        login.send(FlowEvent::PageFailed(failure));
        login.assert_error(error);
    }
}

#[test]
fn site_that_shows_an_error_and_nothing_else_ends_the_flow() {
    let mut login = Login::unattended(password_credential());
    login.find(password_page());
    login.submit();
    for _ in 0..=MAX_STALLS {
        login.find(with_error(page(), "Your account is locked"));
    }
    login.assert_error(Code::RefusedBySite);
    assert_eq!(
        login.flow.state().website_error.as_deref(),
        Some("Your account is locked")
    );
}

#[test]
fn site_without_an_end_is_given_up() {
    let mut login = Login::attended(None);
    let mut pages = 0;
    while !login.flow.has_ended() {
        let mut next = page_with(&[FieldKind::Text]);
        next.fields[0].name = format!("question_{pages}");
        login.find(next);
        pages += 1;
        assert!(pages <= MAX_STEPS + 1);
    }
    login.assert_error(Code::TooManySteps);
}

#[test]
fn internal_address_ends_every_state_before_anything_is_entered() {
    let internal = || on_host(password_page(), "169.254.169.254", PageOrigin::Internal);
    let mut discovering = Login::attended(Some(password_credential()));
    discovering.find(internal());
    discovering.assert_error(Code::InternalAddress);

    let mut filling = Login::attended(Some(password_credential()));
    filling.find(password_page());
    filling.find(internal());
    filling.assert_error(Code::InternalAddress);

    let mut waiting = Login::attended(None);
    waiting.find(password_page());
    waiting.send(FlowEvent::PageFailed(PageFailure::InternalAddress));
    waiting.assert_error(Code::InternalAddress);
}

#[test]
fn answer_that_does_not_fit_the_request_is_refused() {
    let mut login = Login::attended(None);
    let early = login.try_answer(None, &names(&["login"]));
    assert_eq!(early, Err(AnswerRefusal::NotAwaiting));
    login.find(password_page());
    let first = login.flow.interaction_id().unwrap();
    let first_fields = login.requested().fields;
    for (answer, refusal) in [
        (
            names(&["login"]),
            AnswerRefusal::MissingField("password".to_owned()),
        ),
        (
            names(&["pin"]),
            AnswerRefusal::UnknownField("pin".to_owned()),
        ),
        (
            FlowAnswer::Choice("choice_1_1".to_owned()),
            AnswerRefusal::UnknownChoice,
        ),
        (
            FlowAnswer::SsoProvider("google".to_owned()),
            AnswerRefusal::UnknownChoice,
        ),
    ] {
        assert_eq!(login.try_answer(Some(&first), &answer), Err(refusal));
    }
    login.answer_fields();
    // The same answer again, while the first one is entered.
    let again = login.try_answer(Some(&first), &names(&["login", "password"]));
    assert_eq!(again, Err(AnswerRefusal::StaleInteraction));
    login.submit();
    login.find(code_page(MfaType::Sms));
    let late = login.try_answer(Some(&first), &names(&["otp"]));
    assert_eq!(late, Err(AnswerRefusal::StaleInteraction));
    // Ids of an earlier request are refused even without its interaction.
    let ids = first_fields.into_iter().map(|field| field.id).collect();
    let late = login.try_answer(None, &FlowAnswer::FieldIds(ids));
    assert!(
        matches!(late, Err(AnswerRefusal::UnknownField(_))),
        "{late:?}"
    );
    login.send(FlowEvent::Canceled);
    let ended = login.try_answer(None, &names(&["otp"]));
    assert_eq!(ended, Err(AnswerRefusal::Ended));
}

/// Returns flows in every state that is not final, with the error of its deadline.
fn flows_in_every_state() -> Vec<(Flow, Code)> {
    let begun = Flow::begin(flow_id(), settings(FlowType::Login, true), start_time());
    let mut login = Login::attended(Some(password_credential()));
    let mut flows = vec![(begun.flow, Code::BrowserNotStarted)];
    flows.push((login.flow.clone(), Code::SiteTimeout));
    login.find(PageFindings {
        obstacle: Some(PageObstacle::ConsentBanner),
        ..page()
    });
    flows.push((login.flow.clone(), Code::BrowserTimeout));
    login.find(password_page());
    flows.push((login.flow.clone(), Code::BrowserTimeout));
    login.submit();
    flows.push((login.flow.clone(), Code::SiteTimeout));
    login.find(code_page(MfaType::Sms));
    flows.push((login.flow.clone(), Code::InputTimeout));
    login.answer_fields();
    flows.push((login.flow.clone(), Code::BrowserTimeout));
    login.submit();
    login.find(page_with_action(ExternalActionKind::Push));
    flows.push((login.flow.clone(), Code::InputTimeout));
    login.find(welcome());
    flows.push((login.flow.clone(), Code::ProfileNotSaved));
    flows
}

#[test]
fn every_interruption_has_one_result_in_every_state() {
    for (flow, _) in flows_in_every_state() {
        for (event, error) in [
            (FlowEvent::Canceled, Code::Canceled),
            (FlowEvent::BrowserLost, Code::BrowserLost),
            (FlowEvent::ControllerLost, Code::ControllerLost),
        ] {
            let ended = flow.apply(event, flow.updated_at);
            assert_eq!(ended.flow.error_code(), Some(error), "{flow:?}");
            assert_eq!(ended.effect, Some(Effect::EndBrowser));
        }
    }
}

#[test]
fn deadline_has_one_result_in_every_state() {
    for (flow, error) in flows_in_every_state() {
        let deadline = flow.deadline().unwrap();
        let just_before = deadline - TimeDelta::milliseconds(1);
        let early = flow.apply(FlowEvent::Timer, just_before);
        assert_eq!((early.flow, early.effect), (flow.clone(), None));
        let ended = flow.apply(FlowEvent::Timer, deadline);
        assert_eq!(ended.flow.error_code(), Some(error), "{flow:?}");
        // Whatever arrives later is too late.
        let late = flow.apply(FlowEvent::PageFound(welcome()), deadline);
        assert_eq!(late.flow.error_code(), Some(error), "{flow:?}");
        let late = flow.apply(FlowEvent::Timer, start_time() + FLOW_TIMEOUT);
        assert_eq!(late.flow.error_code(), Some(Code::FlowExpired), "{flow:?}");
    }
}

#[test]
fn another_process_continues_every_state() {
    for (flow, _) in flows_in_every_state() {
        let stored = serde_json::to_string(&flow).unwrap();
        let stored: Flow = serde_json::from_str(&stored).unwrap();
        let resumed = stored.apply(FlowEvent::Resumed, flow.updated_at);
        let effect = resumed.effect.unwrap();
        assert_eq!(effect, resumed.flow.effect());
        match flow.effect() {
            // The values were entered, or are lost: the page shows which.
            Effect::FillFromCredential { .. } | Effect::EnterAnswers { .. } => {
                assert_eq!(effect, Effect::Act(PageAction::WaitForSite));
            }
            Effect::Act(PageAction::DismissConsent) => {
                assert_eq!(effect, Effect::Act(PageAction::Inspect));
            }
            before => assert_eq!(effect, before),
        }
        assert_eq!(resumed.flow.interaction_id(), flow.interaction_id());
        assert_eq!(resumed.flow.step(), flow.step());
    }
}

#[test]
fn start_that_fails_ends_the_flow() {
    let begun = Flow::begin(flow_id(), settings(FlowType::Login, true), start_time());
    for (failure, error) in [
        (StartFailure::NoBrowser, Code::BrowserNotStarted),
        (StartFailure::NoCredential, Code::CredentialUnavailable),
    ] {
        let ended = begun
            .flow
            .apply(FlowEvent::NotStarted(failure), start_time());
        assert_eq!(ended.flow.error_code(), Some(error));
    }
}

#[test]
fn credential_that_becomes_unavailable_is_replaced_by_the_person() {
    for is_attended in [true, false] {
        let settings = settings(FlowType::Login, is_attended);
        let mut login = Login::begin(settings, Some(password_credential()));
        login.find(password_page());
        login.send(FlowEvent::Filled(EntryOutcome::CredentialUnavailable));
        if is_attended {
            login.find(password_page());
            assert_eq!(login.flow.step(), FlowStep::AwaitingInput);
        } else {
            login.assert_error(Code::CredentialUnavailable);
        }
    }
}

#[test]
fn profile_that_is_not_saved_is_no_success() {
    let mut login = Login::attended(None);
    login.find(welcome());
    login.send(FlowEvent::NotSaved);
    login.assert_error(Code::ProfileNotSaved);
}

#[test]
fn texts_of_a_page_are_bounded() {
    let long = "x".repeat(5000);
    let mut page = with_error(page(), &format!("{long}\u{0}"));
    page.fields = vec![
        PageField {
            name: long.clone(),
            label: "a\nb".to_owned(),
            hint: Some(long.clone()),
            ..field(FieldKind::Password)
        };
        100
    ];
    page.fields[0].selector = long.clone();
    page.choices = vec![choice(FlowChoiceType::Other, &long[..100]); 100];
    let bounded = page.bounded();
    assert_eq!((bounded.fields.len(), bounded.choices.len()), (32, 32));
    assert_eq!(bounded.website_error.unwrap().len(), 1000);
    let field = &bounded.fields[1];
    assert_eq!(
        (field.name.as_str(), field.label.as_str()),
        ("password_2", "a b")
    );
    assert_eq!(field.hint.as_ref().unwrap().len(), 255);
}

#[test]
fn outcome_of_a_fill_is_that_of_its_worst_field() {
    use crate::api::credential_fill::{FillOutcome, FillResponse, FilledField};

    let outcome = |outcomes: &[FillOutcome], submitted| {
        let field = |outcome: &FillOutcome| FilledField {
            name: "password".to_owned(),
            outcome: *outcome,
        };
        EntryOutcome::from(&FillResponse {
            fields: outcomes.iter().map(field).collect(),
            submitted,
            url: String::new(),
        })
    };
    let filled = FillOutcome::Filled;
    assert_eq!(outcome(&[filled, filled], true), EntryOutcome::Submitted);
    assert_eq!(
        outcome(&[filled, FillOutcome::Unknown], false),
        EntryOutcome::Submitted
    );
    assert_eq!(
        outcome(&[filled, FillOutcome::Hidden], false),
        EntryOutcome::NotSubmitted
    );
    assert_eq!(
        outcome(&[FillOutcome::RefusedOrigin], false),
        EntryOutcome::OriginRefused
    );
}
