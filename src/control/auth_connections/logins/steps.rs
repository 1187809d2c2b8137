//! The steps of a login on the page in front that enter no value.

use super::page::{Click, LoginPage, PageError, is_login_page, is_permitted};
use crate::{
    api::login_page::{InspectedPage, LoginActKind},
    control::{auth_connections::flow::PageFailure, store::AuthConnectionRow},
};

/// The most links that lead to the login page.
const MAX_LOGIN_LINKS: usize = 3;
/// The paths at which the login page of a domain is looked for if nothing links to it.
const LOGIN_PATHS: [&str; 5] = [
    "login",
    "signin",
    "sign-in",
    "account/login",
    "users/sign_in",
];
/// Opens the login page of a connection, or a page of its domain that may be or link to it.
pub(super) async fn open_login_page(
    page: &LoginPage<'_>,
    connection: &AuthConnectionRow,
) -> Result<Result<InspectedPage, PageFailure>, PageError> {
    if let Some(url) = &connection.settings.login_url {
        page.open(url).await?;
        return Ok(Ok(page.settled().await?));
    }
    let mut base = format!("https://{}/", connection.domain);
    page.open(&base).await?;
    let mut first = page.settled().await?;
    if first.unreachable && page.allow_http {
        base = format!("http://{}/", connection.domain);
        page.open(&base).await?;
        first = page.settled().await?;
    }
    if first.unreachable {
        return Ok(Err(PageFailure::Unavailable));
    }
    let found = follow_login_links(page, first).await?;
    if is_login_page(&found) || !is_permitted(&page.sites, &found) {
        return Ok(Ok(found));
    }
    for path in LOGIN_PATHS {
        page.open(&format!("{base}{path}")).await?;
        let found = page.settled().await?;
        let exists = found.http_status.is_none_or(|status| status < 400);
        if exists && !found.fields.is_empty() {
            return Ok(Ok(found));
        }
    }
    Ok(Err(PageFailure::NoLoginPage))
}

/// Follows links to the login from a page that requests nothing.
pub(super) async fn follow_login_links(
    page: &LoginPage<'_>,
    mut found: InspectedPage,
) -> Result<InspectedPage, PageError> {
    for _ in 0..MAX_LOGIN_LINKS {
        if is_login_page(&found) || !is_permitted(&page.sites, &found) {
            break;
        }
        let Some(link) = &found.login_link else {
            break;
        };
        if page
            .click(&link.reference, LoginActKind::Click, &[])
            .await?
            == Click::Refused
        {
            break;
        }
        found = page.response_to(Some(&found)).await?;
    }
    Ok(found)
}

/// Clicks the element of the page with a reference, if it is still there, and returns the page that
/// follows.
pub(super) async fn click_one(
    page: &LoginPage<'_>,
    kind: LoginActKind,
    reference: impl Fn(&InspectedPage) -> Option<&String>,
) -> Result<InspectedPage, PageError> {
    let found = page.settled().await?;
    let Some(reference) = reference(&found) else {
        return Ok(found);
    };
    match page.click(reference, kind, &[]).await? {
        Click::Clicked => page.response_to(Some(&found)).await,
        Click::Refused => page.settled().await,
    }
}

/// Returns the box to remember the device, or the button in its place, if it is not checked.
pub(super) fn unchecked_box(page: &InspectedPage) -> Option<&String> {
    let unchecked = page.remember.as_ref().filter(|remember| !remember.checked);
    Some(&unchecked?.reference)
}

/// Selects an alternative. A list is submitted when the alternative is selected.
pub(super) async fn choose(
    page: &LoginPage<'_>,
    label: &str,
    selector: &str,
) -> Result<InspectedPage, PageError> {
    let before = page.settled().await?;
    let mut choices = before.choices.iter();
    let Some(choice) = choices
        .find(|choice| choice.selector.as_deref() == Some(selector) && choice.label == label)
    else {
        return Ok(before);
    };
    let hosts = LoginPage::hosts_of(choice);
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    if !choice.selected {
        let clicked = page.click(&choice.reference, LoginActKind::Click, &hosts);
        if clicked.await? == Click::Refused {
            return page.settled().await;
        }
    }
    let after = page.settled().await?;
    let mut choices = after.choices.iter();
    let is_selected = choices.any(|choice| {
        choice.selected && choice.selector.as_deref() == Some(selector) && choice.label == label
    });
    let submit = after.submit.as_ref().filter(|_| is_selected);
    match submit {
        Some(submit) => {
            page.click(&submit.reference, LoginActKind::Click, &hosts)
                .await?;
            page.response_to(Some(&after)).await
        }
        None => page.response_to(Some(&before)).await,
    }
}
