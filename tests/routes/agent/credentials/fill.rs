//! `POST /credentials/fill`

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::pages::{FormSite, Variant, report, variant, variants, wrong_fields};
use crate::support::{
    agent::{Start, TestAgent},
    canary_site::CanarySite,
    page::Page,
    painter::region,
    requests::wrong_fields as invalid_fields,
    wait::{in_time, until},
};

const LOGIN: &str = "<form><input name=username data-right=username>\
    <input type=password name=password data-right=password><button>Sign in</button></form>";

async fn fill(agent: &TestAgent, body: &Value) -> (StatusCode, Value) {
    agent
        .answer(agent.post("/credentials/fill").json(body))
        .await
}

/// Returns the outcomes of a response by name.
fn outcomes(response: &Value) -> Value {
    let fields = response["fields"].as_array().unwrap().iter();
    fields
        .map(|field| {
            (
                field["name"].as_str().unwrap().to_owned(),
                field["outcome"].clone(),
            )
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Fills a page twice and compares outcomes, responses and fields with the expected ones.
async fn check(agent: &TestAgent, page: &mut Page, site: &FormSite, variant: &Variant) {
    page.go_to(&site.url(variant)).await;
    let outcomes = &variant.expected["outcomes"];
    let again = variant.expected.get("again").unwrap_or(outcomes);
    for expected in [outcomes, again] {
        check_fill(agent, page, site, variant, expected).await;
    }
}

async fn check_fill(
    agent: &TestAgent,
    page: &mut Page,
    site: &FormSite,
    variant: &Variant,
    expected_outcomes: &Value,
) {
    let name = &variant.name;
    let request = variant.request();
    let (status, response) = fill(agent, &request).await;
    let fields = report(page).await;
    let expected = variant.expected["status"].as_u64().unwrap_or(200);
    assert_eq!(u64::from(status.as_u16()), expected, "{name}: {response}");
    let leaked = wrong_fields(&fields, &request);
    assert!(leaked.is_empty(), "{name}: {leaked:?}");
    let values = request["values"].as_object().unwrap();
    for value in values.values().filter_map(Value::as_str) {
        assert!(!response.to_string().contains(value), "{name}: {response}");
    }
    if expected != 200 {
        assert_eq!(
            response["code"], variant.expected["code"],
            "{name}: {response}"
        );
        let is_empty = fields.iter().all(|field| field.value.is_empty());
        assert!(is_empty, "{name}: {fields:?}");
        return;
    }
    assert_eq!(outcomes(&response), *expected_outcomes, "{name}");
    assert_eq!(response["url"], site.url(variant), "{name}");
    assert_eq!(response["submitted"], false, "{name}");
    for (field, value) in values {
        let value = value.as_str().unwrap();
        let has = fields.iter().filter(|reported| reported.has(field, value));
        let count = has.clone().count();
        let is_split = fields.iter().any(|reported| {
            let right = reported.right.as_deref().unwrap_or_default();
            right.starts_with(&format!("{field}."))
        });
        let expected_count = match expected_outcomes[field].as_str() {
            Some("filled") if is_split => value.len(),
            Some("filled") => 1,
            _ => 0,
        };
        assert_eq!(count, expected_count, "{name}: {field}: {fields:?}");
        for reported in has {
            assert!(reported.masked, "{name}: {field} is shown");
        }
    }
}

#[tokio::test]
async fn fields_of_each_page_have_the_expected_outcome() {
    let variants = variants();
    assert!(variants.len() > 100, "{}", variants.len());
    let site = FormSite::serve(&variants).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    for variant in &variants {
        check(&agent, &mut page, &site, variant).await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn form_is_submitted_in_the_same_step() {
    // The way in which the page gets the form, and the page.
    let pages = [
        ("submit", format!("<body>{LOGIN}")),
        (
            "submit",
            format!("<body>{}", LOGIN.replace("<button>Sign in</button>", "")),
        ),
        (
            "submit",
            format!(
                "<body>{}",
                LOGIN.replace(
                    "<button>",
                    "<button name=way value=second>Cancel</button><button>"
                )
            ),
        ),
        (
            "click",
            format!(
                "<body>{}",
                LOGIN
                    .replace("form", "div")
                    .replace("<button>", "<button onclick=take('click')>")
            ),
        ),
        (
            "click",
            format!(
                "<body>{}",
                LOGIN.replace(
                    "<button>",
                    "<button onclick=\"event.preventDefault(); take('click')\">"
                )
            ),
        ),
        (
            "Enter",
            "<body onkeydown=\"event.key === 'Enter' && take('Enter')\"><input name=username>\
             <input type=password>"
                .to_owned(),
        ),
        // Not valid, not enabled, and without a field for every value that was named.
        (
            "",
            format!(
                "<body>{}",
                LOGIN.replace("<button>", "<input name=room required><button>")
            ),
        ),
        (
            "",
            format!("<body>{}", LOGIN.replace("<button>", "<button disabled>")),
        ),
        (
            "",
            "<body><form><input name=username><button>Sign in</button></form>".to_owned(),
        ),
        // The page changes a value.
        (
            "",
            format!("<body oninput=\"event.target.value += 'x'\">{LOGIN}"),
        ),
    ];
    let script = "<script>
        var taken = [];
        const take = (way) => taken.push([way, ...[...document.querySelectorAll('input')].map(({value}) => value)]);
        addEventListener('submit', (event) => { event.preventDefault(); take('submit'); });
        </script>";
    let variants: Vec<Variant> = pages
        .iter()
        .enumerate()
        .map(|(index, (_, html))| variant(&format!("page{index}"), &format!("{html}{script}")))
        .collect();
    let site = FormSite::serve(&variants).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    for (variant, (way, html)) in variants.iter().zip(&pages) {
        page.go_to(&site.url(variant)).await;
        let mut request = variant.request();
        request["submit"] = true.into();
        request["fields"] = json!([{"name": "username"}, {"name": "password"}]);
        let response = fill(&agent, &request).await.1;
        assert_eq!(response["submitted"], !way.is_empty(), "{html}: {response}");
        let taken = page.evaluate("taken").await;
        let expected = match *way {
            "" => json!([]),
            way => json!([[way, "ada.lovelace", "correct horse"]]),
        };
        assert_eq!(taken, expected, "{html}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn submitted_form_leaves_the_page() {
    let form = LOGIN.replace("<form>", "<form action=SUBDOMAIN/take method=post>");
    let variant = variant("login", &form);
    let site = FormSite::serve(std::slice::from_ref(&variant)).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    let address = format!("{}?token=1#code=2", site.url(&variant));
    page.go_to(&address).await;
    let mut request = variant.request();
    request["submit"] = true.into();
    let (status, response) = fill(&agent, &request).await;
    assert_eq!(
        (status, &response["submitted"]),
        (StatusCode::OK, &json!(true))
    );
    assert_eq!(response["url"], site.url(&variant));
    page.loaded(|address| address.ends_with(":take") || address.ends_with("/take"))
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn values_are_never_submitted_in_an_address() {
    let form = |attributes: &str| LOGIN.replace("<form>", &format!("<form {attributes}>"));
    let button = |attributes: &str| LOGIN.replace("<button>", &format!("<button {attributes}>"));
    let listener = |options: &str, script: &str| {
        format!(
            "{LOGIN}<script>document.forms[0].parentNode.addEventListener('submit', (event) => {{ {script} }}, {options})</script>"
        )
    };
    // The page, and whether it takes the form.
    let pages = [
        // As it is before its script is there.
        (LOGIN.to_owned(), false),
        (LOGIN.replace("<button>Sign in</button>", ""), false),
        (form("action=/take?a=1"), false),
        (form("method=wrong"), false),
        (button("formaction=/take"), false),
        (
            form("method=post").replace("<button>", "<button formmethod=get>"),
            false,
        ),
        (
            format!("<template shadowrootmode=open>{LOGIN}</template>")
                .replace("<form>", "<form action=/take>"),
            false,
        ),
        // Its listeners see the form, and do not take it.
        (listener("false", "window.seen = true"), false),
        (listener("false", "event.stopPropagation()"), false),
        (listener("true", "event.stopPropagation()"), false),
        (
            format!("<body onclick='event.stopPropagation()'>{LOGIN}"),
            false,
        ),
        (
            LOGIN.replace(
                "<button>Sign in</button>",
                "<div role=button onclick=\"this.closest('form').requestSubmit()\">Sign in</div>",
            ),
            false,
        ),
        // It takes the form by a script, or another method.
        (listener("false", "event.preventDefault()"), true),
        (
            format!("<script>onsubmit = () => false</script>{LOGIN}"),
            true,
        ),
        (
            form("onsubmit=\"this.method = 'post'; this.action = '/take'\""),
            true,
        ),
        (button("formmethod=post formaction=/take"), true),
        (form("action=\"javascript: void 0\""), true),
    ];
    let variants: Vec<Variant> = (0..)
        .zip(&pages)
        .map(|(index, (html, _))| {
            // A form in a shadow tree needs an element around it.
            variant(&format!("page{index}"), &format!("<body><div>{html}</div>"))
        })
        .collect();
    let site = FormSite::serve(&variants).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    for (variant, (html, is_taken)) in variants.iter().zip(&pages) {
        let url = site.url(variant);
        page.go_to(&url).await;
        let mut request = variant.request();
        request["submit"] = true.into();
        let (status, response) = fill(&agent, &request).await;
        assert_eq!(status, StatusCode::OK, "{html}: {response}");
        assert_eq!(response["submitted"], *is_taken, "{html}");
        let filled = json!({"username": "filled", "password": "filled"});
        assert_eq!(outcomes(&response), filled, "{html}");
        if *is_taken {
            continue;
        }
        // A navigation would start before the response arrives.
        page.evaluate("fetch('/report.js').then(() => true)").await;
        assert_eq!(page.evaluate("location.href").await, url, "{html}");
        let fields = report(&mut page).await;
        let is_filled = |name, value| fields.iter().any(|field| field.has(name, value));
        assert!(is_filled("username", "ada.lovelace"), "{html}");
        assert!(is_filled("password", "correct horse"), "{html}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn chromium_stores_no_value_of_a_submitted_form() {
    let form = LOGIN.replace("<form>", "<form action=/take method=post>");
    let variant = variant("login", &form);
    let site = FormSite::serve(std::slice::from_ref(&variant)).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    // A value that is typed is stored, which shows that the others would be.
    for (value, is_typed) in [("filled-7w1-value", false), ("typed-7w1-value", true)] {
        page.go_to(&site.url(&variant)).await;
        if is_typed {
            page.evaluate("document.querySelector('input').focus()")
                .await;
            let params = json!({ "text": value });
            page.call("Input.insertText", params).await;
            page.evaluate("document.querySelector('form').requestSubmit()")
                .await;
        } else {
            let mut request = variant.request();
            request["values"] = json!({"username": value, "password": format!("{value}-2")});
            request["submit"] = true.into();
            let (status, response) = fill(&agent, &request).await;
            assert_eq!(status, StatusCode::OK, "{response}");
            assert_eq!(response["submitted"], true, "{response}");
        }
        page.loaded(|address| address.ends_with("/take")).await;
    }
    let profile = agent.session_dir().join("user-data/Default");
    let stored = |value: &str| {
        let files = ["Web Data", "Web Data-wal", "Web Data-journal", "Login Data"];
        files.iter().any(|name| {
            let content = std::fs::read(profile.join(name)).unwrap_or_default();
            content
                .windows(value.len())
                .any(|part| part == value.as_bytes())
        })
    };
    until("the history of forms", async || {
        stored("typed-7w1-value").then_some(())
    })
    .await;
    assert!(!stored("filled-7w1-value"));
    let preferences = std::fs::read(profile.join("Preferences")).unwrap();
    let preferences: Value = serde_json::from_slice(&preferences).unwrap();
    assert_eq!(preferences["credentials_enable_service"], false);
    // Otherwise a directory with the open tabs, and the bodies of their requests.
    assert_eq!(std::fs::read(profile.join("Sessions")).unwrap(), b"");
    agent.stop().await;
}

#[tokio::test]
async fn values_are_dots_on_the_screen() {
    let html = "<body style='margin: 150px 0; background: white'><form>\
        <label>User name <input name=username style='font-size: 40px'></label>\
        <input type=password style='font-size: 40px'><button>Sign in</button></form>\
        <script>addEventListener('change', ({target}) => { target.type = 'text'; target.blur(); })</script>";
    let variant = variant("login", html);
    let site = FormSite::serve(std::slice::from_ref(&variant)).await;
    let agent = FormSite::browser(Start::on_screen()).await;
    let mut page = Page::of(&agent).await;
    let drawn =
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
    let mut images = Vec::new();
    for (username, password) in [("wwwwwwww", "mmmmmmmm"), ("iiiiiiii", "llllllll")] {
        page.go_to(&site.url(&variant)).await;
        page.ready().await;
        let mut request = variant.request();
        request["values"] = json!({"username": username, "password": password});
        let (status, response) = fill(&agent, &request).await;
        assert_eq!(status, StatusCode::OK, "{response}");
        assert_eq!(
            outcomes(&response),
            json!({"username": "filled", "password": "filled"})
        );
        page.evaluate("document.activeElement.blur()").await;
        page.evaluate(drawn).await;
        images.push(settled_screenshot(&agent).await);
    }
    assert!(images[0] == images[1], "the values are recognizable");
    // Without the mask they would be. A page that removes it so often wins.
    let unmask = "(async () => { for (const { style } of document.querySelectorAll('input')) { \
        for (let count = 0; count < 102; count += 1) { \
        style.setProperty('-webkit-text-security', 'none'); await null; } } })()";
    page.evaluate(unmask).await;
    page.evaluate(drawn).await;
    until("another image", async || {
        (settled_screenshot(&agent).await != images[1]).then_some(())
    })
    .await;
    agent.stop().await;
}

/// Returns a screenshot that is equal to the one before it.
async fn settled_screenshot(agent: &TestAgent) -> Vec<u8> {
    let mut last = Vec::new();
    until("a still screen", async || {
        // Below Chromium's own controls.
        let part = region(0, 200, 800, 400);
        let request = agent.post("/computer/screenshot").json(&part);
        let response = in_time("a screenshot", request.send()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let image = response.bytes().await.unwrap().to_vec();
        let is_still = image == last;
        last = image;
        is_still.then_some(())
    })
    .await;
    last
}

#[tokio::test]
async fn mask_stays_until_the_field_is_empty() {
    let variant = variant("login", LOGIN);
    let site = FormSite::serve(std::slice::from_ref(&variant)).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    page.go_to(&site.url(&variant)).await;
    fill(&agent, &variant.request()).await;
    let masked = "getComputedStyle(document.querySelector('[name=username]')).webkitTextSecurity";
    for (change, expected) in [
        // A page that renders again sets styles and replaces elements.
        ("user().removeAttribute('style')", "disc"),
        ("user().style.webkitTextSecurity = 'none'", "disc"),
        (
            "const copy = user().cloneNode(); copy.removeAttribute('style'); copy.value = user().value; user().replaceWith(copy)",
            "disc",
        ),
        (
            "user().value = ''; user().dispatchEvent(new Event('input'))",
            "none",
        ),
    ] {
        let script = format!(
            "{{ const user = () => document.querySelector('[name=username]'); {change} }} Promise.resolve()"
        );
        page.evaluate(&script).await;
        assert_eq!(page.evaluate(masked).await, expected, "{change}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn values_of_a_form_whose_event_a_page_stops_are_in_no_address() {
    let listener = |script: &str| {
        format!(
            "{LOGIN}<script>document.forms[0].addEventListener('submit', (event) => {{ {script} }})</script>"
        )
    };
    let stopped = listener("event.stopImmediatePropagation()");
    let taken =
        listener("window.count = [...new FormData(event.target)].length; event.preventDefault()");
    let clicked = format!(
        "{LOGIN}<script>document.querySelector('button').onclick = (event) => {{ event.preventDefault();
            window.count = [...new FormData(document.forms[0])].length; }}</script>"
    );
    let variants = [
        variant("stopped", &stopped),
        variant("taken", &taken),
        variant("clicked", &clicked),
    ];
    let site = FormSite::serve(&variants).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    for (variant, is_taken) in variants.iter().zip([false, true, true]) {
        page.go_to(&site.url(variant)).await;
        let mut request = variant.request();
        request["submit"] = true.into();
        let (status, response) = fill(&agent, &request).await;
        assert_eq!(status, StatusCode::OK, "{response}");
        assert_eq!(response["submitted"], is_taken, "{response}");
        if is_taken {
            // A script that takes the form gets the values.
            assert_eq!(page.evaluate("window.count").await, 2);
        } else {
            // The browser sends the form, without values.
            page.loaded(|address| address.ends_with('?')).await;
        }
    }
    agent.stop().await;
}

#[tokio::test]
async fn field_that_a_page_uses_for_another_step_has_its_new_purpose() {
    let step = "<form><input autocomplete=username><button>Sign in</button></form>";
    let variant = variant("step", step);
    let site = FormSite::serve(std::slice::from_ref(&variant)).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    page.go_to(&site.url(&variant)).await;
    // As a framework does that keeps the element. A setter causes no event.
    let change = |type_name: &str, tokens: &str| {
        format!(
            "Object.assign(document.querySelector('input'),
                {{value: '', type: '{type_name}', autocomplete: '{tokens}'}})"
        )
    };
    for (type_name, tokens, [username, password]) in [
        ("text", "username", ["filled", "not_found"]),
        ("password", "current-password", ["not_found", "filled"]),
        ("text", "nickname", ["not_found", "not_found"]),
        ("text", "username", ["filled", "not_found"]),
    ] {
        page.evaluate(&change(type_name, tokens)).await;
        let (_, response) = fill(&agent, &variant.request()).await;
        let expected = json!({"username": username, "password": password});
        assert_eq!(outcomes(&response), expected, "{tokens}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn values_that_a_page_renders_again_are_dots() {
    let helpers = "
        const task = () => new Promise((done) => setTimeout(done));
        const frame = () => new Promise(requestAnimationFrame);
        const host = document.querySelector('login-form');
        const root = host.shadowRoot;
        const user = root.querySelector('[name=username]');
        const add = (parent, name, value = '') => {
            const field = document.createElement('input');
            field.name = name;
            field.value = value;
            parent.append(field);
            return field;
        };";
    let page_html = format!(
        "<login-form><template shadowrootmode=open>{LOGIN}</template></login-form>\
         <input id=shown style='display: none'><div id=around hidden><input id=within></div>\
         <input id=twin><script>document.querySelector('login-form').shadowRoot.addEventListener(
             'input', ({{target}}) => target.name === 'username' && (twin.value = target.value))</script>"
    );
    let changes = [
        // Another field, now or later.
        "add(user.parentNode, 'other', user.value); user.remove()",
        "user.remove(); await task(); add(root, 'other', user.value)",
        "user.remove(); await task(); add(root, 'username', user.value)",
        "const field = add(root, 'other'); user.remove(); await task(); field.value = user.value",
        "const field = add(root, 'other'); await frame(); await task(); field.value = user.value",
        // With a value that the page has changed.
        "user.value += '-2'; user.remove(); await task(); add(root, 'other', user.value)",
        // In another tree.
        "user.remove(); await task(); add(document.body, 'other', user.value)",
        "const {value} = user; host.remove(); await task();
         const copy = document.createElement('login-form');
         add(copy.attachShadow({mode: 'open'}), 'username', value);
         document.body.append(copy)",
        "const copy = document.createElement('div');
         copy.append(document.createElement('form'));
         copy.firstChild.append(document.createElement('section'));
         document.body.append(copy); await task();
         add(copy.querySelector('section'), 'querySelectorAll', user.value)",
        // A field that was hidden.
        "shown.value = user.value; await task(); user.style.display = 'none'; shown.style.display = ''",
        "shown.value = user.value; await task(); shown.setAttribute('value', user.value)",
        "within.value = user.value; await task(); around.hidden = false",
    ];
    let variant = variant("login", &page_html);
    let site = FormSite::serve(std::slice::from_ref(&variant)).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    for change in changes {
        page.go_to(&site.url(&variant)).await;
        let response = fill(&agent, &variant.request()).await.1;
        let filled = json!({"username": "filled", "password": "filled"});
        assert_eq!(outcomes(&response), filled);
        let script =
            format!("(async () => {{ {helpers} {change}; await frame(); await frame() }})()");
        page.evaluate(&script).await;
        let fields = report(&mut page).await;
        let mut shown = fields.iter().filter(|field| !field.value.is_empty());
        let count = shown
            .clone()
            .filter(|field| field.value.starts_with("ada.lovelace"));
        assert!(count.count() > 0, "{change}: {fields:?}");
        assert!(shown.all(|field| field.masked), "{change}: {fields:?}");
    }
    // A field with anything else is as before.
    let script =
        format!("(() => {{ {helpers} add(document.body, 'other', 'ada.love').id = 'other' }})()");
    page.evaluate(&script).await;
    let masked = "getComputedStyle(document.querySelector('#other')).webkitTextSecurity";
    assert_eq!(page.evaluate(masked).await, "none");
    agent.stop().await;
}

#[tokio::test]
async fn only_https_of_the_domain_is_filled() {
    let site = CanarySite::serve().await;
    let [resolver, trust] = site.chromium_flags();
    let start = Start::headless().with([resolver.as_str(), trust.as_str()]);
    let agent = start.ready().await;
    let mut page = Page::of(&agent).await;
    let request = |domain: &str| json!({"domain": domain, "values": {"canary": "some value"}});
    for (url, domain, allow_http, allowed) in [
        (&site.secure_url, "canary.test", None, true),
        (&site.secure_url, "www.canary.test", Some(false), true),
        (&site.secure_url, "canary.test", Some(true), true),
        (&site.secure_url, "test", None, false),
        (&site.secure_url, "other.test", None, false),
        (&site.secure_url, "notcanary.test", None, false),
        (&site.named_url, "canary.test", None, false),
        (&site.named_url, "canary.test", Some(false), false),
        (&site.named_url, "canary.test", Some(true), true),
        (&site.named_url, "www.canary.test", Some(true), true),
        (&site.named_url, "other.test", Some(true), false),
        (&site.url, "127.0.0.1", None, true),
        (&site.url, "127.0.0.2", None, false),
        (&site.url, "127.0.0.2", Some(true), false),
    ] {
        page.go_to(&format!("{url}/{domain}")).await;
        let mut request = request(domain);
        if let Some(allow_http) = allow_http {
            request["allow_http"] = allow_http.into();
        }
        let (status, response) = fill(&agent, &request).await;
        let value = page.evaluate("field.value").await;
        if allowed {
            assert_eq!(status, StatusCode::OK, "{url}: {domain}: {response}");
            assert_eq!(value, "some value", "{url}: {domain}");
        } else {
            assert_eq!(status, StatusCode::FORBIDDEN, "{url}: {domain}: {response}");
            assert_eq!(response["code"], "origin_refused");
            assert_eq!(value, "", "{url}: {domain}");
        }
    }
    page.go_to("data:text/html,<input name=canary id=field>")
        .await;
    let (status, response) = fill(&agent, &request("canary.test")).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{response}");
    agent.stop().await;
}

#[tokio::test]
async fn values_are_in_no_log() {
    let variant = variant("login", LOGIN);
    let site = FormSite::serve(std::slice::from_ref(&variant)).await;
    let agent = FormSite::browser(Start::headless().logging("trace")).await;
    let mut page = Page::of(&agent).await;
    page.go_to(&site.url(&variant)).await;
    let secret = "planted-3vq0-value";
    let mut request = variant.request();
    request["values"] =
        json!({"username": format!("{secret}-user"), "password": secret, "other": secret});
    let (status, _) = fill(&agent, &request).await;
    assert_eq!(status, StatusCode::OK);
    // Too long, of a wrong kind, and for a page that is refused.
    for (pointer, value) in [
        ("/values/username", json!(secret.repeat(1000))),
        ("/values/username", json!([secret])),
        ("/domain", json!("unrelated-site.test")),
        ("/fields", json!([{"name": "other", "selector": "["}])),
    ] {
        let mut body = request.clone();
        match body.pointer_mut(pointer) {
            Some(field) => *field = value,
            None => body["fields"] = value,
        }
        let (status, response) = fill(&agent, &body).await;
        assert!(status.is_client_error(), "{pointer}: {status}");
        assert!(!response.to_string().contains(secret), "{response}");
    }
    let log = agent.log();
    assert!(
        log.contains("/credentials/fill"),
        "the log has the requests"
    );
    assert!(!log.contains(secret), "{log}");
    agent.stop().await;
}

#[tokio::test]
async fn page_that_hangs_is_not_written_or_unknown() {
    let hanging = variant(
        "hanging",
        &format!("{LOGIN}<script>onload = () => setTimeout(() => {{ for (;;); }})</script>"),
    );
    let stuck = variant(
        "stuck",
        &format!("{LOGIN}<script>oninput = () => {{ for (;;); }}</script>"),
    );
    let site = FormSite::serve(&[hanging.clone(), stuck.clone()]).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    page.go_to(&site.url(&stuck)).await;
    let mut request = stuck.request();
    request["submit"] = true.into();
    let (status, response) = fill(&agent, &request).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    assert_eq!(
        outcomes(&response),
        json!({"username": "unknown", "password": "unknown"})
    );
    let (status, response) = fill(&agent, &request).await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{response}");
    assert_eq!(response["code"], "timeout");
    agent.stop().await;
}

#[tokio::test]
async fn frame_of_another_site_that_does_not_respond_blocks_no_fill() {
    // Its label takes minutes to read.
    let busy = variant(
        "busy",
        "<input name=username><p id=text hidden></p><script>
         text.innerHTML = '<b></b>'.repeat(100000);
         const ids = 'text '.repeat(100000);
         document.querySelector('input').setAttribute('aria-labelledby', ids);
         </script>",
    );
    // Its fields are found in a second step.
    let html = format!(
        "<div id=host></div><script>host.attachShadow({{mode: 'closed'}}).innerHTML = `{LOGIN}`\
         </script><iframe src=OTHER/pages/busy style='width: 400px; height: 200px'></iframe>"
    );
    let login = variant("login", &html);
    let site = FormSite::serve(&[busy, login.clone()]).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    for allowed in [json!([]), json!(["other-site.test"])] {
        page.go_to(&site.url(&login)).await;
        let mut request = login.request();
        request["allowed_domains"] = allowed;
        let (status, response) = fill(&agent, &request).await;
        assert_eq!(status, StatusCode::OK, "{response}");
        let filled = json!({"username": "filled", "password": "filled"});
        assert_eq!(outcomes(&response), filled, "{response}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn page_that_navigates_discloses_no_value_to_another_site() {
    // Two sites that replace each other, of which the other one reports all input.
    let leave = |page: &str| {
        format!(
            "<script>onload = () => setTimeout(() => location = '{page}', 200 * Math.random())</script>"
        )
    };
    let own = variant("own", &format!("{LOGIN}{}", leave("OTHER/pages/other")));
    let report_input = "<script>addEventListener('input', () => navigator.sendBeacon('/leaked'), true);\
        addEventListener('focus', () => navigator.sendBeacon('/leaked'), true)</script>";
    let html = format!("{LOGIN}{report_input}{}", leave("SITE/pages/own"));
    let other = variant("other", &html);
    let site = FormSite::serve(&[own.clone(), other]).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    page.call("Page.navigate", json!({"url": site.url(&own)}))
        .await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let (status, response) = fill(&agent, &own.request()).await;
        let is_expected = match status {
            StatusCode::OK => true,
            StatusCode::FORBIDDEN => response["code"] == "origin_refused",
            StatusCode::CONFLICT => response["code"] == "page_changed",
            StatusCode::SERVICE_UNAVAILABLE => true,
            _ => false,
        };
        assert!(is_expected, "{status}: {response}");
        seen.insert(status.as_u16());
    }
    assert!(seen.len() > 1, "{seen:?}");
    assert_eq!(site.leaks(), 0);
    // A value there would have been reported.
    until("a report", async || {
        let input = "document.querySelector('input').dispatchEvent(new Event('input'))";
        page.call("Runtime.evaluate", json!({ "expression": input }))
            .await;
        (site.leaks() > 0).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn invalid_request_is_400() {
    let agent = Start::without_browser().listening().await;
    let long = "x".repeat(4097);
    let many: Value = (0..34)
        .map(|index| (format!("v{index}"), json!("x")))
        .collect();
    let valid = json!({"domain": "example.com", "values": {"username": "a", "password": "b"}});
    for (field, value, wrong) in [
        ("domain", json!(null), "domain"),
        ("domain", json!(1), "domain"),
        ("domain", json!(""), "domain"),
        ("domain", json!("https://example.com"), "domain"),
        ("domain", json!("example.com:443"), "domain"),
        ("domain", json!("*.example.com"), "domain"),
        ("domain", json!("a.".repeat(130)), "domain"),
        ("values", json!(null), "values"),
        ("values", json!([]), "values"),
        ("values", json!({}), "values"),
        ("values", many, "values"),
        ("values", json!({"username": ""}), "values.username"),
        ("values", json!({"username": 1}), "values.username"),
        ("values", json!({"username": long}), "values.username"),
        ("values", json!({"": "x"}), "values."),
        ("values", json!({"a\u{1}": "x"}), "values.a\u{1}"),
        ("fields", json!([]), "fields"),
        ("fields", json!({}), "fields"),
        ("fields", json!([{}]), "fields[0].name"),
        (
            "fields",
            json!([{"name": "username"}, {"name": "username"}]),
            "fields[1].name",
        ),
        ("fields", json!([{"name": "unknown"}]), "fields[0].name"),
        (
            "fields",
            json!([{"name": "username", "selector": ""}]),
            "fields[0].selector",
        ),
        (
            "fields",
            json!([{"name": "username", "selector": "x".repeat(1025)}]),
            "fields[0].selector",
        ),
        ("submit", json!("yes"), "submit"),
        ("allow_http", json!(1), "allow_http"),
        ("allowed_domains", json!("example.com"), "allowed_domains"),
        (
            "allowed_domains",
            json!(["example.com", "a b"]),
            "allowed_domains[1]",
        ),
        (
            "allowed_domains",
            json!(vec!["example.com"; 33]),
            "allowed_domains",
        ),
    ] {
        let mut body = valid.clone();
        body[field] = value;
        let (status, response) = fill(&agent, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {response}");
        assert_eq!(invalid_fields(&response), [wrong], "{body}: {response}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn request_needs_the_token_and_the_session() {
    let agent = Start::without_browser().listening().await;
    let body = json!({"domain": "example.com", "values": {"username": "a"}});
    let url = agent.url("/credentials/fill");
    let without_token = agent.http.request(Method::POST, &url).json(&body);
    assert_eq!(
        agent.answer(without_token).await.0,
        StatusCode::UNAUTHORIZED
    );
    let of_another_session = agent.post("/credentials/fill").json(&body);
    let of_another_session = of_another_session.header("berth-generation", "2");
    let (status, response) = agent.answer(of_another_session).await;
    assert_eq!(
        (status, &response["code"]),
        (StatusCode::GONE, &json!("session_ended"))
    );
    agent.stop().await;
}
