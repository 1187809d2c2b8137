//! Chromium can log in to each of the login sites, by the steps that a person does.

use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    login_sites::{LoginSites, Member},
    scripts::result_of,
};

/// Functions for the steps of a login.
const STEPS: &str = "
    const click = (scope, name) => scope.getByRole('button', { name }).click();
    const logIn = async (scope, secret = password) => {
      await scope.getByLabel('User name').fill(user);
      await scope.getByLabel('Password').fill(secret);
      await click(scope, 'Log in');
    };
    const logInBySteps = async scope => {
      await scope.getByLabel('Email').fill(user);
      await click(scope, 'Next');
      await scope.getByLabel('Password').fill(password);
      await click(scope, 'Next');
    };";
const SUBMIT_PASSWORD: &str = "await logIn(page);";

async fn agent_for(sites: &LoginSites) -> TestAgent {
    let (resolver, certificate) = (sites.resolver_flag(), sites.certificate_flag());
    let start = Start::headless().with([resolver.as_str(), certificate.as_str()]);
    start.ready().await
}

/// Runs steps with the values of a member, and returns their result.
async fn run(agent: &TestAgent, member: &Member, steps: &str) -> Value {
    let code = format!(
        "const user = {}, password = {}, answer = {}, code = {};{STEPS}{steps}",
        json!(member.user),
        json!(member.password),
        json!(member.security_answer),
        json!(member.totp_code())
    );
    result_of(agent, &code).await
}

/// Runs the steps of a login on a page, and asserts that they lead to the page of members.
async fn log_in_by(agent: &TestAgent, member: &Member, url: &str, steps: &str) {
    let steps = format!(
        "await page.goto({url:?});{steps}
        await page.waitForURL(new URL('/account', {url:?}).href);
        await page.getByRole('link', {{ name: 'Log out' }}).waitFor();
        return page.evaluate(() => fetch('/whoami').then(response => response.json()));"
    );
    let answer = run(agent, member, &steps).await;
    assert_eq!(answer, json!({"user": member.user}), "{url}");
}

#[tokio::test]
async fn login_forms_are_usable_in_chromium() {
    let sites = LoginSites::serve().await;
    let agent = agent_for(&sites).await;
    let wrong_before_right = "await logIn(page, 'wrong');
        await page.getByRole('alert').waitFor();
        await logIn(page);";
    let banner = "const covered = await page.getByLabel('Password').evaluate(field => {
          const { x, y } = field.getBoundingClientRect();
          return !field.contains(document.elementFromPoint(x + 2, y + 2));
        });
        if (!covered) throw new Error('the banner does not cover the form');
        await click(page, 'Only necessary');
        await logIn(page);";
    for (site, path, steps) in [
        ("password.test", "/login", wrong_before_right),
        ("consent.test", "/login", banner),
        (
            "discover.test",
            "/",
            "await page.getByRole('link', { name: 'Log in' }).click(); await logIn(page);",
        ),
        ("expiry.test", "/login", SUBMIT_PASSWORD),
        (
            "iframe.test",
            "/login",
            "await logIn(page.frameLocator('iframe'));",
        ),
        ("rerender.test", "/login", SUBMIT_PASSWORD),
        ("shadow.test", "/login", SUBMIT_PASSWORD),
        ("slow.test", "/login", SUBMIT_PASSWORD),
    ] {
        log_in_by(&agent, &sites.ada, &sites.secure_url(site, path), steps).await;
    }
    log_in_by(
        &agent,
        &sites.ada,
        &sites.url("elsewhere.test", "/login"),
        SUBMIT_PASSWORD,
    )
    .await;
    let consent = sites.received_by("consent.test")[0].clone();
    let choice = [("choice".to_owned(), "necessary".to_owned())];
    assert_eq!(
        (consent.path.as_str(), consent.fields.as_slice()),
        ("/consent", &choice[..])
    );
    agent.stop().await;
}

