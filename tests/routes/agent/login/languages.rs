//! Pages of logins in many languages, from the phrases in `languages.json`.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::routes::agent::credentials::pages::{Variant, variant};

const LANGUAGES: &str = include_str!("languages.json");
/// The methods by the names of their phrases, in their order on the page.
const METHODS: [(&str, &str); 7] = [
    ("sms", "sms"),
    ("call", "call"),
    ("email", "email"),
    ("app", "totp"),
    ("passkey", "passkey"),
    ("password", "password"),
    ("switch", "switch"),
];

/// The phrases of a language by their names.
struct Phrases(HashMap<String, String>);

impl Phrases {
    fn get(&self, name: &str) -> &str {
        &self.0[name]
    }

    /// Replaces each `{name}` by its phrase.
    fn fill(&self, html: &str) -> String {
        let phrases = self.0.iter();
        phrases.fold(html.to_owned(), |html, (name, phrase)| {
            html.replace(&format!("{{{name}}}"), phrase)
        })
    }

    fn page(&self, name: &str, html: &str, expected: Value) -> Variant {
        let language = self.get("language");
        let html = format!("<html lang={language}><meta charset=utf-8>{html}");
        let mut page = variant(&format!("{language}_{name}"), &self.fill(&html));
        page.expected = json!({ "expect": expected });
        page
    }

    fn pages(&self) -> Vec<Variant> {
        let mut pages = vec![self.form(), self.methods(), self.signed_in()];
        pages.extend(["sms", "email", "app"].map(|source| self.code(source)));
        pages.extend(self.steps());
        pages
    }

    /// A login form with all that is around one.
    fn form(&self) -> Variant {
        let html = "<p>{wrong}</p><form><label>{user} <input name=f1></label>\
            <label>{password} <input name=f2 type=password></label>\
            <label><input type=checkbox> {remember}</label>\
            <label><input type=checkbox> {captcha}</label><button>{login}</button></form>\
            <button>{google}</button><button>{sso}</button>\
            <div style='position: fixed; bottom: 0; background: white'><p>{consent}</p>\
            <button>{accept}</button><button>{reject}</button></div>";
        let expected = json!({
            "fields": [{"kind": "username"}, {"kind": "password"}],
            "submit": {"label": self.get("login")},
            "choices": [
                {"kind": "sso_provider", "provider": "google"},
                {"kind": "sso_provider", "provider": "sso"},
            ],
            "captcha": true,
            "consent": {"label": self.get("reject")},
            "remember": {"label": self.get("remember"), "checked": false},
            "error": self.get("wrong"),
        });
        self.page("form", html, expected)
    }

    fn methods(&self) -> Variant {
        let buttons: String = METHODS
            .iter()
            .map(|(phrase, _)| format!("<button>{{{phrase}}}</button>"))
            .collect();
        let choices = METHODS.map(|(_, method)| json!({"kind": "mfa_method", "method": method}));
        let html = format!("<title>{{login}}</title><h1>{{proof}}</h1>{buttons}");
        self.page("methods", &html, json!({ "choices": choices }))
    }

    fn signed_in(&self) -> Variant {
        let html = "<a href=/a>{account}</a><button>{log_out}</button>";
        let evidence = json!({"log_out": "visible", "account": "visible"});
        self.page("signed_in", html, json!({ "evidence": evidence }))
    }

    fn code(&self, source: &str) -> Variant {
        let html = format!(
            "<h1>{{proof}}</h1><p>{{code_{source}}}</p><form><label>{{code}} <input name=f1></label>\
             <button>{{login}}</button></form>"
        );
        let expected = json!({"fields": [{"kind": "code"}], "code": {"source": source}});
        self.page(&format!("code_{source}"), &html, expected)
    }

    /// Pages of other steps.
    fn steps(&self) -> [Variant; 7] {
        [
            self.page(
                "accounts",
                "<h1>{choose_account}</h1><button>ada@example.com</button>\
                 <button>{other_account}</button>",
                json!({"choices": [{"kind": "account"}, {"kind": "other_account"}]}),
            ),
            self.page(
                "push",
                "<title>{login}</title><h1>{proof}</h1><p>{push}</p><button>{switch}</button>",
                json!({
                    "push": {"text": self.get("push")},
                    "choices": [{"kind": "mfa_method", "method": "switch"}],
                }),
            ),
            self.page(
                "password_change",
                "<h1>{change}</h1><form><label>{new} <input type=password name=f1></label>\
                 <label>{again} <input type=password name=f2></label><button>OK</button></form>",
                json!({"fields": [{"kind": "new_password"}, {"kind": "new_password"}]}),
            ),
            self.page(
                "security_question",
                "<h1>{question}</h1><p>{ask}</p><form><label>{answer} <input name=f1></label>\
                 <button>OK</button></form>",
                json!({"fields": [{"kind": "security_answer", "hint": self.get("ask")}]}),
            ),
            self.page(
                "offer",
                "<title>{login}</title><h1>{passkey}</h1><button>{skip}</button>",
                json!({"skip": {"label": self.get("skip")}}),
            ),
            self.page(
                "email_link",
                "<title>{login}</title><p>{link_email}</p>",
                json!({"email_link": self.get("link_email")}),
            ),
            self.page("captcha", "<h1>{human}</h1>", json!({"captcha": true})),
        ]
    }
}

/// Returns the pages of all languages.
pub fn variants() -> Vec<Variant> {
    let languages: Vec<HashMap<String, String>> = serde_json::from_str(LANGUAGES).unwrap();
    assert!(languages.len() > 10, "{}", languages.len());
    let languages = languages.into_iter().map(Phrases);
    languages.flat_map(|phrases| phrases.pages()).collect()
}
