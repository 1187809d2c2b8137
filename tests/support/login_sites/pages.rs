//! The HTML of the sites.

use axum::response::Html;

const STYLE: &str = "body { margin: 0; font: 16px/1.5 sans-serif; color: #222; background: #f4f4f6 }
    header, main { max-width: 26rem; margin: 1rem auto; padding: 0 1rem }
    main { padding: 1rem 2rem; background: #fff; border: 1px solid #ddd; border-radius: 8px }
    label, input:not([type=checkbox]), button { display: block; margin: .25rem 0 }
    input:not([type=checkbox]), button { box-sizing: border-box; width: 100%; padding: .5rem; font: inherit }
    button { margin-top: 1rem; color: #fff; background: #246; border: 0; border-radius: 4px }
    [role=alert] { color: #a00 } nav a { margin-right: 1rem }";

/// Returns a page with a title and the content of its body.
pub(super) fn document(title: &str, body: &str) -> Html<String> {
    Html(format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\
        <meta name=viewport content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
        <link rel=icon href=data:,><style>{STYLE}</style></head>\n<body>{body}</body></html>"
    ))
}

/// Returns the main part of a page, below its heading.
pub(super) fn main_part(heading: &str, content: &str) -> String {
    format!("<main><h1>{heading}</h1>{content}</main>")
}

/// Returns a page of one step of a login.
pub(super) fn step_page(heading: &str, content: &str) -> Html<String> {
    document(heading, &main_part(heading, content))
}

/// Returns the page of a login form.
pub(super) fn login_page(form: &str) -> Html<String> {
    step_page("Log in", form)
}

pub(super) fn alert(text: &str) -> String {
    format!("<p role=alert>{text}</p>")
}

/// Returns a form with its fields and its button, below a notice.
pub(super) fn form(action: &str, notice: &str, fields: &str, button: &str) -> String {
    format!(
        "{notice}<form method=post action=\"{action}\">{fields}<button type=submit>{button}</button></form>"
    )
}

/// Returns a form with a user name and a password.
pub(super) fn password_form(action: &str, user: &str, notice: &str) -> String {
    let fields = format!("{}{PASSWORD_FIELD}", user_field(user));
    form(action, notice, &fields, "Log in") + "<p><a href=/forgot>Forgot your password?</a></p>"
}

pub(super) const PASSWORD_FIELD: &str = "<label for=password>Password</label>\
    <input type=password id=password name=password autocomplete=current-password required>";

fn user_field(user: &str) -> String {
    format!(
        "<label for=username>User name</label><input id=username name=username \
        autocomplete=username autocapitalize=none spellcheck=false required value=\"{}\">",
        escape(user)
    )
}

/// Returns a field for an email address.
pub(super) fn email_field(email: &str) -> String {
    format!(
        "<label for=identifier>Email</label><input type=email id=identifier name=identifier \
        autocomplete=username required value=\"{}\">",
        escape(email)
    )
}

pub(super) const CODE_FIELD: &str = "<label for=code>Code</label><input id=code name=code \
    autocomplete=one-time-code inputmode=numeric pattern=[0-9]* maxlength=6 required>";

/// Returns the page of members.
pub(super) fn account_page(user: &str, rest: &str) -> Html<String> {
    let body = format!(
        "<header><nav><a href=/account>My account</a><a href=/logout>Log out</a></nav></header>{}{rest}",
        main_part(
            "Your account",
            &format!("<p>Welcome back, <strong>{}</strong>.</p>", escape(user))
        )
    );
    document("Your account", &body)
}

/// Returns the page that everyone can see.
pub(super) fn front_page(site: &str, login_path: &str) -> Html<String> {
    let body = format!(
        "<header><nav><a href=/>{site}</a><a href=\"{login_path}\">Log in</a></nav></header>{}",
        main_part("Welcome", "<p>Everything about gardens, since 1998.</p>")
    );
    document(site, &body)
}

/// Returns a text for HTML, in an element or in an attribute.
pub(super) fn escape(text: &str) -> String {
    let replacements = [
        ('&', "&amp;"),
        ('<', "&lt;"),
        ('>', "&gt;"),
        ('"', "&quot;"),
        ('\'', "&#39;"),
    ];
    let replacements = replacements.iter();
    replacements.fold(text.to_owned(), |text, (character, entity)| {
        text.replace(*character, entity)
    })
}
