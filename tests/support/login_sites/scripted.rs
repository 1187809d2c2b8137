//! Sites whose scripts make the login form hard to use.

use axum::{
    Form, Router,
    http::StatusCode,
    response::{AppendHeaders, IntoResponse, Response},
    routing::post,
};
use serde::Deserialize;
use serde_json::json;

use super::{
    pages::{login_page, step_page},
    password::PasswordLogin,
    request::SiteRequest,
};

const SLOW_LOGIN: &str = "<p>We are preparing your account.</p><script>
    setTimeout(() => { location = '/account' }, 1500)
    </script>";
const CONSENT: &str = "consent";
/// Covers the whole page.
const CONSENT_DIALOG: &str = "<div role=dialog aria-modal=true aria-label=\"Your privacy\" id=consent
      style=\"position: fixed; inset: 0; padding: 2rem; background: white\">
    <h2>Your privacy</h2><p>We and our 214 partners store cookies on your device.</p>
    <button type=button value=all>Accept all</button>
    <button type=button value=necessary>Only necessary</button></div><script>
    for (const button of consent.querySelectorAll('button')) button.onclick = async () => {
      await fetch('/consent', { method: 'POST', body: new URLSearchParams({ choice: button.value }) });
      consent.remove();
    };
    </script>";

#[derive(Deserialize)]
struct ConsentFields {
    choice: String,
}

/// Returns a form as a JavaScript string for a script in a page.
fn script_string(form: &str) -> String {
    json!(form).to_string().replace("</", "<\\/")
}

/// A site whose form appears late, and whose page of members appears late after the login.
pub(super) fn slow() -> Router {
    let login = PasswordLogin {
        page: |_, form| {
            login_page(&format!(
                "<div id=root aria-busy=true>Loading…</div><script>
                setTimeout(() => {{ root.innerHTML = {}; root.ariaBusy = 'false' }}, 1500)
                </script>",
                script_string(form)
            ))
        },
        then: |request, user| {
            let page = step_page("Please wait", SLOW_LOGIN);
            (request.start_session(user), page).into_response()
        },
        ..Default::default()
    };
    login.routes()
}

/// A site that replaces the elements of its form every 400 ms. Their values and the focus stay.
pub(super) fn rerender() -> Router {
    let login = PasswordLogin {
        page: |_, form| {
            login_page(&format!(
                "<div id=root></div><script>
                let round = 0;
                const render = () => {{
                  const values = new Map();
                  for (const {{ name, value }} of root.querySelectorAll('input')) values.set(name, value);
                  const focused = root.contains(document.activeElement) && document.activeElement.name;
                  round += 1;
                  root.innerHTML = {}.replaceAll(/ (id|for)=(\\w+)/g, ` $1=$2-${{round}}`);
                  for (const input of root.querySelectorAll('input')) {{
                    input.value = values.get(input.name) ?? input.value;
                    if (input.name === focused) input.focus();
                  }}
                }};
                render();
                setInterval(render, 400);
                </script>",
                script_string(form)
            ))
        },
        ..Default::default()
    };
    login.routes()
}

/// A site whose form is in the shadow tree of an element of its own, which has the name of an
/// object of the agent's script.
pub(super) fn shadow() -> Router {
    let login = PasswordLogin {
        page: |_, form| {
            login_page(&format!(
                "<login-form id=berthLoginPage></login-form><script>
                customElements.define('login-form', class extends HTMLElement {{
                  connectedCallback() {{ this.attachShadow({{ mode: 'open' }}).innerHTML = {} }}
                }});
                </script>",
                script_string(form)
            ))
        },
        ..Default::default()
    };
    login.routes()
}

/// A site whose consent banner covers the page.
pub(super) fn consent() -> Router {
    let login = PasswordLogin {
        page: |request, form| match request.cookie(CONSENT) {
            Some(_) => login_page(form),
            None => login_page(&format!("{form}{CONSENT_DIALOG}")),
        },
        ..Default::default()
    };
    login.routes().route("/consent", post(store_consent))
}

async fn store_consent(request: SiteRequest, Form(fields): Form<ConsentFields>) -> Response {
    let value = match fields.choice.as_str() {
        "all" => "all",
        _ => "necessary",
    };
    let cookies = request.set_cookie(CONSENT, value, "; Max-Age=1000000");
    (StatusCode::NO_CONTENT, AppendHeaders(cookies)).into_response()
}