#[tokio::test]
async fn further_steps_of_logins_are_usable_in_chromium() {
    let sites = LoginSites::serve().await;
    let agent = agent_for(&sites).await;
    let remember = "await logIn(page);
        await page.getByLabel('Code').fill(code);
        await page.getByLabel('Remember this device').check();
        await click(page, 'Verify');";
    let change = "await logIn(page);
        await page.getByLabel('Current password').fill(password);
        await page.getByLabel('New password', { exact: true }).fill('new-' + password);
        await page.getByLabel('Confirm new password').fill('new-' + password);
        await click(page, 'Change password');";
    let captcha = "await page.getByLabel('not a robot').check();
        await page.waitForFunction(() => captcha.form.captcha_token.value);
        await logIn(page);";
    for (site, steps) in [
        ("captcha.test", captcha),
        ("change.test", change),
        (
            "picker.test",
            "await page.getByText(user).click(); await page.getByLabel('Password').fill(password); await click(page, 'Next');",
        ),
        (
            "question.test",
            "await logIn(page); await page.getByLabel('Answer').fill(answer); await click(page, 'Continue');",
        ),
        ("remember.test", remember),
        (
            "totp.test",
            "await logIn(page); await page.getByLabel('Code').fill(code); await click(page, 'Verify');",
        ),
        ("two-steps.test", "await logInBySteps(page);"),
    ] {
        log_in_by(&agent, &sites.ada, &sites.secure_url(site, "/login"), steps).await;
    }
    sites.expire_sessions();
    let url = sites.secure_url("remember.test", "/login");
    log_in_by(&agent, &sites.ada, &url, SUBMIT_PASSWORD).await;
    let changed = sites.password("change.test", &sites.ada);
    assert_eq!(changed, format!("new-{}", sites.ada.password));
    agent.stop().await;
}

#[tokio::test]
async fn other_origins_and_devices_are_usable_in_chromium() {
    let sites = LoginSites::serve().await;
    let agent = agent_for(&sites).await;
    let popup = "const opened = page.waitForEvent('popup');
        await click(page, 'Sign in with Google');
        await logInBySteps(await opened);";
    let url = sites.secure_url("popup.test", "/login");
    log_in_by(&agent, &sites.ada, &url, popup).await;
    sites.expire_sessions();
    let sso = "await page.getByRole('link', { name: 'Sign in with Google' }).click();
        await page.waitForURL('https://idp.test/signin');
        await logInBySteps(page);";
    log_in_by(
        &agent,
        &sites.ada,
        &sites.secure_url("sso.test", "/login"),
        sso,
    )
    .await;
    let places = vec!["idp.test /password password"; 2];
    assert_eq!(sites.places_of(&sites.ada.password), places);
    let url = sites.secure_url("push.test", "/login");
    let push = log_in_by(&agent, &sites.ada, &url, SUBMIT_PASSWORD);
    tokio::join!(push, sites.approve_push());
    let sms = "await page.goto('https://sms.test/login'); await logIn(page);
        await page.getByLabel('Code').waitFor(); return page.url();";
    assert_eq!(run(&agent, &sites.ada, sms).await, "https://sms.test/code");
    let fill = format!(
        "await page.getByLabel('Code').fill({:?}); await click(page, 'Verify');",
        sites.sms_code().await
    );
    let url = sites.secure_url("sms.test", "/code");
    log_in_by(&agent, &sites.ada, &url, &fill).await;
    agent.stop().await;
}

#[tokio::test]
async fn failing_sites_are_reached_by_chromium() {
    let sites = LoginSites::serve().await;
    let agent = agent_for(&sites).await;
    let down = "return (await page.goto('https://down.test/login')).status();";
    assert_eq!(run(&agent, &sites.ada, down).await, 503);
    sites.redirect_to(&sites.secure_url("elsewhere.test", "/login"));
    let redirect = "await page.goto('https://redirect.test/login');
        await page.getByLabel('Email').fill(user);
        await click(page, 'Next');
        await page.getByLabel('Password').waitFor();
        return page.url();";
    let url = run(&agent, &sites.ada, redirect).await;
    assert_eq!(url, "https://elsewhere.test/login");
    let url = sites.secure_url("expiry.test", "/login");
    log_in_by(&agent, &sites.ada, &url, SUBMIT_PASSWORD).await;
    sites.expire_sessions();
    let expired = "await page.waitForURL('https://expiry.test/login');
        return page.getByRole('status').textContent();";
    let text = run(&agent, &sites.ada, expired).await;
    assert_eq!(text, "Your session has expired. Log in again.");
    agent.stop().await;
}
